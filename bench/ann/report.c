/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/common/report.h"
#include "bench/ann/ann.h"

#include <math.h>
#include <string.h>

#define CELL_BYTES 96

typedef struct column {
        const char *title;
        void (*print)(const ann_row *row, char *out); /* CELL_BYTES */
} column;

static void print_index(const ann_row *row, char *out)
{
        if (row->arm->kind == DCI_KIND_AUTO)
                snprintf(out, CELL_BYTES, "auto: %s", bench_kind_name(row->used));
        else
                snprintf(out, CELL_BYTES, "%s", bench_kind_name(row->arm->kind));
}

/* What the row was measured with, as far as its kind asks for anything. */
static void print_effort(const ann_row *row, char *out)
{
        const bench_index_options *o = &row->options->index;
        const bench_effort *e = &row->effort;
        int n = 0;
        *out = '\0';
        if (e->recall > 0.0) {
                snprintf(out, CELL_BYTES, "for %g", e->recall);
                return;
        }
        if (row->used == DCI_KIND_PDCI)
                snprintf(out, CELL_BYTES, "%zux%zu visit %g retrieve %g", o->num_comp_indices, o->num_simp_indices,
                         e->prop_to_visit, e->prop_to_retrieve);
        if (row->used != DCI_KIND_MDCI)
                return;
        if (e->field_of_view > 0)
                n = snprintf(out, CELL_BYTES, "%g view %zu", o->promotion_prob, e->field_of_view);
        else
                n = snprintf(out, CELL_BYTES, "%g visit %g", o->promotion_prob, e->prop_to_visit);
        if (o->cell_simp_indices > 0)
                snprintf(out + n, CELL_BYTES - (size_t)n, " cell %zu retrieve %g", o->cell_simp_indices,
                         e->prop_to_retrieve);
}

/* The same of codes: their width, and what was scored of what they ranked. */
static void print_codes(const ann_row *row, char *out, size_t size)
{
        const bench_effort *e = &row->effort;
        const int n = snprintf(out, size, "%d bit%s%s", (int)row->used_bits, row->used_bits == 1 ? "" : "s",
                               row->arm->fitted ? " fitted" : "");
        if (e->guarantee > 0)
                snprintf(out + n, size - (size_t)n, " guarantee %g", e->guarantee);
        else if (e->recall > 0.0) /* the rest is said */
                return;
        else if (isinf(e->rerank))
                snprintf(out + n, size - (size_t)n, " all");
        else if (e->rerank > 0)
                snprintf(out + n, size - (size_t)n, " x%g", e->rerank);
}

static void print_params(const ann_row *row, char *out)
{
        print_effort(row, out);
        size_t n = strlen(out);
        if (row->used_bits > 0) {
                if (n > 0)
                        out[n++] = ' ';
                print_codes(row, out + n, CELL_BYTES - n);
        } else if (n == 0) {
                snprintf(out, CELL_BYTES, "-");
        }
}

static void print_rows(const ann_row *row, char *out)
{
        snprintf(out, CELL_BYTES, "%s", dci_dtype_name(row->rows));
}

