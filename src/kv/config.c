/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Configs: the table of fields, what a preset fills in, and the rules between fields. */
#include "core/internal.h"

#include <stdio.h>

#include "core/fields.h"
#include "kv/budget.h"
#include "kv/config.h"
#include "kv/presets.h"
#include "kv/stages/reorder.h"
#include "sketch/coder.h"

static const char *const groups[DCI_KV_GROUPS] = {"TOKEN", "PAGE", "TREE", "CLUSTER", "SEGMENT", "REORDERED"};
static const char *const summaries[DCI_KV_SUMMARIES] = {"NONE",  "KEYS",    "MEAN", "MINMAX",   "CUBOID",
                                                        "CODES", "LEARNED", "TREE", "MEAN_STD", "VOTES"};
static const char *const selects[DCI_KV_CHOICES] = {"NONE", "ALL", "SCAN", "OBSERVED", "RECENT", "TREE", "STATIC"};
static const char *const schedules[DCI_KV_SCHEDULES] = {"EVERY_STEP", "ONCE",   "PERIODIC",
                                                        "BOUNDARY",   "ANCHOR", "AHEAD"};
static const char *const tails[DCI_KV_TAILS] = {"DROP", "SUMS", "LOWBIT"};
static const char *const combines[DCI_KV_COMBINES] = {"SOFTMAX", "MEAN", "EACH"};
static const char *const tree_keys[DCI_KV_TREE_KEYS] = {"EXACT", "CODES", "MEANS"};
static const char *const cluster_rows[] = {"RAW", "CENTRED"};
static const char *const counts[DCI_KV_COUNTS] = {"ALL", "SINK_AND_WINDOW", "SINK", "SELECTED"};
static const int32_t page_sizes[] = {8, 16, 32, 64, 0}, unit_sizes[] = {4, 8, 16, 0}, value_sizes[] = {1, 2, 4, 8, 0};

#define FIELD(field, ...) DCI_FIELD(dci_kv_config, field, __VA_ARGS__)
#define PRESET(field, ...) FIELD(field, __VA_ARGS__, .preset = offsetof(dci_kv_preset, field), .means = "the preset's")
#define SIZE_PRESET(field, ...) FIELD(field, __VA_ARGS__, .preset = offsetof(dci_kv_preset, field))
#define MAX_POOL 63
#define DTYPE DCI_F32, DCI_BF16, .names = dci_dtype_names

