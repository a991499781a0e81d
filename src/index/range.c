/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Range search: every row at least as good as a radius. */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "index/access.h"
#include "index/search.h"

/* Matches of one group of queries, in growing lists. */
typedef struct matches {
        uint64_t *keys;
        size_t n, capacity;
} matches;

/* In front of a result, so that it can be freed without the index. */
typedef struct dci_range_memory {
        dci_context *context;
        size_t n_bytes;
} dci_range_memory;

typedef struct range {
        const dci_flat *flat;
        dci_candidates *candidates; /* of the rows of each query; NULL: all rows for all queries */
        float radius;
        matches *lists; /* one per query */
        atomic_bool out_of_memory;
} range;

static bool grow(dci_context *context, matches *list, size_t n)
{
        if (n <= list->capacity)
                return true;
        size_t capacity = list->capacity * 2 > n ? list->capacity * 2 : n;
        uint64_t *keys = dci_alloc(context, capacity, sizeof *keys);
        if (keys == NULL)
                return false;
        if (list->n > 0)
                memcpy(keys, list->keys, list->n * sizeof *keys);
        dci_free(context, list->keys, list->capacity, sizeof *keys);
        list->keys = keys;
        list->capacity = capacity;
        return true;
}

static bool collect(const range *s, const dci_flat *flat, matches *list, const float *scores, size_t count,
                    size_t first)
{
        const bool descending = dci_metric_descending(flat->metric);
        float kept[DCI_TOPK_BLOCK + DCI_LANES];
        int32_t at[DCI_TOPK_BLOCK + DCI_LANES];
        size_t m = descending ? flat->kernels->keep_at_least(scores, count, s->radius, kept, at)
                              : flat->kernels->keep_at_most(scores, count, s->radius, kept, at);
        if (!grow(flat->context, list, list->n + m))
                return false;
        for (size_t i = 0; i < m; i++) {
                size_t row = first + (size_t)at[i];
                int32_t slot = flat->selection->all ? (int32_t)row : flat->selection->slots[row];
                list->keys[list->n++] = dci_topk_key(kept[i], slot, descending);
        }
        return true;
}

/* Queries of one task: those that score the same rows share the reading of them. */
static size_t group_of(const range *s)
{
        return s->candidates != NULL ? 1 : DCI_MANY_QUERIES;
}

static void range_task(void *arg, size_t task, size_t worker)
{
        range *s = arg;
        const size_t group = group_of(s), query = task * group, left = s->flat->queries->n - query;
        const size_t n_queries = left < group ? left : group;
        float scores[DCI_MANY_QUERIES * DCI_TOPK_BLOCK];
        dci_flat chosen = *s->flat;
        const dci_flat *flat = &chosen;
        dci_selection candidates;
        if (s->candidates != NULL) {
                dci_candidates_select(s->candidates, query, worker, &candidates);
                chosen.selection = &candidates;
                chosen.n = candidates.n;
        }
        for (size_t first = 0; first < flat->n; first += DCI_TOPK_BLOCK) {
                size_t count = flat->n - first < DCI_TOPK_BLOCK ? flat->n - first : DCI_TOPK_BLOCK;
                dci_flat_score(flat, query, n_queries, first, NULL, count, scores);
                for (size_t i = 0; i < n_queries; i++) {
                        if (collect(s, flat, &s->lists[query + i], scores + i * DCI_TOPK_BLOCK, count, first))
                                continue;
                        atomic_store(&s->out_of_memory, true);
                        return;
                }
        }
        for (size_t i = 0; i < n_queries; i++) {
                /* Room for sorting: the same list again. */
                matches *list = &s->lists[query + i];
                if (list->n == 0)
                        continue;
                if (!grow(flat->context, list, 2 * list->n)) {
                        atomic_store(&s->out_of_memory, true);
                        return;
                }
                dci_topk_sort(list->keys, list->n, list->keys + list->n, flat->ids);
        }
}

/* offsets, ids, scores in one allocation, its size kept in front of them. */
static dci_status emit(const range *s, dci_range_result *out)
{
        const dci_flat *flat = s->flat;
        const size_t n_queries = flat->queries->n;
        size_t total = 0, n_bytes, header = DCI_CACHE_LINE;
        for (size_t q = 0; q < n_queries; q++)
                total += s->lists[q].n; /* each is in memory already, so their sum fits */
        if (!dci_mul(n_queries + 1, sizeof(size_t), &n_bytes) || !dci_add(n_bytes, header + total * 12, &n_bytes))
                return dci_fail(DCI_ERR_LIMIT, "%zu matches exceed the address space", total);
        unsigned char *memory = dci_alloc(flat->context, n_bytes, 1);
        if (memory == NULL)
                return DCI_ERR_MEMORY;
        dci_range_memory *head = (dci_range_memory *)(void *)memory;
        size_t *offsets = (size_t *)(void *)(memory + header);
        int64_t *ids = (int64_t *)(void *)(offsets + n_queries + 1);
        float *scores = (float *)(void *)(ids + total);
        head->context = flat->context;
        head->n_bytes = n_bytes;
        dci_context_retain(flat->context);
        offsets[0] = 0;
        for (size_t q = 0; q < n_queries; q++) {
                const size_t at = offsets[q], n = s->lists[q].n;
                offsets[q + 1] = at + n;
                dci_flat_emit(flat, 0, s->lists[q].keys, n, n, ids + at, scores + at);
        }
        out->n_queries = n_queries;
        out->offsets = offsets;
        out->ids = ids;
        out->scores = scores;
        out->memory = memory;
        return DCI_OK;
}

