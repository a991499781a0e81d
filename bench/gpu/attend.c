/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/gpu/gpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "simd/convert.h"

/* Of |out - reference| / |reference|, with rows, queries and outputs of 16 bits. */
#define TOLERANCE 1e-2

/* --- arguments -------------------------------------------------------------------------------------------------------------- */

static dci_status put_ranges(gpubench *b, const gpubench_heads *heads, dci_gpu_attend_args *args)
{
        const size_t n = heads->n_sequences;
        void *device = NULL;
        int32_t *ranges = calloc(4 * n, sizeof *ranges); /* rows, sink_end, recent_begin, n_tokens */
        if (ranges == NULL)
                return dci_fail(DCI_ERR_MEMORY, "ranges of %zu sequences could not be had", n);
        for (size_t i = 0; i < n; i++) {
                ranges[i] = (int32_t)i;
                ranges[2 * n + i] = ranges[3 * n + i] = (int32_t)heads->n_tokens;
        }
        const dci_status status = gpubench_put(b, ranges, 4 * n * sizeof *ranges, &device);
        const int32_t *at = device;
        args->rows = at;
        args->sink_end = at + n;
        args->recent_begin = at + 2 * n;
        args->n_tokens = at + 3 * n;
        free(ranges);
        return status;
}

dci_status gpubench_attend_args(gpubench *b, const gpubench_heads *heads, size_t listed, dci_gpu_attend_args *out)
{
        const size_t n_lists = heads->n_sequences * heads->n_heads, n_queries = n_lists * heads->group;
        const size_t bytes = n_queries * heads->dim * 2;
        gpubench_area queries = {0}, outputs = {0}, lse = {0}, partial = {0}, arrived = {0};
        *out = (dci_gpu_attend_args){.n_sequences = (int32_t)heads->n_sequences,
                                     .n_heads = (int32_t)heads->n_heads,
                                     .group = (int32_t)heads->group,
                                     .dim = (int32_t)heads->dim,
                                     .dtype = heads->dtype,
                                     .query_dtype = heads->dtype,
                                     .out_dtype = heads->dtype,
                                     .scale = 1 / sqrtf((float)heads->dim),
                                     .query_ld = heads->dim,
                                     .out_ld = heads->dim};
        out->n_splits = dci_gpu_splits(b->gpu, heads->n_sequences, heads->n_heads, listed);
        dci_status status = gpubench_take(b, bytes, GPUBENCH_ON_DEVICE, &queries);
        if (status == DCI_OK)
                status = gpubench_take(b, bytes, GPUBENCH_ON_DEVICE, &outputs);
        if (status == DCI_OK)
                status = gpubench_take(b, n_queries * sizeof(float), GPUBENCH_ON_DEVICE, &lse);
        if (status == DCI_OK)
                status = gpubench_take(b, dci_gpu_partial_bytes(n_lists, out->n_splits, heads->dim), GPUBENCH_ON_DEVICE,
                                       &partial);
        if (status == DCI_OK)
                status = gpubench_take(b, n_lists * sizeof(int32_t), GPUBENCH_ON_DEVICE, &arrived);
        if (status == DCI_OK)
                status = gpubench_fill(b, queries.device, bytes, heads->dtype);
        if (status == DCI_OK)
                status = b->ops->fill(b->gpu, b->stream, outputs.device, 0xff, bytes);
        if (status == DCI_OK)
                status = b->ops->fill(b->gpu, b->stream, lse.device, 0xff, n_queries * sizeof(float));
        if (status == DCI_OK)
                status = b->ops->fill(b->gpu, b->stream, arrived.device, 0, n_lists * sizeof(int32_t));
        if (status != DCI_OK)
                return status;
        out->queries = queries.device;
        out->out = outputs.device;
        out->lse = (float *)(void *)lse.device;
        out->partial = (float *)(void *)partial.device;
        out->arrived = (int32_t *)(void *)arrived.device;
        return put_ranges(b, heads, out);
}

/* --- outputs ---------------------------------------------------------------------------------------------------------------- */

static float to_f32(dci_dtype dtype, uint16_t bits)
{
        return dtype == DCI_BF16 ? dci_bits_float((uint32_t)bits << 16) : dci_f16_to_float(bits);
}

static dci_status read_outputs(gpubench *b, const gpubench_heads *heads, const dci_gpu_attend_args *args, float *out)
{
        const size_t n = heads->n_sequences * heads->n_heads * heads->group * heads->dim;
        uint16_t *bits = malloc(n * sizeof *bits);
        if (bits == NULL)
                return dci_fail(DCI_ERR_MEMORY, "%zu outputs could not be had", n);
        const dci_status status = gpubench_download(b, bits, args->out, n * sizeof *bits);
        for (size_t i = 0; i < n && status == DCI_OK; i++)
                out[i] = to_f32(heads->dtype, bits[i]);
        free(bits);
        return status;
}

