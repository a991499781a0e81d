/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* syscall() and madvise() are the C library's, not POSIX's. */
#define _GNU_SOURCE
#include "gpu/gpu_internal.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gpu/cuda/pin.h"

int32_t dci_gpu_numa_node(const char *bus_id)
{
        char path[96], name[32];
        size_t n = 0;
        for (; n < sizeof name - 1 && bus_id[n] != '\0'; n++)
                name[n] = (char)tolower((unsigned char)bus_id[n]);
        name[n] = '\0';
        snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", name);
        FILE *file = fopen(path, "r");
        if (file == NULL)
                return -1;
        const char *line = fgets(name, (int)sizeof name, file);
        char *end = name;
        const long node = line != NULL ? strtol(line, &end, 10) : -1;
        fclose(file);
        return end == name || node < 0 || node > INT32_MAX ? -1 : (int32_t)node;
}

/* The system call: <numaif.h> comes with a library that nothing else needs. Numbers as in the kernel's mempolicy.h. */
#define POLICY_PREFERRED 1
#define POLICY_MOVE 2
#define MAX_NODES 1024

static void move_near(uintptr_t begin, uintptr_t end, int32_t node)
{
#if defined(SYS_mbind)
        enum { WORD = 8 * sizeof(unsigned long) };
        unsigned long nodes[MAX_NODES / WORD] = {0};
        if (node < 0 || node >= MAX_NODES)
                return;
        nodes[(size_t)node / WORD] = 1ul << ((size_t)node % WORD);
        (void)syscall(SYS_mbind, begin, end - begin, POLICY_PREFERRED, nodes, (unsigned long)MAX_NODES, POLICY_MOVE);
#else
        (void)begin, (void)end, (void)node;
#endif
}

void dci_gpu_place(void *memory, size_t n_bytes, int32_t node)
{
        const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
        /* Whole pages inside of the memory: others' bytes stay as they are. */
        const uintptr_t begin = ((uintptr_t)memory + page - 1) / page * page;
        const uintptr_t end = ((uintptr_t)memory + n_bytes) / page * page;
        if (end <= begin)
                return;
#if defined(MADV_HUGEPAGE)
        (void)madvise((unsigned char *)memory + (begin - (uintptr_t)memory), end - begin, MADV_HUGEPAGE);
#endif
        move_near(begin, end, node);
}

void dci_gpu_lock_limit(char *out, size_t size)
{
        struct rlimit limit;
        if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0)
                snprintf(out, size, "RLIMIT_MEMLOCK is not known");
        else if (limit.rlim_cur == RLIM_INFINITY)
                snprintf(out, size, "RLIMIT_MEMLOCK is unlimited");
        else
                snprintf(out, size, "RLIMIT_MEMLOCK is %llu bytes", (unsigned long long)limit.rlim_cur);
}
