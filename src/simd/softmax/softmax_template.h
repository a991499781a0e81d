/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Approximate softmax with AVX-512, with products of bytes as the source that includes this has them. What it defines
 * before:
 *
 *      SOFTMAX_TABLE            the name of the table
 *      softmax_bytes            bytes of 16 rows, or of a query, as products take them
 *      of_keys(), of_query()    from fours of bytes, unsigned and signed
 *      added(sum, keys, query)  each sum and the four products of its bytes: whole numbers: the same bits everywhere */
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "simd/convert.h"
#include "simd/softmax/softmax.h"

#define LANES DCI_SOFTMAX_LANES
#define VECTORS (DCI_SOFTMAX_ROWS / LANES)
#define UNIT_BYTES (DCI_SOFTMAX_ROWS * 4)

/* --- keys --------------------------------------------------------------------------------------------------------- */

DCI_INLINE __mmask16 some(size_t n)
{
        return n >= LANES ? (__mmask16)0xffff : (__mmask16)((1u << n) - 1);
}

DCI_INLINE __m512 moved(float *row, __mmask16 valid, const float *centre, const float *inverse)
{
        const __m512 from = _mm512_maskz_loadu_ps(valid, centre), by = _mm512_maskz_loadu_ps(valid, inverse);
        const __m512 x = _mm512_mul_ps(_mm512_sub_ps(_mm512_maskz_loadu_ps(valid, row), from), by);
        _mm512_mask_storeu_ps(row, valid, x);
        return _mm512_abs_ps(x);
}

/* Moves a row, and returns what its steps are worth. Those too small for their inverse to be a number count as none:
 * such a row's scores are as good as equal. */
static float move(float *row, size_t dim, const float *centre, const float *inverse)
{
        __m512 most = _mm512_setzero_ps();
        size_t j = 0;
        for (; j + LANES <= dim; j += LANES)
                most = _mm512_max_ps(most, moved(row + j, 0xffff, centre + j, inverse + j));
        if (j < dim)
                most = _mm512_max_ps(most, moved(row + j, some(dim - j), centre + j, inverse + j));
        const float step = _mm512_reduce_max_ps(most) / 127.0f;
        return step > 0x1p-120f ? step : 0.0f;
}

/* 16 fours of coordinates of 16 rows, with signs: rows to columns, by fours of bytes, each 128 more. */
static void turn(const uint8_t *rows, size_t ld, size_t n_units, uint8_t *out)
{
        __m512i a[LANES], b[LANES];
        UNROLL for (size_t i = 0; i < LANES; i++) a[i] = _mm512_loadu_si512(rows + i * ld);
        UNROLL for (size_t i = 0; i < LANES; i += 2)
        {
                b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
                b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
        }
        UNROLL for (size_t i = 0; i < LANES; i += 4)
        {
                a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
                a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
                a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
                a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
        }
        UNROLL for (size_t i = 0; i < 4; i++)
        {
                b[i] = _mm512_shuffle_i32x4(a[i], a[4 + i], 0x88);
                b[4 + i] = _mm512_shuffle_i32x4(a[i], a[4 + i], 0xdd);
                b[8 + i] = _mm512_shuffle_i32x4(a[8 + i], a[12 + i], 0x88);
                b[12 + i] = _mm512_shuffle_i32x4(a[8 + i], a[12 + i], 0xdd);
        }
        UNROLL for (size_t i = 0; i < 4; i++)
        {
                a[i] = _mm512_shuffle_i32x4(b[i], b[8 + i], 0x88);
                a[8 + i] = _mm512_shuffle_i32x4(b[i], b[8 + i], 0xdd);
                a[4 + i] = _mm512_shuffle_i32x4(b[4 + i], b[12 + i], 0x88);
                a[12 + i] = _mm512_shuffle_i32x4(b[4 + i], b[12 + i], 0xdd);
        }
        for (size_t u = 0; u < n_units; u++)
                _mm512_storeu_si512(out + u * UNIT_BYTES, _mm512_xor_si512(a[u], _mm512_set1_epi8(-128)));
}

#define AT_ONCE ((size_t)64) /* coordinates: 16 fours */

