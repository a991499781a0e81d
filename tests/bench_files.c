/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/bench_files.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include "simd/convert.h"

/* --- running ------------------------------------------------------------------------------------------------------ */

static void redirect(const char *path, int descriptor)
{
        FILE *file = fopen(path, "wb");
        if (file == NULL || dup2(fileno(file), descriptor) < 0)
                _exit(99);
}

static void slurp(const char *name, char *out, size_t size)
{
        size_t n;
        unsigned char *bytes = scratch_get(name, &n);
        ck_assert_uint_lt(n, size);
        memcpy(out, bytes, n);
        out[n] = '\0';
        free(bytes);
}

bench_result bench_run(const char *const *arguments)
{
        bench_result result;
        char *argv[48] = {(char *)DCI_BENCH_PATH};
        int status;
        for (size_t i = 0; arguments[i] != NULL; i++) {
                ck_assert_uint_lt(i + 2, sizeof argv / sizeof *argv);
                /* A copy: scratch_path's own memory is used again below. */
                argv[i + 1] = strdup(arguments[i]);
        }
        fflush(NULL);
        pid_t child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0) {
                redirect(scratch_path("stdout"), STDOUT_FILENO);
                redirect(scratch_path("stderr"), STDERR_FILENO);
                setenv("HOME", scratch_path("home"), 1);
                setenv("XDG_CACHE_HOME", scratch_path("cache"), 1);
                execv(DCI_BENCH_PATH, argv);
                _exit(98);
        }
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        for (size_t i = 1; argv[i] != NULL; i++)
                free(argv[i]);
        result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        slurp("stdout", result.out, sizeof result.out);
        slurp("stderr", result.err, sizeof result.err);
        remove(scratch_path("stdout"));
        remove(scratch_path("stderr"));
        return result;
}

enum { MAX_REPORTS = 64 };
static json_t *reports[MAX_REPORTS];
static size_t n_reports;

static void release_reports(void)
{
        while (n_reports > 0)
                json_decref(reports[--n_reports]);
}

json_t *bench_report(void)
{
        json_error_t error;
        json_t *report = json_load_file(scratch_path("r.json"), JSON_REJECT_DUPLICATES, &error);
        ck_assert_msg(report != NULL, "line %d: %s", error.line, error.text);
        ck_assert_uint_lt(n_reports, MAX_REPORTS);
        remove(scratch_path("r.json"));
        return reports[n_reports++] = report;
}

json_t *bench_good(bench_result result)
{
        ck_assert_msg(result.code == 0, "exit code %d: %s", result.code, result.err);
        ck_assert_str_eq(result.err, "");
        return bench_report();
}

void bench_refused(bench_result result, int code, const char *part)
{
        ck_assert_msg(result.code == code, "exit code %d, wanted %d: %s", result.code, code, result.err);
        ck_assert_msg(strncmp(result.err, "dci-bench", 9) == 0, "'%s' does not say who speaks", result.err);
        ck_assert_msg(strstr(result.err, part) != NULL, "'%s' does not say '%s'", result.err, part);
        char *end = strchr(result.err, '\n');
        ck_assert_msg(end != NULL && end[1] == '\0', "'%s' is not one line", result.err);
}

void bench_composed(bench_result result)
{
        if (result.code == 0)
                ck_assert_str_eq(result.err, "");
        else
                bench_refused(result, result.code == 1 ? 1 : 2, "");
}

/* --- reports -------------------------------------------------------------------------------------------------------- */

size_t bench_rows(const json_t *report)
{
        return json_array_size(json_object_get(report, "rows"));
}

const json_t *bench_row(const json_t *report, size_t i)
{
        return json_array_get(json_object_get(report, "rows"), i);
}

const json_t *bench_value(const json_t *report, size_t i, const char *name)
{
        const json_t *value = json_object_get(bench_row(report, i), name);
        ck_assert_msg(value != NULL, "row %zu has no '%s'", i, name);
        return value;
}

