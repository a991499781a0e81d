/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Budgets: what counts in them, and the room that they leave for selected tokens. */
#include "core/internal.h"

#include <math.h>

#include "kv/budget.h"

size_t dci_kv_young(const dci_kv_config *c)
{
        const bool summarised = c->summary > DCI_KV_SUMMARY_KEYS || c->tail != DCI_KV_TAIL_DROP;
        return summarised && c->frozen_prompt == 0 ? c->rollback : c->window;
}

size_t dci_kv_least_budget(const dci_kv_config *c)
{
        return (dci_kv_counts_recent(c) ? c->sink + dci_kv_young(c) : dci_kv_counted(c)) + c->page_tokens;
}

uint64_t dci_kv_share_units(const dci_kv_config *c)
{
        return (uint64_t)ceil(c->budget_share * 4294967296.0);
}

/* In integers, so that a device comes to the same: n is at most 2^27. */
size_t dci_kv_budget_at(const dci_kv_config *c, size_t n)
{
        const uint64_t units = dci_kv_share_units(c);
        const size_t share = (size_t)((uint64_t)n * units >> 32) / c->page_tokens * c->page_tokens,
                     least = dci_kv_least_budget(c), some = share > least ? share : least;
        return units > 0 && some < c->budget ? some : c->budget;
}

size_t dci_kv_list_room(const dci_kv_config *c, size_t n)
{
        return dci_kv_budget_at(c, n) - dci_kv_counted(c);
}

size_t dci_kv_room(const dci_kv_config *c, size_t n, size_t n_candidates)
{
        const bool all = dci_kv_counts_recent(c) && c->frozen_prompt == 0;
        const size_t budget = dci_kv_budget_at(c, n), counted = all ? n - n_candidates : dci_kv_counted(c);
        return budget > counted ? budget - counted : 0;
}

bool dci_kv_crowded(const dci_kv_config *c, size_t n, size_t recent)
{
        return dci_kv_counts_recent(c) && recent > dci_kv_budget_at(c, n) / 2;
}

/* Tokens that do not count leave room as it is: their groups are built when they are due. */
size_t dci_kv_patience(const dci_kv_config *c, size_t n)
{
        if (!dci_kv_counts_recent(c) && c->group == DCI_KV_GROUP_CLUSTER)
                return c->cluster_every + c->rollback - 1;
        if (!dci_kv_counts_recent(c) && c->group == DCI_KV_GROUP_SEGMENT)
                return c->segment_buffer;
        return dci_kv_budget_at(c, n) / 2;
}

size_t dci_kv_max_recent(const dci_kv_config *c)
{
        if (c->frozen_prompt != 0 || c->observed_keep > 0)
                return SIZE_MAX;
        if (dci_kv_counts_recent(c))
                return c->budget - c->sink;
        if (c->group == DCI_KV_GROUP_CLUSTER)
                return c->cluster_every + c->rollback;
        /* The oldest segment, which has half of the buffer at most, is moved out once it is older than the rollback. */
        if (c->group == DCI_KV_GROUP_SEGMENT) {
                const size_t half = c->segment_buffer / 2 + c->rollback;
                return (half > c->segment_buffer ? half : c->segment_buffer) + 1;
        }
        return dci_kv_young(c) + c->page_tokens;
}

size_t dci_kv_max_attended(const dci_kv_config *c)
{
        const size_t recent = dci_kv_max_recent(c), list = c->budget - dci_kv_counted(c);
        if (recent == SIZE_MAX)
                return SIZE_MAX;
        return dci_kv_counts_recent(c) ? c->budget : c->sink + list + recent;
}
