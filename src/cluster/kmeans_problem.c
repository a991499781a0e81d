/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The memory of a problem, its threads and its clock. */
#include "core/internal.h"

#include <string.h>
#include <time.h>

#include "cluster/kmeans_internal.h"

/* One part of the memory: where its pointer goes, and how large it is. */
typedef struct part {
        void **pointer;
        size_t count, size;
} part;

/* Takes lines for a part from *at on; false on overflow. memory NULL: only counts. */
static bool take(unsigned char *memory, size_t *at, part p)
{
        size_t bytes = 0, end = 0;
        if (!dci_mul(p.count, p.size, &bytes) || !dci_add(bytes, DCI_CACHE_LINE, &end) || !dci_add(*at, end, &end))
                return false;
        *p.pointer = memory == NULL || p.count == 0 ? NULL : memory + *at;
        *at += dci_lines(bytes);
        return true;
}

static bool take_workers(km_problem *p, size_t n_workers, unsigned char *memory, size_t *at)
{
        const size_t wide = p->input->value_dim > p->dim ? p->input->value_dim : p->dim;
        const size_t nearest = dci_nearest_scratch_bytes(p->context, p->dim);
        bool fits = take(memory, at, (part){(void **)&p->workers, n_workers, sizeof *p->workers});
        for (size_t w = 0; w < n_workers && fits; w++) {
                km_worker none = {0}, *worker = memory == NULL ? &none : &p->workers[w];
                fits = take(memory, at, (part){&worker->nearest, nearest, 1}) &&
                       take(memory, at, (part){(void **)&worker->pointers, KM_TASK_ROWS, sizeof *worker->pointers}) &&
                       take(memory, at, (part){(void **)&worker->sum, wide, sizeof *worker->sum}) &&
                       take(memory, at, (part){(void **)&worker->row, wide, sizeof *worker->row}) &&
                       take(memory, at, (part){(void **)&worker->total, wide, sizeof *worker->total}) &&
                       take(memory, at, (part){(void **)&worker->other, p->limit > 0 ? p->dim : 0, sizeof(float)}) &&
                       take(memory, at,
                            (part){(void **)&worker->gathered, p->limit > 0 ? KM_TASK_ROWS * p->dim : 0,
                                   sizeof(float)});
        }
        return fits;
}

static bool take_all(km_problem *p, size_t n_workers, unsigned char *memory, size_t *out_bytes)
{
        const dci_kmeans_config *config = p->config;
        const size_t n = p->n, dim = p->dim, k = p->k, tasks = p->n_tasks;
        const bool raw = config->metric == DCI_METRIC_COSINE && config->centroid == DCI_CENTROID_MEAN;
        const size_t redo = config->n_redo > 1;
        size_t row_floats = 0, centroid_floats = 0, sums = 0, ignored, at = 0;
        void *packed = NULL;
        /* The sizes that dci_nearest asks for are not checked there. 64 bits hold any; 32 bits, where there is no AMX,
         * those of rows for which four floats an element still fit. */
        if (!dci_mul(n, dim, &row_floats) || !dci_mul(row_floats, 4 * sizeof(float), &ignored) ||
            !dci_mul(k, dim, &centroid_floats) || !dci_mul(tasks, dim, &sums))
                return false;
        const part parts[] = {{(void **)&p->points, row_floats, sizeof(float)},
                              {(void **)&p->own, n, sizeof(float)},
                              {(void **)&p->mean, dim, sizeof(float)},
                              {(void **)&p->middle, dim, sizeof(float)},
                              {(void **)&p->task_sums, config->subtract_mean == DCI_MEAN_OWN ? sums : 0, sizeof(float)},
                              {(void **)&p->task_value, tasks, sizeof(double)},
                              {(void **)&p->block_norm2,
                               config->metric == DCI_METRIC_L2 ? n / DCI_NEAREST_BLOCK + 1 : 0, sizeof(double)},
                              {(void **)&p->task_count, tasks, sizeof(size_t)},
                              {(void **)&p->task_bad, tasks, sizeof(size_t)},
                              {&packed, dci_nearest_points_bytes(p->context, n, dim), 1},
                              {(void **)&p->centroids, centroid_floats, sizeof(float)},
                              {(void **)&p->raw, raw ? centroid_floats : 0, sizeof(float)},
                              {(void **)&p->wishes, p->limit > 0 ? n : 0, sizeof(km_wish)},
                              {(void **)&p->sizes, p->limit > 0 ? k : 0, sizeof(int32_t)},
                              {&p->nearest_memory, dci_nearest_bytes(p->context, k, dim), 1},
                              {(void **)&p->labels, n, sizeof(int32_t)},
                              {(void **)&p->row_scratch, n, sizeof(float)},
                              {(void **)&p->next, centroid_floats, sizeof(float)},
                              {(void **)&p->next_raw, raw ? centroid_floats : 0, sizeof(float)},
                              {(void **)&p->cluster_value, k, sizeof(double)},
                              {(void **)&p->order, n, sizeof(int32_t)},
                              {(void **)&p->starts, k + 1, sizeof(int32_t)},
                              {(void **)&p->fits, n, sizeof(km_fit)},
                              {(void **)&p->best_centroids, redo * centroid_floats, sizeof(float)},
                              {(void **)&p->best_raw, raw ? redo * centroid_floats : 0, sizeof(float)},
                              {(void **)&p->best_labels, redo * n, sizeof(int32_t)},
                              {(void **)&p->rounds, p->rounds_room, sizeof(dci_kmeans_round)},
                              {(void **)&p->best_rounds, redo * p->rounds_room, sizeof(dci_kmeans_round)}};
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
                if (!take(memory, &at, parts[i]))
                        return false;
        if (!take_workers(p, n_workers, memory, &at))
                return false;
        if (memory != NULL)
                dci_nearest_points_init(p->context, p->points, dim, n, dim, packed, &p->packed);
        *out_bytes = at;
        return true;
}

