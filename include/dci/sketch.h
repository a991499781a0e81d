/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/**
 * @file sketch.h
 * A sketch keeps a few bits of every coordinate of rows and estimates inner products with them: what ranks keys at a
 * fraction of the bytes.
 *
 *      dci_sketch_create        bits, transform and centre
 *      dci_sketch_append        encodes rows
 *      dci_sketch_fit           learns a transform from rows and queries, for rows to come
 *      dci_sketch_search        or dci_sketch_score, dci_sketch_bound, dci_sketch_decode
 *      dci_sketch_truncate      takes the last rows back
 *      dci_sketch_destroy
 *
 * Limits: 2^31 rows of DCI_SKETCH_MAX_DIM elements (DCI_SKETCH_MAX_FIT_DIM to learn from), DCI_SKETCH_MAX_CENTRES
 * transforms and centres, n_queries * k up to 2^40, k up to 2^24.
 */
#ifndef DCI_SKETCH_H
#define DCI_SKETCH_H

#include "dci/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/** How coordinates are transformed before they are rounded, unless a transform was learned. */
enum {
        /** not at all, coordinates as they are: for rows that are random already */
        DCI_SKETCH_NONE = 1,
        /**
         * by a random rotation (randomised Hadamard transforms of any dimension, no padding). Needs no data; over the
         * choice of rotation, estimates are unbiased (Gao and Long 2024, "RaBitQ"). Levels are even steps, of a size
         * chosen for each row, at 3 bits those of Max 1960.
         */
        DCI_SKETCH_RANDOM = 2
};

/** What is subtracted from rows before. */
enum {
        /** nothing */
        DCI_CENTRE_NONE = 1,
        /**
         * the mean of the first rows appended, and from then on of the latest 32 to 1024 whenever their mean is off the
         * centre by more than a tenth of their variance, until there are DCI_SKETCH_MAX_CENTRES; a batch of 32 or more
         * is judged by itself; every block of rows names its centre
         */
        DCI_CENTRE_RUNNING = 2,
        /** the caller's */
        DCI_CENTRE_GIVEN = 3
};

/** Most elements of a row. */
#define DCI_SKETCH_MAX_DIM (((size_t)1 << 15) - 32)
/** Most elements of a row where transforms are learned: a fit takes O(dim^3). */
#define DCI_SKETCH_MAX_FIT_DIM ((size_t)1024)
/** Most transforms and centres of one sketch. */
#define DCI_SKETCH_MAX_CENTRES ((size_t)128)
/** Most queries of one pass over the codes; batches are cut into such groups. */
#define DCI_SKETCH_GROUP ((size_t)8)

typedef struct dci_sketch_config {
        size_t struct_size;
        size_t dim;                /**< elements per row, 1 to DCI_SKETCH_MAX_DIM; no default */
        dci_dtype dtype;           /**< rows as passed; default DCI_F32 */
        dci_dtype query_dtype;     /**< queries as passed; 0 (default): dtype */
        int32_t bits;              /**< per coordinate, learned: on average: 1, 2, 3, 4 (default) or 8 */
        int32_t transform;         /**< DCI_SKETCH_RANDOM (default) or DCI_SKETCH_NONE */
        int32_t centre;            /**< DCI_CENTRE_RUNNING (default), DCI_CENTRE_NONE or DCI_CENTRE_GIVEN */
        int32_t reserved;          /**< zero */
        uint64_t seed;             /**< of the rotation; default 0 */
        const float *given_centre; /**< DCI_CENTRE_GIVEN: dim floats, copied; else NULL */
} dci_sketch_config;
DCI_API dci_status dci_sketch_config_init(dci_sketch_config *config, size_t struct_size);

/**
 * The codes of a growing sequence of rows, numbered from 0.
 *
 * A row is moved by a centre, transformed, and each coordinate is rounded to one of 2^bits levels. In addition to the
 * codes a row has two floats, a scale and the length of its rounding error. A query is transformed and rounded to
 * bytes, and scores are exact integer sums of products times the scale.
 * Layout: blocks of 32 rows, lines of 64 bytes, each line 16 rows times one 32-bit word of codes
 * (src/simd/codes/codes.h), so that 1 to 8 queries read a line once. bits * dim / 8 bytes per row, dim rounded up to 8
 * coordinates at 4 bits, 16 at 2, 32 at 1 and 3, and 8 bytes for the two floats.
 * Errors: every function refuses NULL, sizes that overflow, and NaN or infinity naming the row; a call that fails
 * changes nothing that can be seen.
 * Threads: count, score, bound, search, decode and info may run concurrently; append, truncate, reserve, fit and
 * destroy must run alone. Calls share out their work through the context's executor. Same seed, calls and ISA: the same
 * bits at any thread count; answers do not depend on how queries are batched. With DCI_CENTRE_RUNNING, codes depend on
 * how rows are batched: the centre is chosen for a batch as a whole, up to 1024 rows.
 */
typedef struct dci_sketch dci_sketch;

/** Creates an empty sketch. context NULL is refused. The sketch keeps the context alive. */
DCI_API dci_status dci_sketch_create(dci_context *context, const dci_sketch_config *config, dci_sketch **out_sketch);
/** Frees the sketch. NULL is allowed. */
DCI_API void dci_sketch_destroy(dci_sketch *sketch);
/** Rows in it; 0 for NULL. */
DCI_API size_t dci_sketch_count(const dci_sketch *sketch);
/** Takes memory for n_rows rows in all. Appending without it doubles what there is. */
DCI_API dci_status dci_sketch_reserve(dci_sketch *sketch, size_t n_rows);

