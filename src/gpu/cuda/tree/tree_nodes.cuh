/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The kernel of nodes (cuda/tree/tree.cuh), and what it shares with that of pages. */
#ifndef DCI_GPU_CUDA_TREE_TREE_NODES_CUH
#define DCI_GPU_CUDA_TREE_TREE_NODES_CUH

#include "gpu/cuda/tree/tree.h"
#include "gpu/cuda/tree/tree_rank.cuh"

struct TreeJob : ScoreJob {
        int n_nodes, n_pages, k, n_grouped;
        bool live; /* there is something to choose */
        dci_gpu_view view;
};

static __device__ __forceinline__ TreeJob tree_job_of(const dci_gpu_tree_args &a)
{
        const int sequence = blockIdx.z;
        TreeJob job;
        job.head = blockIdx.y;
        job.list = sequence * a.score.n_heads + job.head;
        job.row = __ldcg(a.score.rows + sequence);
        job.n_tokens = __ldcg(a.score.n_tokens + sequence);
        job.n_grouped = __ldcg(a.score.n_grouped + sequence);
        const int32_t *in_tree = a.in_tree + 2 * ((uint64_t)job.row * a.score.n_heads + job.head);
        job.n_nodes = __ldcg(in_tree);
        job.n_pages = __ldcg(in_tree + 1);
        DCI_GPU_VIEW(job.view, a.score.sizes, job.n_tokens, job.n_grouped);
        job.n_candidates = job.view.n_candidates;
        job.k = min(job.view.room, a.select.stride) >> a.page_shift;
        job.live = job.view.sparse && job.k > 0 && job.n_nodes > 0;
        job.sparse = job.live;
        return job;
}

/* The head's part of a chunk of rows. */
static __device__ __forceinline__ const unsigned char *page_part(const dci_gpu_tree_args &a, const TreeJob &job,
                                                                 int chunk)
{
        return chunk_part(a.pages, job.row, job.head, chunk);
}

/* Whether a page has a candidate. */
static __device__ __noinline__ bool has_candidate(const dci_gpu_tree_args &a, const TreeJob &job, int page)
{
        const int first = page << a.page_shift;
        const int32_t *ids =
                reinterpret_cast<const int32_t *>(page_part(a, job, first / DCI_GPU_CHUNK)) + first % DCI_GPU_CHUNK;
        bool some = false;
        for (int i = 0; i < 1 << a.page_shift; i++)
                some |= __ldcg(ids + i) < job.n_candidates;
        return some;
}

/* --- nodes -------------------------------------------------------------------------------------------------------- */

template <int D, int Q> struct NodesShared {
        ScoreTable table;
        uint2 range[DCI_GPU_MAX_GROUP]; /* of a head's scores, as ordered numbers: the least, the greatest */
        union {
                CodedQueries<D, Q> queries;
                RankShared rank;
        };
};

/* The part that has a node. */
static __device__ __forceinline__ const unsigned char *node_part(const dci_gpu_tree_args &a, const TreeJob &job,
                                                                 const ScoreTable &table, int node)
{
        const int chunk = node / DCI_GPU_CHUNK;
        return chunk < SCORE_TABLE ? table.at[chunk] : chunk_at(a.score, job, chunk);
}

/* How many pages a node has. */
static __device__ __forceinline__ int pages_of(const dci_gpu_tree_args &a, const TreeJob &job, const ScoreTable &table,
                                               int block_bytes, int node)
{
        const unsigned char *part = node_part(a, job, table, node) + DCI_GPU_TREE_NODE_PAGES(block_bytes);
        return __ldcg(reinterpret_cast<const int32_t *>(part) + node % DCI_GPU_CHUNK);
}

/* Numbers of pages of a thread's first nodes, which are on their way while nodes are ranked: mostly they are enough. */
constexpr int early_nodes = 4;

/* Marks the nodes that reach the limits, eight for each thread at a time. Returns how many pages the thread's first ones
 * have. By the whole block. */
