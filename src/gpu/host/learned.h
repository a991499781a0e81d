/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Parts of the reference of scores: queries rounded to bytes, and scores of learned codes. */
#ifndef DCI_GPU_HOST_LEARNED_H
#define DCI_GPU_HOST_LEARNED_H

#include "core/internal.h"

#include "gpu/args/select.h"
#include "gpu/args/transforms.h"

/* A transformed query as bytes, for codes of either kind. */
typedef struct dci_gpu_coded_query {
        int8_t bytes[DCI_GPU_MAX_DIM];
        float half_step, fixed;
        int32_t twice_bias;
} dci_gpu_coded_query;

/* A query rotated by signs. y: dim. */
void dci_gpu_ref_rotate(size_t dim, const float *signs, const float *query, float *y);
/* Rounds n coordinates y of a transformed query to bytes, as dci_coder_query; the caller sets the bias. */
void dci_gpu_ref_coded(const float *query, const float *centre, size_t dim, const float *y, size_t n,
                       dci_gpu_coded_query *out);
/* A query for codes in even steps: rotated by signs, with its bias. centre: of dim. */
void dci_gpu_ref_code_query(const float *query, const float *centre, size_t dim, int32_t bits, const float *signs,
                            dci_gpu_coded_query *out);
/* Scores of row `at` of such codes and its scale with n queries. */
void dci_gpu_ref_code_scores(const unsigned char *codes, float scale, size_t dim, int32_t bits, int32_t at,
                             const dci_gpu_coded_query *queries, int32_t n, float *out);

/* query: as floats, times the scale. */
void dci_gpu_learned_query(const dci_gpu_score_args *args, const dci_gpu_transform *transform, const float *query,
                           dci_gpu_coded_query *out);
/* Row `at` of a head's part of a chunk. */
float dci_gpu_learned_score(const dci_gpu_score_args *args, const dci_gpu_transform *transform,
                            const unsigned char *chunk, int32_t at, const dci_gpu_coded_query *query);

#endif
