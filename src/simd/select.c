/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Selection by sampling (Floyd and Rivest 1975), with vector passes in place of partitioning. */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "simd/select.h"

void dci_select_bounds(const dci_kernels *kernels, const float *sample, size_t m, size_t n, size_t k, int32_t *order,
                       float *out_low, float *out_high)
{
        /* The k-th of all is about the (k m / n)-th of the sample, with the spread of a binomial count. Four spreads
         * and a few more fail about once in ten thousand. */
        const double expected = (double)k * (double)m / (double)n;
        const double slack = 4.0 * sqrt(expected * (1.0 - expected / (double)m)) + 3.0;
        const double below = floor(expected - slack), above = ceil(expected + slack);
        *out_low = below < 1.0 ? -INFINITY : kernels->kth_smallest(sample, m, (size_t)below, order);
        *out_high = above > (double)m ? INFINITY : kernels->kth_smallest(sample, m, (size_t)above, order);
}

size_t dci_count_less(const dci_kernels *kernels, const float *values, size_t n, float x)
{
        float nothing[1];
        size_t below = 0;
        if (n > 0 && x > -INFINITY) /* an empty interval keeps nothing: only the count is wanted */
                kernels->keep_between(values, n, x, -INFINITY, nothing, &below);
        return below;
}

/* From the largest limit down, each among those that the one before left. */
void dci_count_at_most(const dci_kernels *kernels, float *values, size_t n, const float *limits, size_t m, float *kept,
                       int32_t *order, size_t *out)
{
        size_t at[DCI_COUNT_LIMITS];
        const size_t room = n;
        float *from = values, *to = kept;
        for (size_t i = 0; i < m; i++) {
                size_t j = i;
                for (; j > 0 && limits[at[j - 1]] < limits[i]; j--)
                        at[j] = at[j - 1];
                at[j] = i;
        }
        for (size_t i = 0; i < m; i++) {
                const size_t left = kernels->keep_at_most(from, n, limits[at[i]], to, order);
                if (left < n && left + DCI_LANES <= room) { /* the next ones fit in either */
                        float *last = from;
                        from = to;
                        to = last;
                } else if (left < n) {
                        memcpy(from, to, left * sizeof *from);
                }
                out[at[i]] = n = left;
        }
}

dci_rank dci_select(const dci_kernels *kernels, const float *values, size_t n, size_t k, float *scratch, int32_t *order)
{
        dci_rank rank = {0};
        float low = -INFINITY, high = INFINITY;
        if (n > DCI_SELECT_FEW) {
                float sample[DCI_SELECT_SAMPLE];
                for (size_t i = 0; i < DCI_SELECT_SAMPLE; i++)
                        sample[i] = values[i * n / DCI_SELECT_SAMPLE];
                dci_select_bounds(kernels, sample, DCI_SELECT_SAMPLE, n, k, order, &low, &high);
        }
        size_t below = 0, kept = kernels->keep_between(values, n, low, high, scratch, &below);
        if (k <= below || k > below + kept) { /* the sample misled: all values, then */
                below = 0;
                kept = kernels->keep_between(values, n, -INFINITY, INFINITY, scratch, &below);
        }
        rank.value = kernels->kth_smallest(scratch, kept, k - below, order);
        size_t less = dci_count_less(kernels, scratch, kept, rank.value);
        rank.n_less = below + less;
        rank.n_equal = dci_count_less(kernels, scratch, kept, nextafterf(rank.value, INFINITY)) - less;
        return rank;
}
