/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Descent: all nodes of the top level are ranked by the mean of the rows beneath them, the best are opened, their children
 * ranked, and so on; the rows of the best nodes of the lowest level are what the query is compared with.
 *
 * The paper ranks nodes by the promoted row itself. The mean of a cell, which costs nothing more to compare with, finds more: at
 * the same number of rows 0.96 of the true neighbours in place of 0.93 on attention keys (docs/experiments.md).
 */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "core/arena.h"
#include "index/tree/search.h"
#include "simd/select.h"

typedef struct descent {
        const dci_tree *tree;
        const float *queries;
        size_t ld, n_queries;
        float *values; /* by query and candidate: how bad it is */
        size_t ld_values;
        float *kept;
        int32_t *order;
        int32_t *nodes, *next; /* candidates of this level and of the next */
        uint8_t *opened;       /* by candidate */
        const void **pointers;
} descent;

static size_t max_nodes(const dci_tree *tree)
{
        size_t n = 0;
        for (size_t l = 0; l < tree->n_levels; l++)
                n = tree->levels[l].n > n ? tree->levels[l].n : n;
        return n;
}

static size_t lay_out(const dci_tree *tree, void *memory, descent *out)
{
        const size_t n = (max_nodes(tree) + DCI_LANES) / DCI_LANES * DCI_LANES;
        const dci_arena_part parts[] = {{n * DCI_MANY_QUERIES * sizeof(float), &out->values},
                                        {(n + DCI_LANES) * sizeof(float), &out->kept},
                                        {(n + 2 * DCI_SELECT_SAMPLE) * sizeof(int32_t), &out->order},
                                        {n * sizeof(int32_t), &out->nodes},
                                        {n * sizeof(int32_t), &out->next},
                                        {n * sizeof(uint8_t), &out->opened},
                                        {n * sizeof(void *), &out->pointers}};
        *out = (descent){.tree = tree, .ld_values = n};
        return DCI_ARENA(parts, memory);
}

size_t dci_tree_descend_bytes(const dci_tree *tree)
{
        descent measured;
        return lay_out(tree, NULL, &measured);
}

/* How bad each of the n candidates is for each query: the squared distance of its mean, or the product with it, negated. */
static void rank(const descent *d, const dci_level *level, size_t n, bool all)
{
        const dci_tree *tree = d->tree;
        const dci_kernels *kernels = tree->context->kernels;
        const size_t dim = tree->dim;
        const int form = tree->metric == DCI_METRIC_L2 ? DCI_FORM_L2 : DCI_FORM_DOT;
        if (all && d->n_queries == 1) {
                kernels->score_strided[DCI_F32 - 1][form](d->queries, level->routes, dim * sizeof(float), n, dim,
                                                          d->values);
        } else {
                for (size_t i = 0; i < n; i++)
                        d->pointers[i] = level->routes + (all ? i : (size_t)d->nodes[i]) * dim;
                if (d->n_queries == 1)
                        kernels->score_rows[DCI_F32 - 1][form](d->queries, d->pointers, n, dim, d->values);
                else
                        kernels->score_many[DCI_F32 - 1][form](d->queries, d->ld, d->n_queries, d->pointers, n, dim,
                                                               d->values, d->ld_values);
        }
        for (size_t q = 0; tree->metric != DCI_METRIC_L2 && q < d->n_queries; q++)
                for (size_t i = 0; i < n; i++)
                        d->values[q * d->ld_values + i] = -d->values[q * d->ld_values + i];
}

/* Keeps what any query has among its `wanted` best of n candidates, and those that are as good as the last of them. */
static size_t keep_best(descent *d, size_t n, bool all, size_t wanted)
{
        memset(d->opened, 0, n);
        for (size_t q = 0; q < d->n_queries; q++) {
                const float *values = d->values + q * d->ld_values;
                float limit = INFINITY;
                if (wanted < n)
                        limit = dci_select(d->tree->context->kernels, values, n, wanted, d->kept, d->order).value;
                for (size_t i = 0; i < n; i++)
                        d->opened[i] |= values[i] <= limit;
        }
        size_t kept = 0;
        for (size_t i = 0; i < n; i++) {
                d->nodes[kept] = all ? (int32_t)i : d->nodes[i];
                kept += d->opened[i];
        }
        return kept;
}

/* The children of n nodes become the candidates. */
static size_t open_nodes(descent *d, const dci_level *level, size_t n)
{
        size_t found = 0;
        for (size_t i = 0; i < n; i++) {
                const dci_cell *cell = &level->cells[d->nodes[i]];
                if (cell->n > 0)
                        memcpy(d->next + found, cell->items, cell->n * sizeof *d->next);
                found += cell->n;
        }
        int32_t *t = d->nodes;
        d->nodes = d->next;
        d->next = t;
        return found;
}

static size_t keep_admitted(const uint64_t *admitted, int32_t *slots, size_t n)
{
        size_t kept = 0;
        for (size_t i = 0; i < n; i++) {
                const size_t slot = (size_t)slots[i];
                slots[kept] = slots[i];
                kept += admitted[slot / 64] >> (slot % 64) & 1;
        }
        return kept;
}

