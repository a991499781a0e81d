/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The part score: summaries of all candidates against the queries, and the tokens that are attended to anyway. Layers rotate, so
 * that summaries come from the device's memory; scores go to the same place for all, as in a step.
 */
#include "bench/gpu/gpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 8, GROUP = 4, DIM = 128, SINK = 16, WINDOW = 64, UNIT = 32, BUDGET = 256, RING = 128, PIECE_SHIFT = 4 };
enum { MAX_LAYERS = 64, MAX_UNIT_LAYERS = 32 };
/* how: of means and of units are the scores of a preselection (gpu/args/select.h); of votes: with the votes (gpu/args/votes.h) */
enum { PLAIN, OF_MEANS, OF_UNITS, OF_VOTES };
enum { MEAN_SHIFT = 3, WANTED = 264, BLOCKS = DIM / DCI_VOTE_BLOCK };

typedef struct score_shape {
        int32_t kind, bits, shift, how; /* shift: of pages */
        size_t n_sequences, n_candidates;
} score_shape;

typedef struct scoring {
        gpubench *b;
        const score_shape *shape;
        size_t n_sets, n_groups, group_bytes, lane_bytes, chunks_each;
        dci_gpu_score_args args;
        dci_gpu_vote_args votes;
} scoring;

static dci_gpu_score_args args_of(const scoring *s, size_t set)
{
        dci_gpu_score_args args = s->args;
        args.summaries.layer_at = set * (args.summaries.chunk_bytes << PIECE_SHIFT);
        if (s->shape->how == OF_MEANS)
                args.summaries.layer_at += DCI_GPU_CHUNK * s->group_bytes;
        if (args.lanes.keys != NULL)
                args.lanes.keys += set * s->lane_bytes;
        return args;
}

static dci_status score(void *arg, size_t set)
{
        const scoring *s = arg;
        const dci_gpu_score_args args = args_of(s, set);
        if (s->shape->how == OF_VOTES) {
                const size_t in_set = set * s->shape->n_sequences * HEADS * BLOCKS;
                dci_gpu_vote_args votes = s->votes;
                votes.score = args;
                votes.counted += in_set;
                votes.counts += in_set * DCI_VOTE_CODES;
                return s->b->ops->vote(s->b->gpu, s->b->stream, &votes);
        }
        return s->b->ops->score(s->b->gpu, s->b->stream, &args);
}

/* Chunks of all layers: a piece holds some of each, one layer's after another's. */
static dci_status put_chunks(scoring *s)
{
        gpubench *b = s->b;
        dci_gpu_chunks *chunks = &s->args.summaries;
        const size_t n = s->shape->n_sequences * s->chunks_each, n_pieces = ((n - 1) >> PIECE_SHIFT) + 1;
        const size_t piece_bytes = s->n_sets * (chunks->chunk_bytes << PIECE_SHIFT);
        unsigned char **pieces = gpubench_host(b, n_pieces * sizeof *pieces);
        int32_t *numbers = gpubench_host(b, n * sizeof *numbers);
        gpubench_area area = {0};
        void *device = NULL;
        if (pieces == NULL || numbers == NULL)
                return DCI_ERR_MEMORY;
        DCI_TRY(gpubench_take(b, n_pieces * piece_bytes, GPUBENCH_ON_DEVICE, &area));
        DCI_TRY(gpubench_fill(b, area.device, area.n_bytes, DCI_BF16));
        for (size_t i = 0; i < n_pieces; i++)
                pieces[i] = area.device + i * piece_bytes;
        for (size_t i = 0; i < n; i++)
                numbers[i] = (int32_t)i;
        DCI_TRY(gpubench_put(b, pieces, n_pieces * sizeof *pieces, &device));
        chunks->pieces = device;
        DCI_TRY(gpubench_put(b, numbers, n * sizeof *numbers, &device));
        chunks->numbers = device;
        chunks->stride = s->chunks_each;
        chunks->piece_shift = PIECE_SHIFT;
        return DCI_OK;
}

