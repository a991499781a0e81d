/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Preselection: units by the scores of means against a model that computes their relevances in double precision and sorts all of them; and a
 * plan among the tokens of units, which is the plan of a sequence that has no other tokens.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "tests/gpu_fixture.h"

#define ROOM ((size_t)24 << 20)
#define SEQUENCES 4
#define HEADS 2
#define LISTS (SEQUENCES * HEADS)
#define SINK 16
#define WINDOW 32
#define CLOSE 2e-5
GPU_SUITE(ROOM)

/* What scores are like: LEVELS, EQUAL and FAR have units that count the same to the bit. */
enum { GAUSSIAN, RUN, ASCENDING, LEVELS, EQUAL, FAR };

typedef struct units_case {
        const char *name;
        int32_t data, group, shift, n_parts, wanted, most; /* most: candidates, a multiple of 8 */
        int32_t room;                                      /* 0: what a list's units have anyway */
} units_case;

static const units_case cases[] = {
        {"means of 8", GAUSSIAN, 4, 3, 8, 40, 3000, 0},
        {"one query head", GAUSSIAN, 1, 3, 3, 12, 2000, 0},
        {"two, of 4", GAUSSIAN, 2, 2, 16, 60, 4000, 0},
        {"four, of 4", GAUSSIAN, 4, 2, 16, 60, 4000, 0},
        {"four, of 16", GAUSSIAN, 4, 4, 5, 60, 4000, 0},
        {"eight, of 16", GAUSSIAN, 8, 4, 64, 33, 4000, 0},
        {"eight, of 4", GAUSSIAN, 8, 2, 20, 33, 2000, 0},
        {"sixteen", GAUSSIAN, 16, 3, 20, 33, 2000, 0},
        {"three", GAUSSIAN, 3, 3, 1, 33, 2000, 0},
        {"five, of 16", GAUSSIAN, 5, 4, 33, 33, 2000, 0},
        {"the preset's", GAUSSIAN, 4, 3, 16, 264, 36864, 0},
        {"several blocks", GAUSSIAN, 4, 3, 40, 264, 200000, 0},
        {"a run in several blocks", RUN, 4, 3, 40, 264, 200000, 0},
        {"the last ones, in several blocks", ASCENDING, 4, 3, 40, 400, 150008, 6400},
        {"as many as there may be", GAUSSIAN, 2, 3, 8, DCI_GPU_FOUND - 1, 200000, 0},
        {"the last unit is the best", ASCENDING, 4, 3, 8, 4, 1208, 64},
        {"the last unit is the best, which is no matter", ASCENDING, 4, 3, 8, 4, 1208, 40},
        {"the last unit of all is whole", ASCENDING, 4, 3, 8, 4, 1200, 64},
        {"levels", LEVELS, 4, 3, 8, 50, 3000, 0},
        {"all are equal", EQUAL, 4, 3, 8, 50, 3000, 0},
        {"all are equal, in several blocks", EQUAL, 4, 2, 8, 300, 150000, 0},
        {"most count nothing", FAR, 4, 3, 8, 50, 3000, 0},
};

typedef struct units_state {
        gpu_test *t;
        const units_case *c;
        dci_rng rng;
        int32_t max_means, n[SEQUENCES], grouped[SEQUENCES]; /* tokens of each sequence, and of its candidates */
        dci_gpu_sizes sizes;
        gpu_buffer *rows, *n_tokens, *n_grouped, *due, *scores, *parts, *found, *n_found, *units, *n_scored;
        double *relevance;
        int32_t *order;
} units_state;

static int32_t per_unit(const units_case *c)
{
        return DCI_GPU_UNIT >> c->shift;
}

