/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Group search: queries of a group share candidates, and perhaps one list of results. */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "index/access.h"
#include "index/codes/search.h"
#include "index/group_union.h"
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
static void interleave(id_set *set, size_t group_size, size_t k_each, const int64_t *ids, const float *scores, size_t k,
                       int64_t *out_ids, float *out_scores)
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
        for (; n < k; n++) {
                out_ids[n] = -1;
                if (out_scores != NULL)
                        out_scores[n] = NAN;
        }
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
                       int64_t *out_ids, float *out_scores, dci_search_stats *stats)
{
        joining j = {.n_groups = n_groups, .group_size = group_size, .k = k, .k_each = k};
        if (k > reading->flat.n) /* then everything is found, however large k is */
                j.k_each = reading->flat.n > 0 ? reading->flat.n : 1;
        dci_status status = joining_allocate(index->context, &j) ? DCI_OK : DCI_ERR_MEMORY;
        if (status == DCI_OK)
                status = dci_search_kind(index, reading, group_size, j.k_each, j.ids, j.scores, stats);
        for (size_t g = 0; status == DCI_OK && g < n_groups; g++) {
                const size_t at = g * group_size * j.k_each;
                interleave(&j.set, group_size, j.k_each, j.ids + at, j.scores + at, k, out_ids + g * k,
                           out_scores == NULL ? NULL : out_scores + g * k);
        }
        joining_free(index->context, &j);
        return status;
}

/* Where a tree chooses rows and no codes rank them, the union is taken from the scores themselves. */
static dci_status search_union(const dci_index *index, dci_reading *reading, size_t n_groups, size_t group_size,
                               size_t k, int64_t *out_ids, float *out_scores, dci_search_stats *stats)
{
        dci_kind_search search;
        size_t keep;
        if (!index->kind->unites || dci_sketched_wanted(index, &reading->params, reading->flat.n, k, &keep) ||
            !dci_search_selects(index, reading, k, &search))
                return join(index, reading, n_groups, group_size, k, out_ids, out_scores, stats);
        DCI_TRY(index->kind->begin(&search, index, &reading->flat, group_size));
        const dci_status status = dci_group_unite(&search.candidates, k, out_ids, out_scores, stats);
        index->kind->end(&search);
        return status;
}

dci_status dci_index_search_group(const dci_index *index, size_t n_groups, size_t group_size, const void *queries,
                                  size_t ld, size_t k, int32_t result, const dci_search_params *params,
                                  int64_t *out_ids, float *out_scores)
{
        size_t n_queries = 0;
        dci_status status = dci_index_lock(index);
        if (status == DCI_OK)
                status = check_group(n_groups, group_size, result, &n_queries);
        if (status == DCI_OK)
                status = dci_search_check(n_queries, k, out_ids);
        if (status != DCI_OK || n_queries == 0)
                return status;
        dci_reading reading;
        DCI_TRY(dci_reading_begin(index, n_queries, queries, ld, params, &reading));
        dci_search_stats stats = {0};
        if (result == DCI_GROUP_EACH)
                status = dci_search_kind(index, &reading, group_size, k, out_ids, out_scores, &stats);
        else
                status = search_union(index, &reading, n_groups, group_size, k, out_ids, out_scores, &stats);
        dci_reading_end(index, &reading);
        if (status == DCI_OK)
                dci_stats_set(&reading.params, &stats);
        return status;
}
