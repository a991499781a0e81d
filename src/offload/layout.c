/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What is allocated once. */
#include "core/internal.h"

#include <string.h>

#include "gpu/args/transforms.h"
#include "offload/boundaries.h"
#include "offload/clusters.h"
#include "offload/copies.h"
#include "offload/fetch_baselines.h"
#include "offload/layout.h"
#include "offload/learned_codes.h"
#include "offload/orders.h"
#include "offload/planner.h"
#include "offload/pool.h"
#include "offload/resident.h"
#include "offload/schedule.h"
#include "offload/tail.h"
#include "offload/tree.h"

#define PART ((size_t)256) /* alignment of the parts of a block */
/* The size of a staging buffer, unless a quarter of the longest sequence's rows of a layer is less. The computing
 * stream waits when a layer's rows exceed all buffers and the copies lag. There are many buffers, since a wait
 * is for a whole one. */
#define STAGING_BYTES ((size_t)16 << 20)
#define BOUNCE_BYTES ((size_t)65536)

/* --- arenas: one allocation for many arrays ----------------------------------------------------------------------- */

/* An arena measures while base is NULL. Unlike core/arena.h it aligns for a device, and notices sizes that overflow. */
typedef struct arena {
        unsigned char *base;
        size_t n_bytes;
        bool too_large;
} arena;

static void *part(arena *a, size_t n, size_t size)
{
        size_t n_bytes, next;
        if (!dci_mul(n, size, &n_bytes) || !dci_add(a->n_bytes, n_bytes, &next) || next > (size_t)1 << 48) {
                a->too_large = true;
                return NULL;
        }
        void *here = a->base == NULL ? NULL : a->base + a->n_bytes;
        a->n_bytes = (next + PART - 1) / PART * PART;
        return here;
}

/* Layers, rows and heads are each within their limits, but their product may not be. */
static size_t times(size_t a, size_t b, size_t c)
{
        size_t n;
        return dci_mul(a, b, &n) && dci_mul(n, c, &n) ? n : SIZE_MAX;
}

static size_t answer_ints(const dci_gpu_kv *kv)
{
        return 3 * kv->config.max_sequences + kv->n_lists + times(kv->n_lists, kv->stride, 1);
}

static size_t max_items(const dci_gpu_kv *kv)
{
        const size_t most = kv->head_lists * kv->stride; /* of a lane */
        return times(kv->n_lanes, most < kv->n_frames ? most : kv->n_frames, 1);
}

static void place_plan(dci_gpu_kv *kv, arena *a, dci_gpu_kv_layer *layer)
{
        const size_t n = kv->config.max_sequences, of_queries = n * kv->shape.n_query_heads;
        dci_kv_plan *plan = &layer->plan;
        plan->struct_size = sizeof *plan;
        plan->max_sequences = n;
        plan->n_lists = kv->row_lists;
        plan->stride = kv->stride;
        plan->positions = part(a, times(kv->n_lists, kv->stride, 1), sizeof(int32_t));
        plan->counts = part(a, kv->n_lists, sizeof(int32_t));
        plan->sink_end = part(a, n, sizeof(int32_t));
        plan->recent_begin = part(a, n, sizeof(int32_t));
        plan->n_tokens = part(a, n, sizeof(int32_t));
        if (kv->shape.tail != DCI_KV_TAIL_DROP) {
                plan->tail_out = part(a, times(of_queries, kv->dim, 1), sizeof(float));
                plan->tail_lse = part(a, of_queries, sizeof(float));
        }
        if (kv->resolves_on_host)
                layer->answer = part(a, answer_ints(kv), sizeof(int32_t));
}

static void store_pinned(const dci_gpu_kv *kv, arena *a, dci_gpu_kv_store *s)
{
        s->pieces = part(a, s->piece_capacity, sizeof(void *));
        s->numbers = part(a, times(kv->config.max_sequences, s->max_chunks, 1), sizeof(int32_t));
}

static void store_tables(const dci_gpu_kv *kv, arena *a, dci_gpu_kv_store *s)
{
        s->device_pieces = part(a, s->piece_capacity, sizeof(void *));
        s->device_numbers = part(a, times(kv->config.max_sequences, s->max_chunks, 1), sizeof(int32_t));
}

