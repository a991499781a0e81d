/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Attention over tokens that were not selected, by means of pages.
 *
 * A row is in as many lanes as it has pieces of 16 bytes, rounded up to a power of two; each such span of lanes takes
 * rows in turns, with the running maximum and sum of online softmax, for four query heads at a time. The block's part
 * of the list is gone through twice: first the pages with selected tokens, a warp for each, whose tokens are taken out
 * row by row; then all others, streamed. A bitmap says which is which. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "gpu/cuda/launch.cuh"
#include "gpu/cuda/rows.cuh"
#include "gpu/cuda/tail/tail_merge.cuh"

constexpr int QUERIES = 4;                        /* of a block */
constexpr int AT_ONCE = 4;                        /* rows of a span that are on their way */
constexpr int MAX_PAGES = DCI_GPU_MAX_PART_PAGES; /* bits of the bitmap */

struct Half {
        static __device__ __forceinline__ float2 to_f32(uint32_t x)
        {
                return __half22float2(*reinterpret_cast<const __half2 *>(&x));
        }
};

struct Bfloat {
        static __device__ __forceinline__ float2 to_f32(uint32_t x)
        {
                return make_float2(__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000u));
        }
};

template <int D> struct Shape {
        static constexpr int PIECES = D / 8;                          /* of a row, 16 bytes each */
        static constexpr int SPAN = D <= 64 ? 8 : D <= 128 ? 16 : 32; /* lanes for a row */
        static constexpr int ROWS = 32 / SPAN, SPANS = WARPS * ROWS;  /* of a warp, of a block */
};

template <int D> struct Shared {
        uint32_t taken[MAX_PAGES / 32];
        alignas(16) float out[Shape<D>::SPANS][QUERIES][D];
        float most[Shape<D>::SPANS][QUERIES], sum[Shape<D>::SPANS][QUERIES];
        bool last;
};

struct Job {
        int list, row, head, query; /* query: the first of the block's */
        int n, first, last;         /* candidates; pages of this part */
        int begin, end;             /* entries of the list that are in them */
        bool sparse;
};

/* The first entry that is not below `position`. */
static __device__ __forceinline__ int find(const int32_t *positions, int count, int position)
{
        int begin = 0, end = count;
        while (begin < end) {
                const int middle = (begin + end) >> 1;
                if (__ldca(positions + middle) < position)
                        begin = middle + 1;
                else
                        end = middle;
        }
        return begin;
}

static __device__ __forceinline__ Job job_of(const dci_gpu_tail_sums_args &a)
{
        const int n_sets = (a.group + QUERIES - 1) / QUERIES;
        Job job;
        job.head = blockIdx.y / n_sets;
        job.query = blockIdx.y % n_sets * QUERIES;
        job.list = blockIdx.z * a.n_heads + job.head;
        job.row = __ldca(a.rows + blockIdx.z);
        dci_gpu_view view;
        DCI_GPU_VIEW(view, a.sizes, __ldca(a.n_tokens + blockIdx.z), __ldca(a.n_grouped + blockIdx.z));
        job.n = view.n_candidates;
        job.sparse = view.sparse != 0;
        const uint32_t n_pages =
                ((uint32_t)job.n + (1u << a.page_shift) - 1) >> a.page_shift; /* times 64: below 2^32 */
        job.first = (int)(n_pages * blockIdx.x / gridDim.x);
        job.last = (int)(n_pages * (blockIdx.x + 1) / gridDim.x);
        job.begin = job.end = 0;
        if (job.sparse) {
                const int32_t *positions = a.positions + (int64_t)job.list * a.stride;
                const int count = __ldca(a.counts + job.list);
                job.begin = find(positions, count, a.sizes.sink + (job.first << a.page_shift));
                job.end = find(positions, count, a.sizes.sink + (job.last << a.page_shift));
        }
        return job;
}

static __device__ __forceinline__ uint4 load16(const unsigned char *at)
{
        return ptx_load16_once_128(at);
}

