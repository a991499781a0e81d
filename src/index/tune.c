/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The cheapest effort that reaches a recall: tried on a sample against exact search. */
#include "core/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "index/access.h"
#include "index/calibrate.h"
#include "index/config.h"
#include "index/search.h"

/* Efforts that are compared by time in the end: the best of each way of spending. */
#define MOST_FOUND 16

/* One effort, measured. cost: what is read for a query, in rows; infinite: none yet. seconds: of a query alone. */
typedef struct trial {
        dci_search_params params;
        double recall, held_out, distances, cost, seconds;
} trial;

typedef struct tuning {
        dci_index *index;
        size_t n_queries, ld, k;
        const void *queries;
        double target;
        float *truth; /* by query: the k-th best score; NaN: there are fewer */
        int64_t *ids;
        float *scores;
        size_t n_efforts;
        dci_effort hint; /* what the calibration says; share 0: nothing */
        trial found[MOST_FOUND];
        size_t n_found;
        const dci_tune_options *options;
        struct timespec begin;
        bool late;                            /* the deadline has come */
        size_t n_steps, most_steps, reported; /* of progress */
} tuning;

/* What is varied while the rest of the effort stays: each a share of the rows. RERANK: that is scored, after all were ranked. */
enum { VISIT, RETRIEVE, RERANK };

/* Of a row, the share that its codes are. */
static double share_of_codes(const dci_index_config *config)
{
        return (double)config->sketch_bits / (8.0 * (double)dci_dtype_size(config->dtype));
}

static double seconds_since(const struct timespec *begin)
{
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (double)(now.tv_sec - begin->tv_sec) + 1e-9 * (double)(now.tv_nsec - begin->tv_nsec);
}

/* Progress of a search becomes that of the whole; nobody knows how many there will be, so it slows down towards the end. */
static int32_t watch(void *ctx, size_t done, size_t total)
{
        tuning *t = ctx;
        const double steps = (double)t->n_steps + (total == 0 ? 0.0 : (double)done / (double)total);
        const size_t now = (size_t)(1000.0 * steps / (steps + (double)t->most_steps / 4.0));
        const dci_progress *progress = &t->options->progress;
        t->reported = now > t->reported ? now : t->reported;
        if (progress->fn != NULL && progress->fn(progress->ctx, t->reported, 1000) != 0)
                return 1;
        if (t->options->deadline > 0.0 && seconds_since(&t->begin) > t->options->deadline) {
                t->late = true;
                dci_may_fail(true); /* the search fails, the call does not */
                return 1;
        }
        return 0;
}

static dci_status watched_search(tuning *t, size_t n_queries, const void *queries, const dci_search_params *params)
{
        dci_search_params watched = *params;
        const bool is_watched = t->options->progress.fn != NULL || t->options->deadline > 0.0;
        watched.progress = (dci_progress){t, is_watched ? watch : NULL};
        const dci_status status =
                dci_index_search(t->index, n_queries, queries, t->ld, t->k, &watched, t->ids, t->scores);
        if (t->late)
                dci_may_fail(false);
        t->n_steps++;
        return status;
}

static dci_status search(tuning *t, trial *out)
{
        dci_search_stats stats;
        dci_search_stats_init(&stats, sizeof stats);
        out->params.stats = &stats;
        const dci_status status = watched_search(t, t->n_queries, t->queries, &out->params);
        out->params.stats = NULL;
        out->distances = (double)stats.distances / (double)t->n_queries;
        out->cost = out->distances;
        if (!isinf(out->params.rerank))
                out->cost += share_of_codes(&t->index->config) * (double)stats.proposed / (double)t->n_queries;
        return status;
}

/* A row that is as good as the k-th best one is a hit, whichever of equals was found. */
static double recall_of(const tuning *t, size_t parity)
{
        const bool descending = t->index->config.metric != DCI_METRIC_L2;
        size_t hits = 0, wanted = 0;
        for (size_t q = parity; q < t->n_queries; q += 2) {
                for (size_t i = 0; i < t->k; i++) {
                        const float score = t->scores[q * t->k + i];
                        if (t->ids[q * t->k + i] < 0)
                                continue;
                        hits += isnan(t->truth[q]) || (descending ? score >= t->truth[q] : score <= t->truth[q]);
                }
                const size_t n = dci_index_count(t->index);
                wanted += t->k < n ? t->k : n;
        }
        return wanted == 0 ? 1.0 : (double)hits / (double)wanted;
}

static dci_status try_effort(tuning *t, const dci_search_params *params, trial *out)
{
        *out = (trial){.params = *params, .seconds = NAN};
        DCI_TRY(search(t, out));
        out->recall = recall_of(t, 0);
        out->held_out = t->n_queries > 1 ? recall_of(t, 1) : (double)NAN;
        t->n_efforts++;
        return DCI_OK;
}

