/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Insertion (IceCache, algorithm 2): draw the promotions, find the nearest node, join its cell. A promoted row becomes a node,
 * and what is nearer to it than to its present node moves to it, as a bulk build would have had it: the rows of the nearest
 * cells and of those that reach far are compared, one product each.
 */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "index/tree/near.h"
#include "index/tree/plan.h"

/* Points that one task places; from MANY on, tiles of products find the nearest of all nodes. */
#define TASK_POINTS 64
#define MANY 4

static float dot(const dci_tree *tree, const float *a, const float *b, size_t n)
{
        float product;
        tree->context->kernels->score_strided[DCI_F32 - 1][DCI_FORM_DOT](a, b, n * sizeof *a, 1, n, &product);
        return product;
}

static bool allocate(dci_tree_plan *plan)
{
        dci_context *context = plan->tree->context;
        const size_t n = plan->source->n, wide = plan->tree->dim + 1;
        plan->points = dci_alloc(context, n * wide, sizeof *plan->points);
        plan->promoted = dci_alloc(context, n, sizeof *plan->promoted);
        plan->nodes = dci_alloc(context, n, sizeof *plan->nodes);
        plan->parents = dci_alloc(context, n * DCI_MAX_LEVELS, sizeof *plan->parents);
        plan->scratch = dci_alloc(context, wide, sizeof *plan->scratch);
        return plan->points != NULL && plan->promoted != NULL && plan->nodes != NULL && plan->parents != NULL &&
               plan->scratch != NULL;
}

/* --- the nearest node of each new row -------------------------------------------------------------------------------------- */

/* Once for the nodes there are, once for the new ones. */
typedef struct placing {
        dci_tree_plan *plan;
        const dci_nearest *nearest; /* NULL: the tree is asked */
        int32_t first;              /* number of its first centre */
        float *scores;              /* by new row: the best so far */
        size_t worker_bytes;
        unsigned char *scratch;
} placing;

static void take(const placing *p, size_t i, float score, int32_t node)
{
        if (score > p->scores[i]) {
                p->scores[i] = score;
                p->plan->nodes[i] = node;
        }
}

static void place_task(void *arg, size_t task, size_t worker)
{
        const placing *p = arg;
        const dci_tree_plan *plan = p->plan;
        const size_t n = plan->source->n, wide = plan->tree->dim + 1, first = task * TASK_POINTS;
        const size_t end = n - first < TASK_POINTS ? n : first + TASK_POINTS;
        void *scratch = p->scratch + worker * p->worker_bytes;
        if (p->nearest != NULL) {
                int32_t found[TASK_POINTS];
                float scores[TASK_POINTS];
                dci_nearest_find(p->nearest, plan->points + first * wide, wide, end - first, scratch, found, scores);
                for (size_t i = first; i < end; i++)
                        take(p, i, scores[i - first], p->first + found[i - first]);
                return;
        }
        for (size_t i = first; i < end; i += DCI_MANY_QUERIES) {
                dci_near near[DCI_MANY_QUERIES];
                size_t n_near[DCI_MANY_QUERIES];
                const size_t here = end - i < DCI_MANY_QUERIES ? end - i : DCI_MANY_QUERIES;
                dci_tree_near(plan->tree, 0, plan->points + i * wide, here, 1, plan->gone[0], scratch, near, n_near);
                for (size_t j = 0; j < here; j++)
                        take(p, i + j, near[j].score, near[j].node);
        }
}

/* Among some centres, or in the tree if there are none. */
static bool place(placing *p, const dci_nearest *nearest)
{
        const dci_tree_plan *plan = p->plan;
        dci_context *context = plan->tree->context;
        const size_t wide = plan->tree->dim + 1, n = plan->source->n, n_tasks = (n + TASK_POINTS - 1) / TASK_POINTS;
        const size_t work = n * wide * (nearest != NULL ? nearest->n / 16 + 1 : plan->tree->top_nodes);
        const size_t n_workers = dci_workers_for(context, n_tasks, work);
        p->nearest = nearest;
        p->worker_bytes =
                nearest != NULL ? dci_lines(dci_nearest_scratch_bytes(context, nearest->dim)) : dci_tree_near_bytes();
        p->scratch = dci_alloc(context, n_workers, p->worker_bytes);
        bool whole = p->scratch != NULL;
        if (whole) {
                dci_region region = {context, n_tasks, n_workers, place_task, p, NULL, n, NULL};
                whole = dci_parallel(&region) == DCI_OK;
        }
        dci_free(context, p->scratch, n_workers, p->worker_bytes);
        p->scratch = NULL; /* it is called twice */
        p->nearest = NULL;
        return whole;
}