double bench_number(const json_t *report, size_t i, const char *name)
{
        const json_t *value = json_object_get(bench_row(report, i), name);
        ck_assert_msg(json_is_number(value), "row %zu has no number '%s'", i, name);
        return json_number_value(value);
}

const char *bench_text(const json_t *report, size_t i, const char *name)
{
        const char *text = json_string_value(bench_value(report, i, name));
        ck_assert_msg(text != NULL, "row %zu: '%s' is no text", i, name);
        return text;
}

bool bench_is_null(const json_t *report, size_t i, const char *name)
{
        return json_is_null(bench_value(report, i, name));
}

void bench_near(double got, double wanted, double tolerance, const char *what)
{
        ck_assert_msg(fabs(got - wanted) <= tolerance, "%s: %.9g, wanted %.9g within %g", what, got, wanted, tolerance);
}

int bench_main(const char *name, void (*setup)(void), void (*teardown)(void), const bench_test *tests, size_t n)
{
        Suite *suite = suite_create(name);
        TCase *tcase = tcase_create(name);
        tcase_set_timeout(tcase, 120);
        tcase_add_checked_fixture(tcase, NULL, release_reports);
        tcase_add_checked_fixture(tcase, setup, teardown);
        for (size_t i = 0; i < n; i++)
                if (tests[i].n_loops > 0)
                        tcase_add_loop_test(tcase, tests[i].test, 0, tests[i].n_loops);
                else
                        tcase_add_test(tcase, tests[i].test);
        suite_add_tcase(suite, tcase);
        return test_main(suite);
}

/* --- rows ----------------------------------------------------------------------------------------------------------- */

unsigned char *bench_values(size_t n, size_t dim, uint64_t seed)
{
        dci_rng rng;
        dci_rng_seed(&rng, seed);
        unsigned char *values = malloc(n * dim);
        ck_assert_ptr_nonnull(values);
        for (size_t i = 0; i < n * dim; i++)
                values[i] = (unsigned char)dci_rng_below(&rng, 128);
        return values;
}

int bench_better(const void *a, const void *b)
{
        const bench_scored *x = a, *y = b;
        return (x->score < y->score) - (x->score > y->score);
}

int32_t *bench_neighbours(const unsigned char *base, size_t n, const unsigned char *queries, size_t n_queries,
                          size_t dim, size_t k)
{
        int32_t *ids = malloc(n_queries * k * sizeof *ids);
        long *distances = malloc(n * sizeof *distances);
        ck_assert(ids != NULL && distances != NULL);
        for (size_t q = 0; q < n_queries; q++) {
                for (size_t i = 0; i < n; i++) {
                        distances[i] = 0;
                        for (size_t j = 0; j < dim; j++) {
                                long difference = (long)queries[q * dim + j] - base[i * dim + j];
                                distances[i] += difference * difference;
                        }
                }
                for (size_t j = 0; j < k; j++) {
                        size_t best = n;
                        for (size_t i = 0; i < n; i++)
                                if (distances[i] >= 0 && (best == n || distances[i] < distances[best]))
                                        best = i;
                        ids[q * k + j] = (int32_t)best;
                        distances[best] = -1; /* taken */
                }
        }
        free(distances);
        return ids;
}

/* --- writers -------------------------------------------------------------------------------------------------------- */

typedef struct buffer {
        unsigned char bytes[65536];
        size_t n;
} buffer;

static void put(buffer *b, const void *data, size_t n)
{
        ck_assert_uint_le(b->n + n, sizeof b->bytes);
        memcpy(b->bytes + b->n, data, n);
        b->n += n;
}

static void put_u32(buffer *b, size_t value)
{
        uint32_t word = (uint32_t)value;
        put(b, &word, sizeof word);
}

static void put_u32_big(buffer *b, size_t value)
{
        for (int shift = 24; shift >= 0; shift -= 8) {
                unsigned char byte = (unsigned char)(value >> shift);
                put(b, &byte, 1);
        }
}

static void put_float(buffer *b, unsigned char value)
{
        float number = value;
        put(b, &number, sizeof number);
}

