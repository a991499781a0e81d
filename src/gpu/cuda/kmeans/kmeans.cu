/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Clusters of a prompt's keys (args/kmeans.h), but for the assignment (cuda/kmeans/kmeans_assign.cu). A round is five
 * launches: assign; settle, where one block for a head repairs empty clusters and says where each cluster's rows begin;
 * share, which says where those of each tile do; place, which sorts rows by label; and means. A head whose labels no
 * longer change lets the rest of the rounds pass. Nothing waits for the host. */
#include "gpu/cuda/kmeans/kmeans.cuh"

constexpr int settle_threads = 1024, settle_warps = settle_threads / 32;
constexpr int warp_threads = 128,
              per_block = warp_threads / 32; /* of kernels where a warp has a row, a centre or a tile */
constexpr int at_once = 48;                  /* tiles whose counts are requested at once */
constexpr int middle_groups = 4,
              middle_each = 8; /* of threads that bring a middle's rows; rows that a thread brings at a time */

/* --- rows, their middle, the first centres ------------------------------------------------------------------------ */

static __global__ void begin_kernel(const __grid_constant__ KmCall call)
{
        for (int i = (int)threadIdx.x; i < call.args.n_heads * DCI_GPU_KMEANS_STATES; i += (int)blockDim.x)
                call.args.states[i] = 0;
}

/* A warp has a row. */
template <int DIM> static __global__ void prepare_kernel(const __grid_constant__ KmCall call)
{
        const KmHead h = km_head(call, (int)blockIdx.y);
        const int lane = (int)threadIdx.x & 31, row = (int)blockIdx.x * per_block + ((int)threadIdx.x >> 5);
        if (row >= h.n)
                return;
        float x[DIM / 32];
#pragma unroll
        for (int t = 0; t < DIM / 32; t++)
                x[t] = km_element(h, row, lane + 32 * t);
        const float norm2 = km_norm2<DIM>(x, h.fused);
        if (lane != 0)
                return;
        h.labels[row] = -1;
        h.scales[row] = __fdiv_rn(1.0f, __fsqrt_rn(norm2));
        if (!(norm2 <= km_most_norm2) || norm2 < km_least_norm2)
                h.state[DCI_GPU_KMEANS_BAD] = h.state[DCI_GPU_KMEANS_DONE] = 1;
}

/* Groups of DIM threads bring some rows at a time to shared memory; the first group adds them up in order. */
template <int DIM>
static __global__ void __launch_bounds__(DIM *middle_groups) middle_kernel(const __grid_constant__ KmCall call)
{
        __shared__ float rows[middle_groups * middle_each][DIM];
        const KmHead h = km_head(call, (int)blockIdx.x);
        const int step = h.n / DCI_GPU_KMEANS_MIDDLE + 4, n = (h.n + step - 1) / step, e = (int)threadIdx.x % DIM,
                  group = (int)threadIdx.x / DIM;
        float sum = 0.0f;
        for (int first = 0; first < n; first += middle_groups * middle_each) {
#pragma unroll
                for (int i = 0; i < middle_each; i++) {
                        const int at = i * middle_groups + group, row = min(first + at, n - 1) * step;
                        rows[at][e] = __fmul_rn(km_element(h, row, e), h.scales[row]);
                }
                __syncthreads();
                for (int i = 0; group == 0 && i < min(n - first, middle_groups * middle_each); i++)
                        sum = __fadd_rn(sum, rows[i][e]);
                __syncthreads(); /* rows have been read */
        }
        if (group == 0)
                h.middle[e] = __fmul_rn(sum, __fdiv_rn(1.0f, (float)n));
}

/* A warp has a centre; those that only fill up are nobody's. */
template <int DIM> static __global__ void start_kernel(const __grid_constant__ KmCall call)
{
        const KmHead h = km_head(call, (int)blockIdx.y);
        const int lane = (int)threadIdx.x & 31, c = (int)blockIdx.x * per_block + ((int)threadIdx.x >> 5);
        if (c >= h.padded)
                return;
        if (lane == 0)
                h.sizes[c] = 0;
        if (c >= h.k) {
#pragma unroll
                for (int t = 0; t < DIM / 32; t++)
                        h.packed[km_packed_at<DIM>(c, lane + 32 * t)] = 0;
                if (lane == 0)
                        h.offsets[c] = km_nobody;
                return;
        }
        const int row = __ldg(call.args.first + (uint64_t)blockIdx.y * (uint64_t)h.k + c);
        float x[DIM / 32];
#pragma unroll
        for (int t = 0; t < DIM / 32; t++)
                x[t] = km_point(km_element(h, row, lane + 32 * t), h.scales[row], h.middle[lane + 32 * t]);
        km_put<DIM>(h, c, x);
}

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

