/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/**
 * @file kv.h
 * A KV cache that keeps every token and attends to few: paged storage for the keys and values of many sequences, and a
 * pipeline that selects, at each step, the tokens that a query attends to.
 *
 *      dci_kv_open                       begins a sequence; or dci_kv_fork, dci_kv_load
 *      dci_kv_reserve                    a step: takes all memory that its tokens need, in every layer
 *      each layer:  dci_kv_append        keys and values
 *                   dci_kv_end_prompt    once, with the prompt's last tokens: workers build summaries
 *                   dci_kv_plan_make     for every token that is generated: which tokens the layer's queries attend to
 *                   dci_kv_attend        or the caller's own attention over the plan's slots
 *      dci_kv_step_end                   the tokens are stored; dci_kv_wait waits for the prompt's workers
 *      dci_kv_maintain                   between steps: summaries of tokens that left the window
 *
 * A long prompt may come in several steps, of which the last one ends with dci_kv_end_prompt. Limits: DCI_KV_MAX_*.
 */
#ifndef DCI_KV_H
#define DCI_KV_H

#include "dci/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Presets: systems as named rows of the five choices below (docs/presets.md). */
enum {
        /** attends to everything */
        DCI_KV_FULL = 1,
        /** the best tokens by exact keys: the upper bound of a selection */
        DCI_KV_TOPK = 2,
        /** sink 4 and the most recent tokens (StreamingLLM; Xiao et al. 2024) */
        DCI_KV_STREAMING = 3,
        /** the observed queries' best tokens, selected once (SnapKV; Li et al. 2024) */
        DCI_KV_SNAPKV = 4,
        /** pages of 16 by their mean key */
        DCI_KV_PAGEMEAN = 5,
        /** pages of 16 by the extremes of their keys (Quest; Tang et al. 2024) */
        DCI_KV_QUEST = 6,
        /** pages of 32 by cuboids (ArkVale; Chen et al. 2024) */
        DCI_KV_ARKVALE = 7,
        /** all tokens by low-bit keys and values, none retrieved */
        DCI_KV_LOWBIT = 8,
        /** the default: tokens by low-bit keys */
        DCI_KV_SKETCH = 9,
        /** the same; the other tokens are estimated from sums of pages */
        DCI_KV_SKETCH_SUMS = 10,
        /** the same; the other tokens are attended to by low-bit keys and values */
        DCI_KV_SKETCH_LOWBIT = 11,
        /** pages of 16 from the leaves of a tree over the keys, found by search (IceCache; Mao et al. 2026) */
        DCI_KV_ICECACHE = 12,
        /** clusters by their mean key, the last one truncated at the budget (ClusterKV; Liu et al. 2024) */
        DCI_KV_CLUSTERKV = 13,
        /** static tokens, then pages of 32 by cuboids from an order that puts those first (PRKV; 2025) */
        DCI_KV_PRKV = 14,
        /**
         * clusters of the prompt, segments of later tokens, selected at boundaries of the queries (LouisKV; Wu et al.
         * 2025)
         */
        DCI_KV_LOUISKV = 15,
        /** small clusters; the next best are estimated from sums (RetroInfer; Chen et al. 2025) */
        DCI_KV_RETROINFER = 16,
        /** pages of 32 by cuboids, selected a step ahead and corrected (FreeKV; Liu et al. 2025) */
        DCI_KV_FREEKV = 17,
        /** sketch in two stages: the best groups by their mean key, then tokens of those by their codes */
        DCI_KV_SKETCH_GROUPS = 18,
        /** sketch+lowbit with learned keys of 2 bits; keys rank again four times as many tokens as there is room for */
        DCI_KV_SKETCH_VERIFY = 19,
        /** tokens by votes of their signs, then the best of those by 4-bit codes (ParisKV; Qi et al. 2026) */
        DCI_KV_PARISKV = 20,
        /** the largest number */
        DCI_KV_PRESETS = 20
};

/** First choice: which tokens are a group. */
enum {
        /** single tokens */
        DCI_KV_GROUP_TOKEN = 1,
        /** page_tokens by position */
        DCI_KV_GROUP_PAGE = 2,
        /** leaves of a tree over the keys (M-DCI), cut into pages of page_tokens */
        DCI_KV_GROUP_TREE = 3,
        /** k-means by cosine, see cluster_tokens */
        DCI_KV_GROUP_CLUSTER = 4,
        /** clusters of the prompt, then segments between boundaries of the queries, see segment_buffer */
        DCI_KV_GROUP_SEGMENT = 5,
        /** page_tokens of an order that puts static tokens first, see static_share */
        DCI_KV_GROUP_REORDERED = 6,
        DCI_KV_GROUPS = 6
};

/** Second choice: what is stored per group. */
enum {
        /** nothing */
        DCI_KV_SUMMARY_NONE = 1,
        /** the keys themselves */
        DCI_KV_SUMMARY_KEYS = 2,
        /** the mean key, ranked by q . mean */
        DCI_KV_SUMMARY_MEAN = 3,
        /** per coordinate the least and the greatest, sum max(q_j lo_j, q_j hi_j) */
        DCI_KV_SUMMARY_MINMAX = 4,
        /** centre c and mean deviation r, q . c + |q| . r */
        DCI_KV_SUMMARY_CUBOID = 5,
        /** key_bits per coordinate, random rotation (dci/sketch.h) */
        DCI_KV_SUMMARY_CODES = 6,
        /** the same by a transform learned from the prompt's keys and its observed queries; random without them */
        DCI_KV_SUMMARY_LEARNED = 7,
        /** the tree's nodes, each by the mean of the keys below it */
        DCI_KV_SUMMARY_TREE = 8,
        /** mean and variance per coordinate, q . mean + deviation_weight * sqrt(sum q_j^2 variance_j) */
        DCI_KV_SUMMARY_MEAN_STD = 9,
        /**
         * signs of blocks of 8 randomly rotated coordinates, which vote for candidates, and 4 bits per coordinate, which
         * rank those; see vote_share
         */
        DCI_KV_SUMMARY_VOTES = 10,
        DCI_KV_SUMMARIES = 10
};

/** Third choice: how queries select. */
enum {
        /** nothing but sink and recent */
        DCI_KV_SELECT_NONE = 1,
        /** everything */
        DCI_KV_SELECT_ALL = 2,
        /** ranks all groups and takes the best, the last one truncated at the budget */
        DCI_KV_SELECT_SCAN = 3,
        /** by the prompt's observed queries, once */
        DCI_KV_SELECT_OBSERVED = 4,
        /** the latest tokens that fit the budget */
        DCI_KV_SELECT_RECENT = 5,
        /**
         * each query head searches the tree for the pages of the best tokens; with COMBINE_EACH. Room is counted in
         * whole pages, also for partly filled ones
         */
        DCI_KV_SELECT_TREE = 6,
        /** with GROUP_REORDERED: static tokens, best first, then the best of the other pages as SCAN */
        DCI_KV_SELECT_STATIC = 7,
        DCI_KV_CHOICES = 7
};

