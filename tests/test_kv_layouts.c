/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The KV cache in an engine's memory: any layout gives what the library's own memory gives; and which hook is called for that memory. */
#include "tests/common.h"

#include <string.h>

#include "dci/check.h"
#include "kv/kv_internal.h"
#include "tests/context_fixture.h"
#include "tests/kv_model.h"

enum { LAYERS = 2, HEADS = 2, DIM = 16, PAGE = 8, BLOCKS = 256, N = 330 };

/* --- an engine's memory --------------------------------------------------------------------------------------------------- */

/* By tokens, by heads, both with keys and values in turn, and by tokens with gaps. */
enum { NHD, HND, HND_TURNS, NHD_GAPS, N_FORMS };

typedef struct engine {
        dci_kv_config config;
        dci_kv_layout layout;
        void *keys[LAYERS], *values[LAYERS];
        unsigned char *memory;
        size_t bytes;
        bool in_place;    /* rows are put into their slots by the engine */
        size_t n_lent;    /* blocks, in an odd order */
        size_t tables[8]; /* blocks of each sequence */
} engine;

static void set_strides(dci_kv_layout *l, size_t form)
{
        const size_t gap = form == NHD_GAPS ? 8 : 0, turns = form == HND_TURNS ? 2 : 1;
        const bool by_head = form == HND || form == HND_TURNS;
        l->key_head_stride = by_head ? PAGE * DIM : DIM + gap;
        l->key_slot_stride = by_head ? DIM : HEADS * (DIM + gap) + gap;
        l->key_page_stride = turns * (by_head ? HEADS * l->key_head_stride : PAGE * l->key_slot_stride + gap);
        l->value_head_stride = l->key_head_stride;
        l->value_slot_stride = l->key_slot_stride;
        l->value_page_stride = l->key_page_stride;
}

/* The memory has a pattern where no row is. */
static engine *engine_new(const dci_kv_config *config, size_t form, int32_t blocks_by, bool in_place)
{
        engine *e = calloc(1, sizeof *e);
        ck_assert_ptr_nonnull(e);
        ck_ok(dci_kv_layout_init(&e->layout, sizeof e->layout));
        set_strides(&e->layout, form);
        const size_t es = dci_dtype_size(config->dtype), part = BLOCKS * e->layout.key_page_stride * es;
        e->bytes = 2 * LAYERS * part;
        e->memory = malloc(e->bytes);
        ck_assert_ptr_nonnull(e->memory);
        memset(e->memory, 0xA5, e->bytes);
        for (size_t layer = 0; layer < LAYERS; layer++) {
                e->keys[layer] = e->memory + 2 * layer * part;
                e->values[layer] = form == HND_TURNS ? (unsigned char *)e->keys[layer] + (size_t)HEADS * PAGE * DIM * es
                                                     : (unsigned char *)e->keys[layer] + part;
        }
        e->layout.keys = e->keys;
        e->layout.values = e->values;
        e->layout.n_blocks = BLOCKS;
        e->layout.blocks_by = blocks_by;
        e->in_place = in_place;
        e->config = *config;
        e->config.layout = &e->layout;
        return e;
}

static void engine_free(engine *e)
{
        test_free(e->memory, e);
}

static unsigned char *slot_of(const engine *e, bool value, size_t layer, size_t block, size_t head, size_t slot)
{
        const dci_kv_layout *l = &e->layout;
        const size_t at =
                value ? block * l->value_page_stride + head * l->value_head_stride + slot * l->value_slot_stride
                      : block * l->key_page_stride + head * l->key_head_stride + slot * l->key_slot_stride;
        return (unsigned char *)(value ? e->values[layer] : e->keys[layer]) + at * dci_dtype_size(e->config.dtype);
}

