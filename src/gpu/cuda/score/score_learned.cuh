/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Scores of learned codes, as cuda/score/score_codes.cuh: words go from memory into registers, lane g,c those of rows
 * 4g .. 4g + 3 of line pairs 4j + c, and their codes into registers of A. What differs is that a word's fields are
 * data. A head's record becomes a small program in shared memory: steps of two groups of four coordinates, for each of
 * the lanes c = 0 .. 3 its own, since which coordinates are multiplied at the same time is free. Steps of line pairs 4j
 * .. 4j + 3 are numbers 4j to 4j + 3, so that words keep to their registers.
 *
 * A group's codes are turned to the lowest bits of bytes and masked. Codes that stand for levels become nibbles of a
 * selector of bytes: a nibble of 8 or more selects a sign, which is 0 for levels up to 127, so that two selections of
 * eight levels each, the second with those bits inverted, make a table of sixteen. To make nibbles of bytes takes one
 * multiplication and leaves coordinates in the order 1, 0, 3, 2, in which the query's bytes then are, too. */
#ifndef DCI_GPU_CUDA_SCORE_SCORE_LEARNED_CUH
#define DCI_GPU_CUDA_SCORE_SCORE_LEARNED_CUH

#include "gpu/cuda/score/score_coded.cuh"
#include "gpu/cuda/score/score_transform.cuh"

enum { STEP_BY_TABLE = 1, STEP_OF_SIXTEEN = 2, STEP_SPLIT = 4 };

/* Of one lane c: two groups; a mask of 0 where there is none. */
struct __align__(16) LearnedStep
{
        uint8_t turn[2], table[2]; /* to the right by so many bits; tables[0] is empty: codes stand for themselves */
        uint32_t mask[2];
        uint8_t high_line, high_turn[2], split; /* three bits in two lines */
};

template <int LOADS, int Q> struct LearnedProgram {
        static constexpr int STEPS = 4 * LOADS;
        LearnedStep steps[STEPS][4];
        __align__(16) uint8_t tables[DCI_GPU_TRANSFORM_TABLE + 1][16];
        __align__(16) int8_t bytes[STEPS][Q][4][8]; /* of queries */
        __align__(16) float half[Q], fixed[Q];
        __align__(16) int bias[Q];
        int flags[STEPS], n_steps[LOADS];
        uint16_t places[DCI_GPU_TRANSFORM_GROUPS]; /* of a group's bytes of query 0 */
        uint8_t twice_zero[DCI_GPU_TRANSFORM_GROUPS], swapped[DCI_GPU_TRANSFORM_GROUPS];

        /* All threads; a barrier must follow. */
        __device__ __forceinline__ void clear()
        {
                uint32_t *words = reinterpret_cast<uint32_t *>(steps);
                for (int i = threadIdx.x; i < (int)(sizeof steps / 4); i += SCORE_THREADS)
                        words[i] = 0;
                for (int i = threadIdx.x; i < STEPS; i += SCORE_THREADS)
                        flags[i] = 0;
                for (int i = threadIdx.x; i < LOADS; i += SCORE_THREADS)
                        n_steps[i] = 0;
        }
        /* A thread for a group. */
        __device__ __forceinline__ void build(const Frame &frame)
        {
                const int g = threadIdx.x;
                const dci_gpu_transform_group *groups = frame.head->groups;
                if (g < (DCI_GPU_TRANSFORM_TABLE + 1) * 16)
                        tables[g / 16][g % 16] = g < 16 ? 0 : frame.head->levels[g / 16 - 1][g % 16];
                if (g >= frame.n_coded / 4)
                        return;
                const dci_gpu_transform_group group = groups[g];
                int before = 0; /* groups of the same line */
                while (before < g && groups[g - before - 1].line == group.line)
                        before++;
                const int j = group.line / 4, c = group.line % 4, half = before % 2, at = 4 * j + before / 2;
                const int low_bits = group.split ? 2 : group.bits;
                const int rise = group.bits == 5 || group.bits == 6 ? 7 - group.bits : 0;
                LearnedStep &step = steps[at][c];
                step.turn[half] = (uint8_t)((group.shift - rise) & 31);
                step.table[half] = group.by_table ? group.bits : 0;
                step.mask[half] = (((1u << low_bits) - 1) * 0x01010101u) << rise;
                step.high_turn[half] = (uint8_t)((group.high_shift - 2) & 31);
                if (group.split) { /* the same for both */
                        step.high_line = group.high_line;
                        step.split = 1;
                }
                atomicOr(&flags[at], (group.by_table ? STEP_BY_TABLE : 0) |
                                             (group.by_table && group.bits == 4 ? STEP_OF_SIXTEEN : 0) |
                                             (group.split ? STEP_SPLIT : 0));
                atomicMax(&n_steps[j], before / 2 + 1);
                places[g] = (uint16_t)(&bytes[at][0][c][4 * half] - &bytes[0][0][0][0]);
                twice_zero[g] = group.twice_zero;
                swapped[g] = group.by_table;
        }
        /* As dci_coder_query, by one warp, from coordinates. */
        __device__ __forceinline__ void put(const Frame &frame, const TurnShared &s, int q, float product, int lane)
        {
                float most = 0.0f;
                int sum = 0;
                for (int j = lane; j < frame.n_coded; j += 32)
                        most = fmaxf(most, fabsf(s.x[j][q % TURN_QUERIES]));
                most = warp_most(most);
                const ByteStep to = byte_step_of(most);
                for (int j = lane; j < frame.n_coded; j += 32) {
                        const int g = j / 4, i = j % 4;
                        const int byte = (int8_t)__float2int_rn(__fmul_rn(s.x[j][q % TURN_QUERIES], to.inverse));
                        (&bytes[0][0][0][0])[places[g] + q * 32 + (swapped[g] ? i ^ 1 : i)] = (int8_t)byte;
                        sum += twice_zero[g] * byte;
                }
                sum = warp_count(sum);
                if (lane == 0) {
                        half[q] = __fmul_rn(0.5f, to.step);
                        fixed[q] = product;
                        bias[q] = sum;
                }
        }
};

