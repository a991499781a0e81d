/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Every row to the best centre (args/kmeans.h). A warp has 32 rows, 16 of dimension 256, as points rounded to f16 in
 * registers, and goes through all centres of its view, which come to shared memory tile by tile. */
#include "gpu/cuda/bulk.cuh"
#include "gpu/cuda/kmeans/kmeans.cuh"
#include "gpu/cuda/kmeans/kmeans_decide.cuh"
#include "gpu/cuda/ptx.cuh"

/* Of rows: tiles of 16 of a warp, threads of a block of km_tile rows; of centres: those that come at a time. */
template <int DIM> struct KmShape {
        static constexpr int pieces = DIM / 32, row_tiles = DIM == 256 ? 1 : 2;
        static constexpr int n_warps = km_tile / (16 * row_tiles), n_threads = 32 * n_warps;
        static constexpr int centres = DIM == 256 ? 16 : 32;
        static constexpr int stage_bytes = centres * DIM * 2;
};

template <int DIM> struct KmShared {
        __align__(16) unsigned char stage[2][KmShape<DIM>::stage_bytes];
        __align__(16) float offsets[2][KmShape<DIM>::centres];
        float middle[DIM], row_mean[DIM];
        KmDoubt doubts[KmShape<DIM>::n_warps][16 * KmShape<DIM>::row_tiles];
        __align__(16) float2 bounds[km_tile];
        uint16_t labels[km_tile];
        int32_t counts[DCI_GPU_KMEANS_MOST];
        int32_t view;
};

template <int DIM> static __device__ __forceinline__ void bring_stage(KmShared<DIM> &s, const KmView &h, int number)
{
        constexpr int bytes = KmShape<DIM>::stage_bytes;
        const unsigned char *from = reinterpret_cast<const unsigned char *>(h.packed) + (uint64_t)number * bytes,
                            *offsets =
                                    reinterpret_cast<const unsigned char *>(h.offsets + number * KmShape<DIM>::centres);
        const uint32_t to = shared_address(s.stage[number & 1]);
        const int i = (int)threadIdx.x * 16;
#pragma unroll
        for (int at = 0; at < bytes; at += KmShape<DIM>::n_threads * 16)
                if (bytes % (KmShape<DIM>::n_threads * 16) == 0 || at + i < bytes)
                        ptx_copy16_begin(to + (uint32_t)(at + i), from + at + i);
        if (i < KmShape<DIM>::centres * 4)
                ptx_copy16_begin(shared_address(s.offsets[number & 1]) + (uint32_t)i, offsets + i);
}

/* Proposals of all centres. */
template <int DIM>
static __device__ __forceinline__ void propose(KmShared<DIM> &s, const KmCall &call,
                                               const uint4 (&points)[KmShape<DIM>::row_tiles][2][DIM / 32],
                                               KmProposals (&tops)[KmShape<DIM>::row_tiles][2], uint32_t keep)
{
        constexpr int per = KmShape<DIM>::centres, n_tiles = KmShape<DIM>::row_tiles;
        const int lane = (int)threadIdx.x & 31, c = lane & 3, n_stages = call.padded / per;
        for (int stage = 0; stage < n_stages; stage++) {
                ptx_copy16_wait();
                __syncthreads(); /* it is there, and the one before has been read */
                if (stage + 1 < n_stages)
                        bring_stage(s, km_view(call, s.view), stage + 1);
                for (int eight = 0; eight < per / 8; eight += 2) {
                        const uint4 *packed = reinterpret_cast<const uint4 *>(s.stage[stage & 1]) + eight * DIM + lane;
                        const float2 *offsets = reinterpret_cast<const float2 *>(s.offsets[stage & 1]) + 4 * eight + c;
                        const float2 first = offsets[0], second = offsets[4];
                        float sums[n_tiles][2][4] = {};
#pragma unroll
                        for (int i = 0; i < 2; i++)
#pragma unroll
                                for (int j = 0; j < DIM / 32; j++) {
                                        const uint4 b = packed[(i * (DIM / 32) + j) * 32];
#pragma unroll
                                        for (int t = 0; t < n_tiles; t++) {
                                                const uint4 &x = points[t][0][j], &y = points[t][1][j];
                                                ptx_mma_f16(sums[t][i], x.x, y.x, x.y, y.y, b.x, b.y);
                                                ptx_mma_f16(sums[t][i], x.z, y.z, x.w, y.w, b.z, b.w);
                                        }
                                }
#pragma unroll
                        for (int t = 0; t < n_tiles; t++)
#pragma unroll
                                for (int r = 0; r < 2; r++) {
                                        const float *x = sums[t][0] + 2 * r, *y = sums[t][1] + 2 * r;
                                        const uint32_t number = (uint32_t)(stage * (per / 8) + eight);
                                        tops[t][r].take(0, x[0] - first.x, y[0] - second.x, keep, number);
                                        tops[t][r].take(1, x[1] - first.y, y[1] - second.y, keep, number);
                                }
                }
        }
}

