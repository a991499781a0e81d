/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The KV cache: how near codes come to keys, what tails give back of what is left out, and codes that are made again. */
#include "tests/common.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "simd/kernels.h"
#include "tests/context_fixture.h"
#include "tests/kv_model.h"

enum { TOKENS = 4000, STEPS = 24, PROMPT = TOKENS - STEPS };

/* Two heads of the trace: three query heads each. */
static dci_kv_config trace_config(int32_t preset)
{
        return kv_config(preset, 1, 2, 3, TRACE_DIM);
}

/* What the decode steps at the end of the trace saw. */
typedef struct story {
        dci_kv_config config;
        dci_kv *kv;
        kv_data data;
        kv_seen steps[STEPS];
} story;

static story tell(const dci_kv_config *config)
{
        story s = {.config = *config, .kv = kv_create(context, config), .data = kv_trace(config, TOKENS)};
        const int64_t sequence = kv_begin(s.kv, &s.data, PROMPT);
        for (size_t t = 0; t < STEPS; t++) {
                s.steps[t] = kv_decode(s.kv, 1, &(kv_turn){sequence, &s.data, PROMPT + t, 1});
                kv_lawful(&s.steps[t], config, 0, dci_kv_preset_name(config->preset));
        }
        return s;
}

static void forget(story *s)
{
        for (size_t t = 0; t < STEPS; t++)
                kv_seen_free(&s->steps[t]);
        kv_end(s->kv, &s->data);
}

/* How many of two ascending lists are in both. */
static size_t common_of(const int32_t *x, size_t n, const int32_t *y, size_t m)
{
        size_t common = 0;
        for (size_t i = 0, j = 0; i < n && j < m;) {
                const bool both = x[i] == y[j], less = x[i] < y[j];
                common += both;
                i += both || less;
                j += both || !less;
        }
        return common;
}

/* The share of one story's lists that is in the other's. */
static double overlap(const story *a, const story *b)
{
        size_t common = 0, all = 0;
        for (size_t t = 0; t < STEPS; t++)
                for (size_t h = 0; h < 2; h++) {
                        size_t n, m;
                        const int32_t *x = kv_list(&a->steps[t], 0, 0, h, &n), *y = kv_list(&b->steps[t], 0, 0, h, &m);
                        all += n;
                        common += common_of(x, n, y, m);
                }
        ck_assert_uint_gt(all, 0);
        return (double)common / (double)all;
}

/* Mean relative error of outputs. */
static double error_of(const story *s)
{
        kv_model model = kv_model_of(&s->config, &s->data, PROMPT);
        double sum = 0.0;
        for (size_t t = 0; t < STEPS; t++) {
                kv_model_append(&model, &s->data, PROMPT + t, 1);
                sum += kv_model_error(&model, &s->steps[t], 0, 0, kv_query(&s->data, 0, PROMPT + t, 0));
        }
        kv_model_free(&model);
        return sum / STEPS;
}

/* The same of a config, from the beginning to the end. */
static double error_with(const dci_kv_config *config)
{
        story s = tell(config);
        const double error = error_of(&s);
        forget(&s);
        return error;
}

/* --- codes -------------------------------------------------------------------------------------------------------------------- */

static double found_with(int32_t bits, int32_t summary, const story *best)
{
        dci_kv_config config = trace_config(DCI_KV_SKETCH);
        config.key_bits = bits;
        config.summary = summary;
        story s = tell(&config);
        const double found = overlap(&s, best);
        forget(&s);
        return found;
}

/* Groups are formed after the rollback, so candidates are the same for both: topk's last 64 and sketch's are not quite. */
START_TEST(more_bits_find_more_of_the_best_tokens)
{
        static const int32_t bits[] = {1, 2, 3, 4, 8};
        const dci_kv_config config = trace_config(DCI_KV_TOPK);
        story best = tell(&config);
        double last = 0.0;
        for (size_t i = 0; i < COUNT(bits); i++) {
                const double found = found_with(bits[i], DCI_KV_SUMMARY_CODES, &best);
                ck_assert_msg(found > last - 0.01, "%d bits find %.3f, fewer found %.3f", bits[i], found, last);
                last = found;
        }
        ck_assert_msg(last > 0.95, "8 bits find %.3f", last);
        forget(&best);
}
END_TEST

