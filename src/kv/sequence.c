/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Sequences: open, fork, truncate, close, and what they hold. */
#include "core/internal.h"

#include <string.h>

#include "kv/chunk.h"
#include "kv/clusters.h"
#include "kv/contiguous.h"
#include "kv/geometry.h"
#include "kv/lookup.h"
#include "kv/memory.h"
#include "kv/pool.h"
#include "kv/sequence.h"
#include "kv/stages/reorder.h"
#include "kv/stages/schedule.h"
#include "kv/stages/summary_votes.h"
#include "kv/transform.h"
#include "kv/tree/tree.h"

static size_t layers_bytes(const dci_kv *kv)
{
        const size_t head = sizeof(dci_kv_head) + dci_kv_vote_counts_bytes(kv);
        return kv->config.n_layers * (sizeof(dci_kv_layer) + kv->config.n_kv_heads * head);
}

/* One array of three parts: sequences, and room for those of a call, twice. */
static dci_status more_sequences(dci_kv *kv)
{
        const size_t size = 3 * sizeof(void *), before = kv->sequence_capacity;
        if (kv->n_sequences < before)
                return DCI_OK;
        const size_t n = before == 0 ? 4 : 2 * before;
        dci_kv_sequence **larger;
        DCI_TRY(dci_kv_alloc(kv, n * size, (void **)&larger));
        if (before > 0)
                memcpy(larger, kv->sequences, kv->n_sequences * sizeof(void *));
        dci_kv_free(kv, kv->sequences, before * size);
        kv->sequences = larger;
        kv->found = larger + n;
        kv->late = larger + 2 * n;
        kv->sequence_capacity = n;
        return DCI_OK;
}

dci_status dci_kv_new_sequence(dci_kv *kv, dci_kv_sequence **out)
{
        dci_kv_sequence *sequence = NULL;
        if (kv->n_sequences == DCI_KV_MAX_SEQUENCES)
                return dci_fail(DCI_ERR_LIMIT, "there are %zu sequences already, the most there can be",
                                DCI_KV_MAX_SEQUENCES);
        DCI_TRY(more_sequences(kv));
        DCI_TRY(dci_kv_alloc(kv, sizeof *sequence, (void **)&sequence));
        *sequence = (dci_kv_sequence){.id = kv->next_id, .resident = kv->config.resident_bytes > 0};
        dci_status status = dci_kv_alloc(kv, layers_bytes(kv), (void **)&sequence->layers);
        if (status != DCI_OK) {
                dci_kv_free(kv, sequence, sizeof *sequence);
                return status;
        }
        memset(sequence->layers, 0, layers_bytes(kv));
        if (dci_kv_selection_cache_bytes(kv) > 0)
                status = dci_kv_alloc(kv, dci_kv_selection_cache_bytes(kv), (void **)&sequence->selection);
        if (status != DCI_OK) {
                dci_kv_free(kv, sequence->layers, layers_bytes(kv));
                dci_kv_free(kv, sequence, sizeof *sequence);
                return status;
        }
        dci_kv_head *heads = (dci_kv_head *)(void *)(sequence->layers + kv->config.n_layers);
        for (size_t i = 0; i < kv->config.n_layers; i++) {
                sequence->layers[i].heads = heads + i * kv->config.n_kv_heads;
                sequence->layers[i].sequence = sequence;
                sequence->layers[i].number = i;
        }
        unsigned char *counts = (unsigned char *)(heads + kv->config.n_layers * kv->config.n_kv_heads);
        for (size_t i = 0; i < kv->config.n_layers * kv->config.n_kv_heads && dci_kv_votes(kv); i++)
                heads[i].vote_counts = (uint32_t *)(void *)(counts + i * dci_kv_vote_counts_bytes(kv));
        dci_kv_place_selection_cache(kv, sequence);
        for (size_t i = 0; i < kv->config.n_layers; i++)
                if (sequence->layers[i].selection != NULL)
                        sequence->layers[i].selection->early = dci_kv_reorder_early(kv, i);
        kv->next_id++;
        kv->sequences[kv->n_sequences++] = sequence; /* ids ascend */
        *out = sequence;
        return DCI_OK;
}

