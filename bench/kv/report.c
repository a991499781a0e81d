/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/kv/kv.h"

#include <math.h>
#include <string.h>

#define CELL_BYTES 96

typedef struct column {
        const char *title;
        void (*print)(const kvbench_row *row, char *out); /* CELL_BYTES */
        bool measured;                                    /* n/a where the arm was not played */
} column;

/* --- the table ------------------------------------------------------------------------------------------------------------ */

static void put_number(char *out, const char *format, double value)
{
        if (isnan(value))
                snprintf(out, CELL_BYTES, "-");
        else
                snprintf(out, CELL_BYTES, format, value);
}

/* Microseconds to about three digits. */
static void put_us(char *out, double us)
{
        snprintf(out, CELL_BYTES, us < 10 ? "%.2f" : us < 100 ? "%.1f" : "%.0f", us);
}

static void print_preset(const kvbench_row *row, char *out)
{
        snprintf(out, CELL_BYTES, "%s%s", dci_kv_preset_name(row->arm.preset), row->arm.still ? ", no updates" : "");
}

static void print_codes(const kvbench_row *row, char *out)
{
        kvbench_codes_name(&row->arm, out, CELL_BYTES);
}

static void print_budget(const kvbench_row *row, char *out)
{
        snprintf(out, CELL_BYTES, "%zu", row->options->budgets.values[row->arm.budget]);
}

static void print_share(const kvbench_row *row, char *out)
{
        put_number(out, "%.3f", row->marks.share);
}

static void print_recall(const kvbench_row *row, char *out)
{
        put_number(out, "%.3f", row->marks.recall);
}

static void print_token_recall(const kvbench_row *row, char *out)
{
        put_number(out, "%.3f", row->marks.token_recall);
}

static void print_err(const kvbench_row *row, char *out)
{
        put_number(out, "%.4f", row->marks.err[0]);
}

static void print_err_tail(const kvbench_row *row, char *out)
{
        put_number(out, "%.4f", row->marks.err_tail[0]);
}

static void print_attended(const kvbench_row *row, char *out)
{
        bench_format_count(out, CELL_BYTES, row->marks.attended);
}

static void print_attended_query_head(const kvbench_row *row, char *out)
{
        bench_format_count(out, CELL_BYTES, row->marks.attended_query_head);
}

static void print_bytes(const kvbench_row *row, char *out)
{
        put_number(out, "%.1f", row->marks.bytes_step / 1024);
}

static void print_moved(const kvbench_row *row, char *out)
{
        put_number(out, "%.1f", row->marks.bytes_step_cached / 1024);
}

static void print_resident(const kvbench_row *row, char *out)
{
        put_number(out, "%.1f", row->resident);
}

static void print_tau(const kvbench_row *row, char *out)
{
        put_number(out, "%.3f", row->tau);
}

/* Of a schedule that has a tau. */
static void print_selects(const kvbench_row *row, char *out)
{
        put_number(out, "%.3f", isnan(row->tau) ? (double)NAN : row->decided);
}

static void print_form(const kvbench_row *row, char *out)
{
        put_number(out, "%.2f", row->build_ms);
}

static void print_plan(const kvbench_row *row, char *out)
{
        put_us(out, row->times[KVBENCH_PLAN].median);
}

static void print_plan_p99(const kvbench_row *row, char *out)
{
        put_us(out, row->times[KVBENCH_PLAN].p99);
}

static void print_attend(const kvbench_row *row, char *out)
{
        put_us(out, row->times[KVBENCH_ATTEND].median);
}

static void print_maintain(const kvbench_row *row, char *out)
{
        put_us(out, row->times[KVBENCH_MAINTAIN].median);
}

