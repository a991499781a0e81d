/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Parallel regions on every executor, progress, fork, and BLAS without threads of its own. */
#include "tests/common.h"

#include <cblas.h>
#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/executor.h"

#define MAX_WORKERS 8

/* LLVM's OpenMP runtime loses memory of teams whose size changes; its leaks are not ours. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
        return "leak:libomp";
}

/* The executors: the caller's one after another, on its own threads next to the calling one, and on its own threads alone. */
enum { SERIAL, BESIDE, ALONE, POOL, OPENMP };

typedef struct piece {
        void (*fn)(void *arg, size_t i);
        void *arg;
        size_t i;
} piece;

static void *run_piece(void *arg)
{
        piece *p = arg;
        p->fn(p->arg, p->i);
        return NULL;
}

/* ctx: how many of the first pieces run on the calling thread. */
static void caller_for(void *ctx, size_t n, void (*fn)(void *arg, size_t i), void *arg)
{
        pthread_t threads[MAX_WORKERS];
        piece pieces[MAX_WORKERS];
        const size_t own = *(const size_t *)ctx;
        for (size_t i = own; i < n; i++) {
                pieces[i] = (piece){fn, arg, i};
                if (pthread_create(&threads[i], NULL, run_piece, &pieces[i]) != 0)
                        abort();
        }
        for (size_t i = 0; i < own && i < n; i++)
                fn(arg, i);
        for (size_t i = own; i < n; i++)
                pthread_join(threads[i], NULL);
}

static dci_context *make_context(int kind, int32_t n_threads)
{
        static size_t own[] = {[SERIAL] = SIZE_MAX, [BESIDE] = 1, [ALONE] = 0};
        dci_context_config config;
        dci_context *context = NULL;
        ck_ok(dci_context_config_init(&config, sizeof config));
        config.n_threads = n_threads;
        config.executor_kind =
                kind == OPENMP ? DCI_EXECUTOR_OPENMP : (kind == POOL ? DCI_EXECUTOR_PTHREADS : DCI_EXECUTOR_CALLER);
        if (kind < POOL)
                config.executor = (dci_executor){&own[kind], caller_for};
        ck_ok(dci_context_create(&config, &context));
        return context;
}

/* What a region did. Check's assertions belong to the main thread, so tasks only take notes. */
typedef struct notes {
        dci_context *context;
        size_t n_workers;
        atomic_uint *count; /* per task */
        atomic_bool in_use[MAX_WORKERS];
        atomic_bool broken; /* a worker out of range, or used by two tasks at once */
        atomic_size_t n_run;
        size_t n_inner; /* tasks of a nested region in every task */
} notes;

static bool run_once_each(dci_context *context, size_t n_tasks, size_t n_inner);

static void note_task(void *arg, size_t task, size_t worker)
{
        notes *n = arg;
        if (worker >= n->n_workers || atomic_exchange(&n->in_use[worker], true)) {
                atomic_store(&n->broken, true);
                return;
        }
        if (n->count != NULL)
                atomic_fetch_add(&n->count[task], 1);
        atomic_fetch_add(&n->n_run, 1);
        if (n->n_inner > 0 && !run_once_each(n->context, n->n_inner, 0))
                atomic_store(&n->broken, true);
        atomic_store(&n->in_use[worker], false);
}

/* One region on as many workers as the context allows; whether every task ran exactly once, on a worker of its own. */
static bool run_once_each(dci_context *context, size_t n_tasks, size_t n_inner)
{
        notes n = {.context = context, .n_inner = n_inner, .n_workers = dci_workers_for(context, n_tasks, SIZE_MAX)};
        n.count = calloc(n_tasks + 1, sizeof *n.count);
        dci_region region = {
                .context = context, .n_tasks = n_tasks, .n_workers = n.n_workers, .fn = note_task, .arg = &n};
        bool good = n.count != NULL && dci_parallel(&region) == DCI_OK && !atomic_load(&n.broken);
        for (size_t i = 0; good && i < n_tasks; i++)
                good = atomic_load(&n.count[i]) == 1;
        free(n.count);
        return good;
}

START_TEST(every_task_runs_once_on_a_worker_of_its_own)
{
        static const size_t n_tasks[] = {0, 1, 2, 7, 1000};
        static const int32_t n_threads[] = {1, 2, 3, MAX_WORKERS};
        dci_context *context = make_context(_i, MAX_WORKERS);
        for (size_t t = 0; t < COUNT(n_threads); t++) {
                ck_ok(dci_context_set_threads(context, n_threads[t]));
                for (size_t i = 0; i < COUNT(n_tasks); i++)
                        ck_assert_msg(run_once_each(context, n_tasks[i], 0), "%zu tasks, %d threads", n_tasks[i],
                                      (int)n_threads[t]);
        }
        dci_context_destroy(context);
}
END_TEST

