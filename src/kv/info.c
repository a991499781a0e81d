/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Figures of a dci_kv and of a sequence. */
#include "core/internal.h"

#include <math.h>

#include "kv/clusters.h"
#include "kv/geometry.h"
#include "kv/lookup.h"
#include "kv/maintain.h"
#include "kv/pool.h"
#include "kv/tree/tree.h"

/* Where nothing came since it was built, no page is stale. */
static void count_pages(const dci_kv_tree *tree, dci_kv_sequence_info *info)
{
        if (tree == NULL)
                return;
        info->tree_pages += tree->n_pages - tree->n_free;
        for (size_t p = 0; p < tree->n_pages && tree->version != tree->built_version; p++)
                info->tree_stale_pages += tree->page_node[p] >= 0 && tree->page_versions[p] == tree->version;
}

/* A tree's bytes are those of this many candidates. */
#define TYPICAL ((size_t)32768)

static double resident_bytes(const dci_kv *kv)
{
        if (dci_kv_has_trees(kv))
                return (double)dci_kv_tree_bytes(kv, TYPICAL) / (double)TYPICAL;
        if (dci_kv_reorders(kv))
                return (double)sizeof(int32_t) + (double)dci_kv_cluster_bytes(kv) / (double)kv->config.page_tokens;
        if (kv->clustered) {
                const dci_kv_config *c = &kv->config;
                const double parts = c->cluster_most > 0 ? 1.0 / (double)c->cluster_most : 0.0;
                return (double)sizeof(int32_t) +
                       (double)dci_kv_cluster_bytes(kv) * (1.0 / (double)c->cluster_tokens + parts);
        }
        return (double)(kv->summary_bytes + kv->tail_bytes) / (double)DCI_KV_CHUNK;
}

static int32_t add_refits(int32_t a, int32_t b)
{
        return a > INT32_MAX - b ? INT32_MAX : a + b;
}

dci_status dci_kv_get_sequence(dci_kv *kv, int64_t sequence, dci_kv_sequence_info *out_info)
{
        if (out_info == NULL)
                return dci_fail(DCI_ERR_INVALID, "out_info is NULL");
        DCI_TRY(dci_check_struct_size("dci_kv_sequence_info", out_info, out_info->struct_size, sizeof *out_info));
        DCI_TRY(dci_kv_lock(kv));
        dci_kv_sequence *found = dci_kv_find(kv, sequence);
        if (found == NULL) {
                dci_kv_unlock(kv);
                return DCI_ERR_NOT_FOUND;
        }
        dci_kv_jobs_wait(kv, found);
        dci_kv_sequence_info info = {.struct_size = out_info->struct_size,
                                     .n_tokens = found->n,
                                     .n_reserved = found->n_reserved,
                                     .n_grouped = SIZE_MAX,
                                     .n_blocks = found->n_table,
                                     .resident = found->resident,
                                     .drift = -1.0};
        for (size_t b = 0; b < found->n_table; b++)
                info.n_shared_blocks += kv->pool.refs[found->table[b]] > 1;
        for (size_t l = 0; l < kv->config.n_layers; l++) {
                const dci_kv_layer *layer = &found->layers[l];
                if (dci_kv_groups(kv, l) && layer->n_grouped < info.n_grouped) {
                        info.n_grouped = layer->n_grouped;
                        info.n_batches = layer->n_batches;
                        info.n_early = 0;
                        for (size_t b = 1; b < layer->n_batches && !dci_kv_reorders(kv); b++)
                                info.n_early += kv->config.group == DCI_KV_GROUP_SEGMENT
                                                        ? layer->batches[b]->early
                                                        : layer->batches[b]->n < kv->config.cluster_every;
                }
                for (size_t h = 0; h < kv->config.n_kv_heads; h++) {
                        info.refits = add_refits(info.refits, layer->heads[h].refits);
                        info.n_plans += layer->heads[h].n_plans;
                        info.n_decisions += layer->heads[h].n_decisions;
                        info.n_corrections += layer->heads[h].n_corrections;
                        info.drift = fmax(info.drift, dci_kv_drift(&layer->heads[h]));
                        count_pages(layer->heads[h].tree, &info);
                }
        }
        if (info.n_grouped == SIZE_MAX)
                info.n_grouped = 0;
        if (info.drift < 0.0)
                info.drift = NAN;
        *out_info = info;
        dci_kv_unlock(kv);
        return DCI_OK;
}

dci_status dci_kv_get_info(dci_kv *kv, dci_kv_info *out_info)
{
        if (out_info == NULL)
                return dci_fail(DCI_ERR_INVALID, "out_info is NULL");
        DCI_TRY(dci_check_struct_size("dci_kv_info", out_info, out_info->struct_size, sizeof *out_info));
        DCI_TRY(dci_kv_lock(kv));
        const dci_kv_config *c = &kv->config;
        *out_info = (dci_kv_info){.struct_size = out_info->struct_size,
                                  .n_sequences = kv->n_sequences,
                                  .page_tokens = c->page_tokens,
                                  .sink = c->sink,
                                  .window = c->window,
                                  .rollback = c->rollback,
                                  .stride = dci_kv_stride(kv),
                                  .group = c->group,
                                  .summary = c->summary,
                                  .select = c->select,
                                  .schedule = c->schedule,
                                  .tail = c->tail,
                                  .combine = c->combine,
                                  .budget_counts = c->budget_counts,
                                  .observed_keep = c->observed_keep,
                                  .n_blocks = dci_kv_pool_there(&kv->pool),
                                  .n_free_blocks = kv->pool.n_free,
                                  .bytes = atomic_load(&kv->bytes),
                                  .row_bytes = kv->row_bytes,
                                  .summary_bytes = atomic_load(&kv->chunk_total),
                                  .token_bytes = c->n_layers * c->n_kv_heads * (kv->dim_k + kv->dim_v) * kv->es,
                                  .resident_token_bytes = resident_bytes(kv),
                                  .copy_bytes = kv->copy_bytes,
                                  .n_lists = kv->n_lists};
        for (size_t i = 0; i < kv->n_sequences; i++)
                out_info->n_resident += kv->sequences[i]->resident;
        if (kv->pool.caller_blocks) /* the caller's: those that no sequence has */
                for (size_t b = 0; b < kv->pool.n_blocks; b++)
                        out_info->n_free_blocks += kv->pool.refs[b] == 0;
        dci_kv_unlock(kv);
        return DCI_OK;
}
