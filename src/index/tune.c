/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The cheapest effort that reaches a recall: tried on a sample against exact search. */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "index/index_internal.h"

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

/* One effort, measured. */
typedef struct trial {
        dci_search_params params;
        double recall, held_out, distances;
} trial;

static dci_status search(const tuning *t, dci_search_params *params, double *out_distances)
{
        dci_search_stats stats;
        dci_search_stats_init(&stats, sizeof stats);
        params->stats = &stats;
        dci_status status =
                dci_index_search(t->index, t->n_queries, t->queries, t->ld, t->k, params, t->ids, t->scores);
        params->stats = NULL;
        *out_distances = (double)stats.distances / (double)t->n_queries;
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

static dci_status try_effort(tuning *t, double visit, double retrieve, trial *out)
{
        dci_search_params_init(&out->params, sizeof out->params);
        out->params.prop_to_visit = visit;
        out->params.prop_to_retrieve = retrieve;
        dci_status status = search(t, &out->params, &out->distances);
        if (status != DCI_OK)
                return status;
        out->recall = recall_of(t, 0);
        out->held_out = t->n_queries > 1 ? recall_of(t, 1) : (double)NAN;
        t->n_efforts++;
        return DCI_OK;
}

/* The smallest share that reaches the target, to within 3 %: doubled until it does, then halved in between. visits: the share is
 * prop_to_visit and `other` the share retrieved; else the other way round. *out stays as it is if full effort is what it takes. */
static dci_status least_share(tuning *t, bool visits, double other, trial *out)
{
        const double n = (double)dci_index_count(t->index) + 1.0;
        double low = 0.0, high = 1.0 / n;
        trial found = {0}, tried;
        for (bool reached = false; !reached; high = reached ? high : 2.0 * high) {
                if (high >= 1.0)
                        return DCI_OK;
                dci_status status = visits ? try_effort(t, high, other, &tried) : try_effort(t, other, high, &tried);
                if (status != DCI_OK)
                        return status;
                reached = tried.recall >= t->target;
                if (reached)
                        found = tried;
                else
                        low = high;
        }
        while (high > 1.03 * low && high * n > 1.5) {
                const double middle = low > 0.0 ? sqrt(low * high) : 0.5 * high;
                dci_status status =
                        visits ? try_effort(t, middle, other, &tried) : try_effort(t, other, middle, &tried);
                if (status != DCI_OK)
                        return status;
                if (tried.recall >= t->target) {
                        high = middle;
                        found = tried;
                } else {
                        low = middle;
                }
        }
        if (found.distances < out->distances)
                *out = found;
        return DCI_OK;
}

static dci_status find_effort(tuning *t, trial *best)
{
        static const double retrieved[] = {1.0, 0.7, 0.5, 0.35, 0.2, 0.1};
        const dci_index_config *config = &t->index->config;
        if (t->target >= 1.0 || config->kind == DCI_KIND_FLAT || dci_index_count(t->index) == 0)
                return DCI_OK;
        if (config->kind == DCI_KIND_PDCI)
                return least_share(t, false, 1.0, best);
        const size_t n = config->cell_simp_indices == 0 ? 1 : sizeof retrieved / sizeof retrieved[0];
        dci_status status = DCI_OK;
        for (size_t i = 0; i < n && status == DCI_OK; i++)
                status = least_share(t, true, retrieved[i], best);
        return status;
}

static dci_status measure(tuning *t, trial *best, double *out_exact)
{
        dci_search_params_init(&best->params, sizeof best->params);
        dci_status status = search(t, &best->params, &best->distances);
        if (status != DCI_OK)
                return status;
        for (size_t q = 0; q < t->n_queries; q++)
                t->truth[q] = t->scores[q * t->k + t->k - 1];
        /* What a query alone costs: batches rank by cheaper arithmetic first. */
        best->distances = (double)dci_index_count(t->index);
        best->recall = 1.0;
        best->held_out = t->n_queries > 1 ? 1.0 : (double)NAN;
        *out_exact = best->distances;
        return find_effort(t, best);
}

dci_status dci_index_tune(dci_index *index, size_t n_queries, const void *queries, size_t ld, size_t k,
                          double target_recall, dci_tune_result *out_result)
{
        dci_status status = dci_index_enter(index);
        if (status == DCI_OK && out_result != NULL)
                status = dci_check_struct_size("dci_tune_result", out_result, out_result->struct_size,
                                               sizeof *out_result);
        if (status == DCI_OK && n_queries == 0)
                status = dci_fail(DCI_ERR_INVALID, "n_queries is 0, expected at least 1");
        if (status == DCI_OK && !(target_recall > 0.0 && target_recall <= 1.0))
                status = dci_fail(DCI_ERR_INVALID, "target_recall is %g, allowed is (0, 1]", target_recall);
        if (status == DCI_OK && queries == NULL)
                status = dci_fail(DCI_ERR_INVALID, "queries is NULL");
        const int64_t somewhere = 0;
        if (status == DCI_OK)
                status = dci_search_check(n_queries, k, &somewhere);
        if (status != DCI_OK)
                return status;
        tuning t = {.index = index, .n_queries = n_queries, .ld = ld, .k = k, .queries = queries};
        t.target = target_recall;
        t.truth = dci_alloc(index->context, n_queries, sizeof *t.truth);
        t.ids = dci_alloc(index->context, n_queries * k, sizeof *t.ids);
        t.scores = dci_alloc(index->context, n_queries * k, sizeof *t.scores);
        trial best = {0};
        double exact = 0.0;
        status = t.truth == NULL || t.ids == NULL || t.scores == NULL ? DCI_ERR_MEMORY : measure(&t, &best, &exact);
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
        return DCI_OK;
}
