/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* A device and what it can do. Everything above it (src/offload) works through dci_gpu_ops, of which there are two:
 * CUDA (cuda/device.c, or cuda/stub.c in builds without) and the host device, whose memory is the host's, whose streams
 * do their work at once and whose kernels are the references: so the objects above are tested where there is no GPU. */
#ifndef DCI_GPU_INTERNAL_H
#define DCI_GPU_INTERNAL_H

#include "core/internal.h"

#include "dci/gpu.h"
#include "gpu/args/kmeans.h"
#include "gpu/args/learned.h"
#include "gpu/args/rows.h"
#include "gpu/args/schedule.h"
#include "gpu/args/select.h"
#include "gpu/args/tail.h"
#include "gpu/args/tree.h"
#include "gpu/args/votes.h"

/* What kernels of a KV cache are launched for, at most. */
typedef struct dci_gpu_needs {
        int32_t dim, group;
        int32_t stride, n_frames; /* of lists; of a lane */
        size_t n_lists;           /* of a step, for a gather: lanes */
        bool resolves, gathers;   /* on the device, lists and what they miss */
        bool places;              /* lists are resolved to rows of contiguous copies */
        int32_t tree_shift;       /* plans search trees of pages of 2^tree_shift tokens; 0: none */
        bool plans, keeps, codes; /* the device plans; stores lists between plans; makes prompts' learned codes */
} dci_gpu_needs;

typedef struct dci_gpu_ops {
        const char *name; /* "cuda", "host" */
        /* How many devices there are; an error's sentence says why there is none. */
        dci_status (*count)(int32_t *out);
        /* Fills in gpu->info and gpu->state, or changes nothing. DCI_ERR_NOT_FOUND: there is no such device. */
        dci_status (*open)(dci_gpu *gpu, int32_t device);
        void (*close)(dci_gpu *gpu);
        dci_status (*free_bytes)(dci_gpu *gpu, size_t *out);
        /* Memory of the device, aligned to 256 bytes. */
        dci_status (*alloc)(dci_gpu *gpu, size_t n_bytes, void **out);
        void (*free)(dci_gpu *gpu, void *memory, size_t n_bytes);
        /* Locks and maps host memory, which it first moves to the device's memory node where the system allows that. */
        dci_status (*pin)(dci_gpu *gpu, void *memory, size_t n_bytes, void **out_address);
        void (*unpin)(dci_gpu *gpu, void *memory);
        /* Streams (cudaStream_t; NULL: the default one). Copies: between any two of pinned host memory and device. */
        dci_status (*stream_create)(dci_gpu *gpu, void **out);
        void (*stream_destroy)(dci_gpu *gpu, void *stream);
        /* That it is one of this device's, and not broken. */
        dci_status (*stream_check)(dci_gpu *gpu, void *stream);
        /* That it is not being captured: else DCI_ERR_INVALID, as where the host waits, and the capture goes on. */
        dci_status (*stream_runs)(dci_gpu *gpu, void *stream);
        dci_status (*stream_wait)(dci_gpu *gpu, void *stream); /* the host waits */
        dci_status (*copy)(dci_gpu *gpu, void *stream, void *to, const void *from, size_t n_bytes);
        /* n rows of n_bytes, from_step bytes apart, in order. */
        dci_status (*copy_rows)(dci_gpu *gpu, void *stream, void *to, const void *from, size_t from_step,
                                size_t n_bytes, size_t n);
        /* n copies in one call, where the runtime has that (CUDA 12.8 and up), else one after the other. */
        dci_status (*copy_batch)(dci_gpu *gpu, void *stream, size_t n, void *const *to, const void *const *from,
                                 const size_t *n_bytes);
        dci_status (*fill)(dci_gpu *gpu, void *stream, void *to, int byte, size_t n_bytes);
        /* Calls fn(arg), which makes no call of the device, on some thread when all that was queued before is done. */
        dci_status (*notify)(dci_gpu *gpu, void *stream, void (*fn)(void *arg), void *arg);
        /* That the device can read and write what a caller's pointer names. */
        dci_status (*pointer_check)(dci_gpu *gpu, const void *pointer, const char *name);
        dci_status (*event_create)(dci_gpu *gpu, bool timed, void **out);
        void (*event_destroy)(dci_gpu *gpu, void *event);
        dci_status (*event_record)(dci_gpu *gpu, void *event, void *stream);
        dci_status (*event_wait)(dci_gpu *gpu, void *event); /* the host waits; at once if it was never recorded */
        dci_status (*event_order)(dci_gpu *gpu, void *stream, void *event); /* the stream waits */
        dci_status (*event_elapsed)(dci_gpu *gpu, void *from, void *to, double *out_seconds);
        dci_status (*capture_begin)(dci_gpu *gpu, void *stream);
        dci_status (*capture_end)(dci_gpu *gpu, void *stream, void **out_graph);
        dci_status (*graph_launch)(dci_gpu *gpu, void *graph, void *stream);
        void (*graph_destroy)(dci_gpu *gpu, void *graph);
        /* That the device has kernels for so much: else DCI_ERR_UNSUPPORTED, and what is too much. */
        dci_status (*fits)(dci_gpu *gpu, const dci_gpu_needs *needs);
        /* Kernels. They allocate nothing, wait for nothing, and may be captured. */
#define DCI_GPU_OP(name) dci_status (*(name))(dci_gpu * gpu, void *stream, const dci_gpu_##name##_args *args);
        DCI_GPU_EACH_KERNEL(DCI_GPU_OP)
#undef DCI_GPU_OP
} dci_gpu_ops;

