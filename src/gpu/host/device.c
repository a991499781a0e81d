/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The device that is the CPU. Its memory comes from the context's allocator, filled with bytes that are NaN in every
 * number format, so that reads of what was never written show. A stream does its work at once, unless it captures: then
 * calls are written down, and done when the graph is launched. Its kernels are the references.
 *
 * All memory must be freed before the device is closed, as on any other; what is not, the allocator misses. */
#define _GNU_SOURCE
#include "gpu/gpu_internal.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ALIGNMENT ((size_t)256)
#define PAGE_BYTES ((size_t)4096)
#define POISON 0xff
/* CPUs have none; this number divides attention as on a small GPU. */
#define MULTIPROCESSORS 16

/* One call of a graph: arguments are copied at capture, and what they point to is read at launch. */
typedef struct host_call {
        struct host_call *next;
        void (*run)(const void *args);
        size_t n_bytes;
        _Alignas(max_align_t) unsigned char args[];
} host_call;

typedef struct host_move {
        void *to;
        const void *from;
        size_t n_bytes;
        int byte;
} host_move;

typedef struct host_graph {
        host_call *first, **last;
} host_graph;

typedef struct host_stream {
        struct host_stream *next;
        host_graph *graph;     /* of the capture in progress */
        bool forked, unjoined; /* it began on another stream; which has not waited for this one since */
} host_stream;

typedef struct host_locked {
        struct host_locked *next;
        unsigned char *memory;
        size_t n_bytes;
} host_locked;

typedef struct host_event {
        bool timed, recorded;
        struct timespec when;
        host_stream *of; /* where it was recorded last */
} host_event;

typedef struct host_state {
        pthread_mutex_t lock; /* of all below and of events; orders what one thread did before another waits for it */
        host_stream *streams;
        host_locked *pins;
        size_t taken_bytes;
} host_state;

/* --- opening -------------------------------------------------------------------------------------------------- */

static dci_status host_count(int32_t *out)
{
        *out = 1;
        return DCI_OK;
}

static size_t pages(int name)
{
        const long n = sysconf(name), size = sysconf(_SC_PAGESIZE);
        return n > 0 && size > 0 ? (size_t)n * (size_t)size : 0;
}

static dci_status host_open(dci_gpu *gpu, int32_t device)
{
        host_state *state = dci_calloc(gpu->context, 1, sizeof *state);
        if (state == NULL)
                return DCI_ERR_MEMORY;
        if (pthread_mutex_init(&state->lock, NULL) != 0) {
                dci_free(gpu->context, state, 1, sizeof *state);
                return dci_fail(DCI_ERR_MEMORY, "no mutex for the host device");
        }
        gpu->state = state;
        snprintf(gpu->info.name, sizeof gpu->info.name, "host");
        gpu->info.device = device;
        gpu->info.numa_node = -1;
        gpu->info.multiprocessors = MULTIPROCESSORS;
        gpu->info.memory_bytes = pages(_SC_PHYS_PAGES);
        return DCI_OK;
}

static void host_close(dci_gpu *gpu)
{
        host_state *state = gpu->state;
        if (state->streams != NULL || state->pins != NULL || state->taken_bytes != 0)
                dci_log_line(gpu->context, DCI_LOG_WARNING,
                             "the host device is closed with %zu bytes taken, streams %s, pinned memory %s",
                             state->taken_bytes, state->streams != NULL ? "open" : "none",
                             state->pins != NULL ? "held" : "none");
        pthread_mutex_destroy(&state->lock);
        dci_free(gpu->context, state, 1, sizeof *state);
}

static dci_status host_free_bytes(dci_gpu *gpu, size_t *out)
{
        (void)gpu;
        *out = pages(_SC_AVPHYS_PAGES);
        return DCI_OK;
}

/* --- memory --------------------------------------------------------------------------------------------------- */

