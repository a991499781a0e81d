/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Bytes of a saved index, and how to make damage believable. Without Check, for programs that are no suites. */
#ifndef DCI_TESTS_PERSIST_SEAL_H
#define DCI_TESTS_PERSIST_SEAL_H

#include <stddef.h>

typedef struct persist_bytes {
        unsigned char *data;
        size_t n;
} persist_bytes;

/* Makes all checksums right again, as far as the section table points into the file. */
void persist_reseal(const persist_bytes *bytes);

#endif
