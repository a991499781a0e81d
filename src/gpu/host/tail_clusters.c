/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Reference of cuda/tail/tail_clusters.cu: attention over unselected candidates by means of clusters, in binary64. */
#include "gpu/gpu_internal.h"

#include <math.h>

#include "gpu/host/reference.h"

/* A list, and the head's clusters. */
typedef struct list {
        const dci_gpu_tail_clusters_args *args;
        size_t row, head, dim;
        int32_t n_tokens, n_candidates, n_clusters;
        const int32_t *members; /* by cluster */
        const float *scores;
} list;

/* One cluster: members [selected, selected + rest) are left. */
typedef struct cluster {
        int32_t number, first, size, selected, rest;
} cluster;

/* The members whose rows are read for a cluster of which some are left: those, or the others. */
typedef struct reading {
        bool left;
        int32_t n;
} reading;

static const unsigned char *part_of(const list *l, int32_t number)
{
        return dci_gpu_chunk_of(&l->args->clusters, l->row, l->head, (uint64_t)(number / DCI_GPU_CHUNK));
}

static int32_t id_at(const list *l, int32_t at)
{
        const unsigned char *part = dci_gpu_chunk_of(&l->args->ids, l->row, l->head, (uint64_t)(at / DCI_GPU_CHUNK));
        return ((const int32_t *)(const void *)part)[at % DCI_GPU_CHUNK];
}

/* rest: 0 where nothing is estimated. */
static cluster cluster_of(const list *l, int32_t number)
{
        const int32_t *span =
                (const int32_t *)(const void *)(part_of(l, number) + l->args->spans_at) + 2 * (number % DCI_GPU_CHUNK);
        cluster c = {number, span[0], span[1], l->members[number], 0};
        if (c.selected < 0)
                return c;
        int32_t end = c.size;
        while (end > c.selected && id_at(l, c.first + end - 1) >= l->n_candidates)
                end--;
        c.rest = end - c.selected;
        return c;
}

static dci_gpu_place row_at(const list *l, int32_t position)
{
        const dci_gpu_tail_clusters_args *args = l->args;
        const dci_gpu_lanes *lanes = &args->lanes;
        if (position >= l->n_tokens - lanes->ring)
                return dci_gpu_lane_place(lanes, l->row * (size_t)args->n_heads + l->head,
                                          lanes->sink + (position & (lanes->ring - 1)));
        return dci_gpu_pool_place(&args->pool, &args->tables, (int32_t)l->row, position, (int32_t)l->head);
}

static reading reading_of(const cluster *c)
{
        const int32_t others = c->size - c->rest;
        return c->rest <= others ? (reading){true, c->rest} : (reading){false, others};
}

static dci_gpu_place read_at(const list *l, const cluster *c, const reading *r, int32_t i)
{
        const int32_t member = r->left ? c->selected + i : i < c->selected ? i : c->rest + i;
        return row_at(l, l->args->sizes.sink + id_at(l, c->first + member));
}

static double product(const list *l, const void *query, const void *key)
{
        double sum = 0.0;
        for (size_t j = 0; j < l->dim; j++)
                sum += (double)dci_gpu_load(query, j, l->args->query_dtype) *
                       (double)dci_gpu_load(key, j, l->args->dtype);
        return sum * (double)l->args->scale;
}

static double score_of(const list *l, const void *query, size_t q, const cluster *c)
{
        const double mean = (double)l->scores[(size_t)c->number * (size_t)l->args->group + q];
        const reading r = reading_of(c);
        double sum = r.left ? 0.0 : (double)c->size * mean;
        if (r.n == 0)
                return mean;
        for (int32_t i = 0; i < r.n; i++)
                sum += (r.left ? 1.0 : -1.0) * product(l, query, read_at(l, c, &r, i).key);
        return sum / (double)c->rest;
}

static void add_values(const list *l, double weight, const cluster *c, double *sums)
{
        const reading r = reading_of(c);
        const unsigned char *mean =
                part_of(l, c->number) + l->args->values_at + (size_t)(c->number % DCI_GPU_CHUNK) * l->dim * 2;
        for (size_t j = 0; j < l->dim && !r.left; j++)
                sums[j] += weight * (double)c->size * (double)dci_gpu_load(mean, j, l->args->dtype);
        for (int32_t i = 0; i < r.n; i++) {
                const unsigned char *value = read_at(l, c, &r, i).value;
                for (size_t j = 0; j < l->dim; j++)
                        sums[j] += (r.left ? weight : -weight) * (double)dci_gpu_load(value, j, l->args->dtype);
        }
}

/* One query head: the greatest score first, then the sums. */
static void attend(const list *l, size_t q, const void *query, float *out, float *lse)
{
        double most = -INFINITY, sum = 0.0, sums[DCI_GPU_MAX_DIM] = {0.0};
        for (int32_t g = 0; g < l->n_clusters; g++) {
                const cluster c = cluster_of(l, g);
                most = c.rest > 0 ? fmax(most, score_of(l, query, q, &c)) : most;
        }
        for (int32_t g = 0; g < l->n_clusters; g++) {
                const cluster c = cluster_of(l, g);
                const double weight = c.rest > 0 ? exp(score_of(l, query, q, &c) - most) : 0.0;
                sum += weight * (double)c.rest;
                if (weight > 0.0)
                        add_values(l, weight, &c, sums);
        }
        for (size_t j = 0; j < l->dim; j++)
                out[j] = sum > 0.0 ? (float)(sums[j] / sum) : 0.0f;
        *lse = sum > 0.0 ? (float)(most + log(sum)) : -INFINITY;
}

void dci_gpu_ref_tail_clusters(const dci_gpu_tail_clusters_args *args)
{
        const size_t n_lists = (size_t)DCI_GPU_LISTS(args), share = (size_t)DCI_GPU_HEAD_LISTS(args),
                     group = (size_t)args->group, dim = (size_t)args->dim, max_groups = (size_t)args->max_groups;
        const size_t query_bytes = args->query_ld * (args->query_dtype == DCI_F32 ? 4 : 2);
        for (size_t i = 0; i < (size_t)args->n_sequences * n_lists; i++) {
                const size_t sequence = i / n_lists;
                list l = {.args = args,
                          .row = (size_t)args->rows[sequence],
                          .head = i % n_lists / share,
                          .dim = dim,
                          .n_tokens = args->n_tokens[sequence],
                          .members = args->members + i * max_groups,
                          .scores = args->scores + i * max_groups * group};
                dci_gpu_view view;
                DCI_GPU_VIEW(view, args->sizes, l.n_tokens, args->n_grouped[sequence]);
                const int32_t n = args->n_clusters[l.row * (size_t)args->n_heads + l.head];
                l.n_candidates = view.n_candidates;
                l.n_clusters = view.sparse == 0 ? 0 : n < args->max_groups ? n : args->max_groups;
                for (size_t q = 0; q < group; q++)
                        attend(&l, q, (const unsigned char *)args->queries + (i * group + q) * query_bytes,
                               args->out + (i * group + q) * dim, args->lse + i * group + q);
        }
}
