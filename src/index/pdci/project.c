/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Projections of rows and queries on random unit directions.
 *
 * They are canonical dot products, eight directions against a block of rows at a time: as fast as a matrix product, and
 * independent of where in a block a row lies, so that an index is the same whatever batches it was built from. Under IP the
 * lifted coordinate is left out and added when a query is answered: c may grow without touching what is stored.
 */
#include "index/index_internal.h"

#include <math.h>

#define BLOCK_ROWS 64

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

static void project_block(const dci_index *index, dci_rows *to, const dci_view *view, size_t first, size_t count)
{
        const dci_directions *directions = &index->directions;
        const size_t dim = directions->dim;
        const void *rows[BLOCK_ROWS];
        size_t offset;
        const dci_chunk *chunk = dci_rows_chunk(to, first, &offset);
        dci_view_pointers(view, first, NULL, count, rows);
        for (size_t j = 0; j < directions->n; j += DCI_MANY_QUERIES) {
                size_t n = directions->n - j < DCI_MANY_QUERIES ? directions->n - j : DCI_MANY_QUERIES;
                index->context->kernels->score_many[index->config.dtype - 1][DCI_FORM_DOT](
                        directions->vectors + j * dim, dim, n, rows, count, dim,
                        chunk->projections + j * chunk->stride + offset, chunk->stride);
        }
        if (index->config.metric != DCI_METRIC_COSINE)
                return;
        for (size_t j = 0; j < directions->n; j++) {
                float *out = chunk->projections + j * chunk->stride + offset;
                for (size_t i = 0; i < count; i++)
                        out[i] *= chunk->norms[offset + i];
        }
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

void dci_project_rows(const dci_index *index, dci_rows *rows, size_t first, size_t count)
{
        const dci_view view = dci_rows_view(rows);
        for (size_t done = 0; done < count;) {
                size_t offset, here = count - done < BLOCK_ROWS ? count - done : BLOCK_ROWS;
                const dci_chunk *chunk = dci_rows_chunk(rows, first + done, &offset);
                here = chunk->capacity - offset < here ? chunk->capacity - offset : here;
                project_block(index, rows, &view, first + done, here);
                done += here;
        }
}

void dci_project_query(const dci_index *index, const dci_queries *queries, size_t query, float c_squared, float *out)
{
        const dci_directions *directions = &index->directions;
        const dci_kernels *kernels = index->context->kernels;
        const float *row = queries->rows + query * queries->ld;
        float scale = 1.0f;
        kernels->score_strided[DCI_F32 - 1][DCI_FORM_DOT](row, directions->vectors, directions->dim * sizeof *row,
                                                          directions->n, directions->dim, out);
        if (index->config.metric == DCI_METRIC_COSINE)
                scale = queries->inverse_norms[query];
        if (index->config.metric == DCI_METRIC_IP) {
                float norm2 = kernels->norm2[DCI_F32 - 1](row, directions->dim);
                /* A query as short as that has no direction to speak of, and must not overflow. */
                scale = norm2 >= DCI_MIN_NORM2 ? sqrtf(c_squared) / sqrtf(norm2) : 0.0f;
        }
        for (size_t j = 0; scale != 1.0f && j < directions->n; j++)
                out[j] *= scale;
}
