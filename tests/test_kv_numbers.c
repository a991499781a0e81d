/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The KV cache: numbers that are none, and those at the ends of what there is. */
#include "tests/common.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kv/stages/schedule.h"
#include "simd/kernels.h"
#include "tests/context_fixture.h"
#include "tests/kv_model.h"

enum { PROMPT = 150, N = 260 };

static void says(const char *part)
{
        ck_assert_msg(strstr(dci_last_error(), part) != NULL, "'%s' does not say '%s'", dci_last_error(), part);
}

static const float bad_numbers[] = {NAN, INFINITY, -INFINITY};

/* Copies rows with one number that is none. */
static void *spoiled(dci_dtype dtype, const void *rows, size_t n, size_t at, float number)
{
        const size_t es = dci_dtype_size(dtype);
        char *out = malloc(n * es);
        ck_assert_ptr_nonnull(out);
        memcpy(out, rows, n * es);
        dci_kernels_scalar.narrow[dtype - 1](&number, 1, out + at * es);
        return out;
}

/* --- keys and values ---------------------------------------------------------------------------------------------------------- */

/* Loops over formats and kinds of numbers. In the second of two sequences, at its third token of five, kv head 1. */
START_TEST(bad_keys_and_values_are_named_and_refused)
{
        dci_kv_config config = kv_small(DCI_KV_SKETCH_LOWBIT);
        config.dtype = all_dtypes[_i / 3];
        kv_data data = kv_random(&config, N, 90);
        dci_kv *kv = kv_create(context, &config), *control = kv_create(context, &config);
        const int64_t a = kv_begin(kv, &data, PROMPT), b = kv_begin(kv, &data, PROMPT),
                      plain = kv_begin(control, &data, PROMPT), sequences[] = {a, b};
        const kv_turn turns[] = {{a, &data, PROMPT, 2}, {b, &data, PROMPT, 5}};
        const size_t n_tokens[] = {2, 5}, row = 2 * config.dim_k, first = PROMPT * row;
        char name[40];
        snprintf(name, sizeof name, "sequence %lld", (long long)b);
        kv_reserve(kv, 2, turns);
        for (size_t layer = 0; layer < 2; layer++) {
                const size_t es = dci_dtype_size(config.dtype), begins = (layer * N * row + first) * es;
                for (size_t value = 0; value < 2; value++)
                        for (size_t j = 0; j < config.dim_k; j += 5) {
                                dci_kv_rows rows;
                                ck_ok(dci_kv_rows_init(&rows, sizeof rows));
                                const char *keys = (char *)data.stored_keys + begins,
                                           *values = (char *)data.stored_values + begins;
                                void *bad = spoiled(config.dtype, value == 0 ? keys : values, 7 * row,
                                                    (2 + 2) * row + config.dim_k + j, bad_numbers[_i % 3]);
                                rows.keys = value == 0 ? bad : keys;
                                rows.values = value == 0 ? values : bad;
                                ck_refused(dci_kv_append(kv, layer, 2, sequences, n_tokens, &rows), DCI_ERR_NUMBER,
                                           "token 152");
                                says(name);
                                says(value == 0 ? "key of kv head 1" : "value of kv head 1");
                                free(bad);
                        }
                kv_append(kv, layer, 2, turns);
        }
        kv_step_end(kv, 2, turns);
        ck_ok(dci_kv_maintain(kv, 2, sequences));
        kv_decode_all(control, plain, &data, PROMPT, 5);
        kv_alike(kv, b, control, plain, &data, PROMPT + 5, 20, "after bad numbers");
        dci_kv_destroy(kv);
        kv_end(control, &data);
}
END_TEST

/* Rows that are in their slots already are looked at as well. */
START_TEST(bad_rows_in_place_are_refused)
{
        static uint16_t memory[2][2][40 * 2 * 8 * 16];
        void *keys[] = {memory[0][0], memory[0][1]}, *values[] = {memory[1][0], memory[1][1]};
        dci_kv_layout layout;
        ck_ok(dci_kv_layout_init(&layout, sizeof layout));
        layout.keys = keys;
        layout.values = values;
        layout.n_blocks = 40;
        layout.key_slot_stride = layout.value_slot_stride = 16;
        layout.key_head_stride = layout.value_head_stride = 8 * 16;
        layout.key_page_stride = layout.value_page_stride = 2 * 8 * 16;
        dci_kv_config config = kv_small(DCI_KV_TOPK);
        config.layout = &layout;
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequence = kv_open(kv);
        const size_t n = 20;
        int32_t blocks[3];
        dci_kv_rows none;
        ck_ok(dci_kv_rows_init(&none, sizeof none));
        ck_ok(dci_kv_reserve(kv, 1, &sequence, &n));
        ck_ok(dci_kv_table(kv, sequence, 0, 3, blocks));
        uint16_t *slot = &memory[1][0][((size_t)blocks[1] * 2 + 1) * 8 * 16 + 3 * 16]; /* head 1, slot 3: token 11 */
        *slot = 0x7E00;
        ck_refused(dci_kv_append(kv, 0, 1, &sequence, &n, &none), DCI_ERR_NUMBER, "token 11");
        says("value of kv head 1");
        *slot = 0;
        ck_ok(dci_kv_append(kv, 0, 1, &sequence, &n, &none));
        dci_kv_destroy(kv);
}
END_TEST

