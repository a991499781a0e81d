/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The choice against a model that computes relevances in double precision and sorts all of them. Groups whose relevances differ by less than
 * rounding may change places; but whatever was in its place before, and however often it is asked, the choice is the same to the bit.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/gpu_select_model.h"

#define ROOM ((size_t)28 << 20)
#define MAX_SEQUENCES 6
GPU_SUITE(ROOM)

static const choose_case shapes[] = {
        {"tokens", GAUSSIAN, 4, KEPT, 0, 0, 16, 5, 2, 128, 6000, 0, 0, 0},
        {"a long list", GAUSSIAN, 4, KEPT, 0, 0, 64, 1, 2, 256, 40000, 1, 5, 0},
        {"one query head", GAUSSIAN, 1, KEPT, 0, 0, 1, 2, 2, 200, 9000, 1, 0, 0},
        {"two", GAUSSIAN, 2, KEPT, 0, 0, 7, 2, 2, 200, 9000, 0, 0, 0},
        {"five", GAUSSIAN, 5, KEPT, 0, 0, 33, 2, 2, 200, 9000, 1, 0, 0},
        {"eight", GAUSSIAN, 8, KEPT, 0, 0, 20, 2, 2, 200, 9000, 0, 0, 0},
        {"sixteen", GAUSSIAN, 16, KEPT, 0, 0, 20, 2, 2, 200, 9000, 0, 0, 0},
        {"the mean", GAUSSIAN, 4, EVEN, 0, 0, 20, 3, 2, 200, 9000, 0, 0, 0},
        {"pages", GAUSSIAN, 4, GROUPS, 4, 0, 8, 5, 2, 240, 20000, 0, 0, 0},
        {"pages by the mean", GAUSSIAN, 2, EVEN, 5, 0, 8, 3, 2, 500, 20000, 0, 3, 0},
        {"an order", GAUSSIAN, 4, EVEN, 4, ORDER, 8, 6, 2, 300, 20000, 0, 0, 0},
        {"an order by shares", GAUSSIAN, 2, GROUPS, 5, ORDER, 8, 6, 2, 500, 9000, 0, 3, 0},
        {"an order of few levels", LEVELS, 4, EVEN, 3, ORDER, 8, 6, 1, 200, 9000, 0, 0, 0},
        {"a long order", GAUSSIAN, 5, GROUPS, 3, ORDER, 8, 2, 1, 400, 100000, 0, 0, 0},
        {"listed groups", GAUSSIAN, 4, GROUPS, 0, 1, 8, 5, 2, 200, 12000, 0, 0, 0},
        {"listed groups, many wanted", GAUSSIAN, 4, GROUPS, 0, 1, 8, 1, 1, 2600, 12000, 0, 0, 0},
        {"some are estimated", GAUSSIAN, 4, GROUPS, 0, 1, 8, 5, 2, 200, 12000, 0, 0, 0.232},
        {"many are estimated of many", GAUSSIAN, 2, GROUPS, 0, 1, 8, 1, 2, 1500, 60000, 0, 0, 0.4},
        {"more than a block keeps", GAUSSIAN, 1, EVEN, 0, 1, 8, 1, 1, 300, 190000, 0, 0, 0.3},
        {"estimated by the mean", GAUSSIAN, 5, EVEN, 0, 1, 8, 3, 2, 200, 9000, 0, 0, 0.1},
        {"all are estimated", GAUSSIAN, 8, GROUPS, 0, 1, 8, 3, 2, 200, 9000, 0, 3, 1.0},
        {"next to nothing is estimated", GAUSSIAN, 4, GROUPS, 0, 1, 8, 6, 2, 200, 9000, 0, 0, 1e-9},
        {"equal ones are estimated", EQUAL, 4, GROUPS, 0, 1, 8, 3, 2, 300, 20000, 0, 0, 0.5},
        {"few levels are estimated", LEVELS, 4, GROUPS, 0, 1, 8, 6, 2, 300, 9000, 0, 0, 0.25},
        {"far from the best is estimated", HUGE_ONES, 4, GROUPS, 0, 1, 8, 3, 2, 300, 9000, 0, 0, 0.25},
        {"no numbers are estimated", BAD, 4, GROUPS, 0, 1, 8, 3, 2, 300, 9000, 0, 0, 0.25},
        {"many wanted", GAUSSIAN, 4, KEPT, 0, 0, 8, 2, 1, 2048, 12000, 1, 0, 0},
        {"more than the blocks may leave", GAUSSIAN, 4, KEPT, 0, 0, 8, 1, 1, 6000, 20000, 1, 0, 0},
        {"the longest lists", GAUSSIAN, 1, KEPT, 0, 0, 8, 1, 1, DCI_GPU_MAX_LIST, 40000, 0, 0, 0},
        {"many lists", GAUSSIAN, 4, KEPT, 0, 0, 4, 6, 24, 100, 1500, 0, 0, 0},
        {"more than one window of bits", RUN, 1, KEPT, 0, 0, 8, 1, 1, 300, 300000, 0, 0, 0},
        {"few levels", LEVELS, 4, KEPT, 0, 0, 8, 3, 2, 300, 9000, 1, 0, 0},
        {"pages of few levels", LEVELS, 4, GROUPS, 4, 0, 8, 3, 2, 300, 9000, 0, 0, 0},
        {"all are equal", EQUAL, 4, KEPT, 0, 0, 8, 2, 2, 300, 40000, 0, 0, 0},
        {"all are equal, by the mean", EQUAL, 4, EVEN, 0, 0, 8, 2, 2, 300, 9000, 0, 0, 0},
        {"huge scores", HUGE_ONES, 4, GROUPS, 0, 0, 8, 2, 2, 300, 9000, 0, 0, 0},
        {"a run of the best", RUN, 4, KEPT, 0, 0, 8, 2, 2, 300, 40000, 0, 0, 0},
        {"the best in one block", COMB, 4, KEPT, 0, 0, 8, 1, 2, 700, 40000, 1, 0, 0},
        {"ever better", ASCENDING, 4, KEPT, 0, 0, 8, 2, 2, 300, 20000, 0, 0, 0},
        {"the last page is the best", ASCENDING, 4, GROUPS, 4, 0, 8, 6, 2, 300, 9000, 0, 0, 0},
        {"no numbers", BAD, 4, KEPT, 0, 0, 8, 2, 2, 300, 9000, 0, 0, 0},
        {"pages of no numbers", BAD, 4, GROUPS, 4, 0, 8, 2, 2, 300, 9000, 0, 0, 0},
        {"kept tokens outweigh all", OUTWEIGHED, 4, KEPT, 0, 0, 8, 2, 2, 300, 9000, 0, 0, 0},
};

