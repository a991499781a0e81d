/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Fifth stage: what is not chosen is attended to by low-bit keys, whose scores the choice has computed, and low-bit values: centred,
 * rotated, in even steps with one scale per row.
 *
 * Values are summed by the same readers that score keys, with the parts of rows and coordinates exchanged: a block holds BLOCK tokens as
 * if they were the coordinates of 32 rows, the value's coordinates. Weights of tokens take the place of a query, as 14-bit numbers in two
 * bytes, so sums are exact integers but for the rounding of weights to 2^-14 of the largest of their block. Of a head in a chunk:
 *
 *      [block of BLOCK tokens][32 coordinates]: codes;  DCI_KV_CHUNK scales as bf16
 */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "core/arena.h"
#include "kv/chunk.h"
#include "kv/stages/stages.h"
#include "kv/transform.h"
#include "simd/codes/transpose.h"
#include "simd/convert.h"
#include "sketch/frames.h"

#define BLOCK ((size_t)128) /* tokens */
#define NEGLIGIBLE 0x1p-30f /* a weight relative to the best token's, which is 1 */

static size_t coordinate_blocks(const dci_kv *kv)
{
        return (kv->dim_v + DCI_CODE_ROWS - 1) / DCI_CODE_ROWS;
}

/* 32 coordinates of BLOCK tokens. */
static size_t block_bytes(const dci_kv *kv)
{
        return DCI_CODE_ROWS * BLOCK * (size_t)kv->config.value_bits / 8;
}

static size_t codes_bytes(const dci_kv *kv)
{
        return DCI_KV_CHUNK / BLOCK * coordinate_blocks(kv) * block_bytes(kv);
}

static size_t bytes(const dci_kv *kv)
{
        return codes_bytes(kv) + DCI_KV_CHUNK * sizeof(uint16_t);
}

static size_t units_of(const dci_kv *kv)
{
        return coordinate_blocks(kv) * 2;
}

static void make_layout(const dci_kv *kv, dci_code_layout *out)
{
        const int bits = (int)kv->config.value_bits, section = bits == 8 ? DCI_CODE_8 : 5 - bits;
        memset(out, 0, sizeof *out);
        out->n_coords[section] = BLOCK;
        out->even[section] = true;
        dci_code_layout_finish(out);
}

/* The scale that brings codes nearest to the value: coders give the one that leaves their error at right angles to it. With z the
 * levels, y the value and a = |y|^2 / y.z, that is y.z / |z|^2 = a |y|^2 / |a z|^2. */
static float nearest_scale(const dci_coded_row *row)
{
        const float reach2 = row->reach * row->reach, square = reach2 - row->residual * row->residual;
        if (isinf(reach2)) /* a row and a centre so long, and apart; both scales are nearly the same */
                return row->scale;
        return reach2 > 0.0f && square > 0.0f ? row->scale * (square / reach2) : 0.0f;
}

static size_t put_bytes(const dci_kv *kv)
{
        return dci_lines(dci_coder_encode_bytes(kv->dim_v, false)) +
               dci_lines(dci_frames_block_bytes(kv->dim_v, kv->config.value_bits));
}

/* Tokens [first, end) of a chunk, which share DCI_CODE_ROWS of them. */
static void put_rows(const dci_kv *kv, const dci_coder *coder, unsigned char *chunk, size_t first, size_t end,
                     const float *values, void *scratch)
{
        unsigned char *block = (unsigned char *)scratch + dci_lines(dci_coder_encode_bytes(kv->dim_v, false));
        uint16_t *scales = (uint16_t *)(void *)(chunk + codes_bytes(kv));
        const size_t n_bytes = coder->layout.n_bytes, base = first / DCI_CODE_ROWS * DCI_CODE_ROWS;
        const size_t line = base % BLOCK * (size_t)kv->config.value_bits / 32;
        const float *rows[DCI_CODE_ROWS] = {NULL};
        dci_coded_row coded[DCI_CODE_ROWS];
        if (end - first < DCI_CODE_ROWS) /* places without a row are read, and what was read there is dropped */
                memset(block, 0, n_bytes);
        for (size_t i = first; i < end; i++)
                rows[i - base] = values + (i - first) * kv->dim_v;
        dci_coder_encode(coder, rows, scratch, block, coded);
        for (size_t i = first; i < end; i++)
                scales[i] = dci_float_to_bf16(nearest_scale(&coded[i - base]));
        dci_code_transpose((int)kv->config.value_bits, block, n_bytes / (2 * DCI_CODE_LINE), first - base, end - base,
                           chunk + base / BLOCK * coordinate_blocks(kv) * block_bytes(kv) + 2 * line * DCI_CODE_LINE,
                           coordinate_blocks(kv), block_bytes(kv));
}

