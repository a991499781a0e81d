/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Objects that are saved over a file of an earlier state of theirs: indexes of each kind, and a sequence of a KV cache. */
#ifndef DCI_TESTS_SAVED_FIXTURE_H
#define DCI_TESTS_SAVED_FIXTURE_H

#include "tests/kv_fixture.h"

enum { SAVED_FLAT, SAVED_PDCI, SAVED_MDCI_CODES, SAVED_KV, SAVED_KINDS };
enum { SAVED_OLD, SAVED_NEW, SAVED_STATES }; /* the state a file has, and the one that replaces it */
enum { SAVED_QUERIES = 4, SAVED_K = 6 };

typedef struct saved_world {
        int kind;
        dci_context *context;
        dci_index *index[SAVED_STATES]; /* of indexes */
        dci_kv *kv;
        kv_data data;
        int64_t sequence;
        size_t n_tokens[SAVED_STATES];
        float *rows, *queries;
        unsigned char *bytes[SAVED_STATES]; /* what a save writes */
        size_t n_bytes[SAVED_STATES];
} saved_world;

/* Rows of the trace, `scale` times some hundred, in a context of its own with one thread; needs a scratch folder, which it leaves empty. */
saved_world saved_make(int kind, size_t scale);
void saved_destroy(saved_world *world);

dci_status saved_save(const saved_world *world, int state, const char *path);
/* Loads a file (mapped: maps an index) and gives back what it made, if that answers as the world does in this state. */
dci_status saved_load(saved_world *world, int state, bool mapped, const char *path);

/* The state that a file of the scratch folder holds to the byte; SAVED_STATES: neither. */
int saved_state_of(const saved_world *world, const char *name);

#endif