/* Members of all clusters; returns how many have none. Needs all threads. */
static __device__ __forceinline__ int count_members(SettleShared &s, const KmHead &h)
{
        int n_empty = 0;
        if (threadIdx.x == 0)
                s.n_empty = 0;
        __syncthreads();
        for (int c = (int)threadIdx.x; c < h.padded; c += settle_threads) {
                const int size = h.sizes[c];
                h.sizes[c] = 0; /* for the next assignment */
                s.sizes[c] = size;
                n_empty += c < h.k && size == 0;
        }
        if (n_empty > 0)
                atomicAdd(&s.n_empty, n_empty);
        __syncthreads();
        return s.n_empty;
}

/* Squared distance of every row to its centre; half a warp has a row. Needs all threads. */
template <int DIM> static __device__ __forceinline__ void find_fits(const KmHead &h)
{
        const int l = (int)threadIdx.x & 15, half = (int)threadIdx.x >> 4, n_halves = settle_threads / 16;
        for (int first = 0; first < h.n; first += n_halves) {
                const int row = min(first + half, h.n - 1);
                const float scale = h.scales[row], *centre = h.centres + (uint64_t)h.labels[row] * DIM;
                float sum = 0.0f;
#pragma unroll
                for (int t = 0; t < DIM / 16; t++) {
                        const float point = km_point(km_element(h, row, l + 16 * t), scale, h.middle[l + 16 * t]);
                        const float apart = __fsub_rn(centre[l + 16 * t], point);
                        sum = km_step(apart, apart, sum, h.fused);
                }
                sum = km_tree(sum);
                if (l == 0)
                        h.fits[row] = sum;
        }
        __syncthreads();
}

static __device__ __forceinline__ uint64_t greater(uint64_t a, uint64_t b)
{
        return a > b ? a : b;
}

/* The row that fits worst of those whose cluster keeps another one, equal ones by number: its fit's bits, and the row's
 * complement; 0: there is none. Needs all threads. */
static __device__ __forceinline__ uint64_t find_worst(SettleShared &s, const KmHead &h)
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
template <int DIM> static __device__ __forceinline__ int repair(SettleShared &s, const KmHead &h)
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
                                x[t] = km_point(km_element(h, row, lane + 32 * t), h.scales[row],
                                                h.middle[lane + 32 * t]);
                        km_put<DIM>(h, c, x);
                }
                if (threadIdx.x == 0) {
                        const int before = h.labels[row];
                        int32_t *counts = h.counts + (uint64_t)(row / km_tile) * h.padded;
                        s.sizes[before]--;
                        s.sizes[c]++;
                        counts[before]--;
                        counts[c]++;
                        h.labels[row] = c;
                }
                n_repaired++;
                __syncthreads();
        }
        return n_repaired;
}

/* Where each cluster begins. Needs all threads. */
static __device__ __forceinline__ void find_starts(SettleShared &s, const KmHead &h)
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