static void take(units_state *s, gpu_test *t, const units_case *c, uint64_t seed)
{
        const size_t group = (size_t)c->group;
        *s = (units_state){
                .t = t, .c = c, .sizes = {.sink = SINK, .window = WINDOW, .budget = SINK + WINDOW + 40, .unit = 8}};
        gpu_reset(t);
        dci_rng_seed(&s->rng, seed);
        s->max_means = ((c->most >> c->shift) + 64) / 32 * 32;
        s->rows = gpu_take(t, SEQUENCES * 4, GPU_DEVICE);
        s->n_tokens = gpu_take(t, SEQUENCES * 4, GPU_DEVICE);
        s->n_grouped = gpu_take(t, SEQUENCES * 4, GPU_DEVICE);
        s->due = gpu_take(t, LISTS * 4, GPU_DEVICE);
        s->scores = gpu_take(t, LISTS * (size_t)s->max_means * group * sizeof(float), GPU_DEVICE);
        s->parts = gpu_take(t, LISTS * (size_t)(c->n_parts + 1) * group * 2 * sizeof(float), GPU_DEVICE);
        s->found = gpu_take(t, LISTS * DCI_GPU_FOUND * sizeof(uint64_t), GPU_DEVICE);
        s->n_found = gpu_take(t, LISTS * 8, GPU_DEVICE);
        s->units = gpu_take(t, LISTS * (size_t)(c->wanted + 1) * 4, GPU_DEVICE);
        s->n_scored = gpu_take(t, LISTS * 4, GPU_DEVICE);
        s->relevance = malloc(((size_t)c->most / DCI_GPU_UNIT + 1) * sizeof *s->relevance);
        s->order = malloc(((size_t)c->most / DCI_GPU_UNIT + 1) * sizeof *s->order);
        ck_assert(s->relevance != NULL && s->order != NULL);
}

static float score_of(units_state *s, int32_t unit, int32_t n_units)
{
        const float x = (float)test_quick_normal(&s->rng);
        switch (s->c->data) {
        case RUN:
                return unit >= n_units / 3 && unit < n_units / 3 + 400 ? 8 + 0.5f * x : x;
        case ASCENDING:
                return 20.0f * (float)unit / (float)n_units;
        case LEVELS:
                return (float)(unit * 37 % 5);
        case EQUAL:
                return 1.25f;
        case FAR:
                return unit % 100 == 7 ? x : -300.0f + x;
        default:
                return 2.5f * x;
        }
}

/* Scores of one list's means; what the last unit lacks is -FLT_MAX. Then its parts. */
static void score(units_state *s, int32_t list, int32_t n_candidates)
{
        const units_case *c = s->c;
        const int32_t n = (n_candidates + (1 << c->shift) - 1) >> c->shift, per = per_unit(c), group = c->group,
                      n_units = (n + per - 1) / per, each = (n + c->n_parts - 1) / c->n_parts;
        float *scores = gpu_floats(s->scores) + (size_t)list * (size_t)s->max_means * (size_t)group;
        float *parts = gpu_floats(s->parts) + (size_t)list * (size_t)(c->n_parts + 1) * (size_t)group * 2;
        for (int32_t g = 0; g < n_units * per; g++)
                for (int32_t q = 0; q < group; q++)
                        scores[g * group + q] = g < n ? score_of(s, g / per, n_units) : -FLT_MAX;
        for (int32_t p = 0; p <= c->n_parts; p++)
                for (int32_t q = 0; q < group; q++) {
                        const int32_t first = p < c->n_parts ? p * each : n, end = first + each < n ? first + each : n;
                        float most = -FLT_MAX;
                        double sum = 0;
                        for (int32_t g = first; g < end; g++)
                                most = fmaxf(most, scores[g * group + q]);
                        for (int32_t g = first; g < end; g++)
                                sum += exp((double)scores[g * group + q] - most);
                        parts[(p * group + q) * 2] = most;
                        parts[(p * group + q) * 2 + 1] = (float)sum;
                }
}

/* A sequence as long as there is room for, one that need not choose, one that attends to all, and some other. */
static void set_lengths(units_state *s)
{
        const units_case *c = s->c;
        for (int32_t i = 0; i < SEQUENCES; i++) {
                const int32_t least = c->wanted * DCI_GPU_UNIT + 8;
                const int32_t n =
                        i == 0   ? c->most
                        : i == 1 ? c->wanted * DCI_GPU_UNIT
                        : i == 2 ? 8
                                 : least + (int32_t)dci_rng_below(&s->rng, (uint64_t)(c->most - least) / 8 + 1) * 8;
                s->grouped[i] = n;
                s->n[i] = SINK + WINDOW + n + i;
                gpu_ints(s->rows)[i] = SEQUENCES - 1 - i;
                gpu_ints(s->n_tokens)[i] = s->n[i];
                gpu_ints(s->n_grouped)[i] = n;
                for (int32_t h = 0; h < HEADS; h++) {
                        gpu_ints(s->due)[i * HEADS + h] = 1;
                        score(s, i * HEADS + h, n);
                }
        }
        memset(s->n_found->image, 0, s->n_found->n_bytes);
        memset(s->units->image, 0xff, s->units->n_bytes);
        memset(s->n_scored->image, 0xff, s->n_scored->n_bytes);
        gpu_send_all(s->t);
}

