/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* A folder of its own for each test that touches files. */
#ifndef DCI_TESTS_SCRATCH_H
#define DCI_TESTS_SCRATCH_H

#include <stddef.h>

#include "core/internal.h"

/* A checked fixture: a new folder under TMPDIR (or /tmp), and its removal with all files in it. */
void scratch_open(void);
void scratch_close(void);

/* The path of `name` in the folder; good for the next seven calls. */
const char *scratch_path(const char *name);

/* How many files the folder holds. */
size_t scratch_count(void);

/* Writes a file by plain means. */
void scratch_put(const char *name, const void *data, size_t n_bytes);

/* Reads one; free() the bytes. */
unsigned char *scratch_get(const char *name, size_t *out_bytes);

/* Fails unless the file holds exactly these bytes. */
void scratch_expect(const char *name, const void *data, size_t n_bytes);

/* From here on, no file of this process may grow beyond n_bytes; writing more fails with EFBIG instead of a signal. */
void scratch_limit_file_size(size_t n_bytes);
void scratch_lift_file_size(void);

/* Makes a directory, a FIFO and a plain file in the folder, and calls check(path, wanted_sentence) for each of the paths
 * that can be neither read nor replaced. */
void scratch_each_odd_file(void (*check)(const char *path, const char *wanted));

#endif
