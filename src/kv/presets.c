/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The presets: one row each with everything that it sets. dci/kv.h and docs/presets.md explain the columns. */
#include "core/internal.h"

#include <string.h>

#include "kv/presets.h"

/* clang-format off */
/*                          key_bits preselect verify */
#define CODES               4,       1.0,      1.0
#define CODES_GROUPS        4,       24.0,     1.0
#define CODES_VERIFY        2,       1.0,      4.0
/*                          tokens every segment            rounds by                   estimate_share */
#define CLUSTERS            80,    320,  DCI_KV_MAX_TOKENS, 20,    DCI_KV_CLUSTER_RAW,     1.0
#define CLUSTERS_LOUISKV    16,    320,  8192,              10,    DCI_KV_CLUSTER_RAW,     1.0
#define CLUSTERS_RETROINFER 16,    1024, 8192,              10,    DCI_KV_CLUSTER_CENTRED, 0.232
/*                          budget_counts                  observed_keep observed_pool */
#define COUNTS              DCI_KV_COUNT_ALL,              0,            1
#define OBSERVED            DCI_KV_COUNT_SINK_AND_WINDOW,  1,            7
static const dci_kv_preset presets[] = {
/*   preset                 name              group               summary                 select                  schedule          tail                combine                  P  sink window, codes, clusters, counts */
    {DCI_KV_FULL,          "full",           DCI_KV_GROUP_TOKEN, DCI_KV_SUMMARY_NONE,    DCI_KV_SELECT_ALL,      DCI_KV_EVERY_STEP, DCI_KV_TAIL_DROP,   DCI_KV_COMBINE_SOFTMAX, 16, 16, 64, CODES, CLUSTERS, COUNTS},
    {DCI_KV_TOPK,          "topk",           DCI_KV_GROUP_TOKEN, DCI_KV_SUMMARY_KEYS,    DCI_KV_SELECT_SCAN,     DCI_KV_EVERY_STEP, DCI_KV_TAIL_DROP,   DCI_KV_COMBINE_SOFTMAX, 16, 16, 64, CODES, CLUSTERS, COUNTS},
    {DCI_KV_STREAMING,     "streaming",      DCI_KV_GROUP_TOKEN, DCI_KV_SUMMARY_NONE,    DCI_KV_SELECT_RECENT,   DCI_KV_EVERY_STEP, DCI_KV_TAIL_DROP,   DCI_KV_COMBINE_SOFTMAX, 16,  4, 64, CODES, CLUSTERS, COUNTS},
    {DCI_KV_SNAPKV,        "snapkv",         DCI_KV_GROUP_TOKEN, DCI_KV_SUMMARY_KEYS,    DCI_KV_SELECT_OBSERVED, DCI_KV_ONCE,       DCI_KV_TAIL_DROP,   DCI_KV_COMBINE_SOFTMAX, 16, 16, 64, CODES, CLUSTERS, OBSERVED},
    {DCI_KV_PAGEMEAN,      "pagemean",       DCI_KV_GROUP_PAGE,  DCI_KV_SUMMARY_MEAN,    DCI_KV_SELECT_SCAN,     DCI_KV_EVERY_STEP, DCI_KV_TAIL_DROP,   DCI_KV_COMBINE_SOFTMAX, 16, 16, 64, CODES, CLUSTERS, COUNTS},
    {DCI_KV_QUEST,         "quest",          DCI_KV_GROUP_PAGE,  DCI_KV_SUMMARY_MINMAX,  DCI_KV_SELECT_SCAN,     DCI_KV_EVERY_STEP, DCI_KV_TAIL_DROP,   DCI_KV_COMBINE_MEAN,    16, 16, 64, CODES, CLUSTERS, COUNTS},
    {DCI_KV_ARKVALE,       "arkvale",        DCI_KV_GROUP_PAGE,  DCI_KV_SUMMARY_CUBOID,  DCI_KV_SELECT_SCAN,     DCI_KV_EVERY_STEP, DCI_KV_TAIL_DROP,   DCI_KV_COMBINE_MEAN,    32, 16, 64, CODES, CLUSTERS, COUNTS},
    {DCI_KV_LOWBIT,        "lowbit",         DCI_KV_GROUP_TOKEN, DCI_KV_SUMMARY_CODES,   DCI_KV_SELECT_NONE,     DCI_KV_EVERY_STEP, DCI_KV_TAIL_LOWBIT, DCI_KV_COMBINE_SOFTMAX, 16, 16, 64, CODES, CLUSTERS, COUNTS},
    {DCI_KV_SKETCH,        "sketch",         DCI_KV_GROUP_TOKEN, DCI_KV_SUMMARY_CODES,   DCI_KV_SELECT_SCAN,     DCI_KV_EVERY_STEP, DCI_KV_TAIL_DROP,   DCI_KV_COMBINE_SOFTMAX, 16, 16, 64, CODES, CLUSTERS, COUNTS},
    {DCI_KV_SKETCH_SUMS,   "sketch+sums",    DCI_KV_GROUP_TOKEN, DCI_KV_SUMMARY_CODES,   DCI_KV_SELECT_SCAN,     DCI_KV_EVERY_STEP, DCI_KV_TAIL_SUMS,   DCI_KV_COMBINE_SOFTMAX, 16, 16, 64, CODES, CLUSTERS, COUNTS},
    {DCI_KV_SKETCH_LOWBIT, "sketch+lowbit",  DCI_KV_GROUP_TOKEN, DCI_KV_SUMMARY_CODES,   DCI_KV_SELECT_SCAN,     DCI_KV_EVERY_STEP, DCI_KV_TAIL_LOWBIT, DCI_KV_COMBINE_SOFTMAX, 16, 16, 64, CODES, CLUSTERS, COUNTS},
    {DCI_KV_ICECACHE,      "icecache",       DCI_KV_GROUP_TREE,  DCI_KV_SUMMARY_TREE,    DCI_KV_SELECT_TREE,     DCI_KV_EVERY_STEP, DCI_KV_TAIL_DROP,   DCI_KV_COMBINE_EACH,    16, 32, 32, CODES, CLUSTERS, COUNTS},
    {DCI_KV_CLUSTERKV,     "clusterkv",      DCI_KV_GROUP_CLUSTER, DCI_KV_SUMMARY_MEAN,  DCI_KV_SELECT_SCAN,     DCI_KV_EVERY_STEP, DCI_KV_TAIL_DROP,   DCI_KV_COMBINE_SOFTMAX, 16, 16, 64, CODES, CLUSTERS, COUNTS},
    {DCI_KV_PRKV,          "prkv",           DCI_KV_GROUP_REORDERED, DCI_KV_SUMMARY_CUBOID, DCI_KV_SELECT_STATIC, DCI_KV_EVERY_STEP, DCI_KV_TAIL_DROP, DCI_KV_COMBINE_MEAN,   32, 16, 64, CODES, CLUSTERS, COUNTS},
    {DCI_KV_LOUISKV,       "louiskv",        DCI_KV_GROUP_SEGMENT, DCI_KV_SUMMARY_MEAN,  DCI_KV_SELECT_SCAN,     DCI_KV_BOUNDARY,   DCI_KV_TAIL_DROP,   DCI_KV_COMBINE_SOFTMAX, 16, 16, 64, CODES, CLUSTERS_LOUISKV, COUNTS},
    {DCI_KV_RETROINFER,    "retroinfer",     DCI_KV_GROUP_CLUSTER, DCI_KV_SUMMARY_MEAN,  DCI_KV_SELECT_SCAN,     DCI_KV_EVERY_STEP, DCI_KV_TAIL_SUMS,   DCI_KV_COMBINE_SOFTMAX, 16,  4, 64, CODES, CLUSTERS_RETROINFER, COUNTS},
    {DCI_KV_FREEKV,        "freekv",         DCI_KV_GROUP_PAGE,  DCI_KV_SUMMARY_CUBOID,  DCI_KV_SELECT_SCAN,     DCI_KV_AHEAD,      DCI_KV_TAIL_DROP,   DCI_KV_COMBINE_SOFTMAX, 32, 16, 64, CODES, CLUSTERS, COUNTS},
    {DCI_KV_SKETCH_GROUPS, "sketch+groups",  DCI_KV_GROUP_TOKEN, DCI_KV_SUMMARY_CODES,   DCI_KV_SELECT_SCAN,     DCI_KV_EVERY_STEP, DCI_KV_TAIL_DROP,   DCI_KV_COMBINE_SOFTMAX, 16, 16, 64, CODES_GROUPS, CLUSTERS, COUNTS},
    {DCI_KV_SKETCH_VERIFY, "sketch+verify",  DCI_KV_GROUP_TOKEN, DCI_KV_SUMMARY_LEARNED, DCI_KV_SELECT_SCAN,     DCI_KV_EVERY_STEP, DCI_KV_TAIL_LOWBIT, DCI_KV_COMBINE_SOFTMAX, 16, 16, 64, CODES_VERIFY, CLUSTERS, COUNTS},
    {DCI_KV_PARISKV,       "pariskv",        DCI_KV_GROUP_TOKEN, DCI_KV_SUMMARY_VOTES,   DCI_KV_SELECT_SCAN,     DCI_KV_EVERY_STEP, DCI_KV_TAIL_DROP,   DCI_KV_COMBINE_MEAN,    16,  4, 64, CODES, CLUSTERS, COUNTS},
};
/* clang-format on */

