/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/**
 * @file kmeans.h
 * Clusters of rows: k-means by cosine, Euclidean distance or inner product, for one problem or for all heads of a layer
 * at once.
 *
 * One call clusters, from rows in to labels, centroids, the rows of each cluster and sums of other rows by cluster out.
 * There is no object to keep: what a later call needs (centroids to start from, a mean to subtract, how many rows and
 * clusters there are already) it is given.
 *
 * Numbers: means are sums in ascending order of rows; labels are decided by the canonical kernel, products of lower
 * precision only propose (bf16 tiles where the CPU has them). Under L2 that is the distance itself, so that rows in
 * groups far apart keep the digits of distances within a group. The same seed, rows and instruction set give the same
 * bits at any thread count and for any number of problems in a call.
 *
 * Threads: a call uses the context's threads, one parallel region per phase of a round, or, where there are problems
 * enough for all threads, one region in all, a problem per thread at a time. Calls may run concurrently.
 */
#ifndef DCI_KMEANS_H
#define DCI_KMEANS_H

#include "dci/base.h"
#include "dci/transform.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Where centroids start. All start on rows. */
enum {
        /** rows drawn without replacement, in ascending order of rows */
        DCI_KMEANS_INIT_RANDOM = 1,
        /**
         * k-means++ (Arthur and Vassilvitskii 2007): each row drawn by its squared distance to those drawn before (of
         * unit rows under COSINE); O(n k dim) at worst
         */
        DCI_KMEANS_INIT_PLUSPLUS = 2,
        /** evenly spaced rows, the middle of each n / k of them: no random part */
        DCI_KMEANS_INIT_EVEN = 3,
        /** input.centroids: a warm start */
        DCI_KMEANS_INIT_GIVEN = 4
};

/** What a centroid is, under COSINE. */
enum {
        /** the mean of the unit rows, scaled to unit length (spherical k-means, Dhillon and Modha 2001) */
        DCI_CENTROID_UNIT = 0,
        /**
         * the mean of the rows as they are, compared by cosine (ClusterKV); the objective may then get worse from one
         * round to the next
         */
        DCI_CENTROID_MEAN = 1
};

/** What is taken from every row before anything else. Matters to COSINE and IP; distances do not change by it. */
enum {
        DCI_MEAN_NONE = 0,
        /** the mean of the problem's rows: attention keys have a large one, which hides their directions */
        DCI_MEAN_OWN = 1,
        /** input.means: that of an earlier call, so that new clusters are comparable with old ones */
        DCI_MEAN_GIVEN = 2
};

/** How to cluster. Prepare with dci_kmeans_config_init. */
typedef struct dci_kmeans_config {
        size_t struct_size;
        size_t dim;        /**< elements per row, 1 to DCI_MAX_DIM; no default */
        size_t n_clusters; /**< 1 to the number of rows; no default */
        /**
         * default DCI_METRIC_COSINE. L2: squared distance; IP: rows go to the centroid of the highest inner product,
         * centroids are means, and the objective may get worse from one round to the next
         */
        dci_metric metric;
        dci_dtype dtype;  /**< of the rows; default DCI_F32 */
        int32_t init;     /**< default DCI_KMEANS_INIT_RANDOM */
        int32_t centroid; /**< COSINE only: DCI_CENTROID_UNIT (default) or DCI_CENTROID_MEAN */
        /**
         * COSINE only: DCI_ZERO_REFUSE (default) or DCI_ZERO_KEEP: a row shorter than 2^-40 after the mean is taken
         * from it has no direction; it is refused, or gets label 0 (with a capacity that of any cluster with room),
         * cosine 0, and no part in DCI_CENTROID_UNIT
         */
        int32_t zero_rows;
        int32_t subtract_mean; /**< DCI_MEAN_NONE (default), _OWN or _GIVEN */
        size_t n_iter;         /**< most rounds, 0 or more; default 20. 0: rows are assigned to the first centroids. */
        /**
         * stops when a round changes the objective by no more than this share of it, 0 to 1; default 0: only when no
         * label changes, or after n_iter
         */
        double tolerance;
        /**
         * runs from different random starts, of which the best is kept, 1 or more; default 1. More than one needs an
         * init that draws.
         */
        size_t n_redo;
        /** of the draws; default 0. Problem p of a call draws from its own stream p + input.first_problem. */
        uint64_t seed;
        /** most rows of a cluster (n_clusters x capacity >= n); default 0: any number. For pages: see dci_kmeans. */
        size_t capacity;
        /**
         * rows are clustered in consecutive segments of this many (rounded up to a multiple of 32; RetroInfer: 8,192),
         * each into its share of the clusters; default 0: all at once. Needs init RANDOM, PLUSPLUS or EVEN. The last
         * assignment is over all clusters, so result.means are then RetroInfer's.
         */
        size_t segment_rows;
        /** segments only: most rounds over all rows after those within segments; default 0 */
        size_t n_iter_global;
} dci_kmeans_config;

