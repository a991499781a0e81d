/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Keys and candidates in order, and what a list becomes. */
#ifndef DCI_GPU_CUDA_SELECT_SELECT_ORDER_CUH
#define DCI_GPU_CUDA_SELECT_SELECT_ORDER_CUH

#include "gpu/cuda/select/select.cuh"

/* The first n keys, greatest first: a few find their places by counting; more by a bitonic network over the next power
 * of two, for which there must be room. */
static __device__ __forceinline__ void sort_keys(uint64_t *keys, int n)
{
        static_assert(few_keys == n_threads, "a key to a thread");
        const int thread = threadIdx.x;
        if (n <= few_keys) {
                const uint64_t own = thread < n ? keys[thread] : 0;
                int rank = 0;
                for (int i = 0; i < n && thread < n; i++)
                        rank += keys[i] > own;
                __syncthreads();
                if (thread < n)
                        keys[rank] = own;
                __syncthreads();
                return;
        }
        int whole = 2 * few_keys;
        while (whole < n)
                whole *= 2;
        for (int i = n + thread; i < whole; i += n_threads)
                keys[i] = 0;
        for (int size = 2; size <= whole; size *= 2)
                for (int stride = size / 2; stride > 0; stride /= 2) {
                        __syncthreads();
                        for (int pair = thread; pair < whole / 2; pair += n_threads) {
                                const int i = 2 * pair - (pair & (stride - 1)), j = i + stride;
                                const uint64_t a = keys[i], b = keys[j];
                                if ((a < b) == ((i & size) == 0)) {
                                        keys[i] = b;
                                        keys[j] = a;
                                }
                        }
                }
        __syncthreads();
}

/* Turns counts in bins into the begin of each bin, from `first` on. Returns their sum. */
static __device__ __forceinline__ uint32_t begin_bins(Shared &s, uint32_t first)
{
        uint2 *own = reinterpret_cast<uint2 *>(s.bins) + threadIdx.x;
        const uint2 x = *own;
        uint32_t total;
        const uint32_t before = first + block_prefix(x.x + x.y, s.sums, &total);
        *own = make_uint2(before, before + x.x);
        __syncthreads();
        return total;
}

/* Writes n candidates, ascending, as positions: each is compared with each, by two threads. False: some are twice there,
 * or are none (of n different ones, the smaller ones are n (n - 1) / 2 in all). */
static __device__ __forceinline__ bool put_few_in_order(Shared &s, const int32_t *tokens, int n, int n_candidates,
                                                        int sink, int32_t *out)
{
        const int i = threadIdx.x >> 1, half = threadIdx.x & 1, fours = n / 4, middle = (fours + 1) / 2;
        if (threadIdx.x == 0)
                s.smaller = 0;
        __syncthreads(); /* tokens are there */
        const int own = i < n ? tokens[i] : 0, end = i >= n ? 0 : half == 0 ? middle : fours;
        uint32_t before = 0;
#pragma unroll 4
        for (int j = half == 0 ? 0 : middle; j < end; j++) {
                const int4 x = reinterpret_cast<const int4 *>(tokens)[j];
                before += (x.x < own) + (x.y < own) + (x.z < own) + (x.w < own);
        }
        for (int j = 4 * fours + half; j < n && i < n; j += 2)
                before += tokens[j] < own;
        before += __shfl_xor_sync(all_lanes, before, 1);
        const bool writes = i < n && half == 0, is_one = (uint32_t)own < (uint32_t)n_candidates;
        const uint32_t smaller =
                __reduce_add_sync(all_lanes, writes ? before + (is_one ? 0 : n_threads * n_threads) : 0);
        if ((threadIdx.x & 31) == 0 && smaller > 0)
                atomicAdd(&s.smaller, smaller);
        __syncthreads();
        if (s.smaller != (uint32_t)(n * (n - 1) / 2))
                return false;
        if (writes)
                out[before] = sink + own;
        return true;
}

/* Writes n candidates, ascending and each once, as positions; returns how many there are. Many are marked in
 * `bits`, window_words words at most, and counted in bins of as few words as there are bins for. */
