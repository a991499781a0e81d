/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Estimates of the candidates that have most votes (args/votes.h): a part of a list's ranges to a block, whose
 * threads first name the candidates, then take one block of one of them each. One more block for a list takes the
 * tokens that every plan attends to. */
#ifndef DCI_GPU_CUDA_VOTE_ESTIMATE_CUH
#define DCI_GPU_CUDA_VOTE_ESTIMATE_CUH

#include "gpu/cuda/score/score_attended.cuh"
#include "gpu/cuda/vote/vote.cuh"

constexpr int range_chunks = DCI_GPU_VOTE_RANGE / DCI_GPU_CHUNK;
constexpr int quad = 4; /* queries at a time */

struct EstimateShared {
        float levels[16]; /* by nibble: with its sign */
        const unsigned char *chunks[range_chunks];
        uint32_t sums[SCORE_WARPS];
        uint64_t wide_sums[SCORE_WARPS];
        int few; /* the least votes of a candidate that has a score, and how many of as few have one */
        uint32_t equal;
        float2 tops[SCORE_WARPS][DCI_GPU_MAX_GROUP];
        int16_t found[DCI_GPU_VOTE_RANGE]; /* of a range, ascending */
};

/* Threads that share a candidate. */
template <int DIM> struct Team {
        static constexpr int n_blocks = DIM / DCI_VOTE_BLOCK,
                             size = n_blocks <= 8    ? 8
                                    : n_blocks <= 16 ? 16
                                                     : 32,
                             n = SCORE_THREADS / size, ahead = 4; /* candidates of a team on their way */
};

/* What four queries have in a thread's block. */
struct QuadQueries {
        float x[quad][DCI_VOTE_BLOCK];

        template <int DIM>
        __device__ __forceinline__ void load(const dci_gpu_vote_args &a, int list, int first, int block)
        {
#pragma unroll
                for (int q = 0; q < quad; q++) {
                        const bool there = first + q < a.score.group && block < Team<DIM>::n_blocks;
                        const float4 *from = reinterpret_cast<const float4 *>(
                                a.queries + ((uint64_t)list * a.score.group + (there ? first + q : 0)) * DIM +
                                (there ? block * DCI_VOTE_BLOCK : 0));
#pragma unroll
                        for (int half = 0; half < 2; half++) {
                                const float4 v = there ? __ldcg(from + half) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                                x[q][4 * half] = v.x;
                                x[q][4 * half + 1] = v.y;
                                x[q][4 * half + 2] = v.z;
                                x[q][4 * half + 3] = v.w;
                        }
                }
        }
};

/* Where the chunks of a range are; known before the votes are. */
static __device__ __forceinline__ void find_chunks(const dci_gpu_vote_args &a, const VoteJob &job, EstimateShared &s,
                                                   int range)
{
        const int chunk = range * range_chunks + (int)threadIdx.x;
        if (threadIdx.x < range_chunks && chunk * DCI_GPU_CHUNK < job.list.n_candidates)
                s.chunks[threadIdx.x] = chunk_at(a.score, job.list, chunk);
}

/* Who has scores, and how many candidates of earlier ranges have more votes than the least, and as many. */
struct Chosen {
        int few;
        uint32_t equal, more, as_few;
};

/* Votes of two candidates of a range. */
static __device__ __forceinline__ uint32_t load_votes(const dci_gpu_vote_args &a, const VoteJob &job, int range)
{
        const uint64_t of_range = (uint64_t)job.list.list * a.max_ranges + range;
        return job.votes ? __ldcg(reinterpret_cast<const uint16_t *>(a.votes + of_range * DCI_GPU_VOTE_RANGE) +
                                  threadIdx.x)
                         : 0;
}

/* By a list's bins, and its ranges' rows. All are chosen where none has votes. */
static __device__ __forceinline__ Chosen choose(const dci_gpu_vote_args &a, const VoteJob &job, EstimateShared &s,
                                                int range)
{
        Chosen c = {-1, 0, (uint32_t)range * DCI_GPU_VOTE_RANGE, 0};
        if (!job.votes) /* the same for all threads */
                return c;
        const int bin = DCI_GPU_VOTE_BINS - 1 - (int)threadIdx.x;
        const uint32_t wanted = (uint32_t)job.wanted,
                       own = bin >= 0 ? (uint32_t)__ldcg(a.having + (uint64_t)job.list.list * DCI_GPU_VOTE_BINS + bin)
                                      : 0;
        uint32_t total;
        const uint32_t before = prefix_of<SCORE_WARPS>(own, s.sums, &total);
        if (before < wanted && wanted <= before + own) {
                s.few = bin;
                s.equal = wanted - before;
        }
        __syncthreads();
        c.few = s.few;
        c.equal = s.equal;
        uint64_t sum = 0, all; /* as few: above 32 bits */
        for (int r = threadIdx.x; r < range; r += SCORE_THREADS) {
                const uint16_t *row =
                        a.at_least + ((uint64_t)job.list.list * a.max_ranges + r) * DCI_GPU_VOTE_BINS + c.few;
                const uint32_t reach = __ldcg(row), more = __ldcg(row + 1);
                sum += (uint64_t)(reach - more) << 32 | more;
        }
        prefix_of<SCORE_WARPS>(sum, s.wide_sums, &all);
        c.more = (uint32_t)all;
        c.as_few = (uint32_t)(all >> 32);
        return c;
}

