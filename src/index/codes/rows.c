/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Codes of rows are stored slot by slot in the chunks of the rows, so they come and go with them. A block of 32 slots keeps the frame it
 * began with while it holds rows; a row that comes to a block of another frame makes the block be encoded again.
 */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "index/codes/rows.h"

#define TASK_BLOCKS ((size_t)4)
/* Rows of a batch that are asked where the centre should be. */
#define SAMPLE ((size_t)1024)

/* What encoding takes, one row or a block, and the rows as floats. */
static size_t scratch_bytes(const dci_frames *frames, bool one)
{
        return dci_frames_encode_bytes(frames, one) +
               dci_lines((one ? 1 : DCI_CODE_ROWS) * frames->dim * sizeof(float));
}

/* Of the rows' own: one row, and sums to go back to. */
static size_t own_bytes(const dci_frames *frames)
{
        return scratch_bytes(frames, true) + dci_lines(frames->dim * sizeof(double));
}

dci_status dci_rows_codes_create(dci_rows *rows, const dci_index_config *config)
{
        if (config->sketch_bits == 0)
                return DCI_OK;
        dci_rows_codes *codes = dci_calloc(rows->context, 1, sizeof *codes);
        if (codes == NULL)
                return DCI_ERR_MEMORY;
        dci_status status = dci_frames_init(rows->context, DCI_CODER_ROTATED, config->dim, config->sketch_bits, true,
                                            config->seed, &codes->frames);
        if (status == DCI_OK) {
                codes->scratch = dci_alloc(rows->context, own_bytes(&codes->frames), 1);
                status = codes->scratch == NULL ? DCI_ERR_MEMORY : DCI_OK;
        }
        if (status != DCI_OK) {
                dci_rows_codes_destroy(rows->context, codes);
                return status;
        }
        codes->wide =
                (float *)(void *)((unsigned char *)codes->scratch + dci_frames_encode_bytes(&codes->frames, true));
        rows->codes = codes;
        return DCI_OK;
}

void dci_rows_codes_destroy(dci_context *context, dci_rows_codes *codes)
{
        if (codes == NULL)
                return;
        dci_free(context, codes->scratch, own_bytes(&codes->frames), 1);
        if (codes->frames.context != NULL)
                dci_frames_destroy(&codes->frames);
        dci_free(context, codes, 1, sizeof *codes);
}

size_t dci_rows_codes_bytes(const dci_rows *rows)
{
        return rows->codes == NULL
                       ? 0
                       : sizeof *rows->codes + own_bytes(&rows->codes->frames) + dci_frames_bytes(&rows->codes->frames);
}

bool dci_chunk_codes_create(const dci_rows *rows, size_t capacity, dci_chunk *chunk)
{
        if (rows->codes == NULL)
                return true;
        const dci_frames *frames = &rows->codes->frames;
        chunk->codes = dci_alloc(rows->context, dci_code_block_bytes(frames, capacity), 1);
        if (chunk->codes == NULL)
                return false;
        dci_code_block_place(frames, capacity, chunk->codes, &chunk->area);
        dci_code_block_clear(frames, 0, (capacity + DCI_CODE_ROWS - 1) / DCI_CODE_ROWS, &chunk->area);
        return true;
}

void dci_chunk_codes_free(const dci_rows *rows, const dci_chunk *chunk)
{
        if (chunk->codes != NULL)
                dci_free(rows->context, chunk->codes, dci_code_block_bytes(&rows->codes->frames, chunk->capacity), 1);
}

void dci_chunk_codes_copy(const dci_rows *rows, const dci_chunk *from, size_t used, dci_chunk *to)
{
        if (rows->codes != NULL)
                dci_code_block_copy(&rows->codes->frames, &from->area, used, &to->area);
}

/* A row of a chunk as floats. */
static const float *floats_of(const dci_rows *rows, const dci_chunk *chunk, size_t offset, float *wide)
{
        const void *row = rows->borrowed ? ((const void *const *)chunk->rows)[offset]
                                         : (const unsigned char *)chunk->rows + offset * rows->row_bytes;
        if (rows->dtype == DCI_F32)
                return row;
        rows->context->kernels->to_f32[rows->dtype - 1](row, rows->dim, wide);
        return wide;
}

static void put_row(dci_rows *rows, dci_chunk *chunk, size_t offset)
{
        dci_code_block_encode(&rows->codes->frames, &chunk->area, offset,
                              floats_of(rows, chunk, offset, rows->codes->wide), rows->codes->scratch);
}

