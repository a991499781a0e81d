/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Storage of encoded rows: layout, encode, decode. */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "sketch/frames.h"

static size_t blocks_of(size_t n_rows)
{
        return (n_rows + DCI_CODE_ROWS - 1) / DCI_CODE_ROWS;
}

/* Floats of a row: its scale, its residual, and what is kept beside the code. */
static size_t floats_of_row(const dci_frames *frames)
{
        return 2 + (frames->relation == DCI_RELATION_DISTANCE) + frames->n_kept;
}

size_t dci_code_block_bytes(const dci_frames *frames, size_t n_rows)
{
        const size_t n_blocks = blocks_of(n_rows);
        return n_blocks * (frames->block_bytes + floats_of_row(frames) * DCI_CODE_ROWS * sizeof(float)) +
               dci_lines(n_blocks * sizeof(float)) + dci_lines(n_blocks);
}

void dci_code_block_place(const dci_frames *frames, size_t n_rows, void *memory, dci_code_block *out)
{
        const size_t n_blocks = blocks_of(n_rows);
        out->blocks = memory;
        out->scales = (float *)(void *)(out->blocks + n_blocks * frames->block_bytes);
        out->residuals = out->scales + n_blocks * DCI_CODE_ROWS;
        out->reach = out->scales + floats_of_row(frames) * n_blocks * DCI_CODE_ROWS;
        out->squares = frames->relation == DCI_RELATION_DISTANCE ? out->residuals + n_blocks * DCI_CODE_ROWS : NULL;
        out->kept = frames->n_kept > 0 ? out->reach - frames->n_kept * n_blocks * DCI_CODE_ROWS : NULL;
        out->frames = (uint8_t *)out->reach + dci_lines(n_blocks * sizeof(float));
}

void dci_code_block_copy(const dci_frames *frames, const dci_code_block *from, size_t n_rows, dci_code_block *to)
{
        const size_t n_blocks = blocks_of(n_rows);
        memcpy(to->blocks, from->blocks, n_blocks * frames->block_bytes);
        memcpy(to->scales, from->scales, n_blocks * DCI_CODE_ROWS * sizeof *to->scales);
        memcpy(to->residuals, from->residuals, n_blocks * DCI_CODE_ROWS * sizeof *to->residuals);
        if (frames->relation == DCI_RELATION_DISTANCE)
                memcpy(to->squares, from->squares, n_blocks * DCI_CODE_ROWS * sizeof *to->squares);
        if (frames->n_kept > 0)
                memcpy(to->kept, from->kept, n_blocks * frames->n_kept * DCI_CODE_ROWS * sizeof *to->kept);
        memcpy(to->reach, from->reach, n_blocks * sizeof *to->reach);
        memcpy(to->frames, from->frames, n_blocks);
}

/* Codes are cleared as well: scans read whole units, and places without rows must hold the same every time. */
void dci_code_block_clear(const dci_frames *frames, size_t first_block, size_t n_blocks, dci_code_block *codes)
{
        memset(codes->blocks + first_block * frames->block_bytes, 0, n_blocks * frames->block_bytes);
        memset(codes->scales + first_block * DCI_CODE_ROWS, 0, n_blocks * DCI_CODE_ROWS * sizeof *codes->scales);
        memset(codes->residuals + first_block * DCI_CODE_ROWS, 0, n_blocks * DCI_CODE_ROWS * sizeof *codes->residuals);
        if (frames->relation == DCI_RELATION_DISTANCE)
                memset(codes->squares + first_block * DCI_CODE_ROWS, 0,
                       n_blocks * DCI_CODE_ROWS * sizeof *codes->squares);
        if (frames->n_kept > 0)
                memset(codes->kept + first_block * frames->n_kept * DCI_CODE_ROWS, 0,
                       n_blocks * frames->n_kept * DCI_CODE_ROWS * sizeof *codes->kept);
        memset(codes->reach + first_block, 0, n_blocks * sizeof *codes->reach);
        memset(codes->frames + first_block, DCI_NO_FRAME, n_blocks);
}

