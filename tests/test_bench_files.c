/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* dci-bench and files: every format gives the same answers, and whatever is wrong with a file is one sentence and code 2. */
#include "tests/bench_bytes.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

/* The scratch path of a name with a format's suffix. */
static const char *file_of(const bench_format *format, const char *stem)
{
        char name[64];
        snprintf(name, sizeof name, "%s%s", stem, format->suffix);
        return scratch_path(name);
}

static void write_as(const bench_format *format, const char *stem, const unsigned char *values, size_t n, size_t dim)
{
        char name[64];
        snprintf(name, sizeof name, "%s%s", stem, format->suffix);
        format->write(name, values, n, dim);
}

#define QUICK "--metric", "l2", "--k", "4", "--repeat", "1", "--mode", "batch", "--cache", "none"

/* The neighbours come from integer arithmetic in this file: rows read wrongly could not agree with them. */
START_TEST(every_row_format_agrees_with_known_neighbours)
{
        const bench_format *format = &bench_formats[_i], *other = &bench_formats[((size_t)_i + 3) % bench_n_formats];
        write_as(format, "base", base, N, DIM);
        write_as(other, "query", queries, N_QUERIES, DIM);
        bench_write_ivecs("truth.ivecs", neighbours, N_QUERIES, K);
        json_t *report =
                bench_good(BENCH("ann", "--base", file_of(format, "base"), "--query", file_of(other, "query"),
                                 "--truth", scratch_path("truth.ivecs"), "--json", scratch_path("r.json"), QUICK));
        ck_assert_str_eq(json_string_value(json_object_get(json_object_get(report, "truth"), "origin")), "file");
        ck_assert_double_eq(bench_number(report, 0, "recall"), 1);
        ck_assert_double_eq(bench_number(report, 0, "n"), N);
        ck_assert_double_eq(bench_number(report, 0, "dim"), DIM);
        ck_assert_double_eq(bench_number(report, 0, "n_queries"), N_QUERIES);
}
END_TEST

/* Read as unsigned, the second row would be the nearest, and the named truth wrong. */
START_TEST(signed_bytes_keep_their_sign)
{
        static const unsigned char rows[14] = {3, 0, 0, 0, 2, 0, 0, 0, 0xff, 0x80, 5, 5, 0x7f, 0};
        static const float query[2] = {-1, -128};
        static const int32_t nearest[3] = {0, 1, 2};
        scratch_put("rows.i8bin", rows, sizeof rows);
        bench_write_npy("query.npy", "<f4", "1, 2", query, sizeof query);
        bench_write_ivecs("truth.ivecs", nearest, 1, 3);
        json_t *report = bench_good(BENCH("ann", "--base", scratch_path("rows.i8bin"), "--query",
                                          scratch_path("query.npy"), "--truth", scratch_path("truth.ivecs"), "--metric",
                                          "l2", "--k", "1", "--repeat", "1", "--json", scratch_path("r.json")));
        ck_assert_double_eq(bench_number(report, 0, "recall"), 1);
}
END_TEST

/* uint16, too, are integers, unless the file's name says otherwise. */
START_TEST(numpy_files_of_all_numbers_are_read)
{
        static const char *const types[] = {"<f8", ">f8", ">f4", ">f2", "|i1", "|u1", "<i2", ">i2",
                                            "<u2", ">u2", "<i4", ">i4", "<u4", "<i8", "<u8", ">u8"};
        bench_write_ivecs("truth.ivecs", neighbours, N_QUERIES, K);
        for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
                bench_write_numbers("base.npy", types[i], base, N, DIM);
                bench_write_numbers("query.npy", types[(i + 5) % 16], queries, N_QUERIES, DIM);
                json_t *report = bench_good(BENCH("ann", "--base", scratch_path("base.npy"), "--query",
                                                  scratch_path("query.npy"), "--truth", scratch_path("truth.ivecs"),
                                                  "--json", scratch_path("r.json"), QUICK));
                ck_assert_double_eq(bench_number(report, 0, "recall"), 1);
                ck_assert_double_eq(bench_number(report, 0, "n"), N);
        }
        static const unsigned char bits[8] = {0, 1, 1, 0, 1, 1, 0, 0};
        bench_write_npy("base.npy", "|b1", "4, 2", bits, sizeof bits);
        bench_write_npy("query.npy", "|b1", "1, 2", bits, 2);
        bench_good(BENCH("ann", "--base", scratch_path("base.npy"), "--query", scratch_path("query.npy"), "--json",
                         scratch_path("r.json"), QUICK));
}
END_TEST

