/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "tests/guard.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/common.h"

enum { MAX_ARRAYS = 256 };

typedef struct guarded {
        unsigned char *pages; /* inaccessible, accessible, inaccessible */
        size_t n_accessible;
        unsigned char *array;
        size_t n_bytes;
} guarded;

static guarded arrays[MAX_ARRAYS];
static size_t n_arrays, n_kept;
static bool at_begin;

void guard_at_begin(bool begin)
{
        at_begin = begin;
}

static size_t page_bytes(void)
{
        return (size_t)sysconf(_SC_PAGESIZE);
}

static guarded *take(size_t n_bytes)
{
        const size_t page = page_bytes();
        ck_assert(n_arrays < MAX_ARRAYS);
        guarded *g = &arrays[n_arrays++];
        g->n_bytes = n_bytes;
        g->n_accessible = (n_bytes + page - 1) / page * page;
        g->pages = mmap(NULL, g->n_accessible + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ck_assert(g->pages != MAP_FAILED);
        g->array = g->pages + page;
        if (n_bytes > 0) {
                ck_assert_int_eq(mprotect(g->array, g->n_accessible, PROT_READ | PROT_WRITE), 0);
                memset(g->array, GUARD_FILL, g->n_accessible);
        }
        if (!at_begin)
                g->array += g->n_accessible - n_bytes;
        return g;
}

void *guard_out(size_t n_bytes)
{
        return take(n_bytes)->array;
}

void *guard_copy(const void *data, size_t n_bytes)
{
        void *out = guard_out(n_bytes);
        if (n_bytes > 0)
                memcpy(out, data, n_bytes);
        return out;
}

static const void *seal(const guarded *g)
{
        if (g->n_bytes > 0)
                ck_assert_int_eq(mprotect(g->pages + page_bytes(), g->n_accessible, PROT_READ), 0);
        return g->array;
}

const void *guard_in(const void *data, size_t n_bytes)
{
        guarded *g = take(n_bytes);
        if (n_bytes > 0)
                memcpy(g->array, data, n_bytes);
        return seal(g);
}

size_t guard_bytes(size_t n, size_t dim, size_t ld, size_t element_bytes)
{
        return n == 0 ? 0 : ((n - 1) * ld + dim) * element_bytes;
}

const void *guard_rows(const void *rows, size_t n, size_t dim, size_t ld, size_t element_bytes)
{
        guarded *g = take(guard_bytes(n, dim, ld, element_bytes));
        for (size_t i = 0; i < n; i++)
                memcpy(g->array + i * ld * element_bytes, (const char *)rows + i * dim * element_bytes,
                       dim * element_bytes);
        return seal(g);
}

void guard_gaps(const void *out, size_t n, size_t dim, size_t ld, size_t element_bytes, const char *what)
{
        const unsigned char *at = out;
        for (size_t i = 0; i + 1 < n; i++)
                for (size_t j = dim * element_bytes; j < ld * element_bytes; j++)
                        if (at[i * ld * element_bytes + j] != GUARD_FILL)
                                ck_abort_msg("%s: the gap after row %zu was written, at byte %zu", what, i,
                                             j - dim * element_bytes);
}

void guard_release(void)
{
        const size_t page = page_bytes();
        while (n_arrays > n_kept) {
                const guarded *g = &arrays[--n_arrays];
                for (size_t i = 0; i < g->n_accessible; i++)
                        if (g->pages + page + i < g->array || g->pages + page + i >= g->array + g->n_bytes)
                                ck_assert_msg(g->pages[page + i] == GUARD_FILL,
                                              "an array of %zu bytes: byte %td of it was written", g->n_bytes,
                                              g->pages + page + i - g->array);
                munmap(g->pages, g->n_accessible + 2 * page);
        }
}

void guard_keep(void)
{
        n_kept = n_arrays;
}

void guard_release_all(void)
{
        n_kept = 0;
        guard_release();
}
