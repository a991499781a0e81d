/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* In the place of CUDA's (emulator.h): binary16 by its bits, rounded to nearest, ties to even. */
#ifndef DCI_TESTS_EMULATED_CUDA_FP16_H
#define DCI_TESTS_EMULATED_CUDA_FP16_H

#include "cuda_runtime.h"

struct __half {
        uint16_t bits;
};
struct __half2 {
        __half x, y;
} __attribute__((aligned(4)));

static inline float __half2float(__half h)
{
        const uint32_t sign = (uint32_t)(h.bits & 0x8000) << 16, exponent = h.bits >> 10 & 31, rest = h.bits & 0x3ff;
        if (exponent == 31)
                return __uint_as_float(sign | 0x7f800000u | rest << 13);
        if (exponent > 0)
                return __uint_as_float(sign | (exponent + 112) << 23 | rest << 13);
        const float small = (float)rest * 0x1p-24f;
        return sign != 0 ? -small : small;
}

static inline __half __float2half_rn(float x)
{
        const uint32_t bits = __float_as_uint(x), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffffu;
        uint32_t out;
        if (size > 0x7f800000u)
                return {0x7fff}; /* as the instruction: one NaN for all */
        if (size >= 0x477ff000u)
                out = 0x7c00;
        else if (size >= 0x38800000u)
                out = (size - 0x38000000u + 0xfff + (size >> 13 & 1)) >> 13;
        else /* a sum whose unit is that of subnormal numbers */
                out = __float_as_uint(__uint_as_float(size) + 0.5f) - 0x3f000000u;
        return {(uint16_t)(sign | out)};
}

static inline __half __ushort_as_half(unsigned short x)
{
        return {x};
}
static inline unsigned short __half_as_ushort(__half h)
{
        return h.bits;
}
static inline __half2 __floats2half2_rn(float a, float b)
{
        return {__float2half_rn(a), __float2half_rn(b)};
}
static inline float2 __half22float2(__half2 h)
{
        return make_float2(__half2float(h.x), __half2float(h.y));
}

#endif
