/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Summaries and tails of candidates, and the transforms that their codes are made with. */
#include "core/internal.h"

#include <string.h>

#include "core/arena.h"
#include "kv/chunk.h"
#include "kv/geometry.h"
#include "kv/lookup.h"
#include "kv/memory.h"
#include "kv/stages/select.h"
#include "kv/stages/summary_codes.h"
#include "kv/summaries.h"
#include "kv/tree/tree.h"
#include "kv/worker.h"
#include "sketch/fit.h"

/* --- forming ------------------------------------------------------------------------------------------------------ */

/* The parts of an area of scratch. */
typedef struct forming {
        const void **keys, **values, **next_keys, **next_values;
        float *wide_keys, *wide_values;
        double *sum;
        unsigned char *stage, *moments, *query_moments, *fit;
} forming;

static size_t most(size_t a, size_t b)
{
        return a > b ? a : b;
}

static size_t lay_out(const dci_kv *kv, forming *f, void *memory)
{
        const dci_kv_stages *stages = kv->stages;
        const size_t summary = stages->summary.put_bytes != NULL ? stages->summary.put_bytes(kv) : 0;
        const size_t tail = stages->tail.put_bytes != NULL ? stages->tail.put_bytes(kv) : 0;
        const size_t pointers = DCI_KV_TILE * sizeof(void *), fits = kv->config.summary == DCI_KV_SUMMARY_LEARNED;
        const dci_arena_part parts[] = {{pointers, &f->keys},
                                        {pointers, &f->values},
                                        {pointers, &f->next_keys},
                                        {pointers, &f->next_values},
                                        {DCI_KV_TILE * kv->dim_k * sizeof(float), &f->wide_keys},
                                        {DCI_KV_TILE * kv->dim_v * sizeof(float), &f->wide_values},
                                        {most(kv->dim_k, kv->dim_v) * (sizeof(double) + sizeof(float)), &f->sum},
                                        {most(most(summary, tail), dci_kv_tree_scratch_bytes(kv)), &f->stage},
                                        {fits * dci_moments_bytes(kv->dim_k), &f->moments},
                                        {fits * dci_moments_bytes(kv->dim_k), &f->query_moments},
                                        {fits * dci_fit_scratch_bytes(kv->dim_k), &f->fit}};
        return DCI_ARENA(parts, memory);
}

static forming parts_of(const dci_kv *kv, void *scratch)
{
        forming f;
        lay_out(kv, &f, scratch);
        return f;
}

size_t dci_kv_build_bytes(const dci_kv *kv)
{
        forming f;
        return lay_out(kv, &f, NULL);
}

dci_status dci_kv_build_ready(dci_kv *kv)
{
        if (kv->building.memory != NULL)
                return DCI_OK;
        const size_t n_threads = (size_t)atomic_load(&kv->context->n_threads), n_bytes = dci_kv_build_bytes(kv),
                     wanted = n_threads < DCI_KV_SCRATCH / n_bytes ? n_threads : DCI_KV_SCRATCH / n_bytes;
        dci_kv_scratch scratch;
        DCI_TRY(dci_kv_alloc_areas(kv, most(wanted, 2), n_bytes, &scratch)); /* 2: one is not a worker's */
        const dci_status status = dci_kv_areas_init(kv, scratch.n_areas);
        if (status == DCI_OK)
                kv->building = scratch;
        else
                dci_kv_free(kv, scratch.memory, scratch.n_areas * scratch.area_bytes);
        return status;
}

/* Iterates over candidates tile by tile. Pages are scattered, which no hardware prefetcher foresees, so the rows of the next tile are found
 * and prefetched before those of this one are used. */
typedef struct walk {
        dci_kv *kv;
        const dci_kv_layer *layer;
        size_t head;
        size_t n, n_rows; /* candidates, and how many of them, evenly spread, are visited: numbers [at, end) of these */
        size_t at, end, tile;
        size_t here, n_next; /* rows of this tile and of the next one */
        forming *f;
} walk;

/* Finds the next tile's rows. Tables of blocks may grow meanwhile, hence the lock. */
static void find_next(walk *w, size_t at)
{
        const size_t sink = w->kv->config.sink, left = w->end - at, room = w->tile - at % w->tile;
        w->n_next = room < left ? room : left;
        if (w->n_next == 0)
                return;
        if (w->n == w->n_rows)
                dci_kv_rows_of(w->kv, w->layer, w->head, sink + at, w->n_next, w->f->next_keys, w->f->next_values);
        for (size_t i = 0; i < w->n_next && w->n > w->n_rows; i++)
                dci_kv_rows_of(w->kv, w->layer, w->head, sink + (at + i) * w->n / w->n_rows, 1, w->f->next_keys + i,
                               w->f->next_values + i);
}

