/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The KV cache: `preselect`, groups first by their means and then their tokens by codes, against a naive choice in two stages. */
#include "tests/common.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "simd/kernels.h"
#include "tests/context_fixture.h"
#include "tests/kv_model.h"
#include "tests/scratch.h"

enum { TOKENS = 4000, STEPS = 8, PROMPT = TOKENS - STEPS, UNIT = 16, HEADS = 2, GROUP = 3 };

static dci_kv_config trace_config(double preselect, size_t preselect_tokens)
{
        dci_kv_config config = kv_config(DCI_KV_SKETCH_GROUPS, 1, HEADS, GROUP, TRACE_DIM);
        config.preselect = preselect;
        config.preselect_tokens = preselect_tokens;
        return config;
}

/* --- enough is everything ------------------------------------------------------------------------------------------------------- */

static const struct {
        int32_t summary, tail, combine, schedule;
        double verify;
} with[] = {{0, 0, 0, 0, 0.0},
            {DCI_KV_SUMMARY_LEARNED, 0, 0, 0, 0.0},
            {0, DCI_KV_TAIL_SUMS, 0, 0, 0.0},
            {0, 0, DCI_KV_COMBINE_MEAN, 0, 0.0},
            {0, 0, 0, DCI_KV_AHEAD, 2.0}};

/* Loops over what it goes with. 64 times the room is more than there is. */
START_TEST(enough_groups_are_all_of_them)
{
        dci_kv_config config = kv_small(DCI_KV_SKETCH_GROUPS), plain;
        config.summary = with[_i].summary;
        config.tail = with[_i].tail;
        config.combine = with[_i].combine;
        config.schedule = with[_i].schedule;
        config.verify = with[_i].verify;
        config.preselect = 64.0;
        plain = config;
        plain.preset = DCI_KV_SKETCH;
        plain.preselect = 1.0;
        kv_data data = kv_random(&config, 700, 31);
        dci_kv *one = kv_create(context, &config), *other = kv_create(context, &plain);
        kv_alike(one, kv_begin(one, &data, 600), other, kv_begin(other, &data, 600), &data, 600, 60, "all groups");
        ck_assert_double_gt(kv_info(one).resident_token_bytes, kv_info(other).resident_token_bytes);
        dci_kv_destroy(one);
        kv_end(other, &data);
}
END_TEST

/* --- the naive choice ------------------------------------------------------------------------------------------------------------ */

/* One head's question at one step: candidates [first, first + n) of the data. */
typedef struct question {
        const kv_data *data;
        size_t head, token, first, n;
} question;

static const float *query_of(const question *a, size_t q)
{
        return kv_query(a->data, 0, a->token, a->head * GROUP + q);
}

/* The logit of the mean key of candidates [from, from + n). */
static double mean_logit(const question *a, size_t q, size_t from, size_t n)
{
        double sum = 0.0;
        for (size_t t = 0; t < n; t++)
                for (size_t j = 0; j < TRACE_DIM; j++)
                        sum += (double)query_of(a, q)[j] * (double)kv_key(a->data, 0, a->first + from + t, a->head)[j];
        return sum / (double)n / sqrt((double)TRACE_DIM);
}

/* By unit, the sum over the query heads of the softmax of means of `per` candidates. */
static void weigh_units(const question *a, size_t per, double *weights)
{
        static double terms[TOKENS];
        memset(weights, 0, (a->n + UNIT - 1) / UNIT * sizeof *weights);
        for (size_t q = 0; q < GROUP; q++) {
                double sum = 0.0, most = -(double)INFINITY;
                for (size_t g = 0; g * per < a->n; g++) {
                        terms[g] = mean_logit(a, q, g * per, a->n - g * per < per ? a->n - g * per : per);
                        most = fmax(most, terms[g]);
                }
                for (size_t g = 0; g * per < a->n; g++)
                        sum += terms[g] = exp(terms[g] - most);
                for (size_t g = 0; g * per < a->n; g++)
                        weights[g * per / UNIT] += terms[g] / sum;
        }
}

/* By candidate, what it counts among those of the units marked and the tokens that are attended to anyway. */
static void weigh_tokens(const question *a, const bool *marked, double *weights)
{
        static double terms[TOKENS];
        memset(weights, 0, a->n * sizeof *weights);
        for (size_t q = 0; q < GROUP; q++) {
                double sum = 0.0, most = -(double)INFINITY;
                for (size_t t = 0; t <= a->token; t++) {
                        const question at = {a->data, a->head, a->token, t, 1};
                        terms[t] = mean_logit(&at, q, 0, 1);
                        most = fmax(most, terms[t]);
                }
                for (size_t t = 0; t <= a->token; t++) {
                        const bool kept = t < a->first || t >= a->first + a->n;
                        terms[t] = exp(terms[t] - most);
                        sum += kept || marked[(t - a->first) / UNIT] ? terms[t] : 0.0;
                }
                for (size_t t = 0; t < a->n; t++)
                        weights[t] += marked[t / UNIT] ? terms[a->first + t] / sum : 0.0;
        }
}