dci_status gpubench_attend_look(gpubench *b, const gpubench_heads *heads, const dci_gpu_attend_args *args)
{
        const size_t n = heads->n_sequences * heads->n_heads * heads->group * heads->dim;
        float *out = calloc(n, sizeof *out);
        if (out == NULL)
                return dci_fail(DCI_ERR_MEMORY, "%zu outputs could not be had", n);
        dci_status status = read_outputs(b, heads, args, out);
        for (size_t i = 0; i < n && status == DCI_OK; i++)
                if (!isfinite(out[i]))
                        status = dci_fail(BENCH_ERR_RUN, "attention over %zu tokens: output %zu of %zu is %g",
                                          heads->n_tokens, i, n, (double)out[i]);
        free(out);
        return status;
}

/* --- against the reference ---------------------------------------------------------------------------------------------------- */

enum { MAX_COPIES = 64 };
typedef struct mirror {
        gpubench *b;
        void *copies[MAX_COPIES];
        size_t n;
        dci_status status;
} mirror;

/* A copy in the host's memory; NULL stays NULL. */
static void *copy_back(mirror *m, const void *from, size_t n_bytes)
{
        if (from == NULL || m->status != DCI_OK)
                return NULL;
        void *copy = m->n < MAX_COPIES ? malloc(n_bytes) : NULL;
        if (copy == NULL) {
                m->status = dci_fail(DCI_ERR_MEMORY, "a copy of %zu bytes could not be had", n_bytes);
                return NULL;
        }
        m->copies[m->n++] = copy;
        m->status = gpubench_download(m->b, copy, from, n_bytes);
        return copy;
}

static dci_gpu_attend_args mirror_args(mirror *m, const gpubench_heads *heads, const dci_gpu_attend_args *args)
{
        const size_t n = heads->n_sequences, n_lists = n * heads->n_heads, n_queries = n_lists * heads->group;
        dci_gpu_attend_args host = *args;
        host.queries = copy_back(m, args->queries, n_queries * heads->dim * 2);
        host.rows = copy_back(m, args->rows, n * sizeof(int32_t));
        host.sink_end = copy_back(m, args->sink_end, n * sizeof(int32_t));
        host.recent_begin = copy_back(m, args->recent_begin, n * sizeof(int32_t));
        host.n_tokens = copy_back(m, args->n_tokens, n * sizeof(int32_t));
        host.slots = copy_back(m, args->slots, n_lists * (size_t)args->stride * sizeof(int32_t));
        host.counts = copy_back(m, args->counts, n_lists * sizeof(int32_t));
        host.lanes.keys = copy_back(m, args->lanes.keys, n_lists * (size_t)args->lanes.n_slots * args->lanes.key_bytes);
        host.lanes.values =
                copy_back(m, args->lanes.values, n_lists * (size_t)args->lanes.n_slots * args->lanes.value_bytes);
        host.tables.blocks = copy_back(m, args->tables.blocks, n * args->tables.stride * sizeof(int32_t));
        host.out = copy_back(m, args->out, n_queries * heads->dim * 2);
        host.lse = copy_back(m, args->lse, n_queries * sizeof(float));
        host.n_splits = 1;
        host.partial = NULL;
        host.arrived = NULL;
        return host;
}

dci_status gpubench_attend_check(gpubench *b, const gpubench_heads *heads, const dci_gpu_attend_args *args,
                                 void *const *pieces, size_t n_pieces, size_t piece_bytes)
{
        const size_t n = heads->n_sequences * heads->n_heads * heads->group * heads->dim;
        mirror m = {.b = b, .status = b->ops->attend(b->gpu, b->stream, args)};
        unsigned char *host_pieces[MAX_COPIES];
        double off = 0, all = 0;
        dci_gpu_attend_args host = mirror_args(&m, heads, args);
        for (size_t i = 0; i < n_pieces && i < MAX_COPIES; i++)
                host_pieces[i] = copy_back(&m, pieces[i], piece_bytes);
        if (n_pieces > 0)
                host.pool.pieces = host_pieces;
        float *out = calloc(n, sizeof *out);
        if (m.status == DCI_OK)
                m.status = out != NULL ? read_outputs(b, heads, args, out) : dci_fail(DCI_ERR_MEMORY, "no outputs");
        if (m.status == DCI_OK)
                dci_gpu_ref_attend(&host);
        for (size_t i = 0; i < n && m.status == DCI_OK && out != NULL && host.out != NULL; i++) {
                const double wanted = (double)to_f32(heads->dtype, ((const uint16_t *)host.out)[i]);
                off += ((double)out[i] - wanted) * ((double)out[i] - wanted);
                all += wanted * wanted;
        }
        /* Written so that NaN fails. */
        if (m.status == DCI_OK && !(sqrt(off) <= TOLERANCE * sqrt(all)))
                m.status = dci_fail(BENCH_ERR_RUN,
                                    "attention of d %zu, group %zu over %zu tokens is %g away from the reference",
                                    heads->dim, heads->group, heads->n_tokens, sqrt(off / all));
        free(out);
        for (size_t i = 0; i < m.n; i++)
                free(m.copies[i]);
        return m.status;
}
