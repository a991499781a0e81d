/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Residency over walks of lists: slots, items, tables and counters after every step, against a model that sorts its frames. */
#include <stdio.h>
#include <string.h>

#include "tests/gpu_fixture.h"

#define ROOM ((size_t)16 << 20)
#define MAX_SEQUENCES 4
GPU_SUITE(ROOM)

typedef struct walk {
        const char *name;
        int32_t n_rows, n_heads, stride, unit_shift, n_frames;
        int32_t n_tokens; /* positions of lists */
        int32_t churn;    /* of 100 entries, so many change from one step to the next */
        int32_t n_steps;
        int32_t jump;   /* every so many steps, the step's number grows by more than ages tell apart; 0: never */
        int32_t placed; /* of 100 candidates, so many have a place in a contiguous copy; 0: units are of positions */
        int32_t head_lists;
} walk;

static const walk walks[] = {
        {"more frames than lists need", 3, 2, 100, 0, 256, 3000, 30, 200, 0, 0, 1},
        {"as many", 3, 2, 100, 0, 100, 3000, 40, 200, 0, 0, 1},
        {"fewer", 3, 2, 100, 0, 64, 2000, 40, 200, 0, 0, 1},
        {"one frame", 2, 1, 17, 0, 1, 100, 60, 60, 0, 0, 1},
        {"none", 2, 2, 40, 0, 0, 500, 60, 20, 0, 0, 1},
        {"ages that are not told apart", 2, 2, 60, 0, 200, 4000, 50, 200, 7, 0, 1},
        {"pages", 3, 2, 240, 4, 32, 4000, 30, 200, 11, 0, 1},
        {"pages, fewer frames", 3, 1, 240, 4, 10, 2000, 30, 200, 0, 0, 1},
        {"many heads", 4, 8, 50, 0, 128, 1000, 40, 80, 0, 0, 1},
        {"long lists", 1, 1, 2000, 0, 4096, 9000, 10, 30, 0, 0, 1},
        {"the largest", 1, 1, DCI_GPU_MAX_LIST, 0, DCI_GPU_MAX_FRAMES, 30000, 20, 6, 0, 0, 1},
        {"places", 3, 2, 240, 4, 64, 4000, 30, 200, 11, 100, 1},
        {"places, fewer frames", 3, 1, 240, 2, 20, 2000, 30, 120, 0, 100, 1},
        {"some places", 3, 2, 100, 0, 256, 3000, 30, 100, 0, 60, 1},
        {"hardly any places", 2, 2, 100, 3, 40, 3000, 30, 60, 7, 3, 1},
        {"places without frames", 2, 2, 40, 0, 0, 500, 60, 20, 0, 90, 1},
        {"places of long lists", 1, 2, 2000, 3, 700, 9000, 10, 20, 0, 95, 1},
        {"places of the largest", 1, 1, DCI_GPU_MAX_LIST, 4, DCI_GPU_MAX_FRAMES, 30000, 20, 4, 0, 98, 1},
        {"places in more chunks than are looked up before", 1, 1, 200, 4, 64, 600 * DCI_GPU_CHUNK, 30, 6, 0, 100, 1},
        {"lists of query heads", 3, 2, 100, 0, 256, 3000, 30, 120, 7, 0, 3},
        {"too few frames for a lane's lists", 2, 2, 100, 0, 150, 1000, 30, 120, 0, 0, 4},
        {"pages of query heads", 2, 3, 240, 4, 40, 3000, 30, 80, 11, 0, 2},
        {"places for query heads", 3, 2, 120, 3, 64, 3000, 30, 80, 0, 80, 3},
        {"query heads without frames", 2, 2, 40, 0, 0, 500, 60, 20, 0, 0, 7},
        {"the largest of query heads", 1, 1, DCI_GPU_MAX_LIST, 0, DCI_GPU_MAX_FRAMES, 30000, 20, 4, 0, 0, 2},
};

typedef struct state {
        gpu_test *t;
        const walk *w;
        dci_rng rng;
        uint32_t now;
        int32_t n; /* of this step */
        gpu_buffer *rows, *positions, *counts, *sink_end, *recent_begin, *n_tokens, *tags, *stamps, *b_now;
        gpu_buffer *out_slots, *out_counts, *out_header, *items, *n_items, *counters;
        gpu_buffer *chunks, *pieces, *numbers, *n_places;
        dci_gpu_chunks places;
        unsigned char *chosen; /* [row][list][n_tokens]: whether a list has a position */
} state;

