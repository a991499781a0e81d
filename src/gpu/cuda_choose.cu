/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The choice, some blocks to a list, of which the last one to arrive finishes.
 *
 * Each block looks at its part of the list once, keeps relevances in shared memory, and leaves in `found` those keys that may be chosen:
 * all above a threshold of its own. With last step's relevance as a guess the threshold is known beforehand; where that leaves too few or
 * too many, the block finds another one among what it has kept, which costs a fraction of a microsecond. As groups go to blocks in turn,
 * each has about its share of the best, and is asked for clearly more.
 *
 * The last block takes the best of what was found. That is the choice if the worst of them is no worse than any block's threshold: whatever
 * was left out is worse still. Else (one block had most of the best, or so many are wanted that `found` cannot hold them) it goes through
 * the whole list by itself. So thresholds decide about time, never about what is chosen.
 *
 * found: to each block a run of DCI_GPU_FOUND / blocks keys: how many there are, its threshold, the keys. n_found: blocks that have
 * arrived.
 */
#include "gpu/cuda_choose.cuh"
#include "gpu/cuda_launch.cuh"

#include <math_constants.h>

constexpr int most_blocks = 32; /* to a list: a warp or more of the last block reads what one of them found */
constexpr int most_kept = 24;   /* rounds whose relevances are kept */
constexpr int few = 64;         /* wanted: a guess allows for more */

struct Plan {
        int kept;     /* rounds */
        int key_room; /* of the last block */
};

/* Behind the bits: relevances that are kept, or keys and chosen candidates. */
struct Rooms {
        uint32_t *bits, *kept;
        uint64_t *keys;
        int32_t *tokens;
};

static __host__ __device__ inline size_t room_bytes(int kept, int key_room, int stride)
{
        const size_t first = (size_t)kept * n_threads * 4, last = (size_t)key_room * 8 + (size_t)stride * 4;
        return (size_t)window_words * 4 + (first > last ? first : last);
}

static __device__ __forceinline__ Rooms rooms_of(unsigned char *base, int key_room)
{
        Rooms r;
        r.bits = reinterpret_cast<uint32_t *>(base);
        r.kept = r.bits + window_words;
        r.keys = reinterpret_cast<uint64_t *>(r.kept);
        r.tokens = reinterpret_cast<int32_t *>(r.keys + key_room);
        return r;
}

/* A row's part of what is kept. */
static __device__ __forceinline__ int32_t *kept_part(int32_t *first, const dci_gpu_decided &kept, int row)
{
        return reinterpret_cast<int32_t *>(reinterpret_cast<unsigned char *>(first) + (uint64_t)row * kept.row_bytes);
}

/* A list that chooses nothing; by one block. */
static __device__ __forceinline__ void put_nothing(const dci_gpu_choose_args &args, int list, int row, int head)
{
        if (threadIdx.x == 0) {
                if (args.kept.lists != nullptr)
                        kept_part(args.kept.counts, args.kept, row)[head] = 0;
                else
                        args.counts[list] = 0;
                if (args.n_ranked != nullptr)
                        args.n_ranked[list] = 0;
        }
}

static __device__ __forceinline__ void put_header(const dci_gpu_choose_args &args, int sequence, const dci_gpu_view &view, int n)
{
        args.sink_end[sequence] = view.sparse ? args.sizes.sink : 0;
        args.recent_begin[sequence] = view.sparse ? args.sizes.sink + view.n_candidates : 0;
        args.after[sequence] = n;
}

/* What a guess is good for: keys above it are expected to be some times as many as are wanted. */
static __device__ __forceinline__ uint64_t first_threshold(const Job &job, bool even, float guess)
{
        const bool is_few = job.wanted < few;
        if (even)
                return (uint64_t)ordered(guess - (is_few ? 2.3f : 1.4f)) << 32;
        return guess > 0.0f ? (uint64_t)ordered(guess * (is_few ? 0.1f : 0.25f)) << 32 : ~0ull;
}

/* --- a block's part ----------------------------------------------------------------------------------------------------- */