/* Among those that come: the points of the promoted rows. */
static bool place_among_new(placing *p, size_t n_new)
{
        dci_tree_plan *plan = p->plan;
        const dci_tree *tree = plan->tree;
        dci_context *context = tree->context;
        const size_t wide = tree->dim + 1;
        plan->new_nearest.n = n_new; /* what there is of these goes with the plan */
        plan->new_points = dci_alloc(context, n_new * wide, sizeof *plan->new_points);
        plan->new_memory = dci_alloc(context, dci_nearest_bytes(context, n_new, tree->n_coords), 1);
        if (plan->new_points == NULL || plan->new_memory == NULL)
                return false;
        for (size_t i = 0, j = 0; i < plan->source->n; i++)
                if (plan->promoted[i] > 0)
                        memcpy(plan->new_points + j++ * wide, plan->points + i * wide, wide * sizeof *plan->points);
        dci_nearest_prepare(context, plan->new_points, wide, n_new, tree->n_coords, plan->new_memory,
                            &plan->new_nearest);
        p->first = (int32_t)tree->levels[0].n;
        return place(p, &plan->new_nearest);
}

static bool place_all(dci_tree_plan *plan)
{
        const dci_tree *tree = plan->tree;
        const dci_level *level = &tree->levels[0];
        const size_t n = plan->source->n, n_new = plan->n_nodes[0] - level->n;
        placing p = {.plan = plan, .scores = dci_alloc(tree->context, n, sizeof *p.scores)};
        bool whole = p.scores != NULL;
        for (size_t i = 0; whole && i < n; i++)
                p.scores[i] = -INFINITY;
        whole = whole && place(&p, n >= MANY && tree->n_levels == 1 ? &level->nearest : NULL);
        whole = whole && (n_new == 0 || place_among_new(&p, n_new));
        int32_t next = (int32_t)level->n;
        for (size_t i = 0; whole && i < n; i++) /* a node's row is its own, even if an equal one was there before */
                if (plan->promoted[i] > 0)
                        plan->nodes[i] = next++;
        dci_free(tree->context, p.scores, n, sizeof *p.scores);
        return whole;
}

/* --- what moves to new nodes ------------------------------------------------------------------------------------------------- */

/* Rows of one cell that are nearer to the new node than to their own: x . (new - own) > (|new|^2 - |own|^2) / 2. */
static bool draw_rows(dci_tree_plan *plan, const float *point, int32_t node, int32_t own)
{
        const dci_tree *tree = plan->tree;
        const size_t dim = tree->dim, wide = dim + 1;
        const dci_level *level = &tree->levels[0];
        const dci_cell *cell = &level->cells[own];
        const dci_view view = dci_rows_view(plan->rows);
        const float *centre = level->points + (size_t)own * wide;
        float *difference = plan->scratch;
        for (size_t p = 0; p < wide; p++)
                difference[p] = point[p] - centre[p];
        const float bound = 0.5f * dot(tree, point, point, wide) - level->nearest.offsets[own] +
                            dot(tree, tree->mean, difference, wide);
        for (uint32_t i = 0; i < cell->n; i++) {
                const size_t here = dci_tree_page_fill(tree, cell, i);
                const size_t first = (size_t)cell->items[i] * tree->page_rows;
                const void *pointers[DCI_MAX_PAGE_ROWS];
                float products[DCI_MAX_PAGE_ROWS], norms[DCI_MAX_PAGE_ROWS] = {0};
                dci_view_pointers(&view, first, NULL, here, pointers);
                tree->context->kernels->score_rows[plan->rows->dtype - 1][DCI_FORM_DOT](difference, pointers, here, dim,
                                                                                        products);
                if (plan->rows->with_norms)
                        dci_view_norms(&view, first, NULL, here, norms);
                for (size_t r = 0; r < here; r++) {
                        float x = products[r];
                        if (tree->metric == DCI_METRIC_COSINE)
                                x *= norms[r];
                        else if (tree->metric == DCI_METRIC_IP)
                                x += dci_tree_lift(tree, norms[r]) * difference[dim];
                        const dci_tree_move move = {dci_view_id(&view, (int32_t)(first + r)), x - bound, node, 0};
                        const bool stays = plan->leaving_set == NULL || dci_idmap_find(plan->leaving_set, move.id) < 0;
                        if (x > bound && stays && !dci_tree_plan_move(plan, move))
                                return false;
                }
        }
        return true;
}

/* The same for the nodes beneath a node of a higher level. */
static bool draw_nodes(dci_tree_plan *plan, size_t l, const float *point, int32_t node, int32_t own)
{
        const dci_tree *tree = plan->tree;
        const size_t wide = tree->dim + 1;
        const dci_cell *cell = &tree->levels[l].cells[own];
        const float *centre = tree->levels[l].points + (size_t)own * wide;
        const float offset = 0.5f * dot(tree, point, point, wide);
        for (uint32_t i = 0; i < cell->n; i++) {
                const float *child = tree->levels[l - 1].points + (size_t)cell->items[i] * wide;
                const float gain = dot(tree, child, point, wide) - offset -
                                   (dot(tree, child, centre, wide) - tree->levels[l].nearest.offsets[own]);
                const dci_tree_move move = {cell->items[i], gain, node, (uint32_t)l};
                const bool stays = plan->gone[l - 1] == NULL || plan->gone[l - 1][move.id] == 0;
                if (gain > 0.0f && stays && !dci_tree_plan_move(plan, move))
                        return false;
        }
        return true;
}

