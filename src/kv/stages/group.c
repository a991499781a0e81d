/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* First stage: which tokens lie together, by position. */
#include "core/internal.h"

#include "kv/stages/stages.h"

static size_t count_tokens(const dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t n)
{
        (void)kv;
        (void)layer;
        (void)head;
        return n;
}

static const int32_t *one_token(const dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t group, size_t n,
                                int32_t *room, size_t *out_n)
{
        (void)kv;
        (void)layer;
        (void)head;
        (void)n;
        room[0] = (int32_t)group;
        *out_n = 1;
        return room;
}

static size_t count_pages(const dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t n)
{
        (void)layer;
        (void)head;
        return (n + kv->config.page_tokens - 1) / kv->config.page_tokens;
}

static const int32_t *tokens_of_page(const dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t group, size_t n,
                                     int32_t *room, size_t *out_n)
{
        const size_t first = group * kv->config.page_tokens, left = n - first;
        (void)layer;
        (void)head;
        *out_n = left < kv->config.page_tokens ? left : kv->config.page_tokens;
        for (size_t i = 0; i < *out_n; i++)
                room[i] = (int32_t)(first + i);
        return room;
}

static const dci_kv_grouping tokens = {.kind = DCI_KV_GROUP_TOKEN, .count = count_tokens, .members = one_token};
static const dci_kv_grouping pages = {.kind = DCI_KV_GROUP_PAGE, .count = count_pages, .members = tokens_of_page};

const dci_kv_grouping *const dci_kv_groupings[DCI_KV_GROUPS + 1] = {
        [DCI_KV_GROUP_TOKEN] = &tokens,
        [DCI_KV_GROUP_PAGE] = &pages,
        [DCI_KV_GROUP_TREE] = &dci_kv_group_tree,
        [DCI_KV_GROUP_CLUSTER] = &dci_kv_group_cluster,
        [DCI_KV_GROUP_SEGMENT] = &dci_kv_group_segment,
        [DCI_KV_GROUP_REORDERED] = &dci_kv_group_reordered,
};
