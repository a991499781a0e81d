/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Kind AUTO: calls concurrent with a change of the kind see the index before it or after it, with whole batches. Run under tsan, too. */
#include "tests/common.h"

#include <math.h>
#include <sched.h>
#include <string.h>

#include "tests/mdci_fixture.h"

/* By the rule, its numbers divided by DIVISOR: codes from 30 rows on, a tree from 298. */
enum { BATCH = 25, BATCHES = 24, SIDE = 30, DIVISOR = 285, READERS = 3, ROUNDS = 4 };

typedef struct shared {
        dci_index *index;
        atomic_bool done;
        atomic_size_t looks;
        atomic_llong added, removed; /* batches whose add has returned, and whose removal had begun */
} shared;

static const char *check_batches(const int64_t *ids, size_t n, long long added, long long removed)
{
        size_t seen[BATCHES * ROUNDS] = {0};
        for (size_t i = 0; i < n && ids[i] >= 0; i++)
                seen[ids[i] / BATCH]++;
        for (long long b = 0; b < BATCHES * ROUNDS; b++) {
                if (seen[b] != 0 && seen[b] != BATCH)
                        return "a search saw a part of a batch";
                if (b < added && b >= removed && seen[b] == 0)
                        return "a search missed a batch whose add had returned";
        }
        return NULL;
}

/* Each way to read rows, in turn: with and without the ranking by codes, in groups, filtered, within a radius. */
static const char *search(shared *s, size_t turn, int64_t *ids)
{
        const float queries[2 * SIDE] = {0};
        const size_t k = (size_t)BATCH * BATCHES * ROUNDS;
        dci_search_params params = pdci_verifying(turn % 2 == 0 ? (double)INFINITY : 1.0, 0.0);
        const uint64_t bits[BATCH * BATCHES * ROUNDS / 64 + 1] = {0};
        dci_filter none;
        const long long added = atomic_load(&s->added);
        size_t n = k;
        dci_status status;
        if (turn % 5 == 4) {
                dci_range_result result;
                dci_range_result_init(&result, sizeof result);
                status = dci_index_range_search(s->index, 1, queries, SIDE, INFINITY, NULL, &result);
                n = status == DCI_OK ? result.offsets[1] : 0;
                memcpy(ids, result.ids, n * sizeof *ids);
                dci_range_result_free(&result);
        } else if (turn % 5 == 3) {
                dci_filter_init(&none, sizeof none);
                none.kind = DCI_FILTER_BITMAP;
                none.bits = bits;
                none.n = k;
                params.filter = &none;
                status = dci_index_search(s->index, 2, queries, SIDE, k, &params, ids, NULL);
                return status == DCI_OK && ids[0] == -1 ? NULL : "a search found what its filter refuses";
        } else if (turn % 5 == 2) {
                status = dci_index_search_group(s->index, 1, 2, queries, SIDE, k, DCI_GROUP_UNION, &params, ids, NULL);
        } else {
                status = dci_index_search(s->index, 1 + turn % 2, queries, SIDE, k, &params, ids, NULL);
        }
        const long long removed = atomic_load(&s->removed);
        return status != DCI_OK ? "a search failed" : check_batches(ids, n, added, removed);
}

static const char *ask(shared *s)
{
        dci_index_config config;
        dci_tree_stats stats;
        dci_memory_report report;
        dci_index_config_init(&config, sizeof config);
        dci_tree_stats_init(&stats, sizeof stats);
        dci_memory_report_init(&report, sizeof report);
        if (dci_index_get_config(s->index, &config) != DCI_OK || dci_index_memory(s->index, &report) != DCI_OK)
                return "a question failed";
        if (config.kind != DCI_KIND_FLAT && (config.kind != DCI_KIND_MDCI || config.sketch_bits == 0))
                return "the config says what the index never is";
        if (dci_index_count(s->index) > (size_t)BATCH * BATCHES)
                return "more rows than there ever were";
        const dci_status status = dci_index_tree_stats(s->index, &stats);
        return status == DCI_OK || status == DCI_ERR_UNSUPPORTED ? NULL : "the shape cannot be asked for";
}

static void *reader(void *arg)
{
        shared *s = arg;
        const char *complaint = NULL;
        int64_t *ids = malloc(2 * sizeof *ids * BATCH * BATCHES * ROUNDS);
        for (size_t turn = 0; complaint == NULL && !atomic_load(&s->done); turn++) {
                complaint = ids == NULL ? "no memory" : search(s, turn, ids);
                if (complaint == NULL)
                        complaint = ask(s);
                atomic_fetch_add(&s->looks, 1);
        }
        if (complaint != NULL) /* the test waits for looks that will not come */
                atomic_fetch_add(&s->looks, 1000);
        free(ids);
        return (void *)(uintptr_t)complaint;
}

/* Row j of batch b is at distance j^2, in its own direction. */
static void add_batch(shared *s, long long b)
{
        float rows[BATCH * SIDE] = {0};
        int64_t ids[BATCH];
        for (size_t j = 0; j < BATCH; j++) {
                ids[j] = b * BATCH + (long long)j;
                rows[j * SIDE + (size_t)b % SIDE] = (float)j;
        }
        ck_ok(dci_index_add(s->index, BATCH, rows, SIDE, ids, NULL));
        atomic_store(&s->added, b + 1);
}

static void remove_batches(shared *s, long long first, long long end)
{
        int64_t ids[BATCH * BATCHES];
        size_t n = 0;
        atomic_store(&s->removed, end);
        for (int64_t id = first * BATCH; id < end * BATCH; id++)
                ids[n++] = id;
        ck_ok(dci_index_remove(s->index, n, ids));
}

START_TEST(searches_beside_a_change_of_kind_see_whole_batches)
{
        dci_context *context = test_context(2);
        dci_index_config config = index_config(SIDE, DCI_METRIC_L2, DCI_F32);
        shared s = {0};
        pthread_t threads[READERS];
        config.kind = DCI_KIND_AUTO;
        config.promotion_prob = 0.1;
        ck_ok(dci_index_create(context, &config, &s.index));
        s.index->automatic.divisor = DIVISOR;
        for (size_t i = 0; i < READERS; i++)
                ck_assert_int_eq(pthread_create(&threads[i], NULL, reader, &s), 0);
        for (long long round = 0; round < ROUNDS; round++) {
                const long long first = round * BATCHES;
                for (long long b = first; b < first + BATCHES; b++) {
                        add_batch(&s, b);
                        const size_t looks = atomic_load(&s.looks);
                        while (atomic_load(&s.looks) == looks) /* so that each form is seen */
                                sched_yield();
                }
                ck_assert_int_eq(s.index->config.kind, DCI_KIND_MDCI);
                remove_batches(&s, first, first + BATCHES / 2);
                remove_batches(&s, first + BATCHES / 2, first + BATCHES);
        }
        atomic_store(&s.done, true);
        for (size_t i = 0; i < READERS; i++)
                test_join(threads[i]);
        ck_assert_uint_eq(s.index->automatic.n_changes, 3 * ROUNDS); /* to codes, to a tree, and back */
        dci_index_destroy(s.index);
        dci_context_destroy(context);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("auto threads");
        TCase *threads = test_case(suite, "threads", 60);
        tcase_add_test(threads, searches_beside_a_change_of_kind_see_whole_batches);
        return test_main(suite);
}
