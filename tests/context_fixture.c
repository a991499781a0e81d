/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/context_fixture.h"

dci_context *context;

void context_open_1(void)
{
        context = test_context(1);
}

void context_open_2(void)
{
        context = test_context(2);
}

void context_open_3(void)
{
        context = test_context(3);
}

void context_close(void)
{
        dci_context_destroy(context);
}
