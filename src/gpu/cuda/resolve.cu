/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Residency, one block for a sequence and kv head, whose lists take turns.
 *
 * The list is ascending, so that a frame finds its unit in it by bisection: no table of frames is built. Misses keep
 * their order by a prefix sum. Frames that leave are ranked by a counting sort of their ages: each warp counts its own
 * run of frames, the counts are summed over ages downwards and warps upwards, and each warp gives its frames their
 * ranks; frames of one age keep their order by number.
 *
 * Of a contiguous copy the list becomes rows, sorted, with the number of each one's entry. Where the chunks of rows are
 * does not depend on the plan, and is looked up before the kernel's turn.
 *
 * What the host wrote comes over the bus, so all of it is requested at once, before anything is known about the list:
 * the first entries by all threads, whatever the count will turn out to be. */
#include "gpu/cuda/launch.cuh"
#include "gpu/cuda/ptx.cuh"
#include "gpu/cuda/rows.cuh"

constexpr int n_threads = 512;
constexpr int n_warps = n_threads / 32;
constexpr int n_bins =
        DCI_GPU_AGES + 2;     /* bin 0: empty frames, 1: the oldest, DCI_GPU_AGES: those used last; an even number */
constexpr int taken = 0xffff; /* in place of a bin: the frame has a hit */
constexpr int n_early = 512;  /* chunks of places that are looked up before the kernel's turn */

/* Shared memory after the fixed part: list, frames of entries, first entries of misses, evicted frames, bins. */
struct Shared {
        int32_t *positions;
        int16_t *frame;
        uint16_t *misses, *leaving, *bins;
        uint32_t *counts; /* [warps][n_bins / 2], 16 bits each */
        /* Of a contiguous copy: row << 16 | entry, the entries in the order of rows, chunks of places. */
        uint64_t *keys;
        uint16_t *order;
        const int32_t **chunks;
};

static __host__ __device__ inline size_t part(size_t n_bytes)
{
        return (n_bytes + 15) / 16 * 16;
}

static __host__ __device__ inline size_t shared_bytes(int most, int n_frames)
{
        return part((size_t)most * 4) + 2 * part((size_t)most * 2) + 2 * part((size_t)n_frames * 2) +
               part((size_t)n_warps * n_bins * 2);
}

static __host__ __device__ inline int power_of_two(int n)
{
        int out = n_threads;
        while (out < n)
                out *= 2;
        return out;
}

/* More of it, for places. */
static __host__ __device__ inline size_t placed_bytes(int most)
{
        return part((size_t)power_of_two(most) * 8) + part((size_t)most * 2) + (size_t)n_early * 8;
}

static __device__ __forceinline__ Shared shared_of(unsigned char *base, int most, int n_frames)
{
        Shared s;
        s.positions = reinterpret_cast<int32_t *>(base);
        base += part((size_t)most * 4);
        s.frame = reinterpret_cast<int16_t *>(base);
        base += part((size_t)most * 2);
        s.misses = reinterpret_cast<uint16_t *>(base);
        base += part((size_t)most * 2);
        s.leaving = reinterpret_cast<uint16_t *>(base);
        base += part((size_t)n_frames * 2);
        s.bins = reinterpret_cast<uint16_t *>(base);
        base += part((size_t)n_frames * 2);
        s.counts = reinterpret_cast<uint32_t *>(base);
        base += part((size_t)n_warps * n_bins * 2);
        s.keys = reinterpret_cast<uint64_t *>(base);
        base += part((size_t)power_of_two(most) * 8);
        s.order = reinterpret_cast<uint16_t *>(base);
        base += part((size_t)most * 2);
        s.chunks = reinterpret_cast<const int32_t **>(base);
        return s;
}

/* The sum of all threads' values before this one's, and of all. Needs all threads; `sums` holds n_warps + 1 numbers. */
static __device__ __forceinline__ uint32_t block_prefix(uint32_t value, uint32_t *sums, uint32_t *out_total)
{
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        uint32_t sum = value;
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
                const uint32_t below = __shfl_up_sync(0xffffffffu, sum, d);
                if (lane >= d)
                        sum += below;
        }
        __syncthreads(); /* the sums of the last time have been read */
        if (lane == 31)
                sums[warp] = sum;
        __syncthreads();
        uint32_t of_warp = lane < n_warps ? sums[lane] : 0;
