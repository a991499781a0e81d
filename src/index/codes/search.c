/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Search with codes: the candidates of a search are ranked by estimates from their codes, and the best of them are scored by the
 * canonical kernel. With a guarantee, every row whose estimate plus its bound reaches the k-th best score is scored as well.
 *
 * Goodness is what estimates are made of, the larger the better: for L2 the squared distance times -1; for COSINE the same of unit
 * rows, which is 2 cosine - 2; for IP the inner product less that with the first centre, which all rows have in common. So nothing
 * that grows with the distance from the origin is part of it (sketch/frames.h). Rows of blocks without codes are scored at once.
 */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "core/arena.h"
#include "index/candidates.h"
#include "index/codes/rows.h"

_Static_assert(DCI_SCAN_ROWS == DCI_TOPK_BLOCK && DCI_CODE_QUERIES == DCI_MANY_QUERIES, "one scan, one block");

double dci_sketched_rerank(const dci_index *index)
{
        static const double usual[9] = {0, 16, 8, 4, 3, 0, 0, 0, 2};
        return usual[index->config.sketch_bits];
}

bool dci_sketched_wanted(const dci_index *index, const dci_search_params *params, size_t n, size_t k, size_t *out_keep)
{
        if (index->config.sketch_bits == 0)
                return false;
        const double keep = ceil(params->rerank * (double)k);
        if (!(keep < (double)n))
                return false;
        *out_keep = (size_t)keep;
        return true;
}

/* One call. */
typedef struct ranking {
        const dci_flat *flat;
        const dci_frames *frames;
        dci_candidates *candidates;
        size_t n_frames, keep, k, k_held, group;
        double guarantee;
        size_t coding_bytes, coded_bytes, worker_bytes, n_workers;
        unsigned char *scratch;
        struct counts {
                uint64_t looked_at, scored;
        } * counts; /* by worker */
        int64_t *out_ids;
        float *out_scores;
} ranking;

/* Rows that follow one another in one unit: estimates [from, from + n) of a portion's. */
typedef struct stretch {
        uint16_t from, n;
} stretch;

/* Up to DCI_SCAN_ROWS rows of the selection, and the place of their estimates among those of their units. */
typedef struct portion {
        dci_unit units[DCI_SCAN_UNITS];
        size_t n_units, count;
        const int32_t *slots; /* NULL: from first_slot on */
        size_t first_slot;
        bool dense; /* estimate i is that of row i */
        size_t n_stretches;
        stretch stretches[DCI_SCAN_ROWS];
        int32_t listed[DCI_SCAN_ROWS]; /* room for slots */
} portion;

/* Arrays of a worker, which a small stack has no room for. */
#define SAMPLE_UNITS (4 * DCI_SCAN_UNITS)
#define SAMPLE_ROWS (SAMPLE_UNITS * DCI_CODE_UNIT)
typedef struct room {
        portion portion;
        float estimates[DCI_MANY_QUERIES * DCI_SCAN_ROWS], goodness[DCI_MANY_QUERIES * DCI_SCAN_ROWS];
        float bounds[DCI_SCAN_ROWS], raw[DCI_SCAN_ROWS];
        int32_t slots[DCI_SCAN_ROWS];
        float sample[DCI_MANY_QUERIES][SAMPLE_ROWS];
        int32_t order[SAMPLE_ROWS];
} room;

static void take_run(const ranking *r, size_t first, portion *out)
{
        const size_t left = r->flat->view.n - first;
        out->count = left < DCI_SCAN_ROWS ? left : DCI_SCAN_ROWS;
        out->n_units = (out->count + DCI_CODE_UNIT - 1) / DCI_CODE_UNIT;
        out->slots = NULL;
        out->first_slot = first;
        out->dense = true;
        for (size_t u = 0; u < out->n_units; u++)
                out->units[u] = dci_view_unit(&r->flat->view, first / DCI_CODE_UNIT + u);
}

