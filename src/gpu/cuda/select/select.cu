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
#include "gpu/cuda/launch.cuh"
#include "gpu/cuda/select/select_list.cuh"

/* Keys in addition to the wanted ones whose comparing costs less than another round of bins. */
constexpr int few_more = 64;
constexpr int max_blocks = 32;     /* to a list */
constexpr int block_groups = 2048; /* that are worth a block */
constexpr int alone_groups = 8192; /* that one block goes through sooner than several that wait for each other */
constexpr int max_kept = 48;       /* rounds whose relevances are kept: 96 KiB, two blocks to a multiprocessor */

struct Plan {
        int kept;     /* rounds */
        int room;     /* keys that a block may leave */
        int key_room; /* of the last block */
        int alone;    /* a list has one block, and few groups: its keys stay in shared memory */
};

/* Kept relevances; then keys, bits and selected candidates: in the last block in their place, else after them. */
static __host__ __device__ inline size_t room_bytes(const Plan &plan, int stride)
{
        const size_t first = (size_t)plan.kept * n_threads * 4;
        const size_t last = (size_t)plan.key_room * 8 + (size_t)window_words * 4 + (size_t)stride * 4;
        return plan.alone ? first + last : first > last ? first : last;
}

static inline int key_room_of(int stride)
{
        return stride <= DCI_GPU_FOUND ? DCI_GPU_FOUND : DCI_GPU_MAX_LIST;
}

static __device__ __forceinline__ Rooms rooms_of(unsigned char *base, const Plan &plan)
{
        Rooms r;
        r.kept = reinterpret_cast<uint32_t *>(base);
        r.keys = reinterpret_cast<uint64_t *>(base + (plan.alone ? plan.kept * n_threads * 4 : 0));
        r.bits = reinterpret_cast<uint32_t *>(r.keys + plan.key_room);
        r.tokens = reinterpret_cast<int32_t *>(r.bits + window_words);
        return r;
}

/* Keys that a block should leave of so many wanted: five deviations above its share of random groups. */
static __host__ __device__ inline int asked_of(int wanted, int n_blocks)
{
        const float share = (float)wanted / (float)n_blocks;
        return n_blocks == 1 ? wanted : (int)(share + 5.0f * sqrtf(share)) + 3;
}

/* --- a block's part ----------------------------------------------------------------------------------------------- */

struct Part {
        int block, n_blocks, rounds, kept; /* kept: rounds whose relevances are in shared memory */
        uint32_t n, room, asked;           /* groups; keys that it may leave, and should */
};

template <int G> static __device__ __forceinline__ Part part_of(const Job &job, const Plan &plan)
{
        constexpr int run = G == 1 ? 32 : G == 2 ? 16 : 8;
        Part p;
        p.block = (int)blockIdx.x;
        p.n_blocks = (int)gridDim.x;
        p.rounds = rounds_of(job.n_groups, p.n_blocks);
        p.kept = p.rounds < plan.kept ? p.rounds : plan.kept;
        const int cycle = p.n_blocks * run, left = job.n_groups % cycle - p.block * run;
        p.n = (uint32_t)(job.n_groups / cycle * run + (left < 0 ? 0 : left < run ? left : run));
        p.room = (uint32_t)plan.room;
        p.asked = min((uint32_t)asked_of(job.wanted, p.n_blocks), p.room);
        if (plan.alone) /* all of them are compared with each other */
                p.room = min(p.room, p.asked + few_more);
        return p;
}

/* Of a list: thresholds by block, then keys by block. */
static __device__ __forceinline__ uint64_t *found_of(const dci_gpu_select_args &args, const Job &job)
{
        return args.found + (uint64_t)job.list * DCI_GPU_FOUND;
}

/* visit(bits, group) for all of a block's groups, a second time. */
template <int G, int HOW, typename Visit>
static __device__ __forceinline__ void again(const dci_gpu_select_args &args, const Job &job, const Shared &s,
                                             const Rooms &r, const Part &p, Visit visit)
{
        for (int round = 0; round < p.kept; round++)
                visit(r.kept[round * n_threads + threadIdx.x], index_of<G>(round, p.block, p.n_blocks));
        if (p.kept == p.rounds)
                return;
        const Weights<G> w = weights_of<G, HOW>(args, s, job);
        Batch<G> batch;
        load_batch<G>(batch, job.scores, p.kept, p.block, p.n_blocks, job.n_groups);
        scan<G, HOW>(args, job, w, batch, p.block, p.n_blocks, p.kept, p.rounds,
                     [&](int, uint32_t bits, int group) { visit(bits, group); });
}

/* Mean scores that may count are no more than 31 below the mean of the heads' greatest. */
static __device__ __forceinline__ float bins_begin(const Shared &s, const Job &job)
{
        float sum = 0.0f;
        for (int q = 0; q < job.group; q++)
                sum += s.most[q];
        return sum / (float)job.group - 31.0f;
}