static void set_share(const tuning *t, int knob, double share, dci_search_params *params)
{
        if (knob == VISIT)
                params->prop_to_visit = share;
        else if (knob == RETRIEVE)
                params->prop_to_retrieve = share;
        else
                params->rerank = fmax(1.0, share * (double)dci_index_count(t->index) / (double)t->k);
}

static void keep(tuning *t, const trial *found)
{
        if (!isinf(found->cost) && t->n_found < MOST_FOUND)
                t->found[t->n_found++] = *found;
}

/* Bounds of the smallest share that reaches the target, tried from `hint` on by factors, and the trial at the upper one, if there
 * is any. */
static dci_status bracket(tuning *t, int knob, dci_search_params *params, double hint, double *low, double *high,
                          trial *found)
{
        const double n = (double)dci_index_count(t->index) + 1.0, least = (knob == RERANK ? (double)t->k : 1.0) / n;
        const bool guessed = hint > least;
        double share = guessed ? fmin(hint, 0.999) : least, factor = guessed ? 1.15 : 2.0;
        trial tried;
        *low = 0.0;
        *high = 1.0;
        for (;;) {
                set_share(t, knob, share, params);
                DCI_TRY(try_effort(t, params, &tried));
                if (tried.recall >= t->target) {
                        *found = tried;
                        *high = share;
                        if (*low > 0.0 || share <= least)
                                return DCI_OK;
                        share = fmax(share / factor, least);
                } else {
                        *low = share;
                        if (*high < 1.0)
                                return DCI_OK;
                        share *= factor;
                        if (share >= 1.0)
                                return DCI_OK;
                }
                factor *= guessed ? factor : 1.0;
        }
}

/* The smallest share that reaches the target, to within 3 %; *found stays as it is if full effort is what it takes. */
static dci_status narrow(tuning *t, int knob, dci_search_params params, double hint, trial *found)
{
        const double n = (double)dci_index_count(t->index) + 1.0;
        double low, high;
        DCI_TRY(bracket(t, knob, &params, hint, &low, &high, found));
        while (high < 1.0 && high > 1.03 * low && high * n > 1.5 && low > 0.0) {
                const double middle = sqrt(low * high);
                trial tried;
                set_share(t, knob, middle, &params);
                DCI_TRY(try_effort(t, &params, &tried));
                if (tried.recall >= t->target) {
                        high = middle;
                        *found = tried;
                } else {
                        low = middle;
                }
        }
        return DCI_OK;
}

static dci_status min_share(tuning *t, int knob, dci_search_params params, double hint, trial *out)
{
        trial found = {.cost = INFINITY};
        const dci_status status = narrow(t, knob, params, hint, &found);
        keep(t, &found);
        if (out != NULL)
                *out = found;
        return status;
}

/* With codes: the fewest rows scored where all are ranked, then fewer ranked with the same and more of those scored. */
static dci_status find_sketched(tuning *t, int knob, const dci_search_params *full)
{
        static const double more[] = {1.0, 1.25, 1.6, 2.5};
        const double n = (double)dci_index_count(t->index) + 1.0;
        trial all;
        dci_search_params params = *full;
        params.rerank = 1.0;
        DCI_TRY(min_share(t, RERANK, params, isinf(t->hint.rerank) ? 0.0 : t->hint.rerank * (double)t->k / n, &all));
        for (size_t i = 0; i < sizeof more / sizeof more[0] && knob != RERANK && !isinf(all.cost); i++) {
                params.rerank = more[i] * all.params.rerank;
                DCI_TRY(min_share(t, knob, params, t->hint.share, NULL));
        }
        return DCI_OK;
}

/* Efforts that reach the target go to t->found. */
static dci_status find_efforts(tuning *t, dci_search_params full)
{
        static const double retrieved[] = {1.0, 0.7, 0.5, 0.35, 0.2, 0.1};
        const dci_index_config *config = &t->index->config;
        const int knob = config->kind == DCI_KIND_MDCI ? VISIT : RETRIEVE;
        if (config->sketch_bits != 0)
                DCI_TRY(find_sketched(t, config->kind == DCI_KIND_FLAT ? RERANK : knob, &full));
        if (config->kind == DCI_KIND_FLAT)
                return DCI_OK;
        const size_t n =
                knob == RETRIEVE || config->cell_simp_indices == 0 ? 1 : sizeof retrieved / sizeof retrieved[0];
        for (size_t i = 0; i < n; i++) {
                if (knob == VISIT)
                        full.prop_to_retrieve = retrieved[i];
                DCI_TRY(min_share(t, knob, full, t->hint.share, NULL));
        }
        return DCI_OK;
}