/* All of them but the kernels. */
/* clang-format off */
#define DCI_GPU_EACH_OP(DO)                                                                                            \
        DO(count) DO(open) DO(close) DO(free_bytes) DO(alloc) DO(free) DO(pin) DO(unpin) DO(stream_create)             \
        DO(stream_destroy) DO(stream_check) DO(stream_runs) DO(stream_wait) DO(copy) DO(copy_rows) DO(copy_batch)      \
        DO(fill) DO(notify) DO(pointer_check) DO(event_create) DO(event_destroy) DO(event_record) DO(event_wait)       \
        DO(event_order) DO(event_elapsed) DO(capture_begin) DO(capture_end) DO(graph_launch) DO(graph_destroy) DO(fits)
/* clang-format on */

struct dci_gpu {
        dci_context *context;
        const dci_gpu_ops *ops;
        int32_t device;
        dci_gpu_info info;
        void *state;             /* the ops' own */
        atomic_size_t n_objects; /* on it, and 1 for its owner */
};

/* An object that is made on a device holds it, and gives it back with dci_gpu_destroy. */
void dci_gpu_retain(dci_gpu *gpu);

/* References (host/): what the kernels must do, row by row. */
#define DCI_GPU_REFERENCE(name) void dci_gpu_ref_##name(const dci_gpu_##name##_args *args);
DCI_GPU_EACH_KERNEL(DCI_GPU_REFERENCE)
#undef DCI_GPU_REFERENCE

extern const dci_gpu_ops dci_gpu_ops_host; /* host/device.c */
/* On a stream (`object`) of the host device: run(args) at once, or, with a copy of args, when the captured graph
 * runs. */
dci_status dci_gpu_host_call(dci_gpu *gpu, void *object, void (*run)(const void *args), const void *args,
                             size_t n_bytes);
/* cuda/device.c; in builds without CUDA (cuda/stub.c): NULL, and an error DCI_ERR_UNSUPPORTED. */
const dci_gpu_ops *dci_gpu_ops_cuda(void);

/* That kernels which attend, or score, are built for it: query heads of a kv head, and elements of a row. */
dci_status dci_gpu_check_shape(int32_t group, int32_t dim);
/* Parts that a head's tokens are cut into, for so many of them at most: enough blocks for the device's multiprocessors
 * (gpu.c). More tokens never have fewer. */
int32_t dci_gpu_splits(const dci_gpu *gpu, size_t n_sequences, size_t n_heads, size_t n_tokens);
/* Parts that a list's scores are cut into, for so many groups of so many bytes at most (codes: dim * bits / 8 + 2;
 * rows: their bytes); at most DCI_GPU_MAX_PARTS. More groups never have fewer. */
int32_t dci_gpu_score_parts(const dci_gpu *gpu, size_t n_lists, size_t n_groups, size_t group_bytes);
/* Bytes of `partial` and, in the last dci_lines(4 * n_lists), of `arrived`; 0: one split; SIZE_MAX: too many. */
size_t dci_gpu_partial_bytes(size_t n_lists, int32_t n_splits, size_t dim);

#endif
