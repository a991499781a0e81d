/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Saving over a file and loading from one while the system refuses, shortens or interrupts any call: a save that fails leaves the old file,
 * one that succeeds the new one, nothing else stays in the folder, no descriptor stays open, and the same call made again succeeds.
 */
#define _GNU_SOURCE /* unshare */
#include "tests/saved_fixture.h"

#include <errno.h>
#include <grp.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/npy.h"
#include "tests/scratch.h"
#include "tests/syscalls.h"

static saved_world world;

static void teardown(void)
{
        saved_destroy(&world);
        scratch_close();
}

/* Puts the old file there, and saves the new state over it under a fault. */
static dci_status save_under(syscalls_fault fault)
{
        scratch_put("file", world.bytes[SAVED_OLD], world.n_bytes[SAVED_OLD]);
        syscalls_arm(fault);
        const dci_status status = saved_save(&world, SAVED_NEW, scratch_path("file"));
        syscalls_disarm();
        return status;
}

static dci_status load_under(syscalls_fault fault, bool mapped)
{
        const char *path = scratch_path("file");
        syscalls_arm(fault);
        const dci_status status = saved_load(&world, SAVED_NEW, mapped, path);
        syscalls_disarm();
        return status;
}

static const int errors[] = {EIO, ENOSPC, EACCES, EROFS, EDQUOT};

/* Loops over kinds. Every call fails in turn, with each error. */
START_TEST(a_save_whose_nth_call_fails_leaves_the_old_file_or_the_new_one)
{
        world = saved_make(_i, 1);
        const size_t descriptors = test_entries("/proc/self/fd");
        for (size_t e = 0; e < COUNT(errors); e++) {
                bool struck = true;
                for (size_t nth = 1; struck; nth++) {
                        const dci_status status = save_under((syscalls_fault){SYS_ERROR, SYS_ANY, errors[e], nth, 1});
                        struck = syscalls_struck() > 0;
                        const int found = saved_state_of(&world, "file");
                        ck_assert_msg(status == DCI_OK || (status == DCI_ERR_IO && struck), "call %zu: %s", nth,
                                      dci_last_error());
                        /* Behind the renaming only the folder's flush is left. */
                        const bool late = status != DCI_OK && strstr(dci_last_error(), "flush the folder") != NULL;
                        ck_assert_msg(found == (status == DCI_OK || late ? SAVED_NEW : SAVED_OLD), "call %zu: %s", nth,
                                      dci_last_error());
                        ck_assert_msg(status == DCI_OK || strstr(dci_last_error(), strerror(errors[e])) != NULL,
                                      "call %zu: %s", nth, dci_last_error());
                        ck_assert_uint_eq(scratch_count(), 1);
                        ck_assert_uint_eq(test_entries("/proc/self/fd"), descriptors);
                        ck_ok(saved_save(&world, SAVED_NEW, scratch_path("file")));
                        ck_assert_int_eq(saved_state_of(&world, "file"), SAVED_NEW);
                }
                ck_assert_uint_ge(syscalls_made(SYS_ANY), 10);
        }
}
END_TEST

/* Loops over kinds. What has begun to fail goes on failing, the removal of the temporary file, too: that one stays until the next save. */
START_TEST(a_disk_that_fails_for_good_costs_the_temporary_file_and_no_other)
{
        world = saved_make(_i, 1);
        const size_t descriptors = test_entries("/proc/self/fd");
        bool struck = true;
        for (size_t nth = 1; struck; nth++) {
                const dci_status status = save_under((syscalls_fault){SYS_ERROR, SYS_ANY, EIO, nth, SIZE_MAX});
                struck = syscalls_struck() > 0;
                const bool late = status != DCI_OK && strstr(dci_last_error(), "flush the folder") != NULL;
                ck_assert(status == DCI_OK || status == DCI_ERR_IO);
                ck_assert_int_eq(saved_state_of(&world, "file"), status == DCI_OK || late ? SAVED_NEW : SAVED_OLD);
                ck_assert_uint_le(scratch_count(), 2);
                ck_assert_uint_eq(test_entries("/proc/self/fd"), descriptors);
                ck_ok(saved_save(&world, SAVED_NEW, scratch_path("file")));
                ck_assert_uint_eq(scratch_count(), 1);
        }
}
END_TEST

