/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Which instruction sets this machine runs, and which one a context uses. */
#ifndef DCI_SIMD_CPU_H
#define DCI_SIMD_CPU_H

#include "core/internal.h"

/* Resolves AUTO (environment variable DCI_ISA, else the best level) and refuses what cannot run here. */
dci_status dci_isa_select(dci_isa wish, dci_isa *out_isa);

/* The kernel table of an available level. */
const struct dci_kernels *dci_kernels_for(dci_isa isa);

#if defined(__x86_64__)
/* AVX-512 VNNI: asked only where AVX-512 runs. */
bool dci_cpu_has_vnni(void);
/* AMX-INT8: asked only where tiles run. */
bool dci_cpu_has_amx_int8(void);
#elif defined(__aarch64__)
/* Dot products of bytes (Armv8.2, optional there). */
bool dci_cpu_has_dot(void);
#endif

#endif
