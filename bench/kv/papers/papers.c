/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/kv/papers/papers.h"

#include <math.h>
#include <string.h>

const papers_figure *const papers_figures[PAPERS_FIGURES] = {
        &papers_token_recall, &papers_cluster_recall, &papers_static_ratio, &papers_reuse_decay,
        &papers_online_ratio, &papers_jaccard,        &papers_frequency,    &papers_boundary,
        &papers_cache_hits,   &papers_fragmentation,  &papers_page_hits,    &papers_resident};

/* Distance of sampled positions: STEP, and LONG_STEP in a decode of LONG tokens or more. */
enum { STEP = 24, LONG_STEP = 240, LONG = 1000, ROOM = 64, CELL_BYTES = 64 };

/* --- what figures ask for ------------------------------------------------------------------------------------------------ */

bench_sizes papers_budgets(const papers_run *run, const bench_sizes *own)
{
        const bench_sizes *asked = run->options->budgets.n > 0 ? &run->options->budgets : own;
        bench_sizes out = {0};
        for (size_t i = 0; i < asked->n; i++)
                if (asked->values[i] < run->trace->prompt)
                        out.values[out.n++] = asked->values[i];
        return out;
}

dci_status papers_each_budget(papers_run *run, const bench_sizes *own, papers_budget fn, void *arg)
{
        const bench_sizes budgets = papers_budgets(run, own);
        papers_block *mark = run->blocks;
        for (size_t i = 0; i < budgets.n; i++) {
                DCI_TRY(fn(run, budgets.values[i], arg));
                papers_release(run, mark);
        }
        return DCI_OK;
}

size_t papers_every(const papers_run *run)
{
        if (run->options->kv.every > 0)
                return run->options->kv.every;
        return run->trace->tokens - run->trace->prompt < LONG ? STEP : LONG_STEP;
}

/* --- memory ------------------------------------------------------------------------------------------------------------------- */

enum { HEAD_BYTES = 64 }; /* of a block, so that what follows is aligned */

void *papers_alloc(papers_run *run, size_t n, size_t size)
{
        const size_t n_bytes = HEAD_BYTES + (n > 0 ? n : 1) * size;
        unsigned char *memory = run->no_memory ? NULL : dci_calloc(run->helper, n_bytes, 1);
        run->no_memory = memory == NULL;
        if (memory == NULL)
                return NULL;
        papers_block *block = (papers_block *)(void *)memory;
        *block = (papers_block){run->blocks, n_bytes};
        run->blocks = block;
        return memory + HEAD_BYTES;
}

dci_status papers_memory(const papers_run *run)
{
        return run->no_memory ? DCI_ERR_MEMORY : DCI_OK;
}

void papers_release(papers_run *run, papers_block *mark)
{
        while (run->blocks != mark) {
                papers_block *block = run->blocks;
                run->blocks = block->before;
                dci_free(run->helper, block, block->n_bytes, 1);
        }
}

/* --- rows ------------------------------------------------------------------------------------------------------------------- */

papers_cell papers_word(const char *text)
{
        papers_cell cell = {.value = (double)NAN};
        snprintf(cell.text, sizeof cell.text, "%s", text);
        return cell;
}

papers_cell papers_number(double value)
{
        const papers_cell cell = {.value = value};
        return cell;
}

papers_cell papers_size(size_t value)
{
        return papers_number((double)value);
}

dci_status papers_add(papers_run *run, const papers_cell *cells)
{
        if (run->n_rows == run->room) {
                const size_t room = run->room > 0 ? 2 * run->room : ROOM;
                papers_row *rows = dci_alloc(run->helper, room, sizeof *rows);
                if (rows == NULL)
                        return DCI_ERR_MEMORY;
                if (run->n_rows > 0)
                        memcpy(rows, run->rows, run->n_rows * sizeof *rows);
                dci_free(run->helper, run->rows, run->room, sizeof *rows);
                run->rows = rows;
                run->room = room;
        }
        papers_row *row = &run->rows[run->n_rows++];
        memset(row, 0, sizeof *row);
        row->figure = run->figure;
        snprintf(row->trace, sizeof row->trace, "%s", run->trace->name);
        memcpy(row->cells, cells, run->figure->n_columns * sizeof *cells);
        return DCI_OK;
}

/* --- the tables ------------------------------------------------------------------------------------------------------------- */

static void print_cell(const papers_column *column, const papers_cell *cell, char *out)
{
        if (column->format == NULL)
                snprintf(out, CELL_BYTES, "%s", cell->text);
        else if (isnan(cell->value))
                snprintf(out, CELL_BYTES, "-");
        else
                snprintf(out, CELL_BYTES, column->format, cell->value);
}

