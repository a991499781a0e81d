/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* A KV cache on a device chooses and attends as the one on the CPU does. */
#include "tests/gpu_kv_fixture.h"

#include <math.h>

#include "simd/kernels.h"

static size_t steps(size_t n)
{
        return test_short() ? (n + 3) / 4 : n;
}

/* Loops over presets. */
START_TEST(every_preset_is_that_of_the_cpu)
{
        if (twin_repeats(kv_presets[_i]))
                return;
        const dci_kv_config config = twin_small(kv_presets[_i]);
        const dci_gpu_kv_config on_device = twin_on_device();
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, 700, 1000 + (uint64_t)_i);
        const int64_t sequence = twin_prefill(&t, &data, 500, 0);
        twin_decode(&t, sequence, &data, 500, steps(60));
        twin_check_rows(&t, sequence, &data, 0, 500 + steps(60));
        ck_assert(t.n_looked > 0 || config.preset == DCI_KV_FULL);
        twin_close(&t, sequence);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* The same over the trace, in the presets' own pages and with larger numbers; DCI_TEST_LONG: over all of it. */
START_TEST(every_preset_is_that_of_the_cpu_on_the_trace)
{
        if (twin_repeats(kv_presets[_i]))
                return;
        dci_kv_config config = kv_config(kv_presets[_i], 2, 2, 2, 64);
        config.dense_layers = 1;
        dci_gpu_kv_config on_device = twin_on_device();
        on_device.piece_bytes = 1 << 20;
        on_device.max_tokens = KV_TRACE_TOKENS;
        twin t = twin_begin(&config, &on_device);
        const bool is_long = getenv("DCI_TEST_LONG") != NULL;
        const size_t n = is_long ? KV_TRACE_TOKENS : 2200, prompt = is_long ? KV_TRACE_PROMPT : 2100;
        kv_data data = kv_trace(&config, n);
        const int64_t sequence = twin_prefill(&t, &data, prompt, 0);
        twin_decode(&t, sequence, &data, prompt, is_long ? n - prompt : steps(24));
        ck_assert(t.n_looked > 0 || config.preset == DCI_KV_FULL);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* Prompts in pieces: of a token, of less than a page, of pages that begin within one. */
START_TEST(prompts_come_in_pieces)
{
        static const struct {
                size_t n, chunk;
        } cases[] = {{30, 1}, {130, 5}, {400, 41}, {400, 64}, {700, 333}, {8, 0}, {0, 0}, {1, 0}};
        for (size_t p = 0; p < KV_N_KINDS; p++) {
                if (twin_repeats(kv_presets[p]))
                        continue;
                const dci_kv_config config = twin_small(kv_presets[p]);
                const dci_gpu_kv_config on_device = twin_on_device();
                twin t = twin_begin(&config, &on_device);
                kv_data data = kv_random(&config, 800, 2000 + (uint64_t)_i);
                if (p % 2 == 0)
                        t.kv->staging_blocks = 3; /* less than is there: long pieces go to the host in several parts */
                const int64_t sequence = twin_prefill(&t, &data, cases[_i].n, cases[_i].chunk);
                twin_decode(&t, sequence, &data, cases[_i].n, steps(12));
                twin_check_rows(&t, sequence, &data, 0, cases[_i].n + steps(12));
                kv_data_free(&data);
                twin_end(&t);
        }
}
END_TEST

/* From nothing, through the budget, far beyond: with small pieces the pool grows all the time. */
START_TEST(a_long_decode_stays_that_of_the_cpu)
{
        static const int32_t presets[] = {DCI_KV_SKETCH,     DCI_KV_ARKVALE, DCI_KV_ICECACHE,
                                          DCI_KV_RETROINFER, DCI_KV_PRKV,    DCI_KV_PARISKV};
        dci_kv_config config = twin_small(presets[_i]);
        config.dtype = DCI_F16;
        dci_gpu_kv_config on_device = twin_on_device();
        on_device.hot_tokens = 48;
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, 900, 77);
        const int64_t sequence = twin_prefill(&t, &data, 10, 0);
        twin_decode(&t, sequence, &data, 10, steps(600));
        const dci_gpu_kv_info info = twin_info(&t);
        ck_assert_uint_gt(t.kv->pool->n_pieces, 1);
        ck_assert_uint_gt(info.n_missed, 0);
        ck_assert_uint_lt(info.n_missed, info.n_asked);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* Several sequences of different lengths, which take different numbers of tokens, some none. */
START_TEST(ragged_batches_are_those_of_the_cpu)
{
        enum { SEQUENCES = 4 };
        static const size_t lengths[SEQUENCES] = {3, 97, 260, 611};
        if (twin_repeats(kv_presets[_i]))
                return;
        const dci_kv_config config = twin_small(kv_presets[_i]);
        dci_gpu_kv_config on_device = twin_on_device();
        on_device.max_sequences = SEQUENCES + 1;
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, 800, 5);
        kv_turn turns[SEQUENCES];
        size_t at[SEQUENCES];
        for (size_t i = 0; i < SEQUENCES; i++) {
                turns[i] = (kv_turn){twin_prefill(&t, &data, lengths[i], i * 40), &data, lengths[i], 0};
                at[i] = lengths[i];
        }
        for (size_t s = 0; s < steps(20); s++) {
                const size_t n = 1 + s % SEQUENCES;
                kv_turn now[SEQUENCES];
                for (size_t i = 0; i < n; i++) {
                        const size_t which = (i + s) % SEQUENCES;
                        now[i] = turns[which];
                        now[i].from = at[which];
                        now[i].n = s % 5 == 4 ? (i * 23 + s) % 41 : i == 1 ? 0 : 1;
                        at[which] += now[i].n;
                }
                twin_step(&t, n, now, NULL, true);
                if (s % 3 == 0)
                        twin_maintain(&t);
        }
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* A prompt's end and plans in one step, next to a sequence that decodes. */
START_TEST(prompts_end_beside_plans)
{
        if (twin_repeats(kv_presets[_i]))
                return;
        const dci_kv_config config = twin_small(kv_presets[_i]);
        dci_gpu_kv_config on_device = twin_on_device();
        on_device.max_sequences = 2;
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, 500, 6);
        const int64_t a = twin_prefill(&t, &data, 200, 0), b = twin_open(&t);
        const kv_turn turns[] = {{b, &data, 0, 300}, {a, &data, 200, 1}};
        const bool ends[] = {true, false};
        twin_step(&t, 2, turns, ends, true);
        twin_decode(&t, b, &data, 300, 5);
        twin_decode(&t, a, &data, 201, 5);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* Shapes of the header, each with a few presets, one with lists of query heads; and formats of queries. */
START_TEST(every_shape_is_that_of_the_cpu)
{
        static const struct {
                size_t dim, n_heads, group, page;
                dci_dtype dtype, query_dtype;
        } shapes[] = {{64, 1, 16, 8, DCI_F16, DCI_F32},    {96, 3, 5, 16, DCI_BF16, DCI_BF16},
                      {128, 2, 1, 32, DCI_F16, DCI_F16},   {256, 1, 8, 64, DCI_BF16, DCI_F32},
                      {128, 8, 4, 16, DCI_BF16, DCI_BF16}, {96, 1, 9, 64, DCI_F16, DCI_BF16}};
        static const int32_t presets[] = {DCI_KV_SKETCH_LOWBIT, DCI_KV_QUEST, DCI_KV_PARISKV, DCI_KV_FULL, DCI_KV_TOPK};
        for (size_t p = 0; p < sizeof presets / sizeof *presets; p++) {
                dci_kv_config config = kv_config(presets[p], 2, shapes[_i].n_heads, shapes[_i].group, shapes[_i].dim);
                config.page_tokens = shapes[_i].page;
                config.dtype = shapes[_i].dtype;
                config.query_dtype = shapes[_i].query_dtype;
                config.query_head_lists = presets[p] == DCI_KV_TOPK && shapes[_i].group > 1;
                config.rollback = config.window = 32;
                config.budget = 160;
                const dci_gpu_kv_config on_device = twin_on_device();
                twin t = twin_begin(&config, &on_device);
                kv_data data = kv_random(&config, 450, 8);
                const int64_t sequence = twin_prefill(&t, &data, 400, 0);
                twin_decode(&t, sequence, &data, 400, 6);
                kv_data_free(&data);
                twin_end(&t);
        }
}
END_TEST

/* Logits of lone query heads, so far apart that most of a softmax would be zeros: lists are the CPU's, by scores. Loops over presets. */
START_TEST(lone_query_heads_are_those_of_the_cpu)
{
        static const int32_t presets[] = {DCI_KV_SKETCH, DCI_KV_SKETCH_LOWBIT, DCI_KV_PAGEMEAN, DCI_KV_CLUSTERKV};
        dci_kv_config config = twin_small(presets[_i]);
        config.n_query_heads = config.n_kv_heads;
        const dci_gpu_kv_config on_device = twin_planned_for(1);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, 460, 9);
        for (size_t i = 0; i < data.n * data.n_layers * data.n_kv_heads * data.dim_k; i++)
                data.queries[i] *= 40.0f;
        kv_data_store(&data);
        twin_decode(&t, twin_prefill(&t, &data, 400, 0), &data, 400, 30);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* One step's outputs of all layers, as floats. */
static size_t outputs_as(int32_t out_dtype, const dci_kv_config *config, const kv_data *data, float *out)
{
        dci_gpu_kv_config on_device = twin_on_device();
        on_device.out_dtype = out_dtype;
        twin t = twin_begin(config, &on_device);
        const size_t dim = config->dim_k, n = config->n_query_heads * dim, es = dci_dtype_size((dci_dtype)out_dtype);
        const kv_turn turn = {twin_prefill(&t, data, 300, 0), data, 300, 1};
        unsigned char *stored = malloc(n * es);
        ck_assert_ptr_nonnull(stored);
        void *there = twin_send(&t, NULL, n * es);
        twin_reserve(&t, 1, &turn);
        for (size_t l = 0; l < config->n_layers; l++) {
                twin_append(&t, l, 1, &turn);
                void *host = kv_queries(l, 1, &turn), *queries = twin_send(&t, host, n * sizeof(float));
                ck_ok(dci_gpu_kv_plan(t.kv, t.stream, l, queries, dim));
                ck_ok(dci_gpu_kv_attend(t.kv, t.stream, l, queries, dim, there, dim, NULL));
                ck_ok(t.ops->copy(t.gpu, t.stream, stored, there, n * es));
                ck_ok(t.ops->stream_wait(t.gpu, t.stream));
                dci_kernels_scalar.to_f32[out_dtype - 1](stored, n, out + l * n);
                twin_give(&t, queries, n * sizeof(float));
                free(host);
        }
        twin_step_end(&t, 1, &turn);
        twin_give(&t, there, n * es);
        free(stored);
        twin_end(&t);
        return config->n_layers * n;
}

START_TEST(outputs_are_of_the_wanted_format)
{
        enum { MOST = 3 * 4 * 64 };
        float wanted[MOST], got[MOST];
        const dci_kv_config config = twin_small(DCI_KV_SKETCH_LOWBIT);
        kv_data data = kv_random(&config, 301, 9);
        const size_t n = outputs_as(DCI_F32, &config, &data, wanted);
        ck_assert_uint_eq(n, MOST);
        for (int32_t dtype = DCI_F16; dtype <= DCI_BF16; dtype++) {
                const double unit = dtype == DCI_F16 ? 0x1p-11 : 0x1p-8; /* half of the last place, and a little */
                ck_assert_uint_eq(outputs_as(dtype, &config, &data, got), n);
                for (size_t i = 0; i < n; i++)
                        ck_assert(fabs((double)got[i] - wanted[i]) <= 1.01 * unit * fabs((double)wanted[i]) + 1e-6);
        }
        kv_data_free(&data);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("gpu kv");
        TCase *laws = test_case(suite, "laws", 60);
        tcase_add_loop_test(laws, every_preset_is_that_of_the_cpu, 0, KV_N_KINDS);
        tcase_add_loop_test(laws, every_preset_is_that_of_the_cpu_on_the_trace, 0, KV_N_KINDS);
        tcase_add_loop_test(laws, prompts_come_in_pieces, 0, 8);
        tcase_add_loop_test(laws, a_long_decode_stays_that_of_the_cpu, 0, 6);
        tcase_add_loop_test(laws, ragged_batches_are_those_of_the_cpu, 0, KV_N_KINDS);
        tcase_add_loop_test(laws, prompts_end_beside_plans, 0, KV_N_KINDS);
        tcase_add_loop_test(laws, every_shape_is_that_of_the_cpu, 0, 6);
        tcase_add_loop_test(laws, lone_query_heads_are_those_of_the_cpu, 0, 4);
        tcase_add_test(laws, outputs_are_of_the_wanted_format);
        return test_main(suite);
}
