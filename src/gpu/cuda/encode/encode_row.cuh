/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* A row to low-bit codes, to the bit as simd/codes/encode_template.h. Four threads make a row's codes, and thread i of
 * them has the coordinates 4 k + i: then each of the four sums that are contiguous on a CPU is one thread's, byte i of
 * every word of codes is thread i's, and of a Hadamard transform only the last two stages go across threads.
 *
 * Every product and sum is rounded once, in the CPU's order: no contraction. What a CPU does in whole numbers is done
 * here in floats that hold them exactly: a row's coordinates are at most 32,700 with a length of as much, so sums of
 * levels times coordinates stay below 2^24. */
#ifndef DCI_GPU_CUDA_ENCODE_ENCODE_ROW_CUH
#define DCI_GPU_CUDA_ENCODE_ENCODE_ROW_CUH

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "gpu/cuda/launchers.h"

constexpr unsigned all_lanes = 0xffffffffu;
constexpr float near_even = 12582912.0f; /* 1.5 * 2^23: a sum with it is rounded to a whole number */
constexpr float whole_part = 8388608.0f; /* 2^23: the same, towards zero */
constexpr float min_square = 0x1p-80f, max_square = 0x1p100f, nothing = 0x1p-110f; /* as simd/codes/encode_template.h */
constexpr int n_stretches = 4;

template <int DIM> struct Shape {
        static constexpr int k = DIM / 4;                 /* coordinates of a thread */
        static constexpr int part = DIM == 96 ? 64 : DIM; /* that a Hadamard transform takes */
        /* The odd ones of six are left out where both parts are one. */
        static constexpr int rounds = part == DIM ? 3 : 6;
        /* In floats: so that four threads read other banks. */
        static constexpr int centre_ld = k + 4, sign_ld = part / 4 + 4;
        static constexpr int n_loads = DIM / 32; /* of 16 bytes, by thread and row */
        static constexpr int n_packed = k / 8;   /* words of eight 4-bit codes */
};

/* Even steps of one width, as dci_code_even. */
struct Steps {
        float spread, inverse[n_stretches]; /* the latter: 2^-16 of the CPU's */
        int bits;
};

struct Turned {
        float scale, residual, reach;
};

static __device__ __forceinline__ float sum_of_four(float x)
{
        x = __fadd_rn(x, __shfl_xor_sync(all_lanes, x, 2)); /* 0 + 2, 1 + 3 */
        return __fadd_rn(x, __shfl_xor_sync(all_lanes, x, 1));
}

static __device__ __forceinline__ float low_half(uint32_t pair, bool is_f16)
{
        return is_f16 ? __half2float(__ushort_as_half((unsigned short)(pair & 0xffff))) : __uint_as_float(pair << 16);
}

static __device__ __forceinline__ float high_half(uint32_t pair, bool is_f16)
{
        return is_f16 ? __half2float(__ushort_as_half((unsigned short)(pair >> 16)))
                      : __uint_as_float(pair & 0xffff0000u);
}

/* Each of four threads has four neighbouring coordinates of its own, in two words; afterwards thread i has coordinate i
 * of all four: even: of the first and third thread's, odd: of the second's and fourth's. */
static __device__ __forceinline__ void exchange_halves(uint32_t low, uint32_t high, int i, uint32_t *even,
                                                       uint32_t *odd)
{
        const bool upper = (i & 2) != 0, second = (i & 1) != 0;
        const uint32_t other = __shfl_xor_sync(all_lanes, upper ? low : high, 2);
        const uint32_t first = upper ? other : low, third = upper ? high : other; /* of thread i & 1, and two later */
        const uint32_t mine = __byte_perm(first, third, second ? 0x7632 : 0x5410);
        const uint32_t theirs = __shfl_xor_sync(all_lanes, __byte_perm(first, third, second ? 0x5410 : 0x7632), 1);
        *even = second ? theirs : mine;
        *odd = second ? mine : theirs;
}

/* The thread's coordinates of a row. */
template <int DIM>
static __device__ __forceinline__ void spread_row(const uint4 (&raw)[Shape<DIM>::n_loads], bool is_f16, int i,
                                                  float (&y)[Shape<DIM>::k])
{
#pragma unroll
        for (int m = 0; m < Shape<DIM>::n_loads; m++) {
                uint32_t even, odd;
                exchange_halves(raw[m].x, raw[m].y, i, &even, &odd);
                y[8 * m] = low_half(even, is_f16);
                y[8 * m + 2] = low_half(odd, is_f16);
                y[8 * m + 4] = high_half(even, is_f16);
                y[8 * m + 6] = high_half(odd, is_f16);
                exchange_halves(raw[m].z, raw[m].w, i, &even, &odd);
                y[8 * m + 1] = low_half(even, is_f16);
                y[8 * m + 3] = low_half(odd, is_f16);
                y[8 * m + 5] = high_half(even, is_f16);
                y[8 * m + 7] = high_half(odd, is_f16);
        }
}

