/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Sums of rows that weigh as several tokens, of which tails by means consist: what pages (cuda/tail/tail_sums.cu) and
 * clusters (cuda/tail/tail_clusters.cu) share.
 *
 * A row is in as many lanes as it has pieces of 16 bytes, rounded up to a power of two; each such span of lanes takes
 * rows in turns, with the running maximum and sum of online softmax, for four query heads at a time. */
#ifndef DCI_GPU_CUDA_TAIL_TAIL_ROWS_CUH
#define DCI_GPU_CUDA_TAIL_TAIL_ROWS_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "gpu/cuda/launch.cuh"
#include "gpu/cuda/rows.cuh"
#include "gpu/cuda/tail/tail_merge.cuh"

constexpr int QUERIES = 4; /* of a block */
constexpr int AT_ONCE = 4; /* rows of a span that are on their way */

struct Half {
        static __device__ __forceinline__ float2 to_f32(uint32_t x)
        {
                return __half22float2(*reinterpret_cast<const __half2 *>(&x));
        }
};

struct Bfloat {
        static __device__ __forceinline__ float2 to_f32(uint32_t x)
        {
                return make_float2(__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000u));
        }
};

template <int D> struct Shape {
        static constexpr int PIECES = D / 8;                          /* of a row, 16 bytes each */
        static constexpr int SPAN = D <= 64 ? 8 : D <= 128 ? 16 : 32; /* lanes for a row */
        static constexpr int ROWS = 32 / SPAN, SPANS = WARPS * ROWS;  /* of a warp, of a block */
};

/* Of a block's spans, then of the block. */
template <int D> struct SpanSums {
        alignas(16) float out[Shape<D>::SPANS][QUERIES][D];
        float most[Shape<D>::SPANS][QUERIES], sum[Shape<D>::SPANS][QUERIES];
        bool last;
};

static __device__ __forceinline__ uint4 load16(const unsigned char *at)
{
        return ptx_load16_once_128(at);
}

template <class Args> static __device__ __forceinline__ float query_at(const Args &a, uint64_t at)
{
        if (a.query_dtype == DCI_F32)
                return __ldcg(static_cast<const float *>(a.queries) + at);
        const unsigned short half = __ldcg(static_cast<const unsigned short *>(a.queries) + at);
        return a.query_dtype == DCI_F16 ? __half2float(__ushort_as_half(half)) : __uint_as_float((unsigned)half << 16);
}

