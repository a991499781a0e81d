/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Attention over a plan. The query heads of a group go over their tokens together, a tile at a time, with the running maximum and sum of
 * online softmax (Milakov and Gimelshein 2018); what the tail says is merged by log-sum-exp.
 */
#include "core/internal.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "kv/geometry.h"
#include "kv/lookup.h"
#include "kv/plan_scratch.h"
#include "kv/pool.h"
#include "kv/queries.h"

typedef struct attending {
        dci_kv *kv;
        size_t layer, ld, out_ld;
        dci_kv_sequence *const *found;
        const unsigned char *queries;
        const dci_kv_plan *plan;
        float *out, *out_lse;
} attending;

static dci_kv_running begin(const dci_kv *kv, size_t worker)
{
        dci_kv_running r = dci_kv_running_scratch(kv, worker);
        for (size_t q = 0; q < kv->share; q++)
                r.most[q] = -FLT_MAX;
        memset(r.sum, 0, kv->share * sizeof *r.sum);
        memset(r.acc, 0, kv->share * kv->dim_v * sizeof *r.acc);
        r.end = kv->share;
        return r;
}

/* Rescales what was summed before if there is a new maximum. */
static void soften(dci_kv_running *r, size_t q, size_t n)
{
        const dci_kernels *kernels = r->kv->context->kernels;
        float *scores = r->scores + q * DCI_KV_TILE;
        const float most = fmaxf(r->most[q], kernels->greatest(scores, n));
        if (most > r->most[q]) {
                const float factor = expf(r->most[q] - most);
                float *acc = r->acc + q * r->kv->dim_v;
                r->sum[q] *= factor;
                for (size_t j = 0; j < r->kv->dim_v; j++)
                        acc[j] *= factor;
                r->most[q] = most;
        }
        r->sum[q] += kernels->exp_all(scores, n, most);
}

/* n <= DCI_KV_TILE tokens. */
static void attend_rows(dci_kv_running *r, const void *const *keys, const void *const *values, size_t n)
{
        const dci_kv *kv = r->kv;
        const dci_kernels *kernels = kv->context->kernels;
        const int dtype = kv->config.dtype - 1;
        for (size_t q = r->first; q < r->end; q += DCI_MANY_QUERIES) {
                const size_t left = r->end - q, here = left < DCI_MANY_QUERIES ? left : DCI_MANY_QUERIES;
                float *scores = r->scores + q * DCI_KV_TILE;
                kernels->score_many[dtype][DCI_FORM_DOT](r->queries + q * kv->dim_k, kv->dim_k, here, keys, n,
                                                         kv->dim_k, scores, DCI_KV_TILE);
                for (size_t i = 0; i < here; i++)
                        soften(r, q + i, n);
                kernels->blend_many[dtype](values, scores, DCI_KV_TILE, here, n, kv->dim_v, r->acc + q * kv->dim_v,
                                           kv->dim_v);
        }
}

static void attend_range(dci_kv_running *r, const dci_kv_layer *layer, size_t head, size_t first, size_t end)
{
        const void *keys[DCI_KV_TILE], *values[DCI_KV_TILE];
        for (size_t at = first, n; at < end; at += n) {
                n = end - at < DCI_KV_TILE ? end - at : DCI_KV_TILE;
                dci_kv_rows_of(r->kv, layer, head, at, n, keys, values);
                attend_rows(r, keys, values, n);
        }
}

/* Prefetches a row: rows are scattered, which no hardware prefetcher foresees. */
DCI_INLINE void fetch(const void *row, size_t n_bytes)
{
        for (size_t i = 0; i < n_bytes; i += DCI_CACHE_LINE)
                DCI_PREFETCH((const unsigned char *)row + i);
}

