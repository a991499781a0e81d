/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Keys, their sorting, and the bounded selection at every level of this machine, against a plain sort. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "tests/simd_reference.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

#include "simd/cpu.h"
#include "simd/topk.h"

#define MOST 3000  /* values of one selection */
#define MAX_K 1000 /* of them */

/* --- ids ------------------------------------------------------------------------------------------------------------------- */

static int64_t descending_id(const void *ctx, int32_t slot)
{
        return *(const int64_t *)ctx - slot;
}

/* In no order; distinct, since the factor is odd. */
static int64_t scattered_id(const void *ctx, int32_t slot)
{
        (void)ctx;
        return (int64_t)((uint64_t)slot * UINT64_C(0x9e3779b97f4a7c15) & INT64_MAX);
}

static const int64_t largest_id = INT64_MAX;
static const dci_slot_ids id_orders[] = {{NULL, NULL}, {descending_id, &largest_id}, {scattered_id, NULL}};

static int64_t id_of(dci_slot_ids ids, int32_t slot)
{
        return ids.fn == NULL ? slot : ids.fn(ids.ctx, slot);
}

/* --- what must come out ---------------------------------------------------------------------------------------------------- */

typedef struct entry {
        double cost; /* the score, so that less is better; -0 and +0 are the same */
        int64_t id;
        int32_t slot;
} entry;

static int compare_entries(const void *a, const void *b)
{
        const entry *x = a, *y = b;
        if (x->cost != y->cost)
                return x->cost < y->cost ? -1 : 1;
        return (x->id > y->id) - (x->id < y->id);
}

/* The keys must be those that dci_topk_key makes, too: parts of a search are merged by them. */
static void check_keys(const uint64_t *keys, const entry *wanted, size_t n, bool descending, const char *what)
{
        for (size_t i = 0; i < n; i++) {
                const float score = dci_topk_score(keys[i], descending);
                const double cost = descending ? -score : score;
                const int32_t slot = dci_topk_slot(keys[i]);
                if (slot != wanted[i].slot || cost != wanted[i].cost)
                        ck_abort_msg("%s: number %zu of %zu is slot %d, cost %g; wanted slot %d, cost %g", what, i, n,
                                     (int)slot, cost, (int)wanted[i].slot, wanted[i].cost);
                if (keys[i] != dci_topk_key(score, slot, descending))
                        ck_abort_msg("%s: number %zu has a key of its own for %g", what, i, (double)score);
        }
}

/* --- keys ------------------------------------------------------------------------------------------------------------------ */

static const float ascending_scores[] = {-INFINITY,   -FLT_MAX,    -1.0f, -FLT_MIN,   -FLT_TRUE_MIN, -0.0f,   0.0f,
                                         FLT_MIN / 2, 0.99999994f, 1.0f,  1.0000001f, FLT_MAX,       INFINITY};
static const int32_t ascending_slots[] = {0, 1, 255, 256, 65536, INT32_MAX};

START_TEST(keys_are_ordered_as_scores_and_then_slots)
{
        const size_t n_slots = COUNT(ascending_slots), n = COUNT(ascending_scores) * n_slots;
        for (size_t i = 0; i < n * n; i++) {
                const float a = ascending_scores[i / n / n_slots], b = ascending_scores[i % n / n_slots];
                const int32_t s = ascending_slots[i / n % n_slots], t = ascending_slots[i % n % n_slots];
                const bool tie = a == b && s < t;
                ck_assert_msg((dci_topk_key(a, s, false) < dci_topk_key(b, t, false)) == (a < b || tie) &&
                                      (dci_topk_key(a, s, true) < dci_topk_key(b, t, true)) == (a > b || tie),
                              "%g, slot %d and %g, slot %d", (double)a, (int)s, (double)b, (int)t);
        }
}
END_TEST

