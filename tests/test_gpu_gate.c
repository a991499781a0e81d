/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * When lists are decided again, and lists from what is kept: against a model of both. And the choice into what is kept: taken with the room of a
 * plan it is the list that the plan's own choice makes.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu_fixture.h"

#include "simd/kernels.h"

#define ROOM ((size_t)12 << 20)
#define SEQUENCES 4
#define ROWS 6
#define SINK 5
#define WINDOW 9
#define MARKS ((size_t)16) /* of a row */
GPU_SUITE(2 * ROOM)

typedef struct shape {
        const char *name;
        int32_t n_heads, group, dim, query_dtype, how;
} shape;

static const shape shapes[] = {
        {"after some plans", 2, 4, 128, DCI_BF16, DCI_GPU_GATE_PERIOD},
        {"all heads", 8, 4, 128, DCI_BF16, DCI_GPU_GATE_BOUNDARY},
        {"all heads, f32", 3, 5, 96, DCI_F32, DCI_GPU_GATE_BOUNDARY},
        {"all heads, more than warps", 5, 16, 64, DCI_F16, DCI_GPU_GATE_BOUNDARY},
        {"each head", 8, 4, 128, DCI_BF16, DCI_GPU_GATE_HEAD},
        {"each head, one query", 2, 1, 256, DCI_F32, DCI_GPU_GATE_HEAD},
        {"each head, f16", 1, 16, 96, DCI_F16, DCI_GPU_GATE_HEAD},
        {"each head, many", 40, 2, 64, DCI_BF16, DCI_GPU_GATE_HEAD},
};

/* What is kept of each row, with a gap after each part that nobody may write. */
typedef struct world {
        gpu_test *t;
        const shape *s;
        dci_rng rng;
        int32_t room, n_steps, budget;
        uint64_t row_bytes, counts_at, lists_at, queries_at, query_ld;
        gpu_buffer *rows, *n_tokens, *n_grouped, *queries, *selection, *due, *boundaries;
} world;

static const int32_t *got(const gpu_buffer *b)
{
        return (const int32_t *)(const void *)b->back;
}

static unsigned char *part_of(const world *w, int32_t row, uint64_t at)
{
        return w->selection->image + (uint64_t)row * w->row_bytes + at;
}

static void make(world *w, gpu_test *t, const shape *s, int32_t room, uint64_t seed)
{
        const uint64_t n_queries = (uint64_t)(s->n_heads * s->group);
        *w = (world){.t = t, .s = s, .room = room, .budget = SINK + WINDOW + room};
        gpu_reset(t);
        dci_rng_seed(&w->rng, seed);
        w->counts_at = 64;
        w->lists_at = w->counts_at + (uint64_t)s->n_heads * 4 + 32;
        w->queries_at = w->lists_at + (uint64_t)(s->n_heads * room) * 4 + 32;
        w->row_bytes = (w->queries_at + n_queries * (uint64_t)s->dim * 4 + 160) / 128 * 128;
        w->query_ld = (uint64_t)s->dim + 3;
        w->rows = gpu_take(t, SEQUENCES * 4, GPU_DEVICE);
        w->n_tokens = gpu_take(t, SEQUENCES * 4, GPU_DEVICE);
        w->n_grouped = gpu_take(t, SEQUENCES * 4, GPU_DEVICE);
        w->queries = gpu_take(t, SEQUENCES * n_queries * w->query_ld * 4, GPU_DEVICE);
        w->selection = gpu_take(t, ROWS * w->row_bytes, GPU_DEVICE);
        w->due = gpu_take(t, (size_t)(SEQUENCES * s->n_heads) * 4, GPU_DEVICE);
        w->boundaries = gpu_take(t, ROWS * (MARKS + 3), GPU_MAPPED);
        for (int32_t r = 0; r < ROWS; r++)
                memset(part_of(w, r, 0), 0, DCI_GPU_SELECTION_INTS * 4);
}

static dci_gpu_selection_cache selection_of(const world *w, bool queries)
{
        unsigned char *at = gpu_at(w->selection, false);
        return (dci_gpu_selection_cache){.state = (int32_t *)(void *)at,
                                         .counts = (int32_t *)(void *)(at + w->counts_at),
                                         .lists = (int32_t *)(void *)(at + w->lists_at),
                                         .queries = queries ? (float *)(void *)(at + w->queries_at) : NULL,
                                         .row_bytes = w->row_bytes,
                                         .room = w->room};
}

