/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The KV cache: from sample queries to the tau with which a share of steps decides again. */
#include "tests/common.h"

#include <math.h>
#include <string.h>

#include "kv/stages/schedule.h"
#include "tests/context_fixture.h"
#include "tests/kv_fixture.h"

enum { PROMPT = 200, N = 330 };

static dci_kv_config config_of(int32_t schedule)
{
        dci_kv_config config = kv_small(DCI_KV_SKETCH);
        config.n_layers = 3;
        config.schedule = schedule;
        return config;
}

/* Loops over rates in tenths: the share that tau was made for is the share that decides. */
START_TEST(a_calibrated_tau_meets_its_rate)
{
        for (int32_t schedule = DCI_KV_BOUNDARY; schedule <= DCI_KV_AHEAD; schedule += DCI_KV_AHEAD - DCI_KV_BOUNDARY) {
                dci_kv_config config = config_of(schedule);
                kv_data data = kv_random(&config, N, 430);
                const double rate = (double)_i / 10.0;
                /* Of each layer the queries of all decoded tokens. */
                const size_t row = 4 * config.dim_k, n = N - PROMPT;
                float *queries = malloc(3 * n * row * sizeof *queries);
                ck_assert_ptr_nonnull(queries);
                for (size_t layer = 0; layer < 3; layer++)
                        memcpy(queries + layer * n * row, kv_query(&data, layer, PROMPT, 0), n * row * sizeof *queries);
                ck_ok(dci_kv_calibrate(context, &config, 3, n, queries, config.dim_k, rate, &config.tau));
                free(queries);
                dci_kv *kv = kv_create(context, &config);
                const int64_t sequence = kv_begin(kv, &data, PROMPT);
                kv_decode_all(kv, sequence, &data, PROMPT, n);
                const dci_kv_sequence_info info = kv_sequence_info(kv, sequence);
                /* The first plans decide in any case. A layer's two heads decide together, or each for itself. */
                const size_t per = schedule == DCI_KV_BOUNDARY ? 2 : 1, samples = 3 * (n - 1) * 2 / per;
                const size_t wanted = (size_t)(rate * (double)samples + 0.5);
                ck_assert_uint_eq(info.n_decisions - 3 * 2, wanted * per);
                ck_assert(config.tau > -1.0 && config.tau <= 1.0);
                kv_end(kv, &data);
        }
}
END_TEST

enum { TIED = 40 };

static size_t count_below(const double *turns, size_t n, double tau)
{
        size_t below = 0;
        for (size_t i = 0; i < n; i++)
                below += turns[i] < tau;
        return below;
}

/* The least distance from a share that any tau gives: the count changes at the turns alone. */
static double min_miss(const double *turns, size_t n, double share)
{
        double least = fmin(fabs((double)count_below(turns, n, nextafter(-1.0, 0.0)) - share),
                            fabs((double)count_below(turns, n, 1.0) - share));
        for (size_t i = 0; i < n; i++)
                if (turns[i] > -1.0 && turns[i] <= 1.0)
                        least = fmin(least, fabs((double)count_below(turns, n, turns[i]) - share));
        return least;
}

/* Loops over seeds. Queries of few directions, so that most turns are equal to others, to 0, 1 or -1. */
START_TEST(rates_of_tied_samples_are_met_as_nearly_as_any_tau_does)
{
        static const float directions[][2] = {{1.0f, 0.0f}, {0.6f, 0.8f}, {0.0f, 1.0f}, {-1.0f, 0.0f}, {0.0f, 0.0f}};
        dci_kv_config config = kv_config(DCI_KV_SKETCH, 1, 1, 1, 8);
        config.schedule = DCI_KV_BOUNDARY;
        float queries[TIED * 8] = {0};
        double turns[TIED - 1];
        const size_t few = 2 + (size_t)_i % 4;
        uint64_t state = (uint64_t)_i;
        for (size_t t = 0; t < TIED; t++) {
                state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
                memcpy(queries + t * 8, directions[(state >> 33) % few + (few == 2 && _i % 8 > 3)], 2 * sizeof(float));
        }
        for (size_t t = 1; t < TIED; t++)
                turns[t - 1] = dci_kv_query_similarity(context->kernels, queries + t * 8, queries + (t - 1) * 8, 1, 8);
        for (size_t i = 0; i <= 200; i++) {
                const double rate = (double)i / 200.0, share = rate * (TIED - 1);
                double tau = 7.0;
                ck_ok(dci_kv_calibrate(context, &config, 1, TIED, queries, 8, rate, &tau));
                ck_assert(tau > -1.0 && tau <= 1.0 && tau != 0.0);
                const double miss = fabs((double)count_below(turns, TIED - 1, tau) - share);
                ck_assert_msg(miss <= min_miss(turns, TIED - 1, share) + 1e-9, "rate %g: %g off, %g is possible", rate,
                              miss, min_miss(turns, TIED - 1, share));
        }
}
END_TEST

