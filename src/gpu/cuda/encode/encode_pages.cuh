/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Rows of pages, as src/kv/stages/summary_pages.c: a thread has eight coordinates of a page, token by token. */
#ifndef DCI_GPU_CUDA_ENCODE_ENCODE_PAGES_CUH
#define DCI_GPU_CUDA_ENCODE_ENCODE_PAGES_CUH

#include "gpu/cuda/encode/encode_row.cuh"

/* Where candidates of a head are: candidate c at base + ((c + offset) & mask) * step. */
struct Rows {
        const unsigned char *base;
        uint64_t step;
        uint32_t offset, mask;
};

static __device__ __forceinline__ const unsigned char *row_at(const Rows &rows, int candidate)
{
        return rows.base + (uint64_t)(((uint32_t)candidate + rows.offset) & rows.mask) * rows.step;
}

struct Eight {
        float x[8];
};

static __device__ __forceinline__ Eight widen_eight(const uint4 &raw, bool is_f16)
{
        const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
        Eight out;
#pragma unroll
        for (int j = 0; j < 4; j++) {
                out.x[2 * j] = low_half(words[j], is_f16);
                out.x[2 * j + 1] = high_half(words[j], is_f16);
        }
        return out;
}

static __device__ __forceinline__ Eight load_eight(const unsigned char *at, bool is_f16)
{
        return widen_eight(__ldca(reinterpret_cast<const uint4 *>(at)), is_f16);
}

static __device__ __forceinline__ uint32_t narrow_pair(float a, float b, bool is_f16)
{
        const uint32_t low = is_f16 ? __half_as_ushort(__float2half_rn(a)) : to_bf16(a);
        const uint32_t high = is_f16 ? __half_as_ushort(__float2half_rn(b)) : to_bf16(b);
        return low | high << 16;
}

static __device__ __forceinline__ void store_eight(unsigned char *to, const Eight &v, bool is_f16)
{
        *reinterpret_cast<uint4 *>(to) =
                make_uint4(narrow_pair(v.x[0], v.x[1], is_f16), narrow_pair(v.x[2], v.x[3], is_f16),
                           narrow_pair(v.x[4], v.x[5], is_f16), narrow_pair(v.x[6], v.x[7], is_f16));
}

/* Eight coordinates of a page of n candidates from `first` on: to its row, or both halves of it. */
static __device__ __forceinline__ void form_page(const Rows &rows, int kind, bool is_f16, int first, int n,
                                                 int coordinate, unsigned char *to, int dim)
{
        Eight a = load_eight(row_at(rows, first) + coordinate * 2, is_f16), b = a;
#pragma unroll 4
        for (int r = 1; r < n; r++) {
                const Eight x = load_eight(row_at(rows, first + r) + coordinate * 2, is_f16);
#pragma unroll
                for (int j = 0; j < 8; j++) {
                        if (kind == DCI_GPU_MEANS || kind == DCI_GPU_DEVIATIONS) {
                                a.x[j] = __fadd_rn(a.x[j], x.x[j]);
                        } else {
                                a.x[j] = x.x[j] > a.x[j] ? x.x[j] : a.x[j];
                                b.x[j] = x.x[j] < b.x[j] ? x.x[j] : b.x[j];
                        }
                }
        }
#pragma unroll
        for (int j = 0; j < 8; j++) {
                b.x[j] = __fadd_rn(b.x[j], 0.0f); /* the CPU's zeros have no sign here */
                if (kind == DCI_GPU_MEANS || kind == DCI_GPU_DEVIATIONS)
                        a.x[j] = __fdiv_rn(a.x[j], (float)n);
                else if (kind == DCI_GPU_CUBOIDS)
                        a.x[j] = __fmul_rn(0.5f, __fadd_rn(a.x[j], b.x[j]));
        }
        store_eight(to + coordinate * 2, a, is_f16);
        if (kind == DCI_GPU_MEANS)
                return;
        if (kind == DCI_GPU_CUBOIDS || kind == DCI_GPU_DEVIATIONS) {
                const float most = is_f16 ? 65504.0f : __uint_as_float(0x7f7f0000u); /* of variances */
#pragma unroll
                for (int j = 0; j < 8; j++)
                        b.x[j] = 0.0f;
#pragma unroll 4
                for (int r = 0; r < n; r++) {
                        const Eight x = load_eight(row_at(rows, first + r) + coordinate * 2, is_f16);
#pragma unroll
                        for (int j = 0; j < 8; j++) {
                                const float distance = __fsub_rn(x.x[j], a.x[j]);
                                b.x[j] = __fadd_rn(b.x[j], kind == DCI_GPU_CUBOIDS ? fabsf(distance)
                                                                                   : __fmul_rn(distance, distance));
                        }
                }
#pragma unroll
                for (int j = 0; j < 8; j++) {
                        b.x[j] = __fdiv_rn(b.x[j], (float)n);
                        if (kind == DCI_GPU_DEVIATIONS)
                                b.x[j] = b.x[j] < most ? b.x[j] : most;
                }
        }
        store_eight(to + (dim + coordinate) * 2, b, is_f16);
}

#endif
