/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* K-means: the same bits at any thread count, for any number of problems in a call, for any strides and executor; nearly the
 * same at every instruction set; calls side by side. Run under tsan, too. */
#include "tests/common.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "tests/kmeans_fixture.h"

enum { DIM = TRACE_DIM };

static const int32_t threads[] = {1, 2, 5};

/* What a call may ask for; loops go over these. */
static const struct {
        size_t form;
        dci_dtype dtype;
        int32_t init, mean;
        size_t n_redo, segment_rows, n_global,
                room; /* room: rows that a cluster may have beyond the average; 0: no capacity */
} kinds[] = {{0, DCI_F32, DCI_KMEANS_INIT_RANDOM, DCI_MEAN_NONE, 1, 0, 0, 0},
             {0, DCI_F16, DCI_KMEANS_INIT_PLUSPLUS, DCI_MEAN_OWN, 3, 0, 0, 0},
             {1, DCI_BF16, DCI_KMEANS_INIT_RANDOM, DCI_MEAN_OWN, 1, 300, 2, 0},
             {2, DCI_F32, DCI_KMEANS_INIT_PLUSPLUS, DCI_MEAN_NONE, 1, 300, 0, 0},
             {2, DCI_F16, DCI_KMEANS_INIT_EVEN, DCI_MEAN_NONE, 1, 0, 0, 0},
             {3, DCI_F32, DCI_KMEANS_INIT_RANDOM, DCI_MEAN_OWN, 2, 0, 0, 0},
             {0, DCI_F16, DCI_KMEANS_INIT_RANDOM, DCI_MEAN_NONE, 2, 0, 0, 4}};

static dci_kmeans_config config_of(size_t kind, size_t k)
{
        dci_kmeans_config config = kmeans_config(kinds[kind].form, kinds[kind].dtype, DIM, k);
        config.init = kinds[kind].init;
        config.subtract_mean = kinds[kind].mean;
        config.n_redo = kinds[kind].n_redo;
        config.segment_rows = kinds[kind].segment_rows;
        config.n_iter_global = kinds[kind].n_global;
        config.n_iter = 6;
        config.seed = 11;
        return config;
}

static dci_kmeans_input input_of(size_t n_problems, size_t n, const void *rows, const void *values, dci_dtype dtype)
{
        dci_kmeans_input input = kmeans_input(n, rows);
        input.n_problems = n_problems;
        input.values = values;
        input.value_dim = DIM;
        input.value_dtype = dtype;
        return input;
}

/* Loops over kinds. One problem, which threads share; then as many as keep threads busy one each. */
START_TEST(any_number_of_threads_gives_the_same_bits)
{
        static const struct {
                size_t n_problems, n, k;
        } sizes[] = {{1, 7000, 100}, {3, 1300, 30}, {25, 200, 10}};
        const dci_kmeans_config wanted = config_of((size_t)_i, 1);
        for (size_t s = 0; s < COUNT(sizes); s++) {
                const size_t total = sizes[s].n_problems * sizes[s].n * DIM;
                float *keys = pdci_trace("keys", total / DIM);
                void *rows = kmeans_narrow(wanted.dtype, total, keys);
                dci_kmeans_config config = wanted;
                dci_kmeans_input input = input_of(sizes[s].n_problems, sizes[s].n, rows, rows, wanted.dtype);
                kmeans_out first = {0};
                config.n_clusters = sizes[s].k;
                if (kinds[_i].room > 0)
                        config.capacity = (sizes[s].n + sizes[s].k - 1) / sizes[s].k + kinds[_i].room;
                for (size_t t = 0; t < COUNT(threads); t++) {
                        dci_context *context = test_context(threads[t]);
                        kmeans_out out = kmeans_run(context, &config, &input);
                        if (t > 0) {
                                kmeans_same(&first, 0, &out, 0, sizes[s].n_problems, "threads");
                                kmeans_out_free(&out);
                        } else {
                                first = out;
                        }
                        dci_context_destroy(context);
                }
                kmeans_out_free(&first);
                test_free(keys, rows);
        }
}
END_TEST

