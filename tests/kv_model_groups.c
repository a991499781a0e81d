/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Groups that are listed: that they are groups, what the naive choice over them is, and what the naive tail adds. Groups
 * themselves are the library's; what k-means must be, tests/test_kmeans_*.c say.
 */
#include "tests/kv_model.h"

#include <math.h>
#include <string.h>

#include "kv/clusters.h"
#include "kv/geometry.h"
#include "kv/lookup.h"

/* --- groups ------------------------------------------------------------------------------------------------------- */

/* Groups of one head: candidates, and those of them that a plan may choose. */
typedef struct groups {
        size_t n;
        size_t *begin, *size, *open; /* by group: in ids; open: members before the plan's candidates end */
        bool *ranks;                 /* by group: open when it was ranked */
        size_t n_static;             /* groups that are chosen first */
        int32_t *ids;
} groups;

static groups groups_room(size_t n_groups, size_t n_ids)
{
        groups g = {.n = 0,
                    .begin = calloc(n_groups + 1, sizeof(size_t)),
                    .size = calloc(n_groups + 1, sizeof(size_t)),
                    .open = calloc(n_groups + 1, sizeof(size_t)),
                    .ranks = calloc(n_groups + 1, sizeof(bool)),
                    .ids = calloc(n_ids + 1, sizeof(int32_t))};
        ck_assert(g.begin != NULL && g.size != NULL && g.open != NULL && g.ranks != NULL && g.ids != NULL);
        return g;
}

static void groups_free(groups *g)
{
        test_free(g->begin, g->size, g->open, g->ranks, g->ids);
}

static void add_member(groups *g, size_t id, size_t n_candidates)
{
        g->ids[g->begin[g->n] + g->size[g->n]++] = (int32_t)id;
        g->open[g->n] += id < n_candidates;
}

static void end_group(groups *g)
{
        g->begin[g->n + 1] = g->begin[g->n] + g->size[g->n];
        g->ranks[g->n] = g->open[g->n] > 0;
        g->n++;
}

static groups by_position(size_t n_candidates, size_t size)
{
        groups g = groups_room(n_candidates, n_candidates);
        for (size_t i = 0; i < n_candidates; i++) {
                add_member(&g, i, n_candidates);
                if ((i + 1) % size == 0 || i + 1 == n_candidates)
                        end_group(&g);
        }
        return g;
}

/* Those of batches that begin before the candidates end; fails unless every candidate of a batch is in one group. */
static groups listed(const dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t n_candidates, const char *what)
{
        size_t n = 0;
        for (size_t b = 0; b < layer->n_batches; b++) {
                ck_assert_uint_eq(layer->batches[b]->first, n);
                n += layer->batches[b]->n;
        }
        ck_assert_uint_eq(n, layer->n_grouped);
        groups g = groups_room(n, n);
        uint8_t *seen = calloc(n + 1, 1);
        ck_assert_ptr_nonnull(seen);
        for (size_t b = 0; b < layer->n_batches && layer->batches[b]->first < n_candidates; b++) {
                const dci_kv_clusters *batch = layer->batches[b];
                const int32_t *offsets = dci_kv_cluster_offsets(kv, batch, head),
                              *ids = dci_kv_cluster_ids(kv, batch, head);
                ck_assert_uint_eq(batch->heads[head].before, g.n);
                test_hold(offsets[0] == 0 && (size_t)offsets[batch->heads[head].n_groups] == batch->n);
                for (size_t c = 0; c < batch->heads[head].n_groups; c++) {
                        for (int32_t i = offsets[c]; i < offsets[c + 1]; i++) {
                                const size_t id = (size_t)ids[i];
                                if (id < batch->first || id >= batch->first + batch->n || seen[id]++ > 0 ||
                                    (!dci_kv_reorders(kv) && i > offsets[c] && ids[i - 1] >= ids[i]))
                                        ck_abort_msg("%s: head %zu, batch %zu, group %zu: candidate %zu", what, head, b,
                                                     c, id);
                                add_member(&g, id, n_candidates);
                        }
                        ck_assert_uint_gt(g.size[g.n], 0);
                        end_group(&g);
                }
        }
        free(seen);
        if (layer->n_batches > 0 && kv->config.select == DCI_KV_SELECT_STATIC && g.n > 0)
                g.n_static = layer->batches[0]->n_static / kv->config.page_tokens;
        return g;
}

