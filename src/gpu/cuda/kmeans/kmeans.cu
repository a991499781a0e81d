/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Clusters of a prompt's keys (args/kmeans.h): the rounds, but for what they begin with (cuda/kmeans/kmeans_prepare.cu)
 * and the assignment (cuda/kmeans/kmeans_assign.cu). A round is four launches for all segments of all heads: assign;
 * settle, where one block for a view repairs empty clusters and says where each cluster's rows begin; place, which sorts
 * rows by label, a block some tiles; and means. A view whose labels no longer change lets the rest of the rounds
 * pass. Nothing waits for the host. */
#include "gpu/cuda/kmeans/kmeans.cuh"

constexpr int settle_threads = 1024, settle_warps = settle_threads / 32, place_threads = 32 * km_span;
constexpr int at_once = 16; /* spans whose sizes are requested at once */

/* --- settle ------------------------------------------------------------------------------------------------------- */

struct SettleShared {
        int32_t sizes[DCI_GPU_KMEANS_MOST];
        uint64_t keys[settle_warps];
        int32_t sums[settle_warps];
        int32_t n_empty;
};

static __device__ __forceinline__ int sum_of_warp(int x)
{
        return (int)__reduce_add_sync(km_all, (unsigned)x);
}

/* Members of cluster c in all spans, which do(span, n) gets one after the other. */
template <class F> static __device__ __forceinline__ void go_through_spans(const KmView &h, int c, const F &go)
{
        for (int first = 0; first < h.n_spans; first += at_once) {
                int n[at_once];
#pragma unroll
                for (int i = 0; i < at_once; i++)
                        n[i] = first + i < h.n_spans ? h.sizes[(first + i) * h.padded + c] : 0;
#pragma unroll
                for (int i = 0; i < at_once; i++)
                        if (first + i < h.n_spans)
                                go(first + i, n[i]);
        }
}

/* Members of all clusters; returns how many have none. Needs all threads. */
static __device__ __forceinline__ int count_members(SettleShared &s, const KmView &h)
{
        int n_empty = 0;
        if (threadIdx.x == 0)
                s.n_empty = 0;
        __syncthreads();
        for (int c = (int)threadIdx.x; c < h.k; c += settle_threads) {
                int size = 0;
                go_through_spans(h, c, [&](int, int n) { size += n; });
                s.sizes[c] = size;
                n_empty += size == 0;
        }
        if (n_empty > 0)
                atomicAdd(&s.n_empty, n_empty);
        __syncthreads();
        return s.n_empty;
}

/* Squared distance of every row to its centre; half a warp has some rows at a time. Needs all threads. */
template <int DIM> static __device__ __forceinline__ void find_fits(const KmView &h)
{
        constexpr int n_halves = settle_threads / 16, n_rows = 4;
        const int l = (int)threadIdx.x & 15, half = (int)threadIdx.x >> 4;
        for (int first = 0; first < h.n; first += n_rows * n_halves) {
                float sums[n_rows] = {};
                int rows[n_rows];
#pragma unroll
                for (int i = 0; i < n_rows; i++)
                        rows[i] = min(first + i * n_halves + half, h.n - 1);
#pragma unroll
                for (int t = 0; t < DIM / 16; t++)
#pragma unroll
                        for (int i = 0; i < n_rows; i++) {
                                const int e = l + 16 * t;
                                const float point = km_point(km_element(h, rows[i], e), h.row_mean[e],
                                                             h.scales[rows[i]], h.middle[e]);
                                const float apart = __fsub_rn(h.centres[(uint64_t)h.labels[rows[i]] * DIM + e], point);
                                sums[i] = km_step(apart, apart, sums[i], h.fused);
                        }
#pragma unroll
                for (int i = 0; i < n_rows; i++) {
                        const float sum = km_tree(sums[i]);
                        if (l == 0)
                                h.fits[rows[i]] = sum;
                }
        }
        __syncthreads();
}

static __device__ __forceinline__ uint64_t greater(uint64_t a, uint64_t b)
{
        return a > b ? a : b;
}

/* The row that fits worst of those whose cluster keeps another one, equal ones by number: its fit's bits, and the row's
 * complement; 0: there is none. Needs all threads. */