/** Fills every byte of `config` with defaults. struct_size: sizeof(dci_kmeans_config). */
DCI_API dci_status dci_kmeans_config_init(dci_kmeans_config *config, size_t struct_size);

/** What to cluster. Prepare with dci_kmeans_input_init. All arrays stay the caller's and are only read. */
typedef struct dci_kmeans_input {
        size_t struct_size;
        /** independent problems of the same shape, such as the kv heads of a layer; default 1 */
        size_t n_problems;
        size_t n; /**< rows of each problem, 1 to 2^31 - 64 */
        /**
         * row i of problem p begins at element p * problem_ld + i * ld of config.dtype. Refused: NaN, infinity, squared
         * norms beyond FLT_MAX / 256 (the message names problem and row), and, under COSINE, rows without direction
         * unless kept.
         */
        const void *rows;
        size_t ld; /**< elements from a row to the next, dim or more; 0 (default): dim */
        /**
         * elements from a problem to the next; 0 (default): n * ld. Rows of token-major caches have ld = n_problems *
         * dim and problem_ld = dim.
         */
        size_t problem_ld;
        /**
         * INIT_GIVEN: n_problems x n_clusters x dim, finite; the subtracted mean is already taken from them, as it is
         * from result.centroids; under COSINE not zero, of any length
         */
        const float *centroids;
        const float *means; /**< MEAN_GIVEN: n_problems x dim, finite */
        /**
         * further rows to be added up by cluster, refused like the clustered ones if they hold NaN or infinity, or
         * their squared norm exceeds FLT_MAX; NULL (default): none
         */
        const void *values;
        size_t value_dim;        /**< elements of a value, 1 to DCI_MAX_DIM */
        dci_dtype value_dtype;   /**< default DCI_F32 */
        int32_t reserved;        /**< zero */
        size_t value_ld;         /**< as ld; 0 (default): value_dim */
        size_t value_problem_ld; /**< as problem_ld; 0 (default): n * value_ld */
        /*
         * Clusters of further rows: result.ids and result.offsets count rows from first_row, result.labels clusters
         * from first_cluster, so that new results are appended to the old, which never change.
         */
        size_t first_row;     /**< default 0; first_row + n <= 2^31 - 64 */
        size_t first_cluster; /**< default 0; first_cluster + n_clusters <= 2^31 - 64 */
        /** number of problem 0 among those of several calls, for its random stream; default 0 */
        size_t first_problem;
} dci_kmeans_input;

/** Zeroes `input` but for its defaults. struct_size: sizeof(dci_kmeans_input). */
DCI_API dci_status dci_kmeans_input_init(dci_kmeans_input *input, size_t struct_size);

