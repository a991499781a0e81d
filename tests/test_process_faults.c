/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What a process may do or suffer: signals at any moment, forks, too little address space, no more threads, no more pages. */
#include "tests/work_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/executor.h"
#include "dci/check.h"
#include "kv/clustering.h"
#include "kv/geometry.h"
#include "kv/prompt.h"
#include "kv/summaries.h"
#include "kv/tree/tree.h"
#include "kv/worker.h"
#include "tests/scratch.h"

/* LLVM's OpenMP runtime loses memory of teams whose size changes; its leaks are not ours. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
        return "leak:libomp";
}

static work_data work;
static uint64_t wanted; /* by one thread, undisturbed */

static dci_context *context_of(int32_t executor, int32_t n_threads)
{
        dci_context_config config;
        dci_context *context = NULL;
        ck_ok(dci_context_config_init(&config, sizeof config));
        config.executor_kind = executor;
        config.n_threads = n_threads;
        ck_ok(dci_context_create(&config, &context));
        return context;
}

static void setup(void)
{
        scratch_open();
        work = work_prepare(DCI_KV_SKETCH_LOWBIT);
        dci_context *context = test_context(1);
        wanted = WORK_HASH;
        ck_ok(work_all(context, &work, scratch_path("file"), &wanted));
        dci_context_destroy(context);
}

static void teardown(void)
{
        work_free(&work);
        scratch_close();
}

/* --- signals ---------------------------------------------------------------------------------------------------------------------------- */

/* Whichever thread gets them. */
static atomic_int n_signals;

static void count_signal(int number)
{
        (void)number;
        atomic_fetch_add(&n_signals, 1);
}

/* Whichever call of the system is under way returns EINTR: the handler does not ask for it to be begun again. */
START_TEST(signals_at_any_moment_change_nothing)
{
        struct sigaction action = {.sa_handler = count_signal};
        const struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
        ck_assert_int_eq(sigaction(SIGALRM, &action, NULL), 0);
        for (int32_t n_threads = 1; n_threads <= 3; n_threads += 2) {
                atomic_store(&n_signals, 0);
                do {
                        uint64_t hash = WORK_HASH;
                        dci_context *context = context_of(DCI_EXECUTOR_PTHREADS, n_threads);
                        setitimer(ITIMER_REAL, &often, NULL);
                        const dci_status status = work_all(context, &work, scratch_path("file"), &hash);
                        setitimer(ITIMER_REAL, &never, NULL);
                        ck_ok(status);
                        ck_assert_uint_eq(hash, wanted);
                        dci_context_destroy(context);
                } while (atomic_load(&n_signals) < 50);
        }
}
END_TEST

/* --- forks ------------------------------------------------------------------------------------------------------------------------------ */

/* What a parent has when it forks. */
typedef struct inheritance {
        dci_context *context;
        dci_index *index;
        dci_kv *kv;
        int64_t sequence;
        uint64_t found, decoded; /* what they answer */
} inheritance;

#define OR_EXIT(condition, code)                                                                                       \
        do {                                                                                                           \
                if (!(condition))                                                                                      \
                        _exit(code);                                                                                   \
        } while (0)

/* Everything there is goes on, with the context and without; a child that hangs is ended by its alarm. */
static void go_on(const inheritance *h)
{
        uint64_t hash = WORK_HASH;
        int64_t own = -1;
        dci_context_config config;
        dci_context *context = NULL;
        alarm(100);
        OR_EXIT(work_search(h->index, &work, &hash) == DCI_OK && hash == h->found, 1);
        OR_EXIT(dci_index_add(h->index, WORK_QUERIES, work.queries, TRACE_DIM, NULL, NULL) == DCI_OK, 2);
        OR_EXIT(dci_index_remove(h->index, 1, &(int64_t){5}) == DCI_OK, 3);
        OR_EXIT(dci_index_save(h->index, scratch_path("child")) == DCI_OK, 4);
        hash = WORK_HASH;
        OR_EXIT(dci_kv_wait(h->kv, -1) == DCI_OK, 5);
        OR_EXIT(work_decode(h->kv, &work, h->sequence, WORK_PROMPT, &hash) == DCI_OK && hash == h->decoded, 6);
        hash = WORK_HASH;
        OR_EXIT(work_prompt(h->kv, &work, &own) == DCI_OK, 7);
        OR_EXIT(work_decode(h->kv, &work, own, WORK_PROMPT, &hash) == DCI_OK && hash == h->decoded, 8);
        OR_EXIT(dci_kv_save(h->kv, own, WORK_PROMPT, scratch_path("child")) == DCI_OK, 9);
        dci_kv_destroy(h->kv);
        dci_index_destroy(h->index);
        hash = WORK_HASH;
        OR_EXIT(work_all(h->context, &work, scratch_path("child"), &hash) == DCI_OK && hash == wanted, 10);
        dci_context_destroy(h->context);
        OR_EXIT(dci_context_config_init(&config, sizeof config) == DCI_OK, 11);
        config.executor_kind = DCI_EXECUTOR_PTHREADS;
        config.n_threads = 3;
        hash = WORK_HASH;
        OR_EXIT(dci_context_create(&config, &context) == DCI_OK, 12);
        OR_EXIT(work_all(context, &work, scratch_path("child"), &hash) == DCI_OK && hash == wanted, 13);
        dci_context_destroy(context);
        _exit(0);
}

