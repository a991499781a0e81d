/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Plans by trees (args/tree.h), in two kernels of some blocks for each list.
 *
 *  nodes   scores the means of cells by tensor cores, as cuda/score/score_codes.cuh; the last block to arrive marks the
 *          nodes that query heads open, as bits
 *  pages   blocks take units of 32 rows (64, where pages are that long) in turns, and score those of opened nodes; the
 *          last block ranks the pages of each head and interleaves them
 *
 * What takes time is the last block's work, a dozen steps that wait for each other, and not scores. What the kernel
 * before does not write is read before a kernel's turn: codes of nodes, the nodes of pages. */
#ifndef DCI_GPU_CUDA_TREE_TREE_CUH
#define DCI_GPU_CUDA_TREE_TREE_CUH

#include "gpu/cuda/tree/tree.h"
#include "gpu/cuda/tree/tree_rank.cuh"

#define TREE_WORDS 1024   /* of opened nodes that are in shared memory */
#define TREE_STAGED 16384 /* scores of nodes that the last block keeps there, at most */

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
static __device__ __forceinline__ const unsigned char *rows_at(const dci_gpu_tree_args &a, const TreeJob &job,
                                                               int chunk)
{
        const dci_gpu_chunks &chunks = a.pages;
        const int number = __ldcg(chunks.numbers + job.row * chunks.stride + chunk);
        const unsigned long long piece =
                __ldcg(reinterpret_cast<const unsigned long long *>(chunks.pieces) + (number >> chunks.piece_shift));
        return reinterpret_cast<const unsigned char *>(piece) + chunks.layer_at +
               (uint64_t)(number & ((1 << chunks.piece_shift) - 1)) * chunks.chunk_bytes +
               (uint64_t)job.head * chunks.head_bytes;
}

/* Whether a page has a candidate. */
static __device__ __noinline__ bool has_candidate(const dci_gpu_tree_args &a, const TreeJob &job, int page)
{
        const int first = page << a.page_shift;
        const int32_t *ids =
                reinterpret_cast<const int32_t *>(rows_at(a, job, first / DCI_GPU_CHUNK)) + first % DCI_GPU_CHUNK;
        bool some = false;
        for (int i = 0; i < 1 << a.page_shift; i++)
                some |= __ldcg(ids + i) < job.n_candidates;
        return some;
}

/* --- nodes -------------------------------------------------------------------------------------------------------- */

template <int D, int Q> struct NodesShared {
        union {
                struct {
                        const unsigned char *table[SCORE_TABLE];
                        CodedQueries<D, Q> queries;
                } scan;
                RankShared rank;
        };
        int last;
        uint32_t held;
};

/* Marks the nodes that reach the limits; returns how many pages they have. By the whole block. */
static __device__ __forceinline__ uint32_t mark_nodes(const dci_gpu_tree_args &a, const TreeJob &job, const Ranked &r,
                                                      const RankShared &s, int block_bytes, bool all)
{
        uint32_t *opened = a.opened + (uint64_t)job.list * (a.score.max_groups / 32);
        uint32_t held = 0;
        for (int base = 32 * (threadIdx.x >> 5); base < job.n_nodes; base += SCORE_THREADS) {
                const int node = base + (threadIdx.x & 31);
                bool is_opened = all && node < job.n_nodes;
                for (int q = 0; q < r.group && node < job.n_nodes && !all; q++)
                        is_opened |= ordered(r.score_of(node, q)) >= (uint32_t)(s.limits[q] >> 32);
                const uint32_t word = __ballot_sync(SCORE_ALL, is_opened);
                if ((threadIdx.x & 31) == 0)
                        opened[base / 32] = word;
                if (is_opened) {
                        const unsigned char *part = chunk_at(a.score, job, node / DCI_GPU_CHUNK);
                        held += (uint32_t)__ldcg(
                                reinterpret_cast<const int32_t *>(part + DCI_GPU_TREE_NODE_PAGES(block_bytes)) +
                                node % DCI_GPU_CHUNK);
                }
        }
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
                const int32_t *owners = reinterpret_cast<const int32_t *>(rows_at(a, job, page / in_chunk) +
                                                                          DCI_GPU_TREE_OWNERS(block_bytes));
                const int owner = __ldcg(owners + page % in_chunk);
                if (owner >= 0 && (__ldcg(opened + owner / 32) >> (owner % 32) & 1) != 0)
                        held += has_candidate(a, job, page);
        }
        return held;
}

