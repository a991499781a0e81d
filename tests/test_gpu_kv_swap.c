/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Sequences that are swapped out and in again, memory that is given back, and memory that is short in the middle of a generation: outputs are the
 * CPU's, and to the bit those of a life without any of it.
 */
#include "tests/gpu_kv_fixture.h"
#include "tests/scratch.h"

#include <string.h>

#include "dci/check.h"

enum { N = 900, ROOM = 1 << 20, MOST = 6 };

/* Presets, and with schedules or learned codes of so many bits what they leave out. */
static const struct {
        int32_t preset, schedule, learned;
} more[] = {{DCI_KV_SKETCH, DCI_KV_PERIODIC, 0},       {DCI_KV_SKETCH, DCI_KV_BOUNDARY, 0},
            {DCI_KV_SKETCH, DCI_KV_ANCHOR, 0},         {DCI_KV_SKETCH_LOWBIT, DCI_KV_AHEAD, 0},
            {DCI_KV_SKETCH, DCI_KV_EVERY_STEP, 2},     {DCI_KV_SKETCH, DCI_KV_PERIODIC, 4},
            {DCI_KV_CLUSTERKV, DCI_KV_ANCHOR, 0},      {DCI_KV_LOUISKV, DCI_KV_PERIODIC, 0},
            {DCI_KV_SKETCH_SUMS, DCI_KV_EVERY_STEP, 0}};
enum { N_MORE = sizeof more / sizeof *more, N_KINDS = KV_N_KINDS + N_MORE };

/* Every fourth kind will do for sanitizers and slow devices. */
static bool left_out(int kind)
{
        return test_short() && kind % 4 != 1;
}

static dci_kv_config config_of(int kind)
{
        if (kind < KV_N_KINDS)
                return twin_small(kv_presets[kind]);
        const size_t i = (size_t)(kind - KV_N_KINDS);
        dci_kv_config config = twin_small(more[i].preset);
        config.schedule = more[i].schedule;
        config.period = 5;
        config.tau = 0.02;
        config.anchor_first = 1;
        config.anchor_period = 3;
        if (more[i].learned > 0) {
                config.summary = DCI_KV_SUMMARY_LEARNED;
                config.key_bits = more[i].learned;
        }
        return config;
}

/* The device plans where it can; some pages stay there. */
static dci_gpu_kv_config on_device_for(size_t n, size_t n_pages)
{
        dci_gpu_kv_config config = twin_planned_for(n);
        config.planner = DCI_GPU_PLAN_AUTO;
        config.device_resident_bytes = n_pages * 2 * 8 * 2 * 64 * 4;
        return config;
}

static int64_t save_and_load(twin *t, int64_t sequence, size_t n)
{
        int64_t a = -1, b = -1;
        ck_ok(dci_gpu_kv_save(t->kv, sequence, n, scratch_path("sequence")));
        ck_ok(dci_gpu_kv_load(t->kv, scratch_path("sequence"), &a));
        if (t->plans && !t->kv->planner.clustered)
                ck_ok(dci_kv_maintain(t->cpu, 1, &sequence));
        ck_ok(dci_kv_save(t->cpu, sequence, n, scratch_path("other")));
        ck_ok(dci_kv_load(t->cpu, scratch_path("other"), &b));
        ck_assert_int_eq(a, b);
        return a;
}

/* --- a life with and without -------------------------------------------------------------------------------------------------- */

typedef struct life {
        twin t;
        bool swaps;
        kv_data data[3];
        kv_turn at[MOST]; /* where each sequence is */
} life;

static void out(life *l, size_t i)
{
        if (!l->swaps)
                return;
        ck_ok(dci_gpu_kv_swap_out(l->t.kv, l->at[i].sequence));
        ck_assert_ptr_null(dci_gpu_kv_find(l->t.kv, l->at[i].sequence));
        ck_ok(dci_gpu_kv_trim(l->t.kv, DCI_GPU_TRIM_ALL));
        twin_poison(&l->t);
}

static void in(life *l, size_t i)
{
        if (l->swaps)
                ck_ok(dci_gpu_kv_swap_in(l->t.kv, l->at[i].sequence));
}

static void begin(life *l, size_t i, size_t data, size_t n, size_t chunk)
{
        l->at[i] = (kv_turn){twin_prefill(&l->t, &l->data[data], n, chunk), &l->data[data], n, 1};
}

