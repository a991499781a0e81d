/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Where to start: without a limit, the first rows all enter a query's list, and while the limit rises k ln(n / k) more do.
 * A sample of rows, evenly spread, gives an estimate of the k-th best score. The guess is set low enough to hold
 * nearly always; flat/batch.c notices when it did not.
 */
#include "core/internal.h"

#include <math.h>

#include "index/flat/batch_rows.h"
#include "index/flat/batch_sample.h"

#define SAMPLE_ROWS 1024

void dci_batch_plan_sample(batch *b)
{
        const double n = (double)b->flat->n, k = (double)b->k, m = SAMPLE_ROWS;
        b->n_sample = 0;
        if (n < 4 * m)
                return;
        /* Of the k best, about k m / n fall into the sample, with the spread of a Poisson count. Three spreads and two more
         * make a guess that fails about once in a thousand queries. */
        double expected = k * m / n, rank = ceil(expected + 3 * sqrt(expected) + 2);
        /* Worth it when fewer rows pass the guess than would pass a rising limit. */
        if (rank > m / 4 || n * rank / m > 0.7 * k * (2 + log(n / k)))
                return;
        b->n_sample = SAMPLE_ROWS;
        b->sample_rank = (size_t)rank;
}

void dci_batch_guess(const batch *b, batch_worker *w, size_t block, size_t n_queries)
{
        float reached[DCI_BATCH_COLUMNS];
        float *products = w->sample_products;
        const bool l2 = b->flat->metric == DCI_METRIC_L2;
        dci_batch_load_rows(b, w, 0, b->flat->n / b->n_sample, b->n_sample, &w->sample);
        for (size_t first = 0; first < n_queries; first += DCI_BATCH_COLUMNS) {
                dci_batch_multiply(b, w, &w->sample, block, first, n_queries, products);
                for (size_t r = 0; l2 && r < b->n_sample; r++)
                        for (size_t c = 0; c < DCI_BATCH_COLUMNS; c++)
                                products[r * DCI_BATCH_COLUMNS + c] -= w->sample.offset[r];
                b->flat->kernels->columns_reached_by(products, DCI_BATCH_COLUMNS, b->n_sample, DCI_BATCH_COLUMNS,
                                                     b->sample_rank, reached);
                for (size_t c = 0; c < DCI_BATCH_COLUMNS && first + c < n_queries; c++) {
                        size_t q = first + c;
                        w->guess[q] = w->lists[q].limit = l2 ? 2.0f * reached[c] - w->norm2[q] : reached[c];
                }
        }
}