static dci_gpu_select_args arguments(const units_state *s)
{
        const units_case *c = s->c;
        return (dci_gpu_select_args){.n_sequences = SEQUENCES,
                                     .n_heads = HEADS,
                                     .group = c->group,
                                     .group_shift = c->shift,
                                     .weigh = DCI_GPU_WEIGH_GROUPS,
                                     .n_parts = c->n_parts,
                                     .max_groups = s->max_means,
                                     .stride = c->wanted + 1,
                                     .sizes = s->sizes,
                                     .rows = gpu_at(s->rows, false),
                                     .n_tokens = gpu_at(s->n_tokens, false),
                                     .n_grouped = gpu_at(s->n_grouped, false),
                                     .scores = gpu_at(s->scores, false),
                                     .parts = gpu_at(s->parts, false),
                                     .found = gpu_at(s->found, false),
                                     .n_found = gpu_at(s->n_found, false),
                                     .units = {.lists = gpu_at(s->units, false),
                                               .n_scored = gpu_at(s->n_scored, false),
                                               .stride = c->wanted + 1,
                                               .wanted = c->wanted,
                                               .room = c->room,
                                               .of_means = 1}};
}

static const double *sorted_by;

static int by_relevance(const void *a, const void *b)
{
        const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
        if (sorted_by[x] != sorted_by[y])
                return sorted_by[x] > sorted_by[y] ? -1 : 1;
        return (x > y) - (x < y);
}

static void weigh(units_state *s, int32_t list, int32_t n_means, int32_t n_units)
{
        const int32_t per = per_unit(s->c), group = s->c->group;
        const float *scores = gpu_floats(s->scores) + (size_t)list * (size_t)s->max_means * (size_t)group;
        for (int32_t u = 0; u < n_units; u++) {
                s->relevance[u] = 0;
                s->order[u] = u;
        }
        for (int32_t q = 0; q < group; q++) {
                double most = -INFINITY, sum = 0;
                for (int32_t g = 0; g < n_means; g++)
                        most = fmax(most, (double)scores[g * group + q]);
                for (int32_t g = 0; g < n_means; g++)
                        sum += exp((double)scores[g * group + q] - most);
                for (int32_t g = 0; g < n_means; g++)
                        if ((double)scores[g * group + q] - most > -87)
                                s->relevance[g / per] += exp((double)scores[g * group + q] - most) / sum;
        }
        sorted_by = s->relevance;
        qsort(s->order, (size_t)n_units, sizeof *s->order, by_relevance);
}

/* Whether a unit is among the n best of the model, or counts as much as the last of these to the last bits. */
static bool is_good(const units_state *s, int32_t unit, int32_t n)
{
        const double last = s->relevance[s->order[n - 1]], own = s->relevance[unit];
        if (s->c->data < LEVELS)
                return own >= last * (1 - CLOSE);
        return own > last * (1 + CLOSE) || (fabs(own - last) <= CLOSE * last && unit <= s->order[n - 1]);
}

static void check_list(units_state *s, int32_t list, int32_t n_candidates, const char *what)
{
        const units_case *c = s->c;
        const int32_t *units = (const int32_t *)(const void *)s->units->back + (size_t)list * (size_t)(c->wanted + 1),
                      n_scored = ((const int32_t *)(const void *)s->n_scored->back)[list];
        const int32_t n_units = (n_candidates + DCI_GPU_UNIT - 1) / DCI_GPU_UNIT,
                      n_means = (n_candidates + (1 << c->shift) - 1) >> c->shift;
        weigh(s, list, n_means, n_units);
        int32_t n = c->wanted, rank = 0;
        while (s->order[rank] != n_units - 1)
                rank++;
        const int32_t lacking = n_units * DCI_GPU_UNIT - n_candidates;
        if (rank < n && n * DCI_GPU_UNIT - lacking < c->room)
                n++;
        for (int32_t i = 0; i < n; i++) {
                ck_assert_msg(units[i] >= 0 && units[i] < n_units && (i == 0 || units[i] > units[i - 1]),
                              "%s, %s: list %d, entry %d of %d is unit %d", c->name, what, list, i, n, units[i]);
                ck_assert_msg(is_good(s, units[i], n), "%s, %s: list %d has unit %d of relevance %g, the last is %g",
                              c->name, what, list, units[i], s->relevance[units[i]], s->relevance[s->order[n - 1]]);
        }
        const bool last = units[n - 1] == n_units - 1;
        ck_assert_msg(n_scored == n * DCI_GPU_UNIT - (last ? lacking : 0), "%s, %s: list %d has %d tokens", c->name,
                      what, list, n_scored);
}