struct Part {
        int block, n_blocks, rounds, kept; /* kept: rounds whose relevances are in shared memory */
        uint32_t n, room, asked;           /* groups; keys that it may leave, and should */
        uint64_t *keys;
};

template <int G> static __device__ __forceinline__ Part part_of(const dci_gpu_choose_args &args, const Job &job, int most)
{
        constexpr int run = G == 1 ? 32 : G == 2 ? 16 : 8;
        Part p;
        p.block = (int)blockIdx.x;
        p.n_blocks = (int)gridDim.x;
        p.rounds = rounds_of(job.n_groups, p.n_blocks);
        p.kept = p.rounds < most ? p.rounds : most;
        const int cycle = p.n_blocks * run, left = job.n_groups % cycle - p.block * run;
        p.n = (uint32_t)(job.n_groups / cycle * run + (left < 0 ? 0 : left < run ? left : run));
        const int each = DCI_GPU_FOUND / p.n_blocks;
        p.room = (uint32_t)each - 2;
        /* Three deviations more than its share, as if groups were thrown into blocks. */
        const float share = (float)job.wanted / (float)p.n_blocks;
        p.asked = p.n_blocks == 1 ? (uint32_t)job.wanted : (uint32_t)ceilf(share + 3.0f * sqrtf(share)) + 2;
        p.asked = p.asked < p.room ? p.asked : p.room;
        p.keys = args.found + (uint64_t)job.list * DCI_GPU_FOUND + (uint64_t)p.block * each;
        return p;
}

static __device__ __forceinline__ void leave_key(const Part &p, Shared &s, uint64_t key, uint64_t threshold)
{
        const uint32_t at = take_place(key >= threshold, &s.count);
        if (at < p.room)
                p.keys[2 + at] = key;
}

/* visit(bits, group) for all of a block's groups, a second time. */
template <int G, bool EVEN, typename Visit>
static __device__ __forceinline__ void again(const dci_gpu_choose_args &args, const Job &job, const Shared &s, const Rooms &r,
                                             const Part &p, Visit visit)
{
        for (int round = 0; round < p.kept; round++)
                visit(r.kept[round * n_threads + threadIdx.x], index_of<G>(round, p.block, p.n_blocks));
        if (p.kept == p.rounds)
                return;
        const Weights<G> w = weights_of<G>(s, job);
        Batch<G> batch;
        load_batch<G>(batch, job.scores, p.kept, p.block, p.n_blocks, job.n_groups);
        scan<G, EVEN>(args, job, w, batch, p.block, p.n_blocks, p.kept, p.rounds,
                [&](int, uint32_t bits, int group) { visit(bits, group); });
}

/* The least and the greatest of all threads' relevances, but for zeros, in shared memory; `least` and `greatest` begin as ~0 and 0. */
static __device__ __forceinline__ void note_range(Shared &s, uint32_t least, uint32_t greatest)
{
        least = __reduce_min_sync(all_lanes, least);
        greatest = __reduce_max_sync(all_lanes, greatest);
        if ((threadIdx.x & 31) == 0) {
                atomicMin(&s.least, least);
                atomicMax(&s.greatest, greatest);
        }
}

/* The guess was of no use: another threshold, and the keys above it. */
template <int G, bool EVEN>
static __device__ __noinline__ uint64_t find_again(const dci_gpu_choose_args &args, Job job, Shared &s, Rooms r, Part p)
{
        uint64_t threshold = everything;
        if (p.n > p.asked) {
                uint32_t least = ~0u, greatest = 0;
                again<G, EVEN>(args, job, s, r, p, [&](uint32_t bits, int) {
                        least = bits > 0 && bits < least ? bits : least;
                        greatest = bits > greatest ? bits : greatest;
                });
                note_range(s, least, greatest);
                __syncthreads();
                threshold = narrow(s, (uint64_t)s.least << 32, (uint64_t)s.greatest << 32 | 0xffffffffu, p.asked, p.room,
                                   [&](auto count) {
                                           again<G, EVEN>(args, job, s, r, p,
                                                    [&](uint32_t bits, int group) { count(key_of(bits, group)); });
                                   });
        }
        __syncthreads();
        if (threadIdx.x == 0)
                s.count = 0;
        __syncthreads();
        again<G, EVEN>(args, job, s, r, p, [&](uint32_t bits, int group) { leave_key(p, s, key_of(bits, group), threshold); });
        __syncthreads();
        return threshold;
}

