/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The block that runs, for the emulator's own files. */
#ifndef DCI_TESTS_EMULATED_STATE_H
#define DCI_TESTS_EMULATED_STATE_H

#include "emulated/emulator.h"
#include "emulated/fiber.h"

#include <cuda_runtime.h>

#define EMULATED_MOST_THREADS 1024u

/* A meeting of lanes, on its way or being read. */
struct emulated_place {
        emulated_meeting meeting; /* first: a pointer to it is one to the place */
        unsigned mask, arrived, reading;
        int what, line;
};

struct emulated_warp {
        unsigned ready;            /* lanes that can go on */
        unsigned all;              /* lanes that there are */
        unsigned waiting;          /* for the copy engine */
        unsigned turn;             /* the lane that is asked first */
        emulated_place places[33]; /* a lane waits at one or reads one; so one is always free */
};

/* A copy that happens when it is waited for. */
struct emulated_copy {
        void *to;
        const void *from;
        uint32_t n_bytes, barrier;
};

#define EMULATED_MOST_COPIES 64u
struct emulated_thread {
        emulated_fiber fiber;
        emulated_place *place, *reads; /* where it waits, what it may still read */
        emulated_copy copies[EMULATED_MOST_COPIES];
        unsigned n_copies;
        bool ended;
};

#define EMULATED_MOST_FETCHES 4096u
struct emulated_block {
        unsigned n_threads, n_ended, now; /* now: the thread that runs */
        unsigned n_waiting;               /* at the block's barrier */
        int line;
        bool word, said; /* of this barrier, of the last one */
        unsigned char *shared, *shared_end;
        size_t n_shared;
        emulated_warp warps[EMULATED_MOST_THREADS / 32];
        emulated_thread threads[EMULATED_MOST_THREADS];
        emulated_copy fetches[EMULATED_MOST_FETCHES];
        unsigned n_fetches;
};

emulated_block *emulated_now();
/* A number below n, by chance. */
uint32_t emulated_chance(uint32_t n);
/* The running thread is not ready; returns when it is. */
void emulated_leave();
/* It reads what it met no longer. */
void emulated_left(emulated_thread *thread);

#endif
