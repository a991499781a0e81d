/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "core/internal.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "simd/nearest.h"

#define BLOCK DCI_NEAREST_BLOCK
#define GROUPS (BLOCK / DCI_LANES)
#define TILE_CENTRES 128 /* multiplied at a time */

/* Points that are compared with a tile of centres while that is near: as many as fit in a part of the second cache. */
#define MAX_POINTS 256
#define POINT_BYTES ((size_t)256 << 10)

static size_t padded(size_t n, size_t to)
{
        return (n + to - 1) / to * to;
}

static size_t points_at_once(size_t dim_padded)
{
        const size_t n = POINT_BYTES / (dim_padded * sizeof(float)) / BLOCK * BLOCK;
        return n < BLOCK ? BLOCK : n > MAX_POINTS ? MAX_POINTS : n;
}

size_t dci_nearest_bytes(const dci_context *context, size_t capacity, size_t dim)
{
        size_t packed = dci_amx_for(context) == NULL ? 0 : padded(capacity, 32) * padded(dim, 32) * sizeof(uint16_t);
        return dci_lines(padded(capacity, 32) * sizeof(float)) + dci_lines(packed);
}

/* Of n points that are ready: lengths, what was lost, and the points as the products want them. */
static size_t packed_bytes(bool amx, size_t n, size_t dim)
{
        return dci_lines(2 * n * sizeof(float)) +
               padded(n, BLOCK) * (amx ? padded(dim, 32) * sizeof(uint16_t) : dim * sizeof(float));
}

/* A centre that may be the nearest of a point, by its proposed score. */
typedef struct proposal {
        float score;
        int32_t centre, point;
} proposal;
#define MAX_PROPOSALS 4096

/* Parts of a worker's scratch. */
typedef struct parts {
        float *products;
        uint32_t *hit_rows, *hit_bits;
        proposal *proposals;
        void *points; /* dci_nearest_points of those that are not packed yet */
        size_t total;
} parts;

static parts lay_out(const dci_nearest *nearest, unsigned char *at)
{
        const size_t n = points_at_once(nearest->dim_padded);
        const size_t sizes[] = {TILE_CENTRES * BLOCK * sizeof(float), (TILE_CENTRES + 1) * sizeof(uint32_t),
                                (TILE_CENTRES + 1) * sizeof(uint32_t), MAX_PROPOSALS * sizeof(proposal),
                                packed_bytes(nearest->amx != NULL, n, nearest->dim)};
        unsigned char *part[5];
        size_t total = 0;
        for (int i = 0; i < 5; i++) {
                part[i] = at == NULL ? NULL : at + total;
                total += dci_lines(sizes[i]);
        }
        return (parts){(void *)part[0], (void *)part[1], (void *)part[2], (void *)part[3], part[4], total};
}

size_t dci_nearest_scratch_bytes(const dci_context *context, size_t dim)
{
        const dci_nearest nearest = {.amx = dci_amx_for(context), .dim = dim, .dim_padded = padded(dim, 32)};
        return lay_out(&nearest, NULL).total;
}

/* From above: of a length whose square was computed in binary32. */
static float length_bound(float squared, size_t dim)
{
        float slack = 1.0f + ((float)dim / 16.0f + 16.0f) * 0x1p-23f;
        return sqrtf(squared) * slack + sqrtf((float)dim) * 0x1p-74f;
}

void dci_nearest_init(const dci_context *context, const float *centres, size_t ld, size_t capacity, size_t dim,
                      void *memory, dci_nearest *out)
{
        *out = (dci_nearest){.kernels = context->kernels, .amx = dci_amx_for(context), .centres = centres, .ld = ld};
        out->dim = dim;
        out->capacity = padded(capacity, 32);
        out->dim_padded = padded(dim, 32);
        out->offsets = memory;
        out->packed = out->amx == NULL
                              ? NULL
                              : (void *)((unsigned char *)memory + dci_lines(out->capacity * sizeof *out->offsets));
        for (size_t c = 0; c < out->capacity; c++)
                out->offsets[c] = INFINITY;
        if (out->packed != NULL)
                memset(out->packed, 0, out->capacity * out->dim_padded * sizeof *out->packed);
}

static void put(dci_nearest *nearest, size_t i, const float *offset)
{
        const float *centre = nearest->centres + i * nearest->ld;
        const float norm2 = nearest->kernels->norm2[DCI_F32 - 1](centre, nearest->dim);
        const float length = length_bound(norm2, nearest->dim);
        nearest->offsets[i] = offset == NULL ? 0.5f * norm2 : *offset;
        nearest->highest = fmaxf(nearest->highest, fabsf(nearest->offsets[i]));
        nearest->longest = fmaxf(nearest->longest, length);
        if (nearest->amx == NULL)
                return;
        float ignored;
        const float lost2 =
                nearest->amx->pack_row(centre, nearest->dim, nearest->dim_padded,
                                       nearest->packed + dci_amx_row(i, nearest->dim_padded), DCI_AMX_STEP, &ignored);
        nearest->lost = fmaxf(nearest->lost, length_bound(lost2, nearest->dim));
}

