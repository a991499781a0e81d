/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What the score kernels share. A block takes a part of one list, its warps units of a few rows in turns; one more
 * block for a list takes the tokens that every plan attends to (cuda/score/score_attended.cuh).
 *
 * Rows go from memory straight into the registers of A of the tensor cores, queries are columns of B. With g = lane / 4
 * and c = lane % 4 a lane then has products of rows g and g + 8 of a tile with queries 2c and 2c + 1. */
#ifndef DCI_GPU_CUDA_SCORE_SCORE_CUH
#define DCI_GPU_CUDA_SCORE_SCORE_CUH

#include <float.h>

#include "gpu/cuda/rows.cuh"
#include "gpu/cuda/score/score.h"
#include "gpu/cuda/score/score_ptx.cuh"

#define SCORE_WARPS 16
#define SCORE_THREADS (SCORE_WARPS * 32)
#define SCORE_TABLE 512 /* chunks whose addresses are in shared memory */
#define SCORE_ALL 0xffffffffu

/* The same for all threads of a block. */
struct ScoreJob {
        int head, list, row, sparse;
        int n_tokens, n_candidates;
};

static __device__ __forceinline__ ScoreJob score_job_of(const dci_gpu_score_args &a)
{
        const int sequence = blockIdx.z;
        ScoreJob job;
        job.head = DCI_GPU_HEAD_OF(&a, blockIdx.y);
        job.list = sequence * gridDim.y + blockIdx.y;
        /* All of this is on its way at the same time. */
        job.row = __ldcg(a.rows + sequence);
        job.n_tokens = __ldcg(a.n_tokens + sequence);
        const int n_grouped = __ldcg(a.n_grouped + sequence);
        dci_gpu_view view;
        DCI_GPU_VIEW(view, a.sizes, job.n_tokens, n_grouped);
        job.sparse = view.sparse;
        job.n_candidates = view.n_candidates;
        return job;
}

/* Whether the list has scores to be made; the same for all of its blocks. The job is known, and what chunks hold is
 * requested, before the kernel that came before has ended (args/select.h), unless that has written it; whether a list
 * is due is not, nor what is attended to anyway, nor the queries. */
static __device__ __forceinline__ bool score_begins(const dci_gpu_score_args &a, const ScoreJob &job)
{
        if (job.sparse && a.due == nullptr && a.fresh == 0)
                return true;
        ptx_take_turn();
        return job.sparse && (a.due == nullptr || __ldca(a.due + job.list) == a.due_is);
}

/* Units [first, last) of a part. */
struct ScoreRange {
        int first, last;
};

static __device__ __forceinline__ ScoreRange score_range_of(int n_units, int part, int n_parts)
{
        const int each = n_units / n_parts, more = n_units % n_parts, first = each * part + min(part, more);
        return {first, first + each + (part < more ? 1 : 0)};
}

/* The address of the head's part in a chunk. */
static __device__ __forceinline__ const unsigned char *chunk_at(const dci_gpu_score_args &a, const ScoreJob &job,
                                                                int chunk)
{
        return chunk_part(a.summaries, job.row, job.head, chunk);
}

/* Addresses of the head's part in chunks `first` on, for all of a block's warps. */
struct ScoreTable {
        const unsigned char *at[SCORE_TABLE];

        __device__ __forceinline__ void fill(const dci_gpu_chunks &chunks, const ScoreJob &job, int first, int n)
        {
                for (int i = threadIdx.x; i < n; i += SCORE_THREADS)
                        at[i] = chunk_part(chunks, job.row, job.head, first + i);
        }
};

/* One query on its way to a warp's registers: coordinate 32 e + lane. Loads of all types come before the first use. */
template <int MOST> struct RawQuery {
        uint32_t raw[MOST];

        /* Queries after the last are zeros. */
        __device__ __forceinline__ void load(const dci_gpu_score_args &a, int list, int q, int lane, int n)
        {
                const bool there = q < a.group;
                const uint64_t first = ((uint64_t)list * a.group + (there ? q : 0)) * a.query_ld + lane;
                if (a.query_dtype == DCI_F32) {
#pragma unroll
                        for (int e = 0; e < MOST; e++)
                                raw[e] = e < n && there
                                                 ? __ldcg(static_cast<const uint32_t *>(a.queries) + first + 32 * e)
                                                 : 0;
                } else {
#pragma unroll
                        for (int e = 0; e < MOST; e++)
                                raw[e] = e < n && there
                                                 ? __ldcg(static_cast<const uint16_t *>(a.queries) + first + 32 * e)
                                                 : 0;
                }
        }
        __device__ __forceinline__ float get(const dci_gpu_score_args &a, int e) const
        {
                const float x = a.query_dtype == DCI_F32   ? __uint_as_float(raw[e])
                                : a.query_dtype == DCI_F16 ? HalfRows::to_f32((uint16_t)raw[e])
                                                           : Bf16Rows::to_f32((uint16_t)raw[e]);
                return __fmul_rn(x, a.scale);
        }
};