static dci_gpu_sizes sizes_of(const world *w)
{
        return (dci_gpu_sizes){.sink = SINK, .window = WINDOW, .budget = w->budget, .unit = 8};
}

/* Computed again, from dci/kv.h: how many candidates there are, and places for them; false: all is attended to. */
static bool view_of(const world *w, int32_t n, int32_t n_grouped, int32_t *out_candidates, int32_t *out_room)
{
        int32_t candidates = 0;
        while (SINK + candidates + 8 + WINDOW <= n && candidates + 8 <= n_grouped)
                candidates += 8;
        *out_candidates = candidates;
        *out_room = w->budget - (n - candidates) > 0 ? w->budget - (n - candidates) : 0;
        return n > w->budget && candidates > *out_room;
}

/* --- the gate ------------------------------------------------------------------------------------------------------- */

/* Queries near those that are kept, of some heads; others have nothing to do with them, and some are zeros. */
static void draw_queries(world *w)
{
        const shape *s = w->s;
        const size_t dim = (size_t)s->dim, es = dci_dtype_size((dci_dtype)s->query_dtype);
        float x[DCI_GPU_MAX_DIM];
        for (int32_t i = 0; i < SEQUENCES; i++)
                for (int32_t q = 0; q < s->n_heads * s->group; q++) {
                        const float *kept =
                                (const float *)(const void *)part_of(w, gpu_ints(w->rows)[i], w->queries_at) +
                                (size_t)q * dim;
                        const uint64_t kind = dci_rng_below(&w->rng, 12);
                        for (size_t j = 0; j < dim; j++) {
                                const float own = (float)test_quick_normal(&w->rng),
                                            before = isnan(kept[j]) ? own : kept[j];
                                x[j] = kind == 0 ? 0.0f : kind < 3 ? own : before * 8.0f + 0.7f * own;
                        }
                        const size_t at = (size_t)(i * s->n_heads * s->group + q) * w->query_ld;
                        w->t->context->kernels->narrow[s->query_dtype - 1](x, dim, w->queries->image + at * es);
                }
}

static void draw_lengths(world *w, int32_t step)
{
        for (int32_t i = 0; i < SEQUENCES; i++) {
                gpu_ints(w->rows)[i] = (5 * i + step) % ROWS;
                gpu_ints(w->n_tokens)[i] =
                        i == step % 7 ? w->budget : w->budget + 1 + (int32_t)dci_rng_below(&w->rng, 200);
                gpu_ints(w->n_grouped)[i] = gpu_ints(w->n_tokens)[i] - (int32_t)dci_rng_below(&w->rng, 12);
        }
}

/* By kv head; the mean of all. */
static double turns_of(world *w, int32_t i, double *out)
{
        const shape *s = w->s;
        const size_t dim = (size_t)s->dim;
        double all = 0.0;
        for (int32_t h = 0; h < s->n_heads; h++) {
                out[h] = 0.0;
                for (int32_t g = 0; g < s->group; g++) {
                        const size_t q = (size_t)(h * s->group + g),
                                     at = (size_t)(i * s->n_heads * s->group) * w->query_ld + q * w->query_ld;
                        const float *kept =
                                (const float *)(const void *)part_of(w, gpu_ints(w->rows)[i], w->queries_at) + q * dim;
                        long double a = 0, b = 0, both = 0;
                        for (size_t j = 0; j < dim; j++) {
                                const long double x = gpu_number(w->queries->image, at + j, s->query_dtype);
                                a += x * x;
                                b += (long double)kept[j] * kept[j];
                                both += x * kept[j];
                        }
                        out[h] += a == 0 || b == 0 ? (double)(a == b) : (double)(both / sqrtl(a * b));
                }
                out[h] /= s->group;
                all += out[h];
        }
        return all / s->n_heads;
}

/* No number is so near tau that rounding decides. */
static bool are_clear(const world *w, double (*turns)[64], const double *all, double tau)
{
        bool clear = true;
        for (int32_t i = 0; i < SEQUENCES; i++) {
                clear = clear && !(fabs(all[i] - tau) < 1e-4);
                for (int32_t h = 0; h < w->s->n_heads; h++)
                        clear = clear && !(fabs(turns[i][h] - tau) < 1e-4);
        }
        return clear;
}

