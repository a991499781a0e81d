/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Third stage: from scores to the tokens that are attended to. */
#include "core/internal.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "kv/clusters.h"
#include "kv/geometry.h"
#include "kv/lookup.h"
#include "kv/stages/rank.h"
#include "kv/stages/select.h"
#include "kv/stages/summary_codes.h"
#include "simd/topk.h"

/* By query, the logarithm of the sum of exponentials over the tokens that are attended to anyway. */
static void weigh_kept(const dci_kv_query *ask, double *out)
{
        const dci_kv *kv = ask->kv;
        const dci_kernels *kernels = kv->context->kernels;
        const size_t sink = kv->config.sink, begin = sink + ask->n_candidates, n = ask->layer->n;
        const size_t n_kept = sink + (n - begin);
        const void *rows[DCI_KV_TILE];
        float scores[DCI_MANY_QUERIES * DCI_KV_TILE];
        for (size_t q = 0; q < kv->group; q++)
                out[q] = -INFINITY;
        for (size_t i = 0, here; i < n_kept; i += here) {
                const size_t first = i < sink ? i : begin + (i - sink), end = i < sink ? sink : n;
                here = end - first < DCI_KV_TILE ? end - first : DCI_KV_TILE;
                dci_kv_rows_of(kv, ask->layer, ask->head, first, here, rows, NULL);
                for (size_t q = 0; q < kv->group; q++) {
                        const size_t at = q % DCI_MANY_QUERIES, left = kv->group - q;
                        if (at == 0)
                                kernels->score_many[kv->config.dtype - 1][DCI_FORM_DOT](
                                        ask->queries + q * kv->dim_k, kv->dim_k,
                                        left < DCI_MANY_QUERIES ? left : DCI_MANY_QUERIES, rows, here, kv->dim_k,
                                        scores, DCI_KV_TILE);
                        const float most = kernels->greatest(scores + at * DCI_KV_TILE, here);
                        const double lse =
                                (double)most + log((double)kernels->exp_all(scores + at * DCI_KV_TILE, here, most));
                        const double more = lse > out[q] ? lse : out[q], less = lse > out[q] ? out[q] : lse;
                        out[q] = more + log1p(exp(less - more));
                }
        }
}

/* What a term exp(score - most) counts, by query, up to one factor for all. Tokens are weighed by their share of all attention, kept
 * tokens included: heads that mostly look at those have less to say. Groups are not comparable with tokens, and are weighed among
 * each other. */
static void weigh_queries(const dci_kv_query *ask, const float *sums, float *out)
{
        double lse[DCI_KV_MAX_GROUP], kept[DCI_KV_MAX_GROUP], greatest = -INFINITY;
        const bool tokens = ask->kv->config.group == DCI_KV_GROUP_TOKEN;
        if (tokens)
                weigh_kept(ask, kept);
        for (size_t q = 0; q < ask->kv->group; q++) {
                lse[q] = log((double)sums[q]);
                if (tokens) {
                        const double other = kept[q] - (double)ask->most[q], more = other > lse[q] ? other : lse[q];
                        lse[q] = more + log(exp(lse[q] - more) + exp(other - more));
                }
                greatest = -lse[q] > greatest ? -lse[q] : greatest;
        }
        for (size_t q = 0; q < ask->kv->group; q++)
                out[q] = (float)exp(-lse[q] - greatest);
}

static void combine(dci_kv_query *ask, size_t n)
{
        const size_t group = ask->kv->group;
        const bool softmax = dci_kv_combines_by_softmax(ask->kv);
        float *weights = ask->weights, sums[DCI_KV_MAX_GROUP] = {0.0f};
        for (size_t q = 0; q < group && softmax; q++)
                sums[q] = dci_kv_soften(ask, q, n);
        if (softmax)
                weigh_queries(ask, sums, weights);
        for (size_t q = 0; q < group && !softmax; q++)
                weights[q] = 1.0f / (float)group;
        ask->kv->context->kernels->weigh(ask->scores, ask->ld, group, weights, n, ask->relevance);
        if (!softmax)
                dci_kv_store_terms(ask, n);
}

/* How many groups fill the room: of pages one more, since the last one of all may be partial. */
static size_t filling(const dci_kv *kv, size_t room)
{
        const size_t per = dci_kv_group_tokens(kv);
        return (room + per - 1) / per + (per > 1 ? 1 : 0);
}

