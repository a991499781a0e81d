/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* From a filter to the slots that it admits. */
#ifndef DCI_INDEX_FILTER_H
#define DCI_INDEX_FILTER_H

#include "index/index_internal.h"

/* Slots that a filter admits. all: no filter. */
typedef struct dci_selection {
        bool all;
        bool scattered; /* slots in any order; else ascending */
        size_t n;
        int32_t *slots;
        size_t capacity;
} dci_selection;

/* The callback form is turned into a list of ids before the index is read: callbacks run with no lock held. */
typedef struct dci_admitted {
        int64_t *ids;
        size_t n, capacity;
} dci_admitted;
dci_status dci_filter_check(const dci_filter *filter);
dci_status dci_filter_test(const dci_index *index, const dci_filter *filter, dci_admitted *out);
dci_status dci_filter_select(const dci_index *index, const dci_view *view, const dci_filter *filter,
                             const dci_admitted *admitted, dci_selection *out);
/* Slots of all rows. */
dci_status dci_filter_occupied(const dci_index *index, const dci_view *view, dci_selection *out);
/* Bits by slot of a selection that lists its slots, in a view of n; NULL if memory is short. */
uint64_t *dci_selection_bits(dci_context *context, const dci_selection *selection, size_t n);
/* Slots whose bits are set, ascending; returns how many. */
size_t dci_bits_slots(const uint64_t *bits, size_t n_words, int32_t *out);
void dci_filter_free(const dci_index *index, dci_admitted *admitted, dci_selection *selection);

#endif
