/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What every suite shares: a runner, status checks, contexts, reproducible numbers. */
#ifndef DCI_TESTS_COMMON_H
#define DCI_TESTS_COMMON_H

#include <check.h>
#include <stdlib.h>

#include "core/internal.h"
#include "dci/dci.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* Fails with the library's own sentence. */
#define ck_ok(call)                                                                                                    \
        do {                                                                                                           \
                dci_status ck_ok_status = (call);                                                                      \
                ck_assert_msg(ck_ok_status == DCI_OK, "%s: %s: %s", #call, dci_status_name(ck_ok_status),              \
                              dci_last_error());                                                                       \
        } while (0)

/* Check's own assertions write into a pipe while they hold, so that a crash can be placed: that was most of what some suites
 * cost. Here they cost nothing while they hold; sanitizers and valgrind place a crash better. */
#undef ck_assert_msg
#define ck_assert_msg(condition, ...)                                                                                  \
        do {                                                                                                           \
                if (!(condition))                                                                                      \
                        _ck_assert_failed(__FILE__, __LINE__, "Assertion '" #condition "' failed", __VA_ARGS__);       \
        } while (0)

/* libFuzzer's targets have no runner: a failure ends them where it is found. */
#ifdef DCI_FUZZ
#define _ck_assert_failed test_failed
_Noreturn void test_failed(const char *file, int line, const char *expression, const char *format, ...);
#endif

#define test_hold(condition) ck_assert(condition)

/* Wants this status, and a sentence that contains `part`. */
#define ck_refused(call, status, part) test_refused((call), (status), (part), #call, __FILE__, __LINE__)
void test_refused(dci_status got, dci_status wanted, const char *part, const char *call, const char *file, int line);

/* A context with defaults and the pthread executor (so that tsan sees every thread), or with the given thread count. */
dci_context *test_context(int32_t n_threads);

/* An allocator that counts, checks sizes on free, and fails the n-th allocation. */
typedef struct test_memory {
        atomic_size_t live_bytes, live_blocks, calls;
        atomic_size_t fail_at; /* 1-based; 0: never */
        atomic_bool fails_on;  /* all that follow fail, too, until test_memory_recovers */
        atomic_size_t largest; /* bytes of one allocation, since it was set to 0 */
        atomic_size_t most;    /* live_bytes, since it was set to 0 */
} test_memory;
dci_allocator test_allocator(test_memory *memory);
dci_context *test_context_with(test_memory *memory, int32_t n_threads);

/* Every allocation failing in turn: life is called with what prepare has made, once for each allocation that it
 * makes, which then returns NULL, until none does. It destroys what prepare made and returns how many calls failed;
 * all memory must have come back then. Returns the sum of the failures: the rungs of the ladder. */
size_t test_each_allocation_failing(int32_t n_threads, void *(*prepare)(dci_context *context, const void *arg),
                                    size_t (*life)(void *prepared), const void *arg);

/* The same, but memory is short from that allocation on: all that follow fail, too, until life, told of a failure, calls
 * test_memory_recovers; then there is enough again. */
size_t test_each_shortage(int32_t n_threads, void *(*prepare)(dci_context *context, const void *arg),
                          size_t (*life)(void *prepared), const void *arg);
void test_memory_recovers(void);
/* Whether a call of such a life failed, with the status that is allowed: that is counted, memory recovers, and what failed may
 * be asked again. It must be the life's only failure. */
bool test_failed_once(dci_status status, dci_status allowed, size_t *failures, const char *call);
/* A copy, for a life to begin with. Free with free(). */
void *test_copy(const void *from, size_t n_bytes);
/* Either of the two. */
typedef size_t (*test_ladder)(int32_t n_threads, void *(*prepare)(dci_context *context, const void *arg),
                              size_t (*life)(void *prepared), const void *arg);

/* n x dim normal numbers, the same for the same seed. Free with free(). */
float *test_normal(size_t n, size_t dim, uint64_t seed);

/* A normal number at a fifth of dci_rng_normal's price: suites that draw millions took most of their time for them. */
double test_quick_normal(dci_rng *rng);

/* Whether fewer repetitions are wanted (DCI_TEST_SHORT in the environment), as under the sanitizers: what they look for shows where
 * code runs once, or two threads meet once. */
bool test_short(void);
/* Whether the longest suites leave out what other cases of theirs all but repeat: unless DCI_TEST_LONG asks for all, or a device is named. */
bool test_thin(void);

/* Progress that stops a call at once; ctx: size_t, counts how often it was asked. */
int32_t test_stop_at_once(void *ctx, size_t done, size_t total);

/* Levels of this machine, scalar first; returns how many. */
size_t test_isas(dci_isa out[6]);
dci_context *test_context_isa(dci_isa isa);

/* Folder of the trace in the repository, from the environment or the source tree. */
const char *test_trace_dir(void);

/* A case of a suite, whose tests end after so many seconds; and one whose tests run between setup and teardown. */
TCase *test_case(Suite *suite, const char *name, double seconds);
TCase *test_case_with(Suite *suite, const char *name, double seconds, SFun setup, SFun teardown);

/* Runs one suite; returns the exit status. */
int test_main(Suite *suite);

#endif