#pragma unroll
        for (int d = 1; d < n_warps; d *= 2) {
                const uint32_t below = __shfl_up_sync(0xffffffffu, of_warp, d);
                if (lane >= d)
                        of_warp += below;
        }
        *out_total = __shfl_sync(0xffffffffu, of_warp, n_warps - 1);
        const uint32_t before = __shfl_sync(0xffffffffu, of_warp, warp > 0 ? warp - 1 : 0);
        return (warp > 0 ? before : 0) + sum - value;
}

/* The first entry whose unit is at least this one. */
static __device__ __forceinline__ int find_unit(const int32_t *positions, int count, int shift, int unit)
{
        int begin = 0, end = count;
        while (begin < end) {
                const int middle = (begin + end) >> 1;
                if (positions[middle] >> shift < unit)
                        begin = middle + 1;
                else
                        end = middle;
        }
        return begin;
}

/* Entries of the unit that begins at entry `at` get its frame. */
static __device__ __forceinline__ void set_frame(const Shared &s, int count, int shift, int at, int unit, int frame)
{
        for (; at < count && s.positions[at] >> shift == unit; at++)
                s.frame[at] = (int16_t)frame;
}

/* A frame as steps before have left it. */
struct Held {
        int tag;
        uint32_t stamp;
};

static __device__ __forceinline__ Held held_at(const int32_t *tags, const uint32_t *stamps, int f, int n_frames)
{
        return f < n_frames ? Held{__ldcg(tags + f), __ldcg(stamps + f)} : Held{-1, 0};
}

/* Frames search for their units: hits are stamped, others get the bin of their age, but for those that earlier lists of
 * the lane have taken (`later`). The first frame is loaded. */
template <bool many>
static __device__ __forceinline__ void find_hits(const Shared &s, int count, int shift, int n_frames, Held held,
                                                 const int32_t *tags, uint32_t *stamps, uint32_t now, bool later)
{
        for (int f = threadIdx.x; f < n_frames; f += n_threads) {
                const int tag = held.tag;
                const uint32_t stamp = held.stamp;
                held = held_at(tags, stamps, f + n_threads, n_frames);
                int bin = 0;
                if (tag >= 0) {
                        const int at = find_unit(s.positions, count, shift, tag);
                        const uint32_t age = now - stamp;
                        bin = DCI_GPU_AGES - (int)(age < DCI_GPU_AGES - 1 ? age : DCI_GPU_AGES - 1);
                        if (many && later && s.bins[f] == taken)
                                bin = taken;
                        if (at < count && s.positions[at] >> shift == tag) {
                                set_frame(s, count, shift, at, tag, f);
                                stamps[f] = now;
                                bin = taken;
                        }
                }
                s.bins[f] = (uint16_t)bin;
        }
}

/* First entries of units that no frame holds, ascending. Returns how many; *out_asked: how many units there are. */
static __device__ __forceinline__ uint32_t collect_misses(const Shared &s, int count, int shift, uint32_t *sums,
                                                          uint32_t *out_asked)
{
        uint32_t n_misses = 0, asked = 0;
        for (int base = 0; base < count; base += n_threads) {
                const int e = base + threadIdx.x;
                const bool first = e < count && (e == 0 || s.positions[e - 1] >> shift != s.positions[e] >> shift);
                const bool miss = first && s.frame[e] < 0;
                uint32_t total; /* misses below, units above */
                const uint32_t before = block_prefix((miss ? 1u : 0u) | (first ? 1u << 16 : 0u), sums, &total) & 0xffff;
                if (miss)
                        s.misses[n_misses + before] = (uint16_t)e;
                n_misses += total & 0xffff;
                asked += total >> 16;
        }
        *out_asked = asked;
        return n_misses;
}

/* A warp's run of frames. */
struct Run {
        int begin, end;
};

static __device__ __forceinline__ Run run_of(int n_frames)
{
        const int each = (n_frames + n_threads - 1) / n_threads * 32, begin = (int)(threadIdx.x >> 5) * each;
        return {begin, begin + each < n_frames ? begin + each : n_frames};
}