/**
 * SELECT_TREE: what a search compares queries with. A node counts by the mean of its cell's keys, a page by its best
 * key (IceCache's rule) or by its mean key.
 */
enum {
        /** keys and means in the keys' format */
        DCI_KV_TREE_EXACT = 1,
        /**
         * key_bits codes of keys and of nodes' means, about the mean key of the candidates that the tree was first
         * built from (random rotation, dci/sketch.h); in memory dim_k * key_bits / 8 + 2 bytes per token. A device
         * plans by these, and its plans are the host's to the bit
         */
        DCI_KV_TREE_CODES = 2,
        /** means of pages, and of nodes, in the keys' format ("leaf means") */
        DCI_KV_TREE_MEANS = 3,
        DCI_KV_TREE_KEYS = 3
};

/**
 * Fourth choice: when a layer selects again. All but the first two store lists between plans, one for each layer and kv
 * head, best first; they go with selections by a step's queries, and with every summary and tail.
 *
 * PERIODIC  selects in the first of each `period` plans of a layer; the others use its lists.
 * BOUNDARY  selects at a boundary of a layer's queries: when the mean over all its query heads of the cosine of a query
 *           with that of the plan before is less than `tau` (LouisKV; Wu et al. 2025, section 4). A query of zeros has
 *           the cosine 0, with another one 1.
 * ANCHOR    selects in the layers anchor_first, anchor_first + anchor_period, ..; a layer between uses the lists of the
 *           last of these before it with its own rows, has no summaries where the tail is dropped, and is planned after
 *           it, at the same number of tokens. Layers before the first one or after a dense one select for themselves
 *           (IceCache's option; Mao et al. 2026).
 * AHEAD     uses the lists that the queries of the plan before selected among the candidates of that plan, and selects
 *           those of the next plan. A kv head is corrected, and uses the list of its own queries, when the mean cosine
 *           of its group's queries with those of the plan before is less than `tau` (FreeKV; Liu et al. 2025,
 *           arXiv:2505.13109).
 *
 * The first plan selects. A stored list is used as far as the budget allows: recent tokens that came since take the
 * place of its last ones where they count, and tokens that have joined groups since make room again, up to the longest
 * list, which is the budget less what always counts (sink + window, see DCI_KV_COUNT_*; where not all groups are
 * ranked: the room of the plan that selected). A plan counts if it omits tokens, also when it is repeated for the same
 * tokens.
 *
 * dci_kv_fork copies lists and queries. A layer drops its lists, so that its next plan selects, where dci_kv_fork,
 * dci_kv_truncate or dci_kv_step_abort remove candidates that they were selected from, which never happens within the
 * rollback; otherwise the lists of an aborted step's plans stay, unless the prompt ended in it. Files hold no lists.
 * Memory, taken with the sequence: per layer 4 bytes per token of the longest list for each kv head, and with BOUNDARY
 * and AHEAD 4 dim_k for each query head.
 */
enum {
        DCI_KV_EVERY_STEP = 1,
        /** at the prompt's end */
        DCI_KV_ONCE = 2,
        DCI_KV_PERIODIC = 3,
        DCI_KV_BOUNDARY = 4,
        DCI_KV_ANCHOR = 5,
        DCI_KV_AHEAD = 6,
        DCI_KV_SCHEDULES = 6
};

/** Fifth choice: what happens to tokens that are not selected. */
enum {
        /** nothing */
        DCI_KV_TAIL_DROP = 1,
        /** estimated from the mean key and value of their pages or clusters (RetroInfer's estimation zone) */
        DCI_KV_TAIL_SUMS = 2,
        /** attended to by low-bit keys, those that rank, and low-bit values */
        DCI_KV_TAIL_LOWBIT = 3,
        DCI_KV_TAILS = 3
};

/** How scores of query heads that share a kv head (GQA) are combined. */
enum {
        /**
         * sum over the heads of the softmax: of tokens over the whole sequence, sink and recent included; of groups
         * over groups; one head alone ranks by its scores. Logits 88 and more below the best in every head count 0, and
         * come last by position
         */
        DCI_KV_COMBINE_SOFTMAX = 1,
        /** mean over the heads of the scores */
        DCI_KV_COMBINE_MEAN = 2,
        /** each head ranks for itself; the lists are interleaved, best first, without repeats */
        DCI_KV_COMBINE_EACH = 3,
        DCI_KV_COMBINES = 3
};

/** The rows that k-means clusters. */
enum {
        /** cosine of keys to the mean key of a cluster (ClusterKV) */
        DCI_KV_CLUSTER_RAW = 1,
        /** cosine of keys less their mean, as unit rows (RetroInfer) */
        DCI_KV_CLUSTER_CENTRED = 2
};

/**
 * What a budget counts: selected tokens always, and
 *
 * ALL              everything else that is attended to: the sink, the window, and tokens that wait for their group.
 *                  No plan of a step of one token exceeds the budget
 * SINK_AND_WINDOW  the sink and the window, as they are configured
 * SINK             the sink
 * SELECTED         nothing else
 *
 * What does not count is attended to all the same, so that with the last three a plan has up to budget + (what stands
 * outside of it) tokens. Tokens wait for their group: those between window and rollback, a page that is not full,
 * generated tokens until they are clustered, segment_buffer, and what observed_keep keeps. With the last three nothing
 * is grouped early for want of room.
 */
enum {
        DCI_KV_COUNT_ALL = 1,
        DCI_KV_COUNT_SINK_AND_WINDOW = 2,
        DCI_KV_COUNT_SINK = 3,
        DCI_KV_COUNT_SELECTED = 4,
        DCI_KV_COUNTS = 4
};

/** What a layer attends to. */
enum {
        /** the plan */
        DCI_KV_LAYER_SPARSE = 1,
        /** everything */
        DCI_KV_LAYER_DENSE = 2,
        /** the last tokens; not yet built */
        DCI_KV_LAYER_SLIDING = 3
};

/** Stands for the preset's value. */
#define DCI_KV_PRESET ((size_t)-1)

/* Limits. */
#define DCI_KV_MAX_LAYERS ((size_t)1024)       /**< of a config */
#define DCI_KV_MAX_HEADS ((size_t)1024)        /**< query heads, and kv heads, of a layer */
#define DCI_KV_MAX_GROUP ((size_t)64)          /**< query heads per kv head */
#define DCI_KV_MAX_DIM ((size_t)1024)          /**< elements of keys and of values */
#define DCI_KV_MAX_TOKENS ((size_t)1 << 27)    /**< of a sequence */
#define DCI_KV_MAX_SEQUENCES ((size_t)1 << 16) /**< open at a time */

