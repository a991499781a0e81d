/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The device's copy of trees. */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "kv/tree/tree.h"
#include "offload/tree.h"

bool dci_gpu_kv_has_trees(const dci_kv_config *shape)
{
        return shape->group == DCI_KV_GROUP_TREE;
}

static dci_status unsupported(const char *what)
{
        return dci_fail(DCI_ERR_UNSUPPORTED, "the device cannot plan with %s", what);
}

dci_status dci_gpu_kv_can_search(const dci_kv_config *shape)
{
        if (shape->select != DCI_KV_SELECT_TREE)
                return unsupported("a scan of a tree's pages: it searches trees");
        if (shape->tree_promotion_subseq > 0.0 || shape->tree_simple_indices > 0)
                return unsupported("levels of a tree or P-DCI in its nodes: it compares with all nodes");
        if (shape->tree_keys != DCI_KV_TREE_CODES)
                return unsupported(shape->tree_keys == DCI_KV_TREE_MEANS ? "tree_keys MEANS: use CODES"
                                                                         : "tree_keys EXACT: use CODES");
        if (shape->tree_tokens != 0)
                return unsupported("tree_tokens: a search ends in pages");
        return DCI_OK;
}

/* --- sizes -------------------------------------------------------------------------------------------------------- */

static size_t block_bytes(const dci_gpu_kv *kv)
{
        return (size_t)DCI_GPU_TREE_BLOCK_BYTES(kv->dim, (size_t)kv->shape.key_bits);
}

/* Parts begin at 128 bytes. */
static size_t part_bytes(size_t n_bytes)
{
        return (n_bytes + 127) / 128 * 128;
}

