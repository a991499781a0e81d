/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Fifth stage: what is not chosen is left out. */
#include "core/internal.h"

#include "kv/stages/stages.h"

static size_t no_bytes(const dci_kv *kv)
{
        (void)kv;
        return 0;
}

const dci_kv_tail dci_kv_tail_drop = {.kind = DCI_KV_TAIL_DROP, .bytes = no_bytes, .work_bytes = no_bytes};
