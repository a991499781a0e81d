/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Every row to the best centre (args/kmeans.h). A warp has 32 rows, 16 of dimension 256, as points rounded to f16 in
 * registers, and goes through all centres of its view, which come to shared memory tile by tile. Of its part of the centres a lane
 * keeps for each row the two greatest proposals and the value of a third; four lanes share a row and put together what
 * they have. Where the error's bound leaves a doubt, canonical sums decide between two centres or among all. */
#include "gpu/cuda/bulk.cuh"
#include "gpu/cuda/kmeans/kmeans.cuh"
#include "gpu/cuda/ptx.cuh"

/* Of rows: tiles of 16 of a warp, threads of a block of km_tile rows; of centres: those that come at a time. */
template <int DIM> struct KmShape {
        static constexpr int pieces = DIM / 32, row_tiles = DIM == 256 ? 1 : 2;
        static constexpr int n_warps = km_tile / (16 * row_tiles), n_threads = 32 * n_warps;
        static constexpr int centres = DIM == 256 ? 16 : 32;
        static constexpr int stage_bytes = centres * DIM * 2;
};

/* The greatest proposals of a lane's part of the centres, for one row; each has its centre's number among the lane's in
 * its last bits, so that a proposal costs a few instructions without a branch. */
struct KmProposals {
        float first, second, third;

        __device__ __forceinline__ void begin()
        {
                first = second = third = -FLT_MAX;
        }

        __device__ __forceinline__ void take(float score, uint32_t keep, uint32_t number)
        {
                const float numbered = __uint_as_float((__float_as_uint(score) & keep) | number);
                third = fmaxf(third, fminf(second, numbered));
                second = fmaxf(second, fminf(first, numbered));
                first = fmaxf(first, numbered);
        }
};

/* Bits of a proposal that are its number's: a lane has every fourth pair of centres. */
static __device__ __forceinline__ int number_bits(int padded)
{
        return 32 - __clz(padded / 4 - 1);
}

/* The lane's centre of that number. */
static __device__ __forceinline__ uint32_t centre_of(float proposal, uint32_t keep)
{
        const uint32_t number = __float_as_uint(proposal) & ~keep;
        return (number >> 1) * 8 + 2 * (threadIdx.x & 3) + (number & 1);
}

/* Of more and more of the centres, for one row. */
struct KmTop {
        float first, second, third;
        uint32_t centres; /* of the first in the lower half, of the second in the upper one */

        __device__ __forceinline__ void begin(const KmProposals &own, uint32_t keep)
        {
                first = own.first;
                second = own.second;
                third = own.third;
                centres = centre_of(first, keep) | centre_of(second, keep) << 16;
        }

        __device__ __forceinline__ void take(float score, uint32_t centre)
        {
                if (!(score > third))
                        return;
                if (!(score > second)) {
                        third = score;
                        return;
                }
                third = second;
                if (score > first) {
                        second = first;
                        first = score;
                        centres = centres << 16 | centre;
                } else {
                        second = score;
                        centres = (centres & 0xffff) | centre << 16;
                }
        }

        /* What the lane `with` away has: its third is below two others at least. */
        __device__ __forceinline__ void join(int with)
        {
                const float other = __shfl_xor_sync(km_all, first, with),
                            other2 = __shfl_xor_sync(km_all, second, with),
                            other3 = __shfl_xor_sync(km_all, third, with);
                const uint32_t there = __shfl_xor_sync(km_all, centres, with);
                take(other, there & 0xffff);
                take(other2, there >> 16);
                take(other3, 0);
        }
};

/* A row that is in doubt between two centres, or, next < 0, among all. */
struct KmDoubt {
        int32_t row, at, next;
};

template <int DIM> struct KmShared {
        __align__(16) unsigned char stage[2][KmShape<DIM>::stage_bytes];
        __align__(16) float offsets[2][KmShape<DIM>::centres];
        float middle[DIM], row_mean[DIM];
        KmDoubt doubts[km_tile]; /* between two from the front, among all from the back */
        int32_t labels[km_tile];
        float2 bounds[km_tile];
        int32_t counts[DCI_GPU_KMEANS_MOST];
        uint64_t best; /* of a row in doubt among all: its score's order, and the centre's complement */
        int32_t n_doubts, n_wide, view;
};

/* Twice what a proposal may be off from the canonical score, from above: what the point and the centres have lost to
 * rounding to f16; sums in binary32 in any order, cut or rounded, canonical ones besides; the difference to the offset;
 * and the last bits, which are a number's. Lengths are themselves rounded. */
