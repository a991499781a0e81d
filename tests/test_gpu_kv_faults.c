/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* A KV cache on a device where something fails: memory of the host or of the device, the lock on it, the device itself. What is refused
 * leaves no trace, and the call made again gives what it would have given. */
#include "tests/gpu_kv_fixture.h"
#include "tests/scratch.h"

#include <string.h>

enum { PROMPT = 140, MORE = 120, LOOKS = 64, MOST = 3 };

/* Sketch by learned codes, of a prompt that is long enough for the device to make them. */
#define CODED 200
#define CODED_PROMPT 620
/* This preset with contiguous copies. */
#define PAGES 300

static const int32_t presets[] = {DCI_KV_SKETCH_LOWBIT,
                                  DCI_KV_ARKVALE,
                                  DCI_KV_PRKV,
                                  DCI_KV_CLUSTERKV,
                                  DCI_KV_RETROINFER,
                                  DCI_KV_FREEKV,
                                  DCI_KV_FULL,
                                  KV_LEARNED,
                                  DCI_KV_LOUISKV,
                                  CODED,
                                  DCI_KV_ICECACHE,
                                  DCI_KV_PARISKV,
                                  PAGES + DCI_KV_CLUSTERKV,
                                  PAGES + DCI_KV_ICECACHE,
                                  PAGES + DCI_KV_PRKV};
enum { N_PRESETS = sizeof presets / sizeof *presets };

/* --- a device that can fail ------------------------------------------------------------------------------------------------------ */

static struct {
        size_t n, at;     /* calls that may fail; the one that does, 1-based; 0: none */
        bool late;        /* counts what runs on the device, not what is taken */
        dci_gpu_ops real; /* what it is made of */
} faulty;

static bool fails(bool late)
{
        return late == faulty.late && ++faulty.n == faulty.at;
}
#define FAULT(late)                                                                                                    \
        if (fails(late))                                                                                               \
        return dci_fail(DCI_ERR_DEVICE, "fault number %zu", faulty.at)

static dci_status faulty_alloc(dci_gpu *gpu, size_t n_bytes, void **out)
{
        FAULT(false);
        return faulty.real.alloc(gpu, n_bytes, out);
}
static dci_status faulty_pin(dci_gpu *gpu, void *memory, size_t n_bytes, void **out)
{
        FAULT(false);
        return faulty.real.pin(gpu, memory, n_bytes, out);
}
static dci_status faulty_event_create(dci_gpu *gpu, bool timed, void **out)
{
        FAULT(false);
        return faulty.real.event_create(gpu, timed, out);
}
static dci_status faulty_stream_create(dci_gpu *gpu, void **out)
{
        FAULT(false);
        return faulty.real.stream_create(gpu, out);
}
static dci_status faulty_copy(dci_gpu *gpu, void *stream, void *to, const void *from, size_t n_bytes)
{
        FAULT(true);
        return faulty.real.copy(gpu, stream, to, from, n_bytes);
}
#define FAULTY_KERNEL(name)                                                                                            \
        static dci_status faulty_##name(dci_gpu *gpu, void *stream, const dci_gpu_##name##_args *args)                 \
        {                                                                                                              \
                FAULT(true);                                                                                           \
                return faulty.real.name(gpu, stream, args);                                                            \
        }
DCI_GPU_EACH_KERNEL(FAULTY_KERNEL)

#define SET(name) ops.name = faulty_##name;

static dci_status faulty_event_wait(dci_gpu *gpu, void *event)
{
        FAULT(true);
        return faulty.real.event_wait(gpu, event);
}
static dci_status faulty_stream_wait(dci_gpu *gpu, void *stream)
{
        FAULT(true);
        return faulty.real.stream_wait(gpu, stream);
}

