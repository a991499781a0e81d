/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "core/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "index/access.h"
#include "index/calibrate.h"
#include "index/config.h"
#include "index/search.h"
#include "index/tree/tree.h"

/* Queries that are measured, the fewer the more elements there are; rows added up for one that is like no row. */
#define MOST_QUERIES 192
#define FEWEST_QUERIES 64
#define FEWEST_QUERIES_TREE 80 /* MDCI */
#define FEW_ELEMENTS 0x1p18
#define DOUBT 1.0 /* standard errors */
/* Queries are less like the rows than rows are like each other: of what a recall of rows may miss, that much is found, too. */
#define UNLIKE 0.25
#define SUMMED_ROWS 8

/* Places in the list of true neighbours that are looked at. */
#define MOST_PLACES 48

typedef struct measuring {
        const dci_index *index;
        int32_t on; /* DCI_CALIBRATED_ROWS or QUERIES */
        dci_reading reading;
        size_t n_queries, n_places, k; /* k: of the exact search; a row that is its own query comes on top */
        size_t n_lengths;
        size_t thin; /* the neighbours are those among one of so many rows: each stands for as many */
        uint32_t begins[MOST_PLACES], weights[MOST_PLACES]; /* of stretches of the list, whose middles are looked at */
        int32_t *selves;                                    /* by query: its slot, or -1 */
        int64_t *ids;
        int32_t *slots;        /* by query and place; -1: there are fewer */
        float *shares, *ranks; /* the same: share of the effort, and place by codes */
        unsigned char *scratch;
        size_t n_workers, worker_bytes;
        dci_kind_search search;
} measuring;

/* --- which rows are the neighbours ------------------------------------------------------------------------------------ */

/* All of the first ten, then one of each five, of each fifty. The lengths of the table end where stretches do. */
static void plan_places(measuring *m, size_t n_rows)
{
        m->n_lengths = 0;
        for (size_t l = 0; l < DCI_EFFORT_LENGTHS && (l == 0 || dci_effort_lengths[l] * 16.0 <= (double)n_rows); l++)
                m->n_lengths++;
        m->k = (size_t)dci_effort_lengths[m->n_lengths - 1];
        m->k = ((m->k < 3 ? 3 : m->k) + m->thin - 1) / m->thin;
        m->n_places = 0;
        for (uint32_t at = 0; at < m->k && m->n_places < MOST_PLACES; at += m->weights[m->n_places++]) {
                m->begins[m->n_places] = at;
                m->weights[m->n_places] = at < 10 ? 1 : at < 100 ? 5 : 50;
        }
}

static dci_status search_exactly(measuring *m, const dci_flat *flat)
{
        const size_t k = m->k + 1;
        dci_search_stats stats;
        memset(&stats, 0, sizeof stats);
        return dci_flat_batch_suits(flat, k) ? dci_flat_batch_search(flat, k, m->ids, NULL, &stats)
                                             : dci_flat_search(flat, k, m->ids, NULL, &stats);
}

/* Among one row of each `thin`, drawn at random: what is found of a part of the neighbours is found of all. */
static dci_status search_some(measuring *m)
{
        const dci_selection *all = &m->reading.selection;
        const size_t n = m->reading.flat.n / m->thin;
        dci_flat flat = m->reading.flat;
        dci_selection some = {.scattered = all->scattered, .n = n};
        dci_rng rng;
        some.slots = dci_alloc(m->index->context, n, sizeof *some.slots);
        if (some.slots == NULL)
                return DCI_ERR_MEMORY;
        dci_rng_seed(&rng, m->index->config.seed ^ UINT64_C(0x7468696e6e696e67));
        for (size_t i = 0; i < n; i++) {
                const size_t row = i * m->thin + dci_rng_below(&rng, m->thin);
                some.slots[i] = all->all ? (int32_t)row : all->slots[row];
        }
        flat.selection = &some;
        flat.n = n;
        const dci_status status = search_exactly(m, &flat);
        dci_free(m->index->context, some.slots, n, sizeof *some.slots);
        return status;
}

