/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Row kernels, conversions, selection and tiles of every level of this machine, against plain loops. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "tests/simd_reference.h"

#include <float.h>
#include <string.h>

#include "simd/cpu.h"

#define MAX_ROWS 40
#define MAX_DIM 4096
#define MAX_HALVES 400000

/* The tables of this machine, scalar first. The level amx shares that of avx512. */
static size_t all_kernels(const dci_kernels *out[6])
{
        dci_isa isas[6];
        size_t n = 0, n_isas = test_isas(isas);
        for (size_t i = 0; i < n_isas; i++) {
                const dci_kernels *kernels = dci_kernels_for(isas[i]);
                if (n == 0 || out[n - 1] != kernels)
                        out[n++] = kernels;
        }
        return n;
}

static const dci_kernels *kernels_of(int level)
{
        const dci_kernels *all[6];
        all_kernels(all);
        return all[level];
}

/* Rows of one format, one element apart so that they start at every alignment, the last one ending at the unmapped page; and
 * queries that do the same. */
typedef struct scene {
        dci_dtype dtype;
        size_t dim, ld_query;
        unsigned char *memory, *query_memory, *out_memory; /* their ends */
        const void *rows[MAX_ROWS];
        const float *queries;
        float wide[MAX_ROWS * MAX_DIM];              /* the rows' values, dim apart */
        float wanted[2][DCI_MANY_QUERIES][MAX_ROWS]; /* without and with fused multiply-add */
} scene;

static scene *new_scene(void)
{
        scene *s = calloc(1, sizeof *s);
        ck_assert_ptr_nonnull(s);
        s->memory = guard(MAX_ROWS * (MAX_DIM + 1) * sizeof(float));
        s->query_memory = guard(DCI_MANY_QUERIES * (MAX_DIM + 1) * sizeof(float));
        s->out_memory = guard(DCI_MANY_QUERIES * (MAX_ROWS + 3) * sizeof(float));
        return s;
}

/* A finite element of mixed magnitude. */
static float put_element(dci_dtype dtype, void *at, dci_rng *rng)
{
        if (dtype == DCI_F32) {
                float value = (float)ldexp(dci_rng_normal(rng), (int)dci_rng_below(rng, 25) - 12);
                memcpy(at, &value, sizeof value);
                return value;
        }
        uint16_t bits = (uint16_t)dci_rng_next(rng);
        if (dtype >= DCI_I8) {
                *(uint8_t *)at = (uint8_t)bits;
                return dtype == DCI_I8 ? (float)(int8_t)bits : (float)(uint8_t)bits;
        }
        if (dtype == DCI_BF16) /* exponents -12 to 12 */
                bits = (uint16_t)((bits & 0x807f) | (115 + dci_rng_below(rng, 25)) << 7);
        else if ((bits & 0x7c00) == 0x7c00) /* no infinity, no NaN */
                bits &= 0xbfff;
        memcpy(at, &bits, sizeof bits);
        return (float)half_value(dtype, bits);
}

static void fill_scene(scene *s, dci_dtype dtype, size_t dim)
{
        const size_t size = dci_dtype_size(dtype), ld = dim + 1;
        dci_rng rng;
        dci_rng_seed(&rng, dim * 4 + (size_t)dtype);
        s->dtype = dtype;
        s->dim = dim;
        s->ld_query = ld;
        unsigned char *rows = last_bytes(s->memory, ((MAX_ROWS - 1) * ld + dim) * size);
        float *queries = last_bytes(s->query_memory, ((DCI_MANY_QUERIES - 1) * ld + dim) * sizeof(float));
        for (size_t r = 0; r < MAX_ROWS; r++) {
                s->rows[r] = rows + r * ld * size;
                for (size_t i = 0; i < dim; i++)
                        s->wide[r * dim + i] = put_element(dtype, rows + (r * ld + i) * size, &rng);
        }
        for (size_t q = 0; q < DCI_MANY_QUERIES; q++)
                for (size_t i = 0; i < dim; i++)
                        put_element(DCI_F32, queries + q * ld + i, &rng);
        s->queries = queries;
}

