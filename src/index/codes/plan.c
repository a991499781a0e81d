/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * A plan for the codes of all rows, from a sample of blocks: one centre, or several where blocks of rows are about places of their
 * own, and the directions that are worth more as floats than their bytes are as codes.
 *
 * With D elements, 4 bytes of a float are 32 / D bits of code for each, which lower the error of a code by 4^(-32 / D). So m
 * directions are worth it where less than 4^(-32 m / D) of the rows' energy is left without them; and, so that rows without a
 * dominant direction are as small and as fast to scan as they can be, only if they also leave less than 1 / 4, or each of them takes
 * more than 1 / 4 of what is left.
 */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "core/arena.h"
#include "index/codes/plan.h"

/* Rows of a sample, fewer where they are long, and of one block. */
#define MAX_ROWS ((size_t)1024)
#define MIN_ROWS ((size_t)64)
#define MAX_FLOATS ((size_t)1 << 20)
#define BLOCK_SAMPLE ((size_t)8)
/* Rows that directions are computed from, and rounds of it. */
#define DIRECTION_ROWS ((size_t)256)
#define DIRECTION_ROUNDS 5
#define CENTRE_ROUNDS 4
/* What more centres than fewer, but more than one, must gain. */
#define MORE_CENTRES_GAIN 1.5

typedef struct sample {
        const dci_kernels *kernels;
        size_t dim, n, n_blocks;
        float *rows;              /* n x dim: relative to the mean, in units of their deviation */
        float *rest;              /* the same, as far as a plan goes */
        float *directions, *sums; /* DCI_MAX_KEPT x dim */
        float *centres;           /* DCI_PLAN_CENTRES x dim */
        float *means;             /* of blocks: n_blocks x dim */
        double *mean;             /* dim */
        float *kept, *common;     /* DCI_MAX_KEPT x dim; dim: the rows' mean of length 1 */
        size_t *block;            /* of a row */
        uint8_t *centre;          /* of a block */
        double unit, variance;
        bool has_common; /* IP: the rows' mean is kept */
} sample;

static size_t lay_out(size_t dim, size_t n, void *memory, sample *s)
{
        const dci_arena_part parts[] = {{n * dim * sizeof(float), &s->rows},
                                        {n * dim * sizeof(float), &s->rest},
                                        {DCI_MAX_KEPT * dim * sizeof(float), &s->directions},
                                        {DCI_MAX_KEPT * dim * sizeof(float), &s->sums},
                                        {DCI_PLAN_CENTRES * dim * sizeof(float), &s->centres},
                                        {(n / BLOCK_SAMPLE + 1) * dim * sizeof(float), &s->means},
                                        {dim * sizeof(double), &s->mean},
                                        {DCI_MAX_KEPT * dim * sizeof(float), &s->kept},
                                        {dim * sizeof(float), &s->common},
                                        {n * sizeof(size_t), &s->block},
                                        {n, &s->centre}};
        return DCI_ARENA(parts, memory);
}

/* --- the sample ------------------------------------------------------------------------------------------------------------------ */

/* Takes up to `most` rows, some of each of blocks that are evenly spread: rows and their blocks, and how their codes are now. */
static void take(const dci_rows *rows, size_t most, sample *s, double *out_present)
{
        dci_rows *of = (dci_rows *)(uintptr_t)rows;
        const size_t n_slots = atomic_load(&of->n), all = (n_slots + DCI_CODE_ROWS - 1) / DCI_CODE_ROWS;
        const size_t n_blocks = all < most / BLOCK_SAMPLE ? all : most / BLOCK_SAMPLE;
        const size_t share = n_blocks == 0 ? 0 : most / n_blocks, each = share < DCI_CODE_ROWS ? share : DCI_CODE_ROWS;
        double present = 0.0;
        s->n = s->n_blocks = 0;
        for (size_t b = 0; b < n_blocks; b++) {
                size_t offset, slot = b * all / n_blocks * DCI_CODE_ROWS, taken = 0;
                const dci_chunk *chunk = dci_rows_chunk(of, slot, &offset);
                for (size_t r = 0; r < DCI_CODE_ROWS && taken < each && offset + r < chunk->capacity; r++) {
                        if (!dci_rows_holds(rows, chunk, slot + r, offset + r, n_slots))
                                continue;
                        present += dci_codes_present_square(rows, chunk, offset + r, s->rest);
                        dci_rows_floats(rows, chunk, offset + r, s->rows + s->n * s->dim);
                        s->block[s->n++] = s->n_blocks;
                        taken++;
                }
                s->n_blocks += taken > 0;
        }
        *out_present = s->n == 0 ? 0.0 : present / (double)s->n;
}

