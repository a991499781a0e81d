/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The subcommand verify: a saved index is loaded, checks itself, and is asked for rows that it has. What it finds is held against exact search
 * over its own rows in an index of their own, so that recall that was lost on the way shows.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/common/exact.h"
#include "bench/common/report.h"
#include "dci/file.h"

#define MAX_EFFORTS (BENCH_MAX_SHARES + 2)

typedef struct verify_options {
        const char *file, *queries, *json;
        size_t sample, k, limit_queries, seed, threads;
        double perturb;
        bench_shares shares;
        dci_isa isa;
        bool map;
} verify_options;

/* One set of queries at one effort. */
typedef struct verify_row {
        bool own; /* the index's own rows; else those given */
        char effort[32];
        double recall, self, dist_comps, query_us; /* self: share that found themselves; NAN where there are none */
} verify_row;

/* Queries of one sort with what is true of them. */
typedef struct verify_queries {
        bench_rows rows;     /* in the index's query_dtype */
        const int64_t *self; /* ids of the rows that they are; NULL */
        bench_truth truth;
} verify_queries;

typedef struct verify_state {
        verify_options options;
        dci_context *context;
        dci_index *index;
        dci_index_config config;
        size_t n, k; /* rows of the index; neighbours */
        int64_t *ids, *sample_ids, *found;
        bench_rows base;
        double load_s, check_s;
        bool whole, passed; /* its structure, everything */
        char sentence[400];
        size_t n_rows;
        verify_row rows[2 * MAX_EFFORTS];
} verify_state;

/* --- options ------------------------------------------------------------------------------------------------------------------- */

static const char help[] =
        "usage: dci-bench verify FILE [options]\n"
        "\n"
        "Loads an index that dci_index_save wrote, checks everything that must hold of it (dci_index_check in full), "
        "and\n"
        "measures its recall against exact search over its own rows: on a sample of them, and on queries of yours.\n"
        "\n"
        "  --sample N                rows that are asked for, 0 to 1000000 (default 1000; all, if there are fewer)\n"
        "  --perturb S               moves each of them by normal numbers of this deviation, in units of the root "
        "mean\n"
        "                            square of all elements, 0 to 100 (default 0: as they are)\n"
        "  --queries FILE            queries of yours, besides: any file of rows that 'ann --query' reads\n"
        "  --limit-queries N         at most so many of them (default: all)\n"
        "  --k K                     neighbours per query, 1 to 65536 (default 10)\n"
        "  --shares LIST             efforts next to the file's own default and full effort: shares of rows (pdci:\n"
        "                            prop_to_retrieve) or nodes (mdci: prop_to_visit), above 0 and at most 1, comma\n"
        "                            separated (default 0.01,0.1); flat has none\n"
        "  --map                     reads the index where it lies in the file\n"
        "  --seed N                  of the sample and of --perturb (default 1)\n"
        "  --threads N, --isa LEVEL  as in 'ann'\n"
        "\n"
        "output:\n"
        "  one line for the check, then a table; 'self': share of the sampled rows that are among their own k\n"
        "  (ip: rows need not be their own neighbours)\n"
        "  --json FILE               also write {machine, command, index, check, rows}\n"
        "  --help                    this text\n"
        "\n"
        "exit codes: 0 done; 1 failed: the check, memory, a write; 2 usage error or a file that does not load, one\n"
        "sentence on stderr\n"
        "\n"
        "example:\n"
        "  dci-bench verify rows.dci --sample 2000 --perturb 0.1 --json verify.json\n";