static dci_status find_neighbours(measuring *m)
{
        const dci_flat *flat = &m->reading.flat;
        const size_t k = m->k + 1;
        DCI_TRY(dci_reading_name_all(m->index, &m->reading));
        DCI_TRY(m->thin > 1 ? search_some(m) : search_exactly(m, flat));
        for (size_t q = 0; q < m->n_queries; q++) {
                const int64_t *ids = m->ids + q * k;
                const int64_t self = m->selves[q] < 0 ? -1 : dci_view_id(&flat->view, m->selves[q]);
                size_t own = 0; /* where the row itself is */
                while (own < k && (self < 0 || ids[own] != self))
                        own++;
                for (size_t p = 0; p < m->n_places; p++) {
                        const size_t middle = m->begins[p] + m->weights[p] / 2, at = middle + (middle >= own);
                        m->slots[q * m->n_places + p] =
                                at < k && ids[at] >= 0 ? dci_index_slot(m->index, &flat->view, ids[at]) : -1;
                }
        }
        return DCI_OK;
}

/* --- what finds them ----------------------------------------------------------------------------------------------------- */

static void shares_task(void *arg, size_t task, size_t worker)
{
        const measuring *m = arg;
        const int32_t *slots = m->slots + task * m->n_places;
        size_t n = 0;
        while (n < m->n_places && slots[n] >= 0)
                n++;
        m->index->kind->shares(&m->search, task, slots, n, m->selves[task], m->scratch + worker * m->worker_bytes,
                               m->shares + task * m->n_places);
}

static dci_status find_shares(measuring *m)
{
        const dci_flat *flat = &m->reading.flat;
        memset(&m->search, 0, sizeof m->search);
        for (size_t i = 0; i < m->n_queries * m->n_places; i++)
                m->shares[i] = 0.0f;
        if (m->index->kind->shares == NULL)
                return DCI_OK;
        DCI_TRY(m->index->kind->begin(&m->search, m->index, flat, 1));
        m->worker_bytes = m->search.candidates.own_bytes;
        m->n_workers = dci_workers_for(flat->context, m->n_queries, m->n_queries * m->search.candidates.work);
        m->scratch = dci_alloc(flat->context, m->n_workers, m->worker_bytes);
        const dci_status status =
                m->scratch == NULL ? DCI_ERR_MEMORY : dci_flat_run(flat, m->n_queries, m->n_workers, shares_task, m);
        dci_free(flat->context, m->scratch, m->n_workers, m->worker_bytes);
        m->index->kind->end(&m->search);
        return status;
}

static dci_status find_ranks(measuring *m)
{
        for (size_t i = 0; i < m->n_queries * m->n_places; i++)
                m->ranks[i] = 0.0f;
        if (m->index->config.sketch_bits == 0)
                return DCI_OK;
        return dci_sketched_places(&m->reading.flat, m->n_places, m->slots, m->selves, m->ranks);
}

/* --- from these to the table ------------------------------------------------------------------------------------------ */

/* One neighbour: what finds it, how many it stands for, where in the list, and of which query. */
typedef struct neighbour {
        float share, rank;
        uint32_t begin, weight, query;
} neighbour;

/* All of them, twice: by what they take of each. */
typedef struct neighbours {
        size_t n, n_queries;
        neighbour *by_share, *by_rank;
} neighbours;

static int compare_shares(const void *a, const void *b)
{
        const neighbour *x = a, *y = b;
        return (x->share > y->share) - (x->share < y->share);
}

static int compare_ranks(const void *a, const void *b)
{
        const neighbour *x = a, *y = b;
        return (x->rank > y->rank) - (x->rank < y->rank);
}

static void sort_neighbours(const measuring *m, neighbours *all)
{
        const uint32_t thin = (uint32_t)m->thin;
        all->n = 0;
        all->n_queries = m->n_queries;
        for (size_t i = 0; i < m->n_queries * m->n_places; i++) {
                const size_t p = i % m->n_places;
                if (m->slots[i] >= 0)
                        all->by_share[all->n++] = (neighbour){m->shares[i], m->ranks[i], m->begins[p] * thin,
                                                              m->weights[p] * thin, (uint32_t)(i / m->n_places)};
        }
        memcpy(all->by_rank, all->by_share, all->n * sizeof *all->by_rank);
        qsort(all->by_share, all->n, sizeof *all->by_share, compare_shares);
        qsort(all->by_rank, all->n, sizeof *all->by_rank, compare_ranks);
}

