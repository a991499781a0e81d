/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* From a filter to the slots it admits. */
#include "core/internal.h"

#include <string.h>

#include "index/access.h"
#include "index/filter.h"

dci_status dci_filter_check(const dci_filter *filter)
{
        DCI_TRY(dci_check_struct_size("dci_filter", filter, filter->struct_size, sizeof *filter));
        if ((filter->flags & ~DCI_FILTER_NOT) != 0)
                return dci_fail(DCI_ERR_INVALID, "filter.flags is 0x%x, expected 0 or DCI_FILTER_NOT",
                                (unsigned)filter->flags);
        switch (filter->kind) {
        case DCI_FILTER_NONE:
                if (filter->flags != 0)
                        return dci_fail(DCI_ERR_INVALID, "filter.flags is DCI_FILTER_NOT, but filter.kind is NONE");
                return DCI_OK;
        case DCI_FILTER_IDS:
                if (filter->n > 0 && filter->ids == NULL)
                        return dci_fail(DCI_ERR_INVALID, "filter.ids is NULL, n is %zu", filter->n);
                for (size_t i = 1; i < filter->n; i++)
                        if (filter->ids[i] <= filter->ids[i - 1])
                                return dci_fail(DCI_ERR_INVALID,
                                                "filter.ids must ascend: number %zu is %lld after %lld", i,
                                                (long long)filter->ids[i], (long long)filter->ids[i - 1]);
                return DCI_OK;
        case DCI_FILTER_BITMAP:
                if (filter->n > 0 && filter->bits == NULL)
                        return dci_fail(DCI_ERR_INVALID, "filter.bits is NULL, n is %zu", filter->n);
                return DCI_OK;
        case DCI_FILTER_CALLBACK:
                if (filter->fn == NULL)
                        return dci_fail(DCI_ERR_INVALID, "filter.fn is NULL");
                return DCI_OK;
        default:
                return dci_fail(DCI_ERR_INVALID, "unknown filter kind %d", (int)filter->kind);
        }
}

dci_status dci_filter_test(const dci_index *index, const dci_filter *filter, dci_admitted *out)
{
        memset(out, 0, sizeof *out);
        if (filter == NULL || filter->kind != DCI_FILTER_CALLBACK)
                return DCI_OK;
        dci_index_read_begin(index);
        dci_view view = dci_rows_view(&index->rows);
        out->capacity = view.n;
        out->ids = dci_alloc(index->context, view.n, sizeof *out->ids);
        size_t n = 0;
        for (size_t i = 0; out->ids != NULL && i < view.n; i++) {
                out->ids[n] = dci_view_id(&view, (int32_t)i);
                n += out->ids[n] >= 0; /* an empty slot has none */
        }
        dci_index_read_end(index);
        if (out->ids == NULL)
                return DCI_ERR_MEMORY;
        dci_busy_mark mark;
        dci_busy_enter(&mark, index);
        const bool admits = (filter->flags & DCI_FILTER_NOT) == 0;
        for (size_t i = 0; i < n; i++)
                if ((filter->fn(filter->ctx, out->ids[i]) != 0) == admits)
                        out->ids[out->n++] = out->ids[i];
        dci_busy_leave(&mark);
        return DCI_OK;
}

static void set_bit(uint64_t *bits, size_t i)
{
        bits[i / 64] |= UINT64_C(1) << (i % 64);
}

uint64_t *dci_selection_bits(dci_context *context, const dci_selection *selection, size_t n)
{
        uint64_t *bits = dci_calloc(context, (n + 63) / 64, sizeof *bits);
        for (size_t i = 0; bits != NULL && i < selection->n; i++)
                set_bit(bits, (size_t)selection->slots[i]);
        return bits;
}

size_t dci_bits_slots(const uint64_t *bits, size_t n_words, int32_t *out)
{
        size_t n = 0;
        for (size_t w = 0; w < n_words; w++)
                for (uint64_t rest = bits[w]; rest != 0; rest &= rest - 1)
                        out[n++] = (int32_t)(w * 64 + (size_t)dci_lowest_bit(rest));
        return n;
}

