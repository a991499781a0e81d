/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/ann.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CELL_BYTES 64

typedef struct column {
        const char *title;
        void (*print)(const ann_row *row, char *out); /* CELL_BYTES */
} column;

static void print_index(const ann_row *row, char *out)
{
        snprintf(out, CELL_BYTES, "%s", ann_kind_name(row->kind));
}

/* What the row was measured with, as far as its kind asks for anything. */
static void print_params(const ann_row *row, char *out)
{
        if (row->kind == DCI_KIND_PDCI)
                snprintf(out, CELL_BYTES, "%zux%zu visit %g retrieve %g", row->num_comp_indices, row->num_simp_indices,
                         row->prop_to_visit, row->prop_to_retrieve);
        else
                snprintf(out, CELL_BYTES, "-");
}

static void print_rows(const ann_row *row, char *out)
{
        snprintf(out, CELL_BYTES, "%s", dci_dtype_name(row->rows));
}

static const char *mode_name(int32_t mode)
{
        return mode == ANN_MODE_ONE ? "one" : "batch";
}

static void print_mode(const ann_row *row, char *out)
{
        snprintf(out, CELL_BYTES, "%s", mode_name(row->mode));
}

static void print_build(const ann_row *row, char *out)
{
        snprintf(out, CELL_BYTES, "%.4f", row->build_s.median);
}

static void print_qps(const ann_row *row, char *out)
{
        bench_format_count(out, CELL_BYTES, row->qps.median);
}

static void print_spread(const ann_row *row, char *out)
{
        char min[CELL_BYTES / 2], max[CELL_BYTES / 2];
        bench_format_count(min, sizeof min, row->qps.min);
        bench_format_count(max, sizeof max, row->qps.max);
        snprintf(out, CELL_BYTES, "%.28s..%.28s", min, max);
}

static void print_floor(const ann_row *row, char *out)
{
        bench_format_count(out, CELL_BYTES, row->read_floor_qps);
}

static void print_ratio(const ann_row *row, char *out)
{
        if (row->mode == ANN_MODE_ONE)
                snprintf(out, CELL_BYTES, "%.2f", row->qps.median / row->read_floor_qps);
        else
                snprintf(out, CELL_BYTES, "-");
}

static void print_recall(const ann_row *row, char *out)
{
        snprintf(out, CELL_BYTES, "%.4f", row->recall);
}

static void print_share(const ann_row *row, char *out)
{
        if (row->share >= 0)
                snprintf(out, CELL_BYTES, "%.4f", row->share);
        else
                snprintf(out, CELL_BYTES, "-");
}

static void print_distances(const ann_row *row, char *out)
{
        bench_format_count(out, CELL_BYTES, row->dist_comps);
}

static void print_of_n(const ann_row *row, char *out)
{
        snprintf(out, CELL_BYTES, "%.2f %%", 100 * row->dist_comps / (double)row->n);
}

static void print_bytes(const ann_row *row, char *out)
{
        bench_format_bytes(out, CELL_BYTES, row->bytes);
}

static double total_1k(const ann_row *row)
{
        return row->build_s.median + 1000 / row->qps.median;
}

static void print_total(const ann_row *row, char *out)
{
        snprintf(out, CELL_BYTES, "%.3f", total_1k(row));
}

static const column columns[] = {
        {"index", print_index},     {"params", print_params},      {"rows", print_rows},
        {"mode", print_mode},       {"build s", print_build},      {"queries/s", print_qps},
        {"min..max", print_spread}, {"read floor/s", print_floor}, {"of floor", print_ratio},
        {"recall", print_recall},   {"share", print_share},        {"dist/query", print_distances},
        {"of n", print_of_n},       {"memory", print_bytes},       {"1k s", print_total},
};
#define N_COLUMNS (sizeof columns / sizeof *columns)

static void print_head(const ann_report *report)
{
        const ann_job *job = report->job;
        const bench_dataset *data = job->dataset;
        char n[CELL_BYTES], n_queries[CELL_BYTES];
        int32_t threads = dci_context_threads(job->context);
        bench_format_count(n, sizeof n, (double)data->base.n);
        bench_format_count(n_queries, sizeof n_queries, (double)data->queries.n);
        printf("%s: %s rows of %zu %s, %s queries, %s, k %zu\n", data->name, n, data->base.dim,
               dci_dtype_name(data->base.dtype), n_queries, ann_metric_name(job->metric), job->k);
        printf("%s, %ld cores, %s, %d thread%s, dci %s, %s\n", report->machine.cpu, report->machine.cores,
               report->machine.isa, threads, threads == 1 ? "" : "s", report->machine.library_version,
               report->machine.compiler);
        printf("truth: %s, %zu queries verified in double precision; rounds measured: %zu\n\n", job->truth->origin,
               job->truth->checked, job->options->repeat);
}

