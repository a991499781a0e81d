/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/**
 * @file index.h
 * An index answers "which k stored rows score highest for this row".
 *
 *      dci_index_create                    a kind, a metric, formats
 *      dci_index_add, dci_index_remove     rows by their ids, at any time, while others search; also dci_index_append,
 *                                          dci_index_upsert, dci_index_replace, dci_index_remove_present,
 *                                          dci_index_clear
 *      dci_index_tune, dci_index_fit       once there are rows: an effort for a recall, codes for such queries
 *      dci_index_search                    or dci_index_search_group, dci_index_range_search
 *      dci_index_save, dci_index_load      in file.h
 *      dci_index_destroy
 *
 * Limits, beyond which calls fail:
 *      rows                    DCI_MAX_ROWS; ids 0 to 2^63 - 2
 *      elements of a row       DCI_MAX_DIM, with sketch_bits DCI_SKETCH_MAX_DIM
 *      simple indices          DCI_MAX_SIMPLE_INDICES
 *      numbers                 no NaN or infinity; squared norm of a row or query FLT_MAX / 8 (about 6.5e18 in length),
 *                              beyond which squared distances overflow; the message names the row
 *      k, and n_queries * k    2^24, 2^40; queries of a group: DCI_MAX_GROUP
 */
#ifndef DCI_INDEX_H
#define DCI_INDEX_H

#include "dci/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/** How rows are found. */
typedef int32_t dci_index_kind;
enum {
        /** every row is scored: exact, no build, the measure of all other kinds */
        DCI_KIND_FLAT = 1,
        /**
         * Prioritized DCI (Li and Malik 2017): rows are ranked by their projections on random directions, and the best
         * ranked are scored; exact at full effort
         */
        DCI_KIND_PDCI = 2,
        /**
         * Multi-level DCI (Mao et al. 2026, "IceCache", algorithms 2 to 4): a tree of randomly promoted rows. Every row
         * belongs to the cell of the promoted row nearest to it, a search opens the best cells; rows come and go at any
         * time; exact at full effort
         */
        DCI_KIND_MDCI = 3,
        /**
         * one of the others, by the number of rows, and changed as that changes: FLAT, then FLAT with codes, then MDCI
         * with codes (dci_index_add has the rule)
         */
        DCI_KIND_AUTO = 4
};

/** Who owns the memory of the rows. */
enum {
        /** add copies the rows */
        DCI_ROWS_OWNED = 0,
        /**
         * add remembers where they are: the caller keeps them, unchanged, until they are removed or the index is
         * destroyed. 8 bytes per row instead of a copy; rows need only the alignment of their elements.
         */
        DCI_ROWS_BORROWED = 1
};

/** Most simple indices of all composite indices together. */
#define DCI_MAX_SIMPLE_INDICES ((size_t)4096)

/** Most rows of one index (slots are int32). */
#define DCI_MAX_ROWS (((size_t)1 << 31) - 64)

/** What to create an index with. Prepare with dci_index_config_init. */
typedef struct dci_index_config {
        size_t struct_size;
        size_t dim;          /**< elements per row, 1 to DCI_MAX_DIM; no default */
        dci_index_kind kind; /**< default DCI_KIND_FLAT */
        dci_metric metric;   /**< default DCI_METRIC_L2 */
        dci_dtype dtype;     /**< rows as stored; default DCI_F32. DCI_I8 and DCI_U8 take a quarter of that. */
        /**
         * rows as passed to add; 0 (default): dtype. Converted by rounding to nearest even; a value that overflows is
         * refused, and with dtype DCI_I8 and DCI_U8 one that is not an integer in their range. BORROWED needs dtype.
         */
        dci_dtype add_dtype;
        /**
         * queries as passed to search; 0 (default): dtype. Queries are never rounded: any format goes with any dtype,
         * such as DCI_F32 with rows of DCI_U8.
         */
        dci_dtype query_dtype;
        int32_t storage; /**< DCI_ROWS_OWNED (default) or DCI_ROWS_BORROWED */
        /**
         * COSINE only: DCI_ZERO_REFUSE (default) or DCI_ZERO_KEEP, see transform.h; a row or query shorter than 2^-40
         * counts as zero
         */
        int32_t zero_rows;
        /**
         * bits per element of the codes that rank rows before they are scored (sketch.h): 1, 2, 3, 4 or 8; 0 (default):
         * none. At most DCI_SKETCH_MAX_DIM elements; MDCI: page_rows 16 or more. AUTO: of the codes where it takes
         * some, 0: 4; none beyond DCI_SKETCH_MAX_DIM elements. What codes find does not depend on where the origin is:
         * rows and queries are taken relative to centres that the index chooses (docs/sketches.md).
         */
        int32_t sketch_bits;
        /** PDCI: composite indices, 1 or more; default 2. Each proposes its own candidates. */
        size_t num_comp_indices;
        /**
         * PDCI: simple indices of each composite index, 1 or more; default 7. One simple index is one random unit
         * direction and costs 4 bytes per row. At most DCI_MAX_SIMPLE_INDICES in all.
         */
        size_t num_simp_indices;
        /**
         * PDCI, MDCI, AUTO: of the directions and promotions; default 0. The same seed gives the same ones everywhere.
         */
        uint64_t seed;
        /**
         * MDCI, AUTO: chance of a row to become a node of the lowest level, [0.001, 0.5]; default 0.035 (published
         * runs: 0.03, 0.01). It is drawn from seed and id, so the order of adds has no part in it.
         */
        double promotion_prob;
        /** MDCI, AUTO: chance of a node to become one of the next level, [0.001, 0.5]; default 0.2 */
        double promotion_prob_subseq;
        /**
         * MDCI, AUTO: rows of a page, a power of two from 4 to 256; default 16. Cells are made of whole pages. AUTO: 16
         * or more, as with sketch_bits.
         */
        size_t page_rows;
        /**
         * MDCI, AUTO: another level is built above one of more nodes than this, 1 or more; default 4096: up to there,
         * ranking all nodes costs less than the misses of a further level.
         */
        size_t top_nodes;
        /**
         * MDCI: simple indices by which P-DCI ranks the rows of the opened cells, at most DCI_MAX_SIMPLE_INDICES;
         * default 0: all rows of an opened cell are scored, which is faster. AUTO: 0.
         */
        size_t cell_simp_indices;
        size_t reserved; /**< zero */
        /**
         * (0, 1], default 0.95: the share of the k best rows that a search finds when it says nothing else (params
         * NULL), see dci_search_params. Adds and removes keep the index calibrated for that; 1: exact, and they do not.
         * FLAT without codes is always exact. Callers with the struct of 0.1.0 get full effort, as they always did.
         */
        double target_recall;
} dci_index_config;

