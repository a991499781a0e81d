/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Low-bit codes with AVX-512 VNNI: Intel from Cascade Lake, AMD from Zen 4. */
#include "core/internal.h"

#include "simd/codes_avx512.h"

#define READER dci_code_reader_vnni
#define NAME "avx512 vnni"

#define w_dot(acc, a, q) _mm512_dpbusd_epi32(acc, a, q)
#define w_dot_wide(acc, a, q) _mm512_dpbusd_epi32(acc, a, q)

#include "simd/codes_template.h"
