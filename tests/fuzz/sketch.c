/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Sketches of rows and queries of any numbers, finite or not, next to the rows as they were. Bad numbers are refused; estimates lie within the bound
 * that is certain, a search returns the best estimates, and what is decoded is finite.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "dci/sketch.h"
#include "simd/kernels.h"
#include "tests/fuzz/fuzz.h"
#include "tests/guard.h"

enum { MAX_DIM = 140, MAX_FIT_DIM = 36 /* it costs the cube */, MAX_ROWS = 400, MAX_BATCH = 70, MAX_QUERIES = 10 };

typedef struct life {
        fuzz_bytes *from;
        dci_sketch *sketch;
        dci_sketch_config config;
        size_t n;
        bool tame; /* no row or query was odd: lengths between some 1e-3 and 1e3 */
        float rows[MAX_ROWS * MAX_DIM];
        float drawn[MAX_BATCH * MAX_DIM];
} life;

/* n rows in guarded memory, and the same widened in l->drawn; false if some cannot be taken. */
static bool draw(life *l, dci_dtype dtype, size_t n, size_t *ld, const void **out)
{
        fuzz_bytes *from = l->from;
        const size_t dim = l->config.dim, es = dci_dtype_size(dtype);
        static unsigned char narrow[MAX_BATCH * MAX_DIM * sizeof(float)];
        const bool odd = fuzz_one_in(from, 4);
        const float scale = odd && fuzz_one_in(from, 2) ? fuzz_odd_float(from) : 1.0f,
                    shift = fuzz_one_in(from, 3) ? 4.0f : 0.0f;
        fuzz_stir(from);
        for (size_t i = 0; i < n * dim; i++)
                l->drawn[i] = ((float)fuzz_normal(from) + (i % dim < 3 ? shift : 0.0f)) * scale;
        for (size_t i = fuzz_below(from, 12); odd && n > 0 && i > 0; i--)
                fuzz_put_odd(from, n * dim, l->drawn);
        l->tame = l->tame && !odd;
        dci_kernels_scalar.narrow[dtype - 1](l->drawn, n * dim, narrow);
        dci_kernels_scalar.to_f32[dtype - 1](narrow, n * dim, l->drawn);
        bool good = true;
        for (size_t i = 0; i < n; i++) {
                double norm = 0.0;
                for (size_t j = 0; j < dim; j++)
                        norm += (double)l->drawn[i * dim + j] * (double)l->drawn[i * dim + j];
                good = good && norm <= (double)FLT_MAX / 8.0 * 1.0001;
        }
        *ld = dim + fuzz_below(from, 3);
        *out = guard_rows(narrow, n, dim, *ld, es);
        return good;
}

static void append(life *l)
{
        const void *rows;
        size_t ld, n = fuzz_below(l->from, MAX_BATCH);
        n = n > MAX_ROWS - l->n ? MAX_ROWS - l->n : n;
        const bool good = draw(l, l->config.dtype, n, &ld, &rows);
        if (fuzz_worked(dci_sketch_append(l->sketch, n, rows, ld))) {
                ck_assert_msg(good, "rows that cannot be scored were taken");
                memcpy(l->rows + l->n * l->config.dim, l->drawn, n * l->config.dim * sizeof *l->rows);
                l->n += n;
        }
}

static void fit(life *l)
{
        const void *rows, *queries;
        size_t ld, query_ld;
        const size_t n = fuzz_below(l->from, MAX_BATCH), n_queries = fuzz_below(l->from, MAX_QUERIES);
        bool good = draw(l, l->config.dtype, n, &ld, &rows);
        good = draw(l, l->config.query_dtype, n_queries, &query_ld, &queries) && good;
        if (fuzz_worked(dci_sketch_fit(l->sketch, n, rows, ld, n_queries, queries, query_ld)))
                ck_assert(good && n > 0 && n_queries > 0);
}

/* The lists are the best of all estimates, which the same call without them gives. */
static void check_search(life *l, size_t n_queries, const void *queries, size_t ld, const float *scores)
{
        const size_t k = 1 + fuzz_below(l->from, 30);
        int64_t *ids = guard_out(n_queries * k * sizeof *ids);
        float *best = fuzz_one_in(l->from, 4) ? NULL : guard_out(n_queries * k * sizeof *best);
        ck_ok(dci_sketch_search(l->sketch, n_queries, queries, ld, k, ids, best));
        for (size_t q = 0; q < n_queries; q++) {
                const float *of = scores + q * l->n;
                for (size_t i = 0; i < k; i++) {
                        const int64_t id = ids[q * k + i];
                        if (i >= l->n) {
                                ck_assert(id == -1 && (best == NULL || isnan(best[q * k + i])));
                                continue;
                        }
                        ck_assert(id >= 0 && (size_t)id < l->n);
                        ck_assert(best == NULL || best[q * k + i] == of[id]);
                        size_t before = 0; /* rows that come before it */
                        for (size_t j = 0; j < l->n; j++)
                                before += of[j] > of[id] || (of[j] == of[id] && j < (size_t)id);
                        ck_assert_msg(before == i, "row %lld is place %zu of the list, %zu of all", (long long)id, i,
                                      before);
                }
        }
}

