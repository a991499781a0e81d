/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Codes in a file: the transform, its centres, and the codes, slot by slot. docs/format.md has the bytes. */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "index/check/parts.h"
#include "index/codes/renew.h"
#include "index/persist/sections.h"

/* The section "frames": kind, layout, and groups of 4 bytes each. */
#define FRAMES_BYTES (32 + 4 * DCI_CODE_GROUPS)
#define GROUP_BYTES 4
/* "relative" before its floats: kept directions, rows when all was planned, when that was last asked, frames then, energy. */
#define RELATIVE_HEAD 40
/* "pending" before its sums: how many rows, and the sum of their squares. */
#define PENDING_HEAD 16

static size_t blocks_of(size_t n)
{
        return (n + DCI_CODE_ROWS - 1) / DCI_CODE_ROWS;
}

/* --- saving --------------------------------------------------------------------------------------------------------- */

static const dci_frames *frames_of(const dci_saving *s)
{
        return &s->index->rows.codes->frames;
}

/* The codes that hold a block, and its place among them. */
static const dci_code_block *codes_of(const dci_saving *s, size_t block, size_t *out_block)
{
        const dci_unit unit = dci_view_unit(&s->view, 2 * block);
        *out_block = unit.unit / 2;
        return unit.area;
}

/* Whether there is a row, and a code of it. */
static bool holds_row(const dci_saving *s, size_t slot)
{
        size_t block;
        return slot < s->view.n && (!s->view.rows->gaps || dci_view_id(&s->view, (int32_t)slot) >= 0) &&
               codes_of(s, slot / DCI_CODE_ROWS, &block)->frames[block] != DCI_RAW_FRAME;
}

static void encode_frames(const dci_frames *frames, unsigned char out[FRAMES_BYTES])
{
        static const dci_coder none = {.kind = DCI_CODER_ROTATED};
        const dci_coder *coder =
                atomic_load(&((dci_frames *)(uintptr_t)frames)->n) == 0 ? &none : &frames->frame[0]->coder;
        const dci_code_layout *layout = &coder->layout;
        memset(out, 0, FRAMES_BYTES);
        dci_store_le32(out, (uint32_t)coder->kind);
        if (coder->kind == DCI_CODER_LEARNED) {
                dci_store_le64(out + 8, layout->n_coords[DCI_CODE_8]);
                dci_store_le64(out + 16, layout->n_lines);
                dci_store_le64(out + 24, layout->n_groups);
        }
        for (size_t g = 0; g < layout->n_groups; g++) {
                unsigned char *at = out + 32 + GROUP_BYTES * g;
                at[0] = layout->groups[g].line;
                at[1] = layout->groups[g].shift;
                at[2] = layout->groups[g].bits;
        }
}

static dci_status emit_frames(const void *ctx, const dci_sink *sink)
{
        unsigned char out[FRAMES_BYTES];
        encode_frames(frames_of(ctx), out);
        return sink->write(sink->ctx, out, sizeof out);
}

static dci_status emit_centres(const void *ctx, const dci_sink *sink)
{
        const dci_frames *frames = frames_of(ctx);
        for (size_t f = 0; f < atomic_load(&((dci_frames *)(uintptr_t)frames)->n); f++)
                DCI_TRY(sink->write(sink->ctx, frames->frame[f]->coder.centre, frames->dim * sizeof(float)));
        return DCI_OK;
}

static dci_status emit_relative(const void *ctx, const dci_sink *sink)
{
        const dci_frames *frames = frames_of(ctx);
        const dci_rows_codes *codes = ((const dci_saving *)ctx)->index->rows.codes;
        unsigned char head[RELATIVE_HEAD] = {0};
        dci_store_le64(head, frames->n_kept);
        dci_store_le64(head + 8, codes->n_reviewed);
        dci_store_le64(head + 16, codes->n_checked);
        dci_store_le64(head + 24, codes->n_frames);
        memcpy(head + 32, &codes->energy, sizeof codes->energy);
        DCI_TRY(sink->write(sink->ctx, head, sizeof head));
        for (size_t f = 0; f < atomic_load(&((dci_frames *)(uintptr_t)frames)->n); f++)
                DCI_TRY(sink->write(sink->ctx, &frames->frame[f]->energy, sizeof(float)));
        return frames->n_kept == 0 ? DCI_OK
                                   : sink->write(sink->ctx, frames->kept, frames->n_kept * frames->dim * sizeof(float));
}

