/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Blocks of codes with rows and coordinates exchanged. */
#include "tests/common.h"

#include <string.h>

#include "simd/codes/transpose.h"

enum { ROWS = 32, TOKENS = 128, MAX_DIM = 288, MAX_BYTES = MAX_DIM / 32 * 32 * TOKENS };

static const size_t dims[] = {1, 2, 8, 31, 32, 33, 64, 80, 96, 127, 128, 129, 200, 256};
static const struct {
        int bits, section;
} widths[] = {{8, DCI_CODE_8}, {4, DCI_CODE_4}, {2, DCI_CODE_2}, {1, DCI_CODE_1}};
static const struct {
        size_t first, end;
} ranges[] = {{0, 32}, {0, 8}, {8, 16}, {24, 32}, {0, 1}, {31, 32}, {8, 31}, {16, 32}, {5, 6}, {0, 17}, {12, 12}};
enum { N_DIMS = sizeof dims / sizeof dims[0], N_WIDTHS = 4, N_RANGES = sizeof ranges / sizeof ranges[0] };

static dci_code_layout layout_of(int section, size_t n)
{
        dci_code_layout layout = {0};
        layout.n_coords[section] = (n + dci_code_step[section] - 1) / dci_code_step[section] * dci_code_step[section];
        dci_code_layout_finish(&layout);
        return layout;
}

/* The codes of one coordinate's tokens. */
static void get_tokens(int section, const unsigned char *blocks, size_t coord, uint8_t *codes)
{
        const dci_code_layout tokens = layout_of(section, TOKENS);
        dci_code_get(&tokens, blocks + coord / ROWS * tokens.n_bytes, coord % ROWS, codes);
}

/* Loops over dimensions and widths. */
START_TEST(rows_across_are_rows_got_one_by_one)
{
        const size_t dim = dims[_i % N_DIMS], n_blocks = (dim + ROWS - 1) / ROWS;
        const int bits = widths[_i / N_DIMS].bits, section = widths[_i / N_DIMS].section;
        const dci_code_layout layout = layout_of(section, dim);
        const size_t apart = ROWS * TOKENS * (size_t)bits / 8;
        static unsigned char block[ROWS * MAX_DIM], to[MAX_BYTES], before[MAX_BYTES];
        uint8_t codes[ROWS][MAX_DIM], was[TOKENS], is[TOKENS];
        dci_rng rng;
        dci_rng_seed(&rng, (uint64_t)_i);
        memset(codes, 0, sizeof codes);
        for (size_t r = 0; r < ROWS; r++) {
                for (size_t c = 0; c < dim; c++)
                        codes[r][c] = (uint8_t)dci_rng_below(&rng, 1u << bits);
                dci_code_put(&layout, block, r, codes[r]);
        }
        for (size_t i = 0; i < N_RANGES * (TOKENS / ROWS); i++) {
                const size_t first = ranges[i % N_RANGES].first, end = ranges[i % N_RANGES].end;
                const size_t base = i / N_RANGES * ROWS, line = base * (size_t)bits / 32;
                for (size_t b = 0; b < n_blocks * apart; b++)
                        before[b] = to[b] = (unsigned char)dci_rng_below(&rng, 256);
                dci_code_transpose(bits, block, layout.n_bytes / (2 * DCI_CODE_LINE), first, end,
                                   to + 2 * line * DCI_CODE_LINE, n_blocks, apart);
                for (size_t c = 0; c < n_blocks * ROWS; c++) {
                        get_tokens(section, before, c, was);
                        get_tokens(section, to, c, is);
                        for (size_t t = 0; t < TOKENS; t++) {
                                const bool there = t >= base + first && t < base + end;
                                const uint8_t code = c < dim && there ? codes[t - base][c] : 0;
                                ck_assert_uint_eq(is[t], there ? code : was[t]);
                        }
                }
                for (size_t b = n_blocks * apart; b < sizeof to; b++)
                        test_hold(to[b] == before[b]);
        }
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("codes_across");
        TCase *tcase = test_case(suite, "laws", 60);
        tcase_add_loop_test(tcase, rows_across_are_rows_got_one_by_one, 0, N_DIMS * N_WIDTHS);
        return test_main(suite);
}
