/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Queries on their way into a head's frame (args/transforms.h), four at a time, by all threads of a block. Threads have
 * coordinates, and parts of the sums: what they read of the transform is contiguous. Sums have one order. */
#ifndef DCI_GPU_CUDA_SCORE_SCORE_TRANSFORM_CUH
#define DCI_GPU_CUDA_SCORE_SCORE_TRANSFORM_CUH

#include "gpu/args/transforms.h"
#include "gpu/cuda/score/score.cuh"

#define TURN_QUERIES 4

struct TurnShared {
        float x[DCI_GPU_MAX_DIM][TURN_QUERIES]; /* queries, then their coordinates */
        float part[SCORE_THREADS][TURN_QUERIES];
};

/* What a frame's record begins with, and where its floats are. */
struct Frame {
        const dci_gpu_transform *head;
        int by_matrix, n_coded, n_lines, dim;

        __device__ __forceinline__ void find(const dci_gpu_score_args &a, const ScoreJob &job)
        {
                head = reinterpret_cast<const dci_gpu_transform *>(
                        a.transforms + ((uint64_t)job.row * a.n_heads + job.head) * DCI_GPU_TRANSFORM_BYTES(a.dim));
                by_matrix = __ldcg(&head->by_matrix);
                n_coded = 4 * __ldcg(&head->n_groups);
                n_lines = __ldcg(&head->n_lines);
                dim = a.dim;
        }
        __device__ __forceinline__ const float *centre() const
        {
                return reinterpret_cast<const float *>(head + 1);
        }
        __device__ __forceinline__ const float *turn() const
        {
                return centre() + dim;
        }
};

/* Query q, times the scale, by one warp; returns its product with the centre. */
static __device__ __forceinline__ float turn_load(const dci_gpu_score_args &a, const ScoreJob &job, const Frame &frame,
                                                  TurnShared &s, int q, int lane)
{
        RawQuery<DCI_GPU_MAX_DIM / 32> raw;
        float fixed = 0.0f;
        raw.load(a, job.list, q, lane, a.dim / 32);
#pragma unroll
        for (int e = 0; e < DCI_GPU_MAX_DIM / 32; e++)
                if (32 * e < a.dim) {
                        const float x = raw.get(a, e);
                        s.x[32 * e + lane][q % TURN_QUERIES] = x;
                        fixed = __fmaf_rn(x, __ldca(frame.centre() + 32 * e + lane), fixed);
                }
        return warp_sum(fixed);
}

/* Products with the transform, by all threads; between barriers. */
static __device__ __forceinline__ void turn_by_matrix(const Frame &frame, TurnShared &s)
{
        const int dim = frame.dim, n_parts = SCORE_THREADS / dim, part = threadIdx.x / dim, j = threadIdx.x % dim;
        if (part < n_parts && j < frame.n_coded) {
                const int first = part * dim / n_parts, end = (part + 1) * dim / n_parts;
                const float *column = frame.turn() + j;
                float sum[TURN_QUERIES] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 8
                for (int i = first; i < end; i++) {
                        const float m = __ldca(column + (int64_t)i * dim);
#pragma unroll
                        for (int q = 0; q < TURN_QUERIES; q++)
                                sum[q] = __fmaf_rn(m, s.x[i][q], sum[q]);
                }
#pragma unroll
                for (int q = 0; q < TURN_QUERIES; q++)
                        s.part[threadIdx.x][q] = sum[q];
        }
        __syncthreads();
        if ((int)threadIdx.x < frame.n_coded)
                for (int q = 0; q < TURN_QUERIES; q++) {
                        float sum = s.part[threadIdx.x][q];
                        for (int p = 1; p < n_parts; p++)
                                sum = __fadd_rn(sum, s.part[p * dim + threadIdx.x][q]);
                        s.x[threadIdx.x][q] = sum;
                }
}

/* As dci_rotate, of one query by one warp: the same bits. Frames that no fit gave are few. */
static __device__ __forceinline__ void turn_by_signs(const dci_gpu_score_args &a, TurnShared &s, int q, int lane)
{
        const int part = a.dim == 96 ? 64 : a.dim;
        for (int r = 0; r < 6; r++) {
                const int first = r % 2 == 1 ? a.dim - part : 0;
                if (r % 2 == 1 && part == a.dim)
                        continue;
                __syncwarp();
                for (int i = lane; i < part; i += 32)
                        s.x[first + i][q] = __fmul_rn(s.x[first + i][q], __ldca(a.signs + r * part + i));
                for (int half = part / 2; half > 0; half /= 2) {
                        __syncwarp();
                        for (int i = lane; i < part / 2; i += 32) {
                                const int low = first + i / half * 2 * half + i % half;
                                const float x = s.x[low][q], y = s.x[low + half][q];
                                s.x[low][q] = __fadd_rn(x, y);
                                s.x[low + half][q] = __fsub_rn(x, y);
                        }
                }
        }
        __syncwarp();
}

#endif
