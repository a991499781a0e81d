/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Reference of cuda/select/select.cu: selects among groups by scores; relevances are sums in double, rounded once. */
#include "gpu/gpu_internal.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/host/reference.h"

#define MAX_GROUPS (DCI_GPU_MAX_LIST + 1) /* of a list: the last page of all may be partial */

/* The selection of one list. */
typedef struct selecting {
        const dci_gpu_select_args *args;
        uint64_t list;
        int32_t row, head, n_candidates, room, n_groups;
        int32_t of_sequence;         /* the list's number in its sequence */
        int32_t n_ordered, n_static; /* of an order */
        bool skip_empty;             /* listed groups may be without a candidate: after a truncation */
        const float *scores;
        const int32_t *units;                                   /* NULL, or those whose tokens have scores */
        double most[DCI_GPU_MAX_GROUP], lse[DCI_GPU_MAX_GROUP]; /* lse: less most */
        int32_t n_best, n_tokens;
        uint64_t best[MAX_GROUPS]; /* a heap, the least on top; then in order */
        int32_t tokens[DCI_GPU_MAX_LIST];
} selecting;

static float from_ordered(uint32_t bits)
{
        float x;
        bits = (bits & 0x80000000u) != 0 ? bits & 0x7fffffffu : ~bits;
        memcpy(&x, &bits, sizeof x);
        return x;
}

static const int32_t *listed(const selecting *c, const dci_gpu_chunks *chunks, int32_t at, size_t width)
{
        const unsigned char *chunk =
                dci_gpu_chunk_of(chunks, (uint64_t)c->row, (uint64_t)c->head, (uint64_t)(at / DCI_GPU_CHUNK));
        return (const int32_t *)(const void *)chunk + (size_t)(at % DCI_GPU_CHUNK) * width;
}

static int32_t members_of(const selecting *c, int32_t group)
{
        const dci_gpu_select_args *args = c->args;
        if (args->n_clusters != NULL) {
                const int32_t *span = listed(c, &args->spans, group, 2);
                int32_t n = span[1];
                while (n > 0 && *listed(c, &args->ids, span[0] + n - 1, 1) >= c->n_candidates)
                        n--;
                return n;
        }
        const int32_t per = 1 << args->group_shift, left = c->n_candidates - group * per;
        if (group * per < c->n_ordered) {
                int32_t n = 0;
                for (int32_t i = 0; i < per; i++)
                        n += *listed(c, &args->ids, group * per + i, 1) < c->n_candidates;
                return n;
        }
        if (left <= 0)
                return 0;
        return c->units != NULL ? 1 : left < per ? left : per;
}

static int32_t member_of(const selecting *c, int32_t group, int32_t i)
{
        const dci_gpu_select_args *args = c->args;
        if (args->n_clusters != NULL)
                return *listed(c, &args->ids, listed(c, &args->spans, group, 2)[0] + i, 1);
        if (c->units != NULL)
                return DCI_GPU_SCORED(c->units, args->units.singles, group);
        if (group << args->group_shift < c->n_ordered)
                for (int32_t at = group << args->group_shift;; at++) {
                        const int32_t id = *listed(c, &args->ids, at, 1);
                        if (id < c->n_candidates && i-- == 0)
                                return id;
                }
        return (group << args->group_shift) + i;
}

/* By query head, the logarithm of the sum over all that compete, relative to the greatest score. What all heads have in
 * common beyond 32 powers of two is left out: nothing is lost where kept tokens have nearly all attention. */
static void weigh_queries(selecting *c)
{
        const dci_gpu_select_args *args = c->args;
        const int32_t n_parts = args->n_parts, group = args->group;
        const float *parts = args->parts + c->list * (uint64_t)(n_parts + 1) * (uint64_t)group * 2;
        const double max_common = 32 * log(2.0);
        double least = INFINITY;
        for (int32_t q = 0; q < group; q++) {
                double most = -INFINITY, sum = 0;
                for (int32_t p = 0; p < n_parts; p++)
                        most = parts[(p * group + q) * 2] > most ? parts[(p * group + q) * 2] : most;
                for (int32_t p = 0; p < n_parts; p++)
                        sum += parts[(p * group + q) * 2 + 1] * exp(parts[(p * group + q) * 2] - most);
                c->most[q] = most;
                c->lse[q] = log(sum); /* cppcheck-suppress invalidFunctionArg */
                const float *kept = parts + (n_parts * group + q) * 2;
                if (args->weigh == DCI_GPU_WEIGH_KEPT && kept[1] > 0) {
                        const double other = (double)kept[0] - most + log((double)kept[1]);
                        const double more = other > c->lse[q] ? other : c->lse[q];
                        c->lse[q] = more + log(exp(c->lse[q] - more) + exp(other - more));
                }
                least = c->lse[q] < least ? c->lse[q] : least;
        }
        for (int32_t q = 0; q < group; q++)
                c->lse[q] -= least > max_common ? least - max_common : 0;
}