/* Fills `wanted`, which must itself keep the tolerance that gpu/args/rows.h states. */
static void score_scene(scene *s, int form)
{
        for (size_t q = 0; q < DCI_MANY_QUERIES; q++)
                for (size_t r = 0; r < MAX_ROWS; r++) {
                        const float *query = s->queries + q * s->ld_query, *row = s->wide + r * s->dim;
                        double magnitude, sum = exact(form, query, row, s->dim, &magnitude);
                        for (int fused = 0; fused < 2; fused++) {
                                float score = canonical(form, fused, query, row, s->dim);
                                double tolerance = (double)(s->dim / 16 + 6 + !fused) * 0x1p-24 * magnitude;
                                if (!(fabs(score - sum) <= tolerance))
                                        ck_abort_msg("form %d, dim %zu: %a for %a", form, s->dim, score, sum);
                                s->wanted[fused][q][r] = score;
                        }
                }
}

/* The last n rows against one query, by pointers and by stride: whatever n and the position are, every score is that of the
 * reference. */
static void check_score_rows(const scene *s, const dci_kernels *kernels, int form, size_t n)
{
        const size_t q = n % DCI_MANY_QUERIES, first = MAX_ROWS - n, d = (size_t)s->dtype - 1;
        const float *query = s->queries + q * s->ld_query,
                    *wanted = s->wanted[kernels->isa != DCI_ISA_SCALAR][q] + first;
        float *out = last_bytes(s->out_memory, n * sizeof *out);
        for (int strided = 0; strided < 2; strided++) {
                memset(out, 0xff, n * sizeof *out);
                if (strided)
                        kernels->score_strided[d][form](query, n == 0 ? NULL : s->rows[first],
                                                        (s->dim + 1) * dci_dtype_size(s->dtype), n, s->dim, out);
                else
                        kernels->score_rows[d][form](query, s->rows + first, n, s->dim, out);
                ck_assert_msg(memcmp(out, wanted, n * sizeof *out) == 0,
                              "%s, %s, form %d, dim %zu, %zu rows, strided %d", dci_isa_name(kernels->isa),
                              dci_dtype_name(s->dtype), form, s->dim, n, strided);
        }
}

/* The last n_q queries against the last n rows; what is between the lines of the output stays as it was. */
static void check_score_many(const scene *s, const dci_kernels *kernels, int form, size_t n_q, size_t n)
{
        const size_t ld = n + 3, first = DCI_MANY_QUERIES - n_q, n_out = (n_q - 1) * ld + n;
        float *out = last_bytes(s->out_memory, n_out * sizeof *out);
        bool good = true;
        for (size_t i = 0; i < n_out; i++)
                out[i] = 0x1.234p99f;
        kernels->score_many[s->dtype - 1][form](s->queries + first * s->ld_query, s->ld_query, n_q,
                                                s->rows + MAX_ROWS - n, n, s->dim, out, ld);
        for (size_t q = 0; q < n_q; q++) {
                const float *wanted = s->wanted[kernels->isa != DCI_ISA_SCALAR][first + q] + MAX_ROWS - n;
                good = good && memcmp(out + q * ld, wanted, n * sizeof *out) == 0;
                for (size_t i = n; q + 1 < n_q && i < ld; i++)
                        good = good && out[q * ld + i] == 0x1.234p99f;
        }
        ck_assert_msg(good, "%s, %s, form %d, dim %zu, %zu queries, %zu rows", dci_isa_name(kernels->isa),
                      dci_dtype_name(s->dtype), form, s->dim, n_q, n);
}

