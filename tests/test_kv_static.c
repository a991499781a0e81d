/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Stored orders with static tokens first (prkv): against a naive model of importance and order, and what becomes of them in plans, forks,
 * cuts and files. */
#include "tests/common.h"

#include <math.h>
#include <string.h>

#include "kv/clusters.h"
#include "kv/lookup.h"
#include "kv/stages/reorder.h"
#include "tests/context_fixture.h"
#include "tests/kv_model.h"
#include "tests/kv_order_model.h"
#include "tests/persist_fixture.h"
#include "tests/persist_seal.h"
#include "tests/scratch.h"

/* Room for 8 pages of 8, and a new order every 10 plans, at once. */
static dci_kv_config small(double share)
{
        dci_kv_config config = kv_small(DCI_KV_PRKV);
        config.static_share = share;
        config.period = 10;
        config.reorder_delay = 0;
        return config;
}

/* --- orders ------------------------------------------------------------------------------------------------------- */

static const struct {
        double share;
        size_t ring, n_static; /* n_static: of room for 64 tokens */
        int32_t frozen, dtype;
} orders[] = {{0.25, DCI_KV_PRESET, 16, 0, DCI_F32},
              {0.5, 5, 32, 0, DCI_F16},
              {1.0, 64, 64, 0, DCI_BF16},
              {0.3, 1, 16, 0, DCI_F32},
              {0.0, 16, 0, 0, DCI_F32},
              {0.1, DCI_KV_PRESET, 0, 0, DCI_F32},
              {0.25, DCI_KV_PRESET, 16, 1, DCI_F16},
              {1.0, 3, 64, 1, DCI_F32}};

/* Loops over orders. At the prompt's end, and after each `period` plans; between, pages come in order after. */
START_TEST(orders_are_those_of_the_naive_model)
{
        enum { PROMPT = 200, N = 290 };
        dci_kv_config config = small(orders[_i].share);
        config.ring = orders[_i].ring;
        config.frozen_prompt = orders[_i].frozen;
        config.dtype = (dci_dtype)orders[_i].dtype;
        kv_data data = kv_random(&config, N, 300);
        dci_kv *kv = kv_create(context, &config);
        const dci_kv_info info = kv_info(kv);
        ck_assert_uint_eq(config.budget - info.sink - info.window, 64);
        kv_naive_order models[2][2];
        memset(models, 0, sizeof models);
        for (size_t of = 0; of < 4; of++)
                for (size_t t = PROMPT - (size_t)KV_OBSERVED; t < PROMPT; t++)
                        models[of / 2][of % 2].seen[models[of / 2][of % 2].n_seen++] = t;
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        size_t n_orders = 0;
        for (size_t t = PROMPT; t <= N; t++) {
                const size_t plans = t - PROMPT;
                for (size_t of = 0; of < 4; of++) {
                        const dci_kv_layer *layer = kv_layer_of(kv, sequence, of / 2);
                        kv_naive_order *model = &models[of / 2][of % 2];
                        const bool renewed = plans % config.period == 0;
                        if (renewed)
                                kv_check_order(kv, &config, &info, &data, layer, of % 2, orders[_i].n_static, model);
                        n_orders += renewed;
                        ck_assert(!renewed || layer->n_batches == 1);
                        for (size_t b = 1; b < layer->n_batches; b++)
                                for (size_t i = 0; i < layer->batches[b]->n; i++)
                                        ck_assert_uint_eq((size_t)dci_kv_cluster_ids(kv, layer->batches[b], of % 2)[i],
                                                          layer->batches[b]->first + i);
                        model->seen[model->n_seen++] = t;
                }
                if (t < N)
                        kv_decode_all(kv, sequence, &data, t, 1);
        }
        ck_assert_uint_eq(n_orders, 4 * 10);
        for (size_t of = 0; of < 4; of++)
                free(models[of / 2][of % 2].order);
        kv_end(kv, &data);
}
END_TEST