START_TEST(learned_codes_find_more_at_few_bits)
{
        const dci_kv_config config = trace_config(DCI_KV_TOPK);
        story best = tell(&config);
        for (int32_t bits = 1; bits <= 2; bits++) {
                const double random = found_with(bits, DCI_KV_SUMMARY_CODES, &best),
                             learned = found_with(bits, DCI_KV_SUMMARY_LEARNED, &best);
                ck_assert_msg(learned > random, "%d bits: learned %.3f, random %.3f", bits, learned, random);
        }
        forget(&best);
}
END_TEST

/* What a kv head's queries say of a token on average, where only the order counts. */
static double mean_score(const story *s, size_t t, size_t head, size_t token)
{
        const float *key = kv_key(&s->data, 0, token, head);
        double sum = 0.0;
        for (size_t q = 0; q < 3; q++)
                for (size_t j = 0; j < TRACE_DIM; j++)
                        sum += (double)kv_query(&s->data, 0, PROMPT + t, head * 3 + q)[j] * (double)key[j];
        return sum;
}

/* One bit per coordinate ranks badly, but where all candidates are verified that is nothing to the list. */
START_TEST(verified_lists_are_those_of_the_keys)
{
        dci_kv_config config = trace_config(DCI_KV_SKETCH);
        config.key_bits = 1;
        config.combine = DCI_KV_COMBINE_MEAN;
        config.verify = 64.0;
        story s = tell(&config);
        double scores[TOKENS] = {0.0};
        for (size_t t = 0; t < STEPS; t++)
                for (size_t h = 0; h < 2; h++) {
                        const size_t first = (size_t)s.steps[t].plans[0].sink_end[0],
                                     end = (size_t)s.steps[t].plans[0].recent_begin[0];
                        size_t n;
                        const int32_t *list = kv_list(&s.steps[t], 0, 0, h, &n);
                        for (size_t c = first; c < end; c++)
                                scores[c - first] = mean_score(&s, t, h, c);
                        qsort(scores, end - first, sizeof *scores, test_doubles_descend);
                        ck_assert_uint_gt(n, 100);
                        for (size_t i = 0; i < n; i++)
                                test_hold(mean_score(&s, t, h, (size_t)list[i]) >=
                                          scores[n - 1] - 1e-3 * (1.0 + fabs(scores[n - 1])));
                }
        forget(&s);
}
END_TEST

/* Loops over random and learned codes of two bits: with a tail of codes, whose terms are then those of the keys. */
START_TEST(verifying_makes_outputs_better)
{
        dci_kv_config config = trace_config(DCI_KV_SKETCH_LOWBIT);
        config.key_bits = 2;
        config.summary = _i == 0 ? DCI_KV_SUMMARY_CODES : DCI_KV_SUMMARY_LEARNED;
        const double before = error_with(&config);
        config.verify = 4.0;
        const double after = error_with(&config);
        ck_assert_msg(after < 0.9 * before, "verified %g, else %g", after, before);
}
END_TEST

/* The latest tokens exact, the others by codes of eight bits: hardly an error. */
START_TEST(codes_go_with_the_latest_tokens)
{
        dci_kv_config config = trace_config(DCI_KV_LOWBIT);
        config.select = DCI_KV_SELECT_RECENT;
        config.key_bits = config.value_bits = 8;
        const double error = error_with(&config);
        ck_assert_msg(error < 0.02, "outputs err by %g", error);
}
END_TEST

