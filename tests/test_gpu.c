/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Devices: what is refused when one is opened, what is known of it, and what the host device promises to what is built on it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/context_fixture.h"
#include "tests/gpu_fixture.h"

static dci_gpu *open_device(dci_context *of, int32_t device)
{
        dci_gpu_config config;
        dci_gpu *gpu = NULL;
        ck_ok(dci_gpu_config_init(&config, sizeof config));
        ck_assert_int_eq(config.device, 0);
        config.device = device;
        ck_ok(dci_gpu_create(of, &config, &gpu));
        ck_assert_ptr_nonnull(gpu);
        return gpu;
}

/* --- opening -------------------------------------------------------------------------------------------------- */

START_TEST(bad_input_is_refused_with_a_sentence)
{
        dci_gpu_config config, older;
        dci_gpu_info info;
        dci_gpu *gpu = NULL;
        ck_refused(dci_gpu_config_init(NULL, sizeof config), DCI_ERR_INVALID, "NULL");
        ck_refused(dci_gpu_config_init(&config, 3), DCI_ERR_INVALID, "3");
        ck_refused(dci_gpu_info_init(NULL, sizeof info), DCI_ERR_INVALID, "NULL");
        ck_refused(dci_gpu_info_init(&info, sizeof info - 1), DCI_ERR_INVALID, "dci_gpu_info");
        ck_refused(dci_gpu_count(NULL), DCI_ERR_INVALID, "out_count");
        ck_ok(dci_gpu_config_init(&config, sizeof config));
        config.device = DCI_GPU_HOST;
        ck_refused(dci_gpu_create(NULL, &config, &gpu), DCI_ERR_INVALID, "context");
        ck_refused(dci_gpu_create(context, &config, NULL), DCI_ERR_INVALID, "out_gpu");
        older = config;
        older.struct_size = 8;
        ck_refused(dci_gpu_create(context, &older, &gpu), DCI_ERR_INVALID, "struct_size 8");
        older = config;
        older.reserved = 5;
        ck_refused(dci_gpu_create(context, &older, &gpu), DCI_ERR_INVALID, "5");
        config.device = -2;
        ck_refused(dci_gpu_create(context, &config, &gpu), DCI_ERR_INVALID, "-2");
        ck_assert_ptr_null(gpu);
        gpu = open_device(context, DCI_GPU_HOST);
        ck_ok(dci_gpu_info_init(&info, sizeof info));
        ck_refused(dci_gpu_get_info(NULL, &info), DCI_ERR_INVALID, "gpu");
        ck_refused(dci_gpu_get_info(gpu, NULL), DCI_ERR_INVALID, "out_info");
        info.struct_size = 1;
        ck_refused(dci_gpu_get_info(gpu, &info), DCI_ERR_INVALID, "struct_size 1");
        dci_gpu_destroy(gpu);
        dci_gpu_destroy(NULL);
}
END_TEST

/* A machine has CUDA devices 0 to n - 1; with none, device 0 is refused as the count is, for the same reason. */
START_TEST(devices_are_there_or_the_reason_is_told)
{
        dci_gpu_config config;
        dci_gpu *gpu = NULL;
        int32_t n = -1;
        const dci_status counted = dci_gpu_count(&n);
        ck_ok(dci_gpu_config_init(&config, sizeof config));
        config.device = counted == DCI_OK ? n : 0;
        if (counted == DCI_OK) {
                char number[16];
                snprintf(number, sizeof number, "%d", (int)n);
                ck_assert_int_ge(n, 0);
                ck_refused(dci_gpu_create(context, &config, &gpu), DCI_ERR_NOT_FOUND, number);
        } else {
                char reason[512];
                snprintf(reason, sizeof reason, "%s", dci_last_error());
                ck_assert_int_eq(counted, DCI_ERR_UNSUPPORTED);
                ck_assert_int_eq(n, -1);
                ck_assert_uint_gt(strlen(reason), 10);
                ck_refused(dci_gpu_create(context, &config, &gpu), DCI_ERR_UNSUPPORTED, reason);
                ck_refused(dci_gpu_create(context, NULL, &gpu), DCI_ERR_UNSUPPORTED, reason);
                config.device = 7;
                ck_refused(dci_gpu_create(context, &config, &gpu), DCI_ERR_UNSUPPORTED, reason);
        }
        ck_assert_ptr_null(gpu);
}
END_TEST

