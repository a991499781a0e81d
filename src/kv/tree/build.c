/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * A head's tree is built from the prompt's candidates, by tiles of products, and grows by pages that leave the window
 * (IceCache 2026, algorithm 2). A promoted candidate that comes later becomes a node, and what is nearer to it than to
 * its own node moves to it: rows of the nearest cells and of those that reach far are looked at, one product each, as
 * in the index's tree.
 */
#include "core/internal.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/arena.h"
#include "index/tree/near.h"
#include "index/tree/tree.h"
#include "kv/geometry.h"
#include "kv/lookup.h"
#include "kv/tree/tree.h"
#include "simd/nearest.h"

#define STRETCH_ROWS ((size_t)4096)        /* candidates that are compared with a block of nodes while it is ready */
#define CENTRE_ROWS ((size_t)4096)         /* candidates that the middle of the points is found from */
#define FEW ((size_t)256)                  /* candidates up to which a tree is rebuilt whenever some come */
#define MAX_SORTED ((size_t)4096)          /* rows of a cell that are put in order at a time */
#define ROUNDS 5                           /* of the power method: the order need not be exact */
#define EACH ((size_t)DCI_TREE_AROUND / 2) /* cells around a new node: the nearest, and those that reach farthest */

/* A row of a cell, by its position along the cell's direction. */
typedef struct placed {
        float along;
        int32_t candidate;
} placed;

typedef struct shaping {
        dci_kv *kv;
        const dci_kv_layer *layer;
        size_t head, wide; /* wide: dim_k and the lift */
        dci_kv_tree *tree;
        const void **rows; /* DCI_KV_TREE_TASK */
        float *centres, *points, *mean, *pair, *norms, *scores, *best_scores;
        double *sums;
        int32_t *found, *best;
        void *nearest, *find, *place;
        placed *placed; /* MAX_SORTED */
        float *axis;    /* 3 x dim_k: the middle of a cell, its direction, and the next */
        dci_kv_tree_encoder encoder;
} shaping;

static size_t lay_out(const dci_kv *kv, void *memory, shaping *out)
{
        const size_t wide = kv->dim_k + 1;
        const dci_arena_part parts[] = {{DCI_KV_TREE_TASK * sizeof(void *), &out->rows},
                                        {DCI_KV_TREE_BLOCK * wide * sizeof(float), &out->centres},
                                        {DCI_KV_TREE_TASK * wide * sizeof(float), &out->points},
                                        {wide * sizeof(float), &out->mean},
                                        {2 * wide * sizeof(float), &out->pair},
                                        {DCI_KV_TREE_TASK * sizeof(float), &out->norms},
                                        {DCI_MANY_QUERIES * DCI_KV_TREE_TASK * sizeof(float), &out->scores},
                                        {STRETCH_ROWS * sizeof(float), &out->best_scores},
                                        {wide * sizeof(double), &out->sums},
                                        {DCI_KV_TREE_TASK * sizeof(int32_t), &out->found},
                                        {STRETCH_ROWS * sizeof(int32_t), &out->best},
                                        {dci_nearest_bytes(kv->context, DCI_KV_TREE_BLOCK, wide), &out->nearest},
                                        {dci_nearest_scratch_bytes(kv->context, wide), &out->find},
                                        {dci_kv_tree_place_bytes(kv), &out->place},
                                        {MAX_SORTED * sizeof(placed), &out->placed},
                                        {3 * kv->dim_k * sizeof(float), &out->axis},
                                        {dci_kv_tree_encode_bytes(kv, false), &out->encoder.scratch}};
        const size_t n_bytes = DCI_ARENA(parts, memory);
        out->encoder.rows = out->points;
        out->encoder.n_rows = DCI_CODE_ROWS;
        return n_bytes;
}

size_t dci_kv_tree_scratch_bytes(const dci_kv *kv)
{
        shaping measured;
        return dci_kv_has_trees(kv) ? lay_out(kv, NULL, &measured) : 0;
}

/* A power of two above the longest key's: it depends on that one alone, and leaves some headroom. */
static float c_squared_of(float longest)
{
        int exponent;
        if (!(longest <= FLT_MAX / 32.0f)) /* distances would overflow */
                return INFINITY;
        frexpf(longest, &exponent);
        return longest > 0.0f ? ldexpf(1.0f, exponent) : 0.0f;
}

