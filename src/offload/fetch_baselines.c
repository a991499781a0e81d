/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Fetching what a plan lists. */
#include "core/internal.h"

#include <string.h>

#include "offload/copies.h"
#include "offload/fetch_baselines.h"
#include "offload/pool.h"
#include "offload/resident.h"

static dci_gpu_resolve_args resolve_args(const dci_gpu_kv *kv, size_t layer)
{
        const dci_gpu_kv_layer *at = &kv->layers[layer];
        const size_t first = at->index * kv->n_lanes;
        return (dci_gpu_resolve_args){.n_sequences = (int32_t)kv->step.n,
                                      .n_heads = (int32_t)kv->shape.n_kv_heads,
                                      .stride = (int32_t)kv->stride,
                                      .unit_shift = kv->unit_shift,
                                      .n_frames = (int32_t)kv->n_frames,
                                      .first_slot = (int32_t)(kv->n_slots - kv->config.hot_tokens),
                                      .tags = kv->tags + first * kv->n_frames,
                                      .stamps = kv->stamps + first * kv->n_frames,
                                      .counters = kv->counters + first * 3,
                                      .head_lists = (int32_t)kv->head_lists};
}

/* Room for items of a lane. */
static size_t item_stride(const dci_gpu_kv *kv)
{
        return kv->head_lists * kv->stride;
}

static dci_gpu_gather_args gather_args(const dci_gpu_kv *kv, size_t layer)
{
        const size_t most = item_stride(kv) < kv->n_frames ? item_stride(kv) : kv->n_frames;
        return (dci_gpu_gather_args){.n_sequences = (int32_t)kv->step.n,
                                     .n_heads = (int32_t)kv->shape.n_kv_heads,
                                     .unit_shift = kv->unit_shift,
                                     .max_items = (int32_t)most,
                                     .rows = dci_gpu_kv_record(kv, DCI_GPU_KV_ROWS),
                                     .item_stride = item_stride(kv),
                                     .n_items_stride = 1,
                                     .lanes = dci_gpu_kv_lanes(kv, layer)};
}

static dci_status fetch_mapped(dci_gpu_kv *kv, void *stream, size_t layer)
{
        const dci_kv_plan *plan = &kv->layers[layer].plan;
        dci_gpu_resolve_args args = resolve_args(kv, layer);
        args.rows = dci_gpu_kv_record(kv, DCI_GPU_KV_ROWS);
        args.now = (const uint32_t *)(const void *)kv->device_record;
        if (kv->planner.on) {
                args.positions = kv->planner.positions;
                args.counts = kv->planner.counts;
                args.sink_end = kv->planner.header;
                args.recent_begin = kv->planner.header + kv->step.n;
                args.n_tokens = kv->planner.header + 2 * kv->step.n;
        } else {
                args.positions = dci_gpu_kv_mapped(kv, plan->positions);
                args.counts = dci_gpu_kv_mapped(kv, plan->counts);
                args.sink_end = dci_gpu_kv_mapped(kv, plan->sink_end);
                args.recent_begin = dci_gpu_kv_mapped(kv, plan->recent_begin);
                args.n_tokens = dci_gpu_kv_mapped(kv, plan->n_tokens);
        }
        args.out_header = kv->answer;
        args.out_counts = kv->answer + 3 * kv->config.max_sequences;
        args.out_slots = args.out_counts + kv->n_lists;
        args.items = kv->items;
        args.n_items = kv->n_items;
        if (kv->copies->on) {
                args.places = dci_gpu_kv_places(kv, layer);
                args.n_places = dci_gpu_kv_record(kv, DCI_GPU_KV_PLACES);
                args.sink = (int32_t)kv->shape.sink;
        }
        DCI_TRY(kv->ops->resolve(kv->gpu, stream, &args));
        if (kv->n_frames == 0)
                return DCI_OK;
        dci_gpu_gather_args gather = gather_args(kv, layer);
        gather.items = kv->items;
        gather.n_items = kv->n_items;
        gather.pool = kv->copies->on ? dci_gpu_kv_copy_pool(kv, layer) : dci_gpu_kv_host_pool(kv, layer);
        gather.tables = kv->copies->on ? dci_gpu_kv_copy_tables(kv) : dci_gpu_kv_tables(kv);
        gather.resident = dci_gpu_kv_resident_pages(kv, layer);
        return kv->ops->gather(kv->gpu, stream, &gather);
}

/* --- baselines ---------------------------------------------------------------------------------------------------- */

/* Resolves on the host and copies the answer; the items stay on the host. */
static dci_status resolve_on_host(dci_gpu_kv *kv, void *stream, size_t layer)
{
        const dci_gpu_kv_layer *at = &kv->layers[layer];
        const dci_kv_plan *plan = &at->plan;
        const size_t n = kv->step.n, before = 3 * kv->config.max_sequences + kv->n_lists;
        dci_gpu_resolve_args args = resolve_args(kv, layer);
        args.rows = kv->step.record + 1 + DCI_GPU_KV_ROWS * n;
        args.now = &kv->now;
        args.positions = plan->positions;
        args.counts = plan->counts;
        args.sink_end = plan->sink_end;
        args.recent_begin = plan->recent_begin;
        args.n_tokens = plan->n_tokens;
        args.out_header = at->answer;
        args.out_counts = at->answer + 3 * kv->config.max_sequences;
        args.out_slots = at->answer + before;
        args.items = kv->baselines->host_items;
        args.n_items = kv->baselines->host_n_items;
        dci_gpu_ref_resolve(&args);
        return kv->ops->copy(kv->gpu, stream, kv->answer, at->answer,
                             (before + n * kv->row_lists * kv->stride) * sizeof *kv->answer);
}

