/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The way of queries through the levels (IceCache 2026, algorithm 4). At each level the nodes that were reached are
 * ranked by the mean of the rows below them, each query head keeps its best `wanted`, and the children of what any head
 * keeps are reached at the next. With simple indices only the share of them that P-DCI retrieves for any head is
 * ranked.
 */
#include "core/internal.h"

#include <string.h>

#include "core/arena.h"
#include "kv/stages/rank.h"
#include "kv/tree/tree.h"
#include "simd/select.h"

enum { NOT_SEEN, MET, OPENED };

size_t dci_kv_tree_descent_lay_out(const dci_kv *kv, size_t ld, void *memory, dci_kv_tree_descent *out)
{
        const size_t n = dci_kv_tree_descends(kv) ? ld : 0;
        const dci_arena_part parts[] = {
                {n * sizeof(int32_t), &out->list},
                {n * sizeof(int32_t), &out->next},
                {n, &out->seen},
                {kv->group * kv->config.tree_simple_indices * sizeof(float), &out->projections}};
        const size_t n_bytes = DCI_ARENA(parts, memory);
        return n_bytes + dci_kv_tree_pdci_lay_out(kv, ld, memory == NULL ? NULL : (unsigned char *)memory + n_bytes,
                                                  &out->retrieval);
}

void dci_kv_tree_descent_begin(const dci_kv_query *ask, const dci_kv_tree *tree, const dci_kv_tree_descent *d)
{
        const dci_kv *kv = ask->kv;
        const size_t m = kv->config.tree_simple_indices;
        for (size_t q = 0; q < kv->group && m > 0; q++)
                dci_kv_tree_project_query(kv, tree, ask->queries + q * kv->dim_k, d->projections + q * m);
}

void dci_kv_tree_negate(const dci_kv_query *ask, size_t n)
{
        for (size_t q = 0; q < ask->kv->group; q++)
                for (size_t i = 0; i < n; i++)
                        ask->scores[q * ask->ld + i] = -ask->scores[q * ask->ld + i];
}

/* Negated products of the queries with the means of n nodes of level l in the list. */
static void rank(dci_kv_query *ask, const dci_kv_tree *tree, const dci_kv_tree_descent *d, size_t l, size_t n)
{
        const dci_kv *kv = ask->kv;
        const size_t row_bytes = kv->dim_k * kv->es;
        const unsigned char *means = l == 0 ? tree->means : tree->levels[l].means;
        const void *rows[DCI_KV_TILE];
        for (size_t i = 0, here; i < n; i += here) {
                here = n - i < DCI_KV_TILE ? n - i : DCI_KV_TILE;
                for (size_t r = 0; r < here; r++) {
                        rows[r] = means + (size_t)d->list[i + r] * row_bytes;
                        for (size_t j = 0; j < row_bytes; j += DCI_CACHE_LINE)
                                DCI_PREFETCH((const unsigned char *)rows[r] + j);
                }
                dci_kv_score_rows(ask, ask->queries, kv->dim_k, kv->config.dtype, rows, here, i);
        }
        dci_kv_tree_negate(ask, n);
}

/* Marks what any query has among its `wanted` least of n scores. */
static const uint8_t *mark_best(const dci_kv_query *ask, dci_kv_tree_descent *d, size_t n, size_t wanted, float *kept,
                                int32_t *order)
{
        uint8_t *best = (uint8_t *)d->next;
        memset(best, wanted < n ? 0 : 1, n);
        for (size_t q = 0; q < ask->kv->group && wanted < n; q++) {
                const float *values = ask->scores + q * ask->ld;
                const float limit = dci_select(ask->kv->context->kernels, values, n, wanted, kept, order).value;
                for (size_t i = 0; i < n; i++)
                        best[i] |= values[i] <= limit;
        }
        return best;
}

/* Keeps the best of the n nodes of level l in the list. */
static size_t keep_best(const dci_kv_query *ask, const dci_kv_tree *tree, dci_kv_tree_descent *d, size_t l, size_t n,
                        size_t wanted, float *kept, int32_t *order)
{
        const uint8_t *best = mark_best(ask, d, n, wanted, kept, order);
        size_t n_kept = 0;
        for (size_t i = 0; i < n; i++) {
                d->seen[dci_kv_tree_node_at(tree, l, (size_t)d->list[i])] = l == 0 && best[i] != 0 ? OPENED : MET;
                d->list[n_kept] = d->list[i];
                n_kept += best[i];
        }
        return n_kept;
}

