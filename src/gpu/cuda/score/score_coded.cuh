/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What the kernels of codes share, learned or not: blocks of rows in flight, queries as bytes, and sums. */
#ifndef DCI_GPU_CUDA_SCORE_SCORE_CODED_CUH
#define DCI_GPU_CUDA_SCORE_SCORE_CODED_CUH

#include "gpu/cuda/score/score_attended.cuh"

#define CODE_ROWS 32
#define CODE_BLOCKS (DCI_GPU_CHUNK / CODE_ROWS) /* of a chunk */

/* Of a query's coordinates, the greatest of which becomes 127; as dci_coder_query. */
struct ByteStep {
        float step, inverse;
};

static __device__ __forceinline__ ByteStep byte_step_of(float most)
{
        const bool some = most > 7.703719777548943e-34f; /* 2^-110: what is shorter is taken for nothing */
        return {some ? __fdiv_rn(most, 127.0f) : 0.0f, some ? __fdiv_rn(127.0f, most) : 0.0f};
}

static __device__ __forceinline__ int warp_count(int n)
{
#pragma unroll
        for (int d = 16; d > 0; d /= 2)
                n += __shfl_xor_sync(SCORE_ALL, n, d);
        return n;
}

/* A block of 32 rows on its way: words of rows 4g .. 4g + 3, of line pairs 4j + c. */
template <int LOADS, int Q> struct CodedRows {
        uint4 words[LOADS];
        uint2 scales; /* bf16: of two rows, or of four */

        /* Block number in_chunk of the chunk whose codes begin at base, and which has so many, by lane g,c. */
        __device__ __forceinline__ void load(const unsigned char *base, int block_bytes, int in_chunk, int n_lines,
                                             int g, int c, uint64_t policy, int n_blocks = CODE_BLOCKS)
        {
                load_at(base + in_chunk * block_bytes + 128 * c + 16 * g,
                        base + n_blocks * block_bytes + 64 * in_chunk + 8 * g, n_lines, c, policy);
        }

        /* The lane's words from `from` on, its four rows' scales at `scale`. */
        __device__ __forceinline__ void load_at(const unsigned char *from, const unsigned char *scale, int n_lines,
                                                int c, uint64_t policy)
        {
#pragma unroll
                for (int j = 0; j < LOADS; j++) {
                        if (4 * j + c < n_lines)
                                words[j] = load_once(from + 512 * j, policy);
                        else
                                words[j] = make_uint4(0, 0, 0, 0);
                }
                if (Q == 4)
                        scales.x = load_pair(scale + 4 * (c >> 1));
                else
                        scales = load_four(scale);
        }

        __device__ __forceinline__ float scale(int i) const
        {
                const uint32_t pair = i < 2 ? scales.x : scales.y;
                return __uint_as_float(i % 2 == 0 ? pair << 16 : pair & 0xffff0000u);
        }
};

/* sums[t][0]: rows 4g and 4g + 1 with queries of tile t; [1]: 4g + 2 and 4g + 3. */
template <int Q> using CodedSums = int[Q == 16 ? 2 : 1][2][4];

template <int Q> static __device__ __forceinline__ void clear_sums(CodedSums<Q> &sums)
{
#pragma unroll
        for (int t = 0; t < (Q == 16 ? 2 : 1); t++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                        sums[t][0][i] = sums[t][1][i] = 0;
}

/* The lane's row number i and query number j of a tile; with Q = 4 lanes have either of the two pairs of rows. */
template <int Q> static __device__ __forceinline__ int sum_at(const CodedSums<Q> &sums, int t, int i, int j, int c)
{
        return Q == 4 ? (c < 2 ? sums[0][0][2 * i + j] : sums[0][1][2 * i + j]) : sums[t][i / 2][2 * (i % 2) + j];
}

#endif
