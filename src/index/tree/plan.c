/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What insertions and removals share: what moves where, and the memory for it. */
#include "core/internal.h"

#include <stdlib.h>
#include <string.h>

#include "index/tree/plan.h"

void dci_tree_plan_init(dci_tree_plan *plan, dci_tree *tree, dci_rows *rows)
{
        memset(plan, 0, sizeof *plan);
        plan->tree = tree;
        plan->rows = rows;
        for (size_t l = 0; l < tree->n_levels; l++)
                plan->n_nodes[l] = tree->levels[l].n;
}

bool dci_tree_plan_move(dci_tree_plan *plan, dci_tree_move move)
{
        dci_context *context = plan->tree->context;
        if (plan->n_moves == plan->moves_capacity) {
                const size_t capacity = plan->moves_capacity * 2 + 64;
                dci_tree_move *moves = dci_alloc(context, capacity, sizeof *moves);
                if (moves == NULL)
                        return false;
                if (plan->n_moves > 0)
                        memcpy(moves, plan->moves, plan->n_moves * sizeof *moves);
                dci_free(context, plan->moves, plan->moves_capacity, sizeof *moves);
                plan->moves = moves;
                plan->moves_capacity = capacity;
        }
        plan->moves[plan->n_moves++] = move;
        return true;
}

static int compare_moves(const void *a, const void *b)
{
        const dci_tree_move *x = a, *y = b;
        if (x->level != y->level)
                return x->level < y->level ? -1 : 1;
        if (x->id != y->id)
                return x->id < y->id ? -1 : 1;
        if (x->gain != y->gain)
                return x->gain > y->gain ? -1 : 1;
        return (x->node > y->node) - (x->node < y->node);
}

void dci_tree_plan_settle(dci_tree_plan *plan)
{
        size_t kept = 0;
        if (plan->n_moves == 0)
                return;
        qsort(plan->moves, plan->n_moves, sizeof *plan->moves, compare_moves);
        for (size_t i = 0; i < plan->n_moves; i++)
                if (i == 0 || plan->moves[i].id != plan->moves[i - 1].id ||
                    plan->moves[i].level != plan->moves[i - 1].level)
                        plan->moves[kept++] = plan->moves[i];
        plan->n_moves = kept;
}

static float dot(const dci_tree *tree, const float *a, const float *b, size_t n)
{
        float product;
        tree->context->kernels->score_strided[DCI_F32 - 1][DCI_FORM_DOT](a, b, n * sizeof *a, 1, n, &product);
        return product;
}

void dci_tree_plan_near_new(const dci_tree_plan *plan, size_t l, const float *point, float *score, int32_t *node)
{
        const dci_tree *tree = plan->tree;
        const size_t wide = tree->dim + 1;
        int32_t number = (int32_t)tree->levels[l].n;
        for (size_t i = 0; i < plan->source->n; i++) {
                const float *centre = plan->points + i * wide;
                if (plan->promoted[i] <= l)
                        continue;
                const float here = dot(tree, point, centre, wide) - 0.5f * dot(tree, centre, centre, wide);
                if (here > *score) {
                        *score = here;
                        *node = number;
                }
                number++;
        }
}

/* Pages that a cell of so many rows needs more when `coming` join it. */
static size_t pages_more(const dci_tree *tree, size_t n_rows, size_t coming)
{
        const size_t page_rows = tree->page_rows;
        return (n_rows + coming + page_rows - 1) / page_rows - (n_rows + page_rows - 1) / page_rows;
}

static size_t pages_coming(const dci_tree_plan *plan)
{
        const dci_level *level = &plan->tree->levels[0];
        size_t n = 0;
        for (size_t i = 0; i < plan->n_nodes[0]; i++)
                if (plan->coming[0][i] > 0)
                        n += pages_more(plan->tree, i < level->n ? level->cells[i].n_rows : 0, plan->coming[0][i]);
        return n;
}

static void count_coming(dci_tree_plan *plan)
{
        for (size_t i = 0; i < plan->n_moves; i++)
                plan->coming[plan->moves[i].level][plan->moves[i].node]++;
        for (size_t i = 0; plan->source != NULL && i < plan->source->n; i++) {
                plan->coming[0][plan->nodes[i]]++;
                for (size_t l = 1; l < plan->tree->n_levels && plan->promoted[i] >= l; l++)
                        plan->coming[l][plan->parents[i * DCI_MAX_LEVELS + l - 1]]++;
        }
}

