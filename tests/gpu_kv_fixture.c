/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/gpu_kv_fixture.h"

#include "kv/clusters.h"
#include "kv/geometry.h"
#include "kv/lookup.h"
#include "kv/worker.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* --- lists of plans that a device made, and the CPU's
 * -------------------------------------------------------------------- */

void twin_same_plans(const twin *t, size_t layer, size_t n, const dci_kv_plan *a, const dci_kv_plan *b)
{
        for (size_t i = 0; i < n; i++) {
                ck_assert_int_eq(a->sink_end[i], b->sink_end[i]);
                ck_assert_int_eq(a->recent_begin[i], b->recent_begin[i]);
                ck_assert_int_eq(a->n_tokens[i], b->n_tokens[i]);
        }
        for (size_t l = 0; l < n * t->kv->row_lists; l++) {
                ck_assert_msg(a->counts[l] == b->counts[l], "%s, layer %zu, list %zu: %d tokens, %d on the CPU",
                              t->what, layer, l, (int)a->counts[l], (int)b->counts[l]);
                ck_assert_msg(memcmp(a->positions + l * a->stride, b->positions + l * b->stride,
                                     (size_t)a->counts[l] * sizeof(int32_t)) == 0,
                              "%s, layer %zu, list %zu differs", t->what, layer, l);
        }
}

/* Other threads may open and close sequences of their own. */
static const dci_kv_layer *layer_of(const twin *t, int64_t sequence, size_t layer)
{
        ck_ok(dci_kv_lock(t->kv->host));
        const dci_kv_layer *found = &dci_kv_find(t->kv->host, sequence)->layers[layer];
        dci_kv_unlock(t->kv->host);
        return found;
}

static int32_t *fetch(const twin *t, const int32_t *from, size_t n)
{
        int32_t *to = malloc((n + 1) * sizeof *to);
        ck_assert_ptr_nonnull(to);
        ck_ok(t->ops->copy(t->gpu, t->stream, to, from, n * sizeof *to));
        ck_ok(t->ops->stream_wait(t->gpu, t->stream));
        return to;
}

/* Tokens of a that b has not; both ascend. */
static size_t others(const int32_t *a, size_t n_a, const int32_t *b, size_t n_b)
{
        size_t n = 0;
        for (size_t i = 0, j = 0; i < n_a; i++) {
                ck_assert(i == 0 || a[i] > a[i - 1]);
                while (j < n_b && b[j] < a[i])
                        j++;
                n += j == n_b || b[j] != a[i];
        }
        return n;
}

/* What a group counts, by the device's scores. Of one whose scores the choice has taken out, as much as the last
 * that was chosen. */
static double counts_for(const twin *t, const float *scores, const float *parts, size_t group, double last)
{
        const size_t per = t->kv->group, n_parts = (size_t)dci_gpu_kv_score_parts(t->kv, t->kv->step.n);
        double sum = 0.0;
        for (size_t q = 0; q < per; q++) {
                const double score = scores[group * per + q];
                if (scores[group * per + q] == -FLT_MAX)
                        return last;
                double most = -INFINITY, all = 0.0;
                for (size_t i = 0; i <= n_parts; i++)
                        most = fmax(most, (double)parts[2 * (i * per + q)]);
                for (size_t i = 0; i <= n_parts; i++)
                        all += (double)parts[2 * (i * per + q) + 1] * exp((double)parts[2 * (i * per + q)] - most);
                sum += t->kv->planner.weigh == DCI_GPU_WEIGH_EVEN ? score / (double)per : exp(score - most - log(all));
        }
        return sum;
}

