/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/kv_schedule.h"

#include <math.h>
#include <string.h>

#define NEARLY 1e-6 /* what rounding may change a cosine by */

static size_t lists_of(const kv_schedule *s)
{
        return s->config.n_layers * s->config.n_kv_heads;
}

kv_schedule kv_schedule_new(const dci_kv_config *config)
{
        kv_schedule s = {.config = *config};
        if (config->query_head_lists != 0) /* as the model has them */
                s.config.n_kv_heads = config->n_query_heads;
        const size_t n = config->n_layers;
        s.rankings = calloc(lists_of(&s), sizeof *s.rankings);
        s.queries = calloc(n * config->n_query_heads * config->dim_k, sizeof *s.queries);
        s.listed = calloc(n, sizeof *s.listed);
        s.since = calloc(n, sizeof *s.since);
        s.ends = calloc(n, sizeof *s.ends);
        ck_assert(s.rankings != NULL && s.queries != NULL && s.listed != NULL && s.since != NULL && s.ends != NULL);
        return s;
}

void kv_schedule_free(kv_schedule *s)
{
        for (size_t i = 0; i < lists_of(s); i++) {
                free(s->rankings[i].scores);
                kv_choice_drop(s->rankings[i].choice);
        }
        test_free(s->rankings, s->queries, s->listed, s->since, s->ends);
        memset(s, 0, sizeof *s);
}

static double *copy_of(const kv_ranking *ranking)
{
        const size_t n = (ranking->end - ranking->first + ranking->size - 1) / ranking->size;
        double *out = malloc((n + 1) * sizeof *out);
        ck_assert_ptr_nonnull(out);
        memcpy(out, ranking->scores, n * sizeof *out);
        return out;
}

kv_schedule kv_schedule_fork(const kv_schedule *from, size_t n)
{
        kv_schedule s = kv_schedule_new(&from->config);
        const size_t layers = s.config.n_layers;
        for (size_t i = 0; i < lists_of(&s); i++) {
                s.rankings[i] = from->rankings[i];
                if (from->rankings[i].scores != NULL)
                        s.rankings[i].scores = copy_of(&from->rankings[i]);
                kv_choice_share(s.rankings[i].choice);
        }
        memcpy(s.queries, from->queries, layers * s.config.n_query_heads * s.config.dim_k * sizeof *s.queries);
        memcpy(s.listed, from->listed, layers * sizeof *s.listed);
        memcpy(s.since, from->since, layers * sizeof *s.since);
        memcpy(s.ends, from->ends, layers * sizeof *s.ends);
        s.lost = from->lost;
        kv_schedule_truncate(&s, n);
        return s;
}

void kv_schedule_truncate(kv_schedule *s, size_t n)
{
        for (size_t layer = 0; layer < s->config.n_layers; layer++)
                s->listed[layer] = s->listed[layer] && s->ends[layer] <= n;
}

bool kv_schedule_keeps(const dci_kv_info *info)
{
        return info->schedule >= DCI_KV_PERIODIC;
}

size_t kv_schedule_anchor(const kv_schedule *s, size_t layer)
{
        const dci_kv_config *c = &s->config;
        if (layer < c->anchor_first)
                return layer;
        const size_t anchor = layer - (layer - c->anchor_first) % c->anchor_period;
        return anchor < c->dense_layers ? layer : anchor;
}

/* The mean cosine of n rows. */
static double turn(const float *a, const float *b, size_t n, size_t dim)
{
        double sum = 0.0;
        for (size_t i = 0; i < n; i++, a += dim, b += dim) {
                double ab = 0.0, aa = 0.0, bb = 0.0;
                for (size_t j = 0; j < dim; j++) {
                        ab += (double)a[j] * (double)b[j];
                        aa += (double)a[j] * (double)a[j];
                        bb += (double)b[j] * (double)b[j];
                }
                sum += aa > 0.0 && bb > 0.0 ? ab / sqrt(aa * bb) : aa == bb ? 1.0 : 0.0;
        }
        return sum / (double)n;
}

static bool turned(kv_schedule *s, const float *queries, const float *before, size_t n)
{
        const double cosine = turn(queries, before, n, s->config.dim_k);
        const double tau = s->config.tau != 0.0 ? s->config.tau : s->config.schedule == DCI_KV_BOUNDARY ? 0.85 : 0.8;
        if (fabs(cosine - tau) < NEARLY && cosine < 1.0 - NEARLY)
                s->lost = true;
        return cosine < tau;
}

/* Groups that are a choice's affair. Leaves of a tree are looked at by kv_tree_check.c. */
static bool by_groups(const dci_kv_info *info)
{
        if (info->group == DCI_KV_GROUP_TREE)
                return false;
        return info->group == DCI_KV_GROUP_CLUSTER || info->group == DCI_KV_GROUP_SEGMENT ||
               info->group == DCI_KV_GROUP_REORDERED || info->combine == DCI_KV_COMBINE_EACH;
}

/* What the present queries select, if scores can be told apart. */
static kv_ranking rank(const kv_model *model, const dci_kv_info *info, const kv_seen *seen, size_t i, size_t layer,
                       size_t head, const float *queries, const char *what)
{
        const dci_kv_plan *plan = &seen->plans[layer];
        kv_ranking r = {NULL, NULL, (size_t)plan->sink_end[i], (size_t)plan->recent_begin[i],
                        info->group == DCI_KV_GROUP_PAGE ? info->page_tokens : 1};
        if (by_groups(info) && kv_ranks_rows(info->summary))
                r.choice = kv_choice_of(model, seen, i, layer, head, queries, what);
        else if ((info->group == DCI_KV_GROUP_TOKEN || info->group == DCI_KV_GROUP_PAGE) &&
                 info->combine != DCI_KV_COMBINE_EACH && info->summary >= DCI_KV_SUMMARY_KEYS &&
                 kv_ranks_rows(info->summary))
                r.scores = kv_model_scores(model, layer, head, queries + head * model->group * model->dim_k,
                                           info->summary, info->combine, r.first, r.end, r.size);
        return r;
}

