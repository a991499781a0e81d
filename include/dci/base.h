/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/**
 * @file base.h
 * What every other header needs: version, status codes, number formats, the context.
 *
 * Conventions of the whole library
 *  - A fallible function returns dci_status. On failure nothing has changed, output arrays hold unspecified values, and
 *    dci_last_error() of the same thread explains what was wrong, with the values.
 *  - Sizes, counts and strides are size_t; strides ("ld", leading dimension) count elements, not bytes.
 *  - Arrays of rows are n x dim with row i at base + i * ld; ld >= dim. Outputs belong to the caller and come last.
 *  - Arrays are aligned to their elements (4 bytes, 2 or 1), no more: rows and queries that are not are
 *    DCI_ERR_INVALID, but for those of dci_kv_append, which are copied and may have any alignment. Lengths whose
 *    product with the stride leaves the address space are DCI_ERR_LIMIT, before anything is read or allocated.
 *  - Config and result structs begin with `struct_size`. Always prepare them with their init function, which gets the
 *    caller's sizeof; so a program built against an older header keeps its meaning with a newer library.
 *  - Objects are opaque: create, use, destroy. destroy(NULL) does nothing. There is no process-wide mutable state.
 *  - Calls run in threads with 48 KiB of stack: they take at most 32 KiB of it, without what callbacks take. Those on
 *    DCI_GPU_HOST take up to 256 KiB.
 *  - Callbacks run on the thread that made the call. Calling back into the object that is running the callback is
 *    refused with DCI_ERR_BUSY. Filters are asked with no lock held; a progress callback must not wait for another
 *    thread that uses the same object: it may be waiting for this call, or for one that waits for this call.
 */
#ifndef DCI_BASE_H
#define DCI_BASE_H

#include <stddef.h>
#include <stdint.h>

/** Version of this header. The build reads these three lines; nothing else states the version. */
#define DCI_VERSION_MAJOR 0
#define DCI_VERSION_MINOR 1
#define DCI_VERSION_PATCH 0

/* Everything else in the shared library is hidden. */
#if defined(__GNUC__)
#define DCI_API __attribute__((visibility("default")))
#else
#define DCI_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** Status of a call; DCI_OK is 0, every error is positive. Values never change meaning. */
typedef int32_t dci_status;
enum {
        DCI_OK = 0,
        /** an argument is NULL, zero, out of range or contradicts another */
        DCI_ERR_INVALID = 1,
        /** a row holds NaN or infinity, or is too large to score; the message names the row */
        DCI_ERR_NUMBER = 2,
        /** the allocator returned NULL, or the system has no room or no thread left */
        DCI_ERR_MEMORY = 3,
        /** a size overflows or exceeds a stated limit; nothing was allocated */
        DCI_ERR_LIMIT = 4,
        /** an id is already in use, or twice in one batch */
        DCI_ERR_EXISTS = 5,
        /** an id is not in the object */
        DCI_ERR_NOT_FOUND = 6,
        /** a fixed budget is used up */
        DCI_ERR_FULL = 7,
        /** valid, but not offered by this build, CPU or kind */
        DCI_ERR_UNSUPPORTED = 8,
        /** the operating system refused a read or write */
        DCI_ERR_IO = 9,
        /** a file is truncated, damaged or not of the expected kind; an object fails its own check */
        DCI_ERR_FORMAT = 10,
        /** the progress callback asked to stop */
        DCI_ERR_CANCELLED = 11,
        /** called from inside a callback of the same object */
        DCI_ERR_BUSY = 12,
        /** a GPU's runtime refused or failed; the message quotes it */
        DCI_ERR_DEVICE = 13
};

/**
 * The sentence that explains the last failing call of this thread, or "" if none failed. Valid until the next failing
 * call of the same thread. Never NULL.
 */
DCI_API const char *dci_last_error(void);

/**
 * The system's error number (of <errno.h>, such as ENOENT) of the last failing call of this thread, where a file
 * could not be opened, read, written or replaced; EISDIR where a path is a directory. 0 where the system had no part in
 * it. Valid as long as dci_last_error() is.
 */
