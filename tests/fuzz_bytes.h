/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Where a fuzzer's decisions come from: a seed, or bytes that somebody else mutates (libFuzzer, tests/fuzz/replay.c), so that one driver serves
 * both. Bytes decide what happens; bulk numbers, which no mutation would aim at, come from a generator that a byte sets. What is
 * drawn past the end of the bytes comes from that generator, too. No expression draws twice: compilers differ in which draw comes first.
 */
#ifndef DCI_TESTS_FUZZ_BYTES_H
#define DCI_TESTS_FUZZ_BYTES_H

#include "core/internal.h"

typedef struct fuzz_bytes {
        const unsigned char *at;
        size_t left;
        bool seeded; /* there never were bytes */
        dci_rng rng;
} fuzz_bytes;

void fuzz_from_seed(fuzz_bytes *from, uint64_t seed);
void fuzz_from_bytes(fuzz_bytes *from, const void *data, size_t n);

/* Whether the bytes have come to their end; a seed's never do. */
bool fuzz_ended(const fuzz_bytes *from);

/* Below n >= 1: of a seed unbiased, of bytes as few as n needs. */
size_t fuzz_below(fuzz_bytes *from, size_t n);
/* One in n. */
bool fuzz_one_in(fuzz_bytes *from, size_t n);
/* In [0, 1): of bytes one of 65,536 numbers. */
double fuzz_uniform(fuzz_bytes *from);
/* 64 bits: of bytes one of 256 numbers. */
uint64_t fuzz_next(fuzz_bytes *from);

/* Before bulk numbers: a byte sets the generator, so that what is drawn before does not move what is drawn after. */
void fuzz_stir(fuzz_bytes *from);
/* From the generator alone. */
double fuzz_normal(fuzz_bytes *from);

/* A size near some limit: small ones, powers of two and their neighbours, the largest ones. */
size_t fuzz_odd_size(fuzz_bytes *from);
int32_t fuzz_odd_int(fuzz_bytes *from);
/* Any float: special ones, extremes of each format, small integers, any bits. */
float fuzz_odd_float(fuzz_bytes *from);
/* One of n numbers becomes such a float. */
void fuzz_put_odd(fuzz_bytes *from, size_t n, float *numbers);
double fuzz_odd_double(fuzz_bytes *from);

#endif
