/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Arrays that a caller may get wrong, for every public call that reads some: numbers that are none, of every bit pattern; addresses that are not
 * aligned; strides longer than a row; lengths that leave the address space. What is refused names the row, and nothing has changed.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "dci/kmeans.h"
#include "dci/sketch.h"
#include "tests/kv_fixture.h"

enum { DIM = 8, ROWS = 6, HEADS = 2, LAYERS = 1 };

/* Objects of every sort, each with something in it. */
typedef struct world {
        dci_context *context;
        dci_index *index;
        dci_sketch *sketch;
        dci_kv *kv;
        int64_t sequence; /* a step of ROWS / HEADS tokens is open */
        int64_t ended;    /* its prompt has ended */
        dci_kv_plan plan;
} world;

static world make(void)
{
        world w = {.context = test_context(1)};
        dci_index_config config;
        dci_sketch_config sketch;
        float *rows = test_normal(40, DIM, 1);
        ck_ok(dci_index_config_init(&config, sizeof config));
        config.dim = DIM;
        config.kind = DCI_KIND_MDCI;
        config.sketch_bits = 4;
        config.cell_simp_indices = 2;
        ck_ok(dci_index_create(w.context, &config, &w.index));
        ck_ok(dci_index_add(w.index, 40, rows, DIM, NULL, NULL));
        ck_ok(dci_sketch_config_init(&sketch, sizeof sketch));
        sketch.dim = DIM;
        ck_ok(dci_sketch_create(w.context, &sketch, &w.sketch));
        ck_ok(dci_sketch_append(w.sketch, 40, rows, DIM));
        free(rows);
        dci_kv_config kv = kv_config(DCI_KV_SNAPKV, LAYERS, HEADS, 1, DIM);
        kv.dtype = DCI_F32;
        kv.page_tokens = 8;
        w.kv = kv_create(w.context, &kv);
        kv_data data = kv_random(&kv, 20, 3);
        w.ended = kv_begin(w.kv, &data, 20);
        w.sequence = kv_open(w.kv);
        const size_t n = ROWS / HEADS;
        ck_ok(dci_kv_reserve(w.kv, 1, &w.sequence, &n));
        kv_data_free(&data);
        w.plan = kv_plan(w.kv, 1);
        return w;
}

static void destroy(world *w)
{
        dci_kv_plan_destroy(w->kv, &w->plan);
        dci_kv_destroy(w->kv);
        dci_sketch_destroy(w->sketch);
        dci_index_destroy(w->index);
        dci_context_destroy(w->context);
}

static void is_as_it_was(world *w)
{
        ck_assert_uint_eq(dci_index_count(w->index), 40);
        ck_assert_uint_eq(dci_sketch_count(w->sketch), 40);
        ck_assert_uint_eq(kv_sequence_info(w->kv, w->sequence).n_tokens, 0);
        ck_assert_uint_eq(kv_sequence_info(w->kv, w->ended).n_tokens, 20);
        ck_ok(dci_index_check(w->index, DCI_CHECK_FULL, NULL));
        ck_ok(dci_kv_check(w->kv, DCI_CHECK_FULL, NULL));
}

/* --- the calls: n rows of DIM floats, ld apart ------------------------------------------------------------------------------------------ */

