/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Attention of one query position per sequence, over rows wherever they are (split-KV decode; Dao et al. 2023,
 * "Flash-Decoding").
 *
 * A block takes a part of one sequence and kv head; its warps take tiles of 16 tokens in turns, each with the running
 * maximum and sum of online softmax (Milakov and Gimelshein 2018), and merge at the end; the last block of a head to
 * arrive merges the parts.
 *
 * Rows go from memory straight into the registers that the tensor cores read (m16n8k16), 16 bytes a lane: which lane
 * holds which coordinate is free as long as query and key, or output and value, agree. With g = lane / 4 and c = lane %
 * 4,
 *
 *      scores   A = queries (16 rows x 16 coordinates), B = keys (16 coordinates x 8 tokens): lane g,c holds of token g
 *               the coordinates 32 j + 8 c .. + 7, which serve two steps
 *      output   A = weights (16 rows x 16 tokens), B = values (16 tokens x 8 coordinates): lane g,c loads of tokens 2c,
 *               2c+1, 2c+8, 2c+9 the coordinates 64 a + 8 g .. + 7, and its column n = g of tile e is coordinate 64 a +
 *               8 g + e
 *
 * With at most 8 query heads in a group, rows 8 to 15 of A are what rounding to the rows' type takes from rows 0 to 7,
 * of queries and of weights: scores and outputs are then as good as f32 ones, at no cost. */
#ifndef DCI_GPU_CUDA_ATTEND_ATTEND_CUH
#define DCI_GPU_CUDA_ATTEND_ATTEND_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "gpu/cuda/attend/attend_merge.cuh"
#include "gpu/cuda/launch.cuh"

struct Half {
        static __device__ uint32_t pack(float a, float b)
        {
                const __half2 h = __floats2half2_rn(a, b);
                return *reinterpret_cast<const uint32_t *>(&h);
        }
        static __device__ float2 unpack(uint32_t x)
        {
                return __half22float2(*reinterpret_cast<const __half2 *>(&x));
        }
        static __device__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
        {
                ptx_mma_f16(d, a[0], a[1], a[2], a[3], b0, b1);
        }
};

struct Bf16 {
        static __device__ uint32_t pack(float a, float b)
        {
                const __nv_bfloat162 h = __floats2bfloat162_rn(a, b);
                return *reinterpret_cast<const uint32_t *>(&h);
        }
        static __device__ float2 unpack(uint32_t x)
        {
                return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162 *>(&x));
        }
        static __device__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
        {
                ptx_mma_bf16(d, a[0], a[1], a[2], a[3], b0, b1);
        }
};

/* Rows are read once: they need no place in the first-level cache. */
static __device__ __forceinline__ uint4 load16(const unsigned char *at)
{
        return ptx_load16_once_128(at);
}

static __device__ __forceinline__ uint2 load8(const unsigned char *at)
{
        return ptx_load8_once_128(at);
}

static __device__ __forceinline__ float exp2_of(float x)
{
        return ptx_exp2(x);
}

static __device__ __forceinline__ uint32_t word_of(const uint4 &x, int i)
{
        return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w;
}

/* The same coordinate of two tokens: the lower or the upper halves of two words. */
static __device__ __forceinline__ uint32_t pair_of(uint32_t a, uint32_t b, int upper)
{
        return __byte_perm(a, b, upper ? 0x7632 : 0x5410);
}

template <int D> struct Keys {
        uint4 x[2][D / 32];
        __device__ __forceinline__ void load(const Places &p, int c)
        {
#pragma unroll
                for (int h = 0; h < 2; h++)
#pragma unroll
                        for (int j = 0; j < D / 32; j++)
                                x[h][j] = load16(p.keys[h] + 64 * j + 16 * c);
        }
        /* From shared memory, where the tile's rows are contiguous. */
        __device__ __forceinline__ void take(const unsigned char *rows, int g, int c)
        {
#pragma unroll
                for (int h = 0; h < 2; h++)
#pragma unroll
                        for (int j = 0; j < D / 32; j++)
                                x[h][j] =
                                        *reinterpret_cast<const uint4 *>(rows + (g + 8 * h) * 2 * D + 64 * j + 16 * c);
        }
};

