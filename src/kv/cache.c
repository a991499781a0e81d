/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "core/internal.h"

#include <string.h>

#include "kv/chunk.h"
#include "kv/config.h"
#include "kv/contiguous.h"
#include "kv/memory.h"
#include "kv/pool.h"
#include "kv/prompt.h"
#include "kv/sequence.h"
#include "kv/stages/summary_votes.h"
#include "kv/tree/tree.h"

/* The layout's arrays are the caller's: copies of them. */
static dci_status copy_layout(dci_kv *kv)
{
        const size_t n_bytes = kv->config.n_layers * sizeof *kv->layout_keys;
        if (kv->config.layout == NULL)
                return DCI_OK;
        kv->layout = *kv->config.layout;
        DCI_TRY(dci_kv_alloc(kv, n_bytes, (void **)&kv->layout_keys));
        DCI_TRY(dci_kv_alloc(kv, n_bytes, (void **)&kv->layout_values));
        memcpy(kv->layout_keys, kv->layout.keys, n_bytes);
        memcpy(kv->layout_values, kv->layout.values, n_bytes);
        kv->layout.keys = kv->layout_keys;
        kv->layout.values = kv->layout_values;
        kv->config.layout = &kv->layout;
        return DCI_OK;
}

static dci_status set_layers(dci_kv *kv)
{
        dci_kv_config *config = &kv->config;
        const dci_status status = dci_kv_alloc(kv, config->n_layers, (void **)&kv->layer_modes);
        for (size_t i = 0; i < config->n_layers && status == DCI_OK; i++) {
                const size_t stride = config->layer_stride;
                kv->layer_modes[i] = i < config->dense_layers ? DCI_KV_LAYER_DENSE : DCI_KV_LAYER_SPARSE;
                if (config->layers != NULL) {
                        const unsigned char *at = (const unsigned char *)config->layers +
                                                  i * (stride != 0 ? stride : sizeof *config->layers);
                        kv->layer_modes[i] = (uint8_t)((const dci_layer_config *)(const void *)at)->mode;
                }
        }
        config->layers = NULL;
        return status;
}

static dci_status set_up(dci_kv *kv)
{
        const dci_kv_config *config = &kv->config;
        kv->dim_k = config->dim_k;
        kv->dim_v = config->dim_v;
        kv->share = config->n_query_heads / config->n_kv_heads;
        kv->group = config->query_head_lists != 0 ? 1 : kv->share;
        kv->head_lists = kv->share / kv->group;
        kv->n_lists = config->n_kv_heads * kv->head_lists;
        kv->es = dci_dtype_size(config->dtype);
        kv->scale = (float)config->scale;
        kv->clustered = kv->stages->group.listed;
        kv->summary_bytes = kv->clustered ? 0 : kv->stages->summary.bytes(kv);
        kv->tail_bytes = kv->clustered ? 0 : kv->stages->tail.bytes(kv);
        kv->chunk_bytes = dci_lines(sizeof(dci_kv_chunk)) + config->n_kv_heads * (kv->summary_bytes + kv->tail_bytes);
        DCI_TRY(copy_layout(kv));
        DCI_TRY(set_layers(kv));
        DCI_TRY(dci_kv_tree_draw_directions(kv));
        DCI_TRY(dci_kv_vote_draw_signs(kv));
        DCI_TRY(dci_kv_pool_init(kv));
        dci_kv_copies_init(kv);
        return DCI_OK;
}

dci_status dci_kv_create(dci_context *context, const dci_kv_config *config, dci_kv **out_kv)
{
        dci_kv_config checked;
        dci_kv_stages stages;
        if (context == NULL || out_kv == NULL)
                return dci_fail(DCI_ERR_INVALID, "%s is NULL", context == NULL ? "context" : "out_kv");
        DCI_TRY(dci_kv_check_config(config, &checked, &stages));
        const size_t n_bytes = dci_lines(sizeof(dci_kv)) + sizeof(dci_kv_stages);
        if (checked.max_bytes > 0 && n_bytes > checked.max_bytes)
                return dci_fail(DCI_ERR_FULL, "%zu bytes are wanted, but max_bytes is %zu", n_bytes, checked.max_bytes);
        dci_kv *kv = dci_calloc(context, n_bytes, 1);
        if (kv == NULL)
                return DCI_ERR_MEMORY;
        dci_context_retain(context);
        kv->context = context;
        kv->config = checked;
        kv->stages = (dci_kv_stages *)(void *)((unsigned char *)kv + dci_lines(sizeof *kv));
        *kv->stages = stages;
        atomic_init(&kv->bytes, n_bytes);
        atomic_init(&kv->chunk_total, 0);
        pthread_mutex_init(&kv->lock, NULL);
        kv->former = dci_kv_host_former;
        dci_kv_jobs_init(kv);
        dci_status status = set_up(kv);
        if (status != DCI_OK)
                dci_kv_destroy(kv);
        else
                *out_kv = kv;
        return status;
}

void dci_kv_destroy(dci_kv *kv)
{
        if (kv == NULL)
                return;
        dci_context *context = kv->context;
        const size_t n_layers = kv->config.n_layers;
        dci_kv_jobs_stop(kv);
        while (kv->n_sequences > 0)
                dci_kv_free_sequence(kv, kv->sequences[kv->n_sequences - 1]);
        dci_kv_free(kv, kv->sequences, 3 * kv->sequence_capacity * sizeof(dci_kv_sequence *));
        dci_kv_pool_destroy(kv, &kv->pool);
        dci_kv_pool_destroy(kv, &kv->copies);
        dci_kv_free(kv, kv->plans.memory, kv->plans.n_areas * kv->plans.area_bytes);
        dci_kv_free_retired(kv);
        dci_kv_free(kv, kv->retired, kv->retired_capacity * sizeof *kv->retired);
        dci_kv_free(kv, kv->building.memory, kv->building.n_areas * kv->building.area_bytes);
        dci_kv_free(kv, kv->clustering.memory, kv->clustering.n_areas * kv->clustering.area_bytes);
        dci_kv_free(kv, kv->free_areas, 2 * kv->building.n_areas * sizeof *kv->free_areas);
        dci_kv_free(kv, kv->workers, kv->worker_capacity * sizeof *kv->workers);
        dci_kv_free(kv, kv->tree_directions, dci_kv_tree_directions_bytes(kv));
        dci_kv_vote_free_signs(kv);
        dci_kv_free(kv, kv->layer_modes, n_layers);
        dci_kv_free(kv, kv->layout_keys, n_layers * sizeof *kv->layout_keys);
        dci_kv_free(kv, kv->layout_values, n_layers * sizeof *kv->layout_values);
        dci_kv_jobs_destroy(kv);
        pthread_mutex_destroy(&kv->lock);
        dci_free(context, kv, dci_lines(sizeof *kv) + sizeof(dci_kv_stages), 1);
        dci_context_destroy(context);
}