/** Fills every byte of `config` with defaults. struct_size: sizeof(dci_index_config). */
DCI_API dci_status dci_index_config_init(dci_index_config *config, size_t struct_size);

/**
 * An index: rows, their ids, and what finds them.
 *
 * Threads: searches may run concurrently, with one add or reserve as well: a batch is prepared outside the lock and
 * published under a short writer lock, so a search sees all of a batch or none. Adds, removes, reserves and fits queue
 * up among themselves, and saves, checks and dci_index_memory with them, so each of these may wait for a whole add or
 * fit. A remove waits for running searches, and so do the last step of an upsert and a clear. Destroy must be the last
 * call.
 * One parallel region per call, none for small work; adding with sketch_bits takes two, building a tree one per phase,
 * calibrating three, dci_index_tune one per setting tried. Results are the same bits at any thread count.
 */
typedef struct dci_index dci_index;

/** Creates an empty index. context NULL is refused. The index keeps the context alive. */
DCI_API dci_status dci_index_create(dci_context *context, const dci_index_config *config, dci_index **out_index);

/** Frees the index. No other call may be running on it. NULL is allowed. */
DCI_API void dci_index_destroy(dci_index *index);

/**
 * What the index was created with, 0 replaced by what it stands for: add_dtype and query_dtype are set, and an index
 * that was loaded is OWNED. AUTO: kind and sketch_bits are those in use, and may change with any add or remove.
 * out_config: prepared with dci_index_config_init.
 */
DCI_API dci_status dci_index_get_config(const dci_index *index, dci_index_config *out_config);

/** 1 for an index that was created with kind AUTO, loaded ones among them; 0 for others and for NULL. */
DCI_API int32_t dci_index_is_auto(const dci_index *index);

/** Rows in the index; 0 for NULL. */
DCI_API size_t dci_index_count(const dci_index *index);

/** One more than the largest id ever used: the id that dci_index_add with ids NULL gives next. 0 for NULL. */
DCI_API int64_t dci_index_next_id(const dci_index *index);

/** out_there[i] = 1 if row ids[i] is in the index, else 0. Any id may be asked for. O(1) each. */
DCI_API dci_status dci_index_contains(const dci_index *index, size_t n, const int64_t *ids, uint8_t *out_there);

/**
 * Takes memory so that the index holds n_rows rows in all without another allocation for rows. Never shrinks. MDCI: as
 * long as its pages are two thirds full or more; cells of few rows in large pages take more. An add that rebuilds the
 * tree, or changes the kind (AUTO), keeps as much, and takes it a second time meanwhile.
 */
DCI_API dci_status dci_index_reserve(dci_index *index, size_t n_rows);