static void check(units_state *s, const char *what)
{
        gpu_fetch(s->t, s->units);
        gpu_fetch(s->t, s->n_scored);
        gpu_fetch(s->t, s->found);
        gpu_guarded(s->units, what);
        gpu_guarded(s->n_scored, what);
        gpu_guarded(s->found, what);
        gpu_same(s->t, s->n_found, what);
        gpu_same(s->t, s->scores, what);
        for (int32_t list = 0; list < LISTS; list++) {
                const int32_t i = list / HEADS, n_scored = ((const int32_t *)(const void *)s->n_scored->back)[list];
                if (i == 2)
                        ck_assert_msg(n_scored == -1, "%s, %s: a list of a sequence that attends to all", s->c->name,
                                      what);
                else if (i == 1)
                        ck_assert_msg(n_scored == 0, "%s, %s: %d tokens of a list without a choice", s->c->name, what,
                                      n_scored);
                else
                        check_list(s, list, s->grouped[i], what);
        }
}

START_TEST(units_are_the_best)
{
        units_state s;
        void *graph = NULL;
        take(&s, &gpu, &cases[_i], 3 + (uint64_t)_i);
        set_lengths(&s);
        const dci_gpu_select_args args = arguments(&s);
        ck_ok(gpu.ops->select(gpu.gpu, gpu.stream, &args));
        check(&s, "a call");
        const size_t n_bytes = s.units->n_bytes;
        unsigned char *first = malloc(n_bytes);
        ck_assert_ptr_nonnull(first);
        memcpy(first, s.units->back, n_bytes);
        gpu_send_all(&gpu);
        ck_ok(gpu.ops->select(gpu.gpu, gpu.stream, &args));
        gpu_fetch(&gpu, s.units);
        ck_assert_msg(memcmp(first, s.units->back, n_bytes) == 0, "%s: other units", s.c->name);
        free(first);
        ck_ok(gpu.ops->capture_begin(gpu.gpu, gpu.stream));
        ck_ok(gpu.ops->select(gpu.gpu, gpu.stream, &args));
        ck_ok(gpu.ops->capture_end(gpu.gpu, gpu.stream, &graph));
        set_lengths(&s);
        ck_ok(gpu.ops->graph_launch(gpu.gpu, graph, gpu.stream));
        check(&s, "a graph");
        gpu.ops->graph_destroy(gpu.gpu, graph);
        test_free(s.relevance, s.order);
}
END_TEST

/* Lists that are not due stay as they were. */
START_TEST(what_is_not_due_is_left_alone)
{
        units_state s;
        take(&s, &gpu, &cases[0], 5);
        set_lengths(&s);
        dci_gpu_select_args args = arguments(&s);
        args.due = gpu_at(s.due, false);
        args.due_is = 2;
        ck_ok(gpu.ops->select(gpu.gpu, gpu.stream, &args));
        gpu_same(&gpu, s.units, "units");
        gpu_same(&gpu, s.n_scored, "numbers of tokens");
        args.due_is = 1;
        ck_ok(gpu.ops->select(gpu.gpu, gpu.stream, &args));
        check(&s, "due");
        if (!gpu_is_host(&gpu)) {
                args.group_shift = 5;
                ck_refused(gpu.ops->select(gpu.gpu, gpu.stream, &args), DCI_ERR_LIMIT, "means of 2^5");
                args.group_shift = 3;
                args.units.wanted = args.stride;
                ck_refused(gpu.ops->select(gpu.gpu, gpu.stream, &args), DCI_ERR_LIMIT, "41 units");
        }
        test_free(s.relevance, s.order);
}
END_TEST

/* --- a plan among the tokens of units ------------------------------------------------------------------------------------ */

enum { BUDGET = 128, PLAN_ROOM = BUDGET - SINK - WINDOW };

typedef struct plan_state {
        gpu_buffer *rows, *n_tokens, *n_grouped, *scores, *parts, *lasts, *found, *n_found, *positions, *counts,
                *header;
        gpu_buffer *units, *n_scored, *lists, *list_counts;
        int32_t max_groups;
} plan_state;

