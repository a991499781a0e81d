/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Contiguous copies on the device. */
#include "core/internal.h"

#include <string.h>

#include "offload/copies.h"

#define UPLOAD_BYTES ((size_t)1 << 20)
#define CLUSTER_UNIT 2 /* 4 rows: a cluster of 80 brings 3 that nobody asked for */

/* --- sizes -------------------------------------------------------------------------------------------------------- */

int32_t dci_gpu_kv_copies_unit(const dci_kv_config *shape)
{
        int32_t shift = 0;
        while (((size_t)1 << shift) < shape->page_tokens)
                shift++;
        return shape->group == DCI_KV_GROUP_CLUSTER || shape->group == DCI_KV_GROUP_SEGMENT ? CLUSTER_UNIT : shift;
}

dci_status dci_gpu_kv_can_copy(const dci_kv_config *shape, const dci_gpu_kv_config *config)
{
        if (shape->contiguous == 0)
                return DCI_OK;
        if (config->gather != DCI_GPU_GATHER_MAPPED)
                return dci_fail(DCI_ERR_UNSUPPORTED,
                                "contiguous is 1, which needs gather %d (MAPPED), but gather is %d",
                                DCI_GPU_GATHER_MAPPED, (int)config->gather);
        if (config->device_resident_bytes > 0)
                return dci_fail(
                        DCI_ERR_UNSUPPORTED,
                        "contiguous is 1 and device_resident_bytes %zu, but resident pages are by position: use "
                        "one of them",
                        config->device_resident_bytes);
        return DCI_OK;
}

/* Blocks of the longest sequence. Cells of a tree may each have a page that is not full; there are as many cells as
 * candidates were promoted, half as many more are as good as impossible, and refused. */
static size_t max_blocks(const dci_gpu_kv *kv)
{
        const size_t n = kv->config.max_tokens, whole = dci_gpu_kv_blocks(kv, n);
        if (kv->shape.group != DCI_KV_GROUP_TREE)
                return whole;
        const size_t cells = (size_t)(1.5 * kv->shape.tree_promotion * (double)n) + 64, most = whole + cells;
        return most < n ? most : n;
}

void dci_gpu_kv_copies_init(dci_gpu_kv *kv)
{
        dci_gpu_kv_copies *c = kv->copies;
        const dci_kv_pool *pool = &kv->host->copies;
        if (!dci_kv_has_copies(kv->host))
                return;
        c->on = kv->host->makes_copies = true;
        c->max_blocks = max_blocks(kv);
        const size_t with_rows = kv->config.max_sequences * (c->max_blocks + 1) / pool->piece_blocks + 2,
                     all = (kv->config.max_sequences + DCI_GPU_KV_SWAPPED) * (c->max_blocks + 1) / pool->piece_blocks +
                           2;
        c->piece_capacity = all - with_rows < DCI_GPU_KV_MORE_PIECES ? all : with_rows + DCI_GPU_KV_MORE_PIECES;
        dci_gpu_kv_store_init(kv, &c->places, DCI_GPU_CHUNK * sizeof(int32_t), kv->config.max_tokens);
        c->upload_bytes = c->places.chunk_bytes > UPLOAD_BYTES ? c->places.chunk_bytes : UPLOAD_BYTES;
}

void dci_gpu_kv_copies_destroy(dci_gpu_kv *kv)
{
        dci_gpu_kv_store_destroy(kv, &kv->copies->places);
}

void dci_gpu_kv_copies_trim(dci_gpu_kv *kv)
{
        if (kv->copies->on)
                dci_gpu_kv_store_trim(kv, &kv->copies->places);
}

/* --- pieces ------------------------------------------------------------------------------------------------------- */

dci_status dci_gpu_kv_copies_taken(dci_gpu_kv *kv, void *memory, size_t n_bytes)
{
        dci_gpu_kv_copies *c = kv->copies;
        const size_t piece = dci_kv_pool_next_piece(&kv->host->copies);
        void *address = NULL;
        if (piece == c->piece_capacity)
                return dci_fail(
                        DCI_ERR_FULL,
                        "there are %zu pieces of memory for contiguous copies already, the most there can be for "
                        "max_sequences %zu, max_tokens %zu and sequences that are swapped out",
                        c->piece_capacity, kv->config.max_sequences, kv->config.max_tokens);
        DCI_TRY(kv->ops->pin(kv->gpu, memory, n_bytes, &address));
        c->pieces[piece] = address;
        c->n_pieces = piece < c->n_pieces ? c->n_pieces : piece + 1;
        c->n_uploaded = c->n_uploaded < piece ? c->n_uploaded : piece;
        c->n_bytes += n_bytes;
        return DCI_OK;
}

