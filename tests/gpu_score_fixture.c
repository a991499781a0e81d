/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/gpu_score_fixture.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "simd/convert.h"
#include "tests/gpu_score_learned.h"

#define UNLIKE 32 /* tokens whose keys are near one another */
static const dci_coder *coder_of(const score_state *s, size_t row, size_t head)
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

/* The head's part of chunk number i of a row, computed independently of the library. */
static unsigned char *chunk_image(const score_state *s, size_t row, size_t i, size_t head)
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

/* Of a row. */
static size_t ring_bytes(const score_case *c)
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
        s->ring = gpu_take(t, SCORE_ROWS * ring_bytes(c), GPU_DEVICE);
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
        unsigned char *chunk = chunk_image(s, row, first / s->per_chunk, head);
        float keys[DCI_CODE_ROWS][DCI_GPU_MAX_DIM];
        const float *rows[DCI_CODE_ROWS];
        dci_coded_row coded[DCI_CODE_ROWS];
        void *scratch = aligned_alloc(64, dci_lines(dci_coder_encode_bytes(dim, false)));
        for (size_t r = 0; r < DCI_CODE_ROWS; r++) {
                make_key(s, keys[r], first + r);
                rows[r] = keys[r];
        }
        const dci_coder *coder = coder_of(s, row, head);
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
        unsigned char *to = chunk_image(s, row, g / s->per_chunk, head) + g % s->per_chunk * s->width * 2;
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

dci_gpu_score_args score_arguments(const score_state *s)
{
        const score_case *c = s->c;
        dci_gpu_score_args args = {.n_sequences = SCORE_SEQUENCES,
                                   .n_heads = c->n_heads,
                                   .group = c->group,
                                   .dim = c->dim,
                                   .kind = c->kind,
                                   .bits = c->bits,
                                   .dtype = c->dtype,
                                   .query_dtype = c->query_dtype,
                                   .group_shift = c->shift,
                                   .n_parts = c->n_parts,
                                   .max_groups = (int32_t)s->max_groups,
                                   .scale = 0.088f,
                                   .sizes = c->sizes,
                                   .queries = s->queries->device,
                                   .query_ld = s->query_ld,
                                   .rows = (const int32_t *)(void *)s->rows->device,
                                   .n_tokens = (const int32_t *)(void *)s->n_tokens->device,
                                   .n_grouped = (const int32_t *)(void *)s->n_grouped->device,
                                   .summaries = s->chunks,
                                   .signs = (const float *)(void *)s->signs->device,
                                   .centres = (const float *)(void *)s->centres->device,
                                   .lanes = s->lanes,
                                   .scores = (float *)(void *)s->scores->device,
                                   .parts = (float *)(void *)s->parts->device,
                                   .deviation_weight = 1.25f};
        args.summaries.pieces = (unsigned char *const *)(void *)s->list->device;
        args.summaries.numbers = (const int32_t *)(void *)s->numbers->device;
        if (c->kind == DCI_GPU_LEARNED)
                args.transforms = s->frames->device;
        if (c->wanted > 0)
                args.units = (dci_gpu_units){.lists = (int32_t *)(void *)s->units->device,
                                             .n_scored = (int32_t *)(void *)s->n_scored->device,
                                             .stride = c->wanted + 1,
                                             .wanted = c->wanted,
                                             .of_means = c->of_means};
        if (c->ordered) {
                args.order = (dci_gpu_order){(const int32_t *)(void *)s->n_ordered->device,
                                             (const int32_t *)(void *)s->n_static->device};
                args.ring =
                        (dci_gpu_query_ring){s->ring->device, (const int32_t *)(void *)s->slots->device, ring_bytes(c)};
        }
        if (c->listed)
                args.n_clusters = (const int32_t *)(void *)s->n_clusters->device;
        if (c->kept) {
                args.lanes.keys = args.lanes.values = s->lane_keys->device;
                args.pool = gpu_blocks_pool(&s->blocks, false);
                args.tables =
                        (dci_gpu_tables){(const int32_t *)(void *)s->table->device, (uint64_t)s->blocks.blocks_of_row};
        }
        return args;
}

/* --- what must come out ---------------------------------------------------------------------------------------------- */

typedef struct list {
        const score_state *s;
        size_t row, head, number, n_tokens, n_candidates, n_groups, n_static;
        const int32_t *units; /* NULL, or those whose tokens are scored */
        const float *got;     /* scores that came out */
        float query[DCI_GPU_MAX_DIM];
        const char *name;
        size_t q;
} list;