template <int D, int BITS, int Q>
static __device__ __forceinline__ void open_nodes(const dci_gpu_tree_args &a, const TreeJob &job, NodesShared<D, Q> &s,
                                                  float *staged, int room)
{
        constexpr int block_bytes = Shape<D, BITS>::BLOCK_BYTES;
        const int group = a.score.group, n = job.n_nodes * group;
        const float *scores = a.score.scores + (uint64_t)job.list * a.score.max_groups * group;
        const Ranked r = {n <= room ? staged : scores, nullptr, job.n_nodes, group, n <= room};
        for (int i = threadIdx.x; i < n && n <= room; i += SCORE_THREADS)
                staged[i] = __ldcg(scores + i);
        __syncthreads();
        int wanted = max((int)(DCI_GPU_TREE_SHARE * (double)job.n_candidates), DCI_GPU_TREE_FEWEST);
        if (a.field_of_view > 0)
                wanted = a.field_of_view;
        for (;; wanted *= 2) {
                const bool all = wanted >= job.n_nodes;
                if (!all)
                        find_limits(r, s.rank, job.n_nodes, wanted);
                uint32_t held = mark_nodes(a, job, r, s.rank, block_bytes, all), total;
                if (job.n_candidates != job.n_grouped)
                        held = count_pages(a, job, block_bytes);
                block_prefix(held, s.rank.select.sums, &total);
                if (all || (int)total >= job.k)
                        return;
                __syncthreads();
        }
}

template <int D, int BITS, int Q>
static __global__ void __launch_bounds__(SCORE_THREADS, at_once<D, BITS, Q>)
        nodes_kernel(const __grid_constant__ dci_gpu_tree_args a, const __grid_constant__ int room)
{
        PTX_DYNAMIC_SHARED(16, unsigned char, dynamic);
        __shared__ __align__(16) unsigned char memory[sizeof(NodesShared<D, Q>)];
        auto &s = *reinterpret_cast<NodesShared<D, Q> *>(memory);
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, c = lane & 3;
        const TreeJob job = tree_job_of(a);
        if (!score_begins(a.score, job))
                return;
        const uint64_t policy = once_policy();
        const ScoreRange range = score_range_of((job.n_nodes + CODE_ROWS - 1) / CODE_ROWS, blockIdx.x, a.score.n_parts);
        Turned<D> turned;
        CodedRows<Shape<D, BITS>::LOADS, Q> codes;
        if (warp < Q)
                turned.load(a.score, job, lane);
        const int n_chunks = (job.n_nodes + DCI_GPU_CHUNK - 1) / DCI_GPU_CHUNK;
        for (int i = threadIdx.x; i < min(n_chunks, SCORE_TABLE); i += SCORE_THREADS)
                s.scan.table[i] = chunk_at(a.score, job, i);
        __syncthreads();
        const auto load = [&](int block) {
                const int chunk = block / CODE_BLOCKS;
                const unsigned char *base = chunk < SCORE_TABLE ? s.scan.table[chunk] : chunk_at(a.score, job, chunk);
                codes.load(base, Shape<D, BITS>::BLOCK_BYTES, block % CODE_BLOCKS, Shape<D, BITS>::LINES, g, c, policy);
        };
        int block = range.first + warp;
        if (block < range.last)
                load(block);
        ptx_take_turn();
        if (warp < Q)
                turned.raw.load(a.score, job.list, warp, lane, D / 32);
        if (warp < Q)
                turned.put(a.score, s.scan.queries, warp, BITS, lane);
        __syncthreads();
        Operands<D, BITS, Q> queries;
        Scores<Q> scores;
        queries.take(s.scan.queries, lane);
        scores.begin(a.score, job, job.n_nodes, c);
        for (; block < range.last; block += SCORE_WARPS) {
                CodedSums<Q> sums;
                float scale[4];
#pragma unroll
                for (int i = 0; i < (Q == 4 ? 2 : 4); i++)
                        scale[i] = codes.scale(i);
                queries.multiply(codes.words, sums);
                if (block + SCORE_WARPS < range.last)
                        load(block + SCORE_WARPS);
                finish_codes<D, Q>(a.score, s.scan.queries, sums, scale, block, lane, scores);
        }
        /* The barrier orders the block's writes before the one thread that says so to the device. */
        __syncthreads();
        int32_t *arrived = a.arrived + 4 * (uint64_t)job.list;
        if (threadIdx.x == 0)
                s.last = ptx_arrive(arrived) == a.score.n_parts - 1;
        __syncthreads();
        if (s.last == 0)
                return;
        open_nodes<D, BITS, Q>(a, job, s, reinterpret_cast<float *>(dynamic), room);
        if (threadIdx.x == 0)
                arrived[0] = 0;
}