/* --- what goes in ---------------------------------------------------------------------------------------------------- */

/* As GPUs make it: all bits. */
static float no_number(void)
{
        const uint32_t bits = 0x7fffffff;
        float x;
        memcpy(&x, &bits, sizeof x);
        return x;
}

static void take_chunks(choose_state *s, choose_chunks *c, int32_t n_each, size_t width)
{
        const int32_t n_chunks = n_each / DCI_GPU_CHUNK + 1, n = s->w->n_sequences * n_chunks;
        c->head_lists = s->head_lists;
        c->args = (dci_gpu_chunks){.stride = (uint64_t)n_chunks,
                                   .layer_at = 128,
                                   .head_bytes = (uint32_t)(DCI_GPU_CHUNK * width * sizeof(int32_t)),
                                   .piece_shift = 20};
        c->args.chunk_bytes = c->args.head_bytes * (uint64_t)s->w->n_heads + 128;
        c->memory = gpu_take(s->t, (size_t)(c->args.chunk_bytes * (uint64_t)n) + 128, GPU_DEVICE);
        c->numbers = gpu_take(s->t, (size_t)n * sizeof(int32_t), GPU_DEVICE);
        c->pieces = gpu_take(s->t, sizeof(void *), GPU_DEVICE);
        memcpy(c->pieces->image, &c->memory->device, sizeof c->memory->device);
        c->image_pieces[0] = c->memory->image;
        for (int32_t i = 0; i < n; i++) {
                const int32_t j = (int32_t)dci_rng_below(&s->rng, (uint64_t)i + 1);
                ints(c->numbers)[i] = ints(c->numbers)[j];
                ints(c->numbers)[j] = i;
        }
        c->args.numbers = gpu_at(c->numbers, false);
        c->args.pieces = gpu_at(c->pieces, false);
}

