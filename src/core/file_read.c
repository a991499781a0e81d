/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Containers from a path, read or mapped, and from a feed of bytes. */
#include "core/internal.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>
#if defined(_POSIX_MAPPED_FILES) && _POSIX_MAPPED_FILES > 0
#include <sys/mman.h>
#define CAN_MAP 1
#else
#define CAN_MAP 0
#endif

#include "core/file.h"

#define FIRST_BYTES ((size_t)64 << 10)

/* The bytes now belong to the file. */
static void own(dci_file *file, dci_context *context, void *bytes, size_t n_bytes, bool mapped)
{
        dci_context_retain(context);
        file->context = context;
        file->owned = bytes;
        file->n_owned = n_bytes;
        file->mapped = mapped;
}

void dci_file_free(dci_file *file)
{
        if (file == NULL)
                return;
        if (file->owned != NULL) {
                if (file->mapped)
                        dci_file_unmap(file->owned, file->n_owned);
                else
                        dci_free(file->context, file->owned, file->n_owned, 1);
                dci_context_destroy(file->context);
        }
        memset(file, 0, sizeof *file);
}

static dci_status load(dci_context *context, dci_source *source, const unsigned char header[], uint32_t kind,
                       dci_file *out_file)
{
        unsigned char *bytes = dci_alloc(context, source->n_bytes, 1);
        if (bytes == NULL)
                return DCI_ERR_MEMORY;
        memcpy(bytes, header, DCI_FILE_HEADER_BYTES);
        dci_status status =
                dci_source_read(source, bytes + DCI_FILE_HEADER_BYTES, source->n_bytes - DCI_FILE_HEADER_BYTES);
        const dci_file_input in = {source->name, bytes, source->n_bytes};
        if (status == DCI_OK)
                status = dci_file_check(&in, kind, out_file);
        if (status == DCI_OK)
                own(out_file, context, bytes, source->n_bytes, false);
        else
                dci_free(context, bytes, source->n_bytes, 1);
        return status;
}

#if CAN_MAP
static dci_status map(dci_context *context, dci_source *source, const unsigned char header[], uint32_t kind,
                      dci_file *out_file)
{
        (void)header;
        void *bytes = mmap(NULL, source->n_bytes, PROT_READ, MAP_PRIVATE, source->descriptor, 0);
        if (bytes == MAP_FAILED) {
                const int error = errno;
                return dci_fail_errno(dci_fail(error == ENOMEM ? DCI_ERR_MEMORY : DCI_ERR_IO,
                                               "cannot map %s: the system refused %zu bytes", source->name,
                                               source->n_bytes),
                                      error);
        }
        const dci_file_input in = {source->name, bytes, source->n_bytes};
        dci_status status = dci_file_check(&in, kind, out_file);
        if (status == DCI_OK)
                own(out_file, context, bytes, source->n_bytes, true);
        else
                dci_file_unmap(bytes, source->n_bytes);
        return status;
}

void dci_file_unmap(void *mapped, size_t n_bytes)
{
        munmap(mapped, n_bytes);
}
#else
static dci_status map(dci_context *context, dci_source *source, const unsigned char header[], uint32_t kind,
                      dci_file *out_file)
{
        (void)context, (void)header, (void)kind, (void)out_file;
        return dci_fail(DCI_ERR_UNSUPPORTED, "cannot map %s: this system has no mapped files", source->name);
}

void dci_file_unmap(void *mapped, size_t n_bytes)
{
        (void)mapped, (void)n_bytes;
}
#endif

typedef dci_status (*take_fn)(dci_context *context, dci_source *source, const unsigned char header[], uint32_t kind,
                              dci_file *out_file);