void dci_gpu_kv_copies_given_back(dci_gpu_kv *kv, void *memory, size_t n_bytes)
{
        dci_gpu_kv_copies *c = kv->copies;
        size_t piece = 0;
        while (kv->host->copies.pieces[piece] != memory)
                piece++;
        kv->ops->unpin(kv->gpu, memory);
        c->n_bytes -= n_bytes;
        c->pieces[piece] = NULL;
        while (c->n_pieces > 0 && c->pieces[c->n_pieces - 1] == NULL)
                c->n_pieces--;
        c->n_uploaded = c->n_uploaded < c->n_pieces ? c->n_uploaded : c->n_pieces;
}

/* --- kernel arguments --------------------------------------------------------------------------------------------- */

dci_gpu_pool dci_gpu_kv_copy_pool(const dci_gpu_kv *kv, size_t layer)
{
        const dci_kv_pool *pool = &kv->host->copies;
        const size_t page_bytes = kv->shape.page_tokens * kv->row_bytes;
        return (dci_gpu_pool){.pieces = kv->copies->device_pieces,
                              .layer_at = (uint64_t)kv->layers[layer].index * pool->piece_blocks * pool->block_bytes,
                              .block_bytes = pool->block_bytes,
                              .head_bytes = (uint32_t)(2 * page_bytes),
                              .value_at = (uint32_t)page_bytes,
                              .key_bytes = (uint32_t)kv->row_bytes,
                              .value_bytes = (uint32_t)kv->row_bytes,
                              .block_shift = (int32_t)pool->piece_shift,
                              .page_shift = kv->page_shift};
}

dci_gpu_tables dci_gpu_kv_copy_tables(const dci_gpu_kv *kv)
{
        return (dci_gpu_tables){kv->copies->device_tables, kv->copies->max_blocks};
}

dci_gpu_chunks dci_gpu_kv_places(const dci_gpu_kv *kv, size_t layer)
{
        return dci_gpu_kv_store_chunks(kv, &kv->copies->places, dci_kv_anchor_of(kv->host, layer));
}

size_t dci_gpu_kv_copies_count(const dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        return kv->copies->on && row->copied ? dci_gpu_kv_host_sequence(kv, row)->copy.n_places : 0;
}

/* --- places ------------------------------------------------------------------------------------------------------- */

typedef struct sending {
        dci_gpu_kv *kv;
        dci_gpu_kv_row *row;
        const dci_kv_sequence *sequence;
        const dci_kv_changes *changes;
        bool all;    /* the device has nothing of it */
        size_t used; /* of the locked buffer */
} sending;

static bool get_bit(const uint64_t *bits, size_t at)
{
        return (bits[at / 64] >> (at % 64) & 1) != 0;
}

static dci_status sent(sending *s)
{
        s->used = 0;
        return s->kv->ops->stream_wait(s->kv->gpu, s->kv->side);
}

/* Whether a layer has places of its own. */
static bool has_places(const dci_gpu_kv *kv, size_t layer)
{
        return !kv->layers[layer].dense && dci_kv_anchor_of(kv->host, layer) == layer;
}

static bool chunk_changed(const sending *s, size_t layer, size_t chunk)
{
        const size_t n_heads = s->kv->shape.n_kv_heads, first = s->kv->layers[layer].index * n_heads;
        bool some = false;
        if (s->changes->memory == NULL || !has_places(s->kv, layer))
                return false;
        for (size_t h = 0; h < n_heads && !some; h++)
                some = get_bit(s->changes->chunks + (first + h) * s->changes->chunk_words, chunk);
        return some;
}

static dci_status send_chunk(sending *s, size_t layer, size_t chunk)
{
        dci_gpu_kv *kv = s->kv;
        dci_gpu_kv_copies *c = kv->copies;
        const dci_gpu_kv_store *store = &c->places;
        const size_t index = kv->layers[layer].index, row = dci_gpu_kv_row_number(kv, s->row);
        if (s->used + store->chunk_bytes > c->upload_bytes)
                DCI_TRY(sent(s));
        unsigned char *by = c->upload + s->used;
        for (size_t h = 0; h < kv->shape.n_kv_heads; h++)
                memcpy(by + h * store->head_bytes,
                       dci_kv_copy_places(kv->host, s->sequence, index, h) + chunk * DCI_GPU_CHUNK, store->head_bytes);
        s->used += store->chunk_bytes;
        return kv->ops->copy(kv->gpu, kv->side,
                             dci_gpu_kv_store_at(store, index, dci_gpu_kv_store_numbers(store, row)[chunk]), by,
                             store->chunk_bytes);
}