/** One layer of a model where it differs from the others. Prepare with dci_layer_config_init. */
typedef struct dci_layer_config {
        size_t struct_size;
        int32_t mode;          /**< DCI_KV_LAYER_*; default SPARSE */
        int32_t reserved;      /**< zero */
        size_t sliding_window; /**< 0; others are DCI_ERR_UNSUPPORTED */
        double logit_cap;      /**< 0; others are DCI_ERR_UNSUPPORTED */
        size_t learned_sinks;  /**< 0; others are DCI_ERR_UNSUPPORTED */
} dci_layer_config;
DCI_API dci_status dci_layer_config_init(dci_layer_config *config, size_t struct_size);

/** Who assigns blocks to a sequence. */
enum {
        /** free ones, by the library */
        DCI_KV_BLOCKS_BY_LIBRARY = 1,
        /** dci_kv_assign_blocks */
        DCI_KV_BLOCKS_BY_CALLER = 2
};

/**
 * Keys and values in the caller's memory, such as an engine's paged cache. The row of a block's slot s and head h
 * begins at base + block * page_stride + h * head_stride + s * slot_stride, in elements of the config's dtype. Prepare
 * with dci_kv_layout_init. docs/kv-integration.md shows the layouts of known engines.
 */
typedef struct dci_kv_layout {
        size_t struct_size;
        void *const *keys; /**< n_layers base pointers, aligned to their elements */
        void *const *values;
        size_t n_blocks; /**< in each layer */
        size_t key_page_stride, key_head_stride, key_slot_stride;
        size_t value_page_stride, value_head_stride, value_slot_stride;
        int32_t blocks_by; /**< DCI_KV_BLOCKS_*; default BY_LIBRARY */
        int32_t reserved;  /**< zero */
} dci_kv_layout;
DCI_API dci_status dci_kv_layout_init(dci_kv_layout *layout, size_t struct_size);

/**
 * Called for every piece of memory that holds keys and values, so that a device can pin it. Must not wait for another
 * thread that calls this dci_kv; calling the dci_kv from inside it is refused.
 */
typedef struct dci_kv_hook {
        void *ctx;
        /** other than 0: refused, and so is the call */
        int32_t (*taken)(void *ctx, void *memory, size_t n_bytes);
        void (*given_back)(void *ctx, void *memory, size_t n_bytes);
} dci_kv_hook;

