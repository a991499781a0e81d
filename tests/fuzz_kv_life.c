/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/fuzz_kv_config.h"
#include "tests/fuzz_life.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "dci/check.h"
#include "simd/kernels.h"
#include "tests/kv_schedule.h"
#include "tests/kv_tree_check.h"
#include "tests/scratch.h"

enum {
        MAX_SEQUENCES = 64,
        MAX_BATCH = 6,
        MAX_TOKENS = 700,
        MAX_NEW = 220,
        FEW_NEW = 130 /* bytes: many short lives */,
        LIFE = 400
};

typedef struct owned {
        int64_t id;
        bool prompted;
        kv_model model;
        kv_schedule schedule;
} owned;

typedef struct life {
        fuzz_bytes *from;
        dci_context *context;
        dci_kv_config config;
        dci_kv *kv;
        owned sequences[MAX_SEQUENCES];
        size_t n;
        char what[96];
} life;

static size_t below(life *l, size_t n)
{
        return (size_t)fuzz_below(l->from, n);
}

static void begin(life *l, fuzz_bytes *from, const char *what)
{
        memset(l, 0, sizeof *l);
        l->from = from;
        l->context = fuzz_context(from);
        l->config = fuzz_kv_config(from);
        l->kv = kv_create(l->context, &l->config);
        snprintf(l->what, sizeof l->what, "%s, %s, schedule %d", what, dci_kv_preset_name(l->config.preset),
                 (int)kv_info(l->kv).schedule);
}

/* --- checks ------------------------------------------------------------------------------------------------------------------- */

/* The blocks in use are those of the tables, and nobody's is free. */
static void check_blocks(life *l)
{
        const dci_kv_info info = kv_info(l->kv);
        int32_t *all = malloc((MAX_SEQUENCES * (MAX_TOKENS + MAX_NEW) + 1) * sizeof *all);
        size_t n = 0, distinct = 0;
        ck_assert_ptr_nonnull(all);
        for (size_t i = 0; i < l->n; i++) {
                const dci_kv_sequence_info of = kv_sequence_info(l->kv, l->sequences[i].id);
                const size_t wanted = (l->sequences[i].model.n + l->config.page_tokens - 1) / l->config.page_tokens;
                if (of.n_tokens != l->sequences[i].model.n || of.n_reserved != 0 || of.n_blocks != wanted)
                        ck_abort_msg("%s: sequence %lld has %zu tokens, %zu reserved, %zu blocks, wanted %zu, 0, %zu",
                                     l->what, (long long)l->sequences[i].id, of.n_tokens, of.n_reserved, of.n_blocks,
                                     l->sequences[i].model.n, wanted);
                ck_ok(dci_kv_table(l->kv, l->sequences[i].id, 0, of.n_blocks, all + n));
                n += of.n_blocks;
                if (kv_schedule_keeps(&info))
                        kv_schedule_check_counts(&l->sequences[i].schedule, &of, l->what);
        }
        qsort(all, n, sizeof *all, test_int32s_ascend);
        for (size_t i = 0; i < n; i++) {
                test_hold(all[i] >= 0 && (size_t)all[i] < info.n_blocks);
                distinct += i == 0 || all[i] != all[i - 1];
        }
        if (info.n_sequences != l->n || info.n_blocks - info.n_free_blocks != distinct)
                ck_abort_msg("%s: %zu of %zu blocks are free, but tables have %zu; %zu sequences", l->what,
                             info.n_free_blocks, info.n_blocks, distinct, info.n_sequences);
        free(all);
}

/* Some rows of a sequence are those of the model. */
static void check_rows(life *l)
{
        const owned *o = &l->sequences[below(l, l->n)];
        if (o->model.n == 0)
                return;
        const size_t layer = below(l, l->config.n_layers), head = below(l, l->config.n_kv_heads);
        const size_t first = below(l, o->model.n), n = 1 + below(l, o->model.n - first < 40 ? o->model.n - first : 40);
        float keys[40 * 16], values[40 * 16], wide[40 * 16];
        ck_ok(dci_kv_read(l->kv, layer, o->id, head, first, n, keys, values));
        const size_t of = layer * o->model.n_kv_heads + head * o->model.share;
        const float *wanted_keys = o->model.keys[of] + first * l->config.dim_k,
                    *wanted_values = o->model.values[of] + first * l->config.dim_v;
        dci_kernels_scalar.to_f32[l->config.dtype - 1](keys, n * l->config.dim_k, wide);
        test_hold(memcmp(wide, wanted_keys, n * l->config.dim_k * sizeof *wide) == 0);
        dci_kernels_scalar.to_f32[l->config.dtype - 1](values, n * l->config.dim_v, wide);
        test_hold(memcmp(wide, wanted_values, n * l->config.dim_v * sizeof *wide) == 0);
}

