/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* A head's tree: that it has every candidate once, and that what it keeps of cells is that of their rows. */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "kv/check/check.h"

#define AT "sequence %lld, layer %zu, kv head %zu: "
#define OF(layer, head) (long long)(layer)->sequence->id, (layer)->number, (head)

/* Candidates that are checked for being with the nearest node. */
#define LOOKED_AT ((size_t)256)

static dci_status check_counts(const dci_kv *kv, const dci_kv_layer *layer, size_t head)
{
        const dci_kv_tree *tree = layer->heads[head].tree;
        const float c2 = tree->c_squared;
        size_t nodes = 0;
        int exponent;
        if (tree->n > tree->token_capacity || tree->n_nodes > tree->node_capacity || tree->n_nodes == 0 ||
            tree->n_pages > tree->page_capacity || tree->n_free > tree->n_pages || tree->built_version > tree->version)
                return dci_fail(DCI_ERR_FORMAT,
                                AT "a tree of %zu tokens, %zu nodes and %zu pages, %zu of them free, with room for "
                                   "%zu, %zu and %zu",
                                OF(layer, head), tree->n, tree->n_nodes, tree->n_pages, tree->n_free,
                                tree->token_capacity, tree->node_capacity, tree->page_capacity);
        if (!(c2 >= 0.0f) || (c2 > 0.0f && !isinf(c2) && frexpf(c2, &exponent) != 0.5f))
                return dci_fail(DCI_ERR_FORMAT, AT "the tree's c^2 is %g, no power of two", OF(layer, head),
                                (double)c2);
        for (size_t c = 0; c < tree->n; c++) {
                if (!dci_kv_tree_promoted(kv, c))
                        continue;
                if (nodes >= tree->n_nodes || tree->node_tokens[nodes] != (int32_t)c)
                        return dci_fail(DCI_ERR_FORMAT, AT "node %zu of %zu is not candidate %zu, which is promoted",
                                        OF(layer, head), nodes, tree->n_nodes, c);
                nodes++;
        }
        return nodes == tree->n_nodes ? DCI_OK
                                      : dci_fail(DCI_ERR_FORMAT, AT "%zu nodes, but %zu candidates are promoted",
                                                 OF(layer, head), tree->n_nodes, nodes);
}

/* Nodes of level l, which has room: those that were promoted so many times. */
static dci_status check_level(const dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t l)
{
        const dci_kv_tree *tree = layer->heads[head].tree;
        const dci_kv_tree_level *level = &tree->levels[l];
        size_t n = 0;
        if (level->n > level->capacity)
                return dci_fail(DCI_ERR_FORMAT, AT "level %zu has %zu nodes, with room for %zu", OF(layer, head), l,
                                level->n, level->capacity);
        for (size_t i = 0; i < tree->n_levelled && level->capacity > 0; i++) {
                if (dci_kv_tree_promotions(kv, (size_t)tree->node_tokens[i]) <= l)
                        continue;
                if (n >= level->n || level->nodes[n] != (int32_t)i)
                        return dci_fail(DCI_ERR_FORMAT, AT "level %zu: node %zu of %zu is not %zu, which is promoted",
                                        OF(layer, head), l, n, level->n, i);
                n++;
        }
        return n == level->n ? DCI_OK
                             : dci_fail(DCI_ERR_FORMAT, AT "level %zu has %zu nodes, but %zu are promoted",
                                        OF(layer, head), l, level->n, n);
}

/* Parents of level l and the lists of their children are of each other. */
static dci_status check_parents(const dci_kv_layer *layer, size_t head, size_t l)
{
        const dci_kv_tree *tree = layer->heads[head].tree;
        const dci_kv_tree_level *level = &tree->levels[l], *above = &tree->levels[l + 1];
        const size_t n = dci_kv_tree_level_size(tree, l);
        bool good = level->n_placed == n && level->n_parents == above->n && above->child_first[0] == 0 &&
                    above->child_first[above->n] == (int32_t)n;
        for (size_t p = 0; p < above->n && good; p++) {
                const int32_t first = above->child_first[p], end = above->child_first[p + 1];
                good = first <= end && end <= (int32_t)n;
                for (int32_t c = first; c < end && good; c++)
                        good = above->children[c] >= 0 && above->children[c] < (int32_t)n &&
                               level->parents[above->children[c]] == (int32_t)p &&
                               (c == first || above->children[c - 1] < above->children[c]);
        }
        return good ? DCI_OK
                    : dci_fail(DCI_ERR_FORMAT, AT "parents of level %zu and children of level %zu do not agree",
                               OF(layer, head), l, l + 1);
}

