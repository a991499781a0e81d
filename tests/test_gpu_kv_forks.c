/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Sequences of a KV cache on a device: forks, cuts, ends and files leave nothing wrong on it. What is freed is overwritten by NaN. */
#include "tests/gpu_kv_fixture.h"
#include "tests/scratch.h"

enum { N = 900, PROMPT = 400 };

static dci_gpu_kv_config for_some(size_t n)
{
        dci_gpu_kv_config config = twin_on_device();
        config.max_sequences = n;
        return config;
}

/* Forks at whole blocks and within, at the end and before the ring; both go on. Loops over presets. */
START_TEST(forks_go_on_as_on_the_cpu)
{
        static const size_t cuts[] = {PROMPT + 10, PROMPT, 333, 60, 17, 0};
        if (twin_repeats(kv_presets[_i]))
                return;
        const dci_kv_config config = twin_small(kv_presets[_i]);
        const dci_gpu_kv_config on_device = for_some(2);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N, 31), other = kv_random(&config, N, 32);
        const int64_t sequence = twin_prefill(&t, &data, PROMPT, 0);
        twin_decode(&t, sequence, &data, PROMPT, 10);
        for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
                const int64_t fork = twin_fork(&t, sequence, cuts[c]);
                twin_decode(&t, fork, &other, cuts[c], 4);
                twin_decode(&t, sequence, &data, PROMPT + 10 + 3 * c, 3);
                twin_decode(&t, fork, &other, cuts[c] + 4, 2);
                twin_close(&t, fork);
        }
        kv_data_free(&data);
        kv_data_free(&other);
        twin_end(&t);
}
END_TEST

/* Within the rollback and beyond it, to the prompt's middle, to nothing; and on, with other tokens. */
START_TEST(cuts_go_on_as_on_the_cpu)
{
        static const size_t drops[] = {1, 3, 16, 17, 40, 100, 150, 600};
        if (twin_repeats(kv_presets[_i]))
                return;
        const dci_kv_config config = twin_small(kv_presets[_i]);
        const dci_gpu_kv_config on_device = for_some(2);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N, 33), other = kv_random(&config, N, 34);
        const int64_t sequence = twin_prefill(&t, &data, PROMPT, 0), second = twin_prefill(&t, &other, 90, 0);
        size_t n = PROMPT;
        for (size_t c = 0; c < sizeof drops / sizeof *drops; c++) {
                twin_decode(&t, sequence, &data, n, 6);
                n = n + 6 > drops[c] ? n + 6 - drops[c] : 0;
                twin_truncate(&t, sequence, n);
                twin_decode(&t, sequence, &other, n, 5);
                twin_decode(&t, second, &data, 90 + c, 1);
                n += 5;
        }
        kv_data_free(&data);
        kv_data_free(&other);
        twin_end(&t);
}
END_TEST

/* The last position in any list of the last step; where the device plans, of its last layer. */
static size_t last_listed(const twin *t)
{
        int32_t last = 0;
        for (size_t h = 0; h < t->config.n_kv_heads && t->plans; h++) {
                const dci_gpu_kv_planner *p = &t->kv->planner;
                int32_t n, at;
                ck_ok(t->ops->copy(t->gpu, t->stream, &n, p->counts + h, sizeof n));
                ck_ok(t->ops->stream_wait(t->gpu, t->stream));
                ck_assert_int_gt(n, 0);
                ck_ok(t->ops->copy(t->gpu, t->stream, &at, p->positions + h * t->kv->stride + (size_t)n - 1,
                                   sizeof at));
                ck_ok(t->ops->stream_wait(t->gpu, t->stream));
                last = at > last ? at : last;
        }
        for (size_t l = 0; l < t->config.n_layers; l++) {
                const dci_kv_plan *plan = &t->kv->layers[l].plan;
                for (size_t h = 0; h < t->config.n_kv_heads && !t->kv->layers[l].dense && !t->plans; h++) {
                        const int32_t n = plan->counts[h],
                                      at = n == 0 ? 0 : plan->positions[h * plan->stride + (size_t)n - 1];
                        last = at > last ? at : last;
                }
        }
        return (size_t)last;
}

/* Just before the last token that was fetched, and within its page: what is there later is not what was fetched. Loops over
 * where it is cut; of the presets, thinned, two are cut at even places and two at odd ones. */
START_TEST(cuts_within_what_was_fetched_go_on_as_on_the_cpu)
{
        static const int32_t presets[] = {DCI_KV_QUEST, DCI_KV_ARKVALE, DCI_KV_PAGEMEAN, DCI_KV_TOPK};
        for (size_t p = 0; p < 4; p++) {
                if (test_thin() && (p + (size_t)_i) % 2 != 0)
                        continue;
                dci_kv_config config = twin_small(presets[p]);
                config.page_tokens = 16;
                config.budget = 112;
                const dci_gpu_kv_config on_device = for_some(1);
                twin t = twin_begin(&config, &on_device);
                kv_data data = kv_random(&config, N, 43), other = kv_random(&config, N, 44);
                const int64_t sequence = twin_prefill(&t, &data, 150, 0);
                size_t n = 150;
                for (size_t round = 0; round < 4; round++) {
                        twin_decode(&t, sequence, round % 2 == 0 ? &data : &other, n, 3);
                        const size_t listed = last_listed(&t) + 1;
                        ck_assert(listed > 32 && listed <= n + 3);
                        n = listed - 1 - (size_t)_i;
                        twin_truncate(&t, sequence, n);
                        twin_decode(&t, sequence, round % 2 == 0 ? &other : &data, n, 45);
                        n += 45;
                }
                ck_assert_uint_gt(t.n_looked, 0);
                kv_data_free(&data);
                kv_data_free(&other);
                twin_end(&t);
        }
}
END_TEST

