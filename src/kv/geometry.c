/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Numbers that follow from the config and from lengths: which layers have groups, of how many candidates, and when they are due. */
#include "core/internal.h"

#include "kv/geometry.h"

size_t dci_kv_stride(const dci_kv *kv)
{
        return kv->config.budget;
}

size_t dci_kv_anchor_of(const dci_kv *kv, size_t layer)
{
        const dci_kv_config *c = &kv->config;
        if (c->schedule != DCI_KV_ANCHOR || layer < c->anchor_first)
                return layer;
        const size_t anchor = layer - (layer - c->anchor_first) % c->anchor_period;
        return kv->layer_modes[anchor] == DCI_KV_LAYER_SPARSE ? anchor : layer;
}

bool dci_kv_groups(const dci_kv *kv, size_t layer)
{
        /* A layer that uses another one's lists ranks nothing. */
        const bool borrows = dci_kv_anchor_of(kv, layer) != layer;
        return kv->layer_modes[layer] == DCI_KV_LAYER_SPARSE && (borrows ? dci_kv_tailed(kv) : dci_kv_summarised(kv));
}

size_t dci_kv_whole_within(const dci_kv *kv, size_t n_candidates, size_t n)
{
        const size_t left = n > kv->config.sink ? n - kv->config.sink : 0;
        return n_candidates <= left ? n_candidates : left / kv->config.page_tokens * kv->config.page_tokens;
}

size_t dci_kv_may_group(const dci_kv *kv, size_t n)
{
        const dci_kv_config *config = &kv->config;
        const size_t young = config->sink + config->rollback;
        return n > young ? (n - young) / dci_kv_unit(kv) * dci_kv_unit(kv) : 0;
}

size_t dci_kv_prompt_candidates(const dci_kv *kv, size_t n_prompt)
{
        if (kv->config.frozen_prompt)
                return n_prompt > kv->config.sink ? n_prompt - kv->config.sink : 0;
        /* A selection that is made once sees nothing that comes later, so it takes all but the window. */
        if (kv->config.select == DCI_KV_SELECT_OBSERVED) {
                const size_t kept = kv->config.sink + kv->config.window;
                return n_prompt > kept ? n_prompt - kept : 0;
        }
        return dci_kv_may_group(kv, n_prompt);
}

size_t dci_kv_will_group(const dci_kv *kv, const dci_kv_layer *layer)
{
        return atomic_load(&layer->prompt) == DCI_KV_PROMPT_DONE ? layer->n_grouped
                                                                 : dci_kv_prompt_candidates(kv, layer->n_prompt);
}

bool dci_kv_some_prompt_due(const dci_kv *kv, const dci_kv_sequence *sequence)
{
        bool some = false;
        for (size_t l = 0; l < kv->config.n_layers; l++)
                some = some || sequence->layers[l].prompt_due;
        return some;
}

/* The groups that are due form when recent tokens would take more than half of the budget; otherwise dci_kv_maintain has time. Listed
 * groups would come out otherwise for another step, so only tokens that are there count. */
bool dci_kv_pending(const dci_kv *kv, const dci_kv_sequence *sequence, size_t n)
{
        for (size_t l = 0; l < kv->config.n_layers; l++) {
                const dci_kv_layer *layer = &sequence->layers[l];
                if (!dci_kv_groups(kv, l) || layer->prompt == DCI_KV_PROMPT_OPEN || kv->config.frozen_prompt)
                        continue;
                const size_t n_grouped = dci_kv_will_group(kv, layer);
                const bool cut_evenly = kv->clustered && !dci_kv_reorders(kv);
                if (sequence->n + (cut_evenly ? 0 : n) >
                            kv->config.sink + n_grouped + dci_kv_patience(&kv->config, sequence->n) &&
                    dci_kv_may_group(kv, sequence->n) > n_grouped)
                        return true;
        }
        return false;
}
