/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Rows and queries of a made-up decode for a model's shape, quick enough for a million tokens of many heads: what `kv --synthetic` has (topics
 * that come back, strong channels, a mean that turns, sinks), with numbers out of a bank instead of drawn one by one.
 */
#ifndef DCI_BENCH_GPU_STREAM_H
#define DCI_BENCH_GPU_STREAM_H

#include "bench/common/bench.h"
#include "core/internal.h"

#define GPUBENCH_DIM 128
#define GPUBENCH_WALK_APART 37 /* steps of the walk from one layer's, or sequence's, queries to the next one's */

typedef struct gpubench_stream {
        dci_context *context;
        size_t n_heads, group, n_tokens;
        uint64_t seed;
        float *bank;     /* normal numbers */
        int32_t *topics; /* of each token */
        float *frame;    /* by head: two means, what all queries share, the channels' widths */
        uint16_t *walk;  /* queries as bf16: [step][head][group][dim] */
        size_t n_walk, prompt;
} gpubench_stream;

dci_status gpubench_stream_open(dci_context *context, size_t n_heads, size_t group, size_t n_tokens, uint64_t seed,
                                gpubench_stream *out);
void gpubench_stream_close(gpubench_stream *stream);
/* Keys and values of tokens [first, first + n) as bf16: [token][head][dim]. Beyond n_tokens the run starts over. */
dci_status gpubench_stream_rows(const gpubench_stream *stream, size_t first, size_t n, uint16_t *keys,
                                uint16_t *values);
/* Makes the queries of n_steps steps of a decode after `prompt` tokens, some of which they look for. */
dci_status gpubench_stream_walk(gpubench_stream *stream, size_t prompt, size_t n_steps);
/* Queries of all heads at a step of the walk, which starts over after its end. */
const uint16_t *gpubench_stream_queries(const gpubench_stream *stream, size_t step);
/* Returns the share of the 176 best tokens of a step, by exact keys (the sum over the group of the softmax), that the step before had, and of
 * those among the 512 most recent of such tokens: means over the later half of n_steps of one head, on the last `most` tokens of the prompt. */
dci_status gpubench_stream_overlap(const gpubench_stream *stream, size_t most, size_t n_steps, double *out_last,
                                   double *out_kept);

#endif
