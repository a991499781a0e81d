/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Loads, stores and products that scores are made with. */
#ifndef DCI_GPU_CUDA_SCORE_SCORE_PTX_CUH
#define DCI_GPU_CUDA_SCORE_SCORE_PTX_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "gpu/cuda/ptx.cuh"

/* Summaries are read once in a step: they leave the L2 before scores do, which the next kernel reads. */
static __device__ __forceinline__ uint64_t once_policy()
{
        return ptx_leave_first();
}

static __device__ __forceinline__ uint4 load_once(const unsigned char *at, uint64_t policy)
{
        return ptx_load16_once_as(at, policy);
}

/* Scales. Volatile: requested here, not where used. */
static __device__ __forceinline__ uint32_t load_pair(const unsigned char *at)
{
        return ptx_load4_early(at);
}

static __device__ __forceinline__ uint2 load_four(const unsigned char *at)
{
        return ptx_load8_early(at);
}

static __device__ __forceinline__ void store_pair(float *at, float x, float y)
{
        ptx_store_pair(at, x, y);
}

static __device__ __forceinline__ void store_four(float *at, float4 x)
{
        ptx_store_four_kept(at, x);
}

static __device__ __forceinline__ float exp2_fast(float x)
{
        return ptx_exp2(x);
}

/* Four bytes of eight by nibbles of a selector; a nibble of 8 or more takes eight times the byte's sign. */
static __device__ __forceinline__ uint32_t select_bytes(uint32_t a, uint32_t b, uint32_t selector)
{
        return ptx_select_bytes(a, b, selector);
}

/* Codes (16 rows x 32) times bytes of queries (32 x 8). */
static __device__ __forceinline__ void mma_codes(int (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                 uint32_t b0, uint32_t b1)
{
        ptx_mma_u8s8(d, a0, a1, a2, a3, b0, b1);
}

/* Rows (16 x 16) times queries (16 x 8), in both types. */
struct HalfRows {
        static __device__ __forceinline__ void mma(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                   uint32_t b0, uint32_t b1)
        {
                ptx_mma_f16(d, a0, a1, a2, a3, b0, b1);
        }
        static __device__ __forceinline__ uint16_t narrow(float x)
        {
                return __half_as_ushort(__float2half_rn(x));
        }
        static __device__ __forceinline__ float to_f32(uint16_t x)
        {
                return __half2float(__ushort_as_half(x));
        }
};

struct Bf16Rows {
        static __device__ __forceinline__ void mma(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                   uint32_t b0, uint32_t b1)
        {
                ptx_mma_bf16(d, a0, a1, a2, a3, b0, b1);
        }
        static __device__ __forceinline__ uint16_t narrow(float x)
        {
                return __bfloat16_as_ushort(__float2bfloat16_rn(x));
        }
        static __device__ __forceinline__ float to_f32(uint16_t x)
        {
                return __uint_as_float((uint32_t)x << 16);
        }
};

#endif
