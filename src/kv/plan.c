/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Plans: for each list of a sequence, the stages of the config in their order. */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "core/arena.h"
#include "kv/geometry.h"
#include "kv/lookup.h"
#include "kv/memory.h"
#include "kv/plan_scratch.h"
#include "kv/queries.h"
#include "kv/stages/schedule.h"

/* --- the plan's arrays -------------------------------------------------------------------------------------------- */

dci_status dci_kv_plan_init(dci_kv_plan *plan, size_t struct_size)
{
        return dci_struct_init("dci_kv_plan", plan, struct_size, sizeof *plan);
}

typedef struct parts {
        size_t slots, counts, tail_out, tail_lse; /* elements */
} parts;

static bool parts_of(const dci_kv *kv, size_t n, parts *out)
{
        const dci_kv_config *c = &kv->config;
        *out = (parts){0};
        return dci_mul(n, kv->n_lists, &out->counts) && dci_mul(out->counts, dci_kv_stride(kv), &out->slots) &&
               dci_mul(n, c->n_query_heads, &out->tail_lse) && dci_mul(out->tail_lse, kv->dim_v, &out->tail_out) &&
               out->slots < SIZE_MAX / 64 && out->tail_out < SIZE_MAX / 64;
}

/* The arrays of a plan. memory NULL: only their bytes. */
static size_t place(const dci_kv *kv, size_t n, const parts *p, dci_kv_plan *plan, void *memory)
{
        const size_t tail = kv->config.tail != DCI_KV_TAIL_DROP ? sizeof(float) : 0;
        const dci_arena_part arrays[] = {
                {p->slots * sizeof(int32_t), &plan->slots},   {p->slots * sizeof(int32_t), &plan->positions},
                {p->counts * sizeof(int32_t), &plan->counts}, {n * sizeof(int32_t), &plan->sink_end},
                {n * sizeof(int32_t), &plan->recent_begin},   {n * sizeof(int32_t), &plan->n_tokens},
                {p->tail_out * tail, &plan->tail_out},        {p->tail_lse * tail, &plan->tail_lse}};
        return DCI_ARENA(arrays, memory);
}

dci_status dci_kv_plan_create(dci_kv *kv, size_t max_sequences, dci_kv_plan *out_plan)
{
        parts p;
        void *memory;
        if (kv == NULL || out_plan == NULL)
                return dci_fail(DCI_ERR_INVALID, "%s is NULL", kv == NULL ? "kv" : "out_plan");
        DCI_TRY(dci_check_struct_size("dci_kv_plan", out_plan, out_plan->struct_size, sizeof *out_plan));
        if (max_sequences == 0 || max_sequences > DCI_KV_MAX_SEQUENCES || !parts_of(kv, max_sequences, &p))
                return dci_fail(DCI_ERR_INVALID, "max_sequences is %zu, expected 1 to %zu", max_sequences,
                                DCI_KV_MAX_SEQUENCES);
        DCI_TRY(dci_kv_lock(kv));
        dci_status status = dci_kv_alloc(kv, place(kv, max_sequences, &p, out_plan, NULL), &memory);
        dci_kv_unlock(kv);
        if (status != DCI_OK)
                return status;
        const size_t size = out_plan->struct_size;
        *out_plan = (dci_kv_plan){.struct_size = size,
                                  .max_sequences = max_sequences,
                                  .n_lists = kv->n_lists,
                                  .stride = dci_kv_stride(kv)};
        place(kv, max_sequences, &p, out_plan, memory);
        return DCI_OK;
}

void dci_kv_plan_destroy(dci_kv *kv, dci_kv_plan *plan)
{
        parts p;
        if (kv == NULL || plan == NULL || plan->slots == NULL || !parts_of(kv, plan->max_sequences, &p))
                return;
        dci_kv_free(kv, plan->slots, place(kv, plan->max_sequences, &p, plan, NULL));
        const size_t size = plan->struct_size;
        *plan = (dci_kv_plan){.struct_size = size};
}

/* --- making it ---------------------------------------------------------------------------------------------------- */

typedef struct planning {
        dci_kv *kv;
        size_t layer, ld;
        dci_kv_sequence *const *found;
        const unsigned char *queries;
        dci_kv_plan *plan;
} planning;

