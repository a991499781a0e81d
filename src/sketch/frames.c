/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "sketch/frames.h"

/* A frame ends when its rows' mean is off its centre by this share of their variance: that much more distortion. */
#define DRIFT 0.1
/* Rows that give their mean well enough. */
#define ENOUGH (DCI_PENDING + 1)

static size_t padded(size_t n, size_t to)
{
        return (n + to - 1) / to * to;
}

size_t dci_frames_block_bytes(size_t dim, int32_t bits)
{
        const size_t w = bits == 8 ? DCI_CODE_8 : (size_t)(5 - bits);
        const size_t random = padded(dim, dci_code_step[w]) * (size_t)bits * DCI_CODE_ROWS / 8;
        const size_t words = ((size_t)bits * dim + 16) / 32, learned = (words == 0 ? 1 : words) * 2 * DCI_CODE_LINE;
        return random > learned ? random : learned;
}

dci_status dci_frames_init(dci_context *context, int32_t kind, size_t dim, int32_t bits, bool centred, uint64_t seed,
                           dci_frames *out)
{
        *out = (dci_frames){
                .context = context, .dim = dim, .kind = kind, .bits = bits, .centred = centred, .seed = seed};
        out->reader = dci_code_reader_for(context);
        out->writer = dci_code_writer_for(context, DCI_CODE_ROWS);
        out->pending_sum = dci_calloc(context, dim, sizeof *out->pending_sum);
        if (out->pending_sum == NULL)
                return DCI_ERR_MEMORY;
        out->block_bytes = dci_frames_block_bytes(dim, bits);
        out->max_coords = padded(dim, 32);
        atomic_init(&out->n, 0);
        return DCI_OK;
}

void dci_frames_destroy(dci_frames *frames)
{
        const size_t n = atomic_load(&frames->n);
        for (size_t f = 0; f < n; f++)
                dci_free(frames->context, frames->frame[f], frames->frame[f]->n_bytes, 1);
        dci_free(frames->context, frames->pending_sum, frames->dim, sizeof *frames->pending_sum);
        dci_free(frames->context, frames->kept, frames->n_kept * frames->dim, sizeof *frames->kept);
        dci_free(frames->context, frames->origin, frames->dim, sizeof *frames->origin);
        frames->pending_sum = NULL;
        atomic_store(&frames->n, 0);
}

size_t dci_frames_bytes(const dci_frames *frames)
{
        size_t n_bytes = sizeof *frames + frames->dim * sizeof *frames->pending_sum +
                         (frames->origin == NULL ? 0 : frames->n_kept + 1) * frames->dim * sizeof *frames->origin;
        for (size_t f = 0; f < atomic_load(&frames->n); f++)
                n_bytes += frames->frame[f]->n_bytes;
        return n_bytes;
}

static dci_frame *new_frame(dci_frames *frames, int32_t kind)
{
        const size_t n_bytes = dci_lines(sizeof(dci_frame)) + dci_coder_bytes(kind, frames->dim);
        dci_frame *frame = dci_alloc(frames->context, n_bytes, 1);
        if (frame != NULL)
                frame->n_bytes = n_bytes;
        return frame;
}

static void *memory_of(dci_frame *frame)
{
        return (unsigned char *)frame + dci_lines(sizeof *frame);
}

static void publish(dci_frames *frames, dci_frame *frame, size_t transform)
{
        const size_t n = atomic_load(&frames->n);
        frame->transform = transform;
        frame->energy = 0.0f;
        frame->length = sqrtf(frames->context->kernels->norm2[DCI_F32 - 1](frame->coder.centre, frames->dim));
        if (frames->relation != DCI_RELATION_NONE)
                frame->coder.turn.centre = frame->coder.even.turn.centre = frames->origin;
        frames->frame[n] = frame;
        atomic_store_explicit(&frames->n, n + 1, memory_order_release);
}

