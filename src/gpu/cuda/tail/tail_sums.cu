/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Attention over tokens that were not selected, by means of pages.
 *
 * The block's part of the list is gone through twice: first the pages with selected tokens, a warp for each, whose
 * tokens are taken out row by row; then all others, streamed. A bitmap says which is which. */
#include "gpu/cuda/tail/tail_rows.cuh"

constexpr int MAX_PAGES = DCI_GPU_MAX_PART_PAGES; /* bits of the bitmap */

template <int D> struct Shared {
        uint32_t taken[MAX_PAGES / 32];
        SpanSums<D> sums;
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
        job.head = DCI_GPU_HEAD_OF(&a, blockIdx.y / n_sets);
        job.query = blockIdx.y % n_sets * QUERIES;
        job.list = blockIdx.z * (gridDim.y / n_sets) + blockIdx.y / n_sets;
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

/* Sums over pages. */
template <class T, int D> struct Pages : Running<T, D> {
        using S = Shape<D>;
        using R = Running<T, D>;

        /* Rows of whole pages, one for a span each time; times: tokens of a page, 0 where there is no row. */
        __device__ __forceinline__ void add(const uint4 (&keys)[AT_ONCE], const uint4 (&values)[AT_ONCE],
                                            const float (&times)[AT_ONCE])
        {
                float s[AT_ONCE][QUERIES];
#pragma unroll
                for (int u = 0; u < AT_ONCE; u++) {
                        this->multiply(keys[u], s[u]);
#pragma unroll
                        for (int q = 0; q < QUERIES; q++)
                                s[u][q] = R::template gather<S::SPAN>(s[u][q]);
                }
                this->add_scored(s, values, times);
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
                const uint4 key = this->load(mean), value = this->load(mean + a.values_at - a.keys_at);
                const bool whole = a.whole != 0;
                float s[QUERIES], of_row[QUERIES], weights[QUERIES];
                this->multiply(key, s);
#pragma unroll
                for (int q = 0; q < QUERIES; q++)
                        s[q] = span == 0 ? s[q] * (float)size : 0.0f;
                for (int i = span; i < n && !whole; i += S::ROWS) {
                        this->multiply(this->load(chosen_at(a, job, entry + i).key), of_row);
#pragma unroll
                        for (int q = 0; q < QUERIES; q++)
                                s[q] -= of_row[q];
                }
                const float share = 1.0f / (float)(whole ? size : rest);
#pragma unroll
                for (int q = 0; q < QUERIES; q++) {
                        const float score = R::template gather<32>(s[q]) * share;
                        /* All spans rise together, and the first one alone counts the page. */
                        this->rise(q, fmaxf(this->most[q], score));
                        s[q] = exp2_of((score - this->most[q]) * CUDART_L2E_F);
                        this->sum[q] += span == 0 ? s[q] * (float)rest : 0.0f;
                        weights[q] = span == 0 ? s[q] * (float)(whole ? rest : size) : 0.0f;
                }
                this->blend(weights, value);
#pragma unroll
                for (int q = 0; q < QUERIES; q++)
                        weights[q] = -s[q];
                for (int i = span; i < n && !whole; i += S::ROWS)
                        this->blend(weights, this->load(chosen_at(a, job, entry + i).value));
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
static __device__ __forceinline__ void add_marked(const dci_gpu_tail_sums_args &a, const Job &job, Pages<T, D> &running)
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
                                                  Pages<T, D> &running)
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
        Pages<T, D> running;
        running.begin(a, job.list, job.query);
        mark<D>(a, job, s);
        add_marked<T, D>(a, job, running);
        add_others<T, D>(a, job, s, running);
        end_block(a, job.list, job.query, running, s.sums);
}

template <class T, int D> static cudaError_t launch(const dci_gpu_tail_sums_args &args, const GpuStream &stream)
{
        static_assert(sizeof(Shared<D>) <= DCI_GPU_CUDA_MIN_SHARED, "some device has less");
        return launch_shared(stream, grid_of(args), WARPS * 32, sizeof(Shared<D>), tail_sums_kernel<T, D>, args);
}

template <class T> static cudaError_t launch_type(const dci_gpu_tail_sums_args &args, const GpuStream &stream)
{
        return with_dim(args.dim, cudaErrorInvalidValue, [&](auto dim) { return launch<T, dim.value>(args, stream); });
}

static dci_status check(const dci_gpu_tail_sums_args &a)
{
        const dci_status status = check_lists(a);
        if (status != DCI_OK)
                return status;
        if (a.max_pages / a.n_parts >= MAX_PAGES)
                return dci_fail(DCI_ERR_LIMIT, "%d pages in %d parts, the device's kernel takes less than %d in each",
                                a.max_pages, a.n_parts, MAX_PAGES);
        if (a.keys_at % 16 != 0 || a.values_at % 16 != 0)
                return dci_fail(DCI_ERR_INVALID, "means begin at bytes %u and %u, expected multiples of 16", a.keys_at,
                                a.values_at);
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
