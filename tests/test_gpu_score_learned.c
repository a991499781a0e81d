/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Scores of learned codes: every kind of frame and layout, against what the coder's scan says; unusual numbers and lengths, and in a graph. */
#include <string.h>

#include "tests/gpu_score_fixture.h"

#define ROOM ((size_t)48 << 20)
GPU_SUITE(ROOM)

static score_case shape(int32_t bits, int32_t dim, int32_t group)
{
        const score_case c = {.name = "learned",
                              .kind = DCI_GPU_LEARNED,
                              .bits = bits,
                              .dim = dim,
                              .group = group,
                              .dtype = DCI_BF16,
                              .query_dtype = DCI_BF16,
                              .n_heads = 2,
                              .n_parts = 3,
                              .kept = true,
                              .sizes = {.sink = 16, .window = 64, .budget = 256, .unit = 16},
                              .n_tokens = {1337, 250, 612}};
        return c;
}

static const int32_t dims[] = {64, 96, 128, 256}, groups[] = {1, 2, 4, 5, 8, 16}, widths[] = {1, 2, 3, 4, 8};

START_TEST(learned_codes_score_as_the_coder_scans)
{
        uint64_t seed = 1;
        for (size_t b = 0; b < COUNT(widths); b++)
                for (size_t d = 0; d < COUNT(dims); d++)
                        for (size_t g = 0; g < COUNT(groups); g++, seed++) {
                                score_case c = shape(widths[b], dims[d], groups[g]);
                                c.query_dtype = (int32_t)(seed % 3 == 0 ? DCI_F32 : seed % 3 == 1 ? DCI_BF16 : DCI_F16);
                                c.dtype = seed % 2 == 0 ? DCI_F16 : DCI_BF16;
                                c.n_heads = dims[d] < 256 ? 3 : 2;
                                if ((widths[b] < 8 || dims[d] <= 128) &&
                                    (test_short()  ? seed % 7 == 0
                                     : test_thin() ? (b + d + g) % 2 == 0
                                                   : dims[d] < 256 || seed % 2 == 0))
                                        score_go(&gpu, &c, seed);
                        }
}
END_TEST

START_TEST(unusual_numbers_and_lengths)
{
        for (int32_t data = EQUAL; data <= BAD_QUERIES; data++)
                for (int32_t bits = 2; bits <= 4; bits++) {
                        score_case c = shape(bits, bits == 2 ? 128 : 64, 4);
                        c.data = data;
                        c.n_heads = 3;
                        c.query_dtype = data == BAD_QUERIES ? DCI_BF16 : DCI_F32;
                        score_go(&gpu, &c, (uint64_t)(10 * data + bits));
                }
        static const struct {
                int32_t tokens[3], parts;
                dci_gpu_sizes sizes;
                bool kept;
        } lengths[] = {{{13, 12, 14}, 7, {.sink = 4, .window = 8, .budget = 12, .unit = 1}, true},
                       {{592, 593, 1104}, 64, {.sink = 16, .window = 64, .budget = 96, .unit = 1}, true},
                       {{80 + 31, 80 + 32, 80 + 33}, 1, {.sink = 16, .window = 64, .budget = 96, .unit = 1}, true},
                       {{1500, 420, 900}, 4, {.sink = 12, .window = 300, .budget = 400, .unit = 16}, false},
                       {{20000, 3000, 300}, 2, {.sink = 16, .window = 64, .budget = 256, .unit = 16}, false}};
        for (size_t i = 0; i < COUNT(lengths); i++) {
                score_case c = shape(2 + (int32_t)i % 3, 64, 2);
                memcpy(c.n_tokens, lengths[i].tokens, sizeof c.n_tokens);
                c.n_parts = lengths[i].parts;
                c.sizes = lengths[i].sizes;
                c.kept = lengths[i].kept;
                score_go(&gpu, &c, 100 + i);
        }
        score_case c = shape(2, 64, 2);
        c.n_tokens[1] = 530000;
        c.physical = 3;
        c.n_heads = 1;
        c.kept = false;
        score_go(&gpu, &c, 200);
}
END_TEST

START_TEST(a_graph_scores_longer_sequences)
{
        for (int32_t bits = 1; bits <= 4; bits++) {
                const score_case c = shape(bits, 128, 4);
                score_replay(&gpu, &c, (uint64_t)bits);
        }
}
END_TEST

START_TEST(what_is_refused)
{
        const score_case c = shape(4, 256, 4);
        score_state s;
        score_make(&s, &gpu, &c, 1);
        dci_gpu_score_args args = score_arguments(&s);
        args.bits = 8;
        if (!gpu_is_host(&gpu))
                ck_refused(gpu.ops->score(gpu.gpu, gpu.stream, &args), DCI_ERR_UNSUPPORTED, "8 bits and 256 elements");
        args.n_sequences = 0;
        args.bits = 4;
        ck_ok(gpu.ops->score(gpu.gpu, gpu.stream, &args));
        score_unmake(&s);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("gpu_score_learned");
        TCase *tcase = test_case_with(suite, "gpu_score_learned", 240, setup, teardown);
        tcase_add_test(tcase, learned_codes_score_as_the_coder_scans);
        tcase_add_test(tcase, unusual_numbers_and_lengths);
        tcase_add_test(tcase, a_graph_scores_longer_sequences);
        tcase_add_test(tcase, what_is_refused);
        return test_main(suite);
}
