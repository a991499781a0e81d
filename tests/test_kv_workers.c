/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The workers of a KV cache: how many there are, what they share, and that prompts are the same however many work on them. Run under tsan, too. */
#include "tests/common.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "kv/clustering.h"
#include "kv/memory.h"
#include "kv/prompt.h"
#include "kv/summaries.h"
#include "tests/kv_fixture.h"

enum { LAYERS = 4, HEADS = 3, PROMPT = 620, N = PROMPT + 40, MOST_AREAS = 64 };

static const int32_t presets[] = {DCI_KV_ICECACHE, DCI_KV_CLUSTERKV,     DCI_KV_RETROINFER, DCI_KV_PRKV, DCI_KV_LOUISKV,
                                  DCI_KV_SNAPKV,   DCI_KV_SKETCH_LOWBIT, KV_LEARNED,        DCI_KV_QUEST};

static dci_kv_config config_of(int32_t preset)
{
        dci_kv_config config = kv_small(preset);
        config.n_layers = LAYERS;
        config.n_kv_heads = HEADS;
        config.n_query_heads = 2 * HEADS;
        return config;
}

/* --- a former that can be watched and held ------------------------------------------------------------------------------ */

/* Units in progress, the most there were, and how many there have been; units wait while `closed`. */
static struct {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        bool closed, busy[MOST_AREAS];
        size_t n_now, most, n_all;
} watch = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void watched_build(dci_kv *kv, dci_kv_layer *layer, size_t head, size_t area)
{
        pthread_mutex_lock(&watch.lock);
        test_hold(area < kv->n_areas && area < MOST_AREAS && !watch.busy[area]);
        watch.busy[area] = true;
        watch.n_all++;
        watch.most = ++watch.n_now > watch.most ? watch.n_now : watch.most;
        pthread_cond_broadcast(&watch.changed);
        while (watch.closed)
                pthread_cond_wait(&watch.changed, &watch.lock);
        pthread_mutex_unlock(&watch.lock);
        dci_kv_host_former.build(kv, layer, head, area);
        pthread_mutex_lock(&watch.lock);
        watch.busy[area] = false;
        watch.n_now--;
        pthread_mutex_unlock(&watch.lock);
}

static dci_kv *watched(dci_context *context, const dci_kv_config *config, bool closed)
{
        dci_kv *kv = kv_create(context, config);
        watch.closed = closed;
        watch.n_now = watch.most = watch.n_all = 0;
        memset(watch.busy, 0, sizeof watch.busy);
        kv->former.build = watched_build;
        return kv;
}

static void open_gate(void)
{
        pthread_mutex_lock(&watch.lock);
        watch.closed = false;
        pthread_cond_broadcast(&watch.changed);
        pthread_mutex_unlock(&watch.lock);
}

/* Waits until so many units are in progress at a time: a cache that never has so many ends with the suite's time. */
static void until_working(size_t n)
{
        pthread_mutex_lock(&watch.lock);
        while (watch.n_now < n)
                pthread_cond_wait(&watch.changed, &watch.lock);
        pthread_mutex_unlock(&watch.lock);
}

/* The prompt's rows and its ends in all layers; the step stays open. */
static void begin_prompt(dci_kv *kv, int64_t sequence, const kv_data *data, size_t n)
{
        const kv_turn turn = {sequence, data, 0, n};
        kv_reserve(kv, 1, &turn);
        for (size_t layer = 0; layer < data->n_layers; layer++) {
                kv_append(kv, layer, 1, &turn);
                kv_prompt(kv, layer, sequence, data, n);
        }
}

static int64_t prompted(dci_kv *kv, const kv_data *data, size_t n)
{
        const kv_turn turn = {kv_open(kv), data, 0, n};
        begin_prompt(kv, turn.sequence, data, n);
        kv_step_end(kv, 1, &turn);
        return turn.sequence;
}

/* Fails unless the cache answers as one that worked on the same prompt alone. */
static void same_as_alone(dci_kv *kv, int64_t sequence, const dci_kv_config *config, const kv_data *data,
                          const char *what)
{
        dci_context *own = test_context(1);
        dci_kv_config foreground = *config;
        foreground.foreground = 1;
        foreground.max_bytes = 0;
        dci_kv *alone = kv_create(own, &foreground);
        kv_alike(alone, kv_begin(alone, data, PROMPT), kv, sequence, data, PROMPT, 10, what);
        dci_kv_destroy(alone);
        dci_context_destroy(own);
}

