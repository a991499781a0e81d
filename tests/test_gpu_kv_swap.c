/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Sequences that are swapped out and in again: outputs are the CPU's, and to the bit those of a life without it.
 */
#include "tests/gpu_kv_kinds.h"
#include "tests/scratch.h"

#include <string.h>

enum { N = 900, ROOM = 1 << 20, MOST = 6 };

static int64_t save_and_load(twin *t, int64_t sequence, size_t n)
{
        int64_t a = -1, b = -1;
        ck_ok(dci_gpu_kv_save(t->kv, sequence, n, scratch_path("sequence")));
        ck_ok(dci_gpu_kv_load(t->kv, scratch_path("sequence"), &a));
        if (t->plans && !t->kv->planner.clustered)
                ck_ok(dci_kv_maintain(t->cpu, 1, &sequence));
        ck_ok(dci_kv_save(t->cpu, sequence, n, scratch_path("other")));
        ck_ok(dci_kv_load(t->cpu, scratch_path("other"), &b));
        ck_assert_int_eq(a, b);
        return a;
}

/* --- a life with and without -------------------------------------------------------------------------------------------------- */

typedef struct life {
        twin t;
        bool swaps;
        kv_data data[3];
        kv_turn at[MOST]; /* where each sequence is */
} life;

static void out(life *l, size_t i)
{
        if (!l->swaps)
                return;
        ck_ok(dci_gpu_kv_swap_out(l->t.kv, l->at[i].sequence));
        ck_assert_ptr_null(dci_gpu_kv_find(l->t.kv, l->at[i].sequence));
        ck_ok(dci_gpu_kv_trim(l->t.kv, DCI_GPU_TRIM_ALL));
        twin_poison(&l->t);
}

static void in(life *l, size_t i)
{
        if (l->swaps)
                ck_ok(dci_gpu_kv_swap_in(l->t.kv, l->at[i].sequence));
}

static void begin(life *l, size_t i, size_t data, size_t n, size_t chunk)
{
        l->at[i] = (kv_turn){twin_prefill(&l->t, &l->data[data], n, chunk), &l->data[data], n, 1};
}

static void go(life *l, size_t i, size_t n)
{
        twin_decode(&l->t, l->at[i].sequence, l->at[i].data, l->at[i].from, n);
        l->at[i].from += n;
}

static void fork_at(life *l, size_t from, size_t to, size_t n)
{
        l->at[to] = (kv_turn){twin_fork(&l->t, l->at[from].sequence, n), &l->data[2], n, 1};
}

static void live(life *l)
{
        begin(l, 0, 0, 700, 0);
        begin(l, 1, 1, 130, 50);
        go(l, 0, 3);
        out(l, 0);
        begin(l, 2, 2, 300, 100); /* in its row */
        go(l, 1, 2);
        go(l, 2, 2);
        in(l, 0);
        go(l, 0, 6);
        out(l, 2);
        out(l, 1);
        begin(l, 3, 0, 620, 0);
        out(l, 3); /* with what its prompt gave still to be built */
        in(l, 1);
        go(l, 1, 3);
        fork_at(l, 3, 4, 560);
        go(l, 4, 4);
        in(l, 3);
        go(l, 3, 5);
        twin_close(&l->t, l->at[4].sequence);
        out(l, 3);
        fork_at(l, 3, 4, 555);
        go(l, 4, 3);
        twin_close(&l->t, l->at[4].sequence);
        l->at[4] = (kv_turn){save_and_load(&l->t, l->at[3].sequence, 610), &l->data[1], 610, 1};
        go(l, 4, 3);
        in(l, 3);
        go(l, 3, 3);
        twin_close(&l->t, l->at[2].sequence);
        twin_truncate(&l->t, l->at[0].sequence, l->at[0].from -= 20);
        out(l, 0);
        out(l, 4);
        in(l, 4);
        in(l, 0);
        go(l, 0, 20);
        go(l, 4, 2);
        begin(l, 2, 1, 560, 200);
        out(l, 2);
        l->at[5] = (kv_turn){save_and_load(&l->t, l->at[2].sequence, 540), &l->data[2], 540, 1};
        in(l, 2);
        go(l, 2, 3);
        go(l, 5, 2);
        go(l, 1, 10);
        /* Nothing is left but the transforms of a prompt's codes. */
        twin_truncate(&l->t, l->at[3].sequence, 20);
        out(l, 3);
        twin_close(&l->t, l->at[0].sequence);
        begin(l, 0, 2, 400, 0);
        in(l, 3);
        l->at[3] = (kv_turn){l->at[3].sequence, &l->data[1], 20, 60};
        twin_step(&l->t, 1, &l->at[3], NULL, true);
        l->at[3].from = 80;
        go(l, 3, 20);
}