START_TEST(nested_regions_run_on_the_same_context)
{
        dci_context *context = make_context(_i, 3);
        ck_assert(run_once_each(context, 20, 50));
        dci_context_destroy(context);
}
END_TEST

START_TEST(workers_follow_limit_tasks_and_work)
{
        const size_t unit = DCI_WORK_PER_WORKER;
        const size_t cases[][3] = {{100, SIZE_MAX, 4}, {3, SIZE_MAX, 3},   {100, 0, 1},
                                   {100, unit - 1, 1}, {100, unit, 1},     {100, 2 * unit, 2},
                                   {0, SIZE_MAX, 1},   {1, 100 * unit, 1}, {SIZE_MAX, 9 * unit, 4}};
        dci_context *context = make_context(POOL, 5);
        ck_ok(dci_context_set_threads(context, 4));
        for (size_t i = 0; i < COUNT(cases); i++)
                ck_assert_uint_eq(dci_workers_for(context, cases[i][0], cases[i][1]), cases[i][2]);
        dci_context_destroy(context);
}
END_TEST

/* fn(args + i * size) on n threads at once. */
static void on_threads(size_t n, void *(*fn)(void *arg), void *args, size_t size)
{
        pthread_t threads[MAX_WORKERS];
        for (size_t i = 0; i < n; i++)
                ck_assert_int_eq(pthread_create(&threads[i], NULL, fn, (char *)args + i * size), 0);
        for (size_t i = 0; i < n; i++)
                ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
}

static void *run_often(void *arg)
{
        notes *n = arg;
        for (int i = 0; i < 50; i++)
                if (!run_once_each(n->context, 40, i % 10 == 0 ? 3 : 0))
                        atomic_store(&n->broken, true);
        return NULL;
}

START_TEST(one_context_serves_several_threads_at_once)
{
        notes n = {.context = make_context(_i, 3)};
        on_threads(4, run_often, &n, 0);
        ck_assert(!atomic_load(&n.broken));
        dci_context_destroy(n.context);
}
END_TEST

typedef struct meeting {
        dci_context *context;
        atomic_int stage; /* 1: the first region is inside a task; 2: the other thread's region is done */
        bool good;
} meeting;

static void hold_region(void *arg, size_t task, size_t worker)
{
        meeting *m = arg;
        (void)worker;
        if (task != 0)
                return;
        atomic_store(&m->stage, 1);
        while (atomic_load(&m->stage) != 2)
                sched_yield();
}

static void *run_meanwhile(void *arg)
{
        meeting *m = arg;
        while (atomic_load(&m->stage) != 1)
                sched_yield();
        m->good = run_once_each(m->context, 10, 0);
        atomic_store(&m->stage, 2);
        return NULL;
}

START_TEST(a_region_does_not_wait_for_another)
{
        meeting m = {.context = make_context(_i, 3)};
        pthread_t thread;
        dci_region region = {.context = m.context, .n_tasks = 2, .n_workers = 2, .fn = hold_region, .arg = &m};
        ck_assert_int_eq(pthread_create(&thread, NULL, run_meanwhile, &m), 0);
        ck_ok(dci_parallel(&region));
        ck_assert_int_eq(pthread_join(thread, NULL), 0);
        ck_assert(m.good);
        dci_context_destroy(m.context);
}
END_TEST

typedef struct observer {
        pthread_t caller;
        const void *object;
        size_t calls, last, total;
        bool other_thread, backwards, not_busy;
        size_t stop_at; /* the call that cancels; 0: none */
} observer;

static int32_t observe(void *ctx, size_t done, size_t total)
{
        observer *o = ctx;
        o->calls++;
        o->other_thread |= !pthread_equal(pthread_self(), o->caller);
        o->backwards |= done < o->last || done > total || total != o->total;
        o->not_busy |= !dci_is_busy(o->object) || dci_is_busy(o);
        o->last = done;
        return o->calls == o->stop_at ? -1 : 0;
}

static dci_status run_observed(dci_context *context, size_t n_tasks, observer *o, notes *n)
{
        dci_progress progress = {o, observe};
        o->caller = pthread_self();
        o->object = context;
        n->n_workers = dci_workers_for(context, n_tasks, SIZE_MAX);
        dci_region region = {context, n_tasks, n->n_workers, note_task, n, &progress, o->total, o->object};
        return dci_parallel(&region);
}

