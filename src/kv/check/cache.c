/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* dci_kv_check: blocks and who has them, sequences, and how often what forks share is counted. */
#include "core/internal.h"

#include <stdlib.h>
#include <string.h>

#include "kv/check/check.h"
#include "kv/clusters.h"
#include "kv/contiguous.h"
#include "kv/geometry.h"
#include "kv/pool.h"
#include "kv/worker.h"

/* --- blocks ------------------------------------------------------------------------------------------------------- */

static dci_status check_pool(const dci_kv_pool *pool, size_t n_bytes)
{
        if (pool->n_blocks > pool->max_blocks || pool->n_free > pool->n_blocks ||
            pool->block_capacity < pool->n_blocks || (pool->n_free > 0 && pool->free_capacity < pool->n_free))
                return dci_fail(
                        DCI_ERR_FORMAT, "%zu blocks of at most %zu, %zu of them free, with room for %zu and %zu",
                        pool->n_blocks, pool->max_blocks, pool->n_free, pool->block_capacity, pool->free_capacity);
        if (pool->block_bytes == 0)
                return DCI_OK;
        if (pool->n_pieces > pool->piece_capacity || dci_kv_pool_blocks(pool, pool->n_pieces) != pool->n_blocks ||
            pool->n_gaps > pool->n_pieces || (pool->n_pieces - pool->n_gaps) * pool->piece_bytes != n_bytes)
                return dci_fail(
                        DCI_ERR_FORMAT,
                        "%zu pieces, %zu of them gaps, of %zu blocks and %zu bytes for %zu blocks and %zu bytes",
                        pool->n_pieces, pool->n_gaps, pool->piece_blocks, pool->piece_bytes, pool->n_blocks, n_bytes);
        return DCI_OK;
}

/* Blocks of one table, each once. */
static dci_status check_blocks(const dci_kv_pool *pool, const dci_kv_sequence *sequence, const int32_t *table, size_t n,
                               uint32_t *counts, dci_kv_marks *marks)
{
        DCI_TRY(dci_kv_marks_clear(marks, pool->n_blocks));
        for (size_t b = 0; b < n; b++) {
                const int32_t block = table[b];
                if (block < 0 || (size_t)block >= pool->n_blocks || !dci_kv_mark(marks, (size_t)block))
                        return dci_fail(DCI_ERR_FORMAT, "sequence %lld has block %d of %zu, which is not, or twice",
                                        (long long)sequence->id, (int)block, pool->n_blocks);
                counts[block]++;
        }
        return DCI_OK;
}

static dci_status check_table(const dci_kv *kv, const dci_kv_sequence *sequence, uint32_t *counts, dci_kv_marks *marks)
{
        const size_t n = dci_kv_blocks_of(kv, sequence->n + sequence->n_reserved);
        if (sequence->n_table > sequence->table_capacity || sequence->n_table < n ||
            (sequence->n_table > n && !kv->pool.caller_blocks))
                return dci_fail(DCI_ERR_FORMAT, "sequence %lld has %zu tokens and %zu reserved in %zu blocks of %zu",
                                (long long)sequence->id, sequence->n, sequence->n_reserved, sequence->n_table,
                                kv->config.page_tokens);
        return check_blocks(&kv->pool, sequence, sequence->table, sequence->n_table, counts, marks);
}

/* Every block is had by as many tables as it is counted for, and is free if by none. */
static dci_status check_owners(const dci_kv_pool *pool, const uint32_t *counts, dci_kv_marks *marks)
{
        size_t used = 0;
        for (size_t b = 0; b < pool->n_blocks; b++) {
                if (pool->refs[b] != counts[b])
                        return dci_fail(DCI_ERR_FORMAT, "block %zu is counted %u times, but %u sequences have it", b,
                                        (unsigned)pool->refs[b], (unsigned)counts[b]);
                used += counts[b] > 0;
        }
        DCI_TRY(dci_kv_marks_clear(marks, pool->n_blocks));
        for (size_t i = 0; i < pool->n_free; i++) {
                const int32_t block = pool->free_list[i];
                if (block < 0 || (size_t)block >= pool->n_blocks || !dci_kv_mark(marks, (size_t)block) ||
                    counts[block] > 0)
                        return dci_fail(DCI_ERR_FORMAT, "block %d is listed as free, and is in use, or twice",
                                        (int)block);
        }
        if (!pool->caller_blocks && used + pool->n_free != dci_kv_pool_there(pool))
                return dci_fail(DCI_ERR_FORMAT, "of %zu blocks %zu are in use and %zu free: the others are lost",
                                dci_kv_pool_there(pool), used, pool->n_free);
        return DCI_OK;
}

/* --- sequences ---------------------------------------------------------------------------------------------------- */