/* Copies rows of tokens [at, at + turn->n) of the sequence to their slots, or compares them with what is there. */
static void each_slot(const engine *e, dci_kv *kv, size_t layer, const kv_turn *turn, size_t at, bool put)
{
        const dci_kv_sequence_info info = kv_sequence_info(kv, turn->sequence);
        const size_t row = DIM * dci_dtype_size(e->config.dtype);
        int32_t blocks[BLOCKS];
        ck_ok(dci_kv_table(kv, turn->sequence, 0, info.n_blocks, blocks));
        for (size_t t = 0; t < turn->n; t++)
                for (size_t head = 0; head < HEADS; head++) {
                        const size_t from = ((layer * turn->data->n + turn->from + t) * HEADS + head) * row;
                        const size_t block = (size_t)blocks[(at + t) / PAGE];
                        const char *key = (char *)turn->data->stored_keys + from,
                                   *value = (char *)turn->data->stored_values + from;
                        unsigned char *k = slot_of(e, false, layer, block, head, (at + t) % PAGE),
                                      *v = slot_of(e, true, layer, block, head, (at + t) % PAGE);
                        if (put) {
                                memcpy(k, key, row);
                                memcpy(v, value, row);
                        } else {
                                test_hold(memcmp(k, key, row) == 0 && memcmp(v, value, row) == 0);
                        }
                }
}

/* The blocks that a sequence needs for n tokens, none of them next to another; 83 and 256 have no common divisor. */
static void lend(engine *e, dci_kv *kv, int64_t sequence, size_t n)
{
        while (e->layout.blocks_by == DCI_KV_BLOCKS_BY_CALLER && e->tables[sequence] * PAGE < n) {
                const int32_t block = (int32_t)((83 * e->n_lent++ + 5) % BLOCKS);
                ck_assert_uint_le(e->n_lent, BLOCKS);
                ck_ok(dci_kv_assign_blocks(kv, sequence, 1, &block));
                e->tables[sequence]++;
        }
}

/* A step of the engine; prompt: it ends the prompt, else there are plans. e NULL: the library's own memory. */
static kv_seen engine_step(engine *e, dci_kv *kv, kv_turn turn, bool prompt)
{
        const size_t at = kv_sequence_info(kv, turn.sequence).n_tokens;
        kv_seen seen = kv_seen_room(kv, 1, &turn);
        if (e != NULL)
                lend(e, kv, turn.sequence, at + turn.n);
        kv_reserve(kv, 1, &turn);
        for (size_t layer = 0; layer < LAYERS; layer++) {
                if (e != NULL && e->in_place) {
                        dci_kv_rows none;
                        ck_ok(dci_kv_rows_init(&none, sizeof none));
                        each_slot(e, kv, layer, &turn, at, true);
                        ck_ok(dci_kv_append(kv, layer, 1, &turn.sequence, &turn.n, &none));
                } else {
                        kv_append(kv, layer, 1, &turn);
                }
                if (e != NULL)
                        each_slot(e, kv, layer, &turn, at, false);
                if (prompt)
                        kv_prompt(kv, layer, turn.sequence, turn.data, turn.from + turn.n);
                kv_look_at(&seen, layer, 1, &turn);
        }
        kv_step_end(kv, 1, &turn);
        ck_ok(dci_kv_maintain(kv, 1, &turn.sequence));
        return seen;
}

static void step_alike(engine *e, dci_kv *kv, dci_kv *own, kv_turn turn, int64_t other, bool prompt, const char *what)
{
        kv_turn theirs = turn;
        theirs.sequence = other;
        kv_seen a = engine_step(e, kv, turn, prompt), b = engine_step(NULL, own, theirs, prompt);
        kv_lawful(&a, &e->config, 0, what);
        kv_same_and_free(&a, &b, what);
}

