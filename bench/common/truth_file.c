/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/common/exact.h"

#include <stdlib.h>

static dci_status score_query(const bench_dataset *dataset, dci_metric metric, size_t query, bench_hit *hits,
                              double *rows, bench_truth *truth)
{
        size_t k = truth->k, dim = dataset->base.dim;
        const int64_t *ids = dataset->truth.data + query * dataset->truth.width;
        bench_row_to_double(&dataset->queries, query, rows);
        for (size_t j = 0; j < k; j++) {
                if (ids[j] < 0 || (uint64_t)ids[j] >= dataset->base.n)
                        return dci_fail(DCI_ERR_FORMAT, "%s: neighbour %zu of query %zu is row %lld, but there are %zu",
                                        dataset->truth_file, j, query, (long long)ids[j], dataset->base.n);
                bench_row_to_double(&dataset->base, (size_t)ids[j], rows + dim);
                hits[j].score = bench_score(metric, rows, rows + dim, dim);
                hits[j].key = bench_key(metric, hits[j].score);
                hits[j].id = ids[j];
        }
        qsort(hits, k, sizeof *hits, bench_order);
        for (size_t j = 0; j < k; j++) {
                /* Equal ids have equal scores, so sorting has put them side by side. */
                if (j > 0 && hits[j].id == hits[j - 1].id)
                        return dci_fail(DCI_ERR_FORMAT, "%s: query %zu names row %lld twice", dataset->truth_file,
                                        query, (long long)hits[j].id);
                truth->ids[query * k + j] = hits[j].id;
                truth->scores[query * k + j] = hits[j].score;
        }
        return DCI_OK;
}

dci_status bench_truth_from_file(const bench_dataset *dataset, dci_metric metric, bench_truth *truth)
{
        size_t k = truth->k, dim = dataset->base.dim;
        dci_context *context = truth->context;
        if (dataset->truth.width < k)
                return dci_fail(DCI_ERR_FORMAT, "%s: %zu neighbours per query, %zu are needed", dataset->truth_file,
                                dataset->truth.width, k);
        bench_hit *hits = dci_alloc(context, k, sizeof *hits);
        double *rows = dci_alloc(context, 2, dim * sizeof *rows);
        dci_status status = hits != NULL && rows != NULL ? DCI_OK : DCI_ERR_MEMORY;
        for (size_t i = 0; status == DCI_OK && i < truth->n_queries; i++)
                status = score_query(dataset, metric, i, hits, rows, truth);
        dci_free(context, hits, k, sizeof *hits);
        dci_free(context, rows, 2, dim * sizeof *rows);
        truth->origin = "file";
        return status;
}