/* Loops over dims: units of codes that are not full. */
START_TEST(codes_of_any_dimension_find_the_best_tokens)
{
        static const size_t dims[] = {1, 7, 9, 33, 100, 256};
        dci_kv_config exact = kv_config(DCI_KV_TOPK, 1, 2, 3, dims[_i]),
                      coded = kv_config(DCI_KV_SKETCH, 1, 2, 3, dims[_i]);
        coded.key_bits = 8;
        kv_data data = kv_random(&exact, 1540, 144);
        dci_kv *best = kv_create(context, &exact), *codes = kv_create(context, &coded);
        const int64_t one = kv_begin(best, &data, 1500), other = kv_begin(codes, &data, 1500);
        size_t common = 0, all = 0;
        for (size_t t = 1500; t < 1540; t += 10) {
                kv_seen a = kv_decode(best, 1, &(kv_turn){one, &data, t, 10}),
                        b = kv_decode(codes, 1, &(kv_turn){other, &data, t, 10});
                for (size_t h = 0; h < 2; h++) {
                        size_t n, m;
                        const int32_t *x = kv_list(&a, 0, 0, h, &n), *y = kv_list(&b, 0, 0, h, &m);
                        all += m;
                        common += common_of(x, n, y, m);
                }
                kv_seen_free(&a);
                kv_seen_free(&b);
        }
        ck_assert_msg((double)common >= 0.9 * (double)all, "%zu of %zu are among the best", common, all);
        dci_kv_destroy(best);
        kv_end(codes, &data);
}
END_TEST

/* --- what is kept --------------------------------------------------------------------------------------------------------------- */

/* The share of the softmax over everything that a plan attends to exactly; one query head per kv head. */
static double kept_with(int32_t preset)
{
        dci_kv_config config = kv_config(preset, 1, 2, 1, TRACE_DIM);
        config.sink = 16; /* all choose among the same tokens */
        story s = tell(&config);
        kv_model model = kv_model_of(&config, &s.data, PROMPT);
        double out[TRACE_DIM], all, part, kept = 0.0;
        for (size_t t = 0; t < STEPS; t++) {
                kv_model_append(&model, &s.data, PROMPT + t, 1);
                const dci_kv_plan *plan = &s.steps[t].plans[0];
                for (size_t h = 0; h < 2; h++) {
                        const float *query = kv_query(&s.data, 0, PROMPT + t, h);
                        int32_t tokens[512];
                        size_t n, n_list;
                        const int32_t *list = kv_list(&s.steps[t], 0, 0, h, &n_list);
                        for (n = 0; n < (size_t)plan->sink_end[0]; n++)
                                tokens[n] = (int32_t)n;
                        for (size_t i = 0; i < n_list; i++)
                                tokens[n++] = list[i];
                        for (int32_t p = plan->recent_begin[0]; p < plan->n_tokens[0]; p++)
                                tokens[n++] = p;
                        kv_model_attend(&model, 0, h, query, n, tokens, out, &part);
                        kv_model_attend(&model, 0, h, query, model.n, NULL, out, &all);
                        kept += exp(part - all) / (2.0 * STEPS);
                }
        }
        kv_model_free(&model);
        forget(&s);
        return kept;
}

START_TEST(nothing_keeps_more_than_topk)
{
        const double best = kept_with(DCI_KV_TOPK);
        for (size_t i = 0; i < KV_N_PRESETS; i++)
                if (kv_presets[i] != DCI_KV_FULL && kv_presets[i] != DCI_KV_TOPK) {
                        const double kept = kept_with(kv_presets[i]);
                        ck_assert_msg(kept <= best + 1e-6, "%s keeps %.6f, topk %.6f",
                                      dci_kv_preset_name(kv_presets[i]), kept, best);
                        ck_assert_msg(kept > 0.05, "%s keeps %.6f", dci_kv_preset_name(kv_presets[i]), kept);
                }
}
END_TEST

/* Loops over presets. */
START_TEST(a_larger_budget_errs_less)
{
        dci_kv_config config = trace_config(kv_presets[_i]);
        config.budget = 160;
        const double small = error_with(&config);
        config.budget = 1600;
        const double large = error_with(&config);
        ck_assert_msg(large <= small * 1.02, "%s: error %.4f with 1600 tokens, %.4f with 160",
                      dci_kv_preset_name(kv_presets[_i]), large, small);
}
END_TEST

