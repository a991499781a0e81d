/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The KV cache: what presets choose and what attention gives, against the naive model. */
#include "tests/common.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/context_fixture.h"
#include "tests/kv_model.h"

/* A sequence that has read a prompt, and its model. */
typedef struct scene {
        dci_kv_config config;
        dci_kv *kv;
        kv_data data;
        kv_model model;
        int64_t sequence;
        size_t n;
} scene;

static scene begin(const dci_kv_config *config, kv_data data, size_t prompt)
{
        scene s = {.config = *config, .kv = kv_create(context, config), .data = data, .n = prompt};
        s.model = kv_model_of(config, &s.data, prompt);
        s.sequence = kv_begin(s.kv, &s.data, prompt);
        return s;
}

static void end(scene *s)
{
        ck_ok(dci_kv_close(s->kv, s->sequence));
        dci_kv_destroy(s->kv);
        kv_model_free(&s->model);
        kv_data_free(&s->data);
}

/* The next token of the data, in the cache and in the model. */
static kv_seen step(scene *s)
{
        const kv_turn turn = {s->sequence, &s->data, s->n, 1};
        kv_seen seen = kv_decode(s->kv, 1, &turn);
        kv_model_append(&s->model, &s->data, s->n++, 1);
        return seen;
}

/* Outputs of a step's layers are attention over what their plans name. */
static void check_out(const scene *s, const kv_seen *seen, const char *what)
{
        for (size_t layer = 0; layer < s->config.n_layers; layer++)
                kv_model_check_out(&s->model, seen, 0, layer, kv_query(&s->data, layer, s->n - 1, 0), what);
}

static void check_lists(const scene *s, const kv_seen *seen, bool frozen, const char *what)
{
        for (size_t layer = 0; layer < s->config.n_layers; layer++)
                kv_model_check_lists(&s->model, seen, 0, layer, kv_query(&s->data, layer, s->n - 1, 0),
                                     s->config.budget, frozen, what);
}

/* --- attention ---------------------------------------------------------------------------------------------------------- */

static void check_full(dci_kv_config config, kv_data data, size_t prompt, size_t steps)
{
        scene s = begin(&config, data, prompt);
        for (size_t i = 0; i < steps; i++) {
                kv_seen seen = step(&s);
                kv_lawful(&seen, &config, 0, "full");
                ck_assert_int_eq(seen.plans[0].recent_begin[0], 0);
                ck_assert_int_eq(seen.plans[0].n_tokens[0], (int32_t)s.n);
                check_out(&s, &seen, "full");
                kv_seen_free(&seen);
        }
        end(&s);
}

/* Loops over formats. */
START_TEST(full_is_attention_in_double)
{
        dci_kv_config config = kv_config(DCI_KV_FULL, 2, 2, 3, 40);
        config.dim_v = 24;
        config.dtype = all_dtypes[_i];
        check_full(config, kv_random(&config, 340, 1), 320, 20);
        config.query_dtype = all_dtypes[_i];
        config.scale = 0.31;
        check_full(config, kv_random(&config, 30, 2), 3, 27);
}
END_TEST

START_TEST(full_is_attention_in_double_on_the_trace)
{
        dci_kv_config config = kv_config(DCI_KV_FULL, 1, 2, 3, TRACE_DIM);
        check_full(config, kv_trace(&config, 5000), 4995, 5);
}
END_TEST

/* Loops over dims of keys and values, and groups of query heads. */
START_TEST(any_shape_is_attended_to)
{
        static const size_t dims[][3] = {{1, 1, 5}, {7, 19, 9}, {33, 5, 8}, {128, 64, 64}, {96, 257, 17}};
        dci_kv_config config = kv_config(DCI_KV_FULL, 1, 1, dims[_i][2], dims[_i][0]);
        config.dim_v = dims[_i][1];
        check_full(config, kv_random(&config, 60, 3), 50, 10);
}
END_TEST

