/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Cases of scores: their buffers, and the numbers in them. */
#include "tests/gpu_score_fixture.h"

#include <string.h>

#include "simd/convert.h"
#include "tests/gpu_score_learned.h"

#define UNLIKE 32 /* tokens whose keys are near one another */

const dci_coder *score_coder_of(const score_state *s, size_t row, size_t head)
{
        return &s->coders[row * SCORE_HEADS + head];
}

/* --- what a case is made of ---------------------------------------------------------------------------------------- */

static int32_t max_tokens_of(const score_case *c)
{
        int32_t most = 0;
        for (size_t i = 0; i < SCORE_SEQUENCES; i++)
                most = most > c->n_tokens[i] ? most : c->n_tokens[i];
        return most;
}

unsigned char *score_chunk_image(const score_state *s, size_t row, size_t i, size_t head)
{
        const size_t c = (size_t)gpu_ints(s->numbers)[row * s->chunks.stride + i],
                     per = (size_t)1 << s->chunks.piece_shift;
        return s->piece[c / per]->image + s->chunks.layer_at + c % per * s->chunks.chunk_bytes + head * s->head_bytes;
}

static void take_chunks(score_state *s)
{
        const score_case *c = s->c;
        const size_t n_heads = (size_t)c->n_heads, named = SCORE_ROWS * s->chunks_each;
        const size_t n = c->physical > 0 ? (size_t)c->physical : named;
        s->chunks = (dci_gpu_chunks){.stride = s->chunks_each + 1, .head_bytes = (uint32_t)s->head_bytes};
        while (((n - 1) >> s->chunks.piece_shift) >= SCORE_PIECES)
                s->chunks.piece_shift++;
        s->chunks.chunk_bytes = n_heads * s->head_bytes + 128;
        s->chunks.layer_at = 2 * s->chunks.chunk_bytes;
        s->list = gpu_take(s->t, SCORE_PIECES * sizeof(void *), GPU_DEVICE);
        for (size_t p = 0; p < SCORE_PIECES; p++) {
                s->piece[p] = gpu_take(s->t, s->chunks.layer_at + (s->chunks.chunk_bytes << s->chunks.piece_shift),
                                       GPU_DEVICE);
                ((unsigned char **)(void *)s->list->image)[p] = s->piece[p]->device;
        }
        s->numbers = gpu_take(s->t, SCORE_ROWS * s->chunks.stride * sizeof(int32_t), GPU_DEVICE);
        /* In another order, or the same few again and again. */
        int32_t *numbers = gpu_ints(s->numbers);
        for (size_t r = 0, k = 0; r < SCORE_ROWS; r++)
                for (size_t i = 0; i < s->chunks_each; i++, k++) {
                        int32_t *own = &numbers[r * s->chunks.stride + i];
                        const size_t j = (size_t)dci_rng_below(&s->rng, k + 1);
                        int32_t *other = &numbers[j / s->chunks_each * s->chunks.stride + j % s->chunks_each];
                        *own = (int32_t)(k % n);
                        if (c->physical == 0) {
                                *own = *other;
                                *other = (int32_t)k;
                        }
                }
}

static void take_coders(score_state *s)
{
        const score_case *c = s->c;
        const size_t dim = (size_t)c->dim;
        s->centres = gpu_take(s->t, SCORE_ROWS * (size_t)c->n_heads * dim * sizeof(float), GPU_DEVICE);
        for (size_t r = 0; r < SCORE_ROWS; r++)
                for (size_t h = 0; h < (size_t)c->n_heads; h++) {
                        float *centre = gpu_floats(s->centres) + (r * (size_t)c->n_heads + h) * dim;
                        for (size_t j = 0; j < dim; j++)
                                centre[j] = c->centred ? (float)test_quick_normal(&s->rng) : 0.0f;
                        void **memory = &s->memory[r * SCORE_HEADS + h];
                        if (c->kind == DCI_GPU_LEARNED) {
                                score_learned_coder(s, r, h);
                                continue;
                        }
                        *memory = malloc(dci_coder_bytes(DCI_CODER_ROTATED, dim));
                        dci_coder_init(s->t->context, DCI_CODER_ROTATED, dim, c->bits, SCORE_SEED, centre, *memory,
                                       &s->coders[r * SCORE_HEADS + h]);
                }
        dci_rotation rotation;
        dci_rng rng;
        s->signs = gpu_take(s->t, dci_rotation_bytes(dim), GPU_DEVICE);
        dci_rng_seed(&rng, SCORE_SEED);
        dci_rotation_init(&rng, dim, s->signs->image, &rotation);
        if (c->kind == DCI_GPU_LEARNED)
                score_learned_frames(s);
}

