/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Contiguous copies: rows in the order of the groups, wherever these go, and outputs that are the same bits as without.
 */
#include "tests/gpu_kv_fixture.h"
#include "tests/scratch.h"

#include "kv/lookup.h"
#include "kv/memory.h"
#include "offload/copies.h"

#include <string.h>

enum { PROMPT = 250, N = 900, ROOM = 700000 };

static const struct {
        int32_t preset, schedule;
        size_t period;
} kinds[] = {
        {DCI_KV_ICECACHE, 0, 0},
        {DCI_KV_CLUSTERKV, 0, 0},
        {DCI_KV_PRKV, 0, 3},
        {DCI_KV_LOUISKV, 0, 0},
        {DCI_KV_RETROINFER, 0, 0},
        {DCI_KV_ICECACHE, DCI_KV_ANCHOR, 0},
        {DCI_KV_CLUSTERKV, DCI_KV_AHEAD, 0},
        {DCI_KV_CLUSTERKV, DCI_KV_ANCHOR, 0},
        {DCI_KV_LOUISKV, DCI_KV_PERIODIC, 3},
        {DCI_KV_PRKV, DCI_KV_PERIODIC, 2},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static dci_kv_config config_of(int kind, int32_t contiguous)
{
        dci_kv_config config = twin_small(kinds[kind].preset);
        config.n_layers = 5;
        config.dtype = kind % 2 == 0 ? DCI_BF16 : DCI_F16;
        if (kinds[kind].schedule != 0)
                config.schedule = kinds[kind].schedule;
        if (kinds[kind].period != 0)
                twin_set_period(&config, kinds[kind].period);
        config.tau = 0.02;
        config.anchor_first = 1;
        config.anchor_period = 2;
        if (kinds[kind].preset == DCI_KV_CLUSTERKV)
                config.cluster_tokens = 12;
        if (kinds[kind].preset == DCI_KV_CLUSTERKV || kinds[kind].preset == DCI_KV_RETROINFER)
                config.cluster_every = 40;
        config.contiguous = contiguous;
        return config;
}

static dci_gpu_kv_config for_some(size_t n, int32_t planner)
{
        dci_gpu_kv_config config = twin_on_device();
        config.max_sequences = n;
        config.planner = planner;
        return config;
}

/* --- what is there -------------------------------------------------------------------------------------------------- */

/* One head's copy has each candidate's row once, where its place says. */
static size_t check_head(twin *t, const dci_kv_sequence *sequence, const dci_kv_layer *layer, size_t head)
{
        const dci_kv *kv = t->kv->host;
        const dci_kv_layer *owner = &sequence->layers[dci_kv_anchor_of(kv, layer->number)];
        const size_t copied = dci_kv_copied_number(kv, layer->number), page = kv->config.page_tokens;
        const size_t of_owner = dci_kv_copied_number(kv, owner->number), row = kv->dim_k * kv->es;
        const int32_t *places = dci_kv_copy_places(kv, sequence, of_owner, head);
        size_t n = 0, batch = 0;
        int32_t ids[DCI_KV_TILE];
        for (size_t p = 0; p < sequence->copy.n_table; p++) {
                const int32_t *there = dci_kv_copy_ids(kv, copied, sequence->copy.table[p], head);
                const dci_kv_page at = dci_kv_copy_at(kv, copied, sequence->copy.table[p], head);
                dci_kv_listed_page(kv, owner, head, p, &batch, ids);
                for (size_t i = 0; i < page; i++) {
                        const void *key, *value;
                        ck_assert_int_eq(there[i], ids[i]);
                        if (ids[i] < 0)
                                continue;
                        n++;
                        ck_assert_int_eq(places[ids[i]], (int32_t)(p * page + i));
                        dci_kv_rows_of(kv, layer, head, kv->config.sink + (size_t)ids[i], 1, &key, &value);
                        ck_assert_mem_eq(at.keys + i * at.key_step, key, row);
                        ck_assert_mem_eq(at.values + i * at.value_step, value, row);
                }
        }
        ck_assert_uint_eq(n, owner->n_grouped);
        for (size_t c = owner->n_grouped; c < sequence->copy.n_places; c++)
                ck_assert_int_lt(places[c], 0);
        return n;
}

/* The device's places and table are the host's. */
static void check_device(twin *t, const dci_gpu_kv_row *row, const dci_kv_sequence *sequence)
{
        const dci_gpu_kv_copies *c = t->kv->copies;
        const size_t number = dci_gpu_kv_row_number(t->kv, row), n = sequence->copy.n_places,
                     n_pages = sequence->copy.n_table;
        const size_t chunk = c->places.head_bytes;
        int32_t *table = malloc(n_pages * sizeof *table + 1), *places = malloc(chunk);
        ck_assert(table != NULL && places != NULL);
        ck_ok(t->ops->copy(t->gpu, t->stream, table, c->device_tables + number * c->max_blocks,
                           n_pages * sizeof *table));
        ck_ok(t->ops->stream_wait(t->gpu, t->stream));
        ck_assert(memcmp(table, sequence->copy.table, n_pages * sizeof *table) == 0);
        for (size_t l = 0; l < t->config.n_layers; l++)
                for (size_t h = 0; h < t->config.n_kv_heads && !t->kv->layers[l].dense; h++) {
                        const size_t index = t->kv->layers[l].index;
                        const int32_t *wanted = dci_kv_copy_places(t->kv->host, sequence, index, h);
                        if (dci_kv_anchor_of(t->kv->host, l) != l)
                                continue;
                        for (size_t i = 0; i < n; i += DCI_GPU_CHUNK) {
                                const int32_t at = dci_gpu_kv_store_numbers(&c->places, number)[i / DCI_GPU_CHUNK];
                                ck_ok(t->ops->copy(t->gpu, t->stream, places,
                                                   dci_gpu_kv_store_at(&c->places, index, at) + h * chunk, chunk));
                                ck_ok(t->ops->stream_wait(t->gpu, t->stream));
                                const size_t here = n - i < DCI_GPU_CHUNK ? n - i : DCI_GPU_CHUNK;
                                ck_assert(memcmp(places, wanted + i, here * sizeof *places) == 0);
                        }
                }
        test_free(table, places);
}

/* Frames have the rows that the copy has now, unless their unit is to be forgotten in the next step. */
static void check_frames(twin *t, const dci_gpu_kv_row *row, const dci_kv_sequence *sequence, size_t layer)
{
        const dci_gpu_kv *kv = t->kv;
        const dci_gpu_lanes lanes = dci_gpu_kv_lanes(kv, layer);
        const size_t number = dci_gpu_kv_row_number(kv, row), index = kv->layers[layer].index,
                     unit = (size_t)1 << kv->unit_shift;
        const size_t first = kv->n_slots - kv->config.hot_tokens, page = kv->shape.page_tokens;
        int32_t *tags = malloc(kv->n_frames * sizeof *tags + 1);
        unsigned char *keys = malloc(unit * kv->row_bytes);
        ck_assert(tags != NULL && keys != NULL);
        for (size_t h = 0; h < kv->shape.n_kv_heads; h++) {
                const size_t lane = index * kv->n_lists + number * kv->shape.n_kv_heads + h;
                ck_ok(t->ops->copy(t->gpu, t->stream, tags, kv->tags + lane * kv->n_frames,
                                   kv->n_frames * sizeof *tags));
                ck_ok(t->ops->stream_wait(t->gpu, t->stream));
                for (size_t f = 0; f < kv->n_frames; f++) {
                        if (tags[f] < 0)
                                continue;
                        const size_t from = (size_t)tags[f] << kv->unit_shift, slot = first + (f << kv->unit_shift);
                        ck_assert_uint_lt(from / page, sequence->copy.n_table);
                        const dci_kv_page at = dci_kv_copy_at(kv->host, index, sequence->copy.table[from / page], h);
                        const int32_t *ids = dci_kv_copy_ids(kv->host, index, sequence->copy.table[from / page], h);
                        ck_ok(t->ops->copy(t->gpu, t->stream, keys,
                                           lanes.keys + ((number * kv->shape.n_kv_heads + h) * kv->n_slots + slot) *
                                                                kv->row_bytes,
                                           unit * kv->row_bytes));
                        ck_ok(t->ops->stream_wait(t->gpu, t->stream));
                        for (size_t i = 0; i < unit; i++)
                                if (ids[from % page + i] >= 0)
                                        ck_assert_mem_eq(keys + i * kv->row_bytes,
                                                         at.keys + (from % page + i) * at.key_step, kv->row_bytes);
                }
        }
        test_free(tags, keys);
}

/* Blocks are counted as often as sequences have them. */
static void check_blocks(const dci_kv *kv)
{
        const dci_kv_pool *pool = &kv->copies;
        size_t used = 0;
        for (size_t b = 0; b < pool->n_blocks; b++) {
                size_t n = 0;
                for (size_t i = 0; i < kv->n_sequences; i++)
                        for (size_t p = 0; p < kv->sequences[i]->copy.n_table; p++)
                                n += kv->sequences[i]->copy.table[p] == (int32_t)b;
                ck_assert_uint_eq(n, pool->refs[b]);
                used += n > 0;
        }
        ck_assert_uint_eq(used + pool->n_free, dci_kv_pool_there(pool));
}

/* Between steps: what is up to date is right; returns how many rows there are. */
static size_t check_books(twin *t)
{
        size_t n = 0;
        if (!t->kv->copies->on)
                return 0;
        ck_ok(dci_gpu_kv_sync(t->kv));
        ck_ok(dci_kv_check(t->kv->host, DCI_CHECK_STRUCTURE, NULL));
        check_blocks(t->kv->host);
        for (size_t r = 0; r < t->kv->config.max_sequences; r++) {
                const dci_gpu_kv_row *row = &t->kv->rows[r];
                if (row->id < 0 || !row->copied)
                        continue;
                const dci_kv_sequence *sequence = dci_gpu_kv_host_sequence(t->kv, row);
                if (!dci_kv_copies_current(t->kv->host, sequence))
                        continue;
                for (size_t l = 0; l < t->config.n_layers; l++) {
                        for (size_t h = 0; h < t->config.n_kv_heads && !t->kv->layers[l].dense; h++)
                                n += check_head(t, sequence, &sequence->layers[l], h);
                        if (!t->kv->layers[l].dense)
                                check_frames(t, row, sequence, l);
                }
                check_device(t, row, sequence);
        }
        return n;
}

/* --- what is computed ----------------------------------------------------------------------------------------------- */

/* Returns how many rows of copies were there. */
static size_t decode_all(twin *t, size_t n_turns, kv_turn *turns, size_t n_steps)
{
        size_t n = 0;
        static const size_t ragged[] = {1, 3, 1, 1, 2};
        for (size_t s = 0; s < n_steps; s++) {
                for (size_t i = 0; i < n_turns; i++)
                        turns[i].n = s % 3 == 2 ? ragged[(s + i) % 5] : 1;
                twin_step(t, n_turns, turns, NULL, true);
                if (s % 4 == 0)
                        n += check_books(t);
                for (size_t i = 0; i < n_turns; i++)
                        turns[i].from += turns[i].n;
                twin_maintain(t);
        }
        return n;
}

static int64_t save_and_load(twin *t, int64_t sequence, size_t n)
{
        int64_t a = -1, b = -1;
        ck_ok(dci_gpu_kv_save(t->kv, sequence, n, scratch_path("sequence")));
        ck_ok(dci_gpu_kv_load(t->kv, scratch_path("sequence"), &a));
        ck_ok(dci_kv_save(t->cpu, sequence, n, scratch_path("other")));
        ck_ok(dci_kv_load(t->cpu, scratch_path("other"), &b));
        ck_assert_int_eq(a, b);
        return a;
}

static void swap(twin *t, int64_t sequence)
{
        ck_ok(dci_gpu_kv_swap_out(t->kv, sequence));
        ck_ok(dci_gpu_kv_trim(t->kv, DCI_GPU_TRIM_ALL));
        check_books(t);
        ck_ok(dci_gpu_kv_swap_in(t->kv, sequence));
}

/* Prompts in one step and in several, ragged batches, forks, cuts, steps that are taken back, files, sequences that are swapped
 * out. */
static float *life(const dci_kv_config *config, const dci_gpu_kv_config *on_device, dci_gpu_kv_info *out_info)
{
        twin t = twin_begin(config, on_device);
        float *out = t.kept = calloc(ROOM, sizeof *t.kept);
        ck_assert_ptr_nonnull(out);
        t.kept_room = ROOM;
        kv_data data = kv_random(config, N, 50), other = kv_random(config, N, 51);
        kv_turn a = {twin_prefill(&t, &data, PROMPT, 0), &data, PROMPT, 1},
                b = {twin_prefill(&t, &other, 130, 50), &other, 130, 1};
        kv_turn turns[] = {b, a, {0}};
        size_t n = decode_all(&t, 2, turns, 12);
        ck_assert((config->contiguous == 0) == (n == 0));
        turns[2] = (kv_turn){twin_fork(&t, a.sequence, 201), &other, 201, 1};
        decode_all(&t, 3, turns, 9);
        swap(&t, a.sequence);
        decode_all(&t, 2, turns, 3);
        twin_truncate(&t, b.sequence, 120);
        turns[0].from = 120;
        turns[0].data = &data; /* other tokens in the same places */
        decode_all(&t, 3, turns, 6);
        /* Through what the fork has, too. */
        twin_truncate(&t, a.sequence, 157);
        const kv_turn more = {a.sequence, &other, 300, 60};
        twin_reserve(&t, 1, &more);
        twin_append(&t, 0, 1, &more);
        twin_abort(&t, 1, &more);
        turns[1].from = 500;
        decode_all(&t, 3, turns, 8);
        twin_step(&t, 1, &more, NULL, true);
        twin_maintain(&t);
        n = decode_all(&t, 3, turns, 40);
        ck_assert((config->contiguous == 0) == (n == 0));
        twin_close(&t, b.sequence);
        turns[0] = (kv_turn){save_and_load(&t, a.sequence, 150), &data, 350, 1};
        decode_all(&t, 3, turns, 9);
        twin_truncate(&t, turns[0].sequence, 0);
        turns[0].from = 400;
        decode_all(&t, 2, turns + 1, 50);
        check_books(&t);
        *out_info = twin_info(&t);
        twin_close(&t, a.sequence);
        twin_close(&t, turns[2].sequence);
        twin_close(&t, turns[0].sequence);
        if (t.kv->copies->on)
                check_blocks(t.kv->host);
        ck_ok(dci_gpu_kv_trim(t.kv, DCI_GPU_TRIM_ALL));
        ck_assert_uint_eq(kv_info(t.kv->host).copy_bytes, 0);
        kv_data_free(&data);
        kv_data_free(&other);
        twin_end(&t);
        return out;
}

/* Every third kind will do for sanitizers and slow devices. */
static bool left_out(int kind)
{
        return test_short() && kind % 3 != 1;
}

static void same_as_without(int kind, int32_t planner)
{
        if (left_out(kind))
                return;
        const dci_kv_config config = config_of(kind, 1), plain = config_of(kind, 0);
        const dci_gpu_kv_config on_device = for_some(3, planner);
        dci_gpu_kv_info info, without;
        float *got = life(&config, &on_device, &info), *wanted = life(&plain, &on_device, &without);
        ck_assert_int_eq(info.planner, without.planner);
        ck_assert_msg(memcmp(got, wanted, ROOM * sizeof *got) == 0, "kind %d, planner %d", kind, (int)info.planner);
        ck_assert_uint_gt(info.n_asked, 0);
        ck_assert_uint_lt(info.n_asked, without.n_asked);
        ck_assert_uint_gt(info.n_missed, 0);
        ck_assert_uint_gt(info.n_asked, info.n_missed);
        test_free(got, wanted);
}

/* Loops over kinds. */
START_TEST(outputs_are_the_same_bits_as_without)
{
        same_as_without(_i, DCI_GPU_PLAN_HOST);
}
END_TEST

START_TEST(outputs_are_the_same_bits_as_without_where_the_device_plans)
{
        same_as_without(_i, DCI_GPU_PLAN_AUTO);
}
END_TEST

/* The pool's rows are overwritten once the copies are there: what is fetched comes from these alone. A tail over clusters also reads
 * members in the pool. Loops over kinds. */
START_TEST(what_is_fetched_comes_from_the_copies)
{
        if (left_out(_i))
                return;
        dci_kv_config config = config_of(_i, 1);
        const dci_gpu_kv_config on_device = for_some(1, DCI_GPU_PLAN_AUTO);
        if (config.preset == DCI_KV_PRKV)
                config.period = 128; /* a new order would be made from the pool's rows */
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N, 52);
        const int64_t sequence = twin_prefill(&t, &data, PROMPT, 0);
        if (t.plans && kinds[_i].preset != DCI_KV_RETROINFER) {
                twin_decode(&t, sequence, &data, PROMPT, 2);
                ck_ok(dci_gpu_kv_sync(t.kv));
                const uint64_t stayed = twin_info(&t).n_stayed;
                ck_assert_uint_gt(check_books(&t), 0);
                for (size_t l = config.dense_layers; l < config.n_layers; l++)
                        for (int32_t b = 0; b < 20; b++) /* in its order: nobody else has taken any */
                                memset(dci_gpu_kv_host_block(t.kv, l, b), 0xff, t.kv->host->pool.block_bytes);
                twin_decode(&t, sequence, &data, PROMPT + 2, 3);
                ck_assert_uint_eq(twin_info(&t).n_stayed, stayed);
        }
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* --- sharing -------------------------------------------------------------------------------------------------------- */

static size_t n_used(const dci_kv *kv)
{
        return dci_kv_pool_there(&kv->copies) - kv->copies.n_free;
}

/* A fork takes no memory for what it has in common; tokens that it adds change few pages. Loops over kinds. */
START_TEST(forks_share_what_is_the_same)
{
        if (left_out(_i))
                return;
        const dci_kv_config config = config_of(_i, 1);
        const dci_gpu_kv_config on_device = for_some(2, DCI_GPU_PLAN_AUTO);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N, 53);
        const int64_t sequence = twin_prefill(&t, &data, 600, 0);
        twin_decode(&t, sequence, &data, 600, 3);
        const size_t before = n_used(t.kv->host);
        ck_assert_uint_ge(before, 600 / config.page_tokens / 2);
        const int64_t fork = twin_fork(&t, sequence, 603);
        ck_assert_uint_eq(n_used(t.kv->host), before);
        twin_decode(&t, fork, &data, 603, 3);
        check_books(&t);
        const size_t more = n_used(t.kv->host) - before;
        ck_assert_msg(more <= before / 4 || config_of(_i, 1).period == 2 || config_of(_i, 1).period == 3,
                      "kind %d: %zu of %zu pages", _i, more, before);
        twin_close(&t, sequence);
        twin_decode(&t, fork, &data, 606, 3);
        check_books(&t);
        twin_close(&t, fork);
        ck_assert_uint_eq(n_used(t.kv->host), 0);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* A row of the copy that is another candidate's is found by dci_kv_check. */
START_TEST(a_wrong_row_is_found)
{
        const dci_kv_config config = config_of(1, 1);
        const dci_gpu_kv_config on_device = for_some(1, DCI_GPU_PLAN_HOST);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N, 55);
        const int64_t sequence = twin_prefill(&t, &data, PROMPT, 0);
        twin_step(&t, 1, &(kv_turn){sequence, &data, PROMPT, 1}, NULL, true);
        ck_ok(dci_gpu_kv_sync(t.kv));
        const dci_kv_copy *copy = &dci_kv_find(t.kv->host, sequence)->copy;
        int32_t *ids = dci_kv_copy_ids(t.kv->host, 2, copy->table[3], 1), *places = copy->places;
        ck_ok(dci_kv_check(t.kv->host, DCI_CHECK_STRUCTURE, NULL));
        ids[5]++;
        ck_refused(dci_kv_check(t.kv->host, DCI_CHECK_STRUCTURE, NULL), DCI_ERR_FORMAT, "row 29 of the copy");
        ids[5]--;
        places[7]++;
        ck_refused(dci_kv_check(t.kv->host, DCI_CHECK_STRUCTURE, NULL), DCI_ERR_FORMAT, "of the copy");
        places[7]--;
        t.kv->host->copies.refs[copy->table[0]]++;
        ck_refused(dci_kv_check(t.kv->host, DCI_CHECK_STRUCTURE, NULL), DCI_ERR_FORMAT, "is counted 2 times");
        t.kv->host->copies.refs[copy->table[0]]--;
        ck_ok(dci_kv_check(t.kv->host, DCI_CHECK_STRUCTURE, NULL));
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* --- limits --------------------------------------------------------------------------------------------------------- */

/* Copies count for max_bytes: a step that has no room for them is refused, and goes on when there is room. */
START_TEST(copies_count_for_max_bytes)
{
        dci_kv_config config = config_of(1, 1);
        const dci_gpu_kv_config on_device = for_some(2, DCI_GPU_PLAN_AUTO);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N, 54);
        const int64_t sequence = twin_prefill(&t, &data, 500, 0);
        const kv_turn turn = {sequence, &data, 500, 1};
        ck_ok(dci_gpu_kv_sync(t.kv));
        if (t.plans) {
                ck_ok(dci_kv_build_next(t.kv->host, sequence, true));
                dci_kv *host = t.kv->host;
                const size_t room = kv_info(host).row_bytes / 2;
                host->config.max_bytes = kv_info(host).bytes + room;
                ck_refused(dci_gpu_kv_reserve(t.kv, t.stream, 1, &sequence, NULL), DCI_ERR_FULL, "max_bytes");
                ck_assert_uint_le(kv_info(host).bytes, host->config.max_bytes);
                host->config.max_bytes = 0;
        }
        twin_step(&t, 1, &turn, NULL, true);
        ck_assert_uint_ge(kv_info(t.kv->host).copy_bytes, 450 * (config.n_layers - 1) * config.n_kv_heads * 2 * 64 * 2);
        const dci_gpu_kv_info info = twin_info(&t);
        ck_assert_uint_ge(info.pinned_bytes, kv_info(t.kv->host).row_bytes + kv_info(t.kv->host).copy_bytes);
        ck_assert_uint_eq(info.unit_tokens, 4);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

static void refused(const dci_kv_config *config, const dci_gpu_kv_config *on_device, dci_status wanted,
                    const char *part)
{
        dci_context *context = test_context(1);
        dci_gpu *gpu = twin_gpu(context);
        dci_gpu_kv *kv = NULL;
        ck_refused(dci_gpu_kv_create(gpu, config, on_device, &kv), wanted, part);
        dci_gpu_destroy(gpu);
        dci_context_destroy(context);
}

START_TEST(what_it_does_not_go_with_is_refused)
{
        dci_kv_config config = config_of(1, 1);
        dci_gpu_kv_config on_device = for_some(1, DCI_GPU_PLAN_AUTO);
        on_device.gather = DCI_GPU_GATHER_STAGED;
        refused(&config, &on_device, DCI_ERR_UNSUPPORTED, "gather is 2");
        on_device.gather = DCI_GPU_GATHER_DIRECT;
        refused(&config, &on_device, DCI_ERR_UNSUPPORTED, "gather is 5");
        on_device = for_some(1, DCI_GPU_PLAN_AUTO);
        on_device.device_resident_bytes = 4096;
        refused(&config, &on_device, DCI_ERR_UNSUPPORTED, "resident pages are by position");
        on_device.device_resident_bytes = 0;
        config.contiguous = 2;
        refused(&config, &on_device, DCI_ERR_INVALID, "contiguous is 2");
        config = twin_small(DCI_KV_SKETCH);
        config.contiguous = 1;
        refused(&config, &on_device, DCI_ERR_INVALID, "group TOKEN: single tokens have no pages");
        config = twin_small(DCI_KV_QUEST);
        config.contiguous = 1;
        refused(&config, &on_device, DCI_ERR_INVALID, "group PAGE: its pages are contiguous");
        config = config_of(1, 1);
        config.select = DCI_KV_SELECT_RECENT;
        refused(&config, &on_device, DCI_ERR_INVALID, "select RECENT");
        dci_kv_layout layout;
        void *rows[5] = {rows, rows, rows, rows, rows};
        ck_ok(dci_kv_layout_init(&layout, sizeof layout));
        layout.keys = layout.values = rows;
        layout.n_blocks = 4;
        layout.key_page_stride = layout.value_page_stride = 1024;
        layout.key_head_stride = layout.value_head_stride = 512;
        layout.key_slot_stride = layout.value_slot_stride = 64;
        config = config_of(1, 1);
        config.layout = &layout;
        refused(&config, &on_device, DCI_ERR_UNSUPPORTED, "layout");
        /* A dci_kv without a device makes no copies. */
        config.layout = NULL;
        dci_context *context = test_context(1);
        dci_kv *kv = kv_create(context, &config);
        ck_assert_uint_eq(kv_info(kv).copy_bytes, 0);
        dci_kv_destroy(kv);
        dci_context_destroy(context);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("gpu kv contiguous copies");
        TCase *laws = test_case(suite, "laws", 60), *lives = test_case(suite, "lives", 60);
        tcase_add_loop_test(lives, outputs_are_the_same_bits_as_without, 0, N_KINDS);
        tcase_add_loop_test(lives, outputs_are_the_same_bits_as_without_where_the_device_plans, 0, N_KINDS);
        tcase_add_loop_test(laws, what_is_fetched_comes_from_the_copies, 0, N_KINDS);
        tcase_add_loop_test(laws, forks_share_what_is_the_same, 0, N_KINDS);
        tcase_add_test(laws, a_wrong_row_is_found);
        tcase_add_test(laws, copies_count_for_max_bytes);
        tcase_add_test(laws, what_it_does_not_go_with_is_refused);
        return test_main(suite);
}
