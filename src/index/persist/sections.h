/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Saving and loading: the state of one call, and sections in and out. docs/format.md has the bytes. What each kind adds is one row of the
 * table in persist/kinds.c.
 */
#ifndef DCI_INDEX_PERSIST_SECTIONS_H
#define DCI_INDEX_PERSIST_SECTIONS_H

#include "core/file.h"
#include "dci/file.h"
#include "index/index_internal.h"

#define DCI_INDEX_FILE_KIND UINT32_C(0x58444e49) /* "INDX" */
#define DCI_INDEX_FILE_VERSION UINT32_C(1)

/* The section "config": 128 bytes for all kinds, then 128 of the kind's own, zero where it has no use for them. */
#define DCI_CONFIG_COMMON 128
#define DCI_CONFIG_OWN 128
#define DCI_CONFIG_BYTES (DCI_CONFIG_COMMON + DCI_CONFIG_OWN)

/* The section "effort". */
#define DCI_EFFORT_BYTES (32 + DCI_EFFORT_LENGTHS * DCI_EFFORT_RECALLS * 8)

/* One save. The index's writers are held off from the beginning to the end. */
typedef struct dci_saving {
        const dci_index *index;
        dci_view view;
        unsigned char config[DCI_CONFIG_BYTES];
        unsigned char effort[DCI_EFFORT_BYTES];
        size_t n_parts;
        dci_part parts[24];
} dci_saving;

/* Appends a section; emit's ctx will be the dci_saving. */
void dci_saving_add(dci_saving *saving, const char *name, size_t n_bytes,
                    dci_status (*emit)(const void *ctx, const dci_sink *sink));

/* Writes n things of `size` bytes of a chunk, zeros in the place of those of empty slots, which hold leftovers. */
dci_status dci_saving_emit(const dci_saving *saving, const dci_chunk *chunk, const void *things, size_t n, size_t size,
                           const dci_sink *sink);
dci_status dci_saving_emit_zeros(size_t n_bytes, const dci_sink *sink);

/* Rows that chunk number `chunk` contributes to the view. */
size_t dci_saving_chunk_rows(const dci_saving *saving, size_t chunk);

/* Of kind MDCI: what the file says of its tree, and its sections. */
typedef struct dci_loading_tree {
        size_t n_live, n_levels, n_pages, n_pages_ever, n_free, n_items, total_nodes, n_nodes[DCI_MAX_LEVELS];
        uint64_t version, built_version, n_builds;
        int64_t lone_id;
        const void *mean, *versions, *free_pages, *levels, *nodes, *counts, *items;
} dci_loading_tree;

/* With sketch_bits: what the file says of codes. */
typedef struct dci_loading_codes {
        bool learns;
        bool is_old; /* of before frames were relative: the rows are encoded again */
        size_t n_frames, n_kept;
        const void *frames, *relative, *centres, *learned, *pending, *blocks, *scales, *squares, *kept, *by_block;
} dci_loading_codes;

/* One load. */
typedef struct dci_loading {
        const dci_file *file;
        dci_index_config config;
        dci_search_params defaults;
        const unsigned char *own; /* the kind's part of the config */
        size_t n;                 /* slots; MDCI: some are empty */
        int64_t next_id;
        float c_squared;
        dci_loading_tree tree;
        dci_loading_codes codes;
        dci_calibration calibration;
        dci_automatic automatic; /* on if the file says so */
        dci_rows shape;          /* the shape of rows of this config: row_bytes, with_norms, n_simple */
        dci_rows_parts parts;    /* in the file */
        const void *metadata;
        size_t metadata_bytes;
        uint64_t taken;   /* bits of the file's sections that were asked for */
        dci_index *index; /* from `accept` on: rows, ids, norms and projections are in place, but not yet checked */
        dci_view view;
} dci_loading;

/* The data of a section that must have exactly count * size bytes. Refuses with DCI_ERR_FORMAT. */
dci_status dci_loading_read(dci_loading *loading, const char *name, size_t count, size_t size, const void **out_data);
/* The same for any number of things. */
dci_status dci_loading_read_any(dci_loading *loading, const char *name, size_t size, const void **out_data,
                                size_t *out_count);
bool dci_loading_has(const dci_loading *loading, const char *name);

/* Directions are drawn from a seed of 8 bytes: what that may cost for a file of n_bytes. */
bool dci_directions_are_in_proportion(const dci_index_config *config, size_t n_bytes);

/* The kind's own bytes of a config from `first` on, which have no meaning yet, are zero. */
dci_status dci_check_unused(const unsigned char own[DCI_CONFIG_OWN], size_t first);

/* Files hold the numbers as this machine has them, or it can neither write nor read them. */
dci_status dci_persist_supported(void);

/* What a kind adds to a file. Hooks may be NULL: there is nothing to do then. */
typedef struct dci_kind_format {
        dci_index_kind kind;
        /* Fields of the config and of the search defaults that only this kind has. */
        void (*write_config)(const dci_index *index, const dci_search_params *defaults,
                             unsigned char own[DCI_CONFIG_OWN]);
        /* Own bytes are zero where the hook is NULL. Values are checked later, by dci_index_config_check. */
        dci_status (*read_config)(const unsigned char own[DCI_CONFIG_OWN], dci_index_config *config,
                                  dci_search_params *defaults);
        /* Appends the kind's own sections. */
        void (*write)(dci_saving *saving);
        /* Takes the kind's own sections and checks their lengths. Allocates nothing. */
        dci_status (*find)(dci_loading *loading);
        /* Checks what they hold and gives it to loading->index. */
        dci_status (*accept)(dci_loading *loading);
} dci_kind_format;

/* NULL for a kind that is not known. */
const dci_kind_format *dci_kind_format_of(dci_index_kind kind);

/* Those of kind MDCI. */
void dci_tree_write_config(const dci_index *index, const dci_search_params *defaults,
                           unsigned char own[DCI_CONFIG_OWN]);
dci_status dci_tree_read_config(const unsigned char own[DCI_CONFIG_OWN], dci_index_config *config,
                                dci_search_params *defaults);
void dci_tree_write(dci_saving *saving);
dci_status dci_tree_find(dci_loading *loading);
dci_status dci_tree_accept(dci_loading *loading);

/* Whether what loading would compute again is in proportion to the file. */
dci_status dci_tree_check_proportion(const dci_index *index, size_t n_bytes);

/* Kind AUTO: the section that says so, and takes the config that it began with into that of the load. */
void dci_auto_write(dci_saving *saving);
dci_status dci_auto_find(dci_loading *loading);
/* What a recall takes: the section "effort", and its part of the config and the defaults. Files of 0.1.0 have none: full effort. */
void dci_effort_write(dci_saving *saving);
dci_status dci_effort_find(dci_loading *loading);

/* Codes: the steps of saving and loading, which do nothing without sketch_bits. */
void dci_codes_write(dci_saving *saving);
dci_status dci_codes_find(dci_loading *loading);
dci_status dci_codes_prepare(const dci_loading *loading);
dci_status dci_codes_place(dci_loading *loading);
dci_status dci_codes_accept(const dci_loading *loading);

#endif