/* Loops over presets, forms, who gives blocks, and who writes rows. Two sequences by turns, one of them cut and forked. */
static void check_layout(int32_t preset, size_t form, int32_t blocks_by, bool in_place)
{
        dci_kv_config config = kv_small(preset);
        engine *e = engine_new(&config, form, blocks_by, in_place);
        dci_kv *kv = kv_create(context, &e->config), *own = kv_create(context, &config);
        kv_data data = kv_random(&config, N, 60), others = kv_random(&config, N, 61);
        const int64_t a = kv_open(kv), b = kv_open(kv), x = kv_open(own), y = kv_open(own);
        ck_assert(a < 4 && b < 4);
        const char *what = dci_kv_preset_name(preset);
        step_alike(e, kv, own, (kv_turn){a, &data, 0, 200}, x, true, what);
        step_alike(e, kv, own, (kv_turn){b, &others, 0, 131}, y, true, what);
        for (size_t t = 0; t < 40; t++) {
                step_alike(e, kv, own, (kv_turn){a, &data, 200 + t, 1}, x, false, what);
                step_alike(e, kv, own, (kv_turn){b, &others, 131 + 3 * t, 3}, y, false, what);
        }
        int64_t fork, copy;
        ck_ok(dci_kv_truncate(kv, a, 229));
        ck_ok(dci_kv_truncate(own, x, 229));
        e->tables[a] = (229 + PAGE - 1) / PAGE;
        ck_ok(dci_kv_fork(kv, a, 224, &fork));
        ck_ok(dci_kv_fork(own, x, 224, &copy));
        ck_assert_int_lt(fork, 8);
        e->tables[fork] = 224 / PAGE;
        for (size_t t = 0; t < 30; t++) {
                step_alike(e, kv, own, (kv_turn){fork, &others, 224 + t, 1}, copy, false, what);
                step_alike(e, kv, own, (kv_turn){a, &data, 229 + t, 1}, x, false, what);
        }
        const kv_turn all = {b, &others, 0, 131 + 3 * 40};
        for (size_t layer = 0; layer < LAYERS; layer++)
                each_slot(e, kv, layer, &all, 0, false);
        ck_assert_msg(dci_kv_check(kv, DCI_CHECK_FULL, NULL) == DCI_OK, "%s: %s", what, dci_last_error());
        dci_kv_destroy(kv);
        kv_end(own, &data);
        kv_data_free(&others);
        engine_free(e);
}

START_TEST(an_engines_memory_is_like_the_librarys_own)
{
        const size_t form = (size_t)_i / 4;
        const int32_t blocks_by = _i % 4 < 2 ? DCI_KV_BLOCKS_BY_LIBRARY : DCI_KV_BLOCKS_BY_CALLER;
        for (size_t p = 0; p < KV_N_PRESETS; p++)
                check_layout(kv_presets[p], form, blocks_by, _i % 2 == 1);
}
END_TEST

/* Not a byte changes but those of the rows. */
START_TEST(gaps_of_a_layout_are_not_touched)
{
        dci_kv_config config = kv_small(DCI_KV_SKETCH_LOWBIT);
        engine *e = engine_new(&config, NHD_GAPS, DCI_KV_BLOCKS_BY_LIBRARY, false);
        dci_kv *kv = kv_create(context, &e->config);
        kv_data data = kv_random(&config, 101, 62);
        const int64_t sequence = kv_begin(kv, &data, 100);
        kv_decode_all(kv, sequence, &data, 100, 1);
        const kv_turn all = {sequence, &data, 0, 101};
        unsigned char *after = malloc(e->bytes);
        ck_assert_ptr_nonnull(after);
        memcpy(after, e->memory, e->bytes);
        memset(e->memory, 0xA5, e->bytes);
        for (size_t layer = 0; layer < LAYERS; layer++)
                each_slot(e, kv, layer, &all, 0, true);
        ck_assert(memcmp(after, e->memory, e->bytes) == 0);
        free(after);
        kv_end(kv, &data);
        engine_free(e);
}
END_TEST

/* Loops over who gives blocks. What does not fit is refused with both numbers, and the cache is as before. */
START_TEST(blocks_of_a_layout_end)
{
        dci_kv_config config = kv_small(DCI_KV_TOPK);
        const bool lent = _i == 1;
        engine *e = engine_new(&config, NHD, lent ? DCI_KV_BLOCKS_BY_CALLER : DCI_KV_BLOCKS_BY_LIBRARY, false);
        e->layout.n_blocks = 20;
        dci_kv *kv = kv_create(context, &e->config);
        kv_data data = kv_random(&config, N, 63);
        const int64_t sequence = kv_open(kv);
        const int32_t blocks[] = {3, 19, 7, 0};
        size_t n = lent ? 4 * PAGE + 1 : 20 * PAGE + 1;
        if (lent)
                ck_ok(dci_kv_assign_blocks(kv, sequence, 4, blocks));
        ck_refused(dci_kv_reserve(kv, 1, &sequence, &n), DCI_ERR_FULL, lent ? "4" : "20");
        ck_assert_uint_eq(kv_sequence_info(kv, sequence).n_reserved, 0);
        kv_prefill(kv, sequence, &data, n - 1, 0);
        n = 1;
        ck_refused(dci_kv_reserve(kv, 1, &sequence, &n), DCI_ERR_FULL, "block");
        ck_ok(dci_kv_truncate(kv, sequence, 3 * PAGE));
        if (lent)
                ck_ok(dci_kv_assign_blocks(kv, sequence, 1, blocks + 3));
        kv_decode_all(kv, sequence, &data, 3 * PAGE, PAGE);
        kv_end(kv, &data);
        engine_free(e);
}
END_TEST