/* --- queries -------------------------------------------------------------------------------------------------------------------- */

/* Loops over presets. The third query head of the second sequence. */
START_TEST(bad_queries_are_named_and_refused)
{
        dci_kv_config config = kv_small(kv_presets[_i]);
        kv_data data = kv_random(&config, N, 91);
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequences[] = {kv_begin(kv, &data, PROMPT), kv_begin(kv, &data, 170)};
        const kv_turn turns[] = {{sequences[0], &data, PROMPT, 0}, {sequences[1], &data, 170, 0}};
        kv_seen before = kv_look(kv, 2, turns);
        char name[40];
        snprintf(name, sizeof name, "sequence %lld", (long long)sequences[1]);
        float *good = kv_queries(1, 2, turns), *out = malloc(2 * 4 * 16 * sizeof *out);
        for (size_t k = 0; k < COUNT(bad_numbers); k++)
                for (size_t j = 0; j < 16; j += 7) {
                        float *bad = spoiled(DCI_F32, good, 2 * 4 * 16, (4 + 2) * 16 + j, bad_numbers[k]);
                        dci_kv_plan *plan = &before.plans[1];
                        ck_refused(dci_kv_attend(kv, 1, 2, sequences, bad, 16, plan, out, 16, NULL), DCI_ERR_NUMBER,
                                   name);
                        says("head 2");
                        ck_refused(dci_kv_attend(kv, 1, 2, sequences, bad, 16, NULL, out, 16, NULL), DCI_ERR_NUMBER,
                                   name);
                        dci_kv_plan own;
                        own = kv_plan(kv, 2);
                        ck_refused(dci_kv_plan_make(kv, 1, 2, sequences, bad, 16, &own), DCI_ERR_NUMBER, name);
                        says("head 2");
                        dci_kv_plan_destroy(kv, &own);
                        free(bad);
                }
        kv_seen after = kv_look(kv, 2, turns);
        kv_same_and_free(&before, &after, "after bad queries");
        test_free(good, out);
        kv_end(kv, &data);
}
END_TEST

/* Where observed queries matter. The prompt can be ended afterwards. */
START_TEST(bad_observed_queries_are_named_and_refused)
{
        dci_kv_config config = kv_small(DCI_KV_SNAPKV);
        if (_i == 1) {
                config.preset = DCI_KV_SKETCH;
                config.summary = DCI_KV_SUMMARY_LEARNED;
        }
        kv_data data = kv_random(&config, N, 92);
        dci_kv *kv = kv_create(context, &config), *control = kv_create(context, &config);
        const int64_t sequence = kv_open(kv);
        const kv_turn prompt = {sequence, &data, 0, PROMPT};
        kv_reserve(kv, 1, &prompt);
        for (size_t layer = 0; layer < 2; layer++) {
                kv_append(kv, layer, 1, &prompt);
                const float *good = kv_query(&data, layer, PROMPT - 10, 0);
                for (size_t k = 0; k < COUNT(bad_numbers); k++) {
                        float *bad = spoiled(DCI_F32, good, 10 * 4 * 16, (4 * 4 + 3) * 16 + 9, bad_numbers[k]);
                        ck_refused(dci_kv_end_prompt(kv, layer, sequence, 10, bad, 16), DCI_ERR_NUMBER, "position 4");
                        says("head 3");
                        free(bad);
                }
                kv_prompt(kv, layer, sequence, &data, PROMPT);
        }
        kv_step_end(kv, 1, &prompt);
        kv_alike(kv, sequence, control, kv_begin(control, &data, PROMPT), &data, PROMPT, 10,
                 "after bad observed queries");
        dci_kv_destroy(kv);
        kv_end(control, &data);
}
END_TEST

