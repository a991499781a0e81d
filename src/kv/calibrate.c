/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* From sample queries to the tau with which a wanted share of steps decides again. */
#include "core/internal.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "kv/config.h"
#include "kv/stages/schedule.h"

typedef struct samples {
        const dci_kernels *kernels;
        const dci_kv_config *config;
        size_t n_layers, n_positions, ld;
        const unsigned char *queries;
        size_t n_rows; /* query heads that turn together */
} samples;

static const unsigned char *row_at(const samples *s, size_t row)
{
        return s->queries + row * s->ld * dci_dtype_size(s->config->query_dtype);
}

/* Those of one position, as floats. */
static void to_f32(const samples *s, size_t layer, size_t position, float *out)
{
        const size_t n_heads = s->config->n_query_heads, first = (layer * s->n_positions + position) * n_heads;
        for (size_t h = 0; h < n_heads; h++)
                s->kernels->to_f32[s->config->query_dtype - 1](row_at(s, first + h), s->config->dim_k,
                                                               out + h * s->config->dim_k);
}

static dci_status check_numbers(const samples *s)
{
        const size_t n_heads = s->config->n_query_heads;
        for (size_t i = 0; i < s->n_layers * s->n_positions * n_heads; i++)
                if (!isfinite(s->kernels->norm2[s->config->query_dtype - 1](row_at(s, i), s->config->dim_k)))
                        return dci_fail(
                                DCI_ERR_NUMBER,
                                "the query of layer %zu, position %zu and head %zu has NaN, infinity, or is too large",
                                i / n_heads / s->n_positions, i / n_heads % s->n_positions, i % n_heads);
        return DCI_OK;
}

/* Mean cosines of all positions after the first ones; rows: two positions' queries. */
static void find_turns(const samples *s, float *rows, double *out)
{
        const size_t n = s->config->n_query_heads * s->config->dim_k, step = s->n_rows * s->config->dim_k;
        for (size_t layer = 0; layer < s->n_layers; layer++) {
                to_f32(s, layer, 0, rows);
                for (size_t t = 1; t < s->n_positions; t++) {
                        const float *before = rows + (t - 1) % 2 * n;
                        float *now = rows + t % 2 * n;
                        to_f32(s, layer, t, now);
                        for (size_t i = 0; i < n; i += step)
                                *out++ = dci_kv_query_similarity(s->kernels, now + i, before + i, s->n_rows,
                                                                 s->config->dim_k);
                }
        }
}

static int ascending(const void *a, const void *b)
{
        const double x = *(const double *)a, y = *(const double *)b;
        return (x > y) - (x < y);
}

/* How many of the ascending turns are to decide. Equal ones do together, those of -1 whatever tau is, and those of 1 never. */
static size_t deciding(const double *turns, size_t n, double rate)
{
        const double share = rate * (double)n;
        const size_t wanted = (size_t)(share + 0.5);
        size_t low = wanted, high = wanted;
        if (wanted == 0 || wanted == n || turns[wanted - 1] < turns[wanted])
                return wanted;
        while (low > 0 && turns[low - 1] == turns[wanted])
                low--;
        while (high < n && turns[high] == turns[wanted])
                high++;
        if (turns[wanted] == 1.0 || turns[wanted] == -1.0)
                return turns[wanted] > 0.0 ? low : high;
        return share - (double)low <= (double)high - share ? low : high;
}

/* Halfway between the last one that is to decide, or all there could be, and the first one that is not: plans see queries times the
 * scale, whose cosines are rounded otherwise. */
