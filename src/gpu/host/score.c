/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Scores, one group after the other: what the kernels in cuda_score_*.cu must do. */
#include "gpu/gpu_internal.h"

#include <float.h>
#include <math.h>

#include "gpu/host/learned.h"
#include "gpu/host/reference.h"
#include "simd/codes/codes.h"
#include "simd/convert.h"

/* The greatest of some scores, and the sum of exp(score - greatest). */
typedef struct top {
        float most;
        double sum;
} top;

/* One query of a list, as its kind of summaries takes it. */
typedef struct asked {
        dci_gpu_coded_query coded;
        float x[2 * DCI_GPU_MAX_DIM]; /* rows: of their width */
} asked;

typedef struct scoring {
        const dci_gpu_score_args *args;
        int32_t row, head, n_tokens, n_candidates, n_groups;
        uint64_t list;
        const dci_gpu_transform *frame;
        float queries[DCI_GPU_MAX_GROUP][DCI_GPU_MAX_DIM]; /* times scale */
        asked asked[DCI_GPU_MAX_GROUP];
} scoring;

static float load(const void *from, uint64_t at, int32_t dtype)
{
        if (dtype == DCI_F32)
                return ((const float *)from)[at];
        const uint16_t half = ((const uint16_t *)from)[at];
        return dtype == DCI_F16 ? dci_f16_to_float(half) : dci_bf16_to_float(half);
}

static void add(top *t, float score)
{
        if (score > t->most) {
                t->sum *= exp((double)t->most - (double)score);
                t->most = score;
        }
        t->sum += exp((double)score - (double)t->most);
}

static int32_t width_of(const dci_gpu_score_args *args)
{
        return args->kind == DCI_GPU_MEANS ? args->dim : 2 * args->dim;
}

/* The head's part of the chunk that has this row, of `per` rows to a chunk. */
static const unsigned char *chunk_of(const scoring *s, int32_t row, int32_t per)
{
        const dci_gpu_chunks *chunks = &s->args->summaries;
        const int32_t c = chunks->numbers[(uint64_t)s->row * chunks->stride + (uint64_t)(row / per)];
        return chunks->pieces[c >> chunks->piece_shift] + chunks->layer_at +
               ((uint64_t)c & (((uint64_t)1 << chunks->piece_shift) - 1)) * chunks->chunk_bytes +
               (uint64_t)s->head * chunks->head_bytes;
}

/* --- queries ---------------------------------------------------------------------------------------------------- */

/* As dci_coder_query does it, in even steps. */
static void ask_codes(const scoring *s, const float *query, asked *out)
{
        const dci_gpu_score_args *args = s->args;
        const size_t dim = (size_t)args->dim;
        const float *centre =
                args->centres + ((uint64_t)s->row * (uint64_t)args->n_heads + (uint64_t)s->head) * (uint64_t)dim;
        float y[DCI_GPU_MAX_DIM];
        dci_gpu_ref_rotate(args, query, y);
        dci_gpu_ref_coded(query, centre, dim, y, dim, &out->coded);
        out->coded.twice_bias = 0;
        for (size_t j = 0; j < dim; j++)
                out->coded.twice_bias += ((1 << args->bits) - 1) * out->coded.bytes[j];
}

static void ask_rows(const scoring *s, const float *query, asked *out)
{
        const int32_t dim = s->args->dim, kind = s->args->kind;
        for (int32_t j = 0; j < dim; j++) {
                const float x = query[j];
                out->x[j] = kind == DCI_GPU_MINMAX ? fmaxf(x, 0.0f) : x;
                out->x[dim + j] = kind == DCI_GPU_MINMAX ? fminf(x, 0.0f) : fabsf(x);
        }
}

