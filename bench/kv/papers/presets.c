/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Plays the library's own presets, and counts which of the best tokens of each query head their plans attend to. */
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
        kvbench_arm *arms = papers_alloc(run, n, sizeof *arms);
        kvbench_truth truth;
        DCI_TRY(papers_memory(run));
        memset(&truth, 0, sizeof truth);
        kvbench_arms(options, arms);
        dci_status status = kvbench_truth_find(options, run->trace, &truth);
        if (status == DCI_OK)
                status = play_arms(run, options, &truth, arms, n, watch, played, arg);
        kvbench_truth_free(&truth);
        return status;
}

/* Lists tokens 0 to t that the plan attends to, ascending; returns their number. */
static size_t attended(const dci_kv_plan *plan, int32_t *out)
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

kvbench_options papers_options_at(const papers_run *run, size_t budget)
{
        kvbench_options o = run->options->kv;
        o.budgets.n = 1;
        o.budgets.values[0] = budget;
        o.every = papers_every(run);
        return o;
}

void papers_name_arm(const kvbench_arm *arm, papers_cell *out)
{
        char codes[PAPERS_TEXT];
        kvbench_codes_name(arm, codes, sizeof codes);
        out[0] = papers_word(dci_kv_preset_name(arm->preset));
        out[1] = papers_word(codes);
}

double papers_ratio(double a, double b)
{
        return b > 0 ? a / b : (double)NAN;
}

/* --- the best tokens at the positions that are judged -------------------------------------------------------------------------- */

typedef struct tops_walk {
        const kvbench_trace *trace;
        papers_tops *tops;
        bool prompt;
        double *scratch;
} tops_walk;

static dci_status find_tops(void *arg, size_t t, const double *weights)
{
        const tops_walk *w = arg;
        papers_tops *tops = w->tops;
        const size_t number = (t - tops->first) / tops->every;
        for (size_t h = 0; h < tops->group; h++) {
                const size_t at = number * tops->group + h;
                tops->counts[at] =
                        (int32_t)papers_top(weights + h * w->trace->tokens, 0, w->prompt ? w->trace->prompt : t + 1,
                                            tops->budget, w->scratch, tops->tokens + at * tops->budget);
        }
        return DCI_OK;
}

static dci_status find_all_tops(papers_run *run, size_t every, size_t budget, bool prompt, papers_tops *out)
{
        const kvbench_trace *trace = run->trace;
        out->first = trace->prompt + KVBENCH_FIRST;
        out->every = every;
        out->group = trace->group;
        out->budget = budget;
        out->n_positions = trace->tokens > out->first ? (trace->tokens - out->first + every - 1) / every : 0;
        const size_t n = out->n_positions * out->group;
        tops_walk w = {.trace = trace, .tops = out, .prompt = prompt};
        out->tokens = papers_alloc(run, n, budget * sizeof *out->tokens);
        out->counts = papers_alloc(run, n, sizeof *out->counts);
        w.scratch = papers_alloc(run, trace->tokens, sizeof *w.scratch);
        DCI_TRY(papers_memory(run));
        return papers_walk(run, "best tokens", out->first, every, find_tops, &w);
}

/* --- what the plans of an arm have of the best tokens ----------------------------------------------------------------------------- */

/* Counts which of one head's best tokens are attended to. */
static void count_best(papers_preset_walk *w, size_t t, const int32_t *best, size_t n_best, size_t n_attended)
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
                const bool in[PAPERS_PARTS] = {true, step < n_steps / 4, step >= n_steps - n_steps / 4,
                                               token < trace->prompt, token >= trace->prompt};
                w->found_any += found;
                for (size_t part = 0; part < PAPERS_PARTS; part++)
                        if (token >= BENCH_SINK && token < end && in[part]) {
                                w->found[part] += found;
                                w->all[part]++;
                        }
        }
        w->all_any += (double)n_best;
}

static dci_status watch_plan(void *arg, size_t t, const dci_kv_plan *plan)
{
        papers_preset_walk *w = arg;
        const papers_tops *tops = &w->tops;
        if (t < tops->first || (t - tops->first) % tops->every != 0)
                return DCI_OK;
        const size_t number = (t - tops->first) / tops->every, n_attended = attended(plan, w->attended);
        for (size_t h = 0; h < tops->group; h++) {
                const size_t at = number * tops->group + h;
                count_best(w, t, tops->tokens + at * tops->budget, (size_t)tops->counts[at], n_attended);
        }
        for (size_t i = 0; i < n_attended; i++)
                w->chosen += !w->prompt || (size_t)w->attended[i] < w->run->trace->prompt;
        w->n++;
        return DCI_OK;
}

void papers_forget(papers_preset_walk *w)
{
        memset(w->found, 0, sizeof w->found);
        memset(w->all, 0, sizeof w->all);
        w->found_any = w->all_any = w->chosen = w->n = 0;
}

dci_status papers_play_budget(papers_run *run, size_t budget, size_t more, bool prompt, papers_played played)
{
        papers_preset_walk w = {.run = run, .budget = budget, .prompt = prompt};
        kvbench_options options = papers_options_at(run, budget + more);
        if (prompt) {
                options.frozen_prompt = true;
                options.combine = options.combine > 0 ? options.combine : DCI_KV_COMBINE_SOFTMAX;
        }
        w.attended = papers_alloc(run, run->trace->tokens, sizeof *w.attended);
        DCI_TRY(papers_memory(run));
        DCI_TRY(find_all_tops(run, options.every, budget, prompt, &w.tops));
        return papers_play(run, &options, watch_plan, played, &w);
}
