/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * A search that scores some of the rows: an index kind selects them query by query, the canonical kernel scores them. What a
 * kind selects is a selection like a filter's, so the flat core does the rest.
 */
#ifndef DCI_INDEX_CANDIDATES_H
#define DCI_INDEX_CANDIDATES_H

#include "index/flat/flat.h"
#include "index/pdci/pdci.h"
#include "index/tree/search.h"

typedef struct dci_candidates dci_candidates;

/* Writes the slots of the rows that `group` queries from `query` on should be compared with, and how many rows were visited to find them. `scratch`
 * is own_bytes of the worker's. Returns how many slots there are. */
typedef size_t (*dci_select_fn)(const dci_candidates *candidates, size_t query, void *scratch, int32_t *slots,
                                uint64_t *visited);

struct dci_candidates {
        const dci_flat *flat;
        dci_select_fn select;
        const void *ctx;  /* the kind's */
        size_t own_bytes; /* a multiple of a cache line */
        size_t group;     /* queries that share candidates, at most DCI_MANY_QUERIES; divides their number */
        size_t max_slots;
        size_t k_held; /* size of the selection in each worker's scratch; 0: none */
        size_t work;   /* of one group, in multiply-adds or so */
        /* set by begin */
        size_t n_workers, worker_bytes;
        unsigned char *scratch;
        struct dci_candidates_count {
                uint64_t visited, candidates;
        } * counts; /* by worker */
};

/* Takes scratch for as many workers as pay. On failure nothing is held. */
dci_status dci_candidates_begin(dci_candidates *candidates);
void dci_candidates_end(dci_candidates *candidates);

/* The rows of the group that begins with a query, in the worker's scratch; returns what of that is left for its selections of
 * k_held. */
void *dci_candidates_select(dci_candidates *candidates, size_t query, size_t worker, dci_selection *out);
void dci_candidates_report(const dci_candidates *candidates, dci_search_stats *stats);

/* The k best of the candidates, for all queries. */
dci_status dci_candidates_search(dci_candidates *candidates, size_t k, int64_t *out_ids, float *out_scores,
                                 dci_search_stats *stats);

/* The rerank of an effort that does not say; 0 without codes. */
double dci_sketched_rerank(const dci_index *index);
/* How many rows are scored per query out of n; false: all, and codes are of no use. */
bool dci_sketched_wanted(const dci_index *index, const dci_search_params *params, size_t n, size_t k, size_t *out_keep);
/* The k best of those `keep` rows of each query that rank first by their codes: of the rows that `candidates` selects, or, if it is NULL, of
 * the selection. */
dci_status dci_sketched_search(const dci_flat *flat, dci_candidates *candidates, const dci_search_params *params,
                               size_t keep, size_t k, int64_t *out_ids, float *out_scores, dci_search_stats *stats);

/* For each query, of m <= DCI_COUNT_LIMITS rows by slot (-1 and what follows: none), how many rows of the selection rank as high by
 * their codes; the query's own slot, or -1, does not count. */
dci_status dci_sketched_places(const dci_flat *flat, size_t m, const int32_t *slots, const int32_t *selves, float *out);

/* What the kinds keep of one search. */
typedef struct dci_pdci_search {
        dci_candidates candidates;
        const dci_index *index;
        dci_pdci_cell cell;
        dci_pdci_effort effort;
        float c_squared;
        dci_pdci_run *runs;
        uint64_t *admitted;
        float *lifts;
} dci_pdci_search;

typedef struct dci_mdci_search {
        dci_candidates candidates;
        const dci_index *index;
        dci_descent descent;
        double retrieve; /* share of the rows found that P-DCI keeps; 1: all */
        size_t num_to_retrieve, k;
        float c_squared;
        uint64_t *admitted;
} dci_mdci_search;

/* Room for the search of any kind, the candidates first. */
typedef union dci_kind_search {
        dci_candidates candidates;
        dci_mdci_search mdci;
        dci_pdci_search pdci;
} dci_kind_search;

#endif