/* Loops over presets. */
START_TEST(without_a_plan_everything_is_attended_to)
{
        dci_kv_config config = kv_small(kv_presets[_i]), full = kv_small(DCI_KV_FULL);
        scene s = begin(&config, kv_random(&config, 300, 4), 299), f = begin(&full, kv_random(&full, 300, 4), 299);
        kv_seen sparse = step(&s), whole = step(&f);
        const kv_turn turn = {s.sequence, &s.data, s.n - 1, 0};
        for (size_t layer = 0; layer < config.n_layers; layer++) {
                void *queries = kv_queries(layer, 1, &turn);
                ck_ok(dci_kv_attend(s.kv, layer, 1, &s.sequence, queries, config.dim_k, NULL,
                                    kv_out(&sparse, layer, 0, 0), config.dim_k, kv_lse(&sparse, layer, 0, 0)));
                free(queries);
        }
        kv_same_out(&sparse, 0, &whole, 0, "plan NULL");
        kv_seen_free(&sparse);
        kv_seen_free(&whole);
        end(&s);
        end(&f);
}
END_TEST

/* Loops over presets. */
START_TEST(up_to_the_budget_everything_is_attended_to)
{
        dci_kv_config config = kv_small(kv_presets[_i]), full = kv_small(DCI_KV_FULL);
        config.observed_keep = 0;
        scene s = begin(&config, kv_random(&config, 300, 5), 40), f = begin(&full, kv_random(&full, 300, 5), 40);
        while (s.n < config.budget) {
                kv_seen sparse = step(&s), whole = step(&f);
                ck_assert_int_eq(sparse.plans[1].recent_begin[0], 0);
                kv_same_out(&sparse, 0, &whole, 0, "within the budget");
                kv_seen_free(&sparse);
                kv_seen_free(&whole);
        }
        kv_seen seen = step(&s);
        ck_assert((seen.plans[1].recent_begin[0] == 0) == (kv_presets[_i] == DCI_KV_FULL));
        kv_seen_free(&seen);
        end(&s);
        end(&f);
}
END_TEST

/* Loops over presets. */
START_TEST(dense_layers_attend_to_everything)
{
        dci_kv_config config = kv_small(kv_presets[_i]);
        dci_layer_config layers[3];
        config.n_layers = 3;
        for (size_t way = 0; way < 2; way++) {
                for (size_t l = 0; l < 3; l++) {
                        ck_ok(dci_layer_config_init(&layers[l], sizeof layers[l]));
                        layers[l].mode = way == 1 && l == 1 ? DCI_KV_LAYER_DENSE : DCI_KV_LAYER_SPARSE;
                }
                config.dense_layers = 2;
                config.layers = way == 0 ? NULL : layers;
                scene s = begin(&config, kv_random(&config, 200, 6), 198);
                memset(layers, 0xEE, sizeof layers); /* they were copied */
                for (size_t i = 0; i < 2; i++) {
                        kv_seen seen = step(&s);
                        for (size_t l = 0; l < 3; l++) {
                                const bool dense = kv_presets[_i] == DCI_KV_FULL || (way == 0 ? l < 2 : l == 1);
                                ck_assert_int_eq(seen.plans[l].recent_begin[0] == 0, dense);
                        }
                        kv_lawful(&seen, &config, 0, "dense layers");
                        check_out(&s, &seen, "dense layers");
                        kv_seen_free(&seen);
                }
                end(&s);
        }
}
END_TEST

/* --- plans -------------------------------------------------------------------------------------------------------------- */

/* Loops over presets. With maintenance at each step, and without any. */
START_TEST(plans_are_lawful_at_every_step)
{
        dci_kv_config config = kv_small(kv_presets[_i]);
        for (size_t maintained = 0; maintained < 2; maintained++) {
                scene s = begin(&config, kv_random(&config, 420, 7), 150);
                while (s.n < s.data.n) {
                        const kv_turn turn = {s.sequence, &s.data, s.n, 1};
                        if (maintained == 0) {
                                kv_feed(s.kv, 1, &turn);
                                kv_model_append(&s.model, &s.data, s.n++, 1);
                        }
                        kv_seen seen = maintained == 0 ? kv_look(s.kv, 1, &turn) : step(&s);
                        kv_lawful(&seen, &config, 0, dci_kv_preset_name(kv_presets[_i]));
                        test_hold(seen.plans[0].n_tokens[0] == (int32_t)s.n);
                        if (s.n % 9 == 0)
                                check_out(&s, &seen, dci_kv_preset_name(kv_presets[_i]));
                        kv_seen_free(&seen);
                }
                end(&s);
        }
}
END_TEST

