/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Groups that are listed: when they are formed, what is shared, cut and saved of them, and how they fill a budget. */
#include "tests/common.h"

#include <math.h>
#include <string.h>

#include "core/file.h"
#include "kv/clusters.h"
#include "kv/lookup.h"
#include "tests/context_fixture.h"
#include "tests/kv_model.h"
#include "tests/persist_fixture.h"
#include "tests/persist_seal.h"
#include "tests/scratch.h"

/* Clusters of 8, and 32 tokens for more of them; the budget leaves those be recent. */
static dci_kv_config small(int32_t preset)
{
        dci_kv_config config = kv_small(preset);
        config.cluster_tokens = 8;
        config.cluster_every = 32;
        config.budget = 128;
        return config;
}

/* --- when they are formed ---------------------------------------------------------------------------------------------------- */

START_TEST(tokens_are_grouped_so_many_at_a_time)
{
        const dci_kv_config config = small(DCI_KV_CLUSTERKV);
        kv_data data = kv_random(&config, 420, 1);
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, 200);
        const size_t young = kv_info(kv).sink + kv_info(kv).rollback;
        for (size_t t = 200; t < 420; t++) {
                const dci_kv_layer *layer = kv_layer_of(kv, sequence, 1);
                const size_t later = (t - 200) / 32;
                ck_assert_uint_eq(layer->n_batches, 1 + later);
                ck_assert_uint_eq(kv_sequence_info(kv, sequence).n_batches, 1 + later);
                ck_assert_uint_eq(kv_sequence_info(kv, sequence).n_early, 0);
                ck_assert_uint_eq(layer->n_grouped, 200 - young + 32 * later);
                for (size_t b = 0; b < layer->n_batches; b++) {
                        const dci_kv_clusters *batch = layer->batches[b];
                        ck_assert_uint_eq(batch->n, b == 0 ? 200 - young : 32);
                        for (size_t h = 0; h < 2; h++)
                                test_hold(batch->heads[h].n_groups > 0 && batch->heads[h].n_groups <= batch->n / 8);
                }
                kv_decode_all(kv, sequence, &data, t, 1);
        }
        kv_end(kv, &data);
}
END_TEST

/* Without maintenance the same groups come, at the latest when recent tokens take half of the budget. */
START_TEST(late_maintenance_gives_the_same_groups)
{
        dci_kv_config config = small(DCI_KV_RETROINFER);
        config.budget = 160; /* half of it holds rollback, 32 and a few */
        kv_data data = kv_random(&config, 400, 2);
        dci_kv *often = kv_create(context, &config), *seldom = kv_create(context, &config);
        const int64_t a = kv_begin(often, &data, 180), b = kv_begin(seldom, &data, 180);
        for (size_t t = 180; t < 400; t++) {
                const kv_turn turn = {b, &data, t, 1};
                kv_decode_all(often, a, &data, t, 1);
                kv_feed(seldom, 1, &turn);
                const dci_kv_layer *late = kv_layer_of(seldom, b, 0);
                ck_assert_uint_le(late->n - 4 - late->n_grouped, config.budget / 2 + 1);
        }
        ck_ok(dci_kv_maintain(seldom, 0, NULL));
        const kv_turn turns[] = {{a, &data, 399, 0}, {b, &data, 399, 0}};
        kv_seen x = kv_look(often, 1, &turns[0]), y = kv_look(seldom, 1, &turns[1]);
        kv_same_and_free(&x, &y, "late");
        dci_kv_destroy(often);
        kv_end(seldom, &data);
}
END_TEST

/* Where the budget does not hold that many, fewer are grouped: for the time being, until so many are there. A sequence whose budget
 * waited for them has the same clusters then; a fork from before keeps those that it has. */
