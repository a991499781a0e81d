/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* A recall in place of an effort: what it reaches, when an index is calibrated for it, and that searches change nothing. */
#include "index/effort.h"
#include "tests/persist_fixture.h"
#include "tests/trace_fixture.h"

#include <math.h>

enum { N = 4000, DIM = 64, Q = 120, K = 10 };

static float *held_out; /* Q more keys */

static void setup(void)
{
        trace_open(2, N + Q, Q);
        held_out = keys + (size_t)N * DIM; /* the trace's last ones, of the same kind */
        dci_rng rng;
        dci_rng_seed(&rng, 7);
        for (size_t i = N + Q - 1; i > 0; i--) { /* shuffled, so that they are */
                const size_t j = dci_rng_below(&rng, i + 1);
                for (size_t p = 0; p < DIM; p++) {
                        const float t = keys[i * DIM + p];
                        keys[i * DIM + p] = keys[j * DIM + p];
                        keys[j * DIM + p] = t;
                }
        }
}

/* Kinds with something to choose. */
static const struct {
        dci_index_kind kind;
        int32_t bits;
} forms[] = {{DCI_KIND_PDCI, 0}, {DCI_KIND_MDCI, 0}, {DCI_KIND_FLAT, 2}, {DCI_KIND_MDCI, 4}, {DCI_KIND_PDCI, 8}};
enum { FORMS = 5 };

static dci_index_config config_of(size_t form, dci_metric metric, double target)
{
        dci_index_config config = index_config(DIM, metric, DCI_F32);
        config.kind = forms[form].kind;
        config.sketch_bits = forms[form].bits;
        config.target_recall = target;
        return config;
}

static dci_index *made(dci_context *where, size_t form, dci_metric metric, double target, size_t n)
{
        const dci_index_config config = config_of(form, metric, target);
        dci_index *index = NULL;
        ck_ok(dci_index_create(where, &config, &index));
        ck_ok(dci_index_add(index, n, keys, DIM, NULL, NULL));
        return index;
}

static dci_search_params asking(double target)
{
        dci_search_params params;
        ck_ok(dci_search_params_init(&params, sizeof params));
        params.target_recall = target;
        return params;
}

static dci_search_stats stats_of(const dci_index *index, const float *q, size_t k, dci_search_params params)
{
        dci_search_stats stats;
        ck_ok(dci_search_stats_init(&stats, sizeof stats));
        params.stats = &stats;
        pdci_found found = pdci_search(index, Q, q, k, &params);
        pdci_found_free(&found);
        return stats;
}

/* Share of the true neighbours that are found; the index itself finds them at 1. */
static double recall_of(const dci_index *index, const float *q, size_t k, dci_search_params params)
{
        dci_search_params all = asking(1.0);
        all.filter = params.filter;
        pdci_found want = pdci_search(index, Q, q, k, &all), got = pdci_search(index, Q, q, k, &params);
        size_t hits = 0;
        for (size_t i = 0; i < Q; i++)
                for (size_t j = 0; j < k; j++)
                        for (size_t l = 0; l < k; l++)
                                hits += got.ids[i * k + j] == want.ids[i * k + l] && got.ids[i * k + j] >= 0;
        pdci_found_free(&want);
        pdci_found_free(&got);
        return (double)hits / (double)(Q * k);
}