/* 16-bit counts by twos in words: the leader of a warp's frames of one bin is the only one to change them. */
static __device__ __forceinline__ uint16_t *counts_of(const Shared &s, int warp)
{
        return reinterpret_cast<uint16_t *>(s.counts) + warp * n_bins;
}

/* Calls visit(frame, bin, rank in its bin) for the warp's frames without a hit; counts go up as they pass. */
template <typename Visit> static __device__ __forceinline__ void count_run(const Shared &s, int n_frames, Visit visit)
{
        const int lane = threadIdx.x & 31;
        uint16_t *counts = counts_of(s, threadIdx.x >> 5);
        const Run run = run_of(n_frames);
        for (int base = run.begin; base < run.end; base += 32) {
                const int f = base + lane;
                const int bin = f < run.end ? s.bins[f] : taken;
                const unsigned same = __match_any_sync(0xffffffffu, bin);
                if (bin != taken) {
                        const int before = __popc(same & ((1u << lane) - 1));
                        visit(f, counts[bin] + before);
                }
                __syncwarp();
                if (bin != taken && lane == __ffs(same) - 1)
                        counts[bin] += (uint16_t)__popc(same);
                __syncwarp();
        }
}

/* Fills s.leaving with frames, those longest unused first, as many as are wanted or there are; returns their number. */
static __device__ __forceinline__ uint32_t rank_frames(const Shared &s, int n_frames, uint32_t wanted, uint32_t *sums)
{
        for (int i = threadIdx.x; i < n_warps * n_bins / 2; i += n_threads)
                s.counts[i] = 0;
        __syncthreads();
        count_run(s, n_frames, [](int, int) {});
        __syncthreads();
        /* Two bins to a word, a word to a thread: frames of earlier bins and earlier warps come before a warp's. */
        uint32_t before_all = 0;
        for (int base = 0; base < n_bins / 2; base += n_threads) {
                const int word = base + threadIdx.x;
                uint32_t low = 0, high = 0;
                if (word < n_bins / 2)
#pragma unroll
                        for (int w = 0; w < n_warps; w++) {
                                const uint32_t pair = s.counts[w * (n_bins / 2) + word];
                                low += pair & 0xffff;
                                high += pair >> 16;
                        }
                uint32_t total;
                uint32_t at = before_all + block_prefix(low + high, sums, &total), next = at + low;
                if (word < n_bins / 2)
#pragma unroll
                        for (int w = 0; w < n_warps; w++) {
                                const uint32_t pair = s.counts[w * (n_bins / 2) + word];
                                s.counts[w * (n_bins / 2) + word] = at | next << 16;
                                at += pair & 0xffff;
                                next += pair >> 16;
                        }
                before_all += total;
        }
        __syncthreads();
        count_run(s, n_frames, [&](int f, int rank) {
                if ((uint32_t)rank < wanted)
                        s.leaving[rank] = (uint16_t)f;
        });
        __syncthreads();
        return before_all;
}

static __device__ __forceinline__ void write_header(const dci_gpu_resolve_args &args, int sequence,
                                                    const int32_t (&header)[3])
{
#pragma unroll
        for (int j = 0; j < 3; j++)
                args.out_header[j * args.n_sequences + sequence] = header[j];
}

/* Misses take frames in turn, and write items from `items` on; returns how many did. */
template <bool many>
static __device__ __forceinline__ uint32_t place_misses(const dci_gpu_resolve_args &args, const Shared &s, int count,
                                                        dci_gpu_item *items, uint64_t frames, uint32_t n_misses,
                                                        uint32_t now, uint32_t *sums)
{
        if (n_misses == 0 || args.n_frames == 0)
                return 0;
        const int shift = args.unit_shift;
        const uint32_t n_leaving = rank_frames(s, args.n_frames, n_misses, sums);
        const uint32_t n_placed = n_misses < n_leaving ? n_misses : n_leaving;
        for (uint32_t j = threadIdx.x; j < n_placed; j += n_threads) {
                const int at = s.misses[j], f = s.leaving[j], unit = s.positions[at] >> shift;
                args.tags[frames + f] = unit;
                args.stamps[frames + f] = now;
                items[j] = {unit << shift, args.first_slot + (f << shift)};
                set_frame(s, count, shift, at, unit, f);
                if constexpr (many)
                        s.bins[f] = taken;
        }
        __syncthreads();
        return n_placed;
}

