/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The read floor: no exact search on one thread can be faster than reading every stored byte once. The loops below only load
 * and add: into eight independent sums, so that the latency of an addition is not in the way, with the widest registers, and
 * from eight places at once, because one stream of addresses leaves the memory half idle (12 GB/s instead of 20 on a Sapphire
 * Rapids core; from the caches there is no difference).
 */
#include "bench/common/bench.h"

#include <string.h>

#if defined(__GNUC__) && defined(__x86_64__)
#define BENCH_X86 1
#include <immintrin.h>
#else
#define BENCH_X86 0
#endif

#define STREAMS 8
#define SUMS 8

/* The words and the last few bytes: for partial sums and the end of the data. */
static uint64_t sum_plainly(const void *data, size_t n_bytes)
{
        const unsigned char *bytes = data;
        uint64_t total = 0, word;
        size_t i = 0;
        for (; i + sizeof word <= n_bytes; i += sizeof word) {
                memcpy(&word, bytes + i, sizeof word);
                total += word;
        }
        for (; i < n_bytes; i++)
                total += bytes[i];
        return total;
}

/* Bytes of one stream, a multiple of what a step reads. */
static size_t stream_bytes(size_t n_bytes, size_t step)
{
        return n_bytes / STREAMS / step * step;
}

/* 16 words are eight 128-bit registers, which every compiler's vectoriser finds. */
static uint64_t read_portable(const unsigned char *data, size_t n_bytes)
{
        uint64_t sums[2 * SUMS] = {0};
        size_t part = stream_bytes(n_bytes, sizeof sums), done = STREAMS * part;
        for (size_t i = 0; i < part; i += sizeof sums) {
                for (size_t at = i; at < done; at += part) {
                        uint64_t words[2 * SUMS];
                        memcpy(words, data + at, sizeof words);
                        for (size_t j = 0; j < 2 * SUMS; j++)
                                sums[j] += words[j];
                }
        }
        return sum_plainly(sums, sizeof sums) + sum_plainly(data + done, n_bytes - done);
}

#if BENCH_X86
__attribute__((target("avx2"))) static uint64_t read_avx2(const unsigned char *data, size_t n_bytes)
{
        __m256i sums[SUMS];
        size_t part = stream_bytes(n_bytes, sizeof sums), done = STREAMS * part;
        for (size_t j = 0; j < SUMS; j++)
                sums[j] = _mm256_setzero_si256();
        for (size_t i = 0; i < part; i += sizeof sums) {
                for (size_t at = i; at < done; at += part) {
                        const __m256i *words = (const void *)(data + at);
                        for (size_t j = 0; j < SUMS; j++)
                                sums[j] = _mm256_add_epi64(sums[j], _mm256_loadu_si256(words + j));
                }
        }
        return sum_plainly(sums, sizeof sums) + sum_plainly(data + done, n_bytes - done);
}

__attribute__((target("avx512f"))) static uint64_t read_avx512(const unsigned char *data, size_t n_bytes)
{
        __m512i sums[SUMS];
        size_t part = stream_bytes(n_bytes, sizeof sums), done = STREAMS * part;
        for (size_t j = 0; j < SUMS; j++)
                sums[j] = _mm512_setzero_si512();
        for (size_t i = 0; i < part; i += sizeof sums) {
                for (size_t at = i; at < done; at += part) {
                        const __m512i *words = (const void *)(data + at);
                        for (size_t j = 0; j < SUMS; j++)
                                sums[j] = _mm512_add_epi64(sums[j], _mm512_loadu_si512(words + j));
                }
        }
        return sum_plainly(sums, sizeof sums) + sum_plainly(data + done, n_bytes - done);
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
        /* The compiler cannot remove a sum that may be read. */
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
