/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The emulator of CUDA kernels: right kernels compute what they should, wrong ones are caught, each with its sentence. */
#include "tests/common.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "simd/convert.h"
#include "tests/emulated/examples.h"

#define N EXAMPLE_THREADS
static _Alignas(128) uint32_t in[N], out[8 * N];

static void fill(void)
{
        for (uint32_t i = 0; i < N; i++)
                in[i] = i * 7 % 11;
        memset(out, 0xff, sizeof out);
}

/* What a process writes that runs one, and how it ends. */
static int run_apart(int which, char *text, size_t room)
{
        int ends[2], status;
        ck_assert_int_eq(pipe(ends), 0);
        const pid_t child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0) {
                dup2(ends[1], STDERR_FILENO);
                close(ends[0]);
                fill();
                _exit(example_run(which, 1, 160, in, out) == 0 ? 0 : 1);
        }
        close(ends[1]);
        size_t n = 0;
        for (ssize_t got; n + 1 < room && (got = read(ends[0], text + n, room - 1 - n)) > 0;)
                n += (size_t)got;
        text[n] = '\0';
        close(ends[0]);
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        return status;
}

START_TEST(wrong_kernels_are_caught)
{
        static const char *const said[EXAMPLES_WRONG] = {
                [EXAMPLE_ENDED] = "63 of 64 threads wait at the barrier",
                [EXAMPLE_ELSEWHERE] = "comes to the barrier at line",
                [EXAMPLE_LANES] = "for lanes ffff0000 of its warp that do not come",
                [EXAMPLE_CALLS] = "comes to another call",
                [EXAMPLE_FROM] = "reads from lane 20, which is not in mask 0000ffff",
                [EXAMPLE_MASK] = "mask 0000ffff at line",
                [EXAMPLE_BEHIND] = "byte 160 of dynamic shared memory was written, there are 160",
                [EXAMPLE_NO_WAIT] = "copies that nobody waited for",
                [EXAMPLE_UNALIGNED] = "all are multiples of 16",
                [EXAMPLE_NOT_BEGUN] = "was never begun",
                [EXAMPLE_TOO_FEW] = "wait for bytes or arrivals that do not come",
                [EXAMPLE_TOO_LONG] = "bytes 128 to 192 of dynamic shared memory are copied, there are 160",
        };
        for (int which = 0; which < EXAMPLES_WRONG; which++) {
                char text[8192];
                const int status = run_apart(which, text, sizeof text);
                /* A page that may not be touched has no sentence. */
                ck_assert_msg(WIFSIGNALED(status) || WEXITSTATUS(status) > 1 || which == EXAMPLE_FAR,
                              "example %d was not caught: %s", which, text);
                ck_assert_msg(status != 0, "example %d was not caught", which);
                if (said[which] != NULL)
                        ck_assert_msg(strstr(text, said[which]) != NULL, "example %d: expected \"%s\", got: %s", which,
                                      said[which], text);
        }
}
END_TEST

START_TEST(launches_have_limits)
{
        fill();
        ck_assert_int_eq(example_run(EXAMPLE_NEIGHBOUR, 1, 48 * 1024, in, out), 0);
        ck_assert_int_ne(example_run(EXAMPLE_NEIGHBOUR, 1, 48 * 1024 + 16, in, out), 0);
        ck_assert_int_ne(example_run(EXAMPLE_NEIGHBOUR, 0, 0, in, out), 0);
}
END_TEST

START_TEST(unwritten_memory_and_missing_barriers_show)
{
        fill();
        ck_assert_int_eq(example_run(EXAMPLE_UNWRITTEN, 2, 4 * N, in, out), 0);
        for (size_t i = 0; i < 2 * N; i++)
                ck_assert_uint_eq(out[i], 0xffffffffu);
        ck_assert_int_eq(example_run(EXAMPLE_NEIGHBOUR, 1, 0, in, out), 0);
        for (uint32_t i = 0; i < N; i++)
                ck_assert_uint_eq(out[i], (i + 1) % N);
        size_t n_wrong = 0;
        ck_assert_int_eq(example_run(EXAMPLE_HASTY, 1, 0, in, out), 0);
        for (uint32_t i = 0; i < N; i++)
                n_wrong += out[i] != (i + 1) % N;
        ck_assert_uint_gt(n_wrong, 0);
}
END_TEST

START_TEST(blocks_come_in_any_order)
{
        bool seen[40] = {false}, shuffled = false;
        memset(out, 0, sizeof out);
        ck_assert_int_eq(example_run(EXAMPLE_ORDER, 40, 0, in, out), 0);
        ck_assert_uint_eq(out[0], 40);
        for (uint32_t i = 0; i < 40; i++) {
                ck_assert_uint_lt(out[1 + i], 40);
                ck_assert(!seen[out[1 + i]]);
                seen[out[1 + i]] = true;
                shuffled = shuffled || out[1 + i] != i;
        }
        ck_assert(shuffled);
}
END_TEST

