/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Attention over tokens that were not selected, by means of clusters.
 *
 * Scores of clusters are those of the selection, so that mean values alone are streamed. A block goes through its part
 * of the list a cluster to a thread at a time: it puts those that are estimated whole, in their order, into one list,
 * of which spans take rows in turns, and those that are estimated in part (the one that was cut at the budget, and
 * after a truncation those that reach into the window) into another, of which warps read single members. */
#include "gpu/cuda/tail/tail_rows.cuh"

constexpr int TILE = WARPS * 32; /* clusters at a time */

template <int D> struct Shared {
        SpanSums<D> sums;
        int32_t numbers[TILE], partial[TILE]; /* clusters */
        float times[TILE];                    /* members of those that are estimated whole */
        int n_whole[WARPS], n_partial[WARPS];
};

struct Job {
        int list, row, head, query; /* query: the first of the block's */
        int n, n_tokens;            /* candidates; tokens */
        int first, last;            /* clusters of this part */
        bool sparse, look;          /* look: for members that are no candidates */
};

/* Members [selected, selected + rest) of a cluster are left. */
struct Cluster {
        int number, first, size, selected, rest;
};

/* Members that are read for a cluster that is estimated in part: those that are left, or the others. */
struct Reading {
        bool left;
        int n;
};

static __device__ __forceinline__ Job job_of(const dci_gpu_tail_clusters_args &a)
{
        const int n_sets = (a.group + QUERIES - 1) / QUERIES;
        Job job;
        job.head = DCI_GPU_HEAD_OF(&a, blockIdx.y / n_sets);
        job.query = blockIdx.y % n_sets * QUERIES;
        job.list = blockIdx.z * (gridDim.y / n_sets) + blockIdx.y / n_sets;
        job.row = __ldcg(a.rows + blockIdx.z);
        job.n_tokens = __ldcg(a.n_tokens + blockIdx.z);
        const int n_grouped = __ldcg(a.n_grouped + blockIdx.z);
        const uint32_t n_clusters =
                (uint32_t)min(__ldcg(a.n_clusters + (int64_t)job.row * a.n_heads + job.head), a.max_groups);
        dci_gpu_view view;
        DCI_GPU_VIEW(view, a.sizes, job.n_tokens, n_grouped);
        job.n = view.n_candidates;
        job.sparse = view.sparse != 0;
        job.look = view.n_candidates != n_grouped;
        job.first = (int)((uint64_t)n_clusters * blockIdx.x / gridDim.x);
        job.last = (int)((uint64_t)n_clusters * (blockIdx.x + 1) / gridDim.x);
        return job;
}

static __device__ __forceinline__ const unsigned char *part_at(const dci_gpu_chunks &chunks, const Job &job, int number)
{
        return chunk_part(chunks, job.row, job.head, number / DCI_GPU_CHUNK);
}

static __device__ __forceinline__ int id_at(const dci_gpu_tail_clusters_args &a, const Job &job, int at)
{
        return __ldcg(reinterpret_cast<const int32_t *>(part_at(a.ids, job, at)) + at % DCI_GPU_CHUNK);
}

/* rest: 0 where nothing is estimated. */
static __device__ __forceinline__ Cluster cluster_at(const dci_gpu_tail_clusters_args &a, const Job &job, int number)
{
        Cluster c = {number, 0, 0, __ldcg(a.members + (int64_t)job.list * a.max_groups + number), 0};
        if (c.selected < 0)
                return c;
        const int2 span = __ldcg(reinterpret_cast<const int2 *>(part_at(a.clusters, job, number) + a.spans_at) +
                                 number % DCI_GPU_CHUNK);
        c.first = span.x;
        c.size = span.y;
        int begin = job.look ? c.selected : c.size, end = c.size;
        while (begin < end) {
                const int middle = (begin + end) >> 1;
                if (id_at(a, job, c.first + middle) < job.n)
                        begin = middle + 1;
                else
                        end = middle;
        }
        c.rest = begin - c.selected;
        return c;
}

