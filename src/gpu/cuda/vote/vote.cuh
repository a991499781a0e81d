/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Votes (args/votes.h): tables of codes, and votes by them.
 *
 * A block's table has a nibble for each code, in 32 words, one to a bank of shared memory: look-ups of a warp never
 * conflict. */
#ifndef DCI_GPU_CUDA_VOTE_VOTE_CUH
#define DCI_GPU_CUDA_VOTE_VOTE_CUH

#include <math.h>

#include "gpu/cuda/score/score.cuh"

constexpr int table_threads = DCI_VOTE_CODES; /* a code to a thread */
constexpr int vote_threads = 128, thread_votes = 8;
static_assert(vote_threads * thread_votes == DCI_GPU_VOTE_RANGE, "a range to a block");
static_assert(2 * vote_threads == DCI_GPU_VOTE_BINS, "two bins to a thread");

/* A list: its job, and how many candidates are scored. */
struct VoteJob {
        ScoreJob list;
        int wanted, n_ranges;
        bool votes; /* else all are scored */
};

static __device__ __forceinline__ VoteJob vote_job_of(const dci_gpu_vote_args &a)
{
        VoteJob job;
        job.list = score_job_of(a.score);
        DCI_VOTED(job.wanted, job.list.n_candidates, a.candidate_share, a.least);
        job.votes = job.wanted < job.list.n_candidates;
        job.n_ranges = (job.list.n_candidates + DCI_GPU_VOTE_RANGE - 1) / DCI_GPU_VOTE_RANGE;
        return job;
}

/* Whether the list has scores to be made, for kernels that come after the first: whether it is due was known before
 * that. */
static __device__ __forceinline__ bool vote_begins(const dci_gpu_vote_args &a, const VoteJob &job)
{
        return job.list.sparse && (a.score.due == nullptr || __ldcg(a.score.due + job.list.list) == a.score.due_is);
}

/* The sum of all threads' values before this one's, and of all. */
template <int WARPS, class T> static __device__ __forceinline__ T prefix_of(T value, T *sums, T *out_total)
{
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        T sum = value, before = 0, total = 0;
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
                const T below = __shfl_up_sync(SCORE_ALL, sum, d);
                if (lane >= d)
                        sum += below;
        }
        __syncthreads(); /* the sums of the last time have been read */
        if (lane == 31)
                sums[warp] = sum;
        __syncthreads();
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
                const T here = sums[w];
                before += w < warp ? here : 0;
                total += here;
        }
        *out_total = total;
        return before + sum - value;
}

/* --- tables ------------------------------------------------------------------------------------------------------- */

struct TableShared {
        __align__(16) float2 pairs[DCI_VOTE_CODES]; /* a code's score, and how many candidates have it, as bits */
        uint32_t counts[DCI_VOTE_CODES];
        float queries[DCI_GPU_MAX_GROUP][DCI_VOTE_BLOCK]; /* rotated: the block's coordinates */
        uint32_t tiers[DCI_VOTE_TIERS];
};

/* Rotates all queries, and keeps what they have in block number `block`: here, and for the estimates. */
template <int DIM>
static __device__ __forceinline__ void turn_queries(const dci_gpu_vote_args &a, const VoteJob &job,
                                                    const Rotation<DIM> &rotation, TableShared &s, int block)
{
        const int lane = threadIdx.x & 31, group = a.score.group;
        for (int q = threadIdx.x >> 5; q < group; q += table_threads / 32) {
                RawQuery<DIM / 32> raw;
                float y[DIM / 32], mine = 0.0f;
                raw.load(a.score, job.list.list, q, lane, DIM / 32);
#pragma unroll
                for (int e = 0; e < DIM / 32; e++)
                        y[e] = raw.get(a.score, e);
                rotation.turn(y, lane);
#pragma unroll
                for (int e = 0; e < DIM / 32; e++)
                        mine = e == block / 4 ? y[e] : mine;
                if (lane / 8 == block % 4) {
                        s.queries[q][lane % 8] = mine;
                        a.queries[((uint64_t)job.list.list * group + q) * DIM + block * 8 + lane % 8] = mine;
                }
        }
}

/* Adds the codes of candidates that have come to a block's counts, or takes away those that have gone. A warp takes
 * a chunk, a thread 16 codes of it. */
static __device__ __noinline__ void count_codes(const dci_gpu_vote_args &a, ScoreJob job, uint32_t *counts, int block,
                                                int from, int to, uint32_t one)
{
        const int lane = threadIdx.x & 31, first = from / DCI_GPU_CHUNK + (threadIdx.x >> 5);
        for (int chunk = first; chunk * DCI_GPU_CHUNK < to; chunk += table_threads / 32) {
                const int at = chunk * DCI_GPU_CHUNK + 16 * lane;
                const uint4 x = __ldcg(
                        reinterpret_cast<const uint4 *>(chunk_at(a.score, job, chunk) + block * DCI_GPU_CHUNK) + lane);
                const uint32_t words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
                for (int i = 0; i < 16; i++)
                        if (at + i >= from && at + i < to)
                                atomicAdd(&counts[words[i / 4] >> (8 * (i % 4)) & 255], one);
        }
}