static void go(life *l, size_t i, size_t n)
{
        twin_decode(&l->t, l->at[i].sequence, l->at[i].data, l->at[i].from, n);
        l->at[i].from += n;
}

static void fork_at(life *l, size_t from, size_t to, size_t n)
{
        l->at[to] = (kv_turn){twin_fork(&l->t, l->at[from].sequence, n), &l->data[2], n, 1};
}

static void live(life *l)
{
        begin(l, 0, 0, 700, 0);
        begin(l, 1, 1, 130, 50);
        go(l, 0, 3);
        out(l, 0);
        begin(l, 2, 2, 300, 100); /* in its row */
        go(l, 1, 2);
        go(l, 2, 2);
        in(l, 0);
        go(l, 0, 6);
        out(l, 2);
        out(l, 1);
        begin(l, 3, 0, 620, 0);
        out(l, 3); /* with what its prompt gave still to be built */
        in(l, 1);
        go(l, 1, 3);
        fork_at(l, 3, 4, 560);
        go(l, 4, 4);
        in(l, 3);
        go(l, 3, 5);
        twin_close(&l->t, l->at[4].sequence);
        out(l, 3);
        fork_at(l, 3, 4, 555);
        go(l, 4, 3);
        twin_close(&l->t, l->at[4].sequence);
        l->at[4] = (kv_turn){save_and_load(&l->t, l->at[3].sequence, 610), &l->data[1], 610, 1};
        go(l, 4, 3);
        in(l, 3);
        go(l, 3, 3);
        twin_close(&l->t, l->at[2].sequence);
        twin_truncate(&l->t, l->at[0].sequence, l->at[0].from -= 20);
        out(l, 0);
        out(l, 4);
        in(l, 4);
        in(l, 0);
        go(l, 0, 20);
        go(l, 4, 2);
        begin(l, 2, 1, 560, 200);
        out(l, 2);
        l->at[5] = (kv_turn){save_and_load(&l->t, l->at[2].sequence, 540), &l->data[2], 540, 1};
        in(l, 2);
        go(l, 2, 3);
        go(l, 5, 2);
        go(l, 1, 10);
        /* Nothing is left but the transforms of a prompt's codes. */
        twin_truncate(&l->t, l->at[3].sequence, 20);
        out(l, 3);
        twin_close(&l->t, l->at[0].sequence);
        begin(l, 0, 2, 400, 0);
        in(l, 3);
        l->at[3] = (kv_turn){l->at[3].sequence, &l->data[1], 20, 60};
        twin_step(&l->t, 1, &l->at[3], NULL, true);
        l->at[3].from = 80;
        go(l, 3, 20);
}

static size_t lived(const dci_kv_config *config, size_t n_pages, bool swaps, float *kept)
{
        const dci_gpu_kv_config on_device = on_device_for(MOST, n_pages);
        life l = {.t = twin_begin(config, &on_device), .swaps = swaps};
        l.t.kept = kept;
        l.t.kept_room = ROOM;
        for (size_t i = 0; i < 3; i++)
                l.data[i] = kv_random(config, N, 60 + i);
        live(&l);
        const size_t n = l.t.n_kept;
        ck_assert(l.t.kv->swapped == NULL);
        for (size_t i = 0; i < MOST; i++)
                twin_close(&l.t, l.at[i].sequence);
        ck_ok(dci_gpu_kv_trim(l.t.kv, DCI_GPU_TRIM_ALL));
        const dci_kv_info info = kv_info(l.t.kv->host);
        ck_assert_uint_eq(info.n_blocks, 0);
        ck_assert_uint_eq(info.row_bytes, 0);
        ck_assert_uint_eq(twin_info(&l.t).summary_bytes, 0);
        ck_assert_uint_eq(twin_info(&l.t).dense_bytes, 0);
        for (size_t i = 0; i < 3; i++)
                kv_data_free(&l.data[i]);
        twin_end(&l.t);
        return n;
}

