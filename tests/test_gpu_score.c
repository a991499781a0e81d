/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Scores of summaries, over shapes, unusual numbers and lengths, and in a graph. */
#include <string.h>

#include "tests/gpu_score_fixture.h"

#define ROOM ((size_t)48 << 20)
GPU_SUITE(2 * ROOM)

/* Sink, window, budget and unit; tokens of the sequences. */
#define SIZES .sink = 16, .window = 64, .budget = 256, .unit = 16
#define LENGTHS 1337, 250, 612
#define PACK(...)                                                                                                      \
        {                                                                                                              \
                __VA_ARGS__                                                                                            \
        }
#define CASE(...)                                                                                                      \
        {                                                                                                              \
                __VA_ARGS__, 0, false, false                                                                           \
        }

static score_case shape(int32_t kind, int32_t bits, int32_t dim, int32_t group)
{
        const score_case c = {"shapes", kind, bits,   dim,     group,     DCI_BF16, DCI_BF16, 2, 0,     3,    false,
                              false,    true, NORMAL, {SIZES}, {LENGTHS}, 0,        0,        0, false, false};
        return c;
}

static const int32_t dims[] = {64, 96, 128, 256}, groups[] = {1, 2, 3, 4, 5, 8, 12, 16};

START_TEST(codes_score_as_the_coder_scans)
{
        uint64_t seed = 1;
        for (int32_t bits = 1; bits <= 4; bits *= 2)
                for (size_t d = 0; d < COUNT(dims); d++)
                        for (size_t g = 0; g < COUNT(groups); g++, seed++) {
                                score_case c = shape(DCI_GPU_CODES, bits, dims[d], groups[g]);
                                c.centred = g % 2 == 0;
                                c.query_dtype = (int32_t)(seed % 3 == 0 ? DCI_F32 : seed % 3 == 1 ? DCI_BF16 : DCI_F16);
                                c.dtype = seed % 2 == 0 ? DCI_F16 : DCI_BF16;
                                if (test_short() ? seed % 5 == 0 : !test_thin() || (d + g) % 2 == 0)
                                        score_go(&gpu, &c, seed);
                        }
}
END_TEST

START_TEST(rows_score_as_their_kinds_say)
{
        uint64_t seed = 1;
        for (int32_t kind = DCI_GPU_MEANS; kind <= DCI_GPU_DEVIATIONS; kind++)
                for (size_t d = 0; d < COUNT(dims); d++)
                        for (size_t g = 0; g < COUNT(groups); g++, seed++) {
                                score_case c = shape(kind, 4, dims[d], groups[g]);
                                if (seed % 3 == 0)
                                        c.sizes.fixed = 1;
                                c.sizes.counted = seed % 2 == 0 ? c.sizes.sink : 0;
                                if (seed % 4 == 1) {
                                        c.sizes.share = UINT64_C(1) << (29 + seed % 3);
                                        c.sizes.page = 16;
                                        c.sizes.least = 96;
                                }
                                c.shift = (int32_t)(seed % 3) + 3;
                                c.sizes.unit = 1 << c.shift;
                                c.listed = seed % 4 == 0;
                                c.ordered = seed % 4 == 3 || seed % 5 == 2;
                                c.listed = c.listed && !c.ordered;
                                c.query_dtype = (int32_t)(seed % 3 == 0 ? DCI_F32 : seed % 3 == 1 ? DCI_BF16 : DCI_F16);
                                c.dtype = seed % 2 == 0 ? DCI_F16 : DCI_BF16;
                                c.n_tokens[2] = 2800;
                                if (test_short() ? seed % 5 == 0 : !test_thin() || (d + g) % 2 == 0)
                                        score_go(&gpu, &c, seed);
                        }
}
END_TEST

/* Codes of means, and then of the tokens in some units; short and long sequences, also longer than the table of chunks. */
START_TEST(preselection_scores_means_and_then_units)
{
        uint64_t seed = 1;
        for (int32_t bits = 1; bits <= 4; bits *= 2)
                for (size_t d = 0; d < COUNT(dims); d++)
                        for (size_t g = 0; g < COUNT(groups); g++, seed++) {
                                score_case c = shape(DCI_GPU_CODES, bits, dims[d], groups[g]);
                                c.name = "preselection";
                                c.centred = g % 2 == 0;
                                c.sizes.unit = 8;
                                c.wanted = seed % 3 == 0 ? 34 : 13;
                                c.n_parts = (int32_t)(seed % 5) + 1;
                                c.query_dtype = (int32_t)(seed % 3 == 0 ? DCI_F32 : seed % 3 == 1 ? DCI_BF16 : DCI_F16);
                                if (test_short() ? seed % 5 != 0 : test_thin() && (d + g) % 2 != 0)
                                        continue;
                                score_go(&gpu, &c, seed);
                                c.of_means = true;
                                c.shift = (int32_t)(seed % 3) + 2;
                                c.kept = false;
                                score_go(&gpu, &c, seed);
                        }
        score_case c = shape(DCI_GPU_CODES, 1, 64, 2);
        c.name = "long, preselection";
        c.n_heads = 1;
        c.n_tokens[0] = 300000;
        c.kept = false;
        c.physical = 5;
        c.wanted = 40;
        score_go(&gpu, &c, 1);
        c.of_means = true;
        c.shift = 4;
        score_go(&gpu, &c, 1);
}
END_TEST