template <class R>
static __device__ __forceinline__ uint32_t mark_nodes(const dci_gpu_tree_args &a, const TreeJob &job, const R &r,
                                                      const RankShared &s, bool all, const int (&n_pages)[early_nodes])
{
        constexpr int EACH = 8;
        uint32_t *opened = a.opened + (uint64_t)job.list * (a.score.max_groups / 32);
        uint32_t held = 0;
#pragma unroll 1
        for (int base = threadIdx.x & ~31; base < job.n_nodes; base += EACH * SCORE_THREADS) { /* the warp's first */
                const int first = base + (threadIdx.x & 31);
                uint32_t marks = all ? ~0u : 0;
#pragma unroll 1
                for (int q = 0; q < r.group && !all; q++) {
                        const uint32_t limit = (uint32_t)(s.limits[q] >> 32);
#pragma unroll
                        for (int j = 0; j < EACH; j++) {
                                const int node = first + j * SCORE_THREADS;
                                if (base + j * SCORE_THREADS >= job.n_nodes)
                                        break;
                                if (node < job.n_nodes && ordered(r.score_of(node, q)) >= limit)
                                        marks |= 1u << j;
                        }
                }
#pragma unroll
                for (int j = 0; j < EACH; j++) {
                        const int node = first + j * SCORE_THREADS;
                        if (base + j * SCORE_THREADS >= job.n_nodes)
                                break;
                        const bool is_opened = node < job.n_nodes && (marks >> j & 1) != 0;
                        const uint32_t word = __ballot_sync(SCORE_ALL, is_opened);
                        if ((threadIdx.x & 31) == 0)
                                opened[node / 32] = word;
                        if (j < early_nodes && base < SCORE_THREADS && is_opened)
                                held += (uint32_t)n_pages[j < early_nodes ? j : 0];
                }
        }
        return held;
}

/* Pages of the opened nodes after the early ones. */
static __device__ __noinline__ uint32_t count_later(const dci_gpu_tree_args &a, const TreeJob &job,
                                                    const ScoreTable &table, int block_bytes)
{
        const uint32_t *opened = a.opened + (uint64_t)job.list * (a.score.max_groups / 32);
        uint32_t held = 0;
        __syncthreads(); /* marks are there */
        for (int node = early_nodes * SCORE_THREADS + threadIdx.x; node < job.n_nodes; node += SCORE_THREADS)
                if ((__ldcg(opened + node / 32) >> (node % 32) & 1) != 0)
                        held += (uint32_t)pages_of(a, job, table, block_bytes, node);
        return held;
}

/* Pages of opened nodes that have a candidate: where some members of pages are none, after a truncation. */
static __device__ __noinline__ uint32_t count_pages(const dci_gpu_tree_args &a, const TreeJob &job, int block_bytes)
{
        const uint32_t *opened = a.opened + (uint64_t)job.list * (a.score.max_groups / 32);
        const int in_chunk = DCI_GPU_CHUNK >> a.page_shift;
        uint32_t held = 0;
        __syncthreads(); /* marks are there */
        for (int page = threadIdx.x; page < job.n_pages; page += SCORE_THREADS) {
                const int32_t *owners = reinterpret_cast<const int32_t *>(page_part(a, job, page / in_chunk) +
                                                                          DCI_GPU_TREE_OWNERS(block_bytes));
                const int owner = __ldcg(owners + page % in_chunk);
                if (owner >= 0 && (__ldcg(opened + owner / 32) >> (owner % 32) & 1) != 0)
                        held += has_candidate(a, job, page);
        }
        return held;
}

/* r: scores of all nodes. */
template <class R>
static __device__ __forceinline__ void open_best(const dci_gpu_tree_args &a, const TreeJob &job,
                                                 const ScoreTable &table, RankShared &s, int block_bytes, const R &r,
                                                 const uint2 *range, const int (&n_pages)[early_nodes])
{
        int wanted = max((int)(DCI_GPU_TREE_SHARE * (double)job.n_candidates), DCI_GPU_TREE_FEWEST);
        if (a.field_of_view > 0)
                wanted = a.field_of_view;
#pragma unroll 1
        for (;; wanted *= 2) {
                const bool all = wanted >= job.n_nodes, whole = job.n_candidates == job.n_grouped;
                uint32_t total, later;
                if (!all)
                        find_limits(r, s, wanted, range);
                uint32_t held = mark_nodes(a, job, r, s, all, n_pages);
                if (all)
                        return;
                if (!whole)
                        held = count_pages(a, job, block_bytes);
                block_prefix(held, s.select.sums, &total);
                if ((int)total < job.k && whole) {
                        held = count_later(a, job, table, block_bytes);
                        block_prefix(held, s.select.sums, &later);
                        total += later;
                }
                if ((int)total >= job.k)
                        return;
                __syncthreads();
        }
}