static int fork_and_go_on(const inheritance *h)
{
        int status = 0;
        fflush(NULL);
        const pid_t child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0)
                go_on(h);
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

/* Loops over the executors that have threads. */
START_TEST(a_child_goes_on_with_all_objects_of_its_parent)
{
        inheritance h = {.context = context_of(_i, 3), .found = WORK_HASH, .decoded = WORK_HASH};
        dci_index_config config = index_config(TRACE_DIM, DCI_METRIC_IP, DCI_F32);
        config.kind = DCI_KIND_MDCI;
        h.index = pdci_index(h.context, &config, WORK_ROWS, work.rows, NULL);
        h.kv = kv_create(h.context, &work.config);
        uint64_t hash = WORK_HASH;
        int64_t before = -1;
        ck_ok(work_all(h.context, &work, scratch_path("file"), &hash));
        ck_assert_uint_eq(hash, wanted);
        ck_ok(work_search(h.index, &work, &h.found));
        ck_ok(work_prompt(h.kv, &work, &before));
        ck_ok(work_decode(h.kv, &work, before, WORK_PROMPT, &h.decoded));
        ck_ok(work_prompt(h.kv, &work, &h.sequence));
        ck_ok(dci_kv_wait(h.kv, -1));
        ck_assert_int_eq(fork_and_go_on(&h), 0);
        /* And the parent goes on, too. */
        hash = WORK_HASH;
        ck_ok(work_decode(h.kv, &work, h.sequence, WORK_PROMPT, &hash));
        ck_assert_uint_eq(hash, h.decoded);
        dci_kv_destroy(h.kv);
        dci_index_destroy(h.index);
        dci_context_destroy(h.context);
}
END_TEST

static const int32_t presets[] = {DCI_KV_SKETCH_LOWBIT, KV_LEARNED,        DCI_KV_SNAPKV, DCI_KV_ICECACHE,
                                  DCI_KV_CLUSTERKV,     DCI_KV_RETROINFER, DCI_KV_PRKV,   DCI_KV_LOUISKV};

/* Loops over presets. The worker stays with the parent, in the middle of a head's groups or between two. */
START_TEST(a_child_finishes_the_prompts_that_its_parents_worker_was_at)
{
        work_data own = work_prepare(presets[_i]);
        dci_context *context = test_context(2 + _i % 3);
        const size_t rounds = test_short() ? 3 : 12;
        for (size_t round = 0; round < rounds; round++) {
                dci_kv *kv = kv_create(context, &own.config);
                int64_t sequence = -1;
                uint64_t alone = WORK_HASH;
                int status = 0;
                ck_ok(work_prompt(kv, &own, &sequence));
                for (volatile size_t spin = 0; spin < round * 20000; spin++)
                        continue;
                const pid_t child = fork();
                ck_assert_int_ge(child, 0);
                if (child == 0) {
                        uint64_t hash = WORK_HASH, parents = WORK_HASH;
                        alarm(100);
                        OR_EXIT(work_decode(kv, &own, sequence, WORK_PROMPT, &hash) == DCI_OK, 1);
                        dci_kv_destroy(kv);
                        /* The same from the beginning, in this process alone. */
                        kv = NULL;
                        OR_EXIT(dci_kv_create(context, &own.config, &kv) == DCI_OK, 2);
                        OR_EXIT(work_prompt(kv, &own, &sequence) == DCI_OK, 3);
                        OR_EXIT(work_decode(kv, &own, sequence, WORK_PROMPT, &parents) == DCI_OK, 4);
                        dci_kv_destroy(kv);
                        _exit(hash == parents ? 0 : 5);
                }
                ck_ok(work_decode(kv, &own, sequence, WORK_PROMPT, &alone));
                ck_assert_int_eq(waitpid(child, &status, 0), child);
                ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "round %zu: status %x", round,
                              (unsigned)status);
                dci_kv_destroy(kv);
        }
        dci_context_destroy(context);
        work_free(&own);
}
END_TEST