static void put(const dci_kv *kv, dci_kv_head *head, unsigned char *chunk, size_t first, size_t n, const float *keys,
                const float *values, void *scratch)
{
        (void)keys;
        for (size_t at = first, end; at < first + n; at = end) {
                end = (at / DCI_CODE_ROWS + 1) * DCI_CODE_ROWS;
                end = end < first + n ? end : first + n;
                put_rows(kv, &head->values->coder, chunk, at, end, values + (at - first) * kv->dim_v, scratch);
        }
}

typedef struct adding {
        dci_kv_query *ask;
        dci_code_layout layout;
        const dci_code_reader *reader;
        const unsigned char **units;
        int8_t *weights; /* pairs of high and low bytes, by query: BLOCK each */
        int32_t *sums;
        float *acc; /* group x coordinates */
        void *scratch;
        size_t ld; /* coordinates, rounded up to units */
} adding;

static size_t lay_out(const dci_kv *kv, void *memory, adding *out)
{
        const size_t n_units = units_of(kv), ld = n_units * DCI_CODE_UNIT;
        const dci_arena_part parts[] = {{n_units * sizeof(void *), &out->units},
                                        {DCI_CODE_QUERIES * BLOCK, &out->weights},
                                        {DCI_CODE_QUERIES * ld * sizeof(int32_t), &out->sums},
                                        {kv->group * ld * sizeof(float), &out->acc},
                                        {dci_coder_scratch_bytes(kv->dim_v), &out->scratch}};
        out->ld = ld;
        return DCI_ARENA(parts, memory);
}

static size_t work_bytes(const dci_kv *kv)
{
        adding a;
        return lay_out(kv, NULL, &a);
}

static adding parts_of(dci_kv_query *ask)
{
        adding a = {.ask = ask, .reader = ask->layer->heads[ask->head].values->coder.reader};
        make_layout(ask->kv, &a.layout);
        lay_out(ask->kv, ask->work, &a);
        return a;
}

/* One block of tokens for up to DCI_CODE_QUERIES / 2 queries. */
static void add_block(const adding *a, const unsigned char *chunk, size_t block, size_t first, size_t q,
                      size_t n_queries)
{
        const dci_kv_query *ask = a->ask;
        const dci_kv *kv = ask->kv;
        const dci_kernels *kernels = kv->context->kernels;
        const size_t left = ask->n_candidates - first, n = left < BLOCK ? left : BLOCK, n_units = units_of(kv);
        const uint16_t *narrow = (const uint16_t *)(const void *)(chunk + codes_bytes(kv)) + block * BLOCK;
        const unsigned char *codes = chunk + block * coordinate_blocks(kv) * block_bytes(kv);
        const float zero = 0.5f * (float)((1 << kv->config.value_bits) - 1);
        float worth[DCI_CODE_QUERIES / 2], scales[BLOCK];
        int64_t total[DCI_CODE_QUERIES / 2];
        bool any = false;
        for (size_t i = 0; i < n_queries; i++)
                any = any || kernels->greatest(ask->scores + (q + i) * ask->ld + first, n) > NEGLIGIBLE;
        if (!any)
                return;
        kernels->to_f32[DCI_BF16 - 1](narrow, n, scales);
        for (size_t i = 0; i < n_queries; i++) {
                int8_t *high = a->weights + 2 * i * BLOCK, *low = high + BLOCK;
                worth[i] = kernels->split_weights(ask->scores + (q + i) * ask->ld + first, scales, n, high, low,
                                                  &total[i]);
                memset(high + n, 0, BLOCK - n);
                memset(low + n, 0, BLOCK - n);
        }
        for (size_t u = 0; u < n_units; u++)
                a->units[u] = dci_code_unit(codes + u / 2 * block_bytes(kv), u % 2);
        a->reader->sums(&a->layout, a->units, n_units, a->weights, 2 * n_queries, a->sums, a->ld);
        for (size_t i = 0; i < n_queries; i++) {
                const int32_t *high = a->sums + 2 * i * a->ld, *low = high + a->ld;
                const float nothing = zero * (float)total[i];
                float *acc = a->acc + (q + i) * a->ld;
                for (size_t j = 0; j < kv->dim_v; j++)
                        acc[j] += worth[i] * ((float)(128 * high[j] + low[j]) - nothing);
        }
}

