/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Tiles of bytes for Intel CPUs with AMX-INT8 (Sapphire Rapids and later). Rows are unsigned and queries signed, as in
 * tiles_vnni.c. Packed rows: groups of 16, in each group the tiles that the unit loads, [dim_padded / 64][16][64]. */
#include "core/internal.h"

#include <immintrin.h>
#include <string.h>

#include "simd/convert.h"
#include "simd/integers/integers.h"

#define TILE_ROWS 16
#define TILE_BYTES 64

#define E uint8_t
#define TOGETHER 4
#define PADDING TILE_BYTES
#define PIECE(dim_padded) TILE_BYTES
#define PIECE_AT(rows, r, p, dim_padded)                                                                               \
        ((E *)(rows) + (r) / TILE_ROWS * TILE_ROWS * (dim_padded) + (p)*TILE_ROWS + (r) % TILE_ROWS * TILE_BYTES)
#define BIAS_I8 128
#define BIAS_U8 0
#define QUERY_BIAS 128
#define BEGIN begin
#define END end
#define TILES_TABLE dci_integer_tiles_amx
#define OWN_PRODUCTS

/* The registers are used as those of bf16 are. */
static void begin(void)
{
        dci_kernels_amx.begin();
}

static void end(void)
{
        dci_kernels_amx.end();
}

/* 32 rows x 32 queries in four accumulators: every loaded tile is used twice. */
DCI_INLINE void block(const uint8_t *rows, size_t dim_padded, const uint8_t *query_0, const uint8_t *query_1,
                      int32_t *out)
{
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (size_t p = 0; p < dim_padded; p += TILE_BYTES) {
                _tile_loadd(4, rows + p * TILE_ROWS, TILE_BYTES);
                _tile_loadd(6, query_0 + p * TILE_ROWS, TILE_BYTES);
                _tile_dpbusd(0, 4, 6);
                _tile_loadd(7, query_1 + p * TILE_ROWS, TILE_BYTES);
                _tile_dpbusd(1, 4, 7);
                _tile_loadd(5, rows + (dim_padded + p) * TILE_ROWS, TILE_BYTES);
                _tile_dpbusd(2, 5, 6);
                _tile_dpbusd(3, 5, 7);
        }
        const size_t out_bytes = DCI_PRODUCT_COLUMNS * sizeof *out;
        _tile_stored(0, out, out_bytes);
        _tile_stored(1, out + TILE_ROWS, out_bytes);
        _tile_stored(2, out + TILE_ROWS * DCI_PRODUCT_COLUMNS, out_bytes);
        _tile_stored(3, out + TILE_ROWS * DCI_PRODUCT_COLUMNS + TILE_ROWS, out_bytes);
}

static void products(const void *rows, size_t n_rows, size_t dim_padded, const void *queries, int32_t *out)
{
        const uint8_t *query = queries;
        /* Tile loads do not tell gcc 12 that they read memory: what was packed must be stored by now. */
        __asm__ volatile("" ::: "memory");
        for (size_t r = 0; r < n_rows; r += 2 * TILE_ROWS)
                block((const uint8_t *)rows + r * dim_padded, dim_padded, query, query + dim_padded * TILE_ROWS,
                      out + r * DCI_PRODUCT_COLUMNS);
        /* Nor do tile stores that they write it. */
        __asm__ volatile("" ::: "memory");
}

#include "simd/integers/tiles_template.h"