START_TEST(progress_comes_to_the_caller_and_ends_with_the_whole)
{
        static const size_t totals[] = {1, 100, 12345, ((size_t)1 << 60) + 1, SIZE_MAX};
        dci_context *context = make_context(_i, 4);
        for (int32_t n_threads = 1; n_threads <= 4; n_threads += 3) {
                ck_ok(dci_context_set_threads(context, n_threads));
                for (size_t i = 0; i < COUNT(totals); i++) {
                        observer o = {.total = totals[i]};
                        notes n = {0};
                        ck_ok(run_observed(context, 100, &o, &n));
                        ck_assert_uint_ge(o.calls, n_threads == 1 ? 100 : 1);
                        ck_assert_uint_eq(o.last, o.total);
                        ck_assert_msg(!o.other_thread, "called on another thread");
                        ck_assert_msg(!o.backwards, "not monotone");
                        ck_assert_msg(!o.not_busy, "the object was not marked busy, or another one was");
                        ck_assert(!dci_is_busy(context) && !dci_is_busy(NULL));
                }
        }
        dci_context_destroy(context);
}
END_TEST

START_TEST(cancelling_ends_the_region)
{
        /* So many tasks that coming back at all means that the region stopped. ALONE reports only at the end. */
        const size_t n_tasks = _i == ALONE ? 100 : SIZE_MAX / 2;
        dci_context *context = make_context(_i, 3);
        for (size_t stop_at = 1; stop_at <= (_i == ALONE ? 1 : 3); stop_at++) {
                observer o = {.total = n_tasks, .stop_at = stop_at};
                notes n = {0};
                ck_refused(run_observed(context, n_tasks, &o, &n), DCI_ERR_CANCELLED, "stopped the call");
                ck_assert_uint_eq(o.calls, stop_at);
                ck_assert(!dci_is_busy(context) && !atomic_load(&n.broken));
                for (int w = 0; w < MAX_WORKERS; w++)
                        ck_assert_msg(!atomic_load(&n.in_use[w]), "a task still runs");
                if (_i == SERIAL)
                        ck_assert_uint_eq(atomic_load(&n.n_run), stop_at);
        }
        ck_assert(run_once_each(context, 100, 0));
        dci_context_destroy(context);
}
END_TEST

/* The child works with the context and gives it back; a child that hangs is ended by its alarm. */
static pid_t fork_child(dci_context *context)
{
        pid_t child = fork();
        if (child == 0) {
                alarm(30);
                bool good = run_once_each(context, 1000, 2);
                dci_context_destroy(context);
                _exit(good ? EXIT_SUCCESS : EXIT_FAILURE);
        }
        return child;
}

static bool child_ended_well(pid_t child)
{
        int status;
        return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
               WEXITSTATUS(status) == EXIT_SUCCESS;
}

static void fork_in_task(void *arg, size_t task, size_t worker)
{
        notes *n = arg;
        (void)task, (void)worker;
        if (!child_ended_well(fork_child(n->context)))
                atomic_store(&n->broken, true);
}

START_TEST(a_child_goes_on_with_the_context)
{
        dci_context *context = make_context(_i, 4);
        ck_assert(run_once_each(context, 1000, 0));
        ck_assert(child_ended_well(fork_child(context)));
        ck_assert_msg(run_once_each(context, 1000, 0), "the parent lost its threads");
        dci_context_destroy(context);
}
END_TEST

START_TEST(a_child_of_a_running_region_goes_on_with_the_context)
{
        notes n = {.context = make_context(_i, 3)};
        dci_region region = {.context = n.context, .n_tasks = 6, .n_workers = 3, .fn = fork_in_task, .arg = &n};
        ck_ok(dci_parallel(&region));
        ck_assert(!atomic_load(&n.broken));
        dci_context_destroy(n.context);
}
END_TEST

typedef struct product {
        size_t m, n, k, lda, ldb, ldc;
        float *a, *b, *c;
} product;

/* Numbers where rows are, NaN between them: reading the gap poisons a sum, writing it shows. */
static float *with_gaps(size_t n, size_t dim, size_t ld, uint64_t seed)
{
        float *out = malloc(n * ld * sizeof *out), *rows = test_normal(n, dim, seed);
        ck_assert_ptr_nonnull(out);
        for (size_t i = 0; i < n * ld; i++)
                out[i] = i % ld < dim ? rows[i / ld * dim + i % ld] : NAN;
        free(rows);
        return out;
}

