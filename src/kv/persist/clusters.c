/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Clusters in a file: their members, and where later segments will end. Their summaries are computed again. */
#include "core/internal.h"

#include <inttypes.h>
#include <string.h>

#include "kv/clustering.h"
#include "kv/geometry.h"
#include "kv/memory.h"
#include "kv/persist/persist.h"
#include "kv/sequence.h"

/* --- saving ------------------------------------------------------------------------------------------------------- */

/* Batches of a layer that are within the first n tokens. */
static size_t within(const dci_kv *kv, const dci_kv_layer *layer, size_t n)
{
        return dci_kv_clusters_within(layer, dci_kv_grouped_within(kv, layer, n));
}

/* Boundaries before token n. */
static size_t turns_within(const dci_kv_layer *layer, size_t n)
{
        size_t i = layer->n_boundaries;
        while (i > 0 && (size_t)layer->boundaries[i - 1] >= n)
                i--;
        return i;
}

size_t dci_kv_clusters_bytes(const dci_kv *kv, const dci_kv_sequence *sequence, size_t n)
{
        size_t words = 0;
        for (size_t l = 0; l < kv->config.n_layers; l++) {
                const dci_kv_layer *layer = &sequence->layers[l];
                words += 1 + dci_kv_reorders(kv);
                if (kv->config.group == DCI_KV_GROUP_SEGMENT)
                        words += 1 + turns_within(layer, n);
                for (size_t b = 0; b < within(kv, layer, n); b++) {
                        words += 1 + dci_kv_reorders(kv);
                        for (size_t h = 0; h < kv->config.n_kv_heads; h++)
                                words += 1 + layer->batches[b]->heads[h].n_groups + layer->batches[b]->n;
                }
        }
        return words * sizeof(uint32_t);
}

static dci_status put_word(const dci_sink *sink, size_t word)
{
        unsigned char out[4];
        dci_store_le32(out, (uint32_t)word);
        return sink->write(sink->ctx, out, sizeof out);
}

static dci_status emit_head(const dci_kv *kv, const dci_kv_clusters *batch, size_t head, const dci_sink *sink)
{
        const int32_t *offsets = dci_kv_cluster_offsets(kv, batch, head), *ids = dci_kv_cluster_ids(kv, batch, head);
        const size_t n_groups = batch->heads[head].n_groups;
        DCI_TRY(put_word(sink, n_groups));
        for (size_t g = 0; g < n_groups; g++)
                DCI_TRY(put_word(sink, (size_t)(offsets[g + 1] - offsets[g])));
        for (size_t i = 0; i < batch->n; i++)
                DCI_TRY(put_word(sink, (size_t)ids[i]));
        return DCI_OK;
}

static dci_status emit_turns(const dci_kv_layer *layer, size_t n, const dci_sink *sink)
{
        const size_t n_turns = turns_within(layer, n);
        DCI_TRY(put_word(sink, n_turns));
        for (size_t i = 0; i < n_turns; i++)
                DCI_TRY(put_word(sink, (size_t)layer->boundaries[i]));
        return DCI_OK;
}

dci_status dci_kv_emit_clusters(const dci_kv *kv, const dci_kv_sequence *sequence, size_t n, const dci_sink *sink)
{
        for (size_t l = 0; l < kv->config.n_layers; l++) {
                const dci_kv_layer *layer = &sequence->layers[l];
                const size_t n_batches = within(kv, layer, n);
                DCI_TRY(put_word(sink, n_batches));
                if (dci_kv_reorders(kv))
                        DCI_TRY(put_word(sink, layer->n_static));
                for (size_t b = 0; b < n_batches; b++) {
                        DCI_TRY(put_word(sink, layer->batches[b]->n));
                        if (dci_kv_reorders(kv))
                                DCI_TRY(put_word(sink, layer->batches[b]->n_static));
                        for (size_t h = 0; h < kv->config.n_kv_heads; h++)
                                DCI_TRY(emit_head(kv, layer->batches[b], h, sink));
                }
                if (kv->config.group == DCI_KV_GROUP_SEGMENT)
                        DCI_TRY(emit_turns(layer, n, sink));
        }
        return DCI_OK;
}

