/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* All rows of a sequence on the device: the memory that they take, and what is refused. */
#include "tests/gpu_history_fixture.h"

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* No layer is dense and the host plans, so that nothing else grows on the device. */
static history_life without_growth(size_t max_device_bytes)
{
        dci_kv_config config = history_usual();
        dci_gpu_kv_config on_device = history_usual_device();
        config.dense_layers = 0;
        on_device.max_device_bytes = max_device_bytes;
        return history_begin(&config, &on_device);
}

START_TEST(buffers_grow_twofold_and_are_counted)
{
        history_life l = without_growth(0);
        const dci_gpu_kv_info before = twin_info(&l.t);
        static const size_t steps[][2] = {{10, 10}, {1, 20}, {9, 20}, {1, 40}, {100, 121}, {122, 243}};
        history_tale *s = history_open(&l);
        size_t n = 0;
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
                history_step(&l, s, steps[i][0], i);
                n += steps[i][0];
                const dci_gpu_kv_info now = twin_info(&l.t);
                /* The first step has no earlier tokens to copy for the next layer, but it asks for each. */
                ck_assert_uint_eq(now.buffer_bytes - before.buffer_bytes, 2 * steps[i][1] * history_token_bytes(&l));
                ck_assert_uint_eq(now.device_bytes - before.device_bytes, now.buffer_bytes - before.buffer_bytes);
        }
        history_step(&l, s, HISTORY_MAX_TOKENS - n, 0);
        ck_assert_uint_eq(twin_info(&l.t).buffer_bytes - before.buffer_bytes,
                          2 * HISTORY_MAX_TOKENS * history_token_bytes(&l));
        history_end(&l);
}
END_TEST

START_TEST(buffers_are_freed_for_larger_ones_or_there_is_one)
{
        history_life l = without_growth(0);
        const size_t base = twin_info(&l.t).device_bytes, of_token = history_token_bytes(&l);
        history_end(&l);
        for (size_t room = 150; room < 340; room += 10) {
                l = without_growth(base + room * of_token + 5);
                history_tale *s = history_open(&l);
                history_step(&l, s, 70, 0);
                history_step(&l, s, 30, 100);
                history_step(&l, s, 50, 200);
                history_step(&l, s, 0, 0);
                const size_t n_bytes = dci_gpu_kv_history_bytes(l.t.kv);
                ck_assert_uint_ge(n_bytes, (room >= 300 ? 2 : 1) * 150 * of_token);
                ck_assert_uint_le(n_bytes, room * of_token + 5);
                /* One token too many: nothing changes, and the step goes on. */
                const size_t too_many = room - 150 + 1;
                history_reserve(&l, 1, &s, &too_many, 0);
                history_append(&l, 0);
                ck_refused(history_try(&l, 0, s), DCI_ERR_FULL, "max_device_bytes");
                history_append(&l, 1);
                ck_refused(history_try(&l, 1, s), DCI_ERR_FULL, "max_device_bytes");
                history_append(&l, 2);
                ck_ok(dci_gpu_kv_step_end(l.t.kv, l.t.stream));
                ck_ok(dci_gpu_kv_truncate(l.t.kv, s->id, 140));
                s->n = 140;
                history_step(&l, s, 10, 400);
                history_end(&l);
        }
}
END_TEST

static struct {
        size_t n, from; /* allocations so far; from this number on there is no memory, 0: always */
        const dci_gpu_ops *real;
} scarce;

static dci_status scarce_alloc(dci_gpu *gpu, size_t n_bytes, void **out)
{
        if (scarce.from > 0 && ++scarce.n >= scarce.from)
                return dci_fail(DCI_ERR_MEMORY, "no memory for %zu bytes", n_bytes);
        return scarce.real->alloc(gpu, n_bytes, out);
}

