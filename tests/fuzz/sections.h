/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Mutations of checked files (docs/format.md) that reach what is after the checksums. */
#ifndef DCI_TESTS_FUZZ_SECTIONS_H
#define DCI_TESTS_FUZZ_SECTIONS_H

#include "tests/fuzz/fuzz.h"

/* An input that has a file after n_before other bytes: mutates one section, of the same length or another, and lays the file out again; or the
 * header and the table; or any bytes. Checksums are right afterwards, most of the time. Returns the new size. */
size_t fuzz_mutate_file(uint8_t *data, size_t size, size_t most, size_t n_before, unsigned seed);

#endif