/* --- tails -------------------------------------------------------------------------------------------------------------------- */

START_TEST(tails_err_less_than_dropping)
{
        dci_kv_config config = trace_config(DCI_KV_SKETCH);
        const double dropped = error_with(&config);
        config.preset = DCI_KV_SKETCH_SUMS;
        const double sums = error_with(&config);
        config.preset = DCI_KV_SKETCH_LOWBIT;
        const double lowbit = error_with(&config);
        config.value_bits = 8;
        const double fine = error_with(&config);
        ck_assert_msg(sums < dropped, "sums %.4f, dropped %.4f", sums, dropped);
        ck_assert_msg(lowbit < 0.5 * dropped, "lowbit %.4f, dropped %.4f", lowbit, dropped);
        ck_assert_msg(fine < lowbit, "8 bits of values %.4f, 2 bits %.4f", fine, lowbit);
}
END_TEST

/* Codes and exact tokens cover what the other loses. */
START_TEST(retrieval_errs_less_than_codes_alone)
{
        dci_kv_config config = trace_config(DCI_KV_LOWBIT);
        const double codes = error_with(&config);
        config.preset = DCI_KV_SKETCH_LOWBIT;
        const double both = error_with(&config);
        ck_assert_msg(both < codes, "both %.4f, codes alone %.4f", both, codes);
        config.preset = DCI_KV_LOWBIT;
        config.key_bits = config.value_bits = 8;
        const double fine = error_with(&config);
        ck_assert_msg(fine < 0.02, "8 bits %.4f", fine);
}
END_TEST

/* Attention over the tail by pages: each counts as the tokens of it that were not chosen, all at their mean key and value, or at that
 * of the whole page. */
static void sums_of(const kv_model *model, const kv_seen *seen, size_t layer, size_t head, const float *query,
                    bool whole, double *out, double *out_lse)
{
        const dci_kv_plan *plan = &seen->plans[layer];
        const size_t per_page = seen->page_tokens, of = layer * model->n_kv_heads + head;
        size_t n_list, at = 0;
        const int32_t *list = kv_list(seen, layer, 0, head, &n_list);
        double sum = 0.0;
        memset(out, 0, model->dim_v * sizeof *out);
        for (int32_t page = plan->sink_end[0]; page < plan->recent_begin[0]; page += (int32_t)per_page) {
                double score = 0.0, values[64] = {0}, n = 0.0, in_means = 0.0;
                for (int32_t t = page; t < page + (int32_t)per_page && t < plan->recent_begin[0]; t++) {
                        const bool chosen = at < n_list && list[at] == t;
                        at += chosen;
                        n += chosen ? 0.0 : 1.0;
                        if (chosen && !whole)
                                continue;
                        in_means += 1.0;
                        for (size_t j = 0; j < model->dim_k; j++)
                                score += model->scale * (double)query[j] *
                                         (double)model->keys[of][(size_t)t * model->dim_k + j];
                        for (size_t j = 0; j < model->dim_v; j++)
                                values[j] += (double)model->values[of][(size_t)t * model->dim_v + j];
                }
                if (n == 0.0)
                        continue;
                const double weight = exp(score / in_means);
                sum += n * weight;
                for (size_t j = 0; j < model->dim_v; j++)
                        out[j] += weight * values[j] * n / in_means;
        }
        for (size_t j = 0; j < model->dim_v; j++)
                out[j] /= sum;
        *out_lse = log(sum);
}

