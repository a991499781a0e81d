/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The made-up traces of test_bench_papers.c: which tokens are important is known. */
#ifndef DCI_TESTS_PAPERS_TRACE_H
#define DCI_TESTS_PAPERS_TRACE_H

#include <stdio.h>
#include <string.h>

#include "tests/bench_files.h"

/* Two heads; scores are the first two coordinates of the keys, one of which a query reads. */
enum { TOKENS = 600, PROMPT = 560, OBSERVED = 64, GROUP = 2, DIM = 8, STEPS = TOKENS - PROMPT, WINDOW = 64, SINK = 16 };

static double scores[2][TOKENS];

/* Important: every 6th token from 100 on, 64 of them. In a trace that stands still all queries look at coordinate 0 and all of these
 * are important; in one that turns queries look at coordinates 0 and 1 in turns, and the first 32 and the last 32 of them are. */
static size_t important(size_t i)
{
        return 100 + 6 * i;
}
enum { N_IMPORTANT = 64 };

static void write_trace(bool turns, size_t observed)
{
        const size_t m = observed + STEPS;
        char text[160], shape[48];
        float *keys = test_normal(TOKENS, DIM, 3), *values = test_normal(TOKENS, DIM, 4);
        float *queries = calloc(GROUP * m * DIM, sizeof *queries);
        ck_assert_ptr_nonnull(queries);
        for (size_t i = 0; i < TOKENS; i++)
                for (size_t j = 0; j < 2; j++)
                        keys[i * DIM + j] = i < PROMPT ? -0.001F * (float)i : -5 - 0.001F * (float)i;
        for (size_t i = 0; i < N_IMPORTANT; i++)
                keys[important(i) * DIM + (turns && i >= N_IMPORTANT / 2)] = 9 + 0.01F * (float)i;
        for (size_t i = 0; i < GROUP * m; i++)
                queries[i * DIM + (turns && i % m % 2 == 1)] = 1;
        for (size_t j = 0; j < 2; j++)
                for (size_t i = 0; i < TOKENS; i++)
                        scores[j][i] = (double)keys[i * DIM + j];
        snprintf(text, sizeof text,
                 "{\"tokens\": %d, \"prompt\": %d, \"first_query\": %zu, \"group\": %d, \"scale\": 1}", TOKENS, PROMPT,
                 PROMPT - observed, GROUP);
        scratch_put("meta.json", text, strlen(text));
        bench_write_f32("keys.npy", keys, TOKENS, DIM);
        bench_write_f32("values.npy", values, TOKENS, DIM);
        snprintf(shape, sizeof shape, "%d, %zu, %d", GROUP, m, DIM);
        bench_write_npy("queries.npy", "<f4", shape, queries, GROUP * m * DIM * sizeof *queries);
        free(keys);
        free(values);
        free(queries);
}

#endif
