/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Pages of the keys of a trace. The prompt after the sink is frozen; at some positions of the decode, pages are taken by the
 * attention of the group's heads to the pages' means, until the budget is spent, the last page in part; the share is the true
 * weight of the tokens chosen over that of all tokens of the prompt after the sink, summed before the division.
 */
#include "bench/common/exact.h"
#include "bench/kmeans/kmeans.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Tokens of each budget: those of the sink and of a window of 64 count inside it. */
static const size_t budgets[] = {128, 256, 512};
enum { N_BUDGETS = sizeof budgets / sizeof *budgets, WINDOW = 64 };

/* Positions that are judged: every STEP tokens from the first on, every LONG_STEP where LONG tokens or more are decoded. */
enum { FIRST = 8, STEP = 24, LONG_STEP = 240, LONG = 1000 };

/* A page and the attention of a group's heads to it. */
typedef struct page_score {
        double score;
        size_t page;
} page_score;

typedef struct pages {
        size_t n_pages;
        int32_t *starts;    /* n + 1 of room: where each page begins in rows; the last is n */
        int32_t *rows;      /* n, ascending within a page */
        double *means;      /* n_pages x dim */
        page_score *scores; /* n_pages */
        double *weights;    /* n_pages: of one head */
        double kept[N_BUDGETS];
} pages;

/* The shares of an arm over all seeds. */
typedef struct arm_share {
        double sum, least, most;
} arm_share;

enum { ARM_BALANCED, ARM_CUT, ARM_POSITION, N_ARMS };
static const char *const arm_names[N_ARMS] = {"balanced", "k-means, cut", "position"};

typedef struct trace_state {
        const kmeans_options *options;
        dci_context *helper, *measured;
        bench_dataset dataset;
        bench_rows x;                 /* the prompt's keys after the sink: a view */
        double *keys;                 /* tokens x dim */
        double *query, *logits, *tok; /* dim; tokens; n: the true weight of each row */
        double all;                   /* of tok, over all positions */
        size_t n_positions;
        kmeans_call calls[2]; /* of ARM_BALANCED and ARM_CUT, with the last seed */
        pages arms[N_ARMS];
        arm_share shares[N_ARMS][N_BUDGETS];
        size_t largest; /* of the balanced clusters of all seeds */
} trace_state;

/* --- pages ------------------------------------------------------------------------------------------------------------- */

static dci_status pages_alloc(trace_state *s, pages *p)
{
        const size_t n = s->x.n;
        p->starts = dci_alloc(s->helper, n + 1, sizeof *p->starts);
        p->rows = dci_alloc(s->helper, n, sizeof *p->rows);
        if (p->starts == NULL || p->rows == NULL)
                return DCI_ERR_MEMORY;
        p->starts[0] = 0;
        return DCI_OK;
}

static void pages_free(const trace_state *s, pages *p)
{
        const size_t n = s->x.n, dim = s->x.dim;
        dci_free(s->helper, p->starts, n + 1, sizeof *p->starts);
        dci_free(s->helper, p->rows, n, sizeof *p->rows);
        dci_free(s->helper, p->means, p->n_pages, dim * sizeof *p->means);
        dci_free(s->helper, p->scores, p->n_pages, sizeof *p->scores);
        dci_free(s->helper, p->weights, p->n_pages, sizeof *p->weights);
        memset(p, 0, sizeof *p);
}

/* The page of n rows that ends what there is so far. */
static void end_page(pages *p, size_t n)
{
        p->n_pages++;
        p->starts[p->n_pages] = p->starts[p->n_pages - 1] + (int32_t)n;
}

/* Cuts a cluster into as few pages as hold it, equal but for one row; the longer ones first. */
static void cut(pages *p, size_t n, size_t page)
{
        const size_t parts = (n + page - 1) / page;
        for (size_t i = 0; i < parts; i++)
                end_page(p, n / parts + (i < n % parts));
}

