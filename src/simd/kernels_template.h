/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The body of every row kernel, included once by each kernels_<isa>.c, which defines before:
 *
 *   V                       16 floats
 *   v_zero() v_all(x) v_fma(a, b, c) = a * b + c, v_sub(a, b), v_max(a, b), v_sqrt(a)
 *   v_load_f32(p) v_load_f16(p) .. bf16, i8, u8            16 elements, any alignment
 *   v_tail_f32(p, n) v_tail_f16(p, n) ..                   n < 16 elements and zeros; reads nothing beyond
 *   v_store(p, a)
 *   v_hits(products, offset, thresholds)                    16 bits, see tile_hits
 *   GROUP                   accumulators reduced together: 16, 4 or 1
 *   GROUP_Q, GROUP_R        the same as queries x rows, GROUP_Q * GROUP_R = GROUP
 *   PRODUCT_ROWS, PRODUCT_VECTORS    for kernels_tiles.h
 *   BLEND_SUMS, v_power(t)           for kernels_attention.h
 *   v_reduce(acc, out)      out[i] = canonical sum of acc[i], i < GROUP
 *   TABLE, ISA              name of the table, its level
 *   keep_at_least, keep_at_most, narrow_f16, narrow_bf16    functions with the signatures of the table
 *   OWN_KEEP_BETWEEN        defined if keep_between is one of them
 *   OWN_ADD_LOOKED_UP, OWN_TO_LEVELS    the same of these */
#include <math.h>

#include "simd/kernels.h"

#define STEP_DOT(x, y, acc) v_fma((x), (y), (acc))
#define STEP_L2(x, y, acc) step_l2((x), (y), (acc))

DCI_INLINE V step_l2(V x, V y, V acc)
{
        V difference = v_sub(x, y);
        return v_fma(difference, difference, acc);
}

/* GROUP rows against one query, a few at a time. Short rows two at a time: they are then read nearly in order, which is
 * what the prefetcher follows best, and the CPU overlaps the short chains of neighbouring rows by itself. Long rows
 * eight at a time: memory delivers more through several streams, each long enough to be followed. The usual head
 * dimensions are constants, so that their loops unroll. */
#define MAX_AT_ONCE (GROUP < 8 ? GROUP : 8)
#define FEW_AT_ONCE (GROUP < 2 ? 1 : 2)
#define LONG_DIM 256
#define USUAL_DIMS (GROUP > 1 && !DCI_SANITIZED)

/* Where rows are: pointers, or, when there are none, contiguous. */
typedef struct row_set {
        const void *const *pointers;
        const unsigned char *base;
        size_t stride; /* bytes */
        size_t ahead;  /* bytes from a row to one that will be read soon; 0: none that is known */
} row_set;

DCI_INLINE const void *row_at(row_set rows, size_t i)
{
        return rows.pointers != NULL ? rows.pointers[i] : rows.base + i * rows.stride;
}

DCI_INLINE row_set rows_from(row_set rows, size_t first)
{
        if (rows.pointers != NULL)
                rows.pointers += first;
        else
                rows.base += first * rows.stride;
        return rows;
}

/* Asks for the rows of a later group: the prefetcher alone leaves a quarter of the bandwidth unused. */
#define GROUPS_AHEAD 2
DCI_INLINE void fetch_ahead(row_set rows, size_t n_rows, size_t row_bytes)
{
        if ((GROUPS_AHEAD + 1) * GROUP > n_rows)
                return;
        UNROLL for (size_t i = 0; i < GROUP; i++)
        {
                const unsigned char *row = (const unsigned char *)row_at(rows, GROUPS_AHEAD * GROUP + i);
                UNROLL for (size_t at = 0; at < row_bytes; at += DCI_CACHE_LINE) DCI_PREFETCH(row + at);
        }
}