/* What a span of lanes sums: the piece of each lane. */
template <class T, int D> struct Running {
        using S = Shape<D>;
        float query[QUERIES][8], most[QUERIES], sum[QUERIES], out[QUERIES][8];
        int piece; /* of this lane; past the row's end there are none, and zeros in its place */

        template <class Args> __device__ __forceinline__ void begin(const Args &a, int list, int first)
        {
                piece = threadIdx.x % S::SPAN;
#pragma unroll
                for (int q = 0; q < QUERIES; q++) {
                        const bool any = first + q < a.group && piece < S::PIECES;
                        const uint64_t at = ((uint64_t)list * a.group + first + q) * a.query_ld + 8 * piece;
                        most[q] = LEAST;
                        sum[q] = 0.0f;
#pragma unroll
                        for (int e = 0; e < 8; e++) {
                                query[q][e] = any ? query_at(a, at + e) * a.scale : 0.0f;
                                out[q][e] = 0.0f;
                        }
                }
        }

        __device__ __forceinline__ uint4 load(const unsigned char *row) const
        {
                return piece < S::PIECES ? load16(row + 16 * piece) : make_uint4(0, 0, 0, 0);
        }

        static __device__ __forceinline__ void to_f32(const uint4 &x, float (&y)[8])
        {
                const uint32_t words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
                for (int i = 0; i < 4; i++) {
                        const float2 two = T::to_f32(words[i]);
                        y[2 * i] = two.x;
                        y[2 * i + 1] = two.y;
                }
        }

        /* This lane's part of the products with one row. */
        __device__ __forceinline__ void multiply(const uint4 &key, float (&s)[QUERIES]) const
        {
                float y[8];
                to_f32(key, y);
#pragma unroll
                for (int q = 0; q < QUERIES; q++) {
                        s[q] = 0.0f;
#pragma unroll
                        for (int e = 0; e < 8; e++)
                                s[q] = fmaf(query[q][e], y[e], s[q]);
                }
        }

        /* Over a span, or over a warp, whose spans multiplied rows of one page or cluster. */
        template <int LANES> static __device__ __forceinline__ float gather(float x)
        {
#pragma unroll
                for (int d = 1; d < LANES; d *= 2)
                        x += __shfl_xor_sync(0xffffffffu, x, d);
                return x;
        }

        __device__ __forceinline__ void rise(int q, float top)
        {
                if (top <= most[q])
                        return;
                const float factor = exp2_of((most[q] - top) * CUDART_L2E_F);
                sum[q] *= factor;
#pragma unroll
                for (int e = 0; e < 8; e++)
                        out[q][e] *= factor;
                most[q] = top;
        }

        __device__ __forceinline__ void blend(const float (&weights)[QUERIES], const uint4 &value)
        {
                float y[8];
                to_f32(value, y);
#pragma unroll
                for (int q = 0; q < QUERIES; q++)
#pragma unroll
                        for (int e = 0; e < 8; e++)
                                out[q][e] = fmaf(weights[q], y[e], out[q][e]);
        }

        /* Rows by their scores, one for a span each time; times: tokens of a row, 0: there is none. Overwrites s. */
        __device__ __forceinline__ void add_scored(float (&s)[AT_ONCE][QUERIES], const uint4 (&values)[AT_ONCE],
                                                   const float (&times)[AT_ONCE])
        {
#pragma unroll
                for (int q = 0; q < QUERIES; q++) {
                        float top = most[q];
#pragma unroll
                        for (int u = 0; u < AT_ONCE; u++)
                                top = fmaxf(top, times[u] > 0.0f ? s[u][q] : LEAST);
                        rise(q, top);
#pragma unroll
                        for (int u = 0; u < AT_ONCE; u++) {
                                s[u][q] = times[u] > 0.0f ? times[u] * exp2_of((s[u][q] - top) * CUDART_L2E_F) : 0.0f;
                                sum[q] += s[u][q];
                        }
                }
#pragma unroll
                for (int u = 0; u < AT_ONCE; u++)
                        blend(s[u], values[u]);
        }

        __device__ __forceinline__ void leave(SpanSums<D> &s, int span) const
        {
#pragma unroll
                for (int q = 0; q < QUERIES; q++) {
                        if (piece == 0) {
                                s.most[span][q] = most[q];
                                s.sum[span][q] = sum[q];
                        }
                        if (piece < S::PIECES) {
                                float *to = &s.out[span][q][8 * piece];
                                *reinterpret_cast<float4 *>(to) =
                                        make_float4(out[q][0], out[q][1], out[q][2], out[q][3]);
                                *reinterpret_cast<float4 *>(to + 4) =
                                        make_float4(out[q][4], out[q][5], out[q][6], out[q][7]);
                        }
                }
        }
};

/* Ends a block: its part of the list, which the last one to arrive merges. first: its first query head. */
template <class T, int D, class Args>
static __device__ __forceinline__ void end_block(const Args &a, int list, int first, const Running<T, D> &running,
                                                 SpanSums<D> &s)
{
        running.leave(s, threadIdx.x / Shape<D>::SPAN);
        __syncthreads();
        leave_part(a, list, first, s.most, s.sum, s.out);
        if (!is_last(a.arrived + list, gridDim.x * (gridDim.y / DCI_GPU_LISTS(&a)), &s.last))
                return;
        for (int i = 2 * threadIdx.x; i < a.group * D; i += 2 * WARPS * 32) {
                const Merged merged = merge_parts<D>(a, list, i / D, i % D);
                *reinterpret_cast<float2 *>(a.out + (int64_t)list * a.group * D + i) = mean_of(merged);
                if (i % D == 0)
                        a.lse[(int64_t)list * a.group + i / D] = log_of(merged);
        }
}

/* Blocks: parts, then heads and their query heads by fours. */
template <class Args> static inline dim3 grid_of(const Args &args)
{
        return dim3((unsigned)args.n_parts, (unsigned)(DCI_GPU_LISTS(&args) * ((args.group + QUERIES - 1) / QUERIES)),
                    (unsigned)args.n_sequences);
}

template <class Args> static dci_status check_lists(const Args &a)
{
        const dci_status status = dci_gpu_check_shape(a.group, a.dim);
        if (status != DCI_OK)
                return status;
        if (a.n_parts < 1 || a.n_parts > DCI_GPU_MAX_PARTS)
                return dci_fail(DCI_ERR_INVALID, "lists are cut into %d parts, expected 1 to %d", a.n_parts,
                                DCI_GPU_MAX_PARTS);
        if (a.n_sequences > UINT16_MAX || DCI_GPU_LISTS(&a) > UINT16_MAX / 4)
                return dci_fail(DCI_ERR_LIMIT, "%d sequences of %d kv heads, expected at most %d and %d", a.n_sequences,
                                a.n_heads, UINT16_MAX, UINT16_MAX / 4);
        return DCI_OK;
}

#endif
