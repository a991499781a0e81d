/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Figures of the library's own presets: their plans, step by step, held against the best tokens of each query head. */
#include "bench/kv/papers/papers.h"

#include <math.h>
#include <string.h>

/* --- playing -------------------------------------------------------------------------------------------------------------- */

static dci_status play_arms(papers_run *run, const kvbench_options *options, const kvbench_truth *truth,
                            const kvbench_arm *arms, size_t n_arms, kvbench_watch watch, papers_played played,
                            void *arg)
{
        const kvbench_trace *trace = run->trace;
        for (size_t i = 0; i < n_arms; i++) {
                kvbench_row row;
                memset(&row, 0, sizeof row);
                row.options = options;
                row.arm = arms[i];
                row.watch = watch;
                row.watcher = arg;
                snprintf(row.trace, sizeof row.trace, "%s", trace->name);
                DCI_TRY(kvbench_arm_check(run->measured, trace, &row));
                if (*row.reason == '\0')
                        DCI_TRY(kvbench_play(run->measured, trace, truth, &row));
                DCI_TRY(played(arg, &row));
        }
        return DCI_OK;
}

dci_status papers_play(papers_run *run, const kvbench_options *options, kvbench_watch watch, papers_played played,
                       void *arg)
{
        const size_t n = kvbench_arms(options, NULL);
        kvbench_arm *arms = dci_alloc(run->helper, n, sizeof *arms);
        kvbench_truth truth;
        if (arms == NULL)
                return DCI_ERR_MEMORY;
        memset(&truth, 0, sizeof truth);
        kvbench_arms(options, arms);
        dci_status status = kvbench_truth_find(options, run->trace, &truth);
        if (status == DCI_OK)
                status = play_arms(run, options, &truth, arms, n, watch, played, arg);
        kvbench_truth_free(&truth);
        dci_free(run->helper, arms, n, sizeof *arms);
        return status;
}

size_t papers_attended(const dci_kv_plan *plan, int32_t *out)
{
        const int32_t recent = plan->recent_begin[0];
        size_t n = 0;
        /* recent 0 stands for everything. */
        for (int32_t i = 0; recent > 0 && i < plan->sink_end[0]; i++)
                out[n++] = i;
        for (int32_t i = 0; recent > 0 && i < plan->counts[0]; i++)
                out[n++] = plan->positions[i];
        for (int32_t i = recent; i < plan->n_tokens[0]; i++)
                out[n++] = i;
        return n;
}

static kvbench_options options_at(const papers_run *run, size_t budget)
{
        kvbench_options o = run->options->kv;
        o.budgets.n = 1;
        o.budgets.values[0] = budget;
        o.every = papers_every(run);
        return o;
}

/* The first two cells of a row of a preset. */
static void name_arm(const kvbench_arm *arm, papers_cell *out)
{
        char codes[PAPERS_TEXT];
        kvbench_codes_name(arm, codes, sizeof codes);
        out[0] = papers_word(dci_kv_preset_name(arm->preset));
        out[1] = papers_word(codes);
}

static double ratio(double a, double b)
{
        return b > 0 ? a / b : (double)NAN;
}

/* --- what the plans of an arm have of the best tokens ----------------------------------------------------------------------------- */

enum { WHOLE, FIRST_QUARTER, LAST_QUARTER, OF_PROMPT, DECODED, PARTS };

typedef struct preset_walk {
        papers_run *run;
        papers_tops tops;
        int32_t *attended;
        size_t budget;
        bool prompt;                     /* the best of the prompt alone */
        double found[PARTS], all[PARTS]; /* tokens among the best that can be chosen: those attended to, and all */
        double found_any, all_any,
                chosen; /* kept ones too; tokens of the prompt or, otherwise, all that are attended to */
        double n;
} preset_walk;

/* Tokens [begin, end) of one head's best. */
static void count_best(preset_walk *w, size_t t, const int32_t *best, size_t n_best, size_t n_attended)
{
        const kvbench_trace *trace = w->run->trace;
        const size_t n_steps = trace->tokens - trace->prompt, step = t - trace->prompt;
        const size_t end = papers_window_begin(t, BENCH_SINK, KVBENCH_WINDOW);
        size_t at = 0;
        for (size_t i = 0; i < n_best; i++) {
                const size_t token = (size_t)best[i];
                while (at < n_attended && (size_t)w->attended[at] < token)
                        at++;
                const bool found = at < n_attended && (size_t)w->attended[at] == token;
                const bool in[PARTS] = {true, step < n_steps / 4, step >= n_steps - n_steps / 4, token < trace->prompt,
                                        token >= trace->prompt};
                w->found_any += found;
                for (size_t part = 0; part < PARTS; part++)
                        if (token >= BENCH_SINK && token < end && in[part]) {
                                w->found[part] += found;
                                w->all[part]++;
                        }
        }
        w->all_any += (double)n_best;
}

