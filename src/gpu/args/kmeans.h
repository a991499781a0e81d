/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Arguments of the kernels that cluster a prompt's keys: k-means by cosine, of all heads of a layer at once. The result
 * has the bits that src/cluster gives for the same rows and first centres: rounds, segments, repair of empty clusters
 * and the last assignment are those of kmeans_run.c.
 *
 * Words: row, a key of a head, numbered 0, 1, ..; point, the row (CENTRED: less the mean of all rows) in unit length less
 * `middle`, a guess of the points' mean; centre, a cluster's, in the space of points. A row's label is the centre of the
 * greatest point . centre - |centre|^2 / 2, equal ones by number, in the canonical order of sums (simd/kernels.h). A
 * centre moves to the direction of the mean of its rows as they are (ClusterKV), or, CENTRED, of their points
 * (RetroInfer).
 *
 * Segments: with segment_rows, rounds run within so many consecutive rows and their share of the clusters. Then every
 * row goes to the best of all centres.
 *
 * Parts: a head's rows may be divided evenly into parts, number p from row all_rows * p / n_parts on, each clustered by
 * itself. They differ by a row at most. A problem is a head's part, and has its own rows, clusters and mean.
 *
 * Determinism: no result depends on how work is divided. Matrix units only propose: for each row they report the
 * centres that may be the best, and their error's bound decides whether canonical sums are needed. Members of a cluster
 * are added up in ascending order; counters are integers. */
#ifndef DCI_GPU_ARGS_KMEANS_H
#define DCI_GPU_ARGS_KMEANS_H

#include <stddef.h>
#include <stdint.h>

#define DCI_GPU_KMEANS_MOST 4096 /* clusters */
#define DCI_GPU_KMEANS_MAX_ROUNDS 64
#define DCI_GPU_KMEANS_TILE 256     /* rows that are counted, and placed, together */
#define DCI_GPU_KMEANS_SPAN 8       /* tiles that are placed by a block, and counted together too */
#define DCI_GPU_KMEANS_PAD 32       /* centres are padded to a multiple of it */
#define DCI_GPU_KMEANS_LAST_TRIES 4 /* as LAST_TRIES of kmeans_run.c */
#define DCI_GPU_KMEANS_MIDDLE 1024  /* as MIDDLE_ROWS of kmeans_prepare.c */
#define DCI_GPU_KMEANS_SUMMED 256   /* rows that are summed in binary32: KM_TASK_ROWS */
#define DCI_GPU_KMEANS_MEANT 64     /* the same of `means`: DCI_KV_TILE */
#define DCI_GPU_KMEANS_GROUP 16     /* rows whose points are packed together for matrix units */
#define DCI_GPU_KMEANS_VIEWS 65535  /* heads times parts times segments */

/* State of a problem, or of its segment, during the call and after it. */
enum {
        /* 1: a row has NaN, infinity, no direction or a length beyond what is taken; no other result is written then */
        DCI_GPU_KMEANS_BAD,
        DCI_GPU_KMEANS_DONE,
        DCI_GPU_KMEANS_FRESH,    /* labels are new, and rows are not sorted by them yet */
        DCI_GPU_KMEANS_REPAIRED, /* in the round before */
        DCI_GPU_KMEANS_MOVED,    /* rows whose label is not that of the round before */
        DCI_GPU_KMEANS_ROUNDS,   /* done so far, without the last assignments; of segments the most */
        DCI_GPU_KMEANS_LONGEST,  /* bits of a float: the length of the longest centre so far */
        DCI_GPU_KMEANS_LOST,     /* the same: the greatest length that a centre has lost to rounding */
        DCI_GPU_KMEANS_EXACT,    /* labels that canonical sums decided, in all rounds */
        DCI_GPU_KMEANS_STATES
};

/* Rows of f16 or bf16, dim 64, 96, 128 or 256. 1 <= n_clusters <= n_rows, at most DCI_GPU_KMEANS_MOST; 1 <= n_rounds <=
 * _MAX_ROUNDS. n_rows and n_clusters are those of the longest part; one of n_rows - 1 rows has as many clusters as there
 * are whole cluster_rows in it, at least one. All heads of one layer in one call. */