/* Tokens up to the end of the candidates of a layer's next order. */
static size_t tokens_of_order(const dci_kv *kv, const dci_kv_layer *layer)
{
        return kv->config.sink + layer->reorder->batch->n;
}

/* --- orders that workers make ---------------------------------------------------------------------------------------------------- */

static const size_t delays[] = {1, 4, 10};

/* Layers come one after the other. A new order is that of the plans before its start, and is taken so many plans later. Loops over delays. */
START_TEST(orders_are_made_while_steps_go_on)
{
        enum { PROMPT = 200, N = 290 };
        dci_kv_config config = small(0.5);
        config.reorder_delay = delays[_i];
        kv_data data = kv_random(&config, N, 305);
        dci_kv *kv = kv_create(context, &config);
        const dci_kv_info info = kv_info(kv);
        kv_naive_order models[2][2];
        memset(models, 0, sizeof models);
        for (size_t of = 0; of < 4; of++)
                for (size_t t = PROMPT - (size_t)KV_OBSERVED; t < N; t++)
                        models[of / 2][of % 2].seen[t - (PROMPT - (size_t)KV_OBSERVED)] = t;
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        size_t starts[2] = {10, 5}, n_orders = 0, n_candidates[2] = {0};
        for (size_t t = PROMPT; t < N; t++) {
                const size_t plans = t - PROMPT;
                for (size_t l = 0; l < 2; l++) {
                        const dci_kv_layer *layer = kv_layer_of(kv, sequence, l);
                        const bool published = plans == starts[l] + config.reorder_delay;
                        for (size_t h = 0; h < 2 && (published || plans == 0); h++) {
                                models[l][h].n_seen = (size_t)KV_OBSERVED + (published ? starts[l] : 0);
                                kv_check_order(kv, &config, &info, &data, layer, h, 32, &models[l][h]);
                        }
                        if (published) {
                                ck_assert_uint_eq(layer->batches[0]->n, n_candidates[l]);
                                starts[l] += config.period + (config.reorder_delay == config.period);
                                n_orders++;
                        }
                        if (plans == starts[l])
                                n_candidates[l] = layer->n_grouped;
                        ck_assert(plans == 0 || (layer->reorder != NULL) == (plans >= starts[l]));
                        for (size_t h = 0; h < 2 && !published; h++) /* it is the last one that was taken */
                                ck_assert_mem_eq(dci_kv_cluster_ids(kv, layer->batches[0], h), models[l][h].order,
                                                 layer->batches[0]->n * sizeof(int32_t));
                }
                kv_decode_all(kv, sequence, &data, t, 1);
        }
        ck_assert_uint_gt(n_orders, 12);
        for (size_t of = 0; of < 4; of++)
                free(models[of / 2][of % 2].order);
        kv_end(kv, &data);
}
END_TEST