/* More nodes than shared memory has room for. */
static __device__ __noinline__ void open_many(const dci_gpu_tree_args &a, const TreeJob &job, const ScoreTable &table,
                                              RankShared &s, int block_bytes, const float *scores)
{
        int n_pages[early_nodes];
#pragma unroll
        for (int j = 0; j < early_nodes; j++) {
                const int node = (int)threadIdx.x + j * SCORE_THREADS;
                n_pages[j] = node < job.n_nodes ? pages_of(a, job, table, block_bytes, node) : 0;
        }
        open_best(a, job, table, s, block_bytes, Ranked<false>{scores, nullptr, job.n_nodes, a.score.group}, nullptr,
                  n_pages);
}

/* The least and the greatest of a lane's scores, by query as in put_nodes. */
template <int Q> struct ScoreRanges {
        static constexpr int N = Q == 16 ? 4 : 2;
        float least[N], most[N];

        __device__ __forceinline__ void begin()
        {
#pragma unroll
                for (int i = 0; i < N; i++) {
                        least[i] = FLT_MAX;
                        most[i] = -FLT_MAX;
                }
        }
        /* With the other lanes of the same queries, and the other warps. */
        __device__ __forceinline__ void leave(uint2 *range, int group)
        {
                const int lane = threadIdx.x & 31, c = lane & 3;
#pragma unroll
                for (int i = 0; i < N; i++) {
#pragma unroll
                        for (int d = Q == 4 ? 2 : 4; d < 32; d *= 2) {
                                least[i] = fminf(least[i], __shfl_xor_sync(SCORE_ALL, least[i], d));
                                most[i] = fmaxf(most[i], __shfl_xor_sync(SCORE_ALL, most[i], d));
                        }
                        const int q = (Q == 4 ? 2 * (c & 1) : 8 * (i / 2) + 2 * c) + i % 2;
                        if (lane < (Q == 4 ? 2 : 4) && q < group) {
                                atomicMin(&range[q].x, ordered(least[i]));
                                atomicMax(&range[q].y, ordered(most[i]));
                        }
                }
        }
};

/* Sums of a block of rows to scores, at to[row * row_step + head * head_step]. */
template <int D, int Q>
static __device__ __forceinline__ void put_nodes(const CodedQueries<D, Q> &queries, const CodedSums<Q> &sums,
                                                 const float (&scale)[4], int block, int lane, int n, int group,
                                                 float *to, int row_step, int head_step, ScoreRanges<Q> &ranges)
{
        const int g = lane >> 2, c = lane & 3, first = CODE_ROWS * block + 4 * g + (Q == 4 && c >= 2 ? 2 : 0);
        const bool whole = CODE_ROWS * (block + 1) <= n && group == Q; /* the same for a warp */
#pragma unroll
        for (int t = 0; t < (Q == 16 ? 2 : 1); t++) {
                const int q = Q == 4 ? 2 * (c & 1) : 8 * t + 2 * c;
                const int2 offset = *reinterpret_cast<const int2 *>(queries.offset + q);
                const float2 half = *reinterpret_cast<const float2 *>(queries.half + q);
                float *at = to + first * row_step + q * head_step;
#pragma unroll
                for (int i = 0; i < (Q == 4 ? 2 : 4); i++) {
                        const float x[2] = {score_of(sum_at<Q>(sums, t, i, 0, c), offset.x, half.x, 0.0f, scale[i]),
                                            score_of(sum_at<Q>(sums, t, i, 1, c), offset.y, half.y, 0.0f, scale[i])};
#pragma unroll
                        for (int j = 0; j < 2; j++) {
                                if (!whole && (first + i >= n || q + j >= group))
                                        continue;
                                at[i * row_step + j * head_step] = x[j];
                                ranges.least[2 * t + j] = fminf(ranges.least[2 * t + j], x[j]);
                                ranges.most[2 * t + j] = fmaxf(ranges.most[2 * t + j], x[j]);
                        }
                }
        }
}

