/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What the parts of a dci_gpu_kv share. */
#include "core/internal.h"

#include <string.h>

#include "offload/state.h"

dci_status dci_gpu_kv_lock(dci_gpu_kv *kv)
{
        if (kv == NULL)
                return dci_fail(DCI_ERR_INVALID, "kv is NULL");
        if (dci_is_busy(kv->host))
                return dci_fail(DCI_ERR_BUSY, "called from inside a callback of the same object");
        pthread_mutex_lock(&kv->lock);
        if (!kv->broken)
                return DCI_OK;
        dci_fail(DCI_ERR_DEVICE, "the device has failed, this KV cache can only be destroyed: %s", kv->sentence);
        pthread_mutex_unlock(&kv->lock);
        return DCI_ERR_DEVICE;
}

dci_status dci_gpu_kv_unlock(dci_gpu_kv *kv, dci_status status)
{
        pthread_mutex_unlock(&kv->lock);
        return status;
}

dci_status dci_gpu_kv_check_device(dci_gpu_kv *kv, dci_status status)
{
        if (status == DCI_OK || kv->broken)
                return status;
        kv->broken = true;
        dci_gpu_kv_keep_sentence(kv->sentence, sizeof kv->sentence);
        return status;
}

dci_status dci_gpu_kv_check_host(dci_gpu_kv *kv, dci_status status)
{
        const dci_status refused = kv->refused;
        kv->refused = DCI_OK;
        return status != DCI_OK && refused != DCI_OK ? dci_fail(refused, "%s", kv->refusal) : status;
}

void dci_gpu_kv_keep_sentence(char *out, size_t n_bytes)
{
        const char *sentence = dci_last_error();
        const size_t n = strlen(sentence) < n_bytes - 1 ? strlen(sentence) : n_bytes - 1;
        memcpy(out, sentence, n);
        out[n] = 0;
}

dci_status dci_gpu_kv_check_runs(dci_gpu_kv *kv)
{
        return kv->step.open ? kv->ops->stream_runs(kv->gpu, kv->step.stream) : DCI_OK;
}

dci_status dci_gpu_kv_join_ahead(dci_gpu_kv *kv)
{
        if (!kv->ahead)
                return DCI_OK;
        kv->ahead = false;
        return kv->ops->event_order(kv->gpu, kv->step.stream, kv->ahead_event);
}

dci_status dci_gpu_kv_drain(dci_gpu_kv *kv)
{
        DCI_TRY(dci_gpu_kv_check_runs(kv));
        DCI_GPU_KV_TRY(kv, kv->step.open ? dci_gpu_kv_join_ahead(kv) : kv->ops->event_wait(kv->gpu, kv->step_event));
        if (kv->step.open)
                DCI_GPU_KV_TRY(kv, kv->ops->stream_wait(kv->gpu, kv->step.stream));
        DCI_GPU_KV_TRY(kv, kv->ops->stream_wait(kv->gpu, kv->history_stream));
        if (kv->cluster_stream != NULL)
                DCI_GPU_KV_TRY(kv, kv->ops->stream_wait(kv->gpu, kv->cluster_stream));
        return dci_gpu_kv_check_device(kv, kv->ops->stream_wait(kv->gpu, kv->side));
}

dci_status dci_gpu_kv_wait_rows(dci_gpu_kv *kv)
{
        DCI_TRY(dci_gpu_kv_check_runs(kv));
        DCI_GPU_KV_TRY(kv, kv->ops->event_wait(kv->gpu, kv->step_event));
        return dci_gpu_kv_check_device(kv, kv->ops->stream_wait(kv->gpu, kv->side));
}

dci_gpu_kv_row *dci_gpu_kv_find(dci_gpu_kv *kv, int64_t sequence)
{
        /* Ids ascend, so sequences that are open at the same time hardly ever share a hint. A stale hint costs a
         * search, and is replaced. */
        uint16_t *hint = &kv->row_hints[(uint64_t)sequence & (kv->n_row_hints - 1)];
        if (kv->rows[*hint].id == sequence && sequence >= 0)
                return &kv->rows[*hint];
        for (size_t r = 0; r < kv->config.max_sequences; r++)
                if (kv->rows[r].id == sequence && sequence >= 0) {
                        *hint = (uint16_t)r;
                        return &kv->rows[r];
                }
        return NULL;
}

