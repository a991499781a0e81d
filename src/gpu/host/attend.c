/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Reference of cuda/attend/attend.cu: attention of one query position per sequence, token by token with the running
 * maximum of online softmax, in double. It does not use n_splits, partial and arrived. */
#include "gpu/gpu_internal.h"

#include <math.h>

#include "gpu/host/reference.h"
#include "simd/convert.h"

/* The query heads of one list. */
typedef struct reading {
        const dci_gpu_attend_args *args;
        int32_t row, head, n_tokens; /* head: kv head */
        int32_t sink, ring;          /* of the lane, 0 where positions are read in the pool */
        float queries[DCI_GPU_MAX_GROUP][DCI_GPU_MAX_DIM];
        double most[DCI_GPU_MAX_GROUP], sum[DCI_GPU_MAX_GROUP], acc[DCI_GPU_MAX_GROUP][DCI_GPU_MAX_DIM];
} reading;

static void store(void *to, uint64_t at, int32_t dtype, float value)
{
        if (dtype == DCI_F32)
                ((float *)to)[at] = value;
        else
                ((uint16_t *)to)[at] = dtype == DCI_F16 ? dci_float_to_f16(value) : dci_float_to_bf16(value);
}

static void read_row(reading *l, dci_gpu_place place)
{
        const dci_gpu_attend_args *args = l->args;
        const int32_t dim = args->dim;
        float key[DCI_GPU_MAX_DIM], value[DCI_GPU_MAX_DIM];
        for (int32_t j = 0; j < dim; j++) {
                key[j] = dci_gpu_load(place.key, (uint64_t)j, args->dtype);
                value[j] = dci_gpu_load(place.value, (uint64_t)j, args->dtype);
        }
        for (int32_t g = 0; g < args->group; g++) {
                double dot = 0.0;
                for (int32_t j = 0; j < dim; j++)
                        dot += (double)l->queries[g][j] * (double)key[j];
                const double score = (double)args->scale * dot;
                if (score > l->most[g]) {
                        const double factor = exp(l->most[g] - score);
                        l->sum[g] *= factor;
                        for (int32_t j = 0; j < dim; j++)
                                l->acc[g][j] *= factor;
                        l->most[g] = score;
                }
                const double weight = exp(score - l->most[g]);
                l->sum[g] += weight;
                for (int32_t j = 0; j < dim; j++)
                        l->acc[g][j] += weight * (double)value[j];
        }
}

/* Reads the rows of a range of positions: from the lane's sink and ring, else from the pool. */
static void read_range(reading *l, int32_t begin, int32_t end)
{
        const dci_gpu_attend_args *args = l->args;
        const dci_gpu_lanes *lanes = &args->lanes;
        const uint64_t list = (uint64_t)l->row * (uint64_t)args->n_heads + (uint64_t)l->head;
        for (int32_t p = begin; p < end; p++) {
                if (p < l->sink)
                        read_row(l, dci_gpu_lane_place(lanes, list, p));
                else if (p >= l->n_tokens - l->ring)
                        read_row(l, dci_gpu_lane_place(lanes, list, lanes->sink + (p & (lanes->ring - 1))));
                else
                        read_row(l, dci_gpu_pool_place(&args->pool, &args->tables, l->row, p, l->head));
        }
}

static void read_list(reading *l, const int32_t *slots, int32_t n)
{
        const dci_gpu_attend_args *args = l->args;
        const uint64_t list = (uint64_t)l->row * (uint64_t)args->n_heads + (uint64_t)l->head;
        for (int32_t s = 0; s < n; s++)
                if (slots[s] >= 0)
                        read_row(l, dci_gpu_lane_place(&args->lanes, list, slots[s]));
                else
                        read_row(l, dci_gpu_pool_place(&args->pool, &args->tables, l->row, ~slots[s], l->head));
}

/* Merges the result with the tail, by their shares of the whole sum. A tail with lse -infinity is not read. */
static void finish(const reading *l, int32_t g, uint64_t query)
{
        const dci_gpu_attend_args *args = l->args;
        const double exact = l->sum[g] == 0.0 ? -INFINITY : l->most[g] + log(l->sum[g]);
        const float *tail = NULL;
        if (args->tail_out != NULL && args->tail_lse[query] != -INFINITY)
                tail = args->tail_out + query * (uint64_t)args->dim;
        const double rest = tail != NULL ? (double)args->tail_lse[query] : -INFINITY;
        const double most = rest > exact ? rest : exact;
        const double lse = most == -INFINITY ? most : most + log(exp(exact - most) + exp(rest - most));
        const double of_exact = exact == -INFINITY ? 0.0 : exp(exact - lse) / l->sum[g];
        const double of_rest = tail == NULL ? 0.0 : exp(rest - lse);
        for (int32_t j = 0; j < args->dim; j++) {
                double value = of_exact * l->acc[g][j];
                if (tail != NULL)
                        value += of_rest * (double)tail[j];
                store(args->out, query * args->out_ld + (uint64_t)j, args->out_dtype, (float)value);
        }
        if (args->lse != NULL)
                args->lse[query] = (float)lse;
}

static void attend(const dci_gpu_attend_args *args, int32_t i, int32_t of_sequence)
{
        const uint64_t list = (uint64_t)i * (uint64_t)DCI_GPU_LISTS(args) + (uint64_t)of_sequence;
        const uint64_t first = list * (uint64_t)args->group;
        reading l = {.args = args,
                     .row = args->rows[i],
                     .head = DCI_GPU_HEAD_OF(args, of_sequence),
                     .n_tokens = args->n_tokens[i]};
        if (args->slots != NULL && args->lanes.n_slots > 0) {
                l.sink = args->lanes.sink;
                l.ring = args->lanes.ring;
        }
        for (int32_t g = 0; g < args->group; g++) {
                l.most[g] = -INFINITY;
                for (int32_t j = 0; j < args->dim; j++)
                        l.queries[g][j] = dci_gpu_load(
                                args->queries, (first + (uint64_t)g) * args->query_ld + (uint64_t)j, args->query_dtype);
        }
        if (args->slots == NULL) {
                read_range(&l, 0, l.n_tokens);
        } else {
                read_range(&l, 0, args->sink_end[i]);
                read_list(&l, args->slots + list * (uint64_t)args->stride, args->counts[list]);
                read_range(&l, args->recent_begin[i], l.n_tokens);
        }
        for (int32_t g = 0; g < args->group; g++)
                finish(&l, g, first + (uint64_t)g);
}

void dci_gpu_ref_attend(const dci_gpu_attend_args *args)
{
        for (int32_t i = 0; i < args->n_sequences; i++)
                for (int32_t l = 0; l < DCI_GPU_LISTS(args); l++)
                        attend(args, i, l);
}