/* Candidates of a sequence with n tokens in this layer that are older than the window. */
static size_t candidates_of(const dci_kv *kv, const dci_kv_layer *layer)
{
        const dci_kv_config *c = &kv->config;
        /* A layer without groups of its own that uses another's lists has the candidates those were chosen from. */
        const size_t n_grouped = dci_kv_groups(kv, layer->number)
                                         ? layer->n_grouped
                                         : layer->sequence->layers[dci_kv_anchor_of(kv, layer->number)].n_grouped;
        const size_t kept = c->sink + c->window, n = layer->n;
        const bool summaries = dci_kv_summarised(kv);
        if (c->frozen_prompt) {
                const size_t of_prompt = layer->n_prompt > c->sink ? layer->n_prompt - c->sink : 0;
                return summaries ? n_grouped : of_prompt;
        }
        if (n <= kept)
                return 0;
        if (!summaries && c->select == DCI_KV_SELECT_OBSERVED && c->observed_keep > 0) {
                const size_t of_prompt = dci_kv_prompt_candidates(kv, layer->n_prompt);
                return of_prompt < n - kept ? of_prompt : n - kept;
        }
        if (!summaries)
                return n - kept;
        const size_t old = (n - kept) / dci_kv_unit(kv) * dci_kv_unit(kv);
        return old < n_grouped ? old : n_grouped;
}

/* Whether a layer's plan leaves tokens out; if so, of how many candidates it may choose how many. */
static bool is_sparse(const dci_kv *kv, const dci_kv_layer *layer, size_t *out_candidates, size_t *out_room)
{
        const dci_kv_config *c = &kv->config;
        if (kv->layer_modes[layer->number] != DCI_KV_LAYER_SPARSE || c->select == DCI_KV_SELECT_ALL ||
            layer->sequence->resident)
                return false;
        *out_candidates = candidates_of(kv, layer);
        *out_room = dci_kv_room(c, layer->n, *out_candidates);
        return *out_candidates > *out_room;
}

static void write_list(const planning *p, size_t i, const dci_kv_query *ask)
{
        const dci_kv *kv = p->kv;
        const size_t per_page = kv->config.page_tokens, n_heads = kv->config.n_kv_heads;
        const size_t list = i * kv->n_lists + ask->list, at = list * p->plan->stride;
        const int32_t *table = ask->layer->sequence->table;
        for (size_t c = 0; c < ask->n_chosen; c++) {
                const size_t position = kv->config.sink + (size_t)ask->chosen[c];
                const size_t page = (size_t)table[position / per_page] * n_heads + ask->head;
                p->plan->slots[at + c] = (int32_t)(page * per_page + position % per_page);
                if (p->plan->positions != NULL)
                        p->plan->positions[at + c] = (int32_t)position;
        }
        p->plan->counts[list] = (int32_t)ask->n_chosen;
}

static void no_tail(const planning *p, size_t i, size_t list)
{
        const dci_kv *kv = p->kv;
        const size_t first = i * kv->config.n_query_heads + list * kv->group;
        if (p->plan->tail_out == NULL)
                return;
        memset(p->plan->tail_out + first * kv->dim_v, 0, kv->group * kv->dim_v * sizeof(float));
        for (size_t q = 0; q < kv->group; q++)
                p->plan->tail_lse[first + q] = -INFINITY;
}

/* Into the ring of the last plans' queries. */
static void push_queries(const planning *p, const dci_kv_layer *layer, size_t i, size_t list)
{
        const dci_kv *kv = p->kv;
        const dci_kv_selection_cache *d = layer->selection;
        if (d == NULL || d->ring == NULL)
                return;
        const size_t at = list * kv->config.ring + d->n_pushed % kv->config.ring;
        dci_kv_queries_to_f32(kv, p->queries, p->ld, i, list * kv->group, kv->group,
                              d->ring + at * kv->group * kv->dim_k);
}

static void plan_list(const planning *p, dci_kv_layer *layer, size_t i, size_t list, size_t n_candidates, size_t room,
                      size_t worker)
{
        const dci_kv *kv = p->kv;
        const dci_kv_stages *stages = kv->stages;
        float *queries;
        dci_kv_query ask = dci_kv_query_scratch(kv, worker, &queries);
        dci_kv_queries_to_f32(kv, p->queries, p->ld, i, list * kv->group, kv->group, queries);
        ask.layer = layer;
        ask.head = list / kv->head_lists;
        ask.list = list;
        ask.n_candidates = n_candidates;
        ask.room = ask.plan_room = room;
        dci_kv_schedule_select(layer, &ask);
        write_list(p, i, &ask);
        const size_t first = i * kv->config.n_query_heads + list * kv->group;
        if (stages->tail.add != NULL)
                stages->tail.add(&ask, p->plan->tail_out + first * kv->dim_v, p->plan->tail_lse + first);
}

