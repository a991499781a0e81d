/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* A block's part of a list of the selection (cuda/select/select_kernel.cuh): relevances, counted in bins, and what it
 * leaves for the last block. */
#ifndef DCI_GPU_CUDA_SELECT_SELECT_PART_CUH
#define DCI_GPU_CUDA_SELECT_SELECT_PART_CUH

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

#endif
