/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Steps of a KV cache on a device: reserve, append, end, abort. A step's numbers (which rows, from which token on, how
 * many) are uploaded once, in one record. What can be refused is refused before that; later calls fail only with the
 * device. */
#include "core/internal.h"

#include <string.h>

#include "offload/boundaries.h"
#include "offload/clusters.h"
#include "offload/copies.h"
#include "offload/orders.h"
#include "offload/pool.h"
#include "offload/prompt.h"
#include "offload/resident.h"
#include "offload/schedule.h"
#include "offload/sequence.h"
#include "offload/summaries.h"
#include "offload/tree.h"
#include "offload/votes.h"

/* --- reserve ------------------------------------------------------------------------------------------------------ */

static dci_status check_reserve(dci_gpu_kv *kv, void *stream, size_t n, const int64_t *sequences,
                                const size_t *n_tokens)
{
        DCI_TRY(kv->ops->stream_check(kv->gpu, stream));
        if (kv->step.open)
                return dci_fail(DCI_ERR_INVALID, "a step is open already: end it, or take it back");
        if (n == 0 || n > kv->config.max_sequences)
                return dci_fail(DCI_ERR_INVALID, "n_sequences is %zu, expected 1 to max_sequences %zu", n,
                                kv->config.max_sequences);
        if (sequences == NULL)
                return dci_fail(DCI_ERR_INVALID, "sequences is NULL");
        size_t all = 0;
        for (size_t i = 0; i < n; i++) {
                const dci_gpu_kv_row *row = dci_gpu_kv_find(kv, sequences[i]);
                const size_t more = n_tokens != NULL ? n_tokens[i] : 1;
                if (row == NULL)
                        return dci_gpu_kv_no_row(kv, sequences[i]);
                if (more > kv->config.max_tokens - row->n)
                        return dci_fail(DCI_ERR_LIMIT,
                                        "sequence %lld has %zu tokens and would get %zu more, but max_tokens is %zu",
                                        (long long)sequences[i], row->n, more, kv->config.max_tokens);
                all += more;
        }
        if (all > INT32_MAX)
                return dci_fail(DCI_ERR_LIMIT, "a step of %zu tokens is too long, the most are %d", all, INT32_MAX);
        return DCI_OK;
}

/* Writes and uploads the record, in memory that the copy of an earlier record no longer reads. */
static dci_status write_record(dci_gpu_kv *kv)
{
        const size_t n = kv->step.n, e = kv->now % DCI_GPU_KV_RECORDS, page = kv->shape.page_tokens;
        int32_t *record = kv->records[e], *at = record + 1, begin = 0;
        DCI_TRY(kv->ops->event_wait(kv->gpu, kv->record_events[e]));
        record[0] = (int32_t)kv->now;
        for (size_t i = 0; i < n; i++) {
                const dci_gpu_kv_row *row = &kv->rows[kv->step.rows[i]];
                const size_t after = row->n + kv->step.wanted[i], first_block = (row->n + page - 1) / page;
                /* Whole blocks of a long piece are packed and copied to the host, if there are at least two. */
                const bool packs = after / page >= first_block + 2;
                at[DCI_GPU_KV_ROWS * n + i] = (int32_t)kv->step.rows[i];
                at[DCI_GPU_KV_FIRST * n + i] = (int32_t)row->n;
                at[DCI_GPU_KV_NEW * n + i] = (int32_t)kv->step.wanted[i];
                at[DCI_GPU_KV_BEGIN * n + i] = begin;
                at[DCI_GPU_KV_AFTER * n + i] = (int32_t)after;
                at[DCI_GPU_KV_FROM * n + i] = (int32_t)(row->step.prompting ? row->step.n_formed : row->n_formed);
                at[DCI_GPU_KV_TO * n + i] = (int32_t)row->step.n_formed;
                at[DCI_GPU_KV_PLACES * n + i] = (int32_t)dci_gpu_kv_copies_count(kv, row);
                at[DCI_GPU_KV_SKIP * n + 2 * i] = packs ? (int32_t)first_block : 0;
                at[DCI_GPU_KV_SKIP * n + 2 * i + 1] = packs ? (int32_t)(after / page) : 0;
                for (size_t l = 0; l < kv->shape.n_layers && dci_gpu_kv_of_host(&kv->planner); l++)
                        if (!kv->layers[l].dense)
                                at[(DCI_GPU_KV_NUMBERS + kv->layers[l].index) * n + i] =
                                        (int32_t)(kv->planner.trees ? dci_gpu_kv_trees_grouped
                                                                    : dci_gpu_kv_clusters_grouped)(kv, row, l);
                if (kv->planner.ordered)
                        dci_gpu_kv_orders_record(kv, row, i, at + DCI_GPU_KV_NUMBERS * n);
                begin += (int32_t)kv->step.wanted[i];
        }
        kv->step.record = record;
        DCI_TRY(dci_gpu_kv_resident_step(kv));
        DCI_TRY(kv->ops->copy(kv->gpu, kv->step.stream, kv->device_record, record,
                              dci_gpu_kv_record_ints(kv, n) * sizeof *record));
        return kv->ops->event_record(kv->gpu, kv->record_events[e], kv->step.stream);
}

