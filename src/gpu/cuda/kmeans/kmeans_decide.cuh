/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* From products of matrix units to labels (args/kmeans.h): what a lane keeps of them, when that decides, and canonical
 * sums where it does not. Four lanes share a row. Of eight centres after another a lane has two, an even and an odd
 * one, and keeps of all even ones and of all odd ones the greatest proposal, and the value of a second. */
#ifndef DCI_GPU_CUDA_KMEANS_KMEANS_DECIDE_CUH
#define DCI_GPU_CUDA_KMEANS_KMEANS_DECIDE_CUH

#include "gpu/cuda/kmeans/kmeans.cuh"

/* Bits of a proposal that are its number's: which eight centres it is of. */
static __host__ __device__ __forceinline__ int km_number_bits(int padded)
{
        int bits = 0;
        while ((padded / 8 - 1) >> bits > 0)
                bits++;
        return bits;
}

/* The greatest proposals of one row among a lane's even centres, and among its odd ones, each with a number in its last
 * bits, and the value of a second. A proposal costs a few instructions without a branch. The lesser of two is their sum
 * less the greater one where that is as good: units that add are idle, those that compare are not. */
struct KmProposals {
        float first[2], second[2];

        __device__ __forceinline__ void begin()
        {
                first[0] = first[1] = second[0] = second[1] = -km_nobody;
        }

        /* Of two times eight centres: x of those of that number, y of the next ones, i: whether they are odd. */
        __device__ __forceinline__ void take(int i, float x, float y, uint32_t keep, uint32_t number)
        {
                const float a = __uint_as_float((__float_as_uint(x) & keep) | number),
                            b = __uint_as_float((__float_as_uint(y) & keep) | (number + 1)), greater = fmaxf(a, b),
                            lesser = __fsub_rn(__fadd_rn(a, b), greater), before = first[i];
                first[i] = fmaxf(before, greater);
                second[i] = fmaxf(second[i], fmaxf(lesser, __fsub_rn(__fadd_rn(before, greater), first[i])));
        }
};

/* Twice what a proposal may be off from the canonical score, from above: what the point and the centres have lost to
 * rounding to f16; sums in binary32 in any order, cut or rounded, canonical ones besides; the differences to the offset
 * and, of a second, to a sum; and the last bits, which are a number's. Lengths are themselves rounded. */
template <int DIM>
static __device__ __forceinline__ float km_slack(const float2 &bounds, float longest, float most_lost, int bits)
{
        const float gamma = (4.0f * DIM + 320.0f) * 0x1p-24f, least = 0x1p-60f;
        const float length = bounds.x * 1.001f + least, lost = bounds.y * 1.001f + least;
        const float most = longest * 1.001f + least, lost_there = most_lost * 1.001f + least;
        const float numbered = __int_as_float((127 - 23 + bits) << 23) * 1.0625f;
        const float bound = lost * most + (length + lost) * lost_there + gamma * (length + lost) * (most + lost_there) +
                            (0x1p-20f + numbered) * (length * most + most * most);
        return 2.0f * bound;
}

/* A row in doubt, and what may be its centre: of lane c of four, an even centre in the lower half of a word, an odd one
 * in the upper half. */
constexpr uint32_t km_none = 0x7fff, km_all_of_them = 0x8000; /* no candidate; all centres of the lane's are */
struct KmDoubt {
        uint32_t candidates[4];
        int32_t row;
};

/* What four lanes know of a row; needs all lanes of the warp. */
struct KmOutcome {
        int n; /* candidates; 1: its centre is certain, and `is_own` says which lane has it */
        bool is_own;
        int32_t own;
        uint32_t candidates; /* the lane's, as in KmDoubt */

        __device__ __forceinline__ KmOutcome(const KmProposals &tops, float slack, uint32_t keep)
        {
                const uint32_t c = threadIdx.x & 3;
                float best = fmaxf(tops.first[0], tops.first[1]);
                best = fmaxf(best, __shfl_xor_sync(km_all, best, 1));
                best = fmaxf(best, __shfl_xor_sync(km_all, best, 2));
                const float least = best - slack;
                n = own = 0;
                candidates = 0;
#pragma unroll
                for (int i = 0; i < 2; i++) {
                        const bool one = tops.first[i] >= least, more = tops.second[i] >= least;
                        const uint32_t centre = (__float_as_uint(tops.first[i]) & ~keep) * 8 + 2 * c + i;
                        n += one + more;
                        own = one ? (int32_t)centre : own;
                        candidates |= (more ? km_all_of_them : one ? centre : km_none) << (16 * i);
                }
                is_own = n == 1;
                n += __shfl_xor_sync(km_all, n, 1);
                n += __shfl_xor_sync(km_all, n, 2);
        }
};

/* Labels of a warp's 16 rows from `row` on, a lane's being row + lane / 4 and eight more, to shared memory; or doubts,
 * which the warp appends to n_doubts of its own; returns their number. bounds: of these 16 rows. n: rows of the view. */