/* Loops over kinds. Rows so many and so long that threads share every phase, those over rows alone, too. */
START_TEST(long_rows_in_any_number_of_threads_give_the_same_bits)
{
        enum { N = 7000, LONG = 650, K = 9 };
        const dci_kmeans_config wanted = config_of((size_t)_i, K);
        float *numbers = kmeans_blobs(N, LONG, 13, 0.1f, 1);
        void *rows = kmeans_narrow(wanted.dtype, (size_t)N * LONG, numbers);
        kmeans_out first = {0};
        for (size_t t = 0; t < COUNT(threads); t += COUNT(threads) - 1) { /* the fewest and the most */
                dci_context *context = test_context(threads[t]);
                dci_kmeans_config config = wanted;
                dci_kmeans_input input = kmeans_input(N, rows);
                config.dim = LONG;
                config.n_iter = 2;
                config.segment_rows = wanted.segment_rows > 0 ? 3500 : 0;
                kmeans_out out = kmeans_run(context, &config, &input);
                if (t > 0) {
                        kmeans_same(&first, 0, &out, 0, 1, "threads");
                        kmeans_out_free(&out);
                } else {
                        first = out;
                }
                dci_context_destroy(context);
        }
        kmeans_out_free(&first);
        test_free(numbers, rows);
}
END_TEST

/* Loops over kinds. A problem draws from the stream of its number, not from that of its place in a call. */
START_TEST(problems_alone_and_together_give_the_same_bits)
{
        enum { P = 7, N = 420, K = 17 };
        dci_context *context = test_context(3);
        const dci_kmeans_config config = config_of((size_t)_i, K);
        const size_t row_bytes = DIM * dci_dtype_size(config.dtype);
        float *keys = pdci_trace("keys", P * N);
        char *rows = kmeans_narrow(config.dtype, P * N * DIM, keys);
        dci_kmeans_input input = input_of(P, N, rows, rows, config.dtype);
        input.first_problem = 3;
        kmeans_out together = kmeans_run(context, &config, &input);
        for (size_t p = 0; p < P; p++) {
                dci_kmeans_input one = input_of(1, N, rows + p * N * row_bytes, rows + p * N * row_bytes, config.dtype);
                one.first_problem = 3 + p;
                kmeans_out alone = kmeans_run(context, &config, &one);
                kmeans_same(&together, p, &alone, 0, 1, "alone");
                kmeans_out_free(&alone);
        }
        if (config.init != DCI_KMEANS_INIT_EVEN) { /* equal rows, another stream */
                dci_kmeans_input other = input_of(1, N, rows, rows, config.dtype);
                other.first_problem = 1000;
                kmeans_out out = kmeans_run(context, &config, &other);
                ck_assert(memcmp(out.result.centroids, together.result.centroids, K * DIM * sizeof(float)) != 0);
                kmeans_out_free(&out);
        }
        kmeans_out_free(&together);
        dci_context_destroy(context);
        test_free(keys, rows);
}
END_TEST

/* Loops over kinds. A cache with heads side by side for each token, and rows with gaps that nobody reads. */
START_TEST(strides_change_nothing)
{
        enum { P = 4, N = 420, K = 17, GAP = 5 };
        dci_context *context = test_context(2);
        const dci_kmeans_config config = config_of((size_t)_i, K);
        const size_t row_bytes = DIM * dci_dtype_size(config.dtype), gap = GAP * dci_dtype_size(config.dtype);
        float *keys = pdci_trace("keys", P * N);
        char *rows = kmeans_narrow(config.dtype, P * N * DIM, keys), *by_token = malloc(P * N * row_bytes),
             *gaps = malloc(P * N * (row_bytes + gap));
        memset(gaps, 0xFF, P * N * (row_bytes + gap)); /* NaN in every format */
        for (size_t p = 0; p < P; p++)
                for (size_t i = 0; i < N; i++) {
                        const char *row = rows + (p * N + i) * row_bytes;
                        memcpy(by_token + (i * P + p) * row_bytes, row, row_bytes);
                        memcpy(gaps + (p * N + i) * (row_bytes + gap), row, row_bytes);
                }
        dci_kmeans_input input = input_of(P, N, rows, rows, config.dtype);
        kmeans_out plain = kmeans_lawful(context, &config, &input, "plain");
        input.rows = input.values = by_token;
        input.ld = input.value_ld = P * DIM;
        input.problem_ld = input.value_problem_ld = DIM;
        kmeans_out tokens = kmeans_run(context, &config, &input);
        kmeans_same(&plain, 0, &tokens, 0, P, "token-major");
        kmeans_obey(&config, &input, &tokens, "token-major");
        input.rows = input.values = gaps;
        input.ld = input.value_ld = DIM + GAP;
        input.problem_ld = input.value_problem_ld = 0;
        kmeans_out apart = kmeans_run(context, &config, &input);
        kmeans_same(&plain, 0, &apart, 0, P, "gaps");
        kmeans_out_free(&plain);
        kmeans_out_free(&tokens);
        kmeans_out_free(&apart);
        dci_context_destroy(context);
        test_free(keys, rows, by_token, gaps);
}
END_TEST

