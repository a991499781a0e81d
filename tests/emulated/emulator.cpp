/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Blocks, their threads, and what these do together (emulator.h). One launch runs at a time, on the caller's thread. */
#include "emulated/emulator.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <unordered_map>

#include "emulated/fiber.h"
#include "emulated/state.h"

#define MAX_SHARED ((size_t)227 * 1024) /* of a block that asks for it, and of others */
#define USUAL_SHARED ((size_t)48 * 1024)
#define STACK_BYTES ((size_t)256 * 1024)
#define PAGE_BYTES ((size_t)64 * 1024) /* a multiple of any system's */
#define POISON 0xff

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
static emulated_block block;
static emulated_fiber main_fiber;
static const emulated_launch *launched;
static unsigned char *stacks, *shared_end; /* shared_end: what is there may not be touched */
static uint64_t chance;

uint32_t emulated_chance(uint32_t n)
{
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        return (uint32_t)((chance >> 32) * n >> 32);
}

void emulated_fail(const char *format, ...)
{
        va_list list;
        fprintf(stderr, "emulated CUDA, block %u,%u,%u, thread %u: ", blockIdx.x, blockIdx.y, blockIdx.z, block.now);
        va_start(list, format);
        vfprintf(stderr, format, list);
        va_end(list);
        fputc('\n', stderr);
        abort();
}

/* --- who goes on ------------------------------------------------------------------------------------------------------ */

static void run_thread(unsigned thread, emulated_fiber *from)
{
        const bool ends = from != &main_fiber && block.threads[block.now].ended;
        block.now = thread;
        const unsigned nx = blockDim.x, ny = blockDim.y;
        threadIdx = {thread % nx, thread / nx % ny, thread / nx / ny};
        emulated_fiber_change(from, &block.threads[thread].fiber, ends);
}

/* The running thread waits: a lane of its warp goes on, or whoever the scheduler chooses. */
void emulated_leave()
{
        const unsigned self = block.now;
        emulated_warp &warp = block.warps[self / 32];
        emulated_fiber *own = &block.threads[self].fiber;
        if (warp.ready != 0 && emulated_chance(64) != 0) {
                const unsigned turned = warp.ready >> warp.turn | (warp.turn != 0 ? warp.ready << (32 - warp.turn) : 0);
                const unsigned lane = ((unsigned)__builtin_ctz(turned) + warp.turn) % 32;
                if (self / 32 * 32 + lane == self)
                        return;
                run_thread(self / 32 * 32 + lane, own);
        } else {
                emulated_fiber_change(own, &main_fiber, block.threads[self].ended);
        }
}

static void thread_main()
{
        emulated_fiber_begun(&main_fiber);
        launched->kernel(reinterpret_cast<const unsigned char *>(launched) + launched->args_at);
        emulated_thread &self = block.threads[block.now];
        if (self.n_copies > 0)
                emulated_fail("the thread ends with %u copies that it did not wait for", self.n_copies);
        emulated_left(&self);
        self.ended = true;
        block.n_ended++;
        block.warps[block.now / 32].ready &= ~(1u << block.now % 32);
        emulated_leave();
        abort(); /* nobody comes back */
}

/* Nobody can go on: says who waits for what. */
[[noreturn]] static void stuck()
{
        for (unsigned i = 0; i < block.n_threads; i++) {
                const emulated_thread &thread = block.threads[i];
                const emulated_place *place = thread.place;
                if (thread.ended || place == nullptr)
                        continue;
                block.now = i;
                emulated_fail(
                        "waits at line %d for lanes %08x of its warp that do not come (%u of %u threads have ended)",
                        place->line, place->mask & ~place->arrived, block.n_ended, block.n_threads);
        }
        if (block.n_waiting > 0)
                emulated_fail("%u of %u threads wait at the barrier at line %d, %u have ended", block.n_waiting,
                              block.n_threads, block.line, block.n_ended);
        emulated_fail("threads wait for bytes or arrivals that do not come (%u of %u have ended)", block.n_ended,
                      block.n_threads);
}

static void schedule()
{
        const unsigned n_warps = (block.n_threads + 31) / 32;
        while (block.n_ended < block.n_threads) {
                const unsigned first = emulated_chance(n_warps);
                unsigned w = 0;
                while (w < n_warps && block.warps[(first + w) % n_warps].ready == 0)
                        w++;
                if (w == n_warps)
                        stuck();
                w = (first + w) % n_warps;
                const unsigned ready = block.warps[w].ready,
                               skip = emulated_chance((unsigned)__builtin_popcount(ready));
                unsigned left = ready;
                for (unsigned i = 0; i < skip; i++)
                        left &= left - 1;
                run_thread(w * 32 + (unsigned)__builtin_ctz(left), &main_fiber);
        }
}

/* --- blocks ----------------------------------------------------------------------------------------------------------- */

/* Not memset, which the address sanitizer would stop between variables; volatile, so that it does not become one. */
__attribute__((no_sanitize("address"))) static void poison(unsigned char *from, unsigned char *to)
{
        volatile unsigned char *at = from;
        for (; at < to && reinterpret_cast<uintptr_t>(at) % 8 != 0; at++)
                *at = POISON;
        for (; to - at >= 8; at += 8)
                *reinterpret_cast<volatile uint64_t *>(const_cast<unsigned char *>(at)) = ~0ull;
        for (; at < to; at++)
                *at = POISON;
}