#define DEFINE_SCORE(name, T, load, tail, STEP)                                                                        \
        DCI_INLINE void name##_group(const float *query, row_set rows, size_t dim, size_t at_once, float *out)         \
        {                                                                                                              \
                V acc[GROUP];                                                                                          \
                UNROLL for (size_t r = 0; r < GROUP; r += at_once)                                                     \
                {                                                                                                      \
                        V sum[MAX_AT_ONCE];                                                                            \
                        const T *row[MAX_AT_ONCE];                                                                     \
                        UNROLL for (size_t i = 0; i < at_once; i++)                                                    \
                        {                                                                                              \
                                sum[i] = v_zero();                                                                     \
                                row[i] = (const T *)row_at(rows, r + i);                                               \
                        }                                                                                              \
                        size_t p = 0;                                                                                  \
                        for (; p + DCI_LANES <= dim; p += DCI_LANES) {                                                 \
                                V x = v_load_f32(query + p);                                                           \
                                UNROLL for (size_t i = 0; i < at_once; i++)                                            \
                                {                                                                                      \
                                        if (at_once > FEW_AT_ONCE && rows.ahead != 0)                                  \
                                                DCI_PREFETCH((const unsigned char *)(row[i] + p) + rows.ahead);        \
                                        sum[i] = STEP(x, load(row[i] + p), sum[i]);                                    \
                                }                                                                                      \
                        }                                                                                              \
                        if (p < dim) {                                                                                 \
                                V x = v_tail_f32(query + p, dim - p);                                                  \
                                UNROLL for (size_t i = 0; i < at_once; i++) sum[i] =                                   \
                                        STEP(x, tail(row[i] + p, dim - p), sum[i]);                                    \
                        }                                                                                              \
                        UNROLL for (size_t i = 0; i < at_once; i++) acc[r + i] = sum[i];                               \
                }                                                                                                      \
                v_reduce(acc, out);                                                                                    \
        }                                                                                                              \
                                                                                                                       \
        /* All whole groups; returns how many rows that were. Inlined with a constant dim where that is usual. */      \
        DCI_INLINE size_t name##_groups(const float *query, row_set rows, size_t n_rows, size_t dim, size_t at_once,   \
                                        float *out)                                                                    \
        {                                                                                                              \
                size_t r = 0;                                                                                          \
                for (; r + GROUP <= n_rows; r += GROUP) {                                                              \
                        row_set here = rows_from(rows, r);                                                             \
                        if (dim <= 128)                                                                                \
                                fetch_ahead(here, n_rows - r, dim * sizeof(T));                                        \
                        name##_group(query, here, dim, at_once, out + r);                                              \
                }                                                                                                      \
                return r;                                                                                              \
        }                                                                                                              \
                                                                                                                       \
        /* Long contiguous rows: a group takes rows from distant places: several streams deliver more than one. */     \
        DCI_INLINE size_t name##_spread(const float *query, row_set rows, size_t n_rows, size_t dim, float *out)       \
        {                                                                                                              \
                const size_t each = n_rows / GROUP;                                                                    \
                float scores[GROUP];                                                                                   \
                for (size_t j = 0; j < each; j++) {                                                                    \
                        row_set here = {NULL, rows.base + j * rows.stride, each * rows.stride, rows.stride};           \
                        name##_group(query, here, dim, MAX_AT_ONCE, scores);                                           \
                        for (size_t i = 0; i < GROUP; i++)                                                             \
                                out[i * each + j] = scores[i];                                                         \
                }                                                                                                      \
                return each * GROUP;                                                                                   \
        }                                                                                                              \
                                                                                                                       \
        /* Rows that touch have constant addresses too: as many instructions again as the products take. */            \
        DCI_INLINE size_t name##_usual(const float *query, row_set rows, size_t n_rows, size_t dim, float *out)        \
        {                                                                                                              \
                if (rows.pointers != NULL || rows.stride != dim * sizeof(T))                                           \
                        return name##_groups(query, rows, n_rows, dim, FEW_AT_ONCE, out);                              \
                row_set touching = {NULL, rows.base, dim * sizeof(T), 0};                                              \
                return name##_groups(query, touching, n_rows, dim, FEW_AT_ONCE, out);                                  \
        }                                                                                                              \
                                                                                                                       \
        DCI_INLINE void name##_all(const float *query, row_set rows, size_t n_rows, size_t dim, float *out)            \
        {                                                                                                              \
                size_t r;                                                                                              \
                if (USUAL_DIMS && dim == 64)                                                                           \
                        r = name##_usual(query, rows, n_rows, 64, out);                                                \
                else if (USUAL_DIMS && dim == 128)                                                                     \
                        r = name##_usual(query, rows, n_rows, 128, out);                                               \
                else if (dim < LONG_DIM)                                                                               \
                        r = name##_groups(query, rows, n_rows, dim, FEW_AT_ONCE, out);                                 \
                else if (rows.pointers == NULL)                                                                        \
                        r = name##_spread(query, rows, n_rows, dim, out);                                              \
                else                                                                                                   \
                        r = name##_groups(query, rows, n_rows, dim, MAX_AT_ONCE, out);                                 \
                if (r == n_rows)                                                                                       \
                        return;                                                                                        \
                const void *last[GROUP];                                                                               \
                float scores[GROUP];                                                                                   \
                for (size_t i = 0; i < GROUP; i++) /* the last row stands in for the missing ones */                   \
                        last[i] = row_at(rows, r + i < n_rows ? r + i : n_rows - 1);                                   \
                row_set rest = {last, NULL, 0, 0};                                                                     \
                name##_group(query, rest, dim, FEW_AT_ONCE, scores);                                                   \
                for (size_t i = 0; r + i < n_rows; i++)                                                                \
                        out[r + i] = scores[i];                                                                        \
        }                                                                                                              \
                                                                                                                       \
        static void name##_rows(const float *query, const void *const *pointers, size_t n_rows, size_t dim,            \
                                float *out)                                                                            \
        {                                                                                                              \
                row_set rows = {pointers, NULL, 0, 0};                                                                 \
                name##_all(query, rows, n_rows, dim, out);                                                             \
        }                                                                                                              \
                                                                                                                       \
        static void name##_strided(const float *query, const void *base, size_t stride, size_t n_rows, size_t dim,     \
                                   float *out)                                                                         \
        {                                                                                                              \
                row_set rows = {NULL, (const unsigned char *)base, stride, 0};                                         \
                name##_all(query, rows, n_rows, dim, out);                                                             \
        }                                                                                                              \
                                                                                                                       \
        /* GROUP_Q queries x GROUP_R rows: each loaded vector is used GROUP_R or GROUP_Q times. */                     \
        DCI_INLINE void name##_block(const float *const query[GROUP_Q], const void *const row_of[GROUP_R], size_t dim, \
                                     float out[GROUP])                                                                 \
        {                                                                                                              \
                V acc[GROUP];                                                                                          \
                const T *row[GROUP_R];                                                                                 \
                UNROLL for (size_t i = 0; i < GROUP_R; i++) row[i] = (const T *)row_of[i];                             \
                UNROLL for (size_t i = 0; i < GROUP; i++) acc[i] = v_zero();                                           \
                size_t p = 0;                                                                                          \
                for (; p + DCI_LANES <= dim; p += DCI_LANES) {                                                         \
                        V y[GROUP_R];                                                                                  \
                        UNROLL for (size_t i = 0; i < GROUP_R; i++) y[i] = load(row[i] + p);                           \
                        UNROLL for (size_t q = 0; q < GROUP_Q; q++)                                                    \
                        {                                                                                              \
                                V x = v_load_f32(query[q] + p);                                                        \
                                UNROLL for (size_t i = 0; i < GROUP_R; i++) acc[q * GROUP_R + i] =                     \
                                        STEP(x, y[i], acc[q * GROUP_R + i]);                                           \
                        }                                                                                              \
                }                                                                                                      \
                if (p < dim) {                                                                                         \
                        UNROLL for (size_t q = 0; q < GROUP_Q; q++)                                                    \
                        {                                                                                              \
                                V x = v_tail_f32(query[q] + p, dim - p);                                               \
                                UNROLL for (size_t i = 0; i < GROUP_R; i++)                                            \
                                {                                                                                      \
                                        size_t a = q * GROUP_R + i;                                                    \
                                        acc[a] = STEP(x, tail(row[i] + p, dim - p), acc[a]);                           \
                                }                                                                                      \
                        }                                                                                              \
                }                                                                                                      \
                v_reduce(acc, out);                                                                                    \
        }                                                                                                              \
                                                                                                                       \
        static void name##_many(const float *queries, size_t ld_query, size_t n_queries, const void *const *rows,      \
                                size_t n_rows, size_t dim, float *out, size_t ld_out)                                  \
        {                                                                                                              \
                for (size_t r = 0; r < n_rows; r += GROUP_R) {                                                         \
                        const void *row[GROUP_R];                                                                      \
                        size_t n_r = n_rows - r < GROUP_R ? n_rows - r : GROUP_R;                                      \
                        for (size_t i = 0; i < GROUP_R; i++)                                                           \
                                row[i] = rows[r + (i < n_r ? i : n_r - 1)];                                            \
                        for (size_t q = 0; q < n_queries; q += GROUP_Q) {                                              \
                                const float *query[GROUP_Q];                                                           \
                                float scores[GROUP];                                                                   \
                                size_t n_q = n_queries - q < GROUP_Q ? n_queries - q : GROUP_Q;                        \
                                for (size_t i = 0; i < GROUP_Q; i++)                                                   \
                                        query[i] = queries + (q + (i < n_q ? i : n_q - 1)) * ld_query;                 \
                                name##_block(query, row, dim, scores);                                                 \
                                for (size_t i = 0; i < n_q; i++)                                                       \
                                        for (size_t j = 0; j < n_r; j++)                                               \
                                                out[(q + i) * ld_out + r + j] = scores[i * GROUP_R + j];               \
                        }                                                                                              \
                }                                                                                                      \
        }

