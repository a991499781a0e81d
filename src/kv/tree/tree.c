/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* A head's tree: its memory, its pages, and candidates that leave it. */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "kv/tree/tree.h"

/* Room beyond what is asked: a 16th, in whole chunks. */
static size_t generous(size_t n)
{
        return (n + n / 16 + DCI_KV_CHUNK - 1) / DCI_KV_CHUNK * DCI_KV_CHUNK;
}

bool dci_kv_tree_promoted(const dci_kv *kv, size_t candidate)
{
        dci_rng seeded, rng;
        if (candidate == 0)
                return true;
        dci_rng_seed(&seeded, kv->config.seed);
        rng = dci_rng_split(&seeded, candidate);
        return dci_rng_uniform(&rng) < kv->config.tree_promotion;
}

/* --- memory ----------------------------------------------------------------------------------------------------------- */

typedef struct part {
        size_t size;
        void **at;
} part;

/* Sets the pointers of a tree that begins at `tree`, by its capacities; returns its bytes. measure: capacities only. */
static size_t lay_out(const dci_kv *kv, dci_kv_tree *tree, bool measure)
{
        const size_t nodes = tree->node_capacity, pages = tree->page_capacity;
        const size_t n_means = kv->config.summary == DCI_KV_SUMMARY_TREE ? nodes : pages;
        const part parts[] = {{nodes * sizeof(int32_t), (void **)&tree->node_tokens},
                              {nodes * sizeof(int32_t), (void **)&tree->node_first},
                              {nodes * sizeof(int32_t), (void **)&tree->node_last},
                              {nodes * sizeof(uint32_t), (void **)&tree->node_rows},
                              {nodes * sizeof(float), (void **)&tree->node_lifts},
                              {nodes * sizeof(float), (void **)&tree->node_radii2},
                              {nodes, (void **)&tree->node_dirty},
                              {pages * sizeof(int32_t), (void **)&tree->page_next},
                              {pages * sizeof(int32_t), (void **)&tree->page_node},
                              {pages * sizeof(uint32_t), (void **)&tree->page_versions},
                              {pages * kv->config.page_tokens * sizeof(int32_t), (void **)&tree->members},
                              {n_means * kv->dim_k * kv->es, (void **)&tree->means}};
        size_t at = dci_lines(sizeof *tree);
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
                if (!measure)
                        *parts[i].at = (unsigned char *)tree + at;
                at += dci_lines(parts[i].size);
        }
        return at;
}

/* Nodes among so many candidates, which are the same in all layers and heads: asked for again and again. */
static size_t count_nodes(dci_kv *kv, size_t n)
{
        if (n == kv->tree_tokens)
                return kv->tree_nodes;
        kv->tree_tokens = n;
        kv->tree_nodes = 0;
        for (size_t i = 0; i < n; i++)
                kv->tree_nodes += dci_kv_tree_promoted(kv, i);
        return kv->tree_nodes;
}

static void measure_with(const dci_kv *kv, size_t n_nodes, dci_kv_tree *out)
{
        out->node_capacity = n_nodes;
        /* Each cell may have one page that is not full; one that rows are drawn from has two more for that time. */
        out->page_capacity = out->token_capacity / kv->config.page_tokens + out->node_capacity + DCI_KV_TREE_SPARE;
        out->n_bytes = lay_out(kv, out, true);
}

/* The capacities of a tree for n candidates. */
static void measure(dci_kv *kv, size_t n, dci_kv_tree *out)
{
        *out = (dci_kv_tree){.token_capacity = generous(n)};
        measure_with(kv, count_nodes(kv, out->token_capacity), out);
}

size_t dci_kv_tree_bytes(const dci_kv *kv, size_t n)
{
        dci_kv_tree measured = {.token_capacity = n};
        measure_with(kv, (size_t)(kv->config.tree_promotion * (double)n), &measured);
        return measured.n_bytes;
}

static dci_status take_like(dci_kv *kv, const dci_kv_tree *measured, dci_kv_tree **out)
{
        dci_kv_tree *tree;
        const dci_status status = dci_kv_alloc(kv, measured->n_bytes, (void **)&tree);
        if (status != DCI_OK)
                return status;
        *tree = *measured;
        atomic_init(&tree->refs, 1);
        lay_out(kv, tree, false);
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

dci_status dci_kv_tree_share(dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t n, dci_kv_tree **out)
{
        dci_kv_tree *tree = layer->heads[head].tree;
        *out = NULL;
        if (tree == NULL || n == 0)
                return DCI_OK;
        if (tree->n > n)
                return dci_kv_tree_truncated_copy(kv, layer, head, n, out);
        dci_kv_tree_retain(tree);
        *out = tree;
        return DCI_OK;
}

void dci_kv_tree_release(dci_kv *kv, dci_kv_tree *tree)
{
        if (tree == NULL || atomic_fetch_sub(&tree->refs, 1) != 1)
                return;
        atomic_fetch_sub(&kv->chunk_total, tree->n_bytes);
        dci_kv_free(kv, tree, tree->n_bytes);
}

static void copy(const dci_kv *kv, const dci_kv_tree *from, dci_kv_tree *to)
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
}

