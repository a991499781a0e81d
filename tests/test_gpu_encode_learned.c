/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Learned codes of a prompt: every byte of the chunks, and every residual that is kept, against what the CPU's own coder makes of the same rows,
 * at every instruction set that this machine has.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/npy.h"
#include "gpu/args/transforms_fill.h"
#include "simd/convert.h"
#include "sketch/fit.h"
#include "sketch/frames.h"
#include "tests/gpu_fixture.h"

#define ROOM ((size_t)32 << 20)
#define ROWS 2
#define SINK 5
#define SAMPLE 300
#define MOST 1500 /* candidates */
#define CHUNKS 3
#define HEADS 4
#define SLACK 128 /* bytes of a head's part that nobody may write */
GPU_SUITE(ROOM)

/* Heads have these frames in turns, from `first` on. */
enum { RANKS, ALONE, ANY, RANDOM, FRAMES };

typedef struct shape {
        const char *name;
        int32_t dim, dtype, bits, n_heads, page_shift, first;
} shape;

static const shape shapes[] = {
        {"4 bits", 128, DCI_BF16, 4, 2, 4, RANKS},         {"2 bits", 128, DCI_F16, 2, 3, 4, ALONE},
        {"1 bit", 128, DCI_BF16, 1, 2, 3, RANKS},          {"3 bits", 128, DCI_F16, 3, 1, 4, ANY},
        {"8 bits", 128, DCI_BF16, 8, 1, 6, RANKS},         {"dim 64, 4 bits", 64, DCI_F16, 4, 4, 4, RANKS},
        {"dim 64, 2 bits", 64, DCI_BF16, 2, 2, 5, ANY},    {"dim 64, 1 bit", 64, DCI_F16, 1, 2, 4, RANKS},
        {"dim 96, 4 bits", 96, DCI_BF16, 4, 3, 4, ANY},    {"dim 96, 2 bits", 96, DCI_F16, 2, 1, 4, RANKS},
        {"dim 96, 1 bit", 96, DCI_BF16, 1, 1, 4, ALONE},   {"dim 256, 4 bits", 256, DCI_BF16, 4, 1, 4, RANKS},
        {"dim 256, 2 bits", 256, DCI_F16, 2, 2, 4, ALONE}, {"dim 256, 1 bit", 256, DCI_BF16, 1, 1, 3, ALONE},
};

typedef struct world {
        gpu_test *t;
        const shape *s;
        dci_context *context; /* of the level whose bits are wanted */
        dci_rng rng;
        size_t n, row_bytes, summary_bytes, head_bytes, chunk_bytes, piece_bytes, n_watched;
        uint16_t *keys; /* [head][n][dim] */
        dci_coder coders[HEADS];
        void *memory[HEADS];
        gpu_blocks blocks;
        gpu_buffer *table, *pieces[CHUNKS], *list, *numbers, *writers, *residuals;
} world;

/* --- data ------------------------------------------------------------------------------------------------------------------ */

/* Rows whose coordinates differ in their deviations and lean on one another, about a mean. */
static void draw(dci_rng *rng, const float *mean, size_t dim, float *out)
{
        for (size_t j = 0; j < dim; j++) {
                const double own = test_quick_normal(rng) * exp(-4.0 * (double)j / (double)dim);
                out[j] = (float)own + (j > 0 ? 0.3f * out[j - 1] : 0.5f);
        }
        for (size_t j = 0; j < dim && mean != NULL; j++)
                out[j] += mean[j];
}

/* One row in eleven is out of the ordinary. */
static void fill_row(world *w, const float *mean, size_t number, uint16_t *out)
{
        const size_t dim = (size_t)w->s->dim;
        float x[DCI_GPU_MAX_DIM];
        draw(&w->rng, mean, dim, x);
        gpu_put_row(&w->rng, w->s->dtype, mean, dim, number, 20.0f, x, out);
}

static void moments_of(const dci_context *context, const float *rows, size_t dim, void *memory, dci_moments *out)
{
        dci_moments_init(context->kernels, dim, memory, out);
        for (size_t i = 0; i < SAMPLE; i += DCI_MOMENT_ROWS)
                dci_moments_add(out, rows + i * dim, dim, SAMPLE - i < DCI_MOMENT_ROWS ? SAMPLE - i : DCI_MOMENT_ROWS);
}

static void fit(world *w, const float *rows, dci_coder *coder)
{
        const size_t dim = coder->dim;
        float *queries = malloc(SAMPLE * dim * sizeof *queries);
        void *sums = malloc(dci_moments_bytes(dim)), *others = malloc(dci_moments_bytes(dim)),
             *spare = malloc(dci_fit_scratch_bytes(dim));
        dci_moments of_rows, of_queries;
        for (size_t i = 0; i < SAMPLE; i++)
                draw(&w->rng, NULL, dim, queries + i * dim);
        moments_of(w->context, rows, dim, sums, &of_rows);
        moments_of(w->context, queries, dim, others, &of_queries);
        ck_ok(dci_fit(&of_rows, &of_queries, spare, coder));
        test_free(queries, sums, others, spare);
}