static void check_norms(const scene *s, const dci_kernels *kernels)
{
        for (size_t r = 0; r < MAX_ROWS; r++) {
                const float *row = s->wide + r * s->dim;
                float wanted = canonical(DCI_FORM_DOT, kernels->isa != DCI_ISA_SCALAR, row, row, s->dim);
                double magnitude;
                if (s->dtype >= DCI_I8) /* exact, then rounded once */
                        wanted = (float)exact(DCI_FORM_DOT, row, row, s->dim, &magnitude);
                ck_assert_float_eq(kernels->norm2[s->dtype - 1](s->rows[r], s->dim), wanted);
        }
}

static const size_t dims_beyond_70[] = {96, 128, 255, 256, 784, 1000, MAX_DIM};

/* One format. Since every level must give the reference's bits, all levels but scalar agree bit for bit. */
START_TEST(scores_are_the_canonical_sums)
{
        static const size_t few[] = {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, MAX_ROWS};
        const dci_kernels *kernels[6];
        const size_t n_kernels = all_kernels(kernels);
        scene *s = new_scene();
        for (size_t d = 1; d <= 70 + COUNT(dims_beyond_70); d++) {
                fill_scene(s, _i, d <= 70 ? d : dims_beyond_70[d - 71]);
                for (int form = 0; form < DCI_N_FORMS; form++) {
                        score_scene(s, form);
                        for (size_t l = 0; l < n_kernels; l++) {
                                for (size_t n = 0; n <= MAX_ROWS; n += s->dim > 300 ? 4 : 1)
                                        check_score_rows(s, kernels[l], form, n);
                                for (size_t q = 1; q <= DCI_MANY_QUERIES; q++)
                                        for (size_t i = 0; i<COUNT(few); i += s->dim> 300 ? 5 : 1)
                                                check_score_many(s, kernels[l], form, q, few[i]);
                        }
                }
                for (size_t l = 0; l < n_kernels; l++)
                        check_norms(s, kernels[l]);
        }
        free(s);
}
END_TEST

START_TEST(norms_tell_bad_numbers)
{
        static const uint16_t bad[2][3] = {{0x7e01, 0x7c00, 0xfc00}, {0x7fc1, 0x7f80, 0xff80}};
        static const float bad_floats[3] = {NAN, INFINITY, -INFINITY};
        const dci_kernels *kernels = kernels_of(_i);
        scene *s = new_scene();
        for (size_t dim = 1; dim <= 70; dim++)
                for (dci_dtype dtype = DCI_F32; dtype <= DCI_BF16; dtype++) {
                        const size_t size = dci_dtype_size(dtype);
                        fill_scene(s, dtype, dim);
                        for (size_t i = 0; i < 3 * dim; i++) {
                                unsigned char copy[4],
                                        *at = (unsigned char *)last_bytes(s->memory, dim * size) + i / 3 * size;
                                memcpy(copy, at, size);
                                memcpy(at, dtype == DCI_F32 ? (const void *)&bad_floats[i % 3] : &bad[dtype - 2][i % 3],
                                       size);
                                ck_assert(!isfinite(kernels->norm2[dtype - 1](s->rows[MAX_ROWS - 1], dim)));
                                memcpy(at, copy, size);
                        }
                        ck_assert(isfinite(kernels->norm2[dtype - 1](s->rows[MAX_ROWS - 1], dim)));
                }
        ck_assert(isinf(kernels->norm2[0](&(float){2e19f}, 1)));
        free(s);
}
END_TEST

START_TEST(floats_are_copied)
{
        const dci_kernels *kernels = kernels_of(_i);
        const float in[] = {1.5f, -0.0f, NAN, INFINITY, FLT_MAX, 0x1p-149f};
        float out[2 * COUNT(in)];
        kernels->to_f32[DCI_F32 - 1](in, COUNT(in), out);
        kernels->narrow[DCI_F32 - 1](in, COUNT(in), out + COUNT(in));
        ck_assert(memcmp(out, in, sizeof in) == 0 && memcmp(out + COUNT(in), in, sizeof in) == 0);
}
END_TEST

