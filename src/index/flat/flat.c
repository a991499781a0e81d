/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Exact search, row by row: canonical scores of a block of rows for up to eight queries, then the threshold selection.
 * Few queries over many rows are shared out by rows; the parts are merged in a total order, so nothing depends on threads.
 */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "index/flat/flat.h"

/* One query and n contiguous rows. */
static void score_run(const dci_flat *flat, size_t query, const void *base, size_t n, float *out)
{
        const dci_rows *rows = flat->view.rows;
        const dci_queries *queries = flat->queries;
        const int form = flat->metric == DCI_METRIC_L2 ? DCI_FORM_L2 : DCI_FORM_DOT;
        if (queries->integers != NULL && queries->fits[query] != 0)
                queries->integers->score_strided[rows->dtype - DCI_I8][form](queries->whole + query * queries->ld_whole,
                                                                             base, rows->row_bytes, n, rows->dim, out);
        else
                flat->kernels->score_strided[rows->dtype - 1][form](queries->rows + query * queries->ld, base,
                                                                    rows->row_bytes, n, rows->dim, out);
}

static void score_floats(const dci_flat *flat, size_t query, size_t n_queries, const void *const *pointers, size_t n,
                         float *out)
{
        const dci_rows *rows = flat->view.rows;
        const int form = flat->metric == DCI_METRIC_L2 ? DCI_FORM_L2 : DCI_FORM_DOT;
        const size_t ld = flat->queries->ld;
        const float *q = flat->queries->rows + query * ld;
        if (n_queries == 1)
                flat->kernels->score_rows[rows->dtype - 1][form](q, pointers, n, rows->dim, out);
        else
                flat->kernels->score_many[rows->dtype - 1][form](q, ld, n_queries, pointers, n, rows->dim, out,
                                                                 DCI_TOPK_BLOCK);
}

static void score_integers(const dci_flat *flat, size_t query, size_t n_queries, const void *const *pointers, size_t n,
                           float *out)
{
        const dci_rows *rows = flat->view.rows;
        const dci_integer_kernels *kernels = flat->queries->integers;
        const int form = flat->metric == DCI_METRIC_L2 ? DCI_FORM_L2 : DCI_FORM_DOT, dtype = rows->dtype - DCI_I8;
        const size_t ld = flat->queries->ld_whole;
        const int16_t *q = flat->queries->whole + query * ld;
        if (n_queries == 1)
                kernels->score_rows[dtype][form](q, pointers, n, rows->dim, out);
        else
                kernels->score_many[dtype][form](q, ld, n_queries, pointers, n, rows->dim, out, DCI_TOPK_BLOCK);
}

/* Queries that follow one another and are scored by the same arithmetic at a time. */
static void score_pointers(const dci_flat *flat, size_t query, size_t n_queries, const void *const *pointers, size_t n,
                           float *out)
{
        const uint8_t *fits = flat->queries->fits;
        for (size_t i = 0, end; i < n_queries; i = end) {
                const bool integers = fits != NULL && fits[query + i] != 0;
                for (end = i + 1; end < n_queries && (fits != NULL && fits[query + end] != 0) == integers;)
                        end++;
                (integers ? score_integers : score_floats)(flat, query + i, end - i, pointers, n,
                                                           out + i * DCI_TOPK_BLOCK);
        }
}

/*
 * Cosines of this size or more become 1 (or -1), so that equal rows score exactly 1. The inner product of equal rows is their
 * squared norm S, bit for bit: norm2 sums in the order of the row kernels, and elements widen exactly; of integers both are
 * exact sums. Their cosine is then
 * (S r) r with r = 1 / sqrt(S). With u = 2^-24, rounding gives sqrt(S) a factor 1 + a, the quotient 1 + b and the products 1 + c
 * and 1 + d, each of a to d at most u in size; nothing underflows, as S is in [DCI_MIN_NORM2, DCI_MAX_NORM2]. So the result is
 * (1 + b)^2 (1 + c) (1 + d) / (1 + a)^2 >= (1 - u)^4 / (1 + u)^2 >= 1 - 6 u. The true cosine is at most 1: lowering a score to
 * 1 reduces its error, raising one from 1 - 6 u on adds at most 6 u.
 */
