/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Second stage: each key as low-bit codes and a scale (sketch/coder.h). Of a head in a chunk:
 *
 *      blocks of DCI_CODE_ROWS rows, block_bytes apart; DCI_KV_CHUNK scales as bf16, which is right to 0.2 % and never out of range
 */
#include "core/internal.h"

#include <string.h>

#include "kv/stages.h"
#include "simd/convert.h"
#include "sketch/frames.h"

#define CHUNK_BLOCKS (DCI_KV_CHUNK / DCI_CODE_ROWS)
#define SPAN 1024 /* tokens whose distortion is looked at together */
#define WATCHED 8 /* of a long prompt, one block of so many */

static size_t block_bytes(const dci_kv *kv)
{
        return dci_frames_block_bytes(kv->dim_k, kv->config.key_bits);
}

static size_t bytes(const dci_kv *kv)
{
        return CHUNK_BLOCKS * block_bytes(kv) + DCI_KV_CHUNK * sizeof(uint16_t);
}

static size_t padded_dim(const dci_kv *kv)
{
        return (kv->dim_k + 31) / 32 * 32;
}

static size_t work_bytes(const dci_kv *kv)
{
        return dci_coder_scratch_bytes(kv->dim_k) + dci_lines(kv->group * padded_dim(kv)) +
               dci_lines(kv->group * sizeof(dci_coded_query));
}

static size_t put_bytes(const dci_kv *kv)
{
        return dci_coder_encode_bytes(kv->dim_k, false);
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
}

/* Up to DCI_SCAN_UNITS units of one chunk against up to DCI_CODE_QUERIES queries from number q on. */
typedef struct scanning {
        dci_kv_ask *ask;
        const dci_coder *coder;
        const int8_t *query_bytes;
        const dci_coded_query *coded;
} scanning;

static void scan_units(const scanning *s, unsigned char *chunk, size_t unit, size_t n_units, size_t q, size_t n_queries,
                       size_t first)
{
        const dci_kv *kv = s->ask->kv;
        const unsigned char *lines[DCI_SCAN_UNITS];
        int32_t sums[DCI_CODE_QUERIES * DCI_SCAN_ROWS];
        float scales[DCI_SCAN_ROWS];
        const size_t apart = block_bytes(kv), left = s->ask->n_candidates - first;
        const size_t n = n_units * DCI_CODE_UNIT < left ? n_units * DCI_CODE_UNIT : left;
        for (size_t u = 0; u < n_units; u++)
                lines[u] = dci_code_unit(chunk + (unit + u) / 2 * apart, (unit + u) % 2);
        s->coder->reader->sums(&s->coder->layout, lines, n_units, s->query_bytes + q * s->coder->layout.n_all,
                               n_queries, sums, DCI_SCAN_ROWS);
        kv->context->kernels->widen[DCI_BF16 - 1](scales_of(kv, chunk) + unit * DCI_CODE_UNIT, n, scales);
        for (size_t i = 0; i < n_queries; i++) {
                const dci_coded_query *coded = &s->coded[q + i];
                s->coder->reader->estimate(sums + i * DCI_SCAN_ROWS, scales, n, coded->half_step, coded->twice_bias,
                                           coded->fixed, s->ask->scores + (q + i) * s->ask->ld + first);
        }
}

/* Mixed widths are read in passes over many blocks, which no prefetcher foresees: the next ones are asked for beforehand. */
static void fetch_ahead(const dci_kv_ask *ask, size_t candidate)
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

static void rank(dci_kv_ask *ask)
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
