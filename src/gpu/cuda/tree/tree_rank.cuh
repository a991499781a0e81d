/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The best of a list's nodes, or pages, for each query head, and pages in turns. A key is a score as an ordered number,
 * then a number upside down: greater is better, and no two are the same. Four heads at a time, four warps each.
 *
 * Of nodes, the least score that counts: scores are counted in even bins between the least and the greatest, and the few
 * of the bin in which the last of the wanted ones is are compared each with each. Of pages, which are few, the sorted
 * best: what is not below the best of some sets (bound_limits) is compared each with each. Where that is too much
 * (scores that are the same, or one that is far away), the block finds the limit by all bits of the keys, head by
 * head. */
#ifndef DCI_GPU_CUDA_TREE_TREE_RANK_CUH
#define DCI_GPU_CUDA_TREE_TREE_RANK_CUH

#include "gpu/cuda/score/score_codes.cuh"
#include "gpu/cuda/select/select_order.cuh"
#include "gpu/cuda/tree/tree.h"

#define TREE_HEADS 4 /* at a time */
#define TREE_LANES (SCORE_THREADS / TREE_HEADS)
#define TREE_BINS 256
#define TREE_FEW 512 /* keys of a bin that are compared */

struct RankShared {
        __align__(16) uint32_t bins[TREE_HEADS][TREE_BINS];
        float least[SCORE_WARPS], most[SCORE_WARPS];
        uint32_t bin[TREE_HEADS], left[TREE_HEADS], within[TREE_HEADS], n_few[TREE_HEADS];
        unsigned long long few[TREE_HEADS][TREE_FEW];
        unsigned long long limits[DCI_GPU_MAX_GROUP]; /* out: the least of the wanted keys, or less */
        Shared select;
};

/* Scores of n rows and their numbers (null: i is row i's; less than 0: no score). STAGED: in shared memory, a head's
 * one after another; else in global memory, row i's at x[i * group]. */
template <bool STAGED> struct Ranked {
        const float *x;
        const int32_t *numbers;
        int n, group;

        __device__ __forceinline__ int number_of(int i) const
        {
                return numbers == nullptr ? i : STAGED ? numbers[i] : __ldcg(numbers + i);
        }
        __device__ __forceinline__ float score_of(int i, int q) const
        {
                return STAGED ? x[q * n + i] : __ldcg(x + (int64_t)i * group + q);
        }
        __device__ __forceinline__ uint64_t key_at(int i, int q) const
        {
                const int number = number_of(i);
                return number < 0 ? 0 : key_of(ordered(score_of(i, q)), number);
        }
};

/* A head's scores and their numbers, of the thread's rows: four at a time, so that their reads do not wait for each
 * other. */
template <class R, class F> static __device__ __forceinline__ void for_scores(const R &r, int q, bool there, F &&use)
{
        constexpr int AT_ONCE = 4;
        const int t = threadIdx.x % TREE_LANES;
#pragma unroll 1
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

/* Where a bin's count is: a lane's eight bins are in the same bank for all lanes. */
static __device__ __forceinline__ int bin_at(int bin)
{
        static_assert(TREE_BINS == 8 * 32, "eight bins for each lane");
        return (bin & 7) << 5 | bin >> 3;
}

static __device__ __forceinline__ int even_bin(float x, float most, float scale)
{
        return (int)fminf(__fmul_rn(__fsub_rn(most, x), scale), (float)(TREE_BINS - 1));
}

/* The least and the greatest of each head's scores: of its four warps. */
template <class R> static __device__ __forceinline__ void find_range(const R &r, RankShared &s, int q)
{
        const int warp = threadIdx.x >> 5;
        float least = FLT_MAX, most = -FLT_MAX;
        for_scores(r, q, q < r.group, [&](float x, int) {
                least = fminf(least, x);
                most = fmaxf(most, x);
        });
        const uint32_t low = __reduce_min_sync(SCORE_ALL, ordered(least)),
                       high = __reduce_max_sync(SCORE_ALL, ordered(most));
        if ((threadIdx.x & 31) == 0) {
                s.least[warp] = from_ordered(low);
                s.most[warp] = from_ordered(high);
        }
}

/* The bin in which the last of the wanted keys is, by one warp: lanes have eight bins each, the best first. */
static __device__ __forceinline__ void find_even_bin(RankShared &s, int head, uint32_t wanted)
{
        const int lane = threadIdx.x & 31;
        uint32_t n[8], own = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) {
                n[i] = s.bins[head][bin_at(8 * lane + i)];
                own += n[i];
        }
        uint32_t sum = own;
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
                const uint32_t before = __shfl_up_sync(SCORE_ALL, sum, d);
                if (lane >= d)
                        sum += before;
        }
        uint32_t before = sum - own;
        if (wanted <= before || wanted > sum)
                return;
