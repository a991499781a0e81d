/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What the files of an index share. Cores (dci_rows, dci_idmap, dci_flat_*) know no locks; dci_index adds them. */
#ifndef DCI_INDEX_INTERNAL_H
#define DCI_INDEX_INTERNAL_H

#include "core/internal.h"

#include <pthread.h>

#include "dci/index.h"
#include "dci/sketch.h"
#include "dci/transform.h"
#include "simd/topk.h"
#include "sketch/frames.h"

/* --- rows.c: rows by slot, in chunks that never move -------------------------------------------------------------- */

/* One allocation: rows (or pointers to borrowed rows), ids, norms and projections. */
typedef struct dci_chunk {
        void *rows;
        int64_t *ids;        /* NULL in a mapped file whose ids are the slots */
        float *norms;        /* COSINE: 1 / |row|; IP of kinds PDCI and MDCI: |row|^2; else NULL */
        float *projections;  /* PDCI, MDCI: [simple index][row]; else NULL */
        size_t capacity;     /* rows, a multiple of 16; all chunks but a lone first one have rows_per_chunk */
        size_t stride;       /* from one simple index to the next: the capacity, or the rows of a mapped file */
        void *codes;         /* memory of the area; NULL without sketches, and in a mapped file */
        dci_code_block area; /* codes of the rows, slot by slot */
} dci_chunk;

/* Places behind the chunks of published rows are filled in where they lie; a full table is replaced by one of twice the capacity, so
 * that a reader that holds the old one can finish with it. */
typedef struct dci_chunk_table {
        size_t capacity;
        dci_chunk chunk[];
} dci_chunk_table;

typedef struct dci_rows {
        dci_context *context;
        size_t dim;
        dci_dtype dtype;
        bool borrowed, with_norms;
        bool gaps;       /* slots may be empty: their id is -1 */
        bool mapped;     /* chunks lie in a file and are not freed; nothing is added or removed */
        size_t n_simple; /* projections of each row */
        size_t row_bytes;
        unsigned chunk_shift;         /* rows_per_chunk = 1 << chunk_shift */
        size_t n_chunks;              /* writers only */
        struct dci_rows_codes *codes; /* NULL: rows have none */
        _Atomic(dci_chunk_table *) table;
        atomic_size_t n; /* published rows: what is below is complete and visible */
} dci_rows;

/* What a reader sees: taken once per call, so a batch added meanwhile is seen not at all. */
typedef struct dci_view {
        const dci_rows *rows;
        const dci_chunk_table *table;
        size_t n;
} dci_view;

dci_view dci_rows_view(const dci_rows *rows);

/* Pointers to `count` rows: slots[i], or first + i when slots is NULL. */
void dci_view_pointers(const dci_view *view, size_t first, const int32_t *slots, size_t count, const void **out);
/* Owned rows that lie one behind the other from `first` on: at most `count`, in *out_run. */
const void *dci_view_run(const dci_view *view, size_t first, size_t count, size_t *out_run);
int64_t dci_view_id(const dci_view *view, int32_t slot);
/* The ids of rows that go by their position in a list of slots: a dci_slot_ids whose ctx is a dci_positions. */
typedef struct dci_positions {
        const dci_view *view;
        const int32_t *slots;
} dci_positions;
int64_t dci_position_id(const void *positions, int32_t position);
void dci_view_norms(const dci_view *view, size_t first, const int32_t *slots, size_t count, float *out);

/* An allocation that readers may still use; freed when none can. */
typedef struct dci_retired {
        struct dci_retired *next;
        void *pointer;
        size_t n_bytes;
} dci_retired;

void dci_rows_init(dci_rows *rows, dci_context *context, const dci_index_config *config);
void dci_rows_destroy(dci_rows *rows);

/* Rows that the present chunks hold. */
size_t dci_rows_capacity(const dci_rows *rows);
/* Makes room for n rows in all without publishing any. What it replaces goes to `retired`. On failure nothing changed. */
dci_status dci_rows_reserve(dci_rows *rows, size_t n, dci_retired **retired);