START_TEST(widening_is_exact_and_narrowing_undoes_it)
{
        const dci_kernels *kernels = kernels_of(_i);
        unsigned char *in = guard(0x20000), *out = guard(0x40000), *back = guard(0x20000);
        for (dci_dtype dtype = DCI_F16; dtype <= DCI_BF16; dtype++)
                for (size_t n = 0; n <= 0x10000;
                     n += n < 50 ? 1 : 0x10000 - 50) { /* short ones end with the last values */
                        uint16_t *halves = last_bytes(in, n * sizeof *halves),
                                 *again = last_bytes(back, n * sizeof *again);
                        float *floats = last_bytes(out, n * sizeof *floats);
                        for (size_t i = 0; i < n; i++)
                                halves[i] = (uint16_t)(n < 0x10000 ? i * 1237 + n : i);
                        kernels->to_f32[dtype - 1](halves, n, floats);
                        kernels->narrow[dtype - 1](floats, n, again);
                        for (size_t i = 0; i < n; i++) {
                                double value = half_value(dtype, halves[i]);
                                if (isnan(value)) {
                                        ck_assert(isnan(floats[i]) && isnan(half_value(dtype, again[i])));
                                        continue;
                                }
                                if (floats[i] != value || again[i] != halves[i])
                                        ck_abort_msg("%04x gives %a, then %04x", halves[i], floats[i], again[i]);
                        }
                }
}
END_TEST

/* For each pair of neighbours: the middle, and the floats next to it. Returns how many. */
static size_t make_ties(dci_dtype dtype, float *in, uint16_t *wanted)
{
        const uint32_t top = dtype == DCI_F16 ? 0x7c00 : 0x7f80; /* infinity stands where the next number would be */
        size_t n = 0;
        for (uint32_t h = 0; h < top; h++) {
                double above = h + 1 < top ? half_value(dtype, h + 1) : ldexp(1, dtype == DCI_F16 ? 16 : 128);
                float middle = (float)((half_value(dtype, h) + above) / 2);
                for (uint32_t sign = 0; sign <= 0x8000; sign += 0x8000) {
                        const float s = sign ? -1.0f : 1.0f;
                        in[n] = s * middle;
                        wanted[n++] = (uint16_t)(sign | (h + h % 2));
                        in[n] = s * nextafterf(middle, 0.0f);
                        wanted[n++] = (uint16_t)(sign | h);
                        in[n] = s * nextafterf(middle, INFINITY);
                        wanted[n++] = (uint16_t)(sign | (h + 1));
                }
        }
        in[n] = FLT_MAX;
        wanted[n++] = (uint16_t)top;
        in[n] = -INFINITY;
        wanted[n++] = (uint16_t)(0x8000 | top);
        return n;
}

START_TEST(narrowing_rounds_to_nearest_even)
{
        const dci_kernels *kernels = kernels_of(_i);
        float *values = malloc(MAX_HALVES * sizeof *values);
        uint16_t *wanted = malloc(MAX_HALVES * sizeof *wanted);
        ck_assert(values != NULL && wanted != NULL);
        unsigned char *in = guard(MAX_HALVES * sizeof(float)), *out = guard(MAX_HALVES * sizeof(uint16_t));
        for (dci_dtype dtype = DCI_F16; dtype <= DCI_BF16; dtype++) {
                size_t n = make_ties(dtype, values, wanted);
                ck_assert_uint_lt(n, MAX_HALVES);
                for (size_t length = 1; length <= n; length = length < 37 ? length + 1 : n + (length == n)) {
                        float *floats = last_bytes(in, length * sizeof *floats);
                        uint16_t *halves = last_bytes(out, length * sizeof *halves);
                        const size_t first = (n - length) / 37 * (length % 37); /* another part for each length */
                        memcpy(floats, values + first, length * sizeof *floats);
                        kernels->narrow[dtype - 1](floats, length, halves);
                        for (size_t i = 0; i < length; i++)
                                if (halves[i] != wanted[first + i])
                                        ck_abort_msg("%a gives %04x, not %04x", floats[i], halves[i],
                                                     wanted[first + i]);
                }
        }
        test_free(values, wanted);
}
END_TEST