START_TEST(a_device_tells_what_it_is)
{
        const int32_t number = gpu_device_number();
        dci_gpu *gpu = open_device(context, number);
        dci_gpu_info info;
        ck_ok(dci_gpu_info_init(&info, sizeof info));
        ck_ok(dci_gpu_get_info(gpu, &info));
        ck_assert_int_eq(info.device, number);
        ck_assert_uint_eq(info.struct_size, sizeof info);
        ck_assert_uint_gt(strlen(info.name), 0);
        ck_assert_int_gt(info.multiprocessors, 0);
        ck_assert_uint_gt(info.memory_bytes, 0);
        ck_assert_uint_gt(info.free_bytes, 0);
        ck_assert_uint_le(info.free_bytes, info.memory_bytes);
        ck_assert_int_ge(info.major, number == DCI_GPU_HOST ? 0 : 8);
        if (number == DCI_GPU_HOST)
                ck_assert_str_eq(info.name, "host");
        dci_gpu_destroy(gpu);
}
END_TEST

/* An owner may close a device before the objects on it; the context may go first of all. */
START_TEST(the_last_object_closes_a_device)
{
        test_memory memory;
        dci_context *own = test_context_with(&memory, 1);
        dci_gpu *gpu = open_device(own, DCI_GPU_HOST);
        void *taken;
        dci_context_destroy(own);
        dci_gpu_retain(gpu);
        dci_gpu_destroy(gpu);
        ck_ok(gpu->ops->alloc(gpu, 100, &taken));
        gpu->ops->free(gpu, taken, 100);
        dci_gpu_destroy(gpu);
        ck_assert_uint_eq(atomic_load(&memory.live_blocks), 0);
}
END_TEST

static void *nothing(dci_context *of, const void *arg)
{
        (void)arg;
        return of;
}

/* All that the host device takes from the allocator; what failed has changed nothing. */
static size_t live_on_a_device(void *prepared)
{
        size_t failures = 0;
        dci_gpu_config config;
        dci_gpu *gpu = NULL;
        void *stream = NULL, *event = NULL, *memory = NULL, *graph = NULL, *address = NULL;
        void *pinned = aligned_alloc(4096, 8192);
        ck_ok(dci_gpu_config_init(&config, sizeof config));
        config.device = DCI_GPU_HOST;
        while (dci_gpu_create(prepared, &config, &gpu) != DCI_OK)
                failures++;
        const dci_gpu_ops *ops = gpu->ops;
        while (ops->stream_create(gpu, &stream) != DCI_OK)
                failures++;
        while (ops->event_create(gpu, true, &event) != DCI_OK)
                failures++;
        while (ops->alloc(gpu, 1000, &memory) != DCI_OK)
                failures++;
        while (ops->pin(gpu, pinned, 8192, &address) != DCI_OK)
                failures++;
        while (ops->capture_begin(gpu, stream) != DCI_OK)
                failures++;
        while (ops->fill(gpu, stream, memory, 1, 1000) != DCI_OK)
                failures++;
        ck_ok(ops->capture_end(gpu, stream, &graph));
        ops->graph_destroy(gpu, graph);
        ops->unpin(gpu, pinned);
        ops->free(gpu, memory, 1000);
        ops->event_destroy(gpu, event);
        ops->stream_destroy(gpu, stream);
        dci_gpu_destroy(gpu);
        free(pinned);
        return failures;
}

