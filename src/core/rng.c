/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Random numbers whose sequence is part of the library's promise: the same seed gives the same integers and uniform
 * numbers on every platform (normal ones as far as its logarithm and cosine agree). Generator: xoshiro256++ (Blackman
 * and Vigna 2019), seeded through splitmix64 as its authors advise. */
#include "core/internal.h"

#include <math.h>

static uint64_t splitmix64(uint64_t *state)
{
        uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        return z ^ (z >> 31);
}

static uint64_t rotl(uint64_t x, int k)
{
        return (x << k) | (x >> (64 - k));
}

void dci_rng_seed(dci_rng *rng, uint64_t seed)
{
        /* splitmix64 is a bijection of a moving counter, so the four words are never all zero. */
        for (int i = 0; i < 4; i++)
                rng->state[i] = splitmix64(&seed);
}

dci_rng dci_rng_split(const dci_rng *rng, uint64_t stream)
{
        /* Hashing the parent's state with the stream number makes children independent of the order of splitting. */
        uint64_t mix = stream;
        uint64_t seed = splitmix64(&mix);
        for (int i = 0; i < 4; i++) {
                seed ^= rng->state[i];
                seed = splitmix64(&seed);
        }
        dci_rng child;
        dci_rng_seed(&child, seed);
        return child;
}

uint64_t dci_rng_next(dci_rng *rng)
{
        uint64_t *s = rng->state;
        uint64_t result = rotl(s[0] + s[3], 23) + s[0];
        uint64_t t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = rotl(s[3], 45);
        return result;
}

uint64_t dci_rng_below(dci_rng *rng, uint64_t bound)
{
        /* Rejects the short last interval, so that no value is favoured. */
        uint64_t excess = (UINT64_MAX % bound + 1) % bound;
        for (;;) {
                uint64_t x = dci_rng_next(rng);
                if (x <= UINT64_MAX - excess)
                        return x % bound;
        }
}

double dci_rng_uniform(dci_rng *rng)
{
        return (double)(dci_rng_next(rng) >> 11) * 0x1p-53;
}

double dci_rng_normal(dci_rng *rng)
{
        /* Box and Muller, one of the pair: no state beyond the generator's, so a split stream is complete in itself. */
        const double two_pi = 6.283185307179586476925286766559;
        double u = 1.0 - dci_rng_uniform(rng); /* (0, 1] */
        return sqrt(-2.0 * log(u)) * cos(two_pi * dci_rng_uniform(rng));
}