/* Leaves what a block has found; whether it is the last of its list to do so. */
template <int G, bool EVEN>
static __device__ __forceinline__ bool find_part(const dci_gpu_choose_args &args, const Job &job, Shared &s, const Rooms &r,
                                                 Batch<G> &batch, const Part &p, float guess)
{
        uint64_t threshold = first_threshold(job, EVEN, guess);
        const bool hopeless = (uint64_t)job.wanted > (uint64_t)p.room * p.n_blocks;
        if (!hopeless) {
                const Weights<G> w = weights_of<G>(s, job);
                scan<G, EVEN>(args, job, w, batch, p.block, p.n_blocks, 0, p.rounds, [&](int round, uint32_t bits, int group) {
                        if (round < p.kept)
                                r.kept[round * n_threads + threadIdx.x] = bits;
                        leave_key(p, s, key_of(bits, group), threshold);
                });
                __syncthreads();
                const uint32_t count = s.count;
                if (count > p.room || count < p.asked)
                        threshold = find_again<G, EVEN>(args, job, s, r, p);
        }
        if (threadIdx.x == 0) {
                p.keys[0] = s.count;
                p.keys[1] = threshold;
                s.least = ~0u;
                s.greatest = 0;
        }
        /* The barrier orders the block's writes before the one thread that says so to the device. */
        __syncthreads();
        if (threadIdx.x == 0) {
                s.last = ptx_arrive(args.n_found + 2 * (uint64_t)job.list) == p.n_blocks - 1;
        }
        __syncthreads();
        return s.last != 0;
}

/* --- the last block ----------------------------------------------------------------------------------------------------- */

/* All that the blocks found, into `keys`; how many there are in s.found, their range, and the highest threshold. */
static __device__ __forceinline__ void read_found(const dci_gpu_choose_args &args, const Job &job, Shared &s, const Rooms &r,
                                                  const Part &p)
{
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        const int together = n_warps / p.n_blocks * 32, each = DCI_GPU_FOUND / p.n_blocks;
        const int block = warp * 32 / together, from = warp * 32 % together;
        uint32_t least = ~0u, greatest = 0;
        if (block < p.n_blocks) {
                const uint64_t *keys = args.found + (uint64_t)job.list * DCI_GPU_FOUND + (uint64_t)block * each;
                /* The first keys are asked for before it is known how many there are. */
                uint64_t key = from + lane < (int)p.room ? __ldcg((const unsigned long long *)keys + 2 + from + lane) : 0;
                const int n = (int)__ldcg((const unsigned long long *)keys);
                const uint64_t threshold = __ldcg((const unsigned long long *)keys + 1);
                for (int base = from; base < n; base += together) {
                        const int i = base + lane;
                        if (base > from)
                                key = i < n ? __ldcg((const unsigned long long *)keys + 2 + i) : 0;
                        const uint32_t at = take_place(i < n, &s.found), bits = (uint32_t)(key >> 32);
                        if (i < n) {
                                r.keys[at] = key;
                                least = bits < least ? bits : least;
                                greatest = bits > greatest ? bits : greatest;
                        }
                }
                if (lane == 0 && from == 0)
                        atomicMax(&s.furthest, (unsigned long long)threshold);
        }
        note_range(s, least, greatest);
        __syncthreads();
}

/* The number that as many of n keys reach as are wanted. */
static __device__ __forceinline__ uint64_t cut_keys(Shared &s, const uint64_t *keys, uint32_t n, uint32_t wanted, uint64_t low,
                                                    uint64_t high)
{
        if (n == wanted)
                return low;
        return narrow(s, low, high, wanted, wanted, [&](auto count) {
                for (uint32_t i = threadIdx.x; i < n; i += n_threads)
                        count(keys[i]);
        });
}

