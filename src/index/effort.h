/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * From a recall to an effort. A calibration is a table of what each recall takes for lists of some lengths, measured on an index
 * (calibrate.h), kept with it and saved with it; between its entries it is interpolated.
 */
#ifndef DCI_INDEX_EFFORT_H
#define DCI_INDEX_EFFORT_H

#include "core/internal.h"

#include "dci/index.h"

/* Fewer rows than this are not worth an approximation. */
#define DCI_CALIBRATED_ROWS_LEAST ((size_t)1024)

/* Lengths of lists (k) and recalls of the table; those of files. */
enum { DCI_EFFORT_LENGTHS = 7, DCI_EFFORT_RECALLS = 14 };
extern const double dci_effort_lengths[DCI_EFFORT_LENGTHS];
extern const double dci_effort_recalls[DCI_EFFORT_RECALLS];

typedef struct dci_calibration {
        int32_t on;                /* DCI_CALIBRATED_* */
        int32_t kind, sketch_bits; /* in use then: kind AUTO may have changed them since */
        size_t n_lengths;          /* that were measured, the first ones */
        size_t n_rows;             /* that there were */
        /* By length and recall: (0, 1], MDCI the share of nodes that are opened, PDCI that of rows that are retrieved. */
        float share[DCI_EFFORT_LENGTHS][DCI_EFFORT_RECALLS];
        /* 1 or more: rows scored for each one wanted; infinite: codes are not used. */
        float rerank[DCI_EFFORT_LENGTHS][DCI_EFFORT_RECALLS];
} dci_calibration;

/* What a recall takes, for lists of k out of n rows that count; k 0: for long lists. Both fields are at their most where nothing
 * less will do. */
typedef struct dci_effort {
        double share, rerank;
} dci_effort;
dci_effort dci_effort_of(const dci_calibration *calibration, double recall, size_t k, size_t n);

/* Was it measured with the kind and the codes that are in use? */
DCI_INLINE bool dci_calibration_holds(const dci_calibration *calibration, const dci_index_config *config)
{
        return calibration->on != DCI_CALIBRATED_NONE && calibration->kind == config->kind &&
               calibration->sketch_bits == config->sketch_bits;
}

/* A calibration may come from a file: says what cannot be. */
dci_status dci_calibration_check(const dci_calibration *calibration);

#endif
