/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/ann/latency.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "bench/common/report.h"

/* Pages between the rows that are in the index and those that come back. */
#define SPARE_PAGES 256
/* Pages that come and go before anything is timed. */
#define WARM_UP_PAGES 64
/* Searches whose times one reader keeps; later ones are only counted. */
#define READER_SAMPLES ((size_t)1 << 20)
#define SYNTHETIC_QUERIES 1024

typedef struct latency_row {
        size_t readers; /* 0: the writer alone */
        bool writer;
        size_t searches;
        double seconds; /* of the phase */
        json_t *add, *remove, *search;
} latency_row;

typedef struct latency_state {
        latency_options options;
        dci_context *context;
        bench_dataset dataset;
        dci_metric metric;
        dci_index *index;
        size_t first, next; /* ids in the index; id i is row i % base.n */
        int64_t *ids;       /* a page's */
        char *page;         /* its rows, side by side */
        double *adds, *removes;
        double *samples; /* of all readers, READER_SAMPLES each */
        latency_row rows[1 + 2 * BENCH_MAX_SHARES];
        size_t n_rows;
} latency_state;

/* --- the writer -------------------------------------------------------------------------------------------------------------- */

static size_t row_bytes(const latency_state *s)
{
        return s->dataset.base.dim * dci_dtype_size(s->dataset.base.dtype);
}

static void pause_us(size_t us)
{
        struct timespec wait = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
        if (us > 0)
                nanosleep(&wait, NULL);
}

/* Adds the next rows; times the call, not the gathering. */
static dci_status add_rows(latency_state *s, size_t n, double *out_seconds)
{
        for (size_t i = 0; i < n; i++) {
                size_t row = (s->next + i) % s->dataset.base.n;
                s->ids[i] = (int64_t)(s->next + i);
                memcpy(s->page + i * row_bytes(s), (const char *)s->dataset.base.data + row * row_bytes(s),
                       row_bytes(s));
        }
        const double start = bench_seconds();
        dci_status status = dci_index_add(s->index, n, s->page, s->dataset.base.dim, s->ids, NULL);
        *out_seconds = bench_seconds() - start;
        s->next += n;
        return status;
}

static dci_status remove_rows(latency_state *s, size_t n, double *out_seconds)
{
        for (size_t i = 0; i < n; i++)
                s->ids[i] = (int64_t)(s->first + i);
        const double start = bench_seconds();
        dci_status status = dci_index_remove(s->index, n, s->ids);
        *out_seconds = bench_seconds() - start;
        s->first += n;
        return status;
}

/* Times n_pages pages, and goes on untimed until n_readers readers have their searches: a fast writer would be done before a
 * reader has met it. */
static dci_status write_pages(latency_state *s, size_t n_pages, atomic_size_t *done, size_t n_readers)
{
        double untimed;
        for (size_t i = 0; i < n_pages || (n_readers > 0 && atomic_load(done) < n_readers); i++) {
                DCI_TRY(add_rows(s, s->options.page, i < n_pages ? &s->adds[i] : &untimed));
                DCI_TRY(remove_rows(s, s->options.page, i < n_pages ? &s->removes[i] : &untimed));
                pause_us(s->options.pause_us);
        }
        return DCI_OK;
}

/* --- the readers -------------------------------------------------------------------------------------------------------------- */

typedef struct meeting {
        atomic_size_t started, done; /* readers that have begun; that have the searches they want, or have failed */
        atomic_bool stop;            /* to be heeded by those that are done */
} meeting;

typedef struct reader {
        const latency_state *state;
        meeting *all;
        size_t first_query, wanted;
        double *samples;
        size_t n_searches;
        dci_status status;
        char sentence[256]; /* the last error is this thread's own */
        pthread_t thread;
} reader;

static dci_status search_once(reader *r, const dci_search_params *params, int64_t *ids, double *out_seconds)
{
        const latency_state *s = r->state;
        const bench_rows *queries = &s->dataset.queries;
        const size_t query = (r->first_query + r->n_searches) % queries->n;
        const void *row = (const char *)queries->data + query * queries->dim * dci_dtype_size(queries->dtype);
        const double start = bench_seconds();
        DCI_TRY(dci_index_search(s->index, 1, row, queries->dim, s->options.k, params, ids, NULL));
        *out_seconds = bench_seconds() - start;
        if (ids[0] < 0)
                return dci_fail(BENCH_ERR_RUN, "a search concurrent with the writer found nothing");
        return DCI_OK;
}