/* The worker stays with the parent, which has an order of each layer half made or done: the child makes them again. */
START_TEST(a_child_makes_the_order_that_its_parents_worker_was_at)
{
        dci_kv_config config = kv_small(DCI_KV_PRKV);
        config.static_share = 0.5;
        config.period = 10;
        config.reorder_delay = 6;
        dci_context *context = test_context(2);
        kv_data data = kv_random(&config, 300, 307);
        for (size_t round = 0; round < 3; round++) {
                dci_kv *kv = kv_create(context, &config);
                const int64_t sequence = kv_begin(kv, &data, 200);
                int status = 0;
                kv_decode_all(kv, sequence, &data, 200, 11);
                for (volatile size_t spin = 0; spin < round * 10000; spin++)
                        continue;
                fflush(NULL);
                const pid_t child = fork();
                ck_assert_int_ge(child, 0);
                if (child == 0) {
                        alarm(100);
                        OR_EXIT(kv_layer_of(kv, sequence, 0)->reorder != NULL, 1);
                        dci_kv *alone = kv_create(context, &config);
                        const int64_t other = kv_begin(alone, &data, 200);
                        kv_decode_all(alone, other, &data, 200, 11);
                        kv_alike(kv, sequence, alone, other, &data, 211, 40, "a child");
                        dci_kv_destroy(alone);
                        dci_kv_destroy(kv);
                        _exit(0);
                }
                ck_assert_int_eq(waitpid(child, &status, 0), child);
                ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", (unsigned)status);
                dci_kv_destroy(kv);
        }
        kv_data_free(&data);
        dci_context_destroy(context);
}
END_TEST

/* How far the worker is in the first layer when the process forks. */
enum { AT_SECOND_HEAD, AT_THE_END, FINISHED, N_PLACES };
enum { LONG_PROMPT = 1300, LONG_TOKENS = 1340 };

/* The workers' part of a prompt, up to that place, which they leave in the middle of something. */
static void work_up_to(dci_kv *kv, dci_kv_layer *layer, int place)
{
        const size_t n = dci_kv_prompt_candidates(kv, layer->n_prompt);
        for (size_t h = 0; h < kv->config.n_kv_heads; h++) {
                dci_kv_head *head = &layer->heads[h];
                if (kv->clustered)
                        dci_kv_clusters_build(kv, layer, layer->batches[0], h, 1);
                else
                        dci_kv_rebuild(kv, layer, h, 0, n, kv->building.memory + kv->building.area_bytes);
                if (place != AT_SECOND_HEAD || h == 0)
                        continue;
                /* What dci_coder_init sets first, and nothing else. */
                if (head->keys != NULL)
                        head->keys->coder = (dci_coder){.kind = DCI_CODER_ROTATED, .dim = kv->dim_k};
                if (head->values != NULL)
                        head->values->coder = (dci_coder){.kind = DCI_CODER_ROTATED, .dim = kv->dim_v};
                if (head->tree != NULL)
                        head->tree->n = head->tree->n_nodes = 1;
                head->n_fixed /= 2;
        }
        layer->next_head = kv->config.n_kv_heads;
        layer->n_running = 1;
        if (place != FINISHED)
                return;
        layer->n_grouped = dci_kv_groups(kv, layer->number) ? n : 0;
        atomic_store(&layer->prompt, DCI_KV_PROMPT_DONE);
        kv->last_job = NULL;
}

/* What units wait for. */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static void build_after_gate(dci_kv *kv, dci_kv_layer *layer, size_t head, size_t area)
{
        pthread_mutex_lock(&gate);
        pthread_mutex_unlock(&gate);
        dci_kv_host_former.build(kv, layer, head, area);
}

