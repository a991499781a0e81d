/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Codes in a file: the transform, its centres, and the codes, slot by slot. docs/format.md has the bytes. */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "index/check/parts.h"
#include "index/codes/rows.h"
#include "index/persist/sections.h"

/* The section "frames": kind, layout, and groups of 4 bytes each. */
#define FRAMES_BYTES (32 + 4 * DCI_CODE_GROUPS)
#define GROUP_BYTES 4
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

static bool holds_row(const dci_saving *s, size_t slot)
{
        return slot < s->view.n && (!s->view.rows->gaps || dci_view_id(&s->view, (int32_t)slot) >= 0);
}

/* The codes that hold a block, and its place among them. */
static const dci_code_block *codes_of(const dci_saving *s, size_t block, size_t *out_block)
{
        const dci_unit unit = dci_view_unit(&s->view, 2 * block);
        *out_block = unit.unit / 2;
        return unit.area;
}

static void encode_frames(const dci_frames *frames, unsigned char out[FRAMES_BYTES])
{
        const dci_coder *coder = &frames->frame[0]->coder;
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

/* Scales, then residuals. */
static dci_status emit_floats(const void *ctx, const dci_sink *sink)
{
        const dci_saving *s = ctx;
        for (int which = 0; which < 2; which++)
                for (size_t b = 0, at; b < blocks_of(s->view.n); b++) {
                        const dci_code_block *codes = codes_of(s, b, &at);
                        const float *from = (which == 0 ? codes->scales : codes->residuals) + at * DCI_CODE_ROWS;
                        float out[DCI_CODE_ROWS];
                        for (size_t r = 0; r < DCI_CODE_ROWS; r++)
                                out[r] = holds_row(s, b * DCI_CODE_ROWS + r) ? from[r] : 0.0f;
                        DCI_TRY(sink->write(sink->ctx, out, sizeof out));
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
        if (s->index->rows.codes == NULL || atomic_load(&s->index->rows.codes->frames.n) == 0)
                return;
        dci_frames *frames = &s->index->rows.codes->frames;
        const dci_coder *coder = &frames->frame[0]->coder;
        const size_t n_blocks = blocks_of(s->view.n);
        dci_saving_add(s, "frames", FRAMES_BYTES, emit_frames);
        dci_saving_add(s, "centres", atomic_load(&frames->n) * frames->dim * sizeof(float), emit_centres);
        if (coder->kind == DCI_CODER_LEARNED)
                dci_saving_add(s, "learned", coder->n_coords * (2 * coder->dim + 1) * sizeof(float), emit_learned);
        if (frames->n_pending > 0)
                dci_saving_add(s, "pending", PENDING_HEAD + frames->dim * sizeof(double), emit_pending);
        dci_saving_add(s, "codes", n_blocks * frames->block_bytes, emit_codes);
        dci_saving_add(s, "scales", n_blocks * 2 * DCI_CODE_ROWS * sizeof(float), emit_floats);
        dci_saving_add(s, "blocks", n_blocks * (sizeof(float) + 1), emit_blocks);
}

/* --- loading -------------------------------------------------------------------------------------------------------- */

static size_t wide_of(const dci_loading *l)
{
        return (l->config.dim + DCI_CODE_GROUP - 1) / DCI_CODE_GROUP * DCI_CODE_GROUP;
}

dci_status dci_codes_find(dci_loading *l)
{
        const size_t n_blocks = blocks_of(l->n), dim = l->config.dim;
        dci_loading_codes *codes = &l->codes;
        if (l->config.sketch_bits == 0 || (l->n == 0 && !dci_loading_has(l, "frames")))
                return DCI_OK;
        DCI_TRY(dci_loading_read(l, "frames", 1, FRAMES_BYTES, &codes->frames));
        DCI_TRY(dci_loading_read_any(l, "centres", dim * sizeof(float), &codes->centres, &codes->n_frames));
        if (codes->n_frames == 0 || codes->n_frames > DCI_MAX_FRAMES)
                return dci_fail(DCI_ERR_FORMAT, "the file has %zu centres of codes, expected 1 to %zu", codes->n_frames,
                                DCI_MAX_FRAMES);
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
        if (l->file->mapped) { /* the pointers are not const, but nothing writes to a mapped index */
                chunk->area = (dci_code_block){.blocks = (unsigned char *)(uintptr_t)blocks,
                                               .scales = (float *)(uintptr_t)scales,
                                               .residuals = (float *)(uintptr_t)residuals,
                                               .reach = (float *)(uintptr_t)reach,
                                               .frames = (uint8_t *)(uintptr_t)number};
                return;
        }
        memcpy(chunk->area.blocks, blocks, n_blocks * frames->block_bytes);
        memcpy(chunk->area.scales, scales, n_blocks * DCI_CODE_ROWS * sizeof(float));
        memcpy(chunk->area.residuals, residuals, n_blocks * DCI_CODE_ROWS * sizeof(float));
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
        for (size_t first = 0; first < l->n;) {
                size_t offset, left = l->n - first;
                dci_chunk *chunk = dci_rows_chunk(rows, first, &offset);
                const size_t n = chunk->capacity < left ? chunk->capacity : left;
                place_chunk(l, &rows->codes->frames, first, n, chunk);
                first += n;
        }
        return DCI_OK;
}

/* Numbers are numbers, where there is no row, too; the rest is asked of any index. What codes say of rows is not checked: they only
 * propose. */
dci_status dci_codes_accept(const dci_loading *l)
{
        if (l->index->rows.codes == NULL || l->n == 0)
                return DCI_OK;
        if (!dci_floats_finite(l->codes.scales, blocks_of(l->n) * 2 * DCI_CODE_ROWS) ||
            !dci_floats_finite(l->codes.by_block, blocks_of(l->n)))
                return dci_fail(DCI_ERR_FORMAT, "a scale of the file's codes is NaN or infinite");
        return dci_check_codes(l->index, &l->view);
}