/* The least share that reaches a recall of lists of k, where codes keep so many rows; or, kept 0, the fewest rows to keep where all
 * are ranked. Of a sample the recall is uncertain: the mean less its standard error has to reach the target. */
static double least_need(const neighbours *all, size_t k, double kept, double target)
{
        double hits[MOST_QUERIES] = {0}, sum = 0.0, squares = 0.0; /* recalls of the queries so far */
        const neighbour *list = kept > 0.0 ? all->by_share : all->by_rank;
        const double n = (double)all->n_queries;
        float reached = -1.0f;
        for (size_t i = 0; i < all->n; i++) {
                const float need = kept > 0.0 ? list[i].share : list[i].rank;
                if (need != reached && reached >= 0.0f) { /* all of one need, or none */
                        const double mean = sum / n, spread = fmax(0.0, squares / n - mean * mean);
                        if (mean - DOUBT * sqrt(spread / n) >= target)
                                return (double)reached;
                }
                if (list[i].begin >= k || (kept > 0.0 && (double)list[i].rank > kept))
                        continue;
                reached = need;
                const double part = fmin((double)list[i].weight, (double)(k - list[i].begin)) / (double)k,
                             before = hits[list[i].query];
                hits[list[i].query] = before + part;
                squares += part * (2.0 * before + part);
                sum += part;
        }
        return sum / n >= 1.0 - 1e-9 ? (double)reached : (double)INFINITY;
}

/* What a share costs, as a share of reading all rows one after another: rows here and there take longer. */
static double cost_of(const dci_index *index, double share)
{
        const dci_index_config *config = &index->config;
        const double scan = 0.5 * (double)index->directions.n / (double)config->dim;
        switch (config->kind) {
        case DCI_KIND_PDCI: /* the union of what composite indices retrieve */
                return scan + 2.0 * (1.0 - pow(1.0 - share, (double)config->num_comp_indices));
        case DCI_KIND_MDCI:
                return 1.3 * share;
        default:
                return 1.0;
        }
}

/* The cheapest share and rerank that reach a recall. */
static dci_effort cheapest(const measuring *m, const neighbours *all, size_t k, double target)
{
        static const double more[] = {1.0, 1.25, 1.6, 2.5};
        const dci_index *index = m->index;
        const dci_index_config *config = &index->config;
        const double n = (double)m->reading.flat.n;
        const double codes = (double)config->sketch_bits / (8.0 * (double)dci_dtype_size(config->dtype));
        dci_effort best = {1.0, INFINITY};
        double least = 1.0;
        if (index->kind->shares != NULL && m->on == DCI_CALIBRATED_ROWS)
                target += UNLIKE * (1.0 - target);
        if (index->kind->shares != NULL) {
                const double share = least_need(all, k, INFINITY, target);
                if (share <= 1.0 && cost_of(index, share) < least) {
                        best.share = share;
                        least = cost_of(index, share);
                }
        }
        if (config->sketch_bits == 0)
                return best;
        /* Queries that are unlike rows rank worse by codes, and scoring a few rows more costs little. */
        const double aim = config->metric == DCI_METRIC_IP ? (1.0 + target) / 2.0 : target;
        const double kept = least_need(all, k, 0.0, aim);
        for (size_t i = 0; i < sizeof more / sizeof more[0] && more[i] * kept < n; i++) {
                const double keep = fmax(more[i] * kept, (double)k);
                dci_effort tried = {1.0, keep / (double)k};
                if (index->kind->shares != NULL)
                        tried.share = fmin(1.0, least_need(all, k, keep, target));
                const double cost = codes * cost_of(index, tried.share) + 1.3 * keep / n;
                if (cost < least) {
                        best = tried;
                        least = cost;
                }
        }
        return best;
}

