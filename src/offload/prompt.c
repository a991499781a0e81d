/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Ends of prompts. */
#include "core/internal.h"

#include <string.h>
#include <unistd.h>

#include "offload/prompt.h"
#include "offload/summaries.h"

/* --- locked memory for queries ------------------------------------------------------------------------------------ */

/* Finds room for this layer's queries; a new chunk has room for as many in each later layer. */
static dci_status queries_room(dci_gpu_kv *kv, size_t layer, size_t n_bytes, unsigned char **out)
{
        size_t wanted;
        n_bytes = dci_lines(n_bytes);
        for (dci_gpu_kv_query_chunk *c = kv->prompts->chunks; c != NULL; c = c->next)
                if (c->n_bytes - c->used >= n_bytes) {
                        *out = c->memory + c->used;
                        c->used += n_bytes;
                        return DCI_OK;
                }
        if (!dci_mul(n_bytes, kv->shape.n_layers - layer, &wanted))
                return dci_fail(DCI_ERR_LIMIT, "queries of %zu bytes in each layer are too many", n_bytes);
        dci_gpu_kv_query_chunk *c = dci_alloc(kv->gpu->context, 1, sizeof *c);
        if (c == NULL)
                return DCI_ERR_MEMORY;
        *c = (dci_gpu_kv_query_chunk){.next = kv->prompts->chunks, .n_bytes = wanted, .used = n_bytes};
        const dci_status status = dci_gpu_kv_pin(kv, wanted, &c->memory, NULL);
        if (status != DCI_OK) {
                dci_free(kv->gpu->context, c, 1, sizeof *c);
                return status;
        }
        kv->prompts->chunks = c;
        *out = c->memory;
        return DCI_OK;
}

void dci_gpu_kv_prompts_trim(dci_gpu_kv *kv)
{
        for (dci_gpu_kv_query_chunk *c = kv->prompts->chunks, *next; c != NULL; c = next) {
                next = c->next;
                dci_gpu_kv_unpin(kv, c->memory, c->n_bytes);
                dci_free(kv->gpu->context, c, 1, sizeof *c);
        }
        kv->prompts->chunks = NULL;
}

void dci_gpu_kv_prompts_destroy(dci_gpu_kv *kv)
{
        pthread_cond_destroy(&kv->prompts->wake);
        pthread_mutex_destroy(&kv->prompts->lock);
        dci_gpu_kv_prompts_trim(kv);
        dci_free(kv->gpu->context, kv->prompts->ends, kv->prompts->capacity, sizeof *kv->prompts->ends);
        kv->prompts->ends = NULL;
}

static dci_status ends_room(dci_gpu_kv *kv)
{
        if (kv->prompts->n_ends < kv->prompts->capacity)
                return DCI_OK;
        const size_t n = kv->prompts->capacity == 0 ? kv->shape.n_layers : 2 * kv->prompts->capacity;
        dci_gpu_kv_prompt_end *larger = dci_alloc(kv->gpu->context, n, sizeof *larger);
        if (larger == NULL)
                return DCI_ERR_MEMORY;
        if (kv->prompts->n_ends > 0)
                memcpy(larger, kv->prompts->ends, kv->prompts->n_ends * sizeof *larger);
        dci_free(kv->gpu->context, kv->prompts->ends, kv->prompts->capacity, sizeof *kv->prompts->ends);
        kv->prompts->ends = larger;
        kv->prompts->capacity = n;
        return DCI_OK;
}

/* --- handing over ------------------------------------------------------------------------------------------------- */

static dci_status hand_over_one(dci_gpu_kv *kv)
{
        const dci_gpu_kv_prompt_end *end = &kv->prompts->ends[kv->prompts->n_handed];
        const dci_gpu_kv_row *row = &kv->rows[end->row];
        DCI_TRY(dci_gpu_kv_check_good(kv, row));
        DCI_TRY(dci_kv_end_prompt(kv->host, end->layer, row->id, end->n_positions, end->queries, end->ld));
        kv->prompts->n_handed++;
        return DCI_OK;
}

static size_t count_arrived(dci_gpu_kv_prompts *p)
{
        pthread_mutex_lock(&p->lock);
        const size_t n = p->n_arrived;
        pthread_mutex_unlock(&p->lock);
        return n;
}