START_TEST(want_of_memory_changes_nothing)
{
        ck_assert_uint_ge(test_each_allocation_failing(1, nothing, live_on_a_device, NULL), 8);
}
END_TEST

/* --- splits --------------------------------------------------------------------------------------------------- */

START_TEST(splits_fill_the_device_and_are_never_short)
{
        dci_gpu *gpu = open_device(context, gpu_device_number());
        const int32_t real = gpu->info.multiprocessors;
        static const int32_t sizes[] = {1, 16, 108, 132, 2000};
        static const size_t tokens[] = {0, 1, 256, 1000, 1024, 1025, 2048, 5000, 36000, 131072, 4000000};
        for (size_t s = 0; s < 5; s++) {
                gpu->info.multiprocessors = sizes[s];
                for (size_t n = 1; n <= 64; n *= 2)
                        for (size_t heads = 1; heads <= 8; heads *= 2)
                                for (size_t k = 0; k < sizeof tokens / sizeof *tokens; k++) {
                                        const int32_t splits = dci_gpu_splits(gpu, n, heads, tokens[k]);
                                        const size_t lists = n * heads, blocks = lists * (size_t)splits;
                                        ck_assert_int_ge(splits, 1);
                                        ck_assert_int_le(splits, 256);
                                        ck_assert_int_eq(splits, dci_gpu_splits(gpu, n, heads, tokens[k]));
                                        if (tokens[k] <= 384)
                                                ck_assert_int_eq(splits, 1);
                                        if (splits > 1) {
                                                ck_assert_uint_ge(tokens[k] / (size_t)splits, 64);
                                                ck_assert_uint_le(blocks, 4 * (size_t)sizes[s] + lists);
                                        }
                                        /* Few lists of many tokens use nearly all of the device. */
                                        if (tokens[k] >= 131072 && sizes[s] <= 132)
                                                ck_assert_uint_ge(10 * blocks, 9 * (size_t)sizes[s]);
                                }
        }
        /* Memory that was taken for the most tokens has room for fewer. */
        for (size_t s = 0; s < 5; s++) {
                gpu->info.multiprocessors = sizes[s];
                for (size_t lists = 1; lists <= 256; lists = lists * 3 / 2 + 1)
                        for (size_t n = 380, last = 0; n <= 40000; n += test_short() ? 28 : 1) {
                                const size_t splits = (size_t)dci_gpu_splits(gpu, 1, lists, n);
                                ck_assert_msg(splits >= last, "%zu lists: %zu splits of %zu tokens, %zu of fewer",
                                              lists, splits, n, last);
                                last = splits;
                        }
        }
        gpu->info.multiprocessors = real;
        ck_assert_uint_eq(dci_gpu_partial_bytes(8, 1, 128), 0);
        ck_assert_uint_eq(dci_gpu_partial_bytes(8, 4, 128), 8 * 4 * 16 * 130 * 4 + 64);
        ck_assert_uint_eq(dci_gpu_partial_bytes(SIZE_MAX / 2, 4, 128), SIZE_MAX);
        dci_gpu_destroy(gpu);
}
END_TEST

/* --- the host device ------------------------------------------------------------------------------------------ */

START_TEST(memory_is_poisoned_aligned_and_counted)
{
        dci_gpu *gpu = open_device(context, DCI_GPU_HOST);
        void *memory = NULL, *more = NULL;
        ck_ok(gpu->ops->alloc(gpu, 1000, &memory));
        ck_assert_uint_eq((uintptr_t)memory % 256, 0);
        for (size_t i = 0; i < 1000; i++)
                ck_assert_uint_eq(((unsigned char *)memory)[i], 0xff);
        float value;
        memcpy(&value, memory, sizeof value);
        ck_assert(isnan(value));
        ck_refused(gpu->ops->alloc(gpu, SIZE_MAX, &more), DCI_ERR_MEMORY, "1000");
        gpu->info.memory_bytes = 1500; /* how tests make a device small */
        ck_refused(gpu->ops->alloc(gpu, 501, &more), DCI_ERR_MEMORY, "501");
        ck_ok(gpu->ops->alloc(gpu, 500, &more));
        gpu->ops->free(gpu, memory, 1000);
        gpu->ops->free(gpu, more, 500);
        dci_gpu_destroy(gpu);
}
END_TEST

