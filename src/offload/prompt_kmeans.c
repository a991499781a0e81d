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
_Static_assert(DCI_KV_CLUSTERS_TOGETHER <= DCI_GPU_KMEANS_MOST, "a part has no more clusters than a kernel takes");
_Static_assert(DCI_NEAREST_BLOCK == DCI_GPU_KMEANS_PAD, "segments are rounded up as the host does it");

/* Sizes of a prompt's parts, of which the longest has `rows` candidates and k clusters; bytes of the first rows; offsets
 * of the parts of the results, which follow; and bytes of all that a layer has. */
typedef struct layout {
        size_t n, n_parts, rows, k;
        size_t draws, starts, means, value_means, states, layer_bytes;
} layout;

static layout result_layout(const dci_gpu_kv *kv, size_t n)
{
        const size_t heads = kv->shape.n_kv_heads, n_parts = dci_kv_cluster_parts(kv->host, n),
                     rows = (n + n_parts - 1) / n_parts, k = dci_kv_count_clusters(kv->host, rows),
                     problems = heads * n_parts;
        layout p = {.n = n, .n_parts = n_parts, .rows = rows, .k = k};
        p.draws = dci_lines(problems * k * sizeof(int32_t));
        p.starts = dci_lines(heads * n * sizeof(int32_t));
        p.means = p.starts + dci_lines(problems * (k + 1) * sizeof(int32_t));
        p.value_means = p.means + dci_lines(problems * k * kv->row_bytes);
        p.states = p.value_means + dci_lines(problems * k * dci_kv_mean_value_bytes(kv->host));
        p.layer_bytes = p.draws + p.states + dci_lines(problems * DCI_GPU_KMEANS_STATES * sizeof(int32_t));
        return p;
}

/* A part: candidates from `first` on, and clusters. */
typedef struct part {
        size_t first, n, k;
} part;

static part part_of(const dci_gpu_kv *kv, const layout *p, size_t i)
{
        part out = {.first = dci_kv_cluster_part(p->n, p->n_parts, i)};
        out.n = dci_kv_cluster_part(p->n, p->n_parts, i + 1) - out.first;
        out.k = dci_kv_count_clusters(kv->host, out.n);
        return out;
}

/* As src/cluster has it for n rows; 0: none. */
static size_t segment_of(const dci_gpu_kv *kv, size_t n)
{
        const size_t segment = kv->shape.cluster_segment;
        return segment < n ? (segment + DCI_NEAREST_BLOCK - 1) / DCI_NEAREST_BLOCK * DCI_NEAREST_BLOCK : 0;
}

static dci_gpu_kmeans_args layer_args(const dci_gpu_kv *kv, const layout *p)
{
        const dci_kv_config *c = &kv->shape;
        return (dci_gpu_kmeans_args){.n_heads = (int32_t)c->n_kv_heads,
                                     .dim = (int32_t)kv->dim,
                                     .dtype = (int32_t)c->dtype,
                                     .n_rows = (int32_t)p->rows,
                                     .n_clusters = (int32_t)p->k,
                                     .n_rounds = (int32_t)c->cluster_rounds,
                                     .isa = (int32_t)kv->gpu->context->isa,
                                     .segment_rows = (int32_t)segment_of(kv, p->rows),
                                     .centred = c->cluster_by == DCI_KV_CLUSTER_CENTRED,
                                     .n_parts = (int32_t)p->n_parts,
                                     .all_rows = (int32_t)p->n,
                                     .cluster_rows = (int32_t)c->cluster_tokens};
}

/* Whether the device clusters a prompt of n candidates. A segment that is all rows only because it is rounded up is
 * another matter for the host than none; and all parts have as many segments. */