/* The lists of a kv head, one after the other: they count in its figures. */
static void plan_task(void *arg, size_t task, size_t worker)
{
        const planning *p = arg;
        const dci_kv *kv = p->kv;
        const size_t i = task / kv->config.n_kv_heads, head = task % kv->config.n_kv_heads;
        dci_kv_layer *layer = &p->found[i]->layers[p->layer];
        size_t n_candidates = 0, room = 0;
        const bool sparse = is_sparse(kv, layer, &n_candidates, &room);
        if (head == 0) {
                p->plan->n_tokens[i] = (int32_t)layer->n;
                p->plan->sink_end[i] = sparse ? (int32_t)kv->config.sink : 0;
                p->plan->recent_begin[i] = sparse ? (int32_t)(kv->config.sink + n_candidates) : 0;
        }
        for (size_t list = head * kv->head_lists; list < (head + 1) * kv->head_lists; list++) {
                p->plan->counts[i * kv->n_lists + list] = 0;
                no_tail(p, i, list);
                push_queries(p, layer, i, list);
                if (sparse)
                        plan_list(p, layer, i, list, n_candidates, room, worker);
        }
}

/* --- checks ------------------------------------------------------------------------------------------------------- */

static dci_status check(dci_kv *kv, size_t layer, size_t n_sequences, dci_kv_sequence *const *found,
                        const void *queries, size_t ld, const dci_kv_plan *plan)
{
        if (plan == NULL)
                return dci_fail(DCI_ERR_INVALID, "plan is NULL");
        DCI_TRY(dci_kv_check_queries(kv, layer, n_sequences, found, queries, ld));
        DCI_TRY(dci_kv_check_plan(kv, n_sequences, plan));
        if (kv->config.tail != DCI_KV_TAIL_DROP && plan->tail_out == NULL)
                return dci_fail(DCI_ERR_INVALID, "the plan's tail_out is NULL, but tail is %d", (int)kv->config.tail);
        for (size_t i = 0; i < n_sequences; i++)
                if (found[i]->layers[layer].prompt == DCI_KV_PROMPT_OPEN)
                        return dci_fail(DCI_ERR_INVALID, "sequence %lld: the prompt has not ended in layer %zu",
                                        (long long)found[i]->id, layer);
        return DCI_OK;
}

/* The lists that a layer uses are there. */
static dci_status check_anchor(const dci_kv *kv, const dci_kv_layer *layer)
{
        const size_t number = dci_kv_anchor_of(kv, layer->number);
        const dci_kv_selection_cache *d = layer->sequence->layers[number].selection;
        size_t n_candidates, room;
        if (number == layer->number || !is_sparse(kv, layer, &n_candidates, &room) || (d->listed && d->n == layer->n))
                return DCI_OK;
        return dci_fail(DCI_ERR_INVALID,
                        "sequence %lld: layer %zu uses the lists of layer %zu, which has no plan at %zu tokens",
                        (long long)layer->sequence->id, layer->number, number, layer->n);
}

static dci_status make(dci_kv *kv, size_t layer, size_t n_sequences, dci_kv_sequence *const *found, const void *queries,
                       size_t ld, dci_kv_plan *plan)
{
        size_t longest = 0, work = 0;
        for (size_t i = 0; i < n_sequences; i++) {
                dci_kv_jobs_wait(kv, found[i]);
                longest = found[i]->layers[layer].n > longest ? found[i]->layers[layer].n : longest;
                work += found[i]->layers[layer].n * kv->config.n_query_heads * (kv->dim_k / 8 + 8);
        }
        dci_status status = dci_kv_plans_ready(kv, longest);
        for (size_t i = 0; i < n_sequences && status == DCI_OK; i++)
                status = check_anchor(kv, &found[i]->layers[layer]);
        if (status != DCI_OK || n_sequences == 0)
                return status;
        for (size_t i = 0; i < n_sequences; i++)
                dci_kv_schedule_begin(kv, &found[i]->layers[layer], i, queries, ld);
        planning p = {kv, layer, ld, found, queries, plan};
        status = dci_kv_spread(kv, kv->plans.n_areas, n_sequences * kv->config.n_kv_heads, work, plan_task, &p);
        for (size_t i = 0; i < n_sequences && status == DCI_OK; i++) {
                dci_kv_layer *of = &found[i]->layers[layer];
                size_t n_candidates, room;
                if (of->selection != NULL)
                        of->selection->n_pushed++;
                if (is_sparse(kv, of, &n_candidates, &room))
                        dci_kv_schedule_end(kv, of, n_candidates);
        }
        return status;
}

dci_status dci_kv_plan_make(dci_kv *kv, size_t layer, size_t n_sequences, const int64_t *sequences, const void *queries,
                            size_t ld, dci_kv_plan *plan)
{
        dci_kv_sequence **found;
        DCI_TRY(dci_kv_begin_call(kv, n_sequences, sequences, &found));
        dci_status status = check(kv, layer, n_sequences, found, queries, ld, plan);
        if (status == DCI_OK)
                status = make(kv, layer, n_sequences, found, queries, ld, plan);
        dci_kv_unlock(kv);
        return status;
}