static dci_status emit_learned(const void *ctx, const dci_sink *sink)
{
        const dci_coder *coder = &frames_of(ctx)->frame[0]->coder;
        const size_t square = coder->n_coords * coder->dim * sizeof(float);
        DCI_TRY(sink->write(sink->ctx, coder->worth, coder->n_coords * sizeof(float)));
        DCI_TRY(sink->write(sink->ctx, coder->to, square));
        return sink->write(sink->ctx, coder->from, square);
}

/* Rows that no decision about the centre has covered yet: without them, a loaded index would decide otherwise. */
static dci_status emit_pending(const void *ctx, const dci_sink *sink)
{
        const dci_frames *frames = frames_of(ctx);
        unsigned char head[PENDING_HEAD];
        dci_store_le64(head, frames->n_pending);
        dci_store_f64(head + 8, frames->pending_square);
        DCI_TRY(sink->write(sink->ctx, head, sizeof head));
        return sink->write(sink->ctx, frames->pending_sum, frames->dim * sizeof(double));
}

/* Words of places without rows are left over from others, and stay here. */
static dci_status emit_codes(const void *ctx, const dci_sink *sink)
{
        const dci_saving *s = ctx;
        for (size_t b = 0; b < blocks_of(s->view.n); b++) {
                size_t at;
                const dci_code_block *codes = codes_of(s, b, &at);
                for (size_t line = 0; line < frames_of(s)->block_bytes; line += DCI_CODE_LINE) {
                        unsigned char out[DCI_CODE_LINE];
                        memcpy(out, codes->blocks + at * frames_of(s)->block_bytes + line, sizeof out);
                        for (size_t r = 0; r < DCI_CODE_UNIT; r++)
                                if (!holds_row(s, b * DCI_CODE_ROWS + line / DCI_CODE_LINE % 2 * DCI_CODE_UNIT + r))
                                        memset(out + 4 * r, 0, 4);
                        DCI_TRY(sink->write(sink->ctx, out, sizeof out));
                }
        }
        return DCI_OK;
}

/* Floats of a block's rows; 0 where there is none. */
static dci_status emit_block(const dci_saving *s, const dci_sink *sink, size_t b, const float *from)
{
        float out[DCI_CODE_ROWS];
        for (size_t r = 0; r < DCI_CODE_ROWS; r++)
                out[r] = holds_row(s, b * DCI_CODE_ROWS + r) ? from[r] : 0.0f;
        return sink->write(sink->ctx, out, sizeof out);
}

/* Scales, then residuals. */
static dci_status emit_floats(const void *ctx, const dci_sink *sink)
{
        const dci_saving *s = ctx;
        for (int which = 0; which < 2; which++)
                for (size_t b = 0, at; b < blocks_of(s->view.n); b++) {
                        const dci_code_block *codes = codes_of(s, b, &at);
                        const float *from = which == 0 ? codes->scales : codes->residuals;
                        DCI_TRY(emit_block(s, sink, b, from + at * DCI_CODE_ROWS));
                }
        return DCI_OK;
}

static dci_status emit_squares(const void *ctx, const dci_sink *sink)
{
        const dci_saving *s = ctx;
        for (size_t b = 0, at; b < blocks_of(s->view.n); b++) {
                const dci_code_block *codes = codes_of(s, b, &at);
                DCI_TRY(emit_block(s, sink, b, codes->squares + at * DCI_CODE_ROWS));
        }
        return DCI_OK;
}

