/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/**
 * @file offload.h
 * A KV cache whose keys and values are in host memory and whose attention runs on a GPU.
 *
 * A dci_gpu_kv owns a dci_kv (dci/kv.h), whose pool is locked ("pinned") host memory that the device reads and writes
 * in place. For every sequence, layer and kv head the device has a lane of rows: the sink, the latest tokens (ring),
 * and a hot buffer of fetched tokens with LRU eviction. Layers that attend to everything (dense_layers, the preset
 * full) are on the device as a whole, with a copy in host memory.
 *
 *      dci_gpu_kv_open
 *      dci_gpu_kv_reserve           tokens of the next step, for one or more sequences
 *      for each layer:
 *          dci_gpu_kv_append        keys and values from device memory: to the lanes and, concurrently, to the host
 *          dci_gpu_kv_end_prompt    once, at the prompt's end: builds summaries, on the device or by the host's workers
 *      dci_gpu_kv_step_end
 *
 *      and then, for every generated token:
 *      dci_gpu_kv_reserve
 *      for each layer:
 *          dci_gpu_kv_append
 *          dci_gpu_kv_plan          the device plans, and nothing waits; or the host does, and waits for the queries
 *          dci_gpu_kv_attend        fetches missing tokens and attends; nothing waits
 *      dci_gpu_kv_step_end
 *      dci_gpu_kv_maintain          between steps, where the host plans, and with trees
 *      dci_gpu_kv_swap_out, _in     between steps: idle sequences give up their place on the device
 *
 *      and for a chunk of tokens after earlier ones (a prompt in chunks, a second turn, guessed tokens):
 *      dci_gpu_kv_reserve
 *      for each layer:
 *          dci_gpu_kv_append
 *          dci_gpu_kv_history       keys and values of all tokens so far, on the device: the model attends to them
 *          dci_gpu_kv_prompt_rows   in the prompt's last chunk, of the rows that dci_gpu_kv_history gave
 *          dci_gpu_kv_end_prompt    likewise
 *      dci_gpu_kv_step_end
 *
 * The model computes attention among a prompt's own tokens: their keys and values are on the device when they are
 * appended. That of a later chunk is exact as well, over the rows of dci_gpu_kv_history.
 * Streams are the caller's (CUDA: cudaStream_t as void *; NULL is the default stream); all calls of a step use the same
 * one. Work is queued in their order; calls return before it is done unless they say that they wait.
 * Threads: as dci/kv.h: calls on one dci_gpu_kv are served one after another. A dci_gpu may serve many of them. Where
 * the host builds what prompts give, a dci_gpu_kv has the workers of its dci_kv and one thread more.
 * Errors: DCI_ERR_DEVICE when the device's runtime refuses or fails; its sentence is quoted. Bad input and lack of
 * memory are refused before anything changes; a kernel that fails later shows in a later call, and the dci_gpu_kv can
 * then only be destroyed.
 * Bits: the same steps give the same bits on the same device. Steps that are divided otherwise (in batches of another
 * size, or for a graph of another max_tokens) may differ by the rounding of sums, and, where groups are equal to the
 * last bits, in their plans.
 *
 * What the device can plan (the host can plan every preset; dci_gpu_kv_config.planner)
 *
 *      select             ALL (full); SCAN; STATIC (prkv); NONE with the tail LOWBIT (lowbit); TREE by codes of 4, 2
 *                         or 1 bits, which ends in pages and compares with all nodes (icecache; without
 *                         tree_promotion_subseq above 0, tree_simple_indices and tree_tokens): tree_keys CODES, its
 *                         default where the device plans.
 *                         The host builds trees, and inserts in dci_gpu_kv_maintain or, if that was not called, in
 *                         dci_gpu_kv_reserve, which then waits; only what changed is uploaded. At most 4,096 pages in
 *                         the lists of the query heads of a kv head together
 *      group, summary     TOKEN with CODES of 4, 2 or 1 bits (sketch), with LEARNED (8 bits: up to 128 elements), or
 *                         with VOTES (pariskv);
 *                         PAGE, CLUSTER, SEGMENT and REORDERED with MEAN, MINMAX, CUBOID or MEAN_STD (pagemean, quest,
 *                         arkvale, freekv, clusterkv, louiskv, prkv, retroinfer)
 *      tail               DROP; with codes of tokens also SUMS, and LOWBIT with values of 4, 2 or 1 bits (sketch+sums,
 *                         sketch+lowbit); with CLUSTER and SEGMENT by MEAN also SUMS (retroinfer)
 *      schedule           all but ONCE
 *      combine            SOFTMAX or MEAN; EACH with TREE, or with query_head_lists, which combines nothing
 *      query_head_lists   0; 1 but with TREE and VOTES
 *      preselect          with CODES, of up to 65,520 tokens (sketch+groups); the bits of the codes of means are the
 *                         CPU's. Sequences for which it leaves out nothing are scored as without it
 *      not with           verify, frozen_prompt, resident_bytes
 *      gather             MAPPED or DIRECT: the others need the host
 *
 * Limits
 *
 *      devices            NVIDIA GPUs of compute capability 8.0 and up, in builds with DCI_CUDA; DCI_GPU_HOST, the CPU,
 *                         in every build: it runs each kernel's reference with host memory in place of device memory,
 *                         for tests and trials
 *      rows               keys and values of f16 or bf16; dim_k = dim_v = 64, 96, 128 or 256
 *      heads              at most 16 query heads per kv head
 *      pages              8 to 64 tokens, in the library's own memory (no dci_kv_layout)
 *      queries            with keys of f16 on a GPU, elements within 65,504: larger ones give outputs of NaN
 *      lists of a step    MAPPED and STAGED: max_sequences * n_kv_heads at most 65,535
 *      tail SUMS          of pages, planned by a device: max_tokens less than 2^22 - 1 pages
 *      99 KiB of shared memory per block (compute capability 8.6, 8.9, 12.0)
 *                         at most 8 query heads per kv head of 256 elements; a budget b and h units of the hot buffer
 *                         with 8 b + 4 h at most 67,520; the host plans budgets above 4,096, and learned codes of 256
 *                         elements
 *
 * dci_gpu_kv_create refuses what a GPU has no kernel for.
 */