static void store_scratch(const dci_gpu_kv *kv, arena *a, dci_gpu_kv_store *s)
{
        s->n_chunks = part(a, kv->config.max_sequences, sizeof *s->n_chunks);
        s->refs = part(a, s->piece_capacity << s->piece_shift, sizeof *s->refs);
        s->free_list = part(a, s->piece_capacity << s->piece_shift, sizeof *s->free_list);
}

/* In a step each slot gets at most one page and loses at most one. */
static void place_changes(dci_gpu_kv *kv, arena *a)
{
        for (size_t i = 0; i < DCI_GPU_KV_RECORDS; i++)
                kv->resident->changes[i] = part(a, times(kv->resident->n_slots, 4, 1), sizeof(int32_t));
}

static size_t max_blocks(const dci_gpu_kv *kv)
{
        return times(kv->pool->piece_capacity, kv->host->pool.piece_blocks, 1);
}

static void place_pinned(dci_gpu_kv *kv, arena *a)
{
        const size_t n = kv->config.max_sequences;
        for (size_t i = 0; i < DCI_GPU_KV_RECORDS; i++)
                kv->records[i] = part(a, dci_gpu_kv_record_ints(kv, n), sizeof(int32_t));
        kv->bad = part(a, times(n, kv->shape.n_layers, 1), sizeof(int32_t));
        kv->pool->tables = part(a, times(n, kv->max_blocks, 1), sizeof(int32_t));
        kv->pool->pieces = part(a, kv->pool->piece_capacity, sizeof(void *));
        kv->pool->dense_pieces = part(a, kv->n_dense > 0 ? kv->pool->piece_capacity : 0, sizeof(void *));
        kv->bounce = part(a, BOUNCE_BYTES, 1);
        if (kv->n_sparse == 0)
                return;
        if (kv->copies->on) {
                dci_gpu_kv_copies *c = kv->copies;
                store_pinned(kv, a, &c->places);
                c->pieces = part(a, c->piece_capacity, sizeof(void *));
                c->tables = part(a, times(n, c->max_blocks, 1), sizeof(int32_t));
                c->changes = part(a, DCI_GPU_KV_CHANGES, 2 * sizeof(int32_t));
                c->upload = part(a, c->upload_bytes, 1);
        }
        if (kv->planner.on) {
                dci_gpu_kv_planner *p = &kv->planner;
                store_pinned(kv, a, kv->summaries);
                store_pinned(kv, a, kv->ids);
                p->upload = part(a, p->upload_bytes, 1);
                kv->trees->patches = part(a, p->trees ? DCI_GPU_KV_PATCHES : 0, sizeof *kv->trees->patches);
                kv->schedule->states = part(a, kv->schedule->on ? kv->schedule->states_bytes : 0, 1);
                kv->orders->ring = part(a, kv->planner.ordered ? times(kv->n_sparse, n, kv->orders->n_slots) : 0,
                                        kv->orders->slot_bytes);
                for (size_t i = 0; i < DCI_GPU_KV_ORDER_STAGES; i++)
                        kv->orders->stages[i] = part(a, kv->orders->stage_bytes, 1);
                kv->boundaries = part(a, dci_gpu_kv_reports_boundaries(kv) ? times(kv->n_sparse, n, 1) : 0,
                                      DCI_GPU_KV_BOUNDARIES);
        }
        kv->queries = part(a, times(n, kv->shape.n_query_heads, kv->dim), kv->query_es);
        place_changes(kv, a);
        kv->refill = part(a, 2 + 2 * (kv->shape.sink + kv->config.ring_tokens), sizeof(int32_t));
        for (size_t l = 0; l < kv->shape.n_layers; l++)
                if (!kv->layers[l].dense)
                        place_plan(kv, a, &kv->layers[l]);
        if (!kv->resolves_on_host)
                return;
        kv->baselines->host_items = part(a, times(kv->n_lists, kv->stride, 1), sizeof(dci_gpu_item));
        kv->baselines->host_n_items = part(a, kv->n_lists, sizeof(int32_t));
        if (kv->config.gather == DCI_GPU_GATHER_STAGED) {
                kv->baselines->staged_items = part(a, times(kv->n_lists, kv->stride, 1), sizeof(dci_gpu_item));
                kv->baselines->staged = part(a, times(max_items(kv), (size_t)1 << kv->unit_shift, 2), kv->row_bytes);
                /* Staged rows are numbered as positions. */
                a->too_large = a->too_large || times(max_items(kv), (size_t)1 << kv->unit_shift, 1) > INT32_MAX;
        }
}

