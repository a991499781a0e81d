/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* From level to table. */
#include "core/internal.h"

#include "simd/cpu.h"
#include "simd/kernels.h"
#include "simd/softmax/softmax.h"

const dci_kernels *dci_kernels_for(dci_isa isa)
{
        switch (isa) {
#if defined(__x86_64__)
        case DCI_ISA_AVX2:
                return &dci_kernels_avx2;
        case DCI_ISA_AVX512:
        case DCI_ISA_AMX: /* tiles propose, the canonical kernels are those of AVX-512 */
                return &dci_kernels_avx512;
#elif defined(__aarch64__)
        case DCI_ISA_NEON:
                return &dci_kernels_neon;
#endif
        default:
                return &dci_kernels_scalar;
        }
}

const dci_amx_kernels *dci_amx_for(const dci_context *context)
{
#if defined(__x86_64__)
        if (context->isa == DCI_ISA_AMX)
                return &dci_kernels_amx;
#endif
        (void)context;
        return NULL;
}

const dci_softmax_kernels *dci_softmax_kernels_for(const dci_context *context)
{
#if defined(__x86_64__)
        if (context->isa >= DCI_ISA_AVX512)
                return dci_cpu_has_vnni() ? &dci_softmax_kernels_vnni : &dci_softmax_kernels_avx512;
#endif
        (void)context;
        return NULL;
}
