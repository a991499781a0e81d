/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/gpu_score_learned.h"

#include <math.h>
#include <string.h>

#include "gpu/args/transforms_fill.h"
#include "sketch/fit.h"

enum { RANKS, ALONE, RANDOM, ANY, FRAMES };

#define SAMPLE 300

/* Rows whose coordinates differ in their deviations, and lean on one another; with means. */
static void sample(dci_rng *rng, float *rows, size_t dim, double decay)
{
        for (size_t i = 0; i < SAMPLE; i++)
                for (size_t j = 0; j < dim; j++) {
                        const double own = test_quick_normal(rng) * exp(-decay * (double)j / (double)dim);
                        rows[i * dim + j] = (float)(own + (j > 0 ? 0.3 * (double)rows[i * dim + j - 1] : 0.5));
                }
}

static void moments_of(const dci_context *context, const float *rows, size_t dim, void *memory, dci_moments *out)
{
        dci_moments_init(context->kernels, dim, memory, out);
        for (size_t i = 0; i < SAMPLE; i += DCI_MOMENT_ROWS)
                dci_moments_add(out, rows + i * dim, dim, SAMPLE - i < DCI_MOMENT_ROWS ? SAMPLE - i : DCI_MOMENT_ROWS);
}

static void fit(score_state *s, dci_coder *coder, double decay)
{
        const size_t dim = coder->dim;
        float *rows = malloc(SAMPLE * dim * sizeof *rows), *queries = malloc(SAMPLE * dim * sizeof *queries);
        void *sums = malloc(dci_moments_bytes(dim)), *others = malloc(dci_moments_bytes(dim)),
             *spare = malloc(dci_fit_scratch_bytes(dim));
        dci_moments of_rows, of_queries;
        sample(&s->rng, rows, dim, decay);
        sample(&s->rng, queries, dim, 0.5);
        moments_of(s->t->context, rows, dim, sums, &of_rows);
        moments_of(s->t->context, queries, dim, others, &of_queries);
        ck_assert_int_eq(dci_fit(&of_rows, &of_queries, spare, coder), DCI_OK);
        test_free(rows, queries, sums, others, spare);
}

/* The levels are the coder's own. */
static void any_layout(score_state *s, dci_coder *coder)
{
        uint8_t levels[DCI_CODE_WIDTHS][16];
        memcpy(levels, coder->layout.levels, sizeof levels);
        gpu_draw_layout(&s->rng, coder);
        memcpy(coder->layout.levels, levels, sizeof levels);
}

static void any_frame(score_state *s, dci_coder *coder)
{
        const size_t dim = coder->dim;
        any_layout(s, coder);
        dci_coder_finish_learned(coder);
        for (size_t j = 0; j < dim; j++) {
                coder->centre[j] = (float)test_quick_normal(&s->rng);
                coder->worth[j] = 1.0f;
        }
        for (size_t i = 0; i < dim * dim; i++) {
                coder->to[i] = (float)test_quick_normal(&s->rng);
                coder->from[i] = (float)test_quick_normal(&s->rng);
        }
}

void score_learned_coder(score_state *s, size_t row, size_t head)
{
        const size_t dim = (size_t)s->c->dim;
        const int32_t bits = s->c->bits, kind = (int32_t)((row + 2 * head) % FRAMES);
        dci_coder *coder = &s->coders[row * SCORE_HEADS + head];
        void *memory = s->memory[row * SCORE_HEADS + head] =
                malloc(dci_coder_bytes(DCI_CODER_LEARNED, dim) + dci_coder_bytes(DCI_CODER_ROTATED, dim));
        float centre[DCI_GPU_MAX_DIM];
        for (size_t j = 0; j < dim; j++)
                centre[j] = (float)test_quick_normal(&s->rng);
        if (kind == RANDOM) {
                dci_coder_init(s->t->context, DCI_CODER_ROTATED, dim, bits, SCORE_SEED, centre, memory, coder);
                return;
        }
        dci_coder_init_learned(s->t->context, dim, bits, kind == ALONE, memory, coder);
        if (kind == ANY)
                any_frame(s, coder);
        else
                fit(s, coder, kind == ALONE ? 6.0 : 3.0);
}

void score_learned_frames(score_state *s)
{
        const size_t n_heads = (size_t)s->c->n_heads, each = DCI_GPU_TRANSFORM_BYTES(s->c->dim);
        s->frames = gpu_take(s->t, SCORE_ROWS * n_heads * each, GPU_DEVICE);
        for (size_t r = 0; r < SCORE_ROWS; r++)
                for (size_t h = 0; h < n_heads; h++)
                        dci_gpu_transform_fill(&s->coders[r * SCORE_HEADS + h],
                                               s->frames->image + (r * n_heads + h) * each);
}

double score_learned_doubt(const dci_coder *coder, const float *query, const dci_coded_query *coded)
{
        const size_t dim = coder->dim;
        double y[DCI_GPU_MAX_DIM], size[DCI_GPU_MAX_DIM], most = 0.0, sum = 0.0;
        if (coder->kind != DCI_CODER_LEARNED)
                return 0.0;
        for (size_t j = 0; j < coder->n_coded; j++) {
                y[j] = size[j] = 0.0;
                for (size_t i = 0; i < dim; i++) {
                        const double product = (double)coder->from[j * dim + i] * (double)query[i];
                        y[j] += product;
                        size[j] += fabs(product);
                }
                most = fmax(most, fabs(y[j]));
        }
        for (size_t j = 0; j < coder->n_coded && most > 0.0; j++) {
                const double whole = 127.0 * y[j] / most, from_half = fabs(whole - floor(whole) - 0.5);
                if (from_half < 127.0 * 4e-6 * size[j] / most + 1e-5)
                        sum += 2.0 * (double)coded->half_step * (dci_coder_width(coder, j) == 8 ? 128.0 : 64.0);
        }
        return sum;
}