/* Loops over forms and metrics L2 and COSINE, where rows are like the queries to come. */
START_TEST(what_is_asked_for_is_found_and_more_costs_no_less)
{
        static const double targets[] = {0.5, 0.8, 0.9, 0.95, 0.99, 1.0};
        static const size_t lengths[] = {1, 10, 40};
        dci_index *index = made(context, (size_t)_i / 2, _i % 2 == 0 ? DCI_METRIC_L2 : DCI_METRIC_COSINE, 0.95, N);
        for (size_t l = 0; l < COUNT(lengths); l++) {
                dci_search_stats before = {0};
                for (size_t t = 0; t < COUNT(targets); t++) {
                        const dci_search_params params = asking(targets[t]);
                        const double recall = recall_of(index, held_out, lengths[l], params);
                        const dci_search_stats stats = stats_of(index, held_out, lengths[l], params);
                        const double spread =
                                3.0 * sqrt(targets[t] * (1.0 - targets[t]) / (double)Q); /* of 120 queries */
                        ck_assert_msg(recall >= targets[t] - spread - 0.005, "form %d, k %zu: %g for %g", _i,
                                      lengths[l], recall, targets[t]);
                        ck_assert(targets[t] < 1.0 || recall == 1.0);
                        ck_assert(stats.target_recall == targets[t] && stats.calibrated_on == DCI_CALIBRATED_ROWS);
                        ck_assert(stats.prop_to_visit >= before.prop_to_visit &&
                                  stats.prop_to_retrieve >= before.prop_to_retrieve && stats.rerank >= before.rerank);
                        before = stats;
                }
        }
        ck_assert_uint_lt(stats_of(index, held_out, K, asking(0.8)).distances, Q * N / 2);
        dci_index_destroy(index);
}
END_TEST

/* Loops over forms. Under IP queries are rarely like rows: attention is such a case. */
START_TEST(queries_unlike_rows_find_most_and_all_of_it_once_they_tune)
{
        dci_index *index = made(context, (size_t)_i, DCI_METRIC_IP, 0.95, N);
        ck_assert_double_ge(recall_of(index, queries, K, asking(0.95)), 0.88);
        dci_tune_result result;
        ck_ok(dci_tune_result_init(&result, sizeof result));
        ck_ok(dci_index_tune(index, Q, queries, DIM, K, 0.95, &result));
        ck_assert_double_ge(recall_of(index, queries, K, asking(0.95)), 0.94);
        const dci_search_stats stats = stats_of(index, queries, K, asking(0.95));
        ck_assert_int_eq(stats.calibrated_on, DCI_CALIBRATED_QUERIES);
        ck_ok(dci_index_add(index, Q, held_out, DIM, NULL, NULL)); /* and goes on knowing them */
        ck_ok(dci_index_add(index, N, keys, DIM, NULL, NULL));
        ck_assert_int_eq(stats_of(index, queries, K, asking(0.95)).calibrated_on, DCI_CALIBRATED_QUERIES);
        dci_index_destroy(index);
}
END_TEST

/* Loops over forms. */
START_TEST(a_filter_takes_no_recall)
{
        dci_index *index = made(context, (size_t)_i, DCI_METRIC_L2, 0.95, N);
        static const size_t steps[] = {2, 5, 100};
        for (size_t s = 0; s < COUNT(steps); s++) {
                int64_t ids[N / 2];
                dci_filter filter;
                dci_search_params params = asking(0.95);
                ck_ok(dci_filter_init(&filter, sizeof filter));
                for (filter.n = 0; filter.n < N / steps[s]; filter.n++)
                        ids[filter.n] = (int64_t)(filter.n * steps[s]);
                filter.kind = DCI_FILTER_IDS;
                filter.ids = ids;
                params.filter = &filter;
                ck_assert_double_ge(recall_of(index, held_out, K, params), 0.93);
        }
        dci_index_destroy(index);
}
END_TEST

/* Loops over forms. */
START_TEST(threads_decide_nothing_and_searches_change_nothing)
{
        dci_context *alone = test_context(1);
        dci_index *one = made(alone, (size_t)_i, DCI_METRIC_COSINE, 0.9, N),
                  *other = made(context, (size_t)_i, DCI_METRIC_COSINE, 0.9, N);
        persist_bytes a = persist_save(one), b = persist_save(other);
        ck_assert(a.n == b.n && memcmp(a.data, b.data, a.n) == 0);
        dci_range_result range;
        ck_ok(dci_range_result_init(&range, sizeof range));
        for (size_t k = 1; k < 100; k *= 3)
                recall_of(one, held_out, k, asking(0.8));
        ck_ok(dci_index_range_search(one, 3, held_out, DIM, 0.5f, NULL, &range));
        dci_range_result_free(&range);
        persist_bytes after = persist_save(one);
        ck_assert(a.n == after.n && memcmp(a.data, after.data, a.n) == 0);
        persist_free(&a);
        persist_free(&b);
        persist_free(&after);
        dci_index_destroy(one);
        dci_index_destroy(other);
        dci_context_destroy(alone);
}
END_TEST