/* Loops over presets: whatever has left the window is grouped once it is older than the rollback, but for a page's rest; clusters and
 * segments are made of more tokens at a time, as long as those take no more than half of the budget. */
START_TEST(recent_tokens_are_the_rollback_and_the_open_page)
{
        dci_kv_config config = kv_small(kv_presets[_i]);
        config.observed_keep = 0;
        scene s = begin(&config, kv_random(&config, 420, 8), 200);
        const dci_kv_info info = kv_info(s.kv);
        while (s.n < s.data.n) {
                kv_seen seen = step(&s);
                const size_t recent = s.n - (size_t)seen.plans[0].recent_begin[0];
                if (info.select != DCI_KV_SELECT_ALL)
                        ck_assert_msg(info.window <= recent &&
                                              recent <= (info.group == DCI_KV_GROUP_CLUSTER ||
                                                                         info.group == DCI_KV_GROUP_SEGMENT
                                                                 ? config.budget / 2 + 1
                                                                 : info.rollback + 1 + info.page_tokens),
                                      "%zu recent, window %zu, rollback %zu", recent, info.window, info.rollback);
                kv_seen_free(&seen);
        }
        end(&s);
}
END_TEST

static const int32_t combines[] = {0, DCI_KV_COMBINE_SOFTMAX, DCI_KV_COMBINE_MEAN};

static void check_best(dci_kv_config config, kv_data data, size_t prompt)
{
        char what[80];
        scene s = begin(&config, data, prompt);
        const dci_kv_info info = kv_info(s.kv);
        snprintf(what, sizeof what, "%s, pages of %zu, combine %d", dci_kv_preset_name(config.preset), info.page_tokens,
                 info.combine);
        while (s.n < s.data.n) {
                kv_seen seen = step(&s);
                kv_lawful(&seen, &config, 0, what);
                check_lists(&s, &seen, false, what);
                kv_seen_free(&seen);
        }
        end(&s);
}

/* Loops over ways to combine. */
START_TEST(topk_lists_are_the_best_tokens)
{
        dci_kv_config config = kv_small(DCI_KV_TOPK);
        config.combine = combines[_i];
        config.dtype = all_dtypes[_i];
        check_best(config, kv_random(&config, 330, 9), 300);
}
END_TEST

/* Loops over groups of query heads. */
START_TEST(topk_lists_are_the_best_tokens_of_any_group)
{
        static const size_t groups[] = {1, 7, 8, 9, 16, 33};
        dci_kv_config config = kv_small(DCI_KV_TOPK);
        config.n_query_heads = 2 * groups[_i];
        check_best(config, kv_random(&config, 310, 16), 300);
}
END_TEST

/* Loops over ways to combine. */
START_TEST(topk_lists_are_the_best_tokens_of_the_trace)
{
        dci_kv_config config = kv_config(DCI_KV_TOPK, 1, 2, 3, TRACE_DIM);
        config.combine = combines[_i];
        check_best(config, kv_trace(&config, 3000), 2996);
}
END_TEST

