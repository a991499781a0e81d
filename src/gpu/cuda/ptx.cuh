/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Instructions that C++ has no words for, under a name each. They are here and in cuda/bulk.cuh, nowhere else: tests
 * that run kernels on a CPU put headers of their own in the place of both (tests/emulated). */
#ifndef DCI_GPU_CUDA_PTX_CUH
#define DCI_GPU_CUDA_PTX_CUH

#include <cuda_runtime.h>
#include <stdint.h>

/* Shared memory whose size the launch says. */
#define PTX_DYNAMIC_SHARED(alignment, type, name)                                                                      \
        extern __shared__ __align__(alignment)                                                                         \
        type name[]

/* --- turns of kernels on a stream (cuda/launch.cuh) --------------------------------------------------------------- */

/* After it, all that kernels queued before have written is visible. */
static __device__ __forceinline__ void ptx_after_earlier(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Lets the next kernel on the stream start on the multiprocessors. */
static __device__ __forceinline__ void ptx_let_later_begin(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Waits for the kernel before: the begin of most kernels. */
static __device__ __forceinline__ void ptx_take_turn(void)
{
        ptx_after_earlier();
        ptx_let_later_begin();
}

/* --- loads -------------------------------------------------------------------------------------------------------- */
/* Volatile: requested where they stand, not where they are used. None is of the kind that takes memory for unchanged as
 * long as a kernel runs (ld.global.nc, __ldg): the assembler moves those before a kernel's turn. */

static __device__ __forceinline__ int32_t ptx_load_int(const int32_t *at)
{
        int32_t x;
        asm volatile("ld.global.s32 %0, [%1];" : "=r"(x) : "l"(at));
        return x;
}

/* From the second-level cache: what is read before a kernel's turn (cuda/launch.cuh). */
static __device__ __forceinline__ uint32_t ptx_load4_early(const unsigned char *at)
{
        uint32_t x;
        asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(x) : "l"(at));
        return x;
}

static __device__ __forceinline__ uint2 ptx_load8_early(const unsigned char *at)
{
        uint2 x;
        asm volatile("ld.global.cg.v2.u32 {%0,%1}, [%2];" : "=r"(x.x), "=r"(x.y) : "l"(at));
        return x;
}

/* Read once: no place in the first-level cache. The number is what the second level fetches from memory at once. */
static __device__ __forceinline__ uint2 ptx_load8_once_128(const unsigned char *at)
{
        uint2 x;
        asm volatile("ld.global.L1::no_allocate.L2::128B.v2.u32 {%0,%1}, [%2];" : "=r"(x.x), "=r"(x.y) : "l"(at));
        return x;
}

static __device__ __forceinline__ uint4 ptx_load16_once_128(const unsigned char *at)
{
        uint4 x;
        asm volatile("ld.global.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                     : "l"(at));
        return x;
}

static __device__ __forceinline__ uint4 ptx_load16_once_256(const unsigned char *at)
{
        uint4 x;
        asm volatile("ld.global.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                     : "l"(at));
        return x;
}

/* As a policy says: here, first to leave the second-level cache. */
static __device__ __forceinline__ uint64_t ptx_leave_first()
{
        uint64_t policy;
        asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
        return policy;
}

static __device__ __forceinline__ uint4 ptx_load16_once_as(const unsigned char *at, uint64_t policy)
{
        uint4 x;
        asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.u32 {%0,%1,%2,%3}, [%4], %5;"
                     : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                     : "l"(at), "l"(policy));
        return x;
}

/* --- stores, counters, copies ------------------------------------------------------------------------------------- */

static __device__ __forceinline__ void ptx_store_pair(float *at, float x, float y)
{
        asm volatile("st.global.v2.f32 [%0], {%1,%2};" : : "l"(at), "f"(x), "f"(y) : "memory");
}

/* What later kernels read, and is soon written again: the last to leave the second-level cache. */
static __device__ __forceinline__ void ptx_store_four_kept(float *at, float4 x)
{
        uint64_t policy;
        asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
        asm volatile("st.global.L2::cache_hint.v4.f32 [%0], {%1,%2,%3,%4}, %5;"
                     :
                     : "l"(at), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w), "l"(policy)
                     : "memory");
}

/* Counts up: releases this thread's earlier writes, and acquires those of the threads that counted before. */
static __device__ __forceinline__ int ptx_arrive(int32_t *at, int32_t n = 1)
{
        int before;
        asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], %2;" : "=r"(before) : "l"(at), "r"(n) : "memory");
        return before;
}