/* Rows, lengths, signs and centres (numbers about 1: what they are does not matter to time). */
static dci_status put_tables(scoring *s)
{
        gpubench *b = s->b;
        const size_t n = s->shape->n_sequences, n_floats = 6 * DIM + n * HEADS * DIM;
        const float sign = 0.088388348f;
        int32_t *tables = gpubench_host(b, 3 * n * sizeof *tables);
        float *floats = gpubench_host(b, n_floats * sizeof *floats);
        void *device = NULL;
        dci_rng rng;
        if (tables == NULL || floats == NULL)
                return DCI_ERR_MEMORY;
        dci_rng_seed(&rng, 1);
        for (size_t i = 0; i < n; i++) {
                tables[i] = (int32_t)i;
                tables[n + i] = (int32_t)s->shape->n_candidates + SINK + WINDOW;
                tables[2 * n + i] = tables[n + i] - SINK;
        }
        for (size_t i = 0; i < n_floats; i++)
                floats[i] = i < 6 * DIM ? (dci_rng_next(&rng) % 2 == 0 ? sign : -sign) : (float)dci_rng_normal(&rng);
        DCI_TRY(gpubench_put(b, tables, 3 * n * sizeof *tables, &device));
        s->args.rows = device;
        s->args.n_tokens = s->args.rows + n;
        s->args.n_grouped = s->args.rows + 2 * n;
        DCI_TRY(gpubench_put(b, floats, n_floats * sizeof *floats, &device));
        s->args.signs = device;
        s->args.centres = s->args.signs + 6 * DIM;
        return DCI_OK;
}

/* Each list's units, ascending, any of them. */
static dci_status put_units(scoring *s)
{
        const size_t n_lists = s->shape->n_sequences * HEADS, n_units = s->shape->n_candidates / DCI_GPU_UNIT;
        const size_t wanted = s->n_groups / DCI_GPU_UNIT, stride = wanted + 1;
        int32_t *units = gpubench_host(s->b, n_lists * (stride + 1) * sizeof *units);
        void *device = NULL;
        dci_rng rng;
        if (units == NULL)
                return DCI_ERR_MEMORY;
        dci_rng_seed(&rng, 2);
        for (size_t i = 0; i < n_lists; i++) {
                int32_t *list = units + i * stride;
                for (size_t u = 0, n = 0; n < wanted; u++)
                        if (dci_rng_below(&rng, n_units - u) < wanted - n)
                                list[n++] = (int32_t)u;
                list[wanted] = 0;
                units[n_lists * stride + i] = (int32_t)s->n_groups;
        }
        DCI_TRY(gpubench_put(s->b, units, n_lists * (stride + 1) * sizeof *units, &device));
        s->args.units.lists = device;
        if (device != NULL)
                s->args.units.n_scored = s->args.units.lists + n_lists * stride;
        s->args.units.stride = (int32_t)stride;
        s->args.units.wanted = (int32_t)wanted;
        return DCI_OK;
}

