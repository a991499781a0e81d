/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Rows and pages from a pool, as a rule in mapped host memory, into hot slots.
 *
 * The bus answers after a microsecond or more, so what counts is how many bytes are requested before the first answer:
 * 55 GB/s times 2 us are 110 KB. A thread first works out where its vectors are (items, table, piece: three reads that
 * depend on each other), then requests them all. With resident pages a unit's place is requested together with its
 * piece, so the chain of reads is no longer. Other ways: docs/experiments.md. */
#include "gpu/cuda/launch.cuh"
#include "gpu/cuda/ptx.cuh"
#include "gpu/cuda/rows.cuh"

/* Vectors of a thread that are in flight together, and threads of a block. */
constexpr int depth = 2;
constexpr int n_threads = 256;

/* A list's work, in what is moved at once. */
struct List {
        const dci_gpu_item *items;
        uint32_t n_items;
        int row, head;
};

/* Volatile, so that it is requested here, not where it is first used. */
static __device__ __forceinline__ int32_t load_now(const int32_t *from)
{
        return ptx_load_int(from);
}

static __device__ __forceinline__ List list_of(const dci_gpu_gather_args &args, int l)
{
        List list;
        list.items = args.items + (uint64_t)l * args.item_stride;
        list.n_items = (uint32_t)load_now(args.n_items + (uint64_t)l * args.n_items_stride);
        list.row = load_now(args.rows + l / args.n_heads);
        list.head = l % args.n_heads;
        return list;
}

struct Route {
        const unsigned char *from;
        unsigned char *to;
};

/* Vectors of a list from end to end over the threads of its blocks: neighbours in a warp take neighbours in a row. */
struct Span {
        uint32_t key_vectors, of_unit, n_vectors, first, stride, lane; /* first: of the warp */
};

static __device__ __forceinline__ Span span_of(const dci_gpu_gather_args &args, const List &list)
{
        Span span;
        span.key_vectors = (args.lanes.key_bytes >> 4) << args.unit_shift;
        span.of_unit = span.key_vectors + ((args.lanes.value_bytes >> 4) << args.unit_shift);
        span.n_vectors = list.n_items * span.of_unit;
        span.lane = threadIdx.x & 31;
        span.first = blockIdx.x * blockDim.x + threadIdx.x - span.lane;
        span.stride = gridDim.x * blockDim.x;
        return span;
}

static __device__ __forceinline__ Route route_of(const dci_gpu_gather_args &args, const List &list, int2 item,
                                                 int block, unsigned char *piece, bool is_key, uint32_t at)
{
        const int slot = item.x & ((1 << args.pool.page_shift) - 1);
        const RowPair from = block_rows(args.pool, piece, block, list.head, slot);
        const RowPair to = lane_rows(args.lanes, list.row, args.n_heads, list.head, item.y);
        return {(is_key ? from.key : from.value) + at, (is_key ? to.key : to.value) + at};
}

static __device__ __forceinline__ const int32_t *table_of(const dci_gpu_gather_args &args, const List &list)
{
        return args.tables.blocks + (uint64_t)list.row * args.tables.stride;
}

static __device__ __forceinline__ unsigned char *piece_of(const dci_gpu_pool &pool, int block)
{
        return reinterpret_cast<unsigned char *>(
                __ldca(reinterpret_cast<const unsigned long long *>(pool.pieces) + (block >> pool.block_shift)));
}

static __device__ __forceinline__ void count_taken(const dci_gpu_gather_args &args, const List &list)
{
        atomicAdd(reinterpret_cast<unsigned long long *>(args.resident.taken) + list.row * args.n_heads + list.head,
                  1ull);
}

/* The compiler would finish one chain of reads before the next; it moves none past this. All lanes get here. */
static __device__ __forceinline__ void phase()
{
        __syncwarp();
}

/* The same from a resident page, if the block has a place. */
static __device__ __forceinline__ Route route_near(const dci_gpu_gather_args &args, const List &list, int2 item,
                                                   int block, unsigned char *piece, int place, bool is_key, uint32_t at)
{
        const int in_piece = block & ((1 << args.pool.block_shift) - 1);
        unsigned char *page = place >= 0 ? args.resident.pages : piece + args.pool.layer_at;
        page += (uint64_t)(place >= 0 ? place : in_piece) * args.pool.block_bytes;
        const RowPair from = rows_at(args.pool, page, list.head, item.x & ((1 << args.pool.page_shift) - 1));
        const RowPair to = lane_rows(args.lanes, list.row, args.n_heads, list.head, item.y);
        return {(is_key ? from.key : from.value) + at, (is_key ? to.key : to.value) + at};
}

