/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/common.h"

#include "tests/gpu_late.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef void (*late_run)(dci_gpu *gpu, const void *args);

/* Arguments are read when a call is made, what they point to when it runs. */
typedef struct late_call {
        struct late_call *next;
        late_run run;
        _Alignas(max_align_t) unsigned char args[];
} late_call;

typedef struct late_calls {
        late_call *first, **last;
} late_calls;

typedef struct late_graph {
        size_t number; /* of all captures */
        late_calls calls;
} late_graph;

/* They live until the device is closed: other streams may have to wait for one that is given back. */
typedef struct late_stream {
        struct late_stream *next;
        dci_gpu *gpu;
        bool given, eager, is_default;
        late_calls calls;
        size_t n_queued, n_done;
        late_graph *graph; /* of the capture that is under way */
} late_stream;

typedef struct late_event {
        late_stream *of;
        size_t n;       /* calls of the stream that were queued before */
        size_t capture; /* that it was recorded in, or 0 */
} late_event;

typedef struct late_order {
        late_stream *of;
        size_t n;
} late_order;

typedef struct late_move {
        void *to;
        const void *from;
        size_t n_bytes;
        int byte;
} late_move;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* all of it */
static late_stream *streams;
static size_t n_captures;

/* --- doing what was queued ---------------------------------------------------------------------------------------- */

static void run_order(dci_gpu *gpu, const void *args);

static void run_until(late_stream *stream, size_t n)
{
        while (stream->n_done < n) {
                late_call *call = stream->calls.first;
                ck_assert_ptr_nonnull(call);
                /* What it waits for was queued before, so that it asks for no later call of this stream. */
                call->run(stream->gpu, call->args);
                stream->calls.first = call->next;
                if (call->next == NULL)
                        stream->calls.last = &stream->calls.first;
                stream->n_done++;
                free(call);
        }
}

static void run_order(dci_gpu *gpu, const void *args)
{
        const late_order *order = args;
        (void)gpu;
        run_until(order->of, order->n);
}

static void run_all(const dci_gpu *gpu)
{
        for (late_stream *s = streams; s != NULL; s = s->next)
                if (s->gpu == gpu)
                        run_until(s, s->n_queued);
}

static void run_graph(dci_gpu *gpu, const void *args)
{
        const late_graph *graph = *(late_graph *const *)args;
        for (const late_call *call = graph->calls.first; call != NULL; call = call->next)
                call->run(gpu, call->args);
}

static late_stream *stream_of(dci_gpu *gpu, void *object)
{
        late_stream *s = streams;
        while (s != NULL && (s->gpu != gpu || s->given || (object != NULL ? s != object : !s->is_default)))
                s = s->next;
        return s;
}

static late_stream *new_stream(dci_gpu *gpu, bool is_default)
{
        const char *wish = getenv("DCI_LATE");
        late_stream *s = calloc(1, sizeof *s);
        bool is_first = true;
        ck_assert_ptr_nonnull(s);
        for (const late_stream *other = streams; other != NULL; other = other->next)
                is_first = is_first && (other->gpu != gpu || other->is_default);
        s->gpu = gpu;
        s->is_default = is_default;
        s->eager = wish != NULL && strcmp(wish, is_first ? "others" : "first") == 0;
        s->calls.last = &s->calls.first;
        s->next = streams;
        streams = s;
        return s;
}

static void put_call(late_calls *calls, late_run run, const void *args, size_t n_bytes)
{
        late_call *call = malloc(sizeof *call + n_bytes);
        ck_assert_ptr_nonnull(call);
        call->next = NULL;
        call->run = run;
        memcpy(call->args, args, n_bytes);
        *calls->last = call;
        calls->last = &call->next;
}

static void queue_on(late_stream *s, late_run run, const void *args, size_t n_bytes)
{
        put_call(s->graph != NULL ? &s->graph->calls : &s->calls, run, args, n_bytes);
        s->n_queued += s->graph == NULL;
        if (s->eager)
                run_until(s, s->n_queued);
}