static dci_status parse(int argc, char **argv, verify_options *o, bool *out_help)
{
        const bench_option table[] = {
                {"sample", OPTION_SIZE, &o->sample, 0, 1000000, NULL},
                {"perturb", OPTION_NUMBER, &o->perturb, 0, 100, NULL},
                {"queries", OPTION_TEXT, &o->queries, 0, 0, NULL},
                {"limit-queries", OPTION_SIZE, &o->limit_queries, 1, (size_t)1 << 40, NULL},
                {"k", OPTION_SIZE, &o->k, 1, 65536, NULL},
                {"shares", OPTION_SHARES, &o->shares, 0, 0, NULL},
                {"map", OPTION_FLAG, &o->map, 0, 0, NULL},
                {"seed", OPTION_SIZE, &o->seed, 0, SIZE_MAX, NULL},
                {"threads", OPTION_SIZE, &o->threads, 1, 1024, NULL},
                {"isa", OPTION_CHOICE, &o->isa, 0, 0, bench_isas},
                {"json", OPTION_TEXT, &o->json, 0, 0, NULL},
        };
        *o = (verify_options){
                .sample = 1000, .k = 10, .limit_queries = BENCH_ALL, .seed = 1, .shares = {2, {0.01, 0.1}}};
        const bool named = argc > 1 && argv[1][0] != '-';
        if (named)
                o->file = argv[1];
        dci_status status = bench_parse_options(named ? argc - 1 : argc, named ? argv + 1 : argv, table,
                                                sizeof table / sizeof *table, out_help);
        if (status == DCI_OK && !*out_help && !named)
                status = dci_fail(DCI_ERR_INVALID, "a file is missing");
        return status == DCI_OK ? status : bench_fail_more(status, "; try 'dci-bench verify --help'");
}

/* --- the index and its rows ------------------------------------------------------------------------------------------------------ */

static dci_status load(verify_state *v)
{
        const bench_index_options of_context = {.isa = v->options.isa, .threads = v->options.threads};
        const double start = bench_seconds();
        dci_status status = bench_context(&of_context, v->options.threads, &v->context);
        if (status == DCI_OK)
                status = (v->options.map ? dci_index_map : dci_index_load)(v->context, v->options.file, &v->index);
        if (status == DCI_OK)
                status = dci_index_config_init(&v->config, sizeof v->config);
        if (status == DCI_OK)
                status = dci_index_get_config(v->index, &v->config);
        if (status != DCI_OK)
                return bench_fail_about(v->options.file, status);
        v->load_s = bench_seconds() - start;
        v->n = dci_index_count(v->index);
        v->k = v->options.k < v->n ? v->options.k : v->n;
        return DCI_OK;
}

/* A verdict, not a status: what is wrong with the file is what the report is about. */
static dci_status check(verify_state *v)
{
        bench_progress progress;
        const double start = bench_seconds();
        dci_status status = dci_index_check(v->index, DCI_CHECK_STRUCTURE, NULL);
        v->whole = status == DCI_OK;
        if (v->whole) {
                bench_progress_begin(&progress, "check");
                const dci_progress callback = bench_progress_callback(&progress);
                status = dci_index_check(v->index, DCI_CHECK_FULL, &callback);
                bench_progress_end(&progress);
        }
        v->check_s = bench_seconds() - start;
        v->passed = status == DCI_OK;
        if (status == DCI_ERR_FORMAT)
                snprintf(v->sentence, sizeof v->sentence, "%s", dci_last_error());
        return status == DCI_ERR_FORMAT ? DCI_OK : status;
}

/* All rows, in the order of their ids. */
static dci_status take_rows(verify_state *v)
{
        size_t count;
        v->ids = dci_alloc(v->context, v->n, sizeof *v->ids);
        if (v->ids == NULL)
                return DCI_ERR_MEMORY;
        DCI_TRY(dci_index_ids(v->index, v->n, v->ids, &count));
        DCI_TRY(bench_rows_alloc(v->context, v->options.file, v->config.dtype, v->n, v->config.dim, &v->base));
        return dci_index_reconstruct(v->index, v->n, v->ids, v->base.owned, v->config.dim);
}

static double root_mean_square(const bench_rows *rows, double *row)
{
        double sum = 0.0;
        for (size_t i = 0; i < rows->n; i++) {
                bench_row_to_double(rows, i, row);
                sum += bench_dot(row, row, rows->dim);
        }
        return sqrt(sum / ((double)rows->n * (double)rows->dim));
}