static __device__ __forceinline__ uint64_t find_worst(SettleShared &s, const KmView &h)
{
        uint64_t worst = 0;
        for (int row = (int)threadIdx.x; row < h.n; row += settle_threads)
                if (s.sizes[h.labels[row]] >= 2)
                        worst = greater(worst, (uint64_t)__float_as_uint(h.fits[row]) << 32 | (uint32_t)~row);
#pragma unroll
        for (int with = 16; with > 0; with /= 2)
                worst = greater(worst, __shfl_xor_sync(km_all, worst, with));
        if ((threadIdx.x & 31) == 0)
                s.keys[threadIdx.x >> 5] = worst;
        __syncthreads();
        for (int w = 0; w < settle_warps; w++)
                worst = greater(worst, s.keys[w]);
        __syncthreads(); /* keys, labels and sizes have been read */
        return worst;
}

/* Empty clusters, ascending, get such a row each; returns how many could. Needs all threads. */
template <int DIM> static __device__ __forceinline__ int repair(SettleShared &s, const KmView &h)
{
        const int lane = (int)threadIdx.x & 31;
        int n_repaired = 0;
        find_fits<DIM>(h);
        for (int c = 0; c < h.k; c++) {
                if (s.sizes[c] != 0) /* the same for all */
                        continue;
                const uint64_t worst = find_worst(s, h);
                const int row = (int)~(uint32_t)worst;
                if (worst == 0 || !(__uint_as_float((uint32_t)(worst >> 32)) > km_least_fit))
                        break;
                if (threadIdx.x < 32) {
                        float x[DIM / 32];
#pragma unroll
                        for (int t = 0; t < DIM / 32; t++)
                                x[t] = km_point_at(h, row, lane + 32 * t);
                        km_put<DIM>(h, c, x);
                }
                if (threadIdx.x == 0) {
                        const int before = h.labels[row];
                        int32_t *counts = h.counts + (uint64_t)(row / km_tile) * h.padded,
                                *sizes = h.sizes + row / (km_tile * km_span) * h.padded;
                        s.sizes[before]--;
                        s.sizes[c]++;
                        h.changed[before] = h.changed[c] = 1;
                        counts[before]--;
                        counts[c]++;
                        sizes[before]--;
                        sizes[c]++;
                        h.labels[row] = c;
                }
                n_repaired++;
                __syncthreads();
        }
        return n_repaired;
}

/* Where each cluster begins. Needs all threads. */
static __device__ __forceinline__ void find_starts(SettleShared &s, const KmView &h)
{
        const int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
        int begin = 0;
        for (int first = 0; first < h.k; first += settle_threads) {
                const int c = first + (int)threadIdx.x, size = c < h.k ? s.sizes[c] : 0;
                int sum = size;
#pragma unroll
                for (int by = 1; by < 32; by *= 2) {
                        const int before = __shfl_up_sync(km_all, sum, by);
                        sum += lane >= by ? before : 0;
                }
                if (lane == 31)
                        s.sums[warp] = sum;
                __syncthreads();
                const int of_warp = s.sums[lane], before = sum_of_warp(lane < warp ? of_warp : 0),
                          all = sum_of_warp(of_warp);
                if (c < h.k)
                        h.starts[c] = begin + before + sum - size;
                begin += all;
                __syncthreads(); /* sums have been read */
        }
        if (threadIdx.x == 0)
                h.starts[h.k] = begin;
}

/* Where each span's rows of each cluster go. A thread has the clusters whose begin it has written. */
static __device__ __forceinline__ void share(const KmView &h)
{
        for (int c = (int)threadIdx.x; c < h.k; c += settle_threads) {
                int at = h.starts[c];
                go_through_spans(h, c, [&](int span, int n) {
                        h.sizes[span * h.padded + c] = at;
                        at += n;
                });
        }
}

/* What run_rounds and assign_last of kmeans_run.c decide. attempt: of the last assignment; negative: of a round. */
template <int DIM>
static __global__ void __launch_bounds__(settle_threads, 1)
        settle_kernel(const __grid_constant__ KmCall call, int round, int attempt)
{
        __shared__ SettleShared s;
        const KmView h = km_view(call, (int)blockIdx.x);
        if (km_done(h)) { /* the same for all */
                if (threadIdx.x == 0)
                        h.state[DCI_GPU_KMEANS_FRESH] = 0;
                return;
        }
        const bool last = attempt >= 0, stable = !last && round > 0 && h.state[DCI_GPU_KMEANS_MOVED] == 0 &&
                                                 h.state[DCI_GPU_KMEANS_REPAIRED] == 0;
        const int n_empty = count_members(s, h);
        const bool repairs = n_empty > 0 && !stable && attempt != DCI_GPU_KMEANS_LAST_TRIES;
        const int n_repaired = repairs ? repair<DIM>(s, h) : 0;
        __syncthreads();
        find_starts(s, h);
        share(h);
        if (threadIdx.x != 0)
                return;
        h.state[DCI_GPU_KMEANS_DONE] = last ? n_repaired == 0 : stable;
        h.state[DCI_GPU_KMEANS_FRESH] = 1;
        h.state[DCI_GPU_KMEANS_REPAIRED] = n_repaired > 0;
        h.state[DCI_GPU_KMEANS_MOVED] = 0;
        h.state[DCI_GPU_KMEANS_ROUNDS] += !last;
}