/**
 * Adds rows, all or none.
 *
 * n          rows; 0 does nothing.
 * rows       n x dim of add_dtype, ld apart (ld >= dim).
 * ids        n distinct ids >= 0 that are not in the index; NULL: consecutive from one more than the largest id ever
 *            used (0 in a new index), so that an id is never reused by itself.
 * progress   NULL, or reports in rows. The last report comes when nothing is left but to make the rows visible (MDCI: and
 *            to enter them): a call that it stops has changed nothing, and afterwards none can be stopped.
 *
 * Errors: DCI_ERR_NUMBER (row named), DCI_ERR_EXISTS (id named), DCI_ERR_LIMIT, DCI_ERR_MEMORY, DCI_ERR_CANCELLED.
 * PDCI: rows are projected too, O(n dim simple indices); existing rows and projections stay as they are. Under IP, a
 * row longer than all before raises the c of the MIPS lift (transform.h; here c^2 is the power of two at or above the
 * largest squared norm ever added, so it does not depend on the order of adds): lifts are computed from norms when a
 * search begins, so that costs nothing and the results are those of an index built with the larger c.
 * MDCI: each row goes to the cell of the node nearest to it among all (by the metric's distance; under IP that of the
 * lifted rows, cosine's for COSINE); a promoted one draws those rows of the nearest cells that are nearer to it. Places
 * are found while searches run, and the rows enter them while none runs (microseconds for a page of rows). What moves
 * every row - a batch of a quarter of the index or more, a longer row under IP that raises c^2, reclaiming memory after
 * removals - is built separately, O(n nodes dim) as tiles of matrix products, and swapped in.
 * AUTO: FLAT up to 1 MiB of rows, at least 2,000 rows and at most 10,000; then FLAT with codes; MDCI with codes from
 * 8,000,000 / (dim + 64) rows on, at least 20,000:
 *
 *      dim                                 16      32      64     128     256     768
 *      with codes from (F32, rows)     10,000   8,192   4,096   2,048   2,000   2,000
 *      with codes from (F16, rows)     10,000  10,000   8,192   4,096   2,048   2,000
 *      MDCI from (rows)               100,000  83,333  62,500  41,666  25,000  20,000
 *
 * The add that brings so many builds the new kind from all rows separately, and publishes it with the batch: a search
 * sees the index before both or after both. A large batch is built at once as the kind that it needs. Meanwhile the
 * rows take memory twice. Cost for 10^5 rows on one thread: 0.01 s at dim 32, 0.04 s at 256, 0.3 s at 768 for codes;
 * 0.5 s at dim 32, 0.8 to 1 s at 64 to 256, 4.2 s at 768 for MDCI. If there is no memory for the new kind, the batch is
 * added to the present one and the next add tries again. Effort that was set or tuned for one kind stays set after a
 * change, so it is worth tuning again. docs/tuning.md says what the rule was measured on.
 * Cost: O(n dim); MDCI O(n dim nodes + dim x rows of the cells that change), the second term with no search running:
 * many equal rows are one cell. Memory grows in chunks of at most 256 KiB, or of 16 rows (with sketch_bits 32, MDCI
 * page_rows) where those are more; existing rows do not move.
 * With sketch_bits, whenever rows have grown by an eighth, an add looks at 64 rows, and if these are no longer as the
 * centres of the codes suppose, at up to 1024. If other centres would leave codes clearly less to encode, it encodes
 * all rows again while searches run and swaps the codes in: O(n dim), 9 times per row at most over all adds, and as
 * much memory as the codes take meanwhile; when that is short, codes stay as they are. Fewer than 32 rows have no codes:
 * they are scored.
 */
DCI_API dci_status dci_index_add(dci_index *index, size_t n, const void *rows, size_t ld, const int64_t *ids,
                                 const dci_progress *progress);

/**
 * dci_index_add with ids NULL, which also says the ids: the rows get *out_first_id and on. With n 0 nothing is added, and
 * *out_first_id is the id of the next row.
 */
DCI_API dci_status dci_index_append(dci_index *index, size_t n, const void *rows, size_t ld,
                                    const dci_progress *progress, int64_t *out_first_id);

/**
 * Adds rows, and replaces those whose ids are in the index, all or none, in one publication: a concurrent search sees
 * all of the old rows or all of the new ones, and no id is missing meanwhile. On any error nothing has changed.
 *
 * ids        n distinct ids >= 0; NULL is refused. Otherwise as dci_index_add, whose errors these are; DCI_ERR_EXISTS:
 *            an id comes twice. n and the rows there are must be at most DCI_MAX_ROWS together.
 *
 * BORROWED: once the call has returned, the memory of replaced rows is not read any more.
 * Rows are copied, projected and encoded while searches run, in memory for n more rows, which is given back; then, with
 * no search running, those that replace others are moved to their places. PDCI: c^2 counts replaced rows as it does
 * removed ones. MDCI: one new version, whatever goes and comes. Rows leave their cells as dci_index_remove says and
 * come as dci_index_add says; a promoted row stays promoted, so its node goes and comes again where the new row is.
 * What moves every row - as in dci_index_add, or when all nodes of a level are replaced - rebuilds the tree.
 * Cost: that of adding all n rows; MDCI also that of removing those that are replaced. With no search running: O(m dim)
 * for m replaced rows; with sketch_bits up to 32 rows are encoded then for each replaced one, where the code centre of
 * the old place does not suit the new row; MDCI as add and remove.
 */
DCI_API dci_status dci_index_upsert(dci_index *index, size_t n, const void *rows, size_t ld, const int64_t *ids,
                                    const dci_progress *progress);

/** dci_index_upsert of ids that are all in the index; one that is not is DCI_ERR_NOT_FOUND (id named). */
DCI_API dci_status dci_index_replace(dci_index *index, size_t n, const void *rows, size_t ld, const int64_t *ids,
                                     const dci_progress *progress);

/**
 * Removes rows, all or none. n 0 does nothing. An id that is not in the index is DCI_ERR_NOT_FOUND, one named twice is
 * DCI_ERR_EXISTS. The last rows move into the gaps and memory is given back when a chunk is empty; what a former
 * reserve took beyond that is given back too. Cost: O(n dim), however many rows remain.
 * MDCI: a cell's last row moves into a gap in it, so other pages stay as they are. When a promoted row goes, the rows
 * of its cell go to the nearest of the other nodes. When more than half of its pages (64 or more) are free, or a
 * quarter of the rows goes at once, the tree is rebuilt, and memory is given back then. Cost: O(n dim + nodes + dim x
 * rows of the cells that change), with no search running; O(dim nodes) for each row that loses its node.
 * AUTO: where the rows that stay are less than a quarter of what the kind in use begins with, the index is built again
 * as what they need; when memory is short it stays as it is.
 */