/* The library's clusters, each one page, or cut into pages of --page rows. */
static void pages_of_call(const trace_state *s, const kmeans_call *call, bool whole, pages *p)
{
        memcpy(p->rows, call->ids, s->x.n * sizeof *p->rows);
        for (size_t c = 0; c < call->config.n_clusters; c++) {
                const size_t n = (size_t)(call->offsets[c + 1] - call->offsets[c]);
                if (whole && n > 0)
                        end_page(p, n);
                else
                        cut(p, n, s->options->page);
        }
}

static void pages_by_position(const trace_state *s, pages *p)
{
        const size_t n = s->x.n, page = s->options->page;
        for (size_t i = 0; i < n; i++)
                p->rows[i] = (int32_t)i;
        for (size_t i = 0; i < n; i += page)
                end_page(p, n - i < page ? n - i : page);
}

static const double *key_of_row(const trace_state *s, int32_t row)
{
        return s->keys + (BENCH_SINK + (size_t)row) * s->x.dim;
}

static dci_status find_means(const trace_state *s, pages *p)
{
        const size_t dim = s->x.dim;
        p->means = dci_alloc(s->helper, p->n_pages, dim * sizeof *p->means);
        p->scores = dci_alloc(s->helper, p->n_pages, sizeof *p->scores);
        p->weights = dci_alloc(s->helper, p->n_pages, sizeof *p->weights);
        if (p->means == NULL || p->scores == NULL || p->weights == NULL)
                return DCI_ERR_MEMORY;
        for (size_t i = 0; i < p->n_pages; i++) {
                double *mean = p->means + i * dim;
                const double n = p->starts[i + 1] - p->starts[i];
                memset(mean, 0, dim * sizeof *mean);
                for (int32_t at = p->starts[i]; at < p->starts[i + 1]; at++)
                        for (size_t j = 0; j < dim; j++)
                                mean[j] += key_of_row(s, p->rows[at])[j];
                for (size_t j = 0; j < dim; j++)
                        mean[j] /= n;
        }
        return DCI_OK;
}

static dci_status make_pages(trace_state *s, const kmeans_options *o)
{
        const size_t n = s->x.n;
        /* slack >= 1, so that they hold all rows even where the product is rounded down. */
        const size_t needed = (n + o->page - 1) / o->page;
        size_t balanced = (size_t)ceil((double)n / (double)o->page * o->slack);
        balanced = balanced < needed ? needed : balanced > n ? n : balanced;
        const size_t clusters[2] = {balanced, n < o->page ? 1 : n / o->page}, capacities[2] = {o->page, 0};
        for (size_t a = 0; a < N_ARMS; a++) {
                DCI_TRY(pages_alloc(s, &s->arms[a]));
                if (a == ARM_POSITION) {
                        pages_by_position(s, &s->arms[a]);
                } else {
                        DCI_TRY(kmeans_call_open(s->helper, o, &s->x, clusters[a], capacities[a], true, &s->calls[a]));
                        DCI_TRY(kmeans_call_run(&s->calls[a], s->measured));
                        pages_of_call(s, &s->calls[a], a == ARM_BALANCED, &s->arms[a]);
                }
                DCI_TRY(find_means(s, &s->arms[a]));
        }
        return DCI_OK;
}

/* --- attention --------------------------------------------------------------------------------------------------------- */

/* weights[i] = softmax of scale * q.row[i] over n rows. */
static void softmax_of(const trace_state *s, const double *rows, size_t n, double *weights)
{
        const size_t dim = s->x.dim;
        double most = -INFINITY, sum = 0;
        for (size_t i = 0; i < n; i++) {
                weights[i] = s->dataset.trace.scale * bench_dot(s->query, rows + i * dim, dim);
                most = fmax(most, weights[i]);
        }
        for (size_t i = 0; i < n; i++) {
                weights[i] = exp(weights[i] - most);
                sum += weights[i];
        }
        for (size_t i = 0; i < n; i++)
                weights[i] /= sum;
}