/* With a capacity, clusters of the rounds before too full ones are divided: about as many as become k by that. Measured
 * on attention keys (docs/clustering.md): with slack f = k capacity / n, 0.68 k at f = 1.48, 0.76 k at 1.6, nearly all
 * at 2.3. */
static size_t first_clusters(const km_problem *p)
{
        if (p->limit == 0 || p->config->init == DCI_KMEANS_INIT_GIVEN || p->config->n_iter == 0)
                return p->k;
        const double slack = (double)p->k * (double)p->limit / (double)p->n;
        const double share = fmin(1.0, fmax(0.33, 0.68 + 0.66 * (slack - 1.48)));
        const size_t k = (size_t)(share * (double)p->k + 0.5);
        return k > 0 ? k : 1;
}

static void begin(dci_context *context, const dci_kmeans_config *config, const dci_kmeans_input *input,
                  size_t n_workers, size_t rounds_room, km_problem *out)
{
        *out = (km_problem){.context = context, .config = config, .input = input, .kernels = context->kernels};
        out->n = input->n;
        out->dim = config->dim;
        out->k = config->n_clusters;
        out->n_tasks = dci_km_tasks(input->n);
        out->n_workers = n_workers;
        out->rounds_room = rounds_room;
        out->limit = config->capacity < input->n ? config->capacity : 0;
        out->k_first = first_clusters(out);
}

bool dci_km_bytes(dci_context *context, const dci_kmeans_config *config, const dci_kmeans_input *input,
                  size_t n_workers, size_t rounds_room, size_t *out_bytes)
{
        km_problem sizes;
        begin(context, config, input, n_workers, rounds_room, &sizes);
        return take_all(&sizes, n_workers, NULL, out_bytes);
}

void dci_km_lay_out(dci_context *context, const dci_kmeans_config *config, const dci_kmeans_input *input,
                    size_t n_workers, size_t rounds_room, void *memory, km_problem *out)
{
        size_t ignored;
        begin(context, config, input, n_workers, rounds_room, out);
        take_all(out, n_workers, memory, &ignored);
}

/* The caller's progress counts rounds, while regions count tasks: within a round it gets the same numbers again, and
 * may cancel. */
static int32_t same_again(void *ctx, size_t done, size_t total)
{
        const km_problem *problem = ctx;
        (void)done;
        (void)total;
        return problem->progress->fn(problem->progress->ctx, problem->rounds_done, problem->rounds_total);
}

dci_status dci_km_for(km_problem *problem, size_t n_tasks, size_t work, dci_task_fn fn, void *arg)
{
        size_t n_workers = problem->alone ? 1 : dci_workers_for(problem->context, n_tasks, work);
        if (n_workers > problem->n_workers) /* the limit may have been raised since */
                n_workers = problem->n_workers;
        const bool reports = problem->progress != NULL && problem->progress->fn != NULL;
        const dci_progress progress = {problem, same_again};
        if (n_workers > 1 || reports) {
                dci_region region = {problem->context,           n_tasks, n_workers, fn, arg,
                                     reports ? &progress : NULL, n_tasks, NULL};
                return dci_parallel(&region);
        }
        for (size_t task = 0; task < n_tasks; task++)
                fn(arg, task, 0);
        return DCI_OK;
}

double dci_km_seconds(void)
{
        struct timespec now = {0, 0};
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

dci_status dci_km_report_progress(km_problem *problem, size_t rounds_done)
{
        const dci_progress *progress = problem->progress;
        problem->rounds_done = rounds_done < problem->rounds_total ? rounds_done : problem->rounds_total;
        if (progress != NULL && progress->fn != NULL &&
            progress->fn(progress->ctx, problem->rounds_done, problem->rounds_total) != 0)
                return dci_fail(DCI_ERR_CANCELLED, "cancelled after %zu of %zu rounds", problem->rounds_done,
                                problem->rounds_total);
        return DCI_OK;
}
