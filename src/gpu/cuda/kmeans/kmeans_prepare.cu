/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What the rounds of k-means begin with (args/kmeans.h): rows as points, packed for matrix units once, since every
 * assignment reads them; their middle; and the first centres. And the centres of a head's segments, put together. */
#include "gpu/cuda/kmeans/kmeans.cuh"

constexpr int middle_groups = 4,
              middle_each = 8; /* of threads that bring a middle's rows; rows that a thread brings at a time */

/* --- rows and their mean ------------------------------------------------------------------------------------------ */

static __global__ void begin_kernel(const __grid_constant__ KmCall call)
{
        const KmView h = km_view(call, (int)blockIdx.y);
        float *row_mean = const_cast<float *>(h.row_mean);
        for (int i = (int)threadIdx.x; i < DCI_GPU_KMEANS_STATES; i += (int)blockDim.x) {
                h.state[i] = 0;
                h.head_state[i] = 0; /* each segment does so */
        }
        for (int i = (int)threadIdx.x; i < call.args.dim; i += (int)blockDim.x)
                row_mean[i] = 0.0f;
}

static __device__ __forceinline__ float *sums_of(const KmCall &call, int head, int task)
{
        return reinterpret_cast<float *>(call.args.work + call.parts.sums) +
               ((uint64_t)head * (uint64_t)call.sizes.tiles + (uint64_t)task) * (uint64_t)call.args.dim;
}

/* A block has so many rows as are summed in binary32, a thread an element. */
template <int DIM> static __global__ void __launch_bounds__(DIM) sum_kernel(const __grid_constant__ KmCall call)
{
        const KmView h = km_view(call, (int)blockIdx.y);
        const int e = (int)threadIdx.x, begin = (int)blockIdx.x * DCI_GPU_KMEANS_SUMMED,
                  end = min(begin + DCI_GPU_KMEANS_SUMMED, h.n);
        float sum = 0.0f;
#pragma unroll 8
        for (int row = begin; row < end; row++)
                sum = __fadd_rn(sum, km_element(h, row, e));
        sums_of(call, (int)blockIdx.y, (int)blockIdx.x)[e] = sum;
}

template <int DIM> static __global__ void __launch_bounds__(DIM) row_mean_kernel(const __grid_constant__ KmCall call)
{
        const KmView h = km_view(call, (int)blockIdx.x);
        const int e = (int)threadIdx.x;
        double total = 0.0;
#pragma unroll 8
        for (int task = 0; task < h.n_tiles; task++)
                total = __dadd_rn(total, (double)sums_of(call, (int)blockIdx.x, task)[e]);
        const_cast<float *>(h.row_mean)[e] = __double2float_rn(__ddiv_rn(total, (double)h.n));
}

/* A warp has a row. */
template <int DIM> static __global__ void scale_kernel(const __grid_constant__ KmCall call)
{
        const KmView h = km_view(call, (int)blockIdx.y);
        const int lane = (int)threadIdx.x & 31, row = (int)blockIdx.x * km_per_block + ((int)threadIdx.x >> 5);
        if (row >= h.n)
                return;
        float x[DIM / 32];
#pragma unroll
        for (int t = 0; t < DIM / 32; t++)
                x[t] = km_element(h, row, lane + 32 * t);
        const float length2 = km_norm2<DIM>(x, h.fused);
        float norm2 = length2;
        if (call.args.centred != 0) {
#pragma unroll
                for (int t = 0; t < DIM / 32; t++)
                        x[t] = __fsub_rn(x[t], h.row_mean[lane + 32 * t]);
                norm2 = km_norm2<DIM>(x, h.fused);
        }
        if (lane != 0)
                return;
        h.labels[row] = -1;
        h.scales[row] = __fdiv_rn(1.0f, __fsqrt_rn(norm2));
        if (!(length2 <= km_most_norm2) || !(norm2 >= km_least_norm2))
                h.head_state[DCI_GPU_KMEANS_BAD] = 1;
}

/* --- points ------------------------------------------------------------------------------------------------------- */

