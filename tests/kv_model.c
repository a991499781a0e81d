/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/kv_model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kv/clusters.h"
#include "kv/geometry.h"
#include "kv/lookup.h"

kv_model kv_model_new(const dci_kv_config *config)
{
        kv_model m = {.n_layers = config->n_layers,
                      .n_kv_heads = config->n_kv_heads,
                      .group = config->n_query_heads / config->n_kv_heads,
                      .dim_k = config->dim_k,
                      .dim_v = config->dim_v != 0 ? config->dim_v : config->dim_k,
                      .scale = config->scale,
                      .dtype = config->dtype};
        m.share = config->query_head_lists != 0 ? m.group : 1;
        m.n_kv_heads *= m.share;
        m.group /= m.share;
        if (m.scale == 0.0)
                m.scale = 1.0 / sqrt((double)m.dim_k);
        m.keys = calloc(m.n_layers * m.n_kv_heads, sizeof *m.keys);
        m.values = calloc(m.n_layers * m.n_kv_heads, sizeof *m.values);
        ck_assert(m.keys != NULL && m.values != NULL);
        return m;
}

kv_model kv_model_of(const dci_kv_config *config, const kv_data *data, size_t n)
{
        kv_model m = kv_model_new(config);
        kv_model_append(&m, data, 0, n);
        return m;
}

void kv_model_free(kv_model *model)
{
        for (size_t i = 0; i < model->n_layers * model->n_kv_heads; i++) {
                test_free(model->keys[i], model->values[i]);
        }
        test_free(model->keys, model->values);
        memset(model, 0, sizeof *model);
}

static void grow(kv_model *m, size_t n)
{
        if (n <= m->capacity)
                return;
        m->capacity = n + n / 2 + 16;
        for (size_t i = 0; i < m->n_layers * m->n_kv_heads; i++) {
                m->keys[i] = realloc(m->keys[i], m->capacity * m->dim_k * sizeof(float));
                m->values[i] = realloc(m->values[i], m->capacity * m->dim_v * sizeof(float));
                ck_assert(m->keys[i] != NULL && m->values[i] != NULL);
        }
}

void kv_model_append(kv_model *model, const kv_data *data, size_t from, size_t n)
{
        grow(model, model->n + n);
        for (size_t layer = 0; layer < model->n_layers; layer++)
                for (size_t h = 0; h < model->n_kv_heads; h++)
                        for (size_t t = 0; t < n; t++) {
                                const size_t of = layer * model->n_kv_heads + h, at = model->n + t;
                                memcpy(model->keys[of] + at * model->dim_k,
                                       kv_key(data, layer, from + t, h / model->share), model->dim_k * sizeof(float));
                                memcpy(model->values[of] + at * model->dim_v,
                                       kv_value(data, layer, from + t, h / model->share), model->dim_v * sizeof(float));
                        }
        model->n += n;
}

void kv_model_truncate(kv_model *model, size_t n)
{
        ck_assert_uint_le(n, model->n);
        model->n = n;
}

kv_model kv_model_fork(const kv_model *model, size_t n)
{
        kv_model m = *model;
        m.n = m.capacity = 0;
        m.keys = calloc(m.n_layers * m.n_kv_heads, sizeof *m.keys);
        m.values = calloc(m.n_layers * m.n_kv_heads, sizeof *m.values);
        ck_assert(n <= model->n && m.keys != NULL && m.values != NULL);
        grow(&m, n);
        for (size_t i = 0; i < m.n_layers * m.n_kv_heads && n > 0; i++) {
                memcpy(m.keys[i], model->keys[i], n * m.dim_k * sizeof(float));
                memcpy(m.values[i], model->values[i], n * m.dim_v * sizeof(float));
        }
        m.n = n;
        return m;
}

/* --- attention ---------------------------------------------------------------------------------------------------------- */