#define ONE_FROM (1.0f - 6.0f * 0x1p-24f)

/* A cosine of nearly 1, computed with the norm that the row has: a stored inverse norm may be from a file of a level with
 * another order of sums (scalar), which differs by up to (dim / 8 + 16) u. */
static float nearly_one(const dci_flat *flat, size_t query, size_t first, const int32_t *slots)
{
        const dci_rows *rows = flat->view.rows;
        const dci_queries *queries = flat->queries;
        const void *row;
        float score;
        dci_view_pointers(&flat->view, first, slots, 1, &row);
        score_pointers(flat, query, 1, &row, 1, &score);
        score *= 1.0f / sqrtf(flat->kernels->norm2[rows->dtype - 1](row, rows->dim));
        score *= queries->inverse_norms[query];
        return score;
}

/* Inner products of one query to cosines in [-1, 1], in place. */
static void to_cosines(const dci_flat *flat, size_t query, size_t first, const int32_t *slots, size_t count,
                       const float *inverse, float *scores)
{
        const float scale = flat->queries->inverse_norms[query];
        const float near = 1.0f - ((float)flat->view.rows->dim / 4.0f + 64.0f) * 0x1p-24f;
        int found = 0;
        for (size_t i = 0; i < count; i++) {
                scores[i] = scores[i] * inverse[i] * scale;
                found |= fabsf(scores[i]) >= near;
        }
        for (size_t i = 0; found != 0 && i < count; i++) {
                if (fabsf(scores[i]) >= near && fabsf(scores[i]) < ONE_FROM)
                        scores[i] = nearly_one(flat, query, first + i, slots == NULL ? NULL : slots + i);
                if (fabsf(scores[i]) >= ONE_FROM)
                        scores[i] = copysignf(1.0f, scores[i]);
        }
}

void dci_flat_score(const dci_flat *flat, size_t query, size_t n_queries, size_t first, const int32_t *slots,
                    size_t count, float *out)
{
        const dci_rows *rows = flat->view.rows;
        const void *pointers[DCI_TOPK_BLOCK];
        if (slots == NULL && !flat->selection->all)
                slots = flat->selection->slots + first;
        size_t done = 0, run;
        for (const void *base; n_queries == 1 && slots == NULL && !rows->borrowed && done < count; done += run) {
                base = dci_view_run(&flat->view, first + done, count - done, &run);
                score_run(flat, query, base, run, out + done);
        }
        if (done < count) {
                dci_view_pointers(&flat->view, first, slots, count, pointers);
                score_pointers(flat, query, n_queries, pointers, count, out);
        }
        if (flat->metric != DCI_METRIC_COSINE)
                return;
        float inverse[DCI_TOPK_BLOCK];
        dci_view_norms(&flat->view, first, slots, count, inverse);
        for (size_t i = 0; i < n_queries; i++)
                to_cosines(flat, query + i, first, slots, count, inverse, out + i * DCI_TOPK_BLOCK);
}

void dci_flat_pad(size_t n, size_t k, int64_t *out_ids, float *out_scores)
{
        for (; n < k; n++) {
                out_ids[n] = -1;
                if (out_scores != NULL)
                        out_scores[n] = NAN;
        }
}

void dci_flat_emit(const dci_flat *flat, size_t query, const uint64_t *keys, size_t n, size_t k, int64_t *out_ids,
                   float *out_scores)
{
        int64_t *ids = out_ids + query * k;
        float *scores = out_scores == NULL ? NULL : out_scores + query * k;
        for (size_t i = 0; i < n; i++) {
                ids[i] = dci_view_id(&flat->view, dci_topk_slot(keys[i]));
                if (scores != NULL)
                        scores[i] = dci_topk_score(keys[i], dci_metric_descending(flat->metric));
        }
        dci_flat_pad(n, k, ids, scores);
}

/* Selected rows that are close together: reading all of them in order beats picking them, because memory delivers whole lines
 * in order best. The scores of the others are dropped. False when they are too far apart. */