/* Groups that a tail estimates in addition; if it estimates all, they need no rank. */
static size_t ranked_for_tail(const dci_kv *kv, size_t n_groups)
{
        return dci_kv_sums_of_lists(kv) && kv->config.estimate_share < 1.0 ? dci_kv_estimated(kv, n_groups) : 0;
}

size_t dci_kv_ranked(const dci_kv *kv, size_t n_tokens)
{
        return dci_kv_verified(kv, filling(kv, dci_kv_stride(kv))) + ranked_for_tail(kv, n_tokens);
}

/* Groups in their order until the room is full, the last one cut, and as many more as are estimated. */
typedef struct taking {
        dci_kv_query *ask;
        const dci_kv_grouping *grouping;
        size_t estimated; /* still to come */
        size_t n_first;   /* groups that are taken before the ranking */
} taking;

static size_t static_groups(const dci_kv_query *ask)
{
        const dci_kv_layer *layer = ask->layer;
        return ask->kv->config.select == DCI_KV_SELECT_STATIC && layer->n_batches > 0
                       ? layer->batches[0]->n_static / ask->kv->config.page_tokens
                       : 0;
}

/* false: no more groups are wanted. */
static bool take_group(taking *t, size_t group)
{
        dci_kv_query *ask = t->ask;
        int32_t room[DCI_KV_TILE];
        size_t n = 0;
        if (group < t->n_first)
                return true;
        if (ask->n_chosen < ask->room) {
                const int32_t *members =
                        t->grouping->members(ask->kv, ask->layer, ask->head, group, ask->n_candidates, room, &n);
                n = n < ask->room - ask->n_chosen ? n : ask->room - ask->n_chosen;
                memcpy(ask->chosen + ask->n_chosen, members, n * sizeof *members);
                ask->n_chosen += n;
        } else if (t->estimated > 0) {
                t->estimated--;
        } else {
                return false;
        }
        if (dci_kv_sums_of_lists(ask->kv))
                ask->taken[group] = (int32_t)n;
        return true;
}

/* Static tokens come first, the best of them first. */
static taking begin_taking(dci_kv_query *ask, const dci_kv_grouping *grouping, size_t n_groups)
{
        const dci_kv *kv = ask->kv;
        const bool some = kv->config.estimate_share < 1.0;
        ask->n_chosen = 0;
        for (size_t g = 0; g < n_groups && dci_kv_sums_of_lists(kv); g++)
                ask->taken[g] = some ? DCI_KV_DROPPED : 0;
        taking t = {ask, grouping, ranked_for_tail(kv, n_groups), 0};
        const size_t n_static = static_groups(ask) < n_groups ? static_groups(ask) : n_groups;
        for (size_t g = 0; g < n_static && ask->n_chosen < ask->room; g++)
                take_group(&t, g);
        t.n_first = n_static;
        return t;
}

/* How many of the best groups are wanted. */
static size_t groups_wanted(const dci_kv_query *ask, size_t n_groups)
{
        const size_t wanted = filling(ask->kv, ask->room) + ranked_for_tail(ask->kv, n_groups);
        return wanted < n_groups ? wanted : n_groups;
}

/* Listed groups whose members are all in the window again, after a truncation, come last. */
static void put_empty_last(const dci_kv_query *ask, const dci_kv_grouping *grouping, size_t n_groups, float *scores)
{
        const dci_kv_layer *layer = ask->layer;
        if (!grouping->listed || n_groups == 0 || ask->n_candidates == layer->n_grouped)
                return;
        for (size_t g = 0, n; g < n_groups; g++) {
                grouping->members(ask->kv, layer, ask->head, g, ask->n_candidates, NULL, &n);
                if (n == 0)
                        scores[g] = -FLT_MAX;
        }
}

/* The best groups until the room is full. */
static void take_best(dci_kv_query *ask, const dci_kv_grouping *grouping, size_t n_groups)
{
        put_empty_last(ask, grouping, n_groups, ask->relevance);
        const size_t n_best = dci_kv_best(ask->kv, ask->relevance, n_groups, NULL, groups_wanted(ask, n_groups),
                                          ask->work, ask->lists);
        taking t = begin_taking(ask, grouping, n_groups);
        for (size_t i = 0; i < n_best && take_group(&t, (size_t)dci_kv_scored(ask, (size_t)ask->lists[i])); i++)
                continue;
}