/* Parts of all rows as a file has them, in slot order. ids (int64), norms (float) and projections (float, [simple index][row])
 * may be NULL. */
typedef struct dci_rows_parts {
        const void *rows, *ids, *norms, *projections;
} dci_rows_parts;
/* Lets empty `rows` read n rows where they lie, aligned, without publishing any. On failure nothing changed. */
dci_status dci_rows_attach(dci_rows *rows, size_t n, const dci_rows_parts *parts);

/* Gives back all chunks beyond those that n rows need. Writers only, no readers. */
void dci_rows_shrink(dci_rows *rows, size_t n);

/* Where slot's parts are, for writers filling unpublished slots or moving rows without readers. */
dci_chunk *dci_rows_chunk(dci_rows *rows, size_t slot, size_t *out_offset);
void dci_rows_move(dci_rows *rows, size_t from, size_t to);
/* The same from other rows; borrowed ones may become owned. */
void dci_rows_copy(dci_rows *from_rows, size_t from, dci_rows *to_rows, size_t to);
/* What the two hold changes places. Writers only, no readers. */
void dci_rows_swap(dci_rows *a, dci_rows *b);
size_t dci_rows_bytes(const dci_rows *rows, dci_memory_report *report);

/* --- codes/rows.c: the codes of rows, in chunks like them ------------------------------------------------------------ */

/* Frames of the codes, and what a writer needs to encode one row. */
typedef struct dci_rows_codes {
        dci_frames frames;
        void *scratch;
        float *wide;          /* dim */
        dci_frames_mark mark; /* before the last dci_rows_follow */
} dci_rows_codes;

/* Gives empty rows codes, as the config says; nothing to do for sketch_bits 0. */
dci_status dci_rows_codes_create(dci_rows *rows, const dci_index_config *config);
void dci_rows_codes_destroy(dci_context *context, dci_rows_codes *codes);
size_t dci_rows_codes_bytes(const dci_rows *rows);

/* Room for the codes of a chunk of `capacity` rows. */
bool dci_chunk_codes_create(const dci_rows *rows, size_t capacity, dci_chunk *chunk);
void dci_chunk_codes_free(const dci_rows *rows, const dci_chunk *chunk);
/* Of the first `used` rows. */
void dci_chunk_codes_copy(const dci_rows *rows, const dci_chunk *from, size_t used, dci_chunk *to);

/* A row has come to `slot`, unseen by readers or without them: encodes it. */
void dci_rows_encode_one(dci_rows *rows, size_t slot);
/* The same for rows [first, end), shared out. Blocks that hold rows before `first` keep their frame. */
dci_status dci_rows_encode(dci_rows *rows, size_t first, size_t end);
/* Looks at a sample of rows [first, end) of `from` and begins a frame of `rows` if they ask for one. */
dci_status dci_rows_follow(dci_rows *rows, dci_rows *from, size_t first, size_t end);
/* Takes the last dci_rows_follow back, whether or not it failed: of rows that do not come after all. Without readers. */
void dci_rows_unfollow(dci_rows *rows);
/* All rows have gone, and nobody reads: what was learned stays, centres go, and those to come find codes as in a new index. */
void dci_rows_codes_restart(dci_rows *rows);
/* Begins with what the codes of other rows have learned. */
dci_status dci_rows_codes_inherit(dci_rows *rows, const dci_rows *from);
/* The unit of codes that a slot belongs to. */
DCI_INLINE dci_unit dci_view_unit(const dci_view *view, size_t unit)
{
        const unsigned shift = view->rows->chunk_shift;
        const size_t slot = unit * DCI_CODE_UNIT;
        return (dci_unit){&view->table->chunk[slot >> shift].area, (slot & (((size_t)1 << shift) - 1)) / DCI_CODE_UNIT};
}

