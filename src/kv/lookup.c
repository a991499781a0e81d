/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* From the ids of a call to its sequences, and from tokens to their rows. */
#include "core/internal.h"

#include "kv/lookup.h"
#include "kv/pool.h"

/* Where a sequence is, or would be, among the ascending ids. */
size_t dci_kv_place_of(const dci_kv *kv, int64_t id)
{
        size_t low = 0, high = kv->n_sequences;
        while (low < high) {
                const size_t middle = low + (high - low) / 2;
                if (kv->sequences[middle]->id < id)
                        low = middle + 1;
                else
                        high = middle;
        }
        return low;
}

dci_kv_sequence *dci_kv_find(dci_kv *kv, int64_t sequence)
{
        const size_t at = dci_kv_place_of(kv, sequence);
        if (at < kv->n_sequences && kv->sequences[at]->id == sequence)
                return kv->sequences[at];
        dci_fail(DCI_ERR_NOT_FOUND, "there is no sequence %lld", (long long)sequence);
        return NULL;
}

/* The sequences of a call: known and different. out: n_sequences. */
static dci_status find_all(dci_kv *kv, size_t n_sequences, const int64_t *sequences, dci_kv_sequence **out)
{
        if (n_sequences > 0 && sequences == NULL)
                return dci_fail(DCI_ERR_INVALID, "sequences is NULL");
        kv->mark++;
        for (size_t i = 0; i < n_sequences; i++) {
                dci_kv_sequence *sequence = dci_kv_find(kv, sequences[i]);
                if (sequence == NULL)
                        return DCI_ERR_NOT_FOUND;
                if (sequence->mark == kv->mark)
                        return dci_fail(DCI_ERR_INVALID, "sequence %lld comes twice in one call",
                                        (long long)sequences[i]);
                sequence->mark = kv->mark;
                out[i] = sequence;
        }
        return DCI_OK;
}

dci_status dci_kv_begin_call(dci_kv *kv, size_t n_sequences, const int64_t *sequences, dci_kv_sequence ***out)
{
        DCI_TRY(dci_kv_lock(kv));
        /* An unknown or repeated one is named; more than there are cannot all be different. */
        const size_t n = n_sequences < kv->n_sequences ? n_sequences : kv->n_sequences;
        *out = kv->found;
        dci_status status = find_all(kv, n, sequences, kv->found);
        if (status == DCI_OK && n < n_sequences)
                status = dci_fail(n == 0 ? DCI_ERR_NOT_FOUND : DCI_ERR_INVALID,
                                  "%zu sequences are named in one call, but there are %zu", n_sequences,
                                  kv->n_sequences);
        if (status != DCI_OK)
                dci_kv_unlock(kv);
        return status;
}

void dci_kv_rows_of(const dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t first, size_t n, const void **keys,
                    const void **values)
{
        const size_t per_page = kv->config.page_tokens;
        const int32_t *table = atomic_load_explicit(&layer->sequence->table, memory_order_acquire);
        for (size_t i = 0; i < n;) {
                const size_t at = first + i, slot = at % per_page;
                const dci_kv_page page = dci_kv_page_at(kv, layer->number, table[at / per_page], head);
                const size_t left = n - i, here = per_page - slot < left ? per_page - slot : left;
                for (size_t j = 0; j < here; j++) {
                        if (keys != NULL)
                                keys[i + j] = page.keys + (slot + j) * page.key_step;
                        if (values != NULL)
                                values[i + j] = page.values + (slot + j) * page.value_step;
                }
                i += here;
        }
}