static void attend_slots(dci_kv_running *r, size_t layer, const int32_t *slots, size_t n_slots)
{
        const dci_kv *kv = r->kv;
        const size_t per_page = kv->config.page_tokens, n_heads = kv->config.n_kv_heads;
        const void *keys[DCI_KV_TILE], *values[DCI_KV_TILE];
        for (size_t at = 0, n; at < n_slots; at += n) {
                n = n_slots - at < DCI_KV_TILE ? n_slots - at : DCI_KV_TILE;
                for (size_t i = 0; i < n; i++) {
                        const size_t page = (size_t)slots[at + i] / per_page, slot = (size_t)slots[at + i] % per_page;
                        const dci_kv_page rows = dci_kv_page_at(kv, layer, (int32_t)(page / n_heads), page % n_heads);
                        keys[i] = rows.keys + slot * rows.key_step;
                        values[i] = rows.values + slot * rows.value_step;
                        fetch(keys[i], kv->dim_k * kv->es);
                        fetch(values[i], kv->dim_v * kv->es);
                }
                attend_rows(r, keys, values, n);
        }
}

/* Each list is for its own queries; ranges are for all. first_list: of all sequences. */
static void attend_lists(dci_kv_running *r, size_t layer, const dci_kv_plan *plan, size_t first_list)
{
        const dci_kv *kv = r->kv;
        for (size_t l = 0; l < kv->head_lists; l++) {
                const size_t list = first_list + l;
                r->first = l * kv->group;
                r->end = r->first + kv->group;
                attend_slots(r, layer, plan->slots + list * plan->stride, (size_t)plan->counts[list]);
        }
        r->first = 0;
        r->end = kv->share;
}

/* out = the exact part and the tail by their shares of the whole sum. */
static void finish(const dci_kv_running *r, size_t q, const float *tail, float tail_lse, float *out, float *out_lse)
{
        const size_t dim = r->kv->dim_v;
        const float *acc = r->acc + q * dim;
        const double exact = r->sum[q] > 0.0f ? (double)r->most[q] + log((double)r->sum[q]) : -INFINITY;
        const double rest = (double)tail_lse, most = exact > rest ? exact : rest;
        const double lse = isinf(most) ? most : most + log(exp(exact - most) + exp(rest - most));
        const float of_exact = isinf(exact) ? 0.0f : (float)(exp(exact - lse) / (double)r->sum[q]);
        const float of_rest = isinf(rest) ? 0.0f : (float)exp(rest - lse);
        for (size_t j = 0; j < dim; j++)
                out[j] = of_exact * acc[j] + (tail != NULL ? of_rest * tail[j] : 0.0f);
        if (out_lse != NULL)
                *out_lse = (float)lse;
}

static void attend_task(void *arg, size_t task, size_t worker)
{
        const attending *a = arg;
        const dci_kv *kv = a->kv;
        const dci_kv_plan *plan = a->plan;
        const size_t i = task / kv->config.n_kv_heads, head = task % kv->config.n_kv_heads;
        const size_t first = i * kv->config.n_query_heads + head * kv->share;
        const dci_kv_layer *layer = &a->found[i]->layers[a->layer];
        dci_kv_running r = begin(kv, worker);
        dci_kv_queries_to_f32(kv, a->queries, a->ld, i, head * kv->share, kv->share, r.queries);
        if (plan == NULL) {
                attend_range(&r, layer, head, 0, layer->n);
        } else {
                attend_range(&r, layer, head, 0, (size_t)plan->sink_end[i]);
                attend_lists(&r, a->layer, plan, i * kv->n_lists + head * kv->head_lists);
                attend_range(&r, layer, head, (size_t)plan->recent_begin[i], (size_t)plan->n_tokens[i]);
        }
        for (size_t q = 0; q < kv->share; q++) {
                const bool tail = plan != NULL && plan->tail_out != NULL;
                finish(&r, q, tail ? plan->tail_out + (first + q) * kv->dim_v : NULL,
                       tail ? plan->tail_lse[first + q] : -INFINITY, a->out + (first + q) * a->out_ld,
                       a->out_lse != NULL ? a->out_lse + first + q : NULL);
        }
}

static const char *list_head(const dci_kv *kv)
{
        return kv->config.query_head_lists != 0 ? "query" : "kv";
}

