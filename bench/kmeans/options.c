/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/kmeans/kmeans.h"

#include <string.h>

static const bench_choice inits[] = {{"random", DCI_KMEANS_INIT_RANDOM},
                                     {"plusplus", DCI_KMEANS_INIT_PLUSPLUS},
                                     {"even", DCI_KMEANS_INIT_EVEN},
                                     {NULL, 0}};
static const bench_choice centroids[] = {{"unit", DCI_CENTROID_UNIT}, {"mean", DCI_CENTROID_MEAN}, {NULL, 0}};
static const bench_choice stops[] = {{"rounds", DCI_KMEANS_STOP_ROUNDS},
                                     {"stable", DCI_KMEANS_STOP_STABLE},
                                     {"tolerance", DCI_KMEANS_STOP_TOLERANCE},
                                     {NULL, 0}};

/* What an option holds that was not given: no choice has this value. */
#define NOT_GIVEN (-1)
#define DEFAULT_SLACK 3.0

const char *kmeans_init_name(int32_t init)
{
        return init == DCI_KMEANS_INIT_GIVEN ? "given" : bench_choice_name(inits, init);
}

const char *kmeans_centroid_name(int32_t centroid)
{
        return bench_choice_name(centroids, centroid);
}

const char *kmeans_stop_name(int32_t stop)
{
        return bench_choice_name(stops, stop);
}

/* --- help -------------------------------------------------------------------------------------------------------------- */

/* clang-format off */
static const char help_usage[] =
        "usage: dci-bench kmeans --base FILE --clusters LIST [options]\n"
        "       dci-bench kmeans --trace FOLDER [options]\n"
        "\n"
        "With --base: clusters the rows of a file and prints time, objective and the sizes of clusters. Each number of clusters\n"
        "with each number of threads is an arm; the arms take turns, after one round to warm up.\n"
        "\n"
        "With --trace: cuts the prompt's keys after the first 16 into pages in three ways (clusters of at most a page; plain\n"
        "clusters, each cut by position; by position alone), takes pages by the attention of the group's heads to their means,\n"
        "best first, and prints which share of the prompt's true attention the chosen tokens hold.\n"
        "\n"
        "data:\n"
        "  --base FILE               rows: .npy (any numbers; *.bf16.npy: bfloat16 as uint16), .fvecs, .bvecs, .fbin, .u8bin,\n"
        "                            .i8bin or IDX images of bytes\n"
        "  --trace FOLDER            keys.npy, queries.npy and meta.json of captured attention\n"
        "  --limit N                 with --base: only the first N rows (default all)\n"
        "  --rows f32|f16|bf16|i8|u8 with --base: number format of the rows (default: the file's)\n"
        "\n";

static const char help_clusters[] =
        "clusters:\n"
        "  --clusters LIST           numbers of clusters, comma separated; --base needs it, or --init-file\n"
        "  --metric cosine|l2|ip     default cosine\n"
        "  --iter N                  most rounds, 0 to 100000 (default 20; with --trace 10)\n"
        "  --tolerance SHARE         stops when a round changes the objective by no more than this share of it, above 0 and at\n"
        "                            most 1 (default: when no label changes)\n"
        "  --init random|plusplus|even  where centroids start: rows drawn, k-means++, evenly spaced rows (default random)\n"
        "  --init-file FILE.npy      with --base: the centroids to start from, clusters x dim of float32\n"
        "  --seed N                  of the draws, 0 to 9223372036854775807 (default 0)\n"
        "  --redo N                  runs from different starts, of which the best is kept, 1 to 1000 (default 1)\n"
        "  --centroid unit|mean      under cosine: the mean of the unit rows, or of the rows as they are (default unit)\n"
        "  --subtract-mean           takes the mean of all rows from each\n"
        "  --capacity C              with --base: most rows of a cluster (default any number)\n"
        "  --segment-rows S          clusters segments of S rows, each into its share of the clusters (default all at once)\n"
        "  --iter-global N           with --segment-rows: most rounds over all rows afterwards, 0 to 100000 (default 0)\n"
        "\n"
        "pages, with --trace:\n"
        "  --page N                  rows of a page, 1 to 65536 (default 16)\n"
        "  --seeds N                 shares are means over --seed and the N - 1 after it, 1 to 1000 (default 1); the other figures\n"
        "                            are those of the last. A share of few tokens moves by a quarter from seed to seed\n"
        "  --slack F                 balanced clusters: F times the least number that holds all rows, 1 to 16 (default 3: docs/clustering.md)\n"
        "\n";