/* Some rows, each once, drawn as the first of a shuffle. */
static dci_status take_sample(verify_state *v, verify_queries *q)
{
        const size_t n = v->options.sample < v->n ? v->options.sample : v->n, dim = v->config.dim;
        dci_rng rng;
        dci_rng_seed(&rng, v->options.seed);
        v->sample_ids = dci_alloc(v->context, n, sizeof *v->sample_ids);
        size_t *order = dci_alloc(v->context, v->n, sizeof *order);
        double *row = dci_alloc(v->context, dim, sizeof *row);
        dci_status status = v->sample_ids == NULL || order == NULL || row == NULL ? DCI_ERR_MEMORY : DCI_OK;
        if (status == DCI_OK)
                status = bench_rows_alloc(v->context, "the sample", DCI_F32, n, dim, &q->rows);
        if (status == DCI_OK) {
                const double deviation =
                        v->options.perturb > 0.0 ? v->options.perturb * root_mean_square(&v->base, row) : 0.0;
                for (size_t i = 0; i < v->n; i++)
                        order[i] = i;
                for (size_t i = 0; i < n; i++) {
                        const size_t other = i + (size_t)dci_rng_below(&rng, v->n - i), at = order[other];
                        order[other] = order[i];
                        v->sample_ids[i] = v->ids[at];
                        bench_row_to_double(&v->base, at, row);
                        for (size_t p = 0; p < dim; p++)
                                ((float *)q->rows.owned)[i * dim + p] =
                                        (float)(row[p] + (deviation > 0.0 ? deviation * dci_rng_normal(&rng) : 0.0));
                }
                q->self = v->sample_ids;
                status = bench_rows_convert(v->context, "the sample", v->config.query_dtype, &q->rows);
        }
        dci_free(v->context, row, dim, sizeof *row);
        dci_free(v->context, order, v->n, sizeof *order);
        return status;
}

static dci_status take_queries(verify_state *v, verify_queries *q)
{
        const char *file = v->options.queries;
        DCI_TRY(bench_read_rows(v->context, file, v->options.limit_queries, &q->rows));
        if (q->rows.dim != v->config.dim)
                return dci_fail(DCI_ERR_FORMAT, "%s: rows of %zu elements, but those of the index have %zu", file,
                                q->rows.dim, v->config.dim);
        return bench_rows_convert(v->context, file, v->config.query_dtype, &q->rows);
}

/* --- recall --------------------------------------------------------------------------------------------------------------------------- */

static int by_id(const void *a, const void *b)
{
        const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
        return (x > y) - (x < y);
}

/* Of one query: how many of the k that were found count, by their scores in double precision. */
static size_t count_true(const verify_state *v, const verify_queries *q, size_t i, int64_t *distinct, double *rows)
{
        const size_t k = q->truth.k, n = bench_distinct(v->found + i * k, k, distinct);
        const bench_found within = {
                .base = &v->base,
                .n_ids = v->n,
                .metric = v->config.metric,
                .limit = bench_key_limit(v->config.metric, q->truth.scores[(i + 1) * k - 1], BENCH_RECALL_TOLERANCE)};
        for (size_t j = 0; j < n; j++) { /* the truth is over rows by the order of their ids */
                const int64_t *at = bsearch(&distinct[j], v->ids, v->n, sizeof *v->ids, by_id);
                distinct[j] = at == NULL ? -1 : at - v->ids;
        }
        bench_row_to_double(&q->rows, i, rows);
        return bench_count_found(&within, rows, distinct, n, rows + v->config.dim);
}

static dci_status judge(const verify_state *v, const verify_queries *q, verify_row *row)
{
        const size_t k = q->truth.k, dim = v->config.dim;
        int64_t *distinct = dci_alloc(v->context, k, sizeof *distinct);
        double *rows = dci_alloc(v->context, 2 * dim, sizeof *rows);
        size_t found = 0, self = 0;
        const bool enough = distinct != NULL && rows != NULL;
        for (size_t i = 0; enough && i < q->rows.n; i++) {
                for (size_t j = 0; q->self != NULL && j < k; j++)
                        self += v->found[i * k + j] == q->self[i];
                found += count_true(v, q, i, distinct, rows);
        }
        row->recall = (double)found / ((double)q->rows.n * (double)k);
        row->self = q->self != NULL ? (double)self / (double)q->rows.n : NAN;
        dci_free(v->context, distinct, k, sizeof *distinct);
        dci_free(v->context, rows, 2 * dim, sizeof *rows);
        return enough ? DCI_OK : DCI_ERR_MEMORY;
}