/* Rows too long to score are refused as well, and those that are not give numbers, whatever the preset: zeros, tiny, huge. */
START_TEST(extreme_rows_give_numbers)
{
        const int32_t preset = _i < KV_N_KINDS ? kv_presets[_i] : DCI_KV_PAGEMEAN;
        static const float sizes[] = {0.0f, 1e-40f, 1e-20f, 1e-3f, 1e8f, 1e15f};
        for (size_t s = 0; s < 2 * COUNT(sizes); s++) {
                const float size = sizes[s / 2];
                dci_kv_config config = kv_small(preset);
                config.summary = _i < KV_N_KINDS ? config.summary : DCI_KV_SUMMARY_MEAN_STD;
                config.dtype = DCI_F32;
                kv_data data = kv_random(&config, N, 93 + s % 2);
                for (size_t j = 0; j < 2 * N * 2 * 16; j++) {
                        ((float *)data.stored_keys)[j] *= size;
                        ((float *)data.stored_values)[j] *= sizes[(s / 2 + 3) % COUNT(sizes)];
                }
                dci_kv *kv = kv_create(context, &config);
                const int64_t sequence = kv_begin(kv, &data, PROMPT);
                for (size_t t = PROMPT; t < N; t += 1 + (t > 170) * 20) {
                        kv_seen seen =
                                kv_decode(kv, 1, &(kv_turn){sequence, &data, t, t > 170 && t + 21 <= N ? 21 : 1});
                        kv_lawful(&seen, &config, 0, dci_kv_preset_name(preset));
                        for (size_t j = 0; j < 2 * 4 * 16; j++)
                                if (!isfinite(seen.out[j]))
                                        ck_abort_msg("%s, keys of %g: output %zu is %g", dci_kv_preset_name(preset),
                                                     (double)size, j, (double)seen.out[j]);
                        for (size_t j = 0; j < 2 * 4; j++)
                                test_hold(isfinite(seen.lse[j]));
                        kv_seen_free(&seen);
                        if (t + 21 > N)
                                break;
                }
                kv_end(kv, &data);
        }
}
END_TEST

/* Rows of one length; those of few coordinates keep their direction. */
static void lengthen(float *rows, size_t n, size_t dim, double length)
{
        for (size_t i = 0; i < n; i++, rows += dim) {
                double sum = 0.0;
                for (size_t j = 0; j < dim; j++)
                        sum += (double)rows[j] * (double)rows[j];
                for (size_t j = 0; j < dim; j++)
                        rows[j] = (float)((double)rows[j] * length / sqrt(sum));
        }
}

/* Keys and queries nearly as long as they may be, all nearly alike, so that sums of their products would overflow: any plan's numbers are some. */
START_TEST(the_longest_rows_give_numbers)
{
        const int32_t preset = _i < KV_N_KINDS ? kv_presets[_i] : DCI_KV_PAGEMEAN;
        dci_kv_config config = kv_small(preset);
        config.summary = _i < KV_N_KINDS ? config.summary : DCI_KV_SUMMARY_MEAN_STD;
        config.dtype = DCI_F32;
        config.page_tokens = 32;
        kv_data data = kv_random(&config, N, 96);
        const size_t rows = data.n * data.n_layers * data.n_kv_heads;
        for (size_t i = 0; i < rows; i++)
                data.keys[i * data.dim_k] += i % 50 == 0 ? -60.0f : 60.0f;
        for (size_t i = 0; i < rows * data.group; i++)
                data.queries[i * data.dim_k] += i % 3 == 0 ? -60.0f : 60.0f;
        lengthen(data.keys, rows, data.dim_k, 1.5e19);
        lengthen(data.queries, rows * data.group, data.dim_k, 1.5e19);
        kv_data_store(&data);
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        for (size_t t = PROMPT; t < N; t++) {
                kv_seen seen = kv_decode(kv, 1, &(kv_turn){sequence, &data, t, 1});
                kv_lawful(&seen, &config, 0, dci_kv_preset_name(preset));
                for (size_t j = 0; j < 2 * 4 * 16; j++)
                        ck_assert_msg(isfinite(seen.out[j]), "%s, token %zu: output %zu is %g",
                                      dci_kv_preset_name(preset), t, j, (double)seen.out[j]);
                for (size_t j = 0; j < 4 && preset == DCI_KV_SKETCH_SUMS; j++)
                        test_hold(isfinite(seen.plans[0].tail_lse[j])); /* no plan leaves nothing to it */
                for (size_t j = 0; j < 2 * 4; j++)
                        ck_assert_msg(isfinite(seen.lse[j]), "%s, token %zu: log sum %zu is %g",
                                      dci_kv_preset_name(preset), t, j, (double)seen.lse[j]);
                kv_seen_free(&seen);
        }
        kv_end(kv, &data);
}
END_TEST