/* The warp's rows as points, of which a lane has eight elements of each 32, as they were packed. */
template <int DIM>
static __device__ __forceinline__ void take_points(const KmView &h, int first_row,
                                                   uint4 (&points)[KmShape<DIM>::row_tiles][2][DIM / 32])
{
        const int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5, last = (h.n - 1) / DCI_GPU_KMEANS_GROUP;
#pragma unroll
        for (int t = 0; t < KmShape<DIM>::row_tiles; t++) {
                /* Rows past the end repeat some others. */
                const int group = min(first_row / DCI_GPU_KMEANS_GROUP + warp * KmShape<DIM>::row_tiles + t, last);
                const uint4 *from = h.points + (uint64_t)group * (2 * DIM) + lane;
#pragma unroll
                for (int r = 0; r < 2; r++)
#pragma unroll
                        for (int j = 0; j < DIM / 32; j++)
                                points[t][r][j] = __ldcg(from + (r * (DIM / 32) + j) * 32);
        }
}

template <int DIM>
static __global__ void __launch_bounds__(KmShape<DIM>::n_threads, DIM == 256 ? 1 : 2)
        assign_kernel(const __grid_constant__ KmCall call)
{
        constexpr int n_tiles = KmShape<DIM>::row_tiles, n_threads = KmShape<DIM>::n_threads;
        __shared__ __align__(16) unsigned char memory[sizeof(KmShared<DIM>)];
        KmShared<DIM> &s = *reinterpret_cast<KmShared<DIM> *>(memory);
        const int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5, first_row = (int)blockIdx.x * km_tile;
        uint4 points[n_tiles][2][DIM / 32];
        KmProposals tops[n_tiles][2];
        const uint32_t keep = ~0u << km_number_bits(call.padded);
        const KmView before = km_view(call, (int)blockIdx.y);
        if (km_done(before) || first_row >= before.n) /* the same for all */
                return;
        bring_stage(s, before, 0);
        take_points<DIM>(before, first_row, points);
        for (int i = (int)threadIdx.x; i < DIM; i += n_threads) {
                s.middle[i] = before.middle[i];
                s.row_mean[i] = before.row_mean[i];
        }
        for (int i = (int)threadIdx.x; i < km_tile; i += n_threads)
                s.bounds[i] = before.bounds[min(first_row + i, before.n - 1)];
        if (threadIdx.x == 0)
                s.view = (int32_t)blockIdx.y;
        __syncthreads(); /* the view's number is there */
#pragma unroll
        for (int t = 0; t < n_tiles; t++)
                for (int r = 0; r < 2; r++)
                        tops[t][r].begin();
        propose(s, call, points, tops, keep);
        /* Computed again from a number that the compiler does not know, as in `propose`, to save registers. */
        const KmView h = km_view(call, s.view);
        const float longest = __int_as_float(h.state[DCI_GPU_KMEANS_LONGEST]),
                    most_lost = __int_as_float(h.state[DCI_GPU_KMEANS_LOST]);
        int n_doubts = 0;
#pragma unroll
        for (int t = 0; t < n_tiles; t++) {
                const int at = (warp * n_tiles + t) * DCI_GPU_KMEANS_GROUP;
                n_doubts = km_find_labels<DIM>(tops[t], s.bounds + at, first_row + at, h.n, longest, most_lost, keep,
                                               s.labels + at, s.doubts[warp], n_doubts);
        }
        for (int i = 0; i < n_doubts; i++)
                km_decide<DIM>(h, s.doubts[warp][i], s.row_mean, s.middle,
                               s.labels + (s.doubts[warp][i].row - first_row));
        if (lane == 0 && n_doubts > 0)
                atomicAdd(h.state + DCI_GPU_KMEANS_EXACT, n_doubts);
        __syncthreads();
        km_leave(h, s.labels, first_row, min(h.n - first_row, km_tile), s.counts, n_threads);
}

extern "C" cudaError_t dci_gpu_cuda_kmeans_assign(const KmCall *call, cudaStream_t stream)
{
        const dim3 grid((unsigned)call->n_tiles, (unsigned)(call->sizes.n_problems * call->n_segments));
        return with_dim(call->args.dim, cudaErrorInvalidValue, [&](auto dim) {
                return launch_kernel({stream, false}, grid, KmShape<dim.value>::n_threads, 0, assign_kernel<dim.value>,
                                     *call);
        });
}