size_t dci_frames_scratch_bytes(const dci_frames *frames)
{
        const size_t rest = frames->relation == DCI_RELATION_NONE ? 0 : dci_lines(frames->dim * sizeof(float));
        return dci_coder_scratch_bytes(frames->dim) + dci_lines(frames->max_coords) + rest;
}

size_t dci_frames_encode_bytes(const dci_frames *frames, bool one)
{
        return dci_coder_encode_bytes(frames->dim, one);
}

void dci_code_block_encode_rows(const dci_frames *frames, dci_code_block *codes, size_t block,
                                const float *const rows[DCI_CODE_ROWS], void *scratch)
{
        dci_coded_row coded[DCI_CODE_ROWS];
        dci_coder_encode(&frames->frame[codes->frames[block]]->coder, rows, scratch,
                         codes->blocks + block * frames->block_bytes, coded);
        for (size_t r = 0; r < DCI_CODE_ROWS; r++) {
                if (rows[r] == NULL)
                        continue;
                codes->scales[block * DCI_CODE_ROWS + r] = coded[r].scale;
                codes->residuals[block * DCI_CODE_ROWS + r] = coded[r].residual;
                codes->reach[block] = fmaxf(codes->reach[block], coded[r].reach);
        }
}

void dci_code_block_encode(const dci_frames *frames, dci_code_block *codes, size_t at, const float *row, void *scratch)
{
        const float *rows[DCI_CODE_ROWS] = {NULL};
        rows[at % DCI_CODE_ROWS] = row;
        dci_code_block_encode_rows(frames, codes, at / DCI_CODE_ROWS, rows, scratch);
}

void dci_code_block_move(const dci_frames *frames, const dci_code_block *from, size_t at, dci_code_block *to,
                         size_t to_at)
{
        const size_t block = at / DCI_CODE_ROWS, to_block = to_at / DCI_CODE_ROWS;
        const dci_code_layout *layout = &frames->frame[from->frames[block]]->coder.layout;
        dci_code_move(layout, from->blocks + block * frames->block_bytes, at % DCI_CODE_ROWS,
                      to->blocks + to_block * frames->block_bytes, to_at % DCI_CODE_ROWS);
        to->scales[to_at] = from->scales[at];
        to->residuals[to_at] = from->residuals[at];
        if (frames->relation == DCI_RELATION_DISTANCE)
                to->squares[to_at] = from->squares[at];
        for (size_t i = 0; i < frames->n_kept; i++)
                *dci_code_block_kept(frames, to, to_at, i) = *dci_code_block_kept(frames, from, at, i);
        to->reach[to_block] = fmaxf(to->reach[to_block], from->reach[block]);
}

/* --- queries ------------------------------------------------------------------------------------------------------ */

/* Frames whose queries are coded for them alone: the first of a transform, and all that queries are taken relative to. */
static bool codes_alone(const dci_frames *frames, size_t f)
{
        return frames->frame[f]->transform == f || frames->relation == DCI_RELATION_DISTANCE;
}

size_t dci_coded_bytes(const dci_frames *frames, size_t n_frames, size_t n_queries)
{
        size_t n_bytes = dci_lines(n_frames * n_queries * sizeof(dci_coded_query)) +
                         dci_lines(n_frames * n_queries * frames->n_kept * sizeof(float));
        for (size_t f = 0; f < n_frames; f++)
                if (codes_alone(frames, f))
                        n_bytes += dci_lines(n_queries * frames->frame[f]->coder.layout.n_all);
        return n_bytes;
}

static float length_of(const dci_frames *frames, const float *row)
{
        return sqrtf(frames->context->kernels->norm2[DCI_F32 - 1](row, frames->dim));
}

