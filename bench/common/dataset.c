/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/common/dataset.h"

#include <errno.h>
#include <string.h>

#include "core/file.h"

dci_status bench_open(const char *path, FILE **out_file, uint64_t *out_bytes)
{
        dci_source source;
        dci_status status = dci_source_open(path, &source);
        if (status != DCI_OK)
                return status;
        *out_bytes = source.n_bytes;
        *out_file = fdopen(source.descriptor, "rb");
        if (*out_file != NULL)
                return DCI_OK;
        dci_source_close(&source);
        return dci_fail(DCI_ERR_MEMORY, "%s: no memory to read it", path);
}

dci_status bench_read_exactly(FILE *file, const char *path, void *out, size_t n_bytes)
{
        size_t got = fread(out, 1, n_bytes, file);
        if (got == n_bytes)
                return DCI_OK;
        if (ferror(file))
                return dci_fail(DCI_ERR_IO, "%s: %s", path, strerror(errno));
        return dci_fail(DCI_ERR_FORMAT, "%s: the file ends %zu bytes early", path, n_bytes - got);
}

bool bench_has_suffix(const char *path, const char *suffix)
{
        size_t n = strlen(path), m = strlen(suffix);
        return n > m && strcmp(path + n - m, suffix) == 0;
}

static bool is_npy(const unsigned char *head, size_t n_head)
{
        return n_head >= 6 && memcmp(head, "\x93NUMPY", 6) == 0;
}

static bool is_gzip(const unsigned char *head, size_t n_head)
{
        return n_head >= 2 && head[0] == 0x1f && head[1] == 0x8b;
}

/* The first bytes, as many as there are up to 8. */
static dci_status read_head(const char *path, unsigned char head[8], size_t *out_n)
{
        FILE *file;
        uint64_t bytes;
        dci_status status = bench_open(path, &file, &bytes);
        if (status != DCI_OK)
                return status;
        *out_n = fread(head, 1, 8, file);
        fclose(file);
        return DCI_OK;
}

#define FORMATS ".npy, .fvecs, .bvecs, .fbin, .u8bin, .i8bin or IDX images"

dci_status bench_read_rows(dci_context *context, const char *path, size_t limit, bench_rows *out)
{
        return bench_read_rows_as(context, path, bench_has_suffix(path, ".bf16.npy"), limit, out);
}

dci_status bench_read_rows_as(dci_context *context, const char *path, bool bfloat16, size_t limit, bench_rows *out)
{
        unsigned char head[8];
        size_t n_head;
        bool known;
        memset(out, 0, sizeof *out);
        dci_status status = read_head(path, head, &n_head);
        if (status != DCI_OK)
                return status;
        if (is_npy(head, n_head) || bench_has_suffix(path, ".npy")) {
                dci_npy npy = {0};
                status = dci_npy_read(context, path, &npy);
                return status == DCI_OK ? bench_rows_from_npy(path, bfloat16, &npy, limit, out) : status;
        }
        if (bench_is_hdf5(head, n_head))
                return dci_fail(DCI_ERR_FORMAT, "%s: an HDF5 file holds base and queries; give it to --data", path);
        status = bench_read_vecs(context, path, limit, &known, out);
        if (known || status != DCI_OK)
                return status;
        if (is_gzip(head, n_head) || bench_is_idx(head, n_head))
                return bench_read_idx(context, path, limit, out);
        return dci_fail(DCI_ERR_FORMAT, "%s: format not recognised; rows come as " FORMATS, path);
}

dci_status bench_read_ids(dci_context *context, const char *path, size_t limit, bench_ids *out)
{
        unsigned char head[8];
        size_t n_head;
        bool known;
        memset(out, 0, sizeof *out);
        dci_status status = read_head(path, head, &n_head);
        if (status != DCI_OK)
                return status;
        if (is_npy(head, n_head) || bench_has_suffix(path, ".npy")) {
                dci_npy npy = {0};
                status = dci_npy_read(context, path, &npy);
                return status == DCI_OK ? bench_ids_from_npy(path, &npy, limit, out) : status;
        }
        status = bench_read_vecs_ids(context, path, limit, &known, out);
        if (known || status != DCI_OK)
                return status;
        return dci_fail(DCI_ERR_FORMAT,
                        "%s: format not recognised; ids come as .ivecs, .ibin or .npy of int32 or int64", path);
}

static dci_status read_pair(dci_context *context, const bench_source *source, bench_dataset *out)
{
        bench_name(out->name, sizeof out->name, bench_base_name(source->base));
        DCI_TRY(bench_read_rows(context, source->base, source->limit_base, &out->base));
        DCI_TRY(bench_read_rows(context, source->query, source->limit_queries, &out->queries));
        if (out->queries.dim != out->base.dim)
                return dci_fail(DCI_ERR_FORMAT, "%s: rows of %zu elements, but those of %s have %zu", source->query,
                                out->queries.dim, source->base, out->base.dim);
        return DCI_OK;
}

static dci_status read_truth(dci_context *context, const bench_source *source, bench_dataset *out)
{
        bench_ids_free(&out->truth);
        snprintf(out->truth_file, sizeof out->truth_file, "%s", source->truth);
        DCI_TRY(bench_read_ids(context, source->truth, source->limit_queries, &out->truth));
        if (out->truth.n != out->queries.n)
                return dci_fail(DCI_ERR_FORMAT, "%s: neighbours of %zu queries, but there are %zu", source->truth,
                                out->truth.n, out->queries.n);
        return DCI_OK;
}

dci_status bench_dataset_read(dci_context *context, const bench_source *source, bench_dataset *out)
{
        dci_status status;
        memset(out, 0, sizeof *out);
        if (source->trace != NULL)
                status = bench_read_trace(context, source->trace, source->limit_base, source->limit_queries, out);
        else if (source->data != NULL)
                status = bench_read_hdf5(context, source->data, source->limit_base, source->limit_queries, out);
        else
                status = read_pair(context, source, out);
        if (status == DCI_OK && source->truth != NULL)
                status = read_truth(context, source, out);
        if (status != DCI_OK)
                bench_dataset_free(out);
        return status;
}

void bench_dataset_free(bench_dataset *dataset)
{
        bench_rows_free(&dataset->base);
        bench_rows_free(&dataset->queries);
        bench_rows_free(&dataset->trace.keys);
        bench_rows_free(&dataset->trace.observed);
        bench_ids_free(&dataset->truth);
        memset(dataset, 0, sizeof *dataset);
}
