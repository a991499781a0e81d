/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Merges warps of a block, blocks of a head and the tail by log-sum-exp. Threads take four coordinates at a time. */
#ifndef DCI_GPU_CUDA_ATTEND_ATTEND_MERGE_CUH
#define DCI_GPU_CUDA_ATTEND_ATTEND_MERGE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

#include "gpu/cuda/attend/attend_rows.cuh"
#include "gpu/cuda/ptx.cuh"

static __device__ __forceinline__ uint2 halves_of(float4 x)
{
        const __half2 low = __floats2half2_rn(x.x, x.y), high = __floats2half2_rn(x.z, x.w);
        return make_uint2(*reinterpret_cast<const uint32_t *>(&low), *reinterpret_cast<const uint32_t *>(&high));
}

static __device__ __forceinline__ uint2 bfloats_of(float4 x)
{
        const __nv_bfloat162 low = __floats2bfloat162_rn(x.x, x.y), high = __floats2bfloat162_rn(x.z, x.w);
        return make_uint2(*reinterpret_cast<const uint32_t *>(&low), *reinterpret_cast<const uint32_t *>(&high));
}

/* Rows of outputs may begin anywhere: elements are written one by one where they are not aligned. */
static __device__ __forceinline__ void put_out(const dci_gpu_attend_args &a, int64_t at, float4 x)
{
        if (a.out_dtype == DCI_F32) {
                float *out = static_cast<float *>(a.out) + at;
                if (reinterpret_cast<uintptr_t>(out) % 16 == 0) {
                        *reinterpret_cast<float4 *>(out) = x;
                } else {
                        out[0] = x.x;
                        out[1] = x.y;
                        out[2] = x.z;
                        out[3] = x.w;
                }
                return;
        }
        const uint2 words = a.out_dtype == DCI_F16 ? halves_of(x) : bfloats_of(x);
        uint16_t *out = static_cast<uint16_t *>(a.out) + at;
        if (reinterpret_cast<uintptr_t>(out) % 8 == 0) {
                *reinterpret_cast<uint2 *>(out) = words;
        } else {
                out[0] = (uint16_t)words.x;
                out[1] = (uint16_t)(words.x >> 16);
                out[2] = (uint16_t)words.y;
                out[3] = (uint16_t)(words.y >> 16);
        }
}

/* sum += weight x */
static __device__ __forceinline__ void add_to(float4 *sum, float weight, float4 x)
{
        sum->x += weight * x.x;
        sum->y += weight * x.y;
        sum->z += weight * x.z;
        sum->w += weight * x.w;
}

/* What the exact part and the tail count, and the sum of both: in natural logarithms. */
static __device__ __forceinline__ void merge_tail(float most, float sum, float tail_lse, float *of_exact,
                                                  float *of_tail, float *lse)
{
        const float exact = sum > 0.0f ? most * CUDART_LN2_F + logf(sum) : -CUDART_INF_F;
        const float top = fmaxf(exact, tail_lse);
        *lse = isinf(top) ? top : top + logf(expf(exact - top) + expf(tail_lse - top));
        *of_exact = isinf(exact) ? 0.0f : expf(exact - *lse) / sum;
        *of_tail = isinf(tail_lse) ? 0.0f : expf(tail_lse - *lse);
}

/* Four elements of a query's tail, if there is one. */
static __device__ __forceinline__ float4 tail_at(const dci_gpu_attend_args &a, int64_t query, int dim, int d)
{
        if (a.tail_lse == nullptr)
                return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        const float *tail = a.tail_out + query * dim + d;
        return make_float4(tail[0], tail[1], tail[2], tail[3]);
}

/* The exact part and the tail by what they count. */
static __device__ __forceinline__ void put_merged(const dci_gpu_attend_args &a, int64_t query, int d, float of_exact,
                                                  float4 exact, float of_tail, float4 tail)
{
        float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        add_to(&x, of_exact, exact);
        if (of_tail != 0.0f)
                add_to(&x, of_tail, tail);
        put_out(a, query * (int64_t)a.out_ld + d, x);
}

/* What the warps of a block leave. */
template <int D, int Q, int W> struct Shared {
        uint4 queries[2 * D];
        float most[W][Q], sum[W][Q], weights[W][Q];
        alignas(16) float out[W][Q][D];
        float of_exact[Q], of_tail[Q];
        bool last;
};

/* The greatest of the warps' maxima and what each warp counts against it, by one warp; returns the sum of all. */
template <int D, int Q, int W> static __device__ __forceinline__ float weigh(Shared<D, Q, W> &s, int q, float *most)
{
        const int w = threadIdx.x & 31;
        const float own = w < W ? s.most[w][q] : -CUDART_INF_F;
        float top = own;
#pragma unroll
        for (int d = 16; d > 0; d >>= 1)
                top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, d));
        const float weight = own == -CUDART_INF_F ? 0.0f : exp2f(own - top);
        float sum = w < W ? weight * s.sum[w][q] : 0.0f;
#pragma unroll
        for (int d = 16; d > 0; d >>= 1)
                sum += __shfl_xor_sync(0xffffffffu, sum, d);
        if (w < W)
                s.weights[w][q] = weight;
        *most = top;
        return sum;
}

