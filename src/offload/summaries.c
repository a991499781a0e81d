/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Building summaries on the device, and bringing the host's there. */
#include "core/internal.h"

#include <string.h>

#include "kv/stages/stages.h"
#include "offload/boundaries.h"
#include "offload/clusters.h"
#include "offload/copies.h"
#include "offload/learned_codes.h"
#include "offload/offload_internal.h"
#include "offload/orders.h"
#include "offload/pool.h"
#include "offload/prompt_kmeans.h"
#include "offload/schedule.h"
#include "offload/summaries.h"
#include "offload/tail.h"
#include "offload/tree.h"
#include "offload/votes.h"

#define MAX_FORMED ((size_t)(2 * DCI_GPU_CHUNK))

/* --- chunks ------------------------------------------------------------------------------------------------------- */

static int32_t *row_numbers(const dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        return dci_gpu_kv_store_numbers(kv->summaries, dci_gpu_kv_row_number(kv, row));
}

static void truncate_chunks(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t left)
{
        if (kv->planner.on)
                dci_gpu_kv_store_truncate(kv->summaries, dci_gpu_kv_row_number(kv, row), left);
}

/* Gives the row chunks for n candidates, of which those from number `first` on are exclusive and may be empty. */
static dci_status make_exclusive(dci_gpu_kv *kv, void *stream, const dci_gpu_kv_row *row, size_t first, size_t n)
{
        return dci_gpu_kv_store_make_exclusive(kv, kv->summaries, stream, dci_gpu_kv_row_number(kv, row), first,
                                               dci_gpu_kv_count_chunks(n));
}

static dci_status upload_numbers(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t first)
{
        return dci_gpu_kv_store_upload(kv, kv->summaries, kv->side, dci_gpu_kv_row_number(kv, row), first);
}

/* --- from the host ------------------------------------------------------------------------------------------------ */

size_t dci_gpu_kv_count_refits(const dci_gpu_kv *kv, const dci_kv_sequence *sequence)
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
        DCI_GPU_KV_TRY(kv, dci_gpu_kv_votes_forget(kv, row));
        DCI_TRY(make_exclusive(kv, kv->side, row, first, n));
        for (size_t l = 0; l < kv->shape.n_layers; l++) {
                if (!dci_kv_groups(kv->host, l) || n == 0)
                        continue;
                dci_kv_layer *from = &sequence->layers[l];
                DCI_TRY(dci_gpu_kv_build_missing(kv->host, from, first * DCI_KV_CHUNK));
                DCI_GPU_KV_TRY(kv, dci_gpu_kv_upload_layer(kv, row, l, from, first, dci_gpu_kv_count_chunks(n)));
                if (dci_gpu_kv_coded(&kv->planner))
                        DCI_GPU_KV_TRY(kv, dci_gpu_kv_upload_centres(kv, row, l, from));
                if (row->where != DCI_GPU_KV_ON_DEVICE)
                        DCI_GPU_KV_TRY(kv, dci_gpu_kv_upload_transforms(kv, row, l, from));
        }
        row->n_formed = n;
        row->where = n > 0 ? DCI_GPU_KV_ON_DEVICE : DCI_GPU_KV_NOWHERE;
        return DCI_OK;
}

static bool prompted(const dci_gpu_kv *kv, const dci_kv_sequence *sequence)
{
        for (size_t l = 0; l < kv->shape.n_layers; l++)
                if (!kv->layers[l].dense && atomic_load(&sequence->layers[l].prompt) == DCI_KV_PROMPT_OPEN)
                        return false;
        return true;
}

