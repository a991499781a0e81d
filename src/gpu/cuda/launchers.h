/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What the CUDA device (cuda/device.c) and its kernels (cuda/) share. Read by C and by CUDA C++: so it stays clear of
 * core/internal.h, whose <stdatomic.h> CUDA C++ does not have.
 *
 * A launcher queues its kernel and returns; cuda/device.c makes the device current around it. */
#ifndef DCI_GPU_CUDA_LAUNCHERS_H
#define DCI_GPU_CUDA_LAUNCHERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dci/base.h"
#include "gpu/args/kmeans.h"
#include "gpu/args/learned.h"
#include "gpu/args/rows.h"
#include "gpu/args/schedule.h"
#include "gpu/args/select.h"
#include "gpu/args/tail.h"
#include "gpu/args/tree.h"
#include "gpu/args/votes.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dci_gpu;

/* What a launcher needs to know of its device. */
typedef struct dci_gpu_cuda {
        int32_t device, multiprocessors, major, minor;
        size_t shared_bytes; /* that a block may have when it requests it */
} dci_gpu_cuda;

const dci_gpu_cuda *dci_gpu_cuda_of(const struct dci_gpu *gpu);

/* A cudaError_t as a status: DCI_OK for 0; else "<sentence>: <what CUDA says>", and the runtime's note of it is taken
 * back, so that a caller's own checks do not find it. */
dci_status dci_gpu_cuda_status(int error, const char *format, ...)
#if defined(__GNUC__)
        __attribute__((format(printf, 2, 3)))
#endif
        ;

/* 0 where the current device can run what this build was compiled for, else the cudaError_t. */
int dci_gpu_cuda_probe(void);

/* core/status.c */
dci_status dci_fail(dci_status status, const char *format, ...)
#if defined(__GNUC__)
        __attribute__((format(printf, 2, 3)))
#endif
        ;

/* gpu.c */
dci_status dci_gpu_check_shape(int32_t group, int32_t dim);

/* sketch/coder.c */
int32_t dci_coder_even_steps(size_t dim, int32_t bits, float *out_spread, uint16_t *out_inverse);

/* Launchers, by the name of their kernel. */
#define DCI_GPU_LAUNCHER(name)                                                                                         \
        dci_status dci_gpu_cuda_##name(struct dci_gpu *gpu, void *stream, const dci_gpu_##name##_args *args);
DCI_GPU_EACH_KERNEL(DCI_GPU_LAUNCHER)
#undef DCI_GPU_LAUNCHER

/* The least shared memory of a block on any supported device (8.6, 8.9, 12.0): no more need not be requested. */
#define DCI_GPU_CUDA_MIN_SHARED ((size_t)99 * 1024)

/* Shared memory of a block, including the kernel's static part; SIZE_MAX: there is no kernel. */
size_t dci_gpu_cuda_attend_bytes(int32_t dim, int32_t group);
size_t dci_gpu_cuda_resolve_bytes(int32_t stride, int32_t n_frames, bool placed);
size_t dci_gpu_cuda_select_bytes(int32_t stride);
size_t dci_gpu_cuda_reuse_bytes(int32_t stride);
size_t dci_gpu_cuda_encode_learned_bytes(int32_t dim);
size_t dci_gpu_cuda_tree_bytes(int32_t stride, int32_t page_shift, int32_t group);

/* cuda/limits.c: see dci_gpu_ops. */
struct dci_gpu_needs;
dci_status dci_gpu_cuda_fits(const dci_gpu_cuda *cuda, const struct dci_gpu_needs *needs);

#ifdef __cplusplus
}
#endif
#endif
