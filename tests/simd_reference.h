/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What row kernels must give, by loops that follow the definitions; and memory that tells when they read too far. The file
 * that includes this defines _DEFAULT_SOURCE before anything else, for MAP_ANONYMOUS. */
#ifndef DCI_TESTS_SIMD_REFERENCE_H
#define DCI_TESTS_SIMD_REFERENCE_H

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#include "simd/kernels.h"
#include "tests/common.h"

/* The end of some memory that lasts as long as the process, with an unmapped page after it: whoever reads or writes there is
 * killed. */
static inline unsigned char *guard(size_t room)
{
        const size_t page = (size_t)sysconf(_SC_PAGESIZE);
        room = (room + page - 1) / page * page;
        unsigned char *base = mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ck_assert(base != MAP_FAILED);
        ck_assert_int_eq(mprotect(base + room, page, PROT_NONE), 0);
        return base + room;
}

static inline void *last_bytes(unsigned char *end, size_t n_bytes)
{
        return end - n_bytes;
}

/* What 16 bits mean, from the definition of the format. */
static inline double half_value(dci_dtype dtype, uint32_t bits)
{
        const int fraction_bits = dtype == DCI_F16 ? 10 : 7, top = dtype == DCI_F16 ? 31 : 255;
        const int exponent = (int)(bits >> fraction_bits) & top;
        const double fraction = ldexp(bits & ((1u << fraction_bits) - 1), -fraction_bits),
                     sign = bits & 0x8000 ? -1 : 1;
        if (exponent == top)
                return fraction != 0 ? NAN : sign * INFINITY;
        return sign * (exponent == 0 ? ldexp(fraction, 1 - top / 2) : ldexp(1 + fraction, exponent - top / 2));
}

/* The sum in the canonical order, with or without fused multiply-add. */
static inline float canonical(int form, bool fused, const float *a, const float *b, size_t dim)
{
        float lane[16] = {0};
        for (size_t i = 0; i < (dim + 15) / 16 * 16; i++) {
                float x = i < dim ? a[i] : 0, y = i < dim ? b[i] : 0, *sum = &lane[i % 16];
                if (form == DCI_FORM_L2)
                        x = y = x - y;
                float product = x * y;
                *sum = fused ? fmaf(x, y, *sum) : *sum + product;
        }
        for (int half = 8; half > 0; half /= 2)
                for (int i = 0; i < half; i++)
                        lane[i] += lane[i + half];
        return lane[0];
}

static inline double exact(int form, const float *a, const float *b, size_t dim, double *magnitude)
{
        double sum = 0;
        *magnitude = 0;
        for (size_t i = 0; i < dim; i++) {
                double x = a[i], y = b[i], term = form == DCI_FORM_L2 ? (x - y) * (x - y) : x * y;
                sum += term;
                *magnitude += fabs(term);
        }
        return sum;
}

#endif
