/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Configs: defaults, checks, and what the preset says where the caller said nothing. */
#include "core/internal.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "kv/config.h"
#include "kv/stages/reorder.h"

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
        const dci_status status = dci_struct_init("dci_kv_config", config, struct_size, sizeof *config);
        if (status != DCI_OK)
                return status;
        config->dtype = DCI_F16;
        config->query_dtype = DCI_F32;
        config->preset = DCI_KV_SKETCH;
        config->value_bits = 2;
        config->budget = 256;
        config->sink = config->window = DCI_KV_PRESET;
        config->rollback = 64;
        config->dense_layers = 2;
        config->refit = 1.5;
        config->period = config->ring = DCI_KV_PRESET;
        config->anchor_first = 2;
        config->anchor_period = 3;
        config->tree_promotion = 0.03;
        config->static_share = DCI_KV_STATIC_SHARE;
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

static dci_status check_range(const char *name, size_t value, size_t least, size_t most)
{
        if (value < least || value > most)
                return dci_fail(DCI_ERR_INVALID, "%s is %zu, expected %zu to %zu", name, value, least, most);
        return DCI_OK;
}

static dci_status check_shape(dci_kv_config *c)
{
        if (c->dim_v == 0)
                c->dim_v = c->dim_k;
        const struct {
                const char *name;
                size_t value, most;
        } sizes[] = {{"n_layers", c->n_layers, DCI_KV_MAX_LAYERS},
                     {"n_query_heads", c->n_query_heads, DCI_KV_MAX_HEADS},
                     {"n_kv_heads", c->n_kv_heads, DCI_KV_MAX_HEADS},
                     {"dim_k", c->dim_k, DCI_KV_MAX_DIM},
                     {"dim_v", c->dim_v, DCI_KV_MAX_DIM}};
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                const dci_status status = check_range(sizes[i].name, sizes[i].value, 1, sizes[i].most);
                if (status != DCI_OK)
                        return status;
        }
        if (c->n_query_heads % c->n_kv_heads != 0)
                return dci_fail(DCI_ERR_INVALID, "n_query_heads is %zu, which n_kv_heads %zu does not divide",
                                c->n_query_heads, c->n_kv_heads);
        if (c->n_query_heads / c->n_kv_heads > DCI_KV_MAX_GROUP)
                return dci_fail(DCI_ERR_LIMIT, "%zu query heads share %zu kv heads, but at most %zu may share one",
                                c->n_query_heads, c->n_kv_heads, DCI_KV_MAX_GROUP);
        if (dci_dtype_size(c->dtype) == 0)
                return dci_fail(DCI_ERR_INVALID, "dtype is %d, expected DCI_F32, DCI_F16 or DCI_BF16", (int)c->dtype);
        if (dci_dtype_size(c->query_dtype) == 0)
                return dci_fail(DCI_ERR_INVALID, "query_dtype is %d, expected DCI_F32, DCI_F16 or DCI_BF16",
                                (int)c->query_dtype);
        if (!(c->scale >= 0.0) || isinf(c->scale))
                return dci_fail(DCI_ERR_INVALID, "scale is %g, expected a positive number or 0", c->scale);
        if (c->scale == 0.0)
                c->scale = 1.0 / sqrt((double)c->dim_k);
        if (c->scale > (double)FLT_MAX || (float)c->scale == 0.0f)
                return dci_fail(DCI_ERR_INVALID, "scale is %g, which is no number in binary32", c->scale);
        return DCI_OK;
}

static const dci_kv_summary *const summaries[DCI_KV_SUMMARIES + 1] = {NULL,
                                                                      &dci_kv_summary_none,
                                                                      &dci_kv_summary_keys,
                                                                      &dci_kv_summary_mean,
                                                                      &dci_kv_summary_minmax,
                                                                      &dci_kv_summary_cuboid,
                                                                      &dci_kv_summary_codes,
                                                                      &dci_kv_summary_learned,
                                                                      &dci_kv_summary_tree};
static const dci_kv_tail *const tails[DCI_KV_TAILS + 1] = {NULL, &dci_kv_tail_drop, &dci_kv_tail_sums,
                                                           &dci_kv_tail_lowbit};