static dci_status host_alloc(dci_gpu *gpu, size_t n_bytes, void **out)
{
        host_state *state = gpu->state;
        const dci_allocator *allocator = &gpu->context->allocator;
        const size_t n = n_bytes == 0 ? 1 : n_bytes;
        pthread_mutex_lock(&state->lock);
        const size_t taken = state->taken_bytes;
        const bool fits = n <= gpu->info.memory_bytes && taken <= gpu->info.memory_bytes - n;
        void *memory = fits ? allocator->alloc(allocator->ctx, n, ALIGNMENT) : NULL;
        if (memory != NULL)
                state->taken_bytes += n;
        pthread_mutex_unlock(&state->lock);
        if (memory == NULL)
                return dci_fail(DCI_ERR_MEMORY, "no memory on the device for %zu bytes: %zu of %zu are taken", n_bytes,
                                taken, gpu->info.memory_bytes);
        memset(memory, POISON, n);
        *out = memory;
        return DCI_OK;
}

static void host_free(dci_gpu *gpu, void *memory, size_t n_bytes)
{
        host_state *state = gpu->state;
        const dci_allocator *allocator = &gpu->context->allocator;
        if (memory == NULL)
                return;
        const size_t n = n_bytes == 0 ? 1 : n_bytes;
        pthread_mutex_lock(&state->lock);
        allocator->free(allocator->ctx, memory, n);
        state->taken_bytes -= n;
        pthread_mutex_unlock(&state->lock);
}

/* As CUDA: whole pages are locked, so memory begins at one, and none is locked twice. */
static dci_status host_pin(dci_gpu *gpu, void *memory, size_t n_bytes, void **out_address)
{
        host_state *state = gpu->state;
        unsigned char *begin = memory;
        if (begin == NULL || n_bytes == 0 || (uintptr_t)begin % PAGE_BYTES != 0)
                return dci_fail(DCI_ERR_INVALID,
                                "%zu bytes at %p cannot be locked: expected some, at a multiple of %zu", n_bytes,
                                memory, PAGE_BYTES);
        host_locked *pin = dci_alloc(gpu->context, 1, sizeof *pin);
        if (pin == NULL)
                return DCI_ERR_MEMORY;
        pthread_mutex_lock(&state->lock);
        const host_locked *other = state->pins;
        while (other != NULL && (begin >= other->memory + other->n_bytes || begin + n_bytes <= other->memory))
                other = other->next;
        if (other == NULL) {
                *pin = (host_locked){state->pins, begin, n_bytes};
                state->pins = pin;
        }
        pthread_mutex_unlock(&state->lock);
        if (other != NULL) {
                dci_free(gpu->context, pin, 1, sizeof *pin);
                return dci_fail(DCI_ERR_DEVICE, "%zu bytes at %p are locked already, in part or all", n_bytes, memory);
        }
        *out_address = memory;
        return DCI_OK;
}

static void host_unpin(dci_gpu *gpu, void *memory)
{
        host_state *state = gpu->state;
        pthread_mutex_lock(&state->lock);
        host_locked **at = &state->pins;
        while (*at != NULL && (*at)->memory != (unsigned char *)memory)
                at = &(*at)->next;
        host_locked *pin = *at;
        if (pin != NULL)
                *at = pin->next;
        pthread_mutex_unlock(&state->lock);
        dci_free(gpu->context, pin, 1, sizeof *pin);
}

static dci_status host_pointer_check(dci_gpu *gpu, const void *pointer, const char *name)
{
        (void)gpu;
        return pointer != NULL ? DCI_OK : dci_fail(DCI_ERR_INVALID, "%s is NULL", name);
}

/* --- streams -------------------------------------------------------------------------------------------------- */

static dci_status host_stream_create(dci_gpu *gpu, void **out)
{
        host_state *state = gpu->state;
        host_stream *stream = dci_calloc(gpu->context, 1, sizeof *stream);
        if (stream == NULL)
                return DCI_ERR_MEMORY;
        pthread_mutex_lock(&state->lock);
        stream->next = state->streams;
        state->streams = stream;
        pthread_mutex_unlock(&state->lock);
        *out = stream;
        return DCI_OK;
}

static void host_graph_destroy(dci_gpu *gpu, void *object)
{
        host_graph *graph = object;
        if (graph == NULL)
                return;
        for (host_call *call = graph->first, *next; call != NULL; call = next) {
                next = call->next;
                dci_free(gpu->context, call, 1, sizeof *call + call->n_bytes);
        }
        dci_free(gpu->context, graph, 1, sizeof *graph);
}

