/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* New tokens: to the lanes, the pool on the device, resident pages and the pool in host memory (append), or in whole
 * blocks for a copy (pack); and where pages are (reside). */
#include "gpu/cuda/launch.cuh"
#include "gpu/cuda/ptx.cuh"
#include "gpu/cuda/rows.cuh"

constexpr int warps_per_block = 8;
constexpr int max_sequences = 4096; /* whose numbers fit into a block's shared memory */

/* Which 16-bit elements of a word are NaN or infinity: all bits of the exponent are set. */
static __device__ __forceinline__ bool has_bad(uint4 x, uint32_t exponent)
{
        const uint32_t bad = __vcmpeq2(x.x & exponent, exponent) | __vcmpeq2(x.y & exponent, exponent) |
                             __vcmpeq2(x.z & exponent, exponent) | __vcmpeq2(x.w & exponent, exponent);
        return bad != 0;
}

/* Where one row goes; key NULL: nowhere. */
struct Targets {
        RowPair sink, ring, device, host;
};

static __device__ __forceinline__ Targets targets_of(const dci_gpu_append_args &args, int sequence, int row,
                                                     int position, int n_after, int head)
{
        Targets to = {};
        const dci_gpu_lanes &lanes = args.lanes;
        if (lanes.keys != nullptr) {
                if (position < lanes.sink)
                        to.sink = lane_rows(lanes, row, args.n_heads, head, position);
                /* Of a call's tokens that share a slot only the last may write it. */
                if (position >= n_after - lanes.ring)
                        to.ring = lane_rows(lanes, row, args.n_heads, head, lanes.sink + (position & (lanes.ring - 1)));
        }
        const int32_t *table = args.tables.blocks + (uint64_t)row * args.tables.stride;
        if (args.device.pieces != nullptr) {
                const int shift = args.device.page_shift;
                to.device = pool_rows(args.device, table[position >> shift], head, position & ((1 << shift) - 1));
        } else if (args.resident.pages != nullptr) {
                const int shift = args.host.page_shift, place = args.resident.places[table[position >> shift]];
                if (place >= 0)
                        to.device = rows_at(args.host, page_at(args.resident, args.host, place), head,
                                            position & ((1 << shift) - 1));
        }
        if (args.host.pieces != nullptr) {
                const int shift = args.host.page_shift, block = position >> shift;
                const bool skipped = args.host_skip != nullptr && block >= args.host_skip[2 * sequence] &&
                                     block < args.host_skip[2 * sequence + 1];
                if (!skipped)
                        to.host = pool_rows(args.host, table[block], head, position & ((1 << shift) - 1));
        }
        return to;
}

static __device__ __forceinline__ void store(RowPair to, bool is_key, uint32_t at, uint4 x)
{
        if (to.key != nullptr)
                *reinterpret_cast<uint4 *>((is_key ? to.key : to.value) + at) = x;
}

/* One warp for a token and head. */
static __global__ void __launch_bounds__(32 * warps_per_block)
        append_kernel(const __grid_constant__ dci_gpu_append_args args, uint32_t key_bytes, uint32_t value_bytes)
{
        PTX_DYNAMIC_SHARED(4, int32_t, batch); /* rows, first, n_new, begin: no kernel writes them */
        const int n = args.batch.n;
        for (int i = threadIdx.x; i < n; i += blockDim.x) {
                batch[i] = __ldcg(args.batch.rows + i);
                batch[n + i] = __ldcg(args.batch.first + i);
                batch[2 * n + i] = __ldcg(args.batch.n_new + i);
                batch[3 * n + i] = __ldcg(args.batch.begin + i);
        }
        __syncthreads();
        ptx_take_turn();
        const int lane = threadIdx.x & 31, n_warps = gridDim.x * warps_per_block;
        const int64_t n_pairs = (int64_t)args.batch.n_tokens * args.n_heads;
        const uint32_t exponent = args.dtype == DCI_F16 ? 0x7c007c00u : 0x7f807f80u;
        for (int64_t pair = (int64_t)blockIdx.x * warps_per_block + (threadIdx.x >> 5); pair < n_pairs;
             pair += n_warps) {
                const int token = (int)(pair / args.n_heads), head = (int)(pair % args.n_heads);
                int sequence = -1;
                for (int base = 0; base < n && sequence < 0; base += 32) {
                        const int i = base + lane;
                        const bool mine =
                                i < n && token >= batch[3 * n + i] && token - batch[3 * n + i] < batch[2 * n + i];
                        const unsigned found = __ballot_sync(0xffffffffu, mine);
                        if (found != 0)
                                sequence = base + __ffs(found) - 1;
                }
                if (sequence < 0)
                        continue;
                const int row = batch[sequence], first = batch[n + sequence];
                const int position = first + token - batch[3 * n + sequence];
                const Targets to = targets_of(args, sequence, row, position, first + batch[2 * n + sequence], head);
                const unsigned char *key =
                        args.keys + (uint64_t)token * args.key_token + (uint64_t)head * args.key_head;
                const unsigned char *value =
                        args.values + (uint64_t)token * args.value_token + (uint64_t)head * args.value_head;
                bool bad = false;
#pragma unroll 2
                for (uint32_t at = 16 * lane; at < key_bytes + value_bytes; at += 512) {
                        const bool is_key = at < key_bytes;
                        const uint32_t byte = is_key ? at : at - key_bytes;
                        const uint4 x = __ldca(reinterpret_cast<const uint4 *>((is_key ? key : value) + byte));
                        bad |= has_bad(x, exponent);
                        store(to.sink, is_key, byte, x);
                        store(to.ring, is_key, byte, x);
                        store(to.device, is_key, byte, x);
                        store(to.host, is_key, byte, x);
                }
                if (__any_sync(0xffffffffu, bad) && lane == 0)
                        args.bad[row] = 1;
        }
}