/* Candidates go to groups at random; most groups are small, one is large, and of every second head has nearly all. */
static void list_groups(choose_state *s, int32_t row, int32_t head, int32_t n)
{
        const int32_t n_groups = n / 7 + 1;
        const uint64_t in_large = head % 2 == 0 ? 5 : 57; /* of 60 */
        int32_t *of = malloc((size_t)(n + 1) * sizeof *of), *at = calloc((size_t)n_groups, sizeof *at);
        ck_assert(of != NULL && at != NULL);
        for (int32_t i = 0; i < n; i++) {
                of[i] = dci_rng_below(&s->rng, 60) < in_large ? n_groups / 2
                                                              : (int32_t)dci_rng_below(&s->rng, (uint64_t)n_groups);
                at[of[i]]++;
        }
        int32_t n_whole = 0;
        for (int32_t g = 0, first = 0; g < n_groups; g++) {
                const int32_t size = at[g];
                at[g] = first;
                if (size == 0)
                        continue; /* none is empty */
                int32_t *span = choose_in_chunks(&s->spans, row, head, n_whole++, 2);
                span[0] = first;
                span[1] = size;
                first += size;
        }
        for (int32_t i = 0; i < n; i++)
                *choose_in_chunks(&s->ids, row, head, at[of[i]]++, 1) = i;
        ints(s->n_clusters)[(row * s->w->n_heads + head) / s->head_lists] = n_whole;
        test_free(of, at);
}

/* An order of some of the candidates, which is any permutation of them; later ones are pages by position. */
static void put_order(choose_state *s, int32_t i, int32_t grouped)
{
        const int32_t per = 1 << s->w->shift, row = ints(s->rows)[i],
                      n = (i % 2 == 0 ? grouped : grouped / 3 * 2) / per * per,
                      room = (s->w->budget - s->sizes.window) / per,
                      n_static = (int32_t)dci_rng_below(&s->rng, (uint64_t)room + 1);
        for (int32_t h = 0; h < s->w->n_heads; h += s->head_lists)
                for (int32_t c = 0; c < n; c++) {
                        const int32_t other = (int32_t)dci_rng_below(&s->rng, (uint64_t)c + 1);
                        int32_t *here = choose_in_chunks(&s->ids, row, h, c, 1),
                                *there = choose_in_chunks(&s->ids, row, h, other, 1);
                        *here = *there;
                        *there = c;
                }
        ints(s->n_ordered)[i] = n;
        ints(s->n_static)[i] = n_static < n / per ? n_static : n / per;
}