static __device__ __forceinline__ Reading reading_of(const Cluster &c)
{
        const int others = c.size - c.rest;
        return {c.rest <= others, min(c.rest, others)};
}

static __device__ __forceinline__ RowPair row_at(const dci_gpu_tail_clusters_args &a, const Job &job, const Cluster &c,
                                                 const Reading &r, int i)
{
        const int member = r.left ? c.selected + i : i < c.selected ? i : c.rest + i;
        const int position = a.sizes.sink + id_at(a, job, c.first + member);
        if (position >= job.n_tokens - a.lanes.ring)
                return lane_rows(a.lanes, job.row, a.n_heads, job.head, a.lanes.sink + (position & (a.lanes.ring - 1)));
        const int block = __ldcg(a.tables.blocks + job.row * a.tables.stride + (position >> a.pool.page_shift));
        return pool_rows(a.pool, block, job.head, position & ((1 << a.pool.page_shift) - 1));
}

/* A cluster's scores, of the block's query heads. */
static __device__ __forceinline__ void load_scores(const dci_gpu_tail_clusters_args &a, const Job &job, int number,
                                                   float (&out)[QUERIES])
{
        const float *at = a.scores + ((int64_t)job.list * a.max_groups + number) * a.group + job.query;
        if (a.group % QUERIES == 0) {
                const float4 x = __ldcg(reinterpret_cast<const float4 *>(at));
                out[0] = x.x;
                out[1] = x.y;
                out[2] = x.z;
                out[3] = x.w;
                return;
        }
#pragma unroll
        for (int q = 0; q < QUERIES; q++)
                out[q] = job.query + q < a.group ? __ldcg(at + q) : 0.0f;
}

static __device__ __forceinline__ const unsigned char *value_at(const dci_gpu_tail_clusters_args &a, const Job &job,
                                                                int number, int row_bytes)
{
        return part_at(a.clusters, job, number) + a.values_at + (uint64_t)(number % DCI_GPU_CHUNK) * row_bytes;
}