static void ask(scoring *s)
{
        const dci_gpu_score_args *args = s->args;
        for (int32_t q = 0; q < args->group; q++) {
                const uint64_t from = (s->list * (uint64_t)args->group + (uint64_t)q) * args->query_ld;
                for (int32_t j = 0; j < args->dim; j++)
                        s->queries[q][j] = args->scale * load(args->queries, from + (uint64_t)j, args->query_dtype);
                if (args->kind == DCI_GPU_CODES)
                        ask_codes(s, s->queries[q], &s->asked[q]);
                else if (args->kind == DCI_GPU_LEARNED)
                        dci_gpu_learned_query(args, s->frame, s->queries[q], &s->asked[q].coded);
                else
                        ask_rows(s, s->queries[q], &s->asked[q]);
        }
}

/* --- scores ------------------------------------------------------------------------------------------------------ */

static void score_code(const scoring *s, int32_t row, float *out)
{
        const dci_gpu_score_args *args = s->args;
        const int32_t bits = args->bits, step = 32 / bits, n_lines = args->dim / step, rows = DCI_CODE_ROWS;
        const int32_t at = row % DCI_GPU_CHUNK, block_bytes = n_lines * 2 * (int32_t)DCI_CODE_LINE;
        const unsigned char *chunk = chunk_of(s, row, DCI_GPU_CHUNK), *block = chunk + at / rows * block_bytes;
        const uint16_t *scales = (const uint16_t *)(const void *)(chunk + DCI_GPU_CHUNK / rows * block_bytes);
        const float scale = dci_bf16_to_float(scales[at]);
        int32_t sums[DCI_GPU_MAX_GROUP] = {0};
        for (int32_t j = 0; j < args->dim; j++) {
                /* Byte i of a line's word holds coordinates i, 4 + i, 8 + i, .. of the line. */
                const unsigned char *word =
                        block + dci_code_word((size_t)(at % rows)) + j / step * 2 * (int32_t)DCI_CODE_LINE;
                const int32_t code = word[j % 4] >> (j % step / 4 * bits) & ((1 << bits) - 1);
                for (int32_t q = 0; q < args->group; q++)
                        sums[q] += code * s->asked[q].coded.bytes[j];
        }
        for (int32_t q = 0; q < args->group; q++) {
                const dci_gpu_coded_query *a = &s->asked[q].coded;
                const float product = a->half_step * (float)(2 * sums[q] - a->twice_bias), scaled = scale * product;
                out[q] = scaled + a->fixed;
        }
}

static void score_learned(const scoring *s, int32_t row, float *out)
{
        const unsigned char *chunk = chunk_of(s, row, DCI_GPU_CHUNK);
        for (int32_t q = 0; q < s->args->group; q++)
                out[q] = dci_gpu_learned_score(s->args, s->frame, chunk, row % DCI_GPU_CHUNK, &s->asked[q].coded);
}

static void score_row(const scoring *s, int32_t row, float *out)
{
        const dci_gpu_score_args *args = s->args;
        const int32_t per = args->n_listed != NULL ? DCI_GPU_CHUNK : DCI_GPU_CHUNK >> args->group_shift;
        const int32_t width = width_of(args);
        const unsigned char *from = chunk_of(s, row, per) + (uint64_t)(row % per) * (uint64_t)width * 2;
        for (int32_t q = 0; q < args->group; q++) {
                double sum = 0.0;
                for (int32_t j = 0; j < width; j++)
                        sum += (double)s->asked[q].x[j] * (double)load(from, (uint64_t)j, args->dtype);
                out[q] = (float)sum;
        }
}

static void write_part(const scoring *s, int32_t part, const top *tops)
{
        const dci_gpu_score_args *args = s->args;
        float *out =
                args->parts + (s->list * (uint64_t)(args->n_parts + 1) + (uint64_t)part) * (uint64_t)args->group * 2;
        for (int32_t q = 0; q < args->group; q++) {
                out[2 * q] = tops[q].most;
                out[2 * q + 1] = (float)tops[q].sum;
        }
}

static void no_tops(top *tops)
{
        for (int32_t q = 0; q < DCI_GPU_MAX_GROUP; q++)
                tops[q] = (top){-FLT_MAX, 0.0};
}