/* --- scores ------------------------------------------------------------------------------------------------------------ */

/* Of each query and group, [query][group]. free(). */
static double *scores_of(const kv_model *model, size_t layer, size_t head, const float *queries, int32_t summary,
                         size_t sink, const groups *g)
{
        const size_t dim = model->dim_k;
        const float *keys = model->keys[layer * model->n_kv_heads + head];
        double *out = calloc(model->group * g->n + 1, sizeof *out);
        float *rows = calloc(model->n * dim + 1, sizeof *rows);
        ck_assert(out != NULL && rows != NULL);
        for (size_t c = 0; c < g->n; c++) {
                for (size_t i = 0; i < g->size[c]; i++)
                        memcpy(rows + i * dim, keys + (sink + (size_t)g->ids[g->begin[c] + i]) * dim,
                               dim * sizeof *rows);
                for (size_t q = 0; q < model->group; q++)
                        out[q * g->n + c] =
                                model->scale * kv_model_score(queries + q * dim, rows, dim, summary, g->size[c]);
        }
        free(rows);
        return out;
}

/* Static groups are taken in their order, and others only once those are taken whole. */
static void check_static(const groups *g, const size_t *taken, const char *what)
{
        bool full = true;
        for (size_t c = 0; c < g->n; c++) {
                if (taken[c] > 0 && !full)
                        ck_abort_msg("%s: group %zu of %zu is taken, but not all static ones before it", what, c, g->n);
                full = full && (c >= g->n_static || taken[c] == g->open[c]);
        }
}

/* Those that compete for the rest of the room: n groups from number n_static on. */
static groups after_static(const groups *g)
{
        return (groups){.n = g->n - g->n_static,
                        .begin = g->begin + g->n_static,
                        .size = g->size + g->n_static,
                        .open = g->open + g->n_static,
                        .ranks = g->ranks + g->n_static,
                        .ids = g->ids};
}

/* Combined: the sum of softmaxes, or the mean. free(). */
static double *combined(const kv_model *model, const double *scores, size_t n, int32_t combine)
{
        double *out = calloc(n + 1, sizeof *out);
        ck_assert_ptr_nonnull(out);
        for (size_t q = 0; q < model->group; q++) {
                double most = -(double)INFINITY, sum = 0.0;
                for (size_t c = 0; c < n; c++)
                        most = fmax(most, scores[q * n + c]);
                for (size_t c = 0; c < n; c++)
                        sum += exp(scores[q * n + c] - most);
                for (size_t c = 0; c < n; c++)
                        out[c] += combine == DCI_KV_COMBINE_SOFTMAX ? exp(scores[q * n + c] - most) / sum
                                                                    : scores[q * n + c] / (double)model->group;
        }
        return out;
}

/* --- the choice -------------------------------------------------------------------------------------------------------- */

/* Members of each group that a list has: those of one group first, ascending. free(). */
static size_t *taken_of(const groups *g, const int32_t *list, size_t n_list, size_t sink, size_t n_candidates,
                        const char *what)
{
        size_t *taken = calloc(g->n + 1, sizeof *taken), n = 0;
        uint8_t *in = calloc(n_candidates + 1, 1);
        ck_assert(taken != NULL && in != NULL);
        for (size_t i = 0; i < n_list; i++)
                in[(size_t)list[i] - sink] = 1;
        for (size_t c = 0; c < g->n; c++) {
                for (size_t m = 0; m < g->size[c]; m++) {
                        const int32_t id = g->ids[g->begin[c] + m];
                        if ((size_t)id >= n_candidates)
                                continue;
                        if (!in[id])
                                break;
                        taken[c]++;
                }
                n += taken[c];
        }
        if (n != n_list)
                ck_abort_msg("%s: %zu of %zu tokens of a list are the first ones of their groups", what, n, n_list);
        free(in);
        return taken;
}

static void check_best(const kv_model *model, const dci_kv_info *info, const groups *g, const double *scores,
                       const size_t *taken, const char *what)
{
        double *all = combined(model, scores, g->n, info->combine), last = (double)INFINITY;
        for (size_t c = 0; c < g->n; c++)
                if (taken[c] > 0)
                        last = fmin(last, all[c]);
        for (size_t c = 0; c < g->n; c++)
                if (taken[c] < g->open[c] && all[c] > last + kv_model_slack(model, info, last))
                        ck_abort_msg("%s: group %zu of %zu, score %.9g, %zu of %zu tokens taken, but the least taken "
                                     "has %.9g",
                                     what, c, g->n, all[c], taken[c], g->open[c], last);
        free(all);
}