/* Tags, stamps and counters are where lists are resolved. */
static void place_residency(dci_gpu_kv *kv, arena *a)
{
        const size_t lanes = times(kv->n_sparse, kv->n_lanes, 1);
        kv->tags = part(a, times(lanes, kv->n_frames, 1), sizeof(int32_t));
        kv->stamps = part(a, times(lanes, kv->n_frames, 1), sizeof(uint32_t));
        kv->counters = part(a, times(lanes, 3, 1), sizeof(uint64_t));
}

static void place_tables(dci_gpu_kv *kv, arena *a)
{
        const size_t n = kv->config.max_sequences;
        kv->device_record = part(a, dci_gpu_kv_record_ints(kv, n), sizeof(int32_t));
        kv->pool->device_tables = part(a, times(n, kv->max_blocks, 1), sizeof(int32_t));
        kv->pool->device_pieces = part(a, kv->pool->piece_capacity, sizeof(void *));
        kv->pool->device_dense = part(a, kv->n_dense > 0 ? kv->pool->piece_capacity : 0, sizeof(void *));
        if (!kv->resolves_on_host)
                place_residency(kv, a);
        if (kv->resident->n_slots > 0) {
                kv->resident->device_slots = part(a, max_blocks(kv), sizeof(int32_t));
                kv->resident->taken = part(a, times(kv->n_sparse, kv->n_lanes, 1), sizeof(uint64_t));
        }
        if (kv->copies->on) {
                store_tables(kv, a, &kv->copies->places);
                kv->copies->device_pieces = part(a, kv->copies->piece_capacity, sizeof(void *));
                kv->copies->device_tables = part(a, times(n, kv->copies->max_blocks, 1), sizeof(int32_t));
        }
        if (kv->planner.on) {
                dci_gpu_kv_planner *p = &kv->planner;
                const size_t lanes = times(kv->n_sparse, kv->n_lanes, 1);
                store_tables(kv, a, kv->summaries);
                store_tables(kv, a, kv->ids);
                kv->clusters->n_clusters = part(a, p->clustered ? lanes : 0, sizeof(int32_t));
                kv->trees->in_tree = part(a, p->trees ? times(lanes, 2, 1) : 0, sizeof(int32_t));
                p->signs = part(a, dci_rotation_bytes(kv->dim), 1);
                p->centres =
                        part(a, p->kind == DCI_GPU_CODES || p->kind == DCI_GPU_LEARNED ? times(lanes, kv->dim, 1) : 0,
                             sizeof(float));
                const size_t blocks = times(lanes, p->votes.n_blocks, 1); /* 0 without votes */
                p->votes.counts = part(a, times(blocks, DCI_VOTE_CODES, 1), sizeof *p->votes.counts);
                p->votes.counted = part(a, blocks, sizeof *p->votes.counted);
                p->lasts = part(a, times(kv->n_sparse, kv->n_lists, 1), sizeof(float));
                kv->schedule->memory = part(a, times(n, kv->schedule->row_bytes, 1), 1);
                kv->learned->transforms =
                        part(a, p->kind == DCI_GPU_LEARNED ? lanes : 0, DCI_GPU_TRANSFORM_BYTES(kv->dim));
                kv->learned->work = part(a, dci_gpu_kv_encodes(kv) ? p->upload_bytes : 0, 1);
                if (kv->shape.tail == DCI_KV_TAIL_LOWBIT) {
                        p->value_signs = part(a, dci_rotation_bytes(kv->dim), 1);
                        p->value_centres = part(a, times(lanes, kv->dim, 1), sizeof(float));
                }
        }
        if (kv->resolves_on_host && kv->config.gather == DCI_GPU_GATHER_STAGED && kv->n_sparse > 0) {
                kv->baselines->staged_piece = part(a, 1, sizeof(void *));
                kv->baselines->staged_table = part(a, max_items(kv), sizeof(int32_t));
        }
}

/* Bytes of the parts that a list's tokens are split into: the most that any batch needs, in layers with so many lists. */
static size_t partial_bytes(const dci_gpu_kv *kv, size_t row_lists)
{
        size_t most = 0;
        for (size_t n = 1; n <= kv->config.max_sequences; n++) {
                const int32_t splits = dci_gpu_splits(kv->gpu, n, row_lists, kv->config.max_tokens);
                const size_t n_bytes = dci_gpu_partial_bytes(n * row_lists, splits, kv->dim);
                most = n_bytes > most ? n_bytes : most;
        }
        return most;
}

