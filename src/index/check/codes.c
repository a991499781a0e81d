/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Codes against the rows they stand for. Codes of another machine may have taken the other of two levels that are equally near, so those
 * of a loaded index are held against what they are for: they must be as near to the row as its own codes are.
 */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "core/arena.h"
#include "core/file.h"
#include "index/check/parts.h"
#include "index/codes/rows.h"

/* How much farther from its row a code of another machine may be; a learned transform does not measure by that distance. */
#define FARTHER 1.05
#define FARTHER_LEARNED 1.5

static bool numbers_are_sound(const dci_frames *frames, const dci_code_block *codes, size_t at)
{
        bool sound = frames->relation != DCI_RELATION_DISTANCE ||
                     (codes->squares[at] >= 0.0f && isfinite(codes->squares[at]));
        for (size_t i = 0; i < frames->n_kept; i++)
                sound = sound && isfinite(*dci_code_block_kept(frames, codes, at, i));
        return sound;
}

dci_status dci_check_codes(const dci_index *index, const dci_view *view)
{
        const dci_rows_codes *codes = index->rows.codes;
        if ((codes == NULL) != (index->config.sketch_bits == 0))
                return dci_fail(DCI_ERR_FORMAT, "sketch_bits is %d, but the index has %s codes",
                                (int)index->config.sketch_bits, codes == NULL ? "no" : "such");
        const size_t n_frames = codes == NULL ? 0 : atomic_load(&((dci_rows_codes *)(uintptr_t)codes)->frames.n);
        if (n_frames > DCI_MAX_FRAMES)
                return dci_fail(DCI_ERR_FORMAT, "codes have %zu centres, the most there can be are %zu", n_frames,
                                DCI_MAX_FRAMES);
        if (codes != NULL && codes->frames.n_pending > DCI_PENDING)
                return dci_fail(DCI_ERR_FORMAT, "%zu rows wait for a centre, the most there can be are %zu",
                                codes->frames.n_pending, DCI_PENDING);
        for (size_t slot = 0; codes != NULL && slot < view->n; slot++) {
                const dci_unit unit = dci_view_unit(view, slot / DCI_CODE_UNIT);
                const size_t at = unit.unit * DCI_CODE_UNIT + slot % DCI_CODE_UNIT, block = unit.unit / 2;
                const uint8_t frame = unit.area->frames[block];
                const bool empty = view->rows->gaps && dci_view_id(view, (int32_t)slot) < 0;
                if (frame >= n_frames && frame != DCI_RAW_FRAME && !(empty && frame == DCI_NO_FRAME))
                        return dci_fail(DCI_ERR_FORMAT, "the codes of the row in slot %zu name centre %d of %zu", slot,
                                        (int)frame, n_frames);
                if (!empty && frame != DCI_RAW_FRAME && !numbers_are_sound(&codes->frames, unit.area, at))
                        return dci_fail(DCI_ERR_FORMAT,
                                        "what codes keep of the row in slot %zu is NaN, infinite or negative", slot);
                if (!empty && !(unit.area->residuals[at] >= 0.0f && isfinite(unit.area->residuals[at]) &&
                                isfinite(unit.area->scales[at]) && isfinite(unit.area->reach[block])))
                        return dci_fail(DCI_ERR_FORMAT,
                                        "the codes of the row in slot %zu have scale %g, residual %g and reach %g",
                                        slot, (double)unit.area->scales[at], (double)unit.area->residuals[at],
                                        (double)unit.area->reach[block]);
        }
        return DCI_OK;
}

static dci_status check_frame(const dci_frames *frames, size_t f, void *memory)
{
        const dci_coder *there = &frames->frame[f]->coder;
        const size_t dim = frames->dim;
        if (there->dim != dim || there->bits != frames->bits || !dci_floats_finite(there->centre, dim))
                return dci_fail(DCI_ERR_FORMAT, "centre %zu of the codes holds NaN or infinity, or another shape", f);
        if (dci_coder_is_sound(frames->context, there, frames->seed, memory))
                return DCI_OK;
        if (there->kind == DCI_CODER_LEARNED)
                return dci_fail(DCI_ERR_FORMAT, "the learned transform of the codes holds NaN or infinity");
        return dci_fail(DCI_ERR_FORMAT, "the rotation of centre %zu of the codes is not the one that the seed gives",
                        f);
}