/* How many of the n slots here follow one another within a unit. Those of a unit ascend and stand side by side, in every list there is:
 * so where the last of them is in its place, all are. */
static size_t stretch_of(const int32_t *slots, size_t n)
{
        const size_t left = DCI_CODE_UNIT - (size_t)slots[0] % DCI_CODE_UNIT, most = left < n ? left : n;
        size_t m = 1;
        if (slots[most - 1] == slots[0] + (int32_t)(most - 1))
                return most;
        while (slots[m] == slots[0] + (int32_t)m)
                m++;
        return m;
}

static void take_listed(const ranking *r, const dci_selection *selection, size_t first, portion *out)
{
        size_t last = SIZE_MAX;
        const size_t left = selection->n - first, most = left < DCI_SCAN_ROWS ? left : DCI_SCAN_ROWS;
        out->slots = selection->slots + first;
        out->n_units = out->count = out->first_slot = out->n_stretches = 0;
        while (out->count < most) {
                const size_t slot = (size_t)out->slots[out->count], unit = slot / DCI_CODE_UNIT;
                if (unit != last) {
                        if (out->n_units == DCI_SCAN_UNITS)
                                break;
                        out->units[out->n_units++] = dci_view_unit(&r->flat->view, unit);
                        last = unit;
                }
                const size_t n = stretch_of(out->slots + out->count, most - out->count);
                const size_t from = (out->n_units - 1) * DCI_CODE_UNIT + slot % DCI_CODE_UNIT;
                out->stretches[out->n_stretches++] = (stretch){(uint16_t)from, (uint16_t)n};
                out->count += n;
        }
        out->dense = out->count == out->n_units * DCI_CODE_UNIT;
}

static bool estimate(const ranking *r, const dci_coded *coded, const portion *p, float *out)
{
        if (p->slots == NULL)
                return dci_coded_estimate_run(r->frames, coded, p->units, p->n_units, out);
        return dci_coded_estimate(r->frames, coded, p->units, p->n_units, out);
}

static void compact(const portion *p, const float *from, float *to)
{
        if (p->dense) {
                memcpy(to, from, p->count * sizeof *to);
                return;
        }
        for (size_t i = 0; i < p->n_stretches; i++) {
                const stretch here = p->stretches[i];
                if (here.n == DCI_CODE_UNIT)
                        memcpy(to, from + here.from, DCI_CODE_UNIT * sizeof *to);
                else
                        memcpy(to, from + here.from, here.n * sizeof *to);
                to += here.n;
        }
}

/* The product of a query with the first centre. */
static double base_of(const ranking *r, size_t query)
{
        return dci_coded_base(r->frames, r->n_frames, r->flat->queries->rows + query * r->flat->queries->ld);
}

/* What a canonical score is in goodness. */
static double goodness_of(const ranking *r, double base, double score)
{
        switch (r->flat->metric) {
        case DCI_METRIC_L2:
                return -score;
        case DCI_METRIC_COSINE:
                return 2.0 * score - 2.0;
        default:
                return score - base;
        }
}

static bool is_raw(const dci_unit *unit)
{
        return unit->area->frames[unit->unit / 2] == DCI_RAW_FRAME;
}

/* Rows without codes: their goodness is that of their score. values[q * DCI_SCAN_ROWS + i]: that of row i of the portion. */
static void rate_raw(const ranking *r, const dci_coded *coded, size_t query, const portion *p, struct counts *counts,
                     float *values)
{
        const float *norms = r->flat->queries->inverse_norms;
        float scores[DCI_TOPK_BLOCK];
        int32_t slots[DCI_SCAN_ROWS];
        uint16_t at[DCI_SCAN_ROWS];
        size_t n = 0;
        for (size_t i = 0; i < p->count; i++) {
                const int32_t slot = p->slots == NULL ? (int32_t)(p->first_slot + i) : p->slots[i];
                const dci_unit unit = dci_view_unit(&r->flat->view, (size_t)slot / DCI_CODE_UNIT);
                if (!is_raw(&unit))
                        continue;
                slots[n] = slot;
                at[n++] = (uint16_t)i;
        }
        for (size_t q = 0; q < coded->n && n > 0; q++) {
                const double base = base_of(r, query + q);
                const bool zero = norms != NULL && norms[query + q] == 0.0f; /* all rows are as good */
                dci_flat_score(r->flat, query + q, 1, 0, slots, n, scores);
                for (size_t i = 0; i < n; i++)
                        values[q * DCI_SCAN_ROWS + at[i]] =
                                zero ? 0.0f : (float)goodness_of(r, base, (double)scores[i]);
        }
        counts->scored += n * coded->n;
}