/* One query head's ranking is that of its scores, however far they lie apart: exponentials of most of them would be zeros. Loops over
 * kinds. */
START_TEST(a_lone_query_head_ranks_by_its_scores)
{
        static const struct {
                int32_t preset, tail;
        } kinds[] = {{DCI_KV_TOPK, 0},          {DCI_KV_SKETCH, 0},      {DCI_KV_SKETCH_VERIFY, DCI_KV_TAIL_DROP},
                     {DCI_KV_SKETCH_VERIFY, 0}, {DCI_KV_PAGEMEAN, 0},    {DCI_KV_CLUSTERKV, 0},
                     {DCI_KV_RETROINFER, 0},    {DCI_KV_SKETCH_SUMS, 0}, {DCI_KV_SKETCH_LOWBIT, 0}};
        static const float scales[] = {1e-3f, 1.0f, 100.0f};
        for (size_t s = 0; s < COUNT(scales); s++) {
                dci_kv_config config = kv_small(kinds[_i].preset), mean;
                config.n_query_heads = config.n_kv_heads;
                if (kinds[_i].tail != 0)
                        config.tail = kinds[_i].tail;
                mean = config;
                config.combine = DCI_KV_COMBINE_SOFTMAX;
                mean.combine = DCI_KV_COMBINE_MEAN;
                kv_data data = kv_random(&config, N, 97);
                for (size_t i = 0; i < data.n * data.n_layers * data.n_kv_heads * data.dim_k; i++)
                        data.queries[i] *= scales[s];
                kv_data_store(&data);
                dci_kv *one = kv_create(context, &config), *other = kv_create(context, &mean);
                kv_alike(one, kv_begin(one, &data, PROMPT), other, kv_begin(other, &data, PROMPT), &data, PROMPT,
                         N - PROMPT, dci_kv_preset_name(kinds[_i].preset));
                dci_kv_destroy(one);
                kv_end(other, &data);
        }
}
END_TEST

START_TEST(rows_that_are_too_long_are_refused)
{
        dci_kv_config config = kv_small(DCI_KV_SKETCH);
        config.dtype = DCI_F32;
        dci_kv *kv = kv_create(context, &config);
        float keys[2 * 16] = {0}, values[2 * 16] = {0};
        const int64_t sequence = kv_open(kv);
        dci_kv_rows rows;
        ck_ok(dci_kv_rows_init(&rows, sizeof rows));
        rows.keys = keys;
        rows.values = values;
        ck_ok(dci_kv_reserve(kv, 1, &sequence, NULL));
        keys[16 + 3] = FLT_MAX;
        ck_refused(dci_kv_append(kv, 0, 1, &sequence, NULL, &rows), DCI_ERR_NUMBER, "token 0");
        says("key of kv head 1");
        keys[16 + 3] = 0.0f;
        values[3] = FLT_MAX;
        ck_refused(dci_kv_append(kv, 0, 1, &sequence, NULL, &rows), DCI_ERR_NUMBER, "value of kv head 0");
        values[3] = 0.0f;
        ck_ok(dci_kv_append(kv, 0, 1, &sequence, NULL, &rows));
        dci_kv_destroy(kv);
}
END_TEST

/* Two keys that are each other's opposites, at any scale and of any length: what attention should be, or it is refused. */
START_TEST(scores_are_numbers_at_any_scale)
{
        static const double scales[] = {1e-45, 1e-38, 0.25, 1.0, 4.0, 1e10, 3e38};
        static const float sizes[] = {0.0f, 1e-20f, 1.0f, 3e9f, 1.5e19f};
        size_t refused = 0;
        for (size_t i = 0; i < COUNT(scales) * COUNT(sizes) * COUNT(sizes); i++) {
                const float size = sizes[i % COUNT(sizes)], asked = sizes[i / COUNT(sizes) % COUNT(sizes)];
                dci_kv_config config = kv_config(DCI_KV_FULL, 1, 1, 1, 8);
                config.dtype = DCI_F32;
                config.scale = scales[i / COUNT(sizes) / COUNT(sizes)];
                dci_kv *kv = kv_create(context, &config);
                const int64_t sequence = kv_open(kv);
                const size_t two = 2;
                float keys[16] = {size}, values[16] = {1.0f}, query[8] = {asked}, out[8], lse;
                keys[8] = -size;
                dci_kv_rows rows;
                ck_ok(dci_kv_rows_init(&rows, sizeof rows));
                rows.keys = keys;
                rows.values = values;
                ck_ok(dci_kv_reserve(kv, 1, &sequence, &two));
                ck_ok(dci_kv_append(kv, 0, 1, &sequence, &two, &rows));
                const dci_status status = dci_kv_attend(kv, 0, 1, &sequence, query, 8, NULL, out, 8, &lse);
                const double logit = (double)size * (double)asked * config.scale;
                ck_assert(status == DCI_OK || (status == DCI_ERR_NUMBER && (double)asked * config.scale > 1e15));
                refused += status != DCI_OK;
                if (status == DCI_OK) {
                        ck_assert(fabs((double)out[0] - 1.0 / (1.0 + exp(-2.0 * logit))) < 1e-5);
                        ck_assert(isfinite(lse));
                        ck_assert(fabs((double)lse - logit - log1p(exp(-2.0 * logit))) <= 1e-5 * (1.0 + logit));
                }
                dci_kv_destroy(kv);
        }
        ck_assert_uint_gt(refused, 0);
}
END_TEST

