/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Low-bit codes with AArch64 Advanced SIMD, present on every 64-bit Arm CPU. */
#include "core/internal.h"

#include "simd/codes/dot_neon.h"

#define READER dci_code_reader_neon
#define NAME "neon"

/* Two products of 127 with 127 fit in 16 bits. */
DCI_INLINE W w_dot(W acc, V a, int8x16_t q)
{
        const int8x16_t levels = vreinterpretq_s8_u8(a);
        const int16x8_t low = vmull_s8(vget_low_s8(levels), vget_low_s8(q));
        const int16x8_t high = vmull_s8(vget_high_s8(levels), vget_high_s8(q));
        return vpadalq_s16(acc, vpaddq_s16(low, high));
}

/* Of 255 with 127 only one does. */
DCI_INLINE W w_dot_wide(W acc, V a, int8x16_t q)
{
        const int16x8_t low = vmulq_s16(vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(a))), vmovl_s8(vget_low_s8(q)));
        const int16x8_t high = vmulq_s16(vreinterpretq_s16_u16(vmovl_u8(vget_high_u8(a))), vmovl_s8(vget_high_s8(q)));
        return vaddq_s32(acc, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
}

typedef int32x4_t E;
#define E_ROOM(bits) SIZE_MAX
#define e_zero() vdupq_n_s32(0)
#define e_dot(acc, a, q) w_dot(acc, a, q)
#define e_flush(sum, acc) vaddq_s32(sum, acc)

#include "simd/codes/dot_template.h"