/* A fork and a loaded file have none, and make their own; a cut that leaves its candidates keeps it, a deeper one drops it. */
START_TEST(an_order_in_the_making_survives_its_sequence_alone)
{
        dci_kv_config config = small(0.5);
        config.reorder_delay = 6;
        kv_data data = kv_random(&config, 300, 306);
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, 200);
        int64_t fork, loaded;
        kv_decode_all(kv, sequence, &data, 200, 12);
        const dci_kv_layer *layer = kv_layer_of(kv, sequence, 0);
        const dci_kv_reorder *making = layer->reorder;
        ck_assert_ptr_nonnull(making);
        ck_ok(dci_kv_fork(kv, sequence, 212, &fork));
        ck_ok(dci_kv_save(kv, sequence, 212, scratch_path("making")));
        ck_ok(dci_kv_load(kv, scratch_path("making"), &loaded));
        ck_assert_ptr_null(kv_layer_of(kv, fork, 0)->reorder);
        ck_assert_ptr_null(kv_layer_of(kv, loaded, 0)->reorder);
        const dci_kv_clusters *shared = layer->batches[0];
        ck_assert_ptr_eq(kv_layer_of(kv, fork, 0)->batches[0], shared);
        kv_decode_all(kv, fork, &data, 212, 1);
        ck_assert_ptr_nonnull(kv_layer_of(kv, fork, 0)->reorder);
        ck_ok(dci_kv_truncate(kv, sequence, 208));
        ck_assert_ptr_eq(layer->reorder, making);
        kv_decode_all(kv, sequence, &data, 208, 4);
        ck_assert_ptr_null(layer->reorder);
        ck_assert_ptr_ne(layer->batches[0], shared);
        ck_assert_ptr_eq(kv_layer_of(kv, fork, 0)->batches[0], shared);
        kv_decode_all(kv, sequence, &data, 212, 7);
        ck_assert_ptr_nonnull(layer->reorder);
        ck_ok(dci_kv_truncate(kv, sequence, tokens_of_order(kv, layer) - 1));
        ck_assert_ptr_null(layer->reorder);
        kv_decode_all(kv, fork, &data, 213, 2);
        ck_assert_ptr_nonnull(kv_layer_of(kv, fork, 0)->reorder);
        ck_ok(dci_kv_close(kv, fork));
        kv_end(kv, &data);
}
END_TEST

/* A step that replaces a block, whose rows an order is made from, by a copy of its own waits for the order. */
START_TEST(an_order_is_made_before_its_last_block_is_replaced)
{
        enum { PROMPT = 24000, DUE = 5 };
        dci_kv_config config = small(0.5);
        config.reorder_delay = 6;
        config.sink = 12; /* candidates end within a block */
        kv_data data = kv_random(&config, PROMPT + 20, 308);
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, PROMPT);
        int64_t fork;
        kv_decode_all(kv, sequence, &data, PROMPT, DUE);
        const dci_kv_layer *layer = kv_layer_of(kv, sequence, 1);
        ck_assert_ptr_nonnull(layer->reorder);
        const size_t n = tokens_of_order(kv, layer);
        ck_assert_uint_ne(n % config.page_tokens, 0);
        ck_ok(dci_kv_fork(kv, sequence, PROMPT, &fork));
        ck_ok(dci_kv_truncate(kv, sequence, n));
        ck_ok(dci_kv_reserve(kv, 1, &sequence, NULL));
        ck_assert(layer->reorder != NULL && layer->reorder->done);
        ck_ok(dci_kv_step_abort(kv, 1, &sequence));
        ck_ok(dci_kv_close(kv, fork));
        ck_ok(dci_kv_check(kv, DCI_CHECK_FULL, NULL));
        kv_end(kv, &data);
}
END_TEST

/* --- plans ---------------------------------------------------------------------------------------------------------------------- */

/* Without static tokens the order is that of positions, however often it is made. */
START_TEST(without_static_tokens_plans_are_those_of_arkvale)
{
        for (int32_t frozen = 0; frozen < 2; frozen++)
                for (int32_t combine = 1; combine <= DCI_KV_COMBINES; combine++) {
                        dci_kv_config config = small(0.0), like = kv_small(DCI_KV_ARKVALE);
                        config.frozen_prompt = like.frozen_prompt = frozen;
                        config.combine = like.combine = combine;
                        kv_data data = kv_random(&config, 300, 301 + (uint64_t)combine);
                        dci_kv *a = kv_create(context, &config), *b = kv_create(context, &like);
                        const int64_t x = kv_begin(a, &data, 160), y = kv_begin(b, &data, 160);
                        kv_alike(a, x, b, y, &data, 160, 140, "arkvale");
                        dci_kv_destroy(a);
                        kv_end(b, &data);
                }
}
END_TEST

static const double shares[] = {0.25, 0.5, 1.0, -1.0};

/* Loops over shares. Each plan is the naive choice: static tokens as far as there is room, then the best pages of the rest. Also where
 * logits are so far apart that the softmax of most pages is 0, as that of static ones counts. */