/* The goodness of the rows of a portion for queries from `query` on: values[q * DCI_SCAN_ROWS + i]. spare: as much; not read
 * where the portion is dense. */
static void rate(const ranking *r, const dci_coded *coded, size_t query, const portion *p, struct counts *counts,
                 float *spare, float *values)
{
        float *to = p->dense ? values : spare;
        const bool raw = estimate(r, coded, p, to);
        dci_coded_rate(r->frames, coded, p->units, p->n_units, to);
        for (size_t q = 0; q < coded->n && !p->dense; q++)
                compact(p, spare + q * DCI_SCAN_ROWS, values + q * DCI_SCAN_ROWS);
        if (raw)
                rate_raw(r, coded, query, p, counts, values);
}

/* What a task works with. */
typedef struct task_state {
        const dci_selection *selection;
        size_t query, n_queries;
        dci_coded coded;
        dci_topk best;                     /* by score */
        dci_topk ranked[DCI_MANY_QUERIES]; /* by estimate */
        struct counts *counts;
        room *room;
} task_state;

/* The next portion from position `first` of the selection on; false at its end. */
static bool next_portion(const ranking *r, const task_state *t, size_t *first, portion *out)
{
        const size_t n = t->selection->all ? r->flat->view.n : t->selection->n;
        if (*first >= n)
                return false;
        if (t->selection->all)
                take_run(r, *first, out);
        else
                take_listed(r, t->selection, *first, out);
        *first += out->count;
        return true;
}

/*
 * Where to start: a sample of rows, evenly spread, gives an estimate of the last one that is kept. The guess is set low
 * enough to hold but once in a thousand queries (as in flat/batch.c); where it did not, rows are ranked again without.
 */
static void guess(const ranking *r, task_state *t)
{
        const size_t n = r->flat->view.n, step = n / DCI_CODE_UNIT / SAMPLE_UNITS;
        const double expected = (double)r->keep * SAMPLE_ROWS / (double)n;
        const double rank = ceil(expected + 3.0 * sqrt(expected) + 2.0);
        float *values = t->room->goodness, (*sample)[SAMPLE_ROWS] = t->room->sample;
        portion *p = &t->room->portion;
        if (!t->selection->all || step < 4 || rank > SAMPLE_ROWS / 4)
                return;
        for (size_t s = 0; s < SAMPLE_UNITS; s += DCI_SCAN_UNITS) {
                p->n_units = DCI_SCAN_UNITS;
                p->count = DCI_SCAN_ROWS;
                p->slots = p->listed;
                p->dense = true;
                for (size_t u = 0; u < DCI_SCAN_UNITS; u++) {
                        const size_t unit = (s + u) * step;
                        p->units[u] = dci_view_unit(&r->flat->view, unit);
                        for (size_t i = 0; i < DCI_CODE_UNIT; i++)
                                p->listed[u * DCI_CODE_UNIT + i] = (int32_t)(unit * DCI_CODE_UNIT + i);
                }
                rate(r, &t->coded, t->query, p, t->counts, NULL, values);
                for (size_t q = 0; q < t->n_queries; q++)
                        memcpy(sample[q] + s * DCI_CODE_UNIT, values + q * DCI_SCAN_ROWS, sizeof sample[q] / 4);
        }
        for (size_t q = 0; q < t->n_queries; q++) {
                float sum = 0.0f;
                for (size_t i = 0; i < SAMPLE_ROWS; i++)
                        sum += sample[q][i];
                if (sum == sum) /* a file may hold codes that overflow */
                        t->ranked[q].threshold =
                                r->flat->kernels->reached_by(sample[q], SAMPLE_ROWS, (size_t)rank, t->room->order);
        }
}

