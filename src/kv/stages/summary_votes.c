/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Second stage: votes of blocks, then 4-bit codes (ParisKV; docs/presets.md). A key is rotated at random (sketch/rotate.h) and cut into
 * blocks of eight coordinates; the rotation depends on the seed alone, so codes never change. Of a head in a chunk:
 *
 *      votes     [block][token]   a byte: bit j is set where coordinate j is not negative
 *      records   [token]          [block] 4 bytes: a nibble per coordinate, its sign and one of eight levels of its share in the block's
 *                                 length; then [block] a weight as bf16, which makes the estimate along the block itself exact
 *
 * A code of a block votes for its tokens by its rank among the block's 256 codes. The candidates with most votes have estimates, and
 * `select` takes it from there.
 */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "core/arena.h"
#include "core/file.h"
#include "kv/chunk.h"
#include "kv/geometry.h"
#include "kv/memory.h"
#include "kv/stages/rank.h"
#include "kv/stages/summary_votes.h"
#include "simd/convert.h"
#include "sketch/rotate.h"
#include "sketch/votes.h"

#define BLOCK ((size_t)DCI_VOTE_BLOCK)
#define CODES ((size_t)DCI_VOTE_CODES)
#define TIERS ((size_t)DCI_VOTE_TIERS)
#define MAX_VOTES (TIERS * DCI_KV_MAX_DIM / BLOCK)

/* --- layout ------------------------------------------------------------------------------------------------------- */

static size_t blocks_of(const dci_kv *kv)
{
        return dci_kv_vote_blocks(kv->dim_k);
}

static size_t padded_dim(const dci_kv *kv)
{
        return blocks_of(kv) * BLOCK;
}

static size_t record_bytes(const dci_kv *kv)
{
        return blocks_of(kv) * (BLOCK / 2 + sizeof(uint16_t));
}

static size_t bytes(const dci_kv *kv)
{
        return DCI_KV_CHUNK * (blocks_of(kv) + record_bytes(kv));
}

static unsigned char *record_of(const dci_kv *kv, unsigned char *chunk, size_t token)
{
        return chunk + DCI_KV_CHUNK * blocks_of(kv) + token * record_bytes(kv);
}

size_t dci_kv_vote_counts_bytes(const dci_kv *kv)
{
        return dci_kv_votes(kv) ? blocks_of(kv) * CODES * sizeof(uint32_t) : 0;
}

/* --- shares ------------------------------------------------------------------------------------------------------- */

static double vote_share(const dci_kv_config *c, size_t n)
{
        return c->vote_share > 0.0 ? c->vote_share : DCI_VOTE_SHARE(n);
}

size_t dci_kv_voted(const dci_kv_config *c, size_t n)
{
        const size_t list = c->budget - dci_kv_counted(c);
        int32_t voted;
        DCI_VOTED(voted, (int32_t)n, c->candidate_share, (int32_t)list);
        return (size_t)voted;
}

/* --- the rotation ------------------------------------------------------------------------------------------------- */

dci_status dci_kv_vote_draw_signs(dci_kv *kv)
{
        dci_rng rng;
        if (!dci_kv_votes(kv))
                return DCI_OK;
        DCI_TRY(dci_kv_alloc(kv, dci_rotation_bytes(kv->dim_k), (void **)&kv->vote_rotation.signs));
        dci_rng_seed(&rng, kv->config.seed);
        dci_rotation_init(&rng, kv->dim_k, kv->vote_rotation.signs, &kv->vote_rotation);
        return DCI_OK;
}

void dci_kv_vote_free_signs(dci_kv *kv)
{
        dci_kv_free(kv, kv->vote_rotation.signs, dci_kv_votes(kv) ? dci_rotation_bytes(kv->dim_k) : 0);
}

/* A row rotated, with zeros up to whole blocks. spare: dim_k floats. */
static void rotate(const dci_kv *kv, const float *row, float *out, float *spare)
{
        memset(out + kv->dim_k, 0, (padded_dim(kv) - kv->dim_k) * sizeof *out);
        if (out != row)
                memcpy(out, row, kv->dim_k * sizeof *out);
        dci_rotate(&kv->vote_rotation, out, spare);
}

