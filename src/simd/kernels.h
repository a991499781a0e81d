/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The row kernels, one table per instruction set.
 *
 * Canonical order: a sum over dim elements is 16 partial sums, element i goes to partial i mod 16 by fused multiply-add
 * in ascending i; then partials l and l + 8 are added, l and l + 4, l and l + 2, and the last two. Every kernel of
 * every level but scalar follows it exactly, so a score does not depend on which kernel computed it. Scalar rounds
 * products too.
 *
 * Tolerance against exact arithmetic, u = 2^-24:  (dim / 16 + 6) u sum |a_i b_i|, and (dim / 16 + 8) u of the sum for
 * squared differences (scalar: one u more per term of the chain).
 *
 * Rows come as pointers, so that contiguous chunks, borrowed rows, gathered ids and pages are one case; they need only
 * the alignment of their elements. Queries are float. dim >= 1. */
#ifndef DCI_SIMD_KERNELS_H
#define DCI_SIMD_KERNELS_H

#include "core/internal.h"

enum { DCI_FORM_DOT = 0, DCI_FORM_L2 = 1, DCI_N_FORMS = 2 };
#define DCI_N_DTYPES 5 /* index: dtype - 1 */
#define DCI_N_FLOATS 3 /* of these, the first: f32, f16, bf16 */

/* Elements of 8 bits whose products and squared differences 32 bits can sum: up to (255 + 128)^2 each. */
#define DCI_INTEGER_PART ((size_t)14336)

/* Most queries of one score_many call, and the columns that tile kernels work on at a time. */
#define DCI_MANY_QUERIES 8
#define DCI_LANES 16
#define DCI_PRODUCT_COLUMNS 32
#define DCI_SPLIT_MOST 128
#define DCI_SPLIT_UNITS 16383.0f

/* out[i] = query . rows[i], or |query - rows[i]|^2. */
typedef void (*dci_score_rows_fn)(const float *query, const void *const *rows, size_t n_rows, size_t dim, float *out);

/* The same for rows `stride` bytes apart, which saves making the pointers. */
typedef void (*dci_score_strided_fn)(const float *query, const void *base, size_t stride, size_t n_rows, size_t dim,
                                     float *out);

/* out[q * ld_out + i]: 1 to 8 queries, ld_query elements apart, against all rows in one pass over them. */
typedef void (*dci_score_many_fn)(const float *queries, size_t ld_query, size_t n_queries, const void *const *rows,
                                  size_t n_rows, size_t dim, float *out, size_t ld_out);

/* Sums of rows, for several queries that weigh them differently. */
typedef void (*dci_blend_many_fn)(const void *const *rows, const float *weights, size_t ld_weights, size_t n_queries,
                                  size_t n_rows, size_t dim, float *out, size_t ld_out);

