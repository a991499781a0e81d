/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/kv_order_model.h"

#include <math.h>
#include <string.h>

#include "kv/clusters.h"
#include "simd/softmax/softmax.h"

/* The sum over the last queries of the softmax over n candidates; free(). */
static double *importance(const dci_kv_config *config, const dci_kv_info *info, const kv_data *data, size_t layer,
                          size_t head, const kv_naive_order *naive, size_t n)
{
        const size_t group = config->n_query_heads / config->n_kv_heads, dim = config->dim_k;
        size_t ring = config->ring == DCI_KV_PRESET ? 64 : config->ring;
        double *out = calloc(n + 1, sizeof *out), *one = calloc(n + 1, sizeof *one);
        ck_assert(out != NULL && one != NULL);
        if (!config->frozen_prompt && ring > info->rollback)
                ring = info->rollback;
        for (size_t i = naive->n_seen > ring ? naive->n_seen - ring : 0; i < naive->n_seen; i++)
                for (size_t g = 0; g < group; g++) {
                        const float *query = kv_query(data, layer, naive->seen[i], head * group + g);
                        double most = -(double)INFINITY, sum = 0.0;
                        for (size_t c = 0; c < n; c++) {
                                const float *key = kv_key(data, layer, info->sink + c, head);
                                one[c] = 0.0;
                                for (size_t j = 0; j < dim; j++)
                                        one[c] += (double)query[j] * (double)key[j] / sqrt((double)dim);
                                most = fmax(most, one[c]);
                        }
                        for (size_t c = 0; c < n; c++)
                                sum += exp(one[c] - most);
                        for (size_t c = 0; c < n; c++)
                                out[c] += exp(one[c] - most) / sum;
                }
        free(one);
        return out;
}

/* Of two importances that are compared: by bytes some hundredths of a logit each, which few queries do not average away; by floats
 * what sums and exponentials are rounded. */
static double error_of(const dci_context *with)
{
        return dci_softmax_kernels_for(with) != NULL ? 6e-2 : 1e-4;
}

void kv_check_order(const dci_kv *kv, const dci_kv_config *config, const dci_kv_info *info, const kv_data *data,
                    const dci_kv_layer *layer, size_t head, size_t n_static, kv_naive_order *naive)
{
        const dci_kv_clusters *batch = layer->batches[0];
        const int32_t *ids = dci_kv_cluster_ids(kv, batch, head);
        const size_t n = batch->n;
        double *weights = importance(config, info, data, layer->number, head, naive, n), last = (double)INFINITY;
        uint8_t *is_static = calloc(n + 1, 1);
        ck_assert_ptr_nonnull(is_static);
        ck_assert_uint_eq(batch->n_static, n_static);
        for (size_t i = 0; i < n_static; i++) {
                const double here = weights[ids[i]];
                test_hold((size_t)ids[i] < n && is_static[ids[i]]++ == 0);
                ck_assert_msg(here <= last * (1 + error_of(kv->context)),
                              "static token %zu has %.9g, the one before %.9g", i, here, last);
                last = here;
        }
        for (size_t c = 0; c < n && n_static > 0; c++)
                ck_assert_msg(is_static[c] || weights[c] <= last * (1 + error_of(kv->context)),
                              "candidate %zu has %.9g, the least static one %.9g", c, weights[c], last);
        naive->order = realloc(naive->order, (n + 1) * sizeof *naive->order);
        ck_assert_ptr_nonnull(naive->order);
        while (naive->n < n) {
                naive->order[naive->n] = (int32_t)naive->n;
                naive->n++;
        }
        size_t at = n_static;
        for (size_t i = 0; i < n; i++) /* the others as they were */
                if (!is_static[naive->order[i]])
                        ck_assert_int_eq(ids[at++], naive->order[i]);
        ck_assert_uint_eq(at, n);
        memcpy(naive->order, ids, n * sizeof *ids);
        naive->n_static = n_static;
        test_free(weights, is_static);
}