/* Block by block, direction by direction. */
static dci_status emit_kept(const void *ctx, const dci_sink *sink)
{
        const dci_saving *s = ctx;
        const dci_frames *frames = frames_of(s);
        for (size_t b = 0, at; b < blocks_of(s->view.n); b++) {
                const dci_code_block *codes = codes_of(s, b, &at);
                for (size_t i = 0; i < frames->n_kept; i++)
                        DCI_TRY(emit_block(s, sink, b, dci_code_block_kept(frames, codes, at * DCI_CODE_ROWS, i)));
        }
        return DCI_OK;
}

/* By block: how far its rows reach, then their frames. A block whose rows have gone keeps both for those to come. */
static dci_status emit_blocks(const void *ctx, const dci_sink *sink)
{
        const dci_saving *s = ctx;
        for (int which = 0; which < 2; which++)
                for (size_t b = 0, at; b < blocks_of(s->view.n); b++) {
                        const dci_code_block *codes = codes_of(s, b, &at);
                        DCI_TRY(which == 0 ? sink->write(sink->ctx, &codes->reach[at], sizeof codes->reach[at])
                                           : sink->write(sink->ctx, &codes->frames[at], 1));
                }
        return DCI_OK;
}

/* What was learned stays when all rows have gone, and is used for those to come. */
void dci_codes_write(dci_saving *s)
{
        if (s->index->rows.codes == NULL || (atomic_load(&s->index->rows.codes->frames.n) == 0 && s->view.n == 0))
                return;
        dci_frames *frames = &s->index->rows.codes->frames;
        const size_t n_blocks = blocks_of(s->view.n), n_frames = atomic_load(&frames->n);
        const dci_coder *coder = n_frames == 0 ? NULL : &frames->frame[0]->coder;
        dci_saving_add(s, "frames", FRAMES_BYTES, emit_frames);
        dci_saving_add(s, "relative", RELATIVE_HEAD + (n_frames + frames->n_kept * frames->dim) * sizeof(float),
                       emit_relative);
        dci_saving_add(s, "centres", n_frames * frames->dim * sizeof(float), emit_centres);
        if (coder != NULL && coder->kind == DCI_CODER_LEARNED)
                dci_saving_add(s, "learned", coder->n_coords * (2 * coder->dim + 1) * sizeof(float), emit_learned);
        if (frames->n_pending > 0)
                dci_saving_add(s, "pending", PENDING_HEAD + frames->dim * sizeof(double), emit_pending);
        dci_saving_add(s, "codes", n_blocks * frames->block_bytes, emit_codes);
        dci_saving_add(s, "scales", n_blocks * 2 * DCI_CODE_ROWS * sizeof(float), emit_floats);
        if (frames->relation == DCI_RELATION_DISTANCE)
                dci_saving_add(s, "squares", n_blocks * DCI_CODE_ROWS * sizeof(float), emit_squares);
        if (frames->n_kept > 0)
                dci_saving_add(s, "kept", n_blocks * frames->n_kept * DCI_CODE_ROWS * sizeof(float), emit_kept);
        dci_saving_add(s, "blocks", n_blocks * (sizeof(float) + 1), emit_blocks);
}

/* --- loading -------------------------------------------------------------------------------------------------------- */

static size_t wide_of(const dci_loading *l)
{
        return (l->config.dim + DCI_CODE_GROUP - 1) / DCI_CODE_GROUP * DCI_CODE_GROUP;
}