typedef struct dci_kernels {
        dci_isa isa;
        dci_score_rows_fn score_rows[DCI_N_DTYPES][DCI_N_FORMS];
        dci_score_strided_fn score_strided[DCI_N_DTYPES][DCI_N_FORMS];
        dci_score_many_fn score_many[DCI_N_DTYPES][DCI_N_FORMS];

        /* Squared norm of one row in the canonical order; not finite exactly if the row has NaN or infinity, or
         * overflows. Of 8-bit rows: the exact sum, rounded once. */
        float (*norm2[DCI_N_DTYPES])(const void *row, size_t dim);

        /* out[p] += sum over i < n of weights[i] * rows[i][p], i ascending, by fused multiply-add; NULL: all 1. */
        void (*add_rows[DCI_N_DTYPES])(const void *const *rows, const float *weights, size_t n, size_t dim, float *out);

        /* Elements to float (exact), and float to elements by rounding to nearest even; 8-bit ones end at their
         * bounds. */
        void (*to_f32[DCI_N_DTYPES])(const void *in, size_t n, float *out);
        void (*narrow[DCI_N_DTYPES])(const float *in, size_t n, void *out);

        /* Appends i and values[i] for all i in [0, n) with values[i] >= threshold (descending: better) or <=
         * (ascending), in order; room for n + 16 at both outputs. Returns how many. */
        size_t (*keep_at_least)(const float *values, size_t n, float threshold, float *out_values, int32_t *out_index);
        size_t (*keep_at_most)(const float *values, size_t n, float threshold, float *out_values, int32_t *out_index);

        /* A number that at least k of n values reach and, unless many are equal, at most k / 8 more: a bound from below
         * on the k-th largest. 1 <= k <= n, no NaN; order: scratch for n. */
        float (*reached_by)(const float *values, size_t n, size_t k, int32_t *order);

        /* Per column c < n_columns (a multiple of 16): a number that at least `rank` of the n_rows products[row * ld +
         * c] reach, and few more. 1 <= rank <= n_rows, no NaN. */
        void (*columns_reached_by)(const float *products, size_t ld, size_t n_rows, size_t n_columns, size_t rank,
                                   float *out);

        /* Bit q of out[row * n_groups + g] is set unless products[row * ld + 16 g + q] - offset[row] < thresholds[16 g
         * + q]: a NaN counts as a hit, because a candidate too many costs time and one too few is wrong. */
        void (*tile_hits)(const float *products, size_t ld, size_t n_rows, size_t n_groups, const float *offset,
                          const float *thresholds, uint16_t *out);

        /* The largest products[row * ld + c] - offset[row] of each column c < n_columns (a multiple of 16). No NaN. */
        void (*columns_best)(const float *products, size_t ld, size_t n_rows, size_t n_columns, const float *offset,
                             float *out);

        /* Of DCI_PRODUCT_COLUMNS columns: appends each row r with a hit as tile_hits means it, and its 32 bits. Room
         * for n_rows + 1 at both outputs. Returns how many. */
        size_t (*rows_hit)(const float *products, size_t n_rows, const float *offset, const float *thresholds,
                           uint32_t *out_rows, uint32_t *out_bits);

        /* Columns of DCI_PRODUCT_COLUMNS rows (fewer: zeros), by coordinate: out[p * DCI_PRODUCT_COLUMNS + i]. */
        void (*pack_columns)(const float *rows, size_t ld, size_t n_rows, size_t dim, float *out);

        /* out[r * DCI_PRODUCT_COLUMNS + c] = rows[r] . column c of packed columns, summed in ascending order by fused
         * multiply-add (scalar: product by product). Ranks candidates; the row kernels decide. */
        void (*products)(const float *rows, size_t ld, size_t n_rows, const float *columns, size_t dim, float *out);

        /* Of contiguous rows, by coordinate: most[j] and least[j] become the extremes of themselves and all rows; and
         * out[j] += |row[j] - centre[j]|, row by row. The same bits at every level, but for a zero's sign. No NaN. */
        void (*extend)(const float *rows, size_t n_rows, size_t dim, float *most, float *least);
        void (*add_distances)(const float *rows, size_t n_rows, size_t dim, const float *centre, float *out);

        /* The largest projected difference of each row (P-DCI): out[i] = max over j < n_simple of |projections[j *
         * stride + i] + weights[j] * lifts[i] - query[j]|; weights and lifts may be NULL, both. No NaN. */
        void (*farthest)(const float *projections, size_t stride, size_t n_simple, const float *query,
                         const float *weights, const float *lifts, size_t n, float *out);

        /* The last coordinate of the unscaled MIPS lift: out[i] = sqrt(max(c_squared - norms2[i], 0)). */
        void (*lift)(const float *norms2, size_t n, float c_squared, float *out);

        /* Appends the values in [low, high], in order; adds to *n_below how many are less than low. Room for n + 16. */
        size_t (*keep_between)(const float *values, size_t n, float low, float high, float *out, size_t *n_below);

        /* The k-th smallest of n values, exactly. 1 <= k <= n, no NaN; order: scratch for n. */
        float (*kth_smallest)(const float *values, size_t n, size_t k, int32_t *order);

        /* Sets bit i of `bits` where values[i] <= limit; leaves the others as they are. No NaN. */
        void (*mark_at_most)(const float *values, size_t n, float limit, uint64_t *bits);

        /* values[i] = exp(values[i] - shift), the difference rounded to float, and returns their canonical sum (element
         * i goes to partial i mod 16). The difference may be at most 88, shift is finite, no NaN; -INFINITY gives 0.
         * Relative error at most 1.5e-7 from -87 on; below that a number of at most 2e-38, and 0 from -88 on. */
        float (*exp_all)(float *values, size_t n, float shift);

        /* out[q * ld_out + p] += sum over i < n_rows of weights[q * ld_weights + i] * rows[i][p]: the same bits as
         * add_rows for each of 1 to 8 queries, in one pass over the rows. */
        dci_blend_many_fn blend_many[DCI_N_FLOATS];

        /* The greatest of n values; -infinity for none. No NaN. */
        float (*greatest)(const float *values, size_t n);

        /* out[i] = sum over r < n_rows of weights[r] * rows[r * ld + i], r ascending, by fused multiply-add. */
        void (*weigh)(const float *rows, size_t ld, size_t n_rows, const float *weights, size_t n, float *out);

        /* terms[i] * scales[i], not negative, as whole numbers of 14 bits, rounded: 128 high[i] + low[i], of which the
         * greatest is DCI_SPLIT_UNITS. Returns what one of them is worth, a finite number; out_total: their sum. n <=
         * DCI_SPLIT_MOST. A product that is negative, infinite or NaN counts nothing, and changes no other. */
        float (*split_weights)(const float *terms, const float *scales, size_t n, int8_t *high, int8_t *low,
                               int64_t *out_total);

        /* out[i * ld + j] = sum over p < n of x[p * ld + i] * x[p * ld + j], for j <= i < dim, p ascending, by fused
         * multiply-add (scalar: product by product). dim <= ld, a multiple of DCI_PRODUCT_COLUMNS; out: ld x ld, all
         * may change. */
        void (*squares)(const float *x, size_t ld, size_t n, size_t dim, float *out);

        /* Small matrices in double precision, products and sums rounded one by one, the same bits at every level. The
         * sum of a[i] * b[i]: eight partial sums and a tree, then that of the last n mod 8; to[i] += factor * from[i];
         * to[i] = (to[i] + by_a * a[i]) + by_b * b[i]; and the rotation lower[i] = s * upper[i] + c * lower[i],
         * upper[i] = c * upper[i] - s * lower[i]. No two overlap. */
        double (*dot_doubles)(const double *a, const double *b, size_t n);
        void (*add_doubles)(double *to, const double *from, double factor, size_t n);
        void (*add_two_doubles)(double *to, const double *a, double by_a, const double *b, double by_b, size_t n);
        void (*turn_doubles)(double *upper, double *lower, double c, double s, size_t n);

        /* out[i] = sum over b < n_blocks of tables[256 b + codes[b * ld + i]], i < n. Exact: sums are below 2^16. */
        void (*add_looked_up)(const uint8_t *codes, size_t ld, size_t n_blocks, const uint8_t *tables, size_t n,
                              uint16_t *out);

        /* Coordinate j of block b, of eight: nibble j of the four bytes from codes + 4 b on; its lower three bits are
         * the number of a level, the highest one is set if it is negative. The weights of blocks follow the codes as
         * bf16, at any address: out[8 b + j] = +-levels[number] * weight. */
        void (*to_levels)(const unsigned char *codes, size_t n_blocks, const float *levels, float *out);
} dci_kernels;