/* Rows and squared norms of n <= DCI_KV_TREE_TASK candidates; returns the greatest norm. */
static float look_at(const shaping *s, size_t first, size_t n)
{
        dci_kv *kv = s->kv;
        float longest = 0.0f;
        dci_kv_rows_of(kv, s->layer, s->head, kv->config.sink + first, n, s->rows, NULL);
        for (size_t i = 0; i < n; i++) {
                s->norms[i] = kv->context->kernels->norm2[kv->config.dtype - 1](s->rows[i], kv->dim_k);
                longest = s->norms[i] > longest ? s->norms[i] : longest;
        }
        return longest;
}

/* A candidate as a point: lifted, minus the mean. */
static void take_point(const shaping *s, size_t i, float *out)
{
        const dci_kv *kv = s->kv;
        kv->context->kernels->to_f32[kv->config.dtype - 1](s->rows[i], kv->dim_k, out);
        out[kv->dim_k] = dci_kv_tree_lift(s->tree, s->norms[i]);
        for (size_t j = 0; j < s->wide; j++)
                out[j] -= s->mean[j];
}

/* --- building ----------------------------------------------------------------------------------------------------- */

/* The middle of some points, evenly spread: it changes no distance and keeps numbers small. */
static void find_middle(const shaping *s, size_t n)
{
        const size_t step = (n + CENTRE_ROWS - 1) / CENTRE_ROWS;
        size_t count = 0;
        memset(s->mean, 0, s->wide * sizeof *s->mean);
        memset(s->sums, 0, s->wide * sizeof *s->sums);
        for (size_t i = 0; i < n; i += step, count++) {
                look_at(s, i, 1);
                take_point(s, 0, s->points);
                for (size_t j = 0; j < s->wide; j++)
                        s->sums[j] += (double)s->points[j];
        }
        for (size_t j = 0; j < s->wide; j++)
                s->mean[j] = (float)(s->sums[j] / (double)count);
}

/* Makes nodes [first, first + n) ready. */
static void prepare_nodes(const shaping *s, size_t first, size_t n, dci_nearest *out)
{
        for (size_t i = 0; i < n; i++) {
                look_at(s, (size_t)s->tree->node_tokens[first + i], 1);
                take_point(s, 0, s->centres + i * s->wide);
        }
        dci_nearest_prepare(s->kv->context, s->centres, s->wide, n, s->wide, s->nearest, out);
}

/* Compares n <= DCI_KV_TREE_TASK candidates with the nodes that are ready, those from number `node` on; all: there are
 * no others, so that nearest ones need no score. */
static void compare(const shaping *s, size_t first, size_t n, const dci_nearest *nearest, size_t node, bool all,
                    int32_t *best, float *best_scores)
{
        look_at(s, first, n);
        for (size_t i = 0; i < n; i++)
                take_point(s, i, s->points + i * s->wide);
        dci_nearest_find(nearest, s->points, s->wide, n, s->find, all ? best : s->found, all ? NULL : s->scores);
        for (size_t i = 0; i < n && !all; i++)
                if (s->scores[i] > best_scores[i]) {
                        best_scores[i] = s->scores[i];
                        best[i] = (int32_t)node + s->found[i];
                }
}

/* The nearest node of each of n <= STRETCH_ROWS candidates. `ready`: all nodes are, and there is one block of them. */
static void assign(const shaping *s, size_t first, size_t n, dci_nearest *nearest, bool ready)
{
        const size_t n_nodes = s->tree->n_nodes;
        for (size_t i = 0; i < n; i++)
                s->best_scores[i] = -INFINITY;
        memset(s->best, 0, n * sizeof *s->best);
        for (size_t b = 0, here; b < n_nodes; b += here) {
                here = n_nodes - b < DCI_KV_TREE_BLOCK ? n_nodes - b : DCI_KV_TREE_BLOCK;
                if (!ready)
                        prepare_nodes(s, b, here, nearest);
                for (size_t i = 0; i < n; i += DCI_KV_TREE_TASK)
                        compare(s, first + i, n - i < DCI_KV_TREE_TASK ? n - i : DCI_KV_TREE_TASK, nearest, b, ready,
                                s->best + i, s->best_scores + i);
        }
}

/* --- cutting cells ------------------------------------------------------------------------------------------------ */

