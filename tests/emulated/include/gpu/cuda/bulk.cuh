/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* In the place of src/gpu/cuda/bulk.cuh (emulator.h): copies happen when somebody waits for them, no sooner. */
#ifndef DCI_TESTS_EMULATED_INCLUDE_GPU_CUDA_BULK_CUH
#define DCI_TESTS_EMULATED_INCLUDE_GPU_CUDA_BULK_CUH

#include <cuda_runtime.h>

static inline uint32_t shared_address(const void *at)
{
        return emulated_address(at);
}
template <int arrivals> static inline void bulk_begin(uint32_t barrier)
{
        emulated_barrier_begin(barrier, arrivals);
}
static inline void bulk_begun()
{
}
static inline void bulk_expect(uint32_t barrier, uint32_t n_bytes)
{
        emulated_barrier_arrive(barrier, n_bytes);
}
static inline void bulk_fetch(uint32_t to, const void *from, uint32_t n_bytes, uint32_t barrier)
{
        emulated_fetch(to, from, n_bytes, barrier);
}
static inline void bulk_wait(uint32_t barrier, uint32_t parity)
{
        emulated_barrier_wait(barrier, parity);
}

#endif
