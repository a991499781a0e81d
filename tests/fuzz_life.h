/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Lives of objects against naive models, drawn from bytes or a seed: what fuzz_index, fuzz_kv and tests/fuzz share. */
#ifndef DCI_TESTS_FUZZ_LIFE_H
#define DCI_TESTS_FUZZ_LIFE_H

#include "tests/fuzz_bytes.h"

/* An index: it adds, removes, updates and searches, with filters, groups and ranges, now and then refused calls; every answer at full
 * effort is compared with a naive model, and trees are checked from inside. A life ends with its bytes, of a seed after some
 * dozens of operations. */
void fuzz_index_life(fuzz_bytes *from);

/* A KV cache of a preset, format and shape: it opens, appends ragged batches, ends prompts, plans, attends, aborts, maintains, forks,
 * truncates, saves, loads and closes up to 64 sequences; every output is compared with the model, and blocks with all tables. Ends with the
 * bytes or after `most` operations; returns how many there were. Needs a scratch folder. what: for messages. */
size_t fuzz_kv_life(fuzz_bytes *from, size_t most, const char *what);

/* A context of 1 to 3 threads (the same ones again, where decisions come from bytes: threads are dear). Destroy it after use. */
dci_context *fuzz_context(fuzz_bytes *from);

#endif
