/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Codes of a tree (tree_keys CODES): of the members of pages, by their places, and of the means of cells. They are made
 * with the head's transform of keys. A change of the tree encodes the pages that it wrote.
 */
#include "core/internal.h"

#include "kv/transform.h"
#include "kv/tree/tree.h"
#include "simd/convert.h"

const dci_coder *dci_kv_tree_coder(const dci_kv_layer *layer, size_t head)
{
        const dci_kv_transform *transform = layer->heads[head].keys;
        return transform == NULL || transform->coder.dim == 0 ? NULL : &transform->coder;
}

/* n <= DCI_CODE_ROWS rows, dim_k apart, to places from `first` on, which are in one block. */
static void put_codes(const dci_kv *kv, const dci_coder *coder, const float *keys, size_t n, size_t first,
                      void *scratch, unsigned char *codes, uint16_t *scales)
{
        const float *rows[DCI_CODE_ROWS] = {NULL};
        dci_coded_row coded[DCI_CODE_ROWS];
        for (size_t i = 0; i < n; i++)
                rows[first % DCI_CODE_ROWS + i] = keys + i * kv->dim_k;
        dci_coder_encode_only(coder, rows, scratch, codes + first / DCI_CODE_ROWS * dci_kv_tree_block_bytes(kv), coded);
        for (size_t i = 0; i < n; i++)
                scales[first + i] = dci_float_to_bf16(coded[first % DCI_CODE_ROWS + i].scale);
}

void dci_kv_tree_encode_page(const dci_kv *kv, const dci_coder *coder, dci_kv_tree *tree, size_t page,
                             const void *const *rows, size_t n, const dci_kv_tree_encoder *by)
{
        const size_t first = page * kv->config.page_tokens;
        for (size_t i = 0, here; i < n; i += here) {
                here = n - i < by->n_rows ? n - i : by->n_rows;
                for (size_t r = 0; r < here; r++)
                        kv->context->kernels->to_f32[kv->config.dtype - 1](rows[i + r], kv->dim_k,
                                                                           by->rows + r * kv->dim_k);
                put_codes(kv, coder, by->rows, here, first + i, by->scratch, tree->codes, tree->code_scales);
        }
}

void dci_kv_tree_encode_node(const dci_kv *kv, const dci_coder *coder, dci_kv_tree *tree, size_t node,
                             const float *mean, const dci_kv_tree_encoder *by)
{
        put_codes(kv, coder, mean, 1, node, by->scratch, tree->node_codes, tree->node_scales);
}