/* 16 numbers as bytes. */
DCI_INLINE void put(const float *x, __mmask16 valid, __m512 by, uint8_t *out)
{
        const __m512i steps = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_maskz_loadu_ps(valid, x), by));
        _mm_storeu_si128((__m128i *)out, _mm512_cvtepi32_epi8(steps));
}

static void pack_some(float *rows, size_t n, size_t dim, const float *centre, const float *inverse, uint8_t *tile,
                      float *scales)
{
        uint8_t bytes[LANES * AT_ONCE] = {0};
        float by[LANES];
        for (size_t i = 0; i < LANES; i++) {
                scales[i] = i < n ? move(rows + i * dim, dim, centre, inverse) : 0.0f;
                by[i] = scales[i] > 0.0f ? 1.0f / scales[i] : 0.0f;
        }
        for (size_t p = 0; p < dim; p += AT_ONCE) {
                const size_t here = dim - p < AT_ONCE ? dim - p : AT_ONCE;
                for (size_t i = 0; i < n; i++) {
                        const float *row = rows + i * dim + p;
                        size_t j = 0;
                        for (; j + LANES <= here; j += LANES)
                                put(row + j, 0xffff, _mm512_set1_ps(by[i]), bytes + i * AT_ONCE + j);
                        if (j < here)
                                put(row + j, some(here - j), _mm512_set1_ps(by[i]), bytes + i * AT_ONCE + j);
                }
                turn(bytes, AT_ONCE, dci_softmax_units(here), tile + dci_softmax_units(p) * UNIT_BYTES);
        }
}

static void pack(float *rows, size_t n, size_t dim, const float *centre, const float *inverse, uint8_t *tile,
                 float *scales)
{
        for (size_t i = 0; i < DCI_SOFTMAX_ROWS; i += LANES)
                pack_some(rows + (i < n ? i * dim : 0),
                          n < i           ? 0
                          : n - i < LANES ? n - i
                                          : LANES,
                          dim, centre, inverse, tile + i * 4, scales + i);
}

/* --- scores and terms --------------------------------------------------------------------------------------------- */

/* 2^r on [-1/2, 1/2], right to 7.5e-5. */
DCI_INLINE __m512 power_of_two(__m512 x, __mmask16 valid)
{
        const __m512 whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        const __m512 r = _mm512_sub_ps(x, whole);
        __m512 q = _mm512_fmadd_ps(r, _mm512_set1_ps(0x1.c3f76p-5f), _mm512_set1_ps(0x1.f0de1ap-3f));
        q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0x1.62f31ap-1f));
        q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0x1.fff692p-1f));
        return _mm512_maskz_scalef_ps(valid, q, whole);
}

/* Two queries' terms of 16 rows, as bf16 side by side. */
DCI_INLINE __m512i in_pairs(__m512 even, __m512 odd)
{
        const __m512i half = _mm512_set1_epi32(0x8000), high = _mm512_set1_epi32((int)0xffff0000u);
        const __m512i a = _mm512_add_epi32(_mm512_castps_si512(even), half);
        const __m512i b = _mm512_add_epi32(_mm512_castps_si512(odd), half);
        return _mm512_ternarylogic_epi32(_mm512_srli_epi32(a, 16), b, high, 0xf8 /* a or b and c */);
}

/* 16 sums: each vector of keys that is loaded serves four queries, each four of a query four vectors of keys. */
DCI_INLINE void multiply(const dci_softmax *softmax, size_t q, const uint8_t *tile,
                         __m512i sum[DCI_SOFTMAX_QUERIES][VECTORS])
{
        const size_t width = softmax->units * 4;
        const int8_t *queries = softmax->bytes + q * width;
        UNROLL for (size_t i = 0; i < DCI_SOFTMAX_QUERIES; i++)
        {
                UNROLL for (size_t v = 0; v < VECTORS; v++) sum[i][v] = _mm512_set1_epi32(softmax->start[q + i]);
        }
        for (size_t u = 0; u < softmax->units; u++) {
                softmax_bytes keys[VECTORS];
                UNROLL for (size_t v = 0; v < VECTORS; v++) keys[v] =
                        of_keys(_mm512_loadu_si512(tile + u * UNIT_BYTES + v * 4 * LANES));
                UNROLL for (size_t i = 0; i < DCI_SOFTMAX_QUERIES; i++)
                {
                        int32_t four;
                        memcpy(&four, queries + i * width + u * 4, sizeof four);
                        const softmax_bytes query = of_query(_mm512_set1_epi32(four));
                        UNROLL for (size_t v = 0; v < VECTORS; v++) sum[i][v] = added(sum[i][v], keys[v], query);
                }
        }
}

