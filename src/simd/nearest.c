/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "simd/nearest.h"

#define GROUPS (DCI_NEAREST_POINTS / DCI_LANES)
#define TILE_CENTRES 128 /* multiplied at a time */

static size_t padded(size_t n, size_t to)
{
        return (n + to - 1) / to * to;
}

size_t dci_nearest_bytes(const dci_context *context, size_t capacity, size_t dim)
{
        size_t packed = dci_amx_for(context) == NULL ? 0 : padded(capacity, 32) * padded(dim, 32) * sizeof(uint16_t);
        return dci_lines(padded(capacity, 32) * sizeof(float)) + dci_lines(packed);
}

/* A centre that may be the nearest of a point, by its proposed score. */
typedef struct proposal {
        float score;
        int32_t centre, point;
} proposal;
#define MOST_PROPOSALS 2048

/* Of one tile: products and hits; then proposals, packed points, one packed point. */
size_t dci_nearest_scratch_bytes(const dci_nearest *nearest)
{
        return TILE_CENTRES * DCI_NEAREST_POINTS * sizeof(float) + TILE_CENTRES * GROUPS * sizeof(uint16_t) +
               MOST_PROPOSALS * sizeof(proposal) + (DCI_NEAREST_POINTS + 1) * nearest->dim_padded * sizeof(uint16_t);
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

void dci_nearest_put(dci_nearest *nearest, size_t i)
{
        const float *centre = nearest->centres + i * nearest->ld;
        const float norm2 = nearest->kernels->norm2[DCI_F32 - 1](centre, nearest->dim);
        const float length = length_bound(norm2, nearest->dim);
        nearest->offsets[i] = 0.5f * norm2;
        nearest->longest = length > nearest->longest ? length : nearest->longest;
        if (nearest->amx == NULL)
                return;
        float ignored;
        const float lost2 = nearest->amx->pack_row(centre, nearest->dim, nearest->dim_padded,
                                                   nearest->packed + i * nearest->dim_padded, &ignored);
        const float lost = length_bound(lost2, nearest->dim);
        nearest->lost = lost > nearest->lost ? lost : nearest->lost;
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
        memcpy(out->offsets, nearest->offsets, nearest->n * sizeof *out->offsets);
        if (out->packed != NULL)
                memcpy(out->packed, nearest->packed, nearest->n * out->dim_padded * sizeof *out->packed);
}

void dci_nearest_prepare(const dci_context *context, const float *centres, size_t ld, size_t n, size_t dim,
                         void *memory, dci_nearest *out)
{
        dci_nearest_init(context, centres, ld, n, dim, memory, out);
        out->n = n;
        for (size_t c = 0; c < n; c++)
                dci_nearest_put(out, c);
}

/* 32 points on their way. */
typedef struct search {
        const dci_nearest *nearest;
        const float *points;
        size_t ld, n_points;
        float *products; /* [centre of the tile][point] */
        uint16_t *hits, *packed;
        proposal *proposals;
        size_t n_proposals;
        /* by point: the best proposed score; how far it may be off, twice; the best canonical score and its centre */
        float proposed[DCI_NEAREST_POINTS], slack[DCI_NEAREST_POINTS], best[DCI_NEAREST_POINTS];
        int32_t at[DCI_NEAREST_POINTS];
} search;

/* |product - what the canonical kernel computes| is at most this for every centre (see flat_batch.c for the terms). */
static float error_bound(const dci_nearest *s, float length, float lost)
{
        const float dim = (float)s->dim;
        const float gamma = (2.0f * dim + dim / 16.0f + 160.0f) * 0x1p-24f;
        return lost * s->longest + (length + lost) * s->lost + gamma * (length + lost) * (s->longest + s->lost) +
               dim * 0x1p-120f * (1.0f + length + s->longest) + 0x1p-22f * s->longest * s->longest;
}

static void take_points(search *s)
{
        const dci_nearest *nearest = s->nearest;
        uint16_t *one = s->packed + DCI_NEAREST_POINTS * nearest->dim_padded;
        for (size_t i = 0; i < DCI_NEAREST_POINTS; i++) {
                float ignored, lost = 0.0f;
                const float *point = s->points + i * s->ld;
                const bool there = i < s->n_points;
                if (nearest->amx != NULL) {
                        if (there)
                                lost = length_bound(
                                        nearest->amx->pack_row(point, nearest->dim, nearest->dim_padded, one, &ignored),
                                        nearest->dim);
                        else
                                memset(one, 0, nearest->dim_padded * sizeof *one);
                        nearest->amx->place_query(one, nearest->dim_padded, i % DCI_LANES,
                                                  s->packed + i / DCI_LANES * DCI_LANES * nearest->dim_padded);
                }
                float norm2 = there ? nearest->kernels->norm2[DCI_F32 - 1](point, nearest->dim) : 0.0f;
                s->slack[i] = 2.0f * error_bound(nearest, length_bound(norm2, nearest->dim), lost);
                s->proposed[i] = s->best[i] = -INFINITY;
                s->at[i] = 0;
        }
        if (nearest->amx == NULL) /* a matrix product leaves the columns of missing points as they are */
                memset(s->products, 0, TILE_CENTRES * DCI_NEAREST_POINTS * sizeof *s->products);
}

static void multiply(search *s, size_t first, size_t n_centres)
{
        const dci_nearest *nearest = s->nearest;
        if (nearest->amx != NULL)
                nearest->amx->products(nearest->packed + first * nearest->dim_padded, padded(n_centres, 32),
                                       nearest->dim_padded, s->packed, GROUPS, s->products, DCI_NEAREST_POINTS);
        else
                dci_gemm_nt(n_centres, s->n_points, nearest->dim, nearest->centres + first * nearest->ld, nearest->ld,
                            s->points, s->ld, s->products, DCI_NEAREST_POINTS);
}

/* Drops proposals that a better one excludes. */
static void filter(search *s)
{
        size_t kept = 0;
        for (size_t i = 0; i < s->n_proposals; i++) {
                const proposal p = s->proposals[i];
                s->proposals[kept] = p;
                kept += !(p.score < s->proposed[p.point] - s->slack[p.point]);
        }
        s->n_proposals = kept;
}

/* The canonical kernel decides. Centres ascend by point, so that equal ones keep the lower. */
static void settle(search *s)
{
        const dci_nearest *nearest = s->nearest;
        for (size_t i = 0; i < s->n_proposals; i++) {
                const int32_t point = s->proposals[i].point, centre = s->proposals[i].centre;
                const float *row = nearest->centres + (size_t)centre * nearest->ld;
                float score;
                nearest->kernels->score_strided[DCI_F32 - 1][DCI_FORM_DOT](
                        s->points + (size_t)point * s->ld, row, nearest->ld * sizeof *row, 1, nearest->dim, &score);
                score -= nearest->offsets[centre];
                if (score > s->best[point]) {
                        s->best[point] = score;
                        s->at[point] = centre;
                }
        }
        s->n_proposals = 0;
}

static void propose(search *s, size_t centre, uint32_t bits)
{
        const float offset = s->nearest->offsets[centre];
        const float *products = s->products + centre % TILE_CENTRES * DCI_NEAREST_POINTS;
        if (s->n_proposals + DCI_NEAREST_POINTS > MOST_PROPOSALS) {
                filter(s);
                if (s->n_proposals > MOST_PROPOSALS / 2)
                        settle(s);
        }
        for (; bits != 0; bits &= bits - 1) {
                int32_t point = dci_lowest_bit(bits);
                s->proposals[s->n_proposals++] = (proposal){products[point] - offset, (int32_t)centre, point};
        }
}

/* One tile of centres: raises what is the best so far, and enters those that may be as good. */
static void scan_tile(search *s, size_t first, size_t n_centres)
{
        const dci_nearest *nearest = s->nearest;
        const uint32_t there = (uint32_t)((UINT64_C(1) << s->n_points) - 1);
        float best[DCI_NEAREST_POINTS], thresholds[DCI_NEAREST_POINTS];
        multiply(s, first, n_centres);
        nearest->kernels->columns_best(s->products, DCI_NEAREST_POINTS, n_centres, DCI_NEAREST_POINTS,
                                       nearest->offsets + first, best);
        for (size_t i = 0; i < DCI_NEAREST_POINTS; i++) {
                s->proposed[i] = best[i] > s->proposed[i] ? best[i] : s->proposed[i];
                thresholds[i] = s->proposed[i] - s->slack[i];
        }
        nearest->kernels->tile_hits(s->products, DCI_NEAREST_POINTS, n_centres, GROUPS, nearest->offsets + first,
                                    thresholds, s->hits);
        for (size_t c = 0; c < n_centres; c++) {
                uint32_t bits = (s->hits[2 * c] | (uint32_t)s->hits[2 * c + 1] << 16) & there;
                if (bits != 0)
                        propose(s, first + c, bits);
        }
}

static void find_some(search *s, int32_t *out, float *out_score)
{
        const dci_nearest *nearest = s->nearest;
        s->n_proposals = 0;
        take_points(s);
        if (nearest->amx != NULL)
                nearest->amx->begin();
        for (size_t c = 0; c < nearest->n; c += TILE_CENTRES)
                scan_tile(s, c, nearest->n - c < TILE_CENTRES ? nearest->n - c : TILE_CENTRES);
        if (nearest->amx != NULL)
                nearest->amx->end();
        filter(s);
        settle(s);
        memcpy(out, s->at, s->n_points * sizeof *out);
        if (out_score != NULL)
                memcpy(out_score, s->best, s->n_points * sizeof *out_score);
}

void dci_nearest_find(const dci_nearest *nearest, const float *points, size_t ld, size_t n_points, void *scratch,
                      int32_t *out, float *out_score)
{
        unsigned char *at = scratch;
        search s = {.nearest = nearest, .ld = ld};
        s.products = (float *)(void *)at;
        at += TILE_CENTRES * DCI_NEAREST_POINTS * sizeof *s.products;
        s.hits = (uint16_t *)(void *)at;
        at += TILE_CENTRES * GROUPS * sizeof *s.hits;
        s.packed = (uint16_t *)(void *)at;
        at += (DCI_NEAREST_POINTS + 1) * nearest->dim_padded * sizeof *s.packed;
        s.proposals = (proposal *)(void *)at;
        for (size_t i = 0; i < n_points; i += DCI_NEAREST_POINTS) {
                s.points = points + i * ld;
                s.n_points = n_points - i < DCI_NEAREST_POINTS ? n_points - i : DCI_NEAREST_POINTS;
                find_some(&s, out + i, out_score == NULL ? NULL : out_score + i);
        }
}