/* As their papers and authors' programs have them; docs/presets.md#published-sizes has the sources. Where a window is
 * two pages, the newest one is partly filled: with a window of a page and one token recent tokens are never more than
 * two pages, and as many pages are selected as there. */
/* clang-format off */
static const dci_kv_published published[] = {
/*   preset             budget_counts                 combine               P  sink window buffer tau  query_head_lists */
    {DCI_KV_STREAMING,  DCI_KV_COUNT_ALL,             0,                   16,   4,   0,   0, 0.0,  0},
    {DCI_KV_SNAPKV,     DCI_KV_COUNT_SINK_AND_WINDOW, 0,                   16,   0,  32,   0, 0.0,  0},
    {DCI_KV_QUEST,      DCI_KV_COUNT_ALL,             0,                   16,   0,   0,   0, 0.0,  0},
    {DCI_KV_ARKVALE,    DCI_KV_COUNT_ALL,             0,                   32,  64,  33,   0, 0.0,  0},
    {DCI_KV_ICECACHE,   DCI_KV_COUNT_ALL,             0,                   16,  32,  17,   0, 0.0,  0},
    {DCI_KV_CLUSTERKV,  DCI_KV_COUNT_SINK,            DCI_KV_COMBINE_EACH, 16,  16,   0,   0, 0.0,  1},
    {DCI_KV_PRKV,       DCI_KV_COUNT_SELECTED,        0,                   32,   0,  64,   0, 0.0,  0},
    {DCI_KV_LOUISKV,    DCI_KV_COUNT_SELECTED,        0,                   16,  32,   0, 512, 0.85, 0},
    {DCI_KV_RETROINFER, DCI_KV_COUNT_SELECTED,        0,                   16,   4,  64,   0, 0.0,  0},
    {DCI_KV_FREEKV,     DCI_KV_COUNT_ALL,             0,                   32, 512, 512,   0, 0.8,  0},
    {DCI_KV_PARISKV,    DCI_KV_COUNT_SELECTED,        0,                   16,   4, 512,   0, 0.0,  0},
};
/* clang-format on */

#define LEAST_ICECACHE ((size_t)80) /* five pages of 16: two of the sink, two of the window, and a selected one */

bool dci_kv_published_sizes(int32_t preset, size_t budget, dci_kv_published *out)
{
        for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
                if (published[i].preset != preset)
                        continue;
                *out = published[i];
                if (preset == DCI_KV_ICECACHE && budget < LEAST_ICECACHE) {
                        out->page_tokens = 8;
                        out->sink = 16;
                        out->window = 9;
                }
                return true;
        }
        return false;
}

#define N_PRESETS (sizeof presets / sizeof *presets)

const dci_kv_preset *dci_kv_preset_at(int32_t preset)
{
        for (size_t i = 0; i < N_PRESETS; i++)
                if (presets[i].preset == preset)
                        return &presets[i];
        return NULL;
}

const char *dci_kv_preset_name(int32_t preset)
{
        const dci_kv_preset *row = dci_kv_preset_at(preset);
        return row != NULL ? row->name : "unknown";
}

int32_t dci_kv_preset_of(const char *name)
{
        for (size_t i = 0; name != NULL && i < N_PRESETS; i++)
                if (strcmp(presets[i].name, name) == 0)
                        return presets[i].preset;
        return 0;
}