DCI_API dci_status dci_index_remove(dci_index *index, size_t n, const int64_t *ids);

/**
 * Removes those of the ids that are in the index; others are ignored, and so is an id that was named before. out_removed:
 * how many rows were removed; may be NULL. Otherwise as dci_index_remove, and O(n) more.
 */
DCI_API dci_status dci_index_remove_present(dci_index *index, size_t n, const int64_t *ids, size_t *out_removed);

/**
 * Removes all rows at once and gives their memory back, reserved memory too. What the index was created with, its
 * defaults, its metadata and what dci_index_fit has learned stay, and so does the next id: an id is never reused by
 * itself. As after a removal of all rows, the c of the lift stays too, and a tree has one version more. Searches wait
 * for O(chunks). Cannot fail for want of memory, but for MDCI.
 */
DCI_API dci_status dci_index_clear(dci_index *index);

/**
 * Copies rows as they are stored: out_rows is n x dim of the index's dtype, ld apart. Unknown ids are
 * DCI_ERR_NOT_FOUND.
 */
DCI_API dci_status dci_index_reconstruct(const dci_index *index, size_t n, const int64_t *ids, void *out_rows,
                                         size_t ld);

/** Writes up to `capacity` ids, ascending, and how many rows there are. out_ids may be NULL with capacity 0. */
DCI_API dci_status dci_index_ids(const dci_index *index, size_t capacity, int64_t *out_ids, size_t *out_count);

/** Which rows a search may return. */
enum {
        DCI_FILTER_NONE = 0,
        /** ids[0 .. n): ascending, distinct; ids that are not in the index are ignored */
        DCI_FILTER_IDS = 1,
        /** bit (id - first_id) of bits[], least significant first; outside [first_id, first_id + n): no */
        DCI_FILTER_BITMAP = 2,
        /** fn(ctx, id) != 0; asked once per stored row and call, on the calling thread */
        DCI_FILTER_CALLBACK = 3
};
/** Flags of a filter. */
enum {
        /** the rows that the filter would not admit: also those of ids outside a bitmap. Refused for NONE. */
        DCI_FILTER_NOT = 1
};
typedef struct dci_filter {
        size_t struct_size;
        int32_t kind;                         /**< DCI_FILTER_NONE to CALLBACK */
        int32_t flags;                        /**< 0 (default) or DCI_FILTER_NOT */
        size_t n;                             /**< ids, or bits */
        const int64_t *ids;                   /**< IDS */
        const uint64_t *bits;                 /**< BITMAP: (n + 63) / 64 words */
        int64_t first_id;                     /**< BITMAP */
        int32_t (*fn)(void *ctx, int64_t id); /**< CALLBACK */
        void *ctx;
} dci_filter;

/** Fills every byte with defaults (no filter). struct_size: sizeof(dci_filter). */
DCI_API dci_status dci_filter_init(dci_filter *filter, size_t struct_size);

/** What an index measured to know which effort a recall takes. */
enum {
        /** nothing yet: a search that asks for a recall is exact */
        DCI_CALIBRATED_NONE = 0,
        /** its own rows as queries */
        DCI_CALIBRATED_ROWS = 1,
        /** queries, passed to dci_index_tune or dci_index_fit */
        DCI_CALIBRATED_QUERIES = 2
};

/** What a search did. Filled by the call; prepare with dci_search_stats_init. */
typedef struct dci_search_stats {
        size_t struct_size;
        uint64_t queries;
        uint64_t visited;   /**< (query, row) pairs visited, by whatever arithmetic */
        uint64_t distances; /**< canonical scores computed: the "dist_comps" of benchmarks */
        /**
         * pairs ranked by cheaper arithmetic first (with codes: those whose codes were read); 0 when every pair was
         * scored canonically
         */
        uint64_t proposed;
        /**
         * distinct (query, row) pairs selected to be scored; FLAT: all rows. With a guarantee, pairs that its second
         * pass scores again count again, here and in distances
         */
        uint64_t candidates;
        double target_recall;                   /**< that the effort was chosen for; 0: the effort was given */
        double prop_to_visit, prop_to_retrieve; /**< as used: given, or chosen for the recall */
        double rerank;                          /**< the same; 0: there are no codes; INFINITY: they were not used */
        size_t field_of_view;
        int32_t calibrated_on; /**< DCI_CALIBRATED_*: what the index was calibrated on */
        int32_t reserved;
} dci_search_stats;
DCI_API dci_status dci_search_stats_init(dci_search_stats *stats, size_t struct_size);

