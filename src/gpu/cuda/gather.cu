/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Rows and pages from a pool, as a rule in mapped host memory, into hot slots.
 *
 * The bus answers after a microsecond or more, so what counts is how many bytes are requested before the first answer:
 * 55 GB/s times 2 us are 110 KB. All variants first work out where a unit is (items, table, piece: three reads that
 * depend on each other), then request everything. The variants differ in who waits: registers of threads, shared memory
 * by 16 bytes, or the copy engine of the multiprocessor by whole rows.
 *
 * With resident pages a unit's place is requested together with its piece, so the chain of reads is no longer; one of
 * the variants does it, in a kernel of its own.
 */
#include "gpu/cuda/bulk.cuh"
#include "gpu/cuda/launch.cuh"
#include "gpu/cuda/ptx.cuh"
#include "gpu/cuda/rows.cuh"

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

template <int hint> static __device__ __forceinline__ uint4 load(const unsigned char *from)
{
        if constexpr (hint == 0)
                return ptx_load16_once(from);
        else if constexpr (hint == 1)
                return ptx_load16_once_128(from);
        else if constexpr (hint == 2)
                return ptx_load16_once_256(from);
        else
                return ptx_load16_once_as(from, ptx_leave_first());
}

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

/*
 * The compiler would rather finish one chain of reads before it begins the next; it moves none past this. All lanes of
 * a warp get here.
 */