/* Small whole numbers, so that many are equal; or, where asked for, the numbers that compare oddly. */
static float odd_number(dci_rng *rng, bool odd)
{
        static const float odd_ones[] = {NAN, INFINITY, -INFINITY, -0.0f};
        size_t choice = (size_t)dci_rng_below(rng, 16);
        return odd && choice < COUNT(odd_ones) ? odd_ones[choice] : (float)dci_rng_below(rng, 9) - 4;
}

static void check_keep(const dci_kernels *kernels, unsigned char *const g[3], size_t n, float threshold, bool least)
{
        const float *values = last_bytes(g[0], n * sizeof *values);
        float *kept = last_bytes(g[1], (n + 16) * sizeof *kept);
        int32_t *index = last_bytes(g[2], (n + 16) * sizeof *index);
        size_t count = (least ? kernels->keep_at_least : kernels->keep_at_most)(values, n, threshold, kept, index),
               wanted = 0;
        for (size_t i = 0; i < n; i++)
                if (least ? values[i] >= threshold : values[i] <= threshold) {
                        if (wanted >= count || index[wanted] != (int32_t)i || kept[wanted] != values[i])
                                ck_abort_msg("entry %zu of %zu values, threshold %g", wanted, n, threshold);
                        wanted++;
                }
        ck_assert_uint_eq(count, wanted);
}

START_TEST(keeping_takes_what_reaches_the_threshold)
{
        static const float thresholds[] = {0.0f, -0.0f, 1.0f, -5.0f, 5.0f, INFINITY, -INFINITY, NAN};
        const dci_kernels *kernels = kernels_of(_i);
        unsigned char *g[3] = {guard(4096), guard(4096), guard(4096)};
        dci_rng rng;
        dci_rng_seed(&rng, 1);
        for (size_t n = 0; n <= 260; n++) {
                float *values = last_bytes(g[0], n * sizeof *values);
                for (size_t i = 0; i < n; i++)
                        values[i] = odd_number(&rng, true);
                for (size_t t = 0; t < 2 * COUNT(thresholds); t++)
                        check_keep(kernels, g, n, thresholds[t / 2], t % 2 == 0);
        }
}
END_TEST

START_TEST(reached_by_is_a_close_lower_bound)
{
        const dci_kernels *kernels = kernels_of(_i);
        unsigned char *in = guard(4096), *scratch = guard(4096);
        dci_rng rng;
        dci_rng_seed(&rng, 2);
        for (size_t n = 1; n <= 300; n++) {
                float *values = last_bytes(in, n * sizeof *values);
                int32_t *order = last_bytes(scratch, n * sizeof *order);
                for (size_t i = 0; i < n; i++)
                        values[i] = n % 3 == 0 ? (float)dci_rng_normal(&rng) : odd_number(&rng, n % 3 == 1);
                for (size_t i = 0; i < n; i++)
                        values[i] = isnan(values[i]) ? -INFINITY : values[i] + 0.0f;
                for (size_t k = 1; k <= n; k += 1 + k / 9) {
                        float bound = kernels->reached_by(values, n, k, order);
                        size_t reached = 0, beyond = 0;
                        for (size_t i = 0; i < n; i++) {
                                reached += values[i] >= bound;
                                beyond += values[i] > bound;
                        }
                        ck_assert_msg(reached >= k && (reached <= k + k / 8 || beyond < k),
                                      "%zu of %zu reach %g, for k %zu", reached, n, bound, k);
                }
        }
}
END_TEST

