/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Stacks that one thread of the system changes between. */
#ifndef DCI_TESTS_EMULATED_FIBER_H
#define DCI_TESTS_EMULATED_FIBER_H

#include <stddef.h>

struct emulated_fiber {
        void *place;     /* where it goes on: its stack pointer, or its ucontext_t */
        const void *low; /* of its stack; null: the thread's own */
        size_t n_bytes;
        void *fake; /* the address sanitizer's */
};

/* A fiber that begins in entry(), which must not return. */
void emulated_fiber_make(emulated_fiber *fiber, void *stack, size_t n_bytes, void (*entry)());
/* From one to another; returns when somebody changes back. At the beginning of entry(), emulated_fiber_begun. ends: `from` never goes on. */
void emulated_fiber_change(emulated_fiber *from, emulated_fiber *to, bool ends);
void emulated_fiber_begun(emulated_fiber *from);

#endif