/** Prepare with dci_kv_config_init. */
typedef struct dci_kv_config {
        size_t struct_size;
        size_t n_layers, n_query_heads, n_kv_heads;     /**< no defaults; n_kv_heads divides n_query_heads */
        size_t dim_k;                                   /**< no default */
        size_t dim_v;                                   /**< 0 (default): dim_k */
        dci_dtype dtype;                                /**< of keys and values; default DCI_F16 */
        dci_dtype query_dtype;                          /**< default DCI_F32 */
        double scale;                                   /**< of q . k, in binary32; 0 (default): 1 / sqrt(dim_k) */
        size_t page_tokens;                             /**< 8, 16, 32 or 64; 0 (default): the preset's, 16 or 32 */
        int32_t preset;                                 /**< DCI_KV_*; default DCI_KV_SKETCH */
        int32_t group, summary, select, schedule, tail; /**< 0 (default): the preset's */
        int32_t combine;                                /**< DCI_KV_COMBINE_*; 0 (default): the preset's */
        /** of codes, per coordinate: 1, 2, 3, 4 or 8; 0 (default): the preset's, 4, sketch+verify 2 */
        int32_t key_bits;
        int32_t value_bits; /**< of TAIL_LOWBIT: 1, 2, 4 or 8; default 2 */
        /**
         * 1: groups are built from the whole prompt, its window included, and never again; tokens after it are attended
         * to and not counted, while sink and window count as if there were a window: the protocol of the trace figures.
         * Default 0
         */
        int32_t frozen_prompt;
        /** 1: dci_kv_end_prompt does its work itself. Default 0: threads of the dci_kv do it, see there */
        int32_t foreground;
        /**
         * default 256; at least page_tokens and what counts of budget_counts: with ALL sink + window or, with
         * summaries, rollback
         */
        size_t budget;
        size_t sink;   /**< default DCI_KV_PRESET: 16, streaming and pariskv 4. Groups begin after it */
        size_t window; /**< default DCI_KV_PRESET: 64 */
        /** tokens that dci_kv_truncate removes at no cost; default 64; less than the window means the window */
        size_t rollback;
        size_t dense_layers; /**< the first layers attend to everything; default 2 */
        /** NULL (default), or n_layers of them, copied; then dense_layers does not matter */
        const dci_layer_config *layers;
        /** bytes from one to the next; 0 (default): sizeof(dci_layer_config) of this header */
        size_t layer_stride;
        const dci_kv_layout *layout; /**< NULL (default): the library's own memory */
        dci_kv_hook hook;            /**< none by default */
        size_t max_bytes;            /**< of memory in all; 0 (default): no limit */
        /**
         * "resident until pressure": while the keys and values of sequences fit in it, they are attended to in full;
         * when they no longer do, the longest ones become sparse, one in the middle of a step when that ends. 0
         * (default): all are sparse
         */
        size_t resident_bytes;
        /** codes are rebuilt when their distortion has grown by this factor; default 1.5, 0: never */
        double refit;
        uint64_t seed; /**< of rotations, promotions, and first centroids of clusters; default 0 */
        /*
         * DCI_KV_GROUP_CLUSTER. A prompt's n candidates get n / cluster_tokens clusters, at least one, for good. Of more
         * than 1,024 clusters k-means would take a time that grows with the square of n: such a prompt is divided evenly
         * into the fewest parts that have at most 1,024 clusters each, and each part is clustered by itself. Tokens
         * that come later are recent, and attended to, until cluster_every of them are older than the rollback:
         * dci_kv_maintain gives those clusters of their own. With COUNT_ALL they count in the budget: when recent
         * tokens would take more than half of it, dci_kv_reserve clusters them earlier, in clusters of few tokens,
         * provisionally; as soon as provisional clusters hold cluster_every tokens together, these are clustered again
         * as if the budget had waited. Other groups ignore these fields. 0 (default): the preset's, or clusterkv's
         * where it has none.
         */
        /** a cluster's on average, 1 to DCI_KV_MAX_TOKENS; clusterkv 80, retroinfer 16 */
        size_t cluster_tokens;
        size_t cluster_every; /**< cluster_tokens to DCI_KV_MAX_TOKENS; clusterkv 320, retroinfer 1,024 */
        /**
         * k-means runs within so many consecutive tokens, rounded up to a multiple of 32; clusterkv DCI_KV_MAX_TOKENS,
         * louiskv and retroinfer 8,192. Then every key goes to the nearest of all centroids
         */
        size_t cluster_segment;
        size_t cluster_rounds; /**< at most, 1 to 1,000; clusterkv 20, retroinfer 10 */
        size_t cluster_most;   /**< larger clusters are cut into equal parts by position; 0 (default): any size */
        int32_t cluster_by;    /**< DCI_KV_CLUSTER_*; clusterkv RAW, retroinfer CENTRED */
        int32_t reserved;      /**< zero */
        /**
         * with TAIL_SUMS over clusters: the share of all clusters that is estimated, the best after the selected ones;
         * 0 to 1, 1: all, and so with selections that do not rank. 0 (default): the preset's, retroinfer 0.232, others
         * 1
         */
        double estimate_share;
        double tau;    /**< BOUNDARY and AHEAD: in (-1, 1], see dci_kv_calibrate; 0 (default): 0.85 and 0.8 */
        size_t period; /**< PERIODIC and GROUP_REORDERED: plans; 1 or more; default DCI_KV_PRESET: 128 */
        size_t anchor_first, anchor_period; /**< ANCHOR: layers; default 2 and 3, a period of at least 1 */
        /**
         * queries of its last plans that a layer stores, for groups that are built from them; 0 to 4096; default
         * DCI_KV_PRESET: as many as the groups need, 64 with GROUP_REORDERED, else 0. ring * n_query_heads * dim_k
         * floats per layer and sequence
         */
        size_t ring;

        /* GROUP_TREE (IceCache; docs/systems/icecache.md says what the published effort settings become) */
        double tree_promotion; /**< chance of a token to become a node, [0.001, 0.25]; default 0.03 */
        /**
         * nodes that each query head opens; 0 (default): max(30, 0.0015 candidates); as many as there are, or more:
         * every key is scored, and the best pages are exact
         */
        size_t tree_field_of_view;
        /**
         * 1: the search returns tokens, not pages: the best ones found, as many as there is room for; it opens more
         * nodes until they hold so many. Default 0
         */
        int32_t tree_tokens;
        /*
         * DCI_KV_GROUP_SEGMENT (LouisKV; Wu et al. 2025, section 4.2). The prompt's candidates are clustered as above.
         * Tokens after them are recent, and attended to, while segment_buffer holds them; when there are more, the
         * oldest segments are moved out of it, as many as fit an eighth of the buffer and at least one, as soon as they
         * are older than the rollback. A segment ends before a token at which BOUNDARY found a boundary of the layer's
         * queries (other schedules find none), with the prompt, and at segment_buffer / 2 tokens. All kv heads of a
         * layer have the same segments. With COUNT_ALL, when recent tokens would take more than half of the budget,
         * dci_kv_reserve moves segments out earlier, and cuts them if it must. After a truncation inside the prompt's
         * clusters, dci_kv_maintain or dci_kv_reserve clusters the remaining tokens again.
         */
        /** tokens, 2 to DCI_KV_MAX_TOKENS; 0 (default): with COUNT_ALL half of the budget, at most 512; else 512 */
        size_t segment_buffer;
        /**
         * SELECT_SCAN over codes: so many times as many tokens as there is room for (or as the longest list has, if
         * that is more) are ranked again by their keys. A plan that uses a stored list reads no keys, and its tail goes
         * by codes alone. 1 to 64; 0 (default): the preset's, 1, codes decide; sketch+verify 4
         */
        double verify;
        /*
         * DCI_KV_GROUP_REORDERED (PRKV, section 4.1). The queries of the prompt's last positions, and after each
         * `period` plans of a layer those of the last `ring` plans (in both cases not of more positions than the
         * rollback has), are scored against all candidates: the sum over queries and group of the softmax over the
         * candidates is a candidate's importance. At the level avx512 its products are those of keys and queries
         * rounded to bytes, row by row: a logit is right to some hundredth of what logits spread, and tokens of nearly
         * the same importance may change places; at other levels, and where logits may be 2^24 or more, they are in
         * binary32. The most important ones are static: static_share of the longest list of so many tokens (with
         * COUNT_ALL budget - sink - window), rounded down to whole pages. Candidates are stored in the order [static
         * ones, best first; the others as they were stored], pages are cut from it, and all their summaries are
         * rebuilt. Later candidates form pages by position after these, until the next order includes them. Rows stay
         * in their slots; an order is a list. Tails but DROP are refused. With frozen_prompt the candidates stay those
         * of the prompt, and orders are renewed all the same.
         */
        /**
         * 0 to 1; default 0.25. 0: pages by position, and no queries are needed. -1: once per layer, at the prompt's
         * end, as many as the best candidates of the first and of the last observed query have in common, each time as
         * many as the longest list has; the mean over the query heads (PRKV, appendix G). 0.25 where a prompt has no
         * more candidates than those or no observed queries
         */
        double static_share;
        /*
         * SELECT_SCAN over codes, one list for all query heads, tails DROP and SUMS: groups first, then codes. The mean
         * keys of consecutive preselect_tokens candidates have codes, too, made as those of keys. A plan ranks these by
         * the sum over the query heads of the softmax over all means, adds up those of the same 16 consecutive
         * candidates, and scores only the tokens of the best ones: preselect times the longest list of them,
         * preselect_least if that is more, and up to 15 for whole sixteens. Then it goes on as without preselect, with
         * shares over the scored, sink and recent tokens. Where there are no more candidates than that it is the scan
         * of all of them, to the bit. Cost: of the scan, 1 / preselect_tokens, and the part of the candidates that is
         * scored; and as many more codes to keep as there are means.
         */
        /** 1 to 64; 0 (default): the preset's, 1, every candidate is scored; sketch+groups 24 */
        double preselect;
        size_t preselect_tokens; /**< 4, 8 or 16, at most page_tokens; 0 (default): 8 */
        /** 1 to DCI_KV_MAX_TOKENS; 0 (default): 4,096, which take some 0.1 ms in 8 heads */
        size_t preselect_least;
        /**
         * TAIL_SUMS over pages: 1: tokens of a page that were not selected count by the mean key and value of the whole
         * page, and no selected row is read for it. Default 0: by the means of those tokens alone
         */
        int32_t sums_whole;
        int32_t reserved_more; /**< zero */
        /**
         * the library takes memory for keys and values in pieces of at least so many bytes, aligned to 4,096, and calls
         * the hook for each: devices lock pieces whole. 0 (default): 256 KiB; at most 2^40
         */
        size_t piece_bytes;
        /** DCI_KV_COUNT_*: what the budget counts; 0 (default): the preset's, ALL, snapkv SINK_AND_WINDOW */
        int32_t budget_counts;
        /**
         * DCI_KV_SELECT_OBSERVED: 1: tokens after the prompt are attended to for good, as SnapKV keeps them. 0: like
         * others they are dropped when they leave the window, unless there is room for them. -1 (default): the
         * preset's, snapkv 1
         */
        int32_t observed_keep;
        /**
         * the budget of a plan is this share of the sequence's tokens, rounded down to whole pages, but no less than
         * the least budget and no more than `budget`, which sizes the lists. (0, 1]; 0 (default): `budget`
         */
        double budget_share;
        /**
         * DCI_KV_SELECT_OBSERVED: a candidate's importance is the greatest of so many neighbours, itself in the middle
         * (SnapKV's pooling). An odd number, 1 to 63; 1: its own; 0 (default): the preset's, snapkv 7
         */
        size_t observed_pool;
        /**
         * DCI_KV_GROUP_SEGMENT: a boundary ends a segment that has at least so many tokens; 0 to segment_buffer / 2;
         * default 0, as 1
         */
        size_t segment_least;
        /*
         * GROUP_TREE: levels of nodes, and P-DCI (Li and Malik 2017) among what is below nodes (IceCache, algorithms 2
         * to 4). docs/systems/icecache.md has the rules, docs/measurements/presets.md what they cost and keep.
         */
        /**
         * chance of a node to be one of the level above, too, (0, 0.5], and so on while a level has more than 32 nodes.
         * Prompts, inserts and queries go down through all levels, and a query's best tokens may be nodes of any level.
         * The published code has 0.2. -1: one level, and keys and queries are compared with all of its nodes. 0
         * (default): queries as with -1; above 3,072 nodes, some 100,000 tokens, prompts and inserts go through levels
         * of 0.2. Files do not depend on it
         */
        double tree_promotion_subseq;
        /**
         * simple indices of P-DCI, of one composite index: random directions that choose which nodes and rows below the
         * opened nodes are compared with a query, and which nodes with an insert; 0 to 32; 0 (default): all. The
         * published code has 1. Each takes 4 bytes per place of a page and per node
         */
        size_t tree_simple_indices;
        /**
         * share of those below the opened nodes of a level that P-DCI retrieves for each query head, and of the nodes
         * for an insert, (0, 1]; 1: all; 0 (default): as published, 0.8 and 0.6. A prompt retrieves all
         */
        double tree_retrieve;
        /**
         * SUMMARY_MEAN_STD: how many standard deviations of its keys' products with the query a group counts above their
         * mean; above 0 and up to 100; 0 (default): 1.5
         */
        double deviation_weight;
        /**
         * 1: for a device (dci_gpu_kv_create), keys and values of the layers that are not dense are in host memory a
         * second time, in the order of their groups, so that a page of a tree or of a stored order, or a cluster, is
         * fetched as contiguous memory instead of as scattered rows. With GROUP_TREE, CLUSTER, SEGMENT and REORDERED
         * and a selection by a step's queries (other groups have no such pages, or have them already); not with a
         * layout (DCI_ERR_UNSUPPORTED). No output depends on it. Costs: as much memory again (of a tree more, since its
         * pages are not full) and 8 bytes per token, layer and kv head, which count for max_bytes; the time to copy
         * rows, for workers at a prompt's end, or for the reservation that finds new groups. Forks share what
         * is the same. Files do not have it. A dci_kv without a device makes no copies. Default 0
         */
        int32_t contiguous;
        /**
         * SELECT_TREE: what nodes and pages are ranked by, DCI_KV_TREE_*; others than EXACT with a search of all nodes
         * alone (tree_promotion_subseq 0 or -1, no tree_simple_indices). 0 (default): EXACT; a dci_gpu_kv whose device
         * can plan takes CODES, unless its planner is DCI_GPU_PLAN_HOST
         */
        int32_t tree_keys;
        /**
         * GROUP_REORDERED: plans of a layer from the call of dci_kv_maintain that finds a new order due to the one that
         * takes it into use; until then the workers of dci_kv_end_prompt make it, and steps go on. Layers come due one
         * after the other: layer l first after period - l period / n_layers plans, then each `period` plans. 0 to
         * period; 0: all layers come due at the same plan, and dci_kv_maintain makes their orders itself. Default
         * DCI_KV_PRESET: 16 with GROUP_REORDERED, at most half of the period; else 0
         */
        size_t reorder_delay;
        /**
         * 1: each query head has a list of its own, with the whole room of the budget, and attends to that alone (as
         * ClusterKV is published); 0 (default): the query heads of a kv head share one. Summaries, and what `tail` adds
         * per query head, stay those of the kv head. A plan has n_query_heads lists then; `combine` combines nothing,
         * and AHEAD corrects each query head for itself. Needs n_query_heads > n_kv_heads, select SCAN or TREE, and a
         * group other than REORDERED, whose order is one per kv head. A device plans it, too, but for trees and VOTES.
         * Costs up to n_query_heads / n_kv_heads times the rows that attention reads
         */
        int32_t query_head_lists;
        int32_t reserved_end; /**< zero */
        /*
         * SUMMARY_VOTES (ParisKV; Qi et al. 2026), with GROUP_TOKEN. A key is rotated at random, by the seed alone, so
         * that its codes never change, and cut into blocks of 8 coordinates (the last one filled with zeros). Per block
         * it has its 8 signs, 4 bits for each coordinate of its direction, and a weight: dim_k / 8 * 7 bytes, 112 at
         * dim 128. With SELECT_SCAN, in each block the 256 possible codes are ranked by their product with the mean
         * query of the group; a candidate has 6, 5, .., 1 votes from a block if its code is among the best that 0.05,
         * 0.15, 0.3, 0.5, 0.75, 1 times vote_share of all candidates have, the last code counted whole. The ceil of
         * candidate_share of all candidates, those with most votes (no fewer than the longest list has; equal ones by
         * position), are then ranked by their estimated scores as `combine` says, MEAN being as published. No key is
         * read. Where all are candidates there is no vote. Cost: of a plan, a byte and a look-up per block and
         * candidate, and 6 bytes per block of those that are ranked; dim_k / 8 KiB per layer, sequence and kv head for
         * counts of codes.
         */
        /**
         * (0, 1]; 0 (default): as published by the number of candidates, 0.5, from 5,000 on 0.3, 10,000 0.25, 30,000 0.2
         */
        double vote_share;
        /**
         * (0, 1]; 1: all candidates are ranked; 0 (default): as published, 0.5, from 5,000 on 0.25, 10,000 0.2, 30,000
         * 0.1
         */
        double candidate_share;
} dci_kv_config;
DCI_API dci_status dci_kv_config_init(dci_kv_config *config, size_t struct_size);

