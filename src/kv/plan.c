/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Plans: for each sequence and kv head, the stages of the config in their order. */
#include "core/internal.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "kv/tree/tree.h"

size_t dci_kv_stride(const dci_kv *kv)
{
        return kv->config.budget;
}

/* --- scratch ---------------------------------------------------------------------------------------------------------- */

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
        return dci_lines(lists * dci_kv_ranked(kv, n_tokens) * sizeof(int32_t));
}

static size_t units_bytes(const dci_kv *kv)
{
        return dci_kv_preselects(kv) ? dci_lines((dci_kv_preselected(kv) + 1) * sizeof(int32_t)) : 0;
}

static size_t area_bytes(const dci_kv *kv, size_t n_tokens)
{
        const size_t plan = dci_lines(kv->group * kv->dim_k * sizeof(float)) +
                            (kv->group + 1) * score_stride(kv, n_tokens) * sizeof(float) +
                            dci_lines(kv->group * sizeof(float)) + 2 * dci_lines(dci_kv_stride(kv) * sizeof(int32_t)) +
                            taken_bytes(kv, n_tokens) + lists_bytes(kv, n_tokens) + units_bytes(kv) +
                            dci_lines(work_bytes(kv, n_tokens));
        return larger(plan, dci_kv_attend_bytes(kv));
}

/* Tokens that scratch is made for: it grows by half, so that it is seldom made anew. */
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
        const dci_status status = dci_kv_alloc(kv, n_areas * bytes, &memory);
        if (status != DCI_OK)
                return status;
        dci_kv_free(kv, kv->plans.memory, kv->plans.n_areas * kv->plans.area_bytes);
        kv->plans = (dci_kv_scratch){memory, n_areas, bytes};
        kv->plan_tokens = tokens;
        return DCI_OK;
}

/* --- the plan's arrays -------------------------------------------------------------------------------------------------- */

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
        return dci_mul(n, c->n_kv_heads, &out->counts) && dci_mul(out->counts, dci_kv_stride(kv), &out->slots) &&
               dci_mul(n, c->n_query_heads, &out->tail_lse) && dci_mul(out->tail_lse, kv->dim_v, &out->tail_out) &&
               out->slots < SIZE_MAX / 64 && out->tail_out < SIZE_MAX / 64;
}

static size_t bytes_of(const dci_kv *kv, size_t n, const parts *p)
{
        const bool tail = kv->config.tail != DCI_KV_TAIL_DROP;
        return 2 * dci_lines(p->slots * sizeof(int32_t)) + dci_lines(p->counts * sizeof(int32_t)) +
               3 * dci_lines(n * sizeof(int32_t)) +
               (tail ? dci_lines(p->tail_out * sizeof(float)) + dci_lines(p->tail_lse * sizeof(float)) : 0);
}

static void *part(unsigned char **at, size_t n_bytes)
{
        void *here = *at;
        *at += dci_lines(n_bytes);
        return here;
}

dci_status dci_kv_plan_create(dci_kv *kv, size_t max_sequences, dci_kv_plan *out_plan)
{
        parts p;
        void *memory;
        if (kv == NULL || out_plan == NULL)
                return dci_fail(DCI_ERR_INVALID, "%s is NULL", kv == NULL ? "kv" : "out_plan");
        dci_status status = dci_check_struct_size("dci_kv_plan", out_plan, out_plan->struct_size, sizeof *out_plan);
        if (status != DCI_OK)
                return status;
        if (max_sequences == 0 || max_sequences > DCI_KV_MAX_SEQUENCES || !parts_of(kv, max_sequences, &p))
                return dci_fail(DCI_ERR_INVALID, "max_sequences is %zu, expected 1 to %zu", max_sequences,
                                DCI_KV_MAX_SEQUENCES);
        status = dci_kv_lock(kv);
        if (status != DCI_OK)
                return status;
        status = dci_kv_alloc(kv, bytes_of(kv, max_sequences, &p), &memory);
        dci_kv_unlock(kv);
        if (status != DCI_OK)
                return status;
        unsigned char *at = memory;
        const size_t size = out_plan->struct_size;
        *out_plan = (dci_kv_plan){.struct_size = size,
                                  .max_sequences = max_sequences,
                                  .n_lists = kv->config.n_kv_heads,
                                  .stride = dci_kv_stride(kv)};
        out_plan->slots = part(&at, p.slots * sizeof(int32_t));
        out_plan->positions = part(&at, p.slots * sizeof(int32_t));
        out_plan->counts = part(&at, p.counts * sizeof(int32_t));
        out_plan->sink_end = part(&at, max_sequences * sizeof(int32_t));
        out_plan->recent_begin = part(&at, max_sequences * sizeof(int32_t));
        out_plan->n_tokens = part(&at, max_sequences * sizeof(int32_t));
        if (kv->config.tail != DCI_KV_TAIL_DROP) {
                out_plan->tail_out = part(&at, p.tail_out * sizeof(float));
                out_plan->tail_lse = part(&at, p.tail_lse * sizeof(float));
        }
        return DCI_OK;
}