/* Uploads the row's new blocks, and its partial block, which is another one if a fork shared it. */
static dci_status update_table(dci_gpu_kv *kv, dci_gpu_kv_row *row, size_t wanted)
{
        int32_t *table = kv->pool->tables + dci_gpu_kv_row_number(kv, row) * kv->max_blocks, block;
        const size_t partial = row->n >> kv->page_shift, whole = dci_gpu_kv_blocks(kv, row->n),
                     after = dci_gpu_kv_blocks(kv, row->n + wanted);
        if (partial < whole && wanted > 0) {
                DCI_TRY(dci_kv_table(kv->host, row->id, partial, 1, &block));
                if (block != table[partial]) {
                        dci_gpu_kv_resident_copied(kv, row, table[partial]);
                        table[partial] = block;
                        DCI_TRY(dci_gpu_kv_upload_table(kv, kv->step.stream, row, partial, 1));
                        DCI_TRY(dci_gpu_kv_dense_fill(kv, kv->step.stream, row, partial, 1));
                }
        }
        if (after > whole)
                DCI_TRY(dci_kv_table(kv->host, row->id, whole, after - whole, table + whole));
        return after > whole ? dci_gpu_kv_upload_table(kv, kv->step.stream, row, whole, after - whole) : DCI_OK;
}

/* Orders the step after all that was queued on other streams, and uploads its tables and record. */
static dci_status begin_step(dci_gpu_kv *kv)
{
        DCI_TRY(dci_gpu_kv_copies_follow(kv));
        DCI_TRY(kv->ops->event_record(kv->gpu, kv->side_event, kv->side));
        DCI_TRY(kv->ops->event_order(kv->gpu, kv->step.stream, kv->side_event));
        DCI_TRY(kv->ops->event_order(kv->gpu, kv->step.stream, kv->step_event));
        DCI_TRY(dci_gpu_kv_upload_pieces(kv, kv->step.stream));
        for (size_t i = 0; i < kv->step.n; i++)
                DCI_TRY(update_table(kv, &kv->rows[kv->step.rows[i]], kv->step.wanted[i]));
        DCI_TRY(write_record(kv));
        /* Otherwise the first append builds. */
        return kv->planner.on && kv->step.n_tokens == 0 ? dci_gpu_kv_build(kv) : DCI_OK;
}

/* Blocks may be in a piece that a trim has taken from the device. */
static dci_status dense_ready(dci_gpu_kv *kv)
{
        dci_status status = DCI_OK;
        for (size_t i = 0; i < kv->step.n && status == DCI_OK && kv->pool->n_dense_gaps > 0; i++) {
                const dci_gpu_kv_row *row = &kv->rows[kv->step.rows[i]];
                status = dci_gpu_kv_dense_ready(kv, row, row->n >> kv->page_shift);
        }
        return status;
}

/* Gets all that the step needs, or none of it: but what has been built and uploaded by then stays. */
static dci_status reserve_memory(dci_gpu_kv *kv, size_t n, const int64_t *sequences, const size_t *n_tokens)
{
        DCI_TRY(dci_gpu_kv_planner_reserve(kv));
        DCI_TRY(dci_gpu_kv_copies_reserve(kv));
        DCI_TRY(dci_gpu_kv_check_host(kv, dci_kv_reserve(kv->host, n, sequences, n_tokens)));
        const dci_status dense = dense_ready(kv);
        if (dense != DCI_OK)
                dci_kv_step_abort(kv->host, n, sequences);
        return dense;
}