/* --- place, means ------------------------------------------------------------------------------------------------- */

/* A block has a span, a warp a tile of it: 32 rows at a time, so that they stay in order. Counts and sizes are left as the
 * next assignment needs them. */
static __global__ void __launch_bounds__(place_threads) place_kernel(const __grid_constant__ KmCall call)
{
        PTX_DYNAMIC_SHARED(16, int32_t, places); /* by cluster: of the span; and, [tile][cluster], how far on */
        const KmView h = km_view(call, (int)blockIdx.y);
        const int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5, span = (int)blockIdx.x,
                  tile = span * km_span + warp;
        if (span >= h.n_spans || h.state[DCI_GPU_KMEANS_FRESH] == 0) /* the same for all */
                return;
        uint16_t *further = reinterpret_cast<uint16_t *>(places + h.padded);
        int32_t labels[km_tile / 32];
#pragma unroll
        for (int i = 0; i < km_tile / 32; i++) {
                const int row = tile * km_tile + 32 * i + lane;
                labels[i] = row < h.n ? h.labels[row] : -1;
        }
        for (int c = (int)threadIdx.x; c < h.k; c += place_threads) {
                int32_t *counts = h.counts + (uint64_t)(span * km_span) * h.padded + c, n[km_span];
                int at = 0;
                places[c] = h.sizes[span * h.padded + c];
#pragma unroll
                for (int t = 0; t < km_span; t++)
                        n[t] = span * km_span + t < h.n_tiles ? counts[t * h.padded] : 0;
#pragma unroll
                for (int t = 0; t < km_span; t++) {
                        further[t * h.padded + c] = (uint16_t)at;
                        at += n[t];
                        if (n[t] != 0)
                                counts[t * h.padded] = 0;
                }
                h.sizes[span * h.padded + c] = 0;
        }
        __syncthreads();
        further += warp * h.padded;
#pragma unroll
        for (int i = 0; i < km_tile / 32; i++) {
                const int label = labels[i];
                const unsigned same = __match_any_sync(km_all, label);
                const int before = __popc(same & ((1u << lane) - 1)), place = label < 0 ? 0 : further[label];
                __syncwarp();
                if (label >= 0) {
                        h.order[places[label] + place + before] = tile * km_tile + 32 * i + lane;
                        if (before == 0)
                                further[label] = (uint16_t)(place + __popc(same));
                }
                __syncwarp();
        }
}

/* Sums of a cluster's rows as they are, or POINTS of their points; binary32 of `piece` of them, binary64 beyond: words
 * lane + 32 w. By the whole warp. */
template <int DIM, int PIECE, bool POINTS>
static __device__ __forceinline__ void sum_members(const KmView &h, int begin, int n,
                                                   double (&sums)[(DIM + 63) / 64][2])
{
        constexpr int n_words = (DIM + 63) / 64, ahead = DIM == 256 ? 16 : 32; /* rows that are requested at once */
        const int lane = (int)threadIdx.x & 31;
        float part[n_words][2] = {}, row_mean[n_words][2] = {}, middle[n_words][2] = {};
#pragma unroll
        for (int w = 0; POINTS && w < n_words; w++)
#pragma unroll
                for (int e = 0; e < 2; e++)
                        if (lane + 32 * w < DIM / 2) {
                                row_mean[w][e] = h.row_mean[2 * (lane + 32 * w) + e];
                                middle[w][e] = h.middle[2 * (lane + 32 * w) + e];
                        }
        int next = h.order[begin + min(lane, n - 1)];
        for (int first = 0; first < n; first += 32) {
                const int here = min(n - first, 32), own = next;
                const float own_scale = POINTS ? h.scales[own] : 0.0f;
                next = h.order[begin + min(first + 32 + lane, n - 1)];
                for (int r = 0; r < here; r += ahead) {
                        uint32_t x[ahead][n_words];
#pragma unroll
                        for (int i = 0; i < ahead; i++) {
                                const int row = __shfl_sync(km_all, own, min(r + i, here - 1));
                                const uint32_t *from =
                                        reinterpret_cast<const uint32_t *>(h.rows + (uint64_t)row * h.row_step);
#pragma unroll
                                for (int w = 0; w < n_words; w++)
                                        x[i][w] = lane + 32 * w < DIM / 2 ? __ldg(from + lane + 32 * w) : 0;
                        }
#pragma unroll
                        for (int i = 0; i < ahead; i++) {
                                if (r + i >= here) /* the same for all */
                                        continue;
                                const float scale = POINTS ? __shfl_sync(km_all, own_scale, r + i) : 0.0f;
#pragma unroll
                                for (int w = 0; w < n_words; w++) {
                                        float low = km_widen(x[i][w] & 0xffff, h.is_f16),
                                              high = km_widen(x[i][w] >> 16, h.is_f16);
                                        if (POINTS) {
                                                low = km_point(low, row_mean[w][0], scale, middle[w][0]);
                                                high = km_point(high, row_mean[w][1], scale, middle[w][1]);
                                        }
                                        part[w][0] = __fadd_rn(part[w][0], low);
                                        part[w][1] = __fadd_rn(part[w][1], high);
                                }
                        }
                }
                if ((first + 32) % PIECE != 0 && first + 32 < n)
                        continue;
#pragma unroll
                for (int w = 0; w < n_words; w++)
#pragma unroll
                        for (int e = 0; e < 2; e++) {
                                sums[w][e] = __dadd_rn(sums[w][e], (double)part[w][e]);
                                part[w][e] = 0.0f;
                        }
        }
}

