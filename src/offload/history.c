/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Rows of all tokens of a sequence on the device. */
#include "core/internal.h"

#include "offload/history.h"
#include "offload/pool.h"

#define MAX_PITCH ((size_t)1 << 30) /* of a copy of rows: CUDA takes less than 2^31 bytes */
#define PACK_SHIFT 5

static size_t token_bytes(const dci_gpu_kv *kv)
{
        return 2 * kv->shape.n_kv_heads * kv->row_bytes;
}

size_t dci_gpu_kv_history_bytes(const dci_gpu_kv *kv)
{
        return kv->history->buffers[0].n_bytes + kv->history->buffers[1].n_bytes;
}

/* --- buffers ------------------------------------------------------------------------------------------------------ */

static void free_buffer(dci_gpu_kv *kv, dci_gpu_kv_history_buffer *b)
{
        dci_gpu_kv_free_device(kv, b->memory, b->n_bytes);
        b->memory = NULL;
        b->n_bytes = 0;
        b->now = 0;
}

void dci_gpu_kv_history_free(dci_gpu_kv *kv)
{
        for (size_t i = 0; i < 2; i++)
                free_buffer(kv, &kv->history->buffers[i]);
}

/* Replaces a buffer's memory by room for n tokens. quiet: without memory for it there is no sentence. */
static dci_status replace(dci_gpu_kv *kv, dci_gpu_kv_history_buffer *b, size_t n, bool quiet)
{
        const size_t n_bytes = n * token_bytes(kv);
        unsigned char *memory = NULL;
        dci_may_fail(quiet);
        dci_status status = dci_gpu_kv_alloc_device(kv, n_bytes, &memory);
        dci_may_fail(false);
        if (status != DCI_OK)
                return status;
        status = b->memory != NULL ? dci_gpu_kv_drain(kv) : DCI_OK;
        free_buffer(kv, b);
        b->memory = memory;
        b->n_bytes = n_bytes;
        return status;
}

/* Makes room for n tokens: if possible for twice as many as before; without memory for both, the old buffer is freed
 * first, but not one that a call in this step returned last. */
static dci_status make_room(dci_gpu_kv *kv, dci_gpu_kv_history_buffer *b, size_t n, bool quiet)
{
        const dci_gpu_kv_history_buffers *h = kv->history;
        const size_t doubled = 2 * (b->n_bytes / token_bytes(kv)),
                     most = doubled < kv->config.max_tokens ? doubled : kv->config.max_tokens;
        dci_status status = DCI_ERR_MEMORY;
        if (b->n_bytes >= n * token_bytes(kv))
                return DCI_OK;
        if (most > n)
                status = replace(kv, b, most, true);
        if (status != DCI_OK && !kv->broken)
                status = replace(kv, b, n, true);
        if (status == DCI_OK || kv->broken)
                return status;
        if (b->memory != NULL && (h->now != kv->now || b != &h->buffers[h->last])) {
                DCI_TRY(dci_gpu_kv_drain(kv));
                free_buffer(kv, b);
        }
        return replace(kv, b, n, quiet);
}

static bool holds(const dci_gpu_kv *kv, const dci_gpu_kv_history_buffer *b, size_t layer, size_t row)
{
        return b->now == kv->now && b->layer == layer && b->row == row;
}

/* --- copies ------------------------------------------------------------------------------------------------------- */

/* The end of a run of blocks that are equally far apart in one piece, from number `first` of a table on. */
static size_t run_end(const dci_gpu_kv *kv, const int32_t *table, size_t first, size_t end, size_t *out_step)
{
        const dci_kv_pool *pool = &kv->host->pool;
        const int64_t most = (int64_t)(MAX_PITCH / pool->block_bytes);
        int64_t step = first + 1 < end ? (int64_t)table[first + 1] - table[first] : 1;
        size_t b = first + 1;
        if (step < 1 || step > most)
                step = 1;
        while (b < end && table[b] - table[b - 1] == step &&
               (size_t)table[b] >> pool->piece_shift == (size_t)table[first] >> pool->piece_shift)
                b++;
        *out_step = (size_t)step;
        return b;
}

