/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Two families of raw files, little endian:
 *   TEXMEX   .fvecs .bvecs .ivecs          each row: int32 dim, then dim elements
 *   big-ann  .fbin .u8bin .i8bin .ibin     uint32 rows, uint32 dim, then rows x dim elements; a file of true neighbours may
 *                                          append rows x dim float32 distances
 */
#include "bench/common/dataset.h"

#include <string.h>

enum { ELEMENT_F32, ELEMENT_U8, ELEMENT_I8, ELEMENT_I32 };

typedef struct vecs_layout {
        const char *suffix;
        bool header_per_row;
        int element;
        size_t element_bytes;
} vecs_layout;

static const vecs_layout layouts[] = {
        {".fvecs", true, ELEMENT_F32, 4}, {".bvecs", true, ELEMENT_U8, 1},  {".ivecs", true, ELEMENT_I32, 4},
        {".fbin", false, ELEMENT_F32, 4}, {".u8bin", false, ELEMENT_U8, 1}, {".i8bin", false, ELEMENT_I8, 1},
        {".ibin", false, ELEMENT_I32, 4},
};

typedef struct vecs {
        const vecs_layout *layout;
        const char *path;
        FILE *file;
        size_t n, dim;
        size_t row_bytes; /* of the elements */
        unsigned char *row;
        dci_context *context;
} vecs;

static const vecs_layout *layout_of(const char *path)
{
        for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
                if (bench_has_suffix(path, layouts[i].suffix))
                        return &layouts[i];
        return NULL;
}

