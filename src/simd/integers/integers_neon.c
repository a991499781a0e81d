/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Kernels of integers for AArch64 Advanced SIMD. */
#include "core/internal.h"

#include <arm_neon.h>
#include <string.h>

#include "simd/convert.h"

typedef struct X {
        int16x8_t a, b;
} X;
typedef int32x4_t A;

#define STEP 16
#define ROWS_TABLE dci_integers_neon
#define a_zero() vdupq_n_s32(0)

DCI_INLINE X x_query(const int16_t *p)
{
        return (X){vld1q_s16(p), vld1q_s16(p + 8)};
}

DCI_INLINE X widen_i8(uint8x16_t bytes)
{
        const int8x16_t x = vreinterpretq_s8_u8(bytes);
        return (X){vmovl_s8(vget_low_s8(x)), vmovl_high_s8(x)};
}

DCI_INLINE X widen_u8(uint8x16_t x)
{
        return (X){vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(x))), vreinterpretq_s16_u16(vmovl_high_u8(x))};
}

/* The last n of 16 bytes come first, zeros follow. */
DCI_INLINE uint8x16_t load_tail(const unsigned char *p, size_t n, bool after)
{
        static const uint8_t order[32] = {0,   1,   2,   3,   4,   5,   6,   7,   8,   9,   10,
                                          11,  12,  13,  14,  15,  255, 255, 255, 255, 255, 255,
                                          255, 255, 255, 255, 255, 255, 255, 255, 255, 255};
        if (after)
                return vqtbl1q_u8(vld1q_u8(p + n - 16), vld1q_u8(order + 16 - n));
        unsigned char copy[16] = {0};
        memcpy(copy, p, n);
        return vld1q_u8(copy);
}

#define x_load_i8(p) widen_i8(vld1q_u8(p))
#define x_load_u8(p) widen_u8(vld1q_u8(p))
#define x_tail_i8(p, n, after) widen_i8(load_tail(p, n, after))
#define x_tail_u8(p, n, after) widen_u8(load_tail(p, n, after))

DCI_INLINE X x_sub(X x, X y)
{
        return (X){vsubq_s16(x.a, y.a), vsubq_s16(x.b, y.b)};
}

DCI_INLINE A a_madd(A acc, X x, X y)
{
        acc = vmlal_s16(acc, vget_low_s16(x.a), vget_low_s16(y.a));
        acc = vmlal_high_s16(acc, x.a, y.a);
        acc = vmlal_s16(acc, vget_low_s16(x.b), vget_low_s16(y.b));
        return vmlal_high_s16(acc, x.b, y.b);
}

DCI_INLINE void a_sums(const A *acc, int32_t *out)
{
        for (int i = 0; i < 8; i += 4)
                vst1q_s32(out + i, vpaddq_s32(vpaddq_s32(acc[i], acc[i + 1]), vpaddq_s32(acc[i + 2], acc[i + 3])));
}

#include "simd/integers/rows_template.h"

/* No pairs: products of 16-bit integers are added one by one. */
typedef struct S {
        int32x4_t q[4];
} S;
typedef int16_t B;

#define TOGETHER 1
#define TILES_TABLE dci_integer_tiles_neon
#define AT_ONCE_ROWS 4
#define AT_ONCE_GROUPS 1
#define s_row(p) (*(p))

DCI_INLINE S s_zero(void)
{
        const int32x4_t zero = vdupq_n_s32(0);
        return (S){{zero, zero, zero, zero}};
}

DCI_INLINE S s_add(S sum, B row, const int16_t *queries)
{
        const int16x8_t a = vld1q_s16(queries), b = vld1q_s16(queries + 8);
        sum.q[0] = vmlal_n_s16(sum.q[0], vget_low_s16(a), row);
        sum.q[1] = vmlal_high_n_s16(sum.q[1], a, row);
        sum.q[2] = vmlal_n_s16(sum.q[2], vget_low_s16(b), row);
        sum.q[3] = vmlal_high_n_s16(sum.q[3], b, row);
        return sum;
}

DCI_INLINE void s_store(int32_t *out, S sum)
{
        UNROLL for (int i = 0; i < 4; i++) vst1q_s32(out + 4 * i, sum.q[i]);
}

#include "simd/integers/tiles_int16.h"
