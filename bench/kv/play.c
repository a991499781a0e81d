/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/kv/kv.h"

#include <math.h>
#include <string.h>

#include "kv/config.h"

/* One arm being played. */
typedef struct player {
        const kvbench_trace *trace;
        const kvbench_options *options;
        kvbench_row *row;
        dci_kv *kv;
        int64_t sequence;
        dci_kv_plan plan;
        float *out, *tail;              /* group x dim_v: without the tail, and with it */
        double *seconds[KVBENCH_TIMES]; /* n_steps each */
        kvbench_judge judge;
} player;

/* The trace is the last layer; the anchor is before it. */
static size_t last_layer(const player *p)
{
        return p->row->anchor != NULL ? 1 : 0;
}

static const kvbench_trace *trace_of(const player *p, size_t layer)
{
        return layer < last_layer(p) ? p->row->anchor : p->trace;
}

/* --- the cache ---------------------------------------------------------------------------------------------------------- */

void kvbench_codes_name(const kvbench_arm *arm, char *out, size_t size)
{
        int n = 0;
        snprintf(out, size, "-");
        if (arm->key_bits > 0)
                n = snprintf(out, size, "K%d", (int)arm->key_bits);
        if (arm->value_bits > 0 && n >= 0 && (size_t)n < size)
                n += snprintf(out + n, size - (size_t)n, " V%d", (int)arm->value_bits);
        if (arm->learned && n >= 0 && (size_t)n < size)
                snprintf(out + n, size - (size_t)n, " learned");
}

static dci_status fail_about_arm(const kvbench_row *row, dci_status status)
{
        char what[384], codes[32];
        kvbench_codes_name(&row->arm, codes, sizeof codes);
        snprintf(what, sizeof what, "%s: %s%s%s with --budget %zu", row->trace, dci_kv_preset_name(row->arm.preset),
                 row->arm.key_bits > 0 ? " " : "", row->arm.key_bits > 0 ? codes : "",
                 row->options->budgets.values[row->arm.budget]);
        return bench_fail_about(what, status);
}

/* How many stages the options ask a preset of codes for. */
static void set_stages(const kvbench_options *o, dci_kv_config *c)
{
        const bool chooses =
                c->preset == DCI_KV_SKETCH || c->preset == DCI_KV_SKETCH_SUMS || c->preset == DCI_KV_SKETCH_GROUPS;
        const bool has_tail = c->preset == DCI_KV_SKETCH_LOWBIT || c->preset == DCI_KV_SKETCH_VERIFY;
        c->verify = chooses || has_tail ? (double)o->verify : 0.0;
        c->preselect = chooses ? (double)o->preselect : 0.0;
        c->preselect_tokens = o->preselect_tokens;
        c->preselect_least = o->preselect_least;
        if (o->sums != 0 && c->preset == DCI_KV_SKETCH_GROUPS)
                c->tail = DCI_KV_TAIL_SUMS;
        c->sums_whole =
                o->sums == KVBENCH_SUMS_WHOLE && (c->preset == DCI_KV_SKETCH_GROUPS || c->preset == DCI_KV_SKETCH_SUMS);
}

void kvbench_set_arm(const kvbench_options *o, const kvbench_arm *arm, dci_kv_config *c)
{
        c->preset = arm->preset;
        c->dense_layers = 0;
        c->seed = o->seed;
        if (arm->key_bits > 0)
                c->key_bits = arm->key_bits;
        if (arm->value_bits > 0)
                c->value_bits = arm->value_bits;
        if (arm->key_bits > 0) /* a preset's own may be either */
                c->summary = arm->learned ? DCI_KV_SUMMARY_LEARNED : DCI_KV_SUMMARY_CODES;
        set_stages(o, c);
}

/* Presets that any schedule goes with. */
static bool ranks_at_each_step(int32_t preset)
{
        return preset != DCI_KV_FULL && preset != DCI_KV_STREAMING && preset != DCI_KV_SNAPKV &&
               preset != DCI_KV_LOWBIT;
}

