/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The MIPS lift: one more coordinate puts every key on a sphere of radius c, where near means large inner product. */
#include "core/internal.h"

#include <string.h>

#include "dci/transform.h"
#include "transform/transform_internal.h"

/* No key is longer, and longer lifts could not be stored in an index. */
#define MAX_C_SQUARED TRANSFORM_MAX_NORM2

typedef struct mips_lift {
        double c, c_squared;
        int32_t form;
} mips_lift;

dci_status dci_mips_init(dci_mips *mips, size_t struct_size)
{
        return dci_struct_init("dci_mips", mips, struct_size, sizeof *mips);
}

static dci_status check_mips(const dci_context *context, const dci_mips *mips)
{
        if (context == NULL)
                return dci_fail(DCI_ERR_INVALID, "context is NULL");
        if (mips == NULL)
                return dci_fail(DCI_ERR_INVALID, "mips is NULL");
        DCI_TRY(dci_check_struct_size("dci_mips", mips, mips->struct_size, sizeof *mips));
        if (!(mips->c_squared >= 0 && mips->c_squared <= MAX_C_SQUARED))
                return dci_fail(DCI_ERR_INVALID,
                                "c_squared is %.9g, allowed are 0 to %.9g: only dci_mips_fit changes it",
                                mips->c_squared, MAX_C_SQUARED);
        return DCI_OK;
}

dci_status dci_mips_fit(dci_context *context, dci_mips *mips, size_t n, size_t dim, dci_dtype dtype, const void *keys,
                        size_t ld, int32_t *out_grew)
{
        size_t n_bytes = 0;
        DCI_TRY(check_mips(context, mips));
        transform_rows rows = {context->kernels, "keys", "key", keys, n, dim, ld, dtype};
        DCI_TRY(dci_transform_check_input(&rows, &n_bytes));

        /* A key that is surely no longer than c or the longest so far changes nothing. Almost all keys are such, so one
         * thread reads them at the speed of the float kernel. */
        double longest = mips->c_squared;
        for (size_t row = 0; row < n; row++) {
                double norm2 = 0;
                if (dci_transform_surely_within(&rows, row, longest))
                        continue;
                DCI_TRY(dci_transform_check_row(&rows, row, &norm2));
                if (norm2 > longest)
                        longest = norm2;
        }

        double c_squared = mips->c_squared;
        if (c_squared > 0)
                while (c_squared < longest)
                        c_squared = c_squared > MAX_C_SQUARED / 2 ? MAX_C_SQUARED : 2 * c_squared;
        else if (n > 0) /* for zero keys, a c whose square is still a normal f32, as lifted rows are f32 */
                c_squared = longest > 0 ? longest : (double)FLT_MIN;
        if (out_grew != NULL)
                *out_grew = mips->c_squared > 0 && mips->c_squared < c_squared;
        mips->c_squared = c_squared;
        return DCI_OK;
}

static void write_key(const transform_job *job, size_t row)
{
        const mips_lift *lift = job->arg;
        const transform_rows *keys = &job->in;
        float *out = transform_out(job, row);
        /* Before the key itself is overwritten. Not below 0: the check compared the same sum with c^2. */
        double rest = lift->c_squared - dci_transform_norm2(keys, row);
        if (lift->form == DCI_MIPS_SCALED) {
                dci_transform_scale(keys, row, 1 / lift->c, out);
                out[keys->dim] = (float)sqrt(rest / lift->c_squared);
        } else {
                if (job->out != keys->data)
                        memcpy(out, transform_row(keys, row), keys->dim * sizeof *out);
                out[keys->dim] = (float)sqrt(rest);
        }
}

static void write_query(const transform_job *job, size_t row)
{
        const mips_lift *lift = job->arg;
        float *out = transform_out(job, row);
        double norm2 = dci_transform_norm2(&job->in, row);
        double length = lift->form == DCI_MIPS_SCALED ? 1 : lift->c;
        dci_transform_scale(&job->in, row, norm2 > 0 ? length / sqrt(norm2) : 0, out);
        out[job->in.dim] = 0;
}

/* Refuses rows whose squared norm exceeds `limit` or the library's own. */
static dci_status check_rows(const transform_rows *rows, double limit)
{
        for (size_t row = 0; row < rows->n; row++) {
                double norm2 = 0;
                if (dci_transform_surely_within(rows, row, limit))
                        continue;
                DCI_TRY(dci_transform_check_row(rows, row, &norm2));
                if (norm2 > limit)
                        return dci_fail(DCI_ERR_NUMBER,
                                        "%s %zu has squared norm %.17g, c^2 is %.17g: call dci_mips_fit first",
                                        rows->item, row, norm2, limit);
        }
        return DCI_OK;
}

static dci_status lift_rows(dci_context *context, const dci_mips *mips, int32_t form, double limit, transform_job *job)
{
        if (form != DCI_MIPS_SCALED && form != DCI_MIPS_UNSCALED)
                return dci_fail(DCI_ERR_INVALID, "unknown form %d", (int)form);
        job->in.kernels = context->kernels;
        job->in.dtype = DCI_F32;
        job->columns_out = job->in.dim + 1; /* dim, unchecked so far, may wrap this to 0: then dim itself is refused */
        DCI_TRY(dci_transform_check_job(job));
        if (mips->c_squared == 0 && job->in.n > 0)
                return dci_fail(DCI_ERR_INVALID, "c^2 is 0 and there are %zu %s to lift: call dci_mips_fit first",
                                job->in.n, job->in.array);
        DCI_TRY(check_rows(&job->in, limit));
        mips_lift lift = {sqrt(mips->c_squared), mips->c_squared, form};
        job->arg = &lift;
        return dci_transform_write(context, job);
}

dci_status dci_mips_keys(dci_context *context, const dci_mips *mips, int32_t form, size_t n, size_t dim,
                         const float *keys, size_t ld, float *out, size_t ld_out)
{
        DCI_TRY(check_mips(context, mips));
        transform_job job = {
                .in = {.array = "keys", .item = "key", .data = keys, .n = n, .dim = dim, .ld = ld},
                .out_name = "out",
                .out = out,
                .ld_out = ld_out,
                .write = write_key,
        };
        return lift_rows(context, mips, form, mips->c_squared, &job);
}

dci_status dci_mips_queries(dci_context *context, const dci_mips *mips, int32_t form, size_t n, size_t dim,
                            const float *queries, size_t ld, float *out, size_t ld_out)
{
        DCI_TRY(check_mips(context, mips));
        transform_job job = {
                .in = {.array = "queries", .item = "query", .data = queries, .n = n, .dim = dim, .ld = ld},
                .out_name = "out",
                .out = out,
                .ld_out = ld_out,
                .write = write_query,
        };
        return lift_rows(context, mips, form, TRANSFORM_MAX_NORM2, &job);
}

dci_status dci_mips_relift(dci_context *context, const dci_mips *mips, size_t n, size_t dim, float *lifted, size_t ld)
{
        /* The unscaled lift in place reads the key columns and writes the last one only. */
        DCI_TRY(check_mips(context, mips));
        transform_job job = {
                .in = {.array = "lifted", .item = "row", .data = lifted, .n = n, .dim = dim, .ld = ld},
                .out_name = "lifted",
                .out = lifted,
                .ld_out = ld,
                .write = write_key,
        };
        return lift_rows(context, mips, DCI_MIPS_UNSCALED, mips->c_squared, &job);
}
