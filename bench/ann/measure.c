/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/ann/ann.h"
#include "bench/common/report.h"

#include <string.h>

/* Builds are repeated for a median, but not for longer than this in all. */
#define BUILD_SECONDS 10.0
/* Least time of one measurement of the floor: short passes need many. */
#define FLOOR_SECONDS 0.05
/* Queries between two updates of the progress line, which are not timed. */
#define QUERIES_PER_LOOK 64

typedef struct bench_run {
        const ann_job *job;
        dci_index *indices[ANN_MAX_ARMS]; /* by the number of the arm */
        bench_spread build_s[ANN_MAX_ARMS];
        const void *stored; /* the rows as the indices store them */
        void *owned_stored; /* NULL: `stored` is the base itself */
        size_t stored_bytes;
        ann_row *rows; /* what takes turns in a round, with the floor */
        size_t n_rows;
        double *seconds; /* n_rows + 1 times `repeat`: of each row and last of the floor */
        int64_t *ids;    /* n_queries x k: what the last row searched found */
        float *scores;
        bench_progress progress;
} bench_run;

static double *seconds_of(const bench_run *run, size_t row)
{
        return run->seconds + row * run->job->options->repeat;
}

static dci_dtype rows_dtype(const ann_job *job)
{
        return job->options->index.rows != 0 ? job->options->index.rows : job->dataset->base.dtype;
}

/* --- what is measured ---------------------------------------------------------------------------------------------------- */

static size_t number_of(const ann_row *row)
{
        return (size_t)(row->arm - row->options->arms);
}

static ann_row row_of(const ann_job *job, const ann_arm *arm, int32_t mode)
{
        ann_row row = {.arm = arm, .rows = rows_dtype(job), .mode = mode, .k = job->k, .metric = job->metric};
        row.options = job->options;
        row.threads = dci_context_threads(job->context);
        row.n = job->dataset->base.n;
        row.dim = job->dataset->base.dim;
        row.n_queries = job->dataset->queries.n;
        row.share = -1;
        return row;
}

/* One row per arm, mode and effort; returns how many. With rows NULL only counts. */
static size_t list_rows(const ann_job *job, ann_row *rows)
{
        const ann_options *options = job->options;
        size_t n = 0;
        for (size_t a = 0; a < options->n_arms; a++) {
                const ann_arm *arm = &options->arms[a];
                const size_t n_efforts = ann_effort_count(options, arm);
                for (int32_t mode = BENCH_MODE_ONE; mode <= BENCH_MODE_BATCH; mode++) {
                        for (size_t e = 0; (options->mode & mode) != 0 && e < n_efforts; e++, n++) {
                                if (rows == NULL)
                                        continue;
                                rows[n] = row_of(job, arm, mode);
                                rows[n].effort = ann_effort_at(options, arm, e);
                        }
                }
        }
        return n;
}

/* --- building ------------------------------------------------------------------------------------------------------------ */

/* Creates, fills and, where asked for, fits. */
static dci_status make_index(const ann_job *job, const ann_arm *arm, const dci_progress *progress, dci_index **out)
{
        const bench_rows *base = &job->dataset->base;
        bench_index_options options = job->options->index;
        options.sketch_bits = arm->sketch_bits;
        dci_status status = bench_index_create(job->context, &options, arm->kind, job->metric, base->dim, base->dtype,
                                               job->dataset->queries.dtype, out);
        if (status == DCI_OK)
                status = dci_index_add(*out, base->n, base->data, base->dim, NULL, progress);
        if (status != DCI_OK)
                return bench_fail_about("base", status);
        if (arm->fitted)
                status = dci_index_fit(*out, job->fit->n, job->fit->data, job->fit->dim);
        return status == DCI_OK ? status : bench_fail_about("--fit", status);
}

static dci_status build_once(bench_run *run, size_t arm, double *out_seconds)
{
        const ann_job *job = run->job;
        dci_index_destroy(run->indices[arm]);
        run->indices[arm] = NULL;
        bench_progress_begin(&run->progress, "building");
        dci_progress callback = bench_progress_callback(&run->progress);
        double start = bench_seconds();
        dci_status status = make_index(job, &job->options->arms[arm], &callback, &run->indices[arm]);
        *out_seconds = bench_seconds() - start;
        bench_progress_end(&run->progress);
        return status;
}