/**
 * How well a search searches, and which rows. Prepare with dci_search_params_init.
 *
 * One field is enough: target_recall, the share of the k best rows that is found on average over queries like those that
 * the index was calibrated on. That is a sample of its own rows, once it has 1024 (below, every search by recall is
 * exact), taken again by the add or remove after which there are twice as many, or a third fewer; or queries, passed
 * to dci_index_tune or dci_index_fit, which stay. Calibrating on rows takes one exact batch search, of 192 queries
 * among all rows where they have 2^18 elements or fewer, falling to 64 queries among a quarter of the rows (MDCI
 * to 80 among all), and a look at the projections, nodes or codes for each; for 10^5 rows of 128 elements some 0.03 s
 * of one core (MDCI 0.05 s, with codes 0.08 s). Calibrating on queries takes 192 of them at most, among all rows. Where memory is short for it, the
 * former setting stays. Queries of another kind than the rows find less until the index is
 * tuned with some. (Under IP, where queries are rarely like rows, sums of rows with random signs stand for them, unless
 * all rows are of one length.) A filtered search and one of another k get what they take by the same measurement; a
 * range search gets what long lists take. The setting changes only in these calls, so that searches are repeatable.
 *
 * The other effort fields are for experts: where one of them is not 0, those that are given count, the rest mean full
 * effort, and target_recall has no part in it. They carry their published names (Prioritized DCI, Li and Malik 2017). FLAT checks their range and
 * always spends everything. PDCI: a composite index visits (row, simple index) pairs in the order of their projected
 * difference to the query, num_simp_indices * num_to_visit of them at most (k_1 of the paper), and retrieves each row
 * that it has visited in all its simple indices, num_to_retrieve of them at most (k_2); it goes on beyond both until it
 * has k. All that were retrieved are scored. Budgets are per query and composite index, shares are of the rows that the
 * filter admits, and a filtered search finds what an index of the admitted rows alone would (under IP: one with the
 * same c, which the longest row ever added decides). Equal differences are visited by lower id. Under IP a query
 * shorter than 2^-40 is ranked as if it were zero; its scores are right, but which rows a budget finds is then
 * arbitrary.
 * MDCI: all nodes of the top level are ranked by their score for the query, the best field_of_view of them are opened,
 * their children ranked, and so on down to the rows. A node's score is that of the mean of the rows beneath it
 * (algorithm 4 ranks by the promoted row, which finds less; docs/tuning.md). With cell_simp_indices, P-DCI ranks the
 * rows of all opened cells together, and prop_to_visit of the published text is called prop_to_retrieve here. A search
 * that finds fewer than k rows opens more nodes. A filter that admits no more rows than the search would visit is
 * answered exactly.
 */
typedef struct dci_search_params {
        size_t struct_size;
        /** (0, 1]: share of the rows that each composite index may visit; 0 (default): not given */
        double prop_to_visit;
        /** (0, 1]: share of the rows that each composite index may retrieve; 0 (default): not given */
        double prop_to_retrieve;
        const dci_filter *filter; /**< NULL (default): all rows */
        dci_search_stats *stats;  /**< NULL (default), or where to report; set, not added to */
        dci_progress progress;    /**< in (query, row) pairs; fn NULL (default): none */
        /** rows that each composite index may visit, in place of prop_to_visit; 0 (default): as that says */
        size_t num_to_visit;
        /** rows that each composite index may retrieve, in place of prop_to_retrieve; 0 (default) */
        size_t num_to_retrieve;
        /**
         * with sketch_bits: rows scored per row wanted: of those visited, the rerank * k best by their codes. 1 or
         * more; INFINITY: all, without codes; 0 (default): not given, or, where the effort is given by other fields, 16,
         * 8, 4, 3 and 2 at 1, 2, 3, 4 and 8 bits.
         */
        double rerank;
        /**
         * with sketch_bits: (0, 1]: go on scoring until no visited row that was not scored can be among the k best:
         * each with this probability under a random rotation, for certain at 1 and with learned codes; 0 (default):
         * off. See dci_sketch_bound.
         */
        double guarantee;
        /**
         * MDCI: nodes opened at each level; 0 (default): prop_to_visit of the lowest level's nodes, rounded up
         * (num_to_visit: as many as hold about so many rows), and four times that share, 16 at least, above it
         */
        size_t field_of_view;
        /** (0, 1], default 0.95; 1: exact, without codes. Callers with the struct of 0.1.0: full effort, see above. */
        double target_recall;
} dci_search_params;
DCI_API dci_status dci_search_params_init(dci_search_params *params, size_t struct_size);

/**
 * The index's defaults, used where a search gets params NULL: a target_recall (at first that of the config), or an effort.
 * A filter, stats or progress in `params` is refused.
 */
DCI_API dci_status dci_index_set_defaults(dci_index *index, const dci_search_params *params);
DCI_API dci_status dci_index_get_defaults(const dci_index *index, dci_search_params *out_params);

