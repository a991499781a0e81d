/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Importance: how much attention the last queries give to each candidate (PRKV, algorithm 1, lines 6 to 8). Where the instruction set
 * has the approximate softmax (simd/softmax/softmax.h), products are of bytes: importance only ranks tokens, and an error of some
 * hundredths of a logit in one query of many reorders nothing but near ties. Otherwise, and where products might overflow, they are of
 * floats.
 *
 * Bytes lose least when no coordinate of a row is much larger than the others. So the mean key is subtracted, which does not change a
 * softmax, and each coordinate is divided by sqrt(key / query) in keys and multiplied by it in queries (root mean squares of both),
 * which makes it equally large in both.
 */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "core/arena.h"
#include "kv/stages/importance.h"
#include "kv/stages/reorder.h"
#include "simd/softmax/softmax.h"

#define FLOAT_QUERIES ((size_t)16) /* whose scores are kept at a time, for one pass over the keys */
#define BYTE_QUERIES ((size_t)32)
#define SAMPLE ((size_t)512) /* keys that say where their middle is, and how large coordinates are */
#define PROBES ((size_t)8)   /* tiles that say where to expect a query's greatest score */
#define LOG2_E 1.44269504f
#define MIN_PART 0x1p-10  /* of the mean over coordinates: what one counts at least */
#define MAX_SCORE 0x1p24f /* which floats still tell from one a unit away */

typedef struct weighing {
        const dci_softmax_kernels *kernels; /* NULL: by floats */
        float *queries;                     /* ring * group x dim */
        float *scores;                      /* FLOAT_QUERIES x n: what the other way works with, and nothing else */
        double *sums, *squares;             /* dim */
        float *centre, *inverse, *factor;
        float *wide; /* a tile of keys */
        uint8_t *tiles;
        float *steps; /* of rows */
        int8_t *bytes;
        int32_t *start;
        float *scale, *shift, *weights, *sum, *most;
        uint16_t *terms; /* [tile][BYTE_QUERIES / 2][DCI_SOFTMAX_ROWS][2] */
        size_t n_tiles, units;
} weighing;

static size_t rounded(size_t n, size_t to)
{
        return (n + to - 1) / to * to;
}

static size_t smaller(size_t a, size_t b)
{
        return a < b ? a : b;
}

/* What follows the queries is floats' or bytes': the one begins where the other has given up. */
static size_t lay_out(const dci_kv *kv, size_t n, void *memory, weighing *out)
{
        const size_t dim = kv->dim_k, total = kv->config.ring * kv->group, units = dci_softmax_units(dim);
        const size_t all = rounded(total, DCI_SOFTMAX_QUERIES), some = smaller(all, BYTE_QUERIES);
        const dci_softmax_kernels *kernels = dci_softmax_kernels_for(kv->context);
        const size_t by = kernels != NULL, n_tiles = by * ((n + DCI_SOFTMAX_ROWS - 1) / DCI_SOFTMAX_ROWS);
        const size_t lanes = by * some * DCI_SOFTMAX_LANES * sizeof(float);
        const dci_arena_part floats[] = {{total * dim * sizeof(float), &out->queries},
                                         {smaller(total, FLOAT_QUERIES) * n * sizeof(float), &out->scores}};
        const dci_arena_part parts[] = {{total * dim * sizeof(float), &out->queries},
                                        {by * dim * sizeof(double), &out->sums},
                                        {by * dim * sizeof(double), &out->squares},
                                        {by * dim * sizeof(float), &out->centre},
                                        {by * dim * sizeof(float), &out->inverse},
                                        {by * dim * sizeof(float), &out->factor},
                                        {by * DCI_SOFTMAX_ROWS * dim * sizeof(float), &out->wide},
                                        {n_tiles * units * 4 * DCI_SOFTMAX_ROWS, &out->tiles},
                                        {n_tiles * DCI_SOFTMAX_ROWS * sizeof(float), &out->steps},
                                        {by * all * units * 4, &out->bytes},
                                        {by * all * sizeof(int32_t), &out->start},
                                        {by * all * sizeof(float), &out->scale},
                                        {by * all * sizeof(float), &out->shift},
                                        {by * all * sizeof(float), &out->weights},
                                        {lanes, &out->sum},
                                        {lanes, &out->most},
                                        {n_tiles * some * DCI_SOFTMAX_ROWS * sizeof(uint16_t), &out->terms}};
        *out = (weighing){.kernels = kernels, .n_tiles = n_tiles, .units = units};
        const size_t in_floats = DCI_ARENA(floats, memory), in_bytes = DCI_ARENA(parts, memory);
        return in_bytes > in_floats ? in_bytes : in_floats;
}