/* Loops over kinds. */
START_TEST(sequences_go_on_as_if_they_had_stayed)
{
        if (left_out(_i))
                return;
        dci_kv_config config = config_of(_i);
        float *with = calloc(ROOM, sizeof *with), *without = calloc(ROOM, sizeof *without);
        ck_assert(with != NULL && without != NULL);
        config.refit = 0.0; /* of what a file asks the host for */
        const size_t n = lived(&config, _i % 3 == 0 ? 40 : 0, true, with);
        ck_assert_uint_eq(lived(&config, 0, false, without), n);
        ck_assert_uint_gt(n, 0);
        ck_assert_mem_eq(with, without, n * sizeof *with);
        test_free(with, without);
}
END_TEST

/* --- memory ------------------------------------------------------------------------------------------------------------------ */

/* Conversations of the same lengths again and again take no more than they took at first. Loops over kinds. */
START_TEST(conversations_come_and_go_without_growth)
{
        if (left_out(_i))
                return;
        static const size_t lengths[] = {300, 560};
        const dci_kv_config config = config_of(_i);
        const dci_gpu_kv_config on_device = on_device_for(2, 0);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N, 70);
        dci_gpu_kv_info first = {0};
        size_t bytes = 0;
        for (size_t i = 0; i < 20; i++) {
                const size_t n = lengths[i % 2];
                const int64_t sequence = twin_prefill(&t, &data, n, i % 4 < 2 ? 0 : 200);
                twin_decode(&t, sequence, &data, n, 2);
                if (i % 5 == 4) {
                        ck_ok(dci_gpu_kv_swap_out(t.kv, sequence));
                        ck_ok(dci_gpu_kv_swap_in(t.kv, sequence));
                        twin_decode(&t, sequence, &data, n + 2, 1);
                }
                twin_close(&t, sequence);
                const dci_gpu_kv_info info = twin_info(&t);
                if (i < 2) {
                        first = info;
                        bytes = kv_info(t.kv->host).bytes;
                }
                ck_assert_uint_le(info.device_bytes, first.device_bytes);
                ck_assert_uint_le(info.pinned_bytes, first.pinned_bytes);
                ck_assert_uint_le(kv_info(t.kv->host).row_bytes, bytes);
        }
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* What is given back is what sequences took; what they use stays. Loops over kinds. */
START_TEST(trims_give_back_what_no_sequence_uses)
{
        if (left_out(_i))
                return;
        const dci_kv_config config = config_of(_i);
        const dci_gpu_kv_config on_device = on_device_for(3, 0);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N, 71), other = kv_random(&config, N, 72);
        const dci_gpu_kv_info empty = twin_info(&t);
        const int64_t a = twin_prefill(&t, &data, 560, 0), b = twin_prefill(&t, &other, 560, 0);
        twin_decode(&t, a, &data, 560, 2);
        twin_decode(&t, b, &other, 560, 2);
        ck_ok(dci_gpu_kv_trim(t.kv, DCI_GPU_TRIM_ALL));
        const dci_gpu_kv_info both = twin_info(&t);
        ck_ok(dci_gpu_kv_trim(t.kv, DCI_GPU_TRIM_ALL));
        ck_assert_uint_eq(twin_info(&t).device_bytes, both.device_bytes);
        twin_close(&t, a); /* whose blocks and chunks have the lower numbers */
        ck_ok(dci_gpu_kv_trim(t.kv, DCI_GPU_TRIM_ALL));
        const dci_gpu_kv_info one = twin_info(&t);
        ck_assert_uint_lt(one.device_bytes, both.device_bytes);
        ck_assert_uint_lt(one.pinned_bytes, both.pinned_bytes);
        ck_assert(both.summary_bytes == 0 || one.summary_bytes < both.summary_bytes);
        ck_assert_uint_lt(one.dense_bytes, both.dense_bytes);
        twin_decode(&t, b, &other, 562, 3);
        ck_ok(dci_gpu_kv_swap_out(t.kv, b));
        ck_ok(dci_gpu_kv_trim(t.kv, DCI_GPU_TRIM_ALL));
        ck_assert_uint_eq(twin_info(&t).device_bytes, empty.device_bytes);
        const int64_t c = twin_prefill(&t, &data, 300, 100);
        twin_decode(&t, c, &data, 300, 2);
        twin_close(&t, c);
        ck_ok(dci_gpu_kv_trim(t.kv, DCI_GPU_TRIM_ALL));
        ck_assert_uint_eq(twin_info(&t).device_bytes, empty.device_bytes);
        ck_ok(dci_gpu_kv_swap_in(t.kv, b));
        twin_decode(&t, b, &other, 565, 3);
        twin_close(&t, b);
        ck_ok(dci_gpu_kv_trim(t.kv, DCI_GPU_TRIM_ALL));
        ck_assert_uint_eq(twin_info(&t).device_bytes, empty.device_bytes);
        ck_assert_uint_eq(twin_info(&t).pinned_bytes, empty.pinned_bytes);
        kv_data_free(&data);
        kv_data_free(&other);
        twin_end(&t);
}
END_TEST