dci_gpu_kv_swapped *dci_gpu_kv_find_swapped(const dci_gpu_kv *kv, int64_t sequence)
{
        dci_gpu_kv_swapped *s = kv->swapped;
        while (s != NULL && s->row.id != sequence)
                s = s->next;
        return s;
}

dci_status dci_gpu_kv_no_row(const dci_gpu_kv *kv, int64_t sequence)
{
        if (dci_gpu_kv_find_swapped(kv, sequence) != NULL)
                return dci_fail(DCI_ERR_INVALID,
                                "sequence %lld is swapped out: dci_gpu_kv_swap_in gives it a place on the device again",
                                (long long)sequence);
        return dci_fail(DCI_ERR_NOT_FOUND, "there is no sequence %lld", (long long)sequence);
}

int32_t dci_gpu_kv_bad(const dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        /* The device writes this. */
        const volatile int32_t *bad = kv->bad + dci_gpu_kv_row_number(kv, row);
        for (size_t l = 0; l < kv->shape.n_layers; l++)
                if (bad[l * kv->config.max_sequences] != 0)
                        return (int32_t)l + 1;
        return 0;
}

void dci_gpu_kv_set_bad(dci_gpu_kv *kv, const dci_gpu_kv_row *row, int32_t bad)
{
        for (size_t l = 0; l < kv->shape.n_layers; l++)
                kv->bad[l * kv->config.max_sequences + dci_gpu_kv_row_number(kv, row)] = (int32_t)l + 1 == bad;
}

dci_status dci_gpu_kv_bad_rows(const dci_gpu_kv_row *row)
{
        return dci_fail(DCI_ERR_NUMBER, "sequence %lld has got rows with NaN or infinity: close it",
                        (long long)row->id);
}

dci_status dci_gpu_kv_check_good(const dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        if (dci_gpu_kv_bad(kv, row) != 0)
                return dci_gpu_kv_bad_rows(row);
        return DCI_OK;
}

dci_status dci_gpu_kv_wait_good(dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        DCI_TRY(dci_gpu_kv_wait_rows(kv));
        return dci_gpu_kv_check_good(kv, row);
}

dci_status dci_gpu_kv_check_step(dci_gpu_kv *kv, void *stream, size_t layer)
{
        if (!kv->step.open)
                return dci_fail(DCI_ERR_INVALID, "no step is open, reserve its tokens first");
        if (stream != kv->step.stream)
                return dci_fail(DCI_ERR_INVALID, "the stream is %p, but the step began on %p", stream, kv->step.stream);
        if (layer >= kv->shape.n_layers)
                return dci_fail(DCI_ERR_INVALID, "layer is %zu, expected less than %zu", layer, kv->shape.n_layers);
        return DCI_OK;
}

dci_status dci_gpu_kv_find_stepping(dci_gpu_kv *kv, void *stream, size_t layer, int64_t sequence, dci_gpu_kv_row **out)
{
        DCI_TRY(dci_gpu_kv_check_step(kv, stream, layer));
        *out = dci_gpu_kv_find(kv, sequence);
        if (*out == NULL)
                return dci_gpu_kv_no_row(kv, sequence);
        if (!(*out)->stepping)
                return dci_fail(DCI_ERR_INVALID, "sequence %lld is not in the step that is open", (long long)sequence);
        return DCI_OK;
}

size_t dci_gpu_kv_step_number(const dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        size_t i = 0;
        while (kv->step.rows[i] != dci_gpu_kv_row_number(kv, row))
                i++;
        return i;
}