/* The preset comes first: others follow from it. */
static const dci_field fields[] = {FIELD(preset, DCI_KV_SKETCH, 1, DCI_KV_PRESETS),
                                   FIELD(n_layers, 0, 1, DCI_KV_MAX_LAYERS),
                                   FIELD(n_query_heads, 0, 1, DCI_KV_MAX_HEADS),
                                   FIELD(n_kv_heads, 0, 1, DCI_KV_MAX_HEADS),
                                   FIELD(dim_k, 0, 1, DCI_KV_MAX_DIM),
                                   FIELD(dim_v, 0, 1, DCI_KV_MAX_DIM),
                                   FIELD(dtype, DCI_F16, DTYPE),
                                   FIELD(query_dtype, DCI_F32, DTYPE),
                                   PRESET(group, 0, 1, DCI_KV_GROUPS, .names = groups),
                                   PRESET(summary, 0, 1, DCI_KV_SUMMARIES, .names = summaries),
                                   PRESET(select, 0, 1, DCI_KV_CHOICES, .names = selects),
                                   PRESET(schedule, 0, 1, DCI_KV_SCHEDULES, .names = schedules),
                                   PRESET(tail, 0, 1, DCI_KV_TAILS, .names = tails),
                                   PRESET(combine, 0, 1, DCI_KV_COMBINES, .names = combines),
                                   FIELD(tree_promotion, 0.03, 0.001, 0.25),
                                   FIELD(tree_tokens, 0, 0, 1),
                                   PRESET(page_tokens, 0, 8, 64, .only = page_sizes),
                                   FIELD(budget, 256, 0, INFINITY),
                                   PRESET(budget_counts, 0, 1, DCI_KV_COUNTS, .names = counts),
                                   FIELD(budget_share, 0, 0, 1, .open = true, .means = "a fixed budget"),
                                   SIZE_PRESET(sink, -1, 0, DCI_KV_MAX_TOKENS),
                                   SIZE_PRESET(window, -1, 0, DCI_KV_MAX_TOKENS),
                                   FIELD(rollback, 64, 0, DCI_KV_MAX_TOKENS),
                                   FIELD(dense_layers, 2, 0, INFINITY),
                                   PRESET(cluster_tokens, 0, 1, DCI_KV_MAX_TOKENS),
                                   PRESET(cluster_every, 0, 1, DCI_KV_MAX_TOKENS),
                                   PRESET(cluster_segment, 0, 1, DCI_KV_MAX_TOKENS),
                                   PRESET(cluster_rounds, 0, 1, 1000),
                                   FIELD(cluster_most, 0, 0, DCI_KV_MAX_TOKENS),
                                   PRESET(cluster_by, 0, 1, DCI_KV_CLUSTER_CENTRED, .names = cluster_rows),
                                   FIELD(reserved, 0, 0, 0),
                                   PRESET(estimate_share, 0, 0, 1),
                                   FIELD(segment_buffer, 0, 2, DCI_KV_MAX_TOKENS),
                                   FIELD(segment_least, 0, 0, DCI_KV_MAX_TOKENS),
                                   FIELD(tau, 0, -1, 1, .open = true, .means = "the schedule's"),
                                   FIELD(static_share, DCI_KV_STATIC_SHARE, 0, 1, .special = -1, .means = "online"),
                                   FIELD(period, -1, 1, DCI_KV_MAX_TOKENS),
                                   FIELD(ring, -1, 0, 4096),
                                   FIELD(anchor_first, 2, 0, DCI_KV_MAX_LAYERS),
                                   FIELD(anchor_period, 3, 1, DCI_KV_MAX_LAYERS),
                                   PRESET(observed_pool, 0, 1, MAX_POOL),
                                   FIELD(observed_keep, -1, 0, 1, .preset = offsetof(dci_kv_preset, observed_keep),
                                         .means = "the preset's", .special = -1),
                                   PRESET(verify, 0, 1, 64),
                                   PRESET(preselect, 0, 1, 64),
                                   FIELD(preselect_tokens, 0, 4, 16, .only = unit_sizes, .means = "8"),
                                   FIELD(preselect_least, 0, 1, DCI_KV_MAX_TOKENS),
                                   PRESET(key_bits, 0, 1, 8, .only = dci_bit_counts),
                                   FIELD(value_bits, 2, 1, 8, .only = value_sizes),
                                   FIELD(refit, 1.5, 1, DBL_MAX, .open = true, .means = "never"),
                                   FIELD(reserved_more, 0, 0, 0),
                                   FIELD(frozen_prompt, 0, 0, 1),
                                   FIELD(sums_whole, 0, 0, 1),
                                   FIELD(foreground, 0, 0, 1),
                                   FIELD(piece_bytes, 0, 1, (size_t)1 << 40),
                                   FIELD(tree_promotion_subseq, 0, 0, 0.5, .special = -1, .means = "one level"),
                                   FIELD(tree_simple_indices, 0, 0, 32),
                                   FIELD(tree_retrieve, 0, 0, 1),
                                   FIELD(deviation_weight, 0, 0, 100),
                                   FIELD(contiguous, 0, 0, 1),
                                   FIELD(tree_keys, 0, DCI_KV_TREE_EXACT, DCI_KV_TREE_KEYS, .names = tree_keys),
                                   FIELD(reorder_delay, -1, 0, DCI_KV_MAX_TOKENS),
                                   FIELD(query_head_lists, 0, 0, 1),
                                   FIELD(reserved_end, 0, 0, 0),
                                   FIELD(vote_share, 0, 0, 1, .open = true, .means = "as published"),
                                   FIELD(candidate_share, 0, 0, 1, .open = true, .means = "as published")};

dci_status dci_layer_config_init(dci_layer_config *config, size_t struct_size)
{
        const dci_status status = dci_struct_init("dci_layer_config", config, struct_size, sizeof *config);
        if (status == DCI_OK)
                config->mode = DCI_KV_LAYER_SPARSE;
        return status;
}

dci_status dci_kv_layout_init(dci_kv_layout *layout, size_t struct_size)
{
        const dci_status status = dci_struct_init("dci_kv_layout", layout, struct_size, sizeof *layout);
        if (status == DCI_OK)
                layout->blocks_by = DCI_KV_BLOCKS_BY_LIBRARY;
        return status;
}

dci_status dci_kv_config_init(dci_kv_config *config, size_t struct_size)
{
        DCI_TRY(dci_struct_init("dci_kv_config", config, struct_size, sizeof *config));
        dci_fields_init(DCI_FIELDS(fields), config);
        return DCI_OK;
}

