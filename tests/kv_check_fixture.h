/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Caches after a prompt, some steps and a fork, for the suites about dci_kv_check. */
#ifndef DCI_TESTS_KV_CHECK_FIXTURE_H
#define DCI_TESTS_KV_CHECK_FIXTURE_H

#include "tests/kv_fixture.h"

enum { KV_CHECK_TOKENS = 420 };

/* A configuration of a small shape with small clusters and periods. */
dci_kv_config kv_check_config(int32_t preset);
/* Creates a cache with a prompt, decoded tokens and a fork. The caller frees the data. */
dci_kv *kv_check_make(dci_context *context, const dci_kv_config *config, kv_data *out_data, int64_t *out_sequence);
/* Fails unless the cache passes both levels of the check. */
void kv_check_passes(dci_kv *kv, const char *what);

#endif