/* Kept directions are at right angles and of length 1. */
static dci_status check_kept(const dci_frames *frames)
{
        for (size_t i = 0; i < frames->n_kept; i++)
                for (size_t j = 0; j <= i; j++) {
                        double product = 0.0;
                        for (size_t p = 0; p < frames->dim; p++)
                                product += (double)frames->kept[i * frames->dim + p] *
                                           (double)frames->kept[j * frames->dim + p];
                        if (!(fabs(product - (i == j ? 1.0 : 0.0)) <= 1e-5))
                                return dci_fail(DCI_ERR_FORMAT,
                                                "directions %zu and %zu of the codes have product %g, expected %d", j,
                                                i, product, i == j);
                }
        return DCI_OK;
}

dci_status dci_check_frames(const dci_index *index)
{
        dci_status status = DCI_OK;
        if (index->rows.codes == NULL)
                return DCI_OK;
        const dci_frames *frames = &index->rows.codes->frames;
        const size_t n_bytes = dci_coder_bytes(DCI_CODER_ROTATED, frames->dim);
        void *memory = dci_alloc(index->context, n_bytes, 1);
        if (memory == NULL)
                return DCI_ERR_MEMORY;
        for (size_t f = 0; f < atomic_load(&index->rows.codes->frames.n) && status == DCI_OK; f++)
                status = check_frame(frames, f, memory);
        dci_free(index->context, memory, n_bytes, 1);
        return status == DCI_OK ? check_kept(frames) : status;
}

/* --- codes again ------------------------------------------------------------------------------------------------------------------- */

/* A worker's scratch. */
typedef struct parts {
        unsigned char *block, *encode, *decode; /* decode: scratch of decoding, then a row's codes */
        float *wide, *decoded;
} parts;

static size_t lay_out(const dci_index *index, void *memory, parts *out)
{
        const dci_frames *frames = &index->rows.codes->frames;
        const dci_arena_part list[] = {{frames->block_bytes, &out->block},
                                       {dci_frames_encode_bytes(frames, false), &out->encode},
                                       {dci_frames_scratch_bytes(frames), &out->decode},
                                       {DCI_CODE_ROWS * frames->dim * sizeof(float), &out->wide},
                                       {frames->dim * sizeof(float), &out->decoded}};
        return DCI_ARENA(list, memory);
}

size_t dci_check_codes_bytes(const dci_index *index)
{
        parts sizes;
        return index->rows.codes == NULL ? 0 : lay_out(index, NULL, &sizes);
}

/* Whether a row's words are the same in both blocks. */
static bool same_words(const dci_frames *frames, const unsigned char *a, const unsigned char *b, size_t row)
{
        for (size_t at = dci_code_word(row); at < frames->block_bytes; at += 2 * DCI_CODE_LINE)
                if (memcmp(a + at, b + at, 4) != 0)
                        return false;
        return true;
}

static double distance_of(const parts *p, const dci_coder *coder, const unsigned char *block, size_t row, float scale,
                          const float *wanted)
{
        double sum = 0.0;
        uint8_t *codes = p->decode + dci_coder_scratch_bytes(coder->dim);
        dci_code_get(&coder->layout, block, row, codes);
        dci_coder_decode(coder, codes, scale, p->decode, p->decoded);
        for (size_t i = 0; i < coder->dim; i++)
                sum += ((double)p->decoded[i] - (double)wanted[i]) * ((double)p->decoded[i] - (double)wanted[i]);
        return sqrt(sum);
}

/* Codes that are not these, in an index of another machine. */
static bool as_near(const parts *p, const dci_coder *coder, const unsigned char *there, size_t row, float scale,
                    const dci_coded_row *again, const float *wanted)
{
        const double factor = coder->kind == DCI_CODER_LEARNED ? FARTHER_LEARNED : FARTHER;
        const double least = distance_of(p, coder, p->block, row, again->scale, wanted);
        double length = 0.0;
        for (size_t i = 0; i < coder->dim; i++)
                length += (double)wanted[i] * (double)wanted[i];
        return distance_of(p, coder, there, row, scale, wanted) <= factor * least + 1e-5 * sqrt(length);
}

static bool is_near(float a, float b, double share, double least)
{
        return a == b || fabs((double)a - (double)b) <= share * (fabs((double)a) + fabs((double)b)) + least;
}

static bool is_about(float a, float b, double share)
{
        return fabs((double)a - (double)b) <= share * (fabs((double)a) + fabs((double)b)) + 1e-30;
}