static dci_status index_add(world *w, size_t n, const float *rows, size_t ld)
{
        return dci_index_add(w->index, n, rows, ld, NULL, NULL);
}
static dci_status index_search(world *w, size_t n, const float *rows, size_t ld)
{
        int64_t ids[2 * ROWS];
        return dci_index_search(w->index, n, rows, ld, 2, NULL, ids, NULL);
}
static dci_status index_search_group(world *w, size_t n, const float *rows, size_t ld)
{
        int64_t ids[2 * ROWS];
        return dci_index_search_group(w->index, n / 2 + n % 2, 2, rows, ld, 2, DCI_GROUP_EACH, NULL, ids, NULL);
}
static dci_status index_range(world *w, size_t n, const float *rows, size_t ld)
{
        dci_range_result result;
        ck_ok(dci_range_result_init(&result, sizeof result));
        const dci_status status = dci_index_range_search(w->index, n, rows, ld, 1.0f, NULL, &result);
        dci_range_result_free(&result);
        return status;
}
static dci_status index_fit(world *w, size_t n, const float *rows, size_t ld)
{
        return dci_index_fit(w->index, n, rows, ld);
}
static dci_status index_tune(world *w, size_t n, const float *rows, size_t ld)
{
        return dci_index_tune(w->index, n, rows, ld, 2, 0.9, NULL);
}
static dci_status sketch_append(world *w, size_t n, const float *rows, size_t ld)
{
        return dci_sketch_append(w->sketch, n, rows, ld);
}
static dci_status sketch_score(world *w, size_t n, const float *rows, size_t ld)
{
        float scores[40 * ROWS];
        return dci_sketch_score(w->sketch, n, rows, ld, 0, 40, scores, 40);
}
static dci_status sketch_bound(world *w, size_t n, const float *rows, size_t ld)
{
        float bounds[40 * ROWS];
        return dci_sketch_bound(w->sketch, n, rows, ld, 0, 40, 1.0, bounds, 40);
}
static dci_status sketch_search(world *w, size_t n, const float *rows, size_t ld)
{
        int64_t ids[2 * ROWS];
        return dci_sketch_search(w->sketch, n, rows, ld, 2, ids, NULL);
}
static dci_status sketch_fit(world *w, size_t n, const float *rows, size_t ld)
{
        const float query[DIM] = {1.0f};
        return dci_sketch_fit(w->sketch, n, rows, ld, 1, query, DIM);
}
static dci_status sketch_fit_queries(world *w, size_t n, const float *rows, size_t ld)
{
        const float row[DIM] = {1.0f};
        return dci_sketch_fit(w->sketch, 1, row, DIM, n, rows, ld);
}
static dci_status kmeans_of(const world *w, size_t n, const float *rows, size_t ld, const float *values,
                            size_t value_ld)
{
        dci_kmeans_config config;
        dci_kmeans_input input;
        dci_kmeans_result result;
        int32_t labels[ROWS];
        float sums[2 * DIM];
        ck_ok(dci_kmeans_config_init(&config, sizeof config));
        ck_ok(dci_kmeans_input_init(&input, sizeof input));
        ck_ok(dci_kmeans_result_init(&result, sizeof result));
        config.dim = DIM;
        config.n_clusters = 2;
        input.n = n;
        input.rows = rows;
        input.ld = ld;
        input.values = values;
        input.value_dim = values != NULL ? DIM : 0;
        input.value_ld = value_ld;
        input.value_dtype = DCI_F32;
        result.labels = labels;
        result.value_sums = values != NULL ? sums : NULL;
        return dci_kmeans(w->context, &config, &input, NULL, &result);
}
static dci_status kmeans_rows(world *w, size_t n, const float *rows, size_t ld)
{
        return kmeans_of(w, n, rows, ld, NULL, 0);
}
static dci_status kmeans_values(world *w, size_t n, const float *rows, size_t ld)
{
        float *good = test_normal(ROWS, DIM, 1);
        const dci_status status = kmeans_of(w, n <= ROWS ? n : ROWS, good, DIM, rows, ld);
        free(good);
        return status;
}
static dci_status cosine(world *w, size_t n, const float *rows, size_t ld)
{
        float out[ROWS * DIM];
        return dci_cosine_transform(w->context, n, DIM, DCI_F32, rows, ld, DCI_ZERO_REFUSE, out, DIM);
}
static dci_status mips_fit(world *w, size_t n, const float *rows, size_t ld)
{
        dci_mips mips;
        ck_ok(dci_mips_init(&mips, sizeof mips));
        return dci_mips_fit(w->context, &mips, n, DIM, DCI_F32, rows, ld, NULL);
}
static dci_status mips_keys(world *w, size_t n, const float *rows, size_t ld)
{
        dci_mips mips;
        float out[ROWS * (DIM + 1)];
        float *good = test_normal(ROWS, DIM, 1);
        ck_ok(dci_mips_init(&mips, sizeof mips));
        for (size_t i = 0; i < (size_t)ROWS * DIM; i++)
                good[i] *= 100.0f;
        ck_ok(dci_mips_fit(w->context, &mips, ROWS, DIM, DCI_F32, good, DIM, NULL));
        free(good);
        return dci_mips_keys(w->context, &mips, DCI_MIPS_UNSCALED, n, DIM, rows, ld, out, DIM + 1);
}
static dci_status mips_queries(world *w, size_t n, const float *rows, size_t ld)
{
        dci_mips mips;
        float out[ROWS * (DIM + 1)];
        const float one[DIM] = {1.0f};
        ck_ok(dci_mips_init(&mips, sizeof mips));
        ck_ok(dci_mips_fit(w->context, &mips, 1, DIM, DCI_F32, one, DIM, NULL));
        return dci_mips_queries(w->context, &mips, DCI_MIPS_SCALED, n, DIM, rows, ld, out, DIM + 1);
}
/* A row of a token's head: ld is from head to head. */
static dci_status kv_append_of(world *w, size_t n, const float *rows, size_t ld, bool of_values)
{
        static const float good[ROWS * DIM];
        const size_t tokens = n / HEADS;
        dci_kv_rows all;
        ck_ok(dci_kv_rows_init(&all, sizeof all));
        all.keys = of_values ? good : rows;
        all.values = of_values ? rows : good;
        size_t *head = of_values ? &all.value_head_stride : &all.key_head_stride;
        size_t *token = of_values ? &all.value_token_stride : &all.key_token_stride;
        *head = ld;
        *token = ld <= SIZE_MAX / HEADS ? HEADS * ld : ld;
        return dci_kv_append(w->kv, 0, 1, &w->sequence, &tokens, &all);
}
static dci_status kv_append_keys(world *w, size_t n, const float *rows, size_t ld)
{
        return kv_append_of(w, n, rows, ld, false);
}
static dci_status kv_append_values(world *w, size_t n, const float *rows, size_t ld)
{
        return kv_append_of(w, n, rows, ld, true);
}
static dci_status kv_prompt_queries(world *w, size_t n, const float *rows, size_t ld)
{
        static const float good[ROWS * DIM];
        dci_kv_rows all;
        const size_t tokens = ROWS / HEADS;
        ck_ok(dci_kv_rows_init(&all, sizeof all));
        all.keys = all.values = good;
        if (kv_sequence_info(w->kv, w->sequence).n_reserved > 0)
                dci_kv_append(w->kv, 0, 1, &w->sequence, &tokens, &all);
        return dci_kv_end_prompt(w->kv, 0, w->sequence, n / HEADS, rows, ld);
}
/* One sequence: the first HEADS rows. */
static dci_status kv_plan_queries(world *w, size_t n, const float *rows, size_t ld)
{
        (void)n;
        return dci_kv_plan_make(w->kv, 0, 1, &w->ended, rows, ld, &w->plan);
}
static dci_status kv_attend_queries(world *w, size_t n, const float *rows, size_t ld)
{
        float out[HEADS * DIM];
        (void)n;
        return dci_kv_attend(w->kv, 0, 1, &w->ended, rows, ld, NULL, out, DIM, NULL);
}
static dci_status kv_calibrate(world *w, size_t n, const float *rows, size_t ld)
{
        dci_kv_config config = kv_config(DCI_KV_LOUISKV, 1, HEADS, 1, DIM);
        double tau;
        return dci_kv_calibrate(w->context, &config, 1, n / HEADS, rows, ld, 0.5, &tau);
}