/* The candidates of a range that have scores, to s.found; returns how many. Two to a thread. begin: the first one's
 * score. */
static __device__ __forceinline__ int find_candidates(const dci_gpu_vote_args &a, const VoteJob &job, EstimateShared &s,
                                                      int range, uint32_t votes, Chosen &c, int *out_begin)
{
        const int at = range * DCI_GPU_VOTE_RANGE + 2 * (int)threadIdx.x;
        const uint32_t used = min(c.as_few, c.equal), equal = c.equal - used, begin = c.more + used;
        int32_t *list = a.score.units.lists + (uint64_t)job.list.list * a.score.units.stride + begin;
        uint32_t more[2], as_few[2], total;
#pragma unroll
        for (int i = 0; i < 2; i++) {
                const int own = (int)(votes >> (8 * i) & 255);
                more[i] = at + i < job.list.n_candidates && own > c.few;
                as_few[i] = at + i < job.list.n_candidates && own == c.few;
        }
        const uint32_t before =
                prefix_of<SCORE_WARPS>((as_few[0] + as_few[1]) << 16 | (more[0] + more[1]), s.sums, &total);
        uint32_t n_more = before & 0xffff, n_few = before >> 16;
#pragma unroll
        for (int i = 0; i < 2; i++) {
                const uint32_t number = n_more + min(n_few, equal);
                if (more[i] != 0 || (as_few[i] != 0 && n_few < equal)) {
                        s.found[number] = (int16_t)(2 * threadIdx.x + i);
                        if (job.votes)
                                list[number] = at + i;
                }
                n_more += more[i];
                n_few += as_few[i];
        }
        __syncthreads();
        c.more += total & 0xffff;
        c.as_few += total >> 16;
        *out_begin = (int)begin;
        return (int)((total & 0xffff) + min(total >> 16, equal));
}

/* One thread's block of a candidate, on its way. */
struct RecordPart {
        uint32_t codes, weight;

        template <int DIM> __device__ __forceinline__ void load(const EstimateShared &s, int candidate, int block)
        {
                constexpr int n_blocks = Team<DIM>::n_blocks;
                const unsigned char *record = s.chunks[candidate / DCI_GPU_CHUNK] + DCI_GPU_CHUNK * n_blocks +
                                              candidate % DCI_GPU_CHUNK * DCI_VOTE_RECORD(n_blocks);
                const bool there = block < n_blocks;
                codes = there ? __ldcg(reinterpret_cast<const uint32_t *>(record) + block) : 0;
                weight = there ? __ldcg(reinterpret_cast<const uint16_t *>(record + 4 * n_blocks) + block) : 0;
        }
        __device__ __forceinline__ void score(const EstimateShared &s, const QuadQueries &queries,
                                              float (&out)[quad]) const
        {
                const float w = __uint_as_float(weight << 16);
#pragma unroll
                for (int q = 0; q < quad; q++)
                        out[q] = 0.0f;
#pragma unroll
                for (int j = 0; j < DCI_VOTE_BLOCK; j++) {
                        const float level = s.levels[codes >> (4 * j) & 15];
#pragma unroll
                        for (int q = 0; q < quad; q++)
                                out[q] = __fmaf_rn(level, queries.x[q][j], out[q]);
                }
#pragma unroll
                for (int q = 0; q < quad; q++)
                        out[q] = __fmul_rn(out[q], w);
        }
};

/* The sum over a team's threads, of the query that the thread gets: of the four, those with its number's two highest
 * bits. */
template <int SIZE> static __device__ __forceinline__ float team_sum(const float (&x)[quad], int lane)
{
        const bool upper = (lane & (SIZE / 2)) != 0, second = (lane & (SIZE / 4)) != 0;
        const float a = __fadd_rn(upper ? x[2] : x[0], __shfl_xor_sync(SCORE_ALL, upper ? x[0] : x[2], SIZE / 2));
        const float b = __fadd_rn(upper ? x[3] : x[1], __shfl_xor_sync(SCORE_ALL, upper ? x[1] : x[3], SIZE / 2));
        float sum = __fadd_rn(second ? b : a, __shfl_xor_sync(SCORE_ALL, second ? a : b, SIZE / 4));
#pragma unroll
        for (int d = SIZE / 8; d > 0; d /= 2)
                sum = __fadd_rn(sum, __shfl_xor_sync(SCORE_ALL, sum, d));
        return sum;
}