/* Later steps, on other streams, and waits find what a refused one has uploaded on its stream. */
static dci_status order_refused(dci_gpu_kv *kv, void *stream)
{
        DCI_TRY(kv->ops->event_order(kv->gpu, stream, kv->step_event));
        return kv->ops->event_record(kv->gpu, kv->step_event, stream);
}

static dci_status reserve(dci_gpu_kv *kv, void *stream, size_t n, const int64_t *sequences, const size_t *n_tokens)
{
        const bool groups = kv->groups && !kv->planner.on;
        DCI_TRY(check_reserve(kv, stream, n, sequences, n_tokens));
        /* The host may build groups here, from rows that must have arrived. */
        if (groups)
                DCI_TRY(dci_gpu_kv_wait_rows(kv));
        for (size_t i = 0; i < n && groups; i++)
                DCI_TRY(dci_gpu_kv_check_good(kv, dci_gpu_kv_find(kv, sequences[i])));
        kv->step.packed = kv->step.built = false;
        kv->step.stream = stream;
        kv->step.n = n;
        kv->step.n_tokens = kv->step.bound = 0;
        for (size_t i = 0; i < n; i++) {
                kv->step.ids[i] = sequences[i];
                kv->step.wanted[i] = n_tokens != NULL ? n_tokens[i] : 1;
                kv->step.rows[i] = dci_gpu_kv_row_number(kv, dci_gpu_kv_find(kv, sequences[i]));
                kv->step.n_tokens += kv->step.wanted[i];
        }
        const dci_status status = reserve_memory(kv, n, sequences, n_tokens);
        if (status != DCI_OK) {
                if (kv->planner.on && !kv->broken)
                        DCI_GPU_KV_TRY(kv, order_refused(kv, stream));
                return status;
        }
        kv->step.open = true;
        kv->now++;
        kv->n_steps++;
        for (size_t i = 0; i < n; i++) {
                kv->rows[kv->step.rows[i]].stepping = true;
                kv->rows[kv->step.rows[i]].stepped = kv->now;
        }
        for (size_t l = 0; l < kv->shape.n_layers; l++) {
                kv->layers[l].appended = kv->layers[l].planned = kv->layers[l].built = false;
                kv->layers[l].prompt_rows.keys = NULL;
        }
        return dci_gpu_kv_check_device(kv, begin_step(kv));
}

dci_status dci_gpu_kv_reserve(dci_gpu_kv *kv, void *stream, size_t n_sequences, const int64_t *sequences,
                              const size_t *n_tokens)
{
        DCI_TRY(dci_gpu_kv_lock(kv));
        return dci_gpu_kv_unlock(kv, reserve(kv, stream, n_sequences, sequences, n_tokens));
}

/* --- append ------------------------------------------------------------------------------------------------------- */

/* Copies packed blocks to the host: those that are adjacent there in one copy. */
static dci_status copy_blocks(dci_gpu_kv *kv, size_t layer, const unsigned char *from, const int32_t *table, size_t n)
{
        const dci_kv_pool *pool = &kv->host->pool;
        for (size_t b = 0, end; b < n; b = end) {
                end = dci_gpu_kv_run_end(table, pool->piece_shift, b, n);
                DCI_TRY(kv->ops->copy(kv->gpu, kv->side, dci_gpu_kv_host_block(kv, layer, table[b]),
                                      from + b * pool->block_bytes, (end - b) * pool->block_bytes));
        }
        return DCI_OK;
}

/* Packs one buffer on the step's stream, after the earlier copies from it, and copies it on the side stream. */
static dci_status pack_some(dci_gpu_kv *kv, size_t layer, dci_gpu_pack_args *args, const int32_t *table)
{
        const dci_gpu_ops *ops = kv->ops;
        const size_t s = kv->next_staging++ % DCI_GPU_KV_STAGING;
        args->out = kv->staging[s];
        DCI_TRY(ops->event_order(kv->gpu, kv->step.stream, kv->staging_events[s]));
        DCI_TRY(ops->pack(kv->gpu, kv->step.stream, args));
        DCI_TRY(ops->event_record(kv->gpu, kv->main_event, kv->step.stream));
        DCI_TRY(ops->event_order(kv->gpu, kv->side, kv->main_event));
        DCI_TRY(copy_blocks(kv, layer, kv->staging[s], table, (size_t)args->n_blocks));
        return ops->event_record(kv->gpu, kv->staging_events[s], kv->side);
}