/* Less those of its centre. */
template <int DIM>
static __device__ __forceinline__ void centre_row(const float *centre, int i, float (&y)[Shape<DIM>::k])
{
        const float4 *from = reinterpret_cast<const float4 *>(centre + i * Shape<DIM>::centre_ld);
#pragma unroll
        for (int k = 0; k < Shape<DIM>::k; k += 4) {
                const float4 c = from[k / 4];
                y[k] = __fsub_rn(y[k], c.x);
                y[k + 1] = __fsub_rn(y[k + 1], c.y);
                y[k + 2] = __fsub_rn(y[k + 2], c.z);
                y[k + 3] = __fsub_rn(y[k + 3], c.w);
        }
}

/* As dci_rotate: signs, then stages from the widest to the narrowest. Of the last two a thread has half: a product with
 * 1 or -1 is exact, so it makes the sum, or the difference to the lower thread's, in one rounding. */
template <int DIM>
static __device__ __forceinline__ void rotate_row(float (&y)[Shape<DIM>::k], const float *signs, int i)
{
        constexpr int n = Shape<DIM>::part / 4;
        const float sign2 = (i & 2) != 0 ? -1.0f : 1.0f, sign1 = (i & 1) != 0 ? -1.0f : 1.0f;
#pragma unroll
        for (int r = 0; r < Shape<DIM>::rounds; r++) {
                const int at = Shape<DIM>::part < DIM && r % 2 == 1 ? (DIM - Shape<DIM>::part) / 4 : 0;
                const float4 *from = reinterpret_cast<const float4 *>(signs + (r * 4 + i) * Shape<DIM>::sign_ld);
#pragma unroll
                for (int k = 0; k < n; k += 4) {
                        const float4 s = from[k / 4];
                        y[at + k] = __fmul_rn(y[at + k], s.x);
                        y[at + k + 1] = __fmul_rn(y[at + k + 1], s.y);
                        y[at + k + 2] = __fmul_rn(y[at + k + 2], s.z);
                        y[at + k + 3] = __fmul_rn(y[at + k + 3], s.w);
                }
#pragma unroll
                for (int half = n / 2; half >= 1; half /= 2)
#pragma unroll
                        for (int k = 0; k < n; k++)
                                if ((k & half) == 0) {
                                        const float a = y[at + k], b = y[at + k + half];
                                        y[at + k] = __fadd_rn(a, b);
                                        y[at + k + half] = __fsub_rn(a, b);
                                }
#pragma unroll
                for (int k = 0; k < n; k++)
                        y[at + k] = __fmaf_rn(y[at + k], sign2, __shfl_xor_sync(all_lanes, y[at + k], 2));
#pragma unroll
                for (int k = 0; k < n; k++)
                        y[at + k] = __fmaf_rn(y[at + k], sign1, __shfl_xor_sync(all_lanes, y[at + k], 1));
        }
}

template <int N> static __device__ __forceinline__ float square_of(const float (&y)[N])
{
        float sum = 0.0f;
#pragma unroll
        for (int k = 0; k < N; k++)
                sum = __fadd_rn(sum, __fmul_rn(y[k], y[k]));
        return sum_of_four(sum);
}

static __device__ __forceinline__ double power_of_two(int exponent)
{
        return __hiloint2double((1023 + exponent) << 20, 0);
}

/* Rows of unusual length are brought near one by a power of two, which `back` undoes. Rare; a warp goes together. */
template <int N> static __device__ __forceinline__ float bring_near(float (&y)[N], float square, float *back)
{
        const bool unusual = !(square >= min_square && square <= max_square);
        *back = 1.0f;
        if (!__any_sync(all_lanes, unusual))
                return square;
        float most = 0.0f;
#pragma unroll
        for (int k = 0; k < N; k++)
                most = fmaxf(most, fabsf(y[k]));
        most = fmaxf(most, __shfl_xor_sync(all_lanes, most, 2));
        most = fmaxf(most, __shfl_xor_sync(all_lanes, most, 1));
        const bool moved = unusual && most > 0.0f && most <= 0x1.fffffep127f; /* with infinity nothing is of interest */
        /* As frexp: in binary64 no float is denormal. */
        const int exponent = moved ? ((__double2hiint((double)most) >> 20) & 2047) - 1022 : 0;
        const double factor = power_of_two(-exponent);
        if (moved) {
#pragma unroll
                for (int k = 0; k < N; k++)
                        y[k] = __double2float_rn((double)y[k] * factor);
                *back = __double2float_rn(power_of_two(exponent));
        }
        const float recomputed = square_of(y);
        return moved ? recomputed : square;
}