dci_status dci_kv_config_published(dci_kv_config *config, int32_t preset, size_t budget)
{
        dci_kv_config own;
        dci_kv_published sizes;
        if (config == NULL)
                return dci_fail(DCI_ERR_INVALID, "config is NULL");
        DCI_TRY(dci_check_struct_size("dci_kv_config", config, config->struct_size, sizeof *config));
        if (dci_kv_preset_at(preset) == NULL)
                return dci_fail(DCI_ERR_INVALID, "preset is %d, expected 1 to %d", (int)preset, (int)DCI_KV_PRESETS);
        DCI_TRY(dci_kv_config_init(&own, sizeof own));
        if (dci_kv_published_sizes(preset, budget, &sizes)) {
                own.budget_counts = sizes.budget_counts;
                own.combine = sizes.combine;
                own.page_tokens = sizes.page_tokens;
                own.sink = sizes.sink;
                own.window = own.rollback = sizes.window;
                own.segment_buffer = sizes.segment_buffer;
                own.tau = sizes.tau;
                /* Where query heads are known to share none, there is nothing to set. */
                if (config->n_query_heads == 0 || config->n_query_heads != config->n_kv_heads)
                        own.query_head_lists = sizes.query_head_lists;
        }
        config->preset = preset;
        config->budget = budget;
        config->budget_counts = own.budget_counts;
        config->budget_share = own.budget_share;
        config->combine = own.combine;
        config->page_tokens = own.page_tokens;
        config->sink = own.sink;
        config->window = own.window;
        config->rollback = own.rollback;
        config->segment_buffer = own.segment_buffer;
        config->segment_least = own.segment_least;
        config->tau = own.tau;
        config->period = own.period;
        config->ring = own.ring;
        config->static_share = own.static_share;
        config->observed_keep = own.observed_keep;
        config->observed_pool = own.observed_pool;
        config->query_head_lists = own.query_head_lists;
        return DCI_OK;
}

dci_status dci_kv_rows_init(dci_kv_rows *rows, size_t struct_size)
{
        return dci_struct_init("dci_kv_rows", rows, struct_size, sizeof *rows);
}

dci_status dci_kv_sequence_info_init(dci_kv_sequence_info *info, size_t struct_size)
{
        return dci_struct_init("dci_kv_sequence_info", info, struct_size, sizeof *info);
}

dci_status dci_kv_info_init(dci_kv_info *info, size_t struct_size)
{
        return dci_struct_init("dci_kv_info", info, struct_size, sizeof *info);
}

/* What the caller left to the library. */
static void fill_in(dci_kv_config *c)
{
        const dci_kv_preset *preset = dci_kv_preset_at(c->preset);
        const bool every_follows = c->cluster_every == 0;
        dci_fields_fill(DCI_FIELDS(fields), preset, c);
        if (every_follows && c->cluster_every < c->cluster_tokens)
                c->cluster_every = c->cluster_tokens;
        if (c->dim_v == 0)
                c->dim_v = c->dim_k;
        const size_t buffer = dci_kv_counts_recent(c) ? c->budget / 2 : 512;
        if (c->segment_buffer == 0)
                c->segment_buffer = buffer > 512 ? 512 : buffer < 2 ? 2 : buffer;
        if (c->period == DCI_KV_PRESET)
                c->period = 128;
        if (c->ring == DCI_KV_PRESET)
                c->ring = c->group == DCI_KV_GROUP_REORDERED ? 64 : 0;
        if (c->reorder_delay == DCI_KV_PRESET)
                c->reorder_delay = c->group != DCI_KV_GROUP_REORDERED ? 0 : c->period < 32 ? c->period / 2 : 16;
        if (c->tau == 0.0)
                c->tau = c->schedule == DCI_KV_AHEAD ? 0.8 : 0.85;
        if (c->preselect_tokens == 0)
                c->preselect_tokens = 8;
        if (c->preselect_least == 0)
                c->preselect_least = 4096;
        if (c->piece_bytes == 0)
                c->piece_bytes = (size_t)1 << 18;
        if (c->deviation_weight == 0.0)
                c->deviation_weight = 1.5;
        if (c->tree_keys == 0)
                c->tree_keys = DCI_KV_TREE_EXACT;
}

