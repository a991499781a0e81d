/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What the selection (cuda/select/select_kernel.cuh) is made of: relevances of groups, thresholds among them,
 * and numbers in order.
 *
 * A group's key is its relevance as an ordered number, then its number upside down: greater is better, equal relevances
 * go by number, and no two keys are the same. All comparisons are of keys, so that what is not a number does no harm.
 * Keys begin at `everything`; less is nothing. */
#ifndef DCI_GPU_CUDA_SELECT_SELECT_CUH
#define DCI_GPU_CUDA_SELECT_SELECT_CUH

#include <cuda_runtime.h>
#include <float.h>

#include "gpu/cuda/launchers.h"
#include "gpu/cuda/ptx.cuh"

constexpr int n_threads = 512;
constexpr int n_warps = n_threads / 32;
constexpr int n_bins = 1024;
constexpr int thread_bins = n_bins / n_threads; /* a thread's, contiguous */
constexpr unsigned all_lanes = 0xffffffffu;
constexpr uint64_t everything = 1ull << 32;
constexpr int window_words = 8192; /* candidates that are put in order at a time, as bits */
constexpr int few_keys = 512;      /* put in order by comparing each with each */
/* How groups count: by the sum over the query heads of the softmax, by mean scores, or units, by their groups'
 * softmax. */
constexpr int by_share = 0, by_mean = 1, by_unit = 2;

/* A block's numbers. */
struct Shared {
        __align__(16) uint32_t bins[n_bins];
        uint32_t sums[n_warps];
        float most[DCI_GPU_MAX_GROUP], lse[DCI_GPU_MAX_GROUP]; /* by query head; lse in powers of two, less most */
        uint32_t count;                                        /* keys collected */
        uint32_t bin, before, within;
        uint32_t smaller; /* pairs of candidates */
        unsigned long long furthest, worst;
        int last;
        int n_tokens; /* of the list */
};

/* One list, and a block's part of it. */
struct Job {
        const float *scores;
        int list, row, head, group; /* group: scores of a group, or of a unit's groups together */
        int n_candidates, room, n_groups, wanted;
        int n_ordered, n_static; /* of an order: listed candidates, and pages that come first */
        bool look;               /* for listed groups without a candidate */
        float low;               /* of mean scores: where bins begin */
};

static __device__ __forceinline__ uint32_t ordered(float x)
{
        const uint32_t bits = __float_as_uint(x);
        const uint32_t out = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
        return out > 0 ? out : 1;
}

static __device__ __forceinline__ float from_ordered(uint32_t bits)
{
        return __uint_as_float(bits & 0x80000000u ? bits & 0x7fffffffu : ~bits);
}

static __device__ __forceinline__ uint64_t key_of(uint32_t bits, int group)
{
        return (uint64_t)bits << 32 | ~(uint32_t)group;
}

static __device__ __forceinline__ int group_of(uint64_t key)
{
        return (int)~(uint32_t)key;
}

static __device__ __forceinline__ float exp2_of(float x)
{
        return ptx_exp2(x);
}

/* --- clusters ------------------------------------------------------------------------------------------------ */

static __device__ __forceinline__ const int32_t *listed_at(const dci_gpu_chunks &chunks, int row, int head, int at,
                                                           int width)
{
        const int c = chunks.numbers[(uint64_t)row * chunks.stride + (uint64_t)(at / DCI_GPU_CHUNK)];
        const unsigned char *chunk = chunks.pieces[c >> chunks.piece_shift] + chunks.layer_at +
                                     (uint64_t)(c & ((1 << chunks.piece_shift) - 1)) * chunks.chunk_bytes +
                                     (uint64_t)head * chunks.head_bytes;
        return reinterpret_cast<const int32_t *>(chunk) + (at % DCI_GPU_CHUNK) * width;
}

static __device__ __forceinline__ int id_at(const dci_gpu_select_args &args, const Job &job, int at)
{
        return *listed_at(args.ids, job.row, job.head, at, 1);
}

