/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* OpenBLAS without its threads. The process may share one OpenBLAS with NumPy, so its global thread setting is not ours
 * to touch; but a product of at most 2^18 multiply-adds always runs on the calling thread (its interface compares m n k
 * with SMP_THRESHOLD_MIN * GEMM_MULTITHREAD_THRESHOLD, 65536 * 4 as shipped). So calls stay within 64 x 64 x 64. */
#include "core/internal.h"

#include <cblas.h>

#define TILE 64

static size_t min_size(size_t a, size_t b)
{
        return a < b ? a : b;
}

void dci_gemm_nt(size_t m, size_t n, size_t k, const float *a, size_t lda, const float *b, size_t ldb, float *c,
                 size_t ldc)
{
        for (size_t i = 0; i < m; i += TILE) {
                for (size_t j = 0; j < n; j += TILE) {
                        for (size_t p = 0; p < k; p += TILE) {
                                cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)min_size(TILE, m - i),
                                            (int)min_size(TILE, n - j), (int)min_size(TILE, k - p), 1.0f,
                                            a + i * lda + p, (int)lda, b + j * ldb + p, (int)ldb, p == 0 ? 0.0f : 1.0f,
                                            c + i * ldc + j, (int)ldc);
                        }
                }
        }
}