static void check_number(const list *l, size_t g, double got, double wanted, double tolerance)
{
        ck_assert_msg(fabs(got - wanted) <= tolerance, "%s: list %zu, query %zu, group %zu: %.9g, expected %.9g +- %g",
                      l->name, l->number, l->q, g, got, wanted, tolerance);
}

/* As src/kv/stages/summary_codes.c scans them. */
static void check_codes(const list *l)
{
        const score_state *s = l->s;
        const size_t dim = (size_t)s->c->dim, group = (size_t)s->c->group, block_bytes = 4 * dim * (size_t)s->c->bits;
        const dci_coder *coder = coder_of(s, l->row, l->head);
        void *scratch = aligned_alloc(64, dci_coder_scratch_bytes(dim));
        int8_t bytes[DCI_GPU_MAX_DIM + 32];
        dci_coded_query coded;
        double off = 0.0;
        dci_coder_query(coder, l->query, scratch, bytes, &coded);
        const double doubt = score_learned_doubt(coder, l->query, &coded), learned = s->c->kind == DCI_GPU_LEARNED;
        for (size_t j = 0; j < dim; j++) /* rounding of the product with the centre */
                off += 1e-6 * fabs((double)l->query[j] * (double)coder->centre[j]);
        for (size_t g = 0; g < l->n_groups; g++) {
                const size_t row = l->units == NULL ? g : (size_t)DCI_GPU_SCORED(l->units, (int32_t)g);
                const size_t at = row % s->per_chunk;
                const unsigned char *chunk = chunk_image(s, l->row, row / s->per_chunk, l->head);
                const unsigned char *unit =
                        dci_code_unit(chunk + at / DCI_CODE_ROWS * block_bytes, at / DCI_CODE_UNIT % 2);
                int32_t sums[DCI_CODE_UNIT];
                float wanted;
                const float scale = gpu_number(chunk + s->per_chunk / DCI_CODE_ROWS * block_bytes, at, DCI_BF16);
                coder->reader->sums(&coder->layout, &unit, 1, bytes, 1, sums, DCI_CODE_UNIT);
                coder->reader->estimate(sums + at % DCI_CODE_UNIT, &scale, 1, coded.half_step, coded.twice_bias,
                                        coded.fixed, &wanted);
                const double doubts =
                        (double)scale * doubt + 4e-6 * fabs((double)wanted - (double)coded.fixed) * learned;
                check_number(l, g, (double)l->got[g * group + l->q], (double)wanted,
                             off + doubts == 0.0 ? 0.0 : off + doubts + 1e-7 * fabs((double)wanted));
        }
        free(scratch);
}

static void check_rows(const list *l)
{
        const score_state *s = l->s;
        const score_case *c = s->c;
        const size_t dim = (size_t)c->dim, group = (size_t)c->group;
        const double off = c->dtype == DCI_F16 ? 0x1p-18 : 0x1p-16;
        for (size_t g = 0; g < l->n_groups; g++) {
                const unsigned char *row =
                        chunk_image(s, l->row, g / s->per_chunk, l->head) + g % s->per_chunk * s->width * 2;
                if (g < l->n_static) {
                        ck_assert_msg(l->got[g * group + l->q] == -INFINITY,
                                      "%s: list %zu: static page %zu has a score", l->name, l->number, g);
                        continue;
                }
                double sum = 0.0, all = 0.0, square = 0.0, most = 0.0, variances = 0.0;
                for (size_t j = 0; j < s->width; j++) {
                        const double x = (double)l->query[j % dim];
                        if (c->kind == DCI_GPU_DEVIATIONS && j >= dim) {
                                square += x * x * (double)gpu_number(row, j, c->dtype);
                                most = fmax(most, fabs(x));
                                variances += (double)gpu_number(row, j, c->dtype);
                                continue;
                        }
                        const double of_kind = c->kind == DCI_GPU_MINMAX ? (j < dim ? fmax(x, 0.0) : fmin(x, 0.0))
                                               : j < dim                 ? x
                                                                         : fabs(x);
                        const double product = of_kind * (double)gpu_number(row, j, c->dtype);
                        sum += product;
                        all += fabs(product);
                }
                /* Squares are rounded as the query is, or next to the greatest one's: the least there are in f16. */
                const double near = c->dtype == DCI_F16 ? 0x1p-22 * most * most * variances : 0.0;
                const double root = sqrt(square), doubt = root > 0.0 ? fmin(near / root, sqrt(near)) : sqrt(near);
                check_number(l, g, (double)l->got[g * group + l->q], fmin(sum + 1.25 * root, (double)FLT_MAX),
                             off * all + 1.25 * (off * root + doubt));
        }
}

