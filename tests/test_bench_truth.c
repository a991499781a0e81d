/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* dci-bench's true neighbours in the cache, and the attention share of traces. */
#include "tests/bench_floats.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/file.h"

/* --- the cache ----------------------------------------------------------------------------------------------------------- */

static const char *origin_of(json_t *report)
{
        static char origin[32];
        snprintf(origin, sizeof origin, "%s",
                 json_string_value(json_object_get(json_object_get(report, "truth"), "origin")));
        ck_assert_double_eq(bench_number(report, 0, "recall"), 1);
        return origin;
}

/* The folder is the scratch folder itself; a cached truth's name ends with its k. */
static const char *cache_name(size_t k)
{
        static char name[256];
        char command[2048];
        snprintf(command, sizeof command, "ls '%s' | grep '^truth-.*-k%zu[.]npy$'", scratch_path(""), k);
        /* NOLINTNEXTLINE(cert-env33-c): a fixed command in the test's own folder. */
        FILE *list = popen(command, "r");
        ck_assert_ptr_nonnull(list);
        ck_assert_ptr_nonnull(fgets(name, sizeof name, list));
        name[strcspn(name, "\n")] = '\0';
        ck_assert_int_eq(pclose(list), 0);
        return name;
}

static bench_result run_cached(const char *k)
{
        return RUN("--metric", "cosine", "--k", k, "--cache", scratch_path(""), "--repeat", "1", "--mode", "batch",
                   "--json", scratch_path("r.json"));
}

/* Succeeds after a note that the cached file will be replaced, which `why` is a part of. */
static void expect_replaced(const char *k, const char *why)
{
        bench_result result = run_cached(k);
        ck_assert_msg(strstr(result.err, why) != NULL, "'%s' does not say '%s'", result.err, why);
        result.err[0] = '\0';
        ck_assert_str_eq(origin_of(bench_good(result)), "computed");
}

START_TEST(a_cached_truth_is_used_and_a_damaged_one_replaced)
{
        size_t n_bytes;
        ck_assert_str_eq(origin_of(bench_good(run_cached("10"))), "computed");
        ck_assert_str_eq(origin_of(bench_good(run_cached("10"))), "cached");
        unsigned char *bytes = scratch_get(cache_name(10), &n_bytes);
        /* In the header, in an id, in a score, in a checksum; and cut short. */
        const size_t at[] = {3, 128, 128 + 8 * 14 + 2, 128 + 8 * 20, n_bytes - 30};
        for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
                bytes[at[i]] ^= 4;
                scratch_put(cache_name(10), bytes, i < 4 ? n_bytes : n_bytes - 1);
                bytes[at[i]] ^= 4;
                expect_replaced("10", "damaged and will be replaced");
                scratch_expect(cache_name(10), bytes, n_bytes);
        }
        free(bytes);
}
END_TEST

/* A cached truth as it is in the file: ids, scores and checksum per query. */
typedef struct cached {
        unsigned char *bytes;
        size_t n_bytes, k;
} cached;

static int64_t *cached_row(const cached *c, size_t query)
{
        return (int64_t *)(void *)(c->bytes + 128) + query * (2 * c->k + 1);
}

static cached read_cached(size_t k)
{
        cached c = {NULL, 0, k};
        c.bytes = scratch_get(cache_name(k), &c.n_bytes);
        ck_assert_uint_eq(c.n_bytes, 128 + N_QUERIES * (2 * k + 1) * sizeof(int64_t));
        return c;
}

/* With a checksum that is right. */
static void write_cached(cached *c, size_t query)
{
        int64_t *row = cached_row(c, query);
        row[2 * c->k] = dci_crc32c(0, row, 2 * c->k * sizeof *row);
        scratch_put(cache_name(c->k), c->bytes, c->n_bytes);
}

/* Query 2 is none of the 8 of 12 that are verified by a full loop: only scoring its ids again shows that one is forged. */
START_TEST(a_forged_id_is_noticed_by_its_score)
{
        ck_assert_str_eq(origin_of(bench_good(run_cached("10"))), "computed");
        cached c = read_cached(10);
        int64_t *last = cached_row(&c, 2) + 9;
        *last = *last == 299 ? 298 : *last + 1;
        write_cached(&c, 2);
        free(c.bytes);
        expect_replaced("10", "damaged and will be replaced");
}
END_TEST