START_TEST(a_small_budget_groups_early)
{
        dci_kv_config config = small(DCI_KV_CLUSTERKV);
        config.cluster_every = 300;
        config.budget = 80;
        kv_data data = kv_random(&config, 540, 3);
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, 150);
        int64_t fork = -1;
        size_t most = 0;
        for (size_t t = 150; t < 540; t++) {
                const dci_kv_layer *layer = kv_layer_of(kv, sequence, 0);
                const bool whole = layer->n_batches > 1 && layer->batches[1]->n == 300;
                for (size_t b = whole ? 2 : 1; b < layer->n_batches; b++) {
                        const size_t k = layer->batches[b]->n / 8;
                        test_hold(layer->batches[b]->n <= 40 &&
                                  layer->batches[b]->heads[0].n_groups <= (k > 0 ? k : 1));
                }
                ck_assert_uint_eq(kv_sequence_info(kv, sequence).n_early, layer->n_batches - 1 - whole);
                ck_assert_uint_le(layer->n - kv_info(kv).sink - layer->n_grouped, 41);
                ck_assert_uint_eq(whole, layer->n >= 150 + 300);
                most = layer->n_batches > most ? layer->n_batches : most;
                if (t == 440)
                        ck_ok(dci_kv_fork(kv, sequence, t, &fork));
                kv_decode_all(kv, sequence, &data, t, 1);
        }
        ck_assert_uint_gt(most, 5);
        ck_assert_uint_eq(kv_layer_of(kv, fork, 0)->n_batches, most);
        config.budget = 1024;
        dci_kv *patient = kv_create(context, &config);
        const int64_t other = kv_begin(patient, &data, 150);
        kv_decode_all(patient, other, &data, 150, 300);
        for (size_t l = 0; l < config.n_layers; l++) {
                const dci_kv_clusters *x = kv_layer_of(kv, sequence, l)->batches[1],
                                      *y = kv_layer_of(patient, other, l)->batches[1];
                for (size_t h = 0; h < config.n_kv_heads; h++) {
                        ck_assert_uint_eq(x->heads[h].n_groups, y->heads[h].n_groups);
                        ck_assert_mem_eq(dci_kv_cluster_ids(kv, x, h), dci_kv_cluster_ids(patient, y, h),
                                         300 * sizeof(int32_t));
                        ck_assert_mem_eq(dci_kv_cluster_offsets(kv, x, h), dci_kv_cluster_offsets(patient, y, h),
                                         (x->heads[h].n_groups + 1) * sizeof(int32_t));
                }
        }
        dci_kv_destroy(patient);
        kv_end(kv, &data);
}
END_TEST

/* --- shared and cut ------------------------------------------------------------------------------------------------------------ */

START_TEST(forks_share_batches_and_cuts_drop_them)
{
        const dci_kv_config config = small(DCI_KV_RETROINFER);
        kv_data data = kv_random(&config, 300, 4);
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, 200);
        kv_decode_all(kv, sequence, &data, 200, 80);
        const size_t bytes = kv_info(kv).summary_bytes, young = kv_info(kv).sink + config.rollback;
        ck_assert_uint_gt(bytes, 0);
        ck_assert_uint_eq(kv_layer_of(kv, sequence, 0)->n_batches, 3);
        int64_t whole, part;
        ck_ok(dci_kv_fork(kv, sequence, 280, &whole));
        ck_ok(dci_kv_fork(kv, sequence, 200 + 20, &part)); /* through the second batch */
        ck_assert_uint_eq(kv_info(kv).summary_bytes, bytes);
        ck_assert_ptr_eq(kv_layer_of(kv, whole, 0)->batches[2], kv_layer_of(kv, sequence, 0)->batches[2]);
        ck_assert_uint_eq(kv_sequence_info(kv, part).n_grouped, 200 - young + 32);
        ck_ok(dci_kv_truncate(kv, whole, 280 - config.rollback)); /* within the rollback: groups stay */
        ck_assert_uint_eq(kv_sequence_info(kv, whole).n_grouped, 200 - young + 64);
        ck_ok(dci_kv_truncate(kv, whole, 205)); /* the prompt's batch alone is left */
        ck_assert_uint_eq(kv_sequence_info(kv, whole).n_grouped, 200 - young);
        ck_ok(dci_kv_truncate(kv, whole, 150)); /* not even that */
        ck_assert_uint_eq(kv_sequence_info(kv, whole).n_grouped, 0);
        ck_assert_uint_eq(kv_info(kv).summary_bytes, bytes);
        ck_ok(dci_kv_close(kv, sequence));
        ck_ok(dci_kv_close(kv, part));
        ck_assert_uint_eq(kv_info(kv).summary_bytes, 0);
        kv_decode_all(kv, whole, &data, 150, 100);
        ck_assert_uint_gt(kv_sequence_info(kv, whole).n_grouped, 150);
        kv_end(kv, &data);
}
END_TEST