START_TEST(keys_give_back_score_and_slot)
{
        for (size_t i = 0; i < 2 * COUNT(ascending_scores) * COUNT(ascending_slots); i++) {
                const float score = ascending_scores[i / 2 % COUNT(ascending_scores)];
                const int32_t slot = ascending_slots[i / 2 / COUNT(ascending_scores)];
                const uint64_t key = dci_topk_key(score, slot, i % 2);
                const float back = dci_topk_score(key, i % 2);
                ck_assert_msg(back == score && (back != 0.0f || !signbit(back)), "%g became %g", (double)score,
                              (double)back);
                ck_assert_int_eq(dci_topk_slot(key), slot);
        }
}
END_TEST

/* --- sorting --------------------------------------------------------------------------------------------------------------- */

/* Distinct slots: upwards, downwards, or mixed by a prime. */
static int32_t slot_at(size_t order, size_t i, size_t n)
{
        const size_t place = order == 0 ? i : (order == 1 ? n - 1 - i : i * 7919 % n);
        return (int32_t)(place * 300 + 5);
}

START_TEST(sorting_equals_a_plain_sort)
{
        /* Insertion gives way to radix sort beyond 48. */
        static const size_t sizes[] = {0, 1, 2, 3, 16, 47, 48, 49, 50, 255, 256, 257, 1000, MOST};
        static const uint64_t n_scores[] = {1, 3, 200, UINT64_C(1) << 20};
        unsigned char *key_memory = guard(MOST * sizeof(uint64_t)), *scratch_memory = guard(MOST * sizeof(uint64_t));
        entry *wanted = malloc(MOST * sizeof *wanted);
        dci_rng rng;
        dci_rng_seed(&rng, 1);
        for (size_t c = 0; c < COUNT(sizes) * COUNT(n_scores) * 3 * COUNT(id_orders) * 2; c++) {
                const bool descending = c % 2;
                const dci_slot_ids ids = id_orders[c / 2 % COUNT(id_orders)];
                const size_t order = c / 2 / COUNT(id_orders) % 3, rest = c / 6 / COUNT(id_orders);
                const size_t n = sizes[rest / COUNT(n_scores)];
                uint64_t *keys = last_bytes(key_memory, n * sizeof *keys);
                for (size_t i = 0; i < n; i++) {
                        const float score = (float)dci_rng_below(&rng, n_scores[rest % COUNT(n_scores)]) - 100.0f;
                        const int32_t slot = slot_at(order, i, n);
                        keys[i] = dci_topk_key(score, slot, descending);
                        wanted[i] = (entry){descending ? -score : score, id_of(ids, slot), slot};
                }
                if (n > 0)
                        qsort(wanted, n, sizeof *wanted, compare_entries);
                dci_topk_sort(keys, n, last_bytes(scratch_memory, n * sizeof *keys), ids);
                check_keys(keys, wanted, n, descending, "sorted");
        }
        free(wanted);
}
END_TEST

/* --- selection ------------------------------------------------------------------------------------------------------------- */

static float normal(dci_rng *rng, size_t i)
{
        (void)i;
        return (float)dci_rng_normal(rng);
}

static float one_of_six(dci_rng *rng, size_t i)
{
        static const float values[] = {-2.0f, -1.0f, -0.0f, 0.0f, 1.0f, 2.0f};
        (void)i;
        return values[dci_rng_below(rng, COUNT(values))];
}

static float zero_of_either_sign(dci_rng *rng, size_t i)
{
        (void)i;
        return dci_rng_below(rng, 2) ? 0.0f : -0.0f;
}

static float all_equal(dci_rng *rng, size_t i)
{
        (void)rng, (void)i;
        return 3.5f;
}

static float all_infinite(dci_rng *rng, size_t i)
{
        (void)rng, (void)i;
        return INFINITY;
}

static float all_minus_infinite(dci_rng *rng, size_t i)
{
        (void)rng, (void)i;
        return -INFINITY;
}

static float extreme(dci_rng *rng, size_t i)
{
        (void)i;
        return ascending_scores[dci_rng_below(rng, COUNT(ascending_scores))];
}

static float rising(dci_rng *rng, size_t i)
{
        (void)rng;
        return (float)i - 1500.0f;
}

