/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What a KV cache on a device keeps of what it fetched, however it fetches; and what of a plan is read in host memory. */
#include "tests/gpu_kv_fixture.h"

#include <string.h>

enum { PROMPT = 500, STEPS = 24, ROOM = 1 << 20 };

/* All that is seen of a life. Free with free(). */
static float *life(const dci_kv_config *config, const dci_gpu_kv_config *on_device, dci_gpu_kv_info *out_info)
{
        float *out = calloc(ROOM, sizeof *out);
        ck_assert_ptr_nonnull(out);
        twin t = twin_begin(config, on_device);
        t.kept = out;
        t.kept_room = ROOM;
        kv_data data = kv_random(config, PROMPT + 2 * STEPS, 91);
        const int64_t sequence = twin_prefill(&t, &data, PROMPT, 0), fork = twin_fork(&t, sequence, PROMPT - 40);
        for (size_t s = 0; s < STEPS; s++) {
                const kv_turn turns[] = {{fork, &data, PROMPT - 40 + s, 1}, {sequence, &data, PROMPT + s, 1}};
                twin_step(&t, 2, turns, NULL, true);
                if (s == STEPS / 2) {
                        twin_truncate(&t, fork, 300);
                        twin_step(&t, 1, &(kv_turn){fork, &data, 300, PROMPT - 40 + s + 1 - 300}, NULL, true);
                }
        }
        ck_assert_uint_gt(t.n_looked, 0);
        *out_info = twin_info(&t);
        kv_data_free(&data);
        twin_end(&t);
        return out;
}

static const int32_t presets[] = {DCI_KV_SKETCH, DCI_KV_QUEST, DCI_KV_ARKVALE, DCI_KV_SKETCH_SUMS, DCI_KV_PRKV,
                                  DCI_KV_TOPK,
                                  /* with lists of query heads */
                                  DCI_KV_TOPK, DCI_KV_QUEST, DCI_KV_ICECACHE};
enum { N_PRESETS = 6, N_WITH_LISTS = 9 };

/* Loops over presets. */
START_TEST(every_way_to_fetch_gives_the_same_bits)
{
        static const size_t hots[] = {DCI_KV_PRESET, 40, 8, 0};
        dci_kv_config config = twin_small(presets[_i]);
        config.query_head_lists = _i >= N_PRESETS;
        for (size_t h = 0; h < sizeof hots / sizeof *hots; h++) {
                dci_gpu_kv_config on_device = twin_on_device();
                dci_gpu_kv_info info, other;
                on_device.max_sequences = 2;
                on_device.hot_tokens = hots[h];
                float *wanted = life(&config, &on_device, &info);
                for (on_device.gather = 1; on_device.gather <= DCI_GPU_GATHERS; on_device.gather++) {
                        float *got = life(&config, &on_device, &other);
                        ck_assert_msg(memcmp(got, wanted, ROOM * sizeof *got) == 0, "%s, gather %d, hot %zu",
                                      dci_kv_preset_name(presets[_i]), (int)on_device.gather, hots[h]);
                        if (on_device.gather != DCI_GPU_GATHER_DIRECT) {
                                ck_assert_uint_eq(other.n_asked, info.n_asked);
                                ck_assert_uint_eq(other.n_missed, info.n_missed);
                                ck_assert_uint_eq(other.n_stayed, info.n_stayed);
                                ck_assert_uint_eq(other.bytes_fetched, info.bytes_fetched);
                        } else {
                                ck_assert_uint_eq(other.hot, 0);
                                ck_assert_uint_eq(other.n_missed, 0);
                                ck_assert_uint_gt(other.n_stayed, 0);
                        }
                        free(got);
                }
                ck_assert(hots[h] != 0 || info.n_missed == 0);
                ck_assert(hots[h] != 8 || info.n_stayed > 0);
                free(wanted);
        }
}
END_TEST

/* --- residency ------------------------------------------------------------------------------------------------------------- */

enum { MAX_LANES = 6, MAX_FRAMES = 256 };

/* Naive: frames of one lane. */
typedef struct lane_model {
        size_t n_frames, n_asked, n_missed, n_stayed;
        int32_t units[MAX_FRAMES];
        size_t used[MAX_FRAMES];
} lane_model;