/**
 * Sets a config that dci_kv_config_init prepared to a preset at a budget with the sizes and the accounting of its paper
 * or its authors' program (docs/presets.md#published-sizes): preset, budget, budget_counts, budget_share, combine,
 * page_tokens, sink, window, rollback, segment_buffer, segment_least, tau, period, ring, static_share, observed_keep,
 * observed_pool and query_head_lists (0 where the config's n_query_heads, set before, is its n_kv_heads). All other
 * fields stay, and these can be changed afterwards. Presets that are no published system get their defaults. Whether
 * the system can have the budget is checked when the config is used. Errors: no such preset.
 */
DCI_API dci_status dci_kv_config_published(dci_kv_config *config, int32_t preset, size_t budget);

/** "full", "topk", ...; "unknown" for others. And back: 0 for unknown names. */
DCI_API const char *dci_kv_preset_name(int32_t preset);
DCI_API int32_t dci_kv_preset_of(const char *name);

/**
 * Sequences, their keys and values, and what selects among them. Words:
 *  - token: a position of a sequence, 0 to n - 1, with one key and one value per layer and kv head.
 *  - page: `page_tokens` tokens of one layer and one kv head. A block is the pages of all kv heads for the same tokens;
 *    block b has the pages b * n_kv_heads to (b + 1) * n_kv_heads - 1, and a sequence has the same blocks in every
 *    layer. A slot is page * page_tokens + offset: the place of a token's rows.
 *  - sink: the first tokens, window: the last ones; both are always attended to. Tokens that left the window belong to
 *    groups (pages, clusters, or single tokens), which have summaries. `recent`: the window and the tokens that have no
 *    group yet.
 *  - budget: tokens attended to per kv head, with query_head_lists per query head; budget_counts says which of them
 *    count: by default all, sink and recent included. A sequence attends to all its tokens while it has no more than a
 *    plan could attend to. Recent tokens are always attended to: a step of very many tokens may exceed the budget with
 *    them until the next one.
 *  - candidates: tokens that have summaries; the selected ones, with sink and recent, are the plan.
 *
 * Keys are those of attention, after rotary embedding. Errors: a call that fails changes no sequence; a step happens
 * whole or not at all. After dci_kv_reserve, appending, planning and attending allocate nothing.
 * Threads: any thread may call; calls on one dci_kv are served one after another, and share out their work through the
 * context's executor. Same seed, calls and ISA: the same bits at any thread count and batch size.
 */