template <int D, int Q, int W> static __device__ __forceinline__ float4 blended(const Shared<D, Q, W> &s, int q, int d)
{
        float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
        for (int w = 0; w < W; w++)
                add_to(&x, s.weights[w][q], *reinterpret_cast<const float4 *>(&s.out[w][q][d]));
        return x;
}

/* Outputs of one head from the block's warps: the head's only block. */
template <int D, int Q, int W>
static __device__ __forceinline__ void finish(const dci_gpu_attend_args &a, Shared<D, Q, W> &s)
{
        const int64_t first = ((int64_t)blockIdx.z * gridDim.y + blockIdx.y) * a.group;
        for (int q = threadIdx.x >> 5; q < a.group; q += W) {
                const float tail = a.tail_lse != nullptr ? a.tail_lse[first + q] : -CUDART_INF_F;
                float most, lse;
                const float sum = weigh(s, q, &most);
                if ((threadIdx.x & 31) == 0) {
                        merge_tail(most, sum, tail, &s.of_exact[q], &s.of_tail[q], &lse);
                        if (a.lse != nullptr)
                                a.lse[first + q] = lse;
                }
        }
        __syncthreads();
        for (int i = 4 * threadIdx.x; i < a.group * D; i += 4 * W * 32) {
                const int q = i / D, d = i % D;
                put_merged(a, first + q, d, s.of_exact[q], blended(s, q, d), s.of_tail[q], tail_at(a, first + q, D, d));
        }
}

/* A part of a head in memory: maxima, sums, outputs [query][D]. */
template <int D> static __device__ __forceinline__ float *part_of(const dci_gpu_attend_args &a, int list, int part)
{
        return a.partial + ((int64_t)list * a.n_splits + part) * DCI_GPU_MAX_GROUP * (D + 2);
}

/* Leaves this block's part; returns whether it is the last of its head to do so. */
template <int D, int Q, int W>
static __device__ __forceinline__ bool leave_part(const dci_gpu_attend_args &a, const Job &job, Shared<D, Q, W> &s)
{
        float *part = part_of<D>(a, job.list, blockIdx.x);
        for (int q = threadIdx.x >> 5; q < a.group; q += W) {
                float most;
                const float sum = weigh(s, q, &most);
                if ((threadIdx.x & 31) == 0) {
                        part[q] = most;
                        part[DCI_GPU_MAX_GROUP + q] = sum;
                }
        }
        __syncthreads();
        for (int i = 4 * threadIdx.x; i < a.group * D; i += 4 * W * 32)
                *reinterpret_cast<float4 *>(part + 2 * DCI_GPU_MAX_GROUP + i) = blended(s, i / D, i % D);
        /* The barrier orders the block's writes before the one thread that says so to the device. */
        __syncthreads();
        if (threadIdx.x == 0) {
                s.last = ptx_arrive(a.arrived + job.list) == (int)gridDim.x - 1;
                if (s.last)
                        a.arrived[job.list] = 0;
        }
        __syncthreads();
        return s.last;
}

/* Outputs of one head from all parts, in their order whoever comes last. A thread reads several parts at once. */
template <int D> static __device__ __forceinline__ void merge_parts(const dci_gpu_attend_args &a, const Job &job)
{
        constexpr int AT_ONCE = 16;
        const int64_t first = ((int64_t)blockIdx.z * gridDim.y + blockIdx.y) * a.group;
        const int n = gridDim.x;
        for (int i = 4 * threadIdx.x; i < a.group * D; i += 4 * blockDim.x) {
                const int q = i / D, d = i % D;
                const float tail = a.tail_lse != nullptr ? a.tail_lse[first + q] : -CUDART_INF_F;
                const float4 tail_out = tail_at(a, first + q, D, d); /* on its way with the parts */
                float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                float most = -CUDART_INF_F, sum = 0.0f, of_exact, of_tail, lse;
                for (int from = 0; from < n; from += AT_ONCE) {
                        float mosts[AT_ONCE], sums[AT_ONCE], top = most;
                        float4 outs[AT_ONCE];
#pragma unroll
                        for (int p = 0; p < AT_ONCE; p++) {
                                const float *part = part_of<D>(a, job.list, min(from + p, n - 1));
                                mosts[p] = __ldcg(part + q);
                                sums[p] = __ldcg(part + DCI_GPU_MAX_GROUP + q);
                                outs[p] = __ldcg(reinterpret_cast<const float4 *>(part + 2 * DCI_GPU_MAX_GROUP + i));
                        }
#pragma unroll
                        for (int p = 0; p < AT_ONCE; p++) {
                                mosts[p] = from + p < n ? mosts[p] : -CUDART_INF_F;
                                top = fmaxf(top, mosts[p]);
                        }
                        const float old = most == -CUDART_INF_F ? 0.0f : exp2f(most - top);
                        const float4 before = x;
                        x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                        add_to(&x, old, before);
                        sum *= old;
#pragma unroll
                        for (int p = 0; p < AT_ONCE; p++) {
                                const float weight = mosts[p] == -CUDART_INF_F ? 0.0f : exp2f(mosts[p] - top);
                                add_to(&x, weight, outs[p]);
                                sum += weight * sums[p];
                        }
                        most = top;
                }
                merge_tail(most, sum, tail, &of_exact, &of_tail, &lse);
                if (a.lse != nullptr && d == 0)
                        a.lse[first + q] = lse;
                put_merged(a, first + q, d, of_exact, x, of_tail, tail_out);
        }
}

#endif