#define CLOSE 2
static bool score_close(const dci_flat *flat, size_t query, const int32_t *slots, size_t count, float *out)
{
        static const dci_selection all = {.all = true};
        const size_t first = (size_t)slots[0], span = (size_t)slots[count - 1] - first + 1;
        float scores[CLOSE * DCI_TOPK_BLOCK];
        if (count < DCI_TOPK_BLOCK || span > CLOSE * count || flat->view.rows->borrowed)
                return false;
        dci_flat whole = *flat;
        whole.selection = &all;
        for (size_t done = 0; done < span; done += DCI_TOPK_BLOCK) {
                size_t here = span - done < DCI_TOPK_BLOCK ? span - done : DCI_TOPK_BLOCK;
                dci_flat_score(&whole, query, 1, first + done, NULL, here, scores + done);
        }
        for (size_t i = 0; i < count; i++)
                out[i] = scores[(size_t)slots[i] - first];
        return true;
}

void dci_flat_scan(const dci_flat *flat, size_t query, size_t n_queries, size_t begin, size_t end, dci_topk *topk)
{
        float scores[DCI_MANY_QUERIES * DCI_TOPK_BLOCK];
        for (size_t first = begin; first < end; first += DCI_TOPK_BLOCK) {
                size_t count = end - first < DCI_TOPK_BLOCK ? end - first : DCI_TOPK_BLOCK;
                const int32_t *slots = flat->selection->all ? NULL : flat->selection->slots + first;
                if (n_queries > 1 || slots == NULL || flat->selection->scattered ||
                    !score_close(flat, query, slots, count, scores))
                        dci_flat_score(flat, query, n_queries, first, slots, count, scores);
                for (size_t i = 0; i < n_queries; i++)
                        dci_topk_add(&topk[i], scores + i * DCI_TOPK_BLOCK, count, (int32_t)first, slots);
        }
}

/* One search, shared by its tasks. A task is a group of queries over a segment of rows. */
typedef struct direct {
        const dci_flat *flat;
        size_t k, k_held; /* asked for; the most that there can be */
        size_t group, n_groups, n_segments, segment_rows;
        size_t worker_bytes; /* scratch of one worker: a selection per query of a group */
        unsigned char *scratch;
        uint64_t *parts; /* n_segments > 1: [query][segment][k_held], then as much to sort one query's in */
        size_t *n_parts; /* [query][segment] */
        int64_t *out_ids;
        float *out_scores;
} direct;

static void search_task(void *arg, size_t task, size_t worker)
{
        const direct *d = arg;
        const dci_flat *flat = d->flat;
        const size_t segment = task / d->n_groups;
        const size_t query = task % d->n_groups * d->group;
        const size_t n_queries = flat->queries->n - query < d->group ? flat->queries->n - query : d->group;
        const size_t begin = segment * d->segment_rows;
        const size_t end = flat->n - begin < d->segment_rows ? flat->n : begin + d->segment_rows;
        unsigned char *scratch = d->scratch + worker * d->worker_bytes;
        dci_topk topk[DCI_MANY_QUERIES];
        for (size_t i = 0; i < n_queries; i++)
                dci_topk_init(&topk[i], flat->kernels, flat->ids, d->k_held, dci_metric_descending(flat->metric),
                              scratch + i * dci_topk_bytes(d->k_held));
        dci_flat_scan(flat, query, n_queries, begin, end, topk);
        for (size_t i = 0; i < n_queries; i++) {
                size_t q = query + i, n = dci_topk_finish(&topk[i]);
                if (d->n_segments == 1) {
                        dci_flat_emit(flat, q, topk[i].keys, n, d->k, d->out_ids, d->out_scores);
                        continue;
                }
                size_t at = q * d->n_segments + segment;
                d->n_parts[at] = n;
                memcpy(d->parts + at * d->k_held, topk[i].keys, n * sizeof *d->parts);
        }
}

