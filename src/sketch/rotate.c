/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "sketch/rotate.h"

static size_t part_of(size_t dim)
{
        size_t part = 1;
        while (part <= dim / 2)
                part *= 2;
        return part;
}

size_t dci_rotation_bytes(size_t dim)
{
        return 2 * (size_t)DCI_ROTATE_ROUNDS * part_of(dim) * sizeof(float);
}

void dci_rotation_init(dci_rng *rng, size_t dim, void *memory, dci_rotation *out)
{
        *out = (dci_rotation){.dim = dim, .part = part_of(dim), .signs = memory};
        const float scale = (float)(1.0 / sqrt((double)out->part));
        uint64_t bits = 0;
        for (size_t i = 0; i < 2 * (size_t)DCI_ROTATE_ROUNDS * out->part; i++) {
                if (i % 64 == 0)
                        bits = dci_rng_next(rng);
                out->signs[i] = (bits >> (i % 64) & 1) != 0 ? scale : -scale;
        }
}

/* Without its scale, which the signs carry. Sums and differences of the two halves, interleaved, as often as n halves:
 * every stage reads and writes consecutive numbers (Pease 1968), and the result has the usual order. */
static void hadamard(float *x, size_t n, float *spare)
{
        float *from = x, *to = spare;
        for (size_t left = n; left > 1; left /= 2) {
                const float *high = from + n / 2;
                for (size_t j = 0; j < n / 2; j++) {
                        to[2 * j] = from[j] + high[j];
                        to[2 * j + 1] = from[j] - high[j];
                }
                float *swap = from;
                from = to;
                to = swap;
        }
        if (from != x)
                memcpy(x, from, n * sizeof *x);
}

/* Round r of the first part or of the last. */
static float *part_at(const dci_rotation *rotation, float *row, size_t r)
{
        return r % 2 == 0 ? row : row + (rotation->dim - rotation->part);
}

void dci_rotate(const dci_rotation *rotation, float *row, float *spare)
{
        for (size_t r = 0; r < 2 * (size_t)DCI_ROTATE_ROUNDS; r++) {
                const float *signs = rotation->signs + r * rotation->part;
                float *x = part_at(rotation, row, r);
                if (r % 2 == 1 && rotation->part == rotation->dim) /* the same part again */
                        continue;
                for (size_t i = 0; i < rotation->part; i++)
                        x[i] *= signs[i];
                hadamard(x, rotation->part, spare);
        }
}

void dci_rotate_back(const dci_rotation *rotation, float *row, float *spare)
{
        for (size_t r = 2 * (size_t)DCI_ROTATE_ROUNDS; r-- > 0;) {
                const float *signs = rotation->signs + r * rotation->part;
                float *x = part_at(rotation, row, r);
                if (r % 2 == 1 && rotation->part == rotation->dim)
                        continue;
                hadamard(x, rotation->part, spare); /* its own inverse but for the scale, as the signs are */
                for (size_t i = 0; i < rotation->part; i++)
                        x[i] *= signs[i];
        }
}
