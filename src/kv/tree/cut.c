/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Candidates leave a tree: cells close up, and a cell whose node goes is divided among the others. */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "kv/tree/tree.h"

/* Candidates from n on leave a cell; the others close up. A page is changed from the first one that left on. */
static void filter_cell(const dci_kv *kv, dci_kv_tree *tree, size_t node, size_t n)
{
        const size_t per_page = kv->config.page_tokens, n_rows = tree->node_rows[node];
        int32_t from = tree->node_first[node], to = from;
        size_t kept = 0;
        for (size_t i = 0; i < n_rows; i++) {
                const int32_t member = tree->members[(size_t)from * per_page + i % per_page];
                if ((size_t)member < n) {
                        int32_t *place = &tree->members[(size_t)to * per_page + kept % per_page];
                        if (*place != member || kept != i)
                                tree->page_versions[to] = tree->version;
                        *place = member;
                        kept++;
                        if (kept % per_page == 0)
                                to = tree->page_next[to];
                }
                if ((i + 1) % per_page == 0)
                        from = tree->page_next[from];
        }
        if (kept == n_rows)
                return;
        if (kept % per_page != 0)
                tree->page_versions[to] = tree->version;
        dci_kv_tree_shorten(kv, tree, node, kept);
}

/* The nearest of the first n_nodes nodes to a candidate. */
static size_t nearest_of(dci_kv *kv, const dci_kv_layer *layer, size_t head, const dci_kv_tree *tree, size_t n_nodes,
                         int32_t candidate, float *wide)
{
        const dci_kernels *kernels = kv->context->kernels;
        const int dtype = kv->config.dtype - 1;
        const void *rows[DCI_KV_TILE];
        float scores[DCI_KV_TILE], most = -INFINITY;
        size_t best = n_nodes - 1; /* where keys cannot be compared: the last one before it */
        dci_kv_tree_rows(kv, layer, head, &candidate, 1, rows);
        const float lift = dci_kv_tree_lift(tree, kernels->norm2[dtype](rows[0], kv->dim_k));
        kernels->to_f32[dtype](rows[0], kv->dim_k, wide);
        for (size_t i = 0, here; i < n_nodes && !isinf(tree->c_squared); i += here) {
                here = n_nodes - i < DCI_KV_TILE ? n_nodes - i : DCI_KV_TILE;
                dci_kv_tree_rows(kv, layer, head, tree->node_tokens + i, here, rows);
                kernels->score_rows[dtype][DCI_FORM_DOT](wide, rows, here, kv->dim_k, scores);
                for (size_t j = 0; j < here; j++) {
                        const float score = scores[j] + lift * tree->node_lifts[i + j];
                        if (score > most) {
                                most = score;
                                best = i + j;
                        }
                }
        }
        return best;
}

/* A node's candidate leaves: its cell's rows go where they are nearest among the nodes before it. */
static void dissolve(dci_kv *kv, const dci_kv_layer *layer, size_t head, dci_kv_tree *tree, size_t node, size_t n_nodes,
                     float *wide)
{
        const size_t per_page = kv->config.page_tokens;
        int32_t members[DCI_KV_TILE];
        size_t left = tree->node_rows[node];
        for (int32_t page = tree->node_first[node], next; page >= 0; page = next) {
                const size_t here = left < per_page ? left : per_page;
                next = tree->page_next[page];
                memcpy(members, tree->members + (size_t)page * per_page, here * sizeof *members);
                dci_kv_tree_free_page(tree, (size_t)page);
                for (size_t i = 0; i < here; i++)
                        dci_kv_tree_attach(kv, tree, nearest_of(kv, layer, head, tree, n_nodes, members[i], wide),
                                           members[i]);
                left -= here;
        }
}

/* The last pages move into gaps, so that there are no more numbers than pages. */
static void close_gaps(const dci_kv *kv, dci_kv_tree *tree)
{
        const size_t per_page = kv->config.page_tokens;
        for (size_t gap = 0; tree->n_free > 0; gap++) {
                while (tree->n_pages > gap && tree->page_node[tree->n_pages - 1] < 0) {
                        tree->n_pages--;
                        tree->n_free--;
                }
                if (gap >= tree->n_pages || tree->page_node[gap] >= 0)
                        continue;
                const size_t last = --tree->n_pages, node = (size_t)tree->page_node[last];
                tree->n_free--;
                int32_t *link = &tree->node_first[node];
                while (*link != (int32_t)last)
                        link = &tree->page_next[*link];
                *link = (int32_t)gap;
                if (tree->node_last[node] == (int32_t)last)
                        tree->node_last[node] = (int32_t)gap;
                tree->page_node[gap] = (int32_t)node;
                tree->page_next[gap] = tree->page_next[last];
                tree->page_versions[gap] = tree->version;
                tree->node_dirty[node] = 1;
                memcpy(tree->members + gap * per_page, tree->members + last * per_page,
                       per_page * sizeof *tree->members);
        }
}

void dci_kv_tree_truncate(dci_kv *kv, const dci_kv_layer *layer, size_t head, dci_kv_tree *tree, size_t n)
{
        float wide[2 * DCI_KV_MAX_DIM];
        size_t n_nodes = tree->n_nodes;
        if (n >= tree->n)
                return;
        tree->version++;
        if (n == 0) {
                dci_kv_tree_clear(tree);
                return;
        }
        while (n_nodes > 1 && (size_t)tree->node_tokens[n_nodes - 1] >= n)
                n_nodes--;
        for (size_t i = 0; i < tree->n_nodes; i++)
                filter_cell(kv, tree, i, n);
        for (size_t i = n_nodes; i < tree->n_nodes; i++)
                dissolve(kv, layer, head, tree, i, n_nodes, wide);
        tree->n_nodes = n_nodes;
        tree->n = n;
        close_gaps(kv, tree);
        dci_kv_tree_relate(kv, layer, head, tree, wide, 1);
        dci_kv_tree_refresh(kv, layer, head, tree, wide, NULL);
}

static dci_status truncated_copy(dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t n, dci_kv_tree **out)
{
        const dci_kv_tree *from = layer->heads[head].tree;
        DCI_TRY(dci_kv_tree_alloc(kv, from->n, out));
        dci_kv_tree_copy(kv, from, *out);
        dci_kv_tree_truncate(kv, layer, head, *out, n);
        return DCI_OK;
}

dci_status dci_kv_tree_share(dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t n, dci_kv_tree **out)
{
        dci_kv_tree *tree = layer->heads[head].tree;
        *out = NULL;
        if (tree == NULL || n == 0)
                return DCI_OK;
        if (tree->n > n)
                return truncated_copy(kv, layer, head, n, out);
        dci_kv_tree_retain(tree);
        *out = tree;
        return DCI_OK;
}