static void make(choose_state *s, gpu_test *t, const choose_case *w, uint64_t seed, int32_t head_lists)
{
        *s = (choose_state){
                .t = t, .w = w, .n = w->n_sequences, .n_lists = w->n_sequences * w->n_heads, .head_lists = head_lists};
        gpu_reset(t);
        dci_rng_seed(&s->rng, seed);
        s->stride = w->budget + w->extra;
        s->sizes = (dci_gpu_sizes){.sink = 16,
                                   .window = w->budget / 4,
                                   .budget = w->budget,
                                   .unit = w->listed == ORDER ? 1 << w->shift
                                           : w->shift > 0     ? 8
                                                              : 1};
        if (seed % 3 == 2) { /* not all that is attended to counts */
                const int32_t counted[] = {0, 16, 16 + w->budget / 4};
                s->sizes.fixed = 1;
                s->sizes.counted = counted[seed / 3 % 3];
        }
        if (seed % 4 == 2) { /* half of the budget, for the longest */
                s->sizes.share = ((uint64_t)(uint32_t)w->budget << 31) / (uint32_t)w->most;
                s->sizes.page = 8;
                s->sizes.least = 24 + w->budget / 4;
        }
        s->max_groups = w->listed == CLUSTERS ? w->most / 7 + 2 : (w->most >> w->shift) + 1;
        const size_t lists = (size_t)s->n_lists, n = (size_t)s->n, stride = (size_t)s->stride, i = sizeof(int32_t);
        const size_t group = (size_t)w->group, groups = (size_t)s->max_groups, n_parts = (size_t)w->n_parts + 1;
        s->rows = gpu_take(t, n * i, GPU_DEVICE);
        s->n_tokens = gpu_take(t, n * i, GPU_DEVICE);
        s->n_grouped = gpu_take(t, n * i, GPU_DEVICE);
        s->n_clusters = gpu_take(t, lists * i, GPU_DEVICE);
        s->scores = gpu_take(t, lists * groups * group * sizeof(float), GPU_DEVICE);
        s->parts = gpu_take(t, lists * n_parts * group * 2 * sizeof(float), GPU_DEVICE);
        s->lasts = gpu_take(t, lists * sizeof(float), GPU_DEVICE);
        s->found = gpu_take(t, lists * DCI_GPU_FOUND * sizeof(uint64_t), GPU_DEVICE);
        s->n_found = gpu_take(t, lists * 2 * i, GPU_DEVICE);
        s->positions = gpu_take(t, lists * stride * i, GPU_DEVICE);
        s->counts = gpu_take(t, lists * i, GPU_DEVICE);
        s->header = gpu_take(t, 3 * n * i, GPU_DEVICE);
        s->ranked = gpu_take(t, lists * stride * i, GPU_DEVICE);
        s->n_ranked = gpu_take(t, lists * i, GPU_DEVICE);
        s->taken = gpu_take(t, w->estimated > 0 ? lists * groups * i : i, GPU_DEVICE);
        memset(s->taken->image, 0xff, s->taken->n_bytes);
        s->n_ordered = gpu_take(t, n * i, GPU_DEVICE);
        s->n_static = gpu_take(t, n * i, GPU_DEVICE);
        memset(s->n_found->image, 0, s->n_found->n_bytes);
        memset(s->lasts->image, 0, s->lasts->n_bytes);
        if (w->listed == CLUSTERS)
                take_chunks(s, &s->spans, s->max_groups, 2);
        if (w->listed)
                take_chunks(s, &s->ids, w->most, 1);
        s->relevance = malloc(groups * sizeof *s->relevance);
        s->order = malloc(groups * sizeof *s->order);
        s->members = malloc((stride + 1) * sizeof *s->members);
        ck_assert(s->relevance != NULL && s->order != NULL && s->members != NULL);
        for (int32_t r = 0; r < s->n; r++)
                ints(s->rows)[r] = s->n - 1 - r;
}

static void done(choose_state *s)
{
        test_free(s->relevance, s->order, s->members);
}

static float score_of(choose_state *s, int32_t g, int32_t n, float common)
{
        const float x = (float)test_quick_normal(&s->rng);
        switch (s->w->data) {
        case LEVELS:
                return (float)(g * 37 % 5);
        case EQUAL:
                return 1.25f;
        case HUGE_ONES:
                return 1e30f * x;
        case RUN:
                return g >= n / 3 && g < n / 3 + 400 ? 8 + 0.5f * x : x;
        case COMB:
                return (g >> 3) % 32 == 3 ? 8 + 0.5f * x : x;
        case ASCENDING:
                return 20.0f * (float)g / (float)n;
        case BAD:
                return dci_rng_below(&s->rng, 50) == 0   ? no_number()
                       : dci_rng_below(&s->rng, 50) == 0 ? INFINITY * x
                                                         : x;
        default:
                return 2.5f * (common + 0.5f * x);
        }
}

