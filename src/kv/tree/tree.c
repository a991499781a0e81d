/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* A head's tree: its memory and its pages. */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "core/arena.h"
#include "kv/memory.h"
#include "kv/pool.h"
#include "kv/tree/tree.h"

/* Room beyond what is asked: a 16th, in whole chunks. */
static size_t generous(size_t n)
{
        return (n + n / 16 + DCI_KV_CHUNK - 1) / DCI_KV_CHUNK * DCI_KV_CHUNK;
}

/* Nodes that are compared with one by one: at level 0, where one level is as good as several for forming; where levels
 * were asked for, and above. */
#define MANY_NODES ((size_t)3072)
#define FEW_NODES ((size_t)32)
#define PROMOTION_SUBSEQ 0.2 /* published */

static double promotion_subseq(const dci_kv *kv)
{
        return kv->config.tree_promotion_subseq > 0.0 ? kv->config.tree_promotion_subseq : PROMOTION_SUBSEQ;
}

size_t dci_kv_tree_promotions(const dci_kv *kv, size_t candidate)
{
        const double again = promotion_subseq(kv);
        const bool levels = kv->config.tree_promotion_subseq >= 0.0;
        dci_rng seeded, rng;
        size_t n = 1;
        if (candidate == 0)
                return DCI_KV_TREE_LEVELS;
        dci_rng_seed(&seeded, kv->config.seed);
        rng = dci_rng_split(&seeded, candidate);
        if (!(dci_rng_uniform(&rng) < kv->config.tree_promotion))
                return 0;
        while (n < DCI_KV_TREE_LEVELS && levels && dci_rng_uniform(&rng) < again)
                n++;
        return n;
}

