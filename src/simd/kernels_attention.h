/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* A part of kernels_template.h: exponentials of scores, and rows summed by many weights at once. Defined before: as
 * there, and
 *
 *   v_power(t)     2^k, where the lowest 9 bits of t hold k + 127, k from -127 (which gives 0) to 127
 *   BLEND_SUMS     vectors of sums that fit in registers with one of a row and one of a weight */
#include "simd/kernels.h"

/* exp(x) = 2^k exp(r): adding EXP_ROUND leaves k, the whole number nearest to x / ln 2, in the lowest bits of a float,
 * with the exponent's bias already on it. ln 2 is taken off in two parts, the first of so few bits that its products
 * with k are exact even without fused multiply-add. r is in [-0.347, 0.347], where 1 + r + r^2 q(r), q of degree 4
 * through the Chebyshev nodes, is right to 1.1e-8. Multiplying by 2^k comes last and as one step, so that the result is
 * rounded once, also where it is subnormal. Below -87.7 the power is 0: lower bounds need no mask. */
#define EXP_ROUND (0x1.8p23f + 127.0f)
#define EXP_LOWEST (-88.0f)

DCI_INLINE V v_exp(V x)
{
        const V to_whole = v_all(EXP_ROUND);
        x = v_max(x, v_all(EXP_LOWEST));
        const V t = v_fma(x, v_all(0x1.715476p+0f), to_whole), k = v_sub(t, to_whole), power = v_power(t);
        V r = v_fma(k, v_all(-0x1.62e4p-1f), x);
        r = v_fma(k, v_all(-0x1.7f7d1cp-20f), r);
        V q = v_all(0x1.6d11fep-10f);
        q = v_fma(q, r, v_all(0x1.120c62p-7f));
        q = v_fma(q, r, v_all(0x1.555518p-5f));
        q = v_fma(q, r, v_all(0x1.5554dcp-3f));
        q = v_fma(q, r, v_all(0.5f));
        return v_fma(v_fma(v_fma(r, r, v_zero()), q, r), power, power);
}

static float exp_all(float *values, size_t n, float shift)
{
        const V by = v_all(shift), one = v_all(1.0f);
        V sums[GROUP];
        float out[GROUP], last[DCI_LANES];
        for (size_t i = 0; i < GROUP; i++)
                sums[i] = v_zero();
        size_t i = 0;
        for (; i + DCI_LANES <= n; i += DCI_LANES) {
                const V x = v_exp(v_sub(v_load_f32(values + i), by));
                v_store(values + i, x);
                sums[0] = v_fma(x, one, sums[0]);
        }
        if (i < n) { /* what is missing counts nothing */
                v_store(last, v_all(-INFINITY));
                memcpy(last, values + i, (n - i) * sizeof *last);
                const V x = v_exp(v_sub(v_load_f32(last), by));
                v_store_some(values + i, x, n - i);
                sums[0] = v_fma(x, one, sums[0]);
        }
        v_reduce(sums, out);
        return out[0];
}

static float greatest(const float *values, size_t n)
{
        V most[2] = {v_all(-INFINITY), v_all(-INFINITY)};
        float lanes[DCI_LANES], out = -INFINITY;
        size_t i = 0;
        for (; i + 2 * DCI_LANES <= n; i += 2 * DCI_LANES) {
                most[0] = v_max(most[0], v_load_f32(values + i));
                most[1] = v_max(most[1], v_load_f32(values + i + DCI_LANES));
        }
        v_store(lanes, v_max(most[0], most[1]));
        for (size_t l = 0; l < DCI_LANES; l++)
                out = lanes[l] > out ? lanes[l] : out;
        for (; i < n; i++)
                out = values[i] > out ? values[i] : out;
        return out;
}

static void weigh(const float *rows, size_t ld, size_t n_rows, const float *weights, size_t n, float *out)
{
        for (size_t i = 0; i < n; i += DCI_LANES) {
                V sum = v_zero();
                for (size_t r = 0; r < n_rows; r++)
                        sum = v_fma(v_load_some(rows + r * ld + i, n - i), v_all(weights[r]), sum);
                v_store_some(out + i, sum, n - i);
        }
}