static const struct call {
        const char *name;
        dci_status (*run)(world *w, size_t n, const float *rows, size_t ld);
        const char *names;   /* what a refused number's sentence calls row `bad`; NULL: it is not by number */
        size_t first;        /* rows [0, first) are looked at */
        bool any_length;     /* n is the caller's to choose */
        bool may_lie_anyhow; /* copied before it is read */
} calls[] = {
        {"dci_index_add", index_add, "row %zu", ROWS, true, false},
        {"dci_index_search", index_search, "query %zu", ROWS, true, false},
        {"dci_index_search_group", index_search_group, "query %zu", ROWS, true, false},
        {"dci_index_range_search", index_range, "query %zu", ROWS, true, false},
        {"dci_index_fit", index_fit, "query %zu", ROWS, true, false},
        {"dci_index_tune", index_tune, "query %zu", ROWS, true, false},
        {"dci_sketch_append", sketch_append, "%zu holds NaN", ROWS, true, false},
        {"dci_sketch_score", sketch_score, "%zu holds NaN", ROWS, true, false},
        {"dci_sketch_bound", sketch_bound, "%zu holds NaN", ROWS, true, false},
        {"dci_sketch_search", sketch_search, "%zu holds NaN", ROWS, true, false},
        {"dci_sketch_fit, rows", sketch_fit, "%zu holds NaN", ROWS, true, false},
        {"dci_sketch_fit, queries", sketch_fit_queries, "%zu holds NaN", ROWS, true, false},
        {"dci_kmeans, rows", kmeans_rows, "row %zu", ROWS, false, false},
        {"dci_kmeans, values", kmeans_values, "value %zu", ROWS, false, false},
        {"dci_cosine_transform", cosine, "row %zu", ROWS, true, false},
        {"dci_mips_fit", mips_fit, "key %zu", ROWS, true, false},
        {"dci_mips_keys", mips_keys, "key %zu", ROWS, true, false},
        {"dci_mips_queries", mips_queries, "query %zu", ROWS, true, false},
        {"dci_kv_append, keys", kv_append_keys, "the key of kv head", ROWS, false, true},
        {"dci_kv_append, values", kv_append_values, "the value of kv head", ROWS, false, true},
        {"dci_kv_end_prompt", kv_prompt_queries, "the query of position", ROWS, false, false},
        {"dci_kv_plan_make", kv_plan_queries, "the query of sequence", HEADS, false, false},
        {"dci_kv_attend", kv_attend_queries, "the query of sequence", HEADS, false, false},
        {"dci_kv_calibrate", kv_calibrate, "", ROWS, false, false},
};
enum { N_CALLS = sizeof calls / sizeof *calls };

