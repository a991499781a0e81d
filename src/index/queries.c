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

/* The query as integers, if int8 or uint8 holds it. Returns which. */
static dci_dtype fit(const float *row, size_t dim, int16_t *out)
{
        int32_t least = 0, most = 0, bad = 0;
        for (size_t p = 0; p < dim; p++) {
                const float x = row[p] >= -128.0f ? (row[p] <= 255.0f ? row[p] : 255.0f) : -128.0f;
                const int32_t whole = (int32_t)x;
                bad |= (float)whole != row[p];
                least = whole < least ? whole : least;
                most = whole > most ? whole : most;
                out[p] = (int16_t)whole;
        }
        if (bad != 0 || (least < 0 && most > 127))
                return 0;
        return most > 127 ? DCI_U8 : DCI_I8;
}

static float norm2_of(const int16_t *row, size_t dim)
{
        int64_t sum = 0;
        for (size_t p = 0; p < dim; p++)
                sum += (int32_t)row[p] * row[p];
        return (float)sum;
}

static void make_integers(const dci_index *index, dci_queries *q)
{
        const size_t dim = index->config.dim;
        for (size_t i = 0; i < q->n; i++) {
                int16_t *whole = q->whole + i * q->ld_whole;
                q->fits[i] = (uint8_t)fit(q->rows + i * q->ld, dim, whole);
                memset(whole + dim, 0, (q->ld_whole - dim) * sizeof *whole);
                q->n_fit += q->fits[i] != 0;
                /* The norm by the same arithmetic as the products, whatever the format that the query came in. */
                if (q->fits[i] != 0 && q->inverse_norms != NULL && q->inverse_norms[i] != 0.0f)
                        q->inverse_norms[i] = 1.0f / sqrtf(norm2_of(whole, dim));
        }
}

/* Lays out what is made of n queries. */
static dci_status allocate(const dci_index *index, size_t n, bool convert, dci_queries *out)
{
        const size_t dim = index->config.dim;
        const bool cosine = index->config.metric == DCI_METRIC_COSINE, integers = index->config.dtype >= DCI_I8;
        size_t n_floats = 0, n_whole = 0;
        out->ld_whole = integers ? dci_integer_padded(dim) : 0;
        if (!dci_mul(n, (convert ? dim : 0) + (cosine ? 1 : 0), &n_floats) || !dci_mul(n, out->ld_whole, &n_whole) ||
            n_floats > SIZE_MAX / 16 || n_whole > SIZE_MAX / 16)
                return dci_fail(DCI_ERR_LIMIT, "%zu queries of %zu elements exceed the address space", n, dim);
        out->owned_bytes = n_floats * sizeof(float) + n_whole * sizeof(int16_t) + (integers ? n : 0);
        if (out->owned_bytes == 0)
                return DCI_OK;
        float *floats = dci_alloc(index->context, out->owned_bytes, 1);
        if (floats == NULL)
                return DCI_ERR_MEMORY;
        out->owned = floats;
        out->rows = convert ? floats : NULL;
        out->inverse_norms = cosine ? floats + (convert ? n * dim : 0) : NULL;
        if (integers) {
                out->integers = dci_integers_for(index->context);
                out->whole = (int16_t *)(void *)(floats + n_floats);
                out->fits = (uint8_t *)(out->whole + n_whole);
        }
        return DCI_OK;
}

dci_status dci_queries_prepare(const dci_index *index, size_t n, const void *queries, size_t ld, dci_queries *out)
{
        const size_t dim = index->config.dim;
        const dci_dtype dtype = index->config.query_dtype;
        const dci_kernels *kernels = index->context->kernels;
        const bool convert = dtype != DCI_F32;
        const size_t row_bytes = ld * dci_dtype_size(dtype);
        memset(out, 0, sizeof *out);
        DCI_TRY(check_queries(index, n, queries, ld));
        DCI_TRY(allocate(index, n, convert, out));
        float *made = convert ? out->owned : NULL;
        out->n = n;
        out->rows = convert ? made : queries;
        out->ld = convert ? dim : ld;
        for (size_t i = 0; i < n; i++) {
                const unsigned char *row = (const unsigned char *)queries + i * row_bytes;
                const dci_status status = dci_check_row(index, dtype, row, "query", i,
                                                        out->inverse_norms != NULL ? &out->inverse_norms[i] : NULL);
                if (status != DCI_OK) {
                        dci_queries_free(index, out);
                        return status;
                }
                if (convert)
                        kernels->to_f32[dtype - 1](row, dim, made + i * dim);
        }
        if (out->integers != NULL)
                make_integers(index, out);
        return DCI_OK;
}

void dci_queries_free(const dci_index *index, dci_queries *queries)
{
        dci_free(index->context, queries->owned, queries->owned_bytes, 1);
        queries->owned = NULL;
}
