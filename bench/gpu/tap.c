/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * A tap into a device's operations: the object under measurement calls through it, with the arguments that it always has, and kernels of some
 * phases are left out. What a phase takes is then the difference of two graphs, one of which ends before it: with all that phases share, such
 * as what overlaps.
 */
#include "core/internal.h"

#include "bench/gpu/driver.h"
#include "gpu/cuda/pin.h"

#include <stdlib.h>

const char *const gpubench_phase_names[PHASES] = {"append",    "encode", "score", "select",
                                                  "residency", "gather", "tail",  "attend"};

typedef struct span {
        int phase;
        void *begin, *end;
} span;

/* One for the program: an operation receives its device and no other context. */
static struct {
        const dci_gpu_ops *below;
        dci_gpu_ops ops;
        uint32_t allowed;
        uint64_t calls[PHASES];
        bool times;
        span *spans;
        size_t n_spans, n_used;
} tap;

static dci_status begin(dci_gpu *gpu, void *stream, int phase)
{
        if (!tap.times)
                return DCI_OK;
        if (tap.n_used == tap.n_spans) {
                span *more = realloc(tap.spans, (tap.n_spans + 1) * sizeof *more);
                if (more == NULL)
                        return dci_fail(DCI_ERR_MEMORY, "%zu events could not be had", tap.n_spans + 1);
                tap.spans = more;
                more[tap.n_spans++] = (span){.phase = phase};
        }
        span *s = &tap.spans[tap.n_used];
        DCI_TRY(s->begin != NULL ? DCI_OK : tap.below->event_create(gpu, true, &s->begin));
        if (s->end == NULL)
                DCI_TRY(tap.below->event_create(gpu, true, &s->end));
        s->phase = phase;
        return tap.below->event_record(gpu, s->begin, stream);
}

static dci_status end(dci_gpu *gpu, void *stream)
{
        return tap.times ? tap.below->event_record(gpu, tap.spans[tap.n_used++].end, stream) : DCI_OK;
}

static bool enters(int phase)
{
        tap.calls[phase]++;
        return (tap.allowed & 1U << phase) != 0;
}

#define TAPPED(name, type, phase)                                                                                      \
        static dci_status tap_##name(dci_gpu *gpu, void *stream, const type *args)                                     \
        {                                                                                                              \
                if (!enters(phase))                                                                                    \
                        return DCI_OK;                                                                                 \
                dci_status status = begin(gpu, stream, phase);                                                         \
                if (status == DCI_OK)                                                                                  \
                        status = tap.below->name(gpu, stream, args);                                                   \
                return status == DCI_OK ? end(gpu, stream) : status;                                                   \
        }
TAPPED(append, dci_gpu_append_args, PHASE_APPEND)
TAPPED(pack, dci_gpu_pack_args, PHASE_APPEND)
TAPPED(encode, dci_gpu_encode_args, PHASE_ENCODE)
TAPPED(score, dci_gpu_score_args, PHASE_SCORE)
TAPPED(select, dci_gpu_select_args, PHASE_SELECT)
TAPPED(vote, dci_gpu_vote_args, PHASE_SCORE)
TAPPED(tree, dci_gpu_tree_args, PHASE_SELECT)
TAPPED(resolve, dci_gpu_resolve_args, PHASE_RESIDENCY)
TAPPED(gather, dci_gpu_gather_args, PHASE_GATHER)
TAPPED(tail, dci_gpu_tail_args, PHASE_TAIL)
TAPPED(tail_sums, dci_gpu_tail_sums_args, PHASE_TAIL)
TAPPED(tail_clusters, dci_gpu_tail_clusters_args, PHASE_TAIL)
TAPPED(attend, dci_gpu_attend_args, PHASE_ATTEND)

#if defined(BENCH_HAS_CUDA)
/* --- locking ------------------------------------------------------------------------------------------------------------------ */

enum { TOUCH_BYTES = 16 << 20 };

typedef struct touching {
        volatile unsigned char *memory;
        size_t n_bytes;
} touching;

static void touch(void *arg, size_t task, size_t worker)
{
        const touching *t = arg;
        const size_t end = (task + 1) * TOUCH_BYTES < t->n_bytes ? (task + 1) * TOUCH_BYTES : t->n_bytes;
        (void)worker;
        for (size_t i = task * TOUCH_BYTES; i < end; i += DCI_MEMORY_PAGE)
                t->memory[i] = t->memory[i]; /* cppcheck-suppress selfAssignment */
}

/* Touches memory with all threads before it is locked: the runtime would use one, and take several seconds. */
static dci_status tap_pin(dci_gpu *gpu, void *memory, size_t n_bytes, void **out_address)
{
        touching t = {memory, n_bytes};
        const size_t n_tasks = (n_bytes + TOUCH_BYTES - 1) / TOUCH_BYTES;
        const dci_region region = {.context = gpu->context,
                                   .n_tasks = n_tasks,
                                   .n_workers = dci_workers_for(gpu->context, n_tasks, n_bytes),
                                   .fn = touch,
                                   .arg = &t};
        dci_gpu_place(memory, n_bytes, gpu->info.numa_node);
        DCI_TRY(dci_parallel(&region));
        return tap.below->pin(gpu, memory, n_bytes, out_address);
}
#endif

void gpubench_tap_open(gpubench *b)
{
        tap.below = b->gpu->ops;
        tap.allowed = PHASES_ALL;
        tap.ops = *tap.below;
#if defined(BENCH_HAS_CUDA)
        tap.ops.pin = tap_pin;
#endif
        tap.ops.append = tap_append;
        tap.ops.pack = tap_pack;
        tap.ops.encode = tap_encode;
        tap.ops.score = tap_score;
        tap.ops.select = tap_select;
        tap.ops.vote = tap_vote;
        tap.ops.tree = tap_tree;
        tap.ops.resolve = tap_resolve;
        tap.ops.gather = tap_gather;
        tap.ops.tail = tap_tail;
        tap.ops.tail_sums = tap_tail_sums;
        tap.ops.tail_clusters = tap_tail_clusters;
        tap.ops.attend = tap_attend;
        b->gpu->ops = &tap.ops;
}

void gpubench_tap_close(gpubench *b)
{
        for (size_t i = 0; i < tap.n_spans; i++) {
                if (tap.spans[i].begin != NULL)
                        b->ops->event_destroy(b->gpu, tap.spans[i].begin);
                if (tap.spans[i].end != NULL)
                        b->ops->event_destroy(b->gpu, tap.spans[i].end);
        }
        free(tap.spans);
        tap.spans = NULL;
        tap.n_spans = tap.n_used = 0;
        tap.times = false;
        b->gpu->ops = tap.below;
}

void gpubench_tap_allow(uint32_t phases)
{
        tap.allowed = phases;
}

uint64_t gpubench_tap_calls(int phase)
{
        const uint64_t n = tap.calls[phase];
        tap.calls[phase] = 0;
        return n;
}

void gpubench_tap_time(void)
{
        tap.times = true;
        tap.n_used = 0;
}

dci_status gpubench_tap_times(gpubench *b, double *seconds)
{
        DCI_TRY(b->ops->stream_wait(b->gpu, b->stream));
        tap.times = false;
        for (size_t i = 0; i < tap.n_used; i++) {
                double took = 0;
                DCI_TRY(b->ops->event_elapsed(b->gpu, tap.spans[i].begin, tap.spans[i].end, &took));
                seconds[tap.spans[i].phase] += took;
        }
        tap.n_used = 0;
        return DCI_OK;
}
