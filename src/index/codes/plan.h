/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Which centres and kept directions suit the rows of an index, from a sample of them. */
#ifndef DCI_INDEX_CODES_PLAN_H
#define DCI_INDEX_CODES_PLAN_H

#include "index/codes/look.h"

#define DCI_PLAN_CENTRES ((size_t)64)

typedef struct dci_codes_plan {
        size_t n_centres, n_kept;
        float *centres, *kept;            /* DCI_PLAN_CENTRES x dim, DCI_MAX_KEPT x dim; one allocation */
        float energies[DCI_PLAN_CENTRES]; /* mean square of the rest of a row */
        double energy,
                present; /* of all rows by this plan, and by the frames that they have; present: infinite without */
        bool misses;     /* the frames lack a direction that the plan needs, whatever the energy */
} dci_codes_plan;

/* n: live rows, at least one. */
dci_status dci_codes_plan_make(const dci_rows *rows, size_t n, size_t max_centres, dci_codes_plan *out);
void dci_codes_plan_free(const dci_rows *rows, dci_codes_plan *plan);
#endif
