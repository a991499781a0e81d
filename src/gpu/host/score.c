/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Reference of cuda/score: scores group by group. */
#include "gpu/gpu_internal.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "gpu/host/learned.h"
#include "gpu/host/reference.h"
#include "simd/codes/codes.h"
#include "simd/convert.h"

/* The greatest of some scores, and the sum of exp(score - greatest). */
typedef struct top {
        float most;
        double sum;
} top;

typedef struct scoring {
        const dci_gpu_score_args *args;
        int32_t row, head, n_tokens, n_candidates, n_groups, n_static;
        const int32_t *units; /* NULL, or those whose tokens are scored */
        uint64_t list;
        const dci_gpu_transform *transform;
        float queries[DCI_GPU_MAX_GROUP][DCI_GPU_MAX_DIM];  /* times scale */
        dci_gpu_coded_query coded[DCI_GPU_MAX_GROUP];       /* prepared for the kind of summaries */
        float wide[DCI_GPU_MAX_GROUP][2 * DCI_GPU_MAX_DIM]; /* as wide as a row, or rotated */
} scoring;

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
        return dci_gpu_chunk_of(&s->args->summaries, (uint64_t)s->row, (uint64_t)s->head, (uint64_t)(row / per));
}

/* --- queries ---------------------------------------------------------------------------------------------------- */

static void prepare_rows(const scoring *s, const float *x, float *out)
{
        const int32_t dim = s->args->dim, kind = s->args->kind;
        for (int32_t j = 0; j < dim; j++) {
                out[j] = kind == DCI_GPU_MINMAX ? fmaxf(x[j], 0.0f) : x[j];
                out[dim + j] = kind == DCI_GPU_MINMAX       ? fminf(x[j], 0.0f)
                               : kind == DCI_GPU_DEVIATIONS ? x[j] /* squared in binary64 */
                                                            : fabsf(x[j]);
        }
}

static void prepare(scoring *s)
{
        const dci_gpu_score_args *args = s->args;
        const uint64_t head = (uint64_t)s->row * (uint64_t)args->n_heads + (uint64_t)s->head;
        for (int32_t q = 0; q < args->group; q++) {
                const uint64_t from = (s->list * (uint64_t)args->group + (uint64_t)q) * args->query_ld;
                for (int32_t j = 0; j < args->dim; j++)
                        s->queries[q][j] =
                                args->scale * dci_gpu_load(args->queries, from + (uint64_t)j, args->query_dtype);
                if (args->kind == DCI_GPU_CODES)
                        dci_gpu_ref_code_query(s->queries[q], args->centres + head * (uint64_t)args->dim,
                                               (size_t)args->dim, args->bits, args->signs, &s->coded[q]);
                else if (args->kind == DCI_GPU_VOTES)
                        dci_gpu_ref_rotate((size_t)args->dim, args->signs, s->queries[q], s->wide[q]);
                else if (args->kind == DCI_GPU_LEARNED)
                        dci_gpu_learned_query(args, s->transform, s->queries[q], &s->coded[q]);
                else
                        prepare_rows(s, s->queries[q], s->wide[q]);
        }
}

/* --- scores ------------------------------------------------------------------------------------------------------ */

static void score_code(const scoring *s, int32_t row, float *out)
{
        const dci_gpu_score_args *args = s->args;
        const int32_t per = DCI_GPU_CHUNK >> args->group_shift; /* rows of a chunk */
        const unsigned char *chunk = chunk_of(s, row, per);
        const uint16_t *scales = (const uint16_t *)(const void *)(chunk + per * args->dim * args->bits / 8);
        dci_gpu_ref_code_scores(chunk, dci_bf16_to_float(scales[row % per]), (size_t)args->dim, args->bits, row % per,
                                s->coded, args->group, out);
}

