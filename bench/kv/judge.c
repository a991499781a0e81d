/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/kv/kv.h"

#include <math.h>
#include <string.h>

/* Parts of the decode that errors are kept of. */
enum { ALL, FIRST, LAST, PARTS };

dci_status kvbench_judge_open(const kvbench_options *o, const kvbench_trace *trace, const kvbench_truth *truth,
                              size_t budget, size_t room, bool has_tail, kvbench_judge *out)
{
        memset(out, 0, sizeof *out);
        out->options = o;
        out->trace = trace;
        out->truth = truth;
        out->budget = budget;
        out->room = room;
        out->has_tail = has_tail;
        out->attended = dci_alloc(trace->helper, trace->tokens, sizeof *out->attended);
        out->chosen = dci_alloc(trace->helper, trace->tokens, sizeof *out->chosen);
        out->before = dci_alloc(trace->helper, trace->tokens, sizeof *out->before);
        out->query = dci_alloc(trace->helper, trace->keys.dim, sizeof *out->query);
        out->last = dci_calloc(trace->helper, trace->tokens, sizeof *out->last);
        if (out->last == NULL || out->chosen == NULL)
                return DCI_ERR_MEMORY;
        return out->attended != NULL && out->before != NULL && out->query != NULL ? DCI_OK : DCI_ERR_MEMORY;
}

void kvbench_judge_close(kvbench_judge *judge)
{
        if (judge->trace == NULL)
                return;
        dci_context *helper = judge->trace->helper;
        dci_free(helper, judge->attended, judge->trace->tokens, sizeof *judge->attended);
        dci_free(helper, judge->last, judge->trace->tokens, sizeof *judge->last);
        dci_free(helper, judge->chosen, judge->trace->tokens, sizeof *judge->chosen);
        dci_free(helper, judge->before, judge->trace->tokens, sizeof *judge->before);
        dci_free(helper, judge->query, judge->trace->keys.dim, sizeof *judge->query);
        memset(judge, 0, sizeof *judge);
}

/* --- what a plan chooses ------------------------------------------------------------------------------------------------ */

/* The tokens before `first`, those of the list and those from `recent` on. */
typedef struct parts {
        size_t first, recent, n_chosen, n_tokens;
} parts;

static parts parts_of(const dci_kv_plan *plan, size_t list)
{
        /* recent 0 stands for everything. */
        const size_t recent = (size_t)plan->recent_begin[0], first = (size_t)plan->sink_end[0];
        const parts p = {recent > 0 ? first : 0, recent, recent > 0 ? (size_t)plan->counts[list] : 0,
                         (size_t)plan->n_tokens[0]};
        return p;
}

static dci_status check_plan(const kvbench_judge *judge, size_t t, const dci_kv_plan *plan, size_t list)
{
        const int32_t n = plan->counts[list], recent = plan->recent_begin[0];
        int32_t next = plan->sink_end[0];
        if (plan->n_tokens[0] != (int32_t)(t + 1))
                return dci_fail(BENCH_ERR_RUN, "the plan of position %zu is of %d tokens", t, plan->n_tokens[0]);
        if (next < 0 || recent < 0 || recent > plan->n_tokens[0] || n < 0 || (size_t)n > judge->room)
                return dci_fail(BENCH_ERR_RUN, "the plan of position %zu: sink to %d, %d chosen, recent from %d", t,
                                next, n, recent);
        for (int32_t i = 0; recent > 0 && i < n; i++) {
                const int32_t position = plan->positions[list * plan->stride + (size_t)i];
                if (position < next || position >= recent)
                        return dci_fail(BENCH_ERR_RUN,
                                        "the plan of position %zu chooses token %d, which is not of %d to %d", t,
                                        position, next, recent - 1);
                next = position + 1;
        }
        return DCI_OK;
}

/* Tokens that count: --frozen-prompt leaves out those that were decoded, and other accounting may leave out more. */
static dci_status check_budget(const kvbench_judge *judge, size_t t, const parts *p)
{
        const size_t budget = judge->options->budgets.values[judge->budget];
        const size_t end = judge->options->frozen_prompt ? judge->trace->prompt : p->n_tokens;
        const size_t kept = p->first + (end > p->recent ? end - p->recent : 0),
                     counted = p->n_chosen + (judge->selected_only ? 0 : kept);
        if (judge->all || counted <= budget)
                return DCI_OK;
        return dci_fail(BENCH_ERR_RUN, "the plan of position %zu attends to %zu tokens", t, counted);
}

