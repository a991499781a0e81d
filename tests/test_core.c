/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Status and last error, struct sizes, memory, random numbers, the context. */
#include "tests/common.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static dci_context_config pool_config(int32_t n_threads)
{
        dci_context_config config;
        ck_ok(dci_context_config_init(&config, sizeof config));
        config.executor_kind = DCI_EXECUTOR_PTHREADS;
        config.n_threads = n_threads;
        return config;
}

static void check_nothing_live(test_memory *memory)
{
        ck_assert_uint_eq(atomic_load(&memory->live_blocks), 0);
        ck_assert_uint_eq(atomic_load(&memory->live_bytes), 0);
}

START_TEST(every_status_has_its_own_name)
{
        static const char *const names[] = {
                "DCI_OK",         "DCI_ERR_INVALID",   "DCI_ERR_NUMBER", "DCI_ERR_MEMORY",      "DCI_ERR_LIMIT",
                "DCI_ERR_EXISTS", "DCI_ERR_NOT_FOUND", "DCI_ERR_FULL",   "DCI_ERR_UNSUPPORTED", "DCI_ERR_IO",
                "DCI_ERR_FORMAT", "DCI_ERR_CANCELLED", "DCI_ERR_BUSY",   "DCI_ERR_DEVICE"};
        static const dci_status unknown[] = {-1, (dci_status)COUNT(names), INT32_MAX, INT32_MIN};
        ck_assert_int_eq(DCI_ERR_DEVICE, COUNT(names) - 1);
        for (size_t i = 0; i < COUNT(names); i++)
                ck_assert_str_eq(dci_status_name((dci_status)i), names[i]);
        for (size_t i = 0; i < COUNT(unknown); i++)
                ck_assert_str_eq(dci_status_name(unknown[i]), "unknown status");
}
END_TEST

START_TEST(names_and_sizes_of_formats_and_levels)
{
        static const char *const dtypes[] = {"unknown", "f32", "f16", "bf16", "i8", "u8", "unknown"};
        static const size_t sizes[] = {0, 4, 2, 2, 1, 1, 0};
        static const char *const isas[] = {"unknown", "auto", "scalar", "avx2", "avx512", "amx", "neon", "unknown"};
        for (size_t i = 0; i < COUNT(dtypes); i++) {
                ck_assert_uint_eq(dci_dtype_size((dci_dtype)i), sizes[i]);
                ck_assert_str_eq(dci_dtype_name((dci_dtype)i), dtypes[i]);
        }
        for (size_t i = 0; i < COUNT(isas); i++)
                ck_assert_str_eq(dci_isa_name((dci_isa)i - 1), isas[i]);
}
END_TEST

START_TEST(version_is_that_of_the_header)
{
        char text[64];
        snprintf(text, sizeof text, "%d.%d.%d", DCI_VERSION_MAJOR, DCI_VERSION_MINOR, DCI_VERSION_PATCH);
        ck_assert_str_eq(dci_version(), text);
}
END_TEST

static void *fail_elsewhere(void *arg)
{
        snprintf(arg, 64, "[%s]", dci_last_error());
        dci_fail(DCI_ERR_IO, "of the other thread");
        return NULL;
}

START_TEST(last_error_belongs_to_its_thread)
{
        char seen_there[64];
        pthread_t thread;
        ck_assert_int_eq(dci_fail(DCI_ERR_FULL, "of %s thread", "this"), DCI_ERR_FULL);
        ck_assert_int_eq(pthread_create(&thread, NULL, fail_elsewhere, seen_there), 0);
        ck_assert_int_eq(pthread_join(thread, NULL), 0);
        ck_assert_str_eq(seen_there, "[]");
        ck_assert_str_eq(dci_last_error(), "of this thread");
}
END_TEST

