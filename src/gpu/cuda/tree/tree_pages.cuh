/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The kernel of pages (cuda/tree/tree.cuh). */
#ifndef DCI_GPU_CUDA_TREE_TREE_PAGES_CUH
#define DCI_GPU_CUDA_TREE_TREE_PAGES_CUH

#include "gpu/cuda/tree/tree_nodes.cuh"

#define TREE_BLOCK (1 << 24) /* in a list's count: one block that is done; the rest are opened pages */

/* A unit of rows that has opened pages: where their scores go, and which they are. */
struct OpenUnit {
        int unit, at;
        uint32_t pages;
};

template <int D, int Q> struct PagesShared {
        ScoreTable table;
        union {
                struct {
                        CodedQueries<D, Q> queries;
                        OpenUnit units[SCORE_THREADS];
                        uint32_t n; /* units, and their pages 2^16 times */
                        int base;
                } scan;
                RankShared rank;
        };
        int before; /* of the list's count, when the block arrives */
};

template <int D, int Q>
static __device__ __forceinline__ const unsigned char *part_of(const dci_gpu_tree_args &a, const TreeJob &job,
                                                               const PagesShared<D, Q> &s, int chunk)
{
        return chunk < SCORE_TABLE ? s.table.at[chunk] : page_part(a, job, chunk);
}