static size_t in_both(const int32_t *a, size_t n_a, const int32_t *b, size_t n_b)
{
        size_t i = 0, j = 0, n = 0;
        while (i < n_a && j < n_b) {
                if (a[i] == b[j])
                        n++;
                const int32_t x = a[i], y = b[j];
                i += x <= y;
                j += y <= x;
        }
        return n;
}

/* Adds a list to what is chosen, from the end on, where there is room for both. */
static void add_chosen(kvbench_judge *judge, const int32_t *list, size_t n)
{
        int32_t *chosen = judge->chosen;
        size_t a = judge->n_chosen, b = n, at = a + b - in_both(chosen, a, list, n);
        judge->n_chosen = at;
        while (b > 0) {
                const int32_t x = a > 0 ? chosen[a - 1] : -1, y = list[b - 1];
                chosen[--at] = x > y ? x : y;
                a -= x >= y;
                b -= y >= x;
        }
}

/* What a cache of all that the last steps chose would have had. */
static void count_hits(kvbench_judge *judge, const int32_t *chosen, size_t n)
{
        static const uint32_t steps[KVBENCH_HITS] = {1, 2, 4};
        const uint32_t now = (uint32_t)judge->n_steps + 1;
        for (size_t i = 0; i < n; i++) {
                uint32_t *last = &judge->last[chosen[i]];
                for (size_t r = 0; r < KVBENCH_HITS; r++)
                        judge->n_hits[r] += now > 1 && *last > 0 && now - *last <= steps[r];
                *last = now;
        }
        judge->n_looked += now > 1 ? (double)n : 0;
}

dci_status kvbench_judge_plan(kvbench_judge *judge, size_t t, const dci_kv_plan *plan)
{
        const parts all = parts_of(plan, 0);
        const size_t n_kept = all.first + all.n_tokens - all.recent;
        judge->n_chosen = 0;
        for (size_t l = 0; l < plan->n_lists; l++) {
                const parts p = parts_of(plan, l);
                DCI_TRY(check_plan(judge, t, plan, l));
                DCI_TRY(check_budget(judge, t, &p));
                judge->n_attended_query_head += (double)(n_kept + p.n_chosen) / (double)plan->n_lists;
                add_chosen(judge, plan->positions + l * plan->stride, p.n_chosen);
        }
        const size_t same = in_both(judge->chosen, judge->n_chosen, judge->before, judge->n_before);
        const size_t either = judge->n_chosen + judge->n_before - same;
        if (judge->n_steps > 0 && either > 0) {
                judge->overlap += (double)same / (double)either;
                judge->n_overlap++;
        }
        judge->n_attended += (double)(n_kept + judge->n_chosen);
        judge->n_all_chosen += (double)judge->n_chosen;
        judge->n_moved += (double)(judge->n_chosen - same);
        count_hits(judge, judge->chosen, judge->n_chosen);
        judge->n_steps++;
        memcpy(judge->before, judge->chosen, judge->n_chosen * sizeof *judge->before);
        judge->n_before = judge->n_chosen;
        return DCI_OK;
}

/* --- what is attended to --------------------------------------------------------------------------------------------------- */

bool kvbench_is_judged(const kvbench_judge *judge, size_t t)
{
        return t >= judge->truth->first && (t - judge->truth->first) % judge->truth->every == 0;
}

static size_t list_attended(kvbench_judge *judge, const dci_kv_plan *plan, size_t list)
{
        const parts p = parts_of(plan, list);
        size_t n = 0;
        for (size_t i = 0; i < p.first; i++)
                judge->attended[n++] = (int32_t)i;
        for (size_t i = 0; i < p.n_chosen; i++)
                judge->attended[n++] = plan->positions[list * plan->stride + i];
        for (size_t i = p.recent; i < p.n_tokens; i++)
                judge->attended[n++] = (int32_t)i;
        return n;
}

/* One head at `at`, the number of position and head: adds the weight attended to, and the share of the best tokens. */
static void weigh_attended(kvbench_judge *judge, size_t t, size_t at, size_t n_attended)
{
        const kvbench_trace *trace = judge->trace;
        const kvbench_truth *truth = judge->truth;
        const size_t dim = trace->keys.dim, end = kvbench_contested_end(judge->options, trace, t);
        const size_t budget = judge->options->budgets.values[judge->budget], best = budget < t + 1 ? budget : t + 1;
        const double limit = truth->limits[at * truth->n_budgets + judge->budget];
        size_t found = 0;
        bench_row_to_double(&trace->queries, (t - trace->prompt) * trace->group + at % trace->group, judge->query);
        for (size_t i = 0; i < n_attended; i++) {
                const size_t token = (size_t)judge->attended[i];
                const double score = trace->scale * kvbench_dot(judge->query, trace->key_rows + token * dim, dim);
                const double weight = exp(score - truth->log_sums[at]);
                judge->recall += weight;
                judge->kept += token >= BENCH_SINK && token < end ? weight : 0;
                found += score >= limit;
        }
        /* Of tokens with the same score one is as good as the other. */
        judge->found += (double)(found < best ? found : best) / (double)best;
}