/* --- pages -------------------------------------------------------------------------------------------------------- */

/* A unit of rows that has opened pages: where their scores go, and which they are. */
struct OpenUnit {
        int unit, at;
        uint32_t pages;
};

template <int D, int Q> struct PagesShared {
        const unsigned char *table[SCORE_TABLE];
        union {
                struct {
                        CodedQueries<D, Q> queries;
                        uint32_t opened[TREE_WORDS];
                        OpenUnit units[SCORE_THREADS];
                        uint32_t n_units, n_pages;
                        int base;
                } scan;
                RankShared rank;
        };
        int last;
};

template <int D, int Q>
static __device__ __forceinline__ const unsigned char *part_of(const dci_gpu_tree_args &a, const TreeJob &job,
                                                               const PagesShared<D, Q> &s, int chunk)
{
        return chunk < SCORE_TABLE ? s.table[chunk] : rows_at(a, job, chunk);
}

/* Rows of a unit; its pages. */
static __device__ __forceinline__ int unit_rows(const dci_gpu_tree_args &a)
{
        return max(CODE_ROWS, 1 << a.page_shift);
}

/* Which pages of a unit are in opened nodes, as bits. owners: of the unit's pages. */
template <int D, int Q>
static __device__ __forceinline__ uint32_t opened_pages(const dci_gpu_tree_args &a, const TreeJob &job,
                                                        const PagesShared<D, Q> &s, const int (&owners)[4])
{
        const uint32_t *words = a.opened + (uint64_t)job.list * (a.score.max_groups / 32);
        uint32_t pages = 0;
#pragma unroll
        for (int p = 0; p < 4; p++) {
                const int owner = owners[p];
                if (owner < 0)
                        continue;
                const uint32_t word = owner < 32 * TREE_WORDS ? s.scan.opened[owner / 32] : __ldcg(words + owner / 32);
                pages |= (word >> (owner % 32) & 1) << p;
        }
        return pages;
}

/* The nodes of a unit's pages; -1: there is none. */
template <int D, int Q>
static __device__ __forceinline__ void owners_of(const dci_gpu_tree_args &a, const TreeJob &job,
                                                 const PagesShared<D, Q> &s, int block_bytes, int unit,
                                                 int (&owners)[4])
{
        const int n = unit_rows(a) >> a.page_shift, in_chunk = DCI_GPU_CHUNK >> a.page_shift, first = unit * n;
#pragma unroll
        for (int p = 0; p < 4; p++) {
                const int page = first + p;
                owners[p] = -1;
                if (p < n && page < job.n_pages)
                        owners[p] = __ldcg(reinterpret_cast<const int32_t *>(part_of<D, Q>(a, job, s, page / in_chunk) +
                                                                             DCI_GPU_TREE_OWNERS(block_bytes)) +
                                           page % in_chunk);
        }
}

/* A lane's best scores of a block's rows, by query: [tile][query of the pair]. */
template <int Q> using BestScores = float[Q == 16 ? 2 : 1][2];

