/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Exact search for large batches: propose by cheap arithmetic, decide by the canonical kernel.
 *
 * A tile of rows is prepared once (rounded to bf16 for AMX, widened to float for OpenBLAS) and multiplied with every query
 * of a block. Each product comes with a bound on how far it may lie from the canonical score, so "product + bound below the
 * k-th best lower bound so far" is proof that a row cannot enter. What remains, little more than k rows, is scored by the
 * canonical kernel. So the answer is that of flat.c, bit for bit.
 *
 * Goodness g is what both metrics maximise: the score for IP and COSINE, minus the squared distance for L2.
 */
#include "index/index_internal.h"

#include <math.h>
#include <string.h>

#include "index/flat_batch.h"

#define MIN_QUERIES 16
#define MIN_ROWS 256
#define BLOCK_QUERIES 512
#define LIST_BYTES ((size_t)8 << 20)
#define QUERY_BYTES ((size_t)1 << 20)

bool dci_flat_batch_suits(const dci_flat *flat, size_t k)
{
        return flat->queries->n >= MIN_QUERIES && flat->n >= MIN_ROWS && k <= flat->n / 4;
}

/* Raises the limit to a goodness that k rows are sure to reach, and drops the rows that are sure not to. */
static void cut_list(const batch *b, batch_worker *w, batch_list *list)
{
        for (size_t i = 0; i < list->n; i++) {
                float low = list->value[i] - list->error[i];
                w->floats[i] = low == low ? low : -INFINITY;
        }
        float reached = b->flat->kernels->reached_by(w->floats, list->n, b->k, w->order);
        if (reached > list->limit)
                list->limit = reached;
        for (size_t i = 0; i < list->n; i++) {
                float high = list->value[i] + list->error[i];
                w->floats[i] = high == high ? high : INFINITY;
        }
        list->n = b->flat->kernels->keep_at_least(w->floats, list->n, list->limit, w->kept, w->order);
        for (size_t i = 0; i < list->n; i++) { /* order ascends: nothing is overwritten before it moved */
                list->value[i] = list->value[w->order[i]];
                list->error[i] = list->error[w->order[i]];
                list->slot[i] = list->slot[w->order[i]];
        }
}

/* Scores what is listed and sorts it into w->keys, best first. Returns how many count. */
static size_t settle(const batch *b, batch_worker *w, size_t query, const batch_list *list)
{
        const bool descending = dci_metric_descending(b->flat->metric);
        float scores[DCI_TOPK_BLOCK];
        for (size_t i = 0; i < list->n; i += DCI_TOPK_BLOCK) {
                size_t count = list->n - i < DCI_TOPK_BLOCK ? list->n - i : DCI_TOPK_BLOCK;
                dci_flat_score(b->flat, query, 1, 0, list->slot + i, count, scores);
                for (size_t j = 0; j < count; j++)
                        w->keys[i + j] = dci_topk_key(scores[j], list->slot[i + j], descending);
        }
        w->scored += list->n;
        dci_topk_sort(w->keys, list->n, w->keys + b->capacity, b->flat->ids);
        return list->n < b->k ? list->n : b->k;
}

/* A full list is first cut by bounds. If that frees little (many near-ties), its rows are scored, which leaves exactly k. */
static void make_room(const batch *b, batch_worker *w, size_t query, batch_list *list)
{
        cut_list(b, w, list);
        if (list->n <= b->k + (b->capacity - b->k) / 4 * 3)
                return;
        const bool descending = dci_metric_descending(b->flat->metric);
        list->n = settle(b, w, query, list);
        for (size_t i = 0; i < list->n; i++) {
                float score = dci_topk_score(w->keys[i], descending);
                list->value[i] = descending ? score : -score;
                list->error[i] = 0.0f;
                list->slot[i] = dci_topk_slot(w->keys[i]);
        }
        if (list->value[list->n - 1] > list->limit)
                list->limit = list->value[list->n - 1];
}

/* Enters the rows of a tile whose bits are set for queries [first, first + DCI_BATCH_COLUMNS) of the block. */
static void enter_hits(const batch *b, batch_worker *w, size_t block, size_t first, size_t n_rows, const int32_t *slots)
{
        const bool l2 = b->flat->metric == DCI_METRIC_L2;
        for (size_t r = 0; r < n_rows; r++) {
                uint32_t bits = w->hits[2 * r] | (uint32_t)w->hits[2 * r + 1] << 16;
                for (; bits != 0; bits &= bits - 1) {
                        size_t column = (size_t)dci_lowest_bit(bits), q = first + column;
                        batch_list *list = &w->lists[q];
                        float product = w->products[r * DCI_BATCH_COLUMNS + column];
                        list->value[list->n] = l2 ? 2.0f * (product - w->offset[r]) - w->norm2[q] : product;
                        list->error[list->n] = w->error[q];
                        list->slot[list->n++] = slots[r];
                        if (list->n == b->capacity)
                                make_room(b, w, block + q, list);
                }
        }
}