/**
 * Finds the k best rows for each query.
 *
 * n_queries    0 does nothing.
 * queries      n_queries x dim rows of query_dtype, ld apart. Refused: NaN, infinity, too large (the message names the
 *              row); under COSINE a zero query as zero_rows says.
 * k            1 <= k; more than the index holds is allowed, the rest is padded with id -1 and score NaN.
 * params       NULL for the index's defaults.
 * out_ids      n_queries x k, best first; ties by lower id.
 * out_scores   n_queries x k: squared distance (smaller is better), inner product or cosine (larger is better), as the
 *              metric says; may be NULL.
 *
 * A score is what one canonical kernel computes for (query, row) in binary32: 16 partial sums, element i to sum i mod
 * 16, each a chain of fused multiply-adds, then added pairwise. It depends neither on the batch, nor on threads, nor on
 * where the row is stored, and avx2, avx512, amx and neon give the same bits (scalar rounds each product too). Against
 * exact arithmetic, with u = 2^-24, the error is at most (dim / 16 + 6) u sum |q_i x_i| for IP, (dim / 16 + 8) u times
 * the distance for L2, and (dim / 8 + 22) u for COSINE; at scalar twice that; and dim 2^-149 where products underflow.
 * Cheaper arithmetic may propose rows in large batches; it never decides.
 * Rows of DCI_I8 and DCI_U8: a query whose elements are all integers from -128 to 127, or all from 0 to 255, whatever
 * its format, is scored exactly: the inner product or squared distance is an integer, rounded to binary32 once, and so
 * the same bits at every level. Sums of terms below 2^24 are so in an index of DCI_F32, too; beyond, where that one
 * rounds in between, the two may differ in the order of rows whose scores agree to its error. COSINE is such an inner
 * product times the inverse norms, the squares of which are sums of the same kind. Other queries are scored as against
 * rows of DCI_F32.
 *
 * Cosines are in [-1, 1]. Equal rows score exactly 1 and opposite ones -1 (rows that count as zero: 0): a score of 1 - 6 u
 * or more in size, the least that rounding leaves of theirs, becomes 1. Rows at an angle of up to 9e-4 may therefore score
 * 1, too.
 *
 * Cost (MDCI): O(nodes dim + rows of the opened cells dim) per query. Scratch: 60 bytes per node, 4 per row and O(k),
 * per thread; with cell_simp_indices 41 bytes and 4 per simple index more per row.
 * Cost (PDCI): O(n simple indices + candidates dim) per query; at full effort as FLAT. Scratch: 40 bytes per row and
 * thread.
 * Cost (with sketch_bits): O(visited rows * bits dim) with small constants, and rerank * k rows scored; up to 8 queries
 * read codes together; a query runs on one thread. Scratch: O(rerank k) per query in flight.
 * Cost (FLAT): O(n dim) per query; from 16 queries per call on, rows are ranked in tiles by the fastest arithmetic the
 * CPU has, with an error bound, and only those within the bound are scored: batches cost a fraction of single queries.
 * Rows of 8 bits and queries of integers are multiplied as bytes (VNNI, AMX-INT8, Arm's dot products; else as 16 bits).
 * Scratch (FLAT): O(dim + k) per query in flight and thread. k beyond 2^24 or n_queries * k beyond 2^40 is
 * DCI_ERR_LIMIT.
 */
DCI_API dci_status dci_index_search(const dci_index *index, size_t n_queries, const void *queries, size_t ld, size_t k,
                                    const dci_search_params *params, int64_t *out_ids, float *out_scores);

/** What a group search returns. */
enum {
        /** the k best of each query, among the rows of all nodes that the group opens */
        DCI_GROUP_EACH = 0,
        /** k rows for the whole group: the lists of its queries interleaved by rank, repeats dropped */
        DCI_GROUP_UNION = 1,
};

/**
 * Searches for groups of queries that belong together, such as the query heads that share a kv head (GQA): MDCI
 * descends once per group, opening the union of what its queries would open, and compares all queries of the group with
 * a row while it is in a register. FLAT and PDCI find what dci_index_search finds. A union is made of the lists of EACH
 * with the same k and effort.
 *
 * n_groups     0 does nothing.
 * group_size   1 to DCI_MAX_GROUP queries of each group.
 * queries      n_groups x group_size x dim rows of query_dtype, ld apart.
 * k            of each query (EACH) or of the group (UNION).
 * result       DCI_GROUP_EACH or DCI_GROUP_UNION
 * out_ids      EACH: n_groups x group_size x k, best first. UNION: n_groups x k: the best row of the first query, of
 *              the second, .., the second best of the first, .. Padded with id -1 and score NaN.
 * out_scores   of the same shape; UNION: for the query that brought the row; may be NULL.
 *
 * Otherwise as dci_index_search; the effort is that of each query. Scratch (MDCI): O(k) for each query of a group.
 * Scratch (UNION), additionally: 12 bytes per query and k; or, MDCI without codes, 12 per query of a group and 17 more
 * per row of its opened cells, per thread.
 */
#define DCI_MAX_GROUP ((size_t)8)
DCI_API dci_status dci_index_search_group(const dci_index *index, size_t n_groups, size_t group_size,
                                          const void *queries, size_t ld, size_t k, int32_t result,
                                          const dci_search_params *params, int64_t *out_ids, float *out_scores);

/** All rows within a radius, per query: query i owns ids and scores [offsets[i], offsets[i + 1]), best first. */
typedef struct dci_range_result {
        size_t struct_size;
        size_t n_queries;
        const size_t *offsets; /**< n_queries + 1 */
        const int64_t *ids;
        const float *scores;
        void *memory; /**< the library's: holds all three until dci_range_result_free */
} dci_range_result;
DCI_API dci_status dci_range_result_init(dci_range_result *result, size_t struct_size);

/**
 * Finds every row whose score is at least as good as `radius`: squared distance <= radius for L2, score >= radius for
 * IP and COSINE. radius NaN is refused; under COSINE 1 finds the rows that equal the query (dci_index_search says which
 * score 1). out_result: prepared with init, empty; owned by the caller until dci_range_result_free. Otherwise as
 * dci_index_search, but codes are not used: rerank and guarantee are only checked. PDCI below full effort finds those that
 * are among the candidates. Memory: 12 bytes per match.
 */