template <int DIM>
static __device__ __forceinline__ float slack_of(const float2 &bounds, float longest, float most_lost, int bits)
{
        const float gamma = (4.0f * DIM + 320.0f) * 0x1p-24f, least = 0x1p-60f;
        const float length = bounds.x * 1.001f + least, lost = bounds.y * 1.001f + least;
        const float most = longest * 1.001f + least, lost_there = most_lost * 1.001f + least;
        const float numbered = __int_as_float((127 - 23 + bits) << 23) * 1.0625f;
        const float bound = lost * most + (length + lost) * lost_there + gamma * (length + lost) * (most + lost_there) +
                            (0x1p-21f + numbered) * (length * most + most * most);
        return 2.0f * bound;
}

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
#pragma unroll 2
                for (int eight = 0; eight < per / 8; eight++) {
                        const uint32_t number = (uint32_t)(stage * (per / 8) + eight) * 2;
                        const float2 offsets = reinterpret_cast<const float2 *>(s.offsets[stage & 1])[4 * eight + c];
                        float sums[n_tiles][4] = {};
#pragma unroll
                        for (int j = 0; j < DIM / 32; j++) {
                                const uint4 b = reinterpret_cast<const uint4 *>(
                                        s.stage[stage & 1])[(eight * (DIM / 32) + j) * 32 + lane];
#pragma unroll
                                for (int t = 0; t < n_tiles; t++) {
                                        const uint4 &x = points[t][0][j], &y = points[t][1][j];
                                        ptx_mma_f16(sums[t], x.x, y.x, x.y, y.y, b.x, b.y);
                                        ptx_mma_f16(sums[t], x.z, y.z, x.w, y.w, b.z, b.w);
                                }
                        }
#pragma unroll
                        for (int t = 0; t < n_tiles; t++)
#pragma unroll
                                for (int r = 0; r < 2; r++) {
                                        tops[t][r].take(sums[t][2 * r] - offsets.x, keep, number);
                                        tops[t][r].take(sums[t][2 * r + 1] - offsets.y, keep, number + 1);
                                }
                }
        }
}

/* The canonical score of a centre, by half a warp; both halves get their own. */
template <int DIM>
static __device__ __forceinline__ float score_of(const KmView &h, const float (&point)[DIM / 16], int centre)
{
        const float *at = h.centres + (uint64_t)centre * DIM + (threadIdx.x & 15);
        float sum = 0.0f;
#pragma unroll
        for (int t = 0; t < DIM / 16; t++)
                sum = km_step(point[t], __ldcg(at + 16 * t), sum, h.fused);
        return __fsub_rn(km_tree(sum), __ldcg(h.offsets + centre));
}

/* A row in doubt as half a warp has it. */
template <int DIM>
static __device__ __forceinline__ void point_of(const KmShared<DIM> &s, const KmView &h, int row,
                                                float (&point)[DIM / 16])
{
        const int l = (int)threadIdx.x & 15;
        const float scale = __ldcg(h.scales + row);
#pragma unroll
        for (int t = 0; t < DIM / 16; t++)
                point[t] =
                        km_point(km_element(h, row, l + 16 * t), s.row_mean[l + 16 * t], scale, s.middle[l + 16 * t]);
}

/* Between two centres, by a warp: each half has one; equal ones by number. */
template <int DIM>
static __device__ __forceinline__ int32_t decide(const KmShared<DIM> &s, const KmView &h, int first_row,
                                                 const KmDoubt &doubt)
{
        const bool upper = (threadIdx.x >> 4 & 1) != 0;
        const int32_t at = upper ? doubt.next : doubt.at;
        float point[DIM / 16];
        point_of<DIM>(s, h, first_row + doubt.row, point);
        const float score = score_of<DIM>(h, point, at), other = __shfl_xor_sync(km_all, score, 16);
        const int32_t there = __shfl_xor_sync(km_all, at, 16);
        return other > score || (other == score && there < at) ? there : at;
}

/* Among all centres, by the whole block: half a warp has every so manieth. */
template <int DIM>
static __device__ __forceinline__ void decide_widely(KmShared<DIM> &s, const KmView &h, int first_row, int32_t row)
{
        constexpr int n_halves = KmShape<DIM>::n_threads / 16, at_once = 4;
        const int half = (int)threadIdx.x >> 4;
        float point[DIM / 16], best = -FLT_MAX;
        int32_t at = 0;
        if (threadIdx.x == 0)
                s.best = 0;
        __syncthreads();
        point_of<DIM>(s, h, first_row + row, point);
        for (int first = half; first - half < h.k; first += at_once * n_halves) { /* the same count for all */
                float scores[at_once];
#pragma unroll
                for (int i = 0; i < at_once; i++)
                        scores[i] = score_of<DIM>(h, point, min(first + i * n_halves, h.k - 1));
#pragma unroll
                for (int i = 0; i < at_once; i++)
                        if (first + i * n_halves < h.k && scores[i] > best) {
                                best = scores[i];
                                at = first + i * n_halves;
                        }
        }
        const uint32_t bits = __float_as_uint(__fadd_rn(best, 0.0f)); /* no zero below another */
        const uint32_t order = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
        if ((threadIdx.x & 15) == 0)
                atomicMax(reinterpret_cast<unsigned long long *>(&s.best),
                          (unsigned long long)order << 32 | (uint32_t)~at);
        __syncthreads();
        if (threadIdx.x == 0)
                s.labels[row] = (int32_t) ~(uint32_t)s.best;
}