static dci_status check_levels(const dci_kv *kv, const dci_kv_layer *layer, size_t head)
{
        const dci_kv_tree *tree = layer->heads[head].tree;
        size_t counts[DCI_KV_TREE_LEVELS] = {0};
        for (size_t i = 0; i < tree->n_nodes; i++)
                for (size_t l = dci_kv_tree_promotions(kv, (size_t)tree->node_tokens[i]); l > 0; l--)
                        counts[l - 1]++;
        const size_t n_levels = isinf(tree->c_squared) ? 1 : dci_kv_tree_count_levels(kv, counts);
        if (tree->n_levels != n_levels || (tree->n_levelled != tree->n_nodes && (tree->n_levelled > 0 || n_levels > 1)))
                return dci_fail(DCI_ERR_FORMAT, AT "%zu levels of %zu nodes, but there are %zu of %zu", OF(layer, head),
                                tree->n_levels, tree->n_levelled, n_levels, tree->n_nodes);
        for (size_t l = 1; l < DCI_KV_TREE_LEVELS; l++)
                DCI_TRY(check_level(kv, layer, head, l));
        for (size_t l = 0; l + 1 < n_levels; l++)
                DCI_TRY(check_parents(layer, head, l));
        return DCI_OK;
}

/* One cell's pages, full but for the last; counts pages and rows. */
static dci_status check_cell(const dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t node, size_t *pages,
                             size_t *found, dci_kv_marks *marks)
{
        const dci_kv_tree *tree = layer->heads[head].tree;
        const size_t per_page = kv->config.page_tokens;
        size_t rows = 0;
        int32_t last = -1;
        for (int32_t p = tree->node_first[node]; p >= 0; p = tree->page_next[p]) {
                if ((size_t)p >= tree->n_pages || ++*pages > tree->n_pages || tree->page_node[p] != (int32_t)node)
                        return dci_fail(DCI_ERR_FORMAT, AT "page %d of %zu is in cell %zu, and is not, or twice",
                                        OF(layer, head), (int)p, tree->n_pages, node);
                const size_t left = tree->node_rows[node] - rows, fill = left < per_page ? left : per_page;
                if (fill == 0 || (tree->page_next[p] >= 0) != (left > per_page))
                        return dci_fail(DCI_ERR_FORMAT, AT "page %d holds %zu of the %u tokens of cell %zu",
                                        OF(layer, head), (int)p, fill, (unsigned)tree->node_rows[node], node);
                for (size_t i = 0; i < fill; i++) {
                        const int32_t member = tree->members[(size_t)p * per_page + i];
                        if (member < 0 || (size_t)member >= tree->n || !dci_kv_mark(marks, (size_t)member))
                                return dci_fail(DCI_ERR_FORMAT,
                                                AT "candidate %d of %zu is in page %d, and is not, or twice",
                                                OF(layer, head), (int)member, tree->n, (int)p);
                }
                if (tree->page_versions[p] > tree->version)
                        return dci_fail(DCI_ERR_FORMAT, AT "page %d changed in version %u, but the tree is of %u",
                                        OF(layer, head), (int)p, (unsigned)tree->page_versions[p],
                                        (unsigned)tree->version);
                rows += fill;
                last = p;
        }
        if (rows != tree->node_rows[node] || last != tree->node_last[node])
                return dci_fail(DCI_ERR_FORMAT, AT "cell %zu has %zu tokens and ends with page %d, but says %u and %d",
                                OF(layer, head), node, rows, (int)last, (unsigned)tree->node_rows[node],
                                (int)tree->node_last[node]);
        *found += rows;
        return DCI_OK;
}

