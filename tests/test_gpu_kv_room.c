/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Memory of a KV cache on a device: conversations do not grow it, what none uses is given back, and where it is short in the middle of a generation
 * nothing is lost: outputs are the CPU's when there is room again.
 */
#include "tests/gpu_kv_kinds.h"

#include <string.h>

#include "dci/check.h"

enum { N = 900 };

/* --- memory ------------------------------------------------------------------------------------------------------------------ */

/* Conversations of the same lengths again and again take no more than they took at first. Loops over kinds. */
START_TEST(conversations_come_and_go_without_growth)
{
        if (kind_left_out(_i))
                return;
        static const size_t lengths[] = {300, 560};
        const dci_kv_config config = kind_config(_i);
        const dci_gpu_kv_config on_device = kind_on_device(2, 0);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N, 70);
        dci_gpu_kv_info first = {0};
        size_t bytes = 0;
        for (size_t i = 0; i < 20; i++) {
                const size_t n = lengths[i % 2];
                const int64_t sequence = twin_prefill(&t, &data, n, i % 4 < 2 ? 0 : 200);
                twin_decode(&t, sequence, &data, n, 2);
                if (i % 5 == 4) {
                        ck_ok(dci_gpu_kv_swap_out(t.kv, sequence));
                        ck_ok(dci_gpu_kv_swap_in(t.kv, sequence));
                        twin_decode(&t, sequence, &data, n + 2, 1);
                }
                twin_close(&t, sequence);
                const dci_gpu_kv_info info = twin_info(&t);
                if (i < 2) {
                        first = info;
                        bytes = kv_info(t.kv->host).bytes;
                }
                ck_assert_uint_le(info.device_bytes, first.device_bytes);
                ck_assert_uint_le(info.pinned_bytes, first.pinned_bytes);
                ck_assert_uint_le(kv_info(t.kv->host).row_bytes, bytes);
        }
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* What is given back is what sequences took; what they use stays. Loops over kinds. */
START_TEST(trims_give_back_what_no_sequence_uses)
{
        if (kind_left_out(_i))
                return;
        const dci_kv_config config = kind_config(_i);
        const dci_gpu_kv_config on_device = kind_on_device(3, 0);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N, 71), other = kv_random(&config, N, 72);
        const dci_gpu_kv_info empty = twin_info(&t);
        const int64_t a = twin_prefill(&t, &data, 560, 0), b = twin_prefill(&t, &other, 560, 0);
        twin_decode(&t, a, &data, 560, 2);
        twin_decode(&t, b, &other, 560, 2);
        ck_ok(dci_gpu_kv_trim(t.kv, DCI_GPU_TRIM_ALL));
        const dci_gpu_kv_info both = twin_info(&t);
        ck_ok(dci_gpu_kv_trim(t.kv, DCI_GPU_TRIM_ALL));
        ck_assert_uint_eq(twin_info(&t).device_bytes, both.device_bytes);
        twin_close(&t, a); /* whose blocks and chunks have the lower numbers */
        ck_ok(dci_gpu_kv_trim(t.kv, DCI_GPU_TRIM_ALL));
        const dci_gpu_kv_info one = twin_info(&t);
        ck_assert_uint_lt(one.device_bytes, both.device_bytes);
        ck_assert_uint_lt(one.pinned_bytes, both.pinned_bytes);
        ck_assert(both.summary_bytes == 0 || one.summary_bytes < both.summary_bytes);
        ck_assert_uint_lt(one.dense_bytes, both.dense_bytes);
        twin_decode(&t, b, &other, 562, 3);
        ck_ok(dci_gpu_kv_swap_out(t.kv, b));
        ck_ok(dci_gpu_kv_trim(t.kv, DCI_GPU_TRIM_ALL));
        ck_assert_uint_eq(twin_info(&t).device_bytes, empty.device_bytes);
        const int64_t c = twin_prefill(&t, &data, 300, 100);
        twin_decode(&t, c, &data, 300, 2);
        twin_close(&t, c);
        ck_ok(dci_gpu_kv_trim(t.kv, DCI_GPU_TRIM_ALL));
        ck_assert_uint_eq(twin_info(&t).device_bytes, empty.device_bytes);
        ck_ok(dci_gpu_kv_swap_in(t.kv, b));
        twin_decode(&t, b, &other, 565, 3);
        twin_close(&t, b);
        ck_ok(dci_gpu_kv_trim(t.kv, DCI_GPU_TRIM_ALL));
        ck_assert_uint_eq(twin_info(&t).device_bytes, empty.device_bytes);
        ck_assert_uint_eq(twin_info(&t).pinned_bytes, empty.pinned_bytes);
        kv_data_free(&data);
        kv_data_free(&other);
        twin_end(&t);
}
END_TEST

