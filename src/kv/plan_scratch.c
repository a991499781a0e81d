/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Scratch of plans and of attention, which take turns with it: an area for each thread, made for sequences of so many tokens. */
#include "core/internal.h"

#include "core/arena.h"
#include "kv/geometry.h"
#include "kv/memory.h"
#include "kv/plan_scratch.h"
#include "kv/stages/select.h"
#include "kv/stages/summary_codes.h"
#include "kv/stages/summary_votes.h"
#include "kv/tree/tree.h"
#include "simd/topk.h"

static size_t larger(size_t a, size_t b)
{
        return a > b ? a : b;
}

/* Scores of one query: room for whole units. */
static size_t score_stride(const dci_kv *kv, size_t n_tokens)
{
        if (dci_kv_has_trees(kv)) /* its pages need not be full */
                n_tokens += n_tokens / kv->config.page_tokens;
        return (n_tokens + DCI_KV_TILE - 1) / DCI_KV_TILE * DCI_KV_TILE + DCI_KV_TILE;
}

static size_t work_bytes(const dci_kv *kv, size_t n_tokens)
{
        const size_t stages = larger(kv->stages->summary.work_bytes(kv), kv->stages->tail.work_bytes(kv));
        const size_t search = dci_kv_tree_search_bytes(kv, score_stride(kv, n_tokens));
        return larger(larger(stages, search), dci_topk_bytes(dci_kv_ranked(kv, n_tokens)));
}

static size_t taken_bytes(const dci_kv *kv, size_t n_tokens)
{
        return dci_kv_sums_of_lists(kv) ? score_stride(kv, n_tokens) * sizeof(int32_t) : 0;
}

/* A search of trees has lists of its own. */
static size_t lists_bytes(const dci_kv *kv, size_t n_tokens)
{
        const bool each = kv->config.combine == DCI_KV_COMBINE_EACH;
        const size_t lists = !kv->stages->select.ranks ? 0 : each ? kv->group : kv->config.verify > 1.0 ? 2 : 1;
        return lists * dci_kv_ranked(kv, n_tokens) * sizeof(int32_t);
}

static size_t units_bytes(const dci_kv *kv, size_t n_tokens)
{
        if (dci_kv_votes(kv))
                return score_stride(kv, n_tokens) * sizeof(int32_t);
        return dci_kv_preselects(kv) ? (dci_kv_preselected(&kv->config) + 1) * sizeof(int32_t) : 0;
}

/* A plan's arrays for one list. memory NULL: only their bytes. */
static size_t place_query(const dci_kv *kv, size_t n_tokens, dci_kv_query *ask, float **queries, void *memory)
{
        const size_t ld = score_stride(kv, n_tokens), list = dci_kv_stride(kv) * sizeof(int32_t);
        const dci_arena_part parts[] = {{kv->group * kv->dim_k * sizeof(float), queries},
                                        {kv->group * ld * sizeof(float), &ask->scores},
                                        {ld * sizeof(float), &ask->relevance},
                                        {kv->group * sizeof(float), &ask->most},
                                        {list, &ask->chosen},
                                        {list, kv->stages->schedule.lists ? &ask->ranked : NULL},
                                        {taken_bytes(kv, n_tokens), &ask->taken},
                                        {lists_bytes(kv, n_tokens), &ask->lists},
                                        {units_bytes(kv, n_tokens), &ask->units},
                                        {work_bytes(kv, n_tokens), &ask->work}};
        ask->ld = ld;
        return DCI_ARENA(parts, memory);
}

/* The same of attention. */
static size_t place_running(const dci_kv *kv, dci_kv_running *r, void *memory)
{
        const dci_arena_part parts[] = {{kv->share * kv->dim_k * sizeof(float), &r->queries},
                                        {kv->share * DCI_KV_TILE * sizeof(float), &r->scores},
                                        {kv->share * sizeof(float), &r->most},
                                        {kv->share * sizeof(float), &r->sum},
                                        {kv->share * kv->dim_v * sizeof(float), &r->acc}};
        return DCI_ARENA(parts, memory);
}

static size_t area_bytes(const dci_kv *kv, size_t n_tokens)
{
        dci_kv_query ask;
        dci_kv_running r;
        float *queries;
        return larger(place_query(kv, n_tokens, &ask, &queries, NULL), place_running(kv, &r, NULL));
}

/* Tokens that scratch is made for: it grows by half, so that it is seldom allocated again. */
static size_t plan_tokens(const dci_kv *kv, size_t n_tokens)
{
        return larger(n_tokens, n_tokens > kv->plan_tokens ? kv->plan_tokens + kv->plan_tokens / 2 : kv->plan_tokens);
}

static bool suffices(const dci_kv *kv, size_t n_tokens)
{
        return kv->plans.memory != NULL && n_tokens <= kv->plan_tokens &&
               (size_t)atomic_load(&kv->context->n_threads) <= kv->plans.n_areas;
}

size_t dci_kv_plans_bytes(const dci_kv *kv, size_t n_tokens)
{
        return suffices(kv, n_tokens)
                       ? 0
                       : (size_t)atomic_load(&kv->context->n_threads) * area_bytes(kv, plan_tokens(kv, n_tokens));
}

dci_status dci_kv_plans_ready(dci_kv *kv, size_t n_tokens)
{
        const size_t n_areas = (size_t)atomic_load(&kv->context->n_threads), tokens = plan_tokens(kv, n_tokens);
        const size_t bytes = area_bytes(kv, tokens);
        void *memory;
        if (suffices(kv, n_tokens))
                return DCI_OK;
        DCI_TRY(dci_kv_alloc(kv, n_areas * bytes, &memory));
        dci_kv_free(kv, kv->plans.memory, kv->plans.n_areas * kv->plans.area_bytes);
        kv->plans = (dci_kv_scratch){memory, n_areas, bytes};
        kv->plan_tokens = tokens;
        return DCI_OK;
}

dci_kv_query dci_kv_query_scratch(const dci_kv *kv, size_t worker, float **out_queries)
{
        dci_kv_query ask = {.kv = kv};
        place_query(kv, kv->plan_tokens, &ask, out_queries, kv->plans.memory + worker * kv->plans.area_bytes);
        ask.queries = *out_queries;
        return ask;
}

dci_kv_running dci_kv_running_scratch(const dci_kv *kv, size_t worker)
{
        dci_kv_running r = {.kv = kv};
        place_running(kv, &r, kv->plans.memory + worker * kv->plans.area_bytes);
        return r;
}
