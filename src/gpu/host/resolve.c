/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Reference of cuda/resolve.cu: finds tokens of a list in the hot buffer; evicts frames (LRU) for missing ones. */
#include "gpu/gpu_internal.h"

#include <stdlib.h>
#include <string.h>

#include "gpu/host/reference.h"

/* A lane's frames and one of its lists, the others' turns being before or after. Of a contiguous copy, `rows` begin as
 * the list's rows, ascending, and the numbers of their entries; they are in the room of items, and an item is written
 * after all rows before it were read. */
typedef struct lane {
        const dci_gpu_resolve_args *args;
        const int32_t *positions;
        int32_t count;
        int32_t *tags, *slots;
        uint32_t *stamps;
        dci_gpu_item *rows, *items;
        int32_t n_items;                           /* of all lists so far */
        unsigned char hit[DCI_GPU_MAX_FRAMES / 8]; /* frames that lists need: bits */
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

/* What the units are of: positions, or rows of a copy. */
static int32_t row_at(const lane *l, int32_t at)
{
        return l->args->n_places != NULL ? l->rows[at].position : l->positions[at];
}

static int32_t entry_at(const lane *l, int32_t at)
{
        return l->args->n_places != NULL ? l->rows[at].slot : at;
}

/* Entries [at, the result) of the list are of one unit: they get its slots, or are read in the pool if frame is -1. */
static int32_t place_unit(lane *l, int32_t at, int32_t frame)
{
        const int32_t shift = l->args->unit_shift, unit = row_at(l, at) >> shift;
        for (; at < l->count && row_at(l, at) >> shift == unit; at++)
                l->slots[entry_at(l, at)] = frame < 0 ? ~l->positions[entry_at(l, at)]
                                                      : l->args->first_slot + (frame << shift) +
                                                                (row_at(l, at) & (int32_t)((1u << shift) - 1));
        return at;
}

static int by_row(const void *a, const void *b)
{
        const int32_t x = ((const dci_gpu_item *)a)->position, y = ((const dci_gpu_item *)b)->position;
        return (x > y) - (x < y);
}

/* Finds the rows of the copy; entries that have none are read in the pool. */
static void find_rows(lane *l, int32_t row, int32_t head, int32_t n_places, uint64_t *counters)
{
        const dci_gpu_resolve_args *args = l->args;
        int32_t n = 0;
        for (int32_t e = 0; e < l->count; e++) {
                const int32_t candidate = l->positions[e] - args->sink;
                int32_t place = -1;
                if (candidate >= 0 && candidate < n_places)
                        memcpy(&place,
                               dci_gpu_chunk_of(&args->places, (uint64_t)row, (uint64_t)head,
                                                (uint64_t)candidate / DCI_GPU_CHUNK) +
                                       (uint64_t)candidate % DCI_GPU_CHUNK * sizeof place,
                               sizeof place);
                if (place >= 0)
                        l->rows[n++] = (dci_gpu_item){place, e};
                else
                        l->slots[e] = ~l->positions[e];
        }
        counters[2] += (uint64_t)(l->count - n);
        l->count = n;
        qsort(l->rows, (size_t)n, sizeof *l->rows, by_row);
}

static void resolve(lane *l, uint64_t *counters)
{
        const dci_gpu_resolve_args *args = l->args;
        l->age = DCI_GPU_AGES;
        l->frame = 0;
        for (int32_t at = 0; at < l->count;) {
                const int32_t frame = find(l, row_at(l, at) >> args->unit_shift);
                if (frame >= 0) {
                        l->stamps[frame] = *args->now;
                        set_hit(l, frame);
                }
                counters[0]++;
                at = place_unit(l, at, frame);
        }
        for (int32_t at = 0; at < l->count;) {
                const int32_t begin = at, unit = row_at(l, at) >> args->unit_shift, slot = l->slots[entry_at(l, at)];
                if (slot >= 0) {
                        at = place_unit(l, at, (slot - args->first_slot) >> args->unit_shift);
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
                l->items[l->n_items++] =
                        (dci_gpu_item){unit << args->unit_shift, args->first_slot + (frame << args->unit_shift)};
                counters[1]++;
        }
}

static void resolve_lane(const dci_gpu_resolve_args *args, int32_t i, int32_t head)
{
        const uint64_t share = (uint64_t)DCI_GPU_HEAD_LISTS(args),
                       of_call = (uint64_t)i * (uint64_t)args->n_heads + (uint64_t)head,
                       held = (uint64_t)args->rows[i] * (uint64_t)args->n_heads + (uint64_t)head,
                       frames = held * (uint64_t)args->n_frames;
        uint64_t *counters = args->counters + held * 3;
        lane l = {.args = args,
                  .tags = args->tags + frames,
                  .stamps = args->stamps + frames,
                  .items = args->items + of_call * share * (uint64_t)args->stride};
        for (uint64_t list = of_call * share; list < (of_call + 1) * share; list++) {
                const uint64_t first = list * (uint64_t)args->stride;
                l.positions = args->positions + first;
                l.count = args->counts[list];
                l.slots = args->out_slots + first;
                l.rows = args->items + first;
                if (args->n_places != NULL)
                        find_rows(&l, args->rows[i], head, args->n_places[i], counters);
                resolve(&l, counters);
                args->out_counts[list] = args->counts[list];
        }
        args->n_items[of_call] = l.n_items;
}

void dci_gpu_ref_resolve(const dci_gpu_resolve_args *args)
{
        for (int32_t i = 0; i < args->n_sequences; i++) {
                for (int32_t h = 0; h < args->n_heads; h++)
                        resolve_lane(args, i, h);
                args->out_header[i] = args->sink_end[i];
                args->out_header[args->n_sequences + i] = args->recent_begin[i];
                args->out_header[2 * args->n_sequences + i] = args->n_tokens[i];
        }
}

void dci_gpu_ref_forget(const dci_gpu_forget_args *args)
{
        for (int32_t i = 0; i < args->n; i++) {
                int32_t *tags = args->tags + (uint64_t)args->changes[2 * i] * (uint64_t)args->n_frames;
                for (int32_t f = 0; f < args->n_frames; f++)
                        if (tags[f] >= 0 && tags[f] >> args->shift == args->changes[2 * i + 1])
                                tags[f] = -1;
        }
}
