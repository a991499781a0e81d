/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Frames of learned codes for cases of scores: heads have, in turns, a frame that was fitted for ranks, one that was fitted for attention by
 * codes alone, the random one of keys that no fit takes, and one with a layout of any widths and a transform of any numbers.
 */
#ifndef DCI_TESTS_GPU_SCORE_LEARNED_H
#define DCI_TESTS_GPU_SCORE_LEARNED_H

#include "tests/gpu_score_fixture.h"

void score_learned_coder(score_state *s, size_t row, size_t head);
void score_learned_frames(score_state *s);
/* By how much a score changes where another order of summation changes bytes of a query by one unit, for a row of scale 1. */
double score_learned_doubt(const dci_coder *coder, const float *query, const dci_coded_query *coded);

#endif
