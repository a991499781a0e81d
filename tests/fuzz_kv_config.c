/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/fuzz_kv_config.h"

typedef struct drawing {
        fuzz_bytes *from;
        dci_kv_config config;
} drawing;

static size_t below(drawing *l, size_t n)
{
        return (size_t)fuzz_below(l->from, n);
}

/* 0, or at least `least` and below least + n: drawn one after the other, since compilers differ in which operand comes first. */
static size_t some(drawing *l, size_t least, size_t n)
{
        const size_t there = below(l, 2);
        return there * (least + below(l, n));
}

/* Small clusters, so that a life has many, with what goes together over them. */
static const int32_t summaries_of_rows[] = {DCI_KV_SUMMARY_MEAN, DCI_KV_SUMMARY_MINMAX, DCI_KV_SUMMARY_CUBOID,
                                            DCI_KV_SUMMARY_MEAN_STD};

static void draw_lists(drawing *l)
{
        dci_kv_config *c = &l->config;
        c->cluster_tokens = 1 + below(l, 20);
        /* Half of the time more than a budget waits for: early ones, which are made again together. */
        c->cluster_every = c->cluster_tokens + (below(l, 2) == 0 ? below(l, 40) : 20 + below(l, 40));
        c->cluster_segment = some(l, 32, 100);
        c->cluster_rounds = below(l, 6);
        c->cluster_most = some(l, 0, 12);
        c->cluster_by = (int32_t)below(l, 3);
        c->segment_buffer = some(l, 2, 60);
        c->estimate_share = below(l, 2) == 0 ? 1.0 : 0.1 * (double)below(l, 9);
        c->summary = summaries_of_rows[below(l, COUNT(summaries_of_rows))];
        c->tail = below(l, 2) == 0 ? DCI_KV_TAIL_DROP : DCI_KV_TAIL_SUMS;
        if (below(l, 4) == 0)
                c->select = DCI_KV_SELECT_NONE;
}

/* Efforts, and now and then leaves by their means, or nothing but the latest. */
static void draw_tree(drawing *l)
{
        dci_kv_config *c = &l->config;
        const int32_t combine = 1 + (int32_t)below(l, DCI_KV_COMBINES);
        c->combine = 0;
        c->tree_promotion = below(l, 2) == 0 ? 0.03 : 0.2;
        c->tree_field_of_view = below(l, 2) == 0 ? 0 : 1 + below(l, 20);
        c->tree_tokens = below(l, 3) == 0;
        c->tree_promotion_subseq = (double[]){0.0, 0.2, 0.5, -1.0}[below(l, 4)];
        c->tree_simple_indices = below(l, 2) == 0 ? 0 : below(l, 4);
        c->tree_retrieve = below(l, 2) == 0 ? 0.0 : 0.1 * (double)(1 + below(l, 10));
        if (below(l, 3) == 0) {
                c->summary = DCI_KV_SUMMARY_MEAN;
                c->select = DCI_KV_SELECT_SCAN;
                c->combine = combine;
        } else if (below(l, 6) == 0) {
                c->select = DCI_KV_SELECT_RECENT;
        } else {
                const bool all_nodes = c->tree_promotion_subseq <= 0.0 && c->tree_simple_indices == 0;
                c->tree_keys = all_nodes ? (int32_t)below(l, DCI_KV_TREE_KEYS + 1) : 0;
                c->tree_tokens = c->tree_keys != DCI_KV_TREE_MEANS && c->tree_tokens != 0;
        }
}

/* Orders that are made again every few plans; pages of them, with what goes together over them. */
static void draw_static(drawing *l)
{
        dci_kv_config *c = &l->config;
        c->static_share = below(l, 4) == 0 ? -1.0 : 0.125 * (double)below(l, 9);
        c->summary = summaries_of_rows[below(l, COUNT(summaries_of_rows))];
        if (below(l, 4) == 0)
                c->select = below(l, 3) == 0 ? DCI_KV_SELECT_NONE : DCI_KV_SELECT_SCAN;
}

