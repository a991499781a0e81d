/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The candidates of the P-DCI core are those of the published walk, row by row: the trace, random rows, ties, runs, filters. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "tests/simd_reference.h"

#include <math.h>
#include <string.h>

#include "simd/cpu.h"
#include "tests/pdci_fixture.h"
#include "tests/pdci_walk.h"

/* What is in the way of the walk. MISLEADING: the rows that regular samples read are far from the others. */
enum { NORMAL, WHOLE, EQUAL, COPIES, MISLEADING, HALF_EQUAL };
enum { ADMIT_ALL, ADMIT_NEARLY_ALL, ADMIT_HALF, ADMIT_FEW, ADMIT_ONE, ADMIT_NONE };

typedef struct shape {
        size_t n, n_comp, n_simp, run; /* run: rows of each but the last run */
        int values;
        bool lifted, scattered; /* scattered: ids do not ascend with slots */
        int filter;
} shape;

/* Budgets as shares of all pairs and of the admitted rows, and something added. */
typedef struct budget {
        double visit;
        int64_t visit_more;
        double retrieve;
        int64_t retrieve_more;
        double at_least;
} budget;

static const budget budgets[] = {
        {0, 1, 1, 0, 0},        {0, 7, 1, 0, 0},       {0.004, 0, 1, 0, 0}, {0.03, 1, 1, 0, 0},     {0.25, 0, 1, 0, 0},
        {0.5, 0, 1, 0, 0},      {0.75, 0, 1, 0, 0},    {0.97, 0, 1, 0, 0},  {1, -1, 1, 0, 0},       {1, 0, 1, 0, 0},
        {3, 5, 3, 5, 0},        {1, 0, 0, 1, 0},       {1, 0, 0.02, 1, 0},  {1, 0, 0.3, 0, 0},      {1, 0, 1, -1, 0},
        {0.5, 0, 0.05, 1, 0},   {0.2, 0, 0.4, 0, 0},   {0, 1, 0, 1, 0.01},  {0.1, 0, 0.01, 1, 0.6}, {0, 1, 0, 1, 1},
        {0.3, 0, 0.1, 1, 0.02}, {0.05, 0, 0.5, 0, 0.1}};

/* One cell and what the walk needs of it. */
typedef struct scene {
        shape s;
        size_t n_simple, n_runs, n_admitted;
        float *plain, *lifted; /* [simple index][row]; lifted: as the walk takes them */
        float *query, *weights, *lifts;
        int64_t *ids;
        bool *admitted;
        uint64_t *bits;
        dci_pdci_run *runs;
} scene;

static int64_t id_of(const void *ctx, int32_t slot)
{
        return ((const int64_t *)ctx)[slot];
}

static float one_value(dci_rng *rng, int values, size_t row, size_t n)
{
        float x = (float)dci_rng_normal(rng);
        switch (values) {
        case WHOLE:
                return floorf(2 * x);
        case EQUAL:
                return 0.25f;
        case MISLEADING:
                return row % (n / 1024 > 0 ? n / 1024 : 4) == 0 ? x + 1000 : x;
        case HALF_EQUAL:
                return row % 2 == 0 ? 0.5f : x;
        default:
                return x;
        }
}

static void fill_scene(scene *v, const dci_kernels *kernels, dci_rng *rng)
{
        const size_t n = v->s.n, copies = n / 9 + 1;
        for (size_t j = 0; j < v->n_simple; j++) {
                v->query[j] = v->s.values == WHOLE ? floorf((float)dci_rng_normal(rng)) : (float)dci_rng_normal(rng);
                v->query[j] = v->s.values == EQUAL && j % 3 == 0 ? 0.25f : v->query[j];
                v->weights[j] = v->s.values == WHOLE ? 1 : (float)dci_rng_normal(rng) / 8;
                for (size_t i = 0; i < n; i++) {
                        float *x = &v->plain[j * n + i];
                        *x = one_value(rng, v->s.values, i, n);
                        if (v->s.values == COPIES && i >= copies)
                                *x = v->plain[j * n + i % copies];
                }
        }
        for (size_t i = 0; i < n; i++) {
                v->lifts[i] = v->s.values == WHOLE ? (float)(i % 3) : fabsf((float)dci_rng_normal(rng));
                v->lifts[i] = v->s.values == EQUAL || v->s.values == COPIES ? 0.5f : v->lifts[i];
        }
        for (size_t j = 0; j < v->n_simple; j++)
                for (size_t i = 0; i < n; i++) {
                        float x = v->plain[j * n + i], w = v->weights[j], l = v->lifts[i], product = w * l;
                        float sum = kernels->isa == DCI_ISA_SCALAR ? x + product : fmaf(w, l, x);
                        v->lifted[j * n + i] = v->s.lifted ? sum : x;
                }
}