static __device__ __forceinline__ uint32_t put_in_order(Shared &s, uint32_t *bits, int32_t *tokens, int n,
                                                        int n_candidates, int sink, int32_t *out)
{
        constexpr int window = window_words * 32;
        uint32_t written = 0;
        if (n <= n_threads / 2 && reinterpret_cast<uintptr_t>(tokens) % 16 == 0 &&
            put_few_in_order(s, tokens, n, n_candidates, sink, out))
                return (uint32_t)n;
        for (int base = 0; base < n_candidates; base += window) {
                const int here = min(n_candidates - base, window);
                int shift = 5;
                while ((here - 1) >> shift >= n_bins)
                        shift++;
                __syncthreads(); /* tokens are there, and bits were read */
                clear_bins(s);
                for (int i = threadIdx.x; i < (here + 127) / 128; i += n_threads)
                        reinterpret_cast<uint4 *>(bits)[i] = make_uint4(0, 0, 0, 0);
                __syncthreads();
                for (int i = threadIdx.x; i < n; i += n_threads) {
                        const uint32_t at = (uint32_t)(tokens[i] - base);
                        if (at >= (uint32_t)here)
                                continue;
                        if (atomicOr(&bits[at >> 5], 1u << (at & 31)) >> (at & 31) & 1)
                                tokens[i] = -1; /* a damaged file may name a token twice */
                        else
                                atomicAdd(&s.bins[at >> shift], 1u);
                }
                __syncthreads();
                const uint32_t total = begin_bins(s, written);
                for (int i = threadIdx.x; i < n; i += n_threads) {
                        const uint32_t at = (uint32_t)(tokens[i] - base), word = at >> 5;
                        if (tokens[i] < base || at >= (uint32_t)here)
                                continue;
                        uint32_t rank = s.bins[at >> shift] + __popc(bits[word] & ((1u << (at & 31)) - 1));
                        for (uint32_t v = at >> shift << (shift - 5); v < word; v++)
                                rank += __popc(bits[v]);
                        out[rank] = sink + tokens[i];
                }
                written += total;
        }
        __syncthreads();
        return written;
}

/* A row's part of what is kept. */
template <typename T>
static __device__ __forceinline__ T *part_of_row(T *first, const dci_gpu_selection_cache &d, int row)
{
        return reinterpret_cast<T *>(reinterpret_cast<unsigned char *>(first) + (uint64_t)row * d.row_bytes);
}

/* Candidates of a list that is kept, best first, as far as there is room; returns how many. */
static __device__ __forceinline__ uint32_t read_kept(Shared &s, const dci_gpu_selection_cache &d, int row, int head,
                                                     int n_candidates, int room, int32_t *tokens)
{
        const int32_t *kept = part_of_row(d.lists, d, row) + (uint64_t)head * d.room;
        const int count = part_of_row(d.counts, d, row)[head];
        uint32_t taken = 0;
        for (int first = 0; first < count && taken < (uint32_t)room; first += n_threads) {
                const int i = first + (int)threadIdx.x, token = i < count ? kept[i] : n_candidates;
                const bool counts = token < n_candidates;
                uint32_t total;
                const uint32_t at = taken + block_prefix(counts, s.sums, &total);
                if (counts && at < (uint32_t)room)
                        tokens[at] = token;
                taken += total;
        }
        __syncthreads();
        return min(taken, (uint32_t)room);
}

/* --- what a list becomes ------------------------------------------------------------------------------------------ */

/* args: of `select` or `reuse`. By one thread. */
template <class A>
static __device__ __forceinline__ void put_header(const A &args, int sequence, const dci_gpu_view &view, int n)
{
        args.sink_end[sequence] = view.sparse ? args.sizes.sink : 0;
        args.recent_begin[sequence] = view.sparse ? args.sizes.sink + view.n_candidates : 0;
        args.after[sequence] = n;
}

/* A list that selects nothing; by one block. */
static __device__ __forceinline__ void put_nothing(const dci_gpu_select_args &args, int list, int row, int head)
{
        if (threadIdx.x == 0) {
                if (args.selection.lists != nullptr)
                        part_of_row(args.selection.counts, args.selection, row)[head] = 0;
                else
                        args.counts[list] = 0;
                if (args.n_ranked != nullptr)
                        args.n_ranked[list] = 0;
        }
}

/* Stores n tokens as they are, or writes them as positions in order. */
static __device__ __forceinline__ void put_tokens(const dci_gpu_select_args &args, Shared &s, uint32_t *bits,
                                                  int32_t *tokens, int n, int n_candidates, int row, int head, int list)
{
        if (args.selection.lists != nullptr) {
                int32_t *kept =
                        part_of_row(args.selection.lists, args.selection, row) + (uint64_t)head * args.selection.room;
                for (int i = threadIdx.x; i < n; i += n_threads)
                        kept[i] = tokens[i];
                if (threadIdx.x == 0)
                        part_of_row(args.selection.counts, args.selection, row)[head] = n;
                return;
        }
        const uint32_t count = put_in_order(s, bits, tokens, n, n_candidates, args.sizes.sink,
                                            args.positions + (uint64_t)list * args.stride);
        if (threadIdx.x == 0)
                args.counts[list] = (int32_t)count;
}

#endif