/* 16 bytes to shared memory, which are there when the thread has waited. */
static __device__ __forceinline__ void ptx_copy16_begin(uint32_t to, const unsigned char *from)
{
        asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

static __device__ __forceinline__ void ptx_copy16_wait()
{
        asm volatile("cp.async.wait_all;" ::: "memory");
}

/* To the second-level cache. */
static __device__ __forceinline__ void ptx_prefetch(const unsigned char *at)
{
        asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}

/* --- numbers ------------------------------------------------------------------------------------------------------ */

static __device__ __forceinline__ float ptx_exp2(float x)
{
        float y;
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
        return y;
}

/* d += A (16 x 16) B (16 x 8), of binary16, and of bf16. */
static __device__ __forceinline__ void ptx_mma_f16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                   uint32_t b0, uint32_t b1)
{
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

static __device__ __forceinline__ void ptx_mma_bf16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                    uint32_t b0, uint32_t b1)
{
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* Products of four warps: D (64 x N) of A (64 x 16), of which each warp has 16 rows in registers, and B (16 x N) in shared
 * memory, of binary16: eight elements of a column are contiguous, those of eight columns after another, the next eight
 * elements after them, and the next eight columns EIGHT bytes on. After ptx_group_begin come products, then ptx_group_end;
 * they are there when ptx_group_wait has waited for all but the LATER last ones that have ended. `fresh` says that D was
 * nothing before. GPUs without this instruction multiply warp by warp, and round at other places. */
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
template <int K> static __device__ __forceinline__ void ptx_group_hold(float (&d)[K])
{
#pragma unroll
        for (int i = 0; i < K; i++)
                asm volatile("" : "+f"(d[i])::"memory");
}

template <int K> static __device__ __forceinline__ void ptx_group_begin(float (&d)[K])
{
        ptx_group_hold(d);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void ptx_group_end()
{
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int LATER, int K> static __device__ __forceinline__ void ptx_group_wait(float (&d)[K])
{
        asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LATER) : "memory");
        ptx_group_hold(d);
}

static __device__ __forceinline__ void ptx_group_step(float (&d)[16], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                      uint64_t b, int more)
{
        asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %21, 0;\n\t"
                     "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {"
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
                     "%12, %13, %14, %15}, "
                     "{%16, %17, %18, %19}, %20, p, 1, 1, 0;\n\t}"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
                       "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
                       "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
                     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(more));
}

static __device__ __forceinline__ void ptx_group_step(float (&d)[32], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                      uint64_t b, int more)
{
        asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %37, 0;\n\t"
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
                     "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
                     "%24, %25, %26, %27, %28, %29, %30, %31}, "
                     "{%32, %33, %34, %35}, %36, p, 1, 1, 0;\n\t}"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
                       "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
                       "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),
                       "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
                       "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
                       "+f"(d[30]), "+f"(d[31])
                     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(more));
}

template <int N, int EIGHT>
static __device__ __forceinline__ void ptx_group_mma_f16(float (&d)[N / 2], uint32_t a0, uint32_t a1, uint32_t a2,
                                                         uint32_t a3, const unsigned char *b, bool fresh)
{
        const uint32_t at = (uint32_t)__cvta_generic_to_shared(b);
        ptx_group_step(d, a0, a1, a2, a3,
                       (uint64_t)(at >> 4 & 0x3fff) | (uint64_t)(128 >> 4) << 16 | (uint64_t)(EIGHT >> 4) << 32,
                       fresh ? 0 : 1);
}
#else
template <int K> static __device__ __forceinline__ void ptx_group_begin(float (&d)[K])
{
#pragma unroll
        for (int i = 0; i < K; i++)
                d[i] = 0.0f;
}

static __device__ __forceinline__ void ptx_group_end()
{
}

template <int LATER, int K> static __device__ __forceinline__ void ptx_group_wait(float (&)[K])
{
}

template <int N, int EIGHT>
static __device__ __forceinline__ void ptx_group_mma_f16(float (&d)[N / 2], uint32_t a0, uint32_t a1, uint32_t a2,
                                                         uint32_t a3, const unsigned char *b, bool)
{
        const uint32_t *words = reinterpret_cast<const uint32_t *>(b) + (threadIdx.x & 31);
#pragma unroll
        for (int i = 0; i < N / 8; i++) {
                float part[4] = {d[4 * i], d[4 * i + 1], d[4 * i + 2], d[4 * i + 3]};
                ptx_mma_f16(part, a0, a1, a2, a3, words[i * (EIGHT / 4)], words[i * (EIGHT / 4) + 32]);
#pragma unroll
                for (int e = 0; e < 4; e++)
                        d[4 * i + e] = part[e];
        }
}
#endif

/* d += A (16 x 32) B (32 x 8), of bytes: those of A have no sign, those of B may. */
static __device__ __forceinline__ void ptx_mma_u8s8(int (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                    uint32_t b0, uint32_t b1)
{
        asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

static __device__ __forceinline__ void ptx_mma_u8u8(int (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                    uint32_t b0, uint32_t b1)
{
        asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* Four bytes of eight by nibbles of a selector; a nibble of 8 or more takes eight times the byte's sign. */
static __device__ __forceinline__ uint32_t ptx_select_bytes(uint32_t a, uint32_t b, uint32_t selector)
{
        uint32_t x;
        asm("prmt.b32 %0, %1, %2, %3;" : "=r"(x) : "r"(a), "r"(b), "r"(selector));
        return x;
}

#endif
