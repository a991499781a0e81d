/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* In the place of src/gpu/cuda/ptx.cuh (emulator.h): the same functions without PTX. Hints about caches are nothing here. */
#ifndef DCI_TESTS_EMULATED_INCLUDE_GPU_CUDA_PTX_CUH
#define DCI_TESTS_EMULATED_INCLUDE_GPU_CUDA_PTX_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define PTX_DYNAMIC_SHARED(alignment, type, name) type *const name = static_cast<type *>(emulated_dynamic())

template <class T> static inline T emulated_load(const unsigned char *at)
{
        return *reinterpret_cast<const T *>(at);
}
/* Kernels run one after another. */
static inline void ptx_after_earlier(void)
{
}
static inline void ptx_let_later_begin(void)
{
}
static inline void ptx_take_turn(void)
{
}
static inline uint32_t ptx_load4_early(const unsigned char *at)
{
        return emulated_load<uint32_t>(at);
}
static inline uint2 ptx_load8_early(const unsigned char *at)
{
        return emulated_load<uint2>(at);
}
static inline int32_t ptx_load_int(const int32_t *at)
{
        return *at;
}
static inline uint2 ptx_load8_once_128(const unsigned char *at)
{
        return emulated_load<uint2>(at);
}
static inline uint4 ptx_load16_once_128(const unsigned char *at)
{
        return emulated_load<uint4>(at);
}
static inline uint4 ptx_load16_once_256(const unsigned char *at)
{
        return emulated_load<uint4>(at);
}
static inline uint64_t ptx_leave_first()
{
        return 0;
}
static inline uint4 ptx_load16_once_as(const unsigned char *at, uint64_t)
{
        return emulated_load<uint4>(at);
}

static inline void ptx_store_pair(float *at, float x, float y)
{
        *reinterpret_cast<float2 *>(at) = make_float2(x, y);
}
static inline void ptx_store_four_kept(float *at, float4 x)
{
        *reinterpret_cast<float4 *>(at) = x;
}
static inline int ptx_arrive(int32_t *at, int32_t n = 1)
{
        *at += n;
        return *at - n;
}
static inline void ptx_prefetch(const unsigned char *)
{
}
static inline void ptx_copy16_begin(uint32_t to, const unsigned char *from)
{
        emulated_copy16(to, from);
}
static inline void ptx_copy16_wait()
{
        emulated_wait_copies();
}

/* Exact where the instruction is right to 2^-22; numbers without a leading bit are 0, going in and coming out. */
static inline float ptx_exp2(float x)
{
        const float y = exp2f(x);
        return y < FLT_MIN ? 0.0f : y;
}

/* Fragments (PTX ISA, "Matrix Fragments for mma.m16n8k16" and "mma.m16n8k32"), with g = lane / 4 and c = lane % 4: word 2 h + r of A holds of row
 * g + 8 r the elements from n c + 4 n h on, word h of B of column g those, n = 2 halves or 4 bytes; d[2 r + j] is row g + 8 r, column 2 c + j. */
template <float (*to_f32)(uint16_t)>
static inline void emulated_mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], int line)
{
        emulated_meeting *m = emulated_join(0xffffffffu, EMULATED_PRODUCT, line);
        const unsigned lane = emulated_lane(), g = lane / 4, c = lane % 4;
        for (unsigned h = 0; h < 2; h++)
                for (unsigned e = 0; e < 2; e++) {
                        const unsigned k = 2 * c + 8 * h + e;
                        m->of_numbers.a[g][k] = to_f32((uint16_t)(a[2 * h] >> (16 * e)));
                        m->of_numbers.a[g + 8][k] = to_f32((uint16_t)(a[2 * h + 1] >> (16 * e)));
                        m->of_numbers.b[g][k] = to_f32((uint16_t)(b[h] >> (16 * e)));
                }
        emulated_meet(m);
        for (unsigned r = 0; r < 2; r++)
                for (unsigned j = 0; j < 2; j++) {
                        const float *row = m->of_numbers.a[g + 8 * r], *column = m->of_numbers.b[2 * c + j];
                        double sum = d[2 * r + j];
                        for (unsigned k = 0; k < 16; k++) /* products are exact */
                                sum += (double)(row[k] * column[k]);
                        d[2 * r + j] = (float)sum;
                }
}