void dci_kv_plan_destroy(dci_kv *kv, dci_kv_plan *plan)
{
        parts p;
        if (kv == NULL || plan == NULL || plan->slots == NULL || !parts_of(kv, plan->max_sequences, &p))
                return;
        dci_kv_free(kv, plan->slots, bytes_of(kv, plan->max_sequences, &p));
        const size_t size = plan->struct_size;
        *plan = (dci_kv_plan){.struct_size = size};
}

/* --- making it ---------------------------------------------------------------------------------------------------------- */

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
            layer->sequence->resident || (!c->frozen_prompt && layer->n <= c->budget))
                return false;
        const size_t n = candidates_of(kv, layer);
        const size_t recent = c->frozen_prompt ? c->window : layer->n - c->sink - n, kept = c->sink + recent;
        *out_room = c->budget > kept ? c->budget - kept : 0;
        *out_candidates = n;
        return n > *out_room;
}

void dci_kv_queries_to_f32(const dci_kv *kv, const void *queries, size_t ld, size_t sequence, size_t head, float *out)
{
        const size_t es = dci_dtype_size(kv->config.query_dtype);
        const unsigned char *rows =
                (const unsigned char *)queries + (sequence * kv->config.n_query_heads + head * kv->group) * ld * es;
        for (size_t q = 0; q < kv->group; q++) {
                kv->context->kernels->to_f32[kv->config.query_dtype - 1](rows + q * ld * es, kv->dim_k,
                                                                         out + q * kv->dim_k);
                for (size_t j = 0; j < kv->dim_k; j++)
                        out[q * kv->dim_k + j] *= kv->scale;
        }
}

static dci_kv_query prepare(const planning *p, size_t i, size_t head, unsigned char *at)
{
        const dci_kv *kv = p->kv;
        dci_kv_query ask = {.kv = kv, .layer = &p->found[i]->layers[p->layer], .head = head};
        float *queries = (float *)(void *)at;
        at += dci_lines(kv->group * kv->dim_k * sizeof(float));
        ask.ld = score_stride(kv, kv->plan_tokens);
        ask.scores = (float *)(void *)at;
        at += kv->group * ask.ld * sizeof(float);
        ask.relevance = (float *)(void *)at;
        at += ask.ld * sizeof(float);
        ask.most = (float *)(void *)at;
        at += dci_lines(kv->group * sizeof(float));
        ask.chosen = (int32_t *)(void *)at;
        at += dci_lines(dci_kv_stride(kv) * sizeof(int32_t));
        if (kv->stages->schedule.lists)
                ask.ranked = (int32_t *)(void *)at;
        at += dci_lines(dci_kv_stride(kv) * sizeof(int32_t));
        ask.taken = (int32_t *)(void *)at;
        at += taken_bytes(kv, kv->plan_tokens);
        ask.lists = (int32_t *)(void *)at;
        at += lists_bytes(kv, kv->plan_tokens);
        ask.units = (int32_t *)(void *)at;
        at += units_bytes(kv);
        ask.work = at;
        dci_kv_queries_to_f32(kv, p->queries, p->ld, i, head, queries);
        ask.queries = queries;
        return ask;
}