/* Equal keys have equal scores, so the earliest of them are taken. */
START_TEST(ties_go_to_the_lower_position)
{
        dci_kv_config config = kv_small(DCI_KV_TOPK);
        config.n_layers = config.n_kv_heads = 1;
        config.n_query_heads = 2;
        config.dtype = DCI_F32;
        kv_data data = kv_random(&config, 301, 10);
        for (size_t t = 0; t < data.n; t++) /* 7 keys, in turn */
                memmove((float *)data.stored_keys + t * data.dim_k, (float *)data.stored_keys + t % 7 * data.dim_k,
                        data.dim_k * sizeof(float));
        scene s = begin(&config, data, 300);
        kv_seen seen = step(&s);
        size_t n, taken[7] = {0};
        const int32_t *list = kv_list(&seen, 0, 0, 0, &n);
        for (size_t t = 0; t < n; t++)
                taken[list[t] % 7]++;
        for (size_t t = 0; t < n; t++)
                for (int32_t p = list[t] - 7; p >= seen.plans[0].sink_end[0]; p -= 7) {
                        bool found = false;
                        for (size_t u = 0; u < t; u++)
                                found = found || list[u] == p;
                        ck_assert_msg(found, "position %d is taken, %d with the same key is not", list[t], p);
                }
        size_t partly = 0;
        for (size_t k = 0; k < 7; k++) {
                size_t all = 0;
                for (int32_t p = seen.plans[0].sink_end[0]; p < seen.plans[0].recent_begin[0]; p++)
                        all += (size_t)p % 7 == k;
                partly += taken[k] > 0 && taken[k] < all;
        }
        ck_assert_uint_le(partly, 1);
        kv_seen_free(&seen);
        end(&s);
}
END_TEST

static const struct {
        int32_t preset, summary;
} page_presets[] = {
        {DCI_KV_PAGEMEAN, 0}, {DCI_KV_QUEST, 0}, {DCI_KV_ARKVALE, 0}, {DCI_KV_PAGEMEAN, DCI_KV_SUMMARY_MEAN_STD}};

/* Loops over presets and ways to combine. */
START_TEST(page_lists_are_the_best_pages)
{
        static const size_t pages[] = {8, 16, 32, 64};
        for (size_t p = 0; p < COUNT(pages); p++) {
                dci_kv_config config = kv_small(page_presets[_i / 3].preset);
                config.summary = page_presets[_i / 3].summary;
                config.combine = combines[_i % 3];
                config.page_tokens = pages[p];
                config.budget = 200;
                config.dtype = p == 1 ? DCI_F16 : DCI_F32;
                check_best(config, kv_random(&config, 560, 11), 530);
        }
}
END_TEST

/* Loops over presets, with their own sizes. */
START_TEST(page_lists_are_the_best_pages_of_the_trace)
{
        dci_kv_config config = kv_config(page_presets[_i].preset, 1, 2, 3, TRACE_DIM);
        config.summary = page_presets[_i].summary;
        check_best(config, kv_trace(&config, 3000), 2996);
        config.budget = 512 + 5; /* the last page is cut */
        check_best(config, kv_trace(&config, 2000), 1996);
}
END_TEST

START_TEST(streaming_keeps_the_sink_and_the_latest)
{
        dci_kv_config config = kv_small(DCI_KV_STREAMING);
        scene s = begin(&config, kv_random(&config, 300, 12), 100);
        ck_assert_uint_eq(kv_info(s.kv).sink, 4);
        while (s.n < s.data.n) {
                kv_seen seen = step(&s);
                for (size_t layer = 0; layer < config.n_layers; layer++) {
                        const dci_kv_plan *plan = &seen.plans[layer];
                        ck_assert_int_eq(plan->sink_end[0], 4);
                        for (size_t h = 0; h < config.n_kv_heads; h++) {
                                size_t n;
                                const int32_t *list = kv_list(&seen, layer, 0, h, &n);
                                ck_assert_uint_eq(n + s.n - (size_t)plan->recent_begin[0], config.budget - 4);
                                for (size_t t = 0; t < n; t++)
                                        test_hold(list[t] + (int32_t)(n - t) == plan->recent_begin[0]);
                        }
                }
                check_out(&s, &seen, "streaming");
                kv_seen_free(&seen);
        }
        end(&s);
}
END_TEST

/* The greatest sums of softmax over the candidates, of the observed queries in the window: older ones came before some candidates. Pooled:
 * a candidate counts as its best neighbour. Loops over formats, and widths. */
