/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Learned transforms: from what rows and queries are like to a coder. */
#ifndef DCI_SKETCH_FIT_H
#define DCI_SKETCH_FIT_H

#include "core/internal.h"

#include "sketch/coder.h"

/* Sums and sums of products of rows about the first of them, in double precision. */
typedef struct dci_moments {
        const dci_kernels *kernels;
        size_t dim, n;
        double *sum, *products; /* dim; dim x dim, on and below the diagonal */
        float *shift, *tile, *part;
} dci_moments;

#define DCI_MOMENT_ROWS ((size_t)256) /* of one addition at most */

size_t dci_moments_bytes(size_t dim);
/* Of the memory's beginning: what, with n, is enough to go on with. */
size_t dci_moments_kept_bytes(size_t dim);
void dci_moments_init(const dci_kernels *kernels, size_t dim, void *memory, dci_moments *out);
/* n <= DCI_MOMENT_ROWS rows, ld apart. */
void dci_moments_add(dci_moments *moments, const float *rows, size_t ld, size_t n);
/* Fills in products above the diagonal: what is kept is the whole matrix. */
void dci_moments_finish(dci_moments *moments);

/* Rows of a sample that give a covariance well enough. */
#define DCI_FIT_ROWS ((size_t)8192)

size_t dci_fit_scratch_bytes(size_t dim);
/* Fills in a coder that was prepared with dci_coder_init_learned. Both moments hold rows. DCI_ERR_NUMBER when the
 * numbers are too large or too small for a fit. */
dci_status dci_fit(const dci_moments *rows, const dci_moments *queries, void *scratch, dci_coder *coder);

/* eigen.c: the eigenvalues of a symmetric matrix (n x n, overwritten), descending, and its eigenvectors as rows. work:
 * 2 n. False if it does not converge, which takes numbers that are not finite. */
bool dci_eigen(const dci_kernels *kernels, size_t n, double *matrix, double *values, double *vectors, double *work);

/* layout.c: gives `words` 32-bit words per row to groups of four coordinates; energy[g] is what a group without codes
 * costs. Fills in the layout; order[i] is the group at place i of it; returns how many groups have codes. */
size_t dci_plan_layout(size_t n_groups, const double *energy, size_t words, int max_bits, dci_code_layout *layout,
                       uint32_t *order);

#endif