/* Candidates among the members of a page of an order, in any order. */
static __device__ __noinline__ int ordered_members(const dci_gpu_select_args &args, int row, int head, int n_candidates,
                                                   int first)
{
        int n = 0;
        for (int i = first; i < first + (1 << args.group_shift); i++)
                n += *listed_at(args.ids, row, head, i, 1) < n_candidates;
        return n;
}

static __device__ __noinline__ bool is_empty(const dci_gpu_select_args &args, int row, int head, int n_candidates,
                                             int n_ordered, int group)
{
        if (args.n_clusters == nullptr) {
                const int first = group << args.group_shift;
                return first >= n_ordered ? first >= n_candidates
                                          : ordered_members(args, row, head, n_candidates, first) == 0;
        }
        const int32_t *span = listed_at(args.spans, row, head, group, 2);
        return span[1] <= 0 || *listed_at(args.ids, row, head, span[0], 1) >= n_candidates;
}

/* The candidate that is number `member` of them. */
static __device__ __noinline__ int ordered_member(const dci_gpu_select_args &args, int row, int head, int n_candidates,
                                                  int first, int member)
{
        for (int i = first;; i++) {
                const int id = *listed_at(args.ids, row, head, i, 1);
                if (id < n_candidates && member-- == 0)
                        return id;
        }
}

/* Candidates of a page: of an order, or by position. */
static __device__ __forceinline__ int page_members(const dci_gpu_select_args &args, const Job &job, int group)
{
        const int per = 1 << args.group_shift, first = group << args.group_shift;
        if ((unsigned)first >= (unsigned)job.n_ordered) /* what is no number may be no page */
                return min(per, job.n_candidates - first);
        return job.look ? ordered_members(args, job.row, job.head, job.n_candidates, first) : per;
}

static __device__ __forceinline__ int page_member(const dci_gpu_select_args &args, const Job &job, int group,
                                                  int member)
{
        const int first = group << args.group_shift;
        if ((unsigned)first >= (unsigned)job.n_ordered)
                return first + member;
        return job.look ? ordered_member(args, job.row, job.head, job.n_candidates, first, member)
                        : id_at(args, job, first + member);
}

/* Candidates among a listed group's members: the first ones. */
static __device__ __forceinline__ int listed_members(const dci_gpu_select_args &args, const Job &job, int group)
{
        const int32_t *span = listed_at(args.spans, job.row, job.head, group, 2);
        const int first = span[0];
        int begin = 0, end = span[1];
        if (!job.look)
                return end;
        while (begin < end) {
                const int middle = (begin + end) >> 1;
                if (id_at(args, job, first + middle) < job.n_candidates)
                        begin = middle + 1;
                else
                        end = middle;
        }
        return begin;
}

/* --- relevances --------------------------------------------------------------------------------------------------- */

/* A query head's lse from all parts, or for units 1 / sum; by one warp. */
template <int HOW>
static __device__ __forceinline__ void weigh_query(const dci_gpu_select_args &args, Shared &s, int list, int q)
{
        const int lane = threadIdx.x & 31, n = args.n_parts;
        const float2 *parts = reinterpret_cast<const float2 *>(args.parts) + (uint64_t)list * (n + 1) * args.group + q;
        const float2 none = make_float2(-FLT_MAX, 0.0f);
        const float2 a = lane < n ? __ldcg(parts + lane * args.group) : none;
        const float2 b = lane + 32 < n ? __ldcg(parts + (lane + 32) * args.group) : none;
        const float2 kept = __ldcg(parts + n * args.group);
        float most = fmaxf(a.x, b.x);
#pragma unroll
        for (int d = 16; d > 0; d >>= 1)
                most = fmaxf(most, __shfl_xor_sync(all_lanes, most, d));
        const float log2_e = 1.44269504f;
        float sum = a.y * exp2f((a.x - most) * log2_e) + b.y * exp2f((b.x - most) * log2_e);
#pragma unroll
        for (int d = 16; d > 0; d >>= 1)
                sum += __shfl_xor_sync(all_lanes, sum, d);
        float lse = log2f(sum);
        if (args.weigh == DCI_GPU_WEIGH_KEPT && kept.y > 0.0f) {
                const float other = (kept.x - most) * log2_e + log2f(kept.y), more = fmaxf(lse, other);
                lse = more + log2f(exp2f(lse - more) + exp2f(other - more));
        }
        if (lane == 0) {
                s.most[q] = most;
                s.lse[q] = HOW == by_unit ? 1.0f / sum : lse;
        }
}