static void take_plan(plan_state *s, int32_t group, int32_t n_scored, int32_t n_candidates, uint64_t seed)
{
        dci_rng rng;
        dci_rng_seed(&rng, seed);
        gpu_reset(&gpu);
        *s = (plan_state){.max_groups = n_scored + 9};
        s->rows = gpu_take(&gpu, 4, GPU_DEVICE);
        s->n_tokens = gpu_take(&gpu, 4, GPU_DEVICE);
        s->n_grouped = gpu_take(&gpu, 4, GPU_DEVICE);
        s->scores = gpu_take(&gpu, (size_t)(HEADS * s->max_groups * group) * sizeof(float), GPU_DEVICE);
        s->parts = gpu_take(&gpu, (size_t)(HEADS * 2 * group) * 2 * sizeof(float), GPU_DEVICE);
        s->lasts = gpu_take(&gpu, HEADS * sizeof(float), GPU_DEVICE);
        s->found = gpu_take(&gpu, HEADS * DCI_GPU_FOUND * sizeof(uint64_t), GPU_DEVICE);
        s->n_found = gpu_take(&gpu, HEADS * 8, GPU_DEVICE);
        s->positions = gpu_take(&gpu, HEADS * BUDGET * 4, GPU_DEVICE);
        s->counts = gpu_take(&gpu, HEADS * 4, GPU_DEVICE);
        s->header = gpu_take(&gpu, 3 * 4, GPU_DEVICE);
        s->units = gpu_take(&gpu, (size_t)HEADS * (size_t)(n_scored / DCI_GPU_UNIT + 2) * 4, GPU_DEVICE);
        s->n_scored = gpu_take(&gpu, HEADS * 4, GPU_DEVICE);
        s->lists = gpu_take(&gpu, HEADS * PLAN_ROOM * 4, GPU_DEVICE);
        s->list_counts = gpu_take(&gpu, HEADS * 4, GPU_DEVICE);
        memset(s->n_found->image, 0, s->n_found->n_bytes);
        const int32_t n_units = (n_scored + DCI_GPU_UNIT - 1) / DCI_GPU_UNIT,
                      n_all = (n_candidates + DCI_GPU_UNIT - 1) / DCI_GPU_UNIT;
        for (int32_t h = 0; h < HEADS; h++) {
                int32_t *units = gpu_ints(s->units) + h * (n_scored / DCI_GPU_UNIT + 2);
                for (int32_t i = 0, u = 0; i < n_units; u++)
                        if (n_all - u <= n_units - i || dci_rng_below(&rng, 4) == 0)
                                units[i++] = u;
                if (n_scored % DCI_GPU_UNIT != 0)
                        units[n_units - 1] = n_all - 1;
                gpu_ints(s->n_scored)[h] = n_scored;
                float *parts = gpu_floats(s->parts) + h * 2 * group * 2;
                for (int32_t q = 0; q < group; q++) {
                        double sum = 0;
                        for (int32_t i = 0; i < n_scored; i++) {
                                const float x = 2.0f * (float)test_quick_normal(&rng);
                                gpu_floats(s->scores)[(h * s->max_groups + i) * group + q] = x;
                                sum += exp((double)x - 10);
                        }
                        parts[2 * q] = 10.0f;
                        parts[2 * q + 1] = (float)sum;
                        parts[2 * (group + q)] = 5.0f;
                        parts[2 * (group + q) + 1] = 3.0f;
                }
        }
}

