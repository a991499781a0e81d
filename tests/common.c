/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/common.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "simd/cpu.h"

#ifdef DCI_FUZZ
void test_failed(const char *file, int line, const char *expression, const char *format, ...)
{
        va_list values;
        fprintf(stderr, "%s:%d: %s: ", file, line, expression);
        va_start(values, format);
        if (format != NULL)
                vfprintf(stderr, format, values);
        va_end(values);
        fputc('\n', stderr);
        abort();
}
#endif

void test_refused(dci_status got, dci_status wanted, const char *part, const char *call, const char *file, int line)
{
        ck_assert_msg(got == wanted, "%s:%d: %s gave %s, wanted %s (%s)", file, line, call, dci_status_name(got),
                      dci_status_name(wanted), dci_last_error());
        ck_assert_msg(strstr(dci_last_error(), part) != NULL, "%s:%d: %s: '%s' does not say '%s'", file, line, call,
                      dci_last_error(), part);
}

static dci_context *make(const dci_allocator *allocator, int32_t n_threads, dci_isa isa)
{
        dci_context_config config;
        dci_context *context = NULL;
        ck_ok(dci_context_config_init(&config, sizeof config));
        if (allocator != NULL)
                config.allocator = *allocator;
        config.executor_kind = DCI_EXECUTOR_PTHREADS;
        config.n_threads = n_threads;
        config.isa = isa;
        ck_ok(dci_context_create(&config, &context));
        return context;
}

dci_context *test_context(int32_t n_threads)
{
        return make(NULL, n_threads, DCI_ISA_AUTO);
}

dci_context *test_context_isa(dci_isa isa)
{
        return make(NULL, 1, isa);
}

dci_context *test_context_with(test_memory *memory, int32_t n_threads)
{
        dci_allocator allocator = test_allocator(memory);
        return make(&allocator, n_threads, DCI_ISA_AUTO);
}

static void raise_to(atomic_size_t *most, size_t value)
{
        size_t before = atomic_load(most);
        while (value > before && !atomic_compare_exchange_weak(most, &before, value))
                continue;
}

static void *counted_alloc(void *ctx, size_t size, size_t alignment)
{
        test_memory *memory = ctx;
        size_t call = atomic_fetch_add(&memory->calls, 1) + 1;
        const size_t fail_at = atomic_load(&memory->fail_at);
        if (call == fail_at || (fail_at > 0 && call > fail_at && atomic_load(&memory->fails_on)))
                return NULL;
        void *pointer = aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
        if (pointer != NULL) {
                raise_to(&memory->most, atomic_fetch_add(&memory->live_bytes, size) + size);
                atomic_fetch_add(&memory->live_blocks, 1);
                raise_to(&memory->largest, size);
        }
        return pointer;
}

static void counted_free(void *ctx, void *pointer, size_t size)
{
        test_memory *memory = ctx;
        if (pointer == NULL)
                return;
        atomic_fetch_sub(&memory->live_bytes, size);
        atomic_fetch_sub(&memory->live_blocks, 1);
        free(pointer);
}

dci_allocator test_allocator(test_memory *memory)
{
        memset(memory, 0, sizeof *memory);
        dci_allocator allocator = {memory, counted_alloc, counted_free};
        return allocator;
}

static test_memory *short_memory;

void test_memory_recovers(void)
{
        if (short_memory != NULL)
                atomic_store(&short_memory->fails_on, false);
}

bool test_failed_once(dci_status status, dci_status allowed, size_t *failures, const char *call)
{
        ck_assert_msg(status == DCI_OK || status == allowed, "%s: %s: %s", call, dci_status_name(status),
                      dci_last_error());
        if (status == DCI_OK)
                return false;
        test_memory_recovers();
        ++*failures;
        ck_assert_msg(*failures <= 1, "%s: failed again", call);
        return true;
}

void *test_copy(const void *from, size_t n_bytes)
{
        void *copy = malloc(n_bytes);
        ck_assert_ptr_nonnull(copy);
        return memcpy(copy, from, n_bytes);
}

int32_t test_stop_at_once(void *ctx, size_t done, size_t total)
{
        size_t *calls = ctx;
        ck_assert_uint_le(done, total);
        ++*calls;
        return 1;
}

static size_t climb(int32_t n_threads, void *(*prepare)(dci_context *context, const void *arg),
                    size_t (*life)(void *prepared), const void *arg, bool shortage)
{
        size_t failures = 0;
        bool reached = true;
        /* In short, beyond the first forty every third: the calls of a life come again and again. */
        for (size_t nth = 1; reached; nth += test_short() && nth >= 40 ? 3 : 1) {
                test_memory memory;
                dci_context *context = test_context_with(&memory, n_threads);
                void *prepared = prepare(context, arg);
                short_memory = &memory;
                atomic_store(&memory.fails_on, shortage);
                atomic_store(&memory.fail_at, atomic_load(&memory.calls) + nth);
                failures += life(prepared);
                short_memory = NULL;
                reached = atomic_load(&memory.calls) >= atomic_load(&memory.fail_at);
                dci_context_destroy(context);
                ck_assert_uint_eq(atomic_load(&memory.live_blocks), 0);
                ck_assert_uint_eq(atomic_load(&memory.live_bytes), 0);
        }
        return failures;
}