#pragma unroll
        for (int i = 0; i < 8; i++) {
                if (before < wanted && wanted <= before + n[i]) {
                        s.bin[head] = (uint32_t)(8 * lane + i);
                        s.left[head] = wanted - before;
                        s.within[head] = n[i];
                }
                before += n[i];
        }
}

/* A head's limit by all bits of the keys, of which as many as are wanted reach it. By the whole block. Apart from what
 * calls it: instructions that are hardly ever executed have to be fetched with their neighbours. */
template <class R> static __device__ __noinline__ void narrow_limit(const R &r, RankShared &s, int q, int wanted)
{
        const uint64_t limit = narrow(s.select, everything, ~0ull, (uint32_t)wanted, (uint32_t)wanted, [&](auto count) {
#pragma unroll 1
                for (int i = threadIdx.x; i < r.n; i += SCORE_THREADS)
                        count(r.key_at(i, q));
        });
        if (threadIdx.x == 0)
                s.limits[q] = limit;
        __syncthreads();
}

/* s.limits[q] for all heads: as many keys as are wanted reach it, all where there are no more. range: of
 * each head's scores, as ordered numbers; null: it is found. By the whole block. */
template <class R>
static __device__ __forceinline__ void find_limits(const R &r, RankShared &s, int wanted, const uint2 *range)
{
        const int head = threadIdx.x / TREE_LANES, t = threadIdx.x % TREE_LANES;
#pragma unroll 1
        for (int first = 0; first < r.group; first += TREE_HEADS) {
                const int q = first + head;
                const bool there = q < r.group && r.n > wanted;
                __syncthreads(); /* all has been read */
                for (int i = threadIdx.x; i < TREE_HEADS * TREE_BINS; i += SCORE_THREADS)
                        (&s.bins[0][0])[i] = 0;
                if (threadIdx.x < TREE_HEADS) {
                        s.n_few[threadIdx.x] = 0;
                        s.bin[threadIdx.x] = TREE_BINS; /* fewer may have a score */
                        s.within[threadIdx.x] = 0;
                        if (first + (int)threadIdx.x < r.group)
                                s.limits[first + threadIdx.x] = everything;
                }
                if (r.n <= wanted)
                        continue;
                float least = FLT_MAX, most = -FLT_MAX;
                if (range == nullptr) {
                        find_range(r, s, q);
                        __syncthreads();
#pragma unroll
                        for (int w = 0; w < TREE_LANES / 32; w++) {
                                least = fminf(least, s.least[head * (TREE_LANES / 32) + w]);
                                most = fmaxf(most, s.most[head * (TREE_LANES / 32) + w]);
                        }
                } else {
                        __syncthreads();
                        least = from_ordered(range[q < r.group ? q : 0].x);
                        most = from_ordered(range[q < r.group ? q : 0].y);
                }
                const float width = __fsub_rn(most, least);
                const float scale = width > 1e-30f && width < 1e30f ? __fdiv_rn((float)TREE_BINS, width) : 0.0f;
                for_scores(r, q, there,
                           [&](float x, int) { atomicAdd(&s.bins[head][bin_at(even_bin(x, most, scale))], 1u); });
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
#pragma unroll 1
                for (int h = 0; h < TREE_HEADS; h++) /* the same for all threads */
                        if (first + h < r.group && s.within[h] > TREE_FEW)
                                narrow_limit(r, s, first + h, wanted);
        }
        __syncthreads();
}

