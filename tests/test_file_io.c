/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Reading a file of known size and replacing one atomically, under the failures that a disk can have. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/file.h"
#include "tests/common.h"
#include "tests/scratch.h"

static dci_status replace(const char *path, const void *data, size_t n_bytes)
{
        dci_replacement replacement;
        dci_status status = dci_replace_begin(path, &replacement);
        return status != DCI_OK ? status
                                : dci_replace_end(&replacement, dci_replace_write(&replacement, data, n_bytes));
}

START_TEST(a_replaced_file_holds_the_new_bytes_and_nothing_else_is_left)
{
        scratch_put("file", "a long old content", 18);
        ck_ok(replace(scratch_path("file"), "new", 3));
        scratch_expect("file", "new", 3);
        ck_ok(replace(scratch_path("file"), NULL, 0));
        scratch_expect("file", "", 0);
        ck_assert_uint_eq(scratch_count(), 1);
}
END_TEST

START_TEST(a_path_without_a_folder_means_the_working_directory)
{
        char before[4096];
        ck_assert_ptr_nonnull(getcwd(before, sizeof before));
        ck_assert_int_eq(chdir(scratch_path(".")), 0);
        dci_status status = replace("file", "new", 3);
        ck_assert_int_eq(chdir(before), 0);
        ck_ok(status);
        scratch_expect("file", "new", 3);
        ck_assert_uint_eq(scratch_count(), 1);
}
END_TEST

START_TEST(a_new_file_follows_the_umask_and_a_replaced_one_keeps_its_permissions)
{
        struct stat found;
        mode_t before = umask(027);
        ck_ok(replace(scratch_path("file"), "new", 3));
        ck_assert_int_eq(stat(scratch_path("file"), &found), 0);
        ck_assert_uint_eq(found.st_mode & 07777, 0640);
        ck_assert_int_eq(chmod(scratch_path("file"), 0606), 0);
        ck_ok(replace(scratch_path("file"), "new", 3));
        umask(before);
        ck_assert_int_eq(stat(scratch_path("file"), &found), 0);
        ck_assert_uint_eq(found.st_mode & 07777, 0606);
}
END_TEST

/* The number goes with the sentence: the system's where that quotes its words. */
static void check_errno(const char *wanted)
{
        static const struct {
                const char *words;
                int number;
        } known[] = {{"No such file", ENOENT},
                     {"Not a directory", ENOTDIR},
                     {"too long", ENAMETOOLONG},
                     {"a directory,", EISDIR},
                     {"Is a directory", EISDIR}};
        int expected = 0;
        for (size_t i = 0; i < sizeof known / sizeof known[0] && expected == 0; i++)
                if (strstr(dci_last_error(), known[i].words) != NULL)
                        expected = known[i].number;
        ck_assert_msg(dci_last_errno() == expected, "errno %d of '%s', expected %d", (int)dci_last_errno(), wanted,
                      expected);
}

static void refuse_open(const char *path, const char *wanted)
{
        dci_source source;
        dci_status status = dci_source_open(path, &source);
        ck_assert(status == DCI_ERR_IO || status == DCI_ERR_INVALID);
        ck_refused(status, status, wanted);
        check_errno(wanted);
}

static void refuse_replace(const char *path, const char *wanted)
{
        dci_status status = replace(path, "new", 3);
        ck_assert(status == DCI_ERR_IO || status == DCI_ERR_INVALID);
        ck_refused(status, status, wanted);
        check_errno(wanted);
}

START_TEST(only_regular_files_are_opened)
{
        scratch_each_odd_file(refuse_open);
        refuse_open(scratch_path("absent"), "/absent: No such file or directory");
        refuse_open("", "cannot open : No such file or directory");
}
END_TEST

START_TEST(only_regular_files_are_replaced)
{
        scratch_each_odd_file(refuse_replace);
        ck_assert_int_eq(symlink("plain", scratch_path("link")), 0);
        refuse_replace(scratch_path("link"), "a symbolic link, wanted a regular file: save to the path");
        refuse_replace(scratch_path(""), "names no file");
        refuse_replace("", "names no file");
        refuse_replace("/", "names no file");
        refuse_replace(scratch_path("."), "a directory");
        char path[8192];
        memset(path, '/', sizeof path);
        memcpy(path + sizeof path - 5, "file", 5);
        ck_refused(replace(path, "new", 3), DCI_ERR_LIMIT, "a path of 8186 bytes, at most 4095");
        scratch_expect("plain", "plain", 5);
        ck_assert_uint_eq(scratch_count(), 4);
}
END_TEST