/* --- short memory in the middle ------------------------------------------------------------------------------------------------ */

/* What a refused call must leave as it was. */
typedef struct figures {
        dci_kv_sequence_info of[2];
        size_t in_use, n_steps;
} figures;

static figures figures_of(const twin *t, const int64_t *sequences, size_t n)
{
        figures f;
        memset(&f, 0, sizeof f);
        const dci_kv_info info = kv_info(t->kv->host);
        f.in_use = info.n_blocks - info.n_free_blocks;
        f.n_steps = (size_t)t->kv->n_steps;
        for (size_t i = 0; i < n; i++) {
                f.of[i] = kv_sequence_info(t->kv->host, sequences[i]);
                f.of[i].n_grouped = f.of[i].n_batches = f.of[i].n_early = 0; /* what the host has built stays */
                f.of[i].tree_pages = f.of[i].tree_stale_pages = 0;
        }
        return f;
}

/* A step of one sequence, or false if there is no memory for it, and then nothing has changed. */
static bool step(twin *t, const kv_turn *turn, const int64_t *sequences, size_t n_sequences)
{
        const figures before = figures_of(t, sequences, n_sequences);
        const dci_status status = dci_gpu_kv_reserve(t->kv, t->stream, 1, &turn->sequence, &turn->n);
        if (status != DCI_OK) {
                ck_assert_int_eq(status, DCI_ERR_FULL);
                const figures after = figures_of(t, sequences, n_sequences);
                ck_assert_mem_eq(&before, &after, sizeof after);
                return false;
        }
        if (t->plans)
                ck_ok(dci_kv_maintain(t->cpu, 1, &turn->sequence));
        kv_reserve(t->cpu, 1, turn);
        for (size_t l = 0; l < t->config.n_layers; l++) {
                twin_append(t, l, 1, turn);
                twin_look(t, l, 1, turn);
        }
        twin_step_end(t, 1, turn);
        const dci_status maintained = t->plans ? DCI_ERR_FULL : dci_gpu_kv_maintain(t->kv, 0, NULL);
        ck_assert(maintained == DCI_OK || maintained == DCI_ERR_FULL);
        if (maintained == DCI_OK)
                ck_ok(dci_kv_maintain(t->cpu, 0, NULL));
        return true;
}

/* Steps of n tokens until one is refused; how many there were. */
static size_t run_dry(twin *t, kv_turn *turn, size_t n, const int64_t *sequences)
{
        size_t steps = 0;
        turn->n = n;
        while (step(t, turn, sequences, 2)) {
                ck_assert_uint_lt(steps++, 60);
                turn->from += n;
        }
        ck_assert(!step(t, turn, sequences, 2));
        return steps;
}

/* Sequence a runs out of memory, of the device or of the host, in single steps or in long ones; then b makes room. Loops over kinds, and over
 * these four. */
static void run_out(int kind, bool of_device, size_t n)
{
        const dci_kv_config config = kind_config(kind);
        const dci_gpu_kv_config on_device = kind_on_device(2, 0);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N + 600, 74), other = kv_random(&config, N, 75);
        kv_turn a = {twin_prefill(&t, &data, 530, 0), &data, 530, 1}, b = {-1, &other, 560, 1};
        b.sequence = twin_prefill(&t, &other, 560, 0);
        const int64_t sequences[] = {a.sequence, b.sequence};
        ck_assert(step(&t, &b, sequences, 2) && step(&t, &a, sequences, 2));
        a.from++, b.from++;
        ck_ok(dci_gpu_kv_trim(t.kv, DCI_GPU_TRIM_ALL));
        if (of_device)
                t.kv->config.max_device_bytes = t.kv->device_bytes;
        else
                t.kv->host->config.max_bytes = atomic_load(&t.kv->host->bytes);
        run_dry(&t, &a, n, sequences);
        ck_assert(strstr(dci_last_error(), of_device ? "max_device_bytes" : "max_bytes") != NULL);
        if (of_device) {
                ck_ok(dci_gpu_kv_swap_out(t.kv, b.sequence));
                ck_ok(dci_gpu_kv_trim(t.kv, DCI_GPU_TRIM_ALL));
        } else {
                twin_close(&t, b.sequence);
                ck_ok(dci_gpu_kv_trim(t.kv, DCI_GPU_TRIM_ALL));
                t.kv->host->config.max_bytes += 600000; /* for what clustering takes while it runs */
        }
        for (size_t i = 0; i < 3; i++, a.from += a.n)
                ck_assert_msg(step(&t, &a, sequences, 1), "%s", dci_last_error());
        if (of_device) {
                const figures before = figures_of(&t, sequences, 2);
                const size_t bytes = t.kv->device_bytes;
                t.kv->config.max_device_bytes = bytes;
                ck_refused(dci_gpu_kv_swap_in(t.kv, b.sequence), DCI_ERR_FULL, "max_device_bytes");
                const figures after = figures_of(&t, sequences, 2);
                ck_assert_mem_eq(&before, &after, sizeof after);
                twin_close(&t, a.sequence);
                ck_ok(dci_gpu_kv_trim(t.kv, DCI_GPU_TRIM_ALL));
                t.kv->config.max_device_bytes = bytes + 1000000;
                ck_ok(dci_gpu_kv_swap_in(t.kv, b.sequence));
                b.n = 1;
                for (size_t i = 0; i < 3; i++, b.from++)
                        ck_assert(step(&t, &b, sequences + 1, 1));
        }
        kv_data_free(&data);
        kv_data_free(&other);
        twin_end(&t);
}

