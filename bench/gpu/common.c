/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/gpu/gpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "simd/convert.h"

#define BOUNCE_BYTES ((size_t)32 << 20)
#define STAGE_BYTES ((size_t)1 << 20)
#define BULK_BYTES ((size_t)256 << 20)
#define COPY_BYTES ((size_t)1 << 30) /* on the device: far more than its L2 */
#define TINY_BYTES ((size_t)1 << 20)
#define PAGE_BYTES ((size_t)4096) /* what locked memory is a multiple of */
#define MAX_SECONDS 0.25          /* of the samples of one figure, of which there are LEAST at least */
#define MIN_SAMPLES 5

/* --- memory --------------------------------------------------------------------------------------------------------------- */

static dci_status take_pinned(gpubench *b, gpubench_area *area)
{
        void *address = NULL;
        const size_t whole = (area->n_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
        /* Allocates like the pool of a KV cache: the sizes of the system's pages matter to the bus. */
        area->host = dci_alloc_pages(b->context, whole);
        if (area->host == NULL)
                return DCI_ERR_MEMORY;
        const dci_status status = b->ops->pin(b->gpu, area->host, whole, &address);
        if (status != DCI_OK) {
                dci_free(b->context, area->host, whole, 1);
                return status;
        }
        area->n_bytes = whole;
        area->device = address;
        return DCI_OK;
}

dci_status gpubench_take(gpubench *b, size_t n_bytes, int kind, gpubench_area *out)
{
        gpubench_area area = {.n_bytes = n_bytes > 0 ? n_bytes : 1};
        void *memory = NULL;
        if (b->n_areas == GPUBENCH_AREAS)
                return dci_fail(BENCH_ERR_RUN, "more than %d areas of memory at the same time", GPUBENCH_AREAS);
        if (kind == GPUBENCH_PINNED) {
                DCI_TRY(take_pinned(b, &area));
        } else {
                DCI_TRY(b->ops->alloc(b->gpu, area.n_bytes, &memory));
                area.device = memory;
        }
        b->areas[b->n_areas++] = area;
        *out = area;
        return DCI_OK;
}

void gpubench_release(gpubench *b, size_t mark)
{
        if (b->n_areas > mark)
                (void)b->ops->stream_wait(b->gpu, b->stream);
        while (b->n_areas > mark) {
                const gpubench_area *area = &b->areas[--b->n_areas];
                if (area->host != NULL && area->device != NULL)
                        b->ops->unpin(b->gpu, area->host);
                if (area->host != NULL)
                        dci_free(b->context, area->host, area->n_bytes, 1);
                else
                        b->ops->free(b->gpu, area->device, area->n_bytes);
        }
}

void *gpubench_host(gpubench *b, size_t n_bytes)
{
        gpubench_area area = {.n_bytes = n_bytes > 0 ? n_bytes : 1};
        if (b->n_areas == GPUBENCH_AREAS) {
                (void)dci_fail(BENCH_ERR_RUN, "more than %d areas of memory at the same time", GPUBENCH_AREAS);
                return NULL;
        }
        area.host = dci_calloc(b->context, area.n_bytes, 1);
        if (area.host != NULL)
                b->areas[b->n_areas++] = area;
        return area.host;
}

/* Copy through locked memory in both directions: ops do not promise copies of other memory. */
dci_status gpubench_upload(gpubench *b, void *to, const void *from, size_t n_bytes)
{
        for (size_t done = 0, n; done < n_bytes; done += n) {
                n = n_bytes - done < b->stage.n_bytes ? n_bytes - done : b->stage.n_bytes;
                memcpy(b->stage.host, (const char *)from + done, n);
                DCI_TRY(b->ops->copy(b->gpu, b->stream, (char *)to + done, b->stage.host, n));
                DCI_TRY(b->ops->stream_wait(b->gpu, b->stream));
        }
        return DCI_OK;
}

dci_status gpubench_download(gpubench *b, void *to, const void *from, size_t n_bytes)
{
        for (size_t done = 0, n; done < n_bytes; done += n) {
                n = n_bytes - done < b->stage.n_bytes ? n_bytes - done : b->stage.n_bytes;
                DCI_TRY(b->ops->copy(b->gpu, b->stream, b->stage.host, (const char *)from + done, n));
                DCI_TRY(b->ops->stream_wait(b->gpu, b->stream));
                memcpy((char *)to + done, b->stage.host, n);
        }
        return DCI_OK;
}

dci_status gpubench_put(gpubench *b, const void *data, size_t n_bytes, void **out)
{
        gpubench_area area = {0};
        DCI_TRY(gpubench_take(b, n_bytes, GPUBENCH_ON_DEVICE, &area));
        *out = area.device;
        return gpubench_upload(b, area.device, data, n_bytes);
}

/* Writes normal numbers to the bounce area when the format changes. */
static void make_bounce(gpubench *b, dci_dtype dtype)
{
        dci_rng rng;
        if (b->bounce_dtype == dtype)
                return;
        b->bounce_dtype = dtype;
        uint16_t *out = (uint16_t *)b->bounce.host;
        const size_t n = b->bounce.n_bytes / sizeof *out, pattern = n < 65536 ? n : 65536 - 7;
        dci_rng_seed(&rng, b->options->arms.seed);
        /* Repeats a run of normal numbers of odd length, so that nearby rows differ. */
        for (size_t i = 0; i < n; i++) {
                const float value = i < pattern ? (float)dci_rng_normal(&rng) : 0;
                out[i] = i >= pattern        ? out[i - pattern]
                         : dtype == DCI_BF16 ? (uint16_t)(dci_float_bits(value) >> 16)
                                             : dci_float_to_f16(value);
        }
}

dci_status gpubench_begin(gpubench *b)
{
        const size_t n_bytes = b->options->tiny ? TINY_BYTES : BOUNCE_BYTES;
        DCI_TRY(b->ops->stream_create(b->gpu, &b->stream));
        DCI_TRY(b->ops->event_create(b->gpu, true, &b->begin));
        DCI_TRY(b->ops->event_create(b->gpu, true, &b->end));
        b->l2_bytes = b->gpu->info.l2_bytes;
        DCI_TRY(gpubench_take(b, STAGE_BYTES, GPUBENCH_PINNED, &b->stage));
        return gpubench_take(b, n_bytes, GPUBENCH_PINNED, &b->bounce);
}

void gpubench_end(gpubench *b)
{
        gpubench_release(b, 0);
        if (b->begin != NULL)
                b->ops->event_destroy(b->gpu, b->begin);
        if (b->end != NULL)
                b->ops->event_destroy(b->gpu, b->end);
        if (b->stream != NULL)
                b->ops->stream_destroy(b->gpu, b->stream);
}

dci_status gpubench_fill(gpubench *b, unsigned char *device, size_t n_bytes, dci_dtype dtype)
{
        size_t done = b->bounce.n_bytes < n_bytes ? b->bounce.n_bytes : n_bytes;
        make_bounce(b, dtype);
        DCI_TRY(b->ops->copy(b->gpu, b->stream, device, b->bounce.host, done));
        /* Doubles what was written, so that little crosses the bus. */
        while (done < n_bytes) {
                const size_t n = done < n_bytes - done ? done : n_bytes - done;
                DCI_TRY(b->ops->copy(b->gpu, b->stream, device + done, device, n));
                done += n;
        }
        return b->ops->stream_wait(b->gpu, b->stream);
}

int32_t *gpubench_order(gpubench *b, size_t n, uint64_t seed)
{
        int32_t *order = gpubench_host(b, (n + 1) * sizeof *order);
        dci_rng rng;
        if (order == NULL)
                return NULL;
        dci_rng_seed(&rng, seed);
        for (size_t i = 0; i < n; i++) {
                const size_t j = dci_rng_below(&rng, i + 1);
                order[i] = order[j];
                order[j] = (int32_t)i;
        }
        return order;
}

size_t gpubench_free_bytes(gpubench *b)
{
        size_t n_bytes = 0;
        return b->ops->free_bytes(b->gpu, &n_bytes) == DCI_OK ? n_bytes : 0;
}

size_t gpubench_sets(const gpubench *b, size_t bytes_touched, size_t least)
{
        const size_t wanted = bytes_touched > 0 ? (size_t)(4 * b->l2_bytes / bytes_touched) + 1 : least;
        return b->options->tiny ? 2 : wanted > least ? wanted : least;
}

/* --- time ------------------------------------------------------------------------------------------------------------------- */

static int compare_doubles(const void *a, const void *b)
{
        const double x = *(const double *)a, y = *(const double *)b;
        return (x > y) - (x < y);
}

gpubench_time gpubench_time_of(double *seconds, size_t n)
{
        qsort(seconds, n, sizeof *seconds, compare_doubles);
        const gpubench_time time = {5e5 * (seconds[(n - 1) / 2] + seconds[n / 2]), 1e6 * seconds[(n - 1) / 10],
                                    1e6 * seconds[(9 * n + 9) / 10 - 1]};
        return time;
}

/* Calls once for each set, recorded or at once. */
static dci_status call_all(gpubench_call call, void *arg, size_t n_sets)
{
        for (size_t set = 0; set < n_sets; set++)
                DCI_TRY(call(arg, set));
        return DCI_OK;
}

static dci_status sample_graph(gpubench *b, void *graph, size_t n_sets, double *samples, size_t *out_n)
{
        DCI_TRY(b->ops->graph_launch(b->gpu, graph, b->stream));
        const double since = bench_seconds();
        for (size_t i = 0; i < b->options->reps; i++) {
                double seconds = 0;
                DCI_TRY(b->ops->event_record(b->gpu, b->begin, b->stream));
                DCI_TRY(b->ops->graph_launch(b->gpu, graph, b->stream));
                DCI_TRY(b->ops->event_record(b->gpu, b->end, b->stream));
                DCI_TRY(b->ops->event_wait(b->gpu, b->end));
                DCI_TRY(b->ops->event_elapsed(b->gpu, b->begin, b->end, &seconds));
                samples[(*out_n)++] = seconds / (double)n_sets;
                if (*out_n >= MIN_SAMPLES && bench_seconds() - since > MAX_SECONDS)
                        break;
        }
        return DCI_OK;
}

dci_status gpubench_on_device(gpubench *b, gpubench_call call, void *arg, size_t n_sets, gpubench_time *out)
{
        void *graph = NULL;
        size_t n = 0;
        const size_t mark = b->n_areas;
        double *samples = gpubench_host(b, (b->options->reps + 1) * sizeof *samples);
        if (samples == NULL)
                return DCI_ERR_MEMORY;
        /* Runs once outside the capture: what a first call loads must not be recorded, and a failure has its own sentence. */
        DCI_TRY(call_all(call, arg, n_sets));
        DCI_TRY(b->ops->stream_wait(b->gpu, b->stream));
        DCI_TRY(b->ops->capture_begin(b->gpu, b->stream));
        dci_status status = call_all(call, arg, n_sets);
        /* Ends the capture also after a failure. */
        const dci_status ended = b->ops->capture_end(b->gpu, b->stream, &graph);
        status = status == DCI_OK ? ended : status;
        if (status == DCI_OK)
                status = sample_graph(b, graph, n_sets, samples, &n);
        if (graph != NULL)
                b->ops->graph_destroy(b->gpu, graph);
        DCI_TRY(status);
        *out = gpubench_time_of(samples, n);
        gpubench_release(b, mark);
        return DCI_OK;
}

dci_status gpubench_on_host(gpubench *b, gpubench_call call, void *arg, size_t n_sets, size_t most, gpubench_time *out)
{
        const size_t mark = b->n_areas;
        double *samples = gpubench_host(b, (most + 1) * sizeof *samples);
        size_t n = 0;
        if (samples == NULL)
                return DCI_ERR_MEMORY;
        DCI_TRY(call(arg, 0));
        DCI_TRY(b->ops->stream_wait(b->gpu, b->stream));
        const double since = bench_seconds();
        while (n < most && (n < MIN_SAMPLES || bench_seconds() - since <= MAX_SECONDS)) {
                const double begin = bench_seconds();
                DCI_TRY(call(arg, n % n_sets));
                DCI_TRY(b->ops->stream_wait(b->gpu, b->stream));
                samples[n++] = bench_seconds() - begin;
        }
        *out = gpubench_time_of(samples, n);
        gpubench_release(b, mark);
        return DCI_OK;
}

/* --- limits ----------------------------------------------------------------------------------------------------------------- */

typedef struct copying {
        gpubench *b;
        unsigned char *to, *from;
        size_t n_bytes;
} copying;

static dci_status copy_call(void *arg, size_t set)
{
        const copying *c = arg;
        (void)set;
        return c->b->ops->copy(c->b->gpu, c->b->stream, c->to, c->from, c->n_bytes);
}

static dci_status measure(gpubench *b, const char *arm, unsigned char *to, unsigned char *from, size_t n_bytes,
                          double factor, double *out)
{
        copying c = {b, to, from, n_bytes};
        gpubench_time time = {0};
        DCI_TRY(gpubench_on_device(b, copy_call, &c, 1, &time));
        *out = factor * (double)n_bytes / (1e-6 * time.median);
        DCI_TRY(gpubench_row(b, "limits", arm, json_pack("{s:I}", "copied", (json_int_t)n_bytes), &time,
                             factor * (double)n_bytes, b->limits.specified * (factor > 1)));
        printf("%-28s %10.1f us %9.1f GB/s\n", arm, time.median, *out * 1e-9);
        return DCI_OK;
}

dci_status gpubench_measure_limits(gpubench *b)
{
        const size_t mark = b->n_areas, bulk = b->options->tiny ? TINY_BYTES : BULK_BYTES;
        const size_t copied = b->options->tiny ? TINY_BYTES : COPY_BYTES;
        gpubench_area host = {0}, from = {0}, to = {0};
        b->limits.specified = b->gpu->info.memory_bytes_per_second;
        DCI_TRY(gpubench_take(b, bulk, GPUBENCH_PINNED, &host));
        DCI_TRY(gpubench_take(b, copied, GPUBENCH_ON_DEVICE, &from));
        DCI_TRY(gpubench_take(b, copied, GPUBENCH_ON_DEVICE, &to));
        if (host.host != NULL) {
                memset(host.host, 0x5a, bulk);
                DCI_TRY(gpubench_fill(b, from.device, copied, DCI_BF16));
        }
        printf("\nlimits, measured in this run (specified memory bandwidth: %.0f GB/s)\n", b->limits.specified * 1e-9);
        DCI_TRY(measure(b, "copy within the device", to.device, from.device, copied, 2, &b->limits.memory));
        DCI_TRY(measure(b, "bulk copy to the device", to.device, host.host, bulk, 1, &b->limits.to_device));
        DCI_TRY(measure(b, "bulk copy to the host", host.host, from.device, bulk, 1, &b->limits.to_host));
        gpubench_release(b, mark);
        return DCI_OK;
}

/* --- results ------------------------------------------------------------------------------------------------------------------ */

dci_status gpubench_row(gpubench *b, const char *part, const char *arm, json_t *shape, const gpubench_time *time,
                        double bytes, double limit)
{
        json_t *row = json_pack("{s:s, s:s, s:f, s:f, s:f}", "part", part, "arm", arm, "us", time->median, "us_p10",
                                time->p10, "us_p90", time->p90);
        bool whole = row != NULL && shape != NULL && json_object_update(row, shape) == 0;
        const double rate = time->median > 0 ? bytes / (1e-6 * time->median) : 0;
        if (whole && bytes > 0)
                whole = json_object_set_new(row, "bytes", json_real(bytes)) == 0 &&
                        json_object_set_new(row, "gb_s", json_real(rate * 1e-9)) == 0;
        if (whole && limit > 0)
                whole = json_object_set_new(row, "limit_gb_s", json_real(limit * 1e-9)) == 0 &&
                        json_object_set_new(row, "share", json_real(rate / limit)) == 0;
        json_decref(shape);
        if (whole && json_array_append_new(b->rows, row) == 0)
                return DCI_OK;
        if (!whole)
                json_decref(row);
        return dci_fail(DCI_ERR_MEMORY, "a row of the report could not be had");
}

void gpubench_note(gpubench *b, const char *name, double value)
{
        json_t *row = json_array_get(b->rows, json_array_size(b->rows) - 1);
        if (row != NULL && isfinite(value))
                json_object_set_new(row, name, json_real(value));
}