/* --- places in a contiguous copy ---------------------------------------------------------------------------------- */

static __device__ __forceinline__ const int32_t *places_at(const dci_gpu_resolve_args &args, int row, int head,
                                                           int chunk)
{
        return reinterpret_cast<const int32_t *>(chunk_part(args.places, row, head, chunk));
}

/* Sorts n keys, all of them different, ascending. There is room for whole powers of two. */
static __device__ __forceinline__ void sort_rows(uint64_t *keys, int n)
{
        const int thread = threadIdx.x;
        if (n <= n_threads) {
                const uint64_t own = thread < n ? keys[thread] : 0;
                int rank = 0;
                for (int i = 0; i < n && thread < n; i++)
                        rank += keys[i] < own;
                __syncthreads();
                if (thread < n)
                        keys[rank] = own;
                __syncthreads();
                return;
        }
        const int whole = power_of_two(n);
        for (int i = n + thread; i < whole; i += n_threads)
                keys[i] = ~0ull;
        for (int size = 2; size <= whole; size *= 2)
                for (int stride = size / 2; stride > 0; stride /= 2) {
                        __syncthreads();
                        for (int pair = thread; pair < whole / 2; pair += n_threads) {
                                const int i = 2 * pair - (pair & (stride - 1)), j = i + stride;
                                const uint64_t a = keys[i], b = keys[j];
                                if ((a > b) == ((i & size) == 0)) {
                                        keys[i] = b;
                                        keys[j] = a;
                                }
                        }
                }
        __syncthreads();
}

/* Replaces the list's positions by the rows of its candidates, ascending, and returns how many have one; the others are
 * read in the pool, and counted. */
static __device__ __forceinline__ int find_places(const dci_gpu_resolve_args &args, const Shared &s, int row, int head,
                                                  uint64_t list, int count, int n_places, int early, uint32_t *stayed)
{
        const int thread = threadIdx.x;
        const int32_t *positions = args.positions + list * args.stride;
        int n_stayed = 0;
        for (int e = thread; e < count; e += n_threads) {
                const int position = e == thread ? early : __ldca(positions + e), candidate = position - args.sink,
                          chunk = candidate / DCI_GPU_CHUNK;
                int place = -1;
                if (candidate >= 0 && candidate < n_places)
                        place = __ldcg((chunk < n_early ? s.chunks[chunk] : places_at(args, row, head, chunk)) +
                                       candidate % DCI_GPU_CHUNK);
                /* Different keys also where there is no place: these come last. */
                s.keys[e] = (uint64_t)(uint32_t)place << 16 | (uint32_t)e;
                if (place < 0) {
                        args.out_slots[list * args.stride + e] = ~position;
                        n_stayed++;
                }
        }
        const int of_warp = __reduce_add_sync(0xffffffffu, n_stayed);
        if ((thread & 31) == 0 && of_warp > 0)
                atomicAdd(stayed, (uint32_t)of_warp);
        __syncthreads();
        const int n = count - (int)*stayed;
        sort_rows(s.keys, count);
        for (int i = thread; i < n; i += n_threads) {
                s.positions[i] = (int32_t)(s.keys[i] >> 16);
                s.order[i] = (uint16_t)s.keys[i];
                s.frame[i] = -1;
        }
        return n;
}

/* Writes the slots of the list's entries; returns how many of this thread's are read in the pool. */
template <bool placed>
static __device__ __forceinline__ int put_slots(const dci_gpu_resolve_args &args, const Shared &s, uint64_t list,
                                                int count)
{
        const int shift = args.unit_shift;
        const int32_t *positions = args.positions + list * args.stride;
        int n_stayed = 0;
        for (int e = threadIdx.x; e < count; e += n_threads) {
                const int at = s.positions[e], f = s.frame[e], entry = placed ? s.order[e] : e;
                const int position = placed && f < 0 ? __ldca(positions + entry) : at;
                args.out_slots[list * args.stride + entry] =
                        f >= 0 ? args.first_slot + (f << shift) + (at & ((1 << shift) - 1)) : ~position;
                n_stayed += f < 0;
        }
        return n_stayed;
}

/* What a list adds to its lane's counters. */
struct Counts {
        uint32_t asked, placed, stayed;
};