bool kvbench_lists_query_heads(const dci_kv_config *c)
{
        return c->n_query_heads > c->n_kv_heads && ranks_at_each_step(c->preset) && c->preset != DCI_KV_PRKV;
}

/* A search ranks for each query head; means of leaves are combined as those of pages are. */
static void set_leaves(const kvbench_options *o, dci_kv_config *c)
{
        c->tree_field_of_view = o->field_of_view;
        c->tree_promotion_subseq = o->promotion_subseq;
        c->tree_simple_indices = o->simple_indices;
        c->tree_retrieve = o->retrieve;
        c->tree_tokens = o->leaves == KVBENCH_LEAVES_TOKENS;
        if (o->leaves != KVBENCH_LEAVES_MEAN) {
                c->combine = DCI_KV_COMBINE_EACH;
                if (o->leaves == KVBENCH_LEAVES_PAGES)
                        c->tree_keys = DCI_KV_TREE_MEANS;
                if (o->leaves == KVBENCH_LEAVES_CODES) {
                        c->tree_keys = DCI_KV_TREE_CODES;
                        for (int32_t bits = 8; bits > 0; bits--)
                                if ((o->key_bits >> bits & 1) != 0)
                                        c->key_bits = bits;
                }
                return;
        }
        c->summary = DCI_KV_SUMMARY_MEAN;
        c->select = DCI_KV_SELECT_SCAN;
        if (c->combine == 0)
                c->combine = DCI_KV_COMBINE_SOFTMAX;
}

/* Presets whose groups have a row each, of one kind or another. */
static bool has_rows(int32_t preset)
{
        return preset == DCI_KV_PAGEMEAN || preset == DCI_KV_QUEST || preset == DCI_KV_ARKVALE ||
               preset == DCI_KV_FREEKV || preset == DCI_KV_PRKV || preset == DCI_KV_CLUSTERKV ||
               preset == DCI_KV_LOUISKV || preset == DCI_KV_RETROINFER;
}

/* What counts in the budget, and the sizes of what is always attended to. */
static dci_status set_budget(const kvbench_row *row, dci_kv_config *c)
{
        const kvbench_options *o = row->options;
        const size_t budget = o->budgets.values[row->arm.budget];
        c->budget = budget;
        if (o->kept == KVBENCH_KEPT_PAPER) {
                DCI_TRY(dci_kv_config_published(c, row->arm.preset, budget));
        } else {
                c->sink = BENCH_SINK;
                c->window = KVBENCH_WINDOW;
                c->budget_counts = DCI_KV_COUNT_ALL;
                c->observed_keep = 0;
        }
        if (o->sink != BENCH_ALL)
                c->sink = o->sink;
        if (o->window > 0)
                c->window = o->window;
        if (o->budget_counts > 0)
                c->budget_counts = o->budget_counts;
        c->budget_share = o->budget_share;
        if (o->page_tokens > 0)
                c->page_tokens = (size_t)o->page_tokens;
        if (o->combine > 0)
                c->combine = o->combine;
        if (o->segment_buffer > 0)
                c->segment_buffer = o->segment_buffer;
        if (row->arm.preset == DCI_KV_LOUISKV)
                c->segment_least = o->segment_least;
        if (o->observed_pool > 0)
                c->observed_pool = o->observed_pool;
        if (o->observed_keep > 0)
                c->observed_keep = o->observed_keep == KVBENCH_KEEP_ALL;
        if (o->lists == KVBENCH_LISTS_KV)
                c->query_head_lists = 0;
        if (o->lists == KVBENCH_LISTS_QUERY)
                c->query_head_lists = kvbench_lists_query_heads(c);
        if (o->tau != 0.0)
                c->tau = o->tau;
        if (o->period > 0)
                c->period = o->period;
        if (o->ring > 0)
                c->ring = o->ring;
        if (!isnan(o->static_share))
                c->static_share = o->static_share;
        if (o->summary != 0 && has_rows(row->arm.preset))
                c->summary = o->summary;
        c->deviation_weight = o->deviation_weight;
        return DCI_OK;
}