/* Tokens that a truncation within the rollback brought back into the window are recent, and not chosen nor estimated as well. */
START_TEST(members_in_the_window_are_not_attended_to_twice)
{
        dci_kv_config config = small(_i == 0 ? DCI_KV_CLUSTERKV : DCI_KV_RETROINFER);
        config.dtype = DCI_F32;
        config.window = 40;
        config.rollback = 44;
        config.estimate_share = 1.0;
        kv_data data = kv_random(&config, 420, 5);
        dci_kv *kv = kv_create(context, &config);
        for (size_t back = 0; back <= 44; back += 4) {
                const int64_t sequence = kv_begin(kv, &data, 400);
                kv_model model = kv_model_of(&config, &data, 400 - back);
                ck_ok(dci_kv_truncate(kv, sequence, 400 - back));
                kv_seen seen = kv_look(kv, 1, &(kv_turn){sequence, &data, 400 - back, 0});
                kv_lawful(&seen, &config, 0, "window");
                for (size_t layer = 0; layer < config.n_layers; layer++) {
                        const float *queries = kv_query(&data, layer, 400 - back, 0);
                        kv_model_check_lists(&model, &seen, 0, layer, queries, config.budget, false, "window");
                        kv_model_check_out(&model, &seen, 0, layer, queries, "window");
                }
                kv_seen_free(&seen);
                kv_model_free(&model);
                ck_ok(dci_kv_close(kv, sequence));
        }
        kv_end(kv, &data);
}
END_TEST

/* Clusters all of whose members are in the window again take no place of others, however well they rank. Loops over combine. */
START_TEST(clusters_in_the_window_take_no_place)
{
        dci_kv_config config = small(DCI_KV_CLUSTERKV);
        config.dtype = DCI_F32;
        config.cluster_tokens = 1;
        config.combine = DCI_KV_COMBINE_SOFTMAX + _i;
        config.window = 40;
        config.rollback = 44;
        kv_data data = kv_random(&config, 420, 12);
        float *stored = data.stored_keys;
        for (size_t layer = 0; layer < 2; layer++)
                for (size_t t = 320; t < 420; t++) /* the last ones rank first */
                        for (size_t h = 0; h < 2; h++)
                                for (size_t j = 0; j < 16; j++) {
                                        const size_t at = ((layer * 420 + t) * 2 + h) * 16 + j;
                                        data.keys[at] += kv_query(&data, layer, 360, 2 * h)[j];
                                        stored[at] = data.keys[at];
                                }
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, 400);
        ck_ok(dci_kv_truncate(kv, sequence, 360));
        kv_model model = kv_model_of(&config, &data, 360);
        kv_seen seen = kv_look(kv, 1, &(kv_turn){sequence, &data, 360, 0});
        kv_lawful(&seen, &config, 0, "no place");
        for (size_t layer = 0; layer < config.n_layers; layer++)
                kv_model_check_lists(&model, &seen, 0, layer, kv_query(&data, layer, 360, 0), config.budget, false,
                                     "no place");
        kv_seen_free(&seen);
        kv_model_free(&model);
        kv_end(kv, &data);
}
END_TEST

/* --- which there are ------------------------------------------------------------------------------------------------------------ */

