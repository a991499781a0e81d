/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Group search: queries of a group share candidates, and perhaps one list of results. */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "core/arena.h"
#include "index/access.h"
#include "index/candidates.h"
#include "index/search.h"

static dci_status check_group(size_t n_groups, size_t group_size, int32_t result, size_t *out_queries)
{
        if (group_size == 0 || group_size > DCI_MAX_GROUP)
                return dci_fail(DCI_ERR_INVALID, "group_size is %zu, allowed are 1 to %zu", group_size, DCI_MAX_GROUP);
        if (result != DCI_GROUP_EACH && result != DCI_GROUP_UNION)
                return dci_fail(DCI_ERR_INVALID, "unknown group result %d", (int)result);
        if (!dci_mul(n_groups, group_size, out_queries))
                return dci_fail(DCI_ERR_LIMIT, "%zu groups of %zu queries exceed the address space", n_groups,
                                group_size);
        return DCI_OK;
}

/* The ids of one union so far: open addressing, twice as many places as ids. */
typedef struct id_set {
        size_t mask;
        int64_t *ids;
} id_set;

static bool enter(id_set *set, int64_t id)
{
        size_t at = (size_t)((uint64_t)id * UINT64_C(0x9e3779b97f4a7c15) >> 20) & set->mask;
        for (; set->ids[at] != -1; at = (at + 1) & set->mask)
                if (set->ids[at] == id)
                        return false;
        set->ids[at] = id;
        return true;
}

/* The lists of one group, k_each long, interleaved by rank until there are k ids; the rest is padded. */
static void interleave_lists(id_set *set, size_t group_size, size_t k_each, const int64_t *ids, const float *scores,
                             size_t k, int64_t *out_ids, float *out_scores)
{
        size_t n = 0;
        memset(set->ids, -1, (set->mask + 1) * sizeof *set->ids);
        for (size_t rank = 0; rank < k_each; rank++) {
                for (size_t q = 0; q < group_size && n < k; q++) {
                        const size_t at = q * k_each + rank;
                        if (ids[at] < 0 || !enter(set, ids[at]))
                                continue;
                        out_ids[n] = ids[at];
                        if (out_scores != NULL)
                                out_scores[n] = scores[at];
                        n++;
                }
        }
        dci_flat_pad(n, k, out_ids, out_scores);
}

typedef struct joining {
        size_t n_groups, group_size, k, k_each;
        int64_t *ids; /* of each query, k_each */
        float *scores;
        id_set set;
} joining;

static void joining_free(dci_context *context, joining *j)
{
        const size_t n = j->n_groups * j->group_size * j->k_each;
        dci_free(context, j->ids, n, sizeof *j->ids);
        dci_free(context, j->scores, n, sizeof *j->scores);
        dci_free(context, j->set.ids, j->set.mask + 1, sizeof *j->set.ids);
}

static bool joining_allocate(dci_context *context, joining *j)
{
        const size_t n = j->n_groups * j->group_size * j->k_each;
        size_t size = 16;
        while (size < 2 * j->k)
                size *= 2;
        j->set.mask = size - 1;
        j->ids = dci_alloc(context, n, sizeof *j->ids);
        j->scores = dci_alloc(context, n, sizeof *j->scores);
        j->set.ids = dci_alloc(context, size, sizeof *j->set.ids);
        return j->ids != NULL && j->scores != NULL && j->set.ids != NULL;
}

/* The lists of k of each query, joined. Shorter ones would do unless the queries agree a lot, but what a search scores, verifies
 * and retrieves goes with its k. */
static dci_status join(const dci_index *index, dci_reading *reading, size_t n_groups, size_t group_size, size_t k,
                       int64_t *out_ids, float *out_scores)
{
        joining j = {.n_groups = n_groups, .group_size = group_size, .k = k, .k_each = k};
        if (k > reading->flat.n) /* then everything is found, however large k is */
                j.k_each = reading->flat.n > 0 ? reading->flat.n : 1;
        dci_status status = joining_allocate(index->context, &j) ? DCI_OK : DCI_ERR_MEMORY;
        if (status == DCI_OK)
                status = dci_search_kind(index, reading, group_size, j.k_each, j.ids, j.scores);
        for (size_t g = 0; status == DCI_OK && g < n_groups; g++) {
                const size_t at = g * group_size * j.k_each;
                interleave_lists(&j.set, group_size, j.k_each, j.ids + at, j.scores + at, k, out_ids + g * k,
                                 out_scores == NULL ? NULL : out_scores + g * k);
        }
        joining_free(index->context, &j);
        return status;
}

/* --- the union from scores ------------------------------------------------------------------------------------------------- */

/* Where a kind selects rows: for each group of the candidates the first k distinct rows of its queries' lists, interleaved by
 * rank. Rows are selected and scored once, then as many ranks of each query as the union takes are sorted, no more. */

