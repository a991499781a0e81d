/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What a sketch answers: scores, bounds, and the best rows. Tasks are groups of queries times segments of rows. */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "simd/topk.h"
#include "sketch/sketch_internal.h"

#define SEGMENT_ROWS ((size_t)16384) /* at least, where rows are shared out; a multiple of DCI_SCAN_ROWS */
#define MAX_K ((size_t)1 << 24)
#define MAX_RESULTS ((size_t)1 << 40)

/* NOLINTNEXTLINE(misc-redundant-expression): that is what is asserted. */
_Static_assert(DCI_SKETCH_GROUP == DCI_CODE_QUERIES && DCI_SKETCH_MAX_CENTRES == DCI_MAX_FRAMES, "the header says so");
_Static_assert(DCI_SCAN_ROWS <= DCI_TOPK_BLOCK, "a scan's rows enter the selection at once");

typedef struct request request;
/* Estimates (or bounds) of `count` rows from `first` on, for the group's queries: values[q * DCI_SCAN_ROWS + i]. */
typedef void (*take_fn)(request *a, size_t task, size_t query, size_t n_queries, size_t first, size_t count,
                        const float *values, unsigned char *own);

/* One call, shared by its tasks. */
struct request {
        const dci_sketch *sketch;
        const void *queries;
        size_t n_queries, ld, first, n;
        size_t n_groups, n_segments, segment_rows;
        take_fn take;
        bool bounds;
        double probability;
        /* score, bound */
        float *out;
        size_t out_ld;
        /* search */
        size_t k, k_held;
        uint64_t *parts; /* [query][segment][k_held], then as much to sort one query's in */
        size_t *n_parts;
        int64_t *out_rows;
        float *out_scores;
        /* scratch by worker */
        unsigned char *scratch;
        size_t scratch_bytes, coding_bytes, coded_bytes, n_frames;
};

/* A part of a task: DCI_SCAN_ROWS rows, whole units. */
static void read_rows(const request *a, const dci_coded *coded, size_t first, size_t count, float *values)
{
        dci_unit units[DCI_SCAN_UNITS];
        const size_t n_units = (count + DCI_CODE_UNIT - 1) / DCI_CODE_UNIT;
        for (size_t u = 0; u < n_units; u++)
                units[u] = (dci_unit){&a->sketch->area, first / DCI_CODE_UNIT + u};
        if (!a->bounds) {
                dci_coded_estimate_run(&a->sketch->frames, coded, units, n_units, values);
                return;
        }
        for (size_t q = 0; q < coded->n; q++)
                dci_coded_bound(&a->sketch->frames, coded, q, units, n_units, a->probability,
                                values + q * DCI_SCAN_ROWS);
}

static void request_task(void *arg, size_t task, size_t worker)
{
        request *a = arg;
        const dci_sketch *sketch = a->sketch;
        const size_t query = task % a->n_groups * DCI_CODE_QUERIES, segment = task / a->n_groups;
        const size_t left = a->n_queries - query, n_queries = left < DCI_CODE_QUERIES ? left : DCI_CODE_QUERIES;
        unsigned char *scratch = a->scratch + worker * a->scratch_bytes, *at = scratch;
        float values[DCI_CODE_QUERIES * DCI_SCAN_ROWS];
        dci_coded coded;
        size_t ld;
        float *wide = (float *)(void *)at;
        at += dci_lines(DCI_CODE_QUERIES * sketch->dim * sizeof *wide);
        const float *queries =
                dci_sketch_floats(sketch, sketch->query_dtype, a->queries, a->ld, query, n_queries, wide, &ld);
        dci_coded_make(&sketch->frames, a->n_frames, queries, ld, NULL, n_queries, at + a->coding_bytes, at, &coded);
        at += a->coding_bytes + a->coded_bytes;
        /* Units begin at multiples of 16 rows; the task's rows may not. */
        const size_t begin = a->first + segment * a->segment_rows, end = a->first + a->n;
        const size_t stop = end - begin < a->segment_rows ? end : begin + a->segment_rows;
        for (size_t first = begin / DCI_CODE_UNIT * DCI_CODE_UNIT; first < stop; first += DCI_SCAN_ROWS) {
                const size_t count = stop - first < DCI_SCAN_ROWS ? stop - first : DCI_SCAN_ROWS;
                const size_t skip = first < begin ? begin - first : 0;
                read_rows(a, &coded, first, count, values);
                a->take(a, task, query, n_queries, first + skip, count - skip, values + skip, at);
        }
        a->take(a, task, query, n_queries, stop, 0, values, at);
}

static void take_values(request *a, size_t task, size_t query, size_t n_queries, size_t first, size_t count,
                        const float *values, unsigned char *own)
{
        (void)task;
        (void)own;
        for (size_t q = 0; q < n_queries && count > 0; q++)
                memcpy(a->out + (query + q) * a->out_ld + (first - a->first), values + q * DCI_SCAN_ROWS,
                       count * sizeof *values);
}

