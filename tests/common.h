/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * What every suite shares: a runner, checks of statuses, contexts, an allocator that fails on demand, and reproducible
 * numbers.
 *
 * A suite is one program. test_main runs it under Check, each test in a process of its own; libFuzzer's targets
 * (tests/fuzz) use the same fixtures without Check. Environment: DCI_TEST_SHORT asks for fewer repetitions,
 * DCI_TEST_LONG for all of them.
 */
#ifndef DCI_TESTS_COMMON_H
#define DCI_TESTS_COMMON_H

#include <check.h>
#include <pthread.h>
#include <stdlib.h>

#include "core/internal.h"
#include "dci/dci.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#else
#define UNDER_TSAN 0
#endif
#if UNDER_TSAN || defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define UNDER_SANITIZER 1
#else
#define UNDER_SANITIZER 0
#endif

/* Fails with the library's last error. */
#define ck_ok(call)                                                                                                    \
        do {                                                                                                           \
                dci_status ck_ok_status = (call);                                                                      \
                ck_assert_msg(ck_ok_status == DCI_OK, "%s: %s: %s", #call, dci_status_name(ck_ok_status),              \
                              dci_last_error());                                                                       \
        } while (0)

/* Check's assertions write to a pipe even when they pass, to locate a crash; that took most of the time of some
 * suites. These cost nothing when they pass: sanitizers and valgrind locate a crash better. */