static dci_status search(verify_state *v, const verify_queries *q, const char *effort, double share)
{
        verify_row *row = &v->rows[v->n_rows];
        dci_search_params params;
        dci_search_stats stats;
        *row = (verify_row){.own = q->self != NULL};
        snprintf(row->effort, sizeof row->effort, "%s", effort);
        DCI_TRY(dci_search_stats_init(&stats, sizeof stats));
        DCI_TRY(dci_search_params_init(&params, sizeof params));
        if (share == 0.0) /* what the file says */
                DCI_TRY(dci_index_get_defaults(v->index, &params));
        else
                params.prop_to_visit = params.prop_to_retrieve = 1.0;
        params.stats = &stats;
        if (share > 0.0 && v->config.kind == DCI_KIND_PDCI)
                params.prop_to_retrieve = share;
        if (share > 0.0 && v->config.kind == DCI_KIND_MDCI)
                params.prop_to_visit = share;
        if (share == 1.0)
                params.rerank = INFINITY;
        /* Once outside the clock: a first call touches memory and starts threads. */
        DCI_TRY(dci_index_search(v->index, q->rows.n, q->rows.data, v->config.dim, v->k, &params, v->found, NULL));
        const double start = bench_seconds();
        DCI_TRY(dci_index_search(v->index, q->rows.n, q->rows.data, v->config.dim, v->k, &params, v->found, NULL));
        row->query_us = 1e6 * (bench_seconds() - start) / (double)q->rows.n;
        row->dist_comps = (double)stats.distances / (double)q->rows.n;
        DCI_TRY(judge(v, q, row));
        v->n_rows++;
        return DCI_OK;
}

static dci_status measure(verify_state *v, verify_queries *q)
{
        const bench_dataset data = {.base = v->base, .queries = q->rows};
        const bench_truth_options options = {.metric = v->config.metric, .k = v->k, .check = 5};
        char effort[32];
        if (q->rows.n == 0)
                return DCI_OK;
        dci_status status = bench_truth_get(v->context, &data, &options, &q->truth);
        v->found = status == DCI_OK ? dci_alloc(v->context, q->rows.n * v->k, sizeof *v->found) : NULL;
        if (status == DCI_OK && v->found == NULL)
                status = DCI_ERR_MEMORY;
        if (status == DCI_OK)
                status = search(v, q, "default", 0.0);
        for (size_t i = 0; i < v->options.shares.n && status == DCI_OK && v->config.kind != DCI_KIND_FLAT; i++) {
                snprintf(effort, sizeof effort, "%g", v->options.shares.values[i]);
                status = search(v, q, effort, v->options.shares.values[i]);
        }
        if (status == DCI_OK)
                status = search(v, q, "full", 1.0);
        dci_free(v->context, v->found, q->rows.n * v->k, sizeof *v->found);
        v->found = NULL;
        return status;
}

/* --- the report -------------------------------------------------------------------------------------------------------------------------- */

static void print_report(const verify_state *v)
{
        char n[32];
        bench_format_count(n, sizeof n, (double)v->n);
        printf("%s: %s, %s, %s, %zu elements, %s rows, loaded in %.3f s\n", bench_base_name(v->options.file),
               bench_kind_name(v->config.kind), bench_metric_name(v->config.metric), dci_dtype_name(v->config.dtype),
               v->config.dim, n, v->load_s);
        printf("check: %s in %.3f s%s%s\n", v->passed ? "passed" : "FAILED", v->check_s, v->passed ? "" : ": ",
               v->sentence);
        if (v->n_rows == 0)
                return;
        printf("\n%8s  %8s  %6s  %8s  %8s  %12s  %10s\n", "queries", "effort", "k", "recall", "self", "dist/query",
               "us/query");
        for (size_t i = 0; i < v->n_rows; i++) {
                const verify_row *r = &v->rows[i];
                char self[32] = "-";
                if (!isnan(r->self))
                        snprintf(self, sizeof self, "%.4f", r->self);
                printf("%8s  %8s  %6zu  %8.4f  %8s  %12.1f  %10.1f\n", r->own ? "own" : "given", r->effort, v->k,
                       r->recall, self, r->dist_comps, r->query_us);
        }
}