/* Groups of DIM threads bring some rows at a time to shared memory; the first group adds them up in order. */
template <int DIM>
static __global__ void __launch_bounds__(DIM *middle_groups) middle_kernel(const __grid_constant__ KmCall call)
{
        __shared__ float rows[middle_groups * middle_each][DIM];
        const KmView h = km_view(call, (int)blockIdx.x);
        const int step = h.n / DCI_GPU_KMEANS_MIDDLE + 4, n = (h.n + step - 1) / step, e = (int)threadIdx.x % DIM,
                  group = (int)threadIdx.x / DIM;
        float sum = 0.0f;
        for (int first = 0; first < n; first += middle_groups * middle_each) {
#pragma unroll
                for (int i = 0; i < middle_each; i++) {
                        const int at = i * middle_groups + group, row = min(first + at, n - 1) * step;
                        rows[at][e] = km_unit(km_element(h, row, e), h.row_mean[e], h.scales[row]);
                }
                __syncthreads();
                for (int i = 0; group == 0 && i < min(n - first, middle_groups * middle_each); i++)
                        sum = __fadd_rn(sum, rows[i][e]);
                __syncthreads(); /* rows have been read */
        }
        if (group == 0)
                const_cast<float *>(h.middle)[e] = __fmul_rn(sum, __fdiv_rn(1.0f, (float)n));
}

/* Eight elements of a row as a point, rounded to f16; adds up its squared length, and that of what it lost. */
static __device__ __forceinline__ uint4 pack_eight(const uint4 &raw, const KmView &h, int e, float scale,
                                                   float *length2, float *lost2)
{
        const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
        uint32_t out[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
                const float a = km_point(km_widen(words[j] & 0xffff, h.is_f16), h.row_mean[e + 2 * j], scale,
                                         h.middle[e + 2 * j]);
                const float b = km_point(km_widen(words[j] >> 16, h.is_f16), h.row_mean[e + 2 * j + 1], scale,
                                         h.middle[e + 2 * j + 1]);
                const __half2 both = __floats2half2_rn(a, b);
                const float2 kept = __half22float2(both);
                const float lost_a = a - kept.x, lost_b = b - kept.y;
                *length2 += a * a + b * b;
                *lost2 += lost_a * lost_a + lost_b * lost_b;
                out[j] = *reinterpret_cast<const uint32_t *>(&both);
        }
        return make_uint4(out[0], out[1], out[2], out[3]);
}

/* A warp packs a group of rows: lane 4 g + c has elements 32 j + 8 c to 32 j + 8 c + 7 of rows g and 8 + g. */
template <int DIM> static __global__ void pack_kernel(const __grid_constant__ KmCall call)
{
        const KmView h = km_view(call, (int)blockIdx.y);
        const int lane = (int)threadIdx.x & 31, g = lane >> 2, c = lane & 3,
                  group = (int)blockIdx.x * km_per_block + ((int)threadIdx.x >> 5);
        if (group * DCI_GPU_KMEANS_GROUP >= h.n)
                return;
        uint4 *to = h.points + (uint64_t)group * (2 * DIM) + lane;
#pragma unroll
        for (int r = 0; r < 2; r++) {
                /* Rows past the end repeat the last one. */
                const int at = group * DCI_GPU_KMEANS_GROUP + 8 * r + g, row = min(at, h.n - 1);
                const unsigned char *from = h.rows + (uint64_t)row * h.row_step + 16 * c;
                const float scale = h.scales[row];
                float length2 = 0.0f, lost2 = 0.0f;
#pragma unroll
                for (int j = 0; j < DIM / 32; j++)
                        to[(r * (DIM / 32) + j) * 32] =
                                pack_eight(__ldg(reinterpret_cast<const uint4 *>(from + 64 * j)), h, 32 * j + 8 * c,
                                           scale, &length2, &lost2);
#pragma unroll
                for (int with = 1; with < 4; with *= 2) {
                        length2 += __shfl_xor_sync(km_all, length2, with);
                        lost2 += __shfl_xor_sync(km_all, lost2, with);
                }
                if (c == 0 && at < h.n)
                        h.bounds[row] = make_float2(__fsqrt_rn(length2), __fsqrt_rn(lost2));
        }
}

/* --- centres ------------------------------------------------------------------------------------------------------ */

