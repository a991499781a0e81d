/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Instructions that scores are made with and C++ has no words for. */
#ifndef DCI_GPU_CUDA_SCORE_PTX_CUH
#define DCI_GPU_CUDA_SCORE_PTX_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <stdint.h>

/* Summaries are read once in a step: they leave the L2 before scores do, which the next kernel reads. */
static __device__ __forceinline__ uint64_t once_policy()
{
        uint64_t policy;
        asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
        return policy;
}

static __device__ __forceinline__ uint4 load_once(const unsigned char *at, uint64_t policy)
{
        uint4 x;
        asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0,%1,%2,%3}, [%4], %5;"
                     : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                     : "l"(at), "l"(policy));
        return x;
}

/* Scales: neighbours belong to other warps, so they stay in the first-level cache for those. Volatile: asked for here, not where used. */
static __device__ __forceinline__ uint32_t load_pair(const unsigned char *at)
{
        uint32_t x;
        asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(x) : "l"(at));
        return x;
}

static __device__ __forceinline__ uint2 load_four(const unsigned char *at)
{
        uint2 x;
        asm volatile("ld.global.nc.v2.u32 {%0,%1}, [%2];" : "=r"(x.x), "=r"(x.y) : "l"(at));
        return x;
}

static __device__ __forceinline__ void store_pair(float *at, float x, float y)
{
        asm volatile("st.global.v2.f32 [%0], {%1,%2};" : : "l"(at), "f"(x), "f"(y) : "memory");
}

static __device__ __forceinline__ float exp2_fast(float x)
{
        float y;
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
        return y;
}

/* Four bytes of eight by nibbles of a selector; a nibble of 8 or more takes eight times the byte's sign. */
static __device__ __forceinline__ uint32_t select_bytes(uint32_t a, uint32_t b, uint32_t selector)
{
        uint32_t x;
        asm("prmt.b32 %0, %1, %2, %3;" : "=r"(x) : "r"(a), "r"(b), "r"(selector));
        return x;
}

/* Codes (16 rows x 32) times bytes of queries (32 x 8). */
static __device__ __forceinline__ void mma_codes(int (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                 uint32_t b0, uint32_t b1)
{
        asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* Rows (16 x 16) times queries (16 x 8), in both types. */
struct HalfRows {
        static __device__ __forceinline__ void mma(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                   uint32_t b0, uint32_t b1)
        {
                asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                    "{%0,%1,%2,%3};"
                    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                    : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
        }
        static __device__ __forceinline__ uint16_t narrow(float x)
        {
                return __half_as_ushort(__float2half_rn(x));
        }
        static __device__ __forceinline__ float widen(uint16_t x)
        {
                return __half2float(__ushort_as_half(x));
        }
};

struct Bf16Rows {
        static __device__ __forceinline__ void mma(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                   uint32_t b0, uint32_t b1)
        {
                asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                    "{%0,%1,%2,%3};"
                    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                    : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
        }
        static __device__ __forceinline__ uint16_t narrow(float x)
        {
                return __bfloat16_as_ushort(__float2bfloat16_rn(x));
        }
        static __device__ __forceinline__ float widen(uint16_t x)
        {
                return __uint_as_float((uint32_t)x << 16);
        }
};

#endif
