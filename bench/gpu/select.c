/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The part choose: the choice among groups whose scores are there, 176 tokens of each of 8 heads with 4 query heads.
 *
 * Scores are normal numbers, as much of them common to a head's queries as makes them agree on most, that walk to and fro: cos(angle) a +
 * sin(angle) b, a sixteenth of a turn from step to step, which correlate by 0.92. Where that fits, all steps lie in the L2 together, as
 * scores do that another kernel has just written; "memory" has so many steps that they do not. "new" has kept tokens that weigh by turns, so
 * that relevances of the last step say nothing about this one's.
 */
#include "bench/gpu/gpu.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 8, GROUP = 4, PARTS = 16, CHOSEN = 176, SINK = 16, WINDOW = 64, PAGE_SHIFT = 4, MAX_SETS = 16 };
enum { MEAN_SHIFT = 3, WANTED = 264 };
enum { TOKENS, PAGES, LISTED, UNITS }; /* UNITS: by means, those of a preselection (gpu/args/select.h) */
enum { IN_L2, MEMORY, NEW };

typedef struct shape {
        const char *name;
        size_t candidates, batch;
        int kind, how;
} shape;

static const shape shapes[] = {
        {"tokens", 36864, 1, TOKENS, IN_L2},
        {"tokens, memory", 36864, 1, TOKENS, MEMORY},
        {"tokens, new", 36864, 1, TOKENS, NEW},
        {"tokens", 131072, 1, TOKENS, IN_L2},
        {"tokens, memory", 131072, 1, TOKENS, MEMORY},
        {"tokens, new", 131072, 1, TOKENS, NEW},
        {"tokens", 262144, 1, TOKENS, IN_L2},
        {"tokens, memory", 262144, 1, TOKENS, MEMORY},
        {"tokens, new", 262144, 1, TOKENS, NEW},
        {"tokens, memory", 32768, 16, TOKENS, MEMORY},
        {"pages", 36000, 1, PAGES, IN_L2},
        {"pages, new", 36000, 1, PAGES, NEW},
        {"pages", 262144, 1, PAGES, IN_L2},
        {"listed", 36000, 1, LISTED, IN_L2},
        {"listed", 262144, 1, LISTED, IN_L2},
        {"units", 36864, 1, UNITS, IN_L2},
        {"units", 131072, 1, UNITS, IN_L2},
        {"units", 262144, 1, UNITS, IN_L2},
        {"units, memory", 32768, 16, UNITS, MEMORY},
        {"tokens of units", WANTED *DCI_GPU_UNIT, 1, TOKENS, IN_L2},
};

typedef struct choosing {
        gpubench *b;
        const shape *shape;
        size_t n_lists, n_groups, n_sets, set_floats, set_parts;
        int32_t *lists, *members; /* of the host: spans, ids */
        float *scores, *parts;    /* of the host: one set */
        gpubench_area all_scores, all_parts;
        dci_gpu_select_args args;
} choosing;

static dci_status select(void *arg, size_t set)
{
        const choosing *c = arg;
        dci_gpu_select_args args = c->args;
        args.scores = (float *)(void *)c->all_scores.device + set * c->set_floats;
        args.parts = (const float *)(const void *)c->all_parts.device + set * c->set_parts;
        return c->b->ops->select(c->b->gpu, c->b->stream, &args);
}

/* --- what goes in ------------------------------------------------------------------------------------------------------------ */

#define POOL ((size_t)1 << 18)

/* Each list reads the same normal numbers from another offset. */
static void make_scores(choosing *c, const float *pool, size_t set)
{
        const size_t to_and_fro = set <= c->n_sets / 2 ? set : c->n_sets - set;
        const double angle = 0.39269908169872414 * (double)to_and_fro;
        const float a = (float)cos(angle), b = (float)sin(angle);
        for (size_t i = 0; i < c->n_lists * c->n_groups; i++) {
                const size_t list = i / c->n_groups, at = i % c->n_groups + list * 7919 + i / POOL * 31;
                const float common = a * pool[at % POOL] + b * pool[(at * 3 + 17) % POOL];
                for (size_t q = 0; q < GROUP; q++) {
                        const size_t own = at * 5 + q * 1031;
                        c->scores[i * GROUP + q] =
                                2.5f * common + 1.25f * (a * pool[own % POOL] + b * pool[(own * 7 + 3) % POOL]);
                }
        }
}