/* Of dim 256 half the coordinates at a time: there are no registers for all of them. */
template <int D> struct Values {
        uint4 x[D / 64][4];
        uint2 rest[D % 64 != 0 ? 4 : 1]; /* of dim 96 the last 32 */
        __device__ __forceinline__ void load(const Places &p, int g, int from = 0)
        {
#pragma unroll
                for (int a = 0; a < D / 64; a++)
#pragma unroll
                        for (int u = 0; u < 4; u++)
                                x[a][u] = load16(p.values[u] + from + 128 * a + 16 * g);
                if constexpr (D % 64 != 0)
#pragma unroll
                        for (int u = 0; u < 4; u++)
                                rest[u] = load8(p.values[u] + 128 * (D / 64) + 8 * g);
        }
};

static __device__ __forceinline__ float query_of(const dci_gpu_attend_args &a, int64_t at)
{
        if (a.query_dtype == DCI_F32)
                return __ldcg(static_cast<const float *>(a.queries) + at);
        if (a.query_dtype == DCI_F16)
                return __half2float(__ldcg(static_cast<const __half *>(a.queries) + at));
        return __bfloat162float(__ldcg(static_cast<const __nv_bfloat16 *>(a.queries) + at));
}

/* Queries as the A fragments of the scores: [32 coordinates][lane][row g: 4 words, row g + 8: 4 words]. A thread loads
 * 8 coordinates of one or two rows, and puts them there once others' loads are on their way, too. */
template <class T, int D, bool PARTS, int THREADS> struct Queries {
        static constexpr int R = PARTS ? 1 : 2, PIECES = D > THREADS ? D / THREADS : 1;
        float x[PIECES][R][8];

        __device__ __forceinline__ void load(const dci_gpu_attend_args &a)
        {
                const int64_t first = ((int64_t)blockIdx.z * gridDim.y + blockIdx.y) * a.group;
#pragma unroll
                for (int p = 0; p < PIECES; p++) {
                        const int i = threadIdx.x + p * THREADS, g = (i % 32) >> 2, at = 32 * (i / 32) + 8 * (i & 3);
#pragma unroll
                        for (int r = 0; r < R; r++)
#pragma unroll
                                for (int e = 0; e < 8; e++)
                                        x[p][r][e] = i < D && g + 8 * r < a.group
                                                             ? query_of(a, (first + g + 8 * r) * (int64_t)a.query_ld +
                                                                                   at + e)
                                                             : 0.0f;
                }
        }

        __device__ __forceinline__ void put(uint4 *out) const
        {
#pragma unroll
                for (int p = 0; p < PIECES; p++) {
                        const int i = threadIdx.x + p * THREADS;
                        uint32_t words[2][4];
#pragma unroll
                        for (int w = 0; w < 4; w++) {
                                const float *first = &x[p][0][2 * w], *second = &x[p][R - 1][2 * w];
                                words[0][w] = T::pack(first[0], first[1]);
                                const float2 high = T::unpack(words[0][w]);
                                words[1][w] = PARTS ? T::pack(first[0] - high.x, first[1] - high.y)
                                                    : T::pack(second[0], second[1]);
                        }
                        if (i < D) {
                                out[2 * i] = make_uint4(words[0][0], words[0][1], words[0][2], words[0][3]);
                                out[2 * i + 1] = make_uint4(words[1][0], words[1][1], words[1][2], words[1][3]);
                        }
                }
        }
};