/* Lists, counts, and what launches leave for each other: zeros. */
static dci_status take_votes(scoring *s)
{
        const size_t n_lists = s->shape->n_sequences * HEADS, blocks = s->n_sets * n_lists * BLOCKS;
        const size_t ranges = (s->shape->n_candidates + DCI_GPU_VOTE_RANGE - 1) / DCI_GPU_VOTE_RANGE;
        dci_gpu_vote_args *v = &s->votes;
        int32_t *n_scored = NULL, *lists = NULL;
        const struct {
                void *to;
                size_t n, size;
        } areas[] = {{&lists, n_lists * s->n_groups, 4},
                     {&n_scored, n_lists, 4},
                     {&v->counts, blocks * DCI_VOTE_CODES, 4},
                     {&v->counted, blocks, 4},
                     {&v->queries, n_lists * GROUP * DIM, 4},
                     {&v->tables, n_lists * BLOCKS * DCI_GPU_VOTE_WORDS, 4},
                     {&v->votes, n_lists * ranges * DCI_GPU_VOTE_RANGE, 1},
                     {&v->at_least, n_lists * ranges * DCI_GPU_VOTE_BINS, 2},
                     {&v->having, n_lists * DCI_GPU_VOTE_BINS, 4}};
        for (size_t i = 0; i < sizeof areas / sizeof *areas; i++) {
                gpubench_area area = {0};
                DCI_TRY(gpubench_take(s->b, areas[i].n * areas[i].size, GPUBENCH_ON_DEVICE, &area));
                DCI_TRY(s->b->ops->fill(s->b->gpu, s->b->stream, area.device, 0, area.n_bytes));
                memcpy(areas[i].to, &area.device, sizeof area.device);
        }
        v->max_ranges = v->n_ranges = (int32_t)ranges;
        v->row_counted = HEADS * BLOCKS;
        v->row_counts = v->row_counted * DCI_VOTE_CODES;
        s->args.n_parts = (int32_t)(ranges < DCI_GPU_MAX_PARTS ? ranges : DCI_GPU_MAX_PARTS);
        s->args.units =
                (dci_gpu_units){.lists = lists, .n_scored = n_scored, .stride = s->args.max_groups, .singles = 1};
        return DCI_OK;
}

static dci_status take_filled(gpubench *b, size_t n_bytes, gpubench_area *out)
{
        DCI_TRY(gpubench_take(b, n_bytes, GPUBENCH_ON_DEVICE, out));
        return gpubench_fill(b, out->device, n_bytes, DCI_BF16);
}

/* Queries, lanes, and room for results. */
static dci_status take_areas(scoring *s)
{
        gpubench *b = s->b;
        const size_t n_lists = s->shape->n_sequences * HEADS;
        gpubench_area queries = {0}, keys = {0}, scores = {0}, parts = {0};
        DCI_TRY(take_filled(b, n_lists * GROUP * DIM * 2, &queries));
        DCI_TRY(take_filled(b, s->n_sets * s->lane_bytes, &keys));
        DCI_TRY(gpubench_take(b, n_lists * s->n_groups * GROUP * sizeof(float), GPUBENCH_ON_DEVICE, &scores));
        DCI_TRY(b->ops->fill(b->gpu, b->stream, scores.device, 0xff, scores.n_bytes));
        DCI_TRY(gpubench_take(b, n_lists * (DCI_GPU_MAX_PARTS + 1) * GROUP * 2 * sizeof(float), GPUBENCH_ON_DEVICE,
                              &parts));
        s->args.queries = queries.device;
        s->args.lanes.keys = s->args.lanes.values = keys.device;
        s->args.scores = (float *)(void *)scores.device;
        s->args.parts = (float *)(void *)parts.device;
        return DCI_OK;
}

