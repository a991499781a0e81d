/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Who builds what is stored per group of candidates (summaries, codes, tails, clusters), and when. The host's former
 * does it all (prompt.c). A device that plans brings its own (offload/summaries.c): it builds on the device, and the
 * host builds what it is asked for, to the same bits. A layer of a sequence is in one of these states, as the host sees
 * it; [a, b) are candidates:
 *
 *                               OPEN, prompt                          <------------.
 *                                    | end_prompt                                  |
 *             .----------------------+----------------------.                      | step abort
 *             | build                                       | no build             | (a prompt that
 *             v                                             v                      | ended in the step)
 *      WAITING, a job  ------------------------------>  DONE, due  ----------------'
 *       | the worker     learned codes: transforms      clusters:  prompt_due
 *       | has built      are there, prompt_due,         chunks:    n_grouped is 0
 *       |                n_missing: to be encoded           |
 *       |                                                   | device: set_codes, set_prompt_clusters
 *       v                                                   | host:   maintain, build_prompt, set_codes(NULL)
 *      DONE: [0, n_grouped) are built, of which the device <'
 *       |  ^ alone has codes of [0, n_missing)
 *       |  |
 *       |  +-- maintain, reserve (host plans): n_grouped grows
 *       |  +-- maintain: refit, the same candidates with another transform
 *       |  +-- build_missing: n_missing falls
 *       |  '-- truncate: n_grouped, n_missing are cut     (due chunks again, where none is left)
 *       |
 *       '----- fork: the copy begins as its source, cut   (load: DONE, with what the file has)
 *
 * A job in a child of fork(2) begins again (worker.h). What a device has of a row is n_formed candidates, and `where`
 * says whose transforms hold (offload_internal.h):
 *
 *      NONE    --- a prompt's end with all layers built, upload ---> DEVICE
 *      DEVICE  --- step: the device builds what is pending --------> DEVICE, n_formed grows when the step ends
 *      DEVICE  --- refit by the host ------------------------------> HOST
 *      (load)  ----------------------------------------------------> HOST
 *      HOST    --- upload: all summaries, with their transforms ---> DEVICE
 *
 * Truncation cuts n_formed and keeps `where`, and forks copy both. An aborted step keeps what was pending and is built,
 * and drops the prompt that ended in it.
 */
#ifndef DCI_KV_FORMER_H
#define DCI_KV_FORMER_H

#include "dci/kv.h"

struct dci_kv_layer;

typedef struct dci_kv_former {
        /* The host plans: its groups are complete, and dci_kv_reserve builds what is pending and allocates scratch for
         * plans. Else it builds when dci_kv_maintain or an internal call asks for it. */
        bool host_plans;
        /* Builds one head of a prompt that has ended, with an area of scratch by number: 0 is the worker's. Cannot
         * fail. NULL: the end of a prompt builds nothing. */
        void (*build)(dci_kv *kv, struct dci_kv_layer *layer, size_t head, size_t area);
        /* After all heads, under jobs_lock: counts what there is. */
        void (*built)(const dci_kv *kv, struct dci_kv_layer *layer);
        /* In a child of fork(2): forgets what was begun. */
        void (*restart)(const dci_kv *kv, struct dci_kv_layer *layer);
        /* Candidates that are built on the host or by the owner: truncation keeps them however recent they are. */
        size_t (*n_formed)(const dci_kv *kv, const struct dci_kv_layer *layer);
        void *owner;
} dci_kv_former;

#endif
