/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Learned codes of prompts that the device makes: what it has, and what it reports to the host, is to the bit what a dci_kv on the CPU makes of
 * the same rows, whatever becomes of the sequence afterwards.
 */
#include <string.h>

#include "kv/chunk.h"
#include "kv/transform.h"
#include "tests/gpu_kv_fixture.h"
#include "tests/scratch.h"

/* Longer than what is watched as a whole, so that blocks between watched ones are there, and no multiple of a chunk. */
enum { PROMPT = 1450, N = 2300, CODED = 1024 };

static dci_kv_config config_of(int32_t bits)
{
        dci_kv_config config = twin_small(DCI_KV_SKETCH);
        config.summary = DCI_KV_SUMMARY_LEARNED;
        config.key_bits = bits;
        return config;
}

static twin begin(const dci_kv_config *config, size_t n)
{
        const dci_gpu_kv_config on_device = twin_planned_for(n);
        return twin_begin(config, &on_device);
}

/* That candidates of this layer have codes on the device which the host has not. */
static size_t missing(const twin *t, int64_t sequence)
{
        size_t n = 0;
        for (size_t l = 0; l < t->config.n_layers; l++) {
                ck_assert(!twin_layer_of(t->kv->host, sequence, l)->prompt_due);
                n += twin_layer_of(t->kv->host, sequence, l)->n_missing;
        }
        return n;
}

static void same_head(const twin *t, int64_t sequence, size_t l, size_t h)
{
        const dci_kv_head *a = &twin_layer_of(t->cpu, sequence, l)->heads[h],
                          *b = &twin_layer_of(t->kv->host, sequence, l)->heads[h];
        ck_assert_msg(a->keys->distortion == b->keys->distortion && a->n_now == b->n_now && a->sum_now == b->sum_now &&
                              a->n_latest == b->n_latest && a->sum_latest == b->sum_latest && a->refits == b->refits,
                      "layer %zu, head %zu: %.17g over %u of %.17g, the CPU has %.17g over %u of %.17g", l, h,
                      b->sum_now, b->n_now, b->keys->distortion, a->sum_now, a->n_now, a->keys->distortion);
}

/* Codes and scales of the first n candidates of a chunk. Behind them is what was there before a cut, or nothing. */
static bool alike(const twin *t, const unsigned char *a, const unsigned char *b, size_t n)
{
        const size_t apart = 4 * t->config.dim_k * (size_t)t->config.key_bits,
                     scales = DCI_KV_CHUNK / DCI_CODE_ROWS * apart;
        bool same = memcmp(a + scales, b + scales, n * sizeof(uint16_t)) == 0;
        for (size_t i = 0; i < n; i++)
                for (size_t line = 0; line < apart; line += 2 * DCI_CODE_LINE) {
                        const size_t at = i / DCI_CODE_ROWS * apart + line + dci_code_word(i % DCI_CODE_ROWS);
                        same = same && memcmp(a + at, b + at, 4) == 0;
                }
        return same;
}

/* Every chunk on the device, every sum of what is watched. */
static void same_codes(twin *t, int64_t sequence)
{
        const dci_gpu_kv_row *row = dci_gpu_kv_find(t->kv, sequence);
        const dci_gpu_kv_store *s = t->kv->summaries;
        const int32_t *numbers = dci_gpu_kv_store_numbers(s, dci_gpu_kv_row_number(t->kv, row));
        unsigned char *chunk = malloc(s->chunk_bytes);
        ck_assert_ptr_nonnull(chunk);
        ck_ok(dci_gpu_kv_maintain(t->kv, 1, &sequence));
        ck_ok(dci_kv_maintain(t->cpu, 1, &sequence));
        for (size_t l = 0; l < t->config.n_layers; l++) {
                const dci_kv_layer *layer = twin_layer_of(t->cpu, sequence, l);
                if (t->kv->layers[l].dense)
                        continue;
                ck_assert_uint_eq(row->n_formed, layer->n_grouped);
                for (size_t c = 0; c < dci_gpu_kv_count_chunks(row->n_formed); c++) {
                        const size_t sparse = t->kv->layers[l].index;
                        ck_ok(t->ops->copy(t->gpu, t->stream, chunk, dci_gpu_kv_store_at(s, sparse, numbers[c]),
                                           s->chunk_bytes));
                        ck_ok(t->ops->stream_wait(t->gpu, t->stream));
                        const size_t left = row->n_formed - c * DCI_KV_CHUNK,
                                     n = left < DCI_KV_CHUNK ? left : DCI_KV_CHUNK;
                        for (size_t h = 0; h < t->config.n_kv_heads; h++)
                                ck_assert_msg(alike(t, chunk + h * (s->chunk_bytes / t->config.n_kv_heads),
                                                    dci_kv_chunk_head(t->cpu, layer, c, h), n),
                                              "sequence %d, layer %zu, head %zu: other codes in chunk %zu",
                                              (int)sequence, l, h, c);
                }
                for (size_t h = 0; h < t->config.n_kv_heads; h++)
                        same_head(t, sequence, l, h);
        }
        free(chunk);
}

