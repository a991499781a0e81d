/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Random sequences of operations on a KV cache against a naive model.
 *
 *   fuzz_kv [seed] [operations]     operations 0: until it is interrupted
 *
 * tests/fuzz_life.h says what they are.
 */
#include <signal.h>
#include <stdio.h>

#include "tests/common.h"
#include "tests/fuzz_life.h"
#include "tests/scratch.h"

static uint64_t first_seed = 1, n_operations = 6000, done;
static volatile sig_atomic_t interrupted;

static void stop(int signal_number)
{
        (void)signal_number;
        interrupted = 1;
}

START_TEST(operations_agree_with_the_model)
{
        for (uint64_t seed = first_seed; (n_operations == 0 || done < n_operations) && !interrupted; seed++) {
                fuzz_bytes from;
                char what[40];
                snprintf(what, sizeof what, "seed %llu", (unsigned long long)seed);
                fuzz_from_seed(&from, seed);
                done += fuzz_kv_life(&from, n_operations == 0 ? SIZE_MAX : n_operations - done, what);
        }
}
END_TEST

int main(int argc, char **argv)
{
        if (argc > 1)
                first_seed = strtoull(argv[1], NULL, 10);
        if (argc > 2)
                n_operations = strtoull(argv[2], NULL, 10);
        signal(SIGINT, stop);
        signal(SIGTERM, stop);
        Suite *suite = suite_create("fuzz_kv");
        TCase *tcase = test_case_with(suite, "operations", argc > 2 ? 1e9 : 300, scratch_open, scratch_close);
        tcase_add_test(tcase, operations_agree_with_the_model);
        return test_main(suite);
}