/* More sequences than rows, and more tokens than they would have. */
START_TEST(more_sequences_than_rows)
{
        const dci_kv_config config = twin_small(DCI_KV_SKETCH);
        dci_gpu_kv_config on_device = on_device_for(1, 0);
        on_device.max_tokens = 160;
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N, 73);
        int64_t sequences[8], refused;
        for (size_t i = 0; i < 8; i++) {
                sequences[i] = twin_prefill(&t, &data, 100 + i, 0);
                twin_decode(&t, sequences[i], &data, 100 + i, 2);
                ck_ok(dci_gpu_kv_swap_out(t.kv, sequences[i]));
        }
        for (size_t round = 0; round < 2; round++)
                for (size_t i = 0; i < 8; i++) {
                        const size_t at = (3 * i) % 8;
                        ck_ok(dci_gpu_kv_swap_in(t.kv, sequences[at]));
                        twin_decode(&t, sequences[at], &data, 102 + at + 3 * round, 3);
                        ck_refused(dci_gpu_kv_swap_in(t.kv, sequences[(at + 1) % 8]), DCI_ERR_FULL, "max_sequences");
                        ck_refused(dci_gpu_kv_fork(t.kv, sequences[(at + 1) % 8], 50, &refused), DCI_ERR_FULL,
                                   "max_sequences");
                        ck_ok(dci_gpu_kv_swap_out(t.kv, sequences[at]));
                }
        ck_assert_uint_eq(kv_info(t.kv->host).n_sequences, 8);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* --- short memory in the middle ------------------------------------------------------------------------------------------------ */

/* What a refused call must leave as it was. */
typedef struct figures {
        dci_kv_sequence_info of[2];
        size_t in_use, n_steps;
} figures;

static figures figures_of(const twin *t, const int64_t *sequences, size_t n)
{
        figures f;
        memset(&f, 0, sizeof f);
        const dci_kv_info info = kv_info(t->kv->host);
        f.in_use = info.n_blocks - info.n_free_blocks;
        f.n_steps = (size_t)t->kv->n_steps;
        for (size_t i = 0; i < n; i++) {
                f.of[i] = kv_sequence_info(t->kv->host, sequences[i]);
                f.of[i].n_grouped = f.of[i].n_batches = f.of[i].n_early = 0; /* what the host has built stays */
        }
        return f;
}

/* A step of one sequence, or false if there is no memory for it, and then nothing has changed. */
static bool step(twin *t, const kv_turn *turn, const int64_t *sequences, size_t n_sequences)
{
        const figures before = figures_of(t, sequences, n_sequences);
        const dci_status status = dci_gpu_kv_reserve(t->kv, t->stream, 1, &turn->sequence, &turn->n);
        if (status != DCI_OK) {
                ck_assert_int_eq(status, DCI_ERR_FULL);
                const figures after = figures_of(t, sequences, n_sequences);
                ck_assert_mem_eq(&before, &after, sizeof after);
                return false;
        }
        if (t->plans)
                ck_ok(dci_kv_maintain(t->cpu, 1, &turn->sequence));
        kv_reserve(t->cpu, 1, turn);
        for (size_t l = 0; l < t->config.n_layers; l++) {
                twin_append(t, l, 1, turn);
                twin_look(t, l, 1, turn);
        }
        twin_step_end(t, 1, turn);
        const dci_status maintained = t->plans ? DCI_ERR_FULL : dci_gpu_kv_maintain(t->kv, 0, NULL);
        ck_assert(maintained == DCI_OK || maintained == DCI_ERR_FULL);
        if (maintained == DCI_OK)
                ck_ok(dci_kv_maintain(t->cpu, 0, NULL));
        return true;
}

