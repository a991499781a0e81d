/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Codes fitted to queries: a transform is learned, all rows are encoded again while searches go on, and the codes are swapped. */
#include "core/internal.h"

#include <string.h>

#include "dci/sketch.h"
#include "index/access.h"
#include "index/calibrate.h"
#include "index/codes/rows.h"
#include "index/queries.h"

/* Rows between two reports of progress: a multiple of those of a block, and enough for all threads. */
#define ENCODED_ROWS ((size_t)1 << 16)

/* Rows of the index, or queries, evenly spread, into moments. */
static void sample_rows(const dci_index *index, size_t n_live, float *tile, dci_moments *moments)
{
        const dci_view view = dci_rows_view(&index->rows);
        const size_t dim = index->config.dim, step = n_live / DCI_FIT_ROWS + 1;
        size_t in_tile = 0, seen = 0;
        for (size_t slot = 0; slot < view.n; slot++) {
                const int32_t one = (int32_t)slot;
                const void *row;
                if ((view.rows->gaps && dci_view_id(&view, one) < 0) || seen++ % step != 0)
                        continue;
                dci_view_pointers(&view, 0, &one, 1, &row);
                index->context->kernels->to_f32[index->config.dtype - 1](row, dim, tile + in_tile * dim);
                if (++in_tile == DCI_MOMENT_ROWS) {
                        dci_moments_add(moments, tile, dim, in_tile);
                        in_tile = 0;
                }
        }
        dci_moments_add(moments, tile, dim, in_tile);
}

static void sample_queries(const dci_queries *queries, dci_moments *moments)
{
        for (size_t q = 0; q < queries->n; q += DCI_MOMENT_ROWS)
                dci_moments_add(moments, queries->rows + q * queries->ld, queries->ld,
                                queries->n - q < DCI_MOMENT_ROWS ? queries->n - q : DCI_MOMENT_ROWS);
}

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
        sample_rows(index, dci_index_count(index), (float *)(void *)(memory + 2 * part), &of_rows);
        sample_queries(queries, &of_queries);
        const dci_status status = dci_frames_learn(frames, &of_rows, &of_queries);
        dci_free(index->context, memory, 2 * part + tile, 1);
        return status;
}

/* The rows of the index, with codes of their own. */
static dci_status shadow(const dci_index *index, dci_rows *out)
{
        const dci_rows *rows = &index->rows;
        const dci_chunk_table *old = atomic_load(&rows->table);
        const size_t n_bytes = sizeof *old + old->capacity * sizeof(dci_chunk);
        dci_rows_init(out, index->context, &index->config);
        dci_status status = dci_rows_codes_create(out, &index->config);
        dci_chunk_table *table = status == DCI_OK ? dci_alloc(index->context, n_bytes, 1) : NULL;
        if (table == NULL)
                return DCI_ERR_MEMORY;
        memcpy(table, old, n_bytes);
        atomic_store(&out->table, table);
        for (size_t i = 0; i < rows->n_chunks; i++) {
                table->chunk[i].codes = NULL;
                if (!dci_chunk_codes_create(out, table->chunk[i].capacity, &table->chunk[i]))
                        return DCI_ERR_MEMORY;
                out->n_chunks++;
        }
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

static void shadow_free(dci_rows *shadow)
{
        dci_chunk_table *table = atomic_load(&shadow->table);
        for (size_t i = 0; i < shadow->n_chunks; i++)
                dci_chunk_codes_free(shadow, &table->chunk[i]);
        if (table != NULL)
                dci_free(shadow->context, table, sizeof *table + table->capacity * sizeof(dci_chunk), 1);
        dci_rows_codes_destroy(shadow->context, shadow->codes);
}

static dci_status tell(const dci_index *index, const dci_progress *progress, size_t done, size_t total)
{
        if (progress == NULL || progress->fn == NULL)
                return DCI_OK;
        dci_busy_mark mark;
        dci_busy_enter(&mark, index);
        const int32_t stop = progress->fn(progress->ctx, done, total);
        dci_busy_leave(&mark);
        return stop == 0 ? DCI_OK
                         : dci_fail(DCI_ERR_CANCELLED, "cancelled after %zu of %zu rows were encoded", done, total);
}

/* In pieces: their size has no part in the codes, as learned ones have one centre. */
static dci_status encode(const dci_index *index, dci_rows *rows, const dci_progress *progress)
{
        const size_t n = atomic_load(&rows->n);
        for (size_t first = 0; first < n; first += ENCODED_ROWS) {
                const size_t end = n - first < ENCODED_ROWS ? n : first + ENCODED_ROWS;
                DCI_TRY(dci_rows_encode(rows, first, end));
                DCI_TRY(tell(index, progress, end, n));
        }
        return DCI_OK;
}

/* With `writers` held, without which kind AUTO may change what is asked about. */
static dci_status fit(dci_index *index, const dci_queries *queries, const dci_progress *progress)
{
        dci_rows aside;
        if (index->config.sketch_bits == 0)
                return dci_fail(DCI_ERR_UNSUPPORTED, "the index has no codes%s: its sketch_bits is 0",
                                index->automatic.on ? " yet" : "");
        if (dci_index_count(index) == 0)
                return dci_fail(DCI_ERR_NUMBER, "the index is empty, there is nothing to learn from");
        dci_status status = shadow(index, &aside);
        if (status == DCI_OK)
                status = tell(index, progress, 0, atomic_load(&aside.n));
        if (status == DCI_OK)
                status = learn(index, queries, &aside.codes->frames);
        if (status == DCI_OK)
                status = encode(index, &aside, progress);
        if (status == DCI_OK) {
                dci_index_exclusive_begin(index);
                swap_codes(&index->rows, &aside);
                dci_index_exclusive_end(index);
        }
        shadow_free(&aside);
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
