/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What the suites about saved indexes share: indexes of all sorts, their bytes, and a way to damage bytes believably. */
#ifndef DCI_TESTS_PERSIST_FIXTURE_H
#define DCI_TESTS_PERSIST_FIXTURE_H

#include "tests/index_fixture.h"
#include "tests/persist_seal.h"

/* One of the indexes that the laws are about. */
typedef struct persist_case {
        dci_index_kind kind;
        dci_metric metric;
        dci_dtype dtype;
        int32_t storage;
} persist_case;
enum { PERSIST_FLAT_CASES = 2 * 3 * 3 * 2, PERSIST_CASES = 3 * 3 * 3 * 2 }; /* the last third: MDCI */
persist_case persist_case_of(int number);

/* What an index has been through before it is saved. */
enum { LIFE_EMPTY, LIFE_ONE, LIFE_SLOTS, LIFE_IDS, LIFE_REMOVED, LIFE_EMPTIED, LIVES };

enum { PERSIST_DIM = 19, PERSIST_ROWS = 4500 /* several chunks, whatever the format */, PERSIST_QUERIES = 2 };

/* An index and what it was made from; borrowed rows lie in `rows`. */
typedef struct persist_world {
        dci_context *context;
        dci_index_config config;
        dci_index *index;
        unsigned char *rows; /* 2 * PERSIST_ROWS of dtype, the first of them zero under COSINE */
        size_t row_bytes;
} persist_world;
/* The context stays the caller's. */
persist_world persist_make(dci_context *context, persist_case c, int life);
void persist_destroy(persist_world *world);

/* In a block that ends with the bytes. */
persist_bytes persist_save(const dci_index *index);
void persist_free(persist_bytes *bytes);
bool persist_equal(const persist_bytes *a, const persist_bytes *b);
persist_bytes persist_copy(const persist_bytes *from, size_t n);

dci_index *persist_load(dci_context *context, const persist_bytes *bytes);

/* Fails unless both answer with the same bits, whatever they are asked; the config's storage may differ. */
void persist_agree(const dci_index *a, const dci_index *b, const char *what);

/* A context of one thread that knows how many bytes are taken, and the most that ever were. */
typedef struct persist_peak {
        size_t live, most;
} persist_peak;
dci_context *persist_counted(persist_peak *peak);

/* Where a section is in a valid file; NULL if there is none. */
unsigned char *persist_section(const persist_bytes *bytes, const char *name, size_t *out_bytes);

#endif
