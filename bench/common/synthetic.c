/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/common/dataset.h"

#include <math.h>

/* Stream 0 draws the map. */
#define FIRST_ROW_STREAM 1

dci_status bench_synthetic_rows(dci_context *context, const bench_synthetic *what, uint64_t stream, size_t n,
                                bench_rows *out)
{
        const size_t dim = what->dim, latent = what->latent;
        dci_rng root, map_rng, rng;
        dci_status status = bench_rows_alloc(context, "synthetic rows", DCI_F32, n, dim, out);
        if (status != DCI_OK)
                return status;
        /* latent coordinates, then the map's columns: the sum over coordinates runs over whole rows of it. */
        double *memory = dci_alloc(context, (latent + 1) * (dim + 1), sizeof *memory);
        if (memory == NULL) {
                bench_rows_free(out);
                return DCI_ERR_MEMORY;
        }
        double *map = memory, *coordinates = memory + latent * dim, *row = coordinates + latent;
        dci_rng_seed(&root, what->seed);
        map_rng = dci_rng_split(&root, 0);
        rng = dci_rng_split(&root, FIRST_ROW_STREAM + stream);
        /* Elements of the rows have about unit variance. */
        for (size_t i = 0; i < latent * dim; i++)
                map[i] = dci_rng_normal(&map_rng) / sqrt((double)latent);
        float *rows = out->owned;
        for (size_t i = 0; i < n; i++) {
                for (size_t j = 0; j < latent; j++)
                        coordinates[j] = dci_rng_normal(&rng);
                for (size_t p = 0; p < dim; p++)
                        row[p] = what->noise * dci_rng_normal(&rng);
                for (size_t j = 0; j < latent; j++)
                        for (size_t p = 0; p < dim; p++)
                                row[p] += coordinates[j] * map[j * dim + p];
                for (size_t p = 0; p < dim; p++)
                        rows[i * dim + p] = (float)row[p];
        }
        dci_free(context, memory, (latent + 1) * (dim + 1), sizeof *memory);
        return DCI_OK;
}
