/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* A quick look at a few rows: whether a plan for the codes of all of them could be worth it. */
#include "core/internal.h"

#include "core/arena.h"
#include "index/codes/look.h"

double dci_codes_distance2(const float *a, const float *b, size_t n)
{
        double sum = 0.0;
        for (size_t j = 0; j < n; j++)
                sum += ((double)a[j] - (double)b[j]) * ((double)a[j] - (double)b[j]);
        return sum;
}

double dci_codes_present_square(const dci_rows *rows, const dci_chunk *chunk, size_t offset, float *rest)
{
        const size_t n = atomic_load(&rows->codes->frames.n);
        const size_t frame =
                n == 0 ? DCI_NO_FRAME : chunk->area.frames[offset / DCI_CODE_ROWS]; /* they may have no codes yet */
        float kept[DCI_MAX_KEPT];
        double least = INFINITY;
        if (frame < n)
                return (double)dci_rows_place(rows, chunk, offset, frame, rest, kept);
        for (size_t f = 0; f < n; f++)
                least = fmin(least, (double)dci_rows_place(rows, chunk, offset, f, rest, kept));
        return least;
}

/* Blocks of a quick look, and rows of each. */
#define LOOK_BLOCKS ((size_t)32)
#define LOOK_EACH ((size_t)2)
#define LOOK_ROWS (LOOK_BLOCKS * LOOK_EACH)
/* How much of the least sum of squared shares of energy that dominant directions make is worth a plan, as a look sees few rows; and
 * how much longer than usual a row may be that is one of a few. */
#define DOMINANT_SQUARES 0.9
#define LONE 10.0

typedef struct look {
        float *rows;  /* LOOK_ROWS x dim */
        double *mean; /* dim */
        size_t n, n_pairs;
        double energy, longest, within, common;
} look;

static void take_look(const dci_rows *rows, look *out, double *out_present)
{
        dci_rows *of = (dci_rows *)(uintptr_t)rows;
        const size_t n_slots = atomic_load(&of->n), all = (n_slots + DCI_CODE_ROWS - 1) / DCI_CODE_ROWS,
                     dim = rows->dim;
        const size_t n_blocks = all < LOOK_BLOCKS ? all : LOOK_BLOCKS;
        double present = 0.0, within = 0.0;
        for (size_t b = 0; b < n_blocks; b++) {
                size_t offset, taken = 0;
                const size_t slot = b * all / n_blocks * DCI_CODE_ROWS;
                const dci_chunk *chunk = dci_rows_chunk(of, slot, &offset);
                for (size_t r = 0; r < DCI_CODE_ROWS && taken < LOOK_EACH && offset + r < chunk->capacity; r++) {
                        float *to = out->rows + out->n * dim;
                        if (!dci_rows_holds(rows, chunk, slot + r, offset + r, n_slots))
                                continue;
                        present += dci_codes_present_square(rows, chunk, offset + r, to);
                        dci_rows_floats(rows, chunk, offset + r, to);
                        taken++;
                        out->n++;
                }
                if (taken == LOOK_EACH) {
                        within += 0.5 * dci_codes_distance2(out->rows + (out->n - 2) * dim,
                                                            out->rows + (out->n - 1) * dim, dim);
                        out->n_pairs++;
                }
        }
        out->within = out->n_pairs == 0 ? INFINITY : within / (double)out->n_pairs;
        *out_present = out->n == 0 ? 0.0 : present / (double)out->n;
}

/* Rows become relative to their mean; energies are those about it. */
static void centre_look(look *l, size_t dim)
{
        memset(l->mean, 0, dim * sizeof *l->mean);
        for (size_t i = 0; i < l->n; i++)
                for (size_t j = 0; j < dim; j++)
                        l->mean[j] += (double)l->rows[i * dim + j];
        for (size_t j = 0; j < dim; j++) {
                l->mean[j] /= (double)l->n;
                l->common += l->mean[j] * l->mean[j];
        }
        for (size_t i = 0; i < l->n; i++) {
                double here = 0.0;
                for (size_t j = 0; j < dim; j++) {
                        l->rows[i * dim + j] = (float)((double)l->rows[i * dim + j] - l->mean[j]);
                        here += (double)l->rows[i * dim + j] * (double)l->rows[i * dim + j];
                }
                l->energy += here / (double)l->n;
                l->longest = here > l->longest ? here : l->longest;
        }
}

/* The sum of squared shares of energy of all directions, from products of rows of different blocks: neighbours are alike. */
static double squared_shares(const dci_kernels *kernels, const look *l, size_t dim)
{
        float products[LOOK_ROWS];
        double sum = 0.0;
        size_t n_products = 0;
        for (size_t i = 0; i + LOOK_EACH < l->n; i++) {
                const size_t first = i + LOOK_EACH, n = l->n - first;
                kernels->score_strided[DCI_F32 - 1][DCI_FORM_DOT](l->rows + i * dim, l->rows + first * dim,
                                                                  dim * sizeof(float), n, dim, products);
                for (size_t j = 0; j < n; j++) {
                        const double here = (double)products[j] / l->energy;
                        sum += here * here;
                }
                n_products += n;
        }
        return n_products == 0 ? 0.0 : sum / (double)n_products;
}

/* One direction that is kept, or several that leave less than a part of DCI_PLAN_DOMINANT. */
static double least_squares(size_t dim)
{
        const double one = dci_plan_least_share(dim), together = 1.0 - DCI_PLAN_DOMINANT;
        return fmin(one * one, together * together / (double)DCI_MAX_KEPT);
}

/* Few squares in sight: of rows that small or that large products say nothing, so that a plan is made. */
static bool is_ordinary(const dci_rows *rows, const look *l, double present)
{
        if (!(l->energy > 0x1p-60) || !(l->energy < 0x1p60) || l->n < LOOK_ROWS / 2)
                return false;
        if (rows->metric == DCI_METRIC_IP && l->energy < DCI_PLAN_DOMINANT_MEAN * (l->common + l->energy))
                return false;
        return present <= 1.3 * l->energy && l->longest <= LONE * l->energy &&
               l->within * DCI_PLAN_CENTRES_GAIN > l->energy &&
               squared_shares(rows->context->kernels, l, rows->dim) <= DOMINANT_SQUARES * least_squares(rows->dim);
}

dci_status dci_codes_plan_wanted(const dci_rows *rows, bool *out_wanted, double *out_present)
{
        const size_t dim = rows->dim;
        look l = {0};
        const dci_arena_part parts[] = {{LOOK_ROWS * dim * sizeof(float), &l.rows}, {dim * sizeof(double), &l.mean}};
        const size_t n_bytes = DCI_ARENA(parts, NULL);
        void *memory = dci_alloc(rows->context, n_bytes, 1);
        if (memory == NULL)
                return DCI_ERR_MEMORY;
        (void)DCI_ARENA(parts, memory);
        take_look(rows, &l, out_present);
        centre_look(&l, dim);
        *out_wanted = !is_ordinary(rows, &l, *out_present);
        dci_free(rows->context, memory, n_bytes, 1);
        return DCI_OK;
}