/* Puts something else under a descriptor, so that the next system call on it fails. */
static void swap_descriptor(int descriptor, int other)
{
        ck_assert_int_ge(other, 0);
        ck_assert_int_eq(dup2(other, descriptor), descriptor);
        close(other);
}

START_TEST(a_replacement_that_fails_at_any_step_leaves_the_old_file)
{
        enum { WRITE, FLUSH, CLOSE, RENAME, CALLER, N_STEPS };
        static const char *const parts[N_STEPS] = {"cannot write", "cannot flush", "cannot flush", "cannot replace",
                                                   "caller"};
        for (int step = 0; step < N_STEPS; step++) {
                dci_replacement replacement;
                dci_status status = DCI_OK;
                int ends[2];
                scratch_put("file", "old", 3);
                ck_ok(dci_replace_begin(scratch_path("file"), &replacement));
                ck_assert_uint_eq(scratch_count(), 2);
                if (step == WRITE)
                        swap_descriptor(replacement.descriptor, open("/dev/full", O_WRONLY));
                if (step == CLOSE)
                        close(replacement.descriptor);
                if (step == FLUSH) {
                        ck_assert_int_eq(pipe(ends), 0);
                        swap_descriptor(replacement.descriptor, ends[1]);
                }
                if (step != CLOSE)
                        status = dci_replace_write(&replacement, "new", 3);
                if (step == WRITE)
                        ck_refused(status, DCI_ERR_IO, "No space left on device");
                else
                        ck_ok(status);
                if (step == RENAME) {
                        ck_assert_int_eq(unlink(scratch_path("file")), 0);
                        ck_assert_int_eq(mkdir(scratch_path("file"), 0777), 0);
                }
                if (step == CALLER)
                        status = dci_fail(DCI_ERR_CANCELLED, "the caller gives up");
                ck_refused(dci_replace_end(&replacement, status), step == CALLER ? DCI_ERR_CANCELLED : DCI_ERR_IO,
                           parts[step]);
                ck_assert_uint_eq(scratch_count(), 1);
                if (step == FLUSH)
                        close(ends[0]);
                if (step == RENAME)
                        ck_assert_int_eq(rmdir(scratch_path("file")), 0);
                else
                        scratch_expect("file", "old", 3);
        }
}
END_TEST

/* What a killed process leaves: the file, without a lock. */
static void leave(const char *path)
{
        dci_replacement replacement;
        ck_ok(dci_replace_begin(path, &replacement));
        close(replacement.descriptor);
        close(replacement.directory);
}

START_TEST(a_replacement_removes_what_was_left_and_nothing_in_use)
{
        enum { MOST = 16 };
        dci_replacement all[MOST], other;
        scratch_put("file", "old", 3);
        leave(scratch_path("file"));
        ck_assert_uint_eq(scratch_count(), 2);
        ck_ok(replace(scratch_path("file"), "new", 3));
        ck_assert_uint_eq(scratch_count(), 1);
        /* Of many at a time, any one may be left; the others are not touched, nor is what another target left. */
        leave(scratch_path("another"));
        for (size_t i = 0; i < MOST; i++) {
                char content = (char)('a' + (int)i);
                ck_ok(dci_replace_begin(scratch_path("file"), &all[i]));
                ck_ok(dci_replace_write(&all[i], &content, 1));
        }
        ck_assert_uint_eq(scratch_count(), 2 + MOST);
        ck_refused(dci_replace_begin(scratch_path("file"), &other), DCI_ERR_IO, "16 saves to it are under way");
        for (size_t i = 0; i < MOST; i += 3) {
                close(all[i].descriptor);
                close(all[i].directory);
        }
        ck_ok(replace(scratch_path("file"), "new", 3));
        ck_assert_uint_eq(scratch_count(), 2 + MOST - (MOST + 2) / 3);
        for (size_t i = 0; i < MOST; i++) {
                char content = (char)('a' + (int)i);
                if (i % 3 == 0)
                        continue;
                ck_ok(dci_replace_end(&all[i], DCI_OK));
                scratch_expect("file", &content, 1);
        }
        ck_assert_uint_eq(scratch_count(), 2);
        ck_ok(replace(scratch_path("another"), "new", 3));
        ck_assert_uint_eq(scratch_count(), 2);
}
END_TEST