static gpu_buffer *take_ints(state *s, size_t n, int kind)
{
        return gpu_take(s->t, n * sizeof(int32_t), kind);
}

/* --- places in a contiguous copy ------------------------------------------------------------------------------------ */

enum { SINK = 5, PIECE_SHIFT = 1, LAYER_AT = 128 };

static int32_t *place_of(const state *s, bool image, int32_t row, int32_t head, int32_t candidate)
{
        const dci_gpu_chunks *c = &s->places;
        const int32_t chunk = gpu_ints(s->numbers)[row * (int32_t)c->stride + candidate / DCI_GPU_CHUNK];
        const size_t piece = LAYER_AT + (c->chunk_bytes << PIECE_SHIFT);
        return (int32_t *)(void *)((unsigned char *)gpu_at(s->chunks, image) + (size_t)(chunk >> PIECE_SHIFT) * piece +
                                   LAYER_AT + (size_t)(chunk & 1) * c->chunk_bytes + (size_t)head * c->head_bytes) +
               candidate % DCI_GPU_CHUNK;
}

/* Each head's candidates in an order of their own; those without a place leave gaps. */
static void draw_places(state *s)
{
        const walk *w = s->w;
        int32_t *order = malloc((size_t)w->n_tokens * sizeof *order);
        ck_assert_ptr_nonnull(order);
        for (int32_t lane = 0; lane < w->n_rows * w->n_heads; lane++) {
                for (int32_t i = 0; i < w->n_tokens; i++)
                        order[i] = i;
                for (int32_t i = w->n_tokens - 1; i > 0; i--) {
                        /* Neighbours stay near each other, as in a cluster. */
                        const int32_t j = i - (int32_t)dci_rng_below(&s->rng, (uint64_t)(i < 40 ? i + 1 : 40)),
                                      x = order[i];
                        order[i] = order[j];
                        order[j] = x;
                }
                for (int32_t i = 0; i < w->n_tokens; i++)
                        *place_of(s, true, lane / w->n_heads, lane % w->n_heads, order[i]) =
                                (int32_t)dci_rng_below(&s->rng, 100) < w->placed ? i : -1;
        }
        free(order);
}

static void make_places(state *s)
{
        const walk *w = s->w;
        const int32_t of_row = (w->n_tokens + DCI_GPU_CHUNK - 1) / DCI_GPU_CHUNK, n = w->n_rows * of_row;
        const int32_t n_pieces = n / 2 + 1;
        dci_gpu_chunks *c = &s->places;
        c->stride = (uint64_t)of_row;
        c->head_bytes = DCI_GPU_CHUNK * sizeof(int32_t);
        c->chunk_bytes = (uint64_t)w->n_heads * c->head_bytes;
        c->layer_at = LAYER_AT;
        c->piece_shift = PIECE_SHIFT;
        const size_t piece = LAYER_AT + (c->chunk_bytes << PIECE_SHIFT);
        s->chunks = gpu_take(s->t, (size_t)n_pieces * piece, GPU_DEVICE);
        s->pieces = gpu_take(s->t, (size_t)n_pieces * sizeof(void *), GPU_DEVICE);
        s->numbers = gpu_take(s->t, (size_t)n * sizeof(int32_t), GPU_DEVICE);
        s->n_places = gpu_take(s->t, MAX_SEQUENCES * sizeof(int32_t), GPU_DEVICE);
        for (int32_t p = 0; p < n_pieces; p++)
                ((unsigned char **)(void *)s->pieces->image)[p] =
                        (unsigned char *)gpu_at(s->chunks, false) + (size_t)p * piece;
        for (int32_t i = 0; i < n; i++)
                gpu_ints(s->numbers)[i] = (i * 7 + 3) % n; /* of no order */
        for (int32_t i = 0; i < n && n % 7 == 0; i++)
                gpu_ints(s->numbers)[i] = n - 1 - i;
        draw_places(s);
        c->pieces = gpu_at(s->pieces, false);
        c->numbers = gpu_at(s->numbers, false);
}