/* Widths as they come, in some of the lines; a transform of any numbers. */
static void any_frame(world *w, dci_coder *coder)
{
        const size_t dim = coder->dim;
        gpu_draw_layout(&w->rng, coder);
        dci_coder_finish_learned(coder);
        for (size_t j = 0; j < dim; j++) {
                coder->centre[j] = (float)test_quick_normal(&w->rng);
                coder->worth[j] = 0.1f + (float)fabs(test_quick_normal(&w->rng));
        }
        for (size_t i = 0; i < dim * dim; i++)
                coder->to[i] = 0.2f * (float)test_quick_normal(&w->rng);
}

/* rows: a sample of the head's, for its fit. */
static void make_coder(world *w, size_t head, const float *rows)
{
        const size_t dim = (size_t)w->s->dim;
        const int32_t kind = (w->s->first + (int32_t)head) % FRAMES;
        dci_coder *coder = &w->coders[head];
        const size_t n_bytes = dci_coder_bytes(DCI_CODER_LEARNED, dim) + dci_coder_bytes(DCI_CODER_ROTATED, dim);
        void *memory = w->memory[head] = aligned_alloc(64, (n_bytes + 63) / 64 * 64);
        ck_assert_ptr_nonnull(memory);
        if (kind == RANDOM) {
                dci_coder_init(w->context, DCI_CODER_ROTATED, dim, w->s->bits, 3, NULL, memory, coder);
                return;
        }
        dci_coder_init_learned(w->context, dim, w->s->bits, kind == ALONE, memory, coder);
        if (kind == ANY)
                any_frame(w, coder);
        else
                fit(w, rows, coder);
}

static uint16_t *key_of(const world *w, size_t head, size_t candidate)
{
        return w->keys + (head * w->n + candidate) * (size_t)w->s->dim;
}

static void make_chunks(world *w)
{
        const size_t dim = (size_t)w->s->dim;
        w->summary_bytes = 16 * dci_frames_block_bytes(dim, w->s->bits) + DCI_GPU_CHUNK * sizeof(uint16_t);
        w->head_bytes = (w->summary_bytes + SLACK + 127) / 128 * 128;
        w->chunk_bytes = w->head_bytes * (size_t)w->s->n_heads + 128;
        w->piece_bytes = 256 + 2 * w->chunk_bytes;
        w->list = gpu_take(w->t, CHUNKS * sizeof(void *), GPU_DEVICE);
        w->numbers = gpu_take(w->t, ROWS * CHUNKS * sizeof(int32_t), GPU_DEVICE);
        for (size_t p = 0; p < CHUNKS; p++) {
                w->pieces[p] = gpu_take(w->t, w->piece_bytes, GPU_DEVICE);
                ((unsigned char **)(void *)w->list->image)[p] = w->pieces[p]->device;
        }
        for (size_t i = 0; i < ROWS * CHUNKS; i++)
                ((int32_t *)(void *)w->numbers->image)[i] = (int32_t)(5 * i + 2) % (ROWS * CHUNKS);
}

static unsigned char *part_of(const world *w, size_t row, size_t chunk, size_t head)
{
        const size_t number = (size_t)((const int32_t *)(const void *)w->numbers->image)[row * CHUNKS + chunk];
        return w->pieces[number / 2]->image + 256 + number % 2 * w->chunk_bytes + head * w->head_bytes;
}

/* Everything but keys and frames. */
static void begin_world(world *w, gpu_test *t, const shape *s, dci_context *context, size_t n, uint64_t seed)
{
        *w = (world){.t = t, .s = s, .context = context, .n = n, .row_bytes = (size_t)s->dim * 2};
        gpu_reset(t);
        dci_rng_seed(&w->rng, seed);
        w->keys = malloc((size_t)s->n_heads * n * w->row_bytes);
        ck_assert_ptr_nonnull(w->keys);
        make_chunks(w);
        gpu_blocks_make(t, &w->blocks, GPU_MAPPED, ROWS, s->n_heads, s->page_shift, SINK + (int32_t)n,
                        (uint32_t)w->row_bytes);
        w->table = gpu_blocks_table(t, &w->blocks, seed);
        w->n_watched = (size_t)DCI_GPU_N_WATCHED((int32_t)n);
        w->residuals = gpu_take(t, (size_t)s->n_heads * w->n_watched * sizeof(float), GPU_DEVICE);
        w->writers = gpu_take(t, (size_t)s->n_heads * DCI_GPU_WRITER_BYTES(s->dim), GPU_DEVICE);
}