/* --- time --------------------------------------------------------------------------------------------------------------- */

#define ROUNDS 8
#define TIMED_QUERIES 32
#define ROUND_SECONDS 0.05

static int compare_doubles(const void *a, const void *b)
{
        const double x = *(const double *)a, y = *(const double *)b;
        return (x > y) - (x < y);
}

/* `count` queries, one by one, in seconds. */
static dci_status time_queries(tuning *t, const trial *tried, size_t count, double *out)
{
        const size_t query_bytes = t->ld * dci_dtype_size(t->index->config.query_dtype);
        struct timespec begin;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        for (size_t i = 0; i < count; i++) {
                const size_t query = i * t->n_queries / count;
                DCI_TRY(watched_search(t, 1, (const unsigned char *)t->queries + query * query_bytes, &tried->params));
                t->n_steps--;
        }
        t->n_steps++;
        *out = seconds_since(&begin);
        return DCI_OK;
}

/* All in turns, so that a slow moment of the machine hits all alike; the median of each. The last one of them is exact search. */
static dci_status time_found(tuning *t)
{
        double seconds[MOST_FOUND][ROUNDS], once = 0.0;
        size_t count = t->n_queries < TIMED_QUERIES ? t->n_queries : TIMED_QUERIES, n_rounds = 0;
        dci_status status = time_queries(t, &t->found[t->n_found - 1], 1, &once);
        while (count > 1 && once * (double)count > ROUND_SECONDS)
                count--;
        for (; status == DCI_OK && n_rounds < ROUNDS; n_rounds++)
                for (size_t i = 0; i < t->n_found && status == DCI_OK; i++)
                        status = time_queries(t, &t->found[i], count, &seconds[i][n_rounds]);
        if (status != DCI_OK)
                return status;
        for (size_t i = 0; i < t->n_found; i++) {
                qsort(seconds[i], ROUNDS, sizeof seconds[i][0], compare_doubles);
                t->found[i].seconds = (seconds[i][ROUNDS / 2 - 1] + seconds[i][ROUNDS / 2]) / (2.0 * (double)count);
        }
        return DCI_OK;
}

/* --- the whole ------------------------------------------------------------------------------------------------------------- */

static const trial *cheapest(const tuning *t, bool by_time)
{
        const trial *best = &t->found[t->n_found - 1];
        for (size_t i = 0; i < t->n_found; i++) {
                const trial *one = &t->found[i];
                if (by_time ? one->seconds < best->seconds : one->cost < best->cost)
                        best = one;
        }
        return best;
}

/* The true neighbours, and what finding them by full effort costs. */
static dci_status find_truth(tuning *t, trial *exact)
{
        dci_search_params_init(&exact->params, sizeof exact->params);
        exact->params.prop_to_visit = exact->params.prop_to_retrieve = 1.0;
        exact->params.rerank = t->index->config.sketch_bits != 0 ? (double)INFINITY : 0.0;
        DCI_TRY(search(t, exact));
        for (size_t q = 0; q < t->n_queries; q++)
                t->truth[q] = t->scores[q * t->k + t->k - 1];
        /* What a query alone costs: batches rank by cheaper arithmetic first. */
        exact->distances = exact->cost = (double)dci_index_count(t->index);
        exact->recall = 1.0;
        exact->held_out = t->n_queries > 1 ? 1.0 : (double)NAN;
        exact->seconds = (double)NAN;
        return DCI_OK;
}

static dci_status calibrate(tuning *t, dci_calibration *out)
{
        const dci_progress progress = {t, t->options->progress.fn != NULL || t->options->deadline > 0.0 ? watch : NULL};
        dci_queries queries;
        DCI_TRY(dci_queries_prepare(t->index, t->n_queries, t->queries, t->ld, &queries));
        const dci_status status = dci_calibrate_queries(t->index, &queries, &progress, out);
        if (t->late)
                dci_may_fail(false);
        dci_queries_free(t->index, &queries);
        if (status == DCI_OK && out->on != DCI_CALIBRATED_NONE)
                t->hint = dci_effort_of(out, t->target, t->k, dci_index_count(t->index));
        t->n_steps++;
        return status;
}

/* Whatever was found when the deadline came is in t->found. */
static dci_status measure(tuning *t, dci_calibration *calibration)
{
        trial exact = {0};
        const size_t n = dci_index_count(t->index);
        dci_status status = calibrate(t, calibration);
        if (status == DCI_OK)
                status = find_truth(t, &exact);
        if (status != DCI_OK)
                return status;
        if (t->target < 1.0 && n > 0)
                status = find_efforts(t, exact.params);
        t->n_found = t->n_found < MOST_FOUND ? t->n_found : MOST_FOUND - 1;
        if (status == DCI_OK || t->n_found == 0)
                t->found[t->n_found++] = exact;
        if (status == DCI_OK && t->options->cost == DCI_TUNE_TIME && n > 0)
                status = time_found(t);
        return status;
}

