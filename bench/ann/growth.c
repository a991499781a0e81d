/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The subcommand growth: the exponents by which build and query time grow with the number of rows. */
#include <math.h>
#include <string.h>

#include "bench/common/exact.h"
#include "bench/common/report.h"

/* Builds are repeated for a median, but not for longer than this per size. */
#define BUILD_SECONDS 10.0

typedef struct growth_options {
        bench_index_options index;
        dci_index_kind kind; /* the only one of them */
        bench_synthetic rows;
        bench_sizes sizes;
        size_t n_queries, k, repeat;
        double recall; /* that an effort must reach */
        const char *json;
} growth_options;

typedef struct growth_row {
        size_t n;
        double build_s;
        bool reached; /* the recall, by `effort`; else effort is the last that was tried */
        bench_effort effort;
        double recall, query_us, dist_comps;
        size_t bytes;
        dci_tree_stats tree;
} growth_row;

typedef struct growth_state {
        growth_options options;
        dci_context *helper, *measured;
        bench_rows base, queries;
        int64_t *truth, *found; /* n_queries x k */
        dci_index *index;
        growth_row rows[BENCH_MAX_SHARES];
} growth_state;

/* --- options --------------------------------------------------------------------------------------------------------------- */

/* clang-format off */
static const char help_usage[] =
        "usage: dci-bench growth [options]\n"
        "\n"
        "Builds an index of synthetic rows of several sizes and finds, for each, the first effort of a list that reaches a\n"
        "recall; prints build time, time per query at that effort, distances and memory, and the exponents of a least\n"
        "squares fit of their logarithms to that of the number of rows. Metric: squared L2. One query per call.\n"
        "\n"
        "rows: --latent normal coordinates times a random linear map to --dim, plus a little normal noise\n"
        "  --sizes LIST              numbers of rows, comma separated (default 10000,100000,1000000)\n"
        "  --dim D                   elements per row, 1 to 65536 (default 128)\n"
        "  --latent D                dimensions that they really vary in, 1 to 65536 (default 16)\n"
        "  --noise S                 standard deviation of the noise in each element, above 0 and at most 1 (default 0.01; the\n"
        "                            elements' own is about 1)\n"
        "  --queries N               further such rows, 1 to 1000000 (default 200)\n"
        "\n"
        "what to measure:\n"
        "  --k K                     neighbours per query, 1 to 65536 (default 10)\n"
        "  --recall R                that an effort must reach against exact search, above 0 and at most 1 (default 0.95)\n"
        "  --kind KIND               index kind: flat, pdci, mdci or auto (default mdci)\n"
        "  --repeat R                timed rounds, whose median counts, 1 to 1000 (default 3); builds stop after 10 seconds\n";

static const char help_output[] =
        "  The efforts are tried in the order of the lists; give them from small to large. Default: pdci as in 'ann',\n"
        "  mdci --field-of-view 1,2,3,4,6,8,11,16,23,32,45,64,91,128,181,256,362,512,724,1024,1448,2048,2896,4096\n"
        "  --seed draws the rows, too.\n"
        "\n"
        "output:\n"
        "  --json FILE               also write {machine, command, params, exponents, rows}; an exponent is null where fewer than\n"
        "                            two sizes say something\n"
        "  --help                    this text\n"
        "\n"
        "exit codes: 0 done; 1 failed: memory, a write; 2 usage error, one sentence on stderr\n"
        "\n"
        "example:\n"
        "  dci-bench growth --sizes 10000,30000,100000 --json growth.json\n";
/* clang-format on */

static dci_status check_options(growth_options *o)
{
        static const bench_sizes views = {24, {1,  2,   3,   4,   6,   8,   11,  16,   23,   32,   45,   64,
                                               91, 128, 181, 256, 362, 512, 724, 1024, 1448, 2048, 2896, 4096}};
        for (size_t i = 1; i < o->sizes.n; i++)
                if (o->sizes.values[i] <= o->sizes.values[i - 1])
                        return dci_fail(DCI_ERR_INVALID, "--sizes: %zu after %zu; they must grow", o->sizes.values[i],
                                        o->sizes.values[i - 1]);
        if (o->k > o->sizes.values[0])
                return dci_fail(DCI_ERR_INVALID, "--k %zu is more than the smallest of --sizes, %zu", o->k,
                                o->sizes.values[0]);
        DCI_TRY(bench_one_kind(&o->index, &o->kind));
        DCI_TRY(bench_index_options_finish(&o->index, true));
        if (bench_has_kind(&o->index, DCI_KIND_MDCI) && o->index.prop_to_visit.n == 0 && o->index.field_of_view.n == 0)
                o->index.field_of_view = views;
        o->rows.seed = o->index.seed;
        return DCI_OK;
}