START_TEST(snapkv_lists_are_the_best_of_the_observed_queries)
{
        static const size_t widths[] = {1, 0, 3}, reaches[] = {0, 3, 1};
        dci_kv_config config = kv_small(DCI_KV_SNAPKV);
        config.dtype = all_dtypes[_i % 3];
        config.observed_pool = widths[_i / 3];
        config.budget_counts = DCI_KV_COUNT_ALL;
        config.observed_keep = 0;
        scene s = begin(&config, kv_random(&config, 210, 17), 200);
        const size_t reach = reaches[_i / 3];
        kv_seen seen = step(&s);
        for (size_t layer = 0; layer < 2; layer++)
                for (size_t h = 0; h < 2; h++) {
                        double sums[200 - 32] = {0}, pooled[200 - 32] = {0}, least = (double)INFINITY;
                        bool taken[200] = {false};
                        size_t n;
                        const int32_t *list = kv_list(&seen, layer, 0, h, &n);
                        for (size_t q = 0; q < config.window * 2; q++) {
                                const float *query =
                                        kv_query(&s.data, layer, 200 - config.window + q / 2, 2 * h + q % 2);
                                double out[16], all;
                                int32_t candidates[200 - 32];
                                for (int32_t c = 0; c < 200 - 32; c++)
                                        candidates[c] = 16 + c;
                                kv_model_attend(&s.model, layer, 2 * h, query, 200 - 32, candidates, out, &all);
                                for (int32_t c = 0; c < 200 - 32; c++) {
                                        double score;
                                        kv_model_attend(&s.model, layer, 2 * h, query, 1, candidates + c, out, &score);
                                        sums[c] += exp(score - all);
                                }
                        }
                        ck_assert_uint_eq(n, config.budget - 32);
                        for (size_t c = 0; c < 200 - 32; c++)
                                for (size_t near = 0; near < 200 - 32; near++)
                                        if (near + reach >= c && near <= c + reach)
                                                pooled[c] = fmax(pooled[c], sums[near]);
                        for (size_t i = 0; i < n; i++) {
                                taken[list[i] - 16] = true;
                                least = fmin(least, pooled[list[i] - 16]);
                        }
                        for (size_t c = 0; c < 200 - 32; c++)
                                ck_assert_msg(taken[c] || pooled[c] <= least * 1.0002,
                                              "token %zu: %.9g, the least taken %.9g", c + 16, pooled[c], least);
                }
        kv_seen_free(&seen);
        end(&s);
}
END_TEST

/* Queries observed at the prompt's end choose once. */
START_TEST(the_list_of_snapkv_stays)
{
        dci_kv_config config = kv_small(DCI_KV_SNAPKV);
        scene s = begin(&config, kv_random(&config, 300, 13), 200);
        kv_seen first = step(&s);
        size_t n, m;
        kv_list(&first, 0, 0, 0, &n);
        ck_assert_uint_gt(n, 0);
        while (s.n < s.data.n) {
                kv_seen seen = step(&s);
                kv_lawful(&seen, &config, 0, "snapkv");
                for (size_t list = 0; list < config.n_layers * config.n_kv_heads; list++) {
                        const int32_t *a = kv_list(&first, list / 2, 0, list % 2, &n),
                                      *b = kv_list(&seen, list / 2, 0, list % 2, &m);
                        ck_assert_uint_eq(n, m);
                        ck_assert_mem_eq(a, b, n * sizeof *a);
                }
                kv_seen_free(&seen);
        }
        kv_seen_free(&first);
        end(&s);
}
END_TEST

/* Loops over presets. The prompt is grouped as a whole and never again; later tokens are attended to and not counted. */
START_TEST(a_frozen_prompt_stays_as_it_is)
{
        enum { PROMPT = 203 };
        dci_kv_config config = kv_small(kv_presets[_i]);
        config.frozen_prompt = 1;
        config.dtype = DCI_F32;
        scene s = begin(&config, kv_random(&config, 360, 14), PROMPT);
        const dci_kv_info info = kv_info(s.kv);
        const size_t grouped = kv_sequence_info(s.kv, s.sequence).n_grouped;
        while (s.n < s.data.n) {
                kv_seen seen = step(&s);
                const size_t recent = (size_t)seen.plans[0].recent_begin[0];
                kv_lawful(&seen, &config, PROMPT, dci_kv_preset_name(kv_presets[_i]));
                check_out(&s, &seen, dci_kv_preset_name(kv_presets[_i]));
                if (info.select != DCI_KV_SELECT_ALL)
                        ck_assert_uint_eq(recent, PROMPT);
                if (kv_ranks_rows(info.summary) && info.select == DCI_KV_SELECT_SCAN)
                        check_lists(&s, &seen, true, dci_kv_preset_name(kv_presets[_i]));
                kv_seen_free(&seen);
        }
        ck_assert_uint_eq(kv_sequence_info(s.kv, s.sequence).n_grouped, grouped);
        end(&s);
}
END_TEST

