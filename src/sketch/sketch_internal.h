/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What the files of dci_sketch share. */
#ifndef DCI_SKETCH_INTERNAL_H
#define DCI_SKETCH_INTERNAL_H

#include "core/internal.h"

#include "dci/sketch.h"
#include "sketch/frames.h"

struct dci_sketch {
        dci_context *context;
        size_t dim;
        dci_dtype dtype, query_dtype;
        dci_frames frames;
        size_t n, capacity; /* rows; capacity: a multiple of DCI_CODE_ROWS */
        void *memory;       /* of the codes */
        dci_code_block area;
};

#define DCI_SKETCH_MAX_NORM2 (0x1.fffffep127f / 8)

/* n rows of a matrix as floats: converted into `out`, or in place. */
const float *dci_sketch_floats(const dci_sketch *sketch, dci_dtype dtype, const void *rows, size_t ld, size_t first,
                               size_t n, float *out, size_t *out_ld);
/* Refuses NULL, a small ld, a product that overflows, and bad numbers. what: "row" or "query". */
dci_status dci_sketch_check_rows(const dci_sketch *sketch, dci_dtype dtype, const void *rows, size_t n, size_t ld,
                                 const char *what);

#endif
