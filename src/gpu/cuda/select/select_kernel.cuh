/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Top-k selection. Several small thread blocks per list; the last one to arrive merges.
 *
 * Each block reads its part of the list once, keeps relevances in shared memory, and counts them in 1,024 bins. It
 * writes to `found` its keys from the bin on that gives it clearly more than its share of the best, as groups go to
 * blocks in turn. A list of few groups has one block, whose keys stay where they are.
 *
 * The last block takes the best of what was found. That is the selection if the worst of them is no worse than any
 * block's threshold: whatever was left out is worse still. Else (one block had most of the best, or so many are wanted
 * that `found` cannot hold them) it goes through the whole list by itself. So thresholds decide about time, never about
 * what is selected.
 *
 * What takes time is not the number of groups but a dozen steps that wait for each other: each of them is kept short,
 * for one warp as for the block, and so is their code, which comes from memory again.
 *
 * found: thresholds by block, then keys by block, as many as fit, else zeros. n_found: blocks that arrived. */
#ifndef DCI_GPU_CUDA_SELECT_SELECT_KERNEL_CUH
#define DCI_GPU_CUDA_SELECT_SELECT_KERNEL_CUH

#include "gpu/cuda/launch.cuh"
#include "gpu/cuda/select/select_part.cuh"

/* --- the last block ----------------------------------------------------------------------------------------------- */

/* All that the blocks found, into `keys`, zeros among them, and their relevances in bins; the highest threshold. */
template <int HOW>
static __device__ __forceinline__ void read_found(const dci_gpu_select_args &args, const Job &job, Shared &s,
                                                  const Rooms &r, const Part &p)
{
        const unsigned long long *found = reinterpret_cast<const unsigned long long *>(found_of(args, job));
        const int n = p.n_blocks * (int)p.room;
        if ((int)threadIdx.x < p.n_blocks)
                atomicMax(&s.furthest, __ldcg(found + threadIdx.x));
        for (int i = threadIdx.x; i < n; i += n_threads) {
                const uint64_t key = __ldcg(found + max_blocks + i);
                r.keys[i] = key;
                count_bits<HOW>(s, job, (uint32_t)(key >> 32));
        }
        __syncthreads();
}

/* The key of a rank, from 1 on, among a few; by the whole block. */
static __device__ __forceinline__ uint64_t key_among(Shared &s, const unsigned long long *few, int n, uint32_t rank)
{
        if ((int)threadIdx.x < n) {
                const unsigned long long own = few[threadIdx.x];
                uint32_t better = 0;
                for (int i = 0; i < n; i++)
                        better += few[i] > own;
                if (better + 1 == rank)
                        s.worst = own;
        }
        __syncthreads();
        return s.worst;
}

/* The least of the wanted keys, of n of which all that share its bin, and so many more, are there; the bin is known. A
 * few keys of a bin are compared each with each. */
template <int HOW>
static __device__ __forceinline__ uint64_t worst_of_bin(const Job &job, Shared &s, const Rooms &r, int n)
{
        const int bin = (int)s.bin;
        const uint32_t wanted = (uint32_t)job.wanted - s.before;
        if (s.within > n_threads)
                return 0;
        unsigned long long *few = reinterpret_cast<unsigned long long *>(r.bits);
        for (int i = threadIdx.x; i < n; i += n_threads)
                if (r.keys[i] >= everything && bin_of<HOW>(job, (uint32_t)(r.keys[i] >> 32)) == bin)
                        few[atomicAdd(&s.count, 1u)] = r.keys[i];
        __syncthreads();
        return key_among(s, few, (int)s.count, wanted);
}

