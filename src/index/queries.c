/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The check of rows and queries; queries as float rows. */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "index/access.h"
#include "index/queries.h"

dci_status dci_check_row(const dci_index *index, dci_dtype dtype, const void *row, const char *what, size_t number,
                         float *out_norm)
{
        float norm2 = index->context->kernels->norm2[dtype - 1](row, index->config.dim);
        if (!(norm2 <= DCI_MAX_NORM2)) {
                float widest = 0.0f;
                bool finite = true;
                for (size_t p = 0; p < index->config.dim; p++) {
                        float x;
                        const unsigned char *at = (const unsigned char *)row + p * dci_dtype_size(dtype);
                        index->context->kernels->to_f32[dtype - 1](at, 1, &x);
                        finite = finite && isfinite(x);
                        widest = fmaxf(widest, fabsf(x));
                }
                if (!finite)
                        return dci_fail(DCI_ERR_NUMBER, "%s %zu holds NaN or infinity", what, number);
                return dci_fail(DCI_ERR_NUMBER,
                                "%s %zu is too large (an element is %g): its squared norm must be at most %g", what,
                                number, (double)widest, (double)DCI_MAX_NORM2);
        }
        if (out_norm == NULL)
                return DCI_OK;
        if (index->config.metric != DCI_METRIC_COSINE) {
                *out_norm = norm2;
                return DCI_OK;
        }
        bool zero = norm2 < DCI_MIN_NORM2;
        if (zero && index->config.zero_rows == DCI_ZERO_REFUSE)
                return dci_fail(DCI_ERR_NUMBER, "%s %zu is zero (length below 2^-40) and has no direction for COSINE",
                                what, number);
        *out_norm = zero ? 0.0f : 1.0f / sqrtf(norm2);
        return DCI_OK;
}

static dci_status check_queries(const dci_index *index, size_t n, const void *queries, size_t ld)
{
        const size_t element = dci_dtype_size(index->config.query_dtype);
        if (queries == NULL)
                return dci_fail(DCI_ERR_INVALID, "queries is NULL");
        DCI_TRY(dci_index_check_matrix(index, "queries", n, ld, element));
        return dci_check_aligned("queries", queries, element);
}

dci_status dci_queries_prepare(const dci_index *index, size_t n, const void *queries, size_t ld, dci_queries *out)
{
        const size_t dim = index->config.dim;
        const dci_dtype dtype = index->config.query_dtype;
        const dci_kernels *kernels = index->context->kernels;
        const bool cosine = index->config.metric == DCI_METRIC_COSINE, convert = dtype != DCI_F32;
        const size_t row_bytes = ld * dci_dtype_size(dtype);
        memset(out, 0, sizeof *out);
        DCI_TRY(check_queries(index, n, queries, ld));

        size_t per_query = (convert ? dim : 0) + (cosine ? 1 : 0), n_floats = 0;
        if (!dci_mul(n, per_query, &n_floats))
                return dci_fail(DCI_ERR_LIMIT, "%zu queries of %zu elements exceed the address space", n, dim);
        float *scratch = NULL;
        if (n_floats > 0) {
                scratch = dci_alloc(index->context, n_floats, sizeof *scratch);
                if (scratch == NULL)
                        return DCI_ERR_MEMORY;
        }
        out->n = n;
        out->owned = scratch;
        out->owned_bytes = n_floats * sizeof *scratch;
        out->rows = convert ? scratch : queries;
        out->ld = convert ? dim : ld;
        out->inverse_norms = cosine ? scratch + (convert ? n * dim : 0) : NULL;
        for (size_t i = 0; i < n; i++) {
                const unsigned char *row = (const unsigned char *)queries + i * row_bytes;
                const dci_status status =
                        dci_check_row(index, dtype, row, "query", i, cosine ? &out->inverse_norms[i] : NULL);
                if (status != DCI_OK) {
                        dci_queries_free(index, out);
                        return status;
                }
                if (convert)
                        kernels->to_f32[dtype - 1](row, dim, scratch + i * dim);
        }
        return DCI_OK;
}

void dci_queries_free(const dci_index *index, dci_queries *queries)
{
        dci_free(index->context, queries->owned, queries->owned_bytes, 1);
        queries->owned = NULL;
}