static size_t holder(const lane_model *m, int32_t unit)
{
        size_t f = 0;
        while (f < m->n_frames && m->units[f] != unit)
                f++;
        return f;
}

static bool listed(const int32_t *list, size_t n, int32_t unit, int32_t shift)
{
        for (size_t i = 0; i < n; i++)
                if (list[i] >> shift == unit)
                        return true;
        return false;
}

/* The frame whose unit was used the longest time ago, an empty one first, but none that this list needs. */
static size_t victim(const lane_model *m, const int32_t *list, size_t n, int32_t shift)
{
        size_t best = m->n_frames;
        for (size_t f = 0; f < m->n_frames; f++) {
                if (m->units[f] >= 0 && listed(list, n, m->units[f], shift))
                        continue;
                const size_t age = m->units[f] < 0 ? 0 : m->used[f];
                if (best == m->n_frames || age < (m->units[best] < 0 ? 0 : m->used[best]))
                        best = f;
        }
        return best;
}

static void lane_step(lane_model *m, const int32_t *list, size_t n, int32_t shift, size_t now)
{
        for (size_t i = 0; i < n; i++) {
                const int32_t unit = list[i] >> shift;
                if (i > 0 && list[i - 1] >> shift == unit)
                        continue;
                m->n_asked++;
                if (holder(m, unit) < m->n_frames)
                        m->used[holder(m, unit)] = now;
        }
        for (size_t i = 0; i < n; i++) {
                const int32_t unit = list[i] >> shift;
                if (holder(m, unit) < m->n_frames)
                        continue;
                const size_t f = victim(m, list, n, shift);
                if (f == m->n_frames) {
                        m->n_stayed++;
                        continue;
                }
                m->units[f] = unit;
                m->used[f] = now;
                m->n_missed++;
        }
}

/* Loops over presets: those of tokens, and those of pages. */
START_TEST(what_was_fetched_stays_while_it_is_used)
{
        static const size_t hots[] = {DCI_KV_PRESET, 24};
        const dci_kv_config config = twin_small(presets[_i]);
        for (size_t k = 0; k < 2; k++) {
                dci_gpu_kv_config on_device = twin_on_device();
                on_device.hot_tokens = hots[k];
                twin t = twin_begin(&config, &on_device);
                kv_data data = kv_random(&config, 700, 92);
                const int64_t sequence = twin_prefill(&t, &data, PROMPT, 0);
                const size_t n_lanes = config.n_layers * config.n_kv_heads, n_frames = t.kv->n_frames;
                lane_model lanes[MAX_LANES];
                memset(lanes, 0xff, sizeof lanes);
                ck_assert(n_lanes == MAX_LANES && n_frames > 0 && n_frames <= MAX_FRAMES);
                for (size_t i = 0; i < MAX_LANES; i++) {
                        lanes[i].n_frames = n_frames;
                        lanes[i].n_asked = lanes[i].n_missed = lanes[i].n_stayed = 0;
                }
                for (size_t s = 0; s < 40; s++) {
                        const kv_turn turn = {sequence, &data, PROMPT + s, 1};
                        twin_reserve(&t, 1, &turn);
                        for (size_t l = 0; l < config.n_layers; l++) {
                                twin_append(&t, l, 1, &turn);
                                twin_look(&t, l, 1, &turn);
                                const dci_kv_plan *plan = &t.kv->layers[l].plan;
                                for (size_t h = 0; h < config.n_kv_heads && !t.kv->layers[l].dense; h++)
                                        lane_step(&lanes[l * config.n_kv_heads + h], plan->positions + h * plan->stride,
                                                  (size_t)plan->counts[h], t.kv->unit_shift, s + 1);
                        }
                        twin_step_end(&t, 1, &turn);
                }
                size_t asked = 0, missed = 0, stayed = 0;
                for (size_t i = 0; i < MAX_LANES; i++) {
                        asked += lanes[i].n_asked;
                        missed += lanes[i].n_missed;
                        stayed += lanes[i].n_stayed;
                }
                const dci_gpu_kv_info info = twin_info(&t);
                ck_assert_uint_eq(info.n_asked, asked);
                ck_assert_uint_eq(info.n_missed, missed);
                ck_assert_uint_eq(info.n_stayed, stayed);
                ck_assert_uint_eq(info.bytes_fetched, (missed * info.unit_tokens + stayed) * 2 * config.dim_k * 2);
                kv_data_free(&data);
                twin_end(&t);
        }
}
END_TEST

