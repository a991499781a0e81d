/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The part sparse: attention over a plan: 16 tokens of the sink, the latest 64, and a list of slots in the hot buffer. Sets rotate: as many
 * layers as it takes for what they read to exceed the device's L2 four times.
 */
#include "bench/gpu/gpu.h"

#include <stdlib.h>
#include <string.h>

enum { HEADS = 8, GROUP = 4, DIM = 128, SINK = 16, WINDOW = 64, TOKENS = 32768, CHECKED_SLOTS = 8192 };

typedef struct sparse {
        gpubench *b;
        size_t n_slots, n_sequences, n_sets, stride, lane_bytes; /* lane_bytes: of keys, of one set */
        dci_gpu_attend_args args;
        unsigned char *keys, *values;
        int32_t *slots, *counts;
} sparse;

static dci_gpu_attend_args args_of(const sparse *s, size_t set)
{
        dci_gpu_attend_args args = s->args;
        args.lanes.keys = s->keys + set * s->lane_bytes;
        args.lanes.values = s->values + set * s->lane_bytes;
        args.slots = s->slots + set * s->n_sequences * HEADS * s->stride;
        return args;
}

static dci_status attend(void *arg, size_t set)
{
        const sparse *s = arg;
        const dci_gpu_attend_args args = args_of(s, set);
        return s->b->ops->attend(s->b->gpu, s->b->stream, &args);
}

/* Lists of different slots of the hot buffer, in any order, as rows that were fetched step by step have them. */
static dci_status put_lists(sparse *s)
{
        const size_t n_lists = s->n_sequences * HEADS, n = s->n_sets * n_lists * s->stride;
        const dci_gpu_lanes *lanes = &s->args.lanes;
        int32_t *slots = gpubench_host(s->b, (n + n_lists) * sizeof *slots);
        void *device = NULL;
        if (slots == NULL)
                return DCI_ERR_MEMORY;
        for (size_t list = 0; list < s->n_sets * n_lists; list++) {
                const size_t mark = s->b->n_areas;
                const int32_t *hot = gpubench_order(s->b, (size_t)lanes->hot, list);
                if (hot == NULL)
                        return DCI_ERR_MEMORY;
                for (size_t i = 0; i < s->stride; i++)
                        slots[list * s->stride + i] = lanes->sink + lanes->ring + hot[i];
                gpubench_release(s->b, mark);
        }
        DCI_TRY(gpubench_put(s->b, slots, n * sizeof *slots, &device));
        s->slots = device;
        for (size_t i = 0; i < n_lists; i++)
                slots[i] = (int32_t)s->stride;
        DCI_TRY(gpubench_put(s->b, slots, n_lists * sizeof *slots, &device));
        s->counts = device;
        s->args.counts = device;
        return DCI_OK;
}

/* The plan's ranges, in place of those of attention to a list alone. */
static dci_status put_ranges(sparse *s)
{
        const size_t n = s->n_sequences;
        int32_t *ranges = gpubench_host(s->b, 3 * n * sizeof *ranges);
        void *device = NULL;
        if (ranges == NULL)
                return DCI_ERR_MEMORY;
        for (size_t i = 0; i < n; i++) {
                ranges[i] = SINK;
                ranges[n + i] = TOKENS - WINDOW;
                ranges[2 * n + i] = TOKENS;
        }
        const dci_status status = gpubench_put(s->b, ranges, 3 * n * sizeof *ranges, &device);
        const int32_t *at = device;
        s->args.sink_end = at;
        s->args.recent_begin = at + n;
        s->args.n_tokens = at + 2 * n;
        return status;
}

