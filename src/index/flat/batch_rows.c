/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Rows and queries in the form that the products need, and the products. */
#include "core/internal.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#include "index/flat/batch_state.h"

float dci_batch_length(float squared, size_t dim)
{
        float slack = 1.0f + ((float)dim / 16.0f + 16.0f) * 0x1p-23f;
        return sqrtf(squared) * slack + sqrtf((float)dim) * 0x1p-74f;
}

/* One row; returns the squared norm of what rounding took away. */
static float load_row(const batch *b, batch_worker *w, const void *stored, float scale, size_t at, batch_rows *rows,
                      float *out_norm2)
{
        const dci_flat *flat = b->flat;
        const dci_rows *from = flat->view.rows;
        const bool cosine = flat->metric == DCI_METRIC_COSINE;
        float *wide = b->amx != NULL ? w->row : rows->f32 + at * from->dim, lost = 0.0f;
        const float *row = stored;
        if (from->dtype != DCI_F32 || cosine || b->centre != NULL || b->amx == NULL) {
                flat->kernels->to_f32[from->dtype - 1](stored, from->dim, wide);
                row = wide;
        }
        for (size_t p = 0; cosine && p < from->dim; p++)
                wide[p] *= scale;
        for (size_t p = 0; b->centre != NULL && p < from->dim; p++)
                wide[p] -= b->centre[p];
        if (b->amx != NULL)
                lost = b->amx->pack_row(row, from->dim, b->dim_padded, rows->bf16 + dci_amx_row(at, b->dim_padded),
                                        DCI_AMX_STEP, out_norm2);
        else
                *out_norm2 = flat->kernels->norm2[DCI_F32 - 1](row, from->dim);
        return lost;
}

void dci_batch_load_rows(const batch *b, batch_worker *w, size_t first, size_t step, size_t n_rows, batch_rows *rows)
{
        const dci_flat *flat = b->flat;
        const size_t dim = flat->view.rows->dim;
        float max_lost = 0.0f, max_norm2 = 0.0f;
        if (b->integers != NULL) {
                dci_batch_integer_rows(b, w, first, step, n_rows, rows);
                return;
        }
        if (b->amx != NULL && n_rows % 32 != 0) /* tiles are multiplied whole */
                memset(rows->bf16 + n_rows / 32 * 32 * b->dim_padded, 0, 32 * b->dim_padded * sizeof *rows->bf16);
        for (size_t begin = 0; begin < n_rows; begin += DCI_BATCH_ROWS) {
                const void *pointers[DCI_BATCH_ROWS];
                float inverse[DCI_BATCH_ROWS] = {0};
                size_t count = n_rows - begin < DCI_BATCH_ROWS ? n_rows - begin : DCI_BATCH_ROWS;
                for (size_t r = 0; r < count; r++) {
                        size_t at = first + (begin + r) * step;
                        rows->slots[begin + r] = flat->selection->all ? (int32_t)at : flat->selection->slots[at];
                }
                dci_view_pointers(&flat->view, 0, rows->slots + begin, count, pointers);
                if (flat->metric == DCI_METRIC_COSINE)
                        dci_view_norms(&flat->view, 0, rows->slots + begin, count, inverse);
                for (size_t r = 0; r < count; r++) {
                        float norm2, lost = load_row(b, w, pointers[r], inverse[r], begin + r, rows, &norm2);
                        max_lost = lost > max_lost ? lost : max_lost;
                        max_norm2 = norm2 > max_norm2 ? norm2 : max_norm2;
                        rows->offset[begin + r] = flat->metric == DCI_METRIC_L2 ? 0.5f * norm2 : 0.0f;
                }
        }
        rows->n = n_rows;
        rows->longest = dci_batch_length(max_norm2, dim);
        rows->lost = b->amx == NULL ? 0.0f : dci_batch_length(max_lost, dim);
}

