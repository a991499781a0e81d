/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Rows to low-bit codes with AArch64 Advanced SIMD, present on every 64-bit Arm CPU. */
#include "core/internal.h"

#include <arm_neon.h>

#include "simd/convert.h"

#define WRITER dci_code_writer_neon
#define LANES ((size_t)4)
#define ONE
#define RADIX 4

typedef float32x4_t F;
typedef int32x4_t I;
typedef uint32x4_t M;

#define f_load(p) vld1q_f32(p)
#define f_store(p, a) vst1q_f32(p, a)
#define f_all(x) vdupq_n_f32(x)
#define f_add(a, b) vaddq_f32(a, b)
#define f_sub(a, b) vsubq_f32(a, b)
#define f_mul(a, b) vmulq_f32(a, b)
#define f_div(a, b) vdivq_f32(a, b)
#define f_sqrt(a) vsqrtq_f32(a)
#define f_max(a, b) vmaxq_f32(a, b)
#define f_more(a, b) vcgtq_f32(a, b)
#define f_pick(m, a, b) vbslq_f32(m, a, b)
#define f_if(m, a) vbslq_f32(m, a, vdupq_n_f32(0.0f))
#define f_fma(a, b, c) vfmaq_f32(c, a, b)
#define f_from(a) vcvtq_f32_s32(a)
#define i_pick(m, a, b) vbslq_s32(m, a, b)
#define i_if(m, a) vandq_s32(vreinterpretq_s32_u32(m), a)
#define i_zero() vdupq_n_s32(0)
#define i_load(p) vld1q_s32((const int32_t *)(const void *)(p))
#define i_store(p, a) vst1q_s32((int32_t *)(void *)(p), a)
#define i_all(x) vdupq_n_s32(x)
#define i_and(a, b) vandq_s32(a, b)
#define i_or(a, b) vorrq_s32(a, b)
#define i_xor(a, b) veorq_s32(a, b)
#define i_left(a, bits) vshlq_s32(a, vdupq_n_s32(bits))
#define i_round(a) vcvtnq_s32_f32(a)
#define i_pair(a, b) vsliq_n_s32(a, b, 16)
#define i_low(a) vandq_s32(a, vdupq_n_s32(0xffff))
#define i_high(a) vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(a), 16))
#define i_all16(x) vreinterpretq_s32_s16(vdupq_n_s16((int16_t)(x)))
#define i_add16(a, b) vreinterpretq_s32_s16(vaddq_s16(HALVES(a), HALVES(b)))
#define i_abs16(a) vreinterpretq_s32_s16(vabsq_s16(HALVES(a)))
#define i_min16(a, b) vreinterpretq_s32_s16(vminq_s16(HALVES(a), HALVES(b)))
#define i_sign16(a) vreinterpretq_s32_s16(vshrq_n_s16(HALVES(a), 15))
#define i_times16(a, b) vreinterpretq_s32_s16(vshrq_n_s16(vqdmulhq_s16(HALVES(a), HALVES(b)), 1))
#define HALVES(a) vreinterpretq_s16_s32(a)

DCI_INLINE I i_dot(I acc, I a, I b)
{
        const int32x4_t low = vmull_s16(vget_low_s16(HALVES(a)), vget_low_s16(HALVES(b)));
        return vaddq_s32(acc, vpaddq_s32(low, vmull_high_s16(HALVES(a), HALVES(b))));
}

DCI_INLINE void f_transpose(F row[LANES])
{
        const float32x4x2_t a = vtrnq_f32(row[0], row[1]), b = vtrnq_f32(row[2], row[3]);
        row[0] = vcombine_f32(vget_low_f32(a.val[0]), vget_low_f32(b.val[0]));
        row[1] = vcombine_f32(vget_low_f32(a.val[1]), vget_low_f32(b.val[1]));
        row[2] = vcombine_f32(vget_high_f32(a.val[0]), vget_high_f32(b.val[0]));
        row[3] = vcombine_f32(vget_high_f32(a.val[1]), vget_high_f32(b.val[1]));
}

#include "simd/codes/encode_template.h"