void dci_gpu_kv_hand_over_ready(dci_gpu_kv *kv)
{
        dci_gpu_kv_prompts *p = kv->prompts;
        if (p->n_handed == p->n_ends)
                return;
        const size_t n_arrived = count_arrived(p);
        dci_may_fail(true);
        while (p->n_handed < p->n_ends && p->ends[p->n_handed].notice < n_arrived && hand_over_one(kv) == DCI_OK)
                continue;
        dci_may_fail(false);
}

dci_status dci_gpu_kv_hand_over(dci_gpu_kv *kv, size_t n)
{
        while (kv->prompts->n_handed < n) {
                void *event = kv->layers[kv->prompts->ends[kv->prompts->n_handed].layer].arrived;
                DCI_GPU_KV_TRY(kv, kv->ops->event_wait(kv->gpu, event));
                DCI_TRY(hand_over_one(kv));
        }
        return DCI_OK;
}

dci_status dci_gpu_kv_hand_over_layer(dci_gpu_kv *kv, size_t layer)
{
        size_t n = kv->prompts->n_ends;
        while (n > kv->prompts->n_handed && kv->prompts->ends[n - 1].layer != layer)
                n--;
        return dci_gpu_kv_hand_over(kv, n);
}

void dci_gpu_kv_forget_ends(dci_gpu_kv *kv)
{
        kv->prompts->n_ends = kv->prompts->n_handed = 0;
        for (dci_gpu_kv_query_chunk *c = kv->prompts->chunks; c != NULL; c = c->next)
                c->used = 0;
}

/* --- the thread --------------------------------------------------------------------------------------------------- */

void dci_gpu_kv_prompts_init(dci_gpu_kv *kv)
{
        pthread_mutex_init(&kv->prompts->lock, NULL);
        pthread_cond_init(&kv->prompts->wake, NULL);
}

/* On a thread of the device's runtime. */
static void arrive(void *arg)
{
        dci_gpu_kv_prompts *p = arg;
        pthread_mutex_lock(&p->lock);
        p->n_arrived++;
        pthread_cond_signal(&p->wake);
        pthread_mutex_unlock(&p->lock);
}

static void *hand_over_arrived(void *arg)
{
        dci_gpu_kv *kv = arg;
        dci_gpu_kv_prompts *p = kv->prompts;
        size_t seen = 0;
        pthread_mutex_lock(&p->lock);
        while (!p->stop) {
                if (p->n_arrived == seen) {
                        pthread_cond_wait(&p->wake, &p->lock);
                        continue;
                }
                seen = p->n_arrived;
                pthread_mutex_unlock(&p->lock);
                pthread_mutex_lock(&kv->lock);
                if (!kv->broken)
                        dci_gpu_kv_hand_over_ready(kv);
                pthread_mutex_unlock(&kv->lock);
                pthread_mutex_lock(&p->lock);
        }
        pthread_mutex_unlock(&p->lock);
        return NULL;
}

/* Where no layer is sparse, the host builds nothing. */
static void start_thread(dci_gpu_kv *kv)
{
        dci_gpu_kv_prompts *p = kv->prompts;
        if (kv->n_sparse > 0 && p->thread_pid == 0 && !kv->shape.foreground &&
            pthread_create(&p->thread, NULL, hand_over_arrived, kv) == 0)
                p->thread_pid = (int64_t)getpid();
}

void dci_gpu_kv_prompts_stop(dci_gpu_kv *kv)
{
        dci_gpu_kv_prompts *p = kv->prompts;
        if (p->thread_pid != (int64_t)getpid()) /* a child of fork has no thread */
                return;
        pthread_mutex_lock(&p->lock);
        p->stop = true;
        pthread_cond_signal(&p->wake);
        pthread_mutex_unlock(&p->lock);
        pthread_join(p->thread, NULL);
}

/* --- dci_gpu_kv_end_prompt ---------------------------------------------------------------------------------------- */

static dci_status check(dci_gpu_kv *kv, size_t layer, const dci_gpu_kv_row *row, size_t n_positions,
                        const void *queries, size_t ld, bool *out_reads)
{
        for (size_t i = kv->prompts->n_handed; i < kv->prompts->n_ends; i++)
                if (kv->prompts->ends[i].layer == layer && &kv->rows[kv->prompts->ends[i].row] == row)
                        return dci_fail(DCI_ERR_INVALID, "sequence %lld, layer %zu: the prompt has ended already",
                                        (long long)row->id, layer);
        DCI_TRY(dci_kv_check_end_prompt(kv->host, layer, row->id, n_positions, queries, ld, out_reads));
        return n_positions > 0 ? kv->ops->pointer_check(kv->gpu, queries, "queries") : DCI_OK;
}