static dci_status check_choice(const char *name, int32_t *value, int32_t preset, int32_t most)
{
        if (*value == 0)
                *value = preset;
        if (*value < 1 || *value > most)
                return dci_fail(DCI_ERR_INVALID, "%s is %d, expected 1 to %d, or 0 for the preset's", name, (int)*value,
                                (int)most);
        return DCI_OK;
}

static dci_status pick_stages(dci_kv_config *c, const dci_kv_preset *preset, dci_kv_stages *out)
{
        dci_status status = check_choice("group", &c->group, preset->group, DCI_KV_GROUPS);
        if (status == DCI_OK)
                status = check_choice("summary", &c->summary, preset->summary, DCI_KV_SUMMARIES);
        if (status == DCI_OK)
                status = check_choice("select", &c->select, preset->select, DCI_KV_CHOICES);
        if (status == DCI_OK)
                status = check_choice("schedule", &c->schedule, preset->schedule, DCI_KV_SCHEDULES);
        if (status == DCI_OK)
                status = check_choice("tail", &c->tail, preset->tail, DCI_KV_TAILS);
        if (status == DCI_OK)
                status = check_choice("combine", &c->combine, preset->combine, DCI_KV_COMBINES);
        if (status != DCI_OK)
                return status;
        *out = (dci_kv_stages){.group = *dci_kv_groupings[c->group],
                               .summary = *summaries[c->summary],
                               .select = dci_kv_choices[c->select],
                               .schedule = dci_kv_schedules[c->schedule],
                               .tail = *tails[c->tail]};
        return DCI_OK;
}

/* A tree is searched, or its pages are ranked by their means; what is left out is dropped. */
static dci_status check_tree(const dci_kv_config *c)
{
        const bool tree = c->group == DCI_KV_GROUP_TREE, nodes = c->summary == DCI_KV_SUMMARY_TREE,
                   searched = c->select == DCI_KV_SELECT_TREE;
        if (!(c->tree_promotion >= 0.001 && c->tree_promotion <= 0.25))
                return dci_fail(DCI_ERR_INVALID, "tree_promotion is %g, expected 0.001 to 0.25", c->tree_promotion);
        if (c->tree_tokens != 0 && c->tree_tokens != 1)
                return dci_fail(DCI_ERR_INVALID, "tree_tokens is %d, expected 0 or 1", (int)c->tree_tokens);
        if (tree && !nodes && c->summary != DCI_KV_SUMMARY_MEAN)
                return dci_fail(DCI_ERR_INVALID, "summary %d does not go with group %d: leaves have nodes or means",
                                (int)c->summary, (int)c->group);
        if (nodes && !tree)
                return dci_fail(DCI_ERR_INVALID, "summary %d does not go with group %d: only a tree has nodes",
                                (int)c->summary, (int)c->group);
        if (searched && !nodes)
                return dci_fail(DCI_ERR_INVALID, "select %d searches a tree's nodes, but summary is %d", (int)c->select,
                                (int)c->summary);
        if (nodes && c->select == DCI_KV_SELECT_SCAN)
                return dci_fail(DCI_ERR_INVALID,
                                "select %d ranks groups, but summary %d is of nodes: search, or take means",
                                (int)c->select, (int)c->summary);
        if (searched && c->combine != DCI_KV_COMBINE_EACH)
                return dci_fail(DCI_ERR_INVALID,
                                "combine %d does not go with select %d: where a tree is searched each head ranks for "
                                "itself",
                                (int)c->combine, (int)c->select);
        if (tree && c->tail != DCI_KV_TAIL_DROP)
                return dci_fail(DCI_ERR_INVALID, "tail %d does not go with group %d: leaves have none", (int)c->tail,
                                (int)c->group);
        return DCI_OK;
}

