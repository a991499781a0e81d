/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* First include of every source: what the folders share and the caller never sees. */
#ifndef DCI_CORE_INTERNAL_H
#define DCI_CORE_INTERNAL_H

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dci/base.h"

/* GNU extensions are used through these only. */
#if defined(__GNUC__)
#define DCI_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define DCI_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define DCI_INLINE static inline __attribute__((always_inline))
#define DCI_PREFETCH(p) __builtin_prefetch(p)
#else
#define DCI_PRINTF(fmt, args)
#define DCI_UNLIKELY(x) (x)
#define DCI_INLINE static inline
#define DCI_PREFETCH(p) ((void)(p))
#endif

#define DCI_CACHE_LINE 64

/* Rounds up to whole cache lines, where the next part of a scratch buffer may begin. */
DCI_INLINE size_t dci_lines(size_t n_bytes)
{
        return (n_bytes + DCI_CACHE_LINE - 1) / DCI_CACHE_LINE * DCI_CACHE_LINE;
}

/* Number of the lowest bit that is set; bits != 0. */
DCI_INLINE int dci_lowest_bit(uint64_t bits)
{
#if defined(__GNUC__)
        return __builtin_ctzll(bits);
#else
        int n = 0;
        for (; (bits & 1) == 0; bits >>= 1)
                n++;
        return n;
#endif
}

/* --- status.c: the last error of this thread ------------------------------------------------------------------ */

/* Records the sentence and returns `status`, so that a check reads: return dci_fail(DCI_ERR_INVALID, "..."). */
dci_status dci_fail(dci_status status, const char *format, ...) DCI_PRINTF(2, 3);

/* Adds the system's error number to what dci_fail recorded just before. Returns `status`. */
dci_status dci_fail_errno(dci_status status, int error);

/* Returns from the calling function unless the call is DCI_OK. For functions that have nothing to release there. */
#define DCI_TRY(call)                                                                                                  \
        do {                                                                                                           \
                const dci_status tried_ = (call);                                                                      \
                if (tried_ != DCI_OK)                                                                                  \
                        return tried_;                                                                                 \
        } while (0)

/* Between dci_may_fail(true) and dci_may_fail(false) this thread's failures leave no sentence: for steps that a call
 * can do without, since a call that succeeds must not touch the last error. */
void dci_may_fail(bool allowed);

/* Checks what every config and result struct begins with. `known`: the size this library was built with. */
dci_status dci_check_struct_size(const char *name, const void *object, size_t struct_size, size_t known);

/* Refuses an array of the caller's that is not aligned to its elements: kernels read them as such. */
dci_status dci_check_aligned(const char *what, const void *array, size_t element_bytes);

/* Body of every *_init: refuses NULL and unknown sizes, zeroes all bytes, writes struct_size. */
dci_status dci_struct_init(const char *name, void *object, size_t struct_size, size_t known);

/* The same two for structs that have grown: callers that were built with a header of `oldest` bytes are served, too. */
dci_status dci_check_struct_size_since(const char *name, const void *object, size_t struct_size, size_t oldest,
                                       size_t known);
dci_status dci_struct_init_since(const char *name, void *object, size_t struct_size, size_t oldest, size_t known);
/* Into a caller's struct as much as it has room for of one of `known` bytes; its struct_size stays. */
void dci_struct_give(void *out, const void *from, size_t known);

/* --- alloc.c: memory through the context, sizes checked ------------------------------------------------------- */

/* Products and sums that must fit in size_t; false on overflow, *out untouched. */
bool dci_mul(size_t a, size_t b, size_t *out);
bool dci_add(size_t a, size_t b, size_t *out);

/* count x size bytes aligned to a cache line; NULL with an error recorded when the product overflows or memory is
 * short. A zero count gives one byte. Free with the same count and size. */
void *dci_alloc(dci_context *context, size_t count, size_t size);
void *dci_calloc(dci_context *context, size_t count, size_t size);
/* n_bytes aligned to memory pages, which devices lock. Freed as others, with a count of n_bytes and a size of 1. */
#define DCI_MEMORY_PAGE 4096
void *dci_alloc_pages(dci_context *context, size_t n_bytes);
void dci_free(dci_context *context, void *pointer, size_t count, size_t size);