START_TEST(generations_go_on_when_there_is_room_again)
{
        if (kind_left_out(_i))
                return;
        run_out(_i, true, 1);
        run_out(_i, true, 37);
        run_out(_i, false, 1);
        run_out(_i, false, 37);
}
END_TEST

/* Room on the device for blocks of dense layers, but for no summaries. */
static void leave_room(twin *t, size_t n_blocks)
{
        ck_ok(dci_gpu_kv_trim(t->kv, DCI_GPU_TRIM_ALL));
        t->kv->config.max_device_bytes = t->kv->device_bytes + n_blocks * t->kv->pool->dense_piece_bytes;
}

static void make_room(twin *t, int64_t other)
{
        ck_ok(dci_gpu_kv_swap_out(t->kv, other));
        ck_ok(dci_gpu_kv_trim(t->kv, DCI_GPU_TRIM_ALL));
        t->kv->config.max_device_bytes = t->kv->device_bytes + 2000000;
}

/* Prompts that are refused, or for whose summaries there is no room: in one step, or in two. Loops over kinds. */
START_TEST(prompts_go_on_when_there_is_room_again)
{
        if (kind_left_out(_i))
                return;
        const dci_kv_config config = kind_config(_i);
        const dci_gpu_kv_config on_device = kind_on_device(2, 0);
        const bool end = true;
        for (size_t first = 0; first <= 304; first += 304) {
                twin t = twin_begin(&config, &on_device);
                kv_data data = kv_random(&config, N, 76), other = kv_random(&config, N, 77);
                const int64_t b = twin_prefill(&t, &other, 560, 0), a = twin_open(&t);
                if (first > 0)
                        twin_step(&t, 1, &(kv_turn){a, &data, 0, first}, NULL, false);
                const kv_turn turn = {a, &data, first, 600 - first};
                leave_room(&t, first > 0 ? (600 - first) / 8 : 0);
                const figures before = figures_of(&t, &a, 1);
                const dci_status status = dci_gpu_kv_reserve(t.kv, t.stream, 1, &a, &turn.n);
                ck_assert(status == DCI_ERR_FULL || (status == DCI_OK && first > 0));
                if (status == DCI_OK)
                        ck_ok(dci_gpu_kv_step_abort(t.kv));
                const figures after = figures_of(&t, &a, 1);
                ck_assert(status == DCI_OK || memcmp(&before, &after, sizeof after) == 0);
                if (status != DCI_OK)
                        make_room(&t, b);
                twin_step(&t, 1, &turn, &end, false);
                leave_room(&t, 0);
                ck_assert_int_eq(dci_gpu_kv_reserve(t.kv, t.stream, 1, &a, NULL), DCI_ERR_FULL);
                if (status == DCI_OK)
                        make_room(&t, b);
                t.kv->config.max_device_bytes = 0;
                twin_decode(&t, a, &data, 600, 4);
                kv_data_free(&data);
                kv_data_free(&other);
                twin_end(&t);
        }
}
END_TEST

/* A piece has blocks of a sequence that is swapped out, and free ones: dense layers' part of it is gone, and comes back with the next step in
 * such a block, a fork, or the sequence itself. */