DCI_API int32_t dci_last_errno(void);

/** A constant name of a status, such as "DCI_ERR_INVALID"; "unknown status" for other values. */
DCI_API const char *dci_status_name(dci_status status);

/** The library's version, "major.minor.patch". It may differ from the header's: compare when loading at run time. */
DCI_API const char *dci_version(void);

/** Number format of rows. 0 means "the default" wherever a field says so. */
typedef int32_t dci_dtype;
enum {
        /** IEEE binary32 */
        DCI_F32 = 1,
        /** IEEE binary16 */
        DCI_F16 = 2,
        /** the upper half of a binary32 */
        DCI_BF16 = 3,
        /** integers from -128 to 127: of an index and of k-means; others refuse it */
        DCI_I8 = 4,
        /** integers from 0 to 255: the same */
        DCI_U8 = 5
};

/** Bytes of one element; 0 for an unknown format. */
DCI_API size_t dci_dtype_size(dci_dtype dtype);

/** "f32", "f16", "bf16", "i8", "u8", or "unknown". */
DCI_API const char *dci_dtype_name(dci_dtype dtype);

/** What makes two rows near. */
typedef int32_t dci_metric;
enum {
        /** squared Euclidean distance: less is nearer */
        DCI_METRIC_L2 = 1,
        /** inner product: more is nearer */
        DCI_METRIC_IP = 2,
        /** inner product of the unit rows: more is nearer */
        DCI_METRIC_COSINE = 3
};

/** Largest number of elements of a row. */
#define DCI_MAX_DIM ((size_t)1 << 20)

/**
 * Instruction set of the row kernels. Each level includes those the line names; results are the same bits at avx2,
 * avx512, amx and neon, and within the rounding that dci_index_search states at scalar.
 */
typedef int32_t dci_isa;
enum {
        /** the best that CPU and operating system allow, or the environment's DCI_ISA */
        DCI_ISA_AUTO = 0,
        /** portable C */
        DCI_ISA_SCALAR = 1,
        /** AVX2, FMA, F16C: x86-64-v3 */
        DCI_ISA_AVX2 = 2,
        /** AVX-512 F, BW, DQ, VL: x86-64-v4 */
        DCI_ISA_AVX512 = 3,
        /** AVX-512 plus AVX512-BF16, AMX-TILE and AMX-BF16: Sapphire Rapids and later */
        DCI_ISA_AMX = 4,
        /** AArch64 Advanced SIMD */
        DCI_ISA_NEON = 5
};

/** "auto", "scalar", "avx2", "avx512", "amx", "neon", or "unknown". */
DCI_API const char *dci_isa_name(dci_isa isa);

/** 1 if this build, CPU and operating system can run the level, else 0. AUTO counts as available. */
DCI_API int32_t dci_isa_available(dci_isa isa);

/**
 * Memory of a context's objects. alloc returns `size` bytes (never 0) aligned to `alignment` (a power of two, at most
 * 4096) or NULL; free gets what alloc returned and the same size. Both must be callable from any thread, at the same
 * time.
 */
typedef struct dci_allocator {
        void *ctx;
        void *(*alloc)(void *ctx, size_t size, size_t alignment);
        void (*free)(void *ctx, void *ptr, size_t size);
} dci_allocator;

/** Severity of a log line. */
enum { DCI_LOG_DEBUG = 0, DCI_LOG_INFO = 1, DCI_LOG_WARNING = 2 };

/** Receives one line without a newline; only from the thread that called the library. fn NULL: no log. */
typedef struct dci_log {
        void *ctx;
        void (*fn)(void *ctx, int32_t level, const char *line);
} dci_log;

/**
 * The caller's own threads. parallel_for runs fn(arg, i) exactly once for every i in [0, n), in any order and on any
 * threads, and returns when all are done. n never exceeds the context's thread limit. Running them one after another is
 * correct.
 */
typedef struct dci_executor {
        void *ctx;
        void (*parallel_for)(void *ctx, size_t n, void (*fn)(void *arg, size_t i), void *arg);
} dci_executor;