static void score_learned(const scoring *s, int32_t row, float *out)
{
        const unsigned char *chunk = chunk_of(s, row, DCI_GPU_CHUNK);
        for (int32_t q = 0; q < s->args->group; q++)
                out[q] = dci_gpu_learned_score(s->args, s->transform, chunk, row % DCI_GPU_CHUNK, &s->coded[q]);
}

/* By 4-bit codes of blocks (args/votes.h). */
static void score_votes(const scoring *s, int32_t row, float *out)
{
        static const float levels[] = DCI_VOTE_LEVELS;
        const int32_t dim = s->args->dim, n_blocks = dim / DCI_VOTE_BLOCK, at = row % DCI_GPU_CHUNK;
        const unsigned char *record =
                chunk_of(s, row, DCI_GPU_CHUNK) + DCI_GPU_CHUNK * n_blocks + at * DCI_VOTE_RECORD(n_blocks);
        double sums[DCI_GPU_MAX_GROUP] = {0.0};
        for (int32_t j = 0; j < dim; j++) {
                const uint32_t code = record[j / 2] >> (4 * (j % 2)) & 15u;
                uint16_t weight;
                memcpy(&weight, record + 4 * n_blocks + j / DCI_VOTE_BLOCK * 2, sizeof weight);
                const float level = levels[code % DCI_VOTE_NEGATIVE] * dci_bf16_to_float(weight);
                for (int32_t q = 0; q < s->args->group; q++)
                        sums[q] += (double)s->wide[q][j] * (double)(code >= DCI_VOTE_NEGATIVE ? -level : level);
        }
        for (int32_t q = 0; q < s->args->group; q++)
                out[q] = (float)sums[q];
}

static void score_row(const scoring *s, int32_t row, float *out)
{
        const dci_gpu_score_args *args = s->args;
        const int32_t per = args->n_clusters != NULL ? DCI_GPU_CHUNK : DCI_GPU_CHUNK >> args->group_shift;
        const int32_t width = width_of(args);
        const unsigned char *from = chunk_of(s, row, per) + (uint64_t)(row % per) * (uint64_t)width * 2;
        const int32_t n = args->kind == DCI_GPU_DEVIATIONS ? args->dim : width;
        for (int32_t q = 0; q < args->group; q++) {
                const float *x = s->wide[q];
                double sum = 0.0, square = 0.0;
                for (int32_t j = 0; j < n; j++)
                        sum += (double)x[j] * (double)dci_gpu_load(from, (uint64_t)j, args->dtype);
                for (int32_t j = n; j < width; j++)
                        square += (double)x[j] * (double)x[j] * (double)dci_gpu_load(from, (uint64_t)j, args->dtype);
                out[q] = args->kind == DCI_GPU_DEVIATIONS
                                 ? (float)fmin(sum + (double)args->deviation_weight * sqrt(square), (double)FLT_MAX)
                                 : (float)sum;
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
                        score_code(s, s->units == NULL ? (int32_t)g : DCI_GPU_SCORED(s->units, 0, (int32_t)g), out);
                else if (args->kind == DCI_GPU_LEARNED)
                        score_learned(s, (int32_t)g, out);
                else if (args->kind == DCI_GPU_VOTES)
                        score_votes(s, s->units == NULL ? (int32_t)g : s->units[g], out);
                else
                        score_row(s, (int32_t)g, out);
                for (int32_t q = 0; q < args->group; q++) {
                        if (g < s->n_static)
                                out[q] = -INFINITY;
                        else
                                add(&tops[q], out[q]);
                }
        }
        write_part(s, part, tops);
}

/* Means that the last unit lacks. */
static void pad_unit(const scoring *s)
{
        const dci_gpu_score_args *args = s->args;
        const int32_t per = DCI_GPU_UNIT >> args->group_shift;
        float *scores = args->scores + s->list * (uint64_t)args->max_groups * (uint64_t)args->group;
        for (int32_t g = s->n_groups; g % per != 0; g++)
                for (int32_t q = 0; q < args->group; q++)
                        scores[(uint64_t)g * (uint64_t)args->group + (uint64_t)q] = -FLT_MAX;
}