/* A warp's running state: R queries a lane, g and (without parts) g + 8. */
template <class T, int D, bool PARTS> struct Running {
        static constexpr int R = PARTS ? 1 : 2;
        float most[R], sum[R]; /* in units of log2; sum: of this lane's tokens */
        float out[D / 8][4];

        __device__ __forceinline__ void begin()
        {
#pragma unroll
                for (int r = 0; r < R; r++) {
                        most[r] = -CUDART_INF_F;
                        sum[r] = 0.0f;
                }
#pragma unroll
                for (int i = 0; i < D / 8; i++)
                        out[i][0] = out[i][1] = out[i][2] = out[i][3] = 0.0f;
        }

        __device__ __forceinline__ void score(const Keys<D> &keys, const uint4 *queries, int lane, float (&s)[2][4])
        {
#pragma unroll
                for (int h = 0; h < 2; h++)
                        s[h][0] = s[h][1] = s[h][2] = s[h][3] = 0.0f;
#pragma unroll
                for (int j = 0; j < D / 32; j++) {
                        const uint4 q0 = queries[2 * (32 * j + lane)], q1 = queries[2 * (32 * j + lane) + 1];
                        const uint32_t first[4] = {q0.x, q1.x, q0.y, q1.y}, second[4] = {q0.z, q1.z, q0.w, q1.w};
#pragma unroll
                        for (int h = 0; h < 2; h++) {
                                T::mma(s[h], first, keys.x[h][j].x, keys.x[h][j].y);
                                T::mma(s[h], second, keys.x[h][j].z, keys.x[h][j].w);
                        }
                }
        }

        /* Weights as A fragments; earlier sums are scaled down where the maximum grew. n: tokens that count. */
        __device__ __forceinline__ void soften(float (&s)[2][4], float factor, int n, int c, uint32_t (&weights)[4])
        {
                float x[R][4], scale[R];
                bool grew = false;
#pragma unroll
                for (int r = 0; r < R; r++) {
                        float top = -CUDART_INF_F;
#pragma unroll
                        for (int i = 0; i < 4; i++) {
                                const int h = i >> 1, e = i & 1;
                                const float v = PARTS ? s[h][e] + s[h][2 + e] : s[h][2 * r + e];
                                x[r][i] = 8 * h + 2 * c + e < n ? v * factor : -CUDART_INF_F;
                                top = fmaxf(top, x[r][i]);
                        }
                        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
                        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
                        top = fmaxf(top, most[r]);
                        grew = grew || top > most[r];
                        scale[r] = exp2_of(most[r] - top);
                        most[r] = top;
                        sum[r] *= scale[r];
#pragma unroll
                        for (int i = 0; i < 4; i++) {
                                x[r][i] = exp2_of(x[r][i] - top);
                                sum[r] += x[r][i];
                        }
                }
                if (__any_sync(0xffffffffu, grew))
#pragma unroll
                        for (int i = 0; i < D / 8; i++) {
                                out[i][0] *= scale[0];
                                out[i][1] *= scale[0];
                                out[i][2] *= scale[R - 1];
                                out[i][3] *= scale[R - 1];
                        }
#pragma unroll
                for (int h = 0; h < 2; h++) {
                        weights[2 * h] = T::pack(x[0][2 * h], x[0][2 * h + 1]);
                        if (PARTS) {
                                const float2 high = T::unpack(weights[2 * h]);
                                weights[2 * h + 1] = T::pack(x[0][2 * h] - high.x, x[0][2 * h + 1] - high.y);
                        } else {
                                weights[2 * h + 1] = T::pack(x[R - 1][2 * h], x[R - 1][2 * h + 1]);
                        }
                }
        }

        template <int N, int FIRST = 0>
        __device__ __forceinline__ void blend(const Values<N> &values, const uint32_t (&weights)[4])
        {
#pragma unroll
                for (int a = 0; a < N / 64; a++)
#pragma unroll
                        for (int e = 0; e < 8; e++) {
                                const uint32_t b0 =
                                        pair_of(word_of(values.x[a][0], e / 2), word_of(values.x[a][1], e / 2), e & 1);
                                const uint32_t b1 =
                                        pair_of(word_of(values.x[a][2], e / 2), word_of(values.x[a][3], e / 2), e & 1);
                                T::mma(out[FIRST + 8 * a + e], weights, b0, b1);
                        }
                if constexpr (N % 64 != 0)
#pragma unroll
                        for (int e = 0; e < 4; e++) {
                                const uint32_t b0 = pair_of(e < 2 ? values.rest[0].x : values.rest[0].y,
                                                            e < 2 ? values.rest[1].x : values.rest[1].y, e & 1);
                                const uint32_t b1 = pair_of(e < 2 ? values.rest[2].x : values.rest[2].y,
                                                            e < 2 ? values.rest[3].x : values.rest[3].y, e & 1);
                                T::mma(out[8 * (N / 64) + e], weights, b0, b1);
                        }
        }

        /* From shared memory, 64 coordinates at a time. */
        __device__ __forceinline__ void blend_from(const unsigned char *rows, int g, int c,
                                                   const uint32_t (&weights)[4])
        {
                const auto at = [&](int u) { return rows + (2 * c + (u & 1) + 8 * (u >> 1)) * 2 * D; };
#pragma unroll
                for (int a = 0; a < D / 64; a++) {
                        uint4 x[4];
#pragma unroll
                        for (int u = 0; u < 4; u++)
                                x[u] = *reinterpret_cast<const uint4 *>(at(u) + 128 * a + 16 * g);
#pragma unroll
                        for (int e = 0; e < 8; e++)
                                T::mma(out[8 * a + e], weights,
                                       pair_of(word_of(x[0], e / 2), word_of(x[1], e / 2), e & 1),
                                       pair_of(word_of(x[2], e / 2), word_of(x[3], e / 2), e & 1));
                }
                if constexpr (D % 64 != 0) {
                        uint2 x[4];
#pragma unroll
                        for (int u = 0; u < 4; u++)
                                x[u] = *reinterpret_cast<const uint2 *>(at(u) + 128 * (D / 64) + 8 * g);
#pragma unroll
                        for (int e = 0; e < 4; e++)
                                T::mma(out[8 * (D / 64) + e], weights,
                                       pair_of(e < 2 ? x[0].x : x[0].y, e < 2 ? x[1].x : x[1].y, e & 1),
                                       pair_of(e < 2 ? x[2].x : x[2].y, e < 2 ? x[3].x : x[3].y, e & 1));
                }
        }

        /* To shared memory: maximum and sum by query, and outputs [query][D]. */
        __device__ __forceinline__ void leave(float *all_most, float *all_sum, float *all_out, int lane)
        {
                const int g = lane >> 2, c = lane & 3;
#pragma unroll
                for (int r = 0; r < R; r++) {
                        float s = sum[r];
                        s += __shfl_xor_sync(0xffffffffu, s, 1);
                        s += __shfl_xor_sync(0xffffffffu, s, 2);
                        if (c == 0) {
                                all_most[g + 8 * r] = most[r];
                                all_sum[g + 8 * r] = s;
                        }
                }
#pragma unroll
                for (int i = 0; i < D / 8; i++) {
                        const int a = i / 8, e = i % 8, step = a < D / 64 ? 8 : 4, at = 64 * a + e + step * 2 * c;
                        if (PARTS) {
                                all_out[g * D + at] = out[i][0] + out[i][2];
                                all_out[g * D + at + step] = out[i][1] + out[i][3];
                        } else {
                                all_out[g * D + at] = out[i][0];
                                all_out[g * D + at + step] = out[i][1];
                                all_out[(g + 8) * D + at] = out[i][2];
                                all_out[(g + 8) * D + at + step] = out[i][3];
                        }
                }
        }
};