/* --- pages in the order in which they are taken --------------------------------------------------------------------- */

/* What the last block works with, in dynamic shared memory: in turns gathered and sorted keys, pages in their order and
 * staged scores, and bits; then tokens. */
struct ListRooms {
        unsigned long long *gathered, *sorted;
        int32_t *order, *taken, *tokens;
        float *scores;
        uint32_t *bits;
};

/* staged: words of `scores`. */
static __device__ __forceinline__ ListRooms list_rooms(unsigned char *base, const dci_gpu_tree_args &a, int staged)
{
        const int k = a.select.stride >> a.page_shift, n = k * a.score.group;
        static_assert(TREE_WINDOW_BYTES == window_words * 4, "room for a window");
        ListRooms r;
        r.gathered = reinterpret_cast<unsigned long long *>(base);
        r.sorted = r.gathered + n;
        r.order = reinterpret_cast<int32_t *>(r.sorted + n);
        r.scores = reinterpret_cast<float *>(base + ranked_bytes(n));
        r.bits = reinterpret_cast<uint32_t *>(base);
        r.taken = reinterpret_cast<int32_t *>(base + rank_bytes(n, staged));
        r.tokens = reinterpret_cast<int32_t *>(base + rank_bytes(n, staged) + taken_bytes(k));
        return r;
}

/* Sets of scores whose best ones are compared for k pages. */
static __device__ __forceinline__ int sets_of(int k)
{
        return 2 * k <= 32 ? 32 : 2 * k <= 64 ? 64 : TREE_LANES;
}

/* s.limits[q] of heads `first` on: k keys or more reach it, hardly more. Scores are divided into 32 to 128 sets, 2 k or
 * more, and k of these have a score as good as the k-th best one of the sets' best. Where few sets have a score, all
 * keys. has_sets: s.bins[head] has the sets' best as ordered numbers, and zeros up to TREE_LANES. By the whole block. */
template <class R>
static __device__ __forceinline__ void bound_limits(const R &r, RankShared &s, int first, int k, bool has_sets)
{
        const int head = threadIdx.x / TREE_LANES, t = threadIdx.x % TREE_LANES, q = first + head, n_sets = sets_of(k);
        uint32_t *sets = s.bins[head], *different = s.bins[head] + TREE_LANES, best = 0;
        static_assert(TREE_BINS >= 2 * TREE_LANES, "room for sets");
        if (!has_sets) {
                for_scores(r, q, q < r.group, [&](float x, int) { best = max(best, ordered(x)); });
                sets[t] = best;
                __syncthreads();
        }
        if (t < n_sets) {
#pragma unroll 1
                for (int i = t; i < TREE_LANES; i += n_sets)
                        best = max(best, sets[i]);
                best = (best & ~(uint32_t)(TREE_LANES - 1)) | (uint32_t)t; /* a bit less, and no two the same */
                different[t] = best;
        }
        __syncthreads();
        if (t < n_sets && q < r.group) {
                int before = 0;
#pragma unroll 8
                for (int i = 0; i < n_sets / 4; i++) {
                        const uint4 x = reinterpret_cast<const uint4 *>(different)[i];
                        before += (x.x > best) + (x.y > best) + (x.z > best) + (x.w > best);
                }
                best &= ~(uint32_t)(TREE_LANES - 1);
                if (before == k - 1)
                        s.limits[q] = max((unsigned long long)best << 32, (unsigned long long)everything);
        }
        __syncthreads();
}