dci_status dci_frames_relate(dci_frames *frames, dci_relation relation, size_t n_kept, const float *kept)
{
        const size_t n = n_kept * frames->dim;
        float *directions = n_kept == 0 ? NULL : dci_alloc(frames->context, n, sizeof *directions);
        if (frames->origin == NULL)
                frames->origin = dci_calloc(frames->context, frames->dim, sizeof *frames->origin);
        if (frames->origin == NULL || (n_kept > 0 && directions == NULL)) {
                if (directions != NULL)
                        dci_free(frames->context, directions, n, sizeof *directions);
                return DCI_ERR_MEMORY;
        }
        if (n_kept > 0)
                memcpy(directions, kept, n * sizeof *directions);
        dci_free(frames->context, frames->kept, frames->n_kept * frames->dim, sizeof *frames->kept);
        frames->relation = relation;
        frames->n_kept = n_kept;
        frames->kept = directions;
        return DCI_OK;
}

float dci_frames_take_kept(const dci_frames *frames, float *rest, float *kept)
{
        const size_t dim = frames->dim;
        const dci_kernels *kernels = frames->context->kernels;
        if (frames->n_kept > 0)
                kernels->score_strided[DCI_F32 - 1][DCI_FORM_DOT](rest, frames->kept, dim * sizeof *rest,
                                                                  frames->n_kept, dim, kept);
        for (size_t i = 0; i < frames->n_kept; i++) {
                const float *direction = frames->kept + i * dim, here = kept[i];
                for (size_t j = 0; j < dim; j++)
                        rest[j] -= here * direction[j];
        }
        return kernels->norm2[DCI_F32 - 1](rest, dim);
}

float dci_frames_place(const dci_frames *frames, size_t f, const float *row, float scale, float *rest, float *kept)
{
        const float *centre = frames->frame[f]->coder.centre;
        for (size_t j = 0; j < frames->dim; j++)
                rest[j] = row[j] * scale - centre[j];
        return dci_frames_take_kept(frames, rest, kept);
}

dci_status dci_frames_begin(dci_frames *frames, const float *centre)
{
        const size_t n = atomic_load(&frames->n);
        if (n == DCI_MAX_FRAMES)
                return DCI_OK;
        dci_frame *frame = new_frame(frames, frames->kind);
        if (frame == NULL)
                return DCI_ERR_MEMORY;
        dci_coder_init(frames->context, frames->kind, frames->dim, frames->bits, frames->seed, centre, memory_of(frame),
                       &frame->coder);
        publish(frames, frame, n == 0 ? 0 : frames->frame[n - 1]->transform);
        return DCI_OK;
}

static dci_status check_room(const dci_frames *frames)
{
        if (atomic_load(&frames->n) == DCI_MAX_FRAMES)
                return dci_fail(DCI_ERR_LIMIT, "there are %zu transforms and centres already, the most there can be",
                                DCI_MAX_FRAMES);
        return DCI_OK;
}

dci_status dci_frames_learn(dci_frames *frames, const dci_moments *rows, const dci_moments *queries,
                            const float *centre)
{
        DCI_TRY(check_room(frames));
        dci_frame *frame = new_frame(frames, DCI_CODER_LEARNED);
        void *scratch = dci_alloc(frames->context, dci_fit_scratch_bytes(frames->dim), 1);
        dci_status status = frame == NULL || scratch == NULL ? DCI_ERR_MEMORY : DCI_OK;
        if (status == DCI_OK) {
                dci_coder_init_learned(frames->context, frames->dim, frames->bits, false, memory_of(frame),
                                       &frame->coder);
                status = dci_fit(rows, queries, scratch, &frame->coder);
        }
        if (status == DCI_OK && centre != NULL)
                memcpy(frame->coder.centre, centre, frames->dim * sizeof *centre);
        dci_free(frames->context, scratch, dci_fit_scratch_bytes(frames->dim), 1);
        if (status == DCI_OK)
                publish(frames, frame, atomic_load(&frames->n));
        else if (frame != NULL)
                dci_free(frames->context, frame, frame->n_bytes, 1);
        return status;
}

dci_status dci_frames_restore(dci_frames *frames, const dci_code_layout *layout, const void *centre, const void *worth,
                              const void *to, const void *from)
{
        DCI_TRY(check_room(frames));
        dci_frame *frame = new_frame(frames, DCI_CODER_LEARNED);
        if (frame == NULL)
                return DCI_ERR_MEMORY;
        dci_coder *coder = &frame->coder;
        dci_coder_init_learned(frames->context, frames->dim, frames->bits, false, memory_of(frame), coder);
        memcpy(coder->centre, centre, frames->dim * sizeof(float));
        memcpy(coder->worth, worth, coder->n_coords * sizeof(float));
        memcpy(coder->to, to, coder->n_coords * frames->dim * sizeof(float));
        memcpy(coder->from, from, coder->n_coords * frames->dim * sizeof(float));
        memcpy(coder->layout.n_coords, layout->n_coords, sizeof layout->n_coords);
        memcpy(coder->layout.groups, layout->groups, sizeof layout->groups);
        coder->layout.n_lines = layout->n_lines;
        coder->layout.n_groups = layout->n_groups;
        dci_coder_finish_learned(coder);
        publish(frames, frame, atomic_load(&frames->n));
        return DCI_OK;
}