void kv_model_attend(const kv_model *model, size_t layer, size_t query_head, const float *query, size_t n,
                     const int32_t *positions, double *out, double *out_lse)
{
        const size_t of = layer * model->n_kv_heads + query_head / model->group;
        double *logits = malloc((n + 1) * sizeof *logits), most = -(double)INFINITY, sum = 0.0;
        ck_assert_ptr_nonnull(logits);
        memset(out, 0, model->dim_v * sizeof *out);
        for (size_t i = 0; i < n; i++) {
                const size_t at = positions != NULL ? (size_t)positions[i] : i;
                test_hold(at < model->n);
                logits[i] = model->scale * test_dot(query, model->keys[of] + at * model->dim_k, model->dim_k);
                most = fmax(most, logits[i]);
        }
        for (size_t i = 0; i < n; i++) {
                const size_t at = positions != NULL ? (size_t)positions[i] : i;
                const double weight = exp(logits[i] - most);
                sum += weight;
                for (size_t j = 0; j < model->dim_v; j++)
                        out[j] += weight * (double)model->values[of][at * model->dim_v + j];
        }
        for (size_t j = 0; j < model->dim_v && n > 0; j++)
                out[j] /= sum;
        *out_lse = n > 0 ? most + log(sum) : -(double)INFINITY;
        free(logits);
}

/* The positions that a plan attends to; free(). */
static int32_t *attended(const kv_seen *seen, size_t i, size_t layer, size_t kv_head, size_t *out_n)
{
        const dci_kv_plan *plan = &seen->plans[layer];
        size_t n_list, n = 0;
        const int32_t *list = kv_list(seen, layer, i, kv_head, &n_list);
        int32_t *out = malloc(((size_t)plan->n_tokens[i] + n_list + 1) * sizeof *out);
        ck_assert_ptr_nonnull(out);
        if (plan->recent_begin[i] > 0) {
                for (int32_t t = 0; t < plan->sink_end[i]; t++)
                        out[n++] = t;
                for (size_t t = 0; t < n_list; t++)
                        out[n++] = list[t];
        }
        for (int32_t t = plan->recent_begin[i]; t < plan->n_tokens[i]; t++)
                out[n++] = t;
        *out_n = n;
        return out;
}

/* Adds the plan's tail to what was attended to. */
static void merge(const kv_seen *seen, size_t i, size_t layer, size_t query_head, double *out, double *lse)
{
        const dci_kv_plan *plan = &seen->plans[layer];
        const size_t row = i * seen->n_kv_heads * seen->group + query_head;
        if (plan->tail_lse == NULL || plan->tail_lse[row] == -INFINITY)
                return;
        const double tail = (double)plan->tail_lse[row], most = fmax(tail, *lse);
        const double all = most + log(exp(tail - most) + exp(*lse - most));
        for (size_t j = 0; j < seen->dim_v; j++)
                out[j] = out[j] * exp(*lse - all) + (double)plan->tail_out[row * seen->dim_v + j] * exp(tail - all);
        *lse = all;
}

static double largest_value(const kv_model *model, size_t of)
{
        double most = 0.0;
        for (size_t j = 0; j < model->n * model->dim_v; j++) {
                const double size = fabs((double)model->values[of][j]);
                most = size > most ? size : most; /* with fmax, gcc 12 for arm64 fails */
        }
        return most;
}

void kv_model_check_out(const kv_model *model, const kv_seen *seen, size_t i, size_t layer, const float *queries,
                        const char *what)
{
        double *wanted = malloc(model->dim_v * sizeof *wanted), lse;
        ck_assert_ptr_nonnull(wanted);
        for (size_t h = 0; h < model->n_kv_heads * model->group; h++) {
                size_t n;
                int32_t *positions = attended(seen, i, layer, h / model->group, &n);
                kv_model_attend(model, layer, h, queries + h * model->dim_k, n, positions, wanted, &lse);
                merge(seen, i, layer, h, wanted, &lse);
                free(positions);
                const double got = (double)*kv_lse(seen, layer, i, h),
                             most = largest_value(model, layer * model->n_kv_heads + h / model->group);
                if (!(got == lse || fabs(got - lse) <= KV_TOLERANCE * (1.0 + fabs(lse))))
                        ck_abort_msg("%s: layer %zu, query head %zu of %zu tokens: log sum %.9g, wanted %.9g", what,
                                     layer, h, n, got, lse);
                for (size_t j = 0; j < model->dim_v; j++) {
                        const double x = (double)kv_out(seen, layer, i, h)[j];
                        if (!(fabs(x - wanted[j]) <= KV_TOLERANCE * most))
                                ck_abort_msg("%s: layer %zu, query head %zu of %zu tokens, coordinate %zu: %.9g, "
                                             "wanted %.9g",
                                             what, layer, h, n, j, x, wanted[j]);
                }
        }
        free(wanted);
}