START_TEST(plans_take_static_tokens_then_the_best_pages)
{
        for (int32_t combine = 0; combine <= DCI_KV_COMBINES; combine++) {
                dci_kv_config config = small(shares[_i]);
                config.combine = combine == 0 ? DCI_KV_COMBINE_SOFTMAX : combine;
                config.scale = combine == 0 ? 60.0 : 0.0;
                kv_data data = kv_random(&config, 260, 310);
                dci_kv *kv = kv_create(context, &config);
                const int64_t sequence = kv_begin(kv, &data, 170);
                kv_model model = kv_model_of(&config, &data, 170);
                for (size_t t = 170; t < 260; t++) {
                        kv_model_append(&model, &data, t, 1);
                        kv_seen seen = kv_decode(kv, 1, &(kv_turn){sequence, &data, t, 1});
                        kv_lawful(&seen, &config, 0, "static");
                        for (size_t layer = 0; layer < 2; layer++)
                                if (t % 10 != 9) /* the order that the plan used is still there */
                                        kv_model_check_lists(&model, &seen, 0, layer, kv_query(&data, layer, t, 0),
                                                             config.budget, false, "static");
                        kv_seen_free(&seen);
                }
                kv_model_free(&model);
                kv_end(kv, &data);
        }
}
END_TEST

/* With all of the room static a plan is static tokens alone, but for what recent tokens leave of a page. */
START_TEST(a_share_of_one_is_a_refreshed_snapkv)
{
        dci_kv_config config = small(1.0);
        kv_data data = kv_random(&config, 260, 320);
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, 170);
        for (size_t t = 170; t < 260; t++) {
                kv_seen seen = kv_decode(kv, 1, &(kv_turn){sequence, &data, t, 1});
                const dci_kv_layer *layer = kv_layer_of(kv, sequence, 0);
                size_t n_list;
                const int32_t *list = kv_list(&seen, 0, 0, 1, &n_list);
                ck_assert_uint_le(n_list, 64);
                for (size_t i = 0; i < n_list && t % 10 != 9; i++) {
                        bool found = false;
                        for (size_t s = 0; s < n_list && !found; s++) /* the best come first */
                                found = dci_kv_cluster_ids(kv, layer->batches[0], 1)[s] + 16 == list[i];
                        ck_assert_msg(found, "token %zu: %d is not one of the %zu best static ones", t, list[i],
                                      n_list);
                }
                kv_seen_free(&seen);
        }
        kv_end(kv, &data);
}
END_TEST

/* --- online ----------------------------------------------------------------------------------------------------------------------- */

/* How many of the 64 best candidates two queries have in common. */
static size_t overlap(const kv_data *data, size_t layer, size_t head, const float *first, const float *last, size_t n)
{
        double *scores = calloc(2 * n, sizeof *scores), *sorted = calloc(n, sizeof *sorted), least[2];
        size_t same = 0;
        ck_assert(scores != NULL && sorted != NULL);
        for (size_t q = 0; q < 2; q++) {
                for (size_t c = 0; c < n; c++)
                        for (size_t j = 0; j < data->dim_k; j++)
                                scores[q * n + c] += (double)(q == 0 ? first : last)[j] *
                                                     (double)kv_key(data, layer, 16 + c, head)[j];
                memcpy(sorted, scores + q * n, n * sizeof *sorted);
                qsort(sorted, n, sizeof *sorted, test_doubles_descend);
                least[q] = sorted[63];
        }
        for (size_t c = 0; c < n; c++)
                same += scores[c] >= least[0] && scores[n + c] >= least[1];
        test_free(scores, sorted);
        return same;
}