/* --- idmap.c: id to slot ------------------------------------------------------------------------------------------- */

/* An array by id, or open addressing, linear probing, at most half full. One writer may insert beside readers; removing wants no readers. */
typedef struct dci_idmap_entry {
        _Atomic int64_t id; /* -1: empty */
        _Atomic int32_t slot;
} dci_idmap_entry;

typedef struct dci_idmap {
        size_t n, mask;           /* mask + 1 entries */
        dci_idmap_entry *entries; /* NULL if dense */
        size_t n_dense;           /* ids below this */
        _Atomic int32_t *dense;   /* -1: not there */
} dci_idmap;

/* A new map with room for n ids, all below `end`, or NULL with the error recorded. */
dci_idmap *dci_idmap_create(dci_context *context, size_t n, int64_t end);
void dci_idmap_destroy(dci_context *context, dci_idmap *map);
bool dci_idmap_has_room(const dci_idmap *map, size_t n_more, int64_t end);
/* Is it much larger than what it holds? */
bool dci_idmap_is_sparse(const dci_idmap *map);
/* What it has allocated besides itself. */
void *dci_idmap_table(const dci_idmap *map, size_t *out_bytes);
/* False, changing nothing, when the id is there already. */
bool dci_idmap_insert(dci_idmap *map, int64_t id, int32_t slot);
/* The slot, or -1. */
int32_t dci_idmap_find(const dci_idmap *map, int64_t id);
void dci_idmap_set(dci_idmap *map, int64_t id, int32_t slot);
void dci_idmap_remove(dci_idmap *map, int64_t id);
size_t dci_idmap_bytes(const dci_idmap *map);

/* --- pdci/project.c: projections on random directions -------------------------------------------------------------------- */

typedef struct dci_directions {
        size_t n, dim;
        float *vectors; /* n x dim: the first dim coordinates */
        float *weights; /* IP: the last coordinate of each, which multiplies the lift; else NULL */
} dci_directions;

/* Projections of each row. */
size_t dci_index_simple_indices(const dci_index_config *config);
/* Direction i of the config's seed: dim coordinates and, where out_weight is not NULL (IP), the last one. */
void dci_direction_draw(const dci_index_config *config, size_t i, float *out, float *out_weight);
/* As many of them as the config has simple indices. */
dci_status dci_directions_create(dci_context *context, const dci_index_config *config, dci_directions *out);
void dci_directions_destroy(dci_context *context, dci_directions *directions);
size_t dci_directions_bytes(const dci_directions *directions);

struct dci_queries;
/* Fills the projections of rows in unpublished slots [first, first + count). */
void dci_project_rows(const dci_index *index, dci_rows *rows, size_t first, size_t count);
/* Projections of one query, as P-DCI compares it: unit length under COSINE, length c under IP. */
void dci_project_query(const dci_index *index, const struct dci_queries *queries, size_t query, float c_squared,
                       float *out);
/* The c^2 of rows as long as this: powers of two, so that it depends on the longest row alone, not on the order of adds. */
float dci_lift_c_squared(float longest_norm2);

/* --- the index ------------------------------------------------------------------------------------------------------ */

struct dci_index {
        dci_context *context;
        dci_index_config config;
        dci_rows rows;

        /* Serialises add, remove, reserve. Taken first. */
        pthread_mutex_t writers;
        /* Readers hold `state` shared while they search. Add publishes without it (rows.n, rows.table, map are atomic);
         * remove and the freeing of retired memory hold it alone. `turnstile` lets a waiting writer in before new readers. */
        pthread_mutex_t turnstile;
        pthread_rwlock_t state;

        _Atomic(dci_idmap *) map; /* NULL while the id of every row is its slot */
        int64_t next_id;          /* one more than the largest id ever used */
        dci_retired *retired;

        dci_directions directions; /* PDCI */
        struct dci_tree *tree;     /* MDCI; changed by those who hold `state` alone */
        atomic_size_t n_live;      /* MDCI: rows, rows.n counts slots */