size_t dci_kv_importance_bytes(const dci_kv *kv, size_t n)
{
        weighing parts;
        return lay_out(kv, n, NULL, &parts);
}

size_t dci_kv_importance_room(size_t n)
{
        return rounded(n, DCI_SOFTMAX_ROWS);
}

/* --- by floats ---------------------------------------------------------------------------------------------------- */

/* The scores of some queries over all n keys; a tile of keys serves all of them while it is near. */
static void score(const dci_kv *kv, const float *queries, size_t n_queries, const unsigned char *keys, size_t n,
                  float *out)
{
        const size_t dim = kv->dim_k;
        const void *rows[DCI_KV_TILE];
        for (size_t i = 0; i < n; i += DCI_KV_TILE) {
                const size_t here = n - i < DCI_KV_TILE ? n - i : DCI_KV_TILE;
                for (size_t r = 0; r < here; r++)
                        rows[r] = keys + (i + r) * dim * kv->es;
                for (size_t q = 0; q < n_queries; q += DCI_MANY_QUERIES) {
                        const size_t left = n_queries - q;
                        kv->context->kernels->score_many[kv->config.dtype - 1][DCI_FORM_DOT](
                                queries + q * dim, dim, left < DCI_MANY_QUERIES ? left : DCI_MANY_QUERIES, rows, here,
                                dim, out + q * n + i, n);
                }
        }
}

static void by_floats(const dci_kv *kv, const weighing *w, size_t n_queries, const unsigned char *keys, size_t n,
                      float *out)
{
        const dci_kernels *kernels = kv->context->kernels;
        for (size_t q = 0, here; q < n_queries; q += here) {
                const void *rows[FLOAT_QUERIES];
                float shares[FLOAT_QUERIES];
                here = smaller(n_queries - q, FLOAT_QUERIES);
                score(kv, w->queries + q * kv->dim_k, here, keys, n, w->scores);
                for (size_t i = 0; i < here; i++) {
                        float *scores = w->scores + i * n;
                        rows[i] = scores;
                        shares[i] = 1.0f / kernels->exp_all(scores, n, kernels->greatest(scores, n));
                }
                kernels->add_rows[DCI_F32 - 1](rows, shares, here, n, out);
        }
}

/* --- by bytes ----------------------------------------------------------------------------------------------------- */

/* Root mean squares of n rows about their means, which go to `middle` (NULL: about 0). */
static void spread_of(const weighing *w, size_t n, size_t dim, float *middle, float *out)
{
        double mean = 0.0;
        for (size_t j = 0; j < dim; j++) {
                const double m = middle != NULL ? w->sums[j] / (double)n : 0.0;
                const double s = sqrt(fmax(w->squares[j] / (double)n - m * m, 0.0));
                if (middle != NULL)
                        middle[j] = (float)m;
                out[j] = (float)s;
                mean += s / (double)dim;
        }
        for (size_t j = 0; j < dim; j++)
                out[j] = fmaxf(out[j], fmaxf((float)(MIN_PART * mean), 0x1p-60f));
}

static void add_squares(const weighing *w, const float *rows, size_t n, size_t dim)
{
        for (size_t i = 0; i < n; i++)
                for (size_t j = 0; j < dim; j++) {
                        const double x = (double)rows[i * dim + j];
                        w->sums[j] += x;
                        w->squares[j] += x * x;
                }
}