/* Each query head's best groups, in turns. */
static void take_in_turns(dci_kv_query *ask, const dci_kv_grouping *grouping, size_t n_groups)
{
        const size_t group = ask->kv->group, ld = groups_wanted(ask, n_groups);
        size_t n_best[DCI_KV_MAX_GROUP], most = 0;
        uint64_t *seen = (uint64_t *)(void *)ask->relevance;
        for (size_t q = 0; q < group; q++) {
                float *scores = ask->scores + q * ask->ld;
                put_empty_last(ask, grouping, n_groups, scores);
                n_best[q] = dci_kv_best(ask->kv, scores, n_groups, NULL, ld, ask->work, ask->lists + q * ld);
                most = n_best[q] > most ? n_best[q] : most;
        }
        memset(seen, 0, (n_groups + 63) / 64 * sizeof *seen);
        taking t = begin_taking(ask, grouping, n_groups);
        bool more = true;
        for (size_t i = 0; i < most * group && more; i++) {
                const size_t q = i % group, rank = i / group;
                if (rank >= n_best[q])
                        continue;
                const size_t g = (size_t)ask->lists[q * ld + rank];
                if ((seen[g / 64] >> (g % 64) & 1) == 0)
                        more = take_group(&t, (size_t)dci_kv_scored(ask, g));
                seen[g / 64] |= UINT64_C(1) << (g % 64);
        }
        dci_kv_store_terms(ask, n_groups);
}

static void select_scan(dci_kv_query *ask, const dci_kv_grouping *grouping)
{
        const size_t n =
                ask->n_scored > 0 ? ask->n_scored : grouping->count(ask->kv, ask->layer, ask->head, ask->n_candidates);
        if (ask->kv->config.combine == DCI_KV_COMBINE_EACH) {
                take_in_turns(ask, grouping, n);
        } else {
                combine(ask, n);
                if (ask->kv->config.verify > 1.0)
                        dci_kv_select_verified(ask, n);
                else
                        take_best(ask, grouping, n);
        }
        dci_kv_put_in_order(ask);
}

/* Pages without static tokens compete among each other. A ranking may come to static ones where there is room for all candidates, as a list
 * that a schedule keeps may have; they are taken by then. */
static void select_static(dci_kv_query *ask, const dci_kv_grouping *grouping)
{
        const size_t n_static = static_groups(ask);
        for (size_t q = 0; q < ask->kv->group; q++)
                for (size_t g = 0; g < n_static; g++)
                        ask->scores[q * ask->ld + g] = -0.25f * FLT_MAX; /* their mean is finite, too */
        select_scan(ask, grouping);
}

static void select_nothing(dci_kv_query *ask, const dci_kv_grouping *grouping)
{
        (void)grouping;
        ask->n_chosen = 0;
}

static void select_recent(dci_kv_query *ask, const dci_kv_grouping *grouping)
{
        (void)grouping;
        const size_t n = ask->n_candidates, room = ask->room < n ? ask->room : n;
        for (size_t i = 0; i < room; i++)
                ask->chosen[i] = (int32_t)(n - room + i);
        ask->n_chosen = room;
}

static void select_tree(dci_kv_query *ask, const dci_kv_grouping *grouping)
{
        (void)grouping;
        dci_kv_tree_search(ask);
        dci_kv_put_in_order(ask);
}

/* What was chosen once, best first, as far as there is room; the rest of the room, where a short prompt or truncation left some, goes to
 * the latest. */
static void select_fixed(dci_kv_query *ask, const dci_kv_grouping *grouping)
{
        const dci_kv_head *head = &ask->layer->heads[ask->head];
        uint64_t *taken = (uint64_t *)(void *)ask->relevance;
        (void)grouping;
        memset(taken, 0, (ask->n_candidates + 63) / 64 * sizeof *taken);
        ask->n_chosen = 0;
        for (size_t i = 0; i < head->n_fixed && ask->n_chosen < ask->room; i++) {
                const size_t candidate = (size_t)head->fixed[i];
                if (candidate >= ask->n_candidates)
                        continue;
                ask->chosen[ask->n_chosen++] = head->fixed[i];
                taken[candidate / 64] |= UINT64_C(1) << (candidate % 64);
        }
        for (size_t c = ask->n_candidates; c-- > 0 && ask->n_chosen < ask->room;)
                if ((taken[c / 64] >> (c % 64) & 1) == 0)
                        ask->chosen[ask->n_chosen++] = (int32_t)c;
        dci_kv_put_in_order(ask);
}