/* A rotation of a query in a warp's registers, coordinate 32 e + lane: as dci_rotate, stages from the widest to the
 * narrowest. Nothing is fused: the same bits. */
template <int D> struct Rotation {
        static constexpr int N = D / 32, PART = D == 96 ? 64 : D, WIDE = PART / 32, ROUNDS = PART == D ? 3 : 6;
        float signs[ROUNDS][WIDE];

        __device__ __forceinline__ void load(const float *from, int lane)
        {
#pragma unroll
                for (int r = 0; r < ROUNDS; r++)
#pragma unroll
                        for (int e = 0; e < WIDE; e++)
                                signs[r][e] = __ldcg(from + (PART == D ? 2 * r : r) * PART + 32 * e + lane);
        }

        __device__ __forceinline__ void turn(float (&x)[N], int lane) const
        {
#pragma unroll
                for (int r = 0; r < ROUNDS; r++) {
                        const int first = PART != D && r % 2 == 1 ? N - WIDE : 0;
#pragma unroll
                        for (int e = 0; e < WIDE; e++)
                                x[first + e] = __fmul_rn(x[first + e], signs[r][e]);
#pragma unroll
                        for (int half = WIDE / 2; half > 0; half /= 2)
#pragma unroll
                                for (int e = 0; e < WIDE; e++)
                                        if ((e & half) == 0) {
                                                const float low = x[first + e], high = x[first + e + half];
                                                x[first + e] = __fadd_rn(low, high);
                                                x[first + e + half] = __fsub_rn(low, high);
                                        }
#pragma unroll
                        for (int half = 16; half > 0; half /= 2)
#pragma unroll
                                for (int e = 0; e < WIDE; e++) {
                                        const float own = x[first + e];
                                        const float other = __shfl_xor_sync(SCORE_ALL, own, half);
                                        x[first + e] =
                                                (lane & half) == 0 ? __fadd_rn(own, other) : __fsub_rn(other, own);
                                }
                }
        }
};

static __device__ __forceinline__ float warp_sum(float x)
{
#pragma unroll
        for (int d = 16; d > 0; d /= 2)
                x += __shfl_xor_sync(SCORE_ALL, x, d);
        return x;
}

static __device__ __forceinline__ float warp_most(float x)
{
#pragma unroll
        for (int d = 16; d > 0; d /= 2)
                x = fmaxf(x, __shfl_xor_sync(SCORE_ALL, x, d));
        return x;
}

/* The greatest of some scores, and the sum of exp(score - greatest). No scores: -FLT_MAX and 0. */
struct Top {
        float most, sum;

        __device__ __forceinline__ void begin()
        {
                most = -FLT_MAX;
                sum = 0.0f;
        }
        /* -infinity is no score. */
        template <int N> __device__ __forceinline__ void add(const float (&x)[N])
        {
                constexpr float log2e = 1.4426950408889634f;
                float top = most;
#pragma unroll
                for (int i = 0; i < N; i++)
                        top = fmaxf(top, x[i]);
                sum *= exp2_fast((most - top) * log2e);
#pragma unroll
                for (int i = 0; i < N; i++)
                        sum += exp2_fast((x[i] - top) * log2e);
                most = top;
        }
        /* With the lanes whose numbers differ in the bits from `low` to `high`. */
        template <int LOW, int HIGH = 16> __device__ __forceinline__ void merge_lanes()
        {
                constexpr float log2e = 1.4426950408889634f;
                float top = most;
#pragma unroll
                for (int d = LOW; d <= HIGH; d *= 2)
                        top = fmaxf(top, __shfl_xor_sync(SCORE_ALL, top, d));
                sum *= exp2_fast((most - top) * log2e);
                most = top;
#pragma unroll
                for (int d = LOW; d <= HIGH; d *= 2)
                        sum += __shfl_xor_sync(SCORE_ALL, sum, d);
        }
};

static __device__ __forceinline__ void write_part(const dci_gpu_score_args &a, int list, int part, int q, Top top)
{
        float *out = a.parts + (((uint64_t)list * (a.n_parts + 1) + part) * a.group + q) * 2;
        out[0] = top.most;
        out[1] = top.sum;
}

/* What a lane has of a tile: rows first + 0, .. (R of them, `apart` apart), and of its column pairs the queries q0 and
 * q0 + 1. Q: columns, 4, 8 or 16. With 4, lanes with c < 2 and c >= 2 have different rows of the same queries. */