/* A sequence whose prompt has ended. holds: and no unit has begun, since the gate is closed. */
static dci_status long_prompt(dci_kv *kv, const work_data *own, bool holds, int64_t *out_sequence)
{
        const kv_data *d = &own->data;
        const size_t n = LONG_PROMPT, es = dci_dtype_size(d->dtype);
        dci_kv_rows rows;
        dci_status status = dci_kv_rows_init(&rows, sizeof rows);
        if (status == DCI_OK)
                status = dci_kv_open(kv, out_sequence);
        if (status == DCI_OK)
                status = dci_kv_reserve(kv, 1, out_sequence, &n);
        if (holds) {
                pthread_mutex_lock(&gate);
                kv->former.build = build_after_gate;
        }
        for (size_t layer = 0; layer < d->n_layers && status == DCI_OK; layer++) {
                const size_t first = layer * d->n * d->n_kv_heads;
                rows.keys = (const char *)d->stored_keys + first * d->dim_k * es;
                rows.values = (const char *)d->stored_values + first * d->dim_v * es;
                status = dci_kv_append(kv, layer, 1, out_sequence, &n, &rows);
                if (status == DCI_OK)
                        status = dci_kv_end_prompt(kv, layer, *out_sequence, 20, kv_query(d, layer, n - 20, 0),
                                                   d->dim_k);
        }
        return status == DCI_OK ? dci_kv_step_end(kv, 1, out_sequence) : status;
}

/* Everything that a cache says of its only sequence, and the sum of what it has watched in its codes. */
static dci_status say_all(dci_kv *kv, const work_data *own, int64_t sequence, uint64_t *hash, double *codes)
{
        dci_kv_sequence_info info;
        dci_status status = dci_kv_wait(kv, sequence);
        for (size_t i = 0; i < kv->config.n_layers * kv->config.n_kv_heads; i++) {
                const dci_kv_head *head = &kv->sequences[0]->layers[0].heads[i]; /* of all layers, side by side */
                *codes += head->keys == NULL ? 0.0 : head->keys->distortion;
                *codes += head->sum_latest + head->sum_now + head->n_latest + head->n_now;
        }
        if (status == DCI_OK)
                status = dci_kv_check(kv, DCI_CHECK_FULL, NULL);
        for (size_t t = LONG_PROMPT; t < LONG_TOKENS && status == DCI_OK; t++)
                status = work_decode(kv, own, sequence, t, hash);
        if (status == DCI_OK)
                status = dci_kv_check(kv, DCI_CHECK_FULL, NULL);
        dci_kv_sequence_info_init(&info, sizeof info);
        if (status == DCI_OK)
                status = dci_kv_get_sequence(kv, sequence, &info);
        *codes += info.refits;
        return status;
}

/* In a child: a prompt that its parent's worker was at is as one of this process alone. */
static void begin_again_at(dci_kv *kv, const work_data *own, int64_t sequence, int place)
{
        uint64_t hash = WORK_HASH, alone = WORK_HASH;
        double codes = 0.0, codes_alone = 0.0;
        int64_t other = -1;
        dci_kv *fresh = NULL;
        alarm(100);
        dci_kv_jobs_init(kv); /* the locks that the parent has */
        kv->former.build = dci_kv_host_former.build;
        work_up_to(kv, &kv->sequences[0]->layers[0], place);
        OR_EXIT(say_all(kv, own, sequence, &hash, &codes) == DCI_OK, 1);
        OR_EXIT(dci_kv_create(kv->context, &own->config, &fresh) == DCI_OK, 2);
        OR_EXIT(long_prompt(fresh, own, false, &other) == DCI_OK, 3);
        OR_EXIT(say_all(fresh, own, other, &alone, &codes_alone) == DCI_OK, 4);
        OR_EXIT(hash == alone, 5);
        OR_EXIT(codes == codes_alone, 6);
        OR_EXIT(atomic_load(&kv->bytes) == atomic_load(&fresh->bytes), 7);
        dci_kv_destroy(fresh);
        dci_kv_destroy(kv);
        _exit(0);
}