static int best_first(const void *a, const void *b)
{
        const page_score *x = a, *y = b;
        if (x->score != y->score)
                return x->score > y->score ? -1 : 1;
        return (x->page > y->page) - (x->page < y->page);
}

/* Adds what the best pages hold within each budget. */
static void take_pages(const trace_state *s, pages *p)
{
        qsort(p->scores, p->n_pages, sizeof *p->scores, best_first);
        for (size_t b = 0; b < N_BUDGETS; b++) {
                size_t left = budgets[b] - BENCH_SINK - WINDOW;
                for (size_t i = 0; i < p->n_pages && left > 0; i++) {
                        const int32_t *rows = p->rows + p->starts[p->scores[i].page];
                        const size_t n = (size_t)(p->starts[p->scores[i].page + 1] - p->starts[p->scores[i].page]);
                        const size_t taken = n < left ? n : left;
                        for (size_t j = 0; j < taken; j++)
                                p->kept[b] += s->tok[rows[j]];
                        left -= taken;
                }
        }
}

static void judge_position(trace_state *s, size_t position)
{
        const bench_trace *trace = &s->dataset.trace;
        memset(s->tok, 0, s->x.n * sizeof *s->tok);
        for (size_t a = 0; a < N_ARMS; a++)
                for (size_t i = 0; i < s->arms[a].n_pages; i++)
                        s->arms[a].scores[i] = (page_score){0, i};
        for (size_t head = 0; head < trace->group; head++) {
                const size_t query = (position - trace->prompt) * trace->group + head;
                bench_row_to_double(&s->dataset.queries, query, s->query);
                softmax_of(s, s->keys, position + 1, s->logits);
                for (size_t i = 0; i < s->x.n; i++)
                        s->tok[i] += s->logits[BENCH_SINK + i];
                for (size_t a = 0; a < N_ARMS; a++) {
                        pages *p = &s->arms[a];
                        softmax_of(s, p->means, p->n_pages, p->weights);
                        for (size_t i = 0; i < p->n_pages; i++)
                                p->scores[i].score += p->weights[i];
                }
        }
        for (size_t i = 0; i < s->x.n; i++)
                s->all += s->tok[i];
        for (size_t a = 0; a < N_ARMS; a++)
                take_pages(s, &s->arms[a]);
        s->n_positions++;
}

static dci_status judge(trace_state *s)
{
        const bench_trace *trace = &s->dataset.trace;
        const size_t step = trace->tokens - trace->prompt < LONG ? STEP : LONG_STEP;
        bench_progress progress;
        bench_progress_begin(&progress, "positions");
        s->n_positions = 0;
        s->all = 0;
        for (size_t t = trace->prompt + FIRST; t < trace->tokens; t += step) {
                bench_progress_step(&progress, t - trace->prompt, trace->tokens - trace->prompt);
                judge_position(s, t);
        }
        bench_progress_end(&progress);
        if (s->n_positions == 0)
                return dci_fail(DCI_ERR_FORMAT, "%s: %zu decoded tokens are too few; the first position is prompt + %d",
                                s->dataset.name, trace->tokens - trace->prompt, FIRST);
        if (!isfinite(s->all) || !(s->all > 0))
                return dci_fail(DCI_ERR_NUMBER, "%s: holds NaN or infinity, or values too large to weigh",
                                s->dataset.name);
        return DCI_OK;
}

static void release_arms(trace_state *s)
{
        for (size_t a = 0; a < N_ARMS; a++)
                pages_free(s, &s->arms[a]);
        kmeans_call_close(&s->calls[ARM_BALANCED]);
        kmeans_call_close(&s->calls[ARM_CUT]);
}