START_TEST(memory_may_be_short_from_any_allocation_on)
{
        size_t n_refused = 0;
        for (size_t from = 1; from < 14; from++) {
                history_life l = without_growth(0);
                dci_gpu_ops ops = *l.t.gpu->ops;
                scarce.real = l.t.gpu->ops;
                scarce.n = scarce.from = 0;
                ops.alloc = scarce_alloc;
                l.t.kv->ops = &ops;
                history_tale *s = history_open(&l);
                history_step(&l, s, 40, 0);
                history_reserve(&l, 1, &s, &(size_t){80}, 100);
                scarce.from = from;
                for (size_t layer = 0; layer < 3; layer++) {
                        history_append(&l, layer);
                        const size_t n_bytes = dci_gpu_kv_history_bytes(l.t.kv);
                        const dci_status status = history_try(&l, layer, s);
                        if (status != DCI_OK) {
                                ck_assert_int_eq(status, DCI_ERR_MEMORY);
                                ck_assert_uint_le(dci_gpu_kv_history_bytes(l.t.kv), n_bytes);
                                n_refused++;
                                scarce.from = 0;
                                history_ask(&l, layer, s);
                        } else {
                                history_keep(&l);
                        }
                }
                scarce.from = 0;
                history_step_end(&l);
                history_step(&l, s, 5, 300);
                l.t.kv->ops = scarce.real;
                history_end(&l);
        }
        ck_assert_uint_ge(n_refused, 1);
}
END_TEST

/* --- what is refused ---------------------------------------------------------------------------------------------- */

START_TEST(bad_arguments_are_refused)
{
        const dci_kv_config config = history_usual();
        const dci_gpu_kv_config on_device = history_usual_device();
        history_life l = history_begin(&config, &on_device);
        history_tale *s = history_open(&l), *other = history_open(&l);
        dci_kv_rows rows, small;
        size_t n = 77;
        ck_ok(dci_kv_rows_init(&rows, sizeof rows));
        small = rows;
        small.struct_size = 8;
        dci_gpu_kv *kv = l.t.kv;
        void *stream = l.t.stream;
        ck_refused(dci_gpu_kv_history(NULL, stream, 0, s->id, &rows, &n), DCI_ERR_INVALID, "kv is NULL");
        ck_refused(dci_gpu_kv_history(kv, stream, 0, s->id, &rows, &n), DCI_ERR_INVALID, "no step is open");
        history_reserve(&l, 1, &s, &(size_t){9}, 0);
        ck_refused(dci_gpu_kv_history(kv, stream, 0, s->id, &rows, &n), DCI_ERR_INVALID, "has not got its rows");
        history_append(&l, 0);
        ck_refused(dci_gpu_kv_history(kv, stream, 0, s->id, NULL, &n), DCI_ERR_INVALID, "out_rows is NULL");
        ck_refused(dci_gpu_kv_history(kv, stream, 0, s->id, &rows, NULL), DCI_ERR_INVALID, "out_n is NULL");
        ck_refused(dci_gpu_kv_history(kv, stream, 0, s->id, &small, &n), DCI_ERR_INVALID, "struct_size");
        ck_refused(dci_gpu_kv_history(kv, NULL, 0, s->id, &rows, &n), DCI_ERR_INVALID, "the step began on");
        ck_refused(dci_gpu_kv_history(kv, stream, 3, s->id, &rows, &n), DCI_ERR_INVALID, "layer is 3");
        ck_refused(dci_gpu_kv_history(kv, stream, 0, 12345, &rows, &n), DCI_ERR_NOT_FOUND, "12345");
        ck_refused(dci_gpu_kv_history(kv, stream, 0, other->id, &rows, &n), DCI_ERR_INVALID, "not in the step");
        ck_refused(dci_gpu_kv_history(kv, stream, 1, s->id, &rows, &n), DCI_ERR_INVALID, "has not got its rows");
        ck_assert(n == 77 && rows.keys == NULL);
        history_ask(&l, 0, s);
        history_append(&l, 1);
        history_append(&l, 2);
        history_step_end(&l);
        history_end(&l);
}
END_TEST

START_TEST(a_captured_stream_is_refused_and_the_capture_goes_on)
{
        const dci_kv_config config = history_usual();
        const dci_gpu_kv_config on_device = history_usual_device();
        history_life l = history_begin(&config, &on_device);
        void *graph = NULL;
        history_tale *s = history_open(&l);
        history_step(&l, s, 40, 0);
        history_reserve(&l, 1, &s, &(size_t){9}, 100);
        history_append(&l, 0);
        ck_ok(l.t.ops->capture_begin(l.t.gpu, l.t.stream));
        ck_refused(history_try(&l, 0, s), DCI_ERR_INVALID, "captured");
        ck_ok(l.t.ops->capture_end(l.t.gpu, l.t.stream, &graph));
        l.t.ops->graph_destroy(l.t.gpu, graph);
        history_ask(&l, 0, s);
        history_append(&l, 1);
        history_append(&l, 2);
        history_ask(&l, 2, s);
        history_step_end(&l);
        history_end(&l);
}
END_TEST

