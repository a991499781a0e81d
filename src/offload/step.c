/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Steps of a KV cache on a device: reserve, append, end, abort. A step's numbers (which rows, from which token on, how many) go to the
 * device once, in one record. What can be refused is refused by then; what is queued later fails only with the device.
 */
#include "core/internal.h"

#include <string.h>

#include "offload/offload_internal.h"

/* --- reserve ------------------------------------------------------------------------------------------------------------------------ */

static dci_status check_reserve(dci_gpu_kv *kv, void *stream, size_t n, const int64_t *sequences,
                                const size_t *n_tokens)
{
        dci_status status = kv->ops->stream_check(kv->gpu, stream);
        if (status != DCI_OK)
                return status;
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
                        return DCI_ERR_NOT_FOUND;
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

/* Host memory that the copy of an earlier record has left. */
static dci_status write_record(dci_gpu_kv *kv)
{
        const size_t n = kv->step.n, e = kv->now % DCI_GPU_KV_RECORDS, page = kv->shape.page_tokens;
        int32_t *record = kv->records[e], *at = record + 1, begin = 0;
        dci_status status = kv->ops->event_wait(kv->gpu, kv->record_events[e]);
        if (status != DCI_OK)
                return status;
        record[0] = (int32_t)kv->now;
        for (size_t i = 0; i < n; i++) {
                const dci_gpu_kv_row *row = &kv->rows[kv->step.at[i]];
                const size_t after = row->n + kv->step.wanted[i], first_block = (row->n + page - 1) / page;
                /* Whole blocks of a long piece go to the host packed; fewer than two are not worth it. */
                const bool packs = after / page >= first_block + 2;
                at[DCI_GPU_KV_ROWS * n + i] = (int32_t)kv->step.at[i];
                at[DCI_GPU_KV_FIRST * n + i] = (int32_t)row->n;
                at[DCI_GPU_KV_NEW * n + i] = (int32_t)kv->step.wanted[i];
                at[DCI_GPU_KV_BEGIN * n + i] = begin;
                at[DCI_GPU_KV_AFTER * n + i] = (int32_t)after;
                at[DCI_GPU_KV_FROM * n + i] = (int32_t)row->from;
                at[DCI_GPU_KV_TO * n + i] = (int32_t)row->forming;
                at[DCI_GPU_KV_SKIP * n + 2 * i] = packs ? (int32_t)first_block : 0;
                at[DCI_GPU_KV_SKIP * n + 2 * i + 1] = packs ? (int32_t)(after / page) : 0;
                for (size_t l = 0; l < kv->shape.n_layers && kv->planner.listed; l++)
                        if (!kv->layers[l].dense)
                                at[(DCI_GPU_KV_NUMBERS + kv->layers[l].index) * n + i] =
                                        (int32_t)dci_gpu_kv_clusters_grouped(kv, row, l);
                begin += (int32_t)kv->step.wanted[i];
        }
        kv->step.record = record;
        status = dci_gpu_kv_resident_step(kv);
        if (status == DCI_OK)
                status = kv->ops->copy(kv->gpu, kv->step.stream, kv->device_record, record,
                                       dci_gpu_kv_record_ints(kv, n) * sizeof *record);
        return status == DCI_OK ? kv->ops->event_record(kv->gpu, kv->record_events[e], kv->step.stream) : status;
}

/* The row's new blocks; and the one that the step goes on in, which is another if a fork had it, too. */
static dci_status update_table(dci_gpu_kv *kv, dci_gpu_kv_row *row, size_t wanted)
{
        int32_t *table = kv->tables + dci_gpu_kv_row_at(kv, row) * kv->max_blocks, block;
        const size_t cut = row->n >> kv->page_shift, whole = dci_gpu_kv_blocks(kv, row->n),
                     after = dci_gpu_kv_blocks(kv, row->n + wanted);
        dci_status status = DCI_OK;
        if (cut < whole && wanted > 0) {
                status = dci_kv_table(kv->host, row->id, cut, 1, &block);
                if (status == DCI_OK && block != table[cut]) {
                        dci_gpu_kv_resident_copied(kv, row, table[cut]);
                        table[cut] = block;
                        status = dci_gpu_kv_upload_table(kv, kv->step.stream, row, cut, 1);
                        if (status == DCI_OK)
                                status = dci_gpu_kv_dense_fill(kv, kv->step.stream, row, cut, 1);
                }
        }
        if (status == DCI_OK && after > whole)
                status = dci_kv_table(kv->host, row->id, whole, after - whole, table + whole);
        return status == DCI_OK && after > whole
                       ? dci_gpu_kv_upload_table(kv, kv->step.stream, row, whole, after - whole)
                       : status;
}

/* The step begins behind all that was queued on other streams. */
static dci_status begin_step(dci_gpu_kv *kv)
{
        dci_status status = kv->ops->event_record(kv->gpu, kv->side_event, kv->side);
        if (status == DCI_OK)
                status = kv->ops->event_order(kv->gpu, kv->step.stream, kv->side_event);
        if (status == DCI_OK)
                status = kv->ops->event_order(kv->gpu, kv->step.stream, kv->step_event);
        if (status == DCI_OK)
                status = dci_gpu_kv_upload_pieces(kv, kv->step.stream);
        for (size_t i = 0; i < kv->step.n && status == DCI_OK; i++)
                status = update_table(kv, &kv->rows[kv->step.at[i]], kv->step.wanted[i]);
        if (status == DCI_OK)
                status = write_record(kv);
        /* Without tokens there is no append that would. */
        return status == DCI_OK && kv->planner.on && kv->step.n_tokens == 0 ? dci_gpu_kv_build(kv) : status;
}

static dci_status reserve(dci_gpu_kv *kv, void *stream, size_t n, const int64_t *sequences, const size_t *n_tokens)
{
        const bool groups = kv->groups && !kv->planner.on;
        dci_status status = check_reserve(kv, stream, n, sequences, n_tokens);
        /* Groups may be formed here, of rows that must have come. */
        if (status == DCI_OK && groups)
                status = dci_gpu_kv_wait_rows(kv);
        for (size_t i = 0; i < n && status == DCI_OK && groups; i++)
                status = dci_gpu_kv_check_good(kv, dci_gpu_kv_find(kv, sequences[i]));
        if (status != DCI_OK)
                return status;
        kv->step.packed = kv->step.formed = false;
        kv->step.stream = stream;
        kv->step.n = n;
        kv->step.n_tokens = kv->step.bound = 0;
        for (size_t i = 0; i < n; i++) {
                kv->step.ids[i] = sequences[i];
                kv->step.wanted[i] = n_tokens != NULL ? n_tokens[i] : 1;
                kv->step.at[i] = dci_gpu_kv_row_at(kv, dci_gpu_kv_find(kv, sequences[i]));
                kv->step.n_tokens += kv->step.wanted[i];
        }
        status = dci_gpu_kv_planner_reserve(kv);
        if (status == DCI_OK)
                status = dci_gpu_kv_check_host(kv, dci_kv_reserve(kv->host, n, sequences, n_tokens));
        if (status != DCI_OK)
                return status;
        kv->step.open = true;
        kv->now++;
        kv->n_steps++;
        for (size_t i = 0; i < n; i++) {
                kv->rows[kv->step.at[i]].stepping = true;
                kv->rows[kv->step.at[i]].stepped = kv->now;
        }
        for (size_t l = 0; l < kv->shape.n_layers; l++) {
                kv->layers[l].appended = kv->layers[l].planned = kv->layers[l].formed = false;
                kv->layers[l].prompt_rows.keys = NULL;
        }
        return dci_gpu_kv_check_device(kv, begin_step(kv));
}

dci_status dci_gpu_kv_reserve(dci_gpu_kv *kv, void *stream, size_t n_sequences, const int64_t *sequences,
                              const size_t *n_tokens)
{
        const dci_status status = dci_gpu_kv_lock(kv);
        return status != DCI_OK ? status : dci_gpu_kv_unlock(kv, reserve(kv, stream, n_sequences, sequences, n_tokens));
}

/* --- append ---------------------------------------------------------------------------------------------------------------------------- */

dci_status dci_gpu_kv_check_step(dci_gpu_kv *kv, void *stream, size_t layer)
{
        if (!kv->step.open)
                return dci_fail(DCI_ERR_INVALID, "no step is open, call dci_gpu_kv_reserve first");
        if (stream != kv->step.stream)
                return dci_fail(DCI_ERR_INVALID, "the stream is %p, but the step began on %p", stream, kv->step.stream);
        if (layer >= kv->shape.n_layers)
                return dci_fail(DCI_ERR_INVALID, "layer is %zu, expected less than %zu", layer, kv->shape.n_layers);
        return DCI_OK;
}

typedef struct strides {
        size_t key_token, key_head, value_token, value_head; /* bytes */
} strides;

static strides strides_of(const dci_gpu_kv *kv, const dci_kv_rows *rows)
{
        const size_t all = kv->shape.n_kv_heads * kv->dim;
        return (strides){(rows->key_token_stride != 0 ? rows->key_token_stride : all) * kv->es,
                         (rows->key_head_stride != 0 ? rows->key_head_stride : kv->dim) * kv->es,
                         (rows->value_token_stride != 0 ? rows->value_token_stride : all) * kv->es,
                         (rows->value_head_stride != 0 ? rows->value_head_stride : kv->dim) * kv->es};
}

static dci_status check_rows(dci_gpu_kv *kv, const dci_kv_rows *rows, strides *out)
{
        if (rows == NULL)
                return dci_fail(DCI_ERR_INVALID, "rows is NULL");
        dci_status status = dci_check_struct_size("dci_kv_rows", rows, rows->struct_size, sizeof *rows);
        if (status != DCI_OK || kv->step.n_tokens == 0)
                return status;
        status = kv->ops->pointer_check(kv->gpu, rows->keys, "keys");
        if (status == DCI_OK)
                status = kv->ops->pointer_check(kv->gpu, rows->values, "values");
        if (status != DCI_OK)
                return status;
        *out = strides_of(kv, rows);
        const struct {
                const char *name;
                size_t value;
        } at[] = {{"keys", (size_t)(uintptr_t)rows->keys},  {"values", (size_t)(uintptr_t)rows->values},
                  {"key_token_stride", out->key_token},     {"key_head_stride", out->key_head},
                  {"value_token_stride", out->value_token}, {"value_head_stride", out->value_head}};
        for (size_t i = 0; i < sizeof at / sizeof *at; i++)
                if (at[i].value % 16 != 0)
                        return dci_fail(DCI_ERR_INVALID, "%s is %zu bytes%s, expected a multiple of 16", at[i].name,
                                        i < 2 ? at[i].value % 16 : at[i].value, i < 2 ? " behind one" : "");
        return DCI_OK;
}

/* Whole blocks that lie packed on the device, to the host: those that follow each other in one copy. */
static dci_status copy_blocks(dci_gpu_kv *kv, size_t layer, const unsigned char *from, const int32_t *table, size_t n)
{
        const dci_kv_pool *pool = &kv->host->pool;
        dci_status status = DCI_OK;
        for (size_t b = 0, end; b < n && status == DCI_OK; b = end) {
                end = dci_gpu_kv_run_end(kv, table, b, n);
                status = kv->ops->copy(kv->gpu, kv->side, dci_gpu_kv_host_block(kv, layer, table[b]),
                                       from + b * pool->block_bytes, (end - b) * pool->block_bytes);
        }
        return status;
}

/* One buffer full: packed on the step's stream, when the copies from there before are done, and copied on the other. */
static dci_status pack_some(dci_gpu_kv *kv, size_t layer, dci_gpu_pack_args *args, const int32_t *table)
{
        const dci_gpu_ops *ops = kv->ops;
        const size_t s = kv->next_staging++ % DCI_GPU_KV_STAGING;
        args->out = kv->staging[s];
        dci_status status = ops->event_order(kv->gpu, kv->step.stream, kv->staging_events[s]);
        if (status == DCI_OK)
                status = ops->pack(kv->gpu, kv->step.stream, args);
        if (status == DCI_OK)
                status = ops->event_record(kv->gpu, kv->main_event, kv->step.stream);
        if (status == DCI_OK)
                status = ops->event_order(kv->gpu, kv->side, kv->main_event);
        if (status == DCI_OK)
                status = copy_blocks(kv, layer, kv->staging[s], table, (size_t)args->n_blocks);
        return status == DCI_OK ? ops->event_record(kv->gpu, kv->staging_events[s], kv->side) : status;
}

static dci_status pack(dci_gpu_kv *kv, size_t layer, const dci_kv_rows *rows, const strides *s)
{
        const size_t n = kv->step.n, page = kv->shape.page_tokens;
        const int32_t *at = kv->step.record + 1;
        dci_status status = DCI_OK;
        for (size_t i = 0; i < n && status == DCI_OK; i++) {
                const size_t end = (size_t)at[DCI_GPU_KV_SKIP * n + 2 * i + 1];
                const int32_t *table = kv->tables + kv->step.at[i] * kv->max_blocks;
                for (size_t b = (size_t)at[DCI_GPU_KV_SKIP * n + 2 * i], here; b < end && status == DCI_OK; b += here) {
                        here = end - b < kv->staging_blocks ? end - b : kv->staging_blocks;
                        dci_gpu_pack_args args = {.keys = rows->keys,
                                                  .values = rows->values,
                                                  .key_token = s->key_token,
                                                  .key_head = s->key_head,
                                                  .value_token = s->value_token,
                                                  .value_head = s->value_head,
                                                  .n_heads = (int32_t)kv->shape.n_kv_heads,
                                                  .n_blocks = (int32_t)here,
                                                  .token = at[DCI_GPU_KV_BEGIN * n + i] + (int32_t)(b * page) -
                                                           at[DCI_GPU_KV_FIRST * n + i],
                                                  .page_shift = kv->page_shift,
                                                  .key_bytes = (uint32_t)kv->row_bytes,
                                                  .value_bytes = (uint32_t)kv->row_bytes,
                                                  .block_bytes = kv->host->pool.block_bytes};
                        status = pack_some(kv, layer, &args, table + b);
                        kv->step.packed = true;
                }
        }
        return status;
}

static dci_status store(dci_gpu_kv *kv, size_t layer, const dci_kv_rows *rows, const strides *s)
{
        const dci_gpu_append_args args = {.batch = {.n = (int32_t)kv->step.n,
                                                    .rows = dci_gpu_kv_record(kv, DCI_GPU_KV_ROWS),
                                                    .first = dci_gpu_kv_record(kv, DCI_GPU_KV_FIRST),
                                                    .n_new = dci_gpu_kv_record(kv, DCI_GPU_KV_NEW),
                                                    .begin = dci_gpu_kv_record(kv, DCI_GPU_KV_BEGIN),
                                                    .n_tokens = (int32_t)kv->step.n_tokens},
                                          .keys = rows->keys,
                                          .values = rows->values,
                                          .key_token = s->key_token,
                                          .key_head = s->key_head,
                                          .value_token = s->value_token,
                                          .value_head = s->value_head,
                                          .n_heads = (int32_t)kv->shape.n_kv_heads,
                                          .dtype = (int32_t)kv->shape.dtype,
                                          .lanes = dci_gpu_kv_lanes(kv, layer),
                                          .device = dci_gpu_kv_dense_pool(kv, layer),
                                          .host = dci_gpu_kv_host_pool(kv, layer),
                                          .resident = dci_gpu_kv_resident_of(kv, layer),
                                          .host_skip = dci_gpu_kv_record(kv, DCI_GPU_KV_SKIP),
                                          .tables = dci_gpu_kv_tables(kv),
                                          .bad = dci_gpu_kv_mapped(kv, kv->bad)};
        dci_status status = DCI_OK;
        if (kv->planner.on && layer == kv->planner.first_layer)
                status = dci_gpu_kv_build(kv);
        if (status == DCI_OK)
                status = kv->ops->append(kv->gpu, kv->step.stream, &args);
        if (status == DCI_OK)
                status = pack(kv, layer, rows, s);
        kv->bytes_written += (uint64_t)kv->step.n_tokens * kv->shape.n_kv_heads * 2 * kv->row_bytes;
        return status;
}

/* With strides, for a prompt's end. */
static dci_kv_rows rows_with(const dci_gpu_kv *kv, const dci_kv_rows *rows, const strides *s)
{
        return (dci_kv_rows){.struct_size = sizeof *rows,
                             .keys = kv->step.n_tokens > 0 ? rows->keys : NULL,
                             .values = rows->values,
                             .key_token_stride = s->key_token / kv->es,
                             .key_head_stride = s->key_head / kv->es,
                             .value_token_stride = s->value_token / kv->es,
                             .value_head_stride = s->value_head / kv->es};
}

dci_status dci_gpu_kv_check_rows(dci_gpu_kv *kv, const dci_kv_rows *rows, dci_kv_rows *out)
{
        strides s = {0};
        const dci_status status = check_rows(kv, rows, &s);
        if (status == DCI_OK)
                *out = rows_with(kv, rows, &s);
        return status;
}

dci_status dci_gpu_kv_append(dci_gpu_kv *kv, void *stream, size_t layer, const dci_kv_rows *rows)
{
        strides s = {0};
        dci_status status = dci_gpu_kv_lock(kv);
        if (status != DCI_OK)
                return status;
        status = dci_gpu_kv_check_step(kv, stream, layer);
        if (status == DCI_OK && kv->layers[layer].appended)
                status = dci_fail(DCI_ERR_INVALID, "layer %zu has got its rows in this step already", layer);
        if (status == DCI_OK)
                status = check_rows(kv, rows, &s);
        if (status == DCI_OK)
                status = dci_kv_append_later(kv->host, layer, kv->step.n, kv->step.ids, kv->step.wanted, rows);
        if (status == DCI_OK) {
                kv->layers[layer].appended = true;
                kv->layers[layer].rows = rows_with(kv, rows, &s);
                if (kv->step.n_tokens > 0)
                        status = dci_gpu_kv_check_device(kv, store(kv, layer, rows, &s));
        }
        if (status == DCI_OK)
                dci_gpu_kv_hand_over_ready(kv);
        return dci_gpu_kv_unlock(kv, status);
}

/* --- the end ------------------------------------------------------------------------------------------------------------------------------ */

static void close_step(dci_gpu_kv *kv)
{
        for (size_t i = 0; i < kv->step.n; i++)
                kv->rows[kv->step.at[i]].stepping = false;
        kv->step.open = false;
        dci_gpu_kv_forget_ends(kv);
}

dci_status dci_gpu_kv_step_end(dci_gpu_kv *kv, void *stream)
{
        dci_status status = dci_gpu_kv_lock(kv);
        if (status != DCI_OK)
                return status;
        status = dci_gpu_kv_check_step(kv, stream, 0);
        if (status == DCI_OK)
                status = dci_gpu_kv_hand_over(kv, kv->n_ends);
        if (status == DCI_OK)
                status = dci_kv_step_end(kv->host, kv->step.n, kv->step.ids);
        if (status == DCI_OK) {
                for (size_t i = 0; i < kv->step.n; i++)
                        kv->rows[kv->step.at[i]].n += kv->step.wanted[i];
                dci_gpu_kv_planner_step_end(kv, false);
                status = dci_gpu_kv_check_device(kv, dci_gpu_kv_schedule_join(kv));
                close_step(kv);
                if (status == DCI_OK)
                        status = dci_gpu_kv_check_device(kv, kv->ops->event_record(kv->gpu, kv->step_event, stream));
        }
        return dci_gpu_kv_unlock(kv, status);
}

dci_status dci_gpu_kv_step_abort(dci_gpu_kv *kv)
{
        dci_status status = dci_gpu_kv_lock(kv);
        if (status != DCI_OK)
                return status;
        if (!kv->step.open)
                status = dci_fail(DCI_ERR_INVALID, "no step is open");
        if (status == DCI_OK)
                status = dci_gpu_kv_check_runs(kv);
        if (status == DCI_OK)
                status = dci_gpu_kv_planner_abort(kv);
        if (status == DCI_OK)
                status = dci_gpu_kv_drain(kv);
        if (status == DCI_OK)
                status = dci_kv_step_abort(kv->host, kv->step.n, kv->step.ids);
        if (status == DCI_OK) {
                dci_gpu_kv_planner_step_end(kv, true);
                close_step(kv);
                status = dci_gpu_kv_resident_sweep(kv);
                for (size_t i = 0; i < kv->step.n && status == DCI_OK; i++) {
                        dci_gpu_kv_row *row = &kv->rows[kv->step.at[i]];
                        dci_gpu_kv_resident_recount(kv, row);
                        dci_gpu_kv_boundaries_abort(kv, row, kv->step.wanted[i]);
                        status = dci_gpu_kv_truncate_row(kv, row, row->n + kv->step.wanted[i], row->n);
                        if (status == DCI_OK)
                                status = dci_gpu_kv_schedule_truncate(kv, row, row->n);
                }
                if (status == DCI_OK)
                        status = dci_gpu_kv_check_device(
                                kv, kv->ops->event_record(kv->gpu, kv->step_event, kv->step.stream));
        }
        return dci_gpu_kv_unlock(kv, status);
}

/* --- between steps -------------------------------------------------------------------------------------------------------------------------- */

/* The same of what the device plans. */
static dci_status bring_up(dci_gpu_kv *kv, size_t n_sequences, const int64_t *sequences)
{
        dci_status status = DCI_OK;
        for (size_t r = 0; r < kv->config.max_sequences && sequences == NULL && status == DCI_OK; r++)
                if (kv->rows[r].id >= 0 && !kv->rows[r].stepping && kv->bad[r] == 0)
                        status = dci_gpu_kv_upload(kv, &kv->rows[r]);
        for (size_t i = 0; i < n_sequences && sequences != NULL && status == DCI_OK; i++) {
                dci_gpu_kv_row *row = dci_gpu_kv_find(kv, sequences[i]);
                status = row == NULL ? DCI_ERR_NOT_FOUND : dci_gpu_kv_upload(kv, row);
        }
        return status;
}

/* Before anything is done for one of them: what the host is told of a step that is open it could not take back. */
static dci_status check_between(dci_gpu_kv *kv, size_t n_sequences, const int64_t *sequences)
{
        for (size_t i = 0; i < n_sequences && sequences != NULL; i++) {
                const dci_gpu_kv_row *row = dci_gpu_kv_find(kv, sequences[i]);
                if (row == NULL)
                        return DCI_ERR_NOT_FOUND;
                if (row->stepping)
                        return dci_fail(DCI_ERR_INVALID,
                                        "sequence %lld is in the middle of a step: end it, or take it back",
                                        (long long)sequences[i]);
        }
        return DCI_OK;
}

/* All sequences that are in no step and have good rows; or those that are named, if they are good. */
static dci_status maintain(dci_gpu_kv *kv, size_t n_sequences, const int64_t *sequences)
{
        size_t n = 0;
        dci_status status = check_between(kv, n_sequences, sequences);
        if (status == DCI_OK)
                status = dci_gpu_kv_wait_rows(kv);
        if (status == DCI_OK && kv->planner.on)
                return bring_up(kv, n_sequences, sequences);
        for (size_t r = 0; r < kv->config.max_sequences && sequences == NULL; r++)
                if (kv->rows[r].id >= 0 && !kv->rows[r].stepping && kv->bad[r] == 0)
                        kv->names[n++] = kv->rows[r].id;
        for (size_t i = 0; i < n_sequences && sequences != NULL && status == DCI_OK; i++) {
                const dci_gpu_kv_row *row = dci_gpu_kv_find(kv, sequences[i]);
                status = row == NULL ? DCI_ERR_NOT_FOUND : dci_gpu_kv_check_good(kv, row);
        }
        if (status != DCI_OK)
                return status;
        return sequences == NULL ? dci_kv_maintain(kv->host, n, kv->names)
                                 : dci_kv_maintain(kv->host, n_sequences, sequences);
}

dci_status dci_gpu_kv_maintain(dci_gpu_kv *kv, size_t n_sequences, const int64_t *sequences)
{
        const dci_status status = dci_gpu_kv_lock(kv);
        return status != DCI_OK ? status : dci_gpu_kv_unlock(kv, maintain(kv, n_sequences, sequences));
}

/* Learned codes of prompts that have ended; what there is no memory for now the next step asks for again. */
static dci_status settle_prompts(dci_gpu_kv *kv)
{
        dci_status status = DCI_OK;
        dci_may_fail(true);
        for (size_t r = 0; r < kv->config.max_sequences && kv->planner.kind == DCI_GPU_LEARNED && !kv->broken; r++)
                if (kv->rows[r].id >= 0 && !kv->rows[r].stepping)
                        status = dci_gpu_kv_planner_drain(kv, &kv->rows[r]);
        dci_may_fail(false);
        return kv->broken ? status : DCI_OK;
}

dci_status dci_gpu_kv_sync(dci_gpu_kv *kv)
{
        dci_status status = dci_gpu_kv_lock(kv);
        if (status != DCI_OK)
                return status;
        status = dci_gpu_kv_drain(kv);
        if (status == DCI_OK)
                status = dci_kv_wait(kv->host, -1);
        if (status == DCI_OK)
                status = settle_prompts(kv);
        return dci_gpu_kv_unlock(kv, status);
}
