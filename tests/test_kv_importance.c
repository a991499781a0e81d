/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* How much the last queries look at candidates, at every level of this machine: against the definition in double precision. */
#include "tests/common.h"

#include <math.h>
#include <string.h>

#include "kv/lookup.h"
#include "kv/stages/importance.h"
#include "simd/softmax/softmax.h"
#include "tests/kv_fixture.h"

enum { IMPORTANT = 1500, LAST = IMPORTANT + 40 };
#define BY_BYTES 3e-2 /* some hundredths of a logit, in most of the queries that count */
#define BY_FLOATS 1e-4

/* The sum over the last queries of the softmax over the first candidates, of the second layer and head; free(). */
static double *defined(const dci_kv_config *config, const dci_kv_info *info, const kv_data *data)
{
        const size_t dim = config->dim_k;
        double *out = calloc(IMPORTANT, sizeof *out), one[IMPORTANT];
        ck_assert_ptr_nonnull(out);
        for (size_t q = (LAST - KV_OBSERVED) * data->group; q < LAST * data->group; q++) {
                const float *query = kv_query(data, 1, q / data->group, data->group + q % data->group);
                double most = -(double)INFINITY, sum = 0.0;
                for (size_t c = 0; c < IMPORTANT; c++) {
                        const float *key = kv_key(data, 1, info->sink + c, 1);
                        one[c] = 0.0;
                        for (size_t j = 0; j < dim; j++)
                                one[c] += (double)query[j] * (double)key[j] / sqrt((double)dim);
                        most = fmax(most, one[c]);
                }
                for (size_t c = 0; c < IMPORTANT; c++)
                        sum += exp(one[c] - most);
                for (size_t c = 0; c < IMPORTANT; c++)
                        out[c] += exp(one[c] - most) / sum;
        }
        return out;
}

/* What one layer and head of a prompt of LAST tokens say of the first IMPORTANT candidates, by the level's arithmetic; free(). */
static float *importance_at(dci_isa isa, dci_kv_config *config, const kv_data *data, double **out_wanted)
{
        dci_context *with = test_context_isa(isa);
        dci_kv *kv = kv_create(with, config);
        const dci_kv_info info = kv_info(kv);
        const int64_t sequence = kv_begin(kv, data, LAST);
        const size_t dim = config->dim_k, es = dci_dtype_size(config->dtype);
        unsigned char *keys = malloc(IMPORTANT * dim * es),
                      *work = aligned_alloc(64, (dci_kv_importance_bytes(kv, IMPORTANT) + 63) / 64 * 64);
        float *out = malloc(dci_kv_importance_room(IMPORTANT) * sizeof *out);
        ck_assert(keys != NULL && work != NULL && out != NULL);
        for (size_t i = 0; i < IMPORTANT; i++)
                with->kernels->narrow[config->dtype - 1](kv_key(data, 1, info.sink + i, 1), dim, keys + i * dim * es);
        dci_kv_importance(kv, &dci_kv_find(kv, sequence)->layers[1], 1, keys, IMPORTANT, work, out);
        if (out_wanted != NULL)
                *out_wanted = defined(config, &info, data);
        test_free(keys, work);
        dci_kv_destroy(kv);
        dci_context_destroy(with);
        return out;
}

/* Rows that bytes find hard: a part common to all keys, coordinates that are much larger than others in keys or in queries. */
static void make_uneven(kv_data *data, float common, float large)
{
        for (size_t row = 0; row < data->n * data->n_layers * data->n_kv_heads; row++) {
                float *key = data->keys + row * data->dim_k;
                for (size_t j = 0; j < data->dim_k; j++)
                        key[j] = (j % 5 == 0 ? large : 1.0f) * key[j] + (j % 3 == 0 ? common : 0.0f);
                for (size_t g = 0; g < data->group; g++)
                        for (size_t j = 0; j < data->dim_k; j += 5)
                                data->queries[(row * data->group + g) * data->dim_k + j] /= large;
        }
}

