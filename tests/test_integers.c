/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Kernels of integers, of every level of this machine, against sums of 64 bits: the results must be equal. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "tests/simd_reference.h"

#include <string.h>

#include "simd/cpu.h"
#include "simd/integers/integers.h"

#define MAX_ROWS 40
#define MAX_DIM ((size_t)200000)

/* Beyond DCI_INTEGER_PART the sums are made in parts; at its end 32 bits are just enough. */
static const size_t long_dims[] = {255,    784, 4096, DCI_INTEGER_PART, DCI_INTEGER_PART + 1, 3 * DCI_INTEGER_PART + 17,
                                   MAX_DIM};
#define N_SHORT ((size_t)130)

typedef struct scene {
        dci_dtype dtype;
        size_t dim, ld, n_rows;
        unsigned char *memory, *query_memory, *out_memory; /* their ends */
        const void *rows[MAX_ROWS];
        int16_t *queries;
        dci_dtype fits[DCI_MANY_QUERIES];
        float wanted[DCI_N_FORMS][DCI_MANY_QUERIES][MAX_ROWS];
} scene;

static int element_of(dci_dtype dtype, const void *row, size_t i)
{
        return dtype == DCI_I8 ? ((const int8_t *)row)[i] : ((const uint8_t *)row)[i];
}

static int64_t naive_sum(const scene *s, int form, const int16_t *query, const void *row)
{
        int64_t sum = 0;
        for (size_t i = 0; i < s->dim; i++) {
                const int64_t x = element_of(s->dtype, row, i);
                sum += form == DCI_FORM_L2 ? (query[i] - x) * (query[i] - x) : query[i] * x;
        }
        return sum;
}

/* Rows begin at every alignment and the last ends at the unmapped page. Some rows and queries are the extremes alone. */
static scene *make_scene(dci_dtype dtype, size_t dim)
{
        const size_t ld = dim + 1, padded = dci_integer_padded(dim);
        scene *s = calloc(1, sizeof *s);
        dci_rng rng;
        ck_assert_ptr_nonnull(s);
        dci_rng_seed(&rng, dim * 2 + (size_t)dtype);
        s->dtype = dtype;
        s->dim = dim;
        s->ld = padded;
        s->n_rows = dim > 1000 ? 11 : MAX_ROWS;
        s->memory = guard(s->n_rows * ld);
        s->query_memory = guard(DCI_MANY_QUERIES * padded * sizeof(int16_t));
        s->out_memory = guard(DCI_MANY_QUERIES * (MAX_ROWS + 3) * sizeof(float));
        unsigned char *rows = last_bytes(s->memory, (s->n_rows - 1) * ld + dim);
        for (size_t r = 0; r < s->n_rows; r++) {
                s->rows[r] = rows + r * ld;
                for (size_t i = 0; i < dim; i++)
                        rows[r * ld + i] = r == 1   ? 0x80
                                           : r == 2 ? 0x7f
                                           : r == 3 ? 0xff
                                                    : (unsigned char)dci_rng_next(&rng);
        }
        s->queries = last_bytes(s->query_memory, DCI_MANY_QUERIES * padded * sizeof *s->queries);
        for (size_t q = 0; q < DCI_MANY_QUERIES; q++) {
                s->fits[q] = q % 2 == 0 ? DCI_I8 : DCI_U8;
                for (size_t i = 0; i < dim; i++) {
                        const unsigned char byte = q == 2 ? 0x80 : q == 3 ? 0xff : (unsigned char)dci_rng_next(&rng);
                        s->queries[q * padded + i] = (int16_t)element_of(s->fits[q], &byte, 0);
                }
        }
        for (int form = 0; form < DCI_N_FORMS; form++)
                for (size_t q = 0; q < DCI_MANY_QUERIES; q++)
                        for (size_t r = 0; r < s->n_rows; r++)
                                s->wanted[form][q][r] = (float)naive_sum(s, form, s->queries + q * padded, s->rows[r]);
        return s;
}