/* A block is as large as a page of memory or so, and no prefetcher goes beyond that: the next one is asked for beforehand. */
static void fetch_ahead(const dci_kv_query *ask, size_t candidate)
{
        const dci_kv *kv = ask->kv;
        if (candidate >= ask->n_candidates)
                return;
        const size_t n = coordinate_blocks(kv) * block_bytes(kv);
        const unsigned char *chunk =
                dci_kv_chunk_head(kv, ask->layer, candidate / DCI_KV_CHUNK, ask->head) + kv->summary_bytes;
        for (size_t i = 0; i < n; i += DCI_CACHE_LINE)
                DCI_PREFETCH(chunk + candidate % DCI_KV_CHUNK / BLOCK * n + i);
}

/* Side by side, so that no addition waits for the one before it. */
static double sum_of(const float *terms, size_t n)
{
        enum { LANES = 16 };
        double part[LANES] = {0.0}, sum = 0.0;
        size_t i = 0;
        for (; i + LANES <= n; i += LANES)
                for (size_t l = 0; l < LANES; l++)
                        part[l] += (double)terms[i + l];
        for (; i < n; i++)
                part[0] += (double)terms[i];
        for (size_t l = 0; l < LANES; l++)
                sum += part[l];
        return sum;
}

static void add(dci_kv_query *ask, float *out, float *lse)
{
        const dci_kv *kv = ask->kv;
        const dci_coder *coder = &ask->layer->heads[ask->head].values->coder;
        const adding a = parts_of(ask);
        float *scratch = a.scratch;
        memset(a.acc, 0, kv->group * a.ld * sizeof *a.acc);
        for (size_t q = 0; q < kv->group; q++)
                for (size_t i = 0; i < ask->n_chosen; i++)
                        ask->scores[q * ask->ld + (size_t)ask->chosen[i]] = 0.0f;
        for (size_t first = 0; first < ask->n_candidates; first += BLOCK) {
                const unsigned char *chunk = dci_kv_chunk_head(kv, ask->layer, first / DCI_KV_CHUNK, ask->head);
                fetch_ahead(ask, first + BLOCK);
                for (size_t q = 0; q < kv->group; q += DCI_CODE_QUERIES / 2)
                        add_block(&a, chunk + kv->summary_bytes, first % DCI_KV_CHUNK / BLOCK, first, q,
                                  kv->group - q < DCI_CODE_QUERIES / 2 ? kv->group - q : DCI_CODE_QUERIES / 2);
        }
        for (size_t q = 0; q < kv->group; q++) {
                const float *terms = ask->scores + q * ask->ld;
                float *to = out + q * kv->dim_v;
                const double sum = sum_of(terms, ask->n_candidates);
                lse[q] = sum > 0.0 ? ask->most[q] + (float)log(sum) : -INFINITY;
                const float inverse = sum > 0.0 ? (float)(1.0 / sum) : 0.0f;
                for (size_t j = 0; j < kv->dim_v; j++)
                        to[j] = a.acc[q * a.ld + j] * inverse;
                dci_rotate_back(&coder->rotation, to, scratch);
                for (size_t j = 0; j < kv->dim_v; j++)
                        to[j] = sum > 0.0 ? to[j] + coder->centre[j] : 0.0f;
        }
}

const dci_kv_tail dci_kv_tail_lowbit = {.kind = DCI_KV_TAIL_LOWBIT,
                                        .values = true,
                                        .scored = true,
                                        .bytes = bytes,
                                        .work_bytes = work_bytes,
                                        .put_bytes = put_bytes,
                                        .put = put,
                                        .add = add};