/* Rows become relative to their mean, in units of their deviation, so that no square vanishes or overflows. */
static void normalise(sample *s)
{
        const size_t dim = s->dim;
        double sum = 0.0;
        memset(s->mean, 0, dim * sizeof *s->mean);
        for (size_t i = 0; i < s->n; i++)
                for (size_t j = 0; j < dim; j++)
                        s->mean[j] += (double)s->rows[i * dim + j];
        for (size_t j = 0; j < dim; j++)
                s->mean[j] /= (double)s->n;
        for (size_t i = 0; i < s->n; i++)
                for (size_t j = 0; j < dim; j++) {
                        const double here = (double)s->rows[i * dim + j] - s->mean[j];
                        sum += here * here;
                }
        s->variance = sum / (double)s->n;
        s->unit = s->variance > 0.0 ? sqrt(s->variance) : 1.0;
        for (size_t i = 0; i < s->n; i++)
                for (size_t j = 0; j < dim; j++)
                        s->rows[i * dim + j] = (float)(((double)s->rows[i * dim + j] - s->mean[j]) / s->unit);
}

/* --- directions -------------------------------------------------------------------------------------------------------------------- */

static double dot(const float *a, const float *b, size_t n)
{
        double sum = 0.0;
        for (size_t j = 0; j < n; j++)
                sum += (double)a[j] * (double)b[j];
        return sum;
}

/* Twice, because what is left of the first time may be small. False if nothing is left of it. */
static bool make_orthonormal(const float *before, size_t n_before, size_t dim, float *direction)
{
        const double length2 = dot(direction, direction, dim);
        for (int again = 0; again < 2; again++)
                for (size_t i = 0; i < n_before; i++) {
                        const double here = dot(before + i * dim, direction, dim);
                        for (size_t j = 0; j < dim; j++)
                                direction[j] -= (float)here * before[i * dim + j];
                }
        const double left2 = dot(direction, direction, dim);
        if (!(left2 > 1e-8 * length2) || !isfinite(left2))
                return false;
        const double inverse = 1.0 / sqrt(left2);
        for (size_t j = 0; j < dim; j++)
                direction[j] = (float)((double)direction[j] * inverse);
        return true;
}

/* What rows lose with a direction. */
static void take_away(float *rows, size_t n, size_t dim, const float *direction)
{
        for (size_t i = 0; i < n; i++) {
                const float here = (float)dot(rows + i * dim, direction, dim);
                for (size_t j = 0; j < dim; j++)
                        rows[i * dim + j] -= here * direction[j];
        }
}

/* One round of subspace iteration over every step-th row; directions become orthonormal. Returns how many there are. */
static size_t iterate(sample *s, size_t n_directions, size_t step)
{
        const size_t dim = s->dim;
        memset(s->sums, 0, n_directions * dim * sizeof *s->sums);
        for (size_t i = 0; i < s->n; i += step) {
                float products[DCI_MAX_KEPT];
                const float *row = s->rest + i * dim;
                s->kernels->score_strided[DCI_F32 - 1][DCI_FORM_DOT](row, s->directions, dim * sizeof *row,
                                                                     n_directions, dim, products);
                for (size_t d = 0; d < n_directions; d++)
                        for (size_t j = 0; j < dim; j++)
                                s->sums[d * dim + j] += products[d] * row[j];
        }
        size_t n = 0;
        for (size_t d = 0; d < n_directions; d++) {
                memmove(s->directions + n * dim, s->sums + d * dim, dim * sizeof *s->sums);
                n += make_orthonormal(s->directions, n, dim, s->directions + n * dim);
        }
        return n;
}