/* Steps of n tokens until one is refused; how many there were. */
static size_t run_dry(twin *t, kv_turn *turn, size_t n, const int64_t *sequences)
{
        size_t steps = 0;
        turn->n = n;
        while (step(t, turn, sequences, 2)) {
                ck_assert_uint_lt(steps++, 60);
                turn->from += n;
        }
        ck_assert(!step(t, turn, sequences, 2));
        return steps;
}

/* Sequence a runs out of memory, of the device or of the host, in single steps or in long ones; then b makes room. Loops over kinds, and over
 * these four. */
static void run_out(int kind, bool of_device, size_t n)
{
        const dci_kv_config config = config_of(kind);
        const dci_gpu_kv_config on_device = on_device_for(2, 0);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N + 600, 74), other = kv_random(&config, N, 75);
        kv_turn a = {twin_prefill(&t, &data, 530, 0), &data, 530, 1}, b = {-1, &other, 560, 1};
        b.sequence = twin_prefill(&t, &other, 560, 0);
        const int64_t sequences[] = {a.sequence, b.sequence};
        ck_assert(step(&t, &b, sequences, 2) && step(&t, &a, sequences, 2));
        a.from++, b.from++;
        ck_ok(dci_gpu_kv_trim(t.kv, DCI_GPU_TRIM_ALL));
        if (of_device)
                t.kv->config.max_device_bytes = t.kv->device_bytes;
        else
                t.kv->host->config.max_bytes = atomic_load(&t.kv->host->bytes);
        run_dry(&t, &a, n, sequences);
        ck_assert(strstr(dci_last_error(), of_device ? "max_device_bytes" : "max_bytes") != NULL);
        if (of_device) {
                ck_ok(dci_gpu_kv_swap_out(t.kv, b.sequence));
                ck_ok(dci_gpu_kv_trim(t.kv, DCI_GPU_TRIM_ALL));
        } else {
                twin_close(&t, b.sequence);
                ck_ok(dci_gpu_kv_trim(t.kv, DCI_GPU_TRIM_ALL));
                t.kv->host->config.max_bytes += 600000; /* for what clustering takes while it runs */
        }
        for (size_t i = 0; i < 3; i++, a.from += a.n)
                ck_assert_msg(step(&t, &a, sequences, 1), "%s", dci_last_error());
        if (of_device) {
                const figures before = figures_of(&t, sequences, 2);
                const size_t bytes = t.kv->device_bytes;
                t.kv->config.max_device_bytes = bytes;
                ck_refused(dci_gpu_kv_swap_in(t.kv, b.sequence), DCI_ERR_FULL, "max_device_bytes");
                const figures after = figures_of(&t, sequences, 2);
                ck_assert_mem_eq(&before, &after, sizeof after);
                twin_close(&t, a.sequence);
                ck_ok(dci_gpu_kv_trim(t.kv, DCI_GPU_TRIM_ALL));
                t.kv->config.max_device_bytes = bytes + 1000000;
                ck_ok(dci_gpu_kv_swap_in(t.kv, b.sequence));
                b.n = 1;
                for (size_t i = 0; i < 3; i++, b.from++)
                        ck_assert(step(&t, &b, sequences + 1, 1));
        }
        kv_data_free(&data);
        kv_data_free(&other);
        twin_end(&t);
}

START_TEST(generations_go_on_when_there_is_room_again)
{
        if (left_out(_i))
                return;
        run_out(_i, true, 1);
        run_out(_i, true, 37);
        run_out(_i, false, 1);
        run_out(_i, false, 37);
}
END_TEST

/* Room on the device for blocks of dense layers, but for no summaries. */
static void leave_room(twin *t, size_t n_blocks)
{
        ck_ok(dci_gpu_kv_trim(t->kv, DCI_GPU_TRIM_ALL));
        t->kv->config.max_device_bytes = t->kv->device_bytes + n_blocks * t->kv->pool->dense_piece_bytes;
}

static void make_room(twin *t, int64_t other)
{
        ck_ok(dci_gpu_kv_swap_out(t->kv, other));
        ck_ok(dci_gpu_kv_trim(t->kv, DCI_GPU_TRIM_ALL));
        t->kv->config.max_device_bytes = t->kv->device_bytes + 2000000;
}