static size_t lived(const dci_kv_config *config, size_t n_pages, bool swaps, float *kept)
{
        const dci_gpu_kv_config on_device = kind_on_device(MOST, n_pages);
        life l = {.t = twin_begin(config, &on_device), .swaps = swaps};
        l.t.kept = kept;
        l.t.kept_room = ROOM;
        for (size_t i = 0; i < 3; i++)
                l.data[i] = kv_random(config, N, 60 + i);
        live(&l);
        const size_t n = l.t.n_kept;
        ck_assert(l.t.kv->swapped == NULL);
        for (size_t i = 0; i < MOST; i++)
                twin_close(&l.t, l.at[i].sequence);
        ck_ok(dci_gpu_kv_trim(l.t.kv, DCI_GPU_TRIM_ALL));
        const dci_kv_info info = kv_info(l.t.kv->host);
        ck_assert_uint_eq(info.n_blocks, 0);
        ck_assert_uint_eq(info.row_bytes, 0);
        ck_assert_uint_eq(twin_info(&l.t).summary_bytes, 0);
        ck_assert_uint_eq(twin_info(&l.t).dense_bytes, 0);
        for (size_t i = 0; i < 3; i++)
                kv_data_free(&l.data[i]);
        twin_end(&l.t);
        return n;
}

/* Loops over kinds. */
START_TEST(sequences_go_on_as_if_they_had_stayed)
{
        if (kind_left_out(_i))
                return;
        dci_kv_config config = kind_config(_i);
        float *with = calloc(ROOM, sizeof *with), *without = calloc(ROOM, sizeof *without);
        ck_assert(with != NULL && without != NULL);
        config.refit = 0.0; /* of what a file asks the host for */
        const size_t n = lived(&config, _i % 3 == 0 ? 40 : 0, true, with);
        ck_assert_uint_eq(lived(&config, 0, false, without), n);
        ck_assert_uint_gt(n, 0);
        ck_assert_mem_eq(with, without, n * sizeof *with);
        test_free(with, without);
}
END_TEST

/* More sequences than rows, and more tokens than they would have. */
START_TEST(more_sequences_than_rows)
{
        const dci_kv_config config = twin_small(DCI_KV_SKETCH);
        dci_gpu_kv_config on_device = kind_on_device(1, 0);
        on_device.max_tokens = 160;
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N, 73);
        int64_t sequences[8], refused;
        for (size_t i = 0; i < 8; i++) {
                sequences[i] = twin_prefill(&t, &data, 100 + i, 0);
                twin_decode(&t, sequences[i], &data, 100 + i, 2);
                ck_ok(dci_gpu_kv_swap_out(t.kv, sequences[i]));
        }
        for (size_t round = 0; round < 2; round++)
                for (size_t i = 0; i < 8; i++) {
                        const size_t at = (3 * i) % 8;
                        ck_ok(dci_gpu_kv_swap_in(t.kv, sequences[at]));
                        twin_decode(&t, sequences[at], &data, 102 + at + 3 * round, 3);
                        ck_refused(dci_gpu_kv_swap_in(t.kv, sequences[(at + 1) % 8]), DCI_ERR_FULL, "max_sequences");
                        ck_refused(dci_gpu_kv_fork(t.kv, sequences[(at + 1) % 8], 50, &refused), DCI_ERR_FULL,
                                   "max_sequences");
                        ck_ok(dci_gpu_kv_swap_out(t.kv, sequences[at]));
                }
        ck_assert_uint_eq(kv_info(t.kv->host).n_sequences, 8);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* --- bad input ------------------------------------------------------------------------------------------------------------------ */