/* The group that a list's position belongs to. */
static size_t group_at(const twin *t, size_t layer, int64_t sequence, size_t head, int32_t position)
{
        const dci_kv *kv = t->kv->host;
        const dci_kv_layer *at = layer_of(t, sequence, layer);
        const size_t candidate = (size_t)position - t->kv->shape.sink;
        if (t->kv->planner.ordered && at->n_batches > 0)
                for (size_t i = 0; i < at->batches[0]->n; i++)
                        if ((size_t)dci_kv_cluster_ids(kv, at->batches[0], head)[i] == candidate)
                                return i >> t->kv->planner.group_shift;
        if (!t->kv->planner.clustered)
                return candidate >> t->kv->planner.group_shift;
        for (size_t b = 0; b < at->n_batches; b++) {
                const dci_kv_clusters *batch = at->batches[b];
                const int32_t *offsets = dci_kv_cluster_offsets(kv, batch, head),
                              *ids = dci_kv_cluster_ids(kv, batch, head);
                for (size_t g = 0; g < batch->heads[head].n_groups; g++)
                        for (int32_t i = offsets[g]; i < offsets[g + 1]; i++)
                                if ((size_t)ids[i] == candidate)
                                        return batch->heads[head].before + g;
        }
        ck_abort_msg("%s, layer %zu: token %d is in no group", t->what, layer, (int)position);
        return 0;
}

/* A list of a layer, by its number, and whose it is. */
typedef struct which {
        size_t layer, list;
        int64_t sequence;
} which;

/* The kv head. */
static size_t head_of(const twin *t, const which *of)
{
        return of->list % t->kv->row_lists / t->kv->head_lists;
}

/* What the last group that was chosen counts, which the device keeps. */
static double last_chosen(const twin *t, const which *of)
{
        const dci_gpu_kv_row *row = dci_gpu_kv_find(t->kv, of->sequence);
        const size_t list = of->list % t->kv->row_lists, at = t->kv->layers[of->layer].index * t->kv->n_lists +
                                                              dci_gpu_kv_row_number(t->kv, row) * t->kv->row_lists +
                                                              list;
        int32_t *bits = fetch(t, (const int32_t *)(const void *)(t->kv->planner.lasts + at), 1);
        float last;
        memcpy(&last, bits, sizeof last);
        free(bits);
        return (double)last;
}

/* By how much groups may differ that count the same (gpu/args/select.h). Relevances are good to the last bits, scores of
 * rows to their products' share of 2^-17. A byte of a query for learned codes may be one more or less than the
 * CPU's, by which a score differs by up to a coordinate of the key times a 127th of the query's largest one. */
static double slack_of(const twin *t, double most)
{
        const dci_gpu_kv_planner *p = &t->kv->planner;
        const double share = p->kind == DCI_GPU_LEARNED ? 2e-2 : p->kind == DCI_GPU_CODES ? 1e-5 : 4e-5;
        return share * (p->weigh == DCI_GPU_WEIGH_EVEN ? 1.0 + fabs(most) : fabs(most));
}

/* What the device's scores of a list say, while they are there. */
typedef struct counting {
        float *scores, *parts;
        const float *of_list;
        double last;
} counting;

static counting count_begin(const twin *t, const which *of)
{
        const dci_gpu_kv_planner *p = &t->kv->planner;
        const size_t per = t->kv->group, n_scores = p->max_groups * per;
        const size_t part_floats = ((size_t)dci_gpu_kv_score_parts(t->kv, t->kv->step.n) + 1) * per * 2;
        counting c = {.scores =
                              (float *)(void *)fetch(t, (int32_t *)(void *)(p->scores + of->list * n_scores), n_scores),
                      .parts = (float *)(void *)fetch(t, (int32_t *)(void *)p->parts, part_floats * (of->list + 1)),
                      .last = last_chosen(t, of)};
        c.of_list = c.parts + of->list * part_floats;
        return c;
}

static void count_end(const counting *c)
{
        test_free(c->scores, c->parts);
}