START_TEST(numbers_that_float32_does_not_hold_are_named)
{
        static const int64_t integers[6] = {1 << 24, -(1 << 24), 3, (1 << 24) + 1, INT64_MIN, INT64_MAX};
        static const double doubles[4] = {3.4e38, 1e-300, 1.0, -3.5e38};
        static const struct {
                const char *type, *shape, *part;
                const void *data;
                size_t n_bytes;
        } files[] = {
                {"<i8", "3, 2", "row 1 holds 16777217 (int64), which is no float32", integers, 48},
                {"<i8", "6, 1", "row 3 holds 16777217 (int64)", integers, 48},
                {"<u8", "6, 1", "row 1 holds 18446744073692774400 (uint64)", integers, 48},
                {"<i8", "1, 1", "row 0 holds 9223372036854775807 (int64)", integers + 5, 8},
                {"<f8", "2, 2", "row 1 holds -3.5e+38 (float64), float32 ends at 3.40282e+38", doubles, 32},
                {"<f8", "4,", "rows need 2 dimensions, not 1: save x.reshape(n, dim)", doubles, 32},
                {"<f8", "1, 2, 2", "rows need 2 dimensions, not 3", doubles, 32},
                {"<c8", "2, 2", "holds complex numbers ('<c8'); readable are bool, int8 to int64", doubles, 32},
                {"<u8", "0, 2", "0 rows", doubles, 0},
        };
        bench_write_f32("query.npy", (const float[2]){1, 2}, 1, 2);
        for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
                bench_write_npy("base.npy", files[i].type, files[i].shape, files[i].data, files[i].n_bytes);
                bench_refused(
                        BENCH("ann", "--base", scratch_path("base.npy"), "--query", scratch_path("query.npy"), QUICK),
                        2, files[i].part);
        }
        /* What is not used is not looked at. */
        bench_write_npy("base.npy", "<i8", "3, 2", integers, 48);
        bench_good(BENCH("ann", "--base", scratch_path("base.npy"), "--query", scratch_path("query.npy"),
                         "--limit-base", "1", "--json", scratch_path("r.json"), "--metric", "l2", "--k", "1",
                         "--repeat", "1", "--mode", "batch", "--cache", "none"));
        bench_write_npy("base.bf16.npy", "<f4", "1, 2", doubles, 8);
        bench_refused(
                BENCH("ann", "--base", scratch_path("base.bf16.npy"), "--query", scratch_path("query.npy"), QUICK), 2,
                "holds float32, bits of bfloat16 are uint16");
}
END_TEST

START_TEST(a_file_cut_anywhere_is_refused)
{
        const bench_format *format = &bench_formats[_i];
        size_t n_bytes, stride = format->row_bytes + 2 * format->row_bytes_each;
        write_as(&bench_formats[0], "query", queries, 1, 2);
        write_as(format, "whole", base, 3, 2);
        char whole[64], cut[64];
        snprintf(whole, sizeof whole, "whole%s", format->suffix);
        snprintf(cut, sizeof cut, "cut%s", format->suffix);
        unsigned char *bytes = scratch_get(whole, &n_bytes);
        /* The header of a .npy file is 128 bytes of which the most are blanks. */
        for (size_t i = 0; i < n_bytes; i += i < 100 && n_bytes > 100 ? 7 : 1) {
                if (stride > 0 && i > 0 && i % stride == 0)
                        continue;
                scratch_put(cut, bytes, i);
                bench_refused(
                        BENCH("ann", "--base", file_of(format, "cut"), "--query", scratch_path("query.npy"), QUICK), 2,
                        "cut");
        }
        free(bytes);
}
END_TEST