START_TEST(last_error_lives_until_the_next_failure)
{
        dci_context *context = test_context(1);
        ck_refused(dci_context_set_threads(context, 0), DCI_ERR_INVALID, "n_threads is 0");
        ck_ok(dci_context_set_threads(context, 1));
        dci_context_destroy(context);
        ck_assert_ptr_nonnull(strstr(dci_last_error(), "n_threads is 0"));
        ck_refused(dci_context_set_threads(NULL, 1), DCI_ERR_INVALID, "context is NULL");
        ck_assert_ptr_null(strstr(dci_last_error(), "n_threads"));
}
END_TEST

START_TEST(last_error_is_cut_to_its_room)
{
        dci_fail(DCI_ERR_INVALID, "begin %05000d", 7);
        ck_assert(strlen(dci_last_error()) >= 200 && strlen(dci_last_error()) < 5000);
        ck_assert_int_eq(strncmp(dci_last_error(), "begin 000", 9), 0);
}
END_TEST

/* The config as a newer header might have it. */
typedef struct newer_config {
        dci_context_config known;
        unsigned char unknown[40];
} newer_config;

START_TEST(init_zeroes_what_the_caller_knows)
{
        newer_config config;
        memset(&config, 0xa5, sizeof config);
        ck_ok(dci_context_config_init(&config.known, sizeof config.known));
        ck_assert_uint_eq(config.known.struct_size, sizeof config.known);
        ck_assert(config.known.n_threads == 0 && config.known.isa == DCI_ISA_AUTO && config.known.log.fn == NULL);
        for (size_t i = 0; i < sizeof config.unknown; i++)
                ck_assert_uint_eq(config.unknown[i], 0xa5);
        ck_ok(dci_context_config_init(&config.known, sizeof config));
        ck_assert_uint_eq(config.known.struct_size, sizeof config);
        for (size_t i = 0; i < sizeof config.unknown; i++)
                ck_assert_uint_eq(config.unknown[i], 0);
}
END_TEST

START_TEST(sizes_that_no_header_has_are_refused)
{
        static const size_t sizes[] = {0, 1, sizeof(dci_context_config) - 1, 4097, SIZE_MAX / 3, SIZE_MAX};
        dci_context_config config, before;
        dci_context *context = NULL;
        memset(&config, 0xa5, sizeof config);
        before = config;
        ck_refused(dci_context_config_init(NULL, sizeof config), DCI_ERR_INVALID, "dci_context_config is NULL");
        for (size_t i = 0; i < COUNT(sizes); i++) {
                ck_refused(dci_context_config_init(&config, sizes[i]), DCI_ERR_INVALID, "expected");
                ck_assert_mem_eq(&config, &before, sizeof config);
        }
        ck_refused(dci_context_create(&config, &context), DCI_ERR_INVALID, "struct_size");
        ck_ok(dci_context_config_init(&config, sizeof config));
        for (size_t i = 0; i < COUNT(sizes); i++) {
                config.struct_size = sizes[i];
                ck_refused(dci_context_create(&config, &context), DCI_ERR_INVALID, "struct_size");
        }
        ck_assert_ptr_null(context);
}
END_TEST

START_TEST(newer_configs_leave_unknown_fields_zero)
{
        newer_config config;
        dci_context *context = NULL;
        ck_ok(dci_context_config_init(&config.known, sizeof config));
        config.known.executor_kind = DCI_EXECUTOR_PTHREADS;
        ck_ok(dci_context_create(&config.known, &context));
        dci_context_destroy(context);
        context = NULL;
        for (size_t i = 0; i < sizeof config.unknown; i += sizeof config.unknown - 1) {
                config.unknown[i] = 1;
                ck_refused(dci_context_create(&config.known, &context), DCI_ERR_UNSUPPORTED, "byte");
                ck_assert_ptr_null(context);
                config.unknown[i] = 0;
        }
}
END_TEST