/* --- rng.c: splittable, seeded; state lives in the object that uses it ----------------------------------------- */

typedef struct dci_rng {
        uint64_t state[4];
} dci_rng;
void dci_rng_seed(dci_rng *rng, uint64_t seed);
/* An independent stream for item `stream`: the same whatever was drawn from its siblings, so work can be divided. */
dci_rng dci_rng_split(const dci_rng *rng, uint64_t stream);
uint64_t dci_rng_next(dci_rng *rng);
/* Unbiased integer in [0, bound), bound >= 1. */
uint64_t dci_rng_below(dci_rng *rng, uint64_t bound);
/* Uniform in [0, 1) with 53 bits; standard normal. */
double dci_rng_uniform(dci_rng *rng);
double dci_rng_normal(dci_rng *rng);

/* --- context.c, executor.c ------------------------------------------------------------------------------------- */

struct dci_kernels; /* simd/kernels.h */
struct dci_pool;    /* executor.c */

struct dci_context {
        atomic_size_t refs;
        dci_allocator allocator;
        dci_log log;
        dci_executor executor;
        int32_t executor_kind;
        int32_t pool_threads; /* workers of the pool including the caller; the ceiling of n_threads */
        atomic_int n_threads;
        dci_isa isa;
        int64_t owner_pid; /* a child of fork has no pool and no OpenMP team */
        struct dci_pool *pool;
        const struct dci_kernels *kernels; /* set by simd through dci_kernels_for */
};

void dci_context_retain(dci_context *context);
void dci_log_line(const dci_context *context, int32_t level, const char *format, ...) DCI_PRINTF(3, 4);

/* One parallel region: fn(arg, task, worker) for each task in [0, n_tasks), worker < workers in use. Workers take tasks
 * from a shared counter, so results must depend on `task` alone; `worker` is for scratch. Returns when all are done. */
typedef void (*dci_task_fn)(void *arg, size_t task, size_t worker);
typedef struct dci_region {
        dci_context *context;
        size_t n_tasks;
        size_t n_workers; /* from dci_workers_for */
        dci_task_fn fn;
        void *arg;
        const dci_progress *progress; /* NULL or reports in tasks, scaled by progress_unit */
        size_t progress_total;        /* the total that the caller's progress gets */
        const void *object;           /* marked busy during callbacks */
} dci_region;
/* Workers worth using: min(thread limit, n_tasks, work / DCI_WORK_PER_WORKER). `work` in multiply-adds or so. */
#define DCI_WORK_PER_WORKER ((size_t)1 << 20)
size_t dci_workers_for(const dci_context *context, size_t n_tasks, size_t work);
dci_status dci_parallel(const dci_region *region);
/* One report outside of a region; DCI_ERR_CANCELLED if the callback stops the call. progress NULL: none. The last one of
 * a call is made when nothing is left but to make its work visible: if it is stopped, nothing becomes visible. */
dci_status dci_progress_tell(const dci_progress *progress, size_t done, size_t total, const void *object);
DCI_INLINE dci_status dci_progress_end(const dci_progress *progress, size_t total, const void *object)
{
        return dci_progress_tell(progress, total, total, object);
}

/* Brackets one callback of the user: `object` is busy for this thread, and so are those whose callbacks it runs inside
 * of; entry points refuse when dci_is_busy. The mark lives on the caller's stack until it leaves. */
typedef struct dci_busy_mark {
        const void *object;
        const struct dci_busy_mark *outer;
} dci_busy_mark;
void dci_busy_enter(dci_busy_mark *mark, const void *object);
void dci_busy_leave(const dci_busy_mark *mark);
bool dci_is_busy(const void *object);

/* --- blas.c: OpenBLAS on fixed tiles, from our own threads ------------------------------------------------------ */

/* m, n, k >= 1, leading dimensions at most INT_MAX. c[i * ldc + j] = sum_p a[i * lda + p] * b[j * ldb + p], i < m, j <
 * n, p < k: rows against rows. Tiles are fixed and small enough that OpenBLAS never starts threads of its own, whatever
 * its settings; a result depends on the tile grid alone. */
void dci_gemm_nt(size_t m, size_t n, size_t k, const float *a, size_t lda, const float *b, size_t ldb, float *c,
                 size_t ldc);

#endif
