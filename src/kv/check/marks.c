/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Marks, a bit each. */
#include "core/internal.h"

#include <string.h>

#include "kv/check/check.h"

dci_status dci_kv_marks_clear(dci_kv_marks *marks, size_t n)
{
        const size_t n_words = n / 64 + 1;
        if (marks->bits == NULL || n_words > marks->n_words) {
                dci_kv_marks_free(marks);
                marks->bits = dci_alloc(marks->context, n_words, sizeof *marks->bits);
                if (marks->bits == NULL)
                        return DCI_ERR_MEMORY;
                marks->n_words = n_words;
        }
        memset(marks->bits, 0, n_words * sizeof *marks->bits);
        return DCI_OK;
}

void dci_kv_marks_free(dci_kv_marks *marks)
{
        dci_free(marks->context, marks->bits, marks->n_words, sizeof *marks->bits);
        marks->bits = NULL;
        marks->n_words = 0;
}