/* Of mean scores only the heads' greatest scores are wanted; by one warp. */
static __device__ __forceinline__ void top_query(const dci_gpu_select_args &args, Shared &s, int list, int q)
{
        const int lane = threadIdx.x & 31, n = args.n_parts;
        const float2 *parts = reinterpret_cast<const float2 *>(args.parts) + (uint64_t)list * (n + 1) * args.group + q;
        float most = -FLT_MAX;
        for (int i = lane; i < n; i += 32)
                most = fmaxf(most, __ldcg(parts + i * args.group).x);
#pragma unroll
        for (int d = 16; d > 0; d >>= 1)
                most = fmaxf(most, __shfl_xor_sync(all_lanes, most, d));
        if (lane == 0) {
                s.most[q] = most;
                s.lse[q] = 0.0f;
        }
}

/* What is the same for all groups of a list. G: query heads, or those of a unit's groups together, 0: any number, read
 * from shared memory. */
template <int G> struct Weights {
        float most[G > 0 ? G : 1], shift[G > 0 ? G : 1];
        const float *max_of, *lse_of;
        float less, inverse;
        int n_heads;
};

/* As much as all heads' lse have in common beyond 32 powers of two is left out, so that nothing is lost where kept
 * tokens have nearly all of the attention. */
template <int G, int HOW>
static __device__ __forceinline__ Weights<G> weights_of(const dci_gpu_select_args &args, const Shared &s,
                                                        const Job &job)
{
        Weights<G> w;
        float least = s.lse[0];
        for (int q = 1; q < args.group; q++)
                least = fminf(least, s.lse[q]);
        w.less = HOW == by_unit ? 0.0f : fmaxf(least - 32.0f, 0.0f);
        w.inverse = 1.0f / (float)job.group;
        w.max_of = s.most;
        w.lse_of = s.lse;
        w.n_heads = args.group;
#pragma unroll
        for (int q = 0; q < G; q++) {
                const int head = HOW == by_unit ? q & (args.group - 1) : q; /* both are powers of two */
                w.most[q] = s.most[head];
                w.shift[q] = HOW == by_unit ? s.lse[head] : __fsub_rn(w.less, s.lse[head]);
        }
        return w;
}

static __device__ __forceinline__ float term(float x, float most, float shift)
{
        return exp2_of(__fmaf_rn(__fsub_rn(x, most), 1.44269504f, shift));
}

/* Of a unit: 0 where it is next to nothing beside the greatest, as on the CPU, whatever the sum is. weight: 1 / sum. */
static __device__ __forceinline__ float unit_term(float x, float most, float weight)
{
        return __fmul_rn(exp2_of(__fmul_rn(__fsub_rn(x, most), 1.44269504f)), weight);
}

/* A group's scores, in registers where G is known. */
template <int G> static __device__ __forceinline__ void load_row(const float *at, float (&x)[G > 0 ? G : 1])
{
        if (G >= 4) {
#pragma unroll
                for (int i = 0; i < G / 4; i++) {
                        const float4 v = __ldcg(reinterpret_cast<const float4 *>(at) + i);
                        x[(4 * i) % (G > 0 ? G : 1)] = v.x;
                        x[(4 * i + 1) % (G > 0 ? G : 1)] = v.y;
                        x[(4 * i + 2) % (G > 0 ? G : 1)] = v.z;
                        x[(4 * i + 3) % (G > 0 ? G : 1)] = v.w;
                }
        } else if (G == 2) {
                const float2 v = __ldcg(reinterpret_cast<const float2 *>(at));
                x[0] = v.x;
                x[1 % (G > 0 ? G : 1)] = v.y;
        } else if (G == 1) {
                x[0] = __ldcg(at);
        }
}

