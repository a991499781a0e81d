/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Low-bit codes with AVX-512 VNNI: Intel from Cascade Lake, AMD from Zen 4. */
#include "core/internal.h"

#include "simd/codes/dot_avx512.h"

#define READER dci_code_reader_vnni
#define NAME "avx512 vnni"

#define w_dot(acc, a, q) _mm512_dpbusd_epi32(acc, a, q)
#define w_dot_wide(acc, a, q) _mm512_dpbusd_epi32(acc, a, q)

typedef __m512i E;
#define E_ROOM(bits) SIZE_MAX
#define e_zero() _mm512_setzero_si512()
#define e_dot(acc, a, q) _mm512_dpbusd_epi32(acc, a, q)
#define e_flush(sum, acc) _mm512_add_epi32(sum, acc)
#define UNSHIFTED
#define w_right(a, bits) _mm512_srai_epi32(a, (unsigned)(bits))

#include "simd/codes/dot_template.h"
