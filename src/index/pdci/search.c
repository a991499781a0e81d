/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Search of kind PDCI: the composite indices choose candidates. Budgets, the cell as a view shows it, one query at a time. */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "index/candidates.h"
#include "index/pdci/project.h"

/* ceil(share * n), at least 1 and at most n. */
static uint64_t share_of(double share, uint64_t n)
{
        double part = ceil(share * (double)n);
        uint64_t count = part >= (double)n ? n : (uint64_t)part;
        return count > 0 ? count : 1;
}

bool dci_pdci_budget(const dci_index *index, const dci_search_params *params, const dci_flat *flat, size_t k,
                     void *search)
{
        dci_pdci_search *s = search;
        const size_t n = flat->n, m = index->config.num_simp_indices;
        const uint64_t pairs = (uint64_t)n * m; /* n < 2^31, m <= 2^12 */
        uint64_t visit = share_of(params->prop_to_visit, pairs);
        uint64_t retrieve = share_of(params->prop_to_retrieve, n);
        if (params->num_to_visit != 0)
                visit = params->num_to_visit < n ? (uint64_t)params->num_to_visit * m : pairs;
        if (params->num_to_retrieve != 0)
                retrieve = params->num_to_retrieve;
        if (k >= n || (visit >= pairs && retrieve >= n))
                return false;
        *s = (dci_pdci_search){.effort = {.visit = visit, .retrieve = (size_t)retrieve, .at_least = k}};
        return true;
}

static size_t count_runs(const dci_view *view)
{
        const size_t full = (size_t)1 << view->rows->chunk_shift;
        return (view->n + full - 1) / full;
}

static void fill_runs(const dci_view *view, dci_pdci_run *runs)
{
        size_t left = view->n;
        for (size_t r = 0; left > 0; r++) {
                const dci_chunk *chunk = &view->table->chunk[r];
                size_t n = chunk->capacity < left ? chunk->capacity : left;
                runs[r] = (dci_pdci_run){chunk->projections, chunk->stride, n};
                left -= n;
        }
}

/* Bits of the rows that the filter admits, and lifts: shared by all queries of a call. */
static dci_status prepare_cell(dci_pdci_search *s)
{
        const dci_index *index = s->index;
        const dci_flat *flat = s->candidates.flat;
        const size_t n = flat->view.n;
        dci_context *context = flat->context;
        dci_pdci_cell *cell = &s->cell;
        cell->kernels = flat->kernels;
        cell->n_comp = index->config.num_comp_indices;
        cell->n_simp = index->config.num_simp_indices;
        cell->weights = index->directions.weights;
        cell->ids = flat->ids;
        cell->n = n;
        cell->n_admitted = flat->n;
        cell->n_runs = count_runs(&flat->view);
        s->runs = dci_alloc(context, cell->n_runs, sizeof *s->runs);
        s->admitted = flat->selection->all ? NULL : dci_selection_bits(context, flat->selection, n);
        s->lifts = cell->weights == NULL ? NULL : dci_alloc(context, n, sizeof *s->lifts);
        if (s->runs == NULL || (s->admitted == NULL && !flat->selection->all) ||
            (s->lifts == NULL && cell->weights != NULL))
                return DCI_ERR_MEMORY;
        fill_runs(&flat->view, s->runs);
        size_t at = 0;
        for (size_t r = 0; s->lifts != NULL && r < cell->n_runs; at += s->runs[r++].n)
                flat->kernels->lift(flat->view.table->chunk[r].norms, s->runs[r].n, s->c_squared, s->lifts + at);
        cell->runs = s->runs;
        cell->admitted = s->admitted;
        cell->lifts = s->lifts;
        return DCI_OK;
}

/* Scratch: bits of the candidates, projections of the query, the core's own. */
static size_t select(const dci_candidates *candidates, size_t query, void *scratch, int32_t *slots, uint64_t *visited)
{
        const dci_pdci_search *s = candidates->ctx;
        const size_t words = (s->cell.n + 63) / 64;
        unsigned char *at = scratch;
        uint64_t *bits = (uint64_t *)(void *)at;
        float *projections = (float *)(void *)(at + dci_lines(words * sizeof *bits));
        void *rest = (unsigned char *)projections + dci_lines(s->index->directions.n * sizeof *projections);
        memset(bits, 0, words * sizeof *bits);
        dci_project_query(s->index, candidates->flat->queries, query, s->c_squared, projections);
        dci_pdci_candidates(&s->cell, projections, &s->effort, rest, bits);
        *visited += s->cell.n_admitted;
        return dci_bits_slots(bits, words, slots);
}

void dci_pdci_shares_of(const void *search, size_t query, const int32_t *slots, size_t n, int32_t self, void *scratch,
                        float *out)
{
        const dci_pdci_search *s = search;
        unsigned char *at = (unsigned char *)scratch + dci_lines((s->cell.n + 63) / 64 * sizeof(uint64_t));
        float *projections = (float *)(void *)at;
        dci_project_query(s->index, s->candidates.flat->queries, query, s->c_squared, projections);
        dci_pdci_shares(&s->cell, projections, slots, n, self,
                        at + dci_lines(s->index->directions.n * sizeof *projections), out);
}

dci_status dci_pdci_begin(void *search, const dci_index *index, const dci_flat *flat, size_t group)
{
        dci_pdci_search *s = search;
        const size_t n = flat->view.n, n_simple = index->directions.n;
        (void)group;
        s->index = index;
        /* After the view: whatever c it finds covers the rows of the view. */
        s->c_squared = atomic_load(&((dci_index *)(uintptr_t)index)->c_squared);
        s->candidates.flat = flat;
        s->candidates.select = select;
        s->candidates.ctx = s;
        s->candidates.group = 1;
        s->candidates.max_slots = flat->n;
        s->candidates.work = flat->n * (n_simple + flat->view.rows->dim);
        s->candidates.own_bytes = dci_lines((n + 63) / 64 * sizeof(uint64_t)) + dci_lines(n_simple * sizeof(float)) +
                                  dci_pdci_scratch_bytes(n);
        dci_status status = prepare_cell(s);
        if (status != DCI_OK)
                dci_pdci_end(s);
        return status;
}

void dci_pdci_end(void *search)
{
        dci_pdci_search *s = search;
        const dci_flat *flat = s->candidates.flat;
        dci_free(flat->context, s->runs, s->cell.n_runs, sizeof *s->runs);
        dci_free(flat->context, s->admitted, (flat->view.n + 63) / 64, sizeof *s->admitted);
        dci_free(flat->context, s->lifts, flat->view.n, sizeof *s->lifts);
}