static float falling(dci_rng *rng, size_t i)
{
        (void)rng;
        return 1500.0f - (float)i;
}

/* Many at one value, others as near to it as floats can be. */
static float around_one(dci_rng *rng, size_t i)
{
        static const float values[] = {0.99999994f, 1.0f, 1.0f, 1.0f, 1.0000001f};
        (void)i;
        return values[dci_rng_below(rng, COUNT(values))];
}

typedef struct stream {
        const char *name;
        float (*value)(dci_rng *rng, size_t i);
} stream;

static const stream streams[] = {
        {"normal", normal},        {"one of six", one_of_six}, {"zeros", zero_of_either_sign},
        {"equal", all_equal},      {"infinity", all_infinite}, {"minus infinity", all_minus_infinite},
        {"extreme", extreme},      {"rising", rising},         {"falling", falling},
        {"around one", around_one}};

/* One selection over n values of slots 2 i + 1, given (`with_slots`) or of consecutive slots from 7 on. */
typedef struct offer {
        const dci_kernels *kernels;
        dci_slot_ids ids;
        bool descending, with_slots;
        size_t n, k, block; /* values of one add; 0: another number each time */
        float scores[MOST];
        int32_t slots[MOST];
        unsigned char *memory; /* the end of the scratch */
} offer;

static offer *new_offer(int level)
{
        dci_isa isas[6];
        offer *o = calloc(1, sizeof *o);
        ck_assert_ptr_nonnull(o);
        ck_assert_uint_lt((size_t)level, test_isas(isas));
        o->kernels = dci_kernels_for(isas[level]);
        o->memory = guard(dci_topk_bytes(MAX_K));
        return o;
}

static void fill(offer *o, const stream *s, uint64_t seed)
{
        dci_rng rng;
        dci_rng_seed(&rng, seed);
        for (size_t i = 0; i < o->n; i++) {
                o->scores[i] = s->value(&rng, i);
                o->slots[i] = (int32_t)(o->with_slots ? 2 * i + 1 : i + 7);
        }
}

static dci_topk begin(offer *o)
{
        dci_topk topk;
        const size_t n_bytes = dci_topk_bytes(o->k);
        ck_assert_uint_eq(n_bytes % DCI_CACHE_LINE, 0);
        dci_topk_init(&topk, o->kernels, o->ids, o->k, o->descending, last_bytes(o->memory, n_bytes));
        return topk;
}

static size_t next_block(const offer *o, size_t done, dci_rng *rng)
{
        size_t block = o->block > 0 ? o->block : (size_t)dci_rng_below(rng, DCI_TOPK_BLOCK + 1);
        return block < o->n - done ? block : o->n - done;
}

static void offer_all(offer *o, dci_topk *topk)
{
        dci_rng rng;
        dci_rng_seed(&rng, o->n);
        *topk = begin(o);
        for (size_t done = 0, count; done < o->n; done += count) {
                count = next_block(o, done, &rng);
                dci_topk_add(topk, o->scores + done, count, (int32_t)(done + 7),
                             o->with_slots ? o->slots + done : NULL);
        }
}

static size_t select_from(offer *o, dci_topk *topk)
{
        offer_all(o, topk);
        return dci_topk_finish(topk);
}

static void sort_all(const offer *o, entry *wanted)
{
        for (size_t i = 0; i < o->n; i++)
                wanted[i] =
                        (entry){o->descending ? -o->scores[i] : o->scores[i], id_of(o->ids, o->slots[i]), o->slots[i]};
        if (o->n > 0)
                qsort(wanted, o->n, sizeof *wanted, compare_entries);
}

static int compare_slots(const void *a, const void *b)
{
        const entry *x = a, *y = b;
        return (x->slot > y->slot) - (x->slot < y->slot);
}