static void end_world(world *w)
{
        free(w->keys);
        for (size_t h = 0; h < HEADS; h++)
                free(w->memory[h]);
}

static void make_heads(world *w)
{
        const size_t dim = (size_t)w->s->dim;
        float *rows = malloc(SAMPLE * dim * sizeof *rows);
        ck_assert_ptr_nonnull(rows);
        for (size_t h = 0; h < (size_t)w->s->n_heads; h++) {
                float mean[DCI_GPU_MAX_DIM];
                for (size_t j = 0; j < dim; j++)
                        mean[j] = (j % 29 == 3 ? 12.0f : 1.0f) * (float)test_quick_normal(&w->rng);
                for (size_t i = 0; i < SAMPLE; i++)
                        draw(&w->rng, mean, dim, rows + i * dim);
                make_coder(w, h, rows);
                for (size_t i = 0; i < w->n; i++)
                        fill_row(w, mean, i, key_of(w, h, i));
        }
        free(rows);
}

/* --- what the CPU makes of them ---------------------------------------------------------------------------------------------- */

static void model(world *w, size_t row, size_t head, bool with_residuals)
{
        static float wide[DCI_CODE_ROWS * DCI_GPU_MAX_DIM];
        const size_t dim = (size_t)w->s->dim, block_bytes = dci_frames_block_bytes(dim, w->s->bits);
        const dci_coder *coder = &w->coders[head];
        void *scratch = aligned_alloc(64, (dci_coder_encode_bytes(dim, false) + 63) / 64 * 64);
        float *residuals = (float *)(void *)w->residuals->image + head * w->n_watched;
        ck_assert_ptr_nonnull(scratch);
        for (size_t first = 0; first < w->n && coder->kind == DCI_CODER_LEARNED; first += DCI_CODE_ROWS) {
                const size_t left = w->n - first, n = left < DCI_CODE_ROWS ? left : DCI_CODE_ROWS,
                             at = first % DCI_GPU_CHUNK;
                const float *rows[DCI_CODE_ROWS] = {NULL};
                dci_coded_row coded[DCI_CODE_ROWS];
                unsigned char *part = part_of(w, row, first / DCI_GPU_CHUNK, head);
                uint16_t *scales = (uint16_t *)(void *)(part + 16 * block_bytes);
                if (at == 0)
                        memset(part, 0, w->summary_bytes);
                for (size_t i = 0; i < n; i++) {
                        for (size_t j = 0; j < dim; j++)
                                wide[i * dim + j] = gpu_number(key_of(w, head, first + i), j, w->s->dtype);
                        rows[i] = wide + i * dim;
                }
                dci_coder_encode(coder, rows, scratch, part + at / DCI_CODE_ROWS * block_bytes, coded);
                for (size_t i = 0; i < n; i++) {
                        scales[at + i] = dci_float_to_bf16(coded[i].scale);
                        if (with_residuals && (first < 1024 || first % 256 == 0))
                                *residuals++ = coded[i].residual;
                }
        }
        free(scratch);
}

static void place_keys(const world *w, size_t row)
{
        for (size_t h = 0; h < (size_t)w->s->n_heads; h++)
                for (size_t i = 0; i < w->n; i++)
                        memcpy(gpu_blocks_row(&w->blocks, w->table, (int32_t)row, (int32_t)h, SINK + (int32_t)i, false),
                               key_of(w, h, i), w->row_bytes);
}

static void go(world *w, size_t row, bool with_residuals, int32_t n_blocks)
{
        char text[200];
        gpu_test *t = w->t;
        const shape *s = w->s;
        for (size_t h = 0; h < (size_t)s->n_heads; h++)
                dci_gpu_writer_fill(&w->coders[h], w->writers->image + h * DCI_GPU_WRITER_BYTES(s->dim));
        place_keys(w, row);
        gpu_send_all(t);
        const dci_gpu_encode_learned_args args = {
                .n_heads = s->n_heads,
                .dim = s->dim,
                .bits = s->bits,
                .dtype = s->dtype,
                .n_candidates = (int32_t)w->n,
                .row = (int32_t)row,
                .sink = SINK,
                .fused = w->context->isa != DCI_ISA_SCALAR,
                .n_blocks = n_blocks,
                .pool = gpu_blocks_pool(&w->blocks, false),
                .tables = {gpu_at(w->table, false), (uint64_t)w->blocks.blocks_of_row},
                .chunks = {.pieces = gpu_at(w->list, false),
                           .numbers = gpu_at(w->numbers, false),
                           .stride = CHUNKS,
                           .layer_at = 256,
                           .chunk_bytes = w->chunk_bytes,
                           .head_bytes = (uint32_t)w->head_bytes,
                           .piece_shift = 1},
                .writers = gpu_at(w->writers, false),
                .residuals = with_residuals ? gpu_at(w->residuals, false) : NULL};
        for (size_t h = 0; h < (size_t)s->n_heads; h++)
                model(w, row, h, with_residuals);
        ck_ok(t->ops->encode_learned(t->gpu, t->stream, &args));
        for (size_t p = 0; p < CHUNKS; p++) {
                snprintf(text, sizeof text, "%s, %s, %zu candidates, piece %zu (a head has %zu bytes)", s->name,
                         dci_isa_name(w->context->isa), w->n, p, w->head_bytes);
                gpu_same(t, w->pieces[p], text);
        }
        snprintf(text, sizeof text, "%s, %s, %zu candidates, residuals", s->name, dci_isa_name(w->context->isa), w->n);
        gpu_same(t, w->residuals, text);
}