/* Scratch of one worker, for as many rows as the groups that it had so far have chosen at most. */
typedef struct room {
        unsigned char *bytes;
        size_t n_bytes;
} room;

typedef struct uniting {
        dci_candidates *candidates;
        size_t k;
        int64_t *out_ids;
        float *out_scores;
        room *rooms; /* by worker */
        atomic_bool out_of_memory;
} uniting;

/* Its parts. Rows are numbered by their position among the candidates. */
typedef struct part {
        float *good; /* by query and row: the score, negated where smaller is better */
        size_t ld;
        float *kept;
        int32_t *order;
        uint64_t *keys, *sorting; /* by query and rank; room to sort one query's */
        uint8_t *taken;           /* by row */
} part;

static size_t lay_out(size_t group, size_t n_chosen, void *memory, part *out)
{
        const size_t n = out->ld = n_chosen + DCI_TOPK_BLOCK;
        const dci_arena_part parts[] = {
                {group * n * sizeof(float), &out->good}, {n * sizeof(float), &out->kept},
                {n * sizeof(int32_t), &out->order},      {group * n * sizeof(uint64_t), &out->keys},
                {n * sizeof(uint64_t), &out->sorting},   {n, &out->taken}};
        return DCI_ARENA(parts, memory);
}

/* Room for n_chosen rows; what was there is not kept. */
static bool make_room(const uniting *u, room *here, size_t n_chosen, part *out)
{
        const size_t group = u->candidates->group, n_bytes = lay_out(group, n_chosen, NULL, out);
        dci_context *context = u->candidates->flat->context;
        if (n_bytes > here->n_bytes) {
                dci_free(context, here->bytes, here->n_bytes, 1);
                here->bytes = dci_alloc(context, n_bytes, 1);
                here->n_bytes = here->bytes == NULL ? 0 : n_bytes;
        }
        if (here->bytes != NULL)
                lay_out(group, n_chosen, here->bytes, out);
        return here->bytes != NULL;
}

static void score(const dci_flat *flat, size_t query, size_t group, const part *p)
{
        const bool descending = dci_metric_descending(flat->metric);
        float scores[DCI_MANY_QUERIES * DCI_TOPK_BLOCK];
        for (size_t first = 0; first < flat->n; first += DCI_TOPK_BLOCK) {
                const size_t count = flat->n - first < DCI_TOPK_BLOCK ? flat->n - first : DCI_TOPK_BLOCK;
                dci_flat_score(flat, query, group, first, flat->selection->slots + first, count, scores);
                for (size_t q = 0; q < group; q++)
                        for (size_t i = 0; i < count; i++)
                                p->good[q * p->ld + first + i] =
                                        descending ? scores[q * DCI_TOPK_BLOCK + i] : -scores[q * DCI_TOPK_BLOCK + i];
        }
}

/* The first `ranks` rows of a query, and perhaps some more, in order. Returns how many. */
static size_t sort_query(const dci_flat *flat, const part *p, size_t q, size_t ranks)
{
        const dci_positions positions = {&flat->view, flat->selection->slots};
        const float *good = p->good + q * p->ld;
        uint64_t *keys = p->keys + q * p->ld;
        const float limit = ranks < flat->n ? flat->kernels->reached_by(good, flat->n, ranks, p->order) : -INFINITY;
        const size_t n = flat->kernels->keep_at_least(good, flat->n, limit, p->kept, p->order);
        for (size_t i = 0; i < n; i++)
                keys[i] = dci_topk_key(p->kept[i], p->order[i], true);
        dci_topk_sort(keys, n, p->sorting, (dci_slot_ids){dci_position_id, &positions});
        return n;
}

/* Rank by rank, query by query, what was not there before. SIZE_MAX: a list ended too early. */
static size_t interleave_keys(const uniting *u, const dci_flat *flat, const part *p, const size_t *n_keys, int64_t *ids,
                              float *scores)
{
        const bool descending = dci_metric_descending(flat->metric);
        const size_t group = u->candidates->group;
        size_t n = 0;
        memset(p->taken, 0, flat->n);
        for (size_t rank = 0; n < u->k && rank < flat->n; rank++) {
                for (size_t q = 0; q < group && n < u->k; q++) {
                        if (rank >= n_keys[q])
                                return SIZE_MAX;
                        const uint64_t key = p->keys[q * p->ld + rank];
                        const int32_t position = dci_topk_slot(key);
                        if (p->taken[position] != 0)
                                continue;
                        p->taken[position] = 1;
                        ids[n] = dci_view_id(&flat->view, flat->selection->slots[position]);
                        if (scores != NULL)
                                scores[n] = descending ? dci_topk_score(key, true) : -dci_topk_score(key, true);
                        n++;
                }
        }
        return n;
}

/* How many ranks of each query a union of k rows out of n takes: as if half of the queries had nothing in common and the others
 * added nothing. A guess that is too low is corrected, one too high costs some sorting. */