/* The pages of the last seed are left for the report. */
static dci_status judge_seeds(trace_state *s)
{
        kmeans_options one = *s->options;
        dci_status status = DCI_OK;
        for (size_t i = 0; status == DCI_OK && i < s->options->seeds; i++) {
                release_arms(s);
                one.seed = s->options->seed + i;
                status = make_pages(s, &one);
                if (status == DCI_OK)
                        status = judge(s);
                if (status != DCI_OK)
                        break;
                for (size_t a = 0; a < N_ARMS; a++)
                        for (size_t b = 0; b < N_BUDGETS; b++) {
                                arm_share *all = &s->shares[a][b];
                                const double share = s->arms[a].kept[b] / s->all;
                                all->sum += share;
                                all->least = i == 0 ? share : fmin(all->least, share);
                                all->most = fmax(all->most, share);
                        }
                if (s->calls[ARM_BALANCED].report.largest > s->largest)
                        s->largest = s->calls[ARM_BALANCED].report.largest;
        }
        return status;
}

/* --- the report -------------------------------------------------------------------------------------------------------- */

static double fill_of(const trace_state *s, const pages *p)
{
        return (double)s->x.n / (double)p->n_pages / (double)s->options->page;
}

static void print_report(const trace_state *s)
{
        const kmeans_options *o = s->options;
        char n[32];
        bench_format_count(n, sizeof n, (double)s->x.n);
        printf("%s: %s keys of %zu, pages of %zu, %zu positions, %zu heads; %s, init %s, %zu rounds at most, %zu "
               "seed%s, isa %s\n\n",
               s->dataset.name, n, s->x.dim, o->page, s->n_positions, s->dataset.trace.group,
               bench_metric_name(o->metric), kmeans_init_name(o->init), o->iter, o->seeds, o->seeds > 1 ? "s" : "",
               dci_isa_name(dci_context_isa(s->measured)));
        printf("%-12s", "pages");
        for (size_t b = 0; b < N_BUDGETS; b++)
                printf("  share B %3zu", budgets[b]);
        printf("  %7s  %5s  %8s  %7s  %12s  %12s  %6s  %9s  %8s\n", "pages", "fill", "clusters", "largest", "objective",
               "free", "rounds", "stop", "seconds");
        for (size_t a = 0; a < N_ARMS; a++) {
                const pages *p = &s->arms[a];
                printf("%-12s", arm_names[a]);
                for (size_t b = 0; b < N_BUDGETS; b++)
                        printf("  %11.3f", s->shares[a][b].sum / (double)o->seeds);
                printf("  %7zu  %5.3f", p->n_pages, fill_of(s, p));
                if (a != ARM_POSITION) {
                        const dci_kmeans_report *r = &s->calls[a].report;
                        printf("  %8zu  %7zu  %12.7g  %12.7g  %6zu  %9s  %8.4f", s->calls[a].config.n_clusters,
                               r->largest, r->objective, r->objective_free, r->n_rounds, kmeans_stop_name(r->stop),
                               s->calls[a].seconds);
                }
                printf("\n");
        }
        printf("\n");
}

static json_t *arm_json(const trace_state *s, size_t a)
{
        const pages *p = &s->arms[a];
        json_t *json = a != ARM_POSITION
                               ? kmeans_call_json(&s->calls[a], s->measured)
                               : json_pack("{s:I, s:I}", "n", (json_int_t)s->x.n, "dim", (json_int_t)s->x.dim);
        json_t *mean = json_array(), *least = json_array(), *most = json_array();
        bool whole = json != NULL;
        for (size_t b = 0; whole && b < N_BUDGETS; b++) {
                const arm_share *all = &s->shares[a][b];
                whole = json_array_append_new(mean, json_real(all->sum / (double)s->options->seeds)) == 0 &&
                        json_array_append_new(least, json_real(all->least)) == 0 &&
                        json_array_append_new(most, json_real(all->most)) == 0;
        }
        json_t *found = json_pack("{s:s, s:I, s:I, s:f, s:o, s:o, s:o}", "arm", arm_names[a], "page",
                                  (json_int_t)s->options->page, "pages", (json_int_t)p->n_pages, "fill", fill_of(s, p),
                                  "share", mean, "share_least", least, "share_most", most);
        whole = whole && found != NULL && json_object_update(json, found) == 0;
        json_decref(found);
        if (whole)
                return json;
        json_decref(json);
        return NULL;
}