dci_status dci_kv_check_tree(const dci_kv *kv, const dci_kv_layer *layer, size_t head, dci_kv_marks *marks)
{
        const dci_kv_tree *tree = layer->heads[head].tree;
        size_t pages = 0, found = 0, n_free = 0;
        DCI_TRY(check_counts(kv, layer, head));
        DCI_TRY(check_levels(kv, layer, head));
        DCI_TRY(dci_kv_marks_clear(marks, tree->n));
        for (size_t c = 0; c < tree->n_nodes; c++)
                DCI_TRY(check_cell(kv, layer, head, c, &pages, &found, marks));
        for (size_t p = 0; p < tree->n_pages; p++)
                n_free += tree->page_node[p] < 0;
        if (found != tree->n || pages + tree->n_free != tree->n_pages || n_free != tree->n_free)
                return dci_fail(DCI_ERR_FORMAT,
                                AT
                                "cells have %zu of %zu tokens in %zu of %zu pages, %zu are free and %zu are said to be",
                                OF(layer, head), found, tree->n, pages, tree->n_pages, n_free, tree->n_free);
        return DCI_OK;
}

size_t dci_kv_check_tree_bytes(const dci_kv *kv, const dci_kv_tree *tree)
{
        return tree == NULL ? 0 : dci_lines(tree->n_bytes) + dci_lines(2 * kv->dim_k * sizeof(float));
}

/* A candidate's row, its lift, and its node's distance in comparison. */
static dci_status check_lifts(dci_kv *kv, const dci_kv_layer *layer, size_t head)
{
        const dci_kv_tree *tree = layer->heads[head].tree;
        for (size_t c = 0, node = 0; c < tree->n; c++) {
                const int32_t candidate = (int32_t)c;
                const void *row;
                dci_kv_tree_rows(kv, layer, head, &candidate, 1, &row);
                const float norm2 = kv->context->kernels->norm2[kv->config.dtype - 1](row, kv->dim_k);
                if (norm2 > tree->c_squared)
                        return dci_fail(DCI_ERR_FORMAT,
                                        AT "the key of candidate %zu has the squared norm %g, c^2 is %g",
                                        OF(layer, head), c, (double)norm2, (double)tree->c_squared);
                if (node >= tree->n_nodes || tree->node_tokens[node] != candidate)
                        continue;
                if (tree->node_lifts[node] != dci_kv_tree_lift(tree, norm2))
                        return dci_fail(DCI_ERR_FORMAT, AT "node %zu is lifted by %.9g, its key by %.9g",
                                        OF(layer, head), node, (double)tree->node_lifts[node],
                                        (double)dci_kv_tree_lift(tree, norm2));
                node++;
        }
        return DCI_OK;
}

/* Codes of one row in a block. */
static bool same_code(const dci_kv *kv, const unsigned char *a, const unsigned char *b, size_t row)
{
        const size_t block = dci_kv_tree_block_bytes(kv), at = row / DCI_CODE_ROWS * block;
        bool same = true;
        for (size_t i = dci_code_word(row % DCI_CODE_ROWS); i < block; i += 2 * DCI_CODE_LINE)
                same = same && memcmp(a + at + i, b + at + i, 4) == 0;
        return same;
}

static dci_status compare_codes(const dci_kv *kv, const dci_kv_layer *layer, size_t head, const dci_kv_tree *again)
{
        const dci_kv_tree *tree = layer->heads[head].tree;
        for (size_t i = 0; i < tree->n_nodes; i++)
                if (tree->node_scales[i] != again->node_scales[i] ||
                    !same_code(kv, tree->node_codes, again->node_codes, i))
                        return dci_fail(DCI_ERR_FORMAT, AT "the code of cell %zu is not that of its mean",
                                        OF(layer, head), i);
        for (size_t p = 0; p < tree->n_pages; p++)
                for (size_t i = 0; i < dci_kv_tree_page_fill(kv, tree, p); i++) {
                        const size_t at = p * kv->config.page_tokens + i;
                        if (tree->code_scales[at] != again->code_scales[at] ||
                            !same_code(kv, tree->codes, again->codes, at))
                                return dci_fail(DCI_ERR_FORMAT,
                                                AT "the code of member %zu of page %zu is not its key's",
                                                OF(layer, head), i, p);
                }
        return DCI_OK;
}