/* A relevance's bin; greater ones have none that is less, and that is all that counts on it. What softmax weighs: a
 * sixteenth of an octave, from 2^-60 on; mean scores: a 32nd. */
template <int HOW> static __device__ __forceinline__ int bin_of(const Job &job, uint32_t bits)
{
        constexpr uint32_t least = 0xa1800000u, infinite = 0xff800000u; /* as ordered numbers */
        if (HOW != by_mean)
                return bits < least ? 0 : (int)min((bits - least) >> 19, (uint32_t)n_bins - 1);
        const float at = __fmul_rn(__fsub_rn(from_ordered(bits), job.low), 32.0f);
        return bits >= infinite ? n_bins - 1 : (int)fminf(fmaxf(at, 0.0f), (float)(n_bins - 1));
}

template <int HOW> static __device__ __forceinline__ void count_bits(Shared &s, const Job &job, uint32_t bits)
{
        if (bits > 0) /* else there is no group */
                atomicAdd(&s.bins[bin_of<HOW>(job, bits)], 1u);
}

/* What a block writes: keys from a bin on that reach a number. */
struct Cut {
        int bin;
        uint64_t key;
};

/* More keys share a bin than there is room for: a threshold by all of their bits. */
template <int G, int HOW>
static __device__ __noinline__ uint64_t find_within(const dci_gpu_select_args &args, Job job, Shared &s, Rooms r,
                                                    Part p)
{
        return narrow(s, everything, ~0ull, p.asked, p.room, [&](auto count) {
                again<G, HOW>(args, job, s, r, p, [&](uint32_t bits, int group) { count(key_of(bits, group)); });
        });
}

/* The cut that leaves as many keys as are requested, or some more. Bins are counted. */
template <int G, int HOW>
static __device__ __forceinline__ Cut find_cut(const dci_gpu_select_args &args, const Job &job, Shared &s,
                                               const Rooms &r, const Part &p)
{
        if (p.n <= p.asked)
                return {0, everything};
        find_bin(s, p.asked);
        if (s.before + s.within <= p.room)
                return {(int)s.bin, everything};
        __syncthreads(); /* all have read */
        return {0, find_within<G, HOW>(args, job, s, r, p)};
}

/* Relevances of a block's groups: kept, and in bins. */
template <int G, int HOW>
static __device__ __forceinline__ void weigh_part(const dci_gpu_select_args &args, const Job &job, Shared &s,
                                                  const Rooms &r, Batch<G> &batch, const Part &p)
{
        const Weights<G> w = weights_of<G, HOW>(args, s, job);
        scan<G, HOW>(args, job, w, batch, p.block, p.n_blocks, 0, p.rounds, [&](int round, uint32_t bits, int) {
                if (round < p.kept)
                        r.kept[round * n_threads + threadIdx.x] = bits;
                count_bits<HOW>(s, job, bits);
        });
        __syncthreads();
}

/* Keys of a cut, in no order; s.count says how many. Returns a number that none of the others reaches. */
template <int G, int HOW>
static __device__ __forceinline__ uint64_t leave_keys(const dci_gpu_select_args &args, const Job &job, Shared &s,
                                                      const Rooms &r, const Part &p, const Cut &cut, uint64_t *keys)
{
        again<G, HOW>(args, job, s, r, p, [&](uint32_t bits, int group) {
                const uint64_t key = key_of(bits, group);
                if (key < cut.key || bin_of<HOW>(job, bits) < cut.bin)
                        return;
                const uint32_t at = atomicAdd(&s.count, 1u);
                if (at < p.room)
                        keys[at] = key;
                atomicMin(&s.worst, (unsigned long long)key);
        });
        __syncthreads();
        return cut.bin == 0 ? cut.key : s.worst;
}

/* Leaves what a block has found; whether it is the last of its list to do so. */
template <int G, int HOW>
static __device__ __forceinline__ bool find_part(const dci_gpu_select_args &args, const Job &job, Shared &s,
                                                 const Rooms &r, Batch<G> &batch, const Part &p)
{
        uint64_t threshold = ~0ull, *found = found_of(args, job), *keys = found + max_blocks + p.block * p.room;
        /* Else so many are wanted that there is no room for them. */
        if ((uint32_t)job.wanted <= p.room * p.n_blocks) {
                weigh_part<G, HOW>(args, job, s, r, batch, p);
                const Cut cut = find_cut<G, HOW>(args, job, s, r, p);
                threshold = leave_keys<G, HOW>(args, job, s, r, p, cut, keys);
                for (uint32_t at = s.count + threadIdx.x; at < p.room; at += n_threads)
                        keys[at] = 0;
        }
        if (threadIdx.x == 0)
                found[p.block] = threshold;
        /* The barrier orders the block's writes before the one thread that says so to the device. */
        __syncthreads();
        if (threadIdx.x == 0)
                s.last = ptx_arrive(args.n_found + 2 * (uint64_t)job.list) == p.n_blocks - 1;
        __syncthreads();
        return s.last != 0;
}

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

