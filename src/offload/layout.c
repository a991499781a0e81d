/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Memory of a KV cache on a device: what is taken at once, and the pool's pieces as they come. A piece is locked and mapped; where layers
 * attend to everything the device gets a piece of its own beside it, with the same blocks:
 *
 *      host piece:   [layer][block]          device piece: [dense layer][block]
 */
#include "core/internal.h"

#include <string.h>

#include "gpu/args/frames.h"
#include "offload/offload_internal.h"

#define PART ((size_t)256) /* what parts of an allocation are aligned to */
/* Of each buffer through which a prompt's rows go to the host, unless a quarter of the longest sequence's rows of a layer is less. The stream that
 * computes waits where a layer's rows are more than all buffers and copies have not caught up. They are many, since a wait is for a whole one. */
#define STAGING_BYTES ((size_t)16 << 20)
#define BOUNCE_BYTES ((size_t)65536)

/* --- arenas: one allocation for many arrays ---------------------------------------------------------------------------------- */

/* Measures while base is NULL. */
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

/* Layers, rows, heads and so on are each within their limits, but not all of them together. */
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
        return times(kv->n_lists, kv->stride < kv->n_frames ? kv->stride : kv->n_frames, 1);
}

static void place_plan(dci_gpu_kv *kv, arena *a, dci_gpu_kv_layer *layer)
{
        const size_t n = kv->config.max_sequences, of_queries = n * kv->shape.n_query_heads;
        dci_kv_plan *plan = &layer->plan;
        plan->struct_size = sizeof *plan;
        plan->max_sequences = n;
        plan->n_lists = kv->shape.n_kv_heads;
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

/* Pages that come and leave in a step: each place has one of either at most. */
static void place_changes(dci_gpu_kv *kv, arena *a)
{
        for (size_t i = 0; i < DCI_GPU_KV_RECORDS; i++)
                kv->resident.changes[i] = part(a, times(kv->resident.n_places, 4, 1), sizeof(int32_t));
}

static size_t max_blocks(const dci_gpu_kv *kv)
{
        return times(kv->piece_capacity, kv->host->pool.piece_blocks, 1);
}

static void place_pinned(dci_gpu_kv *kv, arena *a)
{
        const size_t n = kv->config.max_sequences;
        for (size_t i = 0; i < DCI_GPU_KV_RECORDS; i++)
                kv->records[i] = part(a, dci_gpu_kv_record_ints(kv, n), sizeof(int32_t));
        kv->bad = part(a, n, sizeof(int32_t));
        kv->tables = part(a, times(n, kv->max_blocks, 1), sizeof(int32_t));
        kv->pieces = part(a, kv->piece_capacity, sizeof(void *));
        kv->dense_pieces = part(a, kv->n_dense > 0 ? kv->piece_capacity : 0, sizeof(void *));
        kv->bounce = part(a, BOUNCE_BYTES, 1);
        if (kv->n_sparse == 0)
                return;
        if (kv->planner.on) {
                dci_gpu_kv_planner *p = &kv->planner;
                store_pinned(kv, a, &p->summaries);
                store_pinned(kv, a, &p->ids);
                p->upload = part(a, p->upload_bytes, 1);
                p->schedule.states = part(a, p->schedule.on ? p->schedule.states_bytes : 0, 1);
                p->schedule.turned = part(a, dci_gpu_kv_reports_boundaries(kv) ? times(kv->n_sparse, n, 1) : 0,
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
        kv->host_items = part(a, times(kv->n_lists, kv->stride, 1), sizeof(dci_gpu_item));
        kv->host_n_items = part(a, kv->n_lists, sizeof(int32_t));
        if (kv->config.gather == DCI_GPU_GATHER_STAGED) {
                kv->staged_items = part(a, times(kv->n_lists, kv->stride, 1), sizeof(dci_gpu_item));
                kv->staged = part(a, times(max_items(kv), (size_t)1 << kv->unit_shift, 2), kv->row_bytes);
                /* They are numbered as positions. */
                a->too_large = a->too_large || times(max_items(kv), (size_t)1 << kv->unit_shift, 1) > INT32_MAX;
        }
}

/* Tags, stamps and counters lie where lists are resolved. */
static void place_residency(dci_gpu_kv *kv, arena *a)
{
        const size_t lanes = times(kv->n_sparse, kv->n_lists, 1);
        kv->tags = part(a, times(lanes, kv->n_frames, 1), sizeof(int32_t));
        kv->stamps = part(a, times(lanes, kv->n_frames, 1), sizeof(uint32_t));
        kv->counters = part(a, times(lanes, 3, 1), sizeof(uint64_t));
}

static void place_tables(dci_gpu_kv *kv, arena *a)
{
        const size_t n = kv->config.max_sequences;
        kv->device_record = part(a, dci_gpu_kv_record_ints(kv, n), sizeof(int32_t));
        kv->device_tables = part(a, times(n, kv->max_blocks, 1), sizeof(int32_t));
        kv->device_pieces = part(a, kv->piece_capacity, sizeof(void *));
        kv->device_dense = part(a, kv->n_dense > 0 ? kv->piece_capacity : 0, sizeof(void *));
        if (!kv->resolves_on_host)
                place_residency(kv, a);
        if (kv->resident.n_places > 0) {
                kv->resident.device_places = part(a, max_blocks(kv), sizeof(int32_t));
                kv->resident.taken = part(a, times(kv->n_sparse, kv->n_lists, 1), sizeof(uint64_t));
        }
        if (kv->planner.on) {
                dci_gpu_kv_planner *p = &kv->planner;
                const size_t lists = times(kv->n_sparse, kv->n_lists, 1);
                store_tables(kv, a, &p->summaries);
                store_tables(kv, a, &p->ids);
                p->n_listed = part(a, p->listed ? lists : 0, sizeof(int32_t));
                p->signs = part(a, dci_rotation_bytes(kv->dim), 1);
                p->centres =
                        part(a, p->kind == DCI_GPU_CODES || p->kind == DCI_GPU_LEARNED ? times(lists, kv->dim, 1) : 0,
                             sizeof(float));
                p->lasts = part(a, lists, sizeof(float));
                p->schedule.memory = part(a, times(n, p->schedule.row_bytes, 1), 1);
                p->frames = part(a, p->kind == DCI_GPU_LEARNED ? lists : 0, DCI_GPU_TRANSFORM_BYTES(kv->dim));
                p->coding = part(a, kv->host->fits_only ? p->upload_bytes : 0, 1);
                if (kv->shape.tail == DCI_KV_TAIL_LOWBIT) {
                        p->value_signs = part(a, dci_rotation_bytes(kv->dim), 1);
                        p->value_centres = part(a, times(lists, kv->dim, 1), sizeof(float));
                }
        }
        if (kv->resolves_on_host && kv->config.gather == DCI_GPU_GATHER_STAGED && kv->n_sparse > 0) {
                kv->staged_piece = part(a, 1, sizeof(void *));
                kv->staged_table = part(a, max_items(kv), sizeof(int32_t));
        }
}

/* Parts that a head's tokens are cut into: the most that any batch needs. */
static size_t partial_bytes(const dci_gpu_kv *kv)
{
        size_t most = 0;
        for (size_t n = 1; n <= kv->config.max_sequences; n++) {
                const int32_t splits = dci_gpu_splits(kv->gpu, n, kv->shape.n_kv_heads, kv->config.max_tokens);
                const size_t n_bytes = dci_gpu_partial_bytes(n * kv->shape.n_kv_heads, splits, kv->dim);
                most = n_bytes > most ? n_bytes : most;
        }
        return most;
}

/* Scores of the sequences that are chosen for at once; the lists of all. A prompt's sums for its centre lie where scores do. */
static void place_lists(dci_gpu_kv *kv, arena *a)
{
        dci_gpu_kv_planner *p = &kv->planner;
        const size_t n_heads = kv->shape.n_kv_heads, lists = times(p->at_once, n_heads, 1);
        const size_t sums = times(n_heads, kv->config.max_tokens / 64 + 1, 2 * kv->dim),
                     scores = times(lists, p->max_groups, kv->group);
        p->scores = part(a, scores > sums ? scores : sums, sizeof(float));
        p->parts = part(a, times(lists, DCI_GPU_MAX_PARTS + 1, 2 * kv->group), sizeof(float));
        p->found = part(a, times(lists, DCI_GPU_FOUND, 1), sizeof(uint64_t));
        p->n_found = part(a, times(lists, 2, 1), sizeof(int32_t));
        p->positions = part(a, times(kv->n_lists, kv->stride, 1), sizeof(int32_t));
        p->counts = part(a, kv->n_lists, sizeof(int32_t));
        p->schedule.due = part(a, p->schedule.on ? kv->n_lists : 0, sizeof(int32_t));
        p->header = part(a, kv->config.max_sequences, 3 * sizeof(int32_t));
        if (kv->shape.tail == DCI_KV_TAIL_DROP)
                return;
        const size_t of_queries = kv->config.max_sequences * kv->shape.n_query_heads;
        p->tail_partial = part(a, dci_gpu_kv_tail_floats(kv), sizeof(float));
        p->tail_arrived = part(a, kv->n_lists, sizeof(int32_t));
        p->tail_out = part(a, times(of_queries, kv->dim, 1), sizeof(float));
        p->tail_lse = part(a, of_queries, sizeof(float));
}

static void place_buffers(dci_gpu_kv *kv, arena *a)
{
        const size_t block = kv->host->pool.block_bytes, most = STAGING_BYTES / block, some = (kv->max_blocks + 3) / 4;
        kv->staging_blocks = most == 0 ? 1 : most < some ? most : some;
        for (size_t i = 0; i < DCI_GPU_KV_STAGING; i++)
                kv->staging[i] = part(a, kv->staging_blocks, block);
        kv->partial = part(a, partial_bytes(kv), 1);
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
                kv->staged_device = part(a, times(max_items(kv), (size_t)1 << kv->unit_shift, 2), kv->row_bytes);
}

static void place_scratch(dci_gpu_kv *kv, arena *a)
{
        const size_t n = kv->config.max_sequences;
        int32_t *slots = part(a, kv->n_sparse > 0 ? times(kv->n_lists, kv->stride, 1) : 0, sizeof(int32_t));
        for (size_t l = 0; l < kv->shape.n_layers; l++)
                kv->layers[l].plan.slots = slots;
        kv->names = part(a, n, sizeof *kv->names);
        kv->step.ids = part(a, n, sizeof *kv->step.ids);
        kv->step.wanted = part(a, n, sizeof *kv->step.wanted);
        kv->step.at = part(a, n, sizeof *kv->step.at);
        if (kv->resident.n_places > 0) {
                kv->resident.places = part(a, max_blocks(kv), sizeof(int32_t));
                kv->resident.blocks = part(a, kv->resident.n_places, sizeof(int32_t));
                kv->resident.free_list = part(a, kv->resident.n_places, sizeof(int32_t));
        }
        if (kv->planner.on) {
                store_scratch(kv, a, &kv->planner.summaries);
                store_scratch(kv, a, &kv->planner.ids);
                kv->planner.lists =
                        part(a, kv->planner.listed ? times(n, kv->n_sparse, 1) : 0, sizeof *kv->planner.lists);
        }
        if (!kv->resolves_on_host)
                return;
        place_residency(kv, a);
        if (kv->config.gather == DCI_GPU_GATHER_BATCHED) {
                kv->max_copies = times(max_items(kv), 2, 1);
                kv->copy_to = part(a, kv->max_copies, sizeof(void *));
                kv->copy_from = part(a, kv->max_copies, sizeof(void *));
                kv->copy_bytes = part(a, kv->max_copies, sizeof(size_t));
        }
}

static size_t lanes_bytes(const dci_gpu_kv *kv)
{
        return times(times(kv->n_sparse, kv->n_lists, kv->n_slots), 2, kv->row_bytes);
}

/* --- taking all that ------------------------------------------------------------------------------------------------------------ */

static dci_status take_device(dci_gpu_kv *kv, size_t n_bytes, unsigned char **out, size_t *out_bytes)
{
        void *memory = NULL;
        if (n_bytes == 0)
                return DCI_OK;
        const dci_status status = kv->ops->alloc(kv->gpu, n_bytes, &memory);
        if (status != DCI_OK)
                return status;
        *out = memory;
        *out_bytes = n_bytes;
        return DCI_OK;
}

dci_status dci_gpu_kv_check_device_bytes(const dci_gpu_kv *kv, size_t more)
{
        const size_t most = kv->config.max_device_bytes, there = kv->lane_bytes + kv->table_bytes + kv->buffer_bytes +
                                                                 kv->dense_bytes + kv->planner.bytes +
                                                                 kv->planner.clusters.work_bytes + kv->resident.bytes;
        if (most > 0 && (there > most || more > most - there))
                return dci_fail(DCI_ERR_FULL,
                                "%zu bytes on the device are wanted, but %zu of max_device_bytes %zu are in use", more,
                                there, most);
        return DCI_OK;
}

dci_status dci_gpu_kv_pin(dci_gpu_kv *kv, size_t n_bytes, unsigned char **out, unsigned char **out_device)
{
        void *address = NULL;
        unsigned char *memory = dci_alloc_pages(kv->gpu->context, n_bytes);
        if (memory == NULL)
                return DCI_ERR_MEMORY;
        const dci_status status = kv->ops->pin(kv->gpu, memory, n_bytes, &address);
        if (status != DCI_OK) {
                dci_free(kv->gpu->context, memory, n_bytes, 1);
                return status;
        }
        kv->pinned_bytes += n_bytes;
        *out = memory;
        if (out_device != NULL)
                *out_device = address;
        return DCI_OK;
}

void dci_gpu_kv_unpin(dci_gpu_kv *kv, unsigned char *memory, size_t n_bytes)
{
        if (memory == NULL)
                return;
        kv->ops->unpin(kv->gpu, memory);
        dci_free(kv->gpu->context, memory, n_bytes, 1);
        kv->pinned_bytes -= n_bytes;
}

/* Blocks that all sequences have together: one more each while a block that was shared is copied. */
static void size_pieces(dci_gpu_kv *kv)
{
        const dci_kv_pool *pool = &kv->host->pool;
        size_t n = times(kv->config.max_sequences, kv->max_blocks + 1, 1);
        n = n < pool->max_blocks ? n : pool->max_blocks;
        kv->piece_capacity = (n + pool->piece_blocks - 1) / pool->piece_blocks + 1;
        kv->dense_piece_bytes = kv->n_dense * pool->piece_blocks * pool->block_bytes;
        if (kv->n_sparse > 0) {
                const size_t places = kv->config.device_resident_bytes / (kv->n_sparse * pool->block_bytes);
                kv->resident.n_places = places < n ? places : n;
        }
}

/* The first place is taken first. */
static dci_status clear_places(dci_gpu_kv *kv)
{
        dci_gpu_kv_resident *r = &kv->resident;
        if (r->n_places == 0)
                return DCI_OK;
        memset(r->places, 0xff, max_blocks(kv) * sizeof *r->places);
        memset(r->blocks, 0xff, r->n_places * sizeof *r->blocks);
        for (r->n_free = 0; r->n_free < r->n_places; r->n_free++)
                r->free_list[r->n_free] = (int32_t)(r->n_places - 1 - r->n_free);
        const dci_status status =
                kv->ops->fill(kv->gpu, kv->side, r->device_places, 0xff, max_blocks(kv) * sizeof *r->device_places);
        return status == DCI_OK
                       ? kv->ops->fill(kv->gpu, kv->side, r->taken, 0, kv->n_sparse * kv->n_lists * sizeof *r->taken)
                       : status;
}

/* What is read before it is written. */
static dci_status clear(dci_gpu_kv *kv)
{
        const dci_gpu_ops *ops = kv->ops;
        const size_t lanes = kv->n_sparse * kv->n_lists;
        memset(kv->bad, 0, kv->config.max_sequences * sizeof *kv->bad);
        if (kv->planner.on) {
                memset(kv->planner.summaries.n_chunks, 0, kv->config.max_sequences * sizeof(size_t));
                memset(kv->planner.ids.n_chunks, 0, kv->config.max_sequences * sizeof(size_t));
        }
        dci_status status = ops->fill(kv->gpu, kv->side, kv->arrived, 0, kv->n_lists * sizeof *kv->arrived);
        if (status == DCI_OK)
                status = clear_places(kv);
        if (kv->resolves_on_host) {
                memset(kv->tags, 0xff, lanes * kv->n_frames * sizeof *kv->tags);
                memset(kv->stamps, 0, lanes * kv->n_frames * sizeof *kv->stamps);
                memset(kv->counters, 0, lanes * 3 * sizeof *kv->counters);
        } else {
                if (status == DCI_OK && lanes * kv->n_frames > 0)
                        status = ops->fill(kv->gpu, kv->side, kv->tags, 0xff, lanes * kv->n_frames * sizeof *kv->tags);
                if (status == DCI_OK && lanes * kv->n_frames > 0)
                        status = ops->fill(kv->gpu, kv->side, kv->stamps, 0, lanes * kv->n_frames * sizeof *kv->stamps);
                if (status == DCI_OK && lanes > 0)
                        status = ops->fill(kv->gpu, kv->side, kv->counters, 0, lanes * 3 * sizeof *kv->counters);
        }
        if (status == DCI_OK && kv->staged_piece != NULL) {
                unsigned char **pinned = (unsigned char **)(void *)kv->bounce;
                *pinned = kv->staged_device;
                status = ops->copy(kv->gpu, kv->side, kv->staged_piece, pinned, sizeof *pinned);
        }
        if (status == DCI_OK)
                status = ops->stream_wait(kv->gpu, kv->side);
        /* Numbers 0, 1, .. by way of locked memory. */
        const size_t at_once = BOUNCE_BYTES / sizeof(int32_t), n = kv->staged_table != NULL ? max_items(kv) : 0;
        for (size_t first = 0; first < n && status == DCI_OK; first += at_once) {
                const size_t here = n - first < at_once ? n - first : at_once;
                int32_t *numbers = (int32_t *)kv->bounce;
                for (size_t i = 0; i < here; i++)
                        numbers[i] = (int32_t)(first + i);
                status = ops->copy(kv->gpu, kv->side, kv->staged_table + first, numbers, here * sizeof *numbers);
                if (status == DCI_OK)
                        status = ops->stream_wait(kv->gpu, kv->side);
        }
        return status;
}

typedef void (*placing)(dci_gpu_kv *kv, arena *a);

static size_t measured(dci_gpu_kv *kv, placing place, bool *too_large)
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
        const size_t pinned = measured(kv, place_pinned, &too_large), tables = measured(kv, place_tables, &too_large),
                     buffers = measured(kv, place_buffers, &too_large),
                     scratch = measured(kv, place_scratch, &too_large), lanes = lanes_bytes(kv),
                     pages = kv->resident.n_places * kv->n_sparse * kv->host->pool.block_bytes;
        if (too_large || lanes > (size_t)1 << 48)
                return dci_fail(DCI_ERR_LIMIT,
                                "%zu sequences of %zu tokens, %zu slots per lane and %zu layers are too many",
                                kv->config.max_sequences, kv->config.max_tokens, kv->n_slots, kv->shape.n_layers);
        dci_status status = dci_gpu_kv_check_device_bytes(kv, lanes + tables + buffers + pages);
        if (status == DCI_OK) {
                kv->scratch = dci_alloc(kv->gpu->context, scratch, 1);
                status = kv->scratch == NULL ? DCI_ERR_MEMORY : DCI_OK;
                kv->scratch_bytes = scratch;
        }
        if (status == DCI_OK)
                status = dci_gpu_kv_pin(kv, pinned, &kv->pinned, &kv->pinned_device);
        if (status == DCI_OK)
                status = take_device(kv, lanes, &kv->lanes, &kv->lane_bytes);
        if (status == DCI_OK)
                status = take_device(kv, tables, &kv->table_memory, &kv->table_bytes);
        if (status == DCI_OK)
                status = take_device(kv, buffers, &kv->buffer_memory, &kv->buffer_bytes);
        if (status == DCI_OK)
                status = take_device(kv, pages, &kv->resident.memory, &kv->resident.bytes);
        if (status != DCI_OK)
                return status;
        place_pinned(kv, &(arena){.base = kv->pinned});
        place_tables(kv, &(arena){.base = kv->table_memory});
        place_buffers(kv, &(arena){.base = kv->buffer_memory});
        place_scratch(kv, &(arena){.base = kv->scratch});
        const dci_status cleared = clear(kv);
        return cleared == DCI_OK ? dci_gpu_kv_planner_begin(kv) : cleared;
}

void dci_gpu_kv_free_all(dci_gpu_kv *kv)
{
        dci_gpu_kv_planner_destroy(kv);
        if (kv->resident.memory != NULL)
                kv->ops->free(kv->gpu, kv->resident.memory, kv->resident.bytes);
        if (kv->buffer_memory != NULL)
                kv->ops->free(kv->gpu, kv->buffer_memory, kv->buffer_bytes);
        if (kv->table_memory != NULL)
                kv->ops->free(kv->gpu, kv->table_memory, kv->table_bytes);
        if (kv->lanes != NULL)
                kv->ops->free(kv->gpu, kv->lanes, kv->lane_bytes);
        if (kv->pinned != NULL)
                dci_gpu_kv_unpin(kv, kv->pinned, kv->pinned_bytes);
        dci_free(kv->gpu->context, kv->scratch, kv->scratch_bytes, 1);
}
