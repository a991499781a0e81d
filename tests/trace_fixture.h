/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The context, keys and queries that the tests of a suite share: a setup calls trace_open with the numbers of its
 * suite. */
#ifndef DCI_TESTS_TRACE_FIXTURE_H
#define DCI_TESTS_TRACE_FIXTURE_H

#include "tests/context_fixture.h"
#include "tests/pdci_fixture.h"

static float *keys, *queries;

DCI_INLINE void trace_open(int32_t n_threads, size_t n_keys, size_t n_queries)
{
        context = test_context(n_threads);
        keys = pdci_trace("keys", n_keys);
        queries = pdci_trace("queries", n_queries);
}

DCI_INLINE void trace_close(void)
{
        free(keys);
        free(queries);
        context_close();
}

#endif
