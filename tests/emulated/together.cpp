/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Barriers, collectives of warps, and the copy engine (emulator.h). */
#include "emulated/state.h"

unsigned emulated_lane()
{
        return emulated_now()->now % 32;
}

void *emulated_dynamic()
{
        return emulated_now()->shared;
}

/* --- warps ---------------------------------------------------------------------------------------------------------------- */

void emulated_left(emulated_thread *thread)
{
        if (thread->reads != nullptr)
                thread->reads->reading &= ~(1u << emulated_lane());
        thread->reads = nullptr;
}

emulated_meeting *emulated_join(unsigned mask, emulated_what what, int line)
{
        emulated_block *block = emulated_now();
        emulated_thread &self = block->threads[block->now];
        emulated_warp &warp = block->warps[block->now / 32];
        const unsigned bit = 1u << emulated_lane();
        emulated_place *place = warp.places, *free = nullptr;
        emulated_left(&self);
        if ((mask & bit) == 0 || (mask & ~warp.all) != 0)
                emulated_fail("mask %08x at line %d: the lane is %u, the warp has %08x", mask, line, emulated_lane(),
                              warp.all);
        for (; place < warp.places + 33; place++) {
                if (place->arrived != 0 && place->mask == mask)
                        break;
                if (free == nullptr && place->arrived == 0 && place->reading == 0)
                        free = place;
                if (free != nullptr && (mask & ~warp.ready) == 0) { /* nobody waits: it is the first */
                        place = warp.places + 33;
                        break;
                }
        }
        if (place == warp.places + 33) {
                place = free;
                place->mask = mask;
                place->what = what;
                place->line = line;
                place->meeting.votes = 0;
        } else if (place->what != what) {
                emulated_fail("lanes %08x of a warp wait at line %d for one that comes to another call, at line %d",
                              place->arrived, place->line, line);
        }
        self.place = place;
        return &place->meeting;
}

void emulated_meet(emulated_meeting *meeting)
{
        emulated_block *block = emulated_now();
        emulated_place *place = reinterpret_cast<emulated_place *>(meeting);
        emulated_thread &self = block->threads[block->now];
        emulated_warp &warp = block->warps[block->now / 32];
        const unsigned bit = 1u << emulated_lane();
        place->arrived |= bit;
        if (place->arrived == place->mask) {
                const unsigned first = block->now / 32 * 32;
                for (unsigned left = place->mask; left != 0; left &= left - 1) {
                        emulated_thread &other = block->threads[first + (unsigned)__builtin_ctz(left)];
                        other.place = nullptr;
                        other.reads = place;
                }
                place->reading = place->mask;
                place->arrived = 0;
                warp.ready |= place->mask;
                self.place = nullptr;
                return;
        }
        warp.ready &= ~bit;
        emulated_leave();
}

unsigned emulated_active()
{
        return 1u << emulated_lane(); /* as if all lanes had parted: code may not rely on more */
}

/* --- blocks ----------------------------------------------------------------------------------------------------------------- */

bool emulated_barrier(bool word, int line)
{
        emulated_block *block = emulated_now();
        emulated_warp &warp = block->warps[block->now / 32];
        emulated_left(&block->threads[block->now]);
        if (block->n_waiting > 0 && block->line != line)
                emulated_fail("the thread comes to the barrier at line %d, %u of %u threads wait at the one at line %d",
                              line, block->n_waiting, block->n_threads, block->line);
        block->line = line;
        block->word = block->word || word;
        if (++block->n_waiting == block->n_threads) {
                block->n_waiting = 0;
                block->said = block->word;
                block->word = false;
                for (unsigned w = 0; w * 32 < block->n_threads; w++)
                        block->warps[w].ready = block->warps[w].all;
        } else {
                warp.ready &= ~(1u << emulated_lane());
        }
        /* The last one to come waits, too, for its turn. */
        emulated_leave();
        return block->said;
}

/* --- the copy engine ---------------------------------------------------------------------------------------------------------- */

/* Dynamic shared memory is at DYNAMIC and up, static at STATIC and some. */
#define DYNAMIC 0x80000000u
#define STATIC 0x40000000u
alignas(128) static unsigned char here; /* as aligned as static shared memory may have to be */

uint32_t emulated_address(const void *at)
{
        const emulated_block *block = emulated_now();
        const unsigned char *byte = static_cast<const unsigned char *>(at);
        if (byte >= block->shared && byte <= block->shared + block->n_shared)
                return DYNAMIC + (uint32_t)(byte - block->shared);
        return STATIC + (uint32_t)(byte - &here);
}

