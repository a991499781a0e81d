/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Configs of KV caches, drawn from bytes or a seed, that dci_kv_create takes: small, of every preset, stage and format. */
#ifndef DCI_TESTS_FUZZ_KV_CONFIG_H
#define DCI_TESTS_FUZZ_KV_CONFIG_H

#include "tests/fuzz_bytes.h"
#include "tests/kv_fixture.h"

/* Tokens of a step after the prompt, at most. */
enum { FUZZ_KV_MAX_MORE = 4 };

dci_kv_config fuzz_kv_config(fuzz_bytes *from);

#endif