/* Stages that sums go with. */
static const struct {
        int32_t preset, select;
        size_t group, page_tokens;
        int32_t whole;
} with_sums[] = {{DCI_KV_SKETCH_SUMS, 0, 2, 8, 0},    {DCI_KV_SKETCH_SUMS, 0, 9, 16, 0},
                 {DCI_KV_PAGEMEAN, 0, 2, 8, 0},       {DCI_KV_QUEST, 0, 1, 32, 0},
                 {DCI_KV_TOPK, 0, 12, 8, 0},          {DCI_KV_STREAMING, 0, 2, 16, 0},
                 {DCI_KV_LOWBIT, 0, 2, 64, 0},        {DCI_KV_ARKVALE, DCI_KV_SELECT_NONE, 2, 8, 0},
                 {DCI_KV_SKETCH_SUMS, 0, 9, 8, 1},    {DCI_KV_PAGEMEAN, 0, 2, 8, 1},
                 {DCI_KV_SKETCH_GROUPS, 0, 3, 16, 1}, {DCI_KV_SKETCH_GROUPS, 0, 3, 8, 0}};

static void check_sums(const kv_model *model, const kv_seen *seen, const kv_data *data, size_t token, bool whole,
                       double tolerance)
{
        double wanted[64], lse;
        for (size_t layer = 0; layer < seen->n_layers; layer++)
                for (size_t h = 0; h < 2 * seen->group; h++) {
                        const dci_kv_plan *plan = &seen->plans[layer];
                        sums_of(model, seen, layer, h / seen->group, kv_query(data, layer, token, h), whole, wanted,
                                &lse);
                        ck_assert_msg(fabs((double)plan->tail_lse[h] - lse) < tolerance,
                                      "token %zu, head %zu: %.6f, wanted %.6f", token, h, (double)plan->tail_lse[h],
                                      lse);
                        for (size_t j = 0; j < 16; j++) {
                                const double got = (double)plan->tail_out[h * 16 + j];
                                ck_assert_msg(fabs(got - wanted[j]) < tolerance,
                                              "token %zu, head %zu, coordinate %zu: %.6f, "
                                              "wanted %.6f",
                                              token, h, j, got, wanted[j]);
                        }
                }
}

/* Loops over stages and formats: means are kept in that of the keys. */
START_TEST(sums_are_means_of_what_was_not_chosen)
{
        static const double tolerances[] = {1e-4, 4e-2, 3e-1};
        const size_t i = (size_t)_i / COUNT(all_dtypes), format = (size_t)_i % COUNT(all_dtypes);
        dci_kv_config config = kv_small(with_sums[i].preset);
        config.dtype = all_dtypes[format];
        config.tail = DCI_KV_TAIL_SUMS;
        config.select = with_sums[i].select;
        config.sums_whole = with_sums[i].whole;
        config.page_tokens = with_sums[i].page_tokens;
        config.n_query_heads = 2 * with_sums[i].group;
        config.budget = 100;
        kv_data data = kv_random(&config, 700, 140);
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, 670);
        kv_model model = kv_model_of(&config, &data, 670);
        for (size_t t = 670; t < 700; t++) {
                kv_seen seen = kv_decode(kv, 1, &(kv_turn){sequence, &data, t, 1});
                kv_model_append(&model, &data, t, 1);
                kv_lawful(&seen, &config, 0, "sums");
                check_sums(&model, &seen, &data, t, with_sums[i].whole != 0, tolerances[format]);
                kv_seen_free(&seen);
        }
        kv_model_free(&model);
        kv_end(kv, &data);
}
END_TEST

/* What low bits stand for: choose nothing or the best, groups of query heads, and dims that fill no unit. */
static const struct {
        int32_t preset;
        size_t group, dim_k, dim_v;
} with_lowbit[] = {{DCI_KV_LOWBIT, 2, 16, 16},        {DCI_KV_SKETCH_LOWBIT, 2, 16, 16},
                   {DCI_KV_SKETCH_LOWBIT, 9, 33, 13}, {DCI_KV_SKETCH_LOWBIT, 1, 70, 1},
                   {DCI_KV_LOWBIT, 12, 24, 40},       {DCI_KV_SKETCH_LOWBIT, 3, 9, 130}};