/* The parts together: the greatest score as it was written, and all exponentials. */
static void check_parts(const list *l, const float *parts)
{
        const score_case *c = l->s->c;
        const size_t group = (size_t)c->group;
        float most = -FLT_MAX, said = -FLT_MAX;
        double sum = 0.0, got = 0.0;
        for (size_t g = 0; g < l->n_groups; g++)
                most = fmaxf(most, l->got[g * group + l->q]);
        for (size_t g = 0; g < l->n_groups; g++)
                sum += exp((double)l->got[g * group + l->q] - (double)most);
        for (size_t p = 0; p < (size_t)c->n_parts; p++) {
                const float *part = parts + (p * group + l->q) * 2;
                said = fmaxf(said, part[0]);
                if (part[0] == -FLT_MAX)
                        ck_assert(part[1] == 0.0f);
                else
                        got += (double)part[1] * exp((double)part[0] - (double)most);
        }
        ck_assert_msg(said == most, "%s: list %zu: parts say %g, scores %g", l->name, l->number, (double)said,
                      (double)most);
        check_number(l, l->n_groups, got, sum, 1e-4 * sum);
}

static void check_kept(const list *l, const float *part)
{
        const score_state *s = l->s;
        const size_t dim = (size_t)s->c->dim, sink = (size_t)s->c->sizes.sink;
        double scores[4096], most = -DBL_MAX, sum = 0.0, off = 0.0;
        size_t n = 0;
        for (size_t p = 0; p < l->n_tokens && s->c->kept; p++) {
                if (p >= sink && p < sink + l->n_candidates)
                        continue;
                const unsigned char *key =
                        gpu_blocks_row(&s->blocks, s->table, (int32_t)l->row, (int32_t)l->head, (int32_t)p, false);
                double all = 0.0;
                scores[n] = 0.0;
                for (size_t j = 0; j < dim; j++) {
                        const double product = (double)l->query[j] * (double)gpu_number(key, j, s->c->dtype);
                        scores[n] += product;
                        all += fabs(product);
                }
                off = fmax(off, 1e-6 * all);
                most = fmax(most, scores[n++]);
        }
        if (n == 0) {
                ck_assert(part[0] == -FLT_MAX && part[1] == 0.0f);
                return;
        }
        for (size_t i = 0; i < n; i++)
                sum += exp(scores[i] - most);
        check_number(l, 0, (double)part[0], most, off);
        check_number(l, 1, (double)part[0] + log((double)part[1]), most + log(sum), 2 * off + 1e-4);
}

/* Bytes that nothing was written to are as they were. */
static void check_untouched(const list *l, const float *from, size_t n)
{
        const unsigned char *bytes = (const unsigned char *)(const void *)from;
        for (size_t i = 0; i < n * sizeof *from; i++)
                ck_assert_msg(bytes[i] == 0xff, "%s: list %zu: a byte was written past its end", l->name, l->number);
}

static void check_list(list *l, const float *parts)
{
        const score_case *c = l->s->c;
        const size_t group = (size_t)c->group, dim = (size_t)c->dim,
                     per = c->of_means ? (size_t)DCI_GPU_UNIT >> c->shift : 1;
        const size_t padded = (l->n_groups + per - 1) / per * per; /* of the last unit */
        for (size_t i = l->n_groups * group; i < padded * group; i++)
                ck_assert_msg(l->got[i] == -FLT_MAX, "%s: list %zu: a mean that is not there", l->name, l->number);
        check_untouched(l, l->got + padded * group, (l->s->max_groups - padded) * group);
        for (l->q = 0; l->q < group; l->q++) {
                for (size_t j = 0; j < dim; j++)
                        l->query[j] =
                                0.088f * gpu_number(l->s->queries->image,
                                                    (l->number * group + l->q) * l->s->query_ld + j, c->query_dtype);
                if (l->s->coded)
                        check_codes(l);
                else
                        check_rows(l);
                check_parts(l, parts);
                check_kept(l, parts + ((size_t)c->n_parts * group + l->q) * 2);
        }
}