/* How many candidates have the thread's code. */
static __device__ __forceinline__ uint32_t count_of(const dci_gpu_vote_args &a, const VoteJob &job, TableShared &s,
                                                    int block, int counted, uint32_t count, uint32_t *counts,
                                                    int32_t *out_counted)
{
        const int code = threadIdx.x, n = job.list.n_candidates;
        if (counted == n) /* the same for all threads */
                return count;
        s.counts[code] = counted > 0 ? count : 0;
        __syncthreads();
        count_codes(a, job.list, s.counts, block, min(counted, n), max(counted, n), counted < n ? 1u : ~0u);
        __syncthreads();
        counts[code] = s.counts[code];
        if (code == 0)
                *out_counted = n;
        return s.counts[code];
}

/* Candidates of better codes than the thread's, equal ones by number. */
static __device__ __forceinline__ uint32_t better_than(const TableShared &s, float score)
{
        const int code = threadIdx.x, own = code / 32 * 16; /* pairs of its warp's codes */
        const float4 *pairs = reinterpret_cast<const float4 *>(s.pairs);
        uint32_t first = 0, second = 0;
#pragma unroll 8
        for (int i = 0; i < own; i++) {
                const float4 p = pairs[i];
                first += p.x >= score ? __float_as_uint(p.y) : 0;
                second += p.z >= score ? __float_as_uint(p.w) : 0;
        }
#pragma unroll 8
        for (int i = own; i < own + 16; i++) {
                const float4 p = pairs[i];
                first += p.x > score || (p.x == score && 2 * i < code) ? __float_as_uint(p.y) : 0;
                second += p.z > score || (p.z == score && 2 * i + 1 < code) ? __float_as_uint(p.w) : 0;
        }
#pragma unroll 8
        for (int i = own + 16; i < DCI_VOTE_CODES / 2; i++) {
                const float4 p = pairs[i];
                first += p.x > score ? __float_as_uint(p.y) : 0;
                second += p.z > score ? __float_as_uint(p.w) : 0;
        }
        return first + second;
}

static __device__ __forceinline__ void set_tiers(const dci_gpu_vote_args &a, const VoteJob &job, TableShared &s)
{
        const double ratios[DCI_VOTE_TIERS] = DCI_VOTE_RATIOS;
        const int n = job.list.n_candidates;
        const double share = a.vote_share > 0.0 ? a.vote_share : DCI_VOTE_SHARE(n),
                     tokens = __dmul_rn(share, (double)n);
#pragma unroll
        for (int t = 0; t < DCI_VOTE_TIERS; t++)
                if ((int)threadIdx.x == t)
                        s.tiers[t] = (uint32_t)ceil(__dmul_rn(tokens, ratios[t]));
}

/* The product of the mean query with the signs of the thread's code. */
static __device__ __forceinline__ float score_of(const TableShared &s, int group)
{
        float score = 0.0f;
#pragma unroll
        for (int j = 0; j < DCI_VOTE_BLOCK; j++) {
                float mean = s.queries[0][j];
                for (int q = 1; q < group; q++)
                        mean = __fadd_rn(mean, s.queries[q][j]);
                mean = __fdiv_rn(mean, (float)group);
                score = ((threadIdx.x >> j) & 1) != 0 ? __fadd_rn(score, mean) : __fsub_rn(score, mean);
        }
        return score;
}

/* A block of a list's keys to a block of threads. */
template <int DIM>
static __global__ void __launch_bounds__(table_threads) tables_kernel(const __grid_constant__ dci_gpu_vote_args a)
{
        constexpr int n_blocks = DIM / DCI_VOTE_BLOCK;
        __shared__ TableShared s;
        const int block = blockIdx.x, code = threadIdx.x;
        const VoteJob job = vote_job_of(a);
        if (!score_begins(a.score, job.list))
                return;
        const uint64_t at = (uint64_t)job.list.head * n_blocks + block;
        uint32_t *counts = a.counts + job.list.row * a.row_counts + at * DCI_VOTE_CODES;
        int32_t *of_counted = a.counted + job.list.row * a.row_counted + at;
        Rotation<DIM> rotation;
        rotation.load(a.score.signs, code & 31);
        const int counted = __ldcg(of_counted);
        const uint32_t here = __ldcg(counts + code);
        set_tiers(a, job, s);
        ptx_take_turn();
        turn_queries<DIM>(a, job, rotation, s, block);
        if (block == 0 && code == 0)
                a.score.units.n_scored[job.list.list] = job.votes ? job.wanted : 0;
        if (!job.votes)
                return;
        if (block == 0)
                a.having[(uint64_t)job.list.list * DCI_GPU_VOTE_BINS + code] = 0;
        const uint32_t count = count_of(a, job, s, block, counted, here, counts, of_counted);
        __syncthreads();
        const float score = score_of(s, a.score.group);
        s.pairs[code] = make_float2(score, __uint_as_float(count));
        __syncthreads();
        const uint32_t better = better_than(s, score);
        uint32_t votes = 0;
#pragma unroll
        for (int t = 0; t < DCI_VOTE_TIERS; t++)
                votes += better < s.tiers[t];
        uint32_t word = votes << (4 * (code & 7));
#pragma unroll
        for (int d = 1; d < 8; d *= 2)
                word |= __shfl_xor_sync(SCORE_ALL, word, d);
        if ((code & 7) == 0)
                a.tables[((uint64_t)job.list.list * n_blocks + block) * DCI_GPU_VOTE_WORDS + code / 8] = word;
}