static void print_table(const papers_run *run, size_t first)
{
        const papers_figure *figure = run->figure;
        size_t widths[PAPERS_CELLS] = {0};
        char cell[CELL_BYTES];
        printf("%s (%s), %s\n\n", figure->name, figure->source, run->trace->name);
        if (first == run->n_rows)
                printf("n/a: no budget is below the %zu tokens of the prompt\n", run->trace->prompt);
        for (size_t c = 0; c < figure->n_columns && first < run->n_rows; c++) {
                widths[c] = strlen(figure->columns[c].name);
                for (size_t r = first; r < run->n_rows; r++) {
                        print_cell(&figure->columns[c], &run->rows[r].cells[c], cell);
                        widths[c] = strlen(cell) > widths[c] ? strlen(cell) : widths[c];
                }
                printf("%s%*s", c > 0 ? "  " : "", figure->columns[c].format == NULL ? -(int)widths[c] : (int)widths[c],
                       figure->columns[c].name);
        }
        for (size_t r = first; r < run->n_rows; r++)
                for (size_t c = 0; c < figure->n_columns; c++) {
                        print_cell(&figure->columns[c], &run->rows[r].cells[c], cell);
                        printf("%s%*s", c > 0 ? "  " : "\n",
                               figure->columns[c].format == NULL ? -(int)widths[c] : (int)widths[c], cell);
                }
        printf("\n\n");
        /* Long runs have many tables: show each when it is done. */
        fflush(stdout);
}

static bool add_cells(json_t *json, const papers_row *row)
{
        bool whole = true;
        for (size_t c = 0; whole && c < row->figure->n_columns; c++) {
                const papers_column *column = &row->figure->columns[c];
                const papers_cell *cell = &row->cells[c];
                json_t *value = column->format == NULL  ? json_string(cell->text)
                                : isfinite(cell->value) ? json_real(cell->value)
                                                        : json_null();
                whole = json_object_set_new(json, column->name, value) == 0;
        }
        return whole;
}

static json_t *rows_json(const papers_run *run)
{
        json_t *array = json_array();
        bool whole = array != NULL;
        for (size_t i = 0; whole && i < run->n_rows; i++) {
                const papers_row *row = &run->rows[i];
                json_t *json = json_pack("{s:s, s:s}", "figure", row->figure->name, "trace", row->trace);
                whole = json != NULL && add_cells(json, row) && json_array_append(array, json) == 0;
                json_decref(json);
        }
        if (whole)
                return array;
        json_decref(array);
        return NULL;
}

/* --- the run ----------------------------------------------------------------------------------------------------------------- */

static dci_status run_figures(papers_run *run)
{
        dci_status status = kvbench_check_finite(run->trace);
        for (size_t i = 0; status == DCI_OK && i < PAPERS_FIGURES; i++) {
                const size_t first = run->n_rows;
                if ((run->options->figures & (uint32_t)1 << i) == 0)
                        continue;
                run->figure = papers_figures[i];
                status = run->figure->run(run);
                papers_release(run, NULL);
                if (status == DCI_OK)
                        print_table(run, first);
                else
                        status = bench_fail_about(run->figure->name, status);
        }
        return status;
}

static dci_status run_traces(papers_run *run, int argc, char **argv)
{
        const kvbench_options *o = &run->options->kv;
        const bench_index_options like = {.isa = o->isa};
        DCI_TRY(o->json != NULL ? bench_check_writable(o->json) : DCI_OK);
        DCI_TRY(bench_context(&like, 0, &run->helper));
        DCI_TRY(bench_context(&like, o->threads, &run->measured));
        dci_status status = DCI_OK;
        for (size_t i = 0; status == DCI_OK && i < o->n_traces; i++) {
                kvbench_trace trace;
                status = kvbench_trace_open(run->helper, o, o->traces[i], &trace);
                run->trace = &trace;
                if (status == DCI_OK)
                        status = run_figures(run);
                kvbench_trace_close(&trace);
        }
        run->trace = NULL;
        if (status == DCI_OK && o->json != NULL)
                status = bench_write_json(json_pack("{s:o, s:o, s:o}", "machine", bench_machine_json(run->measured),
                                                    "command", bench_command_json(argc, argv), "rows", rows_json(run)),
                                          o->json);
        return status;
}

int bench_papers(int argc, char **argv)
{
        papers_options options;
        papers_run run;
        bool help;
        memset(&run, 0, sizeof run);
        run.options = &options;
        dci_status status = papers_options_parse(argc, argv, &options, &help);
        if (status == DCI_OK && help) {
                papers_print_help();
                papers_options_free(&options);
                return BENCH_EXIT_OK;
        }
        if (status == DCI_OK)
                status = run_traces(&run, argc, argv);
        const int code = status == DCI_OK ? BENCH_EXIT_OK : bench_report_error("papers", status);
        dci_free(run.helper, run.rows, run.room, sizeof *run.rows);
        dci_free(run.helper, run.before_turns, run.n_before, sizeof *run.before_turns);
        dci_context_destroy(run.measured);
        dci_context_destroy(run.helper);
        papers_options_free(&options);
        return code;
}
