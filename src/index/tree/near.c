/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The nodes nearest to a point: where a row or a node belongs. */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "index/tree/near.h"
#include "simd/topk.h"

/* Nodes above whose children are compared: about CANDIDATES of them, and at least these. */
#define FEWEST_ABOVE 16
#define MAX_ABOVE 64
#define CANDIDATES 256

size_t dci_near_enter(dci_near *best, size_t n, size_t most, float score, int32_t node)
{
        size_t at = n;
        while (at > 0 && (best[at - 1].score < score || (best[at - 1].score == score && best[at - 1].node > node)))
                at--;
        if (at == most)
                return n;
        n = n < most ? n + 1 : n;
        memmove(best + at + 1, best + at, (n - at - 1) * sizeof *best);
        best[at] = (dci_near){score, node};
        return n;
}

size_t dci_near_join(const dci_near *some, size_t n_some, const dci_near *others, size_t n_others, int32_t *out)
{
        size_t n = 0;
        for (size_t i = 0; i < n_some; i++)
                out[n++] = some[i].node;
        for (size_t i = 0; i < n_others; i++) {
                bool there = false;
                for (size_t j = 0; j < n_some; j++)
                        there = there || out[j] == others[i].node;
                if (!there)
                        out[n++] = others[i].node;
        }
        return n;
}

/* Of one block: pointers, scores of eight points, what is kept of one point's. */
typedef struct block {
        const void *pointers[DCI_TOPK_BLOCK];
        float scores[DCI_MANY_QUERIES * DCI_TOPK_BLOCK];
        float kept[DCI_TOPK_BLOCK + DCI_LANES];
        int32_t order[DCI_TOPK_BLOCK + DCI_LANES];
} block;

size_t dci_tree_near_bytes(void)
{
        return dci_lines(sizeof(block));
}

/* Products of the first coordinates become closeness. */
static void adjust(const dci_level *level, float last, const int32_t *numbers, size_t first, size_t count,
                   float *scores)
{
        const float *lasts = level->lasts + first, *offsets = level->nearest.offsets + first;
        if (numbers == NULL) {
                for (size_t i = 0; i < count; i++)
                        scores[i] += last * lasts[i] - offsets[i];
                return;
        }
        for (size_t i = 0; i < count; i++)
                scores[i] += last * level->lasts[numbers[i]] - level->nearest.offsets[numbers[i]];
}

/* Offers `count` nodes, numbers[i] or first + i, to the best of each point. */
static void offer(const dci_tree *tree, const dci_level *level, const float *points, size_t n_points, size_t most,
                  const uint8_t *gone, const int32_t *numbers, size_t first, size_t count, block *b, dci_near *out,
                  size_t *out_n)
{
        const size_t wide = tree->dim + 1, dim = tree->dim;
        const dci_kernels *kernels = tree->context->kernels;
        const size_t stride = wide * sizeof(float);
        for (size_t i = 0; (numbers != NULL || n_points > 1) && i < count; i++)
                b->pointers[i] = level->points + (numbers != NULL ? (size_t)numbers[i] : first + i) * wide;
        if (n_points > 1)
                kernels->score_many[DCI_F32 - 1][DCI_FORM_DOT](points, wide, n_points, b->pointers, count, dim,
                                                               b->scores, DCI_TOPK_BLOCK);
        else if (numbers != NULL)
                kernels->score_rows[DCI_F32 - 1][DCI_FORM_DOT](points, b->pointers, count, dim, b->scores);
        else
                kernels->score_strided[DCI_F32 - 1][DCI_FORM_DOT](points, level->points + first * wide, stride, count,
                                                                  dim, b->scores);
        for (size_t p = 0; p < n_points; p++) {
                float *scores = b->scores + p * DCI_TOPK_BLOCK;
                adjust(level, points[p * wide + dim], numbers, first, count, scores);
                dci_near *best = out + p * most;
                const float least = out_n[p] < most ? -INFINITY : best[most - 1].score;
                const size_t kept = kernels->keep_at_least(scores, count, least, b->kept, b->order);
                for (size_t i = 0; i < kept; i++) {
                        const size_t at = (size_t)b->order[i];
                        const int32_t node = numbers != NULL ? numbers[at] : (int32_t)(first + at);
                        if (gone == NULL || gone[node] == 0)
                                out_n[p] = dci_near_enter(best, out_n[p], most, b->kept[i], node);
                }
        }
}