static void host_stream_destroy(dci_gpu *gpu, void *object)
{
        host_state *state = gpu->state;
        pthread_mutex_lock(&state->lock);
        host_stream **at = &state->streams;
        while (*at != NULL && *at != object)
                at = &(*at)->next;
        host_stream *stream = *at;
        if (stream != NULL)
                *at = stream->next;
        pthread_mutex_unlock(&state->lock);
        if (stream != NULL)
                host_graph_destroy(gpu, stream->graph);
        dci_free(gpu->context, stream, 1, sizeof *stream);
}

static dci_status host_stream_check(dci_gpu *gpu, void *object)
{
        host_state *state = gpu->state;
        if (object == NULL)
                return DCI_OK;
        pthread_mutex_lock(&state->lock);
        const host_stream *stream = state->streams;
        while (stream != NULL && stream != object)
                stream = stream->next;
        pthread_mutex_unlock(&state->lock);
        return stream != NULL ? DCI_OK : dci_fail(DCI_ERR_INVALID, "%p is no stream of this host device", object);
}

static dci_status host_stream_runs(dci_gpu *gpu, void *object)
{
        const host_stream *stream = object;
        DCI_TRY(host_stream_check(gpu, object));
        if (stream != NULL && stream->graph != NULL)
                return dci_fail(DCI_ERR_INVALID, "the stream %p is being captured: it cannot be waited for", object);
        return DCI_OK;
}

/* All queued work is done already. */
static dci_status host_stream_wait(dci_gpu *gpu, void *object)
{
        return host_stream_runs(gpu, object);
}

dci_status dci_gpu_host_call(dci_gpu *gpu, void *object, void (*run)(const void *args), const void *args,
                             size_t n_bytes)
{
        host_stream *stream = object;
        DCI_TRY(host_stream_check(gpu, object));
        if (stream == NULL || stream->graph == NULL) {
                run(args);
                return DCI_OK;
        }
        host_call *kept = dci_alloc(gpu->context, 1, sizeof *kept + n_bytes);
        if (kept == NULL)
                return DCI_ERR_MEMORY;
        stream->unjoined = stream->forked;
        kept->next = NULL;
        kept->run = run;
        kept->n_bytes = n_bytes;
        memcpy(kept->args, args, n_bytes);
        *stream->graph->last = kept;
        stream->graph->last = &kept->next;
        return DCI_OK;
}

static void run_copy(const void *args)
{
        const host_move *move = args;
        if (move->n_bytes > 0)
                memmove(move->to, move->from, move->n_bytes);
}

static void run_fill(const void *args)
{
        const host_move *move = args;
        if (move->n_bytes > 0)
                memset(move->to, move->byte, move->n_bytes);
}

static dci_status host_copy(dci_gpu *gpu, void *stream, void *to, const void *from, size_t n_bytes)
{
        const host_move move = {.to = to, .from = from, .n_bytes = n_bytes};
        return dci_gpu_host_call(gpu, stream, run_copy, &move, sizeof move);
}

/* Copy by copy through the ops table, in which tests replace `copy`. */
static dci_status host_copy_rows(dci_gpu *gpu, void *stream, void *to, const void *from, size_t from_step,
                                 size_t n_bytes, size_t n)
{
        for (size_t i = 0; i < n; i++)
                DCI_TRY(gpu->ops->copy(gpu, stream, (unsigned char *)to + i * n_bytes,
                                       (const unsigned char *)from + i * from_step, n_bytes));
        return DCI_OK;
}

static dci_status host_copy_batch(dci_gpu *gpu, void *stream, size_t n, void *const *to, const void *const *from,
                                  const size_t *n_bytes)
{
        for (size_t i = 0; i < n; i++)
                DCI_TRY(gpu->ops->copy(gpu, stream, to[i], from[i], n_bytes[i]));
        return DCI_OK;
}

static dci_status host_fill(dci_gpu *gpu, void *stream, void *to, int byte, size_t n_bytes)
{
        const host_move move = {.to = to, .n_bytes = n_bytes, .byte = byte};
        return dci_gpu_host_call(gpu, stream, run_fill, &move, sizeof move);
}