/* --- codes of keys ------------------------------------------------------------------------------------------------ */

static const float bounds[] = DCI_VOTE_BOUNDS;
static const float levels[] = DCI_VOTE_LEVELS;

/* One block of a rotated key: its votes' code, four bytes of its record, and its weight in units of the row. */
static uint8_t encode_block(const float *y, unsigned char *out, float *out_weight)
{
        float square = 0.0f, match = 0.0f;
        uint32_t code = 0, packed = 0;
        for (size_t j = 0; j < BLOCK; j++)
                square += y[j] * y[j];
        const float length = sqrtf(square);
        for (size_t j = 0; j < BLOCK; j++) {
                const float size = length > 0.0f ? fabsf(y[j]) / length : 0.0f;
                uint32_t level = 0;
                for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
                        level += size >= bounds[i];
                match += levels[level] * size;
                packed |= (level | (y[j] < 0.0f ? DCI_VOTE_NEGATIVE : 0u)) << (4 * j);
                code |= (uint32_t)(y[j] >= 0.0f) << j;
        }
        dci_store_le32(out, packed);
        *out_weight = length / (match > DCI_VOTE_LEAST_MATCH ? match : DCI_VOTE_LEAST_MATCH);
        return (uint8_t)code;
}

static size_t put_bytes(const dci_kv *kv)
{
        return (2 * padded_dim(kv) + kv->dim_k) * sizeof(float);
}

/* In units of its greatest coordinate a row's squares neither overflow nor vanish. */
static void put_row(const dci_kv *kv, unsigned char *chunk, size_t token, const float *key, float *scratch)
{
        const size_t n_blocks = blocks_of(kv), dim = kv->dim_k;
        float *y = scratch, *spare = scratch + padded_dim(kv), most = 0.0f;
        unsigned char *record = record_of(kv, chunk, token);
        for (size_t j = 0; j < dim; j++)
                most = fabsf(key[j]) > most ? fabsf(key[j]) : most;
        for (size_t j = 0; j < dim; j++)
                y[j] = most > 0.0f ? key[j] / most : 0.0f;
        rotate(kv, y, y, spare);
        for (size_t b = 0; b < n_blocks; b++) {
                float weight;
                chunk[b * DCI_KV_CHUNK + token] = encode_block(y + b * BLOCK, record + b * BLOCK / 2, &weight);
                const uint16_t narrow = dci_float_to_bf16(weight * most);
                memcpy(record + n_blocks * BLOCK / 2 + b * sizeof narrow, &narrow, sizeof narrow);
        }
}

static void put(const dci_kv *kv, dci_kv_head *head, unsigned char *chunk, size_t first, size_t n, const float *keys,
                void *scratch)
{
        (void)head;
        for (size_t i = 0; i < n; i++)
                put_row(kv, chunk, first + i, keys + i * kv->dim_k, scratch);
}

/* --- votes -------------------------------------------------------------------------------------------------------- */

/* A code of a block, and the product of a query with its signs. */
typedef struct ranked_code {
        float score;
        uint32_t code;
} ranked_code;

static bool is_better(ranked_code a, ranked_code b)
{
        return a.score > b.score || (a.score == b.score && a.code < b.code);
}

/* All 256 codes, best first, equal ones by number. One coordinate after the other, those with a plus and those with a minus are merged: an
 * addition keeps their order, but where it rounds different scores to the same one. */
static void rank_codes(const float *q, ranked_code *out)
{
        ranked_code half[CODES / 2];
        size_t n = 1;
        out[0] = (ranked_code){0.0f, 0};
        for (size_t j = 0; j < BLOCK; j++, n *= 2) {
                size_t plus = 0, minus = 0;
                memcpy(half, out, n * sizeof *half);
                for (size_t i = 0; i < 2 * n; i++) {
                        const ranked_code a = {half[plus < n ? plus : 0].score + q[j],
                                               half[plus < n ? plus : 0].code | 1u << j},
                                          b = {half[minus < n ? minus : 0].score - q[j],
                                               half[minus < n ? minus : 0].code};
                        const bool first = minus == n || (plus < n && is_better(a, b));
                        out[i] = first ? a : b;
                        plus += first;
                        minus += !first;
                }
        }
        for (size_t i = 1; i < CODES; i++) {
                const ranked_code code = out[i];
                size_t at = i;
                for (; at > 0 && is_better(code, out[at - 1]); at--)
                        out[at] = out[at - 1];
                out[at] = code;
        }
}