/* Centre, factor and its inverse, from keys that are evenly spread and from all queries. */
static void level_coordinates(const dci_kv *kv, const weighing *w, size_t n_queries, const unsigned char *keys,
                              size_t n)
{
        const size_t dim = kv->dim_k, n_sample = smaller(n, SAMPLE);
        memset(w->sums, 0, dim * sizeof *w->sums);
        memset(w->squares, 0, dim * sizeof *w->squares);
        add_squares(w, w->queries, n_queries, dim);
        spread_of(w, n_queries, dim, NULL, w->factor);
        memset(w->sums, 0, dim * sizeof *w->sums);
        memset(w->squares, 0, dim * sizeof *w->squares);
        for (size_t i = 0; i < n_sample; i++) {
                const unsigned char *row = keys + i * n / n_sample * dim * kv->es;
                kv->context->kernels->to_f32[kv->config.dtype - 1](row, dim, w->wide);
                add_squares(w, w->wide, 1, dim);
        }
        spread_of(w, n_sample, dim, w->centre, w->inverse);
        for (size_t j = 0; j < dim; j++) {
                w->factor[j] = sqrtf(w->inverse[j] / w->factor[j]);
                w->inverse[j] = 1.0f / w->factor[j];
        }
}

/* Returns the greatest step. */
static float pack_keys(const dci_kv *kv, const weighing *w, const unsigned char *keys, size_t n)
{
        const size_t dim = kv->dim_k;
        for (size_t t = 0; t < w->n_tiles; t++) {
                const size_t at = t * DCI_SOFTMAX_ROWS, here = smaller(n - at, DCI_SOFTMAX_ROWS);
                const size_t ahead = smaller(n - at - here, DCI_SOFTMAX_ROWS) * dim * kv->es;
                for (size_t b = 0; b < ahead; b += DCI_CACHE_LINE)
                        DCI_PREFETCH(keys + (at + here) * dim * kv->es + b);
                kv->context->kernels->to_f32[kv->config.dtype - 1](keys + at * dim * kv->es, here * dim, w->wide);
                w->kernels->pack(w->wide, here, dim, w->centre, w->inverse, w->tiles + at * w->units * 4,
                                 w->steps + at);
        }
        return kv->context->kernels->greatest(w->steps, n);
}

/* Those that are missing to a whole number of them are zeros, and weigh nothing. Returns the greatest step. */
static float pack_queries(const weighing *w, size_t n_queries, size_t dim)
{
        const size_t all = rounded(n_queries, DCI_SOFTMAX_QUERIES), width = w->units * 4;
        float greatest = 0.0f;
        memset(w->bytes, 0, all * width);
        for (size_t q = 0; q < all; q++) {
                const float *query = w->queries + q * dim;
                float most = 0.0f;
                int32_t sum = 0;
                for (size_t j = 0; j < dim && q < n_queries; j++)
                        most = fmaxf(most, fabsf(query[j] * w->factor[j]));
                const float step = most / 127.0f;
                for (size_t j = 0; j < dim && step > 0x1p-120f; j++) {
                        const long b = lrintf(query[j] * w->factor[j] / step);
                        w->bytes[q * width + j] = (int8_t)b;
                        sum += (int32_t)b;
                }
                w->start[q] = -128 * sum;
                w->scale[q] = step * LOG2_E;
                greatest = fmaxf(greatest, step);
        }
        return greatest;
}

static void clear(const dci_softmax *softmax)
{
        for (size_t i = 0; i < softmax->n_queries * DCI_SOFTMAX_LANES; i++) {
                softmax->sum[i] = 0.0f;
                softmax->most[i] = -INFINITY;
        }
}

/* The distance of a query's greatest score from its shift, whose terms it belongs to. */
static float max_of(const dci_softmax *softmax, size_t q)
{
        float most = -INFINITY;
        for (size_t l = 0; l < DCI_SOFTMAX_LANES; l++)
                most = fmaxf(most, softmax->most[q * DCI_SOFTMAX_LANES + l]);
        return most;
}

