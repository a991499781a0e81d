/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/**
 * @file check.h
 * Checks of whole objects: an index, a KV cache. For hosts that suspect their memory, and for tests. They change
 * nothing. docs/reliability.md says what is checked, and how the checks are tested.
 */
#ifndef DCI_CHECK_H
#define DCI_CHECK_H

#include "dci/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Those of index.h and kv.h: this header needs neither. */
struct dci_index;
struct dci_kv;

/**
 * Levels of checks. STRUCTURE: everything that is counted, listed or linked, for consistency. FULL: that, and
 * everything that was computed from rows is computed again and compared.
 */
enum { DCI_CHECK_STRUCTURE = 1, DCI_CHECK_FULL = 2 };

/**
 * Checks an index against everything that must hold for it; the error's sentence says what does not hold, and where:
 * for a host that suspects its memory, a file from another source, or this library. Nothing is changed.
 *
 * level     DCI_CHECK_STRUCTURE: chunks hold the rows; ids and their map agree both ways; c^2 is one that the rows can
 *           have; projections, scales and centres of codes are possible numbers; MDCI: every row in one cell and page,
 *           every promoted row a node, lists and counts of pages, nodes and free pages complete, every node below the
 *           top with one parent that lists it.
 *           DCI_CHECK_FULL: also that rows are finite; norms, projections and codes are those that the rows give, and
 *           directions and rotations those that the seed gives; MDCI: nodes are equal to their rows, reach and mean of
 *           every cell are those of its rows, and of up to 1,024 rows (and nodes) of each level, evenly spread, at
 *           least half belong to the nearest node (where 16 or more are tested: this is evidence that cells hold near
 *           rows, no proof).
 * progress  NULL, or reports in slots; FULL only.
 *
 * A loaded or mapped index may have norms, projections and codes of a machine that rounds otherwise, so there those may
 * differ by rounding; in an index that was made here they agree to the bit.
 *
 * Errors: DCI_ERR_FORMAT for what is found, DCI_ERR_INVALID, DCI_ERR_MEMORY, DCI_ERR_CANCELLED.
 * Thread rule: concurrently with searches; adds, removes, reserves, saves and memory reports wait until it is over.
 * Cost: STRUCTURE O(slots + projections), and the map of ids; FULL O(rows dim (1 + simple indices)), with codes as
 * adding the rows again; MDCI up to 1,024 x nodes x dim for each level. Memory: STRUCTURE a bit per slot; FULL a row
 * and some KB per thread, with codes some hundred bytes x dim per thread; MDCI 4 KB x dim, and once more what products
 * of its largest level read.
 */
DCI_API dci_status dci_index_check(const struct dci_index *index, int32_t level, const dci_progress *progress);

/**
 * Checks a KV cache against everything that must hold for it; the error's sentence says what does not hold, and where:
 * for a host that suspects its memory, or this library. Nothing is changed; work of prompts is waited for.
 *
 * level     DCI_CHECK_STRUCTURE: every block is used by as many sequences as it is counted for, or is on the free list,
 *           which is complete; sequences have blocks for their tokens, each once; layers have the tokens of whole steps
 *           and of the one that is open; groups have every candidate once, and are where the groups before them end;
 *           trees have every candidate in one page of one cell, and the promoted ones as nodes; tokens that were
 *           selected once, lists that a schedule stores, boundaries and stored queries are possible ones; data that
 *           forks share are counted as often as they are used, and all summaries together take the bytes that
 *           dci_kv_get_info says.
 *           DCI_CHECK_FULL: also that keys and values are finite; that summaries, codes, tails and means are those that
 *           the rows give, to the bit; that rotations are those of the seed and learned transforms numbers; that trees'
 *           nodes are lifted as their keys are, and of up to 256 candidates at least half belong to the nearest node.
 *           Clusters are not computed again.
 * progress  NULL, or reports in (sequence, layer, kv head); FULL only.
 *
 * Of a cache whose rows are on a device (dci_gpu_kv_host), blocks, sequences, counts and lists are checked at either
 * level.
 *
 * Errors: DCI_ERR_FORMAT for what is found, DCI_ERR_INVALID, DCI_ERR_MEMORY, DCI_ERR_CANCELLED.
 * Cost: STRUCTURE O(blocks + candidates per layer and kv head); FULL as building all summaries again, forks' shared
 * ones once for each. Memory, which does not count against max_bytes: STRUCTURE some bytes per block and bit per
 * candidate; FULL per thread the scratch of building, and a copy of the largest chunk, batch or tree.
 */
DCI_API dci_status dci_kv_check(struct dci_kv *kv, int32_t level, const dci_progress *progress);

#ifdef __cplusplus
}
#endif
#endif