dci_status dci_gpu_kv_check_rows(dci_gpu_kv *kv, size_t n_tokens, const dci_kv_rows *rows, dci_kv_rows *out)
{
        const size_t all = kv->shape.n_kv_heads * kv->dim, dim = kv->dim, es = kv->es;
        if (rows == NULL)
                return dci_fail(DCI_ERR_INVALID, "rows is NULL");
        DCI_TRY(dci_check_struct_size("dci_kv_rows", rows, rows->struct_size, sizeof *rows));
        if (n_tokens == 0) {
                *out = (dci_kv_rows){.struct_size = sizeof *rows, .values = rows->values};
                return DCI_OK;
        }
        DCI_TRY(kv->ops->pointer_check(kv->gpu, rows->keys, "keys"));
        DCI_TRY(kv->ops->pointer_check(kv->gpu, rows->values, "values"));
        const dci_kv_rows full = {.struct_size = sizeof *rows,
                                  .keys = rows->keys,
                                  .values = rows->values,
                                  .key_token_stride = rows->key_token_stride != 0 ? rows->key_token_stride : all,
                                  .key_head_stride = rows->key_head_stride != 0 ? rows->key_head_stride : dim,
                                  .value_token_stride = rows->value_token_stride != 0 ? rows->value_token_stride : all,
                                  .value_head_stride = rows->value_head_stride != 0 ? rows->value_head_stride : dim};
        const struct {
                const char *name;
                size_t value;
        } checked[] = {{"keys", (size_t)(uintptr_t)rows->keys},
                       {"values", (size_t)(uintptr_t)rows->values},
                       {"key_token_stride", full.key_token_stride * es},
                       {"key_head_stride", full.key_head_stride * es},
                       {"value_token_stride", full.value_token_stride * es},
                       {"value_head_stride", full.value_head_stride * es}};
        for (size_t i = 0; i < sizeof checked / sizeof *checked; i++) {
                const size_t value = checked[i].value;
                if (value % 16 != 0 && i < 2)
                        return dci_fail(DCI_ERR_INVALID, "%s is not aligned: %zu bytes past a multiple of 16",
                                        checked[i].name, value % 16);
                if (value % 16 != 0)
                        return dci_fail(DCI_ERR_INVALID, "%s is %zu bytes, expected a multiple of 16", checked[i].name,
                                        value);
        }
        *out = full;
        return DCI_OK;
}

dci_status dci_gpu_kv_clear_hot(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        const size_t per_row = kv->shape.n_kv_heads * kv->n_frames;
        row->hot_end = 0;
        for (size_t l = 0; l < kv->n_sparse && per_row > 0; l++) {
                int32_t *tags = kv->tags + (l * kv->config.max_sequences + dci_gpu_kv_row_number(kv, row)) * per_row;
                if (kv->resolves_on_host)
                        memset(tags, 0xff, per_row * sizeof *tags);
                else
                        DCI_TRY(kv->ops->fill(kv->gpu, kv->side, tags, 0xff, per_row * sizeof *tags));
        }
        return DCI_OK;
}

dci_status dci_gpu_kv_check_device_bytes(const dci_gpu_kv *kv, size_t more)
{
        const size_t most = kv->config.max_device_bytes, there = kv->device_bytes;
        if (most > 0 && (there > most || more > most - there))
                return dci_fail(DCI_ERR_FULL,
                                "%zu bytes on the device are wanted, but %zu of max_device_bytes %zu are in use", more,
                                there, most);
        return DCI_OK;
}

dci_status dci_gpu_kv_alloc_device(dci_gpu_kv *kv, size_t n_bytes, unsigned char **out)
{
        void *memory = NULL;
        if (n_bytes == 0)
                return DCI_OK;
        DCI_TRY(dci_gpu_kv_check_device_bytes(kv, n_bytes));
        DCI_TRY(kv->ops->alloc(kv->gpu, n_bytes, &memory));
        kv->device_bytes += n_bytes;
        *out = memory;
        return DCI_OK;
}

void dci_gpu_kv_free_device(dci_gpu_kv *kv, unsigned char *memory, size_t n_bytes)
{
        if (memory == NULL)
                return;
        kv->ops->free(kv->gpu, memory, n_bytes);
        kv->device_bytes -= n_bytes;
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

size_t dci_gpu_kv_host_grouped(const dci_gpu_kv *kv, const dci_kv_sequence *sequence)
{
        size_t n = SIZE_MAX;
        for (size_t l = 0; l < kv->shape.n_layers; l++)
                if (dci_kv_groups(kv->host, l) && sequence->layers[l].n_grouped < n)
                        n = sequence->layers[l].n_grouped;
        return n == SIZE_MAX ? 0 : n;
}
