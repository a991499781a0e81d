/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Search of kind MDCI: the tree chooses rows, and P-DCI among them if the cells have simple indices. */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "core/arena.h"
#include "index/candidates.h"
#include "index/pdci/pdci.h"
#include "index/pdci/project.h"

/* Are all nodes opened? */
static bool opens_all(const dci_tree *tree, const dci_descent *descent)
{
        bool all = true;
        for (size_t l = 0; l < tree->n_levels; l++)
                all = all && descent->field_of_view >= tree->levels[l].n;
        return descent->field_of_view != 0 ? all : descent->share >= 1.0;
}

bool dci_mdci_effort(const dci_index *index, const dci_search_params *params, const dci_flat *flat, size_t k,
                     void *search)
{
        dci_mdci_search *out = search;
        if (flat->n == 0)
                return false;
        const dci_tree *tree = index->tree;
        const double n = (double)tree->n_rows;
        memset(out, 0, sizeof *out);
        out->descent.share = params->prop_to_visit;
        if (params->num_to_visit != 0) /* any number may be asked for, also more than there are rows */
                out->descent.share = fmin((double)params->num_to_visit / n, 1.0);
        out->descent.field_of_view = params->field_of_view;
        out->descent.at_least = k;
        out->descent.n_admitted = flat->n;
        out->retrieve = params->prop_to_retrieve;
        out->num_to_retrieve = params->num_to_retrieve;
        if (index->config.cell_simp_indices == 0) {
                out->retrieve = 1.0;
                out->num_to_retrieve = 0;
        }
        const bool retrieves_all = out->num_to_retrieve != 0 ? out->num_to_retrieve >= flat->n : out->retrieve >= 1.0;
        if (k >= flat->n || (opens_all(tree, &out->descent) && retrieves_all))
                return false;
        /* Few rows count: all of them are soon scored. */
        const double share = out->descent.field_of_view == 0
                                     ? out->descent.share
                                     : (double)out->descent.field_of_view / (double)tree->levels[0].n;
        return flat->selection->all || (double)flat->n > share * n;
}

/* Scratch of one worker after the descent's: P-DCI over the rows found. */
typedef struct ranking {
        float *query, *projections, *lifts, *norms;
        uint64_t *bits;
        void *rest;
} ranking;

static size_t ranking_lay_out(const dci_mdci_search *s, void *memory, ranking *out)
{
        const size_t n = s->candidates.flat->n, m = s->index->directions.n;
        if (m == 0)
                return 0;
        const dci_arena_part parts[] = {{m * sizeof(float), &out->query},
                                        {m * n * sizeof(float), &out->projections},
                                        {n * sizeof(float), &out->lifts},
                                        {n * sizeof(float), &out->norms},
                                        {(n + 63) / 64 * sizeof(uint64_t), &out->bits},
                                        {dci_pdci_scratch_bytes(n), &out->rest}};
        return DCI_ARENA(parts, memory);
}