/* Loops over forms. Of many rows some are measured: keys, held out ones too, each several times with noise. */
START_TEST(a_sample_of_many_rows_says_what_all_take)
{
        enum { MANY = 40000 };
        const dci_index_config config = config_of((size_t)_i, DCI_METRIC_L2, 0.95);
        dci_context *alone = test_context(1);
        dci_index *index[2] = {NULL, NULL};
        float *rows = malloc((size_t)(MANY + Q) * DIM * sizeof *rows);
        ck_assert_ptr_nonnull(rows);
        dci_rng rng;
        dci_rng_seed(&rng, 3);
        for (size_t i = 0; i < (size_t)(MANY + Q) * DIM; i++)
                rows[i] = keys[i % ((size_t)(N + Q) * DIM)] + (float)dci_rng_normal(&rng);
        for (size_t i = 0; i < 2; i++) {
                ck_ok(dci_index_create(i == 0 ? alone : context, &config, &index[i]));
                ck_ok(dci_index_add(index[i], MANY, rows, DIM, NULL, NULL));
        }
        const dci_calibration *one = &index[0]->calibration, *other = &index[1]->calibration;
        ck_assert_uint_eq(one->n_rows, MANY);
        ck_assert(memcmp(one->share, other->share, sizeof one->share) == 0);
        ck_assert(memcmp(one->rerank, other->rerank, sizeof one->rerank) == 0);
        for (size_t k = 1; k <= 100; k *= 10)
                ck_assert_double_ge(recall_of(index[0], rows + (size_t)MANY * DIM, k, asking(0.95)), 0.91);
        ck_assert_uint_lt(stats_of(index[0], rows + (size_t)MANY * DIM, K, asking(0.8)).distances, Q * MANY / 2);
        free(rows);
        dci_index_destroy(index[0]);
        dci_index_destroy(index[1]);
        dci_context_destroy(alone);
}
END_TEST

/* Loops over forms. */
START_TEST(a_file_keeps_what_was_measured)
{
        dci_index *index = made(context, (size_t)_i, DCI_METRIC_L2, 0.9, N), *loaded = NULL;
        persist_bytes bytes = persist_save(index);
        ck_ok(dci_index_load_memory(context, bytes.data, bytes.n, &loaded));
        const dci_search_stats a = stats_of(index, held_out, K, asking(0.9)),
                               b = stats_of(loaded, held_out, K, asking(0.9));
        ck_assert(memcmp(&a, &b, sizeof a) == 0);
        ck_assert(loaded->config.target_recall == 0.9 && a.calibrated_on == DCI_CALIBRATED_ROWS);
        persist_bytes again = persist_save(loaded);
        ck_assert(again.n == bytes.n && memcmp(again.data, bytes.data, bytes.n) == 0);
        ck_ok(dci_index_add(loaded, N, keys, DIM, NULL, NULL)); /* and goes on calibrating */
        ck_assert_uint_eq(loaded->calibration.n_rows, 2 * N);
        persist_free(&bytes);
        persist_free(&again);
        dci_index_destroy(index);
        dci_index_destroy(loaded);
}
END_TEST

