/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Codes of blocks and 4-bit codes (args/votes.h), to the bit as src/kv/stages/summary_votes.c. Four threads rotate a
 * row as in cuda/encode/encode_row.cuh, and then trade coordinates: thread i gets blocks 4 m + i whole. */
#ifndef DCI_GPU_CUDA_ENCODE_ENCODE_VOTES_CUH
#define DCI_GPU_CUDA_ENCODE_ENCODE_VOTES_CUH

#include "gpu/cuda/encode/encode_row.cuh"

/* Four numbers of each of four threads: thread i gets number i of all. */
static __device__ __forceinline__ void trade_four(float (&v)[4], int i)
{
        const bool upper = (i & 2) != 0, odd = (i & 1) != 0;
        const float a = __shfl_xor_sync(all_lanes, upper ? v[0] : v[2], 2);
        const float b = __shfl_xor_sync(all_lanes, upper ? v[1] : v[3], 2);
        v[0] = upper ? a : v[0];
        v[1] = upper ? b : v[1];
        v[2] = upper ? v[2] : a;
        v[3] = upper ? v[3] : b;
#pragma unroll
        for (int r = 0; r < 4; r += 2) {
                const float other = __shfl_xor_sync(all_lanes, odd ? v[r] : v[r + 1], 1);
                const float mine = odd ? v[r + 1] : v[r];
                v[r] = odd ? other : mine;
                v[r + 1] = odd ? mine : other;
        }
}

/* Brings a row to units of its greatest coordinate, which it returns. */
template <int N> static __device__ __forceinline__ float in_own_units(float (&y)[N])
{
        float most = 0.0f;
#pragma unroll
        for (int k = 0; k < N; k++)
                most = fmaxf(most, fabsf(y[k]));
        most = fmaxf(most, __shfl_xor_sync(all_lanes, most, 2));
        most = fmaxf(most, __shfl_xor_sync(all_lanes, most, 1));
#pragma unroll
        for (int k = 0; k < N; k++)
                y[k] = most > 0.0f ? __fdiv_rn(y[k], most) : 0.0f;
        return most;
}

struct VoteBlock {
        uint32_t code, packed;
        float weight;
};

static __device__ __forceinline__ VoteBlock encode_block(const float (&y)[DCI_VOTE_BLOCK])
{
        const float bounds[7] = DCI_VOTE_BOUNDS, levels[8] = DCI_VOTE_LEVELS;
        VoteBlock out = {0, 0, 0.0f};
        float square = 0.0f, match = 0.0f;
#pragma unroll
        for (int j = 0; j < DCI_VOTE_BLOCK; j++)
                square = __fadd_rn(square, __fmul_rn(y[j], y[j]));
        const float length = __fsqrt_rn(square);
#pragma unroll
        for (int j = 0; j < DCI_VOTE_BLOCK; j++) {
                const float size = length > 0.0f ? __fdiv_rn(fabsf(y[j]), length) : 0.0f;
                uint32_t level = 0;
                float at = levels[0];
#pragma unroll
                for (int i = 0; i < 7; i++) {
                        level += size >= bounds[i];
                        at = size >= bounds[i] ? levels[i + 1] : at;
                }
                match = __fadd_rn(match, __fmul_rn(at, size));
                out.packed |= (level | (y[j] < 0.0f ? DCI_VOTE_NEGATIVE : 0u)) << (4 * j);
                out.code |= (y[j] >= 0.0f ? 1u : 0u) << j;
        }
        out.weight = __fdiv_rn(length, match > DCI_VOTE_LEAST_MATCH ? match : DCI_VOTE_LEAST_MATCH);
        return out;
}

/* Writes the blocks of one rotated row, candidate number `at` of a chunk; zeros where it is not `present`. Needs
 * whole warps. */
template <int DIM>
static __device__ __forceinline__ void store_blocks(const float (&y)[Shape<DIM>::k], float most, int i,
                                                    unsigned char *part, int at, bool present, bool store)
{
        constexpr int n_blocks = DIM / DCI_VOTE_BLOCK;
        unsigned char *record = part + DCI_GPU_CHUNK * n_blocks + at * DCI_VOTE_RECORD(n_blocks);
#pragma unroll
        for (int m = 0; m < n_blocks / 4; m++) {
                float low[4], high[4];
#pragma unroll
                for (int c = 0; c < 4; c++) {
                        low[c] = y[2 * (4 * m + c)];
                        high[c] = y[2 * (4 * m + c) + 1];
                }
                trade_four(low, i);
                trade_four(high, i);
                const float row[DCI_VOTE_BLOCK] = {low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]};
                const VoteBlock made = encode_block(row);
                const int block = 4 * m + i;
                if (!store)
                        continue;
                part[block * DCI_GPU_CHUNK + at] = (unsigned char)(present ? made.code : 0);
                reinterpret_cast<uint32_t *>(record)[block] = present ? made.packed : 0;
                reinterpret_cast<unsigned short *>(record + 4 * n_blocks)[block] =
                        present ? to_bf16(__fmul_rn(made.weight, most)) : (unsigned short)0;
        }
}

#endif