/* The tau that comes out, of schedules that have one: on the queries of the decode, BOUNDARY is calibrated unless it is
 * given, AHEAD where a rate is. */
static dci_status set_tau(dci_context *context, const kvbench_trace *trace, kvbench_row *row, dci_kv_config *c)
{
        const kvbench_options *o = row->options;
        const size_t n = trace->tokens - trace->prompt;
        dci_kv_config checked;
        dci_kv_stages stages;
        row->rate = row->tau = (double)NAN;
        DCI_TRY(dci_kv_check_config(c, &checked, &stages));
        if (checked.schedule != DCI_KV_BOUNDARY && checked.schedule != DCI_KV_AHEAD)
                return DCI_OK;
        if (o->tau == 0.0 && n >= 2 && (checked.schedule == DCI_KV_BOUNDARY || o->rate != 0.0)) {
                row->rate = o->rate > 0.0 ? o->rate : KVBENCH_RATE;
                DCI_TRY(dci_kv_calibrate(context, c, 1, n, trace->queries.data, trace->keys.dim, row->rate, &c->tau));
        }
        row->tau = c->tau != 0.0 ? c->tau : checked.tau;
        return DCI_OK;
}

static dci_status create(dci_context *context, const kvbench_trace *trace, kvbench_row *row, dci_kv **out)
{
        const kvbench_options *o = row->options;
        dci_kv_config c;
        dci_status status = dci_kv_config_init(&c, sizeof c);
        if (status != DCI_OK)
                return status;
        c.n_layers = row->anchor != NULL ? 2 : 1;
        c.anchor_first = 0;
        c.anchor_period = 2;
        c.n_kv_heads = 1;
        c.n_query_heads = trace->group;
        c.dim_k = trace->keys.dim;
        c.dim_v = trace->values.dim;
        c.dtype = trace->keys.dtype;
        c.query_dtype = trace->queries.dtype;
        c.scale = trace->scale;
        kvbench_set_arm(o, &row->arm, &c);
        DCI_TRY(set_budget(row, &c));
        c.cluster_tokens = o->cluster_tokens;
        c.cluster_most = o->cluster_most;
        c.cluster_by = o->cluster_by;
        if (row->arm.preset == DCI_KV_ICECACHE)
                set_leaves(o, &c);
        c.frozen_prompt = o->frozen_prompt;
        if (o->schedule != 0 && ranks_at_each_step(row->arm.preset))
                c.schedule = o->schedule;
        if (row->anchor != NULL)
                c.schedule = DCI_KV_ANCHOR;
        if (row->arm.still && row->arm.preset == DCI_KV_PRKV)
                c.period = DCI_KV_MAX_TOKENS;
        else if (row->arm.still)
                c.frozen_prompt = 1; /* forget_decoded does the rest */
        DCI_TRY(set_tau(context, trace, row, &c));
        return dci_kv_create(context, &c, out);
}

dci_status kvbench_arm_check(dci_context *context, const kvbench_trace *trace, kvbench_row *row)
{
        dci_kv *kv = NULL;
        *row->reason = '\0';
        const bool observes = row->arm.preset == DCI_KV_SNAPKV ||
                              (row->arm.preset == DCI_KV_PRKV && row->options->static_share != 0.0);
        if (trace->observed.n == 0 && (row->arm.learned || observes)) {
                snprintf(row->reason, sizeof row->reason, "there are no queries before the decode");
                return DCI_OK;
        }
        if (row->anchor != NULL && !ranks_at_each_step(row->arm.preset)) {
                snprintf(row->reason, sizeof row->reason, "no layer's list is there for another one to take over");
                return DCI_OK;
        }
        dci_status status = create(context, trace, row, &kv);
        dci_kv_destroy(kv);
        /* The papers' own sizes do not go with every budget, and that is no mistake. */
        if (status == DCI_ERR_INVALID && (row->options->kept == KVBENCH_KEPT_PAPER || row->anchor != NULL)) {
                snprintf(row->reason, sizeof row->reason, "%s", dci_last_error());
                return DCI_OK;
        }
        return status == DCI_OK ? status : fail_about_arm(row, status);
}

