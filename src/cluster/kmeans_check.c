/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Whether a result is one: for results that were made by other programs. */
#include "core/internal.h"

#include <string.h>

#include "cluster/kmeans_internal.h"

/* One problem of the result, and how many rows each cluster was seen to have. */
typedef struct checking {
        const dci_kmeans_config *config;
        const dci_kmeans_input *input;
        const dci_kmeans_result *result;
        size_t problem;
        int32_t *counts; /* n_clusters */
        uint8_t *seen;   /* n bits */
} checking;

static dci_status check_labels(const checking *c)
{
        const size_t n = c->input->n, k = c->config->n_clusters;
        const int64_t first = (int64_t)c->input->first_cluster;
        memset(c->counts, 0, k * sizeof *c->counts);
        for (size_t i = 0; i < n; i++) {
                const int64_t label = (int64_t)c->result->labels[c->problem * n + i] - first;
                if (label < 0 || label >= (int64_t)k)
                        return dci_fail(DCI_ERR_FORMAT, "problem %zu: label of row %zu is %lld, expected %lld to %lld",
                                        c->problem, i, (long long)(label + first), (long long)first,
                                        (long long)first + (long long)k - 1);
                c->counts[label]++;
        }
        return DCI_OK;
}

static dci_status check_offsets(const checking *c)
{
        const size_t k = c->config->n_clusters;
        const int32_t *offsets = c->result->offsets + c->problem * (k + 1);
        const int64_t first = (int64_t)c->input->first_row, end = first + (int64_t)c->input->n;
        if (offsets[0] != first || offsets[k] != end)
                return dci_fail(DCI_ERR_FORMAT, "problem %zu: offsets run from %d to %d, expected %lld to %lld",
                                c->problem, (int)offsets[0], (int)offsets[k], (long long)first, (long long)end);
        for (size_t i = 0; i < k; i++)
                if (offsets[i + 1] < offsets[i])
                        return dci_fail(DCI_ERR_FORMAT, "problem %zu: offset %zu is %d, less than %d before it",
                                        c->problem, i + 1, (int)offsets[i + 1], (int)offsets[i]);
        return DCI_OK;
}

/* What every cluster's size must be, by labels or else by offsets. */
static dci_status check_sizes(const checking *c)
{
        const size_t k = c->config->n_clusters;
        const int32_t *offsets = c->result->offsets == NULL ? NULL : c->result->offsets + c->problem * (k + 1);
        const int32_t *sizes = c->result->sizes == NULL ? NULL : c->result->sizes + c->problem * k;
        int64_t total = 0;
        for (size_t i = 0; i < k; i++) {
                int32_t size = -1;
                if (c->result->labels != NULL)
                        size = c->counts[i];
                else if (offsets != NULL)
                        size = offsets[i + 1] - offsets[i];
                else if (sizes != NULL)
                        size = sizes[i];
                if (size < 0 && sizes != NULL)
                        return dci_fail(DCI_ERR_FORMAT, "problem %zu: size of cluster %zu is %d, expected 0 or more",
                                        c->problem, i, (int)size);
                if (offsets != NULL && offsets[i + 1] - offsets[i] != size)
                        return dci_fail(DCI_ERR_FORMAT, "problem %zu: cluster %zu has %d rows by labels, %d by offsets",
                                        c->problem, i, (int)size, (int)(offsets[i + 1] - offsets[i]));
                if (sizes != NULL && sizes[i] != size)
                        return dci_fail(DCI_ERR_FORMAT, "problem %zu: size of cluster %zu is %d, expected %d",
                                        c->problem, i, (int)sizes[i], (int)size);
                if (c->config->capacity > 0 && size > 0 && (size_t)size > c->config->capacity)
                        return dci_fail(DCI_ERR_FORMAT, "problem %zu: cluster %zu has %d rows, its capacity is %zu",
                                        c->problem, i, (int)size, c->config->capacity);
                total += size;
        }
        if ((sizes != NULL || offsets != NULL || c->result->labels != NULL) && total != (int64_t)c->input->n)
                return dci_fail(DCI_ERR_FORMAT, "problem %zu: sizes add up to %lld, expected %zu", c->problem,
                                (long long)total, c->input->n);
        return DCI_OK;
}

