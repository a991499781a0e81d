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
} dci_kv_preset;

/* NULL for other numbers. */
const dci_kv_preset *dci_kv_preset_at(int32_t preset);

#endif
