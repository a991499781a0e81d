/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Clusters of a prompt, computed on the device. */
#include "core/internal.h"

#include <string.h>

#include "cluster/kmeans_internal.h"
#include "kv/stages/stages.h"
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

dci_status dci_gpu_kv_prompt_kmeans_collect(dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        dci_gpu_kv_prompt_kmeans_result *c = find(kv, row);
        if (c == NULL)
                return DCI_OK;
        dci_kv_made_clusters *given = dci_alloc(kv->gpu->context, kv->n_sparse, sizeof *given);
        if (given == NULL)
                return DCI_ERR_MEMORY;
        const layout p = result_layout(kv, c->n, c->k);
        size_t n = 0;
        for (size_t l = 0; l < kv->shape.n_layers; l++) {
                const size_t sparse = kv->layers[l].index;
                const unsigned char *at = c->memory + sparse * p.n_bytes;
                if (!kv->layers[l].dense && c->there[sparse] != 0 && all_good(kv, at, &p))
                        given[n++] = (dci_kv_made_clusters){.layer = l,
                                                            .n_groups = c->k,
                                                            .members = (const int32_t *)(const void *)(at + p.order),
                                                            .starts = (const int32_t *)(const void *)(at + p.starts),
                                                            .rows = at + p.means};
        }
        const dci_status status =
                dci_kv_set_prompt_clusters(kv->host, row->id, c->n, n, given, &kv->prompt_kmeans->n_layers);
        dci_free(kv->gpu->context, given, kv->n_sparse, sizeof *given);
        if (status == DCI_OK)
                release(c);
        return status;
}