/* One round over n rows: their positions along the direction; and, weighed by that, their sum, which is the next
 * direction. */
static void go_along(const shaping *s, size_t n)
{
        dci_kv *kv = s->kv;
        const dci_kernels *kernels = kv->context->kernels;
        const size_t dim = kv->dim_k;
        const int dtype = kv->config.dtype - 1;
        float *middle = s->axis, *direction = middle + dim, *next = direction + dim, offset = 0.0f, total = 0.0f;
        int32_t candidates[DCI_KV_TILE];
        const void *rows[DCI_KV_TILE];
        memset(next, 0, dim * sizeof *next);
        for (size_t j = 0; j < dim; j++)
                offset += middle[j] * direction[j];
        for (size_t i = 0, here; i < n; i += here) {
                here = n - i < DCI_KV_TILE ? n - i : DCI_KV_TILE;
                for (size_t r = 0; r < here; r++)
                        candidates[r] = s->placed[i + r].candidate;
                dci_kv_tree_rows(kv, s->layer, s->head, candidates, here, rows);
                kernels->score_rows[dtype][DCI_FORM_DOT](direction, rows, here, dim, s->scores);
                for (size_t r = 0; r < here; r++) {
                        s->scores[r] -= offset;
                        total += s->scores[r];
                        s->placed[i + r].along = s->scores[r];
                }
                kernels->add_rows[dtype](rows, s->scores, here, dim, next);
        }
        for (size_t j = 0; j < dim; j++)
                next[j] -= total * middle[j];
}

static int by_place(const void *a, const void *b)
{
        const placed *x = a, *y = b;
        if (x->along != y->along)
                return x->along < y->along ? -1 : 1;
        return (x->candidate > y->candidate) - (x->candidate < y->candidate);
}

/* n rows in the order of their places along the direction in which they differ most. */
static void sort_rows(const shaping *s, size_t n)
{
        dci_kv *kv = s->kv;
        const size_t dim = kv->dim_k;
        const dci_kernels *kernels = kv->context->kernels;
        float *middle = s->axis, *direction = middle + dim, *next = direction + dim;
        for (size_t i = 0; i < n; i++)
                s->placed[i].along = 0.0f;
        memset(middle, 0, dim * sizeof *middle);
        memset(direction, 0, dim * sizeof *direction);
        for (size_t i = 0; i < n; i++) {
                const void *row;
                dci_kv_tree_rows(kv, s->layer, s->head, &s->placed[i].candidate, 1, &row);
                kernels->add_rows[kv->config.dtype - 1](&row, NULL, 1, dim, middle);
                if (i == 0)
                        memcpy(direction, middle, dim * sizeof *direction);
        }
        for (size_t j = 0; j < dim; j++) {
                middle[j] *= 1.0f / (float)n;
                direction[j] -= middle[j]; /* the first row's, to begin with */
        }
        for (size_t round = 0; round < ROUNDS; round++) {
                const float norm2 = kernels->norm2[DCI_F32 - 1](direction, dim), share = 1.0f / sqrtf(norm2);
                if (!(norm2 > FLT_MIN) || isinf(norm2)) /* all rows are the same, or nearly */
                        break;
                for (size_t j = 0; j < dim; j++)
                        direction[j] *= share;
                go_along(s, n);
                memcpy(direction, next, dim * sizeof *direction);
        }
        qsort(s->placed, n, sizeof *s->placed, by_place);
}

/* A cell of several pages is cut along the direction in which its rows differ most, so that a page holds what is
 * alike. */
static void sort_cell(const shaping *s, size_t node)
{
        dci_kv_tree *tree = s->tree;
        const size_t per_page = s->kv->config.page_tokens, n_rows = tree->node_rows[node];
        int32_t from = tree->node_first[node], to = from;
        for (size_t first = 0, n; first < n_rows; first += n) {
                n = n_rows - first < MAX_SORTED ? n_rows - first : MAX_SORTED;
                for (size_t i = 0; i < n; i++) { /* MAX_SORTED is a multiple of a page */
                        s->placed[i].candidate = tree->members[(size_t)from * per_page + i % per_page];
                        if ((i + 1) % per_page == 0)
                                from = tree->page_next[from];
                }
                sort_rows(s, n);
                for (size_t i = 0; i < n; i++) {
                        tree->members[(size_t)to * per_page + i % per_page] = s->placed[i].candidate;
                        if ((i + 1) % per_page == 0)
                                to = tree->page_next[to];
                }
        }
}