/* Stages that do not go together. */
static dci_status check_together(const dci_kv_config *c, const dci_kv_stages *stages)
{
        const bool of_pages = c->summary == DCI_KV_SUMMARY_MEAN || c->summary == DCI_KV_SUMMARY_MINMAX ||
                              c->summary == DCI_KV_SUMMARY_CUBOID;
        /* Leaves have means, or nodes (check_tree). */
        if (of_pages == (c->group == DCI_KV_GROUP_TOKEN) && c->group != DCI_KV_GROUP_TREE)
                return dci_fail(DCI_ERR_INVALID,
                                "summary %d does not go with group %d: means, extremes and cuboids are of "
                                "pages and clusters, others of tokens",
                                (int)c->summary, (int)c->group);
        if (stages->group.listed && c->tail == DCI_KV_TAIL_SUMS && c->select == DCI_KV_SELECT_RECENT)
                return dci_fail(
                        DCI_ERR_INVALID,
                        "select %d does not go with tail %d over group %d: it takes single tokens, and sums are "
                        "of whole clusters",
                        (int)c->select, (int)c->tail, (int)c->group);
        if (c->group == DCI_KV_GROUP_REORDERED && c->tail != DCI_KV_TAIL_DROP)
                return dci_fail(DCI_ERR_INVALID,
                                "tail %d does not go with group %d, whose pages do not hold their tokens in order",
                                (int)c->tail, (int)c->group);
        if (c->select == DCI_KV_SELECT_STATIC && c->group != DCI_KV_GROUP_REORDERED)
                return dci_fail(DCI_ERR_INVALID, "select %d takes static tokens, but group %d has none", (int)c->select,
                                (int)c->group);
        if (stages->select.ranks && c->summary == DCI_KV_SUMMARY_NONE)
                return dci_fail(DCI_ERR_INVALID, "select %d ranks, but summary %d keeps nothing to rank by",
                                (int)c->select, (int)c->summary);
        if (c->select == DCI_KV_SELECT_OBSERVED && c->summary != DCI_KV_SUMMARY_KEYS)
                return dci_fail(DCI_ERR_INVALID, "select %d looks at the keys, but summary is %d", (int)c->select,
                                (int)c->summary);
        if ((c->select == DCI_KV_SELECT_OBSERVED) != (c->schedule == DCI_KV_ONCE))
                return dci_fail(DCI_ERR_INVALID,
                                "select %d does not go with schedule %d: observed queries choose once, and "
                                "only they do",
                                (int)c->select, (int)c->schedule);
        const bool by_query = c->select != DCI_KV_SELECT_NONE && c->select != DCI_KV_SELECT_ALL &&
                              c->select != DCI_KV_SELECT_OBSERVED && c->select != DCI_KV_SELECT_RECENT;
        if (stages->schedule.lists && !by_query)
                return dci_fail(DCI_ERR_INVALID,
                                "schedule %d does not go with select %d, which does not look at a step's queries",
                                (int)c->schedule, (int)c->select);
        /* How many of a cluster's tokens are chosen is known to the plan that chooses them. */
        if (stages->schedule.lists && c->tail == DCI_KV_TAIL_SUMS && c->group > DCI_KV_GROUP_PAGE)
                return dci_fail(DCI_ERR_INVALID, "schedule %d keeps lists, but tail %d of group %d needs a new one",
                                (int)c->schedule, (int)c->tail, (int)c->group);
        if (stages->tail.scored && c->summary != DCI_KV_SUMMARY_CODES && c->summary != DCI_KV_SUMMARY_LEARNED)
                return dci_fail(DCI_ERR_INVALID, "tail %d needs codes of the keys, but summary is %d", (int)c->tail,
                                (int)c->summary);
        if (c->tail != DCI_KV_TAIL_DROP && (c->select == DCI_KV_SELECT_OBSERVED || c->select == DCI_KV_SELECT_ALL))
                return dci_fail(DCI_ERR_INVALID, "select %d has no tail, but tail is %d", (int)c->select, (int)c->tail);
        return check_tree(c);
}

