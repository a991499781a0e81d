/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * All rows of a sequence on the device, against a list of which token has which rows: for any steps, in any order of calls. What a call returns is
 * copied on the stream by work that nothing waits for, so that on a late device (gpu_late.h) a missing order shows.
 */
#include "tests/gpu_kv_fixture.h"

#include <string.h>

#include "offload/history.h"

enum { N = 700, MAX_TOKENS = 400, MOST = 4, ROOM = 32 << 20, OBSERVED = 32 };

/* A sequence: the token of the data that each of its tokens is. */
typedef struct tale {
        int64_t id;
        size_t n, more; /* tokens; of these, those of the step that is open */
        bool ended;     /* the prompt */
        int32_t tokens[MAX_TOKENS];
} tale;

/* Rows that were copied from what a call returned. */
typedef struct copied {
        struct copied *next;
        size_t at, layer;
        tale of;
} copied;

typedef struct life {
        twin t;
        kv_data data;
        size_t row, query; /* bytes of a token's rows, and of its queries, in a layer */
        unsigned char *keys, *values, *queries, *kept;
        copied *copies;
        size_t n_kept;
        bool early;  /* on a late device, copies are done as early as they may be */
        size_t from; /* the first token of the step in the data */
        tale tales[MOST];
        size_t n_tales;
        dci_kv_rows last; /* what the last call returned, for which sequence and layer; keys NULL: nothing */
        size_t last_layer;
        const tale *last_tale;
} life;

static life begin_with(dci_context *context, const dci_kv_config *config, const dci_gpu_kv_config *on_device,
                       kv_data data)
{
        life l = {.t = twin_begin_with(context, config, on_device), .data = data};
        const size_t n = config->n_layers * N;
        l.t.own_context = true;
        l.row = config->n_kv_heads * config->dim_k * 2;
        l.query = config->n_query_heads * config->dim_k * sizeof(float);
        l.keys = twin_send(&l.t, l.data.stored_keys, n * l.row);
        l.values = twin_send(&l.t, l.data.stored_values, n * l.row);
        l.queries = twin_send(&l.t, l.data.stored_queries, n * l.query);
        l.kept = twin_send(&l.t, NULL, ROOM);
        return l;
}

static life begin(const dci_kv_config *config, const dci_gpu_kv_config *on_device)
{
        return begin_with(test_context(2), config, on_device, kv_random(config, N, 3));
}

/* --- what was copied ---------------------------------------------------------------------------------------------- */

static void compare(const life *l, const copied *c, const unsigned char *seen)
{
        const size_t heads = l->t.config.n_kv_heads, row = l->row / heads, n = c->of.n;
        for (size_t v = 0; v < 2; v++)
                for (size_t h = 0; h < heads; h++)
                        for (size_t i = 0; i < n; i++) {
                                const void *stored = v == 0 ? l->data.stored_keys : l->data.stored_values;
                                const size_t token = c->layer * N + (size_t)c->of.tokens[i];
                                ck_assert_msg(memcmp(seen + c->at + ((v * heads + h) * n + i) * row,
                                                     (const unsigned char *)stored + token * l->row + h * row,
                                                     row) == 0,
                                              "%s, layer %zu, %s of token %zu of %zu (%zu new), head %zu", l->t.what,
                                              c->layer, v == 0 ? "key" : "value", i, n, c->of.more, h);
                        }
}

static void check_copies(life *l)
{
        unsigned char *seen = malloc(l->n_kept + 1);
        ck_assert_ptr_nonnull(seen);
        if (l->n_kept > 0)
                ck_ok(l->t.ops->copy(l->t.gpu, l->t.stream, seen, l->kept, l->n_kept));
        ck_ok(l->t.ops->stream_wait(l->t.gpu, l->t.stream));
        for (copied *c = l->copies, *next; c != NULL; c = next) {
                next = c->next;
                compare(l, c, seen);
                free(c);
        }
        l->copies = NULL;
        l->n_kept = 0;
        free(seen);
}

/* Keeps what the last call returned, as it is when the work on the stream comes to it. */
static void keep(life *l)
{
        copied *c = malloc(sizeof *c);
        ck_assert_ptr_nonnull(c);
        *c = (copied){l->copies, l->n_kept, l->last_layer, *l->last_tale};
        const size_t n_bytes = c->of.n * l->row;
        ck_assert_uint_le(l->n_kept + 2 * n_bytes, ROOM);
        ck_ok(l->t.ops->copy(l->t.gpu, l->t.stream, l->kept + c->at, l->last.keys, n_bytes));
        ck_ok(l->t.ops->copy(l->t.gpu, l->t.stream, l->kept + c->at + n_bytes, l->last.values, n_bytes));
        l->n_kept += 2 * n_bytes;
        l->copies = c;
}