static void make_parts(choosing *c, size_t set)
{
        const size_t each = (c->n_groups + PARTS - 1) / PARTS;
        for (size_t i = 0; i < c->n_lists * (PARTS + 1) * GROUP; i++) {
                const size_t q = i % GROUP, p = i / GROUP % (PARTS + 1), list = i / GROUP / (PARTS + 1);
                const size_t begin = p * each, end = begin + each < c->n_groups ? begin + each : c->n_groups;
                const float *scores = c->scores + list * c->n_groups * GROUP + q;
                float most = -FLT_MAX, sum = 0;
                for (size_t g = begin; p < PARTS && g < end; g++)
                        most = scores[g * GROUP] > most ? scores[g * GROUP] : most;
                for (size_t g = begin; p < PARTS && g < end; g++)
                        sum += expf(scores[g * GROUP] - most);
                const bool heavy = c->shape->how == NEW && set % 2 == 1;
                c->parts[2 * i] = p < PARTS ? most : heavy ? 30.0f : 8.0f;
                c->parts[2 * i + 1] = p < PARTS ? sum : 2.0f;
        }
}

static dci_status put_scores(choosing *c)
{
        dci_rng rng;
        float *pool = gpubench_host(c->b, POOL * sizeof *pool);
        if (pool == NULL)
                return DCI_ERR_MEMORY;
        dci_rng_seed(&rng, c->b->options->arms.seed);
        for (size_t i = 0; i < POOL; i++)
                pool[i] = (float)dci_rng_normal(&rng);
        DCI_TRY(gpubench_take(c->b, c->n_sets * c->set_floats * sizeof(float), GPUBENCH_ON_DEVICE, &c->all_scores));
        DCI_TRY(gpubench_take(c->b, c->n_sets * c->set_parts * sizeof(float), GPUBENCH_ON_DEVICE, &c->all_parts));
        /* The first set comes last, and stays for the check. */
        for (size_t set = c->n_sets; set-- > 0;) {
                make_scores(c, pool, set);
                make_parts(c, set);
                DCI_TRY(gpubench_upload(c->b, c->all_scores.device + set * c->set_floats * sizeof(float), c->scores,
                                        c->set_floats * sizeof(float)));
                DCI_TRY(gpubench_upload(c->b, c->all_parts.device + set * c->set_parts * sizeof(float), c->parts,
                                        c->set_parts * sizeof(float)));
        }
        return DCI_OK;
}