/* The least key that reaches a number. */
static __device__ __forceinline__ uint64_t worst_key(Shared &s, const uint64_t *keys, uint32_t n, uint64_t threshold)
{
        unsigned long long worst = ~0ull;
        for (uint32_t i = threadIdx.x; i < n; i += n_threads)
                if (keys[i] >= threshold && keys[i] < worst)
                        worst = keys[i];
        if (worst != ~0ull)
                atomicMin(&s.worst, worst);
        __syncthreads();
        return s.worst;
}

/* visit(bits, group) for the whole list. */
template <int G, bool EVEN, typename Visit>
static __device__ __forceinline__ void scan_all(const dci_gpu_choose_args &args, const Job &job, const Shared &s, Visit visit)
{
        const Weights<G> w = weights_of<G>(s, job);
        Batch<G> batch;
        load_batch<G>(batch, job.scores, 0, 0, 1, job.n_groups);
        scan<G, EVEN>(args, job, w, batch, 0, 1, 0, rounds_of(job.n_groups, 1),
                [&](int, uint32_t bits, int group) { visit(bits, group); });
}

template <int G, bool EVEN>
static __device__ __forceinline__ uint32_t collect(const dci_gpu_choose_args &args, const Job &job, Shared &s, const Rooms &r,
                                                   uint32_t room, uint64_t threshold)
{
        __syncthreads();
        if (threadIdx.x == 0)
                s.count = 0;
        __syncthreads();
        scan_all<G, EVEN>(args, job, s, [&](uint32_t bits, int group) {
                const uint64_t key = key_of(bits, group);
                const uint32_t at = take_place(key >= threshold, &s.count);
                if (at < room)
                        r.keys[at] = key;
        });
        __syncthreads();
        return s.count;
}

/* The same from the list itself: all keys that reach `low`, which as many do as are wanted, or as many of the best as there is room for.
 * Returns how many. */
template <int G, bool EVEN>
static __device__ __noinline__ uint32_t find_alone(const dci_gpu_choose_args &args, Job job, Shared &s, Rooms r, uint32_t room,
                                                   uint64_t low)
{
        uint32_t n = ~0u;
        if (low > everything || job.n_groups <= (int)room)
                n = collect<G, EVEN>(args, job, s, r, room, low);
        if (n <= room)
                return n;
        __syncthreads();
        low = narrow(s, low, ~0ull, (uint32_t)job.wanted, room, [&](auto count) {
                scan_all<G, EVEN>(args, job, s, [&](uint32_t bits, int group) { count(key_of(bits, group)); });
        });
        return collect<G, EVEN>(args, job, s, r, room, low);
}

/* The wanted of n keys move to the front. */
static __device__ __forceinline__ void move_best(Shared &s, uint64_t *keys, uint32_t n, uint64_t threshold)
{
        constexpr int each = DCI_GPU_MAX_LIST / n_threads;
        uint64_t own[each];
#pragma unroll
        for (int i = 0; i < each; i++) {
                const uint32_t at = i * n_threads + threadIdx.x;
                own[i] = at < n && keys[at] >= threshold ? keys[at] : 0;
        }
        __syncthreads();
        if (threadIdx.x == 0)
                s.count = 0;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < each; i++) {
                const uint32_t at = take_place(own[i] != 0, &s.count);
                if (at != ~0u)
                        keys[at] = own[i];
        }
        __syncthreads();
}

/* Members of ranked groups until the room is full; returns how many. Each group's key becomes where its members begin, and its number. */
static __device__ __forceinline__ int take_members(const dci_gpu_choose_args &args, const Job &job, Shared &s, const Rooms &r)
{
        const int per = 1 << args.group_shift;
        uint32_t begin = 0, n_ranked = 0, total;
        for (int base = 0; base < job.wanted; base += n_threads) {
                const int i = base + (int)threadIdx.x;
                const int group = i < job.wanted ? group_of(r.keys[i]) : 0;
                int n = 0;
                if (i < job.wanted && args.n_listed != nullptr)
                        n = listed_members(args, job, group);
                else if (i < job.wanted)
                        n = min(per, job.n_candidates - (group << args.group_shift));
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
                r.tokens[token] = args.n_listed == nullptr
                                          ? (group << args.group_shift) + member
                                          : id_at(args, job, listed_at(args.spans, job.row, job.head, group, 2)[0] + member);
        }
        __syncthreads();
        return (int)begin;
}