/* Half as long again as their centre may be from the origin, so that the square of what is between them overflows. */
START_TEST(values_as_long_as_they_may_be_have_a_tail_of_numbers)
{
        dci_kv_config config = kv_small(DCI_KV_LOWBIT);
        config.dtype = DCI_F32;
        kv_data data = kv_random(&config, PROMPT + 1, 95);
        for (size_t i = 0; i < data.n * data.n_layers * data.n_kv_heads; i++)
                data.values[i * data.dim_v] = i % 5 == 0 ? -1.8e19f : 1.8e19f;
        kv_data_store(&data);
        dci_kv *kv = kv_create(context, &config);
        const kv_turn turn = {kv_begin(kv, &data, PROMPT), &data, PROMPT, 1};
        kv_seen seen = kv_decode(kv, 1, &turn);
        for (size_t layer = 0; layer < config.n_layers; layer++)
                for (size_t h = 0; h < config.n_query_heads; h++)
                        for (size_t j = 0; j < data.dim_v; j++)
                                ck_assert_msg(isfinite(kv_out(&seen, layer, 0, h)[j]), "layer %zu, head %zu: %g", layer,
                                              h, (double)kv_out(&seen, layer, 0, h)[j]);
        kv_seen_free(&seen);
        kv_end(kv, &data);
}
END_TEST

/* A query of zeros has no direction: it stays where its like was, and turns from any other. */
START_TEST(queries_of_zeros_turn_from_all_but_their_like)
{
        enum { DIM = 24 };
        const float zeros[DIM] = {0}, some[DIM] = {[3] = 2.0f, [23] = -1.0f};
        const dci_kernels *kernels = context->kernels;
        ck_assert(dci_kv_query_similarity(kernels, zeros, zeros, 1, DIM) == 1.0);
        ck_assert(dci_kv_query_similarity(kernels, zeros, some, 1, DIM) == 0.0 &&
                  dci_kv_query_similarity(kernels, some, zeros, 1, DIM) == 0.0);
        ck_assert(dci_kv_query_similarity(kernels, some, some, 1, DIM) == 1.0);
        float both[2 * DIM] = {0}, before[2 * DIM] = {0};
        memcpy(both, some, sizeof some);
        memcpy(before, some, sizeof some);
        before[DIM] = 1.0f;
        ck_assert(dci_kv_query_similarity(kernels, both, before, 2, DIM) == 0.5);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("kv numbers");
        TCase *numbers = test_case_with(suite, "numbers", 60, context_open_2, context_close);
        tcase_add_loop_test(numbers, bad_keys_and_values_are_named_and_refused, 0, 9);
        tcase_add_test(numbers, bad_rows_in_place_are_refused);
        tcase_add_loop_test(numbers, bad_queries_are_named_and_refused, 0, KV_N_KINDS);
        tcase_add_loop_test(numbers, bad_observed_queries_are_named_and_refused, 0, 2);
        tcase_add_loop_test(numbers, extreme_rows_give_numbers, 0, KV_N_KINDS + 1);
        tcase_add_loop_test(numbers, the_longest_rows_give_numbers, 0, KV_N_KINDS + 1);
        tcase_add_loop_test(numbers, a_lone_query_head_ranks_by_its_scores, 0, 9);
        tcase_add_test(numbers, rows_that_are_too_long_are_refused);
        tcase_add_test(numbers, scores_are_numbers_at_any_scale);
        tcase_add_test(numbers, values_as_long_as_they_may_be_have_a_tail_of_numbers);
        tcase_add_test(numbers, queries_of_zeros_turn_from_all_but_their_like);
        return test_main(suite);
}