static void emit(const request *a, size_t query, const uint64_t *keys, size_t n)
{
        for (size_t i = 0; i < a->k; i++) {
                a->out_rows[query * a->k + i] = i < n ? dci_topk_slot(keys[i]) : -1;
                if (a->out_scores != NULL)
                        a->out_scores[query * a->k + i] = i < n ? dci_topk_score(keys[i], true) : NAN;
        }
}

/* The selections are in the worker's own scratch, after their structs. */
static void take_best(request *a, size_t task, size_t query, size_t n_queries, size_t first, size_t count,
                      const float *values, unsigned char *own)
{
        dci_topk *topk = (dci_topk *)(void *)own;
        const size_t segment = task / a->n_groups;
        for (size_t q = 0; q < n_queries; q++) {
                if (count > 0) {
                        dci_topk_add(&topk[q], values + q * DCI_SCAN_ROWS, count, (int32_t)first, NULL);
                        continue;
                }
                const size_t n = dci_topk_finish(&topk[q]);
                if (a->n_segments == 1) {
                        emit(a, query + q, topk[q].keys, n);
                        continue;
                }
                const size_t at = (query + q) * a->n_segments + segment;
                a->n_parts[at] = n;
                memcpy(a->parts + at * a->k_held, topk[q].keys, n * sizeof *a->parts);
        }
}

/* Queries of a task, at most. */
static size_t max_at_once(const request *a)
{
        return a->n_queries < DCI_CODE_QUERIES ? a->n_queries : DCI_CODE_QUERIES;
}

static void search_task(void *arg, size_t task, size_t worker)
{
        request *a = arg;
        const dci_kernels *kernels = a->sketch->context->kernels;
        unsigned char *own = a->scratch + worker * a->scratch_bytes +
                             dci_lines(DCI_CODE_QUERIES * a->sketch->dim * sizeof(float)) + a->coding_bytes +
                             a->coded_bytes;
        dci_topk *topk = (dci_topk *)(void *)own;
        own += dci_lines(DCI_CODE_QUERIES * sizeof *topk);
        for (size_t q = 0; q < max_at_once(a); q++)
                dci_topk_init(&topk[q], kernels, (dci_slot_ids){NULL, NULL}, a->k_held, true,
                              own + q * dci_topk_bytes(a->k_held));
        request_task(arg, task, worker);
}

/* Joins the best of all segments, query by query. */
static void merge(const request *a)
{
        const size_t stride = a->n_segments * a->k_held;
        for (size_t q = 0; q < a->n_queries; q++) {
                uint64_t *keys = a->parts + q * stride;
                size_t n = 0;
                for (size_t s = 0; s < a->n_segments; s++) {
                        const size_t here = a->n_parts[q * a->n_segments + s];
                        memmove(keys + n, keys + s * a->k_held, here * sizeof *keys);
                        n += here;
                }
                dci_topk_sort(keys, n, a->parts + a->n_queries * stride, (dci_slot_ids){NULL, NULL});
                emit(a, q, keys, n < a->k_held ? n : a->k_held);
        }
}

/* Groups of queries first, because they share what is read; segments of rows only while threads would idle. */
static dci_status answer(request *a, dci_task_fn task, size_t own_bytes)
{
        const dci_sketch *sketch = a->sketch;
        a->n_frames = atomic_load(&sketch->frames.n);
        a->n_groups = (a->n_queries + DCI_CODE_QUERIES - 1) / DCI_CODE_QUERIES;
        const size_t most = a->n_groups * ((a->n + SEGMENT_ROWS - 1) / SEGMENT_ROWS);
        const double work = (double)a->n_queries * (double)a->n * (double)sketch->dim / 4.0;
        const size_t n_workers = dci_workers_for(sketch->context, most, work < 1e18 ? (size_t)work : SIZE_MAX);
        const size_t segments = (n_workers + a->n_groups - 1) / a->n_groups;
        a->segment_rows = (a->n / segments / DCI_SCAN_ROWS + 1) * DCI_SCAN_ROWS;
        a->n_segments = (a->n + a->segment_rows - 1) / a->segment_rows;
        a->coding_bytes = dci_frames_scratch_bytes(&sketch->frames);
        a->coded_bytes = dci_coded_bytes(&sketch->frames, a->n_frames, DCI_CODE_QUERIES);
        a->scratch_bytes = dci_lines(DCI_CODE_QUERIES * sketch->dim * sizeof(float)) + a->coding_bytes +
                           a->coded_bytes + own_bytes;
        a->scratch = dci_alloc(sketch->context, n_workers, a->scratch_bytes);
        const size_t n_parts = a->k > 0 && a->n_segments > 1 ? a->n_segments * a->n_queries : 0;
        const size_t n_keys = n_parts == 0 ? 0 : (n_parts + a->n_segments) * a->k_held;
        if (n_parts > 0) {
                a->parts = dci_alloc(sketch->context, n_keys, sizeof *a->parts);
                a->n_parts = dci_alloc(sketch->context, n_parts, sizeof *a->n_parts);
        }
        dci_status status = DCI_ERR_MEMORY;
        if (a->scratch != NULL && (n_parts == 0 || (a->parts != NULL && a->n_parts != NULL)))
                status = dci_parallel(&(dci_region){.context = sketch->context,
                                                    .n_tasks = a->n_groups * a->n_segments,
                                                    .n_workers = n_workers,
                                                    .fn = task,
                                                    .arg = a,
                                                    .object = sketch});
        if (status == DCI_OK && n_parts > 0)
                merge(a);
        dci_free(sketch->context, a->n_parts, n_parts, sizeof *a->n_parts);
        dci_free(sketch->context, a->parts, n_keys, sizeof *a->parts);
        dci_free(sketch->context, a->scratch, n_workers, a->scratch_bytes);
        return status;
}