static void make(state *s, gpu_test *t, const walk *w, uint64_t seed)
{
        const size_t lanes = (size_t)w->n_rows * (size_t)w->n_heads, share = (size_t)w->head_lists,
                     n = MAX_SEQUENCES * (size_t)w->n_heads * share;
        *s = (state){.t = t, .w = w, .now = 1};
        gpu_reset(t);
        dci_rng_seed(&s->rng, seed);
        s->rows = take_ints(s, MAX_SEQUENCES, GPU_MAPPED);
        s->positions = take_ints(s, n * (size_t)w->stride, GPU_MAPPED);
        s->counts = take_ints(s, n, GPU_MAPPED);
        s->sink_end = take_ints(s, MAX_SEQUENCES, GPU_MAPPED);
        s->recent_begin = take_ints(s, MAX_SEQUENCES, GPU_MAPPED);
        s->n_tokens = take_ints(s, MAX_SEQUENCES, GPU_MAPPED);
        s->b_now = take_ints(s, 1, GPU_MAPPED);
        s->tags = take_ints(s, lanes * (size_t)w->n_frames, GPU_DEVICE); /* poisoned: -1, and stamps that say nothing */
        s->stamps = take_ints(s, lanes * (size_t)w->n_frames, GPU_DEVICE);
        s->out_slots = take_ints(s, n * (size_t)w->stride, GPU_DEVICE);
        s->out_counts = take_ints(s, n, GPU_DEVICE);
        s->out_header = take_ints(s, 3 * MAX_SEQUENCES, GPU_DEVICE);
        s->items = gpu_take(t, n * (size_t)w->stride * sizeof(dci_gpu_item), GPU_DEVICE);
        s->n_items = take_ints(s, n, GPU_DEVICE);
        s->counters = gpu_take(t, lanes * 3 * sizeof(uint64_t), GPU_DEVICE);
        memset(s->counters->image, 0, s->counters->n_bytes);
        if (w->placed > 0)
                make_places(s);
        s->chosen = calloc(lanes * share * (size_t)w->n_tokens + 1, 1);
        ck_assert_ptr_nonnull(s->chosen);
        gpu_send_all(t);
}

/* Some positions leave a list, others come; with pages, positions come in runs. Returns how many there are. */
static int32_t move_list(state *s, unsigned char *chosen, int32_t *out)
{
        const walk *w = s->w;
        const int32_t most = (int32_t)dci_rng_below(&s->rng, 8) == 0
                                     ? (int32_t)dci_rng_below(&s->rng, (uint64_t)w->stride + 1)
                                     : w->stride;
        int32_t n = 0;
        for (int32_t p = 0; p < w->n_tokens; p++) {
                if (chosen[p] != 0 && (int32_t)dci_rng_below(&s->rng, 100) < w->churn)
                        chosen[p] = 0;
                n += chosen[p];
        }
        for (int32_t tries = 0; n < most && tries < 4 * w->stride; tries++) {
                int32_t p = (int32_t)dci_rng_below(&s->rng, (uint64_t)w->n_tokens);
                const int32_t run = w->unit_shift == 0 ? 1 : 1 + (int32_t)dci_rng_below(&s->rng, 20);
                for (int32_t k = 0; k < run && p < w->n_tokens && n < most; k++, p++) {
                        n += chosen[p] == 0;
                        chosen[p] = 1;
                }
        }
        for (int32_t p = w->n_tokens; n > most && p-- > 0;)
                if (chosen[p] != 0) {
                        chosen[p] = 0;
                        n--;
                }
        n = 0;
        for (int32_t p = 0; p < w->n_tokens; p++)
                if (chosen[p] != 0)
                        out[n++] = p;
        return n;
}

static void next_step(state *s, int32_t step)
{
        const walk *w = s->w;
        const int32_t from = (int32_t)dci_rng_below(&s->rng, (uint64_t)w->n_rows);
        s->n = 1 + (int32_t)dci_rng_below(&s->rng, (uint64_t)w->n_rows);
        s->now += w->jump > 0 && step % w->jump == w->jump - 1 ? 700 : 1;
        memcpy(s->b_now->image, &s->now, sizeof s->now);
        for (int32_t i = 0; i < s->n; i++) {
                const int32_t row = (from + i) % w->n_rows;
                gpu_ints(s->rows)[i] = row;
                gpu_ints(s->sink_end)[i] = 4 + i;
                gpu_ints(s->recent_begin)[i] = w->n_tokens - step % 50;
                gpu_ints(s->n_tokens)[i] = w->n_tokens + step;
                if (w->placed > 0)
                        gpu_ints(s->n_places)[i] = w->n_tokens - SINK - step % 30;
                const int32_t n_lists = w->n_heads * w->head_lists;
                for (int32_t l = 0; l < n_lists; l++) {
                        const size_t list = (size_t)(i * n_lists + l), held = (size_t)(row * n_lists + l);
                        gpu_ints(s->counts)[list] = move_list(s, s->chosen + held * (size_t)w->n_tokens,
                                                              gpu_ints(s->positions) + list * (size_t)w->stride);
                }
        }
        memset(s->out_slots->image, 0xff, s->out_slots->n_bytes);
        memset(s->items->image, 0xff, s->items->n_bytes);
}

