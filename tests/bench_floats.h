/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Fixture of the suites that read floats: small normal rows and queries in .npy files of a scratch folder. */
#ifndef DCI_TESTS_BENCH_FLOATS_H
#define DCI_TESTS_BENCH_FLOATS_H

#include "tests/bench_files.h"

#define N 300
#define DIM 20
#define N_QUERIES 12

static float *base, *queries;

static void setup(void)
{
        scratch_open();
        base = test_normal(N, DIM, 1);
        queries = test_normal(N_QUERIES, DIM, 2);
        bench_write_f32("base.npy", base, N, DIM);
        bench_write_f32("query.npy", queries, N_QUERIES, DIM);
}

static void teardown(void)
{
        free(base);
        free(queries);
        scratch_close();
}

/* Evaluates scratch_path again in each run: the folder is the test's own. */
#define RUN(...) BENCH("ann", "--base", scratch_path("base.npy"), "--query", scratch_path("query.npy"), __VA_ARGS__)
#define JSON "--json", scratch_path("r.json"), "--cache", "none", "--repeat", "1"

#endif