/* Prompts that are refused, or for whose summaries there is no room: in one step, or in two. Loops over kinds. */
START_TEST(prompts_go_on_when_there_is_room_again)
{
        if (left_out(_i))
                return;
        const dci_kv_config config = config_of(_i);
        const dci_gpu_kv_config on_device = on_device_for(2, 0);
        const bool end = true;
        for (size_t first = 0; first <= 304; first += 304) {
                twin t = twin_begin(&config, &on_device);
                kv_data data = kv_random(&config, N, 76), other = kv_random(&config, N, 77);
                const int64_t b = twin_prefill(&t, &other, 560, 0), a = twin_open(&t);
                if (first > 0)
                        twin_step(&t, 1, &(kv_turn){a, &data, 0, first}, NULL, false);
                const kv_turn turn = {a, &data, first, 600 - first};
                leave_room(&t, first > 0 ? (600 - first) / 8 : 0);
                const figures before = figures_of(&t, &a, 1);
                const dci_status status = dci_gpu_kv_reserve(t.kv, t.stream, 1, &a, &turn.n);
                ck_assert(status == DCI_ERR_FULL || (status == DCI_OK && first > 0));
                if (status == DCI_OK)
                        ck_ok(dci_gpu_kv_step_abort(t.kv));
                const figures after = figures_of(&t, &a, 1);
                ck_assert(status == DCI_OK || memcmp(&before, &after, sizeof after) == 0);
                if (status != DCI_OK)
                        make_room(&t, b);
                twin_step(&t, 1, &turn, &end, false);
                leave_room(&t, 0);
                ck_assert_int_eq(dci_gpu_kv_reserve(t.kv, t.stream, 1, &a, NULL), DCI_ERR_FULL);
                if (status == DCI_OK)
                        make_room(&t, b);
                t.kv->config.max_device_bytes = 0;
                twin_decode(&t, a, &data, 600, 4);
                kv_data_free(&data);
                kv_data_free(&other);
                twin_end(&t);
        }
}
END_TEST

/* A piece has blocks of a sequence that is swapped out, and free ones: dense layers' part of it is gone, and comes back with the next step in
 * such a block, a fork, or the sequence itself. */
START_TEST(free_blocks_in_pieces_of_swapped_sequences)
{
        const dci_kv_config config = twin_small(DCI_KV_SKETCH);
        dci_gpu_kv_config on_device = on_device_for(2, 0);
        on_device.piece_bytes = 100000; /* some 8 blocks */
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N, 81), other = kv_random(&config, N, 82);
        const int64_t a = twin_prefill(&t, &data, 203, 0), b = twin_open(&t);
        const size_t n = 10;
        int64_t fork = -1;
        ck_ok(dci_gpu_kv_swap_out(t.kv, a));
        ck_ok(dci_gpu_kv_trim(t.kv, DCI_GPU_TRIM_ALL));
        ck_assert_uint_gt(t.kv->pool->n_dense_gaps, 1);
        ck_assert_uint_gt(kv_info(t.kv->host).n_free_blocks, 2);
        t.kv->config.max_device_bytes = t.kv->device_bytes;
        const int64_t both[] = {a, b};
        const figures before = figures_of(&t, both, 2);
        ck_refused(dci_gpu_kv_reserve(t.kv, t.stream, 1, &b, &n), DCI_ERR_FULL, "max_device_bytes");
        ck_refused(dci_gpu_kv_fork(t.kv, a, 203, &fork), DCI_ERR_FULL, "max_device_bytes");
        ck_refused(dci_gpu_kv_swap_in(t.kv, a), DCI_ERR_FULL, "max_device_bytes");
        const figures after = figures_of(&t, both, 2);
        ck_assert_mem_eq(&before, &after, sizeof after);
        t.kv->config.max_device_bytes = 0;
        const size_t gaps = t.kv->pool->n_dense_gaps;
        const bool end = true;
        twin_step(&t, 1, &(kv_turn){b, &other, 0, n}, &end, true);
        ck_assert_uint_eq(t.kv->pool->n_dense_gaps, gaps - 1);
        twin_decode(&t, b, &other, n, 3);
        ck_ok(dci_gpu_kv_swap_in(t.kv, a));
        ck_assert_uint_eq(t.kv->pool->n_dense_gaps, 0);
        twin_decode(&t, a, &data, 203, 3);
        twin_decode(&t, b, &other, n + 3, 3);
        ck_ok(dci_kv_check(t.kv->host, DCI_CHECK_STRUCTURE, NULL));
        kv_data_free(&data);
        kv_data_free(&other);
        twin_end(&t);
}
END_TEST

