/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Unit rows: after this, the inner product of two rows is their cosine. */
#include "core/internal.h"

#include "dci/transform.h"
#include "transform/transform_internal.h"

static void write_unit(const transform_job *job, size_t row)
{
        double norm2 = dci_transform_norm2(&job->in, row);
        dci_transform_scale(&job->in, row, norm2 > 0 ? 1 / sqrt(norm2) : 0, transform_out(job, row));
}

static dci_status check_rows(const transform_rows *rows, int32_t zero_rows)
{
        for (size_t row = 0; row < rows->n; row++) {
                double norm2 = 0;
                if (dci_transform_surely_within(rows, row, TRANSFORM_MAX_NORM2))
                        continue;
                DCI_TRY(dci_transform_check_row(rows, row, &norm2));
                if (norm2 == 0 && zero_rows == DCI_ZERO_REFUSE)
                        return dci_fail(DCI_ERR_NUMBER,
                                        "row %zu is zero and has no direction; DCI_ZERO_KEEP keeps such rows", row);
        }
        return DCI_OK;
}

dci_status dci_cosine_transform(dci_context *context, size_t n, size_t dim, dci_dtype dtype, const void *rows,
                                size_t ld, int32_t zero_rows, void *out_rows, size_t ld_out)
{
        if (context == NULL)
                return dci_fail(DCI_ERR_INVALID, "context is NULL");
        if (zero_rows != DCI_ZERO_REFUSE && zero_rows != DCI_ZERO_KEEP)
                return dci_fail(DCI_ERR_INVALID, "unknown zero_rows %d", (int)zero_rows);
        transform_job job = {
                .in = {context->kernels, "rows", "row", rows, n, dim, ld, dtype},
                .out_name = "out_rows",
                .out = out_rows,
                .ld_out = ld_out,
                .columns_out = dim,
                .write = write_unit,
        };
        DCI_TRY(dci_transform_check_job(&job));
        DCI_TRY(check_rows(&job.in, zero_rows));
        return dci_transform_write(context, &job);
}