static dci_status prepare(scoring *s)
{
        const score_shape *shape = s->shape;
        const bool codes = shape->kind == DCI_GPU_CODES;
        const size_t n_lists = shape->n_sequences * HEADS, per_chunk = (size_t)DCI_GPU_CHUNK >> shape->shift;
        s->chunks_each = (shape->n_candidates + DCI_GPU_CHUNK - 1) / DCI_GPU_CHUNK;
        s->lane_bytes = n_lists * (SINK + RING) * DIM * 2;
        s->args = (dci_gpu_score_args){.n_sequences = (int32_t)shape->n_sequences,
                                       .n_heads = HEADS,
                                       .group = GROUP,
                                       .dim = DIM,
                                       .kind = shape->kind,
                                       .bits = shape->bits,
                                       .dtype = (int32_t)DCI_BF16,
                                       .query_dtype = (int32_t)DCI_BF16,
                                       .group_shift = shape->shift,
                                       .max_groups = (int32_t)s->n_groups,
                                       .scale = 0.088388348f,
                                       .sizes = {.sink = SINK, .window = WINDOW, .budget = BUDGET, .unit = UNIT},
                                       .query_ld = DIM,
                                       .lanes = {.key_bytes = DIM * 2,
                                                 .value_bytes = DIM * 2,
                                                 .sink = SINK,
                                                 .ring = RING,
                                                 .n_slots = SINK + RING}};
        s->args.summaries.head_bytes =
                (uint32_t)(codes ? DCI_GPU_CHUNK * s->group_bytes : dci_lines(per_chunk * s->group_bytes));
        if (shape->how == OF_VOTES)
                s->args.summaries.head_bytes = DCI_GPU_CHUNK * BLOCKS * (1 + DCI_VOTE_RECORD(1));
        else if (shape->how != PLAIN)
                s->args.summaries.head_bytes += (uint32_t)((DCI_GPU_CHUNK >> MEAN_SHIFT) * s->group_bytes);
        s->args.summaries.head_bytes = (s->args.summaries.head_bytes + 127) / 128 * 128;
        s->args.summaries.chunk_bytes = (uint64_t)HEADS * s->args.summaries.head_bytes;
        s->args.n_parts = dci_gpu_score_parts(s->b->gpu, n_lists, s->n_groups, s->group_bytes);
        DCI_TRY(put_chunks(s));
        DCI_TRY(put_tables(s));
        if (shape->how == OF_UNITS)
                DCI_TRY(put_units(s));
        if (shape->how == OF_VOTES)
                DCI_TRY(take_votes(s));
        DCI_TRY(take_areas(s));
        if (shape->how != OF_MEANS)
                return DCI_OK;
        s->args.units.lists = (int32_t *)(void *)s->args.scores; /* which are not read */
        s->args.units.wanted = 1;
        s->args.units.of_means = 1;
        s->args.lanes.keys = NULL;
        return DCI_OK;
}

/* That every score was written, and is a number. */
static dci_status check_output(const scoring *s)
{
        const size_t n = s->shape->n_sequences * HEADS * s->n_groups * GROUP;
        float *scores = gpubench_host(s->b, n * sizeof *scores);
        if (scores == NULL)
                return DCI_ERR_MEMORY;
        DCI_TRY(gpubench_download(s->b, scores, s->args.scores, n * sizeof *scores));
        for (size_t i = 0; i < n; i++)
                if (!isfinite(scores[i]))
                        return dci_fail(BENCH_ERR_RUN, "score %zu of %zu is %g", i, n, (double)scores[i]);
        return DCI_OK;
}

static const char *name_of(const score_shape *shape)
{
        static const char *const codes[] = {"", "codes, 1 bit", "codes, 2 bits", "", "codes, 4 bits"};
        static const char *const rows[] = {"", "", "means", "minmax", "cuboids", "deviations"};
        if (shape->how != PLAIN)
                return shape->how == OF_MEANS ? "codes of means" : shape->how == OF_UNITS ? "units, 4 bits" : "votes";
        return shape->kind == DCI_GPU_CODES ? codes[shape->bits] : rows[shape->kind];
}