/* Codes of eight bits leave weights of means as they are within a few percent; of tokens, whose logits are larger, within a quarter. Where keys
 * decide, what a query head counts is still from codes. */
#define UNIT_SLACK 0.1

/* A list against the naive choice of `wanted` units by their means, and of tokens in them. */
static void check_list(const question *a, size_t per, size_t wanted, const int32_t *list, size_t n_list, double slack)
{
        static double units[TOKENS], sorted[TOKENS], tokens[TOKENS];
        bool marked[TOKENS / UNIT + 1] = {false}, listed[TOKENS] = {false};
        const size_t n_units = (a->n + UNIT - 1) / UNIT;
        size_t n_seen = 0;
        weigh_units(a, per, units);
        memcpy(sorted, units, n_units * sizeof *units);
        qsort(sorted, n_units, sizeof *sorted, test_doubles_descend);
        ck_assert_uint_lt(wanted, n_units);
        for (size_t u = 0; u < n_units; u++)
                marked[u] = units[u] >= sorted[wanted - 1];
        weigh_tokens(a, marked, tokens);
        double least = (double)INFINITY;
        for (size_t i = 0; i < n_list; i++) {
                const size_t t = (size_t)list[i] - a->first, u = t / UNIT;
                test_hold(t < a->n && units[u] >= sorted[wanted - 1] * (1.0 - UNIT_SLACK));
                n_seen += i == 0 || u != ((size_t)list[i - 1] - a->first) / UNIT;
                listed[t] = true;
                if (marked[u])
                        least = fmin(least, tokens[t]);
        }
        test_hold(n_seen <= wanted);
        for (size_t t = 0; t < a->n; t++)
                if (!listed[t] && units[t / UNIT] > sorted[wanted - 1] * (1.0 + UNIT_SLACK) &&
                    tokens[t] > least * (1.0 + slack))
                        ck_abort_msg("candidate %zu of %zu weighs %.9g, and is not in the list, the least of which "
                                     "weighs %.9g",
                                     t, a->n, tokens[t], least);
}

static const struct {
        size_t per;
        double preselect, verify, slack;
        int32_t frozen;
} naive[] = {{4, 2.0, 0.0, 0.25, 0},  {8, 4.0, 0.0, 0.25, 0},  {16, 3.0, 0.0, 0.25, 0},
             {8, 2.5, 64.0, 0.05, 0}, {8, 4.0, 64.0, 0.05, 1}, {4, 4.0, 0.0, 0.25, 1}};

/* Loops over sizes of groups; with keys that decide in the end; and with a prompt whose last unit is not full. */
START_TEST(lists_are_a_naive_choice_in_two_stages)
{
        dci_kv_config config = trace_config(naive[_i].preselect, naive[_i].per);
        config.key_bits = 8;
        config.verify = naive[_i].verify;
        config.frozen_prompt = naive[_i].frozen;
        kv_data data = kv_trace(&config, TOKENS);
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, PROMPT - 5);
        const size_t room = config.budget - 80;
        kv_decode_all(kv, sequence, &data, PROMPT - 5, 5);
        for (size_t t = PROMPT; t < TOKENS; t++) {
                kv_seen seen = kv_decode(kv, 1, &(kv_turn){sequence, &data, t, 1});
                for (size_t h = 0; h < HEADS; h++) {
                        size_t n;
                        const int32_t *list = kv_list(&seen, 0, 0, h, &n);
                        const size_t first = (size_t)seen.plans[0].sink_end[0];
                        const question a = {&data, h, t, first, (size_t)seen.plans[0].recent_begin[0] - first};
                        ck_assert_uint_gt(n, 100);
                        ck_assert(naive[_i].frozen == 0 || a.n % UNIT != 0);
                        check_list(&a, naive[_i].per, (size_t)ceil(naive[_i].preselect * (double)room / UNIT), list, n,
                                   naive[_i].slack);
                }
                kv_seen_free(&seen);
        }
        kv_end(kv, &data);
}
END_TEST

/* --- what it costs -------------------------------------------------------------------------------------------------------------- */

