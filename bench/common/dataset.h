/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What a benchmark runs on: base rows, queries, perhaps the true neighbours, perhaps a trace. Readers check every length
 * against the file's size before they allocate. */
#ifndef DCI_BENCH_COMMON_DATASET_H
#define DCI_BENCH_COMMON_DATASET_H

#include <stdio.h>

#include "bench/common/bench.h"
#include "core/npy.h"

#define BENCH_ALL SIZE_MAX /* no limit on the rows read */

/* Rows without gaps. `npy` or `owned` owns them; a view owns nothing. */
typedef struct bench_rows {
        dci_dtype dtype;
        size_t n, dim;
        const void *data;
        dci_context *context;
        void *owned;
        size_t owned_bytes;
        dci_npy npy;
} bench_rows;

/* The neighbours that a file names, n x width, best first. */
typedef struct bench_ids {
        size_t n, width;
        int64_t *data;
        dci_context *context;
} bench_ids;

/* A sequence of attention keys. Query i is head i % group at position prompt + i / group and attends to keys 0 to there. */
typedef struct bench_trace {
        size_t tokens, prompt, first_query, group;
        double scale;
        bool bfloat16;       /* uint16 are its bits: "dtype" in meta.json */
        bench_rows keys;     /* of all tokens */
        bench_rows observed; /* queries before the decode, from position first_query on, in the same order; n 0: none */
} bench_trace;

/* Tokens at the start that every system keeps anyway: they are outside the attention share. */
#define BENCH_SINK 16

typedef struct bench_dataset {
        char name[256];
        bench_rows base, queries;
        bench_ids truth;      /* width 0: none */
        char truth_file[256]; /* where it comes from, for messages */
        dci_metric metric;    /* what the data says about itself; 0: nothing that is known */
        char distance[32];    /* of an HDF5 file: the name that it gives its metric; empty: none */
        bool is_trace;
        bench_trace trace;
} bench_dataset;

typedef struct bench_source {
        const char *base, *query, *data, *trace; /* base and query, or one of the other two */
        const char *truth;                       /* NULL or a file of ids */
        size_t limit_base, limit_queries;        /* BENCH_ALL: everything */
} bench_source;

/* Reads everything and checks that it fits together. On error `out` is empty. */
dci_status bench_dataset_read(dci_context *context, const bench_source *source, bench_dataset *out);
void bench_dataset_free(bench_dataset *dataset);

/* --- bench/common/rows.c -------------------------------------------------------------------------------------------------------- */

/* n x dim elements of uninitialised memory, sizes checked; `what` names the file in messages. */
dci_status bench_rows_alloc(dci_context *context, const char *what, dci_dtype dtype, size_t n, size_t dim,
                            bench_rows *out);
dci_status bench_ids_alloc(dci_context *context, const char *what, size_t n, size_t width, bench_ids *out);
void bench_rows_free(bench_rows *rows);
void bench_ids_free(bench_ids *ids);
/* The first n rows of `rows`, which must outlive the view. */
bench_rows bench_rows_view(const bench_rows *rows, size_t n);
/* Takes over the 2-D matrix in `npy` (which is emptied), or refuses and frees it. bfloat16: it holds uint16, the bits of those. */
dci_status bench_rows_from_npy(const char *path, bool bfloat16, dci_npy *npy, size_t limit, bench_rows *out);
/* n x dim numbers of float64, integers or bool as float32: float64 rounded, integers exactly. DCI_ERR_FORMAT names the row, counted from
 * first_row, of a number beyond float32 or an integer that it does not hold. */
dci_status bench_numbers_to_f32(const char *path, dci_npy_type type, const void *data, size_t first_row, size_t n,
                                size_t dim, float *out);
/* Makes the first `limit` rows of a not empty array float32 in that way, and drops the others, unless they are float32 or float16, or
 * bits of bfloat16 as `bfloat16` says; and then the format of its rows. */
dci_status bench_npy_to_rows(const char *path, bool bfloat16, size_t limit, dci_npy *npy);
dci_dtype bench_npy_dtype(const dci_npy *npy);
dci_status bench_ids_from_npy(const char *path, dci_npy *npy, size_t limit, bench_ids *out);
/* Makes the rows those of another number format, rounded to nearest; what overflows becomes infinity, which indices refuse. */
dci_status bench_rows_convert(dci_context *context, const char *what, dci_dtype dtype, bench_rows *rows);
/* Row i in double precision: exact, whatever the format. */
void bench_row_to_double(const bench_rows *rows, size_t i, double *out);

