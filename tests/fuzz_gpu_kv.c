/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Random lives of a KV cache on a device against one on the CPU: DCI_TEST_LONG asks for more seeds; fuzz_gpu_kv SEED LIVES PRESET. */
#include "kv/config.h"
#include "tests/gpu_kv_fixture.h"
#include "tests/scratch.h"

#include <stdio.h>

enum { MAX_SEQUENCES = 4, MAX_TOKENS = 900, LIFE = 60 };

static uint64_t first_seed = 1, n_lives;
static int32_t only; /* a preset; 0: all */

typedef struct owned {
        int64_t id;
        size_t n;
        bool prompted, swapped;
} owned;

typedef struct life {
        twin t;
        dci_rng rng, asks, swaps; /* asks, swaps: numbers of their own, as below */
        char what[160];
        owned sequences[MAX_SEQUENCES];
        size_t n;
} life;

static size_t below(life *l, size_t n)
{
        return (size_t)dci_rng_below(&l->rng, n);
}

static dci_kv_config draw_config(life *l)
{
        static const size_t pages[] = {8, 16, 32};
        static const dci_dtype formats[] = {DCI_F32, DCI_F16, DCI_BF16};
        static const int32_t schedules[] = {0, 0, 0, DCI_KV_PERIODIC, DCI_KV_BOUNDARY, DCI_KV_AHEAD, DCI_KV_ANCHOR};
        const int32_t preset = kv_presets[below(l, KV_N_KINDS)];
        dci_kv_config c = kv_config(only > 0 ? only : preset, 1 + below(l, 4), 1 + below(l, 3), 1 + below(l, 4),
                                    below(l, 4) > 0 ? 64 : 96);
        if (c.preset == DCI_KV_SKETCH && below(l, 2) == 0) {
                c.summary = DCI_KV_SUMMARY_LEARNED;
                c.key_bits = 1 + (int32_t)below(l, 4);
        }
        c.dtype = formats[1 + below(l, 2)];
        c.query_dtype = formats[below(l, 3)];
        c.dense_layers = below(l, c.n_layers + 1);
        c.page_tokens = pages[below(l, 3)];
        c.sink = below(l, 3) == 0 ? below(l, 20) : 16;
        c.window = 8 + below(l, 20);
        c.rollback = below(l, 40);
        c.budget = 100 + below(l, 80);
        c.frozen_prompt = below(l, 6) == 0;
        c.foreground = (int32_t)below(l, 2);
        c.schedule = schedules[below(l, 7)];
        c.anchor_first = 0;
        c.anchor_period = 2;
        c.period = 1 + below(l, 6);
        /* Queries are drawn again in each step: by this half of them turn, by the default all. */
        c.tau = c.period % 2 == 0 ? 0.02 : 0.0;
        if (below(l, 5) == 0)
                c.resident_bytes = 300 * c.n_layers * c.n_kv_heads * c.dim_k * 4;
        return c;
}

static dci_gpu_kv_config draw_device(life *l, const dci_kv_config *c)
{
        dci_gpu_kv_config d = twin_on_device();
        d.max_sequences = MAX_SEQUENCES;
        d.max_tokens = MAX_TOKENS;
        d.piece_bytes = below(l, 2) == 0 ? 1 : 100000;
        if (below(l, 2) == 0)
                d.hot_tokens = below(l, 2) == 0 ? below(l, 40) : below(l, 400);
        if (below(l, 3) == 0)
                d.ring_tokens = c->budget + below(l, 300);
        d.gather = below(l, 2) == 0 ? DCI_GPU_GATHER_MAPPED : 1 + (int32_t)below(l, DCI_GPU_GATHERS);
        return d;
}

/* By numbers of its own: lives that once found something stay what they were. */
static void draw_resident(uint64_t seed, const dci_kv_config *c, dci_gpu_kv_config *d)
{
        static const size_t pages[] = {0, 1, 5, 30, 100, 1000};
        dci_rng rng;
        dci_rng_seed(&rng, ~seed);
        if (d->gather == DCI_GPU_GATHER_MAPPED)
                d->device_resident_bytes =
                        pages[dci_rng_below(&rng, 6)] * c->n_layers * c->page_tokens * c->n_kv_heads * c->dim_k * 4;
}