START_TEST(products_and_sums_are_checked)
{
        const size_t max = SIZE_MAX, half = SIZE_MAX / 2, root = UINT32_MAX;
        const size_t cases[][2] = {{0, max},      {1, max},         {2, half},
                                   {2, half + 1}, {half, half + 1}, {half + 1, half + 1},
                                   {max, max},    {root, root + 2}, {root + 1, root + 1},
                                   {3, max / 3},  {3, max / 3 + 1}};
        for (size_t i = 0; i < 2 * COUNT(cases); i++) {
                size_t a = cases[i / 2][i % 2], b = cases[i / 2][1 - i % 2], product = 77, sum = 77;
                /* What wrapped around does not divide back, and is smaller than what it was made of. */
                bool has_product = a == 0 || a * b / a == b, has_sum = a + b >= a;
                ck_assert_msg(dci_mul(a, b, &product) == has_product, "%zu * %zu", a, b);
                ck_assert_msg(dci_add(a, b, &sum) == has_sum, "%zu + %zu", a, b);
                ck_assert_uint_eq(product, has_product ? a * b : 77);
                ck_assert_uint_eq(sum, has_sum ? a + b : 77);
        }
}
END_TEST

START_TEST(impossible_sizes_reach_no_allocator)
{
        static const size_t sizes[][2] = {
                {SIZE_MAX, 2}, {2, SIZE_MAX}, {UINT32_MAX, SIZE_MAX / 9}, {SIZE_MAX / 2 + 1, 1}};
        test_memory memory;
        dci_context *context = test_context_with(&memory, 1);
        size_t calls = atomic_load(&memory.calls);
        for (size_t i = 0; i < COUNT(sizes); i++) {
                ck_assert_ptr_null(dci_alloc(context, sizes[i][0], sizes[i][1]));
                ck_assert_ptr_nonnull(strstr(dci_last_error(), "exceed the address space"));
                ck_assert_ptr_null(dci_calloc(context, sizes[i][0], sizes[i][1]));
        }
        ck_assert_uint_eq(atomic_load(&memory.calls), calls);
        dci_context_destroy(context);
}
END_TEST

START_TEST(blocks_are_aligned_and_freed_by_size)
{
        static const size_t counts[][2] = {{0, 8}, {8, 0}, {1, 1}, {3, 7}, {1000, 4}};
        test_memory memory;
        for (int own = 0; own < 2; own++) {
                dci_context *context = own ? test_context_with(&memory, 1) : test_context(1);
                for (size_t i = 0; i < COUNT(counts); i++) {
                        size_t n = counts[i][0], size = counts[i][1];
                        unsigned char *a = dci_alloc(context, n, size), *b = dci_calloc(context, n, size);
                        ck_assert(a != NULL && b != NULL && a != b);
                        ck_assert_uint_eq((uintptr_t)a % DCI_CACHE_LINE + (uintptr_t)b % DCI_CACHE_LINE, 0);
                        for (size_t j = 0; j < n * size; j++)
                                ck_assert_uint_eq(b[j], 0);
                        dci_free(context, a, n, size);
                        dci_free(context, b, n, size);
                        dci_free(context, NULL, n, size);
                }
                dci_context_destroy(context);
        }
        check_nothing_live(&memory);
}
END_TEST

START_TEST(create_out_of_memory_leaves_nothing)
{
        test_memory memory;
        dci_context_config config = pool_config(3);
        config.allocator = test_allocator(&memory);
        size_t failures = 0;
        dci_context *context = NULL;
        for (;; failures++) {
                atomic_store(&memory.calls, 0);
                atomic_store(&memory.fail_at, failures + 1);
                if (dci_context_create(&config, &context) == DCI_OK)
                        break;
                ck_assert_ptr_nonnull(strstr(dci_last_error(), "no memory"));
                ck_assert_ptr_null(context);
                check_nothing_live(&memory);
        }
        dci_context_destroy(context);
        check_nothing_live(&memory);
        /* The context, the pool, its threads. */
        ck_assert_uint_ge(failures, 3);
}
END_TEST

