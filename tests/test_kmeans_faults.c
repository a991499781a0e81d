/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* K-means: an allocation that fails is reported, no byte stays behind, and the next call works as if nothing had been. */
#include "tests/common.h"

#include <math.h>

#include "tests/kmeans_fixture.h"

enum { DIM = 16, N = 1200, MANY = 6 };

/* What loops go over: everything that takes memory of its own. */
static const struct {
        size_t form, n_problems, k;
        int32_t init, mean;
        size_t n_redo, segment_rows, capacity;
} kinds[] = {{0, 1, 20, DCI_KMEANS_INIT_RANDOM, DCI_MEAN_NONE, 1, 0, 0},
             {1, 1, 20, DCI_KMEANS_INIT_PLUSPLUS, DCI_MEAN_OWN, 3, 0, 0},
             {2, MANY, 40, DCI_KMEANS_INIT_RANDOM, DCI_MEAN_OWN, 2, 0, 0},
             {3, MANY, 300, DCI_KMEANS_INIT_EVEN, DCI_MEAN_NONE, 1, 256, 0},
             {0, 2, 20, DCI_KMEANS_INIT_RANDOM, DCI_MEAN_NONE, 2, 0, 70},
             {2, MANY, 20, DCI_KMEANS_INIT_PLUSPLUS, DCI_MEAN_OWN, 1, 0, N / 20}};

/* A call, and what it gives where memory does not end. */
typedef struct life {
        dci_context *context;
        dci_kmeans_config config;
        dci_kmeans_input input;
        kmeans_out wanted;
} life;

static void *born(dci_context *context, const void *arg)
{
        life *l = test_copy(arg, sizeof *l);
        l->context = context;
        return l;
}

/* There is one failure only: what failed is asked again. */
static size_t cluster_and_check(void *prepared)
{
        life *l = prepared;
        size_t failures = 0;
        kmeans_out out = kmeans_room(&l->config, &l->input);
        while (test_failed_once(dci_kmeans(l->context, &l->config, &l->input, NULL, &out.result), DCI_ERR_MEMORY,
                                &failures, "k-means"))
                continue;
        kmeans_same(&l->wanted, 0, &out, 0, l->input.n_problems, "after a failure");
        while (test_failed_once(dci_kmeans_check(l->context, &l->config, &l->input, &out.result), DCI_ERR_MEMORY,
                                &failures, "the check"))
                continue;
        kmeans_out_free(&out);
        free(l);
        return failures;
}

/* Loops over kinds and thread counts. */
static void climb(int which, test_ladder ladder)
{
        const size_t kind = (size_t)which / 2;
        const int32_t n_threads = which % 2 == 0 ? 1 : 3;
        float *rows = test_normal(MANY * N, DIM, 1);
        dci_context *context = test_context(1);
        life l = {.config = kmeans_config(kinds[kind].form, DCI_F32, DIM, kinds[kind].k),
                  .input = kmeans_input(N, rows)};
        l.config.init = kinds[kind].init;
        l.config.subtract_mean = kinds[kind].mean;
        l.config.n_redo = kinds[kind].n_redo;
        l.config.segment_rows = kinds[kind].segment_rows;
        l.config.capacity = kinds[kind].capacity;
        l.config.n_iter = 4;
        l.input.n_problems = kinds[kind].n_problems;
        l.input.values = rows;
        l.input.value_dim = DIM;
        l.wanted = kmeans_room(&l.config, &l.input);
        ck_ok(dci_kmeans(context, &l.config, &l.input, NULL, &l.wanted.result));
        const size_t rungs = ladder(n_threads, born, cluster_and_check, &l);
        ck_assert_msg(rungs >= 2, "%zu rungs", rungs); /* one call and one check at least */
        kmeans_out_free(&l.wanted);
        dci_context_destroy(context);
        free(rows);
}

TEST_LADDERS(climb)

/* No way out of a call leaves memory behind. */
START_TEST(refused_calls_give_their_memory_back)
{
        test_memory memory;
        dci_context *context = test_context_with(&memory, 2);
        float *rows = test_normal(MANY * N, DIM, 2);
        const size_t before = atomic_load(&memory.live_bytes);
        for (size_t n_problems = 1; n_problems <= MANY; n_problems += MANY - 1)
                for (size_t bad = 0; bad < 2; bad++) {
                        dci_kmeans_config config = kmeans_config(0, DCI_F32, DIM, 20);
                        dci_kmeans_input input = kmeans_input(N, rows);
                        input.n_problems = n_problems;
                        kmeans_out out = kmeans_room(&config, &input);
                        float *number = rows + (n_problems * N - 1) * DIM;
                        const float kept = *number;
                        *number = bad == 0 ? kept : NAN;
                        const dci_status status = dci_kmeans(context, &config, &input, NULL, &out.result);
                        ck_assert_int_eq(status, bad == 0 ? DCI_OK : DCI_ERR_NUMBER);
                        *number = kept;
                        ck_assert_uint_eq(atomic_load(&memory.live_bytes), before);
                        kmeans_out_free(&out);
                }
        dci_context_destroy(context);
        ck_assert_uint_eq(atomic_load(&memory.live_bytes), 0);
        free(rows);
}
END_TEST

static int32_t stop(void *ctx, size_t done, size_t total)
{
        (void)total;
        return done >= *(const size_t *)ctx;
}

