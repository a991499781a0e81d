/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Who builds what is stored per group of candidates (summaries, codes, tails, clusters), and when. The host's former
 * builds a prompt when it ends (prompt.c). A device that plans has its own (offload/planner.c): it builds itself, and
 * the host builds what it is asked for, to the same bits. The states of a layer:
 *
 *            end_prompt, former.build             workers: former.built
 *      OPEN ---------------------------> WAITING -------------------------.
 *       ^ |                                 | learned codes that the      |
 *       | | end_prompt, no build            v device makes: n_missing     v
 *       | '---------------------------> DONE, due ------------------> DONE, built -. maintain, reserve: n_grouped grows
 *       |                               prompt_due;   maintain,         |     ^    | refit: another transform
 *       |                               or chunks,    build_next,       |     |    | build_missing: n_missing falls
 *       |                               none built    or the device     |     |    | truncate, fork: both are cut
 *       |                                   ^                           |     '----'
 *       |                                   '---------------------------'
 *       |                                    truncate, fork: no chunk is left
 *       '--- abort, if the prompt ended in the open step
 *
 * A built layer has [0, n_grouped), of which only the device has the codes of [0, n_missing). A loaded one is built. In
 * a child of fork(2), work that was WAITING begins again (worker.h). What the device has of a row is [0, n_formed) in
 * all layers, and `where` says whose transforms hold (offload/offload_internal.h):
 *
 *                 upload, or the end of a step in which
 *                 the prompt ended and was built           refit
 *      NOWHERE ---------------------------------> ON_DEVICE <----> ON_HOST <--- load
 *      open, codes                                open, others  upload
 *      reserve   step.n_formed: candidates after the step; what the device cannot build is uploaded: n_formed grows
 *      end       n_formed = step.n_formed if the device has built them
 *      abort     the same, but of a prompt that ended in the step nothing stays
 *      truncate  n_formed is cut; a fork gets the same, cut
 */
#ifndef DCI_KV_FORMER_H
#define DCI_KV_FORMER_H

#include "dci/kv.h"

struct dci_kv_layer;
typedef struct dci_kv_former {
        /* The host plans: its groups are complete, and dci_kv_reserve builds what is pending and allocates scratch for
         * plans. Else it builds when dci_kv_maintain or an internal call asks for it. */
        bool host_plans;
        /* Builds one head of a prompt that has ended, with an area of scratch by number, concurrently with other heads.
         * Cannot fail. NULL: the end of a prompt builds nothing. */
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