/* --- the model: all frames that no hit holds, sorted --------------------------------------------------------------- */

typedef struct frame {
        int64_t unused; /* steps, as far as they are told apart */
        int32_t number;
} frame;

static int by_turn(const void *a, const void *b)
{
        const frame *x = a, *y = b;
        if (x->unused != y->unused)
                return x->unused > y->unused ? -1 : 1;
        return x->number < y->number ? -1 : 1;
}

/* What a unit is of, and the entry of the list that it is for. */
typedef struct wanted {
        int32_t row, entry;
} wanted;

static int by_row(const void *a, const void *b)
{
        const wanted *x = a, *y = b;
        return (x->row > y->row) - (x->row < y->row);
}

/* The list's rows, ascending; entries without one are read in the pool. */
static int32_t model_rows(state *s, int32_t i, size_t number, wanted *out)
{
        const size_t list = number * (size_t)s->w->stride;
        const int32_t h = (int32_t)number / s->w->head_lists % s->w->n_heads;
        const int32_t *positions = gpu_ints(s->positions) + list;
        int32_t n = 0;
        for (int32_t k = 0; k < gpu_ints(s->counts)[number]; k++) {
                const int32_t candidate = positions[k] - SINK;
                const bool known = s->w->placed == 0 || (candidate >= 0 && candidate < gpu_ints(s->n_places)[i]);
                const int32_t row = s->w->placed == 0 ? positions[k]
                                    : known           ? *place_of(s, true, gpu_ints(s->rows)[i], h, candidate)
                                                      : -1;
                if (row >= 0)
                        out[n++] = (wanted){row, k};
                else
                        gpu_ints(s->out_slots)[list + (size_t)k] = -1 - positions[k];
        }
        qsort(out, (size_t)n, sizeof *out, by_row);
        return n;
}

/* List l of a lane. Frames that were used in this step hold what lists before it want. */
static void model_list(state *s, int32_t i, int32_t h, int32_t l)
{
        static int32_t frame_of[700 * DCI_GPU_CHUNK];
        static frame free_frames[DCI_GPU_MAX_FRAMES];
        static wanted of[DCI_GPU_MAX_LIST];
        const walk *w = s->w;
        const int32_t row = gpu_ints(s->rows)[i], per = 1 << w->unit_shift, n_units = w->n_tokens / per + 1;
        const size_t of_call = (size_t)(i * w->n_heads + h), list = of_call * (size_t)w->head_lists + (size_t)l,
                     lane = (size_t)(row * w->n_heads + h);
        const int32_t *positions = gpu_ints(s->positions) + list * (size_t)w->stride, count = gpu_ints(s->counts)[list];
        int32_t *tags = gpu_ints(s->tags) + lane * (size_t)w->n_frames, n_free = 0, used = 0,
                *n_items = &gpu_ints(s->n_items)[of_call];
        uint32_t *stamps = (uint32_t *)(void *)s->stamps->image + lane * (size_t)w->n_frames;
        uint64_t *counters = (uint64_t *)(void *)s->counters->image + lane * 3;
        dci_gpu_item *items = (dci_gpu_item *)(void *)s->items->image + of_call * (size_t)(w->head_lists * w->stride);
        const int32_t n = model_rows(s, i, list, of);
        *n_items = l == 0 ? 0 : *n_items;
        counters[2] += (uint64_t)(count - n);
        for (int32_t u = 0; u < n_units; u++)
                frame_of[u] = -1;
        for (int32_t f = 0; f < w->n_frames; f++)
                if (tags[f] >= 0)
                        frame_of[tags[f]] = f;
        /* Hits are those units of the list with a frame. */
        for (int32_t k = 0; k < n; k++)
                if (frame_of[of[k].row / per] >= 0)
                        stamps[frame_of[of[k].row / per]] = s->now;
        for (int32_t f = 0; f < w->n_frames; f++) {
                const int64_t since = (int64_t)s->now - (int64_t)stamps[f];
                if (tags[f] < 0)
                        free_frames[n_free++] = (frame){INT64_MAX, f};
                else if (since > 0)
                        free_frames[n_free++] = (frame){since > DCI_GPU_AGES - 1 ? DCI_GPU_AGES - 1 : since, f};
        }
        qsort(free_frames, (size_t)n_free, sizeof *free_frames, by_turn);
        for (int32_t k = 0; k < n; k++) {
                const int32_t unit = of[k].row / per;
                const bool is_new = k == 0 || of[k - 1].row / per != unit;
                counters[0] += is_new;
                if (is_new && frame_of[unit] < 0 && used < n_free) {
                        const int32_t f = free_frames[used++].number;
                        frame_of[unit] = f;
                        tags[f] = unit;
                        stamps[f] = s->now;
                        items[(*n_items)++] = (dci_gpu_item){unit * per, 100 + f * per};
                        counters[1]++;
                }
                const int32_t f = frame_of[unit];
                counters[2] += f < 0;
                gpu_ints(s->out_slots)[list * (size_t)w->stride + (size_t)of[k].entry] =
                        f < 0 ? -1 - positions[of[k].entry] : 100 + f * per + of[k].row % per;
        }
        gpu_ints(s->out_counts)[list] = count;
}

