/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Objects of all kinds that share a context, and contexts of different executors side by side: everyone's answers are those it would have
 * had alone. Run under tsan, too. */
#include "tests/work_fixture.h"

#include <pthread.h>
#include <stdio.h>

#include "tests/kmeans_fixture.h"
#include "tests/scratch.h"

enum { THREADS = 5, ROUNDS = 2, POINTS = 400, CENTRES = 12 };

static work_data work;

static void setup(void)
{
        scratch_open();
        work = work_prepare(DCI_KV_SKETCH_LOWBIT);
}

static void teardown(void)
{
        work_free(&work);
        scratch_close();
}

/* The caller's executor: one after another. */
static dci_context *context_of(int32_t executor, int32_t n_threads)
{
        dci_context_config config;
        dci_context *context = NULL;
        ck_ok(dci_context_config_init(&config, sizeof config));
        config.executor_kind = executor;
        config.executor.parallel_for = executor == DCI_EXECUTOR_CALLER ? test_serial : NULL;
        config.n_threads = n_threads;
        ck_ok(dci_context_create(&config, &context));
        return context;
}

/* What one thread does, and what comes out. Check's assertions are the main thread's. */
typedef struct part {
        dci_context *context;
        size_t number;
        char path[1024];
        uint64_t hash;
        dci_status status;
        char sentence[256];
        pthread_t thread;
} part;

static dci_status cluster(part *p)
{
        dci_kmeans_config config = kmeans_config(0, DCI_F32, TRACE_DIM, CENTRES);
        dci_kmeans_input input = kmeans_input(POINTS, work.rows);
        kmeans_out out = kmeans_room(&config, &input);
        const dci_status status = dci_kmeans(p->context, &config, &input, NULL, &out.result);
        for (size_t i = 0; i < POINTS && status == DCI_OK; i++)
                p->hash = (p->hash ^ (uint64_t)out.result.labels[i]) * 31;
        kmeans_out_free(&out);
        return status;
}

/* Each by its number: an index of one kind, a cache, or k-means. */
static void *run(void *arg)
{
        part *p = arg;
        p->hash = WORK_HASH;
        for (size_t round = 0; round < ROUNDS && p->status == DCI_OK; round++) {
                if (p->number % THREADS < 3)
                        p->status = work_index(p->context, &work, DCI_KIND_FLAT + (int32_t)(p->number % THREADS),
                                               p->path, &p->hash);
                else if (p->number % THREADS == 3)
                        p->status = work_kv(p->context, &work, 0, p->path, &p->hash);
                else
                        p->status = cluster(p);
        }
        snprintf(p->sentence, sizeof p->sentence, "%s", dci_last_error());
        return NULL;
}

static void prepare(part *p, size_t number, dci_context *context)
{
        *p = (part){.context = context, .number = number};
        snprintf(p->path, sizeof p->path, "%s-%zu", scratch_path("file"), number);
}

/* All at once, against each alone. */
static void compare(part *parts, size_t n)
{
        uint64_t alone[4 * THREADS];
        ck_assert_uint_le(n, COUNT(alone));
        for (size_t i = 0; i < n; i++) {
                run(&parts[i]);
                ck_assert_msg(parts[i].status == DCI_OK, "%s", parts[i].sentence);
                alone[i] = parts[i].hash;
        }
        for (size_t i = 0; i < n; i++)
                ck_assert_int_eq(pthread_create(&parts[i].thread, NULL, run, &parts[i]), 0);
        for (size_t i = 0; i < n; i++)
                pthread_join(parts[i].thread, NULL);
        for (size_t i = 0; i < n; i++) {
                ck_assert_msg(parts[i].status == DCI_OK, "%s", parts[i].sentence);
                ck_assert_msg(parts[i].hash == alone[i], "part %zu", i);
        }
}

START_TEST(objects_that_share_an_executor_answer_as_they_would_alone)
{
        dci_context *context = context_of(DCI_EXECUTOR_PTHREADS, 3);
        part parts[THREADS];
        for (size_t i = 0; i < THREADS; i++)
                prepare(&parts[i], i, context);
        compare(parts, THREADS);
        dci_context_destroy(context);
}
END_TEST

/* The default is OpenMP, where the build has it. */
START_TEST(contexts_of_different_executors_work_side_by_side)
{
        dci_context_config defaults;
        ck_ok(dci_context_config_init(&defaults, sizeof defaults));
        dci_context *contexts[] = {context_of(DCI_EXECUTOR_PTHREADS, 2), context_of(DCI_EXECUTOR_CALLER, 4),
                                   context_of(defaults.executor_kind, 3)};
        part parts[COUNT(contexts) * THREADS];
        for (size_t i = 0; i < COUNT(parts); i++)
                prepare(&parts[i], i, contexts[i % COUNT(contexts)]);
        compare(parts, COUNT(parts));
        for (size_t i = 0; i < COUNT(contexts); i++)
                dci_context_destroy(contexts[i]);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("shared threads");
        TCase *tcase = test_case_with(suite, "threads", 60, setup, teardown);
        tcase_add_test(tcase, objects_that_share_an_executor_answer_as_they_would_alone);
        tcase_add_test(tcase, contexts_of_different_executors_work_side_by_side);
        return test_main(suite);
}