/* Sums over clusters. */
template <class T, int D> struct Clusters : Running<T, D> {
        using S = Shape<D>;
        using R = Running<T, D>;

        /* Clusters that are estimated whole, one for a span each time; times: members, 0 where there is none. */
        __device__ __forceinline__ void add(const float (&scores)[AT_ONCE][QUERIES], const uint4 (&values)[AT_ONCE],
                                            const float (&times)[AT_ONCE])
        {
                float weights[AT_ONCE][QUERIES];
#pragma unroll
                for (int q = 0; q < QUERIES; q++) {
                        float top = this->most[q];
#pragma unroll
                        for (int u = 0; u < AT_ONCE; u++)
                                top = fmaxf(top, times[u] > 0.0f ? scores[u][q] : LEAST);
                        this->rise(q, top);
#pragma unroll
                        for (int u = 0; u < AT_ONCE; u++) {
                                weights[u][q] = times[u] > 0.0f
                                                        ? times[u] * exp2_of((scores[u][q] - top) * CUDART_L2E_F)
                                                        : 0.0f;
                                this->sum[q] += weights[u][q];
                        }
                }
#pragma unroll
                for (int u = 0; u < AT_ONCE; u++)
                        this->blend(weights[u], values[u]);
        }

        /* Rows of members from number `from` on, a span's on their way together. */
        __device__ __forceinline__ void load_rows(const dci_gpu_tail_clusters_args &a, const Job &job, const Cluster &c,
                                                  const Reading &r, int from, uint4 (*keys)[AT_ONCE],
                                                  uint4 (*values)[AT_ONCE]) const
        {
                const int span = (threadIdx.x & 31) / S::SPAN;
#pragma unroll
                for (int u = 0; u < AT_ONCE; u++) {
                        const int i = from + u * S::ROWS + span;
                        RowPair row = {nullptr, nullptr};
                        if (i < r.n)
                                row = row_at(a, job, c, r, i);
                        if (keys != nullptr)
                                (*keys)[u] = i < r.n ? this->load(row.key) : make_uint4(0, 0, 0, 0);
                        if (values != nullptr)
                                (*values)[u] = i < r.n ? this->load(row.value) : make_uint4(0, 0, 0, 0);
                }
        }

        /* A cluster that is estimated in part, by a warp, whose spans share the rows. The values of the first rows are
         * on their way with the keys: both may come from the host's memory. */
        __device__ __forceinline__ void add_partial(const dci_gpu_tail_clusters_args &a, const Job &job,
                                                    const Cluster &c)
        {
                const int span = (threadIdx.x & 31) / S::SPAN;
                const Reading r = reading_of(c);
                const float share = 1.0f / (float)c.rest, times = r.left ? 0.0f : (float)c.size,
                            sign = r.left ? 1.0f : -1.0f;
                uint4 keys[AT_ONCE], values[AT_ONCE];
                float means[QUERIES], s[QUERIES], of_row[QUERIES], weights[QUERIES];
                load_scores(a, job, c.number, means);
                const uint4 mean = this->load(value_at(a, job, c.number, 2 * D));
#pragma unroll
                for (int q = 0; q < QUERIES; q++)
                        s[q] = 0.0f;
                for (int from = 0; from < r.n; from += AT_ONCE * S::ROWS) {
                        load_rows(a, job, c, r, from, &keys, from == 0 ? &values : nullptr);
#pragma unroll
                        for (int u = 0; u < AT_ONCE; u++) {
                                this->multiply(keys[u], of_row);
#pragma unroll
                                for (int q = 0; q < QUERIES; q++)
                                        s[q] += sign * share * of_row[q];
                        }
                }
#pragma unroll
                for (int q = 0; q < QUERIES; q++) {
                        const float score = R::template gather<32>(s[q]) + share * times * means[q];
                        /* All spans rise, and the first one alone counts the cluster. */
                        this->rise(q, fmaxf(this->most[q], score));
                        s[q] = exp2_of((score - this->most[q]) * CUDART_L2E_F);
                        this->sum[q] += span == 0 ? s[q] * (float)c.rest : 0.0f;
                        weights[q] = span == 0 ? s[q] * times : 0.0f;
                        s[q] *= sign;
                }
                this->blend(weights, mean);
                for (int from = 0; from < r.n; from += AT_ONCE * S::ROWS) {
                        if (from > 0)
                                load_rows(a, job, c, r, from, nullptr, &values);
#pragma unroll
                        for (int u = 0; u < AT_ONCE; u++)
                                this->blend(s, values[u]);
                }
        }
};

/* Puts the clusters of a tile into the lists; how many are in each. */
template <int D>
static __device__ __forceinline__ void sort_tile(const dci_gpu_tail_clusters_args &a, const Job &job, int base,
                                                 Shared<D> &s, int &n_whole, int &n_partial)
{
        const int number = base + (int)threadIdx.x, warp = threadIdx.x >> 5;
        Cluster c = {number, 0, 0, -1, 0};
        if (number < job.last)
                c = cluster_at(a, job, number);
        const bool is_whole = c.rest > 0 && c.rest == c.size, is_partial = c.rest > 0 && c.rest < c.size;
        const unsigned before = (1u << (threadIdx.x & 31)) - 1, whole = __ballot_sync(0xffffffffu, is_whole),
                       partial = __ballot_sync(0xffffffffu, is_partial);
        __syncthreads(); /* the last tile's have been read */
        if ((threadIdx.x & 31) == 0) {
                s.n_whole[warp] = __popc(whole);
                s.n_partial[warp] = __popc(partial);
        }
        __syncthreads();
        int at_whole = __popc(whole & before), at_partial = __popc(partial & before);
        n_whole = n_partial = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
                at_whole += w < warp ? s.n_whole[w] : 0;
                at_partial += w < warp ? s.n_partial[w] : 0;
                n_whole += s.n_whole[w];
                n_partial += s.n_partial[w];
        }
        if (is_whole) {
                s.numbers[at_whole] = number;
                s.times[at_whole] = (float)c.size;
        }
        if (is_partial)
                s.partial[at_partial] = number;
        __syncthreads();
}