/* Queries to bytes; all threads. */
template <int LOADS, int Q>
static __device__ __forceinline__ void turn_queries(const dci_gpu_score_args &a, const ScoreJob &job,
                                                    const Frame &frame, LearnedProgram<LOADS, Q> &program,
                                                    TurnShared &s, int warp, int lane)
{
        for (int first = 0; first < Q; first += TURN_QUERIES) {
                const int q = first + warp;
                float fixed = 0.0f;
                if (warp < TURN_QUERIES)
                        fixed = turn_load(a, job, frame, s, q, lane);
                __syncthreads();
                if (frame.by_matrix)
                        turn_by_matrix(frame, s);
                else if (warp < TURN_QUERIES)
                        turn_by_signs(a, s, warp, lane);
                __syncthreads();
                if (warp < TURN_QUERIES)
                        program.put(frame, s, q, fixed, lane);
                __syncthreads();
        }
}

static __device__ __forceinline__ uint32_t turn_right(uint32_t x, int bits)
{
        return __funnelshift_r(x, x, bits);
}

/* One group's levels of a lane's four rows. */
static __device__ __forceinline__ void levels_of(const uint4 &word, const uint4 &high, const LearnedStep &step,
                                                 const uint8_t (*tables)[16], int h, int flags, uint32_t (&out)[4])
{
        const uint32_t w[4] = {word.x, word.y, word.z, word.w}, more[4] = {high.x, high.y, high.z, high.w};
        const uint4 table = *reinterpret_cast<const uint4 *>(tables[step.table[h]]);
        const uint32_t itself = step.table[h] == 0 ? 0xffffffffu : 0;
#pragma unroll
        for (int r = 0; r < 4; r++) {
                uint32_t x = turn_right(w[r], step.turn[h]) & step.mask[h];
                if (flags & STEP_SPLIT)
                        x |= turn_right(more[r], step.high_turn[h]) & (step.split ? 0x04040404u : 0);
                out[r] = x;
                if (flags & STEP_BY_TABLE) {
                        const uint32_t selector = select_bytes(x * 0x1001u, 0, 0x0031);
                        out[r] = (x & itself) | select_bytes(table.x, table.y, selector);
                        if (flags & STEP_OF_SIXTEEN)
                                out[r] |= select_bytes(table.z, table.w, selector ^ 0x8888u);
                }
        }
}