const dci_kv_choice dci_kv_choices[DCI_KV_CHOICES + 1] = {
        [DCI_KV_SELECT_NONE] = {DCI_KV_SELECT_NONE, false, select_nothing},
        [DCI_KV_SELECT_ALL] = {DCI_KV_SELECT_ALL, false, select_nothing},
        [DCI_KV_SELECT_SCAN] = {DCI_KV_SELECT_SCAN, true, select_scan},
        [DCI_KV_SELECT_OBSERVED] = {DCI_KV_SELECT_OBSERVED, false, select_fixed},
        [DCI_KV_SELECT_RECENT] = {DCI_KV_SELECT_RECENT, false, select_recent},
        [DCI_KV_SELECT_TREE] = {DCI_KV_SELECT_TREE, false, select_tree},
        [DCI_KV_SELECT_STATIC] = {DCI_KV_SELECT_STATIC, true, select_static},
};

size_t dci_kv_observed_bytes(const dci_kv *kv, size_t n)
{
        if (kv->config.select != DCI_KV_SELECT_OBSERVED)
                return 0;
        const size_t room = dci_kv_max_room(kv);
        return 2 * dci_lines(n * sizeof(float)) + dci_topk_bytes(room < n ? room : n);
}

/* Of each candidate and its neighbours, `width` of them in all, the greatest importance (SnapKV's pooling). */
static void pool_neighbours(const float *importance, size_t n, size_t width, float *out)
{
        const size_t reach = width / 2;
        for (size_t i = 0; i < n; i++) {
                const size_t begin = i > reach ? i - reach : 0, end = i + reach < n ? i + reach + 1 : n;
                out[i] = importance[begin];
                for (size_t j = begin + 1; j < end; j++)
                        out[i] = importance[j] > out[i] ? importance[j] : out[i];
        }
}

/* The softmax of every observed query over the candidates, summed. */
void dci_kv_select_observed(dci_kv *kv, dci_kv_layer *layer, size_t head, size_t n)
{
        const dci_kernels *kernels = kv->context->kernels;
        dci_kv_head *h = &layer->heads[head];
        const size_t room = dci_kv_max_room(kv), dim = kv->dim_k;
        const void *rows[DCI_KV_TILE];
        if (layer->observed == NULL)
                return;
        const float *queries = layer->observed + head * layer->n_observed * dim;
        unsigned char *memory = (unsigned char *)layer->observed + layer->observed_bytes -
                                (kv->config.n_kv_heads - head) * dci_kv_observed_bytes(kv, n);
        float *relevance = (float *)(void *)memory, *scores = (float *)(void *)(memory + dci_lines(n * sizeof(float)));
        memset(relevance, 0, n * sizeof *relevance);
        /* Queries older than the window would look at keys that came after them. Without one the last sees all. */
        const size_t young = (kv->config.window > 0 ? kv->config.window : 1) * kv->group;
        const size_t oldest =
                kv->config.frozen_prompt == 0 && layer->n_observed > young ? layer->n_observed - young : 0;
        for (size_t q = oldest; q < layer->n_observed; q++) {
                for (size_t i = 0; i < n; i += DCI_KV_TILE) {
                        const size_t here = n - i < DCI_KV_TILE ? n - i : DCI_KV_TILE;
                        dci_kv_rows_of(kv, layer, head, kv->config.sink + i, here, rows, NULL);
                        kernels->score_rows[kv->config.dtype - 1][DCI_FORM_DOT](queries + q * dim, rows, here, dim,
                                                                                scores + i);
                }
                const float sum = kernels->exp_all(scores, n, kernels->greatest(scores, n));
                const float share = 1.0f / sum;
                const void *row = scores;
                kernels->add_rows[DCI_F32 - 1](&row, &share, 1, n, relevance);
        }
        if (kv->config.observed_pool > 1) {
                pool_neighbours(relevance, n, kv->config.observed_pool, scores);
                relevance = scores;
        }
        h->n_fixed = dci_kv_best(kv, relevance, n, NULL, room, memory + 2 * dci_lines(n * sizeof(float)), h->fixed);
}