START_TEST(bytes_behind_the_end_are_refused)
{
        const bench_format *format = &bench_formats[_i];
        size_t n_bytes;
        write_as(&bench_formats[0], "query", queries, 1, 2);
        write_as(format, "base", base, 3, 2);
        char name[64];
        snprintf(name, sizeof name, "base%s", format->suffix);
        unsigned char *bytes = scratch_get(name, &n_bytes);
        bytes[n_bytes] = 7; /* scratch_get leaves room for one */
        scratch_put(name, bytes, n_bytes + 1);
        free(bytes);
        bench_result result = BENCH("ann", "--base", scratch_path(name), "--query", scratch_path("query.npy"), QUICK);
        /* gzip's own rule: what follows a whole stream and is no gzip is ignored. */
        if (strstr(name, ".gz") != NULL)
                ck_assert_int_eq(result.code, 0);
        else
                bench_refused(result, 2, "base");
}
END_TEST

typedef struct lie {
        const char *suffix, *part;
        size_t n_bytes;
        unsigned char bytes[40];
} lie;

static const lie lies[] = {
        {".fbin", "do not make", 16, {255, 255, 255, 255, 255, 255, 15, 0}},
        {".fbin", "0 rows", 8, {0, 0, 0, 0, 4, 0, 0, 0}},
        {".fbin", "0 elements", 8, {4, 0, 0, 0, 0, 0, 0, 0}},
        {".u8bin", "4294967295 elements", 12, {1, 0, 0, 0, 255, 255, 255, 255}},
        {".i8bin", "do not make", 12, {0, 0, 0, 128, 2, 0, 0, 0}},
        {".fvecs", "0 elements", 12, {0}},
        {".fvecs", "4294967295 elements", 12, {255, 255, 255, 255}},
        {".bvecs", "row 1 says it has 3 elements", 12, {2, 0, 0, 0, 1, 1, 3, 0, 0, 0, 1, 1}},
        {"-idx3-ubyte",
         "4294967295 images",
         20,
         {0, 0, 8, 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255}},
        {"-idx3-ubyte", "0 images", 16, {0, 0, 8, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1}},
        {"-idx3-ubyte", "cannot come from 17 bytes", 17, {0, 0, 8, 3, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1}},
        {"-idx1-ubyte", "not recognised", 12, {0, 0, 8, 1, 0, 0, 0, 4, 1, 2, 3, 4}},
        {".txt", "not recognised", 4, {'r', 'o', 'w', 's'}},
        {".ivecs", "--truth", 8, {1, 0, 0, 0, 1, 0, 0, 0}},
        {".ibin", "--truth", 12, {1, 0, 0, 0, 1, 0, 0, 0}},
        {".hdf5", "--data", 16, {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'}},
};

START_TEST(a_lying_header_is_refused)
{
        const lie *l = &lies[_i];
        char name[64];
        snprintf(name, sizeof name, "lie%s", l->suffix);
        scratch_put(name, l->bytes, l->n_bytes);
        write_as(&bench_formats[0], "query", queries, 1, 2);
        bench_refused(BENCH("ann", "--base", scratch_path(name), "--query", scratch_path("query.npy"), QUICK), 2,
                      l->part);
}
END_TEST

START_TEST(a_gzip_that_promises_too_much_is_refused)
{
        unsigned char idx[24] = {0, 0, 8, 3, 0, 255, 255, 255, 0, 0, 4, 0, 0, 0, 4, 0};
        gzFile gz = gzopen(scratch_path("big-idx3-ubyte.gz"), "wb");
        ck_assert_int_eq(gzwrite(gz, idx, sizeof idx), (int)sizeof idx);
        ck_assert_int_eq(gzclose(gz), Z_OK);
        write_as(&bench_formats[0], "query", queries, 1, 2);
        bench_refused(
                BENCH("ann", "--base", scratch_path("big-idx3-ubyte.gz"), "--query", scratch_path("query.npy"), QUICK),
                2, "cannot come from");
}
END_TEST

START_TEST(a_gzip_that_holds_more_is_refused)
{
        unsigned char idx[20] = {0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2};
        gzFile gz = gzopen(scratch_path("more-idx3-ubyte.gz"), "wb");
        ck_assert_int_eq(gzwrite(gz, idx, sizeof idx), (int)sizeof idx);
        ck_assert_int_eq(gzclose(gz), Z_OK);
        write_as(&bench_formats[0], "query", queries, 1, 2);
        bench_refused(
                BENCH("ann", "--base", scratch_path("more-idx3-ubyte.gz"), "--query", scratch_path("query.npy"), QUICK),
                2, "bytes follow the last image");
}
END_TEST

START_TEST(a_damaged_gzip_is_refused)
{
        size_t n_bytes;
        write_as(&bench_formats[0], "query", queries, 1, DIM);
        write_as(&bench_formats[9], "base", base, N, DIM);
        unsigned char *bytes = scratch_get("base-idx3-ubyte.gz", &n_bytes);
        bytes[n_bytes - 6] ^= 1; /* its checksum */
        scratch_put("base-idx3-ubyte.gz", bytes, n_bytes);
        free(bytes);
        bench_refused(
                BENCH("ann", "--base", scratch_path("base-idx3-ubyte.gz"), "--query", scratch_path("query.npy"), QUICK),
                2, "damaged");
}
END_TEST

START_TEST(rows_of_another_length_are_refused)
{
        write_as(&bench_formats[0], "base", base, N, DIM);
        write_as(&bench_formats[3], "query", queries, 2, DIM - 1);
        bench_refused(BENCH("ann", "--base", scratch_path("base.npy"), "--query", scratch_path("query.fvecs"), QUICK),
                      2, "rows of 8 elements, but those of");
}
END_TEST

START_TEST(what_is_no_file_is_refused)
{
        static const struct {
                const char *name, *part;
        } odd[] = {{"absent.fbin", "No such file"},
                   {"folder.fbin", "a directory"},
                   {"fifo.fbin", "a FIFO"},
                   {"folder.npy", "a directory"}};
        write_as(&bench_formats[0], "query", queries, 2, DIM);
        mkdir(scratch_path("folder.fbin"), 0777);
        mkdir(scratch_path("folder.npy"), 0777);
        mkfifo(scratch_path("fifo.fbin"), 0666);
        for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
                bench_refused(
                        BENCH("ann", "--base", scratch_path(odd[i].name), "--query", scratch_path("query.npy"), QUICK),
                        2, odd[i].part);
        bench_refused(BENCH("ann", "--data", scratch_path("absent.hdf5")), 2, "No such file");
        bench_refused(BENCH("ann", "--trace", scratch_path("absent")), 2, "No such file");
}
END_TEST

START_TEST(a_changed_byte_is_an_answer_or_a_sentence)
{
        const bench_format *format = &bench_formats[_i];
        dci_rng rng;
        size_t n_bytes;
        char name[64];
        write_as(&bench_formats[0], "query", queries, 1, 2);
        write_as(format, "base", base, 3, 2);
        snprintf(name, sizeof name, "base%s", format->suffix);
        unsigned char *bytes = scratch_get(name, &n_bytes);
        dci_rng_seed(&rng, (uint64_t)_i);
        for (size_t i = 0; i < 12; i++) {
                size_t at = dci_rng_below(&rng, n_bytes);
                unsigned char was = bytes[at];
                bytes[at] = (unsigned char)dci_rng_below(&rng, 256);
                scratch_put(name, bytes, n_bytes);
                bytes[at] = was;
                bench_composed(BENCH("ann", "--base", scratch_path(name), "--query", scratch_path("query.npy"), QUICK));
        }
        free(bytes);
}
END_TEST

/* --- true neighbours -------------------------------------------------------------------------------------------------- */

static bench_result run_truth(const char *truth)
{
        return BENCH("ann", "--base", scratch_path("base.npy"), "--query", scratch_path("query.npy"), "--truth",
                     scratch_path(truth), "--json", scratch_path("r.json"), QUICK);
}

static void write_pair(void)
{
        write_as(&bench_formats[0], "base", base, N, DIM);
        write_as(&bench_formats[0], "query", queries, N_QUERIES, DIM);
}

START_TEST(every_truth_format_is_read)
{
        static const char *const names[] = {"t.ivecs", "t.ibin", "d.ibin", "t32.npy", "u32.npy", "t64.npy"};
        int64_t wide[N_QUERIES * K];
        write_pair();
        for (size_t i = 0; i < N_QUERIES * K; i++)
                wide[i] = neighbours[i];
        bench_write_ivecs("t.ivecs", neighbours, N_QUERIES, K);
        bench_write_ibin("t.ibin", neighbours, N_QUERIES, K, false);
        bench_write_ibin("d.ibin", neighbours, N_QUERIES, K, true);
        bench_write_npy("t32.npy", "<i4", "5, 4", neighbours, sizeof wide / 2);
        bench_write_npy("u32.npy", "<u4", "5, 4", neighbours, sizeof wide / 2);
        bench_write_npy("t64.npy", "<i8", "5, 4", wide, sizeof wide);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
                json_t *report = bench_good(run_truth(names[i]));
                ck_assert_double_eq(bench_number(report, 0, "recall"), 1);
        }
}
END_TEST

START_TEST(a_truth_that_cannot_be_is_refused)
{
        int32_t ids[N_QUERIES * K];
        write_pair();
        memcpy(ids, neighbours, sizeof ids);
        bench_write_ivecs("narrow.ivecs", ids, N_QUERIES, K - 1);
        bench_refused(run_truth("narrow.ivecs"), 2, "3 neighbours per query, 4 are needed");
        bench_write_ivecs("short.ivecs", ids, N_QUERIES - 1, K);
        bench_refused(run_truth("short.ivecs"), 2, "neighbours of 4 queries, but there are 5");
        ids[K + 1] = N;
        bench_write_ivecs("outside.ivecs", ids, N_QUERIES, K);
        bench_refused(run_truth("outside.ivecs"), 2, "neighbour 1 of query 1 is row 60, but there are 60");
        ids[K + 1] = ids[K];
        bench_write_ivecs("twice.ivecs", ids, N_QUERIES, K);
        bench_refused(run_truth("twice.ivecs"), 2, "query 1 names row");
        bench_write_npy("float.npy", "<f4", "5, 4", ids, sizeof ids);
        bench_refused(run_truth("float.npy"), 2, "ids are int32 or int64, this file holds float32");
        write_as(&bench_formats[3], "rows", base, N_QUERIES, K);
        bench_refused(run_truth("rows.fvecs"), 2, "not ids");
        scratch_put("truth.txt", "1 2 3 4", 7);
        bench_refused(run_truth("truth.txt"), 2, "not recognised");
}
END_TEST

START_TEST(a_wrong_truth_ends_with_code_1)
{
        int32_t ids[N_QUERIES * K];
        int32_t *all = bench_neighbours(base, N, queries, N_QUERIES, DIM, N);
        write_pair();
        memcpy(ids, neighbours, sizeof ids);
        ids[2 * K] = all[2 * N + N - 1]; /* the farthest row instead of the nearest */
        free(all);
        bench_write_ivecs("wrong.ivecs", ids, N_QUERIES, K);
        bench_refused(run_truth("wrong.ivecs"), 1, "query 2 has");
}
END_TEST

int main(void)
{
        const bench_test tests[] = {{every_row_format_agrees_with_known_neighbours, (int)bench_n_formats},
                                    {signed_bytes_keep_their_sign, 0},
                                    {numpy_files_of_all_numbers_are_read, 0},
                                    {numbers_that_float32_does_not_hold_are_named, 0},
                                    {a_file_cut_anywhere_is_refused, (int)bench_n_formats},
                                    {bytes_behind_the_end_are_refused, (int)bench_n_formats},
                                    {a_lying_header_is_refused, (int)(sizeof lies / sizeof *lies)},
                                    {a_gzip_that_promises_too_much_is_refused, 0},
                                    {a_gzip_that_holds_more_is_refused, 0},
                                    {a_damaged_gzip_is_refused, 0},
                                    {rows_of_another_length_are_refused, 0},
                                    {what_is_no_file_is_refused, 0},
                                    {a_changed_byte_is_an_answer_or_a_sentence, (int)bench_n_formats},
                                    {every_truth_format_is_read, 0},
                                    {a_truth_that_cannot_be_is_refused, 0},
                                    {a_wrong_truth_ends_with_code_1, 0}};
        return bench_main("bench files", setup, teardown, tests, sizeof tests / sizeof *tests);
}