static void end(life *l)
{
        const size_t n = l->t.config.n_layers * N;
        check_copies(l);
        twin_give(&l->t, l->keys, n * l->row);
        twin_give(&l->t, l->values, n * l->row);
        twin_give(&l->t, l->queries, n * l->query);
        twin_give(&l->t, l->kept, ROOM);
        twin_end(&l->t);
        kv_data_free(&l->data);
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

static tale *opened(life *l)
{
        tale *s = &l->tales[l->n_tales++];
        *s = (tale){.n = 0};
        ck_ok(dci_gpu_kv_open(l->t.kv, &s->id));
        return s;
}

/* Sequences of a step have tokens from `from` on, one after another. */
static void reserve(life *l, size_t n_turns, tale *const *turns, const size_t *n_tokens, size_t from)
{
        int64_t ids[MOST];
        l->from = from;
        for (size_t i = 0; i < n_turns; i++) {
                ids[i] = turns[i]->id;
                turns[i]->more = n_tokens[i];
                for (size_t j = 0; j < n_tokens[i]; j++)
                        turns[i]->tokens[turns[i]->n++] = (int32_t)from++;
        }
        ck_assert_uint_le(from, N);
        ck_ok(dci_gpu_kv_reserve(l->t.kv, l->t.stream, n_turns, ids, n_tokens));
        l->last.keys = NULL;
}

static void append(life *l, size_t layer)
{
        dci_kv_rows rows;
        ck_ok(dci_kv_rows_init(&rows, sizeof rows));
        rows.keys = l->keys + (layer * N + l->from) * l->row;
        rows.values = l->values + (layer * N + l->from) * l->row;
        ck_ok(dci_gpu_kv_append(l->t.kv, l->t.stream, layer, &rows));
}

static void end_prompt(life *l, size_t layer, const tale *s)
{
        const size_t n = s->more < OBSERVED ? s->more : OBSERVED,
                     first = s->more == 0 ? 0 : (size_t)s->tokens[s->n - n];
        ck_ok(dci_gpu_kv_end_prompt(l->t.kv, l->t.stream, layer, s->id, n, l->queries + (layer * N + first) * l->query,
                                    l->t.config.dim_k));
}

static dci_status try_to_ask(life *l, size_t layer, const tale *s)
{
        size_t n = 0;
        dci_kv_rows rows;
        ck_ok(dci_kv_rows_init(&rows, sizeof rows));
        const dci_status status = dci_gpu_kv_history(l->t.kv, l->t.stream, layer, s->id, &rows, &n);
        if (status != DCI_OK)
                return status;
        const size_t dim = l->t.config.dim_k;
        ck_assert_uint_eq(n, s->n);
        ck_assert_uint_eq(rows.struct_size, sizeof rows);
        ck_assert(rows.key_token_stride == dim && rows.value_token_stride == dim);
        ck_assert(rows.key_head_stride == n * dim && rows.value_head_stride == n * dim);
        ck_assert((uintptr_t)rows.keys % 16 == 0 && (uintptr_t)rows.values % 16 == 0);
        ck_assert((rows.keys == NULL) == (n == 0) && (rows.values == NULL) == (n == 0));
        l->last = rows;
        l->last_layer = layer;
        l->last_tale = s;
        return DCI_OK;
}

/* Asks for a sequence's rows, and keeps them: at once, and what was returned before for a last time. */
static void ask(life *l, size_t layer, const tale *s)
{
        if (l->last.keys != NULL)
                keep(l);
        ck_ok(try_to_ask(l, layer, s));
        if (l->early)
                ck_ok(l->t.ops->stream_wait(l->t.gpu, l->t.kv->history_stream));
        if (s->n > 0)
                keep(l);
}

static void end_step(life *l)
{
        if (l->last.keys != NULL)
                keep(l);
        ck_ok(dci_gpu_kv_step_end(l->t.kv, l->t.stream));
        l->last.keys = NULL;
}

/* A step of one sequence in which all layers are asked for. */
static void whole_step(life *l, tale *s, size_t n, size_t from)
{
        reserve(l, 1, &s, &n, from);
        for (size_t layer = 0; layer < l->t.config.n_layers; layer++) {
                append(l, layer);
                ask(l, layer, s);
        }
        end_step(l);
}

/* --- any life ----------------------------------------------------------------------------------------------------- */

typedef struct kind {
        int32_t preset, gather, planner;
        size_t page, dim, heads, dense;
        dci_dtype dtype;
        bool large_pieces;
} kind;

#define HOST DCI_GPU_PLAN_HOST
#define AUTO DCI_GPU_PLAN_AUTO
static const kind kinds[] = {
        {DCI_KV_SKETCH, DCI_GPU_GATHER_MAPPED, AUTO, 8, 64, 2, 1, DCI_BF16, false},
        {DCI_KV_SKETCH_LOWBIT, DCI_GPU_GATHER_MAPPED, AUTO, 16, 128, 2, 0, DCI_F16, true},
        {DCI_KV_FULL, DCI_GPU_GATHER_MAPPED, AUTO, 8, 64, 3, 3, DCI_BF16, false},
        {DCI_KV_QUEST, DCI_GPU_GATHER_DIRECT, AUTO, 8, 64, 1, 2, DCI_F16, false},
        {DCI_KV_CLUSTERKV, DCI_GPU_GATHER_MAPPED, AUTO, 8, 64, 2, 1, DCI_BF16, true},
        {DCI_KV_ICECACHE, DCI_GPU_GATHER_STAGED, HOST, 8, 64, 2, 0, DCI_BF16, false},
        {DCI_KV_STREAMING, DCI_GPU_GATHER_BATCHED, HOST, 64, 96, 2, 1, DCI_F16, false},
        {DCI_KV_SKETCH, DCI_GPU_GATHER_COPIES, HOST, 32, 256, 1, 1, DCI_BF16, true},
        {DCI_KV_LOUISKV, DCI_GPU_GATHER_MAPPED, AUTO, 8, 64, 2, 0, DCI_BF16, false},
        {DCI_KV_FREEKV, DCI_GPU_GATHER_MAPPED, HOST, 8, 64, 2, 1, DCI_F16, false},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static size_t pick(dci_rng *rng, size_t n)
{
        return (size_t)dci_rng_below(rng, (uint32_t)n);
}

static dci_kv_config config_of(const kind *k)
{
        dci_kv_config config = twin_small(k->preset);
        config.page_tokens = k->page;
        config.dim_k = config.dim_v = k->dim;
        config.n_kv_heads = k->heads;
        config.n_query_heads = 2 * k->heads;
        config.dense_layers = k->dense;
        config.dtype = k->dtype;
        return config;
}

static dci_gpu_kv_config device_of(const kind *k)
{
        dci_gpu_kv_config config = twin_on_device();
        config.max_sequences = MOST;
        config.max_tokens = MAX_TOKENS;
        config.gather = k->gather;
        config.planner = k->planner;
        config.piece_bytes = k->large_pieces ? 0 : 1;
        return config;
}

/* Asks as models do; for sequences of several tokens only; or in any order, more than once, or not at all. */
static void ask_some(life *l, size_t layer, size_t n_turns, tale *const *turns, size_t manner, dci_rng *rng)
{
        for (size_t i = 0; i < n_turns; i++) {
                if (manner == 0 || (manner == 1 && turns[i]->more > 1))
                        ask(l, layer, turns[i]);
                if (manner == 2 && pick(rng, 3) > 0)
                        ask(l, pick(rng, layer + 1), turns[pick(rng, n_turns)]);
        }
}

static void any_step(life *l, dci_rng *rng)
{
        static const size_t lengths[] = {1, 1, 1, 2, 5, 8, 31, 64, 100, 0};
        tale *turns[MOST] = {0};
        size_t n_tokens[MOST] = {0}, n_turns = 0, all = 0, first = pick(rng, l->n_tales);
        bool prompts[MOST] = {0};
        for (size_t i = 0; i < l->n_tales; i++) {
                tale *s = &l->tales[(first + i) % l->n_tales];
                const size_t n = lengths[pick(rng, 10)];
                if (s->n + n > MAX_TOKENS || (n_turns > 0 && pick(rng, 3) == 0))
                        continue;
                prompts[n_turns] = !s->ended && n > 0 && pick(rng, 2) == 0;
                turns[n_turns] = s;
                n_tokens[n_turns++] = n;
                all += n;
        }
        if (n_turns == 0 || all == 0)
                return;
        l->early = pick(rng, 2) == 0;
        const size_t manner = pick(rng, 4), stop = pick(rng, 8) == 0 ? pick(rng, 3) : l->t.config.n_layers;
        reserve(l, n_turns, turns, n_tokens, pick(rng, N - all + 1));
        for (size_t layer = 0; layer < l->t.config.n_layers && layer < stop; layer++) {
                append(l, layer);
                ask_some(l, layer, n_turns, turns, manner, rng);
                for (size_t i = 0; i < n_turns; i++)
                        if (prompts[i])
                                end_prompt(l, layer, turns[i]);
        }
        if (stop >= l->t.config.n_layers) {
                end_step(l);
                for (size_t i = 0; i < n_turns; i++)
                        turns[i]->ended = turns[i]->ended || prompts[i];
                return;
        }
        /* What the last call returned is read for the last time before the step is taken back. */
        if (l->last.keys != NULL)
                keep(l);
        ck_ok(dci_gpu_kv_step_abort(l->t.kv));
        for (size_t i = 0; i < n_turns; i++)
                turns[i]->n -= turns[i]->more;
}

/* Forks, cuts, and sequences that come and go; what is free is overwritten now and then. */
static void between(life *l, dci_rng *rng)
{
        tale *s = &l->tales[pick(rng, l->n_tales)], *more = &l->tales[l->n_tales];
        const size_t what = pick(rng, 8), left = pick(rng, s->n + 1);
        if (what == 0 && l->n_tales < MOST) {
                opened(l);
        } else if (what == 1 && l->n_tales < MOST && s->ended) {
                *more = *s;
                more->n = left;
                ck_ok(dci_gpu_kv_fork(l->t.kv, s->id, left, &more->id));
                l->n_tales++;
        } else if (what == 2) {
                ck_ok(dci_gpu_kv_truncate(l->t.kv, s->id, left));
                s->n = left;
        } else if (what == 3 && l->n_tales > 2) {
                ck_ok(dci_gpu_kv_close(l->t.kv, s->id));
                *s = l->tales[--l->n_tales];
        } else if (what == 4) {
                twin_poison(&l->t);
        }
}

static void live(const kind *k, uint64_t seed, size_t n_steps)
{
        const dci_kv_config config = config_of(k);
        const dci_gpu_kv_config on_device = device_of(k);
        life l = begin(&config, &on_device);
        dci_rng rng;
        dci_rng_seed(&rng, seed);
        opened(&l);
        for (size_t step = 0; step < n_steps; step++) {
                any_step(&l, &rng);
                if (step % 2 == 1)
                        between(&l, &rng);
                if (step % 3 == 2 || l.n_kept > ROOM / 2)
                        check_copies(&l);
        }
        end(&l);
}

START_TEST(rows_are_those_that_were_appended)
{
        const uint64_t n_seeds = test_short() ? 1 : 3;
        for (uint64_t seed = 0; seed < n_seeds; seed++)
                live(&kinds[_i], 100 * (uint64_t)_i + seed, test_short() ? 25 : 60);
}
END_TEST

/* Blocks that are packed go to the host on another stream than those that are not. */
START_TEST(packed_blocks_have_arrived)
{
        const kind k = kinds[_i];
        const dci_kv_config config = config_of(&k);
        const dci_gpu_kv_config on_device = device_of(&k);
        life l = begin(&config, &on_device);
        tale *s = opened(&l);
        l.early = true;
        for (size_t i = 0; i < 8; i++)
                whole_step(&l, s, i % 3 == 2 ? 3 : 60, 64 * i);
        end(&l);
}
END_TEST

/* The block of a fork, which a cut sequence gets a copy of when it goes on, also on the device. */
START_TEST(a_block_that_was_shared_has_arrived)
{
        const kind k = kinds[2];
        const dci_kv_config config = config_of(&k);
        const dci_gpu_kv_config on_device = device_of(&k);
        life l = begin(&config, &on_device);
        tale *s = opened(&l), *more = &l.tales[l.n_tales++];
        for (size_t i = 0; i < 3; i++) {
                reserve(&l, 1, &s, &(size_t){20}, 30 * i);
                for (size_t layer = 0; layer < config.n_layers; layer++) {
                        append(&l, layer);
                        if (i == 0)
                                end_prompt(&l, layer, s);
                        ask(&l, layer, s);
                }
                end_step(&l);
        }
        *more = *s;
        more->n = 56;
        ck_ok(dci_gpu_kv_fork(l.t.kv, s->id, 56, &more->id));
        ck_ok(dci_gpu_kv_truncate(l.t.kv, s->id, 45));
        s->n = 45;
        whole_step(&l, s, 9, 300);
        whole_step(&l, more, 9, 400);
        whole_step(&l, s, 9, 500);
        end(&l);
}
END_TEST

/* NaN, infinity and negative zero are bits as all others. */
START_TEST(bad_rows_are_copied_as_they_are)
{
        const kind k = kinds[0];
        const dci_kv_config config = config_of(&k);
        const dci_gpu_kv_config on_device = device_of(&k);
        kv_data data = kv_random(&config, N, 9);
        uint16_t *keys = data.stored_keys, *values = data.stored_values;
        for (size_t i = 0; i < config.n_layers * N * config.n_kv_heads * config.dim_k; i += 37) {
                keys[i] = 0x7fc1;
                values[i] = i % 2 == 0 ? 0xff80 : 0x8000;
        }
        life l = begin_with(test_context(1), &config, &on_device, data);
        tale *s = opened(&l);
        whole_step(&l, s, 77, 0);
        whole_step(&l, s, 30, 100);
        whole_step(&l, s, 1, 200);
        end(&l);
}
END_TEST

/* --- what comes over the bus -------------------------------------------------------------------------------------- */

static dci_kv_config usual(void)
{
        const kind k = kinds[0];
        return config_of(&k);
}

static dci_gpu_kv_config usual_device(void)
{
        const kind k = kinds[0];
        dci_gpu_kv_config config = device_of(&k);
        config.planner = DCI_GPU_PLAN_HOST;
        return config;
}

static uint64_t fetched(life *l)
{
        return twin_info(&l->t).bytes_fetched;
}

static size_t token_bytes(const life *l)
{
        return 2 * l->row;
}

START_TEST(each_earlier_token_comes_once)
{
        const dci_kv_config config = usual();
        const dci_gpu_kv_config on_device = usual_device();
        life l = begin(&config, &on_device);
        tale *turns[] = {opened(&l), opened(&l), opened(&l)};
        const size_t sparse = config.n_layers - config.dense_layers, first[] = {50, 93, 16}, then[] = {20, 1, 7};
        reserve(&l, 3, turns, first, 0);
        for (size_t layer = 0; layer < config.n_layers; layer++) {
                append(&l, layer);
                for (size_t i = 0; i < 3; i++)
                        ask(&l, layer, turns[i]);
        }
        end_step(&l);
        ck_assert_uint_eq(fetched(&l), 0);
        /* Sequences of one token are not asked for, and not copied. */
        reserve(&l, 3, turns, then, 200);
        for (size_t layer = 0; layer < config.n_layers; layer++) {
                append(&l, layer);
                ask(&l, layer, turns[0]);
                ask(&l, layer, turns[2]);
                ask(&l, layer, turns[2]);
        }
        end_step(&l);
        uint64_t wanted = sparse * (50 + 16) * token_bytes(&l);
        ck_assert_uint_eq(fetched(&l), wanted);
        /* Unless they are asked for in the first layer. */
        reserve(&l, 3, turns, then, 300);
        for (size_t layer = 0; layer < config.n_layers; layer++) {
                append(&l, layer);
                ask(&l, layer, turns[1]);
        }
        end_step(&l);
        /* The third sequence might have been asked for next, and in the first layer, which is dense, costs no bus. */
        wanted += sparse * 94 * token_bytes(&l);
        ck_assert_uint_eq(fetched(&l), wanted);
        end(&l);
}
END_TEST

START_TEST(a_repeated_call_queues_nothing)
{
        const dci_kv_config config = usual();
        const dci_gpu_kv_config on_device = usual_device();
        life l = begin(&config, &on_device);
        tale *s = opened(&l);
        whole_step(&l, s, 120, 0);
        reserve(&l, 1, &s, &(size_t){13}, 300);
        append(&l, 0);
        append(&l, 1);
        ask(&l, 1, s);
        const uint64_t before = fetched(&l);
        const void *keys = l.last.keys;
        ask(&l, 1, s);
        ck_assert_ptr_eq(l.last.keys, keys);
        ck_assert_uint_eq(fetched(&l), before);
        append(&l, 2);
        ask(&l, 2, s);
        ck_assert_ptr_ne(l.last.keys, keys);
        end_step(&l);
        end(&l);
}
END_TEST

/* Between blocks that are equally far apart, as steps of several sequences leave them, there is one copy for each head's keys, and values. */
static size_t n_row_copies;
static const dci_gpu_ops *counted_ops;

static dci_status counted_rows(dci_gpu *gpu, void *stream, void *to, const void *from, size_t from_step, size_t n_bytes,
                               size_t n)
{
        n_row_copies++;
        return counted_ops->copy_rows(gpu, stream, to, from, from_step, n_bytes, n);
}

START_TEST(few_copies_take_many_blocks)
{
        dci_kv_config config = usual();
        dci_gpu_kv_config on_device = usual_device();
        config.dense_layers = 0;
        on_device.piece_bytes = 0;
        life l = begin(&config, &on_device);
        tale *turns[] = {opened(&l), opened(&l)};
        /* Whole blocks of the two in turn. */
        for (size_t i = 0; i < 12; i++) {
                reserve(&l, 2, turns, (size_t[]){8, 8}, 16 * i);
                for (size_t layer = 0; layer < config.n_layers; layer++)
                        append(&l, layer);
                end_step(&l);
        }
        dci_gpu_ops ops = *l.t.gpu->ops;
        counted_ops = l.t.gpu->ops;
        ops.copy_rows = counted_rows;
        l.t.kv->ops = &ops;
        for (size_t i = 0; i < 2; i++) {
                n_row_copies = 0;
                reserve(&l, 1, &turns[i], &(size_t){2}, 500);
                for (size_t layer = 0; layer < config.n_layers; layer++) {
                        append(&l, layer);
                        ask(&l, layer, turns[i]);
                }
                end_step(&l);
                ck_assert_uint_eq(n_row_copies, config.n_layers * 2 * config.n_kv_heads);
        }
        l.t.kv->ops = counted_ops;
        end(&l);
}
END_TEST

/* --- prompts in chunks -------------------------------------------------------------------------------------------- */

static const int32_t planned[] = {DCI_KV_SKETCH,    DCI_KV_SKETCH_LOWBIT, DCI_KV_QUEST,
                                  DCI_KV_CLUSTERKV, DCI_KV_FREEKV,        DCI_KV_SKETCH_SUMS};
enum { N_PLANNED = sizeof planned / sizeof *planned, PROMPT = 360, DECODED = 30 };

/* A prompt in chunks, whose rows the history names; then a decode, whose outputs are returned. free() */
static float *prompt_in(const dci_kv_config *config, size_t chunk, uint64_t *out_clustered)
{
        const dci_gpu_kv_config on_device = {.struct_size = sizeof on_device,
                                             .max_sequences = 1,
                                             .max_tokens = MAX_TOKENS,
                                             .ring_tokens = 128,
                                             .hot_tokens = 128,
                                             .gather = DCI_GPU_GATHER_MAPPED,
                                             .out_dtype = DCI_F32,
                                             .piece_bytes = 1,
                                             .planner = DCI_GPU_PLAN_DEVICE};
        life l = begin(config, &on_device);
        tale *s = opened(&l);
        const size_t n_out = config->n_query_heads * config->dim_k, n_all = DECODED * config->n_layers * n_out;
        float *out = twin_send(&l.t, NULL, n_all * sizeof *out), *seen = malloc(n_all * sizeof *seen), *at = out;
        ck_assert_ptr_nonnull(seen);
        for (size_t from = 0; from < PROMPT; from += chunk) {
                const size_t n = PROMPT - from < chunk ? PROMPT - from : chunk;
                reserve(&l, 1, &s, &n, from);
                for (size_t layer = 0; layer < config->n_layers; layer++) {
                        append(&l, layer);
                        ask(&l, layer, s);
                        if (from + n < PROMPT)
                                continue;
                        if (from > 0)
                                ck_ok(dci_gpu_kv_prompt_rows(l.t.kv, l.t.stream, layer, s->id, &l.last));
                        end_prompt(&l, layer, s);
                }
                end_step(&l);
                ck_assert(l.t.kv->planner.clustered || from + n < PROMPT ||
                          l.t.kv->rows[0].n_formed == dci_kv_prompt_candidates(l.t.kv->host, PROMPT));
        }
        for (size_t i = 0; i < DECODED; i++) {
                reserve(&l, 1, &s, &(size_t){1}, PROMPT + i);
                for (size_t layer = 0; layer < config->n_layers; layer++, at += n_out) {
                        const void *queries = l.queries + (layer * N + PROMPT + i) * l.query;
                        append(&l, layer);
                        ck_ok(dci_gpu_kv_plan(l.t.kv, l.t.stream, layer, queries, config->dim_k));
                        ck_ok(dci_gpu_kv_attend(l.t.kv, l.t.stream, layer, queries, config->dim_k, at, config->dim_k,
                                                NULL));
                }
                end_step(&l);
        }
        ck_ok(l.t.ops->copy(l.t.gpu, l.t.stream, seen, out, n_all * sizeof *seen));
        ck_ok(l.t.ops->stream_wait(l.t.gpu, l.t.stream));
        *out_clustered = twin_info(&l.t).n_clustered;
        twin_give(&l.t, out, n_all * sizeof *out);
        end(&l);
        return seen;
}

START_TEST(a_prompt_in_chunks_decodes_as_one_in_a_step)
{
        const dci_kv_config config = twin_small(planned[_i]);
        const size_t n = DECODED * config.n_layers * config.n_query_heads * config.dim_k, chunks[] = {100, 359, 37};
        uint64_t clustered, wanted_clustered;
        float *wanted = prompt_in(&config, PROMPT, &wanted_clustered);
        ck_assert(wanted_clustered == (planned[_i] == DCI_KV_CLUSTERKV ? config.n_layers - config.dense_layers : 0));
        for (size_t c = 0; c < (test_short() ? 1 : 3); c++) {
                float *got = prompt_in(&config, chunks[c], &clustered);
                ck_assert_msg(memcmp(got, wanted, n * sizeof *got) == 0, "%s in chunks of %zu",
                              dci_kv_preset_name(planned[_i]), chunks[c]);
                ck_assert_uint_eq(clustered, wanted_clustered);
                free(got);
        }
        free(wanted);
}
END_TEST

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* No layer is dense and the host plans, so that nothing else grows on the device. */
static life without_growth(size_t max_device_bytes)
{
        dci_kv_config config = usual();
        dci_gpu_kv_config on_device = usual_device();
        config.dense_layers = 0;
        on_device.max_device_bytes = max_device_bytes;
        return begin(&config, &on_device);
}

START_TEST(buffers_grow_twofold_and_are_counted)
{
        life l = without_growth(0);
        const dci_gpu_kv_info before = twin_info(&l.t);
        static const size_t steps[][2] = {{10, 10}, {1, 20}, {9, 20}, {1, 40}, {100, 121}, {122, 243}};
        tale *s = opened(&l);
        size_t n = 0;
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
                whole_step(&l, s, steps[i][0], i);
                n += steps[i][0];
                const dci_gpu_kv_info now = twin_info(&l.t);
                /* The first step has no earlier tokens to copy for the next layer, but it asks for each. */
                ck_assert_uint_eq(now.buffer_bytes - before.buffer_bytes, 2 * steps[i][1] * token_bytes(&l));
                ck_assert_uint_eq(now.device_bytes - before.device_bytes, now.buffer_bytes - before.buffer_bytes);
        }
        whole_step(&l, s, MAX_TOKENS - n, 0);
        ck_assert_uint_eq(twin_info(&l.t).buffer_bytes - before.buffer_bytes, 2 * MAX_TOKENS * token_bytes(&l));
        end(&l);
}
END_TEST

START_TEST(buffers_are_freed_for_larger_ones_or_there_is_one)
{
        life l = without_growth(0);
        const size_t base = twin_info(&l.t).device_bytes, of_token = token_bytes(&l);
        end(&l);
        for (size_t room = 150; room < 340; room += 10) {
                l = without_growth(base + room * of_token + 5);
                tale *s = opened(&l);
                whole_step(&l, s, 70, 0);
                whole_step(&l, s, 30, 100);
                whole_step(&l, s, 50, 200);
                whole_step(&l, s, 0, 0);
                const size_t n_bytes = dci_gpu_kv_history_bytes(l.t.kv);
                ck_assert_uint_ge(n_bytes, (room >= 300 ? 2 : 1) * 150 * of_token);
                ck_assert_uint_le(n_bytes, room * of_token + 5);
                /* One token too many: nothing changes, and the step goes on. */
                const size_t too_many = room - 150 + 1;
                reserve(&l, 1, &s, &too_many, 0);
                append(&l, 0);
                ck_refused(try_to_ask(&l, 0, s), DCI_ERR_FULL, "max_device_bytes");
                append(&l, 1);
                ck_refused(try_to_ask(&l, 1, s), DCI_ERR_FULL, "max_device_bytes");
                append(&l, 2);
                ck_ok(dci_gpu_kv_step_end(l.t.kv, l.t.stream));
                ck_ok(dci_gpu_kv_truncate(l.t.kv, s->id, 140));
                s->n = 140;
                whole_step(&l, s, 10, 400);
                end(&l);
        }
}
END_TEST

static struct {
        size_t n, from; /* allocations so far; from this number on there is no memory, 0: always */
        const dci_gpu_ops *real;
} scarce;

static dci_status scarce_alloc(dci_gpu *gpu, size_t n_bytes, void **out)
{
        if (scarce.from > 0 && ++scarce.n >= scarce.from)
                return dci_fail(DCI_ERR_MEMORY, "no memory for %zu bytes", n_bytes);
        return scarce.real->alloc(gpu, n_bytes, out);
}

START_TEST(memory_may_be_short_from_any_allocation_on)
{
        size_t n_refused = 0;
        for (size_t from = 1; from < 14; from++) {
                life l = without_growth(0);
                dci_gpu_ops ops = *l.t.gpu->ops;
                scarce.real = l.t.gpu->ops;
                scarce.n = scarce.from = 0;
                ops.alloc = scarce_alloc;
                l.t.kv->ops = &ops;
                tale *s = opened(&l);
                whole_step(&l, s, 40, 0);
                reserve(&l, 1, &s, &(size_t){80}, 100);
                scarce.from = from;
                for (size_t layer = 0; layer < 3; layer++) {
                        append(&l, layer);
                        const size_t n_bytes = dci_gpu_kv_history_bytes(l.t.kv);
                        const dci_status status = try_to_ask(&l, layer, s);
                        if (status != DCI_OK) {
                                ck_assert_int_eq(status, DCI_ERR_MEMORY);
                                ck_assert_uint_le(dci_gpu_kv_history_bytes(l.t.kv), n_bytes);
                                n_refused++;
                                scarce.from = 0;
                                ask(&l, layer, s);
                        } else {
                                keep(&l);
                        }
                }
                scarce.from = 0;
                end_step(&l);
                whole_step(&l, s, 5, 300);
                l.t.kv->ops = scarce.real;
                end(&l);
        }
        ck_assert_uint_ge(n_refused, 1);
}
END_TEST

/* --- what is refused ---------------------------------------------------------------------------------------------- */

START_TEST(bad_arguments_are_refused)
{
        const dci_kv_config config = usual();
        const dci_gpu_kv_config on_device = usual_device();
        life l = begin(&config, &on_device);
        tale *s = opened(&l), *other = opened(&l);
        dci_kv_rows rows, small;
        size_t n = 77;
        ck_ok(dci_kv_rows_init(&rows, sizeof rows));
        small = rows;
        small.struct_size = 8;
        dci_gpu_kv *kv = l.t.kv;
        void *stream = l.t.stream;
        ck_refused(dci_gpu_kv_history(NULL, stream, 0, s->id, &rows, &n), DCI_ERR_INVALID, "kv is NULL");
        ck_refused(dci_gpu_kv_history(kv, stream, 0, s->id, &rows, &n), DCI_ERR_INVALID, "no step is open");
        reserve(&l, 1, &s, &(size_t){9}, 0);
        ck_refused(dci_gpu_kv_history(kv, stream, 0, s->id, &rows, &n), DCI_ERR_INVALID, "has not got its rows");
        append(&l, 0);
        ck_refused(dci_gpu_kv_history(kv, stream, 0, s->id, NULL, &n), DCI_ERR_INVALID, "out_rows is NULL");
        ck_refused(dci_gpu_kv_history(kv, stream, 0, s->id, &rows, NULL), DCI_ERR_INVALID, "out_n is NULL");
        ck_refused(dci_gpu_kv_history(kv, stream, 0, s->id, &small, &n), DCI_ERR_INVALID, "struct_size");
        ck_refused(dci_gpu_kv_history(kv, NULL, 0, s->id, &rows, &n), DCI_ERR_INVALID, "the step began on");
        ck_refused(dci_gpu_kv_history(kv, stream, 3, s->id, &rows, &n), DCI_ERR_INVALID, "layer is 3");
        ck_refused(dci_gpu_kv_history(kv, stream, 0, 12345, &rows, &n), DCI_ERR_NOT_FOUND, "12345");
        ck_refused(dci_gpu_kv_history(kv, stream, 0, other->id, &rows, &n), DCI_ERR_INVALID, "not in the step");
        ck_refused(dci_gpu_kv_history(kv, stream, 1, s->id, &rows, &n), DCI_ERR_INVALID, "has not got its rows");
        ck_assert(n == 77 && rows.keys == NULL);
        ask(&l, 0, s);
        append(&l, 1);
        append(&l, 2);
        end_step(&l);
        end(&l);
}
END_TEST

START_TEST(a_captured_stream_is_refused_and_the_capture_goes_on)
{
        const dci_kv_config config = usual();
        const dci_gpu_kv_config on_device = usual_device();
        life l = begin(&config, &on_device);
        void *graph = NULL;
        tale *s = opened(&l);
        whole_step(&l, s, 40, 0);
        reserve(&l, 1, &s, &(size_t){9}, 100);
        append(&l, 0);
        ck_ok(l.t.ops->capture_begin(l.t.gpu, l.t.stream));
        ck_refused(try_to_ask(&l, 0, s), DCI_ERR_INVALID, "captured");
        ck_ok(l.t.ops->capture_end(l.t.gpu, l.t.stream, &graph));
        l.t.ops->graph_destroy(l.t.gpu, graph);
        ask(&l, 0, s);
        append(&l, 1);
        append(&l, 2);
        ask(&l, 2, s);
        end_step(&l);
        end(&l);
}
END_TEST

START_TEST(rows_of_a_graph_are_not_known)
{
        const kind k = kinds[2];
        const dci_kv_config config = config_of(&k);
        const dci_gpu_kv_config on_device = device_of(&k);
        life l = begin(&config, &on_device);
        tale *s = opened(&l);
        whole_step(&l, s, 40, 0);
        reserve(&l, 1, &s, &(size_t){1}, 100);
        ck_ok(dci_gpu_kv_replay(l.t.kv, l.t.stream, 0));
        ck_refused(try_to_ask(&l, 1, s), DCI_ERR_INVALID, "from a graph");
        ck_ok(dci_gpu_kv_step_abort(l.t.kv));
        s->n--;
        whole_step(&l, s, 3, 200);
        end(&l);
}
END_TEST

static dci_status broken_rows(dci_gpu *gpu, void *stream, void *to, const void *from, size_t from_step, size_t n_bytes,
                              size_t n)
{
        (void)gpu;
        (void)stream;
        (void)to;
        (void)from;
        (void)from_step;
        (void)n_bytes;
        (void)n;
        return dci_fail(DCI_ERR_DEVICE, "copies do not work any more");
}

START_TEST(a_device_that_fails_is_given_up)
{
        const dci_kv_config config = usual();
        const dci_gpu_kv_config on_device = usual_device();
        life l = begin(&config, &on_device);
        tale *s = opened(&l);
        whole_step(&l, s, 40, 0);
        reserve(&l, 1, &s, &(size_t){9}, 100);
        append(&l, 0);
        dci_gpu_ops ops = *l.t.gpu->ops;
        ops.copy_rows = broken_rows;
        l.t.kv->ops = &ops;
        ck_refused(try_to_ask(&l, 0, s), DCI_ERR_DEVICE, "any more");
        ck_refused(try_to_ask(&l, 0, s), DCI_ERR_DEVICE, "only be destroyed");
        ck_refused(dci_gpu_kv_step_end(l.t.kv, l.t.stream), DCI_ERR_DEVICE, "any more");
        l.t.kv->ops = l.t.gpu->ops;
        end(&l);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("gpu kv history");
        TCase *lives = test_case(suite, "lives", 60), *laws = test_case(suite, "laws", 60),
              *refusals = test_case(suite, "refusals", 60);
        tcase_add_loop_test(lives, rows_are_those_that_were_appended, 0, N_KINDS);
        tcase_add_loop_test(lives, a_prompt_in_chunks_decodes_as_one_in_a_step, 0, N_PLANNED);
        tcase_add_loop_test(lives, packed_blocks_have_arrived, 0, 3);
        tcase_add_test(lives, a_block_that_was_shared_has_arrived);
        tcase_add_test(lives, bad_rows_are_copied_as_they_are);
        tcase_add_test(laws, each_earlier_token_comes_once);
        tcase_add_test(laws, a_repeated_call_queues_nothing);
        tcase_add_test(laws, few_copies_take_many_blocks);
        tcase_add_test(laws, buffers_grow_twofold_and_are_counted);
        tcase_add_test(laws, buffers_are_freed_for_larger_ones_or_there_is_one);
        tcase_add_test(laws, memory_may_be_short_from_any_allocation_on);
        tcase_add_test(refusals, bad_arguments_are_refused);
        tcase_add_test(refusals, a_captured_stream_is_refused_and_the_capture_goes_on);
        tcase_add_test(refusals, rows_of_a_graph_are_not_known);
        tcase_add_test(refusals, a_device_that_fails_is_given_up);
        return test_main(suite);
}