/* Whether the mean of the pending rows is off the centre; mean: that mean. */
static bool far_off(const dci_frames *frames, const float *centre, float *mean)
{
        double off = 0.0, far = 0.0;
        for (size_t j = 0; j < frames->dim; j++) {
                const double here = frames->pending_sum[j] / (double)frames->n_pending;
                mean[j] = (float)here;
                off += (here - (double)centre[j]) * (here - (double)centre[j]);
                far += here * here;
        }
        const double variance = frames->pending_square / (double)frames->n_pending - far;
        return off > DRIFT * (variance > 0.0 ? variance : 0.0);
}

/* A learned frame is left by another fit only: its estimates lean to its centre, so two would not compare. */
static bool follows(const dci_frames *frames)
{
        const size_t n = atomic_load(&frames->n);
        return frames->centred && (n == 0 || frames->frame[n - 1]->coder.kind != DCI_CODER_LEARNED);
}

/* So many of the rows that are pending stay, for want of their own sums with the mean of all. */
static void keep_pending(dci_frames *frames, size_t n)
{
        const double share = n == 0 ? 0.0 : (double)n / (double)frames->n_pending;
        for (size_t j = 0; j < frames->dim; j++)
                frames->pending_sum[j] = n == 0 ? 0.0 : share * frames->pending_sum[j];
        frames->pending_square = n == 0 ? 0.0 : share * frames->pending_square;
        frames->n_pending = n;
}

void dci_frames_expect(dci_frames *frames, size_t n)
{
        if (n >= ENOUGH)
                keep_pending(frames, 0);
}

void dci_frames_drop(dci_frames *frames, size_t n)
{
        if (n > 0 && frames->n_pending > 0)
                keep_pending(frames, n < frames->n_pending ? frames->n_pending - n : 0);
}

/* Between rows the last frame goes on even if its own rows have gone: a dozen rows that come and go would never get
 * theirs. */
void dci_frames_cut(dci_frames *frames, size_t n_used)
{
        const size_t n = atomic_load(&frames->n);
        const bool keeps_last = n > n_used && (n_used > 0 || !follows(frames));
        for (size_t f = n_used; f + keeps_last < n; f++)
                dci_free(frames->context, frames->frame[f], frames->frame[f]->n_bytes, 1);
        if (keeps_last) {
                dci_frame *last = frames->frame[n - 1];
                last->transform = last->transform < n_used ? last->transform : n_used;
                frames->frame[n_used] = last;
        }
        atomic_store(&frames->n, n_used + keeps_last);
}

void dci_frames_clear(dci_frames *frames)
{
        for (size_t f = atomic_load(&frames->n); f-- > 0;)
                dci_free(frames->context, frames->frame[f], frames->frame[f]->n_bytes, 1);
        atomic_store(&frames->n, 0);
        keep_pending(frames, 0);
}

void dci_frames_cut_first(dci_frames *frames)
{
        dci_free(frames->context, frames->frame[0], frames->frame[0]->n_bytes, 1);
        frames->frame[0] = frames->frame[1];
        frames->frame[0]->transform = 0;
        atomic_store(&frames->n, 1);
}

/* Relative frames count from the first centre, so that squares far from the origin do not cancel. */
void dci_frames_note(dci_frames *frames, const float *row, float scale, float *rest)
{
        float kept[DCI_MAX_KEPT];
        if (!follows(frames))
                return;
        if (frames->relation != DCI_RELATION_NONE) {
                const float *first = atomic_load(&frames->n) == 0 ? frames->origin : frames->frame[0]->coder.centre;
                for (size_t j = 0; j < frames->dim; j++)
                        rest[j] = row[j] * scale - first[j];
                row = rest;
        }
        const double square = frames->writer->note(row, frames->dim, frames->pending_sum);
        frames->pending_square += frames->n_kept == 0 ? square : (double)dci_frames_take_kept(frames, rest, kept);
        frames->n_pending++;
}

