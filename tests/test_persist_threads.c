/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Saves, and checks, concurrent with searches and a writer: each sees one state of the index. Run under tsan, too. */
#include "tests/common.h"

#include <pthread.h>
#include <string.h>

#include "tests/persist_fixture.h"

enum { SIDE = 8, BATCH = 10, ROUNDS = 150, SAVES = 40 };

typedef struct shared {
        dci_index *index;
        atomic_bool done;
} shared;

static void fill(int64_t id, float *row)
{
        for (int64_t p = 0; p < SIDE; p++)
                row[p] = (float)(id * SIDE + p);
}

static void *searcher(void *arg)
{
        shared *s = arg;
        const float query[SIDE] = {1, 2, 3};
        int64_t ids[5];
        const char *complaint = NULL;
        while (complaint == NULL && !atomic_load(&s->done))
                if (dci_index_search(s->index, 1, query, SIDE, 5, NULL, ids, NULL) != DCI_OK)
                        complaint = "a search failed";
        return (void *)(uintptr_t)complaint;
}

/* Adds a batch, and from time to time removes the oldest that is left. */
static void *writer(void *arg)
{
        shared *s = arg;
        for (int64_t b = 0; b < ROUNDS; b++) {
                float rows[BATCH * SIDE];
                int64_t ids[BATCH];
                for (int64_t j = 0; j < BATCH; j++)
                        fill(b * BATCH + j, rows + j * SIDE);
                if (dci_index_add(s->index, BATCH, rows, SIDE, NULL, NULL) != DCI_OK)
                        return (void *)(uintptr_t) "an add failed";
                for (int64_t j = 0; j < BATCH; j++)
                        ids[j] = b / 3 * BATCH + j;
                if (b % 3 == 2 && dci_index_remove(s->index, BATCH, ids) != DCI_OK)
                        return (void *)(uintptr_t) "a remove failed";
        }
        return NULL;
}

/* Whole batches of the right rows. */
static void check_state(const dci_index *index)
{
        int64_t ids[ROUNDS * BATCH];
        size_t n;
        ck_ok(dci_index_ids(index, ROUNDS * BATCH, ids, &n));
        ck_assert_uint_eq(n % BATCH, 0);
        for (size_t i = 0; i < n; i++) {
                float row[SIDE], wanted[SIDE];
                ck_assert_int_eq(ids[i] % BATCH, (int64_t)i % BATCH);
                fill(ids[i], wanted);
                ck_ok(dci_index_reconstruct(index, 1, &ids[i], row, SIDE));
                ck_assert_int_eq(memcmp(row, wanted, sizeof row), 0);
        }
}

/* Loops over kinds. */
START_TEST(saves_beside_searches_and_a_writer_hold_one_state)
{
        dci_context *context = test_context(2);
        dci_index_config config = index_config(SIDE, DCI_METRIC_IP, DCI_F32);
        shared s = {.index = NULL};
        pthread_t threads[2];
        unsigned char *room = malloc((size_t)1 << 20);
        ck_assert_ptr_nonnull(room);
        config.kind = DCI_KIND_FLAT + _i;
        ck_ok(dci_index_create(context, &config, &s.index));
        ck_assert_int_eq(pthread_create(&threads[0], NULL, searcher, &s), 0);
        ck_assert_int_eq(pthread_create(&threads[1], NULL, writer, &s), 0);
        for (int i = 0; i < SAVES; i++) {
                dci_index *loaded = NULL;
                size_t n_bytes;
                ck_ok(dci_index_save_memory(s.index, (size_t)1 << 20, room, &n_bytes));
                ck_ok(dci_index_load_memory(context, room, n_bytes, &loaded));
                check_state(loaded);
                dci_index_destroy(loaded);
        }
        void *complaints[2] = {NULL, NULL};
        pthread_join(threads[1], &complaints[1]);
        atomic_store(&s.done, true);
        pthread_join(threads[0], &complaints[0]);
        for (int i = 0; i < 2; i++)
                ck_assert_msg(complaints[i] == NULL, "%s", (const char *)complaints[i]);
        check_state(s.index);
        free(room);
        dci_index_destroy(s.index);
        dci_context_destroy(context);
}
END_TEST

/* Loops over kinds, each with codes. */
START_TEST(checks_beside_searches_and_a_writer_pass)
{
        dci_context *context = test_context(2);
        dci_index_config config = index_config(SIDE, DCI_METRIC_IP, DCI_F32);
        shared s = {.index = NULL};
        pthread_t threads[2];
        config.kind = DCI_KIND_FLAT + _i;
        config.sketch_bits = 4;
        ck_ok(dci_index_create(context, &config, &s.index));
        ck_assert_int_eq(pthread_create(&threads[0], NULL, searcher, &s), 0);
        ck_assert_int_eq(pthread_create(&threads[1], NULL, writer, &s), 0);
        for (int i = 0; i < SAVES; i++)
                ck_ok(dci_index_check(s.index, i % 4 == 0 ? DCI_CHECK_FULL : DCI_CHECK_STRUCTURE, NULL));
        void *complaints[2] = {NULL, NULL};
        pthread_join(threads[1], &complaints[1]);
        atomic_store(&s.done, true);
        pthread_join(threads[0], &complaints[0]);
        for (int i = 0; i < 2; i++)
                ck_assert_msg(complaints[i] == NULL, "%s", (const char *)complaints[i]);
        ck_ok(dci_index_check(s.index, DCI_CHECK_FULL, NULL));
        dci_index_destroy(s.index);
        dci_context_destroy(context);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("persist threads");
        TCase *threads = test_case(suite, "threads", 120);
        tcase_add_loop_test(threads, saves_beside_searches_and_a_writer_hold_one_state, 0, 3);
        tcase_add_loop_test(threads, checks_beside_searches_and_a_writer_pass, 0, 3);
        return test_main(suite);
}