/* Whether units have scores of their own: of their means, or of their tokens, which this finds. */
static bool use_units(scoring *s)
{
        const dci_gpu_units *units = &s->args->units;
        if (units->lists == NULL)
                return true;
        if (units->of_means != 0)
                return s->n_candidates > units->wanted * DCI_GPU_UNIT;
        if (units->n_scored[s->list] > 0) {
                s->units = units->lists + s->list * (uint64_t)units->stride;
                s->n_groups = units->n_scored[s->list];
        }
        return true;
}

/* --- tokens that every plan attends to ---------------------------------------------------------------------------- */

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

static void score_attended(const scoring *s)
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
                                sum += (double)s->queries[q][j] * (double)dci_gpu_load(key, (uint64_t)j, args->dtype);
                        add(&tops[q], (float)sum);
                }
        }
        write_part(s, args->n_parts, tops);
}

static void store_queries(const dci_gpu_score_args *args, int32_t sequence, int32_t head)
{
        const uint64_t es = args->query_dtype == DCI_F32 ? 4 : 2, n_bytes = (uint64_t)args->dim * es,
                       first = (uint64_t)(sequence * args->n_heads + head) * (uint64_t)args->group,
                       at = (uint64_t)(args->ring.slots[sequence] * args->n_heads + head) * (uint64_t)args->group;
        unsigned char *to = args->ring.to + (uint64_t)args->rows[sequence] * args->ring.row_bytes + at * n_bytes;
        for (uint64_t q = 0; q < (uint64_t)args->group; q++)
                memcpy(to + q * n_bytes, (const unsigned char *)args->queries + (first + q) * args->query_ld * es,
                       n_bytes);
}

void dci_gpu_ref_score(const dci_gpu_score_args *args)
{
        for (int32_t i = 0; i < args->n_sequences; i++)
                for (int32_t l = 0; l < DCI_GPU_LISTS(args); l++) {
                        const int32_t list = i * DCI_GPU_LISTS(args) + l, h = DCI_GPU_HEAD_OF(args, l);
                        if (args->ring.to != NULL)
                                store_queries(args, i, h);
                        dci_gpu_view view;
                        DCI_GPU_VIEW(view, args->sizes, args->n_tokens[i], args->n_grouped[i]);
                        const bool due = args->due == NULL || args->due[list] == args->due_is;
                        if (!view.sparse || !due)
                                continue;
                        scoring s = {.args = args,
                                     .row = args->rows[i],
                                     .head = h,
                                     .n_tokens = args->n_tokens[i],
                                     .n_candidates = view.n_candidates,
                                     .list = (uint64_t)list};
                        const uint64_t held = (uint64_t)s.row * (uint64_t)args->n_heads + (uint64_t)h;
                        if (args->kind == DCI_GPU_LEARNED)
                                s.transform = (const dci_gpu_transform *)(const void *)(args->transforms +
                                                                                        held * DCI_GPU_TRANSFORM_BYTES(
                                                                                                       args->dim));
                        s.n_groups = args->n_clusters != NULL
                                             ? args->n_clusters[held]
                                             : (view.n_candidates + (1 << args->group_shift) - 1) >> args->group_shift;
                        if (args->order.n_ordered != NULL) {
                                const int32_t listed = args->order.n_ordered[i] >> args->group_shift;
                                s.n_groups = listed > s.n_groups ? listed : s.n_groups;
                                s.n_static = args->order.n_static[i];
                        }
                        if (!use_units(&s))
                                continue;
                        prepare(&s);
                        if (args->units.lists != NULL && args->units.of_means != 0)
                                pad_unit(&s);
                        for (int32_t p = 0; p < args->n_parts; p++)
                                score_part(&s, p);
                        score_attended(&s);
                }
}
