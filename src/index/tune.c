/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The cheapest effort that reaches a recall: tried on a sample against exact search. */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "index/access.h"
#include "index/search.h"

typedef struct tuning {
        dci_index *index;
        size_t n_queries, ld, k;
        const void *queries;
        double target;
        float *truth; /* by query: the k-th best score; NaN: there are fewer */
        int64_t *ids;
        float *scores;
        size_t n_efforts;
} tuning;

/* One effort, measured. cost: what is read for a query, in rows. */
typedef struct trial {
        dci_search_params params;
        double recall, held_out, distances, cost;
} trial;

/* What is varied while the rest of the effort stays: each a share of the rows. RERANK: that is scored, after all were ranked. */
enum { VISIT, RETRIEVE, RERANK };

/* Of a row, the share that its codes are. */
static double share_of_codes(const dci_index_config *config)
{
        return (double)config->sketch_bits / (8.0 * (double)dci_dtype_size(config->dtype));
}

static dci_status search(const tuning *t, trial *out)
{
        dci_search_stats stats;
        dci_search_stats_init(&stats, sizeof stats);
        out->params.stats = &stats;
        dci_status status =
                dci_index_search(t->index, t->n_queries, t->queries, t->ld, t->k, &out->params, t->ids, t->scores);
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
        out->params = *params;
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

/* The smallest share that reaches the target, to within 3 %: doubled until it does, then halved in between. *out stays as it is if
 * it is cheaper, or full effort is what it takes. */
static dci_status min_share(tuning *t, int knob, dci_search_params params, trial *out)
{
        const double n = (double)dci_index_count(t->index) + 1.0;
        double low = 0.0, high = (knob == RERANK ? (double)t->k : 1.0) / n;
        trial found = {.cost = INFINITY}, tried;
        for (bool reached = false; !reached; high = reached ? high : 2.0 * high) {
                if (high >= 1.0)
                        return DCI_OK;
                set_share(t, knob, high, &params);
                DCI_TRY(try_effort(t, &params, &tried));
                reached = tried.recall >= t->target;
                if (reached)
                        found = tried;
                else
                        low = high;
        }
        while (high > 1.03 * low && high * n > 1.5 && low > 0.0) {
                const double middle = sqrt(low * high);
                set_share(t, knob, middle, &params);
                DCI_TRY(try_effort(t, &params, &tried));
                if (tried.recall >= t->target) {
                        high = middle;
                        found = tried;
                } else {
                        low = middle;
                }
        }
        if (found.cost < out->cost)
                *out = found;
        return DCI_OK;
}

/* With codes: the fewest rows scored where all are ranked, then fewer ranked with the same and more of those scored. */
static dci_status find_sketched(tuning *t, int knob, const dci_search_params *full, trial *best)
{
        static const double more[] = {1.0, 1.25, 1.6, 2.5};
        trial all = {.cost = INFINITY};
        dci_search_params params = *full;
        params.rerank = 1.0;
        DCI_TRY(min_share(t, RERANK, params, &all));
        if (isinf(all.cost))
                return DCI_OK;
        if (all.cost < best->cost)
                *best = all;
        for (size_t i = 0; i < sizeof more / sizeof more[0] && knob != RERANK; i++) {
                params.rerank = more[i] * all.params.rerank;
                DCI_TRY(min_share(t, knob, params, best));
        }
        return DCI_OK;
}

static dci_status find_effort(tuning *t, trial *best)
{
        static const double retrieved[] = {1.0, 0.7, 0.5, 0.35, 0.2, 0.1};
        const dci_index_config *config = &t->index->config;
        dci_search_params full = best->params;
        if (t->target >= 1.0 || dci_index_count(t->index) == 0)
                return DCI_OK;
        const int knob = config->kind == DCI_KIND_MDCI ? VISIT : RETRIEVE;
        if (config->sketch_bits != 0)
                DCI_TRY(find_sketched(t, config->kind == DCI_KIND_FLAT ? RERANK : knob, &full, best));
        if (config->kind == DCI_KIND_FLAT)
                return DCI_OK;
        const size_t n =
                knob == RETRIEVE || config->cell_simp_indices == 0 ? 1 : sizeof retrieved / sizeof retrieved[0];
        for (size_t i = 0; i < n; i++) {
                if (knob == VISIT)
                        full.prop_to_retrieve = retrieved[i];
                DCI_TRY(min_share(t, knob, full, best));
        }
        return DCI_OK;
}

static dci_status measure(tuning *t, trial *best, double *out_exact)
{
        dci_search_params_init(&best->params, sizeof best->params);
        best->params.rerank = t->index->config.sketch_bits != 0 ? (double)INFINITY : 0.0;
        DCI_TRY(search(t, best));
        for (size_t q = 0; q < t->n_queries; q++)
                t->truth[q] = t->scores[q * t->k + t->k - 1];
        /* What a query alone costs: batches rank by cheaper arithmetic first. */
        best->distances = best->cost = (double)dci_index_count(t->index);
        best->recall = 1.0;
        best->held_out = t->n_queries > 1 ? 1.0 : (double)NAN;
        *out_exact = best->distances;
        return find_effort(t, best);
}

dci_status dci_index_tune(dci_index *index, size_t n_queries, const void *queries, size_t ld, size_t k,
                          double target_recall, dci_tune_result *out_result)
{
        const int64_t somewhere = 0;
        DCI_TRY(dci_index_check_call(index));
        if (out_result != NULL)
                DCI_TRY(dci_check_struct_size("dci_tune_result", out_result, out_result->struct_size,
                                              sizeof *out_result));
        if (n_queries == 0)
                return dci_fail(DCI_ERR_INVALID, "n_queries is 0, expected at least 1");
        if (!(target_recall > 0.0 && target_recall <= 1.0))
                return dci_fail(DCI_ERR_INVALID, "target_recall is %g, allowed is (0, 1]", target_recall);
        if (queries == NULL)
                return dci_fail(DCI_ERR_INVALID, "queries is NULL");
        DCI_TRY(dci_search_check(n_queries, k, &somewhere));
        tuning t = {.index = index, .n_queries = n_queries, .ld = ld, .k = k, .queries = queries};
        t.target = target_recall;
        t.truth = dci_alloc(index->context, n_queries, sizeof *t.truth);
        t.ids = dci_alloc(index->context, n_queries * k, sizeof *t.ids);
        t.scores = dci_alloc(index->context, n_queries * k, sizeof *t.scores);
        trial best = {0};
        double exact = 0.0;
        dci_status status =
                t.truth == NULL || t.ids == NULL || t.scores == NULL ? DCI_ERR_MEMORY : measure(&t, &best, &exact);
        dci_free(index->context, t.scores, n_queries * k, sizeof *t.scores);
        dci_free(index->context, t.ids, n_queries * k, sizeof *t.ids);
        dci_free(index->context, t.truth, n_queries, sizeof *t.truth);
        if (status == DCI_OK)
                status = dci_index_set_defaults(index, &best.params);
        if (status != DCI_OK || out_result == NULL)
                return status;
        dci_tune_result_init(out_result, out_result->struct_size);
        out_result->n_queries = n_queries;
        out_result->recall = best.recall;
        out_result->recall_held_out = best.held_out;
        out_result->distances = best.distances;
        out_result->exact_distances = exact;
        out_result->n_efforts = t.n_efforts;
        out_result->prop_to_visit = best.params.prop_to_visit;
        out_result->prop_to_retrieve = best.params.prop_to_retrieve;
        out_result->rerank = best.params.rerank;
        return DCI_OK;
}