/* What the gate must leave, in the images. */
static void expect_gate(world *w, const dci_gpu_gate_args *args, double (*turns)[64], const double *all, size_t *n)
{
        const shape *s = w->s;
        for (int32_t i = 0; i < SEQUENCES; i++) {
                const int32_t row = gpu_ints(w->rows)[i];
                int32_t *state = (int32_t *)(void *)part_of(w, row, 0), *due = gpu_ints(w->due) + i * s->n_heads;
                int32_t candidates, room;
                const bool sparse = view_of(w, gpu_ints(w->n_tokens)[i], gpu_ints(w->n_grouped)[i], &candidates, &room);
                const bool listed = state[DCI_GPU_SELECTION_LISTED] != 0;
                bool decides = !listed || s->how == DCI_GPU_GATE_HEAD;
                if (s->how == DCI_GPU_GATE_PERIOD && state[DCI_GPU_SELECTION_SINCE] >= args->period)
                        decides = true;
                if (s->how == DCI_GPU_GATE_BOUNDARY && all[i] < args->tau)
                        decides = true;
                for (int32_t h = 0; h < s->n_heads; h++) {
                        const bool later = s->how == DCI_GPU_GATE_HEAD && listed && turns[i][h] >= args->tau;
                        due[h] = !sparse || !decides ? 0 : later ? DCI_GPU_DUE_LATER : DCI_GPU_DUE_NOW;
                        n[due[h]]++;
                }
                if (!sparse)
                        continue;
                if (args->boundaries != NULL && listed && decides) {
                        w->boundaries
                                ->image[(size_t)row * (MARKS + 3) + (size_t)(gpu_ints(w->n_tokens)[i] - 1) % MARKS] = 1;
                        n[3]++;
                }
                state[DCI_GPU_SELECTION_SINCE] = decides ? 1 : state[DCI_GPU_SELECTION_SINCE] + 1;
                if (decides) {
                        state[DCI_GPU_SELECTION_LISTED] = 1;
                        state[DCI_GPU_SELECTION_END] = candidates;
                }
                float *kept = (float *)(void *)part_of(w, row, w->queries_at);
                for (int32_t q = 0; q < s->n_heads * s->group && s->how != DCI_GPU_GATE_PERIOD; q++)
                        for (int32_t j = 0; j < s->dim; j++)
                                kept[q * s->dim + j] =
                                        gpu_number(w->queries->image,
                                                   (size_t)(i * s->n_heads * s->group + q) * w->query_ld + (size_t)j,
                                                   s->query_dtype) *
                                        args->scale;
        }
}

/* A graph is made in the first step, and launched in most; loops over shapes. */
START_TEST(lists_are_due_when_they_should)
{
        world w;
        double turns[SEQUENCES][64], all[SEQUENCES];
        size_t n[4] = {0};
        void *graph = NULL;
        make(&w, &gpu, &shapes[_i], 33, 70 + (uint64_t)_i);
        const shape *s = w.s;
        dci_gpu_gate_args args = {.n_sequences = SEQUENCES,
                                  .n_heads = s->n_heads,
                                  .group = s->group,
                                  .dim = s->dim,
                                  .how = s->how,
                                  .period = 3,
                                  .query_dtype = s->query_dtype,
                                  .scale = 0.125f,
                                  .tau = 0.55,
                                  .sizes = sizes_of(&w),
                                  .queries = gpu_at(w.queries, false),
                                  .query_ld = w.query_ld,
                                  .rows = gpu_at(w.rows, false),
                                  .n_tokens = gpu_at(w.n_tokens, false),
                                  .n_grouped = gpu_at(w.n_grouped, false),
                                  .selection = selection_of(&w, s->how != DCI_GPU_GATE_PERIOD),
                                  .due = gpu_at(w.due, false),
                                  .boundaries = s->how == DCI_GPU_GATE_BOUNDARY ? gpu_at(w.boundaries, false) : NULL,
                                  .boundary_step = MARKS + 3,
                                  .boundary_mask = MARKS - 1};
        for (int32_t step = 0; step < (test_short() ? 12 : 40); step++) {
                draw_lengths(&w, step % 2);
                memset(w.boundaries->image, 7, ROWS * (MARKS + 3));
                do {
                        draw_queries(&w);
                        for (int32_t i = 0; i < SEQUENCES; i++)
                                all[i] = turns_of(&w, i, turns[i]);
                } while (!are_clear(&w, turns, all, args.tau));
                gpu_send_all(&gpu);
                if (graph == NULL) {
                        ck_ok(gpu.ops->capture_begin(gpu.gpu, gpu.stream));
                        ck_ok(gpu.ops->gate(gpu.gpu, gpu.stream, &args));
                        ck_ok(gpu.ops->capture_end(gpu.gpu, gpu.stream, &graph));
                }
                if (step % 3 == 2)
                        ck_ok(gpu.ops->gate(gpu.gpu, gpu.stream, &args));
                else
                        ck_ok(gpu.ops->graph_launch(gpu.gpu, graph, gpu.stream));
                expect_gate(&w, &args, turns, all, n);
                gpu_same(&gpu, w.due, s->name);
                gpu_same(&gpu, w.selection, s->name);
                gpu_same(&gpu, w.queries, s->name);
                gpu_same(&gpu, w.boundaries, s->name);
        }
        ck_assert((n[3] > 0) == (s->how == DCI_GPU_GATE_BOUNDARY));
        ck_assert_msg(n[0] > 0 && n[DCI_GPU_DUE_NOW] > 0, "%s: %zu and %zu", s->name, n[0], n[DCI_GPU_DUE_NOW]);
        ck_assert((n[DCI_GPU_DUE_LATER] > 0) == (s->how == DCI_GPU_GATE_HEAD));
        gpu.ops->graph_destroy(gpu.gpu, graph);
}
END_TEST

