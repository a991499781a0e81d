/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The P-DCI core (Prioritized Dynamic Continuous Indexing, Li and Malik 2017): which rows of a cell become candidates.
 *
 * The published walk goes outward from the query along each simple index and always visits next, within a composite index,
 * the (row, simple index) pair of the smallest projected difference; a row visited in all its simple indices is a candidate.
 * So rows become candidates in the order of their largest projected difference, equal ones by id. That order needs no walk:
 * the largest differences of all rows are computed by a vectorised scan and the first `retrieve` are selected, or as many as
 * `visit` visits complete. The sets are those of the walk, row by row; tests/ keeps the walk to compare with.
 *
 * A cell's memory is the caller's: projections by simple index, in runs, row by row in slot order. No locks, no allocation.
 */
#ifndef DCI_INDEX_PDCI_PDCI_H
#define DCI_INDEX_PDCI_PDCI_H

#include "core/internal.h"

#include "simd/select.h"
#include "simd/topk.h"

/* Rows whose projections are adjacent: row i's on simple index j is projections[j * stride + i]. */
typedef struct dci_pdci_run {
        const float *projections;
        size_t stride, n;
} dci_pdci_run;

typedef struct dci_pdci_cell {
        const dci_kernels *kernels;
        size_t n_comp, n_simp; /* composite indices, simple indices of each */
        const float *weights;  /* IP: the last coordinate of each direction, which multiplies the lift; else NULL */
        const float *lifts;    /* IP: by slot */
        const dci_pdci_run *runs;
        size_t n_runs, n;         /* n: rows of all runs; slots count through them */
        dci_slot_ids ids;         /* decides between equal differences */
        const uint64_t *admitted; /* bits by slot of rows that may be returned; NULL: all */
        size_t n_admitted;
} dci_pdci_cell;

/* Budgets of one query, per composite index as published: k1 visits of (row, simple index) pairs, k2 candidates. */
typedef struct dci_pdci_effort {
        uint64_t visit; /* 1 or more */
        size_t retrieve;
        size_t at_least; /* candidates that are retrieved whatever the budgets say: the k of the search */
} dci_pdci_effort;

/* Bytes of scratch for a cell of n rows. */
size_t dci_pdci_scratch_bytes(size_t n);

/* Sets the bits of the candidates of one query among (n + 63) / 64 cleared words. projections: n_comp * n_simp of the query.
 * Cost: O(n_comp n_simp n) with a constant of about a cycle per 16 pairs. */
void dci_pdci_candidates(const dci_pdci_cell *cell, const float *projections, const dci_pdci_effort *effort,
                         void *scratch, uint64_t *bits);

/* The shares of rows that a composite index has to retrieve to come to each of m <= DCI_COUNT_LIMITS rows, by slot; of the one that
 * comes there first. `self`: a row that does not count, or -1. */
void dci_pdci_shares(const dci_pdci_cell *cell, const float *projections, const int32_t *slots, size_t m, int32_t self,
                     void *scratch, float *out);

#endif
