/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Reference of cuda/encode/encode.cu: codes by the CPU's own writer, rows of pages, values of a low-bit tail. */
#include "gpu/gpu_internal.h"

#include <math.h>
#include <string.h>

#include "gpu/host/learned.h"
#include "gpu/host/reference.h"
#include "simd/codes/encode.h"
#include "simd/codes/transpose.h"
#include "simd/convert.h"
#include "sketch/coder.h"

#define SUM_ROWS 64 /* of a partial sum */
#define BLOCK 128   /* tokens of a block of values */
#define PAIR (2 * DCI_CODE_LINE)

/* Candidate c is at base + ((c + offset) & mask) * step. */
typedef struct rows {
        const unsigned char *base;
        uint64_t step, offset, mask;
} rows;

/* One head of a layer. */
typedef struct encoding {
        int32_t dim, kind, bits, dtype, group_shift;
        int32_t value_bits, tail_at, mean_shift;
        rows keys, values;
        const float *signs, *centre, *value_signs, *value_centre;
        dci_gpu_chunks chunks;
        int32_t row, head;
} encoding;

static unsigned char *part_of(const encoding *f, int32_t candidate)
{
        return dci_gpu_chunk_of(&f->chunks, (uint64_t)f->row, (uint64_t)f->head, (uint64_t)(candidate / DCI_GPU_CHUNK));
}

static void to_f32(const rows *r, int32_t candidate, int32_t dtype, int32_t dim, float *out)
{
        const unsigned char *at = r->base + (((uint64_t)candidate + r->offset) & r->mask) * r->step;
        for (int32_t j = 0; j < dim; j++)
                out[j] = dci_gpu_load(at, (uint64_t)j, dtype);
}

static void narrow(const float *from, int32_t n, int32_t dtype, unsigned char *to)
{
        for (int32_t j = 0; j < n; j++) {
                const uint16_t half = dtype == DCI_F16 ? dci_float_to_f16(from[j]) : dci_float_to_bf16(from[j]);
                memcpy(to + 2 * j, &half, sizeof half);
        }
}

/* --- codes -------------------------------------------------------------------------------------------------------- */

/* Encodes row number `row` of a table, less its centre, into its words of a block. y: the row, which is overwritten. */
static dci_coded_row encode(float *y, int32_t row, const encoding *f, int32_t bits, const float *signs,
                            const float *centre, unsigned char *block)
{
        float spare[DCI_GPU_MAX_DIM];
        dci_code_even even = {.turn = {.dim = (size_t)f->dim}};
        dci_rotation rotation = {.dim = (size_t)f->dim, .part = 1, .signs = (float *)(uintptr_t)signs};
        dci_code_written written;
        while (rotation.part <= rotation.dim / 2)
                rotation.part *= 2;
        even.bits = (int)dci_coder_even_steps((size_t)f->dim, bits, &even.spread, even.inverse);
        for (int32_t j = 0; j < f->dim; j++)
                y[j] -= centre[j];
        dci_rotate(&rotation, y, spare);
        dci_code_writer_portable.one(&even, y, (uint32_t *)(void *)spare,
                                     block + dci_code_word((size_t)row % DCI_CODE_ROWS), PAIR, &written);
        return (dci_coded_row){written.scale[0], written.residual[0], written.reach[0]};
}

static size_t block_bytes(const encoding *f, int32_t bits)
{
        return (size_t)f->dim * (size_t)bits * DCI_CODE_ROWS / 8;
}

/* Codes of so many rows, with their scales. */
static size_t table_bytes(const encoding *f, int32_t bits, size_t n_rows)
{
        return n_rows / DCI_CODE_ROWS * block_bytes(f, bits) + n_rows * sizeof(uint16_t);
}

/* at: number among the n_rows of the table. */
static void put_scale(const encoding *f, int32_t bits, unsigned char *table, size_t n_rows, size_t at, float scale)
{
        const uint16_t half = dci_float_to_bf16(scale);
        memcpy(table + n_rows / DCI_CODE_ROWS * block_bytes(f, bits) + at * sizeof half, &half, sizeof half);
}

/* Row number `at` among the n_rows of a table of keys' codes. */
static void put_row(const encoding *f, float *row, unsigned char *table, size_t n_rows, size_t at)
{
        const dci_coded_row coded = encode(row, (int32_t)at, f, f->bits, f->signs, f->centre,
                                           table + at / DCI_CODE_ROWS * block_bytes(f, f->bits));
        put_scale(f, f->bits, table, n_rows, at, coded.scale);
}

static void put_code(const encoding *f, int32_t candidate)
{
        float x[DCI_GPU_MAX_DIM];
        to_f32(&f->keys, candidate, f->dtype, f->dim, x);
        put_row(f, x, part_of(f, candidate), DCI_GPU_CHUNK, (size_t)candidate % DCI_GPU_CHUNK);
}