static void fill_table(const measuring *m, const neighbours *all, dci_calibration *out)
{
        for (size_t l = 0; l < m->n_lengths; l++) {
                /* One neighbour says little: the three nearest stand for it, and the farther are not found more easily. */
                const size_t k = l == 0 ? 3 : (size_t)dci_effort_lengths[l];
                dci_effort last = {0.0, 1.0};
                for (size_t r = 0; r < DCI_EFFORT_RECALLS; r++) {
                        dci_effort effort = cheapest(m, all, k, dci_effort_recalls[r]);
                        if (l == 0) /* scored for one row wanted, what was for three */
                                effort.rerank *= 3.0;
                        last.share = fmax(last.share, effort.share);
                        last.rerank = fmax(last.rerank, effort.rerank);
                        out->share[l][r] = (float)last.share;
                        out->rerank[l][r] = (float)last.rerank;
                }
        }
        out->n_lengths = m->n_lengths;
        out->n_rows = m->reading.flat.n;
}

/* --- the whole ------------------------------------------------------------------------------------------------------------- */

static dci_status measure(measuring *m, neighbours *all, dci_calibration *out)
{
        const size_t n = m->n_queries * m->n_places;
        dci_context *context = m->index->context;
        m->ids = dci_alloc(context, m->n_queries * (m->k + 1), sizeof *m->ids);
        m->slots = dci_alloc(context, n, sizeof *m->slots);
        m->shares = dci_alloc(context, n, sizeof *m->shares);
        m->ranks = dci_alloc(context, n, sizeof *m->ranks);
        dci_status status = m->ids == NULL || m->slots == NULL || m->shares == NULL || m->ranks == NULL
                                    ? DCI_ERR_MEMORY
                                    : find_neighbours(m);
        if (status == DCI_OK)
                status = find_shares(m);
        if (status == DCI_OK)
                status = find_ranks(m);
        if (status == DCI_OK) {
                sort_neighbours(m, all);
                fill_table(m, all, out);
        }
        dci_free(context, m->ranks, n, sizeof *m->ranks);
        dci_free(context, m->shares, n, sizeof *m->shares);
        dci_free(context, m->slots, n, sizeof *m->slots);
        dci_free(context, m->ids, m->n_queries * (m->k + 1), sizeof *m->ids);
        return status;
}

/* With the reading open and the queries in place, some of which may be rows. Closes the reading. */
static dci_status calibrate(measuring *m, int32_t on, dci_calibration *out)
{
        dci_context *context = m->index->context;
        *out = (dci_calibration){.on = on, .kind = m->index->config.kind, .sketch_bits = m->index->config.sketch_bits};
        m->on = on;
        m->n_queries = m->reading.queries.n;
        plan_places(m, m->reading.flat.n);
        const size_t n = m->n_queries * m->n_places;
        neighbour *list = dci_alloc(context, 2 * n, sizeof *list);
        neighbours all = {.by_share = list, .by_rank = list + n};
        const dci_status status = list == NULL ? DCI_ERR_MEMORY : measure(m, &all, out);
        dci_free(context, list, 2 * n, sizeof *list);
        return status;
}

static bool is_approximate(const dci_index *index)
{
        return index->kind->shares != NULL || index->config.sketch_bits != 0;
}

dci_status dci_calibrate_queries(const dci_index *index, const dci_queries *queries, const dci_progress *progress,
                                 dci_calibration *out)
{
        int32_t selves[MOST_QUERIES];
        measuring m = {.index = index, .thin = 1, .selves = selves};
        *out = (dci_calibration){.on = DCI_CALIBRATED_NONE};
        if (queries->n < DCI_CALIBRATED_QUERIES_LEAST)
                return DCI_OK;
        memset(selves, -1, sizeof selves);
        m.reading.queries = *queries;
        m.reading.queries.owned = NULL;
        m.reading.queries.n = queries->n < MOST_QUERIES ? queries->n : MOST_QUERIES;
        if (progress != NULL)
                m.reading.params.progress = *progress;
        DCI_TRY(dci_reading_open(index, &m.reading));
        const dci_status status =
                m.reading.flat.n < DCI_CALIBRATED_ROWS_LEAST ? DCI_OK : calibrate(&m, DCI_CALIBRATED_QUERIES, out);
        return dci_reading_end(index, &m.reading, status);
}