static dci_status prepare(sparse *s, const gpubench_heads *heads)
{
        gpubench *b = s->b;
        gpubench_area keys = {0}, values = {0};
        int32_t ring = 64;
        DCI_TRY(gpubench_attend_args(b, heads, s->n_slots, &s->args));
        while ((size_t)ring < s->n_slots)
                ring *= 2;
        s->stride = s->n_slots - SINK - WINDOW;
        s->args.stride = (int32_t)s->stride;
        s->args.lanes = (dci_gpu_lanes){.key_bytes = DIM * 2,
                                        .value_bytes = DIM * 2,
                                        .sink = SINK,
                                        .ring = ring,
                                        .hot = 2 * (int32_t)s->n_slots};
        s->args.lanes.n_slots = SINK + ring + s->args.lanes.hot;
        s->lane_bytes = s->n_sequences * HEADS * (size_t)s->args.lanes.n_slots * DIM * 2;
        /* More layers than fit would measure nothing else. */
        const size_t fit = gpubench_free_bytes(b) / 10 * 8 / (2 * s->lane_bytes);
        s->n_sets = s->n_sets < fit || b->options->tiny ? s->n_sets : fit > 0 ? fit : 1;
        DCI_TRY(gpubench_take(b, s->n_sets * s->lane_bytes, GPUBENCH_ON_DEVICE, &keys));
        DCI_TRY(gpubench_take(b, s->n_sets * s->lane_bytes, GPUBENCH_ON_DEVICE, &values));
        DCI_TRY(gpubench_fill(b, keys.device, keys.n_bytes, DCI_BF16));
        DCI_TRY(gpubench_fill(b, values.device, values.n_bytes, DCI_BF16));
        s->keys = keys.device;
        s->values = values.device;
        DCI_TRY(put_ranges(s));
        return put_lists(s);
}

static dci_status measure(gpubench *b, size_t n_sequences, size_t n_slots)
{
        const gpubench_heads heads = {n_sequences, HEADS, GROUP, DIM, TOKENS, DCI_BF16};
        const double bytes = (double)(n_sequences * HEADS * n_slots * DIM * 4);
        const size_t mark = b->n_areas;
        sparse s = {.b = b, .n_slots = n_slots, .n_sequences = n_sequences};
        gpubench_time time = {0};
        s.n_sets = gpubench_sets(b, (size_t)bytes, 32);
        DCI_TRY(prepare(&s, &heads));
        /* The reference sums in double, one row after the other: it would take seconds for the largest. */
        if (n_sequences * n_slots <= CHECKED_SLOTS) {
                const dci_gpu_attend_args args = args_of(&s, s.n_sets - 1);
                DCI_TRY(gpubench_attend_check(b, &heads, &args, NULL, 0, 0));
        }
        DCI_TRY(gpubench_on_device(b, attend, &s, s.n_sets, &time));
        DCI_TRY(gpubench_attend_finite(b, &heads, &s.args));
        json_t *shape = json_pack("{s:I, s:I, s:i, s:i, s:i, s:I, s:i}", "batch", (json_int_t)n_sequences, "slots",
                                  (json_int_t)n_slots, "heads", HEADS, "group", GROUP, "dim", DIM, "layers",
                                  (json_int_t)s.n_sets, "splits", (int)s.args.n_splits);
        const double rate = bytes / (1e-6 * time.median);
        DCI_TRY(gpubench_row(b, "sparse", "attend", shape, &time, bytes, b->limits.specified));
        gpubench_note(b, "share_of_copy", rate / b->limits.memory);
        printf("%5zu %6zu %6zu %6d %9.2f %9.2f %9.2f %7.3f %7.0f%%\n", n_sequences, n_slots, s.n_sets,
               (int)s.args.n_splits, time.median, time.p10, time.p90, rate * 1e-12, 100 * rate / b->limits.memory);
        gpubench_release(b, mark);
        return DCI_OK;
}

dci_status gpubench_sparse(gpubench *b)
{
        static const size_t batches[] = {1, 4, 16, 64}, slots[] = {256, 512, 1024, 2048};
        const bool tiny = b->options->tiny;
        printf("\nsparse: attention over slots, 32 query heads on 8 kv heads, d 128, bf16; us of one layer, in a "
               "graph\n"
               "%5s %6s %6s %6s %9s %9s %9s %7s %8s\n",
               "batch", "slots", "layers", "splits", "median", "p10", "p90", "TB/s", "of copy");
        for (size_t i = 0; i < (tiny ? 1 : 4); i++)
                for (size_t j = 0; j < (tiny ? 1 : 4); j++)
                        DCI_TRY(measure(b, tiny ? 2 : batches[i], tiny ? 100 : slots[j]));
        return DCI_OK;
}
