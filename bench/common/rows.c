/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/common/dataset.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
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

/* --- numbers of .npy and HDF5 files ---------------------------------------------------------------------------------------------- */

/* Whether x is this float exactly; of 64 bits only what is below the other type's end can be compared. */
#define SAME(type, x, f) ((f) >= -0x1p63f && (f) < 0x1p63f && (type)(f) == (x))

/* An integer as float32, whether that is exact, and as text if not. */
static bool integer_to_f32(dci_npy_type type, const void *data, size_t i, float *out, char text[32])
{
        int64_t x;
        switch (type) {
        case DCI_NPY_BOOL:
                *out = ((const uint8_t *)data)[i] != 0 ? 1.0f : 0.0f;
                return true;
        case DCI_NPY_U8:
                x = ((const uint8_t *)data)[i];
                break;
        case DCI_NPY_I8:
                x = (int64_t)((const int8_t *)data)[i];
                break;
        case DCI_NPY_U16:
                x = ((const uint16_t *)data)[i];
                break;
        case DCI_NPY_I16:
                x = ((const int16_t *)data)[i];
                break;
        case DCI_NPY_U32:
                x = ((const uint32_t *)data)[i];
                break;
        case DCI_NPY_I32:
                x = ((const int32_t *)data)[i];
                break;
        case DCI_NPY_U64: {
                const uint64_t y = ((const uint64_t *)data)[i];
                *out = (float)y;
                snprintf(text, 32, "%llu", (unsigned long long)y);
                return *out < 0x1p64f && (uint64_t)*out == y;
        }
        default:
                x = ((const int64_t *)data)[i];
        }
        *out = (float)x;
        if (SAME(int64_t, x, *out))
                return true;
        snprintf(text, 32, "%lld", (long long)x);
        return false;
}

dci_status bench_numbers_to_f32(const char *path, dci_npy_type type, const void *data, size_t first_row, size_t n,
                                size_t dim, float *out)
{
        for (size_t i = 0; i < n * dim; i++) {
                char text[32] = "";
                if (type != DCI_NPY_F64) {
                        if (!integer_to_f32(type, data, i, &out[i], text))
                                return dci_fail(DCI_ERR_FORMAT,
                                                "%s: row %zu holds %s (%s), which is no float32: save "
                                                "x.astype('float32') to round it",
                                                path, first_row + i / dim, text, dci_npy_type_name(type));
                        continue;
                }
                const double x = ((const double *)data)[i];
                out[i] = (float)x;
                if (isfinite(x) && !isfinite(out[i]))
                        return dci_fail(DCI_ERR_FORMAT, "%s: row %zu holds %g (float64), float32 ends at %g", path,
                                        first_row + i / dim, x, (double)FLT_MAX);
        }
        return DCI_OK;
}

dci_status bench_npy_to_rows(const char *path, bool bfloat16, size_t limit, dci_npy *npy)
{
        if (npy->type == DCI_NPY_F32 || npy->type == DCI_NPY_F16 || (bfloat16 && npy->type == DCI_NPY_U16))
                return DCI_OK;
        const size_t dim = npy->shape[npy->n_dims - 1], n = npy->n_bytes / dci_npy_type_size(npy->type) / dim;
        const size_t count = (n < limit ? n : limit) * dim;
        dci_npy made = *npy;
        made.type = DCI_NPY_F32;
        made.n_bytes = count * sizeof(float); /* at most 4 times what is in memory */
        made.data = dci_alloc(npy->context, count, sizeof(float));
        if (made.data == NULL)
                return bench_fail_about(path, DCI_ERR_MEMORY);
        const dci_status status = bench_numbers_to_f32(path, npy->type, npy->data, 0, count / dim, dim, made.data);
        dci_npy *leaves = status == DCI_OK ? npy : &made;
        dci_free(npy->context, leaves->data, leaves->n_bytes, 1);
        if (status == DCI_OK)
                *npy = made;
        return status;
}

dci_dtype bench_npy_dtype(const dci_npy *npy)
{
        return npy->type == DCI_NPY_F32 ? DCI_F32 : npy->type == DCI_NPY_F16 ? DCI_F16 : DCI_BF16;
}