static dci_status watch_plan(void *arg, size_t t, const dci_kv_plan *plan)
{
        preset_walk *w = arg;
        const papers_tops *tops = &w->tops;
        if (t < tops->first || (t - tops->first) % tops->every != 0)
                return DCI_OK;
        const size_t number = (t - tops->first) / tops->every, n_attended = papers_attended(plan, w->attended);
        for (size_t h = 0; h < tops->group; h++) {
                const size_t at = number * tops->group + h;
                count_best(w, t, tops->tokens + at * tops->budget, (size_t)tops->counts[at], n_attended);
        }
        for (size_t i = 0; i < n_attended; i++)
                w->chosen += !w->prompt || (size_t)w->attended[i] < w->run->trace->prompt;
        w->n++;
        return DCI_OK;
}

static void forget(preset_walk *w)
{
        memset(w->found, 0, sizeof w->found);
        memset(w->all, 0, sizeof w->all);
        w->found_any = w->all_any = w->chosen = w->n = 0;
}

/* `more`: tokens that the budget counts and the set that is judged does not have. */
static dci_status play_budget(papers_run *run, size_t budget, size_t more, bool prompt, papers_played played)
{
        preset_walk w = {.run = run, .budget = budget, .prompt = prompt};
        kvbench_options options = options_at(run, budget + more);
        if (prompt) {
                options.frozen_prompt = true;
                options.combine = options.combine > 0 ? options.combine : DCI_KV_COMBINE_SOFTMAX;
        }
        w.attended = dci_alloc(run->helper, run->trace->tokens, sizeof *w.attended);
        dci_status status =
                w.attended != NULL ? papers_tops_find(run, options.every, budget, prompt, &w.tops) : DCI_ERR_MEMORY;
        if (status == DCI_OK)
                status = papers_play(run, &options, watch_plan, played, &w);
        papers_tops_free(&w.tops);
        dci_free(run->helper, w.attended, run->trace->tokens, sizeof *w.attended);
        return status;
}

/* --- token-recall --------------------------------------------------------------------------------------------------------------------- */

static dci_status token_recall_row(void *arg, const kvbench_row *row)
{
        preset_walk *w = arg;
        const bool played = *row->reason == '\0';
        papers_cell cells[8];
        name_arm(&row->arm, cells);
        cells[2] = papers_word(w->prompt ? "prompt" : "all");
        cells[3] = papers_size(w->budget);
        cells[4] = papers_number(ratio(w->chosen, w->n));
        cells[5] = papers_number(ratio(w->found_any, w->all_any));
        cells[6] = papers_number(played ? row->marks.recall : (double)NAN);
        cells[7] = papers_number(played ? row->marks.share : (double)NAN);
        forget(w);
        return papers_add(w->run, cells);
}

static dci_status run_token_recall(papers_run *run)
{
        static const bench_sizes own = {4, {256, 512, 1024, 2048}};
        const bench_sizes budgets = papers_budgets(run, &own);
        for (size_t i = 0; i < budgets.n; i++) {
                DCI_TRY(play_budget(run, budgets.values[i], 0, false, token_recall_row));
                /* Frozen, a budget counts a window that the prompt's tokens do not have. */
                DCI_TRY(play_budget(run, budgets.values[i], KVBENCH_WINDOW, true, token_recall_row));
        }
        return DCI_OK;
}

static const papers_column token_recall_columns[] = {{"preset", NULL},   {"codes", NULL},      {"best_of", NULL},
                                                     {"budget", "%.0f"}, {"attended", "%.0f"}, {"token_recall", "%.3f"},
                                                     {"recall", "%.3f"}, {"share", "%.3f"}};
