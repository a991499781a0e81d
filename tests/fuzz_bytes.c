/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/fuzz_bytes.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

void fuzz_from_seed(fuzz_bytes *from, uint64_t seed)
{
        *from = (fuzz_bytes){.seeded = true};
        dci_rng_seed(&from->rng, seed);
}

void fuzz_from_bytes(fuzz_bytes *from, const void *data, size_t n)
{
        *from = (fuzz_bytes){.at = data, .left = n};
        dci_rng_seed(&from->rng, 0);
}

bool fuzz_ended(const fuzz_bytes *from)
{
        return !from->seeded && from->left == 0;
}

/* The next n_bytes, the last ones zero where there are no more. */
static uint64_t take(fuzz_bytes *from, size_t n_bytes)
{
        uint64_t value = 0;
        for (size_t i = 0; i < n_bytes && from->left > 0; i++) {
                value |= (uint64_t)*from->at++ << 8 * i;
                from->left--;
        }
        return value;
}

size_t fuzz_below(fuzz_bytes *from, size_t n)
{
        if (from->left == 0)
                return (size_t)dci_rng_below(&from->rng, n);
        size_t n_bytes = 0;
        while (n_bytes < 8 && (n - 1) >> 8 * n_bytes != 0)
                n_bytes++;
        return (size_t)(take(from, n_bytes) % n);
}

bool fuzz_one_in(fuzz_bytes *from, size_t n)
{
        /* The last one, so that zeros are the usual. */
        return fuzz_below(from, n) == n - 1;
}

double fuzz_uniform(fuzz_bytes *from)
{
        return from->left == 0 ? dci_rng_uniform(&from->rng) : (double)take(from, 2) / 65536.0;
}

uint64_t fuzz_next(fuzz_bytes *from)
{
        if (from->left == 0)
                return dci_rng_next(&from->rng);
        dci_rng of_byte;
        dci_rng_seed(&of_byte, take(from, 1));
        return dci_rng_next(&of_byte);
}

void fuzz_stir(fuzz_bytes *from)
{
        if (from->left > 0)
                dci_rng_seed(&from->rng, take(from, 1));
}

double fuzz_normal(fuzz_bytes *from)
{
        return dci_rng_normal(&from->rng);
}

size_t fuzz_odd_size(fuzz_bytes *from)
{
        const size_t how = fuzz_below(from, 8);
        if (how < 4)
                return fuzz_below(from, 20);
        if (how == 4)
                return fuzz_below(from, 5000);
        if (how == 5)
                return SIZE_MAX - fuzz_below(from, 100);
        const size_t power = (size_t)1 << fuzz_below(from, 64);
        return how == 6 ? power : power + fuzz_below(from, 3) - 1;
}

int32_t fuzz_odd_int(fuzz_bytes *from)
{
        const size_t how = fuzz_below(from, 4);
        if (how < 3)
                return (int32_t)fuzz_below(from, 24) - 3;
        return (int32_t)(uint32_t)fuzz_odd_size(from);
}

float fuzz_odd_float(fuzz_bytes *from)
{
        static const float odd[] = {0.0f,     -0.0f,     1.0f,      -1.0f,     0.5f,           2.0f,    65504.0f,
                                    65520.0f, 0x1p-24f,  0x1p-126f, 0x1p-149f, 0x1p-40f,       1e-30f,  1e10f,
                                    6.5e18f,  6.6e18f,   1e18f,     1e19f,     0x1.fffffep62f, 0x1p63f, 1e30f,
                                    FLT_MAX,  -FLT_MAX,  FLT_MIN,   INFINITY,  -INFINITY,      NAN,     1.000001f,
                                    1e-6f,    0x1p-133f, 3.39e38f,  1e38f};
        const size_t how = fuzz_below(from, 4);
        if (how == 0)
                return odd[fuzz_below(from, COUNT(odd))];
        if (how < 3)
                return ((float)fuzz_below(from, 256) - 128.0f) / 16.0f;
        const uint32_t bits = (uint32_t)take(from, 4);
        float number;
        memcpy(&number, &bits, sizeof number);
        return number;
}

void fuzz_put_odd(fuzz_bytes *from, size_t n, float *numbers)
{
        const size_t at = fuzz_below(from, n);
        numbers[at] = fuzz_odd_float(from);
}

double fuzz_odd_double(fuzz_bytes *from)
{
        const size_t how = fuzz_below(from, 4);
        if (how == 0)
                return fuzz_uniform(from);
        if (how < 3)
                return (double)fuzz_odd_float(from);
        const uint64_t bits = take(from, 8);
        double number;
        memcpy(&number, &bits, sizeof number);
        return number;
}