static void check_lowbit(const kv_model *model, const kv_seen *seen, const kv_data *data, size_t token)
{
        const dci_kv_plan *plan = &seen->plans[1];
        double wanted[130], lse;
        for (size_t h = 0; h < 2 * seen->group; h++) {
                int32_t rest[720];
                size_t n = 0, at = 0, n_list;
                const int32_t *list = kv_list(seen, 1, 0, h / seen->group, &n_list);
                for (int32_t p = plan->sink_end[0]; p < plan->recent_begin[0]; p++) {
                        if (at < n_list && list[at] == p)
                                at++;
                        else
                                rest[n++] = p;
                }
                kv_model_attend(model, 1, h, kv_query(data, 1, token, h), n, rest, wanted, &lse);
                ck_assert_msg(fabs((double)plan->tail_lse[h] - lse) < 0.08, "log sum %.6f, wanted %.6f",
                              (double)plan->tail_lse[h], lse);
                for (size_t j = 0; j < seen->dim_v; j++) {
                        const double got = (double)plan->tail_out[h * seen->dim_v + j];
                        ck_assert_msg(fabs(got - wanted[j]) < 0.08, "head %zu, coordinate %zu: %.6f, wanted %.6f", h, j,
                                      got, wanted[j]);
                }
        }
}

/* Loops over stages and shapes. Eight bits are nearly the rows. */
START_TEST(lowbit_tails_are_nearly_attention_to_what_was_not_chosen)
{
        dci_kv_config config = kv_small(with_lowbit[_i].preset);
        config.key_bits = config.value_bits = 8;
        config.n_query_heads = 2 * with_lowbit[_i].group;
        config.dim_k = with_lowbit[_i].dim_k;
        config.dim_v = with_lowbit[_i].dim_v;
        kv_data data = kv_random(&config, 712, 141);
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, 700);
        kv_model model = kv_model_of(&config, &data, 700);
        for (size_t t = 700; t < 712; t++) {
                kv_seen seen = kv_decode(kv, 1, &(kv_turn){sequence, &data, t, 1});
                kv_model_append(&model, &data, t, 1);
                check_lowbit(&model, &seen, &data, t);
                kv_seen_free(&seen);
        }
        kv_model_free(&model);
        kv_end(kv, &data);
}
END_TEST

/* --- keys that drift ------------------------------------------------------------------------------------------------------------ */

/* Rows that grow and move after the prompt. */
static kv_data drifting(const dci_kv_config *config, size_t n, size_t from)
{
        kv_data d = kv_random(config, n, 142);
        for (size_t i = 0; i < n * d.n_layers * d.n_kv_heads; i++)
                for (size_t j = 0; j < d.dim_k; j++)
                        if (i / d.n_kv_heads % n >= from)
                                d.keys[i * d.dim_k + j] = 3.0f * d.keys[i * d.dim_k + j] + (j % 2 == 0 ? 9.0f : -9.0f);
        dci_kernels_scalar.narrow[d.dtype - 1](d.keys, n * d.n_layers * d.n_kv_heads * d.dim_k, d.stored_keys);
        dci_kernels_scalar.to_f32[d.dtype - 1](d.stored_keys, n * d.n_layers * d.n_kv_heads * d.dim_k, d.keys);
        return d;
}