/* --- numbers that are none ------------------------------------------------------------------------------------------------------------------ */

static float of_bits(uint32_t bits)
{
        float x;
        memcpy(&x, &bits, sizeof x);
        return x;
}

/* Quiet and signalling NaN of both signs and several payloads, infinities, and numbers whose squares overflow. */
static const uint32_t poisons[] = {0x7fc00000, 0x7f800001, 0xffc00000, 0xff800001, 0x7fffffff, 0xffffffff,
                                   0x7fa5a5a5, 0x7f800000, 0xff800000, 0x7f7fffff, 0xff7fffff, 0x60ad78ec /* 1e20 */};

START_TEST(numbers_that_are_none_are_refused_by_row_and_change_nothing)
{
        const struct call *call = &calls[_i];
        world w = make();
        for (size_t p = 0; p < sizeof poisons / sizeof *poisons; p++)
                for (size_t bad = 0; bad < call->first; bad += call->first - 1) {
                        float *rows = test_normal(ROWS, DIM, 5);
                        char names[64];
                        rows[bad * DIM + p % DIM] = of_bits(poisons[p]);
                        snprintf(names, sizeof names, call->names, bad);
                        const dci_status status = call->run(&w, ROWS, rows, DIM);
                        ck_assert_msg(status == DCI_ERR_NUMBER && strstr(dci_last_error(), names) != NULL,
                                      "%s: 0x%08x in row %zu: %s: %s", call->name, (unsigned)poisons[p], bad,
                                      dci_status_name(status), dci_last_error());
                        free(rows);
                }
        is_as_it_was(&w);
        destroy(&w);
}
END_TEST

