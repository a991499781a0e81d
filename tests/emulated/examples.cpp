/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#define EMULATED_NAME examples
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "gpu/cuda/bulk.cuh"
#include "gpu/cuda/ptx.cuh"

extern "C" {
#include "emulated/examples.h"
}

constexpr unsigned all = 0xffffffffu;

/* --- wrong ones ----------------------------------------------------------------------------------------------------- */

static __global__ void barriers(int which)
{
        if (which == EXAMPLE_ENDED && threadIdx.x == 5)
                return;
        if (which == EXAMPLE_ELSEWHERE && threadIdx.x >= 32)
                __syncthreads();
        else
                __syncthreads();
}

static __global__ void warps(int which, uint32_t *out)
{
        const unsigned lane = threadIdx.x & 31;
        if (which == EXAMPLE_FROM)
                out[threadIdx.x] = lane < 16 ? __shfl_sync(0xffffu, lane, 20) : 0;
        else if (which == EXAMPLE_MASK)
                out[threadIdx.x] = __ballot_sync(0xffffu, 1);
        else if (lane < 16)
                out[threadIdx.x] = __shfl_xor_sync(all, lane, 1);
        else if (which == EXAMPLE_CALLS)
                out[threadIdx.x] = __ballot_sync(all, 1);
}

static __global__ void past_end(int which, uint32_t n_bytes, uint32_t *out)
{
        PTX_DYNAMIC_SHARED(16, unsigned char, memory);
        if (which == EXAMPLE_BEHIND && threadIdx.x == 3)
                memory[n_bytes] = 1;
        if (which == EXAMPLE_FAR && threadIdx.x == 3)
                out[0] = memory[n_bytes + 4096];
}

static __global__ void copies(int which, const uint32_t *in, uint32_t *out)
{
        PTX_DYNAMIC_SHARED(128, unsigned char, memory);
        __shared__ uint64_t barrier;
        const uint32_t at = shared_address(&barrier), to = shared_address(memory);
        if (threadIdx.x == 0) {
                if (which != EXAMPLE_NOT_BEGUN) {
                        bulk_begin<1>(at);
                        bulk_begun();
                }
                bulk_expect(at, which == EXAMPLE_TOO_FEW ? 128 : 64);
                bulk_fetch(to + (which == EXAMPLE_UNALIGNED ? 8 : which == EXAMPLE_TOO_LONG ? 128 : 0), in, 64, at);
        }
        __syncthreads();
        if (which != EXAMPLE_NO_WAIT)
                bulk_wait(at, 0);
        out[threadIdx.x] = 0;
}

/* --- right ones, and hasty ones --------------------------------------------------------------------------------------- */

static __global__ void unwritten(uint32_t *out)
{
        PTX_DYNAMIC_SHARED(16, uint32_t, dynamic);
        __shared__ uint32_t fixed[EXAMPLE_THREADS];
        const unsigned t = threadIdx.x;
        out[blockIdx.x * EXAMPLE_THREADS + t] = fixed[t] & dynamic[t];
        fixed[t] = dynamic[t] = t;
}

template <bool waits> static __global__ void neighbour(uint32_t *out)
{
        __shared__ uint32_t held[EXAMPLE_THREADS];
        const unsigned t = threadIdx.x;
        held[t] = t;
        if (waits)
                __syncthreads();
        out[t] = held[(t + 1) % EXAMPLE_THREADS];
}

static __global__ void shuffles(const uint32_t *in, uint32_t *out)
{
        uint32_t half = in[threadIdx.x];
        for (int d = 8; d > 0; d /= 2)
                half += __shfl_xor_sync(all, half, d, 16);
        const uint32_t whole = half + __shfl_down_sync(all, half, 16), first = __shfl_sync(all, whole, 0);
        const uint32_t before = __shfl_up_sync(all, in[threadIdx.x], 1);
        out[threadIdx.x] = first * 1000000 + half * 1000 + before + __reduce_max_sync(all, in[threadIdx.x]);
}

static __global__ void votes(const uint32_t *in, uint32_t *out)
{
        const unsigned mask = (threadIdx.x & 1) != 0 ? 0xaaaaaaaau : 0x55555555u;
        if ((threadIdx.x & 1) != 0) {
                const unsigned got = __ballot_sync(mask, in[threadIdx.x] > 4);
                out[threadIdx.x] = got;
        } else {
                const unsigned got = __match_any_sync(mask, in[threadIdx.x] & 3);
                out[threadIdx.x] = __any_sync(mask, in[threadIdx.x] == 999) ? 0 : got;
        }
        __syncwarp();
}

static __global__ void through(const uint32_t *in, uint32_t *out)
{
        PTX_DYNAMIC_SHARED(128, uint32_t, memory);
        __shared__ uint64_t barriers[2];
        const unsigned warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
        const uint32_t at = shared_address(&barriers[warp]), to = shared_address(memory) + 128 * warp;
        if (lane == 0) {
                bulk_begin<32>(at);
                bulk_begun();
        }
        __syncwarp();
        for (uint32_t turn = 0; turn < 2; turn++) {
                bulk_expect(at, lane == 7 ? 128 : 0);
                if (lane == 7) {
                        bulk_fetch(to, in + 32 * warp, 64, at);
                        bulk_fetch(to + 64, in + 32 * warp + 16, 64, at);
                }
                bulk_wait(at, turn);
                out[threadIdx.x] = memory[threadIdx.x];
                __syncwarp();
        }
}