static void build(const shaping *s, size_t n)
{
        const dci_kv *kv = s->kv;
        dci_kv_tree *tree = s->tree;
        dci_nearest nearest;
        float longest = 0.0f;
        dci_kv_tree_clear(tree);
        tree->built_version = ++tree->version;
        for (size_t i = 0, here; i < n; i += here) {
                here = n - i < DCI_KV_TREE_TASK ? n - i : DCI_KV_TREE_TASK;
                const float norm2 = look_at(s, i, here);
                longest = norm2 > longest ? norm2 : longest;
        }
        tree->c_squared = c_squared_of(longest);
        find_middle(s, n);
        for (size_t i = 0; i < n; i++)
                if (dci_kv_tree_promoted(kv, i)) {
                        look_at(s, i, 1);
                        dci_kv_tree_add_node(tree, i, dci_kv_tree_lift(tree, s->norms[0]));
                }
        dci_kv_tree_relate(s->kv, s->layer, s->head, tree, s->points, DCI_MANY_QUERIES);
        const bool one_block = tree->n_nodes <= DCI_KV_TREE_BLOCK, comparable = !isinf(tree->c_squared);
        if (one_block && comparable && tree->n_levels == 1)
                prepare_nodes(s, 0, tree->n_nodes, &nearest);
        if (tree->n_levels > 1)
                dci_kv_tree_place(s->kv, s->layer, s->head, tree, n,
                                  &(dci_kv_tree_tiles){s->mean, s->centres, s->points, s->found, s->nearest, s->find},
                                  s->place);
        size_t last = 0;
        for (size_t i = 0, here; i < n; i += here) {
                here = n - i < STRETCH_ROWS ? n - i : STRETCH_ROWS;
                if (comparable && tree->n_levels == 1)
                        assign(s, i, here, &nearest, one_block);
                for (size_t j = 0; j < here; j++) {
                        while (last + 1 < tree->n_nodes && (size_t)tree->node_tokens[last + 1] <= i + j)
                                last++;
                        const size_t node = !comparable           ? last
                                            : tree->n_levels == 1 ? (size_t)s->best[j]
                                                                  : (size_t)tree->placed[i + j];
                        dci_kv_tree_attach(kv, tree, node, (int32_t)(i + j));
                }
        }
        for (size_t i = 0; i < tree->n_nodes && comparable; i++)
                if (tree->node_rows[i] > kv->config.page_tokens)
                        sort_cell(s, i);
        tree->n = n;
        dci_kv_tree_refresh(s->kv, s->layer, s->head, tree, s->pair, &s->encoder);
}

/* --- inserting ---------------------------------------------------------------------------------------------------- */

/* The nearest node there is for each of n <= DCI_KV_TILE candidates, whose keys are in points, dim_k apart. */
static void place_all(const shaping *s, size_t n)
{
        dci_kv *kv = s->kv;
        dci_kv_tree *tree = s->tree;
        const dci_kernels *kernels = kv->context->kernels;
        const size_t dim = kv->dim_k;
        const bool down = tree->n_levels > 1 || (kv->config.tree_simple_indices > 0 && !isinf(tree->c_squared));
        const void *rows[DCI_KV_TILE];
        for (size_t i = 0; i < n; i++) {
                s->best_scores[i] = -INFINITY;
                s->best[i] = (int32_t)(tree->n_nodes - 1);
        }
        for (size_t i = 0; i < n && down; i++)
                s->best[i] = dci_kv_tree_place_one(kv, s->layer, s->head, tree, s->points + i * dim,
                                                   dci_kv_tree_lift(tree, s->norms[i]), s->place, &s->best_scores[i]);
        if (down)
                return;
        for (size_t first = 0, here; first < tree->n_nodes && !isinf(tree->c_squared); first += here) {
                here = tree->n_nodes - first < DCI_KV_TILE ? tree->n_nodes - first : DCI_KV_TILE;
                dci_kv_tree_rows(kv, s->layer, s->head, tree->node_tokens + first, here, rows);
                for (size_t q = 0; q < n; q++) {
                        const size_t at = q % DCI_MANY_QUERIES;
                        const float lift = dci_kv_tree_lift(tree, s->norms[q]);
                        if (at == 0)
                                kernels->score_many[kv->config.dtype - 1][DCI_FORM_DOT](
                                        s->points + q * dim, dim, n - q < DCI_MANY_QUERIES ? n - q : DCI_MANY_QUERIES,
                                        rows, here, dim, s->scores, DCI_KV_TILE);
                        for (size_t i = 0; i < here; i++) {
                                const float score =
                                        s->scores[at * DCI_KV_TILE + i] + lift * tree->node_lifts[first + i];
                                if (score > s->best_scores[q]) {
                                        s->best_scores[q] = score;
                                        s->best[q] = (int32_t)(first + i);
                                }
                        }
                }
        }
}