void dci_nearest_put(dci_nearest *nearest, size_t i)
{
        put(nearest, i, NULL);
}

void dci_nearest_put_offset(dci_nearest *nearest, size_t i, float offset)
{
        put(nearest, i, &offset);
}

void dci_nearest_close(dci_nearest *nearest, size_t i)
{
        nearest->offsets[i] = INFINITY;
}

void dci_nearest_resize(dci_nearest *nearest, size_t n)
{
        for (size_t i = n; i < nearest->n; i++)
                nearest->offsets[i] = INFINITY;
        nearest->n = n;
}

void dci_nearest_move(const dci_context *context, const dci_nearest *nearest, const float *centres, size_t capacity,
                      void *memory, dci_nearest *out)
{
        dci_nearest_init(context, centres, nearest->ld, capacity, nearest->dim, memory, out);
        out->n = nearest->n;
        out->longest = nearest->longest;
        out->lost = nearest->lost;
        out->highest = nearest->highest;
        out->by_distance = nearest->by_distance;
        memcpy(out->offsets, nearest->offsets, nearest->n * sizeof *out->offsets);
        if (out->packed != NULL)
                memcpy(out->packed, nearest->packed, padded(nearest->n, 16) * out->dim_padded * sizeof *out->packed);
}

void dci_nearest_prepare(const dci_context *context, const float *centres, size_t ld, size_t n, size_t dim,
                         void *memory, dci_nearest *out)
{
        dci_nearest_init(context, centres, ld, n, dim, memory, out);
        out->n = n;
        for (size_t c = 0; c < n; c++)
                dci_nearest_put(out, c);
}

size_t dci_nearest_points_bytes(const dci_context *context, size_t n, size_t dim)
{
        return packed_bytes(dci_amx_for(context) != NULL, n, dim);
}

void dci_nearest_points_init(const dci_context *context, const float *points, size_t ld, size_t n, size_t dim,
                             void *memory, dci_nearest_points *out)
{
        *out = (dci_nearest_points){
                .kernels = context->kernels, .amx = dci_amx_for(context), .points = points, .ld = ld};
        out->n = n;
        out->dim = dim;
        out->dim_padded = padded(dim, 32);
        out->lengths = memory;
        out->lost = out->lengths + n;
        out->packed = (unsigned char *)memory + dci_lines(2 * n * sizeof(float));
}

/* Rounds point i and places it among those of its block, a piece at a time. */
#define PIECE ((size_t)512)
static void place_point(const dci_nearest_points *points, size_t i)
{
        uint16_t one[PIECE];
        float lost2 = 0.0f, norm2 = 0.0f;
        uint16_t *group = (uint16_t *)points->packed + i / DCI_LANES * DCI_LANES * points->dim_padded;
        for (size_t p = 0; p < points->dim; p += PIECE) {
                const size_t dim = points->dim - p < PIECE ? points->dim - p : PIECE;
                float piece2;
                lost2 += points->amx->pack_row(points->points + i * points->ld + p, dim, padded(dim, 32), one, 32,
                                               &piece2);
                norm2 += piece2;
                points->amx->place_query(one, padded(dim, 32), i % DCI_LANES, group + p * DCI_LANES);
        }
        points->lengths[i] = length_bound(norm2, points->dim);
        points->lost[i] = length_bound(lost2, points->dim);
}

void dci_nearest_points_pack(const dci_nearest_points *points, size_t first, size_t n)
{
        const size_t end = first + n;
        if (points->amx != NULL) {
                if (end % BLOCK != 0) /* blocks are multiplied whole */
                        memset((uint16_t *)points->packed + end / BLOCK * BLOCK * points->dim_padded, 0,
                               BLOCK * points->dim_padded * sizeof(uint16_t));
                for (size_t i = first; i < end; i++)
                        place_point(points, i);
                return;
        }
        for (size_t i = first; i < end; i++) {
                const float norm2 = points->kernels->norm2[DCI_F32 - 1](points->points + i * points->ld, points->dim);
                points->lengths[i] = length_bound(norm2, points->dim);
                points->lost[i] = 0.0f;
        }
        for (size_t i = first; i < end; i += BLOCK)
                points->kernels->pack_columns(points->points + i * points->ld, points->ld,
                                              end - i < BLOCK ? end - i : BLOCK, points->dim,
                                              (float *)points->packed + i * points->dim);
}