static void admit(scene *v)
{
        for (size_t i = 0; i < v->s.n; i++) {
                const bool yes[] = {true, i % 50 != 3, i % 2 == 1, i % 12 == 5, i == v->s.n / 2, false};
                v->admitted[i] = yes[v->s.filter];
                v->n_admitted += v->admitted[i];
                v->bits[i / 64] |= (uint64_t)v->admitted[i] << i % 64;
        }
}

/* Runs whose rows lie `stride` apart, with numbers between them that would be near if they were read. */
static void lay_runs(scene *v)
{
        const size_t n = v->s.n, run = v->s.run == 0 ? n : v->s.run;
        v->n_runs = n == 0 ? 0 : (n + run - 1) / run;
        v->runs = calloc(v->n_runs + 1, sizeof *v->runs);
        for (size_t r = 0; r < v->n_runs; r++) {
                const size_t first = r * run, here = n - first < run ? n - first : run, stride = run + r % 3 * 5;
                const size_t n_floats = (v->n_simple - 1) * stride + here;
                float *projections = malloc((n_floats + 1) * sizeof *projections);
                for (size_t i = 0; i < n_floats; i++)
                        projections[i] = v->query[i / stride];
                for (size_t j = 0; j < v->n_simple; j++)
                        memcpy(projections + j * stride, v->plain + j * n + first, here * sizeof *projections);
                v->runs[r] = (dci_pdci_run){projections, stride, here};
        }
}

static scene *scene_create(const shape *s, const dci_kernels *kernels, uint64_t seed)
{
        scene *v = calloc(1, sizeof *v);
        dci_rng rng;
        dci_rng_seed(&rng, seed);
        v->s = *s;
        v->n_simple = s->n_comp * s->n_simp;
        v->plain = calloc(v->n_simple * s->n + 1, sizeof *v->plain);
        v->lifted = calloc(v->n_simple * s->n + 1, sizeof *v->lifted);
        v->query = calloc(v->n_simple, sizeof *v->query);
        v->weights = calloc(v->n_simple, sizeof *v->weights);
        v->lifts = calloc(s->n + 1, sizeof *v->lifts);
        v->admitted = calloc(s->n + 1, sizeof *v->admitted);
        v->bits = calloc(s->n / 64 + 1, sizeof *v->bits);
        v->ids = pdci_shuffled(s->n, seed);
        for (size_t i = 0; i < s->n; i++)
                v->ids[i] = s->scattered ? 3 * v->ids[i] + 1 : (int64_t)i;
        fill_scene(v, kernels, &rng);
        admit(v);
        lay_runs(v);
        return v;
}

static void scene_free(scene *v)
{
        for (size_t r = 0; r < v->n_runs; r++)
                free((void *)(uintptr_t)v->runs[r].projections);
        void *parts[] = {v->plain, v->lifted, v->query, v->weights, v->lifts, v->ids, v->admitted, v->bits, v->runs, v};
        for (size_t i = 0; i < COUNT(parts); i++)
                free(parts[i]);
}

