/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Scores of codes, 4, 2 or 1 bits for each coordinate, with whole-number tensor cores (m16n8k32): sums are exact, so
 * scores are the CPU's.
 *
 * A warp takes blocks of 32 rows. A line pair of such a block is 128 bytes, a 32-bit word for each row. Lane g,c loads
 * of line pairs 4j + c the words of rows 4g .. 4g + 3: 16 bytes, and a warp's load is 512 bytes that are contiguous.
 * The lowest bits of a word's bytes are codes of four coordinates, the next ones those of the next four, and so on:
 * masked, they are registers of A. Which coordinate is which k of a product is free as long as A and B agree, and so is
 * which row is which: rows 4g and 4g + 1 are g and g + 8 of one product, 4g + 2 and 4g + 3 of another.
 *
 * With at most 4 query heads in a group, columns 4 to 7 of B are columns 0 to 3 once more: lanes with c < 2 finish the
 * rows of the first product, the others those of the second.
 *
 * A warp's registers hold 2 KiB that are on their way, and two blocks of 16 warps fit on a multiprocessor: 64 KiB, as
 * much as covers the memory's latency. What was taken out of registers is requested again before sums become scores.
 * dci_gpu_score_parts (gpu.c) says how many parts are best: as many blocks as fit at once. */
#ifndef DCI_GPU_CUDA_SCORE_SCORE_CODES_CUH
#define DCI_GPU_CUDA_SCORE_SCORE_CODES_CUH

#include "gpu/cuda/score/score_coded.cuh"

template <int D, int BITS> struct Shape {
        static constexpr int LINES = D * BITS / 32, FIELDS = 8 / BITS, STEP = 32 / BITS; /* coordinates of a line */
        static constexpr int LOADS = (LINES + 3) / 4;                                    /* of a lane for a block */
        static constexpr int BLOCK_BYTES = LINES * 128;
        static constexpr uint32_t MASK = BITS == 4 ? 0x0f0f0f0fu : BITS == 2 ? 0x03030303u : 0x01010101u;
};

/* Blocks of a multiprocessor, and what a warp requests at once. */
template <int D, int BITS, int Q> constexpr int at_once = Shape<D, BITS>::LOADS > 4 || Q == 16 ? 1 : 2;
template <int D, int BITS>
constexpr int blocks_each = Shape<D, BITS>::LOADS > 2    ? 1
                            : Shape<D, BITS>::LOADS == 2 ? 2
                                                         : 4;

/* Queries as bytes, and what becomes of sums; offset: 1.5 x 2^23 as a float's bits, less the bias. */
template <int D, int Q> struct CodedQueries {
        __align__(16) int8_t bytes[Q][D];
        __align__(16) float half[Q];
        __align__(16) float fixed[Q];
        __align__(16) int offset[Q];
};

/* One query in a warp's registers: coordinate 32 e + lane. */
template <int D> struct Turned {
        static constexpr int N = D / 32;
        RawQuery<N> raw;
        float x[N], centre[N];
        Rotation<D> rotation;

        /* What does not depend on the query. */
        __device__ __forceinline__ void load(const dci_gpu_score_args &a, const ScoreJob &job, int lane)
        {
                const float *from = a.centres + ((uint64_t)job.row * a.n_heads + job.head) * D;
#pragma unroll
                for (int e = 0; e < N; e++)
                        centre[e] = __ldcg(from + 32 * e + lane);
                rotation.load(a.signs, lane);
        }

        /* As dci_coder_query. */
        template <int Q>
        __device__ __forceinline__ void put(const dci_gpu_score_args &a, CodedQueries<D, Q> &out, int q, int bits,
                                            int lane)
        {
                float fixed = 0.0f, most = 0.0f;
#pragma unroll
                for (int e = 0; e < N; e++) {
                        x[e] = raw.get(a, e);
                        fixed = __fmaf_rn(x[e], centre[e], fixed);
                }
                rotation.turn(x, lane);
#pragma unroll
                for (int e = 0; e < N; e++)
                        most = fmaxf(most, fabsf(x[e]));
                fixed = warp_sum(fixed);
                most = warp_most(most);
                const ByteStep to = byte_step_of(most);
                int sum = 0;
#pragma unroll
                for (int e = 0; e < N; e++) {
                        const int byte = (int8_t)__float2int_rn(__fmul_rn(x[e], to.inverse));
                        out.bytes[q][32 * e + lane] = (int8_t)byte;
                        sum += byte;
                }
                sum = warp_count(sum);
                if (lane == 0) {
                        out.half[q] = __fmul_rn(0.5f, to.step);
                        out.fixed[q] = fixed;
                        out.offset[q] = 0x4b400000 - ((1 << bits) - 1) * sum;
                }
        }
};

/* What a lane keeps of the queries: its registers of B. The constants of its columns stay in shared memory, for want of
 * registers. */
