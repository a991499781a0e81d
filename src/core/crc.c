/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* CRC-32C (polynomial 0x1EDC6F41, reflected 0x82F63B78; RFC 3720, appendix B.4), eight bytes a step: "slicing by 8",
 * Kounavis and Berry 2008. Table k tells what a byte does to the remainder when k more bytes follow it. */
#include "core/internal.h"

#include "core/file.h"

/* A remainder is linear in the bits of its byte, so a table follows from its entries at 128, 64, ... 1. Those are eight
 * consecutive states of the shift register, and table k + 1 goes on where table k ends. */
#define ENTRY(i, v7, v6, v5, v4, v3, v2, v1, v0)                                                                       \
        (((i)&128 ? (v7) : 0) ^ ((i)&64 ? (v6) : 0) ^ ((i)&32 ? (v5) : 0) ^ ((i)&16 ? (v4) : 0) ^ ((i)&8 ? (v3) : 0) ^ \
         ((i)&4 ? (v2) : 0) ^ ((i)&2 ? (v1) : 0) ^ ((i)&1 ? (v0) : 0))
#define FOUR(i, ...)                                                                                                   \
        ENTRY((i), __VA_ARGS__), ENTRY((i) + 1, __VA_ARGS__), ENTRY((i) + 2, __VA_ARGS__), ENTRY((i) + 3, __VA_ARGS__)
#define SIXTEEN(i, ...)                                                                                                \
        FOUR((i), __VA_ARGS__), FOUR((i) + 4, __VA_ARGS__), FOUR((i) + 8, __VA_ARGS__), FOUR((i) + 12, __VA_ARGS__)
#define SIXTY_FOUR(i, ...)                                                                                             \
        SIXTEEN((i), __VA_ARGS__), SIXTEEN((i) + 16, __VA_ARGS__), SIXTEEN((i) + 32, __VA_ARGS__),                     \
                SIXTEEN((i) + 48, __VA_ARGS__)
#define TABLE(...)                                                                                                     \
        {                                                                                                              \
                SIXTY_FOUR(0, __VA_ARGS__), SIXTY_FOUR(64, __VA_ARGS__), SIXTY_FOUR(128, __VA_ARGS__),                 \
                        SIXTY_FOUR(192, __VA_ARGS__)                                                                   \
        }

/* clang-format off */
static const uint32_t tables[8][256] = {
        TABLE(0x82F63B78, 0x417B1DBC, 0x20BD8EDE, 0x105EC76F, 0x8AD958CF, 0xC79A971F, 0xE13B70F7, 0xF26B8303),
        TABLE(0xFBC3FAF9, 0xFF17C604, 0x7F8BE302, 0x3FC5F181, 0x9D14C3B8, 0x4E8A61DC, 0x274530EE, 0x13A29877),
        TABLE(0x8B277743, 0xC76580D9, 0xE144FB14, 0x70A27D8A, 0x38513EC5, 0x9EDEA41A, 0x4F6F520D, 0xA541927E),
        TABLE(0x52A0C93F, 0xABA65FE7, 0xD725148B, 0xE964B13D, 0xF64463E6, 0x7B2231F3, 0xBF672381, 0xDD45AAB8),
        TABLE(0x6EA2D55C, 0x37516AAE, 0x1BA8B557, 0x8F2261D3, 0xC5670B91, 0xE045BEB0, 0x7022DF58, 0x38116FAC),
        TABLE(0x1C08B7D6, 0x0E045BEB, 0x85F4168D, 0xC00C303E, 0x6006181F, 0xB2F53777, 0xDB8CA0C3, 0xEF306B19),
        TABLE(0xF56E0EF4, 0x7AB7077A, 0x3D5B83BD, 0x9C5BFAA6, 0x4E2DFD53, 0xA5E0C5D1, 0xD0065990, 0x68032CC8),
        TABLE(0x34019664, 0x1A00CB32, 0x0D006599, 0x847609B4, 0x423B04DA, 0x211D826D, 0x9278FA4E, 0x493C7D27)
};
/* clang-format on */

uint32_t dci_crc32c(uint32_t crc, const void *data, size_t n_bytes)
{
        const unsigned char *at = data;
        crc = ~crc;
        for (; n_bytes >= 8; n_bytes -= 8, at += 8) {
                uint32_t low = crc ^ dci_load_le32(at), high = dci_load_le32(at + 4);
                crc = tables[7][low & 255] ^ tables[6][low >> 8 & 255] ^ tables[5][low >> 16 & 255] ^
                      tables[4][low >> 24] ^ tables[3][high & 255] ^ tables[2][high >> 8 & 255] ^
                      tables[1][high >> 16 & 255] ^ tables[0][high >> 24];
        }
        for (; n_bytes > 0; n_bytes--, at++)
                crc = crc >> 8 ^ tables[0][(crc ^ *at) & 255];
        return ~crc;
}
