/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * P-DCI among what is below nodes (Li and Malik 2017; IceCache 2026, algorithm 4): one composite index of
 * tree_simple_indices random directions, the same for all cells, by the index's core. Points are nodes' keys, or the
 * rows of cells, with their lift.
 */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "core/arena.h"
#include "index/pdci/directions.h"
#include "index/pdci/pdci.h"
#include "kv/memory.h"
#include "kv/tree/tree.h"

size_t dci_kv_tree_directions_bytes(const dci_kv *kv)
{
        return kv->config.group == DCI_KV_GROUP_TREE
                       ? kv->config.tree_simple_indices * (kv->config.dim_k + 1) * sizeof(float)
                       : 0;
}

dci_status dci_kv_tree_draw_directions(dci_kv *kv)
{
        const size_t dim = kv->config.dim_k, wide = dim + 1;
        const dci_index_config index = {.dim = dim, .seed = kv->config.seed};
        if (dci_kv_tree_directions_bytes(kv) == 0)
                return DCI_OK;
        DCI_TRY(dci_kv_alloc(kv, dci_kv_tree_directions_bytes(kv), (void **)&kv->tree_directions));
        for (size_t j = 0; j < kv->config.tree_simple_indices; j++)
                dci_direction_draw(&index, j, kv->tree_directions + j * wide, kv->tree_directions + j * wide + dim);
        return DCI_OK;
}

void dci_kv_tree_project(const dci_kv *kv, const void *const *rows, dci_dtype dtype, const float *lifts, size_t n,
                         float *out, size_t step_i, size_t step_j)
{
        const size_t dim = kv->dim_k, wide = dim + 1;
        float products[DCI_KV_TILE];
        for (size_t j = 0; j < kv->config.tree_simple_indices; j++) {
                const float *direction = kv->tree_directions + j * wide;
                kv->context->kernels->score_rows[dtype - 1][DCI_FORM_DOT](direction, rows, n, dim, products);
                for (size_t i = 0; i < n; i++)
                        out[j * step_j + i * step_i] = products[i] + direction[dim] * lifts[i];
        }
}

void dci_kv_tree_project_query(const dci_kv *kv, const dci_kv_tree *tree, const float *query, float *out)
{
        const float norm2 = kv->context->kernels->norm2[DCI_F32 - 1](query, kv->dim_k), none = 0.0f;
        const float scale =
                norm2 > 0.0f && !isinf(norm2) && !isinf(tree->c_squared) ? sqrtf(tree->c_squared) / sqrtf(norm2) : 0.0f;
        const void *row = query;
        dci_kv_tree_project(kv, &row, DCI_F32, &none, 1, out, 1, 1);
        for (size_t j = 0; j < kv->config.tree_simple_indices; j++)
                out[j] *= scale;
}

size_t dci_kv_tree_pdci_lay_out(const dci_kv *kv, size_t n, void *memory, dci_kv_tree_pdci *out)
{
        const bool used = kv->config.tree_simple_indices > 0;
        const dci_arena_part parts[] = {{kv->config.tree_simple_indices * n * sizeof(float), &out->projections},
                                        {used * (n + 63) / 64 * sizeof(uint64_t), &out->bits},
                                        {used ? dci_pdci_scratch_bytes(n) : 0, &out->rest}};
        return DCI_ARENA(parts, memory);
}

void dci_kv_tree_retrieve(const dci_kv *kv, const dci_kv_tree_pdci *p, size_t n, const float *query, double share,
                          size_t at_least)
{
        const size_t m = kv->config.tree_simple_indices;
        const dci_pdci_run run = {p->projections, n, n};
        const dci_pdci_cell cell = {.kernels = kv->context->kernels,
                                    .n_comp = 1,
                                    .n_simp = m,
                                    .runs = &run,
                                    .n_runs = 1,
                                    .n = n,
                                    .n_admitted = n};
        const double wanted = ceil(share * (double)n);
        const dci_pdci_effort effort = {
                .visit = (uint64_t)n * m, .retrieve = wanted < (double)n ? (size_t)wanted : n, .at_least = at_least};
        if (n > 0)
                dci_pdci_candidates(&cell, query, &effort, p->rest, p->bits);
}

size_t dci_kv_tree_retrieve_nodes(const dci_kv *kv, const dci_kv_tree *tree, const dci_kv_tree_pdci *p, size_t l,
                                  int32_t *list, size_t n, const float *queries, size_t n_queries, double share,
                                  size_t at_least)
{
        const size_t m = kv->config.tree_simple_indices;
        size_t kept = 0;
        if (m == 0 || share >= 1.0 || at_least >= n)
                return n;
        for (size_t i = 0; i < n; i++)
                for (size_t j = 0; j < m; j++)
                        p->projections[j * n + i] =
                                tree->node_projections[dci_kv_tree_node_at(tree, l, (size_t)list[i]) * m + j];
        memset(p->bits, 0, (n + 63) / 64 * sizeof *p->bits);
        for (size_t q = 0; q < n_queries; q++)
                dci_kv_tree_retrieve(kv, p, n, queries + q * m, share, at_least);
        for (size_t i = 0; i < n; i++) {
                list[kept] = list[i];
                kept += p->bits[i / 64] >> (i % 64) & 1;
        }
        return kept;
}
