/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Second stage: each key as low-bit codes and a scale (sketch/coder.h). Of a head in a chunk:
 *
 *      blocks of DCI_CODE_ROWS rows, block_bytes apart; DCI_KV_CHUNK scales as bf16, which is right to 0.2 % and never out of range
 *
 * and with `preselect` the same once more of rows that are the mean keys of preselect_tokens tokens each, in the frame of the keys. Means
 * say which units of DCI_CODE_UNIT tokens are worth a look; codes of those alone are read.
 */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "kv/chunk.h"
#include "kv/geometry.h"
#include "kv/stages/rank.h"
#include "kv/stages/summary_codes.h"
#include "kv/transform.h"
#include "simd/convert.h"
#include "simd/topk.h"
#include "sketch/frames.h"

#define CHUNK_BLOCKS (DCI_KV_CHUNK / DCI_CODE_ROWS)
#define UNITS_OF_BLOCK (DCI_CODE_ROWS / DCI_CODE_UNIT)
#define SPAN DCI_KV_WATCHED_SPAN /* tokens whose distortion is averaged */
#define WATCHED DCI_KV_WATCHED   /* of a long prompt, one block of so many */
_Static_assert(CHUNK_BLOCKS % WATCHED == 0, "the same blocks are watched in every chunk");

static size_t block_bytes(const dci_kv *kv)
{
        return dci_frames_block_bytes(kv->dim_k, kv->config.key_bits);
}

/* Of so many rows with their scales, a multiple of DCI_CODE_ROWS. */
static size_t table_bytes(const dci_kv *kv, size_t n_rows)
{
        return n_rows / DCI_CODE_ROWS * block_bytes(kv) + n_rows * sizeof(uint16_t);
}

/* Rows of a chunk's tables: tokens, or means. */
static size_t rows_of_table(const dci_kv *kv, bool of_means)
{
        return of_means ? DCI_KV_CHUNK / kv->config.preselect_tokens : DCI_KV_CHUNK;
}

static size_t bytes(const dci_kv *kv)
{
        return table_bytes(kv, DCI_KV_CHUNK) + (dci_kv_preselects(kv) ? table_bytes(kv, rows_of_table(kv, true)) : 0);
}

size_t dci_kv_preselected(const dci_kv_config *c)
{
        const double wanted = c->preselect * (double)(c->budget - dci_kv_counted(c));
        const double least = (double)c->preselect_least, tokens = wanted > least ? wanted : least;
        return c->preselect > 1.0 ? (size_t)ceil(tokens / (double)DCI_CODE_UNIT) : 0;
}

static size_t padded_dim(const dci_kv *kv)
{
        return (kv->dim_k + 31) / 32 * 32;
}

static size_t work_bytes(const dci_kv *kv)
{
        return dci_coder_scratch_bytes(kv->dim_k) + dci_lines(kv->group * padded_dim(kv)) +
               dci_lines(kv->group * sizeof(dci_coded_query)) +
               (dci_kv_preselects(kv) ? dci_topk_bytes(dci_kv_preselected(&kv->config) + 1) : 0);
}

/* Means that one call of `put` makes. */
static size_t means_bytes(const dci_kv *kv)
{
        return dci_kv_preselects(kv) ? DCI_KV_TILE / kv->config.preselect_tokens * kv->dim_k * sizeof(float) : 0;
}

static size_t put_bytes(const dci_kv *kv)
{
        return dci_lines(dci_coder_encode_bytes(kv->dim_k, false)) + means_bytes(kv);
}

static uint16_t *scales_of(const dci_kv *kv, unsigned char *chunk)
{
        return (uint16_t *)(void *)(chunk + CHUNK_BLOCKS * block_bytes(kv));
}

/* What rounding takes away is watched: of the first codes of a frame as a whole, and then of each SPAN tokens. With a learned transform
 * it takes time of its own, and of the first codes some blocks are enough once there are many. */
