/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * CUDA kernels on a CPU: what the kernels of src/gpu/cuda compute, where there is no GPU.
 *
 * The sources are compiled as C++ against the headers in include/, which have of CUDA what kernels use, each in a namespace of its own
 * (kernel.cpp.in). A launch runs its blocks one after another in an order of chance, a block's threads as fibers: a thread goes on until it
 * waits for others, who goes on then is chance as well. The environment's DCI_EMULATED_SEED (a number) makes another order.
 *
 * What it finds, and ends the process for:
 *      barriers that some threads of a block do not reach, or reach at another line; collectives of a warp (shuffles, votes, products) whose
 *      lanes do not all come, come with other masks or to other calls, or read from a lane that is not in the mask; copies of the copy engine
 *      that are out of bounds, not aligned, or never waited for; barriers of it that were never begun
 *      dynamic shared memory that is accessed past its end (a page that may not be touched, and bytes before it that must stay as they are)
 *      launches with more threads, blocks or shared memory than there are
 * What shows as wrong results: reads of memory that was never written (shared memory is 0xff when a block begins, so is the device's when it is
 * taken), missing barriers between threads of a block, results that depend on which block comes last. With -fsanitize=address,undefined also
 * accesses outside of device memory and static shared memory, and 16-byte accesses that are not aligned.
 *
 * What it cannot show: blocks that run at the same time (a kernel that waits for another block would hang; none does), the order in which
 * memory becomes visible to other blocks (fences and acquire/release are nothing here), accesses to the same bytes without a barrier that
 * happen to come in the right order, divergence within a warp between collectives, what nvcc makes of the code (fused multiply-adds, approximate
 * functions: here products and sums are rounded one by one, and ex2 is exact), registers, time. PTX is not run: include/gpu has C++ in its
 * place, which may be wrong as the kernels may be. Tests on a GPU decide (scripts/check-gpu).
 */
#ifndef DCI_TESTS_EMULATED_EMULATOR_H
#define DCI_TESTS_EMULATED_EMULATOR_H

#include <stddef.h>
#include <stdint.h>

/* A launch: as much as a graph must keep of it. */
struct emulated_launch {
        unsigned grid[3], block[3];
        size_t shared_bytes;
        unsigned char *first_shared, *last_shared; /* of static shared memory */
        void (*kernel)(const void *args);          /* one thread */
        size_t args_at;                            /* bytes after this struct's begin */
};

/* Values of a warp's lanes that meet. */
struct emulated_meeting {
        uint64_t values[32];
        unsigned votes; /* lanes whose value is not 0 */
        union {
                struct {
                        float a[16][16], b[8][16]; /* [row of A][k], [column of B][k] */
                } of_numbers;
                struct {
                        int16_t a[16][32], b[8][32];
                } of_bytes;
        };
};

enum emulated_what {
        EMULATED_SYNC,
        EMULATED_SHUFFLE,
        EMULATED_VOTE,
        EMULATED_REDUCE,
        EMULATED_MATCH,
        EMULATED_PRODUCT
};

/* Ends the process with a sentence that says where. */
[[noreturn]] void emulated_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Queues a launch on a stream of the device that a call is for (device.c), or runs it where there is none. Returns a cudaError_t. */
extern "C" int emulated_queue(void *stream, const void *launch, size_t n_bytes);
extern "C" void emulated_run(const void *launch);
/* Shared memory that a block may have when it asks for it (device.c). */
extern "C" size_t emulated_shared();
/* cudaFuncSetAttribute and its arguments. */
int emulated_allow(const void *kernel, int n_bytes);
int emulated_check(const void *kernel, const emulated_launch *launch);

/* By a thread of a running kernel: joins the meeting of these lanes before it puts anything there, then waits for all. What they left is there
 * until the thread meets anyone again. */
emulated_meeting *emulated_join(unsigned mask, emulated_what what, int line);
void emulated_meet(emulated_meeting *meeting);
/* The whole block; returns whether any thread's word was true. */
bool emulated_barrier(bool word, int line);
unsigned emulated_lane();
unsigned emulated_active();
void *emulated_dynamic();

/* Shared memory by its 32-bit address, and the copy engine. */
uint32_t emulated_address(const void *at);
void emulated_barrier_begin(uint32_t barrier, unsigned n_arrivals);
void emulated_barrier_arrive(uint32_t barrier, uint32_t n_bytes);
void emulated_barrier_wait(uint32_t barrier, uint32_t parity);
void emulated_fetch(uint32_t to, const void *from, uint32_t n_bytes, uint32_t barrier);
void emulated_copy16(uint32_t to, const void *from);
void emulated_wait_copies();

#endif
