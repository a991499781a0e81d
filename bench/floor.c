/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The read floor: no exact search on one thread can be faster than reading every stored byte once. The loops below only load
 * and add, eight independent sums of the widest register at a time, so that neither the latency of an addition nor the
 * number of instructions is in the way.
 */
#include "bench/bench.h"

#include <string.h>

#if defined(__GNUC__) && defined(__x86_64__)
#define BENCH_X86 1
#include <immintrin.h>
#else
#define BENCH_X86 0
#endif

static uint64_t sum_bytes(const unsigned char *data, size_t n_bytes)
{
        uint64_t sum = 0;
        for (size_t i = 0; i < n_bytes; i++)
                sum += data[i];
        return sum;
}

/* The partial sums, whatever registers they were in. */
static uint64_t sum_words(const void *sums, size_t n_bytes)
{
        uint64_t total = 0, word;
        for (size_t i = 0; i < n_bytes; i += sizeof word) {
                memcpy(&word, (const char *)sums + i, sizeof word);
                total += word;
        }
        return total;
}

/* 16 words are eight 128-bit registers, which every compiler's vectoriser finds. */
static uint64_t read_portable(const unsigned char *data, size_t n_bytes)
{
        uint64_t sums[16] = {0};
        size_t i = 0;
        for (; i + sizeof sums <= n_bytes; i += sizeof sums) {
                for (size_t j = 0; j < 16; j++) {
                        uint64_t word;
                        memcpy(&word, data + i + j * sizeof word, sizeof word);
                        sums[j] += word;
                }
        }
        return sum_words(sums, sizeof sums) + sum_bytes(data + i, n_bytes - i);
}

#if BENCH_X86
__attribute__((target("avx2"))) static uint64_t read_avx2(const unsigned char *data, size_t n_bytes)
{
        __m256i sums[8];
        size_t i = 0;
        for (size_t j = 0; j < 8; j++)
                sums[j] = _mm256_setzero_si256();
        for (; i + sizeof sums <= n_bytes; i += sizeof sums)
                for (size_t j = 0; j < 8; j++)
                        sums[j] = _mm256_add_epi64(sums[j], _mm256_loadu_si256((const __m256i *)(data + i) + j));
        return sum_words(sums, sizeof sums) + sum_bytes(data + i, n_bytes - i);
}

__attribute__((target("avx512f"))) static uint64_t read_avx512(const unsigned char *data, size_t n_bytes)
{
        __m512i sums[8];
        size_t i = 0;
        for (size_t j = 0; j < 8; j++)
                sums[j] = _mm512_setzero_si512();
        for (; i + sizeof sums <= n_bytes; i += sizeof sums)
                for (size_t j = 0; j < 8; j++)
                        sums[j] = _mm512_add_epi64(sums[j], _mm512_loadu_si512(data + i + j * sizeof *sums));
        return sum_words(sums, sizeof sums) + sum_bytes(data + i, n_bytes - i);
}
#endif

typedef uint64_t (*read_fn)(const unsigned char *data, size_t n_bytes);

static read_fn widest(void)
{
#if BENCH_X86
        if (dci_isa_available(DCI_ISA_AVX512))
                return read_avx512;
        if (dci_isa_available(DCI_ISA_AVX2))
                return read_avx2;
#endif
        return read_portable;
}

double bench_read_floor(const void *data, size_t n_bytes, double seconds)
{
        read_fn read_all = widest();
        /* A sum that somebody might look at cannot be optimised away. */
        volatile uint64_t looked_at = 0;
        size_t passes = 0;
        double start = bench_seconds(), elapsed;
        do {
                looked_at = looked_at + read_all(data, n_bytes);
                passes++;
                elapsed = bench_seconds() - start;
        } while (elapsed < seconds || passes < 3);
        return elapsed / (double)passes;
}