double kv_model_error(const kv_model *model, const kv_seen *seen, size_t i, size_t layer, const float *queries)
{
        double *wanted = malloc(model->dim_v * sizeof *wanted), lse, error = 0.0, size = 0.0;
        ck_assert_ptr_nonnull(wanted);
        for (size_t h = 0; h < model->n_kv_heads * model->group; h++) {
                kv_model_attend(model, layer, h, queries + h * model->dim_k, model->n, NULL, wanted, &lse);
                for (size_t j = 0; j < model->dim_v; j++) {
                        const double off = (double)kv_out(seen, layer, i, h)[j] - wanted[j];
                        error += off * off;
                        size += wanted[j] * wanted[j];
                }
        }
        free(wanted);
        return sqrt(error / size);
}

/* --- scores ------------------------------------------------------------------------------------------------------------- */

/* One coordinate of a group's summary: its mean, variance, extremes, and mean deviation from the middle of the extremes. */
typedef struct extent {
        double mean, variance, low, high, middle, deviation;
} extent;

static extent extent_of(const float *keys, size_t dim, size_t j, size_t size)
{
        extent e = {0.0, 0.0, (double)keys[j], (double)keys[j], 0.0, 0.0};
        for (size_t t = 0; t < size; t++) {
                e.mean += (double)keys[t * dim + j] / (double)size;
                e.low = fmin(e.low, (double)keys[t * dim + j]);
                e.high = fmax(e.high, (double)keys[t * dim + j]);
        }
        e.middle = (e.low + e.high) / 2.0;
        for (size_t t = 0; t < size; t++) {
                const double key = (double)keys[t * dim + j];
                e.deviation += fabs(key - e.middle) / (double)size;
                e.variance += (key - e.mean) * (key - e.mean) / (double)size;
        }
        return e;
}

double kv_model_score(const float *query, const float *keys, size_t dim, int32_t summary, size_t size)
{
        double sum = 0.0, square = 0.0;
        for (size_t j = 0; j < dim; j++) {
                const extent e = extent_of(keys, dim, j, size);
                const double q = (double)query[j];
                if (summary == DCI_KV_SUMMARY_MINMAX)
                        sum += fmax(q * e.low, q * e.high);
                else if (summary == DCI_KV_SUMMARY_CUBOID)
                        sum += q * e.middle + fabs(q) * e.deviation;
                else
                        sum += q * e.mean;
                square += summary == DCI_KV_SUMMARY_MEAN_STD ? q * q * e.variance : 0.0;
        }
        return sum + 1.5 * sqrt(square);
}

double *kv_model_scores(const kv_model *model, size_t layer, size_t kv_head, const float *queries, int32_t summary,
                        int32_t combine, size_t first, size_t end, size_t size)
{
        const float *keys = model->keys[layer * model->n_kv_heads + kv_head];
        const size_t n = (end - first + size - 1) / size;
        double *out = calloc(n + 1, sizeof *out), *one = calloc(n + 1, sizeof *one);
        ck_assert(out != NULL && one != NULL);
        for (size_t g = 0; g < model->group; g++) {
                double most = -(double)INFINITY, sum = 0.0;
                for (size_t i = 0; i < n; i++) {
                        const float *q = queries + g * model->dim_k;
                        const size_t at = first + i * size, here = end - at < size ? end - at : size;
                        one[i] =
                                model->scale * kv_model_score(q, keys + at * model->dim_k, model->dim_k, summary, here);
                        most = fmax(most, one[i]);
                }
                for (size_t i = 0; i < n; i++)
                        sum += exp(one[i] - most);
                for (size_t t = 0; t < model->n && size == 1; t++)
                        if (t < first || t >= end)
                                sum += exp(model->scale * test_dot(queries + g * model->dim_k, keys + t * model->dim_k,
                                                                   model->dim_k) -
                                           most);
                for (size_t i = 0; i < n; i++)
                        out[i] += combine == DCI_KV_COMBINE_SOFTMAX ? exp(one[i] - most) / sum
                                                                    : one[i] / (double)model->group;
        }
        free(one);
        return out;
}

/* By how much rounding may change a score near this one: softmax in proportion (and what vanishes next to 1 does not matter), products
 * by what cancels in them. Means and cuboids are kept in the format of the keys. */
