/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The part kmeans: what a layer's clusters take that the device makes of a prompt's keys (gpu/args/kmeans.h), as
 * clusterkv, louiskv and retroinfer divide them. Keys are made up: topics with noise about a mean with some large
 * coordinates.
 */
#include "bench/gpu/gpu.h"

#include <stdlib.h>
#include <string.h>

#include "cluster/kmeans_internal.h"
#include "kv/clusters.h"
#include "simd/convert.h"

enum { DIM = 128, TOPICS = 512, CHECKED = 1500, MAX_HEADS = 8, MAX_PARTS = 8 };
#define ROW_BYTES ((size_t)DIM * 2)

/* As src/kv/presets.c. */
typedef struct preset {
        const char *name;
        size_t tokens, n_rounds, segment; /* tokens to a cluster */
        int32_t centred;
        size_t lengths[2];
} preset;

static const preset presets[] = {{"clusterkv", 80, 20, 0, 0, {36864, 131072}},
                                 {"louiskv", 16, 10, 8192, 0, {36864, 65536}},
                                 {"retroinfer", 16, 10, 8192, 1, {36864, 65536}}};

typedef struct clustering {
        gpubench *b;
        const preset *preset;
        size_t n, n_parts, longest, k, n_heads, n_rounds, segment; /* longest: part, of k clusters */
        gpubench_area rows;
        dci_gpu_kmeans_args args;
} clustering;

static dci_status run(void *arg, size_t set)
{
        const clustering *c = arg;
        (void)set;
        return c->b->ops->kmeans(c->b->gpu, c->b->stream, &c->args);
}

/* Tokens of all heads, one after the other. Sums of four uniform numbers are near enough to normal ones, and quick. */
static float noise(dci_rng *rng)
{
        const uint64_t bits = dci_rng_next(rng);
        int32_t sum = 0;
        for (int i = 0; i < 4; i++)
                sum += (int32_t)(bits >> (16 * i) & 0xffff) - 32768;
        return (float)sum * (1.0f / 37837.0f);
}

static void make_keys(size_t n, size_t n_heads, uint64_t seed, uint16_t *out)
{
        static float mean[MAX_HEADS * DIM], topics[TOPICS * DIM];
        dci_rng rng;
        dci_rng_seed(&rng, seed);
        for (size_t j = 0; j < n_heads * DIM; j++)
                mean[j] = (j % 29 == 3 ? 8.0f : 1.0f) * noise(&rng);
        for (size_t j = 0; j < TOPICS * DIM; j++)
                topics[j] = noise(&rng);
        for (size_t i = 0; i < n * n_heads; i++) {
                const float *topic = topics + dci_rng_below(&rng, TOPICS) * DIM, *centre = mean + i % n_heads * DIM;
                for (size_t j = 0; j < DIM; j++)
                        out[i * DIM + j] = dci_float_to_bf16(centre[j] + topic[j] + noise(&rng));
        }
}