/* What launches of a batch's votes leave for each other. */
static void place_votes(dci_gpu_kv *kv, arena *a, size_t lists)
{
        dci_gpu_kv_votes *v = &kv->planner.votes;
        const size_t ranges = times(lists, v->max_ranges, 1);
        if (!v->on)
                return;
        v->lists = part(a, times(lists, v->stride, 1), sizeof *v->lists);
        v->n_scored = part(a, lists, sizeof *v->n_scored);
        v->queries = part(a, times(lists, kv->group, kv->dim), sizeof *v->queries);
        v->tables = part(a, times(lists, v->n_blocks, DCI_GPU_VOTE_WORDS), sizeof *v->tables);
        v->votes = part(a, times(ranges, DCI_GPU_VOTE_RANGE, 1), sizeof *v->votes);
        v->at_least = part(a, times(ranges, DCI_GPU_VOTE_BINS, 1), sizeof *v->at_least);
        v->having = part(a, times(lists, DCI_GPU_VOTE_BINS, 1), sizeof *v->having);
}

/* Scores of a batch of sequences, and lists of all. The sums for a prompt's centre share the memory of scores. */
static void place_lists(dci_gpu_kv *kv, arena *a)
{
        dci_gpu_kv_planner *p = &kv->planner;
        const size_t lists = times(p->batch, kv->row_lists, 1);
        const size_t sums = times(kv->shape.n_kv_heads, kv->config.max_tokens / 64 + 1, 2 * kv->dim),
                     scores = times(lists, p->max_groups, kv->group);
        p->scores = part(a, scores > sums ? scores : sums, sizeof(float));
        p->parts = part(a, times(lists, DCI_GPU_MAX_PARTS + 1, 2 * kv->group), sizeof(float));
        p->preselect.scores = part(a, times(lists, p->preselect.max_means, kv->group), sizeof(float));
        if (p->preselect.wanted > 0) {
                p->preselect.parts = part(a, times(lists, DCI_GPU_MAX_PARTS + 1, 2 * kv->group), sizeof(float));
                p->preselect.units = part(a, times(lists, p->preselect.stride, 1), sizeof(int32_t));
                p->preselect.n_scored = part(a, lists, sizeof(int32_t));
        }
        if (p->trees) {
                p->tree.opened = part(a, times(lists, p->max_groups / 32, 1), sizeof(uint32_t));
                p->tree.page_scores = part(a, times(lists, p->tree.max_pages, kv->group), sizeof(float));
                p->tree.page_numbers = part(a, times(lists, p->tree.max_pages, 1), sizeof(int32_t));
                p->tree.arrived = part(a, lists, sizeof(int32_t));
        }
        place_votes(kv, a, lists);
        p->found = part(a, times(lists, DCI_GPU_FOUND, 1), sizeof(uint64_t));
        p->n_found = part(a, times(lists, 2, 1), sizeof(int32_t));
        p->positions = part(a, times(kv->n_lists, kv->stride, 1), sizeof(int32_t));
        p->counts = part(a, kv->n_lists, sizeof(int32_t));
        kv->schedule->due = part(a, kv->schedule->on ? kv->n_lists : 0, sizeof(int32_t));
        p->header = part(a, kv->config.max_sequences, 3 * sizeof(int32_t));
        if (kv->shape.tail == DCI_KV_TAIL_DROP)
                return;
        const size_t of_queries = kv->config.max_sequences * kv->shape.n_query_heads;
        kv->tail->partial = part(a, dci_gpu_kv_tail_floats(kv), sizeof(float));
        kv->tail->arrived = part(a, kv->n_lists, sizeof(int32_t));
        if (dci_gpu_kv_tails_clusters(kv))
                kv->tail->members = part(a, times(lists, p->max_groups, 1), sizeof(int32_t));
        kv->tail->out = part(a, times(of_queries, kv->dim, 1), sizeof(float));
        kv->tail->lse = part(a, of_queries, sizeof(float));
}