        /* IP of kinds PDCI and MDCI: c^2 of the lift, published before the rows that need it, so it suffices for all that a view sees. */
        _Atomic(float) c_squared;

        pthread_mutex_t defaults_lock;
        dci_search_params defaults;

        void *mapping; /* the file that a mapped index reads; NULL in others */
        size_t mapped_bytes;
        bool loaded; /* norms, projections and codes may be those of a machine that rounds otherwise */
};

/* lock.c part of index.c */
void dci_index_read_begin(const dci_index *index);
void dci_index_read_end(const dci_index *index);
void dci_index_exclusive_begin(dci_index *index);
void dci_index_exclusive_end(dci_index *index);
/* Frees retired memory if no reader is there right now. Called with `writers` held. */
void dci_index_collect(dci_index *index);

/* Refuses NULL and calls from inside a callback of the same object. */
dci_status dci_index_lock(const dci_index *index);

/* The same for calls that change rows: refuses a mapped index, too. */
dci_status dci_index_lock_writer(const dci_index *index);

/* A new map of all rows of a view with room for n_more, all ids below `end`; NULL with the error recorded. */
dci_idmap *dci_index_map_of(const dci_index *index, const dci_view *view, size_t n_more, int64_t end);

/* The slot of an id in a view, or -1. */
int32_t dci_index_slot(const dci_index *index, const dci_view *view, int64_t id);

/* Largest squared norm of a row or query: beyond it squared distances overflow. */
#define DCI_MAX_NORM2 (0x1.fffffep127f / 8)
/* Under COSINE, a row of smaller squared norm has no direction to speak of and counts as zero: products of two longer rows
 * keep their precision. */
#define DCI_MIN_NORM2 0x1p-80f

/* Checks one stored row or query. DCI_ERR_NUMBER names it: `what` ("row", "query") and `number`. *out_norm, unless NULL: for COSINE 1 / |row|,
 * or 0 for a zero row that may stay; else |row|^2. */
dci_status dci_check_row(const dci_index *index, dci_dtype dtype, const void *row, const char *what, size_t number,
                         float *out_norm);

/* --- search.c, filter.c, flat/flat.c, flat/batch.c, range.c -------------------------------------------------------------- */

/* Queries as the cores want them: float rows, checked. */
typedef struct dci_queries dci_queries;
struct dci_queries {
        size_t n, ld;
        const float *rows;
        float *inverse_norms; /* COSINE: 1 / |query|, 0 for a kept zero query; else NULL */
        void *owned;          /* scratch behind both */
        size_t owned_bytes;
};

dci_status dci_queries_prepare(const dci_index *index, size_t n, const void *queries, size_t ld, dci_queries *out);
void dci_queries_free(const dci_index *index, dci_queries *queries);

/* Merges params with the index's defaults and checks them. */
dci_status dci_params_resolve(const dci_index *index, const dci_search_params *params, dci_search_params *out);

/* Reports to the caller who asked for it. */
void dci_stats_set(const dci_search_params *params, const dci_search_stats *stats);

/* Slots that a filter admits. all: no filter. */
typedef struct dci_selection {
        bool all;
        bool scattered; /* slots in any order; else ascending */
        size_t n;
        int32_t *slots;
        size_t capacity;
} dci_selection;

/* The callback form is turned into a list of ids before the index is read: callbacks run with no lock held. */
typedef struct dci_admitted {
        int64_t *ids;
        size_t n, capacity;
} dci_admitted;
dci_status dci_filter_check(const dci_filter *filter);
dci_status dci_filter_test(const dci_index *index, const dci_filter *filter, dci_admitted *out);
dci_status dci_filter_select(const dci_index *index, const dci_view *view, const dci_filter *filter,
                             const dci_admitted *admitted, dci_selection *out);