static bool is_watched(const dci_kv_head *head, size_t block)
{
        return head->keys->coder.kind != DCI_CODER_LEARNED || head->keys->distortion >= 0.0 || head->n_now < SPAN ||
               block % WATCHED == 0;
}

static void watch(dci_kv_head *head, float residual)
{
        head->sum_now += (double)residual * (double)residual;
        if (++head->n_now < SPAN || head->keys->distortion < 0.0)
                return;
        head->sum_latest = head->sum_now;
        head->n_latest = head->n_now;
        head->sum_now = 0.0;
        head->n_now = 0;
}

void dci_kv_watch_codes(dci_kv_head *head, size_t n, const float *residuals)
{
        for (size_t block = 0; block < n / DCI_CODE_ROWS; block++)
                if (is_watched(head, block % CHUNK_BLOCKS))
                        for (size_t i = 0; i < DCI_CODE_ROWS; i++)
                                watch(head, *residuals++);
}

/* Mean keys of n tokens, which are whole groups but for the last ones of a prompt, and in one block. */
static void put_means(const dci_kv *kv, const dci_kv_head *head, unsigned char *chunk, size_t first, size_t n,
                      const float *keys, unsigned char *scratch)
{
        const size_t per = kv->config.preselect_tokens, block = first / per / DCI_CODE_ROWS;
        unsigned char *table = chunk + table_bytes(kv, DCI_KV_CHUNK);
        uint16_t *scales = (uint16_t *)(void *)(table + rows_of_table(kv, true) / DCI_CODE_ROWS * block_bytes(kv));
        float *means = (float *)(void *)(scratch + dci_lines(dci_coder_encode_bytes(kv->dim_k, false)));
        const float *rows[DCI_CODE_ROWS] = {NULL};
        dci_coded_row coded[DCI_CODE_ROWS];
        for (size_t i = 0; i < n; i += per) {
                float *mean = means + i / per * kv->dim_k;
                dci_kv_mean_row(keys + i * kv->dim_k, n - i < per ? n - i : per, kv->dim_k, mean);
                rows[(first + i) / per % DCI_CODE_ROWS] = mean;
        }
        dci_coder_encode_only(&head->keys->coder, rows, scratch, table + block * block_bytes(kv), coded);
        for (size_t i = 0; i < n; i += per)
                scales[(first + i) / per] = dci_float_to_bf16(coded[(first + i) / per % DCI_CODE_ROWS].scale);
}

static void put(const dci_kv *kv, dci_kv_head *head, unsigned char *chunk, size_t first, size_t n, const float *keys,
                void *scratch)
{
        const dci_coder *coder = &head->keys->coder;
        uint16_t *scales = scales_of(kv, chunk);
        for (size_t at = first, end; at < first + n; at = end) {
                const float *rows[DCI_CODE_ROWS] = {NULL};
                dci_coded_row coded[DCI_CODE_ROWS];
                const size_t block = at / DCI_CODE_ROWS;
                end = (block + 1) * DCI_CODE_ROWS < first + n ? (block + 1) * DCI_CODE_ROWS : first + n;
                for (size_t i = at; i < end; i++)
                        rows[i % DCI_CODE_ROWS] = keys + (i - first) * kv->dim_k;
                const bool watched = is_watched(head, block);
                (watched ? dci_coder_encode : dci_coder_encode_only)(coder, rows, scratch,
                                                                     chunk + block * block_bytes(kv), coded);
                for (size_t i = at; i < end; i++) {
                        scales[i] = dci_float_to_bf16(coded[i % DCI_CODE_ROWS].scale);
                        if (watched)
                                watch(head, coded[i % DCI_CODE_ROWS].residual);
                }
        }
        if (dci_kv_preselects(kv))
                put_means(kv, head, chunk, first, n, keys, scratch);
}