/* Room for everything, with keys and first rows there. */
static dci_status prepare(clustering *c, uint16_t *keys, int32_t *first)
{
        gpubench *b = c->b;
        const size_t heads = c->n_heads;
        gpubench_area out = {0}, work = {0};
        void *there = NULL;
        make_keys(c->n, heads, b->options->arms.seed + 1, keys);
        for (size_t h = 0; h < heads; h++)
                for (size_t i = 0; i < c->n_parts; i++) {
                        const size_t begin = dci_kv_cluster_part(c->n, c->n_parts, i),
                                     rows = dci_kv_cluster_part(c->n, c->n_parts, i + 1) - begin;
                        dci_km_draw(b->options->arms.seed, i * heads + h, rows, rows / c->preset->tokens, c->segment,
                                    first + (h * c->n_parts + i) * c->k);
                }
        const size_t order = heads * c->n * sizeof(int32_t), problems = heads * c->n_parts,
                     starts = problems * (c->k + 1) * sizeof(int32_t), means = problems * c->k * ROW_BYTES,
                     states = problems * DCI_GPU_KMEANS_STATES * sizeof(int32_t);
        DCI_TRY(gpubench_take(b, c->n * heads * ROW_BYTES, GPUBENCH_ON_DEVICE, &c->rows));
        DCI_TRY(gpubench_upload(b, c->rows.device, keys, c->n * heads * ROW_BYTES));
        DCI_TRY(gpubench_put(b, first, problems * c->k * sizeof *first, &there));
        DCI_TRY(gpubench_take(b, means + order + starts + states, GPUBENCH_ON_DEVICE, &out));
        c->args = (dci_gpu_kmeans_args){.n_heads = (int32_t)heads,
                                        .dim = DIM,
                                        .dtype = DCI_BF16,
                                        .n_rows = (int32_t)c->longest,
                                        .n_clusters = (int32_t)c->k,
                                        .n_rounds = (int32_t)c->n_rounds,
                                        .segment_rows = (int32_t)c->segment,
                                        .centred = c->preset->centred,
                                        .n_parts = (int32_t)c->n_parts,
                                        .all_rows = (int32_t)c->n,
                                        .cluster_rows = (int32_t)c->preset->tokens,
                                        .isa = (int32_t)dci_context_isa(b->context),
                                        .rows = c->rows.device,
                                        .row_step = heads * ROW_BYTES,
                                        .head_step = ROW_BYTES,
                                        .first = there,
                                        .means = out.device,
                                        .order = (int32_t *)(void *)(out.device + means),
                                        .starts = (int32_t *)(void *)(out.device + means + order),
                                        .states = (int32_t *)(void *)(out.device + means + order + starts)};
        DCI_TRY(gpubench_take(b, (size_t)dci_gpu_kmeans_work(&c->args).n_bytes, GPUBENCH_ON_DEVICE, &work));
        c->args.work = work.device;
        return DCI_OK;
}

/* Members and sizes are the reference's. */
static dci_status check(clustering *c, const uint16_t *keys, const int32_t *first)
{
        const size_t problems = c->n_heads * c->n_parts, ints = c->n_heads * c->n + problems * (c->k + 1),
                     means = problems * c->k * ROW_BYTES, states = problems * DCI_GPU_KMEANS_STATES;
        const dci_gpu_kmeans_parts parts = dci_gpu_kmeans_work(&c->args);
        int32_t *model = gpubench_host(c->b, (ints + states) * sizeof *model),
                *made = gpubench_host(c->b, ints * sizeof *made);
        unsigned char *rest = gpubench_host(c->b, means + (size_t)parts.n_bytes);
        const bool had = model != NULL && made != NULL && rest != NULL;
        DCI_TRY(had ? DCI_OK : dci_fail(DCI_ERR_MEMORY, "memory for a check could not be had"));
        if (had) {
                dci_gpu_kmeans_args args = c->args;
                args.rows = (const unsigned char *)keys;
                args.first = first;
                args.order = model;
                args.starts = model + c->n_heads * c->n;
                args.states = model + ints;
                args.means = rest;
                args.work = rest + means;
                dci_gpu_ref_kmeans(&args);
                DCI_TRY(run(c, 0));
        }
        DCI_TRY(gpubench_download(c->b, made, c->args.order, ints * sizeof *made));
        for (size_t i = 0; had && i < ints; i++)
                if (model[i] != made[i])
                        return dci_fail(BENCH_ERR_RUN, "kmeans: number %zu is %d, the reference makes %d", i,
                                        (int)made[i], (int)model[i]);
        return DCI_OK;
}