/* Scores of one list, and what is said about its parts. */
static void score(choose_state *s, int32_t i, int32_t h)
{
        const int32_t list = i * s->w->n_heads + h, group = s->w->group, n_parts = s->w->n_parts;
        const dci_gpu_view view = choose_view_of(s, i);
        const int32_t n = choose_groups_of(s, i, h, &view), each = (n + n_parts - 1) / n_parts;
        float *scores = floats(s->scores) + (size_t)list * (size_t)s->max_groups * (size_t)group;
        float *parts = floats(s->parts) + (size_t)list * (size_t)(n_parts + 1) * (size_t)group * 2;
        if (!view.sparse)
                return;
        ck_assert_int_le(n, s->max_groups);
        for (int32_t g = 0; g < n; g++) {
                const float common = (float)test_quick_normal(&s->rng);
                for (int32_t q = 0; q < group; q++)
                        scores[g * group + q] = g < choose_static_of(s, i) ? -INFINITY : score_of(s, g, n, common);
        }
        for (int32_t p = 0; p < n_parts; p++)
                for (int32_t q = 0; q < group; q++) {
                        float most = -FLT_MAX;
                        double sum = 0;
                        for (int32_t g = p * each; g < n && g < (p + 1) * each; g++)
                                most = scores[g * group + q] > most ? scores[g * group + q] : most;
                        for (int32_t g = p * each; g < n && g < (p + 1) * each; g++)
                                sum += g < choose_static_of(s, i) ? 0.0 : exp((double)scores[g * group + q] - most);
                        parts[(p * group + q) * 2] = most;
                        parts[(p * group + q) * 2 + 1] = (float)sum;
                }
        for (int32_t q = 0; q < group; q++) {
                parts[(n_parts * group + q) * 2] = s->w->data == OUTWEIGHED ? 150.0f : 4.0f + (float)q;
                parts[(n_parts * group + q) * 2 + 1] = 7.0f;
        }
}

/* Sequences as long as there is room for, short ones, one without room, one whose tokens came back into the window. */
static void next_step(choose_state *s, int32_t step)
{
        const choose_case *w = s->w;
        const int32_t sink = s->sizes.sink, window = s->sizes.window;
        for (int32_t i = 0; i < s->n; i++) {
                const int32_t kind = (i + step) % MAX_SEQUENCES;
                int32_t n = kind == 0
                                    ? w->most
                                    : w->budget + 1 + (int32_t)dci_rng_below(&s->rng, (uint64_t)(w->most - w->budget));
                int32_t grouped = n - sink - window > 0 ? n - sink - window : 0;
                if (kind == 2)
                        n = w->budget - 3 * step;
                if (kind == 3)
                        grouped = grouped > 2 * w->budget ? grouped - w->budget : grouped;
                grouped = w->listed == CLUSTERS ? grouped : grouped / s->sizes.unit * s->sizes.unit;
                ints(s->n_tokens)[i] = n > 1 ? n : 1;
                ints(s->n_grouped)[i] = grouped;
                if (w->listed == ORDER)
                        put_order(s, i, grouped);
                for (int32_t h = 0; h < w->n_heads && w->listed == CLUSTERS; h += s->head_lists)
                        list_groups(s, ints(s->rows)[i], h, grouped);
                if (w->listed && kind == 1) /* the window has taken some back */
                        ints(s->n_tokens)[i] -= ints(s->n_tokens)[i] / 3;
                for (int32_t h = 0; h < w->n_heads; h++)
                        score(s, i, h);
        }
        gpu_send_all(s->t);
}

/* --- steps ----------------------------------------------------------------------------------------------------------- */