/* The mean key of a page; its value is values_at - keys_at bytes after it. */
static __device__ __forceinline__ const unsigned char *page_at(const dci_gpu_tail_sums_args &a, const Job &job,
                                                               int page, int row_bytes)
{
        const int per_chunk = DCI_GPU_CHUNK >> a.page_shift, shift = a.chunks.piece_shift;
        const int chunk = __ldca(a.chunks.numbers + (int64_t)job.row * a.chunks.stride + page / per_chunk);
        const unsigned long long piece =
                __ldca(reinterpret_cast<const unsigned long long *>(a.chunks.pieces) + (chunk >> shift));
        return reinterpret_cast<const unsigned char *>(piece) + a.chunks.layer_at +
               (uint64_t)(chunk & ((1 << shift) - 1)) * a.chunks.chunk_bytes +
               (uint64_t)job.head * a.chunks.head_bytes + a.keys_at + (uint64_t)(page % per_chunk) * row_bytes;
}

/* Where an entry of the list is, as attend finds it. */
static __device__ __forceinline__ RowPair chosen_at(const dci_gpu_tail_sums_args &a, const Job &job, int entry)
{
        const int slot = __ldca(a.slots + (int64_t)job.list * a.stride + entry);
        if (slot >= 0)
                return lane_rows(a.lanes, job.row, a.n_heads, job.head, slot);
        const int block = __ldca(a.tables.blocks + job.row * a.tables.stride + (~slot >> a.pool.page_shift));
        return pool_rows(a.pool, block, job.head, ~slot & ((1 << a.pool.page_shift) - 1));
}

static __device__ __forceinline__ float query_at(const dci_gpu_tail_sums_args &a, uint64_t at)
{
        if (a.query_dtype == DCI_F32)
                return static_cast<const float *>(a.queries)[at];
        if (a.query_dtype == DCI_F16)
                return __half2float(static_cast<const __half *>(a.queries)[at]);
        return __uint_as_float((uint32_t) static_cast<const uint16_t *>(a.queries)[at] << 16);
}