/*
 * Bounds for one tile: |product - true inner product| <= lost_q N + (Q + lost_q) lost + gamma (Q + lost_q) (N + lost) + tiny,
 * with Q, N the lengths of the query and of the longest row, lost_* the lengths of what rounding to bf16 took away, and gamma
 * for summing in any order in binary32, for the canonical kernel's own rounding and for this computation's. tiny covers the
 * numbers below 2^-126 that tile arithmetic flushes to zero.
 */
static void bound_tile(const batch *b, batch_worker *w, size_t n_queries, float longest, float lost)
{
        const float dim = (float)b->flat->view.rows->dim;
        const float gamma = (2.0f * dim + dim / 16.0f + 160.0f) * 0x1p-24f;
        const float gamma_l2 = (dim / 16.0f + 40.0f) * 0x1p-23f;
        const bool l2 = b->flat->metric == DCI_METRIC_L2;
        for (size_t q = 0; q < n_queries; q++) {
                float length = w->length[q], query_lost = w->lost[q], limit = w->lists[q].limit;
                float error = query_lost * longest + (length + query_lost) * lost +
                              gamma * (length + query_lost) * (longest + lost) +
                              dim * 0x1p-120f * (1.0f + length + longest);
                if (l2) {
                        error = 2.0f * error + gamma_l2 * (longest * longest + length * length);
                        /* g >= limit - error, solved for product - |row|^2 / 2. */
                        w->threshold[q] =
                                0.5f * (limit - error + w->norm2[q]) - gamma_l2 * (longest * longest + length * length);
                } else {
                        w->threshold[q] = limit - error;
                }
                w->error[q] = error;
        }
}

/* Prepares the rows of a tile; writes their offsets, returns the longest length and the largest loss. */
static void load_tile(const batch *b, batch_worker *w, size_t first, size_t n_rows, int32_t *slots, float *longest,
                      float *lost)
{
        const dci_flat *flat = b->flat;
        const dci_rows *rows = flat->view.rows;
        const void *pointers[DCI_BATCH_ROWS];
        float inverse[DCI_BATCH_ROWS];
        const bool cosine = flat->metric == DCI_METRIC_COSINE;
        for (size_t r = 0; r < n_rows; r++)
                slots[r] = flat->selection->all ? (int32_t)(first + r) : flat->selection->slots[first + r];
        dci_view_pointers(&flat->view, first, flat->selection->all ? NULL : slots, n_rows, pointers);
        if (cosine)
                dci_view_inverse_norms(&flat->view, first, flat->selection->all ? NULL : slots, n_rows, inverse);
        float most_lost = 0.0f, most_norm2 = 0.0f;
        for (size_t r = 0; r < n_rows; r++) {
                float norm2 = cosine ? 1.0f : flat->kernels->norm2[rows->dtype - 1](pointers[r], rows->dim);
                float *wide = b->amx != NULL ? w->row : w->rows_f32 + r * rows->dim;
                const float *row = pointers[r];
                if (rows->dtype != DCI_F32 || cosine || b->amx == NULL) {
                        flat->kernels->widen[rows->dtype - 1](pointers[r], rows->dim, wide);
                        row = wide;
                }
                for (size_t p = 0; cosine && p < rows->dim; p++)
                        wide[p] *= inverse[r];
                if (b->amx != NULL) {
                        float lost2 = b->amx->pack_row(row, rows->dim, b->dim_padded, w->rows_bf16 + r * b->dim_padded);
                        most_lost = lost2 > most_lost ? lost2 : most_lost;
                }
                most_norm2 = norm2 > most_norm2 ? norm2 : most_norm2;
                w->offset[r] = flat->metric == DCI_METRIC_L2 ? 0.5f * norm2 : 0.0f;
        }
        if (b->amx != NULL) /* tiles are multiplied whole */
                memset(w->rows_bf16 + n_rows * b->dim_padded, 0,
                       (DCI_BATCH_ROWS - n_rows) * b->dim_padded * sizeof *w->rows_bf16);
        *longest = dci_batch_length(most_norm2, rows->dim);
        *lost = b->amx == NULL ? 0.0f : dci_batch_length(most_lost, rows->dim);
}

static void multiply(const batch *b, batch_worker *w, size_t block, size_t first, size_t n_queries, size_t n_rows)
{
        const dci_queries *queries = b->flat->queries;
        if (b->amx != NULL) {
                size_t whole = (n_rows + 31) / 32 * 32;
                b->amx->products(w->rows_bf16, whole, b->dim_padded, w->queries_bf16 + first * b->dim_padded,
                                 DCI_BATCH_COLUMNS / DCI_LANES, w->products, DCI_BATCH_COLUMNS);
                return;
        }
        size_t columns = n_queries - first < DCI_BATCH_COLUMNS ? n_queries - first : DCI_BATCH_COLUMNS;
        const float *rows = b->flat->metric == DCI_METRIC_COSINE ? w->queries_f32 + first * b->flat->view.rows->dim
                                                                 : queries->rows + (block + first) * queries->ld;
        size_t ld = b->flat->metric == DCI_METRIC_COSINE ? b->flat->view.rows->dim : queries->ld;
        dci_gemm_nt(n_rows, columns, b->flat->view.rows->dim, w->rows_f32, b->flat->view.rows->dim, rows, ld,
                    w->products, DCI_BATCH_COLUMNS);
}