/* One list. `held`, `early` and `count`: of this thread, the first frame and the list's first entry; and its length. */
template <bool placed, bool many>
static __device__ __forceinline__ Counts resolve_list(const dci_gpu_resolve_args &args, const Shared &s, int row,
                                                      int head, uint64_t list, uint64_t frames, Held held, int early,
                                                      int count, int n_places, uint32_t now, dci_gpu_item *items,
                                                      bool later, uint32_t *sums, uint32_t *stayed)
{
        const int thread = threadIdx.x;
        if (thread == 0) {
                *stayed = 0;
                args.out_counts[list] = count;
        }
        if constexpr (placed) {
                __syncthreads();
                count = find_places(args, s, row, head, list, count, n_places, early, stayed);
        } else {
                const int32_t *positions = args.positions + list * args.stride;
                for (int e = thread; e < count; e += n_threads) {
                        s.positions[e] = e == thread ? early : __ldca(positions + e);
                        s.frame[e] = -1;
                }
        }
        __syncthreads();
        const int shift = args.unit_shift;
        find_hits<many>(s, count, shift, args.n_frames, held, args.tags + frames, args.stamps + frames, now, later);
        __syncthreads();
        Counts counts;
        const uint32_t n_misses = collect_misses(s, count, shift, sums, &counts.asked);
        __syncthreads();
        counts.placed = place_misses<many>(args, s, count, items, frames, n_misses, now, sums);
        const int n_stayed = put_slots<placed>(args, s, list, count);
        if (counts.placed < n_misses) { /* the same for all threads */
                const int of_warp = __reduce_add_sync(0xffffffffu, n_stayed);
                if ((thread & 31) == 0 && of_warp > 0)
                        atomicAdd(stayed, (uint32_t)of_warp);
                __syncthreads();
        }
        counts.stayed = *stayed; /* of thread 0, which alone uses it, in time */
        return counts;
}

/* The lane's other lists, one after the other. */
template <bool placed>
static __device__ __forceinline__ Counts resolve_others(const dci_gpu_resolve_args &args, const Shared &s, int row,
                                                        int head, uint64_t first, uint64_t frames, int n_places,
                                                        uint32_t now, dci_gpu_item *items, Counts counts,
                                                        uint32_t *sums, uint32_t *stayed)
{
        const int thread = threadIdx.x;
        for (int l = 1; l < args.head_lists; l++) {
                const uint64_t list = first + l;
                __syncthreads(); /* the list before has been read, and its frames are written */
                const Held held = held_at(args.tags + frames, args.stamps + frames, thread, args.n_frames);
                const int early = thread < args.stride ? __ldca(args.positions + list * args.stride + thread) : 0;
                const int count = __ldca(args.counts + list);
                const Counts more =
                        resolve_list<placed, true>(args, s, row, head, list, frames, held, early, count, n_places, now,
                                                   items + counts.placed, true, sums, stayed);
                counts.asked += more.asked;
                counts.placed += more.placed;
                counts.stayed += more.stayed;
        }
        return counts;
}

/* many: a kv head has several lists. */
template <bool placed, bool many>
static __global__ void __launch_bounds__(n_threads) resolve_kernel(const __grid_constant__ dci_gpu_resolve_args args)
{
        PTX_DYNAMIC_SHARED(16, unsigned char, base);
        __shared__ uint32_t sums[n_warps], stayed;
        const int head = blockIdx.x, sequence = blockIdx.y, thread = threadIdx.x;
        const uint64_t lane = (uint64_t)sequence * args.n_heads + head, list = many ? lane * args.head_lists : lane;
        const int32_t *positions = args.positions + list * args.stride;
        /* What earlier steps left is on its way before the plan is there; no kernel between them writes it. */
        const uint32_t now = __ldcg(args.now);
        const int row = __ldcg(args.rows + sequence);
        const uint64_t held = (uint64_t)row * args.n_heads + head, frames = held * args.n_frames;
        const Held first = held_at(args.tags + frames, args.stamps + frames, thread, args.n_frames);
        const Shared s = shared_of(base, args.stride, args.n_frames);
        const int n_places = placed ? __ldcg(args.n_places + sequence) : 0;
        if constexpr (placed)
                for (int c = thread; c < n_early && c * DCI_GPU_CHUNK < n_places; c += n_threads)
                        s.chunks[c] = places_at(args, row, head, c);
        ptx_take_turn();
        /* All of this is on its way at the same time. */
        const int32_t early = thread < args.stride ? __ldca(positions + thread) : 0;
        const int count = __ldca(args.counts + list);
        const int32_t header[3] = {__ldca(args.sink_end + sequence), __ldca(args.recent_begin + sequence),
                                   __ldca(args.n_tokens + sequence)};
        dci_gpu_item *items = args.items + list * args.stride;
        Counts counts = resolve_list<placed, many>(args, s, row, head, list, frames, first, early, count, n_places, now,
                                                   items, false, sums, &stayed);
        if constexpr (many)
                counts = resolve_others<placed>(args, s, row, head, list, frames, n_places, now, items, counts, sums,
                                                &stayed);
        if (thread == 0) {
                args.n_items[lane] = (int32_t)counts.placed;
                args.counters[3 * held] += counts.asked;
                args.counters[3 * held + 1] += counts.placed;
                args.counters[3 * held + 2] += counts.stayed;
                if (head == 0)
                        write_header(args, sequence, header);
        }
}