/* What budgets count, and shares, of every third life. */
static void draw_budget(uint64_t seed, dci_kv_config *c)
{
        dci_rng rng;
        dci_rng_seed(&rng, ~seed + 1);
        if (dci_rng_below(&rng, 3) != 0)
                return;
        c->budget_counts = (int32_t)dci_rng_below(&rng, DCI_KV_COUNTS + 1);
        c->budget_share = dci_rng_below(&rng, 2) == 0 ? 0.0625 * (double)(1 + dci_rng_below(&rng, 8)) : 0.0;
        c->observed_keep = (int32_t)dci_rng_below(&rng, 3) - 1;
        c->segment_least = dci_rng_below(&rng, 4);
        if (c->budget_counts > DCI_KV_COUNT_ALL)
                c->cluster_every = 320 >> dci_rng_below(&rng, 2); /* lives are short */
}

/* The same: contiguous copies where they can be. */
static void draw_contiguous(uint64_t seed, dci_kv_config *c, const dci_gpu_kv_config *d)
{
        dci_kv_stages stages;
        dci_kv_config config = *c, checked;
        dci_rng rng;
        dci_rng_seed(&rng, ~seed + 2);
        config.contiguous = 1;
        if (d->gather == DCI_GPU_GATHER_MAPPED && d->device_resident_bytes == 0 && dci_rng_below(&rng, 4) > 0 &&
            dci_kv_check_config(&config, &checked, &stages) == DCI_OK)
                c->contiguous = 1;
}

/* The same: lists of query heads, where there can be. */
static void draw_lists(uint64_t seed, dci_kv_config *c)
{
        dci_kv_stages stages;
        dci_kv_config config = *c, checked;
        dci_rng rng;
        dci_rng_seed(&rng, ~seed + 3);
        config.query_head_lists = 1;
        if (dci_rng_below(&rng, 3) == 0 && dci_kv_check_config(&config, &checked, &stages) == DCI_OK)
                c->query_head_lists = 1;
}

/* Configs that do not go together are drawn again. */
static void begin(life *l, uint64_t seed)
{
        dci_kv_stages stages;
        dci_kv_config config, checked;
        *l = (life){.n = 0};
        dci_rng_seed(&l->rng, seed);
        dci_rng_seed(&l->asks, seed + 1);
        dci_rng_seed(&l->swaps, seed + 2);
        do {
                config = draw_config(l);
                draw_budget(seed, &config);
        } while (dci_kv_check_config(&config, &checked, &stages) != DCI_OK);
        draw_lists(seed, &config);
        dci_gpu_kv_config device = draw_device(l, &config);
        draw_resident(seed, &config, &device);
        if (checked.budget_counts != DCI_KV_COUNT_ALL)
                device.ring_tokens = 0; /* what does not count is in it */
        draw_contiguous(seed, &config, &device);
        if (device.planner !=
            DCI_GPU_PLAN_HOST) /* codes are made again when the host is asked, which it is not as often */
                config.refit = 0.0;
        l->t = twin_begin(&config, &device);
        snprintf(l->what, sizeof l->what,
                 "seed %llu, %s, schedule %d, gather %d, hot %zu, resident %zu, contiguous %d, lists %d",
                 (unsigned long long)seed, dci_kv_preset_name(config.preset), (int)checked.schedule, (int)device.gather,
                 device.hot_tokens, device.device_resident_bytes, (int)config.contiguous, (int)config.query_head_lists);
        l->t.what = l->what;
}

/* All rows of a sequence in the step are those of the CPU. By numbers of their own, as above, and where the step's rows are kept until its end. */
static void look_back(life *l, size_t layer, int64_t sequence, size_t n)
{
        const size_t row = l->t.config.dim_k * 2, heads = l->t.config.n_kv_heads, n_bytes = n * heads * row;
        dci_kv_rows rows;
        size_t got;
        if (dci_rng_below(&l->asks, 4) != 0 || !l->t.plans)
                return;
        ck_ok(dci_kv_rows_init(&rows, sizeof rows));
        ck_ok(dci_gpu_kv_history(l->t.kv, l->t.stream, layer, sequence, &rows, &got));
        ck_assert_uint_eq(got, n);
        if (n == 0)
                return;
        char *seen = malloc(2 * n_bytes), *keys = malloc(2 * n * row);
        ck_assert(seen != NULL && keys != NULL);
        char *values = keys + n * row;
        ck_ok(l->t.ops->copy(l->t.gpu, l->t.stream, seen, rows.keys, n_bytes));
        ck_ok(l->t.ops->copy(l->t.gpu, l->t.stream, seen + n_bytes, rows.values, n_bytes));
        ck_ok(l->t.ops->stream_wait(l->t.gpu, l->t.stream));
        for (size_t h = 0; h < heads; h++) {
                ck_ok(dci_kv_read(l->t.cpu, layer, sequence, h, 0, n, keys, values));
                ck_assert_msg(memcmp(seen + h * n * row, keys, n * row) == 0 &&
                                      memcmp(seen + n_bytes + h * n * row, values, n * row) == 0,
                              "%s: rows of sequence %lld, layer %zu, head %zu", l->what, (long long)sequence, layer, h);
        }
        test_free(seen, keys);
}

