/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Random sequences of operations on an index against a naive model.
 *
 *   fuzz_index [seed] [sequences]     sequences 0: until it is interrupted
 *
 * tests/fuzz_life.h says what a sequence does.
 */
#include <signal.h>
#include <stdio.h>

#include "tests/common.h"
#include "tests/fuzz_life.h"

static uint64_t first_seed = 1, n_sequences = 40;
static volatile sig_atomic_t interrupted;

static void stop(int signal_number)
{
        (void)signal_number;
        interrupted = 1;
}

START_TEST(sequences_of_operations_agree_with_the_model)
{
        for (uint64_t i = 0; (n_sequences == 0 || i < n_sequences) && !interrupted; i++) {
                if (n_sequences == 0 && i % 1000 == 0)
                        fprintf(stderr, "fuzz_index: seed %llu\n", (unsigned long long)(first_seed + i));
                fuzz_bytes from;
                fuzz_from_seed(&from, first_seed + i);
                fuzz_index_life(&from);
        }
}
END_TEST

int main(int argc, char **argv)
{
        if (argc > 1)
                first_seed = strtoull(argv[1], NULL, 10);
        if (argc > 2)
                n_sequences = strtoull(argv[2], NULL, 10);
        signal(SIGINT, stop);
        signal(SIGTERM, stop);
        Suite *suite = suite_create("fuzz_index");
        TCase *tcase = test_case(suite, "sequences", n_sequences == 0 ? 1e9 : 300);
        tcase_add_test(tcase, sequences_of_operations_agree_with_the_model);
        return test_main(suite);
}
