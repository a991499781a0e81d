/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* How a list of the selection (cuda/select/select_kernel.cuh) begins, and how the block that ends it writes it. */
#ifndef DCI_GPU_CUDA_SELECT_SELECT_LIST_CUH
#define DCI_GPU_CUDA_SELECT_SELECT_LIST_CUH

#include "gpu/cuda/select/select_order.cuh"

/* A block's rooms in shared memory, some in turns: candidates as bits; kept relevances; keys and selected
 * candidates. */
struct Rooms {
        uint32_t *bits, *kept;
        uint64_t *keys;
        int32_t *tokens;
};

/* Whether units are selected, by the scores of means. */
static __host__ __device__ inline bool is_of_units(const dci_gpu_select_args &args)
{
        return args.units.lists != nullptr && args.units.of_means != 0;
}

/* Scores of a group, or of a unit's groups. */
static __host__ __device__ inline int scores_of_row(const dci_gpu_select_args &args)
{
        return is_of_units(args) ? args.group << (4 - args.group_shift) : args.group;
}

/* Groups, or units, that a list's scores have room for. */
template <int HOW> static __host__ __device__ inline int rows_of_scores(const dci_gpu_select_args &args)
{
        static_assert(DCI_GPU_UNIT == 1 << 4, "of candidates");
        return HOW == by_unit ? args.max_groups >> (4 - args.group_shift) : args.max_groups;
}

/* What a list's kernel reads of its sequence before its turn: no kernel writes it. */
struct Asked {
        int n, n_grouped, n_clusters, n_scored, n_ordered, n_static;
};

template <int G, int HOW> static __device__ __forceinline__ Asked ask(const dci_gpu_select_args &args, Job &job)
{
        const int sequence = blockIdx.z;
        Asked asked;
        job.head = DCI_GPU_HEAD_OF(&args, blockIdx.y);
        job.list = sequence * gridDim.y + blockIdx.y;
        job.group = G > 0 ? G : scores_of_row(args);
        job.scores = args.scores + (uint64_t)job.list * args.max_groups * args.group;
        job.row = __ldcg(args.rows + sequence);
        asked.n = __ldcg(args.n_tokens + sequence);
        asked.n_grouped = __ldcg(args.n_grouped + sequence);
        asked.n_clusters =
                args.n_clusters != nullptr ? __ldcg(args.n_clusters + (uint64_t)job.row * args.n_heads + job.head) : 0;
        asked.n_ordered = args.order.n_ordered != nullptr ? __ldcg(args.order.n_ordered + sequence) : 0;
        asked.n_static = args.order.n_ordered != nullptr ? __ldcg(args.order.n_static + sequence) : 0;
        /* The kernel before the one before this one has written it. */
        asked.n_scored = HOW != by_unit && args.units.lists != nullptr ? __ldcg(args.units.n_scored + job.list) : 0;
        return asked;
}

/* The same of units. */
static __device__ __forceinline__ bool settle_units(const dci_gpu_select_args &args, Job &job, const Asked &asked)
{
        dci_gpu_view view;
        DCI_GPU_VIEW(view, args.sizes, asked.n, asked.n_grouped);
        job.n_candidates = view.n_candidates;
        job.room = job.n_ordered = job.n_static = 0;
        job.look = false;
        job.n_groups = (view.n_candidates + DCI_GPU_UNIT - 1) / DCI_GPU_UNIT;
        job.wanted = args.units.wanted + 1; /* the last one is for a list that would be too short */
        if (!view.sparse || (args.due != nullptr && __ldca(args.due + job.list) != args.due_is))
                return false;
        if (job.n_groups >= job.wanted)
                return true;
        if (blockIdx.x == 0 && threadIdx.x == 0)
                args.units.n_scored[job.list] = 0;
        return false;
}