/* --- the prompt ----------------------------------------------------------------------------------------------------------- */

static dci_status append(const player *p, size_t first, size_t n)
{
        dci_kv_rows rows;
        DCI_TRY(dci_kv_rows_init(&rows, sizeof rows));
        for (size_t layer = 0; layer <= last_layer(p); layer++) {
                const kvbench_trace *trace = trace_of(p, layer);
                const size_t element = dci_dtype_size(trace->keys.dtype);
                rows.keys = (const char *)trace->keys.data + first * trace->keys.dim * element;
                rows.values = (const char *)trace->values.data + first * trace->values.dim * element;
                DCI_TRY(dci_kv_append(p->kv, layer, 1, &p->sequence, &n, &rows));
        }
        return DCI_OK;
}

static dci_status prefill(player *p)
{
        const size_t n = p->trace->prompt;
        DCI_TRY(dci_kv_open(p->kv, &p->sequence));
        DCI_TRY(dci_kv_reserve(p->kv, 1, &p->sequence, &n));
        DCI_TRY(append(p, 0, n));
        const double begin = bench_seconds();
        for (size_t layer = 0; layer <= last_layer(p); layer++) {
                const kvbench_trace *trace = trace_of(p, layer);
                const size_t n_observed = trace->observed.n / trace->group;
                DCI_TRY(dci_kv_end_prompt(p->kv, layer, p->sequence, n_observed,
                                          n_observed > 0 ? trace->observed.data : NULL, trace->keys.dim));
        }
        const double pause = bench_seconds();
        DCI_TRY(dci_kv_step_end(p->kv, 1, &p->sequence));
        const double again = bench_seconds();
        DCI_TRY(dci_kv_wait(p->kv, p->sequence));
        p->row->build_ms = 1e3 * (bench_seconds() - again + pause - begin);
        return DCI_OK;
}

/* --- the decode ----------------------------------------------------------------------------------------------------------- */

static const void *queries_of(const kvbench_trace *trace, size_t t)
{
        return (const char *)trace->queries.data +
               (t - trace->prompt) * trace->group * trace->keys.dim * dci_dtype_size(trace->queries.dtype);
}

static dci_status attend(const player *p, size_t t, const dci_kv_plan *plan, float *out)
{
        const kvbench_trace *trace = p->trace;
        return dci_kv_attend(p->kv, last_layer(p), 1, &p->sequence, queries_of(trace, t), trace->keys.dim, plan, out,
                             trace->values.dim, NULL);
}

/* Outside of the clock: the attention without the tail, and its errors. */
static dci_status judge_step(player *p, size_t t)
{
        dci_status status = kvbench_judge_plan(&p->judge, t, &p->plan);
        if (status == DCI_OK && p->row->watch != NULL)
                status = p->row->watch(p->row->watcher, t, &p->plan);
        if (status != DCI_OK || !kvbench_is_judged(&p->judge, t))
                return status;
        if (!p->judge.has_tail) {
                kvbench_judge_step(&p->judge, t, &p->plan, p->tail, NULL);
                return DCI_OK;
        }
        dci_kv_plan alone = p->plan;
        alone.tail_out = alone.tail_lse = NULL;
        status = attend(p, t, &alone, p->out);
        if (status == DCI_OK)
                kvbench_judge_step(&p->judge, t, &p->plan, p->out, p->tail);
        return status;
}

/* Without updates: what is decoded and left the window is attended to by nobody. */
static void forget_decoded(const player *p)
{
        const int32_t recent = p->plan.n_tokens[0] - (int32_t)p->row->info.window;
        if (p->row->arm.still && p->plan.recent_begin[0] > 0 && p->plan.recent_begin[0] < recent)
                p->plan.recent_begin[0] = recent;
}