/* Two queries in turns, and the last one again: plans see them times a scale that rounds. Loops over seeds. */
START_TEST(plans_decide_where_tied_samples_say)
{
        enum { PLANS = 11, LONG = 300 };
        dci_kv_config config = kv_config(DCI_KV_SKETCH, 1, 1, 1, 24);
        config.schedule = DCI_KV_BOUNDARY;
        kv_data data = kv_random(&config, LONG, 431);
        float *two = test_normal(2, 24, 10 + (uint64_t)_i), queries[PLANS * 24];
        for (size_t t = 0; t < PLANS; t++)
                memcpy(queries + t * 24, two + (t < PLANS - 1 ? t % 2 : 1) * 24, 24 * sizeof *two);
        for (size_t i = 0; i <= 10; i++) {
                ck_ok(dci_kv_calibrate(context, &config, 1, PLANS, queries, 24, (double)i / 10.0, &config.tau));
                dci_kv *kv = kv_create(context, &config);
                const int64_t sequence = kv_begin(kv, &data, LONG);
                dci_kv_plan plan = kv_plan(kv, 1);
                for (size_t t = 0; t < PLANS; t++)
                        ck_ok(dci_kv_plan_make(kv, 0, 1, &sequence, queries + t * 24, 24, &plan));
                ck_assert_uint_eq(kv_sequence_info(kv, sequence).n_decisions, i < 5 ? 1 : PLANS - 1);
                dci_kv_plan_destroy(kv, &plan);
                dci_kv_destroy(kv);
        }
        free(two);
        kv_data_free(&data);
}
END_TEST

START_TEST(calibration_refuses_what_says_nothing)
{
        dci_kv_config config = config_of(DCI_KV_BOUNDARY), every = config_of(DCI_KV_EVERY_STEP);
        float queries[4 * 2 * 16], bad[4 * 2 * 16];
        double tau = 7.0;
        for (size_t i = 0; i < COUNT(queries); i++)
                bad[i] = queries[i] = (float)i;
        bad[100] = NAN;
        ck_refused(dci_kv_calibrate(NULL, &config, 1, 2, queries, 16, 0.5, &tau), DCI_ERR_INVALID, "context");
        ck_refused(dci_kv_calibrate(context, NULL, 1, 2, queries, 16, 0.5, &tau), DCI_ERR_INVALID, "config");
        ck_refused(dci_kv_calibrate(context, &every, 1, 2, queries, 16, 0.5, &tau), DCI_ERR_INVALID, "schedule 1");
        ck_refused(dci_kv_calibrate(context, &config, 0, 2, queries, 16, 0.5, &tau), DCI_ERR_INVALID, "0 layers");
        ck_refused(dci_kv_calibrate(context, &config, 1, 1, queries, 16, 0.5, &tau), DCI_ERR_INVALID, "1 positions");
        ck_refused(dci_kv_calibrate(context, &config, 1, 0, queries, 16, 0.5, &tau), DCI_ERR_INVALID, "0 positions");
        ck_refused(dci_kv_calibrate(context, &config, 1, 2, NULL, 16, 0.5, &tau), DCI_ERR_INVALID, "queries");
        ck_refused(dci_kv_calibrate(context, &config, 1, 2, queries, 15, 0.5, &tau), DCI_ERR_INVALID, "15");
        ck_refused(dci_kv_calibrate(context, &config, 1, 2, queries, 16, -0.1, &tau), DCI_ERR_INVALID, "rate");
        ck_refused(dci_kv_calibrate(context, &config, 1, 2, queries, 16, 1.1, &tau), DCI_ERR_INVALID, "rate");
        ck_refused(dci_kv_calibrate(context, &config, 1, 2, queries, 16, (double)NAN, &tau), DCI_ERR_INVALID, "rate");
        ck_refused(dci_kv_calibrate(context, &config, 1, 2, queries, 16, 0.5, NULL), DCI_ERR_INVALID, "out_tau");
        ck_refused(dci_kv_calibrate(context, &config, 1, 2, bad, 16, 0.5, &tau), DCI_ERR_NUMBER,
                   "position 1 and head 2");
        ck_refused(dci_kv_calibrate(context, &config, SIZE_MAX / 8, 2, queries, 16, 0.5, &tau), DCI_ERR_LIMIT,
                   "layers");
        ck_assert(tau == 7.0);
}
END_TEST

typedef struct calibrating {
        dci_context *context;
        dci_kv_config config;
        float queries[6 * 4 * 16];
} calibrating;

static void *born(dci_context *own, const void *arg)
{
        calibrating *c = test_copy(arg, sizeof *c);
        c->context = own;
        return c;
}

static size_t live(void *arg)
{
        calibrating *c = arg;
        double tau = 7.0;
        const dci_status status = dci_kv_calibrate(c->context, &c->config, 2, 3, c->queries, 16, 0.5, &tau);
        ck_assert(status == DCI_OK || (status == DCI_ERR_MEMORY && tau == 7.0));
        ck_assert(status != DCI_OK || (tau > -1.0 && tau < 1.0));
        free(c);
        return status != DCI_OK;
}

START_TEST(calibration_may_fail_for_memory)
{
        calibrating c = {.config = config_of(DCI_KV_BOUNDARY)};
        float *rows = test_normal(6 * 4, 16, 9);
        memcpy(c.queries, rows, sizeof c.queries);
        free(rows);
        ck_assert_uint_eq(test_each_allocation_failing(1, born, live, &c), 2);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("kv calibrate");
        TCase *tcase = tcase_create("calibration");
        tcase_add_checked_fixture(tcase, context_open_2, context_close);
        tcase_add_loop_test(tcase, a_calibrated_tau_meets_its_rate, 0, 11);
        tcase_add_loop_test(tcase, rates_of_tied_samples_are_met_as_nearly_as_any_tau_does, 0, 32);
        tcase_add_loop_test(tcase, plans_decide_where_tied_samples_say, 0, 20);
        tcase_add_test(tcase, calibration_refuses_what_says_nothing);
        tcase_add_test(tcase, calibration_may_fail_for_memory);
        suite_add_tcase(suite, tcase);
        return test_main(suite);
}