START_TEST(bad_blocks_are_not_taken)
{
        dci_kv_config config = kv_small(DCI_KV_TOPK);
        engine *e = engine_new(&config, NHD, DCI_KV_BLOCKS_BY_CALLER, false);
        dci_kv *kv = kv_create(context, &e->config), *own = kv_create(context, &config);
        const int64_t sequence = kv_open(kv), other = kv_open(own);
        const int32_t far[] = {1, BLOCKS}, below[] = {1, -2}, twice[] = {4, 4}, good[] = {1, 2};
        ck_refused(dci_kv_assign_blocks(own, other, 2, good), DCI_ERR_INVALID, "lent");
        ck_refused(dci_kv_assign_blocks(kv, sequence, 2, far), DCI_ERR_INVALID, "256");
        ck_refused(dci_kv_assign_blocks(kv, sequence, 2, below), DCI_ERR_INVALID, "-2");
        ck_refused(dci_kv_assign_blocks(kv, sequence, 2, twice), DCI_ERR_INVALID, "4");
        ck_refused(dci_kv_assign_blocks(kv, sequence, 2, NULL), DCI_ERR_INVALID, "NULL");
        ck_refused(dci_kv_assign_blocks(kv, sequence + 99, 2, good), DCI_ERR_NOT_FOUND, "99");
        ck_ok(dci_kv_assign_blocks(kv, sequence, 0, NULL));
        const size_t n = 2 * PAGE;
        ck_refused(dci_kv_reserve(kv, 1, &sequence, &n), DCI_ERR_FULL, "block"); /* none of those was taken */
        ck_ok(dci_kv_assign_blocks(kv, sequence, 2, good));
        ck_ok(dci_kv_reserve(kv, 1, &sequence, &n));
        int32_t table[2] = {-1, -1};
        ck_ok(dci_kv_table(kv, sequence, 0, 2, table));
        ck_assert(table[0] == good[0] && table[1] == good[1]);
        dci_kv_destroy(kv);
        dci_kv_destroy(own);
        engine_free(e);
}
END_TEST

/* An engine that shares a prefix assigns its blocks to both, and appends what is there already. */
START_TEST(a_block_may_be_lent_to_several_sequences)
{
        dci_kv_config config = kv_small(DCI_KV_SKETCH);
        engine *e = engine_new(&config, HND, DCI_KV_BLOCKS_BY_CALLER, false);
        dci_kv *kv = kv_create(context, &e->config), *own = kv_create(context, &config);
        kv_data data = kv_random(&config, 240, 64);
        const int64_t first = kv_open(kv), second = kv_open(kv), control = kv_begin(own, &data, 200);
        step_alike(e, kv, own, (kv_turn){first, &data, 0, 200}, kv_open(own), true, "first");
        int32_t blocks[25];
        ck_ok(dci_kv_table(kv, first, 0, 25, blocks));
        ck_ok(dci_kv_assign_blocks(kv, second, 25, blocks));
        e->tables[second] = 25;
        e->in_place = true;
        kv_seen seen = engine_step(e, kv, (kv_turn){second, &data, 0, 200}, true);
        kv_seen_free(&seen);
        ck_assert_uint_eq(kv_sequence_info(kv, second).n_shared_blocks, 25);
        ck_ok(dci_kv_close(kv, first));
        for (size_t t = 200; t < 220; t++)
                step_alike(e, kv, own, (kv_turn){second, &data, t, 1}, control, false, "second");
        dci_kv_destroy(kv);
        kv_end(own, &data);
        engine_free(e);
}
END_TEST