START_TEST(seeds_and_draws_follow_published_vectors)
{
        /* splitmix64 from seed 1234567; xoshiro256++ from the state 1, 2, 3, 4. */
        static const uint64_t seeds[] = {0x599ed017fb08fc85, 0x2c73f08458540fa5, 0x883ebce5a3f27c77,
                                         0x3fbef740e9177b3f};
        static const uint64_t draws[] = {0x0000000002800001, 0x0000000003800067, 0x000cc00003800067, 0x000cc201994400b2,
                                         0x8012a2019ac433cd, 0x8a69978acdee33ba, 0xc271134733154abd, 0xac2ba09179169e97,
                                         0xdbf3190a8f073fd8, 0x9105f14ab2229220};
        dci_rng rng;
        dci_rng_seed(&rng, 1234567);
        for (int i = 0; i < 4; i++)
                ck_assert_uint_eq(rng.state[i], seeds[i]);
        rng = (dci_rng){{1, 2, 3, 4}};
        for (size_t i = 0; i < COUNT(draws); i++)
                ck_assert_uint_eq(dci_rng_next(&rng), draws[i]);
}
END_TEST

START_TEST(split_streams_depend_on_parent_and_number)
{
        dci_rng parent, other;
        dci_rng_seed(&parent, 5);
        dci_rng_seed(&other, 6);
        dci_rng before = parent;
        dci_rng first = dci_rng_split(&parent, 1), third = dci_rng_split(&parent, 3);
        for (int i = 0; i < 100; i++)
                dci_rng_next(&first);
        dci_rng third_again = dci_rng_split(&parent, 3), first_again = dci_rng_split(&parent, 1);
        ck_assert_mem_eq(&parent, &before, sizeof parent);
        ck_assert_mem_eq(&third, &third_again, sizeof third);
        ck_assert_mem_ne(&first, &first_again, sizeof first);
        dci_rng of_other = dci_rng_split(&other, 3);
        ck_assert_mem_ne(&third, &of_other, sizeof third);
}
END_TEST

START_TEST(neighbouring_streams_share_nothing)
{
        /* 64 bits of 10000 pairs: half of them differ, within 6 standard deviations. */
        dci_rng parent;
        dci_rng_seed(&parent, 1);
        uint64_t last = dci_rng_next(&(dci_rng){{1, 0, 0, 0}});
        size_t differing = 0;
        for (uint64_t i = 0; i < 10000; i++) {
                dci_rng child = dci_rng_split(&parent, i);
                uint64_t x = dci_rng_next(&child), difference = x ^ last;
                for (; difference != 0; difference &= difference - 1)
                        differing++;
                last = x;
        }
        ck_assert_double_eq_tol((double)differing, 320000.0, 6 * sqrt(160000.0));
}
END_TEST

START_TEST(below_is_unbiased_at_awkward_bounds)
{
        /* With 3 * 2^62, taking the remainder alone would give the lowest third half of the draws. */
        static const uint64_t bounds[] = {3, 10, UINT64_C(3) << 62, (UINT64_C(1) << 63) + 1, UINT64_MAX};
        enum { N = 60000 };
        for (size_t b = 0; b < COUNT(bounds); b++) {
                dci_rng rng;
                dci_rng_seed(&rng, b);
                size_t low = 0;
                for (int i = 0; i < N; i++) {
                        uint64_t x = dci_rng_below(&rng, bounds[b]);
                        ck_assert_uint_lt(x, bounds[b]);
                        low += x < bounds[b] / 3;
                }
                double share = (double)(bounds[b] / 3) / (double)bounds[b];
                ck_assert_double_eq_tol((double)low / N, share, 5 * sqrt(share * (1 - share) / N));
        }
}
END_TEST

START_TEST(below_rejects_the_short_interval_alone)
{
        /* A state whose next draw is the largest number, the one that bound 3 must reject. */
        const dci_rng highest = {{0, 5, 7, UINT64_MAX}};
        dci_rng rng = highest, twin = highest;
        ck_assert_uint_eq(dci_rng_next(&twin), UINT64_MAX);
        ck_assert_uint_eq(dci_rng_below(&rng, 3), dci_rng_next(&twin) % 3);
        /* Powers of two divide 2^64: nothing is rejected. */
        rng = twin = highest;
        for (int i = 0; i < 100; i++, dci_rng_next(&twin))
                ck_assert_uint_eq(dci_rng_below(&rng, 1), 0);
        rng = twin = highest;
        for (int i = 0; i < 100; i++)
                ck_assert_uint_eq(dci_rng_below(&rng, UINT64_C(1) << 63), dci_rng_next(&twin) << 1 >> 1);
}
END_TEST