/* Whether the list has a selection to make; the same for all its blocks. If not, its first block says so. */
template <int HOW>
static __device__ __forceinline__ bool settle(const dci_gpu_select_args &args, Job &job, const Asked &asked)
{
        if (HOW == by_unit)
                return settle_units(args, job, asked);
        const bool keeps = args.selection.lists != nullptr;
        dci_gpu_view view;
        DCI_GPU_VIEW(view, args.sizes, asked.n, asked.n_grouped);
        if (threadIdx.x == 0 && blockIdx.x == 0 && blockIdx.y == 0 && (!keeps || args.takes != 0))
                put_header(args, blockIdx.z, view, asked.n);
        job.n_candidates = view.n_candidates;
        job.room = args.none ? 0 : min(keeps ? args.selection.room : view.room, args.stride);
        job.n_ordered = asked.n_ordered;
        job.n_static = asked.n_static;
        job.look =
                args.n_clusters != nullptr ? view.n_candidates != asked.n_grouped : view.n_candidates < asked.n_ordered;
        const int per = 1 << args.group_shift;
        job.n_groups = min(args.n_clusters != nullptr ? asked.n_clusters
                           : asked.n_scored > 0       ? asked.n_scored
                                                      : max((view.n_candidates + per - 1) >> args.group_shift,
                                                            asked.n_ordered >> args.group_shift),
                           args.max_groups);
        if (args.due != nullptr && __ldca(args.due + job.list) != args.due_is)
                return false;
        if (!view.sparse || (job.room == 0 && args.members == nullptr) || job.n_groups <= 0) {
                if (blockIdx.x == 0)
                        put_nothing(args, job.list, job.row, blockIdx.y);
                return false;
        }
        /* Of pages one more, since the last one of all may be partial. Listed groups have one member at least, and so
         * have pages of an order after a truncation. */
        const bool pages = args.n_clusters == nullptr && per > 1 && !job.look;
        job.wanted = min(pages ? ((job.room + per - 1) >> args.group_shift) + 1 : job.room, job.n_groups);
        return true;
}

/* The wanted of n keys move to the front, in pieces: what is written has been read. */
static __device__ __forceinline__ void move_best(Shared &s, uint64_t *keys, uint32_t n, uint64_t threshold)
{
        __syncthreads();
        if (threadIdx.x == 0)
                s.count = 0;
        for (uint32_t base = 0; base < n; base += n_threads) {
                const uint32_t i = base + threadIdx.x;
                const uint64_t own = i < n ? keys[i] : 0;
                __syncthreads();
                const uint32_t at = take_place(own >= threshold, &s.count);
                if (at != ~0u)
                        keys[at] = own;
        }
        __syncthreads();
}

/* Members of ranked groups until the room is full; returns how many. A group's key becomes where its members begin, and
 * its number. */
static __device__ __forceinline__ int take_members(const dci_gpu_select_args &args, const Job &job, Shared &s,
                                                   const Rooms &r)
{
        uint32_t begin = 0, n_ranked = 0, total;
        for (int base = 0; base < job.wanted; base += n_threads) {
                const int i = base + (int)threadIdx.x;
                const int group = i < job.wanted ? group_of(r.keys[i]) : 0;
                int n = 0;
                if (i < job.wanted && args.n_clusters != nullptr)
                        n = listed_members(args, job, group);
                else if (i < job.wanted)
                        n = page_members(args, job, group);
                n = min(max(n, 0), job.room);
                const uint32_t at = min(begin + block_prefix((uint32_t)n, s.sums, &total), (uint32_t)job.room);
                begin = min(begin + total, (uint32_t)job.room);
                const bool is_taken = n > 0 && at < (uint32_t)job.room;
                if (i < job.wanted)
                        r.keys[i] = (uint64_t)at << 32 | (uint32_t)group;
                if (args.ranked == nullptr)
                        continue;
                const uint32_t rank = n_ranked + block_prefix(is_taken, s.sums, &total);
                if (is_taken)
                        args.ranked[(uint64_t)job.list * args.stride + rank] = group;
                n_ranked += total;
        }
        if (threadIdx.x == 0 && args.n_ranked != nullptr)
                args.n_ranked[job.list] = (int32_t)n_ranked;
        __syncthreads();
        for (int token = threadIdx.x; token < (int)begin; token += n_threads) {
                int low = 0, high = job.wanted; /* the last group that begins there or before */
                while (high - low > 1) {
                        const int middle = (low + high) >> 1;
                        if ((int)(r.keys[middle] >> 32) <= token)
                                low = middle;
                        else
                                high = middle;
                }
                const int group = (int)(uint32_t)r.keys[low], member = token - (int)(r.keys[low] >> 32);
                r.tokens[token] =
                        args.n_clusters == nullptr
                                ? page_member(args, job, group, member)
                                : id_at(args, job, listed_at(args.spans, job.row, job.head, group, 2)[0] + member);
        }
        __syncthreads();
        return (int)begin;
}

