/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Sequences that are swapped out. */
#include "core/internal.h"

#include <string.h>

#include "kv/memory.h"
#include "kv/stages/summary_codes.h"
#include "offload/boundaries.h"
#include "offload/learned_codes.h"
#include "offload/orders.h"
#include "offload/prompt_kmeans.h"
#include "offload/resident.h"
#include "offload/schedule.h"
#include "offload/summaries.h"
#include "offload/swap.h"

/* --- the image ---------------------------------------------------------------------------------------------------- */

static size_t centre_bytes(const dci_gpu_kv *kv)
{
        return kv->shape.n_kv_heads * kv->dim * sizeof(float);
}

static size_t summaries_bytes(const dci_gpu_kv *kv, size_t n_chunks)
{
        return kv->planner.on ? kv->n_sparse * n_chunks * kv->summaries->chunk_bytes : 0;
}

/* The device has transforms, though it may have no codes: after the first ones were truncated. */
static bool has_centres(const dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        return kv->planner.on && dci_gpu_kv_coded(&kv->planner) && row->where == DCI_GPU_KV_ON_DEVICE;
}

static size_t image_bytes(const dci_gpu_kv *kv, const dci_gpu_kv_swapped *s)
{
        const size_t n = !has_centres(kv, &s->row) ? 0 : kv->planner.value_centres != NULL ? 2 : 1;
        return dci_gpu_kv_orders_bytes(kv) + summaries_bytes(kv, s->n_chunks) + n * kv->n_sparse * centre_bytes(kv) +
               kv->schedule->row_bytes;
}

/* Copies to the image or from it, through locked memory. */
typedef struct mover {
        dci_gpu_kv *kv;
        unsigned char *at; /* in the image */
        bool out;          /* from the device */
} mover;

static dci_status move(mover *m, void *there, size_t n_bytes)
{
        dci_gpu_kv *kv = m->kv;
        unsigned char *device = there, *by = kv->planner.upload;
        for (size_t done = 0, here; done < n_bytes; done += here) {
                const size_t left = n_bytes - done;
                here = left < kv->planner.upload_bytes ? left : kv->planner.upload_bytes;
                if (!m->out)
                        memcpy(by, m->at, here);
                DCI_TRY(m->out ? dci_gpu_kv_side_copy(kv, by, device + done, here)
                               : dci_gpu_kv_side_copy(kv, device + done, by, here));
                DCI_TRY(kv->ops->stream_wait(kv->gpu, kv->side));
                if (m->out)
                        memcpy(m->at, by, here);
                m->at += here;
        }
        return DCI_OK;
}

/* Chunks that are adjacent on the device at once. */
static dci_status move_chunks(mover *m, const dci_gpu_kv_row *row, size_t n)
{
        const dci_gpu_kv_store *s = m->kv->summaries;
        const int32_t *numbers = dci_gpu_kv_store_numbers(s, dci_gpu_kv_row_number(m->kv, row));
        for (size_t l = 0; l < m->kv->n_sparse; l++)
                for (size_t c = 0, end; c < n; c = end) {
                        end = dci_gpu_kv_run_end(numbers, s->piece_shift, c, n);
                        DCI_TRY(move(m, dci_gpu_kv_store_at(s, l, numbers[c]), (end - c) * s->chunk_bytes));
                }
        return DCI_OK;
}

static dci_status move_all(mover *m, const dci_gpu_kv_swapped *s, const dci_gpu_kv_row *row)
{
        const dci_gpu_kv *kv = m->kv;
        const dci_gpu_kv_planner *p = &kv->planner;
        const size_t number = dci_gpu_kv_row_number(kv, row), n_bytes = centre_bytes(kv);
        const bool centres = has_centres(kv, &s->row);
        DCI_TRY(move_chunks(m, row, s->n_chunks));
        for (size_t l = 0; l < kv->n_sparse && centres; l++)
                DCI_TRY(move(m, p->centres + dci_gpu_kv_centres_offset(kv, l, number), n_bytes));
        for (size_t l = 0; l < kv->n_sparse && centres && p->value_centres != NULL; l++)
                DCI_TRY(move(m, p->value_centres + dci_gpu_kv_centres_offset(kv, l, number), n_bytes));
        return move(m, dci_gpu_kv_schedule_row(kv, row), kv->schedule->row_bytes);
}

