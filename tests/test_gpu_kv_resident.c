/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Resident pages: they come, leave and are shared, and no bit of an output depends on it. Places that are free are overwritten by NaN. */
#include "tests/gpu_kv_fixture.h"

#include <string.h>

enum { PROMPT = 250, N = 700, ROOM = 700000, PAGE = 8 };

static dci_gpu_kv_config for_some(size_t n, size_t resident_bytes)
{
        dci_gpu_kv_config config = twin_on_device();
        config.max_sequences = n;
        config.planner = DCI_GPU_PLAN_AUTO;
        config.device_resident_bytes = resident_bytes;
        return config;
}

/* Of a page in all sparse layers; the first layer of twin_small is dense. */
static size_t page_bytes(const dci_kv_config *config)
{
        return (config->n_layers - config->dense_layers) * config->page_tokens * config->n_kv_heads * config->dim_k * 4;
}

static int32_t place_of(const twin *t, int64_t sequence, size_t page)
{
        int32_t block;
        ck_ok(dci_kv_table(t->kv->host, sequence, page, 1, &block));
        return t->kv->resident->slots[block];
}

static size_t resident_pages(const twin *t, int64_t sequence)
{
        const dci_gpu_kv_row *row = dci_gpu_kv_find(t->kv, sequence);
        size_t n = 0;
        for (size_t p = 0; p < dci_gpu_kv_blocks(t->kv, row->n); p++)
                n += place_of(t, sequence, p) >= 0;
        return n;
}

/* Between steps: who has which place is the same by place, by block, by sequence and on the device, and a place's rows are those that host
 * memory has. */
static void check_books(twin *t)
{
        const dci_gpu_kv_resident *r = t->kv->resident;
        const dci_kv_pool *pool = &t->kv->host->pool;
        size_t n_used = 0;
        if (r->n_slots == 0)
                return;
        ck_ok(dci_gpu_kv_sync(t->kv));
        int32_t *there = malloc(pool->n_blocks * sizeof *there);
        unsigned char *rows = malloc(pool->block_bytes);
        ck_assert(there != NULL && rows != NULL);
        ck_ok(t->ops->copy(t->gpu, t->stream, there, r->device_slots, pool->n_blocks * sizeof *there));
        ck_ok(t->ops->stream_wait(t->gpu, t->stream));
        for (size_t b = 0; b < pool->n_blocks; b++) {
                ck_assert_int_eq(there[b], r->slots[b]);
                ck_assert(r->slots[b] < 0 || (pool->refs[b] > 0 && r->blocks[r->slots[b]] == (int32_t)b));
                n_used += r->slots[b] >= 0;
        }
        ck_assert_uint_eq(n_used, r->n_slots - r->n_free);
        for (size_t i = 0; i < t->kv->config.max_sequences; i++) {
                const dci_gpu_kv_row *row = &t->kv->rows[i];
                if (row->id < 0)
                        continue;
                ck_assert_uint_eq(row->n_resident, resident_pages(t, row->id));
                for (size_t p = 0; p < row->oldest && p < dci_gpu_kv_blocks(t->kv, row->n); p++)
                        ck_assert_int_lt(place_of(t, row->id, p), 0);
        }
        for (size_t b = 0; b < pool->n_blocks; b++)
                for (size_t l = 0; l < t->config.n_layers && r->slots[b] >= 0 && pool->refs[b] == 1; l++) {
                        const dci_gpu_kv_layer *layer = &t->kv->layers[l];
                        const size_t at = layer->index * r->n_slots + (size_t)r->slots[b];
                        if (layer->dense)
                                continue;
                        ck_ok(t->ops->copy(t->gpu, t->stream, rows, r->memory + at * pool->block_bytes,
                                           pool->block_bytes));
                        ck_ok(t->ops->stream_wait(t->gpu, t->stream));
                        const unsigned char *host = dci_gpu_kv_host_block(t->kv, l, (int32_t)b);
                        /* The first slot has a token, what is after the last one may differ. */
                        ck_assert_mem_eq(rows, host, t->kv->row_bytes);
                }
        test_free(there, rows);
}

/* --- what is computed ------------------------------------------------------------------------------------------------------------- */

