/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Several arrays in one block of memory. The parts of a block are written down once, as a list, in a function that both
 * measures and places, so that sizes and places cannot disagree:
 *
 *      static size_t lay_out(size_t n, struct scratch *s, void *memory)
 *      {
 *              const dci_arena_part parts[] = {{n * sizeof *s->keys, &s->keys}, {n * sizeof *s->order, &s->order}};
 *              return DCI_ARENA(parts, memory);
 *      }
 *
 * Called without memory it measures, and changes no pointer: that is done where capacities change. Called with memory
 * it sets pointers. Each part begins at a whole cache line if the memory does. The block belongs to the caller. */
#ifndef DCI_CORE_ARENA_H
#define DCI_CORE_ARENA_H

#include <string.h>

#include "core/internal.h"

typedef struct dci_arena_part {
        size_t n_bytes; /* 0: the part is left out, and its pointer becomes NULL */
        void *pointer;  /* address of the pointer to the part, of whatever type; NULL: the part is only counted */
} dci_arena_part;

/* Bytes of all parts; sets their pointers unless memory is NULL. */
DCI_INLINE size_t dci_arena(const dci_arena_part *parts, size_t n_parts, void *memory)
{
        size_t n_bytes = 0;
        for (size_t i = 0; i < n_parts; i++) {
                void *part = memory == NULL || parts[i].n_bytes == 0 ? NULL : (unsigned char *)memory + n_bytes;
                if (memory != NULL && parts[i].pointer != NULL)
                        memcpy(parts[i].pointer, &part, sizeof part);
                n_bytes += dci_lines(parts[i].n_bytes);
        }
        return n_bytes;
}

/* The same for an array of parts. */
#define DCI_ARENA(parts, memory) dci_arena(parts, sizeof(parts) / sizeof *(parts), memory)

#endif
