/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What kernels of clusters share (args/kmeans.h): where a view's parts are, points, canonical sums, centres.
 *
 * A canonical sum is 16 partial sums; lanes l and l + 16 of a warp take elements l, l + 16, .. in turn where a warp
 * works on one vector, and half a warp sums up one of its own where it works on two. Every product and sum is rounded
 * as the CPU does it: no contraction. */
#ifndef DCI_GPU_CUDA_KMEANS_KMEANS_CUH
#define DCI_GPU_CUDA_KMEANS_KMEANS_CUH

#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <float.h>

#include "gpu/cuda/launch.cuh"

constexpr unsigned km_all = 0xffffffffu;
constexpr int km_tile = DCI_GPU_KMEANS_TILE, km_span = DCI_GPU_KMEANS_SPAN;
/* As src/cluster/kmeans_internal.h and kmeans_step.c. */
constexpr float km_most_norm2 = FLT_MAX / 256.0f, km_least_norm2 = 0x1p-80f, km_least_fit = 0x1p-36f;
/* The offset of centres that only fill up: finite, since proposals have numbers in their last bits. */
constexpr float km_nobody = FLT_MAX / 4.0f;
constexpr int km_warp_threads = 128,
              km_per_block = km_warp_threads / 32; /* of kernels where a warp has a row, a centre or a tile */

/* What a launch works on: a problem's segment, or a problem with all of its rows and clusters. Rows and clusters are
 * numbered within it. */
struct KmView {
        const unsigned char *rows;
        uint64_t row_step;
        float *scales, *fits, *centres, *offsets;
        const float *middle, *row_mean;
        float2 *bounds; /* by row: the length of the point, and what it lost to rounding */
        uint4 *points;
        uint16_t *packed;
        int32_t *labels, *counts, *sizes, *changed, *order, *starts, *state, *head_state;
        unsigned char *means;
        int n, k, first_row, first_cluster, padded, n_tiles, n_spans;
        bool is_f16, fused, wide;
};

/* A call, and whether its launches are for segments. */
struct KmCall {
        dci_gpu_kmeans_args args;
        dci_gpu_kmeans_parts parts;
        dci_gpu_kmeans_sizes sizes;
        int segment, n_segments, padded, n_tiles, n_spans; /* rows and number of views of a problem; of a view */
        int multiprocessors;
        bool wide; /* assigned by cuda/kmeans/kmeans_wide.cu, for which centres are packed */
};

/* Whether groups of warps multiply so many elements by so many centres on this device. */
extern "C" bool dci_gpu_cuda_kmeans_wide_takes(const dci_gpu_cuda *cuda, int dim, int padded);

static inline KmCall km_call(const dci_gpu_cuda *cuda, const dci_gpu_kmeans_args &args, bool of_segments)
{
        const dci_gpu_kmeans_sizes sizes = dci_gpu_kmeans_sizes_of(&args);
        KmCall call = {args,        dci_gpu_kmeans_work(&args), sizes, args.n_rows, 1, sizes.padded, sizes.tiles,
                       sizes.spans, cuda->multiprocessors,      false};
        if (of_segments) {
                call.segment = sizes.segment;
                call.n_segments = sizes.n_segments;
                call.padded = sizes.segment_padded;
                call.n_tiles = sizes.segment_tiles;
                call.n_spans = sizes.segment_spans;
        }
        call.wide = dci_gpu_cuda_kmeans_wide_takes(cuda, args.dim, call.padded);
        return call;
}

