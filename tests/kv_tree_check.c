/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/kv_tree_check.h"

#include <string.h>

const dci_kv_layer *kv_tree_layer(dci_kv *kv, int64_t sequence, size_t layer)
{
        const dci_kv_sequence *found = dci_kv_find(kv, sequence);
        ck_assert_ptr_nonnull(found);
        return &found->layers[layer];
}

dci_kv_tree *kv_tree_of(dci_kv *kv, int64_t sequence, size_t layer, size_t head)
{
        return kv_tree_layer(kv, sequence, layer)->heads[head].tree;
}

static void check_nodes(const dci_kv *kv, const dci_kv_tree *tree, const char *what)
{
        size_t nodes = 0;
        for (size_t c = 0; c < tree->n; c++) {
                if (!dci_kv_tree_promoted(kv, c))
                        continue;
                if (nodes >= tree->n_nodes || tree->node_tokens[nodes] != (int32_t)c)
                        ck_abort_msg("%s: node %zu of %zu is not candidate %zu", what, nodes, tree->n_nodes, c);
                nodes++;
        }
        ck_assert_msg(nodes == tree->n_nodes, "%s: %zu nodes, wanted %zu", what, tree->n_nodes, nodes);
        ck_assert(tree->n_nodes <= tree->node_capacity && tree->n_pages <= tree->page_capacity);
}

static void check_cells(const dci_kv *kv, const dci_kv_tree *tree, const char *what)
{
        const size_t per_page = kv->config.page_tokens;
        uint8_t *seen = calloc(tree->n + 1, 1);
        size_t pages = 0, found = 0;
        ck_assert_ptr_nonnull(seen);
        for (size_t c = 0; c < tree->n_nodes; c++) {
                size_t rows = 0;
                int32_t last = -1;
                for (int32_t p = tree->node_first[c]; p >= 0; p = tree->page_next[p], pages++) {
                        const size_t fill = dci_kv_tree_page_fill(kv, tree, (size_t)p);
                        if (tree->page_node[p] != (int32_t)c || fill == 0 ||
                            (fill < per_page && tree->page_next[p] >= 0))
                                ck_abort_msg("%s: page %d of cell %zu holds %zu and is cell %d's", what, p, c, fill,
                                             tree->page_node[p]);
                        for (size_t i = 0; i < fill; i++) {
                                const int32_t member = tree->members[(size_t)p * per_page + i];
                                if (member < 0 || (size_t)member >= tree->n || seen[member]++ != 0)
                                        ck_abort_msg("%s: candidate %d of %zu in page %d", what, member, tree->n, p);
                        }
                        rows += fill;
                        last = p;
                }
                ck_assert_msg(rows == tree->node_rows[c] && last == tree->node_last[c], "%s: cell %zu", what, c);
                found += rows;
        }
        ck_assert_msg(found == tree->n && pages == tree->n_pages - tree->n_free, "%s: %zu of %zu rows, %zu pages", what,
                      found, tree->n, pages);
        free(seen);
}

void kv_tree_check(dci_kv *kv, int64_t sequence, const char *what)
{
        for (size_t l = 0; l < kv->config.n_layers; l++)
                for (size_t h = 0; h < kv->config.n_kv_heads; h++) {
                        const size_t n = kv_tree_layer(kv, sequence, l)->n_grouped;
                        const dci_kv_tree *tree = kv_tree_of(kv, sequence, l, h);
                        const size_t n_tree = tree == NULL ? 0 : tree->n;
                        ck_assert_msg(n == n_tree, "%s: layer %zu, head %zu: %zu candidates, %zu in the tree", what, l,
                                      h, n, n_tree);
                        if (n == 0)
                                continue;
                        check_nodes(kv, tree, what);
                        check_cells(kv, tree, what);
                }
}

size_t kv_tree_check_list(const kv_seen *seen, size_t i, size_t layer, size_t head, bool frozen, const char *what)
{
        const dci_kv *kv = seen->kv;
        const dci_kv_tree *tree = kv_tree_of(seen->kv, seen->sequences[i], layer, head);
        const dci_kv_plan *plan = &seen->plans[layer];
        const size_t sink = kv->config.sink, per_page = kv->config.page_tokens;
        size_t n_list, n_pages = 0;
        const int32_t *list = kv_list(seen, layer, i, head, &n_list);
        const size_t end = (size_t)plan->recent_begin[i], recent = (size_t)plan->n_tokens[i] - end;
        const size_t kept = sink + (frozen ? kv->config.window : recent);
        if (end == 0 || n_list == 0)
                return 0;
        uint8_t *chosen = calloc(tree->n + 1, 1);
        ck_assert_ptr_nonnull(chosen);
        for (size_t t = 0; t < n_list; t++)
                chosen[(size_t)list[t] - sink] = 1;
        for (size_t p = 0; p < tree->n_pages; p++) {
                size_t n = 0, of = 0;
                for (size_t m = 0; m < dci_kv_tree_page_fill(kv, tree, p); m++) {
                        const size_t member = (size_t)tree->members[p * per_page + m];
                        of += sink + member < end; /* others are recent again */
                        n += chosen[member];
                }
                if (n != 0 && n != of)
                        ck_abort_msg("%s: layer %zu, head %zu: %zu of a page's %zu tokens", what, layer, head, n, of);
                n_pages += n > 0;
        }
        free(chosen);
        ck_assert_msg(n_pages * per_page + kept <= kv->config.budget, "%s: %zu pages beside %zu tokens, budget %zu",
                      what, n_pages, kept, kv->config.budget);
        return n_pages;
}