static void report(const tuning *t, const trial *best, double exact_seconds, dci_tune_result *out)
{
        const size_t struct_size = out->struct_size;
        dci_tune_result result;
        dci_tune_result_init(&result, sizeof result);
        result.n_queries = t->n_queries;
        result.recall = best->recall;
        result.recall_held_out = best->held_out;
        result.distances = best->distances;
        result.exact_distances = (double)dci_index_count(t->index);
        result.n_efforts = t->n_efforts;
        result.prop_to_visit = best->params.prop_to_visit;
        result.prop_to_retrieve = best->params.prop_to_retrieve;
        result.rerank = best->params.rerank;
        result.seconds = best->seconds;
        result.exact_seconds = exact_seconds;
        result.finished = !t->late;
        dci_tune_result_init(out, struct_size);
        dci_struct_give(out, &result, sizeof result);
}

static dci_status tune(tuning *t, dci_tune_result *out_result)
{
        dci_calibration calibration = {0};
        dci_status status = measure(t, &calibration);
        if (status == DCI_ERR_CANCELLED && t->late)
                status = DCI_OK;
        if (status != DCI_OK)
                return status;
        const bool timed = t->options->cost == DCI_TUNE_TIME && !t->late && t->n_found > 0;
        const trial none = {.recall = NAN, .held_out = NAN, .distances = NAN, .seconds = NAN};
        const trial *best = t->n_found > 0 ? cheapest(t, timed && !isnan(t->found[0].seconds)) : &none;
        if (t->n_found > 0) {
                pthread_mutex_lock(&t->index->defaults_lock);
                t->index->defaults = best->params;
                dci_params_complete(&t->index->defaults);
                if (calibration.on != DCI_CALIBRATED_NONE)
                        t->index->calibration = calibration;
                pthread_mutex_unlock(&t->index->defaults_lock);
        }
        if (out_result != NULL)
                report(t, best, timed ? t->found[t->n_found - 1].seconds : (double)NAN, out_result);
        return DCI_OK;
}

dci_status dci_index_tune_with(dci_index *index, size_t n_queries, const void *queries, size_t ld, size_t k,
                               double target_recall, const dci_tune_options *options, dci_tune_result *out_result)
{
        const int64_t somewhere = 0;
        dci_tune_options usual;
        DCI_TRY(dci_index_check_call(index));
        DCI_TRY(dci_tune_check(options, out_result));
        if (n_queries == 0)
                return dci_fail(DCI_ERR_INVALID, "n_queries is 0, expected at least 1");
        if (!(target_recall > 0.0 && target_recall <= 1.0))
                return dci_fail(DCI_ERR_INVALID, "target_recall is %g, allowed is (0, 1]", target_recall);
        if (queries == NULL)
                return dci_fail(DCI_ERR_INVALID, "queries is NULL");
        DCI_TRY(dci_search_check(n_queries, k, &somewhere));
        dci_tune_options_init(&usual, sizeof usual);
        tuning t = {.index = index, .n_queries = n_queries, .ld = ld, .k = k, .queries = queries};
        t.target = target_recall;
        t.options = options == NULL ? &usual : options;
        t.most_steps = index->config.sketch_bits == 0 && index->config.cell_simp_indices == 0 ? 16 : 64;
        clock_gettime(CLOCK_MONOTONIC, &t.begin);
        t.truth = dci_alloc(index->context, n_queries, sizeof *t.truth);
        t.ids = dci_alloc(index->context, n_queries * k, sizeof *t.ids);
        t.scores = dci_alloc(index->context, n_queries * k, sizeof *t.scores);
        const dci_status status =
                t.truth == NULL || t.ids == NULL || t.scores == NULL ? DCI_ERR_MEMORY : tune(&t, out_result);
        dci_free(index->context, t.scores, n_queries * k, sizeof *t.scores);
        dci_free(index->context, t.ids, n_queries * k, sizeof *t.ids);
        dci_free(index->context, t.truth, n_queries, sizeof *t.truth);
        return status;
}

dci_status dci_index_tune(dci_index *index, size_t n_queries, const void *queries, size_t ld, size_t k,
                          double target_recall, dci_tune_result *out_result)
{
        dci_tune_options options;
        dci_tune_options_init(&options, sizeof options);
        options.cost = DCI_TUNE_DISTANCES;
        return dci_index_tune_with(index, n_queries, queries, ld, k, target_recall, &options, out_result);
}