dci_status dci_tree_plan_reserve(dci_tree_plan *plan, dci_retired **retired)
{
        const dci_tree *tree = plan->tree;
        dci_context *context = tree->context;
        for (size_t l = 0; l < tree->n_levels; l++) {
                const dci_level *level = &tree->levels[l];
                plan->coming[l] = dci_calloc(context, plan->n_nodes[l], sizeof *plan->coming[l]);
                plan->dirty[l] = dci_calloc(context, plan->n_nodes[l], sizeof *plan->dirty[l]);
                if (plan->coming[l] == NULL || plan->dirty[l] == NULL)
                        return DCI_ERR_MEMORY;
                if (plan->n_nodes[l] > level->capacity &&
                    !dci_level_grow(tree, level, plan->n_nodes[l], &plan->grown[l]))
                        return DCI_ERR_MEMORY;
        }
        count_coming(plan);
        const size_t coming = pages_coming(plan);
        const size_t pages = tree->n_pages + (coming > tree->n_free ? coming - tree->n_free : 0);
        if (pages > DCI_MAX_ROWS / tree->page_rows)
                return dci_fail(DCI_ERR_LIMIT, "%zu pages of %zu rows exceed the %zu slots of one index", pages,
                                tree->page_rows, DCI_MAX_ROWS);
        return dci_rows_reserve(plan->rows, pages * tree->page_rows, retired);
}

static bool reserve_items(const dci_tree_plan *plan)
{
        const dci_tree *tree = plan->tree;
        for (size_t l = 0; l < tree->n_levels; l++) {
                for (size_t i = 0; i < plan->n_nodes[l]; i++) {
                        dci_cell *cell = &tree->levels[l].cells[i];
                        size_t more = plan->coming[l][i];
                        if (more > 0 && l == 0)
                                more = pages_more(tree, cell->n_rows, more);
                        if (more > 0 && !dci_cell_reserve(tree, cell, more))
                                return false;
                }
        }
        return true;
}

dci_status dci_tree_plan_adopt(dci_tree_plan *plan)
{
        dci_tree *tree = plan->tree;
        for (size_t l = 0; l < tree->n_levels; l++) {
                if (plan->grown[l].capacity == 0)
                        continue;
                dci_level_forget(tree, &tree->levels[l]);
                tree->levels[l] = plan->grown[l];
                plan->grown[l] = (dci_level){0};
        }
        if (dci_tree_reserve_pages(tree, pages_coming(plan)) && reserve_items(plan))
                return DCI_OK;
        for (size_t l = 0; l < tree->n_levels; l++) { /* cells of nodes that will not come */
                for (size_t i = tree->levels[l].n; i < plan->n_nodes[l]; i++) {
                        dci_cell *cell = &tree->levels[l].cells[i];
                        dci_free(tree->context, cell->items, cell->capacity, sizeof *cell->items);
                        *cell = (dci_cell){0};
                }
        }
        return DCI_ERR_MEMORY;
}

void dci_tree_plan_carry_out(dci_tree_plan *plan, const dci_tree_store *store)
{
        dci_tree *tree = plan->tree;
        for (size_t i = 0; i < plan->n_moves; i++) {
                const dci_tree_move *move = &plan->moves[i];
                if (move->level == 0) {
                        plan->dirty[0][dci_tree_rehome(tree, store, move->id, (size_t)move->node)] = 1;
                } else {
                        const int32_t old = tree->levels[move->level - 1].parents[move->id];
                        if (old >= 0)
                                plan->dirty[move->level][old] = 1;
                        dci_tree_link(tree, move->level - 1, (size_t)move->id, move->node);
                }
                plan->dirty[move->level][move->node] = 1;
        }
}

void dci_tree_plan_free(dci_tree_plan *plan)
{
        const dci_tree *tree = plan->tree;
        dci_context *context = tree->context;
        const size_t n = plan->source == NULL ? 0 : plan->source->n;
        for (size_t l = 0; l < DCI_MAX_LEVELS; l++) {
                dci_level_forget(tree, &plan->grown[l]);
                dci_free(context, plan->coming[l], plan->n_nodes[l], sizeof *plan->coming[l]);
                dci_free(context, plan->dirty[l], plan->n_nodes[l], sizeof *plan->dirty[l]);
                dci_free(context, plan->gone[l], plan->n_nodes[l], sizeof *plan->gone[l]);
        }
        dci_free(context, plan->moves, plan->moves_capacity, sizeof *plan->moves);
        dci_free(context, plan->scratch, tree->dim + 1, sizeof *plan->scratch);
        dci_free(context, plan->new_points, plan->new_nearest.n * (tree->dim + 1), sizeof *plan->new_points);
        dci_free(context, plan->new_memory, dci_nearest_bytes(context, plan->new_nearest.n, tree->n_coords), 1);
        dci_free(context, plan->points, n * (tree->dim + 1), sizeof *plan->points);
        dci_free(context, plan->promoted, n, sizeof *plan->promoted);
        dci_free(context, plan->nodes, n, sizeof *plan->nodes);
        dci_free(context, plan->parents, n * DCI_MAX_LEVELS, sizeof *plan->parents);
}
