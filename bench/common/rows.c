/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/common/dataset.h"

#include <string.h>

#include "simd/convert.h"

dci_status bench_rows_alloc(dci_context *context, const char *what, dci_dtype dtype, size_t n, size_t dim,
                            bench_rows *out)
{
        size_t count, bytes;
        if (n == 0 || dim == 0)
                return dci_fail(DCI_ERR_FORMAT, "%s: holds no rows (%zu x %zu)", what, n, dim);
        if (dim > DCI_MAX_DIM)
                return dci_fail(DCI_ERR_LIMIT, "%s: rows of %zu elements, at most %zu are allowed", what, dim,
                                DCI_MAX_DIM);
        if (!dci_mul(n, dim, &count) || !dci_mul(count, dci_dtype_size(dtype), &bytes))
                return dci_fail(DCI_ERR_LIMIT, "%s: %zu x %zu elements are more than memory can address", what, n, dim);
        memset(out, 0, sizeof *out);
        out->owned = dci_alloc(context, bytes, 1);
        if (out->owned == NULL)
                return bench_fail_about(what, DCI_ERR_MEMORY);
        out->owned_bytes = bytes;
        out->context = context;
        out->dtype = dtype;
        out->n = n;
        out->dim = dim;
        out->data = out->owned;
        return DCI_OK;
}

dci_status bench_ids_alloc(dci_context *context, const char *what, size_t n, size_t width, bench_ids *out)
{
        size_t count;
        if (n == 0 || width == 0)
                return dci_fail(DCI_ERR_FORMAT, "%s: holds no ids (%zu x %zu)", what, n, width);
        if (!dci_mul(n, width, &count))
                return dci_fail(DCI_ERR_LIMIT, "%s: %zu x %zu ids are more than memory can address", what, n, width);
        memset(out, 0, sizeof *out);
        out->data = dci_alloc(context, count, sizeof *out->data);
        if (out->data == NULL)
                return bench_fail_about(what, DCI_ERR_MEMORY);
        out->context = context;
        out->n = n;
        out->width = width;
        return DCI_OK;
}

void bench_rows_free(bench_rows *rows)
{
        dci_free(rows->context, rows->owned, rows->owned_bytes, 1);
        dci_npy_free(&rows->npy);
        memset(rows, 0, sizeof *rows);
}

void bench_ids_free(bench_ids *ids)
{
        dci_free(ids->context, ids->data, ids->n * ids->width, sizeof *ids->data);
        memset(ids, 0, sizeof *ids);
}

bench_rows bench_rows_view(const bench_rows *rows, size_t n)
{
        bench_rows view;
        memset(&view, 0, sizeof view);
        view.dtype = rows->dtype;
        view.n = n;
        view.dim = rows->dim;
        view.data = rows->data;
        return view;
}

static dci_dtype dtype_of(dci_npy_type type)
{
        switch (type) {
        case DCI_NPY_F32:
                return DCI_F32;
        case DCI_NPY_F16:
                return DCI_F16;
        case DCI_NPY_BF16:
                return DCI_BF16;
        default:
                return 0;
        }
}

dci_status bench_rows_from_npy(const char *path, dci_npy *npy, size_t limit, bench_rows *out)
{
        dci_status status = DCI_OK;
        if (npy->n_dims != 2)
                status = dci_fail(DCI_ERR_FORMAT, "%s: rows need 2 dimensions, not %zu", path, npy->n_dims);
        else if (dtype_of(npy->type) == 0)
                status = dci_fail(DCI_ERR_FORMAT,
                                  "%s: holds integers; rows are float32, float16 or uint16 (bfloat16 bits)", path);
        else if (npy->shape[0] == 0 || npy->shape[1] == 0 || npy->shape[1] > DCI_MAX_DIM)
                status =
                        dci_fail(DCI_ERR_FORMAT, "%s: %zu rows of %zu elements; at least one row of 1 to %zu is needed",
                                 path, npy->shape[0], npy->shape[1], DCI_MAX_DIM);
        if (status != DCI_OK) {
                dci_npy_free(npy);
                return status;
        }
        memset(out, 0, sizeof *out);
        out->dtype = dtype_of(npy->type);
        out->n = npy->shape[0] < limit ? npy->shape[0] : limit;
        out->dim = npy->shape[1];
        out->data = npy->data;
        out->context = npy->context;
        out->npy = *npy;
        memset(npy, 0, sizeof *npy);
        return DCI_OK;
}

dci_status bench_ids_from_npy(const char *path, dci_npy *npy, size_t limit, bench_ids *out)
{
        dci_status status;
        if (npy->n_dims != 2)
                status = dci_fail(DCI_ERR_FORMAT, "%s: ids need 2 dimensions, not %zu", path, npy->n_dims);
        else if (npy->type != DCI_NPY_I32 && npy->type != DCI_NPY_I64)
                status = dci_fail(DCI_ERR_FORMAT, "%s: ids are int32 or int64, this file holds neither", path);
        else
                status = bench_ids_alloc(npy->context, path, npy->shape[0] < limit ? npy->shape[0] : limit,
                                         npy->shape[1], out);
        if (status == DCI_OK) {
                size_t count = out->n * out->width;
                for (size_t i = 0; i < count; i++)
                        out->data[i] = npy->type == DCI_NPY_I64 ? ((const int64_t *)npy->data)[i]
                                                                : ((const int32_t *)npy->data)[i];
        }
        dci_npy_free(npy);
        return status;
}

void bench_row_to_double(const bench_rows *rows, size_t i, double *out)
{
        size_t dim = rows->dim;
        if (rows->dtype == DCI_F32) {
                const float *row = (const float *)rows->data + i * dim;
                for (size_t j = 0; j < dim; j++)
                        out[j] = row[j];
                return;
        }
        const uint16_t *row = (const uint16_t *)rows->data + i * dim;
        for (size_t j = 0; j < dim; j++)
                out[j] = rows->dtype == DCI_F16 ? dci_f16_to_float(row[j]) : dci_bf16_to_float(row[j]);
}

dci_status bench_rows_convert(dci_context *context, const char *what, dci_dtype dtype, bench_rows *rows)
{
        bench_rows converted = {0};
        if (dtype == rows->dtype)
                return DCI_OK;
        double *row = dci_alloc(context, rows->dim, sizeof *row);
        if (row == NULL)
                return bench_fail_about(what, DCI_ERR_MEMORY);
        dci_status status = bench_rows_alloc(context, what, dtype, rows->n, rows->dim, &converted);
        if (status != DCI_OK || converted.owned == NULL) {
                dci_free(context, row, rows->dim, sizeof *row);
                return status;
        }
        for (size_t i = 0; i < rows->n; i++) {
                bench_row_to_double(rows, i, row);
                for (size_t j = 0; j < rows->dim; j++) {
                        const float value = (float)row[j];
                        const size_t at = i * rows->dim + j;
                        if (dtype == DCI_F32)
                                ((float *)converted.owned)[at] = value;
                        else
                                ((uint16_t *)converted.owned)[at] =
                                        dtype == DCI_F16 ? dci_float_to_f16(value) : dci_float_to_bf16(value);
                }
        }
        dci_free(context, row, rows->dim, sizeof *row);
        bench_rows_free(rows);
        *rows = converted;
        return DCI_OK;
}