/* visit(bits, group) for the whole list. */
template <int G, int HOW, typename Visit>
static __device__ __forceinline__ void scan_all(const dci_gpu_select_args &args, const Job &job, const Shared &s,
                                                Visit visit)
{
        const Weights<G> w = weights_of<G, HOW>(args, s, job);
        Batch<G> batch;
        load_batch<G>(batch, job.scores, 0, 0, 1, job.n_groups);
        scan<G, HOW>(args, job, w, batch, 0, 1, 0, rounds_of(job.n_groups, 1),
                     [&](int, uint32_t bits, int group) { visit(bits, group); });
}

template <int G, int HOW>
static __device__ __forceinline__ uint32_t collect(const dci_gpu_select_args &args, const Job &job, Shared &s,
                                                   const Rooms &r, uint32_t room, uint64_t threshold)
{
        __syncthreads();
        if (threadIdx.x == 0)
                s.count = 0;
        __syncthreads();
        scan_all<G, HOW>(args, job, s, [&](uint32_t bits, int group) {
                const uint64_t key = key_of(bits, group);
                const uint32_t at = take_place(key >= threshold, &s.count);
                if (at < room)
                        r.keys[at] = key;
        });
        __syncthreads();
        return s.count;
}

/* The same from the list itself: as many of the best keys as fit, or at least as are wanted. Returns how many. */
template <int G, int HOW>
static __device__ __noinline__ uint32_t find_alone(const dci_gpu_select_args &args, Job job, Shared &s, Rooms r,
                                                   uint32_t room)
{
        if (job.n_groups <= (int)room)
                return collect<G, HOW>(args, job, s, r, room, everything);
        __syncthreads();
        const uint64_t low = narrow(s, everything, ~0ull, (uint32_t)job.wanted, room, [&](auto count) {
                scan_all<G, HOW>(args, job, s, [&](uint32_t bits, int group) { count(key_of(bits, group)); });
        });
        return collect<G, HOW>(args, job, s, r, room, low);
}

/* The least of the wanted of n keys. */
static __device__ __noinline__ uint64_t worst_of_all(Shared &s, Rooms r, uint32_t n, uint32_t wanted)
{
        if (threadIdx.x == 0)
                s.worst = ~0ull;
        __syncthreads();
        const uint64_t low = n == wanted ? everything : narrow(s, everything, ~0ull, wanted, wanted, [&](auto count) {
                for (uint32_t i = threadIdx.x; i < n; i += n_threads)
                        count(r.keys[i]);
        });
        for (uint32_t i = threadIdx.x; i < n; i += n_threads)
                if (r.keys[i] >= low)
                        atomicMin(&s.worst, (unsigned long long)r.keys[i]);
        __syncthreads();
        return s.worst;
}

/* The last block of a list that thresholds did not serve: all again. Leaves n keys; returns the least wanted. */
template <int G, int HOW>
static __device__ __noinline__ uint64_t find_all(const dci_gpu_select_args &args, Job job, Shared &s, Rooms r,
                                                 uint32_t room, int *out_n)
{
        const uint32_t n = find_alone<G, HOW>(args, job, s, r, room);
        *out_n = (int)n;
        return worst_of_all(s, r, n, (uint32_t)job.wanted);
}

/* --- what a tail over clusters reads ------------------------------------------------------------------------------ */

/* As dci_kv_estimated: no product is fused with the sum. */
static __device__ __forceinline__ int count_estimated(const dci_gpu_select_args &args, int n)
{
        return args.estimate_share >= 1.0 ? n : (int)__dadd_rn(__dmul_rn(args.estimate_share, (double)n), 0.5);
}

/* The key of rank `wanted`, of those of visit(f), which calls f(bits, group). By bins first; of those that share one,
 * few are compared each with each. */