/* AMX: products of bf16-rounded rows and queries, for ranking only. dim_padded is a multiple of 32. Packed rows: groups
 * of 16, in each group the tiles that the unit loads, contiguous: [dim_padded / 32][16][32]; row r is written from
 * dci_amx_row on, DCI_AMX_STEP from each 32 coordinates to the next. Packed queries: groups of 16, in each group pairs
 * of coordinates interleaved as the unit wants them: [dim_padded / 2][16][2]. */
#define DCI_AMX_STEP ((size_t)512)
DCI_INLINE size_t dci_amx_row(size_t r, size_t dim_padded)
{
        return r / 16 * 16 * dim_padded + r % 16 * 32;
}

typedef struct dci_amx_kernels {
        /* Rounds one row to bf16, zero padded, its 32s of coordinates `step` apart in out. Returns the squared norm of
         * what rounding took away; *out_norm2 is that of the row, summed in another order than norm2 does. */
        float (*pack_row)(const float *row, size_t dim, size_t dim_padded, uint16_t *out, size_t step,
                          float *out_norm2);
        /* Places a row that was packed with step 32 as query `q` of 16. */
        void (*place_query)(const uint16_t *packed, size_t dim_padded, size_t q, uint16_t *group);
        /* Tile registers of this thread: taken before products, given back after the last. */
        void (*begin)(void);
        void (*end)(void);
        /* products[row * ld + query], n_rows a multiple of 32, n_groups a multiple of 2. */
        void (*products)(const uint16_t *rows, size_t n_rows, size_t dim_padded, const uint16_t *queries,
                         size_t n_groups, float *products, size_t ld);
} dci_amx_kernels;

extern const dci_kernels dci_kernels_scalar;
#if defined(__x86_64__)
extern const dci_kernels dci_kernels_avx2;
extern const dci_kernels dci_kernels_avx512;
extern const dci_amx_kernels dci_kernels_amx;
#elif defined(__aarch64__)
extern const dci_kernels dci_kernels_neon;
#endif

/* NULL where the context's level has no tiles. */
const dci_amx_kernels *dci_amx_for(const dci_context *context);

#endif
