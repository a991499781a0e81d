/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/kv/papers/papers.h"

#include <math.h>
#include <string.h>

dci_status papers_groups_open(papers_run *run, size_t dim, size_t max_groups, size_t max_tokens, papers_groups *out)
{
        *out = (papers_groups){.dim = dim, .max_groups = max_groups};
        out->offsets = papers_alloc(run, max_groups + 1, sizeof *out->offsets);
        out->tokens = papers_alloc(run, max_tokens, sizeof *out->tokens);
        out->low = papers_alloc(run, max_groups, dim * sizeof *out->low);
        out->high = papers_alloc(run, max_groups, dim * sizeof *out->high);
        out->mean = papers_alloc(run, max_groups, dim * sizeof *out->mean);
        out->radius = papers_alloc(run, max_groups, dim * sizeof *out->radius);
        out->scores = papers_alloc(run, max_groups, sizeof *out->scores);
        out->order = papers_alloc(run, max_groups, 2 * sizeof *out->order);
        return papers_memory(run);
}

/* --- forming them -------------------------------------------------------------------------------------------------------- */

void papers_groups_add(papers_groups *groups, const kvbench_trace *trace, const int32_t *tokens, size_t n)
{
        const size_t dim = groups->dim, g = groups->n_groups++;
        const size_t begin = (size_t)groups->offsets[g];
        double *low = groups->low + g * dim, *high = groups->high + g * dim, *mean = groups->mean + g * dim;
        double *radius = groups->radius + g * dim;
        memcpy(groups->tokens + begin, tokens, n * sizeof *tokens);
        groups->offsets[g + 1] = (int32_t)(begin + n);
        for (size_t j = 0; j < dim; j++) {
                double least = (double)INFINITY, most = -(double)INFINITY, sum = 0, away = 0;
                for (size_t i = 0; i < n; i++) {
                        const double x = (double)trace->key_rows[(size_t)tokens[i] * dim + j];
                        least = fmin(least, x);
                        most = fmax(most, x);
                        sum += x;
                }
                for (size_t i = 0; i < n; i++)
                        away += fabs((double)trace->key_rows[(size_t)tokens[i] * dim + j] - (least + most) / 2);
                low[j] = least;
                high[j] = most;
                mean[j] = sum / (double)n;
                radius[j] = away / (double)n;
        }
}

dci_status papers_groups_pages(papers_run *run, size_t first, size_t end, size_t page, papers_groups *out)
{
        const kvbench_trace *trace = run->trace;
        const size_t n = end - first;
        DCI_TRY(papers_groups_open(run, trace->keys.dim, (n + page - 1) / page, n > 0 ? n : 1, out));
        int32_t tokens[64];
        for (size_t begin = first; begin < end; begin += page) {
                const size_t n_page = end - begin < page ? end - begin : page;
                for (size_t i = 0; i < n_page; i++)
                        tokens[i] = (int32_t)(begin + i);
                papers_groups_add(out, trace, tokens, n_page);
        }
        return DCI_OK;
}

/* ClusterKV's: assigned by cosine, centroids are means of the keys as they are; the other two have means by themselves. */
static dci_status cluster(const papers_run *run, dci_metric metric, size_t first, size_t n, size_t n_clusters,
                          int32_t *offsets, int32_t *tokens)
{
        const kvbench_trace *trace = run->trace;
        dci_kmeans_config config;
        dci_kmeans_input input;
        dci_kmeans_result result;
        bench_progress progress;
        DCI_TRY(dci_kmeans_config_init(&config, sizeof config));
        DCI_TRY(dci_kmeans_input_init(&input, sizeof input));
        DCI_TRY(dci_kmeans_result_init(&result, sizeof result));
        config.dim = trace->keys.dim;
        config.n_clusters = n_clusters;
        config.metric = metric;
        config.seed = run->options->kv.seed;
        if (metric == DCI_METRIC_COSINE) {
                config.centroid = DCI_CENTROID_MEAN;
                config.zero_rows = DCI_ZERO_KEEP;
        }
        input.n = n;
        input.rows = trace->key_rows + first * trace->keys.dim;
        input.first_row = first;
        result.offsets = offsets;
        result.ids = tokens;
        bench_progress_begin(&progress, "k-means");
        const dci_progress callback = bench_progress_callback(&progress);
        const dci_status status = dci_kmeans(run->helper, &config, &input, &callback, &result);
        bench_progress_end(&progress);
        return status;
}