/* Warps of a block, of which a multiprocessor has one: as many as registers allow. */
template <int D> constexpr int warps_of = D == 64 ? 16 : 8;

template <class T, int D, bool PARTS, bool SPARSE>
static __global__ __launch_bounds__(warps_of<D> * 32,
                                    1) void attend_kernel(const __grid_constant__ dci_gpu_attend_args a)
{
        constexpr int Q = PARTS ? 8 : 16, W = warps_of<D>;
        PTX_DYNAMIC_SHARED(128, unsigned char, memory);
        Shared<D, Q, W> &s = *reinterpret_cast<Shared<D, Q, W> *>(memory);
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, c = lane & 3;
        const bool early = SPARSE && a.early != 0;
        if (!early)
                ptx_take_turn();
        const Job job = job_of(a, SPARSE, gridDim.x);
        const float factor = a.scale * CUDART_L2E_F;
        Running<T, D, PARTS> running;
        Queries<T, D, PARTS, W * 32> queries;
        Places places;
        Keys<D> keys;
        int tile = job.first + warp;
        Where where, later;
        if (tile < job.last)
                where = where_of<SPARSE>(a, job, tile, lane);
        if (tile + W < job.last)
                later = where_of<SPARSE>(a, job, tile + W, lane);
        queries.load(a);
        if (tile < job.last)
                places = places_of<SPARSE>(a, job, tile, where, lane);
        if (early)
                ptx_take_turn();
        if (D < 256 && tile < job.last)
                keys.load(places, c);
        queries.put(s.queries);
        running.begin();
        __syncthreads();
        while (tile < job.last) {
                const int n = job.total - tile * TILE, next = tile + W;
                Values<(D < 256 ? D : D / 2)> values;
                float scores[2][4];
                uint32_t weights[4];
                if (D < 256)
                        values.load(places, g);
                else
                        keys.load(places, c);
                /* Nothing waits for a table: it was read a tile ago. The next keys replace those that are used. */
                where = later;
                if (next + W < job.last)
                        later = where_of<SPARSE>(a, job, next + W, lane);
                if (D < 256 && next < job.last)
                        places = places_of<SPARSE>(a, job, next, where, lane);
                running.score(keys, s.queries, lane, scores);
                if constexpr (D < 256) {
                        if (next < job.last)
                                keys.load(places, c);
                        running.soften(scores, factor, n, c, weights);
                        running.blend(values, weights);
                } else {
                        values.load(places, g);
                        running.soften(scores, factor, n, c, weights);
                        running.blend(values, weights);
                        values.load(places, g, D);
                        if (next < job.last)
                                places = places_of<SPARSE>(a, job, next, where, lane);
                        running.template blend<D / 2, D / 16>(values, weights);
                }
                tile = next;
        }
        running.leave(s.most[warp], s.sum[warp], &s.out[warp][0][0], lane);
        __syncthreads();
        if (gridDim.x == 1)
                finish(a, s);
        else if (leave_part(a, job, s))
                merge_parts<D>(a, job);
}

template <int D, bool PARTS> constexpr size_t block_bytes = sizeof(Shared<D, PARTS ? 8 : 16, warps_of<D>>);

typedef void (*AttendKernel)(dci_gpu_attend_args);

static cudaError_t launch_blocks(AttendKernel kernel, int n_warps, size_t shared_bytes, const dci_gpu_attend_args &args,
                                 const GpuStream &stream)
{
        return launch_shared(stream, dim3(args.n_splits, DCI_GPU_LISTS(&args), args.n_sequences), n_warps * 32,
                             shared_bytes, kernel, args);
}

template <class T, int D, bool PARTS, bool SPARSE>
static cudaError_t launch(const dci_gpu_attend_args &args, const GpuStream &stream)
{
        return launch_blocks(attend_kernel<T, D, PARTS, SPARSE>, warps_of<D>, block_bytes<D, PARTS>, args, stream);
}

#endif