/* One graph, while sequences grow beyond the length from which on there is a choice. */
START_TEST(a_graph_preselects_in_longer_sequences)
{
        score_case c = shape(DCI_GPU_CODES, 4, 128, 4);
        c.wanted = 26;
        score_replay(&gpu, &c, 3);
}
END_TEST

START_TEST(unusual_numbers_and_lengths)
{
        static const score_case cases[] = {
                CASE("all equal", DCI_GPU_CODES, 4, 128, 4, DCI_BF16, DCI_F32, 2, 0, 5, false, true, true, EQUAL,
                     PACK(SIZES), PACK(LENGTHS), 0, 0),
                CASE("zeros", DCI_GPU_CODES, 4, 128, 4, DCI_BF16, DCI_F32, 2, 0, 5, false, true, true, ZERO_QUERIES,
                     PACK(SIZES), PACK(LENGTHS), 0, 0),
                CASE("zeros", DCI_GPU_MINMAX, 4, 128, 4, DCI_F16, DCI_F32, 2, 4, 2, false, true, true, ZERO_QUERIES,
                     PACK(SIZES), PACK(LENGTHS), 0, 0),
                CASE("huge", DCI_GPU_CODES, 2, 96, 8, DCI_F16, DCI_F32, 1, 0, 2, false, false, true, HUGE_QUERIES,
                     PACK(SIZES), PACK(LENGTHS), 0, 0),
                CASE("huge", DCI_GPU_CUBOIDS, 4, 96, 16, DCI_F16, DCI_F32, 1, 4, 2, false, false, true, HUGE_QUERIES,
                     PACK(SIZES), PACK(LENGTHS), 0, 0),
                CASE("huge", DCI_GPU_DEVIATIONS, 4, 128, 4, DCI_BF16, DCI_F32, 1, 4, 2, false, false, true,
                     HUGE_QUERIES, PACK(SIZES), PACK(LENGTHS), 0, 0),
                CASE("zeros", DCI_GPU_DEVIATIONS, 4, 96, 8, DCI_F16, DCI_F32, 2, 4, 2, false, true, true, ZERO_QUERIES,
                     PACK(SIZES), PACK(LENGTHS), 0, 0),
                CASE("tiny", DCI_GPU_MEANS, 4, 128, 6, DCI_F16, DCI_F32, 1, 4, 2, false, false, true, TINY_QUERIES,
                     PACK(SIZES), PACK(LENGTHS), 0, 0),
                CASE("tiny", DCI_GPU_CODES, 1, 256, 4, DCI_BF16, DCI_F32, 1, 0, 2, false, true, true, TINY_QUERIES,
                     PACK(SIZES), PACK(LENGTHS), 0, 0),
                CASE("bad", DCI_GPU_CODES, 4, 128, 4, DCI_BF16, DCI_BF16, 2, 0, 2, false, true, true, BAD_QUERIES,
                     PACK(SIZES), PACK(LENGTHS), 0, 0),
                CASE("bad", DCI_GPU_CUBOIDS, 4, 64, 9, DCI_F16, DCI_F16, 2, 4, 2, false, true, true, BAD_QUERIES,
                     PACK(SIZES), PACK(LENGTHS), 0, 0),
                CASE("one candidate", DCI_GPU_CODES, 4, 128, 4, DCI_BF16, DCI_BF16, 2, 0, 7, false, true, true, NORMAL,
                     PACK(.sink = 4, .window = 8, .budget = 12, .unit = 1), PACK(13, 12, 14), 0, 0),
                CASE("borders of chunks", DCI_GPU_CODES, 4, 64, 4, DCI_BF16, DCI_BF16, 2, 0, 64, false, false, true,
                     NORMAL, PACK(.sink = 16, .window = 64, .budget = 96, .unit = 1), PACK(592, 593, 1104), 0, 0),
                CASE("borders of blocks", DCI_GPU_CODES, 2, 128, 5, DCI_BF16, DCI_BF16, 1, 0, 1, false, false, true,
                     NORMAL, PACK(.sink = 16, .window = 64, .budget = 96, .unit = 1), PACK(80 + 31, 80 + 32, 80 + 33),
                     0, 0),
                CASE("a wide window", DCI_GPU_CODES, 4, 128, 4, DCI_F16, DCI_BF16, 2, 0, 4, false, true, true, NORMAL,
                     PACK(.sink = 12, .window = 300, .budget = 400, .unit = 16), PACK(1500, 420, 900), 37, 0),
                CASE("no sink", DCI_GPU_MEANS, 4, 128, 4, DCI_BF16, DCI_BF16, 3, 4, 4, false, false, true, NORMAL,
                     PACK(.sink = 0, .window = 64, .budget = 128, .unit = 16), PACK(LENGTHS), 16, 0),
                CASE("no kept tokens", DCI_GPU_CODES, 4, 128, 4, DCI_BF16, DCI_BF16, 2, 0, 4, false, true, false,
                     NORMAL, PACK(SIZES), PACK(LENGTHS), 0, 0),
                CASE("long", DCI_GPU_CODES, 1, 64, 2, DCI_BF16, DCI_BF16, 1, 0, 1, false, true, false, NORMAL,
                     PACK(SIZES), PACK(270000, 300, 300), 0, 5),
                CASE("long", DCI_GPU_CODES, 4, 64, 1, DCI_BF16, DCI_BF16, 1, 0, 2, false, true, false, NORMAL,
                     PACK(SIZES), PACK(600, 530000, 300), 0, 3),
                CASE("large pages", DCI_GPU_MINMAX, 4, 64, 4, DCI_BF16, DCI_BF16, 1, 9, 1, false, false, false, NORMAL,
                     PACK(.sink = 16, .window = 64, .budget = 256, .unit = 512), PACK(400000, 300, 300), 0, 9),
                CASE("long lists of pages", DCI_GPU_MEANS, 4, 64, 4, DCI_BF16, DCI_BF16, 1, 3, 2, false, false, true,
                     NORMAL, PACK(.sink = 16, .window = 64, .budget = 256, .unit = 8), PACK(20000, 3000, 300), 0, 0)};
        for (size_t i = 0; i < COUNT(cases); i++)
                score_go(&gpu, &cases[i], 300 + i);
}
END_TEST

