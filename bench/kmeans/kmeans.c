/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/kmeans/kmeans.h"

#include <string.h>

#include "simd/convert.h"

/* One number of clusters on one number of threads. */
typedef struct kmeans_arm {
        size_t clusters, threads;
        dci_context *context; /* one for all arms with this number of threads */
        double *seconds;      /* --rounds */
        bench_spread spread;
        dci_kmeans_report report; /* without its rounds; those are in the JSON */
        json_t *json;             /* of the fastest call */
        double fastest;
} kmeans_arm;

typedef struct kmeans_state {
        kmeans_options options;
        dci_context *helper; /* all CPUs: reading is not measured */
        dci_context *contexts[BENCH_MAX_SHARES];
        bench_rows base, start;
        char name[256];
        kmeans_arm *arms;
        double *seconds; /* n_arms x --rounds */
        size_t n_arms;
} kmeans_state;

/* --- one call ---------------------------------------------------------------------------------------------------------- */

dci_status kmeans_context(const kmeans_options *o, size_t n_threads, dci_context **out)
{
        const bench_index_options like = {.isa = o->isa};
        return bench_context(&like, n_threads, out);
}

static dci_status fill_config(const kmeans_options *o, const bench_rows *rows, size_t n_clusters, size_t capacity,
                              dci_kmeans_config *c)
{
        dci_status status = dci_kmeans_config_init(c, sizeof *c);
        if (status != DCI_OK)
                return status;
        c->dim = rows->dim;
        c->n_clusters = n_clusters;
        c->metric = o->metric;
        c->dtype = rows->dtype;
        c->init = o->init;
        c->centroid = o->centroid;
        c->zero_rows = o->metric == DCI_METRIC_COSINE ? DCI_ZERO_KEEP : DCI_ZERO_REFUSE;
        c->subtract_mean = o->subtract_mean ? DCI_MEAN_OWN : DCI_MEAN_NONE;
        c->n_iter = o->iter;
        c->tolerance = o->tolerance;
        c->n_redo = o->redo;
        c->seed = o->seed;
        c->capacity = capacity;
        c->segment_rows = o->segment_rows;
        c->n_iter_global = o->iter_global;
        return DCI_OK;
}

dci_status kmeans_call_open(dci_context *helper, const kmeans_options *o, const bench_rows *rows, size_t n_clusters,
                            size_t capacity, bool lists, kmeans_call *out)
{
        const size_t n = rows->n;
        memset(out, 0, sizeof *out);
        out->helper = helper;
        out->rows = rows;
        out->lists = lists;
        DCI_TRY(fill_config(o, rows, n_clusters, capacity, &out->config));
        DCI_TRY(dci_kmeans_report_init(&out->report, sizeof out->report));
        /* The library says so, too, but after more memory was asked for. */
        if (n_clusters > n)
                return dci_fail(DCI_ERR_INVALID, "--clusters %zu: there are only %zu rows", n_clusters, n);
        out->rounds_room = (o->iter > o->iter_global ? o->iter : o->iter_global) + 1;
        out->labels = dci_alloc(helper, n, sizeof *out->labels);
        out->centroids = dci_alloc(helper, n_clusters, rows->dim * sizeof *out->centroids);
        out->report.rounds = dci_alloc(helper, out->rounds_room, sizeof *out->report.rounds);
        out->report.rounds_room = out->rounds_room;
        bool enough = out->labels != NULL && out->centroids != NULL && out->report.rounds != NULL;
        if (enough && lists) {
                out->offsets = dci_alloc(helper, n_clusters + 1, sizeof *out->offsets);
                out->ids = dci_alloc(helper, n, sizeof *out->ids);
                enough = out->offsets != NULL && out->ids != NULL;
        }
        if (!enough)
                return DCI_ERR_MEMORY;
        /* The first touch of a page is the system's time, not the call's. */
        memset(out->labels, 0, n * sizeof *out->labels);
        memset(out->centroids, 0, n_clusters * rows->dim * sizeof *out->centroids);
        return DCI_OK;
}

void kmeans_call_close(kmeans_call *call)
{
        if (call->rows == NULL)
                return;
        const size_t n = call->rows->n, k = call->config.n_clusters;
        dci_free(call->helper, call->labels, n, sizeof *call->labels);
        dci_free(call->helper, call->centroids, k, call->config.dim * sizeof *call->centroids);
        dci_free(call->helper, call->report.rounds, call->rounds_room, sizeof *call->report.rounds);
        dci_free(call->helper, call->offsets, k + 1, sizeof *call->offsets);
        dci_free(call->helper, call->ids, n, sizeof *call->ids);
        memset(call, 0, sizeof *call);
}