/* Uploads a chunk of the layers that have changed it; of all, if other rows have shared it so far. */
static dci_status send_chunks(sending *s, size_t chunk, size_t before)
{
        dci_gpu_kv *kv = s->kv;
        dci_gpu_kv_store *store = &kv->copies->places;
        int32_t *number = dci_gpu_kv_store_numbers(store, dci_gpu_kv_row_number(kv, s->row)) + chunk;
        bool some = false, all = s->all || chunk >= before;
        for (size_t l = 0; l < kv->shape.n_layers && !some; l++)
                some = chunk_changed(s, l, chunk);
        if (!some && !all)
                return DCI_OK;
        if (store->refs[*number] > 1) {
                dci_gpu_kv_store_free(store, *number);
                *number = dci_gpu_kv_store_alloc(store); /* there is one */
                all = true;
        }
        for (size_t l = 0; l < kv->shape.n_layers; l++)
                if (has_places(kv, l) && (all || chunk_changed(s, l, chunk)))
                        DCI_GPU_KV_TRY(kv, send_chunk(s, l, chunk));
        return DCI_OK;
}

static dci_status send_places(sending *s)
{
        dci_gpu_kv *kv = s->kv;
        dci_gpu_kv_store *store = &kv->copies->places;
        const size_t row = dci_gpu_kv_row_number(kv, s->row), n = dci_gpu_kv_count_chunks(s->sequence->copy.n_places);
        const size_t before = store->n_chunks[row] < n ? store->n_chunks[row] : n;
        dci_gpu_kv_store_truncate(store, row, n);
        while (store->n_chunks[row] < n)
                dci_gpu_kv_store_numbers(store, row)[store->n_chunks[row]++] = dci_gpu_kv_store_alloc(store);
        for (size_t c = 0; c < n; c++)
                DCI_TRY(send_chunks(s, c, before));
        return dci_gpu_kv_check_device(kv, dci_gpu_kv_store_upload(kv, store, kv->side, row, 0));
}

/* --- units -------------------------------------------------------------------------------------------------------- */

static dci_status forget(sending *s, size_t n)
{
        dci_gpu_kv *kv = s->kv;
        const dci_gpu_forget_args args = {.changes = dci_gpu_kv_mapped(kv, kv->copies->changes),
                                          .n = (int32_t)n,
                                          .n_frames = (int32_t)kv->n_frames,
                                          .shift = kv->page_shift - kv->unit_shift,
                                          .tags = kv->tags};
        DCI_TRY(kv->ops->forget(kv->gpu, kv->side, &args));
        return sent(s);
}

/* Empties the frames of pages that have changed. */
static dci_status forget_pages(sending *s)
{
        dci_gpu_kv *kv = s->kv;
        const dci_kv_changes *c = s->changes;
        const size_t n_heads = kv->shape.n_kv_heads, row = dci_gpu_kv_row_number(kv, s->row);
        int32_t *changes = kv->copies->changes;
        size_t n = 0;
        for (size_t l = 0; l < kv->n_sparse * n_heads && kv->n_frames > 0; l++)
                for (size_t p = 0; p < 64 * c->page_words; p++) {
                        const uint64_t *bits = c->pages + l * c->page_words;
                        if (bits[p / 64] == 0)
                                p |= 63;
                        if (!get_bit(bits, p))
                                continue;
                        changes[2 * n] =
                                (int32_t)((l / n_heads * kv->config.max_sequences + row) * n_heads + l % n_heads);
                        changes[2 * n++ + 1] = (int32_t)p;
                        if (n == DCI_GPU_KV_CHANGES)
                                DCI_TRY(forget(s, n));
                        n = n == DCI_GPU_KV_CHANGES ? 0 : n;
                }
        return n > 0 ? forget(s, n) : DCI_OK;
}

/* --- a step ------------------------------------------------------------------------------------------------------- */