START_TEST(rows_of_a_graph_are_not_known)
{
        const history_kind k = history_kinds[2];
        const dci_kv_config config = history_config(&k);
        const dci_gpu_kv_config on_device = history_device(&k);
        history_life l = history_begin(&config, &on_device);
        history_tale *s = history_open(&l);
        history_step(&l, s, 40, 0);
        history_reserve(&l, 1, &s, &(size_t){1}, 100);
        ck_ok(dci_gpu_kv_replay(l.t.kv, l.t.stream, 0));
        ck_refused(history_try(&l, 1, s), DCI_ERR_INVALID, "from a graph");
        ck_ok(dci_gpu_kv_step_abort(l.t.kv));
        s->n--;
        history_step(&l, s, 3, 200);
        history_end(&l);
}
END_TEST

/* A device whose call number `at` fails, of those that history makes. */
static struct {
        size_t n, at;
        const dci_gpu_ops *real;
} faulty;

#define FAULT()                                                                                                        \
        if (++faulty.n == faulty.at)                                                                                   \
        return dci_fail(DCI_ERR_DEVICE, "call %zu does not work any more", faulty.at)

static dci_status faulty_copy(dci_gpu *gpu, void *stream, void *to, const void *from, size_t n_bytes)
{
        FAULT();
        return faulty.real->copy(gpu, stream, to, from, n_bytes);
}

static dci_status faulty_rows(dci_gpu *gpu, void *stream, void *to, const void *from, size_t from_step, size_t n_bytes,
                              size_t n)
{
        FAULT();
        return faulty.real->copy_rows(gpu, stream, to, from, from_step, n_bytes, n);
}

static dci_status faulty_record(dci_gpu *gpu, void *event, void *stream)
{
        FAULT();
        return faulty.real->event_record(gpu, event, stream);
}

static dci_status faulty_order(dci_gpu *gpu, void *stream, void *event)
{
        FAULT();
        return faulty.real->event_order(gpu, stream, event);
}

static dci_status faulty_wait(dci_gpu *gpu, void *stream)
{
        FAULT();
        return faulty.real->stream_wait(gpu, stream);
}

static dci_status faulty_pack(dci_gpu *gpu, void *stream, const dci_gpu_pack_args *args)
{
        FAULT();
        return faulty.real->pack(gpu, stream, args);
}

/* Returns whether the call failed. In the second step the buffers grow. */
static bool fails_at(size_t at)
{
        const dci_kv_config config = history_usual();
        const dci_gpu_kv_config on_device = history_usual_device();
        history_life l = history_begin(&config, &on_device);
        history_tale *s = history_open(&l);
        dci_gpu_ops ops = *l.t.gpu->ops;
        faulty.real = l.t.gpu->ops;
        ops.copy = faulty_copy;
        ops.copy_rows = faulty_rows;
        ops.event_record = faulty_record;
        ops.event_order = faulty_order;
        ops.stream_wait = faulty_wait;
        ops.pack = faulty_pack;
        history_step(&l, s, 44, 0);
        history_reserve(&l, 1, &s, &(size_t){70}, 100);
        history_append(&l, 0);
        l.t.kv->ops = &ops;
        faulty.n = 0;
        faulty.at = at;
        const bool failed = history_try(&l, 0, s) != DCI_OK;
        if (failed) {
                ck_refused(history_try(&l, 0, s), DCI_ERR_DEVICE, "any more");
                ck_refused(dci_gpu_kv_step_end(l.t.kv, l.t.stream), DCI_ERR_DEVICE, "only be destroyed");
        }
        l.t.kv->ops = faulty.real;
        history_end(&l);
        return failed;
}

START_TEST(a_device_that_fails_is_given_up)
{
        size_t n = 1;
        while (fails_at(n))
                n++;
        ck_assert_uint_gt(n, 20);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("gpu kv history limits");
        TCase *laws = test_case(suite, "laws", 60), *refusals = test_case(suite, "refusals", 60);
        tcase_add_test(laws, buffers_grow_twofold_and_are_counted);
        tcase_add_test(laws, buffers_are_freed_for_larger_ones_or_there_is_one);
        tcase_add_test(laws, memory_may_be_short_from_any_allocation_on);
        tcase_add_test(refusals, bad_arguments_are_refused);
        tcase_add_test(refusals, a_captured_stream_is_refused_and_the_capture_goes_on);
        tcase_add_test(refusals, rows_of_a_graph_are_not_known);
        tcase_add_test(refusals, a_device_that_fails_is_given_up);
        return test_main(suite);
}