/* Cells that may hold rows nearer to a new node: the nearest, and those that reach farthest in proportion to how far
 * away they are. */
static size_t cells_around(const shaping *s, const float *key, float lift, int32_t *out)
{
        dci_kv *kv = s->kv;
        const dci_kv_tree *tree = s->tree;
        const void *rows[DCI_KV_TILE];
        dci_near nearest[EACH], reaching[EACH];
        size_t n_nearest = 0, n_reaching = 0;
        for (size_t first = 0, here; first < tree->n_nodes; first += here) {
                here = tree->n_nodes - first < DCI_KV_TILE ? tree->n_nodes - first : DCI_KV_TILE;
                dci_kv_tree_rows(kv, s->layer, s->head, tree->node_tokens + first, here, rows);
                kv->context->kernels->score_rows[kv->config.dtype - 1][DCI_FORM_DOT](key, rows, here, kv->dim_k,
                                                                                     s->scores);
                for (size_t i = 0; i < here; i++) {
                        const float score = s->scores[i] + lift * tree->node_lifts[first + i];
                        const float apart = 2.0f * (tree->c_squared - score);
                        n_nearest = dci_near_enter(nearest, n_nearest, EACH, score, (int32_t)(first + i));
                        n_reaching = dci_near_enter(reaching, n_reaching, EACH,
                                                    tree->node_radii2[first + i] / (apart > FLT_MIN ? apart : FLT_MIN),
                                                    (int32_t)(first + i));
                }
        }
        return dci_near_join(nearest, n_nearest, reaching, n_reaching, out);
}

/* Rows of one cell that are nearer to the new node, the last one, than to their own move to it: x . (new - own) > 0,
 * since both are as long. */
static void draw_from(const shaping *s, size_t own, const float *key)
{
        dci_kv *kv = s->kv;
        dci_kv_tree *tree = s->tree;
        const dci_kernels *kernels = kv->context->kernels;
        const size_t dim = kv->dim_k, per_page = kv->config.page_tokens, node = tree->n_nodes - 1;
        const int dtype = kv->config.dtype - 1;
        const float lift = tree->node_lifts[node] - tree->node_lifts[own];
        const void *rows[DCI_KV_TILE];
        float *difference = s->pair;
        dci_kv_tree_rows(kv, s->layer, s->head, &tree->node_tokens[own], 1, rows);
        kernels->to_f32[dtype](rows[0], dim, difference);
        for (size_t j = 0; j < dim; j++)
                difference[j] = key[j] - difference[j];
        size_t kept = 0, place = 0, left = tree->node_rows[own]; /* place: in page `to` */
        int32_t to = tree->node_first[own];
        bool moved = false;
        for (int32_t page = to, next; page >= 0; page = next) {
                int32_t members[DCI_KV_TILE];
                const size_t n = left < per_page ? left : per_page;
                next = tree->page_next[page];
                memcpy(members, tree->members + (size_t)page * per_page, n * sizeof *members);
                dci_kv_tree_rows(kv, s->layer, s->head, members, n, rows);
                kernels->score_rows[dtype][DCI_FORM_DOT](difference, rows, n, dim, s->scores);
                for (size_t i = 0; i < n; i++) {
                        const float x_lift = dci_kv_tree_lift(tree, kernels->norm2[dtype](rows[i], dim));
                        if (s->scores[i] + x_lift * lift > 0.0f) {
                                /* Most of a large cell may move: its pages that have been read make room, but for this
                                 * one, where what stays may go. */
                                if (tree->n_free == 0 && tree->n_pages + DCI_KV_TREE_SPARE >= tree->page_capacity &&
                                    to != page && tree->page_next[to] != page)
                                        dci_kv_tree_release_next(tree, (size_t)to);
                                dci_kv_tree_attach(kv, tree, node, members[i]);
                                moved = true;
                                continue;
                        }
                        if (moved)
                                tree->page_versions[to] = tree->version;
                        tree->members[(size_t)to * per_page + place] = members[i];
                        kept++;
                        if (++place == per_page) {
                                place = 0;
                                to = tree->page_next[to];
                        }
                }
                left -= n;
        }
        if (!moved)
                return;
        if (place != 0)
                tree->page_versions[to] = tree->version;
        dci_kv_tree_shorten(kv, tree, own, kept);
}