/* A foreign file, however large, is refused by its header, before it costs memory. */
static dci_status open_and_take(dci_context *context, const char *path, uint32_t kind, take_fn take, dci_file *out_file)
{
        if (out_file == NULL)
                return dci_fail(DCI_ERR_INVALID, "out_file is NULL");
        memset(out_file, 0, sizeof *out_file);
        if (context == NULL)
                return dci_fail(DCI_ERR_INVALID, "context is NULL");
        dci_source source;
        DCI_TRY(dci_source_open(path, &source));
        unsigned char header[DCI_FILE_HEADER_BYTES];
        const dci_file_input in = {source.name, header, source.n_bytes};
        dci_status status =
                dci_source_read(&source, header, source.n_bytes < sizeof header ? source.n_bytes : sizeof header);
        if (status == DCI_OK)
                status = dci_file_check_header(&in, kind);
        if (status == DCI_OK)
                status = take(context, &source, header, kind, out_file);
        dci_source_close(&source);
        return status;
}

dci_status dci_file_load(dci_context *context, const char *path, uint32_t kind, dci_file *out_file)
{
        return open_and_take(context, path, kind, load, out_file);
}

dci_status dci_file_map(dci_context *context, const char *path, uint32_t kind, dci_file *out_file)
{
        return open_and_take(context, path, kind, map, out_file);
}

void *dci_file_release(dci_file *file, size_t *out_bytes)
{
        void *mapped = file->owned;
        *out_bytes = file->n_owned;
        file->owned = NULL;
        dci_context_destroy(file->context);
        dci_file_free(file);
        return mapped;
}

/* Bytes that have arrived, in memory that doubles up to what the header says. */
typedef struct arrival {
        dci_context *context;
        unsigned char *bytes;
        size_t n, capacity, total;
} arrival;

static dci_status grow(arrival *a)
{
        size_t capacity = a->capacity < a->total / 2 ? 2 * a->capacity : a->total;
        unsigned char *bytes = dci_alloc(a->context, capacity, 1);
        if (bytes == NULL)
                return DCI_ERR_MEMORY;
        memcpy(bytes, a->bytes, a->n);
        dci_free(a->context, a->bytes, a->capacity, 1);
        a->bytes = bytes;
        a->capacity = capacity;
        return DCI_OK;
}

static dci_status fill(arrival *a, const dci_feed *feed)
{
        while (a->n < a->total) {
                if (a->n == a->capacity)
                        DCI_TRY(grow(a));
                const size_t wanted = a->capacity - a->n;
                DCI_TRY(feed->read(feed->ctx, a->bytes + a->n, wanted));
                a->n += wanted;
        }
        return DCI_OK;
}

dci_status dci_file_receive(dci_context *context, const dci_feed *feed, uint32_t kind, dci_file *out_file)
{
        memset(out_file, 0, sizeof *out_file);
        unsigned char header[DCI_FILE_HEADER_BYTES];
        if (feed->n_bytes > 0 && feed->n_bytes < sizeof header)
                return dci_fail(DCI_ERR_FORMAT, "the stream has %zu bytes, a dci file begins with a header of %zu",
                                feed->n_bytes, sizeof header);
        DCI_TRY(feed->read(feed->ctx, header, sizeof header));
        uint64_t claimed = dci_load_le64(header + 32);
        size_t total = feed->n_bytes > 0 ? feed->n_bytes : sizeof header;
        if (feed->n_bytes == 0 && claimed >= sizeof header && claimed <= SIZE_MAX)
                total = (size_t)claimed;
        dci_file_input in = {"the stream", header, total};
        DCI_TRY(dci_file_check_header(&in, kind));
        arrival a = {.context = context, .n = sizeof header, .total = total};
        a.capacity = total < FIRST_BYTES ? total : FIRST_BYTES;
        a.bytes = dci_alloc(context, a.capacity, 1);
        if (a.bytes == NULL)
                return DCI_ERR_MEMORY;
        memcpy(a.bytes, header, sizeof header);
        dci_status status = fill(&a, feed);
        in.bytes = a.bytes;
        if (status == DCI_OK)
                status = dci_file_check(&in, kind, out_file);
        if (status == DCI_OK)
                own(out_file, context, a.bytes, a.capacity, false);
        else
                dci_free(context, a.bytes, a.capacity, 1);
        return status;
}

bool dci_floats_finite(const void *floats, size_t n)
{
        bool all = true;
        for (size_t i = 0; i < n; i++) {
                float x;
                memcpy(&x, (const unsigned char *)floats + i * sizeof x, sizeof x);
                all = all && isfinite(x);
        }
        return all;
}
