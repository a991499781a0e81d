/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "core/internal.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "core/arena.h"
#include "index/pdci/pdci.h"
#include "simd/convert.h"

/* Differences that a sample of a composite index consists of. */
#define SAMPLE (8 * DCI_SELECT_SAMPLE)

/* Rows among which places are measured, in blocks that are evenly spread; up to twice as many rows: all. */
#define SHARE_ROWS 8192
#define SHARE_BLOCK 64

typedef struct pdci_scratch {
        float *farthest;    /* n: largest difference of each row; infinite where the row is not admitted */
        float *differences; /* n: differences of one simple index */
        float *kept;        /* n + 16 */
        float *sample;      /* SAMPLE */
        int32_t *order;     /* n + 8192 */
        uint64_t *keys;     /* 2 n */
} pdci_scratch;

static size_t lay_out(void *memory, size_t n, pdci_scratch *out)
{
        const dci_arena_part parts[] = {
                {n * sizeof(float), &out->farthest},           {n * sizeof(float), &out->differences},
                {(n + DCI_LANES) * sizeof(float), &out->kept}, {SAMPLE * sizeof(float), &out->sample},
                {(n + SAMPLE) * sizeof(int32_t), &out->order}, {2 * n * sizeof(uint64_t), &out->keys}};
        return DCI_ARENA(parts, memory);
}

size_t dci_pdci_scratch_bytes(size_t n)
{
        pdci_scratch measured;
        return lay_out(NULL, n, &measured);
}

/* Rows that may not be returned are as if they were not there: infinitely far. */
static void exclude(const dci_pdci_cell *cell, float *values)
{
        for (size_t i = 0; cell->admitted != NULL && i < cell->n; i++)
                values[i] = (cell->admitted[i / 64] >> (i % 64) & 1) != 0 ? values[i] : INFINITY;
}

/* Largest differences over simple indices [first, first + count) of all. */
static void measure(const dci_pdci_cell *cell, const float *projections, size_t first, size_t count, float *out)
{
        size_t at = 0;
        for (size_t r = 0; r < cell->n_runs; r++) {
                const dci_pdci_run *run = &cell->runs[r];
                cell->kernels->farthest(run->projections + first * run->stride, run->stride, count, projections + first,
                                        cell->weights == NULL ? NULL : cell->weights + first,
                                        cell->lifts == NULL ? NULL : cell->lifts + at, run->n, out + at);
                at += run->n;
        }
        exclude(cell, out);
}

/* --- how many rows a number of visits completes ------------------------------------------------------------------------ */

/* Bounds that nearly always hold the difference of the last visit. Rows that are not admitted rank last, infinitely far. */
static void bound_last_visit(const dci_pdci_cell *cell, const float *projections, size_t first, uint64_t visit,
                             const pdci_scratch *s, float *out_low, float *out_high)
{
        const size_t n = cell->n, m = cell->n_simp;
        const size_t wanted = SAMPLE / m > 0 ? SAMPLE / m : 1; /* of each simple index */
        float high;
        size_t n_sample = 0;
        for (size_t j = 0; j < m && n_sample < SAMPLE; j++) {
                measure(cell, projections, first + j, 1, s->differences);
                for (size_t i = 0; i < wanted && n_sample < SAMPLE; i++)
                        s->sample[n_sample++] = s->differences[i * n / wanted];
        }
        dci_select_bounds(cell->kernels, s->sample, n_sample, n * m, visit, s->order, out_low, &high);
        *out_high = high < FLT_MAX ? high : FLT_MAX;
}

/* Should the sample mislead: bisection over the bits of non-negative floats, whose order is theirs. */
static dci_rank bisect_last_visit(const dci_pdci_cell *cell, const float *projections, size_t first, uint64_t visit,
                                  const pdci_scratch *s)
{
        const dci_kernels *kernels = cell->kernels;
        uint32_t least = 0, most = UINT32_C(0x7f7fffff);
        for (;;) {
                uint32_t middle = least + (most - least) / 2;
                float value = dci_bits_float(middle), above = nextafterf(value, INFINITY);
                size_t less = 0, reached = 0;
                for (size_t j = 0; j < cell->n_simp; j++) {
                        measure(cell, projections, first + j, 1, s->differences);
                        less += dci_count_less(kernels, s->differences, cell->n, value);
                        reached += dci_count_less(kernels, s->differences, cell->n, above);
                }
                if (reached < visit)
                        least = middle + 1;
                else if (less >= visit)
                        most = middle - 1;
                else
                        return (dci_rank){value, less, reached - less};
        }
}