static dci_status check_sequence(const dci_kv *kv, const dci_kv_sequence *sequence, dci_kv_marks *marks)
{
        if (sequence->n > DCI_KV_MAX_TOKENS || (!sequence->open && sequence->n_reserved > 0))
                return dci_fail(DCI_ERR_FORMAT, "sequence %lld has %zu tokens, and %zu reserved without a step",
                                (long long)sequence->id, sequence->n, sequence->n_reserved);
        for (size_t l = 0; l < kv->config.n_layers; l++) {
                const dci_kv_layer *layer = &sequence->layers[l];
                if (layer->number != l || layer->sequence != sequence)
                        return dci_fail(DCI_ERR_FORMAT, "layer %zu of sequence %lld says that it is number %zu", l,
                                        (long long)sequence->id, layer->number);
                DCI_TRY(dci_kv_check_layer(kv, sequence, layer, marks));
        }
        return DCI_OK;
}

static dci_status check_sequences(const dci_kv *kv, uint32_t *counts, dci_kv_marks *marks)
{
        if (kv->n_sequences > kv->sequence_capacity)
                return dci_fail(DCI_ERR_FORMAT, "%zu sequences, but room for %zu", kv->n_sequences,
                                kv->sequence_capacity);
        for (size_t i = 0; i < kv->n_sequences; i++) {
                const dci_kv_sequence *sequence = kv->sequences[i];
                if (sequence->id >= kv->next_id || (i > 0 && sequence->id <= kv->sequences[i - 1]->id))
                        return dci_fail(DCI_ERR_FORMAT, "sequence %zu of %zu is number %lld, the next will be %lld", i,
                                        kv->n_sequences, (long long)sequence->id, (long long)kv->next_id);
                DCI_TRY(check_table(kv, sequence, counts, marks));
                DCI_TRY(check_sequence(kv, sequence, marks));
        }
        return check_owners(&kv->pool, counts, marks);
}

/* --- contiguous copies -------------------------------------------------------------------------------------------- */

/* The copy of one layer and head has the candidates of the lists, whose places say so. */
static dci_status check_copy(const dci_kv *kv, const dci_kv_sequence *sequence, size_t layer, size_t head)
{
        const size_t owner = dci_kv_anchor_of(kv, layer), per_page = kv->config.page_tokens;
        const size_t copied = dci_kv_copied_number(kv, layer);
        const int32_t *places = dci_kv_copy_places(kv, sequence, dci_kv_copied_number(kv, owner), head);
        int32_t wanted[DCI_KV_TILE];
        size_t batch = 0;
        for (size_t p = 0; p < sequence->copy.n_table; p++) {
                const int32_t *there = dci_kv_copy_ids(kv, copied, sequence->copy.table[p], head);
                dci_kv_listed_page(kv, &sequence->layers[owner], head, p, &batch, wanted);
                for (size_t i = 0; i < per_page; i++)
                        if (there[i] != wanted[i] || (there[i] >= 0 && places[there[i]] != (int32_t)(p * per_page + i)))
                                return dci_fail(DCI_ERR_FORMAT,
                                                "sequence %lld, layer %zu, kv head %zu: row %zu of the copy is of "
                                                "candidate %d, expected %d",
                                                (long long)sequence->id, layer, head, p * per_page + i, (int)there[i],
                                                (int)wanted[i]);
        }
        return DCI_OK;
}

static dci_status check_copies(const dci_kv *kv, uint32_t *counts, dci_kv_marks *marks)
{
        for (size_t i = 0; i < kv->n_sequences; i++) {
                const dci_kv_sequence *sequence = kv->sequences[i];
                const dci_kv_copy *copy = &sequence->copy;
                if (copy->n_table > copy->table_capacity || copy->n_places > copy->place_capacity)
                        return dci_fail(DCI_ERR_FORMAT,
                                        "sequence %lld has %zu pages and %zu places, but room for %zu, %zu",
                                        (long long)sequence->id, copy->n_table, copy->n_places, copy->table_capacity,
                                        copy->place_capacity);
                DCI_TRY(check_blocks(&kv->copies, sequence, copy->table, copy->n_table, counts, marks));
                if (!dci_kv_copies_current(kv, sequence))
                        continue;
                for (size_t l = 0; l < kv->config.n_layers; l++)
                        for (size_t h = 0; h < kv->config.n_kv_heads && kv->layer_modes[l] == DCI_KV_LAYER_SPARSE; h++)
                                DCI_TRY(check_copy(kv, sequence, l, h));
        }
        return check_owners(&kv->copies, counts, marks);
}

/* --- what forks share --------------------------------------------------------------------------------------------- */

/* One holding of something with a counted reference, which its struct begins with. */
typedef struct holding {
        const atomic_size_t *refs;
        const char *what;
        size_t n_bytes; /* that count as summaries */
        int64_t sequence;
        size_t layer;
} holding;

static void hold(holding *out, size_t *n, const void *thing, const char *what, size_t n_bytes,
                 const dci_kv_layer *layer)
{
        if (thing == NULL)
                return;
        if (out != NULL)
                out[*n] = (holding){thing, what, n_bytes, layer->sequence->id, layer->number};
        ++*n;
}