START_TEST(columns_reached_by_is_a_close_lower_bound)
{
        const dci_kernels *kernels = kernels_of(_i);
        unsigned char *in = guard(100 * 70 * sizeof(float)), *results = guard(4096);
        dci_rng rng;
        dci_rng_seed(&rng, 4);
        for (size_t n_rows = 1; n_rows <= 100; n_rows += 1 + n_rows / 8) {
                const size_t n_columns = 16 * (1 + n_rows % 4), ld = n_columns + n_rows % 5;
                float *products = last_bytes(in, ((n_rows - 1) * ld + n_columns) * sizeof *products);
                float *out = last_bytes(results, n_columns * sizeof *out);
                for (size_t i = 0; i < (n_rows - 1) * ld + n_columns; i++)
                        products[i] = i % 16 < 8 ? (float)dci_rng_normal(&rng) : odd_number(&rng, false);
                for (size_t rank = 1; rank <= n_rows; rank++) {
                        kernels->columns_reached_by(products, ld, n_rows, n_columns, rank, out);
                        for (size_t c = 0; c < n_columns; c++) {
                                /* Few more: only what is within the last step of the bisection. */
                                size_t reached = 0, beyond = 0;
                                for (size_t r = 0; r < n_rows; r++) {
                                        reached += products[r * ld + c] >= out[c];
                                        beyond += products[r * ld + c] > out[c] + 9 * 0x1p-13f;
                                }
                                ck_assert_msg(reached >= rank && beyond < rank, "rank %zu of %zu", rank, n_rows);
                        }
                }
        }
}
END_TEST

START_TEST(tile_hits_are_all_that_is_not_below)
{
        const dci_kernels *kernels = kernels_of(_i);
        unsigned char *g[4] = {guard(20000), guard(4096), guard(4096), guard(4096)};
        dci_rng rng;
        dci_rng_seed(&rng, 3);
        for (size_t c = 0; c < 41 * 4; c++) {
                const size_t n_rows = c % 41, n_groups = 1 + c / 41, columns = 16 * n_groups, ld = columns + c % 5;
                const size_t n_products = n_rows == 0 ? 0 : (n_rows - 1) * ld + columns;
                float *products = last_bytes(g[0], n_products * sizeof *products);
                float *offset = last_bytes(g[1], n_rows * sizeof *offset);
                float *thresholds = last_bytes(g[2], columns * sizeof *thresholds);
                uint16_t *hits = last_bytes(g[3], n_rows * n_groups * sizeof *hits);
                for (size_t i = 0; i < n_products; i++)
                        products[i] = odd_number(&rng, true);
                for (size_t i = 0; i < n_rows; i++)
                        offset[i] = odd_number(&rng, true);
                for (size_t i = 0; i < columns; i++)
                        thresholds[i] = odd_number(&rng, true);
                kernels->tile_hits(products, ld, n_rows, n_groups, offset, thresholds, hits);
                for (size_t i = 0; i < n_rows * columns; i++) {
                        size_t row = i / columns, column = i % columns;
                        bool below = products[row * ld + column] - offset[row] < thresholds[column];
                        if ((hits[row * n_groups + column / 16] >> column % 16 & 1) == below)
                                ck_abort_msg("row %zu, column %zu", row, column);
                }
        }
}
END_TEST

static const dci_amx_kernels *amx_kernels(dci_context **out_context)
{
        *out_context = test_context_isa(DCI_ISA_AMX);
        return dci_amx_for(*out_context);
}