static void free_layer(dci_kv *kv, dci_kv_layer *layer)
{
        dci_kv_reorder_drop(kv, layer);
        dci_kv_release_chunks(kv, layer, 0);
        dci_kv_release_clusters(kv, layer, 0);
        dci_kv_free(kv, layer->chunks, layer->chunk_capacity * sizeof(dci_kv_chunk *));
        dci_kv_free(kv, layer->batches, layer->batch_capacity * sizeof(dci_kv_clusters *));
        dci_kv_free(kv, layer->observed, layer->observed_bytes);
        dci_kv_free(kv, layer->boundaries, layer->boundary_capacity * sizeof *layer->boundaries);
        for (size_t h = 0; h < kv->config.n_kv_heads; h++) {
                dci_kv_head *head = &layer->heads[h];
                dci_kv_transform_release(kv, head->keys);
                dci_kv_transform_release(kv, head->values);
                dci_kv_free(kv, head->fixed, head->fixed_capacity * sizeof *head->fixed);
                dci_kv_tree_release(kv, head->tree);
        }
}

void dci_kv_free_sequence(dci_kv *kv, dci_kv_sequence *sequence)
{
        const size_t at = dci_kv_place_of(kv, sequence->id);
        dci_kv_jobs_cancel(kv, sequence, false);
        for (size_t i = 0; i < kv->config.n_layers; i++)
                free_layer(kv, &sequence->layers[i]);
        /* From the end: the next sequence gets them in the order that they were in. */
        dci_kv_truncate_table(kv, sequence, 0);
        dci_kv_free(kv, sequence->table, sequence->table_capacity * sizeof(int32_t));
        dci_kv_release_copies(kv, sequence);
        dci_kv_free(kv, sequence->selection, dci_kv_selection_cache_bytes(kv));
        dci_kv_free(kv, sequence->layers, layers_bytes(kv));
        dci_kv_free(kv, sequence, sizeof *sequence);
        kv->n_sequences--;
        memmove(kv->sequences + at, kv->sequences + at + 1, (kv->n_sequences - at) * sizeof(void *));
}

dci_status dci_kv_grow_table(dci_kv *kv, dci_kv_sequence *sequence, size_t n_blocks)
{
        void *table;
        DCI_TRY(dci_kv_grow_shared(kv, sequence->table, &sequence->table_capacity, n_blocks, sizeof(int32_t), &table));
        sequence->table = table;
        return DCI_OK;
}

void dci_kv_truncate_table(dci_kv *kv, dci_kv_sequence *sequence, size_t n_tokens)
{
        const size_t n = dci_kv_blocks_of(kv, n_tokens);
        while (sequence->n_table > n)
                dci_kv_pool_release(&kv->pool, sequence->table[--sequence->n_table]);
}

dci_status dci_kv_open(dci_kv *kv, int64_t *out_sequence)
{
        dci_kv_sequence *sequence = NULL;
        if (out_sequence == NULL)
                return dci_fail(DCI_ERR_INVALID, "out_sequence is NULL");
        DCI_TRY(dci_kv_lock(kv));
        dci_status status = dci_kv_new_sequence(kv, &sequence);
        if (status == DCI_OK && sequence != NULL)
                *out_sequence = sequence->id;
        dci_kv_unlock(kv);
        return status;
}

dci_status dci_kv_close(dci_kv *kv, int64_t sequence)
{
        DCI_TRY(dci_kv_lock(kv));
        dci_kv_sequence *found = dci_kv_find(kv, sequence);
        dci_status status = found == NULL ? DCI_ERR_NOT_FOUND : DCI_OK;
        if (status == DCI_OK)
                dci_kv_free_sequence(kv, found);
        dci_kv_unlock(kv);
        return status;
}

/* A sequence that may be cut to n tokens: no step is open, and prompts have ended or not begun. */
dci_status dci_kv_check_whole(const dci_kv *kv, const dci_kv_sequence *sequence, size_t n_tokens)
{
        (void)kv;
        if (sequence->open)
                return dci_fail(DCI_ERR_INVALID, "sequence %lld is in the middle of a step", (long long)sequence->id);
        if (n_tokens > sequence->n)
                return dci_fail(DCI_ERR_INVALID, "sequence %lld has %zu tokens, not %zu", (long long)sequence->id,
                                sequence->n, n_tokens);
        return DCI_OK;
}

/* Candidates that are left when a sequence is cut to n tokens. A partial last page, of a frozen prompt, goes when it is cut, and so does
 * a batch of listed groups. */