/* A list against the ranking that it was chosen by. */
static void check_list(const kv_model *model, const dci_kv_info *info, const kv_ranking *r, const kv_seen *seen,
                       size_t i, size_t layer, size_t head, const char *what)
{
        const dci_kv_plan *plan = &seen->plans[layer];
        const size_t n = (size_t)plan->n_tokens[i], recent = (size_t)plan->recent_begin[i];
        const size_t room = kv_room_of(seen->kv, n, n - recent), most = kv_room_of(seen->kv, n, info->window);
        const size_t end = r->end < recent ? r->end : recent;
        size_t n_list, wanted = room < most ? room : most;
        const int32_t *list = kv_list(seen, layer, i, head, &n_list);
        wanted = wanted < end - r->first ? wanted : end - r->first;
        const bool full = info->select != DCI_KV_SELECT_TREE; /* pages of a tree need not be */
        if (n_list > wanted || (full && n_list < wanted && r->end <= recent))
                ck_abort_msg("%s: layer %zu, head %zu: list of %zu, wanted %zu", what, layer, head, n_list, wanted);
        if (n_list > 0 && (size_t)list[n_list - 1] >= end)
                ck_abort_msg("%s: layer %zu, head %zu: position %d, but it was chosen from %zu to %zu", what, layer,
                             head, list[n_list - 1], r->first, end);
        if (r->choice != NULL)
                kv_choice_check(model, info, r->choice, list, n_list, r->first, end, what);
        else if (r->scores != NULL)
                kv_model_check_list(model, info, r->scores, r->first, end, r->size, list, n_list, what);
}

static void keep(kv_ranking *to, kv_ranking from)
{
        free(to->scores);
        kv_choice_drop(to->choice);
        *to = from;
}

/* One head of a layer that chooses now. */
static void decide(kv_schedule *s, const kv_model *model, const dci_kv_info *info, const kv_seen *seen, size_t i,
                   size_t layer, size_t head, const float *queries, const char *what)
{
        const size_t group = model->group, row = model->dim_k;
        const float *now = queries + head * group * row,
                    *before = s->queries + (layer * s->config.n_query_heads + head * group) * row;
        kv_ranking *old = &s->rankings[layer * s->config.n_kv_heads + head];
        const bool ahead = info->schedule == DCI_KV_AHEAD && s->listed[layer];
        const bool keeps = ahead && !turned(s, now, before, group);
        kv_ranking new = rank(model, info, seen, i, layer, head, queries, what);
        if (!s->lost)
                check_list(model, info, keeps ? old : &new, seen, i, layer, head, what);
        keep(old, new);
        s->n_decisions += !keeps;
        s->n_corrections += ahead && !keeps;
}

void kv_schedule_plan(kv_schedule *s, const kv_model *model, const kv_seen *seen, size_t i, size_t layer,
                      const float *queries, const char *what)
{
        const dci_kv_info info = kv_info(seen->kv);
        const size_t n_heads = s->config.n_kv_heads, row = s->config.n_query_heads * model->dim_k;
        const size_t anchor = info.schedule == DCI_KV_ANCHOR ? kv_schedule_anchor(s, layer) : layer;
        if (seen->plans[layer].recent_begin[i] == 0)
                return;
        s->config.schedule = info.schedule;
        bool due = !s->listed[layer] || info.schedule == DCI_KV_ANCHOR || info.schedule == DCI_KV_AHEAD;
        if (!due && info.schedule == DCI_KV_PERIODIC)
                due = s->since[layer] >= (s->config.period == DCI_KV_PRESET ? 128 : s->config.period);
        if (!due && info.schedule == DCI_KV_BOUNDARY)
                due = turned(s, queries, s->queries + layer * row, s->config.n_query_heads);
        for (size_t h = 0; h < n_heads; h++) {
                s->n_plans++;
                if (anchor != layer || !due) {
                        if (!s->lost)
                                check_list(model, &info, &s->rankings[anchor * n_heads + h], seen, i, layer, h, what);
                } else {
                        decide(s, model, &info, seen, i, layer, h, queries, what);
                }
        }
        memcpy(s->queries + layer * row, queries, row * sizeof *queries);
        if (due) {
                s->listed[layer] = true;
                s->ends[layer] = (size_t)seen->plans[layer].recent_begin[i];
        }
        s->since[layer] = due ? 1 : s->since[layer] + 1;
}

void kv_schedule_check_counts(const kv_schedule *s, const dci_kv_sequence_info *info, const char *what)
{
        if (!s->lost && (info->n_plans != s->n_plans || info->n_decisions != s->n_decisions ||
                         info->n_corrections != s->n_corrections))
                ck_abort_msg("%s: %llu plans, %llu decisions, %llu corrections, wanted %llu, %llu, %llu", what,
                             (unsigned long long)info->n_plans, (unsigned long long)info->n_decisions,
                             (unsigned long long)info->n_corrections, (unsigned long long)s->n_plans,
                             (unsigned long long)s->n_decisions, (unsigned long long)s->n_corrections);
}
