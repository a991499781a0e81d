/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * IDX images (MNIST and its kin), plain or gzip: big endian 0x00000803, images, height, width, then one byte per pixel.
 * zlib reads both: what is not gzip passes through it unchanged.
 */
#include "bench/common/dataset.h"

#include <string.h>
#include <zlib.h>

#include "core/file.h"

#define HEAD_BYTES 16
/* DEFLATE cannot expand a byte to more than this; a header that promises more is lying. */
#define DEFLATE_MAX_RATIO 1032

bool bench_is_idx(const unsigned char *head, size_t n_head)
{
        static const unsigned char magic[4] = {0, 0, 8, 3};
        return n_head >= sizeof magic && memcmp(head, magic, sizeof magic) == 0;
}

/* gzread in pieces that fit its int. */
static dci_status read_part(gzFile file, const char *path, void *out, size_t n_bytes)
{
        unsigned char *at = out;
        while (n_bytes > 0) {
                unsigned piece = n_bytes < ((size_t)1 << 20) ? (unsigned)n_bytes : 1u << 20;
                int got = gzread(file, at, piece);
                int code = Z_OK;
                const char *why = gzerror(file, &code);
                if (got < 0 || (code != Z_OK && code != Z_STREAM_END))
                        return dci_fail(DCI_ERR_FORMAT, "%s: damaged or truncated gzip data (%s)", path,
                                        code == Z_BUF_ERROR ? "unexpected end" : why);
                if (got == 0)
                        return dci_fail(DCI_ERR_FORMAT, "%s: the file ends %zu bytes early", path, n_bytes);
                at += got;
                n_bytes -= (size_t)got;
        }
        return DCI_OK;
}

static size_t u32_big(const unsigned char *p)
{
        return (size_t)p[0] << 24 | (size_t)p[1] << 16 | (size_t)p[2] << 8 | (size_t)p[3];
}

/* Reads the header and checks it against the size on disk: exactly for a plain file, by the greatest possible ratio for gzip. */
static dci_status read_head(gzFile file, const char *path, uint64_t bytes, size_t *out_n, size_t *out_dim)
{
        unsigned char head[HEAD_BYTES];
        dci_status status = read_part(file, path, head, sizeof head);
        if (status != DCI_OK)
                return status;
        if (!bench_is_idx(head, sizeof head))
                return dci_fail(DCI_ERR_FORMAT, "%s: not an IDX file of images (three dimensions of bytes)", path);
        size_t n = u32_big(head + 4), dim, pixels, whole;
        bool fits = dci_mul(u32_big(head + 8), u32_big(head + 12), &dim) && dci_mul(n, dim, &pixels) &&
                    dci_add(pixels, HEAD_BYTES, &whole);
        if (!fits || n == 0 || dim == 0 || dim > DCI_MAX_DIM)
                return dci_fail(DCI_ERR_FORMAT, "%s: the header says %zu images of %zu x %zu", path, n,
                                u32_big(head + 8), u32_big(head + 12));
        bool plain = gzdirect(file) != 0;
        if (plain ? whole != bytes : whole / DEFLATE_MAX_RATIO > bytes)
                return dci_fail(DCI_ERR_FORMAT, "%s: %zu images of %zu pixels cannot come from %llu bytes", path, n,
                                dim, (unsigned long long)bytes);
        *out_n = n;
        *out_dim = dim;
        return DCI_OK;
}

/* Reads to the end, so that zlib compares its checksum, and refuses what follows the images. */
static dci_status expect_end(gzFile file, const char *path)
{
        unsigned char more;
        int got = gzread(file, &more, 1), code = Z_OK;
        const char *why = gzerror(file, &code);
        if (got > 0)
                return dci_fail(DCI_ERR_FORMAT, "%s: bytes follow the last image", path);
        if (got < 0 || (code != Z_OK && code != Z_STREAM_END))
                return dci_fail(DCI_ERR_FORMAT, "%s: damaged or truncated gzip data (%s)", path,
                                code == Z_BUF_ERROR ? "unexpected end" : why);
        return DCI_OK;
}

static dci_status read_images(gzFile file, const char *path, bench_rows *out, unsigned char *image)
{
        bench_progress progress;
        dci_status status = DCI_OK;
        bench_progress_begin(&progress, "reading");
        for (size_t i = 0; status == DCI_OK && i < out->n; i++) {
                status = read_part(file, path, image, out->dim);
                float *row = (float *)out->owned + i * out->dim;
                for (size_t j = 0; status == DCI_OK && j < out->dim; j++)
                        row[j] = (float)image[j];
                bench_progress_step(&progress, i, out->n);
        }
        bench_progress_end(&progress);
        return status;
}

dci_status bench_read_idx(dci_context *context, const char *path, size_t limit, bench_rows *out)
{
        dci_source source;
        size_t n = 0, dim = 0;
        dci_status status = dci_source_open(path, &source);
        if (status != DCI_OK)
                return status;
        gzFile file = gzdopen(source.descriptor, "rb");
        if (file == NULL) {
                dci_source_close(&source);
                return dci_fail(DCI_ERR_MEMORY, "%s: no memory to read it", path);
        }
        status = read_head(file, path, source.n_bytes, &n, &dim);
        if (status == DCI_OK)
                status = bench_rows_alloc(context, path, DCI_F32, n < limit ? n : limit, dim, out);
        if (status == DCI_OK) {
                unsigned char *image = dci_alloc(context, dim, 1);
                status = image != NULL ? read_images(file, path, out, image) : bench_fail_about(path, DCI_ERR_MEMORY);
                if (status == DCI_OK && n <= limit)
                        status = expect_end(file, path);
                dci_free(context, image, dim, 1);
                if (status != DCI_OK)
                        bench_rows_free(out);
        }
        gzclose_r(file);
        return status;
}
