/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Low-bit codes: what is put is what is got, and every reader's sums are those of a loop. */
#include "tests/common.h"

#include <string.h>

#include "simd/codes/codes.h"

/* Coordinates of each width: one section at a time, the smallest and longer ones; sections side by side. */
static const size_t layouts[][DCI_CODE_WIDTHS] = {
        {4, 0, 0, 0, 0},     {64, 0, 0, 0, 0}, {0, 8, 0, 0, 0},   {0, 64, 0, 0, 0},  {0, 0, 32, 0, 0},
        {0, 0, 96, 0, 0},    {0, 0, 0, 16, 0}, {0, 0, 0, 80, 0},  {0, 0, 0, 0, 32},  {0, 0, 0, 0, 128},
        {8, 16, 32, 16, 32}, {4, 0, 0, 16, 0}, {0, 24, 0, 0, 64}, {784, 0, 0, 0, 0}, {0, 784, 0, 0, 0}};
/* Mixed widths after them: bits of the groups, line by line (0: the next line). */
static const uint8_t mixes[][24] = {{4},
                                    {1},
                                    {6},
                                    {1, 5, 2, 0, 2, 6, 0, 6, 1, 1, 0, 5, 3, 0, 3, 5, 0, 4, 4},
                                    {4, 4, 0, 4, 3, 1, 0, 3, 3, 2, 0, 4, 2, 1, 1},
                                    {2, 2, 2, 2, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0, 3, 3, 1, 1, 0, 3}};
enum {
        N_PLAIN = sizeof layouts / sizeof layouts[0],
        N_MIXES = sizeof mixes / sizeof mixes[0],
        N_LAYOUTS = N_PLAIN + 2 * N_MIXES
};
enum { BLOCKS = 3, ROWS = 32 * BLOCKS, MAX_COORDS = 784, QUERIES = 8 };

typedef struct scene {
        dci_code_layout layout;
        size_t stride;
        unsigned char *blocks;
        uint8_t codes[ROWS][MAX_COORDS];
        int8_t queries[QUERIES * MAX_COORDS];
} scene;

/* Alone, or after other sections. */
static void add_mix(dci_code_layout *layout, size_t which)
{
        uint8_t line = 0, shift = 0;
        if (which >= N_MIXES)
                memcpy(layout->n_coords, layouts[10], sizeof layouts[10]);
        for (const uint8_t *bits = mixes[which % N_MIXES], *end = bits + sizeof mixes[0]; bits < end; bits++) {
                if (*bits == 0) {
                        line += shift > 0;
                        shift = 0;
                        continue;
                }
                layout->groups[layout->n_groups++] = (dci_code_group){line, shift, *bits};
                shift = (uint8_t)(shift + *bits);
        }
        layout->n_lines = (size_t)line + (shift > 0);
}

/* The width of each coordinate. */
static int width_of(const dci_code_layout *layout, size_t c)
{
        for (int w = 0; w < DCI_CODE_WIDTHS; c -= layout->n_coords[w++])
                if (c < layout->n_coords[w])
                        return dci_code_bits[w];
        return layout->groups[c / 4].bits;
}

/* Codes and queries at random, or all as large as they may be. */
static scene *new_scene(size_t which, bool extreme, bool even)
{
        scene *s = calloc(1, sizeof *s);
        dci_rng rng;
        dci_rng_seed(&rng, which);
        if (which < N_PLAIN)
                memcpy(s->layout.n_coords, layouts[which], sizeof layouts[which]);
        else
                add_mix(&s->layout, which - N_PLAIN);
        for (int w = 0; w < DCI_CODE_WIDTHS; w++)
                for (int i = 0; i < 16; i++)
                        s->layout.levels[w][i] = extreme ? 127 : (uint8_t)dci_rng_below(&rng, 128);
        s->layout.even[DCI_CODE_4] = s->layout.even[DCI_CODE_2] = s->layout.even[DCI_CODE_1] = even;
        dci_code_layout_finish(&s->layout);
        s->stride = s->layout.n_bytes + 64 * (which % 3);
        s->blocks = malloc(BLOCKS * s->stride);
        memset(s->blocks, 0xa5, BLOCKS * s->stride); /* what was there does not matter */
        for (size_t r = 0; r < ROWS; r++) {
                for (size_t c = 0; c < s->layout.n_all; c++) {
                        const unsigned codes = 1u << width_of(&s->layout, c);
                        s->codes[r][c] = (uint8_t)(extreme ? codes - 1 : dci_rng_below(&rng, codes));
                }
                dci_code_put(&s->layout, s->blocks + r / 32 * s->stride, r % 32, s->codes[r]);
        }
        for (size_t i = 0; i < QUERIES * s->layout.n_all; i++)
                s->queries[i] = (int8_t)(extreme ? -127 : (int)dci_rng_below(&rng, 255) - 127);
        return s;
}

