/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What the returned ids are worth: the share of the true neighbours, and of the attention, that they hold. */
#include "bench/ann/ann.h"

/* Share of the true neighbours among the returned ids, see BENCH_RECALL_TOLERANCE. */
static dci_status recall_of(const ann_job *job, const int64_t *ids, double *out_recall)
{
        const bench_dataset *data = job->dataset;
        const bench_truth *truth = job->truth;
        size_t dim = data->base.dim, found = 0;
        int64_t *distinct = dci_alloc(job->context, job->k, sizeof *distinct);
        double *rows = dci_alloc(job->context, 2, dim * sizeof *rows);
        bool enough = distinct != NULL && rows != NULL;
        for (size_t i = 0; enough && i < truth->n_queries; i++) {
                size_t n = bench_distinct(ids + i * job->k, job->k, distinct);
                bench_row_to_double(&data->queries, i, rows);
                bench_found within = {
                        &data->base, NULL, data->base.n, job->metric,
                        bench_key_limit(job->metric, truth->scores[(i + 1) * truth->k - 1], BENCH_RECALL_TOLERANCE)};
                found += bench_count_found(&within, rows, distinct, n, rows + dim);
        }
        dci_free(job->context, distinct, job->k, sizeof *distinct);
        dci_free(job->context, rows, 2, dim * sizeof *rows);
        *out_recall = (double)found / ((double)truth->n_queries * (double)truth->k);
        return enough ? DCI_OK : DCI_ERR_MEMORY;
}

/* The true union of a group: the best row of the first query, of the second, .., the second best of the first, .. until k are
 * distinct; ascending. */
static size_t true_union(const ann_job *job, size_t group, int64_t *interleaved, int64_t *out)
{
        const bench_truth *truth = job->truth;
        const size_t g = job->options->group;
        size_t n = 0;
        for (size_t rank = 0; rank < truth->k; rank++)
                for (size_t i = 0; i < g; i++)
                        interleaved[rank * g + i] = truth->ids[(group * g + i) * truth->k + rank];
        /* The shortest beginning of the interleaved lists that holds k distinct rows, by halving. */
        size_t low = job->k < truth->k * g ? job->k : truth->k * g, high = truth->k * g;
        while (low < high) {
                size_t middle = (low + high) / 2;
                if (bench_distinct(interleaved, middle, out) >= job->k)
                        high = middle;
                else
                        low = middle + 1;
        }
        n = bench_distinct(interleaved, low, out);
        return n < job->k ? n : job->k;
}

/* Share of the true unions' rows among those returned. Equal scores at the edge are not forgiven here: which rows a union holds
 * depends on ranks. */
static dci_status union_recall(const ann_job *job, const int64_t *ids, double *out_recall)
{
        const size_t n_groups = job->truth->n_queries / job->options->group;
        const size_t room = job->truth->k * job->options->group;
        int64_t *interleaved = dci_alloc(job->context, room, sizeof *interleaved);
        int64_t *wanted = dci_alloc(job->context, room, sizeof *wanted);
        int64_t *got = dci_alloc(job->context, job->k, sizeof *got);
        bool enough = interleaved != NULL && wanted != NULL && got != NULL;
        size_t found = 0, total = 0;
        for (size_t group = 0; enough && group < n_groups; group++) {
                size_t n = true_union(job, group, interleaved, wanted);
                size_t m = bench_distinct(ids + group * job->k, job->k, got);
                for (size_t i = 0, j = 0; i < n && j < m;) {
                        found += wanted[i] == got[j];
                        int64_t w = wanted[i], g = got[j];
                        i += w <= g;
                        j += g <= w;
                }
                total += n;
        }
        dci_free(job->context, interleaved, room, sizeof *interleaved);
        dci_free(job->context, wanted, room, sizeof *wanted);
        dci_free(job->context, got, job->k, sizeof *got);
        *out_recall = total > 0 ? (double)found / (double)total : 0;
        return enough ? DCI_OK : DCI_ERR_MEMORY;
}

dci_status ann_judge(const ann_job *job, const int64_t *ids, ann_row *row)
{
        const ann_options *options = job->options;
        DCI_TRY(options->group_union ? union_recall(job, ids, &row->recall) : recall_of(job, ids, &row->recall));
        if (job->share != NULL)
                DCI_TRY(bench_share_of(job->share, job->dataset, ids, job->k, options->group_union ? options->group : 1,
                                       &row->share));
        return DCI_OK;
}
