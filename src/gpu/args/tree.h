/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Arguments of the kernels that plan by trees (IceCache): the search of src/kv/tree/search.c by codes, and `patch`,
 * which brings what changed in a tree to the device. Words are those of args/select.h, and
 *  - node, cell, page: of the tree (src/kv/tree/tree.h). Pages have numbers, and members by place: member i of page p is
 *    row p * 2^page_shift + i.
 *
 * A head's part of a chunk of 512 nodes:
 *      16 blocks of 32 rows of codes (args/select.h) of the means of cells, 512 scales as bf16, 512 numbers of pages in
 *      each cell as int32_t
 * and of a chunk of 512 rows:
 *      512 candidates as int32_t (INT32_MAX: the page has no such member), 16 blocks of codes of their keys, 512 scales,
 *      and for each page its node as int32_t (-1: the page is free) */
#ifndef DCI_GPU_ARGS_TREE_H
#define DCI_GPU_ARGS_TREE_H

#include "gpu/args/select.h"

#define DCI_GPU_TREE_FEWEST 30    /* nodes that a query head opens: at least, and */
#define DCI_GPU_TREE_SHARE 0.0015 /* of the candidates */

/* Where parts begin in a head's part of a chunk; codes of so many bytes in a block. */
#define DCI_GPU_TREE_BLOCK_BYTES(dim, bits) ((dim) * (bits)*4)
#define DCI_GPU_TREE_NODE_SCALES(block_bytes) (16 * (block_bytes))
#define DCI_GPU_TREE_NODE_PAGES(block_bytes) (DCI_GPU_TREE_NODE_SCALES(block_bytes) + 2 * DCI_GPU_CHUNK)
#define DCI_GPU_TREE_NODE_BYTES(block_bytes) (DCI_GPU_TREE_NODE_PAGES(block_bytes) + 4 * DCI_GPU_CHUNK)
#define DCI_GPU_TREE_CODES (4 * DCI_GPU_CHUNK)
#define DCI_GPU_TREE_SCALES(block_bytes) (DCI_GPU_TREE_CODES + 16 * (block_bytes))
#define DCI_GPU_TREE_OWNERS(block_bytes) (DCI_GPU_TREE_SCALES(block_bytes) + 2 * DCI_GPU_CHUNK)
#define DCI_GPU_TREE_PAGE_BYTES(block_bytes) (DCI_GPU_TREE_OWNERS(block_bytes) + 256)

/** Plans. Of each list that is due: every query head scores the means of all cells and opens the best field_of_view of
 * them (0: max(30, 0.0015 candidates)), those that score as the last one, too; twice as many as long as there are more
 * and the pages in cells that any head opened, of which a member is a candidate, are fewer than k = room >> page_shift.
 * All members of these pages are scored; a page counts by the best of its candidates. Each head ranks its k best pages,
 * equal ones by number. Lists are interleaved: rank by rank, of one rank the head first whose page scores most (equal
 * ones by number), pages that were taken before are left out, until k are taken.
 *
 * score: as for `score` of CODES, whose centres are zeros: so scores are the CPU's to the bit, and plans are. max_groups:
 * room for nodes, a multiple of 32; summaries: nodes; scores: of nodes.
 * parts, lanes, pool, units and n_clusters are not used.
 * select: sizes and what the list becomes, as for `select`: positions ascending, counts, sink_end, recent_begin, after;
 * or, if selection has lists, candidates of the pages as they were taken, for the plan's room. Scores, spans, found,
 * lasts and takes are not used.
 *
 * Two launches: of nodes and of pages. Chunks, counts and tables are read before the kernel that was queued just before
 * has ended, as by `score`, unless score.fresh is set. */
typedef struct dci_gpu_tree_args {
        dci_gpu_score_args score;
        dci_gpu_select_args select;
        dci_gpu_chunks pages;
        const int32_t *in_tree; /* [row][head][2]: nodes; numbers of pages */
        int32_t page_shift, field_of_view;
        int32_t page_parts;    /* blocks that score a list's pages; 1 to DCI_GPU_MAX_PARTS */
        int32_t max_pages;     /* of a list: room */
        uint32_t *opened;      /* [list][max_groups / 32]: nodes, as bits */
        float *page_scores;    /* [list][max_pages][group]: of opened pages, in any order; aligned to 16 bytes */
        int32_t *page_numbers; /* [list][max_pages]: which they are; -1: no member is a candidate */
        int32_t *arrived;      /* [list]: blocks that are done and opened pages; zeros before and after */
} dci_gpu_tree_args;

/** Copies n pieces of n_bytes, a multiple of 4 as are addresses: `from` mapped host memory, `to` the device's. */
typedef struct dci_gpu_patch {
        unsigned char *to;
        const unsigned char *from;
        uint64_t n_bytes;
} dci_gpu_patch;

typedef struct dci_gpu_patch_args {
        const dci_gpu_patch *patches; /* in mapped host memory */
        int32_t n, reserved;
} dci_gpu_patch_args;

#endif