static dci_status check_shape(dci_kv_config *c)
{
        if (c->n_query_heads % c->n_kv_heads != 0)
                return dci_fail(DCI_ERR_INVALID, "n_query_heads is %zu, which n_kv_heads %zu does not divide",
                                c->n_query_heads, c->n_kv_heads);
        if (c->n_query_heads / c->n_kv_heads > DCI_KV_MAX_GROUP)
                return dci_fail(DCI_ERR_LIMIT, "%zu query heads share %zu kv heads, but at most %zu may share one",
                                c->n_query_heads, c->n_kv_heads, DCI_KV_MAX_GROUP);
        if (!(c->scale >= 0.0) || isinf(c->scale))
                return dci_fail(DCI_ERR_INVALID, "scale is %g, expected a positive number or 0", c->scale);
        if (c->scale == 0.0)
                c->scale = 1.0 / sqrt((double)c->dim_k);
        if (c->scale > (double)FLT_MAX || (float)c->scale == 0.0f)
                return dci_fail(DCI_ERR_INVALID, "scale is %g, which is no number in binary32", c->scale);
        return DCI_OK;
}

static const dci_kv_summary *const summary_stages[DCI_KV_SUMMARIES + 1] = {NULL,
                                                                           &dci_kv_summary_none,
                                                                           &dci_kv_summary_keys,
                                                                           &dci_kv_summary_mean,
                                                                           &dci_kv_summary_minmax,
                                                                           &dci_kv_summary_cuboid,
                                                                           &dci_kv_summary_codes,
                                                                           &dci_kv_summary_learned,
                                                                           &dci_kv_summary_tree,
                                                                           &dci_kv_summary_mean_std,
                                                                           &dci_kv_summary_votes};
static const dci_kv_tail *const tail_stages[DCI_KV_TAILS + 1] = {NULL, &dci_kv_tail_drop, &dci_kv_tail_sums,
                                                                 &dci_kv_tail_lowbit};

/* Names of two choices for a refusal: kind and name of each. */
#define GROUP "group", groups[c->group - 1]
#define SUMMARY "summary", summaries[c->summary - 1]
#define SELECT "select", selects[c->select - 1]
#define SCHEDULE "schedule", schedules[c->schedule - 1]
#define TAIL "tail", tails[c->tail - 1]
#define COMBINE "combine", combines[c->combine - 1]

static dci_status refuse_pair(const char *kind, const char *name, const char *other_kind, const char *other,
                              const char *reason)
{
        return dci_fail(DCI_ERR_INVALID, "%s %s cannot be combined with %s %s: %s", kind, name, other_kind, other,
                        reason);
}

/* A tree is searched, or its pages are ranked by their means; tokens that are not selected are dropped. */
static dci_status check_tree(const dci_kv_config *c)
{
        const bool tree = c->group == DCI_KV_GROUP_TREE, nodes = c->summary == DCI_KV_SUMMARY_TREE,
                   searched = c->select == DCI_KV_SELECT_TREE;
        if (tree && !nodes && c->summary != DCI_KV_SUMMARY_MEAN)
                return refuse_pair(SUMMARY, GROUP, "use TREE or MEAN");
        if (nodes && !tree)
                return refuse_pair(SUMMARY, GROUP, "use group TREE");
        if (searched && !nodes)
                return refuse_pair(SELECT, SUMMARY, "use summary TREE, whose nodes are searched");
        if (nodes && c->select == DCI_KV_SELECT_SCAN)
                return refuse_pair(SELECT, SUMMARY, "use select TREE, or summary MEAN");
        if (searched && c->combine != DCI_KV_COMBINE_EACH)
                return refuse_pair(COMBINE, SELECT, "use EACH, since each query head searches the tree for itself");
        if (tree && c->tail != DCI_KV_TAIL_DROP)
                return refuse_pair(TAIL, GROUP, "use DROP");
        if (!searched && c->tree_keys != DCI_KV_TREE_EXACT)
                return refuse_pair("tree_keys", tree_keys[c->tree_keys - 1], SELECT,
                                   "use EXACT, since no tree is searched");
        if (c->tree_keys != DCI_KV_TREE_EXACT && (c->tree_promotion_subseq > 0.0 || c->tree_simple_indices > 0))
                return dci_fail(DCI_ERR_INVALID,
                                "tree_keys is %s, but a search through levels (tree_promotion_subseq %g) or by P-DCI "
                                "(tree_simple_indices %zu) compares keys: use EXACT",
                                tree_keys[c->tree_keys - 1], c->tree_promotion_subseq, c->tree_simple_indices);
        if (c->tree_keys == DCI_KV_TREE_MEANS && c->tree_tokens != 0)
                return dci_fail(DCI_ERR_INVALID, "tree_keys is MEANS, but tree_tokens takes single tokens: use EXACT "
                                                 "or CODES");
        return DCI_OK;
}