static void decode_all(twin *t, size_t n_turns, kv_turn *turns, size_t n_steps)
{
        static const size_t ragged[] = {1, 3, 1, 1, 2};
        for (size_t s = 0; s < n_steps; s++) {
                for (size_t i = 0; i < n_turns; i++)
                        turns[i].n = s % 3 == 2 ? ragged[(s + i) % 5] : 1;
                twin_step(t, n_turns, turns, NULL, true);
                for (size_t i = 0; i < n_turns; i++)
                        turns[i].from += turns[i].n;
                twin_maintain(t);
        }
        check_books(t);
}

/* Prompts in one step and in several, ragged batches, forks, cuts, steps that are taken back, and rows of the device that get new owners. */
static float *life(const dci_kv_config *config, const dci_gpu_kv_config *on_device, dci_gpu_kv_info *out_info)
{
        twin t = twin_begin(config, on_device);
        float *out = t.kept = calloc(ROOM, sizeof *t.kept);
        ck_assert_ptr_nonnull(out);
        t.kept_room = ROOM;
        kv_data data = kv_random(config, N, 50), other = kv_random(config, N, 51);
        kv_turn a = {twin_prefill(&t, &data, PROMPT, 0), &data, PROMPT, 1},
                b = {twin_prefill(&t, &other, 130, 50), &other, 130, 1};
        check_books(&t);
        kv_turn turns[] = {b, a, {0}};
        decode_all(&t, 2, turns, 10);
        turns[2] = (kv_turn){twin_fork(&t, a.sequence, 201), &other, 201, 1};
        check_books(&t);
        decode_all(&t, 3, turns, 9);
        decode_all(&t, 1, turns, 9);
        twin_truncate(&t, b.sequence, 120);
        check_books(&t);
        decode_all(&t, 2, turns, 6);
        /* Through a block that the fork has, too. */
        twin_truncate(&t, a.sequence, 157);
        const kv_turn more = {a.sequence, &other, 300, 60};
        twin_reserve(&t, 1, &more);
        twin_append(&t, 0, 1, &more);
        twin_abort(&t, 1, &more);
        check_books(&t);
        decode_all(&t, 3, turns, 6);
        twin_step(&t, 1, &more, NULL, true);
        check_books(&t);
        twin_close(&t, b.sequence);
        check_books(&t);
        turns[0] = (kv_turn){twin_prefill(&t, &data, 330, 70), &data, 330, 1};
        decode_all(&t, 3, turns, 9);
        *out_info = twin_info(&t);
        twin_close(&t, a.sequence);
        twin_close(&t, turns[2].sequence);
        twin_close(&t, turns[0].sequence);
        ck_assert_uint_eq(twin_info(&t).resident_pages, 0);
        kv_data_free(&data);
        kv_data_free(&other);
        twin_end(&t);
        return out;
}

/* From no room over one page to room for all; the device plans where it can. Loops over presets. */
START_TEST(outputs_are_the_same_bits_with_any_room)
{
        static const size_t rooms[] = {0, 1, 7, 40, 1000};
        dci_kv_config config = twin_small(kv_presets[_i]);
        config.dtype = _i % 2 == 0 ? DCI_BF16 : DCI_F16;
        dci_gpu_kv_config on_device = for_some(3, 0);
        dci_gpu_kv_info without, info;
        if (config.preset == DCI_KV_FULL)
                return;
        float *wanted = life(&config, &on_device, &without);
        ck_assert_uint_eq(without.resident_bytes + without.resident_pages + without.n_resident, 0);
        for (size_t r = 0; r < sizeof rooms / sizeof *rooms; r++) {
                /* Each room for every second preset will do, for sanitizers fewer. */
                if (getenv("DCI_TEST_LONG") == NULL && (r + (size_t)_i) % (test_short() ? 3 : 2) != 0)
                        continue;
                on_device.device_resident_bytes = rooms[r] * page_bytes(&config) + page_bytes(&config) - 1;
                float *got = life(&config, &on_device, &info);
                ck_assert_msg(memcmp(got, wanted, ROOM * sizeof *got) == 0, "%s, %zu pages",
                              dci_kv_preset_name(config.preset), rooms[r]);
                ck_assert_uint_eq(info.n_missed, without.n_missed);
                ck_assert_uint_le(info.n_resident, info.n_missed);
                ck_assert_uint_le(info.resident_pages, rooms[r]);
                ck_assert_uint_eq(info.resident_used_bytes, info.resident_pages * page_bytes(&config));
                ck_assert_uint_eq(info.device_bytes - info.resident_bytes - info.table_bytes,
                                  without.device_bytes - without.table_bytes);
                /* All that was ever fetched was there; or, with room for nothing, never. */
                ck_assert(rooms[r] < 1000 || info.n_resident == info.n_missed);
                ck_assert(rooms[r] > 0 || (info.n_resident == 0 && info.bytes_fetched == without.bytes_fetched));
                ck_assert(rooms[r] != 40 || info.n_resident > 0 || info.n_missed == 0);
                free(got);
        }
        free(wanted);
}
END_TEST

