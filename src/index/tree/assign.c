/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The nearest node of each of many points, by tiles of products. At the top level against all nodes. Further down, points are
 * first assigned to the top; those of one top node are then compared with the nodes beneath those around it, which holds the
 * nearest node but for rare points at the rim.
 *
 * Nodes at one point are equally near to every other, so the first of them takes everything, and the others need not be compared.
 * They are left out: no bound could exclude them, and where thousands of rows are equal the canonical kernel would have to decide
 * for each of those rows among all nodes that they are.
 */
#include "core/internal.h"

#include <stdlib.h>
#include <string.h>

#include "core/arena.h"
#include "index/tree/near.h"

#define TASK_POINTS 256
/* Nodes that the points of one top node are compared with, at least, and top nodes that these come from, at most. */
#define CANDIDATES 1024
#define MAX_AROUND 256

typedef struct assignment {
        const dci_tree *tree;
        size_t n; /* points: rows of the source, or, if that is NULL, the nodes of the level below `l` */
        const dci_tree_source *source;
        size_t l;
        size_t worker_bytes;
        unsigned char *scratch;
        int32_t *out;
        /* against all nodes */
        dci_nearest *nearest;
        /* around a top node */
        size_t max_candidates;
        const size_t *starts; /* by top node: its points in `order` */
        const int32_t *order;
        const int32_t *firsts; /* by node of the lowest level: the first of those at its point; -1: it is alone there */
} assignment;

/* --- nodes at one point ------------------------------------------------------------------------------------------------------ */

typedef struct twin {
        uint64_t key; /* equal for nodes at one point */
        int32_t node;
} twin;

static int compare_twins(const void *a, const void *b)
{
        const twin *x = a, *y = b;
        if (x->key != y->key)
                return x->key < y->key ? -1 : 1;
        return (x->node > y->node) - (x->node < y->node);
}

static uint64_t hash_of(const float *point, size_t n)
{
        uint64_t hash = 0;
        for (size_t p = 0; p < n; p++) {
                const float value = point[p] + 0.0f; /* -0 becomes 0, which it equals */
                uint32_t bits;
                memcpy(&bits, &value, sizeof bits);
                hash = (hash ^ bits) * UINT64_C(0x9e3779b97f4a7c15);
                hash ^= hash >> 32;
        }
        return hash;
}

static bool same_point(const float *a, const float *b, size_t n)
{
        size_t p = 0;
        while (p < n && a[p] == b[p])
                p++;
        return p == n;
}

/* The nodes of a level at the point of one of lower number, which is their key then. Returns how many; room for all nodes.
 * Should points that differ have one hash, some may be missing: they are compared like all others. */
static size_t find_twins(const dci_tree *tree, const dci_level *level, twin *out)
{
        const size_t wide = tree->dim + 1;
        size_t n = 0;
        for (size_t i = 0; i < level->n; i++)
                out[i] = (twin){hash_of(level->points + i * wide, tree->n_coords), (int32_t)i};
        qsort(out, level->n, sizeof *out, compare_twins);
        twin first = out[0];
        for (size_t i = 1; i < level->n; i++) {
                if (out[i].key != first.key)
                        first = out[i];
                else if (same_point(level->points + (size_t)out[i].node * wide,
                                    level->points + (size_t)first.node * wide, tree->n_coords))
                        out[n++] = (twin){(uint64_t)first.node, out[i].node};
        }
        return n;
}

/* --- against all nodes ------------------------------------------------------------------------------------------------------- */

static void take_point(const assignment *a, size_t i, float *out)
{
        const size_t wide = a->tree->dim + 1;
        if (a->source != NULL)
                dci_tree_source_point(a->tree, a->source, i, out);
        else
                memcpy(out, a->tree->levels[a->l - 1].points + i * wide, wide * sizeof *out);
}

static void all_task(void *arg, size_t task, size_t worker)
{
        const assignment *a = arg;
        const size_t wide = a->tree->dim + 1, first = task * TASK_POINTS;
        const size_t n = a->n - first < TASK_POINTS ? a->n - first : TASK_POINTS;
        float *points = (float *)(void *)(a->scratch + worker * a->worker_bytes);
        for (size_t i = 0; i < n; i++)
                take_point(a, first + i, points + i * wide);
        dci_nearest_find(a->nearest, points, wide, n, points + dci_lines(TASK_POINTS * wide * sizeof *points) / 4,
                         a->out + first, NULL);
}