/* --- lists ---------------------------------------------------------------------------------------------------------- */

typedef struct lists {
        int32_t stride, max_groups, group;
        gpu_buffer *positions, *counts, *header, *scores;
} lists;

static void take_lists(world *w, lists *l)
{
        const size_t n = (size_t)(SEQUENCES * w->s->n_heads);
        l->stride = w->budget + 3;
        l->max_groups = w->budget + 520;
        l->group = w->s->group;
        l->positions = gpu_take(w->t, n * (size_t)l->stride * 4, GPU_DEVICE);
        l->counts = gpu_take(w->t, n * 4, GPU_DEVICE);
        l->header = gpu_take(w->t, (size_t)SEQUENCES * 3 * 4, GPU_DEVICE);
        l->scores = gpu_take(w->t, n * (size_t)(l->max_groups * l->group) * 4, GPU_DEVICE);
}

static dci_gpu_reuse_args take_args(const world *w, const lists *l, bool drops)
{
        return (dci_gpu_reuse_args){.n_sequences = SEQUENCES,
                                    .n_heads = w->s->n_heads,
                                    .group = l->group,
                                    .stride = l->stride,
                                    .max_groups = l->max_groups,
                                    .sizes = sizes_of(w),
                                    .rows = gpu_at(w->rows, false),
                                    .n_tokens = gpu_at(w->n_tokens, false),
                                    .n_grouped = gpu_at(w->n_grouped, false),
                                    .selection = selection_of(w, false),
                                    .scores = drops ? gpu_at(l->scores, false) : NULL,
                                    .positions = gpu_at(l->positions, false),
                                    .counts = gpu_at(l->counts, false),
                                    .sink_end = gpu_at(l->header, false),
                                    .recent_begin = (int32_t *)gpu_at(l->header, false) + SEQUENCES,
                                    .after = (int32_t *)gpu_at(l->header, false) + 2 * SEQUENCES};
}

/* Candidates in no order; some beyond those that there are, and one twice. */
static void draw_kept(world *w)
{
        for (int32_t r = 0; r < ROWS; r++)
                for (int32_t h = 0; h < w->s->n_heads; h++) {
                        int32_t *list = (int32_t *)(void *)part_of(w, r, w->lists_at) + h * w->room;
                        const int32_t most = w->budget + 180;
                        const int32_t n = dci_rng_below(&w->rng, 5) == 0
                                                  ? (int32_t)dci_rng_below(&w->rng, (uint64_t)w->room + 1)
                                                  : w->room;
                        char *used = calloc((size_t)most, 1);
                        ck_assert_ptr_nonnull(used);
                        ((int32_t *)(void *)part_of(w, r, w->counts_at))[h] = n;
                        for (int32_t i = 0; i < n; i++) {
                                do
                                        list[i] = (int32_t)dci_rng_below(&w->rng, (uint64_t)most);
                                while (used[list[i]]);
                                used[list[i]] = 1;
                        }
                        if (n > 1 && h == 0)
                                list[1] = list[0];
                        free(used);
                }
}

