/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/ann.h"

#include <string.h>

/* Builds are repeated for a median, but not for longer than this in all. */
#define BUILD_SECONDS 10.0
/* Least time of one measurement of the floor: short passes need many. */
#define FLOOR_SECONDS 0.05
/* Queries between two looks at the progress line; the clock stands still meanwhile. */
#define QUERIES_PER_LOOK 64

/* The arms of a round. */
enum { ARM_FLOOR, ARM_ONE, ARM_BATCH, N_ARMS };

typedef struct bench_run {
        const ann_job *job;
        dci_index *index;
        const void *stored; /* the rows as the index stores them */
        void *owned_stored; /* NULL: `stored` is the base itself */
        size_t stored_bytes;
        int64_t *ids[N_ARMS]; /* n_queries x k, for the arms that search */
        float *scores;
        double *seconds[N_ARMS]; /* one value per round */
        uint64_t visited[N_ARMS];
        bench_progress progress;
} bench_run;

static bool arm_runs(const ann_options *options, int arm)
{
        return arm == ARM_FLOOR || (arm == ARM_ONE && (options->mode & ANN_MODE_ONE) != 0) ||
               (arm == ARM_BATCH && (options->mode & ANN_MODE_BATCH) != 0);
}

static dci_dtype rows_dtype(const ann_job *job)
{
        return job->options->rows != 0 ? job->options->rows : job->dataset->base.dtype;
}

static dci_status build_once(bench_run *run, double *out_seconds)
{
        const ann_job *job = run->job;
        const bench_rows *base = &job->dataset->base;
        dci_index_config config;
        dci_status status = dci_index_config_init(&config, sizeof config);
        if (status != DCI_OK)
                return status;
        config.dim = base->dim;
        config.kind = job->options->kind;
        config.metric = job->metric;
        config.dtype = rows_dtype(job);
        config.add_dtype = base->dtype;
        config.query_dtype = job->dataset->queries.dtype;
        config.zero_rows = DCI_ZERO_KEEP;
        bench_progress_begin(&run->progress, "building");
        dci_progress callback = bench_progress_callback(&run->progress);
        double start = bench_seconds();
        status = dci_index_create(job->context, &config, &run->index);
        if (status == DCI_OK)
                status = dci_index_add(run->index, base->n, base->data, base->dim, NULL, &callback);
        *out_seconds = bench_seconds() - start;
        bench_progress_end(&run->progress);
        return status == DCI_OK ? status : bench_fail_about("base", status);
}

/* Builds up to `repeat` times and keeps the last index. */
static dci_status build(bench_run *run, bench_spread *out_seconds)
{
        double *seconds = run->seconds[ARM_FLOOR], spent = 0; /* borrowed: the rounds come later */
        size_t n = 0;
        while (n < run->job->options->repeat && (n == 0 || spent < BUILD_SECONDS)) {
                dci_index_destroy(run->index);
                run->index = NULL;
                dci_status status = build_once(run, &seconds[n]);
                if (status != DCI_OK)
                        return status;
                spent += seconds[n++];
        }
        *out_seconds = bench_spread_of(seconds, n);
        return DCI_OK;
}

/* What the floor reads: the base itself when it is stored as it came, else a copy as the index stores it. */
static dci_status fetch_stored(bench_run *run)
{
        const bench_rows *base = &run->job->dataset->base;
        dci_context *context = run->job->context;
        dci_dtype dtype = rows_dtype(run->job);
        run->stored_bytes = base->n * base->dim * dci_dtype_size(dtype);
        run->stored = base->data;
        if (dtype == base->dtype)
                return DCI_OK;
        int64_t *ids = dci_alloc(context, base->n, sizeof *ids);
        run->owned_stored = dci_alloc(context, run->stored_bytes, 1);
        dci_status status = ids != NULL && run->owned_stored != NULL ? DCI_OK : DCI_ERR_MEMORY;
        for (size_t i = 0; status == DCI_OK && i < base->n; i++)
                ids[i] = (int64_t)i;
        if (status == DCI_OK)
                status = dci_index_reconstruct(run->index, base->n, ids, run->owned_stored, base->dim);
        dci_free(context, ids, base->n, sizeof *ids);
        run->stored = run->owned_stored;
        return status;
}

