/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Who may read and who may change an index. Readers hold the read lock while they search. Writers are serialised; only the steps that no
 * search may see half done hold the index exclusively.
 */
#ifndef DCI_INDEX_ACCESS_H
#define DCI_INDEX_ACCESS_H

#include "index/index_internal.h"

void dci_index_read_begin(const dci_index *index);
void dci_index_read_end(const dci_index *index);
void dci_index_exclusive_begin(dci_index *index);
void dci_index_exclusive_end(dci_index *index);
void dci_index_free_retired(dci_index *index);
/* Frees retired memory if no reader is there right now. Called with `writers` held. */
void dci_index_collect(dci_index *index);

/* Refuses NULL and calls from inside a callback of the same object. */
dci_status dci_index_check_call(const dci_index *index);

/* The same for calls that change rows: refuses a mapped index, too. */
dci_status dci_index_check_writer(const dci_index *index);

/* n rows of elements of so many bytes, ld apart, of the index's dimension: within the address space. `what` names them. */
dci_status dci_index_check_matrix(const dci_index *index, const char *what, size_t n, size_t ld, size_t element);

/* A new map of all rows of a view with room for n_more, all ids below `end`; NULL with the error recorded. */
dci_idmap *dci_index_map_of(const dci_index *index, const dci_view *view, size_t n_more, int64_t end);

/* The slot of an id in a view, or -1. */
int32_t dci_index_slot(const dci_index *index, const dci_view *view, int64_t id);

#endif
