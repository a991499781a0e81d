/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The KV cache's configs: which are refused and in which words, what comes out of defaults, and the table of presets. */
#include "tests/common.h"

#include <math.h>
#include <string.h>

#include "tests/context_fixture.h"
#include "tests/kv_fixture.h"

/* A configuration with this change is refused in words that hold both, and no cache comes out. */
#define REFUSED(change, status, part, other)                                                                           \
        do {                                                                                                           \
                dci_kv_config c = kv_small(DCI_KV_SKETCH);                                                             \
                dci_kv *none = NULL;                                                                                   \
                change;                                                                                                \
                ck_refused(dci_kv_create(context, &c, &none), status, part);                                           \
                ck_assert_msg(strstr(dci_last_error(), other) != NULL, "'%s' does not say '%s'", dci_last_error(),     \
                              other);                                                                                  \
                ck_assert_ptr_null(none);                                                                              \
        } while (0)
#define INVALID(change, part, other) REFUSED(change, DCI_ERR_INVALID, part, other)

START_TEST(bad_shapes_are_refused)
{
        INVALID(c.n_layers = 0, "n_layers is 0", "1024");
        INVALID(c.n_layers = 1025, "n_layers is 1025", "1024");
        INVALID(c.n_query_heads = 0, "n_query_heads is 0", "1024");
        INVALID(c.n_query_heads = 1026, "n_query_heads is 1026", "1024");
        INVALID(c.n_kv_heads = 0, "n_kv_heads is 0", "1024");
        INVALID(c.n_query_heads = 5, "n_query_heads is 5", "n_kv_heads 2");
        INVALID(c.n_query_heads = 1, "n_query_heads is 1", "n_kv_heads 2");
        REFUSED((c.n_query_heads = 130, c.n_kv_heads = 2), DCI_ERR_LIMIT, "130", "64");
        INVALID(c.dim_k = 0, "dim_k is 0", "1024");
        INVALID(c.dim_k = 1025, "dim_k is 1025", "1024");
        INVALID(c.dim_v = 1025, "dim_v is 1025", "1024");
        INVALID(c.dim_v = SIZE_MAX, "dim_v is 18446744073709551615", "1024");
        INVALID(c.dtype = 0, "dtype is 0", "DCI_F16");
        INVALID(c.dtype = 4, "dtype is 4", "DCI_F16");
        INVALID(c.query_dtype = 0, "query_dtype is 0", "DCI_F16");
        INVALID(c.query_dtype = -1, "query_dtype is -1", "DCI_F16");
        INVALID(c.scale = -1.0, "scale is -1", "positive");
        INVALID(c.scale = (double)NAN, "scale is nan", "positive");
        INVALID(c.scale = (double)INFINITY, "scale is inf", "positive");
        INVALID(c.scale = 1e39, "scale is 1e+39", "binary32");
        INVALID(c.scale = 1e-50, "scale is 1e-50", "binary32");
        INVALID(c.page_tokens = 7, "page_tokens is 7", "64");
        INVALID(c.page_tokens = 128, "page_tokens is 128", "64");
}
END_TEST

START_TEST(bad_trees_are_refused)
{
        INVALID(c.tree_promotion = 0.0, "tree_promotion is 0", "0.001 to 0.25");
        INVALID(c.tree_promotion = 0.26, "tree_promotion is 0.26", "0.001 to 0.25");
        INVALID(c.tree_promotion = (double)NAN, "tree_promotion is nan", "0.001 to 0.25");
        INVALID(c.tree_tokens = 2, "tree_tokens is 2", "0 or 1");
        INVALID(c.tree_promotion_subseq = -0.5, "tree_promotion_subseq is -0.5", "0 to 0.5, or -1 for one level");
        INVALID(c.tree_promotion_subseq = 0.6, "tree_promotion_subseq is 0.6", "0 to 0.5, or -1 for one level");
        INVALID(c.tree_promotion_subseq = (double)NAN, "tree_promotion_subseq is nan", "0 to 0.5");
        INVALID(c.tree_simple_indices = 33, "tree_simple_indices is 33", "0 to 32");
        INVALID(c.tree_retrieve = -0.1, "tree_retrieve is -0.1", "0 to 1");
        INVALID(c.tree_retrieve = 1.1, "tree_retrieve is 1.1", "0 to 1");
        INVALID(c.tree_retrieve = (double)NAN, "tree_retrieve is nan", "0 to 1");
}
END_TEST

