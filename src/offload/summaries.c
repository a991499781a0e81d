/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * What a device chooses by: summaries of tokens behind the sink, in chunks (chunk_store.c) as the host's (kv/summaries.c).
 *
 * The device forms them itself: of a prompt that comes in one step, and of tokens that leave the window. The host has all rows, and forms
 * what it is asked for: when a sequence is saved, when codes shall be made anew, and of what the device has not seen in time (a prompt in
 * several steps, a first frame, a long piece behind a prompt). Then the device gets a copy. Both make the same bits.
 */
#include "core/internal.h"

#include <string.h>

#include "kv/stages/stages.h"
#include "offload/offload_internal.h"

#define MAX_FORMED ((size_t)(2 * DCI_GPU_CHUNK))

/* --- chunks -------------------------------------------------------------------------------------------------------------------- */

static int32_t *numbers_of(const dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        return dci_gpu_kv_store_numbers(&kv->planner.summaries, dci_gpu_kv_row_at(kv, row));
}

static void drop_chunks(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t left)
{
        if (kv->planner.on)
                dci_gpu_kv_store_truncate(&kv->planner.summaries, dci_gpu_kv_row_at(kv, row), left);
}

/* Chunks for n candidates, those from number `first` on the row's alone; what was in them may be lost. */
static dci_status own_chunks(dci_gpu_kv *kv, void *stream, const dci_gpu_kv_row *row, size_t first, size_t n)
{
        return dci_gpu_kv_store_make_exclusive(kv, &kv->planner.summaries, stream, dci_gpu_kv_row_at(kv, row), first,
                                               dci_gpu_kv_chunks_of(n));
}

static dci_status tell(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t first)
{
        return dci_gpu_kv_store_upload(kv, &kv->planner.summaries, kv->side, dci_gpu_kv_row_at(kv, row), first);
}

static dci_status copy_up(dci_gpu_kv *kv, void *to, const void *from, size_t n_bytes)
{
        return kv->ops->copy(kv->gpu, kv->side, to, from, n_bytes);
}

/* Where a row's part of one layer's centres begins, in floats. */
static size_t centres_at(const dci_gpu_kv *kv, size_t sparse, size_t row)
{
        return (sparse * kv->config.max_sequences + row) * kv->shape.n_kv_heads * kv->dim;
}

/* --- from the host ------------------------------------------------------------------------------------------------------------- */

size_t dci_gpu_kv_host_grouped(const dci_gpu_kv *kv, const dci_kv_sequence *sequence)
{
        size_t n = SIZE_MAX;
        for (size_t l = 0; l < kv->shape.n_layers; l++)
                if (dci_kv_groups(kv->host, l) && sequence->layers[l].n_grouped < n)
                        n = sequence->layers[l].n_grouped;
        return n == SIZE_MAX ? 0 : n;
}

/* A layer's chunks from number `first` on. They lie in ordinary memory, and go through the locked buffer. */
dci_status dci_gpu_kv_upload_layer(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t layer, const dci_kv_layer *from,
                                   size_t first, size_t n)
{
        dci_gpu_kv_planner *p = &kv->planner;
        const size_t at_once = p->upload_bytes / p->summaries.chunk_bytes;
        const int32_t *numbers = numbers_of(kv, row);
        dci_status status = DCI_OK;
        for (size_t c = first, here; c < n && status == DCI_OK; c += here) {
                here = n - c < at_once ? n - c : at_once;
                for (size_t i = 0; i < here && status == DCI_OK; i++) {
                        unsigned char *by = p->upload + i * p->summaries.chunk_bytes;
                        memcpy(by, dci_kv_chunk_head(kv->host, from, c + i, 0), p->summaries.chunk_bytes);
                        status =
                                copy_up(kv, dci_gpu_kv_store_at(&p->summaries, kv->layers[layer].index, numbers[c + i]),
                                        by, p->summaries.chunk_bytes);
                }
                if (status == DCI_OK)
                        status = kv->ops->stream_wait(kv->gpu, kv->side);
        }
        return status;
}

