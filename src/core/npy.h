/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Reads and writes .npy files (format versions 1.0 to 3.0), C order, up to four dimensions. */
#ifndef DCI_CORE_NPY_H
#define DCI_CORE_NPY_H

#include "core/internal.h"

#define DCI_NPY_MAX_DIMS 4

/* NumPy's numbers: float32 is 'f4' in a file, and so on. It has no bfloat16, whose bits some store as uint16. */
typedef int32_t dci_npy_type;
enum {
        DCI_NPY_F32 = 1,
        DCI_NPY_F16,
        DCI_NPY_F64,
        DCI_NPY_I8,
        DCI_NPY_I16,
        DCI_NPY_I32,
        DCI_NPY_I64,
        DCI_NPY_U8,
        DCI_NPY_U16,
        DCI_NPY_U32,
        DCI_NPY_U64,
        DCI_NPY_BOOL
};

typedef struct dci_npy {
        dci_npy_type type;
        size_t n_dims;
        size_t shape[DCI_NPY_MAX_DIMS];
        size_t n_bytes;
        void *data; /* from the context's allocator, aligned to a cache line */
        dci_context *context;
} dci_npy;

/* Bytes of one element; 0 for an unknown type. */
size_t dci_npy_type_size(dci_npy_type type);
/* "float32", ..; "unknown" for an unknown type. */
const char *dci_npy_type_name(dci_npy_type type);

/* Reads a whole file; elements of big endian become little endian. The header's lengths are checked against the file's size
 * before anything is allocated; Fortran order, other types and trailing bytes are refused with a sentence that names
 * the file. On failure *out_npy is empty. */
dci_status dci_npy_read(dci_context *context, const char *path, dci_npy *out_npy);

/* Writes a temporary file next to the target and renames it (dci_replace_begin in file.h), so that a reader finds the
 * old file or the whole new one. */
dci_status dci_npy_write(const char *path, dci_npy_type type, size_t n_dims, const size_t *shape, const void *data);

/* Empties `npy`; an empty one is allowed. */
void dci_npy_free(dci_npy *npy);

#endif