START_TEST(bad_preselections_are_refused)
{
        INVALID(c.preselect = 0.5, "preselect is 0.5", "1 to 64");
        INVALID(c.preselect = 64.5, "preselect is 64.5", "1 to 64");
        INVALID(c.preselect = (double)NAN, "preselect is nan", "1 to 64");
        INVALID(c.preselect_least = DCI_KV_MAX_TOKENS + 1, "preselect_least is 134217729", "1 to 134217728");
        INVALID(c.preselect_tokens = 2, "preselect_tokens is 2", "4, 8 or 16");
        INVALID(c.preselect_tokens = 32, "preselect_tokens is 32", "4, 8 or 16");
        INVALID((c.preselect = 2.0, c.page_tokens = 8, c.preselect_tokens = 16), "preselect_tokens is 16", "the 8");
        INVALID((c.preset = DCI_KV_QUEST, c.preselect = 2.0), "preselect is 2", "summary MINMAX");
        INVALID((c.preset = DCI_KV_LOWBIT, c.preselect = 2.0), "preselect is 2", "select NONE");
        INVALID((c.preset = DCI_KV_SKETCH_LOWBIT, c.preselect = 2.0), "preselect is 2", "tail LOWBIT");
        INVALID((c.combine = DCI_KV_COMBINE_EACH, c.preselect = 2.0), "preselect is 2", "combine EACH");
        INVALID((c.preset = DCI_KV_SKETCH_GROUPS, c.select = DCI_KV_SELECT_RECENT), "preselect is 24", "select RECENT");
        INVALID(c.query_head_lists = 2, "query_head_lists is 2", "0 or 1");
        INVALID(c.reserved_end = 1, "reserved_end is 1", "0");
        INVALID((c.query_head_lists = 1, c.n_query_heads = c.n_kv_heads = 3), "with 3 query heads and 3 kv heads",
                "a list of its own anyway");
        INVALID((c.query_head_lists = 1, c.preset = DCI_KV_SNAPKV), "select OBSERVED", "SCAN or TREE");
        INVALID((c.query_head_lists = 1, c.preset = DCI_KV_FULL), "select ALL", "SCAN or TREE");
        INVALID((c.query_head_lists = 1, c.preset = DCI_KV_PRKV), "select STATIC", "SCAN or TREE");
        INVALID((c.query_head_lists = 1, c.preset = DCI_KV_PRKV, c.select = DCI_KV_SELECT_SCAN), "group REORDERED",
                "one per kv head");
}
END_TEST