/* What there is beside the codes of before; without it, they are encoded again from the rows. */
static dci_status find_relative(dci_loading *l)
{
        const size_t n_blocks = blocks_of(l->n), dim = l->config.dim;
        dci_loading_codes *codes = &l->codes;
        size_t n_floats = 0;
        codes->is_old = !dci_loading_has(l, "relative");
        if (codes->is_old)
                return DCI_OK;
        DCI_TRY(dci_loading_read_any(l, "relative", sizeof(float), &codes->relative, &n_floats));
        const size_t rest = n_floats * sizeof(float) < RELATIVE_HEAD ? 0 : n_floats - RELATIVE_HEAD / sizeof(float);
        const uint64_t n_kept = n_floats * sizeof(float) < RELATIVE_HEAD ? UINT64_MAX : dci_load_le64(codes->relative);
        if (n_kept > DCI_MAX_KEPT || n_kept > dim || rest != codes->n_frames + n_kept * dim)
                return dci_fail(DCI_ERR_FORMAT, "the file's codes keep an impossible number of directions");
        codes->n_kept = (size_t)n_kept;
        if (l->config.metric != DCI_METRIC_IP)
                DCI_TRY(dci_loading_read(l, "squares", n_blocks, DCI_CODE_ROWS * sizeof(float), &codes->squares));
        if (n_kept > 0)
                DCI_TRY(dci_loading_read(l, "kept", n_blocks * codes->n_kept, DCI_CODE_ROWS * sizeof(float),
                                         &codes->kept));
        return DCI_OK;
}

dci_status dci_codes_find(dci_loading *l)
{
        const size_t n_blocks = blocks_of(l->n), dim = l->config.dim;
        dci_loading_codes *codes = &l->codes;
        if (l->config.sketch_bits == 0 || (l->n == 0 && !dci_loading_has(l, "frames")))
                return DCI_OK;
        DCI_TRY(dci_loading_read(l, "frames", 1, FRAMES_BYTES, &codes->frames));
        DCI_TRY(dci_loading_read_any(l, "centres", dim * sizeof(float), &codes->centres, &codes->n_frames));
        DCI_TRY(find_relative(l));
        if ((codes->n_frames == 0 && codes->is_old) || codes->n_frames > DCI_MAX_FRAMES)
                return dci_fail(DCI_ERR_FORMAT, "the file has %zu centres of codes, expected %d to %zu",
                                codes->n_frames, (int)codes->is_old, DCI_MAX_FRAMES);
        const uint32_t kind = dci_load_le32(codes->frames);
        if (kind != DCI_CODER_ROTATED && (kind != DCI_CODER_LEARNED || dim > DCI_LEARNED_DIM))
                return dci_fail(DCI_ERR_FORMAT, "the file's codes are of kind %u at dim %zu, which there is not",
                                (unsigned)kind, dim);
        codes->learns = kind == DCI_CODER_LEARNED;
        if (codes->learns && codes->n_frames != 1)
                return dci_fail(DCI_ERR_FORMAT, "the file has %zu centres of learned codes, expected 1",
                                codes->n_frames);
        if (codes->learns)
                DCI_TRY(dci_loading_read(l, "learned", wide_of(l), (2 * dim + 1) * sizeof(float), &codes->learned));
        if (dci_loading_has(l, "pending"))
                DCI_TRY(dci_loading_read(l, "pending", dim + PENDING_HEAD / sizeof(double), sizeof(double),
                                         &codes->pending));
        DCI_TRY(dci_loading_read(l, "codes", n_blocks, dci_frames_block_bytes(dim, l->config.sketch_bits),
                                 &codes->blocks));
        DCI_TRY(dci_loading_read(l, "scales", n_blocks, 2 * DCI_CODE_ROWS * sizeof(float), &codes->scales));
        DCI_TRY(dci_loading_read(l, "blocks", n_blocks, sizeof(float) + 1, &codes->by_block));
        return DCI_OK;
}

/* Groups line by line, each after the one before. */
static dci_status read_layout(const dci_loading *l, size_t block_bytes, dci_code_layout *out)
{
        const unsigned char *at = l->codes.frames;
        if (!dci_code_layout_learned(dci_load_le64(at + 8), dci_load_le64(at + 16), dci_load_le64(at + 24), at + 32,
                                     GROUP_BYTES, wide_of(l), block_bytes, out))
                return dci_fail(DCI_ERR_FORMAT, "the file's learned codes have an impossible layout");
        return DCI_OK;
}