template <int HOW, typename Visit>
static __device__ __forceinline__ uint64_t key_at_rank(const Job &job, Shared &s, const Rooms &r, uint32_t wanted,
                                                       Visit visit)
{
        unsigned long long *few = reinterpret_cast<unsigned long long *>(r.bits);
        clear_bins(s);
        if (threadIdx.x == 0)
                s.count = 0;
        __syncthreads();
        visit([&](uint32_t bits, int) { count_bits<HOW>(s, job, bits); });
        __syncthreads();
        find_bin(s, wanted);
        const int bin = (int)s.bin, within = (int)s.within;
        const uint32_t rank = wanted - s.before;
        __syncthreads(); /* all have read */
        if (within > n_threads)
                return narrow(s, everything, ~0ull, wanted, wanted, [&](auto count) {
                        visit([&](uint32_t bits, int group) { count(key_of(bits, group)); });
                });
        visit([&](uint32_t bits, int group) {
                if (bits > 0 && bin_of<HOW>(job, bits) == bin)
                        few[atomicAdd(&s.count, 1u)] = key_of(bits, group);
        });
        __syncthreads();
        return key_among(s, few, within, rank);
}

/* How many of the ranked groups are selected: those that begin before the room is full. Their keys say where they
 * begin, ascending. */
static __device__ __forceinline__ int count_selected(const Job &job, const Rooms &r)
{
        int low = 0, high = job.wanted;
        while (low < high) {
                const int middle = (low + high) >> 1;
                if ((int)(r.keys[middle] >> 32) < job.room)
                        low = middle + 1;
                else
                        high = middle;
        }
        return low;
}

/* Writes members; after the list, while its groups are in r.keys. visit(f): of all groups. */
template <int HOW, typename Visit>
static __device__ __forceinline__ void put_members(const dci_gpu_select_args &args, const Job &job, Shared &s,
                                                   const Rooms &r, Visit visit)
{
        int32_t *members = args.members + (uint64_t)job.list * args.max_groups;
        __syncthreads();
        const int n_selected = count_selected(job, r), reach = n_selected + count_estimated(args, job.n_groups);
        const uint64_t low =
                reach < job.n_groups && reach > 0 ? key_at_rank<HOW>(job, s, r, (uint32_t)reach, visit) : everything;
        visit([&](uint32_t bits, int group) {
                if (bits > 0)
                        members[group] = reach > 0 && key_of(bits, group) >= low ? 0 : DCI_GPU_DROPPED;
        });
        __syncthreads();
        for (int i = threadIdx.x; i < n_selected; i += n_threads) {
                const int end = i + 1 < job.wanted ? (int)(r.keys[i + 1] >> 32) : s.n_tokens;
                members[(int)(uint32_t)r.keys[i]] = end - (int)(r.keys[i] >> 32);
        }
}

/* From the list itself. */
template <int G, int HOW>
static __device__ __noinline__ void put_members_of_all(const dci_gpu_select_args &args, Job job, Shared &s, Rooms r)
{
        put_members<HOW>(args, job, s, r, [&](auto f) { scan_all<G, HOW>(args, job, s, f); });
}

/* A list without room, of which a tail estimates all that it may. */
template <int G, int HOW>
static __device__ __noinline__ void select_nothing(const dci_gpu_select_args &args, Job job, Shared &s, Rooms r)
{
        put_nothing(args, job.list, job.row, blockIdx.y);
        put_members_of_all<G, HOW>(args, job, s, r);
}

/* One block's list: what it would leave for the last one is what that takes. */
template <int G, int HOW>
static __device__ __forceinline__ void select_alone(const dci_gpu_select_args &args, const Job &job, Shared &s,
                                                    const Rooms &r, Batch<G> &batch, const Part &p, int key_room)
{
        int n;
        uint64_t low;
        bool sorted = false;
        if ((uint32_t)job.wanted > p.room) {
                low = find_all<G, HOW>(args, job, s, r, (uint32_t)key_room, &n);
        } else {
                weigh_part<G, HOW>(args, job, s, r, batch, p);
                leave_keys<G, HOW>(args, job, s, r, p, find_cut<G, HOW>(args, job, s, r, p), r.keys);
                n = (int)s.count;
                sorted = n <= few_keys;
                if (sorted)
                        sort_keys(r.keys, n);
                low = sorted ? r.keys[job.wanted - 1] : worst_of_all(s, r, (uint32_t)n, (uint32_t)job.wanted);
        }
        put<HOW>(args, job, s, r, n, low, sorted);
        if (HOW == by_unit || args.members == nullptr)
                return;
        if ((uint32_t)job.wanted > p.room)
                put_members_of_all<G, HOW>(args, job, s, r);
        else
                put_members<HOW>(args, job, s, r, [&](auto f) { again<G, HOW>(args, job, s, r, p, f); });
}

