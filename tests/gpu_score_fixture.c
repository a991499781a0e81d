/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/gpu_score_fixture.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/gpu_score_learned.h"

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
                args.ring = (dci_gpu_query_ring){s->ring->device, (const int32_t *)(void *)s->slots->device,
                                                 score_ring_bytes(c)};
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
        const dci_coder *coder = score_coder_of(s, l->row, l->head);
        void *scratch = aligned_alloc(64, dci_coder_scratch_bytes(dim));
        int8_t bytes[DCI_GPU_MAX_DIM + 32];
        dci_coded_query coded;
        double off = 0.0;
        dci_coder_query(coder, l->query, scratch, bytes, &coded);
        const double doubt = score_learned_doubt(coder, l->query, &coded), learned = s->c->kind == DCI_GPU_LEARNED;
        for (size_t j = 0; j < dim; j++) /* rounding of the product with the centre */
                off += 1e-6 * fabs((double)l->query[j] * (double)coder->centre[j]);
        for (size_t g = 0; g < l->n_groups; g++) {
                const size_t row = l->units == NULL ? g : (size_t)DCI_GPU_SCORED(l->units, 0, (int32_t)g);
                const size_t at = row % s->per_chunk;
                const unsigned char *chunk = score_chunk_image(s, l->row, row / s->per_chunk, l->head);
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
                        score_chunk_image(s, l->row, g / s->per_chunk, l->head) + g % s->per_chunk * s->width * 2;
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
                        memcpy(s->ring->image + (size_t)gpu_ints(s->rows)[i] * score_ring_bytes(c) +
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