/* |o - o*| / |o*|; a true output of zero has no error but against another. */
static double error_of(const float *out, const double *truth, size_t dim)
{
        double difference = 0, length = 0;
        for (size_t j = 0; j < dim; j++) {
                const double d = (double)out[j] - truth[j];
                difference += d * d;
                length += truth[j] * truth[j];
        }
        return length > 0 ? sqrt(difference / length) : difference > 0 ? (double)INFINITY : 0;
}

void kvbench_judge_step(kvbench_judge *judge, size_t t, const dci_kv_plan *plan, const float *out, const float *tail)
{
        const kvbench_truth *truth = judge->truth;
        const size_t group = truth->group, dim = truth->dim, number = (t - truth->first) / truth->every;
        const size_t n_steps = judge->trace->tokens - judge->trace->prompt, step = t - judge->trace->prompt;
        const bool whole = plan->recent_begin[0] == 0,
                   in[PARTS] = {true, step < n_steps / 4, step >= n_steps - n_steps / 4};
        judge->contested += truth->contested[number];
        if (whole) {
                judge->kept += truth->contested[number];
                judge->recall += (double)group;
                judge->found += (double)group;
        }
        judge->heads += (double)group;
        for (size_t h = 0; h < group; h++) {
                const size_t at = number * group + h;
                const double *exact = truth->out + at * dim;
                if (!whole)
                        weigh_attended(judge, t, at, list_attended(judge, plan, h * plan->n_lists / group));
                for (size_t part = 0; part < PARTS; part++) {
                        if (!in[part])
                                continue;
                        judge->err[0][part] += error_of(out + h * dim, exact, dim);
                        judge->err[1][part] += tail != NULL ? error_of(tail + h * dim, exact, dim) : 0;
                        judge->n_err[part]++;
                }
                judge->sixths[step * KVBENCH_SIXTHS / n_steps] +=
                        error_of((tail != NULL ? tail : out) + h * dim, exact, dim);
                judge->n_sixths[step * KVBENCH_SIXTHS / n_steps]++;
        }
}

static double ratio(double a, double b)
{
        return b > 0 ? a / b : (double)NAN;
}

kvbench_marks kvbench_judge_marks(const kvbench_judge *judge)
{
        const kvbench_trace *trace = judge->trace;
        const double steps = (double)judge->n_steps;
        const double row_bytes = (double)((trace->keys.dim + trace->values.dim) * dci_dtype_size(trace->keys.dtype));
        kvbench_marks m = {.share = ratio(judge->kept, judge->contested),
                           .recall = ratio(judge->recall, judge->heads),
                           .token_recall = ratio(judge->found, judge->heads),
                           .overlap = ratio(judge->overlap, judge->n_overlap),
                           .attended = ratio(judge->n_attended, steps),
                           .attended_query_head = ratio(judge->n_attended_query_head, steps),
                           .bytes_step = ratio(judge->n_all_chosen * row_bytes, steps),
                           .bytes_step_cached = ratio(judge->n_moved * row_bytes, steps),
                           .n_judged = judge->truth->n_judged};
        for (size_t r = 0; r < KVBENCH_HITS; r++)
                m.hits[r] = judge->options->judged_only ? (double)NAN : ratio(judge->n_hits[r], judge->n_looked);
        /* Steps that were left out had plans of their own. */
        if (judge->options->judged_only)
                m.overlap = m.bytes_step_cached = (double)NAN;
        for (size_t part = 0; part < PARTS; part++) {
                m.err[part] = ratio(judge->err[0][part], judge->n_err[part]);
                m.err_tail[part] = judge->has_tail ? ratio(judge->err[1][part], judge->n_err[part]) : (double)NAN;
        }
        for (size_t i = 0; i < KVBENCH_SIXTHS; i++)
                m.sixths[i] = ratio(judge->sixths[i], judge->n_sixths[i]);
        return m;
}