/* Its relevance as an ordered number: the same operations in the same order, whoever asks. */
template <int G, int HOW>
static __device__ __forceinline__ uint32_t bits_of(const dci_gpu_select_args &args, const Job &job, const Weights<G> &w,
                                                   const float (&x)[G > 0 ? G : 1], int index)
{
        float sum = 0.0f;
        if (G > 0) {
#pragma unroll
                for (int q = 0; q < G; q++)
                        sum = __fadd_rn(sum, HOW == by_mean   ? x[q]
                                             : HOW == by_unit ? unit_term(x[q], w.most[q], w.shift[q])
                                                              : term(x[q], w.most[q], w.shift[q]));
        } else if (index < job.n_groups) {
                const float *at = job.scores + (uint64_t)index * job.group;
                for (int q = 0; q < job.group; q++) {
                        const float score = __ldcg(at + q);
                        const int head = HOW == by_unit ? q % w.n_heads : q;
                        sum = __fadd_rn(sum, HOW == by_mean ? score
                                             : HOW == by_unit
                                                     ? unit_term(score, w.max_of[head], w.lse_of[head])
                                                     : term(score, w.max_of[q], __fsub_rn(w.less, w.lse_of[q])));
                }
        }
        if (HOW == by_mean)
                sum = __fmul_rn(sum, w.inverse);
        /* Sums of exponentials are not negative. */
        uint32_t bits = HOW == by_mean ? ordered(sum) : __float_as_uint(sum) | 0x80000000u;
        if (index < job.n_static)
                bits = ordered(INFINITY);
        if (job.look && index < job.n_groups &&
            is_empty(args, job.row, job.head, job.n_candidates, job.n_ordered, index))
                bits = ordered(-FLT_MAX);
        return index < job.n_groups ? bits : 0;
}

/* Where a thread's groups are: short runs go to blocks in turn, so that all share a stretch of relevant groups. */
template <int G> static __device__ __forceinline__ int index_of(int round, int block, int n_blocks)
{
        constexpr int run = G == 1 ? 32 : G == 2 ? 16 : 8;
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        return (((round * n_warps + warp) * (32 / run) + lane / run) * n_blocks + block) * run + lane % run;
}

static __device__ __forceinline__ int rounds_of(int n_groups, int n_blocks)
{
        return (n_groups + n_threads * n_blocks - 1) / (n_threads * n_blocks);
}

template <int G> struct Batch {
        static constexpr int n = G == 0 || G > 8 ? 1 : G == 8 ? 2 : G == 4 ? 4 : 8; /* rows on their way */
        float x[n][G > 0 ? G : 1];
};

template <int G>
static __device__ __forceinline__ void load_batch(Batch<G> &batch, const float *scores, int round, int block,
                                                  int n_blocks, int most)
{
#pragma unroll
        for (int i = 0; i < Batch<G>::n; i++) {
                const int index = index_of<G>(round + i, block, n_blocks);
                if (index < most)
                        load_row<G>(scores + (uint64_t)index * (G > 0 ? G : 1), batch.x[i]);
        }
}

/* Calls visit(round, bits, group) for a block's groups of rounds [from, to), by all threads of a warp together; bits
 * are 0 where there is no group. The first batch is there already. */
template <int G, int HOW, typename Visit>
static __device__ __forceinline__ void scan(const dci_gpu_select_args &args, const Job &job, const Weights<G> &w,
                                            Batch<G> &batch, int block, int n_blocks, int from, int to, Visit visit)
{
        constexpr int n = Batch<G>::n;
        for (int round = from; round < to; round += n) {
                uint32_t bits[n];
#pragma unroll
                for (int i = 0; i < n; i++)
                        bits[i] = bits_of<G, HOW>(args, job, w, batch.x[i], index_of<G>(round + i, block, n_blocks));
                load_batch<G>(batch, job.scores, round + n, block, n_blocks, round + n < to ? job.n_groups : 0);
#pragma unroll
                for (int i = 0; i < n; i++)
                        if (round + i < to)
                                visit(round + i, bits[i], index_of<G>(round + i, block, n_blocks));
        }
}