/* The rows have arrived. What dci_kv_maintain does for a host that plans. */
static dci_status upload_ordered(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        const dci_kv_sequence *sequence = dci_gpu_kv_host_sequence(kv, row);
        const bool loaded = row->where == DCI_GPU_KV_ON_HOST;
        bool stale = loaded || row->n_formed == 0;
        if (prompted(kv, sequence)) {
                DCI_TRY(dci_kv_wait(kv->host, row->id));
                DCI_TRY(dci_gpu_kv_orders_renew(kv, row, kv->side, &stale));
        }
        if (!stale)
                DCI_TRY(dci_kv_maintain(kv->host, 1, &row->id));
        if (stale || dci_gpu_kv_host_grouped(kv, sequence) > row->n_formed)
                DCI_TRY(dci_gpu_kv_orders_upload(kv, row, kv->side));
        if (!loaded)
                dci_gpu_kv_orders_group(kv, row, dci_kv_may_group(kv->host, row->n));
        return dci_gpu_kv_check_device(kv, kv->ops->stream_wait(kv->gpu, kv->side));
}

dci_status dci_gpu_kv_upload_all(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        if (kv->planner.clustered)
                return dci_gpu_kv_clusters_restore(kv, row);
        if (kv->planner.trees)
                return dci_gpu_kv_trees_restore(kv, row);
        row->where = DCI_GPU_KV_ON_HOST;
        if (kv->planner.ordered) {
                DCI_TRY(dci_gpu_kv_orders_upload(kv, row, kv->side));
                return dci_gpu_kv_check_device(kv, kv->ops->stream_wait(kv->gpu, kv->side));
        }
        return upload(kv, row, dci_gpu_kv_host_sequence(kv, row), 0);
}

/* Copies the centres of the device's codes to the host. */
static dci_status download_centres(dci_gpu_kv *kv, const dci_gpu_kv_row *row, dci_kv_sequence *sequence)
{
        const dci_gpu_kv_planner *p = &kv->planner;
        const size_t floats = kv->shape.n_kv_heads * kv->dim, n_bytes = floats * sizeof(float),
                     number = dci_gpu_kv_row_number(kv, row);
        float *keys = (float *)(void *)p->upload, *values = keys + floats;
        for (size_t l = 0; l < kv->shape.n_layers; l++) {
                if (!dci_kv_groups(kv->host, l))
                        continue;
                const size_t at = dci_gpu_kv_centres_offset(kv, kv->layers[l].index, number);
                DCI_GPU_KV_TRY(kv, dci_gpu_kv_side_copy(kv, keys, p->centres + at, n_bytes));
                if (p->value_centres != NULL)
                        DCI_GPU_KV_TRY(kv, dci_gpu_kv_side_copy(kv, values, p->value_centres + at, n_bytes));
                DCI_GPU_KV_TRY(kv, kv->ops->stream_wait(kv->gpu, kv->side));
                DCI_TRY(dci_kv_set_centres(kv->host, &sequence->layers[l], keys, values));
        }
        return DCI_OK;
}

