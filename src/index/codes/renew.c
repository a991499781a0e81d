/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "core/internal.h"

#include <string.h>

#include "index/access.h"
#include "index/codes/renew.h"

/* Codes are made again if that leaves so much less of the rows' energy to them; learned ones, which know queries, stay longer. */
#define WORTH 1.3
#define WORTH_LEARNED 4.0
/* Whether it could be is asked when rows have grown by a part of this many. */
#define PART 8
/* Energy beyond which, and frames more than at the last time from which on, all is planned again before rows have doubled. */
#define STRAINED 1.5
#define MORE_FRAMES ((size_t)16)

dci_status dci_codes_aside(const dci_index *index, dci_rows *out)
{
        const dci_rows *rows = &index->rows;
        const dci_chunk_table *old = atomic_load(&rows->table);
        const size_t n_bytes = sizeof *old + old->capacity * sizeof(dci_chunk);
        dci_rows_init(out, index->context, &index->config);
        DCI_TRY(dci_rows_codes_create(out, &index->config));
        dci_chunk_table *table = dci_alloc(index->context, n_bytes, 1);
        if (table == NULL)
                return DCI_ERR_MEMORY;
        memcpy(table, old, n_bytes);
        atomic_store(&out->table, table);
        atomic_store(&out->n, atomic_load(&rows->n));
        return DCI_OK;
}

/* Without readers: the codes and their frames change places. */
static void swap_codes(dci_rows *a, dci_rows *b)
{
        dci_rows_codes *codes = a->codes;
        a->codes = b->codes;
        b->codes = codes;
        for (size_t i = 0; i < a->n_chunks; i++) {
                dci_chunk *x = &atomic_load(&a->table)->chunk[i], *y = &atomic_load(&b->table)->chunk[i];
                const dci_chunk keep = *x;
                x->codes = y->codes;
                x->area = y->area;
                y->codes = keep.codes;
                y->area = keep.area;
        }
}

void dci_codes_aside_free(dci_rows *aside)
{
        dci_chunk_table *table = atomic_load(&aside->table);
        for (size_t i = 0; i < aside->n_chunks; i++)
                dci_chunk_codes_free(aside, &table->chunk[i]);
        if (table != NULL)
                dci_free(aside->context, table, sizeof *table + table->capacity * sizeof(dci_chunk), 1);
        dci_rows_codes_destroy(aside->context, aside->codes);
}

/* Rows between two reports of progress: a multiple of those of a block, and enough for all threads. */
#define ENCODED_ROWS ((size_t)1 << 16)

/* In pieces, where progress is reported. */
static dci_status encode_all(const dci_index *index, dci_rows *rows, const dci_progress *progress)
{
        const size_t n = atomic_load(&rows->n);
        if (progress == NULL)
                return dci_rows_encode(rows, 0, n);
        DCI_TRY(dci_progress_tell(progress, 0, n, index));
        for (size_t first = 0; first < n; first += ENCODED_ROWS) {
                const size_t end = n - first < ENCODED_ROWS ? n : first + ENCODED_ROWS;
                DCI_TRY(dci_rows_encode(rows, first, end));
                DCI_TRY(dci_progress_tell(progress, end, n, index));
        }
        return DCI_OK;
}

dci_status dci_codes_replace(dci_index *index, dci_rows *aside, const dci_progress *progress)
{
        dci_chunk_table *table = atomic_load(&aside->table);
        for (size_t i = 0; i < index->rows.n_chunks; i++) {
                table->chunk[i].codes = NULL;
                if (!dci_chunk_codes_create(aside, table->chunk[i].capacity, &table->chunk[i]))
                        return DCI_ERR_MEMORY;
                aside->n_chunks++;
        }
        DCI_TRY(encode_all(index, aside, progress));
        dci_index_exclusive_begin(index);
        swap_codes(&index->rows, aside);
        dci_index_exclusive_end(index);
        return DCI_OK;
}

