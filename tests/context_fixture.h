/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* One context of 1, 2 or 3 threads for the tests of a suite: setup and teardown for test_case_with. */
#ifndef DCI_TESTS_CONTEXT_FIXTURE_H
#define DCI_TESTS_CONTEXT_FIXTURE_H

#include "tests/common.h"

extern dci_context *context;
void context_open_1(void);
void context_open_2(void);
void context_open_3(void);
void context_close(void);

#endif