dci_status dci_gpu_kv_upload_centres(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t layer, const dci_kv_layer *from)
{
        dci_gpu_kv_planner *p = &kv->planner;
        const size_t n = kv->shape.n_kv_heads, floats = n * kv->dim,
                     at = centres_at(kv, kv->layers[layer].index, dci_gpu_kv_row_at(kv, row));
        float *keys = (float *)(void *)p->upload, *values = keys + floats;
        for (size_t h = 0; h < n; h++) {
                memcpy(keys + h * kv->dim, from->heads[h].keys->coder.centre, kv->dim * sizeof *keys);
                if (p->value_centres != NULL)
                        memcpy(values + h * kv->dim, from->heads[h].values->coder.centre, kv->dim * sizeof *values);
        }
        dci_status status = copy_up(kv, p->centres + at, keys, floats * sizeof *keys);
        if (status == DCI_OK && p->value_centres != NULL)
                status = copy_up(kv, p->value_centres + at, values, floats * sizeof *values);
        return status == DCI_OK ? kv->ops->stream_wait(kv->gpu, kv->side) : status;
}

static size_t refits_of(const dci_gpu_kv *kv, const dci_kv_sequence *sequence)
{
        size_t n = 0;
        for (size_t l = 0; l < kv->shape.n_layers; l++)
                for (size_t h = 0; h < kv->shape.n_kv_heads && !kv->layers[l].dense; h++)
                        n += (size_t)sequence->layers[l].heads[h].refits;
        return n;
}

static dci_status upload(dci_gpu_kv *kv, dci_gpu_kv_row *row, dci_kv_sequence *sequence, size_t before)
{
        const size_t n = dci_gpu_kv_host_grouped(kv, sequence), first = before / DCI_KV_CHUNK;
        dci_status status = own_chunks(kv, kv->side, row, first, n);
        if (status != DCI_OK)
                return status;
        for (size_t l = 0; l < kv->shape.n_layers && status == DCI_OK; l++) {
                if (!dci_kv_groups(kv->host, l) || n == 0)
                        continue;
                dci_kv_layer *from = &sequence->layers[l];
                const dci_status formed = dci_kv_build_missing(kv->host, from, first * DCI_KV_CHUNK);
                if (formed != DCI_OK)
                        return formed;
                status = dci_gpu_kv_upload_layer(kv, row, l, from, first, dci_gpu_kv_chunks_of(n));
                if (status == DCI_OK && dci_gpu_kv_coded(&kv->planner))
                        status = dci_gpu_kv_upload_centres(kv, row, l, from);
                if (status == DCI_OK && (!row->framed || row->behind))
                        status = dci_gpu_kv_upload_transforms(kv, row, l, from);
        }
        if (status == DCI_OK) {
                row->grouped = row->forming = n;
                row->framed = n > 0;
                row->behind = false;
        }
        return dci_gpu_kv_check_device(kv, status);
}

/* The host's frames are those that the device's codes are in. */
static dci_status bring_frames(dci_gpu_kv *kv, const dci_gpu_kv_row *row, dci_kv_sequence *sequence)
{
        const dci_gpu_kv_planner *p = &kv->planner;
        const size_t floats = kv->shape.n_kv_heads * kv->dim, n_bytes = floats * sizeof(float),
                     number = dci_gpu_kv_row_at(kv, row);
        float *keys = (float *)(void *)p->upload, *values = keys + floats;
        dci_status status = DCI_OK;
        for (size_t l = 0; l < kv->shape.n_layers && status == DCI_OK; l++) {
                if (!dci_kv_groups(kv->host, l))
                        continue;
                const size_t at = centres_at(kv, kv->layers[l].index, number);
                status = copy_up(kv, keys, p->centres + at, n_bytes);
                if (status == DCI_OK && p->value_centres != NULL)
                        status = copy_up(kv, values, p->value_centres + at, n_bytes);
                if (status == DCI_OK)
                        status = kv->ops->stream_wait(kv->gpu, kv->side);
                status = dci_gpu_kv_check_device(kv, status);
                if (status == DCI_OK)
                        status = dci_kv_set_centres(kv->host, &sequence->layers[l], keys, values);
        }
        return status;
}