/* A chunk is a multiple of a tile, and `first` of a page: no tile crosses a chunk if tiles begin at their multiples. */
static walk walk_from(dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t first, size_t end, size_t tile,
                      forming *f)
{
        walk w = {.kv = kv, .layer = layer, .head = head, .at = first, .end = end, .tile = tile, .f = f};
        find_next(&w, first);
        return w;
}

/* Moves to the next tile; false after the last. */
static bool walk_on(walk *w)
{
        const void **keys = w->f->keys, **values = w->f->values;
        w->at += w->here;
        w->here = w->n_next;
        w->f->keys = w->f->next_keys;
        w->f->values = w->f->next_values;
        w->f->next_keys = keys;
        w->f->next_values = values;
        if (w->here == 0)
                return false;
        find_next(w, w->at + w->here);
        return true;
}

static void ask_for(const void *const *rows, size_t n, size_t row_bytes)
{
        for (size_t i = 0; i < n; i++)
                for (size_t at = 0; at < row_bytes; at += DCI_CACHE_LINE)
                        DCI_PREFETCH((const unsigned char *)rows[i] + at);
}

/* Converts this tile, and prefetches the next row by row, since a CPU tracks only so many misses. */
static void to_f32(const walk *w, const void *const *rows, const void *const *next, size_t dim, float *out)
{
        const dci_kv *kv = w->kv;
        for (size_t i = 0; i < w->here; i++) {
                if (i < w->n_next)
                        ask_for(next + i, 1, dim * kv->es);
                kv->context->kernels->to_f32[kv->config.dtype - 1](rows[i], dim, out + i * dim);
        }
}

/* The mean of n candidates' keys or values, in a fixed order. */
static void mean_of(dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t n, bool of_keys, forming *f, float *out)
{
        const size_t dim = of_keys ? kv->dim_k : kv->dim_v;
        float *part = (float *)(void *)(f->sum + dim);
        memset(f->sum, 0, dim * sizeof *f->sum);
        for (walk w = walk_from(kv, layer, head, 0, n, DCI_KV_TILE, f); walk_on(&w);) {
                ask_for(of_keys ? f->next_keys : f->next_values, w.n_next, dim * kv->es);
                memset(part, 0, dim * sizeof *part);
                kv->context->kernels->add_rows[kv->config.dtype - 1](of_keys ? f->keys : f->values, NULL, w.here, dim,
                                                                     part);
                for (size_t j = 0; j < dim; j++)
                        f->sum[j] += (double)part[j];
        }
        for (size_t j = 0; j < dim; j++)
                out[j] = (float)(f->sum[j] / (double)n);
}

/* At most DCI_FIT_ROWS candidates, evenly spread. */
static void look_at_keys(dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t n, forming *f, dci_moments *moments)
{
        const size_t n_rows = n < DCI_FIT_ROWS ? n : DCI_FIT_ROWS;
        walk w = {.kv = kv, .layer = layer, .head = head, .n = n, .n_rows = n_rows, .tile = DCI_KV_TILE, .f = f};
        w.end = n_rows;
        find_next(&w, 0);
        while (walk_on(&w)) {
                to_f32(&w, f->keys, f->next_keys, kv->dim_k, f->wide_keys);
                dci_moments_add(moments, f->wide_keys, kv->dim_k, w.here);
        }
}

/* Moments of queries: those that the transform keeps, else those of the observed queries, which it keeps from now on. */
static void look_at_queries(const dci_kv *kv, const dci_kv_layer *layer, size_t head, const forming *f,
                            dci_kv_transform *transform, dci_moments *moments)
{
        const size_t kept = dci_moments_kept_bytes(kv->dim_k);
        dci_moments_init(kv->context->kernels, kv->dim_k, f->query_moments, moments);
        if (transform->n_queries > 0) {
                memcpy(f->query_moments, dci_kv_transform_moments(transform, kv->dim_k), kept);
                moments->n = transform->n_queries;
                return;
        }
        const float *queries = layer->observed + head * layer->n_observed * kv->dim_k;
        for (size_t i = 0; i < layer->n_observed; i += DCI_MOMENT_ROWS) {
                const size_t left = layer->n_observed - i, here = left < DCI_MOMENT_ROWS ? left : DCI_MOMENT_ROWS;
                dci_moments_add(moments, queries + i * kv->dim_k, kv->dim_k, here);
        }
        dci_moments_finish(moments);
        memcpy(dci_kv_transform_moments(transform, kv->dim_k), f->query_moments, kept);
        transform->n_queries = moments->n;
}