static const char help_output[] =
        "measuring and output:\n"
        "  --threads LIST            threads a call may use, 1 to 1024, comma separated (default 1); one with --trace\n"
        "  --isa NAME                auto, scalar, avx2, avx512, amx or neon (default auto: the best there is)\n"
        "  --rounds R                with --base: measured rounds, 1 to 1000 (default 3)\n"
        "  --out-centroids FILE.npy  with --base and one number of clusters: writes the centroids\n"
        "  --json FILE               also write {machine, command, dataset, rows}; a row has the columns below and more:\n"
        "                            iter, as asked for, and rounds, as carried out; history, with objective, seconds since the\n"
        "                            call began, moved rows and empty clusters of each round of the fastest call\n"
        "  --help                    this text\n"
        "\n"
        "what the columns mean:\n"
        "  seconds       median over --rounds of the whole call, with labels and centroids\n"
        "  objective     of the labels and centroids returned: the sum over rows of the cosine to the own centroid (ip: of the\n"
        "                inner product; l2: of the squared distance)\n"
        "  free          the objective if each row went to its nearest centroid, whatever the capacity\n"
        "  stop          why rounds ended: after --iter rounds, stable (no label changed), or the tolerance\n"
        "  share B n     true softmax weight of the tokens chosen in a budget of n tokens, of which 80 are the first 16 and a\n"
        "                window, over that of all prompt tokens after the first 16; both sums run over the query heads and\n"
        "                positions before the division. Positions: prompt + 8 and every 24th from there (240th, where 1,000\n"
        "                tokens or more are decoded)\n"
        "  fill          rows per page over --page\n"
        "\n"
        "exit codes: 0 done; 1 failed: memory, a write, a self-check, among them a cluster beyond the capacity; 2 usage error or\n"
        "bad input, one sentence on stderr\n"
        "\n"
        "examples:\n"
        "  dci-bench kmeans --base keys.npy --clusters 400,2048 --iter 10 --threads 1,2 --json kmeans.json\n"
        "  dci-bench kmeans --trace bench/data/smollm2-debref-layer06_head0\n";
/* clang-format on */

void kmeans_print_help(void)
{
        printf("%s%s%s", help_usage, help_clusters, help_output);
}

/* --- checks ------------------------------------------------------------------------------------------------------------ */

/* Refuses an option that this kind of run does not use. */
static dci_status check_source(const kmeans_options *o)
{
        const struct {
                const char *name;
                bool given;
        } of_base[] = {{"limit", o->limit != BENCH_ALL},
                       {"rows", o->rows != 0},
                       {"clusters", o->clusters.n > 0},
                       {"init-file", o->init_file != NULL},
                       {"capacity", o->capacity != BENCH_ALL},
                       {"rounds", o->rounds != BENCH_ALL},
                       {"out-centroids", o->out_centroids != NULL}},
          of_trace[] = {{"page", o->page != BENCH_ALL}, {"slack", o->slack > 0}, {"seeds", o->seeds != BENCH_ALL}};
        if ((o->base != NULL) == (o->trace != NULL))
                return dci_fail(DCI_ERR_INVALID, o->base == NULL ? "data is missing: --base or --trace"
                                                                 : "--base and --trace exclude each other");
        for (size_t i = 0; o->base == NULL && i < sizeof of_base / sizeof *of_base; i++)
                if (of_base[i].given)
                        return dci_fail(DCI_ERR_INVALID, "--%s needs --base", of_base[i].name);
        for (size_t i = 0; o->trace == NULL && i < sizeof of_trace / sizeof *of_trace; i++)
                if (of_trace[i].given)
                        return dci_fail(DCI_ERR_INVALID, "--%s needs --trace", of_trace[i].name);
        if (o->base != NULL && o->clusters.n == 0 && o->init_file == NULL)
                return dci_fail(DCI_ERR_INVALID, "--clusters is missing: how many are wanted");
        if (o->trace != NULL && o->threads.n > 1)
                return dci_fail(DCI_ERR_INVALID, "--threads: --trace takes one number, not several");
        return DCI_OK;
}

static dci_status check_init(const kmeans_options *o)
{
        if (o->init_file != NULL && o->init != NOT_GIVEN)
                return dci_fail(DCI_ERR_INVALID, "--init and --init-file exclude each other");
        if (o->init_file != NULL && o->clusters.n > 1)
                return dci_fail(DCI_ERR_INVALID, "--init-file goes with one number of --clusters, not with %zu",
                                o->clusters.n);
        if (o->init_file != NULL && o->segment_rows != BENCH_ALL)
                return dci_fail(DCI_ERR_INVALID, "--init-file and --segment-rows exclude each other: given centroids "
                                                 "belong to no segment");
        if (o->init == DCI_KMEANS_INIT_EVEN && o->seeds != BENCH_ALL && o->seeds > 1)
                return dci_fail(DCI_ERR_INVALID, "--seeds %zu needs a start that is drawn: --init random or plusplus",
                                o->seeds);
        if (o->redo > 1 && (o->init_file != NULL || o->init == DCI_KMEANS_INIT_EVEN))
                return dci_fail(DCI_ERR_INVALID, "--redo %zu needs a start that is drawn: --init random or plusplus",
                                o->redo);
        return DCI_OK;
}