/* Addresses of an item on the host and on the device. */
typedef struct item_rows {
        const unsigned char *from_keys, *from_values;
        unsigned char *to_keys, *to_values;
} item_rows;

static item_rows locate(const dci_gpu_kv *kv, size_t layer, const dci_gpu_lanes *lanes, size_t lane, dci_gpu_item item)
{
        const size_t n_heads = kv->shape.n_kv_heads, head = lane % n_heads, row = kv->step.rows[lane / n_heads];
        const size_t position = (size_t)item.position, slot = position & (kv->shape.page_tokens - 1);
        const int32_t block = kv->pool->tables[row * kv->max_blocks + (position >> kv->page_shift)];
        const dci_kv_page page = dci_kv_page_at(kv->host, layer, block, head);
        const size_t to = ((row * n_heads + head) * kv->n_slots + (size_t)item.slot) * kv->row_bytes;
        return (item_rows){page.keys + slot * page.key_step, page.values + slot * page.value_step, lanes->keys + to,
                           lanes->values + to};
}

static dci_status fetch_copies(dci_gpu_kv *kv, void *stream, size_t layer)
{
        const dci_gpu_lanes lanes = dci_gpu_kv_lanes(kv, layer);
        const size_t n_lanes = kv->step.n * kv->shape.n_kv_heads, n_bytes = kv->row_bytes << kv->unit_shift;
        const bool batched = kv->config.gather == DCI_GPU_GATHER_BATCHED;
        size_t n = 0;
        for (size_t l = 0; l < n_lanes; l++)
                for (size_t t = 0; t < (size_t)kv->baselines->host_n_items[l]; t++) {
                        const item_rows m =
                                locate(kv, layer, &lanes, l, kv->baselines->host_items[l * item_stride(kv) + t]);
                        if (batched) {
                                kv->baselines->copy_to[n] = m.to_keys;
                                kv->baselines->copy_from[n] = m.from_keys;
                                kv->baselines->copy_bytes[n++] = n_bytes;
                                kv->baselines->copy_to[n] = m.to_values;
                                kv->baselines->copy_from[n] = m.from_values;
                                kv->baselines->copy_bytes[n++] = n_bytes;
                                continue;
                        }
                        DCI_TRY(kv->ops->copy(kv->gpu, stream, m.to_keys, m.from_keys, n_bytes));
                        DCI_TRY(kv->ops->copy(kv->gpu, stream, m.to_values, m.from_values, n_bytes));
                }
        return n == 0 ? DCI_OK
                      : kv->ops->copy_batch(kv->gpu, stream, n, kv->baselines->copy_to, kv->baselines->copy_from,
                                            kv->baselines->copy_bytes);
}

/* Item number i is unit i of the staged rows, which are described as a pool of one piece whose blocks are units. */
static dci_status fetch_staged(dci_gpu_kv *kv, void *stream, size_t layer)
{
        dci_gpu_gather_args gather = gather_args(kv, layer);
        const size_t n_lanes = kv->step.n * kv->shape.n_kv_heads, n_bytes = kv->row_bytes << kv->unit_shift;
        size_t n = 0;
        for (size_t l = 0; l < n_lanes; l++)
                for (size_t t = 0; t < (size_t)kv->baselines->host_n_items[l]; t++, n++) {
                        const dci_gpu_item item = kv->baselines->host_items[l * item_stride(kv) + t];
                        const item_rows m = locate(kv, layer, &gather.lanes, l, item);
                        memcpy(kv->baselines->staged + 2 * n * n_bytes, m.from_keys, n_bytes);
                        memcpy(kv->baselines->staged + (2 * n + 1) * n_bytes, m.from_values, n_bytes);
                        kv->baselines->staged_items[l * item_stride(kv) + t] =
                                (dci_gpu_item){(int32_t)(n << kv->unit_shift), item.slot};
                }
        if (n == 0)
                return DCI_OK;
        gather.items = dci_gpu_kv_mapped(kv, kv->baselines->staged_items);
        gather.n_items = dci_gpu_kv_mapped(kv, kv->baselines->host_n_items);
        gather.pool = (dci_gpu_pool){.pieces = kv->baselines->staged_piece,
                                     .block_bytes = 2 * n_bytes,
                                     .value_at = (uint32_t)n_bytes,
                                     .key_bytes = (uint32_t)kv->row_bytes,
                                     .value_bytes = (uint32_t)kv->row_bytes,
                                     .block_shift = 30,
                                     .page_shift = kv->unit_shift};
        gather.tables = (dci_gpu_tables){kv->baselines->staged_table, 0};
        DCI_TRY(kv->ops->copy(kv->gpu, stream, kv->baselines->staged_device, kv->baselines->staged, 2 * n * n_bytes));
        return kv->ops->gather(kv->gpu, stream, &gather);
}

dci_status dci_gpu_kv_fetch(dci_gpu_kv *kv, void *stream, size_t layer)
{
        if (!kv->resolves_on_host)
                return fetch_mapped(kv, stream, layer);
        /* The device may still read host memory for the previous fetch. */
        DCI_TRY(kv->ops->event_wait(kv->gpu, kv->baselines->fetched));
        DCI_TRY(resolve_on_host(kv, stream, layer));
        if (kv->n_frames > 0)
                DCI_TRY(kv->config.gather == DCI_GPU_GATHER_STAGED ? fetch_staged(kv, stream, layer)
                                                                   : fetch_copies(kv, stream, layer));
        return kv->ops->event_record(kv->gpu, kv->baselines->fetched, stream);
}