START_TEST(bad_choices_are_refused)
{
        INVALID(c.preset = 0, "preset is 0", "20");
        INVALID(c.preset = 21, "preset is 21", "20");
        INVALID(c.group = 7, "group is 7", "expected TOKEN, PAGE, TREE, CLUSTER, SEGMENT or REORDERED, or 0 for");
        INVALID(c.group = -1, "group is -1", "or REORDERED");
        INVALID(c.summary = 11, "summary is 11", "or VOTES");
        INVALID(c.select = 8, "select is 8", "or STATIC");
        INVALID(c.schedule = 7, "schedule is 7", "or AHEAD");
        INVALID(c.tail = 4, "tail is 4", "DROP, SUMS or LOWBIT");
        INVALID(c.combine = 4, "combine is 4", "SOFTMAX, MEAN or EACH");
        for (int32_t schedule = DCI_KV_PERIODIC; schedule <= DCI_KV_AHEAD; schedule++) {
                INVALID((c.preset = DCI_KV_LOWBIT, c.schedule = schedule), "schedule", "select NONE");
                INVALID((c.preset = DCI_KV_FULL, c.schedule = schedule), "schedule", "select ALL");
                INVALID((c.preset = DCI_KV_SNAPKV, c.schedule = schedule), "schedule", "select OBSERVED");
                INVALID((c.preset = DCI_KV_STREAMING, c.schedule = schedule), "schedule", "select RECENT");
        }
        INVALID(c.summary = DCI_KV_SUMMARY_MEAN, "summary MEAN",
                "group TOKEN: use PAGE, CLUSTER, SEGMENT or REORDERED");
        INVALID(c.group = DCI_KV_GROUP_PAGE, "summary CODES", "group PAGE: use group TOKEN");
        INVALID(c.summary = DCI_KV_SUMMARY_NONE, "select SCAN", "summary NONE");
        INVALID(c.select = DCI_KV_SELECT_OBSERVED, "select OBSERVED", "summary CODES");
        INVALID(c.schedule = DCI_KV_ONCE, "select SCAN", "schedule ONCE");
        INVALID((c.preset = DCI_KV_SNAPKV, c.schedule = DCI_KV_EVERY_STEP), "select OBSERVED", "schedule EVERY_STEP");
        INVALID((c.preset = DCI_KV_TOPK, c.tail = DCI_KV_TAIL_LOWBIT), "tail LOWBIT", "summary KEYS");
        INVALID((c.preset = DCI_KV_FULL, c.tail = DCI_KV_TAIL_SUMS), "select ALL", "tail SUMS");
        INVALID(c.group = DCI_KV_GROUP_TREE, "summary CODES", "group TREE");
        INVALID(c.summary = DCI_KV_SUMMARY_TREE, "summary TREE", "group TOKEN");
        INVALID(c.select = DCI_KV_SELECT_TREE, "select TREE", "summary CODES");
        INVALID((c.preset = DCI_KV_ICECACHE, c.select = DCI_KV_SELECT_SCAN), "select SCAN", "summary TREE");
        INVALID((c.preset = DCI_KV_ICECACHE, c.combine = DCI_KV_COMBINE_MEAN), "combine MEAN", "select TREE");
        INVALID((c.preset = DCI_KV_ICECACHE, c.tail = DCI_KV_TAIL_SUMS), "tail SUMS", "group TREE");
        INVALID((c.preset = DCI_KV_ICECACHE, c.summary = DCI_KV_SUMMARY_CUBOID), "summary CUBOID", "group TREE");
        INVALID(c.key_bits = -1, "key_bits is -1", "1, 2, 3, 4 or 8");
        INVALID(c.key_bits = 5, "key_bits is 5", "1, 2, 3, 4 or 8");
        INVALID(c.value_bits = 3, "value_bits is 3", "1, 2, 4 or 8");
        INVALID(c.value_bits = 16, "value_bits is 16", "1, 2, 4 or 8");
        INVALID((c.preset = DCI_KV_SKETCH_SUMS, c.sums_whole = 2), "sums_whole is 2", "0 or 1");
        INVALID(c.sums_whole = 1, "sums_whole is 1", "tail DROP");
        INVALID((c.preset = DCI_KV_RETROINFER, c.sums_whole = 1), "sums_whole is 1", "group CLUSTER");
        INVALID(c.reserved_more = 1, "reserved_more is 1", "expected 0");
        INVALID(c.piece_bytes = ((size_t)1 << 40) + 1, "piece_bytes is 1099511627777", "1 to 1099511627776");
        INVALID(c.frozen_prompt = 2, "frozen_prompt is 2", "0 or 1");
        INVALID(c.foreground = -1, "foreground is -1", "0 or 1");
        INVALID(c.refit = 1.0, "refit is 1", "0");
        INVALID(c.refit = -2.0, "refit is -2", "0");
        INVALID(c.refit = (double)NAN, "refit is nan", "0");
        INVALID(c.tau = -1.0, "tau is -1", "at most 1");
        INVALID(c.verify = 0.5, "verify is 0.5", "1 to 64");
        INVALID(c.verify = 65.0, "verify is 65", "1 to 64");
        INVALID(c.verify = (double)NAN, "verify is nan", "1 to 64");
        INVALID((c.preset = DCI_KV_QUEST, c.verify = 2.0), "verify is 2", "summary MINMAX");
        INVALID((c.preset = DCI_KV_LOWBIT, c.verify = 2.0), "verify is 2", "select NONE");
        INVALID((c.combine = DCI_KV_COMBINE_EACH, c.verify = 2.0), "verify is 2", "combine EACH");
        INVALID(c.tau = 1.0000001, "tau is 1", "at most 1");
        INVALID(c.tau = (double)NAN, "tau is nan", "at most 1");
        INVALID(c.period = 0, "period is 0", "1 to");
        INVALID(c.anchor_period = 0, "anchor_period is 0", "1 to");
        INVALID(c.anchor_period = DCI_KV_MAX_LAYERS + 1, "anchor_period is 1025", "1024");
        INVALID(c.anchor_first = DCI_KV_MAX_LAYERS + 1, "anchor_first is 1025", "1024");
        INVALID(c.ring = 4097, "ring is 4097", "4096");
}
END_TEST

