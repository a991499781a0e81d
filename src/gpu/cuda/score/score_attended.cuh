/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Tokens that are attended to anyway, by their exact keys: one block for a list, four lanes for a token. */
#ifndef DCI_GPU_CUDA_SCORE_SCORE_ATTENDED_CUH
#define DCI_GPU_CUDA_SCORE_SCORE_ATTENDED_CUH

#include "gpu/cuda/score/score.cuh"

#define KEPT_TOKENS (SCORE_WARPS * 8) /* at a time */

struct KeptShared {
        float scores[DCI_GPU_MAX_GROUP][KEPT_TOKENS];
        float queries[DCI_GPU_MAX_GROUP * DCI_GPU_MAX_DIM]; /* [query][dim] */
};

static __device__ __forceinline__ const unsigned char *key_of(const dci_gpu_score_args &a, const ScoreJob &job,
                                                              int position)
{
        const int slot = position < a.lanes.sink                   ? position
                         : position >= job.n_tokens - a.lanes.ring ? a.lanes.sink + (position & (a.lanes.ring - 1))
                                                                   : -1;
        if (slot >= 0)
                return lane_rows(a.lanes, job.row, a.n_heads, job.head, slot).key;
        const int block = __ldca(a.tables.blocks + job.row * a.tables.stride + (position >> a.pool.page_shift));
        return pool_rows(a.pool, block, job.head, position & ((1 << a.pool.page_shift) - 1)).key;
}

static __device__ __forceinline__ float2 widen_pair(uint32_t x, int dtype)
{
        const uint16_t low = (uint16_t)x, high = (uint16_t)(x >> 16);
        return dtype == DCI_F16 ? make_float2(HalfRows::to_f32(low), HalfRows::to_f32(high))
                                : make_float2(Bf16Rows::to_f32(low), Bf16Rows::to_f32(high));
}

/* 8 coordinates. */
static __device__ __forceinline__ float dot_of(const uint4 &x, const float *query, int dtype)
{
        const float4 low = *reinterpret_cast<const float4 *>(query),
                     high = *reinterpret_cast<const float4 *>(query + 4);
        const float2 k0 = widen_pair(x.x, dtype), k1 = widen_pair(x.y, dtype), k2 = widen_pair(x.z, dtype),
                     k3 = widen_pair(x.w, dtype);
        return low.x * k0.x + low.y * k0.y + low.z * k1.x + low.w * k1.y + high.x * k2.x + high.y * k2.y +
               high.z * k3.x + high.w * k3.y;
}

/* Four lanes' token on its way. */
struct KeptKey {
        uint4 x[DCI_GPU_MAX_DIM / 32];

        __device__ __forceinline__ void load(const dci_gpu_score_args &a, const ScoreJob &job, int token, int n_kept,
                                             int c)
        {
                const int at = token < n_kept ? token : n_kept - 1;
                const unsigned char *key = key_of(a, job, at < a.sizes.sink ? at : at + job.n_candidates) + 16 * c;
#pragma unroll
                for (int j = 0; j < DCI_GPU_MAX_DIM / 32; j++)
                        if (32 * j < a.dim)
                                x[j] = *reinterpret_cast<const uint4 *>(key + 64 * j);
        }
        /* Scores with every query head go to shared memory. */
        __device__ __forceinline__ void score(const dci_gpu_score_args &a, KeptShared &s, int place, bool there,
                                              int c) const
        {
                for (int q = 0; q < a.group; q++) {
                        float sum = 0.0f;
#pragma unroll
                        for (int j = 0; j < DCI_GPU_MAX_DIM / 32; j++)
                                if (32 * j < a.dim)
                                        sum += dot_of(x[j], s.queries + q * a.dim + 32 * j + 8 * c, a.dtype);
                        sum += __shfl_xor_sync(SCORE_ALL, sum, 1);
                        sum += __shfl_xor_sync(SCORE_ALL, sum, 2);
                        if (c == 0)
                                s.scores[q][place] = there ? sum : -INFINITY;
                }
        }
};

/* All threads of a block. */
static __device__ __forceinline__ void keep(const dci_gpu_score_args &a, const ScoreJob &job, KeptShared &s)
{
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, place = threadIdx.x / 4, c = lane & 3;
        const int n_kept = a.lanes.keys == nullptr ? 0 : job.n_tokens - job.n_candidates;
        RawQuery<DCI_GPU_MAX_DIM / 32> query;
        KeptKey key;
        Top top;
        top.begin();
        if (warp < a.group)
                query.load(a, job.list, warp, lane, a.dim / 32);
        if (n_kept > 0)
                key.load(a, job, place, n_kept, c);
        if (warp < a.group)
#pragma unroll
                for (int e = 0; e < DCI_GPU_MAX_DIM / 32; e++)
                        if (32 * e < a.dim)
                                s.queries[warp * a.dim + 32 * e + lane] = query.get(a, e);
        __syncthreads();
        for (int first = 0; first < n_kept; first += KEPT_TOKENS) {
                if (first > 0)
                        key.load(a, job, first + place, n_kept, c);
                key.score(a, s, place, first + place < n_kept, c);
                __syncthreads();
                if (warp < a.group) {
                        float x[KEPT_TOKENS / 32];
#pragma unroll
                        for (int i = 0; i < KEPT_TOKENS / 32; i++)
                                x[i] = s.scores[warp][32 * i + lane];
                        top.add(x);
                }
                __syncthreads();
        }
        top.merge_lanes<1>();
        if (warp < a.group && lane == 0)
                write_part(a, job.list, a.n_parts, warp, top);
}

#endif