/* Blocks of rows that a warp requests at once: of a thousand nodes, all. */
template <int D, int BITS> constexpr int nodes_each = Shape<D, BITS>::LOADS > 4 ? 1 : 3;

template <int D, int BITS, int Q>
static __global__ void __launch_bounds__(SCORE_THREADS, 1)
        nodes_kernel(const __grid_constant__ dci_gpu_tree_args a, const __grid_constant__ int room)
{
        constexpr int EACH = nodes_each<D, BITS>, block_bytes = Shape<D, BITS>::BLOCK_BYTES;
        PTX_DYNAMIC_SHARED(16, unsigned char, dynamic);
        __shared__ __align__(16) unsigned char memory[sizeof(NodesShared<D, Q>)];
        auto &s = *reinterpret_cast<NodesShared<D, Q> *>(memory);
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, c = lane & 3;
        const TreeJob job = tree_job_of(a);
        if (!score_begins(a.score, job))
                return;
        const uint64_t policy = once_policy();
        const int group = a.score.group, n_blocks = (job.n_nodes + CODE_ROWS - 1) / CODE_ROWS;
        Turned<D> turned;
        CodedRows<Shape<D, BITS>::LOADS, Q> codes[EACH];
        if (warp < Q)
                turned.load(a.score, job, lane);
        if (threadIdx.x < DCI_GPU_MAX_GROUP)
                s.range[threadIdx.x] = make_uint2(~0u, 0);
        s.table.fill(a.score.summaries, job, 0, min((job.n_nodes + DCI_GPU_CHUNK - 1) / DCI_GPU_CHUNK, SCORE_TABLE));
        __syncthreads();
        const auto load = [&](CodedRows<Shape<D, BITS>::LOADS, Q> &rows, int block) {
                rows.load(node_part(a, job, s.table, block * CODE_ROWS), block_bytes, block % CODE_BLOCKS,
                          Shape<D, BITS>::LINES, g, c, policy);
        };
#pragma unroll
        for (int e = 0; e < EACH; e++)
                if (warp + e * SCORE_WARPS < n_blocks)
                        load(codes[e], warp + e * SCORE_WARPS);
        int n_pages[early_nodes];
#pragma unroll
        for (int j = 0; j < early_nodes; j++) {
                const int node = (int)threadIdx.x + j * SCORE_THREADS;
                n_pages[j] = node < job.n_nodes ? pages_of(a, job, s.table, block_bytes, node) : 0;
        }
        ptx_take_turn();
        if (warp < Q)
                turned.raw.load(a.score, job.list, warp, lane, D / 32);
        if (warp < Q)
                turned.put(a.score, s.queries, warp, BITS, lane);
        __syncthreads();
        Operands<D, BITS, Q> queries;
        queries.take(s.queries, lane);
        float *staged = reinterpret_cast<float *>(dynamic),
              *scores = a.score.scores + (uint64_t)job.list * a.score.max_groups * group;
        const bool fits = job.n_nodes * group <= room;
        ScoreRanges<Q> ranges;
        ranges.begin();
#pragma unroll 1
        for (int first = warp; first < n_blocks; first += EACH * SCORE_WARPS)
#pragma unroll
                for (int e = 0; e < EACH; e++) {
                        const int block = first + e * SCORE_WARPS, next = block + EACH * SCORE_WARPS;
                        if (block >= n_blocks)
                                break;
                        CodedSums<Q> sums;
                        float scale[4];
#pragma unroll
                        for (int i = 0; i < (Q == 4 ? 2 : 4); i++)
                                scale[i] = codes[e].scale(i);
                        queries.multiply(codes[e].words, sums);
                        if (next < n_blocks)
                                load(codes[e], next);
                        put_nodes<D, Q>(s.queries, sums, scale, block, lane, job.n_nodes, group, fits ? staged : scores,
                                        fits ? 1 : group, fits ? job.n_nodes : 1, ranges);
                }
        ranges.leave(s.range, group);
        __syncthreads();
        if (fits)
                open_best(a, job, s.table, s.rank, block_bytes, Ranked<true>{staged, nullptr, job.n_nodes, group},
                          s.range, n_pages);
        else
                open_many(a, job, s.table, s.rank, block_bytes, scores);
}

#endif
