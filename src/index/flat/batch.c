/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Exact search for large batches: propose by cheap arithmetic, decide by the canonical kernel.
 *
 * A tile of rows is prepared once (rounded to bf16 for AMX, else widened to float) and multiplied with every query
 * of a block. Each product comes with a bound on its distance from the canonical score, so "product + bound below the
 * k-th best lower bound so far" is proof that a row cannot enter. What remains, little more than k rows, is scored by the
 * canonical kernel. So the answer is that of flat/flat.c, bit for bit.
 *
 * Goodness g is what both metrics maximise: the score for IP and COSINE, minus the squared distance for L2.
 */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "index/flat/batch_state.h"

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

/* Values of a list are scores: nothing needs to be scored again. */
static bool is_exact(const batch *b)
{
        return b->integers != NULL && b->flat->metric != DCI_METRIC_COSINE;
}

/* Scores what is listed and sorts it into w->keys, best first. Returns how many count. */
static size_t settle(const batch *b, batch_worker *w, size_t query, const batch_list *list)
{
        const bool descending = dci_metric_descending(b->flat->metric);
        float scores[DCI_TOPK_BLOCK];
        for (size_t i = 0; i < list->n && is_exact(b); i++) {
                const float goodness = list->value[i];
                w->keys[i] = dci_topk_key(descending ? goodness : 0.0f - goodness, list->slot[i], descending);
        }
        for (size_t i = 0; i < list->n && !is_exact(b); i += DCI_TOPK_BLOCK) {
                size_t count = list->n - i < DCI_TOPK_BLOCK ? list->n - i : DCI_TOPK_BLOCK;
                dci_flat_score(b->flat, query, 1, 0, list->slot + i, count, scores);
                for (size_t j = 0; j < count; j++)
                        w->keys[i + j] = dci_topk_key(scores[j], list->slot[i + j], descending);
        }
        w->scored += is_exact(b) ? 0 : list->n;
        dci_topk_sort(w->keys, list->n, w->keys + b->capacity, b->flat->ids);
        return list->n < b->k ? list->n : b->k;
}

/* A full list is first cut by bounds. If that frees little (many near-ties), its rows are scored, and exactly k are kept. */
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
static void enter_hits(const batch *b, batch_worker *w, size_t block, size_t first, const batch_rows *tile)
{
        const bool l2 = b->flat->metric == DCI_METRIC_L2 && b->integers == NULL;
        uint8_t hit_rows[DCI_BATCH_ROWS];
        size_t n_hit = 0;
        for (size_t r = 0; r < tile->n; r++) { /* without a branch: whether a row hits cannot be predicted */
                hit_rows[n_hit] = (uint8_t)r;
                n_hit += (w->hits[2 * r] | w->hits[2 * r + 1]) != 0;
        }
        for (size_t i = 0; i < n_hit; i++) {
                const size_t r = hit_rows[i];
                const float *products = w->products + r * DCI_BATCH_COLUMNS;
                const float offset = tile->offset[r];
                const int32_t slot = tile->slots[r];
                uint32_t bits = w->hits[2 * r] | (uint32_t)w->hits[2 * r + 1] << 16;
                do {
                        size_t column = (size_t)dci_lowest_bit(bits), q = first + column;
                        batch_list *list = &w->lists[q];
                        size_t n = list->n++;
                        list->value[n] = l2 ? 2.0f * (products[column] - offset) - w->norm2[q] : products[column];
                        list->error[n] = w->error[q];
                        list->slot[n] = slot;
                        if (DCI_UNLIKELY(n + 1 == b->capacity))
                                make_room(b, w, block + q, list);
                        bits &= bits - 1;
                } while (bits != 0);
        }
}

/*
 * Bounds for one tile: |product - true inner product| <= lost_q N + (Q + lost_q) lost + gamma (Q + lost_q) (N + lost) + tiny,
 * with Q, N the lengths of the query and of the longest row, lost_* the lengths of what rounding to bf16 took away, and gamma
 * for summing in any order in binary32, for the canonical kernel's own rounding and for this computation's. tiny covers the
 * numbers below 2^-126 that tile arithmetic flushes to zero. Canonical cosines near 1 take another inverse norm, which
 * differs by up to (dim / 8 + 16) u, and then may become 1 (flat.c), where both lengths are 1: at_one. Where rows
 * and queries are less a centre, so are all lengths, and gamma covers how the differences round.
 */