typedef struct dci_kv dci_kv;

/** Creates a KV cache without sequences. The layout's memory stays the caller's and must outlive it. */
DCI_API dci_status dci_kv_create(dci_context *context, const dci_kv_config *config, dci_kv **out_kv);
/** Closes all sequences and frees everything. NULL is allowed. */
DCI_API void dci_kv_destroy(dci_kv *kv);

/* --- sequences ---------------------------------------------------------------------------------------------------- */

/** Begins an empty sequence: a number that is never used again. */
DCI_API dci_status dci_kv_open(dci_kv *kv, int64_t *out_sequence);

/**
 * Begins a sequence with the first n_tokens of another, which it shares: whole blocks and summaries are counted
 * references, partly used ones are copied. The prompt of `sequence` has ended, and no step is open. The new one keeps
 * its transforms, and is otherwise independent. O(n_tokens / page_tokens). n_tokens: at most what it has.
 */
DCI_API dci_status dci_kv_fork(dci_kv *kv, int64_t sequence, size_t n_tokens, int64_t *out_sequence);

/**
 * Removes the tokens from n_tokens on. Within the rollback it costs nothing; deeper, summaries of the truncated pages
 * are dropped, and their tokens count as recent until they are grouped again; with clusters, all those of the same
 * k-means as truncated ones (the prompt's, or of cluster_every later tokens), with segments those that were moved out
 * of the buffer together, and with a stored order all of it. Memory of whole blocks is given back, and assigned blocks
 * beyond n_tokens. GROUP_TREE: a pass over the tokens' numbers; tokens in cells of removed nodes are assigned to the
 * remaining ones, so a tree depends on its truncations. A tree that a fork shares is copied first: DCI_ERR_FULL and
 * DCI_ERR_MEMORY, with nothing changed.
 */
DCI_API dci_status dci_kv_truncate(dci_kv *kv, int64_t sequence, size_t n_tokens);

/** Ends a sequence, also in the middle of a step. */
DCI_API dci_status dci_kv_close(dci_kv *kv, int64_t sequence);

/* --- steps -------------------------------------------------------------------------------------------------------- */

/**
 * Begins a step of n_sequences different sequences: takes blocks in every layer, and scratch, for n_tokens[i] more
 * tokens each (NULL: 1). Also builds groups when dci_kv_maintain was not called and recent tokens would take more than
 * half the budget (clusters and segments that do not count: when they are due). Waits for an order in the making that
 * reads a block which has to be copied. Errors: DCI_ERR_FULL names the bytes (or blocks) wanted and available. No
 * sequence has changed then; scratch, tables and blocks that were taken stay with the dci_kv for the next call.
 */
DCI_API dci_status dci_kv_reserve(dci_kv *kv, size_t n_sequences, const int64_t *sequences, const size_t *n_tokens);

/**
 * With DCI_KV_BLOCKS_BY_CALLER: assigns the blocks of the sequence's next tokens, which follow those it has; before
 * dci_kv_reserve. A block may be assigned to several sequences that share its tokens; closing or truncating releases it
 * without notice.
 */
DCI_API dci_status dci_kv_assign_blocks(dci_kv *kv, int64_t sequence, size_t n_blocks, const int32_t *blocks);

/** Rows of tokens, of all sequences of a call in order. Prepare with dci_kv_rows_init. */
typedef struct dci_kv_rows {
        size_t struct_size;
        /** the row of token t and head h at keys + t * key_token_stride + h * key_head_stride */
        const void *keys;
        const void *values; /**< both NULL: the rows are in their slots already (layouts of the caller) */
        size_t key_token_stride, key_head_stride; /**< in elements; 0 (default): n_kv_heads * dim_k, and dim_k */
        size_t value_token_stride, value_head_stride;
} dci_kv_rows;
DCI_API dci_status dci_kv_rows_init(dci_kv_rows *rows, size_t struct_size);

/**
 * Stores keys and values of one layer for the sequences of a step: n_tokens[i] tokens each (NULL: 1), the sequences'
 * rows in order. Refuses more tokens than were reserved, and NaN and infinity, naming token and head.
 */
DCI_API dci_status dci_kv_append(dci_kv *kv, size_t layer, size_t n_sequences, const int64_t *sequences,
                                 const size_t *n_tokens, const dci_kv_rows *rows);

