/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * What the library asks of the operating system about files, counted, and made to fail at any call. The suites that use it are linked with
 * --wrap (tests/CMakeLists.txt), so the calls of the static library come here first; nothing in the library knows of it.
 */
#ifndef DCI_TESTS_SYSCALLS_H
#define DCI_TESTS_SYSCALLS_H

#include <stddef.h>

enum {
        SYS_OPEN,
        SYS_STAT,
        SYS_READ,
        SYS_WRITE,
        SYS_FSYNC,
        SYS_CLOSE,
        SYS_RENAME,
        SYS_UNLINK,
        SYS_CHMOD,
        SYS_MMAP,
        SYS_KINDS,
        SYS_ANY = -1
};

enum {
        SYS_ERROR,  /* the call does nothing but set errno; close closes all the same, as the system does */
        SYS_SHORT,  /* reads and writes take half of what they are given, rounded up */
        SYS_END,    /* reads find the end of the file, writes take nothing */
        SYS_KILL,   /* the process is killed where it would make the call */
        SYS_KILL_IN /* the process is killed in the middle of a write: half of it is done */
};

typedef struct syscalls_fault {
        int how, kind; /* SYS_ANY: calls of every kind */
        int error;     /* errno, for SYS_ERROR */
        size_t first;  /* the first call of that kind that it strikes, from 1 on; 0: none */
        size_t times;  /* how many calls in a row: 1, or SIZE_MAX for all that follow */
} syscalls_fault;

/* From here on calls are counted and struck. */
void syscalls_arm(syscalls_fault fault);
/* No longer. How many calls of a kind (SYS_ANY: of all) there were, and how many were struck, stays to be asked. */
void syscalls_disarm(void);
size_t syscalls_made(int kind);
size_t syscalls_struck(void);
/* "write", ..; "call" for SYS_ANY. */
const char *syscalls_name(int kind);

#endif
