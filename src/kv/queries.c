/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Queries of a call, and the plan it works with: checked, and converted. */
#include "core/internal.h"

#include <float.h>

#include "kv/geometry.h"
#include "kv/queries.h"

void dci_kv_queries_to_f32(const dci_kv *kv, const void *queries, size_t ld, size_t sequence, size_t first, size_t n,
                           float *out)
{
        const size_t es = dci_dtype_size(kv->config.query_dtype);
        const unsigned char *rows =
                (const unsigned char *)queries + (sequence * kv->config.n_query_heads + first) * ld * es;
        for (size_t q = 0; q < n; q++) {
                kv->context->kernels->to_f32[kv->config.query_dtype - 1](rows + q * ld * es, kv->dim_k,
                                                                         out + q * kv->dim_k);
                for (size_t j = 0; j < kv->dim_k; j++)
                        out[q * kv->dim_k + j] *= kv->scale;
        }
}

dci_status dci_kv_check_span(const char *what, size_t n_rows, const void *rows, size_t ld, size_t element_bytes)
{
        size_t n_bytes;
        if (!dci_mul(n_rows, ld, &n_bytes) || !dci_mul(n_bytes, element_bytes, &n_bytes) || n_bytes > PTRDIFF_MAX)
                return dci_fail(DCI_ERR_LIMIT, "%zu rows of %s, %zu elements apart, exceed the address space", n_rows,
                                what, ld);
        return dci_check_aligned(what, rows, element_bytes);
}

size_t dci_kv_bad_query(const dci_kv *kv, size_t n, const void *queries, size_t ld)
{
        const dci_dtype dtype = kv->config.query_dtype;
        const unsigned char *rows = queries;
        const double by = kv->scale > 1.0f ? (double)kv->scale : 1.0; /* they are scored times the scale */
        size_t i = 0;
        while (i < n) {
                const float norm2 =
                        kv->context->kernels->norm2[dtype - 1](rows + i * ld * dci_dtype_size(dtype), kv->dim_k);
                if (!((double)norm2 * by * by <= (double)FLT_MAX)) /* nor is it if this is no number */
                        break;
                i++;
        }
        return i;
}

dci_status dci_kv_check_queries(const dci_kv *kv, size_t layer, size_t n_sequences, dci_kv_sequence *const *found,
                                const void *queries, size_t ld)
{
        if (layer >= kv->config.n_layers)
                return dci_fail(DCI_ERR_INVALID, "layer is %zu, expected less than %zu", layer, kv->config.n_layers);
        if (n_sequences > 0 && queries == NULL)
                return dci_fail(DCI_ERR_INVALID, "queries is NULL");
        if (ld < kv->dim_k)
                return dci_fail(DCI_ERR_INVALID, "the queries' stride is %zu, expected at least %zu", ld, kv->dim_k);
        const size_t n_heads = kv->config.n_query_heads, n = n_sequences * n_heads;
        DCI_TRY(dci_kv_check_span("queries", n, queries, ld, dci_dtype_size(kv->config.query_dtype)));
        const size_t bad = dci_kv_bad_query(kv, n, queries, ld);
        if (bad < n)
                return dci_fail(DCI_ERR_NUMBER,
                                "the query of sequence %lld and head %zu has NaN, infinity, or is too large",
                                (long long)found[bad / n_heads]->id, bad % n_heads);
        return DCI_OK;
}

dci_status dci_kv_check_plan(const dci_kv *kv, size_t n_sequences, const dci_kv_plan *plan)
{
        DCI_TRY(dci_check_struct_size("dci_kv_plan", plan, plan->struct_size, sizeof *plan));
        if (plan->n_lists != kv->n_lists)
                return dci_fail(DCI_ERR_INVALID, "the plan has %zu lists per sequence, expected %zu", plan->n_lists,
                                kv->n_lists);
        if (plan->max_sequences < n_sequences)
                return dci_fail(DCI_ERR_INVALID, "the plan has room for %zu sequences, not %zu", plan->max_sequences,
                                n_sequences);
        if (plan->stride < dci_kv_stride(kv))
                return dci_fail(DCI_ERR_INVALID, "the plan's lists hold %zu slots, expected at least %zu", plan->stride,
                                dci_kv_stride(kv));
        const struct {
                const char *name;
                const void *array;
        } arrays[] = {{"slots", plan->slots},
                      {"counts", plan->counts},
                      {"sink_end", plan->sink_end},
                      {"recent_begin", plan->recent_begin},
                      {"n_tokens", plan->n_tokens}};
        for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
                if (arrays[i].array == NULL)
                        return dci_fail(DCI_ERR_INVALID, "the plan's %s is NULL", arrays[i].name);
        if ((plan->tail_out == NULL) != (plan->tail_lse == NULL))
                return dci_fail(DCI_ERR_INVALID, "the plan's %s is NULL, the other is not",
                                plan->tail_out == NULL ? "tail_out" : "tail_lse");
        return DCI_OK;
}
