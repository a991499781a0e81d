/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Fields of configs as tables: one row per field, with its default and its bounds. A refusal names the field, its value
 * and what is allowed. Rules between fields are the config's own code. */
#ifndef DCI_CORE_FIELDS_H
#define DCI_CORE_FIELDS_H

#include "core/internal.h"

#include <float.h>
#include <math.h>

enum { DCI_FIELD_SIZE = 1, DCI_FIELD_INT, DCI_FIELD_DOUBLE };

typedef struct dci_field {
        const char *name;
        size_t offset;
        int32_t type;       /* DCI_FIELD_* */
        double initial;     /* the default; -1 in a size is SIZE_MAX */
        double least, most; /* bounds; most is at most 2^53, or DBL_MAX or INFINITY, which are no bounds of sizes */
        const char *means;  /* not NULL: the value `special` is allowed too, and means this */
        double special;
        const char *const *names; /* of the values from least to most; NULL: they are numbers */
        const int32_t *only;      /* NULL, or the allowed values, ended by a 0 */
        size_t preset;            /* where the row of a preset has the value that replaces the default; 0: nowhere */
        dci_status beyond;        /* status of a value above most; 0: DCI_ERR_INVALID */
        bool open;                /* least itself is refused */
} dci_field;

/* DCI_FIELD(config type, field, default, least, most, further members by name): the row has the field's type. */
#define DCI_FIELD(config, field, ...)                                                                                  \
        {                                                                                                              \
                .name = #field, .offset = offsetof(config, field),                                                     \
                .type = _Generic(((config *)0)->field, size_t                                                          \
                                 : DCI_FIELD_SIZE, int32_t                                                             \
                                 : DCI_FIELD_INT, double                                                               \
                                 : DCI_FIELD_DOUBLE),                                                                  \
                __VA_ARGS__                                                                                            \
        }
/* A table as the two arguments that functions take. */
#define DCI_FIELDS(table) table, sizeof(table) / sizeof *(table)

extern const char *const dci_dtype_names[5];
extern const char *const dci_metric_names[3];
extern const int32_t dci_bit_counts[]; /* 1, 2, 3, 4 and 8 */

/* Writes the defaults into a struct that dci_struct_init prepared. */
void dci_fields_init(const dci_field *fields, size_t n, void *config);
/* Replaces fields that have their default by the values of a preset's row. */
void dci_fields_fill(const dci_field *fields, size_t n, const void *preset, void *config);
/* Checks fields in the order of the table. */
dci_status dci_fields_check(const dci_field *fields, size_t n, const void *config);

#endif