/* A coordinate as a whole number. */
static __device__ __forceinline__ float whole_of(float y, float factor)
{
        return __fsub_rn(__fadd_rn(__fmul_rn(y, factor), near_even), near_even);
}

/* Of the step with this inverse, 2^23 plus the level of a coordinate, from 0 to `top` - 2^23. */
static __device__ __forceinline__ float level_at(float whole, float inverse, float top)
{
        return fminf(__fmaf_rz(fabsf(whole), inverse, whole_part), top);
}

struct Best {
        float inverse, products, squares;
};

/* Of the steps the one that leaves least. With levels m + 1/2: sums of (m + 1/2) a, and of their squares, exact. */
template <int N>
static __device__ __forceinline__ Best best_step(const float (&y)[N], float factor, const Steps &steps, float top)
{
        if (steps.bits == 1) {
                float total = 0.0f;
#pragma unroll
                for (int k = 0; k < N; k++)
                        total += fabsf(whole_of(y[k], factor));
                return {0.0f, sum_of_four(total), (float)(4 * N)};
        }
        float product[n_stretches] = {}, square[n_stretches] = {};
#pragma unroll
        for (int k = 0; k < N; k++) {
                const float whole = whole_of(y[k], factor);
#pragma unroll
                for (int s = 0; s < n_stretches; s++) {
                        const float level = level_at(whole, steps.inverse[s], top) - (whole_part - 0.5f);
                        product[s] = __fmaf_rn(level, fabsf(whole), product[s]);
                        square[s] = __fmaf_rn(level, level, square[s]);
                }
        }
        Best best = {0.0f, 0.0f, 0.0f};
        float most = -1.0f;
#pragma unroll
        for (int s = 0; s < n_stretches; s++) {
                const float p = 2.0f * sum_of_four(product[s]), q = 4.0f * sum_of_four(square[s]);
                const float kept = __fdiv_rn(__fmul_rn(p, p), q);
                if (kept > most) {
                        most = kept;
                        best = {steps.inverse[s], p, q};
                }
        }
        return best;
}

/* The codes of a row, eight of 4 bits to a word whatever their width: code k is at 4 (k % 8) of packed[k / 8]. */
template <int DIM>
static __device__ __forceinline__ Turned encode_row(float (&y)[Shape<DIM>::k], const Steps &steps,
                                                    uint32_t (&packed)[Shape<DIM>::n_packed])
{
        const int half = (1 << steps.bits) / 2;
        const float top = whole_part + (float)(half - 1);
        float back;
        const float near = bring_near(y, square_of(y), &back), full = __fsqrt_rn(near);
        const bool some = __fmul_rn(full, back) > nothing;
        const float length = some ? full : 0.0f, square = some ? near : 0.0f;
        const float factor = some ? __fdiv_rn(steps.spread, full) : 0.0f;
        const Best best = best_step(y, factor, steps, top);
        const float half_products = __fmul_rn(0.5f, best.products);
        const float close = half_products > 0.0f ? __fdiv_rn(__fmul_rn(length, steps.spread), half_products) : 0.0f;
        float left2 = 0.0f, along = 0.0f;
#pragma unroll
        for (int g = 0; g < Shape<DIM>::n_packed; g++) {
                uint32_t word = 0;
#pragma unroll
                for (int j = 0; j < 8; j++) {
                        const float here = y[8 * g + j], whole = whole_of(here, factor);
                        const float at = level_at(whole, best.inverse, top);
                        const uint32_t negative = (uint32_t)(__float_as_int(whole) >> 31);
                        const uint32_t code = ((__float_as_uint(at) ^ negative) & (uint32_t)(half - 1)) |
                                              (~negative & (uint32_t)half);
                        const float level = copysignf(__fsub_rn(at, whole_part - 0.5f), whole);
                        const float left = __fsub_rn(here, __fmul_rn(close, level));
                        left2 = __fadd_rn(left2, __fmul_rn(left, left));
                        along = __fadd_rn(along, __fmul_rn(level, left));
                        word |= code << (4 * j);
                }
                packed[g] = word;
        }
        left2 = sum_of_four(left2);
        along = sum_of_four(along);
        const float levels2 = __fmul_rn(0.25f, best.squares), product = __fadd_rn(__fmul_rn(close, levels2), along);
        const float scale = product > 0.0f ? __fdiv_rn(square, product) : 0.0f, off = __fsub_rn(close, scale);
        const float more = __fmul_rn(off, __fadd_rn(__fadd_rn(along, along), __fmul_rn(off, levels2)));
        const float rest = __fadd_rn(left2, more);
        return {__fmul_rn(scale, back), __fmul_rn(__fsqrt_rn(rest > 0.0f ? rest : 0.0f), back),
                __fmul_rn(__fmul_rn(scale, __fsqrt_rn(levels2)), back)};
}

