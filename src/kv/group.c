/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* First stage: which tokens lie together. */
#include "core/internal.h"

#include "kv/stages.h"

static size_t count_tokens(const dci_kv *kv, const dci_kv_head *head, size_t n)
{
        (void)kv;
        (void)head;
        return n;
}

static size_t one_token(const dci_kv *kv, const dci_kv_head *head, size_t group, size_t n, int32_t *out)
{
        (void)kv;
        (void)head;
        (void)n;
        out[0] = (int32_t)group;
        return 1;
}

static size_t count_pages(const dci_kv *kv, const dci_kv_head *head, size_t n)
{
        (void)head;
        return (n + kv->config.page_tokens - 1) / kv->config.page_tokens;
}

static size_t tokens_of_page(const dci_kv *kv, const dci_kv_head *head, size_t group, size_t n, int32_t *out)
{
        const size_t first = group * kv->config.page_tokens, left = n - first;
        const size_t here = left < kv->config.page_tokens ? left : kv->config.page_tokens;
        (void)head;
        for (size_t i = 0; i < here; i++)
                out[i] = (int32_t)(first + i);
        return here;
}

const dci_kv_grouping dci_kv_groupings[DCI_KV_GROUPS + 1] = {
        [DCI_KV_GROUP_TOKEN] = {DCI_KV_GROUP_TOKEN, true, count_tokens, one_token},
        [DCI_KV_GROUP_PAGE] = {DCI_KV_GROUP_PAGE, true, count_pages, tokens_of_page},
        [DCI_KV_GROUP_TREE] = {DCI_KV_GROUP_TREE, true, dci_kv_tree_pages, dci_kv_tree_members},
};