dci_status kmeans_call_run(kmeans_call *call, dci_context *context)
{
        dci_kmeans_input input;
        dci_kmeans_result result;
        dci_status status = dci_kmeans_input_init(&input, sizeof input);
        if (status == DCI_OK)
                status = dci_kmeans_result_init(&result, sizeof result);
        if (status != DCI_OK)
                return status;
        input.n = call->rows->n;
        input.rows = call->rows->data;
        input.centroids = call->start;
        result.labels = call->labels;
        result.centroids = call->centroids;
        result.offsets = call->offsets;
        result.ids = call->ids;
        result.reports = &call->report;
        const double begin = bench_seconds();
        status = dci_kmeans(context, &call->config, &input, NULL, &result);
        call->seconds = bench_seconds() - begin;
        if (status != DCI_OK)
                return status;
        dci_kmeans_config any_size = call->config;
        any_size.capacity = 0;
        status = dci_kmeans_check(context, &any_size, &input, &result);
        return status == DCI_OK ? status : bench_fail_about("the result fails its check", BENCH_ERR_RUN);
}

dci_status kmeans_check_capacity(size_t largest, size_t capacity)
{
        if (capacity == 0 || largest <= capacity)
                return DCI_OK;
        return dci_fail(BENCH_ERR_RUN, "a cluster has %zu rows, but the capacity is %zu", largest, capacity);
}

/* --- JSON -------------------------------------------------------------------------------------------------------------- */

static json_t *history_json(const dci_kmeans_report *report)
{
        json_t *history = json_array();
        for (size_t i = 0; history != NULL && i < report->n_recorded; i++) {
                const dci_kmeans_round *r = &report->rounds[i];
                json_t *round = json_pack("{s:f, s:f, s:I, s:I}", "objective", r->objective, "seconds", r->seconds,
                                          "moved", (json_int_t)r->n_moved, "empty", (json_int_t)r->n_empty);
                if (json_array_append_new(history, round) != 0) {
                        json_decref(history);
                        return NULL;
                }
        }
        return history;
}

static json_t *asked_json(const kmeans_call *call, const dci_context *context)
{
        const dci_kmeans_config *c = &call->config;
        const bool cosine = c->metric == DCI_METRIC_COSINE;
        return json_pack("{s:I, s:I, s:I, s:I, s:s, s:s, s:s?, s:b, s:s, s:I, s:I, s:f, s:I, s:I, s:I, s:i, s:s}", "n",
                         (json_int_t)call->rows->n, "dim", (json_int_t)c->dim, "clusters", (json_int_t)c->n_clusters,
                         "iter", (json_int_t)c->n_iter, "metric", bench_metric_name(c->metric), "init",
                         kmeans_init_name(c->init), "centroid", cosine ? kmeans_centroid_name(c->centroid) : NULL,
                         "subtract_mean", c->subtract_mean != DCI_MEAN_NONE, "rows", dci_dtype_name(c->dtype), "seed",
                         (json_int_t)c->seed, "redo", (json_int_t)c->n_redo, "tolerance", c->tolerance, "capacity",
                         (json_int_t)c->capacity, "segment_rows", (json_int_t)c->segment_rows, "iter_global",
                         (json_int_t)c->n_iter_global, "threads", (int)dci_context_threads(context), "isa",
                         dci_isa_name(dci_context_isa(context)));
}

json_t *kmeans_call_json(const kmeans_call *call, const dci_context *context)
{
        const dci_kmeans_report *r = &call->report;
        json_t *json = asked_json(call, context);
        json_t *got = json_pack("{s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:s, s:i, s:o}", "seconds", call->seconds,
                                "objective", r->objective, "objective_free", r->objective_free, "rounds",
                                (json_int_t)r->n_rounds, "empty", (json_int_t)r->n_empty, "repaired",
                                (json_int_t)r->n_repaired, "largest", (json_int_t)r->largest, "stop",
                                kmeans_stop_name(r->stop), "best_redo", (int)r->best_redo, "history", history_json(r));
        bool whole = json != NULL && got != NULL && json_object_update(json, got) == 0;
        json_decref(got);
        if (whole)
                return json;
        json_decref(json);
        return NULL;
}

/* The row of the fastest call, with the times of all. */
static json_t *arm_json(const kmeans_arm *arm, size_t rounds)
{
        json_t *seconds = json_array();
        for (size_t i = 0; seconds != NULL && i < rounds; i++)
                if (json_array_append_new(seconds, json_real(arm->seconds[i])) != 0) {
                        json_decref(seconds);
                        return NULL;
                }
        json_t *times = json_pack("{s:f, s:o}", "seconds", arm->spread.median, "all_seconds", seconds);
        bool whole = times != NULL && json_object_update(arm->json, times) == 0;
        json_decref(times);
        return whole ? json_incref(arm->json) : NULL;
}