static dci_status send_table(sending *s)
{
        dci_gpu_kv *kv = s->kv;
        dci_gpu_kv_copies *c = kv->copies;
        const dci_kv_copy *copy = &s->sequence->copy;
        int32_t *table = c->tables + dci_gpu_kv_row_number(kv, s->row) * c->max_blocks;
        if (c->n_pieces > c->n_uploaded)
                DCI_TRY(kv->ops->copy(kv->gpu, kv->side, c->device_pieces + c->n_uploaded, c->pieces + c->n_uploaded,
                                      (c->n_pieces - c->n_uploaded) * sizeof(void *)));
        c->n_uploaded = c->n_pieces;
        if (copy->n_table == 0)
                return DCI_OK;
        memcpy(table, copy->table, copy->n_table * sizeof *table);
        return kv->ops->copy(kv->gpu, kv->side, c->device_tables + (table - c->tables), table,
                             copy->n_table * sizeof *table);
}

/* Makes room on the device. Chunks that other rows share may all change. */
static dci_status room_for(const sending *s)
{
        dci_gpu_kv *kv = s->kv;
        dci_gpu_kv_store *store = &kv->copies->places;
        const size_t row = dci_gpu_kv_row_number(kv, s->row), n = dci_gpu_kv_count_chunks(s->sequence->copy.n_places);
        if (s->sequence->copy.n_table > kv->copies->max_blocks)
                return dci_fail(DCI_ERR_FULL, "sequence %lld has %zu pages, but there is room for %zu",
                                (long long)s->row->id, s->sequence->copy.n_table, kv->copies->max_blocks);
        return dci_gpu_kv_store_ready(kv, store, dci_gpu_kv_store_missing(store, row, 0, n));
}

/* The hot buffer of a row whose places were never there is empty, unless sending them has failed. */
static dci_status send(sending *s)
{
        dci_gpu_kv *kv = s->kv;
        DCI_TRY(send_places(s));
        DCI_GPU_KV_TRY(kv, send_table(s));
        DCI_GPU_KV_TRY(kv, s->all ? dci_gpu_kv_clear_hot(kv, s->row) : forget_pages(s));
        return dci_gpu_kv_check_device(kv, sent(s));
}

/* optional: without memory the step can do. */
static dci_status update(dci_gpu_kv *kv, dci_gpu_kv_row *row, bool optional)
{
        dci_kv_changes changes;
        sending s = {.kv = kv, .row = row, .sequence = dci_gpu_kv_host_sequence(kv, row), .changes = &changes};
        s.all = !row->copied;
        if (row->copied && dci_kv_copies_current(kv->host, s.sequence))
                return DCI_OK;
        DCI_TRY(dci_gpu_kv_wait_rows(kv));
        row->copied = false;
        dci_may_fail(optional);
        dci_status status = dci_gpu_kv_check_host(kv, dci_kv_update_copies(kv->host, row->id, &changes));
        s.all = s.all || changes.all;
        if (status == DCI_OK)
                status = room_for(&s);
        dci_may_fail(false);
        if (status == DCI_OK)
                status = send(&s);
        dci_kv_free_changes(kv->host, &changes);
        row->copied = status == DCI_OK;
        return status;
}

dci_status dci_gpu_kv_copies_reserve(dci_gpu_kv *kv)
{
        for (size_t i = 0; i < kv->step.n && kv->copies->on; i++)
                DCI_TRY(update(kv, &kv->rows[kv->step.rows[i]], false));
        return DCI_OK;
}

dci_status dci_gpu_kv_copies_follow(dci_gpu_kv *kv)
{
        dci_status status = DCI_OK;
        for (size_t i = 0; i < kv->step.n && kv->copies->on && !kv->broken; i++)
                status = update(kv, &kv->rows[kv->step.rows[i]], true);
        return kv->broken ? status : DCI_OK;
}

/* --- sequences ---------------------------------------------------------------------------------------------------- */

void dci_gpu_kv_copies_fork(dci_gpu_kv *kv, const dci_gpu_kv_row *from, dci_gpu_kv_row *to)
{
        dci_gpu_kv_store *store = &kv->copies->places;
        const size_t here = dci_gpu_kv_row_number(kv, from), there = dci_gpu_kv_row_number(kv, to);
        if (!kv->copies->on || !from->copied)
                return;
        dci_gpu_kv_store_share(store, here, there, store->n_chunks[here]);
        to->copied = true;
}

void dci_gpu_kv_copies_leave(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        if (kv->copies->on)
                dci_gpu_kv_store_truncate(&kv->copies->places, dci_gpu_kv_row_number(kv, row), 0);
        row->copied = false;
}
