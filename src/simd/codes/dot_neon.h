/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What the readers of low-bit codes with AArch64 Advanced SIMD share: all but the products. */
#ifndef DCI_SIMD_CODES_DOT_NEON_H
#define DCI_SIMD_CODES_DOT_NEON_H

#include "core/internal.h"

#include <arm_neon.h>
#include <string.h>

#include "simd/convert.h"

typedef uint8x16_t V;
typedef int32x4_t W;

#define v_load(p) vld1q_u8(p)
#define v_mask(byte) vdupq_n_u8((uint8_t)(byte))
#define v_levels(table) vld1q_u8(table)
#define v_and(a, b) vandq_u8(a, b)
#define v_or(a, b) vorrq_u8(a, b)
#define v_right(a, bits) vshlq_u8(a, vdupq_n_s8((int8_t) - (bits)))
#define v_left(a, bits) vshlq_u8(a, vdupq_n_s8((int8_t)(bits)))
#define v_lookup(levels, a) vqtbl1q_u8(levels, a)
#define w_zero() vdupq_n_s32(0)
#define w_add(a, b) vaddq_s32(a, b)
#define w_load(p) vld1q_s32(p)
#define w_store(p, a) vst1q_s32(p, a)

DCI_INLINE int8x16_t v_four(const int8_t *p)
{
        int32_t four;
        memcpy(&four, p, sizeof four);
        return vreinterpretq_s8_s32(vdupq_n_s32(four));
}

#endif