/* Up to DCI_SCAN_UNITS units of one chunk against up to DCI_CODE_QUERIES queries from number q on. */
typedef struct scanning {
        dci_kv_query *ask;
        const dci_coder *coder;
        const int8_t *query_bytes;
        const dci_coded_query *coded;
} scanning;

static void scan_lines(const scanning *s, const unsigned char *const *lines, size_t n_units, const float *scales,
                       size_t n, size_t q, size_t n_queries, size_t first)
{
        int32_t sums[DCI_CODE_QUERIES * DCI_SCAN_ROWS];
        s->coder->reader->sums(&s->coder->layout, lines, n_units, s->query_bytes + q * s->coder->layout.n_all,
                               n_queries, sums, DCI_SCAN_ROWS);
        for (size_t i = 0; i < n_queries; i++) {
                const dci_coded_query *coded = &s->coded[q + i];
                s->coder->reader->estimate(sums + i * DCI_SCAN_ROWS, scales, n, coded->half_step, coded->twice_bias,
                                           coded->fixed, s->ask->scores + (q + i) * s->ask->ld + first);
        }
}

static void scan_units(const scanning *s, unsigned char *chunk, size_t unit, size_t n_units, size_t q, size_t n_queries,
                       size_t first)
{
        const dci_kv *kv = s->ask->kv;
        const unsigned char *lines[DCI_SCAN_UNITS];
        float scales[DCI_SCAN_ROWS];
        const size_t apart = block_bytes(kv), left = s->ask->n_candidates - first;
        const size_t n = n_units * DCI_CODE_UNIT < left ? n_units * DCI_CODE_UNIT : left;
        for (size_t u = 0; u < n_units; u++)
                lines[u] = dci_code_unit(chunk + (unit + u) / UNITS_OF_BLOCK * apart, (unit + u) % UNITS_OF_BLOCK);
        kv->context->kernels->to_f32[DCI_BF16 - 1](scales_of(kv, chunk) + unit * DCI_CODE_UNIT, n, scales);
        scan_lines(s, lines, n_units, scales, n, q, n_queries, first);
}

/* Mixed widths are read in passes over many blocks, which no prefetcher foresees: the next ones are asked for beforehand. */
static void fetch_ahead(const dci_kv_query *ask, size_t candidate)
{
        const dci_kv *kv = ask->kv;
        if (candidate >= ask->n_candidates)
                return;
        const unsigned char *chunk = dci_kv_chunk_head(kv, ask->layer, candidate / DCI_KV_CHUNK, ask->head);
        const size_t apart = block_bytes(kv);
        const unsigned char *at = chunk + candidate % DCI_KV_CHUNK / DCI_CODE_ROWS * apart;
        for (size_t i = 0; i < DCI_SCAN_ROWS / DCI_CODE_ROWS * apart; i += DCI_CACHE_LINE)
                DCI_PREFETCH(at + i);
}

/* One of the two tables, in every chunk; units of it by number. */
typedef struct table {
        const dci_kv_query *ask;
        size_t at, apart, scales_at, per_chunk; /* bytes into a chunk; of a block; bytes to the scales; units */
} table;

static table table_of(const dci_kv_query *ask, bool of_means)
{
        const size_t n_rows = rows_of_table(ask->kv, of_means), apart = block_bytes(ask->kv);
        return (table){.ask = ask,
                       .at = of_means ? table_bytes(ask->kv, DCI_KV_CHUNK) : 0,
                       .apart = apart,
                       .scales_at = n_rows / DCI_CODE_ROWS * apart,
                       .per_chunk = n_rows / DCI_CODE_UNIT};
}

/* A unit's codes, and its scales. */
static const unsigned char *place_of(const table *t, size_t unit, const uint16_t **out_scales)
{
        const size_t at = unit % t->per_chunk;
        const unsigned char *memory =
                dci_kv_chunk_head(t->ask->kv, t->ask->layer, unit / t->per_chunk, t->ask->head) + t->at;
        *out_scales = (const uint16_t *)(const void *)(memory + t->scales_at) + at * DCI_CODE_UNIT;
        return dci_code_unit(memory + at / UNITS_OF_BLOCK * t->apart, at % UNITS_OF_BLOCK);
}

