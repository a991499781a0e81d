/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The copy engine of a multiprocessor (compute capability 9.0): bytes to shared memory, and the barrier that counts
 * them. Barriers and shared memory are named by their addresses in it. */
#ifndef DCI_GPU_CUDA_BULK_CUH
#define DCI_GPU_CUDA_BULK_CUH

#include <cuda_runtime.h>
#include <stdint.h>

static __device__ __forceinline__ uint32_t shared_address(const void *at)
{
        return (uint32_t)__cvta_generic_to_shared(at);
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
/* A barrier that so many arrivals pass, and that the copy engine knows of them. */
template <int arrivals> static __device__ __forceinline__ void bulk_begin(uint32_t barrier)
{
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "n"(arrivals) : "memory");
}

static __device__ __forceinline__ void bulk_begun()
{
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

static __device__ __forceinline__ void bulk_expect(uint32_t barrier, uint32_t n_bytes)
{
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(n_bytes) : "memory");
}

static __device__ __forceinline__ void bulk_fetch(uint32_t to, const void *from, uint32_t n_bytes, uint32_t barrier)
{
        asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                "l"(from), "r"(n_bytes), "r"(barrier)
                : "memory");
}

static __device__ __forceinline__ void bulk_wait(uint32_t barrier, uint32_t parity)
{
        uint32_t done = 0;
        while (done == 0)
                asm volatile("{\n\t.reg .pred p;\n\t"
                             "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
                             "selp.u32 %0, 1, 0, p;\n\t}"
                             : "=r"(done)
                             : "r"(barrier), "r"(parity)
                             : "memory");
}

#endif

#endif