/* One list for all heads, and so few groups that they are not all. */
static void draw_refining(drawing *l)
{
        dci_kv_config *c = &l->config;
        if (c->combine == DCI_KV_COMBINE_EACH)
                c->combine = 0;
        if (below(l, 3) == 0)
                c->verify = 1.0 + 0.5 * (double)below(l, 8);
        if (c->preset == DCI_KV_SKETCH_VERIFY)
                return;
        c->preselect = 1.0 + 0.25 * (double)below(l, 12);
        c->preselect_least = 1 + below(l, 100);
        c->preselect_tokens = (size_t)4 << below(l, 2 + (c->page_tokens > 8));
        if (below(l, 3) == 0)
                c->tail = DCI_KV_TAIL_SUMS;
        if (below(l, 3) == 0)
                c->summary = DCI_KV_SUMMARY_LEARNED;
}

/* Now and then other stages than the preset's, as far as they go together. */
static void draw_stages(drawing *l)
{
        static const int32_t choices[] = {DCI_KV_SELECT_NONE, DCI_KV_SELECT_SCAN, DCI_KV_SELECT_RECENT};
        dci_kv_config *c = &l->config;
        if (c->preset == DCI_KV_FULL || c->preset == DCI_KV_SNAPKV)
                return;
        if (c->preset == DCI_KV_CLUSTERKV || c->preset == DCI_KV_LOUISKV || c->preset == DCI_KV_RETROINFER) {
                draw_lists(l);
                return;
        }
        if (c->preset == DCI_KV_ICECACHE) {
                draw_tree(l);
                return;
        }
        if (c->preset == DCI_KV_PRKV) {
                draw_static(l);
                return;
        }
        if (c->preset == DCI_KV_SKETCH_GROUPS || c->preset == DCI_KV_SKETCH_VERIFY) {
                draw_refining(l);
                return;
        }
        if (c->preset == DCI_KV_PARISKV) {
                c->vote_share = 0.25 * (double)below(l, 5);
                c->candidate_share = 0.25 * (double)below(l, 5);
        }
        const bool codes = c->preset >= DCI_KV_LOWBIT && c->preset <= DCI_KV_SKETCH_LOWBIT;
        if (below(l, 3) == 0)
                c->tail = codes ? 1 + (int32_t)below(l, DCI_KV_TAILS) : DCI_KV_TAIL_SUMS;
        if (below(l, 4) == 0 && c->preset != DCI_KV_STREAMING)
                c->select = choices[below(l, COUNT(choices))];
        if (codes && below(l, 3) == 0)
                c->summary = DCI_KV_SUMMARY_LEARNED;
        if (c->preset >= DCI_KV_SKETCH && codes && (c->select == 0 || c->select == DCI_KV_SELECT_SCAN) &&
            c->combine != DCI_KV_COMBINE_EACH && below(l, 3) == 0)
                c->verify = 1.0 + 0.5 * (double)below(l, 8);
}

/* Half of those that rank by queries keep their lists in some way. */
static void draw_schedule(drawing *l)
{
        static const double taus[] = {-0.5, -0.1, 0.05, 0.3, 0.0, 1.0};
        dci_kv_config *c = &l->config;
        c->tau = taus[below(l, COUNT(taus))];
        c->period = 1 + below(l, 6);
        c->anchor_first = below(l, 2);
        c->anchor_period = 1 + below(l, 3);
        c->ring = below(l, 4) == 0 ? 1 + below(l, 5) : DCI_KV_PRESET;
        const bool sums =
                c->tail == DCI_KV_TAIL_SUMS &&
                (c->preset == DCI_KV_CLUSTERKV || c->preset == DCI_KV_LOUISKV || c->preset == DCI_KV_RETROINFER);
        if (c->select == DCI_KV_SELECT_NONE || c->select == DCI_KV_SELECT_RECENT || sums ||
            (c->preset == DCI_KV_LOUISKV && below(l, 4) == 0)) {
                c->schedule = DCI_KV_EVERY_STEP;
                return;
        }
        const bool ranks =
                c->select == DCI_KV_SELECT_SCAN || (c->preset != DCI_KV_FULL && c->preset != DCI_KV_STREAMING &&
                                                    c->preset != DCI_KV_SNAPKV && c->preset != DCI_KV_LOWBIT);
        if (ranks && below(l, 2) == 0)
                c->schedule = DCI_KV_PERIODIC + (int32_t)below(l, 4);
}