/* --- tests -------------------------------------------------------------------------------------------------------------------- */

START_TEST(codes_are_those_of_the_cpu_at_every_level)
{
        static const size_t sizes[] = {1, 31, 64, 65, 250, 511, 512, 513, 700, 1024, 1300, MOST};
        world w;
        const size_t n_isas = test_n_isas();
        for (size_t i = 0; i < n_isas; i++) {
                dci_context *context = test_context_of_level((int)i);
                for (size_t j = 0; j < COUNT(shapes); j++)
                        for (size_t k = (i + j) % 4; k < COUNT(sizes); k += test_short() ? 9 : 4) {
                                const uint64_t seed = 100 * j + k;
                                const bool dear = test_short() && (shapes[j].dim > 128 || sizes[k] > 700);
                                if (dear && (i > 0 || shapes[j].dim > 128))
                                        continue;
                                begin_world(&w, &gpu, &shapes[j], context, sizes[k], seed);
                                make_heads(&w);
                                go(&w, seed % ROWS, k % 3 != 0, k % 2 == 0 ? 0 : 3);
                                end_world(&w);
                        }
                dci_context_destroy(context);
        }
}
END_TEST

/* Two frames of recorded keys, and residuals beyond the blocks that are all looked at. */
START_TEST(recorded_keys_too)
{
        char path[300];
        world w;
        dci_npy keys;
        const size_t n_isas = test_n_isas();
        snprintf(path, sizeof path, "%s/keys.npy", test_trace_dir());
        ck_ok(dci_npy_read(gpu.context, path, &keys));
        const size_t n = keys.shape[0] < MOST ? keys.shape[0] : MOST, dim = keys.shape[1];
        ck_assert_uint_ge(n, SAMPLE);
        for (size_t i = 0; i < n_isas; i += test_short() ? n_isas : 1)
                for (int32_t bits = 1; bits <= 4; bits *= 2) {
                        const shape s = {"a trace", (int32_t)dim, DCI_F16, bits, 2, 4, RANKS};
                        float *rows = malloc(SAMPLE * dim * sizeof *rows);
                        dci_context *context = test_context_of_level((int)(n_isas - 1 - i));
                        ck_assert_ptr_nonnull(rows);
                        begin_world(&w, &gpu, &s, context, n, (uint64_t)bits);
                        for (size_t h = 0; h < 2; h++)
                                memcpy(key_of(&w, h, 0), keys.data, n * w.row_bytes);
                        for (size_t r = 0; r < SAMPLE; r++)
                                for (size_t j = 0; j < dim; j++)
                                        rows[r * dim + j] = gpu_number(key_of(&w, 0, r * n / SAMPLE), j, DCI_F16);
                        for (size_t h = 0; h < 2; h++)
                                make_coder(&w, h, rows);
                        go(&w, 1, true, 0);
                        end_world(&w);
                        free(rows);
                        dci_context_destroy(context);
                }
        dci_npy_free(&keys);
}
END_TEST

/* What the macros of gpu/args/learned.h say of blocks, one by one. */
START_TEST(residuals_have_places_without_gaps)
{
        int32_t next = 0;
        for (int32_t block = 0; block < 2000; block++) {
                if (DCI_GPU_IS_WATCHED(block))
                        ck_assert_int_eq(DCI_GPU_WATCHED(block), next++);
                ck_assert_int_eq(DCI_GPU_N_WATCHED(32 * block + 1), 32 * next);
                ck_assert_int_eq(DCI_GPU_N_WATCHED(32 * block + 32), 32 * next);
        }
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("gpu_form_learned");
        TCase *tcase = test_case_with(suite, "codes", 600, setup, teardown);
        tcase_add_test(tcase, codes_are_those_of_the_cpu_at_every_level);
        tcase_add_test(tcase, recorded_keys_too);
        tcase_add_test(tcase, residuals_have_places_without_gaps);
        return test_main(suite);
}