/* View number `number`: the segments of a problem one after the other, and the parts of a head. */
static __device__ __forceinline__ KmView km_view(const KmCall &call, int number)
{
        const dci_gpu_kmeans_args &a = call.args;
        const dci_gpu_kmeans_parts &parts = call.parts;
        const bool of_segments = call.n_segments > 1;
        const int problem = number / call.n_segments, segment = number - problem * call.n_segments,
                  n_parts = call.sizes.n_parts, head = problem / n_parts, part = problem - head * n_parts;
        const uint64_t h = (uint64_t)problem, k = (uint64_t)a.n_clusters, dim = (uint64_t)a.dim,
                       all = (uint64_t)call.sizes.all_rows,
                       begin = n_parts > 1 ? all * (uint64_t)part / (uint64_t)n_parts : 0,
                       end = n_parts > 1 ? all * (uint64_t)(part + 1) / (uint64_t)n_parts : all;
        const int n = (int)(end - begin), own_k = n == a.n_rows ? a.n_clusters : max(n / a.cluster_rows, 1);
        /* Centres of segments come first. */
        const uint64_t before = !of_segments && call.sizes.n_segments > 1
                                        ? (uint64_t)call.sizes.n_problems * (uint64_t)call.sizes.n_segments *
                                                  (uint64_t)call.sizes.segment_padded
                                        : 0,
                       slot = before + (uint64_t)number * (uint64_t)call.padded;
        KmView out;
        out.first_row = segment * call.segment;
        out.n = max(min(call.segment, n - out.first_row), 0);
        out.first_cluster = of_segments ? (int)((uint64_t)own_k * (uint64_t)out.first_row / (uint64_t)n) : 0;
        out.k = (of_segments ? (int)((uint64_t)own_k * (uint64_t)(out.first_row + out.n) / (uint64_t)n) : own_k) -
                out.first_cluster;
        out.padded = call.padded;
        out.n_tiles = (out.n + km_tile - 1) / km_tile;
        out.n_spans = (out.n_tiles + km_span - 1) / km_span;
        const uint64_t row = h * (uint64_t)a.n_rows + (uint64_t)out.first_row,
                       of_head = begin + (uint64_t)out.first_row;
        out.rows = a.rows + (uint64_t)head * a.head_step + of_head * a.row_step;
        out.row_step = a.row_step;
        out.scales = reinterpret_cast<float *>(a.work + parts.scales) + row;
        out.fits = reinterpret_cast<float *>(a.work + parts.fits) + row;
        out.labels = reinterpret_cast<int32_t *>(a.work + parts.labels) + row;
        const uint64_t group = h * (uint64_t)((a.n_rows + DCI_GPU_KMEANS_GROUP - 1) / DCI_GPU_KMEANS_GROUP) +
                               (uint64_t)(out.first_row / DCI_GPU_KMEANS_GROUP);
        out.bounds = reinterpret_cast<float2 *>(a.work + parts.bounds) + group * DCI_GPU_KMEANS_GROUP;
        out.points = reinterpret_cast<uint4 *>(a.work + parts.points) + group * (DCI_GPU_KMEANS_GROUP * dim / 8);
        out.counts = reinterpret_cast<int32_t *>(a.work + parts.counts) +
                     (uint64_t)number * (uint64_t)call.padded * (uint64_t)call.n_tiles;
        out.sizes = reinterpret_cast<int32_t *>(a.work + parts.sizes) +
                    (uint64_t)number * (uint64_t)call.padded * (uint64_t)call.n_spans;
        out.changed = reinterpret_cast<int32_t *>(a.work + parts.changed) + slot;
        out.centres = reinterpret_cast<float *>(a.work + parts.centres) + slot * dim;
        out.packed = reinterpret_cast<uint16_t *>(a.work + parts.packed) + slot * dim;
        out.offsets = reinterpret_cast<float *>(a.work + parts.offsets) + slot;
        out.middle = reinterpret_cast<float *>(a.work + parts.middles) + h * dim;
        out.row_mean = reinterpret_cast<float *>(a.work + parts.row_means) + h * dim;
        out.order = a.order + (uint64_t)head * all + of_head;
        out.starts = of_segments ? reinterpret_cast<int32_t *>(a.work + parts.starts) +
                                           (uint64_t)number * (uint64_t)(call.padded + 1)
                                 : a.starts + h * (k + 1);
        out.head_state = a.states + h * DCI_GPU_KMEANS_STATES;
        out.state = of_segments ? reinterpret_cast<int32_t *>(a.work + parts.states) +
                                          (uint64_t)number * DCI_GPU_KMEANS_STATES
                                : out.head_state;
        out.means = a.means + h * k * dim * 2;
        out.is_f16 = a.dtype == DCI_F16;
        out.fused = a.isa != DCI_ISA_SCALAR;
        out.wide = call.wide;
        return out;
}

/* Nothing is left to do. */
static __device__ __forceinline__ bool km_done(const KmView &v)
{
        return v.k == 0 || v.state[DCI_GPU_KMEANS_DONE] != 0 || v.head_state[DCI_GPU_KMEANS_BAD] != 0;
}

static __device__ __forceinline__ float km_widen(uint32_t half, bool is_f16)
{
        return is_f16 ? __half2float(__ushort_as_half((unsigned short)half)) : __uint_as_float(half << 16);
}

static __device__ __forceinline__ float km_element(const KmView &h, int row, int element)
{
        const unsigned char *at = h.rows + (uint64_t)row * h.row_step;
        return km_widen(__ldg(reinterpret_cast<const uint16_t *>(at) + element), h.is_f16);
}

/* What a row of that squared length is multiplied by. */
static __device__ __forceinline__ float km_scale(float norm2)
{
        return __fdiv_rn(1.0f, __fsqrt_rn(norm2));
}

/* In unit length. Rows that are not centred have a mean of zero. */
static __device__ __forceinline__ float km_unit(float element, float row_mean, float scale)
{
        return __fmul_rn(__fsub_rn(element, row_mean), scale);
}

static __device__ __forceinline__ float km_point(float element, float row_mean, float scale, float middle)
{
        return __fsub_rn(km_unit(element, row_mean, scale), middle);
}

static __device__ __forceinline__ float km_point_at(const KmView &v, int row, int element)
{
        return km_point(km_element(v, row, element), v.row_mean[element], v.scales[row], v.middle[element]);
}

static __device__ __forceinline__ float km_step(float a, float b, float sum, bool fused)
{
        return fused ? __fmaf_rn(a, b, sum) : __fadd_rn(sum, __fmul_rn(a, b));
}

