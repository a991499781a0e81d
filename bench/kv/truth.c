/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/kv/kv.h"

#include <math.h>
#include <string.h>

/* Independent sums hide the latency of an addition. */
#define LANES 8
/* A weight below it is lost in double precision, whatever there are of it. */
#define NO_WEIGHT 1e-24
/* Keys that stay in the cache while the heads of a group pass over them. */
#define BLOCK 64

/* One position after the other, each a task. */
typedef struct pass {
        const kvbench_options *options;
        const kvbench_trace *trace;
        kvbench_truth *truth;
        double *scratch; /* per worker: group x tokens scores, a copy of tokens of them, group x dim of queries */
        size_t per_worker;
} pass;

double kvbench_dot(const double *a, const float *b, size_t dim)
{
        double sums[LANES] = {0}, sum = 0;
        size_t i = 0;
        for (; i + LANES <= dim; i += LANES)
                for (size_t j = 0; j < LANES; j++)
                        sums[j] += a[i + j] * (double)b[i + j];
        for (; i < dim; i++)
                sum += a[i] * (double)b[i];
        return sum + (((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7])));
}

size_t kvbench_contested_end(const kvbench_options *o, const kvbench_trace *trace, size_t t)
{
        const size_t end = o->frozen_prompt ? trace->prompt : t + 1 - (t + 1 < KVBENCH_WINDOW ? t + 1 : KVBENCH_WINDOW);
        return end > BENCH_SINK ? end : BENCH_SINK;
}

static void swap(double *a, double *b)
{
        const double x = *a;
        *a = *b;
        *b = x;
}

/* Quickselect. */
double kvbench_kth_greatest(double *x, size_t n, size_t k)
{
        size_t first = 0, last = n - 1;
        k--;
        while (first < last) {
                const size_t middle = first + (last - first) / 2;
                /* Ends and middle in order: the median of three is the pivot, and the ends stop the two walks. */
                if (x[middle] > x[first])
                        swap(&x[middle], &x[first]);
                if (x[last] > x[first])
                        swap(&x[last], &x[first]);
                if (x[last] > x[middle])
                        swap(&x[last], &x[middle]);
                const double pivot = x[middle];
                size_t i = first, j = last;
                for (;;) {
                        while (x[i] > pivot)
                                i++;
                        while (x[j] < pivot)
                                j--;
                        if (i >= j)
                                break;
                        swap(&x[i++], &x[j--]);
                }
                /* [first, j] are at least the pivot, [j + 1, last] at most. */
                if (k <= j)
                        last = j;
                else
                        first = j + 1;
        }
        return x[first];
}

static void find_scores(const pass *p, size_t t, const double *queries, double *scores)
{
        const kvbench_trace *trace = p->trace;
        const size_t n = t + 1, dim = trace->keys.dim;
        for (size_t begin = 0; begin < n; begin += BLOCK) {
                const size_t end = n - begin < BLOCK ? n : begin + BLOCK;
                for (size_t h = 0; h < trace->group; h++)
                        for (size_t i = begin; i < end; i++)
                                scores[h * trace->tokens + i] =
                                        trace->scale * kvbench_dot(queries + h * dim, trace->key_rows + i * dim, dim);
        }
}

/* Of one head: from its scores the denominator, the output and the contested weight, which it returns. */
static double weigh(const pass *p, size_t t, size_t at, const double *scores)
{
        const kvbench_truth *truth = p->truth;
        const size_t n = t + 1, dim = truth->dim, end = kvbench_contested_end(p->options, p->trace, t);
        double *out = truth->out + at * dim, most = -INFINITY, sum = 0, contested = 0;
        for (size_t i = 0; i < n; i++)
                most = fmax(most, scores[i]);
        memset(out, 0, dim * sizeof *out);
        for (size_t i = 0; i < n; i++) {
                const double weight = exp(scores[i] - most);
                if (weight < NO_WEIGHT)
                        continue;
                const float *value = p->trace->value_rows + i * dim;
                for (size_t j = 0; j < dim; j++)
                        out[j] += weight * (double)value[j];
                sum += weight;
                contested += i >= BENCH_SINK && i < end ? weight : 0;
        }
        for (size_t j = 0; j < dim; j++)
                out[j] /= sum;
        truth->log_sums[at] = most + log(sum);
        return contested / sum;
}

static void find_position(void *arg, size_t task, size_t worker)
{
        const pass *p = arg;
        const kvbench_truth *truth = p->truth;
        const size_t t = truth->first + task * truth->every, n = t + 1, group = truth->group;
        double *scores = p->scratch + worker * p->per_worker, *copy = scores + group * p->trace->tokens;
        double *queries = copy + p->trace->tokens;
        for (size_t h = 0; h < group; h++)
                bench_row_to_double(&p->trace->queries, (t - p->trace->prompt) * group + h,
                                    queries + h * p->trace->keys.dim);
        find_scores(p, t, queries, scores);
        truth->contested[task] = 0;
        for (size_t h = 0; h < group; h++) {
                const double *of_head = scores + h * p->trace->tokens;
                truth->contested[task] += weigh(p, t, task * group + h, of_head);
                memcpy(copy, of_head, n * sizeof *copy);
                for (size_t b = 0; b < truth->n_budgets; b++) {
                        const size_t budget = p->options->budgets.values[b];
                        truth->limits[(task * group + h) * truth->n_budgets + b] =
                                budget < n ? kvbench_kth_greatest(copy, n, budget) : -(double)INFINITY;
                }
        }
}