static void rank_all(const ranking *r, task_state *t)
{
        float *values = t->room->goodness;
        portion *p = &t->room->portion;
        for (size_t first = 0; next_portion(r, t, &first, p);) {
                rate(r, &t->coded, t->query, p, t->counts, t->room->estimates, values);
                for (size_t q = 0; q < t->n_queries; q++)
                        dci_topk_add(&t->ranked[q], values + q * DCI_SCAN_ROWS, p->count, (int32_t)p->first_slot,
                                     p->slots);
                t->counts->looked_at += p->count * t->n_queries;
        }
}

/* One query, without a guess. */
static void rank_again(const ranking *r, task_state *t, size_t q, void *memory)
{
        task_state alone = {
                .selection = t->selection, .query = t->query + q, .n_queries = 1, .counts = t->counts, .room = t->room};
        dci_topk_init(&alone.ranked[0], r->flat->kernels, r->flat->ids, r->keep, true, memory);
        alone.coded = dci_coded_one(&t->coded, q);
        rank_all(r, &alone);
        t->ranked[q] = alone.ranked[0];
}

/* Scores listed rows for one query. */
static void score(const ranking *r, task_state *t, size_t q, const int32_t *slots, size_t n)
{
        float scores[DCI_TOPK_BLOCK];
        for (size_t i = 0; i < n; i += DCI_TOPK_BLOCK) {
                const size_t count = n - i < DCI_TOPK_BLOCK ? n - i : DCI_TOPK_BLOCK;
                dci_flat_score(r->flat, t->query + q, 1, 0, slots + i, count, scores);
                dci_topk_add(&t->best, scores, count, 0, slots + i);
        }
        t->counts->scored += n;
}

/* The k-th best goodness found so far, from below; -infinity while there are fewer. What the canonical score of another row may err
 * is in its bound for IP, and here for L2 and COSINE, where it does not depend on the row. */
#define TINY 0x1p-100f
static float reached(const ranking *r, task_state *t, size_t q)
{
        const size_t n = dci_topk_finish(&t->best);
        if (n < r->k_held)
                return -INFINITY;
        const double score = (double)dci_topk_score(t->best.keys[n - 1], dci_metric_descending(r->flat->metric));
        const double error = (double)dci_arithmetic_error(r->flat->view.rows->dim);
        const double goodness = goodness_of(r, base_of(r, t->query + q), score);
        switch (r->flat->metric) {
        case DCI_METRIC_L2: /* squares of small differences may vanish */
                return (float)((1.0 + error) * goodness) * (1.0f + 0x1p-22f) - TINY;
        case DCI_METRIC_COSINE:
                if (r->flat->queries->inverse_norms[t->query + q] == 0.0f) /* it counts as zero: all scores are equal */
                        return -INFINITY;
                return (float)(goodness - 6.0 * error);
        default:
                return (float)(goodness - 0x1p-22 * fabs(goodness));
        }
}

/* Scores every row that may still be among the k best. */
static void make_sure(const ranking *r, task_state *t, size_t q, void *best_memory)
{
        const float limit = reached(r, t, q);
        const dci_coded one = dci_coded_one(&t->coded, q);
        room *here = t->room;
        portion *p = &here->portion;
        dci_topk_init(&t->best, r->flat->kernels, r->flat->ids, r->k_held, dci_metric_descending(r->flat->metric),
                      best_memory);
        for (size_t first = 0; next_portion(r, t, &first, p);) {
                size_t n = 0;
                rate(r, &one, t->query + q, p, t->counts, here->estimates, here->goodness);
                dci_coded_bound(r->frames, &one, 0, p->units, p->n_units, r->guarantee, here->raw);
                compact(p, here->raw, here->bounds);
                for (size_t i = 0; i < p->count; i++) {
                        here->slots[n] = p->slots == NULL ? (int32_t)(p->first_slot + i) : p->slots[i];
                        n += !(here->goodness[i] + here->bounds[i] < limit); /* NaN counts as "may be" */
                }
                score(r, t, q, here->slots, n);
        }
}

