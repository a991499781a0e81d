/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * 8-bit rows and queries of integers in tiles. Products are exact integers: with what the squared lengths add, rounded to float
 * once, they are the canonical scores, so there is nothing left to decide. For COSINE the canonical kernel has the last word, since it
 * may order its factors differently.
 *
 * Instructions multiply unsigned rows x + a with signed queries q - b, where a and b are 0 or 128, so
 *      x . q = (x + a) . (q - b) + b sum(x) - a sum(q - b)
 * and goodness is that, or -|x - q|^2 = 2 x . q - |x|^2 - |q|^2, all modulo 2^32: the results fit.
 */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "index/flat/batch_state.h"

/* What COSINE may differ by from the canonical score, a few roundings. */
#define COSINE_ERROR 0x1p-20f

void dci_batch_integer_queries(const batch *b, batch_worker *w, size_t block, size_t n_queries)
{
        const dci_queries *queries = b->flat->queries;
        const dci_integer_tiles *tiles = b->integers;
        const size_t dim = b->flat->view.rows->dim,
                     columns = (n_queries + DCI_BATCH_COLUMNS - 1) / DCI_BATCH_COLUMNS * DCI_BATCH_COLUMNS;
        const bool l2 = b->flat->metric == DCI_METRIC_L2, cosine = b->flat->metric == DCI_METRIC_COSINE;
        const uint32_t row_bias = tiles->row_bias[b->flat->view.rows->dtype - DCI_I8];
        memset(w->queries_packed, 0, columns * b->dim_padded * tiles->element_bytes);
        for (size_t q = 0; q < columns; q++) {
                w->lists[q].n = 0;
                w->lists[q].limit = w->guess[q] = -INFINITY;
                w->error[q] = cosine ? COSINE_ERROR : 0.0f;
                w->norm2[q] = w->length[q] = w->lost[q] = 0.0f;
                w->column_masks[q] = w->column_terms[q] = 0;
                w->column_scales[q] = 0.0f;
                if (q >= n_queries) { /* fills the last group; never hit */
                        w->threshold[q] = INFINITY;
                        continue;
                }
                const int16_t *whole = queries->whole + (block + q) * queries->ld_whole;
                const int16_t bias = (int16_t)(queries->fits[block + q] == DCI_U8 ? tiles->query_bias : 0);
                uint32_t sum = 0, norm2 = 0;
                for (size_t p = 0; p < dim; p++) {
                        sum += (uint32_t)(whole[p] - bias);
                        norm2 += (uint32_t)(whole[p] * whole[p]);
                }
                /* Sums of rows come times 128, which is what every bias is. */
                w->column_masks[q] = bias != 0 ? UINT32_MAX : 0;
                w->column_terms[q] = (l2 ? 2u : 1u) * (0u - row_bias * sum) - (l2 ? norm2 : 0u);
                w->column_scales[q] = cosine ? queries->inverse_norms[block + q] : 1.0f;
                unsigned char *group = (unsigned char *)w->queries_packed +
                                       q / DCI_LANES * DCI_LANES * b->dim_padded * tiles->element_bytes;
                tiles->place_query(whole, bias, dim, b->dim_padded, group, q % DCI_LANES);
        }
}

void dci_batch_integer_rows(const batch *b, batch_worker *w, size_t first, size_t step, size_t n_rows, batch_rows *rows)
{
        const dci_flat *flat = b->flat;
        const dci_dtype dtype = flat->view.rows->dtype;
        const uint32_t bias = (uint32_t)b->integers->query_bias;
        (void)w;
        for (size_t begin = 0; begin < n_rows; begin += DCI_BATCH_ROWS) {
                const void *pointers[DCI_BATCH_ROWS];
                const size_t count = n_rows - begin < DCI_BATCH_ROWS ? n_rows - begin : DCI_BATCH_ROWS;
                for (size_t r = 0; r < count; r++) {
                        const size_t at = first + (begin + r) * step;
                        rows->slots[begin + r] = flat->selection->all ? (int32_t)at : flat->selection->slots[at];
                }
                dci_view_pointers(&flat->view, 0, rows->slots + begin, count, pointers);
                if (flat->metric == DCI_METRIC_COSINE)
                        dci_view_norms(&flat->view, 0, rows->slots + begin, count, rows->scales + begin);
                for (size_t r = begin; r < begin + count; r++) {
                        uint32_t sum, norm2;
                        b->integers->pack_row(pointers[r - begin], dtype, flat->view.rows->dim, b->dim_padded,
                                              rows->packed, r, &sum, &norm2);
                        rows->sums[r] = bias * sum;
                        rows->terms[r] = flat->metric == DCI_METRIC_L2 ? 0u - norm2 : 0u;
                        rows->offset[r] = 0.0f;
                }
        }
        rows->n = n_rows;
        rows->longest = rows->lost = 0.0f;
}

void dci_batch_integer_products(const batch *b, batch_worker *w, const batch_rows *rows, size_t first, float *products)
{
        const dci_integer_tiles *tiles = b->integers;
        const bool cosine = b->flat->metric == DCI_METRIC_COSINE;
        const dci_integer_terms terms = {
                .factor = b->flat->metric == DCI_METRIC_L2 ? 2 : 1,
                .row_sums = rows->sums,
                .row_terms = rows->terms,
                .column_masks = w->column_masks + first,
                .column_terms = w->column_terms + first,
                .row_scales = cosine ? rows->scales : NULL,
                .column_scales = cosine ? w->column_scales + first : NULL,
        };
        const unsigned char *queries =
                (const unsigned char *)w->queries_packed + first * b->dim_padded * tiles->element_bytes;
        tiles->products(rows->packed, dci_integer_rows(rows->n), b->dim_padded, queries, (int32_t *)(void *)products);
        tiles->finish(&terms, rows->n, products);
}