dci_status dci_gpu_kv_upload(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        dci_kv_sequence *sequence = dci_gpu_kv_host_sequence(kv, row);
        if (kv->planner.listed)
                return dci_gpu_kv_clusters_upload(kv, row);
        dci_status status = dci_gpu_kv_wait_rows(kv);
        if (status == DCI_OK)
                status = dci_gpu_kv_check_good(kv, row);
        if (status == DCI_OK && kv->planner.kind == DCI_GPU_LEARNED) /* a prompt's codes may be in the making */
                status = dci_kv_wait(kv->host, row->id);
        if (status == DCI_OK)
                status = dci_gpu_kv_learned_upload(kv, row);
        if (status != DCI_OK)
                return status;
        const size_t before = dci_gpu_kv_host_grouped(kv, sequence), refits = refits_of(kv, sequence);
        if (before == 0 && row->framed && !row->behind && kv->planner.kind == DCI_GPU_CODES)
                status = bring_frames(kv, row, sequence);
        /* Candidates that came to lie within the rollback when the sequence was cut are kept, here and there. */
        for (size_t l = 0; l < kv->shape.n_layers; l++)
                sequence->layers[l].n_elsewhere = row->grouped;
        if (status == DCI_OK)
                status = dci_kv_maintain(kv->host, 1, &row->id);
        if (status != DCI_OK)
                return status;
        const size_t n = dci_gpu_kv_host_grouped(kv, sequence);
        if (refits_of(kv, sequence) != refits)
                row->behind = true;
        /* What the host had before is what the device has, as far as both go. */
        size_t first = before < row->grouped ? before : row->grouped;
        if (row->behind || !row->framed)
                first = 0;
        return n > row->grouped || row->behind ? upload(kv, row, sequence, first) : DCI_OK;
}

/* --- steps --------------------------------------------------------------------------------------------------------------------- */

static bool prompted(const dci_gpu_kv *kv, const dci_kv_sequence *sequence)
{
        for (size_t l = 0; l < kv->shape.n_layers; l++)
                if (!kv->layers[l].dense && atomic_load(&sequence->layers[l].prompt) != DCI_KV_PROMPT_DONE &&
                    (kv->planner.kind != DCI_GPU_LEARNED || sequence->layers[l].prompt == DCI_KV_PROMPT_OPEN))
                        return false;
        return true;
}

dci_status dci_gpu_kv_check_prompted(const dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        return !kv->planner.on || prompted(kv, dci_gpu_kv_host_sequence(kv, row))
                       ? DCI_OK
                       : dci_fail(DCI_ERR_INVALID, "sequence %lld: the prompt has not ended in some layer",
                                  (long long)row->id);
}

/* The device forms candidates whose keys lie in the ring, a few at a time, in a frame that it has. */
static bool keeps_up(const dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t due)
{
        if (kv->planner.kind == DCI_GPU_LEARNED)
                return false;
        const size_t ring = kv->config.ring_tokens, oldest = row->n > ring ? row->n - ring : 0;
        return row->framed && !row->behind && due - row->grouped <= MAX_FORMED &&
               kv->shape.sink + row->grouped >= oldest;
}

dci_status dci_gpu_kv_planner_drain(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        if (kv->planner.kind == DCI_GPU_LEARNED && prompted(kv, dci_gpu_kv_host_sequence(kv, row)))
                return dci_gpu_kv_learned_drain(kv, row);
        /* Of bad rows nothing is formed. */
        if (kv->planner.listed)
                return dci_gpu_kv_clusters_drain(kv, row);
        if (!kv->planner.on || kv->bad[dci_gpu_kv_row_at(kv, row)] != 0 ||
            !prompted(kv, dci_gpu_kv_host_sequence(kv, row)))
                return DCI_OK;
        const size_t due = dci_kv_may_group(kv->host, row->n),
                     n_prompt = dci_gpu_kv_host_sequence(kv, row)->layers[kv->planner.first_layer].n_prompt;
        /* What a prompt gave stays when its end is cut, however young it is. */
        const bool lacks = row->grouped < dci_kv_prompt_candidates(kv->host, n_prompt);
        return due > row->grouped && lacks ? dci_gpu_kv_upload(kv, row) : DCI_OK;
}

