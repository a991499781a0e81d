/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The best of a list's nodes, or pages, for each query head, and pages in turns: thresholds among scores that are rows of a number for each
 * head. A key is a score as an ordered number, then a number upside down: greater is better, and no two are the same.
 *
 * Four heads at a time, four warps each: scores are counted in even bins between the least and the greatest, and the
 * few of the bin in which the last of the wanted ones is are compared each with each. Where they are many (scores that
 * are the same, or one that is far away), the block finds the threshold by all bits of the keys, head by head. */
#ifndef DCI_GPU_CUDA_TREE_TREE_RANK_CUH
#define DCI_GPU_CUDA_TREE_TREE_RANK_CUH

#include "gpu/cuda/score/score_codes.cuh"
#include "gpu/cuda/select/select.cuh"
#include "gpu/cuda/tree/tree.h"

#define TREE_HEADS 4 /* at a time */
#define TREE_LANES (SCORE_THREADS / TREE_HEADS)
#define TREE_BINS 256
#define TREE_FEW 512 /* keys of a bin that are compared */

struct RankShared {
        uint32_t bins[TREE_HEADS][TREE_BINS];
        float least[SCORE_WARPS], most[SCORE_WARPS];
        uint32_t bin[TREE_HEADS], left[TREE_HEADS], within[TREE_HEADS], n_few[TREE_HEADS];
        unsigned long long few[TREE_HEADS][TREE_FEW];
        unsigned long long limits[DCI_GPU_MAX_GROUP]; /* out: the least of the wanted keys */
        Shared select;
};

/* Scores of n rows: of row i and head q at x[i * group + q]; its number is numbers[i], or i; less than 0: no score. */
struct Ranked {
        const float *x; /* staged: in shared memory */
        const int32_t *numbers;
        int n, group;
        bool staged;

        __device__ __forceinline__ int number_of(int i) const
        {
                return numbers == nullptr ? i : __ldcg(numbers + i);
        }
        __device__ __forceinline__ float score_of(int i, int q) const
        {
                return staged ? x[i * group + q] : __ldcg(x + (int64_t)i * group + q);
        }
        __device__ __forceinline__ uint64_t key_at(int i, int q) const
        {
                const int number = number_of(i);
                return number < 0 ? 0 : key_of(ordered(score_of(i, q)), number);
        }
};

/* A head's scores and their numbers, of the thread's rows: four at a time, so that their reads do not wait for each
 * other. */
template <class F> static __device__ __forceinline__ void for_scores(const Ranked &r, int q, bool there, F &&use)
{
        constexpr int AT_ONCE = 4;
        const int t = threadIdx.x % TREE_LANES;
        for (int base = t; base < r.n && there; base += AT_ONCE * TREE_LANES) {
                int numbers[AT_ONCE];
                float x[AT_ONCE];
#pragma unroll
                for (int j = 0; j < AT_ONCE; j++) {
                        const int i = base + j * TREE_LANES;
                        numbers[j] = i < r.n ? r.number_of(i) : -1;
                        x[j] = i < r.n ? r.score_of(i, q) : 0.0f;
                }
#pragma unroll
                for (int j = 0; j < AT_ONCE; j++)
                        if (numbers[j] >= 0)
                                use(x[j], numbers[j]);
        }
}

static __device__ __forceinline__ int even_bin(float x, float most, float scale)
{
        return (int)fminf(__fmul_rn(__fsub_rn(most, x), scale), (float)(TREE_BINS - 1));
}

/* The least and the greatest of each head's scores: of its four warps. */
static __device__ __forceinline__ void find_range(const Ranked &r, RankShared &s, int q)
{
        const int warp = threadIdx.x >> 5;
        float least = FLT_MAX, most = -FLT_MAX;
        for_scores(r, q, q < r.group, [&](float x, int) {
                least = fminf(least, x);
                most = fmaxf(most, x);
        });
#pragma unroll
        for (int d = 16; d > 0; d /= 2) {
                least = fminf(least, __shfl_xor_sync(SCORE_ALL, least, d));
                most = fmaxf(most, __shfl_xor_sync(SCORE_ALL, most, d));
        }
        if ((threadIdx.x & 31) == 0) {
                s.least[warp] = least;
                s.most[warp] = most;
        }
}