/* Loops over kinds. */
START_TEST(a_save_goes_on_after_interruptions_and_short_writes)
{
        world = saved_make(_i, 1);
        for (int kind = 0; kind < SYS_KINDS; kind++)
                for (size_t nth = 1; kind != SYS_RENAME; nth++) {
                        ck_ok(save_under((syscalls_fault){SYS_ERROR, kind, EINTR, nth, 1}));
                        ck_assert_int_eq(saved_state_of(&world, "file"), SAVED_NEW);
                        if (syscalls_struck() == 0)
                                break;
                }
        ck_refused(save_under((syscalls_fault){SYS_ERROR, SYS_RENAME, EINTR, 1, 1}), DCI_ERR_IO, "cannot replace");
        ck_assert_int_eq(saved_state_of(&world, "file"), SAVED_OLD);
        ck_ok(save_under((syscalls_fault){SYS_ERROR, SYS_WRITE, EINTR, 1, 50}));
        ck_assert_uint_eq(syscalls_struck(), 50);
        ck_assert_int_eq(saved_state_of(&world, "file"), SAVED_NEW);
        ck_ok(save_under((syscalls_fault){SYS_SHORT, SYS_WRITE, 0, 1, SIZE_MAX}));
        ck_assert_uint_gt(syscalls_struck(), 20);
        ck_assert_int_eq(saved_state_of(&world, "file"), SAVED_NEW);
        ck_assert_uint_eq(scratch_count(), 1);
}
END_TEST

/* Loops over kinds, loaded and, of indexes, mapped. */
START_TEST(a_load_whose_nth_call_fails_leaves_nothing_behind)
{
        const bool mapped = _i >= SAVED_KINDS;
        world = saved_make(_i % SAVED_KINDS, 1);
        scratch_put("file", world.bytes[SAVED_NEW], world.n_bytes[SAVED_NEW]);
        const size_t descriptors = test_entries("/proc/self/fd");
        const size_t bytes = world.kv != NULL ? kv_info(world.kv).n_sequences : 0;
        bool struck = true;
        for (size_t nth = 1; struck; nth++) {
                const dci_status status = load_under((syscalls_fault){SYS_ERROR, SYS_ANY, EIO, nth, 1}, mapped);
                struck = syscalls_struck() > 0;
                ck_assert_msg(status == DCI_OK || (status == DCI_ERR_IO && struck), "call %zu: %s", nth,
                              dci_last_error());
                ck_assert_uint_eq(test_entries("/proc/self/fd"), descriptors);
                ck_assert(world.kv == NULL || kv_info(world.kv).n_sequences == bytes);
                ck_ok(load_under((syscalls_fault){SYS_ERROR, SYS_ANY, EINTR, nth, 1}, false));
        }
        for (size_t nth = 1; nth <= 2 && !mapped; nth++)
                ck_refused(load_under((syscalls_fault){SYS_END, SYS_READ, 0, nth, SIZE_MAX}, false), DCI_ERR_FORMAT,
                           "became shorter");
        ck_ok(load_under((syscalls_fault){SYS_SHORT, SYS_READ, 0, 1, SIZE_MAX}, false));
}
END_TEST

/* Asking again for ever would hang. */
START_TEST(a_write_that_takes_nothing_is_an_error)
{
        world = saved_make(SAVED_FLAT, 1);
        ck_refused(save_under((syscalls_fault){SYS_END, SYS_WRITE, 0, 2, SIZE_MAX}), DCI_ERR_IO, "none of");
        ck_assert_int_eq(saved_state_of(&world, "file"), SAVED_OLD);
        ck_assert_uint_eq(scratch_count(), 1);
}
END_TEST

START_TEST(an_array_of_which_a_call_fails_is_not_read)
{
        const float row[3] = {1.0f, 2.0f, 3.0f};
        const size_t three = 3, descriptors = test_entries("/proc/self/fd");
        test_memory memory;
        dci_context *context = test_context_with(&memory, 1);
        const size_t live = atomic_load(&memory.live_bytes);
        bool struck = true;
        ck_ok(dci_npy_write(scratch_path("file"), DCI_NPY_F32, 1, &three, row));
        for (size_t nth = 1; struck; nth++) {
                dci_npy npy = {0};
                syscalls_arm((syscalls_fault){SYS_ERROR, SYS_ANY, EIO, nth, 1});
                const dci_status status = dci_npy_read(context, scratch_path("file"), &npy);
                syscalls_disarm();
                struck = syscalls_struck() > 0;
                ck_assert_msg(status == DCI_OK || (status == DCI_ERR_IO && struck), "call %zu: %s", nth,
                              dci_last_error());
                ck_assert(status == DCI_OK ? memcmp(npy.data, row, sizeof row) == 0 : npy.data == NULL);
                dci_npy_free(&npy);
                ck_assert_uint_eq(atomic_load(&memory.live_bytes), live);
                ck_assert_uint_eq(test_entries("/proc/self/fd"), descriptors);
        }
        ck_assert_uint_ge(syscalls_made(SYS_READ), 3);
        dci_context_destroy(context);
}
END_TEST