/* Builds up to `repeat` times, the arms in turns, and keeps the last indices. */
static dci_status build(bench_run *run)
{
        const ann_options *options = run->job->options;
        double spent = 0;
        size_t n = 0;
        for (; n < options->repeat && (n == 0 || spent < BUILD_SECONDS); n++) {
                for (size_t a = 0; a < options->n_arms; a++) {
                        /* Borrowed: the rounds come later, and have at least a row for each arm. */
                        double *seconds = &seconds_of(run, a)[n];
                        dci_status status = build_once(run, a, seconds);
                        if (status != DCI_OK)
                                return status;
                        spent += *seconds;
                }
        }
        for (size_t a = 0; a < options->n_arms; a++)
                run->build_s[a] = bench_spread_of(seconds_of(run, a), n);
        return DCI_OK;
}

/* What the floor reads: the base itself when it is stored as it came, else a copy as the indices, of which the first is of
 * exact search, store it. */
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
                status = dci_index_reconstruct(run->indices[0], base->n, ids, run->owned_stored, base->dim);
        dci_free(context, ids, base->n, sizeof *ids);
        run->stored = run->owned_stored;
        return status;
}

/* --- searching ------------------------------------------------------------------------------------------------------------ */

/* Where every row is a candidate, every row is looked at, although most of a batch is ranked by cheaper arithmetic and never
 * scored. Below that, whatever is scored was a candidate; where codes rank, only what they leave is one, and rows that they
 * rank are not counted. */
static uint64_t distances_of(const dci_search_stats *stats)
{
        return stats->candidates == stats->visited ? stats->visited : stats->distances;
}

/* Searches for n queries in one call; the k ids of a query, or of a group's union, stand where its number says. */
static dci_status call(bench_run *run, const ann_row *row, size_t first, size_t n, const dci_search_params *params)
{
        const size_t k = run->job->k, group = run->job->options->group;
        const bench_rows *queries = &run->job->dataset->queries;
        const dci_index *index = run->indices[number_of(row)];
        const void *data = (const char *)queries->data + first * queries->dim * dci_dtype_size(queries->dtype);
        if (group == 0)
                return dci_index_search(index, n, data, queries->dim, k, params, run->ids + first * k,
                                        run->scores + first * k);
        const bool as_union = run->job->options->group_union;
        const size_t list = as_union ? first / group : first;
        return dci_index_search_group(index, n / group, group, data, queries->dim, k,
                                      as_union ? DCI_GROUP_UNION : DCI_GROUP_EACH, params, run->ids + list * k,
                                      run->scores + list * k);
}

static dci_status search(bench_run *run, ann_row *row, double *out_seconds)
{
        const bench_rows *queries = &run->job->dataset->queries;
        const size_t unit = run->job->options->group > 0 ? run->job->options->group : 1;
        const size_t per_call = row->mode == BENCH_MODE_ONE ? unit : queries->n;
        const size_t per_look = row->mode == BENCH_MODE_ONE ? unit * QUERIES_PER_LOOK : queries->n;
        uint64_t distances = 0, candidates = 0, proposed = 0;
        dci_search_params params;
        dci_search_stats stats;
        bench_effort_params(&row->effort, &params);
        dci_search_stats_init(&stats, sizeof stats);
        params.stats = &stats;
        *out_seconds = 0;
        for (size_t first = 0; first < queries->n; first += per_look) {
                size_t last = queries->n - first < per_look ? queries->n : first + per_look;
                double start = bench_seconds();
                for (size_t i = first; i < last; i += per_call) {
                        dci_status status = call(run, row, i, per_call, &params);
                        if (status != DCI_OK)
                                return bench_fail_about("queries", status);
                        distances += distances_of(&stats);
                        candidates += stats.candidates;
                        proposed += stats.proposed;
                }
                *out_seconds += bench_seconds() - start;
                bench_progress_step(&run->progress, last, queries->n);
        }
        row->dist_comps = (double)distances / (double)queries->n;
        row->candidates = (double)candidates / (double)queries->n;
        row->proposed = (double)proposed / (double)queries->n;
        return DCI_OK;
}

/* One turn of one row. Round 0 warms up and is where the answers are judged: later rounds give the same. */
static dci_status take_turn(bench_run *run, size_t number, size_t round)
{
        const ann_job *job = run->job;
        ann_row *row = &run->rows[number];
        char label[64];
        snprintf(label, sizeof label, "searching, round %zu of %zu,", round, job->options->repeat);
        bench_progress_begin(&run->progress, round > 0 ? label : "searching, warming up,");
        dci_status status = search(run, row, &seconds_of(run, number)[round > 0 ? round - 1 : 0]);
        bench_progress_end(&run->progress);
        return status == DCI_OK && round == 0 ? ann_judge(job, run->ids, row) : status;
}

