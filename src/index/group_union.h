/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The union of what the queries of a group find. */
#ifndef DCI_INDEX_GROUP_UNION_H
#define DCI_INDEX_GROUP_UNION_H

#include "index/candidates.h"

/* For each group of the candidates: the first k distinct rows of its queries' lists, interleaved by rank. */
dci_status dci_group_unite(dci_candidates *candidates, size_t k, int64_t *out_ids, float *out_scores,
                           dci_search_stats *stats);

#endif
