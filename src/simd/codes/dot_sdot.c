/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Low-bit codes with the dot products of AArch64: Arm from Cortex-A76 and Neoverse N1, Apple from A11. */
#include "core/internal.h"

#include "simd/codes/dot_neon.h"

#define READER dci_code_reader_dot
#define NAME "neon dot"

DCI_INLINE W w_dot(W acc, V a, int8x16_t q)
{
        return vdotq_s32(acc, vreinterpretq_s8_u8(a), q); /* a to 127 */
}

/* Signed bytes: 255 less 128, which 64 twice make up for. */
DCI_INLINE W w_dot_wide(W acc, V a, int8x16_t q)
{
        const int8x16_t low = vreinterpretq_s8_u8(veorq_u8(a, vdupq_n_u8(0x80))), half = vdupq_n_s8(64);
        return vdotq_s32(vdotq_s32(vdotq_s32(acc, low, q), half, q), half, q);
}

typedef int32x4_t E;
#define E_ROOM(bits) SIZE_MAX
#define e_zero() vdupq_n_s32(0)
#define e_dot(acc, a, q) w_dot(acc, a, q)
#define e_flush(sum, acc) vaddq_s32(sum, acc)

#include "simd/codes/dot_template.h"