static dci_pdci_cell cell_of(const scene *v, const dci_kernels *kernels)
{
        dci_pdci_cell cell = {.kernels = kernels, .n_comp = v->s.n_comp, .n_simp = v->s.n_simp};
        cell.weights = v->s.lifted ? v->weights : NULL;
        cell.lifts = v->s.lifted ? v->lifts : NULL;
        cell.runs = v->runs;
        cell.n_runs = v->n_runs;
        cell.n = v->s.n;
        cell.ids.fn = v->s.scattered ? id_of : NULL;
        cell.ids.ctx = v->ids;
        cell.admitted = v->s.filter == ADMIT_ALL ? NULL : v->bits;
        cell.n_admitted = v->n_admitted;
        return cell;
}

static uint64_t at_least_one(double share, size_t n, int64_t more)
{
        int64_t count = (int64_t)(share * (double)n) + more;
        return count < 1 ? 1 : (uint64_t)count;
}

static dci_pdci_effort effort_of(const budget *b, size_t n, size_t n_simp)
{
        dci_pdci_effort effort = {.visit = at_least_one(b->visit, n * n_simp, b->visit_more)};
        effort.retrieve = (size_t)at_least_one(b->retrieve, n, b->retrieve_more);
        effort.at_least = (size_t)(b->at_least * (double)n + (b->at_least > 0));
        return effort;
}

/* Fails unless bit i is set exactly for the rows that the walk retrieved; returns how many that are. */
static size_t check_bits(const uint64_t *bits, const bool *wanted, size_t n, const shape *s,
                         const dci_pdci_effort *effort)
{
        size_t count = 0;
        for (size_t i = 0; i < (n + 63) / 64 * 64; i++) {
                bool got = (bits[i / 64] >> i % 64 & 1) != 0, want = i < n && wanted[i];
                count += want;
                if (got != want)
                        ck_abort_msg("row %zu of %zu, %zu x %zu simple indices, runs of %zu, values %d, lifted %d, "
                                     "scattered %d, filter %d; visit %llu, retrieve %zu, at least %zu: %s",
                                     i, n, s->n_comp, s->n_simp, s->run, s->values, s->lifted, s->scattered, s->filter,
                                     (unsigned long long)effort->visit, effort->retrieve, effort->at_least,
                                     got ? "not a candidate of the walk" : "missing");
        }
        return count;
}

/* The tables of this machine, scalar first; the level amx has that of avx512. */
static int n_tables(void)
{
        dci_isa isas[6];
        const int n = (int)test_isas(isas);
        return isas[n - 1] == DCI_ISA_AMX ? n - 1 : n;
}

/* Memory ends at unmapped pages: room for cells of up to MOST rows. */
enum { MOST = 9000 };
typedef struct room {
        unsigned char *scratch, *bits;
} room;

static room make_room(void)
{
        return (room){guard(dci_pdci_scratch_bytes(MOST)), guard(MOST / 8 + 8)};
}

/* All budgets on one scene. Returns how many had some candidates, but not all. */
static size_t check_scene(const scene *v, const dci_kernels *kernels, const room *memory)
{
        const dci_pdci_cell cell = cell_of(v, kernels);
        const size_t n = v->s.n, words = (n + 63) / 64;
        void *scratch = last_bytes(memory->scratch, dci_pdci_scratch_bytes(n));
        uint64_t *bits = last_bytes(memory->bits, words * sizeof *bits);
        bool *wanted = calloc(n + 1, sizeof *wanted);
        size_t partial = 0;
        pdci_walk *walk = pdci_walk_create(v->s.n_comp, v->s.n_simp, n, v->lifted, v->ids, v->admitted);
        pdci_walk_ask(walk, v->query);
        for (size_t b = 0; b < COUNT(budgets); b++) {
                dci_pdci_effort effort = effort_of(&budgets[b], v->n_admitted, v->s.n_simp);
                memset(bits, 0, words * sizeof *bits);
                memset(scratch, 0xff, dci_pdci_scratch_bytes(n));
                dci_pdci_candidates(&cell, v->query, &effort, scratch, bits);
                pdci_walk_candidates(walk, &effort, wanted);
                size_t count = check_bits(bits, wanted, n, &v->s, &effort);
                partial += count > 0 && count < v->n_admitted;
        }
        pdci_walk_destroy(walk);
        free(wanted);
        return partial;
}