static void look(life *l)
{
        const void *queries;
        size_t ld;
        const size_t n_queries = 1 + fuzz_below(l->from, MAX_QUERIES - 1), dim = l->config.dim;
        const bool good = draw(l, l->config.query_dtype, n_queries, &ld, &queries);
        float *scores = guard_out(n_queries * l->n * sizeof *scores),
              *bounds = guard_out(n_queries * l->n * sizeof *bounds);
        const dci_status status = dci_sketch_score(l->sketch, n_queries, queries, ld, 0, l->n, scores, l->n);
        if (!fuzz_worked(status)) {
                ck_assert(status == DCI_ERR_NUMBER);
                return;
        }
        ck_assert(good);
        ck_ok(dci_sketch_bound(l->sketch, n_queries, queries, ld, 0, l->n, 1.0, bounds, l->n));
        for (size_t q = 0; q < n_queries; q++)
                for (size_t i = 0; i < l->n; i++) {
                        double truth = 0.0;
                        for (size_t j = 0; j < dim; j++)
                                truth += (double)l->rows[i * dim + j] * (double)l->drawn[q * dim + j];
                        const double estimate = (double)scores[q * l->n + i], bound = (double)bounds[q * l->n + i];
                        if (!isfinite(estimate) || !(bound >= 0.0) ||
                            (l->tame && !(fabs(estimate - truth) <= bound + (double)FLT_MIN)))
                                ck_abort_msg("row %zu, query %zu: estimate %.9g, product %.9g, bound %.9g", i, q,
                                             estimate, truth, bound);
                }
        check_search(l, n_queries, queries, ld, scores);
        /* A part of the rows says the same. */
        const size_t first = fuzz_below(l->from, l->n + 1), n = fuzz_below(l->from, l->n - first + 1);
        const size_t out_ld = n + fuzz_below(l->from, 3);
        float *part = guard_out(guard_bytes(n_queries, n, out_ld, sizeof *part));
        ck_ok(dci_sketch_score(l->sketch, n_queries, queries, ld, first, n, part, out_ld));
        for (size_t q = 0; q < n_queries; q++)
                ck_assert(n == 0 || memcmp(part + q * out_ld, scores + q * l->n + first, n * sizeof *part) == 0);
        guard_gaps(part, n_queries, n, out_ld, sizeof *part, "scores");
}

static void decode(life *l)
{
        int64_t numbers[20];
        const size_t n = l->n == 0 ? 0 : fuzz_below(l->from, 20), dim = l->config.dim,
                     ld = dim + fuzz_below(l->from, 2);
        for (size_t i = 0; i < n; i++)
                numbers[i] = (int64_t)fuzz_below(l->from, l->n);
        float *out = guard_out(guard_bytes(n, dim, ld, sizeof *out));
        ck_ok(dci_sketch_decode(l->sketch, n, guard_in(numbers, n * sizeof numbers[0]), out, ld));
        for (size_t i = 0; i < n; i++)
                for (size_t j = 0; j < dim; j++)
                        ck_assert_msg(isfinite(out[i * ld + j]), "row %lld is decoded as %g", (long long)numbers[i],
                                      (double)out[i * ld + j]);
        guard_gaps(out, n, dim, ld, sizeof *out, "decoded rows");
        const int64_t beyond = (int64_t)l->n;
        ck_assert(!fuzz_worked(dci_sketch_decode(l->sketch, 1, &beyond, out, ld)));
}

static bool begin(life *l, dci_context *context)
{
        static const int32_t bits[] = {1, 2, 3, 4, 8};
        fuzz_bytes *from = l->from;
        dci_sketch_config *c = &l->config;
        ck_ok(dci_sketch_config_init(c, sizeof *c));
        c->dim = 1 + fuzz_below(from, fuzz_one_in(from, 16) ? MAX_DIM : 50);
        c->dtype = 1 + (int32_t)fuzz_below(from, 3);
        c->query_dtype = 1 + (int32_t)fuzz_below(from, 3);
        c->bits = bits[fuzz_below(from, 5)];
        c->transform = 1 + (int32_t)fuzz_below(from, 2);
        c->centre = 1 + (int32_t)fuzz_below(from, 3);
        c->seed = fuzz_next(from);
        if (c->centre == DCI_CENTRE_GIVEN) {
                const void *centre;
                size_t ld;
                draw(l, DCI_F32, 1, &ld, &centre);
                c->given_centre = centre;
        }
        return fuzz_worked(dci_sketch_create(context, c, &l->sketch));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static life l;
        fuzz_bytes from;
        fuzz_from_bytes(&from, data, size);
        memset(&l, 0, sizeof l);
        l.from = &from;
        l.tame = true;
        guard_at_begin(fuzz_one_in(&from, 2));
        dci_context *context = fuzz_limited_context();
        bool there = begin(&l, context);
        for (size_t i = 0; there && i < 30 && !fuzz_ended(&from); i++) {
                const size_t what = fuzz_below(&from, 8);
                if (what < 3)
                        append(&l);
                else if (what < 5)
                        look(&l);
                else if (what == 5)
                        decode(&l);
                else if (what == 6 && l.config.dim <= MAX_FIT_DIM)
                        fit(&l);
                else if (fuzz_one_in(&from, 2))
                        fuzz_worked(dci_sketch_reserve(l.sketch, fuzz_odd_size(&from)));
                else if (fuzz_worked(dci_sketch_truncate(l.sketch, l.n / 2)))
                        l.n /= 2;
                ck_assert_uint_eq(dci_sketch_count(l.sketch), l.n);
                guard_release();
        }
        if (there)
                look(&l);
        dci_sketch_destroy(l.sketch);
        guard_release();
        fuzz_limited_end(context);
        return 0;
}

void fuzz_seeds(void (*put)(const void *data, size_t size))
{
        fuzz_random_seeds(put, 60, 80);
}