static dci_status check_budget(dci_kv_config *c, const dci_kv_preset *preset)
{
        if (c->page_tokens == 0)
                c->page_tokens = preset->page_tokens;
        if (c->page_tokens != 8 && c->page_tokens != 16 && c->page_tokens != 32 && c->page_tokens != 64)
                return dci_fail(DCI_ERR_INVALID, "page_tokens is %zu, expected 8, 16, 32 or 64", c->page_tokens);
        if (c->sink == DCI_KV_PRESET)
                c->sink = preset->sink;
        if (c->window == DCI_KV_PRESET)
                c->window = preset->window;
        const struct {
                const char *name;
                size_t value;
        } sizes[] = {{"sink", c->sink}, {"window", c->window}, {"rollback", c->rollback}};
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                const dci_status status = check_range(sizes[i].name, sizes[i].value, 0, DCI_KV_MAX_TOKENS);
                if (status != DCI_OK)
                        return status;
        }
        if (c->rollback < c->window)
                c->rollback = c->window;
        /* Tokens within the rollback have no summaries, so where there are summaries they are attended to. */
        const bool summarised = c->summary > DCI_KV_SUMMARY_KEYS || c->tail != DCI_KV_TAIL_DROP;
        const size_t young = summarised && c->frozen_prompt == 0 ? c->rollback : c->window;
        const size_t kept = c->sink + young + c->page_tokens;
        if (c->budget < kept || c->budget > DCI_KV_MAX_TOKENS)
                return dci_fail(DCI_ERR_INVALID,
                                "budget is %zu, expected %zu (sink %zu, %s %zu and a page of %zu) to %zu", c->budget,
                                kept, c->sink, young == c->window ? "window" : "rollback", young, c->page_tokens,
                                DCI_KV_MAX_TOKENS);
        return DCI_OK;
}

/* What clusters are like; with other groups it does not matter, and is checked all the same. */
static dci_status check_clusters(dci_kv_config *c)
{
        const dci_kv_clustering *preset = dci_kv_clustering_at(c->preset);
        if (c->cluster_tokens == 0)
                c->cluster_tokens = preset->tokens;
        dci_status status = check_range("cluster_tokens", c->cluster_tokens, 1, DCI_KV_MAX_TOKENS);
        if (status != DCI_OK)
                return status;
        if (c->cluster_every == 0)
                c->cluster_every = preset->every > c->cluster_tokens ? preset->every : c->cluster_tokens;
        if (c->cluster_segment == 0)
                c->cluster_segment = preset->segment;
        if (c->cluster_rounds == 0)
                c->cluster_rounds = preset->rounds;
        status = check_range("cluster_every", c->cluster_every, c->cluster_tokens, DCI_KV_MAX_TOKENS);
        if (status == DCI_OK)
                status = check_range("cluster_segment", c->cluster_segment, 1, DCI_KV_MAX_TOKENS);
        if (status == DCI_OK)
                status = check_range("cluster_rounds", c->cluster_rounds, 1, 1000);
        if (status == DCI_OK)
                status = check_range("cluster_most", c->cluster_most, 0, DCI_KV_MAX_TOKENS);
        if (status == DCI_OK)
                status = check_choice("cluster_by", &c->cluster_by, preset->by, DCI_KV_CLUSTER_CENTRED);
        if (status != DCI_OK)
                return status;
        if (c->reserved != 0)
                return dci_fail(DCI_ERR_INVALID, "the config's reserved field is %d, expected 0", (int)c->reserved);
        if (!(c->estimate_share >= 0.0 && c->estimate_share <= 1.0))
                return dci_fail(DCI_ERR_INVALID, "estimate_share is %g, expected 0 to 1", c->estimate_share);
        if (c->estimate_share == 0.0)
                c->estimate_share = preset->estimate_share;
        return DCI_OK;
}

/* A segment is half of the buffer at most, and has a token. */
static dci_status check_segments(dci_kv_config *c)
{
        const size_t half = c->budget / 2;
        if (c->segment_buffer == 0)
                c->segment_buffer = half > 512 ? 512 : half < 2 ? 2 : half;
        return check_range("segment_buffer", c->segment_buffer, 2, DCI_KV_MAX_TOKENS);
}