/* The 11th neighbour with its own score in place of the 10th: nothing is inconsistent, it is only not the truth. */
START_TEST(a_forged_id_with_its_score_is_noticed_by_the_full_loop)
{
        ck_assert_str_eq(origin_of(bench_good(run_cached("10"))), "computed");
        ck_assert_str_eq(origin_of(bench_good(run_cached("11"))), "computed");
        cached ten = read_cached(10), eleven = read_cached(11);
        cached_row(&ten, 0)[9] = cached_row(&eleven, 0)[10];
        cached_row(&ten, 0)[19] = cached_row(&eleven, 0)[21];
        write_cached(&ten, 0);
        test_free(ten.bytes, eleven.bytes);
        expect_replaced("10", "is wrong and will be replaced");
}
END_TEST

START_TEST(the_cache_is_keyed_by_what_the_truth_depends_on)
{
        (void)bench_good(run_cached("10"));
        base[0] += 1;
        bench_write_f32("base.npy", base, N, DIM);
        ck_assert_str_eq(origin_of(bench_good(run_cached("10"))), "computed");
        queries[0] += 1;
        bench_write_f32("query.npy", queries, N_QUERIES, DIM);
        ck_assert_str_eq(origin_of(bench_good(run_cached("10"))), "computed");
        ck_assert_str_eq(origin_of(bench_good(run_cached("10"))), "cached");
        ck_assert_uint_eq(scratch_count(), 5); /* base, query, three truths */
}
END_TEST

START_TEST(a_cache_that_cannot_be_written_is_only_a_note)
{
        bench_result result = RUN("--metric", "l2", "--cache", scratch_path("base.npy/x"), "--repeat", "1", "--json",
                                  scratch_path("r.json"));
        ck_assert_ptr_nonnull(strstr(result.err, "note: the true neighbours were not kept"));
        result.err[0] = '\0';
        ck_assert_str_eq(origin_of(bench_good(result)), "computed");
}
END_TEST

/* --- traces ------------------------------------------------------------------------------------------------------------------ */

#define TOKENS 60
#define PROMPT 40
#define FIRST 36
#define GROUP 2
#define M (TOKENS - FIRST)
#define SINK 16
#define SCALE 0.5

/* meta.json with one field replaced; name NULL: none. */
static void write_meta(const char *name, const char *value)
{
        static const char *const fields[][2] = {{"tokens", "60"}, {"prompt", "40"}, {"first_query", "36"},
                                                {"group", "2"},   {"scale", "0.5"}, {"model", "\"normal numbers\""}};
        char text[512] = "{";
        for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
                const char *what = name != NULL && strcmp(name, fields[i][0]) == 0 ? value : fields[i][1];
                size_t used = strlen(text);
                snprintf(text + used, sizeof text - used, "%s\"%s\": %s", i > 0 ? ", " : "", fields[i][0], what);
        }
        strcat(text, "}");
        scratch_put("meta.json", text, strlen(text));
}

static void write_trace(float **out_keys, float **out_queries)
{
        *out_keys = test_normal(TOKENS, DIM, 3);
        *out_queries = test_normal(GROUP * M, DIM, 4);
        bench_write_f32("keys.npy", *out_keys, TOKENS, DIM);
        bench_write_npy("queries.npy", "<f4", "2, 24, 20", *out_queries, GROUP * M * DIM * sizeof(float));
        write_meta(NULL, NULL);
}

/* The k heaviest prompt tokens of one query by a plain loop: adds the kept and the whole contested weight. */
static void weigh(const float *keys, const float *query, size_t position, size_t k, double *kept, double *whole)
{
        bench_scored all[TOKENS];
        double sum = 0;
        for (size_t i = 0; i <= position; i++) {
                all[i] = (bench_scored){0, i};
                for (size_t j = 0; j < DIM; j++)
                        all[i].score += (double)query[j] * keys[i * DIM + j];
                sum += exp(SCALE * all[i].score);
        }
        qsort(all, PROMPT, sizeof *all, bench_better);
        for (size_t i = 0; i < PROMPT; i++) {
                double weight = all[i].id >= SINK ? exp(SCALE * all[i].score) / sum : 0;
                *whole += weight;
                *kept += i < k ? weight : 0;
        }
}