static json_t *report_json(const kmeans_state *s, int argc, char **argv)
{
        json_t *rows = json_array();
        for (size_t i = 0; rows != NULL && i < s->n_arms; i++)
                if (json_array_append_new(rows, arm_json(&s->arms[i], s->options.rounds)) != 0) {
                        json_decref(rows);
                        return NULL;
                }
        return json_pack("{s:o, s:o, s:s, s:I, s:o}", "machine", bench_machine_json(s->contexts[0]), "command",
                         bench_command_json(argc, argv), "dataset", s->name, "measured_rounds",
                         (json_int_t)s->options.rounds, "rows", rows);
}

/* --- the table --------------------------------------------------------------------------------------------------------- */

static void print_report(const kmeans_state *s)
{
        const kmeans_options *o = &s->options;
        char n[32];
        bench_format_count(n, sizeof n, (double)s->base.n);
        printf("%s: %s rows of %zu (%s), %s, init %s, %zu rounds at most, isa %s; medians of %zu\n\n", s->name, n,
               s->base.dim, dci_dtype_name(s->base.dtype), bench_metric_name(o->metric), kmeans_init_name(o->init),
               o->iter, dci_isa_name(dci_context_isa(s->contexts[0])), o->rounds);
        printf("%8s  %7s  %6s  %9s  %10s  %10s  %10s  %16s", "clusters", "threads", "rounds", "stop", "seconds",
               "least", "most", "objective");
        if (o->capacity > 0)
                printf("  %16s", "free");
        printf("  %6s  %8s\n", "empty", "largest");
        for (size_t i = 0; i < s->n_arms; i++) {
                const kmeans_arm *a = &s->arms[i];
                printf("%8zu  %7zu  %6zu  %9s  %10.4f  %10.4f  %10.4f  %16.8g", a->clusters, a->threads,
                       a->report.n_rounds, kmeans_stop_name(a->report.stop), a->spread.median, a->spread.min,
                       a->spread.max, a->report.objective);
                if (o->capacity > 0)
                        printf("  %16.8g", a->report.objective_free);
                printf("  %6zu  %8zu\n", a->report.n_empty, a->report.largest);
        }
        printf("\n");
}

/* --- data -------------------------------------------------------------------------------------------------------------- */

/* To the format that --rows asks for. */
static dci_status convert_base(kmeans_state *s)
{
        return s->options.rows == 0 ? DCI_OK : bench_rows_convert(s->helper, s->name, s->options.rows, &s->base);
}

static dci_status read_start(kmeans_state *s)
{
        kmeans_options *o = &s->options;
        if (o->init_file == NULL)
                return DCI_OK;
        dci_status status = bench_read_rows(s->helper, o->init_file, BENCH_ALL, &s->start);
        if (status != DCI_OK)
                return status;
        if (s->start.dtype != DCI_F32 || s->start.dim != s->base.dim)
                return dci_fail(DCI_ERR_FORMAT,
                                "%s: centroids of %zu elements in %s; float32 and the rows' %zu are needed",
                                o->init_file, s->start.dim, dci_dtype_name(s->start.dtype), s->base.dim);
        if (o->clusters.n > 0 && o->clusters.values[0] != s->start.n)
                return dci_fail(DCI_ERR_FORMAT, "%s: %zu centroids, but --clusters says %zu", o->init_file, s->start.n,
                                o->clusters.values[0]);
        o->clusters.n = 1;
        o->clusters.values[0] = s->start.n;
        return DCI_OK;
}

static dci_status get_data(kmeans_state *s)
{
        bench_name(s->name, sizeof s->name, bench_base_name(s->options.base));
        DCI_TRY(bench_read_rows(s->helper, s->options.base, s->options.limit, &s->base));
        DCI_TRY(convert_base(s));
        return read_start(s);
}

/* --- measuring --------------------------------------------------------------------------------------------------------- */

static dci_status open_arms(kmeans_state *s)
{
        const kmeans_options *o = &s->options;
        const size_t n_arms = o->clusters.n * o->threads.n;
        s->arms = dci_alloc(s->helper, n_arms, sizeof *s->arms);
        s->seconds = dci_alloc(s->helper, n_arms, o->rounds * sizeof *s->seconds);
        if (s->arms == NULL || s->seconds == NULL)
                return DCI_ERR_MEMORY;
        memset(s->arms, 0, n_arms * sizeof *s->arms);
        s->n_arms = n_arms;
        for (size_t i = 0; i < n_arms; i++) {
                kmeans_arm *arm = &s->arms[i];
                arm->clusters = o->clusters.values[i / o->threads.n];
                arm->threads = o->threads.values[i % o->threads.n];
                arm->context = s->contexts[i % o->threads.n];
                arm->seconds = s->seconds + i * o->rounds;
        }
        return DCI_OK;
}