static const column columns[] = {
        {"preset", print_preset, false},   {"codes", print_codes, false},
        {"budget", print_budget, false},   {"share", print_share, true},
        {"recall", print_recall, true},    {"top B", print_token_recall, true},
        {"err", print_err, true},          {"with tail", print_err_tail, true},
        {"tokens", print_attended, true},  {"per head", print_attended_query_head, true},
        {"KiB/step", print_bytes, true},   {"moved", print_moved, true},
        {"tau", print_tau, true},          {"selects", print_selects, true},
        {"B/token", print_resident, true}, {"build ms", print_form, true},
        {"plan us", print_plan, true},     {"p99", print_plan_p99, true},
        {"attend us", print_attend, true}, {"maintain us", print_maintain, true},
};
#define N_COLUMNS (sizeof columns / sizeof *columns)

static void print_cell(size_t c, const kvbench_row *row, char *out)
{
        if (columns[c].measured && *row->reason != '\0')
                snprintf(out, CELL_BYTES, "n/a");
        else
                columns[c].print(row, out);
}

static void print_head(const kvbench_trace *trace, const dci_context *context, const kvbench_options *o)
{
        char prompt[32], decoded[32], judged[48];
        const int32_t threads = dci_context_threads(context);
        bench_format_count(prompt, sizeof prompt, (double)trace->prompt);
        bench_format_count(decoded, sizeof decoded, (double)(trace->tokens - trace->prompt));
        if (o->every > 0)
                snprintf(judged, sizeof judged, "one position in %zu", o->every);
        else
                snprintf(judged, sizeof judged, "every position");
        printf("%s: prompt of %s tokens, %s decoded, d %zu, %zu query heads, %s; kept %s%s, %s judged, %s, %d "
               "thread%s\n\n",
               trace->name, prompt, decoded, trace->keys.dim, trace->group, dci_dtype_name(trace->keys.dtype),
               kvbench_kept_name(o->kept), o->frozen_prompt ? ", frozen prompt" : "", judged,
               dci_isa_name(dci_context_isa(context)), threads, threads == 1 ? "" : "s");
}

/* Why rows were not played, each reason once. */
static void print_reasons(const kvbench_row *rows, size_t n_rows)
{
        for (size_t i = 0; i < n_rows; i++) {
                bool said = *rows[i].reason == '\0';
                for (size_t j = 0; j < i && !said; j++)
                        said = strcmp(rows[j].reason, rows[i].reason) == 0;
                if (!said)
                        printf("n/a: %s\n", rows[i].reason);
        }
}

void kvbench_print_table(const kvbench_trace *trace, const dci_context *context, const kvbench_row *rows, size_t n_rows)
{
        size_t widths[N_COLUMNS];
        char cell[CELL_BYTES];
        print_head(trace, context, rows->options);
        for (size_t c = 0; c < N_COLUMNS; c++) {
                widths[c] = strlen(columns[c].title);
                for (size_t r = 0; r < n_rows; r++) {
                        print_cell(c, &rows[r], cell);
                        widths[c] = strlen(cell) > widths[c] ? strlen(cell) : widths[c];
                }
                printf("%s%*s", c > 0 ? "  " : "", columns[c].measured ? (int)widths[c] : -(int)widths[c],
                       columns[c].title);
        }
        printf("\n");
        for (size_t r = 0; r < n_rows; r++) {
                for (size_t c = 0; c < N_COLUMNS; c++) {
                        print_cell(c, &rows[r], cell);
                        printf("%s%*s", c > 0 ? "  " : "", c < 2 ? -(int)widths[c] : (int)widths[c], cell);
                }
                printf("\n");
        }
        print_reasons(rows, n_rows);
        printf("\n");
        /* Long runs have several tables: show each when it is done. */
        fflush(stdout);
}

/* --- JSON ------------------------------------------------------------------------------------------------------------------- */

static json_t *number(double value)
{
        return isfinite(value) ? json_real(value) : json_null();
}

static json_t *integer(size_t value)
{
        return json_integer((json_int_t)value);
}

static json_t *bits(int32_t width)
{
        return width > 0 ? json_integer(width) : json_null();
}