/* Plain loops: compilers make vectors of them. */
static float split_weights(const float *terms, const float *scales, size_t n, int8_t *high, int8_t *low,
                           int64_t *out_total)
{
        float most = 0.0f, product[DCI_SPLIT_MOST];
        int32_t total = 0;
        for (size_t i = 0; i < n; i++) {
                /* NaN, infinity and what is negative, which no scale of a coder brings, count nothing. */
                const float weight = terms[i] * scales[i];
                product[i] = weight > 0.0f && weight < INFINITY ? weight : 0.0f;
                most = product[i] > most ? product[i] : most;
        }
        const float inverse = most > 0x1p-100f ? DCI_SPLIT_UNITS / most : 0.0f;
        for (size_t i = 0; i < n; i++) {
                const int32_t w = (int32_t)(product[i] * inverse + 0.5f); /* at most DCI_SPLIT_UNITS */
                high[i] = (int8_t)(w >> 7);
                low[i] = (int8_t)(w & 127);
                total += w;
        }
        *out_total = total;
        return most / DCI_SPLIT_UNITS;
}

/* Queries that share what is loaded of a row, and vectors of columns at a time: with few queries more, because one sum
 * after the other would wait for itself, but not so many that the queries' weights find no room. */
#define BLEND_QUERIES (BLEND_SUMS < DCI_MANY_QUERIES ? BLEND_SUMS : DCI_MANY_QUERIES)
#define BLEND_VECTORS(n_queries) (BLEND_SUMS / (n_queries) >= 4 ? 4 : BLEND_SUMS / (n_queries) >= 3 ? 2 : 1)

/* So many bytes of rows at a time: they stay in the first cache while their columns and, where registers hold too few,
 * groups of queries pass. Meanwhile the next rows are fetched: no prefetcher knows where they are. */
#define BLEND_BYTES ((size_t)4096)
#define BLEND_FEWEST ((size_t)16)