/* Lines of a block belong to its units in turns. */
static void ask_for_unit(const table *t, size_t unit)
{
        const uint16_t *scales;
        const unsigned char *at = place_of(t, unit, &scales);
        DCI_PREFETCH(scales);
        for (size_t i = 0; i < t->apart; i += UNITS_OF_BLOCK * DCI_CODE_LINE)
                DCI_PREFETCH(at + i);
}

/* Scores of n rows of some units (NULL: the first ones), contiguous. */
static void scan_some(const scanning *s, bool of_means, const int32_t *units, size_t n_units, size_t n)
{
        const dci_kv *kv = s->ask->kv;
        const table t = table_of(s->ask, of_means);
        for (size_t u = 0, here; u < n_units; u += here) {
                const unsigned char *lines[DCI_SCAN_UNITS];
                float scales[DCI_SCAN_ROWS];
                const size_t left = n_units - u, rows_left = n - u * DCI_CODE_UNIT;
                here = left < DCI_SCAN_UNITS ? left : DCI_SCAN_UNITS;
                for (size_t i = 0; i < here; i++) {
                        const uint16_t *from;
                        lines[i] = place_of(&t, units != NULL ? (size_t)units[u + i] : u + i, &from);
                        kv->context->kernels->to_f32[DCI_BF16 - 1](from, DCI_CODE_UNIT, scales + i * DCI_CODE_UNIT);
                        if (u + here + i < n_units)
                                ask_for_unit(&t, units != NULL ? (size_t)units[u + here + i] : u + here + i);
                }
                const size_t rows = here * DCI_CODE_UNIT < rows_left ? here * DCI_CODE_UNIT : rows_left;
                for (size_t q = 0; q < kv->group; q += DCI_CODE_QUERIES)
                        scan_lines(s, lines, here, scales, rows, q,
                                   kv->group - q < DCI_CODE_QUERIES ? kv->group - q : DCI_CODE_QUERIES,
                                   u * DCI_CODE_UNIT);
        }
}

/* What units count: the sum over the heads of the softmax of the means in them. */
static void weigh_units(dci_kv_query *ask, size_t n_groups, size_t n_units)
{
        const dci_kv *kv = ask->kv;
        const size_t per_unit = DCI_CODE_UNIT / kv->config.preselect_tokens;
        float weights[DCI_KV_MAX_GROUP];
        for (size_t q = 0; q < kv->group; q++)
                weights[q] = 1.0f / dci_kv_soften(ask, q, n_groups);
        kv->context->kernels->weigh(ask->scores, ask->ld, kv->group, weights, n_groups, ask->relevance);
        for (size_t u = 0; u < n_units; u++) {
                float sum = 0.0f;
                for (size_t g = u * per_unit; g < (u + 1) * per_unit && g < n_groups; g++)
                        sum += ask->relevance[g];
                ask->relevance[u] = sum;
        }
}

/* The best units, ascending; returns how many. memory: for the selection. */
static size_t best_units(dci_kv_query *ask, size_t n_units, size_t wanted, void *memory)
{
        dci_topk topk;
        dci_topk_init(&topk, ask->kv->context->kernels, (dci_slot_ids){NULL, NULL}, wanted, true, memory);
        dci_topk_add_all(&topk, ask->relevance, n_units, NULL);
        const size_t n = dci_topk_gather(&topk);
        memcpy(ask->units, topk.slots, n * sizeof *ask->units);
        return n;
}

/* Scores of the candidates in the best units alone. How many units does not depend on the room that a plan has: lists that are kept are
 * chosen for more. false: scores of means overflow, and so no unit is the best. */