/* --- how many there are ------------------------------------------------------------------------------------------------- */

static void run_in_turn(void *ctx, size_t n, void (*fn)(void *arg, size_t i), void *arg)
{
        (void)ctx;
        for (size_t i = 0; i < n; i++)
                fn(arg, i);
}

static dci_context *context_of_the_callers_threads(int32_t n_threads)
{
        dci_context_config config;
        dci_context *context = NULL;
        ck_ok(dci_context_config_init(&config, sizeof config));
        config.executor_kind = DCI_EXECUTOR_CALLER;
        config.executor.parallel_for = run_in_turn;
        config.n_threads = n_threads;
        ck_ok(dci_context_create(&config, &context));
        return context;
}

START_TEST(there_is_one_worker_less_than_threads)
{
        static const struct {
                int32_t n_threads;
                bool callers, foreground;
                size_t wanted;
        } cases[] = {{1, false, false, 1},
                     {2, false, false, 1},
                     {3, false, false, 2},
                     {6, false, false, 5},
                     {6, true, false, 1},
                     {6, false, true, 0},
                     {40, false, false, LAYERS * HEADS}};
        for (size_t i = 0; i < COUNT(cases); i++) {
                dci_kv_config config = config_of(DCI_KV_ICECACHE);
                config.foreground = cases[i].foreground;
                kv_data data = kv_random(&config, N, 1);
                dci_context *context = cases[i].callers ? context_of_the_callers_threads(cases[i].n_threads)
                                                        : test_context(cases[i].n_threads);
                dci_kv *kv = watched(context, &config, !cases[i].foreground);
                ck_assert_uint_eq(kv->n_workers, 0);
                const int64_t sequence = prompted(kv, &data, PROMPT);
                ck_assert_uint_eq(kv->n_workers, cases[i].wanted);
                until_working(cases[i].wanted); /* all of them at once */
                open_gate();
                ck_ok(dci_kv_wait(kv, -1));
                ck_assert_uint_eq(watch.n_all, LAYERS * HEADS);
                ck_assert_uint_le(watch.most, cases[i].n_threads > 2 ? cases[i].n_threads : 2);
                ck_assert_uint_eq(kv->n_free_areas, kv->n_areas);
                same_as_alone(kv, sequence, &config, &data, "a prompt of some workers");
                kv_end(kv, &data);
                dci_context_destroy(context);
        }
}
END_TEST

/* Lowered to 2 there is one at a time, whatever there are; raised again all go on. */
START_TEST(the_thread_limit_is_that_of_workers_too)
{
        const dci_kv_config config = config_of(DCI_KV_QUEST);
        kv_data data = kv_random(&config, N, 2);
        dci_context *context = test_context(5);
        dci_kv *kv = watched(context, &config, true);
        prompted(kv, &data, PROMPT);
        until_working(4);
        open_gate();
        ck_ok(dci_kv_wait(kv, -1));
        ck_ok(dci_context_set_threads(context, 2));
        watch.closed = true;
        watch.most = 0;
        const int64_t second = prompted(kv, &data, PROMPT);
        until_working(1);
        open_gate();
        ck_ok(dci_kv_wait(kv, -1));
        ck_assert_uint_le(watch.most, 2); /* a worker and who waits */
        ck_assert_uint_eq(kv->n_workers, 4);
        ck_ok(dci_context_set_threads(context, 5));
        watch.closed = true;
        prompted(kv, &data, PROMPT);
        until_working(4);
        open_gate();
        same_as_alone(kv, second, &config, &data, "a prompt of one worker of four");
        kv_end(kv, &data);
        dci_context_destroy(context);
}
END_TEST

/* --- the same bits ------------------------------------------------------------------------------------------------------ */

/* Loops over presets. */
START_TEST(any_number_of_workers_gives_the_same_bits)
{
        static const int32_t n_threads[] = {1, 2, 3, 8};
        const dci_kv_config config = config_of(presets[_i]);
        kv_data data = kv_random(&config, N, 3);
        for (size_t i = 0; i < COUNT(n_threads); i++) {
                dci_context *context = test_context(n_threads[i]);
                dci_kv *kv = kv_create(context, &config);
                prompted(kv, &data, 300); /* others are worked on before and after it */
                const int64_t sequence = prompted(kv, &data, PROMPT);
                prompted(kv, &data, 450);
                same_as_alone(kv, sequence, &config, &data, "threads");
                ck_ok(dci_kv_check(kv, DCI_CHECK_FULL, NULL));
                dci_kv_destroy(kv);
                dci_context_destroy(context);
        }
        kv_data_free(&data);
}
END_TEST