void bench_write_npy(const char *file, const char *type, const char *shape, const void *data, size_t n_bytes)
{
        static buffer b;
        char header[128];
        int n = snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", type,
                         shape);
        unsigned char start[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, 118, 0};
        ck_assert_int_lt(n, 117);
        memset(header + n, ' ', sizeof header - (size_t)n);
        header[117] = '\n';
        b.n = 0;
        put(&b, start, sizeof start);
        put(&b, header, 118);
        put(&b, data, n_bytes);
        scratch_put(file, b.bytes, b.n);
}

void bench_write_f32(const char *file, const float *rows, size_t n, size_t dim)
{
        char shape[64];
        snprintf(shape, sizeof shape, "%zu, %zu", n, dim);
        bench_write_npy(file, "<f4", shape, rows, n * dim * sizeof *rows);
}

static void write_npy_as(const char *file, const unsigned char *values, size_t n, size_t dim, const char *type,
                         uint16_t (*shorten)(float))
{
        static buffer b;
        char shape[64];
        snprintf(shape, sizeof shape, "%zu, %zu", n, dim);
        b.n = 0;
        for (size_t i = 0; i < n * dim; i++) {
                if (shorten == NULL) {
                        put_float(&b, values[i]);
                } else {
                        uint16_t half = shorten(values[i]);
                        put(&b, &half, sizeof half);
                }
        }
        bench_write_npy(file, type, shape, b.bytes, b.n);
}

/* One number of type "<f8" and so on. */
static void put_number(buffer *b, unsigned char value, const char *type)
{
        const size_t size = (size_t)(type[2] - '0');
        const double wide = value;
        const float single = value;
        const uint16_t half = dci_float_to_f16(value);
        uint64_t word = value;
        if (type[1] == 'f')
                memcpy(&word,
                       size == 8   ? (const void *)&wide
                       : size == 4 ? (const void *)&single
                                   : (const void *)&half,
                       size);
        for (size_t i = 0; i < size; i++) {
                const unsigned char byte = (unsigned char)(word >> 8 * (type[0] == '>' ? size - 1 - i : i));
                put(b, &byte, 1);
        }
}

void bench_write_numbers(const char *file, const char *type, const unsigned char *values, size_t n, size_t dim)
{
        static buffer b;
        char shape[64];
        snprintf(shape, sizeof shape, "%zu, %zu", n, dim);
        b.n = 0;
        for (size_t i = 0; i < n * dim; i++)
                put_number(&b, values[i], type);
        bench_write_npy(file, type, shape, b.bytes, b.n);
}

static uint16_t to_f16(float value)
{
        return dci_float_to_f16(value);
}

static uint16_t to_bf16(float value)
{
        return dci_float_to_bf16(value);
}

static void write_npy_f32(const char *file, const unsigned char *values, size_t n, size_t dim)
{
        write_npy_as(file, values, n, dim, "<f4", NULL);
}

static void write_npy_f16(const char *file, const unsigned char *values, size_t n, size_t dim)
{
        write_npy_as(file, values, n, dim, "<f2", to_f16);
}

static void write_npy_bf16(const char *file, const unsigned char *values, size_t n, size_t dim)
{
        write_npy_as(file, values, n, dim, "<u2", to_bf16);
}

/* TEXMEX and big-ann differ in where the lengths stand. */
static void write_raw(const char *file, const unsigned char *values, size_t n, size_t dim, bool texmex, bool floats)
{
        static buffer b;
        b.n = 0;
        if (!texmex) {
                put_u32(&b, n);
                put_u32(&b, dim);
        }
        for (size_t i = 0; i < n; i++) {
                if (texmex)
                        put_u32(&b, dim);
                for (size_t j = 0; j < dim; j++) {
                        if (floats)
                                put_float(&b, values[i * dim + j]);
                        else
                                put(&b, &values[i * dim + j], 1);
                }
        }
        scratch_put(file, b.bytes, b.n);
}