START_TEST(clusters_are_cut_into_parts)
{
        dci_kv_config config = small(DCI_KV_CLUSTERKV);
        config.cluster_tokens = config.cluster_every = 40;
        config.cluster_most = 7;
        kv_data data = kv_random(&config, 400, 6);
        dci_kv *kv = kv_create(context, &config);
        const dci_kv_layer *layer = kv_layer_of(kv, kv_begin(kv, &data, 400), 0);
        const dci_kv_clusters *batch = layer->batches[0];
        for (size_t h = 0; h < 2; h++) {
                const int32_t *offsets = dci_kv_cluster_offsets(kv, batch, h);
                ck_assert_uint_ge(batch->heads[h].n_groups, batch->n / 7);
                for (size_t g = 0; g < batch->heads[h].n_groups; g++)
                        test_hold(offsets[g + 1] - offsets[g] >= 1 && offsets[g + 1] - offsets[g] <= 7);
        }
        kv_end(kv, &data);
}
END_TEST

/* Keys too long for k-means lie in groups by position, and rows that are all alike or zero in one. */
START_TEST(keys_that_have_no_clusters_have_groups)
{
        dci_kv_config config = small(DCI_KV_RETROINFER);
        config.dtype = DCI_F32;
        config.scale = 1e-18;
        kv_data data = kv_random(&config, 300, 7);
        float *stored = data.stored_keys;
        for (size_t way = 0; way < 2; way++) {
                for (size_t i = 0; i < 2 * 300 * 2 * 16; i++)
                        data.keys[i] = stored[i] = way == 0 ? (i % 3 == 0 ? 3e18f : 1e18f) : 0.0f;
                dci_kv *kv = kv_create(context, &config);
                const int64_t sequence = kv_begin(kv, &data, 290);
                kv_model model = kv_model_of(&config, &data, 291);
                kv_seen seen = kv_decode(kv, 1, &(kv_turn){sequence, &data, 290, 1});
                kv_lawful(&seen, &config, 0, "no clusters");
                const dci_kv_clusters *batch = kv_layer_of(kv, sequence, 0)->batches[0];
                test_hold(way == 0 ? batch->heads[0].n_groups == batch->n / 8 : batch->heads[0].n_groups >= 1);
                kv_seen_free(&seen);
                kv_model_free(&model);
                dci_kv_destroy(kv);
        }
        kv_data_free(&data);
}
END_TEST

/* --- how they fill a budget ------------------------------------------------------------------------------------------------------- */

/* Any summary goes with clusters, and any way to combine; the naive choice is the same. Loops over summaries. */
START_TEST(plans_are_the_naive_choice)
{
        for (int32_t combine = 1; combine <= DCI_KV_COMBINES; combine++)
                for (int32_t tail = DCI_KV_TAIL_DROP; tail <= DCI_KV_TAIL_SUMS; tail++) {
                        dci_kv_config config = small(DCI_KV_CLUSTERKV);
                        config.dtype = combine == 1 ? DCI_F32 : DCI_F16;
                        config.summary = _i < 3 ? DCI_KV_SUMMARY_MEAN + _i : DCI_KV_SUMMARY_MEAN_STD;
                        config.combine = combine;
                        config.tail = tail;
                        kv_data data = kv_random(&config, 420, 8);
                        dci_kv *kv = kv_create(context, &config);
                        const int64_t sequence = kv_begin(kv, &data, 300);
                        kv_model model = kv_model_of(&config, &data, 300);
                        for (size_t t = 300; t < 420; t++) {
                                kv_seen seen = kv_decode(kv, 1, &(kv_turn){sequence, &data, t, 1});
                                kv_model_append(&model, &data, t, 1);
                                kv_lawful(&seen, &config, 0, "clusters");
                                for (size_t layer = 0; layer < config.n_layers; layer++) {
                                        const float *queries = kv_query(&data, layer, t, 0);
                                        kv_model_check_lists(&model, &seen, 0, layer, queries, config.budget, false,
                                                             "clusters");
                                        kv_model_check_out(&model, &seen, 0, layer, queries, "clusters");
                                }
                                kv_seen_free(&seen);
                        }
                        kv_model_free(&model);
                        kv_end(kv, &data);
                }
}
END_TEST