static const shape shapes[] = {
        /* a few rows, and block borders */
        {0, 2, 3, 0, NORMAL, false, false, ADMIT_ALL},
        {1, 1, 1, 0, NORMAL, false, false, ADMIT_ALL},
        {1, 3, 5, 0, NORMAL, true, true, ADMIT_ALL},
        {2, 2, 2, 1, NORMAL, false, true, ADMIT_ALL},
        {15, 1, 3, 0, NORMAL, false, false, ADMIT_ALL},
        {16, 2, 3, 16, NORMAL, true, false, ADMIT_ALL},
        {17, 2, 1, 16, NORMAL, true, true, ADMIT_ALL},
        {64, 1, 7, 0, NORMAL, false, false, ADMIT_HALF},
        {65, 2, 7, 64, WHOLE, false, true, ADMIT_ALL},
        {300, 1, 1, 0, NORMAL, false, false, ADMIT_ALL},
        {300, 3, 2, 128, NORMAL, true, false, ADMIT_NEARLY_ALL},
        {300, 1, 40, 100, NORMAL, false, false, ADMIT_ALL},
        {20, 1, 2100, 0, NORMAL, false, false, ADMIT_ALL}, /* more simple indices than a sample has values */
        /* runs and lifts in the middle range */
        {1000, 2, 7, 256, NORMAL, false, false, ADMIT_ALL},
        {1000, 2, 7, 256, NORMAL, true, true, ADMIT_ALL},
        {1023, 3, 5, 999, NORMAL, true, false, ADMIT_HALF},
        {1500, 1, 10, 1, NORMAL, false, false, ADMIT_ALL},
        {2049, 2, 4, 512, NORMAL, true, false, ADMIT_FEW},
        /* ties */
        {700, 2, 5, 100, WHOLE, false, false, ADMIT_ALL},
        {700, 2, 5, 100, WHOLE, false, true, ADMIT_ALL},
        {900, 1, 7, 0, WHOLE, true, true, ADMIT_NEARLY_ALL},
        {900, 1, 1, 0, WHOLE, false, true, ADMIT_HALF},
        {400, 2, 6, 64, EQUAL, false, true, ADMIT_ALL},
        {400, 2, 6, 64, EQUAL, true, false, ADMIT_FEW},
        {1000, 2, 7, 300, COPIES, false, true, ADMIT_ALL},
        {1000, 2, 7, 300, COPIES, true, false, ADMIT_HALF},
        {1000, 1, 3, 0, HALF_EQUAL, false, true, ADMIT_ALL},
        {5000, 1, 3, 4096, WHOLE, false, true, ADMIT_ALL},
        {4200, 1, 2, 0, EQUAL, false, true, ADMIT_NEARLY_ALL},
        {5000, 1, 3, 4096, COPIES, false, true, ADMIT_HALF},
        {4500, 2, 2, 1024, HALF_EQUAL, true, true, ADMIT_NEARLY_ALL},
        /* many rows: selection by sampling */
        {4096, 2, 3, 1024, NORMAL, false, false, ADMIT_ALL},
        {4097, 1, 5, 1024, NORMAL, false, true, ADMIT_ALL},
        {5000, 1, 6, 4096, NORMAL, true, false, ADMIT_ALL},
        {6000, 1, 7, 2048, NORMAL, false, false, ADMIT_NEARLY_ALL},
        {3000, 1, 14, 2048, NORMAL, false, false, ADMIT_HALF},
        {5000, 2, 3, 4096, NORMAL, true, true, ADMIT_FEW},
        {5000, 1, 3, 0, NORMAL, false, false, ADMIT_ONE},
        {5000, 1, 3, 0, NORMAL, false, false, ADMIT_NONE},
        /* samples that mislead */
        {2048, 1, 1, 0, MISLEADING, false, false, ADMIT_ALL},
        {4096, 1, 2, 0, MISLEADING, false, false, ADMIT_ALL},
        {8192, 1, 2, 0, MISLEADING, false, true, ADMIT_ALL},
        {8192, 1, 2, 4096, MISLEADING, true, false, ADMIT_NEARLY_ALL},
        {8192, 1, 1, 4096, MISLEADING, false, false, ADMIT_HALF},
};

