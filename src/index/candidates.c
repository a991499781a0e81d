/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "core/internal.h"

#include <string.h>

#include "index/candidates.h"

dci_status dci_candidates_begin(dci_candidates *candidates)
{
        const dci_flat *flat = candidates->flat;
        const size_t n_groups = flat->queries->n / candidates->group;
        size_t work = 0;
        if (!dci_mul(candidates->work, n_groups, &work))
                work = SIZE_MAX;
        candidates->n_workers = dci_workers_for(flat->context, n_groups, work);
        candidates->worker_bytes =
                candidates->own_bytes + dci_lines(candidates->max_slots * sizeof(int32_t)) +
                (candidates->k_held == 0 ? 0 : candidates->group * dci_topk_bytes(candidates->k_held));
        candidates->scratch = dci_alloc(flat->context, candidates->n_workers, candidates->worker_bytes);
        candidates->counts = dci_calloc(flat->context, candidates->n_workers, sizeof *candidates->counts);
        if (candidates->scratch != NULL && candidates->counts != NULL)
                return DCI_OK;
        dci_candidates_end(candidates);
        return DCI_ERR_MEMORY;
}

void dci_candidates_end(dci_candidates *candidates)
{
        dci_free(candidates->flat->context, candidates->counts, candidates->n_workers, sizeof *candidates->counts);
        dci_free(candidates->flat->context, candidates->scratch, candidates->n_workers, candidates->worker_bytes);
}

static bool ascend(const int32_t *slots, size_t n)
{
        int32_t falls = 0;
        for (size_t i = 1; i < n; i++)
                falls |= slots[i] < slots[i - 1];
        return falls == 0;
}

void *dci_candidates_select(dci_candidates *candidates, size_t query, size_t worker, dci_selection *out)
{
        unsigned char *own = candidates->scratch + worker * candidates->worker_bytes;
        int32_t *slots = (int32_t *)(void *)(own + candidates->own_bytes);
        *out = (dci_selection){.slots = slots};
        out->n = candidates->select(candidates, query, own, slots, &candidates->counts[worker].visited);
        out->scattered = !ascend(slots, out->n);
        candidates->counts[worker].candidates += out->n * candidates->group;
        return own + candidates->own_bytes + dci_lines(candidates->max_slots * sizeof *slots);
}

void dci_candidates_report(const dci_candidates *candidates, dci_search_stats *stats)
{
        stats->queries = candidates->flat->queries->n;
        for (size_t i = 0; i < candidates->n_workers; i++) {
                stats->visited += candidates->counts[i].visited;
                stats->candidates += candidates->counts[i].candidates;
        }
        stats->proposed = stats->visited;
        stats->distances = stats->candidates;
}

typedef struct best {
        dci_candidates *candidates;
        size_t k;
        int64_t *out_ids;
        float *out_scores;
} best;

static void best_task(void *arg, size_t task, size_t worker)
{
        const best *b = arg;
        const size_t group = b->candidates->group, query = task * group;
        dci_selection selected;
        unsigned char *memory = dci_candidates_select(b->candidates, query, worker, &selected);
        dci_flat flat = *b->candidates->flat;
        dci_topk topk[DCI_MANY_QUERIES];
        flat.selection = &selected;
        flat.n = selected.n;
        for (size_t i = 0; i < group; i++)
                dci_topk_init(&topk[i], flat.kernels, flat.ids, b->candidates->k_held,
                              dci_metric_descending(flat.metric), memory + i * dci_topk_bytes(b->candidates->k_held));
        dci_flat_scan(&flat, query, group, 0, flat.n, topk);
        for (size_t i = 0; i < group; i++) {
                const size_t n = dci_topk_finish(&topk[i]);
                dci_flat_emit(&flat, query + i, topk[i].keys, n, b->k, b->out_ids, b->out_scores);
        }
}

dci_status dci_candidates_search(dci_candidates *candidates, size_t k, int64_t *out_ids, float *out_scores,
                                 dci_search_stats *stats)
{
        const dci_flat *flat = candidates->flat;
        candidates->k_held = k < flat->n ? k : flat->n;
        DCI_TRY(dci_candidates_begin(candidates));
        best b = {candidates, k, out_ids, out_scores};
        dci_status status =
                dci_flat_run(flat, flat->queries->n / candidates->group, candidates->n_workers, best_task, &b);
        dci_candidates_report(candidates, stats);
        dci_candidates_end(candidates);
        return status;
}