static void *read_along(void *argument)
{
        reader *r = argument;
        const bench_effort effort = bench_effort_at(&r->state->options.index, r->state->options.kind, 0);
        dci_search_params params;
        double seconds = 0;
        const size_t k = r->state->options.k;
        int64_t *ids = dci_alloc(r->state->context, k, sizeof *ids);
        bench_effort_params(&effort, &params);
        r->status = ids != NULL ? DCI_OK : DCI_ERR_MEMORY;
        atomic_fetch_add(&r->all->started, 1);
        while (r->status == DCI_OK && (r->n_searches < r->wanted || !atomic_load(&r->all->stop))) {
                r->status = search_once(r, &params, ids, &seconds);
                if (r->n_searches < READER_SAMPLES)
                        r->samples[r->n_searches] = seconds;
                if (++r->n_searches == r->wanted)
                        atomic_fetch_add(&r->all->done, 1);
        }
        /* A writer must not wait for one that failed. */
        if (r->n_searches < r->wanted)
                atomic_fetch_add(&r->all->done, 1);
        dci_free(r->state->context, ids, k, sizeof *ids);
        if (r->status != DCI_OK)
                snprintf(r->sentence, sizeof r->sentence, "%s", dci_last_error());
        return NULL;
}

/* The samples of all, side by side at the beginning; returns how many. */
static size_t gather(latency_state *s, const reader *readers, size_t n, size_t *out_searches)
{
        size_t kept = 0;
        *out_searches = 0;
        for (size_t i = 0; i < n; i++) {
                size_t m = readers[i].n_searches < READER_SAMPLES ? readers[i].n_searches : READER_SAMPLES;
                memmove(s->samples + kept, readers[i].samples, m * sizeof *s->samples);
                kept += m;
                *out_searches += readers[i].n_searches;
        }
        return kept;
}

/* --- phases ------------------------------------------------------------------------------------------------------------------- */

static dci_status join(reader *readers, size_t n)
{
        dci_status status = DCI_OK;
        for (size_t i = 0; i < n; i++) {
                pthread_join(readers[i].thread, NULL);
                if (status == DCI_OK && readers[i].status != DCI_OK)
                        status = dci_fail(readers[i].status, "%s", readers[i].sentence);
        }
        return status;
}

static dci_status start(latency_state *s, reader *readers, size_t n, meeting *all)
{
        for (size_t i = 0; i < n; i++) {
                readers[i] = (reader){.state = s, .all = all, .wanted = s->options.calls};
                readers[i].first_query = i * s->dataset.queries.n / n;
                readers[i].samples = s->samples + i * READER_SAMPLES;
                if (pthread_create(&readers[i].thread, NULL, read_along, &readers[i]) != 0) {
                        atomic_store(&all->stop, true);
                        join(readers, i);
                        return dci_fail(BENCH_ERR_RUN, "reader %zu of %zu could not be started", i + 1, n);
                }
        }
        while (atomic_load(&all->started) < n)
                sched_yield();
        return DCI_OK;
}

/* Runs `n_readers` readers, or none, concurrently with the writer or without it. */
static dci_status phase(latency_state *s, size_t n_readers, bool writer)
{
        reader readers[LATENCY_MAX_READERS];
        meeting all;
        latency_row *row = &s->rows[s->n_rows++];
        const size_t calls = s->options.calls;
        *row = (latency_row){.readers = n_readers, .writer = writer};
        atomic_init(&all.started, 0);
        atomic_init(&all.done, 0);
        atomic_init(&all.stop, !writer);
        const double begin = bench_seconds();
        dci_status status = start(s, readers, n_readers, &all);
        if (status != DCI_OK)
                return status;
        if (writer)
                status = write_pages(s, calls, &all.done, n_readers);
        atomic_store(&all.stop, true);
        dci_status joined = join(readers, n_readers);
        row->seconds = bench_seconds() - begin;
        status = status == DCI_OK ? joined : status;
        if (status == DCI_OK && dci_index_count(s->index) != s->options.n)
                status = dci_fail(BENCH_ERR_RUN, "the index holds %zu rows, but should hold %zu",
                                  dci_index_count(s->index), s->options.n);
        if (status != DCI_OK)
                return status;
        const size_t n_samples = gather(s, readers, n_readers, &row->searches);
        row->add = bench_latency_json(s->adds, writer ? calls : 0);
        row->remove = bench_latency_json(s->removes, writer ? calls : 0);
        row->search = bench_latency_json(s->samples, n_samples);
        return row->add != NULL && row->remove != NULL && row->search != NULL ? DCI_OK : DCI_ERR_MEMORY;
}

