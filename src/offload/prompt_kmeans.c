/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Clusters of a prompt, computed on the device. */
#include "core/internal.h"

#include <string.h>

#include "cluster/kmeans_internal.h"
#include "kv/clusters.h"
#include "kv/memory.h"
#include "kv/worker.h"
#include "offload/offload_internal.h"
#include "offload/prompt_kmeans.h"

_Static_assert(DCI_GPU_KMEANS_MEANT == DCI_KV_TILE, "means are summed in the tiles of the host");

/* Offsets of the parts of a layer's results. */
typedef struct layout {
        size_t order, starts, means, states, n_bytes;
} layout;

static layout result_layout(const dci_gpu_kv *kv, size_t n, size_t k)
{
        const size_t heads = kv->shape.n_kv_heads;
        layout p;
        p.order = dci_lines(heads * k * sizeof(int32_t));
        p.starts = p.order + dci_lines(heads * n * sizeof(int32_t));
        p.means = p.starts + dci_lines(heads * (k + 1) * sizeof(int32_t));
        p.states = p.means + dci_lines(heads * k * kv->row_bytes);
        p.n_bytes = p.states + dci_lines(heads * DCI_GPU_KMEANS_STATES * sizeof(int32_t));
        return p;
}

/* The number of clusters of n candidates; 0: the host computes them. */
static size_t count_clusters(const dci_gpu_kv *kv, size_t n)
{
        const dci_kv_config *c = &kv->shape;
        if (!kv->planner.clustered || c->group != DCI_KV_GROUP_CLUSTER || c->summary != DCI_KV_SUMMARY_MEAN ||
            c->cluster_by != DCI_KV_CLUSTER_RAW || c->cluster_most > 0 || c->cluster_segment < n ||
            c->cluster_rounds < 1 || c->cluster_rounds > DCI_GPU_KMEANS_MAX_ROUNDS || n == 0)
                return 0;
        const size_t k = kv->host->stages->group.most(kv->host, n);
        return k <= DCI_GPU_KMEANS_MOST ? k : 0;
}

