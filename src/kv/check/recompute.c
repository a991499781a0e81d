/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * What was computed from rows, computed again: chunks and batches over copies of themselves, so that places without tokens are as they
 * were and a difference is a wrong row. A task is one head of one layer of one sequence.
 */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "core/file.h"
#include "kv/check/check.h"
#include "kv/chunk.h"
#include "kv/clustering.h"
#include "kv/geometry.h"
#include "kv/lookup.h"
#include "kv/summaries.h"

#define AT "sequence %lld, layer %zu, kv head %zu: "
#define OF(layer, head) (long long)(layer)->sequence->id, (layer)->number, (head)

typedef struct checking {
        dci_kv *kv;
        size_t area_bytes; /* of a worker: scratch to build with, then what is built */
        unsigned char *memory;
        size_t building;   /* bytes of an area that the scratch takes */
        atomic_size_t bad; /* the lowest task that found something */
} checking;

/* --- rows --------------------------------------------------------------------------------------------------------- */

static dci_status check_rows(const dci_kv *kv, const dci_kv_layer *layer, size_t head)
{
        const dci_kernels *kernels = kv->context->kernels;
        const int dtype = kv->config.dtype - 1;
        const void *keys[DCI_KV_TILE], *values[DCI_KV_TILE];
        for (size_t t = 0, n; t < layer->n; t += n) {
                n = layer->n - t < DCI_KV_TILE ? layer->n - t : DCI_KV_TILE;
                dci_kv_rows_of(kv, layer, head, t, n, keys, values);
                for (size_t i = 0; i < n; i++) {
                        const bool good = isfinite(kernels->norm2[dtype](keys[i], kv->dim_k));
                        if (!good || !isfinite(kernels->norm2[dtype](values[i], kv->dim_v)))
                                return dci_fail(DCI_ERR_FORMAT,
                                                AT "the %s of token %zu has NaN, infinity, or is too large",
                                                OF(layer, head), good ? "value" : "key", t + i);
                }
        }
        return DCI_OK;
}

/* --- transforms --------------------------------------------------------------------------------------------------- */

/* A rotation is the seed's; what was learned is numbers. memory: dci_coder_bytes. */
static dci_status check_frame(const dci_kv *kv, const dci_kv_layer *layer, size_t head, const dci_kv_transform *frame,
                              uint64_t seed, const char *what, void *memory)
{
        const dci_coder *coder = frame != NULL ? &frame->coder : NULL;
        if (coder == NULL || coder->dim == 0) /* of a prompt without candidates */
                return DCI_OK;
        const bool good =
                dci_floats_finite(coder->centre, coder->dim) && dci_coder_is_sound(kv->context, coder, seed, memory);
        return good ? DCI_OK
                    : dci_fail(DCI_ERR_FORMAT,
                               AT "the transform of %s holds NaN or infinity, or is not that of the seed",
                               OF(layer, head), what);
}

/* --- chunks ------------------------------------------------------------------------------------------------------- */

static dci_status check_chunk(dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t chunk, unsigned char *scratch,
                              unsigned char *memory)
{
        const size_t n_bytes = kv->summary_bytes + kv->tail_bytes;
        const unsigned char *there = dci_kv_chunk_head(kv, layer, chunk, head);
        dci_kv_head copy = layer->heads[head];
        memcpy(memory, there, n_bytes);
        dci_kv_rebuild_chunk(kv, layer, head, &copy, chunk, layer->n_grouped, memory, scratch);
        if (memcmp(memory, there, n_bytes) == 0)
                return DCI_OK;
        const bool summary = memcmp(memory, there, kv->summary_bytes) != 0;
        const size_t from = summary ? 0 : kv->summary_bytes;
        size_t at = from;
        while (memory[at] == there[at])
                at++;
        return dci_fail(DCI_ERR_FORMAT, AT "byte %zu of the %s of candidates %zu to %zu is not what their rows give",
                        OF(layer, head), at - from, summary ? "summaries" : "tail", chunk * DCI_KV_CHUNK,
                        (chunk + 1) * DCI_KV_CHUNK - 1);
}

/* --- batches ------------------------------------------------------------------------------------------------------ */

static dci_status check_batch(dci_kv *kv, dci_kv_layer *layer, size_t head, size_t b, size_t area,
                              unsigned char *memory)
{
        const dci_kv_clusters *batch = layer->batches[b];
        dci_kv_clusters *again = (dci_kv_clusters *)(void *)memory;
        const size_t n_groups = batch->heads[head].n_groups;
        memcpy(memory, batch, batch->n_bytes);
        dci_kv_clusters_summarise(kv, layer, again, head, area);
        const struct {
                const char *what;
                const unsigned char *there, *again;
                size_t row_bytes;
        } parts[] = {{"summary", dci_kv_cluster_rows(kv, batch, head), dci_kv_cluster_rows(kv, again, head),
                      kv->stages->summary.width(kv) * kv->es},
                     {"mean key", dci_kv_cluster_means(kv, batch, head, false),
                      dci_kv_cluster_means(kv, again, head, false), dci_kv_sums_of_lists(kv) ? kv->dim_k * kv->es : 0},
                     {"mean value", dci_kv_cluster_means(kv, batch, head, true),
                      dci_kv_cluster_means(kv, again, head, true), dci_kv_sums_of_lists(kv) ? kv->dim_v * kv->es : 0}};
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
                for (size_t g = 0; g < n_groups && parts[i].row_bytes > 0; g++)
                        if (memcmp(parts[i].there + g * parts[i].row_bytes, parts[i].again + g * parts[i].row_bytes,
                                   parts[i].row_bytes) != 0)
                                return dci_fail(DCI_ERR_FORMAT,
                                                AT "the %s of group %zu of batch %zu is not that of its rows",
                                                OF(layer, head), parts[i].what, g, b);
        return DCI_OK;
}