START_TEST(lanes_exchange_what_they_have)
{
        fill();
        ck_assert_int_eq(example_run(EXAMPLE_SHUFFLES, 1, 0, in, out), 0);
        for (uint32_t i = 0; i < N; i++) {
                uint32_t half = 0, whole = 0, most = 0;
                for (uint32_t j = 0; j < 32; j++) {
                        const uint32_t x = in[i / 32 * 32 + j];
                        whole += x;
                        half += j / 16 == i % 32 / 16 ? x : 0;
                        most = x > most ? x : most;
                }
                ck_assert_uint_eq(out[i], whole * 1000000 + half * 1000 + in[i % 32 == 0 ? i : i - 1] + most);
        }
        ck_assert_int_eq(example_run(EXAMPLE_VOTES, 1, 0, in, out), 0);
        for (uint32_t i = 0; i < N; i++) {
                uint32_t wanted = 0;
                for (uint32_t j = i % 2; j < 32; j += 2) {
                        const uint32_t x = in[i / 32 * 32 + j];
                        wanted |= (uint32_t)(i % 2 == 1 ? x > 4 : (x & 3) == (in[i] & 3)) << j;
                }
                ck_assert_uint_eq(out[i], wanted);
        }
        ck_assert_int_eq(example_run(EXAMPLE_COPIES, 1, 256, in, out), 0);
        ck_assert_mem_eq(out, in, sizeof in);
}
END_TEST

START_TEST(products_are_those_of_matrices)
{
        uint16_t a[16 * 16], b[8 * 16];
        uint8_t bytes_a[16 * 32], bytes_b[8 * 32];
        float d[16 * 8];
        int32_t whole[16 * 8];
        dci_rng rng;
        dci_rng_seed(&rng, 5);
        for (int type = 0; type < 2; type++) {
                float wide_a[16 * 16], wide_b[8 * 16], before[16 * 8] = {0.0f};
                for (size_t i = 0; i < COUNT(a) + COUNT(b); i++) {
                        const float x = (float)((int)(dci_rng_next(&rng) % 2001) - 1000) / 64.0f;
                        const bool of_a = i < COUNT(a);
                        const size_t at = of_a ? i : i - COUNT(a);
                        (of_a ? a : b)[at] = type == 0 ? dci_float_to_f16(x) : dci_float_to_bf16(x);
                        (of_a ? wide_a : wide_b)[at] = type == 0 ? dci_f16_to_float((of_a ? a : b)[at])
                                                                 : dci_bf16_to_float((of_a ? a : b)[at]);
                }
                for (size_t i = 0; i < COUNT(d); i++)
                        before[i] = d[i] = (float)i - 60.0f;
                type == 0 ? example_f16(a, b, d) : example_bf16(a, b, d);
                for (size_t i = 0; i < COUNT(d); i++) {
                        double sum = (double)before[i];
                        for (size_t k = 0; k < 16; k++)
                                sum += (double)wide_a[i / 8 * 16 + k] * (double)wide_b[i % 8 * 16 + k];
                        ck_assert_double_eq_tol((double)d[i], sum, 1e-3);
                }
        }
        for (int is_signed = 0; is_signed < 2; is_signed++) {
                for (size_t i = 0; i < COUNT(bytes_a); i++)
                        bytes_a[i] = (uint8_t)dci_rng_next(&rng);
                for (size_t i = 0; i < COUNT(bytes_b); i++)
                        bytes_b[i] = (uint8_t)dci_rng_next(&rng);
                for (size_t i = 0; i < COUNT(whole); i++)
                        whole[i] = (int32_t)i;
                example_bytes(bytes_a, bytes_b, whole, is_signed);
                for (size_t i = 0; i < COUNT(whole); i++) {
                        int32_t sum = (int32_t)i;
                        for (size_t k = 0; k < 32; k++)
                                sum += bytes_a[i / 8 * 32 + k] *
                                       (is_signed ? (int)(int8_t)bytes_b[i % 8 * 32 + k] : bytes_b[i % 8 * 32 + k]);
                        ck_assert_int_eq(whole[i], sum);
                }
        }
}
END_TEST

START_TEST(numbers_are_the_processors)
{
        dci_rng rng;
        dci_rng_seed(&rng, 6);
        for (uint32_t x = 0; x < 0x10000; x++) {
                const float wide = dci_f16_to_float((uint16_t)x), got = example_from_half((uint16_t)x);
                ck_assert(memcmp(&wide, &got, sizeof got) == 0 || (isnan(wide) && isnan(got)));
        }
        for (size_t i = 0; i < 200000; i++) {
                const uint32_t bits = (uint32_t)dci_rng_next(&rng);
                float x, y;
                memcpy(&x, &bits, sizeof x);
                y = ldexpf((float)(bits & 0xffffff), (int)(bits >> 26) - 60); /* near binary16's */
                if (!isnan(x)) {
                        ck_assert_uint_eq(example_half(x), dci_float_to_f16(x));
                        ck_assert_uint_eq(example_bfloat(x), dci_float_to_bf16(x));
                }
                ck_assert_uint_eq(example_half(y), dci_float_to_f16(y));
        }
        ck_assert(example_towards_zero(3.0f, 0.25f, 8388608.0f) == 8388608.0f);
        ck_assert(example_towards_zero(7.0f, 0.25f, 8388608.0f) == 8388609.0f);
        ck_assert(example_towards_zero(-7.0f, 0.25f, -8388608.0f) == -8388609.0f);
        /* Further beyond the end than a double reaches. */
        ck_assert(example_towards_zero(-1.0f, 0x1p-100f, 1.0f) == 0x1.fffffep-1f);
        ck_assert(example_towards_zero(1.0f, 0x1p-100f, 1.0f) == 1.0f);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("emulated");
        TCase *tcase = test_case(suite, "emulated", 120);
        tcase_add_test(tcase, wrong_kernels_are_caught);
        tcase_add_test(tcase, launches_have_limits);
        tcase_add_test(tcase, unwritten_memory_and_missing_barriers_show);
        tcase_add_test(tcase, blocks_come_in_any_order);
        tcase_add_test(tcase, lanes_exchange_what_they_have);
        tcase_add_test(tcase, products_are_those_of_matrices);
        tcase_add_test(tcase, numbers_are_the_processors);
        return test_main(suite);
}
