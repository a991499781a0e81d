/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Chunks of summaries on the device. */
#include "core/internal.h"

#include "offload/chunk_store.h"

#define PIECE_BYTES ((size_t)32 << 20)

void dci_gpu_kv_store_init(dci_gpu_kv *kv, dci_gpu_kv_store *s, size_t head_bytes, size_t max_rows)
{
        const size_t n = kv->config.max_sequences,
                     enough = kv->config.piece_bytes < PIECE_BYTES ? kv->config.piece_bytes : PIECE_BYTES;
        s->head_bytes = head_bytes;
        s->chunk_bytes = kv->shape.n_kv_heads * head_bytes;
        s->max_chunks = dci_gpu_kv_count_chunks(max_rows);
        const size_t most = n * s->max_chunks;
        while (((size_t)1 << s->piece_shift) < most && (s->chunk_bytes * kv->n_sparse << s->piece_shift) < enough)
                s->piece_shift++;
        s->piece_bytes = s->chunk_bytes * kv->n_sparse << s->piece_shift;
        s->piece_capacity = (most + ((size_t)1 << s->piece_shift) - 1) >> s->piece_shift;
}

static void free_piece(dci_gpu_kv *kv, dci_gpu_kv_store *s, size_t p)
{
        if (s->pieces[p] == NULL)
                return;
        dci_gpu_kv_free_device(kv, s->pieces[p], s->piece_bytes);
        kv->summary_bytes -= s->piece_bytes;
        s->pieces[p] = NULL;
}

void dci_gpu_kv_store_destroy(dci_gpu_kv *kv, dci_gpu_kv_store *s)
{
        for (size_t p = 0; p < s->n_pieces; p++)
                free_piece(kv, s, p);
        s->n_pieces = 0;
}

void dci_gpu_kv_store_trim(dci_gpu_kv *kv, dci_gpu_kv_store *s)
{
        size_t left = 0;
        for (size_t p = 0; p < s->n_pieces; p++) {
                bool used = false;
                for (size_t c = p << s->piece_shift; c < (p + 1) << s->piece_shift; c++)
                        used = used || s->refs[c] > 0;
                if (!used)
                        free_piece(kv, s, p);
        }
        for (size_t i = 0; i < s->n_free; i++)
                if (s->pieces[(size_t)s->free_list[i] >> s->piece_shift] != NULL)
                        s->free_list[left++] = s->free_list[i];
        s->n_free = left;
        while (s->n_pieces > 0 && s->pieces[s->n_pieces - 1] == NULL)
                s->n_pieces--;
        s->n_uploaded = s->n_uploaded < s->n_pieces ? s->n_uploaded : s->n_pieces;
}

static dci_status take_piece(dci_gpu_kv *kv, dci_gpu_kv_store *s)
{
        const size_t n = (size_t)1 << s->piece_shift;
        size_t p = 0;
        while (p < s->n_pieces && s->pieces[p] != NULL)
                p++;
        if (p == s->piece_capacity)
                return dci_fail(DCI_ERR_FULL,
                                "%zu sequences of %zu tokens need %zu pieces for summaries, which are there",
                                kv->config.max_sequences, kv->config.max_tokens, s->piece_capacity);
        DCI_TRY(dci_gpu_kv_alloc_device(kv, s->piece_bytes, &s->pieces[p]));
        s->n_pieces = p < s->n_pieces ? s->n_pieces : p + 1;
        s->n_uploaded = s->n_uploaded < p ? s->n_uploaded : p;
        kv->summary_bytes += s->piece_bytes;
        for (size_t i = n; i-- > 0;) {
                s->refs[(p << s->piece_shift) + i] = 0;
                s->free_list[s->n_free++] = (int32_t)((p << s->piece_shift) + i);
        }
        return DCI_OK;
}

dci_status dci_gpu_kv_store_ready(dci_gpu_kv *kv, dci_gpu_kv_store *s, size_t n)
{
        while (s->n_free < n)
                DCI_TRY(take_piece(kv, s));
        return DCI_OK;
}

int32_t dci_gpu_kv_store_alloc(dci_gpu_kv_store *s)
{
        const int32_t chunk = s->free_list[--s->n_free];
        s->refs[chunk] = 1;
        return chunk;
}

void dci_gpu_kv_store_free(dci_gpu_kv_store *s, int32_t chunk)
{
        if (--s->refs[chunk] == 0)
                s->free_list[s->n_free++] = chunk;
}

void dci_gpu_kv_store_truncate(dci_gpu_kv_store *s, size_t row, size_t left)
{
        while (s->n_chunks[row] > left)
                dci_gpu_kv_store_free(s, dci_gpu_kv_store_numbers(s, row)[--s->n_chunks[row]]);
}

void dci_gpu_kv_store_share(dci_gpu_kv_store *s, size_t from, size_t to, size_t n)
{
        for (size_t c = 0; c < n; c++) {
                const int32_t chunk = dci_gpu_kv_store_numbers(s, from)[c];
                s->refs[chunk]++;
                dci_gpu_kv_store_numbers(s, to)[c] = chunk;
        }
        s->n_chunks[to] = n;
}

