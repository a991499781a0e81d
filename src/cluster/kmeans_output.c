/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* From a solved problem to the caller's arrays. */
#include "core/internal.h"

#include <string.h>

#include "cluster/kmeans_internal.h"

typedef struct writing {
        km_problem *problem;
        const dci_kmeans_result *result;
        float *centroids, *means, *value_sums; /* of this problem, or NULL */
} writing;

static void write_centroid(const writing *w, size_t c)
{
        const km_problem *p = w->problem;
        float *out = w->centroids + c * p->dim;
        if (p->raw != NULL) {
                memcpy(out, p->raw + c * p->dim, p->dim * sizeof *out);
                return;
        }
        for (size_t j = 0; j < p->dim; j++)
                out[j] = p->centroids[c * p->dim + j] + p->middle[j];
}

static void write_mean(const writing *w, km_worker *worker, size_t c)
{
        const km_problem *p = w->problem;
        const size_t n = dci_km_size(p, c);
        float *out = w->means + c * p->dim;
        if (n == 0) {
                for (size_t j = 0; j < p->dim; j++)
                        out[j] = (p->raw != NULL ? p->raw[c * p->dim + j]
                                                 : p->centroids[c * p->dim + j] + p->middle[j]) +
                                 p->mean[j];
                return;
        }
        dci_km_sum(p, worker, p->config->dtype, p->rows, p->input->ld * dci_dtype_size(p->config->dtype),
                   p->order + p->starts[c], n, p->dim, worker->total);
        for (size_t j = 0; j < p->dim; j++)
                out[j] = (float)(worker->total[j] / (double)n);
}

static void write_value_sum(const writing *w, km_worker *worker, size_t c)
{
        const km_problem *p = w->problem;
        const dci_kmeans_input *input = p->input;
        const size_t size = dci_dtype_size(input->value_dtype);
        const unsigned char *values = (const unsigned char *)input->values + p->number * input->value_problem_ld * size;
        dci_km_sum(p, worker, input->value_dtype, values, input->value_ld * size, p->order + p->starts[c],
                   dci_km_size(p, c), input->value_dim, worker->total);
        for (size_t j = 0; j < input->value_dim; j++)
                w->value_sums[c * input->value_dim + j] = (float)worker->total[j];
}

static void write_task(void *arg, size_t c, size_t worker)
{
        const writing *w = arg;
        if (w->centroids != NULL)
                write_centroid(w, c);
        if (w->means != NULL)
                write_mean(w, &w->problem->workers[worker], c);
        if (w->value_sums != NULL)
                write_value_sum(w, &w->problem->workers[worker], c);
}

static void write_integers(const km_problem *p, const dci_kmeans_result *result)
{
        const int32_t row = (int32_t)p->input->first_row, cluster = (int32_t)p->input->first_cluster;
        for (size_t i = 0; result->labels != NULL && i < p->n; i++)
                result->labels[p->number * p->n + i] = cluster + p->labels[i];
        for (size_t i = 0; result->ids != NULL && i < p->n; i++)
                result->ids[p->number * p->n + i] = row + p->order[i];
        for (size_t c = 0; result->offsets != NULL && c <= p->k; c++)
                result->offsets[p->number * (p->k + 1) + c] = row + p->starts[c];
        for (size_t c = 0; result->sizes != NULL && c < p->k; c++)
                result->sizes[p->number * p->k + c] = (int32_t)dci_km_size(p, c);
        if (result->row_means != NULL)
                memcpy(result->row_means + p->number * p->dim, p->mean, p->dim * sizeof *p->mean);
}

static void write_report(const km_problem *p, dci_kmeans_report *out)
{
        dci_kmeans_report report = p->report;
        report.struct_size = out->struct_size;
        report.rounds = out->rounds;
        report.rounds_room = out->rounds_room;
        if (report.n_recorded > report.rounds_room || report.rounds == NULL)
                report.n_recorded = report.rounds == NULL ? 0 : report.rounds_room;
        if (report.n_recorded > 0)
                memcpy(report.rounds, p->rounds, report.n_recorded * sizeof *report.rounds);
        *out = report;
}

dci_status dci_km_write(km_problem *p, const dci_kmeans_result *result)
{
        writing w = {.problem = p, .result = result};
        if (result->centroids != NULL)
                w.centroids = result->centroids + p->number * p->k * p->dim;
        if (result->means != NULL)
                w.means = result->means + p->number * p->k * p->dim;
        if (result->value_sums != NULL)
                w.value_sums = result->value_sums + p->number * p->k * p->input->value_dim;
        write_integers(p, result);
        if (p->report_out != NULL)
                write_report(p, p->report_out);
        if (w.centroids == NULL && w.means == NULL && w.value_sums == NULL)
                return DCI_OK;
        const size_t row_work = (w.means != NULL ? p->dim : 0) + (w.value_sums != NULL ? p->input->value_dim : 0);
        return dci_km_for(p, p->k, 8 * (p->n * row_work + p->k * p->dim), write_task, &w);
}