static void bound_tile(const batch *b, batch_worker *w, size_t n_queries, const batch_rows *tile)
{
        const float longest = tile->longest, lost = tile->lost;
        const float dim = (float)b->flat->view.rows->dim;
        const float gamma = (2.0f * dim + dim / 16.0f + 168.0f) * 0x1p-24f;
        const float gamma_l2 = (dim / 16.0f + 48.0f) * 0x1p-23f;
        const bool l2 = b->flat->metric == DCI_METRIC_L2;
        const float at_one = b->flat->metric == DCI_METRIC_COSINE ? (dim / 8.0f + 32.0f) * 0x1p-24f : 0.0f;
        for (size_t q = 0; q < n_queries && b->integers != NULL; q++)
                w->threshold[q] = w->lists[q].limit - w->error[q];
        for (size_t q = 0; q < n_queries && b->integers == NULL; q++) {
                float length = w->length[q], query_lost = w->lost[q], limit = w->lists[q].limit;
                float error = query_lost * longest + (length + query_lost) * lost +
                              gamma * (length + query_lost) * (longest + lost) +
                              dim * 0x1p-120f * (1.0f + length + longest) + at_one;
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

/* --- where to start ------------------------------------------------------------------------------------------------------ */

/*
 * Without a limit, the first rows all enter a query's list, and while the limit rises k ln(n / k) more do. A sample of rows,
 * evenly spread, gives an estimate of the k-th best score. The guess is set low enough to hold nearly always; finish_query notices
 * when it did not.
 */
#define SAMPLE_ROWS 1024

static void plan_sample(batch *b)
{
        const double n = (double)b->flat->n, k = (double)b->k, m = SAMPLE_ROWS;
        b->n_sample = 0;
        if (n < 4 * m)
                return;
        /* Of the k best, about k m / n fall into the sample, with the spread of a Poisson count. Three spreads and two more
         * make a guess that fails about once in a thousand queries. */
        double expected = k * m / n, rank = ceil(expected + 3 * sqrt(expected) + 2);
        /* Worth it when fewer rows pass the guess than would pass a rising limit. */
        if (rank > m / 4 || n * rank / m > 0.7 * k * (2 + log(n / k)))
                return;
        b->n_sample = SAMPLE_ROWS;
        b->sample_rank = (size_t)rank;
}

static void guess_limits(const batch *b, batch_worker *w, size_t block, size_t n_queries)
{
        float reached[DCI_BATCH_COLUMNS];
        float *products = w->sample_products;
        const bool l2 = b->flat->metric == DCI_METRIC_L2 && b->integers == NULL;
        dci_batch_load_rows(b, w, 0, b->flat->n / b->n_sample, b->n_sample, &w->sample);
        for (size_t first = 0; first < n_queries; first += DCI_BATCH_COLUMNS) {
                dci_batch_multiply(b, w, &w->sample, block, first, n_queries, products);
                for (size_t r = 0; l2 && r < b->n_sample; r++)
                        for (size_t c = 0; c < DCI_BATCH_COLUMNS; c++)
                                products[r * DCI_BATCH_COLUMNS + c] -= w->sample.offset[r];
                b->flat->kernels->columns_reached_by(products, DCI_BATCH_COLUMNS, b->n_sample, DCI_BATCH_COLUMNS,
                                                     b->sample_rank, reached);
                for (size_t c = 0; c < DCI_BATCH_COLUMNS && first + c < n_queries; c++) {
                        size_t q = first + c;
                        w->guess[q] = w->lists[q].limit = l2 ? 2.0f * reached[c] - w->norm2[q] : reached[c];
                }
        }
}

/* --- a block of queries ------------------------------------------------------------------------------------------------ */

static void scan_rows(const batch *b, batch_worker *w, size_t block, size_t n_queries)
{
        const size_t n = b->flat->n;
        batch_rows *tile = &w->tile;
        for (size_t first = 0; first < n; first += DCI_BATCH_ROWS) {
                dci_batch_load_rows(b, w, first, 1, n - first < DCI_BATCH_ROWS ? n - first : DCI_BATCH_ROWS, tile);
                bound_tile(b, w, n_queries, tile);
                for (size_t q = 0; q < n_queries; q += DCI_BATCH_COLUMNS) {
                        dci_batch_multiply(b, w, tile, block, q, n_queries, w->products);
                        b->flat->kernels->tile_hits(w->products, DCI_BATCH_COLUMNS, tile->n,
                                                    DCI_BATCH_COLUMNS / DCI_LANES, tile->offset, w->threshold + q,
                                                    w->hits);
                        enter_hits(b, w, block, q, tile);
                }
        }
}

/* A guess held if k rows reach it: then whatever it kept out is worse than all of them. Otherwise the query is done again
 * row by row, which takes no guess. */
static void finish_query(const batch *b, batch_worker *w, size_t block, size_t q)
{
        const dci_flat *flat = b->flat;
        const bool descending = dci_metric_descending(flat->metric);
        batch_list *list = &w->lists[q];
        const uint64_t *keys = w->keys;
        if (list->n > b->k)
                cut_list(b, w, list);
        size_t n = settle(b, w, block + q, list);
        float kth = n == b->k ? dci_topk_score(w->keys[n - 1], descending) : 0.0f;
        if (n < b->k || (descending ? kth : -kth) < w->guess[q]) {
                dci_topk topk;
                dci_topk_init(&topk, flat->kernels, flat->ids, b->k, descending, w->topk);
                dci_flat_scan(flat, block + q, 1, 0, flat->n, &topk);
                w->scored += flat->n;
                n = dci_topk_finish(&topk);
                keys = topk.keys;
        }
        dci_flat_emit(flat, block + q, keys, n, b->k, b->out_ids, b->out_scores);
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
        if (b->integers != NULL && b->integers->begin != NULL)
                b->integers->begin();
        if (b->n_sample > 0)
                guess_limits(b, w, block, n_queries);
        scan_rows(b, w, block, n_queries);
        if (b->amx != NULL)
                b->amx->end();
        if (b->integers != NULL && b->integers->end != NULL)
                b->integers->end();
        for (size_t q = 0; q < n_queries; q++)
                finish_query(b, w, block, q);
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

/* --- the centre ------------------------------------------------------------------------------------------------------------ */

/* Rows that say where the centre is, and how far the origin must be from it, in squares of their deviation: bounds grow with the
 * distance, so that nothing is ruled out far away. */
#define CENTRE_ROWS 64
#define FAR 16.0

static dci_status find_centre(batch *b)
{
        const dci_flat *flat = b->flat;
        const size_t dim = flat->view.rows->dim, step = flat->n / CENTRE_ROWS;
        if (flat->metric != DCI_METRIC_L2 || b->integers != NULL)
                return DCI_OK;
        double *sums = dci_calloc(flat->context, dim, sizeof *sums), square = 0.0, far = 0.0;
        float *centre = dci_alloc(flat->context, dim, sizeof *centre);
        for (size_t i = 0; sums != NULL && centre != NULL && i < CENTRE_ROWS; i++) {
                const int32_t slot = flat->selection->all ? (int32_t)(i * step) : flat->selection->slots[i * step];
                const void *row;
                dci_view_pointers(&flat->view, 0, &slot, 1, &row);
                flat->kernels->to_f32[flat->view.rows->dtype - 1](row, dim, centre);
                for (size_t p = 0; p < dim; p++) {
                        sums[p] += (double)centre[p];
                        square += (double)centre[p] * (double)centre[p];
                }
        }
        for (size_t p = 0; sums != NULL && centre != NULL && p < dim; p++) {
                const double mean = sums[p] / CENTRE_ROWS;
                centre[p] = (float)mean;
                far += mean * mean;
        }
        const bool wanted = far > FAR * (square / CENTRE_ROWS - far);
        const dci_status status = sums == NULL || centre == NULL ? DCI_ERR_MEMORY : DCI_OK;
        if (sums != NULL)
                dci_free(flat->context, sums, dim, sizeof *sums);
        if (centre != NULL && (status != DCI_OK || !wanted))
                dci_free(flat->context, centre, dim, sizeof *centre);
        b->centre = status == DCI_OK && wanted ? centre : NULL;
        return status;
}

static void free_centre(const batch *b)
{
        if (b->centre != NULL)
                dci_free(b->flat->context, b->centre, b->flat->view.rows->dim, sizeof *b->centre);
}

dci_status dci_flat_batch_search(const dci_flat *flat, size_t k, int64_t *out_ids, float *out_scores,
                                 dci_search_stats *stats)
{
        batch b = {.flat = flat, .k = k, .out_ids = out_ids, .out_scores = out_scores};
        size_t n_tasks, n_workers;
        if (flat->queries->n_fit == flat->queries->n && flat->view.rows->dim <= DCI_INTEGER_PART)
                b.integers = dci_integer_tiles_for(flat->context);
        b.amx = b.integers == NULL ? dci_amx_for(flat->context) : NULL;
        const size_t padding = b.integers != NULL ? b.integers->padding : 32;
        b.dim_padded = (flat->view.rows->dim + padding - 1) / padding * padding;
        plan_sample(&b);
        b.capacity = k + (k < 64 ? 128 : 2 * k);
        plan(&b, &n_tasks, &n_workers);
        DCI_TRY(find_centre(&b));
        dci_status status = dci_batch_workers_create(&b, n_workers);
        if (status != DCI_OK) {
                free_centre(&b);
                return status;
        }
        status = dci_flat_run(flat, n_tasks, n_workers, search_block, &b);
        for (size_t i = 0; i < n_workers; i++)
                stats->distances += b.workers[i].scored;
        dci_batch_workers_destroy(&b);
        free_centre(&b);
        stats->queries = flat->queries->n;
        stats->visited = stats->proposed = stats->candidates = (uint64_t)flat->n * flat->queries->n;
        return status;
}