static void write_fvecs(const char *file, const unsigned char *values, size_t n, size_t dim)
{
        write_raw(file, values, n, dim, true, true);
}

static void write_bvecs(const char *file, const unsigned char *values, size_t n, size_t dim)
{
        write_raw(file, values, n, dim, true, false);
}

static void write_fbin(const char *file, const unsigned char *values, size_t n, size_t dim)
{
        write_raw(file, values, n, dim, false, true);
}

static void write_u8bin(const char *file, const unsigned char *values, size_t n, size_t dim)
{
        write_raw(file, values, n, dim, false, false);
}

static void put_idx(buffer *b, const unsigned char *values, size_t n, size_t dim)
{
        b->n = 0;
        put_u32_big(b, 0x803);
        put_u32_big(b, n);
        put_u32_big(b, 1);
        put_u32_big(b, dim);
        put(b, values, n * dim);
}

static void write_idx(const char *file, const unsigned char *values, size_t n, size_t dim)
{
        static buffer b;
        put_idx(&b, values, n, dim);
        scratch_put(file, b.bytes, b.n);
}

static void write_idx_gz(const char *file, const unsigned char *values, size_t n, size_t dim)
{
        static buffer b;
        put_idx(&b, values, n, dim);
        gzFile gz = gzopen(scratch_path(file), "wb");
        ck_assert_ptr_nonnull(gz);
        ck_assert_int_eq(gzwrite(gz, b.bytes, (unsigned)b.n), (int)b.n);
        ck_assert_int_eq(gzclose(gz), Z_OK);
}

const bench_format bench_formats[] = {
        {"npy f32", write_npy_f32, ".npy", 0, 0},        {"npy f16", write_npy_f16, ".npy", 0, 0},
        {"npy bf16", write_npy_bf16, ".bf16.npy", 0, 0}, {"fvecs", write_fvecs, ".fvecs", 4, 4},
        {"bvecs", write_bvecs, ".bvecs", 1, 4},          {"fbin", write_fbin, ".fbin", 0, 0},
        {"u8bin", write_u8bin, ".u8bin", 0, 0},          {"i8bin", write_u8bin, ".i8bin", 0, 0},
        {"idx", write_idx, "-idx3-ubyte", 0, 0},         {"idx gzip", write_idx_gz, "-idx3-ubyte.gz", 0, 0},
};
const size_t bench_n_formats = sizeof bench_formats / sizeof *bench_formats;

void bench_write_ibin(const char *file, const int32_t *ids, size_t n, size_t width, bool distances)
{
        static buffer b;
        b.n = 0;
        put_u32(&b, n);
        put_u32(&b, width);
        put(&b, ids, n * width * sizeof *ids);
        for (size_t i = 0; distances && i < n * width; i++)
                put_float(&b, 1);
        scratch_put(file, b.bytes, b.n);
}

void bench_write_ivecs(const char *file, const int32_t *ids, size_t n, size_t width)
{
        static buffer b;
        b.n = 0;
        for (size_t i = 0; i < n; i++) {
                put_u32(&b, width);
                put(&b, ids + i * width, width * sizeof *ids);
        }
        scratch_put(file, b.bytes, b.n);
}

void bench_write_trace(const float *keys, size_t dim, size_t tokens, size_t prompt, size_t first_query, size_t group)
{
        char text[128];
        const size_t m = tokens - first_query;
        float *heads = test_normal(group * m, dim, 9);
        snprintf(text, sizeof text,
                 "{\"tokens\": %zu, \"prompt\": %zu, \"first_query\": %zu, \"group\": %zu, \"scale\": 0.1}", tokens,
                 prompt, first_query, group);
        scratch_put("meta.json", text, strlen(text));
        bench_write_f32("keys.npy", keys, tokens, dim);
        snprintf(text, sizeof text, "%zu, %zu, %zu", group, m, dim);
        bench_write_npy("queries.npy", "<f4", text, heads, group * m * dim * sizeof *heads);
        free(heads);
}