/* Loops over presets. One worker or several are at heads of the first layer. */
START_TEST(wherever_a_fork_falls_a_prompt_is_as_if_there_had_been_none)
{
        work_data own = {.config = kv_small(presets[_i])};
        own.data = kv_random(&own.config, LONG_TOKENS, 12);
        dci_context *context = test_context(2 + _i % 3);
        for (int place = 0; place < N_PLACES; place++) {
                dci_kv *kv = kv_create(context, &own.config);
                int64_t sequence = -1;
                int status = 0;
                ck_ok(long_prompt(kv, &own, true, &sequence));
                fflush(NULL);
                const pid_t child = fork();
                ck_assert_int_ge(child, 0);
                if (child == 0)
                        begin_again_at(kv, &own, sequence, place);
                pthread_mutex_unlock(&gate);
                ck_assert_int_eq(waitpid(child, &status, 0), child);
                ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "place %d: status %x", place,
                              (unsigned)status);
                dci_kv_destroy(kv);
        }
        dci_context_destroy(context);
        kv_data_free(&own.data);
}
END_TEST

/* --- limits ----------------------------------------------------------------------------------------------------------------------------- */

static size_t address_space(void)
{
        char line[128];
        FILE *file = fopen("/proc/self/statm", "r");
        ck_assert_ptr_nonnull(file);
        ck_assert_ptr_nonnull(fgets(line, sizeof line, file));
        fclose(file);
        return strtoul(line, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE);
}

/* The status of all work in a child that may take so many bytes more than this process has. */
static int work_within(size_t n_bytes)
{
        int status = 0;
        const rlim_t most = (rlim_t)(address_space() + n_bytes);
        fflush(NULL);
        const pid_t child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0) {
                const struct rlimit limit = {most, most};
                dci_context_config config;
                dci_context *context = NULL;
                uint64_t hash = WORK_HASH;
                alarm(100);
                OR_EXIT(setrlimit(RLIMIT_AS, &limit) == 0, 100);
                OR_EXIT(dci_context_config_init(&config, sizeof config) == DCI_OK, 101);
                config.executor_kind = DCI_EXECUTOR_PTHREADS;
                config.n_threads = 2;
                dci_status result = dci_context_create(&config, &context);
                if (result == DCI_OK)
                        result = work_all(context, &work, scratch_path("file"), &hash);
                dci_context_destroy(context);
                _exit(result == DCI_OK && hash != wanted ? 102 : result);
        }
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_msg(WIFEXITED(status), "%zu bytes: status %x", n_bytes, (unsigned)status);
        return WEXITSTATUS(status);
}

/* A sanitizer's own memory would end it. */
START_TEST(too_little_address_space_is_out_of_memory_and_no_worse)
{
        size_t refused = 0;
        for (size_t n_bytes = 0; n_bytes < (size_t)48 << 20; n_bytes += n_bytes < 3 << 20 ? 192 << 10 : 3 << 20) {
                const int result = work_within(n_bytes);
                ck_assert_msg(result == DCI_OK || result == DCI_ERR_MEMORY, "%zu bytes: %d", n_bytes, result);
                refused += result == DCI_ERR_MEMORY;
        }
        ck_assert_uint_ge(refused, 3);
        ck_assert_int_eq(work_within((size_t)1 << 30), DCI_OK);
}
END_TEST

START_TEST(too_few_bytes_for_a_cache_are_refused_and_no_worse)
{
        test_memory memory;
        dci_context *context = test_context_with(&memory, 1);
        const size_t before = atomic_load(&memory.live_bytes);
        size_t refused = 0;
        dci_status status = DCI_ERR_FULL;
        for (size_t max_bytes = 1; status != DCI_OK; max_bytes += max_bytes / 16 + 1000) {
                uint64_t hash = WORK_HASH;
                status = work_kv(context, &work, max_bytes, scratch_path("file"), &hash);
                ck_assert_msg(status == DCI_OK || status == DCI_ERR_FULL, "%zu bytes: %s", max_bytes, dci_last_error());
                refused += status != DCI_OK;
                ck_assert_uint_eq(atomic_load(&memory.live_bytes), before);
        }
        ck_assert_uint_ge(refused, 20);
        dci_context_destroy(context);
}
END_TEST