DEFINE_SCORE(dot_f32, float, v_load_f32, v_tail_f32, STEP_DOT)
DEFINE_SCORE(dot_f16, uint16_t, v_load_f16, v_tail_f16, STEP_DOT)
DEFINE_SCORE(dot_bf16, uint16_t, v_load_bf16, v_tail_bf16, STEP_DOT)
DEFINE_SCORE(l2_f32, float, v_load_f32, v_tail_f32, STEP_L2)
DEFINE_SCORE(l2_f16, uint16_t, v_load_f16, v_tail_f16, STEP_L2)
DEFINE_SCORE(l2_bf16, uint16_t, v_load_bf16, v_tail_bf16, STEP_L2)
DEFINE_SCORE(dot_i8, int8_t, v_load_i8, v_tail_i8, STEP_DOT)
DEFINE_SCORE(dot_u8, uint8_t, v_load_u8, v_tail_u8, STEP_DOT)
DEFINE_SCORE(l2_i8, int8_t, v_load_i8, v_tail_i8, STEP_L2)
DEFINE_SCORE(l2_u8, uint8_t, v_load_u8, v_tail_u8, STEP_L2)

#define DEFINE_NORM2(dtype, T)                                                                                         \
        static float norm2_##dtype(const void *in, size_t dim)                                                         \
        {                                                                                                              \
                const T *row = in;                                                                                     \
                V acc[GROUP];                                                                                          \
                float out[GROUP];                                                                                      \
                for (size_t i = 0; i < GROUP; i++)                                                                     \
                        acc[i] = v_zero();                                                                             \
                size_t p = 0;                                                                                          \
                for (; p + DCI_LANES <= dim; p += DCI_LANES) {                                                         \
                        V x = v_load_##dtype(row + p);                                                                 \
                        acc[0] = v_fma(x, x, acc[0]);                                                                  \
                }                                                                                                      \
                if (p < dim) {                                                                                         \
                        V x = v_tail_##dtype(row + p, dim - p);                                                        \
                        acc[0] = v_fma(x, x, acc[0]);                                                                  \
                }                                                                                                      \
                v_reduce(acc, out);                                                                                    \
                return out[0];                                                                                         \
        }