static json_t *rows_json(const verify_state *v)
{
        json_t *rows = json_array();
        for (size_t i = 0; rows != NULL && i < v->n_rows; i++) {
                const verify_row *r = &v->rows[i];
                json_t *row = json_pack("{s:s, s:s, s:I, s:f, s:o, s:f, s:f}", "queries", r->own ? "own" : "given",
                                        "effort", r->effort, "k", (json_int_t)v->k, "recall", r->recall, "self",
                                        isnan(r->self) ? json_null() : json_real(r->self), "dist_comps", r->dist_comps,
                                        "query_us", r->query_us);
                if (json_array_append_new(rows, row) != 0) {
                        json_decref(rows);
                        return NULL;
                }
        }
        return rows;
}

static json_t *report_json(const verify_state *v, int argc, char **argv)
{
        char name[256];
        bench_name(name, sizeof name, bench_base_name(v->options.file));
        return json_pack("{s:o, s:o, s:{s:s, s:s, s:s, s:s, s:I, s:I, s:i, s:f}, s:{s:b, s:b, s:s, s:f}, s:f, s:o}",
                         "machine", bench_machine_json(v->context), "command", bench_command_json(argc, argv), "index",
                         "file", name, "kind", bench_kind_name(v->config.kind), "metric",
                         bench_metric_name(v->config.metric), "dtype", dci_dtype_name(v->config.dtype), "dim",
                         (json_int_t)v->config.dim, "n", (json_int_t)v->n, "sketch_bits", (int)v->config.sketch_bits,
                         "load_s", v->load_s, "check", "passed", (int)v->passed, "structure", (int)v->whole, "sentence",
                         v->sentence, "seconds", v->check_s, "perturb", v->options.perturb, "rows", rows_json(v));
}

/* --- the run ---------------------------------------------------------------------------------------------------------------------------- */

/* Searches run over what its structure says, so that must hold; wrong codes and projections are what recall may show. */
static dci_status ask(verify_state *v, verify_queries own_and_given[2])
{
        if (!v->whole || v->n == 0)
                return DCI_OK;
        DCI_TRY(take_rows(v));
        if (v->options.sample > 0)
                DCI_TRY(take_sample(v, &own_and_given[0]));
        if (v->options.queries != NULL)
                DCI_TRY(take_queries(v, &own_and_given[1]));
        DCI_TRY(measure(v, &own_and_given[0]));
        return measure(v, &own_and_given[1]);
}

static dci_status run(verify_state *v, verify_queries queries[2], int argc, char **argv)
{
        DCI_TRY(v->options.json != NULL ? bench_check_writable(v->options.json) : DCI_OK);
        DCI_TRY(load(v));
        DCI_TRY(check(v));
        DCI_TRY(ask(v, queries));
        print_report(v);
        if (v->options.json != NULL)
                DCI_TRY(bench_write_json(report_json(v, argc, argv), v->options.json));
        if (!v->passed)
                return dci_fail(BENCH_ERR_RUN, "%s: %s", v->options.file, v->sentence);
        return DCI_OK;
}

int bench_verify(int argc, char **argv)
{
        static verify_state v; /* zero; too long for a stack frame */
        verify_queries queries[2] = {0};
        bool asked = false;
        dci_status status = parse(argc, argv, &v.options, &asked);
        if (status == DCI_OK && asked) {
                printf("%s", help);
                return BENCH_EXIT_OK;
        }
        if (status == DCI_OK)
                status = run(&v, queries, argc, argv);
        const int code = status == DCI_OK ? BENCH_EXIT_OK : bench_report_error("verify", status);
        const size_t n_sample = v.options.sample < v.n ? v.options.sample : v.n;
        for (size_t i = 0; i < 2; i++) {
                bench_truth_free(&queries[i].truth);
                bench_rows_free(&queries[i].rows);
        }
        dci_index_destroy(v.index);
        bench_rows_free(&v.base);
        dci_free(v.context, v.ids, v.n, sizeof *v.ids);
        dci_free(v.context, v.sample_ids, n_sample, sizeof *v.sample_ids);
        dci_context_destroy(v.context);
        return code;
}