START_TEST(packing_rounds_pads_and_tells_what_it_took)
{
        dci_context *context;
        const dci_amx_kernels *amx = amx_kernels(&context);
        unsigned char *out = guard(MAX_DIM * sizeof(uint16_t));
        scene *s = new_scene();
        for (size_t d = 1; d <= 70 + COUNT(dims_beyond_70); d++) {
                const size_t dim = d <= 70 ? d : dims_beyond_70[d - 71], padded = (dim + 31) / 32 * 32;
                uint16_t *packed = last_bytes(out, padded * sizeof *packed), rounded[MAX_DIM];
                fill_scene(s, DCI_F32, dim);
                for (size_t r = MAX_ROWS - 3; r < MAX_ROWS; r++) {
                        const float *row = s->rows[r];
                        double lost = 0, norm2 = 0;
                        float reported_norm2;
                        memset(packed, 0xff, padded * sizeof *packed);
                        float reported = amx->pack_row(row, dim, padded, packed, 32, &reported_norm2);
                        dci_kernels_scalar.narrow[DCI_BF16 - 1](row, dim, rounded);
                        ck_assert_mem_eq(packed, rounded, dim * sizeof *packed);
                        for (size_t i = dim; i < padded; i++)
                                ck_assert_uint_eq(packed[i], 0);
                        for (size_t i = 0; i < dim; i++) {
                                lost += pow(row[i] - half_value(DCI_BF16, packed[i]), 2);
                                norm2 += pow(row[i], 2);
                        }
                        ck_assert_double_eq_tol(reported_norm2, norm2, norm2 * (double)(dim / 16 + 6) * 0x1p-24);
                        ck_assert_double_eq_tol(reported, lost, lost * (double)(dim / 16 + 6) * 0x1p-24);
                        /* What is rounded already loses nothing. */
                        for (size_t i = 0; i < dim; i++)
                                s->wide[i] = (float)half_value(DCI_BF16, packed[i]);
                        ck_assert_float_eq(amx->pack_row(s->wide, dim, padded, packed, 32, &reported_norm2), 0.0f);
                }
        }
        free(s);
        dci_context_destroy(context);
}
END_TEST

/* n packed rows before the unmapped page, as tiles or row by row, and their values. */
static uint16_t *pack_rows(const dci_amx_kernels *amx, unsigned char *end, bool tiles, size_t n, size_t dim,
                           uint64_t seed, float *values)
{
        const size_t padded = (dim + 31) / 32 * 32;
        uint16_t *packed = last_bytes(end, n * padded * sizeof *packed);
        float *rows = test_normal(n, dim, seed), norm2;
        for (size_t r = 0; r < n; r++) {
                uint16_t *out = packed + (tiles ? dci_amx_row(r, padded) : r * padded);
                amx->pack_row(rows + r * dim, dim, padded, out, tiles ? DCI_AMX_STEP : 32, &norm2);
                for (size_t i = 0; i < dim; i++)
                        values[r * dim + i] =
                                (float)half_value(DCI_BF16, out[tiles ? i / 32 * DCI_AMX_STEP + i % 32 : i]);
        }
        free(rows);
        return packed;
}

static void check_products(const float *products, size_t ld, size_t n_rows, size_t n_queries, size_t dim,
                           const float *rows, const float *queries)
{
        for (size_t r = 0; r < n_rows; r++)
                for (size_t q = 0; q < n_queries; q++) {
                        const float *row = rows + r * dim, *query = queries + q * dim;
                        double ignored, sum = exact(DCI_FORM_DOT, row, query, dim, &ignored);
                        double lengths = exact(DCI_FORM_DOT, row, row, dim, &ignored) *
                                         exact(DCI_FORM_DOT, query, query, dim, &ignored);
                        double tolerance = (double)(2 * dim + 64) * 0x1p-24 * sqrt(lengths);
                        if (!(fabs(products[r * ld + q] - sum) <= tolerance))
                                ck_abort_msg("row %zu, query %zu, dim %zu", r, q, dim);
                }
}

