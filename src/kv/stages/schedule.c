/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Fourth stage: when it is decided again which tokens are attended to. What one plan of a layer leaves to the next, its lists with the
 * best first and its queries, is taken with the sequence, so that plans take no memory. Lists are as long as a list can get, whatever
 * room a plan has: each uses as much of them as there is room for.
 */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "core/arena.h"
#include "kv/geometry.h"
#include "kv/memory.h"
#include "kv/queries.h"
#include "kv/stages/rank.h"
#include "kv/stages/schedule.h"
#include "kv/worker.h"

/* --- what plans keep ---------------------------------------------------------------------------------------------- */

/* Bytes of a layer's cache; memory: where it is, with its pointers to be set in *out, or NULL. */
static size_t lay_out(const dci_kv *kv, size_t layer, void *memory, dci_kv_selection_cache *out)
{
        const dci_kv_config *c = &kv->config;
        const dci_kv_schedule *schedule = &kv->stages->schedule;
        const bool lists = schedule->lists && dci_kv_anchor_of(kv, layer) == layer;
        const size_t queries = c->n_query_heads * kv->dim_k * sizeof(float), rows = lists ? kv->n_lists : 0;
        const dci_arena_part parts[] = {{sizeof *out, NULL},
                                        {rows * dci_kv_max_room(kv) * sizeof *out->lists, &out->lists},
                                        {rows * sizeof *out->counts, &out->counts},
                                        {lists && schedule->queries ? queries : 0, &out->queries},
                                        {c->ring * queries, &out->ring}};
        *out = (dci_kv_selection_cache){0};
        if (kv->layer_modes[layer] != DCI_KV_LAYER_SPARSE || (!lists && c->ring == 0))
                return 0;
        return DCI_ARENA(parts, memory);
}

static size_t bytes_of_layer(const dci_kv *kv, size_t layer)
{
        dci_kv_selection_cache parts;
        return lay_out(kv, layer, NULL, &parts);
}

size_t dci_kv_selection_cache_bytes(const dci_kv *kv)
{
        size_t n_bytes = 0;
        for (size_t l = 0; l < kv->config.n_layers; l++)
                n_bytes += bytes_of_layer(kv, l);
        return n_bytes;
}

void dci_kv_place_selection_cache(const dci_kv *kv, dci_kv_sequence *sequence)
{
        unsigned char *at = sequence->selection;
        for (size_t l = 0; l < kv->config.n_layers && at != NULL; l++) {
                dci_kv_selection_cache parts;
                const size_t n_bytes = lay_out(kv, l, at, &parts);
                if (n_bytes == 0)
                        continue;
                memset(at, 0, n_bytes);
                sequence->layers[l].selection = (dci_kv_selection_cache *)(void *)at;
                *sequence->layers[l].selection = parts;
                at += n_bytes;
        }
}

dci_status dci_kv_copy_selection_cache(dci_kv *kv, const dci_kv_layer *from, size_t n, dci_kv_layer *to)
{
        /* A plan may come before the next reservation, and its token be a turn. */
        const size_t room = from->n_boundaries + (kv->config.schedule == DCI_KV_BOUNDARY && to->selection != NULL);
        DCI_TRY(dci_kv_grow(kv, (void **)&to->boundaries, &to->boundary_capacity, room, sizeof *to->boundaries));
        if (from->n_boundaries > 0)
                memcpy(to->boundaries, from->boundaries, from->n_boundaries * sizeof *to->boundaries);
        to->n_boundaries = from->n_boundaries;
        if (from->selection != NULL) {
                dci_kv_selection_cache *d = to->selection;
                const dci_kv_selection_cache own = *d;
                memcpy(d, from->selection, bytes_of_layer(kv, from->number));
                d->queries = own.queries;
                d->lists = own.lists;
                d->counts = own.counts;
                d->ring = own.ring;
        }
        dci_kv_truncate_selection_cache(kv, to, n);
        return DCI_OK;
}

/* A list is dropped by the candidates it was chosen from, not by the tokens it lost: that does not depend on the choice. */
void dci_kv_truncate_selection_cache(const dci_kv *kv, dci_kv_layer *layer, size_t n)
{
        dci_kv_selection_cache *d = layer->selection;
        while (layer->n_boundaries > 0 && (size_t)layer->boundaries[layer->n_boundaries - 1] >= n)
                layer->n_boundaries--;
        if (d == NULL)
                return;
        if (kv->config.sink + d->end > n)
                d->listed = false;
        if (d->n > n)
                d->n = 0;
}