/* --- bench/common/dataset.c: files by content and extension ---------------------------------------------------------------------- */

/* Of .npy files, those whose name ends in .bf16.npy hold uint16, the bits of bfloat16; in others uint16 are integers. */
dci_status bench_read_rows(dci_context *context, const char *path, size_t limit, bench_rows *out);
/* The same where something else than the name says so. */
dci_status bench_read_rows_as(dci_context *context, const char *path, bool bfloat16, size_t limit, bench_rows *out);
dci_status bench_read_ids(dci_context *context, const char *path, size_t limit, bench_ids *out);

/* Opens a regular file for reading and returns its size. Close with fclose. */
dci_status bench_open(const char *path, FILE **out_file, uint64_t *out_bytes);
/* Reads exactly n_bytes, or says that the file ends early. */
dci_status bench_read_exactly(FILE *file, const char *path, void *out, size_t n_bytes);
bool bench_has_suffix(const char *path, const char *suffix);

/* --- bench/common/read_vecs.c: .fvecs .bvecs .ivecs (TEXMEX) and .fbin .u8bin .i8bin .ibin (big-ann) ------------------------------ */

/* *out_known is false, and nothing else happens, when the extension is none of these. */
dci_status bench_read_vecs(dci_context *context, const char *path, size_t limit, bool *out_known, bench_rows *out);
dci_status bench_read_vecs_ids(dci_context *context, const char *path, size_t limit, bool *out_known, bench_ids *out);

/* --- bench/common/read_idx.c: IDX images of bytes, plain or gzip ------------------------------------------------------------------ */

bool bench_is_idx(const unsigned char *head, size_t n_head);
dci_status bench_read_idx(dci_context *context, const char *path, size_t limit, bench_rows *out);

/* --- bench/common/read_hdf5.c, bench/common/hdf5_child.c: ann-benchmarks files ------------------------------------------------------------------------------- */

bool bench_is_hdf5(const unsigned char *head, size_t n_head);
/* Fills base, queries, metric and, where present, truth. libhdf5 runs in a process of its own. */
dci_status bench_read_hdf5(dci_context *context, const char *path, size_t limit_base, size_t limit_queries,
                           bench_dataset *out);
/* The same in this process. n_bytes: the file's size. */
dci_status bench_parse_hdf5(dci_context *context, const char *path, uint64_t n_bytes, size_t limit_base,
                            size_t limit_queries, bench_dataset *out);

/* --- bench/common/synthetic.c ----------------------------------------------------------------------------------------------------- */

/* f32 rows near a random subspace: `latent` normal coordinates times a random linear map to `dim`, plus normal noise of
 * deviation `noise` in each element. The map depends on the seed alone; streams give other rows of the same kind, and the
 * first rows of a longer set are those of a shorter one. */
typedef struct bench_synthetic {
        size_t dim, latent;
        double noise;
        uint64_t seed;
} bench_synthetic;
dci_status bench_synthetic_rows(dci_context *context, const bench_synthetic *what, uint64_t stream, size_t n,
                                bench_rows *out);

/* --- bench/common/trace.c ---------------------------------------------------------------------------------------------------------- */

/* Fills base (a view of the prompt's keys), queries and trace. limit_queries is for those of the decode. */
dci_status bench_read_trace(dci_context *context, const char *folder, size_t limit_base, size_t limit_queries,
                            bench_dataset *out);

/* --- bench/common/trace_share.c: how much attention the returned ids catch -------------------------------------------------------- */

/* Per query: the logarithm of its softmax's denominator; and over all queries: the weight of the prompt after the sink. */
typedef struct bench_share {
        dci_context *context;
        size_t n_queries;
        double *log_sums;
        double weight;
} bench_share;

dci_status bench_share_prepare(dci_context *context, const bench_dataset *dataset, bench_share *out);
/* ids: lists of k as a search returned them, each for `per_list` queries in a row; an id counts once for each of them. */
dci_status bench_share_of(const bench_share *share, const bench_dataset *dataset, const int64_t *ids, size_t k,
                          size_t per_list, double *out_share);
void bench_share_free(bench_share *share);

#endif