/* The bin in which the last of the wanted keys is, by one warp: lanes have eight bins each, the best first. */
static __device__ __forceinline__ void find_even_bin(RankShared &s, int head, uint32_t wanted)
{
        const int lane = threadIdx.x & 31;
        constexpr int each = TREE_BINS / 32;
        uint32_t own = 0;
#pragma unroll
        for (int i = 0; i < each; i++)
                own += s.bins[head][each * lane + i];
        uint32_t sum = own;
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
                const uint32_t before = __shfl_up_sync(SCORE_ALL, sum, d);
                if (lane >= d)
                        sum += before;
        }
        uint32_t before = sum - own;
        for (int i = 0; i < each; i++) {
                const uint32_t within = s.bins[head][each * lane + i];
                if (before < wanted && wanted <= before + within) {
                        s.bin[head] = (uint32_t)(each * lane + i);
                        s.left[head] = wanted - before;
                        s.within[head] = within;
                }
                before += within;
        }
}

/* s.limits[q] for all heads: as many keys as are wanted reach it, all where there are no more. By the whole block. */
static __device__ __forceinline__ void find_limits(const Ranked &r, RankShared &s, int n_counting, int wanted)
{
        const int head = threadIdx.x / TREE_LANES, t = threadIdx.x % TREE_LANES;
        for (int first = 0; first < r.group; first += TREE_HEADS) {
                const int q = first + head;
                const bool there = q < r.group && n_counting > wanted;
                __syncthreads(); /* all has been read */
                for (int i = threadIdx.x; i < TREE_HEADS * TREE_BINS; i += SCORE_THREADS)
                        (&s.bins[0][0])[i] = 0;
                if (threadIdx.x < TREE_HEADS) {
                        s.n_few[threadIdx.x] = 0;
                        s.within[threadIdx.x] = 0;
                        if (first + (int)threadIdx.x < r.group)
                                s.limits[first + threadIdx.x] = everything;
                }
                if (n_counting <= wanted)
                        continue;
                find_range(r, s, q);
                __syncthreads();
                float least = FLT_MAX, most = -FLT_MAX;
#pragma unroll
                for (int w = 0; w < TREE_LANES / 32; w++) {
                        least = fminf(least, s.least[head * (TREE_LANES / 32) + w]);
                        most = fmaxf(most, s.most[head * (TREE_LANES / 32) + w]);
                }
                const float range = __fsub_rn(most, least);
                const float scale = range > 1e-30f && range < 1e30f ? __fdiv_rn((float)TREE_BINS, range) : 0.0f;
                for_scores(r, q, there, [&](float x, int) { atomicAdd(&s.bins[head][even_bin(x, most, scale)], 1u); });
                __syncthreads();
                if (there && t < 32)
                        find_even_bin(s, head, (uint32_t)wanted);
                __syncthreads();
                for_scores(r, q, there && s.within[head] <= TREE_FEW, [&](float x, int number) {
                        if (even_bin(x, most, scale) == (int)s.bin[head])
                                s.few[head][atomicAdd(&s.n_few[head], 1u)] = key_of(ordered(x), number);
                });
                __syncthreads();
                if (there && s.within[head] <= TREE_FEW)
                        for (int i = t; i < (int)s.within[head]; i += TREE_LANES) {
                                const unsigned long long own = s.few[head][i];
                                uint32_t greater = 0;
                                for (int j = 0; j < (int)s.within[head]; j++)
                                        greater += s.few[head][j] > own;
                                if (greater + 1 == s.left[head])
                                        s.limits[q] = own;
                        }
                __syncthreads();
                for (int h = 0; h < TREE_HEADS; h++) { /* the same for all threads */
                        if (first + h >= r.group || s.within[h] <= TREE_FEW)
                                continue;
                        const uint64_t limit = narrow(s.select, everything, ~0ull, (uint32_t)wanted, (uint32_t)wanted,
                                                      [&](auto count) {
                                                              for (int i = threadIdx.x; i < r.n; i += SCORE_THREADS)
                                                                      count(r.key_at(i, first + h));
                                                      });
                        if (threadIdx.x == 0)
                                s.limits[first + h] = limit;
                        __syncthreads();
                }
        }
        __syncthreads();
}