static const char token_recall_help[] =
        "|I n I*| / |I*| of presets: I what is attended to, I* a query head's B best tokens by q . k; the\n"
        "  mean over heads and positions. all: I* of all tokens, I counts the first 16 and the last 64, decoded\n"
        "  ones too. prompt, as in their code: I* and I of the prompt alone, which is grouped whole and once; I\n"
        "  has B tokens, the first 16 among them. recall and share: as in dci-bench kv";
const papers_figure papers_token_recall = {"token-recall",
                                           "ClusterKV, section V-B and figure 11(a)",
                                           token_recall_help,
                                           token_recall_columns,
                                           sizeof token_recall_columns / sizeof *token_recall_columns,
                                           run_token_recall};

/* --- page-hits ------------------------------------------------------------------------------------------------------------------------- */

static dci_status page_hits_row(void *arg, const kvbench_row *row)
{
        preset_walk *w = arg;
        papers_cell cells[4 + PARTS];
        name_arm(&row->arm, cells);
        cells[2] = papers_size(w->budget);
        cells[3] = papers_number(ratio(w->chosen, w->n));
        for (size_t part = 0; part < PARTS; part++)
                cells[4 + part] = papers_number(w->n > 0 ? ratio(w->found[part], w->all[part]) : (double)NAN);
        forget(w);
        return papers_add(w->run, cells);
}

static dci_status run_page_hits(papers_run *run)
{
        static const bench_sizes own = {2, {256, 1024}};
        const bench_sizes budgets = papers_budgets(run, &own);
        for (size_t i = 0; i < budgets.n; i++)
                DCI_TRY(play_budget(run, budgets.values[i], 0, false, page_hits_row));
        return DCI_OK;
}

static const papers_column page_hits_columns[] = {
        {"preset", NULL},         {"codes", NULL},       {"budget", "%.0f"},
        {"attended", "%.0f"},     {"hit_rate", "%.3f"},  {"first_quarter", "%.3f"},
        {"last_quarter", "%.3f"}, {"of_prompt", "%.3f"}, {"of_decoded", "%.3f"}};
static const char page_hits_help[] =
        "of a query head's B best tokens by q . k that lie behind the first 16 and before the last 64, those\n"
        "  in what was loaded: in all, in the first and in the last quarter of the decode, and of tokens of the\n"
        "  prompt and of decoded ones, which were inserted after it";
const papers_figure papers_page_hits = {
        "page-hits",       "IceCache, section 2 and the discussion of its hit rate", page_hits_help,
        page_hits_columns, sizeof page_hits_columns / sizeof *page_hits_columns,     run_page_hits};

/* --- resident --------------------------------------------------------------------------------------------------------------------------- */

static dci_status resident_row(void *arg, const kvbench_row *row)
{
        papers_run *run = arg;
        const bool played = *row->reason == '\0';
        const double bytes =
                (double)((run->trace->keys.dim + run->trace->values.dim) * dci_dtype_size(run->trace->keys.dtype));
        const double resident = played ? row->resident : (double)NAN;
        papers_cell cells[6];
        name_arm(&row->arm, cells);
        cells[2] = papers_size(row->options->budgets.values[row->arm.budget]);
        cells[3] = papers_number(resident);
        cells[4] = papers_number(bytes);
        cells[5] = papers_number(resident / bytes);
        return papers_add(run, cells);
}

static dci_status run_resident(papers_run *run)
{
        static const bench_sizes own = {1, {512}};
        const bench_sizes budgets = papers_budgets(run, &own);
        for (size_t i = 0; i < budgets.n; i++) {
                kvbench_options options = options_at(run, budgets.values[i]);
                /* One plan is enough: what counts is there after the last step. */
                options.every = run->trace->tokens;
                options.judged_only = true;
                DCI_TRY(papers_play(run, &options, NULL, resident_row, run));
        }
        return DCI_OK;
}

static const papers_column resident_columns[] = {{"preset", NULL},      {"codes", NULL},
                                                 {"budget", "%.0f"},    {"index_bytes", "%.1f"},
                                                 {"row_bytes", "%.0f"}, {"index_over_row", "%.3f"}};
static const char resident_help[] =
        "bytes that summaries, codes and tails keep per token and kv head after the last step, beside those\n"
        "  of its key and value. full, topk and snapkv need keys, too, which are not counted";
const papers_figure papers_resident = {"resident",
                                       "all of them; IceCache and PRKV give it for pages, ClusterKV for centroids",
                                       resident_help,
                                       resident_columns,
                                       sizeof resident_columns / sizeof *resident_columns,
                                       run_resident};