/* What must come out, in the images; n: lists that lost something. */
static void expect_lists(world *w, lists *l, bool drops, size_t *n)
{
        for (int32_t i = 0; i < SEQUENCES; i++) {
                const int32_t row = gpu_ints(w->rows)[i];
                int32_t candidates, room;
                const bool sparse = view_of(w, gpu_ints(w->n_tokens)[i], gpu_ints(w->n_grouped)[i], &candidates, &room);
                gpu_ints(l->header)[i] = sparse ? SINK : 0;
                gpu_ints(l->header)[SEQUENCES + i] = sparse ? SINK + candidates : 0;
                gpu_ints(l->header)[2 * SEQUENCES + i] = gpu_ints(w->n_tokens)[i];
                for (int32_t h = 0; h < w->s->n_heads; h++) {
                        const int32_t *kept = (const int32_t *)(const void *)part_of(w, row, w->lists_at) + h * w->room;
                        const int32_t list = i * w->s->n_heads + h,
                                      n_kept = ((const int32_t *)(const void *)part_of(w, row, w->counts_at))[h];
                        int32_t *positions = gpu_ints(l->positions) + list * l->stride, taken = 0, count = 0;
                        char *marks = calloc((size_t)candidates + 1, 1);
                        ck_assert_ptr_nonnull(marks);
                        for (int32_t k = 0; k < n_kept && sparse && taken < room; k++)
                                if (kept[k] < candidates) {
                                        marks[kept[k]] = 1;
                                        taken++;
                                }
                        *n += sparse && taken < n_kept;
                        for (int32_t c = 0; c < candidates; c++) {
                                if (!marks[c])
                                        continue;
                                positions[count++] = SINK + c;
                                for (int32_t q = 0; q < l->group && drops; q++)
                                        ((float *)(void *)l->scores->image)[(list * l->max_groups + c) * l->group + q] =
                                                -FLT_MAX;
                        }
                        gpu_ints(l->counts)[list] = count;
                        free(marks);
                }
        }
}

static const struct {
        int32_t n_heads, group, room;
} taken[] = {{8, 4, 176}, {2, 1, 1}, {3, 5, 40}, {2, 2, 1500}, {1, 16, 64}};

/* In one call with what a tail reads, and in two; loops over shapes. */
START_TEST(lists_are_taken_from_what_is_kept)
{
        world w;
        lists l;
        size_t n = 0;
        const shape s = {"taken", taken[_i].n_heads, taken[_i].group, 64, DCI_F32, DCI_GPU_GATE_HEAD};
        for (int32_t step = 0; step < 9; step++) {
                make(&w, &gpu, &s, taken[_i].room, 170 + (uint64_t)(10 * _i + step));
                take_lists(&w, &l);
                draw_lengths(&w, step);
                draw_kept(&w);
                const bool drops = step % 3 != 0, twice = step % 3 == 2;
                dci_gpu_reuse_args args = take_args(&w, &l, drops && !twice);
                gpu_send_all(&gpu);
                ck_ok(gpu.ops->reuse(gpu.gpu, gpu.stream, &args));
                args = take_args(&w, &l, true);
                args.selection.lists = NULL;
                if (twice)
                        ck_ok(gpu.ops->reuse(gpu.gpu, gpu.stream, &args));
                expect_lists(&w, &l, drops, &n);
                gpu_same(&gpu, l.positions, s.name);
                gpu_same(&gpu, l.counts, s.name);
                gpu_same(&gpu, l.header, s.name);
                gpu_same(&gpu, l.scores, s.name);
                gpu_same(&gpu, w.selection, s.name);
        }
        ck_assert_uint_gt(n, 0);
}
END_TEST

/* --- the choice into what is kept ------------------------------------------------------------------------------------- */

typedef struct choosing {
        gpu_buffer *parts, *lasts, *found, *n_found;
} choosing;