/* One layer of what some sequences saw. */
static void check_seen(life *l, const kv_seen *seen, size_t layer, const kv_turn *turns, owned **of)
{
        const dci_kv_info info = kv_info(l->kv);
        for (size_t i = 0; i < seen->n_sequences; i++) {
                const size_t token = turns[i].n == 0 ? turns[i].from : turns[i].from + turns[i].n - 1;
                const float *queries = kv_query(turns[i].data, layer, token, 0);
                test_hold(of[i] != NULL && (size_t)seen->plans[layer].n_tokens[i] == of[i]->model.n);
                kv_model_check_out(&of[i]->model, seen, i, layer, queries, l->what);
                const bool keeps = kv_schedule_keeps(&info), pages = l->config.tree_tokens == 0;
                for (size_t h = 0; h < info.n_lists && info.select == DCI_KV_SELECT_TREE && pages && !keeps; h++)
                        kv_tree_check_list(seen, i, layer, h, l->what);
                if (keeps)
                        kv_schedule_plan(&of[i]->schedule, &of[i]->model, seen, i, layer, queries, l->what);
                else if ((info.select == DCI_KV_SELECT_SCAN || info.select == DCI_KV_SELECT_STATIC) &&
                         kv_ranks_rows(info.summary) && info.group != DCI_KV_GROUP_TREE && !l->config.frozen_prompt)
                        kv_model_check_lists(&of[i]->model, seen, i, layer, queries, l->config.budget, false, l->what);
        }
}

/* --- operations --------------------------------------------------------------------------------------------------------------- */

static void open_one(life *l)
{
        if (l->n == MAX_SEQUENCES)
                return;
        l->sequences[l->n++] = (owned){
                .id = kv_open(l->kv), .model = kv_model_new(&l->config), .schedule = kv_schedule_new(&l->config)};
}

/* Different sequences, some number of them. */
static size_t draw_batch(life *l, owned **out)
{
        size_t n = 0;
        for (size_t tries = 1 + below(l, MAX_BATCH); tries > 0 && l->n > 0; tries--) {
                owned *o = &l->sequences[below(l, l->n)];
                bool fresh = true;
                for (size_t i = 0; i < n; i++)
                        fresh = fresh && out[i] != o;
                if (fresh)
                        out[n++] = o;
        }
        return n;
}

typedef struct stepping {
        owned *of[MAX_BATCH];
        kv_data data[MAX_BATCH];
        kv_turn turns[MAX_BATCH];
        bool ends[MAX_BATCH]; /* the prompt */
        size_t before[MAX_BATCH];
        size_t n;
} stepping;

static void draw_step(life *l, stepping *s)
{
        s->n = draw_batch(l, s->of);
        for (size_t i = 0; i < s->n; i++) {
                owned *o = s->of[i];
                size_t n = below(l, o->prompted        ? FUZZ_KV_MAX_MORE
                                    : below(l, 2) == 0 ? (l->from->seeded ? MAX_NEW : FEW_NEW)
                                                       : 40);
                if (o->model.n + n > MAX_TOKENS)
                        n = 0;
                s->data[i] = kv_random(&l->config, n + 1, fuzz_next(l->from));
                s->turns[i] = (kv_turn){o->id, &s->data[i], 0, n};
                s->ends[i] = !o->prompted && below(l, 2) == 0 &&
                             (n > 0 || o->model.n == 0); /* there are queries to observe */
                s->before[i] = o->model.n;
                kv_model_append(&o->model, &s->data[i], 0, n);
        }
}