static product make_product(size_t m, size_t n, size_t k, size_t gap)
{
        product p = {.m = m, .n = n, .k = k, .lda = k + gap, .ldb = k + 2 * gap, .ldc = n + gap};
        p.a = with_gaps(m, k, p.lda, 1);
        p.b = with_gaps(n, k, p.ldb, 2);
        p.c = with_gaps(m, 0, p.ldc, 3);
        return p;
}

static void free_product(product *p)
{
        test_free(p->a, p->b, p->c);
}

static void multiply(const product *p, float *c)
{
        dci_gemm_nt(p->m, p->n, p->k, p->a, p->lda, p->b, p->ldb, c, p->ldc);
}

START_TEST(products_are_those_of_double_precision)
{
        static const size_t shapes[][3] = {{1, 1, 1},    {3, 5, 7},       {64, 64, 64}, {65, 63, 129}, {1, 200, 784},
                                           {130, 1, 65}, {128, 130, 300}, {17, 33, 1},  {2, 64, 4097}};
        for (size_t s = 0; s < 2 * COUNT(shapes); s++) {
                product p = make_product(shapes[s / 2][0], shapes[s / 2][1], shapes[s / 2][2], s % 2 * 3);
                multiply(&p, p.c);
                for (size_t i = 0; i < p.m * p.ldc; i++) {
                        const float *a = p.a + i / p.ldc * p.lda, *b = p.b + i % p.ldc * p.ldb;
                        double sum = 0, magnitude = 0;
                        for (size_t j = 0; i % p.ldc < p.n && j < p.k; j++) {
                                sum += (double)a[j] * b[j];
                                magnitude += fabs((double)a[j] * b[j]);
                        }
                        if (i % p.ldc >= p.n)
                                ck_assert(isnan(p.c[i]));
                        else
                                ck_assert_double_eq_tol(p.c[i], sum, magnitude * (double)(p.k + 2) * 0x1p-24);
                }
                free_product(&p);
        }
}
END_TEST

static void *multiply_often(void *arg)
{
        product *p = arg;
        for (int i = 0; i < 20; i++)
                multiply(p, p->c);
        return NULL;
}

START_TEST(simultaneous_products_are_the_same_bits)
{
        product wanted = make_product(130, 70, 200, 0), p[4];
        multiply(&wanted, wanted.c);
        for (size_t i = 0; i < COUNT(p); i++)
                p[i] = make_product(130, 70, 200, 0);
        on_threads(COUNT(p), multiply_often, p, sizeof *p);
        for (size_t i = 0; i < COUNT(p); i++) {
                ck_assert_mem_eq(p[i].c, wanted.c, wanted.m * wanted.ldc * sizeof *wanted.c);
                free_product(&p[i]);
        }
        free_product(&wanted);
}
END_TEST

#ifdef __linux__
#define MAX_THREADS 256

typedef struct thread_time {
        long id;
        char state;
        unsigned long long run; /* grows whenever the thread has had a CPU */
} thread_time;

static void read_line(long id, const char *name, char line[1000])
{
        char path[64];
        snprintf(path, sizeof path, "/proc/self/task/%ld/%s", id, name);
        FILE *file = fopen(path, "r");
        if (file == NULL || fgets(line, 1000, file) == NULL)
                line[0] = '\0';
        if (file != NULL)
                fclose(file);
}

static size_t read_threads(thread_time out[MAX_THREADS])
{
        size_t n = 0;
        DIR *dir = opendir("/proc/self/task");
        ck_assert_ptr_nonnull(dir);
        for (struct dirent *entry; n < MAX_THREADS && (entry = readdir(dir)) != NULL;) {
                char line[1000];
                thread_time t = {.id = strtol(entry->d_name, NULL, 10)};
                if (t.id == 0)
                        continue;
                read_line(t.id, "stat", line);
                t.state = strrchr(line, ')') == NULL ? '?' : strrchr(line, ')')[2];
                read_line(t.id, "schedstat", line);
                t.run = strtoull(line, NULL, 10);
                out[n++] = t;
        }
        closedir(dir);
        return n;
}

/* Whether any thread but this one is new since `before` or has run since. */
static bool others_worked(const thread_time *before, size_t n_before)
{
        thread_time now[MAX_THREADS];
        size_t n = read_threads(now);
        for (size_t i = 0; i < n; i++) {
                size_t j = 0;
                while (j < n_before && before[j].id != now[i].id)
                        j++;
                if (now[i].id != (long)getpid() &&
                    (j == n_before || now[i].run != before[j].run || now[i].state != 'S'))
                        return true;
        }
        return false;
}

