/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What kernels of clusters share (args/kmeans.h): where a head's parts are, points, canonical sums, centres.
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
constexpr int km_tile = DCI_GPU_KMEANS_TILE;
/* As src/cluster/kmeans_internal.h and kmeans_step.c. */
constexpr float km_most_norm2 = FLT_MAX / 256.0f, km_least_norm2 = 0x1p-80f, km_least_fit = 0x1p-36f;
/* The offset of centres that only fill up: finite, since proposals have numbers in their last bits. */
constexpr float km_nobody = FLT_MAX / 4.0f;

/* One head's parts. */
struct KmHead {
        const unsigned char *rows;
        uint64_t row_step;
        float *scales, *fits, *centres, *offsets, *middle;
        uint16_t *packed;
        int32_t *labels, *counts, *sizes, *order, *starts, *state;
        unsigned char *means;
        int n, k, padded, n_tiles;
        bool is_f16, fused;
};

/* A call, and what follows from it. */
struct KmCall {
        dci_gpu_kmeans_args args;
        dci_gpu_kmeans_parts parts;
        int padded, n_tiles;
};

static __device__ __forceinline__ KmHead km_head(const KmCall &call, int head)
{
        const dci_gpu_kmeans_args &a = call.args;
        const dci_gpu_kmeans_parts &parts = call.parts;
        const uint64_t h = (uint64_t)head, n = (uint64_t)a.n_rows, k = (uint64_t)a.n_clusters, dim = (uint64_t)a.dim,
                       padded = (uint64_t)call.padded;
        KmHead out;
        out.n = a.n_rows;
        out.k = a.n_clusters;
        out.padded = call.padded;
        out.n_tiles = call.n_tiles;
        out.rows = a.rows + h * a.head_step;
        out.row_step = a.row_step;
        out.scales = reinterpret_cast<float *>(a.work + parts.scales) + h * n;
        out.fits = reinterpret_cast<float *>(a.work + parts.fits) + h * n;
        out.labels = reinterpret_cast<int32_t *>(a.work + parts.labels) + h * n;
        out.counts = reinterpret_cast<int32_t *>(a.work + parts.counts) + h * padded * (uint64_t)out.n_tiles;
        out.sizes = reinterpret_cast<int32_t *>(a.work + parts.sizes) + h * padded;
        out.centres = reinterpret_cast<float *>(a.work + parts.centres) + h * padded * dim;
        out.packed = reinterpret_cast<uint16_t *>(a.work + parts.packed) + h * padded * dim;
        out.offsets = reinterpret_cast<float *>(a.work + parts.offsets) + h * padded;
        out.middle = reinterpret_cast<float *>(a.work + parts.middles) + h * dim;
        out.order = a.order + h * n;
        out.starts = a.starts + h * (k + 1);
        out.state = a.states + h * DCI_GPU_KMEANS_STATES;
        out.means = a.means + h * k * dim * 2;
        out.is_f16 = a.dtype == DCI_F16;
        out.fused = a.isa != DCI_ISA_SCALAR;
        return out;
}

static __device__ __forceinline__ float km_widen(uint32_t half, bool is_f16)
{
        return is_f16 ? __half2float(__ushort_as_half((unsigned short)half)) : __uint_as_float(half << 16);
}

static __device__ __forceinline__ float km_element(const KmHead &h, int row, int element)
{
        const unsigned char *at = h.rows + (uint64_t)row * h.row_step;
        return km_widen(__ldg(reinterpret_cast<const uint16_t *>(at) + element), h.is_f16);
}

static __device__ __forceinline__ float km_point(float element, float scale, float middle)
{
        return __fsub_rn(__fmul_rn(element, scale), middle);
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

/* Where element e of centre c is among those packed for matrix units: of eight centres and 32 elements, lane 4 g + i of
 * a warp has elements 8 i to 8 i + 7 of centre g, contiguously. */
template <int DIM> static __device__ __forceinline__ uint64_t km_packed_at(int c, int e)
{
        return ((uint64_t)(c / 8 * (DIM / 32) + e / 32) * 32 + (uint64_t)(4 * (c % 8) + e % 32 / 8)) * 8 +
               (uint64_t)(e % 8);
}

/* Centre c is where x says, as those of km_norm2. Needs all lanes. */
template <int DIM> static __device__ __forceinline__ void km_put(const KmHead &h, int c, const float (&x)[DIM / 32])
{
        const int lane = (int)threadIdx.x & 31;
        const float norm2 = km_norm2<DIM>(x, h.fused);
#pragma unroll
        for (int t = 0; t < DIM / 32; t++) {
                h.centres[(uint64_t)c * DIM + lane + 32 * t] = x[t];
                h.packed[km_packed_at<DIM>(c, lane + 32 * t)] = __half_as_ushort(__float2half_rn(x[t]));
        }
        if (lane == 0) {
                h.offsets[c] = __fmul_rn(0.5f, norm2);
                atomicMax(h.state + DCI_GPU_KMEANS_LONGEST, __float_as_int(__fsqrt_rn(norm2)));
        }
}

/* cuda/kmeans/kmeans_assign.cu: labels of all rows, how many moved, and how many rows each tile has of each. */
extern "C" cudaError_t dci_gpu_cuda_kmeans_assign(const KmCall *call, cudaStream_t stream);

#endif