dci_status dci_gpu_kv_planner_reserve(dci_gpu_kv *kv)
{
        dci_status status = DCI_OK;
        if (!kv->planner.on)
                return DCI_OK;
        if (kv->planner.listed)
                return dci_gpu_kv_clusters_reserve(kv);
        for (size_t i = 0; i < kv->step.n && status == DCI_OK; i++) {
                dci_gpu_kv_row *row = &kv->rows[kv->step.at[i]];
                const dci_kv_sequence *sequence = dci_gpu_kv_host_sequence(kv, row);
                const size_t due = dci_kv_may_group(kv->host, row->n), after = row->n + kv->step.wanted[i];
                row->n_formed = 0;
                row->from = row->forming = row->grouped;
                row->prompting = !prompted(kv, sequence);
                if (kv->planner.kind == DCI_GPU_LEARNED) {
                        status = dci_gpu_kv_learned_reserve(kv, row, due, after);
                } else if (row->prompting) {
                        /* If it ends in this step, this is what plans of the step find. */
                        row->from = row->forming = row->n == 0 ? dci_kv_prompt_candidates(kv->host, after) : 0;
                } else if (due > row->grouped) {
                        if (!keeps_up(kv, row, due))
                                status = dci_gpu_kv_upload(kv, row);
                        row->from = row->grouped;
                        row->forming = row->grouped;
                        if (status == DCI_OK && due > row->grouped)
                                row->forming = due;
                }
                if (status == DCI_OK)
                        status = own_chunks(kv, kv->step.stream, row, row->grouped / DCI_KV_CHUNK, row->forming);
        }
        return status;
}

dci_status dci_gpu_kv_build(dci_gpu_kv *kv)
{
        const dci_gpu_kv_planner *p = &kv->planner;
        if (p->kind == DCI_GPU_LEARNED || p->listed) /* the host has */
                return DCI_OK;
        dci_gpu_encode_args args = {.n_layers = (int32_t)kv->n_sparse,
                                    .n_sequences = (int32_t)kv->step.n,
                                    .n_heads = (int32_t)kv->shape.n_kv_heads,
                                    .dim = (int32_t)kv->dim,
                                    .kind = p->kind,
                                    .bits = kv->shape.key_bits,
                                    .dtype = (int32_t)kv->shape.dtype,
                                    .group_shift = p->group_shift,
                                    .sink = (int32_t)kv->shape.sink,
                                    .rows = dci_gpu_kv_record(kv, DCI_GPU_KV_ROWS),
                                    .from = dci_gpu_kv_record(kv, DCI_GPU_KV_FROM),
                                    .to = dci_gpu_kv_record(kv, DCI_GPU_KV_TO),
                                    .lanes = dci_gpu_kv_lanes(kv, p->first_layer),
                                    .lane_step = 2 * kv->n_lists * kv->n_slots * kv->row_bytes,
                                    .chunks = dci_gpu_kv_chunks(kv, p->first_layer),
                                    .layer_step = p->summaries.chunk_bytes << p->summaries.piece_shift,
                                    .signs = p->signs,
                                    .centres = p->centres,
                                    .centres_step = kv->n_lists * kv->dim};
        /* A graph does it later, if at all. */
        kv->step.formed = kv->step.bound == 0;
        dci_gpu_kv_encode_values(kv, &args);
        const dci_status status = kv->ops->encode(kv->gpu, kv->step.stream, &args);
        return status == DCI_OK ? dci_gpu_kv_build_means(kv, &args) : status;
}

/* Chunks for all of a prompt that came in several steps, of which the step's record knows nothing. Without memory the host has time. */
static bool room_for_prompt(dci_gpu_kv *kv, dci_gpu_kv_row *row, size_t n)
{
        row->forming = dci_kv_prompt_candidates(kv->host, n);
        dci_may_fail(true);
        const dci_status status = own_chunks(kv, kv->step.stream, row, 0, row->forming);
        dci_may_fail(false);
        return status == DCI_OK;
}