/* Loops over forms. */
START_TEST(calibrations_are_as_rare_as_promised)
{
        const dci_index_config config = config_of((size_t)_i, DCI_METRIC_L2, 0.95);
        dci_index *index = NULL;
        size_t n_calibrations = 0, last = 0;
        int64_t ids[N];
        ck_ok(dci_index_create(context, &config, &index));
        for (size_t n = 0; n < N; n += 20) {
                ck_ok(dci_index_add(index, 20, keys + n * DIM, DIM, NULL, NULL));
                n_calibrations += index->calibration.n_rows != last;
                last = index->calibration.n_rows;
                ck_assert(n + 20 < DCI_CALIBRATED_ROWS_LEAST ? last == 0 : last > 0 && n + 20 < 2 * last);
        }
        ck_assert_uint_eq(n_calibrations, 2); /* 1024 rows, and twice as many */
        for (size_t n = N; n > 1200; n -= 100) {
                for (size_t i = 0; i < 100; i++)
                        ids[i] = (int64_t)(n - 1 - i);
                ck_ok(dci_index_remove(index, 100, ids));
                ck_assert_uint_ge(n, index->calibration.n_rows - index->calibration.n_rows / 3);
        }
        ck_assert_uint_lt(index->calibration.n_rows, N / 2);
        ck_assert_double_ge(recall_of(index, held_out, K, asking(0.95)), 0.93);
        for (size_t i = 0; i < 300; i++)
                ids[i] = (int64_t)i;
        ck_ok(dci_index_remove(index, 300, ids)); /* few are left: exact */
        ck_assert_double_eq(recall_of(index, held_out, K, asking(0.5)), 1.0);
        dci_index_destroy(index);
}
END_TEST

/* Whatever kind and codes an index changes to, what was measured with the former ones says nothing. */
START_TEST(a_change_of_kind_is_calibrated_for)
{
        dci_index_config config = index_config(DIM, DCI_METRIC_L2, DCI_F32);
        dci_index *index = NULL;
        config.kind = DCI_KIND_AUTO;
        config.target_recall = 0.9;
        ck_ok(dci_index_create(context, &config, &index));
        index->automatic.divisor = 30; /* of the numbers of rows at which it changes */
        size_t n_changes = 0, n_calibrated = 0;
        for (size_t n = 0; n < N; n += 100) {
                ck_ok(dci_index_add(index, 100, keys + n * DIM, DIM, NULL, NULL));
                const bool approximate = index->config.kind != DCI_KIND_FLAT || index->config.sketch_bits != 0;
                if (approximate && n + 100 >= DCI_CALIBRATED_ROWS_LEAST) {
                        ck_assert(dci_calibration_holds(&index->calibration, &index->config));
                        n_changes += index->automatic.n_changes != n_calibrated;
                        n_calibrated = index->automatic.n_changes;
                }
        }
        ck_assert_uint_ge(n_changes, 1);
        ck_assert_double_ge(recall_of(index, held_out, K, asking(0.9)), 0.87);
        dci_index_destroy(index);
}
END_TEST