START_TEST(bad_clusters_are_refused)
{
        INVALID(c.cluster_tokens = SIZE_MAX, "cluster_tokens is 18446744073709551615", "134217728");
        INVALID((c.cluster_tokens = 80, c.cluster_every = 79), "cluster_every is 79", "expected 80");
        INVALID(c.cluster_every = DCI_KV_MAX_TOKENS + 1, "cluster_every is 134217729", "134217728");
        INVALID(c.cluster_segment = DCI_KV_MAX_TOKENS + 1, "cluster_segment is 134217729", "134217728");
        INVALID(c.cluster_rounds = 1001, "cluster_rounds is 1001", "1000");
        INVALID(c.cluster_most = SIZE_MAX, "cluster_most is 18446744073709551615", "0 to 134217728");
        INVALID(c.cluster_by = 3, "cluster_by is 3", "RAW or CENTRED");
        INVALID(c.cluster_by = -1, "cluster_by is -1", "RAW or CENTRED");
        INVALID(c.reserved = 1, "reserved is 1", "expected 0");
        INVALID(c.estimate_share = -0.1, "estimate_share is -0.1", "0 to 1");
        INVALID((c.preset = DCI_KV_ICECACHE, c.summary = DCI_KV_SUMMARY_MEAN_STD), "summary MEAN_STD", "group TREE");
        INVALID(c.deviation_weight = -0.1, "deviation_weight is -0.1", "0 to 100");
        INVALID(c.deviation_weight = 101, "deviation_weight is 101", "0 to 100");
        INVALID(c.deviation_weight = (double)NAN, "deviation_weight is nan", "0 to 100");
        INVALID(c.vote_share = 1.5, "vote_share is 1.5", "as published");
        INVALID(c.candidate_share = -0.25, "candidate_share is -0.25", "as published");
        INVALID((c.preset = DCI_KV_PARISKV, c.verify = 2.0), "verify is 2", "summary VOTES");
        INVALID((c.preset = DCI_KV_PARISKV, c.tail = DCI_KV_TAIL_LOWBIT), "tail LOWBIT", "summary VOTES");
        INVALID((c.preset = DCI_KV_PAGEMEAN, c.summary = DCI_KV_SUMMARY_VOTES), "summary VOTES", "group PAGE");
        INVALID(c.estimate_share = 1.5, "estimate_share is 1.5", "0 to 1");
        INVALID(c.estimate_share = (double)NAN, "estimate_share is nan", "0 to 1");
        INVALID((c.preset = DCI_KV_CLUSTERKV, c.summary = DCI_KV_SUMMARY_CODES), "summary CODES", "group CLUSTER");
        INVALID((c.preset = DCI_KV_CLUSTERKV, c.summary = DCI_KV_SUMMARY_KEYS), "summary KEYS", "group CLUSTER");
        INVALID((c.preset = DCI_KV_CLUSTERKV, c.tail = DCI_KV_TAIL_LOWBIT), "tail LOWBIT", "summary MEAN");
        INVALID((c.preset = DCI_KV_RETROINFER, c.select = DCI_KV_SELECT_RECENT), "select RECENT", "tail SUMS");
        INVALID((c.preset = DCI_KV_CLUSTERKV, c.group = DCI_KV_GROUP_TOKEN), "summary MEAN", "group TOKEN");
        INVALID((c.preset = DCI_KV_LOUISKV, c.summary = DCI_KV_SUMMARY_CODES), "summary CODES", "group SEGMENT");
        INVALID((c.preset = DCI_KV_LOUISKV, c.segment_buffer = 1), "segment_buffer is 1", "2 to");
        INVALID((c.preset = DCI_KV_LOUISKV, c.segment_buffer = DCI_KV_MAX_TOKENS + 1), "segment_buffer is", "2 to");
        INVALID((c.preset = DCI_KV_LOUISKV, c.tau = -1.0), "tau is -1", "more than -1");
}
END_TEST