/* Rows of n nodes of the lowest level that count. */
static size_t gather(const descent *d, const dci_descent *effort, size_t n, int32_t *out)
{
        const dci_level *level = &d->tree->levels[0];
        size_t found = 0;
        for (size_t i = 0; i < n; i++) {
                const dci_cell *cell = &level->cells[d->nodes[i]];
                if (effort->admitted == NULL) {
                        found += dci_tree_cell_slots(d->tree, cell, out + found);
                        continue;
                }
                /* out has room for those that count alone: page by page, through a buffer. */
                for (uint32_t p = 0; p < cell->n; p++) {
                        const size_t here = dci_tree_page_fill(d->tree, cell, p);
                        int32_t slots[DCI_MAX_PAGE_ROWS] = {0};
                        for (size_t r = 0; r < here; r++)
                                slots[r] = cell->items[p] * (int32_t)d->tree->page_rows + (int32_t)r;
                        const size_t kept = keep_admitted(effort->admitted, slots, here);
                        memcpy(out + found, slots, kept * sizeof *out);
                        found += kept;
                }
        }
        return found;
}

/* Above the lowest level more nodes are opened than the share says: their children are soon ranked, and a node that is missed there
 * cannot be made good below. */
#define SPARE 4
#define FEWEST_ABOVE 16

static size_t opened_of(double share, size_t field_of_view, size_t l, size_t n)
{
        size_t wanted = field_of_view;
        if (wanted == 0) {
                const double spared = (l > 0 ? SPARE : 1) * share * (double)n;
                wanted = spared >= (double)n ? n : (size_t)ceil(spared);
                wanted = l > 0 && wanted < FEWEST_ABOVE ? FEWEST_ABOVE : wanted;
        }
        return wanted > 0 ? wanted : 1;
}

size_t dci_tree_descend(const dci_tree *tree, const float *queries, size_t ld, size_t n_queries,
                        const dci_descent *effort, void *scratch, int32_t *out_slots, uint64_t *visited)
{
        descent d;
        double share = effort->share;
        size_t field_of_view = effort->field_of_view;
        lay_out(tree, scratch, &d);
        d.queries = queries;
        d.ld = ld;
        d.n_queries = n_queries;
        for (;;) {
                size_t l = tree->n_levels - 1, n = tree->levels[l].n;
                bool all = true;
                for (;;) {
                        const dci_level *level = &tree->levels[l];
                        rank(&d, level, n, all);
                        *visited += n * n_queries;
                        n = keep_best(&d, n, all, opened_of(share, field_of_view, l, level->n));
                        all = false;
                        if (l == 0)
                                break;
                        n = open_nodes(&d, level, n);
                        l--;
                }
                const size_t found = gather(&d, effort, n, out_slots);
                if (found >= effort->at_least || found == effort->n_admitted) {
                        *visited += found * n_queries;
                        return found;
                }
                /* Too few rows for the k that is asked: twice as many nodes. */
                share = share < 0.5 ? 2.0 * share : 1.0;
                field_of_view = field_of_view > SIZE_MAX / 2 ? SIZE_MAX : 2 * field_of_view;
        }
}

static int32_t ancestor(const dci_tree *tree, int32_t slot, size_t l)
{
        int32_t node = tree->page_node[(size_t)slot / tree->page_rows];
        for (size_t i = 0; i < l; i++)
                node = tree->levels[i].parents[node];
        return node;
}

/* How bad a node is without one of the n rows beneath it, which is the query; product: of the query with that row as means hold it. */
static float without(const dci_tree *tree, float value, uint32_t n, float product)
{
        if (n <= 1)
                return INFINITY;
        const float most = (float)n, left = most - 1.0f;
        if (tree->metric == DCI_METRIC_L2)
                return value * (most / left) * (most / left);
        return (most * value + product) / left;
}

/* A node is opened when no more than so many are as good, at each level: among all nodes, so among those that are compared. */
void dci_tree_shares(const dci_tree *tree, const float *query, const int32_t *slots, size_t m, int32_t self,
                     void *scratch, float *out)
{
        const dci_kernels *kernels = tree->context->kernels;
        const float norm2 = kernels->norm2[DCI_F32 - 1](query, tree->dim);
        const float product = tree->metric == DCI_METRIC_COSINE ? sqrtf(norm2) : norm2;
        descent d;
        lay_out(tree, scratch, &d);
        d.queries = query;
        d.n_queries = 1;
        memset(out, 0, m * sizeof *out);
        for (size_t l = 0; l < tree->n_levels; l++) {
                const dci_level *level = &tree->levels[l];
                rank(&d, level, level->n, true);
                if (self >= 0) {
                        const int32_t own = ancestor(tree, self, l);
                        d.values[own] = without(tree, d.values[own], level->cells[own].n_rows, product);
                }
                for (size_t i = 0; i < m; i++) {
                        const float value = d.values[ancestor(tree, slots[i], l)];
                        const size_t place = dci_count_less(kernels, d.values, level->n, nextafterf(value, INFINITY));
                        float share = (float)place / (float)level->n;
                        if (l > 0)
                                share = place <= FEWEST_ABOVE ? 0.0f : share / SPARE;
                        out[i] = share > out[i] ? share : out[i];
                }
        }
}
