/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Random unit directions that rows and queries are projected on. They follow from the seed, so no file holds them. */
#ifndef DCI_INDEX_PDCI_DIRECTIONS_H
#define DCI_INDEX_PDCI_DIRECTIONS_H

#include "core/internal.h"

#include "dci/index.h"

typedef struct dci_directions {
        size_t n, dim;
        float *vectors; /* n x dim: the first dim coordinates */
        float *weights; /* IP: the last coordinate of each, which multiplies the lift; else NULL */
} dci_directions;

/* Projections of each row. */
size_t dci_index_simple_indices(const dci_index_config *config);
/* Direction i of the config's seed: dim coordinates and, where out_weight is not NULL (IP), the last one. */
void dci_direction_draw(const dci_index_config *config, size_t i, float *out, float *out_weight);
/* As many of them as the config has simple indices. */
dci_status dci_directions_create(dci_context *context, const dci_index_config *config, dci_directions *out);
void dci_directions_destroy(dci_context *context, dci_directions *directions);
size_t dci_directions_bytes(const dci_directions *directions);

/* The c^2 of rows as long as this: powers of two, so that it depends on the longest row alone, not on the order of adds. */
float dci_lift_c_squared(float longest_norm2);

#endif