static double between(double *turns, size_t n, double rate)
{
        for (size_t i = 0; i < n; i++) /* a mean of cosines may be a little more */
                turns[i] = fmin(fmax(turns[i], -1.0), 1.0);
        qsort(turns, n, sizeof *turns, ascending);
        const size_t wanted = deciding(turns, n, rate);
        if (wanted == n)
                return 1.0;
        const double last = wanted > 0 ? turns[wanted - 1] : -1.0, first = turns[wanted];
        double tau = last + (first - last) / 2.0;
        if (!(tau > last)) /* neighbours */
                tau = first;
        /* 0 would mean the default; turns of 0 are to stay. */
        if (tau == 0.0)
                tau = -DBL_MIN;
        return tau > -1.0 ? tau : nextafter(-1.0, 0.0);
}

static dci_status check(dci_context *context, const dci_kv_config *checked, size_t n_layers, size_t n_positions,
                        const void *queries, size_t ld, double rate, const double *out_tau)
{
        if (context == NULL || out_tau == NULL)
                return dci_fail(DCI_ERR_INVALID, "%s is NULL", context == NULL ? "context" : "out_tau");
        if (checked->schedule != DCI_KV_BOUNDARY && checked->schedule != DCI_KV_AHEAD)
                return dci_fail(DCI_ERR_INVALID, "schedule %d has no tau, expected %d or %d", (int)checked->schedule,
                                DCI_KV_BOUNDARY, DCI_KV_AHEAD);
        if (n_layers == 0 || n_positions < 2)
                return dci_fail(DCI_ERR_INVALID,
                                "queries of %zu layers and %zu positions, expected at least 1 and 2: what turns is "
                                "the query of a position beside that of the one before",
                                n_layers, n_positions);
        if (queries == NULL)
                return dci_fail(DCI_ERR_INVALID, "queries is NULL");
        if (ld < checked->dim_k)
                return dci_fail(DCI_ERR_INVALID, "the queries' stride is %zu, expected at least %zu", ld,
                                checked->dim_k);
        if (!(rate >= 0.0 && rate <= 1.0))
                return dci_fail(DCI_ERR_INVALID, "rate is %g, expected 0 to 1", rate);
        return dci_check_aligned("queries", queries, dci_dtype_size(checked->query_dtype));
}

dci_status dci_kv_calibrate(dci_context *context, const dci_kv_config *config, size_t n_layers, size_t n_positions,
                            const void *queries, size_t ld, double rate, double *out_tau)
{
        dci_kv_config checked;
        dci_kv_stages stages;
        DCI_TRY(dci_kv_check_config(config, &checked, &stages));
        DCI_TRY(check(context, &checked, n_layers, n_positions, queries, ld, rate, out_tau));
        const bool layers = checked.schedule == DCI_KV_BOUNDARY, each = checked.query_head_lists != 0;
        const size_t n_lists = each ? checked.n_query_heads : checked.n_kv_heads,
                     per_turn = checked.n_query_heads / (layers ? 1 : n_lists);
        const samples s = {context->kernels, &checked, n_layers, n_positions, ld, queries, per_turn};
        size_t n, n_rows = n_layers;
        if (!dci_mul(n_layers, n_positions, &n_rows) || !dci_mul(n_rows, checked.n_query_heads, &n_rows) ||
            n_rows > SIZE_MAX / 64 / ld)
                return dci_fail(DCI_ERR_LIMIT, "queries of %zu layers and %zu positions are too many", n_layers,
                                n_positions);
        DCI_TRY(check_numbers(&s));
        n = n_layers * (n_positions - 1) * (layers ? 1 : n_lists);
        const size_t n_floats = 2 * checked.n_query_heads * checked.dim_k;
        float *rows = dci_alloc(context, n_floats, sizeof *rows);
        double *turns = rows != NULL ? dci_alloc(context, n, sizeof *turns) : NULL;
        if (turns != NULL) {
                find_turns(&s, rows, turns);
                *out_tau = between(turns, n, rate);
        }
        dci_status status = turns != NULL ? DCI_OK : DCI_ERR_MEMORY;
        dci_free(context, turns, n, sizeof *turns);
        dci_free(context, rows, n_floats, sizeof *rows);
        return status;
}