/* Listed groups of as many members as a page has; each has every so many-th candidate. One chunk for a sequence has all of a head's. */
static dci_status put_lists(choosing *c)
{
        const size_t n = c->shape->candidates, n_chunks = (n + DCI_GPU_CHUNK - 1) / DCI_GPU_CHUNK;
        const size_t per = (size_t)1 << PAGE_SHIFT, room = 2 * n_chunks * DCI_GPU_CHUNK;
        const size_t n_sequences = c->shape->batch, n_numbers = n_sequences * n_chunks;
        int32_t *numbers = gpubench_host(c->b, (n_numbers + c->n_lists) * sizeof *numbers);
        void *at = NULL, *memory = NULL, *table = NULL;
        c->lists = gpubench_host(c->b, 2 * room * HEADS * sizeof *c->lists);
        if (numbers == NULL || c->lists == NULL)
                return DCI_ERR_MEMORY;
        for (size_t i = 0; i < n_numbers; i++)
                numbers[i] = (int32_t)(i % n_chunks); /* the same for all sequences */
        for (size_t i = 0; i < c->n_lists; i++)
                numbers[n_numbers + i] = (int32_t)c->n_groups;
        /* [chunk][head][512][2]: spans at even multiples, ids of the same chunk after them. */
        const size_t head = 2 * DCI_GPU_CHUNK, chunk = 2 * head * HEADS;
        c->members = c->lists + head * HEADS;
        for (size_t h = 0; h < HEADS; h++)
                for (size_t i = 0; i < n; i++) {
                        const size_t g = i / per;
                        if (i % per == 0) {
                                int32_t *span = c->lists + g / DCI_GPU_CHUNK * chunk + h * head + g % DCI_GPU_CHUNK * 2;
                                span[0] = (int32_t)i;
                                span[1] = (int32_t)(n - i < per ? n - i : per);
                        }
                        c->members[i / DCI_GPU_CHUNK * chunk + h * head + i % DCI_GPU_CHUNK] =
                                (int32_t)(g + i % per * c->n_groups < n ? g + i % per * c->n_groups : i);
                }
        DCI_TRY(gpubench_put(c->b, numbers, (n_numbers + c->n_lists) * sizeof *numbers, &at));
        DCI_TRY(gpubench_put(c->b, c->lists, 2 * room * HEADS * sizeof *c->lists, &memory));
        void *pieces[2] = {memory, (int32_t *)memory + head * HEADS};
        DCI_TRY(gpubench_put(c->b, pieces, sizeof pieces, &table));
        c->args.spans = (dci_gpu_chunks){.pieces = table,
                                         .numbers = at,
                                         .stride = n_chunks,
                                         .chunk_bytes = chunk * sizeof(int32_t),
                                         .head_bytes = (uint32_t)(head * sizeof(int32_t)),
                                         .piece_shift = 30};
        c->args.ids = c->args.spans;
        if (table != NULL)
                c->args.ids.pieces = (unsigned char *const *)table + 1;
        if (at != NULL)
                c->args.n_clusters = (const int32_t *)at + n_numbers;
        return DCI_OK;
}

/* Rows, tokens and candidates of sequences; and what comes out. */
static dci_status put_rest(choosing *c)
{
        const size_t n = c->shape->batch, stride = (size_t)c->args.stride;
        const size_t out = c->n_lists * (stride + 1) + 3 * n,
                     scratch = c->n_lists * (DCI_GPU_FOUND * sizeof(uint64_t) + 12);
        int32_t *numbers = gpubench_host(c->b, 3 * n * sizeof *numbers);
        gpubench_area area = {0};
        void *at = NULL;
        if (numbers == NULL)
                return DCI_ERR_MEMORY;
        for (size_t i = 0; i < n; i++) {
                numbers[i] = (int32_t)i;
                numbers[n + i] = (int32_t)(c->shape->candidates + SINK + WINDOW);
                numbers[2 * n + i] = (int32_t)c->shape->candidates;
        }
        DCI_TRY(gpubench_put(c->b, numbers, 3 * n * sizeof *numbers, &at));
        DCI_TRY(gpubench_take(c->b, out * sizeof(int32_t), GPUBENCH_ON_DEVICE, &area));
        c->args.rows = at;
        c->args.n_tokens = (const int32_t *)at + n;
        c->args.n_grouped = (const int32_t *)at + 2 * n;
        c->args.positions = (int32_t *)(void *)area.device;
        c->args.counts = c->args.positions + c->n_lists * stride;
        c->args.sink_end = c->args.counts + c->n_lists;
        c->args.recent_begin = c->args.sink_end + c->args.n_sequences;
        c->args.after = c->args.recent_begin + c->args.n_sequences;
        if (c->shape->kind == UNITS) {
                c->args.units.lists = c->args.positions;
                c->args.units.n_scored = c->args.counts;
        }
        DCI_TRY(gpubench_take(c->b, scratch, GPUBENCH_ON_DEVICE, &area));
        DCI_TRY(c->b->ops->fill(c->b->gpu, c->b->stream, area.device, 0, scratch));
        c->args.found = (uint64_t *)(void *)area.device;
        c->args.n_found = (int32_t *)(void *)(c->args.found + c->n_lists * DCI_GPU_FOUND);
        c->args.lasts = (float *)(void *)(c->args.n_found + 2 * c->n_lists);
        return DCI_OK;
}