/* A random transform of keys about this centre. */
static void begin_about(const dci_kv *kv, const float *centre, dci_kv_transform *transform)
{
        dci_coder_init(kv->context, DCI_CODER_ROTATED, kv->dim_k, kv->config.key_bits, kv->config.seed, centre,
                       dci_kv_transform_memory(transform), &transform->coder);
}

/* A random transform about the mean of the keys. */
static void begin_random(dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t n, forming *f,
                         dci_kv_transform *transform)
{
        mean_of(kv, layer, head, n, true, f, f->wide_keys);
        begin_about(kv, f->wide_keys, transform);
}

/* Keys and queries that cannot be fitted get a random transform in the same memory. */
static void begin_learned(dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t n, forming *f,
                          dci_kv_transform *transform)
{
        dci_moments keys, queries;
        look_at_queries(kv, layer, head, f, transform, &queries);
        dci_moments_init(kv->context->kernels, kv->dim_k, f->moments, &keys);
        look_at_keys(kv, layer, head, n, f, &keys);
        dci_coder_init_learned(kv->context, kv->dim_k, kv->config.key_bits, dci_kv_codes_alone(kv),
                               dci_kv_transform_memory(transform), &transform->coder);
        dci_may_fail(true);
        const dci_status status = dci_fit(&keys, &queries, f->fit, &transform->coder);
        dci_may_fail(false);
        if (status != DCI_OK)
                begin_random(kv, layer, head, n, f, transform);
}

void dci_kv_begin_values(const dci_kv *kv, const float *centre, dci_kv_transform *transform)
{
        dci_coder_init(kv->context, DCI_CODER_ROTATED, kv->dim_v, kv->config.value_bits, ~kv->config.seed, centre,
                       dci_kv_transform_memory(transform), &transform->coder);
}

dci_status dci_kv_set_centres(dci_kv *kv, dci_kv_layer *layer, const float *centres, const float *value_centres)
{
        dci_status status = dci_kv_lock(kv);
        if (status != DCI_OK)
                return status;
        for (size_t h = 0; h < kv->config.n_kv_heads && status == DCI_OK; h++)
                status = dci_kv_alloc_transforms(kv, layer, h, false);
        for (size_t h = 0; h < kv->config.n_kv_heads && status == DCI_OK; h++) {
                begin_about(kv, centres + h * kv->dim_k, layer->heads[h].keys);
                if (kv->stages->tail.values)
                        dci_kv_begin_values(kv, value_centres + h * kv->dim_v, layer->heads[h].values);
        }
        dci_kv_unlock(kv);
        return status;
}

/* --- codes -------------------------------------------------------------------------------------------------------- */

static void begin_keys(dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t n, forming *f)
{
        dci_kv_head *h = &layer->heads[head];
        if (h->keys == NULL)
                return;
        if (h->keys->coder.kind == DCI_CODER_LEARNED)
                begin_learned(kv, layer, head, n, f, h->keys);
        else if (h->keys->coder.dim == 0) /* else dci_kv_set_centres was here */
                begin_random(kv, layer, head, n, f, h->keys);
        h->sum_latest = h->sum_now = 0.0;
        h->n_latest = h->n_now = 0;
}

static void begin_values(dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t n, forming *f)
{
        dci_kv_head *h = &layer->heads[head];
        if (h->values->coder.dim != 0)
                return;
        mean_of(kv, layer, head, n, false, f, f->wide_values);
        dci_kv_begin_values(kv, f->wide_values, h->values);
}

/* Keeps the distortion of the prompt's codes, which later ones are compared with. */
static void end_keys(dci_kv_head *head)
{
        if (head->keys == NULL || head->n_now == 0)
                return;
        head->keys->distortion = head->sum_now / (double)head->n_now;
        head->sum_now = 0.0;
        head->n_now = 0;
}

/* Summaries, tails or both of one tile, in a chunk's memory of the head. */
static void put_tile(const walk *w, dci_kv_head *h, bool summary, bool tail, unsigned char *memory)
{
        const dci_kv *kv = w->kv;
        const dci_kv_stages *stages = kv->stages;
        const forming *f = w->f;
        const size_t at = w->at % DCI_KV_CHUNK;
        if (summary || !stages->tail.values)
                to_f32(w, f->keys, f->next_keys, kv->dim_k, f->wide_keys);
        if (summary)
                stages->summary.put(kv, h, memory, at, w->here, f->wide_keys, f->stage);
        if (tail) {
                to_f32(w, f->values, f->next_values, kv->dim_v, f->wide_values);
                stages->tail.put(kv, h, memory + kv->summary_bytes, at, w->here, f->wide_keys, f->wide_values,
                                 f->stage);
        }
}