/* Means of the powers 0 to 4 of a draw, and the share of draws in (-1, 1). */
static double moments(double (*draw)(dci_rng *rng), double out[5])
{
        const int n = 200000;
        int inner = 0;
        dci_rng rng;
        dci_rng_seed(&rng, 12);
        memset(out, 0, 5 * sizeof *out);
        for (int i = 0; i < n; i++) {
                double x = draw(&rng), power = 1;
                for (int m = 0; m < 5; m++, power *= x)
                        out[m] += power / n;
                inner += fabs(x) < 1;
        }
        return (double)inner / n;
}

START_TEST(uniform_fills_the_half_open_interval)
{
        /* States whose next draw is the largest and the smallest number. */
        dci_rng highest = {{0, 5, 7, UINT64_MAX}}, lowest = {{0, 5, 7, 0}};
        double moment[5];
        ck_assert_double_eq(dci_rng_uniform(&highest), 1.0 - 0x1p-53);
        ck_assert_double_eq(dci_rng_uniform(&lowest), 0.0);
        ck_assert_double_eq(moments(dci_rng_uniform, moment), 1.0);
        for (int m = 1; m < 5; m++)
                ck_assert_double_eq_tol(moment[m], 1.0 / (m + 1), 0.003);
}
END_TEST

START_TEST(normal_has_normal_moments)
{
        for (int i = 0; i < 2; i++) { /* the library's, and those that suites draw */
                double moment[5], (*const draw)(dci_rng *) = i == 0 ? dci_rng_normal : test_quick_normal;
                dci_rng highest = {{0, 5, 7, UINT64_MAX}}, lowest = {{0, 5, 7, 0}};
                ck_assert(isfinite(draw(&highest)) && isfinite(draw(&lowest)));
                ck_assert_double_eq_tol(moments(draw, moment), 0.6827, 0.005);
                for (int m = 1; m < 5; m++)
                        ck_assert_double_eq_tol(moment[m], m % 2 == 0 ? m - 1 : 0, 0.0025 * m * (m + 1));
        }
}
END_TEST

START_TEST(every_bad_field_is_refused_by_name)
{
        static const struct {
                dci_context_config config;
                const char *part;
        } cases[] = {
                {{.executor_kind = 1, .n_threads = -1}, "n_threads is -1"},
                {{.executor_kind = 1, .n_threads = INT32_MIN}, "n_threads is -2147483648"},
                {{.executor_kind = 1, .n_threads = 1025}, "n_threads is 1025"},
                {{.executor_kind = -1}, "executor_kind -1"},
                {{.executor_kind = 3}, "executor_kind 3"},
                {{.executor_kind = DCI_EXECUTOR_CALLER}, "parallel_for"},
                {{.executor_kind = 1, .isa = -1}, "isa -1"},
                {{.executor_kind = 1, .isa = 6}, "isa 6"},
        };
        test_memory memory;
        dci_context_config config;
        dci_context *context = NULL;
        for (size_t i = 0; i < COUNT(cases); i++) {
                config = cases[i].config;
                config.struct_size = sizeof config;
                ck_refused(dci_context_create(&config, &context), DCI_ERR_INVALID, cases[i].part);
                ck_assert_ptr_null(context);
        }
        config = pool_config(1);
        config.allocator = test_allocator(&memory);
        config.allocator.free = NULL;
        ck_refused(dci_context_create(&config, &context), DCI_ERR_INVALID, "allocator");
        config.allocator = test_allocator(&memory);
        config.allocator.alloc = NULL;
        ck_refused(dci_context_create(&config, &context), DCI_ERR_INVALID, "allocator");
        ck_refused(dci_context_create(NULL, NULL), DCI_ERR_INVALID, "out_context is NULL");
}
END_TEST