/* What run_rounds and assign_last of kmeans_run.c decide. attempt: of the last assignment; negative: of a round. */
template <int DIM>
static __global__ void __launch_bounds__(settle_threads, 1)
        settle_kernel(const __grid_constant__ KmCall call, int round, int attempt)
{
        __shared__ SettleShared s;
        const KmHead h = km_head(call, (int)blockIdx.x);
        const bool done_before = h.state[DCI_GPU_KMEANS_DONE] != 0;
        if (done_before) {
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
        if (threadIdx.x != 0)
                return;
        h.state[DCI_GPU_KMEANS_DONE] = last ? n_repaired == 0 : stable;
        h.state[DCI_GPU_KMEANS_FRESH] = 1;
        h.state[DCI_GPU_KMEANS_REPAIRED] = n_repaired > 0;
        h.state[DCI_GPU_KMEANS_MOVED] = 0;
        h.state[DCI_GPU_KMEANS_ROUNDS] += !last;
}

/* --- share, place, means ------------------------------------------------------------------------------------------ */

/* A thread has a cluster: where each tile's rows of it go. */
static __global__ void share_kernel(const __grid_constant__ KmCall call)
{
        const KmHead h = km_head(call, (int)blockIdx.y);
        const int c = (int)(blockIdx.x * blockDim.x + threadIdx.x);
        if (c >= h.k || h.state[DCI_GPU_KMEANS_FRESH] == 0)
                return;
        int at = h.starts[c];
        for (int first = 0; first < h.n_tiles; first += at_once) {
                int count[at_once];
#pragma unroll
                for (int t = 0; t < at_once; t++)
                        count[t] = first + t < h.n_tiles ? h.counts[(uint64_t)(first + t) * h.padded + c] : 0;
#pragma unroll
                for (int t = 0; t < at_once; t++) {
                        if (first + t < h.n_tiles)
                                h.counts[(uint64_t)(first + t) * h.padded + c] = at;
                        at += count[t];
                }
        }
}

/* A warp has a tile: 32 rows at a time, so that they stay in order. */
static __global__ void place_kernel(const __grid_constant__ KmCall call)
{
        const KmHead h = km_head(call, (int)blockIdx.y);
        const int lane = (int)threadIdx.x & 31, tile = (int)blockIdx.x * per_block + ((int)threadIdx.x >> 5);
        if (tile >= h.n_tiles || h.state[DCI_GPU_KMEANS_FRESH] == 0)
                return;
        int32_t *places = h.counts + (uint64_t)tile * h.padded;
        for (int first = 0; first < km_tile; first += 32) {
                const int row = tile * km_tile + first + lane, label = row < h.n ? h.labels[row] : -1;
                const unsigned same = __match_any_sync(km_all, label);
                const int before = __popc(same & ((1u << lane) - 1));
                const int place = label < 0 ? 0 : places[label];
                __syncwarp();
                if (label >= 0) {
                        h.order[place + before] = row;
                        if (before == 0)
                                places[label] = place + __popc(same);
                }
                __syncwarp();
        }
}

/* Sums of a cluster's rows, binary32 of `piece` of them, binary64 beyond: words lane + 32 w. By the whole warp. */
template <int DIM, int PIECE>
static __device__ __forceinline__ void sum_members(const KmHead &h, int begin, int n,
                                                   double (&sums)[(DIM + 63) / 64][2])
{
        constexpr int n_words = (DIM + 63) / 64, ahead = DIM == 256 ? 16 : 32; /* rows that are requested at once */
        const int lane = (int)threadIdx.x & 31;
        float part[n_words][2] = {};
        int next = h.order[begin + min(lane, n - 1)];
        for (int first = 0; first < n; first += 32) {
                const int here = min(n - first, 32), own = next;
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
#pragma unroll
                                for (int w = 0; w < n_words; w++) {
                                        part[w][0] = __fadd_rn(part[w][0], km_widen(x[i][w] & 0xffff, h.is_f16));
                                        part[w][1] = __fadd_rn(part[w][1], km_widen(x[i][w] >> 16, h.is_f16));
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

/* A warp has a cluster: where its centre goes, or, in the end, the mean that stays of it. */
template <int DIM, bool LAST>
static __global__ void __launch_bounds__(warp_threads) means_kernel(const __grid_constant__ KmCall call)
{
        constexpr int n_words = (DIM + 63) / 64;
        __shared__ float means[per_block][DIM];
        const KmHead h = km_head(call, (int)blockIdx.y);
        const int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5, c = (int)blockIdx.x * per_block + warp;
        if (c >= h.k || h.state[DCI_GPU_KMEANS_BAD] != 0 || (!LAST && h.state[DCI_GPU_KMEANS_DONE] != 0))
                return;
        const int begin = h.starts[c], n = h.starts[c + 1] - begin;
        if (n == 0)
                return;
        double sums[n_words][2] = {};
        sum_members<DIM, LAST ? DCI_GPU_KMEANS_MEANT : DCI_GPU_KMEANS_SUMMED>(h, begin, n, sums);
#pragma unroll
        for (int w = 0; w < n_words; w++) {
                const int word = lane + 32 * w;
                if (word >= DIM / 2)
                        break;
                const float low = __double2float_rn(__ddiv_rn(sums[w][0], (double)n)),
                            high = __double2float_rn(__ddiv_rn(sums[w][1], (double)n));
                if (LAST) {
                        reinterpret_cast<uint32_t *>(h.means + (uint64_t)c * DIM * 2)[word] =
                                km_narrow(low, h.is_f16) | km_narrow(high, h.is_f16) << 16;
                } else {
                        means[warp][2 * word] = low;
                        means[warp][2 * word + 1] = high;
                }
        }
        if (LAST)
                return;
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
                x[t] = km_point(x[t], scale, h.middle[lane + 32 * t]);
        km_put<DIM>(h, c, x);
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

/* Launches one after another; after an error none. */
struct Queue {
        cudaStream_t stream;
        cudaError_t error;

        template <class K, class... A> void launch(K kernel, dim3 grid, int n_threads, const A &...args)
        {
                if (error == cudaSuccess)
                        error = launch_kernel({stream, false}, grid, (unsigned)n_threads, 0, kernel, args...);
        }
};

static dim3 grid_of(int n, int n_heads)
{
        return dim3((unsigned)((n + per_block - 1) / per_block), (unsigned)n_heads);
}

/* Rows to centres, and in order. */
template <int DIM> static void queue_labels(Queue &queue, const KmCall &call, int round, int attempt)
{
        if (queue.error == cudaSuccess)
                queue.error = dci_gpu_cuda_kmeans_assign(&call, queue.stream);
        queue.launch(settle_kernel<DIM>, dim3((unsigned)call.args.n_heads), settle_threads, call, round, attempt);
        queue.launch(
                share_kernel,
                dim3((unsigned)((call.args.n_clusters + warp_threads - 1) / warp_threads), (unsigned)call.args.n_heads),
                warp_threads, call);
        queue.launch(place_kernel, grid_of(call.n_tiles, call.args.n_heads), warp_threads, call);
}

template <int DIM> static cudaError_t queue_all(const dci_gpu_kmeans_args &args, cudaStream_t stream)
{
        const KmCall call = {args, dci_gpu_kmeans_work(args.n_heads, args.dim, args.n_rows, args.n_clusters),
                             dci_gpu_kmeans_padded(args.n_clusters), dci_gpu_kmeans_tiles(args.n_rows)};
        Queue queue = {stream, cudaSuccess};
        const dim3 clusters = grid_of(args.n_clusters, args.n_heads);
        queue.launch(begin_kernel, dim3(1), 256, call);
        queue.launch(prepare_kernel<DIM>, grid_of(args.n_rows, args.n_heads), warp_threads, call);
        queue.launch(middle_kernel<DIM>, dim3((unsigned)args.n_heads), DIM * middle_groups, call);
        queue.launch(start_kernel<DIM>, grid_of(call.padded, args.n_heads), warp_threads, call);
        for (int round = 0; round < args.n_rounds; round++) {
                queue_labels<DIM>(queue, call, round, -1);
                queue.launch(means_kernel<DIM, false>, clusters, warp_threads, call);
        }
        for (int attempt = 0; attempt <= DCI_GPU_KMEANS_LAST_TRIES; attempt++)
                queue_labels<DIM>(queue, call, args.n_rounds, attempt);
        queue.launch(means_kernel<DIM, true>, clusters, warp_threads, call);
        return queue.error;
}

extern "C" dci_status dci_gpu_cuda_kmeans(struct dci_gpu *gpu, void *stream, const dci_gpu_kmeans_args *args)
{
        (void)gpu;
        if (args->n_clusters < 1 || args->n_clusters > args->n_rows || args->n_clusters > DCI_GPU_KMEANS_MOST ||
            args->n_rounds < 1 || args->n_rounds > DCI_GPU_KMEANS_MAX_ROUNDS || args->n_heads < 1 ||
            args->n_heads > 65535)
                return dci_fail(
                        DCI_ERR_LIMIT,
                        "%d clusters of %d rows in %d rounds, %d heads: the device's kernel takes %d, %d and 65535",
                        args->n_clusters, args->n_rows, args->n_rounds, args->n_heads, DCI_GPU_KMEANS_MOST,
                        DCI_GPU_KMEANS_MAX_ROUNDS);
        if (args->dim != 64 && args->dim != 96 && args->dim != 128 && args->dim != 256)
                return dci_fail(DCI_ERR_UNSUPPORTED, "rows have %d elements, expected 64, 96, 128 or 256", args->dim);
        const cudaError_t error = with_dim(args->dim, cudaErrorInvalidValue, [&](auto dim) {
                return queue_all<dim.value>(*args, static_cast<cudaStream_t>(stream));
        });
        return dci_gpu_cuda_status(error, "clusters of %d tokens cannot be queued", args->n_rows);
}