/* --- the report --------------------------------------------------------------------------------------------------------------- */

static void print_latency(const json_t *latency)
{
        if (json_is_null(latency))
                printf("  %8s %9s %9s", "-", "-", "-");
        else
                printf("  %8.1f %9.1f %9.1f", json_real_value(json_object_get(latency, "median_us")),
                       json_real_value(json_object_get(latency, "p99_us")),
                       json_real_value(json_object_get(latency, "max_us")));
}

static void print_report(const latency_state *s)
{
        const latency_options *o = &s->options;
        printf("%s: %s, %s, %zu rows of %zu, pages of %zu, %zu calls; microseconds: median, p99, max\n\n",
               s->dataset.name, bench_kind_name(o->kind), bench_metric_name(s->metric), o->n, s->dataset.base.dim,
               o->page, o->calls);
        printf("%7s  %6s  %28s  %28s  %28s  %11s\n", "readers", "writer", "add", "remove", "search", "searches/s");
        for (size_t i = 0; i < s->n_rows; i++) {
                const latency_row *r = &s->rows[i];
                char rate[32];
                bench_format_count(rate, sizeof rate, r->readers > 0 ? (double)r->searches / r->seconds : -1);
                printf("%7zu  %6s", r->readers, r->writer ? "yes" : "no");
                print_latency(r->add);
                print_latency(r->remove);
                print_latency(r->search);
                printf("  %11s\n", rate);
        }
        printf("\n");
}

static json_t *report_json(const latency_state *s, int argc, char **argv)
{
        const latency_options *o = &s->options;
        const bench_effort effort = bench_effort_at(&o->index, o->kind, 0);
        const dci_tree_stats tree = bench_tree_of(s->index);
        json_t *rows = json_array();
        for (size_t i = 0; rows != NULL && i < s->n_rows; i++) {
                const latency_row *r = &s->rows[i];
                json_t *row =
                        json_pack("{s:I, s:b, s:f, s:I, s:O, s:O, s:O}", "readers", (json_int_t)r->readers, "writer",
                                  (int)r->writer, "seconds", r->seconds, "searches", (json_int_t)r->searches, "add",
                                  r->add, "remove", r->remove, "search", r->search);
                if (json_array_append_new(rows, row) != 0) {
                        json_decref(rows);
                        return NULL;
                }
        }
        return json_pack("{s:o, s:o, s:s, s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "machine",
                         bench_machine_json(s->context), "command", bench_command_json(argc, argv), "dataset",
                         s->dataset.name, "params", bench_params_json(&o->index, o->kind, &effort), "metric",
                         bench_metric_name(s->metric), "n", (json_int_t)o->n, "dim", (json_int_t)s->dataset.base.dim,
                         "page", (json_int_t)o->page, "calls", (json_int_t)o->calls, "k", (json_int_t)o->k, "pause_us",
                         (json_int_t)o->pause_us, "tree", bench_tree_json(&tree), "rows", rows);
}

/* --- the run ------------------------------------------------------------------------------------------------------------------- */

static dci_status get_data(latency_state *s)
{
        latency_options *o = &s->options;
        const size_t spare = SPARE_PAGES * o->page;
        bench_dataset *data = &s->dataset;
        if (!o->synthetic) {
                DCI_TRY(bench_dataset_read(s->context, &o->source, data));
                DCI_TRY(bench_source_metric(o->metric, data, &s->metric));
                const size_t n = data->base.n, left = spare < n / 4 ? spare : n / 4;
                if (o->n == 0)
                        o->n = n - left < 32768 ? n - left : 32768;
                /* Otherwise a page would bring rows that are still there. */
                if (n < o->page || o->n > n - o->page)
                        return dci_fail(DCI_ERR_INVALID, "%s: has %zu rows, --n and --page want %zu and %zu more",
                                        data->name, n, o->n, o->page);
                return DCI_OK;
        }
        s->metric = o->metric != 0 ? o->metric : DCI_METRIC_L2;
        o->n = o->n != 0 ? o->n : 32768;
        snprintf(data->name, sizeof data->name, "random rows");
        DCI_TRY(bench_synthetic_rows(s->context, &o->rows, 0, o->n + spare, &data->base));
        return bench_synthetic_rows(s->context, &o->rows, 1, SYNTHETIC_QUERIES, &data->queries);
}