/* What the library promises: the same bits in every round and on any number of threads. */
static dci_status check_same(const kmeans_state *s, size_t arm, double objective)
{
        const kmeans_arm *first = &s->arms[arm - arm % s->options.threads.n];
        if (first->json == NULL || first->report.objective == objective)
                return DCI_OK;
        return dci_fail(BENCH_ERR_RUN,
                        "%zu clusters: objective %.17g on %zu threads, but %.17g before; the same bits are promised",
                        first->clusters, objective, s->arms[arm].threads, first->report.objective);
}

static dci_status keep(kmeans_state *s, kmeans_arm *arm, const kmeans_call *call)
{
        if (arm->json != NULL && call->seconds >= arm->fastest)
                return DCI_OK;
        json_decref(arm->json);
        arm->json = kmeans_call_json(call, arm->context);
        arm->report = call->report;
        arm->report.rounds = NULL;
        arm->fastest = call->seconds;
        if (arm->json == NULL)
                return dci_fail(DCI_ERR_MEMORY, "the report does not fit in memory");
        const size_t shape[2] = {call->config.n_clusters, call->config.dim};
        return s->options.out_centroids != NULL
                       ? dci_npy_write(s->options.out_centroids, DCI_NPY_F32, 2, shape, call->centroids)
                       : DCI_OK;
}

/* round 0 warms up. */
static dci_status run_arm(kmeans_state *s, size_t i, size_t round)
{
        const kmeans_options *o = &s->options;
        kmeans_arm *arm = &s->arms[i];
        kmeans_call call;
        dci_status status = kmeans_call_open(s->helper, o, &s->base, arm->clusters, o->capacity, false, &call);
        call.start = s->start.n > 0 ? s->start.data : NULL;
        if (status == DCI_OK)
                status = kmeans_call_run(&call, arm->context);
        if (status == DCI_OK && round > 0) {
                arm->seconds[round - 1] = call.seconds;
                status = check_same(s, i, call.report.objective);
                if (status == DCI_OK)
                        status = keep(s, arm, &call);
        }
        kmeans_call_close(&call);
        return status;
}

static dci_status measure(kmeans_state *s)
{
        const size_t rounds = s->options.rounds;
        bench_progress progress;
        dci_status status = DCI_OK;
        bench_progress_begin(&progress, "clustering");
        for (size_t round = 0; round <= rounds; round++)
                for (size_t i = 0; status == DCI_OK && i < s->n_arms; i++) {
                        bench_progress_step(&progress, round * s->n_arms + i, (rounds + 1) * s->n_arms);
                        status = run_arm(s, i, round);
                }
        bench_progress_end(&progress);
        for (size_t i = 0; status == DCI_OK && i < s->n_arms; i++)
                s->arms[i].spread = bench_spread_of(s->arms[i].seconds, rounds);
        return status;
}

static dci_status run(kmeans_state *s, int argc, char **argv)
{
        const kmeans_options *o = &s->options;
        DCI_TRY(o->json != NULL ? bench_check_writable(o->json) : DCI_OK);
        if (o->trace != NULL)
                return kmeans_trace(o, argc, argv);
        DCI_TRY(kmeans_context(o, 0, &s->helper));
        for (size_t i = 0; i < o->threads.n; i++)
                DCI_TRY(kmeans_context(o, o->threads.values[i], &s->contexts[i]));
        DCI_TRY(get_data(s));
        DCI_TRY(open_arms(s));
        DCI_TRY(measure(s));
        print_report(s);
        if (o->json != NULL)
                DCI_TRY(bench_write_json(report_json(s, argc, argv), o->json));
        for (size_t i = 0; i < s->n_arms; i++)
                DCI_TRY(kmeans_check_capacity(s->arms[i].report.largest, o->capacity));
        return DCI_OK;
}

int bench_kmeans(int argc, char **argv)
{
        kmeans_state s;
        bool help;
        memset(&s, 0, sizeof s);
        dci_status status = kmeans_options_parse(argc, argv, &s.options, &help);
        if (status == DCI_OK && help) {
                kmeans_print_help();
                return BENCH_EXIT_OK;
        }
        if (status == DCI_OK)
                status = run(&s, argc, argv);
        int code = status == DCI_OK ? BENCH_EXIT_OK : bench_report_error("kmeans", status);
        for (size_t i = 0; i < s.n_arms; i++)
                json_decref(s.arms[i].json);
        const size_t n_arms = s.options.clusters.n * s.options.threads.n;
        dci_free(s.helper, s.arms, n_arms, sizeof *s.arms);
        dci_free(s.helper, s.seconds, n_arms, s.options.rounds * sizeof *s.seconds);
        bench_rows_free(&s.base);
        bench_rows_free(&s.start);
        for (size_t i = 0; i < s.options.threads.n; i++)
                dci_context_destroy(s.contexts[i]);
        dci_context_destroy(s.helper);
        return code;
}