/* What the lanes have, put together: a label, or a doubt. */
template <int DIM>
static __device__ __forceinline__ void settle(KmShared<DIM> &s, const KmView &h, int first_row, const KmProposals &own,
                                              int row, float longest, float most_lost, uint32_t keep)
{
        KmTop top;
        top.begin(own, keep);
        top.join(1);
        top.join(2);
        if ((threadIdx.x & 3) != 0 || first_row + row >= h.n)
                return;
        const float least = top.first - slack_of<DIM>(s.bounds[row], longest, most_lost, __popc(~keep));
        const int32_t at = (int32_t)(top.centres & 0xffff);
        s.labels[row] = at;
        if (top.second < least)
                return;
        if (top.third < least)
                s.doubts[atomicAdd(&s.n_doubts, 1)] = {row, at, (int32_t)(top.centres >> 16)};
        else
                s.doubts[km_tile - 1 - atomicAdd(&s.n_wide, 1)] = {row, at, -1};
}

/* Rows in doubt get their labels. Needs all threads. */
template <int DIM> static __device__ __forceinline__ void decide_all(KmShared<DIM> &s, const KmView &h, int first_row)
{
        const int warp = (int)threadIdx.x >> 5;
        for (int i = warp; i < s.n_doubts; i += KmShape<DIM>::n_warps) {
                const int32_t label = decide<DIM>(s, h, first_row, s.doubts[i]);
                if ((threadIdx.x & 31) == 0)
                        s.labels[s.doubts[i].row] = label;
        }
        for (int i = 0; i < s.n_wide; i++)
                decide_widely<DIM>(s, h, first_row, s.doubts[km_tile - 1 - i].row);
}

/* What the block found out to memory: labels, who moved, and how many of each. */
template <int DIM> static __device__ __forceinline__ void leave(KmShared<DIM> &s, const KmView &h, int first_row)
{
        const int i = (int)threadIdx.x, row = first_row + i;
        bool moved = false;
        if (i < km_tile && row < h.n) {
                const int32_t before = h.labels[row], now = s.labels[i];
                moved = before != now;
                h.labels[row] = now;
                if (moved) {
                        h.changed[now] = 1;
                        if (before >= 0 && before < h.k) /* else of another view */
                                h.changed[before] = 1;
                }
                atomicAdd(&s.counts[s.labels[i]], 1);
        }
        const int n_moved = __popc(__ballot_sync(km_all, moved));
        if ((i & 31) == 0 && n_moved > 0)
                atomicAdd(h.state + DCI_GPU_KMEANS_MOVED, n_moved);
        if (i == 0 && s.n_doubts + s.n_wide > 0)
                atomicAdd(h.state + DCI_GPU_KMEANS_EXACT, s.n_doubts + s.n_wide);
        __syncthreads();
        for (int c = i; c < h.padded; c += KmShape<DIM>::n_threads) {
                const int32_t count = s.counts[c];
                h.counts[(uint64_t)blockIdx.x * h.padded + c] = count;
                if (count > 0)
                        atomicAdd(h.sizes + c, count);
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
        const uint32_t keep = ~0u << number_bits(call.padded);
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
        if (threadIdx.x == 0) {
                s.n_doubts = s.n_wide = 0;
                s.view = (int32_t)blockIdx.y;
        }
        __syncthreads(); /* the view's number is there */
#pragma unroll
        for (int t = 0; t < n_tiles; t++)
                for (int r = 0; r < 2; r++)
                        tops[t][r].begin();
        for (int i = (int)threadIdx.x; i < call.padded; i += n_threads)
                s.counts[i] = 0;
        propose(s, call, points, tops, keep);
        /* Computed again from a number that the compiler does not know, as in `propose`, to save registers. */
        const KmView h = km_view(call, s.view);
        const float longest = __int_as_float(h.state[DCI_GPU_KMEANS_LONGEST]),
                    most_lost = __int_as_float(h.state[DCI_GPU_KMEANS_LOST]);
#pragma unroll
        for (int t = 0; t < n_tiles; t++)
#pragma unroll
                for (int r = 0; r < 2; r++)
                        settle(s, h, first_row, tops[t][r], (warp * n_tiles + t) * 16 + 8 * r + (lane >> 2), longest,
                               most_lost, keep);
        __syncthreads();
        decide_all(s, h, first_row);
        __syncthreads();
        leave(s, h, first_row);
}

extern "C" cudaError_t dci_gpu_cuda_kmeans_assign(const KmCall *call, cudaStream_t stream)
{
        const dim3 grid((unsigned)call->n_tiles, (unsigned)(call->sizes.n_problems * call->n_segments));
        return with_dim(call->args.dim, cudaErrorInvalidValue, [&](auto dim) {
                return launch_kernel({stream, false}, grid, KmShape<dim.value>::n_threads, 0, assign_kernel<dim.value>,
                                     *call);
        });
}