/* Loops over forms. Structs of 0.1.0 end before target_recall, and what comes after them is not theirs. */
START_TEST(callers_of_an_older_header_get_full_effort)
{
        const size_t config_bytes = offsetof(dci_index_config, target_recall),
                     params_bytes = offsetof(dci_search_params, target_recall),
                     stats_bytes = offsetof(dci_search_stats, target_recall),
                     tune_bytes = offsetof(dci_tune_result, seconds);
        dci_index_config config;
        dci_search_params params, defaults;
        dci_search_stats stats;
        dci_tune_result result;
        dci_index *index = NULL;
        memset(&config, 0x5a, sizeof config);
        memset(&params, 0x5a, sizeof params);
        memset(&stats, 0x5a, sizeof stats);
        memset(&result, 0x5a, sizeof result);
        defaults = params;
        ck_ok(dci_index_config_init(&config, config_bytes));
        ck_ok(dci_search_params_init(&params, params_bytes));
        ck_ok(dci_search_params_init(&defaults, params_bytes));
        ck_ok(dci_search_stats_init(&stats, stats_bytes));
        ck_ok(dci_tune_result_init(&result, tune_bytes));
        ck_assert(params.prop_to_visit == 1.0 && params.prop_to_retrieve == 1.0);
        config.dim = DIM;
        config.kind = forms[_i].kind;
        config.sketch_bits = forms[_i].bits;
        ck_ok(dci_index_create(context, &config, &index));
        ck_ok(dci_index_add(index, N, keys, DIM, NULL, NULL));
        ck_assert_int_eq(index->calibration.on, DCI_CALIBRATED_NONE);
        persist_bytes bytes = persist_save(index);
        for (size_t i = 0; i < 1024; i++) /* a file as 0.1.0 wrote it */
                ck_assert(memcmp(bytes.data + i, "effort", 6) != 0);
        persist_free(&bytes);
        params.stats = &stats;
        int64_t ids[K];
        ck_ok(dci_index_search(index, 1, held_out, DIM, K, &params, ids, NULL));
        ck_assert(stats.queries == 1 && (forms[_i].bits != 0 || stats.candidates == N));
        ck_ok(dci_index_get_defaults(index, &defaults));
        ck_assert(defaults.prop_to_visit == 1.0 && defaults.prop_to_retrieve == 1.0);
        params.stats = NULL;
        ck_ok(dci_index_set_defaults(index, &params));
        params.prop_to_visit = 0.0;
        ck_refused(dci_index_set_defaults(index, &params), DCI_ERR_INVALID, "prop_to_visit is 0");
        ck_ok(dci_index_tune(index, Q, held_out, DIM, K, 0.9, &result));
        ck_ok(dci_index_get_config(index, &config));
        const unsigned char *ends[] = {(unsigned char *)&config + config_bytes, (unsigned char *)&params + params_bytes,
                                       (unsigned char *)&defaults + params_bytes, (unsigned char *)&stats + stats_bytes,
                                       (unsigned char *)&result + tune_bytes};
        for (size_t i = 0; i < COUNT(ends); i++)
                for (size_t j = 0; j < sizeof(double); j++)
                        ck_assert_msg(ends[i][j] == 0x5a, "struct %zu was written beyond its end", i);
        dci_index_destroy(index);
}
END_TEST

/* Loops over forms. */
START_TEST(an_effort_that_is_given_counts)
{
        dci_index *index = made(context, (size_t)_i, DCI_METRIC_L2, 0.9, N);
        dci_search_params params = asking(0.7), now;
        params.prop_to_visit = 1.0;
        dci_search_stats stats = stats_of(index, held_out, K, params);
        ck_assert(stats.target_recall == 0.0 && stats.prop_to_visit == 1.0 && stats.prop_to_retrieve == 1.0);
        ck_ok(dci_index_set_defaults(index, &params));
        ck_ok(dci_search_params_init(&now, sizeof now));
        ck_ok(dci_index_get_defaults(index, &now));
        ck_assert(now.prop_to_visit == 1.0 && now.prop_to_retrieve == 1.0);
        params = asking(0.7);
        ck_ok(dci_index_set_defaults(index, &params)); /* and back */
        ck_ok(dci_index_get_defaults(index, &now));
        ck_assert(now.prop_to_visit == 0.0 && now.prop_to_retrieve == 0.0 && now.target_recall == 0.7);
        pdci_found by_default = pdci_search(index, Q, held_out, K, NULL),
                   asked = pdci_search(index, Q, held_out, K, &params);
        ck_assert(pdci_same(&by_default, &asked));
        pdci_found_free(&by_default);
        pdci_found_free(&asked);
        dci_index_destroy(index);
}
END_TEST

/* --- tuning ------------------------------------------------------------------------------------------------------------- */

typedef struct watch {
        size_t calls, stop_at, last;
} watch;

static int32_t watched(void *ctx, size_t done, size_t total)
{
        watch *w = ctx;
        ck_assert(done >= w->last && done <= total && total == 1000);
        w->last = done;
        return ++w->calls == w->stop_at;
}

