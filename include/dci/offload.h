/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/**
 * @file offload.h
 * A KV cache whose keys and values lie in host memory and whose attention runs on a GPU.
 *
 * A dci_gpu_kv owns a dci_kv (dci/kv.h): its pool is locked ("pinned") host memory that the device reads and writes in place. On the
 * device lie, for every sequence, layer and kv head, a lane of rows: the sink, the latest tokens, and a hot buffer of tokens that were
 * fetched, of which the one longest unused leaves first. Layers that attend to everything (dense_layers, the preset full) are kept on the
 * device whole, besides their copy in host memory.
 *
 *      dci_gpu_kv_open
 *      dci_gpu_kv_reserve   tokens of the next step, for one or more sequences
 *      for each layer:
 *          dci_gpu_kv_append    keys and values, from device memory: to the lanes, and to the host on the side
 *          dci_gpu_kv_end_prompt    once, at the prompt's end: what is chosen by is formed, on the device or by the host's worker
 *      dci_gpu_kv_step_end
 *
 *      and then, for every token that is generated:
 *      dci_gpu_kv_reserve
 *      for each layer:
 *          dci_gpu_kv_append
 *          dci_gpu_kv_plan      the device chooses, and nothing waits; or the host does, and waits for the layer's queries
 *          dci_gpu_kv_attend    what is missing is fetched, attention runs; nothing waits
 *      dci_gpu_kv_step_end
 *      dci_gpu_kv_maintain      between steps, where the host chooses
 *
 * Who chooses (dci_gpu_kv_config.planner, DCI_GPU_PLAN_*): the host can plan every preset. The device can plan these, and AUTO lets it:
 *      choose     ALL (full); SCAN; NONE with the tail LOWBIT (lowbit)
 *      group and summary
 *                 TOKEN with CODES of 4, 2 or 1 bits (sketch) or with LEARNED (of 8 bits: up to 128 elements); PAGE, CLUSTER and
 *                 SEGMENT with MEAN, MINMAX or CUBOID (pagemean, quest, arkvale, freekv, clusterkv, louiskv)
 *      tail       DROP; by codes of tokens also SUMS and LOWBIT with values of 4, 2 or 1 bits (sketch+sums, sketch+lowbit)
 *      schedule   any but ONCE
 *      combine SOFTMAX or MEAN; without preselect, verify, frozen_prompt and resident_bytes
 *      gather     MAPPED or DIRECT: the others are the host's
 * What it chooses by (summaries, and what a tail reads) lies in device memory. Of a prompt it is formed at dci_gpu_kv_end_prompt, from the caller's
 * rows; of tokens that leave the window as a part of the next step, before the first layer's rows are stored. So a step is queued without the
 * host, and can be a graph (dci_gpu_kv_capture). Clusters and segments are kept by the host: it forms them between steps, when the next one is
 * reserved that finds some due, a prompt's first of all; steps in between wait for nothing, and plans of the step that ends a prompt attend to
 * everything. A prompt's clusters the device makes for it, to the same bits, queued by dci_gpu_kv_end_prompt, and the host takes them over instead
 * (dci_gpu_kv_info.n_clustered): where they are by RAW keys in one segment, of at most 4,096 clusters and 64 rounds, without cluster_most and with
 * the summary MEAN (clusterkv); of a prompt in one step, or whose rows are named (dci_gpu_kv_prompt_rows); not of heads that have a key of length 0.
 * For that the first prompt's end takes memory on the device (for each kv head 20 bytes a token, 10 dim a cluster, and 1/64 byte for each
 * pair of both), and locked memory of the host (for each kv head and layer 4 bytes a token and 2 dim a cluster), which are kept for later prompts;
 * where there is none, or max_device_bytes leaves none, the host forms the clusters. So are learned codes the host's work: the host fits them as a prompt's rows arrive, and forms those of tokens that leave the window page by page,
 * which the step that is reserved then waits for; a head's frame takes 67 KB of device memory at 128 elements. Plans are those of
 * dci_kv_plan_make with dci_kv_maintain before every step, but for groups that count the same to the last bits, of which either may be taken,
 * and but for `refit`: see dci_gpu_kv_maintain.
 *
 * Whether a plan decides anew is decided on the device, too, and lists that a schedule keeps lie there: nothing of it is counted in
 * dci_kv_sequence_info. Where queries turn (BOUNDARY) the device tells the host in locked memory, 512 bytes for each sparse layer and sequence that there
 * may be, if SEGMENT asks for it: segments are formed by it before the next step. Of CLUSTER and SEGMENT, a plan of the step that ends a prompt leaves no
 * lists, and the next one decides. A layer that uses another one's lists (ANCHOR) is planned behind it in the same step, else it is refused. Lists for the
 * next step (AHEAD) are chosen on a stream of the library's own beside the gathering and attention of the layer, whose end waits for it.
 *
 * The same steps give the same bits on the same device. Steps that are divided otherwise (in batches of another size, or for a graph of another
 * max_tokens) may differ by the rounding of sums, and where groups count the same to the last bits in their plans.
 *
 * Attention among a prompt's own tokens is the model's: its keys and values are on the device when they are appended.
 *
 * Resident pages (dci_gpu_kv_config.device_resident_bytes): with room for it, pages of sparse layers stay on the device beside their copy in host
 * memory, and what plans ask for is fetched from there instead of over the bus. That changes when a step is done and nothing else: not a bit of an
 * output, and no status. New pages get their place in dci_gpu_kv_reserve. When there is none, pages leave, which costs nothing: first those of
 * sequences that are not in the step, of the one stepped least recently, its oldest pages first; then the oldest of the step's sequence that has
 * the most there. A page that several sequences share is there once, and counts for the one that was stepped last. Of more new pages than there
 * is room for, each sequence keeps its latest. Pages that left do not come back by themselves; dci_gpu_kv_fork and _load bring what they find in
 * host memory as far as places are free, and a step so the last page of a sequence that it goes on in. A captured launch stays right while pages
 * come and leave.
 *
 * Where a sparse layer attends to tokens that are neither in the ring nor listed, attention reads them in host memory, over the bus: right, but
 * slow. That is so with frozen_prompt once a decode is longer than the ring, for sequences that resident_bytes of the dci_kv_config keeps
 * in full (on a device, layers are kept in full by dense_layers), and in a step that ends a long prompt and attends to it at once.
 *
 * Streams are the caller's (CUDA: cudaStream_t as void *; NULL is the default stream); all calls of a step use the same one. Work is
 * queued in their order; calls return before it is done unless they say that they wait.
 *
 * Devices: NVIDIA GPUs of compute capability 8.0 and up, in builds with DCI_CUDA. DCI_GPU_HOST is a device that every build has: the CPU,
 * which runs each kernel's reference, with host memory in place of device memory. It is for tests and for trying programs out.
 *
 * Limits: keys and values of f16 or bf16; dim_k = dim_v = 64, 96, 128 or 256; at most 16 query heads per kv head; pages of 8 to 64; the
 * library's own memory (no dci_kv_layout). By keys of f16 a GPU attends to queries whose elements are within 65,504: with larger ones outputs are NaN.
 * What a GPU has no kernel for is refused by dci_gpu_kv_create: more than 65,535 lists in a step (max_sequences * n_kv_heads) that are fetched by MAPPED
 * or STAGED, and, where a block has 99 KiB of shared memory (compute capability 8.6, 8.9, 12.0), more than 8 query heads per kv head of 256 elements, or a
 * budget b and h units of the hot buffer with 8 b + 4 h beyond 67,520. With so little the host plans budgets above 4,096, and learned codes of 256
 * elements. max_tokens of 2^22 - 1 pages and more are too many for the tail SUMS of a device's plan.
 * Threads: as dci/kv.h: calls on one dci_gpu_kv are served one after another. A dci_gpu may serve many of them.
 * Errors: DCI_ERR_DEVICE when the device's runtime refuses or fails; its sentence is quoted. Bad input and want of memory are refused before
 * anything changes; a kernel that fails later shows in a later call, and the dci_gpu_kv can then only be destroyed.
 */
