/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* In the place of CUDA's (emulator.h). */
#ifndef DCI_TESTS_EMULATED_CUDA_BF16_H
#define DCI_TESTS_EMULATED_CUDA_BF16_H

#include "cuda_runtime.h"

struct __nv_bfloat16 {
        uint16_t bits;
};
struct __nv_bfloat162 {
        __nv_bfloat16 x, y;
} __attribute__((aligned(4)));

static inline float __bfloat162float(__nv_bfloat16 x)
{
        return __uint_as_float((uint32_t)x.bits << 16);
}

static inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
        const uint32_t bits = __float_as_uint(x);
        if ((bits & 0x7fffffffu) > 0x7f800000u)
                return {0x7fff}; /* as the instruction: one NaN for all */
        return {(uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x)
{
        return x.bits;
}
static inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b)
{
        return {__float2bfloat16_rn(a), __float2bfloat16_rn(b)};
}
static inline float2 __bfloat1622float2(__nv_bfloat162 x)
{
        return make_float2(__bfloat162float(x.x), __bfloat162float(x.y));
}

#endif