/* Terms of some queries, first with the greatest score that a few tiles have for theirs; if that is too far from what it is for all of
 * them, which is known then, again. */
static void make_terms(const weighing *w, const dci_softmax *softmax, size_t n, float *shift)
{
        const dci_softmax_kernels *kernels = w->kernels;
        const size_t n_probes = smaller(w->n_tiles, PROBES), ld = softmax->n_queries * DCI_SOFTMAX_ROWS;
        memset(shift, 0, softmax->n_queries * sizeof *shift);
        clear(softmax);
        for (size_t i = 0; i < n_probes; i++) {
                const size_t at = i * w->n_tiles / n_probes * DCI_SOFTMAX_ROWS;
                kernels->terms(softmax, w->tiles + at * w->units * 4, w->steps + at, smaller(n - at, DCI_SOFTMAX_ROWS),
                               w->terms);
        }
        for (bool again = true; again;) {
                again = false;
                for (size_t q = 0; q < softmax->n_queries; q++)
                        shift[q] += max_of(softmax, q);
                clear(softmax);
                for (size_t t = 0; t < w->n_tiles; t++) {
                        const size_t at = t * DCI_SOFTMAX_ROWS;
                        kernels->terms(softmax, w->tiles + at * w->units * 4, w->steps + at,
                                       smaller(n - at, DCI_SOFTMAX_ROWS), w->terms + t * ld);
                }
                for (size_t q = 0; q < softmax->n_queries; q++)
                        again = again || fabsf(max_of(softmax, q)) > DCI_SOFTMAX_RANGE;
        }
}

/* False where numbers are too large for it. */
static bool by_bytes(const dci_kv *kv, const weighing *w, size_t n_queries, const unsigned char *keys, size_t n,
                     float *out)
{
        if (w->kernels == NULL)
                return false;
        if (n_queries == 0)
                return true;
        level_coordinates(kv, w, n_queries, keys, n);
        const float key_step = pack_keys(kv, w, keys, n), query_step = pack_queries(w, n_queries, kv->dim_k);
        if (!(key_step * query_step * LOG2_E * 127.0f * 127.0f * (float)kv->dim_k < MAX_SCORE))
                return false;
        const size_t all = rounded(n_queries, DCI_SOFTMAX_QUERIES);
        for (size_t q = 0, here; q < all; q += here) {
                here = smaller(all - q, BYTE_QUERIES);
                const dci_softmax softmax = {.bytes = w->bytes + q * w->units * 4,
                                             .start = w->start + q,
                                             .scale = w->scale + q,
                                             .shift = w->shift + q,
                                             .sum = w->sum,
                                             .most = w->most,
                                             .n_queries = here,
                                             .units = w->units};
                make_terms(w, &softmax, n, w->shift + q);
                for (size_t i = 0; i < here; i++) {
                        float sum = 0.0f;
                        for (size_t l = 0; l < DCI_SOFTMAX_LANES; l++)
                                sum += w->sum[i * DCI_SOFTMAX_LANES + l];
                        w->weights[q + i] = q + i < n_queries ? 1.0f / sum : 0.0f;
                }
                for (size_t t = 0; t < w->n_tiles; t++)
                        w->kernels->add(w->terms + t * here * DCI_SOFTMAX_ROWS, w->weights + q, here,
                                        out + t * DCI_SOFTMAX_ROWS);
        }
        return true;
}

void dci_kv_importance(const dci_kv *kv, const dci_kv_layer *layer, size_t head, const unsigned char *keys, size_t n,
                       void *work, float *out)
{
        weighing w;
        lay_out(kv, n, work, &w);
        const size_t n_queries = dci_kv_ring_queries(kv, layer, head, w.queries);
        memset(out, 0, dci_kv_importance_room(n) * sizeof *out);
        if (!by_bytes(kv, &w, n_queries, keys, n, out))
                by_floats(kv, &w, n_queries, keys, n, out);
}