/* from: the block's words of this lane, line pair 0. */
template <int LOADS, int Q>
static __device__ __forceinline__ void multiply_learned(const LearnedProgram<LOADS, Q> &program,
                                                        const uint4 (&words)[LOADS], const unsigned char *from,
                                                        int lane, CodedSums<Q> &sums)
{
        constexpr int TILES = Q == 16 ? 2 : 1;
        const int g = lane >> 2, c = lane & 3;
        clear_sums<Q>(sums);
#pragma unroll
        for (int j = 0; j < LOADS; j++) {
                const int n_steps = program.n_steps[j]; /* the same for all lanes, as flags are */
#pragma unroll 1
                for (int p = 0; p < n_steps; p++) {
                        const LearnedStep step = program.steps[4 * j + p][c];
                        const int flags = program.flags[4 * j + p];
                        uint4 high = make_uint4(0, 0, 0, 0);
                        uint32_t low[4], up[4];
                        if (flags & STEP_SPLIT)
                                high = __ldca(reinterpret_cast<const uint4 *>(from + 128 * step.high_line));
                        levels_of(words[j], high, step, program.tables, 0, flags, low);
                        levels_of(words[j], high, step, program.tables, 1, flags, up);
#pragma unroll
                        for (int t = 0; t < TILES; t++) {
                                const uint2 b = *reinterpret_cast<const uint2 *>(
                                        program.bytes[4 * j + p][Q == 4 ? g & 3 : 8 * t + g][c]);
                                mma_codes(sums[t][0], low[0], low[1], up[0], up[1], b.x, b.y);
                                mma_codes(sums[t][1], low[2], low[3], up[2], up[3], b.x, b.y);
                        }
                }
        }
}

/* scale * (half * (2 sum - bias)) + fixed, nothing fused. */
template <int LOADS, int Q>
static __device__ __forceinline__ void finish_learned(const dci_gpu_score_args &a,
                                                      const LearnedProgram<LOADS, Q> &program, const CodedSums<Q> &sums,
                                                      const float (&scale)[4], int block, int lane, Scores<Q> &scores)
{
        constexpr int R = Q == 4 ? 2 : 4;
        const int g = lane >> 2, c = lane & 3;
#pragma unroll
        for (int t = 0; t < (Q == 16 ? 2 : 1); t++) {
                const int q = Q == 4 ? 2 * (c & 1) : 8 * t + 2 * c;
                float x[R][2];
#pragma unroll
                for (int i = 0; i < R; i++)
#pragma unroll
                        for (int j = 0; j < 2; j++) {
                                const float whole =
                                        __int2float_rn(2 * sum_at<Q>(sums, t, i, j, c) - program.bias[q + j]);
                                x[i][j] = __fadd_rn(__fmul_rn(scale[i], __fmul_rn(program.half[q + j], whole)),
                                                    program.fixed[q + j]);
                        }
                scores.take(a, t, CODE_ROWS * block + 4 * g + (Q == 4 && c >= 2 ? 2 : 0), 1, x);
        }
}

template <int LOADS, int Q> union LearnedShared {
        struct {
                ScoreTable table;
                LearnedProgram<LOADS, Q> program;
                TurnShared turn;
                float tops[SCORE_WARPS][16][2];
        } scan;
        KeptShared kept;
};

template <int LOADS, int Q> constexpr int learned_at_once = LOADS > 4 || Q == 16 ? 1 : 2;
template <int LOADS> constexpr int learned_each = LOADS > 2 ? 1 : LOADS == 2 ? 2 : 4;

