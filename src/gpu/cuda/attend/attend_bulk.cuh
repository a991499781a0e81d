/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Attention over all of a pool's rows where the copy engine of a multiprocessor (compute capability 9.0) fetches them:
 * a tile's keys and values are contiguous in a page, so a few requests bring them to shared memory, some tiles ahead. A
 * warp works alone: it has its own stages and barriers. Otherwise as attend_kernel. */
#ifndef DCI_GPU_CUDA_ATTEND_ATTEND_BULK_CUH
#define DCI_GPU_CUDA_ATTEND_ATTEND_BULK_CUH

#include "gpu/cuda/attend/attend.cuh"
#include "gpu/cuda/bulk.cuh"

/* Warps, and the tiles of each that are there or on their way: some 64 KiB of a multiprocessor. Less leaves the memory
 * idle; with more under way at once it is up to six per cent slower. */
template <int D> constexpr int bulk_warps = D == 64 ? 8 : 4;
template <int D> constexpr int bulk_stages = D == 96 ? 3 : 2;
/* So much shared memory at least, so that no two blocks share a multiprocessor. */
#define BULK_ALONE ((size_t)116 * 1024)

template <int D> struct Stage {
        unsigned char keys[TILE * 2 * D], values[TILE * 2 * D];
};

/* The stages are done with when warps leave what they have found. */
template <int D, int Q> struct BulkShared {
        union {
                Shared<D, Q, bulk_warps<D>> merge;
                struct {
                        uint4 queries[2 * D];
                        Stage<D> stages[bulk_warps<D>][bulk_stages<D>];
                } rows;
        };
        unsigned long long arrived[bulk_warps<D>][bulk_stages<D>];
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
/* Where a warp's tiles are: each lane has looked up the blocks of one of the next 32. */
struct Ahead {
        int first; /* of the warp's tiles, the number of lane 0's */
        int first_half, second_half;
};

template <int D>
static __device__ __forceinline__ void look_ahead(const dci_gpu_attend_args &a, const Job &job, int number, int warp,
                                                  int lane, Ahead *ahead)
{
        const int tile = min(job.first + warp + (number + lane) * bulk_warps<D>, job.last - 1), last = job.total - 1;
        ahead->first = number;
        ahead->first_half = block_of(a, job, min(tile * TILE, last));
        ahead->second_half = block_of(a, job, min(tile * TILE + 8, last));
}

/* Requests a tile; by one lane. Rows past the end are not fetched. */
template <int D>
static __device__ __forceinline__ void ask(const dci_gpu_attend_args &a, const Job &job, int tile, int first_half,
                                           int second_half, Stage<D> *stage, unsigned long long *barrier)
{
        const int n = min(job.total - tile * TILE, TILE), halves = a.pool.page_shift >= 4 ? 1 : 2, most = TILE / halves;
        bulk_expect(shared_address(barrier), (uint32_t)n * 4 * D);
        for (int h = 0; h < halves && h * most < n; h++) {
                const RowPair from = in_block(a, job, h == 0 ? first_half : second_half, tile * TILE + h * most);
                const uint32_t n_bytes = (uint32_t)min(n - h * most, most) * 2 * D;
                bulk_fetch(shared_address(stage->keys + h * most * 2 * D), from.key, n_bytes, shared_address(barrier));
                bulk_fetch(shared_address(stage->values + h * most * 2 * D), from.value, n_bytes,
                           shared_address(barrier));
        }
}

template <class T, int D, bool PARTS>
static __global__ __launch_bounds__(bulk_warps<D> * 32,
                                    1) void attend_bulk_kernel(const __grid_constant__ dci_gpu_attend_args a)
{
        constexpr int Q = PARTS ? 8 : 16, W = bulk_warps<D>, N = bulk_stages<D>;
        PTX_DYNAMIC_SHARED(128, unsigned char, memory);
        BulkShared<D, Q> &s = *reinterpret_cast<BulkShared<D, Q> *>(memory);
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, c = lane & 3;
        ptx_take_turn();
        const Job job = job_of(a, false, gridDim.x);
        const float factor = a.scale * CUDART_L2E_F;
        const int n_tiles = job.first + warp < job.last ? (job.last - job.first - warp + W - 1) / W : 0;
        Running<T, D, PARTS> running;
        Queries<T, D, PARTS, W * 32> queries;
        Ahead ahead;
        if (n_tiles > 0)
                look_ahead<D>(a, job, 0, warp, lane, &ahead);
        queries.load(a);
        if (lane == 0) {
                for (int i = 0; i < N; i++)
                        bulk_begin<1>(shared_address(&s.arrived[warp][i]));
                bulk_begun();
        }
        __syncwarp();
        for (int i = 0; i < N && i < n_tiles; i++) {
                const int first_half = __shfl_sync(0xffffffffu, ahead.first_half, i);
                const int second_half = __shfl_sync(0xffffffffu, ahead.second_half, i);
                if (lane == 0)
                        ask<D>(a, job, job.first + warp + i * W, first_half, second_half, &s.rows.stages[warp][i],
                               &s.arrived[warp][i]);
        }
        queries.put(s.rows.queries);
        running.begin();
        __syncthreads();
        int stage = 0;
        uint32_t phase = 0;
        for (int i = 0; i < n_tiles; i++) {
                const int tile = job.first + warp + i * W, n = job.total - tile * TILE, next = i + N;
                Stage<D> *rows = &s.rows.stages[warp][stage];
                float scores[2][4];
                uint32_t weights[4];
                bulk_wait(shared_address(&s.arrived[warp][stage]), phase);
                if (n < TILE) { /* what was never fetched must be numbers: its weight is nothing */
                        for (int at = n * 2 * D + 16 * lane; at < TILE * 2 * D; at += 16 * 32)
                                *reinterpret_cast<uint4 *>(rows->values + at) = make_uint4(0, 0, 0, 0);
                        __syncwarp();
                }
                {
                        Keys<D> keys;
                        keys.take(rows->keys, g, c);
                        running.score(keys, s.rows.queries, lane, scores);
                }
                running.soften(scores, factor, n, c, weights);
                running.blend_from(rows->values, g, c, weights);
                /* All lanes have read the stage: it is free for the tile after the next ones. */
                __syncwarp();
                if (next < n_tiles) {
                        if (next >= ahead.first + 32)
                                look_ahead<D>(a, job, next, warp, lane, &ahead);
                        const int first_half = __shfl_sync(0xffffffffu, ahead.first_half, next - ahead.first);
                        const int second_half = __shfl_sync(0xffffffffu, ahead.second_half, next - ahead.first);
                        if (lane == 0)
                                ask<D>(a, job, tile + N * W, first_half, second_half, rows, &s.arrived[warp][stage]);
                }
                if (++stage == N) {
                        stage = 0;
                        phase ^= 1;
                }
        }
        __syncthreads();
        running.leave(s.merge.most[warp], s.merge.sum[warp], &s.merge.out[warp][0][0], lane);
        __syncthreads();
        if (gridDim.x == 1)
                finish(a, s.merge);
        else if (leave_part(a, job, s.merge))
                merge_parts<D>(a, job);
}
#else
template <class T, int D, bool PARTS>
static __global__ void attend_bulk_kernel(const __grid_constant__ dci_gpu_attend_args)
{
}
#endif

/* Some devices that can fetch pages lack room for their stages (12.0): there rows go into registers. */
template <class T, int D, bool PARTS>
static cudaError_t launch_dense(const dci_gpu_attend_args &args, size_t bulk_bytes, const GpuStream &stream)
{
        using Memory = BulkShared<D, PARTS ? 8 : 16>;
        const size_t alone = bulk_bytes < BULK_ALONE ? bulk_bytes : BULK_ALONE;
        if (bulk_bytes < sizeof(Memory))
                return launch<T, D, PARTS, false>(args, stream);
        return launch_blocks(attend_bulk_kernel<T, D, PARTS>, bulk_warps<D>,
                             sizeof(Memory) > alone ? sizeof(Memory) : alone, args, stream);
}

template <class T, int D>
static cudaError_t launch_dim(const dci_gpu_attend_args &args, size_t bulk_bytes, const GpuStream &stream)
{
        const bool parts = args.group <= 8;
        if (args.slots != nullptr)
                return parts ? launch<T, D, true, true>(args, stream) : launch<T, D, false, true>(args, stream);
        return parts ? launch_dense<T, D, true>(args, bulk_bytes, stream)
                     : launch_dense<T, D, false>(args, bulk_bytes, stream);
}

template <class T>
static cudaError_t launch_type(const dci_gpu_attend_args &args, size_t bulk_bytes, const GpuStream &stream)
{
        return with_dim(args.dim, cudaErrorInvalidValue,
                        [&](auto dim) { return launch_dim<T, dim.value>(args, bulk_bytes, stream); });
}

#endif