/* --- pages in the order in which they are taken --------------------------------------------------------------------- */

/* What the last block works with, in dynamic shared memory: in turns gathered and sorted keys and pages in their order,
 * and bits; then tokens. */
struct ListRooms {
        unsigned long long *gathered, *sorted;
        int32_t *order, *taken, *tokens;
        uint32_t *bits;
};

static __device__ __forceinline__ ListRooms list_rooms(unsigned char *base, const dci_gpu_tree_args &a)
{
        const int k = a.select.stride >> a.page_shift, n = k * a.score.group;
        const size_t ranked = ranked_bytes(n), bits = TREE_WINDOW_BYTES;
        static_assert(TREE_WINDOW_BYTES == window_words * 4, "room for a window");
        ListRooms r;
        r.gathered = reinterpret_cast<unsigned long long *>(base);
        r.sorted = r.gathered + n;
        r.order = reinterpret_cast<int32_t *>(r.sorted + n);
        r.bits = reinterpret_cast<uint32_t *>(base);
        r.taken = reinterpret_cast<int32_t *>(base + (ranked > bits ? ranked : bits));
        r.tokens = r.taken + k;
        return r;
}

/* Each head's k best keys, best first, at sorted + q * k; zeros where there are fewer. */
static __device__ __forceinline__ void sort_pages(const Ranked &pages, RankShared &s, const ListRooms &r, int k)
{
        const int head = threadIdx.x / TREE_LANES, t = threadIdx.x % TREE_LANES;
        for (int i = threadIdx.x; i < k * pages.group; i += SCORE_THREADS)
                r.gathered[i] = r.sorted[i] = 0;
        for (int first = 0; first < pages.group; first += TREE_HEADS) {
                const int q = first + head;
                __syncthreads();
                if (threadIdx.x < TREE_HEADS)
                        s.n_few[threadIdx.x] = 0;
                __syncthreads();
                for_scores(pages, q, q < pages.group, [&](float x, int number) {
                        const unsigned long long key = key_of(ordered(x), number);
                        if (key >= s.limits[q])
                                r.gathered[q * k + atomicAdd(&s.n_few[head], 1u)] = key;
                });
                __syncthreads();
                const int n = (int)s.n_few[head];
                for (int i = t; i < n && q < pages.group; i += TREE_LANES) {
                        const unsigned long long own = r.gathered[q * k + i];
                        int rank = 0;
                        for (int j = 0; j < n; j++)
                                rank += r.gathered[q * k + j] > own;
                        r.sorted[q * k + rank] = own;
                }
        }
        __syncthreads();
}

/* Pages in the order in which they are offered: rank by rank, of one rank the best score first; -1: none. */
static __device__ __forceinline__ void order_pages(const ListRooms &r, int k, int group)
{
        for (int i = threadIdx.x; i < k * group; i += SCORE_THREADS) {
                const int rank = i / group, q = i % group;
                const unsigned long long own = r.sorted[q * k + rank];
                int before = 0;
                for (int other = 0; other < group; other++) {
                        const uint32_t theirs = (uint32_t)(r.sorted[other * k + rank] >> 32),
                                       mine = (uint32_t)(own >> 32);
                        before += theirs > mine || (theirs == mine && other < q);
                }
                r.order[rank * group + before] = own == 0 ? -1 : group_of(own);
        }
        __syncthreads();
}

/* The first k pages that were not offered before; returns how many there are. */
static __device__ __forceinline__ int take_pages(RankShared &s, const ListRooms &r, int k, int group)
{
        uint32_t n = 0, total;
        for (int base = 0; base < k * group && (int)n < k; base += SCORE_THREADS) {
                const int i = base + (int)threadIdx.x, page = i < k * group ? r.order[i] : -1;
                bool first = page >= 0;
                for (int j = 0; j < i && first; j++)
                        first = r.order[j] != page;
                const uint32_t at = n + block_prefix(first, s.select.sums, &total);
                if (first && (int)at < k)
                        r.taken[at] = page;
                n += total;
        }
        __syncthreads();
        return min((int)n, k);
}

#endif