static size_t shared_of_kernel(int32_t stride, int32_t n_frames, bool placed)
{
        return shared_bytes(stride, n_frames) + (placed ? placed_bytes(stride) : 0);
}

extern "C" size_t dci_gpu_cuda_resolve_bytes(int32_t stride, int32_t n_frames, bool placed)
{
        return shared_of_kernel(stride, n_frames, placed) + 1024;
}

/* One block for each change. */
static __global__ void __launch_bounds__(128) forget_kernel(const __grid_constant__ dci_gpu_forget_args args)
{
        ptx_take_turn();
        const int lane = args.changes[2 * blockIdx.x], page = args.changes[2 * blockIdx.x + 1];
        int32_t *tags = args.tags + (uint64_t)lane * args.n_frames;
        for (int f = threadIdx.x; f < args.n_frames; f += 128)
                if (tags[f] >= 0 && tags[f] >> args.shift == page)
                        tags[f] = -1;
}

extern "C" dci_status dci_gpu_cuda_forget(struct dci_gpu *gpu, void *stream, const dci_gpu_forget_args *args)
{
        (void)gpu;
        if (args->n == 0 || args->n_frames == 0)
                return DCI_OK;
        return dci_gpu_cuda_status(
                launch_kernel(stream_of(nullptr, stream), dim3((unsigned)args->n), 128, 0, forget_kernel, *args),
                "%d pages cannot be forgotten", args->n);
}

extern "C" dci_status dci_gpu_cuda_resolve(struct dci_gpu *gpu, void *stream, const dci_gpu_resolve_args *args)
{
        const dci_gpu_cuda *cuda = dci_gpu_cuda_of(gpu);
        if (args->n_sequences <= 0 || args->n_heads <= 0)
                return DCI_OK;
        if (args->n_sequences > 65535 || args->n_frames > DCI_GPU_MAX_FRAMES || args->stride > DCI_GPU_MAX_LIST)
                return dci_fail(DCI_ERR_LIMIT,
                                "%d sequences, %d frames and lists of %d: the device's kernel takes 65535, %d and %d",
                                args->n_sequences, args->n_frames, args->stride, DCI_GPU_MAX_FRAMES, DCI_GPU_MAX_LIST);
        const bool placed = args->n_places != nullptr;
        const size_t shared = shared_of_kernel(args->stride, args->n_frames, placed);
        if (shared + 1024 > cuda->shared_bytes)
                return dci_fail(DCI_ERR_LIMIT,
                                "%d frames and lists of %d need %zu bytes of shared memory, this GPU has %zu",
                                args->n_frames, args->stride, shared + 1024, cuda->shared_bytes);
        const bool many = args->head_lists > 1;
        const auto kernel = placed ? many ? resolve_kernel<true, true> : resolve_kernel<true, false>
                            : many ? resolve_kernel<false, true>
                                   : resolve_kernel<false, false>;
        return dci_gpu_cuda_status(launch_shared(stream_of(cuda, stream),
                                                 dim3((unsigned)args->n_heads, (unsigned)args->n_sequences), n_threads,
                                                 shared, kernel, *args),
                                   "residency of %d lists cannot be queued", args->n_sequences * args->n_heads);
}