/* --- memory ------------------------------------------------------------------------------------------------------------- */

/* Loops over presets. The less memory there is the fewer work at a time, but a prompt that has room for its own is served. */
START_TEST(short_memory_means_fewer_workers)
{
        dci_kv_config config = config_of(presets[_i]);
        kv_data data = kv_random(&config, N, 4);
        dci_context *context = test_context(16);
        size_t fewest = SIZE_MAX, most = 0;
        dci_kv *kv = kv_create(context, &config);
        kv_begin(kv, &data, PROMPT);
        size_t max_bytes = 6 * kv_info(kv).bytes;
        const bool large = kv->clustered || config.preset == DCI_KV_ICECACHE;
        dci_kv_destroy(kv);
        for (bool served = true; served; max_bytes -= max_bytes / 24) {
                config.max_bytes = max_bytes;
                kv = kv_create(context, &config);
                const kv_turn turn = {kv_open(kv), &data, 0, PROMPT};
                served = dci_kv_reserve(kv, 1, &turn.sequence, &turn.n) == DCI_OK;
                for (size_t layer = 0; layer < LAYERS && served; layer++) {
                        kv_append(kv, layer, 1, &turn);
                        const dci_status status =
                                dci_kv_end_prompt(kv, layer, turn.sequence, 20,
                                                  (const char *)data.stored_queries +
                                                          (layer * data.n + PROMPT - 20) * config.n_query_heads *
                                                                  config.dim_k * dci_dtype_size(data.query_dtype),
                                                  config.dim_k);
                        ck_assert_msg(status == DCI_OK || status == DCI_ERR_FULL, "%s", dci_last_error());
                        served = status == DCI_OK;
                }
                if (served) {
                        kv_step_end(kv, 1, &turn);
                        ck_ok(dci_kv_wait(kv, -1));
                        fewest = kv->n_areas < fewest ? kv->n_areas : fewest;
                        most = kv->n_areas > most ? kv->n_areas : most;
                        ck_ok(dci_kv_check(kv, DCI_CHECK_FULL, NULL));
                }
                dci_kv_destroy(kv);
        }
        ck_assert_uint_eq(most, 16);
        ck_assert_uint_le(fewest, large ? 1 : 4);
        kv_data_free(&data);
        dci_context_destroy(context);
}
END_TEST

/* Scratch that grows with the prompt is for fewer threads at 60,000 tokens than there are. */
START_TEST(scratch_of_long_prompts_is_bounded)
{
        static const size_t lengths[] = {1000, 20000, 60000, 400000};
        size_t before = 24;
        for (size_t i = 0; i < COUNT(lengths); i++) {
                const dci_kv_config config = kv_config(DCI_KV_CLUSTERKV, 1, 1, 2, 64);
                dci_context *context = test_context(24);
                dci_kv *kv = kv_create(context, &config);
                ck_ok(dci_kv_clustering_ready(kv, lengths[i]));
                const size_t n_bytes = kv->clustering.n_areas * kv->clustering.area_bytes;
                ck_assert_uint_eq(kv->n_areas, kv->clustering.n_areas);
                ck_assert(kv->n_areas == 1 || n_bytes <= (size_t)1 << 28);
                ck_assert_uint_le(kv->n_areas, before);
                ck_assert(i > 0 || kv->n_areas == 24);
                before = kv->n_areas;
                dci_kv_destroy(kv);
                dci_context_destroy(context);
        }
        ck_assert_uint_le(before, 2);
}
END_TEST

/* --- calls meanwhile ---------------------------------------------------------------------------------------------------- */