static float off_centre(const dci_rows *rows, const float *row, size_t frame)
{
        const float *centre = rows->codes->frames.frame[frame]->coder.centre;
        float distance2;
        rows->context->kernels->score_strided[DCI_F32 - 1][DCI_FORM_L2](row, centre, 0, 1, rows->dim, &distance2);
        return distance2;
}

/* The frame of a block for a row that comes to it: the one it has, unless the row is much nearer to another's centre. Rows of a
 * block are often neighbours, so the others will be better off, too. */
#define MUCH_NEARER 0.5f

static size_t frame_for(const dci_rows *rows, const float *row, size_t present)
{
        const size_t n = atomic_load(&rows->codes->frames.n);
        size_t best = present == DCI_NO_FRAME ? n - 1 : present;
        float least = present == DCI_NO_FRAME ? INFINITY : MUCH_NEARER * off_centre(rows, row, present);
        for (size_t f = n; n > 1 && f-- > 0;) {
                const float here = off_centre(rows, row, f);
                if (here < least) {
                        least = here;
                        best = f;
                }
        }
        return best;
}

void dci_rows_encode_one(dci_rows *rows, size_t slot)
{
        if (rows->codes == NULL || atomic_load(&rows->codes->frames.n) == 0) /* dci_rows_encode will come */
                return;
        size_t offset;
        dci_chunk *chunk = dci_rows_chunk(rows, slot, &offset);
        const size_t block = offset / DCI_CODE_ROWS, first = block * DCI_CODE_ROWS;
        const size_t frame =
                frame_for(rows, floats_of(rows, chunk, offset, rows->codes->wide), chunk->area.frames[block]);
        if (frame == chunk->area.frames[block]) {
                put_row(rows, chunk, offset);
                return;
        }
        /* All rows there are: the published ones and those that came before this, or, in an index with gaps, those with an id. */
        const size_t base = slot - offset, n = atomic_load(&rows->n);
        chunk->area.frames[block] = (uint8_t)frame;
        chunk->area.reach[block] = 0.0f;
        for (size_t r = first; r < first + DCI_CODE_ROWS && r < chunk->capacity; r++)
                if (rows->gaps ? chunk->ids[r] >= 0 : base + r < n || r <= offset)
                        put_row(rows, chunk, r);
}

/* What was learned, or centres, unless so many have come together that it is better to start over, or no row has them any more. */
dci_status dci_rows_codes_inherit(dci_rows *rows, const dci_rows *from)
{
        const size_t n = rows->codes == NULL || from->codes == NULL ? 0 : atomic_load(&from->codes->frames.n);
        const dci_coder *last = n == 0 ? NULL : &from->codes->frames.frame[n - 1]->coder;
        if (last != NULL && last->kind == DCI_CODER_LEARNED)
                return dci_frames_restore(&rows->codes->frames, &last->layout, last->centre, last->worth, last->to,
                                          last->from);
        const bool worth_it = n <= DCI_MAX_FRAMES / 2 && atomic_load(&rows->n) > 0;
        for (size_t f = 0; f < n && worth_it; f++)
                DCI_TRY(dci_frames_begin(&rows->codes->frames, from->codes->frames.frame[f]->coder.centre));
        return DCI_OK;
}

/* Whether a slot of `from` has a row, and the row, if floats are asked for. */
static bool row_in(const dci_rows *rows, dci_rows *from, size_t slot, const float **out)
{
        size_t offset;
        const dci_chunk *chunk = dci_rows_chunk(from, slot, &offset);
        if (from->gaps && chunk->ids[offset] < 0)
                return false;
        if (out != NULL)
                *out = floats_of(from, chunk, offset, rows->codes->wide);
        return true;
}

dci_status dci_rows_follow(dci_rows *rows, dci_rows *from, size_t first, size_t end)
{
        if (rows->codes == NULL)
                return DCI_OK;
        const size_t n = end - first, step = n > SAMPLE ? n / SAMPLE : 1;
        dci_rows_codes *codes = rows->codes;
        double *sums = (double *)(void *)((unsigned char *)codes->scratch + scratch_bytes(&codes->frames, true));
        dci_frames_remember(&codes->frames, sums, &codes->mark);
        size_t n_taken = 0;
        const float *row;
        for (size_t slot = first; slot < end; slot += step)
                n_taken += row_in(rows, from, slot, NULL);
        dci_frames_expect(&codes->frames, n_taken);
        for (size_t slot = first; slot < end; slot += step)
                if (row_in(rows, from, slot, &row))
                        dci_frames_note(&codes->frames, row);
        return first == end ? DCI_OK : dci_frames_follow(&codes->frames);
}