/** Which threads run a call's parallel region. */
enum {
        /** the process's OpenMP runtime; DCI_ERR_UNSUPPORTED if built without it */
        DCI_EXECUTOR_OPENMP = 0,
        /** a pool that the context owns; also for hosts that fork */
        DCI_EXECUTOR_PTHREADS = 1,
        /** dci_context_config.executor */
        DCI_EXECUTOR_CALLER = 2
};

/** What to create a context with. Prepare with dci_context_config_init. */
typedef struct dci_context_config {
        size_t struct_size;
        dci_allocator allocator; /**< both NULL: aligned_alloc and free */
        dci_log log;             /**< fn NULL (default): silent */
        int32_t executor_kind;   /**< DCI_EXECUTOR_*; default OPENMP (PTHREADS in a build without OpenMP) */
        /**
         * most threads a call may use, 1 to 1024; 0 (default): what OpenMP would take (OMP_NUM_THREADS, affinity), or
         * the CPUs this process may run on
         */
        int32_t n_threads;
        dci_executor executor; /**< with DCI_EXECUTOR_CALLER */
        dci_isa isa;           /**< default AUTO; a level that is not available is refused */
} dci_context_config;

/**
 * Fills every byte of `config` with defaults. struct_size: sizeof(dci_context_config). Refuses NULL and unknown sizes.
 */
DCI_API dci_status dci_context_config_init(dci_context_config *config, size_t struct_size);

/**
 * A context: allocator, log, executor, thread limit and instruction set, shared by any number of objects.
 *
 * Thread rule: all functions on a context may be called from any thread at the same time.
 * Fork: a child process may go on using the context and its objects, provided that no other thread was inside a call on
 * one of them when the process forked; with OPENMP and PTHREADS, the child runs on the calling thread alone. Prompts
 * that a dci_kv was still working on are worked on again, by the child's first call that needs them. Objects on a GPU
 * stay with the parent.
 * A context that a child creates after its parent used OpenMP should be of another kind: OpenMP runtimes do not survive
 * forks.
 * OPENMP: a runtime that cannot start its threads ends the process (GNU's does). Where threads or address space may run
 * out, use PTHREADS. dlclose: a libdci.so that was built with OpenMP stays loaded, since the runtime's threads outlive
 * all contexts; without, it is unloaded.
 */
typedef struct dci_context dci_context;

/**
 * Creates a context. config NULL: all defaults. The environment variable DCI_ISA (scalar, avx2, avx512, amx, neon)
 * replaces AUTO; any other value, or one this machine cannot run, is an error.
 *
 * AMX needs a permission that Linux grants per process; it is asked for here, once, when the level is amx. If it is
 * refused, AUTO falls back to avx512 and an explicit wish for amx is an error.
 */
DCI_API dci_status dci_context_create(const dci_context_config *config, dci_context **out_context);

/** Gives up the caller's hold. Objects that still use the context keep it alive. NULL is allowed. */
DCI_API void dci_context_destroy(dci_context *context);

/** The level in use, never AUTO; 0 for NULL. */
DCI_API dci_isa dci_context_isa(const dci_context *context);

/** The most threads a call may use; 0 for NULL. */
DCI_API int32_t dci_context_threads(const dci_context *context);

/** Changes the thread limit, 1 to 1024, for calls that start afterwards. A PTHREADS pool never grows beyond what it was
 *  created with; asking for more is refused. Results do not depend on it. */
DCI_API dci_status dci_context_set_threads(dci_context *context, int32_t n_threads);

/**
 * Reports progress of a long call and lets the caller stop it. fn gets the work done so far and the whole, in units of
 * the call; a value other than 0 cancels: the call returns DCI_ERR_CANCELLED and has changed nothing. fn NULL: no
 * reports. With DCI_EXECUTOR_CALLER, reports come only while a piece of the work runs on the thread that made the call,
 * and at the end of dci_index_add.
 */
typedef struct dci_progress {
        void *ctx;
        int32_t (*fn)(void *ctx, size_t done, size_t total);
} dci_progress;

#ifdef __cplusplus
}
#endif
#endif