double kv_model_slack(const kv_model *model, const dci_kv_info *info, double score)
{
        const bool rounded = kv_ranks_rows(info->summary) && info->summary != DCI_KV_SUMMARY_KEYS &&
                             info->summary != DCI_KV_SUMMARY_MINMAX;
        const double times = !rounded || model->dtype == DCI_F32 ? 1.0 : model->dtype == DCI_F16 ? 100.0 : 800.0;
        return times * (info->combine == DCI_KV_COMBINE_SOFTMAX ? 2e-4 * score + 1e-30 : 1e-4 * (1.0 + fabs(score)));
}

void kv_model_check_list(const kv_model *model, const dci_kv_info *info, const double *scores, size_t first, size_t end,
                         size_t size, const int32_t *list, size_t n_list, const char *what)
{
        const size_t n = (end - first + size - 1) / size;
        size_t *taken = calloc(n + 1, sizeof *taken), n_cut = 0;
        double last = (double)INFINITY;
        ck_assert_ptr_nonnull(taken);
        for (size_t t = 0; t < n_list; t++) {
                const size_t at = (size_t)list[t] - first;
                /* Of a group that is cut, the first tokens are taken. */
                if (taken[at / size]++ != at % size)
                        ck_abort_msg("%s: position %d of a group, but not the one before", what, list[t]);
                last = fmin(last, scores[at / size]);
        }
        for (size_t i = 0; i < n; i++) {
                const size_t here = end - first - i * size < size ? end - first - i * size : size;
                n_cut += taken[i] > 0 && taken[i] < here;
                if (taken[i] < here && scores[i] > last + kv_model_slack(model, info, last))
                        ck_abort_msg("%s: group %zu of %zu, score %.9g, %zu tokens taken, but the least taken has %.9g",
                                     what, i, n, scores[i], taken[i], last);
        }
        test_hold(n_cut <= 1);
        free(taken);
}

void kv_model_check_lists(const kv_model *model, const kv_seen *seen, size_t i, size_t layer, const float *queries,
                          size_t budget, bool frozen, const char *what)
{
        const dci_kv_info info = kv_info(seen->kv);
        const dci_kv_plan *plan = &seen->plans[layer];
        const size_t size = info.group == DCI_KV_GROUP_PAGE ? info.page_tokens : 1;
        const size_t first = (size_t)plan->sink_end[i], end = (size_t)plan->recent_begin[i];
        const size_t n_candidates = end - first;
        const size_t n = (size_t)plan->n_tokens[i], kept = first + (frozen ? info.window : n - end);
        if (end == 0)
                return;
        /* A cut that drops a batch leaves its tokens recent, however many, until there is a step. */
        if (kept > budget && !seen->kv->clustered && info.budget_counts == DCI_KV_COUNT_ALL)
                ck_abort_msg("%s: sink to %zu, recent from %zu of %d, budget %zu", what, first, end, plan->n_tokens[i],
                             budget);
        const bool whole = seen->kv->clustered || info.combine == DCI_KV_COMBINE_EACH;
        if (whole)
                kv_model_check_groups(model, seen, i, layer, queries, what);
        const size_t room = kv_room_of(seen->kv, n, n - end), wanted = room < n_candidates ? room : n_candidates;
        for (size_t h = 0; h < model->n_kv_heads; h++) {
                size_t n_list;
                const int32_t *list = kv_list(seen, layer, i, h, &n_list);
                if (n_list != wanted)
                        ck_abort_msg("%s: layer %zu, head %zu: list of %zu, wanted %zu", what, layer, h, n_list,
                                     wanted);
                if (whole)
                        continue;
                double *scores = kv_model_scores(model, layer, h, queries + h * model->group * model->dim_k,
                                                 info.summary, info.combine, first, end, size);
                kv_model_check_list(model, &info, scores, first, end, size, list, n_list, what);
                free(scores);
        }
}

/* --- groups that are listed
 * ------------------------------------------------------------------------------------------- */

/* That they are groups, what the naive choice over them is, and what the naive tail adds. Groups themselves are the
 * library's; what k-means must be, tests/test_kmeans_*.c say. */

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

/* --- scores
 * ----------------------------------------------------------------------------------------------------------------- */

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

/* --- the choice
 * ------------------------------------------------------------------------------------------------------------- */

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

/* --- the tail
 * --------------------------------------------------------------------------------------------------------------- */

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

/* --- what a list is chosen by, now or by an earlier plan
 * ------------------------------------------------------------------------- */

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