/* Integers: an exact sum, in parts whose squares 32 bits hold. */
#define DEFINE_INTEGER_NORM2(dtype, T)                                                                                 \
        static float norm2_##dtype(const void *in, size_t dim)                                                         \
        {                                                                                                              \
                const T *row = in;                                                                                     \
                int64_t sum = 0;                                                                                       \
                for (size_t p = 0, end; p < dim; p = end) {                                                            \
                        int32_t part = 0;                                                                              \
                        end = dim - p < DCI_INTEGER_PART ? dim : p + DCI_INTEGER_PART;                                 \
                        for (size_t i = p; i < end; i++)                                                               \
                                part += (int32_t)row[i] * row[i];                                                      \
                        sum += part;                                                                                   \
                }                                                                                                      \
                return (float)sum;                                                                                     \
        }

/* Adding 1.5 * 2^23 rounds to an integer, which is then in the lower bits. */
#define DEFINE_INTEGER_NARROW(dtype, T, least, most)                                                                   \
        static void narrow_##dtype(const float *in, size_t n, void *out)                                               \
        {                                                                                                              \
                for (size_t i = 0; i < n; i++) {                                                                       \
                        const float x = in[i] >= (least) ? (in[i] <= (most) ? in[i] : (most)) : (least);               \
                        ((T *)out)[i] = (T)(int32_t)(dci_float_bits(x + 0x1.8p23f) - 0x4b400000U);                     \
                }                                                                                                      \
        }