START_TEST(memory_is_locked_once_and_by_pages)
{
        dci_gpu *gpu = open_device(context, DCI_GPU_HOST);
        const dci_gpu_ops *ops = gpu->ops;
        unsigned char *memory = aligned_alloc(4096, 5 * 4096);
        void *address = NULL;
        ck_refused(ops->pin(gpu, NULL, 4096, &address), DCI_ERR_INVALID, "4096");
        ck_refused(ops->pin(gpu, memory, 0, &address), DCI_ERR_INVALID, "0 bytes");
        ck_refused(ops->pin(gpu, memory + 64, 4096, &address), DCI_ERR_INVALID, "4096");
        ck_assert_ptr_null(address);
        ck_ok(ops->pin(gpu, memory + 4096, 8192, &address));
        ck_assert_ptr_eq(address, memory + 4096);
        ck_refused(ops->pin(gpu, memory + 4096, 8192, &address), DCI_ERR_DEVICE, "already");
        ck_refused(ops->pin(gpu, memory, 5 * 4096, &address), DCI_ERR_DEVICE, "already");
        ck_refused(ops->pin(gpu, memory + 8192, 100, &address), DCI_ERR_DEVICE, "already");
        ck_ok(ops->pin(gpu, memory, 4096, &address));
        ck_ok(ops->pin(gpu, memory + 3 * 4096, 10, &address));
        ops->unpin(gpu, memory + 4096);
        ck_ok(ops->pin(gpu, memory + 4096, 8192, &address));
        for (size_t i = 0; i < 5; i++)
                ops->unpin(gpu, memory + i * 4096); /* those that are not locked, too */
        dci_gpu_destroy(gpu);
        free(memory);
}
END_TEST

START_TEST(streams_belong_to_their_device)
{
        dci_gpu *gpu = open_device(context, DCI_GPU_HOST), *other = open_device(context, DCI_GPU_HOST);
        const dci_gpu_ops *ops = gpu->ops;
        void *stream = NULL, *graph = NULL;
        char byte = 0;
        ck_ok(ops->stream_create(gpu, &stream));
        ck_ok(ops->stream_check(gpu, stream));
        ck_ok(ops->stream_check(gpu, NULL));
        ck_refused(ops->stream_check(other, stream), DCI_ERR_INVALID, "stream");
        ck_refused(ops->fill(other, stream, &byte, 1, 1), DCI_ERR_INVALID, "stream");
        ck_assert_int_eq(byte, 0);
        ck_refused(ops->capture_begin(gpu, NULL), DCI_ERR_DEVICE, "default");
        ck_refused(ops->capture_end(gpu, stream, &graph), DCI_ERR_DEVICE, "capture");
        ck_ok(ops->capture_begin(gpu, stream));
        ck_refused(ops->capture_begin(gpu, stream), DCI_ERR_DEVICE, "already");
        ck_refused(ops->stream_wait(gpu, stream), DCI_ERR_INVALID, "is being captured");
        ck_ok(ops->fill(gpu, stream, &byte, 1, 1));
        ck_ok(ops->capture_end(gpu, stream, &graph));
        ck_assert_int_eq(byte, 0);
        ck_ok(ops->graph_launch(gpu, graph, NULL));
        ck_assert_int_eq(byte, 1);
        ops->graph_destroy(gpu, graph);
        ck_ok(ops->capture_begin(gpu, stream));
        ck_ok(ops->fill(gpu, stream, &byte, 2, 1));
        ops->stream_destroy(gpu, stream); /* what it captured goes with it */
        ck_refused(ops->stream_check(gpu, stream), DCI_ERR_INVALID, "stream");
        dci_gpu_destroy(other);
        dci_gpu_destroy(gpu);
}
END_TEST