static dci_status restore_frames(const dci_loading *l, dci_frames *frames)
{
        const dci_loading_codes *codes = &l->codes;
        const size_t dim = frames->dim, wide = wide_of(l);
        if (!dci_floats_finite(codes->centres, codes->n_frames * dim) ||
            (codes->learns && !dci_floats_finite(codes->learned, wide * (2 * dim + 1))))
                return dci_fail(DCI_ERR_FORMAT, "a transform or centre of the file's codes holds NaN or infinity");
        float *centre = dci_alloc(frames->context, dim, sizeof *centre);
        dci_status status = centre == NULL ? DCI_ERR_MEMORY : DCI_OK;
        for (size_t f = 0; f < codes->n_frames && status == DCI_OK; f++) {
                memcpy(centre, (const unsigned char *)codes->centres + f * dim * sizeof *centre, dim * sizeof *centre);
                if (!codes->learns) {
                        status = dci_frames_begin(frames, centre);
                        continue;
                }
                dci_code_layout layout;
                status = read_layout(l, frames->block_bytes, &layout);
                const unsigned char *worth = codes->learned, *to = worth + wide * sizeof(float);
                if (status == DCI_OK)
                        status =
                                dci_frames_restore(frames, &layout, centre, worth, to, to + wide * dim * sizeof(float));
        }
        dci_free(frames->context, centre, dim, sizeof *centre);
        return status;
}

/* Bytes without a meaning are those of a library that knows one. */
static dci_status check_unused(const dci_loading *l, const dci_frames *frames)
{
        const unsigned char *found = l->codes.frames;
        unsigned char known[FRAMES_BYTES];
        encode_frames(frames, known);
        for (size_t i = 0; i < FRAMES_BYTES; i++)
                if (found[i] != known[i])
                        return dci_fail(DCI_ERR_UNSUPPORTED,
                                        "byte %zu of the file's frames is 0x%02x, this library knows no use of it", i,
                                        found[i]);
        return DCI_OK;
}

/* Numbers that rows could have: a centre is made of them. */
static dci_status restore_pending(const dci_loading *l, dci_frames *frames)
{
        const unsigned char *at = l->codes.pending;
        if (at == NULL)
                return DCI_OK;
        const uint64_t n = dci_load_le64(at);
        const double square = dci_load_f64(at + 8),
                     most = 0x1p63 * (double)n; /* of an element; its square: FLT_MAX / 8 */
        bool good = n > 0 && n <= DCI_PENDING && !l->codes.learns && square >= 0.0 && square <= 0x1p63 * most;
        for (size_t j = 0; j < frames->dim && good; j++) {
                frames->pending_sum[j] = dci_load_f64(at + PENDING_HEAD + j * sizeof(double));
                good = fabs(frames->pending_sum[j]) <= most;
        }
        frames->pending_square = square;
        frames->n_pending = (size_t)n;
        return good ? DCI_OK : dci_fail(DCI_ERR_FORMAT, "the file's codes have impossible sums of rows pending");
}

static dci_status restore_relative(const dci_loading *l, dci_rows_codes *to)
{
        const unsigned char *at = l->codes.relative, *energies = at + RELATIVE_HEAD;
        const size_t n_frames = l->codes.n_frames;
        float energy;
        memcpy(&energy, at + 32, sizeof energy);
        bool good = dci_floats_finite(energies, n_frames + l->codes.n_kept * l->config.dim) && energy >= 0.0f &&
                    isfinite(energy) && dci_load_le32(at + 36) == 0;
        const uint64_t numbers[3] = {dci_load_le64(at + 8), dci_load_le64(at + 16), dci_load_le64(at + 24)};
        good = good && numbers[0] <= numbers[1] && numbers[1] <= DCI_MAX_ROWS && numbers[2] <= DCI_MAX_FRAMES;
        for (size_t f = 0; f < n_frames && good; f++) {
                memcpy(&to->frames.frame[f]->energy, energies + f * sizeof(float), sizeof(float));
                good = to->frames.frame[f]->energy >= 0.0f;
        }
        if (!good)
                return dci_fail(DCI_ERR_FORMAT, "the file's codes have impossible energies, directions or counts");
        to->n_reviewed = (size_t)numbers[0];
        to->n_checked = (size_t)numbers[1];
        to->n_frames = (size_t)numbers[2];
        to->energy = energy;
        return DCI_OK;
}

