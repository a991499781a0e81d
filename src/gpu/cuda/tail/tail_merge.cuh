/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Merges the parts of a list's tail: those of a block in shared memory, then those of all blocks, by the last one. */
#ifndef DCI_GPU_CUDA_TAIL_TAIL_MERGE_CUH
#define DCI_GPU_CUDA_TAIL_TAIL_MERGE_CUH

#include <cuda_runtime.h>
#include <math_constants.h>

#include "gpu/cuda/launchers.h"
#include "gpu/cuda/ptx.cuh"

constexpr int WARPS = 8; /* of a block */
/* The maximum where there is no score yet: above -FLT_MAX, so that what was selected weighs nothing. */
constexpr float LEAST = -1e30f;

static __device__ __forceinline__ float exp2_of(float x)
{
        return ptx_exp2(x);
}

/* What a block writes of a list's query: greatest score, sum, and outputs [D]. */
template <int D, class Args>
static __device__ __forceinline__ float *part_of(const Args &a, int list, int part, int query)
{
        return a.partial + (((int64_t)list * a.n_parts + part) * a.group + query) * (D + 2);
}

/* W sums of a block's queries, from number `first` on, become the block's part of the list. */
template <int D, int W, int Q, class Args>
static __device__ __forceinline__ void leave_part(const Args &a, int list, int first, const float (&most)[W][Q],
                                                  const float (&sum)[W][Q], const float (&out)[W][Q][D])
{
        const int left = a.group - first, n = left < Q ? left : Q;
        for (int i = 2 * threadIdx.x; i < n * D; i += 2 * WARPS * 32) {
                const int q = i / D, d = i % D;
                float top = LEAST, all = 0.0f;
                float2 x = make_float2(0.0f, 0.0f);
#pragma unroll 8
                for (int w = 0; w < W; w++)
                        top = fmaxf(top, most[w][q]);
#pragma unroll 8
                for (int w = 0; w < W; w++) {
                        const float weight = exp2_of((most[w][q] - top) * CUDART_L2E_F);
                        const float2 one = *reinterpret_cast<const float2 *>(&out[w][q][d]);
                        x.x += weight * one.x;
                        x.y += weight * one.y;
                        all += weight * sum[w][q];
                }
                float *part = part_of<D>(a, list, blockIdx.x, first + q);
                if (d == 0)
                        *reinterpret_cast<float2 *>(part) = make_float2(top, all);
                *reinterpret_cast<float2 *>(part + 2 + d) = x;
        }
}

/* After the block left its part: whether it is the last of n_blocks to do so. `last` is shared. */
static __device__ __forceinline__ bool is_last(int32_t *arrived, int n_blocks, bool *last)
{
        /* The barrier orders the block's writes before the one thread that says so to the device. */
        __syncthreads();
        if (threadIdx.x == 0) {
                *last = ptx_arrive(arrived) == n_blocks - 1;
                if (*last)
                        *arrived = 0;
        }
        __syncthreads();
        return *last;
}

struct Merged {
        float2 x; /* of coordinates d and d + 1 */
        float most, sum;
};

/* The sum of all parts, in their order whoever comes last. A thread reads what it needs of several parts at once. */
template <int D, class Args>
static __device__ __forceinline__ Merged merge_parts(const Args &a, int list, int query, int d)
{
        constexpr int AT_A_TIME = 16;
        Merged m = {make_float2(0.0f, 0.0f), LEAST, 0.0f};
        for (int from = 0; from < a.n_parts; from += AT_A_TIME) {
                float2 heads[AT_A_TIME], outs[AT_A_TIME];
                float top = m.most;
#pragma unroll
                for (int p = 0; p < AT_A_TIME; p++) {
                        const float *part = part_of<D>(a, list, min(from + p, a.n_parts - 1), query);
                        heads[p] = __ldcg(reinterpret_cast<const float2 *>(part));
                        outs[p] = __ldcg(reinterpret_cast<const float2 *>(part + 2 + d));
                }
#pragma unroll
                for (int p = 0; p < AT_A_TIME; p++)
                        top = fmaxf(top, heads[p].x);
                const float old = exp2_of((m.most - top) * CUDART_L2E_F);
                m.x.x *= old;
                m.x.y *= old;
                m.sum *= old;
#pragma unroll
                for (int p = 0; p < AT_A_TIME; p++) {
                        const float weight = from + p < a.n_parts ? exp2_of((heads[p].x - top) * CUDART_L2E_F) : 0.0f;
                        m.x.x += weight * outs[p].x;
                        m.x.y += weight * outs[p].y;
                        m.sum += weight * heads[p].y;
                }
                m.most = top;
        }
        return m;
}

/* Its logarithm, and what makes outputs of it; 0 where nothing is left. */
static __device__ __forceinline__ float log_of(const Merged &m)
{
        return m.sum > 0.0f ? m.most + logf(m.sum) : -CUDART_INF_F;
}

static __device__ __forceinline__ float2 mean_of(const Merged &m)
{
        const float inverse = 1.0f / m.sum;
        return m.sum > 0.0f ? make_float2(m.x.x * inverse, m.x.y * inverse) : make_float2(0.0f, 0.0f);
}

/* A list of a sequence that attends to all it has, by one of its blocks. */
template <class Args> static __device__ __forceinline__ void leave_nothing(const Args &a, int list)
{
        for (int i = threadIdx.x; i < a.group * a.dim; i += WARPS * 32)
                a.out[(int64_t)list * a.group * a.dim + i] = 0.0f;
        if (threadIdx.x < a.group)
                a.lse[(int64_t)list * a.group + threadIdx.x] = -CUDART_INF_F;
}

#endif
