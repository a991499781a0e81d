/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Arguments of kernels. Each kernel has a reference on the CPU (host/) and a CUDA kernel (cuda/), which take the same
 * struct: the tests compare the two, and the host device (host/device.c) runs the references.
 *
 * All pointers are addresses that the device can use: its own memory, or host memory that is locked and mapped. C and
 * CUDA C++ read this header.
 *
 * Words that dci/kv.h does not define
 *  - row (of a sequence): the number that a sequence has on the device, 0 to max_sequences - 1.
 *  - lane: the rows of one layer, device row and kv head in device memory: [sink][ring][hot] slots. sink has the first
 *    `sink` positions; slot sink + p % ring has position p >= n - ring; hot has fetched positions.
 *  - unit: what is fetched at once, 2^unit_shift consecutive positions (1 or a page); frame: a unit's place in hot.
 *  - list: what `group` query heads attend to, one for each kv head or head_lists of them (0 is 1, too): list l of a
 *    sequence is of kv head l / head_lists. Lanes, pools and summaries are those of its kv head. */
#ifndef DCI_GPU_ARGS_ROWS_H
#define DCI_GPU_ARGS_ROWS_H

#include <stdint.h>

/* Shapes that kernels are built for. */
#define DCI_GPU_MAX_GROUP 16
#define DCI_GPU_MAX_DIM 256
#define DCI_GPU_AGES 1024       /* of frames: ages in steps are distinguished up to this one */
#define DCI_GPU_MAX_FRAMES 8192 /* per lane */
#define DCI_GPU_MAX_LIST 8192   /* slots of a plan's list */
#define DCI_GPU_MAX_LISTS 65535 /* of one launch of gather or select on a GPU */
#define DCI_GPU_CHUNK 512       /* candidates, or clusters, of a chunk: DCI_KV_CHUNK */

/* Of args with n_heads and head_lists: the lists of a kv head, and of a sequence; and a list's kv head. */
#define DCI_GPU_HEAD_LISTS(args) ((args)->head_lists > 1 ? (args)->head_lists : 1)
#define DCI_GPU_LISTS(args) ((args)->n_heads * DCI_GPU_HEAD_LISTS(args))
#define DCI_GPU_HEAD_OF(args, list) ((args)->head_lists > 1 ? (list) / (args)->head_lists : (list))

/* The kernels of a device. NAME takes a dci_gpu_NAME_args: rows (this header), plans (args/select.h, args/learned.h,
 * args/schedule.h, args/tail.h, args/tree.h, args/votes.h), and clusters (args/kmeans.h). */
/* clang-format off */
#define DCI_GPU_EACH_KERNEL(DO)                                                                                        \
        DO(append) DO(pack) DO(reside) DO(forget) DO(resolve) DO(gather) DO(attend) DO(score) DO(select) DO(gate)  \
        DO(reuse) DO(encode) DO(encode_prompt) DO(encode_learned) DO(tail) DO(tail_sums) DO(tail_clusters) DO(kmeans)  \
        DO(tree) DO(patch) DO(vote)
/* clang-format on */

/* Blocks of rows in pieces, as src/kv/pool.c lays them out. In one layer, the key of block b, head h and slot s is at
 *
 *      pieces[b >> block_shift] + layer_at + (b & (2^block_shift - 1)) * block_bytes + h * head_bytes + s * key_bytes
 *
 * and its value value_at bytes after the head's first key: h * head_bytes + value_at + s * value_bytes. */
typedef struct dci_gpu_pool {
        unsigned char *const *pieces; /* a table of fixed capacity, on the device; NULL: there is no pool */
        uint64_t layer_at, block_bytes;
        uint32_t head_bytes, value_at, key_bytes, value_bytes;
        int32_t block_shift, page_shift; /* 2^page_shift tokens in a block */
} dci_gpu_pool;

/* Copies in device memory of pages of one layer. The rows of block b are at pages + places[b] * block_bytes, laid out
 * as in its pool; places[b] is -1 where there is no copy. */
typedef struct dci_gpu_resident {
        unsigned char *pages; /* NULL: the layer has no copies */
        const int32_t *places;
        uint64_t *taken; /* gather: [row][head], adds the units that came from copies */
} dci_gpu_resident;

/* The lanes of one layer: keys [row][head][slot][key_bytes], values likewise. */
typedef struct dci_gpu_lanes {
        unsigned char *keys, *values;    /* NULL: the layer has none */
        uint32_t key_bytes, value_bytes; /* of one row; multiples of 16 */
        int32_t sink, ring, hot;         /* slots; ring is a power of two */
        int32_t n_slots;                 /* sink + ring + hot */
} dci_gpu_lanes;

/* Summaries of one layer, in chunks as src/kv/stages/summary_*.c fill them: a part for each head, head_bytes apart.
 * Chunk number i of row r is chunk c = numbers[r * stride + i] of the device, in every layer under the same number, at
 *
 *      pieces[c >> piece_shift] + layer_at + (c & (2^piece_shift - 1)) * chunk_bytes
 *
 * which is aligned to 128 bytes, as is head_bytes; with codes of means to 64. */