/* OpenBLAS's threads spin for a while after they start, before they sleep. */
static size_t wait_until_others_sleep(thread_time out[MAX_THREADS])
{
        size_t n = read_threads(out);
        for (int quiet = 0; quiet < 200; quiet++) {
                sched_yield();
                if (others_worked(out, n)) {
                        n = read_threads(out);
                        quiet = 0;
                }
        }
        return n;
}

/* Runs in a process of its own, whose OpenBLAS was started with several threads. */
START_TEST(openblas_threads_sleep_through_products)
{
        thread_time before[MAX_THREADS];
        product p = make_product(512, 512, 784, 0);
        size_t n = wait_until_others_sleep(before);
        multiply(&p, p.c);
        ck_assert_msg(!others_worked(before, n), "a thread was started, or one of OpenBLAS's %zu was used", n - 1);
        /* The same product in one call must be seen to use them, or this proves nothing. */
        if (openblas_get_parallel() != 0 && openblas_get_num_threads() > 1) {
                cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, 512, 512, 784, 1.0f, p.a, 784, p.b, 784, 0.0f, p.c,
                            512);
                ck_assert_msg(others_worked(before, n), "OpenBLAS's threads cannot be seen working");
        }
        free_product(&p);
}
END_TEST

START_TEST(products_use_no_thread_of_openblas)
{
        int status;
        pid_t child = fork();
        if (child == 0) {
                setenv("OPENBLAS_NUM_THREADS", "4", 1);
                setenv("OMP_NUM_THREADS", "4", 1);
                setenv("CK_FORK", "no", 1); /* a fork would end OpenBLAS's threads */
                execl("/proc/self/exe", "test_executor", "openblas", (char *)NULL);
                _exit(127);
        }
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS);
}
END_TEST

START_TEST(one_thread_is_the_calling_thread)
{
        thread_time threads[MAX_THREADS];
        const size_t before = read_threads(threads);
        dci_context *context = make_context(_i, 1);
        ck_assert(run_once_each(context, 1000, 3));
        ck_assert_uint_eq(read_threads(threads), before);
        dci_context_destroy(context);
        /* A pool of three starts two, and ends them. */
        context = make_context(POOL, 3);
        ck_assert_uint_eq(read_threads(threads), before + 2);
        dci_context_destroy(context);
        while (read_threads(threads) != before)
                sched_yield();
}
END_TEST
#endif

/* A thread sanitizer does not see the synchronisation of OpenMP runtimes, refuses to work in the child of a process
 * with threads, and has a thread of its own. */
static void add_tests(TCase *tcase, bool openblas)
{
        const int n_kinds = dci_openmp_built() && !UNDER_TSAN ? OPENMP + 1 : OPENMP;
#ifdef __linux__
        if (openblas) {
                tcase_add_test(tcase, openblas_threads_sleep_through_products);
                return;
        }
        tcase_add_loop_test(tcase, one_thread_is_the_calling_thread, 0, n_kinds);
        /* In an emulator the system cannot start this process's file: it is made for another machine. */
        if (!UNDER_TSAN && getenv("DCI_TEST_EMULATED") == NULL)
                tcase_add_test(tcase, products_use_no_thread_of_openblas);
#endif
        (void)openblas;
        tcase_add_loop_test(tcase, every_task_runs_once_on_a_worker_of_its_own, 0, n_kinds);
        tcase_add_loop_test(tcase, nested_regions_run_on_the_same_context, 0, n_kinds);
        tcase_add_loop_test(tcase, one_context_serves_several_threads_at_once, 0, n_kinds);
        tcase_add_loop_test(tcase, a_region_does_not_wait_for_another, 0, n_kinds);
        tcase_add_loop_test(tcase, progress_comes_to_the_caller_and_ends_with_the_whole, 0, n_kinds);
        tcase_add_loop_test(tcase, cancelling_ends_the_region, 0, n_kinds);
        tcase_add_test(tcase, workers_follow_limit_tasks_and_work);
        tcase_add_test(tcase, products_are_those_of_double_precision);
        tcase_add_test(tcase, simultaneous_products_are_the_same_bits);
        if (!UNDER_TSAN) {
                tcase_add_loop_test(tcase, a_child_goes_on_with_the_context, 0, n_kinds);
                tcase_add_loop_test(tcase, a_child_of_a_running_region_goes_on_with_the_context, POOL, n_kinds);
        }
}

int main(int argc, char **argv)
{
        Suite *suite = suite_create("executor");
        TCase *tcase = test_case(suite, "executor", 120);
        add_tests(tcase, argc > 1);
        (void)argv;
        return test_main(suite);
}