/* --- out ---------------------------------------------------------------------------------------------------------- */

/* Whether the host has all the summaries that the device has. */
static bool host_has_all(const dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        const dci_kv_sequence *sequence = dci_gpu_kv_host_sequence(kv, row);
        const size_t n = dci_gpu_kv_host_grouped(kv, sequence);
        bool all = n > 0 && n >= row->n_formed;
        for (size_t l = 0; l < kv->shape.n_layers && all; l++)
                all = sequence->layers[l].n_missing == 0;
        return all;
}

dci_status dci_gpu_kv_swap_save(dci_gpu_kv *kv, dci_gpu_kv_row *row, dci_gpu_kv_swapped **out)
{
        dci_gpu_kv_swapped *s = NULL, of = {.bad = dci_gpu_kv_bad(kv, row)};
        DCI_TRY(dci_gpu_kv_boundaries_report(kv, row));
        if (kv->planner.ordered && of.bad == 0) /* the device has orders from the host */
                DCI_TRY(dci_gpu_kv_planner_drain(kv, row));
        if (kv->planner.ordered && of.bad == 0 && row->n_formed > 0)
                DCI_TRY(dci_kv_maintain(kv->host, 1, &row->id));
        of.row = *row;
        if (kv->planner.on && !dci_gpu_kv_of_host(&kv->planner) && row->n_formed > 0) {
                if (host_has_all(kv, row))
                        of.row.where = DCI_GPU_KV_ON_HOST;
                else
                        of.n_chunks = dci_gpu_kv_count_chunks(row->n_formed);
        }
        of.n_bytes = sizeof of + image_bytes(kv, &of);
        DCI_TRY(dci_kv_alloc(kv->host, of.n_bytes, (void **)&s));
        *s = of;
        mover m = {kv, s->image + dci_gpu_kv_orders_bytes(kv), true};
        dci_gpu_kv_orders_save(kv, row, s->image);
        const dci_status status = kv->planner.on ? dci_gpu_kv_check_device(kv, move_all(&m, s, row)) : DCI_OK;
        if (status == DCI_OK)
                *out = s;
        else
                dci_kv_free(kv->host, s, of.n_bytes);
        return status;
}

dci_status dci_gpu_kv_swap_leave(dci_gpu_kv *kv, dci_gpu_kv_row *row, dci_gpu_kv_swapped *s)
{
        dci_gpu_kv_planner_leave(kv, row);
        s->next = kv->swapped;
        kv->swapped = s;
        row->id = -1;
        return dci_gpu_kv_resident_leave(kv, row);
}

void dci_gpu_kv_swap_free(dci_gpu_kv *kv, dci_gpu_kv_swapped *s)
{
        dci_gpu_kv_swapped **at = &kv->swapped;
        while (*at != s)
                at = &(*at)->next;
        *at = s->next;
        dci_kv_free(kv->host, s, s->n_bytes);
}

/* --- in ----------------------------------------------------------------------------------------------------------- */

static dci_status restore_lists(dci_gpu_kv *kv, const dci_gpu_kv_swapped *s, const dci_gpu_kv_row *row)
{
        mover m = {kv, (unsigned char *)s->image + s->n_bytes - sizeof *s - kv->schedule->row_bytes, false};
        return move(&m, dci_gpu_kv_schedule_row(kv, row), kv->schedule->row_bytes);
}