/* A fork shares whole blocks with what it comes from, which is then cut within them: the step copies the block that it goes on in. */
START_TEST(shared_blocks_are_copied_before_they_are_written)
{
        if (twin_repeats(kv_presets[_i]))
                return;
        const dci_kv_config config = twin_small(kv_presets[_i]);
        const dci_gpu_kv_config on_device = for_some(2);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N, 35), other = kv_random(&config, N, 36);
        const int64_t sequence = twin_prefill(&t, &data, PROMPT, 0), fork = twin_fork(&t, sequence, PROMPT);
        twin_truncate(&t, sequence, PROMPT - 13);
        twin_decode(&t, sequence, &other, PROMPT - 13, 30);
        twin_decode(&t, fork, &data, PROMPT, 5);
        twin_check_rows(&t, fork, &data, 0, PROMPT + 5);
        kv_data_free(&data);
        kv_data_free(&other);
        twin_end(&t);
}
END_TEST

/* Steps taken back: before any layer, in the middle, after plans; of one token, and of so many that the ring was written over. */
START_TEST(steps_that_are_taken_back_never_were)
{
        static const struct {
                size_t n, layers;
                bool plans;
        } cases[] = {{1, 0, false}, {1, 1, true}, {1, 3, true}, {200, 2, false}, {77, 3, true}};
        if (twin_repeats(kv_presets[_i]))
                return;
        const dci_kv_config config = twin_small(kv_presets[_i]);
        const dci_gpu_kv_config on_device = for_some(2);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N, 37), other = kv_random(&config, N, 38);
        const int64_t sequence = twin_prefill(&t, &data, PROMPT, 0);
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
                const kv_turn turn = {sequence, &other, PROMPT + c, cases[c].n};
                twin_reserve(&t, 1, &turn);
                for (size_t l = 0; l < cases[c].layers; l++) {
                        twin_append(&t, l, 1, &turn);
                        if (cases[c].plans)
                                twin_look(&t, l, 1, &turn);
                }
                twin_abort(&t, 1, &turn);
                twin_decode(&t, sequence, &data, PROMPT + c, 1);
        }
        kv_data_free(&data);
        kv_data_free(&other);
        twin_end(&t);
}
END_TEST

/* A prompt that ends in a step that is taken back has not ended, and may end otherwise. */
START_TEST(prompts_that_are_taken_back_end_again)
{
        if (twin_repeats(kv_presets[_i]))
                return;
        const dci_kv_config config = twin_small(kv_presets[_i]);
        const dci_gpu_kv_config on_device = for_some(1);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N, 39), other = kv_random(&config, N, 40);
        const int64_t sequence = twin_open(&t);
        const bool end = true;
        for (size_t layers = 1; layers <= config.n_layers; layers++) {
                const kv_turn wrong = {sequence, &other, 0, 300};
                twin_reserve(&t, 1, &wrong);
                for (size_t l = 0; l < layers; l++) {
                        twin_append(&t, l, 1, &wrong);
                        twin_prompt(&t, l, &wrong);
                        twin_look(&t, l, 1, &wrong);
                }
                twin_abort(&t, 1, &wrong);
        }
        twin_step(&t, 1, &(kv_turn){sequence, &data, 0, PROMPT}, &end, false);
        twin_decode(&t, sequence, &data, PROMPT, 6);
        kv_data_free(&data);
        kv_data_free(&other);
        twin_end(&t);
}
END_TEST

/* Rows and blocks are used again and again. */
START_TEST(sequences_come_and_go)
{
        if (twin_repeats(kv_presets[_i]))
                return;
        const dci_kv_config config = twin_small(kv_presets[_i]);
        const dci_gpu_kv_config on_device = for_some(2);
        twin t = twin_begin(&config, &on_device);
        int64_t before = twin_open(&t);
        for (size_t i = 0; i < 5; i++) {
                kv_data data = kv_random(&config, N, 50 + i);
                const size_t n = 350 - i * 71;
                const int64_t sequence = twin_prefill(&t, &data, n, i * 37);
                twin_decode(&t, sequence, &data, n, 4);
                twin_close(&t, before);
                before = sequence;
                twin_decode(&t, sequence, &data, n + 4, 3);
                kv_data_free(&data);
        }
        int64_t sequence, third;
        ck_ok(dci_gpu_kv_open(t.kv, &sequence));
        ck_refused(dci_gpu_kv_open(t.kv, &third), DCI_ERR_FULL, "2 sequences");
        ck_refused(dci_gpu_kv_fork(t.kv, before, 3, &third), DCI_ERR_FULL, "2 sequences");
        twin_end(&t);
}
END_TEST