/* One block of a rotated key: its code, four bytes of its record, and its weight in units of the row; as encode_block of
 * src/kv/stages/summary_votes.c. */
static uint8_t vote_block(const float *y, unsigned char *out, float *out_weight)
{
        static const float bounds[] = DCI_VOTE_BOUNDS, levels[] = DCI_VOTE_LEVELS;
        float square = 0.0f, match = 0.0f;
        uint32_t code = 0;
        for (int32_t j = 0; j < DCI_VOTE_BLOCK; j++)
                square += y[j] * y[j];
        const float length = sqrtf(square);
        memset(out, 0, DCI_VOTE_BLOCK / 2);
        for (int32_t j = 0; j < DCI_VOTE_BLOCK; j++) {
                const float size = length > 0.0f ? fabsf(y[j]) / length : 0.0f;
                uint32_t level = 0;
                for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
                        level += size >= bounds[i];
                match += levels[level] * size;
                out[j / 2] =
                        (unsigned char)(out[j / 2] | (level | (y[j] < 0.0f ? DCI_VOTE_NEGATIVE : 0u)) << (4 * (j % 2)));
                code |= (uint32_t)(y[j] >= 0.0f) << j;
        }
        *out_weight = length / (match > DCI_VOTE_LEAST_MATCH ? match : DCI_VOTE_LEAST_MATCH);
        return (uint8_t)code;
}

static void put_votes(const encoding *f, int32_t candidate)
{
        const int32_t dim = f->dim, n_blocks = dim / DCI_VOTE_BLOCK, at = candidate % DCI_GPU_CHUNK;
        unsigned char *part = part_of(f, candidate),
                      *record = part + DCI_GPU_CHUNK * n_blocks + at * DCI_VOTE_RECORD(n_blocks);
        float x[DCI_GPU_MAX_DIM] = {0.0f}, y[DCI_GPU_MAX_DIM] = {0.0f}, most = 0.0f;
        to_f32(&f->keys, candidate, f->dtype, dim, x);
        for (int32_t j = 0; j < dim; j++)
                most = fabsf(x[j]) > most ? fabsf(x[j]) : most;
        for (int32_t j = 0; j < dim; j++)
                x[j] = most > 0.0f ? x[j] / most : 0.0f;
        dci_gpu_ref_rotate((size_t)dim, f->signs, x, y);
        for (int32_t b = 0; b < n_blocks; b++) {
                float weight;
                part[b * DCI_GPU_CHUNK + at] = vote_block(y + b * DCI_VOTE_BLOCK, record + 4 * b, &weight);
                const uint16_t narrowed = dci_float_to_bf16(weight * most);
                memcpy(record + 4 * n_blocks + 2 * b, &narrowed, sizeof narrowed);
        }
}

/* As nearest_scale of src/kv/stages/tail_lowbit.c. */
static float nearest_scale(const dci_coded_row *row)
{
        const float reach2 = row->reach * row->reach, square = reach2 - row->residual * row->residual;
        return reach2 > 0.0f && square > 0.0f ? row->scale * (square / reach2) : 0.0f;
}

static void put_value(const encoding *f, int32_t candidate)
{
        unsigned char rows_of[DCI_CODE_ROWS * DCI_GPU_MAX_DIM / 2] = {0}, *part = part_of(f, candidate) + f->tail_at;
        float x[DCI_GPU_MAX_DIM];
        to_f32(&f->values, candidate, f->dtype, f->dim, x);
        const dci_coded_row coded = encode(x, candidate, f, f->value_bits, f->value_signs, f->value_centre, rows_of);
        const size_t bits = (size_t)f->value_bits, at = (size_t)candidate % DCI_GPU_CHUNK, row = at % DCI_CODE_ROWS;
        const size_t n_blocks = (size_t)f->dim / 32, apart = 32 * BLOCK * bits / 8;
        const size_t line = (at - row) % BLOCK * bits / 32;
        dci_code_transpose((int)bits, rows_of, (size_t)f->dim * bits / 32, row, row + 1,
                           part + at / BLOCK * n_blocks * apart + line * PAIR, n_blocks, apart);
        put_scale(f, f->value_bits, part, DCI_GPU_CHUNK, at, nearest_scale(&coded));
}

/* --- rows of pages ------------------------------------------------------------------------------------------------ */

static void extremes(const encoding *f, int32_t first, int32_t n, float *most, float *least)
{
        float x[DCI_GPU_MAX_DIM];
        for (int32_t i = 0; i < n; i++) {
                to_f32(&f->keys, first + i, f->dtype, f->dim, x);
                for (int32_t j = 0; j < f->dim; j++) {
                        most[j] = i == 0 || x[j] > most[j] ? x[j] : most[j];
                        least[j] = i == 0 || x[j] < least[j] ? x[j] : least[j];
                }
        }
        for (int32_t j = 0; j < f->dim; j++)
                least[j] += 0.0f; /* the CPU's zeros have no sign here */
}