dci_status dci_gpu_kv_upload(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        dci_kv_sequence *sequence = dci_gpu_kv_host_sequence(kv, row);
        if (kv->planner.clustered)
                return dci_gpu_kv_clusters_upload(kv, row);
        if (kv->planner.trees)
                return dci_gpu_kv_trees_upload(kv, row);
        DCI_TRY(dci_gpu_kv_wait_good(kv, row));
        if (kv->planner.ordered)
                return upload_ordered(kv, row);
        if (kv->planner.kind == DCI_GPU_LEARNED) /* the host may be encoding a prompt */
                DCI_TRY(dci_kv_wait(kv->host, row->id));
        DCI_TRY(dci_gpu_kv_learned_upload(kv, row));
        const size_t before = dci_gpu_kv_host_grouped(kv, sequence), refits = dci_gpu_kv_count_refits(kv, sequence);
        if (before == 0 && row->where == DCI_GPU_KV_ON_DEVICE && kv->planner.kind == DCI_GPU_CODES)
                DCI_TRY(download_centres(kv, row, sequence));
        DCI_TRY(dci_kv_maintain(kv->host, 1, &row->id));
        const size_t n = dci_gpu_kv_host_grouped(kv, sequence);
        if (dci_gpu_kv_count_refits(kv, sequence) != refits)
                row->where = DCI_GPU_KV_ON_HOST;
        /* As far as both had summaries before, they are the same. */
        size_t first = before < row->n_formed ? before : row->n_formed;
        if (row->where != DCI_GPU_KV_ON_DEVICE)
                first = 0;
        return n > row->n_formed || row->where == DCI_GPU_KV_ON_HOST ? upload(kv, row, sequence, first) : DCI_OK;
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

dci_status dci_gpu_kv_check_prompted(const dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        return !kv->planner.on || prompted(kv, dci_gpu_kv_host_sequence(kv, row))
                       ? DCI_OK
                       : dci_fail(DCI_ERR_INVALID, "sequence %lld: the prompt has not ended in some layer",
                                  (long long)row->id);
}

/* The device builds a few candidates at a time, whose keys are in the ring, with transforms that it has. */
static bool device_builds(const dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t due)
{
        if (kv->planner.kind == DCI_GPU_LEARNED)
                return false;
        const size_t ring = kv->config.ring_tokens, oldest = row->n > ring ? row->n - ring : 0;
        return row->where == DCI_GPU_KV_ON_DEVICE && due - row->n_formed <= MAX_FORMED &&
               kv->shape.sink + row->n_formed >= oldest;
}

bool dci_gpu_kv_planner_lacks(const dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        const dci_kv_sequence *sequence = dci_gpu_kv_host_sequence(kv, row);
        const size_t n_prompt = sequence->layers[kv->planner.first_layer].n_prompt;
        /* What a prompt gave stays when its end is truncated, however recent. */
        return prompted(kv, sequence) && dci_kv_may_group(kv->host, row->n) > row->n_formed &&
               row->n_formed < dci_kv_prompt_candidates(kv->host, n_prompt);
}

dci_status dci_gpu_kv_planner_drain(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        if (kv->planner.kind == DCI_GPU_LEARNED && prompted(kv, dci_gpu_kv_host_sequence(kv, row)))
                return dci_gpu_kv_learned_drain(kv, row);
        if (kv->planner.ordered)
                return dci_gpu_kv_orders_drain(kv, row);
        /* Workers build trees, and the host cuts and forks them. */
        if (kv->planner.trees)
                return DCI_OK;
        /* Nothing is built from bad rows. */
        if (kv->planner.clustered)
                return dci_gpu_kv_clusters_drain(kv, row);
        return kv->planner.on && dci_gpu_kv_bad(kv, row) == 0 && dci_gpu_kv_planner_lacks(kv, row)
                       ? dci_gpu_kv_upload(kv, row)
                       : DCI_OK;
}

/* Layers whose prompt ended in an earlier step have fewer candidates than those in which it ends now, so no number fits
 * all, and plans attend to everything until all have ended. */
static bool some_ended(const dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        const dci_kv_sequence *sequence = dci_gpu_kv_host_sequence(kv, row);
        bool some = false;
        for (size_t l = 0; l < kv->shape.n_layers; l++)
                some = some ||
                       (dci_kv_groups(kv->host, l) && atomic_load(&sequence->layers[l].prompt) != DCI_KV_PROMPT_OPEN);
        return some;
}

/* Of a prompt that has ended the host has made the orders. */
static dci_status reserve_ordered(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        const size_t due = dci_kv_may_group(kv->host, row->n);
        bool stale = false;
        row->step.n_built = row->step.n_formed = 0;
        row->step.prompting = !prompted(kv, dci_gpu_kv_host_sequence(kv, row));
        if (row->step.prompting) {
                dci_gpu_kv_orders_group(kv, row, 0);
                return DCI_OK;
        }
        DCI_TRY(dci_kv_wait(kv->host, row->id));
        DCI_TRY(dci_gpu_kv_orders_renew(kv, row, kv->step.stream, &stale));
        stale = stale || (row->n_formed == 0 && dci_gpu_kv_host_grouped(kv, dci_gpu_kv_host_sequence(kv, row)) > 0);
        if (stale || (due > row->n_formed && !device_builds(kv, row, due))) {
                DCI_TRY(dci_gpu_kv_wait_good(kv, row));
                DCI_TRY(dci_gpu_kv_orders_upload(kv, row, kv->step.stream));
        }
        dci_gpu_kv_orders_group(kv, row, due);
        row->step.n_formed = due > row->n_formed ? due : row->n_formed;
        return make_exclusive(kv, kv->step.stream, row, row->n_formed / DCI_KV_CHUNK, row->step.n_formed);
}

dci_status dci_gpu_kv_planner_reserve(dci_gpu_kv *kv)
{
        const bool learned = kv->planner.kind == DCI_GPU_LEARNED;
        if (!kv->planner.on)
                return DCI_OK;
        if (kv->planner.clustered)
                return dci_gpu_kv_clusters_reserve(kv);
        if (kv->planner.trees)
                return dci_gpu_kv_trees_reserve(kv);
        for (size_t i = 0; i < kv->step.n; i++) {
                dci_gpu_kv_row *row = &kv->rows[kv->step.rows[i]];
                const dci_kv_sequence *sequence = dci_gpu_kv_host_sequence(kv, row);
                const size_t due = dci_kv_may_group(kv->host, row->n), after = row->n + kv->step.wanted[i];
                if (kv->planner.ordered) {
                        DCI_TRY(reserve_ordered(kv, row));
                        continue;
                }
                row->step.n_built = 0;
                row->step.n_formed = row->n_formed;
                row->step.prompting = !prompted(kv, sequence);
                if (learned && !row->step.prompting)
                        DCI_TRY(dci_kv_wait(kv->host, row->id));
                if (row->step.prompting) {
                        /* Plans of the step find this many if the prompt ends in it. */
                        const bool ends = learned ? !some_ended(kv, row) : row->n == 0;
                        row->step.n_formed = ends ? dci_kv_prompt_candidates(kv->host, after) : 0;
                } else if (due > row->n_formed || (learned && dci_gpu_kv_host_grouped(kv, sequence) > row->n_formed)) {
                        if (!device_builds(kv, row, due))
                                DCI_TRY(dci_gpu_kv_upload(kv, row));
                        row->step.n_formed = due > row->n_formed ? due : row->n_formed;
                }
                DCI_TRY(make_exclusive(kv, kv->step.stream, row, row->n_formed / DCI_KV_CHUNK, row->step.n_formed));
        }
        return DCI_OK;
}

dci_status dci_gpu_kv_build(dci_gpu_kv *kv)
{
        const dci_gpu_kv_planner *p = &kv->planner;
        if (p->kind == DCI_GPU_LEARNED || dci_gpu_kv_of_host(p)) {
                /* the host has built them */
                return DCI_OK;
        }
        dci_gpu_encode_args args = {.n_layers = (int32_t)kv->n_sparse,
                                    .n_sequences = (int32_t)kv->step.n,
                                    .n_heads = (int32_t)kv->shape.n_kv_heads,
                                    .dim = (int32_t)kv->dim,
                                    .kind = p->kind,
                                    .bits = kv->shape.key_bits,
                                    .dtype = (int32_t)kv->shape.dtype,
                                    .group_shift = p->group_shift,
                                    .sink = (int32_t)kv->shape.sink,
                                    .mean_shift = p->preselect.mean_shift,
                                    .rows = dci_gpu_kv_record(kv, DCI_GPU_KV_ROWS),
                                    .from = dci_gpu_kv_record(kv, DCI_GPU_KV_FROM),
                                    .to = dci_gpu_kv_record(kv, DCI_GPU_KV_TO),
                                    .lanes = dci_gpu_kv_lanes(kv, p->first_layer),
                                    .lane_step = 2 * kv->n_lanes * kv->n_slots * kv->row_bytes,
                                    .chunks = dci_gpu_kv_store_chunks(kv, kv->summaries, p->first_layer),
                                    .layer_step = kv->summaries->chunk_bytes << kv->summaries->piece_shift,
                                    .signs = p->signs,
                                    .centres = p->centres,
                                    .centres_step = kv->n_lanes * kv->dim};
        /* A graph builds when it is replayed. */
        kv->step.built = kv->step.bound == 0;
        dci_gpu_kv_encode_values(kv, &args);
        DCI_TRY(kv->ops->encode(kv->gpu, kv->step.stream, &args));
        return dci_gpu_kv_build_means(kv, &args);
}

/* Allocates chunks for a prompt that came in several steps, which the step's record does not count. Without memory the
 * host builds. */
static bool alloc_prompt(dci_gpu_kv *kv, dci_gpu_kv_row *row, size_t n)
{
        row->step.n_formed = dci_kv_prompt_candidates(kv->host, n);
        dci_may_fail(true);
        const dci_status status = make_exclusive(kv, kv->step.stream, row, 0, row->step.n_formed);
        dci_may_fail(false);
        return status == DCI_OK;
}

dci_status dci_gpu_kv_build_prompt(dci_gpu_kv *kv, size_t layer, dci_gpu_kv_row *row)
{
        const dci_gpu_kv_planner *p = &kv->planner;
        const dci_gpu_kv_layer *at = &kv->layers[layer];
        const size_t i = dci_gpu_kv_step_number(kv, row), es = kv->es;
        const bool named = at->prompt_rows.keys != NULL && at->prompt_sequence == row->id;
        const dci_kv_rows *rows = named ? &at->prompt_rows : &at->rows;
        const size_t begin = named ? 0 : (size_t)kv->step.record[1 + DCI_GPU_KV_BEGIN * kv->step.n + i],
                     token = begin + kv->shape.sink;
        if (p->clustered)
                return (row->n > 0 && !named) || rows->keys == NULL
                               ? DCI_OK
                               : dci_gpu_kv_prompt_kmeans_begin(kv, layer, row, row->n + kv->step.wanted[i], rows,
                                                                token);
        if (row->n > 0 && named && !alloc_prompt(kv, row, row->n + kv->step.wanted[i]))
                return DCI_OK;
        if ((row->n > 0 && !named) || rows->keys == NULL || row->step.n_formed == 0)
                return DCI_OK;
        dci_gpu_encode_prompt_args args = {.n_heads = (int32_t)kv->shape.n_kv_heads,
                                           .dim = (int32_t)kv->dim,
                                           .kind = p->kind,
                                           .bits = kv->shape.key_bits,
                                           .dtype = (int32_t)kv->shape.dtype,
                                           .group_shift = p->group_shift,
                                           .n_candidates = (int32_t)row->step.n_formed,
                                           .row = (int32_t)dci_gpu_kv_row_number(kv, row),
                                           .mean_shift = p->preselect.mean_shift,
                                           .keys = (const unsigned char *)rows->keys +
                                                   token * rows->key_token_stride * es,
                                           .key_token = rows->key_token_stride * es,
                                           .key_head = rows->key_head_stride * es,
                                           .chunks = dci_gpu_kv_store_chunks(kv, kv->summaries, layer),
                                           .signs = p->signs,
                                           .centres = p->centres + at->index * kv->n_lanes * kv->dim,
                                           .sums = p->scores};
        dci_gpu_kv_encode_prompt_values(kv, layer, rows, &args);
        /* The sums overwrite scores by which lists of the next step may still be selected. */
        DCI_GPU_KV_TRY(kv, dci_gpu_kv_join_ahead(kv));
        DCI_GPU_KV_TRY(kv, kv->ops->encode_prompt(kv->gpu, kv->step.stream, &args));
        DCI_GPU_KV_TRY(kv, dci_gpu_kv_build_prompt_means(kv, &args));
        row->step.n_built++;
        return DCI_OK;
}

dci_status dci_gpu_kv_planner_abort(dci_gpu_kv *kv)
{
        if (!kv->planner.on || kv->step.built || kv->step.bound > 0)
                return DCI_OK;
        return dci_gpu_kv_check_device(kv, dci_gpu_kv_build(kv));
}

void dci_gpu_kv_planner_step_end(dci_gpu_kv *kv, bool aborted)
{
        if (aborted)
                dci_gpu_kv_prompt_kmeans_forget(kv);
        for (size_t i = 0; i < kv->step.n && kv->planner.on && !dci_gpu_kv_of_host(&kv->planner); i++) {
                dci_gpu_kv_row *row = &kv->rows[kv->step.rows[i]];
                const bool of_prompt = row->step.prompting && row->step.n_built == kv->n_sparse && !aborted;
                const bool of_step =
                        !row->step.prompting && row->where != DCI_GPU_KV_NOWHERE && (!aborted || kv->step.built);
                if (of_prompt || of_step)
                        row->n_formed = row->step.n_formed;
                if (of_prompt)
                        row->where = DCI_GPU_KV_ON_DEVICE;
                if (kv->planner.ordered && aborted)
                        dci_gpu_kv_orders_abort(kv, row);
                truncate_chunks(kv, row, dci_gpu_kv_count_chunks(row->n_formed));
        }
}

/* --- sequences ---------------------------------------------------------------------------------------------------- */

dci_status dci_gpu_kv_planner_open(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        row->n_formed = 0;
        row->where = kv->planner.on && !dci_gpu_kv_coded(&kv->planner) ? DCI_GPU_KV_ON_DEVICE : DCI_GPU_KV_NOWHERE;
        if (kv->planner.clustered)
                dci_gpu_kv_clusters_open(kv, row);
        if (kv->planner.ordered)
                dci_gpu_kv_orders_open(kv, row);
        if (kv->planner.trees)
                dci_gpu_kv_trees_open(kv, row);
        dci_gpu_kv_boundaries_open(kv, row);
        DCI_TRY(dci_gpu_kv_votes_forget(kv, row));
        return kv->planner.on ? dci_gpu_kv_schedule_open(kv, row) : DCI_OK;
}

void dci_gpu_kv_planner_leave(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        truncate_chunks(kv, row, 0);
        if (kv->planner.on)
                dci_gpu_kv_store_truncate(kv->ids, dci_gpu_kv_row_number(kv, row), 0);
        row->n_formed = 0;
        dci_gpu_kv_copies_leave(kv, row);
}

void dci_gpu_kv_planner_close(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        dci_gpu_kv_planner_leave(kv, row);
        dci_gpu_kv_prompt_kmeans_close(kv, row);
}

void dci_gpu_kv_planner_trim(dci_gpu_kv *kv)
{
        if (!kv->planner.on)
                return;
        /* A step that was refused has left chunks for itself. */
        for (size_t r = 0; r < kv->config.max_sequences && !dci_gpu_kv_of_host(&kv->planner); r++)
                truncate_chunks(kv, &kv->rows[r], dci_gpu_kv_count_chunks(kv->rows[r].n_formed));
        dci_gpu_kv_store_trim(kv, kv->summaries);
        dci_gpu_kv_store_trim(kv, kv->ids);
}

/* Replaces chunk number c of the row by its own copy of `from`. */
static dci_status copy_chunk(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t c, int32_t from)
{
        DCI_TRY(dci_gpu_kv_store_ready(kv, kv->summaries, 1));
        return dci_gpu_kv_store_copy(kv, kv->summaries, kv->side, dci_gpu_kv_row_number(kv, row), c, from);
}

dci_status dci_gpu_kv_planner_fork(dci_gpu_kv *kv, const dci_gpu_kv_row *from, dci_gpu_kv_row *to)
{
        dci_gpu_kv_planner *p = &kv->planner;
        DCI_GPU_KV_TRY(kv, dci_gpu_kv_planner_open(kv, to));
        if (!p->on)
                return DCI_OK;
        if (dci_gpu_kv_of_host(p)) {
                DCI_TRY((p->trees ? dci_gpu_kv_trees_fork : dci_gpu_kv_clusters_fork)(kv, from, to));
                return dci_gpu_kv_schedule_fork(kv, from, to);
        }
        const size_t n = dci_kv_whole_within(kv->host, from->n_formed, to->n), whole = n / DCI_KV_CHUNK;
        dci_gpu_kv_store_share(kv->summaries, dci_gpu_kv_row_number(kv, from), dci_gpu_kv_row_number(kv, to), whole);
        if (n > whole * DCI_KV_CHUNK) {
                DCI_TRY(copy_chunk(kv, to, whole, row_numbers(kv, from)[whole]));
                kv->summaries->n_chunks[dci_gpu_kv_row_number(kv, to)]++;
        }
        to->n_formed = n;
        to->where = from->where;
        const size_t n_bytes = kv->shape.n_kv_heads * kv->dim * sizeof(float);
        for (size_t l = 0; l < kv->n_sparse && dci_gpu_kv_coded(p); l++) {
                const size_t there = dci_gpu_kv_centres_offset(kv, l, dci_gpu_kv_row_number(kv, to)),
                             here = dci_gpu_kv_centres_offset(kv, l, dci_gpu_kv_row_number(kv, from));
                DCI_GPU_KV_TRY(kv, dci_gpu_kv_side_copy(kv, p->centres + there, p->centres + here, n_bytes));
                if (p->value_centres != NULL)
                        DCI_GPU_KV_TRY(kv, dci_gpu_kv_side_copy(kv, p->value_centres + there, p->value_centres + here,
                                                                n_bytes));
        }
        if (to->where != DCI_GPU_KV_NOWHERE)
                DCI_GPU_KV_TRY(kv, dci_gpu_kv_fork_transforms(kv, from, to));
        DCI_GPU_KV_TRY(kv, upload_numbers(kv, to, 0));
        if (p->ordered)
                DCI_TRY(dci_gpu_kv_orders_fork(kv, from, to));
        return dci_gpu_kv_schedule_fork(kv, from, to);
}

dci_status dci_gpu_kv_planner_truncate(dci_gpu_kv *kv, dci_gpu_kv_row *row, size_t n)
{
        dci_gpu_kv_planner *p = &kv->planner;
        if (p->clustered)
                return dci_gpu_kv_clusters_truncate(kv, row);
        if (p->trees) {
                dci_gpu_kv_trees_truncate(kv, row);
                return DCI_OK;
        }
        const size_t before = row->n_formed;
        if (p->ordered)
                dci_gpu_kv_orders_truncate(kv, row, n);
        const size_t left = dci_kv_whole_within(kv->host, row->n_formed, n), last = left / DCI_KV_CHUNK;
        dci_status status = DCI_OK;
        if (left < before || before == 0) /* then a step may have built some that do not count */
                DCI_GPU_KV_TRY(kv, dci_gpu_kv_votes_forget(kv, row));
        if (!p->on || left == before)
                return DCI_OK;
        row->n_formed = left;
        truncate_chunks(kv, row, dci_gpu_kv_count_chunks(left));
        if (left > last * DCI_KV_CHUNK && kv->summaries->refs[row_numbers(kv, row)[last]] > 1) {
                const int32_t shared = row_numbers(kv, row)[last];
                status = copy_chunk(kv, row, last, shared);
                if (status == DCI_OK) {
                        dci_gpu_kv_store_free(kv->summaries, shared);
                        status = dci_gpu_kv_check_device(kv, upload_numbers(kv, row, last));
                }
        }
        if (status == DCI_OK || kv->broken)
                return status;
        /* Without memory for a copy the row keeps whole chunks only, until a step has memory for more. */
        row->n_formed = last * DCI_KV_CHUNK;
        truncate_chunks(kv, row, last);
        return DCI_OK;
}