template <int Q> static __device__ __forceinline__ void clear_best(BestScores<Q> &best)
{
#pragma unroll
        for (int t = 0; t < (Q == 16 ? 2 : 1); t++)
                best[t][0] = best[t][1] = -INFINITY;
}

template <int D, int Q>
static __device__ __forceinline__ void keep_best(const TreeJob &job, const CodedQueries<D, Q> &coded,
                                                 const CodedSums<Q> &sums, const float (&scale)[4], const int4 &ids,
                                                 int lane, BestScores<Q> &best)
{
        constexpr int R = Q == 4 ? 2 : 4;
        const int c = lane & 3;
        const int own[4] = {Q == 4 && c >= 2 ? ids.z : ids.x, Q == 4 && c >= 2 ? ids.w : ids.y, ids.z, ids.w};
#pragma unroll
        for (int t = 0; t < (Q == 16 ? 2 : 1); t++) {
                const int q = Q == 4 ? 2 * (c & 1) : 8 * t + 2 * c;
                const int2 offset = *reinterpret_cast<const int2 *>(coded.offset + q);
                const float2 half = *reinterpret_cast<const float2 *>(coded.half + q);
#pragma unroll
                for (int i = 0; i < R; i++) {
                        if (own[i] >= job.n_candidates)
                                continue;
                        const int sum[2] = {sum_at<Q>(sums, t, i, 0, c), sum_at<Q>(sums, t, i, 1, c)};
                        best[t][0] = fmaxf(best[t][0], score_of(sum[0], offset.x, half.x, 0.0f, scale[i]));
                        best[t][1] = fmaxf(best[t][1], score_of(sum[1], offset.y, half.y, 0.0f, scale[i]));
                }
        }
}

/* The best of a page's rows, of all lanes that have some; lanes that have a page's first rows write. */
template <int Q>
static __device__ __forceinline__ void write_pages(const dci_gpu_tree_args &a, const TreeJob &job, const OpenUnit &unit,
                                                   int base, BestScores<Q> &best, int lane)
{
        const int rows = 1 << a.page_shift, n = unit_rows(a) >> a.page_shift, g = lane >> 2, c = lane & 3;
#pragma unroll
        for (int t = 0; t < (Q == 16 ? 2 : 1); t++)
#pragma unroll
                for (int j = 0; j < 2; j++) {
                        float x = best[t][j];
                        if (Q == 4)
                                x = fmaxf(x, __shfl_xor_sync(SCORE_ALL, x, 2));
                        x = fmaxf(x, __shfl_xor_sync(SCORE_ALL, x, 4)); /* of 8 rows */
                        if (rows > 8)
                                x = fmaxf(x, __shfl_xor_sync(SCORE_ALL, x, 8));
                        if (rows > 16)
                                x = fmaxf(x, __shfl_xor_sync(SCORE_ALL, x, 16));
                        best[t][j] = x;
                }
        const int page = 4 * g / min(rows, CODE_ROWS);
        if (page >= n || 4 * g % min(rows, CODE_ROWS) != 0 || (unit.pages >> page & 1) == 0)
                return;
        const uint64_t at = (uint64_t)job.list * a.max_pages + (uint64_t)(base + unit.at) +
                            (uint64_t)__popc(unit.pages & ((1u << page) - 1));
        float *out = a.page_scores + at * a.score.group;
#pragma unroll
        for (int t = 0; t < (Q == 16 ? 2 : 1); t++)
#pragma unroll
                for (int j = 0; j < 2; j++) {
                        const int q = (Q == 4 ? 2 * (c & 1) : 8 * t + 2 * c) + j;
                        if (q < a.score.group && (Q != 4 || c < 2))
                                out[q] = best[t][j];
                }
        if (c == 0)
                a.page_numbers[at] = best[0][0] == -INFINITY ? -1 : unit.unit * n + page;
}

