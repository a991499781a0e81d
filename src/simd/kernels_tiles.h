/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* A part of kernels_template.h: products of many rows with many, and scans of tiles of them. Defined before: as there,
 * and PRODUCT_ROWS (a multiple of 3) and PRODUCT_VECTORS (1 or 2): rows and vectors of columns whose sums fit in
 * registers. */
#include "simd/kernels.h"

static void tile_hits(const float *products, size_t ld, size_t n_rows, size_t n_groups, const float *offset,
                      const float *thresholds, uint16_t *out)
{
        for (size_t g = 0; g < n_groups; g++) {
                V limit = v_load_f32(thresholds + g * DCI_LANES);
                for (size_t r = 0; r < n_rows; r++)
                        out[r * n_groups + g] = v_hits(v_load_f32(products + r * ld + g * DCI_LANES), offset[r], limit);
        }
}

/* Chains of maxima that run side by side: one waits for itself. */
#define BEST_CHAINS 4

static void columns_best(const float *products, size_t ld, size_t n_rows, size_t n_columns, const float *offset,
                         float *out)
{
        for (size_t c = 0; c < n_columns; c += DCI_LANES) {
                V best[BEST_CHAINS];
                size_t r = 0;
                UNROLL for (size_t i = 0; i < BEST_CHAINS; i++) best[i] = v_all(-INFINITY);
                for (; r + BEST_CHAINS <= n_rows; r += BEST_CHAINS)
                        UNROLL for (size_t i = 0; i < BEST_CHAINS; i++) best[i] =
                                v_max(best[i], v_sub(v_load_f32(products + (r + i) * ld + c), v_all(offset[r + i])));
                for (; r < n_rows; r++)
                        best[0] = v_max(best[0], v_sub(v_load_f32(products + r * ld + c), v_all(offset[r])));
                UNROLL for (size_t i = 1; i < BEST_CHAINS; i++) best[0] = v_max(best[0], best[i]);
                v_store(out + c, best[0]);
        }
}

static size_t rows_hit(const float *products, size_t n_rows, const float *offset, const float *thresholds,
                       uint32_t *out_rows, uint32_t *out_bits)
{
        const V low = v_load_f32(thresholds), high = v_load_f32(thresholds + DCI_LANES);
        size_t n = 0;
        for (size_t r = 0; r < n_rows; r++) {
                const float *row = products + r * DCI_PRODUCT_COLUMNS;
                const uint32_t bits = v_hits(v_load_f32(row), offset[r], low) |
                                      (uint32_t)v_hits(v_load_f32(row + DCI_LANES), offset[r], high) << DCI_LANES;
                out_rows[n] = (uint32_t)r;
                out_bits[n] = bits;
                n += bits != 0;
        }
        return n;
}

static void pack_columns(const float *rows, size_t ld, size_t n_rows, size_t dim, float *out)
{
        for (size_t i = 0; i < DCI_PRODUCT_COLUMNS; i++)
                for (size_t p = 0; p < dim; p++)
                        out[p * DCI_PRODUCT_COLUMNS + i] = i < n_rows ? rows[i * ld + p] : 0.0f;
}

/* A few rows against PRODUCT_VECTORS vectors of columns: the sums stay in registers, every column that is loaded is
 * used for each row, every coordinate of a row for each vector. */
DCI_INLINE void product_block(const float *rows, size_t ld, size_t n_rows, const float *columns, size_t dim, bool first,
                              float *out)
{
        V sum[PRODUCT_ROWS][PRODUCT_VECTORS];
        UNROLL for (size_t r = 0; r < n_rows; r++)
        {
                UNROLL for (size_t v = 0; v < PRODUCT_VECTORS; v++) sum[r][v] =
                        first ? v_zero() : v_load_f32(out + r * DCI_PRODUCT_COLUMNS + v * DCI_LANES);
        }
        for (size_t p = 0; p < dim; p++) {
                V x[PRODUCT_VECTORS];
                UNROLL for (size_t v = 0; v < PRODUCT_VECTORS; v++) x[v] =
                        v_load_f32(columns + p * DCI_PRODUCT_COLUMNS + v * DCI_LANES);
                UNROLL for (size_t r = 0; r < n_rows; r++)
                {
                        V y = v_all(rows[r * ld + p]);
                        UNROLL for (size_t v = 0; v < PRODUCT_VECTORS; v++) sum[r][v] = v_fma(x[v], y, sum[r][v]);
                }
        }
        UNROLL for (size_t r = 0; r < n_rows; r++)
        {
                UNROLL for (size_t v = 0; v < PRODUCT_VECTORS; v++)
                        v_store(out + r * DCI_PRODUCT_COLUMNS + v * DCI_LANES, sum[r][v]);
        }
}

/* So many coordinates at a time that their columns stay in the first cache. */
#define PRODUCT_DIMS ((size_t)192)