static dci_gpu_select_args arguments(const choose_state *s, bool ranked)
{
        const choose_case *w = s->w;
        return (dci_gpu_select_args){
                .n_sequences = s->n,
                .n_heads = w->n_heads / s->head_lists,
                .head_lists = s->head_lists,
                .group = w->group,
                .group_shift = w->shift,
                .weigh = w->weigh,
                .n_parts = w->n_parts,
                .max_groups = s->max_groups,
                .stride = s->stride,
                .drop = w->drop,
                .sizes = s->sizes,
                .rows = gpu_at(s->rows, false),
                .n_tokens = gpu_at(s->n_tokens, false),
                .n_grouped = gpu_at(s->n_grouped, false),
                .n_clusters = w->listed == CLUSTERS ? gpu_at(s->n_clusters, false) : NULL,
                .order = {w->listed == ORDER ? gpu_at(s->n_ordered, false) : NULL, gpu_at(s->n_static, false)},
                .scores = gpu_at(s->scores, false),
                .parts = gpu_at(s->parts, false),
                .spans = s->spans.args,
                .ids = s->ids.args,
                .lasts = gpu_at(s->lasts, false),
                .found = gpu_at(s->found, false),
                .n_found = gpu_at(s->n_found, false),
                .positions = gpu_at(s->positions, false),
                .counts = gpu_at(s->counts, false),
                .sink_end = gpu_at(s->header, false),
                .recent_begin = (int32_t *)gpu_at(s->header, false) + s->n,
                .after = (int32_t *)gpu_at(s->header, false) + 2 * s->n,
                .ranked = ranked ? gpu_at(s->ranked, false) : NULL,
                .n_ranked = ranked ? gpu_at(s->n_ranked, false) : NULL,
                .members = w->estimated > 0 ? gpu_at(s->taken, false) : NULL,
                .estimate_share = w->estimated};
}

static void fetch(choose_state *s)
{
        gpu_buffer *const all[] = {s->positions, s->counts, s->header, s->ranked,
                                   s->n_ranked,  s->lasts,  s->found,  s->taken};
        for (size_t i = 0; i < COUNT(all); i++) {
                gpu_fetch(s->t, all[i]);
                gpu_guarded(all[i], s->w->name);
        }
}

static void call(choose_state *s, bool ranked, void *graph)
{
        const dci_gpu_select_args args = arguments(s, ranked);
        if (graph != NULL)
                ck_ok(s->t->ops->graph_launch(s->t->gpu, graph, s->t->stream));
        else
                ck_ok(s->t->ops->select(s->t->gpu, s->t->stream, &args));
        fetch(s);
}

/* Candidates that were dropped, in the image; and that nothing else became of what went in. */
static void look_at_inputs(choose_state *s, const char *what)
{
        const choose_case *w = s->w;
        for (int32_t list = 0; list < s->n_lists && w->drop != 0; list++)
                for (int32_t c = 0; c < got(s->counts)[list]; c++) {
                        const int32_t at = got(s->positions)[list * s->stride + c] - s->sizes.sink;
                        for (int32_t q = 0; q < w->group; q++)
                                floats(s->scores)[((size_t)list * (size_t)s->max_groups + (size_t)at) *
                                                          (size_t)w->group +
                                                  (size_t)q] = -FLT_MAX;
                }
        gpu_same(s->t, s->scores, what);
        gpu_same(s->t, s->n_found, what);
        gpu_same(s->t, s->parts, what);
}

/* Whatever is where relevances will be: what was last, nothing, too little, too much, no number. The same comes out each time. */
static void ask_again(choose_state *s, const char *what)
{
        static const float before[] = {0, 1e-30f, 1e-3f, 3, -7, INFINITY, NAN};
        const size_t n = s->positions->n_bytes, n_counts = s->counts->n_bytes;
        unsigned char *first = malloc(2 * n + n_counts + s->lasts->n_bytes);
        ck_assert_ptr_nonnull(first);
        memcpy(first, s->positions->back, n);
        memcpy(first + n, s->counts->back, n_counts);
        memcpy(first + n + n_counts, s->lasts->back, s->lasts->n_bytes);
        for (size_t i = 0; i <= COUNT(before); i++) {
                for (int32_t list = 0; list < s->n_lists; list++)
                        floats(s->lasts)[list] =
                                i < COUNT(before) ? before[i] : ((float *)(void *)s->lasts->back)[list];
                gpu_send(s->t, s->lasts);
                gpu_send(s->t, s->scores);
                gpu_send(s->t, s->positions);
                call(s, i == 2, NULL);
                ck_assert_msg(memcmp(first, s->positions->back, n) == 0, "%s: another choice after number %zu", what,
                              i);
                ck_assert_msg(memcmp(first + n, s->counts->back, n_counts) == 0, "%s: other counts after number %zu",
                              what, i);
                for (int32_t list = 0; list < s->n_lists; list++)
                        if (got(s->counts)[list] > 0) {
                                const int32_t row = ints(s->rows)[list / s->w->n_heads];
                                const size_t at = (size_t)(row * s->w->n_heads + list % s->w->n_heads) * sizeof(float);
                                ck_assert_msg(memcmp(first + n + n_counts + at, s->lasts->back + at, sizeof(float)) ==
                                                      0,
                                              "%s: another relevance after number %zu", what, i);
                        }
                if (test_short() && i == 2)
                        break;
        }
        free(first);
}