/* Some points on their way. */
typedef struct search {
        const dci_nearest *nearest;
        const dci_nearest_points *points;
        size_t first, n_points;
        parts scratch;
        bool scores; /* wanted: every best one is computed by the canonical kernel */
        size_t n_proposals;
        uint16_t kept[MAX_POINTS]; /* proposals of a point that the last filter kept */
        /* by point: the best proposed score; how far it may be off, twice; the best canonical score and its centre */
        float proposed[MAX_POINTS], slack[MAX_POINTS], best[MAX_POINTS];
        int32_t at[MAX_POINTS];
} search;

/* |product - what the canonical kernel computes| is at most this for every centre (terms: index/flat/batch.c). */
static float error_bound(const dci_nearest *s, float length, float lost)
{
        const float dim = (float)s->dim;
        const float gamma = (2.0f * dim + dim / 16.0f + 160.0f) * 0x1p-24f;
        /* Half of what the canonical distance and |centre|^2 lose: both sum as many squares, none beyond far^2. */
        const float far = length + s->longest;
        const float distance = s->by_distance ? (dim / 8.0f + 16.0f) * 0x1p-24f * far * far : 0.0f;
        return lost * s->longest + (length + lost) * s->lost + gamma * (length + lost) * (s->longest + s->lost) +
               dim * 0x1p-120f * (1.0f + length + s->longest) + 0x1p-22f * fmaxf(s->longest * s->longest, s->highest) +
               distance;
}

static void take_points(search *s)
{
        const dci_nearest *nearest = s->nearest;
        const dci_nearest_points *points = s->points;
        for (size_t i = 0; i < s->n_points; i++) {
                s->slack[i] = 2.0f * error_bound(nearest, points->lengths[s->first + i], points->lost[s->first + i]);
                s->proposed[i] = s->best[i] = -INFINITY;
                s->at[i] = 0;
        }
        for (size_t i = s->n_points; i % BLOCK != 0; i++)
                s->proposed[i] = s->slack[i] = 0.0f; /* read, never used */
}

static void multiply(const search *s, size_t block, size_t first, size_t n_centres)
{
        const dci_nearest *nearest = s->nearest;
        if (nearest->amx != NULL)
                nearest->amx->products(nearest->packed + first * nearest->dim_padded, padded(n_centres, 32),
                                       nearest->dim_padded,
                                       (const uint16_t *)s->points->packed + (s->first + block) * nearest->dim_padded,
                                       GROUPS, s->scratch.products, BLOCK);
        else
                nearest->kernels->products(nearest->centres + first * nearest->ld, nearest->ld, n_centres,
                                           (const float *)s->points->packed + (s->first + block) * nearest->dim,
                                           nearest->dim, s->scratch.products);
}

/* Drops proposals that a better one excludes, and counts what each point keeps. */
static void filter(search *s)
{
        size_t kept = 0;
        memset(s->kept, 0, sizeof s->kept);
        for (size_t i = 0; i < s->n_proposals; i++) {
                const proposal p = s->scratch.proposals[i];
                const bool keep = !(p.score < s->proposed[p.point] - s->slack[p.point]);
                s->scratch.proposals[kept] = p;
                kept += keep;
                s->kept[p.point] = (uint16_t)(s->kept[p.point] + keep);
        }
        s->n_proposals = kept;
}

/* The canonical kernel decides, unless nothing is left to decide. Centres ascend by point: of equal ones the lower
 * stays. */
static void settle(search *s)
{
        const dci_nearest *nearest = s->nearest;
        for (size_t i = 0; i < s->n_proposals; i++) {
                const int32_t point = s->scratch.proposals[i].point, centre = s->scratch.proposals[i].centre;
                const float *row = nearest->centres + (size_t)centre * nearest->ld;
                float score;
                if (!s->scores && s->kept[point] == 1 && s->best[point] == -INFINITY) {
                        s->at[point] = centre;
                        continue;
                }
                nearest->kernels->score_strided[DCI_F32 - 1][nearest->by_distance ? DCI_FORM_L2 : DCI_FORM_DOT](
                        s->points->points + (s->first + (size_t)point) * s->points->ld, row, nearest->ld * sizeof *row,
                        1, nearest->dim, &score);
                score = nearest->by_distance ? -score : score - nearest->offsets[centre];
                if (score > s->best[point]) {
                        s->best[point] = score;
                        s->at[point] = centre;
                }
        }
        s->n_proposals = 0;
}