/* Groups of pages are fetched by what divides a page and the sink. */
START_TEST(units_are_what_pages_are_made_of)
{
        static const struct {
                int32_t preset;
                size_t page, sink, unit;
        } cases[] = {{DCI_KV_ARKVALE, 32, 16, 16}, {DCI_KV_QUEST, 16, 16, 16},  {DCI_KV_QUEST, 16, 0, 16},
                     {DCI_KV_QUEST, 32, 8, 8},     {DCI_KV_QUEST, 16, 4, 4},    {DCI_KV_QUEST, 16, 5, 1},
                     {DCI_KV_SKETCH, 16, 16, 1},   {DCI_KV_ICECACHE, 16, 32, 1}};
        dci_kv_config config = twin_small(cases[_i].preset);
        config.page_tokens = cases[_i].page;
        config.sink = cases[_i].sink;
        const dci_gpu_kv_config on_device = twin_on_device();
        twin t = twin_begin(&config, &on_device);
        ck_assert_uint_eq(twin_info(&t).unit_tokens, cases[_i].unit);
        kv_data data = kv_random(&config, 700, 93);
        twin_decode(&t, twin_prefill(&t, &data, PROMPT, 0), &data, PROMPT, 20);
        ck_assert_uint_gt(t.n_looked, 0);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* A prompt that is frozen, and the tokens after it: more recent ones than the ring holds. */
START_TEST(recent_tokens_beyond_the_ring_are_read_in_host_memory)
{
        dci_kv_config config = twin_small(kv_presets[_i]);
        config.frozen_prompt = 1;
        const dci_gpu_kv_config on_device = twin_on_device();
        twin t = twin_begin(&config, &on_device);
        kv_data data = kv_random(&config, 700, 94);
        const int64_t sequence = twin_prefill(&t, &data, 300, 0);
        twin_step(&t, 1, &(kv_turn){sequence, &data, 300, 170}, NULL, true);
        ck_assert_uint_eq(twin_info(&t).ring, 128);
        twin_decode(&t, sequence, &data, 470, 5);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

/* A larger ring; sequences that are attended to in full while they are resident, and turn sparse. */
START_TEST(rings_and_residents_are_as_on_the_cpu)
{
        dci_kv_config config = twin_small(presets[_i]);
        dci_gpu_kv_config on_device = twin_on_device();
        on_device.ring_tokens = 300;
        on_device.max_sequences = 2;
        config.resident_bytes = (size_t)800 * config.n_layers * config.n_kv_heads * config.dim_k * 4;
        twin t = twin_begin(&config, &on_device);
        ck_assert_uint_eq(twin_info(&t).ring, 512);
        kv_data data = kv_random(&config, 1200, 95);
        const int64_t a = twin_prefill(&t, &data, 600, 0);
        twin_decode(&t, a, &data, 600, 3);
        ck_assert_uint_eq(t.n_looked, 0);
        const int64_t b = twin_prefill(&t, &data, 300, 0);
        twin_decode(&t, a, &data, 603, 3);
        twin_decode(&t, b, &data, 300, 3);
        ck_assert_uint_gt(t.n_looked, 0);
        kv_data_free(&data);
        twin_end(&t);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("gpu kv fetch");
        TCase *fetch = test_case(suite, "fetch", 60);
        tcase_add_loop_test(fetch, every_way_to_fetch_gives_the_same_bits, 0, N_WITH_LISTS);
        tcase_add_loop_test(fetch, what_was_fetched_stays_while_it_is_used, 0, N_PRESETS);
        tcase_add_loop_test(fetch, units_are_what_pages_are_made_of, 0, 8);
        tcase_add_loop_test(fetch, recent_tokens_beyond_the_ring_are_read_in_host_memory, 0, KV_N_KINDS);
        tcase_add_loop_test(fetch, rings_and_residents_are_as_on_the_cpu, 0, N_PRESETS);
        return test_main(suite);
}
