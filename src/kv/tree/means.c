/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What searches go by: means of cells and of what is below higher nodes, how far cells reach, projections of keys. */
#include "core/internal.h"

#include <string.h>

#include "kv/tree/tree.h"

/* --- cells -------------------------------------------------------------------------------------------------------- */

/* Projections of a node's key, and of what is in its cell. */
static void project_cell(dci_kv *kv, const dci_kv_layer *layer, size_t head, dci_kv_tree *tree, size_t node)
{
        const size_t m = kv->config.tree_simple_indices, per_page = kv->config.page_tokens;
        const void *rows[DCI_KV_TILE];
        float lifts[DCI_KV_TILE];
        dci_kv_tree_rows(kv, layer, head, &tree->node_tokens[node], 1, rows);
        dci_kv_tree_project(kv, rows, kv->config.dtype, &tree->node_lifts[node], 1, tree->node_projections + node * m,
                            1, 1);
        for (int32_t page = tree->member_projections != NULL ? tree->node_first[node] : -1; page >= 0;
             page = tree->page_next[page]) {
                const size_t n = dci_kv_tree_page_fill(kv, tree, (size_t)page), at = (size_t)page * per_page;
                dci_kv_tree_rows(kv, layer, head, tree->members + at, n, rows);
                for (size_t i = 0; i < n; i++)
                        lifts[i] = dci_kv_tree_lift(
                                tree, kv->context->kernels->norm2[kv->config.dtype - 1](rows[i], kv->dim_k));
                dci_kv_tree_project(kv, rows, kv->config.dtype, lifts, n, tree->member_projections + at * m, 1,
                                    per_page);
        }
}

/* What a cell's pages are put together from. */
typedef struct refreshing {
        dci_kv *kv;
        const dci_kv_layer *layer;
        size_t head;
        dci_kv_tree *tree;
        float *key, *sum; /* of the node; of rows */
        const dci_coder *coder;
        dci_kv_tree_encoder encoder;
} refreshing;

/* Stores the mean of n rows, whose sum this is, in the keys' format. */
static void put_mean(const refreshing *r, float *sum, size_t n, unsigned char *means, size_t at)
{
        const size_t dim = r->kv->dim_k;
        for (size_t j = 0; j < dim; j++)
                sum[j] *= 1.0f / (float)n;
        r->kv->context->kernels->narrow[r->kv->config.dtype - 1](sum, dim, means + at * dim * r->kv->es);
}

/* One page's part in its cell's sum, its own mean and codes. Returns how far it reaches. */
static float refresh_page(const refreshing *r, size_t node, size_t page)
{
        dci_kv *kv = r->kv;
        dci_kv_tree *tree = r->tree;
        const dci_kernels *kernels = kv->context->kernels;
        const size_t dim = kv->dim_k, per_page = kv->config.page_tokens, n = dci_kv_tree_page_fill(kv, tree, page);
        const int dtype = kv->config.dtype - 1;
        const void *rows[DCI_KV_TILE];
        float products[DCI_KV_TILE], farthest = 0.0f;
        dci_kv_tree_rows(kv, r->layer, r->head, tree->members + page * per_page, n, rows);
        kernels->score_rows[dtype][DCI_FORM_DOT](r->key, rows, n, dim, products);
        for (size_t i = 0; i < n; i++) {
                const float lift = dci_kv_tree_lift(tree, kernels->norm2[dtype](rows[i], dim));
                const float far = 2.0f * (tree->c_squared - products[i] - lift * tree->node_lifts[node]);
                farthest = far > farthest ? far : farthest;
        }
        /* Means of pages: with those of nodes, or alone. */
        const bool both = kv->config.tree_keys == DCI_KV_TREE_MEANS,
                   of_pages = both || kv->config.summary != DCI_KV_SUMMARY_TREE;
        float *sum = both ? r->encoder.rows : r->sum;
        if (of_pages)
                memset(sum, 0, dim * sizeof *sum);
        kernels->add_rows[dtype](rows, NULL, n, dim, sum);
        for (size_t j = 0; j < dim && both; j++)
                r->sum[j] += sum[j];
        if (of_pages)
                put_mean(r, sum, n, both ? tree->page_means : tree->means, page);
        if (r->coder != NULL && tree->page_versions[page] == tree->version)
                dci_kv_tree_encode_page(kv, r->coder, tree, page, rows, n, &r->encoder);
        return farthest;
}