static double error_with(const dci_kv_config *config)
{
        kv_data data = kv_trace(config, TOKENS);
        kv_model model = kv_model_of(config, &data, PROMPT);
        dci_kv *kv = kv_create(context, config);
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        double sum = 0.0;
        for (size_t t = PROMPT; t < TOKENS; t++) {
                kv_seen seen = kv_decode(kv, 1, &(kv_turn){sequence, &data, t, 1});
                kv_model_append(&model, &data, t, 1);
                sum += kv_model_error(&model, &seen, 0, 0, kv_query(&data, 0, t, 0));
                kv_seen_free(&seen);
        }
        kv_model_free(&model);
        kv_end(kv, &data);
        return sum / STEPS;
}

START_TEST(more_groups_err_less)
{
        static const double preselects[] = {1.5, 3.0, 6.0, 12.0};
        double before = (double)INFINITY;
        for (size_t i = 0; i < COUNT(preselects); i++) {
                const dci_kv_config config = trace_config(preselects[i], 8);
                const double error = error_with(&config);
                ck_assert_msg(error < before, "%g times: outputs err by %g, with fewer groups by %g", preselects[i],
                              error, before);
                before = error;
        }
        const dci_kv_config all = trace_config(1.0, 8);
        const double least = error_with(&all);
        ck_assert_msg(before < 1.1 * least, "half of the tokens: %g, all: %g", before, least);
}
END_TEST

/* Keys that grow and move, until their codes are made again: their groups' means are, too, as a loaded file shows, whose means
 * are made from its rows. */
START_TEST(means_follow_the_frame)
{
        enum { LENGTH = 2800, BEGIN = 300 };
        dci_kv_config config = kv_small(DCI_KV_SKETCH_GROUPS);
        kv_data data = kv_random(&config, LENGTH + 40, 78);
        const size_t n_keys = (size_t)2 * (LENGTH + 40) * 2 * 16;
        for (size_t i = 0; i < n_keys; i++)
                if (i / 32 % (LENGTH + 40) >= BEGIN)
                        data.keys[i] = 3.0f * data.keys[i] + (i % 2 == 0 ? 9.0f : -9.0f);
        dci_kernels_scalar.narrow[data.dtype - 1](data.keys, n_keys, data.stored_keys);
        dci_kernels_scalar.to_f32[data.dtype - 1](data.stored_keys, n_keys, data.keys);
        dci_kv *kv = kv_create(context, &config), *other = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, BEGIN);
        kv_decode_all(kv, sequence, &data, BEGIN, LENGTH - BEGIN);
        ck_assert_int_gt(kv_sequence_info(kv, sequence).refits, 0);
        int64_t loaded;
        ck_ok(dci_kv_save(kv, sequence, LENGTH, scratch_path("drifted")));
        ck_ok(dci_kv_load(other, scratch_path("drifted"), &loaded));
        kv_alike(kv, sequence, other, loaded, &data, LENGTH, 40, "means that were rebuilt");
        dci_kv_destroy(kv);
        kv_end(other, &data);
}
END_TEST

/* Sixteens are scored, of which the last one may have few tokens: no reason for a list shorter than the budget allows. */
START_TEST(lists_are_full_whatever_the_last_groups_hold)
{
        dci_kv_config config = kv_small(DCI_KV_SKETCH_GROUPS);
        config.budget = 95; /* 63 of them to choose: four sixteens, one token more than that */
        config.preselect = 1.0 + 0x1p-20;
        config.preselect_least = 1;
        kv_data data = kv_random(&config, 260, 77);
        for (size_t prompt = 140; prompt < 140 + 6 * UNIT; prompt++) {
                dci_kv *kv = kv_create(context, &config);
                const kv_turn turn = {kv_begin(kv, &data, prompt), &data, prompt, 1};
                kv_seen seen = kv_decode(kv, 1, &turn);
                for (size_t layer = 0; layer < config.n_layers; layer++)
                        for (size_t h = 0; h < config.n_kv_heads; h++) {
                                const dci_kv_plan *plan = &seen.plans[layer];
                                const int32_t kept = plan->sink_end[0] + plan->n_tokens[0] - plan->recent_begin[0];
                                if (plan->counts[h] + kept != (int32_t)config.budget)
                                        ck_abort_msg("prompt %zu, layer %zu, head %zu: %d + %d tokens, budget %zu",
                                                     prompt, layer, h, (int)plan->counts[h], (int)kept, config.budget);
                        }
                kv_seen_free(&seen);
                dci_kv_destroy(kv);
        }
        kv_data_free(&data);
}
END_TEST