static dci_status check_group(const dci_kv_config *c, const dci_kv_stages *stages)
{
        const bool of_pages = c->summary == DCI_KV_SUMMARY_MEAN || c->summary == DCI_KV_SUMMARY_MINMAX ||
                              c->summary == DCI_KV_SUMMARY_CUBOID || c->summary == DCI_KV_SUMMARY_MEAN_STD;
        /* check_tree says which summaries a tree has. */
        if (of_pages == (c->group == DCI_KV_GROUP_TOKEN) && c->group != DCI_KV_GROUP_TREE)
                return refuse_pair(SUMMARY, GROUP,
                                   of_pages ? "use PAGE, CLUSTER, SEGMENT or REORDERED"
                                   : c->summary == DCI_KV_SUMMARY_TREE
                                           ? "use group TREE"
                                           : "use group TOKEN, or summary MEAN, MINMAX, CUBOID or MEAN_STD");
        if (stages->group.listed && c->tail == DCI_KV_TAIL_SUMS && c->select == DCI_KV_SELECT_RECENT)
                return dci_fail(
                        DCI_ERR_INVALID,
                        "select RECENT cannot be combined with tail SUMS over group %s: it takes single tokens, and "
                        "sums are of whole clusters",
                        groups[c->group - 1]);
        if (c->group == DCI_KV_GROUP_REORDERED && c->tail != DCI_KV_TAIL_DROP)
                return refuse_pair(TAIL, GROUP, "use DROP, since its pages do not hold their tokens in order");
        if (c->select == DCI_KV_SELECT_STATIC && c->group != DCI_KV_GROUP_REORDERED)
                return refuse_pair(SELECT, GROUP, "use REORDERED, which alone has static tokens");
        return DCI_OK;
}

/* Lists of query heads are selected by a step's queries from what a kv head has. */
static dci_status check_query_head_lists(const dci_kv_config *c)
{
        if (c->query_head_lists == 0)
                return DCI_OK;
        if (c->n_query_heads == c->n_kv_heads)
                return dci_fail(
                        DCI_ERR_INVALID,
                        "query_head_lists is 1 with %zu query heads and %zu kv heads, expected more query heads "
                        "than kv heads: each has a list of its own anyway",
                        c->n_query_heads, c->n_kv_heads);
        if (c->select != DCI_KV_SELECT_SCAN && c->select != DCI_KV_SELECT_TREE)
                return dci_fail(DCI_ERR_INVALID, "query_head_lists cannot be combined with select %s: use SCAN or TREE",
                                selects[c->select - 1]);
        if (c->group == DCI_KV_GROUP_REORDERED)
                return dci_fail(
                        DCI_ERR_INVALID,
                        "query_head_lists cannot be combined with group REORDERED: its order is one per kv head");
        return DCI_OK;
}

/* Stages that cannot be combined. */
static dci_status check_together(const dci_kv_config *c, const dci_kv_stages *stages)
{
        const bool observed = c->select == DCI_KV_SELECT_OBSERVED;
        const bool by_query = c->select != DCI_KV_SELECT_NONE && c->select != DCI_KV_SELECT_ALL && !observed &&
                              c->select != DCI_KV_SELECT_RECENT;
        DCI_TRY(check_group(c, stages));
        if (stages->select.ranks && c->summary == DCI_KV_SUMMARY_NONE)
                return refuse_pair(SELECT, SUMMARY, "it ranks, and there is nothing to rank by");
        if (observed && c->summary != DCI_KV_SUMMARY_KEYS)
                return refuse_pair(SELECT, SUMMARY, "use KEYS");
        if (observed != (c->schedule == DCI_KV_ONCE))
                return refuse_pair(SELECT, SCHEDULE, "OBSERVED and ONCE need each other");
        if (stages->schedule.lists && !by_query)
                return refuse_pair(SCHEDULE, SELECT, "use a select that ranks by a step's queries");
        /* How many of a cluster's tokens are selected is known to the plan that selects them. */
        if (stages->schedule.lists && c->tail == DCI_KV_TAIL_SUMS && c->group > DCI_KV_GROUP_PAGE)
                return dci_fail(
                        DCI_ERR_INVALID,
                        "schedule %s cannot be combined with tail SUMS over group %s: it keeps lists, and the tail "
                        "needs a new one for each plan",
                        schedules[c->schedule - 1], groups[c->group - 1]);
        if (stages->tail.scored && c->summary != DCI_KV_SUMMARY_CODES && c->summary != DCI_KV_SUMMARY_LEARNED)
                return refuse_pair(TAIL, SUMMARY, "use CODES or LEARNED");
        if (c->tail != DCI_KV_TAIL_DROP && (observed || c->select == DCI_KV_SELECT_ALL))
                return refuse_pair(SELECT, TAIL, "use DROP");
        if (c->sums_whole != 0 && (c->tail != DCI_KV_TAIL_SUMS || c->group > DCI_KV_GROUP_PAGE))
                return dci_fail(
                        DCI_ERR_INVALID,
                        "sums_whole is %d, which needs sums of pages: it cannot be combined with tail %s over group %s",
                        (int)c->sums_whole, tails[c->tail - 1], groups[c->group - 1]);
        return check_tree(c);
}