START_TEST(candidates_are_those_of_the_walk)
{
        const dci_kernels *kernels = test_kernels_of_level(_i);
        const room memory = make_room();
        const uint64_t seeds = getenv("DCI_TEST_LONG") != NULL ? 40 : 1;
        size_t partial = 0;
        for (uint64_t seed = 0; seed < seeds * COUNT(shapes); seed++) {
                scene *v = scene_create(&shapes[seed % COUNT(shapes)], kernels, seed);
                partial += check_scene(v, kernels, &memory);
                scene_free(v);
        }
        ck_assert_uint_gt(partial, COUNT(shapes) * COUNT(budgets) / 2); /* the table reaches into the walk */
}
END_TEST

/* Shapes, values, filters and budgets at random: what no table thinks of. */
START_TEST(random_cells_agree_with_the_walk)
{
        static const size_t runs[] = {0, 0, 1, 16, 48, 333, 1024};
        const dci_kernels *kernels = test_kernels_of_level(_i);
        const room memory = make_room();
        const size_t rounds = getenv("DCI_TEST_LONG") != NULL ? 20000 : 120;
        dci_rng rng;
        dci_rng_seed(&rng, 99);
        for (size_t round = 0; round < rounds; round++) {
                shape s = {.n = 1 + (size_t)dci_rng_below(&rng, round % 50 == 0 ? 6000 : (round % 4 == 0 ? 400 : 40))};
                s.n_comp = 1 + (size_t)dci_rng_below(&rng, 3);
                s.n_simp = 1 + (size_t)dci_rng_below(&rng, s.n > 1000 ? 5 : 9);
                s.run = runs[dci_rng_below(&rng, COUNT(runs))];
                s.values = (int)dci_rng_below(&rng, HALF_EQUAL + 1);
                s.lifted = dci_rng_below(&rng, 2) == 0;
                s.scattered = dci_rng_below(&rng, 2) == 0;
                s.filter = (int)dci_rng_below(&rng, ADMIT_NONE);
                scene *v = scene_create(&s, kernels, round);
                check_scene(v, kernels, &memory);
                scene_free(v);
        }
}
END_TEST

/* --- an index of the trace -------------------------------------------------------------------------------------------------- */

enum { KEYS = 5000, ASKED = 5, PIECE = 700, MAX_K = 50 };

/* Budgets as a caller states them; shares are such that they count whole pairs of the rows that there are. */
static const struct {
        double prop_visit, prop_retrieve;
        size_t num_visit, num_retrieve;
} stated[] = {{0.25, 1, 0, 0},  {1, 0.25, 0, 0}, {0.5, 0.5, 0, 0},      {1, 1, 1, 0},
              {1, 1, 30, 0},    {1, 1, 900, 0},  {1, 1, 0, 1},          {1, 0.25, 0, 40},
              {1, 1, 400, 200}, {0.25, 1, 0, 9}, {1, 0.5, KEYS - 7, 0}, {1, 1, 1, 1}};

static bool admits_all(int64_t id)
{
        return id >= 0;
}

static bool admits_some(int64_t id)
{
        return id % 5 < 2;
}

static int32_t ask(void *ctx, int64_t id)
{
        bool (*admits)(int64_t) = *(bool (**)(int64_t))ctx;
        return admits(id);
}