/* A warp has a centre, which begins at the row that was drawn for it; those that only fill up are nobody's. */
template <int DIM> static __global__ void start_kernel(const __grid_constant__ KmCall call, bool draws)
{
        const KmView v = km_view(call, (int)blockIdx.y);
        const int lane = (int)threadIdx.x & 31, c = (int)blockIdx.x * km_per_block + ((int)threadIdx.x >> 5);
        if (c >= v.padded)
                return;
        if (lane == 0)
                v.sizes[c] = v.changed[c] = 0;
        for (int t = lane; t < v.n_tiles; t += 32) /* all of them, each by some warp */
                v.counts[(uint64_t)c * v.n_tiles + t] = 0;
        if (c >= v.k) {
#pragma unroll
                for (int t = 0; t < DIM / 32; t++)
                        v.packed[km_packed_at<DIM>(v.wide, c, lane + 32 * t)] = 0;
                if (lane == 0)
                        v.offsets[c] = km_nobody;
                return;
        }
        if (!draws)
                return;
        const int problem = (int)blockIdx.y / call.n_segments,
                  row = __ldg(call.args.first + (uint64_t)problem * (uint64_t)call.args.n_clusters + v.first_cluster +
                              c) -
                        v.first_row;
        float x[DIM / 32];
#pragma unroll
        for (int t = 0; t < DIM / 32; t++)
                x[t] = km_point_at(v, row, lane + 32 * t);
        km_put<DIM>(v, c, x);
}

/* A warp copies a segment's centre to those of its head. */
template <int DIM>
static __global__ void join_kernel(const __grid_constant__ KmCall rounds, const __grid_constant__ KmCall whole)
{
        const KmView v = km_view(rounds, (int)blockIdx.y), h = km_view(whole, (int)blockIdx.y / rounds.n_segments);
        const int lane = (int)threadIdx.x & 31, c = (int)blockIdx.x * km_per_block + ((int)threadIdx.x >> 5);
        if (blockIdx.x == 0 && threadIdx.x == 0) {
                atomicMax(h.state + DCI_GPU_KMEANS_ROUNDS, v.state[DCI_GPU_KMEANS_ROUNDS]);
                atomicAdd(h.state + DCI_GPU_KMEANS_EXACT, v.state[DCI_GPU_KMEANS_EXACT]);
        }
        if (c >= v.k)
                return;
        float x[DIM / 32];
#pragma unroll
        for (int t = 0; t < DIM / 32; t++)
                x[t] = v.centres[(uint64_t)c * DIM + lane + 32 * t];
        km_put<DIM>(h, v.first_cluster + c, x);
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

template <int DIM>
static cudaError_t queue_prepare(const KmCall &rounds, const KmCall &heads, cudaStream_t stream)
{
        const int n = rounds.args.n_rows, n_problems = rounds.sizes.n_problems,
                  n_views = n_problems * rounds.n_segments;
        KmQueue queue = {stream, cudaSuccess};
        queue.launch(begin_kernel, dim3(1, (unsigned)n_views), 256, rounds);
        if (rounds.args.centred != 0) {
                queue.launch(sum_kernel<DIM>, dim3((unsigned)heads.n_tiles, (unsigned)n_problems), DIM, heads);
                queue.launch(row_mean_kernel<DIM>, dim3((unsigned)n_problems), DIM, heads);
        }
        queue.launch(scale_kernel<DIM>, km_grid(n, n_problems), km_warp_threads, heads);
        queue.launch(middle_kernel<DIM>, dim3((unsigned)n_problems), DIM * middle_groups, heads);
        queue.launch(pack_kernel<DIM>, km_grid(dci_gpu_kmeans_groups(n), n_problems), km_warp_threads, heads);
        queue.launch(start_kernel<DIM>, km_grid(rounds.padded, n_views), km_warp_threads, rounds, true);
        return queue.error;
}

extern "C" cudaError_t dci_gpu_cuda_kmeans_prepare(const KmCall *rounds, const KmCall *whole, cudaStream_t stream)
{
        return with_dim(rounds->args.dim, cudaErrorInvalidValue,
                        [&](auto dim) { return queue_prepare<dim.value>(*rounds, *whole, stream); });
}

template <int DIM> static cudaError_t queue_join(const KmCall &rounds, const KmCall &whole, cudaStream_t stream)
{
        const int n_problems = whole.sizes.n_problems;
        KmQueue queue = {stream, cudaSuccess};
        queue.launch(start_kernel<DIM>, km_grid(whole.padded, n_problems), km_warp_threads, whole, false);
        queue.launch(join_kernel<DIM>, km_grid(rounds.padded, n_problems * rounds.n_segments), km_warp_threads, rounds,
                     whole);
        return queue.error;
}

extern "C" cudaError_t dci_gpu_cuda_kmeans_join(const KmCall *rounds, const KmCall *whole, cudaStream_t stream)
{
        return with_dim(whole->args.dim, cudaErrorInvalidValue,
                        [&](auto dim) { return queue_join<dim.value>(*rounds, *whole, stream); });
}
