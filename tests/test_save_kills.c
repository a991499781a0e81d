/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * A process that is killed while it saves over a file, at every call it makes of the system and at any other moment: the old file or the new
 * one is there, whole, and next to it at most the temporary file, which the next save removes.
 */
#include "tests/saved_fixture.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/scratch.h"
#include "tests/syscalls.h"

static saved_world world;

static void teardown(void)
{
        saved_destroy(&world);
        scratch_close();
}

/* Waits for a child and reads what it left; whether it was killed. */
static bool look_after(pid_t child, const char *what)
{
        int status = 0;
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        ck_assert_msg(killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0), "%s: status %x", what,
                      (unsigned)status);
        const int found = saved_state_of(&world, "file");
        ck_assert_msg(found != SAVED_STATES, "%s: the file is neither the old one nor the new one", what);
        const size_t left = scratch_count() - 1;
        ck_assert_msg(left <= (size_t)killed, "%s: %zu leftovers", what, left);
        ck_ok(saved_load(&world, found, world.kind != SAVED_KV, scratch_path("file")));
        ck_ok(saved_save(&world, found, scratch_path("file")));
        ck_assert_msg(scratch_count() == 1, "%s: a leftover after the next save", what);
        return killed;
}

/* Saves once over the old file, in a child that is killed at the n-th call; whether it was. */
static bool kill_at(int how, int kind, size_t nth)
{
        char what[64];
        snprintf(what, sizeof what, "%s %zu", syscalls_name(kind), nth);
        scratch_put("file", world.bytes[SAVED_OLD], world.n_bytes[SAVED_OLD]);
        const pid_t child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0) {
                syscalls_arm((syscalls_fault){how, kind, 0, nth, 1});
                _exit(saved_save(&world, SAVED_NEW, scratch_path("file")) == DCI_OK ? 0 : 1);
        }
        return look_after(child, what);
}

/* Loops over kinds. Before each call, and in the middle of each write; in short every tenth. */
START_TEST(a_save_killed_at_any_call_leaves_one_whole_file)
{
        const size_t step = test_short() ? 10 : 1;
        size_t kills = 0, before = 0;
        world = saved_make(_i, test_short() ? 1 : 8);
        for (size_t nth = 1; kill_at(SYS_KILL, SYS_ANY, nth); nth += step)
                kills++;
        before = kills;
        for (size_t nth = 1; kill_at(SYS_KILL_IN, SYS_WRITE, nth); nth += step)
                kills++;
        ck_assert_uint_ge(before, test_short() ? 2 : 12);
        ck_assert_uint_ge(kills - before, test_short() ? 1 : 5);
        printf("%s: %zu kills, %zu of them in the middle of a write\n",
               (const char *[]){"flat", "pdci", "mdci, codes", "kv"}[_i], kills, kills - before);
}
END_TEST

/* Until `until`, however busy the machine is. */
static void spin(struct timespec until)
{
        struct timespec now;
        do
                clock_gettime(CLOCK_MONOTONIC, &now);
        while (now.tv_sec < until.tv_sec || (now.tv_sec == until.tv_sec && now.tv_nsec < until.tv_nsec));
}

static void save_in_turns(void)
{
        int state = SAVED_OLD;
        while (saved_save(&world, state, scratch_path("file")) == DCI_OK)
                state = SAVED_STATES - 1 - state;
        _exit(1);
}

/* Loops over kinds. A child saves both states in turns until it is killed. */
START_TEST(a_save_killed_at_any_moment_leaves_one_whole_file)
{
        const size_t rounds = getenv("DCI_TEST_LONG") != NULL ? 500 : test_short() ? 2 : 20;
        dci_rng rng;
        dci_rng_seed(&rng, (uint64_t)_i + 1);
        world = saved_make(_i, 2);
        scratch_put("file", world.bytes[SAVED_OLD], world.n_bytes[SAVED_OLD]);
        for (size_t round = 0; round < rounds; round++) {
                struct timespec until;
                char what[64];
                clock_gettime(CLOCK_MONOTONIC, &until);
                until.tv_nsec += (long)dci_rng_below(&rng, 12000000);
                until.tv_sec += until.tv_nsec / 1000000000;
                until.tv_nsec %= 1000000000;
                snprintf(what, sizeof what, "round %zu", round);
                const pid_t child = fork();
                ck_assert_int_ge(child, 0);
                if (child == 0)
                        save_in_turns();
                spin(until);
                kill(child, SIGKILL);
                ck_assert(look_after(child, what));
        }
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("save kills");
        TCase *tcase = test_case_with(suite, "kills", 120, scratch_open, teardown);
        tcase_add_loop_test(tcase, a_save_killed_at_any_call_leaves_one_whole_file, 0, SAVED_KINDS);
        tcase_add_loop_test(tcase, a_save_killed_at_any_moment_leaves_one_whole_file, 0, SAVED_KINDS);
        return test_main(suite);
}