void ann_print_table(const ann_report *report)
{
        size_t widths[N_COLUMNS];
        char cell[CELL_BYTES];
        print_head(report);
        for (size_t c = 0; c < N_COLUMNS; c++) {
                widths[c] = strlen(columns[c].title);
                for (size_t r = 0; r < report->n_rows; r++) {
                        columns[c].print(&report->rows[r], cell);
                        widths[c] = strlen(cell) > widths[c] ? strlen(cell) : widths[c];
                }
        }
        for (size_t c = 0; c < N_COLUMNS; c++)
                printf("%s%*s", c > 0 ? "  " : "", (int)widths[c], columns[c].title);
        printf("\n");
        for (size_t r = 0; r < report->n_rows; r++) {
                for (size_t c = 0; c < N_COLUMNS; c++) {
                        columns[c].print(&report->rows[r], cell);
                        printf("%s%*s", c > 0 ? "  " : "", (int)widths[c], cell);
                }
                printf("\n");
        }
        printf("\n");
}

/* The index and the effort of the search; flat has nothing to choose and always spends everything. */
static json_t *params_json(const ann_row *row)
{
        const char *kind = ann_kind_name(row->kind);
        if (row->kind != DCI_KIND_PDCI)
                return json_pack("{s:s}", "kind", kind);
        return json_pack("{s:s, s:I, s:I, s:I, s:f, s:f}", "kind", kind, "num_comp_indices",
                         (json_int_t)row->num_comp_indices, "num_simp_indices", (json_int_t)row->num_simp_indices,
                         "seed", (json_int_t)row->seed, "prop_to_visit", row->prop_to_visit, "prop_to_retrieve",
                         row->prop_to_retrieve);
}

static json_t *row_json(const ann_report *report, const ann_row *row)
{
        return json_pack(
                "{s:s, s:o, s:s, s:s, s:s, s:s, s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f,"
                " s:f, s:f, s:o, s:f, s:f}",
                "index", ann_kind_name(row->kind), "params", params_json(row), "dataset", report->job->dataset->name,
                "mode", mode_name(row->mode), "rows", dci_dtype_name(row->rows), "metric", ann_metric_name(row->metric),
                "isa", report->machine.isa, "threads", (int)row->threads, "n", (json_int_t)row->n, "dim",
                (json_int_t)row->dim, "k", (json_int_t)row->k, "n_queries", (json_int_t)row->n_queries, "bytes",
                (json_int_t)row->bytes, "build_s", row->build_s.median, "build_s_min", row->build_s.min, "build_s_max",
                row->build_s.max, "qps", row->qps.median, "qps_min", row->qps.min, "qps_max", row->qps.max,
                "read_floor_qps", row->read_floor_qps, "recall", row->recall, "share",
                row->share >= 0 ? json_real(row->share) : json_null(), "dist_comps", row->dist_comps, "candidates",
                row->candidates);
}

static json_t *report_json(const ann_report *report)
{
        const bench_machine *m = &report->machine;
        json_t *rows = json_array(), *command = json_array();
        bool whole = rows != NULL && command != NULL;
        for (size_t i = 0; whole && i < report->n_rows; i++) {
                json_t *row = row_json(report, &report->rows[i]);
                whole = row != NULL &&
                        json_object_set_new(row, "total1k", json_real(total_1k(&report->rows[i]))) == 0 &&
                        json_array_append_new(rows, row) == 0;
        }
        json_array_append_new(command, json_string("dci-bench"));
        for (int i = 0; whole && i < report->argc; i++) {
                /* An argument that is not UTF-8 cannot be named in JSON. */
                json_t *argument = json_string(report->argv[i]);
                whole = json_array_append_new(command, argument != NULL ? argument : json_string("?")) == 0;
        }
        if (!whole) {
                json_decref(rows);
                json_decref(command);
                return NULL;
        }
        return json_pack("{s:{s:s, s:i, s:s, s:s, s:s, s:s}, s:o, s:{s:s, s:i, s:f}, s:o}", "machine", "cpu", m->cpu,
                         "cores", (int)m->cores, "isa", m->isa, "compiler", m->compiler, "library", m->library_version,
                         "date", m->date, "command", command, "truth", "origin", report->job->truth->origin, "checked",
                         (int)report->job->truth->checked, "recall_tolerance", BENCH_RECALL_TOLERANCE, "rows", rows);
}

dci_status ann_check_writable(const char *path)
{
        struct stat info;
        char folder[4096];
        if (stat(path, &info) == 0) {
                if (!S_ISDIR(info.st_mode) && access(path, W_OK) == 0)
                        return DCI_OK;
                return dci_fail(DCI_ERR_INVALID, "--json: %s cannot be written", path);
        }
        const char *slash = strrchr(path, '/');
        int n = slash == NULL ? 1 : slash == path ? 1 : (int)(slash - path);
        snprintf(folder, sizeof folder, "%.*s", n, slash == NULL ? "." : path);
        if (access(folder, W_OK) != 0)
                return dci_fail(DCI_ERR_INVALID, "--json: %s cannot be written: %s", path, strerror(errno));
        return DCI_OK;
}

dci_status ann_write_json(const ann_report *report, const char *path)
{
        json_t *json = report_json(report);
        if (json == NULL)
                return dci_fail(DCI_ERR_MEMORY, "--json: the results do not fit in memory");
        FILE *file = fopen(path, "w");
        bool written = file != NULL && json_dumpf(json, file, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0 &&
                       fputc('\n', file) != EOF;
        /* Closing writes what is still buffered: a full disk shows here. */
        if (file != NULL && fclose(file) != 0)
                written = false;
        json_decref(json);
        return written ? DCI_OK : dci_fail(BENCH_ERR_RUN, "--json: %s could not be written: %s", path, strerror(errno));
}
