/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/ann/runbook.h"

#include <string.h>

#include "bench/common/report.h"

typedef struct runbook_state {
        runbook_options options;
        dci_context *helper, *measured;
        bench_dataset dataset;
        runbook book;
        runbook_result *results;
        dci_tree_stats tree;
} runbook_state;

/* --- options --------------------------------------------------------------------------------------------------------------- */

/* clang-format off */
static const char help_usage[] =
        "usage: dci-bench runbook --runbook FILE.yaml (--base FILE --query FILE --metric ip|l2|cosine | --data FILE.hdf5 |\n"
        "                         --trace FOLDER) [options]\n"
        "\n"
        "Plays a runbook of the streaming track of big-ann-benchmarks: rows of the base come and go, searches stand\n"
        "between them. Each search reports its recall against exact search of the rows that are there (kind flat,\n"
        "rows as the base holds them) and its rate; each insertion and removal the time of its calls.\n"
        "\n"
        "data:\n";

static const char help_options[] =
        "\n"
        "what to measure:\n"
        "  --runbook FILE            {DATASET: {max_pts: N, 1: {operation: insert, start: A, end: B}, 2: {operation: search},\n"
        "                            3: {operation: delete, start: A, end: B}, 4: {operation: replace, tags_start: A,\n"
        "                            tags_end: B, ids_start: C, ids_end: D}, ..}}; ids A to B - 1 are the base's rows of these\n"
        "                            numbers, after replace rows C to D - 1\n"
        "  --dataset NAME            whose steps to play (default: the only one in the file)\n"
        "  --metric ip|l2|cosine     default: ip on traces, the file's own for HDF5; otherwise it must be given\n"
        "  --k K                     neighbours per query, 1 to 16777216 (default 100 on traces, else 10)\n"
        "  --kind KIND               index kind: flat, pdci, mdci or auto (default mdci)\n"
        "  --batch N                 rows per call that inserts or removes, 1 to 1048576 (default 16)\n"
        "  --mode one|batch          one query per call, or all in one call (default one)\n";

static const char help_output[] =
        "  One value of each: a runbook is played with one effort (default: pdci retrieves, mdci visits, a tenth).\n"
        "\n"
        "output:\n"
        "  --json FILE               also write the results as JSON: {machine, command, dataset, params, .., rows}, a row per step\n"
        "  --help                    this text\n"
        "\n"
        "what the columns mean:\n"
        "  rows          in the index after the step\n"
        "  seconds       time in calls of the index; what the exact search of the same step takes is not counted\n"
        "  median, p99, max us   of the calls that insert or remove, each of up to --batch rows\n"
        "  recall        share of the true k neighbours among the rows that are there; ties count, with a relative\n"
        "                tolerance of 1e-6\n"
        "  bytes/row     all the memory of the index, over its rows\n"
        "\n"
        "exit codes: 0 done; 1 failed: memory, a write, a self-check; 2 usage error or bad input, one sentence on stderr\n"
        "\n"
        "example:\n"
        "  dci-bench runbook --trace bench/data/smollm2-debref-layer06_head0 --runbook bench/data/sliding.yaml --field-of-view 16\n";
/* clang-format on */

static dci_status check_options(runbook_options *o)
{
        DCI_TRY(bench_source_check(&o->source, o->metric));
        if (o->path == NULL)
                return dci_fail(DCI_ERR_INVALID, "--runbook is missing");
        DCI_TRY(bench_one_kind(&o->index, &o->kind));
        if (o->mode == BENCH_MODE_BOTH)
                return dci_fail(DCI_ERR_INVALID, "--mode: a runbook is played with one or batch, not both");
        return bench_index_options_finish(&o->index, false);
}