static dci_status queue(dci_gpu *gpu, void *object, late_run run, const void *args, size_t n_bytes)
{
        pthread_mutex_lock(&lock);
        late_stream *s = stream_of(gpu, object);
        if (s != NULL)
                queue_on(s, run, args, n_bytes);
        pthread_mutex_unlock(&lock);
        return s != NULL ? DCI_OK : dci_fail(DCI_ERR_INVALID, "%p is no stream of this late device", object);
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

static void late_free(dci_gpu *gpu, void *memory, size_t n_bytes)
{
        pthread_mutex_lock(&lock);
        run_all(gpu);
        pthread_mutex_unlock(&lock);
        dci_gpu_ops_host.free(gpu, memory, n_bytes);
}

static void late_unpin(dci_gpu *gpu, void *memory)
{
        pthread_mutex_lock(&lock);
        run_all(gpu);
        pthread_mutex_unlock(&lock);
        dci_gpu_ops_host.unpin(gpu, memory);
}

static void run_copy(dci_gpu *gpu, const void *args)
{
        const late_move *move = args;
        (void)gpu;
        memmove(move->to, move->from, move->n_bytes);
}

static void run_fill(dci_gpu *gpu, const void *args)
{
        const late_move *move = args;
        (void)gpu;
        memset(move->to, move->byte, move->n_bytes);
}

static dci_status late_copy(dci_gpu *gpu, void *stream, void *to, const void *from, size_t n_bytes)
{
        const late_move move = {.to = to, .from = from, .n_bytes = n_bytes};
        return n_bytes == 0 ? DCI_OK : queue(gpu, stream, run_copy, &move, sizeof move);
}

static dci_status late_fill(dci_gpu *gpu, void *stream, void *to, int byte, size_t n_bytes)
{
        const late_move move = {.to = to, .n_bytes = n_bytes, .byte = byte};
        return n_bytes == 0 ? DCI_OK : queue(gpu, stream, run_fill, &move, sizeof move);
}

typedef struct late_notice {
        void (*fn)(void *arg);
        void *arg;
} late_notice;

static void run_notice(dci_gpu *gpu, const void *args)
{
        const late_notice *notice = args;
        (void)gpu;
        notice->fn(notice->arg);
}

static dci_status late_notify(dci_gpu *gpu, void *stream, void (*fn)(void *arg), void *arg)
{
        const late_notice notice = {fn, arg};
        return queue(gpu, stream, run_notice, &notice, sizeof notice);
}

/* --- streams and events --------------------------------------------------------------------------------------------- */

static dci_status late_stream_create(dci_gpu *gpu, void **out)
{
        pthread_mutex_lock(&lock);
        *out = new_stream(gpu, false);
        pthread_mutex_unlock(&lock);
        return DCI_OK;
}

static dci_status late_stream_check(dci_gpu *gpu, void *object)
{
        pthread_mutex_lock(&lock);
        const bool there = stream_of(gpu, object) != NULL;
        pthread_mutex_unlock(&lock);
        return there ? DCI_OK : dci_fail(DCI_ERR_INVALID, "%p is no stream of this late device", object);
}

static void late_stream_destroy(dci_gpu *gpu, void *object)
{
        pthread_mutex_lock(&lock);
        late_stream *s = object != NULL ? stream_of(gpu, object) : NULL;
        if (s != NULL) {
                run_until(s, s->n_queued);
                s->given = true;
        }
        pthread_mutex_unlock(&lock);
}

static dci_status late_stream_runs(dci_gpu *gpu, void *object)
{
        const dci_status status = late_stream_check(gpu, object);
        if (status != DCI_OK)
                return status;
        pthread_mutex_lock(&lock);
        const bool captures = stream_of(gpu, object)->graph != NULL;
        pthread_mutex_unlock(&lock);
        return captures ? dci_fail(DCI_ERR_INVALID, "the stream %p is being captured: it cannot be waited for", object)
                        : DCI_OK;
}

static dci_status late_stream_wait(dci_gpu *gpu, void *object)
{
        const dci_status status = late_stream_runs(gpu, object);
        if (status != DCI_OK)
                return status;
        pthread_mutex_lock(&lock);
        late_stream *s = stream_of(gpu, object);
        run_until(s, s->n_queued);
        pthread_mutex_unlock(&lock);
        return DCI_OK;
}

static dci_status late_event_create(dci_gpu *gpu, bool timed, void **out)
{
        late_event *event = calloc(1, sizeof *event);
        (void)gpu;
        (void)timed;
        ck_assert_ptr_nonnull(event);
        *out = event;
        return DCI_OK;
}

static void late_event_destroy(dci_gpu *gpu, void *event)
{
        (void)gpu;
        free(event);
}

static dci_status late_event_record(dci_gpu *gpu, void *object, void *stream)
{
        late_event *event = object;
        pthread_mutex_lock(&lock);
        late_stream *s = stream_of(gpu, stream);
        if (s != NULL)
                *event = (late_event){.of = s, .n = s->n_queued, .capture = s->graph != NULL ? s->graph->number : 0};
        pthread_mutex_unlock(&lock);
        return s != NULL ? DCI_OK : dci_fail(DCI_ERR_INVALID, "%p is no stream of this late device", stream);
}

static dci_status late_event_wait(dci_gpu *gpu, void *object)
{
        const late_event *event = object;
        (void)gpu;
        if (event->capture != 0)
                return dci_fail(DCI_ERR_DEVICE, "an event of a capture cannot be waited for");
        pthread_mutex_lock(&lock);
        if (event->of != NULL)
                run_until(event->of, event->n);
        pthread_mutex_unlock(&lock);
        return DCI_OK;
}

static dci_status late_event_order(dci_gpu *gpu, void *stream, void *object)
{
        const late_event *event = object;
        bool fits = true;
        pthread_mutex_lock(&lock);
        late_stream *s = stream_of(gpu, stream);
        if (s != NULL && event->of != NULL && event->capture != 0) {
                /* The stream is captured from here on, until the capture ends; if it still goes on. */
                late_graph *graph = event->of->graph;
                fits = graph != NULL && graph->number == event->capture && (s->graph == NULL || s->graph == graph);
                s->graph = fits ? graph : s->graph;
        } else if (s != NULL && event->of != NULL) {
                fits = s->graph == NULL;
                if (fits)
                        queue_on(s, run_order, &(late_order){event->of, event->n}, sizeof(late_order));
        }
        pthread_mutex_unlock(&lock);
        if (!fits)
                return dci_fail(DCI_ERR_DEVICE, "what is captured and what is not would wait for each other");
        return s != NULL ? DCI_OK : dci_fail(DCI_ERR_INVALID, "%p is no stream of this late device", stream);
}

static dci_status late_event_elapsed(dci_gpu *gpu, void *from, void *to, double *out_seconds)
{
        (void)gpu;
        (void)from;
        (void)to;
        (void)out_seconds;
        return dci_fail(DCI_ERR_DEVICE, "late events have no clock");
}

/* --- graphs ------------------------------------------------------------------------------------------------------- */

static dci_status late_capture_begin(dci_gpu *gpu, void *object)
{
        pthread_mutex_lock(&lock);
        late_stream *s = object != NULL ? stream_of(gpu, object) : NULL;
        const bool can = s != NULL && s->graph == NULL;
        if (can) {
                s->graph = calloc(1, sizeof *s->graph);
                ck_assert_ptr_nonnull(s->graph);
                s->graph->number = ++n_captures;
                s->graph->calls.last = &s->graph->calls.first;
        }
        pthread_mutex_unlock(&lock);
        return can ? DCI_OK : dci_fail(DCI_ERR_DEVICE, "this stream cannot capture");
}

static dci_status late_capture_end(dci_gpu *gpu, void *object, void **out_graph)
{
        pthread_mutex_lock(&lock);
        late_stream *s = object != NULL ? stream_of(gpu, object) : NULL;
        late_graph *graph = s != NULL ? s->graph : NULL;
        for (late_stream *other = streams; other != NULL && graph != NULL; other = other->next)
                other->graph = other->graph == graph ? NULL : other->graph;
        *out_graph = graph;
        pthread_mutex_unlock(&lock);
        return graph != NULL ? DCI_OK : dci_fail(DCI_ERR_DEVICE, "the stream does not capture");
}

static dci_status late_graph_launch(dci_gpu *gpu, void *graph, void *stream)
{
        return queue(gpu, stream, run_graph, &graph, sizeof graph);
}

static void late_graph_destroy(dci_gpu *gpu, void *object)
{
        late_graph *graph = object;
        if (graph == NULL)
                return;
        pthread_mutex_lock(&lock);
        run_all(gpu);
        pthread_mutex_unlock(&lock);
        for (late_call *call = graph->calls.first, *next; call != NULL; call = next) {
                next = call->next;
                free(call);
        }
        free(graph);
}

static void late_close(dci_gpu *gpu)
{
        pthread_mutex_lock(&lock);
        run_all(gpu);
        for (late_stream **at = &streams; *at != NULL;) {
                late_stream *s = *at;
                if (s->gpu == gpu) {
                        *at = s->next;
                        free(s);
                } else {
                        at = &s->next;
                }
        }
        pthread_mutex_unlock(&lock);
        dci_gpu_ops_host.close(gpu);
}

/* --- kernels ------------------------------------------------------------------------------------------------------ */

#define KERNEL(name)                                                                                                   \
        static void run_##name(dci_gpu *gpu, const void *args)                                                         \
        {                                                                                                              \
                ck_ok(dci_gpu_ops_host.name(gpu, NULL, args));                                                         \
        }                                                                                                              \
        static dci_status late_##name(dci_gpu *gpu, void *stream, const dci_gpu_##name##_args *args)                   \
        {                                                                                                              \
                return queue(gpu, stream, run_##name, args, sizeof *args);                                             \
        }
DCI_GPU_EACH_KERNEL(KERNEL)

#define SET(name) ops.name = late_##name;

void late_become(dci_gpu *gpu)
{
        static dci_gpu_ops ops;
        ops = dci_gpu_ops_host;
        ops.name = "late";
        ops.close = late_close;
        ops.free = late_free;
        ops.unpin = late_unpin;
        ops.stream_create = late_stream_create;
        ops.stream_destroy = late_stream_destroy;
        ops.stream_check = late_stream_check;
        ops.stream_runs = late_stream_runs;
        ops.stream_wait = late_stream_wait;
        ops.copy = late_copy;
        ops.fill = late_fill;
        ops.notify = late_notify;
        ops.event_create = late_event_create;
        ops.event_destroy = late_event_destroy;
        ops.event_record = late_event_record;
        ops.event_wait = late_event_wait;
        ops.event_order = late_event_order;
        ops.event_elapsed = late_event_elapsed;
        ops.capture_begin = late_capture_begin;
        ops.capture_end = late_capture_end;
        ops.graph_launch = late_graph_launch;
        ops.graph_destroy = late_graph_destroy;
        DCI_GPU_EACH_KERNEL(SET)
        gpu->ops = &ops;
        pthread_mutex_lock(&lock);
        new_stream(gpu, true);
        pthread_mutex_unlock(&lock);
}