START_TEST(the_online_share_is_what_two_queries_have_in_common)
{
        dci_kv_config config = small(-1.0);
        config.dtype = DCI_F32;
        config.ring = 12; /* less than the rollback: the first one looked at is the 12th last */
        kv_data data = kv_random(&config, 130, 330);
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, 130);
        bool differ = false;
        for (size_t layer = 0; layer < 2; layer++) {
                const dci_kv_layer *of = kv_layer_of(kv, sequence, layer);
                size_t sum = 0;
                for (size_t q = 0; q < 4; q++)
                        sum += overlap(&data, layer, q / 2, kv_query(&data, layer, 130 - 12, q),
                                       kv_query(&data, layer, 129, q), of->n_grouped);
                ck_assert_uint_eq(of->n_static, sum / 4 / 8 * 8);
                ck_assert_uint_eq(of->batches[0]->n_static, of->n_static);
                differ = differ || of->n_static != 16;
        }
        ck_assert(differ);
        /* Few candidates say nothing about it. */
        const int64_t brief = kv_begin(kv, &data, 16 + 16 + 60);
        ck_assert_uint_eq(kv_layer_of(kv, brief, 0)->n_static, 16);
        kv_end(kv, &data);
}
END_TEST

/* --- forks, cuts, files -------------------------------------------------------------------------------------------------------------- */

/* Loops over shares. */
START_TEST(forks_keep_the_order_they_were_made_with)
{
        const dci_kv_config config = small(shares[_i]);
        kv_data data = kv_random(&config, 300, 340);
        dci_kv *kv = kv_create(context, &config), *alone = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, 200), other = kv_begin(alone, &data, 200);
        int64_t fork;
        kv_decode_all(kv, sequence, &data, 200, 15);
        kv_decode_all(alone, other, &data, 200, 15);
        ck_ok(dci_kv_fork(kv, sequence, 215, &fork));
        const dci_kv_clusters *shared = kv_layer_of(kv, sequence, 0)->batches[0];
        ck_assert_ptr_eq(kv_layer_of(kv, fork, 0)->batches[0], shared);
        kv_decode_all(kv, sequence, &data, 215, 20); /* two new orders */
        ck_assert_ptr_ne(kv_layer_of(kv, sequence, 0)->batches[0], shared);
        ck_assert_ptr_eq(kv_layer_of(kv, fork, 0)->batches[0], shared);
        kv_alike(kv, fork, alone, other, &data, 215, 40, "a fork next to a life without one");
        ck_ok(dci_kv_close(kv, sequence));
        kv_alike(kv, fork, alone, other, &data, 255, 20, "a fork alone");
        ck_ok(dci_kv_close(kv, fork));
        ck_assert_uint_eq(kv_info(kv).summary_bytes, 0);
        dci_kv_destroy(kv);
        kv_end(alone, &data);
}
END_TEST

START_TEST(cuts_within_the_rollback_keep_the_order)
{
        const dci_kv_config config = small(0.5);
        kv_data data = kv_random(&config, 300, 350);
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, 200);
        kv_decode_all(kv, sequence, &data, 200, 40); /* the order ends with the rollback now or then */
        const dci_kv_clusters *batch = kv_layer_of(kv, sequence, 0)->batches[0];
        const size_t n = kv_layer_of(kv, sequence, 0)->n_grouped;
        ck_ok(dci_kv_truncate(kv, sequence, 240 - config.rollback));
        ck_assert_ptr_eq(kv_layer_of(kv, sequence, 0)->batches[0], batch);
        ck_assert_uint_eq(kv_layer_of(kv, sequence, 0)->n_grouped, n);
        kv_model model = kv_model_of(&config, &data, 240 - config.rollback);
        for (size_t t = 240 - config.rollback; t < 249 - config.rollback; t++) {
                kv_model_append(&model, &data, t, 1);
                kv_seen seen = kv_decode(kv, 1, &(kv_turn){sequence, &data, t, 1});
                kv_lawful(&seen, &config, 0, "cut");
                kv_model_check_lists(&model, &seen, 0, 0, kv_query(&data, 0, t, 0), config.budget, false, "cut");
                kv_seen_free(&seen);
        }
        kv_model_free(&model);
        /* Deeper, an order goes with its tokens, and pages are by position until the next one. */
        ck_ok(dci_kv_truncate(kv, sequence, 150));
        ck_assert_uint_eq(kv_layer_of(kv, sequence, 0)->n_batches, 0);
        kv_decode_all(kv, sequence, &data, 150, 1);
        ck_assert_uint_eq(kv_layer_of(kv, sequence, 0)->n_batches, 1);
        kv_decode_all(kv, sequence, &data, 151, 10);
        ck_assert_uint_eq(kv_layer_of(kv, sequence, 0)->batches[0]->n_static, 32);
        kv_end(kv, &data);
}
END_TEST