/**
 * Ends a sequence's prompt in this layer: workers build groups, codes and selections that are made once from the
 * tokens appended so far, while the caller goes on with the next layer.
 *
 * Workers are threads of the dci_kv, which stay until it is destroyed; each takes one kv head of a layer at a time. They
 * are started as prompts end, as many as there are heads to work on, but one less than the context's thread limit, or
 * one if that is 1 or the executor is the caller's. A call that waits for prompts works on them, too, with as many
 * threads of the context as are not workers, its own at least. Workers take no lock while they build: other calls and
 * other sequences go on.
 *
 * queries   n_positions x n_query_heads rows of dim_k, ld elements apart: those of the prompt's last positions, as many
 *           as there are (64 are plenty). Learned codes are fitted to them; DCI_KV_SELECT_OBSERVED, and
 *           DCI_KV_GROUP_REORDERED with static tokens, need them where there are more candidates than they may select;
 *           others can do without (NULL, 0).
 *
 * Every sequence needs this once per layer before the first plan, also an empty one, within a step: the prompt's last
 * one, or one of 0 tokens where its end is known later. The call takes all memory that the work needs, so workers
 * cannot fail; where memory for all of them is short, or would take more than a quarter of what is left of max_bytes,
 * fewer work at a time, at least one.
 * Cost per layer: a pass over the keys; learned codes take a fit per kv head (dci_sketch_fit); a tree of one level a
 * product of each key with each node, tree_promotion times the square of the tokens per kv head, and one with levels
 * some 160 products of each key per level (tree_promotion_subseq); clusters a k-means per kv head (dci_kmeans) for each
 * part of the prompt (see cluster_tokens), O(rounds n dim_k) times the clusters of a part, and while prompts are under
 * way 8 dim_k + 40 bytes per token of a part and a copy of n rows for each thread, two at least: for fewer threads where
 * that would be more than 256 MiB and than a quarter of the keys and values of n tokens in all layers; a stored order as
 * in dci_kv_maintain.
 */
DCI_API dci_status dci_kv_end_prompt(dci_kv *kv, size_t layer, int64_t sequence, size_t n_positions,
                                     const void *queries, size_t ld);

/**
 * Waits for the work of dci_kv_end_prompt for a sequence (-1: for all), and takes part in it. Plans wait by themselves.
 */
DCI_API dci_status dci_kv_wait(dci_kv *kv, int64_t sequence);

/** Ends the step: all layers have all tokens that were reserved. Refused if one has not. */
DCI_API dci_status dci_kv_step_end(dci_kv *kv, size_t n_sequences, const int64_t *sequences);

/**
 * Takes the step back: the sequences are as before dci_kv_reserve, except for lists that a schedule stores, groups that
 * the reservation built, blocks that it copied from a fork, and sequences that it made sparse. Prompts that ended in it
 * have not. Assigned blocks stay assigned.
 */
DCI_API dci_status dci_kv_step_abort(dci_kv *kv, size_t n_sequences, const int64_t *sequences);

/**
 * Between steps: builds groups of tokens that left the window, rebuilds codes that no longer fit, and gives back the
 * memory that clustering a prompt took. sequences NULL: all. GROUP_TREE: a page is inserted whole, for a product of
 * each token with each node, with levels some 100 per level, and of each new node with all nodes; a key that outgrows c,
 * whose square is a power of two, makes the call rebuild its head's tree. With DCI_KV_GROUP_REORDERED also renews a
 * layer's order, `period` plans after the last time: per layer O(ring n_query_heads n dim_k), and for its time a copy of
 * n keys and 76 n bytes (avx512: 76 + dim_k) for each thread, within the bounds of dci_kv_end_prompt. With reorder_delay
 * the call only copies the queries, workers do the rest, and the call that finds reorder_delay more plans takes the
 * order into use; it waits for workers that have not finished, so the same calls give the same plans at any speed.
 * Forks and files do not have the order that is being made, and a sequence that is truncated below its candidates loses
 * it: the next call makes another. A child of fork(2) makes it itself. Between calls plans use the order there is.
 */
DCI_API dci_status dci_kv_maintain(dci_kv *kv, size_t n_sequences, const int64_t *sequences);

/* --- plans -------------------------------------------------------------------------------------------------------- */

/**
 * Which tokens the queries of one layer attend to: for sequence i of the call and kv head h (or query head h, with
 * query_head_lists), the tokens before sink_end[i], those of list h, and those from recent_begin[i] to n_tokens[i].
 * Slots are of the list's kv head. The arrays are the caller's (or of dci_kv_plan_create): room for max_sequences, lists
 * of `stride` slots. Prepare with dci_kv_plan_init.
 */
typedef struct dci_kv_plan {
        size_t struct_size;
        size_t max_sequences;
        size_t n_lists;     /**< per sequence: n_kv_heads, or n_query_heads with query_head_lists */
        size_t stride;      /**< at least the budget */
        int32_t *slots;     /**< max_sequences x n_lists x stride, in the order of their positions */
        int32_t *positions; /**< the same as positions of the sequence; may be NULL */
        int32_t *counts;    /**< max_sequences x n_lists */
        /** max_sequences; recent_begin 0: everything is attended to */
        int32_t *sink_end, *recent_begin, *n_tokens;
        /** max_sequences x n_query_heads x dim_v: attention over the tail alone; NULL where the tail is dropped */
        float *tail_out;
        /** max_sequences x n_query_heads: log of its sum of exponentials; -infinity: there is no tail */
        float *tail_lse;
} dci_kv_plan;
DCI_API dci_status dci_kv_plan_init(dci_kv_plan *plan, size_t struct_size);

/**
 * Takes the arrays of a plan, which was prepared with dci_kv_plan_init, for max_sequences; and gives them back (an
 * empty plan is allowed). The memory counts as the dci_kv's.
 */
DCI_API dci_status dci_kv_plan_create(dci_kv *kv, size_t max_sequences, dci_kv_plan *out_plan);
DCI_API void dci_kv_plan_destroy(dci_kv *kv, dci_kv_plan *plan);

/**
 * Selects for one layer. queries: n_sequences x n_query_heads rows of dim_k, ld elements apart; they may be those of
 * the step's own tokens, which were appended to this layer before. Waits for dci_kv_end_prompt's work. Refuses NaN and
 * infinity naming sequence and head. A layer that uses another one's lists (ANCHOR) is refused where that has no plan
 * at the same number of tokens.
 * Cost: per kv head a pass over the summaries of all candidates; with SELECT_TREE over the nodes (of several levels:
 * those that the search reaches), and over the keys in opened cells; with stored lists and no tail, about as many steps
 * as a list has tokens.
 */
DCI_API dci_status dci_kv_plan_make(dci_kv *kv, size_t layer, size_t n_sequences, const int64_t *sequences,
                                    const void *queries, size_t ld, dci_kv_plan *plan);

/**
 * Attention of one layer: softmax(scale q . K) V over the plan's tokens, merged with its tail. plan NULL: over
 * everything.
 *
 * plan      made for this layer and these sequences in this order. The call checks that its ranges and slots exist, not
 *           whose they are: slots mean the same in every layer, a tail belongs to its own.
 * out       n_sequences x n_query_heads rows of dim_v floats, out_ld apart.
 * out_lse   n_sequences x n_query_heads: log of the sum of exponentials, the tail's included; may be NULL. A query
 *           without any token gets zeros and -infinity.
 */
DCI_API dci_status dci_kv_attend(dci_kv *kv, size_t layer, size_t n_sequences, const int64_t *sequences,
                                 const void *queries, size_t ld, const dci_kv_plan *plan, float *out, size_t out_ld,
                                 float *out_lse);

