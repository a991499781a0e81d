/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Caches that have lived a little, for the suites about dci_kv_check. */
#ifndef DCI_TESTS_KV_CHECK_FIXTURE_H
#define DCI_TESTS_KV_CHECK_FIXTURE_H

#include "tests/kv_fixture.h"

enum { KV_CHECK_TOKENS = 420 };

/* A small shape with small clusters and periods. */
dci_kv_config kv_check_config(int32_t preset);
/* A prompt, what came after it, and a fork. The data is the caller's. */
dci_kv *kv_check_make(dci_context *context, const dci_kv_config *config, kv_data *out_data, int64_t *out_sequence);
/* Both levels of the check. */
void kv_check_passes(dci_kv *kv, const char *what);

/* Damage, to a cache of this preset, and what the check says of it. */
typedef struct kv_check_damage {
        const char *name;
        void (*make)(dci_kv *kv);
        int32_t preset, level; /* level: the lowest that finds it */
        const char *says;
} kv_check_damage;
/* Makes a cache, damages it and wants that found at the level that should, and by its name. Returns the cache, which may be beyond freeing. */
dci_kv *kv_check_damaged(const kv_check_damage *damage);

#endif