/* By code of one block, how many votes it gives: one for each tier that it is in, which has the best codes until they have so many tokens,
 * the last one whole. */
static void fill_table(const float *q, const uint32_t *counts, const size_t *tiers, uint8_t *table)
{
        ranked_code ranked[CODES];
        size_t before = 0, t = 0;
        rank_codes(q, ranked);
        for (size_t i = 0; i < CODES; i++) {
                while (t < TIERS && before >= tiers[t])
                        t++;
                table[ranked[i].code] = (uint8_t)(TIERS - t);
                before += counts[ranked[i].code];
        }
}

/* Brings a head's counts of codes to its first n candidates. */
static void count_codes(const dci_kv *kv, const dci_kv_layer *layer, size_t h, size_t n)
{
        dci_kv_head *head = &layer->heads[h];
        const size_t before = head->n_counted, n_blocks = blocks_of(kv);
        const size_t begin = n < before ? n : before, end = n < before ? before : n;
        const uint32_t one = n < before ? UINT32_MAX : 1; /* modulo 2^32 */
        for (size_t at = begin, here; at < end; at += here) {
                const size_t first = at % DCI_KV_CHUNK, left = end - at;
                const uint8_t *codes = dci_kv_chunk_head(kv, layer, at / DCI_KV_CHUNK, h) + first;
                here = left < DCI_KV_CHUNK - first ? left : DCI_KV_CHUNK - first;
                for (size_t b = 0; b < n_blocks; b++, codes += DCI_KV_CHUNK)
                        for (size_t i = 0; i < here; i++)
                                head->vote_counts[b * CODES + codes[i]] += one;
        }
        head->n_counted = n;
}

void dci_kv_vote_truncate(const dci_kv *kv, dci_kv_layer *layer, size_t n)
{
        for (size_t h = 0; h < kv->config.n_kv_heads && dci_kv_votes(kv); h++)
                count_codes(kv, layer, h, n < layer->heads[h].n_counted ? n : layer->heads[h].n_counted);
}

/* What a plan of one head works with. */
typedef struct voting {
        float *queries; /* group x padded_dim, rotated */
        float *mean;    /* padded_dim */
        float *rows;    /* DCI_KV_TILE x padded_dim; before that dim_k to rotate with */
        uint8_t *tables;
} voting;

static size_t place(const dci_kv *kv, voting *v, void *memory)
{
        const size_t row = padded_dim(kv) * sizeof(float);
        const dci_arena_part parts[] = {{kv->group * row, &v->queries},
                                        {row, &v->mean},
                                        {DCI_KV_TILE * row, &v->rows},
                                        {blocks_of(kv) * CODES, &v->tables}};
        return DCI_ARENA(parts, memory);
}

static size_t work_bytes(const dci_kv *kv)
{
        voting v;
        return place(kv, &v, NULL);
}

/* The mean query of the group votes. */
static void fill_tables(const dci_kv_query *ask, const voting *v)
{
        static const double ratios[TIERS] = DCI_VOTE_RATIOS;
        const dci_kv *kv = ask->kv;
        const size_t dim = padded_dim(kv), n = ask->n_candidates;
        const double tokens = vote_share(&kv->config, n) * (double)n;
        const dci_kv_head *head = &ask->layer->heads[ask->head];
        size_t tiers[TIERS];
        for (size_t t = 0; t < TIERS; t++)
                tiers[t] = (size_t)ceil(tokens * ratios[t]);
        dci_kv_mean_row(v->queries, kv->group, dim, v->mean);
        for (size_t b = 0; b < blocks_of(kv); b++)
                fill_table(v->mean + b * BLOCK, head->vote_counts + b * CODES, tiers, v->tables + b * CODES);
}