static void free_scene(scene *s)
{
        const size_t page = (size_t)sysconf(_SC_PAGESIZE);
        const struct {
                unsigned char *end;
                size_t room;
        } all[] = {{s->memory, s->n_rows * (s->dim + 1)},
                   {s->query_memory, DCI_MANY_QUERIES * s->ld * sizeof(int16_t)},
                   {s->out_memory, DCI_MANY_QUERIES * (MAX_ROWS + 3) * sizeof(float)}};
        for (size_t i = 0; i < COUNT(all); i++) {
                const size_t room = (all[i].room + page - 1) / page * page;
                munmap(all[i].end - room, room + page);
        }
        free(s);
}

static void check_rows(const scene *s, const dci_integer_kernels *kernels, int form, size_t n, const char *what)
{
        const size_t q = n % DCI_MANY_QUERIES, first = s->n_rows - n, d = (size_t)(s->dtype - DCI_I8);
        const int16_t *query = s->queries + q * s->ld;
        float *out = last_bytes(s->out_memory, n * sizeof *out);
        for (int strided = 0; strided < 2; strided++) {
                memset(out, 0xff, n * sizeof *out);
                if (strided)
                        kernels->score_strided[d][form](query, s->rows[first], s->dim + 1, n, s->dim, out);
                else
                        kernels->score_rows[d][form](query, s->rows + first, n, s->dim, out);
                ck_assert_msg(memcmp(out, s->wanted[form][q] + first, n * sizeof *out) == 0,
                              "%s, %s, form %d, dim %zu, %zu rows, strided %d", what, dci_dtype_name(s->dtype), form,
                              s->dim, n, strided);
        }
}

static void check_many(const scene *s, const dci_integer_kernels *kernels, int form, size_t n_q, size_t n,
                       const char *what)
{
        const size_t ld = n + 3, first = DCI_MANY_QUERIES - n_q, n_out = (n_q - 1) * ld + n;
        float *out = last_bytes(s->out_memory, n_out * sizeof *out);
        bool good = true;
        for (size_t i = 0; i < n_out; i++)
                out[i] = 0x1.234p99f;
        kernels->score_many[s->dtype - DCI_I8][form](s->queries + first * s->ld, s->ld, n_q, s->rows + s->n_rows - n, n,
                                                     s->dim, out, ld);
        for (size_t q = 0; q < n_q; q++) {
                good = good && memcmp(out + q * ld, s->wanted[form][first + q] + s->n_rows - n, n * sizeof *out) == 0;
                for (size_t i = n; q + 1 < n_q && i < ld; i++)
                        good = good && out[q * ld + i] == 0x1.234p99f;
        }
        ck_assert_msg(good, "%s, %s, form %d, dim %zu, %zu queries, %zu rows", what, dci_dtype_name(s->dtype), form,
                      s->dim, n_q, n);
}

static void each_scene(void (*fn)(const scene *s))
{
        for (dci_dtype dtype = DCI_I8; dtype <= DCI_U8; dtype++)
                for (size_t d = 1; d <= N_SHORT + COUNT(long_dims); d++) {
                        scene *s = make_scene(dtype, d <= N_SHORT ? d : long_dims[d - N_SHORT - 1]);
                        fn(s);
                        free_scene(s);
                }
}

static void check_row_kernels(const scene *s)
{
        dci_isa isas[6];
        const size_t n_isas = test_isas(isas);
        for (size_t l = 0; l < n_isas; l++) {
                dci_context *context = test_context_isa(isas[l]);
                const dci_integer_kernels *kernels = dci_integers_for(context);
                const char *name = dci_isa_name(isas[l]);
                for (int form = 0; form < DCI_N_FORMS; form++) {
                        for (size_t n = 1; n <= s->n_rows; n += s->n_rows == MAX_ROWS ? 1 : 5)
                                check_rows(s, kernels, form, n, name);
                        for (size_t n_q = 1; n_q <= DCI_MANY_QUERIES; n_q++)
                                check_many(s, kernels, form, n_q, 1 + n_q * 7 % (s->n_rows > 0 ? s->n_rows : 1), name);
                }
                dci_context_destroy(context);
        }
}

START_TEST(scores_are_the_exact_sums)
{
        each_scene(check_row_kernels);
}
END_TEST