template <int G>
static dci_status launch_as(const dci_gpu_cuda *cuda, const GpuStream &stream, const dci_gpu_select_args *args)
{
        if (is_of_units(*args))
                return launch<G, by_unit>(cuda, stream, args);
        return args->weigh == DCI_GPU_WEIGH_EVEN ? launch<G, by_mean>(cuda, stream, args)
                                                 : launch<G, by_share>(cuda, stream, args);
}

/* Without relevances that are kept. */
extern "C" size_t dci_gpu_cuda_select_bytes(int32_t stride)
{
        Plan plan = {};
        plan.key_room = key_room_of(stride);
        return room_bytes(plan, stride) + sizeof(Shared) + 1024;
}

static dci_status check(const dci_gpu_select_args *args)
{
        if (args->group < 1 || args->group > DCI_GPU_MAX_GROUP)
                return dci_fail(DCI_ERR_LIMIT, "groups of %d query heads: the device's kernel takes 1 to %d",
                                args->group, DCI_GPU_MAX_GROUP);
        if (is_of_units(*args) &&
            (args->group_shift < 2 || args->group_shift > 4 || args->units.wanted < 1 ||
             args->units.wanted >= args->units.stride || args->stride != args->units.stride ||
             args->stride > DCI_GPU_FOUND || args->max_groups % (DCI_GPU_UNIT >> args->group_shift) != 0))
                return dci_fail(DCI_ERR_LIMIT,
                                "%d units of means of 2^%d in lists of %d: the device's kernel takes fewer units than "
                                "%d, and means of 2^2 to 2^4",
                                args->units.wanted, args->group_shift, args->stride, DCI_GPU_FOUND);
        if (args->stride < 1 || args->stride > DCI_GPU_MAX_LIST ||
            (!is_of_units(*args) && args->sizes.budget > args->stride))
                return dci_fail(DCI_ERR_LIMIT,
                                "a budget of %d in lists of %d: the device's kernel takes lists of its budget, and of "
                                "%d at most",
                                args->sizes.budget, args->stride, DCI_GPU_MAX_LIST);
        if (args->n_parts < 1 || args->n_parts > DCI_GPU_MAX_PARTS)
                return dci_fail(DCI_ERR_LIMIT, "%d parts of scores: the device's kernel takes 1 to %d", args->n_parts,
                                DCI_GPU_MAX_PARTS);
        if (args->weigh < DCI_GPU_WEIGH_KEPT || args->weigh > DCI_GPU_WEIGH_EVEN || args->group_shift < 0 ||
            args->group_shift > 16)
                return dci_fail(
                        DCI_ERR_LIMIT,
                        "weighing %d of pages of 2^%d tokens: the device's kernel takes 1 to %d, and shifts to 16",
                        args->weigh, args->group_shift, DCI_GPU_WEIGH_EVEN);
        if (args->takes != 0 && (args->selection.lists == nullptr || is_of_units(*args)))
                return dci_fail(DCI_ERR_LIMIT, "lists that are to be taken from a selection that is not kept");
        if (args->members != nullptr && (args->n_clusters == nullptr || args->selection.lists != nullptr))
                return dci_fail(DCI_ERR_LIMIT, "members of lists that are not of clusters, or are kept");
        if (args->n_clusters != nullptr && args->group_shift != 0)
                return dci_fail(DCI_ERR_LIMIT, "listed groups that are pages of 2^%d tokens, too", args->group_shift);
        if ((int64_t)args->n_sequences * DCI_GPU_LISTS(args) > DCI_GPU_MAX_LISTS || args->max_groups > 1 << 28)
                return dci_fail(DCI_ERR_LIMIT,
                                "%d sequences of %d heads, of %d groups: the device's kernel takes %d lists of %d",
                                args->n_sequences, args->n_heads, args->max_groups, DCI_GPU_MAX_LISTS, 1 << 28);
        return DCI_OK;
}

extern "C" dci_status dci_gpu_cuda_select(struct dci_gpu *gpu, void *stream, const dci_gpu_select_args *args)
{
        const dci_gpu_cuda *cuda = dci_gpu_cuda_of(gpu);
        if (args->n_sequences <= 0 || args->n_heads <= 0)
                return DCI_OK;
        const dci_status status = check(args);
        if (status != DCI_OK)
                return status;
        /* Rows of scores are read 16 bytes at a time. */
        const int group = reinterpret_cast<uintptr_t>(args->scores) % 16 == 0 ? scores_of_row(*args) : 0;
        const GpuStream on = stream_of(cuda, stream);
        switch (group) {
        case 1:
                return launch_as<1>(cuda, on, args);
        case 2:
                return launch_as<2>(cuda, on, args);
        case 4:
                return launch_as<4>(cuda, on, args);
        case 8:
                return launch_as<8>(cuda, on, args);
        case 16:
                return launch_as<16>(cuda, on, args);
        default:
                return launch_as<0>(cuda, on, args);
        }
}
