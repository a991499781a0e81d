/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The one function of BLAS that the library calls, for C libraries that OpenBLAS is not built for (scripts/ladder, musl): slow, and with other
 * roundings than OpenBLAS's. Results must not show the difference, since products only propose. */
#include <cblas.h>
#include <stddef.h>
#include <stdlib.h>

void cblas_sgemm(const enum CBLAS_ORDER order, const enum CBLAS_TRANSPOSE a_turned, const enum CBLAS_TRANSPOSE b_turned,
                 const blasint m, const blasint n, const blasint k, const float alpha, const float *a,
                 const blasint lda, const float *b, const blasint ldb, const float beta, float *c, const blasint ldc)
{
        if (order != CblasRowMajor || a_turned != CblasNoTrans || b_turned != CblasTrans)
                abort(); /* the library asks for nothing else */
        for (ptrdiff_t i = 0; i < m; i++) {
                for (ptrdiff_t j = 0; j < n; j++) {
                        float sum = 0.0f;
                        for (ptrdiff_t p = 0; p < k; p++)
                                sum += a[i * lda + p] * b[j * ldb + p];
                        float *at = &c[i * ldc + j];
                        *at = alpha * sum + (beta != 0.0f ? beta * *at : 0.0f); /* with beta 0, c may hold anything */
                }
        }
}