static dci_gpu *faulty_gpu(dci_context *context, size_t at, bool late)
{
        static dci_gpu_ops ops;
        dci_gpu *gpu = twin_gpu(context);
        faulty.real = ops = *gpu->ops;
        faulty.n = 0;
        faulty.at = at;
        faulty.late = late;
        ops.alloc = faulty_alloc;
        ops.pin = faulty_pin;
        ops.event_create = faulty_event_create;
        ops.stream_create = faulty_stream_create;
        ops.copy = faulty_copy;
        DCI_GPU_EACH_KERNEL(SET)
        ops.event_wait = faulty_event_wait;
        ops.stream_wait = faulty_stream_wait;
        gpu->ops = &ops;
        return gpu;
}

/* --- a life ------------------------------------------------------------------------------------------------------------------------ */

typedef struct life {
        dci_context *context;
        const dci_kv_config *config;
        const kv_data *data;
        dci_gpu *gpu; /* given: that of a life with one of its own is NULL */
        dci_gpu_kv *kv;
        int64_t sequences[MOST];
        size_t n_sequences, tokens[MOST];
        size_t prompt;
        float *outs;
        const float *wanted;
        size_t n_looks, failures;
        dci_status refusal;           /* what calls may be refused with */
        bool ends;                    /* a failure is the end */
        unsigned char *keys, *values; /* of the layer at hand: a prompt's end reads them again */
} life;

static bool failed(life *l, dci_status status, const char *call)
{
        return test_failed_once(status, l->refusal, &l->failures, call);
}

typedef struct figures {
        dci_kv_sequence_info of[MOST];
        size_t n_sequences, in_use, n_rows;
} figures;

static figures figures_of(const life *l)
{
        figures f;
        memset(&f, 0, sizeof f);
        if (l->kv == NULL)
                return f;
        dci_kv *host = dci_gpu_kv_host(l->kv);
        const dci_kv_info info = kv_info(host);
        f.n_sequences = info.n_sequences;
        f.in_use = info.n_blocks - info.n_free_blocks;
        for (size_t i = 0; i < l->n_sequences; i++)
                f.of[i] = kv_sequence_info(host, l->sequences[i]);
        /* Clusters that the host forms for a step stay, whether or not the step has begun. */
        for (size_t i = 0; i < l->n_sequences && l->kv->planner.clustered; i++)
                f.of[i].n_grouped = f.of[i].n_batches = f.of[i].n_early = 0;
        for (size_t r = 0; r < l->kv->config.max_sequences; r++)
                f.n_rows += l->kv->rows[r].id >= 0;
        return f;
}