/* --- all heads ---------------------------------------------------------------------------------------------------- */

static dci_status run_task(const checking *c, size_t task, size_t worker)
{
        dci_kv *kv = c->kv;
        const size_t head = task % kv->config.n_kv_heads, l = task / kv->config.n_kv_heads % kv->config.n_layers;
        dci_kv_layer *layer = &kv->sequences[task / kv->config.n_kv_heads / kv->config.n_layers]->layers[l];
        unsigned char *scratch = c->memory + worker * c->area_bytes, *memory = scratch + c->building;
        const dci_kv_head *h = &layer->heads[head];
        dci_status status = check_rows(kv, layer, head);
        if (status == DCI_OK)
                status = check_frame(kv, layer, head, h->keys, kv->config.seed, "keys", scratch);
        if (status == DCI_OK)
                status = check_frame(kv, layer, head, h->values, ~kv->config.seed, "values", scratch);
        if (status != DCI_OK || layer->n_grouped == 0)
                return status;
        if (h->tree != NULL)
                return dci_kv_check_tree_recompute(kv, layer, head, memory);
        for (size_t b = 0; b < layer->n_batches && status == DCI_OK; b++)
                status = check_batch(kv, layer, head, b, worker, memory);
        for (size_t n = 0;
             !kv->clustered && kv->summary_bytes + kv->tail_bytes > 0 && n < layer->n_grouped && status == DCI_OK;
             n += DCI_KV_CHUNK)
                status = check_chunk(kv, layer, head, n / DCI_KV_CHUNK, scratch, memory);
        return status;
}

static void check_task(void *arg, size_t task, size_t worker)
{
        checking *c = arg;
        size_t lowest = atomic_load(&c->bad);
        if (run_task(c, task, worker) == DCI_OK)
                return;
        while (task < lowest && !atomic_compare_exchange_weak(&c->bad, &lowest, task))
                continue;
}

/* The most that what a task forms takes, and the longest batch; returns the tokens that there are. */
static size_t measure(const dci_kv *kv, size_t *out_formed, size_t *out_longest)
{
        size_t tokens = 0;
        *out_formed = kv->summary_bytes + kv->tail_bytes;
        *out_longest = 0;
        for (size_t i = 0; i < kv->n_sequences; i++) {
                tokens += kv->sequences[i]->n;
                for (size_t l = 0; l < kv->config.n_layers; l++) {
                        const dci_kv_layer *layer = &kv->sequences[i]->layers[l];
                        for (size_t b = 0; b < layer->n_batches; b++) {
                                const dci_kv_clusters *batch = layer->batches[b];
                                *out_formed = batch->n_bytes > *out_formed ? batch->n_bytes : *out_formed;
                                *out_longest = batch->n > *out_longest ? batch->n : *out_longest;
                        }
                        for (size_t h = 0; h < kv->config.n_kv_heads; h++) {
                                const size_t n_bytes = dci_kv_check_tree_bytes(kv, layer->heads[h].tree);
                                *out_formed = n_bytes > *out_formed ? n_bytes : *out_formed;
                        }
                }
        }
        return tokens;
}

/* Scratch comes from the context, not from max_bytes: a cache that is full can be checked. Batches are summarised in the listing's
 * scratch, in whose place there is other memory for the time: no work is under way, and none can begin. */
dci_status dci_kv_check_recompute(dci_kv *kv, const dci_progress *progress)
{
        checking c = {.kv = kv};
        size_t formed, longest, listing_bytes = 0;
        const size_t tokens = measure(kv, &formed, &longest), heads = kv->config.n_layers * kv->config.n_kv_heads;
        const size_t n_tasks = kv->n_sequences * heads, dims = kv->dim_k + kv->dim_v;
        const size_t coders = dci_coder_bytes(DCI_CODER_ROTATED, kv->dim_k > kv->dim_v ? kv->dim_k : kv->dim_v);
        const size_t n_workers = dci_workers_for(kv->context, n_tasks, tokens * heads * 8 * dims);
        atomic_init(&c.bad, SIZE_MAX);
        c.building = dci_kv_build_bytes(kv);
        c.building = c.building > dci_lines(coders) ? c.building : dci_lines(coders);
        c.area_bytes = c.building + dci_lines(formed);
        c.memory = dci_alloc(kv->context, n_workers, c.area_bytes);
        const dci_kv_scratch clustering = kv->clustering;
        const size_t clustering_tokens = kv->clustering_tokens;
        if (longest > 0) {
                listing_bytes = dci_kv_clustering_bytes(kv, longest);
                kv->clustering =
                        (dci_kv_scratch){dci_alloc(kv->context, n_workers, listing_bytes), n_workers, listing_bytes};
                kv->clustering_tokens = longest;
        }
        dci_status status =
                c.memory == NULL || (longest > 0 && kv->clustering.memory == NULL) ? DCI_ERR_MEMORY : DCI_OK;
        if (status == DCI_OK)
                status = dci_parallel(
                        &(dci_region){kv->context, n_tasks, n_workers, check_task, &c, progress, n_tasks, kv});
        /* Found on any thread; its sentence belongs to this one. */
        if (status == DCI_OK && atomic_load(&c.bad) != SIZE_MAX)
                status = run_task(&c, atomic_load(&c.bad), 0);
        if (longest > 0) {
                dci_free(kv->context, kv->clustering.memory, n_workers, listing_bytes);
                kv->clustering = clustering;
                kv->clustering_tokens = clustering_tokens;
        }
        dci_free(kv->context, c.memory, n_workers, c.area_bytes);
        return status;
}
