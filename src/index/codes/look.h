/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* A quick look at rows, and what a plan for their codes asks of them. */
#ifndef DCI_INDEX_CODES_LOOK_H
#define DCI_INDEX_CODES_LOOK_H

#include <math.h>

#include "index/codes/rows.h"

/* Queries are coded for each centre, so more than one must leave so much less of the rows' energy. */
#define DCI_PLAN_CENTRES_GAIN 4.0
/* What directions must leave at most, or take each at least. */
#define DCI_PLAN_DOMINANT 0.25
/* IP: the same for what the rows' mean leaves, which is a direction that queries are taken to have in common. */
#define DCI_PLAN_DOMINANT_MEAN 0.0625

/* The least share of what is left for which a direction is kept. */
DCI_INLINE double dci_plan_least_share(size_t dim)
{
        return fmax(1.0 - exp2(-64.0 / (double)dim), DCI_PLAN_DOMINANT);
}

double dci_codes_distance2(const float *a, const float *b, size_t n);
/* The square of the rest of a row by the frame that it has; without one, by the nearest; without any, infinity. rest: dim. */
double dci_codes_present_square(const dci_rows *rows, const dci_chunk *chunk, size_t offset, float *rest);
/* Whether a quick look at a few rows says that a plan could be worth it. The mean square of the rests of these, by the frames that
 * they have. */
dci_status dci_codes_plan_wanted(const dci_rows *rows, bool *out_wanted, double *out_present);

#endif