/* Host memory for what only the device has. */
START_TEST(a_swap_without_host_memory_is_refused)
{
        const dci_kv_config config = twin_small(DCI_KV_SKETCH);
        const dci_gpu_kv_config on_device = on_device_for(2, 0);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N, 78);
        const int64_t a = twin_prefill(&t, &data, 560, 0);
        twin_decode(&t, a, &data, 560, 2);
        const size_t bytes = atomic_load(&t.kv->host->bytes);
        t.kv->host->config.max_bytes = bytes + 70000;
        ck_refused(dci_gpu_kv_swap_out(t.kv, a), DCI_ERR_FULL, "max_bytes");
        ck_assert_uint_eq(atomic_load(&t.kv->host->bytes), bytes);
        twin_decode(&t, a, &data, 562, 2);
        t.kv->host->config.max_bytes = 0;
        ck_ok(dci_gpu_kv_swap_out(t.kv, a));
        ck_assert_uint_gt(atomic_load(&t.kv->host->bytes), bytes + 70000);
        ck_ok(dci_gpu_kv_swap_in(t.kv, a));
        ck_assert_uint_eq(atomic_load(&t.kv->host->bytes), bytes);
        /* What the host has is not copied. */
        ck_ok(dci_gpu_kv_maintain(t.kv, 1, &a));
        const size_t maintained = atomic_load(&t.kv->host->bytes);
        ck_ok(dci_gpu_kv_swap_out(t.kv, a));
        ck_assert_uint_lt(atomic_load(&t.kv->host->bytes), maintained + 2000);
        ck_ok(dci_gpu_kv_swap_in(t.kv, a));
        twin_decode(&t, a, &data, 564, 4);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* --- bad input ------------------------------------------------------------------------------------------------------------------ */

