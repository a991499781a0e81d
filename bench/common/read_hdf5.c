/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * ann-benchmarks files: datasets `train` and `test` (rows), `neighbors` (ids, best first; optional), `distances` (unused:
 * scores are recomputed) and the attribute `distance`: "euclidean", "angular", "dot", or another name of these metrics.
 */
#include "bench/common/dataset.h"

#include <hdf5.h>
#include <string.h>
#include <strings.h>

/* A filter such as gzip cannot expand a byte to more than this: a shape that promises more is lying. */
#define FILTER_MAX_RATIO 1032
/* Rows converted per read, in bytes: keeps libhdf5's conversion buffers small and progress moving. */
#define READ_BYTES ((size_t)16 << 20)

bool bench_is_hdf5(const unsigned char *head, size_t n_head)
{
        static const unsigned char magic[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
        return n_head >= sizeof magic && memcmp(head, magic, sizeof magic) == 0;
}

/* An open two-dimensional dataset whose shape has been checked against what is stored. */
typedef struct table {
        const char *path, *name;
        hid_t dataset, space;
        size_t n, width;
} table;

static void table_close(table *t)
{
        if (t->space >= 0)
                H5Sclose(t->space);
        if (t->dataset >= 0)
                H5Dclose(t->dataset);
}

/* The bytes on disk bound the shape: exactly, or by the greatest ratio of a filter. */
static dci_status check_stored(const table *t, hid_t type, uint64_t file_bytes)
{
        size_t count, bytes, element = H5Tget_size(type);
        hsize_t stored = H5Dget_storage_size(t->dataset);
        hid_t properties = H5Dget_create_plist(t->dataset);
        bool filtered = properties >= 0 && H5Pget_nfilters(properties) > 0;
        if (properties >= 0)
                H5Pclose(properties);
        bool fits = element > 0 && dci_mul(t->n, t->width, &count) && dci_mul(count, element, &bytes);
        if (!fits || stored > file_bytes || (filtered ? bytes / FILTER_MAX_RATIO > stored : bytes > stored))
                return dci_fail(DCI_ERR_FORMAT, "%s: dataset %s says %zu x %zu, but %llu bytes are stored", t->path,
                                t->name, t->n, t->width, (unsigned long long)stored);
        return DCI_OK;
}

static dci_status check_table(table *t, uint64_t file_bytes)
{
        hsize_t shape[2];
        if (t->space < 0 || H5Sget_simple_extent_ndims(t->space) != 2 ||
            H5Sget_simple_extent_dims(t->space, shape, NULL) != 2)
                return dci_fail(DCI_ERR_FORMAT, "%s: dataset %s does not have two dimensions", t->path, t->name);
        if (shape[0] == 0 || shape[1] == 0 || shape[0] > DCI_MAX_ROWS || shape[1] > DCI_MAX_DIM)
                return dci_fail(DCI_ERR_FORMAT, "%s: dataset %s has the impossible shape %llu x %llu", t->path, t->name,
                                (unsigned long long)shape[0], (unsigned long long)shape[1]);
        t->n = (size_t)shape[0];
        t->width = (size_t)shape[1];
        hid_t type = H5Dget_type(t->dataset);
        H5T_class_t class = type >= 0 ? H5Tget_class(type) : H5T_NO_CLASS;
        dci_status status = DCI_OK;
        if (class != H5T_FLOAT && class != H5T_INTEGER)
                status = dci_fail(DCI_ERR_FORMAT, "%s: dataset %s does not hold numbers", t->path, t->name);
        else
                status = check_stored(t, type, file_bytes);
        if (type >= 0)
                H5Tclose(type);
        return status;
}

static dci_status table_open(hid_t file, const char *path, const char *name, uint64_t file_bytes, table *t)
{
        table empty = {path, name, -1, -1, 0, 0};
        *t = empty;
        t->dataset = H5Dopen2(file, name, H5P_DEFAULT);
        if (t->dataset < 0)
                return dci_fail(DCI_ERR_FORMAT,
                                "%s: has no readable dataset %s; an ann-benchmarks file has train and test", path,
                                name);
        t->space = H5Dget_space(t->dataset);
        dci_status status = check_table(t, file_bytes);
        if (status != DCI_OK)
                table_close(t);
        return status;
}

/* What elements are read as: float32 where it holds them all, else a type whose numbers are checked (type not 0). */
static hid_t memory_type_of(const table *t, dci_npy_type *out_type)
{
        hid_t type = H5Dget_type(t->dataset), memory = H5T_NATIVE_FLOAT;
        *out_type = 0;
        if (type >= 0 && H5Tget_class(type) == H5T_INTEGER && H5Tget_size(type) > 2) {
                const bool is_signed = H5Tget_sign(type) != H5T_SGN_NONE;
                memory = is_signed ? H5T_NATIVE_INT64 : H5T_NATIVE_UINT64;
                *out_type = is_signed ? DCI_NPY_I64 : DCI_NPY_U64;
        } else if (type >= 0 && H5Tget_class(type) == H5T_FLOAT && H5Tget_size(type) > 4) {
                memory = H5T_NATIVE_DOUBLE;
                *out_type = DCI_NPY_F64;
        }
        if (type >= 0)
                H5Tclose(type);
        return memory;
}

/* Rows [first, first + n), converted by libhdf5 to the memory type. */
static dci_status table_read(const table *t, size_t first, size_t n, hid_t memory_type, void *out)
{
        size_t element = H5Tget_size(memory_type), row_bytes = t->width * element;
        if (row_bytes == 0)
                return dci_fail(DCI_ERR_FORMAT, "%zu columns of %zu bytes hold nothing to read", t->width, element);
        size_t step = READ_BYTES / row_bytes > 0 ? READ_BYTES / row_bytes : 1;
        bench_progress progress;
        dci_status status = DCI_OK;
        bench_progress_begin(&progress, "reading");
        for (size_t i = 0; status == DCI_OK && i < n; i += step) {
                hsize_t start[2] = {first + i, 0}, count[2] = {n - i < step ? n - i : step, t->width};
                hid_t memory = H5Screate_simple(2, count, NULL);
                if (memory < 0 || H5Sselect_hyperslab(t->space, H5S_SELECT_SET, start, NULL, count, NULL) < 0 ||
                    H5Dread(t->dataset, memory_type, memory, t->space, H5P_DEFAULT, (char *)out + i * row_bytes) < 0)
                        status = dci_fail(DCI_ERR_FORMAT, "%s: dataset %s cannot be read: damaged or truncated",
                                          t->path, t->name);
                if (memory >= 0)
                        H5Sclose(memory);
                bench_progress_step(&progress, i, n);
        }
        bench_progress_end(&progress);
        return status;
}

/* The first n rows as float32, with the rules of bench_numbers_to_f32. */
static dci_status table_read_rows(dci_context *context, const table *t, size_t n, float *out)
{
        dci_npy_type type;
        const hid_t memory = memory_type_of(t, &type);
        if (type == 0)
                return table_read(t, 0, n, memory, out);
        const size_t width = t->width == 0 ? 1 : t->width, row_bytes = width * sizeof(double);
        const size_t most = READ_BYTES / row_bytes + 1;
        void *wide = dci_alloc(context, most, row_bytes);
        dci_status status = wide == NULL ? bench_fail_about(t->path, DCI_ERR_MEMORY) : DCI_OK;
        for (size_t i = 0; status == DCI_OK && i < n; i += most) {
                const size_t here = n - i < most ? n - i : most;
                status = table_read(t, i, here, memory, wide);
                if (status == DCI_OK)
                        status = bench_numbers_to_f32(t->path, type, wide, i, here, t->width, out + i * t->width);
        }
        dci_free(context, wide, most, row_bytes);
        return status;
}

static dci_status read_rows(dci_context *context, hid_t file, const char *path, const char *name, uint64_t file_bytes,
                            size_t limit, bench_rows *out)
{
        table t;
        dci_status status = table_open(file, path, name, file_bytes, &t);
        if (status != DCI_OK)
                return status;
        size_t n = t.n < limit ? t.n : limit;
        status = bench_rows_alloc(context, path, DCI_F32, n, t.width, out);
        if (status == DCI_OK)
                status = table_read_rows(context, &t, n, out->owned);
        table_close(&t);
        return status;
}

static dci_status read_neighbors(dci_context *context, hid_t file, const char *path, uint64_t file_bytes,
                                 size_t n_queries, bench_dataset *out)
{
        table t;
        if (H5Lexists(file, "neighbors", H5P_DEFAULT) <= 0)
                return DCI_OK;
        dci_status status = table_open(file, path, "neighbors", file_bytes, &t);
        if (status != DCI_OK)
                return status;
        if (t.n < n_queries)
                status = dci_fail(DCI_ERR_FORMAT, "%s: neighbors of %zu queries, but test holds %zu", path, t.n,
                                  n_queries);
        if (status == DCI_OK)
                status = bench_ids_alloc(context, path, n_queries, t.width, &out->truth);
        if (status == DCI_OK)
                status = table_read(&t, 0, n_queries, H5T_NATIVE_INT64, out->truth.data);
        table_close(&t);
        return status;
}

/* The text of a string attribute, fixed or variable; false when there is none or it is something else. */
static bool read_text(hid_t file, const char *name, char *out, size_t size)
{
        bool done = false;
        hid_t attribute = H5Aexists(file, name) > 0 ? H5Aopen(file, name, H5P_DEFAULT) : -1;
        hid_t type = attribute >= 0 ? H5Aget_type(attribute) : -1,
              space = attribute >= 0 ? H5Aget_space(attribute) : -1;
        if (type >= 0 && space >= 0 && H5Tget_class(type) == H5T_STRING && H5Sget_simple_extent_npoints(space) == 1) {
                char *text = NULL;
                if (H5Tis_variable_str(type) > 0) {
                        done = H5Aread(attribute, type, &text) >= 0 && text != NULL;
                        if (done)
                                snprintf(out, size, "%s", text);
                        H5free_memory(text);
                } else if (H5Tget_size(type) < size) {
                        memset(out, 0, size);
                        done = H5Aread(attribute, type, out) >= 0;
                }
        }
        for (size_t i = 0; i < size && (!done || out[i] != '\0'); i++) /* it goes into sentences */
                out[i] = (char)(done && out[i] >= ' ' && out[i] <= '~' ? out[i] : done ? '?' : '\0');
        if (space >= 0)
                H5Sclose(space);
        if (type >= 0)
                H5Tclose(type);
        if (attribute >= 0)
                H5Aclose(attribute);
        return done;
}

static dci_metric metric_of(const char *distance)
{
        static const struct {
                const char *name;
                dci_metric metric;
        } names[] = {{"euclidean", DCI_METRIC_L2},     {"l2", DCI_METRIC_L2},          {"sqeuclidean", DCI_METRIC_L2},
                     {"squared_l2", DCI_METRIC_L2},    {"angular", DCI_METRIC_COSINE}, {"cosine", DCI_METRIC_COSINE},
                     {"cos", DCI_METRIC_COSINE},       {"dot", DCI_METRIC_IP},         {"ip", DCI_METRIC_IP},
                     {"inner_product", DCI_METRIC_IP}, {"mips", DCI_METRIC_IP}};
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
                if (strcasecmp(distance, names[i].name) == 0)
                        return names[i].metric;
        return 0;
}

dci_status bench_parse_hdf5(dci_context *context, const char *path, uint64_t n_bytes, size_t limit_base,
                            size_t limit_queries, bench_dataset *out)
{
        /* libhdf5 prints its own stack of errors unless that is switched off; one sentence is enough. */
        H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
        hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
        if (file < 0)
                return dci_fail(DCI_ERR_FORMAT, "%s: not an HDF5 file, or a damaged one", path);
        dci_status status = read_rows(context, file, path, "train", n_bytes, limit_base, &out->base);
        if (status == DCI_OK)
                status = read_rows(context, file, path, "test", n_bytes, limit_queries, &out->queries);
        if (status == DCI_OK && out->base.dim != out->queries.dim)
                status = dci_fail(DCI_ERR_FORMAT, "%s: train has rows of %zu elements, test of %zu", path,
                                  out->base.dim, out->queries.dim);
        if (status == DCI_OK && read_text(file, "distance", out->distance, sizeof out->distance))
                out->metric = metric_of(out->distance);
        /* The neighbours are those among all rows: useless among a part of them. */
        if (status == DCI_OK && limit_base == BENCH_ALL)
                status = read_neighbors(context, file, path, n_bytes, out->queries.n, out);
        H5Fclose(file);
        return status;
}