static __global__ void order(uint32_t *out)
{
        if (threadIdx.x == 0)
                out[1 + blockIdx.x] = atomicAdd(out, 1u);
}

extern "C" int example_run(int which, unsigned n_blocks, unsigned shared_bytes, const uint32_t *in, uint32_t *out)
{
        cudaLaunchConfig_t config = {};
        config.gridDim = n_blocks;
        config.blockDim = EXAMPLE_THREADS;
        config.dynamicSmemBytes = shared_bytes;
        switch (which) {
        case EXAMPLE_ENDED:
        case EXAMPLE_ELSEWHERE:
                return cudaLaunchKernelEx(&config, barriers, which);
        case EXAMPLE_LANES:
        case EXAMPLE_CALLS:
        case EXAMPLE_FROM:
        case EXAMPLE_MASK:
                return cudaLaunchKernelEx(&config, warps, which, out);
        case EXAMPLE_BEHIND:
        case EXAMPLE_FAR:
                return cudaLaunchKernelEx(&config, past_end, which, shared_bytes, out);
        case EXAMPLE_UNWRITTEN:
                return cudaLaunchKernelEx(&config, unwritten, out);
        case EXAMPLE_NEIGHBOUR:
                return cudaLaunchKernelEx(&config, neighbour<true>, out);
        case EXAMPLE_HASTY:
                return cudaLaunchKernelEx(&config, neighbour<false>, out);
        case EXAMPLE_SHUFFLES:
                return cudaLaunchKernelEx(&config, shuffles, in, out);
        case EXAMPLE_VOTES:
                return cudaLaunchKernelEx(&config, votes, in, out);
        case EXAMPLE_COPIES:
                return cudaLaunchKernelEx(&config, through, in, out);
        case EXAMPLE_ORDER:
                return cudaLaunchKernelEx(&config, order, out);
        default:
                return cudaLaunchKernelEx(&config, copies, which, in, out);
        }
}

/* --- products and numbers ----------------------------------------------------------------------------------------------- */

/* Fragments as the kernels' heads have them: words of 16 bits or of bytes. */
template <class E, class D, class F> static void multiply(const E *a, const E *b, D *d, F mma)
{
        constexpr unsigned k = 32 / sizeof(E), per = 4 / sizeof(E);
        const unsigned lane = threadIdx.x, g = lane / 4, c = lane % 4;
        uint32_t of_a[4], of_b[2];
        D own[4];
        for (unsigned h = 0; h < 2; h++) {
                memcpy(&of_a[2 * h], a + g * k + per * c + k / 2 * h, 4);
                memcpy(&of_a[2 * h + 1], a + (g + 8) * k + per * c + k / 2 * h, 4);
                memcpy(&of_b[h], b + g * k + per * c + k / 2 * h, 4);
        }
        for (unsigned i = 0; i < 4; i++)
                own[i] = d[(g + i / 2 * 8) * 8 + 2 * c + i % 2];
        mma(own, of_a, of_b);
        for (unsigned i = 0; i < 4; i++)
                d[(g + i / 2 * 8) * 8 + 2 * c + i % 2] = own[i];
}

static __global__ void product_f16(const uint16_t *a, const uint16_t *b, float *d)
{
        multiply(a, b, d, [](float(&x)[4], const uint32_t(&p)[4], const uint32_t(&q)[2]) {
                ptx_mma_f16(x, p[0], p[1], p[2], p[3], q[0], q[1]);
        });
}

static __global__ void product_bf16(const uint16_t *a, const uint16_t *b, float *d)
{
        multiply(a, b, d, [](float(&x)[4], const uint32_t(&p)[4], const uint32_t(&q)[2]) {
                ptx_mma_bf16(x, p[0], p[1], p[2], p[3], q[0], q[1]);
        });
}

static __global__ void product_bytes(const uint8_t *a, const uint8_t *b, int32_t *d, int is_signed)
{
        multiply(a, b, d, [=](int(&x)[4], const uint32_t(&p)[4], const uint32_t(&q)[2]) {
                if (is_signed != 0)
                        ptx_mma_u8s8(x, p[0], p[1], p[2], p[3], q[0], q[1]);
                else
                        ptx_mma_u8u8(x, p[0], p[1], p[2], p[3], q[0], q[1]);
        });
}

static cudaLaunchConfig_t one_warp()
{
        cudaLaunchConfig_t config = {};
        config.blockDim = 32;
        return config;
}

extern "C" void example_f16(const uint16_t *a, const uint16_t *b, float *d)
{
        const cudaLaunchConfig_t config = one_warp();
        cudaLaunchKernelEx(&config, product_f16, a, b, d);
}

extern "C" void example_bf16(const uint16_t *a, const uint16_t *b, float *d)
{
        const cudaLaunchConfig_t config = one_warp();
        cudaLaunchKernelEx(&config, product_bf16, a, b, d);
}

extern "C" void example_bytes(const uint8_t *a, const uint8_t *b, int32_t *d, int is_signed)
{
        const cudaLaunchConfig_t config = one_warp();
        cudaLaunchKernelEx(&config, product_bytes, a, b, d, is_signed);
}

extern "C" uint16_t example_half(float x)
{
        return __float2half_rn(x).bits;
}

extern "C" float example_from_half(uint16_t x)
{
        return __half2float(__ushort_as_half(x));
}

extern "C" uint16_t example_bfloat(float x)
{
        return __float2bfloat16_rn(x).bits;
}

extern "C" float example_towards_zero(float a, float b, float c)
{
        return __fmaf_rz(a, b, c);
}