START_TEST(a_mapping_that_finds_no_room_is_out_of_memory)
{
        world = saved_make(SAVED_FLAT, 1);
        scratch_put("file", world.bytes[SAVED_NEW], world.n_bytes[SAVED_NEW]);
        ck_refused(load_under((syscalls_fault){SYS_ERROR, SYS_MMAP, ENOMEM, 1, 1}, true), DCI_ERR_MEMORY, "cannot map");
        ck_refused(load_under((syscalls_fault){SYS_ERROR, SYS_MMAP, EACCES, 1, 1}, true), DCI_ERR_IO, "cannot map");
        ck_ok(load_under((syscalls_fault){.first = 0}, true));
}
END_TEST

/* --- the system's own refusals ------------------------------------------------------------------------------------------------------ */

/* Runs fn in a child; its exit status, 77: the system does not let a test set that up. */
static int in_child(int (*fn)(void))
{
        int status = 0;
        fflush(NULL);
        const pid_t child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0)
                _exit(fn());
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool refused_by_the_system(const char *part)
{
        const dci_status status = saved_save(&world, SAVED_NEW, scratch_path("file"));
        return status == DCI_ERR_IO && strstr(dci_last_error(), part) != NULL &&
               saved_state_of(&world, "file") == SAVED_OLD && scratch_count() == 1;
}

/* Root may write anywhere, so it becomes someone else first. */
static int save_in_a_folder_for_reading(void)
{
        if (chmod(scratch_path("."), 0555) != 0 || chmod(scratch_path("file"), 0444) != 0)
                return 77;
        if (geteuid() == 0 &&
            (setgroups(0, NULL) != 0 || setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0))
                return 77;
        const bool loads = saved_load(&world, SAVED_OLD, false, scratch_path("file")) == DCI_OK;
        return loads && refused_by_the_system("Permission denied") ? 0 : 1;
}

START_TEST(a_folder_for_reading_refuses_saves_and_serves_loads)
{
        world = saved_make(_i, 1);
        scratch_put("file", world.bytes[SAVED_OLD], world.n_bytes[SAVED_OLD]);
        const int result = in_child(save_in_a_folder_for_reading);
        ck_assert_int_eq(chmod(scratch_path("."), 0755), 0);
        ck_assert_msg(result == 0 || result == 77, "exit status %d", result);
}
END_TEST

/* A file system of its own, which the old file and a part of the new one fill. */
static int save_on_a_full_disk(void)
{
        char options[64];
        snprintf(options, sizeof options, "size=%zu", world.n_bytes[SAVED_OLD] + world.n_bytes[SAVED_NEW] / 2);
        if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) != 0 ||
            mount("none", scratch_path("."), "tmpfs", 0, options) != 0)
                return 77;
        scratch_put("file", world.bytes[SAVED_OLD], world.n_bytes[SAVED_OLD]);
        for (int times = 0; times < 3; times++)
                if (!refused_by_the_system("No space left on device"))
                        return 1;
        return saved_load(&world, SAVED_OLD, true, scratch_path("file")) == DCI_OK ? 0 : 2;
}

START_TEST(a_full_disk_leaves_the_old_file)
{
        world = saved_make(_i, 1);
        const int result = in_child(save_on_a_full_disk);
        ck_assert_msg(result == 0 || result == 77, "exit status %d", result);
        /* Where mounting is not allowed: files that may not grow. */
        for (size_t limit = 0; limit < world.n_bytes[SAVED_NEW]; limit += world.n_bytes[SAVED_NEW] / 3) {
                scratch_put("file", world.bytes[SAVED_OLD], world.n_bytes[SAVED_OLD]);
                scratch_limit_file_size(limit);
                const bool refused = refused_by_the_system("File too large");
                scratch_lift_file_size();
                ck_assert(refused);
        }
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("save faults");
        TCase *tcase = test_case_with(suite, "calls", 60, scratch_open, teardown);
        tcase_add_loop_test(tcase, a_save_whose_nth_call_fails_leaves_the_old_file_or_the_new_one, 0, SAVED_KINDS);
        tcase_add_loop_test(tcase, a_disk_that_fails_for_good_costs_the_temporary_file_and_no_other, 0, SAVED_KINDS);
        tcase_add_loop_test(tcase, a_save_goes_on_after_interruptions_and_short_writes, 0, SAVED_KINDS);
        tcase_add_loop_test(tcase, a_load_whose_nth_call_fails_leaves_nothing_behind, 0, 2 * SAVED_KINDS - 1);
        tcase_add_test(tcase, a_write_that_takes_nothing_is_an_error);
        tcase_add_test(tcase, an_array_of_which_a_call_fails_is_not_read);
        tcase_add_test(tcase, a_mapping_that_finds_no_room_is_out_of_memory);
        tcase_add_loop_test(tcase, a_folder_for_reading_refuses_saves_and_serves_loads, 0, SAVED_KINDS);
        tcase_add_loop_test(tcase, a_full_disk_leaves_the_old_file, 0, SAVED_KINDS);
        return test_main(suite);
}