template <int D, int BITS, int Q> struct Operands {
        static constexpr int TILES = Q == 16 ? 2 : 1, FIELDS = Shape<D, BITS>::FIELDS, LOADS = Shape<D, BITS>::LOADS;
        uint2 b[TILES][LOADS][FIELDS / 2];

        __device__ __forceinline__ void take(const CodedQueries<D, Q> &from, int lane)
        {
                const int g = lane >> 2, c = lane & 3;
#pragma unroll
                for (int t = 0; t < TILES; t++) {
                        const int8_t *bytes = from.bytes[Q == 4 ? g & 3 : 8 * t + g];
#pragma unroll
                        for (int j = 0; j < LOADS; j++)
#pragma unroll
                                for (int m = 0; m < FIELDS / 2; m++)
                                        b[t][j][m] =
                                                4 * j + c < Shape<D, BITS>::LINES
                                                        ? *reinterpret_cast<const uint2 *>(
                                                                  bytes + (4 * j + c) * Shape<D, BITS>::STEP + 8 * m)
                                                        : make_uint2(0, 0);
                }
        }

        __device__ __forceinline__ void multiply(const uint4 (&words)[LOADS], CodedSums<Q> &sums) const
        {
                clear_sums<Q>(sums);
#pragma unroll
                for (int j = 0; j < LOADS; j++)
#pragma unroll
                        for (int m = 0; m < FIELDS / 2; m++) {
                                const auto field = [&](uint32_t word, int f) {
                                        return word >> (f * BITS) & Shape<D, BITS>::MASK;
                                };
                                const uint4 &w = words[j];
                                const int low = 2 * m, high = 2 * m + 1;
                                const uint32_t a[4] = {field(w.x, low), field(w.y, low), field(w.x, high),
                                                       field(w.y, high)};
                                const uint32_t e[4] = {field(w.z, low), field(w.w, low), field(w.z, high),
                                                       field(w.w, high)};
#pragma unroll
                                for (int t = 0; t < TILES; t++) {
                                        mma_codes(sums[t][0], a[0], a[1], a[2], a[3], b[t][j][m].x, b[t][j][m].y);
                                        mma_codes(sums[t][1], e[0], e[1], e[2], e[3], b[t][j][m].x, b[t][j][m].y);
                                }
                        }
        }
};

/* scale * (half * (2 sum - bias)) + fixed. The whole number has 22 bits at most: added to the bits of 1.5 x 2^23 it
 * becomes a float exactly, without the conversion's unit, of which there are few. */
static __device__ __forceinline__ float score_of(int sum, int offset, float half, float fixed, float scale)
{
        const float whole = __fsub_rn(__int_as_float(2 * sum + offset), 12582912.0f);
        return __fadd_rn(__fmul_rn(scale, __fmul_rn(half, whole)), fixed);
}

/* Sums of one block to scores. */
template <int D, int Q>
static __device__ __forceinline__ void finish_codes(const dci_gpu_score_args &a, const CodedQueries<D, Q> &queries,
                                                    const CodedSums<Q> &sums, const float (&scale)[4], int block,
                                                    int lane, Scores<Q> &scores)
{
        constexpr int R = Q == 4 ? 2 : 4;
        const int g = lane >> 2, c = lane & 3;
#pragma unroll
        for (int t = 0; t < (Q == 16 ? 2 : 1); t++) {
                const int q = Q == 4 ? 2 * (c & 1) : 8 * t + 2 * c;
                const int2 offset = *reinterpret_cast<const int2 *>(queries.offset + q);
                const float2 half = *reinterpret_cast<const float2 *>(queries.half + q);
                const float2 fixed = *reinterpret_cast<const float2 *>(queries.fixed + q);
                float x[R][2];
#pragma unroll
                for (int i = 0; i < R; i++) {
                        const int sum[2] = {sum_at<Q>(sums, t, i, 0, c), sum_at<Q>(sums, t, i, 1, c)};
                        x[i][0] = score_of(sum[0], offset.x, half.x, fixed.x, scale[i]);
                        x[i][1] = score_of(sum[1], offset.y, half.y, fixed.y, scale[i]);
                }
                scores.take(a, t, CODE_ROWS * block + 4 * g + (Q == 4 && c >= 2 ? 2 : 0), 1, x);
        }
}

template <int D, int Q> union CodesShared {
        struct {
                ScoreTable table;
                CodedQueries<D, Q> queries;
                float tops[SCORE_WARPS][16][2];
        } scan;
        KeptShared kept;
};

/* Means that the last unit lacks count nothing; by one block. */
static __device__ __forceinline__ void pad_unit(const dci_gpu_score_args &a, const ScoreJob &job)
{
        const int per = DCI_GPU_UNIT >> a.group_shift,
                  first = (job.n_candidates + (1 << a.group_shift) - 1) >> a.group_shift,
                  n = (per - first % per) % per * a.group;
        float *scores = a.scores + ((uint64_t)job.list * a.max_groups + first) * a.group;
        if ((int)threadIdx.x < n)
                scores[threadIdx.x] = -FLT_MAX;
}