/* Rounds are those that were needed, of segments the most; `exact`: labels that matrix units left in doubt, of all that were given. */
static dci_status report(clustering *c, const gpubench_time *time)
{
        gpubench *b = c->b;
        int32_t states[MAX_HEADS * MAX_PARTS * DCI_GPU_KMEANS_STATES];
        const size_t problems = c->n_heads * c->n_parts;
        DCI_TRY(gpubench_download(b, states, c->args.states, problems * DCI_GPU_KMEANS_STATES * sizeof *states));
        double rounds = 0, exact = 0;
        for (size_t h = 0; h < problems; h++) {
                rounds += states[h * DCI_GPU_KMEANS_STATES + DCI_GPU_KMEANS_ROUNDS];
                exact += states[h * DCI_GPU_KMEANS_STATES + DCI_GPU_KMEANS_EXACT];
        }
        rounds /= (double)problems;
        const double segments = c->segment > 0 ? (double)c->longest / (double)c->segment : 1.0,
                     labels = (rounds + 1) * (double)(c->n * c->n_heads),
                     operations = 2.0 * (rounds / segments + 1) * (double)(c->n * c->n_heads) * (double)c->k * DIM;
        const double bytes = (2 * rounds + 3) * (double)(c->n * c->n_heads * ROW_BYTES);
        json_t *shape = json_pack("{s:I, s:I, s:i, s:i}", "tokens", (json_int_t)c->n, "clusters",
                                  (json_int_t)(c->n_parts * c->k), "heads", (int)c->n_heads, "dim", DIM);
        printf("%-10s %9zu %9zu %8.1f %10.1f %10.1f %10.1f %10.2f %9.2f %%\n", c->preset->name, c->n, c->n_parts * c->k,
               rounds, time->median, time->p10, time->p90, operations / time->median * 1e-6, 100 * exact / labels);
        DCI_TRY(gpubench_row(b, "kmeans", c->preset->name, shape, time, bytes, b->limits.specified));
        gpubench_note(b, "rounds", rounds);
        gpubench_note(b, "operations", operations);
        gpubench_note(b, "exact_share", exact / labels);
        return DCI_OK;
}

static dci_status measure(gpubench *b, const preset *as, size_t n, bool checked)
{
        const size_t mark = b->n_areas;
        clustering c = {.b = b, .preset = as, .n = n};
        gpubench_time time = {0};
        const bool small = b->options->tiny || checked;
        c.n_heads = small ? 2 : MAX_HEADS;
        c.n_parts = small ? (n > 1000 ? 2 : 1) : (n / as->tokens - 1) / DCI_KV_CLUSTERS_TOGETHER + 1;
        c.longest = (n + c.n_parts - 1) / c.n_parts;
        c.k = c.longest / as->tokens;
        c.n_rounds = b->options->tiny ? 3 : as->n_rounds;
        c.segment = as->segment > 0 && small ? 512 : as->segment;
        uint16_t *keys = gpubench_host(b, n * c.n_heads * ROW_BYTES);
        int32_t *first = gpubench_host(b, c.n_heads * c.n_parts * c.k * sizeof *first);
        if (keys == NULL || first == NULL)
                return dci_fail(DCI_ERR_MEMORY, "%zu keys could not be had", n * c.n_heads);
        DCI_TRY(prepare(&c, keys, first));
        if (checked)
                DCI_TRY(check(&c, keys, first));
        if (!checked)
                DCI_TRY(gpubench_on_device(b, run, &c, 1, &time));
        if (!checked)
                DCI_TRY(report(&c, &time));
        gpubench_release(b, mark);
        return DCI_OK;
}

dci_status gpubench_kmeans(gpubench *b)
{
        printf("\nkmeans: clusters of a layer's keys, %d heads of d %d; us of one call\n"
               "%-10s %9s %9s %8s %10s %10s %10s %10s %11s\n",
               MAX_HEADS, DIM, "as", "tokens", "clusters", "rounds", "us", "p10", "p90", "TFLOP/s", "exact");
        for (size_t p = 0; p < sizeof presets / sizeof *presets; p++) {
                if (b->options->tiny) {
                        DCI_TRY(measure(b, &presets[p], 800, false));
                        continue;
                }
                DCI_TRY(measure(b, &presets[p], CHECKED, true));
                for (size_t i = 0; i < 2; i++)
                        DCI_TRY(measure(b, &presets[p], presets[p].lengths[i], false));
        }
        return DCI_OK;
}