/* Files of that name which a save did not make, or may not open, stay as they are. */
START_TEST(a_replacement_goes_around_what_it_cannot_remove)
{
        dci_replacement replacement;
        char first[64];
        ck_ok(dci_replace_begin(scratch_path("file"), &replacement));
        snprintf(first, sizeof first, "%s", replacement.temporary);
        ck_ok(dci_replace_end(&replacement, DCI_OK));
        ck_assert_int_eq(mkdir(scratch_path(first), 0777), 0);
        ck_ok(replace(scratch_path("file"), "new", 3));
        ck_assert_uint_eq(scratch_count(), 2);
        ck_assert_int_eq(rmdir(scratch_path(first)), 0);
        ck_assert_int_eq(mkfifo(scratch_path(first), 0666), 0);
        ck_ok(replace(scratch_path("file"), "new", 3));
        ck_assert_uint_eq(scratch_count(), 2);
        ck_assert_int_eq(unlink(scratch_path(first)), 0);
        ck_assert_int_eq(symlink("file", scratch_path(first)), 0);
        ck_ok(replace(scratch_path("file"), "newer", 5));
        ck_assert_uint_eq(scratch_count(), 2);
        scratch_expect("file", "newer", 5);
}
END_TEST

START_TEST(a_failed_replacement_gives_its_descriptors_back)
{
        int before = open("/dev/null", O_RDONLY);
        close(before);
        scratch_put("file", "old", 3);
        for (int i = 0; i < 3; i++) {
                dci_replacement replacement;
                ck_ok(dci_replace_begin(scratch_path("file"), &replacement));
                ck_ok(dci_replace_end(&replacement, DCI_OK));
                ck_ok(dci_replace_begin(scratch_path("file"), &replacement));
                ck_assert_int_eq(dci_replace_end(&replacement, DCI_ERR_IO), DCI_ERR_IO);
                ck_assert_int_eq(dci_replace_begin(scratch_path("."), &replacement), DCI_ERR_INVALID);
                dci_source source;
                ck_assert_int_eq(dci_source_open(scratch_path("."), &source), DCI_ERR_INVALID);
        }
        int after = open("/dev/null", O_RDONLY);
        close(after);
        ck_assert_int_eq(after, before);
}
END_TEST

/* Allows no descriptor from `limit` on; returns the former limit. */
static rlim_t limit_descriptors(rlim_t limit)
{
        struct rlimit now;
        ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &now), 0);
        rlim_t before = now.rlim_cur;
        now.rlim_cur = limit;
        ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &now), 0);
        return before;
}

START_TEST(a_process_out_of_descriptors_gets_a_status)
{
        static const char *const parts[] = {"cannot open the folder of", "cannot create a temporary file next to"};
        scratch_put("file", "old", 3);
        int next = open("/dev/null", O_RDONLY);
        close(next);
        for (int n_free = 0; n_free < 2; n_free++) {
                rlim_t before = limit_descriptors((rlim_t)(next + n_free));
                dci_status status = replace(scratch_path("file"), "new", 3);
                limit_descriptors(before);
                ck_refused(status, DCI_ERR_IO, parts[n_free]);
                scratch_expect("file", "old", 3);
        }
}
END_TEST

START_TEST(a_read_that_fails_is_reported)
{
        char bytes[4];
        dci_source source = {"broken", open(scratch_path("."), O_RDONLY), 4};
        ck_refused(dci_source_read(&source, bytes, 4), DCI_ERR_IO, "cannot read broken: Is a directory");
        dci_source_close(&source);
}
END_TEST

START_TEST(a_file_that_shrinks_while_it_is_read_is_refused)
{
        dci_source source;
        char bytes[10];
        scratch_put("file", "0123456789", 10);
        ck_ok(dci_source_open(scratch_path("file"), &source));
        ck_assert_uint_eq(source.n_bytes, 10);
        ck_ok(dci_source_read(&source, bytes, 4));
        ck_assert_mem_eq(bytes, "0123", 4);
        ck_assert_int_eq(truncate(scratch_path("file"), 7), 0);
        ck_refused(dci_source_read(&source, bytes, 6), DCI_ERR_FORMAT, "became shorter than 10 bytes");
        ck_assert_ptr_nonnull(strstr(dci_last_error(), "3 are missing"));
        dci_source_close(&source);
}
END_TEST