static const unsigned char *block_at(const dci_gpu_kv *kv, size_t layer, int32_t block)
{
        return kv->layers[layer].dense ? dci_gpu_kv_dense_block(kv, layer, block)
                                       : dci_gpu_kv_host_block(kv, layer, block);
}

/* Copies a row's tokens of earlier steps to a buffer that has n tokens in all. */
static dci_status copy_earlier(dci_gpu_kv *kv, const dci_gpu_kv_history_buffer *b, size_t n)
{
        const dci_gpu_kv_row *row = &kv->rows[b->row];
        const size_t page = kv->shape.page_tokens, page_bytes = page * kv->row_bytes, whole = row->n >> kv->page_shift,
                     rest = (row->n - whole * page) * kv->row_bytes, block_bytes = kv->host->pool.block_bytes;
        const int32_t *table = kv->pool->tables + b->row * kv->max_blocks;
        void *stream = kv->history_stream;
        for (size_t i = 0, end, step; i < whole; i = end) {
                end = run_end(kv, table, i, whole, &step);
                const unsigned char *from = block_at(kv, b->layer, table[i]);
                for (size_t p = 0; p < 2 * kv->shape.n_kv_heads; p++) {
                        /* A block has keys and values of each head, the buffer all keys first. */
                        const size_t at = (p % 2 * kv->shape.n_kv_heads + p / 2) * n + i * page;
                        DCI_TRY(kv->ops->copy_rows(kv->gpu, stream, b->memory + at * kv->row_bytes,
                                                   from + p * page_bytes, step * block_bytes, page_bytes, end - i));
                }
        }
        for (size_t p = 0; p < 2 * kv->shape.n_kv_heads && rest > 0; p++) {
                const size_t at = (p % 2 * kv->shape.n_kv_heads + p / 2) * n + whole * page;
                DCI_TRY(kv->ops->copy(kv->gpu, stream, b->memory + at * kv->row_bytes,
                                      block_at(kv, b->layer, table[whole]) + p * page_bytes, rest));
        }
        if (!kv->layers[b->layer].dense)
                kv->bytes_refilled += (uint64_t)row->n * token_bytes(kv);
        return DCI_OK;
}

/* The event after which a layer's rows of earlier steps are where they are copied from. */
static void *arrival(const dci_gpu_kv *kv, size_t layer)
{
        const dci_gpu_kv_layer *at = &kv->layers[layer];
        const uint32_t before = kv->now - 1;
        return !at->dense && at->stored_at[before % 2] == before ? at->stored[before % 2]
                                                                 : kv->record_events[kv->now % DCI_GPU_KV_RECORDS];
}

/* Queues the copies of a row's earlier tokens to a buffer that has room. n: tokens of the row, with those of the step.
 * What was in the buffer may still be copied there, even if there are no earlier tokens. */
static dci_status fetch(dci_gpu_kv *kv, dci_gpu_kv_history_buffer *b, size_t layer, size_t row, size_t n)
{
        void *stream = kv->history_stream;
        b->layer = layer;
        b->row = row;
        if (kv->rows[row].n > 0) {
                DCI_TRY(kv->ops->event_order(kv->gpu, stream, b->released));
                DCI_TRY(kv->ops->event_order(kv->gpu, stream, arrival(kv, layer)));
                DCI_TRY(copy_earlier(kv, b, n));
        }
        DCI_TRY(kv->ops->event_record(kv->gpu, b->copied, stream));
        b->now = kv->now;
        return DCI_OK;
}