void dci_calibration_publish(dci_index *index, const dci_calibration *calibration)
{
        pthread_mutex_lock(&index->defaults_lock);
        index->calibration = *calibration;
        pthread_mutex_unlock(&index->defaults_lock);
}

/* --- rows as queries --------------------------------------------------------------------------------------------------- */

/* A promoted row has a cell around it, which no other query has. */
static bool is_promoted(const measuring *m, int32_t slot)
{
        const struct dci_tree *tree = m->index->tree;
        return tree != NULL && dci_tree_promotions(tree, dci_view_id(&m->reading.flat.view, slot)) > 0;
}

/* Slots of n rows, each of its own stretch of all that there are, evenly spread. */
static void draw_slots(const measuring *m, dci_rng *rng, size_t n, int32_t *out)
{
        const dci_selection *selection = &m->reading.selection;
        const size_t n_rows = m->reading.flat.n;
        for (size_t i = 0; i < n; i++) {
                for (size_t tries = 0; tries < 8 && (tries == 0 || is_promoted(m, out[i])); tries++) {
                        const size_t at = (size_t)(((double)i + dci_rng_uniform(rng)) * (double)n_rows / (double)n);
                        const size_t row = at < n_rows ? at : n_rows - 1;
                        out[i] = selection->all ? (int32_t)row : selection->slots[row];
                }
        }
}

static void load_row(const measuring *m, int32_t slot, float *out)
{
        const dci_index_config *config = &m->index->config;
        const void *row;
        dci_view_pointers(&m->reading.flat.view, 0, &slot, 1, &row);
        m->index->context->kernels->to_f32[config->dtype - 1](row, config->dim, out);
}

/* Rows under IP differ in length: what scores highest is then not what is most alike, and queries are not rows. */
static bool lengths_differ(const measuring *m, size_t n, const int32_t *slots)
{
        double sum = 0.0, squares = 0.0;
        for (size_t i = 0; i < n; i++) {
                const void *row;
                dci_view_pointers(&m->reading.flat.view, 0, &slots[i], 1, &row);
                const double length = sqrt((double)m->index->context->kernels->norm2[m->index->config.dtype - 1](
                        row, m->index->config.dim));
                sum += length;
                squares += length * length;
        }
        const double mean = sum / (double)n;
        return squares / (double)n - mean * mean > 0.0025 * mean * mean;
}

/* The query in `out` becomes a sum of rows with random signs, each at unit length times that of the first... */
static void add_up(const measuring *m, dci_rng *rng, size_t n_slots, const int32_t *slots, float *row, float *out)
{
        const size_t dim = m->index->config.dim;
        memset(out, 0, dim * sizeof *out);
        for (size_t i = 0; i < SUMMED_ROWS; i++) {
                load_row(m, slots[dci_rng_below(rng, n_slots)], row);
                const float sign = dci_rng_below(rng, 2) == 0 ? 0x1p-3f : -0x1p-3f; /* no larger than the largest row */
                for (size_t j = 0; j < dim; j++)
                        out[j] += sign * row[j];
        }
}