dci_status dci_gpu_kv_store_upload(dci_gpu_kv *kv, dci_gpu_kv_store *s, void *stream, size_t row, size_t first)
{
        if (s->n_uploaded < s->n_pieces)
                DCI_TRY(kv->ops->copy(kv->gpu, stream, s->device_pieces + s->n_uploaded, s->pieces + s->n_uploaded,
                                      (s->n_pieces - s->n_uploaded) * sizeof(void *)));
        s->n_uploaded = s->n_pieces;
        if (s->n_chunks[row] > first) {
                const size_t at = row * s->max_chunks + first;
                DCI_TRY(kv->ops->copy(kv->gpu, stream, s->device_numbers + at, s->numbers + at,
                                      (s->n_chunks[row] - first) * sizeof *s->numbers));
        }
        return DCI_OK;
}

size_t dci_gpu_kv_store_missing(const dci_gpu_kv_store *s, size_t row, size_t first, size_t n)
{
        size_t more = n > s->n_chunks[row] ? n - s->n_chunks[row] : 0;
        for (size_t c = first; c < s->n_chunks[row] && c < n; c++)
                more += s->refs[dci_gpu_kv_store_numbers(s, row)[c]] > 1;
        return more;
}

dci_status dci_gpu_kv_store_make_exclusive(dci_gpu_kv *kv, dci_gpu_kv_store *s, void *stream, size_t row, size_t first,
                                           size_t n)
{
        const size_t more = dci_gpu_kv_store_missing(s, row, first, n), before = s->n_chunks[row];
        int32_t *numbers = dci_gpu_kv_store_numbers(s, row);
        if (more == 0)
                return DCI_OK;
        DCI_TRY(dci_gpu_kv_store_ready(kv, s, more));
        for (size_t c = first; c < n; c++) {
                if (c < before && s->refs[numbers[c]] == 1)
                        continue;
                if (c < before)
                        dci_gpu_kv_store_free(s, numbers[c]);
                numbers[c] = dci_gpu_kv_store_alloc(s);
        }
        s->n_chunks[row] = n > before ? n : before;
        return dci_gpu_kv_check_device(kv,
                                       dci_gpu_kv_store_upload(kv, s, stream, row, first < before ? first : before));
}

dci_status dci_gpu_kv_store_copy(dci_gpu_kv *kv, dci_gpu_kv_store *s, void *stream, size_t row, size_t c, int32_t from)
{
        const int32_t own = dci_gpu_kv_store_alloc(s);
        for (size_t l = 0; l < kv->n_sparse; l++)
                DCI_GPU_KV_TRY(kv, kv->ops->copy(kv->gpu, stream, dci_gpu_kv_store_at(s, l, own),
                                                 dci_gpu_kv_store_at(s, l, from), s->chunk_bytes));
        dci_gpu_kv_store_numbers(s, row)[c] = own;
        return DCI_OK;
}

dci_status dci_gpu_kv_store_unshare(dci_gpu_kv *kv, dci_gpu_kv_store *s, void *stream, size_t row, size_t n)
{
        const int32_t *numbers = dci_gpu_kv_store_numbers(s, row);
        n = n < s->n_chunks[row] ? n : s->n_chunks[row];
        const size_t more = dci_gpu_kv_store_missing(s, row, 0, n);
        if (more == 0)
                return DCI_OK;
        DCI_TRY(dci_gpu_kv_store_ready(kv, s, more));
        for (size_t c = 0; c < n; c++) {
                const int32_t shared = numbers[c];
                if (s->refs[shared] == 1)
                        continue;
                DCI_TRY(dci_gpu_kv_store_copy(kv, s, stream, row, c, shared));
                dci_gpu_kv_store_free(s, shared);
        }
        return dci_gpu_kv_check_device(kv, dci_gpu_kv_store_upload(kv, s, stream, row, 0));
}

unsigned char *dci_gpu_kv_store_at(const dci_gpu_kv_store *s, size_t sparse, int32_t chunk)
{
        const size_t n = (size_t)1 << s->piece_shift;
        return s->pieces[(size_t)chunk >> s->piece_shift] +
               ((sparse << s->piece_shift) + ((size_t)chunk & (n - 1))) * s->chunk_bytes;
}

dci_gpu_chunks dci_gpu_kv_store_chunks(const dci_gpu_kv *kv, const dci_gpu_kv_store *s, size_t layer)
{
        return (dci_gpu_chunks){.pieces = s->device_pieces,
                                .numbers = s->device_numbers,
                                .stride = s->max_chunks,
                                .layer_at = (uint64_t)(kv->layers[layer].index << s->piece_shift) * s->chunk_bytes,
                                .chunk_bytes = s->chunk_bytes,
                                .head_bytes = (uint32_t)s->head_bytes,
                                .piece_shift = (int32_t)s->piece_shift};
}