static dci_status check(const kmeans_options *o)
{
        DCI_TRY(check_source(o));
        DCI_TRY(check_init(o));
        if (o->out_centroids != NULL && o->clusters.n > 1)
                return dci_fail(DCI_ERR_INVALID, "--out-centroids goes with one number of --clusters, not with %zu",
                                o->clusters.n);
        if (o->iter_global != BENCH_ALL && o->segment_rows == BENCH_ALL)
                return dci_fail(DCI_ERR_INVALID, "--iter-global needs --segment-rows");
        if (o->centroid != NOT_GIVEN && o->metric != DCI_METRIC_COSINE)
                return dci_fail(DCI_ERR_INVALID, "--centroid needs --metric cosine");
        return DCI_OK;
}

/* --- parsing ----------------------------------------------------------------------------------------------------------- */

static dci_status parse(int argc, char **argv, kmeans_options *o, bool *out_help)
{
        const size_t all = BENCH_ALL - 1, max_rounds = 100000;
        const bench_option table[] = {
                {"base", OPTION_TEXT, &o->base, 0, 0, NULL},
                {"trace", OPTION_TEXT, &o->trace, 0, 0, NULL},
                {"limit", OPTION_SIZE, &o->limit, 1, all, NULL},
                {"rows", OPTION_CHOICE, &o->rows, 0, 0, bench_dtypes},
                {"clusters", OPTION_SIZES, &o->clusters, 1, DCI_MAX_ROWS, NULL},
                {"metric", OPTION_CHOICE, &o->metric, 0, 0, bench_metrics},
                {"iter", OPTION_SIZE, &o->iter, 0, max_rounds, NULL},
                {"tolerance", OPTION_SHARE, &o->tolerance, 0, 0, NULL},
                {"init", OPTION_CHOICE, &o->init, 0, 0, inits},
                {"init-file", OPTION_TEXT, &o->init_file, 0, 0, NULL},
                {"seed", OPTION_SIZE, &o->seed, 0, (size_t)INT64_MAX, NULL}, /* what JSON can hold */
                {"redo", OPTION_SIZE, &o->redo, 1, 1000, NULL},
                {"centroid", OPTION_CHOICE, &o->centroid, 0, 0, centroids},
                {"subtract-mean", OPTION_FLAG, &o->subtract_mean, 0, 0, NULL},
                {"capacity", OPTION_SIZE, &o->capacity, 1, DCI_MAX_ROWS, NULL},
                {"segment-rows", OPTION_SIZE, &o->segment_rows, 1, DCI_MAX_ROWS, NULL},
                {"iter-global", OPTION_SIZE, &o->iter_global, 0, max_rounds, NULL},
                {"page", OPTION_SIZE, &o->page, 1, 65536, NULL},
                {"seeds", OPTION_SIZE, &o->seeds, 1, 1000, NULL},
                {"slack", OPTION_NUMBER, &o->slack, 1, 16, NULL},
                {"threads", OPTION_SIZES, &o->threads, 1, 1024, NULL},
                {"isa", OPTION_CHOICE, &o->isa, 0, 0, bench_isas},
                {"rounds", OPTION_SIZE, &o->rounds, 1, 1000, NULL},
                {"out-centroids", OPTION_TEXT, &o->out_centroids, 0, 0, NULL},
                {"json", OPTION_TEXT, &o->json, 0, 0, NULL},
        };
        dci_status status = bench_parse_options(argc, argv, table, sizeof table / sizeof *table, out_help);
        return status == DCI_OK && !*out_help ? check(o) : status;
}

static size_t given_or(size_t given, size_t otherwise)
{
        return given != BENCH_ALL ? given : otherwise;
}

dci_status kmeans_options_parse(int argc, char **argv, kmeans_options *o, bool *out_help)
{
        static const bench_sizes one_thread = {1, {1}};
        memset(o, 0, sizeof *o);
        o->metric = DCI_METRIC_COSINE;
        o->init = o->centroid = NOT_GIVEN;
        o->redo = 1;
        o->threads = one_thread;
        o->limit = o->iter = o->iter_global = o->capacity = o->segment_rows = o->rounds = o->page = o->seeds =
                BENCH_ALL;
        dci_status status = parse(argc, argv, o, out_help);
        if (status != DCI_OK)
                return bench_fail_more(status, "; try 'dci-bench kmeans --help'");
        if (o->init == NOT_GIVEN)
                o->init = o->init_file != NULL ? DCI_KMEANS_INIT_GIVEN : DCI_KMEANS_INIT_RANDOM;
        if (o->centroid == NOT_GIVEN)
                o->centroid = DCI_CENTROID_UNIT;
        o->iter = given_or(o->iter, o->trace != NULL ? 10 : 20);
        o->iter_global = given_or(o->iter_global, 0);
        o->capacity = given_or(o->capacity, 0);
        o->segment_rows = given_or(o->segment_rows, 0);
        o->rounds = given_or(o->rounds, 3);
        o->page = given_or(o->page, 16);
        o->seeds = given_or(o->seeds, 1);
        o->slack = o->slack > 0 ? o->slack : DEFAULT_SLACK;
        return DCI_OK;
}