dci_status bench_rows_from_npy(const char *path, bool bfloat16, dci_npy *npy, size_t limit, bench_rows *out)
{
        const bool bytes = npy->type == DCI_NPY_I8 || npy->type == DCI_NPY_U8; /* they stay as they are */
        dci_status status = DCI_OK;
        if (npy->n_dims != 2)
                status = dci_fail(DCI_ERR_FORMAT, "%s: rows need 2 dimensions, not %zu: save x.reshape(n, dim)", path,
                                  npy->n_dims);
        else if (npy->shape[0] == 0 || npy->shape[1] == 0 || npy->shape[1] > DCI_MAX_DIM)
                status =
                        dci_fail(DCI_ERR_FORMAT, "%s: %zu rows of %zu elements; at least one row of 1 to %zu is needed",
                                 path, npy->shape[0], npy->shape[1], DCI_MAX_DIM);
        else if (bfloat16 && npy->type != DCI_NPY_U16)
                status = dci_fail(DCI_ERR_FORMAT, "%s: holds %s, bits of bfloat16 are uint16", path,
                                  dci_npy_type_name(npy->type));
        else if (!bytes)
                status = bench_npy_to_rows(path, bfloat16, limit, npy);
        if (status != DCI_OK) {
                dci_npy_free(npy);
                return status;
        }
        memset(out, 0, sizeof *out);
        out->dtype = npy->type == DCI_NPY_I8 ? DCI_I8 : npy->type == DCI_NPY_U8 ? DCI_U8 : bench_npy_dtype(npy);
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
        const bool wide = npy->type == DCI_NPY_I64 || npy->type == DCI_NPY_U64;
        dci_status status;
        if (npy->n_dims != 2)
                status = dci_fail(DCI_ERR_FORMAT, "%s: ids need 2 dimensions, not %zu", path, npy->n_dims);
        else if (!wide && npy->type != DCI_NPY_I32 && npy->type != DCI_NPY_U32)
                status = dci_fail(DCI_ERR_FORMAT, "%s: ids are int32 or int64, this file holds %s", path,
                                  dci_npy_type_name(npy->type));
        else
                status = bench_ids_alloc(npy->context, path, npy->shape[0] < limit ? npy->shape[0] : limit,
                                         npy->shape[1], out);
        if (status == DCI_OK) {
                size_t count = out->n * out->width;
                for (size_t i = 0; i < count; i++)
                        if (wide)
                                out->data[i] = ((const int64_t *)npy->data)[i];
                        else
                                out->data[i] = npy->type == DCI_NPY_I32 ? (int64_t)((const int32_t *)npy->data)[i]
                                                                        : (int64_t)((const uint32_t *)npy->data)[i];
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
        if (rows->dtype == DCI_I8 || rows->dtype == DCI_U8) {
                const uint8_t *row = (const uint8_t *)rows->data + i * dim;
                for (size_t j = 0; j < dim; j++)
                        out[j] = rows->dtype == DCI_U8 ? row[j] : (int8_t)row[j];
                return;
        }
        const uint16_t *row = (const uint16_t *)rows->data + i * dim;
        for (size_t j = 0; j < dim; j++)
                out[j] = rows->dtype == DCI_F16 ? dci_f16_to_float(row[j]) : dci_bf16_to_float(row[j]);
}

/* One element; false if the format cannot hold it. */
static bool put_element(dci_dtype dtype, float value, void *to)
{
        const uint16_t half = dtype == DCI_F16 ? dci_float_to_f16(value) : dci_float_to_bf16(value);
        const float least = dtype == DCI_I8 ? -128.0f : 0.0f, most = dtype == DCI_I8 ? 127.0f : 255.0f;
        if (dtype == DCI_I8 || dtype == DCI_U8) {
                const bool fits = value >= least && value <= most && value == (float)(int)value;
                *(uint8_t *)to = fits ? (uint8_t)(int)value : 0;
                return fits;
        }
        if (dtype == DCI_F32)
                memcpy(to, &value, sizeof value);
        else
                memcpy(to, &half, sizeof half);
        return true;
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
        unsigned char *to = converted.owned;
        for (size_t i = 0; i < rows->n && status == DCI_OK; i++) {
                bench_row_to_double(rows, i, row);
                for (size_t j = 0; j < rows->dim && status == DCI_OK; j++, to += dci_dtype_size(dtype))
                        if (!put_element(dtype, (float)row[j], to))
                                status = dci_fail(DCI_ERR_NUMBER,
                                                  "%s: element %zu of row %zu is %g, no integer of dtype %s", what, j,
                                                  i, row[j], dci_dtype_name(dtype));
        }
        dci_free(context, row, rows->dim, sizeof *row);
        if (status != DCI_OK) {
                bench_rows_free(&converted);
                return status;
        }
        bench_rows_free(rows);
        *rows = converted;
        return DCI_OK;
}