dci_status dci_gpu_kv_build_prompt(dci_gpu_kv *kv, size_t layer, dci_gpu_kv_row *row)
{
        const dci_gpu_kv_planner *p = &kv->planner;
        const dci_gpu_kv_layer *at = &kv->layers[layer];
        const size_t i = dci_gpu_kv_at_step(kv, row), es = kv->es;
        const bool named = at->prompt_rows.keys != NULL && at->prompt_sequence == row->id;
        const dci_kv_rows *rows = named ? &at->prompt_rows : &at->rows;
        const size_t begin = named ? 0 : (size_t)kv->step.record[1 + DCI_GPU_KV_BEGIN * kv->step.n + i],
                     token = begin + kv->shape.sink;
        if (p->listed)
                return (row->n > 0 && !named) || rows->keys == NULL
                               ? DCI_OK
                               : dci_gpu_kv_prompt_kmeans_begin(kv, layer, row, row->n + kv->step.wanted[i], rows,
                                                                token);
        if (row->n > 0 && named && !room_for_prompt(kv, row, row->n + kv->step.wanted[i]))
                return DCI_OK;
        if ((row->n > 0 && !named) || rows->keys == NULL || row->forming == 0)
                return DCI_OK;
        dci_gpu_encode_prompt_args args = {.n_heads = (int32_t)kv->shape.n_kv_heads,
                                           .dim = (int32_t)kv->dim,
                                           .kind = p->kind,
                                           .bits = kv->shape.key_bits,
                                           .dtype = (int32_t)kv->shape.dtype,
                                           .group_shift = p->group_shift,
                                           .n_candidates = (int32_t)row->forming,
                                           .row = (int32_t)dci_gpu_kv_row_at(kv, row),
                                           .keys = (const unsigned char *)rows->keys +
                                                   token * rows->key_token_stride * es,
                                           .key_token = rows->key_token_stride * es,
                                           .key_head = rows->key_head_stride * es,
                                           .chunks = dci_gpu_kv_chunks(kv, layer),
                                           .signs = p->signs,
                                           .centres = p->centres + at->index * kv->n_lists * kv->dim,
                                           .sums = p->scores};
        dci_gpu_kv_encode_prompt_values(kv, layer, rows, &args);
        /* Scores that lists of the next step are chosen by may still be where sums go. */
        dci_status status = dci_gpu_kv_schedule_join(kv);
        if (status == DCI_OK)
                status = kv->ops->encode_prompt(kv->gpu, kv->step.stream, &args);
        if (status == DCI_OK)
                status = dci_gpu_kv_build_prompt_means(kv, &args);
        status = dci_gpu_kv_check_device(kv, status);
        row->n_formed += status == DCI_OK;
        return status;
}

dci_status dci_gpu_kv_planner_abort(dci_gpu_kv *kv)
{
        if (!kv->planner.on || kv->step.formed || kv->step.bound > 0)
                return DCI_OK;
        return dci_gpu_kv_check_device(kv, dci_gpu_kv_build(kv));
}

void dci_gpu_kv_planner_step_end(dci_gpu_kv *kv, bool aborted)
{
        if (aborted)
                dci_gpu_kv_prompt_kmeans_forget(kv);
        for (size_t i = 0; i < kv->step.n && kv->planner.on && !kv->planner.listed; i++) {
                dci_gpu_kv_row *row = &kv->rows[kv->step.at[i]];
                const bool of_prompt = row->prompting && row->n_formed == kv->n_sparse && !aborted;
                const bool of_step = !row->prompting && row->framed && (!aborted || kv->step.formed);
                if (of_prompt || of_step)
                        row->grouped = row->forming;
                row->framed = row->framed || of_prompt;
                row->forming = row->grouped;
                drop_chunks(kv, row, dci_gpu_kv_chunks_of(row->grouped));
        }
}

/* --- sequences ----------------------------------------------------------------------------------------------------------------- */

dci_status dci_gpu_kv_planner_open(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        row->grouped = row->forming = row->n_formed = 0;
        row->behind = false;
        row->framed = kv->planner.on && !dci_gpu_kv_coded(&kv->planner);
        if (kv->planner.listed)
                dci_gpu_kv_clusters_open(kv, row);
        dci_gpu_kv_boundaries_open(kv, row);
        return kv->planner.on ? dci_gpu_kv_schedule_open(kv, row) : DCI_OK;
}

void dci_gpu_kv_planner_close(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        drop_chunks(kv, row, 0);
        dci_gpu_kv_prompt_kmeans_close(kv, row);
        if (kv->planner.listed)
                dci_gpu_kv_store_truncate(&kv->planner.ids, dci_gpu_kv_row_at(kv, row), 0);
        row->grouped = row->forming = 0;
}