static dci_status check_range(const request *a, const void *out)
{
        size_t n_out;
        if (a->first > a->sketch->n || a->n > a->sketch->n - a->first)
                return dci_fail(DCI_ERR_INVALID, "rows %zu to %zu are asked for, but there are %zu", a->first,
                                a->first + a->n, a->sketch->n);
        if (a->n_queries > 0 && a->n > 0 && out == NULL)
                return dci_fail(DCI_ERR_INVALID, "the output pointer is NULL");
        if (a->out_ld < a->n)
                return dci_fail(DCI_ERR_INVALID, "the output's stride is %zu, expected at least %zu", a->out_ld, a->n);
        if (!dci_mul(a->n_queries, a->out_ld, &n_out) || n_out > SIZE_MAX / sizeof(float))
                return dci_fail(DCI_ERR_LIMIT, "%zu queries with %zu rows each are too many", a->n_queries, a->n);
        return dci_sketch_check_rows(a->sketch, a->sketch->query_dtype, a->queries, a->n_queries, a->ld, "query");
}

static dci_status request_values(request *a)
{
        if (a->sketch == NULL)
                return dci_fail(DCI_ERR_INVALID, "sketch is NULL");
        const dci_status status = check_range(a, a->out);
        if (status != DCI_OK || a->n == 0 || a->n_queries == 0)
                return status;
        a->take = take_values;
        return answer(a, request_task, 0);
}

dci_status dci_sketch_score(const dci_sketch *sketch, size_t n_queries, const void *queries, size_t ld, size_t first,
                            size_t n, float *out_scores, size_t out_ld)
{
        return request_values(&(request){.sketch = sketch,
                                         .queries = queries,
                                         .n_queries = n_queries,
                                         .ld = ld,
                                         .first = first,
                                         .n = n,
                                         .out = out_scores,
                                         .out_ld = out_ld});
}

dci_status dci_sketch_bound(const dci_sketch *sketch, size_t n_queries, const void *queries, size_t ld, size_t first,
                            size_t n, double probability, float *out_bounds, size_t out_ld)
{
        if (!(probability > 0.0 && probability <= 1.0))
                return dci_fail(DCI_ERR_INVALID, "probability is %g, expected more than 0 and at most 1", probability);
        return request_values(&(request){.sketch = sketch,
                                         .queries = queries,
                                         .n_queries = n_queries,
                                         .ld = ld,
                                         .first = first,
                                         .n = n,
                                         .bounds = true,
                                         .probability = probability,
                                         .out = out_bounds,
                                         .out_ld = out_ld});
}

dci_status dci_sketch_search(const dci_sketch *sketch, size_t n_queries, const void *queries, size_t ld, size_t k,
                             int64_t *out_rows, float *out_scores)
{
        if (sketch == NULL)
                return dci_fail(DCI_ERR_INVALID, "sketch is NULL");
        if (k == 0)
                return dci_fail(DCI_ERR_INVALID, "k is 0, expected at least 1");
        if (k > MAX_K || n_queries > MAX_RESULTS / k)
                return dci_fail(DCI_ERR_LIMIT, "%zu queries with k %zu: k is at most %zu, their product %zu", n_queries,
                                k, MAX_K, MAX_RESULTS);
        if (n_queries > 0 && out_rows == NULL)
                return dci_fail(DCI_ERR_INVALID, "out_rows is NULL");
        const dci_status status = dci_sketch_check_rows(sketch, sketch->query_dtype, queries, n_queries, ld, "query");
        if (status != DCI_OK || n_queries == 0)
                return status;
        request a = {.sketch = sketch,
                     .queries = queries,
                     .n_queries = n_queries,
                     .ld = ld,
                     .n = sketch->n,
                     .k = k,
                     .k_held = k < sketch->n ? k : sketch->n,
                     .take = take_best,
                     .out_rows = out_rows,
                     .out_scores = out_scores};
        if (sketch->n == 0) {
                for (size_t q = 0; q < n_queries; q++)
                        emit(&a, q, NULL, 0);
                return DCI_OK;
        }
        return answer(&a, search_task,
                      dci_lines(DCI_CODE_QUERIES * sizeof(dci_topk)) + max_at_once(&a) * dci_topk_bytes(a.k_held));
}