static dci_status check_ids(const checking *c)
{
        const size_t n = c->input->n, k = c->config->n_clusters;
        const int64_t first = (int64_t)c->input->first_row;
        const int32_t *ids = c->result->ids + c->problem * n;
        const int32_t *offsets = c->result->offsets == NULL ? NULL : c->result->offsets + c->problem * (k + 1);
        const int32_t *labels = c->result->labels == NULL ? NULL : c->result->labels + c->problem * n;
        size_t cluster = 0;
        memset(c->seen, 0, (n + 7) / 8);
        for (size_t i = 0; i < n; i++) {
                const int64_t row = (int64_t)ids[i] - first;
                if (row < 0 || row >= (int64_t)n)
                        return dci_fail(DCI_ERR_FORMAT, "problem %zu: id %zu is %d, expected %lld to %lld", c->problem,
                                        i, (int)ids[i], (long long)first, (long long)(first + (int64_t)n - 1));
                if ((c->seen[row / 8] >> (row % 8) & 1) != 0)
                        return dci_fail(DCI_ERR_FORMAT, "problem %zu: id %d occurs twice, again at %zu", c->problem,
                                        (int)ids[i], i);
                c->seen[row / 8] = (uint8_t)(c->seen[row / 8] | 1u << (row % 8));
                if (offsets == NULL)
                        continue;
                const bool begins = (int64_t)offsets[cluster + 1] - first <= (int64_t)i || i == 0;
                while ((int64_t)offsets[cluster + 1] - first <= (int64_t)i)
                        cluster++;
                if (!begins && ids[i] <= ids[i - 1])
                        return dci_fail(DCI_ERR_FORMAT, "problem %zu: id %d follows %d within cluster %zu", c->problem,
                                        (int)ids[i], (int)ids[i - 1], cluster);
                if (labels != NULL && (int64_t)labels[row] - (int64_t)c->input->first_cluster != (int64_t)cluster)
                        return dci_fail(DCI_ERR_FORMAT, "problem %zu: id %d lies in cluster %zu, its label is %d",
                                        c->problem, (int)ids[i], cluster, (int)labels[row]);
        }
        return DCI_OK;
}

static dci_status check_centroids(const checking *c, const char *name, const float *rows, bool not_zero)
{
        const size_t k = c->config->n_clusters, dim = c->config->dim;
        for (size_t i = 0; i < k; i++) {
                const float *row = rows + (c->problem * k + i) * dim;
                double norm2 = 0.0;
                for (size_t j = 0; j < dim; j++)
                        norm2 += (double)row[j] * (double)row[j];
                if (!isfinite(norm2) || (not_zero && norm2 == 0.0))
                        return dci_fail(DCI_ERR_FORMAT, "problem %zu: %s %zu %s", c->problem, name, i,
                                        norm2 == 0.0 ? "is zero" : "holds NaN or infinity");
        }
        return DCI_OK;
}

static dci_status check_problem(const checking *c)
{
        DCI_TRY(c->result->labels == NULL ? DCI_OK : check_labels(c));
        if (c->result->offsets != NULL)
                DCI_TRY(check_offsets(c));
        DCI_TRY(check_sizes(c));
        if (c->result->ids != NULL)
                DCI_TRY(check_ids(c));
        if (c->result->centroids != NULL)
                DCI_TRY(check_centroids(c, "centroid", c->result->centroids, c->config->metric == DCI_METRIC_COSINE));
        if (c->result->means != NULL)
                DCI_TRY(check_centroids(c, "mean", c->result->means, false));
        return DCI_OK;
}

dci_status dci_kmeans_check(dci_context *context, const dci_kmeans_config *config, const dci_kmeans_input *input,
                            const dci_kmeans_result *result)
{
        dci_kmeans_config resolved;
        dci_kmeans_input checked;
        if (context == NULL)
                return dci_fail(DCI_ERR_INVALID, "context is NULL");
        DCI_TRY(dci_km_resolve(config, input, result, false, &resolved, &checked));
        const size_t n_bytes = (checked.n + 7) / 8;
        checking c = {.config = &resolved, .input = &checked, .result = result};
        c.counts = dci_alloc(context, resolved.n_clusters, sizeof *c.counts);
        c.seen = dci_alloc(context, n_bytes, 1);
        dci_status status = c.counts == NULL || c.seen == NULL ? DCI_ERR_MEMORY : DCI_OK;
        for (; c.problem < checked.n_problems && status == DCI_OK; c.problem++)
                status = check_problem(&c);
        dci_free(context, c.seen, n_bytes, 1);
        dci_free(context, c.counts, resolved.n_clusters, sizeof *c.counts);
        return status;
}