/* Calls until it succeeds; after a failure everything is as before. Where a failure is the end, the rest of the life falls away. */
#define TRY(call)                                                                                                      \
        do {                                                                                                           \
                const figures before = figures_of(l);                                                                  \
                while (failed(l, call, #call)) {                                                                       \
                        if (l->ends)                                                                                   \
                                return false;                                                                          \
                        const figures after = figures_of(l);                                                           \
                        ck_assert_msg(memcmp(&before, &after, sizeof after) == 0, "%s has left a trace", #call);       \
                }                                                                                                      \
        } while (0)

/* The host device reads rows where they are. */
static bool append(life *l, size_t layer, const size_t *from)
{
        const kv_data *d = l->data;
        const size_t row = d->n_kv_heads * d->dim_k * 2;
        test_free(l->keys, l->values);
        unsigned char *keys = l->keys = malloc(MOST * l->prompt * row),
                      *values = l->values = malloc(MOST * l->prompt * row);
        ck_assert(keys != NULL && values != NULL);
        size_t at = 0;
        for (size_t i = 0; i < l->kv->step.n; i++) {
                const size_t n = l->kv->step.wanted[i], first = (layer * d->n + from[i]) * row;
                memcpy(keys + at * row, (const char *)d->stored_keys + first, n * row);
                memcpy(values + at * row, (const char *)d->stored_values + first, n * row);
                at += n;
        }
        dci_kv_rows rows;
        ck_ok(dci_kv_rows_init(&rows, sizeof rows));
        rows.keys = keys;
        rows.values = values;
        const bool bad = failed(l, dci_gpu_kv_append(l->kv, NULL, layer, &rows), "append");
        ck_assert(!bad || l->ends); /* it takes no memory */
        return !bad;
}

static bool prefill(life *l)
{
        const size_t n = l->prompt, from = 0;
        TRY(dci_gpu_kv_reserve(l->kv, NULL, 1, l->sequences, &n));
        for (size_t layer = 0; layer < l->config->n_layers; layer++) {
                if (!append(l, layer, &from))
                        return false;
                TRY(dci_gpu_kv_end_prompt(l->kv, NULL, layer, l->sequences[0], 20,
                                          (const char *)l->data->stored_queries +
                                                  (layer * l->data->n + n - 20) * l->config->n_query_heads *
                                                          l->data->dim_k * sizeof(float),
                                          l->data->dim_k));
        }
        TRY(dci_gpu_kv_step_end(l->kv, NULL));
        TRY(dci_gpu_kv_sync(l->kv));
        l->tokens[0] = n;
        return true;
}

static bool step(life *l)
{
        kv_turn turns[MOST];
        size_t from[MOST] = {0};
        const size_t n = l->n_sequences, floats = n * l->config->n_query_heads * l->data->dim_v;
        test_hold(n > 0);
        for (size_t i = 0; i < n; i++) {
                from[i] = l->tokens[i]++;
                turns[i] = (kv_turn){l->sequences[i], l->data, from[i], 1};
        }
        TRY(dci_gpu_kv_reserve(l->kv, NULL, n, l->sequences, NULL));
        for (size_t layer = 0; layer < l->config->n_layers; layer++) {
                float *out = l->outs + l->n_looks * MOST * floats / n;
                void *queries = kv_queries(layer, n, turns);
                const size_t dim = l->data->dim_k;
                bool good = append(l, layer, from);
                good = good && !failed(l, dci_gpu_kv_plan(l->kv, NULL, layer, queries, dim), "plan");
                good = good &&
                       !failed(l, dci_gpu_kv_attend(l->kv, NULL, layer, queries, dim, out, dim, NULL), "attend");
                free(queries);
                ck_assert(good || l->ends);
                if (!good)
                        return false;
                if (l->wanted != NULL)
                        ck_assert_mem_eq(out, l->wanted + (out - l->outs), floats * sizeof *out);
                test_hold(l->n_looks++ < LOOKS);
        }
        TRY(dci_gpu_kv_step_end(l->kv, NULL));
        TRY(dci_gpu_kv_maintain(l->kv, 0, NULL));
        return true;
}

static bool live_on(life *l)
{
        dci_gpu_kv_config on_device = twin_on_device();
        dci_gpu_kv *kv = NULL;
        int64_t sequence = -1;
        on_device.max_sequences = MOST;
        on_device.max_tokens = l->prompt + 260;
        /* Some pages, so that others leave. */
        if (l->config->contiguous == 0)
                on_device.device_resident_bytes =
                        (size_t)20 * l->config->page_tokens * l->config->n_kv_heads * l->config->dim_k * 8;
        while (failed(l, dci_gpu_kv_create(l->gpu, l->config, &on_device, &kv), "create")) {
                ck_assert_ptr_null(kv);
                if (l->ends)
                        return false;
        }
        l->kv = kv;
        TRY(dci_gpu_kv_open(l->kv, &sequence));
        l->sequences[l->n_sequences++] = sequence;
        if (!prefill(l))
                return false;
        for (size_t s = 0; s < 3; s++)
                if (!step(l))
                        return false;
        TRY(dci_gpu_kv_fork(l->kv, l->sequences[0], l->prompt - 13, &sequence));
        l->tokens[l->n_sequences] = l->prompt - 13;
        l->sequences[l->n_sequences++] = sequence;
        if (!step(l))
                return false;
        TRY(dci_gpu_kv_truncate(l->kv, l->sequences[0], l->prompt - 30));
        l->tokens[0] = l->prompt - 30;
        TRY(dci_gpu_kv_save(l->kv, l->sequences[1], l->prompt - 20, scratch_path("sequence")));
        TRY(dci_gpu_kv_load(l->kv, scratch_path("sequence"), &sequence));
        l->tokens[l->n_sequences] = l->prompt - 20;
        l->sequences[l->n_sequences++] = sequence;
        for (size_t s = 0; s < (test_short() ? 3 : 9); s++) {
                if (s < 2) { /* the fork, then the first one, which trades places with it */
                        TRY(dci_gpu_kv_swap_out(l->kv, l->sequences[1 - s]));
                        TRY(dci_gpu_kv_trim(l->kv, DCI_GPU_TRIM_ALL));
                        TRY(dci_gpu_kv_swap_in(l->kv, l->sequences[1 - s]));
                }
                if (!step(l))
                        return false;
        }
        TRY(dci_gpu_kv_close(l->kv, l->sequences[0]));
        l->sequences[0] = l->sequences[2];
        l->tokens[0] = l->tokens[2];
        l->n_sequences = 2;
        return step(l);
}

static size_t live(void *prepared)
{
        life *l = prepared;
        const bool own = l->gpu == NULL;
        if (own)
                l->gpu = twin_gpu(l->context);
        live_on(l);
        dci_gpu_kv_destroy(l->kv);
        if (own)
                dci_gpu_destroy(l->gpu);
        const size_t failures = l->failures;
        test_free(l->keys, l->values, l);
        return failures;
}

static void *born(dci_context *context, const void *arg)
{
        life *l = test_copy(arg, sizeof *l);
        l->context = context;
        if (l->refusal == DCI_ERR_MEMORY)
                l->gpu = twin_gpu(context); /* before anything fails */
        return l;
}

static size_t live_and_close(void *prepared)
{
        dci_gpu *gpu = ((life *)prepared)->gpu;
        const size_t failures = live(prepared);
        dci_gpu_destroy(gpu);
        return failures;
}

typedef struct setting {
        dci_kv_config config;
        kv_data data;
        size_t prompt;
        float *outs, *wanted;
} setting;

/* What a life without failures gives. */
static setting set(int32_t preset)
{
        setting s = {.config = twin_small(preset == CODED  ? DCI_KV_SKETCH
                                          : preset > PAGES ? preset - PAGES
                                                           : preset),
                     .prompt = preset == CODED ? CODED_PROMPT : PROMPT};
        if (preset == CODED) { /* one layer and head: fits take time */
                s.config.summary = DCI_KV_SUMMARY_LEARNED;
                s.config.n_layers = s.config.n_query_heads = 2;
                s.config.n_kv_heads = 1;
        }
        const size_t floats = (size_t)LOOKS * MOST * s.config.n_query_heads * s.config.dim_k;
        s.config.foreground = 1;
        twin_set_period(&s.config, 5);
        s.config.cluster_tokens = 8;
        s.config.contiguous = preset > PAGES;
        s.data = kv_random(&s.config, s.prompt + MORE, 100);
        s.outs = calloc(floats, sizeof(float));
        s.wanted = calloc(floats, sizeof(float));
        ck_assert(s.outs != NULL && s.wanted != NULL);
        dci_context *context = test_context(1);
        life first = {.config = &s.config, .data = &s.data, .prompt = s.prompt, .outs = s.wanted};
        ck_assert_uint_eq(live(born(context, &first)), 0);
        dci_context_destroy(context);
        return s;
}

static void set_down(setting *s)
{
        kv_data_free(&s->data);
        test_free(s->outs, s->wanted);
}

/* Every third preset will do for sanitizers; and what the device makes, where it plans. */
static bool left_out(int which)
{
        return presets[which] == CODED ? getenv("DCI_GPU_PLANNER") == NULL : test_short() && which % 3 != 0;
}

/* Loops over presets. On the host device that is its memory, too, and what locking takes. */
static void climb(int which, test_ladder ladder)
{
        if (twin_device() != DCI_GPU_HOST)
                return;
        if (left_out(which))
                return;
        setting s = set(presets[which]);
        const life l = {.config = &s.config,
                        .data = &s.data,
                        .prompt = s.prompt,
                        .outs = s.outs,
                        .wanted = s.wanted,
                        .refusal = DCI_ERR_MEMORY};
        const size_t rungs = ladder(1, born, live_and_close, &l);
        ck_assert_msg(rungs >= 20, "%zu rungs", rungs);
        set_down(&s);
}

START_TEST(every_allocation_may_fail_once)
{
        climb(_i, test_each_allocation_failing);
}
END_TEST

/* Ways back that would need memory themselves fail here. */
START_TEST(memory_may_be_short_from_any_allocation_on)
{
        if (_i % (test_short() ? 8 : 4) != 0 && getenv("DCI_TEST_LONG") == NULL) /* half a minute for all of them */
                return;
        climb(_i, test_each_shortage);
}
END_TEST

/* What a device has to give, refused once: memory, locks, streams and events. Pieces and chunks are taken later than by create. */
START_TEST(a_device_may_refuse_once)
{
        if (twin_device() != DCI_GPU_HOST)
                return;
        if (left_out(_i))
                return;
        setting s = set(presets[_i]);
        size_t at = 0, rungs = 0;
        /* Where the host can do the work instead, nothing is refused. */
        for (bool reached = true; reached; rungs++) {
                test_memory memory;
                dci_context *context = test_context_with(&memory, 1);
                dci_gpu *gpu = faulty_gpu(context, ++at, false);
                const life l = {.config = &s.config,
                                .data = &s.data,
                                .prompt = s.prompt,
                                .gpu = gpu,
                                .outs = s.outs,
                                .wanted = s.wanted,
                                .refusal = DCI_ERR_DEVICE};
                live(born(context, &l));
                reached = faulty.n >= at;
                dci_gpu_destroy(gpu);
                dci_context_destroy(context);
                ck_assert_uint_eq(atomic_load(&memory.live_bytes), 0);
        }
        ck_assert_msg(rungs > 20, "%zu rungs", rungs);
        set_down(&s);
}
END_TEST

/* What fails on the device is the end: every later call says so, and all that was taken comes back. */
START_TEST(a_device_that_fails_is_the_end)
{
        if (twin_device() != DCI_GPU_HOST)
                return;
        if (left_out(_i))
                return;
        setting s = set(presets[_i]);
        size_t failures = 1, at = 0;
        for (; failures > 0; at += test_short() ? 11 : 3) {
                test_memory memory;
                dci_context *context = test_context_with(&memory, 1);
                dci_gpu *gpu = faulty_gpu(context, at + 1, true);
                life l = {.context = context,
                          .config = &s.config,
                          .data = &s.data,
                          .prompt = s.prompt,
                          .gpu = gpu,
                          .outs = s.outs,
                          .wanted = s.wanted,
                          .refusal = DCI_ERR_DEVICE,
                          .ends = true};
                live_on(&l);
                failures = l.failures;
                if (failures > 0 && l.kv != NULL) {
                        int64_t id;
                        const int64_t named = l.sequences[0];
                        dci_gpu_kv_info info = {.struct_size = sizeof info};
                        ck_refused(dci_gpu_kv_open(l.kv, &id), DCI_ERR_DEVICE, "fault number");
                        ck_refused(dci_gpu_kv_reserve(l.kv, NULL, 1, &named, NULL), DCI_ERR_DEVICE,
                                   "only be destroyed");
                        ck_refused(dci_gpu_kv_step_abort(l.kv), DCI_ERR_DEVICE, "fault number");
                        ck_refused(dci_gpu_kv_close(l.kv, named), DCI_ERR_DEVICE, "fault number");
                        ck_refused(dci_gpu_kv_sync(l.kv), DCI_ERR_DEVICE, "fault number");
                        ck_refused(dci_gpu_kv_get_info(l.kv, &info), DCI_ERR_DEVICE, "fault number");
                }
                dci_gpu_kv_destroy(l.kv);
                dci_gpu_destroy(gpu);
                dci_context_destroy(context);
                test_free(l.keys, l.values);
                ck_assert_uint_eq(atomic_load(&memory.live_bytes), 0);
        }
        ck_assert_uint_gt(at, 50);
        set_down(&s);
}
END_TEST

/* Loops over presets. Everything a step needs was taken by its reservation. */
START_TEST(steps_allocate_nothing_after_their_reservation)
{
        if (twin_device() != DCI_GPU_HOST)
                return;
        test_memory memory;
        dci_context *context = test_context_with(&memory, 2);
        dci_kv_config config = twin_small(kv_presets[_i]);
        dci_gpu_kv_config on_device = twin_on_device();
        on_device.gather = 1 + _i % DCI_GPU_GATHERS;
        if (on_device.gather == DCI_GPU_GATHER_MAPPED) /* with pages that leave */
                on_device.device_resident_bytes = (size_t)20 * 2 * 8 * 2 * 64 * 4;
        twin t = twin_begin_with(context, &config, &on_device);
        kv_data data = kv_random(&config, 500, 103);
        const int64_t sequence = twin_prefill(&t, &data, 300, 0);
        float *out = malloc(config.n_query_heads * config.dim_k * sizeof *out);
        ck_assert_ptr_nonnull(out);
        for (size_t s = 0; s < 60; s++) {
                const kv_turn turn = {sequence, &data, 300 + s, 1};
                ck_ok(dci_gpu_kv_reserve(t.kv, t.stream, 1, &sequence, NULL));
                for (size_t l = 0; l < config.n_layers; l++) {
                        twin_rows rows = twin_rows_of(&t, l, 1, &turn);
                        void *queries = kv_queries(l, 1, &turn);
                        const size_t calls = atomic_load(&memory.calls);
                        ck_ok(dci_gpu_kv_append(t.kv, t.stream, l, &rows.rows));
                        ck_ok(dci_gpu_kv_plan(t.kv, t.stream, l, queries, config.dim_k));
                        ck_ok(dci_gpu_kv_attend(t.kv, t.stream, l, queries, config.dim_k, out, config.dim_k, NULL));
                        ck_assert_uint_eq(atomic_load(&memory.calls), calls);
                        free(queries);
                        twin_rows_free(&t, &rows);
                }
                const size_t calls = atomic_load(&memory.calls);
                ck_ok(dci_gpu_kv_step_end(t.kv, t.stream));
                ck_assert_uint_eq(atomic_load(&memory.calls), calls);
                ck_ok(dci_gpu_kv_maintain(t.kv, 0, NULL));
        }
        free(out);
        kv_data_free(&data);
        twin_end(&t);
        dci_context_destroy(context);
        ck_assert_uint_eq(atomic_load(&memory.live_bytes), 0);
}
END_TEST

/* The cache keeps its device and context alive. */
START_TEST(a_cache_outlives_its_device)
{
        test_memory memory;
        dci_context *context = test_context_with(&memory, 2);
        const dci_kv_config config = twin_small(DCI_KV_SKETCH);
        const dci_gpu_kv_config on_device = twin_on_device();
        dci_gpu *gpu = twin_gpu(context);
        dci_gpu_kv *kv = NULL;
        int64_t sequence;
        ck_ok(dci_gpu_kv_create(gpu, &config, &on_device, &kv));
        dci_gpu_destroy(gpu);
        dci_context_destroy(context);
        ck_ok(dci_gpu_kv_open(kv, &sequence));
        ck_ok(dci_gpu_kv_close(kv, sequence));
        dci_gpu_kv_destroy(kv);
        ck_assert_uint_eq(atomic_load(&memory.live_bytes), 0);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("gpu kv faults");
        TCase *faults = test_case_with(suite, "faults", 120, scratch_open, scratch_close);
        tcase_add_loop_test(faults, every_allocation_may_fail_once, 0, N_PRESETS);
        tcase_add_loop_test(faults, memory_may_be_short_from_any_allocation_on, 0, N_PRESETS);
        tcase_add_loop_test(faults, a_device_may_refuse_once, 0, N_PRESETS);
        tcase_add_loop_test(faults, a_device_that_fails_is_the_end, 0, N_PRESETS);
        tcase_add_loop_test(faults, steps_allocate_nothing_after_their_reservation, 0, KV_N_KINDS);
        tcase_add_test(faults, a_cache_outlives_its_device);
        return test_main(suite);
}