static void write_list(const planning *p, size_t i, const dci_kv_query *ask)
{
        const dci_kv *kv = p->kv;
        const size_t per_page = kv->config.page_tokens, n_heads = kv->config.n_kv_heads;
        const size_t at = (i * n_heads + ask->head) * p->plan->stride;
        const int32_t *table = ask->layer->sequence->table;
        for (size_t c = 0; c < ask->n_chosen; c++) {
                const size_t position = kv->config.sink + (size_t)ask->chosen[c];
                const size_t page = (size_t)table[position / per_page] * n_heads + ask->head;
                p->plan->slots[at + c] = (int32_t)(page * per_page + position % per_page);
                if (p->plan->positions != NULL)
                        p->plan->positions[at + c] = (int32_t)position;
        }
        p->plan->counts[i * n_heads + ask->head] = (int32_t)ask->n_chosen;
}

static void no_tail(const planning *p, size_t i, size_t head)
{
        const dci_kv *kv = p->kv;
        const size_t first = i * kv->config.n_query_heads + head * kv->group;
        if (p->plan->tail_out == NULL)
                return;
        memset(p->plan->tail_out + first * kv->dim_v, 0, kv->group * kv->dim_v * sizeof(float));
        for (size_t q = 0; q < kv->group; q++)
                p->plan->tail_lse[first + q] = -INFINITY;
}

/* Into the ring of the last plans' queries. */
static void push_queries(const planning *p, const dci_kv_layer *layer, size_t i, size_t head)
{
        const dci_kv *kv = p->kv;
        const dci_kv_selection_cache *d = layer->decided;
        if (d == NULL || d->ring == NULL)
                return;
        const size_t at = head * kv->config.ring + d->n_pushed % kv->config.ring;
        dci_kv_queries_to_f32(kv, p->queries, p->ld, i, head, d->ring + at * kv->group * kv->dim_k);
}

static void plan_task(void *arg, size_t task, size_t worker)
{
        const planning *p = arg;
        const dci_kv *kv = p->kv;
        const dci_kv_stages *stages = kv->stages;
        const size_t i = task / kv->config.n_kv_heads, head = task % kv->config.n_kv_heads;
        dci_kv_layer *layer = &p->found[i]->layers[p->layer];
        size_t n_candidates = 0, room = 0;
        const bool sparse = is_sparse(kv, layer, &n_candidates, &room);
        if (head == 0) {
                p->plan->n_tokens[i] = (int32_t)layer->n;
                p->plan->sink_end[i] = sparse ? (int32_t)kv->config.sink : 0;
                p->plan->recent_begin[i] = sparse ? (int32_t)(kv->config.sink + n_candidates) : 0;
        }
        p->plan->counts[task] = 0;
        no_tail(p, i, head);
        push_queries(p, layer, i, head);
        if (!sparse)
                return;
        dci_kv_query ask = prepare(p, i, head, kv->plans.memory + worker * kv->plans.area_bytes);
        ask.n_candidates = n_candidates;
        ask.room = ask.plan_room = room;
        dci_kv_schedule_select(layer, &ask);
        write_list(p, i, &ask);
        const size_t first = i * kv->config.n_query_heads + head * kv->group;
        if (stages->tail.add != NULL)
                stages->tail.add(&ask, p->plan->tail_out + first * kv->dim_v, p->plan->tail_lse + first);
}

/* --- checks ------------------------------------------------------------------------------------------------------------- */

dci_status dci_kv_check_span(const char *what, size_t n_rows, const void *rows, size_t ld, size_t element_bytes)
{
        size_t n_bytes;
        if (!dci_mul(n_rows, ld, &n_bytes) || !dci_mul(n_bytes, element_bytes, &n_bytes) || n_bytes > PTRDIFF_MAX)
                return dci_fail(DCI_ERR_LIMIT, "%zu rows of %s, %zu elements apart, exceed the address space", n_rows,
                                what, ld);
        return dci_check_aligned(what, rows, element_bytes);
}

size_t dci_kv_bad_query(const dci_kv *kv, size_t n, const void *queries, size_t ld)
{
        const dci_dtype dtype = kv->config.query_dtype;
        const unsigned char *rows = queries;
        const double by = kv->scale > 1.0f ? (double)kv->scale : 1.0; /* they are scored times the scale */
        size_t i = 0;
        while (i < n) {
                const float norm2 =
                        kv->context->kernels->norm2[dtype - 1](rows + i * ld * dci_dtype_size(dtype), kv->dim_k);
                if (!((double)norm2 * by * by <= (double)FLT_MAX)) /* nor is it if this is no number */
                        break;
                i++;
        }
        return i;
}

