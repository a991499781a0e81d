/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Numbers and facts that follow from the config and from lengths: what is stored per group and in which layers, how
 * many candidates a sequence of n tokens has, and when groups are due. Nothing here allocates or changes state.
 */
#ifndef DCI_KV_GEOMETRY_H
#define DCI_KV_GEOMETRY_H

#include "kv/budget.h"
#include "kv/stages/stages.h"

/* --- what a config stores ----------------------------------------------------------------------------------------- */

/* Whether groups are leaves of trees (tree/tree.h). */
DCI_INLINE bool dci_kv_has_trees(const dci_kv *kv)
{
        return kv->config.group == DCI_KV_GROUP_TREE;
}

/* Whether anything is stored per group, in chunks, clusters or trees. */
DCI_INLINE bool dci_kv_summarised(const dci_kv *kv)
{
        return kv->clustered || kv->summary_bytes + kv->tail_bytes > 0 || dci_kv_has_trees(kv);
}

/* Whether the tail is over clusters, and estimates only some of them. */
DCI_INLINE bool dci_kv_sums_of_lists(const dci_kv *kv)
{
        return kv->clustered && kv->config.tail == DCI_KV_TAIL_SUMS;
}

/* Whether tails need groups of their own. */
DCI_INLINE bool dci_kv_tailed(const dci_kv *kv)
{
        return kv->tail_bytes > 0 || dci_kv_sums_of_lists(kv);
}

/* Whether clusters are pages in a stored order; later ones are by position. */
DCI_INLINE bool dci_kv_reorders(const dci_kv *kv)
{
        return kv->config.group == DCI_KV_GROUP_REORDERED;
}

/* Whether attention reads only codes of the tokens that have codes, and no rows. */
DCI_INLINE bool dci_kv_codes_alone(const dci_kv *kv)
{
        return kv->config.select == DCI_KV_SELECT_NONE;
}

/* Whether mean keys of groups say which codes are read. */
DCI_INLINE bool dci_kv_preselects(const dci_kv *kv)
{
        return kv->config.preselect > 1.0;
}

/* Whether query heads are combined by their softmax. A single one ranks by its scores: terms far below the greatest are
 * zeros, and have no order. */
DCI_INLINE bool dci_kv_combines_by_softmax(const dci_kv *kv)
{
        return kv->config.combine == DCI_KV_COMBINE_SOFTMAX && kv->group > 1;
}

/* Whether a tail takes the terms exp(score - most) of candidates, or those of groups that a scan ranks by their means.
 * */
DCI_INLINE bool dci_kv_needs_terms(const dci_kv *kv)
{
        return kv->stages->tail.scored || (dci_kv_sums_of_lists(kv) && kv->stages->select.ranks &&
                                           kv->stages->summary.kind == DCI_KV_SUMMARY_MEAN);
}

/* Whether the end of a prompt builds nothing: its groups are built when they are asked for. */
DCI_INLINE bool dci_kv_builds_later(const dci_kv *kv)
{
        return kv->former.build == NULL;
}

/* --- sizes -------------------------------------------------------------------------------------------------------- */

/* Groups begin and end at multiples of so many candidates. */
DCI_INLINE size_t dci_kv_unit(const dci_kv *kv)
{
        return kv->clustered && !dci_kv_reorders(kv) ? 1 : kv->config.page_tokens;
}

/* The most tokens of a group by position; a cluster has at least one. */
DCI_INLINE size_t dci_kv_group_tokens(const dci_kv *kv)
{
        return kv->config.group == DCI_KV_GROUP_PAGE ? kv->config.page_tokens : 1;
}

DCI_INLINE size_t dci_kv_blocks_of(const dci_kv *kv, size_t n_tokens)
{
        return (n_tokens + kv->config.page_tokens - 1) / kv->config.page_tokens;
}

/* The most candidates that a list can hold. */
DCI_INLINE size_t dci_kv_max_room(const dci_kv *kv)
{
        return kv->config.budget - dci_kv_counted(&kv->config);
}

/* How many of n groups are estimated in addition to those that are chosen; n: all. */
DCI_INLINE size_t dci_kv_estimated(const dci_kv *kv, size_t n)
{
        return kv->config.estimate_share >= 1.0 ? n : (size_t)(kv->config.estimate_share * (double)n + 0.5);
}

/* Slots of a list in a plan. */
size_t dci_kv_stride(const dci_kv *kv);

/* --- layers and candidates ---------------------------------------------------------------------------------------- */

/* The layer whose lists this one uses: itself, or with ANCHOR the layer before it that searches. */
size_t dci_kv_anchor_of(const dci_kv *kv, size_t layer);
/* Of the first n_candidates, those that n tokens leave: all, or whole pages. */
size_t dci_kv_whole_within(const dci_kv *kv, size_t n_candidates, size_t n);
/* Whether this layer has groups at all. */
bool dci_kv_groups(const dci_kv *kv, size_t layer);
/* Candidates that a sequence of n tokens may have: none younger than the rollback, whole units. */
size_t dci_kv_may_group(const dci_kv *kv, size_t n);
/* Candidates of a prompt. */
size_t dci_kv_prompt_candidates(const dci_kv *kv, size_t n_prompt);
/* Candidates of a layer whose prompt has ended, once its work is done: the same number before and after. */
size_t dci_kv_will_group(const dci_kv *kv, const dci_kv_layer *layer);
/* Whether some layer's prompt is still to be built (former.h). */
bool dci_kv_some_prompt_due(const dci_kv *kv, const dci_kv_sequence *sequence);
/* Whether a step of n tokens builds groups that would otherwise be due later. */
bool dci_kv_pending(const dci_kv *kv, const dci_kv_sequence *sequence, size_t n);

#endif