/* More tokens in one step than the budget holds are attended to all the same, next to the sink and what was before them. */
START_TEST(a_step_beyond_the_budget_is_attended_to)
{
        dci_kv_config config = kv_small(kv_presets[_i]);
        scene s = begin(&config, kv_random(&config, 460, 18), 150);
        const kv_turn turn = {s.sequence, &s.data, 150, 300};
        kv_seen seen = kv_decode(s.kv, 1, &turn);
        kv_model_append(&s.model, &s.data, 150, 300);
        s.n = 450;
        check_out(&s, &seen, dci_kv_preset_name(kv_presets[_i]));
        kv_seen_free(&seen);
        seen = step(&s);
        kv_lawful(&seen, &config, 0, dci_kv_preset_name(kv_presets[_i]));
        check_out(&s, &seen, dci_kv_preset_name(kv_presets[_i]));
        kv_seen_free(&seen);
        end(&s);
}
END_TEST

/* --- rows --------------------------------------------------------------------------------------------------------------- */

/* Loops over formats and dims. Appended with odd strides, in two steps. */
START_TEST(rows_are_read_back_as_they_were)
{
        static const size_t dims[][2] = {{16, 16}, {1, 3}, {40, 13}};
        dci_kv_config config = kv_config(DCI_KV_FULL, 2, 3, 1, dims[_i / 3][0]);
        config.dim_v = dims[_i / 3][1];
        config.dtype = all_dtypes[_i % 3];
        dci_kv *kv = kv_create(context, &config);
        kv_data data = kv_random(&config, 77, 15);
        const size_t key_bytes = config.dim_k * dci_dtype_size(config.dtype),
                     value_bytes = config.dim_v * dci_dtype_size(config.dtype);
        const int64_t sequence = kv_open(kv);
        kv_feed(kv, 1, &(kv_turn){sequence, &data, 0, 30});
        kv_feed(kv, 1, &(kv_turn){sequence, &data, 30, 47});
        char *keys = malloc(77 * key_bytes), *values = malloc(77 * value_bytes);
        for (size_t layer = 0; layer < 2; layer++)
                for (size_t head = 0; head < 3; head++) {
                        memset(keys, 0x5A, 77 * key_bytes);
                        memset(values, 0x5A, 77 * value_bytes);
                        ck_ok(dci_kv_read(kv, layer, sequence, head, 5, 70, keys, values));
                        for (size_t t = 0; t < 70; t++) {
                                const size_t row = (layer * 77 + t + 5) * 3 + head;
                                const char *k = (char *)data.stored_keys + row * key_bytes,
                                           *v = (char *)data.stored_values + row * value_bytes;
                                ck_assert(memcmp(keys + t * key_bytes, k, key_bytes) == 0);
                                ck_assert(memcmp(values + t * value_bytes, v, value_bytes) == 0);
                        }
                        ck_ok(dci_kv_read(kv, layer, sequence, head, 76, 1, keys, NULL));
                        ck_ok(dci_kv_read(kv, layer, sequence, head, 77, 0, NULL, NULL));
                        ck_assert(memcmp(keys, (char *)data.stored_keys + ((layer * 77 + 76) * 3 + head) * key_bytes,
                                         key_bytes) == 0);
                }
        test_free(keys, values);
        kv_end(kv, &data);
}
END_TEST