/* Gathered instead of sorted: as they came in, so that slots ascend, however many are equal. */
static void check_gathered(offer *o, entry *wanted, const char *what)
{
        dci_topk topk;
        offer_all(o, &topk);
        const size_t n = dci_topk_gather(&topk);
        ck_assert_msg(n == (o->n < o->k ? o->n : o->k), "%s: %zu were gathered", what, n);
        if (n > 0)
                qsort(wanted, n, sizeof *wanted, compare_slots);
        for (size_t i = 0; i < n; i++) {
                const double cost = -(double)topk.good[i];
                if (topk.slots[i] != wanted[i].slot || cost != wanted[i].cost)
                        ck_abort_msg("%s: gathered, number %zu of %zu is slot %d, cost %g; wanted slot %d, cost %g",
                                     what, i, n, (int)topk.slots[i], cost, (int)wanted[i].slot, wanted[i].cost);
        }
}

static void check_selection(offer *o, entry *wanted, const char *name)
{
        char what[200];
        dci_topk topk;
        const size_t n = select_from(o, &topk);
        snprintf(what, sizeof what, "%s, n %zu, k %zu, blocks of %zu, %s, ids %d", name, o->n, o->k, o->block,
                 o->descending ? "descending" : "ascending", o->ids.fn != NULL);
        sort_all(o, wanted);
        ck_assert_msg(n == (o->n < o->k ? o->n : o->k), "%s: %zu came back", what, n);
        check_keys(topk.keys, wanted, n, o->descending, what);
        check_gathered(o, wanted, what);
}

START_TEST(the_k_best_are_those_of_a_plain_sort)
{
        /* The buffer is cut when it holds more than k and 64, or k and k. */
        static const size_t ks[] = {1, 2, 9, 63, 64, 65, 200, MAX_K};
        static const size_t blocks[] = {DCI_TOPK_BLOCK, 0, 100, DCI_TOPK_BLOCK - 1, 16, 17, 1};
        offer *o = new_offer(_i);
        entry *wanted = malloc(MOST * sizeof *wanted);
        size_t c = 0;
        for (size_t s = 0; s < COUNT(streams); s++)
                for (size_t i = 0; i < COUNT(ks); i++) {
                        const size_t k = ks[i], room = k < 64 ? 64 : k;
                        const size_t sizes[] = {0, 1, k - 1, k, k + 1, k + room, k + room + 1, 2 * k + 500, MOST};
                        for (size_t j = 0; j < 2 * COUNT(id_orders) * COUNT(sizes); j++, c++) {
                                o->descending = j % 2;
                                o->ids = id_orders[j / 2 % COUNT(id_orders)];
                                o->n = sizes[j / 2 / COUNT(id_orders)];
                                o->k = k;
                                o->block = blocks[c % COUNT(blocks)];
                                o->with_slots = c / COUNT(blocks) % 2;
                                fill(o, &streams[s], c);
                                check_selection(o, wanted, streams[s].name);
                        }
                }
        test_free(wanted, o);
}
END_TEST

START_TEST(blocks_do_not_matter)
{
        enum { K = 100 };
        uint64_t first[K];
        offer *o = new_offer(_i);
        dci_topk topk;
        o->k = K;
        o->n = 2000;
        for (size_t c = 0; c < 2 * COUNT(id_orders); c++) {
                o->descending = c % 2;
                o->ids = id_orders[c / 2];
                fill(o, &streams[c % 2], c);
                for (o->block = 1; o->block <= DCI_TOPK_BLOCK; o->block++) {
                        ck_assert_uint_eq(select_from(o, &topk), K);
                        if (o->block == 1)
                                memcpy(first, topk.keys, sizeof first);
                        ck_assert_msg(memcmp(first, topk.keys, sizeof first) == 0, "blocks of %zu", o->block);
                }
        }
        free(o);
}
END_TEST