static dci_status prepare(choosing *c)
{
        const shape *s = c->shape;
        const size_t per = s->kind == TOKENS ? 1 : s->kind == UNITS ? (size_t)1 << MEAN_SHIFT : (size_t)1 << PAGE_SHIFT;
        c->n_lists = s->batch * HEADS;
        c->n_groups = (s->candidates + per - 1) / per;
        if (s->kind == UNITS) /* whole units */
                c->n_groups = (c->n_groups + 1) / 2 * 2;
        c->set_floats = c->n_lists * c->n_groups * GROUP;
        c->set_parts = c->n_lists * (PARTS + 1) * GROUP * 2;
        const size_t bytes = c->set_floats * sizeof(float), fits = (size_t)(c->b->l2_bytes / 4 * 3) / bytes;
        c->n_sets = s->how == MEMORY ? gpubench_sets(c->b, bytes, 4) : s->how == NEW ? 2 : fits < 8 ? fits : 8;
        c->n_sets = c->n_sets < 1 ? 1 : c->n_sets < MAX_SETS ? c->n_sets : MAX_SETS;
        c->args = (dci_gpu_select_args){
                .n_sequences = (int32_t)s->batch,
                .n_heads = HEADS,
                .group = GROUP,
                .group_shift = s->kind == PAGES ? PAGE_SHIFT : 0,
                .weigh = s->kind == TOKENS || s->how == NEW ? DCI_GPU_WEIGH_KEPT : DCI_GPU_WEIGH_GROUPS,
                .n_parts = PARTS,
                .max_groups = (int32_t)c->n_groups,
                .stride = SINK + WINDOW + CHOSEN,
                .sizes = {.sink = SINK, .window = WINDOW, .budget = SINK + WINDOW + CHOSEN, .unit = 1}};
        if (s->kind == UNITS) {
                const int32_t wanted = c->b->options->tiny ? 20 : WANTED;
                c->args.group_shift = MEAN_SHIFT;
                c->args.stride = wanted + 1;
                c->args.units = (dci_gpu_units){.stride = wanted + 1, .wanted = wanted, .of_means = 1};
        }
        c->scores = gpubench_host(c->b, bytes);
        c->parts = gpubench_host(c->b, c->set_parts * sizeof *c->parts);
        if (c->scores == NULL || c->parts == NULL)
                return DCI_ERR_MEMORY;
        DCI_TRY(put_scores(c));
        if (s->kind == LISTED)
                DCI_TRY(put_lists(c));
        return put_rest(c);
}

/* --- check and time ------------------------------------------------------------------------------------------------------------ */

/* The first list against the reference: rounding may exchange a few of the last. */
static dci_status check(choosing *c)
{
        const size_t stride = (size_t)c->args.stride;
        int32_t positions[SINK + WINDOW + CHOSEN], expected[SINK + WINDOW + CHOSEN], count = 0, wanted = 0;
        DCI_TRY(select(c, 0));
        DCI_TRY(c->b->ops->stream_wait(c->b->gpu, c->b->stream));
        DCI_TRY(gpubench_download(c->b, positions, c->args.positions, stride * sizeof *positions));
        DCI_TRY(gpubench_download(c->b, &count, c->args.counts, sizeof count));
        if (count != CHOSEN)
                return dci_fail(BENCH_ERR_RUN, "select: %d of %d were chosen", (int)count, CHOSEN);
        if (c->shape->kind == LISTED)
                return DCI_OK;
        const int32_t row = 0, n_tokens = (int32_t)c->shape->candidates + SINK + WINDOW;
        const int32_t n_grouped = (int32_t)c->shape->candidates;
        int32_t header[3], same = 0;
        float last = 0;
        dci_gpu_select_args args = c->args;
        args.n_sequences = args.n_heads = 1;
        args.rows = &row;
        args.n_tokens = &n_tokens;
        args.n_grouped = &n_grouped;
        args.scores = c->scores;
        args.parts = c->parts;
        args.lasts = &last;
        args.positions = expected;
        args.counts = &wanted;
        args.sink_end = header;
        args.recent_begin = header + 1;
        args.after = header + 2;
        dci_gpu_ref_select(&args);
        for (int32_t i = 0, j = 0; i < count && j < wanted;) {
                same += positions[i] == expected[j];
                const bool more = positions[i] >= expected[j];
                i += positions[i] <= expected[j];
                j += more;
        }
        /* A page has a rank as a whole. */
        const int32_t few = c->shape->kind == PAGES ? 1 << PAGE_SHIFT : 3;
        return wanted == count && same >= count - few
                       ? DCI_OK
                       : dci_fail(BENCH_ERR_RUN, "select: %d of %d are those of the reference", (int)same, (int)wanted);
}