/* Adds the rows of sequence i of the step, on the step's stream. */
static dci_status add_new(dci_gpu_kv *kv, const dci_gpu_kv_history_buffer *b, size_t i, size_t n)
{
        const dci_kv_rows *rows = &kv->layers[b->layer].rows;
        const size_t first = kv->rows[b->row].n;
        const int32_t begin = kv->step.record[1 + DCI_GPU_KV_BEGIN * kv->step.n + i];
        DCI_TRY(kv->ops->event_order(kv->gpu, kv->step.stream, b->copied));
        for (size_t at = first, shift = PACK_SHIFT; at < n; shift = 0) {
                const size_t n_blocks = (n - at) >> shift;
                dci_gpu_pack_args args = dci_gpu_kv_pack_args(kv, rows);
                args.n_blocks = (int32_t)n_blocks;
                args.token = begin + (int32_t)(at - first);
                args.page_shift = (int32_t)shift;
                args.block_bytes = kv->row_bytes << shift;
                args.head_bytes = n * kv->row_bytes;
                args.value_at = kv->shape.n_kv_heads * n * kv->row_bytes;
                args.out = b->memory + at * kv->row_bytes;
                if (n_blocks > 0)
                        DCI_TRY(kv->ops->pack(kv->gpu, kv->step.stream, &args));
                at += n_blocks << shift;
        }
        return DCI_OK;
}

/* --- what comes next ---------------------------------------------------------------------------------------------- */

static size_t tokens_after(const dci_gpu_kv *kv, size_t i)
{
        return kv->rows[kv->step.rows[i]].n + kv->step.wanted[i];
}

/* Whether sequence i of the step has earlier tokens, and the caller asks for them: as in the layers before; in the
 * first of them, for those of several tokens. */
static bool may_come(const dci_gpu_kv *kv, size_t layer, size_t i)
{
        const dci_gpu_kv_row *row = &kv->rows[kv->step.rows[i]];
        const bool asked = row->asked == kv->now;
        return row->n > 0 && (asked || (layer == kv->history->first_layer && kv->step.wanted[i] > 1));
}

/* Starts the copy of what comes after sequence i of the step in this layer, if there is memory for it. */
static dci_status fetch_next(dci_gpu_kv *kv, size_t layer, size_t i)
{
        dci_gpu_kv_history_buffer *b = &kv->history->buffers[1 - kv->history->last];
        const size_t n = kv->step.n;
        size_t at = layer * n + i + 1;
        while (at < kv->shape.n_layers * n && !may_come(kv, at / n, at % n))
                at++;
        if (at == kv->shape.n_layers * n || holds(kv, b, at / n, kv->step.rows[at % n]))
                return DCI_OK;
        const dci_status status = make_room(kv, b, tokens_after(kv, at % n), true);
        if (status != DCI_OK)
                return kv->broken ? status : DCI_OK;
        return fetch(kv, b, at / n, kv->step.rows[at % n], tokens_after(kv, at % n));
}

/* Whether a buffer has rows that come after sequence i of the step in this layer. */
static bool is_ahead(const dci_gpu_kv *kv, const dci_gpu_kv_history_buffer *b, size_t layer, size_t i)
{
        size_t j = 0;
        while (j < kv->step.n && kv->step.rows[j] != b->row)
                j++;
        return b->now == kv->now && j < kv->step.n && (b->layer > layer || (b->layer == layer && j > i));
}

/* --- dci_gpu_kv_history ------------------------------------------------------------------------------------------- */

/* The buffer for n tokens of sequence i: the one that has them, or one with room. Rather not one with what comes next,
 * nor the one that was returned last. */
static dci_status take_buffer(dci_gpu_kv *kv, size_t layer, size_t i, dci_gpu_kv_history_buffer **out)
{
        dci_gpu_kv_history_buffers *h = kv->history;
        dci_gpu_kv_history_buffer *last = &h->buffers[h->last], *other = &h->buffers[1 - h->last];
        const bool keep = is_ahead(kv, other, layer, i);
        *out = keep ? last : other;
        if (holds(kv, other, layer, kv->step.rows[i])) {
                *out = other;
                return DCI_OK;
        }
        const dci_status status = make_room(kv, *out, tokens_after(kv, i), true);
        if (status == DCI_OK || kv->broken)
                return status;
        *out = keep ? other : last;
        return make_room(kv, *out, tokens_after(kv, i), false);
}

