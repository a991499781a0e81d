/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Tiles of bytes for AArch64 with dot products (Armv8.2 and later, optional there). Rows and queries are signed: unsigned
 * ones are moved by 128, and sums of rows and queries make up for it. */
#include "core/internal.h"

#include <arm_neon.h>
#include <string.h>

#include "simd/convert.h"

typedef struct S {
        int32x4_t q[4];
} S;
typedef int8x16_t B;

#define E int8_t
#define TOGETHER 4
#define PADDING 4
#define PIECE(dim_padded) (dim_padded)
#define PIECE_AT(rows, r, p, dim_padded) ((E *)(rows) + (r) * (dim_padded) + (p))
#define BIAS_I8 0
#define BIAS_U8 (-128)
#define QUERY_BIAS 128
#define BEGIN NULL
#define END NULL
#define TILES_TABLE dci_integer_tiles_sdot
#define AT_ONCE_ROWS 4
#define AT_ONCE_GROUPS 1

DCI_INLINE B s_row(const int8_t *p)
{
        int32_t all;
        memcpy(&all, p, sizeof all);
        return vreinterpretq_s8_s32(vdupq_n_s32(all));
}

DCI_INLINE S s_zero(void)
{
        const int32x4_t zero = vdupq_n_s32(0);
        return (S){{zero, zero, zero, zero}};
}

DCI_INLINE S s_add(S sum, B row, const int8_t *queries)
{
        UNROLL for (int i = 0; i < 4; i++) sum.q[i] = vdotq_s32(sum.q[i], row, vld1q_s8(queries + 16 * i));
        return sum;
}

DCI_INLINE void s_store(int32_t *out, S sum)
{
        UNROLL for (int i = 0; i < 4; i++) vst1q_s32(out + 4 * i, sum.q[i]);
}

#include "simd/integers/tiles_template.h"