/* What was asked for. */
static json_t *asked_json(const kvbench_row *row)
{
        const kvbench_options *o = row->options;
        const kvbench_arm *arm = &row->arm;
        const bool tree = arm->preset == DCI_KV_ICECACHE, searched = tree && o->leaves != KVBENCH_LEAVES_MEAN;
        const char *leaves = tree ? kvbench_leaves_name(o->leaves) : NULL;
        const char *combine = o->combine > 0 && !searched ? kvbench_combine_name(o->combine) : "preset";
        return json_pack("{s:s, s:s, s:s?, s:o, s:o, s:o, s:o, s:s, s:b, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, "
                         "s:s, s:o, s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:s, s:o, s:s}",
                         "trace", row->trace, "preset", dci_kv_preset_name(arm->preset), "leaves", leaves, "budget",
                         integer(o->budgets.values[arm->budget]), "key_bits", bits(arm->key_bits), "value_bits",
                         bits(arm->value_bits), "learned", arm->key_bits > 0 ? json_boolean(arm->learned) : json_null(),
                         "kept", kvbench_kept_name(o->kept), "frozen_prompt", (int)o->frozen_prompt, "combine", combine,
                         "every", integer(o->every > 0 ? o->every : 1), "seed", integer(o->seed), "threads",
                         integer(o->threads), "tokens", integer(row->tokens), "prompt", integer(row->prompt), "group",
                         integer(row->group), "dim_k", integer(row->dim_k), "dim_v", integer(row->dim_v), "schedule",
                         o->schedule > 0 ? kvbench_schedule_name(o->schedule) : "preset", "period",
                         o->period > 0 ? integer(o->period) : json_null(), "static_share",
                         isnan(o->static_share) ? json_null() : json_real(o->static_share), "ring",
                         o->ring > 0 ? integer(o->ring) : json_null(), "budget_counts",
                         row->info.budget_counts > 0 ? kvbench_counts_name(row->info.budget_counts) : "preset",
                         "budget_share", o->budget_share > 0.0 ? json_real(o->budget_share) : json_null(),
                         "promotion_subseq", tree ? json_real(o->promotion_subseq) : json_null(), "simple_indices",
                         tree ? integer(o->simple_indices) : json_null(), "retrieve",
                         tree ? json_real(o->retrieve) : json_null(), "summary",
                         o->summary > 0 ? kvbench_summary_name(o->summary) : "preset", "deviation_weight",
                         o->deviation_weight > 0.0 ? json_real(o->deviation_weight) : json_null(), "lists",
                         kvbench_lists_name(row->info.n_lists > 1 ? KVBENCH_LISTS_QUERY : KVBENCH_LISTS_KV));
}

static bool add(json_t *json, const char *name, double value)
{
        return json_object_set_new(json, name, number(value)) == 0;
}

static bool add_marks(json_t *json, const kvbench_row *row, bool played)
{
        const kvbench_marks *m = &row->marks;
        const struct {
                const char *name;
                double value;
        } numbers[] = {{"share", m->share},
                       {"recall", m->recall},
                       {"token_recall", m->token_recall},
                       {"err", m->err[0]},
                       {"err_tail", m->err_tail[0]},
                       {"err_first", m->err[1]},
                       {"err_last", m->err[2]},
                       {"err_tail_first", m->err_tail[1]},
                       {"err_tail_last", m->err_tail[2]},
                       {"overlap", m->overlap},
                       {"decided", row->decided},
                       {"corrected", row->corrected},
                       {"attended", m->attended},
                       {"attended_query_head", m->attended_query_head},
                       {"bytes_step", m->bytes_step},
                       {"bytes_step_cached", m->bytes_step_cached},
                       {"hits_r1", m->hits[0]},
                       {"hits_r2", m->hits[1]},
                       {"hits_r4", m->hits[2]},
                       {"resident_bytes_token", row->resident},
                       {"build_ms", row->build_ms},
                       {"drift", row->drift},
                       {"tau", row->tau},
                       {"retrieval_rate", row->rate}};
        bool whole = true;
        for (size_t i = 0; whole && i < sizeof numbers / sizeof *numbers; i++)
                whole = add(json, numbers[i].name, played ? numbers[i].value : (double)NAN);
        return whole;
}