static dci_status measure(gpubench *b, const score_shape *shape)
{
        const size_t mark = b->n_areas, width = shape->kind == DCI_GPU_MEANS ? DIM : 2 * DIM;
        scoring s = {.b = b, .shape = shape};
        gpubench_time time = {0};
        s.n_groups = (shape->n_candidates + ((size_t)1 << shape->shift) - 1) >> shape->shift;
        if (shape->how == OF_UNITS)
                s.n_groups = b->options->tiny ? 4 * DCI_GPU_UNIT : WANTED * DCI_GPU_UNIT;
        s.group_bytes = shape->kind == DCI_GPU_CODES ? (size_t)(DIM * shape->bits / 8 + 2) : 2 * width;
        if (shape->how == OF_VOTES) { /* all votes; records of the published share */
                s.n_groups = (size_t)ceil(DCI_VOTE_CANDIDATE_SHARE(shape->n_candidates) * (double)shape->n_candidates);
                s.group_bytes = DCI_VOTE_RECORD(BLOCKS);
        }
        const size_t voted = shape->how == OF_VOTES ? shape->n_candidates * BLOCKS : 0;
        const double bytes = (double)(shape->n_sequences * HEADS * (s.n_groups * s.group_bytes + voted));
        s.n_sets = gpubench_sets(b, (size_t)bytes, 4);
        const size_t most = shape->how == OF_UNITS ? MAX_UNIT_LAYERS : MAX_LAYERS;
        s.n_sets = s.n_sets > most ? most : s.n_sets;
        DCI_TRY(prepare(&s));
        DCI_TRY(gpubench_on_device(b, score, &s, s.n_sets, &time));
        DCI_TRY(check_output(&s));
        json_t *json =
                json_pack("{s:I, s:I, s:i, s:i, s:i, s:i, s:I, s:i}", "batch", (json_int_t)shape->n_sequences,
                          "candidates", (json_int_t)shape->n_candidates, "page", 1 << shape->shift, "heads", HEADS,
                          "group", GROUP, "dim", DIM, "layers", (json_int_t)s.n_sets, "parts", (int)s.args.n_parts);
        const double rate = bytes / (1e-6 * time.median);
        DCI_TRY(gpubench_row(b, "score", name_of(shape), json, &time, bytes, b->limits.specified));
        gpubench_note(b, "share_of_copy", rate / b->limits.memory);
        printf("%-14s %4d %5zu %10zu %6zu %5d %9.2f %9.2f %9.2f %7.3f %6.0f%%\n", name_of(shape), 1 << shape->shift,
               shape->n_sequences, shape->n_candidates, s.n_sets, (int)s.args.n_parts, time.median, time.p10, time.p90,
               rate * 1e-12, b->limits.specified > 0 ? 100 * rate / b->limits.specified : 0.0);
        gpubench_release(b, mark);
        return DCI_OK;
}

dci_status gpubench_score(gpubench *b)
{
        static const score_shape kinds[] = {
                {DCI_GPU_CODES, 4, 0, PLAIN, 0, 0},    {DCI_GPU_CODES, 2, 0, PLAIN, 0, 0},
                {DCI_GPU_CODES, 1, 0, PLAIN, 0, 0},    {DCI_GPU_CODES, 4, MEAN_SHIFT, OF_MEANS, 0, 0},
                {DCI_GPU_CODES, 4, 0, OF_UNITS, 0, 0}, {DCI_GPU_MEANS, 4, 4, PLAIN, 0, 0},
                {DCI_GPU_MEANS, 4, 5, PLAIN, 0, 0},    {DCI_GPU_MINMAX, 4, 4, PLAIN, 0, 0},
                {DCI_GPU_MINMAX, 4, 5, PLAIN, 0, 0},   {DCI_GPU_CUBOIDS, 4, 4, PLAIN, 0, 0},
                {DCI_GPU_CUBOIDS, 4, 5, PLAIN, 0, 0},  {DCI_GPU_DEVIATIONS, 4, 4, PLAIN, 0, 0},
                {DCI_GPU_VOTES, 4, 0, OF_VOTES, 0, 0}};
        static const size_t sizes[][2] = {{1, 36864}, {1, 131072}, {1, 262144}, {16, 32768}};
        const bool tiny = b->options->tiny;
        printf("\nscore: summaries against 32 query heads on 8 kv heads, d 128; us of one layer, in a graph\n"
               "%-14s %4s %5s %10s %6s %5s %9s %9s %9s %7s %7s\n",
               "summaries", "page", "batch", "candidates", "layers", "parts", "median", "p10", "p90", "TB/s",
               "of spec");
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
                for (size_t j = 0; j < (tiny ? 1 : sizeof sizes / sizeof *sizes); j++) {
                        score_shape shape = kinds[i];
                        shape.n_sequences = tiny ? 2 : sizes[j][0];
                        shape.n_candidates = tiny ? 1024 : sizes[j][1];
                        DCI_TRY(measure(b, &shape));
                }
        return DCI_OK;
}