static inline float emulated_of_half(uint16_t x)
{
        return __half2float(__ushort_as_half(x));
}
static inline float emulated_of_bf16(uint16_t x)
{
        return __uint_as_float((uint32_t)x << 16);
}
static inline void ptx_mma_f16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                               uint32_t b1, EMULATED_LINE)
{
        emulated_mma<emulated_of_half>(d, {a0, a1, a2, a3}, {b0, b1}, line);
}
static inline void ptx_mma_bf16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                uint32_t b1, EMULATED_LINE)
{
        emulated_mma<emulated_of_bf16>(d, {a0, a1, a2, a3}, {b0, b1}, line);
}

/* By each warp of the group on its own. */
template <int K> static inline void ptx_group_begin(float (&)[K])
{
}
static inline void ptx_group_end()
{
}
template <int LATER, int K> static inline void ptx_group_wait(float (&)[K])
{
}
template <int N, int EIGHT>
static inline void ptx_group_mma_f16(float (&d)[N / 2], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                     const unsigned char *b, bool fresh)
{
        const uint32_t *words = reinterpret_cast<const uint32_t *>(b) + emulated_lane();
        for (int i = 0; i < N / 8; i++) {
                float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
                for (int e = 0; e < 4 && !fresh; e++)
                        part[e] = d[4 * i + e];
                ptx_mma_f16(part, a0, a1, a2, a3, words[i * (EIGHT / 4)], words[i * (EIGHT / 4) + 32]);
                for (int e = 0; e < 4; e++)
                        d[4 * i + e] = part[e];
        }
}

template <class OfB>
static inline void emulated_mma_bytes(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], int line)
{
        emulated_meeting *m = emulated_join(0xffffffffu, EMULATED_PRODUCT, line);
        const unsigned lane = emulated_lane(), g = lane / 4, c = lane % 4;
        for (unsigned h = 0; h < 2; h++)
                for (unsigned e = 0; e < 4; e++) {
                        const unsigned k = 4 * c + 16 * h + e;
                        m->of_bytes.a[g][k] = (uint8_t)(a[2 * h] >> (8 * e));
                        m->of_bytes.a[g + 8][k] = (uint8_t)(a[2 * h + 1] >> (8 * e));
                        m->of_bytes.b[g][k] = (OfB)(b[h] >> (8 * e));
                }
        emulated_meet(m);
        for (unsigned r = 0; r < 2; r++)
                for (unsigned j = 0; j < 2; j++) {
                        const int16_t *row = m->of_bytes.a[g + 8 * r], *column = m->of_bytes.b[2 * c + j];
                        int sum = 0;
                        for (unsigned k = 0; k < 32; k++)
                                sum += row[k] * column[k];
                        d[2 * r + j] = (int)((unsigned)d[2 * r + j] + (unsigned)sum);
                }
}

static inline void ptx_mma_u8s8(int (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                uint32_t b1, EMULATED_LINE)
{
        emulated_mma_bytes<int8_t>(d, {a0, a1, a2, a3}, {b0, b1}, line);
}
static inline void ptx_mma_u8u8(int (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                uint32_t b1, EMULATED_LINE)
{
        emulated_mma_bytes<uint8_t>(d, {a0, a1, a2, a3}, {b0, b1}, line);
}

static inline uint32_t ptx_select_bytes(uint32_t a, uint32_t b, uint32_t selector)
{
        uint32_t x = 0;
        for (unsigned i = 0; i < 4; i++) {
                const unsigned nibble = selector >> (4 * i) & 15, which = nibble & 7;
                uint32_t byte = (which < 4 ? a >> (8 * which) : b >> (8 * (which - 4))) & 0xff;
                if (nibble >= 8)
                        byte = (byte & 0x80) != 0 ? 0xff : 0;
                x |= byte << (8 * i);
        }
        return x;
}

#endif