/* Nobody else reads the level yet. */
static dci_status assign_to_all(assignment *a, dci_level *level, const dci_progress *progress, const void *object)
{
        dci_context *context = a->tree->context;
        const size_t wide = a->tree->dim + 1, n_tasks = (a->n + TASK_POINTS - 1) / TASK_POINTS;
        dci_status status = DCI_ERR_MEMORY;
        a->nearest = &level->nearest;
        a->worker_bytes = dci_lines(TASK_POINTS * wide * sizeof(float)) +
                          dci_lines(dci_nearest_scratch_bytes(context, a->nearest->dim));
        const size_t n_workers = dci_workers_for(context, n_tasks, a->n * wide * (a->nearest->n / 16 + 1));
        twin *twins = dci_alloc(context, level->n, sizeof *twins);
        a->scratch = dci_alloc(context, n_workers, a->worker_bytes);
        if (twins != NULL && a->scratch != NULL) {
                const size_t n_twins = find_twins(a->tree, level, twins);
                for (size_t i = 0; i < n_twins; i++)
                        dci_nearest_close(&level->nearest, (size_t)twins[i].node);
                dci_region region = {context, n_tasks, n_workers, all_task, a, progress, a->n, object};
                status = dci_parallel(&region);
                for (size_t i = 0; i < n_twins; i++)
                        dci_nearest_put(&level->nearest, (size_t)twins[i].node);
        }
        dci_free(context, twins, level->n, sizeof *twins);
        dci_free(context, a->scratch, n_workers, a->worker_bytes);
        a->scratch = NULL; /* what assigns around the top nodes frees its own */
        return status;
}

/* --- around a top node ------------------------------------------------------------------------------------------------------- */

/* Nodes of the lowest level beneath one node of level l. */
/* NOLINTNEXTLINE(misc-no-recursion): as deep as there are levels. */
static size_t beneath(const dci_tree *tree, size_t l, size_t node, int32_t *out)
{
        if (l == 0) {
                if (out != NULL)
                        *out = (int32_t)node;
                return 1;
        }
        const dci_cell *cell = &tree->levels[l].cells[node];
        size_t n = 0;
        for (uint32_t i = 0; i < cell->n; i++)
                n += beneath(tree, l - 1, (size_t)cell->items[i], out == NULL ? NULL : out + n);
        return n;
}

/* Scratch of a worker that compares with the nodes around a top node. */
typedef struct around {
        int32_t *candidates, *found;
        float *centres, *points;
        void *memory, *nearest, *near;
        twin *twins;
} around;

static size_t around_lay_out(const assignment *a, void *memory, around *out)
{
        const dci_tree *tree = a->tree;
        const size_t n = a->max_candidates, wide = tree->dim + 1;
        const dci_arena_part parts[] = {{n * sizeof(int32_t), &out->candidates},
                                        {TASK_POINTS * sizeof(int32_t), &out->found},
                                        {n * wide * sizeof(float), &out->centres},
                                        {TASK_POINTS * wide * sizeof(float), &out->points},
                                        {dci_nearest_bytes(tree->context, n, tree->n_coords), &out->memory},
                                        {dci_nearest_scratch_bytes(tree->context, tree->n_coords), &out->nearest},
                                        {dci_tree_near_bytes(), &out->near},
                                        {n * sizeof(twin), &out->twins}};
        return DCI_ARENA(parts, memory);
}

/* Keeps the first of the candidates at each point. Returns how many stay, in their order. */
static size_t drop_twins(const assignment *a, const around *s, size_t n)
{
        size_t n_twins = 0, kept = 0;
        for (size_t i = 0; i < n; i++)
                if (a->firsts[s->candidates[i]] >= 0)
                        s->twins[n_twins++] = (twin){(uint64_t)a->firsts[s->candidates[i]], (int32_t)i};
        if (n_twins > 1)
                qsort(s->twins, n_twins, sizeof *s->twins, compare_twins);
        for (size_t i = 1; i < n_twins; i++)
                if (s->twins[i].key == s->twins[i - 1].key)
                        s->candidates[s->twins[i].node] = -1;
        for (size_t i = 0; i < n; i++)
                if (s->candidates[i] >= 0)
                        s->candidates[kept++] = s->candidates[i];
        return kept;
}