static dci_status parse(int argc, char **argv, growth_options *o, bool *out_help)
{
        static const bench_sizes sizes = {3, {10000, 100000, 1000000}};
        const bench_option own[] = {
                {"sizes", OPTION_SIZES, &o->sizes, 1, (size_t)1 << 30, NULL},
                {"dim", OPTION_SIZE, &o->rows.dim, 1, 65536, NULL},
                {"latent", OPTION_SIZE, &o->rows.latent, 1, 65536, NULL},
                {"noise", OPTION_SHARE, &o->rows.noise, 0, 0, NULL},
                {"queries", OPTION_SIZE, &o->n_queries, 1, 1000000, NULL},
                {"k", OPTION_SIZE, &o->k, 1, 65536, NULL},
                {"recall", OPTION_SHARE, &o->recall, 0, 0, NULL},
                {"repeat", OPTION_SIZE, &o->repeat, 1, 1000, NULL},
                {"json", OPTION_TEXT, &o->json, 0, 0, NULL},
        };
        enum { N_OWN = sizeof own / sizeof *own };
        bench_option table[N_OWN + BENCH_INDEX_OPTIONS];
        memset(o, 0, sizeof *o);
        o->sizes = sizes;
        o->rows = (bench_synthetic){.dim = 128, .latent = 16, .noise = 0.01};
        o->n_queries = 200;
        o->k = 10;
        o->repeat = 3;
        o->recall = 0.95;
        memcpy(table, own, sizeof own);
        bench_index_options_list(&o->index, 1 << DCI_KIND_MDCI, table + N_OWN);
        dci_status status = bench_parse_options(argc, argv, table, sizeof table / sizeof *table, out_help);
        if (status == DCI_OK && !*out_help)
                status = check_options(o);
        return status == DCI_OK ? status : bench_fail_more(status, "; try 'dci-bench growth --help'");
}

/* --- measuring --------------------------------------------------------------------------------------------------------------- */

/* FLAT scores the rows where they are. */
static dci_status find_truth(growth_state *g, size_t n)
{
        dci_index_config config;
        dci_index *exact = NULL;
        dci_status status = dci_index_config_init(&config, sizeof config);
        config.dim = g->base.dim;
        config.storage = DCI_ROWS_BORROWED;
        if (status == DCI_OK)
                status = dci_index_create(g->helper, &config, &exact);
        if (status == DCI_OK)
                status = dci_index_add(exact, n, g->base.data, g->base.dim, NULL, NULL);
        if (status == DCI_OK)
                status = dci_index_search(exact, g->queries.n, g->queries.data, g->queries.dim, g->options.k, NULL,
                                          g->truth, NULL);
        dci_index_destroy(exact);
        return status;
}

static dci_status build(growth_state *g, growth_row *row)
{
        double seconds[1000], spent = 0; /* --repeat is at most that */
        size_t n = 0;
        for (; n < g->options.repeat && (n == 0 || spent < BUILD_SECONDS); n++) {
                dci_index_destroy(g->index);
                g->index = NULL;
                const double start = bench_seconds();
                DCI_TRY(bench_index_create(g->measured, &g->options.index, g->options.kind, DCI_METRIC_L2, g->base.dim,
                                           DCI_F32, DCI_F32, &g->index));
                DCI_TRY(dci_index_add(g->index, row->n, g->base.data, g->base.dim, NULL, NULL));
                seconds[n] = bench_seconds() - start;
                spent += seconds[n];
        }
        row->build_s = bench_spread_of(seconds, n).median;
        return DCI_OK;
}

/* One round: one query per call. */
static dci_status search(growth_state *g, growth_row *row, double *out_seconds)
{
        uint64_t distances = 0;
        dci_search_params params;
        dci_search_stats stats;
        bench_effort_params(&row->effort, &params);
        dci_search_stats_init(&stats, sizeof stats);
        params.stats = &stats;
        const double start = bench_seconds();
        for (size_t i = 0; i < g->queries.n; i++) {
                dci_status status =
                        dci_index_search(g->index, 1, (const float *)g->queries.data + i * g->queries.dim,
                                         g->queries.dim, g->options.k, &params, g->found + i * g->options.k, NULL);
                if (status != DCI_OK)
                        return status;
                distances += stats.distances;
        }
        *out_seconds = bench_seconds() - start;
        row->dist_comps = (double)distances / (double)g->queries.n;
        return DCI_OK;
}

