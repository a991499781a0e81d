/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Normal numbers by Marsaglia's and Tsang's ziggurat (2000), in Doornik's form (2005): 128 layers of the same area lie over the density, and
 * nearly all numbers come from within the part of a layer that is all below the density, at the price of one product.
 */
#include "tests/common.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

enum { LAYERS = 128 };
#define TAIL 3.442619855899      /* where the lowest layer ends and the tail begins */
#define AREA 9.91256303526217e-3 /* of each layer, the lowest with the tail */

static double ends[LAYERS + 1]; /* of layers, from the lowest up: descending */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_bool is_made;

static double density(double x)
{
        return exp(-0.5 * x * x);
}

static void make(void)
{
        ends[0] = AREA / density(TAIL);
        ends[1] = TAIL;
        for (int i = 2; i < LAYERS; i++)
                ends[i] = sqrt(-2.0 * log(AREA / ends[i - 1] + density(ends[i - 1])));
        ends[LAYERS] = 0.0;
        atomic_store_explicit(&is_made, true, memory_order_release);
}

/* Beyond TAIL. */
static double from_tail(dci_rng *rng)
{
        double x, y;
        do {
                x = -log(1.0 - dci_rng_uniform(rng)) / TAIL;
                y = -log(1.0 - dci_rng_uniform(rng));
        } while (2.0 * y < x * x);
        return TAIL + x;
}

double test_quick_normal(dci_rng *rng)
{
        if (!atomic_load_explicit(&is_made, memory_order_acquire))
                (void)pthread_once(&once, make);
        for (;;) {
                /* The layer from the lowest bits, the place in it and the sign from the highest. */
                const uint64_t bits = dci_rng_next(rng), layer = bits % LAYERS;
                const double place = (double)(bits >> 11) * 0x1p-52 - 1.0, x = place * ends[layer];
                if (fabs(x) < ends[layer + 1])
                        return x;
                if (layer == 0)
                        return copysign(from_tail(rng), x);
                const double low = density(ends[layer]), high = density(ends[layer + 1]);
                if (low + dci_rng_uniform(rng) * (high - low) < density(x))
                        return x;
        }
}