/* What a span of lanes sums: the piece of each lane. */
template <class T, int D> struct Running {
        using S = Shape<D>;
        float query[QUERIES][8], most[QUERIES], sum[QUERIES], out[QUERIES][8];
        int piece; /* of this lane; past the row's end there are none, and zeros in its place */

        __device__ __forceinline__ void begin(const dci_gpu_tail_sums_args &a, const Job &job)
        {
                piece = threadIdx.x % S::SPAN;
#pragma unroll
                for (int q = 0; q < QUERIES; q++) {
                        const bool any = job.query + q < a.group && piece < S::PIECES;
                        const uint64_t at = ((uint64_t)job.list * a.group + job.query + q) * a.query_ld + 8 * piece;
                        most[q] = LEAST;
                        sum[q] = 0.0f;
#pragma unroll
                        for (int e = 0; e < 8; e++) {
                                query[q][e] = any ? query_at(a, at + e) * a.scale : 0.0f;
                                out[q][e] = 0.0f;
                        }
                }
        }

        __device__ __forceinline__ uint4 load(const unsigned char *row) const
        {
                return piece < S::PIECES ? load16(row + 16 * piece) : make_uint4(0, 0, 0, 0);
        }

        static __device__ __forceinline__ void to_f32(const uint4 &x, float (&y)[8])
        {
                const uint32_t words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
                for (int i = 0; i < 4; i++) {
                        const float2 two = T::to_f32(words[i]);
                        y[2 * i] = two.x;
                        y[2 * i + 1] = two.y;
                }
        }

        /* This lane's part of the products with one row. */
        __device__ __forceinline__ void multiply(const uint4 &key, float (&s)[QUERIES]) const
        {
                float y[8];
                to_f32(key, y);
#pragma unroll
                for (int q = 0; q < QUERIES; q++) {
                        s[q] = 0.0f;
#pragma unroll
                        for (int e = 0; e < 8; e++)
                                s[q] = fmaf(query[q][e], y[e], s[q]);
                }
        }

        /* Over a span, or (D lanes a row or more) over all that multiplied rows of one page. */
        template <int LANES> static __device__ __forceinline__ float gather(float x)
        {
#pragma unroll
                for (int d = 1; d < LANES; d *= 2)
                        x += __shfl_xor_sync(0xffffffffu, x, d);
                return x;
        }

        __device__ __forceinline__ void rise(int q, float top)
        {
                if (top <= most[q])
                        return;
                const float factor = exp2_of((most[q] - top) * CUDART_L2E_F);
                sum[q] *= factor;
#pragma unroll
                for (int e = 0; e < 8; e++)
                        out[q][e] *= factor;
                most[q] = top;
        }

        __device__ __forceinline__ void blend(const float (&weights)[QUERIES], const uint4 &value)
        {
                float y[8];
                to_f32(value, y);
#pragma unroll
                for (int q = 0; q < QUERIES; q++)
#pragma unroll
                        for (int e = 0; e < 8; e++)
                                out[q][e] = fmaf(weights[q], y[e], out[q][e]);
        }

        /* Rows of whole pages, one for a span each time; times: tokens of a page, 0 where there is no row. */
        __device__ __forceinline__ void add(const uint4 (&keys)[AT_ONCE], const uint4 (&values)[AT_ONCE],
                                            const float (&times)[AT_ONCE])
        {
                float s[AT_ONCE][QUERIES];
#pragma unroll
                for (int u = 0; u < AT_ONCE; u++) {
                        multiply(keys[u], s[u]);
#pragma unroll
                        for (int q = 0; q < QUERIES; q++)
                                s[u][q] = gather<S::SPAN>(s[u][q]);
                }
#pragma unroll
                for (int q = 0; q < QUERIES; q++) {
                        float top = most[q];
#pragma unroll
                        for (int u = 0; u < AT_ONCE; u++)
                                top = fmaxf(top, times[u] > 0.0f ? s[u][q] : LEAST);
                        rise(q, top);
#pragma unroll
                        for (int u = 0; u < AT_ONCE; u++) {
                                s[u][q] = times[u] > 0.0f ? times[u] * exp2_of((s[u][q] - top) * CUDART_L2E_F) : 0.0f;
                                sum[q] += s[u][q];
                        }
                }
#pragma unroll
                for (int u = 0; u < AT_ONCE; u++)
                        blend(s[u], values[u]);
        }

        /* A page with selected tokens, entries [entry, entry + n) of the list, by a warp, whose spans share the
         * rows. */
        __device__ __forceinline__ void add_rest(const dci_gpu_tail_sums_args &a, const Job &job, int page, int entry,
                                                 int n)
        {
                const int span = (threadIdx.x & 31) / S::SPAN, per_page = 1 << a.page_shift;
                const int left = job.n - (page << a.page_shift), size = left < per_page ? left : per_page,
                          rest = size - n;
                if (rest <= 0)
                        return;
                const unsigned char *mean = page_at(a, job, page, 2 * D);
                const uint4 key = load(mean), value = load(mean + a.values_at - a.keys_at);
                const bool whole = a.whole != 0;
                float s[QUERIES], of_row[QUERIES], weights[QUERIES];
                multiply(key, s);
#pragma unroll
                for (int q = 0; q < QUERIES; q++)
                        s[q] = span == 0 ? s[q] * (float)size : 0.0f;
                for (int i = span; i < n && !whole; i += S::ROWS) {
                        multiply(load(chosen_at(a, job, entry + i).key), of_row);
#pragma unroll
                        for (int q = 0; q < QUERIES; q++)
                                s[q] -= of_row[q];
                }
                const float share = 1.0f / (float)(whole ? size : rest);
#pragma unroll
                for (int q = 0; q < QUERIES; q++) {
                        const float score = gather<32>(s[q]) * share;
                        /* All spans rise together, and the first one alone counts the page. */
                        rise(q, fmaxf(most[q], score));
                        s[q] = exp2_of((score - most[q]) * CUDART_L2E_F);
                        sum[q] += span == 0 ? s[q] * (float)rest : 0.0f;
                        weights[q] = span == 0 ? s[q] * (float)(whole ? rest : size) : 0.0f;
                }
                blend(weights, value);
#pragma unroll
                for (int q = 0; q < QUERIES; q++)
                        weights[q] = -s[q];
                for (int i = span; i < n && !whole; i += S::ROWS)
                        blend(weights, load(chosen_at(a, job, entry + i).value));
        }

        __device__ __forceinline__ void leave(Shared<D> &s, int span)
        {
#pragma unroll
                for (int q = 0; q < QUERIES; q++) {
                        if (piece == 0) {
                                s.most[span][q] = most[q];
                                s.sum[span][q] = sum[q];
                        }
                        if (piece < S::PIECES) {
                                float *to = &s.out[span][q][8 * piece];
                                *reinterpret_cast<float4 *>(to) =
                                        make_float4(out[q][0], out[q][1], out[q][2], out[q][3]);
                                *reinterpret_cast<float4 *>(to + 4) =
                                        make_float4(out[q][4], out[q][5], out[q][6], out[q][7]);
                        }
                }
        }
};