/* Host memory's rows of what is resident are overwritten: nobody reads them. Loops over presets that fetch tokens, or pages. */
START_TEST(what_is_resident_is_not_read_over_the_bus)
{
        static const int32_t presets[] = {DCI_KV_SKETCH, DCI_KV_QUEST, DCI_KV_SKETCH_LOWBIT, DCI_KV_PAGEMEAN};
        const dci_kv_config config = twin_small(presets[_i]);
        const dci_gpu_kv_config on_device = for_some(1, (size_t)1 << 40);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N, 52);
        const int64_t sequence = twin_prefill(&t, &data, PROMPT, 0);
        ck_assert_uint_eq(resident_pages(&t, sequence), (PROMPT + PAGE - 1) / PAGE);
        twin_decode(&t, sequence, &data, PROMPT, 30);
        ck_ok(dci_gpu_kv_sync(t.kv));
        for (size_t l = 0; l < config.n_layers; l++)
                for (int32_t b = 0; b < (PROMPT + 30) / PAGE; b++) /* in its order: nobody else has taken any */
                        memset(dci_gpu_kv_host_block(t.kv, l, b), 0xff, t.kv->host->pool.block_bytes);
        twin_decode(&t, sequence, &data, PROMPT + 30, 30);
        const dci_gpu_kv_info info = twin_info(&t);
        ck_assert_uint_gt(info.n_missed, 0);
        ck_assert_uint_eq(info.n_resident, info.n_missed);
        ck_assert_uint_eq(info.bytes_fetched, 0);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* --- who leaves ------------------------------------------------------------------------------------------------------------------- */

/* Room for n sequences and so many pages of theirs, and rows. */
static twin begin(size_t n, size_t n_pages, uint64_t seed, kv_data *out_data)
{
        const dci_kv_config config = twin_small(DCI_KV_SKETCH);
        const dci_gpu_kv_config on_device = for_some(n, n_pages * page_bytes(&config));
        *out_data = kv_random(&config, 300, seed);
        return twin_begin(&config, &on_device);
}

/* Pages [first, end) of n pages are there, and no other. */
static void check_range(const twin *t, int64_t sequence, size_t n, size_t first, size_t end)
{
        for (size_t p = 0; p < n; p++)
                ck_assert_msg((place_of(t, sequence, p) >= 0) == (p >= first && p < end), "sequence %lld, page %zu",
                              (long long)sequence, p);
}

static void feed(twin *t, int64_t sequence, const kv_data *data, size_t n)
{
        twin_step(t, 1, &(kv_turn){sequence, data, 0, n}, NULL, false);
        check_books(t);
}