/* Lists in turns: as deep as every query's best groups are all taken, one more at most of each may be. */
static void check_in_turns(const kv_model *model, const dci_kv_info *info, const groups *g, const double *scores,
                           const size_t *taken, const char *what)
{
        size_t depth = SIZE_MAX;
        for (size_t q = 0; q < model->group; q++) {
                const double *of = scores + q * g->n;
                double left = -(double)INFINITY; /* the best that is not taken whole */
                size_t here = 0;
                for (size_t c = 0; c < g->n; c++)
                        if (taken[c] < g->open[c])
                                left = fmax(left, of[c]);
                for (size_t c = 0; c < g->n; c++)
                        here += g->ranks[c] && of[c] >= left - kv_model_slack(model, info, left);
                depth = here < depth ? here : depth;
        }
        for (size_t c = 0; c < g->n; c++) {
                size_t best = SIZE_MAX;
                for (size_t q = 0; q < model->group && taken[c] > 0; q++) {
                        const double *of = scores + q * g->n;
                        size_t before = 0;
                        for (size_t i = 0; i < g->n; i++)
                                before += g->ranks[i] && of[i] > of[c] + kv_model_slack(model, info, of[c]);
                        best = before < best ? before : best;
                }
                if (taken[c] > 0 && best > depth)
                        ck_abort_msg(
                                "%s: group %zu of %zu is taken, the %zuth best of any query, but some query's %zuth "
                                "is not",
                                what, c, g->n, best + 1, depth + 1);
        }
}

/* --- the tail ---------------------------------------------------------------------------------------------------------- */

/* Of each group, whether its rest may be estimated: fills in how many groups that are not chosen are. */
static void check_tail(const kv_model *model, const kv_seen *seen, size_t i, size_t layer, size_t head,
                       const float *queries, const groups *g, const size_t *taken, size_t sink, const char *what)
{
        const dci_kv_plan *plan = &seen->plans[layer];
        const size_t of = layer * model->n_kv_heads + head, dim = model->dim_k;
        double *out = calloc(model->dim_v + 1, sizeof *out);
        ck_assert_ptr_nonnull(out);
        for (size_t q = 0; q < model->group; q++) {
                double sum = 0.0, most = 0.0;
                memset(out, 0, model->dim_v * sizeof *out);
                for (size_t c = 0; c < g->n; c++) {
                        const size_t rest = g->open[c] - taken[c];
                        double score = 0.0;
                        for (size_t m = taken[c]; m < g->open[c]; m++) {
                                const float *key = model->keys[of] + (sink + (size_t)g->ids[g->begin[c] + m]) * dim;
                                score += model->scale *
                                         kv_model_score(queries + q * dim, key, dim, DCI_KV_SUMMARY_KEYS, 1) /
                                         (double)rest;
                        }
                        for (size_t m = taken[c]; m < g->open[c]; m++) {
                                const float *value =
                                        model->values[of] + (sink + (size_t)g->ids[g->begin[c] + m]) * model->dim_v;
                                for (size_t j = 0; j < model->dim_v; j++) {
                                        out[j] += exp(score) * (double)value[j];
                                        most = fmax(most, fabs((double)value[j]));
                                }
                        }
                        sum += (double)rest * exp(score);
                }
                const size_t row = (i * model->n_kv_heads + head) * model->group + q;
                const double got = (double)plan->tail_lse[row], times = model->dtype == DCI_F32 ? 1.0 : 400.0;
                if (sum == 0.0 ? got != -(double)INFINITY : !(fabs(got - log(sum)) <= times * 2e-4 * (1 + fabs(got))))
                        ck_abort_msg("%s: layer %zu, head %zu, query %zu: log sum of the tail %.9g, wanted %.9g", what,
                                     layer, head, q, got, log(sum));
                for (size_t j = 0; j < model->dim_v && sum > 0.0; j++) {
                        const double x = (double)plan->tail_out[row * model->dim_v + j];
                        if (!(fabs(x - out[j] / sum) <= times * 2e-4 * most))
                                ck_abort_msg("%s: layer %zu, head %zu, query %zu, coordinate %zu of the tail: %.9g, "
                                             "wanted %.9g",
                                             what, layer, head, q, j, x, out[j] / sum);
                }
        }
        free(out);
}

