/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Reference of cuda/resolve.cu: finds tokens of a list in the hot buffer; evicts frames (LRU) for missing ones. */
#include "gpu/gpu_internal.h"

#include <string.h>

/* One list with the frames of its lane. */
typedef struct lane {
        const dci_gpu_resolve_args *args;
        const int32_t *positions;
        int32_t count;
        int32_t *tags, *slots;
        uint32_t *stamps;
        dci_gpu_item *items;
        unsigned char hit[DCI_GPU_MAX_FRAMES / 8]; /* frames that this list needs: bits */
        int32_t age, frame;                        /* the search for the next victim continues here */
} lane;

static bool is_hit(const lane *l, int32_t frame)
{
        return (l->hit[frame / 8] >> (frame % 8) & 1) != 0;
}

static void set_hit(lane *l, int32_t frame)
{
        l->hit[frame / 8] |= (unsigned char)(1u << (frame % 8));
}

static int32_t age_of(const lane *l, int32_t frame)
{
        if (l->tags[frame] < 0)
                return DCI_GPU_AGES;
        const uint32_t age = *l->args->now - l->stamps[frame];
        return age < DCI_GPU_AGES - 1 ? (int32_t)age : DCI_GPU_AGES - 1;
}

static int32_t find(const lane *l, int32_t unit)
{
        for (int32_t f = 0; f < l->args->n_frames; f++)
                if (l->tags[f] == unit)
                        return f;
        return -1;
}

/* The least recently used frame, -1 if none is left. Visits ages downwards; frames taken are marked as hits, the others
 * keep their age. */
static int32_t next_victim(lane *l)
{
        while (l->age >= 0) {
                for (; l->frame < l->args->n_frames; l->frame++)
                        if (!is_hit(l, l->frame) && age_of(l, l->frame) == l->age)
                                return l->frame++;
                int32_t next = -1;
                for (int32_t f = 0; f < l->args->n_frames; f++)
                        if (!is_hit(l, f) && age_of(l, f) < l->age && age_of(l, f) > next)
                                next = age_of(l, f);
                l->age = next;
                l->frame = 0;
        }
        return -1;
}

/* Entries [at, the result) of the list are of one unit: they get its slots, or are read in the pool if frame is -1. */
static int32_t place_unit(lane *l, int32_t at, int32_t frame)
{
        const int32_t shift = l->args->unit_shift, unit = l->positions[at] >> shift;
        for (; at < l->count && l->positions[at] >> shift == unit; at++)
                l->slots[at] = frame < 0 ? ~l->positions[at]
                                         : l->args->first_slot + (frame << shift) +
                                                   (l->positions[at] & (int32_t)((1u << shift) - 1));
        return at;
}

static void resolve(lane *l, int32_t *n_items, uint64_t *counters)
{
        const dci_gpu_resolve_args *args = l->args;
        *n_items = 0;
        for (int32_t at = 0; at < l->count;) {
                const int32_t frame = find(l, l->positions[at] >> args->unit_shift);
                if (frame >= 0) {
                        l->stamps[frame] = *args->now;
                        set_hit(l, frame);
                }
                counters[0]++;
                at = place_unit(l, at, frame);
        }
        for (int32_t at = 0; at < l->count;) {
                const int32_t begin = at, unit = l->positions[at] >> args->unit_shift;
                if (l->slots[at] >= 0) {
                        at = place_unit(l, at, (l->slots[at] - args->first_slot) >> args->unit_shift);
                        continue;
                }
                const int32_t frame = next_victim(l);
                at = place_unit(l, at, frame);
                if (frame < 0) {
                        counters[2] += (uint64_t)(at - begin);
                        continue;
                }
                l->tags[frame] = unit;
                l->stamps[frame] = *args->now;
                set_hit(l, frame);
                l->items[(*n_items)++] =
                        (dci_gpu_item){unit << args->unit_shift, args->first_slot + (frame << args->unit_shift)};
                counters[1]++;
        }
}

void dci_gpu_ref_resolve(const dci_gpu_resolve_args *args)
{
        for (int32_t i = 0; i < args->n_sequences; i++) {
                for (int32_t h = 0; h < args->n_heads; h++) {
                        const uint64_t list = (uint64_t)i * (uint64_t)args->n_heads + (uint64_t)h;
                        const uint64_t held = (uint64_t)args->rows[i] * (uint64_t)args->n_heads + (uint64_t)h;
                        const uint64_t first = list * (uint64_t)args->stride, frames = held * (uint64_t)args->n_frames;
                        lane l = {.args = args,
                                  .positions = args->positions + first,
                                  .count = args->counts[list],
                                  .tags = args->tags + frames,
                                  .slots = args->out_slots + first,
                                  .stamps = args->stamps + frames,
                                  .items = args->items + first,
                                  .age = DCI_GPU_AGES};
                        resolve(&l, &args->n_items[list], args->counters + held * 3);
                        args->out_counts[list] = args->counts[list];
                }
                args->out_header[i] = args->sink_end[i];
                args->out_header[args->n_sequences + i] = args->recent_begin[i];
                args->out_header[2 * args->n_sequences + i] = args->n_tokens[i];
        }
}