static dci_status parse(int argc, char **argv, runbook_options *o, bool *out_help)
{
        const bench_option own[] = {
                {"runbook", OPTION_TEXT, &o->path, 0, 0, NULL},
                {"dataset", OPTION_TEXT, &o->dataset, 0, 0, NULL},
                {"metric", OPTION_CHOICE, &o->metric, 0, 0, bench_metrics},
                {"k", OPTION_SIZE, &o->k, 1, (size_t)1 << 24, NULL},
                {"batch", OPTION_SIZE, &o->batch, 1, (size_t)1 << 20, NULL},
                {"mode", OPTION_CHOICE, &o->mode, 0, 0, bench_modes},
                {"json", OPTION_TEXT, &o->json, 0, 0, NULL},
        };
        enum { N_OWN = sizeof own / sizeof *own };
        bench_option table[N_OWN + BENCH_SOURCE_OPTIONS + BENCH_INDEX_OPTIONS];
        memset(o, 0, sizeof *o);
        o->batch = 16;
        o->mode = BENCH_MODE_ONE;
        memcpy(table, own, sizeof own);
        bench_source_options(&o->source, table + N_OWN);
        bench_index_options_list(&o->index, 1 << DCI_KIND_MDCI, table + N_OWN + BENCH_SOURCE_OPTIONS);
        dci_status status = bench_parse_options(argc, argv, table, sizeof table / sizeof *table, out_help);
        if (status == DCI_OK && !*out_help)
                status = check_options(o);
        return status == DCI_OK ? status : bench_fail_more(status, "; try 'dci-bench runbook --help'");
}

/* --- the report -------------------------------------------------------------------------------------------------------------- */

static double rate(size_t n, double seconds)
{
        return (double)n / (seconds > 1e-9 ? seconds : 1e-9);
}

static void print_result(const runbook_job *job, size_t number, const runbook_result *r)
{
        char live[32], qps[32];
        bench_format_count(live, sizeof live, (double)r->live);
        printf("%5zu  %-9s  %12s  %10.4f  ", number, runbook_operation_name(r->step.operation), live, r->seconds);
        if (r->step.operation != RUNBOOK_SEARCH) {
                printf("%9.1f  %9.1f  %9.1f  %8s  %10s", r->latency.median, r->latency.p99, r->latency.max, "-", "-");
        } else {
                bench_format_count(qps, sizeof qps, rate(job->dataset->queries.n, r->seconds));
                printf("%9s  %9s  %9s  ", "-", "-", "-");
                if (r->recall >= 0)
                        printf("%8.4f  %10s", r->recall, qps);
                else
                        printf("%8s  %10s", "-", qps);
        }
        if (r->live > 0)
                printf("  %9.1f\n", (double)r->bytes / (double)r->live);
        else
                printf("  %9s\n", "-");
}

static double sum_seconds(const runbook_job *job, const runbook_result *results)
{
        double seconds = 0;
        for (size_t i = 0; i < job->book->n_steps; i++)
                seconds += results[i].seconds;
        return seconds;
}

static void print_report(const runbook_job *job, const runbook_result *results)
{
        const bench_dataset *data = job->dataset;
        printf("%s, runbook for %s: %zu steps, %s, %s, k %zu, %zu rows per call, %zu queries per search\n\n",
               data->name, job->book->dataset, job->book->n_steps, bench_kind_name(job->kind),
               bench_metric_name(job->metric), job->k, job->options->batch, data->queries.n);
        printf("%5s  %-9s  %12s  %10s  %9s  %9s  %9s  %8s  %10s  %9s\n", "step", "operation", "rows", "seconds",
               "median us", "p99 us", "max us", "recall", "queries/s", "bytes/row");
        for (size_t i = 0; i < job->book->n_steps; i++)
                print_result(job, i + 1, &results[i]);
        printf("\nin calls of the index: %.4f s\n\n", sum_seconds(job, results));
}

/* A number, or null where it says nothing. */
static json_t *real_if(bool says, double value)
{
        return says ? json_real(value) : json_null();
}

static json_t *result_json(const runbook_job *job, size_t number, const runbook_result *r)
{
        const bool search = r->step.operation == RUNBOOK_SEARCH;
        return json_pack("{s:I, s:s, s:I, s:I, s:I, s:I, s:f, s:o, s:o, s:o, s:o, s:o, s:I}", "step",
                         (json_int_t)number, "operation", runbook_operation_name(r->step.operation), "start",
                         (json_int_t)r->step.start, "end", (json_int_t)r->step.end, "live", (json_int_t)r->live,
                         "calls", (json_int_t)r->calls, "seconds", r->seconds, "median_us",
                         real_if(!search, r->latency.median), "p99_us", real_if(!search, r->latency.p99), "max_us",
                         real_if(!search, r->latency.max), "recall", real_if(search && r->recall >= 0, r->recall),
                         "qps", real_if(search, rate(job->dataset->queries.n, r->seconds)), "bytes",
                         (json_int_t)r->bytes);
}