/* Loops over forms. */
START_TEST(a_tune_that_is_stopped_changes_nothing)
{
        dci_index *index = made(context, (size_t)_i, DCI_METRIC_L2, 0.9, N);
        dci_tune_options options;
        dci_tune_result result;
        watch w = {0};
        ck_ok(dci_tune_options_init(&options, sizeof options));
        ck_ok(dci_tune_result_init(&result, sizeof result));
        ck_assert(options.cost == DCI_TUNE_TIME && options.deadline == 0.0);
        options.cost = DCI_TUNE_DISTANCES;
        options.progress = (dci_progress){&w, watched};
        persist_bytes before = persist_save(index);
        ck_ok(dci_index_tune_with(index, Q, held_out, DIM, K, 0.9, &options, &result));
        const size_t calls = w.calls;
        ck_assert(calls > 2 && result.finished == 1 && isnan(result.seconds));
        persist_bytes tuned = persist_save(index);
        dci_index *again = NULL;
        ck_ok(dci_index_load_memory(context, before.data, before.n, &again));
        for (size_t stop = 1; stop <= calls; stop += 1 + calls / 20) {
                w = (watch){.stop_at = stop};
                const dci_status status = dci_index_tune_with(again, Q, held_out, DIM, K, 0.9, &options, NULL);
                if (w.calls < stop) /* reports come as threads take turns */
                        break;
                ck_assert_int_eq(status, DCI_ERR_CANCELLED);
                persist_bytes now = persist_save(again);
                ck_assert(persist_equal(&now, &before));
                persist_free(&now);
        }
        options.progress.fn = NULL;
        ck_ok(dci_index_tune_with(again, Q, held_out, DIM, K, 0.9, &options, NULL));
        persist_bytes same = persist_save(again); /* the same bits every time */
        ck_assert(same.n == tuned.n && memcmp(same.data, tuned.data, same.n) == 0);
        persist_free(&before);
        persist_free(&tuned);
        persist_free(&same);
        dci_index_destroy(again);
        dci_index_destroy(index);
}
END_TEST

/* Loops over forms. */
START_TEST(a_deadline_ends_with_the_best_there_is)
{
        dci_index *index = made(context, (size_t)_i, DCI_METRIC_L2, 0.9, N);
        dci_tune_options options;
        dci_tune_result result;
        ck_ok(dci_tune_options_init(&options, sizeof options));
        ck_ok(dci_tune_result_init(&result, sizeof result));
        persist_bytes before = persist_save(index);
        options.deadline = 1e-9;
        ck_refused(dci_index_tune(index, 0, held_out, DIM, K, 0.9, NULL), DCI_ERR_INVALID, "n_queries is 0");
        ck_ok(dci_index_tune_with(index, Q, held_out, DIM, K, 0.9, &options, &result));
        ck_assert(result.finished == 0 && isnan(result.recall));
        ck_assert_ptr_nonnull(strstr(dci_last_error(), "n_queries is 0")); /* no failure of its own */
        persist_bytes now = persist_save(index);
        ck_assert(now.n == before.n && memcmp(now.data, before.data, now.n) == 0);
        options.deadline = 1e9;
        ck_ok(dci_index_tune_with(index, Q, held_out, DIM, K, 0.9, &options, &result)); /* by time */
        ck_assert(result.finished == 1 && result.seconds > 0.0 && result.exact_seconds > 0.0 && result.recall >= 0.9);
        options.deadline = -1.0;
        ck_refused(dci_index_tune_with(index, Q, held_out, DIM, K, 0.9, &options, NULL), DCI_ERR_INVALID,
                   "deadline is -1");
        options.deadline = 0.0;
        options.cost = 3;
        ck_refused(dci_index_tune_with(index, Q, held_out, DIM, K, 0.9, &options, NULL), DCI_ERR_INVALID, "cost is 3");
        persist_free(&before);
        persist_free(&now);
        dci_index_destroy(index);
}
END_TEST

START_TEST(fitting_calibrates_on_its_queries_unless_they_are_few)
{
        dci_index *index = made(context, 2, DCI_METRIC_IP, 0.95, N);
        ck_ok(dci_index_fit(index, 3, queries, DIM));
        ck_assert_int_eq(stats_of(index, queries, K, asking(0.95)).calibrated_on, DCI_CALIBRATED_ROWS);
        ck_ok(dci_index_fit(index, Q, queries, DIM));
        ck_assert_int_eq(stats_of(index, queries, K, asking(0.95)).calibrated_on, DCI_CALIBRATED_QUERIES);
        ck_assert_double_ge(recall_of(index, queries, K, asking(0.95)), 0.93);
        dci_index_destroy(index);
}
END_TEST