static void cuboid(const encoding *f, int32_t first, int32_t n, float *centre, float *distance)
{
        float x[DCI_GPU_MAX_DIM];
        extremes(f, first, n, centre, distance);
        for (int32_t j = 0; j < f->dim; j++) {
                centre[j] = 0.5f * (centre[j] + distance[j]);
                distance[j] = 0.0f;
        }
        for (int32_t i = 0; i < n; i++) {
                to_f32(&f->keys, first + i, f->dtype, f->dim, x);
                for (int32_t j = 0; j < f->dim; j++)
                        distance[j] += fabsf(x[j] - centre[j]);
        }
        for (int32_t j = 0; j < f->dim; j++)
                distance[j] /= (float)n;
}

static void mean(const encoding *f, int32_t first, int32_t n, float *out)
{
        float x[DCI_GPU_MAX_DIM];
        to_f32(&f->keys, first, f->dtype, f->dim, out);
        for (int32_t i = 1; i < n; i++) {
                to_f32(&f->keys, first + i, f->dtype, f->dim, x);
                for (int32_t j = 0; j < f->dim; j++)
                        out[j] += x[j];
        }
        for (int32_t j = 0; j < f->dim; j++)
                out[j] /= (float)n;
}

/* Variances are no more than what the rows' type holds. */
static void mean_std(const encoding *f, int32_t first, int32_t n, float *centre, float *variance)
{
        float x[DCI_GPU_MAX_DIM];
        const float most = f->dtype == DCI_F16 ? 65504.0f : 0x1.fep127f;
        mean(f, first, n, centre);
        for (int32_t i = 0; i < n; i++) {
                to_f32(&f->keys, first + i, f->dtype, f->dim, x);
                for (int32_t j = 0; j < f->dim; j++) {
                        const float distance = x[j] - centre[j];
                        variance[j] += distance * distance;
                }
        }
        for (int32_t j = 0; j < f->dim; j++) {
                variance[j] /= (float)n;
                variance[j] = variance[j] < most ? variance[j] : most;
        }
}

/* Codes of the mean that begins with this candidate; its last tokens may be missing. */
static void put_mean_code(const encoding *f, int32_t first, int32_t to)
{
        float x[DCI_GPU_MAX_DIM];
        const int32_t per = 1 << f->mean_shift;
        mean(f, first, to - first < per ? to - first : per, x);
        put_row(f, x, part_of(f, first) + table_bytes(f, f->bits, DCI_GPU_CHUNK), (size_t)(DCI_GPU_CHUNK / per),
                (size_t)(first % DCI_GPU_CHUNK / per));
}

static int32_t width_of(const encoding *f)
{
        return f->kind == DCI_GPU_MEANS ? f->dim : 2 * f->dim;
}

/* The page that begins with this candidate; its last tokens may be missing. */
static void put_page(const encoding *f, int32_t first, int32_t to)
{
        float row[2 * DCI_GPU_MAX_DIM] = {0.0f};
        const int32_t per = 1 << f->group_shift, n = to - first < per ? to - first : per;
        if (f->kind == DCI_GPU_MEANS)
                mean(f, first, n, row);
        else if (f->kind == DCI_GPU_MINMAX)
                extremes(f, first, n, row, row + f->dim);
        else if (f->kind == DCI_GPU_DEVIATIONS)
                mean_std(f, first, n, row, row + f->dim);
        else
                cuboid(f, first, n, row, row + f->dim);
        narrow(row, width_of(f), f->dtype, part_of(f, first) + first % DCI_GPU_CHUNK / per * width_of(f) * 2);
}

/* --- both --------------------------------------------------------------------------------------------------------- */

static size_t summary_bytes(const encoding *f)
{
        if (f->kind == DCI_GPU_CODES)
                return table_bytes(f, f->bits, DCI_GPU_CHUNK) +
                       (f->mean_shift != 0 ? table_bytes(f, f->bits, (size_t)DCI_GPU_CHUNK >> f->mean_shift) : 0);
        if (f->kind == DCI_GPU_VOTES)
                return (size_t)DCI_GPU_CHUNK * (size_t)(f->dim / DCI_VOTE_BLOCK) * (1 + DCI_VOTE_RECORD(1));
        return (size_t)(DCI_GPU_CHUNK >> f->group_shift) * (size_t)width_of(f) * 2;
}