size_t score_ring_bytes(const score_case *c)
{
        return SCORE_SLOTS * (size_t)(c->n_heads * c->group * c->dim) * (c->query_dtype == DCI_F32 ? 4 : 2);
}

static void take_all(score_state *s, gpu_test *t, const score_case *c, uint64_t seed)
{
        const size_t dim = (size_t)c->dim, n_heads = (size_t)c->n_heads, n_lists = SCORE_SEQUENCES * n_heads;
        *s = (score_state){.t = t, .c = c};
        gpu_reset(t);
        dci_rng_seed(&s->rng, seed);
        s->max_tokens = (size_t)max_tokens_of(c);
        s->coded = c->kind == DCI_GPU_CODES || c->kind == DCI_GPU_LEARNED;
        s->width = s->coded || c->kind == DCI_GPU_MEANS ? dim : 2 * dim;
        s->per_chunk = c->listed ? DCI_GPU_CHUNK : (size_t)DCI_GPU_CHUNK >> c->shift;
        s->head_bytes = s->coded ? s->per_chunk * (dim * (size_t)c->bits / 8 + 2)
                                 : (s->per_chunk * s->width * 2 + 127) / 128 * 128;
        s->max_groups = c->listed ? 700 : (s->max_tokens >> c->shift) + 1 + (c->of_means ? 4 : 0);
        s->chunks_each = (s->max_groups + s->per_chunk - 1) / s->per_chunk;
        take_chunks(s);
        take_coders(s);
        s->rows = gpu_take(t, SCORE_SEQUENCES * 4, GPU_MAPPED);
        s->n_tokens = gpu_take(t, SCORE_SEQUENCES * 4, GPU_MAPPED);
        s->n_grouped = gpu_take(t, SCORE_SEQUENCES * 4, GPU_MAPPED);
        s->n_clusters = gpu_take(t, SCORE_ROWS * n_heads * 4, GPU_DEVICE);
        s->n_ordered = gpu_take(t, SCORE_SEQUENCES * sizeof(int32_t), GPU_DEVICE);
        s->n_static = gpu_take(t, SCORE_SEQUENCES * sizeof(int32_t), GPU_DEVICE);
        s->slots = gpu_take(t, SCORE_SEQUENCES * sizeof(int32_t), GPU_DEVICE);
        s->ring = gpu_take(t, SCORE_ROWS * score_ring_bytes(c), GPU_DEVICE);
        s->query_ld = dim + (seed % 2 == 0 ? 0 : 16);
        s->queries = gpu_take(t, n_lists * (size_t)c->group * s->query_ld * dci_dtype_size(c->query_dtype), GPU_DEVICE);
        s->scores = gpu_take(t, n_lists * s->max_groups * (size_t)c->group * sizeof(float), GPU_DEVICE);
        s->units = gpu_take(t, n_lists * ((size_t)c->wanted + 1) * 4, GPU_DEVICE);
        s->n_scored = gpu_take(t, n_lists * 4, GPU_DEVICE);
        s->parts = gpu_take(t, n_lists * (size_t)(c->n_parts + 1) * (size_t)c->group * 2 * sizeof(float), GPU_DEVICE);
        if (!c->kept)
                return;
        gpu_blocks_make(t, &s->blocks, GPU_DEVICE, SCORE_ROWS, c->n_heads, 4, (int32_t)s->max_tokens,
                        (uint32_t)dim * 2);
        s->table = gpu_blocks_table(t, &s->blocks, seed);
        s->lanes = (dci_gpu_lanes){.key_bytes = (uint32_t)dim * 2,
                                   .value_bytes = (uint32_t)dim * 2,
                                   .sink = 8,
                                   .ring = 64,
                                   .hot = 16,
                                   .n_slots = 88};
        s->lane_keys = gpu_take(t, SCORE_ROWS * n_heads * 88 * dim * 2, GPU_DEVICE);
}

void score_unmake(score_state *s)
{
        for (size_t i = 0; i < COUNT(s->memory); i++)
                free(s->memory[i]);
}

/* --- numbers --------------------------------------------------------------------------------------------------------- */

/* A key near others, or the same as all. */
static void make_key(score_state *s, float *key, size_t token)
{
        const size_t dim = (size_t)s->c->dim;
        dci_rng near;
        dci_rng_seed(&near, s->c->data == EQUAL ? 1 : 1 + token / UNLIKE);
        for (size_t j = 0; j < dim; j++) {
                const double own = s->c->data == EQUAL ? 0.0 : test_quick_normal(&s->rng);
                key[j] = (float)(1.5 * test_quick_normal(&near) + 0.5 * own);
        }
}