static dci_status pack(dci_gpu_kv *kv, size_t layer)
{
        const size_t n = kv->step.n, page = kv->shape.page_tokens;
        const dci_kv_rows *rows = &kv->layers[layer].rows;
        const int32_t *at = kv->step.record + 1;
        for (size_t i = 0; i < n; i++) {
                const size_t end = (size_t)at[DCI_GPU_KV_SKIP * n + 2 * i + 1];
                const int32_t *table = kv->pool->tables + kv->step.rows[i] * kv->max_blocks;
                for (size_t b = (size_t)at[DCI_GPU_KV_SKIP * n + 2 * i], here; b < end; b += here) {
                        here = end - b < kv->staging_blocks ? end - b : kv->staging_blocks;
                        dci_gpu_pack_args args = dci_gpu_kv_pack_args(kv, rows);
                        args.n_blocks = (int32_t)here;
                        args.token = at[DCI_GPU_KV_BEGIN * n + i] + (int32_t)(b * page) - at[DCI_GPU_KV_FIRST * n + i];
                        args.page_shift = kv->page_shift;
                        args.block_bytes = kv->host->pool.block_bytes;
                        args.head_bytes = 2 * page * kv->row_bytes;
                        args.value_at = page * kv->row_bytes;
                        DCI_TRY(pack_some(kv, layer, &args, table + b));
                        kv->step.packed = true;
                }
        }
        return DCI_OK;
}

/* Records when the layer's rows are in host memory. Without this event, which single tokens do not record, what copies
 * them back waits for the whole step. */
static dci_status mark_stored(dci_gpu_kv *kv, size_t layer)
{
        dci_gpu_kv_layer *at = &kv->layers[layer];
        if (kv->step.n_tokens <= kv->step.n)
                return DCI_OK;
        at->stored_at[kv->now % 2] = kv->now;
        return kv->ops->event_record(kv->gpu, at->stored[kv->now % 2], kv->step.packed ? kv->side : kv->step.stream);
}

static dci_status store(dci_gpu_kv *kv, size_t layer)
{
        const dci_kv_rows *rows = &kv->layers[layer].rows;
        const dci_gpu_append_args args = {.batch = {.n = (int32_t)kv->step.n,
                                                    .rows = dci_gpu_kv_record(kv, DCI_GPU_KV_ROWS),
                                                    .first = dci_gpu_kv_record(kv, DCI_GPU_KV_FIRST),
                                                    .n_new = dci_gpu_kv_record(kv, DCI_GPU_KV_NEW),
                                                    .begin = dci_gpu_kv_record(kv, DCI_GPU_KV_BEGIN),
                                                    .n_tokens = (int32_t)kv->step.n_tokens},
                                          .keys = rows->keys,
                                          .values = rows->values,
                                          .key_token = rows->key_token_stride * kv->es,
                                          .key_head = rows->key_head_stride * kv->es,
                                          .value_token = rows->value_token_stride * kv->es,
                                          .value_head = rows->value_head_stride * kv->es,
                                          .n_heads = (int32_t)kv->shape.n_kv_heads,
                                          .dtype = (int32_t)kv->shape.dtype,
                                          .lanes = dci_gpu_kv_lanes(kv, layer),
                                          .device = dci_gpu_kv_dense_pool(kv, layer),
                                          .host = dci_gpu_kv_host_pool(kv, layer),
                                          .resident = dci_gpu_kv_resident_pages(kv, layer),
                                          .host_skip = dci_gpu_kv_record(kv, DCI_GPU_KV_SKIP),
                                          .tables = dci_gpu_kv_tables(kv),
                                          .bad = dci_gpu_kv_mapped(kv, kv->bad + layer * kv->config.max_sequences)};
        if (kv->planner.on && layer == kv->planner.first_layer)
                DCI_TRY(dci_gpu_kv_build(kv));
        DCI_TRY(kv->ops->append(kv->gpu, kv->step.stream, &args));
        DCI_TRY(pack(kv, layer));
        DCI_TRY(mark_stored(kv, layer));
        kv->bytes_written += (uint64_t)kv->step.n_tokens * kv->shape.n_kv_heads * 2 * kv->row_bytes;
        return DCI_OK;
}