/* The rows of a block as codes see them, NULL where there is none, and what is kept in addition. */
static dci_status take_rows(const dci_row_check *c, size_t slot, size_t n, const dci_code_block *codes, size_t frame,
                            const parts *p, const float **out)
{
        const dci_frames *frames = &c->index->rows.codes->frames;
        const double share = c->exact ? 0.0 : 1e-3;
        for (size_t i = 0; i < n; i++) {
                const size_t r = (slot + i) % DCI_CODE_ROWS;
                float kept[DCI_MAX_KEPT], *rest = p->wide + r * c->index->config.dim;
                size_t offset;
                if (c->view.rows->gaps && dci_view_id(&c->view, (int32_t)(slot + i)) < 0)
                        continue;
                const dci_chunk *chunk = dci_rows_chunk((dci_rows *)(uintptr_t)&c->index->rows, slot + i, &offset);
                const float square = dci_rows_place(&c->index->rows, chunk, offset, frame, rest, kept);
                out[r] = rest;
                if (codes->squares != NULL && !is_near(codes->squares[offset], square, share, 1e-30))
                        return dci_fail(DCI_ERR_FORMAT,
                                        "the code of the row in slot %zu has square %.9g, the row gives %.9g", slot + i,
                                        (double)codes->squares[offset], (double)square);
                for (size_t d = 0; d < frames->n_kept; d++) {
                        const float there = *dci_code_block_kept(frames, codes, offset, d);
                        if (!is_near(there, kept[d], share, c->exact ? 0.0 : 1e-4 * sqrt((double)square)))
                                return dci_fail(
                                        DCI_ERR_FORMAT,
                                        "the row in slot %zu has coordinate %.9g in direction %zu, it should be %.9g",
                                        slot + i, (double)there, d, (double)kept[d]);
                }
        }
        return DCI_OK;
}

dci_status dci_check_block(const dci_row_check *c, size_t slot, size_t n, void *scratch)
{
        const dci_frames *frames = &c->index->rows.codes->frames;
        const float *rows[DCI_CODE_ROWS] = {NULL};
        dci_coded_row again[DCI_CODE_ROWS];
        parts p;
        const dci_unit unit = dci_view_unit(&c->view, slot / DCI_CODE_UNIT);
        const size_t block = unit.unit / 2, base = block * DCI_CODE_ROWS;
        const unsigned char *there = unit.area->blocks + block * frames->block_bytes;
        const size_t frame = unit.area->frames[block];
        if (frame >= DCI_MAX_FRAMES) /* none: dci_check_codes saw to it that there are no rows, or no codes */
                return DCI_OK;
        const dci_coder *coder = &frames->frame[frame]->coder;
        lay_out(c->index, scratch, &p);
        DCI_TRY(take_rows(c, slot, n, unit.area, frame, &p, rows));
        memcpy(p.block, there, frames->block_bytes);
        dci_coder_encode(coder, rows, p.encode, p.block, again);
        for (size_t r = 0; r < DCI_CODE_ROWS; r++) {
                if (rows[r] == NULL)
                        continue;
                const float scale = unit.area->scales[base + r], residual = unit.area->residuals[base + r];
                const bool same = same_words(frames, there, p.block, r);
                const size_t of = slot - slot % DCI_CODE_ROWS + r;
                if (!same && (c->exact || !as_near(&p, coder, there, r, scale, &again[r], rows[r])))
                        return dci_fail(DCI_ERR_FORMAT, "the code of the row in slot %zu is not that of the row", of);
                if (c->exact ? scale != again[r].scale || residual != again[r].residual
                             : (same && !is_about(scale, again[r].scale, 1e-4)) ||
                                       !is_about(residual, again[r].residual, 0.1))
                        return dci_fail(DCI_ERR_FORMAT,
                                        "the code of the row in slot %zu has scale %.9g and residual %.9g, the row "
                                        "gives %.9g and %.9g",
                                        of, (double)scale, (double)residual, (double)again[r].scale,
                                        (double)again[r].residual);
                const float reach = unit.area->reach[block];
                if (!((double)reach >= (double)again[r].reach * (c->exact ? 1.0 : 1.0 - 1e-4)))
                        return dci_fail(DCI_ERR_FORMAT, "codes reach %.9g around slot %zu, the row there %.9g",
                                        (double)reach, of, (double)again[r].reach);
        }
        return DCI_OK;
}