START_TEST(bad_budgets_are_refused)
{
        INVALID(c.budget = 39, "budget is 39", "40");
        INVALID(c.budget = 0, "budget is 0", "40");
        INVALID((c.sink = 73, c.budget = 96), "budget is 96", "97");
        INVALID((c.window = 73, c.budget = 96), "budget is 96", "97");
        INVALID(c.budget = DCI_KV_MAX_TOKENS + 1, "budget is 134217729", "134217728");
        INVALID(c.sink = DCI_KV_MAX_TOKENS + 1, "sink is 134217729", "134217728");
        INVALID(c.window = SIZE_MAX - 1, "window is 18446744073709551614", "134217728");
        INVALID(c.rollback = SIZE_MAX, "rollback is 18446744073709551615", "134217728");
        REFUSED(c.max_bytes = 1, DCI_ERR_FULL, "max_bytes", "1");
        dci_kv_config least = kv_small(DCI_KV_SKETCH);
        least.budget = 40;
        dci_kv_destroy(kv_create(context, &least));
}
END_TEST

/* What is rolled back to and the window must fit, too: those tokens are in no group, and attended to. */
START_TEST(a_budget_below_what_is_never_grouped_is_refused)
{
        INVALID((c.budget = 60, c.rollback = 60), "budget is 60", "60");
}
END_TEST

START_TEST(bad_layers_are_refused)
{
        dci_layer_config layers[2];
        for (size_t i = 0; i < 2; i++)
                ck_ok(dci_layer_config_init(&layers[i], sizeof layers[i]));
        layers[1].mode = 0;
        INVALID(c.layers = layers, "layer 1", "mode is 0");
        layers[1].mode = 4;
        INVALID(c.layers = layers, "layer 1", "mode is 4");
        layers[1].mode = DCI_KV_LAYER_SLIDING;
        REFUSED(c.layers = layers, DCI_ERR_UNSUPPORTED, "layer 1", "not built yet");
        layers[1].mode = DCI_KV_LAYER_DENSE;
        layers[1].reserved = 3;
        INVALID(c.layers = layers, "layer 1", "reserved");
        layers[1].reserved = 0;
        layers[1].sliding_window = 512;
        REFUSED(c.layers = layers, DCI_ERR_UNSUPPORTED, "layer 1", "sliding");
        layers[1].sliding_window = 0;
        layers[1].logit_cap = 30.0;
        REFUSED(c.layers = layers, DCI_ERR_UNSUPPORTED, "layer 1", "logits");
        layers[1].logit_cap = 0.0;
        layers[0].learned_sinks = 1;
        REFUSED(c.layers = layers, DCI_ERR_UNSUPPORTED, "layer 0", "sinks");
        layers[0].learned_sinks = 0;
        layers[1].struct_size = 8;
        INVALID(c.layers = layers, "dci_layer_config", "struct_size 8");
        INVALID((layers[1].struct_size = sizeof layers[1], c.layers = layers, c.layer_stride = 8), "layer_stride is 8",
                "");
}
END_TEST

START_TEST(bad_layouts_are_refused)
{
        float memory[2][64] = {{0}};
        void *keys[2] = {memory[0], memory[0]}, *values[2] = {memory[1], memory[1]}, *holes[2] = {memory[0], NULL},
             *odd[2] = {memory[0], (char *)memory[1] + 1};
        dci_kv_layout good, l;
        ck_ok(dci_kv_layout_init(&good, sizeof good));
        good.keys = keys;
        good.values = values;
        good.n_blocks = 3;
        good.key_slot_stride = good.value_slot_stride = 2 * 16;
        good.key_head_stride = good.value_head_stride = 16;
        good.key_page_stride = good.value_page_stride = 8 * 2 * 16;
#define LAYOUT(change, part, other) INVALID((l = good, change, c.layout = &l), part, other)
        LAYOUT(l.keys = NULL, "keys", "NULL");
        LAYOUT(l.values = NULL, "values", "NULL");
        LAYOUT(l.keys = holes, "keys of layer 1", "NULL");
        LAYOUT(l.values = holes, "values of layer 1", "NULL");
        LAYOUT(l.keys = odd, "layer 1", "2 bytes");
        LAYOUT(l.n_blocks = 0, "0 blocks", "");
        LAYOUT(l.blocks_by = 0, "blocks_by is 0", "");
        LAYOUT(l.blocks_by = 3, "blocks_by is 3", "");
        LAYOUT(l.reserved = 5, "5", "reserved");
        LAYOUT(l.key_slot_stride = 15, "slot_stride 15", "over each other");
        LAYOUT(l.key_head_stride = 15, "head_stride 15", "over each other");
        LAYOUT(l.value_slot_stride = 0, "slot_stride 0", "over each other");
        LAYOUT(l.value_head_stride = 0, "head_stride 0", "over each other");
        LAYOUT(l.key_page_stride = 0, "page_stride 0", "over each other");
        LAYOUT(l.value_slot_stride = 16, "16", "over each other");
        LAYOUT(l.value_head_stride = 40, "40", "over each other");
        LAYOUT(l.key_page_stride = 8 * 2 * 16 - 1, "page_stride 255", "over each other");
        LAYOUT(l.struct_size = 16, "dci_kv_layout", "struct_size 16");
        REFUSED((l = good, l.key_page_stride = SIZE_MAX / 2, c.layout = &l), DCI_ERR_LIMIT, "9223372036854775807", "3");
        REFUSED((l = good, l.n_blocks = (size_t)1 << 40, c.layout = &l), DCI_ERR_LIMIT, "1099511627776", "");
#undef LAYOUT
}
END_TEST