static void count_notice(void *arg)
{
        atomic_fetch_add((atomic_size_t *)arg, 1);
}

/* Of any device. */
START_TEST(copies_and_events_keep_their_order)
{
        gpu_test t;
        void *from = NULL, *to = NULL, *plain = NULL;
        double seconds = -1.0;
        atomic_size_t n_notices;
        atomic_init(&n_notices, 0);
        gpu_begin(&t, (size_t)1 << 16);
        const dci_gpu_ops *ops = t.ops;
        gpu_buffer *a = gpu_take(&t, 3000, GPU_MAPPED), *b = gpu_take(&t, 3000, GPU_DEVICE);
        gpu_send_all(&t);
        memset(a->image, 7, 3000);
        gpu_send(&t, a);
        ck_ok(ops->event_create(t.gpu, true, &from));
        ck_ok(ops->event_create(t.gpu, true, &to));
        ck_ok(ops->event_create(t.gpu, false, &plain));
        ck_ok(ops->event_wait(t.gpu, plain)); /* never recorded */
        ck_assert_int_eq(ops->event_elapsed(t.gpu, from, to, &seconds), DCI_ERR_DEVICE);
        ck_ok(ops->event_record(t.gpu, from, t.stream));
        void *const targets[] = {b->device, b->device + 1000, b->device + 2999};
        const void *const sources[] = {a->device, a->device + 10, a->device};
        const size_t sizes[] = {100, 1500, 1};
        ck_ok(ops->copy_batch(t.gpu, t.stream, 3, targets, sources, sizes));
        ck_ok(ops->copy_batch(t.gpu, t.stream, 0, NULL, NULL, NULL));
        ck_ok(ops->copy(t.gpu, t.stream, b->device, a->device, 0));
        ck_ok(ops->notify(t.gpu, t.stream, count_notice, &n_notices));
        ck_ok(ops->event_record(t.gpu, to, t.stream));
        ck_ok(ops->event_order(t.gpu, t.stream, to));
        ck_ok(ops->event_wait(t.gpu, to));
        ck_assert_uint_eq(atomic_load(&n_notices), 1);
        ck_ok(ops->event_elapsed(t.gpu, from, to, &seconds));
        ck_assert(seconds >= 0.0);
        memset(b->image, 7, 100);
        memset(b->image + 1000, 7, 1500);
        b->image[2999] = 7;
        gpu_same(&t, b, "three copies");
        ck_refused(ops->pointer_check(t.gpu, NULL, "queries"), DCI_ERR_INVALID, "queries");
        ck_ok(ops->pointer_check(t.gpu, b->device, "queries"));
        ck_ok(ops->pointer_check(t.gpu, a->device, "queries"));
        ops->event_destroy(t.gpu, from);
        ops->event_destroy(t.gpu, to);
        ops->event_destroy(t.gpu, plain);
        gpu_end(&t);
}
END_TEST

/* Of any device. */
START_TEST(shapes_without_a_kernel_are_refused)
{
        gpu_test t;
        gpu_begin(&t, (size_t)1 << 16);
        dci_gpu_attend_args attend = {.n_sequences = 1, .n_heads = 1, .group = 1, .dim = 257, .n_splits = 1};
        dci_gpu_resolve_args resolve = {
                .n_sequences = 1, .n_heads = 1, .stride = DCI_GPU_MAX_LIST, .n_frames = DCI_GPU_MAX_FRAMES + 1};
        attend.dtype = DCI_F16;
        attend.query_dtype = attend.out_dtype = DCI_F32;
        ck_refused(t.ops->attend(t.gpu, t.stream, &attend), DCI_ERR_UNSUPPORTED, "257");
        attend.dim = 64;
        attend.group = 17;
        ck_refused(t.ops->attend(t.gpu, t.stream, &attend), DCI_ERR_UNSUPPORTED, "17");
        ck_refused(t.ops->resolve(t.gpu, t.stream, &resolve), DCI_ERR_LIMIT, "8193");
        resolve.n_frames = 1;
        resolve.stride = DCI_GPU_MAX_LIST + 1;
        ck_refused(t.ops->resolve(t.gpu, t.stream, &resolve), DCI_ERR_LIMIT, "8193");
        gpu_end(&t);
}
END_TEST

