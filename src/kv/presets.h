/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The table of presets: what each sets of a config. */
#ifndef DCI_KV_PRESETS_H
#define DCI_KV_PRESETS_H

#include "core/internal.h"

#include "dci/kv.h"

typedef struct dci_kv_preset {
        int32_t preset;
        const char *name;
        int32_t group, summary, select, schedule, tail, combine;
        size_t page_tokens, sink, window;
        int32_t key_bits;
        double preselect, verify;
        size_t cluster_tokens, cluster_every, cluster_segment, cluster_rounds;
        int32_t cluster_by;
        double estimate_share;
        int32_t budget_counts, observed_keep;
        size_t observed_pool;
} dci_kv_preset;

/* A system's own sizes and accounting. */
typedef struct dci_kv_published {
        int32_t preset, budget_counts, combine; /* combine 0: the preset's */
        size_t page_tokens, sink, window;       /* the rollback is the window */
        size_t segment_buffer;
        double tau;
        int32_t query_head_lists;
} dci_kv_published;

/* false: the preset is no published system. */
bool dci_kv_published_sizes(int32_t preset, size_t budget, dci_kv_published *out);

/* NULL for other numbers. */
const dci_kv_preset *dci_kv_preset_at(int32_t preset);

#endif