/* The last sums of 16 partial ones, in both halves of a warp. */
static __device__ __forceinline__ float km_tree(float sum)
{
#pragma unroll
        for (int half = 8; half > 0; half /= 2)
                sum = __fadd_rn(sum, __shfl_xor_sync(km_all, sum, half));
        return sum;
}

/* |x|^2 of a vector whose elements lane + 32 t are in x[t]; needs all lanes, and all get it. */
template <int DIM> static __device__ __forceinline__ float km_norm2(const float (&x)[DIM / 32], bool fused)
{
        float sum = 0.0f;
#pragma unroll
        for (int t = 0; t < DIM / 32; t++) {
                const float upper = __shfl_down_sync(km_all, x[t], 16);
                sum = km_step(x[t], x[t], sum, fused);
                sum = km_step(upper, upper, sum, fused);
        }
        return __shfl_sync(km_all, km_tree(sum), 0);
}

/* Where element e of centre c is among those packed for matrix units. Points have, of 32 elements, 8 i to 8 i + 7 in lane
 * i of four, which takes four of them to each of two products: as elements 2 i, 2 i + 1, 2 i + 8 and 2 i + 9 of 16. For
 * warps that multiply on their own, lane 4 g + i has elements 8 i to 8 i + 7 of centre g, contiguously. WIDE: as products
 * of groups take them from shared memory, eight elements of eight centres after another. */
template <int DIM> static __device__ __forceinline__ uint64_t km_packed_at(bool wide, int c, int e)
{
        const int of_four = e % 32 / 8, within = e % 8;
        if (wide)
                return (uint64_t)(c / 8 * (DIM / 8) + e / 32 * 4 + within / 2) * 64 +
                       (uint64_t)(8 * (c % 8) + 2 * of_four + within % 2);
        return ((uint64_t)(c / 8 * (DIM / 32) + e / 32) * 32 + (uint64_t)(4 * (c % 8) + of_four)) * 8 +
               (uint64_t)within;
}

/* The greatest length of several, by bits: none is negative. */
static __device__ __forceinline__ void km_raise(int32_t *to, float length)
{
        atomicMax(to, __float_as_int(length));
}

/* Centre c is where x says, as those of km_norm2. Needs all lanes. */
template <int DIM> static __device__ __forceinline__ void km_put(const KmView &v, int c, const float (&x)[DIM / 32])
{
        const int lane = (int)threadIdx.x & 31;
        const float norm2 = km_norm2<DIM>(x, v.fused);
        float lost2 = 0.0f;
#pragma unroll
        for (int t = 0; t < DIM / 32; t++) {
                const __half half = __float2half_rn(x[t]);
                const float lost = x[t] - __half2float(half);
                lost2 += lost * lost;
                v.centres[(uint64_t)c * DIM + lane + 32 * t] = x[t];
                v.packed[km_packed_at<DIM>(v.wide, c, lane + 32 * t)] = __half_as_ushort(half);
        }
#pragma unroll
        for (int with = 16; with > 0; with /= 2)
                lost2 += __shfl_xor_sync(km_all, lost2, with);
        if (lane == 0) {
                v.offsets[c] = __fmul_rn(0.5f, norm2);
                km_raise(v.state + DCI_GPU_KMEANS_LONGEST, __fsqrt_rn(norm2));
                km_raise(v.state + DCI_GPU_KMEANS_LOST, __fsqrt_rn(lost2));
        }
}

/* Launches one after another; after an error none. */
struct KmQueue {
        cudaStream_t stream;
        cudaError_t error;

        template <class K, class... A> void launch(K kernel, dim3 grid, int n_threads, const A &...args)
        {
                if (error == cudaSuccess)
                        error = launch_kernel({stream, false}, grid, (unsigned)n_threads, 0, kernel, args...);
        }
};

/* A warp each for n things of every view, or head. */
static inline dim3 km_grid(int n, int n_views)
{
        return dim3((unsigned)((n + km_per_block - 1) / km_per_block), (unsigned)n_views);
}

/* cuda/kmeans/kmeans_prepare.cu: rows as points, and the centres that `rounds` begin with. Then, with segments, those of
 * all segments of a head together. */
extern "C" cudaError_t dci_gpu_cuda_kmeans_prepare(const KmCall *rounds, const KmCall *whole, cudaStream_t stream);
extern "C" cudaError_t dci_gpu_cuda_kmeans_join(const KmCall *rounds, const KmCall *whole, cudaStream_t stream);
/* Labels of all rows, how many moved, and how many rows each tile has of each: cuda/kmeans/kmeans_assign.cu, and, for
 * calls that say so, kmeans_wide.cu. */
extern "C" cudaError_t dci_gpu_cuda_kmeans_assign(const KmCall *call, cudaStream_t stream);
extern "C" cudaError_t dci_gpu_cuda_kmeans_wide(const KmCall *call, cudaStream_t stream);

#endif
