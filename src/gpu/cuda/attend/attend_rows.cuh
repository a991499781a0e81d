/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What a block of the attention kernel works on, and where its rows are. */
#ifndef DCI_GPU_CUDA_ATTEND_ATTEND_ROWS_CUH
#define DCI_GPU_CUDA_ATTEND_ATTEND_ROWS_CUH

#include "gpu/cuda/rows.cuh"

#define TILE 16 /* tokens that a warp takes at a time */

/* What a block works on. */
struct Job {
        int list, row, head, total; /* total: tokens of the whole head */
        int first, last;            /* tiles */
        int sink_end, count, recent_begin, n_tokens;
        const int32_t *slots;
};

static __device__ __forceinline__ Job job_of(const dci_gpu_attend_args &a, bool sparse, int n_parts)
{
        Job job;
        job.head = DCI_GPU_HEAD_OF(&a, blockIdx.y);
        job.list = blockIdx.z * gridDim.y + blockIdx.y;
        job.row = __ldcg(a.rows + blockIdx.z);
        job.n_tokens = __ldcg(a.n_tokens + blockIdx.z);
        job.sink_end = job.count = job.recent_begin = 0;
        job.slots = nullptr;
        if (sparse) {
                job.sink_end = __ldcg(a.sink_end + blockIdx.z);
                job.recent_begin = __ldcg(a.recent_begin + blockIdx.z);
                job.count = __ldcg(a.counts + job.list);
                job.slots = a.slots + (int64_t)job.list * a.stride;
        }
        job.total = job.sink_end + job.count + job.n_tokens - job.recent_begin;
        const int tiles = (job.total + TILE - 1) / TILE, per = (tiles + n_parts - 1) / n_parts;
        job.first = min((int)blockIdx.x * per, tiles);
        job.last = min(job.first + per, tiles);
        return job;
}

/* Pages' tables, which no kernel writes, are read by all of a block's warps: through the first-level cache, as what
 * never changes; but past it where it may be the kernel's turn only later. */
static __device__ __forceinline__ int block_of(const dci_gpu_attend_args &a, const Job &job, int position)
{
        const int32_t *at = a.tables.blocks + job.row * a.tables.stride + (position >> a.pool.page_shift);
        return job.slots != nullptr ? __ldcg(at) : __ldg(at);
}

static __device__ __forceinline__ RowPair in_block(const dci_gpu_attend_args &a, const Job &job, int block,
                                                   int position)
{
        const unsigned long long *at =
                reinterpret_cast<const unsigned long long *>(a.pool.pieces) + (block >> a.pool.block_shift);
        const unsigned long long piece = job.slots != nullptr ? __ldcg(at) : __ldg(at);
        return block_rows(a.pool, reinterpret_cast<unsigned char *>(piece), block, job.head,
                          position & ((1 << a.pool.page_shift) - 1));
}

static __device__ __forceinline__ RowPair in_lane(const dci_gpu_attend_args &a, const Job &job, int slot)
{
        return lane_rows(a.lanes, job.row, a.n_heads, job.head, slot);
}

/* Where token `t` of those that are attended to is: its lane's slot, or ~position in the pool. */
static __device__ __forceinline__ int slot_of(const dci_gpu_attend_args &a, const Job &job, int t)
{
        int position = t;
        if (t >= job.sink_end) {
                t -= job.sink_end;
                if (t < job.count)
                        return __ldcg(job.slots + t);
                position = job.recent_begin + t - job.count;
        }
        if (a.lanes.keys != nullptr && position < a.lanes.sink)
                return position;
        if (a.lanes.keys != nullptr && position >= job.n_tokens - a.lanes.ring)
                return a.lanes.sink + (position & (a.lanes.ring - 1));
        return ~position;
}

/* What is looked up of a tile, two tiles ahead: the slot of token lane % 16, or (dense) the blocks of both halves. */
struct Where {
        int first, second;
};

template <bool SPARSE>
static __device__ __forceinline__ Where where_of(const dci_gpu_attend_args &a, const Job &job, int tile, int lane)
{
        const int last = job.total - 1;
        if (SPARSE) /* tokens past the end repeat the last one with weight 0 */
                return {slot_of(a, job, min(tile * TILE + (lane & 15), last)), 0};
        return {block_of(a, job, min(tile * TILE, last)), block_of(a, job, min(tile * TILE + 8, last))};
}

/* The rows that a lane loads of one tile. */
struct Places {
        const unsigned char *keys[2];   /* tokens g and g + 8 */
        const unsigned char *values[4]; /* tokens 2c, 2c + 1, 2c + 8, 2c + 9 */
};

static __device__ __forceinline__ const unsigned char *from_lane(const unsigned char *x, int lane)
{
        return reinterpret_cast<const unsigned char *>(
                __shfl_sync(0xffffffffu, reinterpret_cast<unsigned long long>(x), lane));
}

template <bool SPARSE>
static __device__ __forceinline__ Places places_of(const dci_gpu_attend_args &a, const Job &job, int tile,
                                                   const Where &where, int lane)
{
        const int g = lane >> 2, c = lane & 3;
        Places p;
        if (SPARSE) {
                const int slot = where.first;
                const RowPair own =
                        slot >= 0 ? in_lane(a, job, slot) : in_block(a, job, block_of(a, job, ~slot), ~slot);
                p.keys[0] = from_lane(own.key, g);
                p.keys[1] = from_lane(own.key, g + 8);
#pragma unroll
                for (int u = 0; u < 4; u++)
                        p.values[u] = from_lane(own.value, 2 * c + (u & 1) + 8 * (u >> 1));
        } else {
                /* Half a tile is in one page. */
                const int last = job.total - 1;
#pragma unroll
                for (int h = 0; h < 2; h++) {
                        const int from = min(tile * TILE + 8 * h, last & ~7), most = last - from;
                        const RowPair at = in_block(a, job, h == 0 ? where.first : where.second, from);
                        p.keys[h] = at.key + min(g, most) * a.pool.key_bytes;
                        p.values[2 * h] = at.value + min(2 * c, most) * a.pool.value_bytes;
                        p.values[2 * h + 1] = at.value + min(2 * c + 1, most) * a.pool.value_bytes;
                }
        }
        return p;
}

#endif