dci_status dci_codes_follow_plan(const dci_codes_plan *plan, size_t n, dci_rows *rows)
{
        dci_rows_codes *codes = rows->codes;
        DCI_TRY(dci_frames_relate(&codes->frames, codes->frames.relation, plan->n_kept, plan->kept));
        for (size_t c = 0; c < plan->n_centres; c++) {
                DCI_TRY(dci_frames_begin(&codes->frames, plan->centres + c * rows->dim));
                codes->frames.frame[c]->energy = plan->energies[c];
        }
        codes->n_reviewed = codes->n_checked = n;
        codes->n_frames = plan->n_centres;
        codes->energy = (float)plan->energy;
        return DCI_OK;
}

static dci_status encode_again(dci_index *index, const dci_codes_plan *plan, size_t n)
{
        dci_rows aside;
        dci_status status = dci_codes_aside(index, &aside);
        if (status == DCI_OK)
                status = dci_codes_follow_plan(plan, n, &aside);
        if (status == DCI_OK)
                status = dci_codes_replace(index, &aside, NULL);
        dci_codes_aside_free(&aside);
        return status;
}

/* Asks at most once while rows grow by an eighth: so n rows, added in whatever way, are asked and encoded O(n) times in all. */
static bool is_due(dci_rows *rows, size_t n, bool *out_much)
{
        dci_rows_codes *codes = rows->codes;
        const size_t n_slots = atomic_load(&rows->n), n_frames = atomic_load(&codes->frames.n);
        if (n < codes->n_checked / 2)
                codes->n_checked = codes->n_reviewed = n;
        else if (n < codes->n_checked + codes->n_checked / PART + 1)
                return false;
        codes->n_checked = n;
        *out_much = n >= 2 * codes->n_reviewed || n_frames > codes->n_frames + MORE_FRAMES ||
                    n_frames == DCI_MAX_FRAMES || dci_rows_count_raw(rows, n_slots) >= dci_rows_max_raw(n_slots);
        return true;
}

static void settle(dci_rows_codes *codes, size_t n, double present)
{
        codes->n_reviewed = n;
        codes->n_frames = atomic_load(&codes->frames.n);
        codes->energy = (float)present;
}

/* Whether the codes are worth making again at all, from a quick look; if not, that is settled. */
static dci_status look(dci_rows *rows, size_t n, bool much, bool learned, bool *out_plan)
{
        dci_rows_codes *codes = rows->codes;
        bool wanted;
        double present;
        *out_plan = false;
        DCI_TRY(dci_codes_plan_wanted(rows, &wanted, &present));
        if (learned) { /* only where rows are no longer about the centre of the fit */
                *out_plan = codes->energy > 0.0f && present > WORTH_LEARNED * (double)codes->energy;
                if (codes->energy == 0.0f)
                        settle(codes, n, present);
        } else if (much || present > STRAINED * (double)codes->energy) {
                *out_plan = wanted;
                if (!wanted)
                        settle(codes, n, present);
        }
        return DCI_OK;
}

static dci_status review(dci_index *index, size_t n, bool much, bool *out_renewed)
{
        dci_rows_codes *codes = index->rows.codes;
        const dci_frames *frames = &codes->frames;
        const bool learned = frames->frame[dci_frames_last(frames)]->coder.kind == DCI_CODER_LEARNED;
        bool wanted;
        dci_codes_plan plan;
        DCI_TRY(look(&index->rows, n, much, learned, &wanted));
        if (!wanted)
                return DCI_OK;
        DCI_TRY(dci_codes_plan_make(&index->rows, n, DCI_PLAN_CENTRES, &plan));
        dci_status status = DCI_OK;
        const bool worth_it =
                plan.present > (learned ? WORTH_LEARNED : WORTH) * plan.energy || (plan.misses && !learned);
        if (worth_it)
                status = encode_again(index, &plan, n);
        else
                settle(codes, n, plan.present);
        *out_renewed = worth_it && status == DCI_OK;
        dci_codes_plan_free(&index->rows, &plan);
        return status;
}

bool dci_codes_review(dci_index *index)
{
        const size_t n = dci_index_count(index);
        bool much, renewed = false;
        if (index->rows.codes == NULL || n == 0 || atomic_load(&index->rows.codes->frames.n) == 0 ||
            !is_due(&index->rows, n, &much))
                return false;
        dci_may_fail(true);
        review(index, n, much, &renewed);
        dci_may_fail(false);
        return renewed;
}