/* Adds the trace's keys in pieces under shuffled ids, and removes some, so that n is a multiple of 20. */
static dci_index *index_of_trace(dci_context *context, const dci_index_config *config, const float *keys,
                                 const int64_t *ids)
{
        dci_index *index = pdci_index(context, config, 0, NULL, NULL);
        int64_t gone[KEYS / 10];
        for (size_t i = 0; i < KEYS; i += PIECE) {
                size_t n = KEYS - i < PIECE ? KEYS - i : PIECE;
                ck_ok(dci_index_add(index, n, keys + i * TRACE_DIM, TRACE_DIM, ids + i, NULL));
        }
        for (size_t i = 0; i < KEYS / 10; i++) /* the last ids: those that stay are 0 to 9 n / 10 - 1 */
                gone[i] = KEYS - KEYS / 10 + (int64_t)i;
        ck_ok(dci_index_remove(index, KEYS / 10, gone));
        return index;
}

/* The walk over what an index holds, with the lifts of its present c. */
static pdci_walk *walk_of(dci_index *index, bool (*admits)(int64_t), int64_t *ids)
{
        const dci_directions *directions = &index->directions;
        const size_t n = dci_index_count(index);
        const float c_squared = atomic_load(&index->c_squared);
        const bool fused = index->context->kernels->isa != DCI_ISA_SCALAR;
        float *projections = calloc(directions->n * n, sizeof *projections);
        bool *admitted = calloc(n, sizeof *admitted);
        for (size_t i = 0; i < n; i++) {
                size_t offset;
                const dci_chunk *chunk = dci_rows_chunk(&index->rows, i, &offset);
                ids[i] = chunk->ids[offset];
                admitted[i] = admits(ids[i]);
                for (size_t j = 0; j < directions->n; j++) {
                        float x = chunk->projections[j * chunk->capacity + offset];
                        if (directions->weights != NULL) {
                                float rest = c_squared - chunk->norms[offset], lift = rest > 0 ? sqrtf(rest) : 0;
                                float product = directions->weights[j] * lift;
                                x = fused ? fmaf(directions->weights[j], lift, x) : x + product;
                        }
                        projections[j * n + i] = x;
                }
        }
        pdci_walk *walk = pdci_walk_create(index->config.num_comp_indices, index->config.num_simp_indices, n,
                                           projections, ids, admitted);
        test_free(projections, admitted);
        return walk;
}

static void put_cursors(pdci_walk *walk, const dci_index *index, const float *query)
{
        dci_queries queries;
        float projections[64];
        ck_assert_uint_le(index->directions.n, COUNT(projections));
        ck_ok(dci_queries_prepare(index, 1, query, TRACE_DIM, &queries));
        dci_project_query(index, &queries, 0, atomic_load(&index->c_squared), projections);
        pdci_walk_ask(walk, projections);
        dci_queries_free(index, &queries);
}

/* What the contract makes of stated budgets. */
static dci_pdci_effort meant_by(size_t c, size_t n, size_t n_simp, size_t at_least)
{
        dci_pdci_effort effort = {.at_least = at_least};
        effort.visit =
                n_simp * (stated[c].num_visit != 0 ? stated[c].num_visit : (size_t)(stated[c].prop_visit * (double)n));
        effort.retrieve =
                stated[c].num_retrieve != 0 ? stated[c].num_retrieve : (size_t)(stated[c].prop_retrieve * (double)n);
        return effort;
}

