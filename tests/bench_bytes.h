/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Fixture of the suites that read bytes: small rows and queries of bytes with their true neighbours, and a scratch folder. */
#ifndef DCI_TESTS_BENCH_BYTES_H
#define DCI_TESTS_BENCH_BYTES_H

#include "tests/bench_files.h"

#define N 60
#define DIM 9
#define N_QUERIES 5
#define K 4

static unsigned char *base, *queries;
static int32_t *neighbours;

static void setup(void)
{
        scratch_open();
        base = bench_values(N, DIM, 1);
        queries = bench_values(N_QUERIES, DIM, 2);
        neighbours = bench_neighbours(base, N, queries, N_QUERIES, DIM, K);
}

static void teardown(void)
{
        free(base);
        free(queries);
        free(neighbours);
        scratch_close();
}

#endif