/* The difference of the last visit, how many pairs are nearer, and how many as near. */
static dci_rank last_visit(const dci_pdci_cell *cell, const float *projections, size_t first, uint64_t visit,
                           const pdci_scratch *s)
{
        const dci_kernels *kernels = cell->kernels;
        float low, high;
        bound_last_visit(cell, projections, first, visit, s, &low, &high);
        size_t below = 0, kept = 0;
        for (size_t j = 0; j < cell->n_simp; j++) {
                size_t here = 0;
                measure(cell, projections, first + j, 1, s->differences);
                /* What is between the bounds is counted before it is stored: it may not fit. */
                size_t less = dci_count_less(kernels, s->differences, cell->n, low);
                size_t within = dci_count_less(kernels, s->differences, cell->n, nextafterf(high, INFINITY)) - less;
                if (kept + within > cell->n)
                        return bisect_last_visit(cell, projections, first, visit, s);
                kept += kernels->keep_between(s->differences, cell->n, low, high, s->kept + kept, &here);
                below += less;
        }
        if (visit <= below || visit > below + kept)
                return bisect_last_visit(cell, projections, first, visit, s);
        dci_rank rank = {.value = kernels->kth_smallest(s->kept, kept, (size_t)visit - below, s->order)};
        size_t less = dci_count_less(kernels, s->kept, kept, rank.value);
        rank.n_less = below + less;
        rank.n_equal = dci_count_less(kernels, s->kept, kept, nextafterf(rank.value, INFINITY)) - less;
        return rank;
}

/* Slots in `keys[0 .. n)`, sorted by id. */
static void sort_by_id(const dci_pdci_cell *cell, const pdci_scratch *s, size_t n)
{
        dci_topk_sort(s->keys, n, s->keys + n, cell->ids);
}

/* Several pairs are equally far and the visits end among them: they are visited by id, then by simple index, and a row is
 * complete when all its pairs are. Returns how many rows of largest difference `value` are. */
static size_t complete_ties(const dci_pdci_cell *cell, const float *projections, size_t first, float value,
                            uint64_t visits, const pdci_scratch *s)
{
        int32_t *pairs = s->order; /* by slot: its pairs at `value` */
        memset(pairs, 0, cell->n * sizeof *pairs);
        for (size_t j = 0; j < cell->n_simp; j++) {
                measure(cell, projections, first + j, 1, s->differences);
                for (size_t i = 0; i < cell->n; i++)
                        pairs[i] += s->differences[i] == value;
        }
        size_t n = 0, complete = 0;
        for (size_t i = 0; i < cell->n; i++)
                if (pairs[i] > 0)
                        s->keys[n++] = dci_topk_key(0.0f, (int32_t)i, true);
        sort_by_id(cell, s, n);
        for (size_t i = 0; i < n; i++) {
                int32_t slot = dci_topk_slot(s->keys[i]);
                if ((uint64_t)pairs[slot] > visits)
                        break;
                visits -= (uint64_t)pairs[slot];
                complete += s->farthest[slot] == value;
        }
        return complete;
}

static size_t completed(const dci_pdci_cell *cell, const float *projections, size_t first, uint64_t visit,
                        const pdci_scratch *s)
{
        if (visit >= (uint64_t)cell->n_admitted * cell->n_simp)
                return cell->n_admitted;
        const dci_rank last = last_visit(cell, projections, first, visit, s);
        const size_t before = dci_count_less(cell->kernels, s->farthest, cell->n, last.value);
        const uint64_t left = visit - last.n_less;
        if (left >= last.n_equal)
                return dci_count_less(cell->kernels, s->farthest, cell->n, nextafterf(last.value, INFINITY));
        return before + complete_ties(cell, projections, first, last.value, left, s);
}

/* --- the first rows in the order of largest differences ------------------------------------------------------------------ */

static void mark_first(const dci_pdci_cell *cell, size_t count, const pdci_scratch *s, uint64_t *bits)
{
        const dci_kernels *kernels = cell->kernels;
        if (count == 0)
                return;
        if (count >= cell->n_admitted) {
                kernels->mark_at_most(s->farthest, cell->n, FLT_MAX, bits);
                return;
        }
        const dci_rank last = dci_select(kernels, s->farthest, cell->n, count, s->kept, s->order);
        const size_t ties = count - last.n_less;
        if (ties == last.n_equal) {
                kernels->mark_at_most(s->farthest, cell->n, last.value, bits);
                return;
        }
        if (last.value > 0.0f)
                kernels->mark_at_most(s->farthest, cell->n, nextafterf(last.value, -INFINITY), bits);
        size_t n = 0;
        for (size_t i = 0; i < cell->n; i++)
                if (s->farthest[i] == last.value)
                        s->keys[n++] = dci_topk_key(0.0f, (int32_t)i, true);
        sort_by_id(cell, s, n);
        for (size_t i = 0; i < ties; i++) {
                size_t slot = (size_t)dci_topk_slot(s->keys[i]);
                bits[slot / 64] |= UINT64_C(1) << (slot % 64);
        }
}