static uint32_t u32_of(const unsigned char *p)
{
        return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* TEXMEX: the first row's dim and the file's size give the number of rows. */
static dci_status measure_rows(vecs *v, uint64_t bytes)
{
        unsigned char head[4];
        dci_status status = bench_read_exactly(v->file, v->path, head, sizeof head);
        if (status != DCI_OK)
                return status;
        v->dim = u32_of(head);
        if (v->dim == 0 || v->dim > DCI_MAX_DIM)
                return dci_fail(DCI_ERR_FORMAT, "%s: the first row says it has %zu elements; 1 to %zu are possible",
                                v->path, v->dim, DCI_MAX_DIM);
        size_t stride = 4 + v->dim * v->layout->element_bytes;
        if (bytes % stride != 0)
                return dci_fail(DCI_ERR_FORMAT, "%s: %llu bytes are not a whole number of rows of %zu bytes", v->path,
                                (unsigned long long)bytes, stride);
        v->n = (size_t)(bytes / stride);
        rewind(v->file);
        return DCI_OK;
}

/* big-ann: the header's product must be the file's size. */
static dci_status measure_file(vecs *v, uint64_t bytes)
{
        unsigned char head[8];
        dci_status status = bench_read_exactly(v->file, v->path, head, sizeof head);
        if (status != DCI_OK)
                return status;
        v->n = u32_of(head);
        v->dim = u32_of(head + 4);
        if (v->n == 0 || v->dim == 0 || v->dim > DCI_MAX_DIM)
                return dci_fail(DCI_ERR_FORMAT,
                                "%s: the header says %zu rows of %zu elements; at least 1 row of 1 to %zu is "
                                "needed",
                                v->path, v->n, v->dim, DCI_MAX_DIM);
        size_t count, want;
        bool fits = dci_mul(v->n, v->dim, &count) && dci_mul(count, v->layout->element_bytes, &want) &&
                    want <= bytes - sizeof head;
        bool distances = fits && v->layout->element == ELEMENT_I32 && bytes - sizeof head - want == want;
        if (!fits || (want != bytes - sizeof head && !distances))
                return dci_fail(DCI_ERR_FORMAT, "%s: %zu rows of %zu elements do not make %llu bytes", v->path, v->n,
                                v->dim, (unsigned long long)bytes);
        return DCI_OK;
}

static void vecs_close(vecs *v)
{
        dci_free(v->context, v->row, v->row_bytes, 1);
        if (v->file != NULL)
                fclose(v->file);
        memset(v, 0, sizeof *v);
}

static dci_status vecs_open(dci_context *context, const char *path, const vecs_layout *layout, size_t limit, vecs *v)
{
        uint64_t bytes;
        memset(v, 0, sizeof *v);
        v->context = context;
        v->path = path;
        v->layout = layout;
        dci_status status = bench_open(path, &v->file, &bytes);
        if (status != DCI_OK)
                return status;
        status = layout->header_per_row ? measure_rows(v, bytes) : measure_file(v, bytes);
        if (status == DCI_OK) {
                v->n = v->n < limit ? v->n : limit;
                v->row_bytes = v->dim * layout->element_bytes;
                v->row = dci_alloc(context, v->row_bytes, 1);
                if (v->row == NULL)
                        status = bench_fail_about(path, DCI_ERR_MEMORY);
        }
        if (status != DCI_OK)
                vecs_close(v);
        return status;
}

/* The next row's elements into v->row. */
static dci_status vecs_next(vecs *v, size_t i)
{
        if (v->layout->header_per_row) {
                unsigned char head[4];
                dci_status status = bench_read_exactly(v->file, v->path, head, sizeof head);
                if (status != DCI_OK)
                        return status;
                if (u32_of(head) != v->dim)
                        return dci_fail(DCI_ERR_FORMAT, "%s: row %zu says it has %u elements, the first one %zu",
                                        v->path, i, u32_of(head), v->dim);
        }
        return bench_read_exactly(v->file, v->path, v->row, v->row_bytes);
}

dci_status bench_read_vecs(dci_context *context, const char *path, size_t limit, bool *out_known, bench_rows *out)
{
        const vecs_layout *found = layout_of(path);
        *out_known = found != NULL;
        if (found == NULL)
                return DCI_OK;
        if (found->element == ELEMENT_I32)
                return dci_fail(DCI_ERR_FORMAT, "%s: %s files hold ids; give it to --truth", path, found->suffix);
        vecs v;
        bench_progress progress;
        dci_status status = vecs_open(context, path, found, limit, &v);
        if (status == DCI_OK)
                status = bench_rows_alloc(context, path,
                                          found->element == ELEMENT_U8   ? DCI_U8
                                          : found->element == ELEMENT_I8 ? DCI_I8
                                                                         : DCI_F32,
                                          v.n, v.dim, out);
        bench_progress_begin(&progress, "reading");
        for (size_t i = 0; status == DCI_OK && i < v.n; i++) {
                status = vecs_next(&v, i);
                if (status == DCI_OK)
                        memcpy((unsigned char *)out->owned + i * v.row_bytes, v.row, v.row_bytes);
                bench_progress_step(&progress, i, v.n);
        }
        bench_progress_end(&progress);
        vecs_close(&v);
        if (status != DCI_OK)
                bench_rows_free(out);
        return status;
}

dci_status bench_read_vecs_ids(dci_context *context, const char *path, size_t limit, bool *out_known, bench_ids *out)
{
        const vecs_layout *found = layout_of(path);
        *out_known = found != NULL;
        if (found == NULL)
                return DCI_OK;
        if (found->element != ELEMENT_I32)
                return dci_fail(DCI_ERR_FORMAT, "%s: %s files hold rows, not ids", path, found->suffix);
        vecs v;
        dci_status status = vecs_open(context, path, found, limit, &v);
        if (status == DCI_OK)
                status = bench_ids_alloc(context, path, v.n, v.dim, out);
        for (size_t i = 0; status == DCI_OK && i < v.n; i++) {
                status = vecs_next(&v, i);
                for (size_t j = 0; status == DCI_OK && j < v.dim; j++) {
                        int32_t id;
                        memcpy(&id, v.row + j * sizeof id, sizeof id);
                        out->data[i * v.dim + j] = id;
                }
        }
        vecs_close(&v);
        if (status != DCI_OK)
                bench_ids_free(out);
        return status;
}
