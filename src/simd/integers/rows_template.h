/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The row kernels of integers, included once by each integers_<isa>.c, which defines before:
 *
 *   STEP                                   16-bit integers of a vector, at most DCI_INTEGER_PADDING
 *   X, x_query(p)                          such a vector, of int16
 *   x_load_i8(p) x_load_u8(p)              STEP elements, widened; any alignment
 *   x_tail_i8(p, n, after) x_tail_u8(..)   n < STEP elements and zeros; reads nothing beyond them, but STEP elements
 *                                          that end with them if `after` is true
 *   x_sub(a, b)
 *   A, a_zero() a_madd(acc, a, b)          sums of products, 32 bits
 *   a_sums(acc, out)                       out[i] = the sum of all lanes of acc[i], i < AT_ONCE
 *   ROWS_TABLE                             name of the table */
#include "simd/integers/integers.h"

/* Sums at a time: rows of one query, or QUERIES queries of as many rows as that leaves. */
#define AT_ONCE 8
#define QUERIES 4
#define LONG_BYTES 256

/* Adds elements [p, p + n), n <= STEP, of nq queries and AT_ONCE / nq rows. `ahead`: bytes from a row to one that will
 * be read soon; 0: none that is known. */
DCI_INLINE void add_vector(A *acc, const int16_t *const *query, const unsigned char *const *row, size_t p, size_t n,
                           size_t nq, size_t ahead, bool is_signed, bool l2)
{
        const size_t nr = AT_ONCE / nq;
        X x[AT_ONCE];
        if (ahead != 0 && p % DCI_CACHE_LINE == 0) {
                UNROLL for (size_t r = 0; r < nr; r++) DCI_PREFETCH(row[r] + p + ahead);
        }
        UNROLL for (size_t r = 0; r < nr; r++)
        {
                if (n == STEP)
                        x[r] = is_signed ? x_load_i8(row[r] + p) : x_load_u8(row[r] + p);
                else
                        x[r] = is_signed ? x_tail_i8(row[r] + p, n, p > 0) : x_tail_u8(row[r] + p, n, p > 0);
        }
        UNROLL for (size_t q = 0; q < nq; q++)
        {
                const X y = x_query(query[q] + p);
                UNROLL for (size_t r = 0; r < nr; r++)
                {
                        const X d = l2 ? x_sub(y, x[r]) : x[r];
                        acc[q * nr + r] = a_madd(acc[q * nr + r], d, l2 ? d : y);
                }
        }
}

/* Sums over elements [begin, end), at most DCI_INTEGER_PART. */
DCI_INLINE void sum_part(const int16_t *const *query, const unsigned char *const *row, size_t begin, size_t end,
                         size_t nq, size_t ahead, bool is_signed, bool l2, int32_t *out)
{
        A acc[AT_ONCE];
        UNROLL for (size_t i = 0; i < AT_ONCE; i++) acc[i] = a_zero();
        size_t p = begin;
        for (; p + STEP <= end; p += STEP)
                add_vector(acc, query, row, p, STEP, nq, ahead, is_signed, l2);
        if (p < end)
                add_vector(acc, query, row, p, end - p, nq, 0, is_signed, l2);
        a_sums(acc, out);
}

DCI_INLINE void score_some(const int16_t *const *query, const unsigned char *const *row, size_t dim, size_t nq,
                           size_t ahead, bool is_signed, bool l2, float *out)
{
        int32_t part[AT_ONCE];
        if (dim <= DCI_INTEGER_PART) {
                sum_part(query, row, 0, dim, nq, ahead, is_signed, l2, part);
                for (size_t i = 0; i < AT_ONCE; i++)
                        out[i] = (float)part[i];
                return;
        }
        int64_t sum[AT_ONCE] = {0};
        for (size_t p = 0; p < dim; p += DCI_INTEGER_PART) {
                sum_part(query, row, p, dim - p < DCI_INTEGER_PART ? dim : p + DCI_INTEGER_PART, nq, ahead, is_signed,
                         l2, part);
                for (size_t i = 0; i < AT_ONCE; i++)
                        sum[i] += part[i];
        }
        for (size_t i = 0; i < AT_ONCE; i++)
                out[i] = (float)sum[i];
}

DCI_INLINE void score_pointers(const int16_t *query, const void *const *rows, size_t n_rows, size_t dim, bool is_signed,
                               bool l2, float *out)
{
        float scores[AT_ONCE];
        for (size_t r = 0; r < n_rows; r += AT_ONCE) {
                const unsigned char *row[AT_ONCE];
                const size_t n = n_rows - r < AT_ONCE ? n_rows - r : AT_ONCE;
                for (size_t i = 0; i < AT_ONCE; i++) /* the last row stands in for the missing ones */
                        row[i] = rows[r + (i < n ? i : n - 1)];
                score_some(&query, row, dim, 1, 0, is_signed, l2, scores);
                memcpy(out + r, scores, n * sizeof *out);
        }
}