START_TEST(free_blocks_in_pieces_of_swapped_sequences)
{
        const dci_kv_config config = twin_small(DCI_KV_SKETCH);
        dci_gpu_kv_config on_device = kind_on_device(2, 0);
        on_device.piece_bytes = 100000; /* some 8 blocks */
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N, 81), other = kv_random(&config, N, 82);
        const int64_t a = twin_prefill(&t, &data, 203, 0), b = twin_open(&t);
        const size_t n = 10;
        int64_t fork = -1;
        ck_ok(dci_gpu_kv_swap_out(t.kv, a));
        ck_ok(dci_gpu_kv_trim(t.kv, DCI_GPU_TRIM_ALL));
        ck_assert_uint_gt(t.kv->pool->n_dense_gaps, 1);
        ck_assert_uint_gt(kv_info(t.kv->host).n_free_blocks, 2);
        t.kv->config.max_device_bytes = t.kv->device_bytes;
        const int64_t both[] = {a, b};
        const figures before = figures_of(&t, both, 2);
        ck_refused(dci_gpu_kv_reserve(t.kv, t.stream, 1, &b, &n), DCI_ERR_FULL, "max_device_bytes");
        ck_refused(dci_gpu_kv_fork(t.kv, a, 203, &fork), DCI_ERR_FULL, "max_device_bytes");
        ck_refused(dci_gpu_kv_swap_in(t.kv, a), DCI_ERR_FULL, "max_device_bytes");
        const figures after = figures_of(&t, both, 2);
        ck_assert_mem_eq(&before, &after, sizeof after);
        t.kv->config.max_device_bytes = 0;
        const size_t gaps = t.kv->pool->n_dense_gaps;
        const bool end = true;
        twin_step(&t, 1, &(kv_turn){b, &other, 0, n}, &end, true);
        ck_assert_uint_eq(t.kv->pool->n_dense_gaps, gaps - 1);
        twin_decode(&t, b, &other, n, 3);
        ck_ok(dci_gpu_kv_swap_in(t.kv, a));
        ck_assert_uint_eq(t.kv->pool->n_dense_gaps, 0);
        twin_decode(&t, a, &data, 203, 3);
        twin_decode(&t, b, &other, n + 3, 3);
        ck_ok(dci_kv_check(t.kv->host, DCI_CHECK_STRUCTURE, NULL));
        kv_data_free(&data);
        kv_data_free(&other);
        twin_end(&t);
}
END_TEST

/* Host memory for what only the device has. */
START_TEST(a_swap_without_host_memory_is_refused)
{
        const dci_kv_config config = twin_small(DCI_KV_SKETCH);
        const dci_gpu_kv_config on_device = kind_on_device(2, 0);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N, 78);
        const int64_t a = twin_prefill(&t, &data, 560, 0);
        twin_decode(&t, a, &data, 560, 2);
        const size_t bytes = atomic_load(&t.kv->host->bytes);
        t.kv->host->config.max_bytes = bytes + 70000;
        ck_refused(dci_gpu_kv_swap_out(t.kv, a), DCI_ERR_FULL, "max_bytes");
        ck_assert_uint_eq(atomic_load(&t.kv->host->bytes), bytes);
        twin_decode(&t, a, &data, 562, 2);
        t.kv->host->config.max_bytes = 0;
        ck_ok(dci_gpu_kv_swap_out(t.kv, a));
        ck_assert_uint_gt(atomic_load(&t.kv->host->bytes), bytes + 70000);
        ck_ok(dci_gpu_kv_swap_in(t.kv, a));
        ck_assert_uint_eq(atomic_load(&t.kv->host->bytes), bytes);
        /* What the host has is not copied. */
        ck_ok(dci_gpu_kv_maintain(t.kv, 1, &a));
        const size_t maintained = atomic_load(&t.kv->host->bytes);
        ck_ok(dci_gpu_kv_swap_out(t.kv, a));
        ck_assert_uint_lt(atomic_load(&t.kv->host->bytes), maintained + 2000);
        ck_ok(dci_gpu_kv_swap_in(t.kv, a));
        twin_decode(&t, a, &data, 564, 4);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("gpu kv room");
        TCase *room = test_case(suite, "room", 60);
        tcase_add_loop_test(room, conversations_come_and_go_without_growth, 0, N_KINDS);
        tcase_add_loop_test(room, trims_give_back_what_no_sequence_uses, 0, N_KINDS);
        tcase_add_loop_test(room, generations_go_on_when_there_is_room_again, 0, N_KINDS);
        tcase_add_loop_test(room, prompts_go_on_when_there_is_room_again, 0, N_KINDS);
        tcase_add_test(room, free_blocks_in_pieces_of_swapped_sequences);
        tcase_add_test(room, a_swap_without_host_memory_is_refused);
        return test_main(suite);
}