/* Says what the least budget is made of, and what makes it smaller. */
static dci_status refuse_budget(const dci_kv_config *c)
{
        const size_t young = dci_kv_counts_recent(c) ? dci_kv_young(c) : c->window;
        const bool sink = c->budget_counts <= DCI_KV_COUNT_SINK, window = c->budget_counts < DCI_KV_COUNT_SINK,
                   rollback = young != c->window;
        char parts[96] = "", lower[96] = "";
        if (sink)
                snprintf(parts, sizeof parts, "sink %zu, %s %zu and ", c->sink, rollback ? "rollback" : "window",
                         young);
        if (sink && !window)
                snprintf(parts, sizeof parts, "sink %zu and ", c->sink);
        if (c->budget <= DCI_KV_MAX_TOKENS)
                snprintf(lower, sizeof lower, ": lower %s%s%spage_tokens%s",
                         !sink    ? ""
                         : window ? "sink, "
                                  : "sink or ",
                         window && rollback ? "rollback, " : "", window ? "window or " : "",
                         sink ? ", or change budget_counts" : "");
        return dci_fail(DCI_ERR_INVALID, "budget is %zu, expected %zu (%sa page of %zu) to %zu%s", c->budget,
                        dci_kv_least_budget(c), parts, c->page_tokens, DCI_KV_MAX_TOKENS, lower);
}

static dci_status check_budget(dci_kv_config *c)
{
        if (c->rollback < c->window)
                c->rollback = c->window;
        if (c->budget < dci_kv_least_budget(c) || c->budget > DCI_KV_MAX_TOKENS)
                return refuse_budget(c);
        if (c->group == DCI_KV_GROUP_SEGMENT && c->segment_least > c->segment_buffer / 2)
                return dci_fail(DCI_ERR_INVALID, "segment_least is %zu, expected 0 to %zu (half of segment_buffer)",
                                c->segment_least, c->segment_buffer / 2);
        if (c->observed_pool % 2 == 0)
                return dci_fail(DCI_ERR_INVALID, "observed_pool is %zu, expected an odd number", c->observed_pool);
        if (c->cluster_every < c->cluster_tokens)
                return dci_fail(DCI_ERR_INVALID, "cluster_every is %zu, expected %zu (cluster_tokens) to %zu",
                                c->cluster_every, c->cluster_tokens, DCI_KV_MAX_TOKENS);
        if (c->group == DCI_KV_GROUP_REORDERED && c->ring == 0)
                return dci_fail(DCI_ERR_INVALID, "ring is 0, expected 1 to 4096 with group REORDERED");
        if (c->group != DCI_KV_GROUP_REORDERED && c->reorder_delay > 0)
                return dci_fail(DCI_ERR_INVALID, "reorder_delay is %zu, expected 0: only group REORDERED has orders",
                                c->reorder_delay);
        if (c->group == DCI_KV_GROUP_REORDERED && c->reorder_delay > c->period)
                return dci_fail(DCI_ERR_INVALID, "reorder_delay is %zu, expected 0 to period %zu", c->reorder_delay,
                                c->period);
        return DCI_OK;
}

/* verify and preselect refine a scan of codes. */
static dci_status check_refines(const dci_kv_config *c, const char *name, double value)
{
        const bool codes = c->summary == DCI_KV_SUMMARY_CODES || c->summary == DCI_KV_SUMMARY_LEARNED;
        if (value == 1.0 || (c->select == DCI_KV_SELECT_SCAN && codes && c->combine != DCI_KV_COMBINE_EACH))
                return DCI_OK;
        return dci_fail(
                DCI_ERR_INVALID,
                "%s is %g, which needs a scan of codes and one list for all query heads: it cannot be combined with "
                "select %s, summary %s and combine %s",
                name, value, selects[c->select - 1], summaries[c->summary - 1], combines[c->combine - 1]);
}