/* Heads that rank for themselves: for presets of tokens and pages, too. */
START_TEST(lists_of_heads_are_taken_in_turns)
{
        static const int32_t presets[] = {DCI_KV_TOPK, DCI_KV_PAGEMEAN, DCI_KV_QUEST, DCI_KV_ARKVALE};
        dci_kv_config config = kv_small(presets[_i]);
        config.combine = DCI_KV_COMBINE_EACH;
        kv_data data = kv_random(&config, 300, 9);
        dci_kv *kv = kv_create(context, &config);
        const int64_t sequence = kv_begin(kv, &data, 260);
        kv_model model = kv_model_of(&config, &data, 260);
        for (size_t t = 260; t < 300; t++) {
                kv_seen seen = kv_decode(kv, 1, &(kv_turn){sequence, &data, t, 1});
                kv_model_append(&model, &data, t, 1);
                kv_lawful(&seen, &config, 0, "in turns");
                kv_model_check_lists(&model, &seen, 0, 0, kv_query(&data, 0, t, 0), config.budget, false, "in turns");
                kv_seen_free(&seen);
        }
        kv_model_free(&model);
        kv_end(kv, &data);
}
END_TEST

/* The log sums of all tails grow with the share of clusters that is estimated, from nothing but the one that is cut. */
START_TEST(more_is_estimated_of_more_clusters)
{
        static const double shares[] = {0.01, 0.1, 0.3, 0.5};
        double last = -(double)INFINITY;
        for (size_t i = 0; i < COUNT(shares); i++) {
                dci_kv_config config = small(DCI_KV_RETROINFER);
                config.estimate_share = shares[i];
                kv_data data = kv_random(&config, 400, 10);
                dci_kv *kv = kv_create(context, &config);
                kv_seen seen = kv_look(kv, 1, &(kv_turn){kv_begin(kv, &data, 400), &data, 399, 0});
                double sum = 0.0;
                for (size_t q = 0; q < 4; q++)
                        sum += exp((double)seen.plans[0].tail_lse[q]);
                ck_assert_msg(sum > last, "share %g: %g, before %g", shares[i], sum, last);
                last = sum;
                kv_seen_free(&seen);
                kv_end(kv, &data);
        }
}
END_TEST

/* Without a choice nothing is ranked that a share could be the best of. */
START_TEST(without_a_choice_all_clusters_are_estimated)
{
        static const double shares[] = {1.0, 0.01, 0.3};
        float wanted[4] = {0};
        for (size_t i = 0; i < COUNT(shares); i++) {
                dci_kv_config config = small(DCI_KV_RETROINFER);
                config.select = DCI_KV_SELECT_NONE;
                config.estimate_share = shares[i];
                kv_data data = kv_random(&config, 400, 13);
                dci_kv *kv = kv_create(context, &config);
                kv_seen seen = kv_look(kv, 1, &(kv_turn){kv_begin(kv, &data, 400), &data, 399, 0});
                ck_assert_int_eq(seen.plans[0].counts[0], 0);
                if (i == 0)
                        memcpy(wanted, seen.plans[0].tail_lse, sizeof wanted);
                ck_assert_mem_eq(seen.plans[0].tail_lse, wanted, sizeof wanted);
                kv_seen_free(&seen);
                kv_end(kv, &data);
        }
}
END_TEST

/* One cluster, all keys and values of which have much in common. */
typedef struct lone {
        dci_kv_config config;
        kv_data data;
        size_t first, end; /* its tokens */
} lone;

/* What rounding a mean to the rows' format may change in a product with `weights` (NULL: in one coordinate, the most). */
static double rounding(const double *mean, const float *weights, size_t dim)
{
        double sum = 0.0, most = 0.0;
        for (size_t j = 0; j < dim; j++) {
                const double of = ldexp(fabs(mean[j]), -8);
                sum += weights != NULL ? of * fabs((double)weights[j]) : 0.0;
                most = fmax(most, of);
        }
        return weights != NULL ? sum : most;
}

