/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Reference of cuda/tail/tail_sums.cu: attention over unselected candidates by means of pages, in binary64. */
#include "gpu/gpu_internal.h"

#include <math.h>
#include <string.h>

#include "gpu/host/reference.h"

/* A list, and the head's rows. */
typedef struct pages {
        const dci_gpu_tail_sums_args *args;
        size_t row, head, dim, n_candidates, n_pages;
        const int32_t *positions, *slots;
        int32_t count;
} pages;

/* One page, as one query head sees it. */
typedef struct page {
        size_t size, rest; /* tokens, and those that were not selected */
        int32_t first;     /* entry of the list in the page; there are size - rest */
        double score;
} page;

/* The mean key, or value, of a page. */
static const unsigned char *mean_of(const pages *l, size_t number_of_page, bool value)
{
        const dci_gpu_tail_sums_args *args = l->args;
        const size_t per_chunk = DCI_GPU_CHUNK >> args->page_shift;
        return dci_gpu_chunk_of(&args->chunks, l->row, l->head, number_of_page / per_chunk) +
               (value ? args->values_at : args->keys_at) + number_of_page % per_chunk * l->dim * 2;
}

/* Key and value of an entry of the list. */
static dci_gpu_place chosen_at(const pages *l, int32_t entry)
{
        const dci_gpu_tail_sums_args *args = l->args;
        const int32_t slot = l->slots[entry];
        if (slot >= 0)
                return dci_gpu_lane_place(&args->lanes, l->row * (size_t)args->n_heads + l->head, slot);
        return dci_gpu_pool_place(&args->pool, &args->tables, (int32_t)l->row, ~slot, (int32_t)l->head);
}

static double product(const pages *l, const void *query, const void *key)
{
        double sum = 0.0;
        for (size_t j = 0; j < l->dim; j++)
                sum += (double)dci_gpu_load(query, j, l->args->query_dtype) *
                       (double)dci_gpu_load(key, j, l->args->dtype);
        return sum * (double)l->args->scale;
}

/* Call for pages in order: *entry is the list's first entry in this page, and afterwards in the next one. */
static page next_page(const pages *l, size_t p, int32_t *entry)
{
        const size_t per_page = (size_t)1 << l->args->page_shift, left = l->n_candidates - p * per_page;
        page out = {.size = left < per_page ? left : per_page, .first = *entry};
        while (*entry < l->count && (size_t)(l->positions[*entry] - l->args->sizes.sink) < (p + 1) * per_page)
                (*entry)++;
        out.rest = out.size - (size_t)(*entry - out.first);
        return out;
}

static double score_of(const pages *l, const void *query, size_t p, const page *of)
{
        const double mean = product(l, query, mean_of(l, p, false));
        const size_t n_chosen = of->size - of->rest;
        double sum = (double)of->size * mean;
        if (l->slots == NULL || n_chosen == 0)
                return mean;
        for (size_t i = 0; i < n_chosen; i++)
                sum -= product(l, query, chosen_at(l, of->first + (int32_t)i).key);
        return sum / (double)of->rest;
}

static void add_page(const pages *l, double weight, size_t p, const page *of, double *sums)
{
        const bool whole = l->slots == NULL;
        const unsigned char *mean = mean_of(l, p, true);
        const double times = (double)(whole ? of->rest : of->size);
        for (size_t j = 0; j < l->dim; j++)
                sums[j] += weight * times * (double)dci_gpu_load(mean, j, l->args->dtype);
        for (size_t i = 0; i < of->size - of->rest && !whole; i++) {
                const unsigned char *value = chosen_at(l, of->first + (int32_t)i).value;
                for (size_t j = 0; j < l->dim; j++)
                        sums[j] -= weight * (double)dci_gpu_load(value, j, l->args->dtype);
        }
}

/* One query head: the greatest score first, then the sums. */
static void attend(const pages *l, const void *query, float *out, float *lse)
{
        double most = -INFINITY, sum = 0.0, sums[DCI_GPU_MAX_DIM] = {0.0};
        int32_t entry = 0;
        for (size_t p = 0; p < l->n_pages; p++) {
                const page of = next_page(l, p, &entry);
                most = of.rest > 0 ? fmax(most, score_of(l, query, p, &of)) : most;
        }
        entry = 0;
        for (size_t p = 0; p < l->n_pages; p++) {
                const page of = next_page(l, p, &entry);
                const double weight = of.rest > 0 ? exp(score_of(l, query, p, &of) - most) : 0.0;
                sum += weight * (double)of.rest;
                if (weight > 0.0)
                        add_page(l, weight, p, &of, sums);
        }
        for (size_t j = 0; j < l->dim; j++)
                out[j] = sum > 0.0 ? (float)(sums[j] / sum) : 0.0f;
        *lse = sum > 0.0 ? (float)(most + log(sum)) : -INFINITY;
}

void dci_gpu_ref_tail_sums(const dci_gpu_tail_sums_args *args)
{
        const size_t n_lists = (size_t)DCI_GPU_LISTS(args), share = (size_t)DCI_GPU_HEAD_LISTS(args),
                     group = (size_t)args->group, dim = (size_t)args->dim;
        const size_t query_bytes = args->query_ld * (args->query_dtype == DCI_F32 ? 4 : 2);
        for (size_t i = 0; i < (size_t)args->n_sequences * n_lists; i++) {
                const size_t sequence = i / n_lists;
                pages l = {.args = args,
                           .row = (size_t)args->rows[sequence],
                           .head = i % n_lists / share,
                           .dim = dim,
                           .positions = args->positions + i * (size_t)args->stride,
                           .slots = args->whole != 0 ? NULL : args->slots + i * (size_t)args->stride,
                           .count = args->counts[i]};
                dci_gpu_view view;
                DCI_GPU_VIEW(view, args->sizes, args->n_tokens[sequence], args->n_grouped[sequence]);
                l.n_candidates = view.sparse ? (size_t)view.n_candidates : 0;
                l.n_pages = (l.n_candidates + ((size_t)1 << args->page_shift) - 1) >> args->page_shift;
                for (size_t q = i * group; q < (i + 1) * group; q++)
                        attend(&l, (const unsigned char *)args->queries + q * query_bytes, args->out + q * dim,
                               args->lse + q);
        }
}