static void open_one(life *l)
{
        if (l->n < MAX_SEQUENCES)
                l->sequences[l->n++] = (owned){.id = twin_open(&l->t)};
}

static void bring_in(life *l, owned *o)
{
        if (o->swapped)
                ck_ok(dci_gpu_kv_swap_in(l->t.kv, o->id));
        o->swapped = false;
}

/* Outside of steps: a sequence goes, or comes back, or memory that none uses does. */
static void swap_one(life *l)
{
        const size_t what = (size_t)dci_rng_below(&l->swaps, 12);
        if (l->n == 0 || what > 4)
                return;
        owned *o = &l->sequences[(size_t)dci_rng_below(&l->swaps, l->n)];
        if (what == 0) {
                ck_ok(dci_gpu_kv_trim(l->t.kv, DCI_GPU_TRIM_ALL));
        } else if (o->swapped) {
                bring_in(l, o);
        } else {
                ck_ok(dci_gpu_kv_swap_out(l->t.kv, o->id));
                o->swapped = true;
        }
        twin_poison(&l->t);
}

static void step(life *l)
{
        owned *of[MAX_SEQUENCES];
        kv_turn turns[MAX_SEQUENCES];
        kv_data data[MAX_SEQUENCES];
        bool ends[MAX_SEQUENCES], plans = true;
        size_t n = 0;
        const size_t first = below(l, l->n), wanted = 1 + below(l, l->n);
        for (size_t i = 0; i < wanted; i++) {
                owned *o = of[n] = &l->sequences[(first + i) % l->n];
                bring_in(l, o);
                size_t more = o->prompted ? (below(l, 8) == 0 ? below(l, 60) : below(l, 3)) : below(l, 400);
                more = o->n + more > MAX_TOKENS ? 0 : more;
                data[n] = kv_random(&l->t.config, more + 1, dci_rng_next(&l->rng));
                turns[n] = (kv_turn){o->id, &data[n], 0, more};
                ends[n] = !o->prompted && below(l, 2) == 0 && (more > 0 || o->n == 0);
                /* A device that plans attends to everything in the step that ends a prompt of several. */
                plans = plans && (o->prompted || (ends[n] && (!l->t.plans || o->n == 0)));
                n++;
        }
        const bool aborts = below(l, 6) == 0;
        const size_t layers = aborts ? below(l, l->t.config.n_layers + 1) : l->t.config.n_layers;
        plans = plans && below(l, 4) > 0;
        twin_reserve(&l->t, n, turns);
        for (size_t layer = 0; layer < layers; layer++) {
                twin_append(&l->t, layer, n, turns);
                for (size_t i = 0; i < n; i++)
                        look_back(l, layer, turns[i].sequence, of[i]->n + turns[i].n);
                for (size_t i = 0; i < n; i++)
                        if (ends[i])
                                twin_prompt(&l->t, layer, &turns[i]);
                if (plans)
                        twin_look(&l->t, layer, n, turns);
        }
        if (aborts)
                twin_abort(&l->t, n, turns);
        else
                twin_step_end(&l->t, n, turns);
        for (size_t i = 0; i < n; i++) {
                of[i]->n += aborts ? 0 : turns[i].n;
                of[i]->prompted = of[i]->prompted || (ends[i] && !aborts);
                kv_data_free(&data[i]);
        }
}