static void propose(search *s, size_t block, size_t centre, uint32_t bits)
{
        const float offset = s->nearest->offsets[centre];
        const float *products = s->scratch.products + centre % TILE_CENTRES * BLOCK;
        if (s->n_proposals + BLOCK > MAX_PROPOSALS) {
                filter(s);
                if (s->n_proposals > MAX_PROPOSALS / 2) {
                        memset(s->kept, 0xff, sizeof s->kept); /* others may follow: all are scored */
                        settle(s);
                }
        }
        for (; bits != 0; bits &= bits - 1) {
                int32_t point = dci_lowest_bit(bits);
                s->scratch.proposals[s->n_proposals++] =
                        (proposal){products[point] - offset, (int32_t)centre, (int32_t)block + point};
        }
}

/* One tile of centres and one block of points: raises what is the best so far, and enters those that may be as good. */
static void scan_tile(search *s, size_t block, size_t first, size_t n_centres)
{
        const dci_nearest *nearest = s->nearest;
        const size_t n_here = s->n_points - block < BLOCK ? s->n_points - block : BLOCK;
        const uint32_t there = (uint32_t)((UINT64_C(1) << n_here) - 1);
        float best[BLOCK], thresholds[BLOCK];
        multiply(s, block, first, n_centres);
        nearest->kernels->columns_best(s->scratch.products, BLOCK, n_centres, BLOCK, nearest->offsets + first, best);
        for (size_t i = 0; i < BLOCK; i++) {
                float *proposed = s->proposed + block + i;
                *proposed = best[i] > *proposed ? best[i] : *proposed;
                /* Above the -infinity of closed centres, also where all so far are closed. */
                const float least = *proposed - s->slack[block + i];
                thresholds[i] = least > -FLT_MAX ? least : -FLT_MAX;
        }
        const size_t n_hits = nearest->kernels->rows_hit(s->scratch.products, n_centres, nearest->offsets + first,
                                                         thresholds, s->scratch.hit_rows, s->scratch.hit_bits);
        for (size_t i = 0; i < n_hits; i++) {
                const uint32_t bits = s->scratch.hit_bits[i] & there;
                if (bits != 0)
                        propose(s, block, first + s->scratch.hit_rows[i], bits);
        }
}

static void find_some(search *s, int32_t *out, float *out_score)
{
        const dci_nearest *nearest = s->nearest;
        s->n_proposals = 0;
        s->scores = out_score != NULL;
        take_points(s);
        if (nearest->amx != NULL)
                nearest->amx->begin();
        for (size_t c = 0; c < nearest->n; c += TILE_CENTRES)
                for (size_t block = 0; block < s->n_points; block += BLOCK)
                        scan_tile(s, block, c, nearest->n - c < TILE_CENTRES ? nearest->n - c : TILE_CENTRES);
        if (nearest->amx != NULL)
                nearest->amx->end();
        filter(s);
        settle(s);
        memcpy(out, s->at, s->n_points * sizeof *out);
        if (out_score != NULL)
                memcpy(out_score, s->best, s->n_points * sizeof *out_score);
}

void dci_nearest_find_packed(const dci_nearest *nearest, const dci_nearest_points *points, size_t first, size_t n,
                             void *scratch, int32_t *out, float *out_score)
{
        const size_t at_once = points_at_once(nearest->dim_padded);
        search s = {.nearest = nearest, .points = points, .scratch = lay_out(nearest, scratch)};
        for (size_t i = 0; i < n; i += at_once) {
                s.first = first + i;
                s.n_points = n - i < at_once ? n - i : at_once;
                find_some(&s, out + i, out_score == NULL ? NULL : out_score + i);
        }
}

void dci_nearest_find(const dci_nearest *nearest, const float *points, size_t ld, size_t n_points, void *scratch,
                      int32_t *out, float *out_score)
{
        const size_t at_once = points_at_once(nearest->dim_padded);
        search s = {.nearest = nearest, .scratch = lay_out(nearest, scratch)};
        for (size_t i = 0; i < n_points; i += at_once) {
                dci_nearest_points some = {.kernels = nearest->kernels, .amx = nearest->amx, .ld = ld};
                s.n_points = n_points - i < at_once ? n_points - i : at_once;
                some.points = points + i * ld;
                some.n = s.n_points;
                some.dim = nearest->dim;
                some.dim_padded = nearest->dim_padded;
                some.lengths = s.scratch.points;
                some.lost = some.lengths + at_once;
                some.packed = (unsigned char *)s.scratch.points + dci_lines(2 * at_once * sizeof(float));
                s.points = &some;
                dci_nearest_points_pack(&some, 0, s.n_points);
                find_some(&s, out + i, out_score == NULL ? NULL : out_score + i);
        }
}