DCI_API dci_status dci_index_range_search(const dci_index *index, size_t n_queries, const void *queries, size_t ld,
                                          float radius, const dci_search_params *params, dci_range_result *out_result);

/** Gives the memory back and empties the result. NULL and an empty result are allowed. */
DCI_API void dci_range_result_free(dci_range_result *result);

/** Most bytes of metadata. */
#define DCI_MAX_METADATA ((size_t)1 << 20)

/**
 * Keeps a copy of the caller's bytes with the index: they are saved, loaded and mapped with it, and the library never
 * reads them. The Python package keeps a JSON object there. n_bytes: at most DCI_MAX_METADATA; 0: none, data may be
 * NULL. Waits for adds and saves. A mapped index takes them too; its file stays as it is.
 */
DCI_API dci_status dci_index_set_metadata(dci_index *index, const void *data, size_t n_bytes);

/**
 * Writes how many bytes there are, and copies them if they fit into `capacity` bytes; else nothing is copied. out may
 * be NULL with capacity 0.
 */
DCI_API dci_status dci_index_get_metadata(const dci_index *index, size_t capacity, void *out, size_t *out_bytes);

/** Bytes an index holds. */
typedef struct dci_memory_report {
        size_t struct_size;
        size_t rows;        /**< rows, used or reserved (BORROWED: the pointers to them) */
        size_t ids;         /**< ids by slot, and the map from id to slot */
        size_t norms;       /**< COSINE, IP of kind PDCI or MDCI: one float per row */
        size_t projections; /**< PDCI, MDCI: one float per row and simple index */
        /** with sketch_bits: codes, and two floats per row; L2, COSINE one more; one more for each kept direction */
        size_t codes;
        size_t other; /**< tables, the nodes of MDCI, metadata, and the object itself */
        size_t total;
} dci_memory_report;
DCI_API dci_status dci_memory_report_init(dci_memory_report *report, size_t struct_size);
DCI_API dci_status dci_index_memory(const dci_index *index, dci_memory_report *out_report);

/**
 * Fits the codes of an index with sketch_bits to queries: learns a transform from its rows and these queries (sketch.h,
 * dci_sketch_fit) and encodes all rows again; rows added later use it, too. Codes then rank better for queries like
 * these, and the bound of `guarantee` is certain.
 *
 * n_queries   1 or more, some hundred: such as the last 64 positions of a prompt, all heads of a group.
 * queries, ld as in dci_index_search.
 *
 * Errors: DCI_ERR_UNSUPPORTED without codes, DCI_ERR_LIMIT beyond DCI_SKETCH_MAX_FIT_DIM elements, DCI_ERR_NUMBER
 * for queries that are all zero or all but zero (sketch.h; L2 and COSINE: that are all at the mean of the rows), or an
 * empty index. Codes are made while searches run, and swapped in. When rows have come later that are far from those of
 * the fit (4 times the energy), an add encodes all of them without it: fit again. Cost: O(8192 dim^2 + dim^3 + n dim^2).
 */
DCI_API dci_status dci_index_fit(dci_index *index, size_t n_queries, const void *queries, size_t ld);

/**
 * The same with reports of progress, in rows encoded; NULL: none. A call that is cancelled has changed nothing. While
 * the transform is learned, before the first row is encoded, there are no reports: some seconds at 1024 elements.
 */
DCI_API dci_status dci_index_fit_with(dci_index *index, size_t n_queries, const void *queries, size_t ld,
                                      const dci_progress *progress);

/** What dci_index_tune found. Prepare with dci_tune_result_init. */
typedef struct dci_tune_result {
        size_t struct_size;
        size_t n_queries;       /**< that were measured */
        double recall;          /**< of the selected effort, on the queries that selected it */
        double recall_held_out; /**< on those that did not: what to expect of others; NaN for a single query */
        double distances;       /**< rows scored per query, on average */
        double exact_distances; /**< the same for exact search of a single query: all rows */
        size_t n_efforts;       /**< efforts tried */
        /** what was set as the index's defaults; 1 and 1: full effort */
        double prop_to_visit, prop_to_retrieve;
        double rerank; /**< with sketch_bits: the same; INFINITY: codes are not used */
        /**
         * time of one query alone with what was set, and of exact search, median; NaN where it was not measured
         * (DCI_TUNE_DISTANCES)
         */
        double seconds, exact_seconds;
        int32_t finished; /**< 0: the deadline came first, and what was set is the best that was found until then */
        int32_t reserved;
} dci_tune_result;
DCI_API dci_status dci_tune_result_init(dci_tune_result *result, size_t struct_size);

/** What dci_index_tune_with calls cheap. */
enum {
        /** the time of one query at a time, measured: medians of several runs */
        DCI_TUNE_TIME = 1,
        /** the fewest rows scored; with sketch_bits the fewest bytes of rows and codes read. The same bits every time. */
        DCI_TUNE_DISTANCES = 2
};

/** How to tune. Prepare with dci_tune_options_init. */
typedef struct dci_tune_options {
        size_t struct_size;
        int32_t cost; /**< DCI_TUNE_TIME (default) or DCI_TUNE_DISTANCES */
        int32_t reserved;
        dci_progress progress; /**< in thousandths; fn NULL (default): none. It is asked many times a second. */
        /** seconds after which the best effort so far is set, or, if there is none yet, nothing; 0 (default): none */
        double deadline;
} dci_tune_options;
DCI_API dci_status dci_tune_options_init(dci_tune_options *options, size_t struct_size);