static void terms(const dci_softmax *softmax, const uint8_t *tile, const float *scales, size_t n, uint16_t *out)
{
        __m512 scale[VECTORS];
        __mmask16 valid[VECTORS];
        UNROLL for (size_t v = 0; v < VECTORS; v++)
        {
                scale[v] = _mm512_loadu_ps(scales + v * LANES);
                valid[v] = n > v * LANES ? some(n - v * LANES) : 0;
        }
        for (size_t q = 0; q < softmax->n_queries; q += DCI_SOFTMAX_QUERIES) {
                __m512i product[DCI_SOFTMAX_QUERIES][VECTORS];
                multiply(softmax, q, tile, product);
                UNROLL for (size_t i = 0; i < DCI_SOFTMAX_QUERIES; i += 2)
                {
                        __m512 sum[2], most[2];
                        UNROLL for (size_t k = 0; k < 2; k++)
                        {
                                sum[k] = _mm512_loadu_ps(softmax->sum + (q + i + k) * LANES);
                                most[k] = _mm512_loadu_ps(softmax->most + (q + i + k) * LANES);
                        }
                        UNROLL for (size_t v = 0; v < VECTORS; v++)
                        {
                                __m512 power[2];
                                UNROLL for (size_t k = 0; k < 2; k++)
                                {
                                        const __m512 by =
                                                _mm512_mul_ps(scale[v], _mm512_set1_ps(softmax->scale[q + i + k]));
                                        const __m512 x = _mm512_fmsub_ps(_mm512_cvtepi32_ps(product[i + k][v]), by,
                                                                         _mm512_set1_ps(softmax->shift[q + i + k]));
                                        most[k] = _mm512_mask_max_ps(most[k], valid[v], most[k], x);
                                        power[k] = power_of_two(x, valid[v]);
                                        sum[k] = _mm512_add_ps(sum[k], power[k]);
                                }
                                _mm512_storeu_si512(out + ((q + i) / 2 * DCI_SOFTMAX_ROWS + v * LANES) * 2,
                                                    in_pairs(power[0], power[1]));
                        }
                        UNROLL for (size_t k = 0; k < 2; k++)
                        {
                                _mm512_storeu_ps(softmax->sum + (q + i + k) * LANES, sum[k]);
                                _mm512_storeu_ps(softmax->most + (q + i + k) * LANES, most[k]);
                        }
                }
        }
}

static void add(const uint16_t *from, const float *weights, size_t n_queries, float *out)
{
        __m512 sum[VECTORS];
        UNROLL for (size_t v = 0; v < VECTORS; v++) sum[v] = _mm512_loadu_ps(out + v * LANES);
        for (size_t q = 0; q < n_queries; q += 2) {
                const __m512 even = _mm512_set1_ps(weights[q]), odd = _mm512_set1_ps(weights[q + 1]);
                UNROLL for (size_t v = 0; v < VECTORS; v++)
                {
                        const __m512i pair = _mm512_loadu_si512(from + (q / 2 * DCI_SOFTMAX_ROWS + v * LANES) * 2);
                        const __m512i high = _mm512_and_si512(pair, _mm512_set1_epi32((int)0xffff0000u));
                        sum[v] = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(pair, 16)), even, sum[v]);
                        sum[v] = _mm512_fmadd_ps(_mm512_castsi512_ps(high), odd, sum[v]);
                }
        }
        UNROLL for (size_t v = 0; v < VECTORS; v++) _mm512_storeu_ps(out + v * LANES, sum[v]);
}

const dci_softmax_kernels SOFTMAX_TABLE = {.pack = pack, .terms = terms, .add = add};