START_TEST(bytes_that_arrive_in_pieces_are_all_read)
{
        /* More than a pipe holds, so that neither side can pass it in one call. */
        enum { N_BYTES = 1 << 20 };
        static unsigned char sent[N_BYTES], received[N_BYTES];
        for (size_t i = 0; i < N_BYTES; i++)
                sent[i] = (unsigned char)(i * 31 >> 3);
        int ends[2];
        ck_assert_int_eq(pipe(ends), 0);
        pid_t child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0) {
                dci_replacement to = {.name = "pipe", .descriptor = ends[1]};
                _exit(dci_replace_write(&to, sent, N_BYTES) == DCI_OK ? 0 : 1);
        }
        close(ends[1]);
        dci_source source = {"pipe", ends[0], N_BYTES};
        ck_ok(dci_source_read(&source, received, N_BYTES));
        dci_source_close(&source);
        int result;
        ck_assert_int_eq(waitpid(child, &result, 0), child);
        ck_assert_int_eq(result, 0);
        ck_assert_mem_eq(received, sent, N_BYTES);
}
END_TEST

typedef struct saver {
        const char *path;
        unsigned char fill;
        atomic_size_t *running;
        dci_status status;
} saver;

/* Each content says how long it is: `fill` thousand bytes of `fill`. */
static void *save_often(void *arg)
{
        saver *self = arg;
        unsigned char data[5000];
        memset(data, self->fill, sizeof data);
        for (int i = 0; i < 20 && self->status == DCI_OK; i++)
                self->status = replace(self->path, data, self->fill * (size_t)1000);
        atomic_fetch_sub(self->running, 1);
        return NULL;
}

static void expect_whole(const char *path)
{
        dci_source source;
        unsigned char data[5000];
        ck_ok(dci_source_open(path, &source));
        ck_assert(source.n_bytes >= 1000 && source.n_bytes <= sizeof data);
        ck_ok(dci_source_read(&source, data, source.n_bytes));
        ck_assert_uint_eq(source.n_bytes, data[0] * (size_t)1000);
        for (size_t i = 1; i < source.n_bytes; i++)
                ck_assert_uint_eq(data[i], data[0]);
        dci_source_close(&source);
}

START_TEST(a_reader_beside_writers_finds_one_whole_file)
{
        static unsigned char first[1000];
        memset(first, 1, sizeof first);
        char path[1024];
        strcpy(path, scratch_path("file"));
        scratch_put("file", first, sizeof first);
        atomic_size_t running = 3;
        saver savers[3];
        pthread_t threads[3];
        for (unsigned char i = 0; i < 3; i++) {
                savers[i] = (saver){path, (unsigned char)(i + 2), &running, DCI_OK};
                ck_assert_int_eq(pthread_create(&threads[i], NULL, save_often, &savers[i]), 0);
        }
        do
                expect_whole(path);
        while (atomic_load(&running) > 0);
        for (int i = 0; i < 3; i++) {
                pthread_join(threads[i], NULL);
                ck_assert_int_eq(savers[i].status, DCI_OK);
        }
        ck_assert_uint_eq(scratch_count(), 1);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("file_io");
        TCase *disk = test_case_with(suite, "disk", 120, scratch_open, scratch_close);
        tcase_add_test(disk, a_replaced_file_holds_the_new_bytes_and_nothing_else_is_left);
        tcase_add_test(disk, a_path_without_a_folder_means_the_working_directory);
        tcase_add_test(disk, a_new_file_follows_the_umask_and_a_replaced_one_keeps_its_permissions);
        tcase_add_test(disk, only_regular_files_are_opened);
        tcase_add_test(disk, only_regular_files_are_replaced);
        tcase_add_test(disk, a_replacement_that_fails_at_any_step_leaves_the_old_file);
        tcase_add_test(disk, a_replacement_removes_what_was_left_and_nothing_in_use);
        tcase_add_test(disk, a_replacement_goes_around_what_it_cannot_remove);
        tcase_add_test(disk, a_failed_replacement_gives_its_descriptors_back);
        tcase_add_test(disk, a_process_out_of_descriptors_gets_a_status);
        tcase_add_test(disk, a_read_that_fails_is_reported);
        tcase_add_test(disk, a_file_that_shrinks_while_it_is_read_is_refused);
        tcase_add_test(disk, bytes_that_arrive_in_pieces_are_all_read);
        tcase_add_test(disk, a_reader_beside_writers_finds_one_whole_file);
        return test_main(suite);
}