/* Slots of all rows. */
dci_status dci_filter_occupied(const dci_index *index, const dci_view *view, dci_selection *out);
void dci_filter_free(const dci_index *index, dci_admitted *admitted, dci_selection *selection);

/* One exact search over a view: the flat core. */
typedef struct dci_flat {
        dci_context *context;
        const dci_kernels *kernels;
        dci_metric metric;
        dci_view view;
        dci_slot_ids ids;
        const dci_selection *selection;
        size_t n; /* rows to look at */
        const dci_queries *queries;
        const void *object; /* for callbacks */
        const dci_progress *progress;
} dci_flat;

/* Canonical scores of `count` <= DCI_TOPK_BLOCK rows (positions first .. in the selection, or `slots`) for n_queries <= 8
 * queries from `query` on: out[q * DCI_TOPK_BLOCK + i]. */
void dci_flat_score(const dci_flat *flat, size_t query, size_t n_queries, size_t first, const int32_t *slots,
                    size_t count, float *out);

/* Offers rows [begin, end) of the selection to the selections of n_queries <= 8 queries. */
void dci_flat_scan(const dci_flat *flat, size_t query, size_t n_queries, size_t begin, size_t end, dci_topk *topk);

/* Writes one query's results from sorted keys, padded to k. */
void dci_flat_emit(const dci_flat *flat, const uint64_t *keys, size_t n, size_t k, int64_t *out_ids, float *out_scores);

dci_status dci_flat_search(const dci_flat *flat, size_t k, int64_t *out_ids, float *out_scores,
                           dci_search_stats *stats);
/* For large batches; the same results. */
bool dci_flat_batch_suits(const dci_flat *flat, size_t k);
dci_status dci_flat_batch_search(const dci_flat *flat, size_t k, int64_t *out_ids, float *out_scores,
                                 dci_search_stats *stats);

/* --- codes/search.c: rows ranked by their codes first ---------------------------------------------------------------------- */

struct dci_candidates;
/* How many rows are scored per query out of n; false: all, and codes are of no use. */
bool dci_sketched_wanted(const dci_index *index, const dci_search_params *params, size_t n, size_t k, size_t *out_keep);
/* The k best of those `keep` rows of each query that rank first by their codes: of the rows that `chooser` chooses, or, if it is NULL, of
 * the selection. */
dci_status dci_sketched_search(const dci_flat *flat, struct dci_candidates *candidates, const dci_search_params *params,
                               size_t keep, size_t k, int64_t *out_ids, float *out_scores, dci_search_stats *stats);

DCI_INLINE bool dci_metric_descending(dci_metric metric)
{
        return metric != DCI_METRIC_L2;
}

/* A call that reads the index: view, filter and queries ready, the read lock held. begin fails whole; end after success. */
typedef struct dci_reading {
        dci_search_params params;
        dci_queries queries;
        dci_admitted admitted;
        dci_selection selection;
        dci_flat flat;
} dci_reading;
dci_status dci_reading_begin(const dci_index *index, size_t n_queries, const void *queries, size_t ld,
                             const dci_search_params *params, dci_reading *out);
void dci_reading_end(const dci_index *index, dci_reading *reading);
/* Lists the rows of an index with gaps, if the selection says no more than "all". */
dci_status dci_reading_name_all(const dci_index *index, dci_reading *reading);
/* The k best of each query, however the kind finds them; groups of `group` queries share what they look at. */
dci_status dci_search_kind(const dci_index *index, dci_reading *reading, size_t group, size_t k, int64_t *out_ids,
                           float *out_scores, dci_search_stats *stats);
/* Refuses what cannot be: k 0, too large, too many results; out_ids NULL. */
dci_status dci_search_check(size_t n_queries, size_t k, const int64_t *out_ids);

/* Most rows of a page (MDCI). */
#define DCI_MAX_PAGE_ROWS ((size_t)256)

/* Rows looked at by one task when fewer queries than threads share the rows out. */
#define DCI_SEGMENT_ROWS ((size_t)2048)

#endif