size_t dci_kv_grouped_within(const dci_kv *kv, const dci_kv_layer *layer, size_t n)
{
        const size_t whole = dci_kv_whole_within(kv, layer->n_grouped, n);
        if (!kv->clustered || whole == layer->n_grouped)
                return whole;
        const size_t left = dci_kv_clusters_within(layer, n > kv->config.sink ? n - kv->config.sink : 0);
        return left > 0 ? layer->batches[left - 1]->first + layer->batches[left - 1]->n : 0;
}

size_t dci_kv_fixed_within(const dci_kv *kv, const dci_kv_head *head, size_t n, int32_t *out)
{
        size_t kept = 0;
        for (size_t i = 0; i < head->n_fixed; i++) {
                if (kv->config.sink + (size_t)head->fixed[i] >= n)
                        continue;
                if (out != NULL)
                        out[kept] = head->fixed[i];
                kept++;
        }
        return kept;
}

/* Trees that lose candidates become the sequence's own before anything is cut. */
static dci_status own_trees(dci_kv *kv, const dci_kv_layer *layer, size_t n)
{
        const size_t n_left = dci_kv_grouped_within(kv, layer, n);
        for (size_t h = 0; h < kv->config.n_kv_heads; h++)
                if (layer->heads[h].tree != NULL && layer->heads[h].tree->n > n_left)
                        DCI_TRY(dci_kv_tree_own(kv, &layer->heads[h], n_left));
        return DCI_OK;
}

static void cut_layer(dci_kv *kv, dci_kv_layer *layer, size_t n)
{
        dci_kv_reorder_truncate(kv, layer, n);
        layer->n_grouped = dci_kv_grouped_within(kv, layer, n);
        layer->n_missing = layer->n_missing < layer->n_grouped ? layer->n_missing : layer->n_grouped;
        layer->copied = false;
        dci_kv_vote_truncate(kv, layer, layer->n_grouped);
        for (size_t h = 0; h < kv->config.n_kv_heads; h++)
                if (layer->heads[h].tree != NULL)
                        dci_kv_tree_truncate(kv, layer, h, layer->heads[h].tree, layer->n_grouped);
        layer->n = n;
        if (layer->n_prompt > n)
                layer->n_prompt = n;
        for (size_t h = 0; h < kv->config.n_kv_heads; h++)
                layer->heads[h].n_fixed = dci_kv_fixed_within(kv, &layer->heads[h], n, layer->heads[h].fixed);
        dci_kv_truncate_selection_cache(kv, layer, n);
        if (kv->clustered)
                dci_kv_release_clusters(kv, layer, dci_kv_clusters_within(layer, layer->n_grouped));
        else
                dci_kv_release_chunks(kv, layer, (layer->n_grouped + DCI_KV_CHUNK - 1) / DCI_KV_CHUNK);
}

dci_status dci_kv_truncate(dci_kv *kv, int64_t sequence, size_t n_tokens)
{
        DCI_TRY(dci_kv_lock(kv));
        dci_kv_sequence *found = dci_kv_find(kv, sequence);
        dci_status status = found == NULL ? DCI_ERR_NOT_FOUND : dci_kv_check_whole(kv, found, n_tokens);
        if (status == DCI_OK) {
                dci_kv_jobs_wait(kv, found);
                for (size_t i = 0; i < kv->config.n_layers && status == DCI_OK; i++)
                        status = own_trees(kv, &found->layers[i], n_tokens);
        }
        if (status == DCI_OK) {
                for (size_t i = 0; i < kv->config.n_layers; i++)
                        cut_layer(kv, &found->layers[i], n_tokens);
                found->n = n_tokens;
                dci_kv_truncate_table(kv, found, n_tokens);
                dci_kv_distrust_copies(kv, found, n_tokens);
        }
        dci_kv_unlock(kv);
        return status;
}

static dci_status fork_chunks(dci_kv *kv, const dci_kv_layer *from, size_t n_grouped, dci_kv_layer *to)
{
        const size_t n_chunks = (n_grouped + DCI_KV_CHUNK - 1) / DCI_KV_CHUNK;
        const dci_status status =
                dci_kv_grow(kv, (void **)&to->chunks, &to->chunk_capacity, n_chunks, sizeof(dci_kv_chunk *));
        for (size_t c = 0; c < n_chunks && status == DCI_OK; c++) {
                atomic_fetch_add(&from->chunks[c]->refs, 1);
                to->chunks[to->n_chunks++] = from->chunks[c];
        }
        return status;
}

