/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/fuzz/fuzz.h"

#include <stdio.h>

static const char *seeds_folder;
static size_t n_seeds;

static void write_one(const void *data, size_t size)
{
        char path[1024];
        snprintf(path, sizeof path, "%s/seed-%03zu", seeds_folder, n_seeds++);
        FILE *file = fopen(path, "wb");
        ck_assert_ptr_nonnull(file);
        ck_assert_uint_eq(fwrite(data, 1, size, file), size);
        ck_assert_int_eq(fclose(file), 0);
}

void fuzz_write_seeds(const char *folder)
{
        seeds_folder = folder;
        n_seeds = 0;
        fuzz_seeds(write_one);
}

void fuzz_random_seeds(void (*put)(const void *data, size_t size), size_t n_inputs, size_t n_bytes)
{
        dci_rng rng;
        unsigned char *bytes = malloc(n_bytes);
        ck_assert_ptr_nonnull(bytes);
        dci_rng_seed(&rng, 1);
        for (size_t i = 0; i < n_inputs; i++) {
                for (size_t j = 0; j < n_bytes; j++)
                        bytes[j] = (unsigned char)dci_rng_next(&rng);
                put(bytes, n_bytes);
        }
        free(bytes);
}