/* NULL and a wrong size are refused; then every byte is set. */
#define PREPARED(type)                                                                                                 \
        do {                                                                                                           \
                type any;                                                                                              \
                ck_refused(type##_init(NULL, sizeof any), DCI_ERR_INVALID, #type " is NULL");                          \
                ck_refused(type##_init(&any, sizeof any - 1), DCI_ERR_INVALID, #type);                                 \
                memset(&any, 0xEE, sizeof any);                                                                        \
                ck_ok(type##_init(&any, sizeof any));                                                                  \
                ck_assert_uint_eq(any.struct_size, sizeof any);                                                        \
        } while (0)

START_TEST(structs_that_were_not_prepared_are_refused)
{
        PREPARED(dci_kv_config);
        PREPARED(dci_layer_config);
        PREPARED(dci_kv_layout);
        PREPARED(dci_kv_rows);
        PREPARED(dci_kv_plan);
        PREPARED(dci_kv_sequence_info);
        PREPARED(dci_kv_info);
        INVALID(c.struct_size = 0, "dci_kv_config", "struct_size 0");
        INVALID(c.struct_size--, "dci_kv_config", "struct_size");
        struct {
                dci_kv_config config;
                unsigned char more[8];
        } longer;
        dci_kv *kv = NULL;
        ck_ok(dci_kv_config_init(&longer.config, sizeof longer));
        longer.config.n_layers = longer.config.n_kv_heads = longer.config.n_query_heads = longer.config.dim_k = 1;
        longer.more[3] = 1;
        ck_refused(dci_kv_create(context, &longer.config, &kv), DCI_ERR_UNSUPPORTED, "uses a field at byte");
        ck_assert_ptr_null(kv);
        longer.more[3] = 0;
        ck_ok(dci_kv_create(context, &longer.config, &kv));
        dci_kv_destroy(kv);
}
END_TEST

START_TEST(defaults_are_those_of_the_header)
{
        dci_kv_config c;
        memset(&c, 0xFF, sizeof c);
        ck_ok(dci_kv_config_init(&c, sizeof c));
        ck_assert(c.struct_size == sizeof c && c.n_layers == 0 && c.n_query_heads == 0 && c.n_kv_heads == 0);
        ck_assert(c.dim_k == 0 && c.dim_v == 0 && c.dtype == DCI_F16 && c.query_dtype == DCI_F32 && c.scale == 0.0);
        ck_assert(c.page_tokens == 0 && c.preset == DCI_KV_SKETCH && c.group == 0 && c.summary == 0 && c.select == 0);
        ck_assert(c.schedule == 0 && c.tail == 0 && c.combine == 0 && c.key_bits == 0 && c.value_bits == 2);
        ck_assert(c.frozen_prompt == 0 && c.foreground == 0 && c.budget == 256 && c.sink == DCI_KV_PRESET);
        ck_assert(c.window == DCI_KV_PRESET && c.rollback == 64 && c.dense_layers == 2 && c.layers == NULL);
        ck_assert(c.layer_stride == 0 && c.layout == NULL && c.hook.taken == NULL && c.hook.given_back == NULL);
        ck_assert(c.hook.ctx == NULL && c.max_bytes == 0 && c.resident_bytes == 0 && c.refit == 1.5 && c.seed == 0);
        ck_assert(c.tau == 0.0 && c.period == DCI_KV_PRESET && c.anchor_first == 2 && c.anchor_period == 3);
        ck_assert(c.ring == DCI_KV_PRESET && c.verify == 0.0 && c.preselect == 0.0 && c.preselect_tokens == 0 &&
                  c.preselect_least == 0 && c.sums_whole == 0 && c.piece_bytes == 0);
        ck_assert(c.budget_counts == 0 && c.budget_share == 0.0 && c.observed_keep == -1 && c.observed_pool == 0 &&
                  c.segment_least == 0);
        ck_assert(c.tree_promotion == 0.03 && c.tree_field_of_view == 0 && c.tree_tokens == 0);
        ck_assert(c.tree_promotion_subseq == 0.0 && c.tree_simple_indices == 0 && c.tree_retrieve == 0.0 &&
                  c.deviation_weight == 0.0 && c.vote_share == 0.0 && c.candidate_share == 0.0);
        dci_layer_config layer;
        ck_ok(dci_layer_config_init(&layer, sizeof layer));
        ck_assert(layer.mode == DCI_KV_LAYER_SPARSE && layer.sliding_window == 0 && layer.logit_cap == 0.0);
        dci_kv_layout layout;
        ck_ok(dci_kv_layout_init(&layout, sizeof layout));
        ck_assert(layout.blocks_by == DCI_KV_BLOCKS_BY_LIBRARY && layout.keys == NULL && layout.n_blocks == 0);
}
END_TEST

/* The table of systems, as docs/presets.md has it. */
START_TEST(presets_are_rows_of_the_table_of_systems)
{
        static const struct {
                int32_t preset;
                const char *name;
                int32_t group, summary, select, schedule, tail;
                size_t page_tokens, sink, window;
        } rows[] = {
                {DCI_KV_FULL, "full", 1, 1, 2, 1, 1, 16, 16, 64},
                {DCI_KV_TOPK, "topk", 1, 2, 3, 1, 1, 16, 16, 64},
                {DCI_KV_STREAMING, "streaming", 1, 1, 5, 1, 1, 16, 4, 64},
                {DCI_KV_SNAPKV, "snapkv", 1, 2, 4, 2, 1, 16, 16, 64},
                {DCI_KV_PAGEMEAN, "pagemean", 2, 3, 3, 1, 1, 16, 16, 64},
                {DCI_KV_QUEST, "quest", 2, 4, 3, 1, 1, 16, 16, 64},
                {DCI_KV_ARKVALE, "arkvale", 2, 5, 3, 1, 1, 32, 16, 64},
                {DCI_KV_LOWBIT, "lowbit", 1, 6, 1, 1, 3, 16, 16, 64},
                {DCI_KV_SKETCH, "sketch", 1, 6, 3, 1, 1, 16, 16, 64},
                {DCI_KV_SKETCH_SUMS, "sketch+sums", 1, 6, 3, 1, 2, 16, 16, 64},
                {DCI_KV_SKETCH_LOWBIT, "sketch+lowbit", 1, 6, 3, 1, 3, 16, 16, 64},
                {DCI_KV_ICECACHE, "icecache", 3, 8, 6, 1, 1, 16, 32, 32},
                {DCI_KV_CLUSTERKV, "clusterkv", 4, 3, 3, 1, 1, 16, 16, 64},
                {DCI_KV_PRKV, "prkv", 6, 5, 7, 1, 1, 32, 16, 64},
                {DCI_KV_LOUISKV, "louiskv", 5, 3, 3, 4, 1, 16, 16, 64},
                {DCI_KV_RETROINFER, "retroinfer", 4, 3, 3, 1, 2, 16, 4, 64},
                {DCI_KV_FREEKV, "freekv", 2, 5, 3, 6, 1, 32, 16, 64},
                {DCI_KV_SKETCH_GROUPS, "sketch+groups", 1, 6, 3, 1, 1, 16, 16, 64},
                {DCI_KV_SKETCH_VERIFY, "sketch+verify", 1, 7, 3, 1, 3, 16, 16, 64},
                {DCI_KV_PARISKV, "pariskv", 1, 10, 3, 1, 1, 16, 4, 64},
        };
        ck_assert_uint_eq(COUNT(rows), KV_N_PRESETS);
        for (size_t i = 0; i < COUNT(rows); i++) {
                const dci_kv_config config = kv_config(rows[i].preset, 1, 1, 1, 16);
                dci_kv *kv = kv_create(context, &config);
                const dci_kv_info info = kv_info(kv);
                ck_assert_str_eq(dci_kv_preset_name(rows[i].preset), rows[i].name);
                ck_assert_int_eq(dci_kv_preset_of(rows[i].name), rows[i].preset);
                ck_assert(info.group == rows[i].group && info.summary == rows[i].summary &&
                          info.select == rows[i].select);
                ck_assert(info.schedule == rows[i].schedule && info.tail == rows[i].tail && info.combine != 0);
                ck_assert(info.page_tokens == rows[i].page_tokens && info.sink == rows[i].sink &&
                          info.window == rows[i].window);
                ck_assert(info.rollback == 64 && info.stride >= 256 && info.n_sequences == 0 && info.n_blocks == 0);
                const bool once = rows[i].preset == DCI_KV_SNAPKV;
                ck_assert(info.budget_counts == (once ? DCI_KV_COUNT_SINK_AND_WINDOW : DCI_KV_COUNT_ALL) &&
                          info.observed_keep == once);
                ck_assert_uint_eq(info.token_bytes, 2 * 16 * 2);
                dci_kv_destroy(kv);
        }
        ck_assert_str_eq(dci_kv_preset_name(0), "unknown");
        ck_assert_str_eq(dci_kv_preset_name(21), "unknown");
        ck_assert_int_eq(dci_kv_preset_of("sketches"), 0);
        ck_assert_int_eq(dci_kv_preset_of(NULL), 0);
}
END_TEST

/* The limits themselves are taken, and a sequence lives at them. */
START_TEST(the_limits_of_shapes_are_taken)
{
        static const size_t shapes[][4] = {{1024, 1, 1, 1}, {1, 64, 1, 4}, {1, 1024, 1024, 2}, {1, 64, 2, 1024}};
        for (size_t i = 0; i < COUNT(shapes); i++) {
                dci_kv_config config = kv_config(DCI_KV_SKETCH_LOWBIT, shapes[i][0], shapes[i][2],
                                                 shapes[i][1] / shapes[i][2], shapes[i][3]);
                config.budget = 40;
                config.page_tokens = 8;
                config.window = config.rollback = 16;
                kv_data data = kv_random(&config, 70, 70 + i);
                dci_kv *kv = kv_create(context, &config);
                const int64_t sequence = kv_begin(kv, &data, 66);
                for (size_t t = 66; t < 70; t++) {
                        kv_seen seen = kv_decode(kv, 1, &(kv_turn){sequence, &data, t, 1});
                        kv_lawful(&seen, &config, 0, "limits");
                        for (size_t j = 0; j < config.n_layers * config.n_query_heads * config.dim_k; j++)
                                test_hold(isfinite(seen.out[j]));
                        kv_seen_free(&seen);
                }
                kv_end(kv, &data);
        }
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("kv configs");
        TCase *configs = test_case_with(suite, "configs", 60, context_open_2, context_close);
        tcase_add_test(configs, bad_shapes_are_refused);
        tcase_add_test(configs, bad_choices_are_refused);
        tcase_add_test(configs, bad_preselections_are_refused);
        tcase_add_test(configs, bad_trees_are_refused);
        tcase_add_test(configs, bad_clusters_are_refused);
        tcase_add_test(configs, bad_budgets_are_refused);
        tcase_add_test(configs, a_budget_below_what_is_never_grouped_is_refused);
        tcase_add_test(configs, bad_layers_are_refused);
        tcase_add_test(configs, bad_layouts_are_refused);
        tcase_add_test(configs, structs_that_were_not_prepared_are_refused);
        tcase_add_test(configs, defaults_are_those_of_the_header);
        tcase_add_test(configs, presets_are_rows_of_the_table_of_systems);
        tcase_add_test(configs, the_limits_of_shapes_are_taken);
        return test_main(suite);
}