/* One cell's means and codes, and how far it reaches. */
static void refresh_cell(const refreshing *r, size_t node)
{
        dci_kv *kv = r->kv;
        dci_kv_tree *tree = r->tree;
        const size_t dim = kv->dim_k, n_rows = tree->node_rows[node];
        const void *key;
        float farthest = 0.0f;
        dci_kv_tree_rows(kv, r->layer, r->head, &tree->node_tokens[node], 1, &key);
        kv->context->kernels->to_f32[kv->config.dtype - 1](key, dim, r->key);
        memset(r->sum, 0, dim * sizeof *r->sum);
        for (int32_t page = tree->node_first[node]; page >= 0; page = tree->page_next[page]) {
                const float far = refresh_page(r, node, (size_t)page);
                farthest = far > farthest ? far : farthest;
        }
        tree->node_radii2[node] = farthest;
        if (kv->config.summary != DCI_KV_SUMMARY_TREE)
                return;
        if (n_rows == 0) /* an empty cell has its node's position */
                memcpy(r->sum, r->key, dim * sizeof *r->sum);
        put_mean(r, r->sum, n_rows > 0 ? n_rows : 1, tree->means, node);
        if (r->coder == NULL)
                return;
        dci_kv_tree_encode_node(kv, r->coder, tree, node, r->sum, &r->encoder);
        tree->node_versions[node] = tree->version;
}

/* --- levels above ------------------------------------------------------------------------------------------------- */

static unsigned char *mean_at(const dci_kv *kv, const dci_kv_tree *tree, size_t l, size_t i)
{
        return (l == 0 ? tree->means : tree->levels[l].means) + i * kv->dim_k * kv->es;
}

/* The mean of all rows below node i of level l. */
static void refresh_node(dci_kv *kv, const dci_kv_layer *layer, size_t head, dci_kv_tree *tree, size_t l, size_t i,
                         float *sum)
{
        dci_kv_tree_level *level = &tree->levels[l];
        const dci_kernels *kernels = kv->context->kernels;
        const int dtype = kv->config.dtype - 1;
        const size_t dim = kv->dim_k, end = (size_t)level->child_first[i + 1];
        const void *rows[DCI_KV_TILE];
        float weights[DCI_KV_TILE];
        level->rows[i] = 0;
        memset(sum, 0, dim * sizeof *sum);
        for (size_t c = (size_t)level->child_first[i], n; c < end; c += n) {
                n = end - c < DCI_KV_TILE ? end - c : DCI_KV_TILE;
                for (size_t t = 0; t < n; t++) {
                        const size_t child = (size_t)level->children[c + t];
                        const uint32_t n_rows = l == 1 ? tree->node_rows[child] : tree->levels[l - 1].rows[child];
                        rows[t] = mean_at(kv, tree, l - 1, child);
                        weights[t] = (float)n_rows;
                        level->rows[i] += n_rows;
                }
                kernels->add_rows[dtype](rows, weights, n, dim, sum);
        }
        for (size_t j = 0; j < dim && level->rows[i] > 0; j++)
                sum[j] *= 1.0f / (float)level->rows[i];
        if (level->rows[i] == 0) { /* nothing is below it: its own position */
                dci_kv_tree_rows(kv, layer, head, &tree->node_tokens[level->nodes[i]], 1, rows);
                kernels->to_f32[dtype](rows[0], dim, sum);
        }
        kernels->narrow[dtype](sum, dim, mean_at(kv, tree, l, i));
}

static void refresh_levels(dci_kv *kv, const dci_kv_layer *layer, size_t head, dci_kv_tree *tree, float *scratch)
{
        for (size_t l = 1; l < tree->n_levels && tree->levels[l].means != NULL; l++)
                for (size_t i = 0; i < tree->levels[l].n; i++) {
                        if (tree->levels[l].dirty[i] == 0)
                                continue;
                        refresh_node(kv, layer, head, tree, l, i, scratch);
                        tree->levels[l].dirty[i] = 0;
                        if (l + 1 < tree->n_levels)
                                tree->levels[l + 1].dirty[tree->levels[l].parents[i]] = 1;
                }
}

void dci_kv_tree_refresh(dci_kv *kv, const dci_kv_layer *layer, size_t head, dci_kv_tree *tree, float *scratch,
                         const dci_kv_tree_encoder *by)
{
        /* Trees that keep keys alone have no scratch: nothing is encoded. */
        unsigned char *after = tree->scratch != NULL ? tree->scratch + dci_lines(kv->dim_k * sizeof(float)) : NULL;
        const dci_kv_tree_encoder alone = {(float *)(void *)tree->scratch, 1, after};
        const refreshing r = {.kv = kv,
                              .layer = layer,
                              .head = head,
                              .tree = tree,
                              .key = scratch,
                              .sum = scratch + kv->dim_k,
                              .coder = dci_kv_tree_coded(kv) ? dci_kv_tree_coder(layer, head) : NULL,
                              .encoder = by != NULL ? *by : alone};
        for (size_t i = 0; i < tree->n_nodes; i++)
                if (tree->node_dirty[i] != 0) {
                        refresh_cell(&r, i);
                        if (tree->node_projections != NULL)
                                project_cell(kv, layer, head, tree, i);
                        if (tree->n_levels > 1)
                                tree->levels[1].dirty[tree->levels[0].parents[i]] = 1;
                        tree->node_dirty[i] = 0;
                }
        refresh_levels(kv, layer, head, tree, scratch);
}
