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

/* Of the rows' own: one row, its rest, and sums to go back to. */
static size_t own_bytes(const dci_frames *frames)
{
        return scratch_bytes(frames, true) + dci_lines(frames->dim * sizeof(float)) +
               dci_lines(frames->dim * sizeof(double));
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
        if (status == DCI_OK)
                status = dci_frames_relate(
                        &codes->frames, config->metric == DCI_METRIC_IP ? DCI_RELATION_PRODUCT : DCI_RELATION_DISTANCE,
                        0, NULL);
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
        codes->rest = codes->wide + dci_lines(config->dim * sizeof(float)) / sizeof(float);
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

/* COSINE: rows count as unit rows. */
static float scale_of(const dci_rows *rows, const dci_chunk *chunk, size_t offset)
{
        return rows->metric == DCI_METRIC_COSINE ? chunk->norms[offset] : 1.0f;
}

void dci_rows_floats(const dci_rows *rows, const dci_chunk *chunk, size_t offset, float *out)
{
        const float *row = floats_of(rows, chunk, offset, out), scale = scale_of(rows, chunk, offset);
        for (size_t j = 0; j < rows->dim; j++)
                out[j] = row[j] * scale;
}

/* A zero row under COSINE has cosine 0, which is the distance of a right angle, 2, and not that of the origin. */
float dci_rows_place(const dci_rows *rows, const dci_chunk *chunk, size_t offset, size_t frame, float *rest,
                     float *kept)
{
        const float scale = scale_of(rows, chunk, offset);
        const float square =
                dci_frames_place(&rows->codes->frames, frame, floats_of(rows, chunk, offset, rest), scale, rest, kept);
        return scale == 0.0f ? square + 1.0f : square;
}

/* Rows whose rests are so much longer than those a frame was begun for (squares) rank by what their codes lose. One alone has no
 * others near it, so it hardly matters. */
#define FAR 16.0f
#define FAR_ROWS 2

static bool is_far(const dci_rows *rows, const dci_chunk *chunk, size_t offset, size_t frame, float square)
{
        const float energy = rows->codes->frames.frame[frame]->energy;
        const float usual = energy > rows->codes->energy ? energy : rows->codes->energy;
        if (scale_of(rows, chunk, offset) == 0.0f)
                return false;
        return square > FAR * usual;
}

/* Fills in what is kept of a row in addition to its code, and its rest. Returns whether it is far. */
static bool keep_row(const dci_rows *rows, dci_chunk *chunk, size_t offset, float *rest)
{
        const dci_frames *frames = &rows->codes->frames;
        const size_t frame = chunk->area.frames[offset / DCI_CODE_ROWS];
        float kept[DCI_MAX_KEPT];
        const float square = dci_rows_place(rows, chunk, offset, frame, rest, kept);
        if (frames->relation == DCI_RELATION_DISTANCE)
                chunk->area.squares[offset] = square;
        for (size_t i = 0; i < frames->n_kept; i++)
                *dci_code_block_kept(frames, &chunk->area, offset, i) = kept[i];
        return is_far(rows, chunk, offset, frame, square);
}

static bool put_row(dci_rows *rows, dci_chunk *chunk, size_t offset)
{
        const bool far = keep_row(rows, chunk, offset, rows->codes->wide);
        dci_code_block_encode(&rows->codes->frames, &chunk->area, offset, rows->codes->wide, rows->codes->scratch);
        return far;
}

bool dci_rows_holds(const dci_rows *rows, const dci_chunk *chunk, size_t slot, size_t offset, size_t n)
{
        return slot < n && (!rows->gaps || chunk->ids[offset] >= 0);
}

size_t dci_rows_max_raw(size_t n)
{
        return 4 + n / DCI_CODE_ROWS / 16;
}

size_t dci_rows_count_raw(const dci_rows *rows, size_t n)
{
        size_t n_raw = 0;
        for (size_t slot = 0; slot < n; slot += DCI_CODE_ROWS) {
                size_t offset;
                const dci_chunk *chunk = dci_rows_chunk((dci_rows *)(uintptr_t)rows, slot, &offset);
                n_raw += chunk->area.frames[offset / DCI_CODE_ROWS] == DCI_RAW_FRAME;
        }
        return n_raw;
}

/* The frame that suits the rows of a block best, those of the first n slots. */
static size_t best_frame(const dci_rows *rows, const dci_chunk *chunk, size_t slot, size_t offset, size_t n)
{
        const size_t n_frames = atomic_load(&rows->codes->frames.n);
        float kept[DCI_MAX_KEPT];
        size_t best = n_frames - 1;
        double least = INFINITY;
        for (size_t f = n_frames; n_frames > 1 && f-- > 0;) {
                double sum = 0.0;
                for (size_t r = 0; r < DCI_CODE_ROWS && offset + r < chunk->capacity; r++)
                        if (dci_rows_holds(rows, chunk, slot + r, offset + r, n))
                                sum += (double)dci_rows_place(rows, chunk, offset + r, f, rows->codes->rest, kept);
                if (sum < least) {
                        least = sum;
                        best = f;
                }
        }
        return best;
}

/* Encodes the rows of a block by a frame, those of the first n slots. Returns whether too many of them are far from it. */
static bool put_block(dci_rows *rows, dci_chunk *chunk, size_t slot, size_t offset, size_t n, size_t frame)
{
        int far = 0;
        chunk->area.frames[offset / DCI_CODE_ROWS] = (uint8_t)frame;
        chunk->area.reach[offset / DCI_CODE_ROWS] = 0.0f;
        for (size_t r = 0; r < DCI_CODE_ROWS && offset + r < chunk->capacity; r++)
                if (dci_rows_holds(rows, chunk, slot + r, offset + r, n))
                        far += put_row(rows, chunk, offset + r);
        return far >= FAR_ROWS;
}

static void leave_raw(dci_chunk *chunk, size_t offset)
{
        chunk->area.frames[offset / DCI_CODE_ROWS] = DCI_RAW_FRAME;
        chunk->area.reach[offset / DCI_CODE_ROWS] = 0.0f;
}

/* The block of a slot again, by the frame that suits it; or without codes, where none does and there may be such blocks. */
static void put_again(dci_rows *rows, size_t slot, size_t n, size_t n_raw)
{
        size_t offset;
        dci_chunk *chunk = dci_rows_chunk(rows, slot, &offset);
        const size_t r = offset % DCI_CODE_ROWS;
        const size_t frame = best_frame(rows, chunk, slot - r, offset - r, n);
        if (put_block(rows, chunk, slot - r, offset - r, n, frame) && n_raw < dci_rows_max_raw(n))
                leave_raw(chunk, offset);
}

void dci_rows_encode_raw(dci_rows *rows, size_t n)
{
        if (rows->codes == NULL || atomic_load(&rows->codes->frames.n) == 0)
                return;
        size_t n_raw = dci_rows_count_raw(rows, n);
        for (size_t slot = 0; slot < n && n_raw > 0; slot += DCI_CODE_ROWS) {
                size_t offset;
                const dci_chunk *chunk = dci_rows_chunk(rows, slot, &offset);
                if (chunk->area.frames[offset / DCI_CODE_ROWS] == DCI_RAW_FRAME)
                        put_again(rows, slot, n, 0);
        }
}

/* The frame of a block for a row that comes to it: the one it has, unless the row is much nearer to another's centre. Rows of a
 * block are often neighbours, so the others will be better off, too. */
#define MUCH_NEARER 0.5f

static size_t frame_for(const dci_rows *rows, const dci_chunk *chunk, size_t offset, size_t present)
{
        const size_t n = atomic_load(&rows->codes->frames.n);
        float kept[DCI_MAX_KEPT], *rest = rows->codes->rest;
        if (n == 1)
                return 0;
        size_t best = present == DCI_NO_FRAME ? n - 1 : present;
        float least = present == DCI_NO_FRAME ? INFINITY
                                              : MUCH_NEARER * dci_rows_place(rows, chunk, offset, present, rest, kept);
        for (size_t f = n; f-- > 0;) {
                const float here = dci_rows_place(rows, chunk, offset, f, rest, kept);
                if (here < least) {
                        least = here;
                        best = f;
                }
        }
        return best;
}

/* All rows there are: the published ones and those that came before this; or, in an index with gaps, those with an id. */
static size_t rows_until(const dci_rows *rows, size_t slot)
{
        const size_t n = atomic_load(&rows->n);
        return rows->gaps ? SIZE_MAX : (n > slot ? n : slot + 1);
}

void dci_rows_encode_one(dci_rows *rows, size_t slot)
{
        if (rows->codes == NULL)
                return;
        size_t offset;
        dci_chunk *chunk = dci_rows_chunk(rows, slot, &offset);
        const size_t block = offset / DCI_CODE_ROWS, n = rows_until(rows, slot);
        if (atomic_load(&rows->codes->frames.n) == 0) { /* or dci_rows_encode will come */
                leave_raw(chunk, offset);
                return;
        }
        if (chunk->area.frames[block] == DCI_RAW_FRAME)
                return;
        const size_t frame = frame_for(rows, chunk, offset, chunk->area.frames[block]);
        const bool same = frame == chunk->area.frames[block];
        if (same ? put_row(rows, chunk, offset)
                 : put_block(rows, chunk, slot - offset % DCI_CODE_ROWS, block * DCI_CODE_ROWS, n, frame))
                put_again(rows, slot, n, dci_rows_count_raw(rows, rows->gaps ? atomic_load(&rows->n) : n));
}

dci_status dci_rows_codes_prepare(dci_rows *rows, const dci_rows *from, size_t n_rows)
{
        const size_t n = rows->codes == NULL || from->codes == NULL ? 0 : atomic_load(&from->codes->frames.n);
        const dci_frames *frames = n == 0 ? NULL : &from->codes->frames;
        if (frames == NULL || (n_rows == 0 && frames->frame[n - 1]->coder.kind != DCI_CODER_LEARNED))
                return DCI_OK;
        rows->codes->n_reviewed = from->codes->n_reviewed;
        rows->codes->n_checked = from->codes->n_checked;
        rows->codes->n_frames = from->codes->n_frames;
        rows->codes->energy = from->codes->energy;
        return dci_frames_relate(&rows->codes->frames, frames->relation, frames->n_kept, frames->kept);
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
        for (size_t f = 0; f < n && worth_it; f++) {
                DCI_TRY(dci_frames_begin(&rows->codes->frames, from->codes->frames.frame[f]->coder.centre));
                rows->codes->frames.frame[f]->energy = from->codes->frames.frame[f]->energy;
        }
        return DCI_OK;
}

/* Whether a slot of `from` has a row, and the row and its scale, if floats are asked for. */
static bool row_in(const dci_rows *rows, dci_rows *from, size_t slot, const float **out, float *out_scale)
{
        size_t offset;
        const dci_chunk *chunk = dci_rows_chunk(from, slot, &offset);
        if (from->gaps && chunk->ids[offset] < 0)
                return false;
        if (out != NULL)
                *out = floats_of(from, chunk, offset, rows->codes->wide);
        if (out != NULL)
                *out_scale = scale_of(from, chunk, offset);
        return true;
}

dci_status dci_rows_follow(dci_rows *rows, dci_rows *from, size_t first, size_t end)
{
        if (rows->codes == NULL)
                return DCI_OK;
        const size_t n = end - first, step = n > SAMPLE ? n / SAMPLE : 1;
        dci_rows_codes *codes = rows->codes;
        double *sums = (double *)(void *)(codes->rest + dci_lines(codes->frames.dim * sizeof(float)) / sizeof(float));
        dci_frames_remember(&codes->frames, sums, &codes->mark);
        size_t n_taken = 0;
        const float *row;
        float scale;
        for (size_t slot = first; slot < end; slot += step)
                n_taken += row_in(rows, from, slot, NULL, NULL);
        dci_frames_expect(&codes->frames, n_taken);
        for (size_t slot = first; slot < end; slot += step)
                if (row_in(rows, from, slot, &row, &scale))
                        dci_frames_note(&codes->frames, row, scale, codes->rest);
        return first == end ? DCI_OK : dci_frames_follow(&codes->frames);
}

bool dci_rows_has_begun(const dci_rows *rows)
{
        return atomic_load(&rows->codes->frames.n) > rows->codes->mark.n;
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
        if (atomic_load(&rows->codes->frames.n) > 0)
                return;
        dci_frames_relate(&rows->codes->frames, rows->codes->frames.relation, 0, NULL); /* takes no memory */
        rows->codes->n_reviewed = rows->codes->n_checked = rows->codes->n_frames = 0;
        rows->codes->energy = 0.0f;
}

typedef struct encoding {
        dci_rows *rows;
        size_t first, end;
        unsigned char *scratch;
        size_t scratch_bytes; /* of a worker */
        uint8_t *far;         /* by block: whether rows are too far from its frame */
} encoding;

/* The rows of slots [slot, end), all in one block. */
static void encode_block(const encoding *e, size_t slot, size_t end, unsigned char *scratch)
{
        int far = 0;
        const size_t number = slot / DCI_CODE_ROWS - e->first / DCI_CODE_ROWS;
        const dci_frames *frames = &e->rows->codes->frames;
        float *wide = (float *)(void *)(scratch + dci_frames_encode_bytes(frames, false));
        const float *rows[DCI_CODE_ROWS] = {NULL};
        size_t offset;
        dci_chunk *chunk = dci_rows_chunk(e->rows, slot, &offset);
        const size_t block = offset / DCI_CODE_ROWS;
        if (chunk->area.frames[block] == DCI_RAW_FRAME)
                return;
        for (; slot < end; slot++, offset++)
                if (!e->rows->gaps || chunk->ids[offset] >= 0) {
                        const size_t r = offset % DCI_CODE_ROWS;
                        far += keep_row(e->rows, chunk, offset, wide + r * frames->dim);
                        rows[r] = wide + r * frames->dim;
                }
        dci_code_block_encode_rows(frames, &chunk->area, block, rows, scratch);
        e->far[number] = far >= FAR_ROWS;
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

/* The frame whose centre is nearest to the mean of a new block's rows, of those before slot `end`. */
static size_t frame_of_block(const dci_rows *rows, const dci_chunk *chunk, size_t slot, size_t offset, size_t end)
{
        const dci_frames *frames = &rows->codes->frames;
        const size_t n = atomic_load(&rows->codes->frames.n), dim = rows->dim;
        float *mean = rows->codes->wide, *rest = rows->codes->rest, kept[DCI_MAX_KEPT], least = INFINITY;
        size_t n_rows = 0, best = n - 1;
        if (n <= 1)
                return n == 0 ? DCI_RAW_FRAME : 0;
        memset(mean, 0, dim * sizeof *mean);
        for (size_t r = 0; r < DCI_CODE_ROWS && offset + r < chunk->capacity; r++) {
                if (!dci_rows_holds(rows, chunk, slot + r, offset + r, end))
                        continue;
                /* From the first centre, so that what is far from the origin does not cancel. */
                dci_rows_floats(rows, chunk, offset + r, rest);
                for (size_t j = 0; j < dim; j++)
                        mean[j] += rest[j] - frames->frame[0]->coder.centre[j];
                n_rows++;
        }
        for (size_t j = 0; j < dim && n_rows > 0; j++)
                mean[j] = mean[j] / (float)n_rows + frames->frame[0]->coder.centre[j];
        for (size_t f = n; f-- > 0 && n_rows > 0;) {
                const float here = dci_frames_place(frames, f, mean, 1.0f, rest, kept);
                if (here < least) {
                        least = here;
                        best = f;
                }
        }
        return best;
}

/* Blocks that begin at `first` or later are new: whatever rows were there before have gone. */
static void begin_blocks(dci_rows *rows, size_t first, size_t end)
{
        for (size_t slot = first / DCI_CODE_ROWS * DCI_CODE_ROWS; slot < end; slot += DCI_CODE_ROWS) {
                size_t offset;
                dci_chunk *chunk = dci_rows_chunk(rows, slot, &offset);
                if (slot < first && chunk->area.frames[offset / DCI_CODE_ROWS] != DCI_NO_FRAME)
                        continue;
                chunk->area.frames[offset / DCI_CODE_ROWS] = (uint8_t)frame_of_block(rows, chunk, slot, offset, end);
                chunk->area.reach[offset / DCI_CODE_ROWS] = 0.0f;
        }
}

/* Blocks whose rows turned out to be far from the frame of the first of them. */
static void put_far_again(const encoding *e, size_t n_blocks)
{
        size_t n_raw = SIZE_MAX;
        for (size_t b = 0; b < n_blocks; b++) {
                const size_t slot = (e->first / DCI_CODE_ROWS + b) * DCI_CODE_ROWS;
                if (!e->far[b])
                        continue;
                if (n_raw == SIZE_MAX)
                        n_raw = dci_rows_count_raw(e->rows, e->end);
                size_t offset;
                const dci_chunk *chunk = dci_rows_chunk(e->rows, slot, &offset);
                put_again(e->rows, slot, e->end, n_raw);
                n_raw += chunk->area.frames[offset / DCI_CODE_ROWS] == DCI_RAW_FRAME;
        }
}

dci_status dci_rows_encode(dci_rows *rows, size_t first, size_t end)
{
        if (rows->codes == NULL || first == end)
                return DCI_OK;
        const size_t base = first / DCI_CODE_ROWS * DCI_CODE_ROWS, many = TASK_BLOCKS * DCI_CODE_ROWS;
        const size_t n_tasks = (end - base + many - 1) / many,
                     n_blocks = (end - base + DCI_CODE_ROWS - 1) / DCI_CODE_ROWS;
        const size_t n_workers = dci_workers_for(rows->context, n_tasks, (end - first) * rows->dim * 16);
        const size_t n_bytes = scratch_bytes(&rows->codes->frames, false);
        encoding e = {rows,    first,
                      end,     dci_alloc(rows->context, n_workers, n_bytes),
                      n_bytes, dci_calloc(rows->context, n_blocks, 1)};
        dci_status status = e.scratch == NULL || e.far == NULL ? DCI_ERR_MEMORY : DCI_OK;
        if (status == DCI_OK) {
                begin_blocks(rows, first, end);
                const dci_region region = {.context = rows->context,
                                           .n_tasks = n_tasks,
                                           .n_workers = n_workers,
                                           .fn = encode_task,
                                           .arg = &e};
                status = dci_parallel(&region);
        }
        if (status == DCI_OK)
                put_far_again(&e, n_blocks);
        dci_free(rows->context, e.far, n_blocks, 1);
        dci_free(rows->context, e.scratch, n_workers, n_bytes);
        return status;
}