/* --- loading ------------------------------------------------------------------------------------------------------ */

static dci_status take_word(dci_kv_words *words, size_t *out)
{
        if (words->left < 4)
                return dci_fail(DCI_ERR_FORMAT, "the file's section 'groups' is too short");
        *out = dci_load_le32(words->at);
        words->at += 4;
        words->left -= 4;
        return DCI_OK;
}

/* The greatest number of groups that a head has in the batch of n candidates that follows; lengths are sound afterwards. */
static dci_status find_room(const dci_kv *kv, dci_kv_words words, size_t n, size_t *out_room)
{
        *out_room = 0;
        for (size_t h = 0; h < kv->config.n_kv_heads; h++) {
                size_t n_groups = 0;
                DCI_TRY(take_word(&words, &n_groups));
                if (n_groups == 0 || n_groups > n)
                        return dci_fail(DCI_ERR_FORMAT, "the file has %zu groups of %zu tokens", n_groups, n);
                if (words.left / 4 < n_groups + n)
                        return dci_fail(DCI_ERR_FORMAT, "the file's section 'groups' is too short");
                words.at += 4 * (n_groups + n);
                words.left -= 4 * (n_groups + n);
                *out_room = n_groups > *out_room ? n_groups : *out_room;
        }
        return DCI_OK;
}

/* All pages but the last one are full. */
static dci_status check_pages(const dci_kv *kv, size_t n_groups, const int32_t *offsets, size_t n)
{
        const size_t per_page = kv->config.page_tokens;
        bool full = n_groups == (n + per_page - 1) / per_page;
        for (size_t g = 0; g < n_groups && full; g++)
                full = (size_t)offsets[g] == g * per_page;
        return full ? DCI_OK
                    : dci_fail(DCI_ERR_FORMAT, "the file's %zu groups of %zu tokens are not pages of %zu", n_groups, n,
                               per_page);
}

/* How many tokens come first in an order. */
static dci_status load_static(const dci_kv *kv, dci_kv_words *words, size_t n, size_t *out)
{
        *out = 0;
        const dci_status status = dci_kv_reorders(kv) ? take_word(words, out) : DCI_OK;
        if (status != DCI_OK || (*out <= n && *out % kv->config.page_tokens == 0))
                return status;
        return dci_fail(DCI_ERR_FORMAT, "the file has %zu static tokens of %zu, in pages of %zu", *out, n,
                        kv->config.page_tokens);
}

/* Every candidate of the batch is in one group, and groups are ascending. seen: a bit for each. */
static dci_status load_head(const dci_kv *kv, dci_kv_words *words, dci_kv_clusters *batch, size_t head, uint64_t *seen)
{
        int32_t *offsets = dci_kv_cluster_offsets(kv, batch, head), *ids = dci_kv_cluster_ids(kv, batch, head);
        size_t n_groups = 0, word = 0, sum = 0;
        dci_status status = take_word(words, &n_groups);
        offsets[0] = 0;
        for (size_t g = 0; g < n_groups && status == DCI_OK; g++) {
                status = take_word(words, &word);
                if (word == 0 || word > batch->n - sum)
                        return dci_fail(DCI_ERR_FORMAT, "group %zu of the file has %zu of %zu tokens", g, word,
                                        batch->n);
                sum += word;
                offsets[g + 1] = (int32_t)sum;
        }
        if (status == DCI_OK && dci_kv_reorders(kv))
                status = check_pages(kv, n_groups, offsets, batch->n);
        if (status == DCI_OK && sum != batch->n)
                return dci_fail(DCI_ERR_FORMAT, "groups of the file have %zu of %zu tokens", sum, batch->n);
        memset(seen, 0, (batch->n + 63) / 64 * sizeof *seen);
        for (size_t i = 0, g = 0; i < batch->n && status == DCI_OK; i++) {
                status = take_word(words, &word);
                const size_t at = word - batch->first;
                if (word < batch->first || at >= batch->n || (seen[at / 64] >> (at % 64) & 1) != 0)
                        return dci_fail(DCI_ERR_FORMAT,
                                        "a group of the file has token %zu, expected each of %zu to %zu", word,
                                        batch->first, batch->first + batch->n - 1);
                if (i == (size_t)offsets[g + 1])
                        g++;
                if (i > (size_t)offsets[g] && (int32_t)word < ids[i - 1] && !dci_kv_reorders(kv))
                        return dci_fail(DCI_ERR_FORMAT, "token %zu of a group of the file comes after token %d", word,
                                        (int)ids[i - 1]);
                seen[at / 64] |= UINT64_C(1) << (at % 64);
                ids[i] = (int32_t)word;
        }
        batch->heads[head].n_groups = n_groups;
        return status;
}