typedef struct notice {
        void (*fn)(void *arg);
        void *arg;
} notice;

static void run_notice(const void *args)
{
        const notice *n = args;
        n->fn(n->arg);
}

static dci_status host_notify(dci_gpu *gpu, void *stream, void (*fn)(void *arg), void *arg)
{
        const notice n = {fn, arg};
        return dci_gpu_host_call(gpu, stream, run_notice, &n, sizeof n);
}

/* --- events --------------------------------------------------------------------------------------------------- */

static dci_status host_event_create(dci_gpu *gpu, bool timed, void **out)
{
        host_event *event = dci_calloc(gpu->context, 1, sizeof *event);
        if (event == NULL)
                return DCI_ERR_MEMORY;
        event->timed = timed;
        *out = event;
        return DCI_OK;
}

static void host_event_destroy(dci_gpu *gpu, void *event)
{
        dci_free(gpu->context, event, 1, sizeof(host_event));
}

static dci_status host_event_record(dci_gpu *gpu, void *object, void *stream)
{
        host_state *state = gpu->state;
        host_event *event = object;
        DCI_TRY(host_stream_check(gpu, stream));
        pthread_mutex_lock(&state->lock);
        event->recorded = true;
        event->of = stream;
        if (event->timed)
                clock_gettime(CLOCK_MONOTONIC, &event->when);
        pthread_mutex_unlock(&state->lock);
        return DCI_OK;
}

/* The work before a record is done when the record is made; the lock makes it visible to the thread that waits. */
static dci_status host_event_wait(dci_gpu *gpu, void *event)
{
        host_state *state = gpu->state;
        (void)event;
        pthread_mutex_lock(&state->lock);
        pthread_mutex_unlock(&state->lock);
        return DCI_OK;
}

/* A stream that waits for one that captures is captured, too, until that one's capture ends. */
static void follow(host_state *state, host_stream *stream, const host_stream *other)
{
        pthread_mutex_lock(&state->lock);
        for (host_stream *s = state->streams; s != NULL; s = s->next) {
                if (s != other || s == stream || s->graph == NULL)
                        continue;
                stream->forked = stream->forked || stream->graph == NULL;
                stream->graph = stream->graph == NULL ? s->graph : stream->graph;
                s->unjoined = false;
        }
        pthread_mutex_unlock(&state->lock);
}

static dci_status host_event_order(dci_gpu *gpu, void *stream, void *event)
{
        DCI_TRY(host_stream_check(gpu, stream));
        DCI_TRY(host_event_wait(gpu, event));
        if (stream != NULL)
                follow(gpu->state, stream, ((host_event *)event)->of);
        return DCI_OK;
}

static dci_status host_event_elapsed(dci_gpu *gpu, void *from, void *to, double *out_seconds)
{
        host_state *state = gpu->state;
        const host_event *a = from, *b = to;
        pthread_mutex_lock(&state->lock);
        const bool known = a->timed && b->timed && a->recorded && b->recorded;
        const double seconds =
                (double)(b->when.tv_sec - a->when.tv_sec) + 1e-9 * (double)(b->when.tv_nsec - a->when.tv_nsec);
        pthread_mutex_unlock(&state->lock);
        if (!known)
                return dci_fail(DCI_ERR_DEVICE, "the time between two events is not known: %s",
                                a->timed && b->timed ? "one was never recorded" : "one has no clock");
        *out_seconds = seconds;
        return DCI_OK;
}

/* --- graphs --------------------------------------------------------------------------------------------------- */

static dci_status host_capture_begin(dci_gpu *gpu, void *object)
{
        host_stream *stream = object;
        DCI_TRY(host_stream_check(gpu, object));
        if (stream == NULL || stream->graph != NULL)
                return dci_fail(DCI_ERR_DEVICE, "%s",
                                stream == NULL ? "the default stream cannot capture" : "the stream captures already");
        host_graph *graph = dci_alloc(gpu->context, 1, sizeof *graph);
        if (graph == NULL)
                return DCI_ERR_MEMORY;
        graph->first = NULL;
        graph->last = &graph->first;
        stream->graph = graph;
        return DCI_OK;
}