static dci_status fork_batches(dci_kv *kv, const dci_kv_layer *from, size_t n_grouped, dci_kv_layer *to)
{
        const size_t n = dci_kv_clusters_within(from, n_grouped);
        const dci_status status = dci_kv_clusters_ready(kv, to, n);
        for (size_t b = 0; b < n && status == DCI_OK; b++) {
                atomic_fetch_add(&from->batches[b]->refs, 1);
                to->batches[to->n_batches++] = from->batches[b];
        }
        return status;
}

/* An empty transform is left by a maintenance that ran out of memory: it has no codes, and two heads would fill it in. */
static dci_kv_transform *made(dci_kv_transform *transform)
{
        return transform != NULL && transform->coder.dim != 0 ? transform : NULL;
}

/* Shares a layer's summaries that are within n tokens. */
static dci_status fork_layer(dci_kv *kv, const dci_kv_layer *from, size_t n, dci_kv_layer *to)
{
        const size_t n_grouped = dci_kv_grouped_within(kv, from, n);
        dci_status status =
                kv->clustered ? fork_batches(kv, from, n_grouped, to) : fork_chunks(kv, from, n_grouped, to);
        for (size_t h = 0; h < kv->config.n_kv_heads && status == DCI_OK; h++) {
                const dci_kv_head *source = &from->heads[h];
                dci_kv_head *head = &to->heads[h];
                if (source->n_fixed > 0)
                        status = dci_kv_grow(kv, (void **)&head->fixed, &head->fixed_capacity, source->n_fixed,
                                             sizeof *head->fixed);
                if (status != DCI_OK)
                        break;
                int32_t *fixed = head->fixed;
                uint32_t *counts = head->vote_counts;
                const size_t capacity = head->fixed_capacity;
                *head = *source;
                head->fixed = fixed;
                head->fixed_capacity = capacity;
                head->vote_counts = counts;
                head->n_counted = 0;
                head->keys = made(source->keys);
                head->values = made(source->values);
                head->n_plans = head->n_decisions = head->n_corrections = 0;
                head->n_fixed = dci_kv_fixed_within(kv, source, n, fixed);
                status = dci_kv_tree_share(kv, from, h, n_grouped, &head->tree);
                if (head->keys != NULL)
                        atomic_fetch_add(&head->keys->refs, 1);
                if (head->values != NULL)
                        atomic_fetch_add(&head->values->refs, 1);
        }
        to->n = n;
        to->n_grouped = n_grouped;
        atomic_store(&to->prompt, atomic_load(&from->prompt));
        to->n_prompt = from->n_prompt < n ? from->n_prompt : n;
        to->n_static = from->n_static;
        to->prompt_due = from->prompt_due;
        to->n_missing = from->n_missing < n_grouped ? from->n_missing : n_grouped;
        return status == DCI_OK ? dci_kv_copy_selection_cache(kv, from, n, to) : status;
}

/* A partial last block is copied: both sequences will write after n. */
static dci_status fork_table(dci_kv *kv, const dci_kv_sequence *from, size_t n, dci_kv_sequence *to)
{
        const size_t per_page = kv->config.page_tokens, whole = n / per_page, n_blocks = dci_kv_blocks_of(kv, n);
        if (n_blocks > whole && kv->pool.caller_blocks)
                return dci_fail(DCI_ERR_UNSUPPORTED,
                                "a fork at %zu tokens cuts through a block of %zu, which the caller's blocks cannot be "
                                "copied from: fork at whole blocks",
                                n, per_page);
        DCI_TRY(dci_kv_grow_table(kv, to, n_blocks));
        if (n_blocks > whole)
                DCI_TRY(dci_kv_pool_ready(kv, &kv->pool, 1));
        for (size_t b = 0; b < whole; b++) {
                dci_kv_pool_retain(&kv->pool, from->table[b]);
                to->table[to->n_table++] = from->table[b];
        }
        if (n_blocks == whole)
                return DCI_OK;
        to->table[to->n_table++] = dci_kv_pool_alloc(&kv->pool);
        dci_kv_copy_rows(kv, from->table[whole], to->table[whole], n - whole * per_page);
        return DCI_OK;
}

dci_status dci_kv_check_prompted(const dci_kv *kv, const dci_kv_sequence *sequence)
{
        for (size_t i = 0; i < kv->config.n_layers; i++)
                if (sequence->layers[i].prompt == DCI_KV_PROMPT_OPEN)
                        return dci_fail(DCI_ERR_INVALID, "sequence %lld: the prompt has not ended in layer %zu",
                                        (long long)sequence->id, i);
        return DCI_OK;
}