/* --- state ---------------------------------------------------------------------------------------------------- */

/** Blocks of a sequence from number `first` on, n of them, in the order of its tokens. */
DCI_API dci_status dci_kv_table(dci_kv *kv, int64_t sequence, size_t first, size_t n, int32_t *out_blocks);

/** Rows as they are stored: of tokens [first, first + n) of one layer and head; either output may be NULL. */
DCI_API dci_status dci_kv_read(dci_kv *kv, size_t layer, int64_t sequence, size_t kv_head, size_t first, size_t n,
                               void *out_keys, void *out_values);

/**
 * DCI_KV_GROUP_REORDERED: the order in which one layer and head's candidates are stored, for callers that lay out
 * copies of rows so that pages are contiguous: page i of it has the positions from i * page_tokens on. It changes only
 * in dci_kv_end_prompt's work, dci_kv_maintain, dci_kv_reserve (appends pages) and dci_kv_truncate.
 *
 * out_positions  room for `room` positions; NULL: only the counts. Refused where there are more.
 * out_n          candidates; out_static: how many of them, the first ones, are static (may be NULL).
 */
DCI_API dci_status dci_kv_order(dci_kv *kv, size_t layer, int64_t sequence, size_t kv_head, size_t room,
                                int32_t *out_positions, size_t *out_n, size_t *out_static);

/** Prepare with dci_kv_sequence_info_init. */
typedef struct dci_kv_sequence_info {
        size_t struct_size;
        size_t n_tokens;   /**< of whole steps */
        size_t n_reserved; /**< more tokens, of the step that is open */
        size_t n_grouped;  /**< tokens that groups cover, in the least advanced sparse layer, after the sink */
        size_t n_blocks, n_shared_blocks;
        int32_t resident; /**< 1: attended to in full, see resident_bytes */
        int32_t refits;   /**< times that codes of a head were rebuilt; no more than INT32_MAX */
        /** greatest over layers and heads: distortion of the last tokens' codes over that of the prompt's; NaN: none */
        double drift;
        /** lists in plans that omitted tokens, of all layers, since dci_kv_open, _fork or _load */
        uint64_t n_plans;
        uint64_t n_decisions;   /**< of these, those selected by the queries of their own plan */
        uint64_t n_corrections; /**< AHEAD: of these, corrections of a head whose queries changed direction */
        /** of clusters and segments, in that layer: the prompt's, and those of later tokens */
        size_t n_batches;
        /**
         * of these, later ones that the budget forced early: clusters of fewer than cluster_every tokens, segments
         * moved out of a buffer that was not full (those since dci_kv_load)
         */
        size_t n_early;
        /**
         * GROUP_TREE, over layers and heads: pages; those that the last change of their tree wrote: where pages are
         * copies on a device, these are fetched again
         */
        size_t tree_pages, tree_stale_pages;
} dci_kv_sequence_info;
DCI_API dci_status dci_kv_sequence_info_init(dci_kv_sequence_info *info, size_t struct_size);
DCI_API dci_status dci_kv_get_sequence(dci_kv *kv, int64_t sequence, dci_kv_sequence_info *out_info);

/** Prepare with dci_kv_info_init. */
typedef struct dci_kv_info {
        size_t struct_size;
        size_t n_sequences, n_resident;
        size_t page_tokens, sink, window, rollback, stride; /**< as they came out; stride: of a plan's lists */
        int32_t group, summary, select, schedule, tail, combine;
        size_t n_blocks, n_free_blocks;
        size_t bytes;     /**< of memory in all, without a layout of the caller's */
        size_t row_bytes; /**< keys and values */
        /**
         * summaries, codes and what tails need, shared ones once; without transforms: some 3 KB per layer and head at
         * dim 64, learned ones 16 dim_k^2 bytes more
         */
        size_t summary_bytes;
        size_t token_bytes; /**< of keys and values, of one token in all layers */
        /**
         * what summaries and tails keep per token and kv head; of segments, as if they had cluster_tokens. Presets that
         * rank or attend to all rows (full, topk) need the rows themselves, which do not count here: dim_k + dim_v
         * elements
         */
        double resident_token_bytes;
        int32_t budget_counts, observed_keep; /**< as they came out */
        size_t copy_bytes; /**< contiguous copies of keys and values, with the numbers of their tokens */
        size_t n_lists;    /**< of a plan, per sequence: n_kv_heads, or n_query_heads with query_head_lists */
} dci_kv_info;
DCI_API dci_status dci_kv_info_init(dci_kv_info *info, size_t struct_size);
DCI_API dci_status dci_kv_get_info(dci_kv *kv, dci_kv_info *out_info);

/* --- calibration of schedules ------------------------------------------------------------------------------------- */

/**
 * Finds the tau with which a share of steps selects again: LouisKV calibrates tau once per model (Wu et al. 2025,
 * appendix D.4).
 *
 * config    as for dci_kv_create: its n_query_heads, n_kv_heads, dim_k and query_dtype, and schedule (or that of the
 *           preset): BOUNDARY counts layers, AHEAD counts kv heads. Other schedules are refused.
 * queries   for each of n_layers layers n_positions x n_query_heads rows of dim_k, ld elements apart, of consecutive
 *           positions, as plans get them. At least one layer and two positions. Refused: NaN and infinity.
 * rate      0 to 1: share of the layers' (kv heads') positions after the first one that select again, met as nearly as
 *           the samples allow: positions of equal cosines select together.
 * out_tau   in (-1, 1]. With 1, all select but those whose queries keep their direction.
 *
 * Cost: O(n_layers n_positions n_query_heads dim_k), and 8 bytes for each share counted, for the time of the call.
 */
DCI_API dci_status dci_kv_calibrate(dci_context *context, const dci_kv_config *config, size_t n_layers,
                                    size_t n_positions, const void *queries, size_t ld, double rate, double *out_tau);

/* --- files -------------------------------------------------------------------------------------------------------- */

/**
 * Writes the first n_tokens of a sequence, with its transforms, to a file that replaces `path` whole, as dci_index_save
 * does: the old file or the new one is there, at any moment and after any failure. No step is open. 64 KiB are taken
 * meanwhile, not counted in max_bytes.
 */
DCI_API dci_status dci_kv_save(dci_kv *kv, int64_t sequence, size_t n_tokens, const char *path);
/**
 * Begins a sequence with what a file holds: under an equal config, plans are those of the sequence that was saved, but
 * for lists that a schedule stores and an order that was being made. The config must have the same shape, dtype, scale,
 * page_tokens, stages, bits, sink, rollback, frozen_prompt and seed; what differs is named. Clusters are those that were
 * saved; the config's fields apply to later ones. The file's length is taken meanwhile, not counted in max_bytes.
 */
DCI_API dci_status dci_kv_load(dci_kv *kv, const char *path, int64_t *out_sequence);

#ifdef __cplusplus
}
#endif
#endif
