/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The pool's helpers: as many are woken as there is work for, and no fewer. */
#include "tests/common.h"

#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/executor.h"

enum { HELPERS = 7 };

/* A task that ends when all tasks of its region have begun: each needs a thread of its own. The C library may lose a signal (glibc's bug
 * 25847, until 2.41), so it gives up in the end, and a region or two may be short of a thread. */
#define PATIENCE 10000000
typedef struct gathering {
        size_t n;
        atomic_size_t here;
        atomic_bool missed;
} gathering;

static void meet(void *arg, size_t task, size_t worker)
{
        gathering *g = arg;
        (void)task, (void)worker;
        atomic_fetch_add(&g->here, 1);
        size_t waited = 0;
        for (; atomic_load(&g->here) < g->n && waited < PATIENCE; waited++)
                sched_yield();
        if (waited == PATIENCE)
                atomic_store(&g->missed, true);
}

/* Whether all came together. */
static bool gather(dci_context *context, size_t n)
{
        gathering g = {.n = n};
        atomic_init(&g.here, 0);
        atomic_init(&g.missed, false);
        ck_ok(dci_parallel(
                &(dci_region){.context = context, .n_tasks = n, .n_workers = n, .fn = meet, .arg = &g, .object = &g}));
        ck_assert_uint_eq(atomic_load(&g.here), n);
        return !atomic_load(&g.missed);
}

/* One region after the other, so that helpers are asleep, on their way there, or late. */
START_TEST(a_region_gets_as_many_threads_as_it_has_tasks)
{
        dci_context *context = test_context(HELPERS + 1);
        size_t n_missed = 0;
        for (size_t i = 0; i < (test_short() ? 500 : 3000) && n_missed <= 2; i++)
                n_missed += !gather(context, 2 + i * 5 % HELPERS);
        ck_assert_uint_le(n_missed, 2);
        dci_context_destroy(context);
}
END_TEST

#ifdef __linux__
#define MAX_THREADS 64

/* A thread, whether it sleeps, and how often it has gone to sleep by itself. */
typedef struct sleeper {
        long id;
        char state;
        unsigned long long n_sleeps;
} sleeper;

static sleeper read_sleeper(long id)
{
        char path[64], line[200];
        sleeper s = {.id = id, .state = '?'};
        snprintf(path, sizeof path, "/proc/self/task/%ld/status", id);
        FILE *file = fopen(path, "r");
        while (file != NULL && fgets(line, sizeof line, file) != NULL) {
                if (strncmp(line, "State:\t", 7) == 0)
                        s.state = line[7];
                if (strncmp(line, "voluntary_ctxt_switches:", 24) == 0)
                        s.n_sleeps = strtoull(line + 24, NULL, 10);
        }
        if (file != NULL)
                fclose(file);
        return s;
}

/* All threads but this one. */
static size_t read_sleepers(sleeper out[MAX_THREADS])
{
        size_t n = 0;
        DIR *dir = opendir("/proc/self/task");
        ck_assert_ptr_nonnull(dir);
        for (struct dirent *entry; n < MAX_THREADS && (entry = readdir(dir)) != NULL;) {
                const long id = strtol(entry->d_name, NULL, 10);
                if (id != 0 && id != (long)getpid())
                        out[n++] = read_sleeper(id);
        }
        closedir(dir);
        return n;
}

/* Until they have slept for a while. */
static size_t wait_for_sleep(sleeper out[MAX_THREADS])
{
        size_t n = 0;
        for (int quiet = 0; quiet < 20; quiet++) {
                sleeper now[MAX_THREADS];
                const size_t n_now = read_sleepers(now);
                bool same = n_now == n;
                for (size_t i = 0; i < n_now; i++)
                        same = same && now[i].id == out[i].id && now[i].state == 'S' &&
                               now[i].n_sleeps == out[i].n_sleeps;
                memcpy(out, now, n_now * sizeof *now);
                n = n_now;
                quiet = same ? quiet : 0;
                sched_yield();
        }
        return n;
}

/* A region of two has work for one helper; the others would find nothing. */
START_TEST(a_region_wakes_no_helper_that_it_has_no_task_for)
{
        enum { REGIONS = 40 };
        dci_context *context = test_context(HELPERS + 1);
        size_t n_woken = 0;
        gather(context, HELPERS + 1);
        for (size_t i = 0; i < REGIONS; i++) {
                sleeper before[MAX_THREADS], after[MAX_THREADS];
                const size_t n = wait_for_sleep(before);
                ck_assert(gather(context, 2));
                ck_assert_uint_eq(wait_for_sleep(after), n);
                for (size_t t = 0; t < n; t++)
                        n_woken += after[t].n_sleeps != before[t].n_sleeps;
        }
        /* Something else may wake one now and then. */
        ck_assert_msg(n_woken >= REGIONS && n_woken <= 2 * REGIONS, "%d regions woke %zu helpers", REGIONS, n_woken);
        dci_context_destroy(context);
}
END_TEST
#endif

int main(void)
{
        Suite *suite = suite_create("pool threads");
        TCase *tcase = test_case(suite, "pool", 120);
        tcase_add_test(tcase, a_region_gets_as_many_threads_as_it_has_tasks);
#ifdef __linux__
        tcase_add_test(tcase, a_region_wakes_no_helper_that_it_has_no_task_for);
#endif
        return test_main(suite);
}
