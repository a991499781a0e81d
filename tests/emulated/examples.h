/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Small kernels, right ones and wrong ones, for the emulator's own tests. */
#ifndef DCI_TESTS_EMULATED_EXAMPLES_H
#define DCI_TESTS_EMULATED_EXAMPLES_H

#include <stdint.h>

#define EXAMPLE_THREADS 64

enum {
        /* Wrong ones, which end the process. */
        EXAMPLE_ENDED,     /* some threads end before a barrier */
        EXAMPLE_ELSEWHERE, /* and some come to another one */
        EXAMPLE_LANES,     /* half a warp does not come to a shuffle */
        EXAMPLE_CALLS,     /* the other half votes */
        EXAMPLE_FROM,      /* a shuffle from a lane that is not in its mask */
        EXAMPLE_MASK,      /* a lane that is not in its own mask */
        EXAMPLE_BEHIND,    /* writes right after dynamic shared memory */
        EXAMPLE_FAR,       /* reads further beyond it */
        EXAMPLE_NO_WAIT,   /* a copy that nobody waits for */
        EXAMPLE_UNALIGNED, /* a copy to an odd place */
        EXAMPLE_NOT_BEGUN, /* a barrier of the copy engine that was never begun */
        EXAMPLE_TOO_FEW,   /* and one that waits for more bytes than come */
        EXAMPLE_TOO_LONG,  /* a copy that ends past dynamic shared memory */
        EXAMPLES_WRONG,
        /* Others, which write EXAMPLE_THREADS numbers, or as many for each of two blocks. */
        EXAMPLE_UNWRITTEN =
                EXAMPLES_WRONG, /* shared memory as it begins, static and dynamic, which the block then writes */
        EXAMPLE_NEIGHBOUR,      /* what the next thread has put into shared memory */
        EXAMPLE_HASTY,          /* the same without a barrier */
        EXAMPLE_SHUFFLES,       /* sums of half warps, and of all */
        EXAMPLE_VOTES,          /* ballots of even and odd lanes apart */
        EXAMPLE_COPIES,         /* through shared memory by the copy engine */
        EXAMPLE_ORDER           /* one counter, by blocks: which came when */
};

/* Runs one. in, out: as many numbers as it has threads. Returns the launch's error. */
int example_run(int which, unsigned n_blocks, unsigned shared_bytes, const uint32_t *in, uint32_t *out);
/* d (16 x 8, [row][column]) += A (16 x k, [row][k]) B (8 x k, [column][k]): of 16-bit numbers by their bits (k = 16), or bytes (k = 32). */
void example_f16(const uint16_t *a, const uint16_t *b, float *d);
void example_bf16(const uint16_t *a, const uint16_t *b, float *d);
void example_bytes(const uint8_t *a, const uint8_t *b, int32_t *d, int is_signed);
/* Conversions: to binary16 and bf16 and back, and a * b + c towards zero. */
uint16_t example_half(float x);
float example_from_half(uint16_t x);
uint16_t example_bfloat(float x);
float example_towards_zero(float a, float b, float c);

#endif