/* Of n rows found, those that P-DCI retrieves for any query of the group. */
static size_t retrieve(const dci_mdci_search *s, size_t query, const ranking *r, int32_t *slots, size_t n)
{
        const dci_flat *flat = s->candidates.flat;
        const dci_view *view = &flat->view;
        const size_t m = s->index->directions.n, full = (size_t)1 << view->rows->chunk_shift;
        const size_t words = (n + 63) / 64;
        const double share = ceil(s->retrieve * (double)n);
        const dci_positions positions = {view, slots};
        for (size_t i = 0; i < n; i++) {
                const size_t slot = (size_t)slots[i], offset = slot & (full - 1);
                const dci_chunk *chunk = &view->table->chunk[slot >> view->rows->chunk_shift];
                for (size_t j = 0; j < m; j++)
                        r->projections[j * n + i] = chunk->projections[j * chunk->stride + offset];
        }
        dci_pdci_run run = {r->projections, n, n};
        dci_pdci_cell cell = {.kernels = flat->kernels,
                              .n_comp = 1,
                              .n_simp = m,
                              .runs = &run,
                              .n_runs = 1,
                              .n = n,
                              .ids = {dci_position_id, &positions},
                              .n_admitted = n};
        if (s->index->directions.weights != NULL) {
                dci_view_norms(view, 0, slots, n, r->norms);
                flat->kernels->lift(r->norms, n, s->c_squared, r->lifts);
                cell.weights = s->index->directions.weights;
                cell.lifts = r->lifts;
        }
        dci_pdci_effort effort = {.visit = (uint64_t)n * m, .at_least = s->k};
        effort.retrieve = s->num_to_retrieve != 0 ? s->num_to_retrieve : (size_t)share;
        memset(r->bits, 0, words * sizeof *r->bits);
        for (size_t q = 0; q < s->candidates.group; q++) {
                dci_project_query(s->index, flat->queries, query + q, s->c_squared, r->query);
                dci_pdci_candidates(&cell, r->query, &effort, r->rest, r->bits);
        }
        size_t kept = 0;
        for (size_t i = 0; i < n; i++) {
                slots[kept] = slots[i];
                kept += r->bits[i / 64] >> (i % 64) & 1;
        }
        return kept;
}

static size_t select(const dci_candidates *candidates, size_t query, void *scratch, int32_t *slots, uint64_t *visited)
{
        const dci_mdci_search *s = candidates->ctx;
        const dci_queries *queries = candidates->flat->queries;
        const dci_tree *tree = s->index->tree;
        ranking r;
        size_t n = dci_tree_descend(tree, queries->rows + query * queries->ld, queries->ld, candidates->group,
                                    &s->descent, scratch, slots, visited);
        if (ranking_lay_out(s, (unsigned char *)scratch + dci_tree_descend_bytes(tree), &r) > 0 &&
            (s->retrieve < 1.0 || s->num_to_retrieve != 0) && n > s->k)
                n = retrieve(s, query, &r, slots, n);
        return n;
}

void dci_mdci_shares_of(const void *search, size_t query, const int32_t *slots, size_t n, int32_t self, void *scratch,
                        float *out)
{
        const dci_mdci_search *s = search;
        const dci_queries *queries = s->candidates.flat->queries;
        dci_tree_shares(s->index->tree, queries->rows + query * queries->ld, slots, n, self, scratch, out);
}

dci_status dci_mdci_begin(void *search, const dci_index *index, const dci_flat *flat, size_t group)
{
        dci_mdci_search *s = search;
        const dci_tree *tree = index->tree;
        ranking r;
        s->index = index;
        s->k = s->descent.at_least;
        s->c_squared = tree->c_squared;
        s->candidates = (dci_candidates){.flat = flat, .select = select, .ctx = s, .group = group};
        s->candidates.max_slots = flat->n;
        s->candidates.own_bytes = dci_tree_descend_bytes(tree) + ranking_lay_out(s, NULL, &r);
        s->candidates.work = (size_t)(s->descent.share * (double)flat->n) * flat->view.rows->dim;
        const size_t n_nodes = tree->levels[0].n,
                     opened = s->descent.field_of_view < n_nodes ? s->descent.field_of_view : n_nodes;
        if (opened != 0)
                s->candidates.work = (flat->n / n_nodes + 1) * opened * flat->view.rows->dim;
        s->candidates.work += tree->levels[tree->n_levels - 1].n * tree->dim;
        if (flat->selection->all)
                return DCI_OK;
        s->descent.admitted = s->admitted = dci_selection_bits(flat->context, flat->selection, flat->view.n);
        return s->admitted == NULL ? DCI_ERR_MEMORY : DCI_OK;
}

void dci_mdci_end(void *search)
{
        dci_mdci_search *s = search;
        const dci_flat *flat = s->candidates.flat;
        dci_free(flat->context, s->admitted, (flat->view.n + 63) / 64, sizeof *s->admitted);
}