/* Loops over summaries. A fork that shares the old codes keeps them. */
START_TEST(codes_are_made_anew_where_keys_drift)
{
        enum { LENGTH = 2700 }; /* a span of 1024 tokens is looked at, then one with new codes */
        dci_kv_config config = kv_small(DCI_KV_SKETCH_LOWBIT);
        config.summary = _i == 0 ? DCI_KV_SUMMARY_CODES : DCI_KV_SUMMARY_LEARNED;
        kv_data data = drifting(&config, LENGTH, 300);
        config.refit = 0.0;
        dci_kv *never = kv_create(context, &config);
        config.refit = 1.5;
        dci_kv *kv = kv_create(context, &config);
        const int64_t old = kv_begin(never, &data, 300), sequence = kv_begin(kv, &data, 300);
        ck_assert_int_eq(kv_sequence_info(kv, sequence).refits, 0);
        int64_t fork, kept;
        ck_ok(dci_kv_fork(kv, sequence, 300, &fork));
        ck_ok(dci_kv_fork(never, old, 300, &kept));
        kv_model model = kv_model_of(&config, &data, 300);
        for (size_t t = 300; t < LENGTH; t += 4) {
                const kv_turn turn = {sequence, &data, t, 4};
                kv_seen seen = kv_decode(kv, 1, &turn);
                kv_model_append(&model, &data, t, 4);
                kv_lawful(&seen, &config, 0, "drift");
                if (t % 300 == 0)
                        kv_model_check_out(&model, &seen, 0, 0, kv_query(&data, 0, t + 3, 0), "drift");
                kv_seen_free(&seen);
        }
        kv_model_free(&model);
        ck_assert_int_gt(kv_sequence_info(kv, sequence).refits, 0);
        ck_assert(isfinite(kv_sequence_info(kv, sequence).drift));
        ck_assert_int_eq(kv_sequence_info(kv, fork).refits, 0);
        ck_assert_int_eq(kv_sequence_info(never, old).refits, 0);
        kv_alike(kv, fork, never, kept, &data, 200, 60, "a fork of what drifted");
        dci_kv_destroy(never);
        kv_end(kv, &data);
}
END_TEST

/* What stays resident per token: two floats next to codes, and parts of pages. */
START_TEST(summaries_take_the_bytes_that_are_said)
{
        for (size_t i = 0; i < KV_N_PRESETS; i++) {
                const dci_kv_config config = kv_config(kv_presets[i], 1, 2, 3, TRACE_DIM);
                kv_data data = kv_random(&config, 3000, 143);
                dci_kv *kv = kv_create(context, &config);
                kv_begin(kv, &data, 3000);
                const dci_kv_info info = kv_info(kv);
                const double least = info.resident_token_bytes * 2 * 2900,
                             most = info.resident_token_bytes * 2 * 3600 + 512;
                ck_assert_msg((double)info.summary_bytes >= least && (double)info.summary_bytes <= most,
                              "%s: %zu bytes, %.2f per token", dci_kv_preset_name(kv_presets[i]), info.summary_bytes,
                              info.resident_token_bytes);
                ck_assert_uint_ge(info.row_bytes, 3000 * info.token_bytes);
                ck_assert_uint_ge(info.bytes, info.row_bytes + info.summary_bytes);
                kv_end(kv, &data);
        }
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("kv tails");
        TCase *tails = test_case_with(suite, "tails", 60, context_open_2, context_close);
        tcase_add_test(tails, more_bits_find_more_of_the_best_tokens);
        tcase_add_test(tails, learned_codes_find_more_at_few_bits);
        tcase_add_test(tails, verified_lists_are_those_of_the_keys);
        tcase_add_test(tails, codes_go_with_the_latest_tokens);
        tcase_add_loop_test(tails, verifying_makes_outputs_better, 0, 2);
        tcase_add_test(tails, nothing_keeps_more_than_topk);
        tcase_add_loop_test(tails, a_larger_budget_errs_less, 0, KV_N_PRESETS);
        tcase_add_test(tails, tails_err_less_than_dropping);
        tcase_add_test(tails, retrieval_errs_less_than_codes_alone);
        tcase_add_loop_test(tails, sums_are_means_of_what_was_not_chosen, 0, COUNT(with_sums) * COUNT(all_dtypes));
        tcase_add_loop_test(tails, lowbit_tails_are_nearly_attention_to_what_was_not_chosen, 0, COUNT(with_lowbit));
        tcase_add_loop_test(tails, codes_of_any_dimension_find_the_best_tokens, 0, 6);
        tcase_add_loop_test(tails, codes_are_made_anew_where_keys_drift, 0, 2);
        tcase_add_test(tails, summaries_take_the_bytes_that_are_said);
        return test_main(suite);
}