/* What a caller may hand over by mistake: NULL, memory that the device does not see, and where there are several, what is another one's. */
START_TEST(what_a_device_cannot_use_is_refused)
{
        gpu_test t;
        gpu_begin(&t, 4096);
        unsigned char ordinary[64];
        int32_t n = 0;
        ck_refused(t.ops->pointer_check(t.gpu, NULL, "keys"), DCI_ERR_INVALID, "keys is NULL");
        if (!gpu_is_host(&t)) {
                ck_refused(t.ops->pointer_check(t.gpu, ordinary, "keys"), DCI_ERR_INVALID, "ordinary host memory");
                ck_ok(dci_gpu_count(&n));
        }
        if (n > 1) {
                dci_gpu *other = open_device(t.context, (t.gpu->device + 1) % n);
                void *memory, *stream, *own;
                unsigned char got[2] = {0, 0};
                ck_ok(other->ops->alloc(other, 64, &memory));
                ck_ok(other->ops->stream_create(other, &stream));
                ck_ok(t.ops->alloc(t.gpu, 64, &own));
                ck_refused(t.ops->pointer_check(t.gpu, memory, "keys"), DCI_ERR_INVALID, "keys");
                ck_refused(t.ops->stream_check(t.gpu, stream), DCI_ERR_INVALID, "stream");
                ck_ok(other->ops->pointer_check(other, memory, "keys"));
                ck_ok(other->ops->stream_check(other, stream));
                /* Both go on working side by side. */
                ck_ok(other->ops->fill(other, stream, memory, 7, 64));
                ck_ok(t.ops->fill(t.gpu, t.stream, own, 9, 64));
                ck_ok(other->ops->copy(other, stream, &got[0], memory, 1));
                ck_ok(t.ops->copy(t.gpu, t.stream, &got[1], own, 1));
                ck_ok(other->ops->stream_wait(other, stream));
                ck_ok(t.ops->stream_wait(t.gpu, t.stream));
                ck_assert_uint_eq(got[0], 7);
                ck_assert_uint_eq(got[1], 9);
                t.ops->free(t.gpu, own, 64);
                other->ops->stream_destroy(other, stream);
                other->ops->free(other, memory, 64);
                dci_gpu_destroy(other);
        }
        gpu_end(&t);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("gpu");
        TCase *tcase = test_case_with(suite, "gpu", 60, context_open_1, context_close);
        tcase_add_test(tcase, bad_input_is_refused_with_a_sentence);
        tcase_add_test(tcase, devices_are_there_or_the_reason_is_told);
        tcase_add_test(tcase, a_device_tells_what_it_is);
        tcase_add_test(tcase, the_last_object_closes_a_device);
        tcase_add_test(tcase, want_of_memory_changes_nothing);
        tcase_add_test(tcase, splits_fill_the_device_and_are_never_short);
        tcase_add_test(tcase, memory_is_poisoned_aligned_and_counted);
        tcase_add_test(tcase, memory_is_locked_once_and_by_pages);
        tcase_add_test(tcase, streams_belong_to_their_device);
        tcase_add_test(tcase, copies_and_events_keep_their_order);
        tcase_add_test(tcase, shapes_without_a_kernel_are_refused);
        tcase_add_test(tcase, what_a_device_cannot_use_is_refused);
        return test_main(suite);
}