static void admit_ids(const dci_index *index, const dci_view *view, const int64_t *ids, size_t n, uint64_t *bits)
{
        for (size_t i = 0; i < n; i++) {
                int32_t slot = dci_index_slot(index, view, ids[i]);
                if (slot >= 0)
                        set_bit(bits, (size_t)slot);
        }
}

static void admit_bitmap(const dci_view *view, const dci_filter *filter, uint64_t *bits)
{
        for (size_t slot = 0; slot < view->n; slot++) {
                int64_t id = dci_view_id(view, (int32_t)slot);
                /* Unsigned difference: ids are >= 0, first_id may be anything. */
                uint64_t at = (uint64_t)id - (uint64_t)filter->first_id;
                if (id >= 0 && id >= filter->first_id && at < filter->n &&
                    (filter->bits[at / 64] >> (at % 64) & 1) != 0)
                        set_bit(bits, slot);
        }
}

/* The rows that were not admitted, and no empty slots. */
static void complement(const dci_view *view, uint64_t *bits)
{
        for (size_t slot = 0; slot < view->n; slot++)
                if (!view->rows->gaps || dci_view_id(view, (int32_t)slot) >= 0)
                        bits[slot / 64] ^= UINT64_C(1) << (slot % 64);
}

/* The slots whose bits are set: room for as many as there are. */
static bool list_bits(const dci_index *index, const uint64_t *bits, size_t n_words, dci_selection *out)
{
        out->capacity = 0;
        for (size_t w = 0; w < n_words; w++)
                for (uint64_t rest = bits[w]; rest != 0; rest &= rest - 1)
                        out->capacity++;
        out->slots = dci_alloc(index->context, out->capacity, sizeof *out->slots);
        out->n = out->slots == NULL ? 0 : dci_bits_slots(bits, n_words, out->slots);
        return out->slots != NULL;
}

dci_status dci_filter_occupied(const dci_index *index, const dci_view *view, dci_selection *out)
{
        *out = (dci_selection){.capacity = view->n};
        out->slots = dci_alloc(index->context, view->n, sizeof *out->slots);
        for (size_t slot = 0; out->slots != NULL && slot < view->n; slot++) {
                out->slots[out->n] = (int32_t)slot;
                out->n += dci_view_id(view, (int32_t)slot) >= 0;
        }
        return out->slots == NULL ? DCI_ERR_MEMORY : DCI_OK;
}

dci_status dci_filter_select(const dci_index *index, const dci_view *view, const dci_filter *filter,
                             const dci_admitted *admitted, dci_selection *out)
{
        memset(out, 0, sizeof *out);
        out->all = filter == NULL || filter->kind == DCI_FILTER_NONE;
        out->n = view->rows->gaps ? atomic_load(&index->n_live) : view->n;
        if (out->all)
                return DCI_OK;
        size_t n_words = (view->n + 63) / 64;
        uint64_t *bits = dci_calloc(index->context, n_words, sizeof *bits);
        if (bits == NULL)
                return DCI_ERR_MEMORY;
        if (filter->kind == DCI_FILTER_BITMAP)
                admit_bitmap(view, filter, bits);
        else if (filter->kind == DCI_FILTER_IDS)
                admit_ids(index, view, filter->ids, filter->n, bits);
        else
                admit_ids(index, view, admitted->ids, admitted->n, bits);
        if ((filter->flags & DCI_FILTER_NOT) != 0 &&
            filter->kind != DCI_FILTER_CALLBACK) /* whose answers were turned */
                complement(view, bits);

        const bool listed = list_bits(index, bits, n_words, out);
        dci_free(index->context, bits, n_words, sizeof *bits);
        return listed ? DCI_OK : DCI_ERR_MEMORY;
}

void dci_filter_free(const dci_index *index, dci_admitted *admitted, dci_selection *selection)
{
        dci_free(index->context, admitted->ids, admitted->capacity, sizeof *admitted->ids);
        dci_free(index->context, selection->slots, selection->capacity, sizeof *selection->slots);
}