/**
 * Finds the cheapest effort that reaches a recall on sample queries, makes it the index's default, and calibrates the
 * index on these queries, for searches that ask for another recall or k (dci_search_params).
 *
 * n_queries      1 or more, like those to come: some hundred measure a recall to about 0.01. Even-numbered ones select,
 *                odd-numbered ones check. Fewer than 16 calibrate nothing.
 * queries, ld, k as in dci_index_search.
 * target_recall  (0, 1]: share of the exact k best that are found (a row as good as the k-th counts). 1 asks for full
 *                effort.
 * options        NULL: all defaults.
 * out_result     may be NULL.
 *
 * Results are measured against exact search of the rows there are now; where nothing less reaches the target, full
 * effort is set. MDCI tunes prop_to_visit (with cell_simp_indices prop_to_retrieve too), PDCI prop_to_retrieve, FLAT is
 * always exact, AUTO tunes what the kind in use does; with codes also rerank, for FLAT rerank alone. A call that fails or
 * is cancelled has changed nothing. Searches may run concurrently; a change of the index meanwhile spoils the
 * measurement.
 * Cost: two exact and some 10 to 20 partial searches of all queries, with cell_simp_indices or sketch_bits up to about
 * 80; DCI_TUNE_TIME 8 runs of some queries for each of the best.
 */
DCI_API dci_status dci_index_tune_with(dci_index *index, size_t n_queries, const void *queries, size_t ld, size_t k,
                                       double target_recall, const dci_tune_options *options,
                                       dci_tune_result *out_result);

/** The same with DCI_TUNE_DISTANCES and no other options. */
DCI_API dci_status dci_index_tune(dci_index *index, size_t n_queries, const void *queries, size_t ld, size_t k,
                                  double target_recall, dci_tune_result *out_result);

/*
 * --- the pages of a tree: kind MDCI, refused for others with DCI_ERR_UNSUPPORTED -----------------------------------
 * AUTO: refused as well, since its tree may go; dci_index_tree_stats is answered where there is one.
 */

/**
 * A page: up to page_rows rows of one cell, contiguous in memory. It keeps its number while rows come and go; rows move
 * between pages only when a promotion or the removal of a promoted row changes what is nearest, into a gap of their own
 * cell, or when the tree is rebuilt (dci_index_add says when), and each such page is reported as changed.
 */
typedef struct dci_page {
        int32_t page;    /**< its number, below n_pages of dci_tree_stats */
        int32_t cell;    /**< number of the cell; changes when cells vanish */
        uint32_t n_rows; /**< 1 to page_rows */
        uint32_t reserved;
        uint64_t version; /**< of the index, when the page last changed */
} dci_page;

/**
 * Writes up to `capacity` pages in use, cell by cell, and how many there are. out_pages may be NULL with capacity 0.
 * O(pages).
 */
DCI_API dci_status dci_index_pages(const dci_index *index, size_t capacity, dci_page *out_pages, size_t *out_count);

/** The ids in a page: out_ids has room for page_rows, *out_count says how many there are; 0 for a page that is free. */
DCI_API dci_status dci_index_page_ids(const dci_index *index, int32_t page, int64_t *out_ids, size_t *out_count);

/**
 * The log of changes: pages whose rows have changed since `version` (0: since the index was created), ascending, free
 * ones among them; and the version now. Every add and remove that changes anything makes a new version, so a caller
 * calls, updates its copy, and calls again from *out_version. No change is lost, and the log does not grow. capacity:
 * room in out_pages; if more have changed, *out_count says so and only the first are written. O(pages).
 * Versions end at 2^63 - 1: only a file can say that an index is there, and adds and removes are DCI_ERR_LIMIT then.
 */
DCI_API dci_status dci_index_changes(const dci_index *index, uint64_t version, size_t capacity, int32_t *out_pages,
                                     size_t *out_count, uint64_t *out_version);

/** Most levels of nodes. */
#define DCI_MAX_LEVELS 16

/** The shape of a tree. Prepare with dci_tree_stats_init. */
typedef struct dci_tree_stats {
        size_t struct_size;
        size_t n_rows;
        size_t n_levels;                /**< of nodes; 0 in an empty index */
        size_t n_nodes[DCI_MAX_LEVELS]; /**< [0]: the lowest level, whose cells hold rows */
        size_t page_rows;
        size_t n_pages;                                          /**< numbers in use or free */
        size_t free_pages;                                       /**< free among them */
        double page_fill;                                        /**< rows per page in use, as a share of page_rows */
        size_t empty_cells, median_cell, p99_cell, largest_cell; /**< rows of cells */
        uint64_t version;                                        /**< see dci_index_changes */
        uint64_t rebuilds;                                       /**< how often the tree was built as a whole */
} dci_tree_stats;
DCI_API dci_status dci_tree_stats_init(dci_tree_stats *stats, size_t struct_size);
DCI_API dci_status dci_index_tree_stats(const dci_index *index, dci_tree_stats *out_stats);

#ifdef __cplusplus
}
#endif
#endif