static const struct {
        size_t dim;
        dci_dtype dtype;
        float common, large;
} uneven[] = {{16, DCI_F32, 0, 1},    {128, DCI_BF16, 0, 1},  {100, DCI_F16, 5, 1},
              {64, DCI_F32, 100, 20}, {67, DCI_F32, 1000, 1}, {3, DCI_F32, 0, 50}};

/* Loops over rows and levels: each candidate's importance, as far as it counts. */
START_TEST(importance_is_that_of_the_definition)
{
        dci_isa isas[6];
        const size_t n_levels = test_isas(isas);
        dci_kv_config config = kv_small(DCI_KV_PRKV);
        config.dim_k = uneven[_i].dim;
        config.dim_v = 16;
        config.rollback = 64;
        config.budget = 512;
        config.window = 64;
        config.dtype = uneven[_i].dtype;
        kv_data data = kv_random(&config, LAST, 305);
        make_uneven(&data, uneven[_i].common, uneven[_i].large);
        kv_data_store(&data);
        for (size_t l = 0; l < n_levels; l++) {
                double *wanted, total = 0.0, all = 0.0;
                dci_context *with = test_context_isa(isas[l]);
                const double error = (dci_softmax_kernels_for(with) != NULL ? BY_BYTES : BY_FLOATS);
                float *got = importance_at(isas[l], &config, &data, &wanted);
                for (size_t i = 0; i < IMPORTANT; i++) {
                        total += (double)got[i];
                        all += wanted[i];
                        ck_assert_msg(fabs((double)got[i] - wanted[i]) <= error * wanted[i] + 1e-6,
                                      "%s, candidate %zu: %.6g is not %.6g", dci_isa_name(isas[l]), i, (double)got[i],
                                      wanted[i]);
                }
                ck_assert(fabs(total / all - 1.0) <= 2e-3);
                test_free(got, wanted);
                dci_context_destroy(with);
        }
        kv_data_free(&data);
}
END_TEST

/* A key that no probe sees gets all of the attention: scores are then computed from those around it once more. And numbers that no byte
 * can stand for go by floats, to the bit. */
START_TEST(importance_of_what_is_far_from_the_rest)
{
        dci_isa isas[6];
        const size_t n_levels = test_isas(isas);
        for (size_t large = 0; large < 2; large++) {
                dci_kv_config config = kv_small(DCI_KV_PRKV);
                config.rollback = config.window = 64;
                config.dtype = DCI_F32;
                config.budget = 512;
                kv_data data = kv_random(&config, LAST, 306);
                const size_t per_token = data.n_kv_heads * data.dim_k, layer = LAST * per_token;
                float *far = data.keys + layer + (16 + 777) * per_token + data.dim_k;
                for (size_t row = 0; row < LAST * 2 * 2 * data.group && large == 0; row++)
                        data.queries[row * data.dim_k] = 3.0f;
                far[0] = 500.0f;
                for (size_t i = 0; i < LAST * 2 * per_token && large == 1; i++)
                        data.keys[i] *= 1e7f;
                kv_data_store(&data);
                float *first = NULL;
                for (size_t l = 0; l < n_levels; l++) {
                        float *got = importance_at(isas[l], &config, &data, NULL);
                        ck_assert(large == 1 || fabsf(got[777] - 2.0f * KV_OBSERVED) <= 1e-2f);
                        for (size_t i = 0; i < IMPORTANT; i++)
                                test_hold(large == 1 || i == 777 || got[i] <= 1e-6f);
                        if (isas[l] != DCI_ISA_SCALAR && first == NULL)
                                first = got;
                        else if (large == 1 && isas[l] != DCI_ISA_SCALAR)
                                ck_assert(memcmp(first, got, IMPORTANT * sizeof *got) == 0);
                        if (got != first)
                                free(got);
                }
                free(first);
                kv_data_free(&data);
        }
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("kv importance");
        TCase *tcase = test_case(suite, "importance", 60);
        tcase_add_loop_test(tcase, importance_is_that_of_the_definition, 0, COUNT(uneven));
        tcase_add_test(tcase, importance_of_what_is_far_from_the_rest);
        return test_main(suite);
}