static dci_status run(range *s, dci_range_result *out)
{
        const dci_flat *flat = s->flat;
        const size_t n_queries = flat->queries->n;
        size_t n_tasks = (n_queries + group_of(s) - 1) / group_of(s), work = 0;
        s->lists = dci_calloc(flat->context, n_queries, sizeof *s->lists);
        if (s->lists == NULL)
                return DCI_ERR_MEMORY;
        if (!dci_mul(flat->n * flat->view.rows->dim, n_queries, &work))
                work = SIZE_MAX;
        size_t n_workers =
                s->candidates != NULL ? s->candidates->n_workers : dci_workers_for(flat->context, n_tasks, work);
        dci_status status = dci_flat_run(flat, n_tasks, n_workers, range_task, s);
        if (status == DCI_OK && atomic_load(&s->out_of_memory))
                status = dci_fail(DCI_ERR_MEMORY, "no memory for the matches of %zu queries", n_queries);
        if (status == DCI_OK)
                status = emit(s, out);
        for (size_t q = 0; q < n_queries; q++)
                dci_free(flat->context, s->lists[q].keys, s->lists[q].capacity, sizeof(uint64_t));
        dci_free(flat->context, s->lists, n_queries, sizeof *s->lists);
        return status;
}

/* With all rows, or with those that the kind selects. */
static dci_status run_kind(const dci_index *index, dci_reading *reading, float radius, dci_range_result *out)
{
        const dci_flat *flat = &reading->flat;
        dci_search_stats *stats = &reading->stats;
        range s = {.flat = flat, .radius = radius};
        dci_kind_search search;
        atomic_init(&s.out_of_memory, false);
        if (!dci_search_selects(index, reading, 0, &search)) {
                DCI_TRY(dci_reading_name_all(index, reading));
                stats->queries = flat->queries->n;
                stats->visited = stats->distances = stats->candidates = (uint64_t)flat->n * flat->queries->n;
                return run(&s, out);
        }
        DCI_TRY(index->kind->begin(&search, index, flat, 1));
        s.candidates = &search.candidates;
        dci_status status = dci_candidates_begin(s.candidates);
        if (status == DCI_OK) {
                status = run(&s, out);
                dci_candidates_report(s.candidates, stats);
                dci_candidates_end(s.candidates);
        }
        index->kind->end(&search);
        return status;
}

static dci_status check_result(const dci_range_result *out_result)
{
        if (out_result == NULL)
                return dci_fail(DCI_ERR_INVALID, "out_result is NULL");
        DCI_TRY(dci_check_struct_size("dci_range_result", out_result, out_result->struct_size, sizeof *out_result));
        if (out_result->memory != NULL)
                return dci_fail(DCI_ERR_INVALID, "out_result still holds the matches of %zu queries: free it first",
                                out_result->n_queries);
        return DCI_OK;
}

dci_status dci_index_range_search(const dci_index *index, size_t n_queries, const void *queries, size_t ld,
                                  float radius, const dci_search_params *params, dci_range_result *out_result)
{
        static const size_t no_offsets[1] = {0};
        DCI_TRY(dci_index_check_call(index));
        DCI_TRY(check_result(out_result));
        if (isnan(radius))
                return dci_fail(DCI_ERR_INVALID, "radius is NaN");
        if (n_queries == 0) {
                out_result->n_queries = 0;
                out_result->offsets = no_offsets;
                return DCI_OK;
        }
        dci_reading reading;
        DCI_TRY(dci_reading_begin(index, n_queries, queries, ld, 0, params, &reading));
        return dci_reading_end(index, &reading, run_kind(index, &reading, radius, out_result));
}

void dci_range_result_free(dci_range_result *result)
{
        if (result == NULL)
                return;
        if (result->memory != NULL) {
                dci_range_memory head = *(const dci_range_memory *)result->memory;
                dci_free(head.context, result->memory, head.n_bytes, 1);
                dci_context_destroy(head.context);
        }
        size_t struct_size = result->struct_size;
        dci_range_result_init(result, struct_size);
}
