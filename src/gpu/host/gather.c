/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Reference of cuda/gather.cu: copies rows from a pool, or resident pages, into lanes. */
#include "gpu/gpu_internal.h"

#include <string.h>

#include "gpu/host/reference.h"

void dci_gpu_ref_gather(const dci_gpu_gather_args *args)
{
        const dci_gpu_lanes *lanes = &args->lanes;
        const int32_t n_lists = args->n_sequences * args->n_heads, unit = (int32_t)(1u << args->unit_shift);
        for (int32_t l = 0; l < n_lists; l++) {
                const int32_t row = args->rows[l / args->n_heads], head = l % args->n_heads;
                const uint64_t held = (uint64_t)row * (uint64_t)args->n_heads + (uint64_t)head;
                const dci_gpu_item *items = args->items + (uint64_t)l * args->item_stride;
                const int32_t n = args->n_items[(uint64_t)l * args->n_items_stride];
                for (int32_t t = 0; t < n; t++)
                        for (int32_t u = 0; u < unit; u++) {
                                const int32_t position = items[t].position + u;
                                dci_gpu_place from = dci_gpu_resident_place(&args->resident, &args->pool, &args->tables,
                                                                            row, position, head);
                                if (from.key == NULL)
                                        from = dci_gpu_pool_place(&args->pool, &args->tables, row, position, head);
                                else if (u == 0)
                                        args->resident.taken[held]++;
                                const dci_gpu_place to = dci_gpu_lane_place(lanes, held, items[t].slot + u);
                                memcpy(to.key, from.key, lanes->key_bytes);
                                memcpy(to.value, from.value, lanes->value_bytes);
                        }
        }
}