static float relevance_of(const selecting *c, int32_t group)
{
        const dci_gpu_select_args *args = c->args;
        const float *scores = c->scores + (uint64_t)group * (uint64_t)args->group;
        double sum = 0;
        if (c->skip_empty && members_of(c, group) == 0)
                return -FLT_MAX;
        if (group < c->n_static)
                return INFINITY;
        for (int32_t q = 0; q < args->group; q++)
                sum += args->weigh == DCI_GPU_WEIGH_EVEN ? (double)scores[q] / args->group
                                                         : exp((double)scores[q] - c->most[q] - c->lse[q]);
        /* Sums of exponentials are not negative, nor is what is no number: it is better than an empty cluster. */
        return args->weigh == DCI_GPU_WEIGH_EVEN ? (float)sum : fabsf((float)sum);
}

/* Moves the root of a heap of n keys down to its place. */
static void sink(uint64_t *heap, int32_t n)
{
        for (int32_t at = 0, next; (next = 2 * at + 1) < n; at = next) {
                next += next + 1 < n && heap[next + 1] < heap[next];
                if (heap[at] <= heap[next])
                        return;
                const uint64_t key = heap[at];
                heap[at] = heap[next];
                heap[next] = key;
        }
}

static void offer(selecting *c, int32_t wanted, uint64_t key)
{
        uint64_t *heap = c->best;
        if (c->n_best < wanted) {
                int32_t at = c->n_best++;
                for (; at > 0 && key < heap[(at - 1) / 2]; at = (at - 1) / 2)
                        heap[at] = heap[(at - 1) / 2];
                heap[at] = key;
        } else if (wanted > 0 && key > heap[0]) {
                heap[0] = key;
                sink(heap, wanted);
        }
}

/* Offered keys, best first. */
static void sort_best(selecting *c)
{
        for (int32_t n = c->n_best - 1; n > 0; n--) { /* the least goes to the end */
                const uint64_t key = c->best[0];
                c->best[0] = c->best[n];
                c->best[n] = key;
                sink(c->best, n);
        }
}

static uint64_t key_of(float relevance, int32_t number)
{
        return (uint64_t)dci_gpu_ordered(relevance) << 32 | ~(uint32_t)number;
}

static int32_t group_of(uint64_t key)
{
        return (int32_t) ~(uint32_t)key;
}

/* The groups of greatest relevance, best first. */
static void find_best(selecting *c)
{
        const dci_gpu_select_args *args = c->args;
        const int32_t per = args->n_clusters != NULL ? 1 : 1 << args->group_shift;
        const int32_t filling = c->n_ordered > 0 && c->skip_empty ? c->room : (c->room + per - 1) / per + (per > 1);
        const int32_t wanted = filling < c->n_groups ? filling : c->n_groups;
        if (args->weigh != DCI_GPU_WEIGH_EVEN)
                weigh_queries(c);
        for (int32_t g = 0; g < c->n_groups; g++)
                offer(c, wanted, key_of(relevance_of(c, g), g));
        sort_best(c);
}

/* Members of the best groups until the room is full. */
static void take_members(selecting *c)
{
        const dci_gpu_select_args *args = c->args;
        const uint64_t first = c->list * (uint64_t)args->stride;
        int32_t n_ranked = 0;
        for (int32_t i = 0; i < c->n_best && c->n_tokens < c->room; i++) {
                const int32_t group = group_of(c->best[i]), left = c->room - c->n_tokens;
                int32_t n = members_of(c, group);
                n = n < left ? n : left;
                for (int32_t m = 0; m < n; m++)
                        c->tokens[c->n_tokens++] = member_of(c, group, m);
                if (args->ranked != NULL && n > 0)
                        args->ranked[first + (uint64_t)n_ranked++] = group;
        }
        if (args->n_ranked != NULL)
                args->n_ranked[c->list] = n_ranked;
}

static int32_t count_estimated(const dci_gpu_select_args *args, int32_t n)
{
        return args->estimate_share >= 1.0 ? n : (int32_t)(args->estimate_share * (double)n + 0.5);
}

/* The least of so many of the best keys, of which the relevances are in `bits`. */
static uint64_t worst_of(const uint32_t *bits, int32_t n_groups, int32_t wanted)
{
        uint64_t low = 0, high = UINT64_MAX; /* so many keys reach low, not so many high */
        while (high - low > 1) {
                const uint64_t middle = low + (high - low) / 2;
                int32_t n = 0;
                for (int32_t g = 0; g < n_groups; g++)
                        n += ((uint64_t)bits[g] << 32 | ~(uint32_t)g) >= middle;
                if (n >= wanted)
                        low = middle;
                else
                        high = middle;
        }
        return low;
}

