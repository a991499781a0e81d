/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Projections of rows and queries on random unit directions.
 *
 * They are canonical dot products, eight directions against a block of rows at a time: as fast as a matrix product, and
 * independent of where in a block a row is, so that an index is the same whatever batches it was built from. Under IP the
 * lifted coordinate is left out and added when a query is answered: c may grow without touching what is stored.
 */
#include "core/internal.h"

#include <math.h>

#include "index/pdci/project.h"

#define BLOCK_ROWS 64

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
