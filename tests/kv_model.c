/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/kv_model.h"

#include <math.h>
#include <string.h>

#include "kv/kv_internal.h"

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