dci_status dci_gpu_kv_swap_restore(dci_gpu_kv *kv, const dci_gpu_kv_swapped *s, dci_gpu_kv_row *row)
{
        const size_t number = dci_gpu_kv_row_number(kv, row);
        const dci_kv_sequence *sequence = dci_gpu_kv_host_sequence(kv, row);
        mover m = {kv, (unsigned char *)s->image + dci_gpu_kv_orders_bytes(kv), false};
        DCI_GPU_KV_TRY(kv, dci_gpu_kv_planner_open(kv, row));
        if (!kv->planner.on)
                return DCI_OK;
        if (dci_gpu_kv_of_host(&kv->planner) || s->row.where == DCI_GPU_KV_ON_HOST) {
                DCI_TRY(dci_gpu_kv_upload_all(kv, row));
                dci_gpu_kv_orders_restore(kv, row, s->image);
                return dci_gpu_kv_check_device(kv, restore_lists(kv, s, row));
        }
        DCI_TRY(dci_gpu_kv_store_make_exclusive(kv, kv->summaries, kv->side, number, 0, s->n_chunks));
        DCI_GPU_KV_TRY(kv, move_all(&m, s, row));
        for (size_t l = 0; l < kv->shape.n_layers && has_centres(kv, &s->row); l++)
                if (dci_kv_groups(kv->host, l))
                        DCI_GPU_KV_TRY(kv, dci_gpu_kv_upload_transforms(kv, row, l, &sequence->layers[l]));
        row->n_formed = s->row.n_formed;
        row->where = s->row.where;
        dci_gpu_kv_orders_restore(kv, row, s->image);
        return DCI_OK;
}

/* --- without a row ------------------------------------------------------------------------------------------------ */

/* Gives the host the centres of the device's codes. */
static dci_status set_centres(dci_gpu_kv *kv, const dci_gpu_kv_swapped *s, dci_kv_sequence *sequence)
{
        const unsigned char *keys = s->image + dci_gpu_kv_orders_bytes(kv) + summaries_bytes(kv, s->n_chunks),
                            *values = keys + kv->n_sparse * centre_bytes(kv);
        for (size_t l = 0; l < kv->shape.n_layers; l++) {
                const size_t at = kv->layers[l].index * centre_bytes(kv);
                if (dci_kv_groups(kv->host, l))
                        DCI_TRY(dci_kv_set_centres(kv->host, &sequence->layers[l],
                                                   (const float *)(const void *)(keys + at),
                                                   (const float *)(const void *)(values + at)));
        }
        return DCI_OK;
}

static dci_status build(dci_gpu_kv *kv, dci_gpu_kv_swapped *s, dci_kv_sequence *sequence)
{
        const size_t refits = dci_gpu_kv_count_refits(kv, sequence);
        if (kv->planner.kind == DCI_GPU_CODES && has_centres(kv, &s->row) && dci_gpu_kv_host_grouped(kv, sequence) == 0)
                DCI_TRY(set_centres(kv, s, sequence));
        DCI_TRY(dci_kv_maintain(kv->host, 1, &s->row.id));
        dci_gpu_kv_orders_settle(kv, s->image, s->row.n);
        if (dci_gpu_kv_count_refits(kv, sequence) != refits || host_has_all(kv, &s->row))
                s->row.where = DCI_GPU_KV_ON_HOST;
        return DCI_OK;
}

dci_status dci_gpu_kv_swap_settle(dci_gpu_kv *kv, dci_gpu_kv_swapped *s, bool all)
{
        dci_kv_sequence *sequence = dci_gpu_kv_host_sequence(kv, &s->row);
        if (!kv->planner.on)
                return DCI_OK;
        if (kv->planner.trees) /* workers build them */
                return DCI_OK;
        if (s->bad != 0 && all && !kv->planner.clustered)
                return dci_gpu_kv_bad_rows(&s->row);
        if (s->bad != 0)
                return DCI_OK;
        if (kv->planner.clustered) {
                DCI_TRY(dci_gpu_kv_prompt_kmeans_collect(kv, &s->row));
                return dci_kv_build_next(kv->host, s->row.id, true);
        }
        if (kv->planner.kind == DCI_GPU_LEARNED) {
                DCI_TRY(dci_gpu_kv_learned_settle(kv, &s->row));
                if (s->row.n_formed == 0 && dci_gpu_kv_host_grouped(kv, sequence) > 0)
                        s->row.where = DCI_GPU_KV_ON_HOST;
        }
        return all || dci_gpu_kv_planner_lacks(kv, &s->row) ? build(kv, s, sequence) : DCI_OK;
}
