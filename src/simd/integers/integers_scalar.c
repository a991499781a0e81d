/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Kernels of integers in portable C, for any CPU. */
#include "core/internal.h"

#include <string.h>

#include "simd/convert.h"

typedef struct X {
        int16_t lane[16];
} X;
typedef struct A {
        int32_t lane[16];
} A;

#define STEP 16
#define ROWS_TABLE dci_integers_scalar

static inline X x_query(const int16_t *p)
{
        X x;
        memcpy(x.lane, p, sizeof x.lane);
        return x;
}

#define DEFINE_LOAD(dtype, T)                                                                                          \
        static inline X x_tail_##dtype(const unsigned char *p, size_t n, bool after)                                   \
        {                                                                                                              \
                X x = {{0}};                                                                                           \
                (void)after;                                                                                           \
                for (size_t l = 0; l < n; l++)                                                                         \
                        x.lane[l] = (int16_t)(T)p[l];                                                                  \
                return x;                                                                                              \
        }                                                                                                              \
        static inline X x_load_##dtype(const unsigned char *p)                                                         \
        {                                                                                                              \
                return x_tail_##dtype(p, STEP, false);                                                                 \
        }

DEFINE_LOAD(i8, int8_t)
DEFINE_LOAD(u8, uint8_t)

static inline X x_sub(X a, X b)
{
        for (int l = 0; l < STEP; l++)
                a.lane[l] = (int16_t)(a.lane[l] - b.lane[l]);
        return a;
}

static inline A a_zero(void)
{
        A a = {{0}};
        return a;
}

static inline A a_madd(A acc, X a, X b)
{
        for (int l = 0; l < STEP; l++)
                acc.lane[l] += (int32_t)a.lane[l] * b.lane[l];
        return acc;
}

static inline void a_sums(const A *acc, int32_t *out)
{
        for (int i = 0; i < 8; i++) {
                out[i] = 0;
                for (int l = 0; l < STEP; l++)
                        out[i] += acc[i].lane[l];
        }
}

#include "simd/integers/rows_template.h"

typedef A S;
typedef struct B {
        int32_t a, b;
} B;

#define TILES_TABLE dci_integer_tiles_scalar
#define AT_ONCE_ROWS 4
#define AT_ONCE_GROUPS 1
#define s_zero() a_zero()
#define s_row(p) ((B){(p)[0], (p)[1]})

static inline S s_add(S sum, B row, const int16_t *queries)
{
        for (int l = 0; l < DCI_LANES; l++)
                sum.lane[l] += row.a * queries[2 * l] + row.b * queries[2 * l + 1];
        return sum;
}

static inline void s_store(int32_t *out, S sum)
{
        memcpy(out, sum.lane, sizeof sum.lane);
}

#include "simd/integers/tiles_int16.h"
