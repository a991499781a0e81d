/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Scores of learned codes, for the reference of scores. */
#ifndef DCI_GPU_REF_LEARNED_H
#define DCI_GPU_REF_LEARNED_H

#include "core/internal.h"

#include "gpu/frames.h"
#include "gpu/plans.h"

typedef struct dci_gpu_learned_query {
        int8_t bytes[DCI_GPU_MAX_DIM];
        float half_step, fixed;
        int32_t twice_bias;
} dci_gpu_learned_query;

/* query: as floats, times the scale. */
void dci_gpu_learned_ask(const dci_gpu_score_args *args, const dci_gpu_frame *frame, const float *query,
                         dci_gpu_learned_query *out);
/* Row `at` of a head's part of a chunk. */
float dci_gpu_learned_score(const dci_gpu_score_args *args, const dci_gpu_frame *frame, const unsigned char *chunk,
                            int32_t at, const dci_gpu_learned_query *query);

#endif
