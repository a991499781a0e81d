/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Products of bf16 tiles for Intel CPUs with AMX-BF16 (Sapphire Rapids and later): 16 times the multiply-adds per cycle
 * of AVX-512. They rank candidates in batches; the canonical kernels decide. */
#include "core/internal.h"

#include <immintrin.h>
#include <string.h>

#include "simd/convert.h"
#include "simd/kernels.h"

#define TILE_ROWS 16
#define TILE_DIMS 32 /* bf16 in the 64 bytes of a tile row */

static float pack_row(const float *row, size_t dim, size_t dim_padded, uint16_t *out, size_t step, float *out_norm2)
{
        __m512 lost = _mm512_setzero_ps(), norm2 = lost;
        for (size_t p = 0; p < dim_padded; p += 16) {
                size_t left = p < dim ? dim - p : 0;
                __mmask16 valid = left < 16 ? (__mmask16)((1u << left) - 1) : (__mmask16)0xffff;
                __m512 x = _mm512_maskz_loadu_ps(valid, row + (left > 0 ? p : 0));
                __m256i half = (__m256i)_mm512_cvtneps_pbh(x);
                __m512 back = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
                __m512 difference = _mm512_sub_ps(x, back);
                lost = _mm512_fmadd_ps(difference, difference, lost);
                norm2 = _mm512_fmadd_ps(x, x, norm2);
                _mm256_storeu_si256((__m256i *)(out + p / TILE_DIMS * step + p % TILE_DIMS), half);
        }
        *out_norm2 = _mm512_reduce_add_ps(norm2);
        return _mm512_reduce_add_ps(lost);
}

static void place_query(const uint16_t *packed, size_t dim_padded, size_t q, uint16_t *group)
{
        for (size_t pair = 0; pair < dim_padded / 2; pair++)
                memcpy(group + (pair * TILE_ROWS + q) * 2, packed + pair * 2, 2 * sizeof *packed);
}

/* The layout that _tile_loadconfig reads. */
typedef struct tile_config {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
} tile_config;

/* Static: gcc 12 believes that the instruction reads 8 bytes, and drops what else a local configuration holds. */
static void begin(void)
{
        static const tile_config config = {
                .palette = 1,
                .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                .rows = {TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS}};
        _tile_loadconfig(&config);
}

static void end(void)
{
        _tile_release();
}

/* 32 rows x 32 queries in four accumulators: every loaded tile is used twice. */
DCI_INLINE void block(const uint16_t *rows, size_t dim_padded, const uint16_t *query_0, const uint16_t *query_1,
                      float *out, size_t ld)
{
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (size_t p = 0; p < dim_padded; p += TILE_DIMS) {
                _tile_loadd(4, rows + p * TILE_ROWS, 64);
                _tile_loadd(6, query_0 + p * TILE_ROWS, 64);
                _tile_dpbf16ps(0, 4, 6);
                _tile_loadd(7, query_1 + p * TILE_ROWS, 64);
                _tile_dpbf16ps(1, 4, 7);
                _tile_loadd(5, rows + (dim_padded + p) * TILE_ROWS, 64);
                _tile_dpbf16ps(2, 5, 6);
                _tile_dpbf16ps(3, 5, 7);
        }
        const size_t out_bytes = ld * sizeof *out;
        _tile_stored(0, out, out_bytes);
        _tile_stored(1, out + TILE_ROWS, out_bytes);
        _tile_stored(2, out + TILE_ROWS * ld, out_bytes);
        _tile_stored(3, out + TILE_ROWS * ld + TILE_ROWS, out_bytes);
}

static void products(const uint16_t *rows, size_t n_rows, size_t dim_padded, const uint16_t *queries, size_t n_groups,
                     float *out, size_t ld)
{
        const size_t group = dim_padded * TILE_ROWS;
        /* Tile loads do not tell gcc 12 that they read memory: what was packed must be stored by now. */
        __asm__ volatile("" ::: "memory");
        for (size_t g = 0; g < n_groups; g += 2)
                for (size_t r = 0; r < n_rows; r += 2 * TILE_ROWS)
                        block(rows + r * dim_padded, dim_padded, queries + g * group, queries + (g + 1) * group,
                              out + r * ld + g * TILE_ROWS, ld);
}

const dci_amx_kernels dci_kernels_amx = {
        .pack_row = pack_row, .place_query = place_query, .begin = begin, .end = end, .products = products};
