/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What both transforms share: checks of rows and arrays, norms in double, one parallel pass that writes. */
#include "core/internal.h"

#include <math.h>

#include "simd/convert.h"
#include "transform/transform_internal.h"

dci_status dci_transform_check_span(const char *name, const void *data, size_t n, size_t columns, size_t ld,
                                    size_t element_size, size_t *out_bytes)
{
        size_t count = 0, bytes = 0;
        if (data == NULL && n > 0)
                return dci_fail(DCI_ERR_INVALID, "%s is NULL and n is %zu", name, n);
        if (ld < columns)
                return dci_fail(DCI_ERR_INVALID, "ld of %s is %zu, a row has %zu columns", name, ld, columns);
        bool fits = n == 0 || (dci_mul(n - 1, ld, &count) && dci_add(count, columns, &count) &&
                               dci_mul(count, element_size, &bytes) && bytes <= PTRDIFF_MAX);
        if (!fits)
                return dci_fail(DCI_ERR_LIMIT, "%s: %zu rows, %zu elements apart, exceed the address space", name, n,
                                ld);
        *out_bytes = bytes;
        return dci_check_aligned(name, data, element_size);
}

dci_status dci_transform_check_input(const transform_rows *rows, size_t *out_bytes)
{
        if (rows->dim == 0)
                return dci_fail(DCI_ERR_INVALID, "dim is 0, allowed are 1 to %zu", DCI_MAX_DIM);
        if (rows->dim > DCI_MAX_DIM)
                return dci_fail(DCI_ERR_LIMIT, "dim is %zu, allowed are 1 to %zu", rows->dim, DCI_MAX_DIM);
        size_t element_size = dci_dtype_size(rows->dtype);
        if (element_size == 0)
                return dci_fail(DCI_ERR_INVALID, "unknown dtype %d", (int)rows->dtype);
        if (rows->dtype > DCI_BF16)
                return dci_fail(DCI_ERR_UNSUPPORTED, "dtype is %s, transformed rows are f32, f16 or bf16",
                                dci_dtype_name(rows->dtype));
        return dci_transform_check_span(rows->array, rows->data, rows->n, rows->dim, rows->ld, element_size, out_bytes);
}

dci_status dci_transform_check_job(const transform_job *job)
{
        const transform_rows *in = &job->in;
        size_t in_bytes = 0, out_bytes = 0;
        DCI_TRY(dci_transform_check_input(in, &in_bytes));
        DCI_TRY(dci_transform_check_span(job->out_name, job->out, in->n, job->columns_out, job->ld_out,
                                         dci_dtype_size(in->dtype), &out_bytes));
        if (job->out == in->data && job->ld_out == in->ld)
                return DCI_OK;
        /* Unsigned differences wrap around to huge values when the other array begins first. */
        uintptr_t from = (uintptr_t)in->data, to = (uintptr_t)job->out;
        if (to - from < in_bytes || from - to < out_bytes)
                return dci_fail(DCI_ERR_INVALID,
                                "%s overlaps %s at another address or ld (%td bytes apart, ld %zu and %zu)",
                                job->out_name, in->array, (ptrdiff_t)(to - from), job->ld_out, in->ld);
        return DCI_OK;
}

double dci_transform_norm2(const transform_rows *rows, size_t row)
{
        const unsigned char *elements = transform_row(rows, row);
        size_t element_size = dci_dtype_size(rows->dtype);
        double sum[TRANSFORM_SUMS] = {0};
        float block[TRANSFORM_BLOCK];
        for (size_t p = 0; p < rows->dim; p += TRANSFORM_BLOCK) {
                size_t n = rows->dim - p < TRANSFORM_BLOCK ? rows->dim - p : TRANSFORM_BLOCK;
                rows->kernels->to_f32[rows->dtype - 1](elements + p * element_size, n, block);
                for (; n % TRANSFORM_SUMS != 0; n++)
                        block[n] = 0;
                for (size_t i = 0; i < n; i += TRANSFORM_SUMS)
                        UNROLL for (size_t l = 0; l < TRANSFORM_SUMS; l++)
                        {
                                double x = block[i + l];
                                sum[l] += x * x;
                        }
        }
        for (size_t half = TRANSFORM_SUMS / 2; half > 0; half /= 2)
                for (size_t l = 0; l < half; l++)
                        sum[l] += sum[l + half];
        return sum[0];
}

/* The margin is twice the error of the scalar kernel, (dim / 8 + 6) 2^-24; all that underflows is below 2^-130. */
bool dci_transform_surely_within(const transform_rows *rows, size_t row, double limit)
{
        float norm2 = rows->kernels->norm2[rows->dtype - 1](transform_row(rows, row), rows->dim);
        if (limit > TRANSFORM_MAX_NORM2)
                limit = TRANSFORM_MAX_NORM2;
        double margin = ((double)rows->dim / 4 + 16) * 0x1p-24;
        return norm2 >= 0x1p-100f && (double)norm2 <= (1 - margin) * limit;
}

dci_status dci_transform_check_row(const transform_rows *rows, size_t row, double *out_norm2)
{
        double norm2 = dci_transform_norm2(rows, row);
        if (!isfinite(norm2))
                return dci_fail(DCI_ERR_NUMBER, "%s %zu holds NaN or infinity", rows->item, row);
        if (norm2 > TRANSFORM_MAX_NORM2)
                return dci_fail(DCI_ERR_NUMBER, "%s %zu has squared norm %.9g, allowed are at most %.9g", rows->item,
                                row, norm2, TRANSFORM_MAX_NORM2);
        *out_norm2 = norm2;
        return DCI_OK;
}

void dci_transform_scale(const transform_rows *rows, size_t row, double factor, void *out)
{
        const unsigned char *elements = transform_row(rows, row);
        unsigned char *scaled = out;
        size_t element_size = dci_dtype_size(rows->dtype);
        float block[TRANSFORM_BLOCK];
        for (size_t p = 0; p < rows->dim; p += TRANSFORM_BLOCK) {
                size_t n = rows->dim - p < TRANSFORM_BLOCK ? rows->dim - p : TRANSFORM_BLOCK;
                rows->kernels->to_f32[rows->dtype - 1](elements + p * element_size, n, block);
                for (size_t i = 0; i < n; i++)
                        block[i] = (float)(factor * (double)block[i]);
                rows->kernels->narrow[rows->dtype - 1](block, n, scaled + p * element_size);
        }
}

static size_t rows_per_task(const transform_rows *rows)
{
        return rows->dim < TRANSFORM_TASK ? TRANSFORM_TASK / rows->dim : 1;
}

static void write_task(void *arg, size_t task, size_t worker)
{
        const transform_job *job = arg;
        size_t n_rows = rows_per_task(&job->in);
        size_t first = task * n_rows;
        size_t end = job->in.n - first < n_rows ? job->in.n : first + n_rows;
        (void)worker;
        for (size_t row = first; row < end; row++)
                job->write(job, row);
}

dci_status dci_transform_write(dci_context *context, transform_job *job)
{
        const transform_rows *in = &job->in;
        size_t n_rows = rows_per_task(in);
        dci_region region = {.context = context, .fn = write_task, .arg = job};
        region.n_tasks = in->n / n_rows + (in->n % n_rows != 0);
        region.n_workers = dci_workers_for(context, region.n_tasks, in->n * in->dim);
        return dci_parallel(&region);
}