/* --- votes -------------------------------------------------------------------------------------------------------- */

template <int DIM> struct VoteShared {
        __align__(16) uint32_t tables[DIM / DCI_VOTE_BLOCK * DCI_GPU_VOTE_WORDS];
        uint32_t bins[DCI_GPU_VOTE_BINS];
        uint32_t sums[vote_threads / 32];
};

/* Votes of four codes, added to four bytes. */
static __device__ __forceinline__ uint32_t add_votes(uint32_t sum, const uint32_t *table, uint32_t codes)
{
#pragma unroll
        for (int k = 0; k < 4; k++) {
                const uint32_t code = codes >> (8 * k) & 255;
                sum += (table[code >> 3] >> (4 * (code & 7)) & 15) << (8 * k);
        }
        return sum;
}

/* What a range has: its row of `at_least`, and its share in the list's bins. */
template <int DIM>
static __device__ __forceinline__ void leave_range(const dci_gpu_vote_args &a, const VoteJob &job, VoteShared<DIM> &s,
                                                   int range)
{
        /* Two bins to a thread, from the greatest on. */
        const int bin = DCI_GPU_VOTE_BINS - 1 - 2 * (int)threadIdx.x;
        const uint32_t first = s.bins[bin], second = s.bins[bin - 1];
        uint32_t total;
        const uint32_t high = prefix_of<vote_threads / 32>(first + second, s.sums, &total) + first, low = high + second;
        uint32_t *row = reinterpret_cast<uint32_t *>(a.at_least + ((uint64_t)job.list.list * a.max_ranges + range) *
                                                                          DCI_GPU_VOTE_BINS);
        row[bin / 2] = low | high << 16;
        int32_t *having = a.having + (uint64_t)job.list.list * DCI_GPU_VOTE_BINS;
        if (first > 0)
                atomicAdd(having + bin, (int32_t)first);
        if (second > 0)
                atomicAdd(having + bin - 1, (int32_t)second);
}

/* A range of a list to a block. Codes are on their way before the tables are there. */
template <int DIM>
static __global__ void __launch_bounds__(vote_threads) vote_kernel(const __grid_constant__ dci_gpu_vote_args a)
{
        constexpr int n_blocks = DIM / DCI_VOTE_BLOCK;
        __shared__ VoteShared<DIM> s;
        const int range = blockIdx.x, thread = threadIdx.x;
        const VoteJob job = vote_job_of(a);
        if (!vote_begins(a, job) || !job.votes || range >= job.n_ranges) {
                ptx_take_turn();
                return;
        }
        const int first = range * DCI_GPU_VOTE_RANGE + thread * thread_votes, left = job.list.n_candidates - first;
        uint2 codes[n_blocks];
        if (left > 0) {
                const unsigned char *from = chunk_at(a.score, job.list, first / DCI_GPU_CHUNK) + first % DCI_GPU_CHUNK;
#pragma unroll
                for (int b = 0; b < n_blocks; b++)
                        codes[b] = ptx_load8_once_128(from + b * DCI_GPU_CHUNK);
        } else {
#pragma unroll
                for (int b = 0; b < n_blocks; b++)
                        codes[b] = make_uint2(0, 0);
        }
        s.bins[thread] = s.bins[thread + vote_threads] = 0;
        ptx_take_turn();
        const uint4 *tables =
                reinterpret_cast<const uint4 *>(a.tables + (uint64_t)job.list.list * n_blocks * DCI_GPU_VOTE_WORDS);
        for (int i = thread; i < n_blocks * DCI_GPU_VOTE_WORDS / 4; i += vote_threads)
                reinterpret_cast<uint4 *>(s.tables)[i] = __ldcg(tables + i);
        __syncthreads();
        uint2 sums = make_uint2(0, 0);
#pragma unroll
        for (int b = 0; b < n_blocks; b++) {
                sums.x = add_votes(sums.x, s.tables + b * DCI_GPU_VOTE_WORDS, codes[b].x);
                sums.y = add_votes(sums.y, s.tables + b * DCI_GPU_VOTE_WORDS, codes[b].y);
        }
        if (left > 0)
                *reinterpret_cast<uint2 *>(a.votes + (uint64_t)job.list.list * a.max_ranges * DCI_GPU_VOTE_RANGE +
                                           first) = sums;
#pragma unroll
        for (int i = 0; i < thread_votes; i++)
                if (i < left)
                        atomicAdd(&s.bins[(i < 4 ? sums.x : sums.y) >> (8 * (i % 4)) & 255], 1u);
        __syncthreads();
        leave_range(a, job, s, range);
}

#endif