size_t dci_kv_tree_count_levels(const dci_kv *kv, const size_t *counts)
{
        size_t n = 1, most = kv->config.tree_promotion_subseq > 0.0 ? FEW_NODES : MANY_NODES;
        while (n < DCI_KV_TREE_LEVELS && kv->config.tree_promotion_subseq >= 0.0 && counts[n - 1] > most) {
                n++;
                most = FEW_NODES;
        }
        return n;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* Blocks of codes of so many rows. */
static size_t blocks_of(size_t n_rows)
{
        return (n_rows + DCI_CODE_ROWS - 1) / DCI_CODE_ROWS;
}

/* For one row, and for encoding it. */
static size_t scratch_bytes(const dci_kv *kv)
{
        const size_t row = kv->config.tree_keys != DCI_KV_TREE_EXACT ? dci_lines(kv->dim_k * sizeof(float)) : 0;
        return row + dci_kv_tree_encode_bytes(kv, true);
}

static bool searched(const dci_kv *kv)
{
        return kv->config.select == DCI_KV_SELECT_TREE;
}

/* Arrays of one level, if the next one may have nodes or it has some itself. */
static size_t lay_out_level(const dci_kv *kv, dci_kv_tree *tree, size_t l, void *memory)
{
        dci_kv_tree_level *level = &tree->levels[l];
        const size_t above = l + 1 < DCI_KV_TREE_LEVELS ? tree->levels[l + 1].capacity : 0;
        const size_t n = l == 0 ? tree->node_capacity : level->capacity, n_parents = above > 0 ? n : 0;
        const size_t own = l == 0 || n == 0 ? 0 : 1;
        const size_t below = own == 0 ? 0 : l == 1 ? tree->node_capacity : tree->levels[l - 1].capacity;
        const size_t n_means = searched(kv) && kv->config.tree_promotion_subseq > 0.0 ? own * n : 0;
        const dci_arena_part parts[] = {
                {n_parents * sizeof(int32_t), &level->parents}, {n_parents * sizeof(float), &level->parent_scores},
                {own * n * sizeof(int32_t), &level->nodes},     {own * (n + 1) * sizeof(int32_t), &level->child_first},
                {below * sizeof(int32_t), &level->children},    {own * n * sizeof(int32_t), &level->visits},
                {own * n * sizeof(uint32_t), &level->rows},     {own * n, &level->dirty},
                {n_means * kv->dim_k * kv->es, &level->means}};
        return DCI_ARENA(parts, memory);
}

/* Bytes of a tree, by its capacities; memory: the tree, whose pointers are set, or NULL. */
static size_t lay_out(const dci_kv *kv, dci_kv_tree *tree, void *memory)
{
        const size_t nodes = tree->node_capacity, pages = tree->page_capacity;
        const size_t n_means = kv->config.summary == DCI_KV_SUMMARY_TREE ? nodes : pages;
        const size_t projections = kv->config.tree_simple_indices * sizeof(float);
        const size_t page_means = kv->config.tree_keys == DCI_KV_TREE_MEANS ? pages : 0;
        const size_t coded = dci_kv_tree_coded(kv), block = coded * dci_kv_tree_block_bytes(kv),
                     code_blocks = blocks_of(pages * kv->config.page_tokens), node_blocks = blocks_of(nodes);
        const dci_arena_part parts[] = {
                {sizeof *tree, NULL},
                {nodes * sizeof(int32_t), &tree->node_tokens},
                {nodes * sizeof(int32_t), &tree->node_first},
                {nodes * sizeof(int32_t), &tree->node_last},
                {nodes * sizeof(uint32_t), &tree->node_rows},
                {nodes * sizeof(float), &tree->node_lifts},
                {nodes * sizeof(float), &tree->node_radii2},
                {nodes, &tree->node_dirty},
                {pages * sizeof(int32_t), &tree->page_next},
                {pages * sizeof(int32_t), &tree->page_node},
                {pages * sizeof(uint32_t), &tree->page_versions},
                {pages * kv->config.page_tokens * sizeof(int32_t), &tree->members},
                {n_means * kv->dim_k * kv->es, &tree->means},
                {nodes * projections, &tree->node_projections},
                {pages * kv->config.page_tokens * projections * searched(kv), &tree->member_projections},
                {(tree->levels[1].capacity > 0) * tree->token_capacity * sizeof(int32_t), &tree->placed},
                {page_means * kv->dim_k * kv->es, &tree->page_means},
                {code_blocks * block, &tree->codes},
                {coded * code_blocks * DCI_CODE_ROWS * sizeof(uint16_t), &tree->code_scales},
                {node_blocks * block, &tree->node_codes},
                {coded * node_blocks * DCI_CODE_ROWS * sizeof(uint16_t), &tree->node_scales},
                {coded * nodes * sizeof(uint32_t), &tree->node_versions},
                {scratch_bytes(kv), &tree->scratch}};
        size_t n_bytes = DCI_ARENA(parts, memory);
        for (size_t l = 0; l < DCI_KV_TREE_LEVELS; l++)
                n_bytes += lay_out_level(kv, tree, l, memory == NULL ? NULL : (unsigned char *)memory + n_bytes);
        return n_bytes;
}

/* Nodes among so many candidates, which are the same in all layers and heads: asked for again and again. */
static const size_t *count_nodes(dci_kv *kv, size_t n)
{
        if (n == kv->tree_tokens)
                return kv->tree_counts;
        kv->tree_tokens = n;
        memset(kv->tree_counts, 0, sizeof kv->tree_counts);
        for (size_t i = 0; i < n; i++)
                for (size_t l = dci_kv_tree_promotions(kv, i); l > 0; l--)
                        kv->tree_counts[l - 1]++;
        return kv->tree_counts;
}

static void measure_with(const dci_kv *kv, const size_t *counts, dci_kv_tree *out)
{
        const size_t n_levels = dci_kv_tree_count_levels(kv, counts);
        out->node_capacity = counts[0];
        for (size_t l = 1; l < n_levels; l++)
                out->levels[l].capacity = counts[l];
        /* Each cell may have one page that is not full; one that rows are drawn from has two more for that time. */
        out->page_capacity = out->token_capacity / kv->config.page_tokens + out->node_capacity + DCI_KV_TREE_SPARE;
        out->n_bytes = lay_out(kv, out, NULL);
}

/* The capacities of a tree for n candidates. */
static void measure(dci_kv *kv, size_t n, dci_kv_tree *out)
{
        *out = (dci_kv_tree){.token_capacity = generous(n)};
        measure_with(kv, count_nodes(kv, out->token_capacity), out);
}

size_t dci_kv_tree_bytes(const dci_kv *kv, size_t n)
{
        const double again = promotion_subseq(kv);
        dci_kv_tree measured = {.token_capacity = n};
        size_t counts[DCI_KV_TREE_LEVELS];
        double expected = kv->config.tree_promotion * (double)n;
        for (size_t l = 0; l < DCI_KV_TREE_LEVELS; l++) {
                counts[l] = (size_t)expected;
                expected *= again;
        }
        measure_with(kv, counts, &measured);
        return measured.n_bytes;
}

static dci_status take_like(dci_kv *kv, const dci_kv_tree *measured, dci_kv_tree **out)
{
        dci_kv_tree *tree;
        DCI_TRY(dci_kv_alloc(kv, measured->n_bytes, (void **)&tree));
        *tree = *measured;
        tree->n_levels = 1;
        atomic_init(&tree->refs, 1);
        lay_out(kv, tree, tree);
        if (dci_kv_tree_coded(kv)) /* units are read whole, whatever has rows */
                memset(tree->codes, 0, (size_t)(tree->scratch - tree->codes));
        atomic_fetch_add(&kv->chunk_total, tree->n_bytes);
        *out = tree;
        return DCI_OK;
}

dci_status dci_kv_tree_alloc(dci_kv *kv, size_t n, dci_kv_tree **out)
{
        dci_kv_tree measured;
        measure(kv, n, &measured);
        return take_like(kv, &measured, out);
}

void dci_kv_tree_retain(dci_kv_tree *tree)
{
        if (tree != NULL)
                atomic_fetch_add(&tree->refs, 1);
}

void dci_kv_tree_release(dci_kv *kv, dci_kv_tree *tree)
{
        if (tree == NULL || atomic_fetch_sub(&tree->refs, 1) != 1)
                return;
        atomic_fetch_sub(&kv->chunk_total, tree->n_bytes);
        dci_kv_free(kv, tree, tree->n_bytes);
}

void dci_kv_tree_clear_levels(dci_kv_tree *tree)
{
        tree->n_levels = 1;
        tree->n_levelled = 0;
        for (size_t l = 0; l < DCI_KV_TREE_LEVELS; l++)
                tree->levels[l].n = tree->levels[l].n_placed = tree->levels[l].n_parents = 0;
}

static void copy_projections(const dci_kv *kv, const dci_kv_tree *from, dci_kv_tree *to)
{
        const size_t width = kv->config.tree_simple_indices * sizeof(float);
        if (from->node_projections != NULL)
                memcpy(to->node_projections, from->node_projections, from->n_nodes * width);
        if (from->member_projections != NULL)
                memcpy(to->member_projections, from->member_projections,
                       from->n_pages * kv->config.page_tokens * width);
}

/* A level that either tree has no room for has no nodes that count. */
static void copy_level(const dci_kv *kv, const dci_kv_tree *from, size_t l, dci_kv_tree_level *to)
{
        const dci_kv_tree_level *level = &from->levels[l];
        const bool there = l == 0 || (level->nodes != NULL && to->nodes != NULL);
        const size_t n = there ? dci_kv_tree_level_size(from, l) : 0;
        const bool placed = there && level->parents != NULL && to->parents != NULL;
        to->n = l == 0 ? 0 : n;
        to->n_placed = placed ? level->n_placed : 0;
        to->n_parents = placed ? level->n_parents : 0;
        if (placed) {
                memcpy(to->parents, level->parents, n * sizeof *to->parents);
                memcpy(to->parent_scores, level->parent_scores, n * sizeof *to->parent_scores);
        }
        if (l == 0 || n == 0)
                return;
        memcpy(to->nodes, level->nodes, n * sizeof *to->nodes);
        memcpy(to->rows, level->rows, n * sizeof *to->rows);
        memcpy(to->dirty, level->dirty, n);
        if (l < from->n_levels) {
                memcpy(to->child_first, level->child_first, (n + 1) * sizeof *to->child_first);
                memcpy(to->children, level->children, dci_kv_tree_level_size(from, l - 1) * sizeof *to->children);
        }
        if (level->means != NULL)
                memcpy(to->means, level->means, n * kv->dim_k * kv->es);
}

void dci_kv_tree_copy(const dci_kv *kv, const dci_kv_tree *from, dci_kv_tree *to)
{
        const size_t nodes = from->n_nodes, pages = from->n_pages, per_page = kv->config.page_tokens;
        const size_t n_means = kv->config.summary == DCI_KV_SUMMARY_TREE ? nodes : pages;
        to->n = from->n;
        to->n_nodes = nodes;
        to->n_pages = pages;
        to->n_free = from->n_free;
        to->c_squared = from->c_squared;
        to->version = from->version;
        to->built_version = from->built_version;
        memcpy(to->node_tokens, from->node_tokens, nodes * sizeof *to->node_tokens);
        memcpy(to->node_first, from->node_first, nodes * sizeof *to->node_first);
        memcpy(to->node_last, from->node_last, nodes * sizeof *to->node_last);
        memcpy(to->node_rows, from->node_rows, nodes * sizeof *to->node_rows);
        memcpy(to->node_lifts, from->node_lifts, nodes * sizeof *to->node_lifts);
        memcpy(to->node_radii2, from->node_radii2, nodes * sizeof *to->node_radii2);
        memcpy(to->node_dirty, from->node_dirty, nodes);
        memcpy(to->page_next, from->page_next, pages * sizeof *to->page_next);
        memcpy(to->page_node, from->page_node, pages * sizeof *to->page_node);
        memcpy(to->page_versions, from->page_versions, pages * sizeof *to->page_versions);
        memcpy(to->members, from->members, pages * per_page * sizeof *to->members);
        memcpy(to->means, from->means, n_means * kv->dim_k * kv->es);
        copy_projections(kv, from, to);
        to->n_levels = from->n_levels;
        to->n_levelled = from->n_levelled;
        for (size_t l = 0; l < DCI_KV_TREE_LEVELS; l++)
                copy_level(kv, from, l, &to->levels[l]);
        for (size_t l = 1; l < DCI_KV_TREE_LEVELS; l++)
                if (from->levels[l].nodes == NULL && to->levels[l].nodes != NULL) /* dci_kv_tree_relate draws them */
                        dci_kv_tree_clear_levels(to);
        if (kv->config.tree_keys == DCI_KV_TREE_MEANS)
                memcpy(to->page_means, from->page_means, pages * kv->dim_k * kv->es);
        if (!dci_kv_tree_coded(kv))
                return;
        const size_t block = dci_kv_tree_block_bytes(kv), code_blocks = blocks_of(pages * per_page),
                     node_blocks = blocks_of(nodes);
        memcpy(to->codes, from->codes, code_blocks * block);
        memcpy(to->code_scales, from->code_scales, code_blocks * DCI_CODE_ROWS * sizeof *to->code_scales);
        memcpy(to->node_codes, from->node_codes, node_blocks * block);
        memcpy(to->node_scales, from->node_scales, node_blocks * DCI_CODE_ROWS * sizeof *to->node_scales);
        memcpy(to->node_versions, from->node_versions, nodes * sizeof *to->node_versions);
}

dci_kv_tree *dci_kv_tree_mirror(const dci_kv *kv, const dci_kv_tree *tree, void *memory)
{
        dci_kv_tree *mirror = memory;
        *mirror = (dci_kv_tree){.n_bytes = tree->n_bytes,
                                .token_capacity = tree->token_capacity,
                                .node_capacity = tree->node_capacity,
                                .page_capacity = tree->page_capacity};
        for (size_t l = 0; l < DCI_KV_TREE_LEVELS; l++)
                mirror->levels[l].capacity = tree->levels[l].capacity;
        lay_out(kv, mirror, mirror);
        dci_kv_tree_copy(kv, tree, mirror);
        return mirror;
}

dci_status dci_kv_tree_own(dci_kv *kv, dci_kv_head *head, size_t n)
{
        dci_kv_tree *old = head->tree, *own, measured;
        if (old != NULL && atomic_load(&old->refs) == 1 && old->token_capacity >= n)
                return DCI_OK;
        measure(kv, old != NULL && old->n > n ? old->n : n, &measured);
        DCI_TRY(take_like(kv, &measured, &own));
        if (old != NULL)
                dci_kv_tree_copy(kv, old, own);
        dci_kv_tree_release(kv, old);
        head->tree = own;
        return DCI_OK;
}

/* --- pages -------------------------------------------------------------------------------------------------------- */

void dci_kv_tree_clear(dci_kv_tree *tree)
{
        tree->n = tree->n_nodes = tree->n_pages = tree->n_free = 0;
        dci_kv_tree_clear_levels(tree);
}

void dci_kv_tree_add_node(dci_kv_tree *tree, size_t candidate, float lift)
{
        const size_t at = tree->n_nodes++;
        tree->node_tokens[at] = (int32_t)candidate;
        tree->node_first[at] = tree->node_last[at] = -1;
        tree->node_rows[at] = 0;
        tree->node_lifts[at] = lift;
        tree->node_radii2[at] = 0.0f;
        tree->node_dirty[at] = 1;
}

size_t dci_kv_tree_page_fill(const dci_kv *kv, const dci_kv_tree *tree, size_t page)
{
        const size_t per_page = kv->config.page_tokens;
        if (tree->page_node[page] < 0)
                return 0;
        return tree->page_next[page] >= 0 ? per_page : (tree->node_rows[tree->page_node[page]] - 1) % per_page + 1;
}

/* The lowest free one, so that numbers depend on what the tree holds and not on how it came to. */
int32_t dci_kv_tree_alloc_page(dci_kv_tree *tree, size_t node)
{
        size_t page = tree->n_pages;
        if (tree->n_free > 0) {
                page = 0;
                while (tree->page_node[page] >= 0)
                        page++;
                tree->n_free--;
        } else {
                tree->n_pages++;
        }
        tree->page_node[page] = (int32_t)node;
        tree->page_next[page] = -1;
        tree->page_versions[page] = tree->version;
        return (int32_t)page;
}

void dci_kv_tree_free_page(dci_kv_tree *tree, size_t page)
{
        tree->page_node[page] = tree->page_next[page] = -1;
        tree->page_versions[page] = tree->version;
        tree->n_free++;
}

void dci_kv_tree_release_next(dci_kv_tree *tree, size_t page)
{
        const int32_t next = tree->page_next[page];
        tree->page_next[page] = tree->page_next[next];
        dci_kv_tree_free_page(tree, (size_t)next);
}

void dci_kv_tree_attach(const dci_kv *kv, dci_kv_tree *tree, size_t node, int32_t candidate)
{
        const size_t per_page = kv->config.page_tokens, at = tree->node_rows[node] % per_page;
        if (at == 0) {
                const int32_t page = dci_kv_tree_alloc_page(tree, node);
                if (tree->node_last[node] >= 0)
                        tree->page_next[tree->node_last[node]] = page;
                else
                        tree->node_first[node] = page;
                tree->node_last[node] = page;
        }
        const size_t page = (size_t)tree->node_last[node];
        tree->members[page * per_page + at] = candidate;
        tree->page_versions[page] = tree->version;
        tree->node_rows[node]++;
        tree->node_dirty[node] = 1;
}

void dci_kv_tree_shorten(const dci_kv *kv, dci_kv_tree *tree, size_t node, size_t n)
{
        const size_t per_page = kv->config.page_tokens;
        int32_t page = tree->node_first[node], last = -1;
        for (size_t kept = 0; kept < n; kept += per_page) {
                last = page;
                page = tree->page_next[page];
        }
        while (page >= 0) {
                const int32_t next = tree->page_next[page];
                dci_kv_tree_free_page(tree, (size_t)page);
                page = next;
        }
        if (last >= 0)
                tree->page_next[last] = -1;
        else
                tree->node_first[node] = -1;
        tree->node_last[node] = last;
        tree->node_rows[node] = (uint32_t)n;
        tree->node_dirty[node] = 1;
}

float dci_kv_tree_lift(const dci_kv_tree *tree, float norm2)
{
        return !isinf(tree->c_squared) && tree->c_squared > norm2 ? sqrtf(tree->c_squared - norm2) : 0.0f;
}

void dci_kv_tree_rows(const dci_kv *kv, const dci_kv_layer *layer, size_t head, const int32_t *candidates, size_t n,
                      const void **out)
{
        const size_t per_page = kv->config.page_tokens, sink = kv->config.sink, row_bytes = kv->dim_k * kv->es;
        const int32_t *table = atomic_load_explicit(&layer->sequence->table, memory_order_acquire);
        for (size_t i = 0; i < n; i++) {
                const size_t at = sink + (size_t)candidates[i];
                const dci_kv_page page = dci_kv_page_at(kv, layer->number, table[at / per_page], head);
                out[i] = page.keys + at % per_page * page.key_step;
                for (size_t j = 0; j < row_bytes; j += DCI_CACHE_LINE) /* scattered rows */
                        DCI_PREFETCH((const unsigned char *)out[i] + j);
        }
}
