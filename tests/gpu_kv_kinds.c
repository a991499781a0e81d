/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/gpu_kv_kinds.h"

enum { LISTS = -1 };

static const struct {
        int32_t preset, schedule, learned; /* learned: bits; LISTS: lists of query heads */
} more[] = {{DCI_KV_SKETCH, DCI_KV_PERIODIC, 0},        {DCI_KV_SKETCH, DCI_KV_BOUNDARY, 0},
            {DCI_KV_SKETCH, DCI_KV_ANCHOR, 0},          {DCI_KV_SKETCH_LOWBIT, DCI_KV_AHEAD, 0},
            {DCI_KV_SKETCH, DCI_KV_EVERY_STEP, 2},      {DCI_KV_SKETCH, DCI_KV_PERIODIC, 4},
            {DCI_KV_CLUSTERKV, DCI_KV_ANCHOR, 0},       {DCI_KV_LOUISKV, DCI_KV_PERIODIC, 0},
            {DCI_KV_SKETCH_SUMS, DCI_KV_EVERY_STEP, 0}, {DCI_KV_ICECACHE, DCI_KV_PERIODIC, 0},
            {DCI_KV_ICECACHE, DCI_KV_ANCHOR, 0},        {DCI_KV_CLUSTERKV, DCI_KV_EVERY_STEP, LISTS},
            {DCI_KV_ICECACHE, DCI_KV_EVERY_STEP, LISTS}};
_Static_assert(sizeof more / sizeof *more == KIND_MORE, "all kinds are counted");

bool kind_left_out(int kind)
{
        return test_short() && kind % 4 != 1;
}

dci_kv_config kind_config(int kind)
{
        if (kind < KV_N_KINDS)
                return twin_small(kv_presets[kind]);
        const size_t i = (size_t)(kind - KV_N_KINDS);
        dci_kv_config config = twin_small(more[i].preset);
        config.schedule = more[i].schedule;
        config.period = 5;
        config.tau = 0.02;
        config.anchor_first = 1;
        config.anchor_period = 3;
        config.query_head_lists = more[i].learned == LISTS;
        if (more[i].learned > 0) {
                config.summary = DCI_KV_SUMMARY_LEARNED;
                config.key_bits = more[i].learned;
        }
        return config;
}

dci_gpu_kv_config kind_on_device(size_t n_sequences, size_t n_pages)
{
        dci_gpu_kv_config config = twin_planned_for(n_sequences);
        config.planner = DCI_GPU_PLAN_AUTO;
        config.device_resident_bytes = n_pages * 2 * 8 * 2 * 64 * 4;
        return config;
}