static bool takes(const dci_gpu_kv *kv, size_t n)
{
        const dci_kv_config *c = &kv->shape;
        if (!kv->planner.clustered || c->summary != DCI_KV_SUMMARY_MEAN || c->cluster_most > 0 ||
            c->cluster_rounds > DCI_GPU_KMEANS_MAX_ROUNDS || n == 0)
                return false;
        const layout p = result_layout(kv, n);
        const dci_gpu_kmeans_args args = layer_args(kv, &p);
        const size_t segment = segment_of(kv, p.rows), shortest = n / p.n_parts;
        return dci_gpu_kmeans_takes(&args) != 0 &&
               (segment == 0 || (segment < shortest && segment_of(kv, shortest) == segment &&
                                 (shortest - 1) / segment == (p.rows - 1) / segment));
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

/* Where a layer's keys, values, results and scratch are on the device; n_bytes: of all. */
typedef struct places {
        size_t values, results, scratch, n_bytes;
} places;

static places device_places(const dci_gpu_kv *kv, const layout *p)
{
        const size_t rows = aligned(kv->shape.n_kv_heads * p->n * kv->row_bytes);
        const dci_gpu_kmeans_args args = layer_args(kv, p);
        places out = {.values = rows, .results = dci_kv_mean_value_bytes(kv->host) > 0 ? 2 * rows : rows};
        out.scratch = out.results + aligned(p->layer_bytes);
        out.n_bytes = out.scratch + (size_t)dci_gpu_kmeans_work(&args).n_bytes;
        return out;
}

static dci_status begin_stream(dci_gpu_kv *kv)
{
        dci_gpu_kv_prompt_kmeans *c = kv->prompt_kmeans;
        void **events[] = {&c->copied, &c->read, &c->done};
        for (size_t i = 0; i < sizeof events / sizeof *events; i++)
                if (*events[i] == NULL)
                        DCI_TRY(kv->ops->event_create(kv->gpu, false, events[i]));
        return kv->cluster_stream != NULL ? DCI_OK : kv->ops->stream_create(kv->gpu, &kv->cluster_stream);
}

static void free_work(dci_gpu_kv *kv)
{
        dci_gpu_kv_prompt_kmeans *c = kv->prompt_kmeans;
        dci_gpu_kv_free_device(kv, c->work, c->work_bytes);
        c->work = NULL;
        c->work_bytes = 0;
}

/* Allocates memory on the device, and waits for work in a smaller one. */
static dci_status work_ready(dci_gpu_kv *kv, size_t n_bytes)
{
        dci_gpu_kv_prompt_kmeans *c = kv->prompt_kmeans;
        unsigned char *memory = NULL;
        if (n_bytes <= c->work_bytes)
                return DCI_OK;
        DCI_TRY(begin_stream(kv));
        DCI_TRY(dci_gpu_kv_alloc_device(kv, n_bytes, &memory));
        const dci_status status = c->work != NULL ? dci_gpu_kv_drain(kv) : DCI_OK;
        free_work(kv);
        c->work = memory;
        c->work_bytes = n_bytes;
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

/* Keeps the locked memory for the next prompt. */
static void release(dci_gpu_kv_prompt_kmeans_result *c)
{
        c->sequence = -1;
}

/* Waits until the device no longer writes to a result. */
static dci_status settle(dci_gpu_kv *kv, const dci_gpu_kv_prompt_kmeans_result *c)
{
        if (c->queued <= kv->prompt_kmeans->n_done)
                return DCI_OK;
        DCI_GPU_KV_TRY(kv, kv->ops->event_wait(kv->gpu, kv->prompt_kmeans->done));
        kv->prompt_kmeans->n_done = kv->prompt_kmeans->n_queued;
        return DCI_OK;
}

/* Takes the memory of a released result, if it is large enough; *out NULL: there is none. */
static dci_status reuse_result(dci_gpu_kv *kv, size_t n_bytes, dci_gpu_kv_prompt_kmeans_result **out)
{
        *out = NULL;
        for (dci_gpu_kv_prompt_kmeans_result **at = &kv->prompt_kmeans->results; *out == NULL && *at != NULL;) {
                dci_gpu_kv_prompt_kmeans_result *old = *at;
                if (old->sequence >= 0) {
                        at = &old->next;
                        continue;
                }
                DCI_TRY(settle(kv, old));
                if (old->n_bytes >= n_bytes) {
                        *out = old;
                } else {
                        *at = old->next;
                        free_result(kv, old);
                }
        }
        return DCI_OK;
}

static dci_status new_result(dci_gpu_kv *kv, size_t n_bytes, dci_gpu_kv_prompt_kmeans_result **out)
{
        dci_gpu_kv_prompt_kmeans_result **list = &kv->prompt_kmeans->results,
                                        *c = dci_calloc(kv->gpu->context, object_bytes(kv), 1);
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
        *out = c;
        return DCI_OK;
}

/* The results of a prompt that ends in this step. */
static dci_status prepare_result(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t n,
                                 dci_gpu_kv_prompt_kmeans_result **out)
{
        const size_t n_bytes = kv->n_sparse * result_layout(kv, n).layer_bytes;
        dci_gpu_kv_prompt_kmeans_result *c = find(kv, row);
        if (c == NULL)
                DCI_TRY(reuse_result(kv, n_bytes, &c));
        if (c == NULL)
                DCI_TRY(new_result(kv, n_bytes, &c));
        if (c->sequence < 0) {
                c->sequence = row->id;
                c->n = n;
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
        free_work(kv);
}

void dci_gpu_kv_prompt_kmeans_destroy(dci_gpu_kv *kv)
{
        dci_gpu_kv_prompt_kmeans *c = kv->prompt_kmeans;
        void *const events[] = {c->copied, c->read, c->done};
        if (kv->cluster_stream != NULL) { /* also where a step is captured and nothing was drained */
                dci_may_fail(true);
                (void)kv->ops->stream_wait(kv->gpu, kv->cluster_stream);
                dci_may_fail(false);
                kv->ops->stream_destroy(kv->gpu, kv->cluster_stream);
                kv->cluster_stream = NULL;
        }
        while (c->results != NULL) {
                dci_gpu_kv_prompt_kmeans_result *next = c->results->next;
                free_result(kv, c->results);
                c->results = next;
        }
        for (size_t i = 0; i < sizeof events / sizeof *events; i++)
                if (events[i] != NULL)
                        kv->ops->event_destroy(kv->gpu, events[i]);
        free_work(kv);
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

/* Queues a copy of n rows of each head, contiguous by head or, where heads of a token are contiguous, by token; says
 * how they are there. */
static dci_status copy_rows(dci_gpu_kv *kv, const void *from, size_t token_stride, size_t head_stride, size_t n,
                            unsigned char *to, uint64_t *out_row_step, uint64_t *out_head_step)
{
        const dci_gpu_ops *ops = kv->ops;
        const size_t heads = kv->shape.n_kv_heads, row = kv->row_bytes, es = kv->es;
        if (head_stride == kv->dim) {
                *out_row_step = heads * row;
                *out_head_step = row;
                return ops->copy_rows(kv->gpu, kv->step.stream, to, from, token_stride * es, heads * row, n);
        }
        *out_row_step = row;
        *out_head_step = n * row;
        for (size_t h = 0; h < heads; h++)
                DCI_TRY(ops->copy_rows(kv->gpu, kv->step.stream, to + h * n * row,
                                       (const unsigned char *)from + h * head_stride * es, token_stride * es, row, n));
        return DCI_OK;
}

/* Queues the copy of n candidates' keys, and values if they are wanted, from the caller's rows. */
static dci_status copy_candidates(dci_gpu_kv *kv, const dci_kv_rows *rows, size_t token, size_t n, const places *at,
                                  dci_gpu_kmeans_args *args)
{
        dci_gpu_kv_prompt_kmeans *c = kv->prompt_kmeans;
        const size_t es = kv->es;
        DCI_TRY(kv->ops->event_order(kv->gpu, kv->step.stream, c->read));
        DCI_TRY(copy_rows(kv, (const unsigned char *)rows->keys + token * rows->key_token_stride * es,
                          rows->key_token_stride, rows->key_head_stride, n, c->work, &args->row_step,
                          &args->head_step));
        args->rows = c->work;
        if (dci_kv_mean_value_bytes(kv->host) > 0) {
                DCI_TRY(copy_rows(kv, (const unsigned char *)rows->values + token * rows->value_token_stride * es,
                                  rows->value_token_stride, rows->value_head_stride, n, c->work + at->values,
                                  &args->value_step, &args->value_head_step));
                args->values = c->work + at->values;
        }
        DCI_TRY(kv->ops->event_record(kv->gpu, c->copied, kv->step.stream));
        return kv->ops->event_order(kv->gpu, kv->cluster_stream, c->copied);
}

/* Queues it all: the caller's stream only copies. */
static dci_status queue(dci_gpu_kv *kv, const dci_kv_rows *rows, size_t token, const layout *p, unsigned char *pinned)
{
        dci_gpu_kv_prompt_kmeans *c = kv->prompt_kmeans;
        const dci_gpu_ops *ops = kv->ops;
        const places at = device_places(kv, p);
        unsigned char *there = c->work + at.results, *results = there + p->draws;
        dci_gpu_kmeans_args args = layer_args(kv, p);
        c->n_queued++;
        DCI_TRY(copy_candidates(kv, rows, token, p->n, &at, &args));
        args.first = (const int32_t *)(const void *)there;
        args.order = (int32_t *)(void *)results;
        args.starts = (int32_t *)(void *)(results + p->starts);
        args.means = results + p->means;
        args.value_means = results + p->value_means;
        args.states = (int32_t *)(void *)(results + p->states);
        args.work = c->work + at.scratch;
        DCI_TRY(ops->copy(kv->gpu, kv->cluster_stream, there, pinned, p->draws));
        DCI_TRY(ops->kmeans(kv->gpu, kv->cluster_stream, &args));
        DCI_TRY(ops->event_record(kv->gpu, c->read, kv->cluster_stream));
        DCI_TRY(ops->copy(kv->gpu, kv->cluster_stream, pinned + p->draws, results, p->layer_bytes - p->draws));
        return ops->event_record(kv->gpu, c->done, kv->cluster_stream);
}

dci_status dci_gpu_kv_prompt_kmeans_begin(dci_gpu_kv *kv, size_t layer, const dci_gpu_kv_row *row, size_t n_tokens,
                                          const dci_kv_rows *rows, size_t token)
{
        const size_t n = dci_kv_prompt_candidates(kv->host, n_tokens), sparse = kv->layers[layer].index;
        /* A layer that uses another one's lists has no clusters; a captured step has no memory for them. */
        if (kv->step.bound > 0 || !dci_kv_groups(kv->host, layer) || !takes(kv, n))
                return DCI_OK;
        const layout p = result_layout(kv, n);
        dci_gpu_kv_prompt_kmeans_result *results = NULL;
        dci_may_fail(true);
        dci_status status = work_ready(kv, device_places(kv, &p).n_bytes);
        if (status == DCI_OK)
                status = prepare_result(kv, row, n, &results);
        dci_may_fail(false);
        if (status != DCI_OK || results == NULL)
                return kv->broken ? status : DCI_OK; /* without memory the host computes them */
        unsigned char *pinned = results->memory + sparse * p.layer_bytes;
        for (size_t i = 0; i < p.n_parts; i++) {
                const part of = part_of(kv, &p, i);
                for (size_t h = 0; h < kv->shape.n_kv_heads; h++)
                        dci_km_draw(kv->shape.seed, dci_kv_cluster_problem(kv->host, layer, h, i), of.n, of.k,
                                    segment_of(kv, of.n), (int32_t *)(void *)pinned + (h * p.n_parts + i) * p.k);
        }
        status = dci_gpu_kv_check_device(kv, queue(kv, rows, token, &p, pinned));
        results->queued = kv->prompt_kmeans->n_queued;
        results->there[sparse] = status == DCI_OK ? kv->now : 0;
        return status;
}

/* --- taking the results ------------------------------------------------------------------------------------------- */

static bool all_good(const dci_gpu_kv *kv, const unsigned char *results, const layout *p)
{
        const int32_t *states = (const int32_t *)(const void *)(results + p->draws + p->states);
        bool good = true;
        for (size_t i = 0; i < kv->shape.n_kv_heads * p->n_parts; i++)
                good = good && states[i * DCI_GPU_KMEANS_STATES + DCI_GPU_KMEANS_BAD] == 0;
        return good;
}

/* The layers of a prompt whose clusters the host takes, and their results. */
typedef struct taking {
        const dci_gpu_kv *kv;
        const layout *p;
        size_t n_layers;
        struct taken {
                dci_kv_layer *layer;
                const unsigned char *results;
        } * layers;
        dci_kv_clusters **batches; /* by layer; NULL: the host has its clusters */
} taking;

/* Appends a part's clusters to those of a head; those without members are left out. */
static void take_part(const taking *t, const unsigned char *results, dci_kv_clusters *batch, size_t head, size_t number)
{
        const dci_kv *host = t->kv->host;
        const layout *p = t->p;
        const part of = part_of(t->kv, p, number);
        const size_t row_bytes = t->kv->row_bytes, value_bytes = dci_kv_mean_value_bytes(host),
                     problem = head * p->n_parts + number;
        const int32_t *order = (const int32_t *)(const void *)results + head * p->n + of.first,
                      *starts = (const int32_t *)(const void *)(results + p->starts) + problem * (p->k + 1);
        const unsigned char *means = results + p->means + problem * p->k * row_bytes,
                            *value_means = results + p->value_means + problem * p->k * value_bytes;
        int32_t *offsets = dci_kv_cluster_offsets(host, batch, head),
                *ids = dci_kv_cluster_ids(host, batch, head) + of.first;
        size_t n = batch->heads[head].n_groups;
        for (size_t i = 0; i < of.k; i++) {
                if (starts[i + 1] == starts[i])
                        continue;
                memcpy(dci_kv_cluster_rows(host, batch, head) + n * row_bytes, means + i * row_bytes, row_bytes);
                if (value_bytes > 0)
                        memcpy(dci_kv_cluster_means(host, batch, head, true) + n * value_bytes,
                               value_means + i * value_bytes, value_bytes);
                offsets[++n] = (int32_t)of.first + starts[i + 1];
        }
        for (size_t i = 0; i < of.n; i++)
                ids[i] = (int32_t)of.first + order[i];
        batch->heads[head].n_groups = n;
}

static void take_task(void *arg, size_t task, size_t worker)
{
        const taking *t = arg;
        const size_t heads = t->kv->shape.n_kv_heads, head = task % heads;
        dci_kv_clusters *batch = t->batches[task / heads];
        (void)worker;
        if (batch == NULL)
                return;
        dci_kv_cluster_offsets(t->kv->host, batch, head)[0] = 0;
        for (size_t i = 0; i < t->p->n_parts; i++)
                take_part(t, t->layers[task / heads].results + t->p->draws, batch, head, i);
}

/* Allocates batches, but not for layers that have clusters already, or whose prompt has other than n candidates. */
static dci_status alloc_batches(const taking *t)
{
        dci_kv *host = t->kv->host;
        memset(t->batches, 0, t->n_layers * sizeof(void *));
        for (size_t i = 0; i < t->n_layers; i++) {
                dci_kv_layer *layer = t->layers[i].layer;
                if (!layer->prompt_due || layer->n_batches > 0 ||
                    dci_kv_prompt_candidates(host, layer->n_prompt) != t->p->n)
                        continue;
                DCI_TRY(dci_kv_clusters_ready(host, layer, 1));
                DCI_TRY(dci_kv_clusters_alloc(host, 0, t->p->n, host->stages->group.most(host, t->p->n),
                                              &t->batches[i]));
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
                status = dci_kv_spread(host, SIZE_MAX, n_tasks, n_tasks * t->p->n, take_task, t);
        for (size_t i = 0; i < t->n_layers; i++) {
                dci_kv_layer *layer = t->layers[i].layer;
                if (t->batches[i] == NULL)
                        continue;
                if (status != DCI_OK) {
                        dci_kv_clusters_release(host, t->batches[i]);
                        continue;
                }
                dci_kv_clusters_publish(host, layer, t->batches[i]);
                layer->n_grouped = t->p->n;
                layer->prompt_due = false;
                ++*io_taken;
        }
        return status;
}

/* Once no prompt's clusters are pending. */
static void free_idle_work(dci_gpu_kv *kv)
{
        const dci_gpu_kv_prompt_kmeans *c = kv->prompt_kmeans;
        bool pending = c->n_done != c->n_queued;
        for (const dci_gpu_kv_prompt_kmeans_result *r = c->results; r != NULL; r = r->next)
                pending = pending || r->sequence >= 0;
        if (!pending)
                free_work(kv);
}

dci_status dci_gpu_kv_prompt_kmeans_collect(dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        dci_gpu_kv_prompt_kmeans_result *c = find(kv, row);
        if (c == NULL)
                return DCI_OK;
        DCI_TRY(settle(kv, c));
        const layout p = result_layout(kv, c->n);
        taking t = {.kv = kv, .p = &p};
        t.layers = dci_alloc(kv->gpu->context, kv->n_sparse, sizeof *t.layers);
        if (t.layers == NULL)
                return DCI_ERR_MEMORY;
        for (size_t l = 0; l < kv->shape.n_layers; l++) {
                const size_t sparse = kv->layers[l].index;
                const unsigned char *at = c->memory + sparse * p.layer_bytes;
                if (!kv->layers[l].dense && c->there[sparse] != 0 && all_good(kv, at, &p))
                        t.layers[t.n_layers++] = (struct taken){&dci_gpu_kv_host_sequence(kv, row)->layers[l], at};
        }
        const size_t n_bytes = t.n_layers * sizeof(void *);
        dci_status status = dci_kv_lock(kv->host);
        if (status == DCI_OK) {
                status = dci_kv_alloc(kv->host, n_bytes, (void **)&t.batches);
                if (status == DCI_OK)
                        status = take(&t, &kv->prompt_kmeans->n_layers);
                dci_kv_free(kv->host, t.batches, n_bytes);
                dci_kv_unlock(kv->host);
        }
        dci_free(kv->gpu->context, t.layers, kv->n_sparse, sizeof *t.layers);
        if (status == DCI_OK) {
                release(c);
                free_idle_work(kv);
        }
        return status;
}
