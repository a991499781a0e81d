/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/scratch.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/common.h"

static char folder[512];

void scratch_open(void)
{
        const char *base = getenv("TMPDIR");
        snprintf(folder, sizeof folder, "%s/dci-test-XXXXXX", base != NULL && base[0] != '\0' ? base : "/tmp");
        ck_assert_msg(mkdtemp(folder) != NULL, "cannot make a folder %s", folder);
}

/* Calls fn for every entry but . and ..; returns how many there are. */
static size_t each_entry(void (*fn)(const char *path))
{
        size_t n = 0;
        DIR *directory = opendir(folder);
        ck_assert_ptr_nonnull(directory);
        for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
                if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
                        continue;
                n++;
                if (fn != NULL)
                        fn(scratch_path(entry->d_name));
        }
        closedir(directory);
        return n;
}

static void remove_entry(const char *path)
{
        ck_assert_int_eq(remove(path), 0);
}

void scratch_close(void)
{
        each_entry(remove_entry);
        ck_assert_int_eq(rmdir(folder), 0);
}

const char *scratch_path(const char *name)
{
        static char paths[8][1024];
        static unsigned next;
        char *path = paths[next++ % 8];
        snprintf(path, sizeof paths[0], "%s/%s", folder, name);
        return path;
}

size_t scratch_count(void)
{
        return each_entry(NULL);
}

void scratch_put(const char *name, const void *data, size_t n_bytes)
{
        FILE *file = fopen(scratch_path(name), "wb");
        ck_assert_ptr_nonnull(file);
        ck_assert_uint_eq(fwrite(data, 1, n_bytes, file), n_bytes);
        ck_assert_int_eq(fclose(file), 0);
}

unsigned char *scratch_get(const char *name, size_t *out_bytes)
{
        struct stat found;
        FILE *file = fopen(scratch_path(name), "rb");
        ck_assert_ptr_nonnull(file);
        ck_assert_int_eq(fstat(fileno(file), &found), 0);
        *out_bytes = (size_t)found.st_size;
        unsigned char *bytes = malloc(*out_bytes + 1);
        ck_assert_ptr_nonnull(bytes);
        ck_assert_uint_eq(fread(bytes, 1, *out_bytes, file), *out_bytes);
        fclose(file);
        return bytes;
}

void scratch_expect(const char *name, const void *data, size_t n_bytes)
{
        size_t n_found;
        unsigned char *found = scratch_get(name, &n_found);
        ck_assert_uint_eq(n_found, n_bytes);
        ck_assert_mem_eq(found, data, n_bytes);
        free(found);
}

static void set_limit(rlim_t n_bytes)
{
        struct rlimit limit;
        ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
        limit.rlim_cur = n_bytes < limit.rlim_max ? n_bytes : limit.rlim_max;
        ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

void scratch_limit_file_size(size_t n_bytes)
{
        ck_assert(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
        set_limit(n_bytes);
}

void scratch_lift_file_size(void)
{
        set_limit(RLIM_INFINITY);
}

void scratch_each_odd_file(void (*check)(const char *path, const char *wanted))
{
        static char longest[5000];
        memset(longest, 'x', sizeof longest - 1);
        mkdir(scratch_path("directory"), 0777);
        mkfifo(scratch_path("fifo"), 0666);
        scratch_put("plain", "plain", 5);
        const struct {
                const char *path, *wanted;
        } rows[] = {{scratch_path("directory"), "a directory, wanted a regular file"},
                    {scratch_path("fifo"), "a FIFO, wanted a regular file"},
                    {"/dev/null", "a device or socket, wanted a regular file"},
                    {scratch_path("absent/file"), "No such file or directory"},
                    {scratch_path("plain/file"), "Not a directory"},
                    {longest, "xxx: File name too long"},
                    {NULL, "path is NULL"}};
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
                check(rows[i].path, rows[i].wanted);
        scratch_expect("plain", "plain", 5);
        ck_assert_uint_eq(scratch_count(), 3);
}