/* A chunk of the row's own in place of number c, with what is in that. */
static dci_status copy_chunk(dci_gpu_kv *kv, dci_gpu_kv_row *row, size_t c, int32_t from)
{
        dci_gpu_kv_store *s = &kv->planner.summaries;
        dci_status status = dci_gpu_kv_store_ready(kv, s, 1);
        if (status != DCI_OK)
                return status;
        const int32_t own = dci_gpu_kv_store_alloc(s);
        for (size_t l = 0; l < kv->n_sparse && status == DCI_OK; l++)
                status = copy_up(kv, dci_gpu_kv_store_at(s, l, own), dci_gpu_kv_store_at(s, l, from), s->chunk_bytes);
        numbers_of(kv, row)[c] = own;
        return dci_gpu_kv_check_device(kv, status);
}

static size_t grouped_within(const dci_gpu_kv *kv, size_t grouped, size_t n)
{
        const size_t behind = n > kv->shape.sink ? n - kv->shape.sink : 0, page = kv->shape.page_tokens;
        return grouped <= behind ? grouped : behind / page * page;
}

dci_status dci_gpu_kv_planner_fork(dci_gpu_kv *kv, const dci_gpu_kv_row *from, dci_gpu_kv_row *to)
{
        dci_gpu_kv_planner *p = &kv->planner;
        dci_status status = dci_gpu_kv_planner_open(kv, to);
        if (status != DCI_OK || !p->on)
                return dci_gpu_kv_check_device(kv, status);
        if (p->listed) {
                status = dci_gpu_kv_clusters_fork(kv, from, to);
                return status == DCI_OK ? dci_gpu_kv_schedule_fork(kv, from, to) : status;
        }
        const size_t n = grouped_within(kv, from->grouped, to->n), whole = n / DCI_KV_CHUNK;
        dci_gpu_kv_store_share(&p->summaries, dci_gpu_kv_row_at(kv, from), dci_gpu_kv_row_at(kv, to), whole);
        if (n > whole * DCI_KV_CHUNK) {
                status = copy_chunk(kv, to, whole, numbers_of(kv, from)[whole]);
                if (status != DCI_OK)
                        return status;
                p->summaries.n_chunks[dci_gpu_kv_row_at(kv, to)]++;
        }
        to->grouped = to->forming = n;
        to->framed = from->framed;
        to->behind = from->behind;
        const size_t n_bytes = kv->shape.n_kv_heads * kv->dim * sizeof(float);
        for (size_t l = 0; l < kv->n_sparse && status == DCI_OK && dci_gpu_kv_coded(p); l++) {
                const size_t there = centres_at(kv, l, dci_gpu_kv_row_at(kv, to)),
                             here = centres_at(kv, l, dci_gpu_kv_row_at(kv, from));
                status = copy_up(kv, p->centres + there, p->centres + here, n_bytes);
                if (status == DCI_OK && p->value_centres != NULL)
                        status = copy_up(kv, p->value_centres + there, p->value_centres + here, n_bytes);
        }
        if (status == DCI_OK && to->framed)
                status = dci_gpu_kv_fork_transforms(kv, from, to);
        if (status == DCI_OK)
                status = tell(kv, to, 0);
        if (status == DCI_OK)
                status = dci_gpu_kv_schedule_fork(kv, from, to);
        return dci_gpu_kv_check_device(kv, status);
}

dci_status dci_gpu_kv_planner_truncate(dci_gpu_kv *kv, dci_gpu_kv_row *row, size_t n)
{
        dci_gpu_kv_planner *p = &kv->planner;
        if (p->listed)
                return dci_gpu_kv_clusters_truncate(kv, row);
        const size_t left = grouped_within(kv, row->grouped, n), last = left / DCI_KV_CHUNK;
        dci_status status = DCI_OK;
        if (!p->on || left == row->grouped)
                return DCI_OK;
        row->grouped = row->forming = left;
        drop_chunks(kv, row, dci_gpu_kv_chunks_of(left));
        if (left > last * DCI_KV_CHUNK && p->summaries.refs[numbers_of(kv, row)[last]] > 1) {
                const int32_t shared = numbers_of(kv, row)[last];
                status = copy_chunk(kv, row, last, shared);
                if (status == DCI_OK) {
                        dci_gpu_kv_store_free(&p->summaries, shared);
                        status = dci_gpu_kv_check_device(kv, tell(kv, row, last));
                }
        }
        if (status == DCI_OK || kv->broken)
                return status;
        /* Without memory for a copy the row has whole chunks only, until a step has memory for more. */
        row->grouped = row->forming = last * DCI_KV_CHUNK;
        drop_chunks(kv, row, last);
        return DCI_OK;
}