typedef struct dci_gpu_kmeans_args {
        int32_t n_heads, dim, dtype, n_rows, n_clusters, n_rounds;
        int32_t isa;          /* whose bits: DCI_ISA_SCALAR rounds products before they are added, all others do not */
        int32_t segment_rows; /* of a segment, a multiple of 32; 0, or n_rows at least: there are none */
        int32_t centred;      /* 1: CENTRED */
        int32_t n_parts;      /* 0 or 1: one, and the next two do not matter */
        int32_t all_rows, cluster_rows;
        const unsigned char *rows;    /* 16-byte aligned */
        uint64_t row_step, head_step; /* bytes, multiples of 16 */
        const int32_t *first;        /* [head][part][n_clusters]: the part's rows that centres begin at (dci_km_draw) */
        const unsigned char *values; /* NULL, or as rows: rows of values, whose means by cluster are wanted too */
        uint64_t value_step, value_head_step;
        /* Out. */
        int32_t *
                order; /* [head][all rows]: of one part after the other, the part's rows by label, ascending within one */
        int32_t *starts; /* [head][part][n_clusters + 1]: where those of each begin, among the part's */
        /** [head][part][n_clusters][dim], as dci_kv_mean_of_members; not written for empty clusters */
        unsigned char *means;
        unsigned char *value_means; /* with values: as means */
        int32_t *states;            /* [head][part][DCI_GPU_KMEANS_STATES] */
        unsigned char *work;        /* dci_gpu_kmeans_work of scratch, aligned to 256 bytes */
} dci_gpu_kmeans_args;

/* Sizes that follow from the arguments. A view is a problem's segment, with its rows and its share of the clusters; in
 * the end, a problem with all of them. */
typedef struct dci_gpu_kmeans_sizes {
        int32_t n_parts, all_rows, n_problems;
        int32_t segment, n_segments;  /* rows of a segment; 1: rounds run over all rows */
        int32_t padded, tiles, spans; /* of a problem's clusters, and of its rows */
        int32_t segment_padded, segment_tiles, segment_spans;
} dci_gpu_kmeans_sizes;

/* Offsets of the parts of the scratch in bytes, all problems of one together. [problem][n_rows]: scales, 1 / |row|;
 * labels; fits, squared distances to the own centre, where clusters are empty; bounds, lengths of the points and what
 * they lost to rounding; points as f16, packed for matrix units by 16 rows. [view][tile][padded]: counts, members.
 * [view][span][padded]: sizes, members, then where they go. [view][padded], those of segments first: changed, 1 where
 * members are new; [dim] centres; packed, the same as f16 for matrix units; offsets, |centre|^2 / 2, huge where there is no centre. [segment]: states; [padded + 1] starts.
 * [problem][dim]: middles; row_means. [problem][256 rows][dim]: sums of rows, CENTRED. */
typedef struct dci_gpu_kmeans_parts {
        uint64_t scales, labels, fits, bounds, points, counts, sizes, changed, centres, packed, offsets, states, starts,
                middles, row_means, sums, n_bytes;
} dci_gpu_kmeans_parts;

static inline int32_t dci_gpu_kmeans_padded(int32_t n_clusters)
{
        return (n_clusters + DCI_GPU_KMEANS_PAD - 1) / DCI_GPU_KMEANS_PAD * DCI_GPU_KMEANS_PAD;
}

static inline int32_t dci_gpu_kmeans_tiles(int32_t n_rows)
{
        return (n_rows + DCI_GPU_KMEANS_TILE - 1) / DCI_GPU_KMEANS_TILE;
}

static inline int32_t dci_gpu_kmeans_groups(int32_t n_rows)
{
        return (n_rows + DCI_GPU_KMEANS_GROUP - 1) / DCI_GPU_KMEANS_GROUP;
}

static inline dci_gpu_kmeans_sizes dci_gpu_kmeans_sizes_of(const dci_gpu_kmeans_args *a)
{
        dci_gpu_kmeans_sizes s;
        s.n_parts = a->n_parts > 1 ? a->n_parts : 1;
        s.all_rows = s.n_parts > 1 ? a->all_rows : a->n_rows;
        s.n_problems = a->n_heads * s.n_parts;
        s.segment = a->segment_rows > 0 && a->segment_rows < a->n_rows ? a->segment_rows : a->n_rows;
        s.n_segments = (a->n_rows - 1) / s.segment + 1;
        s.padded = dci_gpu_kmeans_padded(a->n_clusters);
        s.tiles = dci_gpu_kmeans_tiles(a->n_rows);
        /* A segment's clusters are those between two multiples of its share, rounded down. */
        const int64_t most = (int64_t)a->n_clusters * s.segment / (a->n_rows > 1 ? a->n_rows - 1 : 1) + 1;
        s.segment_padded =
                dci_gpu_kmeans_padded(s.n_segments > 1 && most < a->n_clusters ? (int32_t)most : a->n_clusters);
        s.segment_tiles = dci_gpu_kmeans_tiles(s.segment);
        s.spans = (s.tiles - 1) / DCI_GPU_KMEANS_SPAN + 1;
        s.segment_spans = (s.segment_tiles - 1) / DCI_GPU_KMEANS_SPAN + 1;
        return s;
}