static json_t *report_json(const runbook_job *job, const runbook_state *state, int argc, char **argv)
{
        const size_t n = job->book->n_steps;
        const runbook_result *last = &state->results[n - 1];
        const bench_effort effort = bench_effort_at(&job->options->index, job->kind, 0);
        json_t *rows = json_array();
        for (size_t i = 0; rows != NULL && i < n; i++) {
                if (json_array_append_new(rows, result_json(job, i + 1, &state->results[i])) != 0) {
                        json_decref(rows);
                        return NULL;
                }
        }
        return json_pack("{s:o, s:o, s:s, s:s, s:o, s:s, s:I, s:I, s:I, s:i, s:s, s:f, s:o, s:o, s:o}", "machine",
                         bench_machine_json(job->measured), "command", bench_command_json(argc, argv), "dataset",
                         job->dataset->name, "runbook", job->book->dataset, "params",
                         bench_params_json(&job->options->index, job->kind, &effort), "metric",
                         bench_metric_name(job->metric), "k", (json_int_t)job->k, "batch",
                         (json_int_t)job->options->batch, "n_queries", (json_int_t)job->dataset->queries.n, "threads",
                         (int)dci_context_threads(job->measured), "mode", bench_mode_name(job->options->mode),
                         "total_s", sum_seconds(job, state->results), "bytes_per_row",
                         real_if(last->live > 0, (double)last->bytes / (double)(last->live > 0 ? last->live : 1)),
                         "tree", bench_tree_json(&state->tree), "rows", rows);
}

/* --- the run ------------------------------------------------------------------------------------------------------------------ */

static dci_status run(runbook_state *state, int argc, char **argv)
{
        const runbook_options *options = &state->options;
        DCI_TRY(options->json != NULL ? bench_check_writable(options->json) : DCI_OK);
        DCI_TRY(bench_context(&options->index, options->index.threads, &state->measured));
        DCI_TRY(bench_context(&options->index, 0, &state->helper));
        DCI_TRY(bench_dataset_read(state->helper, &options->source, &state->dataset));
        DCI_TRY(runbook_read(state->helper, options->path, options->dataset, state->dataset.base.n, &state->book));
        runbook_job job = {.helper = state->helper,
                           .measured = state->measured,
                           .options = options,
                           .dataset = &state->dataset,
                           .book = &state->book,
                           .kind = options->kind};
        job.k = options->k != 0 ? options->k : state->dataset.is_trace ? 100 : 10;
        DCI_TRY(bench_source_metric(options->metric, &state->dataset, &job.metric));
        state->results = dci_alloc(state->helper, state->book.n_steps, sizeof *state->results);
        DCI_TRY(state->results != NULL ? runbook_play(&job, state->results, &state->tree) : DCI_ERR_MEMORY);
        print_report(&job, state->results);
        return options->json != NULL ? bench_write_json(report_json(&job, state, argc, argv), options->json) : DCI_OK;
}

int bench_runbook(int argc, char **argv)
{
        runbook_state state;
        bool help;
        memset(&state, 0, sizeof state);
        dci_status status = parse(argc, argv, &state.options, &help);
        if (status == DCI_OK && help) {
                printf("%s%s%s%s%s", help_usage, bench_source_help, help_options, bench_index_help, help_output);
                return BENCH_EXIT_OK;
        }
        if (status == DCI_OK)
                status = run(&state, argc, argv);
        int code = status == DCI_OK ? BENCH_EXIT_OK : bench_report_error("runbook", status);
        dci_free(state.helper, state.results, state.book.n_steps, sizeof *state.results);
        runbook_free(&state.book);
        bench_dataset_free(&state.dataset);
        dci_context_destroy(state.helper);
        dci_context_destroy(state.measured);
        return code;
}
