/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "core/internal.h"

#include <string.h>

#include "index/candidates.h"

dci_status dci_chooser_begin(dci_chooser *chooser)
{
        const dci_flat *flat = chooser->flat;
        const size_t n_groups = flat->queries->n / chooser->group;
        size_t work = 0;
        if (!dci_mul(chooser->work, n_groups, &work))
                work = SIZE_MAX;
        chooser->n_workers = dci_workers_for(flat->context, n_groups, work);
        chooser->worker_bytes = chooser->own_bytes + dci_lines(chooser->most * sizeof(int32_t)) +
                                (chooser->k_held == 0 ? 0 : chooser->group * dci_topk_bytes(chooser->k_held));
        chooser->scratch = dci_alloc(flat->context, chooser->n_workers, chooser->worker_bytes);
        chooser->counts = dci_calloc(flat->context, chooser->n_workers, sizeof *chooser->counts);
        if (chooser->scratch != NULL && chooser->counts != NULL)
                return DCI_OK;
        dci_chooser_end(chooser);
        return DCI_ERR_MEMORY;
}

void dci_chooser_end(dci_chooser *chooser)
{
        dci_free(chooser->flat->context, chooser->counts, chooser->n_workers, sizeof *chooser->counts);
        dci_free(chooser->flat->context, chooser->scratch, chooser->n_workers, chooser->worker_bytes);
}

static bool ascend(const int32_t *slots, size_t n)
{
        int32_t falls = 0;
        for (size_t i = 1; i < n; i++)
                falls |= slots[i] < slots[i - 1];
        return falls == 0;
}

void *dci_chooser_choose(dci_chooser *chooser, size_t query, size_t worker, dci_selection *out)
{
        unsigned char *own = chooser->scratch + worker * chooser->worker_bytes;
        int32_t *slots = (int32_t *)(void *)(own + chooser->own_bytes);
        *out = (dci_selection){.slots = slots};
        out->n = chooser->choose(chooser, query, own, slots, &chooser->counts[worker].visited);
        out->scattered = !ascend(slots, out->n);
        chooser->counts[worker].candidates += out->n * chooser->group;
        return own + chooser->own_bytes + dci_lines(chooser->most * sizeof *slots);
}

void dci_chooser_report(const dci_chooser *chooser, dci_search_stats *stats)
{
        stats->queries = chooser->flat->queries->n;
        for (size_t i = 0; i < chooser->n_workers; i++) {
                stats->visited += chooser->counts[i].visited;
                stats->candidates += chooser->counts[i].candidates;
        }
        stats->proposed = stats->visited;
        stats->distances = stats->candidates;
}

typedef struct best {
        dci_chooser *chooser;
        size_t k;
        int64_t *out_ids;
        float *out_scores;
} best;

static void best_task(void *arg, size_t task, size_t worker)
{
        const best *b = arg;
        const size_t group = b->chooser->group, query = task * group;
        dci_selection chosen;
        unsigned char *memory = dci_chooser_choose(b->chooser, query, worker, &chosen);
        dci_flat flat = *b->chooser->flat;
        dci_topk topk[DCI_MANY_QUERIES];
        flat.selection = &chosen;
        flat.n = chosen.n;
        for (size_t i = 0; i < group; i++)
                dci_topk_init(&topk[i], flat.kernels, flat.ids, b->chooser->k_held, dci_metric_descending(flat.metric),
                              memory + i * dci_topk_bytes(b->chooser->k_held));
        dci_flat_scan(&flat, query, group, 0, flat.n, topk);
        for (size_t i = 0; i < group; i++) {
                const size_t at = (query + i) * b->k, n = dci_topk_finish(&topk[i]);
                dci_flat_emit(&flat, topk[i].keys, n, b->k, b->out_ids + at,
                              b->out_scores == NULL ? NULL : b->out_scores + at);
        }
}

dci_status dci_chooser_search(dci_chooser *chooser, size_t k, int64_t *out_ids, float *out_scores,
                              dci_search_stats *stats)
{
        const dci_flat *flat = chooser->flat;
        chooser->k_held = k < flat->n ? k : flat->n;
        dci_status status = dci_chooser_begin(chooser);
        if (status != DCI_OK)
                return status;
        best b = {chooser, k, out_ids, out_scores};
        dci_region region = {flat->context,  flat->queries->n / chooser->group, chooser->n_workers, best_task, &b,
                             flat->progress, flat->n * flat->queries->n,        flat->object};
        status = dci_parallel(&region);
        dci_chooser_report(chooser, stats);
        dci_chooser_end(chooser);
        return status;
}