/* The children of the n nodes of level l in the list become the list. */
static size_t go_down(const dci_kv_tree *tree, dci_kv_tree_descent *d, size_t l, size_t n)
{
        const dci_kv_tree_level *level = &tree->levels[l];
        size_t found = 0;
        for (size_t i = 0; i < n; i++) {
                const int32_t first = level->child_first[d->list[i]], end = level->child_first[d->list[i] + 1];
                memcpy(d->next + found, level->children + first, (size_t)(end - first) * sizeof *d->next);
                found += (size_t)(end - first);
        }
        int32_t *swapped = d->list;
        d->list = d->next;
        d->next = swapped;
        return found;
}

size_t dci_kv_tree_descend(dci_kv_query *ask, const dci_kv_tree *tree, dci_kv_tree_descent *d, size_t wanted,
                           float *kept, int32_t *order, int32_t *out)
{
        /* Without means above, levels are for forming alone. */
        size_t l = tree->levels[1].means != NULL ? tree->n_levels - 1 : 0, n = dci_kv_tree_level_size(tree, l);
        for (size_t i = 0; i < n; i++)
                d->list[i] = (int32_t)i;
        memset(d->seen, NOT_SEEN, tree->n_nodes);
        for (;; l--) {
                n = dci_kv_tree_retrieve_nodes(ask->kv, tree, &d->retrieval, l, d->list, n, d->projections,
                                               ask->kv->group, dci_kv_tree_retrieved(ask->kv, DCI_KV_TREE_RETRIEVE),
                                               wanted);
                rank(ask, tree, d, l, n);
                n = keep_best(ask, tree, d, l, n, wanted, kept, order);
                if (l == 0)
                        break;
                n = go_down(tree, d, l, n);
        }
        memcpy(out, d->list, n * sizeof *out);
        return n;
}

/* The page that holds a node's own key, if its cell does; -1: it does not. */
static int32_t page_of(const dci_kv *kv, const dci_kv_tree *tree, size_t node)
{
        for (int32_t page = tree->node_first[node]; page >= 0; page = tree->page_next[page]) {
                const size_t n = dci_kv_tree_page_fill(kv, tree, (size_t)page);
                for (size_t i = 0; i < n; i++)
                        if (tree->members[(size_t)page * kv->config.page_tokens + i] == tree->node_tokens[node])
                                return page;
        }
        return -1;
}

size_t dci_kv_tree_met_pages(dci_kv_query *ask, const dci_kv_tree *tree, dci_kv_tree_descent *d, size_t k, float *kept,
                             int32_t *order, int32_t *out, size_t room)
{
        const dci_kv *kv = ask->kv;
        const void *rows[DCI_KV_TILE];
        int32_t keys[DCI_KV_TILE];
        size_t n = 0, n_out = 0;
        for (size_t i = 0; i < tree->n_nodes && tree->levels[1].means != NULL; i++)
                if (d->seen[i] == MET)
                        d->list[n++] = (int32_t)i;
        for (size_t i = 0, here; i < n; i += here) {
                here = n - i < DCI_KV_TILE ? n - i : DCI_KV_TILE;
                for (size_t t = 0; t < here; t++)
                        keys[t] = tree->node_tokens[d->list[i + t]];
                dci_kv_tree_rows(kv, ask->layer, ask->head, keys, here, rows);
                dci_kv_score_rows(ask, ask->queries, kv->dim_k, kv->config.dtype, rows, here, i);
        }
        dci_kv_tree_negate(ask, n);
        const uint8_t *best = mark_best(ask, d, n, k, kept, order);
        for (size_t i = 0; i < n && n_out < room; i++) {
                const int32_t page = best[i] != 0 ? page_of(kv, tree, (size_t)d->list[i]) : -1;
                if (page >= 0)
                        out[n_out++] = page;
        }
        return n_out;
}