/* Loops over shares. */
START_TEST(files_hold_the_order)
{
        const dci_kv_config config = small(shares[_i]);
        kv_data data = kv_random(&config, 300, 360);
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, 200);
        int64_t loaded;
        kv_decode_all(kv, sequence, &data, 200, 37);
        ck_ok(dci_kv_save(kv, sequence, 237, scratch_path("order")));
        ck_ok(dci_kv_load(kv, scratch_path("order"), &loaded));
        for (size_t layer = 0; layer < 2; layer++) {
                const dci_kv_layer *a = kv_layer_of(kv, sequence, layer), *b = kv_layer_of(kv, loaded, layer);
                ck_assert_uint_eq(a->n_batches, b->n_batches);
                ck_assert_uint_eq(a->n_static, b->n_static);
                ck_assert_uint_eq(a->batches[0]->n_static, b->batches[0]->n_static);
                for (size_t h = 0; h < 2; h++)
                        ck_assert_mem_eq(dci_kv_cluster_ids(kv, a->batches[0], h),
                                         dci_kv_cluster_ids(kv, b->batches[0], h), a->batches[0]->n * sizeof(int32_t));
        }
        for (size_t t = 237; t < 240;
             t++) { /* then the first one has a new order, and the other waits for its queries */
                const kv_turn turns[] = {{sequence, &data, t, 1}, {loaded, &data, t, 1}};
                kv_seen seen = kv_decode(kv, 2, turns);
                kv_same(&seen, 0, &seen, 1, "loaded");
                kv_seen_free(&seen);
        }
        kv_end(kv, &data);
}
END_TEST

/* --- the same ---------------------------------------------------------------------------------------------------------------------- */

START_TEST(orders_do_not_depend_on_threads)
{
        dci_kv_config config = kv_config(DCI_KV_PRKV, 2, 3, 2, TRACE_DIM);
        config.period = 8;
        config.static_share = -1.0;
        kv_data data = kv_trace(&config, 1500);
        dci_context *one = test_context(1), *four = test_context(4);
        dci_kv *a = kv_create(one, &config), *b = kv_create(four, &config);
        const int64_t x = kv_begin(a, &data, 1300), y = kv_begin(b, &data, 1300);
        kv_alike(a, x, b, y, &data, 1300, 60, "threads");
        dci_kv_destroy(a);
        dci_kv_destroy(b);
        dci_context_destroy(one);
        dci_context_destroy(four);
        kv_data_free(&data);
}
END_TEST