static void put_number(unsigned char *to, size_t at, int32_t dtype, float x)
{
        const uint16_t half = dtype == DCI_F16 ? dci_float_to_f16(x) : dci_float_to_bf16(x);
        memcpy(to + at * 2, &half, 2);
}

/* One block of 32 rows of codes, with its scales. */
static void fill_codes(score_state *s, size_t row, size_t head, size_t first)
{
        const size_t dim = (size_t)s->c->dim, at = first % s->per_chunk, block_bytes = 4 * dim * (size_t)s->c->bits;
        unsigned char *chunk = score_chunk_image(s, row, first / s->per_chunk, head);
        float keys[DCI_CODE_ROWS][DCI_GPU_MAX_DIM];
        const float *rows[DCI_CODE_ROWS];
        dci_coded_row coded[DCI_CODE_ROWS];
        void *scratch = aligned_alloc(64, dci_lines(dci_coder_encode_bytes(dim, false)));
        for (size_t r = 0; r < DCI_CODE_ROWS; r++) {
                make_key(s, keys[r], first + r);
                rows[r] = keys[r];
        }
        const dci_coder *coder = score_coder_of(s, row, head);
        ck_assert_uint_le(coder->layout.n_bytes, block_bytes);
        dci_coder_encode(coder, rows, scratch, chunk + at / DCI_CODE_ROWS * block_bytes, coded);
        for (size_t r = 0; r < DCI_CODE_ROWS; r++)
                put_number(chunk + s->per_chunk / DCI_CODE_ROWS * block_bytes, at + r, DCI_BF16, coded[r].scale);
        free(scratch);
}

/* Of a row: extremes lie around one another, distances are positive. */
static void fill_row(score_state *s, size_t row, size_t head, size_t g)
{
        const score_case *c = s->c;
        const size_t dim = (size_t)c->dim;
        float key[DCI_GPU_MAX_DIM];
        unsigned char *to = score_chunk_image(s, row, g / s->per_chunk, head) + g % s->per_chunk * s->width * 2;
        make_key(s, key, g);
        for (size_t j = 0; j < dim; j++) {
                const float spread = (float)fabs(test_quick_normal(&s->rng));
                put_number(to, j, c->dtype, key[j]);
                if (c->kind != DCI_GPU_MEANS)
                        put_number(to, dim + j, c->dtype, c->kind == DCI_GPU_MINMAX ? key[j] - spread : spread);
        }
}

static void fill_summaries(score_state *s)
{
        const size_t n = s->chunks_each * s->per_chunk;
        for (size_t r = 0; r < SCORE_ROWS; r++)
                for (size_t h = 0; h < (size_t)s->c->n_heads; h++)
                        for (size_t g = 0; g < n && g < s->max_groups; g += s->coded ? 32 : 1) {
                                if (s->c->physical > 0 &&
                                    r * s->chunks_each + g / s->per_chunk >= (size_t)s->c->physical)
                                        return; /* the others are the same ones again */
                                if (s->coded)
                                        fill_codes(s, r, h, g);
                                else
                                        fill_row(s, r, h, g);
                        }
}

void score_fill_queries(score_state *s)
{
        const score_case *c = s->c;
        const size_t dim = (size_t)c->dim, n = SCORE_SEQUENCES * (size_t)c->n_heads * (size_t)c->group;
        const size_t size = dci_dtype_size(c->query_dtype);
        for (size_t q = 0; q < n; q++) {
                const float scale = c->data == ZERO_QUERIES   ? 0.0f
                                    : c->data == HUGE_QUERIES ? 2e4f
                                    : c->data == TINY_QUERIES ? 1e-6f
                                                              : 1.0f;
                unsigned char *to = s->queries->image + q * s->query_ld * size;
                gpu_numbers(&s->rng, to, dim, c->query_dtype, scale);
                if (c->data == BAD_QUERIES) /* NaN here, and infinity there */
                        memset(to + q % dim * size, q % 2 == 0 ? 0xff : 0x7f, size);
        }
}

static void fill_pool(score_state *s)
{
        float key[DCI_GPU_MAX_DIM] = {0};
        for (int32_t r = 0; s->c->kept && r < SCORE_ROWS; r++)
                for (int32_t h = 0; h < s->c->n_heads; h++)
                        for (int32_t p = 0; p < (int32_t)s->max_tokens; p++) {
                                unsigned char *to = gpu_blocks_row(&s->blocks, s->table, r, h, p, false);
                                make_key(s, key, (size_t)p);
                                for (size_t j = 0; j < (size_t)s->c->dim; j++)
                                        put_number(to, j, s->c->dtype, key[j]);
                        }
}