static dci_gpu_select_args select_args(const world *w, const lists *l, const choosing *c, int32_t shift)
{
        return (dci_gpu_select_args){.n_sequences = SEQUENCES,
                                     .n_heads = w->s->n_heads,
                                     .group = l->group,
                                     .group_shift = shift,
                                     .weigh = shift > 0 ? DCI_GPU_WEIGH_GROUPS : DCI_GPU_WEIGH_KEPT,
                                     .n_parts = 1,
                                     .max_groups = l->max_groups,
                                     .stride = l->stride,
                                     .sizes = sizes_of(w),
                                     .rows = gpu_at(w->rows, false),
                                     .n_tokens = gpu_at(w->n_tokens, false),
                                     .n_grouped = gpu_at(w->n_grouped, false),
                                     .scores = gpu_at(l->scores, false),
                                     .parts = gpu_at(c->parts, false),
                                     .lasts = gpu_at(c->lasts, false),
                                     .found = gpu_at(c->found, false),
                                     .n_found = gpu_at(c->n_found, false),
                                     .positions = gpu_at(l->positions, false),
                                     .counts = gpu_at(l->counts, false),
                                     .sink_end = gpu_at(l->header, false),
                                     .recent_begin = (int32_t *)gpu_at(l->header, false) + SEQUENCES,
                                     .after = (int32_t *)gpu_at(l->header, false) + 2 * SEQUENCES};
}

static void draw_scores(world *w, lists *l, choosing *c)
{
        const size_t n = (size_t)(SEQUENCES * w->s->n_heads);
        gpu_test *t = w->t;
        c->parts = gpu_take(t, n * 2 * (size_t)l->group * 2 * 4, GPU_DEVICE);
        c->lasts = gpu_take(t, (size_t)(ROWS * w->s->n_heads) * 4, GPU_DEVICE);
        c->found = gpu_take(t, n * DCI_GPU_FOUND * 8, GPU_DEVICE);
        c->n_found = gpu_take(t, n * 2 * 4, GPU_DEVICE);
        memset(c->lasts->image, 0, c->lasts->n_bytes);
        memset(c->n_found->image, 0, c->n_found->n_bytes);
        gpu_numbers(&w->rng, l->scores->image, l->scores->n_bytes / 4, DCI_F32, 2.0f);
        float *parts = (float *)(void *)c->parts->image;
        for (size_t i = 0; i < n; i++)
                for (size_t p = 0; p < 2; p++)
                        for (size_t q = 0; q < (size_t)l->group; q++) {
                                parts[((2 * i + p) * (size_t)l->group + q) * 2] = 7.0f - (float)q;
                                parts[((2 * i + p) * (size_t)l->group + q) * 2 + 1] = 3.0f + (float)p;
                        }
        for (int32_t i = 0; i < SEQUENCES * w->s->n_heads; i++)
                gpu_ints(w->due)[i] = (int32_t)dci_rng_below(&w->rng, 3);
}

/* The same call that also takes all lists, from what is kept before it; whatever number of groups it is told. */
static void takes_too(world *w, lists *l, dci_gpu_select_args args)
{
        const size_t n = (size_t)(SEQUENCES * w->s->n_heads);
        gpu_fetch(w->t, l->header);
        memcpy(l->header->image, l->header->back, l->header->n_bytes);
        for (size_t list = 0; list < n; list++) {
                const int32_t count = got(l->counts)[list];
                gpu_ints(l->counts)[list] = count;
                memcpy(gpu_ints(l->positions) + list * (size_t)l->stride, got(l->positions) + list * (size_t)l->stride,
                       (size_t)count * 4);
        }
        unsigned char *kept = malloc(w->selection->n_bytes);
        ck_assert_ptr_nonnull(kept);
        memcpy(kept, w->selection->back, w->selection->n_bytes);
        for (int32_t likely = 0; likely < 20; likely += 13) {
                gpu_send(w->t, w->selection);
                ck_ok(w->t->ops->fill(w->t->gpu, w->t->stream, l->positions->device, 0x5a, l->positions->n_bytes));
                ck_ok(w->t->ops->fill(w->t->gpu, w->t->stream, l->counts->device, 0x5a, l->counts->n_bytes));
                ck_ok(w->t->ops->fill(w->t->gpu, w->t->stream, l->header->device, 0x5a, l->header->n_bytes));
                args.takes = 1;
                args.likely_groups = likely;
                ck_ok(w->t->ops->select(w->t->gpu, w->t->stream, &args));
                gpu_same(w->t, l->counts, "counts");
                gpu_same(w->t, l->header, "header");
                gpu_fetch(w->t, l->positions);
                for (size_t list = 0; list < n; list++)
                        ck_assert_mem_eq(got(l->positions) + list * (size_t)l->stride,
                                         gpu_ints(l->positions) + list * (size_t)l->stride,
                                         (size_t)gpu_ints(l->counts)[list] * 4);
                gpu_fetch(w->t, w->selection);
                ck_assert_mem_eq(w->selection->back, kept, w->selection->n_bytes);
        }
        free(kept);
}