/* Estimates of codes that overflow, as a file may hold them, rank nothing: then all rows are scored. */
static void score_all(const ranking *r, task_state *t, size_t q)
{
        portion *p = &t->room->portion;
        int32_t *slots = t->room->slots;
        for (size_t first = 0; next_portion(r, t, &first, p);) {
                for (size_t i = 0; i < p->count; i++)
                        slots[i] = p->slots == NULL ? (int32_t)(p->first_slot + i) : p->slots[i];
                score(r, t, q, slots, p->count);
        }
}

/* Scores the rows that rank first. */
static void score_best(const ranking *r, task_state *t, size_t q)
{
        const size_t all = t->selection->all ? r->flat->view.n : t->selection->n;
        const size_t n = dci_topk_gather(&t->ranked[q]);
        if (n < r->keep && n < all)
                score_all(r, t, q);
        else
                score(r, t, q, t->ranked[q].slots, n);
}

static void rank_task(void *arg, size_t task, size_t worker)
{
        const ranking *r = arg;
        const dci_queries *queries = r->flat->queries;
        const bool descending = dci_metric_descending(r->flat->metric);
        unsigned char *at = r->scratch + worker * r->worker_bytes;
        dci_selection chosen;
        task_state t = {.selection = r->flat->selection, .query = task * r->group, .counts = &r->counts[worker]};
        t.n_queries = queries->n - t.query < r->group ? queries->n - t.query : r->group;
        if (r->candidates != NULL) {
                dci_candidates_select(r->candidates, t.query, worker, &chosen);
                t.selection = &chosen;
        }
        dci_coded_make(r->frames, r->n_frames, queries->rows + t.query * queries->ld, queries->ld,
                       queries->inverse_norms == NULL ? NULL : queries->inverse_norms + t.query, t.n_queries,
                       at + r->coding_bytes, at, &t.coded);
        at += r->coding_bytes + r->coded_bytes;
        t.room = (room *)(void *)at;
        at += dci_lines(sizeof *t.room);
        void *best_memory = at;
        at += dci_topk_bytes(r->k_held);
        for (size_t q = 0; q < t.n_queries; q++)
                dci_topk_init(&t.ranked[q], r->flat->kernels, r->flat->ids, r->keep, true,
                              at + q * dci_topk_bytes(r->keep));
        guess(r, &t);
        rank_all(r, &t);
        for (size_t q = 0; q < t.n_queries; q++) {
                if (t.ranked[q].n < r->keep && t.ranked[q].threshold > -INFINITY)
                        rank_again(r, &t, q, at + q * dci_topk_bytes(r->keep));
                dci_topk_init(&t.best, r->flat->kernels, r->flat->ids, r->k_held, descending, best_memory);
                score_best(r, &t, q);
                if (r->guarantee > 0.0)
                        make_sure(r, &t, q, best_memory);
                const size_t n = dci_topk_finish(&t.best);
                dci_flat_emit(r->flat, t.query + q, t.best.keys, n, r->k, r->out_ids, r->out_scores);
        }
}

/* Queries of a task: the candidates' group, else as many as one pass takes, but no fewer tasks than workers. */
static void plan(ranking *r)
{
        const dci_flat *flat = r->flat;
        const size_t n_queries = flat->queries->n;
        if (r->candidates != NULL) {
                r->group = r->candidates->group;
                r->n_workers = r->candidates->n_workers;
                return;
        }
        const double work = (double)n_queries * (double)flat->n * (double)flat->view.rows->dim / 8.0;
        r->n_workers = dci_workers_for(flat->context, n_queries, work < 1e18 ? (size_t)work : SIZE_MAX);
        r->group = (n_queries + r->n_workers - 1) / r->n_workers;
        r->group = r->group < DCI_MANY_QUERIES ? r->group : DCI_MANY_QUERIES;
}

