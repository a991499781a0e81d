/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Budgets: what counts in them, and the room that they leave for selected tokens (docs/stages.md#the-budget). All such
 * arithmetic is here, and for plans on a device in DCI_GPU_VIEW (gpu/args/select.h). Configs are checked ones.
 */
#ifndef DCI_KV_BUDGET_H
#define DCI_KV_BUDGET_H

#include "core/internal.h"

#include "dci/kv.h"

/* Whether all recent tokens count. */
DCI_INLINE bool dci_kv_counts_recent(const dci_kv_config *c)
{
        return c->budget_counts == DCI_KV_COUNT_ALL;
}

/* Tokens that count in every plan, in addition to the selected ones; with COUNT_ALL recent tokens without a group do,
 * too. */
DCI_INLINE size_t dci_kv_counted(const dci_kv_config *c)
{
        return c->budget_counts == DCI_KV_COUNT_SELECTED ? 0
               : c->budget_counts == DCI_KV_COUNT_SINK   ? c->sink
                                                         : c->sink + c->window;
}

/* Tokens that are recent in every plan: those within the rollback have no summaries. */
size_t dci_kv_young(const dci_kv_config *c);
/* The smallest budget: a list can have a page. */
size_t dci_kv_least_budget(const dci_kv_config *c);
/* budget_share in units of 2^-32, rounded up; 0: none. */
uint64_t dci_kv_share_units(const dci_kv_config *c);
/* The budget of a plan of n tokens. */
size_t dci_kv_budget_at(const dci_kv_config *c, size_t n);
/* The longest list of any plan of n tokens, and that of one with so many candidates. */
size_t dci_kv_list_room(const dci_kv_config *c, size_t n);
size_t dci_kv_room(const dci_kv_config *c, size_t n, size_t n_candidates);
/* Whether so many recent tokens of n take more than half of the budget, so that groups are built early. */
bool dci_kv_crowded(const dci_kv_config *c, size_t n, size_t recent);
/* Recent tokens beyond which dci_kv_reserve builds groups that are due. */
size_t dci_kv_patience(const dci_kv_config *c, size_t n);
/* Upper bounds of recent tokens, and of tokens of a plan, of a sequence that is maintained between steps of one token;
 * SIZE_MAX: there is none. */
size_t dci_kv_max_recent(const dci_kv_config *c);
size_t dci_kv_max_attended(const dci_kv_config *c);

#endif