/* A query of a frame that rows and queries are both relative to. */
static void code_distance(const dci_frames *frames, size_t f, const float *query, float scale, float *rest,
                          unsigned char *scratch, int8_t *bytes, dci_coded_query *out, float *kept)
{
        float square = 0.0f, more = 0.0f;
        if (scale > 0.0f)
                square = dci_frames_place(frames, f, query, scale, rest, kept);
        else
                memset(rest, 0, frames->dim * sizeof *rest);
        dci_coder_query_bytes(&frames->frame[f]->coder, rest, scratch, bytes, out);
        for (size_t i = 0; i < frames->n_kept && scale > 0.0f; i++)
                more += kept[i] * kept[i];
        out->fixed = -0.5f * square;
        out->slack = 0.5f * dci_arithmetic_error(frames->dim) * square;
        out->span = sqrtf(square + more);
        out->weight = scale > 0.0f ? 1.0f : 0.0f;
}

/* q . (centre - first centre) */
static double off_first(const dci_frames *frames, size_t f, const float *query)
{
        const float *centre = frames->frame[f]->coder.centre, *first = frames->frame[0]->coder.centre;
        double sum = 0.0;
        for (size_t j = 0; f > 0 && j < frames->dim; j++)
                sum += (double)query[j] * ((double)centre[j] - (double)first[j]);
        return sum;
}

/* A query whose products with rows are wanted: it has no centre, but the rows have. */
static void code_product(const dci_frames *frames, size_t f, const float *query, float *rest, unsigned char *scratch,
                         int8_t *bytes, dci_coded_query *out, float *kept)
{
        const dci_frame *frame = frames->frame[f];
        if (frame->transform == f) {
                memcpy(rest, query, frames->dim * sizeof *rest);
                dci_frames_take_kept(frames, rest, kept);
                dci_coder_query_bytes(&frame->coder, rest, scratch, bytes, out);
        }
        out->span = length_of(frames, query);
        out->weight = 1.0f;
        out->fixed = (float)off_first(frames, f, query);
        out->slack = dci_arithmetic_error(frames->dim) * out->span *
                     (frame->length + (f > 0 ? frames->frame[0]->length : 0.0f));
}

double dci_coded_base(const dci_frames *frames, size_t n_frames, const float *query)
{
        double sum = 0.0;
        for (size_t j = 0; frames->relation == DCI_RELATION_PRODUCT && n_frames > 0 && j < frames->dim; j++)
                sum += (double)query[j] * (double)frames->frame[0]->coder.centre[j];
        return sum;
}

static void code_query(const dci_frames *frames, size_t f, size_t q, const float *query, float scale,
                       unsigned char *scratch, dci_coded *out)
{
        const dci_frame *frame = frames->frame[f];
        const size_t first = frame->transform * out->stride + q, n_kept = frames->n_kept;
        dci_coded_query *coded = &out->queries[f * out->stride + q];
        int8_t *bytes = out->bytes[f] + q * frame->coder.layout.n_all;
        float *kept = out->kept + (f * out->stride + q) * n_kept;
        float *rest =
                (float *)(void *)(scratch + dci_frames_scratch_bytes(frames) - dci_lines(frames->dim * sizeof *rest));
        if (frame->transform != f) {
                *coded = out->queries[first];
                memcpy(kept, out->kept + first * n_kept, n_kept * sizeof *kept);
        }
        if (frames->relation == DCI_RELATION_DISTANCE)
                code_distance(frames, f, query, scale, rest, scratch, bytes, coded, kept);
        else if (frames->relation == DCI_RELATION_PRODUCT)
                code_product(frames, f, query, rest, scratch, bytes, coded, kept);
        else if (frame->transform == f)
                dci_coder_query(&frame->coder, query, scratch, bytes, coded);
        else
                dci_coder_query_again(&frame->coder, query, coded);
}