template <int DIM>
static __device__ __forceinline__ int km_find_labels(const KmProposals (&tops)[2], const float2 *bounds, int row, int n,
                                                     float longest, float most_lost, uint32_t keep, uint16_t *labels,
                                                     KmDoubt *doubts, int n_doubts)
{
        const int lane = (int)threadIdx.x & 31, g = lane >> 2;
#pragma unroll
        for (int r = 0; r < 2; r++) {
                const bool here = row + g + 8 * r < n;
                const KmOutcome outcome(tops[r], km_slack<DIM>(bounds[g + 8 * r], longest, most_lost, __popc(~keep)),
                                        keep);
                if (here && outcome.n == 1 && outcome.is_own)
                        labels[g + 8 * r] = (uint16_t)outcome.own;
                const bool doubt = here && outcome.n > 1;
                const unsigned in_doubt = __ballot_sync(km_all, doubt && (lane & 3) == 0);
                KmDoubt *to = doubts + n_doubts + __popc(in_doubt & ((1u << (lane & 28)) - 1));
                if (doubt)
                        to->candidates[lane & 3] = outcome.candidates;
                if (doubt && (lane & 3) == 0)
                        to->row = row + g + 8 * r;
                n_doubts += __popc(in_doubt);
        }
        __syncwarp(); /* they are there */
        return n_doubts;
}

/* What a block found out to memory: labels of n_rows from first_row on, a multiple of km_tile, who moved, and how many of
 * each; counts: room for n_tiles * padded of them. Needs all threads. */
static __device__ __forceinline__ void km_leave(const KmView &h, const uint16_t *labels, int first_row, int n_rows,
                                                int32_t *counts, int n_threads)
{
        const int first_tile = first_row / km_tile, n_tiles = (n_rows + km_tile - 1) / km_tile,
                  n_counts = n_tiles * h.padded;
        int n_moved = 0;
        for (int i = (int)threadIdx.x; i < n_counts; i += n_threads)
                counts[i] = 0;
        __syncthreads();
        for (int i = (int)threadIdx.x; i < n_rows; i += n_threads) {
                const int32_t before = h.labels[first_row + i], now = labels[i];
                atomicAdd(&counts[i / km_tile * h.padded + now], 1);
                if (before == now)
                        continue;
                n_moved++;
                h.labels[first_row + i] = now;
                h.changed[now] = 1;
                if (before >= 0 && before < h.k) /* else of another view */
                        h.changed[before] = 1;
        }
        n_moved = (int)__reduce_add_sync(km_all, (unsigned)n_moved);
        if ((threadIdx.x & 31) == 0 && n_moved > 0)
                atomicAdd(h.state + DCI_GPU_KMEANS_MOVED, n_moved);
        __syncthreads();
        for (int i = (int)threadIdx.x; i < n_counts; i += n_threads) {
                const int tile = first_tile + i / h.padded, c = i % h.padded;
                h.counts[(uint64_t)first_tile * h.padded + i] = counts[i];
                if (counts[i] > 0)
                        atomicAdd(h.sizes + tile / km_span * h.padded + c, counts[i]);
        }
}

/* The best of candidates so far, by half a warp; equal ones by number. */
struct KmBest {
        float score;
        int32_t at;

        __device__ __forceinline__ void take(float other, int32_t there)
        {
                if (other > score || (other == score && there < at)) {
                        score = other;
                        at = there;
                }
        }
};

/* The canonical score of a centre, by half a warp; both halves get their own. */
template <int DIM>
static __device__ __forceinline__ float km_score(const KmView &h, const float (&point)[DIM / 16], int centre)
{
        const float *at = h.centres + (uint64_t)centre * DIM + (threadIdx.x & 15);
        float sum = 0.0f;
#pragma unroll
        for (int t = 0; t < DIM / 16; t++)
                sum = km_step(point[t], __ldcg(at + 16 * t), sum, h.fused);
        return __fsub_rn(km_tree(sum), __ldcg(h.offsets + centre));
}

/* The label of a row in doubt, by a warp, to shared memory: one half has even centres, the other one odd ones. */
template <int DIM>
static __device__ __forceinline__ void km_decide(const KmView &h, const KmDoubt &doubt, const float *row_mean,
                                                 const float *middle, uint16_t *label)
{
        constexpr int at_once = DIM == 256 ? 4 : 8;
        const int l = (int)threadIdx.x & 15, half = (int)threadIdx.x >> 4 & 1, row = doubt.row;
        const float scale = __ldcg(h.scales + row);
        float point[DIM / 16];
#pragma unroll
        for (int t = 0; t < DIM / 16; t++)
                point[t] = km_point(km_element(h, row, l + 16 * t), row_mean[l + 16 * t], scale, middle[l + 16 * t]);
        KmBest best = {-FLT_MAX, DCI_GPU_KMEANS_MOST};
        for (int c = 0; c < 4; c++) {
                const uint32_t both = doubt.candidates[c];
                if (both == (km_none | km_none << 16)) /* the same for all, as what follows */
                        continue;
                if ((both & (km_all_of_them | km_all_of_them << 16)) == 0) {
                        const int32_t centre = (int32_t)(both >> (16 * half) & 0xffff);
                        const float score = km_score<DIM>(h, point, centre == (int32_t)km_none ? 0 : centre);
                        if (centre != (int32_t)km_none)
                                best.take(score, centre);
                        continue;
                }
                for (int first = 2 * c; first < h.k; first += 8 * at_once) {
                        float scores[at_once];
#pragma unroll
                        for (int i = 0; i < at_once; i++)
                                scores[i] = km_score<DIM>(h, point, min(first + 8 * i + half, h.k - 1));
#pragma unroll
                        for (int i = 0; i < at_once; i++)
                                if (first + 8 * i + half < h.k)
                                        best.take(scores[i], first + 8 * i + half);
                }
        }
        best.take(__shfl_xor_sync(km_all, best.score, 16), __shfl_xor_sync(km_all, best.at, 16));
        if ((threadIdx.x & 31) == 0)
                *label = (uint16_t)best.at;
}

#endif