dci_status dci_kv_check_queries(const dci_kv *kv, size_t layer, size_t n_sequences, dci_kv_sequence *const *found,
                                const void *queries, size_t ld)
{
        if (layer >= kv->config.n_layers)
                return dci_fail(DCI_ERR_INVALID, "layer is %zu, expected less than %zu", layer, kv->config.n_layers);
        if (n_sequences > 0 && queries == NULL)
                return dci_fail(DCI_ERR_INVALID, "queries is NULL");
        if (ld < kv->dim_k)
                return dci_fail(DCI_ERR_INVALID, "the queries' stride is %zu, expected at least %zu", ld, kv->dim_k);
        const size_t n_heads = kv->config.n_query_heads, n = n_sequences * n_heads;
        const dci_status span = dci_kv_check_span("queries", n, queries, ld, dci_dtype_size(kv->config.query_dtype));
        if (span != DCI_OK)
                return span;
        const size_t bad = dci_kv_bad_query(kv, n, queries, ld);
        if (bad < n)
                return dci_fail(DCI_ERR_NUMBER,
                                "the query of sequence %lld and head %zu has NaN, infinity, or is too large",
                                (long long)found[bad / n_heads]->id, bad % n_heads);
        return DCI_OK;
}

dci_status dci_kv_check_plan(const dci_kv *kv, size_t n_sequences, const dci_kv_plan *plan)
{
        const dci_status status = dci_check_struct_size("dci_kv_plan", plan, plan->struct_size, sizeof *plan);
        if (status != DCI_OK)
                return status;
        if (plan->n_lists != kv->config.n_kv_heads)
                return dci_fail(DCI_ERR_INVALID, "the plan has %zu lists per sequence, expected %zu", plan->n_lists,
                                kv->config.n_kv_heads);
        if (plan->max_sequences < n_sequences)
                return dci_fail(DCI_ERR_INVALID, "the plan has room for %zu sequences, not %zu", plan->max_sequences,
                                n_sequences);
        if (plan->stride < dci_kv_stride(kv))
                return dci_fail(DCI_ERR_INVALID, "the plan's lists hold %zu slots, expected at least %zu", plan->stride,
                                dci_kv_stride(kv));
        const struct {
                const char *name;
                const void *array;
        } arrays[] = {{"slots", plan->slots},
                      {"counts", plan->counts},
                      {"sink_end", plan->sink_end},
                      {"recent_begin", plan->recent_begin},
                      {"n_tokens", plan->n_tokens}};
        for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
                if (arrays[i].array == NULL)
                        return dci_fail(DCI_ERR_INVALID, "the plan's %s is NULL", arrays[i].name);
        if ((plan->tail_out == NULL) != (plan->tail_lse == NULL))
                return dci_fail(DCI_ERR_INVALID, "the plan's %s is NULL, the other is not",
                                plan->tail_out == NULL ? "tail_out" : "tail_lse");
        return DCI_OK;
}

static dci_status check(dci_kv *kv, size_t layer, size_t n_sequences, dci_kv_sequence *const *found,
                        const void *queries, size_t ld, const dci_kv_plan *plan)
{
        if (plan == NULL)
                return dci_fail(DCI_ERR_INVALID, "plan is NULL");
        dci_status status = dci_kv_check_queries(kv, layer, n_sequences, found, queries, ld);
        if (status == DCI_OK)
                status = dci_kv_check_plan(kv, n_sequences, plan);
        if (status != DCI_OK)
                return status;
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
        const dci_kv_selection_cache *d = layer->sequence->layers[number].decided;
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
                longest = larger(longest, found[i]->layers[layer].n);
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
                if (of->decided != NULL)
                        of->decided->n_pushed++;
                if (is_sparse(kv, of, &n_candidates, &room))
                        dci_kv_schedule_end(kv, of, n_candidates);
        }
        return status;
}

dci_status dci_kv_plan_make(dci_kv *kv, size_t layer, size_t n_sequences, const int64_t *sequences, const void *queries,
                            size_t ld, dci_kv_plan *plan)
{
        dci_kv_sequence **found;
        dci_status status = dci_kv_begin_call(kv, n_sequences, sequences, &found);
        if (status != DCI_OK)
                return status;
        status = check(kv, layer, n_sequences, found, queries, ld, plan);
        if (status == DCI_OK)
                status = make(kv, layer, n_sequences, found, queries, ld, plan);
        dci_kv_unlock(kv);
        return status;
}
