/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * A head's tree in a file: c^2 and tree_promotion (bits of floats), the number of pages, and for each page its node
 * (-1: it is free), the page after it in the cell (-1: none) and page_tokens members (-1: none). Nodes follow from the
 * seed, means and reach from the rows.
 */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "kv/memory.h"
#include "kv/tree/tree.h"

enum { HEADER = 3, PAGE_HEADER = 2 };

static int32_t bits_of(float x)
{
        int32_t bits;
        memcpy(&bits, &x, sizeof bits);
        return bits;
}

size_t dci_kv_tree_numbers(const dci_kv *kv, const dci_kv_tree *tree)
{
        if (tree == NULL || tree->n == 0)
                return 0;
        return HEADER + tree->n_pages * (PAGE_HEADER + kv->config.page_tokens);
}

int32_t dci_kv_tree_number(const dci_kv *kv, const dci_kv_tree *tree, size_t i)
{
        const size_t per_page = kv->config.page_tokens, width = PAGE_HEADER + per_page;
        if (i < HEADER)
                return i == 0   ? bits_of(tree->c_squared)
                       : i == 1 ? bits_of((float)kv->config.tree_promotion)
                                : (int32_t)tree->n_pages;
        const size_t page = (i - HEADER) / width, at = (i - HEADER) % width;
        if (at < PAGE_HEADER)
                return at == 0 ? tree->page_node[page] : tree->page_next[page];
        return at - PAGE_HEADER < dci_kv_tree_page_fill(kv, tree, page)
                       ? tree->members[page * per_page + at - PAGE_HEADER]
                       : -1;
}

static dci_status wrong(const dci_kv_layer *layer, size_t head, const char *what)
{
        return dci_fail(DCI_ERR_FORMAT, "layer %zu, kv head %zu: the file's tree has %s", layer->number, head, what);
}

/* Pages as the file has them, each with a node and a successor that there may be. */
static bool take_pages(const dci_kv *kv, const int32_t *numbers, dci_kv_tree *tree)
{
        const size_t per_page = kv->config.page_tokens, width = PAGE_HEADER + per_page;
        for (size_t p = 0; p < tree->n_pages; p++) {
                const int32_t *page = numbers + HEADER + p * width;
                if (page[0] < -1 || page[0] >= (int32_t)tree->n_nodes || page[1] < -1 ||
                    page[1] >= (int32_t)tree->n_pages || (page[0] < 0 && page[1] >= 0) ||
                    (page[1] >= 0 && numbers[HEADER + (size_t)page[1] * width] != page[0]))
                        return false;
                tree->page_node[p] = page[0];
                tree->page_next[p] = page[1];
                tree->page_versions[p] = tree->version;
                memcpy(tree->members + p * per_page, page + PAGE_HEADER, per_page * sizeof *tree->members);
                tree->n_free += page[0] < 0;
        }
        return true;
}

/* A page that follows no other is its cell's first: one for each cell that has pages. */
static bool find_firsts(dci_kv_tree *tree, uint64_t *bits)
{
        for (size_t p = 0; p < tree->n_pages; p++) {
                const int32_t next = tree->page_next[p];
                if (next < 0)
                        continue;
                if ((bits[next / 64] >> (next % 64) & 1) != 0)
                        return false;
                bits[next / 64] |= UINT64_C(1) << (next % 64);
        }
        for (size_t p = 0; p < tree->n_pages; p++) {
                const int32_t node = tree->page_node[p];
                if (node < 0 || (bits[p / 64] >> (p % 64) & 1) != 0)
                        continue;
                if (tree->node_first[node] >= 0)
                        return false;
                tree->node_first[node] = (int32_t)p;
        }
        return true;
}

/* Every candidate is in one page; all pages of a cell but the last are full. */
static bool count_members(const dci_kv *kv, dci_kv_tree *tree, size_t n, uint64_t *bits)
{
        const size_t per_page = kv->config.page_tokens;
        size_t found = 0, pages = 0;
        for (size_t c = 0; c < tree->n_nodes; c++)
                for (int32_t page = tree->node_first[c]; page >= 0; page = tree->page_next[page], pages++) {
                        const int32_t *members = tree->members + (size_t)page * per_page;
                        size_t fill = 0;
                        while (fill < per_page && members[fill] >= 0) {
                                const size_t member = (size_t)members[fill++];
                                if (member >= n || (bits[member / 64] >> (member % 64) & 1) != 0)
                                        return false;
                                bits[member / 64] |= UINT64_C(1) << (member % 64);
                        }
                        if (fill == 0 || (fill < per_page && tree->page_next[page] >= 0))
                                return false;
                        for (size_t i = fill; i < per_page; i++)
                                if (members[i] != -1)
                                        return false;
                        tree->node_last[c] = page;
                        tree->node_rows[c] += (uint32_t)fill;
                        found += fill;
                }
        return found == n && pages == tree->n_pages - tree->n_free;
}

/* Nodes by the seed. c^2 is one that these keys can have had. */
static bool take_nodes(dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t n, dci_kv_tree *tree)
{
        int exponent;
        const float c2 = tree->c_squared;
        if (!(c2 >= 0.0f) || (c2 > 0.0f && !isinf(c2) && frexpf(c2, &exponent) != 0.5f))
                return false;
        for (size_t i = 0; i < n; i++) {
                const int32_t candidate = (int32_t)i;
                const void *row;
                dci_kv_tree_rows(kv, layer, head, &candidate, 1, &row);
                const float norm2 = kv->context->kernels->norm2[kv->config.dtype - 1](row, kv->dim_k);
                if (norm2 > c2)
                        return false;
                if (dci_kv_tree_promoted(kv, i))
                        dci_kv_tree_add_node(tree, i, dci_kv_tree_lift(tree, norm2));
        }
        return true;
}

dci_status dci_kv_tree_read(dci_kv *kv, const dci_kv_layer *layer, size_t head, const int32_t *numbers, size_t n,
                            size_t n_candidates, dci_kv_tree *tree)
{
        const size_t width = PAGE_HEADER + kv->config.page_tokens;
        if (n < HEADER || numbers[2] < 0 || (size_t)numbers[2] > tree->page_capacity ||
            n != HEADER + (size_t)numbers[2] * width)
                return wrong(layer, head, "a wrong number of pages");
        float promotion;
        memcpy(&promotion, &numbers[1], sizeof promotion);
        if (numbers[1] != bits_of((float)kv->config.tree_promotion))
                return dci_fail(DCI_ERR_INVALID, "the file's tree_promotion is %g, expected %g", (double)promotion,
                                kv->config.tree_promotion);
        memcpy(&tree->c_squared, numbers, sizeof tree->c_squared);
        tree->version = tree->built_version = 1;
        if (!take_nodes(kv, layer, head, n_candidates, tree))
                return wrong(layer, head, "a c^2 that its keys cannot have");
        tree->n_pages = (size_t)numbers[2];
        const size_t n_words = (n_candidates > tree->n_pages ? n_candidates : tree->n_pages) / 64 + 1;
        uint64_t *bits;
        DCI_TRY(dci_kv_alloc(kv, n_words * sizeof *bits, (void **)&bits));
        memset(bits, 0, n_words * sizeof *bits);
        bool good = take_pages(kv, numbers, tree) && find_firsts(tree, bits);
        memset(bits, 0, n_words * sizeof *bits);
        good = good && count_members(kv, tree, n_candidates, bits);
        dci_kv_free(kv, bits, n_words * sizeof *bits);
        tree->n = n_candidates;
        return good ? DCI_OK : wrong(layer, head, "pages that do not hold every token once");
}