/* --- memory -------------------------------------------------------------------------------------------------------------- */

typedef struct life {
        dci_context *context;
        size_t form;
} life;

static void *born(dci_context *where, const void *arg)
{
        life *l = test_copy(arg, sizeof *l);
        l->context = where;
        return l;
}

/* What calibrating lacks, an add does not. */
static size_t lived(void *prepared)
{
        enum { FEW = 1200 };
        life *l = prepared;
        size_t failures = 0;
        const dci_index_config config = config_of(l->form, DCI_METRIC_L2, 0.95);
        dci_index *index = NULL;
        while (test_failed_once(dci_index_create(l->context, &config, &index), DCI_ERR_MEMORY, &failures, "create"))
                continue;
        while (test_failed_once(dci_index_add(index, FEW, keys, DIM, NULL, NULL), DCI_ERR_MEMORY, &failures, "add"))
                ck_assert_uint_eq(dci_index_count(index), 0);
        ck_assert_uint_eq(dci_index_count(index), FEW);
        ck_assert(index->calibration.n_rows == 0 || index->calibration.n_rows == FEW);
        while (test_failed_once(dci_index_tune(index, 20, held_out, DIM, K, 0.9, NULL), DCI_ERR_MEMORY, &failures,
                                "tune"))
                ck_assert(index->calibration.on != DCI_CALIBRATED_QUERIES && index->defaults.prop_to_visit == 0.0);
        ck_assert(index->calibration.on == DCI_CALIBRATED_QUERIES);
        test_memory_recovers();
        dci_index_destroy(index);
        free(l);
        return failures;
}

static void climb(int which, test_ladder ladder)
{
        const life arg = {.form = (size_t)which};
        ck_assert_uint_gt(ladder(1, born, lived, &arg), 10);
}

TEST_LADDERS(climb)

int main(void)
{
        Suite *suite = suite_create("effort");
        TCase *tcase = test_case_with(suite, "laws", 60, setup, trace_close);
        tcase_add_loop_test(tcase, what_is_asked_for_is_found_and_more_costs_no_less, 0, 2 * FORMS);
        tcase_add_loop_test(tcase, queries_unlike_rows_find_most_and_all_of_it_once_they_tune, 0, FORMS);
        tcase_add_loop_test(tcase, a_filter_takes_no_recall, 0, FORMS);
        tcase_add_loop_test(tcase, threads_decide_nothing_and_searches_change_nothing, 0, FORMS);
        tcase_add_loop_test(tcase, a_sample_of_many_rows_says_what_all_take, 0, FORMS);
        tcase_add_loop_test(tcase, a_file_keeps_what_was_measured, 0, FORMS);
        tcase_add_loop_test(tcase, calibrations_are_as_rare_as_promised, 0, FORMS);
        tcase_add_loop_test(tcase, callers_of_an_older_header_get_full_effort, 0, FORMS);
        tcase_add_loop_test(tcase, an_effort_that_is_given_counts, 0, FORMS);
        tcase_add_loop_test(tcase, a_tune_that_is_stopped_changes_nothing, 0, FORMS);
        tcase_add_loop_test(tcase, a_deadline_ends_with_the_best_there_is, 0, FORMS);
        tcase_add_test(tcase, a_change_of_kind_is_calibrated_for);
        tcase_add_test(tcase, fitting_calibrates_on_its_queries_unless_they_are_few);
        TCase *memory = test_case_with(suite, "memory", 120, setup, trace_close);
        tcase_add_loop_test(memory, every_allocation_may_fail_once, 2, FORMS);
        tcase_add_loop_test(memory, memory_may_be_short_from_any_allocation_on, 2, FORMS);
        return test_main(suite);
}