/** Why rounds ended. */
enum {
        /** after n_iter */
        DCI_KMEANS_STOP_ROUNDS = 1,
        /** no label changed */
        DCI_KMEANS_STOP_STABLE = 2,
        /** the objective changed by no more than the tolerance */
        DCI_KMEANS_STOP_TOLERANCE = 3
};

/**
 * One round. The objective is that of its assignment to the centroids before it: under COSINE the sum over rows of the
 * cosine to the own centroid, under IP of the inner product (more is better), under L2 of the squared distance (less is
 * better).
 */
typedef struct dci_kmeans_round {
        double objective;
        double seconds; /**< since the call began on this problem */
        /**
         * rows whose label is not that of the round before; all in the first. With segments, in the first over all rows
         * those that leave the cluster of their segment, and those whose segment has none
         */
        size_t n_moved;
        size_t n_empty; /**< clusters that the assignment left empty */
} dci_kmeans_round;

/** What happened to one problem. Prepare with dci_kmeans_report_init. */
typedef struct dci_kmeans_report {
        size_t struct_size;
        double objective; /**< of the labels and centroids returned */
        /** the same without the capacity: every row with its nearest centroid. objective, if there is none */
        double objective_free;
        /** of the run that was kept; with segments, of the one that took most plus those over all rows */
        size_t n_rounds;
        size_t n_empty;    /**< clusters without rows in the result */
        size_t n_repaired; /**< empty clusters that were given a row, in all rounds of the run */
        size_t largest;    /**< rows of the largest cluster */
        double seconds;    /**< of the problem, in all */
        int32_t stop;      /**< DCI_KMEANS_STOP_... */
        int32_t best_redo; /**< the run that was kept, from 0 */
        /**
         * the caller's, or NULL: the rounds of the run kept (with segments, those over all rows), at most rounds_room
         * of them
         */
        dci_kmeans_round *rounds;
        size_t rounds_room;
        size_t n_recorded; /**< rounds written there */
} dci_kmeans_report;

/** Zeroes `report`. struct_size: sizeof(dci_kmeans_report). */
DCI_API dci_status dci_kmeans_report_init(dci_kmeans_report *report, size_t struct_size);

/**
 * Where results go: the caller's arrays, each of them or NULL; problem after problem. Prepare with
 * dci_kmeans_result_init.
 */
typedef struct dci_kmeans_result {
        size_t struct_size;
        int32_t *labels; /**< n: first_cluster + the number of the row's cluster */
        /**
         * n_clusters x dim: what labels were decided by (unit length for DCI_CENTROID_UNIT), the subtracted mean not
         * added back
         */
        float *centroids;
        /**
         * n_clusters x dim: means of the rows of each cluster as they were given; of an empty one its centroid, with
         * the subtracted mean added back
         */
        float *means;
        int32_t *sizes; /**< n_clusters: rows of each */
        /** n_clusters + 1: where the rows of each cluster begin in ids, plus first_row; the last is first_row + n */
        int32_t *offsets;
        int32_t *ids; /**< n: first_row + the number of a row; by cluster, ascending within one (CSR) */
        /** n_clusters x value_dim: sums of the values of each cluster's rows; needs input.values */
        float *value_sums;
        /** dim: what was subtracted from rows (zeros for DCI_MEAN_NONE): input.means of a later call */
        float *row_means;
        dci_kmeans_report *reports; /**< n_problems, each prepared */
} dci_kmeans_result;

/** Zeroes `result`. struct_size: sizeof(dci_kmeans_result). */
DCI_API dci_status dci_kmeans_result_init(dci_kmeans_result *result, size_t struct_size);

