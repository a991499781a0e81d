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

size_t dci_code_block_bytes(const dci_frames *frames, size_t n_rows)
{
        const size_t n_blocks = blocks_of(n_rows);
        return n_blocks * frames->block_bytes + 2 * n_blocks * DCI_CODE_ROWS * sizeof(float) +
               dci_lines(n_blocks * sizeof(float)) + dci_lines(n_blocks);
}

void dci_code_block_place(const dci_frames *frames, size_t n_rows, void *memory, dci_code_block *out)
{
        const size_t n_blocks = blocks_of(n_rows);
        out->blocks = memory;
        out->scales = (float *)(void *)(out->blocks + n_blocks * frames->block_bytes);
        out->residuals = out->scales + n_blocks * DCI_CODE_ROWS;
        out->reach = out->residuals + n_blocks * DCI_CODE_ROWS;
        out->frames = (uint8_t *)out->reach + dci_lines(n_blocks * sizeof(float));
}

void dci_code_block_copy(const dci_frames *frames, const dci_code_block *from, size_t n_rows, dci_code_block *to)
{
        const size_t n_blocks = blocks_of(n_rows);
        memcpy(to->blocks, from->blocks, n_blocks * frames->block_bytes);
        memcpy(to->scales, from->scales, n_blocks * DCI_CODE_ROWS * sizeof *to->scales);
        memcpy(to->residuals, from->residuals, n_blocks * DCI_CODE_ROWS * sizeof *to->residuals);
        memcpy(to->reach, from->reach, n_blocks * sizeof *to->reach);
        memcpy(to->frames, from->frames, n_blocks);
}

/* Codes are cleared as well: scans read whole units, and places without rows must hold the same every time. */
void dci_code_block_clear(const dci_frames *frames, size_t first_block, size_t n_blocks, dci_code_block *codes)
{
        memset(codes->blocks + first_block * frames->block_bytes, 0, n_blocks * frames->block_bytes);
        memset(codes->scales + first_block * DCI_CODE_ROWS, 0, n_blocks * DCI_CODE_ROWS * sizeof *codes->scales);
        memset(codes->residuals + first_block * DCI_CODE_ROWS, 0, n_blocks * DCI_CODE_ROWS * sizeof *codes->residuals);
        memset(codes->reach + first_block, 0, n_blocks * sizeof *codes->reach);
        memset(codes->frames + first_block, DCI_NO_FRAME, n_blocks);
}

size_t dci_frames_scratch_bytes(const dci_frames *frames)
{
        return dci_coder_scratch_bytes(frames->dim) + dci_lines(frames->max_coords);
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
        to->reach[to_block] = fmaxf(to->reach[to_block], from->reach[block]);
}

/* --- queries ------------------------------------------------------------------------------------------------------ */

size_t dci_coded_bytes(const dci_frames *frames, size_t n_frames, size_t n_queries)
{
        size_t n_bytes = dci_lines(n_frames * n_queries * sizeof(dci_coded_query));
        for (size_t f = 0; f < n_frames; f++)
                if (frames->frame[f]->transform == f)
                        n_bytes += dci_lines(n_queries * frames->frame[f]->coder.layout.n_all);
        return n_bytes;
}

void dci_coded_make(const dci_frames *frames, size_t n_frames, const float *queries, size_t ld, size_t n_queries,
                    void *memory, void *scratch, dci_coded *out)
{
        unsigned char *at = memory;
        out->n = out->stride = n_queries;
        out->first = 0;
        out->queries = memory;
        at += dci_lines(n_frames * n_queries * sizeof *out->queries);
        for (size_t f = 0; f < n_frames; f++) {
                const dci_frame *frame = frames->frame[f];
                const size_t n_all = frame->coder.layout.n_all;
                out->bytes[f] = NULL;
                if (frame->transform == f) {
                        out->bytes[f] = (int8_t *)at;
                        at += dci_lines(n_queries * n_all);
                }
                for (size_t q = 0; q < n_queries; q++) {
                        dci_coded_query *coded = &out->queries[f * n_queries + q];
                        if (frame->transform == f) {
                                dci_coder_query(&frame->coder, queries + q * ld, scratch, out->bytes[f] + q * n_all,
                                                coded);
                                continue;
                        }
                        *coded = out->queries[frame->transform * n_queries + q];
                        dci_coder_query_again(&frame->coder, queries + q * ld, coded);
                }
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
                             coded->bytes[frame->transform] + coded->first * frame->coder.layout.n_all, coded->n, sums,
                             DCI_SCAN_ROWS);
}

/* Estimates of as many units as are consecutive in blocks of one frame; returns how many. */
static size_t estimate_run(const dci_frames *frames, const dci_coded *coded, const dci_unit *first, size_t n_units,
                           float *out)
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
        sum_units(frames, coded, f, lines, n, sums);
        finish_run(frames, coded, f, codes->scales + first->unit * DCI_CODE_UNIT, n, sums, out);
        return n;
}

void dci_coded_estimate_run(const dci_frames *frames, const dci_coded *coded, const dci_unit *units, size_t n_units,
                            float *out)
{
        for (size_t u = 0, n; u < n_units; u += n) {
                for (n = 1; u + n < n_units && units[u + n].area == units[u].area; n++)
                        continue;
                n = estimate_run(frames, coded, units + u, n, out + u * DCI_CODE_UNIT);
        }
}

void dci_coded_estimate(const dci_frames *frames, const dci_coded *coded, const dci_unit *units, size_t n_units,
                        float *out)
{
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
                sum_units(frames, coded, f, lines + begin, end - begin, sums);
                finish_run(frames, coded, f, scales + begin * DCI_CODE_UNIT, end - begin, sums,
                           out + begin * DCI_CODE_UNIT);
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

void dci_coded_bound(const dci_frames *frames, const dci_coded *coded, size_t query, const dci_unit *units,
                     size_t n_units, double probability, float *out)
{
        const float share = (float)dci_bound_share(frames->dim, probability);
        /* Residuals of long rows are sums of many numbers, four of them side by side. */
        const float sums = 1.0f + fmaxf(0.0f, (float)frames->dim - 4096.0f) * 0x1p-26f;
        for (size_t u = 0; u < n_units; u++) {
                const dci_code_block *codes = units[u].area;
                const size_t f = frame_of(&units[u]), block = units[u].unit / 2;
                const dci_coded_query *q = dci_coded_at(coded, f, query);
                const bool rotated = frames->frame[f]->coder.kind == DCI_CODER_ROTATED;
                const float by_residual = (rotated ? share : 1.0f) * q->length * sums;
                const float always = codes->reach[block] * q->rounding + q->slack;
                for (size_t r = 0; r < DCI_CODE_UNIT; r++)
                        out[u * DCI_CODE_UNIT + r] =
                                by_residual * codes->residuals[units[u].unit * DCI_CODE_UNIT + r] + always;
        }
}
