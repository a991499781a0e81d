/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Arguments of the kernel that clusters a prompt's keys: k-means by cosine to the mean of the keys as they are
 * (ClusterKV), of all heads of a layer at once. The result has the bits that src/cluster gives for the same rows and
 * first centres: rounds, repair of empty clusters and the last assignment are those of kmeans_run.c.
 *
 * Words: row, a key of a head, numbered 0, 1, ..; point, the row in unit length less `middle`, a guess of the points'
 * mean; centre, a cluster's, in the space of points. A row's label is the centre of the greatest point . centre -
 * |centre|^2 / 2, equal ones by number, in the canonical order of sums (simd/kernels.h).
 *
 * Determinism: no result depends on how work is divided. Matrix units only propose: for each row they report the two
 * centres that may be the best, or that there are more, and their error's bound decides whether canonical sums are
 * needed. Members of a cluster are added up in ascending order; counters are integers. */
#ifndef DCI_GPU_ARGS_KMEANS_H
#define DCI_GPU_ARGS_KMEANS_H

#include <stddef.h>
#include <stdint.h>

#define DCI_GPU_KMEANS_MOST 4096 /* clusters */
#define DCI_GPU_KMEANS_MAX_ROUNDS 64
#define DCI_GPU_KMEANS_TILE 256     /* rows that are counted, and placed, together */
#define DCI_GPU_KMEANS_PAD 32       /* centres are padded to a multiple of it */
#define DCI_GPU_KMEANS_LAST_TRIES 4 /* as LAST_TRIES of kmeans_run.c */
#define DCI_GPU_KMEANS_MIDDLE 1024  /* as MIDDLE_ROWS of kmeans_prepare.c */
#define DCI_GPU_KMEANS_SUMMED 256   /* rows that are summed in binary32: KM_TASK_ROWS */
#define DCI_GPU_KMEANS_MEANT 64     /* the same of `means`: DCI_KV_TILE */

/* State of a head, during the call and after it. */
enum {
        /* 1: a row has NaN, infinity, no direction or a length beyond what is taken; no other result is written then */
        DCI_GPU_KMEANS_BAD,
        DCI_GPU_KMEANS_DONE,
        DCI_GPU_KMEANS_FRESH,    /* labels are new, and rows are not sorted by them yet */
        DCI_GPU_KMEANS_REPAIRED, /* in the round before */
        DCI_GPU_KMEANS_MOVED,    /* rows whose label is not that of the round before */
        DCI_GPU_KMEANS_ROUNDS,   /* done so far, without the last assignments */
        DCI_GPU_KMEANS_LONGEST,  /* bits of a float: the length of the longest centre so far */
        DCI_GPU_KMEANS_EXACT,    /* labels that canonical sums decided, in all rounds */
        DCI_GPU_KMEANS_STATES
};

/* Rows of f16 or bf16, dim 64, 96, 128 or 256. 1 <= n_clusters <= n_rows, at most DCI_GPU_KMEANS_MOST; 1 <= n_rounds <=
 * _MOST_ROUNDS. All heads of one layer in one call. */
typedef struct dci_gpu_kmeans_args {
        int32_t n_heads, dim, dtype, n_rows, n_clusters, n_rounds;
        int32_t isa; /* whose bits: DCI_ISA_SCALAR rounds products before they are added, all others do not */
        int32_t reserved;
        const unsigned char *rows;    /* 16-byte aligned */
        uint64_t row_step, head_step; /* bytes, multiples of 16 */
        const int32_t *first;         /* [head][n_clusters]: rows that centres begin at (dci_km_draw) */
        /* Out. */
        int32_t *order;       /* [head][n_rows]: rows by label, ascending within one */
        int32_t *starts;      /* [head][n_clusters + 1]: where those of each begin */
        unsigned char *means; /* [head][n_clusters][dim], as dci_kv_mean_of_members; not written for empty clusters */
        int32_t *states;      /* [head][DCI_GPU_KMEANS_STATES] */
        unsigned char *work;  /* dci_gpu_kmeans_work of scratch, aligned to 256 bytes */
} dci_gpu_kmeans_args;

/* Offsets of the parts of the scratch in bytes, all heads of a part together. [head][n_rows]: scales, 1 / |row|;
 * labels; fits, squared distances to the own centre, where clusters are empty. [head][tile][padded]: counts, members,
 * then where they go. [head][padded]: sizes, the sums of those; [dim] centres; packed, the same as f16 for matrix
 * units; offsets, |centre|^2 / 2, huge where there is no centre. [head][dim]: middles. */
typedef struct dci_gpu_kmeans_parts {
        uint64_t scales, labels, fits, counts, sizes, centres, packed, offsets, middles, n_bytes;
} dci_gpu_kmeans_parts;

static inline int32_t dci_gpu_kmeans_padded(int32_t n_clusters)
{
        return (n_clusters + DCI_GPU_KMEANS_PAD - 1) / DCI_GPU_KMEANS_PAD * DCI_GPU_KMEANS_PAD;
}

static inline int32_t dci_gpu_kmeans_tiles(int32_t n_rows)
{
        return (n_rows + DCI_GPU_KMEANS_TILE - 1) / DCI_GPU_KMEANS_TILE;
}

static inline dci_gpu_kmeans_parts dci_gpu_kmeans_work(int32_t n_heads, int32_t dim, int32_t n_rows, int32_t n_clusters)
{
        const uint64_t heads = (uint64_t)n_heads, rows = heads * (uint64_t)n_rows,
                       centres = heads * (uint64_t)dci_gpu_kmeans_padded(n_clusters),
                       elements = centres * (uint64_t)dim;
        uint64_t at = 0;
        dci_gpu_kmeans_parts out;
#define DCI_GPU_KMEANS_PART(name, bytes)                                                                               \
        out.name = at;                                                                                                 \
        at += ((bytes) + 255) / 256 * 256
        DCI_GPU_KMEANS_PART(scales, 4 * rows);
        DCI_GPU_KMEANS_PART(labels, 4 * rows);
        DCI_GPU_KMEANS_PART(fits, 4 * rows);
        DCI_GPU_KMEANS_PART(counts, 4 * centres * (uint64_t)dci_gpu_kmeans_tiles(n_rows));
        DCI_GPU_KMEANS_PART(sizes, 4 * centres);
        DCI_GPU_KMEANS_PART(centres, 4 * elements);
        DCI_GPU_KMEANS_PART(packed, 2 * elements);
        DCI_GPU_KMEANS_PART(offsets, 4 * centres);
        DCI_GPU_KMEANS_PART(middles, 4 * heads * (uint64_t)dim);
#undef DCI_GPU_KMEANS_PART
        out.n_bytes = at;
        return out;
}

#endif