/* Queries that the rows suggest: rows, or under IP sums of them. memory: room for two more floats per query and one more row. */
static void make_queries(measuring *m, float *memory)
{
        const size_t dim = m->index->config.dim, n = m->n_queries;
        int32_t slots[MOST_QUERIES * 2];
        float *row = memory + n * dim, *inverse = row + dim;
        dci_rng rng;
        dci_rng_seed(&rng, m->index->config.seed ^ UINT64_C(0x63616c6962726174));
        draw_slots(m, &rng, n, slots);
        memcpy(m->selves, slots, n * sizeof *slots);
        if (m->index->config.metric == DCI_METRIC_IP && lengths_differ(m, n, slots)) {
                draw_slots(m, &rng, 2 * n, slots);
                for (size_t i = 0; i < n; i++)
                        add_up(m, &rng, 2 * n, slots, row, memory + i * dim);
                memset(m->selves, -1, n * sizeof *m->selves);
        } else {
                for (size_t i = 0; i < n; i++)
                        load_row(m, slots[i], memory + i * dim);
        }
        m->reading.queries = (dci_queries){.n = n, .ld = dim, .rows = memory};
        if (m->index->config.metric != DCI_METRIC_COSINE)
                return;
        for (size_t i = 0; i < n; i++) {
                const float norm2 = m->index->context->kernels->norm2[DCI_F32 - 1](memory + i * dim, dim);
                inverse[i] = norm2 < DCI_MIN_NORM2 ? 0.0f : 1.0f / sqrtf(norm2);
        }
        m->reading.queries.inverse_norms = inverse;
}

/* How much is measured: its cost is to grow little with the rows, and to stay small beside that of adding them. */
static void plan_sample(measuring *m)
{
        const double times = (double)m->reading.flat.n * (double)m->index->config.dim / FEW_ELEMENTS;
        /* A tree takes long to build: beside it there is time for all rows. */
        const bool tree = m->index->tree != NULL;
        m->thin = tree || times < 4.0 ? 1 : times < 8.0 ? 2 : 4;
        m->n_queries = MOST_QUERIES;
        if (times > 1.0)
                m->n_queries = (size_t)fmax(tree ? FEWEST_QUERIES_TREE : FEWEST_QUERIES, MOST_QUERIES / sqrt(times));
}

static dci_status calibrate_rows(const dci_index *index, dci_calibration *out)
{
        int32_t selves[MOST_QUERIES];
        measuring m = {.index = index, .selves = selves};
        const size_t n_floats = (MOST_QUERIES + 1) * index->config.dim + MOST_QUERIES;
        float *memory = dci_alloc(index->context, n_floats, sizeof *memory);
        if (memory == NULL)
                return DCI_ERR_MEMORY;
        dci_status status = dci_reading_open(index, &m.reading);
        if (status == DCI_OK) {
                status = dci_reading_name_all(index, &m.reading);
                if (status == DCI_OK) {
                        plan_sample(&m);
                        make_queries(&m, memory);
                        status = calibrate(&m, DCI_CALIBRATED_ROWS, out);
                }
                status = dci_reading_end(index, &m.reading, status);
        }
        dci_free(index->context, memory, n_floats, sizeof *memory);
        return status;
}

static bool wants_recall(dci_index *index)
{
        dci_search_params defaults;
        dci_index_get_defaults_into(index, &defaults);
        return is_approximate(index) && (index->config.target_recall < 1.0 ||
                                         (!dci_params_give_effort(&defaults) && defaults.target_recall < 1.0));
}

void dci_calibrate_rows(dci_index *index, bool renewed)
{
        const dci_calibration *old = &index->calibration; /* which changes here, and in tune, whose queries are kept */
        dci_calibration found = {0};
        const size_t n = dci_index_count(index), last = old->n_rows;
        const bool holds = dci_calibration_holds(old, &index->config);
        if (!wants_recall(index) || n < DCI_CALIBRATED_ROWS_LEAST || (holds && old->on == DCI_CALIBRATED_QUERIES))
                return;
        if (!renewed && holds && n / 2 < last && n >= last - last / 3)
                return;
        dci_may_fail(true);
        if (calibrate_rows(index, &found) == DCI_OK)
                dci_calibration_publish(index, &found);
        dci_may_fail(false);
}

void dci_calibrate_fitted(dci_index *index, const dci_queries *queries)
{
        dci_calibration found;
        if (queries->n < DCI_CALIBRATED_QUERIES_LEAST) {
                dci_calibrate_rows(index, true);
                return;
        }
        if (!wants_recall(index))
                return;
        dci_may_fail(true);
        if (dci_calibrate_queries(index, queries, NULL, &found) == DCI_OK && found.on != DCI_CALIBRATED_NONE)
                dci_calibration_publish(index, &found);
        dci_may_fail(false);
}