static dci_status fork_sequence(dci_kv *kv, dci_kv_sequence *from, size_t n, int64_t *out)
{
        dci_kv_sequence *to = NULL;
        dci_status status = dci_kv_check_prompted(kv, from);
        dci_kv_jobs_wait(kv, from);
        if (status == DCI_OK)
                status = dci_kv_new_sequence(kv, &to);
        if (status != DCI_OK || to == NULL)
                return status;
        status = fork_table(kv, from, n, to);
        for (size_t i = 0; i < kv->config.n_layers && status == DCI_OK; i++)
                status = fork_layer(kv, &from->layers[i], n, &to->layers[i]);
        if (status == DCI_OK)
                status = dci_kv_fork_copies(kv, from, n, to);
        if (status != DCI_OK) {
                dci_kv_free_sequence(kv, to);
                return status;
        }
        to->n = n;
        to->resident = from->resident;
        *out = to->id;
        return DCI_OK;
}

dci_status dci_kv_fork(dci_kv *kv, int64_t sequence, size_t n_tokens, int64_t *out_sequence)
{
        if (out_sequence == NULL)
                return dci_fail(DCI_ERR_INVALID, "out_sequence is NULL");
        DCI_TRY(dci_kv_lock(kv));
        dci_kv_sequence *from = dci_kv_find(kv, sequence);
        dci_status status = from == NULL ? DCI_ERR_NOT_FOUND : dci_kv_check_whole(kv, from, n_tokens);
        if (status == DCI_OK)
                status = fork_sequence(kv, from, n_tokens, out_sequence);
        dci_kv_unlock(kv);
        return status;
}

dci_status dci_kv_table(dci_kv *kv, int64_t sequence, size_t first, size_t n, int32_t *out_blocks)
{
        DCI_TRY(dci_kv_lock(kv));
        const dci_kv_sequence *found = dci_kv_find(kv, sequence);
        dci_status status = found == NULL ? DCI_ERR_NOT_FOUND : DCI_OK;
        if (status == DCI_OK && (first > found->n_table || n > found->n_table - first))
                status = dci_fail(DCI_ERR_INVALID, "sequence %lld has %zu blocks, not %zu", (long long)sequence,
                                  found->n_table, first + n);
        if (status == DCI_OK && n > 0 && out_blocks == NULL)
                status = dci_fail(DCI_ERR_INVALID, "out_blocks is NULL");
        if (status == DCI_OK && n > 0 && out_blocks != NULL)
                memcpy(out_blocks, found->table + first, n * sizeof *out_blocks);
        dci_kv_unlock(kv);
        return status;
}

static dci_status check_read(const dci_kv *kv, size_t layer, const dci_kv_sequence *sequence, size_t kv_head,
                             size_t first, size_t n)
{
        if (layer >= kv->config.n_layers)
                return dci_fail(DCI_ERR_INVALID, "layer is %zu, expected less than %zu", layer, kv->config.n_layers);
        if (kv_head >= kv->config.n_kv_heads)
                return dci_fail(DCI_ERR_INVALID, "kv_head is %zu, expected less than %zu", kv_head,
                                kv->config.n_kv_heads);
        const size_t there = sequence->layers[layer].n;
        if (first > there || n > there - first)
                return dci_fail(DCI_ERR_INVALID, "sequence %lld has %zu tokens in layer %zu, not %zu",
                                (long long)sequence->id, there, layer, first + n);
        return DCI_OK;
}

dci_status dci_kv_read(dci_kv *kv, size_t layer, int64_t sequence, size_t kv_head, size_t first, size_t n,
                       void *out_keys, void *out_values)
{
        DCI_TRY(dci_kv_lock(kv));
        const dci_kv_sequence *found = dci_kv_find(kv, sequence);
        dci_status status = found == NULL ? DCI_ERR_NOT_FOUND : check_read(kv, layer, found, kv_head, first, n);
        for (size_t i = 0; i < n && status == DCI_OK; i++) {
                const void *key, *value;
                dci_kv_rows_of(kv, &found->layers[layer], kv_head, first + i, 1, &key, &value);
                if (out_keys != NULL)
                        memcpy((unsigned char *)out_keys + i * kv->dim_k * kv->es, key, kv->dim_k * kv->es);
                if (out_values != NULL)
                        memcpy((unsigned char *)out_values + i * kv->dim_v * kv->es, value, kv->dim_v * kv->es);
        }
        dci_kv_unlock(kv);
        return status;
}
