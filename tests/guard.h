/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * A caller's arrays against inaccessible pages: a read or a write beyond either end is a signal, wherever it comes from (assembly, OpenBLAS,
 * a vector load that is masked by luck), without a sanitizer. Inputs cannot be written at all. What is between an array and the page that it
 * does not touch is checked when it is given back. Used from one thread.
 */
#ifndef DCI_TESTS_GUARD_H
#define DCI_TESTS_GUARD_H

#include "core/internal.h"

/* Where arrays lie from now on: with their end (the default) or their beginning at an inaccessible page. */
void guard_at_begin(bool begin);

/* A copy of n_bytes that can only be read. */
const void *guard_in(const void *data, size_t n_bytes);
/* n_bytes to be written, filled with GUARD_FILL. */
#define GUARD_FILL 0xFF
void *guard_out(size_t n_bytes);
/* The same for one that is read and written. */
void *guard_copy(const void *data, size_t n_bytes);

/* Rows that are ld elements apart take no more than this: the last one has no gap after it. */
size_t guard_bytes(size_t n, size_t dim, size_t ld, size_t element_bytes);
/* n rows without gaps as rows ld elements apart, gaps filled with GUARD_FILL: NaN in every format. */
const void *guard_rows(const void *rows, size_t n, size_t dim, size_t ld, size_t element_bytes);
/* Fails unless the gaps of an output are as they were. */
void guard_gaps(const void *out, size_t n, size_t dim, size_t ld, size_t element_bytes, const char *what);

/* Gives them back, but for those that were there at guard_keep; fails if anything was written next to them. */
void guard_release(void);
void guard_keep(void);
void guard_release_all(void);

#endif