/* What a step does between append and its end; the judge is not timed. */
static dci_status plan_and_attend(player *p, size_t t, double *out_seconds)
{
        const size_t n = p->row->n_planned++, last = last_layer(p), dim = p->trace->keys.dim;
        dci_status status = DCI_OK;
        if (p->row->anchor != NULL)
                status = dci_kv_plan_make(p->kv, 0, 1, &p->sequence, queries_of(p->row->anchor, t), dim, &p->plan);
        const double begin = bench_seconds();
        if (status == DCI_OK)
                status = dci_kv_plan_make(p->kv, last, 1, &p->sequence, queries_of(p->trace, t), dim, &p->plan);
        const double planned = bench_seconds();
        if (status == DCI_OK) {
                forget_decoded(p);
                status = attend(p, t, &p->plan, p->tail);
        }
        const double attended = bench_seconds();
        p->seconds[KVBENCH_PLAN][n] = planned - begin;
        p->seconds[KVBENCH_ATTEND][n] = attended - planned;
        *out_seconds = attended - begin;
        return status == DCI_OK ? judge_step(p, t) : status;
}

/* The parts of a step, in their order. */
static dci_status play_step(player *p, size_t t)
{
        const size_t step = t - p->trace->prompt;
        /* Lists that are kept between plans need them all, and so do orders that come of their queries. */
        const bool keeps = (p->row->info.schedule != DCI_KV_EVERY_STEP && p->row->info.schedule != DCI_KV_ONCE) ||
                           p->row->info.group == DCI_KV_GROUP_REORDERED;
        const bool planned = keeps || !p->options->judged_only || kvbench_is_judged(&p->judge, t);
        double between = 0;
        const double begin = bench_seconds();
        DCI_TRY(dci_kv_reserve(p->kv, 1, &p->sequence, NULL));
        const double reserved = bench_seconds();
        DCI_TRY(append(p, t, 1));
        const double appended = bench_seconds();
        if (planned)
                DCI_TRY(plan_and_attend(p, t, &between));
        const double again = bench_seconds();
        DCI_TRY(dci_kv_step_end(p->kv, 1, &p->sequence));
        const double ended = bench_seconds();
        DCI_TRY(dci_kv_maintain(p->kv, 1, &p->sequence));
        const double end = bench_seconds();
        p->seconds[KVBENCH_APPEND][step] = appended - reserved;
        p->seconds[KVBENCH_MAINTAIN][step] = end - ended;
        if (planned)
                p->seconds[KVBENCH_STEP][p->row->n_planned - 1] = appended - begin + between + end - again;
        return DCI_OK;
}

static dci_status decode(player *p)
{
        const kvbench_trace *trace = p->trace;
        dci_status status = DCI_OK;
        char label[64], codes[32];
        bench_progress progress;
        kvbench_codes_name(&p->row->arm, codes, sizeof codes);
        snprintf(label, sizeof label, "%s %s B %zu", dci_kv_preset_name(p->row->arm.preset), codes,
                 p->options->budgets.values[p->row->arm.budget]);
        bench_progress_begin(&progress, label);
        for (size_t t = trace->prompt; status == DCI_OK && t < trace->tokens; t++) {
                bench_progress_step(&progress, t - trace->prompt, trace->tokens - trace->prompt);
                status = play_step(p, t);
        }
        bench_progress_end(&progress);
        return status;
}

/* --- an arm --------------------------------------------------------------------------------------------------------------- */