static dci_status find_effort(growth_state *g, growth_row *row)
{
        const bench_rows rows = bench_rows_view(&g->base, row->n);
        const bench_found within = {&rows, NULL, row->n, DCI_METRIC_L2, 0};
        const size_t n_efforts = bench_effort_count(&g->options.index, g->options.kind), k = g->options.k;
        double seconds;
        for (size_t e = 0; !row->reached && e < n_efforts; e++) {
                row->effort = bench_effort_at(&g->options.index, g->options.kind, e);
                DCI_TRY(search(g, row, &seconds));
                DCI_TRY(bench_recall(g->helper, &within, &g->queries, k, k, g->truth, g->found, &row->recall));
                row->reached = row->recall >= g->options.recall;
        }
        return DCI_OK;
}

static dci_status measure(growth_state *g, growth_row *row)
{
        double seconds[1000];
        dci_memory_report memory;
        dci_memory_report_init(&memory, sizeof memory);
        DCI_TRY(find_truth(g, row->n));
        DCI_TRY(build(g, row));
        DCI_TRY(find_effort(g, row));
        for (size_t i = 0; i < g->options.repeat; i++)
                DCI_TRY(search(g, row, &seconds[i]));
        DCI_TRY(dci_index_memory(g->index, &memory));
        row->query_us = 1e6 * bench_spread_of(seconds, g->options.repeat).median / (double)g->queries.n;
        row->bytes = memory.total;
        row->tree = bench_tree_of(g->index);
        return DCI_OK;
}

/* --- the report -------------------------------------------------------------------------------------------------------------- */

enum { GROWTH_BUILD, GROWTH_QUERY, GROWTH_DISTANCES, GROWTH_MEMORY, N_GROWTH };

static double value_of(const growth_row *row, int what)
{
        const double values[N_GROWTH] = {row->build_s, row->query_us, row->dist_comps, (double)row->bytes};
        return values[what];
}

/* The slope of log(value) over log(n); NAN with fewer than two sizes. What an effort decides needs one that sufficed. */
static double exponent(const growth_state *g, int what)
{
        double sx = 0, sy = 0, sxx = 0, sxy = 0, m = 0;
        for (size_t i = 0; i < g->options.sizes.n; i++) {
                const growth_row *row = &g->rows[i];
                if (!row->reached && (what == GROWTH_QUERY || what == GROWTH_DISTANCES))
                        continue;
                const double x = log((double)row->n), y = log(value_of(row, what));
                sx += x;
                sy += y;
                sxx += x * x;
                sxy += x * y;
                m += 1;
        }
        return m < 2 ? NAN : (m * sxy - sx * sy) / (m * sxx - sx * sx);
}

static void print_effort(const bench_effort *effort, char *out, size_t size)
{
        if (effort->field_of_view > 0)
                snprintf(out, size, "view %zu", effort->field_of_view);
        else
                snprintf(out, size, "visit %g retrieve %g", effort->prop_to_visit, effort->prop_to_retrieve);
}

static void print_report(const growth_state *g)
{
        const growth_options *o = &g->options;
        char n[32], effort[64];
        printf("%s, squared L2, %zu elements of %zu dimensions, %zu queries, k %zu, recall %g\n\n",
               bench_kind_name(o->kind), o->rows.dim, o->rows.latent, g->queries.n, o->k, o->recall);
        printf("%12s  %10s  %24s  %8s  %10s  %12s  %10s\n", "rows", "build s", "effort", "recall", "us/query",
               "dist/query", "bytes/row");
        for (size_t i = 0; i < o->sizes.n; i++) {
                const growth_row *r = &g->rows[i];
                bench_format_count(n, sizeof n, (double)r->n);
                print_effort(&r->effort, effort, sizeof effort);
                printf("%12s  %10.4f  %24s  %8.4f  %10.1f  %12.1f  %10.1f%s\n", n, r->build_s, effort, r->recall,
                       r->query_us, r->dist_comps, (double)r->bytes / (double)r->n,
                       r->reached ? "" : "  recall not reached");
        }
        printf("\nexponents in the number of rows: build %.3f, query %.3f, distances %.3f, memory %.3f\n\n",
               exponent(g, GROWTH_BUILD), exponent(g, GROWTH_QUERY), exponent(g, GROWTH_DISTANCES),
               exponent(g, GROWTH_MEMORY));
}