void dci_coded_make(const dci_frames *frames, size_t n_frames, const float *queries, size_t ld, const float *scales,
                    size_t n_queries, void *memory, void *scratch, dci_coded *out)
{
        unsigned char *at = memory;
        out->n = out->stride = n_queries;
        out->n_frames = n_frames;
        out->first = 0;
        out->queries = memory;
        at += dci_lines(n_frames * n_queries * sizeof *out->queries);
        out->kept = (float *)(void *)at;
        at += dci_lines(n_frames * n_queries * frames->n_kept * sizeof *out->kept);
        for (size_t f = 0; f < n_frames; f++) {
                const bool alone = codes_alone(frames, f);
                out->bytes[f] = alone ? (int8_t *)at : out->bytes[frames->frame[f]->transform];
                if (alone)
                        at += dci_lines(n_queries * frames->frame[f]->coder.layout.n_all);
                for (size_t q = 0; q < n_queries; q++)
                        code_query(frames, f, q, queries + q * ld, scales == NULL ? 1.0f : scales[q], scratch, out);
        }
}

static size_t frame_of(const dci_unit *unit)
{
        return unit->area->frames[unit->unit / 2];
}

/* Consecutive units of one frame: estimates from their sums. */
static void finish_run(const dci_frames *frames, const dci_coded *coded, size_t f, const float *scales, size_t n_units,
                       const int32_t *sums, float *out)
{
        for (size_t q = 0; q < coded->n; q++) {
                const dci_coded_query *query = dci_coded_at(coded, f, q);
                frames->reader->estimate(sums + q * DCI_SCAN_ROWS, scales, n_units * DCI_CODE_UNIT, query->half_step,
                                         query->twice_bias, query->fixed, out + q * DCI_SCAN_ROWS);
        }
}

static void sum_units(const dci_frames *frames, const dci_coded *coded, size_t f, const unsigned char *const *lines,
                      size_t n_units, int32_t *sums)
{
        const dci_frame *frame = frames->frame[f];
        frames->reader->sums(&frame->coder.layout, lines, n_units,
                             coded->bytes[f] + coded->first * frame->coder.layout.n_all, coded->n, sums, DCI_SCAN_ROWS);
}

/* Of rows without codes. */
static void no_estimates(const dci_coded *coded, size_t n_units, float *out)
{
        for (size_t q = 0; q < coded->n; q++)
                memset(out + q * DCI_SCAN_ROWS, 0, n_units * DCI_CODE_UNIT * sizeof *out);
}

/* Estimates of as many units as are consecutive in blocks of one frame; returns how many. */
static size_t estimate_run(const dci_frames *frames, const dci_coded *coded, const dci_unit *first, size_t n_units,
                           float *out, bool *out_raw)
{
        const unsigned char *lines[DCI_SCAN_UNITS];
        int32_t sums[DCI_CODE_QUERIES * DCI_SCAN_ROWS];
        const dci_code_block *codes = first->area;
        const size_t f = codes->frames[first->unit / 2], begin = first->unit % 2;
        const unsigned char *block = codes->blocks + first->unit / 2 * frames->block_bytes;
        const uint8_t *of_block = codes->frames + first->unit / 2;
        size_t n = 0;
        for (size_t u = begin; n < n_units && of_block[u / 2] == f; u++)
                lines[n++] = dci_code_unit(block + u / 2 * frames->block_bytes, u % 2);
        if (f == DCI_RAW_FRAME) {
                no_estimates(coded, n, out);
                *out_raw = true;
                return n;
        }
        sum_units(frames, coded, f, lines, n, sums);
        finish_run(frames, coded, f, codes->scales + first->unit * DCI_CODE_UNIT, n, sums, out);
        return n;
}

bool dci_coded_estimate_run(const dci_frames *frames, const dci_coded *coded, const dci_unit *units, size_t n_units,
                            float *out)
{
        bool raw = false;
        for (size_t u = 0, n; u < n_units; u += n) {
                for (n = 1; u + n < n_units && units[u + n].area == units[u].area; n++)
                        continue;
                n = estimate_run(frames, coded, units + u, n, out + u * DCI_CODE_UNIT, &raw);
        }
        return raw;
}