/* A fork, or what is loaded from a file of the first tokens. */
static void fork_one(life *l)
{
        const owned *o = &l->sequences[below(l, l->n)];
        const size_t n = below(l, o->n + 1);
        int64_t id = -1, other = -1;
        if (!o->prompted || l->n == MAX_SEQUENCES)
                return;
        if (below(l, 4) > 0) {
                id = twin_fork(&l->t, o->id, n);
        } else {
                ck_ok(dci_gpu_kv_save(l->t.kv, o->id, n, scratch_path("sequence")));
                ck_ok(dci_gpu_kv_load(l->t.kv, scratch_path("sequence"), &id));
                /* Before it saves the host has formed all that is due; of listed groups no more than before. */
                if (l->t.plans && !l->t.kv->planner.clustered)
                        ck_ok(dci_kv_maintain(l->t.cpu, 1, &o->id));
                ck_ok(dci_kv_save(l->t.cpu, o->id, n, scratch_path("other")));
                ck_ok(dci_kv_load(l->t.cpu, scratch_path("other"), &other));
                ck_assert_int_eq(id, other);
        }
        l->sequences[l->n++] = (owned){id, n, true, false};
}

static void truncate_one(life *l)
{
        owned *o = &l->sequences[below(l, l->n)];
        const size_t least = below(l, 3) == 0 || o->n < 30 ? 0 : o->n - 30;
        o->n = least + below(l, o->n - least + 1);
        bring_in(l, o);
        twin_truncate(&l->t, o->id, o->n);
}

static void close_one(life *l)
{
        const size_t at = below(l, l->n);
        twin_close(&l->t, l->sequences[at].id);
        l->sequences[at] = l->sequences[--l->n];
}

/* All, but for those that are swapped out. */
static void maintain(life *l)
{
        int64_t ids[MAX_SEQUENCES];
        size_t n = 0;
        for (size_t i = 0; i < l->n; i++)
                if (!l->sequences[i].swapped)
                        ids[n++] = l->sequences[i].id;
        if (l->t.plans)
                return;
        ck_ok(dci_gpu_kv_maintain(l->t.kv, 0, NULL));
        ck_ok(dci_kv_maintain(l->t.cpu, n, ids));
}

static void run_life(uint64_t seed)
{
        life l;
        begin(&l, seed);
        for (size_t i = 0; i < LIFE; i++) {
                const size_t what = below(&l, 20);
                swap_one(&l);
                if (l.n == 0 || what == 0)
                        open_one(&l);
                else if (what < 13)
                        step(&l);
                else if (what < 15)
                        maintain(&l);
                else if (what < 17)
                        fork_one(&l);
                else if (what < 19)
                        truncate_one(&l);
                else
                        close_one(&l);
        }
        while (l.n > 0)
                close_one(&l);
        const dci_kv_info info = kv_info(dci_gpu_kv_host(l.t.kv));
        ck_assert_uint_eq(info.n_free_blocks, info.n_blocks);
        ck_assert_uint_eq(l.t.kv->host->copies.n_free, dci_kv_pool_there(&l.t.kv->host->copies));
        twin_end(&l.t);
}

START_TEST(lives_are_those_of_the_cpu)
{
        for (uint64_t seed = first_seed; seed < first_seed + n_lives; seed++)
                run_life(seed);
}
END_TEST

/* Cells of a tree with few nodes hold many pages, most of which move to a new node at once. */
START_TEST(a_life_that_once_broke_a_tree)
{
        run_life(5780);
}
END_TEST

/* Orders that are truncated, swapped out, saved and forked while new ones are made. */
START_TEST(lives_of_orders_are_those_of_the_cpu)
{
        static const uint64_t seeds[] = {9, 145, 303, 327, 443, 730, 1627};
        only = DCI_KV_PRKV;
        for (size_t i = 0; i < COUNT(seeds); i++)
                run_life(seeds[i]);
        only = 0;
}
END_TEST

int main(int argc, char **argv)
{
        n_lives = getenv("DCI_TEST_LONG") != NULL ? 2000 : test_short() ? 10 : 40;
        if (argc > 1)
                first_seed = strtoull(argv[1], NULL, 10);
        if (argc > 2)
                n_lives = strtoull(argv[2], NULL, 10);
        if (argc > 3)
                only = dci_kv_preset_of(argv[3]);
        Suite *suite = suite_create("fuzz_gpu_kv");
        TCase *tcase = test_case_with(suite, "lives", n_lives > 40 ? 1e9 : 120, scratch_open, scratch_close);
        tcase_add_test(tcase, lives_are_those_of_the_cpu);
        tcase_add_test(tcase, a_life_that_once_broke_a_tree);
        tcase_add_test(tcase, lives_of_orders_are_those_of_the_cpu);
        return test_main(suite);
}