static dci_status append(dci_gpu_kv *kv, void *stream, size_t layer, const dci_kv_rows *rows)
{
        dci_kv_rows checked;
        DCI_TRY(dci_gpu_kv_check_step(kv, stream, layer));
        if (kv->layers[layer].appended)
                return dci_fail(DCI_ERR_INVALID, "layer %zu has got its rows in this step already", layer);
        DCI_TRY(dci_gpu_kv_check_rows(kv, kv->step.n_tokens, rows, &checked));
        DCI_TRY(dci_kv_append_later(kv->host, layer, kv->step.n, kv->step.ids, kv->step.wanted, rows));
        kv->layers[layer].appended = true;
        kv->layers[layer].rows = checked;
        if (kv->step.n_tokens > 0)
                DCI_GPU_KV_TRY(kv, store(kv, layer));
        dci_gpu_kv_hand_over_ready(kv);
        return DCI_OK;
}

dci_status dci_gpu_kv_append(dci_gpu_kv *kv, void *stream, size_t layer, const dci_kv_rows *rows)
{
        DCI_TRY(dci_gpu_kv_lock(kv));
        return dci_gpu_kv_unlock(kv, append(kv, stream, layer, rows));
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

static void close_step(dci_gpu_kv *kv)
{
        for (size_t i = 0; i < kv->step.n; i++)
                kv->rows[kv->step.rows[i]].stepping = false;
        kv->step.open = false;
        dci_gpu_kv_forget_ends(kv);
}

static dci_status end_step(dci_gpu_kv *kv, void *stream)
{
        DCI_TRY(dci_gpu_kv_check_step(kv, stream, 0));
        DCI_TRY(dci_gpu_kv_hand_over(kv, kv->prompts->n_ends));
        DCI_TRY(dci_kv_step_end(kv->host, kv->step.n, kv->step.ids));
        for (size_t i = 0; i < kv->step.n; i++)
                kv->rows[kv->step.rows[i]].n += kv->step.wanted[i];
        dci_gpu_kv_planner_step_end(kv, false);
        const dci_status joined = dci_gpu_kv_check_device(kv, dci_gpu_kv_join_ahead(kv));
        close_step(kv);
        DCI_TRY(joined);
        return dci_gpu_kv_check_device(kv, kv->ops->event_record(kv->gpu, kv->step_event, stream));
}

dci_status dci_gpu_kv_step_end(dci_gpu_kv *kv, void *stream)
{
        DCI_TRY(dci_gpu_kv_lock(kv));
        return dci_gpu_kv_unlock(kv, end_step(kv, stream));
}

/* What the device has built for the step stays; it is built here if the step has not come to it. */
static dci_status abort_step(dci_gpu_kv *kv)
{
        if (!kv->step.open)
                return dci_fail(DCI_ERR_INVALID, "no step is open");
        DCI_TRY(dci_gpu_kv_check_runs(kv));
        DCI_TRY(dci_gpu_kv_planner_abort(kv));
        DCI_TRY(dci_gpu_kv_drain(kv));
        DCI_TRY(dci_kv_step_abort(kv->host, kv->step.n, kv->step.ids));
        dci_gpu_kv_planner_step_end(kv, true);
        close_step(kv);
        DCI_TRY(dci_gpu_kv_resident_sweep(kv));
        for (size_t i = 0; i < kv->step.n; i++) {
                dci_gpu_kv_row *row = &kv->rows[kv->step.rows[i]];
                dci_gpu_kv_resident_recount(kv, row);
                DCI_GPU_KV_TRY(kv, dci_gpu_kv_votes_forget(kv, row));
                dci_gpu_kv_boundaries_abort(kv, row, kv->step.wanted[i]);
                DCI_TRY(dci_gpu_kv_truncate_row(kv, row, row->n + kv->step.wanted[i], row->n));
                DCI_TRY(dci_gpu_kv_schedule_truncate(kv, row, row->n));
        }
        return dci_gpu_kv_check_device(kv, kv->ops->event_record(kv->gpu, kv->step_event, kv->step.stream));
}

dci_status dci_gpu_kv_step_abort(dci_gpu_kv *kv)
{
        DCI_TRY(dci_gpu_kv_lock(kv));
        return dci_gpu_kv_unlock(kv, abort_step(kv));
}

/* --- between steps ------------------------------------------------------------------------------------------------ */

/* Maintains sequences that the device plans for. */
static dci_status upload_rows(dci_gpu_kv *kv, size_t n_sequences, const int64_t *sequences)
{
        for (size_t r = 0; r < kv->config.max_sequences && sequences == NULL; r++)
                if (kv->rows[r].id >= 0 && !kv->rows[r].stepping && dci_gpu_kv_bad(kv, &kv->rows[r]) == 0)
                        DCI_TRY(dci_gpu_kv_upload(kv, &kv->rows[r]));
        for (size_t i = 0; i < n_sequences && sequences != NULL; i++) {
                dci_gpu_kv_row *row = dci_gpu_kv_find(kv, sequences[i]);
                DCI_TRY(row == NULL ? dci_gpu_kv_no_row(kv, sequences[i]) : dci_gpu_kv_upload(kv, row));
        }
        return DCI_OK;
}

/* Refuses sequences of the open step before anything is done: the host could not undo what it built for them. */
static dci_status check_between(dci_gpu_kv *kv, size_t n_sequences, const int64_t *sequences)
{
        for (size_t i = 0; i < n_sequences && sequences != NULL; i++) {
                const dci_gpu_kv_row *row = dci_gpu_kv_find(kv, sequences[i]);
                if (row == NULL)
                        return dci_gpu_kv_no_row(kv, sequences[i]);
                if (row->stepping)
                        return dci_fail(DCI_ERR_INVALID,
                                        "sequence %lld is in the middle of a step: end it, or take it back",
                                        (long long)sequences[i]);
        }
        return DCI_OK;
}

/* Maintains all sequences outside of the step that have good rows; or those that are named, if all are good. */
static dci_status maintain(dci_gpu_kv *kv, size_t n_sequences, const int64_t *sequences)
{
        size_t n = 0;
        DCI_TRY(check_between(kv, n_sequences, sequences));
        DCI_TRY(dci_gpu_kv_wait_rows(kv));
        if (kv->planner.on)
                return upload_rows(kv, n_sequences, sequences);
        for (size_t r = 0; r < kv->config.max_sequences && sequences == NULL; r++)
                if (kv->rows[r].id >= 0 && !kv->rows[r].stepping && dci_gpu_kv_bad(kv, &kv->rows[r]) == 0)
                        kv->names[n++] = kv->rows[r].id;
        for (size_t i = 0; i < n_sequences && sequences != NULL; i++) {
                const dci_gpu_kv_row *row = dci_gpu_kv_find(kv, sequences[i]);
                DCI_TRY(row == NULL ? dci_gpu_kv_no_row(kv, sequences[i]) : dci_gpu_kv_check_good(kv, row));
        }
        return sequences == NULL ? dci_kv_maintain(kv->host, n, kv->names)
                                 : dci_kv_maintain(kv->host, n_sequences, sequences);
}

dci_status dci_gpu_kv_maintain(dci_gpu_kv *kv, size_t n_sequences, const int64_t *sequences)
{
        DCI_TRY(dci_gpu_kv_lock(kv));
        return dci_gpu_kv_unlock(kv, maintain(kv, n_sequences, sequences));
}

/* Uploads learned codes of prompts that have ended; without memory the next step tries again. */
static dci_status drain_prompts(dci_gpu_kv *kv)
{
        dci_status status = DCI_OK;
        dci_may_fail(true);
        for (size_t r = 0; r < kv->config.max_sequences && kv->planner.kind == DCI_GPU_LEARNED && !kv->broken; r++)
                if (kv->rows[r].id >= 0 && !kv->rows[r].stepping)
                        status = dci_gpu_kv_planner_drain(kv, &kv->rows[r]);
        dci_may_fail(false);
        return kv->broken ? status : DCI_OK;
}

static dci_status wait_all(dci_gpu_kv *kv)
{
        DCI_TRY(dci_gpu_kv_drain(kv));
        DCI_TRY(dci_kv_wait(kv->host, -1));
        return drain_prompts(kv);
}

dci_status dci_gpu_kv_sync(dci_gpu_kv *kv)
{
        DCI_TRY(dci_gpu_kv_lock(kv));
        return dci_gpu_kv_unlock(kv, wait_all(kv));
}
