/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Memory of a batch search: one allocation per worker. */
#include "core/internal.h"

#include <string.h>

#include "index/flat/batch_state.h"

/* Hands out parts of one allocation; with memory NULL it only measures. */
typedef struct arena {
        unsigned char *memory;
        size_t used;
        bool overflow;
} arena;

static void *take(arena *a, size_t count, size_t size)
{
        size_t n_bytes, at = a->used;
        a->overflow = a->overflow || !dci_mul(count, size, &n_bytes) || n_bytes > SIZE_MAX / 4 || at > SIZE_MAX / 4;
        if (a->overflow)
                return NULL;
        a->used = at + dci_lines(n_bytes);
        return a->memory == NULL ? NULL : a->memory + at;
}

static void take_rows(const batch *b, arena *a, size_t n, batch_rows *rows)
{
        const bool amx = b->amx != NULL;
        rows->bf16 = take(a, amx ? n * b->dim_padded : 0, sizeof *rows->bf16);
        rows->f32 = take(a, amx || b->integers != NULL ? 0 : n * b->flat->view.rows->dim, sizeof *rows->f32);
        if (b->integers != NULL) {
                rows->packed = take(a, dci_integer_rows(n) * b->dim_padded, b->integers->element_bytes);
                rows->sums = take(a, n, sizeof *rows->sums);
                rows->terms = take(a, n, sizeof *rows->terms);
                rows->scales = take(a, n, sizeof *rows->scales);
        }
        rows->offset = take(a, n, sizeof *rows->offset);
        rows->slots = take(a, n, sizeof *rows->slots);
}

static void lay_out(const batch *b, batch_worker *w, arena *a)
{
        const size_t dim = b->flat->view.rows->dim,
                     block = (b->block + DCI_BATCH_COLUMNS - 1) / DCI_BATCH_COLUMNS * DCI_BATCH_COLUMNS;
        const bool amx = b->amx != NULL, placed_queries = !amx && b->integers == NULL &&
                                                          (b->flat->metric == DCI_METRIC_COSINE || b->centre != NULL);
        take_rows(b, a, DCI_BATCH_ROWS, &w->tile);
        take_rows(b, a, b->n_sample, &w->sample);
        w->row = take(a, b->dim_padded, sizeof *w->row);
        w->products = take(a, DCI_BATCH_ROWS * DCI_BATCH_COLUMNS, sizeof *w->products);
        w->hits = take(a, DCI_BATCH_ROWS * (DCI_BATCH_COLUMNS / DCI_LANES), sizeof *w->hits);
        w->queries_bf16 = take(a, amx ? block * b->dim_padded : 0, sizeof *w->queries_bf16);
        w->queries_f32 = take(a, placed_queries ? block * dim : 0, sizeof *w->queries_f32);
        if (b->integers != NULL) {
                w->queries_packed = take(a, block * b->dim_padded, b->integers->element_bytes);
                w->column_masks = take(a, block, sizeof *w->column_masks);
                w->column_terms = take(a, block, sizeof *w->column_terms);
                w->column_scales = take(a, block, sizeof *w->column_scales);
        }
        w->norm2 = take(a, block, sizeof *w->norm2);
        w->length = take(a, block, sizeof *w->length);
        w->lost = take(a, block, sizeof *w->lost);
        w->threshold = take(a, block, sizeof *w->threshold);
        w->error = take(a, block, sizeof *w->error);
        w->lists = take(a, block, sizeof *w->lists);
        float *values = take(a, block * b->capacity, sizeof *values);
        float *errors = take(a, block * b->capacity, sizeof *errors);
        int32_t *slots = take(a, block * b->capacity, sizeof *slots);
        w->sample_products = take(a, b->n_sample * DCI_BATCH_COLUMNS, sizeof *w->sample_products);
        w->guess = take(a, block, sizeof *w->guess);
        w->topk = take(a, dci_topk_bytes(b->k), 1);
        w->floats = take(a, b->capacity, sizeof *w->floats);
        w->kept = take(a, b->capacity + DCI_LANES, sizeof *w->kept);
        w->order = take(a, b->capacity + DCI_LANES, sizeof *w->order);
        w->keys = take(a, 2 * b->capacity, sizeof *w->keys);
        if (a->memory == NULL)
                return;
        /* OpenBLAS does not write the columns of missing queries: they must hold numbers. */
        memset(w->products, 0, DCI_BATCH_ROWS * DCI_BATCH_COLUMNS * sizeof *w->products);
        memset(w->sample_products, 0, b->n_sample * DCI_BATCH_COLUMNS * sizeof *w->sample_products);
        for (size_t q = 0; q < block; q++)
                w->lists[q] = (batch_list){.value = values + q * b->capacity,
                                           .error = errors + q * b->capacity,
                                           .slot = slots + q * b->capacity};
}

dci_status dci_batch_workers_create(batch *b, size_t n_workers)
{
        dci_context *context = b->flat->context;
        batch_worker measured;
        arena size = {0};
        lay_out(b, &measured, &size);
        if (size.overflow)
                return dci_fail(DCI_ERR_LIMIT, "k %zu needs more scratch than the address space holds", b->k);
        b->workers = dci_calloc(context, n_workers, sizeof *b->workers);
        if (b->workers == NULL)
                return DCI_ERR_MEMORY;
        b->n_workers = n_workers;
        for (size_t i = 0; i < n_workers; i++) {
                batch_worker *w = &b->workers[i];
                w->n_bytes = size.used;
                w->memory = dci_alloc(context, size.used, 1);
                if (w->memory == NULL) {
                        dci_batch_workers_destroy(b);
                        return DCI_ERR_MEMORY;
                }
                arena a = {.memory = w->memory};
                lay_out(b, w, &a);
        }
        return DCI_OK;
}

void dci_batch_workers_destroy(batch *b)
{
        for (size_t i = 0; i < b->n_workers; i++)
                dci_free(b->flat->context, b->workers[i].memory, b->workers[i].n_bytes, 1);
        dci_free(b->flat->context, b->workers, b->n_workers, sizeof *b->workers);
}