typedef struct dci_gpu_chunks {
        unsigned char *const *pieces; /* a table of fixed capacity, on the device */
        const int32_t *numbers;
        uint64_t stride, layer_at, chunk_bytes;
        uint32_t head_bytes;
        int32_t piece_shift;
} dci_gpu_chunks;

/* The sequences of a call: arrays of n. */
typedef struct dci_gpu_batch {
        int32_t n;
        const int32_t *rows;
        const int32_t *first; /* tokens before those of the step */
        const int32_t *n_new; /* tokens of the step */
        const int32_t *begin; /* where the sequence's tokens begin among those of the call */
        int32_t n_tokens;     /* of the call: the sum of n_new, as the host knows it */
        int32_t reserved;
} dci_gpu_batch;

/* Tables of blocks: row r's block number b is table[r * stride + b]. */
typedef struct dci_gpu_tables {
        const int32_t *blocks;
        uint64_t stride;
} dci_gpu_tables;

/** Stores the caller's rows of new tokens in the lanes (sink and ring), in the pool on the device, in resident pages
 * (where there is no pool on the device, but one in host memory, whose layout they have) and in the pool in host
 * memory, as far as there are any. Token t of the call and head h: keys + t * key_token + h * key_head, in bytes. A row
 * with NaN or infinity sets bad[row] to 1 and is stored all the same. */
typedef struct dci_gpu_append_args {
        dci_gpu_batch batch;
        const unsigned char *keys, *values;
        uint64_t key_token, key_head, value_token, value_head; /* bytes, multiples of 16 */
        int32_t n_heads, dtype;                                /* DCI_F16 or DCI_BF16 */
        dci_gpu_lanes lanes;
        dci_gpu_pool device, host;
        dci_gpu_resident resident;
        /* Blocks of sequence i that `pack` copies to the host and this kernel skips there: numbers host_skip[2 i] to
         * host_skip[2 i + 1] - 1. NULL: none. */
        const int32_t *host_skip;
        dci_gpu_tables tables;
        int32_t *bad; /* by row */
} dci_gpu_append_args;

/** Copies whole blocks of one sequence's new tokens: block i has tokens token + i * 2^page_shift .. of the call. Slot s
 * of block b and head h: the key at out + b * block_bytes + h * head_bytes + s * key_bytes, the value at the same plus
 * value_at, with s * value_bytes. So a prompt's blocks are laid out as in the pool, [block][head][K: slot][V: slot],
 * and few copies take them to the host; and rows for a history as [K, V][head][token]. */
typedef struct dci_gpu_pack_args {
        const unsigned char *keys, *values;
        uint64_t key_token, key_head, value_token, value_head;
        int32_t n_heads, n_blocks, token, page_shift;
        uint32_t key_bytes, value_bytes;
        uint64_t block_bytes; /* from one block to the next; all multiples of 16 */
        uint64_t head_bytes;  /* from one head to the next */
        uint64_t value_at;    /* from a head's keys to its values */
        unsigned char *out;
} dci_gpu_pack_args;

/* Updates the table of resident pages: places[block] = place for n pairs (place -1: none), no block twice. */
typedef struct dci_gpu_reside_args {
        const int32_t *changes;
        int32_t *places;
        int32_t n, reserved;
} dci_gpu_reside_args;

/* A unit to fetch: its first position, and the first of its slots in the lane. */
typedef struct dci_gpu_item {
        int32_t position, slot;
} dci_gpu_item;

/* Empties frames whose rows of a contiguous copy have changed: change i is {lane, page}, lane (layer * n_rows + row) *
 * n_heads + head, and the frames are those of that lane with units [page << shift, (page + 1) << shift). */
typedef struct dci_gpu_forget_args {
        const int32_t *changes; /* n pairs */
        int32_t n, n_frames, shift, reserved;
        int32_t *tags; /* [lane][n_frames] */
} dci_gpu_forget_args;

/** Finds the tokens of a plan's lists in their lanes' hot slots, and assigns frames to the others. For sequence i of
 * the call, list l of the sequence is positions[(i * n_lists + l) * stride ..], ascending, counts[i * n_lists + l] long,
 * n_lists = n_heads * head_lists.
 *
 * Frame f of a lane holds unit tags[f] (-1: none) and was used at step stamps[f]; both [row][head][n_frames]. In this
 * order:
 *   1. A unit of the list that a frame holds is a hit: its stamp becomes *now. 2. The misses, ascending, take frames
 *   that had no hit, those longest unused first: by age = min(*now - stamp,
 *      DCI_GPU_AGES - 1), empty frames have the greatest age DCI_GPU_AGES, equal ones by number. tag and stamp are set,
 *      and an item is written.
 *   3. Without a free frame, attention reads the token in the pool.
 * out_slots: per list entry the slot in its lane, or ~position: the pool. Deterministic. out_header: sink_end,
 * recent_begin and n_tokens are copied there (3 x n_sequences), on the device for later kernels. With head_lists the lists
 * of a kv head come one after the other, each with the frames as the one before has left them; a frame that had a hit, or
 * was taken, keeps its unit for all of them.
 *
 * Contiguous copies: with n_places, units are of rows of a copy, and the items' positions are such rows: that of candidate
 * c (position sink + c) is in chunk c / DCI_GPU_CHUNK of `places`, an int32_t in the head's part, -1: it has none.
 * Candidates without a row, and those from n_places on, are read in the pool. Misses ascend by rows. */