/* Plans and attention in one layer, of those sequences that may have them. */
static void look_in_step(life *l, const stepping *s, size_t layer)
{
        kv_turn turns[MAX_BATCH];
        owned *of[MAX_BATCH] = {0};
        size_t n = 0;
        for (size_t i = 0; i < s->n; i++)
                if (s->of[i]->prompted || s->ends[i]) {
                        of[n] = s->of[i];
                        turns[n++] = s->turns[i];
                }
        if (n == 0)
                return;
        kv_seen seen = kv_seen_room(l->kv, n, turns);
        kv_look_at(&seen, layer, n, turns);
        check_seen(l, &seen, layer, turns, of);
        kv_seen_free(&seen);
}

static void cut(owned *o, size_t n)
{
        kv_model_truncate(&o->model, n);
        kv_schedule_truncate(&o->schedule, n);
}

static void step(life *l)
{
        stepping s;
        draw_step(l, &s);
        const bool plans = below(l, 2) == 0, aborts = below(l, 6) == 0;
        const size_t layers = aborts ? below(l, l->config.n_layers + 1) : l->config.n_layers;
        if (s.n == 0)
                return;
        kv_reserve(l->kv, s.n, s.turns);
        for (size_t layer = 0; layer < layers; layer++) {
                kv_append(l->kv, layer, s.n, s.turns);
                for (size_t i = 0; i < s.n; i++)
                        if (s.ends[i])
                                kv_prompt(l->kv, layer, s.turns[i].sequence, &s.data[i], s.turns[i].n);
                if (plans)
                        look_in_step(l, &s, layer);
        }
        if (aborts) {
                int64_t ids[MAX_BATCH];
                for (size_t i = 0; i < s.n; i++)
                        ids[i] = s.turns[i].sequence;
                ck_ok(dci_kv_step_abort(l->kv, s.n, ids));
        } else {
                kv_step_end(l->kv, s.n, s.turns);
        }
        for (size_t i = 0; i < s.n; i++) {
                if (aborts)
                        cut(s.of[i], s.before[i]);
                else if (s.ends[i])
                        s.of[i]->prompted = true;
                if (aborts && s.ends[i]) /* a prompt that has not ended has no lists */
                        kv_schedule_truncate(&s.of[i]->schedule, 0);
                kv_data_free(&s.data[i]);
        }
}

static void look(life *l)
{
        owned *of[MAX_BATCH] = {0};
        kv_turn turns[MAX_BATCH];
        size_t n = 0;
        const size_t drawn = draw_batch(l, of);
        for (size_t i = 0; i < drawn; i++)
                if (of[i]->prompted)
                        of[n++] = of[i];
        if (n == 0)
                return;
        kv_data data = kv_random(&l->config, n, fuzz_next(l->from));
        for (size_t i = 0; i < n; i++)
                turns[i] = (kv_turn){of[i]->id, &data, i, 0};
        kv_seen seen = kv_look(l->kv, n, turns);
        kv_lawful(&seen, &l->config, l->config.frozen_prompt, l->what);
        for (size_t layer = 0; layer < l->config.n_layers; layer++)
                check_seen(l, &seen, layer, turns, of);
        kv_seen_free(&seen);
        kv_data_free(&data);
}

static void maintain(life *l)
{
        owned *of[MAX_BATCH];
        int64_t ids[MAX_BATCH];
        const size_t n = draw_batch(l, of);
        for (size_t i = 0; i < n; i++)
                ids[i] = of[i]->id;
        ck_ok(below(l, 3) == 0 ? dci_kv_maintain(l->kv, 0, NULL) : dci_kv_maintain(l->kv, n, ids));
}

/* A fork, or what is loaded from a file of the first tokens. */
static void fork_one(life *l)
{
        const owned *o = &l->sequences[below(l, l->n)];
        const size_t n = below(l, o->model.n + 1);
        int64_t id = -1;
        if (!o->prompted) {
                ck_refused(dci_kv_fork(l->kv, o->id, n, &id), DCI_ERR_INVALID, "prompt");
                return;
        }
        if (l->n == MAX_SEQUENCES)
                return;
        const bool forks = below(l, 4) > 0;
        if (forks) {
                ck_ok(dci_kv_fork(l->kv, o->id, n, &id));
        } else {
                ck_ok(dci_kv_save(l->kv, o->id, n, scratch_path("sequence")));
                ck_ok(dci_kv_load(l->kv, scratch_path("sequence"), &id));
        }
        l->sequences[l->n++] = (owned){id, true, kv_model_fork(&o->model, n),
                                       forks ? kv_schedule_fork(&o->schedule, n) : kv_schedule_new(&l->config)};
}