/* Queues the notice, and records the event, after all that is queued on the stream and after the copies on the side
 * stream. */
static dci_status mark_arrival(dci_gpu_kv *kv, void *stream, size_t layer)
{
        DCI_TRY(kv->ops->event_record(kv->gpu, kv->main_event, stream));
        DCI_TRY(kv->ops->event_order(kv->gpu, kv->side, kv->main_event));
        DCI_TRY(kv->ops->notify(kv->gpu, kv->side, arrive, kv->prompts));
        kv->prompts->n_notices++;
        return kv->ops->event_record(kv->gpu, kv->layers[layer].arrived, kv->side);
}

static dci_status prompt(dci_gpu_kv *kv, void *stream, size_t layer, int64_t sequence, size_t n_positions,
                         const void *queries, size_t ld)
{
        bool reads_queries = false;
        size_t rows, n_bytes = 0;
        unsigned char *copy = NULL;
        dci_gpu_kv_row *row = NULL;
        DCI_TRY(dci_gpu_kv_find_stepping(kv, stream, layer, sequence, &row));
        DCI_TRY(check(kv, layer, row, n_positions, queries, ld, &reads_queries));
        /* Gaps between the rows are copied, too. */
        if (reads_queries && (!dci_mul(n_positions, kv->shape.n_query_heads, &rows) ||
                              !dci_mul(rows - 1, ld, &n_bytes) || !dci_mul(n_bytes + kv->dim, kv->query_es, &n_bytes)))
                return dci_fail(DCI_ERR_LIMIT, "queries of %zu positions, %zu elements apart, are too many",
                                n_positions, ld);
        if (dci_kv_builds_later(kv->host)) {
                DCI_TRY(dci_kv_end_prompt(kv->host, layer, sequence, n_positions, queries, ld));
                return kv->layers[layer].dense ? DCI_OK : dci_gpu_kv_build_prompt(kv, layer, row);
        }
        DCI_TRY(dci_gpu_kv_check_runs(kv)); /* a graph would give notice each time that it runs */
        DCI_TRY(ends_room(kv));
        start_thread(kv);
        if (reads_queries) {
                DCI_TRY(queries_room(kv, layer, n_bytes, &copy));
                DCI_GPU_KV_TRY(kv, kv->ops->copy(kv->gpu, stream, copy, queries, n_bytes));
        }
        DCI_GPU_KV_TRY(kv, mark_arrival(kv, stream, layer));
        kv->prompts->ends[kv->prompts->n_ends++] =
                (dci_gpu_kv_prompt_end){.layer = layer,
                                        .row = dci_gpu_kv_row_number(kv, row),
                                        .n_positions = reads_queries ? n_positions : 0,
                                        .ld = ld,
                                        .queries = copy,
                                        .notice = kv->prompts->n_notices - 1};
        dci_gpu_kv_hand_over_ready(kv);
        return DCI_OK;
}

static dci_status name_rows(dci_gpu_kv *kv, void *stream, size_t layer, int64_t sequence, const dci_kv_rows *rows)
{
        dci_gpu_kv_row *row = NULL;
        DCI_TRY(dci_gpu_kv_find_stepping(kv, stream, layer, sequence, &row));
        const size_t n = row->n + kv->step.wanted[dci_gpu_kv_step_number(kv, row)];
        DCI_TRY(dci_gpu_kv_check_rows(kv, n, rows, &kv->layers[layer].prompt_rows));
        kv->layers[layer].prompt_sequence = sequence;
        return DCI_OK;
}

dci_status dci_gpu_kv_prompt_rows(dci_gpu_kv *kv, void *stream, size_t layer, int64_t sequence, const dci_kv_rows *rows)
{
        DCI_TRY(dci_gpu_kv_lock(kv));
        return dci_gpu_kv_unlock(kv, name_rows(kv, stream, layer, sequence, rows));
}

dci_status dci_gpu_kv_end_prompt(dci_gpu_kv *kv, void *stream, size_t layer, int64_t sequence, size_t n_positions,
                                 const void *queries, size_t ld)
{
        DCI_TRY(dci_gpu_kv_lock(kv));
        return dci_gpu_kv_unlock(kv, prompt(kv, stream, layer, sequence, n_positions, queries, ld));
}