static void place_buffers(dci_gpu_kv *kv, arena *a)
{
        const size_t block = kv->host->pool.block_bytes, most = STAGING_BYTES / block, some = (kv->max_blocks + 3) / 4;
        kv->staging_blocks = most == 0 ? 1 : most < some ? most : some;
        for (size_t i = 0; i < DCI_GPU_KV_STAGING; i++)
                kv->staging[i] = part(a, kv->staging_blocks, block);
        const size_t of_dense = partial_bytes(kv, kv->shape.n_kv_heads), of_sparse = partial_bytes(kv, kv->row_lists);
        kv->partial = part(a, of_dense > of_sparse ? of_dense : of_sparse, 1);
        kv->arrived = part(a, kv->n_lists, sizeof(int32_t));
        if (kv->n_sparse == 0)
                return;
        kv->answer = part(a, answer_ints(kv), sizeof(int32_t));
        if (!kv->resolves_on_host) {
                kv->items = part(a, times(kv->n_lists, kv->stride, 1), sizeof(dci_gpu_item));
                kv->n_items = part(a, kv->n_lists, sizeof(int32_t));
        }
        if (kv->planner.on)
                place_lists(kv, a);
        if (kv->config.gather == DCI_GPU_GATHER_STAGED)
                kv->baselines->staged_device =
                        part(a, times(max_items(kv), (size_t)1 << kv->unit_shift, 2), kv->row_bytes);
}

static void place_scratch(dci_gpu_kv *kv, arena *a)
{
        const size_t n = kv->config.max_sequences;
        int32_t *slots = part(a, kv->n_sparse > 0 ? times(kv->n_lists, kv->stride, 1) : 0, sizeof(int32_t));
        for (size_t l = 0; l < kv->shape.n_layers; l++)
                kv->layers[l].plan.slots = slots;
        kv->names = part(a, n, sizeof *kv->names);
        kv->pool->used = part(a, kv->n_dense > 0 ? kv->pool->piece_capacity : 0, sizeof *kv->pool->used);
        kv->step.ids = part(a, n, sizeof *kv->step.ids);
        kv->step.wanted = part(a, n, sizeof *kv->step.wanted);
        kv->step.rows = part(a, n, sizeof *kv->step.rows);
        if (kv->resident->n_slots > 0) {
                kv->resident->slots = part(a, max_blocks(kv), sizeof(int32_t));
                kv->resident->blocks = part(a, kv->resident->n_slots, sizeof(int32_t));
                kv->resident->free_list = part(a, kv->resident->n_slots, sizeof(int32_t));
        }
        if (kv->copies->on)
                store_scratch(kv, a, &kv->copies->places);
        if (kv->planner.on) {
                store_scratch(kv, a, kv->summaries);
                store_scratch(kv, a, kv->ids);
                kv->clusters->states =
                        part(a, kv->planner.clustered ? times(n, kv->n_sparse, 1) : 0, sizeof *kv->clusters->states);
                kv->orders->states =
                        part(a, kv->planner.ordered ? times(n, kv->n_sparse, 1) : 0, sizeof *kv->orders->states);
                if (kv->planner.trees) {
                        kv->trees->grouped = part(a, times(n, kv->n_sparse, 1), sizeof *kv->trees->grouped);
                        kv->trees->versions =
                                part(a, times(n, kv->n_sparse, kv->shape.n_kv_heads), sizeof *kv->trees->versions);
                        kv->trees->stale = part(a, n, sizeof *kv->trees->stale);
                }
        }
        if (!kv->resolves_on_host)
                return;
        place_residency(kv, a);
        if (kv->config.gather == DCI_GPU_GATHER_BATCHED) {
                kv->baselines->max_copies = times(max_items(kv), 2, 1);
                kv->baselines->copy_to = part(a, kv->baselines->max_copies, sizeof(void *));
                kv->baselines->copy_from = part(a, kv->baselines->max_copies, sizeof(void *));
                kv->baselines->copy_bytes = part(a, kv->baselines->max_copies, sizeof(size_t));
        }
}

static size_t lanes_bytes(const dci_gpu_kv *kv)
{
        return times(times(kv->n_sparse, kv->n_lanes, kv->n_slots), 2, kv->row_bytes);
}

/* --- allocation --------------------------------------------------------------------------------------------------- */