static dci_status run_pass(pass *p)
{
        const kvbench_trace *trace = p->trace;
        dci_context *helper = trace->helper;
        const size_t tasks = p->truth->n_judged,
                     work = trace->tokens * trace->group * (trace->keys.dim + p->truth->dim);
        const size_t n_workers = dci_workers_for(helper, tasks, tasks * work);
        bench_progress progress;
        p->per_worker = (trace->group + 1) * trace->tokens + trace->group * trace->keys.dim;
        p->scratch = dci_alloc(helper, n_workers, p->per_worker * sizeof *p->scratch);
        if (p->scratch == NULL)
                return DCI_ERR_MEMORY;
        bench_progress_begin(&progress, "exact attention");
        const dci_progress callback = bench_progress_callback(&progress);
        const dci_region region = {.context = helper,
                                   .n_tasks = tasks,
                                   .n_workers = n_workers,
                                   .fn = find_position,
                                   .arg = p,
                                   .progress = &callback,
                                   .progress_total = tasks,
                                   .object = p};
        dci_status status = dci_parallel(&region);
        bench_progress_end(&progress);
        dci_free(helper, p->scratch, n_workers, p->per_worker * sizeof *p->scratch);
        return status;
}

static dci_status truth_alloc(const kvbench_options *o, const kvbench_trace *trace, kvbench_truth *out)
{
        const size_t decoded = trace->tokens - trace->prompt, skipped = o->every > 0 ? KVBENCH_FIRST : 0;
        memset(out, 0, sizeof *out);
        if (decoded <= skipped)
                return dci_fail(DCI_ERR_FORMAT,
                                "%s: %zu decoded tokens are too few; the first that is judged is prompt + %zu",
                                trace->name, decoded, skipped);
        out->context = trace->helper;
        out->first = trace->prompt + skipped;
        out->every = o->every > 0 ? o->every : 1;
        out->n_judged = (trace->tokens - out->first + out->every - 1) / out->every;
        out->group = trace->group;
        out->dim = trace->values.dim;
        out->n_budgets = o->budgets.n;
        const size_t n = out->n_judged * out->group;
        out->log_sums = dci_alloc(out->context, n, sizeof *out->log_sums);
        out->limits = dci_alloc(out->context, n, out->n_budgets * sizeof *out->limits);
        out->out = dci_alloc(out->context, n, out->dim * sizeof *out->out);
        out->contested = dci_alloc(out->context, out->n_judged, sizeof *out->contested);
        return out->log_sums != NULL && out->limits != NULL && out->out != NULL && out->contested != NULL
                       ? DCI_OK
                       : DCI_ERR_MEMORY;
}

/* NaN and infinity show in every sum that they reach. */
static dci_status check(const kvbench_trace *trace, const kvbench_truth *truth)
{
        double sum = 0;
        for (size_t i = 0; i < truth->n_judged; i++)
                sum += truth->contested[i];
        for (size_t i = 0; i < truth->n_judged * truth->group * truth->dim; i++)
                sum += truth->out[i];
        return isfinite(sum) ? DCI_OK
                             : dci_fail(DCI_ERR_NUMBER, "%s: holds NaN or infinity, or values too large to weigh",
                                        trace->name);
}

/* A NaN would keep the selection from ending; keys before the first position that is judged are seen by none of them alone. */
dci_status kvbench_check_finite(const kvbench_trace *trace)
{
        const size_t n = trace->tokens * trace->keys.dim;
        double sum = 0, *row = dci_alloc(trace->helper, trace->keys.dim, sizeof *row);
        if (row == NULL)
                return DCI_ERR_MEMORY;
        for (size_t i = 0; i < n; i++)
                sum += fabs((double)trace->key_rows[i]);
        const size_t n_decoded = (trace->tokens - trace->prompt) * trace->group;
        for (size_t i = 0; i < n_decoded + trace->observed.n; i++) {
                bench_row_to_double(i < n_decoded ? &trace->queries : &trace->observed,
                                    i < n_decoded ? i : i - n_decoded, row);
                for (size_t j = 0; j < trace->keys.dim; j++)
                        sum += fabs(row[j]);
        }
        dci_free(trace->helper, row, trace->keys.dim, sizeof *row);
        return isfinite(sum) ? DCI_OK
                             : dci_fail(DCI_ERR_NUMBER, "%s: keys or queries hold NaN or infinity", trace->name);
}

dci_status kvbench_truth_find(const kvbench_options *o, const kvbench_trace *trace, kvbench_truth *out)
{
        pass p = {.options = o, .trace = trace, .truth = out};
        DCI_TRY(truth_alloc(o, trace, out));
        DCI_TRY(kvbench_check_finite(trace));
        DCI_TRY(run_pass(&p));
        return check(trace, out);
}

void kvbench_truth_free(kvbench_truth *truth)
{
        const size_t n = truth->n_judged * truth->group;
        dci_free(truth->context, truth->log_sums, n, sizeof *truth->log_sums);
        dci_free(truth->context, truth->limits, n, truth->n_budgets * sizeof *truth->limits);
        dci_free(truth->context, truth->out, n, truth->dim * sizeof *truth->out);
        dci_free(truth->context, truth->contested, truth->n_judged, sizeof *truth->contested);
        memset(truth, 0, sizeof *truth);
}