static size_t guess_ranks(size_t k, size_t n, size_t group)
{
        const double share = k < n ? 1.0 - pow(1.0 - (double)k / (double)n, 2.0 / (double)group) : 1.0;
        return (size_t)(share * (double)n) + 8;
}

static size_t unite(const uniting *u, const dci_flat *flat, const part *p, int64_t *ids, float *scores)
{
        size_t ranks = guess_ranks(u->k, flat->n, u->candidates->group), n = SIZE_MAX;
        for (; n == SIZE_MAX; ranks += ranks / 4) {
                size_t n_keys[DCI_MANY_QUERIES] = {0};
                for (size_t q = 0; q < u->candidates->group; q++)
                        n_keys[q] = sort_query(flat, p, q, ranks);
                n = interleave_keys(u, flat, p, n_keys, ids, scores);
        }
        return n;
}

static void unite_task(void *arg, size_t task, size_t worker)
{
        uniting *u = arg;
        const size_t group = u->candidates->group, query = task * group;
        dci_selection selected;
        part p;
        dci_candidates_select(u->candidates, query, worker, &selected);
        if (!make_room(u, &u->rooms[worker], selected.n, &p)) {
                atomic_store(&u->out_of_memory, true);
                return;
        }
        dci_flat flat = *u->candidates->flat;
        flat.selection = &selected;
        flat.n = selected.n;
        score(&flat, query, group, &p);
        int64_t *ids = u->out_ids + task * u->k;
        float *scores = u->out_scores == NULL ? NULL : u->out_scores + task * u->k;
        dci_flat_pad(unite(u, &flat, &p, ids, scores), u->k, ids, scores);
}

static dci_status unite_candidates(dci_candidates *candidates, size_t k, int64_t *out_ids, float *out_scores,
                                   dci_search_stats *stats)
{
        const dci_flat *flat = candidates->flat;
        uniting u = {.candidates = candidates, .k = k, .out_ids = out_ids, .out_scores = out_scores};
        atomic_init(&u.out_of_memory, false);
        candidates->k_held = 0;
        DCI_TRY(dci_candidates_begin(candidates));
        u.rooms = dci_calloc(flat->context, candidates->n_workers, sizeof *u.rooms);
        dci_status status = u.rooms == NULL ? DCI_ERR_MEMORY : DCI_OK;
        if (status == DCI_OK) {
                const size_t n_groups = flat->queries->n / candidates->group;
                status = dci_flat_run(flat, n_groups, candidates->n_workers, unite_task, &u);
                if (status == DCI_OK && atomic_load(&u.out_of_memory))
                        status = dci_fail(DCI_ERR_MEMORY, "no memory for the scores of a group's rows, of %zu groups",
                                          n_groups);
        }
        for (size_t w = 0; u.rooms != NULL && w < candidates->n_workers; w++)
                dci_free(flat->context, u.rooms[w].bytes, u.rooms[w].n_bytes, 1);
        dci_free(flat->context, u.rooms, candidates->n_workers, sizeof *u.rooms);
        dci_candidates_report(candidates, stats);
        dci_candidates_end(candidates);
        return status;
}

/* --- the call ------------------------------------------------------------------------------------------------------------- */

/* Where a tree chooses rows and no codes rank them, the union is taken from the scores themselves. */
static dci_status search_union(const dci_index *index, dci_reading *reading, size_t n_groups, size_t group_size,
                               size_t k, int64_t *out_ids, float *out_scores)
{
        dci_kind_search search;
        size_t keep;
        if (!index->kind->unites || dci_sketched_wanted(index, &reading->params, reading->flat.n, k, &keep) ||
            !dci_search_selects(index, reading, k, &search))
                return join(index, reading, n_groups, group_size, k, out_ids, out_scores);
        DCI_TRY(index->kind->begin(&search, index, &reading->flat, group_size));
        const dci_status status = unite_candidates(&search.candidates, k, out_ids, out_scores, &reading->stats);
        index->kind->end(&search);
        return status;
}

dci_status dci_index_search_group(const dci_index *index, size_t n_groups, size_t group_size, const void *queries,
                                  size_t ld, size_t k, int32_t result, const dci_search_params *params,
                                  int64_t *out_ids, float *out_scores)
{
        size_t n_queries = 0;
        DCI_TRY(dci_index_check_call(index));
        DCI_TRY(check_group(n_groups, group_size, result, &n_queries));
        DCI_TRY(dci_search_check(n_queries, k, out_ids));
        if (n_queries == 0)
                return DCI_OK;
        dci_reading reading;
        DCI_TRY(dci_reading_begin(index, n_queries, queries, ld, k, params, &reading));
        const dci_status status = result == DCI_GROUP_EACH
                                          ? dci_search_kind(index, &reading, group_size, k, out_ids, out_scores)
                                          : search_union(index, &reading, n_groups, group_size, k, out_ids, out_scores);
        return dci_reading_end(index, &reading, status);
}
