/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/ann/ann.h"
#include "bench/common/report.h"

#include <string.h>

/* Everything a run holds, so that one exit frees it. */
typedef struct ann_state {
        ann_options options;
        dci_context *helper;   /* all CPUs: reading and finding the truth are not measured */
        dci_context *measured; /* --threads */
        bench_dataset dataset;
        bench_truth truth;
        bench_share share;
        bench_rows fit; /* from a file; a trace's own queries belong to the data set */
} ann_state;

/* The neighbours in a file are believed only for the metric they were made for. */
static bool file_truth_applies(const ann_state *state, dci_metric metric, size_t k)
{
        const bench_dataset *dataset = &state->dataset;
        if (state->options.own_truth || dataset->truth.width == 0)
                return false;
        return state->options.source.truth != NULL || (metric == dataset->metric && k <= dataset->truth.width);
}

static dci_status check_groups(const ann_options *options, size_t n_queries)
{
        if (options->group == 0 || n_queries % options->group == 0)
                return DCI_OK;
        return dci_fail(DCI_ERR_INVALID, "--group %zu: the number of queries, %zu, is no multiple of it",
                        options->group, n_queries);
}

/* The queries that codes are fitted to, in the number format that the index wants of queries. */
static dci_status fit_queries(ann_state *state, const bench_rows **out)
{
        const ann_codes *codes = &state->options.codes;
        const bench_dataset *dataset = &state->dataset;
        *out = NULL;
        if (codes->fit_to == NULL)
                return DCI_OK;
        if (codes->observation) {
                *out = &dataset->trace.observed;
                return (*out)->n > 0 ? DCI_OK
                                     : dci_fail(DCI_ERR_INVALID,
                                                "--fit observation: %s has no queries before the decode (first_query "
                                                "and prompt are %zu)",
                                                dataset->name, dataset->trace.prompt);
        }
        DCI_TRY(bench_read_rows(state->helper, codes->fit_to, BENCH_ALL, &state->fit));
        if (state->fit.dim != dataset->base.dim)
                return dci_fail(DCI_ERR_FORMAT, "%s: rows of %zu elements, but the base has %zu", codes->fit_to,
                                state->fit.dim, dataset->base.dim);
        DCI_TRY(bench_rows_convert(state->helper, codes->fit_to, dataset->queries.dtype, &state->fit));
        *out = &state->fit;
        return DCI_OK;
}

static dci_status report(const ann_job *job, int argc, char **argv)
{
        ann_row *rows = NULL;
        size_t n_rows;
        ann_report result = {.job = job, .argc = argc, .argv = argv};
        dci_status status = ann_measure(job, &rows, &n_rows);
        if (status != DCI_OK)
                return status;
        result.rows = rows;
        result.n_rows = job->options->pareto ? ann_keep_best(rows, n_rows) : n_rows;
        bench_machine_describe(job->context, &result.machine);
        ann_print_table(&result);
        if (job->options->json != NULL)
                status = ann_write_json(&result, job->options->json);
        dci_free(job->context, rows, n_rows, sizeof *rows);
        return status;
}

static dci_status run(ann_state *state, int argc, char **argv)
{
        const ann_options *options = &state->options;
        DCI_TRY(options->json != NULL ? bench_check_writable(options->json) : DCI_OK);
        DCI_TRY(bench_context(&options->index, options->index.threads, &state->measured));
        DCI_TRY(bench_context(&options->index, 0, &state->helper));
        DCI_TRY(bench_dataset_read(state->helper, &options->source, &state->dataset));
        ann_job job = {
                .context = state->measured, .options = options, .dataset = &state->dataset, .truth = &state->truth};
        job.k = options->k != 0 ? options->k : state->dataset.is_trace ? 100 : 10;
        DCI_TRY(bench_source_metric(options->metric, &state->dataset, &job.metric));
        DCI_TRY(check_groups(options, state->dataset.queries.n));
        DCI_TRY(fit_queries(state, &job.fit));
        bench_truth_options wanted = {job.metric, job.k, options->cache, options->truth_check,
                                      file_truth_applies(state, job.metric, job.k)};
        DCI_TRY(bench_truth_get(state->helper, &state->dataset, &wanted, &state->truth));
        if (state->dataset.is_trace) {
                DCI_TRY(bench_share_prepare(state->helper, &state->dataset, &state->share));
                job.share = &state->share;
        }
        return report(&job, argc, argv);
}

int bench_ann(int argc, char **argv)
{
        ann_state state;
        bool help;
        memset(&state, 0, sizeof state);
        dci_status status = ann_options_parse(argc, argv, &state.options, &help);
        if (status == DCI_OK && help) {
                ann_print_help();
                return BENCH_EXIT_OK;
        }
        if (status == DCI_OK)
                status = run(&state, argc, argv);
        int code = status == DCI_OK ? BENCH_EXIT_OK : bench_report_error("ann", status);
        bench_rows_free(&state.fit);
        bench_share_free(&state.share);
        bench_truth_free(&state.truth);
        bench_dataset_free(&state.dataset);
        dci_context_destroy(state.helper);
        dci_context_destroy(state.measured);
        return code;
}