/* Selects among n candidates; lists: into those that are kept. */
static void plan(const plan_state *s, int32_t group, int32_t n, int32_t n_scored, bool units, bool lists)
{
        gpu_ints(s->rows)[0] = 0;
        gpu_ints(s->n_tokens)[0] = SINK + WINDOW + n;
        gpu_ints(s->n_grouped)[0] = n;
        gpu_send_all(&gpu);
        dci_gpu_select_args args = {.n_sequences = 1,
                                    .n_heads = HEADS,
                                    .group = group,
                                    .weigh = DCI_GPU_WEIGH_KEPT,
                                    .n_parts = 1,
                                    .max_groups = s->max_groups,
                                    .stride = BUDGET,
                                    .sizes = {.sink = SINK, .window = WINDOW, .budget = BUDGET, .unit = 1},
                                    .rows = gpu_at(s->rows, false),
                                    .n_tokens = gpu_at(s->n_tokens, false),
                                    .n_grouped = gpu_at(s->n_grouped, false),
                                    .scores = gpu_at(s->scores, false),
                                    .parts = gpu_at(s->parts, false),
                                    .lasts = gpu_at(s->lasts, false),
                                    .found = gpu_at(s->found, false),
                                    .n_found = gpu_at(s->n_found, false),
                                    .positions = gpu_at(s->positions, false),
                                    .counts = gpu_at(s->counts, false),
                                    .sink_end = gpu_at(s->header, false),
                                    .recent_begin = (int32_t *)gpu_at(s->header, false) + 1,
                                    .after = (int32_t *)gpu_at(s->header, false) + 2};
        if (units)
                args.units = (dci_gpu_units){.lists = gpu_at(s->units, false),
                                             .n_scored = gpu_at(s->n_scored, false),
                                             .stride = n_scored / DCI_GPU_UNIT + 2,
                                             .wanted = n_scored / DCI_GPU_UNIT};
        if (lists) {
                args.selection.lists = gpu_at(s->lists, false);
                args.selection.counts = gpu_at(s->list_counts, false);
                args.selection.room = PLAN_ROOM;
        }
        ck_ok(gpu.ops->select(gpu.gpu, gpu.stream, &args));
        gpu_fetch(&gpu, lists ? s->lists : s->positions);
        gpu_fetch(&gpu, lists ? s->list_counts : s->counts);
        gpu_fetch(&gpu, s->header);
}

START_TEST(a_plan_is_one_of_the_units_tokens)
{
        static const int32_t groups[] = {1, 2, 3, 4, 8, 16};
        for (size_t g = 0; g < COUNT(groups); g++)
                for (int32_t way = 0; way < 4; way++) {
                        const int32_t n_scored = way < 2      ? 400
                                                 : g % 2 == 0 ? 4224
                                                              : 9000,
                                      n = n_scored * 5 + (way % 2 == 0 ? 0 : 8), base = way % 2 == 0 ? 0 : 8;
                        const bool lists = way % 2 == 0;
                        plan_state s;
                        take_plan(&s, groups[g], n_scored + base, n, 11 + g);
                        plan(&s, groups[g], n_scored + base, n_scored + base, false, lists);
                        const gpu_buffer *out = lists ? s.lists : s.positions,
                                         *counts = lists ? s.list_counts : s.counts;
                        int32_t wanted[HEADS * BUDGET], n_wanted[HEADS];
                        memcpy(wanted, out->back, out->n_bytes);
                        memcpy(n_wanted, counts->back, sizeof n_wanted);
                        plan(&s, groups[g], n, n_scored + base, true, lists);
                        const int32_t *got = (const int32_t *)(const void *)out->back, ld = lists ? PLAN_ROOM : BUDGET,
                                      sink = lists ? 0 : SINK;
                        for (int32_t h = 0; h < HEADS; h++) {
                                const int32_t *units = gpu_ints(s.units) + h * ((n_scored + base) / DCI_GPU_UNIT + 2);
                                ck_assert_int_eq(n_wanted[h], PLAN_ROOM);
                                ck_assert_int_eq(((const int32_t *)(const void *)counts->back)[h], PLAN_ROOM);
                                for (int32_t i = 0; i < PLAN_ROOM; i++) {
                                        const int32_t number = wanted[h * ld + i] - sink;
                                        ck_assert_int_eq(got[h * ld + i], sink + DCI_GPU_SCORED(units, 0, number));
                                }
                        }
                        if (!lists)
                                ck_assert_int_eq(((const int32_t *)(const void *)s.header->back)[1], SINK + n);
                        /* Without units, numbers are candidates. */
                        memset(s.n_scored->image, 0, s.n_scored->n_bytes);
                        plan(&s, groups[g], n_scored + base, n_scored + base, true, lists);
                        ck_assert(memcmp(wanted, out->back, out->n_bytes) == 0);
                }
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("gpu_units");
        TCase *tcase = test_case_with(suite, "gpu_units", 120, setup, teardown);
        tcase_add_loop_test(tcase, units_are_the_best, 0, (int)COUNT(cases));
        tcase_add_test(tcase, what_is_not_due_is_left_alone);
        tcase_add_test(tcase, a_plan_is_one_of_the_units_tokens);
        return test_main(suite);
}