/* Scores of n candidates of a range with four queries, of which the first is q0. */
template <int DIM>
static __device__ __forceinline__ void estimate_some(const dci_gpu_vote_args &a, const EstimateShared &s,
                                                     const QuadQueries &queries, int n, float *out, int q0, Top &top)
{
        constexpr int size = Team<DIM>::size, n_teams = Team<DIM>::n, ahead = Team<DIM>::ahead;
        const int lane = threadIdx.x & 31, team = threadIdx.x / size, block = threadIdx.x % size;
        const int first_team = threadIdx.x / 32 * (32 / size); /* of the warp */
        const int q = q0 + (lane / (size / 4) & 3);
        for (int base = 0; base + first_team < n; base += ahead * n_teams) {
                RecordPart part[ahead];
#pragma unroll
                for (int i = 0; i < ahead; i++)
                        part[i].template load<DIM>(s, s.found[min(base + i * n_teams + team, n - 1)], block);
#pragma unroll
                for (int i = 0; i < ahead; i++) {
                        const int number = base + i * n_teams + team;
                        float x[quad];
                        part[i].score(s, queries, x);
                        const float sum = team_sum<size>(x, lane);
                        if (number < n && lane % (size / 4) == 0 && q < a.score.group) {
                                const float own[1] = {sum};
                                out[(int64_t)number * a.score.group + q] = sum;
                                top.add(own);
                        }
                }
        }
}

/* Each query's top of a block's scores, to the list's parts. */
template <int DIM, int QUADS>
static __device__ __forceinline__ void leave_tops(const dci_gpu_vote_args &a, const VoteJob &job, EstimateShared &s,
                                                  Top (&tops)[QUADS])
{
        constexpr int size = Team<DIM>::size;
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#pragma unroll
        for (int i = 0; i < QUADS; i++) {
                tops[i].template merge_lanes<1, size / 8>();
                if constexpr (size < 32)
                        tops[i].template merge_lanes<size, 16>();
                if (lane < size && lane % (size / 4) == 0)
                        s.tops[warp][quad * i + lane / (size / 4)] = make_float2(tops[i].most, tops[i].sum);
        }
        __syncthreads();
        if (warp < a.score.group) {
                Top top;
                const float2 own = lane < SCORE_WARPS ? s.tops[lane % SCORE_WARPS][warp] : make_float2(-FLT_MAX, 0.0f);
                top.most = own.x;
                top.sum = own.y;
                top.merge_lanes<1>();
                if (lane == 0)
                        write_part(a.score, job.list.list, blockIdx.x, warp, top);
        }
}

template <int DIM, int QUADS>
static __device__ __forceinline__ void estimate_part(const dci_gpu_vote_args &a, const VoteJob &job, EstimateShared &s)
{
        const float levels[8] = DCI_VOTE_LEVELS;
        const int list = job.list.list, block = threadIdx.x % Team<DIM>::size;
        const ScoreRange ranges = score_range_of(job.n_ranges, blockIdx.x, a.score.n_parts);
        QuadQueries queries;
        Top tops[QUADS];
#pragma unroll
        for (int i = 0; i < QUADS; i++)
                tops[i].begin();
#pragma unroll
        for (int i = 0; i < 16; i++)
                if ((int)threadIdx.x == i)
                        s.levels[i] = i < 8 ? levels[i % 8] : -levels[i % 8];
        if (ranges.first < ranges.last)
                find_chunks(a, job, s, ranges.first);
        ptx_take_turn();
        uint32_t votes = ranges.first < ranges.last ? load_votes(a, job, ranges.first) : 0;
        Chosen chosen = choose(a, job, s, ranges.first);
        for (int range = ranges.first; range < ranges.last; range++) {
                int begin;
                const int n = find_candidates(a, job, s, range, votes, chosen, &begin);
                float *out = a.score.scores + ((uint64_t)list * a.score.max_groups + begin) * a.score.group;
#pragma unroll
                for (int i = 0; i < QUADS; i++) {
                        if (quad * i >= a.score.group)
                                continue;
                        queries.load<DIM>(a, list, quad * i, block);
                        estimate_some<DIM>(a, s, queries, n, out, quad * i, tops[i]);
                }
                __syncthreads(); /* the candidates have been read */
                if (range + 1 < ranges.last) {
                        find_chunks(a, job, s, range + 1);
                        votes = load_votes(a, job, range + 1);
                }
        }
        leave_tops<DIM, QUADS>(a, job, s, tops);
}

template <int DIM, int QUADS>
static __global__ void __launch_bounds__(SCORE_THREADS, 2) estimate_kernel(const __grid_constant__ dci_gpu_vote_args a)
{
        __shared__ union Room {
                EstimateShared own;
                KeptShared kept;
        } s;
        const VoteJob job = vote_job_of(a);
        if (!vote_begins(a, job)) {
                ptx_take_turn();
                return;
        }
        if ((int)blockIdx.x == a.score.n_parts) {
                ptx_take_turn();
                keep(a.score, job.list, s.kept);
                return;
        }
        estimate_part<DIM, QUADS>(a, job, s.own);
}

#endif