/* The results of a sequence, or NULL. */
static dci_gpu_kv_prompt_kmeans_result *find(const dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        dci_gpu_kv_prompt_kmeans_result *c = kv->prompt_kmeans->results;
        while (c != NULL && c->sequence != row->id)
                c = c->next;
        return c;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* Parts on the device are aligned as within parts (gpu/args/kmeans.h). */
static size_t aligned(size_t n_bytes)
{
        return (n_bytes + 255) / 256 * 256;
}

/* Allocates room for two layers' results and for scratch, and waits for work in a smaller one. */
static dci_status work_ready(dci_gpu_kv *kv, size_t result_bytes, size_t scratch_bytes)
{
        dci_gpu_kv_prompt_kmeans *c = kv->prompt_kmeans;
        const size_t results = aligned(result_bytes > c->result_bytes ? result_bytes : c->result_bytes),
                     before = c->work_bytes - 2 * c->result_bytes,
                     n_bytes = 2 * results + (scratch_bytes > before ? scratch_bytes : before);
        unsigned char *memory = NULL;
        if (n_bytes <= c->work_bytes)
                return DCI_OK;
        DCI_TRY(dci_gpu_kv_check_device_bytes(kv, n_bytes));
        for (size_t i = 0; i < 2; i++)
                if (c->done[i] == NULL)
                        DCI_TRY(kv->ops->event_create(kv->gpu, false, &c->done[i]));
        DCI_TRY(dci_gpu_kv_alloc_device(kv, n_bytes, &memory));
        const dci_status status = c->work != NULL ? dci_gpu_kv_drain(kv) : DCI_OK;
        dci_gpu_kv_free_device(kv, c->work, c->work_bytes);
        c->work = memory;
        c->work_bytes = n_bytes;
        c->result_bytes = results;
        return status;
}

static size_t object_bytes(const dci_gpu_kv *kv)
{
        return sizeof(dci_gpu_kv_prompt_kmeans_result) + kv->n_sparse * sizeof(uint32_t);
}

static void free_result(dci_gpu_kv *kv, dci_gpu_kv_prompt_kmeans_result *c)
{
        dci_gpu_kv_unpin(kv, c->memory, c->n_bytes);
        dci_free(kv->gpu->context, c, object_bytes(kv), 1);
}

/* Keeps the memory for the next prompt. */
static void release(dci_gpu_kv_prompt_kmeans_result *c)
{
        c->sequence = -1;
}

/* The results of a prompt that ends in this step; new ones use the memory of released ones, if it is large enough. */
static dci_status prepare_result(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t n, size_t k,
                                 dci_gpu_kv_prompt_kmeans_result **out)
{
        dci_gpu_kv_prompt_kmeans_result **list = &kv->prompt_kmeans->results;
        const size_t n_bytes = kv->n_sparse * result_layout(kv, n, k).n_bytes;
        dci_gpu_kv_prompt_kmeans_result *c = find(kv, row);
        for (dci_gpu_kv_prompt_kmeans_result **at = list; c == NULL && *at != NULL;) {
                dci_gpu_kv_prompt_kmeans_result *old = *at;
                if (old->sequence >= 0) {
                        at = &old->next;
                } else if (old->n_bytes >= n_bytes) {
                        c = old;
                } else {
                        *at = old->next;
                        free_result(kv, old);
                }
        }
        if (c == NULL) {
                c = dci_calloc(kv->gpu->context, object_bytes(kv), 1);
                if (c == NULL)
                        return DCI_ERR_MEMORY;
                c->sequence = -1;
                c->n_bytes = n_bytes;
                const dci_status status = dci_gpu_kv_pin(kv, n_bytes, &c->memory, NULL);
                if (status != DCI_OK) {
                        dci_free(kv->gpu->context, c, object_bytes(kv), 1);
                        return status;
                }
                c->next = *list;
                *list = c;
        }
        if (c->sequence < 0) {
                c->sequence = row->id;
                c->n = n;
                c->k = k;
                memset(c->there, 0, kv->n_sparse * sizeof *c->there);
        }
        /* Layers whose prompts do not end together are left to the host. */
        *out = c->n == n ? c : NULL;
        return DCI_OK;
}

void dci_gpu_kv_prompt_kmeans_trim(dci_gpu_kv *kv)
{
        dci_gpu_kv_prompt_kmeans *c = kv->prompt_kmeans;
        for (dci_gpu_kv_prompt_kmeans_result **at = &c->results; *at != NULL;) {
                dci_gpu_kv_prompt_kmeans_result *result = *at;
                if (result->sequence >= 0) {
                        at = &result->next;
                } else {
                        *at = result->next;
                        free_result(kv, result);
                }
        }
        dci_gpu_kv_free_device(kv, c->work, c->work_bytes);
        c->work = NULL;
        c->work_bytes = c->result_bytes = 0;
}

void dci_gpu_kv_prompt_kmeans_destroy(dci_gpu_kv *kv)
{
        dci_gpu_kv_prompt_kmeans *c = kv->prompt_kmeans;
        while (c->results != NULL) {
                dci_gpu_kv_prompt_kmeans_result *next = c->results->next;
                free_result(kv, c->results);
                c->results = next;
        }
        for (size_t i = 0; i < 2; i++)
                if (c->done[i] != NULL)
                        kv->ops->event_destroy(kv->gpu, c->done[i]);
        dci_gpu_kv_free_device(kv, c->work, c->work_bytes);
}

void dci_gpu_kv_prompt_kmeans_forget(dci_gpu_kv *kv)
{
        for (dci_gpu_kv_prompt_kmeans_result *c = kv->prompt_kmeans->results; c != NULL; c = c->next) {
                bool some = false;
                for (size_t l = 0; l < kv->n_sparse; l++) {
                        c->there[l] = c->there[l] == kv->now ? 0 : c->there[l];
                        some = some || c->there[l] != 0;
                }
                if (!some)
                        release(c);
        }
}

void dci_gpu_kv_prompt_kmeans_close(dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        dci_gpu_kv_prompt_kmeans_result *c = find(kv, row);
        if (c != NULL)
                release(c);
}

/* --- at a prompt's end -------------------------------------------------------------------------------------------- */

/* Queues the upload of first rows, k-means, and the download on the side stream, concurrent with the next layers. */
static dci_status queue(dci_gpu_kv *kv, dci_gpu_kmeans_args *args, unsigned char *pinned, const layout *p)
{
        dci_gpu_kv_prompt_kmeans *c = kv->prompt_kmeans;
        const dci_gpu_ops *ops = kv->ops;
        const size_t turn = c->next++ % 2;
        unsigned char *results = c->work + turn * c->result_bytes;
        args->first = (const int32_t *)(const void *)results;
        args->order = (int32_t *)(void *)(results + p->order);
        args->starts = (int32_t *)(void *)(results + p->starts);
        args->means = results + p->means;
        args->states = (int32_t *)(void *)(results + p->states);
        DCI_TRY(ops->event_order(kv->gpu, kv->step.stream, c->done[turn]));
        DCI_TRY(ops->copy(kv->gpu, kv->step.stream, results, pinned, p->order));
        DCI_TRY(ops->kmeans(kv->gpu, kv->step.stream, args));
        DCI_TRY(ops->event_record(kv->gpu, kv->main_event, kv->step.stream));
        DCI_TRY(ops->event_order(kv->gpu, kv->side, kv->main_event));
        DCI_TRY(ops->copy(kv->gpu, kv->side, pinned + p->order, results + p->order, p->n_bytes - p->order));
        return ops->event_record(kv->gpu, c->done[turn], kv->side);
}

dci_status dci_gpu_kv_prompt_kmeans_begin(dci_gpu_kv *kv, size_t layer, const dci_gpu_kv_row *row, size_t n_tokens,
                                          const dci_kv_rows *rows, size_t token)
{
        const size_t n = dci_kv_prompt_candidates(kv->host, n_tokens), k = count_clusters(kv, n),
                     heads = kv->shape.n_kv_heads, sparse = kv->layers[layer].index;
        /* A layer that uses another one's lists has no clusters; a captured step has no memory for them. */
        if (k == 0 || kv->step.bound > 0 || !dci_kv_groups(kv->host, layer))
                return DCI_OK;
        const layout p = result_layout(kv, n, k);
        const dci_gpu_kmeans_parts parts =
                dci_gpu_kmeans_work((int32_t)heads, (int32_t)kv->dim, (int32_t)n, (int32_t)k);
        dci_gpu_kv_prompt_kmeans_result *results = NULL;
        dci_may_fail(true);
        dci_status status = work_ready(kv, p.n_bytes, (size_t)parts.n_bytes);
        if (status == DCI_OK)
                status = prepare_result(kv, row, n, k, &results);
        dci_may_fail(false);
        if (status != DCI_OK || results == NULL)
                return kv->broken ? status : DCI_OK; /* without memory the host computes them */
        unsigned char *pinned = results->memory + sparse * p.n_bytes;
        for (size_t h = 0; h < heads; h++)
                dci_km_draw(kv->shape.seed, layer * heads + h, n, k, (int32_t *)(void *)pinned + h * k);
        dci_gpu_kmeans_args args = {.n_heads = (int32_t)heads,
                                    .dim = (int32_t)kv->dim,
                                    .dtype = (int32_t)kv->shape.dtype,
                                    .n_rows = (int32_t)n,
                                    .n_clusters = (int32_t)k,
                                    .n_rounds = (int32_t)kv->shape.cluster_rounds,
                                    .isa = (int32_t)kv->gpu->context->isa,
                                    .rows = (const unsigned char *)rows->keys + token * rows->key_token_stride * kv->es,
                                    .row_step = rows->key_token_stride * kv->es,
                                    .head_step = rows->key_head_stride * kv->es,
                                    .work = kv->prompt_kmeans->work + 2 * kv->prompt_kmeans->result_bytes};
        status = dci_gpu_kv_check_device(kv, queue(kv, &args, pinned, &p));
        results->there[sparse] = status == DCI_OK ? kv->now : 0;
        return status;
}

/* --- taking the results ------------------------------------------------------------------------------------------- */

static bool all_good(const dci_gpu_kv *kv, const unsigned char *results, const layout *p)
{
        const int32_t *states = (const int32_t *)(const void *)(results + p->states);
        bool good = true;
        for (size_t h = 0; h < kv->shape.n_kv_heads; h++)
                good = good && states[h * DCI_GPU_KMEANS_STATES + DCI_GPU_KMEANS_BAD] == 0;
        return good;
}

/* The layers of a prompt whose clusters the host takes, and their results. */
typedef struct taking {
        const dci_gpu_kv *kv;
        const layout *p;
        size_t n, k, n_layers; /* candidates, clusters */
        struct taken {
                dci_kv_layer *layer;
                const unsigned char *results;
        } * layers;
        dci_kv_clusters **batches; /* by layer; NULL: the host has its clusters */
} taking;

/* Clusters without members are left out. */
static void take_task(void *arg, size_t task, size_t worker)
{
        const taking *t = arg;
        const dci_kv *host = t->kv->host;
        const size_t heads = t->kv->shape.n_kv_heads, head = task % heads, row_bytes = t->kv->row_bytes;
        const unsigned char *results = t->layers[task / heads].results;
        dci_kv_clusters *batch = t->batches[task / heads];
        (void)worker;
        if (batch == NULL)
                return;
        const int32_t *starts = (const int32_t *)(const void *)(results + t->p->starts) + head * (t->k + 1);
        const unsigned char *means = results + t->p->means + head * t->k * row_bytes;
        int32_t *offsets = dci_kv_cluster_offsets(host, batch, head);
        unsigned char *rows = dci_kv_cluster_rows(host, batch, head);
        size_t n = 0;
        offsets[0] = 0;
        for (size_t i = 0; i < t->k; i++) {
                if (starts[i + 1] == starts[i])
                        continue;
                memcpy(rows + n * row_bytes, means + i * row_bytes, row_bytes);
                offsets[++n] = starts[i + 1];
        }
        memcpy(dci_kv_cluster_ids(host, batch, head), results + t->p->order + head * t->n * sizeof(int32_t),
               t->n * sizeof(int32_t));
        batch->heads[head].n_groups = n;
}

/* Allocates batches, but not for layers that have clusters already, or whose prompt has other than n candidates. */
static dci_status alloc_batches(const taking *t)
{
        dci_kv *host = t->kv->host;
        memset(t->batches, 0, t->n_layers * sizeof *t->batches);
        for (size_t i = 0; i < t->n_layers; i++) {
                dci_kv_layer *layer = t->layers[i].layer;
                if (!layer->prompt_due || layer->n_batches > 0 ||
                    dci_kv_prompt_candidates(host, layer->n_prompt) != t->n)
                        continue;
                DCI_TRY(dci_kv_clusters_ready(host, layer, 1));
                DCI_TRY(dci_kv_clusters_alloc(host, 0, t->n, t->k, &t->batches[i]));
        }
        return DCI_OK;
}

/* All layers or, without memory, none. */
static dci_status take(taking *t, uint64_t *io_taken)
{
        dci_kv *host = t->kv->host;
        const size_t n_tasks = t->n_layers * t->kv->shape.n_kv_heads;
        dci_status status = alloc_batches(t);
        if (status == DCI_OK)
                status = dci_kv_spread(host, SIZE_MAX, n_tasks, n_tasks * t->n, take_task, t);
        for (size_t i = 0; i < t->n_layers; i++) {
                dci_kv_layer *layer = t->layers[i].layer;
                if (t->batches[i] == NULL)
                        continue;
                if (status != DCI_OK) {
                        dci_kv_clusters_release(host, t->batches[i]);
                        continue;
                }
                dci_kv_clusters_publish(host, layer, t->batches[i]);
                layer->n_grouped = t->n;
                layer->prompt_due = false;
                ++*io_taken;
        }
        return status;
}

dci_status dci_gpu_kv_prompt_kmeans_collect(dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        dci_gpu_kv_prompt_kmeans_result *c = find(kv, row);
        if (c == NULL)
                return DCI_OK;
        const layout p = result_layout(kv, c->n, c->k);
        taking t = {.kv = kv, .p = &p, .n = c->n, .k = c->k};
        t.layers = dci_alloc(kv->gpu->context, kv->n_sparse, sizeof *t.layers);
        if (t.layers == NULL)
                return DCI_ERR_MEMORY;
        for (size_t l = 0; l < kv->shape.n_layers; l++) {
                const size_t sparse = kv->layers[l].index;
                const unsigned char *at = c->memory + sparse * p.n_bytes;
                if (!kv->layers[l].dense && c->there[sparse] != 0 && all_good(kv, at, &p))
                        t.layers[t.n_layers++] = (struct taken){&dci_gpu_kv_host_sequence(kv, row)->layers[l], at};
        }
        const size_t n_bytes = t.n_layers * sizeof *t.batches;
        dci_status status = dci_kv_lock(kv->host);
        if (status == DCI_OK) {
                status = dci_kv_alloc(kv->host, n_bytes, (void **)&t.batches);
                if (status == DCI_OK)
                        status = take(&t, &kv->prompt_kmeans->n_layers);
                dci_kv_free(kv->host, t.batches, n_bytes);
                dci_kv_unlock(kv->host);
        }
        dci_free(kv->gpu->context, t.layers, kv->n_sparse, sizeof *t.layers);
        if (status == DCI_OK)
                release(c);
        return status;
}
