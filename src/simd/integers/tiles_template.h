/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Products of tiles of integers, included once by each file of tiles, which defines before:
 *
 *   E                         an element of packed rows and queries
 *   TOGETHER                  consecutive elements of a query that are packed side by side: a group of columns is
 *                             [dim_padded / TOGETHER][DCI_LANES][TOGETHER]
 *   PADDING                   dim_padded is a multiple of it
 *   PIECE(dim_padded)         elements of a row that are packed side by side; a divisor of dim_padded
 *   PIECE_AT(rows, r, p, dim_padded)    where those of row r from element p on are
 *   BIAS_I8, BIAS_U8, QUERY_BIAS        see dci_integer_tiles
 *   BEGIN, END, TILES_TABLE
 *   products(rows, n_rows, dim_padded, queries, out)    as the table wants it; or else
 *   S, s_zero(), s_store(out, s)        DCI_LANES sums
 *   B, s_row(p)               TOGETHER elements of a row, for every lane
 *   s_add(s, b, queries)      adds the products with DCI_LANES columns
 *   AT_ONCE_ROWS, AT_ONCE_GROUPS        sums that fit the registers: a divisor of DCI_INTEGER_ROWS, 1 or 2 */
#include "simd/integers/integers.h"

#define COLUMNS DCI_PRODUCT_COLUMNS

#ifndef OWN_PRODUCTS
DCI_INLINE void multiply_some(const E *rows, size_t dim_padded, const E *queries, size_t n_groups, int32_t *out)
{
        S sum[AT_ONCE_ROWS * AT_ONCE_GROUPS];
        UNROLL for (size_t i = 0; i < AT_ONCE_ROWS * AT_ONCE_GROUPS; i++) sum[i] = s_zero();
        for (size_t p = 0; p < dim_padded; p += TOGETHER) {
                UNROLL for (size_t r = 0; r < AT_ONCE_ROWS; r++)
                {
                        const B row = s_row(rows + r * dim_padded + p);
                        UNROLL for (size_t g = 0; g < n_groups; g++)
                        {
                                const size_t i = r * n_groups + g;
                                sum[i] = s_add(sum[i], row, queries + (g * dim_padded + p) * DCI_LANES);
                        }
                }
        }
        UNROLL for (size_t r = 0; r < AT_ONCE_ROWS; r++)
        {
                UNROLL for (size_t g = 0; g < n_groups; g++)
                        s_store(out + r * COLUMNS + g * DCI_LANES, sum[r * n_groups + g]);
        }
}

static void products(const void *rows, size_t n_rows, size_t dim_padded, const void *queries, int32_t *out)
{
        for (size_t g = 0; g < COLUMNS / DCI_LANES; g += AT_ONCE_GROUPS)
                for (size_t r = 0; r < n_rows; r += AT_ONCE_ROWS)
                        multiply_some((const E *)rows + r * dim_padded, dim_padded,
                                      (const E *)queries + g * DCI_LANES * dim_padded, AT_ONCE_GROUPS,
                                      out + r * COLUMNS + g * DCI_LANES);
}
#endif

/* n elements, with their sum and that of their squares added to what was. */
#define DEFINE_PACK(name, T, bias)                                                                                     \
        DCI_INLINE void name(const T *restrict row, size_t n, E *restrict out, uint32_t *sum, uint32_t *norm2)         \
        {                                                                                                              \
                uint32_t all = 0, squares = 0;                                                                         \
                for (size_t p = 0; p < n; p++) {                                                                       \
                        const int32_t x = (int32_t)row[p];                                                             \
                        all += (uint32_t)x;                                                                            \
                        squares += (uint32_t)(x * x);                                                                  \
                        out[p] = (E)(x + (bias));                                                                      \
                }                                                                                                      \
                *sum += all;                                                                                           \
                *norm2 += squares;                                                                                     \
        }

DEFINE_PACK(pack_i8, int8_t, BIAS_I8)
DEFINE_PACK(pack_u8, uint8_t, BIAS_U8)

static void pack_row(const void *row, dci_dtype dtype, size_t dim, size_t dim_padded, void *rows, size_t r,
                     uint32_t *out_sum, uint32_t *out_norm2)
{
        const size_t piece = PIECE(dim_padded);
        *out_sum = *out_norm2 = 0;
        for (size_t p = 0; p < dim_padded; p += piece) {
                E *out = PIECE_AT(rows, r, p, dim_padded);
                const size_t left = p < dim ? dim - p : 0, n = left < piece ? left : piece;
                if (dtype == DCI_I8)
                        pack_i8((const int8_t *)row + p, n, out, out_sum, out_norm2);
                else
                        pack_u8((const uint8_t *)row + p, n, out, out_sum, out_norm2);
                memset(out + n, 0, (piece - n) * sizeof *out);
        }
}

static void place_query(const int16_t *query, int16_t bias, size_t dim, size_t dim_padded, void *group, size_t q)
{
        E *out = group;
        for (size_t p = 0; p < dim_padded; p++)
                out[(p / TOGETHER * DCI_LANES + q) * TOGETHER + p % TOGETHER] = (E)(p < dim ? query[p] - bias : 0);
}

/* Scores of a row for DCI_LANES columns. */
DCI_INLINE void finish_lanes(const dci_integer_terms *terms, size_t r, size_t column, bool scaled, void *products)
{
        const uint32_t *masks = terms->column_masks + column, *adds = terms->column_terms + column;
        const uint32_t sum = terms->row_sums[r], add = terms->row_terms[r], factor = terms->factor;
        const float scale = scaled ? terms->row_scales[r] : 1.0f;
        const float *scales = scaled ? terms->column_scales + column : NULL;
        uint32_t product[DCI_LANES];
        float score[DCI_LANES];
        memcpy(product, products, sizeof product);
        for (size_t l = 0; l < DCI_LANES; l++)
                product[l] = factor * (product[l] + (sum & masks[l])) + add + adds[l];
        for (size_t l = 0; l < DCI_LANES; l++)
                score[l] = (float)(int32_t)product[l];
        for (size_t l = 0; scaled && l < DCI_LANES; l++)
                score[l] = score[l] * scale * scales[l];
        memcpy(products, score, sizeof score);
}

static void finish(const dci_integer_terms *terms, size_t n_rows, void *products)
{
        int32_t *out = products;
        for (size_t r = 0; r < n_rows; r++)
                for (size_t c = 0; c < COLUMNS; c += DCI_LANES) {
                        if (terms->row_scales != NULL)
                                finish_lanes(terms, r, c, true, out + r * COLUMNS + c);
                        else
                                finish_lanes(terms, r, c, false, out + r * COLUMNS + c);
                }
}

const dci_integer_tiles TILES_TABLE = {
        .element_bytes = sizeof(E),
        .padding = PADDING,
        .row_bias = {BIAS_I8, BIAS_U8},
        .query_bias = QUERY_BIAS,
        .pack_row = pack_row,
        .place_query = place_query,
        .begin = BEGIN,
        .end = END,
        .products = products,
        .finish = finish,
};