/**
 * Clusters.
 *
 * What a round is: every row goes to its nearest centroid (Lloyd's assignment); clusters left without rows are
 * repaired; every centroid becomes the mean of its rows. After the last round rows are assigned once more, so that each
 * label names the nearest of the centroids returned, equal ones by lower number; with a `capacity`, the one the
 * balanced assignment chose.
 *
 * Empty clusters are repaired before means are taken: each, in ascending order, gets the row that fits its own cluster
 * worst (equal ones by lower number) of those whose cluster keeps another row, unless that row equals its centroid. So
 * the objective does not get worse, and clusters of identical rows stay empty instead of being repaired forever. If the
 * last assignment leaves a cluster empty, it is repaired - its centroid is then a row - and rows are assigned again, a
 * few times at most; report.n_empty counts the rest. The centroid of an empty cluster stays where it was.
 *
 * config, input   as above. Refused: n_clusters 0 or more than n, sizes that overflow, a capacity that does not hold
 *                 the rows, and, when their problem is reached, bad rows (the first problem that has one, and its first
 *                 bad row, are named).
 * progress        NULL, or reports in rounds of all problems and runs, repeated within a round, so that a long one can
 *                 be cancelled; where problems run concurrently, when each is done. Rounds that were not needed are
 *                 done at the problem's end.
 * result          at least one array.
 *
 * Cost: O(rounds n n_clusters dim) as tiles of products, far less per round than that many separate ones; means O(n
 * dim) per round. Capacity (config.capacity < n): the n_iter rounds run with fewer clusters (input.centroids: with all
 * of them). Clusters that are too full are then divided by likeness, two means within the cluster, again and again; the
 * smallest parts beyond n_clusters lose their centroid. Three rounds follow in which a cluster that is too full keeps
 * the rows that fit best, and the others go, round by round, to the nearest cluster with room, which admits those that
 * fit best. A label then need not name the nearest centroid: report.objective_free shows the cost. Recorded rounds are
 * those before the division. n_iter 0: the rows are assigned to the first centroids within the capacity. With segments
 * it holds for the result, too. A slack, n_clusters * capacity / n, of 1.5 or more keeps pages coherent
 * (docs/clustering.md); it takes about one and a half times the time without a capacity.
 *
 * Memory while it runs, in bytes, per problem at work (one, or one per thread): n (8 dim + 40), for k clusters k (8 dim
 * + 24) - with AMX tiles n (6 dim + 40) and k (10 dim + 24), dim rounded up to a multiple of 32 for 2 dim of both -,
 * and per thread less than 512 KiB + 320 x the longer of dim and value_dim. DCI_CENTROID_MEAN takes 8 k dim more,
 * n_redo > 1 takes 4 n + 4 k dim (with DCI_CENTROID_MEAN 4 n + 8 k dim), DCI_MEAN_OWN n dim / 64, a capacity 12 n, and
 * 1 KiB x dim per thread; a round that a report has room for 32, or 64 with n_redo > 1. Never n x k.
 *
 * Source: Lloyd 1982; Dhillon and Modha 2001 (spherical); ClusterKV (2024), RetroInfer (2025) as docs/clustering.md
 * restates them.
 */
DCI_API dci_status dci_kmeans(dci_context *context, const dci_kmeans_config *config, const dci_kmeans_input *input,
                              const dci_progress *progress, const dci_kmeans_result *result);

/**
 * Checks a result against what any result must be: labels in range and equal to what offsets and ids say, ids a
 * permutation of the rows and ascending within clusters, sizes and offsets that agree, no cluster beyond the capacity,
 * no centroid or mean that is NaN or infinite, no centroid that is zero under COSINE. Arrays that are NULL are skipped,
 * and of the input only sizes are read. For results that come back from disk or another program.
 *
 * DCI_ERR_FORMAT with a sentence that names problem, array, place and both values; DCI_ERR_MEMORY for n_clusters x 4 +
 * n / 8 bytes.
 * Cost: O(n + n_clusters dim).
 */
DCI_API dci_status dci_kmeans_check(dci_context *context, const dci_kmeans_config *config,
                                    const dci_kmeans_input *input, const dci_kmeans_result *result);

#ifdef __cplusplus
}
#endif
#endif
