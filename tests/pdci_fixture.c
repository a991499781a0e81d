/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/pdci_fixture.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/npy.h"

dci_index_config pdci_config(size_t dim, dci_metric metric, dci_dtype dtype)
{
        dci_index_config config = index_config(dim, metric, dtype);
        config.kind = DCI_KIND_PDCI;
        config.add_dtype = config.query_dtype = DCI_F32;
        return config;
}

dci_index *pdci_index(dci_context *context, const dci_index_config *config, size_t n, const float *rows,
                      const int64_t *ids)
{
        dci_index *index = NULL;
        ck_ok(dci_index_create(context, config, &index));
        ck_ok(dci_index_add(index, n, rows, config->dim, ids, NULL));
        return index;
}

dci_search_params pdci_effort(size_t visit, size_t retrieve)
{
        dci_search_params params;
        ck_ok(dci_search_params_init(&params, sizeof params));
        params.num_to_visit = visit;
        params.num_to_retrieve = retrieve;
        return params;
}

dci_index_config pdci_sketched(dci_index_kind kind, dci_metric metric, dci_dtype dtype, int32_t bits)
{
        dci_index_config config = index_config(TRACE_DIM, metric, dtype);
        config.kind = kind;
        config.sketch_bits = bits;
        config.add_dtype = config.query_dtype = DCI_F32;
        return config;
}

dci_search_params pdci_verifying(double rerank, double guarantee)
{
        dci_search_params params;
        ck_ok(dci_search_params_init(&params, sizeof params));
        params.rerank = rerank;
        params.guarantee = guarantee;
        return params;
}

float *pdci_trace(const char *name, size_t n)
{
        dci_context *context = test_context(1);
        dci_npy npy = {0};
        char path[512];
        snprintf(path, sizeof path, "%s/%s.npy", test_trace_dir(), name);
        ck_ok(dci_npy_read(context, path, &npy));
        const size_t total = npy.n_bytes / (TRACE_DIM * sizeof(uint16_t));
        ck_assert(npy.type == DCI_NPY_F16 && npy.shape[npy.n_dims - 1] == TRACE_DIM && n <= total);
        float *rows = malloc(n * TRACE_DIM * sizeof *rows);
        ck_assert_ptr_nonnull(rows);
        for (size_t i = 0; i < n; i++)
                dci_kernels_scalar.to_f32[DCI_F16 - 1]((const uint16_t *)npy.data + i * total / n * TRACE_DIM,
                                                       TRACE_DIM, rows + i * TRACE_DIM);
        dci_npy_free(&npy);
        dci_context_destroy(context);
        return rows;
}

int64_t *pdci_shuffled(size_t n, uint64_t seed)
{
        int64_t *ids = malloc((n + 1) * sizeof *ids);
        dci_rng rng;
        ck_assert_ptr_nonnull(ids);
        dci_rng_seed(&rng, seed);
        for (size_t i = 0; i < n; i++) {
                size_t j = (size_t)dci_rng_below(&rng, i + 1);
                ids[i] = ids[j];
                ids[j] = (int64_t)i;
        }
        return ids;
}

pdci_found pdci_search(const dci_index *index, size_t n_queries, const float *queries, size_t k,
                       const dci_search_params *params)
{
        pdci_found found = {n_queries, k, malloc(n_queries * k * sizeof(int64_t) + 1),
                            malloc(n_queries * k * sizeof(float) + 1)};
        ck_assert(found.ids != NULL && found.scores != NULL);
        ck_ok(dci_index_search(index, n_queries, queries, index->config.dim, k, params, found.ids, found.scores));
        return found;
}

void pdci_found_free(pdci_found *found)
{
        test_free(found->ids, found->scores);
        memset(found, 0, sizeof *found);
}

bool pdci_same(const pdci_found *a, const pdci_found *b)
{
        const size_t n = a->n_queries * a->k;
        return a->n_queries == b->n_queries && a->k == b->k && memcmp(a->ids, b->ids, n * sizeof *a->ids) == 0 &&
               memcmp(a->scores, b->scores, n * sizeof *a->scores) == 0;
}

void pdci_interleave(const pdci_found *lists, size_t first, size_t size, size_t k, int64_t *out_ids, float *out_scores)
{
        size_t n = 0;
        for (size_t rank = 0; rank < lists->k; rank++) {
                for (size_t q = 0; q < size && n < k; q++) {
                        const size_t at = (first + q) * lists->k + rank;
                        bool known = lists->ids[at] < 0;
                        for (size_t i = 0; i < n; i++)
                                known = known || out_ids[i] == lists->ids[at];
                        if (known)
                                continue;
                        out_ids[n] = lists->ids[at];
                        out_scores[n++] = lists->scores[at];
                }
        }
        for (; n < k; n++) {
                out_ids[n] = -1;
                out_scores[n] = NAN;
        }
}

void pdci_agree(const dci_index *index, const dci_filter *filter, const dci_index *other, size_t n_queries,
                const float *queries, const char *what)
{
        static const struct {
                double prop_to_visit;
                size_t visit, retrieve;
        } budgets[] = {{1, 1, 0}, {1, 20, 0}, {1, 500, 0}, {0.98, 0, 0}, {1, 0, 7}, {1, 600, 50}, {1, 0, 0}};
        static const size_t ks[] = {1, 10};
        const size_t dim = index->config.dim;
        for (size_t c = 0; c < COUNT(budgets) * COUNT(ks); c++) {
                const size_t b = c / COUNT(ks), n = c % 2 == 0 ? n_queries : 1, k = ks[c % COUNT(ks)];
                dci_search_params params = pdci_effort(budgets[b].visit, budgets[b].retrieve);
                params.prop_to_visit = budgets[b].prop_to_visit;
                pdci_found y = pdci_search(other, n, queries + (n_queries - n) * dim, k, &params);
                params.filter = filter;
                pdci_found x = pdci_search(index, n, queries + (n_queries - n) * dim, k, &params);
                ck_assert_msg(pdci_same(&x, &y), "%s: budget %zu, k %zu, %zu queries", what, b, k, n);
                pdci_found_free(&x);
                pdci_found_free(&y);
        }
}

float pdci_any_radius(dci_metric metric)
{
        return metric == DCI_METRIC_L2 ? INFINITY : -INFINITY;
}

size_t pdci_candidates(const dci_index *index, const float *query, const dci_search_params *params, size_t capacity,
                       int64_t *out_ids)
{
        dci_range_result result;
        ck_ok(dci_range_result_init(&result, sizeof result));
        ck_ok(dci_index_range_search(index, 1, query, index->config.dim, pdci_any_radius(index->config.metric), params,
                                     &result));
        const size_t n = result.offsets[1];
        ck_assert_uint_le(n, capacity);
        memcpy(out_ids, result.ids, n * sizeof *out_ids);
        qsort(out_ids, n, sizeof *out_ids, test_int64s_ascend);
        dci_range_result_free(&result);
        return n;
}