/* When lists are decided again. */
static dci_status check_schedule(dci_kv_config *c)
{
        const bool reorders = c->group == DCI_KV_GROUP_REORDERED;
        if (c->period == DCI_KV_PRESET)
                c->period = 128;
        if (c->ring == DCI_KV_PRESET)
                c->ring = reorders ? 64 : 0;
        if (c->tau == 0.0)
                c->tau = c->schedule == DCI_KV_AHEAD ? 0.8 : 0.85;
        if (!(c->tau > -1.0 && c->tau <= 1.0))
                return dci_fail(DCI_ERR_INVALID,
                                "tau is %g, expected more than -1 and at most 1, or 0 for the schedule's", c->tau);
        if (!(c->static_share >= 0.0 && c->static_share <= 1.0) && c->static_share != -1.0)
                return dci_fail(DCI_ERR_INVALID, "static_share is %g, expected 0 to 1, or -1 for online",
                                c->static_share);
        const struct {
                const char *name;
                size_t value, least, most;
        } sizes[] = {{"period", c->period, 1, DCI_KV_MAX_TOKENS},
                     {"ring", c->ring, reorders ? 1 : 0, 4096},
                     {"anchor_first", c->anchor_first, 0, DCI_KV_MAX_LAYERS},
                     {"anchor_period", c->anchor_period, 1, DCI_KV_MAX_LAYERS}};
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                const dci_status status = check_range(sizes[i].name, sizes[i].value, sizes[i].least, sizes[i].most);
                if (status != DCI_OK)
                        return status;
        }
        return DCI_OK;
}

/* Whether keys decide among those that codes found. */
static dci_status check_verify(dci_kv_config *c)
{
        const bool codes = c->summary == DCI_KV_SUMMARY_CODES || c->summary == DCI_KV_SUMMARY_LEARNED;
        if (c->verify == 0.0)
                c->verify = dci_kv_refining_at(c->preset)->verify;
        if (!(c->verify >= 1.0 && c->verify <= 64.0))
                return dci_fail(DCI_ERR_INVALID, "verify is %g, expected 1 to 64, or 0 for the preset's", c->verify);
        if (c->verify > 1.0 && (c->select != DCI_KV_SELECT_SCAN || !codes || c->combine == DCI_KV_COMBINE_EACH))
                return dci_fail(
                        DCI_ERR_INVALID,
                        "verify is %g, which goes with a scan of codes and one list for all query heads, not with "
                        "select %d, summary %d and combine %d",
                        c->verify, (int)c->select, (int)c->summary, (int)c->combine);
        return DCI_OK;
}

/* Whether groups say which codes are read. */
static dci_status check_preselect(dci_kv_config *c, const dci_kv_stages *stages)
{
        const bool codes = c->summary == DCI_KV_SUMMARY_CODES || c->summary == DCI_KV_SUMMARY_LEARNED;
        if (c->preselect == 0.0)
                c->preselect = dci_kv_refining_at(c->preset)->preselect;
        if (c->preselect_tokens == 0)
                c->preselect_tokens = 8;
        if (c->preselect_least == 0)
                c->preselect_least = 4096;
        if (!(c->preselect >= 1.0 && c->preselect <= 64.0))
                return dci_fail(DCI_ERR_INVALID, "preselect is %g, expected 1 to 64, or 0 for the preset's",
                                c->preselect);
        if (c->preselect_tokens != 4 && c->preselect_tokens != 8 && c->preselect_tokens != 16)
                return dci_fail(DCI_ERR_INVALID, "preselect_tokens is %zu, expected 4, 8 or 16, or 0 for 8",
                                c->preselect_tokens);
        const dci_status status = check_range("preselect_least", c->preselect_least, 1, DCI_KV_MAX_TOKENS);
        if (status != DCI_OK || c->preselect == 1.0)
                return status;
        if (c->select != DCI_KV_SELECT_SCAN || !codes || c->combine == DCI_KV_COMBINE_EACH)
                return dci_fail(
                        DCI_ERR_INVALID,
                        "preselect is %g, which goes with a scan of codes and one list for all query heads, not with "
                        "select %d, summary %d and combine %d",
                        c->preselect, (int)c->select, (int)c->summary, (int)c->combine);
        if (stages->tail.scored)
                return dci_fail(DCI_ERR_INVALID,
                                "preselect is %g, but tail %d reads the codes of all tokens: drop it, or take sums",
                                c->preselect, (int)c->tail);
        if (c->preselect_tokens > c->page_tokens)
                return dci_fail(DCI_ERR_INVALID, "preselect_tokens is %zu, expected at most the %zu of a page",
                                c->preselect_tokens, c->page_tokens);
        return DCI_OK;
}