static bool rank_some(const scanning *s, void *memory)
{
        dci_kv_query *ask = s->ask;
        const size_t per = ask->kv->config.preselect_tokens, n = ask->n_candidates;
        const size_t n_groups = (n + per - 1) / per, n_units = (n + DCI_CODE_UNIT - 1) / DCI_CODE_UNIT;
        scan_some(s, true, NULL, (n_groups + DCI_CODE_UNIT - 1) / DCI_CODE_UNIT, n_groups);
        weigh_units(ask, n_groups, n_units);
        size_t n_best = best_units(ask, n_units, dci_kv_preselected(&ask->kv->config), memory);
        if (n_best == 0)
                return false;
        const size_t lacking = n_units * DCI_CODE_UNIT - n; /* the last unit need not be full */
        bool last = (size_t)ask->units[n_best - 1] == n_units - 1;
        if (last &&
            n_best * DCI_CODE_UNIT - lacking < dci_kv_max_room(ask->kv)) { /* one more: lists would be too short */
                n_best = best_units(ask, n_units, n_best + 1, memory);
                last = (size_t)ask->units[n_best - 1] == n_units - 1;
        }
        ask->unit_tokens = DCI_CODE_UNIT;
        ask->n_scored = n_best * DCI_CODE_UNIT - (last ? lacking : 0);
        scan_some(s, false, ask->units, n_best, ask->n_scored);
        return true;
}

static void rank(dci_kv_query *ask)
{
        const dci_kv *kv = ask->kv;
        const dci_coder *coder = &ask->layer->heads[ask->head].keys->coder;
        unsigned char *at = ask->work + dci_coder_scratch_bytes(kv->dim_k);
        int8_t *query_bytes = (int8_t *)at;
        dci_coded_query *coded = (dci_coded_query *)(void *)(at + dci_lines(kv->group * padded_dim(kv)));
        const scanning s = {ask, coder, query_bytes, coded};
        for (size_t q = 0; q < kv->group; q++)
                dci_coder_query(coder, ask->queries + q * kv->dim_k, ask->work, query_bytes + q * coder->layout.n_all,
                                &coded[q]);
        if (dci_kv_preselects(kv) && dci_kv_preselected(&kv->config) * DCI_CODE_UNIT < ask->n_candidates &&
            rank_some(&s, at + dci_lines(kv->group * padded_dim(kv)) + dci_lines(kv->group * sizeof *coded)))
                return;
        for (size_t i = 0; i < ask->n_candidates; i += DCI_SCAN_ROWS) {
                unsigned char *chunk = dci_kv_chunk_head(kv, ask->layer, i / DCI_KV_CHUNK, ask->head);
                const size_t left = ask->n_candidates - i;
                fetch_ahead(ask, i + DCI_SCAN_ROWS);
                const size_t units = left < DCI_SCAN_ROWS ? (left + DCI_CODE_UNIT - 1) / DCI_CODE_UNIT : DCI_SCAN_UNITS;
                for (size_t q = 0; q < kv->group; q += DCI_CODE_QUERIES)
                        scan_units(&s, chunk, i % DCI_KV_CHUNK / DCI_CODE_UNIT, units, q,
                                   kv->group - q < DCI_CODE_QUERIES ? kv->group - q : DCI_CODE_QUERIES, i);
        }
}

#define CODES(name, of, coder)                                                                                         \
        const dci_kv_summary name = {.kind = (of),                                                                     \
                                     .frame = (coder),                                                                 \
                                     .bytes = bytes,                                                                   \
                                     .work_bytes = work_bytes,                                                         \
                                     .put_bytes = put_bytes,                                                           \
                                     .put = put,                                                                       \
                                     .rank = rank}

CODES(dci_kv_summary_codes, DCI_KV_SUMMARY_CODES, DCI_CODER_ROTATED);
CODES(dci_kv_summary_learned, DCI_KV_SUMMARY_LEARNED, DCI_CODER_LEARNED);
