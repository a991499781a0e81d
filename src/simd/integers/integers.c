/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* From level to kernels. */
#include "core/internal.h"

#include "simd/cpu.h"
#include "simd/integers/integers.h"

const dci_integer_kernels *dci_integers_for(const dci_context *context)
{
        switch (context->isa) {
#if defined(__x86_64__)
        case DCI_ISA_AVX2:
                return &dci_integers_avx2;
        case DCI_ISA_AVX512:
        case DCI_ISA_AMX:
                return &dci_integers_avx512;
#elif defined(__aarch64__)
        case DCI_ISA_NEON:
                return &dci_integers_neon;
#endif
        default:
                return &dci_integers_scalar;
        }
}

const dci_integer_tiles *dci_integer_tiles_for(const dci_context *context)
{
        switch (context->isa) {
#if defined(__x86_64__)
        case DCI_ISA_AVX2:
                return &dci_integer_tiles_avx2;
        case DCI_ISA_AMX:
                if (dci_cpu_has_amx_int8())
                        return &dci_integer_tiles_amx;
                /* fall through */
        case DCI_ISA_AVX512:
                return dci_cpu_has_vnni() ? &dci_integer_tiles_vnni : &dci_integer_tiles_avx512;
#elif defined(__aarch64__)
        case DCI_ISA_NEON:
                return dci_cpu_has_dot() ? &dci_integer_tiles_sdot : &dci_integer_tiles_neon;
#endif
        default:
                return &dci_integer_tiles_scalar;
        }
}