void dci_frames_remember(const dci_frames *frames, double *memory, dci_frames_mark *out)
{
        *out = (dci_frames_mark){.n = atomic_load(&frames->n),
                                 .n_pending = frames->n_pending,
                                 .pending_sum = memory,
                                 .pending_square = frames->pending_square};
        memcpy(memory, frames->pending_sum, frames->dim * sizeof *memory);
}

void dci_frames_rewind(dci_frames *frames, const dci_frames_mark *mark)
{
        for (size_t f = atomic_load(&frames->n); f > mark->n; f--) {
                atomic_store(&frames->n, f - 1);
                dci_free(frames->context, frames->frame[f - 1], frames->frame[f - 1]->n_bytes, 1);
        }
        frames->n_pending = mark->n_pending;
        frames->pending_square = mark->pending_square;
        memcpy(frames->pending_sum, mark->pending_sum, frames->dim * sizeof *mark->pending_sum);
}

/* How far the mean of the pending rows is from the nearest centre, but for kept directions, and their variance about it.
 * mean: the mean; spare: dim. */
static double least_off(const dci_frames *frames, float *mean, float *spare, double *out_variance)
{
        const size_t n = atomic_load(&frames->n), dim = frames->dim;
        const float *first = n == 0 ? frames->origin : frames->frame[0]->coder.centre;
        float kept[DCI_MAX_KEPT];
        for (size_t j = 0; j < dim; j++)
                spare[j] = (float)(frames->pending_sum[j] / (double)frames->n_pending);
        for (size_t j = 0; j < dim; j++)
                mean[j] = first[j] + spare[j];
        dci_frames_take_kept(frames, spare, kept);
        double far = 0.0, least = INFINITY;
        for (size_t j = 0; j < dim; j++)
                far += (double)spare[j] * (double)spare[j];
        const double variance = frames->pending_square / (double)frames->n_pending - far;
        *out_variance = variance > 0.0 ? variance : 0.0;
        for (size_t f = 0; f < n; f++) {
                const float off = dci_frames_place(frames, f, mean, 1.0f, spare, kept);
                least = (double)off < least ? (double)off : least;
        }
        return least;
}

/* Rows that are too few to give a centre have no codes yet. */
static dci_status follow_relative(dci_frames *frames)
{
        double variance;
        if (frames->n_pending < ENOUGH)
                return DCI_OK;
        float *mean = dci_alloc(frames->context, 2 * frames->dim, sizeof *mean);
        if (mean == NULL)
                return DCI_ERR_MEMORY;
        dci_status status = DCI_OK;
        const bool off = least_off(frames, mean, mean + frames->dim, &variance) > DRIFT * variance;
        const size_t n = atomic_load(&frames->n);
        if (off)
                status = dci_frames_begin(frames, mean);
        if (atomic_load(&frames->n) > n)
                frames->frame[n]->energy = (float)variance;
        dci_free(frames->context, mean, 2 * frames->dim, sizeof *mean);
        if (status == DCI_OK)
                keep_pending(frames, 0);
        return status;
}

dci_status dci_frames_follow(dci_frames *frames)
{
        if (frames->relation != DCI_RELATION_NONE)
                return follows(frames) ? follow_relative(frames) : DCI_OK;
        const bool first = atomic_load(&frames->n) == 0;
        if (!follows(frames) || (first && frames->n_pending == 0))
                return first ? dci_frames_begin(frames, NULL) : DCI_OK;
        if (!first && frames->n_pending < ENOUGH)
                return DCI_OK;
        float *mean = dci_alloc(frames->context, frames->dim, sizeof *mean);
        if (mean == NULL)
                return DCI_ERR_MEMORY;
        dci_status status = DCI_OK;
        /* Without a centre yet, the comparison is with the mean itself. */
        const bool off = far_off(frames, first ? mean : frames->frame[dci_frames_last(frames)]->coder.centre, mean);
        if (first || off)
                status = dci_frames_begin(frames, mean);
        dci_free(frames->context, mean, frames->dim, sizeof *mean);
        /* A centre of few rows is decided again with them. */
        if (status == DCI_OK && frames->n_pending >= ENOUGH)
                keep_pending(frames, 0);
        return status;
}