/* Scores of the opened pages of a block's units, of which it takes one for each thread at a time. */
template <int D, int BITS, int Q>
static __device__ __forceinline__ void score_units(const dci_gpu_tree_args &a, const TreeJob &job, PagesShared<D, Q> &s,
                                                   const Operands<D, BITS, Q> &queries, int (&owners)[4])
{
        constexpr int block_bytes = Shape<D, BITS>::BLOCK_BYTES;
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, c = lane & 3;
        const int per = unit_rows(a) >> a.page_shift, n_units = (job.n_pages + per - 1) / per;
        const int n_blocks = unit_rows(a) / CODE_ROWS, step = (int)gridDim.x * SCORE_THREADS;
        const uint64_t policy = once_policy();
        int unit = (int)(threadIdx.x * gridDim.x + blockIdx.x);
        for (int base = 0; base < n_units; base += step, unit += step) {
                if (base > 0)
                        owners_of<D, Q>(a, job, s, block_bytes, unit, owners);
                const uint32_t pages = unit < n_units ? opened_pages<D, Q>(a, job, s, owners) : 0;
                __syncthreads(); /* the last units are done */
                if (threadIdx.x == 0)
                        s.scan.n_units = s.scan.n_pages = 0;
                __syncthreads();
                if (pages != 0) {
                        const int at = (int)atomicAdd(&s.scan.n_pages, (uint32_t)__popc(pages));
                        s.scan.units[atomicAdd(&s.scan.n_units, 1u)] = {unit, at, pages};
                }
                __syncthreads();
                if (threadIdx.x == 0 && s.scan.n_pages > 0)
                        s.scan.base = atomicAdd(a.arrived + 4 * (uint64_t)job.list + 2, (int)s.scan.n_pages);
                __syncthreads();
                const int n = (int)s.scan.n_units;
                CodedRows<Shape<D, BITS>::LOADS, Q> codes;
                BestScores<Q> best;
                int4 ids;
                const auto load = [&](int at, int b) {
                        const int block = s.scan.units[at].unit * n_blocks + b, in_chunk = block % CODE_BLOCKS;
                        const unsigned char *part = part_of<D, Q>(a, job, s, block / CODE_BLOCKS);
                        codes.load(part + DCI_GPU_TREE_CODES, block_bytes, in_chunk, Shape<D, BITS>::LINES, g, c,
                                   policy);
                        const uint4 raw = load_once(part + (in_chunk * CODE_ROWS + 4 * g) * 4, policy);
                        ids = make_int4((int)raw.x, (int)raw.y, (int)raw.z, (int)raw.w);
                };
                clear_best<Q>(best);
                if (warp < n)
                        load(warp, 0);
                for (int i = warp, b = 0; i < n;) {
                        const int next = b + 1 < n_blocks ? i : i + SCORE_WARPS, next_b = b + 1 < n_blocks ? b + 1 : 0;
                        const int4 own = ids;
                        CodedSums<Q> sums;
                        float scale[4];
#pragma unroll
                        for (int j = 0; j < (Q == 4 ? 2 : 4); j++)
                                scale[j] = codes.scale(j);
                        queries.multiply(codes.words, sums);
                        if (next < n)
                                load(next, next_b);
                        keep_best<D, Q>(job, s.scan.queries, sums, scale, own, lane, best);
                        if (next_b == 0) {
                                write_pages<Q>(a, job, s.scan.units[i], s.scan.base, best, lane);
                                clear_best<Q>(best);
                        }
                        i = next;
                        b = next_b;
                }
        }
}

/* --- lists -------------------------------------------------------------------------------------------------------- */

/* Their candidates; returns how many. */
template <int D, int Q>
static __device__ __forceinline__ int take_tokens(const dci_gpu_tree_args &a, const TreeJob &job, PagesShared<D, Q> &s,
                                                  const ListRooms &r, int n_pages)
{
        uint32_t n = 0, total;
        for (int base = 0; base < n_pages << a.page_shift; base += SCORE_THREADS) {
                const int i = base + (int)threadIdx.x;
                int id = INT32_MAX;
                if (i < n_pages << a.page_shift) {
                        const int row = (r.taken[i >> a.page_shift] << a.page_shift) + i % (1 << a.page_shift);
                        id = __ldcg(reinterpret_cast<const int32_t *>(part_of<D, Q>(a, job, s, row / DCI_GPU_CHUNK)) +
                                    row % DCI_GPU_CHUNK);
                }
                const bool counts = id < job.n_candidates;
                const uint32_t at = n + block_prefix(counts, s.rank.select.sums, &total);
                if (counts)
                        r.tokens[at] = id;
                n += total;
        }
        __syncthreads();
        return (int)n;
}