static dci_status create_with(const char *environment, dci_isa wish, dci_isa *out_isa)
{
        dci_context_config config = pool_config(1);
        dci_context *context = NULL;
        config.isa = wish;
        ck_assert_int_eq(environment == NULL ? unsetenv("DCI_ISA") : setenv("DCI_ISA", environment, 1), 0);
        dci_status status = dci_context_create(&config, &context);
        unsetenv("DCI_ISA");
        *out_isa = dci_context_isa(context);
        dci_context_destroy(context);
        return status;
}

START_TEST(levels_that_are_not_available_are_refused)
{
        int refused = 0;
        dci_isa isa;
        for (dci_isa wish = DCI_ISA_SCALAR; wish <= DCI_ISA_NEON; wish++) {
                const char *name = dci_isa_name(wish);
                if (dci_isa_available(wish)) {
                        ck_ok(create_with(NULL, wish, &isa));
                        ck_assert_int_eq(isa, wish);
                        ck_ok(create_with(name, DCI_ISA_AUTO, &isa));
                        ck_assert_int_eq(isa, wish);
                } else {
                        ck_refused(create_with(NULL, wish, &isa), DCI_ERR_UNSUPPORTED, name);
                        ck_refused(create_with(name, DCI_ISA_AUTO, &isa), DCI_ERR_UNSUPPORTED, "DCI_ISA");
                        refused++;
                }
        }
        /* No machine is both x86 and Arm. */
        ck_assert_int_ge(refused, 1);
        ck_assert_int_eq(dci_isa_available(DCI_ISA_AUTO) + dci_isa_available(DCI_ISA_SCALAR), 2);
        ck_assert_int_eq(dci_isa_available(-1) + dci_isa_available(DCI_ISA_NEON + 1) + dci_isa_available(INT32_MIN), 0);
}
END_TEST

START_TEST(environment_replaces_auto_alone)
{
        static const char *const bad[] = {"auto", "AVX2", "AVX2 ", "avx2 ", " avx2", "avx", "scalar,avx2", "1", " "};
        dci_isa best, isa;
        ck_ok(create_with(NULL, DCI_ISA_AUTO, &best));
        ck_assert_int_ne(best, DCI_ISA_AUTO);
        ck_ok(create_with("", DCI_ISA_AUTO, &isa));
        ck_assert_int_eq(isa, best);
        ck_ok(create_with(dci_isa_name(best), DCI_ISA_SCALAR, &isa));
        ck_assert_int_eq(isa, DCI_ISA_SCALAR);
        for (size_t i = 0; i < COUNT(bad); i++)
                ck_refused(create_with(bad[i], DCI_ISA_AUTO, &isa), DCI_ERR_INVALID, bad[i]);
}
END_TEST

START_TEST(thread_limit_has_bounds)
{
        static const int32_t bad[] = {0, -1, 1025, INT32_MIN, INT32_MAX};
        dci_context *pool = test_context(3), *caller = NULL;
        dci_context_config config = pool_config(1024);
        config.executor_kind = DCI_EXECUTOR_CALLER;
        config.executor.parallel_for = test_serial;
        ck_ok(dci_context_create(&config, &caller));
        for (size_t i = 0; i < COUNT(bad); i++) {
                ck_refused(dci_context_set_threads(pool, bad[i]), DCI_ERR_INVALID, "1 to 3");
                ck_refused(dci_context_set_threads(caller, bad[i]), DCI_ERR_INVALID, "1 to 1024");
        }
        ck_assert_int_eq(dci_context_threads(pool), 3);
        /* A pool does not grow, but comes back to what it was created with. */
        ck_refused(dci_context_set_threads(pool, 4), DCI_ERR_INVALID, "n_threads is 4");
        ck_ok(dci_context_set_threads(pool, 1));
        ck_assert_int_eq(dci_context_threads(pool), 1);
        ck_ok(dci_context_set_threads(pool, 3));
        dci_context_destroy(pool);
        dci_context_destroy(caller);
}
END_TEST