static dci_status check_preselect(const dci_kv_config *c, const dci_kv_stages *stages)
{
        DCI_TRY(check_refines(c, "verify", c->verify));
        DCI_TRY(check_refines(c, "preselect", c->preselect));
        if (c->preselect == 1.0)
                return DCI_OK;
        if (stages->tail.scored)
                return dci_fail(DCI_ERR_INVALID,
                                "preselect is %g, but tail %s reads the codes of all tokens: use DROP or SUMS",
                                c->preselect, tails[c->tail - 1]);
        if (c->preselect_tokens > c->page_tokens)
                return dci_fail(DCI_ERR_INVALID, "preselect_tokens is %zu, expected at most the %zu of a page",
                                c->preselect_tokens, c->page_tokens);
        return DCI_OK;
}

/* Contiguous copies are of groups that are lists, in memory of the library's. */
static dci_status check_contiguous(const dci_kv_config *c, const dci_kv_stages *stages)
{
        if (c->contiguous == 0)
                return DCI_OK;
        if (!stages->group.listed && c->group != DCI_KV_GROUP_TREE)
                return dci_fail(DCI_ERR_INVALID,
                                "contiguous is 1, which cannot be combined with group %s: %s; use TREE, CLUSTER, "
                                "SEGMENT or REORDERED",
                                groups[c->group - 1],
                                c->group == DCI_KV_GROUP_PAGE ? "its pages are contiguous"
                                                              : "single tokens have no pages");
        if (!stages->select.ranks && c->select != DCI_KV_SELECT_TREE)
                return dci_fail(DCI_ERR_INVALID,
                                "contiguous is 1, which cannot be combined with select %s: it does not select groups "
                                "by a step's queries",
                                selects[c->select - 1]);
        return c->layout == NULL ? DCI_OK
                                 : dci_fail(DCI_ERR_UNSUPPORTED,
                                            "contiguous is 1, but with a layout keys and values are where the caller "
                                            "has them");
}

/* Rows of n blocks, heads and slots must not lie over each other. From the smallest stride to the largest, each goes
 * beyond all that the smaller ones span. */
static dci_status check_strides(const dci_kv_config *c, const char *name, size_t page, size_t head, size_t slot,
                                size_t dim)
{
        struct {
                size_t stride, n;
        } part[3] = {{page, c->layout->n_blocks}, {head, c->n_kv_heads}, {slot, c->page_tokens}}, swap;
        size_t span = dim;
        for (size_t i = 0; i < 2; i++)
                for (size_t j = 0; j + 1 < 3 - i; j++)
                        if (part[j].stride > part[j + 1].stride) {
                                swap = part[j];
                                part[j] = part[j + 1];
                                part[j + 1] = swap;
                        }
        for (size_t i = 0; i < 3; i++) {
                size_t more;
                if (part[i].n == 1)
                        continue;
                if (part[i].stride < span)
                        return dci_fail(
                                DCI_ERR_INVALID,
                                "%s rows of %zu elements lie over each other: page_stride %zu, head_stride %zu and "
                                "slot_stride %zu, for %zu blocks, %zu heads and %zu slots",
                                name, dim, page, head, slot, c->layout->n_blocks, c->n_kv_heads, c->page_tokens);
                if (!dci_mul(part[i].stride, part[i].n - 1, &more) || !dci_add(span, more, &span) ||
                    span > SIZE_MAX / 8)
                        return dci_fail(DCI_ERR_LIMIT, "%s strides of %zu, %zu and %zu with %zu blocks are too large",
                                        name, page, head, slot, c->layout->n_blocks);
        }
        return DCI_OK;
}