static json_t *report_json(const trace_state *s, int argc, char **argv)
{
        json_t *rows = json_array(), *sizes = json_array();
        for (size_t b = 0; sizes != NULL && b < N_BUDGETS; b++)
                json_array_append_new(sizes, json_integer((json_int_t)budgets[b]));
        for (size_t a = 0; rows != NULL && a < N_ARMS; a++)
                if (json_array_append_new(rows, arm_json(s, a)) != 0) {
                        json_decref(rows);
                        rows = NULL;
                }
        return json_pack("{s:o, s:o, s:s, s:o, s:I, s:f, s:I, s:o}", "machine", bench_machine_json(s->measured),
                         "command", bench_command_json(argc, argv), "dataset", s->dataset.name, "budgets", sizes,
                         "positions", (json_int_t)s->n_positions, "slack", s->options->slack, "seeds",
                         (json_int_t)s->options->seeds, "rows", rows);
}

/* --- the run ----------------------------------------------------------------------------------------------------------- */

static dci_status get_trace(trace_state *s)
{
        bench_dataset *data = &s->dataset;
        const bench_source source = {.trace = s->options->trace, .limit_base = BENCH_ALL, .limit_queries = BENCH_ALL};
        dci_status status = bench_dataset_read(s->helper, &source, data);
        if (status != DCI_OK)
                return status;
        const size_t dim = data->trace.keys.dim, tokens = data->trace.tokens;
        s->x = bench_rows_view(&data->trace.keys, data->trace.prompt - BENCH_SINK);
        s->x.data = (const char *)data->trace.keys.data + BENCH_SINK * dim * dci_dtype_size(s->x.dtype);
        s->keys = dci_alloc(s->helper, tokens, dim * sizeof *s->keys);
        s->query = dci_alloc(s->helper, dim, sizeof *s->query);
        s->logits = dci_alloc(s->helper, tokens, sizeof *s->logits);
        s->tok = dci_alloc(s->helper, s->x.n, sizeof *s->tok);
        if (s->keys == NULL || s->query == NULL || s->logits == NULL || s->tok == NULL)
                return DCI_ERR_MEMORY;
        for (size_t i = 0; i < tokens; i++)
                bench_row_to_double(&data->trace.keys, i, s->keys + i * dim);
        return DCI_OK;
}

static void release(trace_state *s)
{
        const size_t dim = s->x.dim, tokens = s->dataset.trace.tokens;
        release_arms(s);
        dci_free(s->helper, s->keys, tokens, dim * sizeof *s->keys);
        dci_free(s->helper, s->query, dim, sizeof *s->query);
        dci_free(s->helper, s->logits, tokens, sizeof *s->logits);
        dci_free(s->helper, s->tok, s->x.n, sizeof *s->tok);
        bench_dataset_free(&s->dataset);
        dci_context_destroy(s->measured);
        dci_context_destroy(s->helper);
}

dci_status kmeans_trace(const kmeans_options *o, int argc, char **argv)
{
        trace_state s;
        memset(&s, 0, sizeof s);
        s.options = o;
        dci_status status = kmeans_context(o, 0, &s.helper);
        if (status == DCI_OK)
                status = kmeans_context(o, o->threads.values[0], &s.measured);
        if (status == DCI_OK)
                status = get_trace(&s);
        if (status == DCI_OK)
                status = judge_seeds(&s);
        if (status == DCI_OK) {
                print_report(&s);
                if (o->json != NULL)
                        status = bench_write_json(report_json(&s, argc, argv), o->json);
        }
        if (status == DCI_OK)
                status = kmeans_check_capacity(s.largest, o->page);
        release(&s);
        return status;
}