/* --- thresholds --------------------------------------------------------------------------------------------------- */

/* The sum of all threads' values before this one's, and of all. */
static __device__ __forceinline__ uint32_t block_prefix(uint32_t value, uint32_t *sums, uint32_t *out_total)
{
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        uint32_t sum = value;
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
                const uint32_t below = __shfl_up_sync(all_lanes, sum, d);
                if (lane >= d)
                        sum += below;
        }
        __syncthreads(); /* the sums of the last time have been read */
        if (lane == 31)
                sums[warp] = sum;
        __syncthreads();
        uint32_t of_warps = lane < n_warps ? sums[lane] : 0;
#pragma unroll
        for (int d = 1; d < n_warps; d *= 2) {
                const uint32_t below = __shfl_up_sync(all_lanes, of_warps, d);
                if (lane >= d)
                        of_warps += below;
        }
        *out_total = __shfl_sync(all_lanes, of_warps, n_warps - 1);
        const uint32_t before = __shfl_sync(all_lanes, of_warps, warp > 0 ? warp - 1 : 0);
        return (warp > 0 ? before : 0) + sum - value;
}

/* Threads of a warp with a key each take places in a row; ~0: none. */
static __device__ __forceinline__ uint32_t take_place(bool wanted, uint32_t *count)
{
        const unsigned mask = __ballot_sync(all_lanes, wanted);
        if (mask == 0)
                return ~0u;
        const int lane = threadIdx.x & 31, leader = __ffs(mask) - 1;
        uint32_t at = 0;
        if (lane == leader)
                at = atomicAdd(count, (uint32_t)__popc(mask));
        at = __shfl_sync(all_lanes, at, leader) + __popc(mask & ((1u << lane) - 1));
        return wanted ? at : ~0u;
}

static __device__ __forceinline__ void clear_bins(Shared &s)
{
        static_assert(thread_bins == 2, "a store to a thread");
        reinterpret_cast<uint2 *>(s.bins)[threadIdx.x] = make_uint2(0, 0);
}

/* The bin in which the last of the wanted keys is, from the greatest on: s.bin, s.before (keys in greater ones),
 * s.within. Returns how many keys there are. */
static __device__ __forceinline__ uint32_t find_bin(Shared &s, uint32_t wanted)
{
        const int high = n_bins - 1 - thread_bins * (int)threadIdx.x; /* the thread's greatest */
        const uint2 x = *reinterpret_cast<const uint2 *>(s.bins + high - (thread_bins - 1));
        const uint32_t within[thread_bins] = {x.y, x.x};
        uint32_t total, before = block_prefix(x.x + x.y, s.sums, &total);
#pragma unroll
        for (int i = 0; i < thread_bins; i++) {
                if (before < wanted && wanted <= before + within[i]) {
                        s.bin = (uint32_t)(high - i);
                        s.before = before;
                        s.within = within[i];
                }
                before += within[i];
        }
        __syncthreads();
        return total;
}

/* A number that `least` to `most` keys reach, of the keys in [low, high], of which there are so many at least and none
 * above. visit(count) calls count(key) for all keys, at worst once for every ten bits. By the whole block. */
template <typename Visit>
static __device__ __forceinline__ uint64_t narrow(Shared &s, uint64_t low, uint64_t high, uint32_t least, uint32_t most,
                                                  Visit visit)
{
        for (uint32_t above = 0;;) {
                const int width = 64 - __clzll((long long)(high - low)), shift = width > 10 ? width - 10 : 0;
                clear_bins(s);
                __syncthreads();
                visit([&](uint64_t key) {
                        if (key >= low && key <= high)
                                atomicAdd(&s.bins[(key - low) >> shift], 1u);
                });
                __syncthreads();
                find_bin(s, least - above);
                low += (uint64_t)s.bin << shift;
                if (above + s.before + s.within <= most || shift == 0)
                        return low;
                above += s.before;
                const uint64_t more = (1ull << shift) - 1; /* what is no number is at the very end */
                high = high - low > more ? low + more : high;
        }
}

#endif