static void report(const ranking *r, dci_search_stats *stats)
{
        if (r->candidates != NULL)
                dci_candidates_report(r->candidates, stats);
        stats->queries = r->flat->queries->n;
        stats->distances = stats->candidates = 0;
        uint64_t looked_at = 0;
        for (size_t i = 0; i < r->n_workers; i++) {
                looked_at += r->counts[i].looked_at;
                stats->distances += r->counts[i].scored;
                stats->candidates += r->counts[i].scored;
        }
        if (r->candidates == NULL) /* candidates are counted already */
                stats->visited = looked_at;
        stats->proposed = looked_at;
}

static dci_status run(ranking *r, dci_search_stats *stats)
{
        const dci_flat *flat = r->flat;
        plan(r);
        r->n_frames = atomic_load(&r->frames->n);
        r->coding_bytes = dci_frames_scratch_bytes(r->frames);
        r->coded_bytes = dci_coded_bytes(r->frames, r->n_frames, r->group);
        r->worker_bytes = r->coding_bytes + r->coded_bytes + dci_lines(sizeof(room)) + dci_topk_bytes(r->k_held) +
                          r->group * dci_topk_bytes(r->keep);
        r->scratch = dci_alloc(flat->context, r->n_workers, r->worker_bytes);
        r->counts = dci_calloc(flat->context, r->n_workers, sizeof *r->counts);
        dci_status status = DCI_ERR_MEMORY;
        if (r->scratch != NULL && r->counts != NULL) {
                status = dci_flat_run(flat, (flat->queries->n + r->group - 1) / r->group, r->n_workers, rank_task, r);
                report(r, stats);
        }
        dci_free(flat->context, r->counts, r->n_workers, sizeof *r->counts);
        dci_free(flat->context, r->scratch, r->n_workers, r->worker_bytes);
        return status;
}

dci_status dci_sketched_search(const dci_flat *flat, dci_candidates *candidates, const dci_search_params *params,
                               size_t keep, size_t k, int64_t *out_ids, float *out_scores, dci_search_stats *stats)
{
        ranking r = {.flat = flat,
                     .frames = &flat->view.rows->codes->frames,
                     .candidates = candidates,
                     .keep = keep,
                     .k = k,
                     .k_held = k < flat->n ? k : flat->n,
                     .guarantee = params->guarantee,
                     .out_ids = out_ids,
                     .out_scores = out_scores};
        if (candidates == NULL)
                return run(&r, stats);
        candidates->k_held = 0;
        DCI_TRY(dci_candidates_begin(candidates));
        const dci_status status = run(&r, stats);
        dci_candidates_end(candidates);
        return status;
}

/* --- places ------------------------------------------------------------------------------------------------------------ */

/* For each query m rows, by slot, and a row that does not count; -1: none. */
typedef struct placing {
        ranking ranking;
        size_t m, values_bytes;
        const int32_t *slots, *selves;
        float *out;
} placing;

typedef struct placing_scratch {
        float *values, *kept; /* by query of the task and slot: how bad; room */
        int32_t *order;
} placing_scratch;

static size_t placing_lay_out(size_t n, size_t group, void *memory, placing_scratch *out)
{
        const dci_arena_part parts[] = {{group * n * sizeof(float), &out->values},
                                        {(n + DCI_LANES) * sizeof(float), &out->kept},
                                        {(n + DCI_LANES) * sizeof(int32_t), &out->order}};
        return DCI_ARENA(parts, memory);
}