static __device__ __forceinline__ int32_t *cached(int32_t *first, const dci_gpu_selection_cache &kept, int row)
{
        return reinterpret_cast<int32_t *>(reinterpret_cast<unsigned char *>(first) + (uint64_t)row * kept.row_bytes);
}

/* A list that selects nothing; by one block. */
static __device__ __forceinline__ void write_nothing(const dci_gpu_tree_args &a, const TreeJob &job)
{
        const dci_gpu_selection_cache &kept = a.select.selection;
        if (threadIdx.x == 0)
                *(kept.lists != nullptr ? cached(kept.counts, kept, job.row) + job.head : a.select.counts + job.list) =
                        0;
}

template <int D, int Q>
static __device__ __forceinline__ void write_list(const dci_gpu_tree_args &a, const TreeJob &job, PagesShared<D, Q> &s,
                                                  unsigned char *dynamic)
{
        const int32_t *arrived = a.arrived + 4 * (uint64_t)job.list;
        const ListRooms r = list_rooms(dynamic, a);
        const dci_gpu_selection_cache &kept = a.select.selection;
        const int n_opened = __ldcg(arrived + 2), group = a.score.group;
        const uint64_t first = (uint64_t)job.list * a.max_pages;
        const Ranked pages = {a.page_scores + first * group, a.page_numbers + first, n_opened, group, false};
        int n_counting = 0;
        for (int i = threadIdx.x; i < n_opened; i += SCORE_THREADS)
                n_counting += pages.number_of(i) >= 0;
        uint32_t total;
        block_prefix((uint32_t)n_counting, s.rank.select.sums, &total);
        find_limits(pages, s.rank, (int)total, job.k);
        sort_pages(pages, s.rank, r, job.k);
        order_pages(r, job.k, group);
        const int n_pages = take_pages(s.rank, r, job.k, group), n = take_tokens<D, Q>(a, job, s, r, n_pages);
        if (kept.lists != nullptr) {
                int32_t *list = cached(kept.lists, kept, job.row) + (uint64_t)job.head * kept.room;
                for (int i = threadIdx.x; i < n; i += SCORE_THREADS)
                        list[i] = r.tokens[i];
                if (threadIdx.x == 0)
                        cached(kept.counts, kept, job.row)[job.head] = n;
                return;
        }
        const uint32_t count = put_in_order(s.rank.select, r.bits, r.tokens, n, job.n_candidates, a.score.sizes.sink,
                                            a.select.positions + (uint64_t)job.list * a.select.stride);
        if (threadIdx.x == 0)
                a.select.counts[job.list] = (int32_t)count;
}

/* Whether the list has pages to score; the same for all its blocks. If not, its first block says so. */
static __device__ __forceinline__ bool settle_tree(const dci_gpu_tree_args &a, const TreeJob &job)
{
        if (threadIdx.x == 0 && blockIdx.x == 0 && job.head == 0 && a.select.selection.lists == nullptr) {
                a.select.sink_end[blockIdx.z] = job.view.sparse ? a.score.sizes.sink : 0;
                a.select.recent_begin[blockIdx.z] = job.view.sparse ? a.score.sizes.sink + job.n_candidates : 0;
                a.select.after[blockIdx.z] = job.n_tokens;
        }
        if (a.score.due != nullptr && __ldca(a.score.due + job.list) != a.score.due_is)
                return false;
        if (!job.live && blockIdx.x == 0)
                write_nothing(a, job);
        return job.live;
}

