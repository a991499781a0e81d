/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Attention over tokens that were not selected, by means of clusters.
 *
 * Scores of clusters are those of the selection, so that mean values alone are streamed. A block goes through its part
 * of the list a cluster to a thread at a time: it puts those that are estimated whole, in their order, into one list,
 * of which spans take rows in turns, and those that are estimated in part (the one that was cut at the budget, and
 * after a truncation those that reach into the window) into another. Members of these are read by the whole block, one
 * cluster after the other: first each thread finds where a member is, by five reads that depend on each other, then
 * their keys and values are on their way together, since they may come from the host's memory.
 *
 * Queued as the second kernel after the selection or later (`early`), it does all of its work before its turn, while
 * what is missing of the list is gathered. */
#include "gpu/cuda/tail/tail_rows.cuh"

constexpr int TILE = WARPS * 32; /* clusters at a time */
/* Chunks of clusters and of members that are looked up once; more are looked up when they are needed. */
constexpr int CLUSTER_CHUNKS = 64, ID_CHUNKS = 512;

struct Job {
        int list, row, head, query; /* query: the first of the block's */
        int n, n_tokens;            /* candidates; tokens */
        int n_clusters, n_ids;      /* clusters; members of all */
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

template <int D> struct Shared {
        SpanSums<D> sums;
        const unsigned char *clusters[CLUSTER_CHUNKS], *ids[ID_CHUNKS]; /* the head's part of each chunk */
        const unsigned char *values[TILE]; /* mean values of clusters that are estimated whole */
        int32_t numbers[TILE];
        float times[TILE]; /* their members */
        Cluster partial[TILE];
        RowPair rows[TILE];             /* of members */
        float products[WARPS][QUERIES]; /* of a cluster's rows */
        int n_whole[WARPS], n_partial[WARPS];
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
        job.n_ids = n_grouped;
        job.n_clusters = min(__ldcg(a.n_clusters + (int64_t)job.row * a.n_heads + job.head), a.max_groups);
        dci_gpu_view view;
        DCI_GPU_VIEW(view, a.sizes, job.n_tokens, n_grouped);
        job.n = view.n_candidates;
        job.sparse = view.sparse != 0;
        job.look = view.n_candidates != n_grouped;
        job.first = (int)((uint64_t)job.n_clusters * blockIdx.x / gridDim.x);
        job.last = (int)((uint64_t)job.n_clusters * (blockIdx.x + 1) / gridDim.x);
        return job;
}

/* By the whole block, before a barrier. */
template <int D>
static __device__ __forceinline__ void look_up(const dci_gpu_tail_clusters_args &a, const Job &job, Shared<D> &s)
{
        for (int c = threadIdx.x; c < CLUSTER_CHUNKS && c * DCI_GPU_CHUNK < job.n_clusters; c += WARPS * 32)
                s.clusters[c] = chunk_part(a.clusters, job.row, job.head, c);
        for (int c = threadIdx.x; c < ID_CHUNKS && c * DCI_GPU_CHUNK < job.n_ids; c += WARPS * 32)
                s.ids[c] = chunk_part(a.ids, job.row, job.head, c);
}

/* The chunk of a cluster. */
template <int D>
static __device__ __forceinline__ const unsigned char *chunk_of(const dci_gpu_tail_clusters_args &a, const Job &job,
                                                                const Shared<D> &s, int number)
{
        const int chunk = number / DCI_GPU_CHUNK;
        return chunk < CLUSTER_CHUNKS ? s.clusters[chunk] : chunk_part(a.clusters, job.row, job.head, chunk);
}

template <int D>
static __device__ __forceinline__ int id_at(const dci_gpu_tail_clusters_args &a, const Job &job, const Shared<D> &s,
                                            int at)
{
        const int chunk = at / DCI_GPU_CHUNK;
        const unsigned char *from =
                chunk < ID_CHUNKS && at < job.n_ids ? s.ids[chunk] : chunk_part(a.ids, job.row, job.head, chunk);
        return __ldcg(reinterpret_cast<const int32_t *>(from) + at % DCI_GPU_CHUNK);
}

/* rest: 0 where nothing is estimated. */
template <int D>
static __device__ __forceinline__ Cluster cluster_at(const dci_gpu_tail_clusters_args &a, const Job &job,
                                                     const Shared<D> &s, int number)
{
        Cluster c = {number, 0, 0, __ldcg(a.members + (int64_t)job.list * a.max_groups + number), 0};
        if (c.selected < 0)
                return c;
        const int2 span = __ldcg(reinterpret_cast<const int2 *>(chunk_of(a, job, s, number) + a.spans_at) +
                                 number % DCI_GPU_CHUNK);
        c.first = span.x;
        c.size = span.y;
        int begin = job.look ? c.selected : c.size, end = c.size;
        while (begin < end) {
                const int middle = (begin + end) >> 1;
                if (id_at(a, job, s, c.first + middle) < job.n)
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

template <int D>
static __device__ __forceinline__ RowPair row_at(const dci_gpu_tail_clusters_args &a, const Job &job,
                                                 const Shared<D> &s, const Cluster &c, const Reading &r, int i)
{
        const int member = r.left ? c.selected + i : i < c.selected ? i : c.rest + i;
        const int position = a.sizes.sink + id_at(a, job, s, c.first + member);
        if (position >= job.n_tokens - a.lanes.ring)
                return lane_rows(a.lanes, job.row, a.n_heads, job.head, a.lanes.sink + (position & (a.lanes.ring - 1)));
        const int block = __ldcg(a.tables.blocks + job.row * a.tables.stride + (position >> a.pool.page_shift));
        const unsigned long long piece =
                __ldcg(reinterpret_cast<const unsigned long long *>(a.pool.pieces) + (block >> a.pool.block_shift));
        return block_rows(a.pool, reinterpret_cast<unsigned char *>(piece), block, job.head,
                          position & ((1 << a.pool.page_shift) - 1));
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

template <int D>
static __device__ __forceinline__ const unsigned char *value_at(const dci_gpu_tail_clusters_args &a, const Job &job,
                                                                const Shared<D> &s, int number)
{
        return chunk_of(a, job, s, number) + a.values_at + (uint64_t)(number % DCI_GPU_CHUNK) * (2 * D);
}

/* Calls visit(first, rows) for the rows that are read for a cluster, those of a span at a time, nullptr where there is
 * none; first: of the first time. By the whole block. */
template <int D, typename Visit>
static __device__ __forceinline__ void for_rows(const dci_gpu_tail_clusters_args &a, const Job &job, const Cluster &c,
                                                Shared<D> &s, Visit visit)
{
        constexpr int SPANS = Shape<D>::SPANS;
        const int span = threadIdx.x / Shape<D>::SPAN;
        const Reading r = reading_of(c);
        for (int from = 0; from < r.n; from += TILE) {
                const int n = min(r.n - from, TILE);
                __syncthreads(); /* the last ones have been read */
                if ((int)threadIdx.x < n)
                        s.rows[threadIdx.x] = row_at(a, job, s, c, r, from + (int)threadIdx.x);
                __syncthreads();
                for (int base = 0; base < n; base += AT_ONCE * SPANS) {
                        RowPair rows[AT_ONCE];
#pragma unroll
                        for (int u = 0; u < AT_ONCE; u++) {
                                const int i = base + u * SPANS + span;
                                rows[u] = i < n ? s.rows[i] : RowPair{nullptr, nullptr};
                        }
                        visit(from + base == 0, rows);
                }
        }
}

/* Sums over clusters. */
template <class T, int D> struct Clusters : Running<T, D> {
        using S = Shape<D>;
        using R = Running<T, D>;

        __device__ __forceinline__ uint4 load_any(const unsigned char *row) const
        {
                return row != nullptr ? this->load(row) : make_uint4(0, 0, 0, 0);
        }

        /* The scaled product of the queries with the sum of a cluster's rows, and the first values. */
        __device__ __forceinline__ void multiply_rows(const dci_gpu_tail_clusters_args &a, const Job &job,
                                                      const Cluster &c, Shared<D> &s, float (&products)[QUERIES],
                                                      uint4 (&values)[AT_ONCE])
        {
                const int warp = threadIdx.x >> 5;
#pragma unroll
                for (int q = 0; q < QUERIES; q++)
                        products[q] = 0.0f;
                for_rows(a, job, c, s, [&](bool first, const RowPair(&rows)[AT_ONCE]) {
                        uint4 keys[AT_ONCE];
#pragma unroll
                        for (int u = 0; u < AT_ONCE; u++) {
                                keys[u] = load_any(rows[u].key);
                                if (first)
                                        values[u] = load_any(rows[u].value);
                        }
#pragma unroll
                        for (int u = 0; u < AT_ONCE; u++) {
                                float of_row[QUERIES];
                                this->multiply(keys[u], of_row);
#pragma unroll
                                for (int q = 0; q < QUERIES; q++)
                                        products[q] += of_row[q];
                        }
                });
#pragma unroll
                for (int q = 0; q < QUERIES; q++) {
                        const float of_warp = R::template gather<32>(products[q]);
                        if ((threadIdx.x & 31) == 0)
                                s.products[warp][q] = of_warp;
                }
                __syncthreads();
#pragma unroll
                for (int q = 0; q < QUERIES; q++) {
                        products[q] = 0.0f;
#pragma unroll
                        for (int w = 0; w < WARPS; w++)
                                products[q] += s.products[w][q];
                }
        }

        /* A cluster that is estimated in part, by the block, whose spans share the rows. */
        __device__ __forceinline__ void add_partial(const dci_gpu_tail_clusters_args &a, const Job &job,
                                                    const Cluster &c, Shared<D> &s)
        {
                const bool counts = threadIdx.x < S::SPAN, left = reading_of(c).left;
                const float share = 1.0f / (float)c.rest, times = left ? 0.0f : (float)c.size,
                            sign = left ? 1.0f : -1.0f;
                float means[QUERIES], products[QUERIES], weights[QUERIES];
                uint4 values[AT_ONCE], mean = make_uint4(0, 0, 0, 0);
                load_scores(a, job, c.number, means);
                if (counts && !left)
                        mean = this->load(value_at(a, job, s, c.number));
                multiply_rows(a, job, c, s, products, values);
#pragma unroll
                for (int q = 0; q < QUERIES; q++) {
                        const float score = share * (sign * products[q] + times * means[q]);
                        /* All spans rise, and the first one alone counts the cluster. */
                        this->rise(q, fmaxf(this->most[q], score));
                        const float weight = exp2_of((score - this->most[q]) * CUDART_L2E_F);
                        this->sum[q] += counts ? weight * (float)c.rest : 0.0f;
                        weights[q] = counts ? weight * times : 0.0f;
                        products[q] = sign * weight;
                }
                this->blend(weights, mean);
#pragma unroll
                for (int u = 0; u < AT_ONCE; u++)
                        this->blend(products, values[u]);
                if (reading_of(c).n <= AT_ONCE * S::SPANS)
                        return;
                for_rows(a, job, c, s, [&](bool first, const RowPair(&rows)[AT_ONCE]) {
#pragma unroll
                        for (int u = 0; u < AT_ONCE && !first; u++)
                                values[u] = load_any(rows[u].value);
#pragma unroll
                        for (int u = 0; u < AT_ONCE && !first; u++)
                                this->blend(products, values[u]);
                });
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
                c = cluster_at(a, job, s, number);
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
                s.values[at_whole] = value_at(a, job, s, number);
                s.numbers[at_whole] = number;
                s.times[at_whole] = (float)c.size;
        }
        if (is_partial)
                s.partial[at_partial] = c;
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
                        const int i = base + u * SPANS, at = i < n ? i : n - 1;
                        values[u] = running.load(s.values[at]);
                        load_scores(a, job, s.numbers[at], scores[u]);
                        times[u] = i < n ? s.times[at] : 0.0f;
                }
                running.add_scored(scores, values, times);
        }
}

template <class T, int D>
static __device__ __forceinline__ void sum_clusters(const dci_gpu_tail_clusters_args &a, const Job &job, Shared<D> &s)
{
        Clusters<T, D> running;
        running.begin(a, job.list, job.query);
        __syncthreads(); /* chunks have been looked up */
        for (int base = job.first; base < job.last; base += TILE) {
                int n_whole, n_partial;
                sort_tile<D>(a, job, base, s, n_whole, n_partial);
                for (int i = 0; i < n_partial; i++)
                        running.add_partial(a, job, s.partial[i], s);
                add_whole<T, D>(a, job, s, n_whole, running);
        }
        end_block(a, job.list, job.query, running, s.sums);
}

template <class T, int D>
static __global__ __launch_bounds__(WARPS * 32,
                                    2) void tail_clusters_kernel(const __grid_constant__ dci_gpu_tail_clusters_args a)
{
        PTX_DYNAMIC_SHARED(16, unsigned char, memory);
        Shared<D> &s = *reinterpret_cast<Shared<D> *>(memory);
        const Job job = job_of(a); /* no kernel writes what this and the next call read */
        if (job.sparse)
                look_up(a, job, s);
        if (a.early != 0)
                ptx_let_later_begin();
        else
                ptx_take_turn();
        if (job.sparse) { /* the same for all blocks of the list */
                sum_clusters<T, D>(a, job, s);
        } else if (blockIdx.x == 0 && job.query == 0) {
                leave_nothing(a, job.list);
        }
        if (a.early != 0) /* whoever waits for this kernel waits for those before */
                ptx_after_earlier();
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
