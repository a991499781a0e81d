/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/kv_tree_check.h"

#include <math.h>

dci_kv_tree *kv_tree_of(dci_kv *kv, int64_t sequence, size_t layer, size_t head)
{
        return kv_layer_of(kv, sequence, layer)->heads[head].tree;
}

void kv_tree_check(dci_kv *kv, int64_t sequence, const char *what)
{
        ck_assert_msg(dci_kv_check(kv, DCI_CHECK_FULL, NULL) == DCI_OK, "%s: %s", what, dci_last_error());
        for (size_t l = 0; l < kv->config.n_layers; l++)
                for (size_t h = 0; h < kv->config.n_kv_heads; h++)
                        ck_assert((kv_layer_of(kv, sequence, l)->n_grouped > 0) ==
                                  (kv_tree_of(kv, sequence, l, h) != NULL && kv_tree_of(kv, sequence, l, h)->n > 0));
}

size_t kv_tree_check_list(const kv_seen *seen, size_t i, size_t layer, size_t head, const char *what)
{
        const dci_kv *kv = seen->kv;
        const dci_kv_tree *tree = kv_tree_of(seen->kv, seen->sequences[i], layer, head / kv->head_lists);
        const dci_kv_plan *plan = &seen->plans[layer];
        const size_t sink = kv->config.sink, per_page = kv->config.page_tokens;
        size_t n_list, n_pages = 0;
        const int32_t *list = kv_list(seen, layer, i, head, &n_list);
        const size_t end = (size_t)plan->recent_begin[i], recent = (size_t)plan->n_tokens[i] - end;
        const size_t room = kv_room_of(seen->kv, (size_t)plan->n_tokens[i], recent);
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
        ck_assert_msg(n_pages * per_page <= room, "%s: %zu pages, room for %zu tokens", what, n_pages, room);
        return n_pages;
}

const float *kv_tree_key(const dci_kv *kv, const kv_data *data, size_t layer, size_t head, size_t candidate)
{
        return kv_key(data, layer, kv->config.sink + candidate, head);
}

double kv_tree_lift(const dci_kv_tree *tree, const float *key, size_t dim)
{
        return sqrt(fmax(0.0, (double)tree->c_squared - test_dot(key, key, dim)));
}

double kv_tree_nearness(const dci_kv_tree *tree, const float *a, const float *b, size_t dim)
{
        return test_dot(a, b, dim) + kv_tree_lift(tree, a, dim) * kv_tree_lift(tree, b, dim);
}

double kv_tree_strays(const dci_kv *kv, const dci_kv_tree *tree, const kv_data *data, size_t layer, size_t head)
{
        size_t n = 0;
        for (size_t p = 0; p < tree->n_pages; p++)
                for (size_t i = 0; i < dci_kv_tree_page_fill(kv, tree, p); i++) {
                        const size_t member = (size_t)tree->members[p * kv->config.page_tokens + i];
                        const float *x = kv_tree_key(kv, data, layer, head, member);
                        double own = 0.0, best = -(double)INFINITY;
                        for (size_t c = 0; c < tree->n_nodes; c++) {
                                const float *node = kv_tree_key(kv, data, layer, head, (size_t)tree->node_tokens[c]);
                                const double score = kv_tree_nearness(tree, x, node, kv->dim_k);
                                best = fmax(best, score);
                                own = (int32_t)c == tree->page_node[p] ? score : own;
                        }
                        n += own < best - 1e-4 * (double)tree->c_squared;
                }
        return (double)n / (double)tree->n;
}

double kv_tree_page_score(const dci_kv *kv, const dci_kv_tree *tree, size_t page, const kv_data *data,
                          const float *query, size_t layer, size_t head)
{
        double best = -(double)INFINITY;
        for (size_t i = 0; i < dci_kv_tree_page_fill(kv, tree, page); i++) {
                const size_t member = (size_t)tree->members[page * kv->config.page_tokens + i];
                best = fmax(best, test_dot(query, kv_tree_key(kv, data, layer, head, member), kv->dim_k));
        }
        return best;
}