static void free_scene(scene *s)
{
        test_free(s->blocks, s);
}

/* Loops over layouts. */
START_TEST(what_is_put_is_got)
{
        scene *s = new_scene((size_t)_i, false, false);
        uint8_t codes[MAX_COORDS];
        for (size_t r = 0; r < ROWS; r++) {
                dci_code_get(&s->layout, s->blocks + r / 32 * s->stride, r % 32, codes);
                ck_assert_mem_eq(codes, s->codes[r], s->layout.n_all);
        }
        /* Another row in the place of one leaves its neighbours as they are. */
        dci_code_put(&s->layout, s->blocks, 5, s->codes[77]);
        dci_code_get(&s->layout, s->blocks, 5, codes);
        ck_assert_mem_eq(codes, s->codes[77], s->layout.n_all);
        for (size_t r = 4; r <= 6; r += 2) {
                dci_code_get(&s->layout, s->blocks, r, codes);
                ck_assert_mem_eq(codes, s->codes[r], s->layout.n_all);
        }
        free_scene(s);
}
END_TEST

static int32_t naive(const scene *s, size_t r, const int8_t *query)
{
        int32_t sum = 0;
        for (size_t c = 0; c < s->layout.n_all; c++) {
                const uint8_t code = s->codes[r][c];
                const int bits = width_of(&s->layout, c);
                const bool mixed = c >= s->layout.n_all - s->layout.n_groups * 4;
                if (bits == 5 || bits == 6) {
                        sum += code * (bits == 5 ? 4 : 2) * query[c];
                        continue;
                }
                const bool itself = bits == 8 || (s->layout.even[5 - bits] && !mixed);
                sum += (itself ? code : s->layout.levels[5 - bits][code]) * query[c];
        }
        return sum;
}

static void check_sums(const scene *s, dci_code_sums_fn sums_of)
{
        enum { LD = ROWS + 5 };
        int32_t sums[QUERIES * LD];
        const unsigned char *units[2 * BLOCKS];
        for (size_t u = 0; u < 2 * BLOCKS; u++)
                units[u] = dci_code_unit(s->blocks + u / 2 * s->stride, u % 2);
        for (size_t n_queries = 1; n_queries <= QUERIES; n_queries++) {
                memset(sums, 0x77, sizeof sums);
                sums_of(&s->layout, units, 2 * BLOCKS, s->queries, n_queries, sums, LD);
                for (size_t q = 0; q < n_queries; q++) {
                        for (size_t r = 0; r < ROWS; r++)
                                test_hold(sums[q * LD + r] == naive(s, r, s->queries + q * s->layout.n_all));
                        for (size_t r = ROWS; r < LD; r++)
                                test_hold(sums[q * LD + r] == 0x77777777);
                }
        }
}

/* Loops over layouts, at random and at the extremes, even or not; every reader that this machine has. */
START_TEST(sums_are_those_of_a_loop)
{
        scene *s = new_scene((size_t)_i / 4, _i % 2 != 0, _i / 2 % 2 != 0);
        dci_isa isas[6];
        const size_t n_isas = test_isas(isas);
        for (size_t i = 0; i < n_isas; i++) {
                dci_context *context = test_context_isa(isas[i]);
                check_sums(s, dci_code_reader_for(context)->sums);
                ck_assert_ptr_nonnull(dci_code_reader_for(context)->name);
#if defined(__x86_64__)
                if (isas[i] == DCI_ISA_AVX512) /* also where VNNI would be chosen */
                        check_sums(s, dci_code_reader_avx512.sums);
#elif defined(__aarch64__)
                check_sums(s, dci_code_reader_neon.sums); /* also where dot products would be chosen */
#endif
                dci_context_destroy(context);
        }
        free_scene(s);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("codes");
        TCase *tcase = test_case(suite, "laws", 60);
        tcase_add_loop_test(tcase, what_is_put_is_got, 0, N_LAYOUTS);
        tcase_add_loop_test(tcase, sums_are_those_of_a_loop, 0, 4 * N_LAYOUTS);
        return test_main(suite);
}