template <int G, bool EVEN>
static __device__ __forceinline__ void finish(const dci_gpu_choose_args &args, const Job &job, Shared &s, const Rooms &r,
                                              const Part &p, int key_room)
{
        const uint32_t wanted = (uint32_t)job.wanted;
        const bool simple = args.group_shift == 0 && args.n_listed == nullptr;
        read_found(args, job, s, r, p);
        uint32_t n = s.found;
        uint64_t low = everything;
        if (n >= wanted)
                low = cut_keys(s, r.keys, n, wanted, (uint64_t)s.least << 32, (uint64_t)s.greatest << 32 | 0xffffffffu);
        uint64_t worst = n >= wanted ? worst_key(s, r.keys, n, low) : 0;
        if (worst < s.furthest) {
                n = find_alone<G, EVEN>(args, job, s, r, (uint32_t)key_room, worst > everything ? worst : everything);
                low = cut_keys(s, r.keys, n, wanted, everything, ~0ull);
                __syncthreads();
                if (threadIdx.x == 0)
                        s.worst = ~0ull;
                __syncthreads();
                worst = worst_key(s, r.keys, n, low);
        }
        int n_tokens = job.wanted;
        if (simple && args.ranked == nullptr && args.kept.lists == nullptr) {
                __syncthreads();
                if (threadIdx.x == 0)
                        s.count = 0;
                __syncthreads();
                for (uint32_t base = 0; base < n; base += n_threads) {
                        const uint32_t i = base + threadIdx.x;
                        const uint32_t at = take_place(i < n && r.keys[i] >= low, &s.count);
                        if (at != ~0u)
                                r.tokens[at] = group_of(r.keys[i]);
                }
                __syncthreads();
        } else {
                move_best(s, r.keys, n, low);
                sort_keys(r.keys, job.wanted);
                n_tokens = take_members(args, job, s, r);
        }
        if (args.drop && simple)
                for (int i = threadIdx.x; i < n_tokens * job.group; i += n_threads)
                        args.scores[((uint64_t)job.list * args.most_groups + r.tokens[i / job.group]) * job.group +
                                    i % job.group] = -FLT_MAX;
        __syncthreads();
        uint32_t count = 0;
        if (args.kept.lists != nullptr) {
                int32_t *list = kept_part(args.kept.lists, args.kept, job.row) + (uint64_t)job.head * args.kept.room;
                for (int i = threadIdx.x; i < n_tokens; i += n_threads)
                        list[i] = r.tokens[i];
        } else {
                count = put_in_order(s, r.bits, r.tokens, n_tokens, job.n_candidates, args.sizes.sink,
                                     args.positions + (uint64_t)job.list * args.stride);
        }
        if (threadIdx.x == 0) {
                if (args.kept.lists != nullptr)
                        kept_part(args.kept.counts, args.kept, job.row)[job.head] = n_tokens;
                else
                        args.counts[job.list] = (int32_t)count;
                args.guesses[(uint64_t)job.row * args.n_heads + job.head] = from_ordered((uint32_t)(worst >> 32));
                args.n_found[2 * (uint64_t)job.list] = 0;
        }
}

/* --- kernel ------------------------------------------------------------------------------------------------------------- */