/* The number of the score of what a position belongs to: after a preselection its number among the tokens of the list's units. */
static size_t group_of(const twin *t, const which *of, int32_t position)
{
        const dci_gpu_units units = dci_gpu_kv_units(t->kv, 0, t->kv->step.n);
        const size_t group = group_at(t, of->layer, of->sequence, head_of(t, of), position);
        if (units.lists == NULL)
                return group;
        int32_t *n_scored = fetch(t, units.n_scored + of->list, 1),
                *list = fetch(t, units.lists + of->list * (size_t)units.stride, (size_t)units.stride);
        size_t at = *n_scored == 0 ? group : SIZE_MAX;
        for (size_t u = 0; units.singles != 0 && (int32_t)u < *n_scored; u++)
                at = list[u] == (int32_t)group ? u : at;
        for (size_t u = 0; units.singles == 0 && (int32_t)(u * DCI_GPU_UNIT) < *n_scored; u++)
                if (list[u] == (int32_t)(group / DCI_GPU_UNIT))
                        at = u * DCI_GPU_UNIT + group % DCI_GPU_UNIT;
        ck_assert_msg(at != SIZE_MAX, "%s, layer %zu, list %zu: token %d is in none of the units", t->what, of->layer,
                      of->list, (int)position);
        test_free(n_scored, list);
        return at;
}

/* Whether a tail's choice has taken out the scores of a group. */
static bool is_gone(const twin *t, const counting *c, size_t group)
{
        return c->scores[group * t->kv->group] == -FLT_MAX;
}

/* Of two lists that differ: what is in one only counts as much as what is in the other only, to the last bits. A
 * schedule keeps more than a plan takes, and the last that was chosen is one of those: what has no score any more
 * counts that much, or more. */
static void check_tie(const twin *t, const which *of, const int32_t *a, size_t n_a, const int32_t *b, size_t n_b)
{
        const counting c = count_begin(t, of);
        const bool keeps = t->kv->shape.schedule != DCI_KV_EVERY_STEP;
        bool some_gone = false;
        double least = INFINITY, most = -INFINITY;
        for (size_t side = 0; side < 2; side++) {
                const int32_t *mine = side == 0 ? a : b, *other = side == 0 ? b : a;
                const size_t n = side == 0 ? n_a : n_b, n_other = side == 0 ? n_b : n_a;
                for (size_t i = 0, j = 0; i < n; i++) {
                        while (j < n_other && other[j] < mine[i])
                                j++;
                        if (j < n_other && other[j] == mine[i])
                                continue;
                        const size_t group = group_of(t, of, mine[i]);
                        const double counts = counts_for(t, c.scores, c.of_list, group, c.last);
                        if (keeps && is_gone(t, &c, group)) {
                                some_gone = true;
                                continue;
                        }
                        least = fmin(least, counts);
                        most = fmax(most, counts);
                }
        }
        ck_assert_msg(most - least <= slack_of(t, most), "%s, layer %zu, list %zu: %.9g in place of %.9g", t->what,
                      of->layer, of->list, least, most);
        ck_assert_msg(!some_gone || least >= c.last - slack_of(t, c.last),
                      "%s, layer %zu, list %zu: %.9g, and the last that was chosen %.9g", t->what, of->layer, of->list,
                      least, c.last);
        count_end(&c);
}

/* --- lists that are kept
 * ------------------------------------------------------------------------------------------------------------- */

/* What is in one list only, ascending. */
static twin_tie *difference(const which *of, size_t list, const int32_t *a, size_t n_a, const int32_t *b, size_t n_b)
{
        twin_tie *out = malloc(sizeof *out + (n_a + n_b) * sizeof out->tokens[0]);
        ck_assert_ptr_nonnull(out);
        out->layer = of->layer;
        out->list = list;
        out->n = 0;
        for (size_t i = 0, j = 0; i < n_a || j < n_b;) {
                if (i < n_a && j < n_b && a[i] == b[j])
                        i++, j++;
                else
                        out->tokens[out->n++] = j == n_b || (i < n_a && a[i] < b[j]) ? a[i++] : b[j++];
        }
        return out;
}

static bool within(const twin_tie *some, const twin_tie *all)
{
        size_t j = 0;
        for (size_t i = 0; i < some->n; i++) {
                while (j < all->n && all->tokens[j] < some->tokens[i])
                        j++;
                if (j == all->n || all->tokens[j] != some->tokens[i])
                        return false;
        }
        return some->layer == all->layer && some->list == all->list;
}

/* Lists that a schedule keeps go on differing in what counted the same when they were chosen, and no longer does;
 * forks have them, too. */