/* A step that is taken back leaves its blocks lent; closing gives them back. */
START_TEST(lent_blocks_stay_lent_until_they_are_cut)
{
        dci_kv_config config = kv_small(DCI_KV_SKETCH);
        engine *e = engine_new(&config, NHD, DCI_KV_BLOCKS_BY_CALLER, false);
        dci_kv *kv = kv_create(context, &e->config), *own = kv_create(context, &config);
        kv_data data = kv_random(&config, 240, 68);
        const int64_t sequence = kv_open(kv), control = kv_open(own);
        lend(e, kv, sequence, 220);
        const kv_turn turn = {sequence, &data, 0, 220};
        kv_reserve(kv, 1, &turn);
        kv_append(kv, 0, 1, &turn);
        ck_ok(dci_kv_step_abort(kv, 1, &sequence));
        ck_assert_uint_eq(kv_sequence_info(kv, sequence).n_blocks, 28);
        ck_assert_uint_eq(kv_info(kv).n_free_blocks, BLOCKS - 28);
        step_alike(e, kv, own, (kv_turn){sequence, &data, 0, 200}, control, true, "after an abort");
        for (size_t t = 200; t < 230; t++)
                step_alike(e, kv, own, (kv_turn){sequence, &data, t, 1}, control, false, "after an abort");
        ck_ok(dci_kv_truncate(kv, sequence, 17));
        ck_assert_uint_eq(kv_info(kv).n_free_blocks, BLOCKS - 3);
        ck_ok(dci_kv_close(kv, sequence));
        ck_assert_uint_eq(kv_info(kv).n_free_blocks, BLOCKS);
        dci_kv_destroy(kv);
        kv_end(own, &data);
        engine_free(e);
}
END_TEST

/* A block of the caller cannot be copied by the library, so it is not cut through. */
START_TEST(forks_of_lent_blocks_are_at_whole_blocks)
{
        dci_kv_config config = kv_small(DCI_KV_TOPK);
        engine *e = engine_new(&config, NHD, DCI_KV_BLOCKS_BY_CALLER, false);
        dci_kv *kv = kv_create(context, &e->config);
        kv_data data = kv_random(&config, 200, 65);
        const int64_t sequence = kv_open(kv);
        int64_t fork = -7;
        kv_seen seen = engine_step(e, kv, (kv_turn){sequence, &data, 0, 200}, true);
        kv_seen_free(&seen);
        ck_refused(dci_kv_fork(kv, sequence, 101, &fork), DCI_ERR_UNSUPPORTED, "101");
        ck_assert_int_eq(fork, -7);
        ck_assert_uint_eq(kv_info(kv).n_sequences, 1);
        ck_ok(dci_kv_fork(kv, sequence, 104, &fork));
        kv_end(kv, &data);
        engine_free(e);
}
END_TEST

/* Blocks do not change hands in the middle of a step, rows of two sequences do not go into one block, and a file has no place. */
START_TEST(lent_blocks_are_not_written_by_two)
{
        dci_kv_config config = kv_small(DCI_KV_TOPK);
        engine *e = engine_new(&config, NHD, DCI_KV_BLOCKS_BY_CALLER, false);
        dci_kv *kv = kv_create(context, &e->config);
        kv_data data = kv_random(&config, 3 * PAGE, 66);
        const int64_t first = kv_open(kv), second = kv_open(kv);
        const int32_t blocks[] = {5, 6, 7};
        ck_ok(dci_kv_assign_blocks(kv, first, 2, blocks));
        const kv_turn turn = {first, &data, 0, 2 * PAGE}, other = {second, &data, 0, PAGE + 1};
        kv_reserve(kv, 1, &turn);
        ck_refused(dci_kv_assign_blocks(kv, first, 1, blocks + 2), DCI_ERR_INVALID, "in the middle of a step");
        for (size_t layer = 0; layer < LAYERS; layer++)
                kv_append(kv, layer, 1, &turn);
        ck_ok(dci_kv_step_abort(kv, 1, &first));
        kv->pool.stamp =
                UINT32_MAX - 1; /* after so many calls of lending, marks of the first ones do not count again */
        kv->pool.seen[blocks[2]] = 1;
        ck_ok(dci_kv_assign_blocks(kv, second, 0, NULL));
        ck_ok(dci_kv_assign_blocks(kv, second, 1, blocks + 2));
        ck_refused(dci_kv_assign_blocks(kv, second, 1, blocks + 2), DCI_ERR_INVALID, "block 7 twice");
        ck_ok(dci_kv_assign_blocks(kv, second, 1, blocks + 1));
        kv_reserve(kv, 1, &other);
        dci_kv_rows rows;
        ck_ok(dci_kv_rows_init(&rows, sizeof rows));
        rows.keys = data.stored_keys;
        rows.values = data.stored_values;
        ck_refused(dci_kv_append(kv, 0, 1, &second, &other.n, &rows), DCI_ERR_UNSUPPORTED, "into block 6");
        ck_ok(dci_kv_step_abort(kv, 1, &second));
        int64_t loaded = -7;
        ck_refused(dci_kv_load(kv, "any", &loaded), DCI_ERR_UNSUPPORTED, "blocks are the caller's");
        ck_assert_int_eq(loaded, -7);
        kv_end(kv, &data);
        engine_free(e);
}
END_TEST

