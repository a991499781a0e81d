/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#define MAX_MEMORY ((size_t)64 << 20)

fuzz_tally fuzz_files;
bool fuzz_all;
static size_t live_bytes, live_blocks;

static void *limited_alloc(void *ctx, size_t size, size_t alignment)
{
        (void)ctx;
        if (size > MAX_MEMORY - live_bytes)
                return NULL;
        void *pointer = aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
        if (pointer != NULL) {
                live_bytes += size;
                live_blocks++;
        }
        return pointer;
}

static void limited_free(void *ctx, void *pointer, size_t size)
{
        (void)ctx;
        if (pointer == NULL)
                return;
        live_bytes -= size;
        live_blocks--;
        free(pointer);
}

dci_context *fuzz_limited_context(void)
{
        dci_context_config config;
        dci_context *context = NULL;
        ck_ok(dci_context_config_init(&config, sizeof config));
        config.allocator = (dci_allocator){NULL, limited_alloc, limited_free};
        config.executor_kind = DCI_EXECUTOR_CALLER;
        config.executor.parallel_for = test_serial;
        config.n_threads = 1;
        ck_ok(dci_context_create(&config, &context));
        return context;
}

void fuzz_limited_end(dci_context *context)
{
        dci_context_destroy(context);
        ck_assert_uint_eq(live_blocks, 0);
        ck_assert_uint_eq(live_bytes, 0);
}

void fuzz_count(bool accepted)
{
        fuzz_files.accepted += accepted;
        fuzz_files.refused += !accepted;
}

bool fuzz_worked(dci_status status)
{
        if (status == DCI_OK)
                return true;
        ck_assert_msg(strcmp(dci_status_name(status), "unknown status") != 0, "status %d", (int)status);
        ck_assert_msg(strlen(dci_last_error()) > 10, "status %d says '%s'", (int)status, dci_last_error());
        return false;
}
