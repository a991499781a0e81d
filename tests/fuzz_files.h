/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Small index files of every sort, and what is done with an index that came from a damaged one: shared by fuzz_load and tests/fuzz. */
#ifndef DCI_TESTS_FUZZ_FILES_H
#define DCI_TESTS_FUZZ_FILES_H

#include "dci/index.h"
#include "tests/fuzz_bytes.h"
#include "tests/persist_seal.h"

/* For what cannot fail unless the machine does: ends the program with the library's sentence. */
void fuzz_must(bool right, const char *what);
persist_bytes fuzz_room(size_t n);

/* A valid file of each kind, metric and dtype, with and without rows and ids of their own. */
enum { FUZZ_INDEX_FILES = 3 * 3 * 3 * 4 };
persist_bytes fuzz_index_file(dci_context *context, dci_rng *rng, size_t number);

/* A call that worked, or found no memory where a few bytes had asked for rows or directions of many MiB (tests/fuzz/limited.c). */
bool fuzz_fits(const dci_index *index, dci_status status);
/* Searches, range searches, adds and removes; false where one of them fails, or, without
 * sketch_bits, what is left does not keep its structure and return from a file of its own. */
bool fuzz_use_index(dci_index *index, fuzz_bytes *from);
/* Whether it is the same when it is saved and loaded again, if it fits into the context's memory twice. */
bool fuzz_index_returns(dci_context *context, const dci_index *index);

#endif