/* Loops over shares. */
START_TEST(an_order_can_be_had)
{
        const dci_kv_config config = small(shares[_i]);
        kv_data data = kv_random(&config, 300, 365);
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, 200);
        kv_decode_all(kv, sequence, &data, 200, 39); /* pages by position have come after */
        const dci_kv_layer *layer = kv_layer_of(kv, sequence, 1);
        size_t n = 0, n_static = 0, at = 0;
        int32_t positions[300];
        ck_ok(dci_kv_order(kv, 1, sequence, 1, 0, NULL, &n, NULL));
        ck_assert_uint_eq(n, layer->n_grouped);
        ck_ok(dci_kv_order(kv, 1, sequence, 1, 300, positions, &n, &n_static));
        ck_assert_uint_eq(n_static, layer->batches[0]->n_static);
        ck_assert_uint_gt(layer->n_batches, 1);
        for (size_t g = 0; at < n; g++) {
                int32_t room[DCI_KV_TILE];
                size_t here;
                const int32_t *ids = kv->stages->group.members(kv, layer, 1, g, n, room, &here);
                for (size_t i = 0; i < here; i++)
                        ck_assert_int_eq(positions[at++], ids[i] + 16);
        }
        ck_refused(dci_kv_order(kv, 1, sequence, 1, n - 1, positions, &n, NULL), DCI_ERR_INVALID, "room for");
        ck_refused(dci_kv_order(kv, 2, sequence, 1, 300, positions, &n, NULL), DCI_ERR_INVALID, "layer is 2");
        ck_refused(dci_kv_order(kv, 1, sequence, 2, 300, positions, &n, NULL), DCI_ERR_INVALID, "kv_head is 2");
        ck_refused(dci_kv_order(kv, 1, sequence, 1, 300, positions, NULL, NULL), DCI_ERR_INVALID, "out_n is NULL");
        ck_refused(dci_kv_order(kv, 1, 99, 1, 300, positions, &n, NULL), DCI_ERR_NOT_FOUND, "no sequence 99");
        dci_kv_destroy(kv);
        const dci_kv_config like = kv_small(DCI_KV_ARKVALE);
        kv = kv_create(context, &like);
        ck_refused(dci_kv_order(kv, 0, kv_open(kv), 0, 300, positions, &n, NULL), DCI_ERR_INVALID, "group is 2");
        kv_end(kv, &data);
}
END_TEST

/* --- bad input ---------------------------------------------------------------------------------------------------------------------- */

START_TEST(bad_shares_are_refused)
{
        dci_kv *none = NULL;
        static const double bad[] = {1.5, -0.25, -2.0, (double)INFINITY, (double)NAN};
        for (size_t i = 0; i < COUNT(bad); i++) {
                const dci_kv_config config = small(bad[i]);
                ck_refused(dci_kv_create(context, &config, &none), DCI_ERR_INVALID, "static_share is");
                ck_refused(dci_kv_create(context, &config, &none), DCI_ERR_INVALID, "0 to 1, or -1 for online");
        }
        dci_kv_config config = small(0.25);
        config.period = 0;
        ck_refused(dci_kv_create(context, &config, &none), DCI_ERR_INVALID, "period is 0");
        config = small(0.25);
        config.ring = 0;
        ck_refused(dci_kv_create(context, &config, &none), DCI_ERR_INVALID, "ring is 0");
        config = small(0.25);
        config.reorder_delay = 11;
        ck_refused(dci_kv_create(context, &config, &none), DCI_ERR_INVALID,
                   "reorder_delay is 11, expected 0 to period 10");
        config = kv_small(DCI_KV_ARKVALE);
        config.reorder_delay = 1;
        ck_refused(dci_kv_create(context, &config, &none), DCI_ERR_INVALID, "only group REORDERED has orders");
        config.reorder_delay = DCI_KV_PRESET;
        config.select = DCI_KV_SELECT_STATIC;
        ck_refused(dci_kv_create(context, &config, &none), DCI_ERR_INVALID,
                   "select STATIC cannot be combined with group PAGE");
        config = small(0.25);
        config.tail = DCI_KV_TAIL_SUMS;
        ck_refused(dci_kv_create(context, &config, &none), DCI_ERR_INVALID,
                   "tail SUMS cannot be combined with group REORDERED");
        ck_assert_ptr_null(none);
}
END_TEST

/* A prompt of n tokens without observed queries. */
static dci_status unobserved(dci_kv *kv, const kv_data *data, size_t n)
{
        const int64_t sequence = kv_open(kv);
        const kv_turn turn = {sequence, data, 0, n};
        kv_reserve(kv, 1, &turn);
        kv_append(kv, 0, 1, &turn);
        const dci_status status = dci_kv_end_prompt(kv, 0, sequence, 0, NULL, 0);
        ck_ok(dci_kv_close(kv, sequence));
        return status;
}