template <int G, int HOW>
static __device__ __forceinline__ void finish(const dci_gpu_select_args &args, const Job &job, Shared &s,
                                              const Rooms &r, const Part &p, int key_room)
{
        int n = p.n_blocks * (int)p.room;
        uint64_t low = 0;
        clear_bins(s);
        if (threadIdx.x == 0)
                s.count = 0;
        __syncthreads();
        if (job.wanted <= n) {
                read_found<HOW>(args, job, s, r, p);
                if (find_bin(s, (uint32_t)job.wanted) >= (uint32_t)job.wanted)
                        low = worst_of_bin<HOW>(job, s, r, n);
        }
        if (low == 0 || low < s.furthest)
                low = find_all<G, HOW>(args, job, s, r, (uint32_t)key_room, &n);
        put<HOW>(args, job, s, r, n, low, false);
        if (HOW != by_unit && args.members != nullptr)
                put_members_of_all<G, HOW>(args, job, s, r);
        if (threadIdx.x == 0)
                args.n_found[2 * (uint64_t)job.list] = 0;
}

/* Writes the plan's list from the selection cache; by one block, whatever it has done before. */
static __device__ __noinline__ void take_kept(const dci_gpu_select_args &args, Job job, const Asked &asked, Shared &s,
                                              Rooms r)
{
        dci_gpu_view view;
        DCI_GPU_VIEW(view, args.sizes, asked.n, asked.n_grouped);
        __syncthreads(); /* what is kept has been written */
        uint32_t written = 0;
        if (view.sparse) {
                const uint32_t taken = read_kept(s, args.selection, job.row, blockIdx.y, view.n_candidates,
                                                 min(view.room, args.stride), r.tokens);
                written = put_in_order(s, r.bits, r.tokens, (int)taken, view.n_candidates, args.sizes.sink,
                                       args.positions + (uint64_t)job.list * args.stride);
        }
        if (threadIdx.x == 0)
                args.counts[job.list] = (int32_t)written;
}

/* --- kernel ------------------------------------------------------------------------------------------------------- */

template <int G, int HOW>
static __global__ void __launch_bounds__(n_threads, 2)
        select_kernel(const __grid_constant__ dci_gpu_select_args args, const __grid_constant__ Plan plan)
{
        PTX_DYNAMIC_SHARED(16, unsigned char, base);
        __shared__ Shared s;
        const int thread = threadIdx.x, warp = thread >> 5;
        const Rooms r = rooms_of(base, plan);
        Job job;
        const Asked asked = ask<G, HOW>(args, job);
        clear_bins(s);
        if (thread == 0) {
                s.count = 0;
                s.furthest = 0;
                s.worst = ~0ull;
        }
        ptx_take_turn();
        /* On their way before it is known how many there are. */
        Batch<G> batch;
        load_batch<G>(batch, job.scores, 0, (int)blockIdx.x, (int)gridDim.x, rows_of_scores<HOW>(args));
        if (!settle<HOW>(args, job, asked)) {
                if (HOW != by_unit && args.takes != 0 && blockIdx.x == 0)
                        take_kept(args, job, asked, s, r);
                return;
        }
        for (int q = warp; q < args.group; q += n_warps)
                if (HOW == by_mean)
                        top_query(args, s, job.list, q);
                else
                        weigh_query<HOW>(args, s, job.list, q);
        __syncthreads();
        job.low = HOW == by_mean ? bins_begin(s, job) : 0.0f;
        if (HOW != by_unit && job.room == 0) {
                if (blockIdx.x == 0)
                        select_nothing<G, HOW>(args, job, s, r);
                return;
        }
        const Part p = part_of<G>(job, plan);
        if (plan.alone) /* the same for all threads */
                select_alone<G, HOW>(args, job, s, r, batch, p, plan.key_room);
        else if (find_part<G, HOW>(args, job, s, r, batch, p))
                finish<G, HOW>(args, job, s, r, p, plan.key_room);
        else
                return;
        if (HOW != by_unit && args.takes != 0)
                take_kept(args, job, asked, s, r);
}