/* Directions, at any address in the file, before there is room for codes. */
dci_status dci_codes_prepare(const dci_loading *l)
{
        dci_frames *frames = l->codes.n_kept == 0 ? NULL : &l->index->rows.codes->frames;
        if (frames == NULL)
                return DCI_OK;
        const size_t n = l->codes.n_kept * frames->dim;
        float *kept = dci_alloc(frames->context, n, sizeof *kept);
        if (kept == NULL)
                return DCI_ERR_MEMORY;
        memcpy(kept, (const unsigned char *)l->codes.relative + RELATIVE_HEAD + l->codes.n_frames * sizeof *kept,
               n * sizeof *kept);
        const dci_status status = dci_frames_relate(frames, frames->relation, l->codes.n_kept, kept);
        dci_free(frames->context, kept, n, sizeof *kept);
        return status;
}

/* A chunk's codes: copied, or, if the file is mapped, in place. */
static void place_chunk(const dci_loading *l, const dci_frames *frames, size_t first, size_t n, dci_chunk *chunk)
{
        const dci_loading_codes *codes = &l->codes;
        const size_t block = first / DCI_CODE_ROWS, n_blocks = blocks_of(n), all = blocks_of(l->n);
        const unsigned char *blocks = (const unsigned char *)codes->blocks + block * frames->block_bytes;
        const unsigned char *scales = (const unsigned char *)codes->scales + first * sizeof(float);
        const unsigned char *residuals = scales + all * DCI_CODE_ROWS * sizeof(float);
        const unsigned char *reach = (const unsigned char *)codes->by_block + block * sizeof(float);
        const unsigned char *number = (const unsigned char *)codes->by_block + all * sizeof(float) + block;
        const unsigned char *squares =
                codes->squares == NULL ? NULL : (const unsigned char *)codes->squares + first * sizeof(float);
        const size_t kept_bytes = codes->n_kept * DCI_CODE_ROWS * sizeof(float);
        const unsigned char *kept =
                codes->kept == NULL ? NULL : (const unsigned char *)codes->kept + block * kept_bytes;
        if (l->file->mapped) { /* the pointers are not const, but nothing writes to a mapped index */
                chunk->area = (dci_code_block){.blocks = (unsigned char *)(uintptr_t)blocks,
                                               .scales = (float *)(uintptr_t)scales,
                                               .residuals = (float *)(uintptr_t)residuals,
                                               .squares = (float *)(uintptr_t)squares,
                                               .kept = (float *)(uintptr_t)kept,
                                               .reach = (float *)(uintptr_t)reach,
                                               .frames = (uint8_t *)(uintptr_t)number};
                return;
        }
        memcpy(chunk->area.blocks, blocks, n_blocks * frames->block_bytes);
        memcpy(chunk->area.scales, scales, n_blocks * DCI_CODE_ROWS * sizeof(float));
        memcpy(chunk->area.residuals, residuals, n_blocks * DCI_CODE_ROWS * sizeof(float));
        if (squares != NULL)
                memcpy(chunk->area.squares, squares, n_blocks * DCI_CODE_ROWS * sizeof(float));
        if (kept != NULL)
                memcpy(chunk->area.kept, kept, n_blocks * kept_bytes);
        memcpy(chunk->area.reach, reach, n_blocks * sizeof(float));
        memcpy(chunk->area.frames, number, n_blocks);
}