/* How bad the codes make every row for the queries of a task; rows that are not of the selection are infinitely bad. */
static void rate_all(const ranking *r, task_state *t, float *values)
{
        portion *p = &t->room->portion;
        const size_t n = r->flat->view.n;
        for (size_t i = 0; !t->selection->all && i < t->n_queries * n; i++)
                values[i] = INFINITY;
        for (size_t first = 0; next_portion(r, t, &first, p);) {
                rate(r, &t->coded, t->query, p, t->counts, t->room->estimates, t->room->goodness);
                for (size_t q = 0; q < t->n_queries; q++)
                        for (size_t i = 0; i < p->count; i++)
                                values[q * n + (p->slots == NULL ? p->first_slot + i : (size_t)p->slots[i])] =
                                        -t->room->goodness[q * DCI_SCAN_ROWS + i];
        }
}

static void place(const placing *p, size_t query, float *values, const placing_scratch *s)
{
        const int32_t *slots = p->slots + query * p->m;
        float limits[DCI_COUNT_LIMITS];
        size_t places[DCI_COUNT_LIMITS], known = 0;
        for (; known < p->m && slots[known] >= 0; known++)
                limits[known] = values[slots[known]];
        if (p->selves[query] >= 0)
                values[p->selves[query]] = INFINITY;
        dci_count_at_most(p->ranking.flat->kernels, values, p->ranking.flat->view.n, limits, known, s->kept, s->order,
                          places);
        for (size_t i = 0; i < known; i++)
                p->out[query * p->m + i] = (float)places[i];
}

static void place_task(void *arg, size_t task, size_t worker)
{
        const placing *p = arg;
        const ranking *r = &p->ranking;
        const dci_queries *queries = r->flat->queries;
        unsigned char *at = r->scratch + worker * r->worker_bytes;
        placing_scratch s;
        task_state t = {.selection = r->flat->selection, .query = task * r->group, .counts = &(struct counts){0}};
        t.n_queries = queries->n - t.query < r->group ? queries->n - t.query : r->group;
        placing_lay_out(r->flat->view.n, r->group, at, &s);
        at += p->values_bytes;
        t.room = (room *)(void *)at;
        at += dci_lines(sizeof *t.room);
        dci_coded_make(r->frames, r->n_frames, queries->rows + t.query * queries->ld, queries->ld,
                       queries->inverse_norms == NULL ? NULL : queries->inverse_norms + t.query, t.n_queries,
                       at + r->coding_bytes, at, &t.coded);
        rate_all(r, &t, s.values);
        for (size_t q = 0; q < t.n_queries; q++)
                place(p, t.query + q, s.values + q * r->flat->view.n, &s);
}

dci_status dci_sketched_places(const dci_flat *flat, size_t m, const int32_t *slots, const int32_t *selves, float *out)
{
        placing p = {.ranking = {.flat = flat, .frames = &flat->view.rows->codes->frames}, .m = m, .slots = slots};
        ranking *r = &p.ranking;
        p.selves = selves;
        p.out = out;
        plan(r);
        /* Per worker and row, 8 bytes and 4 for each query. */
        const double most = 0x1p28 / (double)flat->view.n;
        while (r->group > 1 && 4.0 * (double)r->group + 8.0 > most)
                r->group--;
        while (r->n_workers > 1 && (double)r->n_workers * (4.0 * (double)r->group + 8.0) > most)
                r->n_workers--;
        r->n_frames = atomic_load(&r->frames->n);
        r->coding_bytes = dci_frames_scratch_bytes(r->frames);
        p.values_bytes = placing_lay_out(flat->view.n, r->group, NULL, &(placing_scratch){0});
        r->worker_bytes = p.values_bytes + dci_lines(sizeof(room)) + r->coding_bytes +
                          dci_coded_bytes(r->frames, r->n_frames, r->group);
        r->scratch = dci_alloc(flat->context, r->n_workers, r->worker_bytes);
        if (r->scratch == NULL)
                return DCI_ERR_MEMORY;
        const dci_status status =
                dci_flat_run(flat, (flat->queries->n + r->group - 1) / r->group, r->n_workers, place_task, &p);
        dci_free(flat->context, r->scratch, r->n_workers, r->worker_bytes);
        return status;
}