static void score_part(const scoring *s, int32_t part)
{
        const dci_gpu_score_args *args = s->args;
        const int64_t n = s->n_groups, first = n * part / args->n_parts, end = n * (part + 1) / args->n_parts;
        top tops[DCI_GPU_MAX_GROUP];
        no_tops(tops);
        for (int64_t g = first; g < end; g++) {
                float *out =
                        args->scores + (s->list * (uint64_t)args->max_groups + (uint64_t)g) * (uint64_t)args->group;
                if (args->kind == DCI_GPU_CODES)
                        score_code(s, (int32_t)g, out);
                else if (args->kind == DCI_GPU_LEARNED)
                        score_learned(s, (int32_t)g, out);
                else
                        score_row(s, (int32_t)g, out);
                for (int32_t q = 0; q < args->group; q++)
                        add(&tops[q], out[q]);
        }
        write_part(s, part, tops);
}

/* --- tokens that are attended to anyway ---------------------------------------------------------------------------- */

static const void *key_of(const scoring *s, int32_t position)
{
        const dci_gpu_score_args *args = s->args;
        const dci_gpu_lanes *lanes = &args->lanes;
        const uint64_t held = (uint64_t)s->row * (uint64_t)args->n_heads + (uint64_t)s->head;
        if (position < lanes->sink)
                return dci_gpu_lane_place(lanes, held, position).key;
        if (position >= s->n_tokens - lanes->ring)
                return dci_gpu_lane_place(lanes, held, lanes->sink + (position & (lanes->ring - 1))).key;
        return dci_gpu_pool_place(&args->pool, &args->tables, s->row, position, s->head).key;
}

static void keep(const scoring *s)
{
        const dci_gpu_score_args *args = s->args;
        top tops[DCI_GPU_MAX_GROUP];
        no_tops(tops);
        const int32_t n_kept = args->lanes.keys != NULL ? s->n_tokens - s->n_candidates : 0;
        for (int32_t i = 0; i < n_kept; i++) {
                const int32_t p = i < args->sizes.sink ? i : i + s->n_candidates;
                const void *key = key_of(s, p);
                for (int32_t q = 0; q < args->group; q++) {
                        double sum = 0.0;
                        for (int32_t j = 0; j < args->dim; j++)
                                sum += (double)s->queries[q][j] * (double)load(key, (uint64_t)j, args->dtype);
                        add(&tops[q], (float)sum);
                }
        }
        write_part(s, args->n_parts, tops);
}

void dci_gpu_ref_score(const dci_gpu_score_args *args)
{
        for (int32_t i = 0; i < args->n_sequences; i++)
                for (int32_t h = 0; h < args->n_heads; h++) {
                        dci_gpu_view view;
                        DCI_GPU_VIEW(view, args->sizes, args->n_tokens[i], args->n_grouped[i]);
                        const bool due = args->due == NULL || args->due[i * args->n_heads + h] == args->due_is;
                        if (!view.sparse || !due)
                                continue;
                        scoring s = {.args = args,
                                     .row = args->rows[i],
                                     .head = h,
                                     .n_tokens = args->n_tokens[i],
                                     .n_candidates = view.n_candidates,
                                     .list = (uint64_t)i * (uint64_t)args->n_heads + (uint64_t)h};
                        const uint64_t held = (uint64_t)s.row * (uint64_t)args->n_heads + (uint64_t)h;
                        if (args->kind == DCI_GPU_LEARNED)
                                s.frame = (const dci_gpu_transform *)(const void *)(args->frames +
                                                                                    held * DCI_GPU_TRANSFORM_BYTES(
                                                                                                   args->dim));
                        s.n_groups = args->n_listed != NULL
                                             ? args->n_listed[held]
                                             : (view.n_candidates + (1 << args->group_shift) - 1) >> args->group_shift;
                        ask(&s);
                        for (int32_t p = 0; p < args->n_parts; p++)
                                score_part(&s, p);
                        keep(&s);
                }
}