START_TEST(an_empty_observation_window_is_refused)
{
        dci_kv_config config = small(0.25);
        kv_data data = kv_random(&config, 200, 370);
        dci_kv *kv = kv_create(context, &config);
        ck_refused(unobserved(kv, &data, 200), DCI_ERR_INVALID, "observed queries, but there are none");
        ck_ok(unobserved(kv, &data, 60)); /* all may be attended to */
        dci_kv_destroy(kv);
        config.static_share = 0.0;
        kv = kv_create(context, &config);
        ck_ok(unobserved(kv, &data, 200)); /* nobody asks for them */
        kv_end(kv, &data);
}
END_TEST

START_TEST(observed_queries_are_numbers)
{
        const dci_kv_config config = small(0.25);
        kv_data data = kv_random(&config, 200, 380);
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequence = kv_open(kv);
        const kv_turn turn = {sequence, &data, 0, 200};
        float *queries = calloc(3 * 4 * 16, sizeof *queries);
        ck_assert_ptr_nonnull(queries);
        queries[4 * 16 + 5] = NAN;
        kv_reserve(kv, 1, &turn);
        kv_append(kv, 0, 1, &turn);
        ck_refused(dci_kv_end_prompt(kv, 0, sequence, 3, queries, 16), DCI_ERR_NUMBER, "position 1 and head 0");
        queries[4 * 16 + 5] = 0.0f;
        ck_ok(dci_kv_end_prompt(kv, 0, sequence, 3, queries, 16)); /* zeros: all candidates are as important */
        kv_append(kv, 1, 1, &turn);
        kv_prompt(kv, 1, sequence, &data, 200);
        kv_step_end(kv, 1, &turn);
        ck_ok(dci_kv_wait(kv, sequence));
        for (int32_t i = 0; i < 16; i++)
                ck_assert_int_eq(dci_kv_cluster_ids(kv, kv_layer_of(kv, sequence, 0)->batches[0], 0)[i], i);
        free(queries);
        kv_end(kv, &data);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("kv static");
        TCase *tcase = test_case_with(suite, "static", 60, context_open_2, context_close);
        tcase_add_checked_fixture(tcase, scratch_open, scratch_close);
        tcase_add_loop_test(tcase, orders_are_those_of_the_naive_model, 0, COUNT(orders));
        tcase_add_loop_test(tcase, orders_are_made_while_steps_go_on, 0, COUNT(delays));
        tcase_add_test(tcase, an_order_in_the_making_survives_its_sequence_alone);
        tcase_add_test(tcase, an_order_is_made_before_its_last_block_is_replaced);
        tcase_add_test(tcase, without_static_tokens_plans_are_those_of_arkvale);
        tcase_add_loop_test(tcase, plans_take_static_tokens_then_the_best_pages, 0, COUNT(shares));
        tcase_add_test(tcase, a_share_of_one_is_a_refreshed_snapkv);
        tcase_add_test(tcase, the_online_share_is_what_two_queries_have_in_common);
        tcase_add_loop_test(tcase, forks_keep_the_order_they_were_made_with, 0, COUNT(shares));
        tcase_add_test(tcase, cuts_within_the_rollback_keep_the_order);
        tcase_add_loop_test(tcase, files_hold_the_order, 0, COUNT(shares));
        tcase_add_loop_test(tcase, an_order_can_be_had, 0, COUNT(shares));
        tcase_add_test(tcase, orders_do_not_depend_on_threads);
        tcase_add_test(tcase, bad_shares_are_refused);
        tcase_add_test(tcase, an_empty_observation_window_is_refused);
        tcase_add_test(tcase, observed_queries_are_numbers);
        return test_main(suite);
}