/* The `wanted` candidates with most votes, equal ones by number, ascending. votes: by candidate, as they were counted. */
static void take_most(const uint16_t *votes, size_t n, size_t wanted, int32_t *out)
{
        size_t having[MAX_VOTES + 1] = {0}, above = 0, least = MAX_VOTES;
        for (size_t i = 0; i < n; i++)
                having[votes[i]]++;
        for (; above + having[least] < wanted; least--)
                above += having[least];
        size_t equal = wanted - above, taken = 0;
        for (size_t i = 0; i < n && taken < wanted; i++) {
                const bool more = votes[i] > least, some = votes[i] == least && equal > 0;
                out[taken] = (int32_t)i;
                taken += more || some;
                equal -= some;
        }
}

/* Candidates by their votes, to `units`, one each. */
static void vote(dci_kv_query *ask, const voting *v, size_t wanted)
{
        const dci_kv *kv = ask->kv;
        uint16_t *votes = (uint16_t *)(void *)ask->relevance;
        count_codes(kv, ask->layer, ask->head, ask->n_candidates);
        fill_tables(ask, v);
        for (size_t i = 0; i < ask->n_candidates; i += DCI_KV_CHUNK) {
                const size_t left = ask->n_candidates - i;
                kv->context->kernels->add_looked_up(dci_kv_chunk_head(kv, ask->layer, i / DCI_KV_CHUNK, ask->head),
                                                    DCI_KV_CHUNK, blocks_of(kv), v->tables,
                                                    left < DCI_KV_CHUNK ? left : DCI_KV_CHUNK, votes + i);
        }
        take_most(votes, ask->n_candidates, wanted, ask->units);
        ask->unit_tokens = 1;
        ask->n_scored = wanted;
}

/* --- estimates ---------------------------------------------------------------------------------------------------- */

static const unsigned char *record_at(const dci_kv_query *ask, size_t candidate)
{
        unsigned char *chunk = dci_kv_chunk_head(ask->kv, ask->layer, candidate / DCI_KV_CHUNK, ask->head);
        return record_of(ask->kv, chunk, candidate % DCI_KV_CHUNK);
}

/* Scores of n candidates, or of those in `units`. */
static void estimate(const dci_kv_query *ask, const voting *v, size_t n)
{
        const dci_kv *kv = ask->kv;
        const size_t dim = padded_dim(kv), n_blocks = blocks_of(kv);
        const void *rows[DCI_KV_TILE];
        for (size_t i = 0, here; i < n; i += here) {
                here = n - i < DCI_KV_TILE ? n - i : DCI_KV_TILE;
                for (size_t t = 0; t < here; t++) {
                        float *row = v->rows + t * dim;
                        const size_t number = i + t, ahead = number + 8 < n ? number + 8 : number;
                        const unsigned char *next = record_at(ask, (size_t)dci_kv_scored(ask, ahead));
                        for (size_t at = 0; at < record_bytes(kv); at += DCI_CACHE_LINE)
                                DCI_PREFETCH(next + at);
                        kv->context->kernels->to_levels(record_at(ask, (size_t)dci_kv_scored(ask, number)), n_blocks,
                                                        levels, row);
                        rows[t] = row;
                }
                dci_kv_score_rows(ask, v->queries, dim, DCI_F32, rows, here, i);
        }
}

static void rank(dci_kv_query *ask)
{
        const dci_kv *kv = ask->kv;
        const size_t wanted = dci_kv_voted(&kv->config, ask->n_candidates), dim = padded_dim(kv);
        voting v;
        place(kv, &v, ask->work);
        for (size_t q = 0; q < kv->group; q++)
                rotate(kv, ask->queries + q * kv->dim_k, v.queries + q * dim, v.rows);
        if (wanted < ask->n_candidates)
                vote(ask, &v, wanted);
        estimate(ask, &v, wanted);
}

const dci_kv_summary dci_kv_summary_votes = {.kind = DCI_KV_SUMMARY_VOTES,
                                             .bytes = bytes,
                                             .work_bytes = work_bytes,
                                             .put_bytes = put_bytes,
                                             .put = put,
                                             .rank = rank};
