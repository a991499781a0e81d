/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Replacement: rows leave and others come in one version. New rows are placed among the nodes that stay and the new ones, and so is
 * what was beneath the nodes that go: the node of a promoted row whose position changes is one that goes and one that comes.
 */
#include "core/internal.h"

#include "index/tree/plan.h"

/* Nodes that go are infinitely far for products in tiles, or again where they are. Only writers read these offsets. */
static void set_closed(dci_tree_plan *plan, bool closed)
{
        for (size_t l = 0; l < plan->tree->n_levels; l++) {
                dci_level *level = &plan->tree->levels[l];
                for (size_t node = 0; node < level->n; node++) {
                        if (plan->gone[l][node] == 0)
                                continue;
                        if (closed)
                                dci_nearest_close(&level->nearest, node);
                        else
                                dci_nearest_put(&level->nearest, node);
                }
        }
}

/* Every level keeps a node, and the node that chance did not draw stays. */
static bool keeps_nodes(const dci_tree_plan *plan)
{
        for (size_t l = 0; l < plan->tree->n_levels; l++) {
                size_t n_gone = 0;
                for (size_t node = 0; node < plan->tree->levels[l].n; node++)
                        n_gone += plan->gone[l][node];
                if (n_gone == plan->tree->levels[l].n)
                        return false;
        }
        return true;
}

dci_status dci_tree_plan_replace(dci_tree *tree, dci_rows *rows, const dci_tree_source *source,
                                 const dci_idmap *leaving, size_t n, const int64_t *ids, dci_tree_plan *out,
                                 bool *out_alone)
{
        *out_alone = false;
        dci_tree_plan_init(out, tree, rows);
        bool whole = dci_tree_plan_begin_insert(out, source) && dci_tree_plan_begin_remove(out, leaving, n, ids);
        if (whole && !keeps_nodes(out)) {
                *out_alone = true;
                return DCI_OK;
        }
        if (whole) {
                set_closed(out, true);
                whole = dci_tree_plan_place(out);
                set_closed(out, false);
        }
        whole = whole && dci_tree_plan_dissolve(out, out_alone);
        if (whole)
                dci_tree_plan_settle(out);
        else
                dci_tree_plan_free(out);
        return whole ? DCI_OK : DCI_ERR_MEMORY;
}

void dci_tree_replace(dci_tree_plan *plan, const dci_tree_store *store, int32_t *out_slots)
{
        plan->tree->version++;
        dci_tree_plan_append_nodes(plan);
        dci_tree_plan_carry_out(plan, store);
        dci_tree_plan_detach(plan, store);
        dci_tree_plan_attach(plan, out_slots);
        dci_tree_plan_remove_nodes(plan);
}