/* Which pages of the part have selected tokens. */
template <int D>
static __device__ __forceinline__ void mark(const dci_gpu_tail_sums_args &a, const Job &job, Shared<D> &s)
{
        const int32_t *positions = a.positions + (int64_t)job.list * a.stride;
        for (int i = threadIdx.x; i < (job.last - job.first + 31) / 32; i += WARPS * 32)
                s.taken[i] = 0;
        __syncthreads();
        for (int e = job.begin + threadIdx.x; e < job.end; e += WARPS * 32) {
                const int page = ((__ldca(positions + e) - a.sizes.sink) >> a.page_shift) - job.first;
                atomicOr(&s.taken[page >> 5], 1u << (page & 31));
        }
        __syncthreads();
}

/* Pages with selected tokens: a warp reads every eighth entry, and takes the page if the entry is its first. */
template <class T, int D>
static __device__ __forceinline__ void add_marked(const dci_gpu_tail_sums_args &a, const Job &job,
                                                  Running<T, D> &running)
{
        const int32_t *positions = a.positions + (int64_t)job.list * a.stride;
        const int sink = a.sizes.sink, shift = a.page_shift;
        for (int e = job.begin + (int)(threadIdx.x >> 5); e < job.end; e += WARPS) {
                const int page = (__ldca(positions + e) - sink) >> shift;
                if (e > job.begin && (__ldca(positions + e - 1) - sink) >> shift == page)
                        continue;
                int n = 1;
                while (e + n < job.end && (__ldca(positions + e + n) - sink) >> shift == page)
                        n++;
                running.add_rest(a, job, page, e, n);
        }
}

template <class T, int D>
static __device__ __forceinline__ void add_others(const dci_gpu_tail_sums_args &a, const Job &job, const Shared<D> &s,
                                                  Running<T, D> &running)
{
        constexpr int SPANS = Shape<D>::SPANS;
        const int span = threadIdx.x / Shape<D>::SPAN, per_page = 1 << a.page_shift;
        for (int base = job.first; base < job.last;
             base += AT_ONCE * SPANS) { /* the same turns for all of a warp's spans */
                uint4 keys[AT_ONCE], values[AT_ONCE];
                float times[AT_ONCE];
#pragma unroll
                for (int u = 0; u < AT_ONCE; u++) {
                        const int page = base + u * SPANS + span, at = page - job.first;
                        keys[u] = values[u] = make_uint4(0, 0, 0, 0);
                        times[u] = 0.0f;
                        if (page < job.last && (s.taken[at >> 5] >> (at & 31) & 1) == 0) {
                                const unsigned char *mean = page_at(a, job, page, 2 * D);
                                const int left = job.n - (page << a.page_shift);
                                keys[u] = running.load(mean);
                                values[u] = running.load(mean + a.values_at - a.keys_at);
                                times[u] = (float)(left < per_page ? left : per_page);
                        }
                }
                running.add(keys, values, times);
        }
}