static dci_status check_switch(const char *name, int32_t value)
{
        if (value != 0 && value != 1)
                return dci_fail(DCI_ERR_INVALID, "%s is %d, expected 0 or 1", name, (int)value);
        return DCI_OK;
}

static dci_status check_rest(dci_kv_config *c)
{
        if (c->key_bits == 0)
                c->key_bits = dci_kv_refining_at(c->preset)->key_bits;
        if (c->key_bits != 1 && c->key_bits != 2 && c->key_bits != 3 && c->key_bits != 4 && c->key_bits != 8)
                return dci_fail(DCI_ERR_INVALID, "key_bits is %d, expected 1, 2, 3, 4 or 8, or 0 for the preset's",
                                (int)c->key_bits);
        if (c->value_bits != 1 && c->value_bits != 2 && c->value_bits != 4 && c->value_bits != 8)
                return dci_fail(DCI_ERR_INVALID, "value_bits is %d, expected 1, 2, 4 or 8", (int)c->value_bits);
        if (!(c->refit == 0.0 || c->refit > 1.0) || isinf(c->refit))
                return dci_fail(DCI_ERR_INVALID, "refit is %g, expected more than 1, or 0 for never", c->refit);
        if (c->reserved_more != 0)
                return dci_fail(DCI_ERR_INVALID, "the config's last reserved field is %d, expected 0",
                                (int)c->reserved_more);
        if (c->sums_whole != 0 && (c->tail != DCI_KV_TAIL_SUMS || c->group > DCI_KV_GROUP_PAGE))
                return dci_fail(DCI_ERR_INVALID,
                                "sums_whole is %d, which is about sums of pages, not about tail %d over group %d",
                                (int)c->sums_whole, (int)c->tail, (int)c->group);
        dci_status status = check_switch("frozen_prompt", c->frozen_prompt);
        if (status == DCI_OK)
                status = check_switch("sums_whole", c->sums_whole);
        if (status == DCI_OK)
                status = check_switch("foreground", c->foreground);
        if (c->piece_bytes == 0)
                c->piece_bytes = (size_t)1 << 18;
        return status == DCI_OK ? check_range("piece_bytes", c->piece_bytes, 1, (size_t)1 << 40) : status;
}

/* Rows of n blocks, heads and slots must not lie over each other. From the smallest stride to the largest, each goes beyond all that
 * the smaller ones span. */
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
        dci_status status = dci_check_struct_size("dci_kv_config", config, config->struct_size, sizeof *config);
        if (status != DCI_OK)
                return status;
        *out = *config;
        const dci_kv_preset *preset = dci_kv_preset_at(out->preset);
        if (preset == NULL)
                return dci_fail(DCI_ERR_INVALID, "preset is %d, expected 1 to %d", (int)out->preset, DCI_KV_PRESETS);
        status = check_shape(out);
        if (status == DCI_OK)
                status = pick_stages(out, preset, out_stages);
        if (status == DCI_OK)
                status = check_together(out, out_stages);
        if (status == DCI_OK)
                status = check_budget(out, preset);
        if (status == DCI_OK)
                status = check_clusters(out);
        if (status == DCI_OK)
                status = check_segments(out);
        if (status == DCI_OK)
                status = check_schedule(out);
        if (status == DCI_OK)
                status = check_verify(out);
        if (status == DCI_OK)
                status = check_preselect(out, out_stages);
        if (status == DCI_OK)
                status = check_rest(out);
        if (status == DCI_OK)
                status = check_layout(out);
        return status == DCI_OK ? check_layers(out) : status;
}
