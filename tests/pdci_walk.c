/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/pdci_walk.h"

#include <math.h>
#include <string.h>

/* A row in one simple index. */
typedef struct place {
        float projection, difference; /* difference: of the present query */
        int64_t id;
        size_t row;
} place;

/* The way that one cursor goes. An empty one is not in the queue. */
typedef struct way {
        const place *next, *end;
        size_t simple;
} way;

struct pdci_walk {
        size_t n_comp, n_simp, n, n_places;
        place *sorted;  /* n_places of each simple index, by projection */
        place *outward; /* the same in the order of two cursors: those below the query, then the others */
        size_t *n_below;
};

static void *take(size_t count, size_t size)
{
        void *memory = calloc(count + 1, size);
        ck_assert_ptr_nonnull(memory);
        return memory;
}

static int by_projection(const void *a, const void *b)
{
        const place *x = a, *y = b;
        return (x->projection > y->projection) - (x->projection < y->projection);
}

static int by_difference(const void *a, const void *b)
{
        const place *x = a, *y = b;
        if (x->difference != y->difference)
                return x->difference < y->difference ? -1 : 1;
        return (x->id > y->id) - (x->id < y->id);
}

pdci_walk *pdci_walk_create(size_t n_comp, size_t n_simp, size_t n, const float *projections, const int64_t *ids,
                            const bool *admitted)
{
        pdci_walk *walk = take(1, sizeof *walk);
        const size_t n_simple = n_comp * n_simp;
        *walk = (pdci_walk){.n_comp = n_comp, .n_simp = n_simp, .n = n};
        for (size_t i = 0; i < n; i++)
                walk->n_places += admitted == NULL || admitted[i];
        walk->sorted = take(n_simple * walk->n_places, sizeof *walk->sorted);
        walk->outward = take(n_simple * walk->n_places, sizeof *walk->outward);
        walk->n_below = take(n_simple, sizeof *walk->n_below);
        for (size_t j = 0; j < n_simple; j++) {
                place *simple = walk->sorted + j * walk->n_places, *at = simple;
                for (size_t i = 0; i < n; i++)
                        if (admitted == NULL || admitted[i])
                                *at++ = (place){.projection = projections[j * n + i], .id = ids[i], .row = i};
                qsort(simple, walk->n_places, sizeof *simple, by_projection);
        }
        return walk;
}

void pdci_walk_destroy(pdci_walk *walk)
{
        test_free(walk->sorted, walk->outward, walk->n_below, walk);
}

/* One cursor's way outward. Rounding may make differences equal that projections are not: among equal ones ids decide, and
 * nothing else may change places. */
static void lay_way(place *places, size_t n, float projection)
{
        for (size_t i = 0; i < n; i++) {
                places[i].difference = fabsf(places[i].projection - projection);
                if (i > 0 && places[i - 1].difference > places[i].difference)
                        ck_abort_msg("a cursor goes inward");
        }
        qsort(places, n, sizeof *places, by_difference);
}

void pdci_walk_ask(pdci_walk *walk, const float *projections)
{
        const size_t n = walk->n_places;
        for (size_t j = 0; j < walk->n_comp * walk->n_simp; j++) {
                const place *sorted = walk->sorted + j * n;
                place *outward = walk->outward + j * n;
                size_t below = 0;
                while (below < n && sorted[below].projection < projections[j])
                        below++;
                for (size_t i = 0; i < n; i++)
                        outward[i] = i < below ? sorted[below - 1 - i] : sorted[i];
                lay_way(outward, below, projections[j]);
                lay_way(outward + below, n - below, projections[j]);
                walk->n_below[j] = below;
        }
}

static bool is_before(const way *a, const way *b)
{
        int order = by_difference(a->next, b->next);
        return order < 0 || (order == 0 && a->simple < b->simple);
}

/* The priority queue is a binary heap: a parent comes before its children. */
static void sink(way *queue, size_t n, size_t at)
{
        for (;;) {
                size_t first = at;
                for (size_t child = 2 * at + 1; child < n && child <= 2 * at + 2; child++)
                        first = is_before(&queue[child], &queue[first]) ? child : first;
                if (first == at)
                        return;
                way moved = queue[at];
                queue[at] = queue[first];
                queue[first] = moved;
                at = first;
        }
}

/* Both cursors of each simple index; returns how many have anywhere to go. */
static size_t fill_queue(const pdci_walk *walk, size_t composite, way *queue)
{
        const size_t m = walk->n_simp;
        size_t n = 0;
        for (size_t j = 0; j < m; j++) {
                const place *outward = walk->outward + (composite * m + j) * walk->n_places;
                const place *middle = outward + walk->n_below[composite * m + j], *end = outward + walk->n_places;
                if (outward < middle)
                        queue[n++] = (way){outward, middle, j};
                if (middle < end)
                        queue[n++] = (way){middle, end, j};
        }
        for (size_t i = n; i > 0; i--)
                sink(queue, n, i - 1);
        return n;
}

static void walk_composite(const pdci_walk *walk, size_t composite, const dci_pdci_effort *effort, bool *candidates)
{
        way *queue = take(2 * walk->n_simp, sizeof *queue);
        size_t *counts = take(walk->n, sizeof *counts), found = 0, n = fill_queue(walk, composite, queue);
        for (uint64_t visits = 0;
             n > 0 && ((visits < effort->visit && found < effort->retrieve) || found < effort->at_least); visits++) {
                const size_t row = queue[0].next->row;
                if (++counts[row] == walk->n_simp) {
                        candidates[row] = true;
                        found++;
                }
                if (++queue[0].next == queue[0].end)
                        queue[0] = queue[--n];
                sink(queue, n, 0);
        }
        test_free(queue, counts);
}

void pdci_walk_candidates(const pdci_walk *walk, const dci_pdci_effort *effort, bool *candidates)
{
        memset(candidates, 0, walk->n * sizeof *candidates);
        for (size_t c = 0; c < walk->n_comp; c++)
                walk_composite(walk, c, effort, candidates);
}