/* --- addresses, strides and lengths ------------------------------------------------------------------------------------------------------------- */

START_TEST(arrays_that_are_not_aligned_are_refused_or_read_all_the_same)
{
        const struct call *call = &calls[_i];
        world w = make();
        float *good = test_normal(ROWS, DIM, 5);
        unsigned char *memory = malloc((size_t)ROWS * DIM * sizeof *good + 8);
        for (size_t shift = 1; shift < 4 && !call->may_lie_anyhow; shift++) {
                memcpy(memory + shift, good, (size_t)ROWS * DIM * sizeof *good);
                const float *rows = (const float *)(uintptr_t)((uintptr_t)memory + shift);
                const dci_status status = call->run(&w, ROWS, rows, DIM);
                ck_assert_msg(status == DCI_ERR_INVALID && strstr(dci_last_error(), "aligned") != NULL, "%s: %s: %s",
                              call->name, dci_status_name(status), dci_last_error());
        }
        if (!call->may_lie_anyhow) {
                is_as_it_was(&w);
        } else {
                memcpy(memory + 1, good, (size_t)ROWS * DIM * sizeof *good);
                ck_ok(call->run(&w, ROWS, (const float *)(uintptr_t)((uintptr_t)memory + 1), DIM));
        }
        test_free(memory, good);
        destroy(&w);
}
END_TEST

/* Between rows is NaN, which nobody reads. */
START_TEST(strides_longer_than_a_row_skip_what_lies_between)
{
        const struct call *call = &calls[_i];
        world w = make();
        float *good = test_normal(ROWS, DIM, 5), *wide = malloc((size_t)ROWS * 3 * DIM * sizeof *wide);
        for (size_t i = 0; i < (size_t)ROWS * 3 * DIM; i++)
                wide[i] = NAN;
        for (size_t i = 0; i < ROWS; i++)
                memcpy(wide + i * 3 * DIM, good + i * DIM, DIM * sizeof *wide);
        const dci_status status = call->run(&w, ROWS, wide, (size_t)3 * DIM);
        ck_assert_msg(status == DCI_OK, "%s: %s", call->name, dci_last_error());
        test_free(wide, good);
        destroy(&w);
}
END_TEST

/* Nothing can be that long: refused before anything is read or allocated. */
START_TEST(lengths_that_leave_the_address_space_are_refused)
{
        static const size_t huge[] = {SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 4 + 1, SIZE_MAX / 8, (size_t)1 << 62};
        const struct call *call = &calls[_i];
        world w = make();
        float *good = test_normal(ROWS, DIM, 5);
        for (size_t i = 0; i < sizeof huge / sizeof *huge; i++) {
                dci_status status = call->run(&w, ROWS, good, huge[i]);
                ck_assert_msg(status == DCI_ERR_LIMIT, "%s, ld %zu: %s: %s", call->name, huge[i],
                              dci_status_name(status), dci_last_error());
                if (!call->any_length)
                        continue;
                status = call->run(&w, huge[i], good, DIM);
                ck_assert_msg(status == DCI_ERR_LIMIT, "%s, n %zu: %s: %s", call->name, huge[i],
                              dci_status_name(status), dci_last_error());
        }
        is_as_it_was(&w);
        free(good);
        destroy(&w);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("hostile arrays");
        TCase *tcase = test_case(suite, "arrays", 60);
        tcase_add_loop_test(tcase, numbers_that_are_none_are_refused_by_row_and_change_nothing, 0, N_CALLS);
        tcase_add_loop_test(tcase, arrays_that_are_not_aligned_are_refused_or_read_all_the_same, 0, N_CALLS);
        tcase_add_loop_test(tcase, strides_longer_than_a_row_skip_what_lies_between, 0, N_CALLS);
        tcase_add_loop_test(tcase, lengths_that_leave_the_address_space_are_refused, 0, N_CALLS);
        return test_main(suite);
}
