/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* One element between float and the short formats, in portable C: for levels without conversion instructions. */
#ifndef DCI_SIMD_CONVERT_H
#define DCI_SIMD_CONVERT_H

#include "core/internal.h"

#include <string.h>

/* Sanitizers check every access: unrolled kernels would take them minutes and gigabytes to compile. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DCI_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define DCI_SANITIZED 1
#endif
#endif
#ifndef DCI_SANITIZED
#define DCI_SANITIZED 0
#endif

/* Unrolls a loop of constant count, which the kernels need to keep arrays of vectors in registers. */
#if defined(__GNUC__) && !DCI_SANITIZED
#define UNROLL _Pragma("GCC unroll 16")
#else
#define UNROLL
#endif

DCI_INLINE uint32_t dci_float_bits(float value)
{
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        return bits;
}

DCI_INLINE float dci_bits_float(uint32_t bits)
{
        float value;
        memcpy(&value, &bits, sizeof value);
        return value;
}

DCI_INLINE float dci_bf16_to_float(uint16_t half)
{
        return dci_bits_float((uint32_t)half << 16);
}

/* Rounds to nearest even; overflow becomes infinity; NaN keeps its sign and stays NaN. */
DCI_INLINE uint16_t dci_float_to_bf16(float value)
{
        uint32_t bits = dci_float_bits(value);
        if ((bits & 0x7fffffff) > 0x7f800000)
                return (uint16_t)(bits >> 16 | 0x40);
        return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

DCI_INLINE float dci_f16_to_float(uint16_t half)
{
        uint32_t sign = (uint32_t)(half & 0x8000) << 16;
        uint32_t rest = half & 0x7fff;
        if (rest >= 0x7c00) /* infinity, NaN */
                return dci_bits_float(sign | 0x7f800000 | (rest & 0x3ff) << 13);
        if (rest >= 0x400) /* normal: the exponents' biases differ by 112 */
                return dci_bits_float(sign | ((rest << 13) + (112u << 23)));
        float magnitude = (float)rest * 0x1p-24f; /* subnormal and zero, exact */
        return dci_bits_float(sign | dci_float_bits(magnitude));
}

DCI_INLINE uint16_t dci_float_to_f16(float value)
{
        uint32_t bits = dci_float_bits(value);
        uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
        bits &= 0x7fffffff;
        if (bits > 0x7f800000)
                return (uint16_t)(sign | 0x7e00);
        if (bits >= 0x477ff000) /* 65520 and above round to infinity */
                return (uint16_t)(sign | 0x7c00);
        if (bits < 0x38800000) { /* below 2^-14: adding 0.5 leaves the rounded subnormal in the low bits */
                float shifted = dci_bits_float(bits) + 0.5f;
                return (uint16_t)(sign | (dci_float_bits(shifted) - dci_float_bits(0.5f)));
        }
        return (uint16_t)(sign | (bits - (112u << 23) + 0xfff + (bits >> 13 & 1)) >> 13);
}

#endif