static dci_status compare_page_means(const dci_kv *kv, const dci_kv_layer *layer, size_t head, const dci_kv_tree *again)
{
        const dci_kv_tree *tree = layer->heads[head].tree;
        const size_t row_bytes = kv->dim_k * kv->es;
        for (size_t p = 0; p < tree->n_pages; p++)
                if (tree->page_node[p] >= 0 &&
                    memcmp(tree->page_means + p * row_bytes, again->page_means + p * row_bytes, row_bytes) != 0)
                        return dci_fail(DCI_ERR_FORMAT, AT "the mean of page %zu is not that of its keys",
                                        OF(layer, head), p);
        return DCI_OK;
}

static dci_status compare(const dci_kv *kv, const dci_kv_layer *layer, size_t head, const dci_kv_tree *again)
{
        const dci_kv_tree *tree = layer->heads[head].tree;
        const bool of_nodes = kv->config.summary == DCI_KV_SUMMARY_TREE;
        const size_t n_means = of_nodes ? tree->n_nodes : tree->n_pages, row_bytes = kv->dim_k * kv->es;
        for (size_t i = 0; i < tree->n_nodes; i++)
                if (tree->node_radii2[i] != again->node_radii2[i])
                        return dci_fail(DCI_ERR_FORMAT, AT "cell %zu reaches %.9g, but says %.9g", OF(layer, head), i,
                                        (double)again->node_radii2[i], (double)tree->node_radii2[i]);
        for (size_t i = 0; i < n_means; i++)
                if (memcmp(tree->means + i * row_bytes, again->means + i * row_bytes, row_bytes) != 0)
                        return dci_fail(DCI_ERR_FORMAT, AT "the mean of %s %zu is not that of its keys",
                                        OF(layer, head), of_nodes ? "cell" : "page", i);
        return dci_kv_tree_coded(kv)                       ? compare_codes(kv, layer, head, again)
               : kv->config.tree_keys == DCI_KV_TREE_MEANS ? compare_page_means(kv, layer, head, again)
                                                           : DCI_OK;
}

/* Parents, means and projections of levels, and projections of what is in cells, which follow from keys. */
static dci_status compare_levels(const dci_kv *kv, const dci_kv_layer *layer, size_t head, const dci_kv_tree *again)
{
        const dci_kv_tree *tree = layer->heads[head].tree;
        const size_t m = kv->config.tree_simple_indices, per_page = kv->config.page_tokens;
        for (size_t l = 0; l + 1 < tree->n_levels; l++) {
                const dci_kv_tree_level *above = &tree->levels[l + 1];
                for (size_t i = 0; i < dci_kv_tree_level_size(tree, l); i++)
                        if (tree->levels[l].parents[i] != again->levels[l].parents[i])
                                return dci_fail(DCI_ERR_FORMAT, AT "level %zu: the parent of node %zu is %d, not %d",
                                                OF(layer, head), l, i, (int)again->levels[l].parents[i],
                                                (int)tree->levels[l].parents[i]);
                if (above->means != NULL &&
                    memcmp(above->means, again->levels[l + 1].means, above->n * kv->dim_k * kv->es) != 0)
                        return dci_fail(DCI_ERR_FORMAT, AT "means of level %zu are not those of what is below",
                                        OF(layer, head), l + 1);
        }
        if (tree->node_projections != NULL &&
            memcmp(tree->node_projections, again->node_projections, tree->n_nodes * m * sizeof(float)) != 0)
                return dci_fail(DCI_ERR_FORMAT, AT "projections of nodes are not those of their keys", OF(layer, head));
        for (size_t p = 0; p < tree->n_pages && tree->member_projections != NULL; p++)
                for (size_t j = 0; j < m; j++) {
                        const size_t at = (p * m + j) * per_page, n = dci_kv_tree_page_fill(kv, tree, p);
                        if (memcmp(tree->member_projections + at, again->member_projections + at, n * sizeof(float)) !=
                            0)
                                return dci_fail(DCI_ERR_FORMAT, AT "projections of page %zu are not those of its keys",
                                                OF(layer, head), p);
                }
        return DCI_OK;
}