#define RUN_TRACE(...) BENCH("ann", "--trace", scratch_path(""), JSON, __VA_ARGS__)

START_TEST(a_trace_reports_the_kept_attention)
{
        static const char *const ks[] = {"1", "5", "40", "41"};
        float *keys, *all_queries;
        write_trace(&keys, &all_queries);
        for (size_t i = 0; i < sizeof ks / sizeof *ks; i++) {
                double kept = 0, whole = 0;
                for (size_t head = 0; head < GROUP; head++)
                        for (size_t t = PROMPT; t < TOKENS; t++)
                                weigh(keys, all_queries + (head * M + t - FIRST) * DIM, t, strtoul(ks[i], NULL, 10),
                                      &kept, &whole);
                json_t *report = bench_good(RUN_TRACE("--k", ks[i]));
                for (size_t row = 0; row < 2; row++) {
                        ck_assert_double_le(fabs(bench_number(report, row, "share") - kept / whole), 1e-8);
                        ck_assert_double_eq(bench_number(report, row, "recall"), 1);
                        ck_assert_double_eq(bench_number(report, row, "n"), PROMPT);
                        ck_assert_double_eq(bench_number(report, row, "n_queries"), GROUP * (TOKENS - PROMPT));
                }
        }
        test_free(keys, all_queries);
}
END_TEST

START_TEST(a_trace_has_its_own_defaults)
{
        float *keys, *all_queries;
        write_trace(&keys, &all_queries);
        test_free(keys, all_queries);
        json_t *report = bench_good(RUN_TRACE("--mode", "batch"));
        const json_t *row = bench_row(report, 0);
        ck_assert_str_eq(json_string_value(json_object_get(row, "metric")), "ip");
        ck_assert_double_eq(bench_number(report, 0, "k"), 100);
}
END_TEST

START_TEST(a_trace_that_contradicts_itself_is_refused)
{
        static const struct {
                const char *name, *value, *part;
        } lies[] = {{"tokens", "61", "60 keys"},
                    {"tokens", "-1", "'tokens' must be"},
                    {"tokens", "\"60\"", "'tokens' must be"},
                    {"tokens", "1e300", "'tokens' must be"},
                    {"prompt", "60", "prompt < tokens"},
                    {"prompt", "16", "16 < prompt"},
                    {"first_query", "41", "first_query <= prompt"},
                    {"first_query", "35", "must be 2 x 25 x 20"},
                    {"group", "0", "group >= 1"},
                    {"group", "3", "must be 3 x 24 x 20"},
                    {"scale", "0", "'scale' must be"},
                    {"scale", "null", "'scale' must be"},
                    {"scale", "}", "not JSON"}};
        float *keys, *all_queries;
        write_trace(&keys, &all_queries);
        for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
                write_meta(lies[i].name, lies[i].value);
                bench_refused(RUN_TRACE("--k", "5"), 2, lies[i].part);
        }
        write_meta(NULL, NULL);
        keys[(TOKENS - 1) * DIM] = NAN; /* after the prompt: no index ever sees it */
        bench_write_f32("keys.npy", keys, TOKENS, DIM);
        bench_refused(RUN_TRACE("--k", "5"), 2, "NaN");
        test_free(keys, all_queries);
}
END_TEST

int main(void)
{
        const bench_test tests[] = {{a_cached_truth_is_used_and_a_damaged_one_replaced, 0},
                                    {a_forged_id_is_noticed_by_its_score, 0},
                                    {a_forged_id_with_its_score_is_noticed_by_the_full_loop, 0},
                                    {the_cache_is_keyed_by_what_the_truth_depends_on, 0},
                                    {a_cache_that_cannot_be_written_is_only_a_note, 0},
                                    {a_trace_reports_the_kept_attention, 0},
                                    {a_trace_has_its_own_defaults, 0},
                                    {a_trace_that_contradicts_itself_is_refused, 0}};
        return bench_main("bench truth", setup, teardown, tests, sizeof tests / sizeof *tests);
}