static dci_status check_layout(const dci_kv_config *c)
{
        const dci_kv_layout *l = c->layout;
        if (l == NULL)
                return DCI_OK;
        dci_status status = dci_check_struct_size("dci_kv_layout", l, l->struct_size, sizeof *l);
        if (status != DCI_OK)
                return status;
        if (l->keys == NULL || l->values == NULL)
                return dci_fail(DCI_ERR_INVALID, "the layout's %s are NULL", l->keys == NULL ? "keys" : "values");
        for (size_t i = 0; i < c->n_layers; i++) {
                const size_t bytes = dci_dtype_size(c->dtype);
                if (l->keys[i] == NULL || l->values[i] == NULL)
                        return dci_fail(DCI_ERR_INVALID, "the layout's %s of layer %zu are NULL",
                                        l->keys[i] == NULL ? "keys" : "values", i);
                if ((uintptr_t)l->keys[i] % bytes != 0 || (uintptr_t)l->values[i] % bytes != 0)
                        return dci_fail(DCI_ERR_INVALID, "the layout's rows of layer %zu are not aligned to %zu bytes",
                                        i, bytes);
        }
        if (l->n_blocks == 0)
                return dci_fail(DCI_ERR_INVALID, "the layout has 0 blocks");
        if (l->blocks_by != DCI_KV_BLOCKS_BY_LIBRARY && l->blocks_by != DCI_KV_BLOCKS_BY_CALLER)
                return dci_fail(DCI_ERR_INVALID, "blocks_by is %d, expected 1 or 2", (int)l->blocks_by);
        if (l->reserved != 0)
                return dci_fail(DCI_ERR_INVALID, "the layout's reserved field is %d, expected 0", (int)l->reserved);
        status = check_strides(c, "key", l->key_page_stride, l->key_head_stride, l->key_slot_stride, c->dim_k);
        return status == DCI_OK ? check_strides(c, "value", l->value_page_stride, l->value_head_stride,
                                                l->value_slot_stride, c->dim_v)
                                : status;
}

static dci_status check_layers(const dci_kv_config *c)
{
        const size_t stride = c->layers == NULL || c->layer_stride == 0 ? sizeof *c->layers : c->layer_stride;
        if (stride < sizeof *c->layers || stride % _Alignof(dci_layer_config) != 0)
                return dci_fail(DCI_ERR_INVALID, "layer_stride is %zu, expected a multiple of %zu from %zu on, or 0",
                                stride, _Alignof(dci_layer_config), sizeof *c->layers);
        for (size_t i = 0; c->layers != NULL && i < c->n_layers; i++) {
                const dci_layer_config *layer =
                        (const dci_layer_config *)(const void *)((const unsigned char *)c->layers + i * stride);
                const dci_status status =
                        dci_check_struct_size("dci_layer_config", layer, layer->struct_size, sizeof *layer);
                if (status != DCI_OK)
                        return status;
                if (layer->mode < DCI_KV_LAYER_SPARSE || layer->mode > DCI_KV_LAYER_SLIDING || layer->reserved != 0)
                        return dci_fail(DCI_ERR_INVALID, "layer %zu: mode is %d, reserved %d, expected 1 to 3 and 0", i,
                                        (int)layer->mode, (int)layer->reserved);
                if (layer->mode == DCI_KV_LAYER_SLIDING || layer->sliding_window != 0 || layer->logit_cap != 0.0 ||
                    layer->learned_sinks != 0)
                        return dci_fail(DCI_ERR_UNSUPPORTED,
                                        "layer %zu: sliding windows, capped logits and learned sinks are not built yet",
                                        i);
        }
        return DCI_OK;
}

dci_status dci_kv_check_config(const dci_kv_config *config, dci_kv_config *out, dci_kv_stages *out_stages)
{
        if (config == NULL)
                return dci_fail(DCI_ERR_INVALID, "config is NULL");
        DCI_TRY(dci_check_struct_size("dci_kv_config", config, config->struct_size, sizeof *config));
        *out = *config;
        DCI_TRY(dci_fields_check(fields, 1, out));
        fill_in(out);
        DCI_TRY(dci_fields_check(DCI_FIELDS(fields), out));
        *out_stages = (dci_kv_stages){.group = *dci_kv_groupings[out->group],
                                      .summary = *summary_stages[out->summary],
                                      .select = dci_kv_choices[out->select],
                                      .schedule = dci_kv_schedules[out->schedule],
                                      .tail = *tail_stages[out->tail]};
        if (out->tree_keys == DCI_KV_TREE_CODES)
                out_stages->summary.frame = DCI_CODER_ROTATED;
        DCI_TRY(check_shape(out));
        DCI_TRY(check_together(out, out_stages));
        DCI_TRY(check_query_head_lists(out));
        DCI_TRY(check_budget(out));
        DCI_TRY(check_preselect(out, out_stages));
        DCI_TRY(check_layout(out));
        DCI_TRY(check_contiguous(out, out_stages));
        return check_layers(out);
}