static dci_status search_one(bench_run *run, double *out_seconds)
{
        const bench_rows *queries = &run->job->dataset->queries;
        size_t k = run->job->k, row_bytes = queries->dim * dci_dtype_size(queries->dtype);
        dci_search_params params;
        dci_search_stats stats;
        dci_search_params_init(&params, sizeof params);
        dci_search_stats_init(&stats, sizeof stats);
        params.stats = &stats;
        run->visited[ARM_ONE] = 0;
        *out_seconds = 0;
        for (size_t first = 0; first < queries->n; first += QUERIES_PER_LOOK) {
                size_t last = queries->n - first < QUERIES_PER_LOOK ? queries->n : first + QUERIES_PER_LOOK;
                double start = bench_seconds();
                for (size_t i = first; i < last; i++) {
                        dci_status status = dci_index_search(run->index, 1, (const char *)queries->data + i * row_bytes,
                                                             queries->dim, k, &params, run->ids[ARM_ONE] + i * k,
                                                             run->scores + i * k);
                        if (status != DCI_OK)
                                return bench_fail_about("queries", status);
                        run->visited[ARM_ONE] += stats.visited;
                }
                *out_seconds += bench_seconds() - start;
                bench_progress_step(&run->progress, last, queries->n);
        }
        return DCI_OK;
}

static dci_status search_batch(bench_run *run, double *out_seconds)
{
        const bench_rows *queries = &run->job->dataset->queries;
        dci_search_params params;
        dci_search_stats stats;
        dci_search_params_init(&params, sizeof params);
        dci_search_stats_init(&stats, sizeof stats);
        params.stats = &stats;
        double start = bench_seconds();
        dci_status status = dci_index_search(run->index, queries->n, queries->data, queries->dim, run->job->k, &params,
                                             run->ids[ARM_BATCH], run->scores);
        *out_seconds = bench_seconds() - start;
        run->visited[ARM_BATCH] = stats.visited;
        return status == DCI_OK ? status : bench_fail_about("queries", status);
}

/* The rounds: round 0 warms up. The arms take turns, so that a slow spell of the machine hits all of them. */
static dci_status measure_rounds(bench_run *run)
{
        const ann_options *options = run->job->options;
        dci_status status = DCI_OK;
        for (size_t round = 0; status == DCI_OK && round <= options->repeat; round++) {
                size_t slot = round > 0 ? round - 1 : 0;
                for (int arm = 0; status == DCI_OK && arm < N_ARMS; arm++) {
                        char label[64];
                        if (!arm_runs(options, arm))
                                continue;
                        snprintf(label, sizeof label, "searching, round %zu of %zu,", round, options->repeat);
                        bench_progress_begin(&run->progress, round > 0 ? label : "searching, warming up,");
                        if (arm == ARM_FLOOR)
                                run->seconds[arm][slot] =
                                        bench_read_floor(run->stored, run->stored_bytes, FLOOR_SECONDS);
                        else if (arm == ARM_ONE)
                                status = search_one(run, &run->seconds[arm][slot]);
                        else
                                status = search_batch(run, &run->seconds[arm][slot]);
                        bench_progress_end(&run->progress);
                }
        }
        return status;
}

/* Share of the true neighbours among the returned ids, see BENCH_RECALL_TOLERANCE. */
static dci_status recall_of(const ann_job *job, const int64_t *ids, double *out_recall)
{
        const bench_dataset *data = job->dataset;
        const bench_truth *truth = job->truth;
        dci_context *context = job->context;
        size_t dim = data->base.dim, found = 0;
        int64_t *distinct = dci_alloc(context, job->k, sizeof *distinct);
        double *rows = dci_alloc(context, 2, dim * sizeof *rows);
        bool enough = distinct != NULL && rows != NULL;
        for (size_t i = 0; enough && i < truth->n_queries; i++) {
                double limit =
                        bench_key_limit(job->metric, truth->scores[(i + 1) * truth->k - 1], BENCH_RECALL_TOLERANCE);
                size_t n = bench_distinct(ids + i * job->k, job->k, distinct), good = 0;
                bench_row_to_double(&data->queries, i, rows);
                for (size_t j = 0; j < n && (uint64_t)distinct[j] < data->base.n; j++) {
                        bench_row_to_double(&data->base, (size_t)distinct[j], rows + dim);
                        good += bench_key(job->metric, bench_score(job->metric, rows, rows + dim, dim)) <= limit;
                }
                found += good;
        }
        dci_free(context, distinct, job->k, sizeof *distinct);
        dci_free(context, rows, 2, dim * sizeof *rows);
        *out_recall = (double)found / ((double)truth->n_queries * (double)truth->k);
        return enough ? DCI_OK : DCI_ERR_MEMORY;
}