dci_kv_tree *dci_kv_tree_mirror(const dci_kv *kv, const dci_kv_tree *tree, void *memory)
{
        dci_kv_tree *mirror = memory;
        *mirror = (dci_kv_tree){.n_bytes = tree->n_bytes,
                                .token_capacity = tree->token_capacity,
                                .node_capacity = tree->node_capacity,
                                .page_capacity = tree->page_capacity};
        lay_out(kv, mirror, false);
        copy(kv, tree, mirror);
        return mirror;
}

dci_status dci_kv_tree_own(dci_kv *kv, dci_kv_head *head, size_t n)
{
        dci_kv_tree *old = head->tree, *own, measured;
        if (old != NULL && atomic_load(&old->refs) == 1 && old->token_capacity >= n)
                return DCI_OK;
        measure(kv, old != NULL && old->n > n ? old->n : n, &measured);
        const dci_status status = take_like(kv, &measured, &own);
        if (status != DCI_OK)
                return status;
        if (old != NULL)
                copy(kv, old, own);
        dci_kv_tree_release(kv, old);
        head->tree = own;
        return DCI_OK;
}

/* --- pages ------------------------------------------------------------------------------------------------------------ */

void dci_kv_tree_clear(dci_kv_tree *tree)
{
        tree->n = tree->n_nodes = tree->n_pages = tree->n_free = 0;
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

static void free_page(dci_kv_tree *tree, size_t page)
{
        tree->page_node[page] = tree->page_next[page] = -1;
        tree->page_versions[page] = tree->version;
        tree->n_free++;
}

void dci_kv_tree_release_next(dci_kv_tree *tree, size_t page)
{
        const int32_t next = tree->page_next[page];
        tree->page_next[page] = tree->page_next[next];
        free_page(tree, (size_t)next);
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
                free_page(tree, (size_t)page);
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

void dci_kv_tree_rows(dci_kv *kv, const dci_kv_layer *layer, size_t head, const int32_t *candidates, size_t n,
                      bool guarded, const void **out)
{
        const size_t per_page = kv->config.page_tokens, sink = kv->config.sink, row_bytes = kv->dim_k * kv->es;
        const int32_t *table;
        if (guarded)
                pthread_mutex_lock(&kv->map_lock);
        table = layer->sequence->table;
        for (size_t i = 0; i < n; i++) {
                const size_t at = sink + (size_t)candidates[i];
                const dci_kv_page page = dci_kv_page_at(kv, layer->number, table[at / per_page], head);
                out[i] = page.keys + at % per_page * page.key_step;
                for (size_t j = 0; j < row_bytes; j += DCI_CACHE_LINE) /* they lie apart: no prefetcher knows them */
                        DCI_PREFETCH((const unsigned char *)out[i] + j);
        }
        if (guarded)
                pthread_mutex_unlock(&kv->map_lock);
}

/* --- cutting ---------------------------------------------------------------------------------------------------------- */

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
        dci_kv_tree_rows(kv, layer, head, &candidate, 1, true, rows);
        const float lift = dci_kv_tree_lift(tree, kernels->norm2[dtype](rows[0], kv->dim_k));
        kernels->to_f32[dtype](rows[0], kv->dim_k, wide);
        for (size_t i = 0, here; i < n_nodes && !isinf(tree->c_squared); i += here) {
                here = n_nodes - i < DCI_KV_TILE ? n_nodes - i : DCI_KV_TILE;
                dci_kv_tree_rows(kv, layer, head, tree->node_tokens + i, here, true, rows);
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
                free_page(tree, (size_t)page);
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
        dci_kv_tree_refresh(kv, layer, head, tree, wide);
}

dci_status dci_kv_tree_truncated_copy(dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t n, dci_kv_tree **out)
{
        const dci_kv_tree *from = layer->heads[head].tree;
        const dci_status status = dci_kv_tree_alloc(kv, from->n, out);
        if (status != DCI_OK)
                return status;
        copy(kv, from, *out);
        dci_kv_tree_truncate(kv, layer, head, *out, n);
        return DCI_OK;
}