/* Long keys: but for a few, groups count nothing, and so are equal, more of them than the selection has room for. If the last sixteen of
 * all is among the best, its rows after the candidates are none, wherever it ranks. */
START_TEST(groups_that_count_nothing_add_no_rows)
{
        enum { N = 400, BEGIN = 140 };
        static const float sizes[] = {30.0f, 1e3f, 1e8f};
        dci_kv_config config = kv_small(DCI_KV_SKETCH_GROUPS);
        config.dtype = DCI_F32;
        config.preselect_least = 1;
        for (size_t s = 0; s < COUNT(sizes); s++) {
                kv_data data = kv_random(&config, N, 93);
                for (size_t j = 0; j < (size_t)2 * N * 2 * 16; j++)
                        ((float *)data.stored_keys)[j] *= sizes[s];
                dci_kv *kv = kv_create(context, &config);
                const int64_t sequence = kv_begin(kv, &data, BEGIN);
                for (size_t t = BEGIN; t + 5 <= N; t += 5) {
                        kv_seen seen = kv_decode(kv, 1, &(kv_turn){sequence, &data, t, 5});
                        kv_lawful(&seen, &config, 0, "long keys");
                        kv_seen_free(&seen);
                }
                kv_end(kv, &data);
        }
}
END_TEST

/* Keys as long as they may be, eight of one direction and eight of the other, and queries like them: what codes, whose scales are rounded, say
 * of their means overflows. Means say nothing then, and lists are those of a scan of all codes. By a softmax they would be empty, wherever
 * scores come from. */
START_TEST(scores_that_overflow_read_all_codes)
{
        enum { N = 200, BEGIN = 190 };
        const float longest = 0.9999f * sqrtf(FLT_MAX);
        dci_kv_config config = kv_small(DCI_KV_SKETCH_GROUPS), plain;
        config.dtype = DCI_F32;
        config.scale = 1.0;
        config.combine = DCI_KV_COMBINE_MEAN;
        config.preselect_least = 1;
        plain = config;
        plain.preselect = 1.0;
        kv_data data = kv_random(&config, N, 34);
        for (size_t i = 0; i < data.n * data.n_layers * data.n_kv_heads * data.dim_k; i++) {
                const size_t token = i / data.dim_k / data.n_kv_heads % data.n;
                const float noise = 1e-4f * data.keys[i];
                data.keys[i] = i % data.dim_k == 0 ? (token / 8 % 2 == 0 ? -longest : longest) : noise * longest;
        }
        for (size_t i = 0; i < data.n * data.n_layers * data.n_kv_heads * data.group * data.dim_k; i++)
                data.queries[i] = i % data.dim_k == 0 ? longest : 0.0f;
        kv_data_store(&data);
        dci_kv *kv = kv_create(context, &config), *other = kv_create(context, &plain);
        const int64_t one = kv_begin(kv, &data, BEGIN), two = kv_begin(other, &data, BEGIN);
        for (size_t t = BEGIN; t < N; t++) {
                kv_seen seen = kv_decode(kv, 1, &(kv_turn){one, &data, t, 1});
                kv_seen wanted = kv_decode(other, 1, &(kv_turn){two, &data, t, 1});
                for (size_t layer = 0; layer < config.n_layers; layer++)
                        for (size_t h = 0; h < config.n_kv_heads; h++) {
                                const dci_kv_plan *a = &seen.plans[layer], *b = &wanted.plans[layer];
                                ck_assert_int_eq(a->counts[h], b->counts[h]);
                                ck_assert_mem_eq(a->positions + h * a->stride, b->positions + h * b->stride,
                                                 (size_t)a->counts[h] * sizeof *a->positions);
                        }
                kv_seen_free(&seen);
                kv_seen_free(&wanted);
        }
        dci_kv_destroy(kv);
        kv_end(other, &data);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("kv groups");
        TCase *groups = test_case_with(suite, "groups", 60, context_open_2, context_close);
        tcase_add_checked_fixture(groups, scratch_open, scratch_close);
        tcase_add_loop_test(groups, enough_groups_are_all_of_them, 0, COUNT(with));
        tcase_add_loop_test(groups, lists_are_a_naive_choice_in_two_stages, 0, COUNT(naive));
        tcase_add_test(groups, lists_are_full_whatever_the_last_groups_hold);
        tcase_add_test(groups, groups_that_count_nothing_add_no_rows);
        tcase_add_test(groups, scores_that_overflow_read_all_codes);
        tcase_add_test(groups, more_groups_err_less);
        tcase_add_test(groups, means_follow_the_frame);
        return test_main(suite);
}