/* A selection that has been cut while it held nothing but values of one score. The next slot is *out_slot. */
static dci_topk cut_selection(offer *o, float score, int32_t *out_slot)
{
        float scores[DCI_TOPK_BLOCK];
        dci_topk topk = begin(o);
        const float before = topk.threshold;
        for (size_t i = 0; i < COUNT(scores); i++)
                scores[i] = score;
        for (*out_slot = 0; topk.threshold == before; *out_slot += DCI_TOPK_BLOCK) {
                ck_assert_int_lt(*out_slot, 4 * DCI_TOPK_BLOCK);
                dci_topk_add(&topk, scores, COUNT(scores), *out_slot, NULL);
        }
        return topk;
}

static const float boundaries[] = {1.0f, -1.0f, 0.0f, -0.0f, FLT_TRUE_MIN, -FLT_MIN, 1e30f};

START_TEST(a_late_value_enters_if_better_or_equal_with_a_lower_id)
{
        offer *o = new_offer(_i);
        for (size_t c = 0; c < 2 * 3 * COUNT(boundaries) * COUNT(id_orders); c++) {
                const float score = boundaries[c / 6 % COUNT(boundaries)];
                const float late[] = {nextafterf(score, -INFINITY), score, nextafterf(score, INFINITY)};
                const float value = late[c / 2 % 3];
                int32_t slot;
                o->k = 20;
                o->descending = c % 2;
                o->ids = id_orders[c / 6 / COUNT(boundaries)];
                dci_topk topk = cut_selection(o, score, &slot);
                dci_topk_add(&topk, &value, 1, slot, NULL);
                ck_assert_uint_eq(dci_topk_finish(&topk), o->k);
                /* How many of the earlier slots win the tie. */
                size_t lower = 0, place = o->k;
                for (int32_t s = 0; s < slot; s++)
                        lower += id_of(o->ids, s) < id_of(o->ids, slot);
                for (size_t i = 0; i < o->k; i++)
                        if (dci_topk_slot(topk.keys[i]) == slot)
                                place = i;
                const bool better = o->descending ? value > score : value < score;
                const size_t wanted = better ? 0 : (value == score && lower < o->k ? lower : o->k);
                ck_assert_msg(place == wanted, "%a after %a, %s: place %zu, wanted %zu", (double)value, (double)score,
                              o->descending ? "descending" : "ascending", place, wanted);
        }
        free(o);
}
END_TEST

START_TEST(what_cannot_enter_is_dropped_at_once)
{
        offer *o = new_offer(_i);
        for (size_t c = 0; c < 2 * COUNT(boundaries) * COUNT(id_orders); c++) {
                const float score = boundaries[c / 2 % COUNT(boundaries)];
                int32_t slot;
                o->k = 20;
                o->descending = c % 2;
                o->ids = id_orders[c / 2 / COUNT(boundaries)];
                dci_topk topk = cut_selection(o, score, &slot);
                const size_t held = topk.n;
                const float worse = nextafterf(score, o->descending ? -INFINITY : INFINITY);
                /* Where ids ascend with slots, a tie is lost, too. Two are too few for another cut. */
                const float late[2] = {worse, o->ids.fn == NULL ? score : worse};
                ck_assert_uint_le(held, o->k + o->k / 8);
                dci_topk_add(&topk, late, COUNT(late), slot, NULL);
                ck_assert_uint_eq(topk.n, held);
        }
        free(o);
}
END_TEST

int main(void)
{
        const int n_levels = (int)test_n_isas();
        Suite *suite = suite_create("topk");
        TCase *tcase = test_case(suite, "topk", 60);
        tcase_add_test(tcase, keys_are_ordered_as_scores_and_then_slots);
        tcase_add_test(tcase, keys_give_back_score_and_slot);
        tcase_add_test(tcase, sorting_equals_a_plain_sort);
        tcase_add_loop_test(tcase, the_k_best_are_those_of_a_plain_sort, 0, n_levels);
        tcase_add_loop_test(tcase, blocks_do_not_matter, 0, n_levels);
        tcase_add_loop_test(tcase, a_late_value_enters_if_better_or_equal_with_a_lower_id, 0, n_levels);
        tcase_add_loop_test(tcase, what_cannot_enter_is_dropped_at_once, 0, n_levels);
        return test_main(suite);
}
