/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Operations on an index against brute force. */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz_life.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        fuzz_bytes from;
        fuzz_from_bytes(&from, data, size);
        fuzz_index_life(&from);
        return 0;
}

void fuzz_seeds(void (*put)(const void *data, size_t size))
{
        fuzz_random_seeds(put, 40, 300);
}