/* Now and then a list for each query head, where a query selects. */
static void draw_heads(drawing *l)
{
        dci_kv_config *c = &l->config;
        const bool scans = c->preset != DCI_KV_FULL && c->preset != DCI_KV_STREAMING && c->preset != DCI_KV_SNAPKV &&
                           c->preset != DCI_KV_LOWBIT;
        if (c->n_query_heads > c->n_kv_heads && c->preset != DCI_KV_PRKV && c->select != DCI_KV_SELECT_NONE)
                c->query_head_lists = c->select == 0 ? scans && below(l, 2) : c->select == DCI_KV_SELECT_SCAN;
}

/* What counts, a share of the tokens, and what goes with some groups alone. */
static void draw_budget(drawing *l)
{
        dci_kv_config *c = &l->config;
        c->budget_counts = below(l, 2) == 0 ? 1 + (int32_t)below(l, DCI_KV_COUNTS) : 0;
        c->budget_share = below(l, 4) == 0 ? 0.0625 * (double)(1 + below(l, 16)) : 0.0;
        c->observed_keep = (int32_t)below(l, 3) - 1;
        c->observed_pool = below(l, 2) == 0 ? 0 : 1 + 2 * below(l, 5);
        /* The default buffer is half of the budget, of 20 tokens or more. */
        c->segment_least = some(l, 1, c->segment_buffer == 0 ? 5 : c->segment_buffer / 2);
}

static void draw_config(drawing *l)
{
        static const int32_t key_bits[] = {1, 2, 3, 4, 4, 8}, value_bits[] = {1, 2, 4, 8};
        static const size_t dims[] = {8, 16, 8, 13};
        dci_kv_config *c = &l->config;
        const int32_t preset = kv_presets[below(l, KV_N_PRESETS)];
        const size_t n_layers = 1 + below(l, 3), n_kv_heads = 1 + below(l, 2), group = 1 + below(l, 3);
        *c = kv_config(preset, n_layers, n_kv_heads, group, dims[below(l, 4)]);
        c->dim_v = dims[below(l, 4)];
        c->dtype = all_dtypes[below(l, 3)];
        c->query_dtype = all_dtypes[below(l, 3)];
        c->page_tokens = below(l, 3) > 0 ? 8 : (size_t)8 << below(l, 4);
        c->sink = below(l, 3) == 0 ? below(l, 20) : 8;
        c->window = below(l, 20);
        c->rollback = c->window + below(l, 12);
        c->budget = c->sink + c->rollback + 2 * c->page_tokens + FUZZ_KV_MAX_MORE + below(l, 60);
        c->dense_layers = below(l, 4) == 0 ? 1 : 0;
        c->combine = (int32_t)below(l, DCI_KV_COMBINES + 1);
        c->key_bits = key_bits[below(l, COUNT(key_bits))];
        c->value_bits = value_bits[below(l, COUNT(value_bits))];
        c->foreground = (int32_t)below(l, 2);
        c->frozen_prompt = below(l, 6) == 0;
        c->seed = fuzz_next(l->from);
        draw_stages(l);
        const bool of_pages =
                c->preset != DCI_KV_CLUSTERKV && c->preset != DCI_KV_LOUISKV && c->preset != DCI_KV_RETROINFER;
        c->sums_whole = of_pages &&
                        (c->tail == DCI_KV_TAIL_SUMS || (c->tail == 0 && c->preset == DCI_KV_SKETCH_SUMS)) &&
                        below(l, 2) == 0;
        draw_schedule(l);
        draw_budget(l);
        draw_heads(l);
        if (below(l, 4) == 0)
                c->resident_bytes = 2000 * c->n_kv_heads * c->n_layers * c->dim_k * (1 + below(l, 4));
}

dci_kv_config fuzz_kv_config(fuzz_bytes *from)
{
        drawing l = {.from = from};
        draw_config(&l);
        return l.config;
}