#undef ck_assert_msg
#define ck_assert_msg(condition, ...)                                                                                  \
        do {                                                                                                           \
                if (!(condition))                                                                                      \
                        _ck_assert_failed(__FILE__, __LINE__, "Assertion '" #condition "' failed", __VA_ARGS__);       \
        } while (0)

/* libFuzzer's targets have no runner: a failed assertion aborts the program. */
#ifdef DCI_FUZZ
#define _ck_assert_failed test_failed
_Noreturn void test_failed(const char *file, int line, const char *expression, const char *format, ...);
#endif

#define test_hold(condition) ck_assert(condition)

/* Fails unless the call returns this status and the error message contains `part`. */
#define ck_refused(call, status, part) test_refused((call), (status), (part), #call, __FILE__, __LINE__)
void test_refused(dci_status got, dci_status wanted, const char *part, const char *call, const char *file, int line);

/* Creates a context with defaults, the pthread executor (so that tsan sees every thread) and this many threads. */
dci_context *test_context(int32_t n_threads);

/* An allocator that counts what is live and fails the n-th allocation. */
typedef struct test_memory {
        atomic_size_t live_bytes, live_blocks, calls;
        atomic_size_t fail_at; /* 1-based; 0: never */
        atomic_bool fails_on;  /* all that follow fail, too, until test_memory_recovers */
        atomic_size_t largest; /* largest allocation in bytes since this was set to 0 */
        atomic_size_t most;    /* maximum of live_bytes since this was set to 0 */
} test_memory;
dci_allocator test_allocator(test_memory *memory);
dci_context *test_context_with(test_memory *memory, int32_t n_threads);

/* Fails each allocation in turn. Calls life with the result of prepare, once per allocation that life makes; that
 * allocation returns NULL. life destroys what prepare created and returns the number of calls that failed; no memory
 * may be live afterwards. Returns the sum of the failures: the rungs of the ladder. */
size_t test_each_allocation_failing(int32_t n_threads, void *(*prepare)(dci_context *context, const void *arg),
                                    size_t (*life)(void *prepared), const void *arg);

/* The same, but all later allocations fail as well, until life, after a failed call, calls test_memory_recovers. */
size_t test_each_shortage(int32_t n_threads, void *(*prepare)(dci_context *context, const void *arg),
                          size_t (*life)(void *prepared), const void *arg);
void test_memory_recovers(void);
/* Returns whether a call of such a life failed, which it may do once and with the allowed status. Counts the failure
 * and lets memory recover, so that the caller can repeat the call. */
bool test_failed_once(dci_status status, dci_status allowed, size_t *failures, const char *call);
/* Copies the argument of a life. Free with free(). */
void *test_copy(const void *from, size_t n_bytes);
/* The type of both functions. */
typedef size_t (*test_ladder)(int32_t n_threads, void *(*prepare)(dci_context *context, const void *arg),
                              size_t (*life)(void *prepared), const void *arg);
/* Defines a test for each ladder; climb(int which, test_ladder ladder) climbs one. A shortage catches rollbacks that
 * allocate memory themselves; short runs climb a third of these. */
#define TEST_LADDERS(climb)                                                                                            \
        START_TEST(every_allocation_may_fail_once)                                                                     \
        {                                                                                                              \
                climb(_i, test_each_allocation_failing);                                                               \
        }                                                                                                              \
        END_TEST                                                                                                       \
        START_TEST(memory_may_be_short_from_any_allocation_on)                                                         \
        {                                                                                                              \
                if (!test_short() || _i % 3 == 0)                                                                      \
                        climb(_i, test_each_shortage);                                                                 \
        }                                                                                                              \
        END_TEST

/* Returns n x dim normal numbers that depend on the seed alone. Free with free(). */
float *test_normal(size_t n, size_t dim, uint64_t seed);

/* Draws a normal number five times as fast as dci_rng_normal, for suites that draw millions. */
double test_quick_normal(dci_rng *rng);

/* Returns whether DCI_TEST_SHORT asks for fewer repetitions. Sanitizers need few: they find a bug when its code runs
 * once. */
bool test_short(void);
/* Returns whether the longest suites may skip cases that nearly repeat others: unless DCI_TEST_LONG is set or
 * DCI_GPU_DEVICE names a device. */
bool test_thin(void);

/* A progress callback that stops the call; ctx points to a size_t that counts the calls. */
int32_t test_stop_at_once(void *ctx, size_t done, size_t total);

/* Lists the instruction sets of this machine, scalar first, or only counts them; returns their number. */
size_t test_isas(dci_isa out[6]);
size_t test_n_isas(void);
dci_context *test_context_isa(dci_isa isa);

/* The same for the instruction set at index i of that list. */
dci_context *test_context_of_level(int i);
const struct dci_kernels *test_kernels_of_level(int i);

/* Returns memory for n elements, filled with 0xA5 so that elements that nobody writes stand out. Free with free(). */
void *test_room(size_t n, size_t size);
/* Frees each of its arguments, which are pointers. */
#define test_free(...)                                                                                                 \
        do {                                                                                                           \
                void *const test_blocks[] = {__VA_ARGS__};                                                             \
                test_free_each(COUNT(test_blocks), test_blocks);                                                       \
        } while (0)
void test_free_each(size_t n, void *const *blocks);
/* Counts the entries of a folder, 0 where it cannot be opened. */
size_t test_entries(const char *path);
double test_dot(const float *a, const float *b, size_t dim);

/* Comparison functions for qsort. */
int test_int32s_ascend(const void *a, const void *b);
int test_int64s_ascend(const void *a, const void *b);
int test_floats_ascend(const void *a, const void *b);
int test_doubles_descend(const void *a, const void *b);

/* A caller's executor that runs the tasks one after another. */
void test_serial(void *ctx, size_t n, void (*fn)(void *arg, size_t i), void *arg);

/* Joins a thread that returns NULL or a string with its complaint, which fails the test. */
void test_join(pthread_t thread);

/* Returns the folder of the recorded trace: DCI_TEST_TRACE or the one in the source tree. */
const char *test_trace_dir(void);

/* Adds a test case to a suite, with a timeout per test; the second one also runs setup and teardown around each
 * test. */
TCase *test_case(Suite *suite, const char *name, double seconds);
TCase *test_case_with(Suite *suite, const char *name, double seconds, SFun setup, SFun teardown);

/* Runs a suite and returns the exit status. */
int test_main(Suite *suite);

#endif
