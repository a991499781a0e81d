/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The caller's bytes, kept with an index. */
#include "core/internal.h"

#include <string.h>

#include "index/access.h"

dci_status dci_index_set_metadata(dci_index *index, const void *data, size_t n_bytes)
{
        DCI_TRY(dci_index_check_call(index));
        if (n_bytes > 0 && data == NULL)
                return dci_fail(DCI_ERR_INVALID, "data is NULL, n_bytes is %zu", n_bytes);
        if (n_bytes > DCI_MAX_METADATA)
                return dci_fail(DCI_ERR_LIMIT, "the metadata is %zu bytes, at most %zu are kept", n_bytes,
                                DCI_MAX_METADATA);
        void *copy = n_bytes == 0 ? NULL : dci_alloc(index->context, n_bytes, 1);
        if (n_bytes > 0 && copy == NULL)
                return DCI_ERR_MEMORY;
        if (n_bytes > 0)
                memcpy(copy, data, n_bytes);
        pthread_mutex_lock(&index->writers); /* a save reads it in parts */
        pthread_mutex_lock(&index->defaults_lock);
        void *old = index->metadata;
        const size_t old_bytes = index->metadata_bytes;
        index->metadata = copy;
        index->metadata_bytes = n_bytes;
        pthread_mutex_unlock(&index->defaults_lock);
        pthread_mutex_unlock(&index->writers);
        dci_free(index->context, old, old_bytes, 1);
        return DCI_OK;
}

dci_status dci_index_get_metadata(const dci_index *index, size_t capacity, void *out, size_t *out_bytes)
{
        DCI_TRY(dci_index_check_call(index));
        if (out_bytes == NULL || (out == NULL && capacity > 0))
                return dci_fail(DCI_ERR_INVALID, "%s is NULL", out_bytes == NULL ? "out_bytes" : "out");
        pthread_mutex_t *lock = &((dci_index *)(uintptr_t)index)->defaults_lock;
        pthread_mutex_lock(lock);
        const size_t n_bytes = index->metadata_bytes;
        if (n_bytes > 0 && n_bytes <= capacity)
                memcpy(out, index->metadata, n_bytes);
        pthread_mutex_unlock(lock);
        *out_bytes = n_bytes;
        return DCI_OK;
}