/* How many of the directions to keep; left[m]: the share of energy without the first m of them. */
static size_t count_kept(size_t dim, const double *left, size_t n_directions)
{
        size_t each = 0, together = 0;
        double best = 1.0;
        while (each < n_directions && left[each] > 0.0 && 1.0 - left[each + 1] / left[each] > dci_plan_least_share(dim))
                each++;
        for (size_t m = 1; m <= n_directions; m++) {
                const double worth = left[m] * exp2(64.0 * (double)m / (double)dim);
                if (left[m] < DCI_PLAN_DOMINANT && worth < best) {
                        best = worth;
                        together = m;
                }
        }
        return each > together ? each : together;
}

/* The directions to keep of rows (`rest`, which loses them) whose energy is `energy`; they come after those that are kept already.
 * */
static void find_directions(sample *s, double energy, float *kept, size_t *n_kept)
{
        const size_t dim = s->dim, step = s->n / DIRECTION_ROWS + 1, room = DCI_MAX_KEPT - *n_kept;
        double left[DCI_MAX_KEPT + 1] = {1.0};
        size_t n = 0;
        for (size_t d = 0; d < room && d < s->n && d + 1 < dim; d++) {
                memcpy(s->directions + n * dim, s->rest + d * s->n / room % s->n * dim, dim * sizeof *s->rest);
                n += make_orthonormal(s->directions, n, dim, s->directions + n * dim);
        }
        for (int round = 0; round < DIRECTION_ROUNDS && n > 0; round++)
                n = iterate(s, n, step);
        if (n == 0 || !(energy > 0.0))
                return;
        float *away = s->sums; /* one row at a time */
        double sums[DCI_MAX_KEPT] = {0.0}, sum = 0.0;
        for (size_t i = 0; i < s->n; i += step) {
                sum += dot(s->rest + i * dim, s->rest + i * dim, dim);
                memcpy(away, s->rest + i * dim, dim * sizeof *away);
                for (size_t d = 0; d < n; d++) {
                        take_away(away, 1, dim, s->directions + d * dim);
                        sums[d] += dot(away, away, dim);
                }
        }
        for (size_t d = 0; d < n; d++)
                left[d + 1] = sum > 0.0 ? sums[d] / sum : 1.0;
        const size_t more = count_kept(dim, left, n);
        for (size_t d = 0; d < more; d++) {
                float *to = kept + *n_kept * dim;
                memcpy(to, s->directions + d * dim, dim * sizeof *to);
                if (!make_orthonormal(kept, *n_kept, dim, to))
                        continue;
                take_away(s->rest, s->n, dim, to);
                ++*n_kept;
        }
}

/* --- centres ----------------------------------------------------------------------------------------------------------------------- */

static double energy_of(const float *rows, size_t n, size_t dim)
{
        return n == 0 ? 0.0 : dot(rows, rows, n * dim) / (double)n;
}

/* The means of blocks of `rows`. */
static void mean_blocks(sample *s, const float *rows)
{
        const size_t dim = s->dim;
        memset(s->means, 0, s->n_blocks * dim * sizeof *s->means);
        for (size_t i = 0, end; i < s->n; i = end) {
                float *mean = s->means + s->block[i] * dim;
                for (end = i; end < s->n && s->block[end] == s->block[i]; end++)
                        for (size_t j = 0; j < dim; j++)
                                mean[j] += rows[end * dim + j];
                for (size_t j = 0; j < dim; j++)
                        mean[j] /= (float)(end - i);
        }
}

/* The energy of `rest` about the means of its blocks. */
static double within_blocks(sample *s)
{
        double sum = 0.0;
        size_t n = s->n - s->n_blocks;
        mean_blocks(s, s->rest);
        for (size_t i = 0; i < s->n; i++)
                for (size_t j = 0; j < s->dim; j++) {
                        const double here =
                                (double)s->rest[i * s->dim + j] - (double)s->means[s->block[i] * s->dim + j];
                        sum += here * here;
                }
        return n == 0 ? INFINITY : sum / (double)n;
}