/* Loops over kinds. One assignment to the same centroids: only rows between two of them may differ. */
START_TEST(instruction_sets_give_nearly_the_same)
{
        enum { N = 1500, K = 40 };
        dci_kmeans_config config = config_of((size_t)_i, K);
        float *keys = pdci_trace("keys", N);
        void *rows = kmeans_narrow(config.dtype, N * DIM, keys);
        dci_kmeans_input input = input_of(1, N, rows, rows, config.dtype);
        dci_isa isas[6];
        const size_t n_isas = test_isas(isas);
        for (int rounds = 0; rounds < 2; rounds++) {
                kmeans_out first = {0};
                config = config_of((size_t)_i, K);
                if (rounds == 0) {
                        config.segment_rows = config.n_iter_global = config.n_iter = 0;
                        config.n_redo = 1;
                        config.init = DCI_KMEANS_INIT_EVEN;
                }
                for (size_t i = 0; i < n_isas; i++) {
                        dci_context *context = test_context_isa(isas[i]);
                        kmeans_out out = kmeans_run(context, &config, &input);
                        size_t differ = 0;
                        kmeans_obey(&config, &input, &out, dci_isa_name(isas[i]));
                        dci_context_destroy(context);
                        if (i == 0) {
                                first = out;
                                continue;
                        }
                        for (size_t r = 0; r < N; r++)
                                differ += out.result.labels[r] != first.result.labels[r];
                        ck_assert_msg(differ <= (rounds == 0 ? N / 500 : N / 20), "%s: %zu labels differ",
                                      dci_isa_name(isas[i]), differ);
                        ck_assert_double_le(fabs(out.result.reports->objective - first.result.reports->objective),
                                            1e-4 * fabs(first.result.reports->objective));
                        kmeans_out_free(&out);
                }
                kmeans_out_free(&first);
        }
        test_free(keys, rows);
}
END_TEST

/* Backwards, on the calling thread: allowed by the contract, and an order that no pool has. */
static void backwards(void *ctx, size_t n, void (*fn)(void *arg, size_t i), void *arg)
{
        ++*(size_t *)ctx;
        while (n-- > 0)
                fn(arg, n);
}

/* Loops over kinds. */
START_TEST(the_callers_executor_gives_the_same_bits)
{
        enum { P = 6, N = 800, K = 60 };
        const dci_kmeans_config config = config_of((size_t)_i, K);
        float *keys = pdci_trace("keys", P * N);
        void *rows = kmeans_narrow(config.dtype, P * N * DIM, keys);
        size_t regions = 0;
        dci_context_config how;
        dci_context *one = test_context(1), *own = NULL;
        ck_ok(dci_context_config_init(&how, sizeof how));
        how.executor_kind = DCI_EXECUTOR_CALLER;
        how.executor.ctx = &regions;
        how.executor.parallel_for = backwards;
        how.n_threads = 3;
        ck_ok(dci_context_create(&how, &own));
        for (size_t n_problems = 1; n_problems <= P; n_problems += P - 1) {
                const size_t before = regions;
                dci_kmeans_input input = input_of(n_problems, P * N / n_problems, rows, rows, config.dtype);
                kmeans_out a = kmeans_run(one, &config, &input), b = kmeans_run(own, &config, &input);
                kmeans_same(&a, 0, &b, 0, n_problems, "executor");
                ck_assert_uint_gt(regions, before); /* it was asked */
                kmeans_out_free(&a);
                kmeans_out_free(&b);
        }
        dci_context_destroy(one);
        dci_context_destroy(own);
        test_free(keys, rows);
}
END_TEST