/* Rows of a unit; its pages. */
static __device__ __forceinline__ int unit_rows(const dci_gpu_tree_args &a)
{
        return max(CODE_ROWS, 1 << a.page_shift);
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

/* Which pages of a unit are in opened nodes, as bits. owners: of the unit's pages. */
static __device__ __forceinline__ uint32_t opened_pages(const dci_gpu_tree_args &a, const TreeJob &job,
                                                        const int (&owners)[4])
{
        const uint32_t *opened = a.opened + (uint64_t)job.list * (a.score.max_groups / 32);
        uint32_t words[4], pages = 0;
#pragma unroll
        for (int p = 0; p < 4; p++)
                words[p] = owners[p] >= 0 ? __ldcg(opened + owners[p] / 32) : 0;
#pragma unroll
        for (int p = 0; p < 4; p++)
                pages |= (words[p] >> (owners[p] & 31) & 1) << p;
        return pages;
}

/* Units with opened pages in a row, in any order; s.scan.n counts them, from 0 on. */
template <int D, int Q>
static __device__ __forceinline__ void list_units(PagesShared<D, Q> &s, int unit, uint32_t pages)
{
        const int lane = threadIdx.x & 31, n = __popc(pages);
        const uint32_t some = __ballot_sync(SCORE_ALL, n > 0), below = (1u << lane) - 1;
        if (some == 0)
                return;
        uint32_t before = 0, total = 0, first = 0;
#pragma unroll
        for (int bit = 0; bit < 3; bit++) {
                const uint32_t have = __ballot_sync(SCORE_ALL, n >> bit & 1);
                before += (uint32_t)__popc(have & below) << bit;
                total += (uint32_t)__popc(have) << bit;
        }
        if (lane == 0)
                first = atomicAdd(&s.scan.n, (uint32_t)__popc(some) | total << 16);
        first = __shfl_sync(SCORE_ALL, first, 0);
        if (n > 0)
                s.scan.units[(first & 0xffff) + (uint32_t)__popc(some & below)] = {unit, (int)((first >> 16) + before),
                                                                                   pages};
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

/* Scores of the opened pages of a block's units, of which it takes one for each thread at a time. s.scan.n is 0. */
template <int D, int BITS, int Q>
static __device__ __forceinline__ void score_units(const dci_gpu_tree_args &a, const TreeJob &job, PagesShared<D, Q> &s,
                                                   const Operands<D, BITS, Q> &queries, int (&owners)[4])
{
        constexpr int block_bytes = Shape<D, BITS>::BLOCK_BYTES;
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, c = lane & 3;
        const int per = unit_rows(a) >> a.page_shift, n_units = (job.n_pages + per - 1) / per;
        const int n_blocks = unit_rows(a) / CODE_ROWS, step = (int)gridDim.x * SCORE_THREADS;
        const int lane_page = n_blocks > 1 ? 0 : 4 * g >> a.page_shift; /* of its rows */
        const uint64_t policy = once_policy();
        int unit = (int)(threadIdx.x * gridDim.x + blockIdx.x);
#pragma unroll 1
        for (int base = 0; base < n_units; base += step, unit += step) {
                if (base > 0) {
                        owners_of<D, Q>(a, job, s, block_bytes, unit, owners);
                        __syncthreads(); /* the last units are done */
                        if (threadIdx.x == 0)
                                s.scan.n = 0;
                        __syncthreads();
                }
                list_units<D, Q>(s, unit, unit < n_units ? opened_pages(a, job, owners) : 0);
                __syncthreads();
                const int n = (int)(s.scan.n & 0xffff), n_pages = (int)(s.scan.n >> 16);
                CodedRows<Shape<D, BITS>::LOADS, Q> codes = {};
                BestScores<Q> best;
                int4 ids = make_int4(INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX);
                /* Lanes whose rows are of a page that is not opened load nothing: what they compute is not written. */
                const auto load = [&](int at, int b) {
                        const OpenUnit &open = s.scan.units[at];
                        if ((open.pages >> lane_page & 1) == 0)
                                return;
                        const int block = open.unit * n_blocks + b, in_chunk = block % CODE_BLOCKS;
                        const unsigned char *part = part_of<D, Q>(a, job, s, block / CODE_BLOCKS);
                        codes.load(part + DCI_GPU_TREE_CODES, block_bytes, in_chunk, Shape<D, BITS>::LINES, g, c,
                                   policy);
                        const uint4 raw = load_once(part + (in_chunk * CODE_ROWS + 4 * g) * 4, policy);
                        ids = make_int4((int)raw.x, (int)raw.y, (int)raw.z, (int)raw.w);
                };
                clear_best<Q>(best);
                if (warp < n)
                        load(warp, 0);
                if (threadIdx.x == 0 && n > 0)
                        s.scan.base = atomicAdd(a.arrived + job.list, n_pages) & (TREE_BLOCK - 1);
                __syncthreads(); /* codes are on their way */
#pragma unroll 1
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
#pragma unroll 1
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

/* Scores of n rows to shared memory. */
static __device__ __noinline__ void stage_others(const float *from, int n, int group, float *to)
{
#pragma unroll 4
        for (int i = threadIdx.x; i < n * group; i += SCORE_THREADS)
                to[i % group * n + i / group] = __ldcg(from + i);
}

/* Scores and numbers of pages to shared memory; of four heads also the sets' best (bound_limits), where zeros are. Reads
 * do not wait for each other. */
static __device__ __forceinline__ Ranked<true> stage_pages(const Ranked<false> &pages, float *to, RankShared &s, int k)
{
        constexpr int EACH = 4;
        const int n = pages.n;
        const bool fours = pages.group == 4; /* aligned to 16 bytes (args/tree.h) */
        int32_t *numbers = reinterpret_cast<int32_t *>(to + n * pages.group);
        uint32_t best[4] = {0, 0, 0, 0};
#pragma unroll 1
        for (int base = threadIdx.x; base < n; base += EACH * SCORE_THREADS) {
                float4 x[EACH];
                int number[EACH];
#pragma unroll
                for (int j = 0; j < EACH; j++) {
                        const int i = base + j * SCORE_THREADS;
                        if (i < n)
                                number[j] = __ldcg(pages.numbers + i);
                        if (i < n && fours)
                                x[j] = __ldcg(reinterpret_cast<const float4 *>(pages.x) + i);
                }
#pragma unroll
                for (int j = 0; j < EACH; j++) {
                        const int i = base + j * SCORE_THREADS;
                        if (i < n)
                                numbers[i] = number[j];
                        if (i < n && fours) {
                                to[i] = x[j].x;
                                to[n + i] = x[j].y;
                                to[2 * n + i] = x[j].z;
                                to[3 * n + i] = x[j].w;
                        }
                        if (i < n && fours && number[j] >= 0) {
                                best[0] = max(best[0], ordered(x[j].x));
                                best[1] = max(best[1], ordered(x[j].y));
                                best[2] = max(best[2], ordered(x[j].z));
                                best[3] = max(best[3], ordered(x[j].w));
                        }
                }
        }
#pragma unroll
        for (int q = 0; q < 4; q++)
                if (best[q] > 0)
                        atomicMax(&s.bins[q][(int)threadIdx.x & (sets_of(k) - 1)], best[q]);
        if (!fours)
                stage_others(pages.x, n, pages.group, to);
        __syncthreads();
        return {to, numbers, n, pages.group};
}

/* Long lists, and pages that shared memory has no room for. */
static __device__ __noinline__ void sort_many(const Ranked<false> &pages, RankShared &s, const ListRooms &r, int k)
{
        sort_pages(pages, s, r, k, k <= bounded_pages, false);
}

template <int D, int Q>
static __device__ __forceinline__ void write_list(const dci_gpu_tree_args &a, const TreeJob &job, PagesShared<D, Q> &s,
                                                  unsigned char *dynamic, int room, int n_opened)
{
        const ListRooms r = list_rooms(dynamic, a, room);
        const int group = a.score.group;
        const uint64_t first = (uint64_t)job.list * a.max_pages;
        const Ranked<false> pages = {a.page_scores + first * group, a.page_numbers + first, n_opened, group};
        if (n_opened * (group + 1) <= room && job.k <= bounded_pages)
                sort_pages(stage_pages(pages, r.scores, s.rank, job.k), s.rank, r, job.k, true, group == 4);
        else
                sort_many(pages, s.rank, r, job.k);
        order_pages(r, job.k, group);
        const int n_pages = take_pages(s.rank, r, job.k, group), n = take_tokens<D, Q>(a, job, s, r, n_pages);
        put_tokens(a.select, s.rank.select, r.bits, r.tokens, n, job.n_candidates, job.row, job.head, job.list);
}

/* Whether the list has pages to score; the same for all its blocks. If not, its first block says so. */
static __device__ __forceinline__ bool settle_tree(const dci_gpu_tree_args &a, const TreeJob &job)
{
        if (threadIdx.x == 0 && blockIdx.x == 0 && job.head == 0 && a.select.selection.lists == nullptr)
                put_header(a.select, blockIdx.z, job.view, job.n_tokens);
        if (a.score.due != nullptr && __ldca(a.score.due + job.list) != a.score.due_is)
                return false;
        if (!job.live && blockIdx.x == 0)
                put_nothing(a.select, job.list, job.row, job.head);
        return job.live;
}

template <int D, int BITS, int Q>
static __global__ void __launch_bounds__(SCORE_THREADS, at_once<D, BITS, Q>)
        pages_kernel(const __grid_constant__ dci_gpu_tree_args a, const __grid_constant__ int room)
{
        PTX_DYNAMIC_SHARED(16, unsigned char, dynamic);
        __shared__ __align__(16) unsigned char memory[sizeof(PagesShared<D, Q>)];
        auto &s = *reinterpret_cast<PagesShared<D, Q> *>(memory);
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        const TreeJob job = tree_job_of(a);
        Turned<D> turned;
        Operands<D, BITS, Q> queries;
        int owners[4] = {-1, -1, -1, -1};
        if (job.live) {
                const int n_chunks = ((job.n_pages << a.page_shift) + DCI_GPU_CHUNK - 1) / DCI_GPU_CHUNK;
                s.table.fill(a.pages, job, 0, min(n_chunks, SCORE_TABLE));
                /* Queries, too, were not written by the last kernel, which was that of nodes. */
                if (warp < Q) {
                        turned.load(a.score, job, lane);
                        turned.raw.load(a.score, job.list, warp, lane, D / 32);
                        turned.put(a.score, s.scan.queries, warp, BITS, lane);
                }
                if (threadIdx.x == 0)
                        s.scan.n = 0;
                __syncthreads();
                owners_of<D, Q>(a, job, s, Shape<D, BITS>::BLOCK_BYTES, (int)(threadIdx.x * gridDim.x + blockIdx.x),
                                owners);
                queries.take(s.scan.queries, lane);
        }
        ptx_take_turn();
        if (!settle_tree(a, job))
                return;
        score_units<D, BITS, Q>(a, job, s, queries, owners);
        __syncthreads();
        static_assert(TREE_HEADS * TREE_LANES == SCORE_THREADS, "a set for each thread");
        s.rank.bins[threadIdx.x / TREE_LANES][threadIdx.x % TREE_LANES] = 0;
        if (threadIdx.x == 0)
                s.before = ptx_arrive(a.arrived + job.list, TREE_BLOCK);
        __syncthreads();
        if (s.before / TREE_BLOCK != (int)gridDim.x - 1)
                return;
        write_list<D, Q>(a, job, s, dynamic, room, s.before & (TREE_BLOCK - 1));
        if (threadIdx.x == 0)
                a.arrived[job.list] = 0;
}

#endif