/* What is_sparse of src/kv/plan.c says, in other words. */
static bool chooses(const score_case *c, size_t n, size_t n_grouped, size_t *out_candidates)
{
        const size_t sink = (size_t)c->sizes.sink, kept = sink + (size_t)c->sizes.window;
        size_t old = n > kept ? n - kept : 0, budget = (size_t)c->sizes.budget;
        old -= old % (size_t)c->sizes.unit;
        *out_candidates = old < n_grouped ? old : n_grouped;
        if (c->sizes.share > 0) {
                const size_t page = (size_t)c->sizes.page, least = (size_t)c->sizes.least;
                size_t some = 0;
                while ((double)(some + page) * 4294967296.0 <= (double)n * (double)c->sizes.share)
                        some += page;
                some = some < least ? least : some;
                budget = some < budget ? some : budget;
        }
        const size_t stay = c->sizes.fixed ? (size_t)c->sizes.counted : n - *out_candidates;
        return *out_candidates > (budget > stay ? budget - stay : 0);
}

/* Each sequence's queries are in its row's slot, whether it selects or not; other slots are as they were. */
static void check_ring(score_state *s, const char *name)
{
        const score_case *c = s->c;
        const size_t es = c->query_dtype == DCI_F32 ? 4 : 2, n_queries = (size_t)c->n_heads * (size_t)c->group,
                     row = (size_t)c->dim * es;
        gpu_fetch(s->t, s->ring);
        gpu_guarded(s->ring, name);
        for (size_t i = 0; i < SCORE_SEQUENCES; i++)
                for (size_t q = 0; q < n_queries; q++)
                        memcpy(s->ring->image + (size_t)gpu_ints(s->rows)[i] * ring_bytes(c) +
                                       ((size_t)gpu_ints(s->slots)[i] * n_queries + q) * row,
                               s->queries->image + (i * n_queries + q) * s->query_ld * es, row);
        ck_assert_msg(memcmp(s->ring->image, s->ring->back, s->ring->n_bytes) == 0, "%s: other queries", name);
}

size_t score_compare(score_state *s, const char *what)
{
        const score_case *c = s->c;
        char name[160];
        size_t n_sparse = 0;
        snprintf(name, sizeof name, "%s, %s: kind %d, %d bits, d %d, group %d", c->name, what, c->kind, c->bits, c->dim,
                 c->group);
        gpu_fetch(s->t, s->scores);
        gpu_guarded(s->scores, name);
        gpu_fetch(s->t, s->parts);
        gpu_guarded(s->parts, name);
        if (c->ordered)
                check_ring(s, name);
        for (size_t i = 0; i < SCORE_SEQUENCES && c->data != BAD_QUERIES; i++)
                for (size_t h = 0; h < (size_t)c->n_heads; h++) {
                        const size_t per = s->max_groups * (size_t)c->group,
                                     per_parts = (size_t)(c->n_parts + 1) * (size_t)c->group * 2;
                        list l = {.s = s,
                                  .row = (size_t)gpu_ints(s->rows)[i],
                                  .head = h,
                                  .number = i * (size_t)c->n_heads + h,
                                  .n_tokens = (size_t)gpu_ints(s->n_tokens)[i],
                                  .name = name};
                        l.got = (const float *)(const void *)s->scores->back + l.number * per;
                        const float *parts = (const float *)(const void *)s->parts->back + l.number * per_parts;
                        const bool sparse = chooses(c, l.n_tokens, (size_t)gpu_ints(s->n_grouped)[i], &l.n_candidates);
                        const bool few = l.n_candidates <= (size_t)(c->wanted * DCI_GPU_UNIT);
                        if (!sparse || (few && c->of_means)) {
                                check_untouched(&l, l.got, per);
                                check_untouched(&l, parts, per_parts);
                                continue;
                        }
                        n_sparse++;
                        l.n_groups = c->listed ? (size_t)gpu_ints(s->n_clusters)[l.row * (size_t)c->n_heads + h]
                                               : (l.n_candidates + ((size_t)1 << c->shift) - 1) >> c->shift;
                        if (c->ordered) {
                                const size_t ordered = (size_t)gpu_ints(s->n_ordered)[i] >> c->shift;
                                l.n_groups = ordered > l.n_groups ? ordered : l.n_groups;
                                l.n_static = (size_t)gpu_ints(s->n_static)[i];
                        }
                        if (c->wanted > 0 && !c->of_means && !few) {
                                l.units = gpu_ints(s->units) + (int32_t)l.number * (c->wanted + 1);
                                l.n_groups = (size_t)gpu_ints(s->n_scored)[l.number];
                        }
                        check_list(&l, parts);
                }
        return n_sparse;
}
