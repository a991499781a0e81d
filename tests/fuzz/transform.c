/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Unit rows and the MIPS lift, of any numbers, in place and into others, in arrays of their exact size between inaccessible pages. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "dci/transform.h"
#include "simd/kernels.h"
#include "tests/fuzz/fuzz.h"
#include "tests/guard.h"

enum { MAX_DIM = 80, MAX_ROWS = 12 };

typedef struct rows {
        size_t n, dim, ld;
        dci_dtype dtype;
        bool good; /* all can be scored */
        float wide[MAX_ROWS * MAX_DIM];
        unsigned char narrow[MAX_ROWS * MAX_DIM * sizeof(float)];
} rows;

static void draw(fuzz_bytes *from, rows *r)
{
        r->n = fuzz_below(from, MAX_ROWS + 1);
        r->dim = 1 + fuzz_below(from, MAX_DIM);
        r->ld = r->dim + fuzz_below(from, 4);
        r->good = true;
        const float scale = fuzz_one_in(from, 3) ? fuzz_odd_float(from) : 1.0f;
        fuzz_stir(from);
        for (size_t i = 0; i < r->n * r->dim; i++)
                r->wide[i] = (float)fuzz_normal(from) * scale;
        for (size_t i = fuzz_below(from, 8); r->n > 0 && i > 0; i--)
                fuzz_put_odd(from, r->n * r->dim, r->wide);
        dci_kernels_scalar.narrow[r->dtype - 1](r->wide, r->n * r->dim, r->narrow);
        dci_kernels_scalar.to_f32[r->dtype - 1](r->narrow, r->n * r->dim, r->wide);
        for (size_t i = 0; i < r->n; i++) {
                double norm = 0.0;
                for (size_t j = 0; j < r->dim; j++)
                        norm += (double)r->wide[i * r->dim + j] * (double)r->wide[i * r->dim + j];
                r->good = r->good && norm <= (double)FLT_MAX / 8.0 * 1.0001;
        }
}

static double length(const float *row, size_t dim)
{
        double sum = 0.0;
        for (size_t j = 0; j < dim; j++)
                sum += (double)row[j] * (double)row[j];
        return sqrt(sum);
}

static void unit_rows(fuzz_bytes *from, dci_context *context, rows *r)
{
        const size_t es = dci_dtype_size(r->dtype);
        const int32_t zero_rows = (int32_t)fuzz_below(from, 2);
        const bool in_place = fuzz_one_in(from, 2);
        const void *in = guard_rows(r->narrow, r->n, r->dim, r->ld, es);
        void *out = in_place ? guard_copy(in, guard_bytes(r->n, r->dim, r->ld, es))
                             : guard_out(guard_bytes(r->n, r->dim, r->ld, es));
        if (!fuzz_worked(dci_cosine_transform(context, r->n, r->dim, r->dtype, in_place ? out : in, r->ld, zero_rows,
                                              out, r->ld)))
                return;
        ck_assert(r->good);
        guard_gaps(out, r->n, r->dim, r->ld, es, "unit rows");
        for (size_t i = 0; i < r->n; i++) {
                float unit[MAX_DIM];
                dci_kernels_scalar.to_f32[r->dtype - 1]((const char *)out + i * r->ld * es, r->dim, unit);
                const double before = length(r->wide + i * r->dim, r->dim), after = length(unit, r->dim);
                const double slack = r->dtype == DCI_F32 ? 5e-7 : r->dtype == DCI_F16 ? 2e-3 : 1e-2;
                ck_assert_msg(before == 0.0 ? after == 0.0 && zero_rows == DCI_ZERO_KEEP : fabs(after - 1.0) <= slack,
                              "row %zu of length %g gets length %.9g", i, before, after);
        }
}

/* Lifts have the length c, as far as numbers near the smallest ones can say. */
static void check_lift(const dci_mips *mips, int32_t form, const rows *r, const float *lifted, size_t ld)
{
        const double c2 = mips->c_squared, scale = form == DCI_MIPS_SCALED ? 1.0 : c2;
        for (size_t i = 0; i < r->n; i++) {
                const double whole = length(lifted + i * ld, r->dim + 1);
                const double rounding = 1e-5 + 1e-35 / sqrt(scale);
                ck_assert_msg(fabs(whole / sqrt(scale) - 1.0) <= rounding, "row %zu: lifted to length %.9g, c is %.9g",
                              i, whole, sqrt(scale));
        }
}

static void lift(fuzz_bytes *from, dci_context *context, rows *r)
{
        dci_mips mips;
        int32_t grew;
        const int32_t form = (int32_t)fuzz_below(from, 2);
        ck_ok(dci_mips_init(&mips, sizeof mips));
        const size_t steps = 1 + fuzz_below(from, 3);
        for (size_t step = 0; step < steps; step++) {
                draw(from, r);
                const size_t out_ld = r->dim + 1 + fuzz_below(from, 3);
                const void *keys = guard_rows(r->narrow, r->n, r->dim, r->ld, sizeof(float));
                const bool fitted =
                        fuzz_worked(dci_mips_fit(context, &mips, r->n, r->dim, DCI_F32, keys, r->ld, &grew));
                ck_assert(!fitted || r->good);
                float *out = guard_out(guard_bytes(r->n, r->dim + 1, out_ld, sizeof *out));
                if (fuzz_worked(dci_mips_keys(context, &mips, form, r->n, r->dim, keys, r->ld, out, out_ld))) {
                        check_lift(&mips, form, r, out, out_ld);
                        guard_gaps(out, r->n, r->dim + 1, out_ld, sizeof *out, "lifted keys");
                        if (form == DCI_MIPS_UNSCALED) {
                                float *again = guard_copy(out, guard_bytes(r->n, r->dim + 1, out_ld, sizeof *out));
                                ck_ok(dci_mips_relift(context, &mips, r->n, r->dim, again, out_ld));
                                ck_assert(memcmp(again, out, guard_bytes(r->n, r->dim + 1, out_ld, sizeof *out)) == 0);
                        }
                }
                float *asked = guard_out(guard_bytes(r->n, r->dim + 1, out_ld, sizeof *asked));
                if (fuzz_worked(dci_mips_queries(context, &mips, form, r->n, r->dim, keys, r->ld, asked, out_ld)))
                        guard_gaps(asked, r->n, r->dim + 1, out_ld, sizeof *asked, "lifted queries");
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static rows r;
        fuzz_bytes from;
        fuzz_from_bytes(&from, data, size);
        guard_at_begin(fuzz_one_in(&from, 2));
        dci_context *context = fuzz_limited_context();
        r.dtype = 1 + (dci_dtype)fuzz_below(&from, 3);
        if (fuzz_one_in(&from, 2)) {
                draw(&from, &r);
                unit_rows(&from, context, &r);
        } else {
                r.dtype = DCI_F32;
                lift(&from, context, &r);
        }
        guard_release();
        fuzz_limited_end(context);
        return 0;
}

void fuzz_seeds(void (*put)(const void *data, size_t size))
{
        fuzz_random_seeds(put, 60, 60);
}