size_t test_each_allocation_failing(int32_t n_threads, void *(*prepare)(dci_context *context, const void *arg),
                                    size_t (*life)(void *prepared), const void *arg)
{
        return climb(n_threads, prepare, life, arg, false);
}

size_t test_each_shortage(int32_t n_threads, void *(*prepare)(dci_context *context, const void *arg),
                          size_t (*life)(void *prepared), const void *arg)
{
        return climb(n_threads, prepare, life, arg, true);
}

float *test_normal(size_t n, size_t dim, uint64_t seed)
{
        dci_rng rng;
        dci_rng_seed(&rng, seed);
        float *rows = malloc((n * dim + 1) * sizeof *rows);
        ck_assert_ptr_nonnull(rows);
        for (size_t i = 0; i < n * dim; i++)
                rows[i] = (float)dci_rng_normal(&rng);
        return rows;
}

bool test_short(void)
{
        return getenv("DCI_TEST_SHORT") != NULL;
}

bool test_thin(void)
{
        return getenv("DCI_TEST_LONG") == NULL && getenv("DCI_GPU_DEVICE") == NULL;
}

size_t test_isas(dci_isa out[6])
{
        size_t n = 0;
        for (dci_isa isa = DCI_ISA_SCALAR; isa <= DCI_ISA_NEON; isa++)
                if (dci_isa_available(isa))
                        out[n++] = isa;
        return n;
}

size_t test_n_isas(void)
{
        dci_isa isas[6];
        return test_isas(isas);
}

dci_context *test_context_of_level(int i)
{
        dci_isa isas[6];
        test_isas(isas);
        return test_context_isa(isas[i]);
}

const struct dci_kernels *test_kernels_of_level(int i)
{
        dci_isa isas[6];
        test_isas(isas);
        return dci_kernels_for(isas[i]);
}

void *test_room(size_t n, size_t size)
{
        void *room = malloc(n * size + 1);
        ck_assert_ptr_nonnull(room);
        return memset(room, 0xA5, n * size);
}

void test_free_each(size_t n, void *const *blocks)
{
        for (size_t i = 0; i < n; i++)
                free(blocks[i]);
}

size_t test_entries(const char *path)
{
        size_t n = 0;
        DIR *directory = opendir(path);
        if (directory == NULL)
                return 0;
        while (readdir(directory) != NULL)
                n++;
        closedir(directory);
        return n;
}

double test_dot(const float *a, const float *b, size_t dim)
{
        double sum = 0.0;
        for (size_t j = 0; j < dim; j++)
                sum += (double)a[j] * (double)b[j];
        return sum;
}

#define COMPARISON(name, type, first, second)                                                                          \
        int name(const void *a, const void *b)                                                                         \
        {                                                                                                              \
                const type x = *(const type *)(first), y = *(const type *)(second);                                    \
                return (x > y) - (x < y);                                                                              \
        }
COMPARISON(test_int32s_ascend, int32_t, a, b)
COMPARISON(test_int64s_ascend, int64_t, a, b)
COMPARISON(test_floats_ascend, float, a, b)
COMPARISON(test_doubles_descend, double, b, a)

void test_serial(void *ctx, size_t n, void (*fn)(void *arg, size_t i), void *arg)
{
        (void)ctx;
        for (size_t i = 0; i < n; i++)
                fn(arg, i);
}

void test_join(pthread_t thread)
{
        void *complaint = NULL;
        ck_assert_int_eq(pthread_join(thread, &complaint), 0);
        ck_assert_msg(complaint == NULL, "%s", (const char *)complaint);
}

const char *test_trace_dir(void)
{
        const char *dir = getenv("DCI_TEST_TRACE");
        return dir != NULL ? dir : DCI_SOURCE_DIR "/bench/data/smollm2-debref-layer06_head0";
}

TCase *test_case(Suite *suite, const char *name, double seconds)
{
        TCase *made = tcase_create(name);
        tcase_set_timeout(made, seconds);
        suite_add_tcase(suite, made);
        return made;
}

TCase *test_case_with(Suite *suite, const char *name, double seconds, SFun setup, SFun teardown)
{
        TCase *made = test_case(suite, name, seconds);
        tcase_add_checked_fixture(made, setup, teardown);
        return made;
}

int test_main(Suite *suite)
{
        SRunner *runner = srunner_create(suite);
        srunner_run_all(runner, CK_ENV);
        int failed = srunner_ntests_failed(runner);
        srunner_free(runner);
        return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