/* Rows head by head, with gaps, are the rows token by token. */
START_TEST(strides_of_appended_rows_are_followed)
{
        dci_kv_config config = kv_config(DCI_KV_FULL, 1, 2, 1, 6);
        config.dtype = DCI_F32;
        config.dim_v = 5;
        enum { N = 20, KEY_GAP = 7, VALUE_GAP = 9 };
        dci_kv *kv = kv_create(context, &config);
        float keys[2 * N * KEY_GAP], values[2 * N * VALUE_GAP], got[N * 6];
        for (size_t i = 0; i < COUNT(keys); i++)
                keys[i] = (float)i;
        for (size_t i = 0; i < COUNT(values); i++)
                values[i] = -(float)i;
        const int64_t sequence = kv_open(kv);
        dci_kv_rows rows;
        ck_ok(dci_kv_rows_init(&rows, sizeof rows));
        rows.keys = keys;
        rows.values = values;
        rows.key_token_stride = KEY_GAP;
        rows.key_head_stride = (size_t)N * KEY_GAP;
        rows.value_token_stride = VALUE_GAP;
        rows.value_head_stride = (size_t)N * VALUE_GAP;
        const size_t n = N;
        ck_ok(dci_kv_reserve(kv, 1, &sequence, &n));
        ck_ok(dci_kv_append(kv, 0, 1, &sequence, &n, &rows));
        ck_ok(dci_kv_step_end(kv, 1, &sequence));
        for (size_t head = 0; head < 2; head++) {
                ck_ok(dci_kv_read(kv, 0, sequence, head, 0, N, got, NULL));
                for (size_t i = 0; i < N * 6; i++)
                        ck_assert_float_eq(got[i], (float)((head * N + i / 6) * KEY_GAP + i % 6));
                ck_ok(dci_kv_read(kv, 0, sequence, head, 0, N, NULL, got));
                for (size_t i = 0; i < N * 5; i++)
                        ck_assert_float_eq(got[i], -(float)((head * N + i / 5) * VALUE_GAP + i % 5));
        }
        dci_kv_destroy(kv);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("kv laws");
        TCase *laws = test_case_with(suite, "laws", 60, context_open_2, context_close);
        tcase_add_loop_test(laws, full_is_attention_in_double, 0, COUNT(all_dtypes));
        tcase_add_test(laws, full_is_attention_in_double_on_the_trace);
        tcase_add_loop_test(laws, any_shape_is_attended_to, 0, 5);
        tcase_add_loop_test(laws, without_a_plan_everything_is_attended_to, 0, KV_N_KINDS);
        tcase_add_loop_test(laws, up_to_the_budget_everything_is_attended_to, 0, KV_N_KINDS);
        tcase_add_loop_test(laws, dense_layers_attend_to_everything, 0, KV_N_KINDS);
        tcase_add_loop_test(laws, plans_are_lawful_at_every_step, 0, KV_N_KINDS);
        tcase_add_loop_test(laws, recent_tokens_are_the_rollback_and_the_open_page, 0, KV_N_KINDS);
        tcase_add_loop_test(laws, topk_lists_are_the_best_tokens, 0, COUNT(combines));
        tcase_add_loop_test(laws, topk_lists_are_the_best_tokens_of_any_group, 0, 6);
        tcase_add_loop_test(laws, topk_lists_are_the_best_tokens_of_the_trace, 0, COUNT(combines));
        tcase_add_test(laws, ties_go_to_the_lower_position);
        tcase_add_loop_test(laws, page_lists_are_the_best_pages, 0, COUNT(page_presets) * COUNT(combines));
        tcase_add_loop_test(laws, page_lists_are_the_best_pages_of_the_trace, 0, COUNT(page_presets));
        tcase_add_test(laws, streaming_keeps_the_sink_and_the_latest);
        tcase_add_loop_test(laws, snapkv_lists_are_the_best_of_the_observed_queries, 0, 3 * COUNT(all_dtypes));
        tcase_add_test(laws, the_list_of_snapkv_stays);
        tcase_add_loop_test(laws, a_step_beyond_the_budget_is_attended_to, 0, KV_N_KINDS);
        tcase_add_loop_test(laws, a_frozen_prompt_stays_as_it_is, 0, KV_N_KINDS);
        tcase_add_loop_test(laws, rows_are_read_back_as_they_were, 0, 9);
        tcase_add_test(laws, strides_of_appended_rows_are_followed);
        return test_main(suite);
}