/* The tail of a plan that left r of its tokens, next to their mean score and their mean value. */
static void check_rest(const lone *of, const kv_seen *seen, size_t layer, size_t q, size_t r)
{
        const dci_kv_config *c = &of->config;
        const size_t head = q / 2, dim = c->dim_k;
        const float *query = kv_query(&of->data, layer, of->data.n - 1, q);
        double key[16] = {0}, value[16] = {0}, left_value[16] = {0}, score = 0.0;
        size_t n_list, n = 0;
        const int32_t *list = kv_list(seen, layer, 0, head, &n_list);
        ck_assert_uint_eq(n_list, of->end - of->first - r);
        for (size_t t = of->first, at = 0; t < of->end; t++) {
                const bool left = at == n_list || (size_t)list[at] != t;
                const float *k = kv_key(&of->data, layer, t, head), *v = kv_value(&of->data, layer, t, head);
                at += !left;
                n += left;
                for (size_t j = 0; j < dim; j++) {
                        key[j] += (double)k[j] / (double)(of->end - of->first);
                        value[j] += (double)v[j] / (double)(of->end - of->first);
                        left_value[j] += left ? (double)v[j] / (double)r : 0.0;
                        score += left ? 0.25 * (double)query[j] * (double)k[j] / (double)r : 0.0;
                }
        }
        ck_assert_uint_eq(n, r);
        const double off = (double)seen->plans[layer].tail_lse[q] - score - log((double)r);
        ck_assert_msg(fabs(off) <= 2 * 0.25 * rounding(key, query, dim) + 1e-3, "%zu left, head %zu: off by %g", r, q,
                      off);
        for (size_t j = 0; j < dim; j++)
                ck_assert_double_eq_tol((double)seen->plans[layer].tail_out[q * dim + j], left_value[j],
                                        2 * rounding(value, NULL, dim) + 1e-3);
}

/* Whatever is left of a cluster, its term is that of those tokens' mean key, within twice the rounding of the cluster's. Nearly nothing may be
 * left of a large one: then the cluster's own mean says little about it. */
START_TEST(the_rest_of_a_cluster_is_its_own_mean)
{
        enum { SIZE = 600 };
        static const size_t rests[] = {1, 2, 3, 5, 33, 100, 299, 300, 301, 450, 590};
        lone of = {.config = small(DCI_KV_RETROINFER)};
        dci_kv_config *c = &of.config;
        c->dtype = DCI_BF16;
        c->cluster_tokens = c->cluster_every = 2 * SIZE;
        c->cluster_segment = 4 * SIZE;
        c->estimate_share = 1.0;
        of.data = kv_random(c, 4 + SIZE + c->rollback, 14);
        for (size_t i = 3; i < of.data.n * 2 * 2 * 16; i += 16) {
                of.data.keys[i] += 30.0f;
                of.data.values[i] -= 30.0f;
        }
        kv_data_store(&of.data);
        for (size_t i = 0; i < COUNT(rests); i++) {
                c->budget = 4 + c->window + SIZE - rests[i];
                dci_kv *kv = kv_create(context, c);
                const int64_t sequence = kv_begin(kv, &of.data, of.data.n);
                kv_seen seen = kv_look(kv, 1, &(kv_turn){sequence, &of.data, of.data.n - 1, 0});
                of.first = (size_t)seen.plans[0].sink_end[0];
                of.end = (size_t)seen.plans[0].recent_begin[0];
                ck_assert_uint_eq(kv_layer_of(kv, sequence, 0)->batches[0]->heads[0].n_groups, 1);
                for (size_t q = 0; q < 2 * 4; q++)
                        check_rest(&of, &seen, q / 4, q % 4, rests[i]);
                kv_seen_free(&seen);
                dci_kv_destroy(kv);
        }
        kv_data_free(&of.data);
}
END_TEST