static void scan_rows(const batch *b, batch_worker *w, size_t block, size_t n_queries)
{
        const size_t n = b->flat->n;
        int32_t slots[DCI_BATCH_ROWS];
        for (size_t first = 0; first < n; first += DCI_BATCH_ROWS) {
                size_t n_rows = n - first < DCI_BATCH_ROWS ? n - first : DCI_BATCH_ROWS;
                float longest, lost;
                load_tile(b, w, first, n_rows, slots, &longest, &lost);
                bound_tile(b, w, n_queries, longest, lost);
                for (size_t q = 0; q < n_queries; q += DCI_BATCH_COLUMNS) {
                        multiply(b, w, block, q, n_queries, n_rows);
                        b->flat->kernels->tile_hits(w->products, DCI_BATCH_COLUMNS, n_rows,
                                                    DCI_BATCH_COLUMNS / DCI_LANES, w->offset, w->threshold + q,
                                                    w->hits);
                        enter_hits(b, w, block, q, n_rows, slots);
                }
        }
}

static void search_block(void *arg, size_t task, size_t worker)
{
        const batch *b = arg;
        batch_worker *w = &b->workers[worker];
        const size_t block = task * b->block, left = b->flat->queries->n - block;
        const size_t n_queries = left < b->block ? left : b->block;
        dci_batch_load_queries(b, w, block, n_queries);
        if (b->amx != NULL)
                b->amx->begin();
        scan_rows(b, w, block, n_queries);
        if (b->amx != NULL)
                b->amx->end();
        for (size_t q = 0; q < n_queries; q++) {
                if (w->lists[q].n > b->k)
                        cut_list(b, w, &w->lists[q]);
                size_t n = settle(b, w, block + q, &w->lists[q]);
                dci_flat_emit(b->flat, w->keys, n, b->k, b->out_ids + (block + q) * b->k,
                              b->out_scores == NULL ? NULL : b->out_scores + (block + q) * b->k);
        }
}

/* Queries of one task: enough to make preparing a tile cheap, few enough for their lists and packed forms to stay in cache,
 * and an equal share for every worker. */
static void plan(batch *b, size_t *n_tasks, size_t *n_workers)
{
        const size_t n = b->flat->queries->n, dim = b->flat->view.rows->dim;
        size_t block = BLOCK_QUERIES, list_bytes = b->capacity * (2 * sizeof(float) + sizeof(int32_t));
        while (block > DCI_BATCH_COLUMNS &&
               (block * list_bytes > LIST_BYTES || block * b->dim_padded * 2 > QUERY_BYTES))
                block /= 2;
        size_t work = 0;
        if (!dci_mul(b->flat->n * dim, n, &work))
                work = SIZE_MAX;
        size_t workers = dci_workers_for(b->flat->context, (n + MIN_QUERIES - 1) / MIN_QUERIES, work);
        size_t tasks = (n + block - 1) / block;
        tasks = (tasks + workers - 1) / workers * workers;
        block = (n + tasks - 1) / tasks;
        b->block = (block + DCI_BATCH_COLUMNS - 1) / DCI_BATCH_COLUMNS * DCI_BATCH_COLUMNS;
        if (b->block * workers >= n + b->block && workers > 1) /* rounding up left a worker without a task */
                b->block = (block + DCI_LANES - 1) / DCI_LANES * DCI_LANES;
        *n_tasks = (n + b->block - 1) / b->block;
        *n_workers = workers < *n_tasks ? workers : *n_tasks;
}

dci_status dci_flat_batch_search(const dci_flat *flat, size_t k, int64_t *out_ids, float *out_scores,
                                 dci_search_stats *stats)
{
        batch b = {.flat = flat, .k = k, .out_ids = out_ids, .out_scores = out_scores};
        size_t n_tasks, n_workers;
        b.amx = dci_amx_for(flat->context);
        b.dim_padded = (flat->view.rows->dim + 31) / 32 * 32;
        b.capacity = k + (k < 64 ? 128 : 2 * k);
        plan(&b, &n_tasks, &n_workers);
        dci_status status = dci_batch_workers_create(&b, n_workers);
        if (status != DCI_OK)
                return status;
        dci_region region = {
                flat->context, n_tasks, n_workers, search_block, &b, flat->progress, flat->n * flat->queries->n,
                flat->object};
        status = dci_parallel(&region);
        for (size_t i = 0; i < n_workers; i++)
                stats->distances += b.workers[i].scored;
        dci_batch_workers_destroy(&b);
        stats->queries = flat->queries->n;
        stats->visited = stats->proposed = (uint64_t)flat->n * flat->queries->n;
        return status;
}