START_TEST(bad_calls_are_refused)
{
        const dci_kv_config config = twin_small(DCI_KV_SKETCH);
        const dci_gpu_kv_config on_device = kind_on_device(2, 0);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N, 79);
        const int64_t a = twin_prefill(&t, &data, 200, 0), b = twin_prefill(&t, &data, 210, 0);
        int32_t bad = 7;
        ck_refused(dci_gpu_kv_swap_out(NULL, a), DCI_ERR_INVALID, "kv is NULL");
        ck_refused(dci_gpu_kv_swap_in(NULL, a), DCI_ERR_INVALID, "kv is NULL");
        ck_refused(dci_gpu_kv_trim(NULL, DCI_GPU_TRIM_ALL), DCI_ERR_INVALID, "kv is NULL");
        ck_refused(dci_gpu_kv_swap_out(t.kv, 99), DCI_ERR_NOT_FOUND, "no sequence 99");
        ck_refused(dci_gpu_kv_swap_in(t.kv, -1), DCI_ERR_NOT_FOUND, "no sequence -1");
        ck_refused(dci_gpu_kv_swap_in(t.kv, a), DCI_ERR_INVALID, "is not swapped out");
        ck_ok(dci_gpu_kv_swap_out(t.kv, a));
        ck_refused(dci_gpu_kv_swap_out(t.kv, a), DCI_ERR_INVALID, "is swapped out already");
        ck_refused(dci_gpu_kv_reserve(t.kv, t.stream, 1, &a, NULL), DCI_ERR_INVALID, "dci_gpu_kv_swap_in");
        ck_refused(dci_gpu_kv_truncate(t.kv, a, 100), DCI_ERR_INVALID, "dci_gpu_kv_swap_in");
        ck_refused(dci_gpu_kv_maintain(t.kv, 1, &a), DCI_ERR_INVALID, "dci_gpu_kv_swap_in");
        ck_ok(dci_gpu_kv_maintain(t.kv, 0, NULL));
        ck_ok(dci_gpu_poll(t.kv, 1, &a, &bad));
        ck_assert_int_eq(bad, 0);
        ck_assert_uint_eq(kv_sequence_info(t.kv->host, a).n_tokens, 200);
        twin_check_rows(&t, a, &data, 0, 200);
        const kv_turn turn = {b, &data, 210, 1};
        twin_reserve(&t, 1, &turn);
        ck_refused(dci_gpu_kv_swap_out(t.kv, b), DCI_ERR_INVALID, "in the middle of a step");
        ck_refused(dci_gpu_kv_trim(t.kv, DCI_GPU_TRIM_ALL), DCI_ERR_INVALID, "a step is open");
        ck_ok(dci_gpu_kv_swap_in(t.kv, a)); /* during the step of another one */
        ck_ok(dci_gpu_kv_swap_out(t.kv, a));
        for (size_t l = 0; l < config.n_layers; l++) {
                twin_append(&t, l, 1, &turn);
                twin_look(&t, l, 1, &turn);
        }
        ck_refused(dci_gpu_kv_prompt_rows(t.kv, t.stream, 0, a, NULL), DCI_ERR_INVALID, "dci_gpu_kv_swap_in");
        twin_step_end(&t, 1, &turn);
        ck_ok(dci_gpu_kv_swap_in(t.kv, a));
        twin_decode(&t, a, &data, 200, 3);
        twin_decode(&t, b, &data, 211, 3);
        ck_ok(dci_gpu_kv_swap_out(t.kv, a)); /* what is swapped out ends with the object */
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* Rows with NaN stay known. Loops over kinds. */
START_TEST(bad_rows_are_known_after_a_swap)
{
        if (kind_left_out(_i))
                return;
        const dci_kv_config config = kind_config(_i);
        const dci_gpu_kv_config on_device = kind_on_device(2, 0);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N, 80);
        const int64_t good = twin_prefill(&t, &data, 200, 0), sequence = twin_open(&t);
        const size_t n = 3, row = config.n_kv_heads * config.dim_k * 2;
        unsigned char *rows = twin_send(&t, NULL, n * row);
        int32_t bad = 0;
        ck_ok(t.ops->fill(t.gpu, t.stream, rows, 0xff, n * row));
        ck_ok(dci_gpu_kv_reserve(t.kv, t.stream, 1, &sequence, &n));
        for (size_t l = 0; l < config.n_layers; l++) {
                const dci_kv_rows all = {.struct_size = sizeof all, .keys = rows, .values = rows};
                ck_ok(dci_gpu_kv_append(t.kv, t.stream, l, &all));
        }
        ck_ok(dci_gpu_kv_step_end(t.kv, t.stream));
        for (size_t i = 0; i < 3; i++) {
                ck_ok(dci_gpu_kv_sync(t.kv));
                ck_ok(dci_gpu_poll(t.kv, 1, &sequence, &bad));
                ck_assert_int_eq(bad, 1);
                ck_ok(i % 2 == 0 ? dci_gpu_kv_swap_out(t.kv, sequence) : dci_gpu_kv_swap_in(t.kv, sequence));
        }
        ck_ok(dci_gpu_kv_close(t.kv, sequence));
        twin_decode(&t, good, &data, 200, 3);
        twin_give(&t, rows, n * row);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("gpu kv swap");
        TCase *swap = test_case_with(suite, "swap", 60, scratch_open, scratch_close);
        tcase_add_loop_test(swap, sequences_go_on_as_if_they_had_stayed, 0, N_KINDS);
        tcase_add_test(swap, more_sequences_than_rows);
        tcase_add_test(swap, bad_calls_are_refused);
        tcase_add_loop_test(swap, bad_rows_are_known_after_a_swap, 0, N_KINDS);
        return test_main(suite);
}