/* The page's buffers also serve the warm-up, whose times are overwritten. */
static size_t max_calls(const latency_state *s)
{
        return s->options.calls > WARM_UP_PAGES ? s->options.calls : WARM_UP_PAGES;
}

static size_t max_readers(const latency_state *s)
{
        size_t most = 0;
        for (size_t i = 0; i < s->options.readers.n; i++)
                most = s->options.readers.values[i] > most ? s->options.readers.values[i] : most;
        return most;
}

static dci_status open_index(latency_state *s)
{
        const latency_options *o = &s->options;
        const bench_rows *base = &s->dataset.base;
        s->ids = dci_alloc(s->context, o->page, sizeof *s->ids);
        s->page = dci_alloc(s->context, o->page, row_bytes(s));
        s->adds = dci_alloc(s->context, max_calls(s), sizeof *s->adds);
        s->removes = dci_alloc(s->context, max_calls(s), sizeof *s->removes);
        s->samples = dci_alloc(s->context, max_readers(s), READER_SAMPLES * sizeof *s->samples);
        if (s->ids == NULL || s->page == NULL || s->adds == NULL || s->removes == NULL || s->samples == NULL)
                return DCI_ERR_MEMORY;
        DCI_TRY(bench_index_create(s->context, &o->index, o->kind, s->metric, base->dim, base->dtype,
                                   s->dataset.queries.dtype, &s->index));
        DCI_TRY(dci_index_add(s->index, o->n, base->data, base->dim, NULL, NULL));
        s->next = o->n;
        return write_pages(s, WARM_UP_PAGES, NULL, 0);
}

static dci_status run(latency_state *s, int argc, char **argv)
{
        const latency_options *o = &s->options;
        DCI_TRY(o->json != NULL ? bench_check_writable(o->json) : DCI_OK);
        DCI_TRY(bench_context(&o->index, o->index.threads, &s->context));
        DCI_TRY(get_data(s));
        DCI_TRY(open_index(s));
        DCI_TRY(phase(s, 0, true));
        for (size_t i = 0; i < o->readers.n; i++) {
                DCI_TRY(phase(s, o->readers.values[i], false));
                DCI_TRY(phase(s, o->readers.values[i], true));
        }
        print_report(s);
        return o->json != NULL ? bench_write_json(report_json(s, argc, argv), o->json) : DCI_OK;
}

int bench_latency_command(int argc, char **argv)
{
        latency_state s;
        bool help;
        memset(&s, 0, sizeof s);
        dci_status status = latency_options_parse(argc, argv, &s.options, &help);
        if (status == DCI_OK && help) {
                latency_print_help();
                return BENCH_EXIT_OK;
        }
        if (status == DCI_OK)
                status = run(&s, argc, argv);
        int code = status == DCI_OK ? BENCH_EXIT_OK : bench_report_error("latency", status);
        for (size_t i = 0; i < s.n_rows; i++) {
                json_decref(s.rows[i].add);
                json_decref(s.rows[i].remove);
                json_decref(s.rows[i].search);
        }
        dci_index_destroy(s.index);
        dci_free(s.context, s.ids, s.options.page, sizeof *s.ids);
        dci_free(s.context, s.page, s.options.page, row_bytes(&s));
        dci_free(s.context, s.adds, max_calls(&s), sizeof *s.adds);
        dci_free(s.context, s.removes, max_calls(&s), sizeof *s.removes);
        dci_free(s.context, s.samples, max_readers(&s), READER_SAMPLES * sizeof *s.samples);
        bench_dataset_free(&s.dataset);
        dci_context_destroy(s.context);
        return code;
}