/* Gives every step-th block to the nearest of n centres. Returns the one of these that is farthest from its own. */
static size_t assign(sample *s, size_t n, size_t step)
{
        size_t farthest = 0;
        double far = -1.0;
        for (size_t b = 0; b < s->n_blocks; b += step) {
                double least = INFINITY;
                for (size_t c = 0; c < n; c++) {
                        const double here = dci_codes_distance2(s->means + b * s->dim, s->centres + c * s->dim, s->dim);
                        if (here < least) {
                                least = here;
                                s->centre[b] = (uint8_t)c;
                        }
                }
                if (least > far) {
                        far = least;
                        farthest = b;
                }
        }
        return farthest;
}

static void move_centres(sample *s, size_t n)
{
        for (size_t c = 0; c < n; c++) {
                float *to = s->centres + c * s->dim;
                size_t count = 0;
                memset(to, 0, s->dim * sizeof *to);
                for (size_t b = 0; b < s->n_blocks; b += 2)
                        for (size_t j = 0; s->centre[b] == c && j < s->dim; j++)
                                to[j] += s->means[b * s->dim + j];
                for (size_t b = 0; b < s->n_blocks; b += 2)
                        count += s->centre[b] == c;
                for (size_t j = 0; j < s->dim && count > 0; j++)
                        to[j] /= (float)count;
        }
}

/* k-means over the means of every other block, from n_before centres to n; the others tell what they are worth. */
static void find_centres(sample *s, size_t n_before, size_t n)
{
        for (size_t c = n_before; c < n; c++)
                memcpy(s->centres + c * s->dim, s->means + assign(s, c, 2) * s->dim, s->dim * sizeof *s->centres);
        for (int round = 0; round < CENTRE_ROUNDS; round++) {
                assign(s, n, 2);
                move_centres(s, n);
        }
        assign(s, n, 1);
}

/* --- the plan ---------------------------------------------------------------------------------------------------------------------- */

/* IP: the direction of the mean, if it is long enough to be kept. */
static void keep_common(sample *s, bool product)
{
        double square = 0.0;
        for (size_t j = 0; j < s->dim; j++)
                square += s->mean[j] * s->mean[j];
        const double rest = s->variance / (square + s->variance);
        s->has_common = product && square > 0.0 && rest < fmin(exp2(-64.0 / (double)s->dim), DCI_PLAN_DOMINANT_MEAN);
        for (size_t j = 0; s->has_common && j < s->dim; j++)
                s->common[j] = (float)(s->mean[j] / sqrt(square));
}

/* A plan with n centres, of which blocks have theirs. Returns its energy, of several centres that of the blocks that they were not
 * made of. */
static double plan_for(sample *s, size_t n, size_t *n_kept, double *energies)
{
        const size_t dim = s->dim;
        size_t counts[DCI_PLAN_CENTRES] = {0};
        for (size_t i = 0; i < s->n; i++)
                for (size_t j = 0; j < dim; j++)
                        s->rest[i * dim + j] =
                                s->rows[i * dim + j] - (n == 1 ? 0.0f : s->centres[s->centre[s->block[i]] * dim + j]);
        *n_kept = 0;
        if (s->has_common) {
                memcpy(s->kept, s->common, dim * sizeof *s->kept);
                take_away(s->rest, s->n, dim, s->kept);
                *n_kept = 1;
        }
        find_directions(s, energy_of(s->rest, s->n, dim), s->kept, n_kept);
        double sum = 0.0;
        size_t n_counted = 0;
        memset(energies, 0, n * sizeof *energies);
        for (size_t i = 0; i < s->n; i++) {
                const size_t c = n == 1 ? 0 : s->centre[s->block[i]];
                const double here = dot(s->rest + i * dim, s->rest + i * dim, dim);
                energies[c] += here;
                counts[c]++;
                if (n > 1 && s->block[i] % 2 == 0)
                        continue;
                sum += here;
                n_counted++;
        }
        for (size_t c = 0; c < n; c++)
                energies[c] /= counts[c] == 0 ? 1.0 : (double)counts[c];
        return n_counted == 0 ? 0.0 : sum / (double)n_counted;
}

