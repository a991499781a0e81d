/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Work for processes and threads that Check's assertions do not reach: lives of indexes and caches that end with a status and a hash of
 * everything they answered, whatever happens on the way. */
#ifndef DCI_TESTS_WORK_FIXTURE_H
#define DCI_TESTS_WORK_FIXTURE_H

#include "tests/kv_fixture.h"

enum { WORK_ROWS = 1500, WORK_QUERIES = 40, WORK_K = 5, WORK_PROMPT = 160, WORK_TOKENS = 220 };

/* What is put in and asked; not changed by any work. */
typedef struct work_data {
        float *rows, *queries;
        dci_kv_config config;
        kv_data data;
} work_data;
work_data work_prepare(int32_t preset);
void work_free(work_data *work);

/* Creates, adds, searches, removes, saves to `path`, loads, searches and destroys. */
dci_status work_index(dci_context *context, const work_data *work, dci_index_kind kind, const char *path,
                      uint64_t *hash);
/* Creates, reads a prompt, decodes, forks, saves, loads, decodes and destroys. max_bytes 0: no limit. */
dci_status work_kv(dci_context *context, const work_data *work, size_t max_bytes, const char *path, uint64_t *hash);
/* All kinds of index, then the cache. */
dci_status work_all(dci_context *context, const work_data *work, const char *path, uint64_t *hash);

/* Parts of that. A sequence with its prompt, without waiting for its groups; and a token of it with outputs of all layers. */
dci_status work_prompt(dci_kv *kv, const work_data *work, int64_t *out_sequence);
dci_status work_decode(dci_kv *kv, const work_data *work, int64_t sequence, size_t token, uint64_t *hash);
dci_status work_search(const dci_index *index, const work_data *work, uint64_t *hash);

#define WORK_HASH UINT64_C(0xcbf29ce484222325)

#endif