START_TEST(null_is_the_default_config_and_no_context)
{
        dci_context *context = NULL;
        ck_ok(dci_context_create(NULL, &context));
        ck_assert_int_ge(dci_context_threads(context), 1);
        dci_context_destroy(context);
        dci_context_destroy(NULL);
        ck_assert_int_eq(dci_context_isa(NULL) + dci_context_threads(NULL), 0);
}
END_TEST

START_TEST(the_last_holder_frees_the_context)
{
        test_memory memory;
        dci_context *context = test_context_with(&memory, 2);
        dci_context_retain(context);
        dci_context_retain(context);
        for (int i = 0; i < 2; i++) {
                dci_context_destroy(context);
                ck_assert_int_eq(dci_context_threads(context), 2);
                ck_assert_uint_gt(atomic_load(&memory.live_blocks), 0);
        }
        dci_context_destroy(context);
        check_nothing_live(&memory);
}
END_TEST

typedef struct log_book {
        size_t n_lines;
        int32_t level;
        char line[1000];
        pthread_t thread;
} log_book;

static void write_book(void *ctx, int32_t level, const char *line)
{
        log_book *book = ctx;
        book->n_lines++;
        book->level = level;
        book->thread = pthread_self();
        snprintf(book->line, sizeof book->line, "%s", line);
}

START_TEST(log_gets_lines_on_the_calling_thread)
{
        log_book book = {0};
        dci_context_config config = pool_config(2);
        dci_context *context = NULL;
        config.isa = DCI_ISA_SCALAR;
        config.log = (dci_log){&book, write_book};
        ck_ok(dci_context_create(&config, &context));
        ck_assert(book.n_lines == 1 && book.level == DCI_LOG_INFO);
        ck_assert(pthread_equal(book.thread, pthread_self()));
        ck_assert_ptr_null(strchr(book.line, '\n'));
        ck_assert_ptr_nonnull(strstr(book.line, dci_version()));
        ck_assert(strstr(book.line, "scalar") != NULL && strstr(book.line, "2 threads") != NULL);
        dci_log_line(context, DCI_LOG_WARNING, "%d of %s", 7, "nine");
        ck_assert(book.n_lines == 2 && book.level == DCI_LOG_WARNING);
        ck_assert_str_eq(book.line, "7 of nine");
        dci_log_line(context, DCI_LOG_DEBUG, "%05000d", 7);
        ck_assert(strlen(book.line) >= 100 && strlen(book.line) < sizeof book.line - 1);
        dci_context_destroy(context);
}
END_TEST

int main(void)
{
        const TTest *all[] = {every_status_has_its_own_name,
                              names_and_sizes_of_formats_and_levels,
                              version_is_that_of_the_header,
                              last_error_belongs_to_its_thread,
                              last_error_lives_until_the_next_failure,
                              last_error_is_cut_to_its_room,
                              init_zeroes_what_the_caller_knows,
                              sizes_that_no_header_has_are_refused,
                              newer_configs_leave_unknown_fields_zero,
                              products_and_sums_are_checked,
                              impossible_sizes_reach_no_allocator,
                              blocks_are_aligned_and_freed_by_size,
                              create_out_of_memory_leaves_nothing,
                              seeds_and_draws_follow_published_vectors,
                              split_streams_depend_on_parent_and_number,
                              neighbouring_streams_share_nothing,
                              below_is_unbiased_at_awkward_bounds,
                              below_rejects_the_short_interval_alone,
                              uniform_fills_the_half_open_interval,
                              normal_has_normal_moments,
                              every_bad_field_is_refused_by_name,
                              levels_that_are_not_available_are_refused,
                              environment_replaces_auto_alone,
                              thread_limit_has_bounds,
                              null_is_the_default_config_and_no_context,
                              the_last_holder_frees_the_context,
                              log_gets_lines_on_the_calling_thread};
        Suite *suite = suite_create("core");
        TCase *tcase = test_case(suite, "core", 120);
        for (size_t i = 0; i < COUNT(all); i++)
                tcase_add_test(tcase, all[i]);
        return test_main(suite);
}
