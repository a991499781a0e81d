/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Memory through the context's allocator, with checked sizes. */
#include "core/internal.h"

#include <string.h>

bool dci_mul(size_t a, size_t b, size_t *out)
{
        if (b != 0 && a > SIZE_MAX / b)
                return false;
        *out = a * b;
        return true;
}

bool dci_add(size_t a, size_t b, size_t *out)
{
        if (a > SIZE_MAX - b)
                return false;
        *out = a + b;
        return true;
}

static void *alloc_at(dci_context *context, size_t count, size_t size, size_t alignment)
{
        size_t n_bytes;
        /* PTRDIFF_MAX: larger objects break pointer arithmetic, and leave room for the allocator's own rounding. */
        if (!dci_mul(count, size, &n_bytes) || n_bytes > PTRDIFF_MAX) {
                dci_fail(DCI_ERR_MEMORY, "%zu objects of %zu bytes exceed the address space", count, size);
                return NULL;
        }
        if (n_bytes == 0)
                n_bytes = 1;
        void *pointer = context->allocator.alloc(context->allocator.ctx, n_bytes, alignment);
        if (pointer == NULL)
                dci_fail(DCI_ERR_MEMORY, "no memory for %zu bytes", n_bytes);
        return pointer;
}

void *dci_alloc(dci_context *context, size_t count, size_t size)
{
        return alloc_at(context, count, size, DCI_CACHE_LINE);
}

void *dci_alloc_pages(dci_context *context, size_t n_bytes)
{
        return alloc_at(context, n_bytes, 1, DCI_MEMORY_PAGE);
}

void *dci_calloc(dci_context *context, size_t count, size_t size)
{
        void *pointer = dci_alloc(context, count, size);
        if (pointer != NULL)
                memset(pointer, 0, count * size);
        return pointer;
}

void dci_free(dci_context *context, void *pointer, size_t count, size_t size)
{
        size_t n_bytes = count * size;
        if (pointer != NULL)
                context->allocator.free(context->allocator.ctx, pointer, n_bytes == 0 ? 1 : n_bytes);
}
