/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What the rounds of k-means begin with (args/kmeans.h): rows as points, packed for matrix units once, since every
 * assignment reads them; their middle; and the first centres. And the centres of a head's segments, put together. */
#include "gpu/cuda/kmeans/kmeans.cuh"

constexpr int middle_threads = 512, middle_warps = middle_threads / 32;

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

static_assert(DCI_GPU_KMEANS_SUMMED == DCI_GPU_KMEANS_TILE, "a sum for each tile");

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

/* --- points ------------------------------------------------------------------------------------------------------- */

/* Each warp brings some rows at a time to shared memory, in unit length; a thread for each element adds them up in order,
 * while the next ones are on their way. */
template <int DIM>
static __global__ void __launch_bounds__(middle_threads) middle_kernel(const __grid_constant__ KmCall call)
{
        constexpr int each = DIM == 256 ? 2 : 4, at_once = each * middle_warps;
        __shared__ float rows[at_once][DIM];
        const KmView h = km_view(call, (int)blockIdx.x);
        const int step = h.n / DCI_GPU_KMEANS_MIDDLE + 4, n = (h.n + step - 1) / step, lane = (int)threadIdx.x & 31,
                  first_of_warp = (int)(threadIdx.x >> 5) * each;
        float sum = 0.0f, x[each][DIM / 32];
        const auto bring = [&](int first) {
#pragma unroll
                for (int i = 0; i < each; i++)
#pragma unroll
                        for (int t = 0; t < DIM / 32; t++)
                                x[i][t] = km_element(h, min(first + first_of_warp + i, n - 1) * step, lane + 32 * t);
        };
        bring(0);
        for (int first = 0; first < n; first += at_once) {
#pragma unroll
                for (int i = 0; i < each; i++) {
#pragma unroll
                        for (int t = 0; t < DIM / 32; t++)
                                x[i][t] = __fsub_rn(x[i][t], h.row_mean[lane + 32 * t]);
                        const float scale = km_scale(km_norm2<DIM>(x[i], h.fused));
#pragma unroll
                        for (int t = 0; t < DIM / 32; t++)
                                rows[first_of_warp + i][lane + 32 * t] = __fmul_rn(x[i][t], scale);
                }
                bring(first + at_once);
                __syncthreads();
                for (int i = 0; threadIdx.x < DIM && i < min(n - first, at_once); i++)
                        sum = __fadd_rn(sum, rows[i][threadIdx.x]);
                __syncthreads(); /* rows have been read */
        }
        if (threadIdx.x < DIM)
                const_cast<float *>(h.middle)[threadIdx.x] = __fmul_rn(sum, __fdiv_rn(1.0f, (float)n));
}

/* Elements of a row that a lane has: of each 32, eight contiguous ones. Four lanes share a row. */
template <int DIM> struct KmEighths {
        uint4 words[DIM / 32];

        __device__ __forceinline__ float at(int j, int i, bool is_f16) const
        {
                const uint4 &four = words[j];
                const uint32_t word = i < 2 ? four.x : i < 4 ? four.y : i < 6 ? four.z : four.w;
                return km_widen(i % 2 != 0 ? word >> 16 : word & 0xffff, is_f16);
        }
};

/* |row - mean|^2 as km_norm2 has it: of each 16 elements a lane has eight, of two such that follow each other two lanes. */
template <int DIM>
static __device__ __forceinline__ float norm2_of(const KmEighths<DIM> &own, const float *mean, const KmView &h)
{
        const int c = (int)threadIdx.x & 3;
        float sums[8] = {};
#pragma unroll
        for (int j = 0; j < DIM / 32; j++) {
                KmEighths<32> mine, other;
                mine.words[0] = own.words[j];
                other.words[0] = make_uint4(
                        __shfl_xor_sync(km_all, own.words[j].x, 2), __shfl_xor_sync(km_all, own.words[j].y, 2),
                        __shfl_xor_sync(km_all, own.words[j].z, 2), __shfl_xor_sync(km_all, own.words[j].w, 2));
                const KmEighths<32> &lower = c < 2 ? mine : other, &upper = c < 2 ? other : mine;
#pragma unroll
                for (int i = 0; i < 8; i++) {
                        float x = lower.at(0, i, h.is_f16), y = upper.at(0, i, h.is_f16);
                        if (mean != nullptr) {
                                x = __fsub_rn(x, mean[32 * j + 8 * (c & 1) + i]);
                                y = __fsub_rn(y, mean[32 * j + 16 + 8 * (c & 1) + i]);
                        }
                        sums[i] = km_step(y, y, km_step(x, x, sums[i], h.fused), h.fused);
                }
        }
#pragma unroll
        for (int i = 0; i < 8; i++)
                sums[i] = __fadd_rn(sums[i], __shfl_xor_sync(km_all, sums[i], 1));
#pragma unroll
        for (int half = 4; half > 0; half /= 2)
#pragma unroll
                for (int i = 0; i < half; i++)
                        sums[i] = __fadd_rn(sums[i], sums[i + half]);
        return sums[0];
}