size_t dci_gpu_kv_trees_init(dci_gpu_kv *kv)
{
        const dci_kv_config *c = &kv->shape;
        /* Trees have room for some more (tree/tree.c), and six deviations more promoted tokens than are expected. */
        const size_t n = kv->config.max_tokens, tokens = n + n / 16 + 2 * DCI_KV_CHUNK;
        const double expected = c->tree_promotion * (double)tokens, most = expected + 6.0 * sqrt(expected) + 64.0;
        const size_t nodes = most < (double)tokens ? (size_t)most : tokens,
                     opened = c->tree_field_of_view > 0
                                      ? c->tree_field_of_view
                                      : DCI_GPU_TREE_FEWEST + (size_t)(DCI_GPU_TREE_SHARE * (double)n),
                     rows = (size_t)((double)(opened < nodes ? opened : nodes) * (double)kv->group / c->tree_promotion);
        kv->planner.tree.max_pages = (tokens / c->page_tokens + nodes + DCI_KV_TREE_SPARE + 31) / 32 * 32;
        kv->planner.tree.page_rows = rows < n ? rows : n;
        dci_gpu_kv_store_init(kv, kv->summaries, part_bytes(DCI_GPU_TREE_NODE_BYTES(block_bytes(kv))), nodes);
        dci_gpu_kv_store_init(kv, kv->ids, part_bytes(DCI_GPU_TREE_PAGE_BYTES(block_bytes(kv))),
                              kv->planner.tree.max_pages * c->page_tokens);
        return nodes;
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

static size_t *grouped_of(const dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        return kv->trees->grouped + dci_gpu_kv_row_number(kv, row) * kv->n_sparse;
}

static uint32_t *versions_of(const dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t layer)
{
        const size_t n = dci_gpu_kv_row_number(kv, row) * kv->n_sparse + kv->layers[layer].index;
        return kv->trees->versions + n * kv->shape.n_kv_heads;
}

void dci_gpu_kv_trees_open(dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        const size_t n = kv->n_sparse, at = dci_gpu_kv_row_number(kv, row);
        memset(grouped_of(kv, row), 0, n * sizeof *kv->trees->grouped);
        memset(kv->trees->versions + at * n * kv->shape.n_kv_heads, 0,
               n * kv->shape.n_kv_heads * sizeof *kv->trees->versions);
        kv->trees->stale[at] = false;
}

/* A layer without a tree of its own has the candidates that its lists were selected from. */
size_t dci_gpu_kv_trees_grouped(const dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t layer)
{
        const size_t of = dci_kv_groups(kv->host, layer) ? layer : dci_kv_anchor_of(kv->host, layer);
        return grouped_of(kv, row)[kv->layers[of].index];
}

/* Asked for each row of every step; nearly always nothing has changed. */
static bool changed(const dci_gpu_kv *kv, const dci_kv_sequence *sequence, const dci_gpu_kv_row *row)
{
        bool some = kv->trees->stale[dci_gpu_kv_row_number(kv, row)];
        for (size_t l = 0; l < kv->shape.n_layers && !some; l++)
                some = dci_kv_groups(kv->host, l) &&
                       sequence->layers[l].n_grouped != grouped_of(kv, row)[kv->layers[l].index];
        return some;
}

/* --- chunks ------------------------------------------------------------------------------------------------------- */

/* Makes a row's first n chunks exclusive; those that others share are copied on the device. All memory comes first. */
static dci_status make_exclusive(dci_gpu_kv *kv, dci_gpu_kv_store *s, size_t row, size_t n)
{
        DCI_TRY(dci_gpu_kv_store_ready(kv, s, dci_gpu_kv_store_missing(s, row, 0, n)));
        DCI_TRY(dci_gpu_kv_store_unshare(kv, s, kv->side, row, n));
        DCI_TRY(dci_gpu_kv_store_make_exclusive(kv, s, kv->side, row, s->n_chunks[row], n));
        dci_gpu_kv_store_truncate(s, row, n);
        return DCI_OK;
}

/* --- through the locked buffer ------------------------------------------------------------------------------------ */

typedef struct sender {
        dci_gpu_kv *kv;
        size_t row, used, n; /* bytes, and patches */
} sender;

static dci_status sent(sender *s)
{
        dci_gpu_kv *kv = s->kv;
        const dci_gpu_patch_args args = {.patches = dci_gpu_kv_mapped(kv, kv->trees->patches), .n = (int32_t)s->n};
        if (s->n > 0) {
                DCI_TRY(kv->ops->patch(kv->gpu, kv->side, &args));
                DCI_TRY(kv->ops->stream_wait(kv->gpu, kv->side));
        }
        s->used = s->n = 0;
        return DCI_OK;
}

/* Room for n_bytes that go to an address of the device. */
static dci_status room_for(sender *s, unsigned char *to, size_t n_bytes, unsigned char **out)
{
        dci_gpu_kv *kv = s->kv;
        if (s->used + n_bytes > kv->planner.upload_bytes || s->n == DCI_GPU_KV_PATCHES)
                DCI_TRY(sent(s));
        *out = kv->planner.upload + s->used;
        kv->trees->patches[s->n++] = (dci_gpu_patch){to, dci_gpu_kv_mapped(kv, *out), n_bytes};
        s->used += (n_bytes + 15) / 16 * 16;
        return DCI_OK;
}

static dci_status send(sender *s, unsigned char *to, const void *from, size_t n_bytes)
{
        unsigned char *by;
        DCI_TRY(room_for(s, to, n_bytes, &by));
        memcpy(by, from, n_bytes);
        return DCI_OK;
}

/* The device's part of the chunk that has a row of a store. */
static unsigned char *part_at(const sender *s, const dci_gpu_kv_store *store, size_t layer, size_t head, size_t at)
{
        const int32_t number = dci_gpu_kv_store_numbers(store, s->row)[at / DCI_GPU_CHUNK];
        return dci_gpu_kv_store_at(store, s->kv->layers[layer].index, number) + head * store->head_bytes;
}

/* The codes and scales of one block of 32 rows. */
static dci_status send_block(sender *s, unsigned char *codes, unsigned char *scales, size_t block,
                             const unsigned char *from, const uint16_t *from_scales)
{
        const size_t n_bytes = block_bytes(s->kv), at = block % (DCI_GPU_CHUNK / DCI_CODE_ROWS);
        DCI_TRY(send(s, codes + at * n_bytes, from + block * n_bytes, n_bytes));
        return send(s, scales + at * DCI_CODE_ROWS * sizeof(uint16_t), from_scales + block * DCI_CODE_ROWS,
                    DCI_CODE_ROWS * sizeof(uint16_t));
}

static size_t cell_pages(const dci_gpu_kv *kv, const dci_kv_tree *tree, size_t node)
{
        return (tree->node_rows[node] + kv->shape.page_tokens - 1) / kv->shape.page_tokens;
}

/* Nodes that are newer than a version, block by block. */
static dci_status send_nodes(sender *s, size_t layer, size_t head, const dci_kv_tree *tree, uint32_t since)
{
        const dci_gpu_kv *kv = s->kv;
        const size_t bytes = block_bytes(kv);
        for (size_t first = 0; first < tree->n_nodes; first += DCI_CODE_ROWS) {
                const size_t left = tree->n_nodes - first, n = left < DCI_CODE_ROWS ? left : DCI_CODE_ROWS;
                bool newer = false;
                for (size_t i = first; i < first + n; i++)
                        newer = newer || tree->node_versions[i] > since;
                if (!newer)
                        continue;
                unsigned char *part = part_at(s, kv->summaries, layer, head, first), *by;
                DCI_TRY(send_block(s, part, part + DCI_GPU_TREE_NODE_SCALES(bytes), first / DCI_CODE_ROWS,
                                   tree->node_codes, tree->node_scales));
                DCI_TRY(room_for(s, part + DCI_GPU_TREE_NODE_PAGES(bytes) + first % DCI_GPU_CHUNK * sizeof(int32_t),
                                 n * sizeof(int32_t), &by));
                for (size_t i = 0; i < n; i++)
                        ((int32_t *)(void *)by)[i] = (int32_t)cell_pages(kv, tree, first + i);
        }
        return DCI_OK;
}

/* Candidates of pages [first, first + n), and their nodes. */
static dci_status send_members(sender *s, unsigned char *part, const dci_kv_tree *tree, size_t first, size_t n)
{
        const dci_gpu_kv *kv = s->kv;
        const size_t per = kv->shape.page_tokens;
        unsigned char *by;
        DCI_TRY(room_for(s, part + first * per % DCI_GPU_CHUNK * sizeof(int32_t), n * per * sizeof(int32_t), &by));
        for (size_t p = 0; p < n; p++) {
                const size_t fill = dci_kv_tree_page_fill(kv->host, tree, first + p);
                for (size_t i = 0; i < per; i++)
                        ((int32_t *)(void *)by)[p * per + i] =
                                i < fill ? tree->members[(first + p) * per + i] : INT32_MAX;
        }
        return send(s, part + DCI_GPU_TREE_OWNERS(block_bytes(kv)) + first % (DCI_GPU_CHUNK / per) * sizeof(int32_t),
                    tree->page_node + first, n * sizeof(int32_t));
}

/* Pages that are newer than a version, with what else is in their blocks. */
static dci_status send_pages(sender *s, size_t layer, size_t head, const dci_kv_tree *tree, uint32_t since)
{
        const dci_gpu_kv *kv = s->kv;
        const size_t bytes = block_bytes(kv), per = kv->shape.page_tokens,
                     at_once = per < DCI_CODE_ROWS ? DCI_CODE_ROWS / per : 1;
        for (size_t first = 0; first < tree->n_pages; first += at_once) {
                const size_t left = tree->n_pages - first, n = left < at_once ? left : at_once;
                bool newer = false;
                for (size_t p = first; p < first + n; p++)
                        newer = newer || tree->page_versions[p] > since;
                if (!newer)
                        continue;
                unsigned char *part = part_at(s, kv->ids, layer, head, first * per);
                DCI_TRY(send_members(s, part, tree, first, n));
                for (size_t row = first * per; row < (first + n) * per; row += DCI_CODE_ROWS)
                        DCI_TRY(send_block(s, part + DCI_GPU_TREE_CODES, part + DCI_GPU_TREE_SCALES(bytes),
                                           row / DCI_CODE_ROWS, tree->codes, tree->code_scales));
        }
        return DCI_OK;
}

/* --- the device's copy -------------------------------------------------------------------------------------------- */

/* Nodes and numbers of pages that the trees of a row have at most. */
static void count(const dci_gpu_kv *kv, const dci_kv_sequence *sequence, size_t *out_nodes, size_t *out_pages)
{
        *out_nodes = *out_pages = 0;
        for (size_t l = 0; l < kv->shape.n_layers; l++)
                for (size_t h = 0; h < kv->shape.n_kv_heads && dci_kv_groups(kv->host, l); h++) {
                        const dci_kv_tree *tree = sequence->layers[l].heads[h].tree;
                        if (tree == NULL)
                                continue;
                        *out_nodes = tree->n_nodes > *out_nodes ? tree->n_nodes : *out_nodes;
                        *out_pages = tree->n_pages > *out_pages ? tree->n_pages : *out_pages;
                }
}

static dci_status send_layer(sender *s, const dci_gpu_kv_row *row, const dci_kv_layer *layer)
{
        dci_gpu_kv *kv = s->kv;
        const size_t n_heads = kv->shape.n_kv_heads, first = kv->layers[layer->number].index * kv->n_lanes;
        uint32_t *versions = versions_of(kv, row, layer->number);
        unsigned char *by;
        for (size_t h = 0; h < n_heads; h++) {
                const dci_kv_tree *tree = layer->heads[h].tree;
                if (tree == NULL || tree->n == 0 || tree->version == versions[h])
                        continue;
                DCI_TRY(send_nodes(s, layer->number, h, tree, versions[h]));
                DCI_TRY(send_pages(s, layer->number, h, tree, versions[h]));
        }
        DCI_TRY(room_for(s, (unsigned char *)(kv->trees->in_tree + 2 * (first + s->row * n_heads)),
                         2 * n_heads * sizeof(int32_t), &by));
        for (size_t h = 0; h < n_heads; h++) {
                const dci_kv_tree *tree = layer->heads[h].tree;
                const bool some = tree != NULL && tree->n > 0;
                ((int32_t *)(void *)by)[2 * h] = some ? (int32_t)tree->n_nodes : 0;
                ((int32_t *)(void *)by)[2 * h + 1] = some ? (int32_t)tree->n_pages : 0;
                versions[h] = some ? tree->version : 0;
        }
        return DCI_OK;
}

/* Uploads what has changed since the last upload. */
static dci_status upload(dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        const dci_kv_sequence *sequence = dci_gpu_kv_host_sequence(kv, row);
        const size_t at = dci_gpu_kv_row_number(kv, row);
        size_t nodes, pages;
        if (!changed(kv, sequence, row))
                return DCI_OK;
        count(kv, sequence, &nodes, &pages);
        if (nodes > kv->planner.max_groups || pages > kv->planner.tree.max_pages)
                return dci_fail(
                        DCI_ERR_LIMIT,
                        "sequence %lld has a tree of %zu nodes and %zu pages, but there is room for %zu and %zu",
                        (long long)row->id, nodes, pages, kv->planner.max_groups, kv->planner.tree.max_pages);
        DCI_TRY(dci_gpu_kv_wait_rows(kv));
        const size_t node_chunks = dci_gpu_kv_count_chunks(nodes),
                     row_chunks = dci_gpu_kv_count_chunks(pages * kv->shape.page_tokens);
        DCI_TRY(dci_gpu_kv_store_ready(kv, kv->ids, dci_gpu_kv_store_missing(kv->ids, at, 0, row_chunks)));
        DCI_TRY(make_exclusive(kv, kv->summaries, at, node_chunks));
        DCI_TRY(make_exclusive(kv, kv->ids, at, row_chunks));
        sender s = {kv, at, 0, 0};
        for (size_t l = 0; l < kv->shape.n_layers; l++)
                if (dci_kv_groups(kv->host, l)) {
                        DCI_GPU_KV_TRY(kv, send_layer(&s, row, &sequence->layers[l]));
                        grouped_of(kv, row)[kv->layers[l].index] = sequence->layers[l].n_grouped;
                }
        DCI_GPU_KV_TRY(kv, sent(&s));
        kv->trees->stale[at] = false;
        return DCI_OK;
}

/* Workers build the prompt. */
static bool is_waited_for(const dci_gpu_kv *kv, const dci_kv_sequence *sequence)
{
        bool some = false;
        for (size_t l = 0; l < kv->shape.n_layers && !some; l++)
                some = atomic_load(&sequence->layers[l].prompt) == DCI_KV_PROMPT_WAITING;
        return some;
}

static dci_status build_next(dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        const dci_kv_sequence *sequence = dci_gpu_kv_host_sequence(kv, row);
        if (is_waited_for(kv, sequence))
                DCI_TRY(dci_kv_wait(kv->host, row->id));
        if (dci_kv_builds_next(kv->host, sequence)) {
                DCI_TRY(dci_gpu_kv_wait_good(kv, row));
                DCI_TRY(dci_kv_build_next(kv->host, row->id, false));
        }
        return upload(kv, row);
}

dci_status dci_gpu_kv_trees_reserve(dci_gpu_kv *kv)
{
        for (size_t i = 0; i < kv->step.n; i++)
                DCI_TRY(build_next(kv, &kv->rows[kv->step.rows[i]]));
        return DCI_OK;
}

dci_status dci_gpu_kv_trees_upload(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        DCI_TRY(dci_gpu_kv_wait_good(kv, row));
        DCI_TRY(dci_kv_maintain(kv->host, 1, &row->id));
        return upload(kv, row);
}

dci_status dci_gpu_kv_trees_restore(dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        DCI_TRY(dci_kv_wait(kv->host, row->id));
        return upload(kv, row);
}

/* The fork's trees are the other row's, or cut copies of them, which are newer. */
dci_status dci_gpu_kv_trees_fork(dci_gpu_kv *kv, const dci_gpu_kv_row *from, dci_gpu_kv_row *to)
{
        const size_t here = dci_gpu_kv_row_number(kv, from), there = dci_gpu_kv_row_number(kv, to),
                     n_heads = kv->shape.n_kv_heads, versions = kv->n_sparse * n_heads;
        dci_gpu_kv_trees *t = kv->trees;
        memcpy(t->versions + there * versions, t->versions + here * versions, versions * sizeof *t->versions);
        memcpy(grouped_of(kv, to), grouped_of(kv, from), kv->n_sparse * sizeof *t->grouped);
        t->stale[there] = true;
        for (size_t l = 0; l < kv->n_sparse; l++)
                DCI_GPU_KV_TRY(kv,
                               kv->ops->copy(kv->gpu, kv->side, t->in_tree + 2 * (l * kv->n_lanes + there * n_heads),
                                             t->in_tree + 2 * (l * kv->n_lanes + here * n_heads),
                                             2 * n_heads * sizeof *t->in_tree));
        dci_gpu_kv_store_share(kv->summaries, here, there, kv->summaries->n_chunks[here]);
        dci_gpu_kv_store_share(kv->ids, here, there, kv->ids->n_chunks[here]);
        DCI_GPU_KV_TRY(kv, dci_gpu_kv_store_upload(kv, kv->summaries, kv->side, there, 0));
        return dci_gpu_kv_check_device(kv, dci_gpu_kv_store_upload(kv, kv->ids, kv->side, there, 0));
}

void dci_gpu_kv_trees_truncate(dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        const dci_kv_sequence *sequence = dci_gpu_kv_host_sequence(kv, row);
        kv->trees->stale[dci_gpu_kv_row_number(kv, row)] = true;
        for (size_t l = 0; l < kv->shape.n_layers; l++)
                for (size_t h = 0; h < kv->shape.n_kv_heads && dci_kv_groups(kv->host, l); h++) {
                        const dci_kv_tree *tree = sequence->layers[l].heads[h].tree;
                        if (tree == NULL || tree->n == 0) /* the next one counts its versions anew */
                                versions_of(kv, row, l)[h] = 0;
                }
}