#ifndef DCI_OFFLOAD_H
#define DCI_OFFLOAD_H

#include "dci/gpu.h"
#include "dci/kv.h"

#ifdef __cplusplus
extern "C" {
#endif

/** How missing rows get to the device. */
enum {
        /** the default: a kernel reads them in place, in mapped host memory (LouisKV transfers rows directly, too) */
        DCI_GPU_GATHER_MAPPED = 1,
        /** the host collects them in one locked buffer, which is copied (as in IceCache and PRKV) */
        DCI_GPU_GATHER_STAGED = 2,
        /** one batched call of copies, a row or page each (CUDA 12.8 and up) */
        DCI_GPU_GATHER_BATCHED = 3,
        /** one copy per row or page (what PRKV compares with) */
        DCI_GPU_GATHER_COPIES = 4,
        /** not at all: attention reads them in host memory, without a hot buffer */
        DCI_GPU_GATHER_DIRECT = 5,
        DCI_GPU_GATHERS = 5
};

/** Who plans: the device or the host. The overview says what the device can plan. */
enum {
        /** the default: the device where it can, else the host; dci_gpu_kv_info.planner says which */
        DCI_GPU_PLAN_AUTO = 1,
        /** the host: every preset; a plan waits for the layer's queries */
        DCI_GPU_PLAN_HOST = 2,
        /** the device; what it cannot plan is refused with the reason (DCI_ERR_UNSUPPORTED) */
        DCI_GPU_PLAN_DEVICE = 3
};

/**
 * Prepare with dci_gpu_kv_config_init.
 *
 * Resident pages (device_resident_bytes): with room for it, pages of sparse layers stay on the device as well as in
 * host memory, and tokens of plans are fetched from there instead of over the bus. That changes only how long a step
 * takes: no bit of an output, and no status. New pages get their place in dci_gpu_kv_reserve. When there is no place,
 * pages are evicted at no cost: first those of sequences that are not in the step, of the one stepped least recently,
 * its oldest pages first; then the oldest of the step's sequence that has the most pages there. A page that several
 * sequences share is there once, and counts for the one that was stepped last. If there are more new pages than places,
 * each sequence keeps its latest. Evicted pages do not return by themselves; dci_gpu_kv_fork and _load bring what they
 * find in host memory as far as places are free, and a step likewise the last page of a sequence that it goes on in. A
 * captured launch stays valid while pages come and go.
 *
 * Contiguous copies (`contiguous` of the dci_kv_config): groups that are lists (trees' pages, clusters, segments, a stored
 * order) are fetched from a second copy of keys and values in locked host memory, in the order of the lists, in units of
 * contiguous memory: pages, or 4 tokens of clusters and segments, since these begin anywhere. The hot buffer has such
 * units. Plans are the same, and outputs to the bit. Only with MAPPED and without resident pages (DCI_ERR_UNSUPPORTED).
 * Workers make the copy while they build a prompt's groups; what the device, or a later step, has built is copied in
 * dci_gpu_kv_reserve, which waits for earlier steps then, and copies only rows that are new or have moved.
 * DCI_ERR_FULL or DCI_ERR_MEMORY where there is no memory for it; only if the reservation itself builds groups early,
 * rows are read one by one in that step. The device takes 4 bytes per token, sparse layer and kv head, for the rows' places.
 */
typedef struct dci_gpu_kv_config {
        size_t struct_size;
        size_t max_sequences; /**< on the device at the same time; 1 (default) to 4,096 */
        size_t max_tokens;    /**< of a sequence; default 131,072 */
        /**
         * latest tokens on the device, per lane: at least the budget, or what is recent and does not count in it if
         * that is more (DCI_KV_COUNT_*), rounded up to a power of two; 0 (default): that.
         * Older ones among a plan's recent tokens are read in host memory
         */
        size_t ring_tokens;
        /**
         * of the hot buffer, per lane; 0 to 8,192, rounded up to whole units; default DCI_KV_PRESET: twice the budget,
         * at most 8,192; with query_head_lists, whose lists of a kv head share a lane, twice the budgets of all of them
         */
        size_t hot_tokens;
        int32_t gather;    /**< DCI_GPU_GATHER_*; default MAPPED */
        int32_t out_dtype; /**< of attention's output: DCI_F32 (default), DCI_F16, DCI_BF16 */
        /**
         * host memory is locked in pieces of at least so many bytes, and a piece is divided among the layers. 0
         * (default): 8 MiB for each layer, at least 64 MiB; at most what all sequences may need, and a quarter of the
         * dci_kv's max_bytes. Devices translate addresses faster where a layer's rows are contiguous
         * (docs/gpu-internals.md): small pieces slow down fetching, 32 MiB for each layer are another 5 % faster.
         * Summaries on the device have pieces of this size, but of at most some 32 MiB
         */
        size_t piece_bytes;
        /** 0 (default): no limit but the device's; of all that dci_gpu_kv_info counts as device_bytes */
        size_t max_device_bytes;
        int32_t planner;  /**< DCI_GPU_PLAN_*; default AUTO */
        int32_t reserved; /**< zero: other values are DCI_ERR_INVALID */
        /**
         * device memory for resident pages, see above; 0 (default): none, at most 2^48. Only with MAPPED (else
         * DCI_ERR_UNSUPPORTED). No output depends on it, unlike resident_bytes of the dci_kv_config
         */
        size_t device_resident_bytes;
} dci_gpu_kv_config;
DCI_API dci_status dci_gpu_kv_config_init(dci_gpu_kv_config *config, size_t struct_size);

typedef struct dci_gpu_kv dci_gpu_kv;

/**
 * Creates a KV cache on a device. kv: as for dci_kv_create, of any preset; its layout and hook must not be set
 * (DCI_ERR_UNSUPPORTED). What the device has no kernel for is refused likewise (see "Limits"); if only its plans have
 * none, AUTO lets the host plan.
 *
 * Takes on the device, at once: lanes, max_sequences * sparse layers * n_kv_heads * (sink + ring_tokens + hot_tokens)
 * rows; device_resident_bytes, as far as all sequences may need them; tables; where the device plans, scores of one
 * layer: max_tokens floats for each query head (pages: a float for each page; preselect: for each mean and each token
 * that it leaves; votes: for each candidate of the estimates), of as many sequences as 256 MiB hold, at least one;
 * further sequences are scored in later launches; for votes 128 dim bytes of counts for each sequence, sparse layer and
 * kv head. Dense layers grow with the pool. Summaries on the device grow with the sequences, in chunks of 512 tokens
 * that forks share, in pieces of up to some 32 MiB that stay until dci_gpu_kv_trim: of a token, layer and kv head,
 * codes take bits * dim / 8 + 2 bytes, those of means as much / preselect_tokens, votes and their codes 7 dim / 8,
 * pages' means 2 dim / page_tokens, other rows of pages twice that, a low-bit tail as much as codes of its bits, SUMS 4
 * dim / page_tokens; a stored order takes 4 bytes of a token more. With orders locked host memory has the queries of
 * the last ring + reorder_delay plans of each layer and sequence, and room for two layers' orders of max_tokens.
 */
DCI_API dci_status dci_gpu_kv_create(dci_gpu *gpu, const dci_kv_config *kv, const dci_gpu_kv_config *config,
                                     dci_gpu_kv **out_kv);
/**
 * Waits for the device, then closes all sequences and frees everything. NULL is allowed. During a step its stream must
 * still exist.
 */
DCI_API void dci_gpu_kv_destroy(dci_gpu_kv *kv);

/**
 * The KV cache in host memory, for calls that only read: dci_kv_get_info, dci_kv_get_sequence, dci_kv_table, and after
 * dci_gpu_kv_sync dci_kv_read and dci_kv_save. Calls that change it must go through this header. Where the device
 * plans, this object has no plans, and groups and codes only as far as the host had to build them.
 */
DCI_API dci_kv *dci_gpu_kv_host(dci_gpu_kv *kv);

/* --- sequences ---------------------------------------------------------------------------------------------------- */

/*
 * As those of dci/kv.h, but a sequence in the middle of a step cannot be closed. All but open wait for the device. A
 * load or a fork that finds no memory on the device for its pieces is refused, and nothing has changed. Where the
 * device plans, the host makes a saved sequence's codes first, as by dci_gpu_kv_maintain, and those of a loaded one at
 * once.
 */

/** DCI_ERR_FULL: there are max_sequences on the device. */
DCI_API dci_status dci_gpu_kv_open(dci_gpu_kv *kv, int64_t *out_sequence);
DCI_API dci_status dci_gpu_kv_fork(dci_gpu_kv *kv, int64_t sequence, size_t n_tokens, int64_t *out_sequence);
DCI_API dci_status dci_gpu_kv_truncate(dci_gpu_kv *kv, int64_t sequence, size_t n_tokens);
DCI_API dci_status dci_gpu_kv_close(dci_gpu_kv *kv, int64_t sequence);
DCI_API dci_status dci_gpu_kv_save(dci_gpu_kv *kv, int64_t sequence, size_t n_tokens, const char *path);
DCI_API dci_status dci_gpu_kv_load(dci_gpu_kv *kv, const char *path, int64_t *out_sequence);

/**
 * Swaps out a sequence that will be idle for a while: it gives up its place among max_sequences, its summaries on the
 * device and its resident pages. Its tokens stay in host memory, and so does what only the device had of it: codes or
 * pages' summaries (dci_gpu_kv_create has their size; none where the host plans or lists clusters, nor after
 * dci_gpu_kv_maintain, _save or _load, when the host has its own), and the lists of a schedule. They count for
 * max_bytes of the dci_kv_config, else the call is refused and nothing has changed. Freed memory serves other sequences;
 * dci_gpu_kv_trim gives it back to the device.
 *
 * A sequence that is swapped out can be closed, saved (the host makes its codes first), forked, polled, read through
 * dci_gpu_kv_host, and swapped in. A fork is not swapped out: it needs a place on the device, and shares no memory there
 * with sequences that are swapped in later. Steps, dci_gpu_kv_truncate and dci_gpu_kv_maintain refuse it
 * (DCI_ERR_INVALID); dci_gpu_kv_maintain of all sequences leaves it out. dci_kv_get_info counts it.
 *
 * With them, all sequences together may have 64 times max_tokens tokens more than max_sequences allow, in at most 65,536
 * more pieces of piece_bytes; then dci_gpu_kv_reserve is DCI_ERR_FULL.
 *
 * DCI_ERR_INVALID: it is in the middle of a step, or swapped out already. Waits for the device. Cost: copies what only
 * the device has, at the speed of one core's copies to new memory.
 */
DCI_API dci_status dci_gpu_kv_swap_out(dci_gpu_kv *kv, int64_t sequence);
/**
 * Gives a sequence that was swapped out a place on the device again, whichever is free. It goes on with the same plans
 * and outputs as if it had stayed; only its hot buffer is empty, and its pages are resident as far as places are free
 * (so n_missed and bytes_fetched differ). The sink, the ring and dense layers are read in host memory.
 * DCI_ERR_FULL: there are max_sequences on the device, or max_device_bytes does not allow what it needs. If that is
 * refused, or the device has no memory, nothing has changed. DCI_ERR_INVALID: it is not swapped out. Waits for the
 * device.
 */
DCI_API dci_status dci_gpu_kv_swap_in(dci_gpu_kv *kv, int64_t sequence);
/** What dci_gpu_kv_trim gives back. */
enum {
        /** buffers of dci_gpu_kv_history and of ends of prompts: after a prompt, where no other follows soon */
        DCI_GPU_TRIM_BUFFERS = 1,
        /** and pieces of summaries and of keys and values, on the device and in locked host memory, that are entirely
         * free; dense layers' pieces that hold blocks of swapped-out sequences only */
        DCI_GPU_TRIM_ALL = 2
};

/**
 * Gives back what sequences have used and none uses now: DCI_GPU_TRIM_*. What is left free within pieces stays. Steps
 * take it again as they need it, which costs an allocation (and locking of host memory) each: so closing a sequence
 * keeps it. Captured launches stay valid.
 * DCI_ERR_INVALID: a step is open. Waits for the device.
 */
DCI_API dci_status dci_gpu_kv_trim(dci_gpu_kv *kv, int32_t what);

/* --- steps -------------------------------------------------------------------------------------------------------- */

/**
 * Begins a step (one at a time) of n_sequences different sequences and n_tokens[i] more tokens each (NULL: 1), as
 * dci_kv_reserve. Pools and the device's summaries grow here: if memory is short the call is refused, and nothing has
 * changed except that pending clusters were built and stay. Close other sequences or swap them out, or trim, and call
 * it again.
 *
 * Where the device plans, it builds the summaries of tokens that left the window as a part of this step, before the
 * first layer's rows are stored. So a step needs no host synchronisation and can be captured as a graph
 * (dci_gpu_kv_capture). The host builds the rest here, and waits for the rows of earlier steps to do so:
 *  - once after a prompt of several steps whose rows were not named (dci_gpu_kv_prompt_rows);
 *  - once where a prompt was too short to give any codes;
 *  - after a prompt, following steps so long that keys have left the ring before they were summarised (ring_tokens less
 *    window and rollback), or of more than 1,024 tokens;
 *  - once in many tokens for clusters and segments, which the host keeps: when new ones are pending, a prompt's first
 *    of all. Steps in between wait for nothing;
 *  - learned codes of tokens that left the window, page by page;
 *  - once after a prompt for stored orders, which the host's workers make as its rows arrive.
 * Stored orders are renewed here, layer after layer (`period` and `reorder_delay` of the dci_kv_config): a reservation
 * that finds one due has the host's workers make it from the queries of the plans so far, which kernels store in locked
 * host memory, and one that is reorder_delay plans later uploads it, as a copy on the stream. Neither waits, unless the
 * workers have not finished by then or reorder_delay is less than 6 steps.
 */
DCI_API dci_status dci_gpu_kv_reserve(dci_gpu_kv *kv, void *stream, size_t n_sequences, const int64_t *sequences,
                                      const size_t *n_tokens);

/**
 * Stores keys and values of one layer for all of the step's sequences in order, each layer once. rows: as in
 * dci_kv_append, in device memory (or memory it can read), 16-byte aligned rows; later work on the stream may overwrite
 * them.
 * Rows with NaN or infinity set the sequence's flag, see dci_gpu_poll. The host does not select by such rows: from then
 * on its plans of the sequence, its prompt's end and dci_gpu_kv_maintain are DCI_ERR_NUMBER, and so is
 * dci_gpu_kv_reserve where the host builds groups. Take the step back and close the sequence. A device that plans does
 * not check the flag: such a sequence's outputs are of no use, others are not affected.
 */
DCI_API dci_status dci_gpu_kv_append(dci_gpu_kv *kv, void *stream, size_t layer, const dci_kv_rows *rows);

/**
 * As dci_kv_end_prompt, with queries in device memory: n_positions x n_query_heads rows, ld elements apart; gaps
 * between rows are read, too. A prompt may end in a later step in some layers than in others: there, plans of later
 * steps attend to everything until it has ended in all, and when its end is truncated all layers select among as many
 * tokens as the one that has the fewest.
 *
 * Host plans: workers (dci_kv_end_prompt) start on a layer when its rows have arrived, while the device computes the
 * next layers. No call is needed for that: a thread of the dci_gpu_kv hands the layer over; with `foreground` 1 the next
 * calls of the step do. So lack of memory and queries that are not finite are refused by dci_gpu_kv_plan of the layer or
 * dci_gpu_kv_step_end: call those again, or take the step back. dci_gpu_kv_step_end waits until all rows have arrived,
 * not for the workers. A stream that is being captured is refused (DCI_ERR_INVALID).
 *
 * Device plans: the device builds the summaries itself, queued by this call, from the rows of this step's
 * dci_gpu_kv_append, which must stay unchanged until it is done (later work on the stream may overwrite them), and
 * ignores queries. For a prompt of several steps see dci_gpu_kv_prompt_rows; plans of the step that ends such a prompt
 * attend to everything.
 *
 * Clusters and segments are the host's. Plans of the step that ends a prompt attend to everything; they store no lists,
 * and the next plan selects. The device clusters a prompt for the host, to the same bits, queued by this call, and the
 * host takes its clusters over (dci_gpu_kv_info.n_clustered), under these conditions: at most 64 rounds, no cluster_most,
 * summary MEAN (clusterkv, louiskv; retroinfer's centred keys and mean values, too); a prompt of one step, or one whose
 * rows are named; no key of the head has length 0. The caller's stream copies the prompt's keys; clustering has a stream
 * of its own and runs concurrently with the model's next layers, and the next layer's copy waits until the one before
 * is clustered. It takes memory, from a prompt's end until the host has taken its clusters: on the device 4 dim + 24
 * bytes a token, 14 dim bytes a cluster and 9/512 byte for each pair of both, for each kv head (SUMS: 2 dim bytes a
 * token more); in locked host memory, which later prompts use again, 4 bytes a token and 2 dim bytes a cluster, for
 * each kv head and layer. If there is none, or max_device_bytes does not allow it, the host clusters, heads and layers
 * on all threads, before the next step.
 *
 * Learned codes: the host's workers fit the transforms as a prompt's rows arrive, as for host plans; a head's transform
 * takes 67 KB of device memory at 128 elements.
 *
 * Stored orders: the host's workers make them from the queries and the rows as these arrive, as for host plans. Plans of
 * the step that ends a prompt attend to everything.
 */
DCI_API dci_status dci_gpu_kv_end_prompt(dci_gpu_kv *kv, void *stream, size_t layer, int64_t sequence,
                                         size_t n_positions, const void *queries, size_t ld);

/**
 * Where the device plans, names the keys and values of all tokens of a prompt that came in several steps, this step's
 * included. Call it right before the sequence's dci_gpu_kv_end_prompt of the layer in the step that ends the prompt (a
 * layer remembers the last call). The caller has these rows on the device, since the prompt's own attention reads them.
 * They are as the rows of dci_gpu_kv_append, of tokens 0, 1, ..; what dci_gpu_kv_end_prompt queues reads them, under
 * the same rules. dci_gpu_kv_history gives such rows, also in a step of no tokens that only ends the prompt. Without
 * this call, or where the device has no memory for the summaries, the host builds them from its own rows before the
 * next step. Presets that the host plans ignore the call.
 */
DCI_API dci_status dci_gpu_kv_prompt_rows(dci_gpu_kv *kv, void *stream, size_t layer, int64_t sequence,
                                          const dci_kv_rows *rows);

/**
 * Brings the keys and values of all tokens of a sequence in one layer to the device, in the step that is open, after
 * dci_gpu_kv_append of the layer: tokens of earlier steps from host memory (in layers that attend to everything, from
 * the device), then the step's, from the rows that dci_gpu_kv_append was given, which must be unchanged until what this
 * call queues has read them. For attention of several queries over all of them: chunks of a prompt, later turns, guessed
 * tokens. The bits are those that were appended, also of sequences with NaN or infinity.
 *
 * out_rows  prepared by dci_kv_rows_init. Token t of head h as in dci_kv_rows, in memory of the library: keys [kv head]
 *           [token][dim] without gaps, values likewise after them; all strides are given. Rows are aligned to 16 bytes.
 *           NULL where there are no tokens.
 * out_n     tokens.
 *
 * Order: work that is queued on `stream` after this call finds the rows there, and must only read them. They are valid
 * for what is queued before the next call of this function for another layer or sequence, and before the step's end or
 * abort; later calls overwrite memory only after that work. A repeated call for the same layer and sequence returns the
 * same rows and queues nothing. dci_gpu_kv_prompt_rows takes them, if dci_gpu_kv_end_prompt follows before the next
 * call.
 *
 * The call also starts the copy of what is expected next: of the step's next sequence with earlier tokens, then of the
 * next layer; in the first layer for sequences of several new tokens, in later ones for those that were asked for. So
 * with the layers and sequences in order the bus works while the model computes, on a stream of the library's own, and
 * the copy of the first layer may overlap with the end of the step before. Any other order gives the same rows, and
 * copies some in vain.
 *
 * Memory: two buffers, each for all tokens of one sequence in one layer (2 n_kv_heads dim elements a token), which grow
 * twofold, at most to max_tokens, and are kept (buffer_bytes of dci_gpu_kv_info). Without memory for the second one
 * copies wait for the computation before them; without memory for the first one the call is refused and changes
 * nothing. Only growing waits for the device.
 * Cost: earlier rows over the bus, by copy engines; 2 n_kv_heads copies for each run of adjacent (or equally distant)
 * blocks in a piece (piece_bytes).
 * In a step of no tokens dci_gpu_kv_append is not needed.
 * Refused (DCI_ERR_INVALID): a layer without its rows of this step, or with rows from a graph (dci_gpu_kv_replay); a
 * stream that is being captured.
 */
DCI_API dci_status dci_gpu_kv_history(dci_gpu_kv *kv, void *stream, size_t layer, int64_t sequence,
                                      dci_kv_rows *out_rows, size_t *out_n);

/**
 * Plans one layer, by queries in device memory: n_sequences x n_query_heads rows of query_dtype, ld elements apart, in
 * the step's order, of the step's last tokens, whose rows were appended before. Layers that attend to everything wait
 * for nothing, and must be planned, too.
 * DCI_ERR_INVALID: the prompt has not ended in the layer. A refused plan changes nothing: the call may be repeated.
 *
 * Device plans: the selection is queued on the stream, and the call returns; its lists last until the device plans
 * another layer, so dci_gpu_kv_attend of this one comes before that. Plans are those of dci_kv_plan_make with
 * dci_kv_maintain before every step, except for groups that are equal to the last bits, of which either may be taken,
 * and for `refit`: see dci_gpu_kv_maintain. Schedules run on the device, and their lists are there:
 * dci_kv_sequence_info counts nothing of it. For SEGMENT with BOUNDARY the device reports boundaries in locked memory,
 * 512 bytes for each possible sparse layer and sequence; the host builds segments from them before the next step. A
 * layer that uses another one's lists (ANCHOR) is planned after it in the same step, else it is refused. Lists for the
 * next step (AHEAD) are selected on a stream of the library's own, concurrently with the gathering and attention of the
 * layer, whose end waits for it.
 *
 * Host plans: the call waits until the stream has brought the queries; cost as dci_kv_plan_make.
 */
DCI_API dci_status dci_gpu_kv_plan(dci_gpu_kv *kv, void *stream, size_t layer, const void *queries, size_t ld);

/**
 * Computes attention over the layer's plan of this step, after dci_gpu_kv_plan, by the same queries. out: device
 * memory, n_sequences x n_query_heads rows of out_dtype, out_ld apart; out_lse as in dci_kv_attend, may be NULL.
 * Queries and outputs are aligned to their elements.
 *
 * Tokens of a sparse layer that are neither in the ring nor in the list are read in host memory, over the bus, which is
 * slow: with frozen_prompt once a decode is longer than the ring, for sequences that resident_bytes of the
 * dci_kv_config keeps in full (on a device, dense_layers keep layers in full), and in a step that ends a long prompt
 * and attends to it at once.
 */
DCI_API dci_status dci_gpu_kv_attend(dci_gpu_kv *kv, void *stream, size_t layer, const void *queries, size_t ld,
                                     void *out, size_t out_ld, float *out_lse);

/**
 * Prepares an open step of one token for each sequence, before its layers, for graphs (CUDA: stream capture): until the
 * step's end, what dci_gpu_kv_append, _plan and _attend queue is sized for sequences of up to max_tokens tokens (0: the
 * config's), reads all that changes from step to step on the device, and may be captured. A captured launch stays valid
 * in later steps (dci_gpu_kv_replay), whatever happened to sequences, pools and pieces in between. Work is divided by a
 * sequence's own length, so a few graphs are enough, for example for up to 8 k, 32 k and 128 k tokens.
 *
 * The calls themselves queue nothing that a stream cannot capture. A step whose layers were captured has done nothing
 * until the caller launches the graph, before dci_gpu_kv_step_end. If dci_gpu_kv_step_abort takes it back, launched or
 * not, it has built no summaries on the device: the next step does. A step for which nothing is captured after all is a
 * step like any other.
 *
 * While the step's stream is captured, calls that wait for the device (dci_gpu_kv_sync, _get_info, _maintain,
 * _step_abort, _fork, _truncate, _close, _save, _load, among others) are refused (DCI_ERR_INVALID) and change nothing:
 * capture, launch and step go on.
 * Refused: layers that the host plans (DCI_ERR_UNSUPPORTED), sequences of more than max_tokens (DCI_ERR_LIMIT), steps
 * of other than one token each, a layer that has its rows already.
 */
DCI_API dci_status dci_gpu_kv_capture(dci_gpu_kv *kv, void *stream, size_t max_tokens);

/**
 * Replaces a step's calls for its layers: between this call and dci_gpu_kv_step_end the caller launches, on the step's
 * stream, a graph that was captured on this dci_gpu_kv with as many sequences (whichever), all layers, and this
 * max_tokens. Queues nothing itself; costs the host a few microseconds. Queries, rows and outputs are at the addresses
 * of the capture. Prompts have ended in all layers that select; otherwise refuses what dci_gpu_kv_capture refuses.
 */
DCI_API dci_status dci_gpu_kv_replay(dci_gpu_kv *kv, void *stream, size_t max_tokens);

/**
 * Ends the step: all layers have their tokens. At a prompt's end, waits for its rows to arrive where the host builds
 * groups.
 */
DCI_API dci_status dci_gpu_kv_step_end(dci_gpu_kv *kv, void *stream);
/**
 * Takes the step back, as dci_kv_step_abort; waits for the device. Summaries of tokens of earlier steps that the device
 * has built stay, except after dci_gpu_kv_capture; prompts that ended in the step have not.
 */
DCI_API dci_status dci_gpu_kv_step_abort(dci_gpu_kv *kv);
/**
 * Between steps, as dci_kv_maintain. Waits for the last step's rows. sequences NULL: all that are in no step and have
 * good rows; one that is named and in the middle of a step is refused (DCI_ERR_INVALID), and nothing is done for any.
 * Where the device plans, steps build the summaries, and this call is needed for one thing: it rebuilds codes that no
 * longer fit (`refit` of the dci_kv_config). The host catches up, which costs it time and memory for all codes of the
 * sequence once and for those of new tokens afterwards; where a refit is needed it makes the codes, and uploads all of
 * the sequence's. Once in some thousand tokens is enough. A decode without it goes on with the codes it has. Stored
 * orders that are due are renewed as by the next reservation.
 */
DCI_API dci_status dci_gpu_kv_maintain(dci_gpu_kv *kv, size_t n_sequences, const int64_t *sequences);
/**
 * Waits until everything is done and all rows are in host memory, and for the host's workers, which it helps; then makes
 * learned codes of prompts that have ended, as far as memory allows; otherwise the next step makes them.
 */
DCI_API dci_status dci_gpu_kv_sync(dci_gpu_kv *kv);

/**
 * Reports whether rows with NaN or infinity were appended to a sequence since it was opened: 0, or 1 + the first layer
 * that got such rows, as of the work that is done. Waits for nothing. A fork and a sequence that was swapped in keep it.
 */
DCI_API dci_status dci_gpu_poll(dci_gpu_kv *kv, size_t n_sequences, const int64_t *sequences, int32_t *out_bad);

/** Prepare with dci_gpu_kv_info_init. */
typedef struct dci_gpu_kv_info {
        size_t struct_size;
        /** taken on the device: lanes, dense layers, tables, buffers, summaries and resident pages */
        size_t device_bytes;
        size_t lane_bytes, dense_bytes, table_bytes, buffer_bytes;
        size_t pinned_bytes;    /**< locked host memory: pool, contiguous copies and buffers */
        size_t sink, ring, hot; /**< slots of a lane */
        /**
         * fetched at once: 1; a page where groups are pages by position; with contiguous copies a page, or 4 where
         * groups are clusters or segments
         */
        size_t unit_tokens;
        uint64_t n_steps;
        uint64_t n_asked;  /**< units wanted by plans, of all lists, by work that is done */
        uint64_t n_missed; /**< of these, fetched */
        uint64_t n_stayed; /**< tokens read in host memory, since the hot buffer had no room */
        /**
         * over the bus to the device: units that missed and were in no resident page, tokens counted by n_stayed, rows
         * that dci_gpu_kv_fork, _load, _truncate and _step_abort bring back, and those of dci_gpu_kv_history; without
         * recent tokens beyond the ring
         */
        uint64_t bytes_fetched;
        uint64_t bytes_written; /**< new tokens' rows to the host */
        size_t summary_bytes;   /**< of device_bytes: pieces of summaries; grows with the sequences */
        int32_t planner;        /**< DCI_GPU_PLAN_DEVICE or _HOST: who plans */
        int32_t reserved;
        /** of device_bytes: room for resident pages, in whole pages of all sparse layers */
        size_t resident_bytes;
        size_t resident_used_bytes; /**< of these, with pages in them */
        size_t resident_pages;      /**< on the device now; those that sequences share count once */
        /** of n_missed, units that came from resident pages; the others came over the bus */
        uint64_t n_resident;
        /** layers of prompts whose clusters the device made, as far as the host has taken them over */
        uint64_t n_clustered;
} dci_gpu_kv_info;
DCI_API dci_status dci_gpu_kv_info_init(dci_gpu_kv_info *info, size_t struct_size);
/** Waits for the device. */
DCI_API dci_status dci_gpu_kv_get_info(dci_gpu_kv *kv, dci_gpu_kv_info *out_info);

#ifdef __cplusplus
}
#endif
#endif