#ifndef DCI_OFFLOAD_H
#define DCI_OFFLOAD_H

#include "dci/gpu.h"
#include "dci/kv.h"

#ifdef __cplusplus
extern "C" {
#endif

/** How rows that are not on the device come there. */
enum {
        DCI_GPU_GATHER_MAPPED = 1, /**< the default: a kernel reads them where they lie, in mapped host memory */
        DCI_GPU_GATHER_STAGED =
                2, /**< the host collects them in one locked buffer, which is copied (as PRKV and LouisKV do) */
        DCI_GPU_GATHER_BATCHED = 3, /**< one batched call of copies, a row or page each (CUDA 12.8 and up) */
        DCI_GPU_GATHER_COPIES = 4,  /**< one copy per row or page (as IceCache's script) */
        DCI_GPU_GATHER_DIRECT = 5,  /**< not at all: attention reads them in host memory, and nothing is kept */
        DCI_GPU_GATHERS = 5
};

/** Who chooses which tokens are attended to. */
enum {
        DCI_GPU_PLAN_AUTO = 1,  /**< the default: the device where it can, else the host; dci_gpu_kv_info says who */
        DCI_GPU_PLAN_HOST = 2,  /**< the host: every preset; a plan waits for the layer's queries */
        DCI_GPU_PLAN_DEVICE = 3 /**< the device; what it cannot plan is refused by name (DCI_ERR_UNSUPPORTED) */
};

/** Prepare with dci_gpu_kv_config_init. */
typedef struct dci_gpu_kv_config {
        size_t struct_size;
        size_t max_sequences; /**< at the same time; 1 (default) to 4,096 */
        size_t max_tokens;    /**< of a sequence; default 131,072 */
        size_t ring_tokens; /**< latest tokens on the device, per lane: at least the budget, rounded up to a power of two; 0 (default): that. Older
                                   ones that a plan's recent tokens include are read in host memory */
        size_t hot_tokens; /**< of the hot buffer, per lane; 0 to 8,192, rounded up to whole units; default DCI_KV_PRESET: twice the budget,
                                   at most 8,192 */
        int32_t gather;    /**< DCI_GPU_GATHER_*; default MAPPED */
        int32_t out_dtype; /**< of attention's output: DCI_F32 (default), DCI_F16, DCI_BF16 */
        size_t piece_bytes; /**< host memory is locked in pieces of at least so many bytes, and a piece is divided among the layers. 0 (default):
                                 8 MiB for each layer, at least 64 MiB; at most what all sequences may need, and a quarter of the dci_kv's max_bytes. Devices
                                 find addresses faster where a layer's rows lie in long stretches (docs/gpu-internals.md): small pieces make the fetching of rows
                                 slower, 32 MiB for each layer are another 5 % faster */
        size_t max_device_bytes; /**< 0 (default): no limit but the device's; of all that dci_gpu_kv_info counts as device_bytes */
        int32_t planner;  /**< DCI_GPU_PLAN_*; default AUTO */
        int32_t reserved; /**< zero: anything else is DCI_ERR_INVALID, so that it can come to mean something */
        size_t device_resident_bytes; /**< device memory for pages of sparse layers that stay there until others need the room, see "Resident
                                           pages"; 0 (default): none, at most 2^48. Only with MAPPED (else DCI_ERR_UNSUPPORTED). Another thing than
                                           resident_bytes of the dci_kv_config: no output depends on it */
} dci_gpu_kv_config;
DCI_API dci_status dci_gpu_kv_config_init(dci_gpu_kv_config *config, size_t struct_size);

typedef struct dci_gpu_kv dci_gpu_kv;

/**
 * Creates a KV cache on a device. kv: as for dci_kv_create, of any preset; its layout and hook must not be set (DCI_ERR_UNSUPPORTED). Refused likewise:
 * what the device has no kernel for (see "Limits"); where that is so of its plans alone, AUTO lets the host plan.
 * Takes on the device, at once: lanes, max_sequences * sparse layers * n_kv_heads * (sink + ring_tokens + hot_tokens) rows; device_resident_bytes, as
 * far as all sequences may need them; tables; where the device
 * plans, scores of one layer: max_tokens floats for each query head (pages: a float for each page), of as many sequences as 256 MiB hold, at
 * least one; of more, some are scored after the others. Dense layers grow with the pool. What the device chooses by grows with the sequences, in
 * chunks of 512 tokens that forks share, in pieces of some 32 MiB that are given back by dci_gpu_kv_destroy alone: of a token, layer and kv head, codes
 * take bits * dim / 8 + 2 bytes, pages' means 2 dim / page_tokens, other rows of pages twice that, a low-bit tail as much as codes of its bits, SUMS
 * 4 dim / page_tokens.
 */
DCI_API dci_status dci_gpu_kv_create(dci_gpu *gpu, const dci_kv_config *kv, const dci_gpu_kv_config *config,
                                     dci_gpu_kv **out_kv);
/** Waits for the device, then closes all sequences and frees everything. NULL is allowed. In the middle of a step its stream must still exist. */
DCI_API void dci_gpu_kv_destroy(dci_gpu_kv *kv);

/** The KV cache in host memory, for what only reads: dci_kv_get_info, dci_kv_get_sequence, dci_kv_table, and after dci_gpu_kv_sync dci_kv_read and
 *  dci_kv_save. Calls that change it must go through this header. Where the device plans, this one knows nothing of plans, and has groups and
 *  codes only as far as the host was asked for them. */
DCI_API dci_kv *dci_gpu_kv_host(dci_gpu_kv *kv);

/* --- sequences: as those of dci/kv.h, but that a sequence in the middle of a step cannot be closed. All but open wait for the device.
 * Where a file or a fork finds no memory on the device for the pieces it needs, it is refused and nothing has changed. Where the device plans, a
 * saved sequence's codes are made by the host first, as by dci_gpu_kv_maintain, and those of a loaded one at once. --- */
DCI_API dci_status dci_gpu_kv_open(dci_gpu_kv *kv, int64_t *out_sequence); /**< DCI_ERR_FULL: there are max_sequences */
DCI_API dci_status dci_gpu_kv_fork(dci_gpu_kv *kv, int64_t sequence, size_t n_tokens, int64_t *out_sequence);
DCI_API dci_status dci_gpu_kv_truncate(dci_gpu_kv *kv, int64_t sequence, size_t n_tokens);
DCI_API dci_status dci_gpu_kv_close(dci_gpu_kv *kv, int64_t sequence);
DCI_API dci_status dci_gpu_kv_save(dci_gpu_kv *kv, int64_t sequence, size_t n_tokens, const char *path);
DCI_API dci_status dci_gpu_kv_load(dci_gpu_kv *kv, const char *path, int64_t *out_sequence);

/* --- steps ---------------------------------------------------------------------------------------------------------- */

/** Begins a step (one at a time) of n_sequences different sequences and n_tokens[i] more tokens each (NULL: 1), as dci_kv_reserve. Pools grow
 *  here, and what the device chooses by: what cannot be had is refused, and nothing has changed but for clusters that were due, which stay.
 *  What of the latter the device cannot form itself is formed by the host here, which then waits for the rows of earlier steps: once after a
 *  prompt of several steps whose rows were not named, once where a prompt was too short to give any codes, and behind a prompt after steps so
 *  long that keys have left the ring before they were formed (ring_tokens less window and rollback), or of more than 1,024 tokens; and, where
 *  the device chooses among clusters, once in many tokens, when new ones are due. */
DCI_API dci_status dci_gpu_kv_reserve(dci_gpu_kv *kv, void *stream, size_t n_sequences, const int64_t *sequences,
                                      const size_t *n_tokens);

/**
 * Stores keys and values of one layer for all of the step's sequences, one behind the other, each layer once. rows: as in dci_kv_append, in
 * device memory (or memory it can read), 16-byte aligned rows; they may be overwritten by later work on the stream. Rows with NaN or
 * infinity set the sequence's flag, see dci_gpu_poll. The host chooses nothing by such rows: from then on its plans of the sequence, its prompt's
 * end and dci_gpu_kv_maintain are DCI_ERR_NUMBER, and so is dci_gpu_kv_reserve where the host forms groups. Take the step back and close it. A
 * device that plans does not look at the flag: what such a sequence attends to is of no use, but that of others is not touched.
 */
DCI_API dci_status dci_gpu_kv_append(dci_gpu_kv *kv, void *stream, size_t layer, const dci_kv_rows *rows);

/** As dci_kv_end_prompt, with queries in device memory: n_positions x n_query_heads rows, ld elements apart; what lies between them is read, too.
 *  The host's work on a layer begins when its rows have arrived, while the caller goes on with the next layers. So what the work wants
 *  (memory, queries that are numbers) is refused by dci_gpu_kv_plan of the layer or dci_gpu_kv_step_end: call those again, or take the
 *  step back.
 *  A device that plans does that work itself, queued by this call, from the rows of this step's dci_gpu_kv_append, which must lie there unchanged
 *  until it is done (what the stream does afterwards may overwrite them), and looks at no queries. Of a prompt that came in several steps see
 *  dci_gpu_kv_prompt_rows; plans of the step that ends such a prompt attend to everything. A prompt may end in some layers in a later step than in
 *  others: there, plans of later steps attend to everything until it has ended in all, and when its end is cut they choose among as many tokens in all
 *  layers as in the one that has the fewest. */
DCI_API dci_status dci_gpu_kv_end_prompt(dci_gpu_kv *kv, void *stream, size_t layer, int64_t sequence,
                                         size_t n_positions, const void *queries, size_t ld);

/**
 * For prompts that come in several steps, where the device plans: names the keys and values of all of a sequence's tokens, those of this step
 * among them, right before the sequence's dci_gpu_kv_end_prompt of the layer in the step that ends the prompt (a layer remembers the last call). The
 * caller has them on the device, since the prompt's own attention reads them. As the rows of dci_gpu_kv_append, of tokens 0, 1, ..; read by what
 * dci_gpu_kv_end_prompt queues, as those. Without this call, or where the device has no memory for what would be formed, or in a step without
 * tokens, the host makes what is chosen by, from its own rows, before the next step. Presets that the host plans do not look at it.
 */
DCI_API dci_status dci_gpu_kv_prompt_rows(dci_gpu_kv *kv, void *stream, size_t layer, int64_t sequence,
                                          const dci_kv_rows *rows);

/** Chooses for one layer, by queries in device memory: n_sequences x n_query_heads rows of query_dtype, ld elements apart, in the step's order, of
 *  the step's last tokens, whose rows were appended before. The device queues its choice on the stream and returns; its lists last until it plans
 *  another layer, so dci_gpu_kv_attend of this one comes before that. The host waits until the stream has brought the queries; cost as
 *  dci_kv_plan_make. Layers that attend to everything wait for nothing, and must be planned, too. DCI_ERR_INVALID: the prompt has not ended in
 *  the layer. A plan that is refused leaves nothing behind: it may be asked for again. */
DCI_API dci_status dci_gpu_kv_plan(dci_gpu_kv *kv, void *stream, size_t layer, const void *queries, size_t ld);

/** Attention over the layer's plan of this step, after dci_gpu_kv_plan, by the same queries. out: device memory, n_sequences x n_query_heads rows of out_dtype,
 *  out_ld apart; out_lse as in dci_kv_attend, may be NULL. Queries and outputs are aligned to their elements. */
DCI_API dci_status dci_gpu_kv_attend(dci_gpu_kv *kv, void *stream, size_t layer, const void *queries, size_t ld,
                                     void *out, size_t out_ld, float *out_lse);

/**
 * For graphs (CUDA: stream capture). Called in a step that is open, of one token for each sequence, before its layers: until the step's end, what
 * dci_gpu_kv_append, _plan and _attend queue is sized for sequences of up to max_tokens tokens (0: the config's), reads all that changes
 * from step to step on the device, and may be captured: any captured launch of the step stays right in later steps (dci_gpu_kv_replay), whatever
 * became of sequences, pools and pieces in between. Work is divided by a sequence's own length, so a few graphs are enough, for up to 8 k, 32 k and
 * 128 k tokens say. The calls themselves queue nothing that a stream cannot capture; a step whose layers were captured has done nothing until the
 * graph is launched, which the caller does before dci_gpu_kv_step_end. Taken back by dci_gpu_kv_step_abort, launched or not, it has formed
 * nothing of what the device chooses by: the next step forms that. A step for which nothing is captured after all is a step like any other.
 * Calls that wait for the device (of others: dci_gpu_kv_sync, _get_info, _maintain, _step_abort, _fork, _truncate, _close, _save, _load) are refused while
 * the step's stream is captured (DCI_ERR_INVALID), and change nothing: capture, launch and step go on.
 * Refused: layers that the host plans (DCI_ERR_UNSUPPORTED), sequences of more than max_tokens (DCI_ERR_LIMIT), steps with other than one token
 * each, a layer that has its rows already.
 */
DCI_API dci_status dci_gpu_kv_capture(dci_gpu_kv *kv, void *stream, size_t max_tokens);

/** In place of a step's calls for its layers: the caller launches, on the step's stream, between this and dci_gpu_kv_step_end, a graph that was
 *  captured on this dci_gpu_kv with as many sequences (whichever), all layers, and this max_tokens. Queues nothing itself; costs the host a few
 *  microseconds. Queries, rows and outputs lie where they lay when the graph was captured. Prompts have ended in all layers that choose; what
 *  else is refused: as dci_gpu_kv_capture. */
DCI_API dci_status dci_gpu_kv_replay(dci_gpu_kv *kv, void *stream, size_t max_tokens);

/** Ends the step: all layers have their tokens. A prompt's end waits for its rows to arrive, where the host forms groups of it. */
DCI_API dci_status dci_gpu_kv_step_end(dci_gpu_kv *kv, void *stream);
/** Takes the step back, as dci_kv_step_abort; waits for the device. What the device formed of tokens of earlier steps it keeps, but for
 *  dci_gpu_kv_capture; prompts that ended in the step have not. */
DCI_API dci_status dci_gpu_kv_step_abort(dci_gpu_kv *kv);
/**
 * Between steps, as dci_kv_maintain. Waits for the last step's rows. sequences NULL: all that are in no step and have good rows; one that is named
 * and in the middle of a step is refused (DCI_ERR_INVALID), and nothing is done for any.
 * Where the device plans, steps form what is chosen by, and this is needed for one thing: codes that no longer fit are made anew (`refit` of the
 * dci_kv_config). The host catches up, which costs it time and memory for all codes of the sequence once and for those of new tokens afterwards;
 * where codes are due it makes them, and the device gets all of the sequence's. Once in some thousand tokens is enough. A decode without it goes on
 * with the codes it has.
 */
DCI_API dci_status dci_gpu_kv_maintain(dci_gpu_kv *kv, size_t n_sequences, const int64_t *sequences);
/** Waits until everything is done and all rows are in host memory, and for the host's worker; then makes learned codes of prompts that have ended,
 *  as far as there is memory for them, which the next step would do otherwise. */
DCI_API dci_status dci_gpu_kv_sync(dci_gpu_kv *kv);

/** Whether a sequence has got rows with NaN or infinity since it was opened: 1 or 0, as of the work that is done. Waits for nothing. */
DCI_API dci_status dci_gpu_poll(dci_gpu_kv *kv, size_t n_sequences, const int64_t *sequences, int32_t *out_bad);

/** Prepare with dci_gpu_kv_info_init. */
typedef struct dci_gpu_kv_info {
        size_t struct_size;
        size_t device_bytes; /**< taken on the device: lanes, dense layers, tables, buffers, summaries and resident pages */
        size_t lane_bytes, dense_bytes, table_bytes, buffer_bytes;
        size_t pinned_bytes;    /**< locked host memory: pool and buffers */
        size_t sink, ring, hot; /**< slots of a lane */
        size_t unit_tokens;     /**< fetched at once: 1, or a page where groups are pages by position */
        uint64_t n_steps;
        uint64_t n_asked;  /**< units that plans asked for, of all lanes, by work that is done */
        uint64_t n_missed; /**< of these, fetched */
        uint64_t n_stayed; /**< tokens read in host memory, for want of room in the hot buffer */
        uint64_t
                bytes_fetched; /**< over the bus to the device: what missed and was in no resident page, what stayed, and what
                                       dci_gpu_kv_fork, _load, _truncate and _step_abort bring back; without recent tokens beyond the ring */
        uint64_t bytes_written; /**< new tokens' rows to the host */
        size_t summary_bytes;   /**< of device_bytes: pieces of what the device chooses by; grows with the sequences */
        int32_t planner;        /**< DCI_GPU_PLAN_DEVICE or _HOST: who chooses */
        int32_t reserved;
        size_t resident_bytes; /**< of device_bytes: room for resident pages, in whole pages of all sparse layers */
        size_t resident_used_bytes; /**< of these, with pages in them */
        size_t resident_pages;      /**< that are there now, those that sequences share once */
        uint64_t n_resident; /**< of n_missed, units that came from resident pages; the others came over the bus */
        uint64_t
                n_clustered; /**< layers of prompts whose clusters the device made, as far as the host has taken them over */
} dci_gpu_kv_info;
DCI_API dci_status dci_gpu_kv_info_init(dci_gpu_kv_info *info, size_t struct_size);
/** Waits for the device. */
DCI_API dci_status dci_gpu_kv_get_info(dci_gpu_kv *kv, dci_gpu_kv_info *out_info);

#ifdef __cplusplus
}
#endif
#endif
