/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * When would the published walk of P-DCI beat the scan that replaces it? Both choose the candidates of one composite index
 * among Gaussian rows: the walk point by point over sorted projections, the scan as src/index/pdci/pdci.c does it. Prints a table of
 * microseconds per query. Usage: walk_or_scan
 */
#include "core/internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "index/pdci/pdci.h"

typedef struct place {
        float projection;
        int32_t row;
} place;

typedef struct cell {
        size_t n, m, dim;
        float *rows, *directions, *projections; /* projections: m x n */
        place *sorted;                          /* m x n */
        uint8_t *counts;
} cell;

static double seconds(void)
{
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *take(size_t n, size_t size)
{
        void *memory = calloc(n + 1, size);
        if (memory == NULL) {
                fprintf(stderr, "walk_or_scan: no memory for %zu bytes\n", n * size);
                exit(1);
        }
        return memory;
}

static int by_projection(const void *a, const void *b)
{
        float x = ((const place *)a)->projection, y = ((const place *)b)->projection;
        return (x > y) - (x < y);
}

static float dot(const float *a, const float *b, size_t dim)
{
        float sum = 0.0f;
        for (size_t p = 0; p < dim; p++)
                sum += a[p] * b[p];
        return sum;
}

static cell make_cell(size_t n, size_t m, size_t dim, dci_rng *rng)
{
        cell c = {.n = n, .m = m, .dim = dim};
        c.rows = take(n * dim, sizeof *c.rows);
        c.directions = take(m * dim, sizeof *c.directions);
        c.projections = take(m * n, sizeof *c.projections);
        c.sorted = take(m * n, sizeof *c.sorted);
        c.counts = take(n, sizeof *c.counts);
        for (size_t i = 0; i < n * dim; i++)
                c.rows[i] = (float)dci_rng_normal(rng);
        for (size_t j = 0; j < m; j++) {
                float *u = c.directions + j * dim, scale;
                for (size_t p = 0; p < dim; p++)
                        u[p] = (float)dci_rng_normal(rng);
                scale = 1.0f / sqrtf(dot(u, u, dim));
                for (size_t p = 0; p < dim; p++)
                        u[p] *= scale;
                for (size_t i = 0; i < n; i++) {
                        c.projections[j * n + i] = dot(u, c.rows + i * dim, dim);
                        c.sorted[j * n + i] = (place){c.projections[j * n + i], (int32_t)i};
                }
                qsort(c.sorted + j * n, n, sizeof *c.sorted, by_projection);
        }
        return c;
}

static void free_cell(cell *c)
{
        free(c->rows);
        free(c->directions);
        free(c->projections);
        free(c->sorted);
        free(c->counts);
}

static size_t lower_bound(const place *sorted, size_t n, float x)
{
        size_t low = 0, high = n;
        while (low < high) {
                size_t middle = (low + high) / 2;
                if (sorted[middle].projection < x)
                        low = middle + 1;
                else
                        high = middle;
        }
        return low;
}

/* The published walk until `retrieve` rows are candidates. Few simple indices: the next one is found by comparing all. */
static size_t walk(cell *c, const float *query, size_t retrieve)
{
        size_t below[16] = {0}, above[16] = {0}, visits = 0, found = 0;
        float down[16] = {0}, up[16] = {0};
        memset(c->counts, 0, c->n);
        for (size_t j = 0; j < c->m; j++) {
                const place *sorted = c->sorted + j * c->n;
                above[j] = below[j] = lower_bound(sorted, c->n, query[j]);
                down[j] = below[j] > 0 ? query[j] - sorted[below[j] - 1].projection : INFINITY;
                up[j] = above[j] < c->n ? sorted[above[j]].projection - query[j] : INFINITY;
        }
        for (; found < retrieve; visits++) {
                size_t j = 0;
                float nearest = INFINITY;
                for (size_t i = 0; i < c->m; i++) {
                        float here = down[i] < up[i] ? down[i] : up[i];
                        j = here < nearest ? i : j;
                        nearest = here < nearest ? here : nearest;
                }
                const place *sorted = c->sorted + j * c->n;
                int32_t row;
                if (down[j] <= up[j]) {
                        row = sorted[--below[j]].row;
                        down[j] = below[j] > 0 ? query[j] - sorted[below[j] - 1].projection : INFINITY;
                } else {
                        row = sorted[above[j]++].row;
                        up[j] = above[j] < c->n ? sorted[above[j]].projection - query[j] : INFINITY;
                }
                found += ++c->counts[row] == c->m;
        }
        return visits;
}

static void compare(size_t n, size_t m, size_t dim, double share, dci_context *context)
{
        enum { QUERIES = 20 };
        dci_rng rng;
        dci_rng_seed(&rng, n + dim);
        cell c = make_cell(n, m, dim, &rng);
        const size_t words = (n + 63) / 64, retrieve = (size_t)ceil(share * (double)n);
        uint64_t *bits = take(words, sizeof *bits);
        void *scratch = take(dci_pdci_scratch_bytes(n), 1);
        dci_pdci_run run = {c.projections, n, n};
        dci_pdci_cell core = {.kernels = context->kernels, .n_comp = 1, .n_simp = m, .runs = &run, .n_runs = 1, .n = n};
        core.n_admitted = n;
        dci_pdci_effort effort = {.visit = (uint64_t)n * m, .retrieve = retrieve, .at_least = 1};
        double walked = 0, scanned = 0;
        size_t visits = 0;
        for (int q = 0; q < QUERIES; q++) {
                float row[64] = {0}, query[16] = {0};
                for (size_t p = 0; p < dim; p++)
                        row[p] = (float)dci_rng_normal(&rng);
                for (size_t j = 0; j < m; j++)
                        query[j] = dot(c.directions + j * dim, row, dim);
                double start = seconds();
                visits += walk(&c, query, retrieve);
                walked += seconds() - start;
                memset(bits, 0, words * sizeof *bits);
                start = seconds();
                dci_pdci_candidates(&core, query, &effort, scratch, bits);
                scanned += seconds() - start;
        }
        printf("| %zu | %zu | %zu | %g | %.3f | %.1f | %.1f | %.1f |\n", n, dim, m, share,
               (double)visits / QUERIES / (double)(n * m), walked / QUERIES * 1e6, scanned / QUERIES * 1e6,
               walked / scanned);
        free(bits);
        free(scratch);
        free_cell(&c);
}

int main(void)
{
        static const size_t sizes[] = {256, 4096, 32768, 262144, 1000000};
        static const struct {
                size_t dim, m;
        } shapes[] = {{2, 2}, {8, 4}, {64, 7}};
        static const double shares[] = {0.0001, 0.01, 0.1};
        dci_context *context;
        if (dci_context_create(NULL, &context) != DCI_OK) {
                fprintf(stderr, "walk_or_scan: %s\n", dci_last_error());
                return 1;
        }
        printf("| rows | dim | simple indices | retrieved | visited | walk us | scan us | walk / scan |\n"
               "|---|---|---|---|---|---|---|---|\n");
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
                for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
                        for (size_t e = 0; e < sizeof shares / sizeof *shares; e++)
                                compare(sizes[i], shapes[s].m, shapes[s].dim, shares[e], context);
        dci_context_destroy(context);
        return 0;
}