/* All take turns, so that a slow spell of the machine hits all of them. */
static dci_status measure_rounds(bench_run *run)
{
        for (size_t round = 0; round <= run->job->options->repeat; round++) {
                seconds_of(run, run->n_rows)[round > 0 ? round - 1 : 0] =
                        bench_read_floor(run->stored, run->stored_bytes, FLOOR_SECONDS);
                for (size_t i = 0; i < run->n_rows; i++)
                        DCI_TRY(take_turn(run, i, round));
        }
        return DCI_OK;
}

/* --- the run -------------------------------------------------------------------------------------------------------------- */

/* Queries per second from seconds per n: the fastest round is the highest rate. */
static bench_spread rate_of(bench_spread seconds, double n)
{
        const double tick = 1e-9; /* of the clock: nothing is faster */
        bench_spread rate = {n / (seconds.median > tick ? seconds.median : tick),
                             n / (seconds.max > tick ? seconds.max : tick),
                             n / (seconds.min > tick ? seconds.min : tick)};
        return rate;
}

static dci_status fill_times(bench_run *run)
{
        const size_t repeat = run->job->options->repeat;
        const double floor_qps = rate_of(bench_spread_of(seconds_of(run, run->n_rows), repeat), 1).median;
        for (size_t i = 0; i < run->n_rows; i++) {
                ann_row *row = &run->rows[i];
                dci_memory_report memory;
                dci_index_config config;
                dci_memory_report_init(&memory, sizeof memory);
                dci_index_config_init(&config, sizeof config);
                DCI_TRY(dci_index_memory(run->indices[number_of(row)], &memory));
                DCI_TRY(dci_index_get_config(run->indices[number_of(row)], &config));
                row->used = config.kind;
                row->used_bits = config.sketch_bits;
                row->bytes = memory.total;
                row->tree = bench_tree_of(run->indices[number_of(row)]);
                row->build_s = run->build_s[number_of(row)];
                row->qps = rate_of(bench_spread_of(seconds_of(run, i), repeat), (double)row->n_queries);
                row->read_floor_qps = floor_qps;
        }
        return DCI_OK;
}

static dci_status run_open(const ann_job *job, bench_run *run)
{
        size_t n_queries = job->dataset->queries.n;
        memset(run, 0, sizeof *run);
        run->job = job;
        run->n_rows = list_rows(job, NULL);
        run->rows = dci_alloc(job->context, run->n_rows, sizeof *run->rows);
        run->seconds = dci_alloc(job->context, run->n_rows + 1, job->options->repeat * sizeof *run->seconds);
        run->ids = dci_alloc(job->context, n_queries, job->k * sizeof *run->ids);
        run->scores = dci_alloc(job->context, n_queries, job->k * sizeof *run->scores);
        if (run->rows == NULL || run->seconds == NULL || run->ids == NULL || run->scores == NULL)
                return DCI_ERR_MEMORY;
        list_rows(job, run->rows);
        return DCI_OK;
}

/* All but the rows. */
static void run_close(bench_run *run)
{
        const ann_job *job = run->job;
        size_t n_queries = job->dataset->queries.n;
        for (size_t a = 0; a < job->options->n_arms; a++)
                dci_index_destroy(run->indices[a]);
        dci_free(job->context, run->owned_stored, run->stored_bytes, 1);
        dci_free(job->context, run->scores, n_queries, job->k * sizeof *run->scores);
        dci_free(job->context, run->ids, n_queries, job->k * sizeof *run->ids);
        dci_free(job->context, run->seconds, run->n_rows + 1, job->options->repeat * sizeof *run->seconds);
}

dci_status ann_measure(const ann_job *job, ann_row **out_rows, size_t *out_n_rows)
{
        bench_run run;
        *out_rows = NULL;
        *out_n_rows = 0;
        dci_status status = run_open(job, &run);
        if (status == DCI_OK)
                status = build(&run);
        if (status == DCI_OK)
                status = fetch_stored(&run);
        if (status == DCI_OK)
                status = measure_rounds(&run);
        if (status == DCI_OK)
                status = fill_times(&run);
        run_close(&run);
        if (status != DCI_OK) {
                dci_free(job->context, run.rows, run.n_rows, sizeof *run.rows);
                return status;
        }
        *out_rows = run.rows;
        *out_n_rows = run.n_rows;
        return DCI_OK;
}