/* The first list's units against the reference's: rounding may exchange one. */
static dci_status check_units(choosing *c)
{
        const size_t stride = (size_t)c->args.stride;
        int32_t units[WANTED + 1] = {0}, expected[WANTED + 1] = {0}, n_scored = 0, wanted = 0, same = 0;
        const int32_t row = 0, n_tokens = (int32_t)c->shape->candidates + SINK + WINDOW;
        const int32_t n_grouped = (int32_t)c->shape->candidates;
        dci_gpu_select_args args = c->args;
        DCI_TRY(select(c, 0));
        DCI_TRY(c->b->ops->stream_wait(c->b->gpu, c->b->stream));
        DCI_TRY(gpubench_download(c->b, units, c->args.units.lists, stride * sizeof *units));
        DCI_TRY(gpubench_download(c->b, &n_scored, c->args.units.n_scored, sizeof n_scored));
        args.n_sequences = args.n_heads = 1;
        args.rows = &row;
        args.n_tokens = &n_tokens;
        args.n_grouped = &n_grouped;
        args.scores = c->scores;
        args.parts = c->parts;
        args.units.lists = expected;
        args.units.n_scored = &wanted;
        dci_gpu_ref_select(&args);
        const int32_t n = (wanted + DCI_GPU_UNIT - 1) / DCI_GPU_UNIT;
        for (int32_t i = 0, j = 0; i < n && j < n;) {
                same += units[i] == expected[j];
                const bool more = units[i] >= expected[j];
                i += units[i] <= expected[j];
                j += more;
        }
        return wanted > 0 && n_scored == wanted && same >= n - 1
                       ? DCI_OK
                       : dci_fail(BENCH_ERR_RUN, "select: %d of %d units are those of the reference", (int)same,
                                  (int)n);
}

static dci_status measure(gpubench *b, const shape *s)
{
        const size_t mark = b->n_areas;
        choosing c = {.b = b, .shape = s};
        gpubench_time time = {0};
        DCI_TRY(prepare(&c));
        DCI_TRY(s->kind == UNITS ? check_units(&c) : check(&c));
        DCI_TRY(gpubench_on_device(b, select, &c, c.n_sets, &time));
        const double bytes = (double)(c.set_floats * sizeof(float));
        json_t *shape_json = json_pack("{s:I, s:I, s:I, s:i, s:i, s:I}", "candidates", (json_int_t)s->candidates,
                                       "groups", (json_int_t)c.n_groups, "batch", (json_int_t)s->batch, "heads", HEADS,
                                       "group", GROUP, "sets", (json_int_t)c.n_sets);
        printf("%-18s %10zu %8zu %6zu %5zu %9.1f %9.1f %9.1f %9.1f\n", s->name, s->candidates, c.n_groups, s->batch,
               c.n_sets, time.median, time.p10, time.p90, 1e-3 * bytes / time.median);
        DCI_TRY(gpubench_row(b, "select", s->name, shape_json, &time, bytes, 0));
        gpubench_release(b, mark);
        return DCI_OK;
}

dci_status gpubench_select(gpubench *b)
{
        printf("\nchoose: %d tokens of each of %d heads; us of one call\n%-18s %10s %8s %6s %5s %9s %9s %9s %9s\n",
               CHOSEN, HEADS, "scores", "candidates", "groups", "batch", "steps", "us", "p10", "p90", "GB/s");
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
                shape s = shapes[i];
                if (b->options->tiny) {
                        s.candidates = s.candidates / 64 + 1000;
                        s.batch = s.batch < 2 ? s.batch : 2;
                }
                DCI_TRY(measure(b, &s));
        }
        return DCI_OK;
}