/* --- tiles ------------------------------------------------------------------------------------------------------------- */

typedef struct named_tiles {
        const char *name;
        const dci_integer_tiles *tiles;
} named_tiles;

/* All that run here, those that a better one replaces too. */
static size_t all_tiles(named_tiles out[6])
{
        size_t n = 0;
        out[n++] = (named_tiles){"scalar", &dci_integer_tiles_scalar};
#if defined(__x86_64__)
        if (dci_isa_available(DCI_ISA_AVX2))
                out[n++] = (named_tiles){"avx2", &dci_integer_tiles_avx2};
        if (dci_isa_available(DCI_ISA_AVX512)) {
                out[n++] = (named_tiles){"avx512", &dci_integer_tiles_avx512};
                if (dci_cpu_has_vnni())
                        out[n++] = (named_tiles){"vnni", &dci_integer_tiles_vnni};
        }
        dci_context *amx =
                dci_isa_available(DCI_ISA_AMX) ? test_context_isa(DCI_ISA_AMX) : NULL; /* asks for permission */
        if (amx != NULL && dci_cpu_has_amx_int8())
                out[n++] = (named_tiles){"amx", &dci_integer_tiles_amx};
        dci_context_destroy(amx);
#elif defined(__aarch64__)
        out[n++] = (named_tiles){"neon", &dci_integer_tiles_neon};
        if (dci_cpu_has_dot())
                out[n++] = (named_tiles){"sdot", &dci_integer_tiles_sdot};
#endif
        return n;
}

/* Column c is query c mod 8, at both ends of every group of columns. */
static void *pack_queries(const scene *s, const dci_integer_tiles *tiles, size_t padded, uint32_t *masks,
                          uint32_t *sums)
{
        unsigned char *out = calloc(DCI_PRODUCT_COLUMNS * padded, tiles->element_bytes);
        ck_assert_ptr_nonnull(out);
        for (size_t c = 0; c < DCI_PRODUCT_COLUMNS; c++) {
                const size_t q = c % DCI_MANY_QUERIES;
                const int16_t *query = s->queries + q * s->ld, bias = s->fits[q] == DCI_U8 ? tiles->query_bias : 0;
                masks[c] = bias != 0 ? UINT32_MAX : 0;
                sums[c] = 0;
                for (size_t i = 0; i < s->dim; i++)
                        sums[c] += (uint32_t)(query[i] - bias);
                tiles->place_query(query, bias, s->dim, padded,
                                   out + c / DCI_LANES * DCI_LANES * padded * tiles->element_bytes, c % DCI_LANES);
        }
        return out;
}