/* A sequence and its copy from a file, whose summaries were made again, plan the same. */
static void look_at_twins(life *l)
{
        const owned *o = &l->sequences[below(l, l->n)];
        int64_t id;
        const dci_kv_info info = kv_info(l->kv);
        if (!o->prompted || kv_schedule_keeps(&info)) /* files hold no lists */
                return;
        ck_ok(dci_kv_save(l->kv, o->id, o->model.n, scratch_path("twin")));
        ck_ok(dci_kv_load(l->kv, scratch_path("twin"), &id));
        kv_data data = kv_random(&l->config, 1, fuzz_next(l->from));
        const kv_turn turns[] = {{o->id, &data, 0, 0}, {id, &data, 0, 0}};
        if (kv_sequence_info(l->kv, id).resident == kv_sequence_info(l->kv, o->id).resident) {
                kv_seen seen = kv_look(l->kv, 2, turns);
                kv_same(&seen, 0, &seen, 1, l->what);
                kv_seen_free(&seen);
        }
        ck_ok(dci_kv_close(l->kv, id));
        kv_data_free(&data);
}

/* Every candidate is in one page of its trees. */
static void check_trees(life *l)
{
        const owned *o = &l->sequences[below(l, l->n)];
        if (kv_info(l->kv).group != DCI_KV_GROUP_TREE || !o->prompted)
                return;
        ck_ok(dci_kv_wait(l->kv, o->id));
        kv_tree_check(l->kv, o->id, l->what);
}

static void truncate_one(life *l)
{
        owned *o = &l->sequences[below(l, l->n)];
        const size_t n = o->model.n, least = below(l, 4) == 0 || n < 12 ? 0 : n - 12,
                     left = least + below(l, n - least + 1);
        ck_refused(dci_kv_truncate(l->kv, o->id, n + 1), DCI_ERR_INVALID, "tokens");
        ck_ok(dci_kv_truncate(l->kv, o->id, left));
        cut(o, left);
}

static void close_one(life *l)
{
        const size_t at = below(l, l->n);
        ck_ok(dci_kv_close(l->kv, l->sequences[at].id));
        ck_refused(dci_kv_close(l->kv, l->sequences[at].id), DCI_ERR_NOT_FOUND, "sequence");
        kv_model_free(&l->sequences[at].model);
        kv_schedule_free(&l->sequences[at].schedule);
        l->sequences[at] = l->sequences[--l->n];
}

static void operate(life *l)
{
        const size_t what = below(l, 25);
        if (l->n == 0 || what == 0)
                open_one(l);
        else if (what < 11)
                step(l);
        else if (what < 15)
                look(l);
        else if (what < 18)
                maintain(l);
        else if (what < 20)
                fork_one(l);
        else if (what < 21)
                truncate_one(l);
        else if (what < 22)
                check_rows(l);
        else if (what < 23)
                below(l, 2) == 0 ? check_blocks(l) : check_trees(l);
        else if (what < 24)
                look_at_twins(l);
        else if (below(l, 2) == 0)
                close_one(l);
}

/* The cache checks itself after every operation, now and then all that it has computed. */
static void check(life *l, size_t done)
{
        const int32_t level = done % 8 == 7 ? DCI_CHECK_FULL : DCI_CHECK_STRUCTURE;
        ck_assert_msg(dci_kv_check(l->kv, level, NULL) == DCI_OK, "%s: %s", l->what, dci_last_error());
}

size_t fuzz_kv_life(fuzz_bytes *from, size_t most, const char *what)
{
        life l;
        size_t done = 0;
        begin(&l, from, what);
        for (; done < LIFE && done < most && (done == 0 || !fuzz_ended(from)); done++) {
                operate(&l);
                check(&l, done);
        }
        check_blocks(&l);
        while (l.n > 0)
                close_one(&l);
        const dci_kv_info info = kv_info(l.kv);
        ck_assert_uint_eq(info.n_free_blocks, info.n_blocks);
        ck_assert_uint_eq(info.summary_bytes, 0);
        ck_assert_uint_eq(info.n_sequences, 0);
        dci_kv_destroy(l.kv);
        dci_context_destroy(l.context);
        return done;
}
