/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What the suites of kind PDCI share. */
#ifndef DCI_TESTS_PDCI_FIXTURE_H
#define DCI_TESTS_PDCI_FIXTURE_H

#include "tests/index_fixture.h"

static const dci_metric all_metrics[] = {DCI_METRIC_L2, DCI_METRIC_IP, DCI_METRIC_COSINE};
static const dci_dtype all_dtypes[] = {DCI_F32, DCI_F16, DCI_BF16};
/* Of an index and of k-means. */
static const dci_dtype row_dtypes[] = {DCI_F32, DCI_F16, DCI_BF16, DCI_I8, DCI_U8};

/* Kind PDCI with the default simple indices; rows and queries come as floats. */
dci_index_config pdci_config(size_t dim, dci_metric metric, dci_dtype dtype);

/* An index of these rows, dim apart; ids NULL: 0 to n - 1. n may be 0. */
dci_index *pdci_index(dci_context *context, const dci_index_config *config, size_t n, const float *rows,
                      const int64_t *ids);

/* Budgets in rows; 0: all. */
dci_search_params pdci_effort(size_t visit, size_t retrieve);

/* Any kind with codes, of rows of the trace that come as floats; what a search of such an index verifies. */
dci_index_config pdci_sketched(dci_index_kind kind, dci_metric metric, dci_dtype dtype, int32_t bits);
dci_search_params pdci_verifying(double rerank, double guarantee);

/* n rows of the trace's "keys" or "queries", evenly spread, as floats. */
enum { TRACE_DIM = 64 };
float *pdci_trace(const char *name, size_t n);

/* 0 to n - 1, shuffled. */
int64_t *pdci_shuffled(size_t n, uint64_t seed);

/* Results of a search, as one piece that can be compared bit by bit. */
typedef struct pdci_found {
        size_t n_queries, k;
        int64_t *ids;
        float *scores;
} pdci_found;
pdci_found pdci_search(const dci_index *index, size_t n_queries, const float *queries, size_t k,
                       const dci_search_params *params);
void pdci_found_free(pdci_found *found);
/* The same ids and the same bits of scores. */
bool pdci_same(const pdci_found *a, const pdci_found *b);
/* The lists of the `size` queries from `first` on taken in turn, rank by rank, repeats dropped, until there are k; the rest is padded. */
void pdci_interleave(const pdci_found *lists, size_t first, size_t size, size_t k, int64_t *out_ids, float *out_scores);

/* Asks both indices, at small and large budgets and at full effort, and fails unless they answer the same. filter: NULL, or
 * what the first may return. */
void pdci_agree(const dci_index *index, const dci_filter *filter, const dci_index *other, size_t n_queries,
                const float *queries, const char *what);

/* A radius that every score reaches. */
float pdci_any_radius(dci_metric metric);

/* Candidates of one query, ascending by id, at most `capacity`; returns how many. */
size_t pdci_candidates(const dci_index *index, const float *query, const dci_search_params *params, size_t capacity,
                       int64_t *out_ids);

#endif