#define DEFINE_WIDEN(dtype, T)                                                                                         \
        static void widen_##dtype(const void *in, size_t n, float *out)                                                \
        {                                                                                                              \
                const T *row = in;                                                                                     \
                size_t p = 0;                                                                                          \
                for (; p + DCI_LANES <= n; p += DCI_LANES)                                                             \
                        v_store(out + p, v_load_##dtype(row + p));                                                     \
                if (p < n) {                                                                                           \
                        float last[DCI_LANES];                                                                         \
                        v_store(last, v_tail_##dtype(row + p, n - p));                                                 \
                        memcpy(out + p, last, (n - p) * sizeof *out);                                                  \
                }                                                                                                      \
        }

/* Four vectors of columns at a time stay in registers while all rows pass. */
#define COLUMN_VECTORS 4
#define DEFINE_SUM(dtype, T)                                                                                           \
        DCI_INLINE void add_columns_##dtype(const void *const *rows, const float *weights, size_t n, size_t column,    \
                                            size_t vectors, size_t tail, float *out)                                   \
        {                                                                                                              \
                V acc[COLUMN_VECTORS];                                                                                 \
                for (size_t v = 0; v < vectors; v++)                                                                   \
                        acc[v] = tail != 0 ? v_tail_f32(out, tail) : v_load_f32(out + v * DCI_LANES);                  \
                for (size_t i = 0; i < n; i++) {                                                                       \
                        const T *row = (const T *)rows[i] + column;                                                    \
                        const V weight = v_all(weights == NULL ? 1.0f : weights[i]);                                   \
                        for (size_t v = 0; v < vectors; v++) {                                                         \
                                V x = tail != 0 ? v_tail_##dtype(row, tail) : v_load_##dtype(row + v * DCI_LANES);     \
                                acc[v] = v_fma(x, weight, acc[v]);                                                     \
                        }                                                                                              \
                }                                                                                                      \
                float last[DCI_LANES];                                                                                 \
                for (size_t v = 0; v < vectors; v++)                                                                   \
                        v_store(tail != 0 ? last : out + v * DCI_LANES, acc[v]);                                       \
                if (tail != 0)                                                                                         \
                        memcpy(out, last, tail * sizeof *out);                                                         \
        }                                                                                                              \
                                                                                                                       \
        static void add_rows_##dtype(const void *const *rows, const float *weights, size_t n, size_t dim, float *out)  \
        {                                                                                                              \
                size_t p = 0;                                                                                          \
                for (; p + COLUMN_VECTORS * DCI_LANES <= dim; p += COLUMN_VECTORS * DCI_LANES)                         \
                        add_columns_##dtype(rows, weights, n, p, COLUMN_VECTORS, 0, out + p);                          \
                for (; p + DCI_LANES <= dim; p += DCI_LANES)                                                           \
                        add_columns_##dtype(rows, weights, n, p, 1, 0, out + p);                                       \
                if (p < dim)                                                                                           \
                        add_columns_##dtype(rows, weights, n, p, 1, dim - p, out + p);                                 \
        }

DEFINE_SUM(f32, float)
DEFINE_SUM(f16, uint16_t)
DEFINE_SUM(bf16, uint16_t)
DEFINE_SUM(i8, int8_t)
DEFINE_SUM(u8, uint8_t)

DEFINE_NORM2(f32, float)
DEFINE_NORM2(f16, uint16_t)
DEFINE_NORM2(bf16, uint16_t)
DEFINE_INTEGER_NORM2(i8, int8_t)
DEFINE_INTEGER_NORM2(u8, uint8_t)
DEFINE_WIDEN(f32, float)
DEFINE_WIDEN(f16, uint16_t)
DEFINE_WIDEN(bf16, uint16_t)
DEFINE_WIDEN(i8, int8_t)
DEFINE_WIDEN(u8, uint8_t)
DEFINE_INTEGER_NARROW(i8, int8_t, -128.0f, 127.0f)
DEFINE_INTEGER_NARROW(u8, uint8_t, 0.0f, 255.0f)

static void narrow_f32(const float *in, size_t n, void *out)
{
        memcpy(out, in, n * sizeof *in);
}

/* Floats as integers of the same order, and back: negative ones have their lower bits inverted. */
DCI_INLINE int32_t flip(int32_t bits)
{
        return bits ^ (bits < 0 ? INT32_MAX : 0);
}

/* n values as such integers, and the extremes of these. */
DCI_INLINE void order_all(const float *values, size_t n, int32_t *order, int32_t *out_low, int32_t *out_high)
{
        int32_t low = INT32_MAX, high = INT32_MIN;
        for (size_t i = 0; i < n; i++) {
                order[i] = flip((int32_t)dci_float_bits(values[i]));
                low = order[i] < low ? order[i] : low;
                high = order[i] > high ? order[i] : high;
        }
        *out_low = low;
        *out_high = high;
}

/* Bisection over the integers: each step is one count, a loop without branches that compilers vectorise. */
static float reached_by(const float *values, size_t n, size_t k, int32_t *order)
{
        int32_t low, high;
        order_all(values, n, order, &low, &high);
        while (low < high) { /* low is reached by at least k */
                int32_t middle = (int32_t)(((int64_t)low + high + 1) >> 1);
                int32_t reached = 0;
                for (size_t i = 0; i < n; i++)
                        reached += order[i] >= middle;
                if ((size_t)reached < k) {
                        high = middle - 1;
                        continue;
                }
                low = middle;
                if ((size_t)reached <= k + k / 8)
                        break;
        }
        return dci_bits_float((uint32_t)flip(low));
}

/* Bisection between the extremes of each column, 16 columns at a time; 14 steps are fine enough for a guess. */
static void columns_reached_by(const float *products, size_t ld, size_t n_rows, size_t n_columns, size_t rank,
                               float *out)
{
        for (size_t c = 0; c < n_columns; c += DCI_LANES) {
                float low[DCI_LANES], high[DCI_LANES], middle[DCI_LANES];
                int32_t reached[DCI_LANES];
                memcpy(low, products + c, sizeof low);
                memcpy(high, products + c, sizeof high);
                for (size_t r = 1; r < n_rows; r++) {
                        const float *row = products + r * ld + c;
                        for (size_t l = 0; l < DCI_LANES; l++) {
                                low[l] = row[l] < low[l] ? row[l] : low[l];
                                high[l] = row[l] > high[l] ? row[l] : high[l];
                        }
                }
                for (int step = 0; step < 14; step++) {
                        for (size_t l = 0; l < DCI_LANES; l++) {
                                middle[l] = 0.5f * low[l] + 0.5f * high[l];
                                reached[l] = 0;
                        }
                        for (size_t r = 0; r < n_rows; r++) {
                                const float *row = products + r * ld + c;
                                for (size_t l = 0; l < DCI_LANES; l++)
                                        reached[l] += row[l] >= middle[l];
                        }
                        for (size_t l = 0; l < DCI_LANES; l++) {
                                bool enough = (size_t)reached[l] >= rank;
                                low[l] = enough ? middle[l] : low[l];
                                high[l] = enough ? high[l] : middle[l];
                        }
                }
                memcpy(out + c, low, sizeof low);
        }
}

DCI_INLINE V v_load_some(const float *p, size_t n)
{
        return n < DCI_LANES ? v_tail_f32(p, n) : v_load_f32(p);
}

DCI_INLINE void v_store_some(float *p, V a, size_t n)
{
        float last[DCI_LANES];
        if (n >= DCI_LANES) {
                v_store(p, a);
                return;
        }
        v_store(last, a);
        memcpy(p, last, n * sizeof *p);
}

#include "simd/kernels_tiles.h"

#include "simd/kernels_algebra.h"
#include "simd/kernels_attention.h"

/* Four vectors of rows at a time, so that the chains of maxima overlap. */
#define FARTHEST_VECTORS 4
DCI_INLINE void farthest_rows(const float *projections, size_t stride, size_t n_simple, const float *query,
                              const float *weights, const float *lifts, size_t n, size_t vectors, float *out)
{
        V most[FARTHEST_VECTORS], lift[FARTHEST_VECTORS];
        UNROLL for (size_t v = 0; v < FARTHEST_VECTORS; v++) most[v] = lift[v] = v_zero();
        if (lifts != NULL) {
                UNROLL for (size_t v = 0; v < vectors; v++) lift[v] =
                        v_load_some(lifts + v * DCI_LANES, n - v * DCI_LANES);
        }
        for (size_t j = 0; j < n_simple; j++) {
                const float *row = projections + j * stride;
                V at = v_all(query[j]), weight = v_all(weights != NULL ? weights[j] : 0.0f);
                UNROLL for (size_t v = 0; v < vectors; v++)
                {
                        V x = v_load_some(row + v * DCI_LANES, n - v * DCI_LANES);
                        if (lifts != NULL)
                                x = v_fma(weight, lift[v], x);
                        V difference = v_sub(x, at);
                        most[v] = v_max(most[v], v_max(difference, v_sub(v_zero(), difference)));
                }
        }
        UNROLL for (size_t v = 0; v < vectors; v++) v_store_some(out + v * DCI_LANES, most[v], n - v * DCI_LANES);
}

static void farthest(const float *projections, size_t stride, size_t n_simple, const float *query, const float *weights,
                     const float *lifts, size_t n, float *out)
{
        const size_t step = FARTHEST_VECTORS * DCI_LANES;
        size_t i = 0;
        if (lifts == NULL)
                for (; i + step <= n; i += step)
                        farthest_rows(projections + i, stride, n_simple, query, NULL, NULL, step, FARTHEST_VECTORS,
                                      out + i);
        else
                for (; i + step <= n; i += step)
                        farthest_rows(projections + i, stride, n_simple, query, weights, lifts + i, step,
                                      FARTHEST_VECTORS, out + i);
        for (; i < n; i += DCI_LANES)
                farthest_rows(projections + i, stride, n_simple, query, weights, lifts != NULL ? lifts + i : NULL,
                              n - i < DCI_LANES ? n - i : DCI_LANES, 1, out + i);
}

static void lift(const float *norms2, size_t n, float c_squared, float *out)
{
        V all = v_all(c_squared);
        for (size_t i = 0; i < n; i += DCI_LANES) {
                V rest = v_max(v_sub(all, v_load_some(norms2 + i, n - i)), v_zero());
                v_store_some(out + i, v_sqrt(rest), n - i);
        }
}

#ifndef OWN_KEEP_BETWEEN
static size_t keep_between(const float *values, size_t n, float low, float high, float *out, size_t *n_below)
{
        size_t kept = 0, below = 0;
        for (size_t i = 0; i < n; i++) {
                out[kept] = values[i];
                below += values[i] < low;
                kept += values[i] >= low && values[i] <= high;
        }
        *n_below += below;
        return kept;
}
#endif

static float kth_smallest(const float *values, size_t n, size_t k, int32_t *order)
{
        int32_t low, high;
        order_all(values, n, order, &low, &high);
        while (low < high) { /* at least k are at most high */
                int32_t middle = (int32_t)(((int64_t)low + high) >> 1);
                int32_t reached = 0;
                for (size_t i = 0; i < n; i++)
                        reached += order[i] <= middle;
                if ((size_t)reached < k)
                        low = middle + 1;
                else
                        high = middle;
        }
        return dci_bits_float((uint32_t)flip(high));
}

static void mark_at_most(const float *values, size_t n, float limit, uint64_t *bits)
{
        V most = v_all(limit);
        for (size_t i = 0; i < n; i += DCI_LANES) {
                uint64_t hits = v_hits(most, 0.0f, v_load_some(values + i, n - i));
                if (n - i < DCI_LANES)
                        hits &= (UINT64_C(1) << (n - i)) - 1;
                bits[i / 64] |= hits << (i % 64);
        }
}

#ifndef OWN_ADD_LOOKED_UP
static void add_looked_up(const uint8_t *codes, size_t ld, size_t n_blocks, const uint8_t *tables, size_t n,
                          uint16_t *out)
{
        for (size_t i = 0; i < n; i++)
                out[i] = 0;
        for (size_t b = 0; b < n_blocks; b++, codes += ld, tables += 256)
                for (size_t i = 0; i < n; i++)
                        out[i] = (uint16_t)(out[i] + tables[codes[i]]);
}
#endif

#ifndef OWN_TO_LEVELS
static void to_levels(const unsigned char *codes, size_t n_blocks, const float *levels, float *out)
{
        for (size_t b = 0; b < n_blocks; b++, codes += 4, out += 8) {
                uint16_t narrow;
                memcpy(&narrow, codes + 4 * (n_blocks - b) + 2 * b, sizeof narrow);
                const float weight = dci_bits_float((uint32_t)narrow << 16);
                for (size_t j = 0; j < 8; j++) {
                        const unsigned nibble = (unsigned)codes[j / 2] >> (4 * (j % 2)) & 15;
                        const float size = levels[nibble & 7] * weight;
                        out[j] = (nibble & 8) != 0 ? -size : size;
                }
        }
}
#endif

const dci_kernels TABLE = {
        .isa = ISA,
        .score_rows = {{dot_f32_rows, l2_f32_rows},
                       {dot_f16_rows, l2_f16_rows},
                       {dot_bf16_rows, l2_bf16_rows},
                       {dot_i8_rows, l2_i8_rows},
                       {dot_u8_rows, l2_u8_rows}},
        .score_strided = {{dot_f32_strided, l2_f32_strided},
                          {dot_f16_strided, l2_f16_strided},
                          {dot_bf16_strided, l2_bf16_strided},
                          {dot_i8_strided, l2_i8_strided},
                          {dot_u8_strided, l2_u8_strided}},
        .score_many = {{dot_f32_many, l2_f32_many},
                       {dot_f16_many, l2_f16_many},
                       {dot_bf16_many, l2_bf16_many},
                       {dot_i8_many, l2_i8_many},
                       {dot_u8_many, l2_u8_many}},
        .norm2 = {norm2_f32, norm2_f16, norm2_bf16, norm2_i8, norm2_u8},
        .add_rows = {add_rows_f32, add_rows_f16, add_rows_bf16, add_rows_i8, add_rows_u8},
        .to_f32 = {widen_f32, widen_f16, widen_bf16, widen_i8, widen_u8},
        .narrow = {narrow_f32, narrow_f16, narrow_bf16, narrow_i8, narrow_u8},
        .keep_at_least = keep_at_least,
        .keep_at_most = keep_at_most,
        .reached_by = reached_by,
        .columns_reached_by = columns_reached_by,
        .tile_hits = tile_hits,
        .columns_best = columns_best,
        .rows_hit = rows_hit,
        .pack_columns = pack_columns,
        .products = products,
        .extend = extend,
        .add_distances = add_distances,
        .farthest = farthest,
        .lift = lift,
        .keep_between = keep_between,
        .kth_smallest = kth_smallest,
        .mark_at_most = mark_at_most,
        .exp_all = exp_all,
        .greatest = greatest,
        .weigh = weigh,
        .split_weights = split_weights,
        .blend_many = {blend_many_f32, blend_many_f16, blend_many_bf16},
        .squares = squares,
        .dot_doubles = dot_doubles,
        .add_doubles = add_doubles,
        .add_two_doubles = add_two_doubles,
        .turn_doubles = turn_doubles,
        .add_looked_up = add_looked_up,
        .to_levels = to_levels,
};