/* A head's keys that reach its limit, to `to` as far as there is room; counted in s.n_few. By the head's threads. */
template <class R>
static __device__ __forceinline__ void gather_keys(const R &r, RankShared &s, int q, unsigned long long *to,
                                                   uint32_t room)
{
        const int head = threadIdx.x / TREE_LANES;
        const unsigned long long limit = s.limits[q < r.group ? q : 0];
        for_scores(r, q, q < r.group, [&](float x, int number) {
                const uint32_t bits = ordered(x);
                if (bits < (uint32_t)(limit >> 32)) /* nearly all */
                        return;
                const unsigned long long key = key_of(bits, number);
                if (key < limit)
                        return;
                const uint32_t at = atomicAdd(&s.n_few[head], 1u);
                if (at < room)
                        to[at] = key;
        });
}

constexpr int bounded_pages = TREE_LANES / 2;

/* The same of a head that has too many, by its exact limit. By the whole block. */
template <class R>
static __device__ __noinline__ void gather_again(const R &r, RankShared &s, int head, int q, unsigned long long *to,
                                                 uint32_t room, int k)
{
        narrow_limit(r, s, q, k);
        if (threadIdx.x == 0)
                s.n_few[head] = 0;
        __syncthreads();
        if (threadIdx.x / TREE_LANES == head)
                gather_keys(r, s, q, to, room);
        __syncthreads();
}

/* Each head's k best keys, best first, at sorted + q * k; zeros where there are fewer. is_bounded: by sets of scores, k
 * is at most bounded_pages; has_sets: of four heads, as bound_limits. */
template <class R>
static __device__ __forceinline__ void sort_pages(const R &pages, RankShared &s, const ListRooms &r, int k,
                                                  bool is_bounded, bool has_sets)
{
        const int head = threadIdx.x / TREE_LANES, t = threadIdx.x % TREE_LANES;
        for (int i = threadIdx.x; i < k * pages.group; i += SCORE_THREADS)
                r.sorted[i] = 0;
        if (!is_bounded)
                find_limits(pages, s, k, nullptr);
#pragma unroll 1
        for (int first = 0; first < pages.group; first += TREE_HEADS) {
                const int q = first + head;
                unsigned long long *few = k <= TREE_FEW ? s.few[head] : r.gathered + (size_t)q * k;
                const uint32_t room = k <= TREE_FEW ? TREE_FEW : k;
                __syncthreads(); /* all has been read */
                if (threadIdx.x < TREE_HEADS)
                        s.n_few[threadIdx.x] = 0;
                if (is_bounded)
                        bound_limits(pages, s, first, k, has_sets);
                else
                        __syncthreads();
                gather_keys(pages, s, q, few, room);
                __syncthreads();
#pragma unroll 1
                for (int h = 0; h < TREE_HEADS; h++) /* the same for all threads */
                        if (s.n_few[h] > room)
                                gather_again(pages, s, h, first + h, few, room, k);
                const int n = (int)s.n_few[head];
                for (int i = t; i < n && q < pages.group; i += TREE_LANES) {
                        const unsigned long long own = few[i];
                        int rank = 0;
#pragma unroll 4
                        for (int j = 0; j < n; j++)
                                rank += few[j] > own;
                        if (rank < k)
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
#pragma unroll 1
        for (int base = 0; base < k * group && (int)n < k; base += SCORE_THREADS) {
                const int i = base + (int)threadIdx.x, page = i < k * group ? r.order[i] : -1;
                bool first = page >= 0;
#pragma unroll 4
                for (int j = 0; j < i && page >= 0; j += 4) {
                        const int4 x = reinterpret_cast<const int4 *>(r.order)[j / 4];
                        first &= x.x != page && (x.y != page || j + 1 >= i) && (x.z != page || j + 2 >= i) &&
                                 (x.w != page || j + 3 >= i);
                }
                const uint32_t at = n + block_prefix(first, s.select.sums, &total);
                if (first && (int)at < k)
                        r.taken[at] = page;
                n += total;
        }
        __syncthreads();
        return min((int)n, k);
}

#endif