static void model(state *s)
{
        for (int32_t i = 0; i < s->n; i++) {
                for (int32_t l = 0; l < s->w->n_heads * s->w->head_lists; l++)
                        model_list(s, i, l / s->w->head_lists, l % s->w->head_lists);
                gpu_ints(s->out_header)[i] = gpu_ints(s->sink_end)[i];
                gpu_ints(s->out_header)[s->n + i] = gpu_ints(s->recent_begin)[i];
                gpu_ints(s->out_header)[2 * s->n + i] = gpu_ints(s->n_tokens)[i];
        }
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

static dci_gpu_resolve_args arguments(const state *s)
{
        return (dci_gpu_resolve_args){.n_sequences = s->n,
                                      .n_heads = s->w->n_heads,
                                      .stride = s->w->stride,
                                      .unit_shift = s->w->unit_shift,
                                      .rows = gpu_at(s->rows, false),
                                      .positions = gpu_at(s->positions, false),
                                      .counts = gpu_at(s->counts, false),
                                      .sink_end = gpu_at(s->sink_end, false),
                                      .recent_begin = gpu_at(s->recent_begin, false),
                                      .n_tokens = gpu_at(s->n_tokens, false),
                                      .n_frames = s->w->n_frames,
                                      .first_slot = 100,
                                      .tags = gpu_at(s->tags, false),
                                      .stamps = gpu_at(s->stamps, false),
                                      .now = gpu_at(s->b_now, false),
                                      .out_slots = gpu_at(s->out_slots, false),
                                      .out_counts = gpu_at(s->out_counts, false),
                                      .out_header = gpu_at(s->out_header, false),
                                      .items = gpu_at(s->items, false),
                                      .n_items = gpu_at(s->n_items, false),
                                      .counters = gpu_at(s->counters, false),
                                      .places = s->places,
                                      .n_places = s->n_places != NULL ? gpu_at(s->n_places, false) : NULL,
                                      .sink = SINK,
                                      .head_lists = s->w->head_lists};
}

static void send_step(state *s)
{
        const gpu_buffer *const inputs[] = {s->rows,     s->positions, s->counts,    s->sink_end, s->recent_begin,
                                            s->n_tokens, s->b_now,     s->out_slots, s->items};
        for (size_t i = 0; i < COUNT(inputs); i++)
                gpu_send(s->t, inputs[i]);
        if (s->n_places != NULL)
                gpu_send(s->t, s->n_places);
}

/* What follows a lane's items is anything. */
static void overlook_rest(state *s)
{
        gpu_fetch(s->t, s->items);
        for (int32_t l = 0; l < s->n * s->w->n_heads; l++) {
                const size_t room = (size_t)(s->w->head_lists * s->w->stride), n = (size_t)gpu_ints(s->n_items)[l];
                const size_t at = ((size_t)l * room + n) * sizeof(dci_gpu_item), left = room - n;
                memcpy(s->items->image + at, s->items->back + at, left * sizeof(dci_gpu_item));
        }
}

static void compare(state *s, int32_t step)
{
        char what[160];
        const struct {
                const gpu_buffer *buffer;
                const char *name;
        } outputs[] = {{s->n_items, "n_items"},       {s->items, "items"},
                       {s->out_slots, "out_slots"},   {s->tags, "tags"},
                       {s->stamps, "stamps"},         {s->out_counts, "out_counts"},
                       {s->out_header, "out_header"}, {s->counters, "counters"},
                       {s->positions, "positions"}};
        if (s->n_places != NULL)
                overlook_rest(s);
        for (size_t i = 0; i < COUNT(outputs); i++) {
                snprintf(what, sizeof what, "%s, step %d, %s", s->w->name, (int)step, outputs[i].name);
                gpu_same(s->t, outputs[i].buffer, what);
        }
}

static void go(gpu_test *t, const walk *w, uint64_t seed, bool captured)
{
        state s;
        make(&s, t, w, seed);
        /* What looks for races needs seconds for what takes a millisecond; two steps at least, so that frames are found again. */
        const int32_t few = w->n_steps > 32 ? w->n_steps / 16 : 2, n_steps = test_short() ? few : w->n_steps;
        for (int32_t step = 0; step < n_steps; step++) {
                void *graph = NULL;
                next_step(&s, step);
                send_step(&s);
                model(&s);
                const dci_gpu_resolve_args args = arguments(&s);
                if (captured)
                        ck_ok(t->ops->capture_begin(t->gpu, t->stream));
                ck_ok(t->ops->resolve(t->gpu, t->stream, &args));
                if (captured) {
                        ck_ok(t->ops->capture_end(t->gpu, t->stream, &graph));
                        ck_ok(t->ops->graph_launch(t->gpu, graph, t->stream));
                }
                compare(&s, step);
                if (captured)
                        t->ops->graph_destroy(t->gpu, graph);
        }
        free(s.chosen);
}

START_TEST(frames_hold_what_was_used_last)
{
        for (size_t w = 0; w < COUNT(walks); w++)
                go(&gpu, &walks[w], 17 + w, false);
}
END_TEST

START_TEST(a_graph_resolves_as_a_call_does)
{
        for (size_t w = 0; w < COUNT(walks); w += 3)
                go(&gpu, &walks[w], 91 + w, true);
}
END_TEST

/* Frames of a lane with the units of a page are empty afterwards, and no others. Loops over how many units a page has. */
START_TEST(changed_pages_are_forgotten)
{
        enum { LANES = 7, FRAMES = 300, CHANGES = 60, PAGES = 40 };
        dci_rng rng;
        dci_rng_seed(&rng, 5);
        gpu_reset(&gpu);
        gpu_buffer *tags = gpu_take(&gpu, LANES * FRAMES * sizeof(int32_t), GPU_DEVICE),
                   *changes = gpu_take(&gpu, 2 * CHANGES * sizeof(int32_t), GPU_MAPPED);
        for (int32_t f = 0; f < LANES * FRAMES; f++)
                gpu_ints(tags)[f] = (int32_t)dci_rng_below(&rng, (PAGES << _i) + 1) - 1;
        for (int32_t i = 0; i < CHANGES; i++) {
                gpu_ints(changes)[2 * i] = (int32_t)dci_rng_below(&rng, LANES);
                gpu_ints(changes)[2 * i + 1] = (int32_t)dci_rng_below(&rng, PAGES);
        }
        gpu_send_all(&gpu);
        for (int32_t i = 0; i < CHANGES; i++)
                for (int32_t f = 0; f < FRAMES; f++) {
                        int32_t *tag = gpu_ints(tags) + gpu_ints(changes)[2 * i] * FRAMES + f;
                        *tag = *tag >> _i == gpu_ints(changes)[2 * i + 1] ? -1 : *tag;
                }
        dci_gpu_forget_args args = {.changes = gpu_at(changes, false),
                                    .n = CHANGES,
                                    .n_frames = FRAMES,
                                    .shift = _i,
                                    .tags = gpu_at(tags, false)};
        ck_ok(gpu.ops->forget(gpu.gpu, gpu.stream, &args));
        gpu_same(&gpu, tags, "tags");
        args.n = 0;
        ck_ok(gpu.ops->forget(gpu.gpu, gpu.stream, &args));
        gpu_same(&gpu, tags, "tags, with no changes");
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("gpu_resolve");
        TCase *tcase = test_case_with(suite, "gpu_resolve", 120, setup, teardown);
        tcase_add_test(tcase, frames_hold_what_was_used_last);
        tcase_add_test(tcase, a_graph_resolves_as_a_call_does);
        tcase_add_loop_test(tcase, changed_pages_are_forgotten, 0, 5);
        return test_main(suite);
}