/* Long rows are taken from distant places: several streams deliver more than one. */
DCI_INLINE void score_contiguous(const int16_t *query, const unsigned char *base, size_t stride, size_t n_rows,
                                 size_t dim, bool is_signed, bool l2, float *out)
{
        const bool spread = stride >= LONG_BYTES;
        const size_t each = n_rows / AT_ONCE, apart = spread ? each : 1;
        const unsigned char *row[AT_ONCE];
        float scores[AT_ONCE];
        for (size_t j = 0; j < each; j++) {
                const size_t first = spread ? j : j * AT_ONCE;
                for (size_t i = 0; i < AT_ONCE; i++)
                        row[i] = base + (first + i * apart) * stride;
                score_some(&query, row, dim, 1, spread ? stride : 0, is_signed, l2, scores);
                for (size_t i = 0; i < AT_ONCE; i++)
                        out[first + i * apart] = scores[i];
        }
        const size_t done = each * AT_ONCE;
        if (done == n_rows)
                return;
        for (size_t i = 0; i < AT_ONCE; i++)
                row[i] = base + (done + i < n_rows ? done + i : n_rows - 1) * stride;
        score_some(&query, row, dim, 1, 0, is_signed, l2, scores);
        memcpy(out + done, scores, (n_rows - done) * sizeof *out);
}

DCI_INLINE void score_queries(const int16_t *queries, size_t ld_query, size_t n_queries, const void *const *rows,
                              size_t n_rows, size_t dim, bool is_signed, bool l2, float *out, size_t ld_out)
{
        const size_t each = AT_ONCE / QUERIES;
        for (size_t r = 0; r < n_rows; r += each) {
                const unsigned char *row[AT_ONCE];
                const size_t n_r = n_rows - r < each ? n_rows - r : each;
                for (size_t i = 0; i < each; i++)
                        row[i] = rows[r + (i < n_r ? i : n_r - 1)];
                for (size_t q = 0; q < n_queries; q += QUERIES) {
                        const int16_t *query[QUERIES];
                        float scores[AT_ONCE];
                        const size_t n_q = n_queries - q < QUERIES ? n_queries - q : QUERIES;
                        for (size_t i = 0; i < QUERIES; i++)
                                query[i] = queries + (q + (i < n_q ? i : n_q - 1)) * ld_query;
                        score_some(query, row, dim, QUERIES, 0, is_signed, l2, scores);
                        for (size_t i = 0; i < n_q; i++)
                                for (size_t j = 0; j < n_r; j++)
                                        out[(q + i) * ld_out + r + j] = scores[i * each + j];
                }
        }
}

#define DEFINE_SCORES(name, is_signed, l2)                                                                             \
        static void name##_rows(const int16_t *query, const void *const *rows, size_t n_rows, size_t dim, float *out)  \
        {                                                                                                              \
                score_pointers(query, rows, n_rows, dim, is_signed, l2, out);                                          \
        }                                                                                                              \
        static void name##_strided(const int16_t *query, const void *base, size_t stride, size_t n_rows, size_t dim,   \
                                   float *out)                                                                         \
        {                                                                                                              \
                score_contiguous(query, base, stride, n_rows, dim, is_signed, l2, out);                                \
        }                                                                                                              \
        static void name##_many(const int16_t *queries, size_t ld_query, size_t n_queries, const void *const *rows,    \
                                size_t n_rows, size_t dim, float *out, size_t ld_out)                                  \
        {                                                                                                              \
                score_queries(queries, ld_query, n_queries, rows, n_rows, dim, is_signed, l2, out, ld_out);            \
        }

DEFINE_SCORES(dot_i8, true, false)
DEFINE_SCORES(l2_i8, true, true)
DEFINE_SCORES(dot_u8, false, false)
DEFINE_SCORES(l2_u8, false, true)

const dci_integer_kernels ROWS_TABLE = {
        .score_rows = {{dot_i8_rows, l2_i8_rows}, {dot_u8_rows, l2_u8_rows}},
        .score_strided = {{dot_i8_strided, l2_i8_strided}, {dot_u8_strided, l2_u8_strided}},
        .score_many = {{dot_i8_many, l2_i8_many}, {dot_u8_many, l2_u8_many}},
};