static __device__ __forceinline__ uint32_t km_narrow(float x, bool is_f16)
{
        if (is_f16)
                return __half_as_ushort(__float2half_rn(x));
        const uint32_t bits = __float_as_uint(x); /* finite: sums of rows that are */
        return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

/* A warp has a cluster: where its centre goes. The same members as in the round before have the same mean. */
template <int DIM, bool CENTRED>
static __global__ void __launch_bounds__(km_warp_threads) move_kernel(const __grid_constant__ KmCall call)
{
        constexpr int n_words = (DIM + 63) / 64;
        __shared__ float means[km_per_block][DIM];
        const KmView h = km_view(call, (int)blockIdx.y);
        const int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5, c = (int)blockIdx.x * km_per_block + warp;
        if (c >= h.k || km_done(h) || h.changed[c] == 0)
                return;
        const int begin = h.starts[c], n = h.starts[c + 1] - begin;
        __syncwarp(); /* all have read */
        if (lane == 0)
                h.changed[c] = 0;
        if (n == 0)
                return;
        double sums[n_words][2] = {};
        sum_members<DIM, DCI_GPU_KMEANS_SUMMED, CENTRED>(h, begin, n, sums);
#pragma unroll
        for (int w = 0; w < n_words; w++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                        const int at = 2 * (lane + 32 * w) + e;
                        const double mean = __ddiv_rn(sums[w][e], (double)n);
                        if (at < DIM)
                                means[warp][at] =
                                        __double2float_rn(CENTRED ? __dadd_rn(mean, (double)h.middle[at]) : mean);
                }
        __syncwarp();
        float x[DIM / 32];
#pragma unroll
        for (int t = 0; t < DIM / 32; t++)
                x[t] = means[warp][lane + 32 * t];
        const float norm2 = km_norm2<DIM>(x, h.fused);
        if (!(norm2 >= km_least_norm2)) /* rows that cancel out leave it where it was */
                return;
        const float scale = __fdiv_rn(1.0f, __fsqrt_rn(norm2));
#pragma unroll
        for (int t = 0; t < DIM / 32; t++)
                x[t] = __fsub_rn(__fmul_rn(x[t], scale), h.middle[lane + 32 * t]);
        km_put<DIM>(h, c, x);
}

/* A warp has a cluster: the mean that stays of its keys, or of its values. */
template <int DIM>
static __global__ void __launch_bounds__(km_warp_threads)
        mean_kernel(const __grid_constant__ KmCall call, bool of_values)
{
        constexpr int n_words = (DIM + 63) / 64;
        KmView h = km_view(call, (int)blockIdx.y);
        const int lane = (int)threadIdx.x & 31, c = (int)blockIdx.x * km_per_block + ((int)threadIdx.x >> 5);
        if (c >= h.k || h.head_state[DCI_GPU_KMEANS_BAD] != 0)
                return;
        if (of_values) {
                const uint64_t head = blockIdx.y / (unsigned)call.sizes.n_parts,
                               first = (uint64_t)(h.order - call.args.order) - head * (uint64_t)call.sizes.all_rows;
                h.rows = call.args.values + head * call.args.value_head_step + first * call.args.value_step;
                h.row_step = call.args.value_step;
                h.means = call.args.value_means + (h.means - call.args.means);
        }
        const int begin = h.starts[c], n = h.starts[c + 1] - begin;
        if (n == 0)
                return;
        double sums[n_words][2] = {};
        sum_members<DIM, DCI_GPU_KMEANS_MEANT, false>(h, begin, n, sums);
        uint32_t *to = reinterpret_cast<uint32_t *>(h.means + (uint64_t)c * DIM * 2);
#pragma unroll
        for (int w = 0; w < n_words; w++)
                if (lane + 32 * w < DIM / 2)
                        to[lane + 32 * w] = km_narrow(__double2float_rn(__ddiv_rn(sums[w][0], (double)n)), h.is_f16) |
                                            km_narrow(__double2float_rn(__ddiv_rn(sums[w][1], (double)n)), h.is_f16)
                                                    << 16;
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

/* Rows to centres, and in order. */
template <int DIM> static void queue_labels(KmQueue &queue, const KmCall &call, int round, int attempt)
{
        const int n_views = call.sizes.n_problems * call.n_segments;
        if (queue.error == cudaSuccess)
                queue.error = call.wide ? dci_gpu_cuda_kmeans_wide(&call, queue.stream)
                                        : dci_gpu_cuda_kmeans_assign(&call, queue.stream);
        queue.launch(settle_kernel<DIM>, dim3((unsigned)n_views), settle_threads, call, round, attempt);
        if (queue.error == cudaSuccess)
                queue.error = launch_shared({queue.stream, false}, dim3((unsigned)call.n_spans, (unsigned)n_views),
                                            place_threads, (size_t)call.padded * (4 + 2 * km_span), place_kernel, call);
}

template <int DIM>
static cudaError_t queue_all(const dci_gpu_cuda *cuda, const dci_gpu_kmeans_args &args, cudaStream_t stream)
{
        const KmCall rounds = km_call(cuda, args, true), whole = km_call(cuda, args, false);
        const dim3 clusters = km_grid(args.n_clusters, rounds.sizes.n_problems),
                   shares = km_grid(rounds.padded, rounds.sizes.n_problems * rounds.n_segments);
        KmQueue queue = {stream, dci_gpu_cuda_kmeans_prepare(&rounds, &whole, stream)};
        for (int round = 0; round < args.n_rounds; round++) {
                queue_labels<DIM>(queue, rounds, round, -1);
                if (args.centred != 0)
                        queue.launch(move_kernel<DIM, true>, shares, km_warp_threads, rounds);
                else
                        queue.launch(move_kernel<DIM, false>, shares, km_warp_threads, rounds);
        }
        if (rounds.n_segments > 1 && queue.error == cudaSuccess)
                queue.error = dci_gpu_cuda_kmeans_join(&rounds, &whole, stream);
        for (int attempt = 0; attempt <= DCI_GPU_KMEANS_LAST_TRIES; attempt++)
                queue_labels<DIM>(queue, whole, args.n_rounds, attempt);
        queue.launch(mean_kernel<DIM>, clusters, km_warp_threads, whole, false);
        if (args.values != nullptr)
                queue.launch(mean_kernel<DIM>, clusters, km_warp_threads, whole, true);
        return queue.error;
}

extern "C" dci_status dci_gpu_cuda_kmeans(struct dci_gpu *gpu, void *stream, const dci_gpu_kmeans_args *args)
{
        if (dci_gpu_kmeans_takes(args) == 0)
                return dci_fail(
                        DCI_ERR_LIMIT,
                        "%d clusters of %d rows in %d rounds, %d heads, segments of %d rows: the device's kernel "
                        "takes %d, %d and %d of all heads' segments",
                        args->n_clusters, args->n_rows, args->n_rounds, args->n_heads, args->segment_rows,
                        DCI_GPU_KMEANS_MOST, DCI_GPU_KMEANS_MAX_ROUNDS, DCI_GPU_KMEANS_VIEWS);
        if (args->dim != 64 && args->dim != 96 && args->dim != 128 && args->dim != 256)
                return dci_fail(DCI_ERR_UNSUPPORTED, "rows have %d elements, expected 64, 96, 128 or 256", args->dim);
        const cudaError_t error = with_dim(args->dim, cudaErrorInvalidValue, [&](auto dim) {
                return queue_all<dim.value>(dci_gpu_cuda_of(gpu), *args, static_cast<cudaStream_t>(stream));
        });
        return dci_gpu_cuda_status(error, "clusters of %d tokens cannot be queued", args->n_rows);
}