/* Queues what a call returns, and starts the copy of what comes next. */
static dci_status queue(dci_gpu_kv *kv, size_t layer, size_t i, dci_gpu_kv_history_buffer *b)
{
        dci_gpu_kv_history_buffers *h = kv->history;
        dci_gpu_kv_history_buffer *last = &h->buffers[h->last];
        const size_t row = kv->step.rows[i], n = tokens_after(kv, i);
        DCI_TRY(kv->ops->event_record(kv->gpu, last->released, kv->step.stream));
        if (!holds(kv, b, layer, row))
                DCI_TRY(fetch(kv, b, layer, row, n));
        DCI_TRY(add_new(kv, b, i, n));
        if (h->now != kv->now)
                h->first_layer = layer;
        h->now = kv->rows[row].asked = kv->now;
        h->last = (size_t)(b - h->buffers);
        return fetch_next(kv, layer, i);
}

static dci_status check(dci_gpu_kv *kv, void *stream, size_t layer, int64_t sequence, const dci_kv_rows *out_rows,
                        const size_t *out_n, dci_gpu_kv_row **out_row)
{
        if (out_rows == NULL || out_n == NULL)
                return dci_fail(DCI_ERR_INVALID, "%s is NULL", out_rows == NULL ? "out_rows" : "out_n");
        DCI_TRY(dci_check_struct_size("dci_kv_rows", out_rows, out_rows->struct_size, sizeof *out_rows));
        DCI_TRY(dci_gpu_kv_find_stepping(kv, stream, layer, sequence, out_row));
        if (!kv->layers[layer].appended && kv->step.n_tokens > 0)
                return dci_fail(DCI_ERR_INVALID, "layer %zu has not got its rows in this step", layer);
        if (kv->step.n_tokens > 0 && kv->layers[layer].rows.keys == NULL)
                return dci_fail(DCI_ERR_INVALID, "layer %zu gets its rows of this step from a graph", layer);
        return dci_gpu_kv_check_runs(kv);
}

static dci_status history(dci_gpu_kv *kv, void *stream, size_t layer, int64_t sequence, dci_kv_rows *out_rows,
                          size_t *out_n)
{
        dci_gpu_kv_row *row = NULL;
        DCI_TRY(check(kv, stream, layer, sequence, out_rows, out_n, &row));
        const size_t i = dci_gpu_kv_step_number(kv, row), n = tokens_after(kv, i), dim = kv->dim;
        dci_gpu_kv_history_buffer *b = &kv->history->buffers[kv->history->last];
        if (n > 0 && !holds(kv, b, layer, dci_gpu_kv_row_number(kv, row))) {
                DCI_TRY(take_buffer(kv, layer, i, &b));
                DCI_GPU_KV_TRY(kv, queue(kv, layer, i, b));
        }
        *out_rows = (dci_kv_rows){.struct_size = out_rows->struct_size,
                                  .keys = n > 0 ? b->memory : NULL,
                                  .values = n > 0 ? b->memory + kv->shape.n_kv_heads * n * kv->row_bytes : NULL,
                                  .key_token_stride = dim,
                                  .key_head_stride = n * dim,
                                  .value_token_stride = dim,
                                  .value_head_stride = n * dim};
        *out_n = n;
        return DCI_OK;
}

dci_status dci_gpu_kv_history(dci_gpu_kv *kv, void *stream, size_t layer, int64_t sequence, dci_kv_rows *out_rows,
                              size_t *out_n)
{
        DCI_TRY(dci_gpu_kv_lock(kv));
        return dci_gpu_kv_unlock(kv, history(kv, stream, layer, sequence, out_rows, out_n));
}