void dci_pdci_candidates(const dci_pdci_cell *cell, const float *projections, const dci_pdci_effort *effort,
                         void *scratch, uint64_t *bits)
{
        pdci_scratch s;
        lay_out(scratch, cell->n, &s);
        for (size_t c = 0; c < cell->n_comp; c++) {
                const size_t first = c * cell->n_simp;
                measure(cell, projections, first, cell->n_simp, s.farthest);
                size_t count = completed(cell, projections, first, effort->visit, &s);
                count = count < effort->retrieve ? count : effort->retrieve;
                count = count > effort->at_least ? count : effort->at_least;
                mark_first(cell, count < cell->n_admitted ? count : cell->n_admitted, &s, bits);
        }
}

/* Largest differences over the simple indices from `first` on, of every step-th block of rows; returns how many. */
static size_t measure_some(const dci_pdci_cell *cell, const float *projections, size_t first, size_t step, int32_t self,
                           float *out)
{
        size_t at = 0, n = 0, slot = 0;
        for (size_t r = 0; r < cell->n_runs; at += cell->runs[r++].n) {
                const dci_pdci_run *run = &cell->runs[r];
                for (; slot < at + run->n; slot += step * SHARE_BLOCK) {
                        const size_t left = at + run->n - slot, count = left < SHARE_BLOCK ? left : SHARE_BLOCK;
                        cell->kernels->farthest(run->projections + first * run->stride + (slot - at), run->stride,
                                                cell->n_simp, projections + first,
                                                cell->weights == NULL ? NULL : cell->weights + first,
                                                cell->lifts == NULL ? NULL : cell->lifts + slot, count, out + n);
                        for (size_t i = slot; cell->admitted != NULL && i < slot + count; i++)
                                if ((cell->admitted[i / 64] >> (i % 64) & 1) == 0)
                                        out[n + i - slot] = INFINITY;
                        if (self >= 0 && (size_t)self >= slot && (size_t)self < slot + count)
                                out[n + (size_t)self - slot] = INFINITY;
                        n += count;
                }
        }
        return n;
}

/* The same of one row. */
static float measure_one(const dci_pdci_cell *cell, const float *projections, size_t first, size_t slot)
{
        const dci_pdci_run *run = cell->runs;
        size_t offset = slot;
        float out;
        for (; offset >= run->n; run++)
                offset -= run->n;
        cell->kernels->farthest(run->projections + first * run->stride + offset, run->stride, cell->n_simp,
                                projections + first, cell->weights == NULL ? NULL : cell->weights + first,
                                cell->lifts == NULL ? NULL : cell->lifts + slot, 1, &out);
        return out;
}

void dci_pdci_shares(const dci_pdci_cell *cell, const float *projections, const int32_t *slots, size_t m, int32_t self,
                     void *scratch, float *out)
{
        pdci_scratch s;
        const size_t step = cell->n < 2 * SHARE_ROWS ? 1 : cell->n / SHARE_ROWS;
        const float n_rows = (float)cell->n_admitted;
        lay_out(scratch, cell->n, &s);
        for (size_t c = 0; c < cell->n_comp; c++) {
                float limits[DCI_COUNT_LIMITS];
                size_t places[DCI_COUNT_LIMITS];
                const size_t n = measure_some(cell, projections, c * cell->n_simp, step, self, s.farthest);
                for (size_t i = 0; i < m; i++)
                        limits[i] = measure_one(cell, projections, c * cell->n_simp, (size_t)slots[i]);
                dci_count_at_most(cell->kernels, s.farthest, n, limits, m, s.kept, s.order, places);
                for (size_t i = 0; i < m; i++) { /* of a sample, the row itself comes on top */
                        const float place = (float)(places[i] * step + (step > 1));
                        const float share = place < n_rows ? place / n_rows : 1.0f;
                        out[i] = c == 0 || share < out[i] ? share : out[i];
                }
        }
}
