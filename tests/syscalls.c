/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/syscalls.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* One thread at a time arms, makes calls and disarms. */
static struct {
        bool armed;
        syscalls_fault fault;
        size_t made[SYS_KINDS], all, struck;
} state;

void syscalls_arm(syscalls_fault fault)
{
        memset(&state, 0, sizeof state);
        state.fault = fault;
        state.armed = true;
}

void syscalls_disarm(void)
{
        state.armed = false;
}

size_t syscalls_made(int kind)
{
        return kind == SYS_ANY ? state.all : state.made[kind];
}

size_t syscalls_struck(void)
{
        return state.struck;
}

const char *syscalls_name(int kind)
{
        static const char *const names[SYS_KINDS] = {"open",  "stat",   "read",   "write", "fsync",
                                                     "close", "rename", "unlink", "chmod", "mmap"};
        return kind == SYS_ANY ? "call" : names[kind];
}

/* Counts a call; whether the fault strikes it. */
static bool strikes(int kind)
{
        const syscalls_fault *f = &state.fault;
        if (!state.armed)
                return false;
        state.made[kind]++;
        state.all++;
        const size_t number = f->kind == SYS_ANY ? state.all : state.made[kind];
        if ((f->kind != SYS_ANY && f->kind != kind) || f->first == 0 || number < f->first ||
            number - f->first >= f->times)
                return false;
        state.struck++;
        if (f->how == SYS_KILL)
                kill(getpid(), SIGKILL);
        return f->how == SYS_ERROR || ((kind == SYS_READ || kind == SYS_WRITE) && f->how != SYS_KILL);
}

static int fail(void)
{
        errno = state.fault.error;
        return -1;
}

/* The names that the linker gives them. */
/* NOLINTBEGIN(bugprone-reserved-identifier) */
int __real_open(const char *path, int flags, ...);
int __real_openat(int directory, const char *path, int flags, ...);
int __real_fstat(int descriptor, struct stat *out);
int __real_fstatat(int directory, const char *path, struct stat *out, int flags);
ssize_t __real_read(int descriptor, void *out, size_t n);
ssize_t __real_write(int descriptor, const void *data, size_t n);
int __real_fsync(int descriptor);
int __real_close(int descriptor);
int __real_renameat(int from_directory, const char *from, int to_directory, const char *to);
int __real_unlinkat(int directory, const char *path, int flags);
int __real_fchmod(int descriptor, mode_t mode);
void *__real_mmap(void *address, size_t n, int protection, int flags, int descriptor, off_t offset);
int __wrap_open(const char *path, int flags, ...);
int __wrap_openat(int directory, const char *path, int flags, ...);
int __wrap_fstat(int descriptor, struct stat *out);
int __wrap_fstatat(int directory, const char *path, struct stat *out, int flags);
ssize_t __wrap_read(int descriptor, void *out, size_t n);
ssize_t __wrap_write(int descriptor, const void *data, size_t n);
int __wrap_fsync(int descriptor);
int __wrap_close(int descriptor);
int __wrap_renameat(int from_directory, const char *from, int to_directory, const char *to);
int __wrap_unlinkat(int directory, const char *path, int flags);
int __wrap_fchmod(int descriptor, mode_t mode);
void *__wrap_mmap(void *address, size_t n, int protection, int flags, int descriptor, off_t offset);

static mode_t mode_of(int flags, va_list arguments)
{
        return (flags & O_CREAT) != 0 ? (mode_t)va_arg(arguments, unsigned) : 0;
}

int __wrap_open(const char *path, int flags, ...)
{
        va_list arguments;
        va_start(arguments, flags);
        const mode_t mode = mode_of(flags, arguments);
        va_end(arguments);
        return strikes(SYS_OPEN) ? fail() : __real_open(path, flags, mode);
}

int __wrap_openat(int directory, const char *path, int flags, ...)
{
        va_list arguments;
        va_start(arguments, flags);
        const mode_t mode = mode_of(flags, arguments);
        va_end(arguments);
        return strikes(SYS_OPEN) ? fail() : __real_openat(directory, path, flags, mode);
}

int __wrap_fstat(int descriptor, struct stat *out)
{
        return strikes(SYS_STAT) ? fail() : __real_fstat(descriptor, out);
}

int __wrap_fstatat(int directory, const char *path, struct stat *out, int flags)
{
        return strikes(SYS_STAT) ? fail() : __real_fstatat(directory, path, out, flags);
}

ssize_t __wrap_read(int descriptor, void *out, size_t n)
{
        if (!strikes(SYS_READ))
                return __real_read(descriptor, out, n);
        if (state.fault.how == SYS_END)
                return 0;
        return state.fault.how == SYS_ERROR ? fail() : __real_read(descriptor, out, n - n / 2);
}

ssize_t __wrap_write(int descriptor, const void *data, size_t n)
{
        if (!strikes(SYS_WRITE))
                return __real_write(descriptor, data, n);
        if (state.fault.how == SYS_END)
                return 0;
        if (state.fault.how == SYS_ERROR)
                return fail();
        const ssize_t half = __real_write(descriptor, data, n - n / 2);
        if (state.fault.how == SYS_KILL_IN)
                kill(getpid(), SIGKILL);
        return half;
}

int __wrap_fsync(int descriptor)
{
        return strikes(SYS_FSYNC) ? fail() : __real_fsync(descriptor);
}

int __wrap_close(int descriptor)
{
        const bool struck = strikes(SYS_CLOSE);
        const int result = __real_close(descriptor);
        return struck ? fail() : result;
}

int __wrap_renameat(int from_directory, const char *from, int to_directory, const char *to)
{
        return strikes(SYS_RENAME) ? fail() : __real_renameat(from_directory, from, to_directory, to);
}

int __wrap_unlinkat(int directory, const char *path, int flags)
{
        return strikes(SYS_UNLINK) ? fail() : __real_unlinkat(directory, path, flags);
}

int __wrap_fchmod(int descriptor, mode_t mode)
{
        return strikes(SYS_CHMOD) ? fail() : __real_fchmod(descriptor, mode);
}

void *__wrap_mmap(void *address, size_t n, int protection, int flags, int descriptor, off_t offset)
{
        /* Only files: allocators map memory, too. */
        if (descriptor >= 0 && strikes(SYS_MMAP)) {
                errno = state.fault.error;
                return MAP_FAILED;
        }
        return __real_mmap(address, n, protection, flags, descriptor, offset);
}
/* NOLINTEND(bugprone-reserved-identifier) */