START_TEST(a_cancelled_call_leaves_nothing_behind)
{
        test_memory memory;
        dci_context *context = test_context_with(&memory, 2);
        float *rows = test_normal(MANY * N, DIM, 3);
        const size_t before = atomic_load(&memory.live_bytes);
        dci_kmeans_config config = kmeans_config(1, DCI_F32, DIM, 20);
        dci_kmeans_input input = kmeans_input(N, rows);
        for (size_t after = 0; after < 3; after++) {
                const dci_progress progress = {&after, stop};
                kmeans_out out = kmeans_room(&config, &input);
                ck_refused(dci_kmeans(context, &config, &input, &progress, &out.result), DCI_ERR_CANCELLED, "after");
                ck_assert_uint_eq(atomic_load(&memory.live_bytes), before);
                kmeans_out_free(&out);
        }
        dci_context_destroy(context);
        free(rows);
}
END_TEST

/* Live bytes, looked at after each round. */
typedef struct gauge {
        test_memory *memory;
        size_t most;
} gauge;

static int32_t measure(void *ctx, size_t done, size_t total)
{
        gauge *g = ctx;
        const size_t now = atomic_load(&g->memory->live_bytes);
        (void)done;
        (void)total;
        g->most = now > g->most ? now : g->most;
        return 0;
}

/* What the header states. */
static size_t stated(const dci_kmeans_config *c, const dci_kmeans_input *in, size_t rounds, bool amx, size_t n_threads)
{
        const size_t n = in->n, k = c->n_clusters, dim = c->dim, rounded = (dim + 31) / 32 * 32;
        const size_t longer = dim > in->value_dim ? dim : in->value_dim, capacity = c->capacity > 0;
        const size_t raw = c->centroid == DCI_CENTROID_MEAN, redo = c->n_redo > 1;
        const size_t rows = n * (amx ? 4 * dim + 2 * rounded + 40 : 8 * dim + 40);
        const size_t clusters = k * (amx ? 8 * dim + 2 * rounded + 24 : 8 * dim + 24);
        return rows + clusters + 8 * raw * k * dim + redo * (4 * n + 4 * (1 + raw) * k * dim) +
               (c->subtract_mean == DCI_MEAN_OWN ? n * dim / 64 : 0) + 12 * capacity * n + 32 * (1 + redo) * rounds +
               n_threads * ((512 << 10) + 320 * longer + 1024 * capacity * dim);
}

/* Loops over forms. The header's figure for one problem at work, on one thread and two. */
START_TEST(memory_is_what_the_header_says)
{
        static const struct {
                size_t n, k, dim, n_redo, capacity, value_dim;
                int32_t mean;
        } cases[] = {{20000, 200, 64, 1, 0, 0, DCI_MEAN_NONE}, {3000, 2900, 1, 1, 0, 0, DCI_MEAN_OWN},
                     {4000, 2000, 64, 3, 0, 0, DCI_MEAN_OWN},  {4000, 400, 33, 1, 12, 5, DCI_MEAN_NONE},
                     {4000, 400, 33, 2, 12, 0, DCI_MEAN_OWN},  {40, 4, 20000, 1, 0, 0, DCI_MEAN_NONE},
                     {3, 2, 100000, 2, 2, 0, DCI_MEAN_OWN},    {40, 4, 7, 1, 0, 100000, DCI_MEAN_NONE}};
        for (size_t i = 0; i < 2 * COUNT(cases); i++) {
                const size_t n = cases[i / 2].n, dim = cases[i / 2].dim, n_threads = 1 + i % 2;
                float *rows = test_normal(n, dim, 4), *values = test_normal(n, cases[i / 2].value_dim + 1, 5);
                test_memory memory;
                dci_context *context = test_context_with(&memory, (int32_t)n_threads);
                const size_t before = atomic_load(&memory.live_bytes);
                dci_kmeans_config config = kmeans_config((size_t)_i, DCI_F32, dim, cases[i / 2].k);
                dci_kmeans_input input = kmeans_input(n, rows);
                gauge g = {&memory, 0};
                const dci_progress progress = {&g, measure};
                config.n_iter = 2;
                config.n_redo = cases[i / 2].n_redo;
                config.capacity = cases[i / 2].capacity;
                config.subtract_mean = cases[i / 2].mean;
                input.value_dim = cases[i / 2].value_dim;
                input.values = input.value_dim > 0 ? values : NULL;
                kmeans_out out = kmeans_room(&config, &input);
                ck_ok(dci_kmeans(context, &config, &input, &progress, &out.result));
                const size_t most =
                        stated(&config, &input, config.n_iter, dci_context_isa(context) == DCI_ISA_AMX, n_threads);
                ck_assert_msg(g.most - before <= most, "%zu rows of %zu: %zu bytes, %zu stated", n, dim,
                              g.most - before, most);
                ck_assert_uint_ge(g.most - before, (size_t)4 * dim * n); /* it was measured */
                kmeans_out_free(&out);
                dci_context_destroy(context);
                test_free(rows, values);
        }
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("kmeans faults");
        TCase *memory = test_case(suite, "memory", 120);
        tcase_add_loop_test(memory, every_allocation_may_fail_once, 0, 2 * COUNT(kinds));
        tcase_add_loop_test(memory, memory_may_be_short_from_any_allocation_on, 0, 2 * COUNT(kinds));
        tcase_add_test(memory, refused_calls_give_their_memory_back);
        tcase_add_test(memory, a_cancelled_call_leaves_nothing_behind);
        tcase_add_loop_test(memory, memory_is_what_the_header_says, 0, KMEANS_FORMS);
        return test_main(suite);
}