void dci_rows_unfollow(dci_rows *rows)
{
        if (rows->codes != NULL)
                dci_frames_rewind(&rows->codes->frames, &rows->codes->mark);
}

void dci_rows_codes_restart(dci_rows *rows)
{
        if (rows->codes == NULL)
                return;
        dci_frames_drop(&rows->codes->frames, SIZE_MAX);
        dci_frames_cut(&rows->codes->frames, 0);
}

typedef struct encoding {
        dci_rows *rows;
        size_t first, end;
        unsigned char *scratch;
        size_t scratch_bytes; /* of a worker */
} encoding;

/* The rows of slots [slot, end), all in one block. */
static void encode_block(const encoding *e, size_t slot, size_t end, unsigned char *scratch)
{
        const dci_frames *frames = &e->rows->codes->frames;
        float *wide = (float *)(void *)(scratch + dci_frames_encode_bytes(frames, false));
        const float *rows[DCI_CODE_ROWS] = {NULL};
        size_t offset;
        dci_chunk *chunk = dci_rows_chunk(e->rows, slot, &offset);
        const size_t block = offset / DCI_CODE_ROWS;
        for (; slot < end; slot++, offset++)
                if (!e->rows->gaps || chunk->ids[offset] >= 0) {
                        const size_t r = offset % DCI_CODE_ROWS;
                        rows[r] = floats_of(e->rows, chunk, offset, wide + r * frames->dim);
                }
        dci_code_block_encode_rows(frames, &chunk->area, block, rows, scratch);
}

/* TASK_BLOCKS blocks, so that no two tasks share one. */
static void encode_task(void *arg, size_t task, size_t worker)
{
        const encoding *e = arg;
        const size_t base = e->first / DCI_CODE_ROWS * DCI_CODE_ROWS, many = TASK_BLOCKS * DCI_CODE_ROWS;
        size_t slot = base + task * many, end = slot + many;
        slot = slot < e->first ? e->first : slot;
        end = end > e->end ? e->end : end;
        for (size_t next; slot < end; slot = next) {
                next = (slot / DCI_CODE_ROWS + 1) * DCI_CODE_ROWS;
                next = next < end ? next : end;
                encode_block(e, slot, next, e->scratch + worker * e->scratch_bytes);
        }
}

/* The frame that suits the first row of a new block. */
static size_t frame_of_block(const dci_rows *rows, const dci_chunk *chunk, size_t offset)
{
        size_t r = offset;
        while (rows->gaps && r < offset + DCI_CODE_ROWS && r < chunk->capacity && chunk->ids[r] < 0)
                r++;
        if (r == offset + DCI_CODE_ROWS || r == chunk->capacity)
                return dci_frames_last(&rows->codes->frames);
        return frame_for(rows, floats_of(rows, chunk, r, rows->codes->wide), DCI_NO_FRAME);
}

/* Blocks that begin at `first` or later are new: whatever rows were there before have gone. */
static void begin_blocks(dci_rows *rows, size_t first, size_t end)
{
        for (size_t slot = first / DCI_CODE_ROWS * DCI_CODE_ROWS; slot < end; slot += DCI_CODE_ROWS) {
                size_t offset;
                dci_chunk *chunk = dci_rows_chunk(rows, slot, &offset);
                if (slot < first && chunk->area.frames[offset / DCI_CODE_ROWS] != DCI_NO_FRAME)
                        continue;
                chunk->area.frames[offset / DCI_CODE_ROWS] = (uint8_t)frame_of_block(rows, chunk, offset);
                chunk->area.reach[offset / DCI_CODE_ROWS] = 0.0f;
        }
}

dci_status dci_rows_encode(dci_rows *rows, size_t first, size_t end)
{
        if (rows->codes == NULL || first == end)
                return DCI_OK;
        const size_t base = first / DCI_CODE_ROWS * DCI_CODE_ROWS, many = TASK_BLOCKS * DCI_CODE_ROWS;
        const size_t n_tasks = (end - base + many - 1) / many;
        const size_t n_workers = dci_workers_for(rows->context, n_tasks, (end - first) * rows->dim * 16);
        const size_t n_bytes = scratch_bytes(&rows->codes->frames, false);
        encoding e = {rows, first, end, dci_alloc(rows->context, n_workers, n_bytes), n_bytes};
        if (e.scratch == NULL)
                return DCI_ERR_MEMORY;
        begin_blocks(rows, first, end);
        const dci_region region = {
                .context = rows->context, .n_tasks = n_tasks, .n_workers = n_workers, .fn = encode_task, .arg = &e};
        const dci_status status = dci_parallel(&region);
        dci_free(rows->context, e.scratch, n_workers, n_bytes);
        return status;
}