/* --- hooks ---------------------------------------------------------------------------------------------------------------- */

typedef struct hook_state {
        dci_kv *kv; /* what the hook calls back */
        void *pieces[64];
        size_t sizes[64], n, bytes, asked;
        size_t refuse_at; /* the n-th asking is refused with 77 */
        dci_status called;
} hook_state;

static int32_t taken(void *ctx, void *memory, size_t n_bytes)
{
        hook_state *t = ctx;
        if (++t->asked == t->refuse_at)
                return 77;
        test_hold(t->n < 64 && memory != NULL);
        memset(memory, 0, n_bytes); /* it is there */
        t->pieces[t->n] = memory;
        t->sizes[t->n++] = n_bytes;
        t->bytes += n_bytes;
        int64_t sequence;
        if (t->kv != NULL)
                t->called = dci_kv_open(t->kv, &sequence);
        return 0;
}

static void given_back(void *ctx, void *memory, size_t n_bytes)
{
        hook_state *t = ctx;
        size_t i = 0;
        while (i < t->n && t->pieces[i] != memory)
                i++;
        test_hold(i < t->n && t->sizes[i] == n_bytes);
        t->pieces[i] = t->pieces[--t->n];
        t->sizes[i] = t->sizes[t->n];
        t->bytes -= n_bytes;
}

START_TEST(hooks_are_told_of_all_memory_of_rows)
{
        hook_state t = {.called = DCI_OK};
        dci_kv_config config = kv_config(DCI_KV_SKETCH_LOWBIT, 2, 2, 2, 64);
        config.hook = (dci_kv_hook){&t, taken, given_back};
        dci_kv *kv = kv_create(context, &config);
        kv_data data = kv_random(&config, 3000, 66);
        t.kv = kv;
        kv_begin(kv, &data, 1000);
        ck_assert_uint_gt(t.n, 0);
        ck_assert_uint_eq(t.bytes, kv_info(kv).row_bytes);
        const int64_t longer = kv_begin(kv, &data, 3000);
        ck_assert_uint_gt(t.n, 1);
        ck_assert_uint_eq(t.bytes, kv_info(kv).row_bytes);
        ck_assert_uint_ge(t.bytes, 4000 * kv_info(kv).token_bytes);
        ck_assert_int_eq(t.called, DCI_ERR_BUSY);
        ck_ok(dci_kv_close(kv, longer));
        dci_kv_destroy(kv);
        ck_assert_uint_eq(t.n, 0);
        ck_assert_uint_eq(t.bytes, 0);
        kv_data_free(&data);
}
END_TEST

/* Slots of blocks beyond most_blocks have no numbers; here that is soon. Loops over blocks in a piece, 1 to 16. */
START_TEST(all_blocks_of_a_pool_have_slots_with_numbers)
{
        enum { MOST = 10 };
        const size_t per_piece = (size_t)1 << _i;
        dci_kv_config config = kv_config(DCI_KV_SKETCH, 1, 1, 1, 32);
        config.page_tokens = 16;
        config.piece_bytes = per_piece * 16 * 2 * 32 * 2;
        for (size_t k = 0; k < (MOST + 3) * (MOST + 3); k++) {
                dci_kv *kv = kv_create(context, &config);
                ck_assert_uint_eq(kv->pool.piece_blocks, per_piece);
                kv->pool.max_blocks = MOST;
                for (size_t i = 0, there = 0; i < 2; i++) {
                        const size_t n_blocks = i == 0 ? k / (MOST + 3) : k % (MOST + 3), n_tokens = 16 * n_blocks;
                        const int64_t sequence = kv_open(kv);
                        const bool fits = there + n_blocks <= MOST;
                        ck_assert_int_eq(dci_kv_reserve(kv, 1, &sequence, &n_tokens), fits ? DCI_OK : DCI_ERR_FULL);
                        ck_assert_uint_le(kv->pool.n_blocks, MOST);
                        there += fits ? n_blocks : 0;
                        ck_ok(dci_kv_check(kv, DCI_CHECK_STRUCTURE, NULL));
                }
                dci_kv_destroy(kv);
        }
}
END_TEST