bool dci_coded_estimate(const dci_frames *frames, const dci_coded *coded, const dci_unit *units, size_t n_units,
                        float *out)
{
        bool raw = false;
        const unsigned char *lines[DCI_SCAN_UNITS];
        int32_t sums[DCI_CODE_QUERIES * DCI_SCAN_ROWS];
        float scales[DCI_SCAN_ROWS];
        for (size_t begin = 0, end; begin < n_units; begin = end) {
                const size_t f = frame_of(&units[begin]);
                for (end = begin; end < n_units && frame_of(&units[end]) == f; end++) {
                        const dci_unit *unit = &units[end];
                        lines[end] = dci_code_unit(unit->area->blocks + unit->unit / 2 * frames->block_bytes,
                                                   unit->unit % 2);
                        memcpy(scales + end * DCI_CODE_UNIT, unit->area->scales + unit->unit * DCI_CODE_UNIT,
                               DCI_CODE_UNIT * sizeof *scales);
                }
                if (f == DCI_RAW_FRAME) {
                        no_estimates(coded, end - begin, out + begin * DCI_CODE_UNIT);
                        raw = true;
                        continue;
                }
                sum_units(frames, coded, f, lines + begin, end - begin, sums);
                finish_run(frames, coded, f, scales + begin * DCI_CODE_UNIT, end - begin, sums,
                           out + begin * DCI_CODE_UNIT);
        }
        return raw;
}

/* The kept coordinates of a unit's rows, DCI_CODE_ROWS from one direction to the next. */
static const float *kept_of(const dci_frames *frames, const dci_unit *unit)
{
        return unit->area->kept + unit->unit / 2 * frames->n_kept * DCI_CODE_ROWS + unit->unit % 2 * DCI_CODE_UNIT;
}

/* What the kept coordinates add to the goodness of a unit's rows. */
static void add_kept(const dci_frames *frames, const dci_unit *unit, const float *of_query, float *out)
{
        const float *kept = kept_of(frames, unit);
        for (size_t i = 0; i < frames->n_kept; i++, kept += DCI_CODE_ROWS) {
                const float here = of_query[i];
                if (frames->relation == DCI_RELATION_PRODUCT)
                        for (size_t r = 0; r < DCI_CODE_UNIT; r++)
                                out[r] += here * kept[r];
                else
                        for (size_t r = 0; r < DCI_CODE_UNIT; r++)
                                out[r] -= (here - kept[r]) * (here - kept[r]);
        }
}

static const float *kept_of_query(const dci_frames *frames, const dci_coded *coded, size_t f, size_t q)
{
        return coded->kept + (f * coded->stride + coded->first + q) * frames->n_kept;
}

/* Estimates to 2 estimate - square, where the query counts. */
static void subtract_squares(const dci_frames *frames, const dci_coded *coded, const dci_unit *units, size_t n_units,
                             float *out)
{
        for (size_t u = 0, n; u < n_units; u += n) {
                const float *squares = units[u].area->squares + units[u].unit * DCI_CODE_UNIT;
                for (n = 1;
                     u + n < n_units && units[u + n].area == units[u].area && units[u + n].unit == units[u].unit + n;)
                        n++;
                for (size_t q = 0; q < coded->n; q++)
                        if (coded->queries[coded->first + q].weight != 0.0f)
                                frames->reader->twice_less(squares, n * DCI_CODE_UNIT,
                                                           out + q * DCI_SCAN_ROWS + u * DCI_CODE_UNIT);
        }
}

void dci_coded_rate(const dci_frames *frames, const dci_coded *coded, const dci_unit *units, size_t n_units, float *out)
{
        if (coded->n_frames > 0 && frames->relation == DCI_RELATION_DISTANCE)
                subtract_squares(frames, coded, units, n_units, out);
        for (size_t q = 0; q < coded->n && frames->n_kept > 0; q++)
                for (size_t u = 0; u < n_units; u++) {
                        const size_t f = frame_of(&units[u]);
                        if (f != DCI_RAW_FRAME && dci_coded_at(coded, f, q)->weight > 0.0f)
                                add_kept(frames, &units[u], kept_of_query(frames, coded, f, q),
                                         out + q * DCI_SCAN_ROWS + u * DCI_CODE_UNIT);
                }
}