template <class T, int D>
static __device__ __forceinline__ void add_whole(const dci_gpu_tail_clusters_args &a, const Job &job,
                                                 const Shared<D> &s, int n, Clusters<T, D> &running)
{
        constexpr int SPANS = Shape<D>::SPANS;
        for (int base = threadIdx.x / Shape<D>::SPAN; base < n; base += AT_ONCE * SPANS) {
                uint4 values[AT_ONCE];
                float scores[AT_ONCE][QUERIES], times[AT_ONCE];
#pragma unroll
                for (int u = 0; u < AT_ONCE; u++) {
                        const int i = base + u * SPANS, at = i < n ? i : n - 1, number = s.numbers[at];
                        values[u] = running.load(value_at(a, job, number, 2 * D));
                        load_scores(a, job, number, scores[u]);
                        times[u] = i < n ? s.times[at] : 0.0f;
                }
                running.add(scores, values, times);
        }
}

template <class T, int D>
static __global__ __launch_bounds__(WARPS * 32,
                                    2) void tail_clusters_kernel(const __grid_constant__ dci_gpu_tail_clusters_args a)
{
        PTX_DYNAMIC_SHARED(16, unsigned char, memory);
        Shared<D> &s = *reinterpret_cast<Shared<D> *>(memory);
        const Job job = job_of(a); /* no kernel writes what it reads */
        ptx_take_turn();
        if (!job.sparse) { /* the same for all blocks of the list */
                if (blockIdx.x == 0 && job.query == 0)
                        leave_nothing(a, job.list);
                return;
        }
        Clusters<T, D> running;
        running.begin(a, job.list, job.query);
        for (int base = job.first; base < job.last; base += TILE) {
                int n_whole, n_partial;
                sort_tile<D>(a, job, base, s, n_whole, n_partial);
                for (int i = threadIdx.x >> 5; i < n_partial; i += WARPS)
                        running.add_partial(a, job, cluster_at(a, job, s.partial[i]));
                add_whole<T, D>(a, job, s, n_whole, running);
        }
        end_block(a, job.list, job.query, running, s.sums);
}

template <class T, int D> static cudaError_t launch(const dci_gpu_tail_clusters_args &args, const GpuStream &stream)
{
        static_assert(sizeof(Shared<D>) <= DCI_GPU_CUDA_MIN_SHARED, "some device has less");
        return launch_shared(stream, grid_of(args), WARPS * 32, sizeof(Shared<D>), tail_clusters_kernel<T, D>, args);
}

template <class T> static cudaError_t launch_type(const dci_gpu_tail_clusters_args &args, const GpuStream &stream)
{
        return with_dim(args.dim, cudaErrorInvalidValue, [&](auto dim) { return launch<T, dim.value>(args, stream); });
}

static dci_status check(const dci_gpu_tail_clusters_args &a)
{
        const dci_status status = check_lists(a);
        if (status != DCI_OK)
                return status;
        if (a.values_at % 16 != 0 || a.spans_at % 8 != 0 || reinterpret_cast<uintptr_t>(a.scores) % 16 != 0)
                return dci_fail(DCI_ERR_INVALID,
                                "mean values begin at byte %u, members at byte %u: expected multiples of 16 and 8, and "
                                "scores that are aligned to 16",
                                a.values_at, a.spans_at);
        return DCI_OK;
}

extern "C" dci_status dci_gpu_cuda_tail_clusters(struct dci_gpu *gpu, void *stream,
                                                 const dci_gpu_tail_clusters_args *args)
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