/* Writes what a tail over clusters reads. */
static void put_members(selecting *c)
{
        const dci_gpu_select_args *args = c->args;
        int32_t *members = args->members + c->list * (uint64_t)args->max_groups, n_selected = 0, filled = 0;
        uint32_t *bits = (uint32_t *)(void *)members;
        for (int32_t g = 0; g < c->n_groups; g++)
                bits[g] = dci_gpu_ordered(relevance_of(c, g));
        while (n_selected < c->n_best && filled < c->room)
                filled += members_of(c, group_of(c->best[n_selected++]));
        const int64_t reach = (int64_t)n_selected + count_estimated(args, c->n_groups);
        const uint64_t low = reach < c->n_groups ? worst_of(bits, c->n_groups, (int32_t)reach) : 0;
        for (int32_t g = 0; g < c->n_groups; g++)
                members[g] = ((uint64_t)bits[g] << 32 | ~(uint32_t)g) >= low ? 0 : DCI_GPU_DROPPED;
        for (int32_t i = 0, left = c->room; i < n_selected; i++) {
                const int32_t group = group_of(c->best[i]), n = members_of(c, group);
                members[group] = n < left ? n : left;
                left -= members[group];
        }
}

static void put_in_order(selecting *c)
{
        const dci_gpu_select_args *args = c->args;
        int32_t *positions = args->positions + c->list * (uint64_t)args->stride, n = 0;
        qsort(c->tokens, (size_t)c->n_tokens, sizeof *c->tokens, dci_gpu_by_number);
        for (int32_t i = 0; i < c->n_tokens; i++) /* a damaged file may name a token twice */
                if (i == 0 || c->tokens[i] != c->tokens[i - 1])
                        positions[n++] = args->sizes.sink + c->tokens[i];
        args->counts[c->list] = n;
        for (int32_t i = 0; i < c->n_tokens && args->drop != 0; i++)
                for (int32_t q = 0; q < args->group; q++)
                        args->scores[(c->list * (uint64_t)args->max_groups + (uint64_t)c->tokens[i]) *
                                             (uint64_t)args->group +
                                     (uint64_t)q] = -FLT_MAX;
}

/* --- units ---------------------------------------------------------------------------------------------------------- */

/* The sum over a unit's groups and the query heads. */
static float unit_relevance(const selecting *c, int32_t unit)
{
        const int32_t group = c->args->group, per = DCI_GPU_UNIT >> c->args->group_shift;
        const double lowest = -126 * log(2.0);
        double sum = 0.0;
        for (int32_t g = unit * per; g < (unit + 1) * per && g < c->n_groups; g++)
                for (int32_t q = 0; q < group; q++) {
                        const double x = (double)c->scores[g * group + q] - c->most[q];
                        sum += x < lowest ? 0.0 : exp(x) * exp(-c->lse[q]);
                }
        return (float)sum;
}

/* So many of the best units, ascending. */
static void find_units(selecting *c, int32_t n_units, int32_t wanted, int32_t *out)
{
        c->n_best = 0;
        for (int32_t u = 0; u < n_units; u++)
                offer(c, wanted, key_of(unit_relevance(c, u), u));
        for (int32_t i = 0; i < c->n_best; i++)
                out[i] = group_of(c->best[i]);
        qsort(out, (size_t)c->n_best, sizeof *out, dci_gpu_by_number);
}

static void select_units(selecting *c)
{
        const dci_gpu_units *units = &c->args->units;
        const int32_t n_units = (c->n_candidates + DCI_GPU_UNIT - 1) / DCI_GPU_UNIT, last = n_units - 1,
                      lacking = n_units * DCI_GPU_UNIT - c->n_candidates;
        int32_t *list = units->lists + c->list * (uint64_t)units->stride, n = units->wanted;
        units->n_scored[c->list] = 0;
        if (c->n_candidates <= n * DCI_GPU_UNIT)
                return;
        c->scores = c->args->scores + c->list * (uint64_t)c->args->max_groups * (uint64_t)c->args->group;
        weigh_queries(c);
        find_units(c, n_units, n, list);
        if (list[n - 1] == last && n * DCI_GPU_UNIT - lacking < units->room)
                find_units(c, n_units, ++n, list);
        units->n_scored[c->list] = n * DCI_GPU_UNIT - (list[n - 1] == last ? lacking : 0);
}

/* --- lists ---------------------------------------------------------------------------------------------------------- */