/* Pieces for the blocks of so many sequences, with one more each while a shared block is copied. */
static size_t pieces_for(const dci_gpu_kv *kv, size_t n_sequences, size_t *out_blocks)
{
        const dci_kv_pool *pool = &kv->host->pool;
        const size_t n = times(n_sequences, kv->max_blocks + 1, 1);
        *out_blocks = n < pool->max_blocks ? n : pool->max_blocks;
        return (*out_blocks + pool->piece_blocks - 1) / pool->piece_blocks + 1;
}

/* Sizes the pool. Graphs have the addresses of its tables, so these have room for sequences that are swapped out. */
static void size_pieces(dci_gpu_kv *kv)
{
        const dci_kv_pool *pool = &kv->host->pool;
        size_t n, all;
        const size_t with_rows = pieces_for(kv, kv->config.max_sequences, &n),
                     most = pieces_for(kv, kv->config.max_sequences + DCI_GPU_KV_SWAPPED, &all);
        kv->pool->piece_capacity =
                most - with_rows < DCI_GPU_KV_MORE_PIECES ? most : with_rows + DCI_GPU_KV_MORE_PIECES;
        kv->pool->dense_piece_bytes = kv->n_dense * pool->piece_blocks * pool->block_bytes;
        if (kv->n_sparse > 0) {
                const size_t fit = kv->config.device_resident_bytes / (kv->n_sparse * pool->block_bytes);
                kv->resident->n_slots = fit < n ? fit : n;
        }
}

/* Makes all slots free, the first one on top. */
static dci_status clear_resident(dci_gpu_kv *kv)
{
        dci_gpu_kv_resident *r = kv->resident;
        if (r->n_slots == 0)
                return DCI_OK;
        memset(r->slots, 0xff, max_blocks(kv) * sizeof *r->slots);
        memset(r->blocks, 0xff, r->n_slots * sizeof *r->blocks);
        for (r->n_free = 0; r->n_free < r->n_slots; r->n_free++)
                r->free_list[r->n_free] = (int32_t)(r->n_slots - 1 - r->n_free);
        DCI_TRY(kv->ops->fill(kv->gpu, kv->side, r->device_slots, 0xff, max_blocks(kv) * sizeof *r->device_slots));
        return kv->ops->fill(kv->gpu, kv->side, r->taken, 0, kv->n_sparse * kv->n_lanes * sizeof *r->taken);
}

/* Initialises what is read before it is written. */
static dci_status clear(dci_gpu_kv *kv)
{
        const dci_gpu_ops *ops = kv->ops;
        const size_t lanes = kv->n_sparse * kv->n_lanes;
        memset(kv->bad, 0, kv->config.max_sequences * kv->shape.n_layers * sizeof *kv->bad);
        if (kv->planner.on) {
                memset(kv->summaries->n_chunks, 0, kv->config.max_sequences * sizeof(size_t));
                memset(kv->ids->n_chunks, 0, kv->config.max_sequences * sizeof(size_t));
        }
        if (kv->copies->on)
                memset(kv->copies->places.n_chunks, 0, kv->config.max_sequences * sizeof(size_t));
        DCI_TRY(ops->fill(kv->gpu, kv->side, kv->arrived, 0, kv->n_lists * sizeof *kv->arrived));
        DCI_TRY(clear_resident(kv));
        if (kv->resolves_on_host) {
                memset(kv->tags, 0xff, lanes * kv->n_frames * sizeof *kv->tags);
                memset(kv->stamps, 0, lanes * kv->n_frames * sizeof *kv->stamps);
                memset(kv->counters, 0, lanes * 3 * sizeof *kv->counters);
        } else {
                if (lanes * kv->n_frames > 0)
                        DCI_TRY(ops->fill(kv->gpu, kv->side, kv->tags, 0xff, lanes * kv->n_frames * sizeof *kv->tags));
                if (lanes * kv->n_frames > 0)
                        DCI_TRY(ops->fill(kv->gpu, kv->side, kv->stamps, 0, lanes * kv->n_frames * sizeof *kv->stamps));
                if (lanes > 0)
                        DCI_TRY(ops->fill(kv->gpu, kv->side, kv->counters, 0, lanes * 3 * sizeof *kv->counters));
        }
        if (kv->baselines->staged_piece != NULL) {
                unsigned char **pinned = (unsigned char **)(void *)kv->bounce;
                *pinned = kv->baselines->staged_device;
                DCI_TRY(ops->copy(kv->gpu, kv->side, kv->baselines->staged_piece, pinned, sizeof *pinned));
        }
        DCI_TRY(ops->stream_wait(kv->gpu, kv->side));
        /* The table 0, 1, .. goes through locked memory. */
        const size_t at_once = BOUNCE_BYTES / sizeof(int32_t),
                     n = kv->baselines->staged_table != NULL ? max_items(kv) : 0;
        for (size_t first = 0; first < n; first += at_once) {
                const size_t here = n - first < at_once ? n - first : at_once;
                int32_t *numbers = (int32_t *)kv->bounce;
                for (size_t i = 0; i < here; i++)
                        numbers[i] = (int32_t)(first + i);
                DCI_TRY(ops->copy(kv->gpu, kv->side, kv->baselines->staged_table + first, numbers,
                                  here * sizeof *numbers));
                DCI_TRY(ops->stream_wait(kv->gpu, kv->side));
        }
        return DCI_OK;
}