static json_t *exponent_json(const growth_state *g, int what)
{
        const double value = exponent(g, what);
        return isfinite(value) ? json_real(value) : json_null();
}

static json_t *report_json(const growth_state *g, int argc, char **argv)
{
        const growth_options *o = &g->options;
        json_t *rows = json_array();
        for (size_t i = 0; rows != NULL && i < o->sizes.n; i++) {
                const growth_row *r = &g->rows[i];
                json_t *row =
                        json_pack("{s:I, s:f, s:b, s:o, s:f, s:f, s:f, s:I, s:f, s:o}", "n", (json_int_t)r->n,
                                  "build_s", r->build_s, "reached", (int)r->reached, "params",
                                  bench_params_json(&o->index, g->options.kind, &r->effort), "recall", r->recall,
                                  "query_us", r->query_us, "dist_comps", r->dist_comps, "bytes", (json_int_t)r->bytes,
                                  "bytes_per_row", (double)r->bytes / (double)r->n, "tree", bench_tree_json(&r->tree));
                if (json_array_append_new(rows, row) != 0) {
                        json_decref(rows);
                        return NULL;
                }
        }
        return json_pack("{s:o, s:o, s:{s:I, s:I, s:f, s:I}, s:I, s:I, s:f, s:i, s:{s:o, s:o, s:o, s:o}, s:o}",
                         "machine", bench_machine_json(g->measured), "command", bench_command_json(argc, argv),
                         "synthetic", "dim", (json_int_t)o->rows.dim, "latent", (json_int_t)o->rows.latent, "noise",
                         o->rows.noise, "seed", (json_int_t)o->rows.seed, "n_queries", (json_int_t)g->queries.n, "k",
                         (json_int_t)o->k, "wanted_recall", o->recall, "threads", (int)dci_context_threads(g->measured),
                         "exponents", "build", exponent_json(g, GROWTH_BUILD), "query", exponent_json(g, GROWTH_QUERY),
                         "distances", exponent_json(g, GROWTH_DISTANCES), "memory", exponent_json(g, GROWTH_MEMORY),
                         "rows", rows);
}

/* --- the run ------------------------------------------------------------------------------------------------------------------ */

static dci_status run(growth_state *g, int argc, char **argv)
{
        const growth_options *o = &g->options;
        bench_progress progress;
        DCI_TRY(o->json != NULL ? bench_check_writable(o->json) : DCI_OK);
        DCI_TRY(bench_context(&o->index, o->index.threads, &g->measured));
        DCI_TRY(bench_context(&o->index, 0, &g->helper));
        DCI_TRY(bench_synthetic_rows(g->helper, &o->rows, 0, o->sizes.values[o->sizes.n - 1], &g->base));
        DCI_TRY(bench_synthetic_rows(g->helper, &o->rows, 1, o->n_queries, &g->queries));
        g->truth = dci_alloc(g->helper, o->n_queries, o->k * sizeof *g->truth);
        g->found = dci_alloc(g->helper, o->n_queries, o->k * sizeof *g->found);
        dci_status status = g->truth != NULL && g->found != NULL ? DCI_OK : DCI_ERR_MEMORY;
        bench_progress_begin(&progress, "sizes");
        for (size_t i = 0; status == DCI_OK && i < o->sizes.n; i++) {
                bench_progress_step(&progress, i, o->sizes.n);
                g->rows[i].n = o->sizes.values[i];
                status = measure(g, &g->rows[i]);
        }
        bench_progress_end(&progress);
        if (status != DCI_OK)
                return status;
        print_report(g);
        return o->json != NULL ? bench_write_json(report_json(g, argc, argv), o->json) : DCI_OK;
}

int bench_growth(int argc, char **argv)
{
        static growth_state g; /* zero; too long for a stack frame */
        bool help;
        dci_status status = parse(argc, argv, &g.options, &help);
        if (status == DCI_OK && help) {
                printf("%s%s%s", help_usage, bench_index_help, help_output);
                return BENCH_EXIT_OK;
        }
        if (status == DCI_OK)
                status = run(&g, argc, argv);
        int code = status == DCI_OK ? BENCH_EXIT_OK : bench_report_error("growth", status);
        dci_index_destroy(g.index);
        dci_free(g.helper, g.truth, g.options.n_queries, g.options.k * sizeof *g.truth);
        dci_free(g.helper, g.found, g.options.n_queries, g.options.k * sizeof *g.found);
        bench_rows_free(&g.base);
        bench_rows_free(&g.queries);
        dci_context_destroy(g.helper);
        dci_context_destroy(g.measured);
        return code;
}