/* A lane's elements of a row as a point, rounded to f16; its squared length, and that of what it lost, by four lanes. */
template <int DIM>
static __device__ __forceinline__ void pack_row(const KmEighths<DIM> &row, const KmView &h, float scale, uint4 *to,
                                                float *out_length2, float *out_lost2)
{
        const int c = (int)threadIdx.x & 3;
        float length2 = 0.0f, lost2 = 0.0f;
#pragma unroll
        for (int j = 0; j < DIM / 32; j++) {
                const int e = 32 * j + 8 * c;
                uint32_t out[4];
#pragma unroll
                for (int i = 0; i < 8; i += 2) {
                        const float a = km_point(row.at(j, i, h.is_f16), h.row_mean[e + i], scale, h.middle[e + i]),
                                    b = km_point(row.at(j, i + 1, h.is_f16), h.row_mean[e + i + 1], scale,
                                                 h.middle[e + i + 1]);
                        const __half2 both = __floats2half2_rn(a, b);
                        const float2 kept = __half22float2(both);
                        const float lost_a = a - kept.x, lost_b = b - kept.y;
                        length2 += a * a + b * b;
                        lost2 += lost_a * lost_a + lost_b * lost_b;
                        out[i / 2] = *reinterpret_cast<const uint32_t *>(&both);
                }
                to[j * 32] = make_uint4(out[0], out[1], out[2], out[3]);
        }
#pragma unroll
        for (int with = 1; with < 4; with *= 2) {
                length2 += __shfl_xor_sync(km_all, length2, with);
                lost2 += __shfl_xor_sync(km_all, lost2, with);
        }
        *out_length2 = length2;
        *out_lost2 = lost2;
}

/* A warp scales and packs a group of rows: lane 4 g + c has elements 32 j + 8 c to 32 j + 8 c + 7 of rows g and 8 + g. */
template <int DIM> static __global__ void pack_kernel(const __grid_constant__ KmCall call)
{
        const KmView h = km_view(call, (int)blockIdx.y);
        const int lane = (int)threadIdx.x & 31, g = lane >> 2, c = lane & 3,
                  group = (int)blockIdx.x * km_per_block + ((int)threadIdx.x >> 5);
        if (group * DCI_GPU_KMEANS_GROUP >= h.n)
                return;
        KmEighths<DIM> rows[2];
#pragma unroll
        for (int r = 0; r < 2; r++)
#pragma unroll
                for (int j = 0; j < DIM / 32; j++) /* rows past the end repeat the last one */
                        rows[r].words[j] = __ldg(reinterpret_cast<const uint4 *>(
                                h.rows + (uint64_t)min(group * DCI_GPU_KMEANS_GROUP + 8 * r + g, h.n - 1) * h.row_step +
                                16 * c + 64 * j));
#pragma unroll
        for (int r = 0; r < 2; r++) {
                const int row = group * DCI_GPU_KMEANS_GROUP + 8 * r + g;
                const float length2 = norm2_of<DIM>(rows[r], nullptr, h),
                            norm2 = call.args.centred != 0 ? norm2_of<DIM>(rows[r], h.row_mean, h) : length2,
                            scale = km_scale(norm2);
                float point2, lost2;
                pack_row<DIM>(rows[r], h, scale, h.points + (uint64_t)group * (2 * DIM) + r * DIM + lane, &point2,
                              &lost2);
                if (c != 0 || row >= h.n)
                        continue;
                h.labels[row] = -1;
                h.scales[row] = scale;
                h.bounds[row] = make_float2(__fsqrt_rn(point2), __fsqrt_rn(lost2));
                if (!(length2 <= km_most_norm2) || !(norm2 >= km_least_norm2))
                        h.head_state[DCI_GPU_KMEANS_BAD] = 1;
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
                v.changed[c] = 0;
        for (int i = lane; i < v.n_tiles; i += 32) /* all of them, each by some warp */
                v.counts[(uint64_t)c * v.n_tiles + i] = 0;
        for (int i = lane; i < v.n_spans; i += 32)
                v.sizes[(uint64_t)c * v.n_spans + i] = 0;
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

template <int DIM> static cudaError_t queue_prepare(const KmCall &rounds, const KmCall &heads, cudaStream_t stream)
{
        const int n = rounds.args.n_rows, n_problems = rounds.sizes.n_problems,
                  n_views = n_problems * rounds.n_segments;
        KmQueue queue = {stream, cudaSuccess};
        queue.launch(begin_kernel, dim3(1, (unsigned)n_views), 256, rounds);
        if (rounds.args.centred != 0) {
                queue.launch(sum_kernel<DIM>, dim3((unsigned)heads.n_tiles, (unsigned)n_problems), DIM, heads);
                queue.launch(row_mean_kernel<DIM>, dim3((unsigned)n_problems), DIM, heads);
        }
        queue.launch(middle_kernel<DIM>, dim3((unsigned)n_problems), middle_threads, heads);
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