/* Whether the frames lack the common direction. */
static bool misses_common(const dci_frames *frames, const float *common)
{
        double there = 0.0;
        for (size_t i = 0; i < frames->n_kept; i++) {
                const double here = dot(frames->kept + i * frames->dim, common, frames->dim);
                there += here * here;
        }
        return there < 0.9;
}

static void enter(const sample *s, size_t n, size_t n_kept, double energy, const double *energies, dci_codes_plan *out)
{
        const double unit2 = s->unit * s->unit;
        out->n_centres = n;
        out->n_kept = n_kept;
        out->energy = energy * unit2;
        memcpy(out->kept, s->kept, n_kept * s->dim * sizeof *s->kept);
        for (size_t c = 0; c < n; c++) {
                out->energies[c] = (float)(energies[c] * unit2);
                for (size_t j = 0; j < s->dim; j++)
                        out->centres[c * s->dim + j] =
                                (float)(s->mean[j] + (n == 1 ? 0.0 : s->unit * (double)s->centres[c * s->dim + j]));
        }
}

static void make(sample *s, const dci_rows *rows, size_t max_centres, dci_codes_plan *out)
{
        double energies[DCI_PLAN_CENTRES], best = INFINITY, within = 0.0;
        normalise(s);
        keep_common(s, rows->metric == DCI_METRIC_IP);
        memset(s->centres, 0, s->dim * sizeof *s->centres);
        double one = INFINITY;
        for (size_t n = 1; n <= max_centres && (n == 1 || n < s->n_blocks / 2) && within * DCI_PLAN_CENTRES_GAIN < one;
             n *= 2) {
                size_t n_kept;
                if (n > 1)
                        find_centres(s, n / 2, n);
                const double energy = plan_for(s, n, &n_kept, energies);
                if (n == 1) {
                        one = energy;
                        within = within_blocks(s);
                        mean_blocks(s, s->rows);
                } else if (energy * DCI_PLAN_CENTRES_GAIN > one || energy * MORE_CENTRES_GAIN > best) {
                        continue;
                }
                best = energy;
                enter(s, n, n_kept, energy, energies, out);
        }
        out->misses = s->has_common && misses_common(&rows->codes->frames, s->common);
}

/* Rows of a sample. */
static size_t sample_rows(size_t dim, size_t n)
{
        size_t most = MAX_FLOATS / dim;
        most = most > MAX_ROWS ? MAX_ROWS : (most < MIN_ROWS ? MIN_ROWS : most);
        return n < most ? (n < BLOCK_SAMPLE ? BLOCK_SAMPLE : n) : most;
}

static size_t plan_floats(const dci_rows *rows)
{
        return (DCI_PLAN_CENTRES + DCI_MAX_KEPT) * rows->dim;
}

dci_status dci_codes_plan_make(const dci_rows *rows, size_t n, size_t max_centres, dci_codes_plan *out)
{
        const size_t most = sample_rows(rows->dim, n);
        sample s = {.kernels = rows->context->kernels, .dim = rows->dim};
        const size_t n_bytes = lay_out(rows->dim, most, NULL, &s);
        void *memory = dci_alloc(rows->context, n_bytes, 1);
        *out = (dci_codes_plan){.centres = dci_alloc(rows->context, plan_floats(rows), sizeof *out->centres)};
        dci_status status = memory == NULL || out->centres == NULL ? DCI_ERR_MEMORY : DCI_OK;
        if (status == DCI_OK) {
                out->kept = out->centres + DCI_PLAN_CENTRES * rows->dim;
                lay_out(rows->dim, most, memory, &s);
                take(rows, most, &s, &out->present);
                make(&s, rows, max_centres, out);
        } else {
                dci_codes_plan_free(rows, out);
        }
        dci_free(rows->context, memory, n_bytes, 1);
        return status;
}

void dci_codes_plan_free(const dci_rows *rows, dci_codes_plan *plan)
{
        dci_free(rows->context, plan->centres, plan_floats(rows), sizeof *plan->centres);
        plan->centres = NULL;
}