void dci_batch_multiply(const batch *b, batch_worker *w, const batch_rows *rows, size_t block, size_t first,
                        size_t n_queries, float *products)
{
        const dci_queries *queries = b->flat->queries;
        const size_t dim = b->flat->view.rows->dim;
        if (b->integers != NULL) {
                dci_batch_integer_products(b, w, rows, first, products);
                return;
        }
        if (b->amx != NULL) {
                b->amx->products(rows->bf16, (rows->n + 31) / 32 * 32, b->dim_padded,
                                 w->queries_bf16 + first * b->dim_padded, DCI_BATCH_COLUMNS / DCI_LANES, products,
                                 DCI_BATCH_COLUMNS);
                return;
        }
        size_t columns = n_queries - first < DCI_BATCH_COLUMNS ? n_queries - first : DCI_BATCH_COLUMNS;
        const float *from = w->queries_f32 + first * dim;
        size_t ld = dim;
        if (b->flat->metric != DCI_METRIC_COSINE && b->centre == NULL) {
                from = queries->rows + (block + first) * queries->ld;
                ld = queries->ld;
        }
        if (b->flat->kernels->isa == DCI_ISA_SCALAR && ld <= INT_MAX) {
                dci_gemm_nt(rows->n, columns, dim, rows->f32, dim, from, ld, products, DCI_BATCH_COLUMNS);
                return;
        }
        /* Rows and queries change places, so that a row's products are adjacent. */
        const void *pointers[DCI_BATCH_COLUMNS];
        for (size_t c = 0; c < columns; c++)
                pointers[c] = from + c * ld;
        for (size_t r = 0; r < rows->n; r += DCI_MANY_QUERIES)
                b->flat->kernels->score_many[DCI_F32 - 1][DCI_FORM_DOT](
                        rows->f32 + r * dim, dim, rows->n - r < DCI_MANY_QUERIES ? rows->n - r : DCI_MANY_QUERIES,
                        pointers, columns, dim, products + r * DCI_BATCH_COLUMNS, DCI_BATCH_COLUMNS);
}

void dci_batch_load_queries(const batch *b, batch_worker *w, size_t block, size_t n_queries)
{
        const dci_queries *queries = b->flat->queries;
        const size_t dim = b->flat->view.rows->dim,
                     columns = (n_queries + DCI_BATCH_COLUMNS - 1) / DCI_BATCH_COLUMNS * DCI_BATCH_COLUMNS;
        const bool cosine = b->flat->metric == DCI_METRIC_COSINE;
        uint16_t *packed = w->tile.bf16; /* free until the first tile */
        float ignored;
        if (b->integers != NULL) {
                dci_batch_integer_queries(b, w, block, n_queries);
                return;
        }
        for (size_t q = 0; q < columns; q++) {
                uint16_t *group = w->queries_bf16 + q / DCI_LANES * DCI_LANES * b->dim_padded;
                w->lists[q].n = 0;
                w->lists[q].limit = w->guess[q] = -INFINITY;
                w->lost[q] = 0.0f;
                if (q >= n_queries) { /* fills the last group; never hit */
                        w->threshold[q] = INFINITY;
                        if (b->amx != NULL) {
                                memset(packed, 0, b->dim_padded * sizeof *packed);
                                b->amx->place_query(packed, b->dim_padded, q % DCI_LANES, group);
                        }
                        continue;
                }
                const float *row = queries->rows + (block + q) * queries->ld;
                float *unit = b->amx != NULL ? w->row : w->queries_f32 + q * dim;
                for (size_t p = 0; b->centre != NULL && p < dim; p++)
                        unit[p] = row[p] - b->centre[p];
                row = b->centre != NULL ? unit : row;
                w->norm2[q] = b->flat->kernels->norm2[DCI_F32 - 1](row, dim);
                if (cosine) {
                        for (size_t p = 0; p < dim; p++)
                                unit[p] = row[p] * queries->inverse_norms[block + q];
                        w->norm2[q] = 1.0f;
                        row = unit;
                }
                w->length[q] = dci_batch_length(w->norm2[q], dim);
                if (b->amx != NULL) {
                        w->lost[q] =
                                dci_batch_length(b->amx->pack_row(row, dim, b->dim_padded, packed, 32, &ignored), dim);
                        b->amx->place_query(packed, b->dim_padded, q % DCI_LANES, group);
                }
        }
}