dci_status dci_kv_boundaries_ready(dci_kv *kv, dci_kv_sequence *sequence, size_t n_tokens)
{
        if (kv->config.schedule != DCI_KV_BOUNDARY)
                return DCI_OK;
        for (size_t l = 0; l < kv->config.n_layers; l++) {
                dci_kv_layer *layer = &sequence->layers[l];
                /* Plans come when the prompt has ended, and after its end no more tokens of the step. */
                const size_t more = layer->prompt == DCI_KV_PROMPT_OPEN ? 1 : n_tokens;
                if (layer->selection != NULL)
                        DCI_TRY(dci_kv_grow(kv, (void **)&layer->boundaries, &layer->boundary_capacity,
                                            layer->n_boundaries + more + 1, sizeof *layer->boundaries));
        }
        return DCI_OK;
}

dci_status dci_kv_note_boundaries(dci_kv *kv, dci_kv_layer *layer, const int32_t *tokens, size_t n)
{
        DCI_TRY(dci_kv_lock(kv));
        dci_status status = dci_kv_grow(kv, (void **)&layer->boundaries, &layer->boundary_capacity,
                                        layer->n_boundaries + n, sizeof *layer->boundaries);
        for (size_t i = 0; i < n && status == DCI_OK; i++)
                if (layer->n_boundaries == 0 || layer->boundaries[layer->n_boundaries - 1] < tokens[i])
                        layer->boundaries[layer->n_boundaries++] = tokens[i];
        dci_kv_unlock(kv);
        return status;
}

/* --- boundaries --------------------------------------------------------------------------------------------------- */

/* Products of the same kernel: the cosine of a row with itself is 1 to the bit. A row of zeros has no direction, and the cosine 0 with
 * all but its like. */
static double cosine(const dci_kernels *kernels, const float *a, const float *b, size_t dim)
{
        const void *rows[2] = {a, b};
        float of_a[2], of_b;
        kernels->score_rows[DCI_F32 - 1][DCI_FORM_DOT](a, rows, 2, dim, of_a);
        kernels->score_rows[DCI_F32 - 1][DCI_FORM_DOT](b, rows + 1, 1, dim, &of_b);
        if (of_a[0] == 0.0f || of_b == 0.0f)
                return of_a[0] == of_b ? 1.0 : 0.0;
        return (double)of_a[1] / sqrt((double)of_a[0] * (double)of_b);
}

double dci_kv_query_similarity(const dci_kernels *kernels, const float *queries, const float *before, size_t n,
                               size_t dim)
{
        double sum = 0.0;
        for (size_t i = 0; i < n; i++)
                sum += cosine(kernels, queries + i * dim, before + i * dim, dim);
        return sum / (double)n;
}

static bool due_after_period(const dci_kv *kv, const dci_kv_layer *layer, size_t sequence, const void *queries,
                             size_t ld)
{
        (void)sequence;
        (void)queries;
        (void)ld;
        return layer->selection->since >= kv->config.period;
}

/* LouisKV's gate: one number for all heads of the layer. What is no number, of queries that are too large, decides. */
static bool due_at_turn(const dci_kv *kv, const dci_kv_layer *layer, size_t sequence, const void *queries, size_t ld)
{
        const size_t per_list = kv->group * kv->dim_k;
        float *now = (float *)(void *)kv->plans.memory;
        double sum = 0.0;
        for (size_t l = 0; l < kv->n_lists; l++) {
                dci_kv_queries_to_f32(kv, queries, ld, sequence, l * kv->group, kv->group, now);
                sum += dci_kv_query_similarity(kv->context->kernels, now, layer->selection->queries + l * per_list,
                                               kv->group, kv->dim_k);
        }
        return !(sum / (double)kv->n_lists >= kv->config.tau);
}

/* FreeKV's correction: one number for a list. */
static bool keeps_unless_turned(const dci_kv_query *ask)
{
        const dci_kv *kv = ask->kv;
        const float *before = ask->layer->selection->queries + ask->list * kv->group * kv->dim_k;
        return dci_kv_query_similarity(kv->context->kernels, ask->queries, before, kv->group, kv->dim_k) >=
               kv->config.tau;
}

const dci_kv_schedule dci_kv_schedules[DCI_KV_SCHEDULES + 1] = {
        [DCI_KV_EVERY_STEP] = {DCI_KV_EVERY_STEP, false, false, NULL, NULL},
        [DCI_KV_ONCE] = {DCI_KV_ONCE, false, false, NULL, NULL},
        [DCI_KV_PERIODIC] = {DCI_KV_PERIODIC, true, false, due_after_period, NULL},
        [DCI_KV_BOUNDARY] = {DCI_KV_BOUNDARY, true, true, due_at_turn, NULL},
        [DCI_KV_ANCHOR] = {DCI_KV_ANCHOR, true, false, NULL, NULL},
        [DCI_KV_AHEAD] = {DCI_KV_AHEAD, true, true, NULL, keeps_unless_turned},
};

/* --- plans -------------------------------------------------------------------------------------------------------- */