/* --- what a list is chosen by, now or by an earlier plan --------------------------------------------------------------- */

struct kv_choice {
        groups g;
        double *scores; /* [query][group] of those that are not static */
        size_t refs;
};

kv_choice *kv_choice_of(const kv_model *model, const kv_seen *seen, size_t i, size_t layer, size_t head,
                        const float *queries, const char *what)
{
        const dci_kv_info info = kv_info(seen->kv);
        const dci_kv_plan *plan = &seen->plans[layer];
        const size_t sink = (size_t)plan->sink_end[i], n_candidates = (size_t)plan->recent_begin[i] - sink;
        const dci_kv_sequence *sequence = dci_kv_find(seen->kv, seen->sequences[i]);
        kv_choice *choice = calloc(1, sizeof *choice);
        ck_assert(sequence != NULL && choice != NULL);
        choice->refs = 1;
        choice->g = seen->kv->clustered
                            ? listed(seen->kv, &sequence->layers[layer], head / model->share, n_candidates, what)
                            : by_position(n_candidates, info.group == DCI_KV_GROUP_PAGE ? info.page_tokens : 1);
        const groups rest = after_static(&choice->g);
        choice->scores =
                scores_of(model, layer, head, queries + head * model->group * model->dim_k, info.summary, sink, &rest);
        return choice;
}

kv_choice *kv_choice_share(kv_choice *choice)
{
        if (choice != NULL)
                choice->refs++;
        return choice;
}

void kv_choice_drop(kv_choice *choice)
{
        if (choice == NULL || --choice->refs > 0)
                return;
        groups_free(&choice->g);
        test_free(choice->scores, choice);
}

/* Members before the candidates end, which may be fewer than when the groups were ranked. */
static void count_open(groups *g, size_t n_candidates)
{
        for (size_t c = 0; c < g->n; c++) {
                g->open[c] = 0;
                for (size_t m = 0; m < g->size[c]; m++)
                        g->open[c] += (size_t)g->ids[g->begin[c] + m] < n_candidates;
        }
}

/* free(): by group, how many of its tokens are taken. */
static size_t *check_choice(const kv_model *model, const dci_kv_info *info, kv_choice *choice, const int32_t *list,
                            size_t n_list, size_t sink, size_t n_candidates, const char *what)
{
        count_open(&choice->g, n_candidates);
        size_t *taken = taken_of(&choice->g, list, n_list, sink, n_candidates, what);
        const groups rest = after_static(&choice->g);
        const bool ranks = info->select == DCI_KV_SELECT_SCAN || info->select == DCI_KV_SELECT_STATIC;
        check_static(&choice->g, taken, what);
        if (ranks && info->combine == DCI_KV_COMBINE_EACH)
                check_in_turns(model, info, &rest, choice->scores, taken + choice->g.n_static, what);
        else if (ranks)
                check_best(model, info, &rest, choice->scores, taken + choice->g.n_static, what);
        return taken;
}

void kv_choice_check(const kv_model *model, const dci_kv_info *info, kv_choice *choice, const int32_t *list,
                     size_t n_list, size_t sink, size_t end, const char *what)
{
        free(check_choice(model, info, choice, list, n_list, sink, end - sink, what));
}

void kv_model_check_groups(const kv_model *model, const kv_seen *seen, size_t i, size_t layer, const float *queries,
                           const char *what)
{
        const dci_kv_info info = kv_info(seen->kv);
        const dci_kv_plan *plan = &seen->plans[layer];
        const size_t sink = (size_t)plan->sink_end[i], n_candidates = (size_t)plan->recent_begin[i] - sink;
        for (size_t h = 0; h < model->n_kv_heads; h++) {
                size_t n_list;
                const int32_t *list = kv_list(seen, layer, i, h, &n_list);
                kv_choice *choice = kv_choice_of(model, seen, i, layer, h, queries, what);
                size_t *taken = check_choice(model, &info, choice, list, n_list, sink, n_candidates, what);
                if (seen->kv->clustered && info.tail == DCI_KV_TAIL_SUMS && seen->kv->config.estimate_share >= 1.0)
                        check_tail(model, seen, i, layer, h, queries + h * model->group * model->dim_k, &choice->g,
                                   taken, sink, what);
                free(taken);
                kv_choice_drop(choice);
        }
}