/* The sink and the latest tokens lie in lanes; the pool's copies of those are spoilt, so that they are not read there. */
static void fill_lanes(score_state *s)
{
        const size_t row_bytes = (size_t)s->c->dim * 2;
        for (int32_t i = 0; s->c->kept && i < SCORE_SEQUENCES; i++)
                for (int32_t h = 0; h < s->c->n_heads; h++) {
                        const int32_t row = gpu_ints(s->rows)[i], n = gpu_ints(s->n_tokens)[i];
                        unsigned char *lane = s->lane_keys->image + (size_t)(row * s->c->n_heads + h) * 88 * row_bytes;
                        memset(lane, 0xff, 88 * row_bytes);
                        for (int32_t p = 0; p < n; p++) {
                                const int32_t slot = p < 8 ? p : p >= n - 64 ? 8 + p % 64 : -1;
                                if (slot >= 0)
                                        memcpy(lane + (size_t)slot * row_bytes,
                                               gpu_blocks_row(&s->blocks, s->table, row, h, p, false), row_bytes);
                        }
                }
}

void score_make(score_state *s, gpu_test *t, const score_case *c, uint64_t seed)
{
        take_all(s, t, c, seed);
        fill_summaries(s);
        score_fill_queries(s);
        fill_pool(s);
}

/* Some units of each list, as many as are wanted or one more, with the last one of all or without. */
static void choose_units(score_state *s)
{
        const score_case *c = s->c;
        for (int32_t i = 0; i < SCORE_SEQUENCES * c->n_heads && c->wanted > 0; i++) {
                dci_gpu_view view;
                DCI_GPU_VIEW(view, c->sizes, gpu_ints(s->n_tokens)[i / c->n_heads],
                             gpu_ints(s->n_grouped)[i / c->n_heads]);
                const int32_t n_units = (view.n_candidates + DCI_GPU_UNIT - 1) / DCI_GPU_UNIT;
                int32_t *list = gpu_ints(s->units) + i * (c->wanted + 1), left = c->wanted + i % 2, n = 0;
                memset(list, 0x7f, ((size_t)c->wanted + 1) * sizeof *list);
                gpu_ints(s->n_scored)[i] = 0;
                if (view.n_candidates <= c->wanted * DCI_GPU_UNIT)
                        continue;
                for (int32_t u = i % 3 == 0 ? n_units - left : 0; u < n_units && left > 0; u++)
                        if (n_units - u <= left || dci_rng_below(&s->rng, (uint64_t)(n_units - u)) < (uint64_t)left) {
                                list[n++] = u;
                                left--;
                        }
                const bool last = list[n - 1] == n_units - 1;
                gpu_ints(s->n_scored)[i] = n * DCI_GPU_UNIT - (last ? n_units * DCI_GPU_UNIT - view.n_candidates : 0);
        }
}

void score_set_lengths(score_state *s, const int32_t *rows, int32_t most)
{
        const score_case *c = s->c;
        for (size_t i = 0; i < SCORE_SEQUENCES; i++) {
                const int32_t n = c->n_tokens[i] < most ? c->n_tokens[i] : most;
                const int32_t grouped = n - c->sizes.sink - c->missing;
                gpu_ints(s->rows)[i] = rows[i];
                gpu_ints(s->n_tokens)[i] = n;
                gpu_ints(s->n_grouped)[i] = grouped > 0 ? grouped : 0;
        }
        for (size_t i = 0; i < (size_t)SCORE_ROWS * (size_t)c->n_heads; i++)
                gpu_ints(s->n_clusters)[i] = (int32_t)(i == 1 ? 0 : i == 2 ? 1 : 700 - 13 * i);
        /* One order is longer than the candidates are by now, one has static pages alone. */
        for (int32_t i = 0; i < SCORE_SEQUENCES; i++) {
                const int32_t pages = gpu_ints(s->n_grouped)[i] >> c->shift, room = (int32_t)s->max_tokens >> c->shift,
                              n = i == 0 ? pages : pages / 2;
                gpu_ints(s->n_ordered)[i] = (n < room ? n : room) << c->shift;
                gpu_ints(s->n_static)[i] = i == 2 ? n : n / 5;
                gpu_ints(s->slots)[i] = (i * 3 + 2) % SCORE_SLOTS;
        }
        choose_units(s);
        fill_lanes(s);
        memset(s->ring->image, 0x5a, s->ring->n_bytes);
        memset(s->scores->image, 0xff, s->scores->n_bytes);
        memset(s->parts->image, 0xff, s->parts->n_bytes);
        gpu_send_all(s->t);
}