typedef struct dci_gpu_resolve_args {
        int32_t n_sequences, n_heads, stride, unit_shift;
        const int32_t *rows;
        const int32_t *positions, *counts;
        const int32_t *sink_end, *recent_begin, *n_tokens;
        int32_t n_frames;   /* hot >> unit_shift; 0: all are read in the pool */
        int32_t first_slot; /* of hot: sink + ring */
        int32_t *tags;      /* [row][head][n_frames] of the layer */
        uint32_t *stamps;
        const uint32_t *now; /* the step's number, 1 and up */
        int32_t *out_slots;  /* [n_sequences][n_lists][stride] */
        int32_t *out_counts; /* counts, on the device */
        int32_t *out_header;
        dci_gpu_item *items; /* [n_sequences][n_heads][head_lists * stride] */
        int32_t *n_items;    /* [n_sequences][n_heads] */
        uint64_t *counters;  /* [row][head][3], added to: units wanted, units missed, tokens read in the pool */
        dci_gpu_chunks places;
        const int32_t *n_places; /* by sequence; NULL: units are of positions */
        int32_t sink, head_lists;
} dci_gpu_resolve_args;

/** Fetches items of lanes from a pool (or a contiguous copy, with its tables), or resident pages: 2^unit_shift keys and
 * values each. Lane l of the call is of sequence l / n_heads and kv head l % n_heads; its items are at items + l *
 * item_stride (0: the same for all). */
typedef struct dci_gpu_gather_args {
        int32_t n_sequences, n_heads, unit_shift, max_items; /* max_items: of a lane, as the host knows it */
        const int32_t *rows;
        const dci_gpu_item *items;
        uint64_t item_stride;
        const int32_t *n_items;  /* by lane */
        uint64_t n_items_stride; /* 1, or 0: all lanes have n_items[0] */
        dci_gpu_pool pool;
        dci_gpu_tables tables;
        dci_gpu_lanes lanes;
        dci_gpu_resident resident;
} dci_gpu_gather_args;

/** Computes attention of one query position per sequence: softmax(scale q . K) V over
 *   sparse (slots given): positions [0, sink_end), the list, and [recent_begin, n_tokens);
 *   dense (slots NULL):   positions [0, n_tokens) of the pool,
 * merged with a tail. The rows of a position: of the list, the lane's slot, or ~position: the pool; below lanes.sink
 * the lane's sink; from n_tokens - ring on the lane's ring; others the pool.
 *
 * queries   [n_sequences][n_lists * group] rows of dim, query_ld elements apart, of query_dtype (f32, f16, bf16).
 * out       likewise, out_ld apart, of out_dtype; lse [n_sequences][n_lists * group], natural log, may be NULL. No
 *           token and no tail: zeros and -infinity.
 * tail      tail_out [..][dim] f32 and tail_lse, or NULL.
 * early     another kernel was queued after the one that wrote slots, counts, sink_end, recent_begin and n_tokens, and
 *           queries are older than those: all may be read while that other kernel still runs.
 * Queries and weights are used in two parts where the group is at most 8, so that f32 queries lose nothing that
 * matters; with more they are rounded to the rows' type.
 * n_splits  parts that a list's tokens are cut into, 1 to 1,024, with room for them in `partial`: [n_sequences *
 *           n_lists][n_splits][16] [dim + 2] floats, and `arrived` [n_sequences * n_lists], zeros before and after.
 *           n_splits 1 needs neither. */
typedef struct dci_gpu_attend_args {
        int32_t n_sequences, n_heads, group, dim;
        int32_t dtype, query_dtype, out_dtype, n_splits;
        float scale;
        int32_t stride; /* of slots */
        int32_t early, head_lists;
        const void *queries;
        uint64_t query_ld;
        const int32_t *rows;
        const int32_t *sink_end, *recent_begin, *n_tokens; /* by sequence of the call */
        const int32_t *slots, *counts;
        dci_gpu_lanes lanes;
        dci_gpu_pool pool;
        dci_gpu_tables tables;
        const float *tail_out, *tail_lse;
        void *out;
        uint64_t out_ld;
        float *lse;
        float *partial;
        int32_t *arrived;
} dci_gpu_attend_args;

#endif
