/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * A cached truth is an int64 .npy of n_queries x (2 k + 1): k ids, the bits of k binary64 scores, and a CRC-32C of these. In
 * NumPy: a[:, :k] and a[:, k:2*k].view("f8"). Nothing in it is believed: every score is computed again from its id.
 */
#include "bench/common/exact.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/file.h"

static const char *metric_name(dci_metric metric)
{
        return metric == DCI_METRIC_L2 ? "l2" : metric == DCI_METRIC_IP ? "ip" : "cosine";
}

static uint32_t checksum(const bench_rows *rows)
{
        uint64_t shape[3] = {rows->n, rows->dim, (uint64_t)rows->dtype};
        uint32_t crc = dci_crc32c(0, shape, sizeof shape);
        return dci_crc32c(crc, rows->data, rows->n * rows->dim * dci_dtype_size(rows->dtype));
}

dci_status bench_truth_cache_path(const bench_dataset *dataset, dci_metric metric, size_t k, const char *folder,
                                  char *out, size_t size)
{
        int n = snprintf(out, size, "%s/truth-%08x-%08x-n%zu-q%zu-%s-k%zu.npy", folder, checksum(&dataset->base),
                         checksum(&dataset->queries), dataset->base.n, dataset->queries.n, metric_name(metric), k);
        return n > 0 && (size_t)n < size ? DCI_OK : dci_fail(DCI_ERR_INVALID, "--cache: the folder's path is too long");
}

bool bench_truth_cache_default(char *out, size_t size)
{
        const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
        int n = -1;
        /* The XDG rule: relative paths are ignored. */
        if (cache != NULL && cache[0] == '/')
                n = snprintf(out, size, "%s/dci", cache);
        else if (home != NULL && home[0] != '\0')
                n = snprintf(out, size, "%s/.cache/dci", home);
        return n > 0 && (size_t)n < size;
}

static int64_t row_checksum(const int64_t *row, size_t k)
{
        return dci_crc32c(0, row, 2 * k * sizeof *row);
}

/* One query: the checksum holds, ids are in range, scores are those of the ids, and the order is strict (so no id is there
 * twice). rows: two rows of scratch. */
static bool load_query(const bench_dataset *dataset, dci_metric metric, const int64_t *row, size_t query, double *rows,
                       bench_truth *truth)
{
        size_t k = truth->k, dim = dataset->base.dim;
        bench_hit last = {0, 0, 0};
        if (row[2 * k] != row_checksum(row, k))
                return false;
        bench_row_to_double(&dataset->queries, query, rows);
        for (size_t j = 0; j < k; j++) {
                if (row[j] < 0 || (uint64_t)row[j] >= dataset->base.n)
                        return false;
                bench_row_to_double(&dataset->base, (size_t)row[j], rows + dim);
                bench_hit hit = {bench_score(metric, rows, rows + dim, dim), 0, row[j]};
                hit.key = bench_key(metric, hit.score);
                if (memcmp(&hit.score, &row[k + j], sizeof hit.score) != 0 || (j > 0 && bench_order(&last, &hit) >= 0))
                        return false;
                last = hit;
                truth->ids[query * k + j] = hit.id;
                truth->scores[query * k + j] = hit.score;
        }
        return true;
}

dci_status bench_truth_cache_load(const char *path, const bench_dataset *dataset, dci_metric metric, bench_truth *truth,
                                  bool *out_hit)
{
        size_t k = truth->k, width = 2 * k + 1, dim = dataset->base.dim;
        dci_npy npy = {0};
        *out_hit = false;
        if (access(path, F_OK) != 0)
                return DCI_OK;
        double *rows = dci_alloc(truth->context, 2, dim * sizeof *rows);
        if (rows == NULL)
                return DCI_ERR_MEMORY;
        bool good = dci_npy_read(truth->context, path, &npy) == DCI_OK && npy.type == DCI_NPY_I64 && npy.n_dims == 2 &&
                    npy.shape[0] == truth->n_queries && npy.shape[1] == width;
        for (size_t i = 0; good && i < truth->n_queries; i++)
                good = load_query(dataset, metric, (const int64_t *)npy.data + i * width, i, rows, truth);
        dci_npy_free(&npy);
        dci_free(truth->context, rows, 2, dim * sizeof *rows);
        if (!good)
                fprintf(stderr, "dci-bench: note: %s is damaged and will be replaced\n", path);
        *out_hit = good;
        truth->origin = "cached";
        return DCI_OK;
}

/* mkdir -p of the folder part of `path`, which is changed and restored. */
static bool make_folders(char *path)
{
        for (char *p = path + 1; *p != '\0'; p++) {
                if (*p != '/')
                        continue;
                *p = '\0';
                bool made = mkdir(path, 0777) == 0 || errno == EEXIST;
                *p = '/';
                if (!made)
                        return false;
        }
        return true;
}

void bench_truth_cache_save(const char *path, const bench_truth *truth)
{
        char folders[4096];
        size_t k = truth->k, shape[2] = {truth->n_queries, 2 * k + 1};
        snprintf(folders, sizeof folders, "%s", path);
        if (!make_folders(folders)) {
                fprintf(stderr, "dci-bench: note: the true neighbours were not kept: %s: %s\n", path, strerror(errno));
                return;
        }
        int64_t *table = dci_alloc(truth->context, shape[0], shape[1] * sizeof *table);
        for (size_t i = 0; table != NULL && i < truth->n_queries; i++) {
                int64_t *row = table + i * shape[1];
                memcpy(row, truth->ids + i * k, k * sizeof *row);
                memcpy(row + k, truth->scores + i * k, k * sizeof *row);
                row[2 * k] = row_checksum(row, k);
        }
        if (table == NULL || dci_npy_write(path, DCI_NPY_I64, 2, shape, table) != DCI_OK)
                fprintf(stderr, "dci-bench: note: the true neighbours were not kept: %s\n", dci_last_error());
        dci_free(truth->context, table, shape[0], shape[1] * sizeof *table);
}
