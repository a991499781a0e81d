/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Random unit directions, drawn from a seed. */
#include "core/internal.h"

#include <math.h>

#include "index/pdci/directions.h"

/* A Gaussian vector has a uniformly random direction. One stream per direction, so that the first ones do not depend on how
 * many there are, and each can be drawn by itself. */
void dci_direction_draw(const dci_index_config *config, size_t i, float *out, float *out_weight)
{
        const size_t dim = config->dim;
        dci_rng rng;
        dci_rng_seed(&rng, config->seed);
        dci_rng stream = dci_rng_split(&rng, i);
        double squared = 0.0, last = 0.0;
        for (size_t p = 0; p < dim; p++) {
                double x = dci_rng_normal(&stream);
                out[p] = (float)x;
                squared += x * x;
        }
        if (out_weight != NULL) {
                last = dci_rng_normal(&stream);
                squared += last * last;
        }
        const double inverse = squared > 0.0 ? 1.0 / sqrt(squared) : 0.0;
        for (size_t p = 0; p < dim; p++)
                out[p] = (float)(out[p] * inverse);
        if (out_weight != NULL)
                *out_weight = (float)(last * inverse);
}

dci_status dci_directions_create(dci_context *context, const dci_index_config *config, dci_directions *out)
{
        *out = (dci_directions){0};
        const bool lifted = config->metric == DCI_METRIC_IP;
        out->n = dci_index_simple_indices(config);
        if (out->n == 0)
                return DCI_OK;
        out->dim = config->dim;
        out->vectors = dci_alloc(context, out->n * out->dim, sizeof *out->vectors);
        out->weights = lifted ? dci_alloc(context, out->n, sizeof *out->weights) : NULL;
        if (out->vectors == NULL || (lifted && out->weights == NULL)) {
                dci_directions_destroy(context, out);
                return DCI_ERR_MEMORY;
        }
        for (size_t i = 0; i < out->n; i++)
                dci_direction_draw(config, i, out->vectors + i * out->dim, lifted ? &out->weights[i] : NULL);
        return DCI_OK;
}

void dci_directions_destroy(dci_context *context, dci_directions *directions)
{
        dci_free(context, directions->vectors, directions->n * directions->dim, sizeof *directions->vectors);
        dci_free(context, directions->weights, directions->n, sizeof *directions->weights);
        directions->vectors = directions->weights = NULL;
}

size_t dci_directions_bytes(const dci_directions *directions)
{
        return (directions->n * directions->dim + (directions->weights != NULL ? directions->n : 0)) * sizeof(float);
}

float dci_lift_c_squared(float longest_norm2)
{
        if (longest_norm2 == 0.0f)
                return 0.0f;
        int exponent;
        float fraction = frexpf(longest_norm2, &exponent); /* in [1/2, 1) */
        return ldexpf(1.0f, fraction == 0.5f ? exponent - 1 : exponent);
}

size_t dci_index_simple_indices(const dci_index_config *config)
{
        switch (config->kind) {
        case DCI_KIND_PDCI:
                return config->num_comp_indices * config->num_simp_indices;
        case DCI_KIND_MDCI:
                return config->cell_simp_indices;
        default:
                return 0;
        }
}
