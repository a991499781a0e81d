/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Tiles of bytes for AVX-512 VNNI: Intel from Ice Lake, AMD from Zen 4. Rows are unsigned, queries signed: what does not
 * fit is moved by 128, and sums of rows and queries make up for it. */
#include "core/internal.h"

#include <immintrin.h>
#include <string.h>

#include "simd/convert.h"

typedef __m512i S, B;

#define E uint8_t
#define TOGETHER 4
#define PADDING 4
#define PIECE(dim_padded) (dim_padded)
#define PIECE_AT(rows, r, p, dim_padded) ((E *)(rows) + (r) * (dim_padded) + (p))
#define BIAS_I8 128
#define BIAS_U8 0
#define QUERY_BIAS 128
#define BEGIN NULL
#define END NULL
#define TILES_TABLE dci_integer_tiles_vnni
#define AT_ONCE_ROWS 8
#define AT_ONCE_GROUPS 2
#define s_zero() _mm512_setzero_si512()
#define s_row(p) _mm512_set1_epi32(four(p))
#define s_add(sum, row, queries) _mm512_dpbusd_epi32(sum, row, _mm512_loadu_si512(queries))
#define s_store(out, sum) _mm512_storeu_si512(out, sum)

DCI_INLINE int32_t four(const uint8_t *p)
{
        int32_t all;
        memcpy(&all, p, sizeof all);
        return all;
}

#include "simd/integers/tiles_template.h"