/* One query and one budget: range search returns the walk's candidates, search the best of them by FLAT's ranking. */
static void check_answers(const dci_index *index, const pdci_walk *walk, const float *query, const int64_t *slot_ids,
                          const pdci_found *ranking, dci_search_params *params, size_t c, size_t n_admitted)
{
        const size_t n = dci_index_count(index), k = c % 2 == 0 ? 3 : MAX_K;
        bool *by_slot = calloc(n, sizeof *by_slot), *by_id = calloc(KEYS, sizeof *by_id);
        int64_t *got = calloc(n, sizeof *got);
        ck_assert(by_slot != NULL && by_id != NULL && got != NULL);
        params->prop_to_visit = stated[c].prop_visit;
        params->prop_to_retrieve = stated[c].prop_retrieve;
        params->num_to_visit = stated[c].num_visit;
        params->num_to_retrieve = stated[c].num_retrieve;
        for (int ranged = 0; ranged < 2; ranged++) {
                dci_pdci_effort effort = meant_by(c, n_admitted, index->config.num_simp_indices, ranged ? 0 : k);
                size_t wanted = 0, n_got = 0;
                pdci_walk_candidates(walk, &effort, by_slot);
                for (size_t i = 0; i < n; i++) {
                        by_id[slot_ids[i]] = by_slot[i];
                        wanted += by_slot[i];
                }
                if (ranged) {
                        n_got = pdci_candidates(index, query, params, n, got);
                        for (size_t i = 0; i < n_got; i++)
                                ck_assert_msg(by_id[got[i]], "budget %zu: id %lld", c, (long long)got[i]);
                        ck_assert_uint_eq(n_got, wanted);
                        continue;
                }
                pdci_found found = pdci_search(index, 1, query, k, params);
                for (size_t r = 0; r < n && n_got < k; r++) {
                        if (!by_id[ranking->ids[r]])
                                continue;
                        ck_assert_msg(found.ids[n_got] == ranking->ids[r] && found.scores[n_got] == ranking->scores[r],
                                      "budget %zu, result %zu: id %lld, wanted %lld", c, n_got,
                                      (long long)found.ids[n_got], (long long)ranking->ids[r]);
                        n_got++;
                }
                ck_assert_uint_eq(n_got, k);
                pdci_found_free(&found);
        }
        test_free(by_slot, by_id, got);
}

/* Loops over metrics and formats. */
START_TEST(an_index_of_the_trace_answers_with_what_the_walk_retrieves)
{
        static bool (*const rules[])(int64_t) = {admits_all, admits_some};
        dci_context *context = test_context(1);
        dci_index_config config = pdci_config(TRACE_DIM, all_metrics[_i % 3], all_dtypes[(_i + 1) % 3]);
        config.num_comp_indices = 1 + (size_t)_i;
        config.num_simp_indices = 7 - 2 * (size_t)_i;
        config.seed = 5;
        float *keys = pdci_trace("keys", KEYS), *queries = pdci_trace("queries", ASKED);
        int64_t *ids = pdci_shuffled(KEYS, 3), slot_ids[KEYS] = {0};
        dci_index *index = index_of_trace(context, &config, keys, ids);
        config.kind = DCI_KIND_FLAT;
        dci_index *flat = index_of_trace(context, &config, keys, ids);
        for (size_t q = 0; q < ASKED; q++) {
                const float *query = queries + q * TRACE_DIM;
                pdci_found ranking = pdci_search(flat, 1, query, dci_index_count(flat), NULL);
                for (size_t rule = 0; rule < COUNT(rules); rule++) {
                        dci_search_params params = pdci_effort(0, 0);
                        dci_filter filter;
                        bool (*admits)(int64_t) = rules[rule];
                        ck_ok(dci_filter_init(&filter, sizeof filter));
                        filter.kind = DCI_FILTER_CALLBACK;
                        filter.fn = ask;
                        filter.ctx = &admits;
                        params.filter = rule == 0 ? NULL : &filter;
                        pdci_walk *walk = walk_of(index, admits, slot_ids);
                        put_cursors(walk, index, query);
                        const size_t n = dci_index_count(index), n_admitted = rule == 0 ? n : n / 5 * 2;
                        for (size_t c = 0; c < COUNT(stated); c++)
                                check_answers(index, walk, query, slot_ids, &ranking, &params, c, n_admitted);
                        pdci_walk_destroy(walk);
                }
                pdci_found_free(&ranking);
        }
        test_free(ids, keys, queries);
        dci_index_destroy(index);
        dci_index_destroy(flat);
        dci_context_destroy(context);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("pdci");
        TCase *walks = test_case(suite, "walks", 300);
        tcase_add_loop_test(walks, an_index_of_the_trace_answers_with_what_the_walk_retrieves, 0, 3);
        tcase_add_loop_test(walks, candidates_are_those_of_the_walk, 0, n_tables());
        tcase_add_loop_test(walks, random_cells_agree_with_the_walk, 0, n_tables());
        return test_main(suite);
}