/* Queries per second from seconds per n: the fastest round is the highest rate. */
static bench_spread rate_of(bench_spread seconds, double n)
{
        const double tick = 1e-9; /* of the clock: nothing is faster */
        bench_spread rate = {n / (seconds.median > tick ? seconds.median : tick),
                             n / (seconds.max > tick ? seconds.max : tick),
                             n / (seconds.min > tick ? seconds.min : tick)};
        return rate;
}

static dci_status fill_row(bench_run *run, int arm, ann_row *row)
{
        const ann_job *job = run->job;
        size_t repeat = job->options->repeat, n_queries = job->dataset->queries.n;
        dci_memory_report memory;
        dci_memory_report_init(&memory, sizeof memory);
        dci_status status = dci_index_memory(run->index, &memory);
        if (status == DCI_OK)
                status = recall_of(job, run->ids[arm], &row->recall);
        row->share = -1;
        if (status == DCI_OK && job->share != NULL)
                status = bench_share_of(job->share, job->dataset, run->ids[arm], job->k, &row->share);
        row->kind = job->options->kind;
        row->rows = rows_dtype(job);
        row->mode = arm == ARM_ONE ? ANN_MODE_ONE : ANN_MODE_BATCH;
        row->threads = dci_context_threads(job->context);
        row->n = job->dataset->base.n;
        row->dim = job->dataset->base.dim;
        row->k = job->k;
        row->n_queries = n_queries;
        row->metric = job->metric;
        row->qps = rate_of(bench_spread_of(run->seconds[arm], repeat), (double)n_queries);
        row->read_floor_qps = rate_of(bench_spread_of(run->seconds[ARM_FLOOR], repeat), 1).median;
        row->dist_comps = (double)run->visited[arm] / (double)n_queries;
        row->bytes = memory.total;
        return status;
}

static dci_status run_open(const ann_job *job, bench_run *run)
{
        size_t n_queries = job->dataset->queries.n, repeat = job->options->repeat;
        memset(run, 0, sizeof *run);
        run->job = job;
        run->scores = dci_alloc(job->context, n_queries, job->k * sizeof *run->scores);
        bool enough = run->scores != NULL;
        for (int arm = 0; arm < N_ARMS; arm++) {
                run->seconds[arm] = dci_alloc(job->context, repeat, sizeof *run->seconds[arm]);
                enough = enough && run->seconds[arm] != NULL;
                if (arm == ARM_FLOOR || !arm_runs(job->options, arm))
                        continue;
                run->ids[arm] = dci_alloc(job->context, n_queries, job->k * sizeof *run->ids[arm]);
                enough = enough && run->ids[arm] != NULL;
        }
        return enough ? DCI_OK : DCI_ERR_MEMORY;
}

static void run_close(bench_run *run)
{
        const ann_job *job = run->job;
        size_t n_queries = job->dataset->queries.n;
        dci_index_destroy(run->index);
        dci_free(job->context, run->owned_stored, run->stored_bytes, 1);
        dci_free(job->context, run->scores, n_queries, job->k * sizeof *run->scores);
        for (int arm = 0; arm < N_ARMS; arm++) {
                dci_free(job->context, run->seconds[arm], job->options->repeat, sizeof *run->seconds[arm]);
                dci_free(job->context, run->ids[arm], n_queries, job->k * sizeof *run->ids[arm]);
        }
}

dci_status ann_measure(const ann_job *job, ann_row rows[2], size_t *out_n_rows)
{
        bench_run run;
        bench_spread build_s = {0, 0, 0};
        *out_n_rows = 0;
        dci_status status = run_open(job, &run);
        if (status == DCI_OK)
                status = build(&run, &build_s);
        if (status == DCI_OK)
                status = fetch_stored(&run);
        if (status == DCI_OK)
                status = measure_rounds(&run);
        for (int arm = ARM_ONE; status == DCI_OK && arm < N_ARMS; arm++) {
                if (!arm_runs(job->options, arm))
                        continue;
                ann_row *row = &rows[(*out_n_rows)++];
                memset(row, 0, sizeof *row);
                row->build_s = build_s;
                status = fill_row(&run, arm, row);
        }
        run_close(&run);
        return status;
}