/* Through the level above: the children of its nearest nodes. */
/* NOLINTNEXTLINE(misc-no-recursion): as deep as there are levels. */
static void near_below(const dci_tree *tree, size_t l, const float *point, size_t most, const uint8_t *gone,
                       void *scratch, dci_near *out, size_t *out_n)
{
        dci_near above[MAX_ABOVE];
        size_t n_above = 0;
        const size_t each = tree->levels[l].n / tree->levels[l + 1].n + 1;
        size_t wanted = CANDIDATES / each + most / each;
        wanted = wanted < FEWEST_ABOVE ? FEWEST_ABOVE : (wanted > MAX_ABOVE ? MAX_ABOVE : wanted);
        dci_tree_near(tree, l + 1, point, 1, wanted, NULL, scratch, above, &n_above);
        for (size_t a = 0; a < n_above; a++) {
                const dci_cell *cell = &tree->levels[l + 1].cells[above[a].node];
                for (size_t c = 0; c < cell->n; c += DCI_TOPK_BLOCK) {
                        const size_t here = cell->n - c < DCI_TOPK_BLOCK ? cell->n - c : DCI_TOPK_BLOCK;
                        offer(tree, &tree->levels[l], point, 1, most, gone, cell->items + c, 0, here, scratch, out,
                              out_n);
                }
        }
}

/* NOLINTNEXTLINE(misc-no-recursion): likewise. */
void dci_tree_near(const dci_tree *tree, size_t l, const float *points, size_t n_points, size_t most,
                   const uint8_t *gone, void *scratch, dci_near *out, size_t *out_n)
{
        const dci_level *level = &tree->levels[l];
        const bool top = l + 1 == tree->n_levels;
        memset(out_n, 0, n_points * sizeof *out_n);
        for (size_t p = 0; !top && p < n_points; p++)
                near_below(tree, l, points + p * (tree->dim + 1), most, gone, scratch, out + p * most, &out_n[p]);
        size_t found = SIZE_MAX;
        for (size_t p = 0; p < n_points; p++)
                found = out_n[p] < found ? out_n[p] : found;
        if (!top && found > 0)
                return;
        /* All of them: at the top, or where everything near is gone. */
        memset(out_n, 0, n_points * sizeof *out_n);
        for (size_t first = 0; first < level->n; first += DCI_TOPK_BLOCK) {
                const size_t here = level->n - first < DCI_TOPK_BLOCK ? level->n - first : DCI_TOPK_BLOCK;
                offer(tree, level, points, n_points, most, gone, NULL, first, here, scratch, out, out_n);
        }
}

/* Offers one block of numbers to a list of the largest. */
static size_t keep(const dci_tree *tree, const float *values, size_t first, size_t count, size_t most, block *b,
                   dci_near *best, size_t n)
{
        const float least = n < most ? -INFINITY : best[most - 1].score;
        const size_t kept = tree->context->kernels->keep_at_least(values, count, least, b->kept, b->order);
        for (size_t i = 0; i < kept; i++)
                n = dci_near_enter(best, n, most, b->kept[i], (int32_t)(first + (size_t)b->order[i]));
        return n;
}

size_t dci_tree_around(const dci_tree *tree, size_t l, const float *point, void *scratch, int32_t *out)
{
        enum { EACH = DCI_TREE_AROUND / 2 };
        const dci_level *level = &tree->levels[l];
        const size_t wide = tree->dim + 1;
        const dci_kernels *kernels = tree->context->kernels;
        const float norm2 = kernels->norm2[DCI_F32 - 1](point, tree->n_coords);
        block *b = scratch;
        dci_near nearest[EACH], reaching[EACH];
        size_t n_nearest = 0, n_reaching = 0;
        for (size_t first = 0; first < level->n; first += DCI_TOPK_BLOCK) {
                const size_t count = level->n - first < DCI_TOPK_BLOCK ? level->n - first : DCI_TOPK_BLOCK;
                float *scores = b->scores, *reach = b->scores + DCI_TOPK_BLOCK;
                kernels->score_strided[DCI_F32 - 1][DCI_FORM_DOT](point, level->points + first * wide,
                                                                  wide * sizeof *point, count, tree->dim, scores);
                adjust(level, point[tree->dim], NULL, first, count, scores);
                for (size_t i = 0; i < count; i++) {
                        const float distance2 = norm2 - 2.0f * scores[i];
                        reach[i] = level->radii2[first + i] / (distance2 > 0x1p-100f ? distance2 : 0x1p-100f);
                }
                n_nearest = keep(tree, scores, first, count, EACH, b, nearest, n_nearest);
                n_reaching = keep(tree, reach, first, count, EACH, b, reaching, n_reaching);
        }
        return dci_near_join(nearest, n_nearest, reaching, n_reaching, out);
}