START_TEST(a_graph_scores_longer_sequences)
{
        for (int32_t kind = DCI_GPU_CODES; kind <= DCI_GPU_MINMAX; kind++) {
                score_case c = shape(kind, 4, 128, 4);
                c.shift = kind == DCI_GPU_CODES ? 0 : 4;
                score_replay(&gpu, &c, (uint64_t)kind);
        }
}
END_TEST

/* Shapes that no kernel is built for. */
START_TEST(what_is_refused)
{
        const score_case c = shape(DCI_GPU_CODES, 4, 128, 4);
        score_state s;
        score_make(&s, &gpu, &c, 1);
        dci_gpu_score_args args = score_arguments(&s);
        if (!gpu_is_host(&gpu)) {
                args.dim = 80;
                ck_refused(gpu.ops->score(gpu.gpu, gpu.stream, &args), DCI_ERR_UNSUPPORTED, "80");
                args = score_arguments(&s);
                args.group = 17;
                ck_refused(gpu.ops->score(gpu.gpu, gpu.stream, &args), DCI_ERR_UNSUPPORTED, "17");
                args = score_arguments(&s);
                args.bits = 3;
                ck_refused(gpu.ops->score(gpu.gpu, gpu.stream, &args), DCI_ERR_UNSUPPORTED, "3 bits");
                args = score_arguments(&s);
                args.n_parts = 65;
                ck_refused(gpu.ops->score(gpu.gpu, gpu.stream, &args), DCI_ERR_LIMIT, "65 parts");
                args = score_arguments(&s);
                args.units = (dci_gpu_units){.lists = (int32_t *)(void *)s.units->device, .wanted = 1, .of_means = 1};
                args.group_shift = 5;
                ck_refused(gpu.ops->score(gpu.gpu, gpu.stream, &args), DCI_ERR_UNSUPPORTED, "means of 2^5");
                args.kind = DCI_GPU_MEANS;
                ck_refused(gpu.ops->score(gpu.gpu, gpu.stream, &args), DCI_ERR_UNSUPPORTED, "of kind 2");
        }
        args = score_arguments(&s);
        args.n_sequences = 0;
        ck_ok(gpu.ops->score(gpu.gpu, gpu.stream, &args));
        score_unmake(&s);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("gpu_score");
        TCase *tcase = test_case_with(suite, "gpu_score", 240, setup, teardown);
        tcase_add_test(tcase, codes_score_as_the_coder_scans);
        tcase_add_test(tcase, rows_score_as_their_kinds_say);
        tcase_add_test(tcase, preselection_scores_means_and_then_units);
        tcase_add_test(tcase, a_graph_preselects_in_longer_sequences);
        tcase_add_test(tcase, unusual_numbers_and_lengths);
        tcase_add_test(tcase, a_graph_scores_longer_sequences);
        tcase_add_test(tcase, what_is_refused);
        return test_main(suite);
}
