/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The kinds of indexes, a row each. */
#include "index/index_internal.h"

static const dci_kind kinds[] = {
        [DCI_KIND_FLAT] = {.add = dci_rows_add, .remove = dci_rows_remove, .clear = dci_rows_remove_all},
        [DCI_KIND_PDCI] = {.add = dci_rows_add,
                           .remove = dci_rows_remove,
                           .clear = dci_rows_remove_all,
                           .effort = dci_pdci_budget,
                           .begin = dci_pdci_begin,
                           .end = dci_pdci_end,
                           .shares = dci_pdci_shares_of},
        [DCI_KIND_MDCI] = {.create = dci_mdci_create,
                           .destroy = dci_mdci_destroy,
                           .add = dci_mdci_add,
                           .remove = dci_mdci_remove,
                           .clear = dci_mdci_clear,
                           .effort = dci_mdci_effort,
                           .begin = dci_mdci_begin,
                           .end = dci_mdci_end,
                           .shares = dci_mdci_shares_of,
                           .unites = true},
};

const dci_kind *dci_kind_of(dci_index_kind kind)
{
        return &kinds[kind];
}