START_TEST(files_hold_what_the_cpus_hold)
{
        if (twin_repeats(kv_presets[_i]))
                return;
        const dci_kv_config config = twin_small(kv_presets[_i]);
        const dci_gpu_kv_config on_device = for_some(2);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N, 41);
        const int64_t sequence = twin_prefill(&t, &data, PROMPT, 0);
        twin_decode(&t, sequence, &data, PROMPT, 3);
        for (size_t c = 0; c < 3; c++) {
                const size_t n = PROMPT + 3 - c * 150;
                int64_t a = -1, b = -1;
                ck_ok(dci_gpu_kv_save(t.kv, sequence, n, scratch_path("sequence")));
                ck_ok(dci_gpu_kv_load(t.kv, scratch_path("sequence"), &a));
                ck_ok(dci_kv_save(t.cpu, sequence, n, scratch_path("other")));
                ck_ok(dci_kv_load(t.cpu, scratch_path("other"), &b));
                ck_assert_int_eq(a, b);
                twin_check_rows(&t, a, &data, 0, n);
                twin_decode(&t, a, &data, n, 5);
                twin_close(&t, a);
        }
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

START_TEST(a_file_of_too_many_tokens_is_refused)
{
        const dci_kv_config config = twin_small(DCI_KV_SKETCH);
        dci_gpu_kv_config on_device = for_some(2);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N, 42);
        const int64_t sequence = twin_prefill(&t, &data, 100, 0);
        ck_ok(dci_gpu_kv_save(t.kv, sequence, 100, scratch_path("sequence")));
        on_device.max_tokens = 99;
        dci_gpu_kv *small = NULL;
        int64_t id = -1;
        ck_ok(dci_gpu_kv_create(t.gpu, &config, &on_device, &small));
        ck_refused(dci_gpu_kv_load(small, scratch_path("sequence"), &id), DCI_ERR_LIMIT, "max_tokens is 99");
        ck_assert_uint_eq(kv_info(dci_gpu_kv_host(small)).n_sequences, 0);
        dci_gpu_kv_destroy(small);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* Ids go on ascending while rows are few: some lead to the same place (dci_gpu_kv_find), and rows are used again. */
START_TEST(sequences_are_found_however_many_came_and_went)
{
        const dci_kv_config config = twin_small(DCI_KV_SKETCH);
        const dci_gpu_kv_config on_device = for_some(3);
        twin t = twin_begin(&config, &on_device);
        int64_t kept, others[2], gone = -1;
        ck_ok(dci_gpu_kv_open(t.kv, &kept));
        ck_ok(dci_gpu_kv_open(t.kv, &others[0]));
        ck_ok(dci_gpu_kv_open(t.kv, &others[1]));
        for (size_t i = 0; i < 12; i++) {
                gone = others[i % 2];
                ck_ok(dci_gpu_kv_close(t.kv, gone));
                ck_refused(dci_gpu_kv_close(t.kv, gone), DCI_ERR_NOT_FOUND, "there is no sequence");
                ck_ok(dci_gpu_kv_open(t.kv, &others[i % 2]));
                for (size_t time = 0; time < 2; time++) {
                        const dci_gpu_kv_row *rows[] = {dci_gpu_kv_find(t.kv, kept), dci_gpu_kv_find(t.kv, others[0]),
                                                        dci_gpu_kv_find(t.kv, others[1])};
                        ck_assert(rows[0] != NULL && rows[1] != NULL && rows[2] != NULL);
                        ck_assert(rows[0]->id == kept && rows[1]->id == others[0] && rows[2]->id == others[1]);
                }
                ck_assert_ptr_null(dci_gpu_kv_find(t.kv, gone));
                ck_assert_ptr_null(dci_gpu_kv_find(t.kv, -1));
        }
        twin_end(&t);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("gpu kv forks");
        TCase *forks = test_case_with(suite, "forks", 60, scratch_open, scratch_close);
        tcase_add_loop_test(forks, forks_go_on_as_on_the_cpu, 0, KV_N_KINDS);
        tcase_add_loop_test(forks, cuts_go_on_as_on_the_cpu, 0, KV_N_KINDS);
        tcase_add_loop_test(forks, cuts_within_what_was_fetched_go_on_as_on_the_cpu, 0, 16);
        tcase_add_loop_test(forks, shared_blocks_are_copied_before_they_are_written, 0, KV_N_KINDS);
        tcase_add_loop_test(forks, steps_that_are_taken_back_never_were, 0, KV_N_KINDS);
        tcase_add_loop_test(forks, prompts_that_are_taken_back_end_again, 0, KV_N_KINDS);
        tcase_add_loop_test(forks, sequences_come_and_go, 0, KV_N_KINDS);
        tcase_add_loop_test(forks, files_hold_what_the_cpus_hold, 0, KV_N_KINDS);
        tcase_add_test(forks, sequences_are_found_however_many_came_and_went);
        tcase_add_test(forks, a_file_of_too_many_tokens_is_refused);
        return test_main(suite);
}