/* Threads of a block write one head's part of a page from end to end; each issues four loads before its first store. */
static __global__ void __launch_bounds__(256) pack_kernel(const __grid_constant__ dci_gpu_pack_args args)
{
        constexpr int depth = 4;
        const uint32_t page = 1u << args.page_shift, key_vectors = args.key_bytes / 16,
                       value_vectors = args.value_bytes / 16;
        const uint32_t n_keys = page * key_vectors, n_vectors = n_keys + page * value_vectors;
        const int64_t n_parts = (int64_t)args.n_blocks * args.n_heads;
        for (int64_t part = blockIdx.x; part < n_parts; part += gridDim.x) {
                const uint64_t block = (uint64_t)(part / args.n_heads), head = (uint64_t)(part % args.n_heads);
                const uint64_t token = (uint64_t)args.token + (block << args.page_shift);
                unsigned char *to = args.out + block * args.block_bytes + head * args.head_bytes;
                uint4 *out_keys = reinterpret_cast<uint4 *>(to),
                      *out_values = reinterpret_cast<uint4 *>(to + args.value_at);
                const unsigned char *keys = args.keys + token * args.key_token + head * args.key_head;
                const unsigned char *values = args.values + token * args.value_token + head * args.value_head;
                for (uint32_t base = threadIdx.x; base < n_vectors; base += depth * 256) {
                        uint4 x[depth];
#pragma unroll
                        for (int d = 0; d < depth; d++) {
                                const uint32_t v = base + d * 256;
                                if (v >= n_vectors)
                                        continue;
                                const bool is_key = v < n_keys;
                                const uint32_t w = is_key ? v : v - n_keys,
                                               of_row = is_key ? key_vectors : value_vectors;
                                const unsigned char *from =
                                        (is_key ? keys : values) +
                                        (w / of_row) * (is_key ? args.key_token : args.value_token) +
                                        (w % of_row) * 16u;
                                x[d] = __ldca(reinterpret_cast<const uint4 *>(from));
                        }
#pragma unroll
                        for (int d = 0; d < depth; d++) {
                                const uint32_t v = base + d * 256;
                                if (v < n_keys)
                                        out_keys[v] = x[d];
                                else if (v < n_vectors)
                                        out_values[v - n_keys] = x[d];
                        }
                }
        }
}

/* One thread for each page that comes or leaves. */
static __global__ void __launch_bounds__(256) reside_kernel(const __grid_constant__ dci_gpu_reside_args args)
{
        const int i = blockIdx.x * 256 + threadIdx.x;
        if (i < args.n)
                args.places[args.changes[2 * i]] = args.changes[2 * i + 1];
}

/* What a row has, as its first target has it; all have the same. */
static uint32_t bytes_of(const dci_gpu_append_args *args, bool keys)
{
        if (args->lanes.keys != nullptr)
                return keys ? args->lanes.key_bytes : args->lanes.value_bytes;
        const dci_gpu_pool &pool = args->device.pieces != nullptr ? args->device : args->host;
        return keys ? pool.key_bytes : pool.value_bytes;
}

extern "C" dci_status dci_gpu_cuda_append(struct dci_gpu *gpu, void *stream, const dci_gpu_append_args *args)
{
        if (args->batch.n > max_sequences)
                return dci_fail(DCI_ERR_LIMIT, "a call has %d sequences, the device's kernel takes %d", args->batch.n,
                                max_sequences);
        const uint64_t n_pairs = (uint64_t)args->batch.n_tokens * (uint64_t)args->n_heads;
        if (n_pairs == 0 || args->batch.n == 0)
                return DCI_OK;
        const dci_gpu_cuda *cuda = dci_gpu_cuda_of(gpu);
        const dim3 grid = blocks_for((n_pairs + warps_per_block - 1) / warps_per_block, cuda->multiprocessors, 8);
        const size_t shared = (size_t)args->batch.n * 16;
        const GpuStream on = stream_of(cuda, stream);
        const uint32_t key = bytes_of(args, true), value = bytes_of(args, false);
        const cudaError_t error =
                shared > 48u << 10
                        ? launch_shared(on, grid, 32 * warps_per_block, shared, append_kernel, *args, key, value)
                        : launch_kernel(on, grid, 32 * warps_per_block, shared, append_kernel, *args, key, value);
        return dci_gpu_cuda_status(error, "append of %d tokens cannot be queued", args->batch.n_tokens);
}

extern "C" dci_status dci_gpu_cuda_pack(struct dci_gpu *gpu, void *stream, const dci_gpu_pack_args *args)
{
        const uint64_t n_parts = (uint64_t)args->n_blocks * (uint64_t)args->n_heads;
        if (n_parts == 0)
                return DCI_OK;
        const dim3 grid = blocks_for(n_parts, dci_gpu_cuda_of(gpu)->multiprocessors, 8);
        return dci_gpu_cuda_status(launch_kernel(stream_of(nullptr, stream), grid, 256, 0, pack_kernel, *args),
                                   "packing of %d blocks cannot be queued", args->n_blocks);
}

extern "C" dci_status dci_gpu_cuda_reside(struct dci_gpu *gpu, void *stream, const dci_gpu_reside_args *args)
{
        (void)gpu;
        if (args->n == 0)
                return DCI_OK;
        const dim3 grid = (unsigned)((args->n + 255) / 256);
        return dci_gpu_cuda_status(launch_kernel(stream_of(nullptr, stream), grid, 256, 0, reside_kernel, *args),
                                   "places of %d pages cannot be queued", args->n);
}