static void check_tile(const scene *s, const named_tiles *t, int form, bool cosine)
{
        const dci_integer_tiles *tiles = t->tiles;
        const size_t padded = (s->dim + tiles->padding - 1) / tiles->padding * tiles->padding,
                     n_whole = dci_integer_rows(s->n_rows);
        uint32_t masks[DCI_PRODUCT_COLUMNS], column_terms[DCI_PRODUCT_COLUMNS], sums[MAX_ROWS], row_terms[MAX_ROWS];
        float row_scales[MAX_ROWS], column_scales[DCI_PRODUCT_COLUMNS];
        const uint32_t factor = form == DCI_FORM_L2 ? 2 : 1, bias = tiles->row_bias[s->dtype - DCI_I8];
        void *queries = pack_queries(s, tiles, padded, masks, column_terms);
        unsigned char *rows = calloc(n_whole * padded, tiles->element_bytes);
        int32_t *products = malloc(n_whole * DCI_PRODUCT_COLUMNS * sizeof *products);
        ck_assert(rows != NULL && products != NULL);
        for (size_t r = 0; r < s->n_rows; r++) {
                uint32_t norm2;
                tiles->pack_row(s->rows[r], s->dtype, s->dim, padded, rows, r, &sums[r], &norm2);
                sums[r] *= (uint32_t)tiles->query_bias;
                row_terms[r] = form == DCI_FORM_L2 ? 0u - norm2 : 0u;
                row_scales[r] = 1.0f / (float)(r + 3);
        }
        for (size_t c = 0; c < DCI_PRODUCT_COLUMNS; c++) {
                const int16_t *query = s->queries + c % DCI_MANY_QUERIES * s->ld;
                column_terms[c] *= 0u - factor * bias;
                for (size_t i = 0; form == DCI_FORM_L2 && i < s->dim; i++)
                        column_terms[c] -= (uint32_t)(query[i] * query[i]);
                column_scales[c] = 1.0f / (float)(c + 7);
        }
        const dci_integer_terms terms = {factor,
                                         sums,
                                         row_terms,
                                         masks,
                                         column_terms,
                                         cosine ? row_scales : NULL,
                                         cosine ? column_scales : NULL};
        if (tiles->begin != NULL)
                tiles->begin();
        tiles->products(rows, n_whole, padded, queries, products);
        if (tiles->end != NULL)
                tiles->end();
        tiles->finish(&terms, s->n_rows, products);
        for (size_t r = 0; r < s->n_rows; r++)
                for (size_t c = 0; c < DCI_PRODUCT_COLUMNS; c++) {
                        const float exact_score = s->wanted[form][c % DCI_MANY_QUERIES][r];
                        float got, wanted = form == DCI_FORM_L2 ? 0.0f - exact_score : exact_score;
                        memcpy(&got, products + r * DCI_PRODUCT_COLUMNS + c, sizeof got);
                        if (cosine)
                                wanted = wanted * row_scales[r] * column_scales[c];
                        ck_assert_msg(got == wanted, "%s, %s, form %d, dim %zu, row %zu, column %zu: %.9g, not %.9g",
                                      t->name, dci_dtype_name(s->dtype), form, s->dim, r, c, got, wanted);
                }
        free(queries);
        free(rows);
        free(products);
}

static void check_tiles(const scene *s)
{
        named_tiles all[6];
        const size_t n = all_tiles(all);
        for (size_t t = 0; t < n && s->dim <= DCI_INTEGER_PART; t++) {
                check_tile(s, &all[t], DCI_FORM_DOT, false);
                check_tile(s, &all[t], DCI_FORM_L2, false);
                check_tile(s, &all[t], DCI_FORM_DOT, true);
        }
}

START_TEST(tiles_give_the_exact_sums)
{
        each_scene(check_tiles);
}
END_TEST

/* All values, their neighbours, and what is beyond. */
START_TEST(narrowing_to_integers_rounds_and_ends_at_the_bounds)
{
        dci_isa isas[6];
        ck_assert_uint_lt((size_t)_i, test_isas(isas));
        const dci_kernels *kernels = dci_kernels_for(isas[_i]);
        for (dci_dtype dtype = DCI_I8; dtype <= DCI_U8; dtype++) {
                const int least = dtype == DCI_I8 ? -128 : 0;
                for (int value = least; value < least + 256; value++) {
                        const unsigned char byte = (unsigned char)value;
                        const float v = (float)value, in[] = {v, v + 0.49f, v - 0.49f, v + 0.5f, -1e30f, 1e30f};
                        const int up = value % 2 != 0 && value < least + 255 ? value + 1 : value;
                        const int wanted[] = {value, value, value, up, least, least + 255};
                        unsigned char out[COUNT(in)];
                        float wide;
                        kernels->to_f32[dtype - 1](&byte, 1, &wide);
                        kernels->narrow[dtype - 1](in, COUNT(in), out);
                        ck_assert_float_eq(wide, v);
                        for (size_t i = 0; i < COUNT(in); i++)
                                ck_assert_int_eq(out[i], (unsigned char)wanted[i]);
                }
        }
}
END_TEST

int main(void)
{
        dci_isa isas[6];
        Suite *suite = suite_create("integers");
        TCase *tcase = test_case(suite, "integers", 120);
        tcase_add_test(tcase, scores_are_the_exact_sums);
        tcase_add_test(tcase, tiles_give_the_exact_sums);
        tcase_add_loop_test(tcase, narrowing_to_integers_rounds_and_ends_at_the_bounds, 0, (int)test_isas(isas));
        return test_main(suite);
}
