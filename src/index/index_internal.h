/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The object and its kinds.
 *
 * dci_index_create checks the config, draws directions and lets the kind create what it has of its own. Rows are added in batches
 * and addressed by slot; the map finds the slot of an id. A search reads a view of the rows, with the state lock shared. Kinds differ in
 * the hooks of dci_kind alone: FLAT scores every row, PDCI and MDCI select candidates first, MDCI also keeps rows in the order of its tree.
 *
 * The cores (rows, idmap, flat, pdci, tree) know no locks; the files above them take these. Order of locks: writers, turnstile, state.
 */
#ifndef DCI_INDEX_INTERNAL_H
#define DCI_INDEX_INTERNAL_H

#include "core/internal.h"

#include <pthread.h>

#include "dci/transform.h"
#include "index/effort.h"
#include "index/idmap.h"
#include "index/pdci/directions.h"
#include "index/rows.h"

struct dci_batch;
struct dci_flat;
/* What a kind does in its own way: a row of the table in kinds.c. NULL: nothing. */
typedef struct dci_kind {
        dci_status (*create)(dci_index *index);
        void (*destroy)(dci_index *index);
        /* Called with `writers` held. A batch may replace rows: see dci_batch. */
        dci_status (*add)(struct dci_batch *batch, const dci_progress *progress);
        dci_status (*remove)(dci_index *index, size_t n, const int64_t *ids);
        dci_status (*clear)(dci_index *index);
        /* Whether a search scores candidates only, and how many; false: every row that is admitted. */
        bool (*effort)(const dci_index *index, const dci_search_params *params, const struct dci_flat *flat, size_t k,
                       void *search);
        /* Prepares the candidates of groups of `group` queries. After success, end. */
        dci_status (*begin)(void *search, const dci_index *index, const struct dci_flat *flat, size_t group);
        void (*end)(void *search);
        /* Of a query, the share of the effort that finds each of n <= DCI_COUNT_LIMITS rows: MDCI of prop_to_visit, PDCI of
         * prop_to_retrieve. After begin; scratch: the candidates' own_bytes. `self`: the slot of the row that is the query, which
         * does not count, or -1. */
        void (*shares)(const void *search, size_t query, const int32_t *slots, size_t n, int32_t self, void *scratch,
                       float *out);
        bool unites; /* the queries of a group share their candidates */
} dci_kind;

/* The kind is one that dci_index_config_check allows. */
const dci_kind *dci_kind_of(dci_index_kind kind);

/* Hooks. FLAT and PDCI: rows have no order; those that come go to the end, the last ones fill the gaps of those that go. */
dci_status dci_rows_add(struct dci_batch *batch, const dci_progress *progress);
dci_status dci_rows_remove(dci_index *index, size_t n, const int64_t *ids);
dci_status dci_rows_remove_all(dci_index *index);
/* PDCI. `search` is a dci_pdci_search. Queries do not share candidates, whatever the group. */
bool dci_pdci_budget(const dci_index *index, const dci_search_params *params, const struct dci_flat *flat, size_t k,
                     void *search);
dci_status dci_pdci_begin(void *search, const dci_index *index, const struct dci_flat *flat, size_t group);
void dci_pdci_end(void *search);
void dci_pdci_shares_of(const void *search, size_t query, const int32_t *slots, size_t n, int32_t self, void *scratch,
                        float *out);
/* MDCI: an empty tree, and the map that this kind always has. `search` is a dci_mdci_search. */
dci_status dci_mdci_create(dci_index *index);
void dci_mdci_destroy(dci_index *index);
dci_status dci_mdci_add(struct dci_batch *batch, const dci_progress *progress);
dci_status dci_mdci_remove(dci_index *index, size_t n, const int64_t *ids);
dci_status dci_mdci_clear(dci_index *index);
bool dci_mdci_effort(const dci_index *index, const dci_search_params *params, const struct dci_flat *flat, size_t k,
                     void *search);
dci_status dci_mdci_begin(void *search, const dci_index *index, const struct dci_flat *flat, size_t group);
void dci_mdci_end(void *search);
void dci_mdci_shares_of(const void *search, size_t query, const int32_t *slots, size_t n, int32_t self, void *scratch,
                        float *out);

/* Of kind AUTO: kind and codes in use are those of the config, which change with the number of rows (auto.c). */
typedef struct dci_automatic {
        bool on;
        int32_t sketch_bits; /* where codes are in use; 0: as the rule says */
        size_t divisor;      /* of the rule's numbers of rows: 1, or more in tests */
        size_t n_changes;    /* of kind or codes: what was measured before says nothing of searches after */
} dci_automatic;

struct dci_index {
        dci_context *context;
        /* The kind in use, `config` and the shape of `rows` change under kind AUTO alone, with `writers` and `state` both held. */
        const dci_kind *kind, *kinds; /* all of them, by dci_index_kind */
        dci_index_config config;
        dci_automatic automatic;
        dci_rows rows;

        /* Serialises add, remove, reserve. Taken first. */
        pthread_mutex_t writers;
        /* Readers hold `state` shared while they search. Add publishes without it (rows.n, rows.table, map are atomic);
         * remove and the freeing of retired memory hold it alone. `turnstile` lets a waiting writer in before new readers. */
        pthread_mutex_t turnstile;
        pthread_rwlock_t state;

        _Atomic(dci_idmap *) map; /* NULL while the id of every row is its slot */
        _Atomic(int64_t) next_id; /* one more than the largest id ever used */
        dci_retired *retired;

        dci_directions directions; /* PDCI */
        struct dci_tree *tree;     /* MDCI; changed by those who hold `state` alone */
        atomic_size_t n_live;      /* rows, in whichever slots they are; published after them */

        /* IP of kinds PDCI and MDCI: c^2 of the lift, published before the rows that need it, so it suffices for all that a view sees. */
        _Atomic(float) c_squared;

        pthread_mutex_t defaults_lock; /* of these two */
        dci_search_params defaults;
        dci_calibration calibration;
        void *metadata; /* the caller's bytes, read with defaults_lock, changed with `writers` as well */
        size_t metadata_bytes;

        void *mapping; /* the file that a mapped index reads; NULL in others */
        size_t mapped_bytes;
        bool loaded; /* norms, projections and codes may be those of a machine that rounds otherwise */
};

#endif