/* Pieces are of the wanted size or the next power of two of blocks, and whole memory pages. Loops over sizes. */
START_TEST(pieces_are_as_large_as_is_wanted)
{
        static const size_t sizes[] = {1, 4097, 100000, 1 << 20};
        hook_state t = {.n = 0};
        dci_kv_config config = kv_config(DCI_KV_SKETCH, 3, 1, 2, 24);
        config.page_tokens = 8;
        config.hook = (dci_kv_hook){&t, taken, given_back};
        config.piece_bytes = sizes[_i];
        dci_kv *kv = kv_create(context, &config);
        kv_data data = kv_random(&config, 400, 68);
        kv_begin(kv, &data, 400);
        const size_t block = 3 * 8 * 2 * 24 * 2;
        ck_assert_uint_gt(t.n, 0);
        for (size_t p = 0; p < t.n; p++) {
                ck_assert_uint_eq((uintptr_t)t.pieces[p] % 4096, 0);
                ck_assert_uint_eq(t.sizes[p] % 4096, 0);
                ck_assert_uint_ge(t.sizes[p], sizes[_i]);
                ck_assert_uint_lt(t.sizes[p], 2 * sizes[_i] + block + 4096);
        }
        kv_end(kv, &data);
}
END_TEST

/* Loops over the n-th piece. */
START_TEST(a_hook_that_refuses_refuses_the_call)
{
        hook_state t = {.refuse_at = (size_t)_i + 1};
        dci_kv_config config = kv_config(DCI_KV_SKETCH, 2, 2, 2, 64);
        config.hook = (dci_kv_hook){&t, taken, given_back};
        dci_kv *kv = kv_create(context, &config);
        kv_data data = kv_random(&config, 3000, 67);
        const int64_t sequence = kv_open(kv);
        const size_t n = 3000;
        ck_refused(dci_kv_reserve(kv, 1, &sequence, &n), DCI_ERR_FULL, "77");
        ck_assert_uint_eq(kv_info(kv).n_blocks, kv_info(kv).n_free_blocks);
        ck_assert_uint_eq(kv_info(kv).row_bytes, t.bytes);
        ck_assert_uint_eq(kv_sequence_info(kv, sequence).n_reserved, 0);
        kv_prefill(kv, sequence, &data, n, 0);
        ck_assert_uint_eq(kv_info(kv).row_bytes, t.bytes);
        dci_kv_destroy(kv);
        ck_assert_uint_eq(t.n, 0);
        kv_data_free(&data);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("kv layouts");
        TCase *layouts = test_case_with(suite, "layouts", 60, context_open_2, context_close);
        tcase_add_loop_test(layouts, an_engines_memory_is_like_the_librarys_own, 0, 4 * N_FORMS);
        tcase_add_test(layouts, gaps_of_a_layout_are_not_touched);
        tcase_add_loop_test(layouts, blocks_of_a_layout_end, 0, 2);
        tcase_add_test(layouts, bad_blocks_are_not_taken);
        tcase_add_test(layouts, a_block_may_be_lent_to_several_sequences);
        tcase_add_test(layouts, lent_blocks_stay_lent_until_they_are_cut);
        tcase_add_test(layouts, forks_of_lent_blocks_are_at_whole_blocks);
        tcase_add_test(layouts, lent_blocks_are_not_written_by_two);
        tcase_add_test(layouts, hooks_are_told_of_all_memory_of_rows);
        tcase_add_loop_test(layouts, pieces_are_as_large_as_is_wanted, 0, 4);
        tcase_add_loop_test(layouts, all_blocks_of_a_pool_have_slots_with_numbers, 0, 5);
        tcase_add_loop_test(layouts, a_hook_that_refuses_refuses_the_call, 0, 2);
        return test_main(suite);
}