/* Keys of tokens from `first` on, `by` binary orders larger: bf16. */
static void larger_keys(const dci_kv_config *config, const kv_data *data, size_t first, int by)
{
        const size_t row = config->n_kv_heads * config->dim_k;
        uint16_t *keys = data->stored_keys;
        for (size_t l = 0; l < config->n_layers; l++)
                for (size_t i = (l * data->n + first) * row; i < (l + 1) * data->n * row; i++)
                        if ((keys[i] & 0x7f80) != 0)
                                keys[i] = (uint16_t)(keys[i] + 0x80 * by);
}

START_TEST(codes_of_prompts_are_those_of_the_cpu)
{
        static const size_t prompts[] = {PROMPT, 1800, 600, CODED + 32, 300};
        const dci_kv_config config = config_of(_i + 1);
        twin t = begin(&config, 1);
        kv_data data = kv_random(&config, N, 40 + (uint64_t)_i);
        for (size_t i = 0; i < sizeof prompts / sizeof *prompts; i++) {
                /* Every second one in steps, of which the last one knows no other rows. */
                const int64_t sequence = twin_prefill(&t, &data, prompts[i], i % 2 == 0 ? 0 : 700);
                same_codes(&t, sequence);
                ck_assert_uint_eq(missing(&t, sequence), 2 * ((prompts[i] - 16) / 8 * 8 / DCI_KV_CHUNK * DCI_KV_CHUNK));
                twin_decode(&t, sequence, &data, prompts[i], 20);
                same_codes(&t, sequence);
                twin_close(&t, sequence);
        }
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* Before the device was asked for anything, and when it has codes that the host has not. */
START_TEST(forks_and_cuts_go_through_what_the_host_lacks)
{
        const dci_kv_config config = config_of(4);
        twin t = begin(&config, 4);
        kv_data data = kv_random(&config, N, 50), other = kv_random(&config, N, 51);
        const int64_t a = twin_prefill(&t, &data, PROMPT, 0), b = twin_fork(&t, a, PROMPT - 3),
                      c = twin_fork(&t, a, 700);
        twin_decode(&t, b, &other, PROMPT - 3, 30);
        twin_decode(&t, c, &other, 700, 40);
        twin_truncate(&t, b, 905);
        twin_decode(&t, b, &data, 905, 40);
        twin_decode(&t, a, &data, PROMPT, 20);
        const int64_t d = twin_fork(&t, c, 620);
        twin_truncate(&t, a, 530);
        twin_decode(&t, a, &other, 530, 30);
        twin_decode(&t, d, &data, 620, 30);
        same_codes(&t, a);
        same_codes(&t, b);
        same_codes(&t, c);
        same_codes(&t, d);
        twin_close(&t, d);
        const int64_t e = twin_prefill(&t, &other, PROMPT, 0);
        twin_truncate(&t, e, 1100); /* as soon as it is there */
        twin_decode(&t, e, &other, 1100, 20);
        same_codes(&t, e);
        kv_data_free(&data);
        kv_data_free(&other);
        twin_end(&t);
}
END_TEST

/* A frame that is worn is found worn at the same token, and all codes are there for those that come up again. */
START_TEST(codes_are_made_anew_when_the_cpu_makes_them_anew)
{
        dci_kv_config config = config_of(2);
        config.refit = 1.05;
        twin t = begin(&config, 2);
        kv_data data = kv_random(&config, 3600, 60);
        larger_keys(&config, &data, PROMPT, 2);
        const int64_t sequence = twin_prefill(&t, &data, PROMPT, 0);
        kv_turn turn = {sequence, &data, PROMPT, 90};
        int64_t fork = -1;
        for (; turn.from + turn.n < 3600; turn.from += turn.n) {
                twin_step(&t, 1, &turn, NULL, true);
                if (fork < 0 && turn.from > 1600)
                        fork = twin_fork(&t, sequence, 1500);
        }
        same_codes(&t, sequence);
        twin_decode(&t, fork, &data, 1500, 20);
        same_codes(&t, fork);
        int32_t n_refits = 0;
        for (size_t l = 0; l < config.n_layers; l++)
                for (size_t h = 0; h < config.n_kv_heads; h++)
                        n_refits += (int32_t)twin_layer_of(t.cpu, sequence, l)->heads[h].refits;
        ck_assert_int_gt(n_refits, 0);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* One head's keys are too small for a fit: the host forms all of its layer, or of all layers; the others' come from the device. */
START_TEST(heads_without_a_fit_are_the_hosts)
{
        const dci_kv_config config = config_of(4);
        const size_t layers = _i == 0 ? 1 : config.n_layers;
        twin t = begin(&config, 1);
        kv_data data = kv_random(&config, N, 70);
        uint16_t *keys = data.stored_keys;
        for (size_t l = config.n_layers - layers; l < config.n_layers; l++)
                for (size_t i = 0; i < N; i++)
                        for (size_t h = 0; h < config.n_kv_heads; h++)
                                for (size_t j = 0; j < config.dim_k && (h == 1 || _i == 2); j++) {
                                        uint16_t *key = &keys[((l * N + i) * config.n_kv_heads + h) * config.dim_k + j];
                                        *key = (uint16_t)((*key & 0x807f) | 0x0d80); /* of size 2^-100 */
                                }
        const int64_t sequence = twin_prefill(&t, &data, PROMPT, 0);
        same_codes(&t, sequence);
        size_t n_random = 0;
        for (size_t l = 0; l < config.n_layers; l++)
                for (size_t h = 0; h < config.n_kv_heads && !t.kv->layers[l].dense; h++)
                        n_random += twin_layer_of(t.cpu, sequence, l)->heads[h].keys->coder.kind == DCI_CODER_ROTATED;
        ck_assert_uint_eq(n_random, _i == 0 ? 1 : _i == 1 ? 2 : 4);
        ck_assert_uint_eq(missing(&t, sequence), _i == 0 ? CODED : 0);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* A step that ends a prompt and plans; one that is taken back, in the middle of a layer or after all. */
START_TEST(steps_that_plan_and_steps_that_are_taken_back)
{
        const dci_kv_config config = config_of(2);
        const bool end = true;
        twin t = begin(&config, 2);
        kv_data data = kv_random(&config, N, 80), other = kv_random(&config, N, 81);
        const int64_t a = twin_open(&t), b = twin_open(&t);
        const kv_turn all = {a, &data, 0, PROMPT}, first = {b, &other, 0, 700}, second = {b, &other, 700, 600};
        twin_step(&t, 1, &all, &end, true);
        ck_assert_uint_eq(missing(&t, a), 2 * CODED);
        twin_decode(&t, a, &data, PROMPT, 12);
        same_codes(&t, a);
        twin_step(&t, 1, &first, NULL, false);
        for (size_t stop = 1; stop <= config.n_layers; stop++) {
                twin_reserve(&t, 1, &second);
                for (size_t l = 0; l < stop; l++) {
                        twin_append(&t, l, 1, &second);
                        twin_prompt(&t, l, &second);
                        twin_look(&t, l, 1, &second);
                }
                twin_abort(&t, 1, &second);
        }
        twin_step(&t, 1, &second, &end, _i == 1);
        twin_decode(&t, b, &other, 1300, 10);
        same_codes(&t, b);
        kv_data_free(&data);
        kv_data_free(&other);
        twin_end(&t);
}
END_TEST

START_TEST(files_have_what_a_decode_needs)
{
        const dci_kv_config config = config_of(4);
        twin t = begin(&config, 2);
        kv_data data = kv_random(&config, N, 90);
        const char *path = scratch_path("learned");
        const int64_t a = twin_prefill(&t, &data, PROMPT, 0);
        int64_t b = -1, c = -1;
        ck_ok(dci_gpu_kv_save(t.kv, a, 1300, path)); /* before its codes were asked for */
        ck_ok(dci_gpu_kv_load(t.kv, path, &b));
        ck_ok(dci_kv_load(t.cpu, path, &c));
        ck_assert_int_eq(b, c);
        twin_decode(&t, a, &data, PROMPT, 12);
        twin_decode(&t, b, &data, 1300, 12);
        same_codes(&t, a);
        same_codes(&t, b);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* Loops over schedules. A layer between anchors has no codes, and is planned with lists of the layer before it, in the prompt's own step too. */
START_TEST(layers_without_codes_are_planned_at_once)
{
        dci_kv_config config = config_of(4);
        config.schedule = _i;
        config.n_layers = 4;
        config.refit = 0.0;
        twin t = begin(&config, 2);
        kv_data data = kv_random(&config, N, 95);
        for (size_t i = 0; i < 2; i++) {
                const size_t n = i == 0 ? 600 : 120;
                const int64_t sequence = twin_open(&t);
                const bool ends = true;
                twin_step(&t, 1, &(kv_turn){sequence, &data, 0, n}, &ends, true);
                twin_decode(&t, sequence, &data, n, 12);
        }
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("gpu kv learned");
        TCase *laws = test_case_with(suite, "laws", 60, scratch_open, scratch_close);
        tcase_add_loop_test(laws, codes_of_prompts_are_those_of_the_cpu, 0, 4);
        tcase_add_test(laws, forks_and_cuts_go_through_what_the_host_lacks);
        tcase_add_test(laws, codes_are_made_anew_when_the_cpu_makes_them_anew);
        tcase_add_loop_test(laws, heads_without_a_fit_are_the_hosts, 0, 3);
        tcase_add_loop_test(laws, steps_that_plan_and_steps_that_are_taken_back, 0, 2);
        tcase_add_test(laws, files_have_what_a_decode_needs);
        tcase_add_loop_test(laws, layers_without_codes_are_planned_at_once, DCI_KV_EVERY_STEP, DCI_KV_EVERY_STEP + 1);
        tcase_add_loop_test(laws, layers_without_codes_are_planned_at_once, DCI_KV_PERIODIC, DCI_KV_AHEAD + 1);
        return test_main(suite);
}