/* Where part p begins in a head's rows; p = n_parts: where the last ends. */
static inline uint64_t dci_gpu_kmeans_part(const dci_gpu_kmeans_sizes *s, int32_t p)
{
        return (uint64_t)s->all_rows * (uint64_t)p / (uint64_t)s->n_parts;
}

/* Of the arguments, what results and where rows are does not matter. */
static inline dci_gpu_kmeans_parts dci_gpu_kmeans_work(const dci_gpu_kmeans_args *a)
{
        const dci_gpu_kmeans_sizes s = dci_gpu_kmeans_sizes_of(a);
        const uint64_t heads = (uint64_t)s.n_problems, dim = (uint64_t)a->dim, rows = heads * (uint64_t)a->n_rows,
                       views = s.n_segments > 1 ? heads * (uint64_t)s.n_segments : 0,
                       of_views = views * (uint64_t)s.segment_padded, of_heads = heads * (uint64_t)s.padded,
                       centres = of_views + of_heads, counts = of_views * (uint64_t)s.segment_tiles,
                       counts_after = of_heads * (uint64_t)s.tiles, spans = of_views * (uint64_t)s.segment_spans,
                       spans_after = of_heads * (uint64_t)s.spans;
        uint64_t at = 0;
        dci_gpu_kmeans_parts out;
#define DCI_GPU_KMEANS_PART(name, bytes)                                                                               \
        out.name = at;                                                                                                 \
        at += ((bytes) + 255) / 256 * 256
        DCI_GPU_KMEANS_PART(scales, 4 * rows);
        DCI_GPU_KMEANS_PART(labels, 4 * rows);
        DCI_GPU_KMEANS_PART(fits, 4 * rows);
        DCI_GPU_KMEANS_PART(bounds, 8 * heads * DCI_GPU_KMEANS_GROUP * (uint64_t)dci_gpu_kmeans_groups(a->n_rows));
        DCI_GPU_KMEANS_PART(points,
                            2 * dim * heads * DCI_GPU_KMEANS_GROUP * (uint64_t)dci_gpu_kmeans_groups(a->n_rows));
        DCI_GPU_KMEANS_PART(counts, 4 * (counts > counts_after ? counts : counts_after));
        DCI_GPU_KMEANS_PART(sizes, 4 * (spans > spans_after ? spans : spans_after));
        DCI_GPU_KMEANS_PART(changed, 4 * centres);
        DCI_GPU_KMEANS_PART(centres, 4 * centres * dim);
        DCI_GPU_KMEANS_PART(packed, 2 * centres * dim);
        DCI_GPU_KMEANS_PART(offsets, 4 * centres);
        DCI_GPU_KMEANS_PART(states, 4 * views * DCI_GPU_KMEANS_STATES);
        DCI_GPU_KMEANS_PART(starts, 4 * views * (uint64_t)(s.segment_padded + 1));
        DCI_GPU_KMEANS_PART(middles, 4 * heads * dim);
        DCI_GPU_KMEANS_PART(row_means, 4 * heads * dim);
        DCI_GPU_KMEANS_PART(sums, a->centred != 0 ? 4 * heads * dim * (uint64_t)s.tiles : 0);
#undef DCI_GPU_KMEANS_PART
        out.n_bytes = at;
        return out;
}

/* Whether there are kernels for it. */
static inline int dci_gpu_kmeans_takes(const dci_gpu_kmeans_args *a)
{
        if (a->n_heads < 1 || a->n_clusters < 1 || a->n_clusters > a->n_rows || a->n_clusters > DCI_GPU_KMEANS_MOST ||
            a->n_rounds < 1 || a->n_rounds > DCI_GPU_KMEANS_MAX_ROUNDS || a->segment_rows < 0 ||
            a->segment_rows % DCI_GPU_KMEANS_PAD != 0)
                return 0;
        if (a->n_parts > 1 &&
            (a->cluster_rows < 1 || a->n_parts > a->all_rows || a->n_rows != (a->all_rows - 1) / a->n_parts + 1 ||
             (int64_t)a->n_heads * a->n_parts > DCI_GPU_KMEANS_VIEWS))
                return 0;
        const dci_gpu_kmeans_sizes s = dci_gpu_kmeans_sizes_of(a);
        return (int64_t)s.n_problems * s.n_segments <= DCI_GPU_KMEANS_VIEWS;
}

#endif
