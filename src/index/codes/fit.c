/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Codes fitted to queries: a transform is learned, all rows are encoded again while searches go on, and the codes are swapped. */
#include "core/internal.h"

#include <string.h>

#include "dci/sketch.h"
#include "index/access.h"
#include "index/calibrate.h"
#include "index/codes/renew.h"
#include "index/queries.h"

/* Rests of rows of the index, evenly spread, into moments. */
static void sample_rows(const dci_rows *rows, size_t n_live, const dci_frames *frames, float *tile,
                        dci_moments *moments)
{
        dci_rows *of = (dci_rows *)(uintptr_t)rows;
        const size_t dim = rows->dim, step = n_live / DCI_FIT_ROWS + 1, n = atomic_load(&of->n);
        float kept[DCI_MAX_KEPT];
        size_t in_tile = 0, seen = 0;
        for (size_t slot = 0; slot < n; slot++) {
                size_t offset;
                const dci_chunk *chunk = dci_rows_chunk(of, slot, &offset);
                float *to = tile + in_tile * dim;
                if (!dci_rows_holds(rows, chunk, slot, offset, n) || seen++ % step != 0)
                        continue;
                dci_rows_floats(rows, chunk, offset, to);
                dci_frames_place(frames, 0, to, 1.0f, to, kept);
                if (++in_tile == DCI_MOMENT_ROWS) {
                        dci_moments_add(moments, tile, dim, in_tile);
                        in_tile = 0;
                }
        }
        dci_moments_add(moments, tile, dim, in_tile);
}

/* Queries as codes see them: less the centre, where goodness is a distance, and less the kept directions. */
static void sample_queries(const dci_queries *queries, const dci_frames *frames, float *tile, dci_moments *moments)
{
        const size_t dim = frames->dim;
        float kept[DCI_MAX_KEPT];
        for (size_t first = 0, n; first < queries->n; first += n) {
                n = queries->n - first < DCI_MOMENT_ROWS ? queries->n - first : DCI_MOMENT_ROWS;
                size_t in_tile = 0;
                for (size_t q = first; q < first + n; q++) {
                        const float *query = queries->rows + q * queries->ld;
                        const float scale = queries->inverse_norms == NULL ? 1.0f : queries->inverse_norms[q];
                        float *to = tile + in_tile * dim;
                        if (scale == 0.0f)
                                continue;
                        if (frames->relation == DCI_RELATION_DISTANCE) {
                                dci_frames_place(frames, 0, query, scale, to, kept);
                        } else {
                                memcpy(to, query, dim * sizeof *to);
                                dci_frames_take_kept(frames, to, kept);
                        }
                        in_tile++;
                }
                dci_moments_add(moments, tile, dim, in_tile);
        }
}

/* The frame of `plan` is that of rows and queries; what is learned from it takes its place. */
static dci_status learn(const dci_index *index, const dci_queries *queries, dci_frames *frames)
{
        const size_t dim = index->config.dim, part = dci_moments_bytes(dim);
        const size_t tile = dci_lines(DCI_MOMENT_ROWS * dim * sizeof(float));
        unsigned char *memory = dci_alloc(index->context, 2 * part + tile, 1);
        if (memory == NULL)
                return DCI_ERR_MEMORY;
        dci_moments of_rows, of_queries;
        dci_moments_init(index->context->kernels, dim, memory, &of_rows);
        dci_moments_init(index->context->kernels, dim, memory + part, &of_queries);
        sample_rows(&index->rows, dci_index_count(index), frames, (float *)(void *)(memory + 2 * part), &of_rows);
        sample_queries(queries, frames, (float *)(void *)(memory + 2 * part), &of_queries);
        dci_status status = of_queries.n == 0
                                    ? dci_fail(DCI_ERR_NUMBER, "the queries' mean square is 0, expected more than 0")
                                    : DCI_OK;
        if (status == DCI_OK)
                status = dci_frames_learn(frames, &of_rows, &of_queries, frames->frame[0]->coder.centre);
        if (status == DCI_OK)
                dci_frames_cut_first(frames);
        dci_free(index->context, memory, 2 * part + tile, 1);
        return status;
}

static dci_status fit_by(dci_index *index, const dci_queries *queries, const dci_codes_plan *plan, size_t n,
                         const dci_progress *progress)
{
        dci_rows aside;
        dci_status status = dci_codes_aside(index, &aside);
        if (status == DCI_OK)
                status = dci_codes_follow_plan(plan, n, &aside);
        if (status == DCI_OK)
                status = learn(index, queries, &aside.codes->frames);
        if (status == DCI_OK)
                status = dci_codes_replace(index, &aside, progress);
        dci_codes_aside_free(&aside);
        return status;
}

/* With `writers` held, without which kind AUTO may change what is asked about. Where the kept directions leave nothing of the queries to
 * learn from, none are kept. */
static dci_status fit(dci_index *index, const dci_queries *queries, const dci_progress *progress)
{
        const size_t n = dci_index_count(index);
        dci_codes_plan plan;
        if (index->config.sketch_bits == 0)
                return dci_fail(DCI_ERR_UNSUPPORTED, "the index has no codes%s: its sketch_bits is 0",
                                index->automatic.on ? " yet" : "");
        if (n == 0)
                return dci_fail(DCI_ERR_NUMBER, "the index is empty, there is nothing to learn from");
        DCI_TRY(dci_codes_plan_make(&index->rows, n, 1, &plan));
        dci_status status = fit_by(index, queries, &plan, n, progress);
        if (status == DCI_ERR_NUMBER && plan.n_kept > 0) {
                plan.n_kept = 0;
                status = fit_by(index, queries, &plan, n, progress);
        }
        dci_codes_plan_free(&index->rows, &plan);
        return status;
}

dci_status dci_index_fit(dci_index *index, size_t n_queries, const void *queries, size_t ld)
{
        return dci_index_fit_with(index, n_queries, queries, ld, NULL);
}

dci_status dci_index_fit_with(dci_index *index, size_t n_queries, const void *queries, size_t ld,
                              const dci_progress *progress)
{
        DCI_TRY(dci_index_check_writer(index));
        if (index->config.dim > DCI_SKETCH_MAX_FIT_DIM)
                return dci_fail(DCI_ERR_LIMIT, "dimension %zu is more than a transform can be learned for, %zu",
                                index->config.dim, DCI_SKETCH_MAX_FIT_DIM);
        if (n_queries == 0)
                return dci_fail(DCI_ERR_INVALID, "n_queries is 0, expected at least 1");
        dci_queries prepared;
        DCI_TRY(dci_queries_prepare(index, n_queries, queries, ld, &prepared));
        pthread_mutex_lock(&index->writers);
        const dci_status status = fit(index, &prepared, progress);
        if (status == DCI_OK)
                dci_calibrate_fitted(index, &prepared);
        pthread_mutex_unlock(&index->writers);
        dci_queries_free(index, &prepared);
        return status;
}