/* Summaries, tails or both; a tail with a transform of values asks for no keys. */
static void form_some(dci_kv *kv, dci_kv_layer *layer, size_t head, size_t first, size_t end, bool summary, bool tail,
                      forming *f)
{
        dci_kv_head *h = &layer->heads[head];
        if (dci_kv_has_trees(kv)) {
                dci_kv_tree_build(kv, layer, head, first, end, f->stage);
                return;
        }
        /* Few rows at a time, so that they are prefetched while codes are made; but whole pages. */
        const size_t rows = most(DCI_CODE_ROWS, kv->config.page_tokens);
        summary = summary && kv->summary_bytes > 0;
        tail = tail && kv->tail_bytes > 0;
        if (!summary && !tail)
                return;
        for (walk w = walk_from(kv, layer, head, first, end, rows, f); walk_on(&w);) {
                unsigned char *memory = dci_kv_chunk_head(kv, layer, w.at / DCI_KV_CHUNK, head);
                if (w.at % DCI_KV_CHUNK == 0) /* scans read whole units, whatever has rows */
                        memset(memory + (summary ? 0 : kv->summary_bytes), 0,
                               (summary ? kv->summary_bytes : 0) + (tail ? kv->tail_bytes : 0));
                put_tile(&w, h, summary, tail, memory);
        }
}

void dci_kv_rebuild_chunk(dci_kv *kv, const dci_kv_layer *layer, size_t head, dci_kv_head *h, size_t chunk,
                          size_t n_candidates, unsigned char *memory, void *scratch)
{
        forming f = parts_of(kv, scratch);
        const size_t rows = most(DCI_CODE_ROWS, kv->config.page_tokens), first = chunk * DCI_KV_CHUNK;
        const size_t end = n_candidates - first < DCI_KV_CHUNK ? n_candidates : first + DCI_KV_CHUNK;
        for (walk w = walk_from(kv, layer, head, first, end, rows, &f); walk_on(&w);)
                put_tile(&w, h, kv->summary_bytes > 0, kv->tail_bytes > 0, memory);
}

void dci_kv_build(dci_kv *kv, dci_kv_layer *layer, size_t head, size_t first, size_t end, void *scratch)
{
        forming f = parts_of(kv, scratch);
        const bool apart = kv->stages->tail.values;
        form_some(kv, layer, head, first, end, true, !apart, &f);
        if (apart)
                form_some(kv, layer, head, first, end, false, true, &f);
}

void dci_kv_rebuild(dci_kv *kv, dci_kv_layer *layer, size_t head, size_t first, size_t end, void *scratch)
{
        forming f = parts_of(kv, scratch);
        const bool apart = kv->stages->tail.values;
        if (end == 0)
                return;
        begin_keys(kv, layer, head, end, &f);
        if (kv->config.select == DCI_KV_SELECT_OBSERVED)
                dci_kv_select_observed(kv, layer, head, end);
        form_some(kv, layer, head, first, end, true, !apart, &f);
        /* Keys first, then values: what is read twice may still be cached. */
        if (apart) {
                begin_values(kv, layer, head, end, &f);
                form_some(kv, layer, head, first, end, false, true, &f);
        }
        end_keys(&layer->heads[head]);
}

void dci_kv_reencode(dci_kv *kv, dci_kv_layer *layer, size_t head, size_t end, void *scratch)
{
        forming f = parts_of(kv, scratch);
        begin_keys(kv, layer, head, end, &f);
        form_some(kv, layer, head, 0, end, true, false, &f);
        end_keys(&layer->heads[head]);
}

void dci_kv_build_fit(dci_kv *kv, dci_kv_layer *layer, size_t head, size_t end, void *scratch)
{
        forming f = parts_of(kv, scratch);
        if (end < DCI_KV_CHUNK) {
                dci_kv_rebuild(kv, layer, head, 0, end, scratch);
                return;
        }
        begin_keys(kv, layer, head, end, &f);
        if (layer->heads[head].keys->coder.kind == DCI_CODER_LEARNED)
                return;
        form_some(kv, layer, head, 0, end, true, true, &f);
        end_keys(&layer->heads[head]);
}

void dci_kv_build_rest(dci_kv *kv, dci_kv_layer *layer, size_t head, size_t first, size_t end, const float *residuals,
                       void *scratch)
{
        forming f = parts_of(kv, scratch);
        if (residuals != NULL)
                dci_kv_watch_codes(&layer->heads[head], first, residuals);
        form_some(kv, layer, head, first, end, true, true, &f);
        end_keys(&layer->heads[head]);
}