START_TEST(tile_products_are_those_of_the_rounded_rows)
{
        static const size_t dims[] = {1, 2, 31, 32, 33, 63, 64, 65, 96, 128, 255, 784, 1000};
        dci_context *context;
        const dci_amx_kernels *amx = amx_kernels(&context);
        unsigned char *row_memory = guard(96 * 1024 * 2), *query_memory = guard(64 * 1024 * 2);
        unsigned char *group_memory = guard(64 * 1024 * 2), *out_memory = guard(96 * 80 * sizeof(float));
        float *row_values = malloc(96 * 1000 * sizeof(float)), *query_values = malloc(64 * 1000 * sizeof(float));
        for (size_t c = 0; c < 4 * COUNT(dims); c++) {
                const size_t dim = dims[c / 4], padded = (dim + 31) / 32 * 32, n_rows = c % 2 ? 32 : 96;
                const size_t n_groups = c / 2 % 2 ? 2 : 4, n_queries = 16 * n_groups, ld = n_queries + c % 3;
                uint16_t *rows = pack_rows(amx, row_memory, true, n_rows, dim, c, row_values);
                uint16_t *queries = pack_rows(amx, query_memory, false, n_queries, dim, c + 1000, query_values);
                uint16_t *groups = last_bytes(group_memory, n_queries * padded * sizeof *groups);
                float *out = last_bytes(out_memory, ((n_rows - 1) * ld + n_queries) * sizeof *out);
                for (size_t q = 0; q < n_queries; q++)
                        amx->place_query(queries + q * padded, padded, q % 16, groups + q / 16 * 16 * padded);
                for (size_t i = 0; i < (n_rows - 1) * ld + n_queries; i++)
                        out[i] = 77;
                amx->begin();
                amx->products(rows, n_rows, padded, groups, n_groups, out, ld);
                amx->end();
                check_products(out, ld, n_rows, n_queries, dim, row_values, query_values);
                for (size_t i = 0; i < (n_rows - 1) * ld; i++)
                        ck_assert(i % ld < n_queries || out[i] == 77);
        }
        test_free(row_values, query_values);
        dci_context_destroy(context);
}
END_TEST

START_TEST(levels_have_the_kernels_they_name)
{
        dci_isa isas[6], chosen;
        const size_t n = test_isas(isas);
        unsetenv("DCI_ISA");
        for (size_t i = 0; i < n; i++) {
                dci_context *context = test_context_isa(isas[i]);
                ck_assert_int_eq(dci_context_isa(context), isas[i]);
                ck_assert_int_eq(context->kernels->isa, isas[i] == DCI_ISA_AMX ? DCI_ISA_AVX512 : isas[i]);
                ck_assert((dci_amx_for(context) != NULL) == (isas[i] == DCI_ISA_AMX));
                dci_context_destroy(context);
                ck_ok(dci_isa_select(isas[i], &chosen));
                ck_assert_int_eq(chosen, isas[i]);
        }
        /* The levels ascend, so the last one that is available is the best. */
        ck_ok(dci_isa_select(DCI_ISA_AUTO, &chosen));
        ck_assert_int_eq(chosen, isas[n - 1]);
        ck_refused(dci_isa_select(DCI_ISA_NEON + 1, &chosen), DCI_ERR_INVALID, "isa");
}
END_TEST

int main(void)
{
        const dci_kernels *kernels[6];
        const int n_kernels = (int)all_kernels(kernels);
        Suite *suite = suite_create("simd");
        TCase *tcase = test_case(suite, "simd", 300);
        tcase_add_loop_test(tcase, scores_are_the_canonical_sums, DCI_F32, DCI_U8 + 1);
        tcase_add_loop_test(tcase, norms_tell_bad_numbers, 0, n_kernels);
        tcase_add_loop_test(tcase, floats_are_copied, 0, n_kernels);
        tcase_add_loop_test(tcase, widening_is_exact_and_narrowing_undoes_it, 0, n_kernels);
        tcase_add_loop_test(tcase, narrowing_rounds_to_nearest_even, 0, n_kernels);
        tcase_add_loop_test(tcase, keeping_takes_what_reaches_the_threshold, 0, n_kernels);
        tcase_add_loop_test(tcase, reached_by_is_a_close_lower_bound, 0, n_kernels);
        tcase_add_loop_test(tcase, columns_reached_by_is_a_close_lower_bound, 0, n_kernels);
        tcase_add_loop_test(tcase, tile_hits_are_all_that_is_not_below, 0, n_kernels);
        tcase_add_test(tcase, levels_have_the_kernels_they_name);
        if (dci_isa_available(DCI_ISA_AMX)) {
                tcase_add_test(tcase, packing_rounds_pads_and_tells_what_it_took);
                tcase_add_test(tcase, tile_products_are_those_of_the_rounded_rows);
        }
        return test_main(suite);
}