/* Sequences until there is no room for another: all go on as they would, and when one is closed there is room again. */
START_TEST(a_cache_that_is_full_serves_what_it_has)
{
        dci_context *context = test_context(1);
        dci_kv_config config = work.config;
        int64_t sequences[KV_MOST_TURNS];
        uint64_t alone = WORK_HASH;
        config.foreground = 1;
        config.max_bytes = 600000;
        dci_kv *kv = kv_create(context, &config);
        dci_status status = DCI_OK;
        size_t n = 0;
        for (; status == DCI_OK; n += status == DCI_OK) {
                ck_assert_uint_lt(n, KV_MOST_TURNS);
                status = work_prompt(kv, &work, &sequences[n]);
                if (n == 0)
                        ck_ok(work_decode(kv, &work, sequences[0], WORK_PROMPT, &alone));
        }
        ck_refused(status, DCI_ERR_FULL, "600000");
        ck_assert_uint_ge(n, 2);
        ck_ok(dci_kv_close(kv, sequences[n])); /* opened, but not more */
        ck_ok(dci_kv_close(kv, sequences[0]));
        for (size_t i = 1; i < n; i++) {
                uint64_t hash = WORK_HASH;
                ck_ok(work_decode(kv, &work, sequences[i], WORK_PROMPT, &hash));
                ck_assert_uint_eq(hash, alone);
        }
        dci_kv_destroy(kv);
        dci_context_destroy(context);
}
END_TEST

/* --- threads ---------------------------------------------------------------------------------------------------------------------------- */

/* The linker gives the library's calls to __wrap_pthread_create (tests/CMakeLists.txt). */
static size_t threads_left = SIZE_MAX;

/* NOLINTBEGIN(bugprone-reserved-identifier) */
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*fn)(void *), void *arg)
{
        if (threads_left == 0)
                return EAGAIN;
        threads_left--;
        return __real_pthread_create(thread, attributes, fn, arg);
}
/* NOLINTEND(bugprone-reserved-identifier) */

START_TEST(a_process_without_more_threads_gets_a_status_or_works_alone)
{
        test_memory memory;
        for (size_t left = 0; left < 3; left++) {
                dci_context_config config;
                dci_context *context = NULL;
                ck_ok(dci_context_config_init(&config, sizeof config));
                config.allocator = test_allocator(&memory);
                config.executor_kind = DCI_EXECUTOR_PTHREADS;
                config.n_threads = 4;
                threads_left = left;
                ck_refused(dci_context_create(&config, &context), DCI_ERR_MEMORY, "could not be started");
                ck_assert_ptr_null(context);
                ck_assert_uint_eq(atomic_load(&memory.live_bytes), 0);
        }
        threads_left = SIZE_MAX;
        dci_context *context = test_context_with(&memory, 3);
        threads_left = 0; /* the worker of prompts */
        uint64_t hash = WORK_HASH;
        ck_ok(work_all(context, &work, scratch_path("file"), &hash));
        ck_assert_uint_eq(hash, wanted);
        threads_left = SIZE_MAX;
        dci_context_destroy(context);
        ck_assert_uint_eq(atomic_load(&memory.live_bytes), 0);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("process faults");
        TCase *tcase = test_case_with(suite, "process", 60, setup, teardown);
        tcase_add_test(tcase, signals_at_any_moment_change_nothing);
        /* The thread sanitizer ends a child of a process with threads that starts one itself. */
        if (!UNDER_TSAN)
                tcase_add_loop_test(tcase, a_child_goes_on_with_all_objects_of_its_parent,
                                    dci_openmp_built() ? DCI_EXECUTOR_OPENMP : DCI_EXECUTOR_PTHREADS,
                                    DCI_EXECUTOR_PTHREADS + 1);
        tcase_add_loop_test(tcase, a_child_finishes_the_prompts_that_its_parents_worker_was_at, 0, COUNT(presets));
        tcase_add_test(tcase, a_child_makes_the_order_that_its_parents_worker_was_at);
        tcase_add_loop_test(tcase, wherever_a_fork_falls_a_prompt_is_as_if_there_had_been_none, 0, COUNT(presets));
        if (!UNDER_SANITIZER)
                tcase_add_test(tcase, too_little_address_space_is_out_of_memory_and_no_worse);
        tcase_add_test(tcase, too_few_bytes_for_a_cache_are_refused_and_no_worse);
        tcase_add_test(tcase, a_cache_that_is_full_serves_what_it_has);
        tcase_add_test(tcase, a_process_without_more_threads_gets_a_status_or_works_alone);
        return test_main(suite);
}