template <int depth> static __device__ __forceinline__ void phase()
{
        if constexpr (depth > 1)
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

/*
 * Vectors base, base + stride, ... of a thread: each of the three reads for all before the next, so that they wait
 * together.
 */
template <int depth, bool resident = false> struct Finder {
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
                phase<depth>();
#pragma unroll
                for (int d = 0; d < depth; d++)
                        blocks[d] = base + d * span.stride + span.lane < span.n_vectors
                                            ? __ldca(table + (items[d].x >> args.pool.page_shift))
                                            : 0;
                phase<depth>();
#pragma unroll
                for (int d = 0; d < depth; d++) {
                        pieces[d] = piece_of(args.pool, blocks[d]);
                        if constexpr (resident)
                                places[d] = __ldca(args.resident.places + blocks[d]);
                }
                phase<depth>();
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

/* With resident pages: registers for five blocks of 8 warps, which the launch counts on. */
template <int depth, int hint, bool resident = false>
static __global__ void __launch_bounds__(resident ? 256 : 512, resident ? 5 : 0)
        gather_registers(const __grid_constant__ dci_gpu_gather_args args)
{
        ptx_take_turn();
        const List list = list_of(args, blockIdx.y);
        const Span span = span_of(args, list);
        Finder<depth, resident> finder;
        finder.ask(args, list, span, span.first);
        for (uint32_t base = span.first; base < span.n_vectors; base += depth * span.stride) {
                Route route[depth];
                uint4 x[depth];
                finder.find(args, list, span, base, route);
                finder.ask(args, list, span, base + depth * span.stride);
#pragma unroll
                for (int d = 0; d < depth; d++)
                        if (base + d * span.stride + span.lane < span.n_vectors)
                                x[d] = load<hint>(route[d].from);
#pragma unroll
                for (int d = 0; d < depth; d++)
                        if (base + d * span.stride + span.lane < span.n_vectors)
                                *reinterpret_cast<uint4 *>(route[d].to) = x[d];
        }
}

/* Each thread reads back what it requested itself: nobody waits for others. */
template <int depth>
static __global__ void __launch_bounds__(512) gather_shared(const __grid_constant__ dci_gpu_gather_args args)
{
        PTX_DYNAMIC_SHARED(16, uint4, held); /* [depth][threads] */
        ptx_take_turn();
        const List list = list_of(args, blockIdx.y);
        const Span span = span_of(args, list);
        Finder<depth> finder;
        finder.ask(args, list, span, span.first);
        for (uint32_t base = span.first; base < span.n_vectors; base += depth * span.stride) {
                Route route[depth];
                finder.find(args, list, span, base, route);
                finder.ask(args, list, span, base + depth * span.stride);
#pragma unroll
                for (int d = 0; d < depth; d++)
                        if (base + d * span.stride + span.lane < span.n_vectors) {
                                const uint32_t at = shared_address(&held[d * blockDim.x + threadIdx.x]);
                                ptx_copy16_begin(at, route[d].from);
                        }
                ptx_copy16_wait();
#pragma unroll
                for (int d = 0; d < depth; d++)
                        if (base + d * span.stride + span.lane < span.n_vectors)
                                *reinterpret_cast<uint4 *>(route[d].to) = held[d * blockDim.x + threadIdx.x];
        }
}

/* --- whole rows by the copy engine -------------------------------------------------------------------------------- */

/* Keys and values of a unit in pieces of at most most_piece bytes, which a slot of shared memory holds. */
constexpr uint32_t max_piece = 2048;
struct Pieces {
        uint32_t of_keys, of_values, slot_bytes;
};

static __host__ __device__ inline Pieces pieces_of(const dci_gpu_gather_args &args)
{
        const uint32_t keys = args.lanes.key_bytes << args.unit_shift,
                       values = args.lanes.value_bytes << args.unit_shift;
        const uint32_t longest = keys > values ? keys : values;
        return {(keys + max_piece - 1) / max_piece, (values + max_piece - 1) / max_piece,
                longest < max_piece ? longest : max_piece};
}

/*
 * A lane has one slot: it requests a piece, waits with its warp, sends the piece on, and takes the slot again when it
 * has been read.
 */
static __global__ void __launch_bounds__(512)
        gather_bulk(const __grid_constant__ dci_gpu_gather_args args, uint32_t depth)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        PTX_DYNAMIC_SHARED(128, unsigned char, slots); /* [warps][depth][slot_bytes] */
        __shared__ uint64_t barriers[16];
        const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x >> 5, n_warps = gridDim.x * (blockDim.x >> 5);
        const Pieces pieces = pieces_of(args);
        const uint32_t barrier = shared_address(&barriers[warp]);
        const uint32_t slot =
                shared_address(slots + (uint64_t)(warp * depth + (lane < depth ? lane : 0)) * pieces.slot_bytes);
        if (lane == 0) {
                bulk_begin<32>(barrier);
                bulk_fence();
        }
        __syncwarp();
        ptx_take_turn();
        const List list = list_of(args, blockIdx.y);
        const uint32_t of_unit = pieces.of_keys + pieces.of_values, n_pieces = list.n_items * of_unit;
        uint32_t parity = 0;
        for (uint32_t base = (blockIdx.x * (blockDim.x >> 5) + warp) * depth; base < n_pieces;
             base += n_warps * depth) {
                const uint32_t piece = base + lane;
                const bool mine = lane < depth && piece < n_pieces;
                Route route = {};
                uint32_t bytes = 0;
                if (mine) {
                        const uint32_t item = piece / of_unit, in_unit = piece - item * of_unit;
                        const bool is_key = in_unit < pieces.of_keys;
                        const uint32_t at = max_piece * (is_key ? in_unit : in_unit - pieces.of_keys);
                        const uint32_t whole = (is_key ? args.lanes.key_bytes : args.lanes.value_bytes)
                                               << args.unit_shift;
                        bytes = whole - at < max_piece ? whole - at : max_piece;
                        const int2 it = __ldca(reinterpret_cast<const int2 *>(list.items + item));
                        const int block = __ldca(table_of(args, list) + (it.x >> args.pool.page_shift));
                        route = route_of(args, list, it, block, piece_of(args.pool, block), is_key, at);
                        bulk_wait_read();
                        bulk_expect(barrier, bytes);
                        bulk_fetch(slot, route.from, bytes, barrier);
                } else {
                        bulk_arrive(barrier);
                }
                bulk_wait(barrier, parity);
                parity ^= 1;
                if (mine) {
                        bulk_store(route.to, slot, bytes);
                }
        }
        bulk_wait_stored();
#else
        (void)depth; /* the launcher does not come here */
#endif
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

typedef void (*Kernel)(dci_gpu_gather_args);

template <int depth> static Kernel by_hint(int hint)
{
        switch (hint) {
        case 0:
                return gather_registers<depth, 0>;
        case 1:
                return gather_registers<depth, 1>;
        case 2:
                return gather_registers<depth, 2>;
        case 3:
                return gather_registers<depth, 3>;
        default:
                return nullptr;
        }
}

static Kernel kernel_of(const dci_gpu_fetch &fetch)
{
        const bool shared = fetch.how == DCI_GPU_FETCH_SHARED;
        switch (fetch.depth) {
        case 1:
                return shared ? gather_shared<1> : by_hint<1>(fetch.hint);
        case 2:
                return shared ? gather_shared<2> : by_hint<2>(fetch.hint);
        case 4:
                return shared ? gather_shared<4> : by_hint<4>(fetch.hint);
        case 8:
                return shared ? gather_shared<8> : by_hint<8>(fetch.hint);
        default:
                return nullptr;
        }
}

/* Blocks of a list when the caller does not say: enough for its most items, as long as they are resident together. */
static int blocks_of(const dci_gpu_cuda *cuda, uint64_t n_pieces, uint64_t per_block, uint64_t n_lists, int warps,
                     int max_warps)
{
        const uint64_t wanted = (n_pieces + per_block - 1) / per_block;
        const uint64_t room = (uint64_t)cuda->multiprocessors * (max_warps / warps) / n_lists;
        const uint64_t n = wanted < room ? wanted : room;
        return n > 0 ? (int)n : 1;
}

static dci_status launch_bulk(const dci_gpu_cuda *cuda, cudaLaunchConfig_t *config, const dci_gpu_gather_args *args,
                              const dci_gpu_fetch *fetch, uint64_t n_lists)
{
        const Pieces pieces = pieces_of(*args);
        const size_t shared = (size_t)fetch->warps * fetch->depth * pieces.slot_bytes;
        if (cuda->major < 9)
                return dci_fail(DCI_ERR_UNSUPPORTED, "bulk copies need compute capability 9.0, this GPU has %d.%d",
                                cuda->major, cuda->minor);
        if (fetch->depth < 1 || fetch->depth > 32 || shared + 1024 > cuda->shared_bytes)
                return dci_fail(DCI_ERR_LIMIT,
                                "%d pieces of %u bytes for each of %d warps do not fit into %zu bytes of shared memory",
                                fetch->depth, pieces.slot_bytes, fetch->warps, cuda->shared_bytes);
        const cudaError_t error =
                cudaFuncSetAttribute(gather_bulk, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
        if (error != cudaSuccess)
                return dci_gpu_cuda_status(error, "a block cannot have %zu bytes of shared memory", shared);
        config->dynamicSmemBytes = shared;
        config->gridDim.x = fetch->blocks > 0
                                    ? fetch->blocks
                                    : blocks_of(cuda, (uint64_t)args->max_items * (pieces.of_keys + pieces.of_values),
                                                (uint64_t)fetch->warps * fetch->depth, n_lists, fetch->warps, 48);
        return dci_gpu_cuda_status(
                launch_early(stream_of(cuda, config->stream), config, gather_bulk, *args, (uint32_t)fetch->depth),
                "a gather for %llu lists cannot be queued", (unsigned long long)n_lists);
}

static const dci_gpu_fetch usual = {DCI_GPU_FETCH_REGISTERS, 2, 2, 0, 8};

static bool is_usual(const dci_gpu_fetch &fetch)
{
        return fetch.how == usual.how && fetch.depth == usual.depth && fetch.hint == usual.hint &&
               fetch.warps <= usual.warps;
}

extern "C" dci_status dci_gpu_cuda_gather_as(const dci_gpu_cuda *cuda, void *stream, const dci_gpu_gather_args *args,
                                             const dci_gpu_fetch *fetch)
{
        const uint64_t n_lists = (uint64_t)args->n_sequences * (uint64_t)args->n_heads;
        if (n_lists == 0 || args->max_items <= 0)
                return DCI_OK;
        if (n_lists > DCI_GPU_MAX_LISTS)
                return dci_fail(DCI_ERR_LIMIT, "a gather has %llu lists, the device's kernel takes %d",
                                (unsigned long long)n_lists, DCI_GPU_MAX_LISTS);
        if (fetch->warps < 1 || fetch->warps > 16)
                return dci_fail(DCI_ERR_INVALID, "warps is %d, expected 1 to 16", fetch->warps);
        cudaLaunchConfig_t config = {};
        config.blockDim = 32 * fetch->warps;
        config.gridDim = dim3(1, (unsigned)n_lists);
        config.stream = static_cast<cudaStream_t>(stream);
        const bool near = args->resident.pages != nullptr;
        if (near && !is_usual(*fetch))
                return dci_fail(DCI_ERR_UNSUPPORTED,
                                "resident pages are gathered by registers, depth 2, hint 2 and at most 8 warps");
        if (fetch->how == DCI_GPU_FETCH_BULK)
                return launch_bulk(cuda, &config, args, fetch, n_lists);
        const Kernel kernel = near ? gather_registers<2, 2, true> : kernel_of(*fetch);
        if (kernel == nullptr)
                return dci_fail(DCI_ERR_INVALID, "there is no gather with depth %d and hint %d", fetch->depth,
                                fetch->hint);
        if (fetch->how == DCI_GPU_FETCH_SHARED) {
                config.dynamicSmemBytes = (size_t)fetch->depth * config.blockDim.x * 16;
                const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                               (int)config.dynamicSmemBytes);
                if (error != cudaSuccess)
                        return dci_gpu_cuda_status(error, "a block cannot have %zu bytes of shared memory",
                                                   config.dynamicSmemBytes);
        }
        const uint64_t vectors = ((uint64_t)args->lanes.key_bytes + args->lanes.value_bytes) / 16 << args->unit_shift;
        config.gridDim.x = fetch->blocks > 0 ? fetch->blocks
                                             : blocks_of(cuda, (uint64_t)args->max_items * vectors,
                                                         (uint64_t)config.blockDim.x * fetch->depth, n_lists,
                                                         fetch->warps, near ? 40 : 48);
        return dci_gpu_cuda_status(launch_early(stream_of(cuda, config.stream), &config, kernel, *args),
                                   "a gather for %llu lists cannot be queued", (unsigned long long)n_lists);
}

extern "C" dci_status dci_gpu_cuda_gather(struct dci_gpu *gpu, void *stream, const dci_gpu_gather_args *args)
{
        return dci_gpu_cuda_gather_as(dci_gpu_cuda_of(gpu), stream, args, &usual);
}