void dci_kv_schedule_begin(dci_kv *kv, dci_kv_layer *layer, size_t sequence, const void *queries, size_t ld)
{
        const dci_kv_schedule *schedule = &kv->stages->schedule;
        dci_kv_selection_cache *d = layer->selection;
        if (d == NULL || d->lists == NULL)
                return;
        d->decides = !d->listed || schedule->due == NULL || schedule->due(kv, layer, sequence, queries, ld);
}

/* As much of a list as there is room for. Candidates that count as recent tokens since the sequence was cut are attended to anyway. */
static void take_list(dci_kv_query *ask, const int32_t *list, size_t n)
{
        ask->ranked = NULL;
        ask->n_chosen = 0;
        for (size_t i = 0; i < n && ask->n_chosen < ask->room; i++)
                if ((size_t)list[i] < ask->n_candidates)
                        ask->chosen[ask->n_chosen++] = list[i];
        dci_kv_put_in_order(ask);
}

/* The ranking that the choice makes of a step's queries: of groups that are all ranked, as far as any list can get. Other choices look at
 * the room they have, and are given that of the plan. */
static void rank_all(dci_kv_query *ask)
{
        const dci_kv_stages *stages = ask->kv->stages;
        const size_t room = ask->room;
        if (stages->select.ranks)
                ask->room = dci_kv_max_room(ask->kv);
        ask->n_ranked = 0;
        stages->select.select(ask, &stages->group);
        ask->room = room;
}

/* The list of a layer that keeps lists, from the plan before or from now. */
static void decide(dci_kv_layer *layer, dci_kv_query *ask)
{
        const dci_kv *kv = ask->kv;
        const dci_kv_schedule *schedule = &kv->stages->schedule;
        dci_kv_selection_cache *d = layer->selection;
        dci_kv_head *head = &layer->heads[ask->head];
        int32_t *list = d->lists + ask->list * dci_kv_max_room(kv), *ranked = ask->ranked;
        const size_t n_queries = kv->group * kv->dim_k;
        if (!d->decides) {
                take_list(ask, list, (size_t)d->counts[ask->list]);
        } else {
                const bool keeps = d->listed && schedule->keeps != NULL && schedule->keeps(ask);
                rank_all(ask);
                const size_t n_ranked = ask->n_ranked;
                if (keeps)
                        take_list(ask, list, (size_t)d->counts[ask->list]);
                else
                        take_list(ask, ranked, n_ranked);
                memcpy(list, ranked, n_ranked * sizeof *list);
                d->counts[ask->list] = (int32_t)n_ranked;
                head->n_decisions += !keeps;
                head->n_corrections += d->listed && schedule->keeps != NULL && !keeps;
        }
        if (d->queries != NULL)
                memcpy(d->queries + ask->list * n_queries, ask->queries, n_queries * sizeof(float));
}

void dci_kv_schedule_select(dci_kv_layer *layer, dci_kv_query *ask)
{
        const dci_kv *kv = ask->kv;
        const dci_kv_stages *stages = kv->stages;
        const size_t anchor = dci_kv_anchor_of(kv, layer->number);
        const bool lists = stages->schedule.lists, borrows = anchor != layer->number;
        const bool ranks = stages->select.ranks && (!lists || (!borrows && layer->selection->decides));
        layer->heads[ask->head].n_plans++;
        if (stages->summary.rank != NULL && (ranks || dci_kv_needs_terms(kv)))
                stages->summary.rank(ask);
        if (!ranks) /* terms are of candidates then: sums of lists have none, or rank in each plan */
                dci_kv_store_terms(ask, ask->n_candidates);
        if (!lists) {
                stages->select.select(ask, &stages->group);
                layer->heads[ask->head].n_decisions += stages->schedule.kind == DCI_KV_EVERY_STEP;
        } else if (borrows) {
                const dci_kv_selection_cache *d = layer->sequence->layers[anchor].selection;
                take_list(ask, d->lists + ask->list * dci_kv_max_room(kv), (size_t)d->counts[ask->list]);
        } else {
                decide(layer, ask);
        }
}

void dci_kv_schedule_end(const dci_kv *kv, dci_kv_layer *layer, size_t n_candidates)
{
        dci_kv_selection_cache *d = layer->selection;
        if (d == NULL || d->lists == NULL)
                return;
        if (!d->decides) {
                d->since++;
                return;
        }
        const int32_t last = (int32_t)layer->n - 1;
        const bool turned = d->listed && kv->config.schedule == DCI_KV_BOUNDARY;
        const bool known = layer->n_boundaries > 0 && layer->boundaries[layer->n_boundaries - 1] >= last;
        if (turned && !known && layer->n_boundaries < layer->boundary_capacity)
                layer->boundaries[layer->n_boundaries++] = last;
        d->listed = true;
        d->since = 1;
        d->n = layer->n;
        d->end = n_candidates;
}