static void around_task(void *arg, size_t node, size_t worker)
{
        const assignment *a = arg;
        const dci_tree *tree = a->tree;
        const size_t wide = tree->dim + 1, top = tree->n_levels - 1;
        const size_t begin = a->starts[node], end = a->starts[node + 1];
        around s;
        dci_near near[MAX_AROUND];
        size_t n_near, n = 0;
        if (begin == end)
                return;
        around_lay_out(a, a->scratch + worker * a->worker_bytes, &s);
        dci_tree_near(tree, top, tree->levels[top].points + node * wide, 1, MAX_AROUND, NULL, s.near, near, &n_near);
        for (size_t i = 0; i < n_near && n < CANDIDATES; i++)
                n += beneath(tree, top, (size_t)near[i].node, s.candidates + n);
        for (size_t t = 0; n == 0; t++) /* there is nothing around it */
                n = beneath(tree, top, t, s.candidates);
        n = drop_twins(a, &s, n);
        for (size_t i = 0; i < n; i++)
                memcpy(s.centres + i * wide, tree->levels[0].points + (size_t)s.candidates[i] * wide,
                       wide * sizeof *s.centres);
        dci_nearest nearest;
        dci_nearest_prepare(tree->context, s.centres, wide, n, tree->n_coords, s.memory, &nearest);
        for (size_t first = begin; first < end; first += TASK_POINTS) {
                const size_t here = end - first < TASK_POINTS ? end - first : TASK_POINTS;
                for (size_t i = 0; i < here; i++)
                        take_point(a, (size_t)a->order[first + i], s.points + i * wide);
                dci_nearest_find(&nearest, s.points, wide, here, s.nearest, s.found, NULL);
                for (size_t i = 0; i < here; i++)
                        a->out[a->order[first + i]] = s.candidates[s.found[i]];
        }
}

/* By node of a level: the first of those at its point, -1 if it is alone there. */
static bool find_firsts(const dci_tree *tree, const dci_level *level, int32_t *out)
{
        twin *twins = dci_alloc(tree->context, level->n, sizeof *twins);
        if (twins == NULL)
                return false;
        const size_t n = find_twins(tree, level, twins);
        memset(out, 0xff, level->n * sizeof *out);
        for (size_t i = 0; i < n; i++)
                out[twins[i].node] = out[twins[i].key] = (int32_t)twins[i].key;
        dci_free(tree->context, twins, level->n, sizeof *twins);
        return true;
}

static dci_status assign_around(assignment *a, const dci_progress *progress, const void *object)
{
        const dci_tree *tree = a->tree;
        dci_context *context = tree->context;
        const size_t top = tree->n_levels - 1, n_top = tree->levels[top].n;
        size_t *starts = dci_calloc(context, n_top + 1, sizeof *starts);
        int32_t *order = dci_alloc(context, a->n, sizeof *order);
        int32_t *firsts = dci_alloc(context, tree->levels[0].n, sizeof *firsts);
        dci_status status = DCI_ERR_MEMORY;
        size_t largest = 0, n_workers = 0;
        if (starts != NULL && order != NULL && firsts != NULL && find_firsts(tree, &tree->levels[0], firsts)) {
                for (size_t i = 0; i < a->n; i++)
                        starts[a->out[i]]++;
                for (size_t t = 0, sum = 0; t <= n_top; t++) {
                        sum += starts[t];
                        starts[t] = sum;
                }
                for (size_t i = a->n; i-- > 0;)
                        order[--starts[a->out[i]]] = (int32_t)i;
                for (size_t t = 0; t < n_top; t++) {
                        const size_t n = beneath(tree, top, t, NULL);
                        largest = n > largest ? n : largest;
                }
                around sizes;
                a->starts = starts;
                a->order = order;
                a->firsts = firsts;
                a->max_candidates = CANDIDATES + largest;
                a->worker_bytes = around_lay_out(a, NULL, &sizes);
                n_workers = dci_workers_for(context, n_top, a->n * (tree->dim + 1) * (CANDIDATES / 16));
                a->scratch = dci_alloc(context, n_workers, a->worker_bytes);
                if (a->scratch != NULL) {
                        dci_region region = {context, n_top, n_workers, around_task, a, progress, a->n, object};
                        status = dci_parallel(&region);
                }
        }
        dci_free(context, a->scratch, n_workers, a->worker_bytes);
        dci_free(context, firsts, tree->levels[0].n, sizeof *firsts);
        dci_free(context, order, a->n, sizeof *order);
        dci_free(context, starts, n_top + 1, sizeof *starts);
        return status;
}

dci_status dci_tree_assign(dci_tree *tree, const dci_tree_source *source, const dci_progress *progress,
                           const void *object, int32_t *out)
{
        const size_t top = tree->n_levels - 1;
        assignment a = {.tree = tree, .source = source, .n = source->n, .out = out};
        dci_status status = assign_to_all(&a, &tree->levels[top], top == 0 ? progress : NULL, object);
        return status == DCI_OK && top != 0 ? assign_around(&a, progress, object) : status;
}

dci_status dci_tree_assign_top(dci_tree *tree, size_t l, int32_t *out)
{
        assignment a = {.tree = tree, .l = l, .n = tree->levels[l - 1].n, .out = out};
        return assign_to_all(&a, &tree->levels[l], NULL, NULL);
}