template <int D, int BITS, int Q>
static __global__ void __launch_bounds__(SCORE_THREADS, at_once<D, BITS, Q>)
        pages_kernel(const __grid_constant__ dci_gpu_tree_args a)
{
        PTX_DYNAMIC_SHARED(16, unsigned char, dynamic);
        __shared__ __align__(16) unsigned char memory[sizeof(PagesShared<D, Q>)];
        auto &s = *reinterpret_cast<PagesShared<D, Q> *>(memory);
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        const TreeJob job = tree_job_of(a);
        Turned<D> turned;
        int owners[4] = {-1, -1, -1, -1};
        if (job.live) {
                const int n_chunks = ((job.n_pages << a.page_shift) + DCI_GPU_CHUNK - 1) / DCI_GPU_CHUNK;
                for (int i = threadIdx.x; i < min(n_chunks, SCORE_TABLE); i += SCORE_THREADS)
                        s.table[i] = rows_at(a, job, i);
                /* Queries, too, were not written by the last kernel, which was that of nodes. */
                if (warp < Q) {
                        turned.load(a.score, job, lane);
                        turned.raw.load(a.score, job.list, warp, lane, D / 32);
                        turned.put(a.score, s.scan.queries, warp, BITS, lane);
                }
                __syncthreads();
                owners_of<D, Q>(a, job, s, Shape<D, BITS>::BLOCK_BYTES, (int)(threadIdx.x * gridDim.x + blockIdx.x),
                                owners);
        }
        ptx_take_turn();
        if (!settle_tree(a, job))
                return;
        const uint32_t *words = a.opened + (uint64_t)job.list * (a.score.max_groups / 32);
        for (int i = threadIdx.x; i < min((job.n_nodes + 31) / 32, TREE_WORDS); i += SCORE_THREADS)
                s.scan.opened[i] = __ldcg(words + i);
        Operands<D, BITS, Q> queries;
        queries.take(s.scan.queries, lane);
        __syncthreads();
        score_units<D, BITS, Q>(a, job, s, queries, owners);
        __syncthreads();
        int32_t *arrived = a.arrived + 4 * (uint64_t)job.list;
        if (threadIdx.x == 0)
                s.last = ptx_arrive(arrived + 1) == (int)gridDim.x - 1;
        __syncthreads();
        if (s.last == 0)
                return;
        write_list<D, Q>(a, job, s, dynamic);
        __syncthreads();
        if (threadIdx.x == 0)
                arrived[1] = arrived[2] = 0;
}

/* --- launch ------------------------------------------------------------------------------------------------------- */

template <int D, int BITS, int Q>
static cudaError_t launch_search(const dci_gpu_tree_args &args, const GpuStream &stream)
{
        const int scores = args.score.max_groups * args.score.group, room = scores < TREE_STAGED ? scores : TREE_STAGED;
        static_assert(sizeof(PagesShared<D, Q>) <= TREE_OWN_BYTES && sizeof(NodesShared<D, Q>) <= TREE_OWN_BYTES,
                      "what a launch may need");
        const dim3 nodes((unsigned)args.score.n_parts, (unsigned)args.score.n_heads, (unsigned)args.score.n_sequences),
                pages((unsigned)args.page_parts, (unsigned)args.score.n_heads, (unsigned)args.score.n_sequences);
        const cudaError_t error = launch_shared(stream, nodes, SCORE_THREADS, (size_t)room * sizeof(float),
                                                nodes_kernel<D, BITS, Q>, args, room);
        return error != cudaSuccess ? error
                                    : launch_shared(stream, pages, SCORE_THREADS,
                                                    list_bytes(args.select.stride, args.page_shift, args.score.group),
                                                    pages_kernel<D, BITS, Q>, args);
}

template <int BITS> static cudaError_t launch_tree(const dci_gpu_tree_args &args, const GpuStream &stream)
{
        return with_dim(args.score.dim, cudaErrorInvalidValue, [&](auto dim) {
                constexpr int D = dim.value;
                return args.score.group <= 4   ? launch_search<D, BITS, 4>(args, stream)
                       : args.score.group <= 8 ? launch_search<D, BITS, 8>(args, stream)
                                               : launch_search<D, BITS, 16>(args, stream);
        });
}

#endif