typedef void (*place_fn)(dci_gpu_kv *kv, arena *a);

static size_t measured(dci_gpu_kv *kv, place_fn place, bool *too_large)
{
        arena a = {0};
        place(kv, &a);
        *too_large = *too_large || a.too_large;
        return a.n_bytes;
}

dci_status dci_gpu_kv_alloc_all(dci_gpu_kv *kv)
{
        bool too_large = false;
        size_pieces(kv);
        dci_gpu_kv_planner_init(kv);
        dci_gpu_kv_copies_init(kv);
        dci_gpu_kv_resident *r = kv->resident;
        const size_t pinned = measured(kv, place_pinned, &too_large);
        kv->table_bytes = measured(kv, place_tables, &too_large);
        kv->buffer_bytes = measured(kv, place_buffers, &too_large);
        kv->scratch_bytes = measured(kv, place_scratch, &too_large);
        kv->lane_bytes = lanes_bytes(kv);
        r->n_bytes = r->n_slots * kv->n_sparse * kv->host->pool.block_bytes;
        if (too_large || kv->lane_bytes > (size_t)1 << 48)
                return dci_fail(DCI_ERR_LIMIT,
                                "%zu sequences of %zu tokens, %zu slots per lane and %zu layers are too many",
                                kv->config.max_sequences, kv->config.max_tokens, kv->n_slots, kv->shape.n_layers);
        DCI_TRY(dci_gpu_kv_check_device_bytes(kv, kv->lane_bytes + kv->table_bytes + kv->buffer_bytes + r->n_bytes));
        kv->scratch = dci_alloc(kv->gpu->context, kv->scratch_bytes, 1);
        if (kv->scratch == NULL)
                return DCI_ERR_MEMORY;
        DCI_TRY(dci_gpu_kv_pin(kv, pinned, &kv->pinned, &kv->pinned_device));
        DCI_TRY(dci_gpu_kv_alloc_device(kv, kv->lane_bytes, &kv->lanes));
        DCI_TRY(dci_gpu_kv_alloc_device(kv, kv->table_bytes, &kv->table_memory));
        DCI_TRY(dci_gpu_kv_alloc_device(kv, kv->buffer_bytes, &kv->buffer_memory));
        DCI_TRY(dci_gpu_kv_alloc_device(kv, r->n_bytes, &r->memory));
        place_pinned(kv, &(arena){.base = kv->pinned});
        place_tables(kv, &(arena){.base = kv->table_memory});
        place_buffers(kv, &(arena){.base = kv->buffer_memory});
        place_scratch(kv, &(arena){.base = kv->scratch});
        DCI_TRY(clear(kv));
        return dci_gpu_kv_planner_begin(kv);
}

void dci_gpu_kv_free_all(dci_gpu_kv *kv)
{
        dci_gpu_kv_planner_destroy(kv);
        dci_gpu_kv_copies_destroy(kv);
        dci_gpu_kv_free_device(kv, kv->resident->memory, kv->resident->n_bytes);
        dci_gpu_kv_free_device(kv, kv->buffer_memory, kv->buffer_bytes);
        dci_gpu_kv_free_device(kv, kv->table_memory, kv->table_bytes);
        dci_gpu_kv_free_device(kv, kv->lanes, kv->lane_bytes);
        dci_gpu_kv_unpin(kv, kv->pinned, kv->pinned_bytes);
        dci_free(kv->gpu->context, kv->scratch, kv->scratch_bytes, 1);
}
