/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The layout of low-bit codes, its portable reader, and which reader is the fastest. */
#include "core/internal.h"

#include <string.h>

#include "simd/codes.h"
#include "simd/cpu.h"

const int dci_code_bits[DCI_CODE_WIDTHS] = {8, 4, 3, 2, 1};
const size_t dci_code_step[DCI_CODE_WIDTHS] = {4, 8, 32, 16, 32};

#define PAIR (2 * DCI_CODE_LINE)
#define EACH 0x01010101u /* the same bit of four bytes */

void dci_code_layout_finish(dci_code_layout *layout)
{
        layout->n_all = layout->n_bytes = 0;
        for (int w = 0; w < DCI_CODE_WIDTHS; w++) {
                layout->n_all += layout->n_coords[w];
                layout->n_bytes += layout->n_coords[w] * (size_t)dci_code_bits[w] * DCI_CODE_ROWS / 8;
        }
}

/* Byte 0 in the lowest bits, on every machine. */
static uint32_t load_word(const unsigned char *p)
{
        return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void store_word(unsigned char *p, uint32_t word)
{
        p[0] = (unsigned char)word;
        p[1] = (unsigned char)(word >> 8);
        p[2] = (unsigned char)(word >> 16);
        p[3] = (unsigned char)(word >> 24);
}

/* One line of a row: bits `from` and up of 32 / bits codes. */
static void put_line(unsigned char *word, int bits, int from, const uint8_t *codes)
{
        const uint32_t mask = ((1u << bits) - 1) * EACH;
        uint32_t all = 0;
        for (int shift = 0; shift < 8; shift += bits, codes += 4)
                all |= (load_word(codes) >> from & mask) << shift;
        store_word(word, all);
}

static void get_line(const unsigned char *word, int bits, int from, uint8_t *codes)
{
        const uint32_t mask = ((1u << bits) - 1) * EACH, all = load_word(word);
        for (int shift = 0; shift < 8; shift += bits, codes += 4)
                store_word(codes, (from == 0 ? 0 : load_word(codes)) | (all >> shift & mask) << from);
}

/* Where a row's word of the first line lies. */
static size_t word_of(size_t row)
{
        return row / 16 * DCI_CODE_LINE + row % 16 * 4;
}

void dci_code_put(const dci_code_layout *layout, unsigned char *block, size_t row, const uint8_t *codes)
{
        unsigned char *line = block + word_of(row);
        for (int w = 0; w < DCI_CODE_WIDTHS; w++) {
                const int bits = dci_code_bits[w] == 3 ? 2 : dci_code_bits[w];
                for (size_t c = 0; c < layout->n_coords[w]; c += 32 / (size_t)bits) {
                        put_line(line, bits, 0, codes + c);
                        line += PAIR;
                        if (w == DCI_CODE_3 && c % 32 == 16) {
                                put_line(line, 1, 2, codes + c - 16);
                                line += PAIR;
                        }
                }
                codes += layout->n_coords[w];
        }
}

void dci_code_get(const dci_code_layout *layout, const unsigned char *block, size_t row, uint8_t *codes)
{
        const unsigned char *line = block + word_of(row);
        for (int w = 0; w < DCI_CODE_WIDTHS; w++) {
                const int bits = dci_code_bits[w] == 3 ? 2 : dci_code_bits[w];
                for (size_t c = 0; c < layout->n_coords[w]; c += 32 / (size_t)bits) {
                        get_line(line, bits, 0, codes + c);
                        line += PAIR;
                        if (w == DCI_CODE_3 && c % 32 == 16) {
                                get_line(line, 1, 2, codes + c - 16);
                                line += PAIR;
                        }
                }
                codes += layout->n_coords[w];
        }
}

static int32_t sum_line(const unsigned char *word, int bits, const unsigned char *high, int high_shift,
                        const uint8_t *levels, const int8_t *query)
{
        int32_t sum = 0;
        for (int shift = 0; shift < 8; shift += bits)
                for (int i = 0; i < 4; i++) {
                        unsigned code = (unsigned)word[i] >> shift & ((1u << bits) - 1);
                        if (high != NULL)
                                code |= ((unsigned)high[i] >> (high_shift + shift / bits) & 1u) << 2;
                        sum += (int32_t)(levels == NULL ? code : levels[code]) * *query++;
                }
        return sum;
}

static int32_t sum_row(const dci_code_layout *layout, const unsigned char *block, size_t row, const int8_t *query)
{
        const unsigned char *line = block + word_of(row);
        int32_t sum = 0;
        for (int w = 0; w < DCI_CODE_WIDTHS; w++) {
                const int bits = dci_code_bits[w] == 3 ? 2 : dci_code_bits[w];
                const size_t per_line = 32 / (size_t)bits;
                for (size_t c = 0; c < layout->n_coords[w]; c += per_line, line += PAIR) {
                        const unsigned char *high = NULL;
                        if (w == DCI_CODE_3)
                                high = c % 32 == 0 ? line + 2 * PAIR : line + PAIR;
                        sum += sum_line(line, bits, high, c % 32 == 0 ? 0 : 4,
                                        w == DCI_CODE_8 ? NULL : layout->levels[w], query + c);
                        if (w == DCI_CODE_3 && c % 32 == 16)
                                line += PAIR;
                }
                query += layout->n_coords[w];
        }
        return sum;
}

void dci_code_sums_scalar(const dci_code_layout *layout, const unsigned char *blocks, size_t stride, size_t n_blocks,
                          const int8_t *queries, size_t n_queries, int32_t *sums, size_t ld)
{
        for (size_t q = 0; q < n_queries; q++)
                for (size_t i = 0; i < n_blocks * DCI_CODE_ROWS; i++)
                        sums[q * ld + i] = sum_row(layout, blocks + i / DCI_CODE_ROWS * stride, i % DCI_CODE_ROWS,
                                                   queries + q * layout->n_all);
}

dci_code_sums_fn dci_code_sums_for(const dci_context *context, const char **out_name)
{
        const char *name = "scalar";
        dci_code_sums_fn fn = dci_code_sums_scalar;
#if defined(__x86_64__)
        if (context->isa >= DCI_ISA_AVX512 && dci_cpu_has_vnni()) {
                name = "avx512 vnni";
                fn = dci_code_sums_vnni;
        } else if (context->isa >= DCI_ISA_AVX512) {
                name = "avx512";
                fn = dci_code_sums_avx512;
        } else if (context->isa == DCI_ISA_AVX2) {
                name = "avx2";
                fn = dci_code_sums_avx2;
        }
#else
        (void)context;
#endif
        if (out_name != NULL)
                *out_name = name;
        return fn;
}