/* All there are; returns how many. */
static size_t gather(const dci_kv *kv, holding *out)
{
        size_t n = 0;
        for (size_t i = 0; i < kv->n_sequences; i++)
                for (size_t l = 0; l < kv->config.n_layers; l++) {
                        const dci_kv_layer *layer = &kv->sequences[i]->layers[l];
                        for (size_t c = 0; c < layer->n_chunks; c++)
                                hold(out, &n, layer->chunks[c], "a chunk", kv->chunk_bytes, layer);
                        for (size_t b = 0; b < layer->n_batches; b++)
                                hold(out, &n, layer->batches[b], "a batch", layer->batches[b]->n_bytes, layer);
                        const dci_kv_reorder *order = layer->reorder;
                        for (size_t b = 0; order != NULL && b < order->n_from; b++)
                                hold(out, &n, order->from[b], "a batch", order->from[b]->n_bytes, layer);
                        if (order != NULL && order->batch != NULL)
                                hold(out, &n, order->batch, "a batch", order->batch->n_bytes, layer);
                        for (size_t h = 0; h < kv->config.n_kv_heads; h++) {
                                const dci_kv_head *head = &layer->heads[h];
                                hold(out, &n, head->keys, "a transform of keys", 0, layer);
                                hold(out, &n, head->values, "a transform of values", 0, layer);
                                hold(out, &n, head->tree, "a tree", head->tree != NULL ? head->tree->n_bytes : 0,
                                     layer);
                        }
                }
        return n;
}

static int by_address(const void *a, const void *b)
{
        const uintptr_t x = (uintptr_t)((const holding *)a)->refs, y = (uintptr_t)((const holding *)b)->refs;
        return (x > y) - (x < y);
}

static dci_status check_shared(const dci_kv *kv)
{
        const size_t n = gather(kv, NULL);
        size_t n_bytes = 0;
        holding *all = dci_alloc(kv->context, n, sizeof *all);
        dci_status status = all == NULL ? DCI_ERR_MEMORY : DCI_OK;
        if (status == DCI_OK) {
                gather(kv, all);
                qsort(all, n, sizeof *all, by_address);
        }
        for (size_t i = 0, end; i < n && status == DCI_OK; i = end) {
                for (end = i + 1; end < n && all[end].refs == all[i].refs; end++)
                        continue;
                const size_t refs = atomic_load((atomic_size_t *)(uintptr_t)all[i].refs);
                if (refs != end - i)
                        status = dci_fail(DCI_ERR_FORMAT,
                                          "%s of sequence %lld, layer %zu, is counted %zu times, but %zu have it",
                                          all[i].what, (long long)all[i].sequence, all[i].layer, refs, end - i);
                n_bytes += all[i].n_bytes;
        }
        dci_free(kv->context, all, n, sizeof *all);
        if (status != DCI_OK)
                return status;
        const size_t said = atomic_load(&((dci_kv *)(uintptr_t)kv)->chunk_total);
        const size_t bytes = atomic_load(&((dci_kv *)(uintptr_t)kv)->bytes);
        if (n_bytes != said || said + kv->row_bytes + kv->copy_bytes > bytes)
                return dci_fail(
                        DCI_ERR_FORMAT,
                        "summaries take %zu bytes and rows %zu, but %zu are counted as summaries and %zu in all",
                        n_bytes, kv->row_bytes, said, bytes);
        return DCI_OK;
}

/* --- the call ----------------------------------------------------------------------------------------------------- */

static dci_status check_structure(const dci_kv *kv)
{
        dci_kv_marks marks = {.context = kv->context};
        DCI_TRY(check_pool(&kv->pool, kv->row_bytes));
        DCI_TRY(check_pool(&kv->copies, kv->copy_bytes));
        const size_t n_blocks = kv->pool.n_blocks + kv->copies.n_blocks;
        uint32_t *counts = dci_calloc(kv->context, n_blocks, sizeof *counts);
        dci_status status = counts == NULL ? DCI_ERR_MEMORY : check_sequences(kv, counts, &marks);
        if (status == DCI_OK)
                status = check_copies(kv, counts + kv->pool.n_blocks, &marks);
        dci_kv_marks_free(&marks);
        dci_free(kv->context, counts, n_blocks, sizeof *counts);
        return status == DCI_OK ? check_shared(kv) : status;
}

dci_status dci_kv_check(dci_kv *kv, int32_t level, const dci_progress *progress)
{
        DCI_TRY(dci_kv_lock(kv));
        if (level != DCI_CHECK_STRUCTURE && level != DCI_CHECK_FULL) {
                dci_kv_unlock(kv);
                return dci_fail(DCI_ERR_INVALID, "level is %d, expected DCI_CHECK_STRUCTURE or DCI_CHECK_FULL",
                                (int)level);
        }
        dci_kv_jobs_wait(kv, NULL);
        dci_status status = check_structure(kv);
        /* Rows and summaries of a device's cache come to the host when they are asked for. */
        if (status == DCI_OK && level == DCI_CHECK_FULL && kv->former.host_plans)
                status = dci_kv_check_recompute(kv, progress);
        dci_kv_unlock(kv);
        return status;
}