static dci_status host_capture_end(dci_gpu *gpu, void *object, void **out_graph)
{
        host_stream *stream = object;
        DCI_TRY(host_stream_check(gpu, object));
        if (stream == NULL || stream->graph == NULL)
                return dci_fail(DCI_ERR_DEVICE, "the stream does not capture");
        host_state *state = gpu->state;
        bool unjoined = false;
        *out_graph = stream->graph;
        for (host_stream *s = state->streams; s != NULL; s = s->next)
                if (s->graph == *out_graph) {
                        unjoined = unjoined || s->unjoined;
                        s->graph = NULL;
                        s->forked = s->unjoined = false;
                }
        return unjoined ? dci_fail(DCI_ERR_DEVICE, "the capture's end has not waited for another stream") : DCI_OK;
}

static dci_status host_graph_launch(dci_gpu *gpu, void *object, void *stream)
{
        const host_graph *graph = object;
        DCI_TRY(host_stream_runs(gpu, stream));
        for (const host_call *call = graph->first; call != NULL; call = call->next)
                call->run(call->args);
        return DCI_OK;
}

/* --- kernels -------------------------------------------------------------------------------------------------- */

#define RUN(name)                                                                                                      \
        static void run_##name(const void *args)                                                                       \
        {                                                                                                              \
                dci_gpu_ref_##name(args);                                                                              \
        }
#define KERNEL(name)                                                                                                   \
        RUN(name)                                                                                                      \
        static dci_status host_##name(dci_gpu *gpu, void *stream, const dci_gpu_##name##_args *args)                   \
        {                                                                                                              \
                return dci_gpu_host_call(gpu, stream, run_##name, args, sizeof *args);                                 \
        }
KERNEL(append)
KERNEL(pack)
KERNEL(reside)
KERNEL(forget)
KERNEL(gather)
KERNEL(score)
KERNEL(select)
KERNEL(gate)
KERNEL(reuse)
KERNEL(encode)
KERNEL(encode_prompt)
KERNEL(encode_learned)
KERNEL(tail_sums)
KERNEL(tail_clusters)
KERNEL(kmeans)
KERNEL(tree)
KERNEL(patch)
KERNEL(vote)

RUN(tail)
static dci_status host_tail(dci_gpu *gpu, void *stream, const dci_gpu_tail_args *args)
{
        if (args->bits != 4 && args->bits != 2 && args->bits != 1)
                return dci_fail(DCI_ERR_UNSUPPORTED, "values of %d bits, the device's kernel takes 4, 2 or 1",
                                args->bits);
        return dci_gpu_host_call(gpu, stream, run_tail, args, sizeof *args);
}

RUN(resolve)
static dci_status host_resolve(dci_gpu *gpu, void *stream, const dci_gpu_resolve_args *args)
{
        if (args->n_frames > DCI_GPU_MAX_FRAMES || args->stride > DCI_GPU_MAX_LIST)
                return dci_fail(DCI_ERR_LIMIT, "%d frames and lists of %d, but there can be %d and %d",
                                (int)args->n_frames, (int)args->stride, DCI_GPU_MAX_FRAMES, DCI_GPU_MAX_LIST);
        return dci_gpu_host_call(gpu, stream, run_resolve, args, sizeof *args);
}

RUN(attend)
static dci_status host_attend(dci_gpu *gpu, void *stream, const dci_gpu_attend_args *args)
{
        DCI_TRY(dci_gpu_check_shape(args->group, args->dim));
        return dci_gpu_host_call(gpu, stream, run_attend, args, sizeof *args);
}

static dci_status host_fits(dci_gpu *gpu, const dci_gpu_needs *needs)
{
        (void)gpu;
        (void)needs;
        return DCI_OK;
}

#define ENTRY(name) .name = host_##name,
const dci_gpu_ops dci_gpu_ops_host = {
        .name = "host", DCI_GPU_EACH_OP(ENTRY) DCI_GPU_EACH_KERNEL(ENTRY) /* with their commas */
};