/* Refuses a plan that does not fit the sequences: it is in the caller's memory, and tokens may have been truncated since. */
static dci_status check_lists(const dci_kv *kv, size_t layer, size_t n_sequences, dci_kv_sequence *const *found,
                              const dci_kv_plan *plan)
{
        const size_t n_heads = kv->config.n_kv_heads, n_slots = kv->pool.n_blocks * n_heads * kv->config.page_tokens;
        for (size_t i = 0; i < n_sequences; i++) {
                const int32_t sink = plan->sink_end[i], recent = plan->recent_begin[i], n = plan->n_tokens[i];
                if (sink < 0 || recent < sink || n < recent || (size_t)n > found[i]->layers[layer].n)
                        return dci_fail(
                                DCI_ERR_INVALID,
                                "sequence %lld: the plan's ranges end at %d, begin at %d and end at %d, but layer "
                                "%zu has %zu tokens",
                                (long long)found[i]->id, (int)sink, (int)recent, (int)n, layer,
                                found[i]->layers[layer].n);
                for (size_t l = 0; l < kv->n_lists; l++) {
                        const int32_t count = plan->counts[i * kv->n_lists + l];
                        const int32_t *slots = plan->slots + (i * kv->n_lists + l) * plan->stride;
                        if (count < 0 || (size_t)count > plan->stride)
                                return dci_fail(DCI_ERR_INVALID, "sequence %lld: the list of %s head %zu has %d slots",
                                                (long long)found[i]->id, list_head(kv), l, (int)count);
                        for (int32_t s = 0; s < count; s++)
                                if (slots[s] < 0 || (size_t)slots[s] >= n_slots)
                                        return dci_fail(
                                                DCI_ERR_INVALID,
                                                "sequence %lld: slot %d in the list of %s head %zu, expected less "
                                                "than %zu",
                                                (long long)found[i]->id, (int)slots[s], list_head(kv), l, n_slots);
                }
        }
        return DCI_OK;
}

static dci_status check(const attending *a, size_t n_sequences)
{
        const dci_kv *kv = a->kv;
        DCI_TRY(dci_kv_check_queries(kv, a->layer, n_sequences, a->found, a->queries, a->ld));
        if (a->plan != NULL)
                DCI_TRY(dci_kv_check_plan(kv, n_sequences, a->plan));
        if (a->plan != NULL)
                DCI_TRY(check_lists(kv, a->layer, n_sequences, a->found, a->plan));
        if (n_sequences > 0 && a->out == NULL)
                return dci_fail(DCI_ERR_INVALID, "out is NULL");
        if (a->out_ld < kv->dim_v)
                return dci_fail(DCI_ERR_INVALID, "the output's stride is %zu, expected at least %zu", a->out_ld,
                                kv->dim_v);
        DCI_TRY(dci_kv_check_span("outputs", n_sequences * kv->config.n_query_heads, a->out, a->out_ld,
                                  sizeof *a->out));
        return dci_check_aligned("logarithms of sums", a->out_lse, sizeof *a->out_lse);
}

static dci_status attend(attending *a, size_t n_sequences)
{
        dci_kv *kv = a->kv;
        const size_t most = dci_kv_max_attended(&kv->config);
        size_t tokens = 0;
        dci_status status = check(a, n_sequences);
        if (status == DCI_OK)
                status = dci_kv_plans_ready(kv, 0);
        if (status != DCI_OK || n_sequences == 0)
                return status;
        for (size_t i = 0; i < n_sequences; i++) {
                const size_t n = a->found[i]->layers[a->layer].n;
                tokens += a->plan == NULL || a->plan->recent_begin[i] == 0 || n < most ? n : most;
        }
        return dci_kv_spread(kv, kv->plans.n_areas, n_sequences * kv->config.n_kv_heads,
                             tokens * kv->config.n_query_heads * (kv->dim_k + kv->dim_v), attend_task, a);
}

dci_status dci_kv_attend(dci_kv *kv, size_t layer, size_t n_sequences, const int64_t *sequences, const void *queries,
                         size_t ld, const dci_kv_plan *plan, float *out, size_t out_ld, float *out_lse)
{
        dci_kv_sequence **found;
        DCI_TRY(dci_kv_begin_call(kv, n_sequences, sequences, &found));
        attending a = {.kv = kv,
                       .layer = layer,
                       .ld = ld,
                       .out_ld = out_ld,
                       .found = found,
                       .queries = queries,
                       .plan = plan,
                       .out = out,
                       .out_lse = out_lse};
        dci_status status = attend(&a, n_sequences);
        dci_kv_unlock(kv);
        return status;
}