static dci_status load_batch(dci_kv *kv, dci_kv_layer *layer, dci_kv_words *words, size_t first, size_t n,
                             size_t n_static)
{
        const size_t bits = (n + 63) / 64 * sizeof(uint64_t);
        dci_kv_clusters *batch = NULL;
        void *seen = NULL;
        size_t room;
        dci_status status = find_room(kv, *words, n, &room);
        if (status == DCI_OK)
                status = dci_kv_clustering_ready(kv, n);
        if (status == DCI_OK)
                status = dci_kv_clusters_ready(kv, layer, layer->n_batches + 1);
        if (status == DCI_OK)
                status = dci_kv_alloc(kv, bits, &seen);
        if (status == DCI_OK)
                status = dci_kv_clusters_alloc(kv, first, n, room, &batch);
        for (size_t h = 0; h < kv->config.n_kv_heads && status == DCI_OK; h++)
                status = load_head(kv, words, batch, h, seen);
        dci_kv_free(kv, seen, bits);
        if (batch != NULL)
                batch->n_static = n_static;
        if (status == DCI_OK)
                dci_kv_clusters_publish(kv, layer, batch);
        else
                dci_kv_clusters_release(kv, batch);
        return status;
}

/* Ascending tokens after the sink. */
static dci_status load_turns(dci_kv *kv, dci_kv_layer *layer, dci_kv_words *words)
{
        size_t n = 0, least = kv->config.sink, word = 0;
        DCI_TRY(take_word(words, &n));
        if (n > words->left / 4)
                return dci_fail(DCI_ERR_FORMAT, "the file's section 'groups' is too short");
        DCI_TRY(dci_kv_grow(kv, (void **)&layer->boundaries, &layer->boundary_capacity, n, sizeof *layer->boundaries));
        for (size_t i = 0; i < n; i++, least = word + 1) {
                DCI_TRY(take_word(words, &word));
                if (word < least || word >= layer->n)
                        return dci_fail(DCI_ERR_FORMAT,
                                        "layer %zu: queries of the file turn at token %zu, expected %zu to %zu",
                                        layer->number, word, least, layer->n - 1);
                layer->boundaries[layer->n_boundaries++] = (int32_t)word;
        }
        return DCI_OK;
}

dci_status dci_kv_load_clusters(dci_kv *kv, dci_kv_layer *layer, dci_kv_words *words)
{
        size_t n_batches = 0, at = 0, n = 0, n_static = 0;
        DCI_TRY(take_word(words, &n_batches));
        DCI_TRY(load_static(kv, words, DCI_KV_MAX_TOKENS, &layer->n_static));
        for (size_t b = 0; b < n_batches; b++, at += n) {
                DCI_TRY(take_word(words, &n));
                if (n == 0 || n > layer->n_grouped - at)
                        return dci_fail(DCI_ERR_FORMAT, "layer %zu: groups of %zu more tokens after %zu of %zu",
                                        layer->number, n, at, layer->n_grouped);
                DCI_TRY(load_static(kv, words, b == 0 ? n : 0, &n_static));
                DCI_TRY(load_batch(kv, layer, words, at, n, n_static));
        }
        if (at != layer->n_grouped)
                return dci_fail(DCI_ERR_FORMAT, "layer %zu: the file has groups of %zu tokens, expected %zu",
                                layer->number, at, layer->n_grouped);
        if (kv->config.group == DCI_KV_GROUP_SEGMENT)
                DCI_TRY(load_turns(kv, layer, words));
        return DCI_OK;
}