static void check_behind(const emulated_launch *launch)
{
        for (const unsigned char *at = block.shared + launch->shared_bytes; at < block.shared_end; at++)
                if (*at != POISON)
                        emulated_fail("byte %zu of dynamic shared memory was written, there are %zu",
                                      (size_t)(at - block.shared), launch->shared_bytes);
}

static void run_block(const emulated_launch *launch, unsigned number)
{
        blockIdx = {number % gridDim.x, number / gridDim.x % gridDim.y, number / gridDim.x / gridDim.y};
        poison(launch->first_shared, launch->last_shared);
        memset(block.shared, POISON, launch->shared_bytes);
        for (unsigned w = 0; w * 32 < block.n_threads; w++) {
                emulated_warp &warp = block.warps[w];
                const unsigned n = block.n_threads - w * 32;
                warp.ready = n >= 32 ? 0xffffffffu : (1u << n) - 1;
                warp.all = warp.ready;
                warp.waiting = 0;
                warp.turn = emulated_chance(32);
        }
        for (unsigned i = 0; i < block.n_threads; i++) {
                emulated_thread &thread = block.threads[i];
                thread.ended = false;
                thread.place = thread.reads = nullptr;
                thread.n_copies = 0;
                /* Not all at the same place of the caches. */
                emulated_fiber_make(&thread.fiber, stacks + i * STACK_BYTES, STACK_BYTES - i % 64 * 1088, thread_main);
        }
        block.n_ended = block.n_waiting = 0;
        block.word = false;
        block.n_fetches = 0;
        schedule();
        if (block.n_fetches > 0)
                emulated_fail("the block ends with %u copies that nobody waited for", block.n_fetches);
        check_behind(launch);
}

static void begin()
{
        const char *seed = getenv("DCI_EMULATED_SEED");
        chance = 0x9e3779b97f4a7c15u * (2 * (seed != nullptr ? strtoull(seed, nullptr, 10) : 0) + 1);
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        void *s = mmap(nullptr, STACK_BYTES * EMULATED_MOST_THREADS, PROT_READ | PROT_WRITE, flags, -1, 0);
        const size_t room = (MAX_SHARED + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
        void *p = mmap(nullptr, room + PAGE_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (s == MAP_FAILED || p == MAP_FAILED)
                emulated_fail("no memory for stacks");
        stacks = static_cast<unsigned char *>(s);
        shared_end = static_cast<unsigned char *>(p) + room;
        if (mprotect(shared_end, PAGE_BYTES, PROT_NONE) != 0)
                emulated_fail("memory cannot be protected");
}

void emulated_run(const void *args)
{
        const emulated_launch *launch = static_cast<const emulated_launch *>(args);
        pthread_mutex_lock(&one_at_a_time);
        if (stacks == nullptr)
                begin();
        launched = launch;
        main_fiber = {};
        gridDim = dim3(launch->grid[0], launch->grid[1], launch->grid[2]);
        blockDim = dim3(launch->block[0], launch->block[1], launch->block[2]);
        block.n_threads = blockDim.x * blockDim.y * blockDim.z;
        block.n_shared = launch->shared_bytes;
        block.shared_end = shared_end;
        block.shared = shared_end - (launch->shared_bytes + 127) / 128 * 128;
        memset(block.shared, POISON, (size_t)(block.shared_end - block.shared));
        const unsigned n = gridDim.x * gridDim.y * gridDim.z;
        /* All numbers once, in an order of chance: a step that has no divisor in common with n. */
        const auto common = [](unsigned a, unsigned b) {
                while (b != 0) {
                        const unsigned rest = a % b;
                        a = b;
                        b = rest;
                }
                return a;
        };
        unsigned step = emulated_chance(n) | 1, at = emulated_chance(n);
        while (common(step, n) != 1)
                step++;
        for (unsigned i = 0; i < n; i++, at = (unsigned)(((uint64_t)at + step) % n))
                run_block(launch, at);
        launched = nullptr;
        pthread_mutex_unlock(&one_at_a_time);
}

/* --- launches ----------------------------------------------------------------------------------------------------------- */

static std::unordered_map<const void *, int> allowed;

int emulated_allow(const void *kernel, int n_bytes)
{
        if (n_bytes < 0 || (size_t)n_bytes > emulated_shared())
                return 1;
        pthread_mutex_lock(&one_at_a_time);
        allowed[kernel] = n_bytes;
        pthread_mutex_unlock(&one_at_a_time);
        return 0;
}

int emulated_check(const void *kernel, const emulated_launch *launch)
{
        pthread_mutex_lock(&one_at_a_time);
        const auto known = allowed.find(kernel);
        const size_t most =
                known != allowed.end() && (size_t)known->second > USUAL_SHARED ? (size_t)known->second : USUAL_SHARED;
        pthread_mutex_unlock(&one_at_a_time);
        const uint64_t n_threads = (uint64_t)launch->block[0] * launch->block[1] * launch->block[2];
        if (n_threads == 0 || n_threads > EMULATED_MOST_THREADS || launch->grid[0] == 0 || launch->grid[1] == 0 ||
            launch->grid[2] == 0 || launch->grid[0] > 0x7fffffffu || launch->grid[1] > 65535 || launch->grid[2] > 65535)
                return 9;
        return launch->shared_bytes > most ? 1 : 0;
}

emulated_block *emulated_now()
{
        return &block;
}