/* The score of a candidate with a node: the greater, the nearer. */
static double score_of(dci_kv *kv, const dci_kv_layer *layer, size_t head, const float *key, float lift, size_t node)
{
        const dci_kv_tree *tree = layer->heads[head].tree;
        const void *row;
        float product;
        dci_kv_tree_rows(kv, layer, head, &tree->node_tokens[node], 1, &row);
        kv->context->kernels->score_rows[kv->config.dtype - 1][DCI_FORM_DOT](key, &row, 1, kv->dim_k, &product);
        return (double)product + (double)lift * (double)tree->node_lifts[node];
}

/* Inserting searches only the cells around, so a few may be with another node; a tree where half of them are is of no use. */
static dci_status check_nearness(dci_kv *kv, const dci_kv_layer *layer, size_t head, float *key)
{
        const dci_kv_tree *tree = layer->heads[head].tree;
        const size_t per_page = kv->config.page_tokens, step = (tree->n + LOOKED_AT - 1) / LOOKED_AT;
        size_t n = 0, away = 0, seen = 0;
        for (size_t p = 0; p < tree->n_pages && !isinf(tree->c_squared); p++)
                for (size_t i = 0; i < dci_kv_tree_page_fill(kv, tree, p); i++) {
                        const void *row;
                        if (seen++ % step != 0)
                                continue;
                        dci_kv_tree_rows(kv, layer, head, &tree->members[p * per_page + i], 1, &row);
                        const float norm2 = kv->context->kernels->norm2[kv->config.dtype - 1](row, kv->dim_k);
                        kv->context->kernels->to_f32[kv->config.dtype - 1](row, kv->dim_k, key);
                        const float lift = dci_kv_tree_lift(tree, norm2);
                        const double own = score_of(kv, layer, head, key, lift, (size_t)tree->page_node[p]);
                        double most = own;
                        for (size_t node = 0; node < tree->n_nodes; node++) {
                                const double score = score_of(kv, layer, head, key, lift, node);
                                most = score > most ? score : most;
                        }
                        /* Products round in proportion to c^2. */
                        away += own < most - ((double)kv->dim_k / 4 + 32) * 0x1p-22 * (double)tree->c_squared;
                        n++;
                }
        return 2 * away <= n || n < 16
                       ? DCI_OK
                       : dci_fail(DCI_ERR_FORMAT, AT "of %zu candidates %zu lie with another node than the nearest",
                                  OF(layer, head), n, away);
}

dci_status dci_kv_check_tree_recompute(dci_kv *kv, const dci_kv_layer *layer, size_t head, unsigned char *memory)
{
        const dci_kv_tree *tree = layer->heads[head].tree;
        float *scratch = (float *)(void *)(memory + dci_lines(tree->n_bytes));
        DCI_TRY(check_lifts(kv, layer, head));
        dci_kv_tree *again = dci_kv_tree_mirror(kv, tree, memory);
        memset(again->node_dirty, 1, again->n_nodes);
        dci_kv_tree_clear_levels(again);
        dci_kv_tree_relate(kv, layer, head, again, scratch, 1);
        for (size_t p = 0; p < again->n_pages; p++) /* all codes, too */
                again->page_versions[p] = again->version;
        dci_kv_tree_refresh(kv, layer, head, again, scratch, NULL);
        DCI_TRY(compare(kv, layer, head, again));
        DCI_TRY(compare_levels(kv, layer, head, again));
        return check_nearness(kv, layer, head, scratch);
}