/* First sequences outside of the step, the one stepped least recently, its oldest pages; then the step's. */
START_TEST(the_sequence_stepped_least_recently_leaves_first)
{
        kv_data data;
        twin t = begin(3, 12, 53, &data);
        const int64_t a = twin_open(&t), b = twin_open(&t), c = twin_open(&t);
        feed(&t, a, &data, 4 * PAGE);
        feed(&t, b, &data, 4 * PAGE);
        feed(&t, c, &data, 4 * PAGE);
        feed(&t, a, &data, 2 * PAGE); /* b was stepped before c */
        check_range(&t, a, 6, 0, 6);
        check_range(&t, b, 4, 2, 4);
        check_range(&t, c, 4, 0, 4);
        feed(&t, a, &data, 3 * PAGE);
        check_range(&t, a, 9, 0, 9);
        check_range(&t, b, 4, 4, 4);
        check_range(&t, c, 4, 1, 4);
        feed(&t, b, &data, 3 * PAGE);
        check_range(&t, b, 7, 4, 7);
        check_range(&t, c, 4, 4, 4);
        check_range(&t, a, 9, 0, 9);
        /* Nobody else is left in the end: its own oldest go. */
        feed(&t, b, &data, 10 * PAGE);
        check_range(&t, a, 9, 9, 9);
        check_range(&t, b, 17, 5, 17);
        /* More than there is room for. */
        feed(&t, c, &data, 15 * PAGE);
        check_range(&t, b, 17, 17, 17);
        check_range(&t, c, 19, 7, 19);
        /* Room that a closed one leaves, or pages that are cut, is taken without anybody leaving. */
        twin_truncate(&t, c, 15 * PAGE + 3);
        check_range(&t, c, 16, 7, 16);
        feed(&t, a, &data, 3 * PAGE);
        check_range(&t, c, 16, 7, 16);
        twin_close(&t, c);
        feed(&t, b, &data, 9 * PAGE);
        check_range(&t, a, 12, 9, 12);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* Of a step's sequences the one with the most pages gives; new pages are shared out by how many each has. */
START_TEST(in_a_step_the_one_with_the_most_gives)
{
        kv_data data;
        twin t = begin(3, 12, 54, &data);
        const int64_t a = twin_open(&t), b = twin_open(&t);
        feed(&t, a, &data, 8 * PAGE);
        feed(&t, b, &data, 4 * PAGE);
        const kv_turn one_each[] = {{b, &data, 0, PAGE}, {a, &data, 0, PAGE}};
        twin_step(&t, 2, one_each, NULL, false);
        check_range(&t, a, 9, 2, 9);
        check_range(&t, b, 5, 0, 5);
        twin_step(&t, 2, one_each, NULL, false);
        check_range(&t, a, 10, 4, 10);
        check_range(&t, b, 6, 0, 6);
        const kv_turn many[] = {{b, &data, 0, 20 * PAGE}, {a, &data, 0, 10 * PAGE}};
        twin_step(&t, 2, many, NULL, false);
        check_books(&t);
        check_range(&t, b, 26, 26 - 8, 26);
        check_range(&t, a, 20, 20 - 4, 20);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* A page that several sequences have counts for the one stepped last, and is there once. */
START_TEST(shared_pages_stay_with_whoever_steps)
{
        kv_data data;
        twin t = begin(4, 12, 55, &data);
        const bool end = true;
        const int64_t a = twin_open(&t);
        twin_step(&t, 1, &(kv_turn){a, &data, 0, 6 * PAGE}, &end, false);
        const int64_t b = twin_fork(&t, a, 4 * PAGE), c = twin_open(&t);
        check_books(&t);
        ck_assert_uint_eq(twin_info(&t).resident_pages, 6);
        feed(&t, b, &data, 2 * PAGE);
        feed(&t, c, &data, 4 * PAGE);
        feed(&t, b, &data, 2 * PAGE);
        /* a was stepped before c, but what b has of it stays. */
        check_range(&t, a, 6, 0, 4);
        check_range(&t, b, 8, 0, 8);
        check_range(&t, c, 4, 0, 4);
        feed(&t, c, &data, PAGE);
        check_range(&t, a, 6, 1, 4);
        check_range(&t, b, 8, 1, 8);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* A fork's own copy of the page that it is cut in comes, and so does what had left, as far as there is room; so does a sequence's last page that
 * it goes on in. */
START_TEST(forks_bring_what_there_is_room_for)
{
        kv_data data;
        twin t = begin(3, 12, 56, &data);
        const bool end = true;
        const int64_t a = twin_open(&t), b = twin_open(&t);
        twin_step(&t, 1, &(kv_turn){a, &data, 0, 6 * PAGE + 5}, &end, false);
        feed(&t, b, &data, 10 * PAGE);
        check_range(&t, a, 7, 5, 7);
        int64_t c = twin_fork(&t, a, 6 * PAGE + 2);
        check_books(&t);
        check_range(&t, c, 7, 5, 6); /* the copy finds no place */
        twin_close(&t, c);
        twin_close(&t, b);
        c = twin_fork(&t, a, 6 * PAGE + 2);
        check_books(&t);
        check_range(&t, c, 7, 0, 7);
        check_range(&t, a, 7, 0, 7);
        ck_assert_uint_eq(twin_info(&t).resident_pages, 8);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

START_TEST(the_page_that_a_sequence_goes_on_in_comes_back)
{
        kv_data data;
        twin t = begin(3, 4, 57, &data);
        const int64_t a = twin_open(&t), b = twin_open(&t);
        feed(&t, a, &data, 2 * PAGE + 3);
        feed(&t, b, &data, 4 * PAGE);
        check_range(&t, a, 3, 3, 3);
        feed(&t, a, &data, 2); /* nobody leaves for it */
        check_range(&t, a, 3, 3, 3);
        twin_close(&t, b);
        feed(&t, a, &data, 1);
        check_range(&t, a, 3, 2, 3);
        feed(&t, a, &data, PAGE);
        check_range(&t, a, 4, 2, 4);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* --- the config -------------------------------------------------------------------------------------------------------------------- */

START_TEST(room_is_of_the_limit_and_no_more_than_is_needed)
{
        const dci_kv_config config = twin_small(DCI_KV_SKETCH);
        dci_gpu_kv_config on_device = for_some(2, (size_t)1 << 48);
        on_device.max_tokens = 100;
        twin t = twin_begin(&config, &on_device);
        dci_gpu_kv_info info = twin_info(&t);
        ck_assert_uint_eq(info.resident_bytes, (size_t)2 * (100 / PAGE + 2) * page_bytes(&config));
        ck_assert_uint_eq(info.device_bytes, info.lane_bytes + info.dense_bytes + info.table_bytes + info.buffer_bytes +
                                                     info.summary_bytes + info.resident_bytes);
        dci_gpu_kv *kv = NULL;
        on_device.max_device_bytes = info.device_bytes - 1;
        ck_refused(dci_gpu_kv_create(t.gpu, &config, &on_device, &kv), DCI_ERR_FULL, "max_device_bytes");
        on_device.max_device_bytes = 0;
        on_device.device_resident_bytes = ((size_t)1 << 48) + 1;
        ck_refused(dci_gpu_kv_create(t.gpu, &config, &on_device, &kv), DCI_ERR_INVALID, "resident_bytes is");
        on_device.device_resident_bytes = 1;
        for (on_device.gather = DCI_GPU_GATHER_STAGED; on_device.gather <= DCI_GPU_GATHERS; on_device.gather++)
                ck_refused(dci_gpu_kv_create(t.gpu, &config, &on_device, &kv), DCI_ERR_UNSUPPORTED,
                           "needs gather MAPPED");
        ck_assert_ptr_null(kv);
        twin_end(&t);
        /* Layers that are there whole have no pages that could come. */
        const dci_kv_config full = twin_small(DCI_KV_FULL);
        on_device = for_some(1, (size_t)1 << 30);
        t = twin_begin(&full, &on_device);
        ck_assert_uint_eq(twin_info(&t).resident_bytes, 0);
        twin_end(&t);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("gpu kv resident pages");
        TCase *laws = test_case(suite, "laws", 60), *lives = test_case(suite, "lives", 60);
        tcase_add_loop_test(lives, outputs_are_the_same_bits_with_any_room, 0, KV_N_KINDS);
        tcase_add_loop_test(laws, what_is_resident_is_not_read_over_the_bus, 0, 4);
        tcase_add_test(laws, the_sequence_stepped_least_recently_leaves_first);
        tcase_add_test(laws, in_a_step_the_one_with_the_most_gives);
        tcase_add_test(laws, shared_pages_stay_with_whoever_steps);
        tcase_add_test(laws, forks_bring_what_there_is_room_for);
        tcase_add_test(laws, the_page_that_a_sequence_goes_on_in_comes_back);
        tcase_add_test(laws, room_is_of_the_limit_and_no_more_than_is_needed);
        return test_main(suite);
}
