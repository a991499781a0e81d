/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/kv_check_fixture.h"

void kv_check_passes(dci_kv *kv, const char *what)
{
        ck_assert_msg(dci_kv_check(kv, DCI_CHECK_STRUCTURE, NULL) == DCI_OK, "%s: %s", what, dci_last_error());
        ck_assert_msg(dci_kv_check(kv, DCI_CHECK_FULL, NULL) == DCI_OK, "%s: %s", what, dci_last_error());
}

dci_kv_config kv_check_config(int32_t preset)
{
        dci_kv_config config = kv_small(preset);
        config.cluster_every = preset == DCI_KV_CLUSTERKV || preset == DCI_KV_RETROINFER ? 40 : 0;
        config.cluster_tokens = config.cluster_every > 0 || preset == DCI_KV_LOUISKV ? 8 : 0;
        config.period = 8;
        if (preset == DCI_KV_ICECACHE) { /* a tree with levels */
                config.tree_promotion = 0.25;
                config.tree_promotion_subseq = 0.5;
                config.tree_simple_indices = 1;
        }
        return config;
}

dci_kv *kv_check_make(dci_context *context, const dci_kv_config *config, kv_data *out_data, int64_t *out_sequence)
{
        dci_kv *kv = kv_create(context, config);
        int64_t fork;
        *out_data = kv_random(config, KV_CHECK_TOKENS, 11);
        *out_sequence = kv_begin(kv, out_data, 300);
        kv_decode_all(kv, *out_sequence, out_data, 300, KV_CHECK_TOKENS - 300);
        ck_ok(dci_kv_fork(kv, *out_sequence, 330, &fork));
        return kv;
}