static unsigned char *byte_at(uint32_t address, uint32_t n_bytes)
{
        const emulated_block *block = emulated_now();
        if (address < DYNAMIC)
                return &here + (int32_t)(address - STATIC);
        if ((uint64_t)(address - DYNAMIC) + n_bytes > block->n_shared)
                emulated_fail("bytes %u to %u of dynamic shared memory are copied, there are %zu", address - DYNAMIC,
                              address - DYNAMIC + n_bytes, block->n_shared);
        return block->shared + (address - DYNAMIC);
}

/* A barrier in its 8 bytes; what was never begun has all bits set. */
struct barrier {
        unsigned most : 12, left : 12, phase : 1, begun : 7;
        int32_t n_bytes;
};
#define BEGUN 0x2a

static barrier *barrier_at(uint32_t address)
{
        barrier *b = reinterpret_cast<barrier *>(byte_at(address, sizeof *b));
        if (b->begun != BEGUN)
                emulated_fail("a barrier of the copy engine was never begun");
        return b;
}

static void wake()
{
        emulated_block *block = emulated_now();
        for (unsigned w = 0; w * 32 < block->n_threads; w++) {
                block->warps[w].ready |= block->warps[w].waiting;
                block->warps[w].waiting = 0;
        }
}

static void look(barrier *b)
{
        if (b->left > 0 || b->n_bytes != 0)
                return;
        b->left = b->most;
        b->phase ^= 1;
        wake();
}

void emulated_barrier_begin(uint32_t address, unsigned n_arrivals)
{
        barrier *b = reinterpret_cast<barrier *>(byte_at(address, sizeof *b));
        if (address % 8 != 0)
                emulated_fail("a barrier of the copy engine is not aligned");
        b->most = b->left = n_arrivals & 0xfff;
        b->phase = 0;
        b->begun = BEGUN;
        b->n_bytes = 0;
}

void emulated_barrier_arrive(uint32_t address, uint32_t n_bytes)
{
        barrier *b = barrier_at(address);
        if (b->left == 0)
                emulated_fail("a barrier for %u arrivals has one more", (unsigned)b->most);
        b->n_bytes += (int32_t)n_bytes;
        b->left--;
        look(b);
}

static void check_copy(const void *global, uint32_t shared, uint32_t n_bytes)
{
        if (reinterpret_cast<uintptr_t>(global) % 16 != 0 || shared % 16 != 0 || n_bytes % 16 != 0 || n_bytes == 0)
                emulated_fail("a copy of %u bytes between %p and shared byte %u: all are multiples of 16", n_bytes,
                              global, shared & 0x3fffffffu);
}

void emulated_fetch(uint32_t to, const void *from, uint32_t n_bytes, uint32_t address)
{
        emulated_block *block = emulated_now();
        check_copy(from, to, n_bytes);
        barrier_at(address);
        if (block->n_fetches == EMULATED_MOST_FETCHES)
                emulated_fail("more than %u copies are on their way", EMULATED_MOST_FETCHES);
        block->fetches[block->n_fetches++] = {byte_at(to, n_bytes), from, n_bytes, address};
}

/* Those of one barrier that are on their way, in the order of chance. */
static void fetch_all(uint32_t address)
{
        emulated_block *block = emulated_now();
        barrier *b = barrier_at(address);
        unsigned kept = 0;
        for (unsigned i = 0; i < block->n_fetches; i++) {
                const emulated_copy copy = block->fetches[i];
                if (copy.barrier != address) {
                        block->fetches[kept++] = copy;
                        continue;
                }
                memcpy(copy.to, copy.from, copy.n_bytes);
                b->n_bytes -= (int32_t)copy.n_bytes;
        }
        block->n_fetches = kept;
        look(b);
}

void emulated_barrier_wait(uint32_t address, uint32_t parity)
{
        emulated_block *block = emulated_now();
        emulated_left(&block->threads[block->now]);
        while (barrier_at(address)->phase == parity) {
                fetch_all(address);
                if (barrier_at(address)->phase != parity)
                        break;
                emulated_warp &warp = block->warps[block->now / 32];
                warp.ready &= ~(1u << emulated_lane());
                warp.waiting |= 1u << emulated_lane();
                emulated_leave();
        }
}

void emulated_copy16(uint32_t to, const void *from)
{
        check_copy(from, to, 16);
        emulated_block *block = emulated_now();
        emulated_thread &self = block->threads[block->now];
        if (self.n_copies == EMULATED_MOST_COPIES)
                emulated_fail("a thread has more than %u copies on their way", EMULATED_MOST_COPIES);
        self.copies[self.n_copies++] = {byte_at(to, 16), from, 16, 0};
}

void emulated_wait_copies()
{
        emulated_block *block = emulated_now();
        emulated_thread &self = block->threads[block->now];
        for (unsigned i = 0; i < self.n_copies; i++)
                memcpy(self.copies[i].to, self.copies[i].from, self.copies[i].n_bytes);
        self.n_copies = 0;
}