START_TEST(bad_calls_are_refused)
{
        const dci_kv_config config = twin_small(DCI_KV_SKETCH);
        const dci_gpu_kv_config on_device = on_device_for(2, 0);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N, 79);
        const int64_t a = twin_prefill(&t, &data, 200, 0), b = twin_prefill(&t, &data, 210, 0);
        int32_t bad = 7;
        ck_refused(dci_gpu_kv_swap_out(NULL, a), DCI_ERR_INVALID, "kv is NULL");
        ck_refused(dci_gpu_kv_swap_in(NULL, a), DCI_ERR_INVALID, "kv is NULL");
        ck_refused(dci_gpu_kv_trim(NULL, DCI_GPU_TRIM_ALL), DCI_ERR_INVALID, "kv is NULL");
        ck_refused(dci_gpu_kv_swap_out(t.kv, 99), DCI_ERR_NOT_FOUND, "no sequence 99");
        ck_refused(dci_gpu_kv_swap_in(t.kv, -1), DCI_ERR_NOT_FOUND, "no sequence -1");
        ck_refused(dci_gpu_kv_swap_in(t.kv, a), DCI_ERR_INVALID, "is not swapped out");
        ck_ok(dci_gpu_kv_swap_out(t.kv, a));
        ck_refused(dci_gpu_kv_swap_out(t.kv, a), DCI_ERR_INVALID, "is swapped out already");
        ck_refused(dci_gpu_kv_reserve(t.kv, t.stream, 1, &a, NULL), DCI_ERR_INVALID, "dci_gpu_kv_swap_in");
        ck_refused(dci_gpu_kv_truncate(t.kv, a, 100), DCI_ERR_INVALID, "dci_gpu_kv_swap_in");
        ck_refused(dci_gpu_kv_maintain(t.kv, 1, &a), DCI_ERR_INVALID, "dci_gpu_kv_swap_in");
        ck_ok(dci_gpu_kv_maintain(t.kv, 0, NULL));
        ck_ok(dci_gpu_poll(t.kv, 1, &a, &bad));
        ck_assert_int_eq(bad, 0);
        ck_assert_uint_eq(kv_sequence_info(t.kv->host, a).n_tokens, 200);
        twin_check_rows(&t, a, &data, 0, 200);
        const kv_turn turn = {b, &data, 210, 1};
        twin_reserve(&t, 1, &turn);
        ck_refused(dci_gpu_kv_swap_out(t.kv, b), DCI_ERR_INVALID, "in the middle of a step");
        ck_refused(dci_gpu_kv_trim(t.kv, DCI_GPU_TRIM_ALL), DCI_ERR_INVALID, "a step is open");
        ck_ok(dci_gpu_kv_swap_in(t.kv, a)); /* beside the step of another one */
        ck_ok(dci_gpu_kv_swap_out(t.kv, a));
        for (size_t l = 0; l < config.n_layers; l++) {
                twin_append(&t, l, 1, &turn);
                twin_look(&t, l, 1, &turn);
        }
        ck_refused(dci_gpu_kv_prompt_rows(t.kv, t.stream, 0, a, NULL), DCI_ERR_INVALID, "dci_gpu_kv_swap_in");
        twin_step_end(&t, 1, &turn);
        ck_ok(dci_gpu_kv_swap_in(t.kv, a));
        twin_decode(&t, a, &data, 200, 3);
        twin_decode(&t, b, &data, 211, 3);
        ck_ok(dci_gpu_kv_swap_out(t.kv, a)); /* what is swapped out ends with the object */
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* Rows with NaN stay known. Loops over kinds. */
START_TEST(bad_rows_are_known_after_a_swap)
{
        if (left_out(_i))
                return;
        const dci_kv_config config = config_of(_i);
        const dci_gpu_kv_config on_device = on_device_for(2, 0);
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, N, 80);
        const int64_t good = twin_prefill(&t, &data, 200, 0), sequence = twin_open(&t);
        const size_t n = 3, row = config.n_kv_heads * config.dim_k * 2;
        unsigned char *rows = twin_send(&t, NULL, n * row);
        int32_t bad = 0;
        ck_ok(t.ops->fill(t.gpu, t.stream, rows, 0xff, n * row));
        ck_ok(dci_gpu_kv_reserve(t.kv, t.stream, 1, &sequence, &n));
        for (size_t l = 0; l < config.n_layers; l++) {
                const dci_kv_rows all = {.struct_size = sizeof all, .keys = rows, .values = rows};
                ck_ok(dci_gpu_kv_append(t.kv, t.stream, l, &all));
        }
        ck_ok(dci_gpu_kv_step_end(t.kv, t.stream));
        for (size_t i = 0; i < 3; i++) {
                ck_ok(dci_gpu_kv_sync(t.kv));
                ck_ok(dci_gpu_poll(t.kv, 1, &sequence, &bad));
                ck_assert_int_eq(bad, 1);
                ck_ok(i % 2 == 0 ? dci_gpu_kv_swap_out(t.kv, sequence) : dci_gpu_kv_swap_in(t.kv, sequence));
        }
        ck_ok(dci_gpu_kv_close(t.kv, sequence));
        twin_decode(&t, good, &data, 200, 3);
        twin_give(&t, rows, n * row);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("gpu kv swap");
        TCase *swap = test_case_with(suite, "swap", 60, scratch_open, scratch_close);
        tcase_add_loop_test(swap, sequences_go_on_as_if_they_had_stayed, 0, N_KINDS);
        tcase_add_test(swap, more_sequences_than_rows);
        tcase_add_test(swap, bad_calls_are_refused);
        tcase_add_loop_test(swap, bad_rows_are_known_after_a_swap, 0, N_KINDS);
        TCase *memory = test_case_with(suite, "memory", 60, scratch_open, scratch_close);
        tcase_add_loop_test(memory, conversations_come_and_go_without_growth, 0, N_KINDS);
        tcase_add_loop_test(memory, trims_give_back_what_no_sequence_uses, 0, N_KINDS);
        tcase_add_loop_test(memory, generations_go_on_when_there_is_room_again, 0, N_KINDS);
        tcase_add_loop_test(memory, prompts_go_on_when_there_is_room_again, 0, N_KINDS);
        tcase_add_test(memory, free_blocks_in_pieces_of_swapped_sequences);
        tcase_add_test(memory, a_swap_without_host_memory_is_refused);
        return test_main(suite);
}