template <int Q> struct Scores {
        static constexpr int R = Q == 4 ? 2 : 4, PAIRS = Q == 16 ? 2 : 1;
        Top tops[PAIRS][2];
        float *out; /* of the list, and of query q0 */
        int n_rows, q0;
        bool whole; /* four queries, whose scores are written at once */

        __device__ __forceinline__ void begin(const dci_gpu_score_args &a, const ScoreJob &job, int n, int c)
        {
                q0 = Q == 4 ? 2 * (c & 1) : 2 * c;
                out = a.scores + (uint64_t)job.list * a.max_groups * a.group + q0;
                n_rows = n;
                whole = Q == 4 && a.group == 4 && reinterpret_cast<uintptr_t>(a.scores) % 16 == 0;
#pragma unroll
                for (int p = 0; p < PAIRS; p++) {
                        tops[p][0].begin();
                        tops[p][1].begin();
                }
        }
        /* Two rows of which a lane has two queries each, and its neighbour the other two: they trade, for one row each.
         * A warp writes 512 bytes that are contiguous; half rows took twice as many writes, each of half a sector. */
        __device__ __forceinline__ void put_rows(int first, const float (&x)[2][2])
        {
                const bool odd = q0 != 0;
                const float given[2] = {odd ? x[0][0] : x[1][0], odd ? x[0][1] : x[1][1]};
                const float other[2] = {__shfl_xor_sync(SCORE_ALL, given[0], 1),
                                        __shfl_xor_sync(SCORE_ALL, given[1], 1)};
                const int row = first + (odd ? 1 : 0);
                if (row < n_rows)
                        store_four(out - q0 + (int64_t)row * 4,
                                   odd ? make_float4(other[0], other[1], x[1][0], x[1][1])
                                       : make_float4(x[0][0], x[0][1], other[0], other[1]));
        }
        /* x[i][j]: row first + i * apart, query q0 + 8 p + j. */
        template <int N>
        __device__ __forceinline__ void take(const dci_gpu_score_args &a, int p, int first, int apart,
                                             const float (&x)[N][2])
        {
                const int q = q0 + 8 * p, group = a.group;
                float counted[2][N];
                if constexpr (Q == 4 && N == 2)
                        if (whole) /* the same for all threads */
                                put_rows(first, x);
#pragma unroll
                for (int i = 0; i < N; i++) {
                        const int row = first + i * apart;
                        const bool there = row < n_rows;
                        counted[0][i] = there ? x[i][0] : -INFINITY;
                        counted[1][i] = there ? x[i][1] : -INFINITY;
                        if (Q == 4 && N == 2 && whole)
                                continue;
                        float *to = out + (int64_t)row * group + 8 * p;
                        if ((group & 1) == 0) { /* the same for all threads */
                                if (there && q < group)
                                        store_pair(to, x[i][0], x[i][1]);
                        } else {
                                if (there && q < group)
                                        to[0] = x[i][0];
                                if (there && q + 1 < group)
                                        to[1] = x[i][1];
                        }
                }
                tops[p][0].add(counted[0]);
                tops[p][1].add(counted[1]);
        }
        /* Needs all threads; `most` and `sum` are shared memory. */
        __device__ __forceinline__ void leave(const dci_gpu_score_args &a, const ScoreJob &job,
                                              float (&all)[SCORE_WARPS][16][2])
        {
                const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#pragma unroll
                for (int p = 0; p < PAIRS; p++)
#pragma unroll
                        for (int j = 0; j < 2; j++) {
                                Top top = tops[p][j];
                                top.merge_lanes<Q == 4 ? 2 : 4>();
                                if (lane < (Q == 4 ? 2 : 4)) {
                                        all[warp][q0 + 8 * p + j][0] = top.most;
                                        all[warp][q0 + 8 * p + j][1] = top.sum;
                                }
                        }
                __syncthreads();
                /* Half a warp for a query, a lane for a warp's. */
                const int q = threadIdx.x / SCORE_WARPS, w = threadIdx.x % SCORE_WARPS;
                if (warp < (a.group + 1) / 2) {
                        Top top;
                        top.most = q < a.group ? all[w][q][0] : -FLT_MAX;
                        top.sum = q < a.group ? all[w][q][1] : 0.0f;
                        top.merge_lanes<1, SCORE_WARPS / 2>();
                        if (w == 0 && q < a.group)
                                write_part(a, job.list, blockIdx.x, q, top);
                }
        }
};

typedef void (*ScoreKernel)(dci_gpu_score_args);

static inline cudaError_t launch_scores(ScoreKernel kernel, const dci_gpu_score_args &args, const GpuStream &stream)
{
        return launch_kernel(stream, dim3(args.n_parts + 1, DCI_GPU_LISTS(&args), args.n_sequences), SCORE_THREADS, 0,
                             kernel, args);
}

#endif
