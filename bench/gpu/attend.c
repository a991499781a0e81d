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
        int32_t *ranges = gpubench_host(b, 4 * n * sizeof *ranges); /* rows, sink_end, recent_begin, n_tokens */
        if (ranges == NULL)
                return DCI_ERR_MEMORY;
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
        DCI_TRY(gpubench_take(b, bytes, GPUBENCH_ON_DEVICE, &queries));
        DCI_TRY(gpubench_take(b, bytes, GPUBENCH_ON_DEVICE, &outputs));
        DCI_TRY(gpubench_take(b, n_queries * sizeof(float), GPUBENCH_ON_DEVICE, &lse));
        DCI_TRY(gpubench_take(b, dci_gpu_partial_bytes(n_lists, out->n_splits, heads->dim), GPUBENCH_ON_DEVICE,
                              &partial));
        DCI_TRY(gpubench_take(b, n_lists * sizeof(int32_t), GPUBENCH_ON_DEVICE, &arrived));
        DCI_TRY(gpubench_fill(b, queries.device, bytes, heads->dtype));
        DCI_TRY(b->ops->fill(b->gpu, b->stream, outputs.device, 0xff, bytes));
        DCI_TRY(b->ops->fill(b->gpu, b->stream, lse.device, 0xff, n_queries * sizeof(float)));
        DCI_TRY(b->ops->fill(b->gpu, b->stream, arrived.device, 0, n_lists * sizeof(int32_t)));
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
        uint16_t *bits = gpubench_host(b, n * sizeof *bits);
        if (bits == NULL)
                return DCI_ERR_MEMORY;
        DCI_TRY(gpubench_download(b, bits, args->out, n * sizeof *bits));
        for (size_t i = 0; i < n; i++)
                out[i] = to_f32(heads->dtype, bits[i]);
        return DCI_OK;
}

dci_status gpubench_attend_finite(gpubench *b, const gpubench_heads *heads, const dci_gpu_attend_args *args)
{
        const size_t n = heads->n_sequences * heads->n_heads * heads->group * heads->dim;
        float *out = gpubench_host(b, n * sizeof *out);
        if (out == NULL)
                return DCI_ERR_MEMORY;
        DCI_TRY(read_outputs(b, heads, args, out));
        for (size_t i = 0; i < n; i++)
                if (!isfinite(out[i]))
                        return dci_fail(BENCH_ERR_RUN, "attention over %zu tokens: output %zu of %zu is %g",
                                        heads->n_tokens, i, n, (double)out[i]);
        return DCI_OK;
}

/* --- against the reference ---------------------------------------------------------------------------------------------------- */

enum { MAX_PIECES = 64 };
typedef struct mirror {
        gpubench *b;
        dci_status status;
} mirror;

/* Copies to host memory; NULL stays NULL. */
static void *copy_back(mirror *m, const void *from, size_t n_bytes)
{
        if (from == NULL || m->status != DCI_OK)
                return NULL;
        void *copy = gpubench_host(m->b, n_bytes);
        m->status = copy != NULL ? gpubench_download(m->b, copy, from, n_bytes) : DCI_ERR_MEMORY;
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
        unsigned char *host_pieces[MAX_PIECES];
        double off = 0, all = 0;
        dci_gpu_attend_args host = mirror_args(&m, heads, args);
        if (n_pieces > MAX_PIECES)
                return dci_fail(BENCH_ERR_RUN, "%zu pieces of a pool, more than %d", n_pieces, MAX_PIECES);
        for (size_t i = 0; i < n_pieces; i++)
                host_pieces[i] = copy_back(&m, pieces[i], piece_bytes);
        if (n_pieces > 0)
                host.pool.pieces = host_pieces;
        DCI_TRY(m.status);
        float *out = gpubench_host(b, n * sizeof *out);
        DCI_TRY(out != NULL ? read_outputs(b, heads, args, out) : DCI_ERR_MEMORY);
        dci_gpu_ref_attend(&host);
        for (size_t i = 0; i < n && host.out != NULL; i++) {
                const double wanted = (double)to_f32(heads->dtype, ((const uint16_t *)host.out)[i]);
                off += ((double)out[i] - wanted) * ((double)out[i] - wanted);
                all += wanted * wanted;
        }
        /* Written so that NaN fails. */
        if (!(sqrt(off) <= TOLERANCE * sqrt(all)))
                return dci_fail(BENCH_ERR_RUN,
                                "attention of d %zu, group %zu over %zu tokens is %g away from the reference",
                                heads->dim, heads->group, heads->n_tokens, sqrt(off / all));
        return DCI_OK;
}