/* The residual r stands at right angles to y, and under a random rotation any such direction is as likely as another,
 * so q . r / (|q| |r|) is at most a coordinate of a random unit vector of dim - 1 dimensions, which exceeds t with a
 * probability of at most exp(-(dim - 1) t^2 / 2) (a spherical cap; Ball 1997, lecture 2); on both sides twice that. */
double dci_bound_share(size_t dim, double probability)
{
        if (!(probability < 1.0) || dim < 2)
                return 1.0;
        const double share = sqrt(2.0 * log(2.0 / (1.0 - probability)) / (double)(dim - 1));
        return share < 1.0 ? share : 1.0;
}

/* What binary32 may cost in kept coordinates, as a share of the lengths of a row and a query: of their rests, which are
 * not quite at right angles to the directions, and of what is summed. */
static float kept_error(size_t dim)
{
        return ((float)dim / 16.0f + 8.0f + (float)DCI_MAX_KEPT) * 0x1p-22f;
}

/* Bounds on estimates of a unit to bounds on goodness. */
static void bound_goodness(const dci_frames *frames, const dci_unit *unit, const dci_coded_query *q,
                           const float *of_query, float *out)
{
        const float error = dci_arithmetic_error(frames->dim), in_kept = 4.0f * kept_error(frames->dim);
        const bool distance = frames->relation == DCI_RELATION_DISTANCE;
        const dci_code_block *codes = unit->area;
        for (size_t r = 0; r < DCI_CODE_UNIT; r++) {
                const size_t at = unit->unit * DCI_CODE_UNIT + r;
                const float square = distance ? codes->squares[at] : 0.0f;
                float apart = 0.0f, length = 0.0f;
                for (size_t i = 0; i < frames->n_kept; i++) {
                        const float here = kept_of(frames, unit)[i * DCI_CODE_ROWS + r];
                        apart += (of_query[i] - here) * (of_query[i] - here);
                        length += here * here;
                }
                if (distance) {
                        out[r] = 2.0f * out[r] + error * square;
                        if (frames->n_kept > 0)
                                out[r] += error * apart +
                                          in_kept * (q->span + sqrtf(square + length)) *
                                                  (sqrtf(apart) + sqrtf(square) + sqrtf(-2.0f * q->fixed));
                } else if (frames->n_kept > 0) {
                        out[r] += (error + in_kept) * q->span *
                                  (sqrtf(length) + codes->residuals[at] + codes->reach[unit->unit / 2]);
                }
        }
}

void dci_coded_bound(const dci_frames *frames, const dci_coded *coded, size_t query, const dci_unit *units,
                     size_t n_units, double probability, float *out)
{
        const float share = (float)dci_bound_share(frames->dim, probability);
        /* Residuals of long rows are sums of many numbers, four of them side by side. */
        const float sums = 1.0f + fmaxf(0.0f, (float)frames->dim - 4096.0f) * 0x1p-26f;
        for (size_t u = 0; u < n_units; u++) {
                const dci_code_block *codes = units[u].area;
                const size_t f = frame_of(&units[u]), block = units[u].unit / 2;
                if (f == DCI_RAW_FRAME) {
                        for (size_t r = 0; r < DCI_CODE_UNIT; r++)
                                out[u * DCI_CODE_UNIT + r] = INFINITY;
                        continue;
                }
                const dci_coded_query *q = dci_coded_at(coded, f, query);
                const bool rotated = frames->frame[f]->coder.kind == DCI_CODER_ROTATED;
                const float by_residual = (rotated ? share : 1.0f) * q->length * sums;
                const float always = codes->reach[block] * q->rounding + q->slack;
                for (size_t r = 0; r < DCI_CODE_UNIT; r++)
                        out[u * DCI_CODE_UNIT + r] =
                                by_residual * codes->residuals[units[u].unit * DCI_CODE_UNIT + r] + always;
                if (frames->relation != DCI_RELATION_NONE)
                        bound_goodness(frames, &units[u], q, kept_of_query(frames, coded, f, query),
                                       out + u * DCI_CODE_UNIT);
        }
}