template <int LOADS, int Q>
static __global__ void __launch_bounds__(SCORE_THREADS, learned_at_once<LOADS, Q>)
        learned_kernel(const __grid_constant__ dci_gpu_score_args a)
{
        constexpr int EACH = learned_each<LOADS>, WINDOW = SCORE_TABLE * CODE_BLOCKS;
        __shared__ __align__(16) unsigned char memory[sizeof(LearnedShared<LOADS, Q>)];
        auto &s = reinterpret_cast<LearnedShared<LOADS, Q> *>(memory)->scan;
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, block_bytes = 4 * a.dim * a.bits;
        const ScoreJob job = score_job_of(a);
        if (!score_begins(a, job))
                return;
        if (blockIdx.x == (unsigned)a.n_parts) {
                ptx_take_turn();
                keep(a, job, reinterpret_cast<LearnedShared<LOADS, Q> *>(memory)->kept);
                return;
        }
        const uint64_t policy = once_policy();
        const ScoreRange range = score_range_of((job.n_candidates + CODE_ROWS - 1) / CODE_ROWS, blockIdx.x, a.n_parts);
        Frame frame;
        CodedRows<LOADS, Q> codes[EACH];
        frame.find(a, job);
        int chunk = range.first / CODE_BLOCKS, end = min(range.last, chunk * CODE_BLOCKS + WINDOW);
        s.table.fill(a.summaries, job, chunk, (end + CODE_BLOCKS - 1) / CODE_BLOCKS - chunk);
        s.program.clear();
        __syncthreads();
        const auto base = [&](int block) { return s.table.at[block / CODE_BLOCKS - chunk]; };
        int block = range.first + warp * EACH;
        /* Codes are on their way while queries are waited for, and transformed. */
#pragma unroll
        for (int e = 0; e < EACH; e++)
                if (block + e < end)
                        codes[e].load(base(block + e), block_bytes, (block + e) % CODE_BLOCKS, frame.n_lines, lane >> 2,
                                      lane & 3, policy);
        ptx_take_turn();
        s.program.build(frame);
        turn_queries(a, job, frame, s.program, s.turn, warp, lane);
        Scores<Q> scores;
        scores.begin(a, job, job.n_candidates, lane & 3);
        for (;;) {
                for (; block < end; block += SCORE_WARPS * EACH)
#pragma unroll
                        for (int e = 0; e < EACH; e++) {
                                const int at = block + e, next = at + SCORE_WARPS * EACH;
                                if (at >= end)
                                        break;
                                CodedSums<Q> sums;
                                float scale[4];
#pragma unroll
                                for (int i = 0; i < (Q == 4 ? 2 : 4); i++)
                                        scale[i] = codes[e].scale(i);
                                multiply_learned<LOADS, Q>(s.program, codes[e].words,
                                                           base(at) + at % CODE_BLOCKS * block_bytes + 16 * (lane >> 2),
                                                           lane, sums);
                                if (next < end)
                                        codes[e].load(base(next), block_bytes, next % CODE_BLOCKS, frame.n_lines,
                                                      lane >> 2, lane & 3, policy);
                                finish_learned<LOADS, Q>(a, s.program, sums, scale, at, lane, scores);
                        }
                if (end >= range.last)
                        break;
                /* More chunks than the table has room for. */
                __syncthreads();
                block = end + warp * EACH;
                chunk = end / CODE_BLOCKS;
                end = min(range.last, chunk * CODE_BLOCKS + WINDOW);
                s.table.fill(a.summaries, job, chunk, (end + CODE_BLOCKS - 1) / CODE_BLOCKS - chunk);
                __syncthreads();
#pragma unroll
                for (int e = 0; e < EACH; e++)
                        if (block + e < end)
                                codes[e].load(base(block + e), block_bytes, (block + e) % CODE_BLOCKS, frame.n_lines,
                                              lane >> 2, lane & 3, policy);
        }
        scores.leave(a, job, s.tops);
}

template <int LOADS> static cudaError_t launch_learned(const dci_gpu_score_args &args, const GpuStream &stream)
{
        return launch_scores(args.group <= 4   ? learned_kernel<LOADS, 4>
                             : args.group <= 8 ? learned_kernel<LOADS, 8>
                                               : learned_kernel<LOADS, 16>,
                             args, stream);
}

#endif