static bool add_sixths(json_t *json, const kvbench_row *row, bool played)
{
        json_t *sixths = json_array();
        bool whole = sixths != NULL;
        for (size_t i = 0; whole && i < KVBENCH_SIXTHS; i++)
                whole = json_array_append_new(sixths, number(played ? row->marks.sixths[i] : (double)NAN)) == 0;
        return json_object_set_new(json, "err_sixths", sixths) == 0 && whole;
}

static bool add_times(json_t *json, const kvbench_row *row, bool played)
{
        static const char *const names[KVBENCH_TIMES] = {"append_us", "plan_us", "attend_us", "maintain_us", "step_us"};
        bool whole = true;
        for (size_t i = 0; whole && i < KVBENCH_TIMES; i++) {
                char p99[32];
                snprintf(p99, sizeof p99, "%s_p99", names[i]);
                whole = add(json, names[i], played ? row->times[i].median : (double)NAN) &&
                        add(json, p99, played ? row->times[i].p99 : (double)NAN);
        }
        return whole;
}

static bool add_facts(json_t *json, const kvbench_row *row, bool played, const char *isa)
{
        const struct {
                const char *name;
                size_t value;
        } sizes[] = {{"steps", row->n_steps},
                     {"judged", row->marks.n_judged},
                     {"refits", (size_t)row->refits},
                     {"page_tokens", row->info.page_tokens},
                     {"cluster_most", row->options->cluster_most},
                     {"segment_buffer", row->options->segment_buffer},
                     {"sink", row->info.sink},
                     {"window", row->info.window},
                     {"token_bytes", row->info.token_bytes}};
        bool whole = json_object_set_new(json, "isa", json_string(isa)) == 0 &&
                     json_object_set_new(json, "judged_only", json_boolean(row->options->judged_only)) == 0 &&
                     json_object_set_new(json, "anchor",
                                         row->anchor != NULL ? json_string(row->anchor->name) : json_null()) == 0 &&
                     json_object_set_new(json, "updates", json_boolean(!row->arm.still)) == 0 &&
                     json_object_set_new(json, "reason", played ? json_null() : json_string(row->reason)) == 0;
        for (size_t i = 0; whole && i < sizeof sizes / sizeof *sizes; i++)
                whole = json_object_set_new(json, sizes[i].name, played ? integer(sizes[i].value) : json_null()) == 0;
        return whole;
}

static json_t *rows_json(const dci_context *context, const kvbench_row *rows, size_t n_rows)
{
        json_t *array = json_array();
        bool whole = array != NULL;
        for (size_t i = 0; whole && i < n_rows; i++) {
                const bool played = *rows[i].reason == '\0';
                json_t *row = asked_json(&rows[i]);
                whole = row != NULL && add_marks(row, &rows[i], played) && add_sixths(row, &rows[i], played) &&
                        add_times(row, &rows[i], played) &&
                        add_facts(row, &rows[i], played, dci_isa_name(dci_context_isa(context))) &&
                        json_array_append(array, row) == 0;
                json_decref(row);
        }
        if (whole)
                return array;
        json_decref(array);
        return NULL;
}

dci_status kvbench_write_json(const kvbench_options *o, const dci_context *context, int argc, char **argv,
                              const kvbench_row *rows, size_t n_rows)
{
        return bench_write_json(json_pack("{s:o, s:o, s:o}", "machine", bench_machine_json(context), "command",
                                          bench_command_json(argc, argv), "rows", rows_json(context, rows, n_rows)),
                                o->json);
}