/* Stores the selection for later plans, best first. */
static void keep(const selecting *c)
{
        const dci_gpu_selection_cache *kept = &c->args->selection;
        int32_t *list = dci_gpu_of_row(kept->lists, kept->row_bytes, c->row);
        int32_t *counts = dci_gpu_of_row(kept->counts, kept->row_bytes, c->row);
        memcpy(list + (uint64_t)c->of_sequence * (uint64_t)kept->room, c->tokens, (size_t)c->n_tokens * sizeof *list);
        counts[c->of_sequence] = c->n_tokens;
}

static void select(const dci_gpu_select_args *args, int32_t sequence, int32_t list, const dci_gpu_view *view)
{
        selecting c = {.args = args,
                       .list = (uint64_t)sequence * (uint64_t)DCI_GPU_LISTS(args) + (uint64_t)list,
                       .row = args->rows[sequence],
                       .head = DCI_GPU_HEAD_OF(args, list),
                       .of_sequence = list,
                       .n_candidates = view->n_candidates,
                       .room = view->room};
        const uint64_t held = (uint64_t)c.row * (uint64_t)args->n_heads + (uint64_t)c.head;
        const int32_t per = 1 << args->group_shift;
        const bool keeps = args->selection.lists != NULL;
        if (args->due != NULL && args->due[c.list] != args->due_is)
                return;
        c.n_groups = args->n_clusters != NULL ? args->n_clusters[held] : (c.n_candidates + per - 1) / per;
        if (args->units.lists != NULL && args->units.of_means != 0) {
                if (view->sparse)
                        select_units(&c);
                return;
        }
        if (args->n_ranked != NULL)
                args->n_ranked[c.list] = 0;
        if (keeps)
                keep(&c);
        else
                args->counts[c.list] = 0;
        if (!view->sparse)
                return;
        c.room = keeps ? args->selection.room : c.room;
        c.room = args->none ? 0 : c.room < args->stride ? c.room : args->stride;
        c.scores = args->scores + c.list * (uint64_t)args->max_groups * (uint64_t)args->group;
        if (args->units.lists != NULL && args->units.n_scored[c.list] > 0) {
                c.units = args->units.lists + c.list * (uint64_t)args->units.stride;
                c.n_groups = args->units.n_scored[c.list];
        }
        c.skip_empty = args->n_clusters != NULL && c.n_candidates != args->n_grouped[sequence];
        if (args->order.n_ordered != NULL) {
                c.n_ordered = args->order.n_ordered[sequence];
                c.n_static = args->order.n_static[sequence];
                c.n_groups =
                        c.n_ordered >> args->group_shift > c.n_groups ? c.n_ordered >> args->group_shift : c.n_groups;
                c.skip_empty = c.n_ordered > c.n_candidates;
        }
        c.n_groups = c.n_groups < args->max_groups ? c.n_groups : args->max_groups;
        if ((c.room == 0 && args->members == NULL) || c.n_groups <= 0)
                return;
        find_best(&c);
        if (args->members != NULL)
                put_members(&c);
        if (c.room == 0)
                return;
        args->lasts[(uint64_t)c.row * (uint64_t)DCI_GPU_LISTS(args) + (uint64_t)list] =
                from_ordered((uint32_t)(c.best[c.n_best - 1] >> 32));
        take_members(&c);
        if (keeps)
                keep(&c);
        else
                put_in_order(&c);
}

/* All lists from the selection cache. */
static void take_kept(const dci_gpu_select_args *args)
{
        const dci_gpu_reuse_args reuse = {.n_sequences = args->n_sequences,
                                          .n_heads = DCI_GPU_LISTS(args),
                                          .group = args->group,
                                          .stride = args->stride,
                                          .max_groups = args->max_groups,
                                          .sizes = args->sizes,
                                          .rows = args->rows,
                                          .n_tokens = args->n_tokens,
                                          .n_grouped = args->n_grouped,
                                          .selection = args->selection,
                                          .positions = args->positions,
                                          .counts = args->counts,
                                          .sink_end = args->sink_end,
                                          .recent_begin = args->recent_begin,
                                          .after = args->after};
        dci_gpu_ref_reuse(&reuse);
}

void dci_gpu_ref_select(const dci_gpu_select_args *args)
{
        for (int32_t i = 0; i < args->n_sequences; i++) {
                dci_gpu_view view;
                const int32_t n = args->n_tokens[i];
                DCI_GPU_VIEW(view, args->sizes, n, args->n_grouped[i]);
                for (int32_t l = 0; l < DCI_GPU_LISTS(args); l++)
                        select(args, i, l, &view);
                if (args->selection.lists != NULL || (args->units.lists != NULL && args->units.of_means != 0))
                        continue;
                args->sink_end[i] = view.sparse ? args->sizes.sink : 0;
                args->recent_begin[i] = view.sparse ? args->sizes.sink + view.n_candidates : 0;
                args->after[i] = n;
        }
        if (args->takes != 0)
                take_kept(args);
}
