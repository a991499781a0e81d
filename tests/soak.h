/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The parts of the soak: soak.c has the rounds and what the process is left with, soak_index.c and soak_kv.c what threads do. */
#ifndef DCI_TESTS_SOAK_H
#define DCI_TESTS_SOAK_H

#include <pthread.h>

#include "tests/work_fixture.h"

enum { SOAK_KINDS = 3, SOAK_READERS = 2, SOAK_CACHES = 2, SOAK_DECODERS = 2 };
enum { SOAK_BLOCK = 40, SOAK_BLOCKS = 40, SOAK_UNIVERSE = SOAK_BLOCK * SOAK_BLOCKS, SOAK_QUERIES = 16, SOAK_K = 10 };
enum { SOAK_STEPS = 50 }; /* tokens that a sequence decodes at most */
enum {
        SOAK_SEARCHES,
        SOAK_EXACT,
        SOAK_RANGES,
        SOAK_ADDS,
        SOAK_REMOVES,
        SOAK_FILES,
        SOAK_TUNES,
        SOAK_SEQUENCES,
        SOAK_TOKENS,
        SOAK_FORKS,
        SOAK_LOADS,
        SOAK_COUNTS
};

/* Of one kind of index: what there is, row by row. A state counts up, by its writer: 4n absent, 4n + 1 being added, 4n + 2 present, 4n + 3
 * being removed. */
typedef struct soak_index {
        dci_index_kind kind;
        dci_metric metric;
        int32_t sketch_bits;
        dci_index *index;
        atomic_uint state[SOAK_UNIVERSE];
        float score[SOAK_QUERIES][SOAK_UNIVERSE];
} soak_index;

typedef struct soak_cache {
        work_data work;
        dci_kv *kv;
        uint64_t hash[SOAK_STEPS + 1]; /* of the outputs of so many tokens after a prompt */
} soak_cache;

typedef struct soak_world {
        uint64_t seed;
        test_memory memory;
        soak_index indexes[SOAK_KINDS];
        soak_cache caches[SOAK_CACHES];
        float *rows, *queries;
        char folder[64];
        double until;
        atomic_size_t n_wrong;
        char complaint[512];
        size_t counts[SOAK_COUNTS];
} soak_world;

/* A thread. */
typedef struct soak_part {
        soak_world *world;
        size_t number;
        dci_rng rng;
        size_t counts[SOAK_COUNTS];
        pthread_t thread;
} soak_part;

/* The universe, its scores, a folder for files; and what a sequence says that is alone. */
bool soak_prepare(soak_world *world);
void soak_forget(soak_world *world);
/* The objects of a round. */
bool soak_make(soak_world *world, dci_context *context);
void soak_unmake(soak_world *world);
bool soak_prepare_cache(soak_world *world, soak_cache *cache, int32_t preset);

/* Threads: the writer of an index, a reader of all, a life of sequences. */
void *soak_write(void *part);
void *soak_read(void *part);
void *soak_decode(void *part);

bool soak_goes_on(const soak_part *part);
/* Takes the first complaint down; false. */
bool soak_wrong(soak_part *part, const char *format, ...) DCI_PRINTF(2, 3);
bool soak_ok(soak_part *part, dci_status status, const char *call);
#define SOAK_OK(part, call) soak_ok((part), (call), #call)

DCI_INLINE size_t soak_below(soak_part *part, size_t n)
{
        return (size_t)dci_rng_below(&part->rng, n);
}

#endif
