/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Operations on a KV cache against the naive model. */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz_life.h"

enum { MAX_OPERATIONS = 60 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        fuzz_bytes from;
        fuzz_from_bytes(&from, data, size);
        fuzz_kv_life(&from, MAX_OPERATIONS, "an input");
        return 0;
}

void fuzz_seeds(void (*put)(const void *data, size_t size))
{
        fuzz_random_seeds(put, 60, 200);
}