/* Captured, all lists of a sequence are of one kv head. */
static void go(gpu_test *t, const choose_case *w, uint64_t seed, bool captured)
{
        choose_state s;
        char what[160];
        void *graph = NULL;
        make(&s, t, w, seed, captured ? w->n_heads : 1);
        for (int32_t step = 0; step < (test_short() ? 1 : 3); step++) {
                snprintf(what, sizeof what, "%s, step %d", w->name, (int)step);
                next_step(&s, step);
                if (captured && graph == NULL) {
                        const dci_gpu_select_args args = arguments(&s, true);
                        ck_ok(t->ops->capture_begin(t->gpu, t->stream));
                        ck_ok(t->ops->select(t->gpu, t->stream, &args));
                        ck_ok(t->ops->capture_end(t->gpu, t->stream, &graph));
                }
                call(&s, true, graph);
                for (int32_t i = 0; i < s.n; i++)
                        for (int32_t h = 0; h < w->n_heads; h++) {
                                choose_look_at_list(&s, i, h, what);
                                if (w->estimated > 0)
                                        choose_look_at_members(&s, i, h, what);
                        }
                choose_look_at_rest(&s, what);
                if (!captured)
                        ask_again(&s, what);
                look_at_inputs(&s, what);
                memcpy(s.lasts->image, s.lasts->back, s.lasts->n_bytes);
                memset(s.positions->image, 0xff, s.positions->n_bytes);
                memset(s.ranked->image, 0xff, s.ranked->n_bytes);
        }
        if (graph != NULL)
                t->ops->graph_destroy(t->gpu, graph);
        done(&s);
}

START_TEST(the_best_are_chosen_whatever_was_there)
{
        go(&gpu, &shapes[_i], 5 + (uint64_t)_i, false);
}
END_TEST

START_TEST(a_graph_chooses_from_longer_sequences)
{
        go(&gpu, &shapes[_i], 71 + (uint64_t)_i, true);
}
END_TEST

START_TEST(what_cannot_be_done_is_said)
{
        choose_state s;
        make(&s, &gpu, &shapes[0], 1, 1);
        next_step(&s, 0);
        dci_gpu_select_args args = arguments(&s, false);
        args.n_sequences = 0;
        ck_ok(gpu.ops->select(gpu.gpu, gpu.stream, &args));
        if (!gpu_is_host(&gpu)) {
                args = arguments(&s, false);
                args.group = DCI_GPU_MAX_GROUP + 1;
                ck_refused(gpu.ops->select(gpu.gpu, gpu.stream, &args), DCI_ERR_LIMIT, "17 query heads");
                args = arguments(&s, false);
                args.stride = DCI_GPU_MAX_LIST + 1;
                ck_refused(gpu.ops->select(gpu.gpu, gpu.stream, &args), DCI_ERR_LIMIT, "8193");
                args = arguments(&s, false);
                args.n_parts = DCI_GPU_MAX_PARTS + 1;
                ck_refused(gpu.ops->select(gpu.gpu, gpu.stream, &args), DCI_ERR_LIMIT, "65 parts");
        }
        done(&s);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("gpu_choose");
        TCase *tcase = test_case_with(suite, "gpu_choose", 120, setup, teardown);
        tcase_add_loop_test(tcase, the_best_are_chosen_whatever_was_there, 0, (int)COUNT(shapes));
        tcase_add_loop_test(tcase, a_graph_chooses_from_longer_sequences, 0, (int)COUNT(shapes));
        tcase_add_test(tcase, what_cannot_be_done_is_said);
        return test_main(suite);
}