/* `ahead`: as many rows that will be next. */
#define DEFINE_BLEND(dtype, T)                                                                                         \
        DCI_INLINE void blend_block_##dtype(const void *const *rows, const void *const *ahead, const float *weights,   \
                                            size_t ld_weights, size_t n_queries, size_t n_rows, size_t column,         \
                                            size_t vectors, size_t tail, float *out, size_t ld_out)                    \
        {                                                                                                              \
                V sum[BLEND_QUERIES][4];                                                                               \
                UNROLL for (size_t q = 0; q < n_queries; q++)                                                          \
                {                                                                                                      \
                        UNROLL for (size_t v = 0; v < vectors; v++) sum[q][v] =                                        \
                                tail != 0 ? v_tail_f32(out + q * ld_out, tail)                                         \
                                          : v_load_f32(out + q * ld_out + v * DCI_LANES);                              \
                }                                                                                                      \
                for (size_t i = 0; i < n_rows; i++) {                                                                  \
                        const T *row = (const T *)rows[i] + column, *later = (const T *)ahead[i] + column;             \
                        UNROLL for (size_t v = 0; v < vectors; v++)                                                    \
                        {                                                                                              \
                                V x = tail != 0 ? v_tail_##dtype(row, tail) : v_load_##dtype(row + v * DCI_LANES);     \
                                if (v * DCI_LANES * sizeof(T) % DCI_CACHE_LINE == 0)                                   \
                                        DCI_PREFETCH(later + v * DCI_LANES);                                           \
                                UNROLL for (size_t q = 0; q < n_queries; q++) sum[q][v] =                              \
                                        v_fma(x, v_all(weights[q * ld_weights + i]), sum[q][v]);                       \
                        }                                                                                              \
                }                                                                                                      \
                UNROLL for (size_t q = 0; q < n_queries; q++)                                                          \
                {                                                                                                      \
                        UNROLL for (size_t v = 0; v < vectors; v++) v_store_some(                                      \
                                out + q * ld_out + v * DCI_LANES, sum[q][v], tail != 0 ? tail : DCI_LANES);            \
                }                                                                                                      \
        }                                                                                                              \
                                                                                                                       \
        /* Inlined with a constant number of queries. */                                                               \
        DCI_INLINE void blend_columns_##dtype(const void *const *rows, const void *const *ahead, const float *weights, \
                                              size_t ld_weights, size_t n_queries, size_t n_rows, size_t dim,          \
                                              float *out, size_t ld_out)                                               \
        {                                                                                                              \
                const size_t vectors = BLEND_VECTORS(n_queries), step = vectors * DCI_LANES;                           \
                size_t p = 0;                                                                                          \
                for (; p + step <= dim; p += step)                                                                     \
                        blend_block_##dtype(rows, ahead, weights, ld_weights, n_queries, n_rows, p, vectors, 0,        \
                                            out + p, ld_out);                                                          \
                for (; vectors > 1 && p + DCI_LANES <= dim; p += DCI_LANES)                                            \
                        blend_block_##dtype(rows, ahead, weights, ld_weights, n_queries, n_rows, p, 1, 0, out + p,     \
                                            ld_out);                                                                   \
                if (p < dim)                                                                                           \
                        blend_block_##dtype(rows, ahead, weights, ld_weights, n_queries, n_rows, p, 1, dim - p,        \
                                            out + p, ld_out);                                                          \
        }                                                                                                              \
                                                                                                                       \
        static void blend_some_##dtype(const void *const *rows, const void *const *ahead, const float *weights,        \
                                       size_t ld_weights, size_t n_queries, size_t n_rows, size_t dim, float *out,     \
                                       size_t ld_out)                                                                  \
        {                                                                                                              \
                switch (n_queries) {                                                                                   \
                        BLEND_CASE(dtype, 1)                                                                           \
                        BLEND_CASE(dtype, 2)                                                                           \
                        BLEND_CASE(dtype, 3)                                                                           \
                        BLEND_CASE(dtype, 4)                                                                           \
                        BLEND_CASE(dtype, 5)                                                                           \
                        BLEND_CASE(dtype, 6)                                                                           \
                        BLEND_CASE(dtype, 7)                                                                           \
                        BLEND_CASE(dtype, 8)                                                                           \
                }                                                                                                      \
        }                                                                                                              \
                                                                                                                       \
        static void blend_many_##dtype(const void *const *rows, const float *weights, size_t ld_weights,               \
                                       size_t n_queries, size_t n_rows, size_t dim, float *out, size_t ld_out)         \
        {                                                                                                              \
                const size_t fit = BLEND_BYTES / (dim * sizeof(T)), most = fit < BLEND_FEWEST ? BLEND_FEWEST : fit;    \
                const size_t n_groups = (n_queries + BLEND_QUERIES - 1) / BLEND_QUERIES;                               \
                for (size_t r = 0, here; r < n_rows; r += here) {                                                      \
                        const size_t rest = n_rows - r;                                                                \
                        here = rest < most ? rest : most;                                                              \
                        /* Where fewer follow than are here, some of these stand in for what is missing. */            \
                        const void *const *ahead = rows + r + (rest - here < here ? rest - here : here);               \
                        for (size_t g = 0; g < n_groups; g++) { /* of sizes that differ by one at most */              \
                                const size_t q = n_queries * g / n_groups, end = n_queries * (g + 1) / n_groups;       \
                                blend_some_##dtype(rows + r, ahead, weights + q * ld_weights + r, ld_weights, end - q, \
                                                   here, dim, out + q * ld_out, ld_out);                               \
                        }                                                                                              \
                }                                                                                                      \
        }

/* A number that cannot come up, since registers hold fewer, is the code of the largest that can. */
#define BLEND_CASE(dtype, n)                                                                                           \
        case n:                                                                                                        \
                blend_columns_##dtype(rows, ahead, weights, ld_weights, (n) < BLEND_QUERIES ? (n) : BLEND_QUERIES,     \
                                      n_rows, dim, out, ld_out);                                                       \
                break;

DEFINE_BLEND(f32, float)
DEFINE_BLEND(f16, uint16_t)
DEFINE_BLEND(bf16, uint16_t)