/* MEANS: the rows are means (args/select.h, dci_gpu_units). */
template <int D, int BITS, int Q, bool MEANS>
static __global__ void __launch_bounds__(SCORE_THREADS, at_once<D, BITS, Q>)
        codes_kernel(const __grid_constant__ dci_gpu_score_args a)
{
        constexpr int EACH = blocks_each<D, BITS>;
        __shared__ __align__(16) unsigned char memory[sizeof(CodesShared<D, Q>)];
        auto &s = reinterpret_cast<CodesShared<D, Q> *>(memory)->scan;
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        /* Blocks of a chunk are a power of two. */
        const int log_blocks = MEANS ? 4 - a.group_shift : 4, n_blocks = 1 << log_blocks,
                  window = SCORE_TABLE << log_blocks;
        static_assert(CODE_BLOCKS == 1 << 4, "of candidates");
        ScoreJob job = score_job_of(a);
        if (MEANS)
                job.sparse = job.sparse && job.n_candidates > a.units.wanted * DCI_GPU_UNIT;
        if (!score_begins(a, job))
                return;
        const int n_rows = MEANS ? (job.n_candidates + (1 << a.group_shift) - 1) >> a.group_shift : job.n_candidates;
        if (blockIdx.x == (unsigned)a.n_parts) {
                ptx_take_turn();
                if (MEANS)
                        pad_unit(a, job);
                keep(a, job, reinterpret_cast<CodesShared<D, Q> *>(memory)->kept);
                return;
        }
        const uint64_t policy = once_policy();
        const ScoreRange range = score_range_of((n_rows + CODE_ROWS - 1) / CODE_ROWS, blockIdx.x, a.n_parts);
        Turned<D> turned;
        CodedRows<Shape<D, BITS>::LOADS, Q> codes[EACH];
        if (warp < Q)
                turned.load(a, job, lane);
        int chunk = range.first >> log_blocks, end = min(range.last, (chunk << log_blocks) + window);
        s.table.fill(a.summaries, job, chunk, ((end - 1) >> log_blocks) + 1 - chunk);
        __syncthreads();
        const auto load = [&](CodedRows<Shape<D, BITS>::LOADS, Q> &rows, int block) {
                const int g = lane >> 2, c = lane & 3, in_chunk = block & (n_blocks - 1);
                const unsigned char *base = s.table.at[(block >> log_blocks) - chunk];
                rows.load(base, Shape<D, BITS>::BLOCK_BYTES, in_chunk, Shape<D, BITS>::LINES, g, c, policy, n_blocks);
        };
        int block = range.first + warp * EACH;
        /* Codes are on their way while queries are waited for, and transformed. */
#pragma unroll
        for (int e = 0; e < EACH; e++)
                if (block + e < end)
                        load(codes[e], block + e);
        ptx_take_turn();
        if (warp < Q)
                turned.raw.load(a, job.list, warp, lane, D / 32);
        if (warp < Q)
                turned.put(a, s.queries, warp, BITS, lane);
        __syncthreads();
        Operands<D, BITS, Q> queries;
        Scores<Q> scores;
        queries.take(s.queries, lane);
        scores.begin(a, job, n_rows, lane & 3);
        for (;;) {
                for (; block < end; block += SCORE_WARPS * EACH)
#pragma unroll
                        for (int e = 0; e < EACH; e++) {
                                if (block + e >= end)
                                        break;
                                CodedSums<Q> sums;
                                float scale[4];
#pragma unroll
                                for (int i = 0; i < (Q == 4 ? 2 : 4); i++)
                                        scale[i] = codes[e].scale(i);
                                queries.multiply(codes[e].words, sums);
                                if (block + SCORE_WARPS * EACH + e < end)
                                        load(codes[e], block + SCORE_WARPS * EACH + e);
                                finish_codes<D, Q>(a, s.queries, sums, scale, block + e, lane, scores);
                        }
                if (end >= range.last)
                        break;
                /* More chunks than the table has room for. */
                __syncthreads();
                block = end + warp * EACH;
                chunk = end >> log_blocks;
                end = min(range.last, (chunk << log_blocks) + window);
                s.table.fill(a.summaries, job, chunk, ((end - 1) >> log_blocks) + 1 - chunk);
                __syncthreads();
#pragma unroll
                for (int e = 0; e < EACH; e++)
                        if (block + e < end)
                                load(codes[e], block + e);
        }
        scores.leave(a, job, s.tops);
}

template <int D, int BITS> static cudaError_t launch_codes_of(const dci_gpu_score_args &args, const GpuStream &stream)
{
        return launch_scores(args.group <= 4   ? codes_kernel<D, BITS, 4, false>
                             : args.group <= 8 ? codes_kernel<D, BITS, 8, false>
                                               : codes_kernel<D, BITS, 16, false>,
                             args, stream);
}

template <int BITS> static cudaError_t launch_codes(const dci_gpu_score_args &args, const GpuStream &stream)
{
        return with_dim(args.dim, cudaErrorInvalidValue,
                        [&](auto dim) { return launch_codes_of<dim.value, BITS>(args, stream); });
}

#endif