static void build(const encoding *f, int32_t from, int32_t to)
{
        for (int32_t c = from; c < to; c++) {
                if (c % DCI_GPU_CHUNK == 0) {
                        unsigned char *part = part_of(f, c);
                        memset(part, 0, summary_bytes(f));
                        if (f->value_bits != 0)
                                memset(part + f->tail_at, 0, table_bytes(f, f->value_bits, DCI_GPU_CHUNK));
                }
                if (f->kind == DCI_GPU_CODES)
                        put_code(f, c);
                else if (f->kind == DCI_GPU_VOTES)
                        put_votes(f, c);
                else if (c % (1 << f->group_shift) == 0)
                        put_page(f, c, to);
                if (f->kind == DCI_GPU_CODES && f->mean_shift != 0 && c % (1 << f->mean_shift) == 0)
                        put_mean_code(f, c, to);
                if (f->value_bits != 0)
                        put_value(f, c);
        }
}

static rows ring_of(const dci_gpu_encode_args *args, const unsigned char *base, uint32_t row_bytes, uint64_t list)
{
        const dci_gpu_lanes *lanes = &args->lanes;
        const uint64_t slot = list * (uint64_t)lanes->n_slots + (uint64_t)lanes->sink;
        return (rows){base + slot * row_bytes, row_bytes, (uint64_t)args->sink, (uint64_t)lanes->ring - 1};
}

/* Arguments that both kernels have. */
#define COMMON(a)                                                                                                      \
        .dim = (a)->dim, .kind = (a)->kind, .bits = (a)->bits, .dtype = (a)->dtype, .group_shift = (a)->group_shift,   \
        .value_bits = (a)->value_bits, .tail_at = (a)->tail_at, .mean_shift = (a)->mean_shift, .signs = (a)->signs,    \
        .value_signs = (a)->value_signs, .chunks = (a)->chunks

void dci_gpu_ref_encode(const dci_gpu_encode_args *args)
{
        encoding f = {COMMON(args)};
        for (int32_t i = 0; i < args->n_sequences; i++)
                for (int32_t l = 0; l < args->n_layers && args->to[i] > args->from[i]; l++)
                        for (f.head = 0; f.head < args->n_heads; f.head++) {
                                const uint64_t layer = (uint64_t)l;
                                const uint64_t list =
                                        (uint64_t)args->rows[i] * (uint64_t)args->n_heads + (uint64_t)f.head;
                                const uint64_t at = layer * args->centres_step + list * (uint64_t)args->dim;
                                f.row = args->rows[i];
                                f.keys = ring_of(args, args->lanes.keys + layer * args->lane_step,
                                                 args->lanes.key_bytes, list);
                                f.centre = args->kind == DCI_GPU_CODES ? args->centres + at : NULL;
                                if (args->value_bits != 0) {
                                        f.values = ring_of(args, args->lanes.values + layer * args->value_step,
                                                           args->lanes.value_bytes, list);
                                        f.value_centre = args->value_centres + at;
                                }
                                f.chunks.layer_at = args->chunks.layer_at + layer * args->layer_step;
                                build(&f, args->from[i], args->to[i]);
                        }
}

/* The mean of n rows, in the order of mean_of in src/kv/summaries.c. */
static void centre_of(const rows *r, int32_t n, int32_t dtype, int32_t dim, float *out)
{
        double sum[DCI_GPU_MAX_DIM] = {0.0};
        for (int32_t first = 0; first < n; first += SUM_ROWS) {
                float part[DCI_GPU_MAX_DIM] = {0.0f}, x[DCI_GPU_MAX_DIM];
                for (int32_t i = first; i < n && i < first + SUM_ROWS; i++) {
                        to_f32(r, i, dtype, dim, x);
                        for (int32_t j = 0; j < dim; j++)
                                part[j] += x[j];
                }
                for (int32_t j = 0; j < dim; j++)
                        sum[j] += (double)part[j];
        }
        for (int32_t j = 0; j < dim; j++)
                out[j] = (float)(sum[j] / (double)n);
}

void dci_gpu_ref_encode_prompt(const dci_gpu_encode_prompt_args *args)
{
        encoding f = {COMMON(args), .row = args->row};
        for (f.head = 0; f.head < args->n_heads && args->n_candidates > 0; f.head++) {
                const uint64_t head = (uint64_t)f.head;
                const uint64_t at = ((uint64_t)args->row * (uint64_t)args->n_heads + head) * (uint64_t)args->dim;
                f.keys = (rows){args->keys + head * args->key_head, args->key_token, 0, UINT64_MAX};
                if (args->kind == DCI_GPU_CODES) {
                        centre_of(&f.keys, args->n_candidates, args->dtype, args->dim, args->centres + at);
                        f.centre = args->centres + at;
                }
                if (args->value_bits != 0) {
                        f.values = (rows){args->values + head * args->value_head, args->value_token, 0, UINT64_MAX};
                        centre_of(&f.values, args->n_candidates, args->dtype, args->dim, args->value_centres + at);
                        f.value_centre = args->value_centres + at;
                }
                build(&f, 0, args->n_candidates);
        }
}