/* One of two callers of the same context. */
typedef struct caller {
        dci_context *context;
        const dci_kmeans_config *config;
        const dci_kmeans_input *input;
        const kmeans_out *wanted;
} caller;

static void *call_again(void *arg)
{
        const caller *c = arg;
        for (int i = 0; i < 3; i++) {
                kmeans_out out = kmeans_room(c->config, c->input);
                /* Check is no place for two threads at a time: what is wrong shows in the comparison. */
                const dci_status status = dci_kmeans(c->context, c->config, c->input, NULL, &out.result);
                const dci_status check = dci_kmeans_check(c->context, c->config, c->input, &out.result);
                const bool same = status == DCI_OK && check == DCI_OK &&
                                  memcmp(out.result.labels, c->wanted->result.labels,
                                         out.n_problems * out.n * sizeof(int32_t)) == 0 &&
                                  memcmp(out.result.centroids, c->wanted->result.centroids,
                                         out.n_problems * out.k * DIM * sizeof(float)) == 0;
                kmeans_out_free(&out);
                if (!same)
                        return arg;
        }
        return NULL;
}

/* Loops over kinds. */
START_TEST(calls_may_run_side_by_side)
{
        enum { P = 4, N = 600, K = 20 };
        dci_context *context = test_context(3);
        const dci_kmeans_config configs[2] = {config_of((size_t)_i, K), config_of(((size_t)_i + 1) % COUNT(kinds), K)};
        float *keys = pdci_trace("keys", P * N);
        void *rows[2];
        dci_kmeans_input inputs[2];
        kmeans_out wanted[2];
        caller callers[2];
        pthread_t ids[2];
        for (size_t i = 0; i < 2; i++) {
                rows[i] = kmeans_narrow(configs[i].dtype, P * N * DIM, keys);
                inputs[i] = input_of(i == 0 ? 1 : P, N, rows[i], rows[i], configs[i].dtype);
                wanted[i] = kmeans_run(context, &configs[i], &inputs[i]);
                callers[i] = (caller){context, &configs[i], &inputs[i], &wanted[i]};
        }
        for (size_t i = 0; i < 2; i++)
                ck_assert_int_eq(pthread_create(&ids[i], NULL, call_again, &callers[i]), 0);
        for (size_t i = 0; i < 2; i++) {
                void *wrong = NULL;
                ck_assert_int_eq(pthread_join(ids[i], &wrong), 0);
                ck_assert_msg(wrong == NULL, "caller %zu got something else", i);
        }
        for (size_t i = 0; i < 2; i++) {
                kmeans_out_free(&wanted[i]);
                free(rows[i]);
        }
        dci_context_destroy(context);
        free(keys);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("kmeans same");
        TCase *same = test_case(suite, "same", 120);
        const int n_kinds = test_short() ? 3 : COUNT(kinds);
        tcase_add_loop_test(same, any_number_of_threads_gives_the_same_bits, 0, n_kinds);
        tcase_add_loop_test(same, problems_alone_and_together_give_the_same_bits, 0, n_kinds);
        tcase_add_loop_test(same, the_callers_executor_gives_the_same_bits, 0, n_kinds);
        tcase_add_loop_test(same, calls_may_run_side_by_side, 0, n_kinds);
        if (!test_short()) { /* long rows take the same threads as short ones */
                tcase_add_loop_test(same, long_rows_in_any_number_of_threads_give_the_same_bits, 0, COUNT(kinds));
                tcase_add_loop_test(same, strides_change_nothing, 0, COUNT(kinds));
                tcase_add_loop_test(same, instruction_sets_give_nearly_the_same, 0, COUNT(kinds));
        }
        return test_main(suite);
}