dci_status dci_codes_place(dci_loading *l)
{
        dci_rows *rows = &l->index->rows;
        if (rows->codes == NULL || l->codes.frames == NULL)
                return DCI_OK;
        DCI_TRY(restore_frames(l, &rows->codes->frames));
        DCI_TRY(check_unused(l, &rows->codes->frames));
        DCI_TRY(restore_pending(l, &rows->codes->frames));
        if (l->codes.is_old)
                return DCI_OK;
        DCI_TRY(restore_relative(l, rows->codes));
        for (size_t first = 0; first < l->n;) {
                size_t offset, left = l->n - first;
                dci_chunk *chunk = dci_rows_chunk(rows, first, &offset);
                const size_t n = chunk->capacity < left ? chunk->capacity : left;
                place_chunk(l, &rows->codes->frames, first, n, chunk);
                first += n;
        }
        return DCI_OK;
}

/* Frames of before, in which nothing was relative to their centres, go; what was learned stays, but for COSINE, where it was learned
 * from rows of any length. */
static dci_status replace_frames(const dci_loading *l, dci_rows *rows, size_t n)
{
        dci_codes_plan plan;
        dci_frames_drop(&rows->codes->frames, SIZE_MAX);
        if (l->codes.learns && l->config.metric != DCI_METRIC_COSINE) {
                rows->codes->n_reviewed = rows->codes->n_checked = n;
                return DCI_OK;
        }
        dci_frames_clear(&rows->codes->frames);
        if (n <= DCI_PENDING)
                return dci_rows_follow(rows, rows, 0, l->n);
        DCI_TRY(dci_codes_plan_make(rows, n, DCI_PLAN_CENTRES, &plan));
        const dci_status status = dci_codes_follow_plan(&plan, n, rows);
        dci_codes_plan_free(rows, &plan);
        return status;
}

/* Codes of before are made again from the rows; if those are mapped, in memory of their own. */
static dci_status encode_old(const dci_loading *l)
{
        dci_rows *rows = &l->index->rows;
        size_t n = 0;
        for (size_t slot = 0; slot < l->n; slot++)
                n += !rows->gaps || dci_view_id(&l->view, (int32_t)slot) >= 0;
        for (size_t i = 0; i < rows->n_chunks; i++) {
                dci_chunk *chunk = &atomic_load(&rows->table)->chunk[i];
                dci_chunk_codes_free(rows, chunk);
                chunk->codes = NULL;
        }
        DCI_TRY(replace_frames(l, rows, n));
        for (size_t i = 0; i < rows->n_chunks; i++) {
                dci_chunk *chunk = &atomic_load(&rows->table)->chunk[i];
                if (!dci_chunk_codes_create(rows, chunk->capacity, chunk))
                        return DCI_ERR_MEMORY;
        }
        return dci_rows_encode(rows, 0, l->n);
}

/* Numbers are numbers, where there is no row, too; the rest is asked of any index. What codes say of rows is not checked: they only
 * propose. */
dci_status dci_codes_accept(const dci_loading *l)
{
        if (l->index->rows.codes == NULL || l->codes.frames == NULL)
                return DCI_OK;
        if (l->codes.is_old)
                return encode_old(l);
        const size_t n_rows = blocks_of(l->n) * DCI_CODE_ROWS;
        if (!dci_floats_finite(l->codes.scales, 2 * n_rows) || !dci_floats_finite(l->codes.by_block, blocks_of(l->n)) ||
            (l->codes.squares != NULL && !dci_floats_finite(l->codes.squares, n_rows)) ||
            (l->codes.kept != NULL && !dci_floats_finite(l->codes.kept, l->codes.n_kept * n_rows)))
                return dci_fail(DCI_ERR_FORMAT, "a scale of the file's codes is NaN or infinite");
        return dci_check_codes(l->index, &l->view);
}
