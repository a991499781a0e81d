/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * A program that loads libdci.so, uses it and unloads it, over and over, as hosts of plugins do: an index that is made, asked and destroyed
 * by threads of each executor, a cache with a worker of its own, a call that is refused. Answers stay the same, and descriptors, threads,
 * mappings and resident memory are at the end what they were after the first rounds.
 * Usage: reload LIBDCI [ROUNDS]
 */
#include <dirent.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dci/dci.h"

enum { N = 4000, DIM = 64, QUERIES = 8, K = 3, THREADS = 3, FIRST_ROUNDS = 50 };

/* A leak of this many bytes per round would be more than what allocators and the loader let memory waver by. */
#define LEAK_PER_ROUND 512
#define WAVERS (512L * 1024)

#define CALLS(X)                                                                                                       \
        X(dci_last_error)                                                                                              \
        X(dci_context_config_init)                                                                                     \
        X(dci_context_create)                                                                                          \
        X(dci_context_destroy)                                                                                         \
        X(dci_index_config_init)                                                                                       \
        X(dci_index_create)                                                                                            \
        X(dci_index_add)                                                                                               \
        X(dci_index_search)                                                                                            \
        X(dci_index_destroy)                                                                                           \
        X(dci_kv_config_init)                                                                                          \
        X(dci_kv_create)                                                                                               \
        X(dci_kv_destroy)

static struct {
/* NOLINTNEXTLINE(bugprone-macro-parentheses): a name that is declared */
#define MEMBER(name) __typeof__(&name) name;
        CALLS(MEMBER)
} of;

static float rows[N * DIM], queries[QUERIES * DIM];
static int64_t wanted[QUERIES * K];

/* What a process has, by the system's own lists. */
typedef struct belongings {
        long descriptors, threads, mappings, bytes;
} belongings;

static long entries(const char *folder)
{
        long n = 0;
        DIR *list = opendir(folder);
        while (list != NULL && readdir(list) != NULL)
                n++;
        if (list != NULL)
                closedir(list);
        return n;
}

static belongings now(void)
{
        belongings b = {entries("/proc/self/fd"), entries("/proc/self/task"), 0, 0};
        char line[512];
        FILE *file = fopen("/proc/self/smaps", "r");
        while (file != NULL && fgets(line, sizeof line, file) != NULL) {
                if (strncmp(line, "Rss:", 4) == 0) {
                        b.mappings++;
                        b.bytes += strtol(line + 4, NULL, 10) * 1024;
                }
        }
        if (file != NULL)
                fclose(file);
        return b;
}

static bool load(const char *path, void **library)
{
        *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (*library == NULL) {
                fprintf(stderr, "reload: %s\n", dlerror());
                return false;
        }
        void *symbol;
#define LOAD(name)                                                                                                     \
        symbol = dlsym(*library, #name);                                                                               \
        if (symbol == NULL) {                                                                                          \
                fprintf(stderr, "reload: there is no %s\n", #name);                                                    \
                return false;                                                                                          \
        }                                                                                                              \
        memcpy(&of.name, &symbol, sizeof symbol);
        CALLS(LOAD)
        return true;
}

/* An index of its own context, and the sentence that a refused call leaves in this thread's memory of the library. */
static bool use(bool pthreads, int64_t *ids)
{
        dci_context_config config;
        dci_index_config shape;
        dci_context *context = NULL;
        dci_index *index = NULL;
        bool good = of.dci_context_config_init(&config, sizeof config) == DCI_OK &&
                    of.dci_index_config_init(&shape, sizeof shape) == DCI_OK;
        if (pthreads)
                config.executor_kind = DCI_EXECUTOR_PTHREADS; /* else the default, OpenMP where it was built in */
        config.n_threads = THREADS;
        shape.dim = DIM;
        shape.kind = DCI_KIND_PDCI;
        good = good && of.dci_context_create(&config, &context) == DCI_OK &&
               of.dci_index_create(context, &shape, &index) == DCI_OK &&
               of.dci_index_add(index, N, rows, DIM, NULL, NULL) == DCI_OK &&
               of.dci_index_search(index, QUERIES, queries, DIM, K, NULL, ids, NULL) == DCI_OK &&
               of.dci_index_add(index, 1, rows, DIM - 1, NULL, NULL) == DCI_ERR_INVALID &&
               strlen(of.dci_last_error()) > 0;
        /* Its threads are alive now, and GNU's stay so: otherwise nothing is tried here. */
        if (good && config.executor_kind == DCI_EXECUTOR_OPENMP && entries("/proc/self/task") < 2 + 2) {
                fprintf(stderr, "reload: OpenMP has started no thread\n");
                good = false;
        }
        of.dci_index_destroy(index);
        of.dci_context_destroy(context);
        return good;
}

/* A cache starts a thread of its own for prompts. */
static bool use_cache(void)
{
        dci_kv_config config;
        dci_context *context = NULL;
        dci_kv *kv = NULL;
        bool good = of.dci_kv_config_init(&config, sizeof config) == DCI_OK;
        config.n_layers = 1;
        config.n_query_heads = config.n_kv_heads = 1;
        config.dim_k = DIM;
        good = good && of.dci_context_create(NULL, &context) == DCI_OK &&
               of.dci_kv_create(context, &config, &kv) == DCI_OK;
        of.dci_kv_destroy(kv);
        of.dci_context_destroy(context);
        return good;
}

/* The first round's answers are those wanted of all others. */
static bool round_of(const char *path, bool is_first)
{
        int64_t ids[2][QUERIES * K];
        void *library;
        if (!load(path, &library))
                return false;
        bool good = use(true, ids[0]) && use(false, ids[1]) && use_cache();
        if (is_first)
                memcpy(wanted, ids[0], sizeof wanted);
        good = good && memcmp(ids[0], wanted, sizeof wanted) == 0 && memcmp(ids[1], wanted, sizeof wanted) == 0;
        if (!good)
                fprintf(stderr, "reload: a call failed, or its answers differ: %s\n", of.dci_last_error());
        memset(&of, 0, sizeof of);
        return dlclose(library) == 0 && good;
}

int main(int argc, char **argv)
{
        if (argc < 2)
                return 2;
        const long n_rounds = argc > 2 ? strtol(argv[2], NULL, 10) : 1000;
        uint32_t state = 1;
        for (size_t i = 0; i < N * DIM + QUERIES * DIM; i++) {
                state = state * 1664525u + 1013904223u;
                *(i < N * DIM ? &rows[i] : &queries[i - N * DIM]) = (float)(state >> 8) / 16777216.0f - 0.5f;
        }
        belongings first = {0, 0, 0, 0};
        for (long i = 0; i < FIRST_ROUNDS + n_rounds; i++) {
                if (i == FIRST_ROUNDS)
                        first = now();
                if (!round_of(argv[1], i == 0))
                        return 1;
        }
        const belongings last = now();
        void *still = dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD);
        printf("reload: %ld rounds: descriptors %+ld, threads %+ld, mappings %+ld, resident %+ld bytes; afterwards "
               "%s\n",
               n_rounds, last.descriptors - first.descriptors, last.threads - first.threads,
               last.mappings - first.mappings, last.bytes - first.bytes, still == NULL ? "unloaded" : "still there");
        const bool good = last.descriptors == first.descriptors && last.threads == first.threads &&
                          last.mappings <= first.mappings + 4 &&
                          last.bytes - first.bytes <= WAVERS + n_rounds * LEAK_PER_ROUND;
        return good ? 0 : 1;
}