static bool has_been_tied(twin *t, const which *of, const int32_t *a, size_t n_a, const int32_t *b, size_t n_b)
{
        if (t->kv->shape.schedule == DCI_KV_EVERY_STEP)
                return false;
        twin_tie *now = difference(of, of->list % t->kv->row_lists, a, n_a, b, n_b);
        bool known = false;
        for (const twin_tie *tie = t->ties; tie != NULL && !known; tie = tie->next)
                known = within(now, tie);
        if (known) {
                free(now);
        } else {
                now->next = t->ties;
                t->ties = now;
        }
        return known;
}

/* A list for the next plan, best first, against the CPU's: what stands in the place of something else counts as much,
 * by scores that are gone when that plan comes. */
static void check_ahead(twin *t, const which *of, const int32_t *a, const int32_t *b, size_t n)
{
        const size_t sink = t->kv->shape.sink;
        const counting c = count_begin(t, of);
        twin_tie *tie = malloc(sizeof *tie + 2 * n * sizeof tie->tokens[0]);
        ck_assert_ptr_nonnull(tie);
        *tie = (twin_tie){.next = t->ties, .layer = of->layer, .list = of->list % t->kv->row_lists};
        for (size_t i = 0; i < n; i++) {
                const int32_t mine = a[i] + (int32_t)sink, other = b[i] + (int32_t)sink;
                if (mine == other)
                        continue;
                const size_t x = group_of(t, of, mine), y = group_of(t, of, other);
                const double counts = counts_for(t, c.scores, c.of_list, x, c.last),
                             others = counts_for(t, c.scores, c.of_list, y, c.last);
                /* A tail has the scores of this plan's own list taken out. */
                const bool gone = is_gone(t, &c, x) || is_gone(t, &c, y);
                ck_assert_msg(gone || fabs(counts - others) <= slack_of(t, fmax(counts, others)),
                              "%s, layer %zu, list %zu, for the next plan: %.9g in place of %.9g", t->what, of->layer,
                              of->list, counts, others);
                tie->tokens[tie->n++] = mine;
                tie->tokens[tie->n++] = other;
        }
        qsort(tie->tokens, tie->n, sizeof tie->tokens[0], test_int32s_ascend);
        t->ties = tie;
        count_end(&c);
}

/* What AHEAD has chosen for a sequence's next plan, as offload/schedule.c keeps it. */
static void ahead_alike(twin *t, size_t layer, int64_t sequence, size_t first_list)
{
        const dci_gpu_kv_schedule *s = t->kv->schedule;
        const dci_kv_selection_cache *wanted = twin_layer_of(t->cpu, sequence, layer)->selection;
        const size_t n_lists = t->kv->row_lists, room = dci_kv_max_room(t->kv->host);
        const size_t row = dci_gpu_kv_row_number(t->kv, dci_gpu_kv_find(t->kv, sequence)),
                     index = t->kv->layers[layer].index;
        const unsigned char *row_memory = s->memory + row * s->row_bytes,
                            *at = row_memory + s->states_bytes + index * s->layer_bytes;
        ck_ok(t->ops->stream_wait(t->gpu, s->stream));
        int32_t *state = fetch(t, (const int32_t *)(const void *)row_memory, (index + 1) * DCI_GPU_SELECTION_INTS),
                *counts = fetch(t, (const int32_t *)(const void *)at, n_lists),
                *lists = fetch(t, (const int32_t *)(const void *)(at + dci_lines(n_lists * sizeof *counts)),
                               n_lists * room);
        const bool listed = state[index * DCI_GPU_SELECTION_INTS + DCI_GPU_SELECTION_LISTED] != 0;
        ck_assert_msg(listed == wanted->listed, "%s, layer %zu: lists %d, %d on the CPU", t->what, layer, listed,
                      wanted->listed);
        for (size_t l = 0; l < n_lists && listed; l++) {
                const which of = {layer, first_list + l, sequence};
                const size_t n = (size_t)counts[l];
                ck_assert_msg(counts[l] == wanted->counts[l], "%s, layer %zu, list %zu: %d ahead, %d on the CPU",
                              t->what, layer, l, (int)counts[l], (int)wanted->counts[l]);
                if (memcmp(lists + l * room, wanted->lists + l * room, n * sizeof *lists) != 0)
                        check_ahead(t, &of, lists + l * room, wanted->lists + l * room, n);
        }
        test_free(state, counts, lists);
}