template <int G, bool EVEN>
static __global__ void __launch_bounds__(n_threads, 1) choose_kernel(const __grid_constant__ dci_gpu_choose_args args,
                                                                     const __grid_constant__ Plan plan)
{
        PTX_DYNAMIC_SHARED(16, unsigned char, base);
        __shared__ Shared s;
        const int thread = threadIdx.x, warp = thread >> 5, group = G > 0 ? G : args.group;
        const Rooms r = rooms_of(base, plan.key_room);
        Job job;
        ptx_take_turn();
        const int sequence = blockIdx.z;
        job.head = blockIdx.y;
        job.list = sequence * args.n_heads + job.head;
        job.group = group;
        job.scores = args.scores + (uint64_t)job.list * args.most_groups * group;
        /* All of this is on its way before anything is known about the sequence. */
        Batch<G> batch;
        load_batch<G>(batch, job.scores, 0, (int)blockIdx.x, (int)gridDim.x, args.most_groups);
        job.row = __ldg(args.rows + sequence);
        const int n = __ldg(args.n_tokens + sequence), n_grouped = __ldg(args.n_grouped + sequence);
        const uint64_t held = (uint64_t)job.row * args.n_heads + job.head;
        const float guess = args.guesses[held];
        const int n_listed = args.n_listed != nullptr ? __ldg(args.n_listed + held) : 0;
        const bool due = args.due == nullptr || __ldg(args.due + job.list) == args.due_is, keeps = args.kept.lists != nullptr;
        for (int i = thread; i < window_words / 4; i += n_threads)
                reinterpret_cast<uint4 *>(r.bits)[i] = make_uint4(0, 0, 0, 0);

        dci_gpu_view view;
        DCI_GPU_VIEW(view, args.sizes, n, n_grouped);
        if (thread == 0 && blockIdx.x == 0 && job.head == 0 && !keeps)
                put_header(args, sequence, view, n);
        job.n_candidates = view.n_candidates;
        job.room = args.none ? 0 : min(keeps ? args.kept.room : view.room, args.stride);
        job.look = args.n_listed != nullptr && view.n_candidates != n_grouped;
        const int per = 1 << args.group_shift;
        job.n_groups = min(args.n_listed != nullptr ? n_listed : (view.n_candidates + per - 1) >> args.group_shift,
                           args.most_groups);
        if (!due) /* the same for all blocks of the list */
                return;
        if (!view.sparse || job.room == 0 || job.n_groups <= 0) {
                if (blockIdx.x == 0)
                        put_nothing(args, job.list, job.row, job.head);
                return;
        }
        /* Of pages one more, since the last one of all may be partial. Listed groups have one member at least. */
        const bool pages = args.n_listed == nullptr && per > 1;
        job.wanted = min(pages ? ((job.room + per - 1) >> args.group_shift) + 1 : job.room, job.n_groups);
        if (thread == 0) {
                s.count = s.found = s.greatest = s.bin = s.before = s.within = 0;
                s.least = ~0u;
                s.furthest = 0;
                s.worst = ~0ull;
        }
        if (!EVEN && warp < group)
                weigh_query(args, s, job.list, warp);
        else if (thread < DCI_GPU_MAX_GROUP)
                s.most[thread] = s.lse[thread] = 0.0f;
        __syncthreads();
        const Part p = part_of<G>(args, job, plan.kept);
        if (find_part<G, EVEN>(args, job, s, r, batch, p, guess))
                finish<G, EVEN>(args, job, s, r, p, plan.key_room);
}

/* --- launch ------------------------------------------------------------------------------------------------------------- */