START_TEST(figures_are_of_ids_and_rows)
{
        dci_kv_config config = kv_small(DCI_KV_CLUSTERKV);
        dci_kv *kv = kv_create(context, &config); /* 16 f16 and an offset for 80 tokens */
        ck_assert_double_eq_tol(kv_info(kv).resident_token_bytes, 4.0 + 36.0 / 80.0, 1e-9);
        dci_kv_destroy(kv);
        config = kv_small(DCI_KV_RETROINFER);
        kv = kv_create(context, &config); /* and a mean value */
        ck_assert_double_eq_tol(kv_info(kv).resident_token_bytes, 4.0 + 68.0 / 16.0, 1e-9);
        dci_kv_destroy(kv);
}
END_TEST

/* --- files -------------------------------------------------------------------------------------------------------------------------- */

/* Words of the section 'groups' changed, sums made good again: what is no grouping is refused. */
START_TEST(files_without_sound_groups_are_refused)
{
        const dci_kv_config config = small(DCI_KV_CLUSTERKV);
        kv_data data = kv_random(&config, 300, 11);
        dci_kv *kv = kv_create(context, &config);
        const int64_t saved = kv_begin(kv, &data, 200);
        kv_decode_all(kv, saved, &data, 200, 40);
        ck_ok(dci_kv_save(kv, saved, 240, scratch_path("whole")));
        size_t n;
        unsigned char *bytes = scratch_get("whole", &n);
        size_t n_words, refused = 0, tried = 0;
        const persist_bytes file = {bytes, n};
        unsigned char *section = persist_section(&file, "groups", &n_words);
        ck_assert_ptr_nonnull(section);
        n_words /= 4;
        for (size_t w = 0; w < n_words; w++) {
                unsigned char *word = section + 4 * w;
                const uint32_t old = dci_load_le32(word);
                const uint32_t wrong[] = {0, old + 1, old - 1, UINT32_MAX, 0x7fffffff};
                for (size_t i = 0; i < COUNT(wrong); i++) {
                        int64_t loaded = -1;
                        if (wrong[i] == old)
                                continue;
                        dci_store_le32(word, wrong[i]);
                        persist_reseal(&file);
                        scratch_put("wrong", bytes, n);
                        const dci_status status = dci_kv_load(kv, scratch_path("wrong"), &loaded);
                        ck_assert_msg(status == DCI_ERR_FORMAT, "word %zu, %u for %u: %s", w, wrong[i], old,
                                      dci_status_name(status));
                        refused++;
                        tried++;
                }
                dci_store_le32(word, old);
        }
        ck_assert_uint_gt(tried, 1000);
        ck_assert_uint_eq(refused, tried);
        ck_assert_uint_eq(kv_info(kv).n_sequences, 1);
        free(bytes);
        kv_end(kv, &data);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("kv lists");
        TCase *lists = test_case_with(suite, "lists", 60, context_open_2, context_close);
        tcase_add_checked_fixture(lists, scratch_open, scratch_close);
        tcase_add_test(lists, tokens_are_grouped_so_many_at_a_time);
        tcase_add_test(lists, late_maintenance_gives_the_same_groups);
        tcase_add_test(lists, a_small_budget_groups_early);
        tcase_add_test(lists, forks_share_batches_and_cuts_drop_them);
        tcase_add_loop_test(lists, members_in_the_window_are_not_attended_to_twice, 0, 2);
        tcase_add_loop_test(lists, clusters_in_the_window_take_no_place, 0, DCI_KV_COMBINES);
        tcase_add_test(lists, clusters_are_cut_into_parts);
        tcase_add_test(lists, keys_that_have_no_clusters_have_groups);
        tcase_add_loop_test(lists, plans_are_the_naive_choice, 0, 4);
        tcase_add_loop_test(lists, lists_of_heads_are_taken_in_turns, 0, 4);
        tcase_add_test(lists, more_is_estimated_of_more_clusters);
        tcase_add_test(lists, without_a_choice_all_clusters_are_estimated);
        tcase_add_test(lists, the_rest_of_a_cluster_is_its_own_mean);
        tcase_add_test(lists, figures_are_of_ids_and_rows);
        tcase_add_test(lists, files_without_sound_groups_are_refused);
        return test_main(suite);
}
