/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * A program with an OpenMP runtime of its own that loads libdci.so, which brings another, next to an OpenBLAS with threads: parallel regions
 * of all three, one after another and at the same time, and searches give the bits that one thread gives.
 * Usage: runtimes LIBDCI local|deep     deep: what libdci.so brings comes before what the program has (RTLD_DEEPBIND)
 */
#define _GNU_SOURCE /* RTLD_DEEPBIND */
#include <dlfcn.h>
#include <omp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dci/dci.h"

enum { N = 6000, DIM = 64, QUERIES = 64, K = 5, SIDE = 400, THREADS = 4, ROUNDS = 5 };

#define CALLS(X)                                                                                                       \
        X(dci_context_config_init)                                                                                     \
        X(dci_context_create)                                                                                          \
        X(dci_context_destroy)                                                                                         \
        X(dci_index_config_init)                                                                                       \
        X(dci_index_create)                                                                                            \
        X(dci_index_add)                                                                                               \
        X(dci_index_search)                                                                                            \
        X(dci_index_destroy)

/* The library's functions, and OpenBLAS's as libdci.so finds them. */
static struct {
#define MEMBER(name) __typeof__(&name) name;
        CALLS(MEMBER)
        void (*cblas_sgemm)(int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *,
                            int);
        void (*openblas_set_num_threads)(int);
} of;

static float rows[N * DIM], queries[QUERIES * DIM], square[SIDE * SIDE];
static int64_t wanted[QUERIES * K];

static void *found(void *library, const char *name)
{
        void *symbol = dlsym(library, name);
        if (symbol == NULL) {
                fprintf(stderr, "runtimes: there is no %s\n", name);
                exit(1);
        }
        return symbol;
}

static void load(const char *path, bool deep)
{
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | (deep ? RTLD_DEEPBIND : 0));
        if (library == NULL) {
                fprintf(stderr, "runtimes: %s\n", dlerror());
                exit(1);
        }
        void *symbol;
#define LOAD(name)                                                                                                     \
        symbol = found(library, #name);                                                                                \
        memcpy(&of.name, &symbol, sizeof symbol);
        CALLS(LOAD)
        LOAD(cblas_sgemm)
        LOAD(openblas_set_num_threads)
}

/* An index of its own context; whether it finds what one thread finds. */
static bool search(int32_t n_threads, int64_t *ids)
{
        dci_context_config config;
        dci_index_config shape;
        dci_context *context = NULL;
        dci_index *index = NULL;
        bool good = of.dci_context_config_init(&config, sizeof config) == DCI_OK &&
                    of.dci_index_config_init(&shape, sizeof shape) == DCI_OK;
        config.n_threads = n_threads;
        shape.dim = DIM;
        good = good && of.dci_context_create(&config, &context) == DCI_OK &&
               of.dci_index_create(context, &shape, &index) == DCI_OK &&
               of.dci_index_add(index, N, rows, DIM, NULL, NULL) == DCI_OK &&
               of.dci_index_search(index, QUERIES, queries, DIM, K, NULL, ids, NULL) == DCI_OK;
        of.dci_index_destroy(index);
        of.dci_context_destroy(context);
        return good;
}

static bool as_wanted(void)
{
        int64_t ids[QUERIES * K];
        return search(3, ids) && memcmp(ids, wanted, sizeof ids) == 0;
}

/* A product that OpenBLAS shares out among threads of its own: row major, neither is transposed. */
static void multiply(float *out)
{
        of.cblas_sgemm(101, 111, 111, SIDE, SIDE, SIDE, 1.0f, square, SIDE, square, SIDE, 0.0f, out, SIDE);
}

/* Regions of the program's runtime, each of whose threads searches, and one multiplies meanwhile. */
static int rounds(void)
{
        static float product[SIDE * SIDE], again[SIDE * SIDE];
        int wrong = 0, most = 0;
        multiply(product);
        for (int round = 0; round < ROUNDS; round++) {
#pragma omp parallel num_threads(THREADS) reduction(+ : wrong) reduction(max : most)
                {
                        most = omp_get_num_threads();
                        if (omp_get_thread_num() == 0) {
                                multiply(again);
                                wrong += memcmp(product, again, sizeof again) != 0;
                        } else {
                                wrong += !as_wanted();
                        }
                }
                wrong += !as_wanted();
        }
        return most == THREADS ? wrong : -1;
}

int main(int argc, char **argv)
{
        if (argc != 3)
                return 2;
        uint32_t state = 1;
        for (size_t i = 0; i < N * DIM + QUERIES * DIM + SIDE * SIDE; i++) {
                state = state * 1664525u + 1013904223u;
                const float value = (float)(state >> 8) / 16777216.0f - 0.5f;
                if (i < N * DIM)
                        rows[i] = value;
                else if (i < N * DIM + QUERIES * DIM)
                        queries[i - N * DIM] = value;
                else
                        square[i - N * DIM - QUERIES * DIM] = value;
        }
        load(argv[1], strcmp(argv[2], "deep") == 0);
        of.openblas_set_num_threads(THREADS);
        if (!search(1, wanted))
                return 1;
        const int wrong = rounds();
        printf("runtimes: %s: %d answers are wrong\n", argv[2], wrong);
        return wrong == 0 ? 0 : 1;
}