static void print_mode(const ann_row *row, char *out)
{
        snprintf(out, CELL_BYTES, "%s", bench_mode_name(row->mode));
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
        if (row->mode == BENCH_MODE_ONE)
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

/* Of what was done in a round. */
static double total(const ann_row *row)
{
        return row->build_s.median + (double)row->n_queries / row->qps.median;
}

static void print_run_total(const ann_row *row, char *out)
{
        snprintf(out, CELL_BYTES, "%.4f", total(row));
}

static void print_groups(const ann_row *row, char *out)
{
        if (row->options->group > 0)
                bench_format_count(out, CELL_BYTES, row->qps.median / (double)row->options->group);
        else
                snprintf(out, CELL_BYTES, "-");
}

static void print_total(const ann_row *row, char *out)
{
        snprintf(out, CELL_BYTES, "%.3f", total_1k(row));
}

static const column columns[] = {
        {"index", print_index},
        {"params", print_params},
        {"rows", print_rows},
        {"mode", print_mode},
        {"build s", print_build},
        {"queries/s", print_qps},
        {"groups/s", print_groups},
        {"min..max", print_spread},
        {"read floor/s", print_floor},
        {"of floor", print_ratio},
        {"recall", print_recall},
        {"share", print_share},
        {"dist/query", print_distances},
        {"of n", print_of_n},
        {"memory", print_bytes},
        {"1k s", print_total},
        {"total s", print_run_total},
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
               dci_dtype_name(data->base.dtype), n_queries, bench_metric_name(job->metric), job->k);
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

static json_t *row_json(const ann_report *report, const ann_row *row)
{
        return json_pack(
                "{s:s, s:o, s:s, s:s, s:s, s:s, s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f,"
                " s:f, s:f, s:o, s:f, s:f}",
                "index", bench_kind_name(row->arm->kind), "params",
                bench_params_json(&row->options->index, row->arm->kind, &row->effort), "dataset",
                report->job->dataset->name, "mode", bench_mode_name(row->mode), "rows", dci_dtype_name(row->rows),
                "metric", bench_metric_name(row->metric), "isa", report->machine.isa, "threads", (int)row->threads, "n",
                (json_int_t)row->n, "dim", (json_int_t)row->dim, "k", (json_int_t)row->k, "n_queries",
                (json_int_t)row->n_queries, "bytes", (json_int_t)row->bytes, "build_s", row->build_s.median,
                "build_s_min", row->build_s.min, "build_s_max", row->build_s.max, "qps", row->qps.median, "qps_min",
                row->qps.min, "qps_max", row->qps.max, "read_floor_qps", row->read_floor_qps, "recall", row->recall,
                "share", row->share >= 0 ? json_real(row->share) : json_null(), "dist_comps", row->dist_comps,
                "candidates", row->candidates);
}

/* Without codes all rows that are looked at are scored. */
static bool add_codes(json_t *json, const ann_row *row)
{
        const ann_arm *arm = row->arm;
        const bench_effort *e = &row->effort;
        const bool all = row->used_bits == 0 || isinf(e->rerank);
        return json_object_set_new(json, "used", json_string(bench_kind_name(row->used))) == 0 &&
               json_object_set_new(json, "sketch_bits", json_integer(row->used_bits)) == 0 &&
               json_object_set_new(json, "fitted", json_boolean(arm->fitted)) == 0 &&
               json_object_set_new(json, "rerank", all ? json_null() : json_real(e->rerank)) == 0 &&
               json_object_set_new(json, "guarantee", e->guarantee > 0 ? json_real(e->guarantee) : json_null()) == 0 &&
               json_object_set_new(json, "proposed", json_real(row->proposed)) == 0;
}

/* What came later than the rest, so that a reader of older reports finds everything in its place. */
static bool add_more(json_t *json, const ann_row *row)
{
        const size_t group = row->options->group;
        return json_object_set_new(json, "total1k", json_real(total_1k(row))) == 0 &&
               json_object_set_new(json, "total", json_real(total(row))) == 0 &&
               json_object_set_new(json, "group", group > 0 ? json_integer((json_int_t)group) : json_null()) == 0 &&
               json_object_set_new(json, "group_result",
                                   group == 0 ? json_null()
                                              : json_string(row->options->group_union ? "union" : "each")) == 0 &&
               json_object_set_new(json, "groups_per_s",
                                   group > 0 ? json_real(row->qps.median / (double)group) : json_null()) == 0 &&
               json_object_set_new(json, "tree", bench_tree_json(&row->tree)) == 0 && add_codes(json, row);
}

static json_t *report_json(const ann_report *report)
{
        json_t *rows = json_array();
        bool whole = rows != NULL;
        for (size_t i = 0; whole && i < report->n_rows; i++) {
                json_t *row = row_json(report, &report->rows[i]);
                whole = row != NULL && add_more(row, &report->rows[i]) && json_array_append(rows, row) == 0;
                json_decref(row);
        }
        if (!whole) {
                json_decref(rows);
                return NULL;
        }
        return json_pack("{s:o, s:o, s:{s:s, s:i, s:f}, s:o}", "machine", bench_machine_json(report->job->context),
                         "command", bench_command_json(report->argc, report->argv), "truth", "origin",
                         report->job->truth->origin, "checked", (int)report->job->truth->checked, "recall_tolerance",
                         BENCH_RECALL_TOLERANCE, "rows", rows);
}

dci_status ann_write_json(const ann_report *report, const char *path)
{
        return bench_write_json(report_json(report), path);
}