dci_status papers_groups_clusters(papers_run *run, dci_metric metric, size_t first, size_t end, size_t n_clusters,
                                  papers_groups *out)
{
        const size_t n = end - first;
        int32_t *offsets = papers_alloc(run, n_clusters + 1, sizeof *offsets);
        int32_t *tokens = papers_alloc(run, n, sizeof *tokens);
        DCI_TRY(papers_memory(run));
        DCI_TRY(cluster(run, metric, first, n, n_clusters, offsets, tokens));
        DCI_TRY(papers_groups_open(run, run->trace->keys.dim, n_clusters, n, out));
        for (size_t c = 0; c < n_clusters; c++) {
                const size_t begin = (size_t)offsets[c] - first, size = (size_t)(offsets[c + 1] - offsets[c]);
                if (size > 0)
                        papers_groups_add(out, run->trace, tokens + begin, size);
        }
        return DCI_OK;
}

/* --- choosing --------------------------------------------------------------------------------------------------------------- */

/* q . summary of one group. */
static double score_of(const papers_groups *groups, int32_t how, size_t g, const double *query,
                       const double *magnitudes)
{
        const size_t dim = groups->dim;
        const double *low = groups->low + g * dim, *high = groups->high + g * dim, *mean = groups->mean + g * dim;
        const double *radius = groups->radius + g * dim;
        double sum = 0;
        for (size_t j = 0; j < dim; j++)
                switch (how) {
                case PAPERS_MINMAX:
                        sum += fmax(query[j] * low[j], query[j] * high[j]);
                        break;
                case PAPERS_CUBOID:
                        sum += query[j] * (low[j] + high[j]) / 2 + magnitudes[j] * radius[j];
                        break;
                default:
                        sum += query[j] * mean[j];
                }
        return sum;
}

/* Merge sort of n numbers of groups by their scores, equal ones by lower number, which come first to begin with. */
static void sort_best_first(const double *scores, size_t *order, size_t n, size_t *room)
{
        for (size_t width = 1; width < n; width *= 2) {
                for (size_t begin = 0; begin < n; begin += 2 * width) {
                        const size_t middle = n - begin < width ? n : begin + width;
                        const size_t end = n - begin < 2 * width ? n : begin + 2 * width;
                        size_t i = begin, j = middle;
                        for (size_t at = begin; at < end; at++)
                                room[at] = i < middle && (j == end || scores[order[j]] <= scores[order[i]])
                                                   ? order[i++]
                                                   : order[j++];
                }
                memcpy(order, room, n * sizeof *order);
        }
}

void papers_groups_rank(papers_groups *groups, int32_t how, const double *query, const double *magnitudes)
{
        for (size_t g = 0; g < groups->n_groups; g++) {
                groups->scores[g] = score_of(groups, how, g, query, magnitudes);
                groups->order[g] = g;
        }
        sort_best_first(groups->scores, groups->order, groups->n_groups, groups->order + groups->max_groups);
}

size_t papers_groups_take(const papers_groups *groups, size_t budget, int32_t *out, size_t *out_n_groups)
{
        size_t n = 0, at = 0;
        for (; at < groups->n_groups && n < budget; at++) {
                const size_t g = groups->order[at], begin = (size_t)groups->offsets[g];
                const size_t size = (size_t)groups->offsets[g + 1] - begin, left = budget - n;
                const size_t taken = size < left ? size : left;
                memcpy(out + n, groups->tokens + begin, taken * sizeof *out);
                n += taken;
        }
        *out_n_groups = at;
        return n;
}