template <class T, int D>
static __global__ __launch_bounds__(WARPS * 32,
                                    2) void tail_sums_kernel(const __grid_constant__ dci_gpu_tail_sums_args a)
{
        PTX_DYNAMIC_SHARED(16, unsigned char, memory);
        Shared<D> &s = *reinterpret_cast<Shared<D> *>(memory);
        ptx_take_turn();
        const Job job = job_of(a);
        if (!job.sparse) { /* the same for all blocks of the list */
                if (blockIdx.x == 0 && job.query == 0)
                        leave_nothing(a, job.list);
                return;
        }
        Running<T, D> running;
        running.begin(a, job);
        mark<D>(a, job, s);
        add_marked<T, D>(a, job, running);
        add_others<T, D>(a, job, s, running);
        running.leave(s, threadIdx.x / Shape<D>::SPAN);
        __syncthreads();
        leave_part(a, job.list, job.query, s.most, s.sum, s.out);
        if (!is_last(a.arrived + job.list, gridDim.x * (gridDim.y / a.n_heads), &s.last))
                return;
        for (int i = 2 * threadIdx.x; i < a.group * D; i += 2 * WARPS * 32) {
                const Merged merged = merge_parts<D>(a, job.list, i / D, i % D);
                *reinterpret_cast<float2 *>(a.out + (int64_t)job.list * a.group * D + i) = mean_of(merged);
                if (i % D == 0)
                        a.lse[(int64_t)job.list * a.group + i / D] = log_of(merged);
        }
}

template <class T, int D> static cudaError_t launch(const dci_gpu_tail_sums_args &args, const GpuStream &stream)
{
        static_assert(sizeof(Shared<D>) <= DCI_GPU_CUDA_MIN_SHARED, "some device has less");
        const dim3 grid((unsigned)args.n_parts, (unsigned)(args.n_heads * ((args.group + QUERIES - 1) / QUERIES)),
                        (unsigned)args.n_sequences);
        return launch_shared(stream, grid, WARPS * 32, sizeof(Shared<D>), tail_sums_kernel<T, D>, args);
}

template <class T> static cudaError_t launch_type(const dci_gpu_tail_sums_args &args, const GpuStream &stream)
{
        return with_dim(args.dim, cudaErrorInvalidValue, [&](auto dim) { return launch<T, dim.value>(args, stream); });
}

static dci_status check(const dci_gpu_tail_sums_args &a)
{
        const dci_status status = dci_gpu_check_shape(a.group, a.dim);
        if (status != DCI_OK)
                return status;
        if (a.n_parts < 1 || a.n_parts > DCI_GPU_MAX_PARTS)
                return dci_fail(DCI_ERR_INVALID, "lists are cut into %d parts, expected 1 to %d", a.n_parts,
                                DCI_GPU_MAX_PARTS);
        if (a.max_pages / a.n_parts >= MAX_PAGES)
                return dci_fail(DCI_ERR_LIMIT, "%d pages in %d parts, the device's kernel takes less than %d in each",
                                a.max_pages, a.n_parts, MAX_PAGES);
        if (a.keys_at % 16 != 0 || a.values_at % 16 != 0)
                return dci_fail(DCI_ERR_INVALID, "means begin at bytes %u and %u, expected multiples of 16", a.keys_at,
                                a.values_at);
        if (a.n_sequences > UINT16_MAX || a.n_heads > UINT16_MAX / 4)
                return dci_fail(DCI_ERR_LIMIT, "%d sequences of %d kv heads, expected at most %d and %d", a.n_sequences,
                                a.n_heads, UINT16_MAX, UINT16_MAX / 4);
        return DCI_OK;
}

extern "C" dci_status dci_gpu_cuda_tail_sums(struct dci_gpu *gpu, void *stream, const dci_gpu_tail_sums_args *args)
{
        if (args->n_sequences <= 0 || args->n_heads <= 0)
                return DCI_OK;
        const dci_status status = check(*args);
        if (status != DCI_OK)
                return status;
        const GpuStream on = stream_of(dci_gpu_cuda_of(gpu), stream);
        const cudaError_t error =
                args->dtype == DCI_F16 ? launch_type<Half>(*args, on) : launch_type<Bfloat>(*args, on);
        return dci_gpu_cuda_status(error, "the tail of %d sequences of %d kv heads and dimension %d", args->n_sequences,
                                   args->n_heads, args->dim);
}