static bool draw(dci_tree_plan *plan, size_t l, const float *point, int32_t node, void *scratch)
{
        int32_t around[DCI_TREE_AROUND];
        const size_t n = dci_tree_around(plan->tree, l, point, scratch, around);
        for (size_t i = 0; i < n; i++) /* what is beneath nodes that go is placed in any case */
                if ((plan->gone[l] == NULL || plan->gone[l][around[i]] == 0) &&
                    !(l == 0 ? draw_rows(plan, point, node, around[i]) : draw_nodes(plan, l, point, node, around[i])))
                        return false;
        return true;
}

/* The node above new node `node` of level l: the row's own if it is promoted further, else the nearest, new ones included. */
static int32_t parent_of(const dci_tree_plan *plan, size_t i, size_t l, const int32_t *own, void *scratch)
{
        const dci_tree *tree = plan->tree;
        const size_t wide = tree->dim + 1;
        const float *point = plan->points + i * wide;
        dci_near near;
        size_t n;
        if (l + 1 == tree->n_levels)
                return -1;
        if (plan->promoted[i] > l + 1)
                return own[l + 1];
        dci_tree_near(tree, l + 1, point, 1, 1, plan->gone[l + 1], scratch, &near, &n);
        dci_tree_plan_near_new(plan, l + 1, point, &near.score, &near.node);
        return near.node;
}

/* Parents and moves of the nodes that come. */
static bool place_nodes(dci_tree_plan *plan)
{
        const dci_tree *tree = plan->tree;
        void *scratch = dci_alloc(tree->context, dci_tree_near_bytes(), 1);
        int32_t next[DCI_MAX_LEVELS] = {0}, own[DCI_MAX_LEVELS] = {0};
        bool whole = scratch != NULL;
        for (size_t l = 0; l < tree->n_levels; l++)
                next[l] = (int32_t)tree->levels[l].n;
        for (size_t i = 0; whole && i < plan->source->n; i++) {
                for (size_t l = 0; l < plan->promoted[i]; l++)
                        own[l] = next[l]++;
                for (size_t l = 0; whole && l < plan->promoted[i]; l++) {
                        plan->parents[i * DCI_MAX_LEVELS + l] = parent_of(plan, i, l, own, scratch);
                        whole = draw(plan, l, plan->points + i * (tree->dim + 1), own[l], scratch);
                }
        }
        dci_free(tree->context, scratch, dci_tree_near_bytes(), 1);
        return whole;
}

bool dci_tree_plan_begin_insert(dci_tree_plan *plan, const dci_tree_source *source)
{
        const dci_tree *tree = plan->tree;
        plan->source = source;
        if (!allocate(plan))
                return false;
        for (size_t i = 0; i < source->n; i++) {
                const size_t promotions = dci_tree_promotions(tree, source->ids[i]);
                plan->promoted[i] = (uint8_t)(promotions < tree->n_levels ? promotions : tree->n_levels);
                for (size_t l = 0; l < plan->promoted[i]; l++)
                        plan->n_nodes[l]++;
                dci_tree_source_point(tree, source, i, plan->points + i * (tree->dim + 1));
        }
        return true;
}

bool dci_tree_plan_place(dci_tree_plan *plan)
{
        return place_all(plan) && place_nodes(plan);
}

dci_status dci_tree_plan_insert(dci_tree *tree, dci_rows *rows, const dci_tree_source *source, dci_tree_plan *out)
{
        dci_tree_plan_init(out, tree, rows);
        const bool whole = dci_tree_plan_begin_insert(out, source) && dci_tree_plan_place(out);
        if (whole)
                dci_tree_plan_settle(out);
        else
                dci_tree_plan_free(out);
        return whole ? DCI_OK : DCI_ERR_MEMORY;
}

/* --- carried out ------------------------------------------------------------------------------------------------------------ */

void dci_tree_plan_append_nodes(dci_tree_plan *plan)
{
        dci_tree *tree = plan->tree;
        const size_t n = plan->source->n;
        for (size_t l = tree->n_levels; l-- > 0;) { /* from above: parents first */
                for (size_t i = 0; i < n; i++) {
                        if (plan->promoted[i] <= l)
                                continue;
                        const size_t at =
                                dci_level_append(tree, l, plan->source->ids[i], plan->points + i * (tree->dim + 1));
                        dci_tree_link(tree, l, at, plan->parents[i * DCI_MAX_LEVELS + l]);
                        plan->dirty[l][at] = 1;
                }
        }
}

void dci_tree_plan_attach(dci_tree_plan *plan, int32_t *out_slots)
{
        for (size_t i = 0; i < plan->source->n; i++) {
                out_slots[i] = dci_tree_attach(plan->tree, (size_t)plan->nodes[i]);
                plan->dirty[0][plan->nodes[i]] = 1;
        }
        plan->tree->n_rows += plan->source->n;
}

void dci_tree_insert(dci_tree_plan *plan, const dci_tree_store *store, int32_t *out_slots)
{
        plan->tree->version++;
        dci_tree_plan_append_nodes(plan);
        dci_tree_plan_carry_out(plan, store);
        dci_tree_plan_attach(plan, out_slots);
}