/* The table of blocks and the list of pieces are replaced by larger ones while all workers are at heads. */
START_TEST(tables_may_grow_while_workers_read_them)
{
        dci_kv_config config = config_of(DCI_KV_ICECACHE);
        config.piece_bytes = 4096;
        kv_data data = kv_random(&config, N, 5);
        dci_context *context = test_context(4);
        dci_kv *kv = watched(context, &config, true);
        const int64_t sequence = prompted(kv, &data, PROMPT);
        until_working(3);
        const int32_t *table = kv->sequences[0]->table;
        unsigned char **pieces = kv->pool.pieces;
        const kv_turn more = {sequence, &data, PROMPT, 9}, other = {kv_open(kv), &data, 0, PROMPT};
        kv_reserve(kv, 1, &more);
        ck_ok(dci_kv_step_abort(kv, 1, &sequence));
        kv_reserve(kv, 1, &other);
        ck_assert_ptr_ne(table, kv->sequences[0]->table);
        ck_assert_ptr_ne(pieces, kv->pool.pieces);
        ck_assert_uint_ge(kv->n_retired, 2);
        ck_ok(dci_kv_step_abort(kv, 1, &other.sequence));
        ck_assert_uint_ge(kv->n_retired, 2); /* they may still be read */
        open_gate();
        ck_ok(dci_kv_wait(kv, -1));
        ck_ok(dci_kv_check(kv, DCI_CHECK_FULL, NULL));
        ck_assert_uint_eq(kv->n_retired, 0);
        same_as_alone(kv, sequence, &config, &data, "tables that grew");
        kv_end(kv, &data);
        dci_context_destroy(context);
}
END_TEST

typedef struct ending {
        dci_kv *kv;
        int64_t sequence;
        atomic_bool begun;
} ending;

static void *abort_it(void *arg)
{
        ending *e = arg;
        atomic_store(&e->begun, true);
        ck_ok(dci_kv_step_abort(e->kv, 1, &e->sequence));
        return NULL;
}

static void *close_it(void *arg)
{
        ending *e = arg;
        atomic_store(&e->begun, true);
        ck_ok(dci_kv_close(e->kv, e->sequence));
        return NULL;
}

static void *destroy_it(void *arg)
{
        ending *e = arg;
        atomic_store(&e->begun, true);
        dci_kv_destroy(e->kv);
        return NULL;
}

static void end_while_working(ending *e, void *(*how)(void *arg))
{
        pthread_t thread;
        atomic_init(&e->begun, false);
        ck_assert_int_eq(pthread_create(&thread, NULL, how, e), 0);
        while (!atomic_load(&e->begun))
                sched_yield();
        for (size_t i = 0; i < 1000; i++)
                sched_yield();
        open_gate();
        ck_assert_int_eq(pthread_join(thread, NULL), 0);
}

/* Loops over presets. All heads of a layer are in progress, and other layers have not begun. */
START_TEST(a_prompt_may_be_taken_back_while_several_work_on_it)
{
        test_memory memory;
        const dci_kv_config config = config_of(presets[_i]);
        kv_data data = kv_random(&config, N, 6);
        dci_context *context = test_context_with(&memory, HEADS + 1);
        const size_t before = atomic_load(&memory.live_bytes);
        dci_kv *kv = watched(context, &config, true);
        ending e = {.kv = kv, .sequence = kv_open(kv)};
        begin_prompt(kv, e.sequence, &data, PROMPT);
        until_working(HEADS);
        end_while_working(&e, abort_it);
        ck_assert_uint_eq(kv->n_free_areas, kv->n_areas);
        ck_assert_ptr_null(kv->jobs);
        const kv_turn again = {e.sequence, &data, 0, PROMPT};
        begin_prompt(kv, e.sequence, &data, PROMPT);
        kv_step_end(kv, 1, &again);
        same_as_alone(kv, e.sequence, &config, &data, "a prompt that was taken back once");

        watch.closed = true;
        e.sequence = prompted(kv, &data, PROMPT);
        until_working(HEADS);
        end_while_working(&e, close_it);
        ck_ok(dci_kv_check(kv, DCI_CHECK_FULL, NULL));

        watch.closed = true;
        prompted(kv, &data, PROMPT);
        until_working(HEADS);
        end_while_working(&e, destroy_it);
        ck_assert_uint_eq(atomic_load(&memory.live_bytes), before);
        kv_data_free(&data);
        dci_context_destroy(context);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("kv workers");
        TCase *tcase = test_case(suite, "workers", 120);
        tcase_add_test(tcase, there_is_one_worker_less_than_threads);
        tcase_add_test(tcase, the_thread_limit_is_that_of_workers_too);
        tcase_add_loop_test(tcase, any_number_of_workers_gives_the_same_bits, 0, COUNT(presets));
        tcase_add_loop_test(tcase, short_memory_means_fewer_workers, 0, COUNT(presets));
        tcase_add_test(tcase, scratch_of_long_prompts_is_bounded);
        tcase_add_test(tcase, tables_may_grow_while_workers_read_them);
        tcase_add_loop_test(tcase, a_prompt_may_be_taken_back_while_several_work_on_it, 0, COUNT(presets));
        return test_main(suite);
}