/* --- launch ------------------------------------------------------------------------------------------------------- */

template <int G, int HOW>
static dci_status launch(const dci_gpu_cuda *cuda, const GpuStream &stream, const dci_gpu_select_args *args)
{
        const int n_lists = args->n_sequences * DCI_GPU_LISTS(args), most = 2 * cuda->multiprocessors / n_lists;
        const int n_groups = HOW != by_unit && args->likely_groups > 0 && args->likely_groups < args->max_groups
                                     ? args->likely_groups
                                     : rows_of_scores<HOW>(*args);
        constexpr int of_groups = HOW == by_unit ? 2 : 1; /* a unit takes as long as that many groups, usually */
        /* Who reads the whole list once more does so sooner from what it has kept. */
        const bool alone = of_groups * n_groups <= (args->members != nullptr ? max_kept * n_threads : alone_groups);
        int n_blocks = 1;
        while (!alone && n_blocks < max_blocks && 2 * n_blocks <= most &&
               n_blocks * block_groups < of_groups * n_groups)
                n_blocks *= 2;
        Plan plan;
        plan.key_room = key_room_of(args->stride);
        plan.room = (DCI_GPU_FOUND - max_blocks) / n_blocks;
        const int enough = (2 * asked_of(args->stride, n_blocks) + 31) / 32 * 32;
        plan.room = plan.room < enough ? plan.room : enough;
        const int64_t rounds = (n_groups + (int64_t)n_threads * n_blocks - 1) / ((int64_t)n_threads * n_blocks);
        plan.kept = rounds < max_kept ? (int)rounds : max_kept;
        plan.alone = alone;
        const size_t spare = sizeof(Shared) + 1024;
        while (plan.kept > 0 && room_bytes(plan, args->stride) + spare > cuda->shared_bytes)
                plan.kept--; /* relevances that are not kept are made again */
        const size_t shared = room_bytes(plan, args->stride);
        if (shared + spare > cuda->shared_bytes)
                return dci_fail(DCI_ERR_LIMIT, "lists of %d need %zu bytes of shared memory, this GPU has %zu",
                                args->stride, shared + spare, cuda->shared_bytes);
        const dim3 grid((unsigned)n_blocks, (unsigned)DCI_GPU_LISTS(args), (unsigned)args->n_sequences);
        return dci_gpu_cuda_status(launch_shared(stream, grid, n_threads, shared, select_kernel<G, HOW>, *args, plan),
                                   "the choice of %d lists cannot be queued", n_lists);
}

template <int HOW>
static dci_status launch_by(const dci_gpu_cuda *cuda, const GpuStream &stream, const dci_gpu_select_args *args)
{
        /* Rows of scores are read 16 bytes at a time. */
        switch (reinterpret_cast<uintptr_t>(args->scores) % 16 == 0 ? scores_of_row(*args) : 0) {
        case 1:
                return launch<1, HOW>(cuda, stream, args);
        case 2:
                return launch<2, HOW>(cuda, stream, args);
        case 4:
                return launch<4, HOW>(cuda, stream, args);
        case 8:
                return launch<8, HOW>(cuda, stream, args);
        case 16:
                return launch<16, HOW>(cuda, stream, args);
        default:
                return launch<0, HOW>(cuda, stream, args);
        }
}

#endif