/* Candidate `at` of those that are being inserted becomes a node. */
static void split(const shaping *s, size_t first, size_t at, size_t n)
{
        const dci_kv *kv = s->kv;
        dci_kv_tree *tree = s->tree;
        const size_t dim = kv->dim_k;
        const float *key = s->points + at * dim, lift = dci_kv_tree_lift(tree, s->norms[at]);
        int32_t around[2 * EACH];
        const size_t n_around = isinf(tree->c_squared) ? 0 : cells_around(s, key, lift, around);
        dci_kv_tree_add_node(tree, first + at, lift);
        for (size_t i = 0; i < n_around; i++)
                draw_from(s, (size_t)around[i], key);
        s->best[at] = (int32_t)(tree->n_nodes - 1);
        for (size_t i = at + 1; i < n; i++) { /* those that have no cell yet */
                const void *row = s->points + i * dim;
                float score;
                kv->context->kernels->score_rows[DCI_F32 - 1][DCI_FORM_DOT](key, &row, 1, dim, &score);
                score += lift * dci_kv_tree_lift(tree, s->norms[i]);
                if (score > s->best_scores[i] || isinf(tree->c_squared)) {
                        s->best_scores[i] = score;
                        s->best[i] = (int32_t)(tree->n_nodes - 1);
                }
        }
}

/* Inserts n <= DCI_KV_TILE candidates, a page, whose rows and norms are there. */
static void insert(const shaping *s, size_t first, size_t n)
{
        const dci_kv *kv = s->kv;
        for (size_t i = 0; i < n; i++)
                kv->context->kernels->to_f32[kv->config.dtype - 1](s->rows[i], kv->dim_k, s->points + i * kv->dim_k);
        place_all(s, n);
        for (size_t i = 0; i < n; i++) {
                if (dci_kv_tree_promoted(kv, first + i))
                        split(s, first, i, n);
                dci_kv_tree_attach(kv, s->tree, (size_t)s->best[i], (int32_t)(first + i));
        }
        s->tree->n = first + n;
}

/* Adds a page that left the window. A small tree is rebuilt, and so is one whose c^2 is too small for a key: all
 * distances change. */
static void add_page(const shaping *s, size_t first, size_t n)
{
        if (first + n <= FEW || look_at(s, first, n) > s->tree->c_squared) {
                build(s, first + n);
                return;
        }
        s->tree->version++;
        insert(s, first, n);
        dci_kv_tree_relate(s->kv, s->layer, s->head, s->tree, s->points, DCI_MANY_QUERIES);
        dci_kv_tree_refresh(s->kv, s->layer, s->head, s->tree, s->pair, &s->encoder);
}

void dci_kv_tree_build(dci_kv *kv, dci_kv_layer *layer, size_t head, size_t first, size_t end, void *scratch)
{
        dci_kv_tree *tree = layer->heads[head].tree;
        const size_t per_page = kv->config.page_tokens;
        shaping s = {.kv = kv, .layer = layer, .head = head, .wide = kv->dim_k + 1, .tree = tree};
        if (tree == NULL)
                return;
        lay_out(kv, scratch, &s);
        if (tree->n >= end) { /* read from a file */
                dci_kv_tree_relate(kv, layer, head, tree, s.points, DCI_MANY_QUERIES);
                dci_kv_tree_refresh(kv, layer, head, tree, s.pair, &s.encoder);
        } else if (atomic_load(&layer->prompt) != DCI_KV_PROMPT_DONE)
                build(&s, end);
        else /* page by page, whatever came at once: late maintenance gives the same tree */
                for (size_t i = first; i < end; i += per_page)
                        add_page(&s, i, end - i < per_page ? end - i : per_page);
}