/* Lists that are due are kept in full, and a plan finds in them what it would have chosen; of others nothing changes. Loops over shapes. */
START_TEST(what_is_kept_is_what_a_plan_chooses)
{
        world w;
        lists l;
        choosing c;
        const int32_t shift = _i % 2 == 0 ? 0 : 3;
        const shape s = {"kept", taken[_i / 2].n_heads, taken[_i / 2].group, 64, DCI_F32, DCI_GPU_GATE_HEAD};
        make(&w, &gpu, &s, taken[_i / 2].room, 270 + (uint64_t)_i);
        take_lists(&w, &l);
        draw_lengths(&w, 1);
        draw_scores(&w, &l, &c);
        draw_kept(&w);
        dci_gpu_select_args args = select_args(&w, &l, &c, shift);
        gpu_send_all(&gpu);
        ck_ok(gpu.ops->select(gpu.gpu, gpu.stream, &args));
        gpu_fetch(&gpu, l.positions);
        gpu_fetch(&gpu, l.counts);
        gpu_fetch(&gpu, l.header);
        memcpy(l.positions->image, l.positions->back, l.positions->n_bytes);
        memcpy(l.counts->image, l.counts->back, l.counts->n_bytes);
        memcpy(l.header->image, l.header->back, l.header->n_bytes);
        /* Nothing is written out. */
        args.selection = selection_of(&w, false);
        args.due = gpu_at(w.due, false);
        args.due_is = DCI_GPU_DUE_LATER;
        ck_ok(gpu.ops->select(gpu.gpu, gpu.stream, &args));
        gpu_same(&gpu, l.positions, s.name);
        gpu_same(&gpu, l.counts, s.name);
        gpu_same(&gpu, l.header, s.name);
        gpu_same(&gpu, l.scores, s.name);
        gpu_same(&gpu, c.n_found, s.name);
        gpu_fetch(&gpu, w.selection);
        const dci_gpu_reuse_args take = take_args(&w, &l, false);
        ck_ok(gpu.ops->reuse(gpu.gpu, gpu.stream, &take));
        gpu_fetch(&gpu, l.positions);
        gpu_fetch(&gpu, l.counts);
        for (int32_t list = 0; list < SEQUENCES * s.n_heads; list++) {
                const int32_t i = list / s.n_heads, h = list % s.n_heads, row = gpu_ints(w.rows)[i];
                const size_t at = (size_t)(unsigned char *)part_of(&w, row, w.lists_at) - (size_t)w.selection->image +
                                  (size_t)(h * w.room) * 4,
                             counts_at = (size_t)row * w.row_bytes + w.counts_at + (size_t)h * 4;
                int32_t candidates, room, n_kept;
                const bool sparse = view_of(&w, gpu_ints(w.n_tokens)[i], gpu_ints(w.n_grouped)[i], &candidates, &room);
                memcpy(&n_kept, w.selection->back + counts_at, 4);
                if (gpu_ints(w.due)[list] != DCI_GPU_DUE_LATER) {
                        ck_assert_mem_eq(w.selection->back + at, w.selection->image + at, (size_t)w.room * 4);
                        ck_assert_mem_eq(w.selection->back + counts_at, w.selection->image + counts_at, 4);
                        continue;
                }
                ck_assert_int_eq(n_kept, !sparse ? 0 : candidates < w.room ? candidates : w.room);
                ck_assert_int_eq(got(l.counts)[list], gpu_ints(l.counts)[list]);
                ck_assert_mem_eq(got(l.positions) + list * l.stride, gpu_ints(l.positions) + list * l.stride,
                                 (size_t)gpu_ints(l.counts)[list] * 4);
        }
        takes_too(&w, &l, args);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("gpu_gate");
        TCase *tcase = test_case_with(suite, "kernels", 120, setup, teardown);
        tcase_add_loop_test(tcase, lists_are_due_when_they_should, 0, (int)COUNT(shapes));
        tcase_add_loop_test(tcase, lists_are_taken_from_what_is_kept, 0, (int)COUNT(taken));
        tcase_add_loop_test(tcase, what_is_kept_is_what_a_plan_chooses, 0, 2 * (int)COUNT(taken));
        return test_main(suite);
}