/* Whether a plan is one of the step that ends the prompt of a sequence whose groups the host lists: it attends to
 * everything. */
bool twin_is_early(const twin *t, size_t layer, int64_t sequence)
{
        const dci_gpu_kv_planner *p = &t->kv->planner;
        return t->plans && (dci_gpu_kv_of_host(p) || p->ordered) && !t->kv->layers[layer].dense &&
               layer_of(t, sequence, layer)->prompt_now;
}

/* The device's lists are the CPU's; where two groups count the same to the last bits, the other one may be there. */
void twin_plans_alike(twin *t, size_t layer, size_t n, const kv_turn *turns, const dci_kv_plan *wanted)
{
        const dci_gpu_kv_planner *p = &t->kv->planner;
        const size_t n_lists = n * t->kv->row_lists, stride = t->kv->stride;
        int32_t *header = fetch(t, p->header, 3 * n), *counts = fetch(t, p->counts, n_lists),
                *positions = fetch(t, p->positions, n_lists * stride);
        for (size_t i = 0; i < n; i++) {
                if (twin_is_early(t, layer, turns[i].sequence)) {
                        ck_assert_int_eq(header[n + i], 0);
                        continue;
                }
                ck_assert_msg(header[i] == wanted->sink_end[i],
                              "%s, sequence %zu of %d tokens, layer %zu: sink_end %d, %d on the CPU", t->what, i,
                              (int)header[2 * n + i], layer, (int)header[i], (int)wanted->sink_end[i]);
                ck_assert_msg(header[n + i] == wanted->recent_begin[i], "%s, layer %zu: recent_begin %d, %d on the CPU",
                              t->what, layer, (int)header[n + i], (int)wanted->recent_begin[i]);
                ck_assert_msg(header[2 * n + i] == wanted->n_tokens[i], "%s, layer %zu: n_tokens %d, %d on the CPU",
                              t->what, layer, (int)header[2 * n + i], (int)wanted->n_tokens[i]);
        }
        for (size_t l = 0; l < n_lists; l++) {
                const which of = {layer, l, turns[l / t->kv->row_lists].sequence};
                if (twin_is_early(t, layer, of.sequence))
                        continue;
                ck_assert_msg(counts[l] == wanted->counts[l], "%s, layer %zu, list %zu: %d tokens, %d on the CPU",
                              t->what, layer, l, (int)counts[l], (int)wanted->counts[l]);
                const size_t other = others(positions + l * stride, (size_t)counts[l],
                                            wanted->positions + l * wanted->stride, (size_t)wanted->counts[l]);
                ck_assert_msg(p->clustered || other <= (p->trees ? 0 : (size_t)1 << p->group_shift),
                              "%s, layer %zu, list %zu: %zu other tokens", t->what, layer, l, other);
                const bool again =
                        other > 0 && has_been_tied(t, &of, positions + l * stride, (size_t)counts[l],
                                                   wanted->positions + l * wanted->stride, (size_t)wanted->counts[l]);
                if (other > 0 && !again)
                        check_tie(t, &of, positions + l * stride, (size_t)counts[l],
                                  wanted->positions + l * wanted->stride, (size_t)wanted->counts[l]);
                t->n_other += other > 0;
                t->n_again += again;
        }
        for (size_t i = 0; i < n && t->kv->shape.schedule == DCI_KV_AHEAD; i++)
                if (header[n + i] > 0 && !twin_is_early(t, layer, turns[i].sequence))
                        ahead_alike(t, layer, turns[i].sequence, i * t->kv->row_lists);
        t->n_lists += n_lists;
        ck_assert_msg(t->n_other - t->n_again <= 1 + t->n_lists / 100, "%s: %zu of %zu lists differ", t->what,
                      t->n_other, t->n_lists);
        test_free(header, counts, positions);
}