static dci_status open_player(player *p, dci_context *context, const kvbench_truth *truth)
{
        const kvbench_trace *trace = p->trace;
        const size_t n_steps = trace->tokens - trace->prompt;
        DCI_TRY(create(context, trace, p->row, &p->kv));
        DCI_TRY(dci_kv_info_init(&p->row->info, sizeof p->row->info));
        DCI_TRY(dci_kv_get_info(p->kv, &p->row->info));
        DCI_TRY(dci_kv_plan_init(&p->plan, sizeof p->plan));
        DCI_TRY(dci_kv_plan_init(&p->plan, sizeof p->plan));
        DCI_TRY(dci_kv_plan_create(p->kv, 1, &p->plan));
        p->out = dci_alloc(trace->helper, trace->group, trace->values.dim * sizeof *p->out);
        p->tail = dci_alloc(trace->helper, trace->group, trace->values.dim * sizeof *p->tail);
        bool enough = p->out != NULL && p->tail != NULL;
        for (size_t i = 0; enough && i < KVBENCH_TIMES; i++) {
                p->seconds[i] = dci_calloc(trace->helper, n_steps, sizeof *p->seconds[i]);
                enough = p->seconds[i] != NULL;
        }
        DCI_TRY(enough ? kvbench_judge_open(p->options, trace, truth, p->row->arm.budget, p->plan.stride,
                                            p->row->info.tail != DCI_KV_TAIL_DROP, &p->judge)
                       : DCI_ERR_MEMORY);
        p->judge.all = p->row->info.select == DCI_KV_SELECT_ALL;
        p->judge.selected_only = p->row->info.budget_counts != DCI_KV_COUNT_ALL;
        return DCI_OK;
}

static void close_player(player *p)
{
        const kvbench_trace *trace = p->trace;
        kvbench_judge_close(&p->judge);
        for (size_t i = 0; i < KVBENCH_TIMES; i++)
                dci_free(trace->helper, p->seconds[i], trace->tokens - trace->prompt, sizeof *p->seconds[i]);
        dci_free(trace->helper, p->out, trace->group, trace->values.dim * sizeof *p->out);
        dci_free(trace->helper, p->tail, trace->group, trace->values.dim * sizeof *p->tail);
        if (p->kv != NULL)
                dci_kv_plan_destroy(p->kv, &p->plan);
        dci_kv_destroy(p->kv);
}

static dci_status finish(player *p)
{
        kvbench_row *row = p->row;
        dci_kv_sequence_info sequence;
        DCI_TRY(dci_kv_get_info(p->kv, &row->info));
        DCI_TRY(dci_kv_sequence_info_init(&sequence, sizeof sequence));
        DCI_TRY(dci_kv_get_sequence(p->kv, p->sequence, &sequence));
        row->refits = sequence.refits;
        /* Clusters and segments may be smaller than the config would have them, and then they are more: measured. What is
         * counted of a stored order may be two, while a new one is made. */
        const bool measured = sequence.n_batches > 0 && row->info.group != DCI_KV_GROUP_REORDERED;
        row->resident = measured && sequence.n_grouped > 0
                                ? (double)row->info.summary_bytes / (double)sequence.n_grouped
                                : row->info.resident_token_bytes;
        row->drift = sequence.drift;
        row->decided = row->corrected = (double)NAN;
        if (sequence.n_plans > 0) {
                row->decided = (double)sequence.n_decisions / (double)sequence.n_plans;
                row->corrected = (double)sequence.n_corrections / (double)sequence.n_plans;
        }
        row->n_steps = p->trace->tokens - p->trace->prompt;
        row->marks = kvbench_judge_marks(&p->judge);
        for (size_t i = 0; i < KVBENCH_TIMES; i++) {
                const bool each = i == KVBENCH_APPEND || i == KVBENCH_MAINTAIN;
                row->times[i] = bench_latency_of(p->seconds[i], each ? row->n_steps : row->n_planned);
        }
        return DCI_OK;
}

dci_status kvbench_play(dci_context *context, const kvbench_trace *trace, const kvbench_truth *truth, kvbench_row *row)
{
        player p;
        memset(&p, 0, sizeof p);
        p.trace = trace;
        p.options = row->options;
        p.row = row;
        dci_status status = open_player(&p, context, truth);
        if (status == DCI_OK)
                status = prefill(&p);
        if (status == DCI_OK)
                status = decode(&p);
        if (status == DCI_OK)
                status = finish(&p);
        if (status != DCI_OK)
                status = fail_about_arm(row, status);
        close_player(&p);
        return status;
}