/* Joins the best of all segments, query by query. */
static void merge_parts(const direct *d)
{
        const dci_flat *flat = d->flat;
        const size_t stride = d->n_segments * d->k_held;
        for (size_t q = 0; q < flat->queries->n; q++) {
                uint64_t *keys = d->parts + q * stride;
                size_t n = 0;
                for (size_t s = 0; s < d->n_segments; s++) {
                        size_t here = d->n_parts[q * d->n_segments + s];
                        memmove(keys + n, keys + s * d->k_held, here * sizeof *keys);
                        n += here;
                }
                dci_topk_sort(keys, n, d->parts + flat->queries->n * stride, flat->ids);
                dci_flat_emit(flat, q, keys, n < d->k_held ? n : d->k_held, d->k, d->out_ids, d->out_scores);
        }
}

static size_t ceil_div(size_t a, size_t b)
{
        return (a + b - 1) / b;
}

/* Groups of queries first, because they share each row; segments of rows only while threads would idle. */
static size_t plan(direct *d)
{
        const dci_flat *flat = d->flat;
        const size_t n_queries = flat->queries->n, dim = flat->view.rows->dim;
        size_t max_segments = flat->n / DCI_SEGMENT_ROWS > 0 ? flat->n / DCI_SEGMENT_ROWS : 1;
        size_t work = 0;
        if (!dci_mul(flat->n * dim, n_queries, &work)) /* n < 2^31, dim <= 2^20: the first product fits */
                work = SIZE_MAX;
        size_t workers = dci_workers_for(flat->context, n_queries * max_segments, work);
        size_t n_groups = ceil_div(n_queries, DCI_MANY_QUERIES);
        if (n_groups < workers)
                n_groups = workers < n_queries ? workers : n_queries;
        d->group = ceil_div(n_queries, n_groups);
        d->n_groups = ceil_div(n_queries, d->group);
        size_t segments = ceil_div(workers, d->n_groups);
        if (segments > max_segments)
                segments = max_segments;
        d->segment_rows = flat->n == 0 ? 1 : ceil_div(flat->n, segments);
        d->n_segments = flat->n == 0 ? 1 : ceil_div(flat->n, d->segment_rows);
        return workers < d->n_groups * d->n_segments ? workers : d->n_groups * d->n_segments;
}

dci_status dci_flat_run(const dci_flat *flat, size_t n_tasks, size_t n_workers, dci_task_fn fn, void *arg)
{
        const dci_region region = {
                flat->context, n_tasks, n_workers, fn, arg, flat->progress, flat->n * flat->queries->n, flat->object};
        return dci_parallel(&region);
}

dci_status dci_flat_search(const dci_flat *flat, size_t k, int64_t *out_ids, float *out_scores, dci_search_stats *stats)
{
        const size_t n_queries = flat->queries->n;
        direct d = {.flat = flat, .k = k, .out_ids = out_ids, .out_scores = out_scores};
        d.k_held = k < flat->n ? k : flat->n;
        if (d.k_held == 0)
                d.k_held = 1;
        const size_t n_workers = plan(&d);
        d.worker_bytes = d.group * dci_topk_bytes(d.k_held);
        size_t n_parts = d.n_segments > 1 ? d.n_segments * n_queries : 0;
        size_t n_keys = d.n_segments > 1 ? (n_parts + d.n_segments) * d.k_held : 0;
        d.scratch = dci_alloc(flat->context, n_workers, d.worker_bytes);
        if (d.scratch == NULL)
                return DCI_ERR_MEMORY;
        dci_status status = DCI_OK;
        if (n_parts > 0) {
                d.parts = dci_alloc(flat->context, n_keys, sizeof *d.parts);
                d.n_parts = dci_alloc(flat->context, n_parts, sizeof *d.n_parts);
                if (d.parts == NULL || d.n_parts == NULL)
                        status = DCI_ERR_MEMORY;
        }
        if (status == DCI_OK)
                status = dci_flat_run(flat, d.n_groups * d.n_segments, n_workers, search_task, &d);
        if (status == DCI_OK && n_parts > 0)
                merge_parts(&d);
        stats->queries = n_queries;
        stats->visited = stats->distances = stats->candidates = (uint64_t)flat->n * n_queries;
        dci_free(flat->context, d.n_parts, n_parts, sizeof *d.n_parts);
        dci_free(flat->context, d.parts, n_keys, sizeof *d.parts);
        dci_free(flat->context, d.scratch, n_workers, d.worker_bytes);
        return status;
}