/* Vectors base, base + stride, ... of a thread: each of the three reads for all before the next: they wait together. */
template <bool resident> struct Finder {
        int2 items[depth]; /* position, slot */
        uint32_t in_unit[depth];

        /* Before it is known how many items there are: what follows them is read, too, and not used. */
        __device__ __forceinline__ void ask(const dci_gpu_gather_args &args, const List &list, const Span &span,
                                            uint32_t base)
        {
#pragma unroll
                for (int d = 0; d < depth; d++) {
                        const uint32_t vector = base + d * span.stride + span.lane, item = vector / span.of_unit;
                        in_unit[d] = vector - item * span.of_unit;
                        items[d] = __ldca(
                                reinterpret_cast<const int2 *>(list.items + min(item, (uint32_t)args.max_items - 1)));
                }
        }

        __device__ __forceinline__ void find(const dci_gpu_gather_args &args, const List &list, const Span &span,
                                             uint32_t base, Route (&route)[depth]) const
        {
                int blocks[depth], places[depth];
                unsigned char *pieces[depth];
                const int32_t *table = table_of(args, list);
                phase();
#pragma unroll
                for (int d = 0; d < depth; d++)
                        blocks[d] = base + d * span.stride + span.lane < span.n_vectors
                                            ? __ldca(table + (items[d].x >> args.pool.page_shift))
                                            : 0;
                phase();
#pragma unroll
                for (int d = 0; d < depth; d++) {
                        pieces[d] = piece_of(args.pool, blocks[d]);
                        if constexpr (resident)
                                places[d] = __ldca(args.resident.places + blocks[d]);
                }
                phase();
#pragma unroll
                for (int d = 0; d < depth; d++) {
                        const bool is_key = in_unit[d] < span.key_vectors;
                        const uint32_t at = 16 * (is_key ? in_unit[d] : in_unit[d] - span.key_vectors);
                        if constexpr (resident) {
                                route[d] =
                                        route_near(args, list, items[d], blocks[d], pieces[d], places[d], is_key, at);
                                if (places[d] >= 0 && in_unit[d] == 0 &&
                                    base + d * span.stride + span.lane < span.n_vectors)
                                        count_taken(args, list);
                        } else {
                                route[d] = route_of(args, list, items[d], blocks[d], pieces[d], is_key, at);
                        }
                }
        }
};

/* With resident pages: registers for five blocks of a multiprocessor, which the launch counts on. */
template <bool resident>
static __global__ void __launch_bounds__(resident ? n_threads : 2 * n_threads, resident ? 5 : 0)
        gather_rows(const __grid_constant__ dci_gpu_gather_args args)
{
        ptx_take_turn();
        const List list = list_of(args, blockIdx.y);
        const Span span = span_of(args, list);
        Finder<resident> finder;
        finder.ask(args, list, span, span.first);
        for (uint32_t base = span.first; base < span.n_vectors; base += depth * span.stride) {
                Route route[depth];
                uint4 x[depth];
                finder.find(args, list, span, base, route);
                finder.ask(args, list, span, base + depth * span.stride);
#pragma unroll
                for (int d = 0; d < depth; d++)
                        if (base + d * span.stride + span.lane < span.n_vectors)
                                x[d] = ptx_load16_once_256(route[d].from);
#pragma unroll
                for (int d = 0; d < depth; d++)
                        if (base + d * span.stride + span.lane < span.n_vectors)
                                *reinterpret_cast<uint4 *>(route[d].to) = x[d];
        }
}

extern "C" dci_status dci_gpu_cuda_gather(struct dci_gpu *gpu, void *stream, const dci_gpu_gather_args *args)
{
        const dci_gpu_cuda *cuda = dci_gpu_cuda_of(gpu);
        const uint64_t n_lists = (uint64_t)args->n_sequences * (uint64_t)args->n_heads;
        if (n_lists == 0 || args->max_items <= 0)
                return DCI_OK;
        if (n_lists > DCI_GPU_MAX_LISTS)
                return dci_fail(DCI_ERR_LIMIT, "a gather has %llu lists, the device's kernel takes %d",
                                (unsigned long long)n_lists, DCI_GPU_MAX_LISTS);
        /* Blocks of a list: enough for the most items that it may have, as long as all are resident together. */
        const bool near = args->resident.pages != nullptr;
        const uint64_t vectors = (uint64_t)args->max_items *
                                 (((uint64_t)args->lanes.key_bytes + args->lanes.value_bytes) / 16 << args->unit_shift);
        const uint64_t wanted = (vectors + n_threads * depth - 1) / (n_threads * depth);
        const uint64_t room = (uint64_t)cuda->multiprocessors * (near ? 5 : 6) / n_lists;
        const uint64_t n_blocks = wanted < room ? wanted : room;
        return dci_gpu_cuda_status(launch_kernel(stream_of(cuda, stream),
                                                 dim3(n_blocks > 0 ? (unsigned)n_blocks : 1, (unsigned)n_lists),
                                                 n_threads, 0, near ? gather_rows<true> : gather_rows<false>, *args),
                                   "a gather for %llu lists cannot be queued", (unsigned long long)n_lists);
}