/* As nearest_scale of src/kv/stages/tail_lowbit.c. */
static __device__ __forceinline__ float nearest_scale(const Turned &row)
{
        const float reach2 = __fmul_rn(row.reach, row.reach);
        const float square = __fsub_rn(reach2, __fmul_rn(row.residual, row.residual));
        return reach2 > 0.0f && square > 0.0f ? __fmul_rn(row.scale, __fdiv_rn(square, reach2)) : 0.0f;
}

static __device__ __forceinline__ unsigned short to_bf16(float x)
{
        const uint32_t bits = __float_as_uint(x);
        if ((bits & 0x7fffffffu) > 0x7f800000u)
                return (unsigned short)(bits >> 16 | 0x40);
        return (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* --- where codes are ---------------------------------------------------------------------------------------------- */

/* Eight codes of one or two bits, in order. */
static __device__ __forceinline__ uint32_t narrow_codes(uint32_t x, int bits)
{
        if (bits == 2) {
                x &= 0x33333333u;
                x = (x | x >> 2) & 0x0f0f0f0fu;
                x = (x | x >> 4) & 0x00ff00ffu;
                return (x | x >> 8) & 0xffffu;
        }
        x &= 0x11111111u;
        x = (x | x >> 3) & 0x03030303u;
        x = (x | x >> 6) & 0x000f000fu;
        return (x | x >> 12) & 0xffu;
}

/* bytes: those of one thread for four lines; returns the row's word of line number i, of four threads' bytes. */
static __device__ __forceinline__ uint32_t exchange_bytes(uint32_t bytes, int i)
{
        const bool upper = (i & 2) != 0, second = (i & 1) != 0;
        const uint32_t keep = upper ? bytes >> 16 : bytes & 0xffffu;
        const uint32_t far = __shfl_xor_sync(all_lanes, upper ? bytes & 0xffffu : bytes >> 16, 2);
        const uint32_t mine = __byte_perm(keep, far, second ? 0x0051 : 0x0040); /* from threads i, i ^ 2 */
        const uint32_t give = __byte_perm(keep, far, second ? 0x0040 : 0x0051);
        const uint32_t got = __shfl_xor_sync(all_lanes, give, 1); /* from threads i ^ 1, i ^ 3 */
        /* Byte j of the word is thread j's. */
        const uint32_t order = 0u << 4 * i | 1u << 4 * (i ^ 2) | 4u << 4 * (i ^ 1) | 5u << 4 * (i ^ 3);
        return __byte_perm(mine, got, order);
}

/* A row's words to a block of 32 rows. */
template <int DIM>
static __device__ __forceinline__ void store_words(const uint32_t (&packed)[Shape<DIM>::n_packed], int bits, int i,
                                                   unsigned char *block, int row, bool store)
{
        constexpr int n = Shape<DIM>::n_packed;
        unsigned char *to = block + row * 4;
#pragma unroll
        for (int g = 0; g < n; g++) {
                uint32_t bytes = packed[g];
                if (bits == 2) {
                        if (g % 2 == 1)
                                continue;
                        bytes = narrow_codes(packed[g], 2);
                        if (g + 1 < n)
                                bytes |= narrow_codes(packed[g + 1 < n ? g + 1 : g], 2) << 16;
                } else if (bits == 1) {
                        if (g % 4 != 0)
                                continue;
                        bytes = 0;
#pragma unroll
                        for (int j = 0; j < 4; j++)
                                if (g + j < n)
                                        bytes |= narrow_codes(packed[g + j < n ? g + j : g], 1) << (8 * j);
                }
                const uint32_t word = exchange_bytes(bytes, i);
                const int line = g * bits + i; /* each word of packed codes is as many lines as a code has bits */
                if (store && line < DIM * bits / 32)
                        *reinterpret_cast<uint32_t *>(to + line * 128) = word;
        }
}

#endif