/* Numbers of scores become candidates, where these are the tokens of units. */
static __device__ __forceinline__ void name_tokens(const dci_gpu_select_args &args, const Job &job, int32_t *tokens,
                                                   int n)
{
        if (args.units.lists == nullptr || __ldca(args.units.n_scored + job.list) == 0)
                return;
        const int32_t *units = args.units.lists + (uint64_t)job.list * args.units.stride;
        __syncthreads();
        for (int i = threadIdx.x; i < n; i += n_threads)
                tokens[i] = DCI_GPU_SCORED(units, args.units.singles, tokens[i]);
        __syncthreads();
}

/* Writes the list: of n keys those that reach `low`, which are as many as are wanted; that key's relevance is the
 * list's last. sorted: they are the first ones, best first. */
static __device__ __forceinline__ void put_list(const dci_gpu_select_args &args, const Job &job, Shared &s,
                                                const Rooms &r, int n, uint64_t low, bool sorted)
{
        const bool simple = args.group_shift == 0 && args.n_clusters == nullptr;
        if (threadIdx.x == 0)
                args.lasts[(uint64_t)job.row * gridDim.y + blockIdx.y] = from_ordered((uint32_t)(low >> 32));
        if (simple && args.drop)
                for (int i = threadIdx.x; i < n; i += n_threads)
                        for (int q = 0; q < job.group && r.keys[i] >= low; q++)
                                args.scores[((uint64_t)job.list * args.max_groups + group_of(r.keys[i])) * job.group +
                                            q] = -FLT_MAX;
        int n_tokens = job.wanted;
        if (simple && args.ranked == nullptr && args.selection.lists == nullptr) {
                __syncthreads();
                if (threadIdx.x == 0)
                        s.count = 0;
                __syncthreads();
                for (int i = threadIdx.x; i < n; i += n_threads)
                        if (r.keys[i] >= low)
                                r.tokens[atomicAdd(&s.count, 1u)] = group_of(r.keys[i]);
        } else {
                if (!sorted) {
                        move_best(s, r.keys, (uint32_t)n, low);
                        sort_keys(r.keys, job.wanted);
                }
                n_tokens = take_members(args, job, s, r);
        }
        if (threadIdx.x == 0)
                s.n_tokens = n_tokens;
        name_tokens(args, job, r.tokens, n_tokens);
        put_tokens(args, s, r.bits, r.tokens, n_tokens, job.n_candidates, job.row, (int)blockIdx.y, job.list);
}

/* Writes the units: of n keys those that reach `low`, which are one more than are wanted; the least one counts only
 * where the last unit of all is better, and leaves the others too few tokens. */
static __device__ __forceinline__ void put_units(const dci_gpu_select_args &args, const Job &job, Shared &s,
                                                 const Rooms &r, int n, uint64_t low)
{
        const int last = job.n_groups - 1, lacking = job.n_groups * DCI_GPU_UNIT - job.n_candidates;
        int has_last = 0;
        for (int i = threadIdx.x; i < n; i += n_threads)
                has_last |= r.keys[i] > low && group_of(r.keys[i]) == last;
        has_last = __syncthreads_or(has_last);
        const bool more = has_last != 0 && args.units.wanted * DCI_GPU_UNIT - lacking < args.units.room;
        if (threadIdx.x == 0)
                s.count = 0;
        __syncthreads();
        for (int i = threadIdx.x; i < n; i += n_threads)
                if (r.keys[i] > low || (more && r.keys[i] == low))
                        r.tokens[atomicAdd(&s.count, 1u)] = group_of(r.keys[i]);
        __syncthreads();
        const int n_units = put_in_order(s, r.bits, r.tokens, (int)s.count, job.n_groups, 0,
                                         args.units.lists + (uint64_t)job.list * args.units.stride);
        if (threadIdx.x == 0)
                args.units.n_scored[job.list] = n_units * DCI_GPU_UNIT - (has_last != 0 ? lacking : 0);
}

template <int HOW>
static __device__ __forceinline__ void put(const dci_gpu_select_args &args, const Job &job, Shared &s, const Rooms &r,
                                           int n, uint64_t low, bool sorted)
{
        if (HOW == by_unit)
                put_units(args, job, s, r, n, low);
        else
                put_list(args, job, s, r, n, low, sorted);
}

#endif
