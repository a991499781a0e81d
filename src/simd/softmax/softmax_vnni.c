/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Approximate softmax with AVX-512 VNNI: Intel from Cascade Lake, AMD from Zen 4. 128 multiply-adds a cycle where there
 * are two units, four times as many as of floats. */
#include "core/internal.h"

#include <immintrin.h>

#define SOFTMAX_TABLE dci_softmax_kernels_vnni

typedef __m512i softmax_bytes;

DCI_INLINE softmax_bytes of_keys(__m512i fours)
{
        return fours;
}

DCI_INLINE softmax_bytes of_query(__m512i fours)
{
        return fours;
}

/* As _mm512_dpbusd_epi32. gcc 12 copies each sum before and after that, which takes a third of the loop's time. */
DCI_INLINE __m512i added(__m512i sum, softmax_bytes keys, softmax_bytes query)
{
        __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(keys), "v"(query));
        return sum;
}

#include "simd/softmax/softmax_template.h"
