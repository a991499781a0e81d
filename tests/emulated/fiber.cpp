/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "emulated/fiber.h"

#include <stdint.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif

#ifdef WITH_ASAN
extern "C" {
void __sanitizer_start_switch_fiber(void **fake, const void *low, size_t n_bytes);
void __sanitizer_finish_switch_fiber(void *fake, const void **low, size_t *n_bytes);
}
#endif

#if defined(__x86_64__)
/* Saves what a call must keep, and takes the other's. */
extern "C" void emulated_switch(void **from, void *to);
asm(".text\n"
    ".globl emulated_switch\n"
    ".hidden emulated_switch\n"
    ".type emulated_switch, @function\n"
    "emulated_switch:\n"
    "        endbr64\n"
    "        pushq %rbp\n"
    "        pushq %rbx\n"
    "        pushq %r12\n"
    "        pushq %r13\n"
    "        pushq %r14\n"
    "        pushq %r15\n"
    "        movq %rsp, (%rdi)\n"
    "        movq %rsi, %rsp\n"
    "        popq %r15\n"
    "        popq %r14\n"
    "        popq %r13\n"
    "        popq %r12\n"
    "        popq %rbx\n"
    "        popq %rbp\n"
    "        ret\n"
    ".size emulated_switch, .-emulated_switch\n");

static void *first_place(void *stack, size_t n_bytes, void (*entry)())
{
        void **top = reinterpret_cast<void **>((reinterpret_cast<uintptr_t>(stack) + n_bytes) & ~(uintptr_t)63);
        *--top = nullptr; /* entry's return address: the stack is as a call leaves it */
        *--top = reinterpret_cast<void *>(entry);
        for (int i = 0; i < 6; i++)
                *--top = nullptr;
        return top;
}
#elif defined(__aarch64__)
extern "C" void emulated_switch(void **from, void *to);
asm(".text\n"
    ".globl emulated_switch\n"
    ".hidden emulated_switch\n"
    ".type emulated_switch, %function\n"
    "emulated_switch:\n"
    "        sub sp, sp, #160\n"
    "        stp x19, x20, [sp]\n"
    "        stp x21, x22, [sp, #16]\n"
    "        stp x23, x24, [sp, #32]\n"
    "        stp x25, x26, [sp, #48]\n"
    "        stp x27, x28, [sp, #64]\n"
    "        stp x29, x30, [sp, #80]\n"
    "        stp d8, d9, [sp, #96]\n"
    "        stp d10, d11, [sp, #112]\n"
    "        stp d12, d13, [sp, #128]\n"
    "        stp d14, d15, [sp, #144]\n"
    "        mov x9, sp\n"
    "        str x9, [x0]\n"
    "        mov sp, x1\n"
    "        ldp x19, x20, [sp]\n"
    "        ldp x21, x22, [sp, #16]\n"
    "        ldp x23, x24, [sp, #32]\n"
    "        ldp x25, x26, [sp, #48]\n"
    "        ldp x27, x28, [sp, #64]\n"
    "        ldp x29, x30, [sp, #80]\n"
    "        ldp d8, d9, [sp, #96]\n"
    "        ldp d10, d11, [sp, #112]\n"
    "        ldp d12, d13, [sp, #128]\n"
    "        ldp d14, d15, [sp, #144]\n"
    "        add sp, sp, #160\n"
    "        ret\n"
    ".size emulated_switch, .-emulated_switch\n");

static void *first_place(void *stack, size_t n_bytes, void (*entry)())
{
        void **top = reinterpret_cast<void **>((reinterpret_cast<uintptr_t>(stack) + n_bytes) & ~(uintptr_t)63);
        top -= 20;
        for (int i = 0; i < 20; i++)
                top[i] = nullptr;
        top[11] = reinterpret_cast<void *>(entry);
        return top;
}
#else
#include <ucontext.h>

static void emulated_switch(void **from, void *to)
{
        ucontext_t here;
        *from = &here;
        swapcontext(&here, static_cast<ucontext_t *>(to));
}

/* The context is at the stack's end. */
static void *first_place(void *stack, size_t n_bytes, void (*entry)())
{
        unsigned char *end = static_cast<unsigned char *>(stack) + n_bytes;
        ucontext_t *context =
                reinterpret_cast<ucontext_t *>(reinterpret_cast<uintptr_t>(end - sizeof *context) & ~(uintptr_t)63);
        getcontext(context);
        context->uc_stack.ss_sp = stack;
        context->uc_stack.ss_size =
                (size_t)(reinterpret_cast<unsigned char *>(context) - static_cast<unsigned char *>(stack));
        context->uc_link = nullptr;
        makecontext(context, entry, 0);
        return context;
}
#endif

void emulated_fiber_make(emulated_fiber *fiber, void *stack, size_t n_bytes, void (*entry)())
{
        fiber->place = first_place(stack, n_bytes, entry);
        fiber->low = stack;
        fiber->n_bytes = n_bytes;
        fiber->fake = nullptr;
}

void emulated_fiber_change(emulated_fiber *from, emulated_fiber *to, bool ends)
{
#ifdef WITH_ASAN
        __sanitizer_start_switch_fiber(ends ? nullptr : &from->fake, to->low, to->n_bytes);
#else
        (void)ends;
#endif
        emulated_switch(&from->place, to->place);
#ifdef WITH_ASAN
        __sanitizer_finish_switch_fiber(from->fake, nullptr, nullptr);
#endif
}

/* The thread's own stack is known here for the first time, where the fiber came from it. */
void emulated_fiber_begun(emulated_fiber *from)
{
#ifdef WITH_ASAN
        const void *low;
        size_t n_bytes;
        __sanitizer_finish_switch_fiber(nullptr, &low, &n_bytes);
        if (from->low == nullptr) {
                from->low = low;
                from->n_bytes = n_bytes;
        }
#else
        (void)from;
#endif
}