static void products(const float *rows, size_t ld, size_t n_rows, const float *columns, size_t dim, float *out)
{
        for (size_t p = 0; p < dim; p += PRODUCT_DIMS) {
                const size_t here = dim - p < PRODUCT_DIMS ? dim - p : PRODUCT_DIMS;
                for (size_t c = 0; c < DCI_PRODUCT_COLUMNS; c += PRODUCT_VECTORS * DCI_LANES) {
                        const float *from = columns + p * DCI_PRODUCT_COLUMNS + c;
                        size_t r = 0;
                        for (; r + PRODUCT_ROWS <= n_rows; r += PRODUCT_ROWS)
                                product_block(rows + r * ld + p, ld, PRODUCT_ROWS, from, here, p == 0,
                                              out + r * DCI_PRODUCT_COLUMNS + c);
                        for (; r + PRODUCT_ROWS / 3 <= n_rows; r += PRODUCT_ROWS / 3)
                                product_block(rows + r * ld + p, ld, PRODUCT_ROWS / 3, from, here, p == 0,
                                              out + r * DCI_PRODUCT_COLUMNS + c);
                        for (; r < n_rows; r++)
                                product_block(rows + r * ld + p, ld, 1, from, here, p == 0,
                                              out + r * DCI_PRODUCT_COLUMNS + c);
                }
        }
}

/* --- rows of a page, coordinate by coordinate --------------------------------------------------------------------- */

#define PAGE_VECTORS 4 /* that pass over the rows together: chains that do not wait for each other */

DCI_INLINE void extend_some(const float *rows, size_t n_rows, size_t dim, size_t vectors, size_t left, float *most,
                            float *least)
{
        V high[PAGE_VECTORS], low[PAGE_VECTORS]; /* low: the greatest of what is negated */
        UNROLL for (size_t v = 0; v < vectors; v++)
        {
                high[v] = v_load_some(most + v * DCI_LANES, left - v * DCI_LANES);
                low[v] = v_sub(v_zero(), v_load_some(least + v * DCI_LANES, left - v * DCI_LANES));
        }
        for (size_t r = 0; r < n_rows; r++)
                UNROLL for (size_t v = 0; v < vectors; v++)
                {
                        const V x = v_load_some(rows + r * dim + v * DCI_LANES, left - v * DCI_LANES);
                        high[v] = v_max(x, high[v]);
                        low[v] = v_max(v_sub(v_zero(), x), low[v]);
                }
        UNROLL for (size_t v = 0; v < vectors; v++)
        {
                v_store_some(most + v * DCI_LANES, high[v], left - v * DCI_LANES);
                v_store_some(least + v * DCI_LANES, v_sub(v_zero(), low[v]), left - v * DCI_LANES);
        }
}

static void extend(const float *rows, size_t n_rows, size_t dim, float *most, float *least)
{
        size_t c = 0;
        for (; c + PAGE_VECTORS * DCI_LANES <= dim; c += PAGE_VECTORS * DCI_LANES)
                extend_some(rows + c, n_rows, dim, PAGE_VECTORS, PAGE_VECTORS * DCI_LANES, most + c, least + c);
        for (; c < dim; c += DCI_LANES)
                extend_some(rows + c, n_rows, dim, 1, dim - c, most + c, least + c);
}

DCI_INLINE void add_distances_some(const float *rows, size_t n_rows, size_t dim, size_t vectors, size_t left,
                                   const float *centre, float *out)
{
        V from[PAGE_VECTORS], sum[PAGE_VECTORS];
        UNROLL for (size_t v = 0; v < vectors; v++)
        {
                from[v] = v_load_some(centre + v * DCI_LANES, left - v * DCI_LANES);
                sum[v] = v_load_some(out + v * DCI_LANES, left - v * DCI_LANES);
        }
        for (size_t r = 0; r < n_rows; r++)
                UNROLL for (size_t v = 0; v < vectors; v++)
                {
                        const V x = v_sub(v_load_some(rows + r * dim + v * DCI_LANES, left - v * DCI_LANES), from[v]);
                        sum[v] = v_fma(v_max(x, v_sub(v_zero(), x)), v_all(1.0f), sum[v]);
                }
        UNROLL for (size_t v = 0; v < vectors; v++) v_store_some(out + v * DCI_LANES, sum[v], left - v * DCI_LANES);
}

static void add_distances(const float *rows, size_t n_rows, size_t dim, const float *centre, float *out)
{
        size_t c = 0;
        for (; c + PAGE_VECTORS * DCI_LANES <= dim; c += PAGE_VECTORS * DCI_LANES)
                add_distances_some(rows + c, n_rows, dim, PAGE_VECTORS, PAGE_VECTORS * DCI_LANES, centre + c, out + c);
        for (; c < dim; c += DCI_LANES)
                add_distances_some(rows + c, n_rows, dim, 1, dim - c, centre + c, out + c);
}
