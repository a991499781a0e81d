/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The context: what objects share. Reference counted, immutable but for the thread limit. */
#define _GNU_SOURCE /* madvise */
#include "core/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/executor.h"
#include "simd/cpu.h"

#define MAX_THREADS 1024

/* Large blocks are put on large pages where the system has them on demand: rows that are read here and there then miss
 * the address cache less, and fresh memory takes a fault per 2 MiB in place of 512. */
#define LARGE_PAGE ((size_t)2 << 20)
#define LARGE_BLOCK (2 * LARGE_PAGE)

static void *default_alloc(void *ctx, size_t size, size_t alignment)
{
        (void)ctx;
        if (size >= LARGE_BLOCK)
                alignment = LARGE_PAGE;
        /* C11 wants a multiple of the alignment; sizes are at most PTRDIFF_MAX, so the sum cannot wrap. */
        const size_t rounded = (size + alignment - 1) / alignment * alignment;
        void *pointer = aligned_alloc(alignment, rounded);
#ifdef MADV_HUGEPAGE
        if (pointer != NULL && size >= LARGE_BLOCK)
                madvise(pointer, rounded, MADV_HUGEPAGE); /* a hint: it may be refused */
#endif
        return pointer;
}

static void default_free(void *ctx, void *pointer, size_t size)
{
        (void)ctx;
        (void)size;
        free(pointer);
}

dci_status dci_context_config_init(dci_context_config *config, size_t struct_size)
{
        DCI_TRY(dci_struct_init("dci_context_config", config, struct_size, sizeof *config));
        config->executor_kind = dci_openmp_built() ? DCI_EXECUTOR_OPENMP : DCI_EXECUTOR_PTHREADS;
        return DCI_OK;
}

static dci_status check_config(const dci_context_config *config)
{
        DCI_TRY(dci_check_struct_size("dci_context_config", config, config->struct_size, sizeof *config));
        if ((config->allocator.alloc == NULL) != (config->allocator.free == NULL))
                return dci_fail(DCI_ERR_INVALID, "allocator.alloc and allocator.free must be both set or both NULL");
        if (config->n_threads < 0 || config->n_threads > MAX_THREADS)
                return dci_fail(DCI_ERR_INVALID, "n_threads is %d, allowed are 0 to %d", (int)config->n_threads,
                                MAX_THREADS);
        switch (config->executor_kind) {
        case DCI_EXECUTOR_OPENMP:
                if (!dci_openmp_built())
                        return dci_fail(DCI_ERR_UNSUPPORTED,
                                        "this build of dci has no OpenMP; use DCI_EXECUTOR_PTHREADS");
                break;
        case DCI_EXECUTOR_PTHREADS:
                break;
        case DCI_EXECUTOR_CALLER:
                if (config->executor.parallel_for == NULL)
                        return dci_fail(DCI_ERR_INVALID,
                                        "DCI_EXECUTOR_CALLER needs executor.parallel_for, which is NULL");
                break;
        default:
                return dci_fail(DCI_ERR_INVALID, "unknown executor_kind %d", (int)config->executor_kind);
        }
        return DCI_OK;
}

dci_status dci_context_create(const dci_context_config *config, dci_context **out_context)
{
        dci_context_config defaults;
        if (out_context == NULL)
                return dci_fail(DCI_ERR_INVALID, "out_context is NULL");
        if (config == NULL) {
                dci_context_config_init(&defaults, sizeof defaults);
                config = &defaults;
        }
        DCI_TRY(check_config(config));
        dci_isa isa;
        DCI_TRY(dci_isa_select(config->isa, &isa));

        dci_allocator allocator = config->allocator;
        if (allocator.alloc == NULL)
                allocator = (dci_allocator){NULL, default_alloc, default_free};
        dci_context *context = allocator.alloc(allocator.ctx, sizeof *context, DCI_CACHE_LINE);
        if (context == NULL)
                return dci_fail(DCI_ERR_MEMORY, "no memory for a context of %zu bytes", sizeof *context);
        memset(context, 0, sizeof *context);
        atomic_init(&context->refs, 1);
        context->allocator = allocator;
        context->log = config->log;
        context->executor = config->executor;
        context->executor_kind = config->executor_kind;
        context->isa = isa;
        context->kernels = dci_kernels_for(isa);
        context->owner_pid = (int64_t)getpid();
        context->pool_threads = config->n_threads > 0 ? config->n_threads : dci_default_threads(config->executor_kind);
        if (context->pool_threads > MAX_THREADS)
                context->pool_threads = MAX_THREADS;
        atomic_init(&context->n_threads, context->pool_threads);
        if (context->executor_kind == DCI_EXECUTOR_PTHREADS) {
                dci_status status = dci_pool_create(context, (size_t)context->pool_threads, &context->pool);
                if (status != DCI_OK) {
                        allocator.free(allocator.ctx, context, sizeof *context);
                        return status;
                }
        }
        dci_log_line(context, DCI_LOG_INFO, "dci %s: isa %s, %d threads", dci_version(), dci_isa_name(isa),
                     (int)context->pool_threads);
        *out_context = context;
        return DCI_OK;
}

void dci_context_retain(dci_context *context)
{
        atomic_fetch_add_explicit(&context->refs, 1, memory_order_relaxed);
}

void dci_context_destroy(dci_context *context)
{
        if (context == NULL || atomic_fetch_sub_explicit(&context->refs, 1, memory_order_acq_rel) != 1)
                return;
        dci_pool_destroy(context, context->pool);
        dci_allocator allocator = context->allocator;
        allocator.free(allocator.ctx, context, sizeof *context);
}

dci_isa dci_context_isa(const dci_context *context)
{
        return context == NULL ? 0 : context->isa;
}

int32_t dci_context_threads(const dci_context *context)
{
        return context == NULL ? 0 : atomic_load(&context->n_threads);
}

dci_status dci_context_set_threads(dci_context *context, int32_t n_threads)
{
        if (context == NULL)
                return dci_fail(DCI_ERR_INVALID, "context is NULL");
        int32_t limit = context->executor_kind == DCI_EXECUTOR_PTHREADS ? context->pool_threads : MAX_THREADS;
        if (n_threads < 1 || n_threads > limit)
                return dci_fail(DCI_ERR_INVALID, "n_threads is %d, allowed are 1 to %d", (int)n_threads, (int)limit);
        atomic_store(&context->n_threads, n_threads);
        return DCI_OK;
}

void dci_log_line(const dci_context *context, int32_t level, const char *format, ...)
{
        if (context->log.fn == NULL)
                return;
        char line[256];
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(line, sizeof line, format, arguments);
        va_end(arguments);
        context->log.fn(context->log.ctx, level, line);
}