template <int G, bool EVEN> static dci_status launch(const dci_gpu_cuda *cuda, void *stream, const dci_gpu_choose_args *args)
{
        const int n_lists = args->n_sequences * args->n_heads;
        int n_blocks = cuda->multiprocessors / n_lists, enough = (args->most_groups + n_threads - 1) / n_threads;
        n_blocks = n_blocks < most_blocks ? n_blocks : most_blocks;
        n_blocks = n_blocks < enough ? n_blocks : enough;
        n_blocks = n_blocks > 1 ? n_blocks : 1;
        Plan plan;
        plan.key_room = args->stride <= DCI_GPU_FOUND ? DCI_GPU_FOUND : DCI_GPU_MAX_LIST;
        const int64_t rounds = (args->most_groups + (int64_t)n_threads * n_blocks - 1) / ((int64_t)n_threads * n_blocks);
        plan.kept = rounds < most_kept ? (int)rounds : most_kept;
        const size_t spare = sizeof(Shared) + 1024;
        while (plan.kept > 0 && room_bytes(plan.kept, plan.key_room, args->stride) + spare > cuda->shared_bytes)
                plan.kept--;
        const size_t shared = room_bytes(plan.kept, plan.key_room, args->stride);
        if (shared + spare > cuda->shared_bytes)
                return dci_fail(DCI_ERR_LIMIT, "lists of %d need %zu bytes of shared memory, this GPU has %zu", args->stride,
                                shared + spare, cuda->shared_bytes);
        const cudaError_t error =
                cudaFuncSetAttribute(choose_kernel<G, EVEN>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
        if (error != cudaSuccess)
                return dci_gpu_cuda_status(error, "a block cannot have %zu bytes of shared memory", shared);
        cudaLaunchConfig_t config = {};
        config.gridDim = dim3((unsigned)n_blocks, (unsigned)args->n_heads, (unsigned)args->n_sequences);
        config.blockDim = n_threads;
        config.dynamicSmemBytes = shared;
        return dci_gpu_cuda_status(launch_early(stream_of(cuda, stream), &config, choose_kernel<G, EVEN>, *args, plan), "the choice of %d lists cannot be queued",
                                   n_lists);
}

template <int G> static dci_status launch_as(const dci_gpu_cuda *cuda, void *stream, const dci_gpu_choose_args *args)
{
        return args->weigh == DCI_GPU_WEIGH_EVEN ? launch<G, true>(cuda, stream, args) : launch<G, false>(cuda, stream, args);
}

static dci_status check(const dci_gpu_choose_args *args)
{
        if (args->group < 1 || args->group > DCI_GPU_MAX_GROUP)
                return dci_fail(DCI_ERR_LIMIT, "groups of %d query heads: the device's kernel takes 1 to %d", args->group,
                                DCI_GPU_MAX_GROUP);
        if (args->stride < 1 || args->stride > DCI_GPU_MAX_LIST || args->sizes.budget > args->stride)
                return dci_fail(DCI_ERR_LIMIT, "a budget of %d in lists of %d: the device's kernel takes lists of its budget, and of %d at most",
                                args->sizes.budget, args->stride, DCI_GPU_MAX_LIST);
        if (args->n_parts < 1 || args->n_parts > DCI_GPU_MAX_PARTS)
                return dci_fail(DCI_ERR_LIMIT, "%d parts of scores: the device's kernel takes 1 to %d", args->n_parts, DCI_GPU_MAX_PARTS);
        if (args->weigh < DCI_GPU_WEIGH_KEPT || args->weigh > DCI_GPU_WEIGH_EVEN || args->group_shift < 0 || args->group_shift > 16)
                return dci_fail(DCI_ERR_LIMIT, "weighing %d of pages of 2^%d tokens: the device's kernel takes 1 to %d, and shifts to 16",
                                args->weigh, args->group_shift, DCI_GPU_WEIGH_EVEN);
        if (args->n_listed != nullptr && args->group_shift != 0)
                return dci_fail(DCI_ERR_LIMIT, "listed groups that are pages of 2^%d tokens, too", args->group_shift);
        if ((int64_t)args->n_sequences * args->n_heads > 65535 || args->most_groups > 1 << 28)
                return dci_fail(DCI_ERR_LIMIT, "%d sequences of %d heads, of %d groups: the device's kernel takes 65535 lists of %d",
                                args->n_sequences, args->n_heads, args->most_groups, 1 << 28);
        return DCI_OK;
}

extern "C" dci_status dci_gpu_cuda_choose(struct dci_gpu *gpu, void *stream, const dci_gpu_choose_args *args)
{
        const dci_gpu_cuda *cuda = dci_gpu_cuda_of(gpu);
        if (args->n_sequences <= 0 || args->n_heads <= 0)
                return DCI_OK;
        const dci_status status = check(args);
        if (status != DCI_OK)
                return status;
        /* Rows of scores are read 16 bytes at a time. */
        switch (reinterpret_cast<uintptr_t>(args->scores) % 16 == 0 ? args->group : 0) {
        case 1:
                return launch_as<1>(cuda, stream, args);
        case 2:
                return launch_as<2>(cuda, stream, args);
        case 4:
                return launch_as<4>(cuda, stream, args);
        case 8:
                return launch_as<8>(cuda, stream, args);
        case 16:
                return launch_as<16>(cuda, stream, args);
        default:
                return launch_as<0>(cuda, stream, args);
        }
}