/**
 * Encodes rows and appends them: n x dim of dtype, ld apart; n 0 does nothing. DCI_ERR_NUMBER names a row with NaN,
 * infinity, or a squared norm beyond FLT_MAX / 8. O(n dim log dim); with a learned transform O(n dim^2).
 */
DCI_API dci_status dci_sketch_append(dci_sketch *sketch, size_t n, const void *rows, size_t ld);

/**
 * Removes all rows from number n on; n beyond the count is refused. Also removes the transforms and centres that only
 * these had, except the last one, with which later rows begin; with n 0, as in a new sketch, only what was learned and
 * a given centre stay. Bounds of the remaining rows in a truncated block of 32 may stay as wide as its longest row,
 * removed or not, has made them. O(1).
 */
DCI_API dci_status dci_sketch_truncate(dci_sketch *sketch, size_t n);

/**
 * Learns a transform, and with it a centre (the mean of `rows`, whatever the config says; it stays until the next fit),
 * that the blocks of 32 rows use that begin from now on; existing codes keep their transform and stay valid. It is
 * transform coding weighted by the queries' second moment: bits go where they matter for queries like these. More of
 * the best rows are among those ranked first at 1 and 2 bits, sometimes at 3 and 4, never at 8 (docs/sketches.md).
 * Estimates of learned codes are drawn towards the mean of what they learned from, so they are not unbiased.
 *
 * rows       n x dim of dtype, ld apart, n >= 1: rows like those to come; at most 8192 of them, evenly spread, are
 *            used.
 * queries    n_queries x dim of query_dtype, query_ld apart, n_queries >= 1: queries like those to come, such as the
 *            last 64 positions of a prompt, all heads of a group.
 *
 * Errors: DCI_ERR_LIMIT beyond DCI_SKETCH_MAX_FIT_DIM, or when there are DCI_SKETCH_MAX_CENTRES transforms and centres;
 * DCI_ERR_NUMBER for queries that are all zero, or so short (below some 1e-21) that their squares vanish, and for rows
 * so short or so long (deviations below some 1e-11 or above 1e15) that a transform of them would overflow. To encode
 * rows again, which also ranks better than a mix of codes of several transforms, truncate and append them. O(8192 dim^2
 * + dim^3), on the calling thread; about 4 ms at dim 64.
 */
DCI_API dci_status dci_sketch_fit(dci_sketch *sketch, size_t n, const void *rows, size_t ld, size_t n_queries,
                                  const void *queries, size_t query_ld);

/**
 * Estimates inner products of queries (n_queries x dim of query_dtype, ld apart) with rows [first, first + n):
 * out_scores[q * out_ld + i] for row first + i, out_ld >= n. Rows beyond the count are refused.
 * Cost: O(n bits) per query; queries share the reading of codes in groups of DCI_SKETCH_GROUP.
 */
DCI_API dci_status dci_sketch_score(const dci_sketch *sketch, size_t n_queries, const void *queries, size_t ld,
                                    size_t first, size_t n, float *out_scores, size_t out_ld);

/**
 * Bounds the errors of those estimates, in the same layout.
 *
 * probability   1: for certain, |query| times the length of the row's rounding error, plus the error of rounding the
 *               query, both measured in the transform's own coordinates. Below 1, (0, 1): for each row and query with
 *               this probability over the choice of a random rotation, a share of about sqrt(2 log(2 / (1 -
 *               probability)) / dim) of the first part; rows coded by a learned transform or none keep the certain
 *               bound.
 */
DCI_API dci_status dci_sketch_bound(const dci_sketch *sketch, size_t n_queries, const void *queries, size_t ld,
                                    size_t first, size_t n, double probability, float *out_bounds, size_t out_ld);

/**
 * The k rows of the highest estimates for each query, in one pass over the codes: out_rows n_queries x k, best first,
 * ties by lower number, padded with -1; out_scores of the same shape, padded with NaN, may be NULL. 1 <= k <= 2^24.
 */
DCI_API dci_status dci_sketch_search(const dci_sketch *sketch, size_t n_queries, const void *queries, size_t ld,
                                     size_t k, int64_t *out_rows, float *out_scores);

/**
 * Decodes rows: rows[i] (a number below the count) to out + i * ld, dim floats. DCI_ERR_LIMIT where n * ld floats
 * overflow. O(dim log dim) each; learned O(dim^2).
 */
DCI_API dci_status dci_sketch_decode(const dci_sketch *sketch, size_t n, const int64_t *rows, float *out, size_t ld);

/** Figures of a sketch. Prepare with dci_sketch_info_init. */
typedef struct dci_sketch_info {
        size_t struct_size;
        size_t n_rows;
        size_t bytes;     /**< of memory, in all */
        size_t row_bytes; /**< of a row's codes and its two floats */
        /**
         * that there have been, without what dci_sketch_truncate forgot: the config's, once there are rows, and one per
         * fit
         */
        size_t transforms;
        size_t centres; /**< pairs of a transform and a centre that there have been, likewise */
        /**
         * mean squared distortion of the last 1024 rows, as a share of that of the first 1024 rows that use the last
         * transform; well above 1 (say 1.5): fit again. Infinite where only the last rows have any, 1 where none have.
         * NaN without rows.
         */
        double drift;
        /** the instructions that score: "avx512 vnni", "avx512", "avx2", "neon dot", "neon" or "scalar" */
        const char *isa;
} dci_sketch_info;
DCI_API dci_status dci_sketch_info_init(dci_sketch_info *info, size_t struct_size);
DCI_API dci_status dci_sketch_get_info(const dci_sketch *sketch, dci_sketch_info *out_info);

#ifdef __cplusplus
}
#endif
#endif
