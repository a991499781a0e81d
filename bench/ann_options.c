/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/ann.h"

#include <string.h>

static const bench_choice metrics[] = {
        {"ip", DCI_METRIC_IP}, {"l2", DCI_METRIC_L2}, {"cosine", DCI_METRIC_COSINE}, {NULL, 0}};
static const bench_choice kinds[] = {{"flat", DCI_KIND_FLAT}, {"pdci", DCI_KIND_PDCI}, {NULL, 0}};
static const bench_choice dtypes[] = {{"f32", DCI_F32}, {"f16", DCI_F16}, {"bf16", DCI_BF16}, {NULL, 0}};
static const bench_choice modes[] = {
        {"one", ANN_MODE_ONE}, {"batch", ANN_MODE_BATCH}, {"both", ANN_MODE_BOTH}, {NULL, 0}};
static const bench_choice isas[] = {{"auto", DCI_ISA_AUTO},
                                    {"scalar", DCI_ISA_SCALAR},
                                    {"avx2", DCI_ISA_AVX2},
                                    {"avx512", DCI_ISA_AVX512},
                                    {"amx", DCI_ISA_AMX},
                                    {"neon", DCI_ISA_NEON},
                                    {NULL, 0}};

static const char *choice_name(const bench_choice *choices, int32_t value)
{
        for (; choices->name != NULL; choices++)
                if (choices->value == value)
                        return choices->name;
        return "unknown";
}

const char *ann_metric_name(dci_metric metric)
{
        return choice_name(metrics, metric);
}

const char *ann_kind_name(dci_index_kind kind)
{
        return choice_name(kinds, kind);
}

static const char help_usage[] =
        "usage: dci-bench ann --base FILE --query FILE --metric ip|l2|cosine [options]\n"
        "       dci-bench ann --data FILE.hdf5 [options]\n"
        "       dci-bench ann --trace FOLDER [options]\n"
        "\n"
        "Builds an index on the base rows, searches it with the queries, one per call and all in one call, and prints "
        "build\n"
        "time, queries per second, recall, kept attention share, distances per query and memory, with the read floor "
        "in the\n"
        "same table. Medians and spread over --repeat rounds; the arms take turns, after one round to warm up.\n"
        "\n"
        "data:\n"
        "  --base FILE          rows to index\n"
        "  --query FILE         rows to search for, of the same length\n"
        "  --truth FILE|own     true neighbours of the queries, best first, at least k each. Default: those of an HDF5 "
        "file\n"
        "                       where they apply, else computed and kept in the cache. 'own' always computes\n"
        "  --data FILE.hdf5     an ann-benchmarks file: train, test, neighbors (optional), attribute distance\n"
        "  --trace FOLDER       keys.npy, queries.npy and meta.json of captured attention: the prompt's keys are the "
        "base, the\n"
        "                       decode's queries of all heads of the group the queries\n"
        "  --limit-base N       only the first N base rows (default all)\n"
        "  --limit-queries N    only the first N queries (default all)\n"
        "\n"
        "  Rows come as .npy (float32, float16, uint16 as bfloat16 bits), .fvecs, .bvecs, .fbin, .u8bin, .i8bin or IDX "
        "images\n"
        "  of bytes (train-images-idx3-ubyte, plain or .gz); bytes become float32. Neighbours come as .ivecs, .ibin or "
        ".npy\n"
        "  (int32, int64).\n";

static const char help_options[] =
        "\n"
        "what to measure:\n"
        "  --metric ip|l2|cosine     default: ip on traces, the file's own for HDF5; otherwise it must be given\n"
        "  --k K                     neighbours per query, 1 to 16777216 (default 100 on traces, else 10)\n"
        "  --kind LIST               index kinds, comma separated: flat (exact search), pdci (Prioritized DCI). flat "
        "is "
        "always\n"
        "                            measured, as what the others are held against (default flat)\n"
        "  --rows f32|f16|bf16       number format of the stored rows (default: the base file's)\n"
        "  --mode one|batch|both     one query per call, all queries in one call, or both (default both)\n"
        "  --threads N               threads a call may use, 1 to 1024 (default 1)\n"
        "  --repeat R                measured rounds, 1 to 1000 (default 3)\n"
        "  --isa NAME                auto, scalar, avx2, avx512, amx or neon (default auto: the best there is)\n"
        "\n"
        "of pdci, refused without it; flat always spends everything:\n"
        "  --num-comp-indices N      composite indices, each of which proposes candidates, 1 to 4096 (default 2)\n"
        "  --num-simp-indices N      simple indices (random directions) of each, 1 to 4096 (default 7); 4096 in all\n"
        "  --seed N                  of the directions, 0 to 9223372036854775807 (default 0)\n"
        "  --prop-to-visit LIST      share of the rows that a composite index may visit, above 0 and at most 1, at "
        "most "
        "32\n"
        "                            of them, comma separated (default 1)\n"
        "  --prop-to-retrieve LIST   share of the rows that a composite index may make candidates, as above (default\n"
        "                            0.005,0.01,0.02,0.05,0.1,0.2,0.5,0.8,1)\n"
        "  Each pair of the two shares is an effort and gives one table row per mode. With both 1, search is exact.\n"
        "\n"
        "truth and output:\n"
        "  --truth-check N           queries whose true neighbours are verified by a full loop in double precision, at "
        "least 1\n"
        "                            (default 8); a mismatch ends the run with exit code 1\n"
        "  --cache FOLDER|none       where computed neighbours are kept (default $XDG_CACHE_HOME/dci or ~/.cache/dci)\n"
        "  --json FILE               also write the results as JSON: {machine, command, truth, recall_tolerance, "
        "rows}.\n"
        "                            A row has the columns above and more; its candidates: per query, before scoring\n"
        "  --help                    this text\n";

static const char help_meaning[] =
        "\n"
        "what the columns mean:\n"
        "  params        pdci: composite indices x simple indices of each, then the shares to visit and to retrieve\n"
        "  build s       median time to create the index and add all rows\n"
        "  recall        share of the true k neighbours found. A returned id counts, once, when its score in double "
        "precision\n"
        "                is as good as the true k-th score; ties count, with a relative tolerance of 1e-6\n"
        "  share         traces only: softmax weight of the returned prompt tokens after the first 16, over that of "
        "all prompt\n"
        "                tokens after the first 16; both sums run over all queries before the division\n"
        "  dist/query    distances computed per query: rows that were candidates and whose score was computed. Where "
        "all rows\n"
        "                are candidates (flat, and pdci at full effort) it is all rows looked at, although batches "
        "rank "
        "them by\n"
        "                cheaper arithmetic first. pdci's projections are not counted: see 1k s and queries/s for "
        "their "
        "cost\n"
        "  of n          dist/query over the number of rows\n"
        "  read floor/s  how often per second one thread could read every stored row byte once, with the widest loads\n"
        "  of floor      queries/s over read floor/s, for one query per call\n"
        "  1k s          build plus 1,000 queries, in seconds\n"
        "  Under cosine, the score with a row of zeros is 0.\n"
        "\n"
        "exit codes: 0 done; 1 failed: memory, a write, a self-check; 2 usage error or bad input, one sentence on "
        "stderr\n"
        "\n"
        "examples:\n"
        "  dci-bench ann --trace bench/data/smollm2-debref-layer06_head0\n"
        "  dci-bench ann --trace bench/data/smollm2-debref-layer06_head0 --kind flat,pdci --prop-to-retrieve "
        "0.05,0.2,1\n"
        "  dci-bench ann --data fashion-mnist-784-euclidean.hdf5 --rows f16 --json flat.json\n"
        "  dci-bench ann --base train-images-idx3-ubyte.gz --query t10k-images-idx3-ubyte.gz --metric l2 "
        "--limit-queries 1000\n"
        "  dci-bench ann --base sift_base.fvecs --query sift_query.fvecs --truth sift_groundtruth.ivecs --metric l2 "
        "--k 10\n";

void ann_print_help(void)
{
        printf("%s%s%s", help_usage, help_options, help_meaning);
}

static bool has_kind(const ann_options *o, dci_index_kind kind)
{
        return (o->kinds & 1 << kind) != 0;
}

static dci_status check_pdci(const ann_options *o)
{
        const struct {
                const char *name;
                bool given;
        } options[] = {{"num-comp-indices", o->num_comp_indices != BENCH_ALL},
                       {"num-simp-indices", o->num_simp_indices != BENCH_ALL},
                       {"seed", o->seed != BENCH_ALL},
                       {"prop-to-visit", o->prop_to_visit.n > 0},
                       {"prop-to-retrieve", o->prop_to_retrieve.n > 0}};
        for (size_t i = 0; !has_kind(o, DCI_KIND_PDCI) && i < sizeof options / sizeof *options; i++)
                if (options[i].given)
                        return dci_fail(DCI_ERR_INVALID, "--%s needs --kind pdci", options[i].name);
        return DCI_OK;
}

/* What the command line left open, as the library has it; the sweep reaches from almost nothing to exact search. */
static dci_status fill_pdci(ann_options *o)
{
        static const bench_shares all = {1, {1}}, sweep = {9, {0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.8, 1}};
        dci_index_config config;
        dci_status status = dci_index_config_init(&config, sizeof config);
        if (status != DCI_OK)
                return status;
        if (o->num_comp_indices == BENCH_ALL)
                o->num_comp_indices = config.num_comp_indices;
        if (o->num_simp_indices == BENCH_ALL)
                o->num_simp_indices = config.num_simp_indices;
        if (o->seed == BENCH_ALL)
                o->seed = (size_t)config.seed;
        if (o->prop_to_visit.n == 0)
                o->prop_to_visit = all;
        if (o->prop_to_retrieve.n == 0)
                o->prop_to_retrieve = sweep;
        /* The index would say so too, but after the truth has been computed. Both are at most 4096. */
        if (o->num_comp_indices * o->num_simp_indices > DCI_MAX_SIMPLE_INDICES)
                return dci_fail(DCI_ERR_INVALID,
                                "%zu composite indices of %zu simple ones each: --num-comp-indices times "
                                "--num-simp-indices is at most %zu",
                                o->num_comp_indices, o->num_simp_indices, DCI_MAX_SIMPLE_INDICES);
        return DCI_OK;
}

/* Options that contradict or miss each other. */
static dci_status check_together(const ann_options *o)
{
        const bench_source *s = &o->source;
        int sources = (s->base != NULL || s->query != NULL) + (s->data != NULL) + (s->trace != NULL);
        if (sources != 1)
                return dci_fail(DCI_ERR_INVALID, sources == 0
                                                         ? "data is missing: --base and --query, --data or --trace"
                                                         : "--base and --query, --data and --trace exclude each other");
        if (s->base == NULL && s->query != NULL)
                return dci_fail(DCI_ERR_INVALID, "--query needs --base");
        if (s->base != NULL && s->query == NULL)
                return dci_fail(DCI_ERR_INVALID, "--base needs --query");
        if (s->base != NULL && o->metric == 0)
                return dci_fail(DCI_ERR_INVALID, "--metric is missing: ip, l2 or cosine");
        if (s->truth != NULL && s->limit_base != BENCH_ALL)
                return dci_fail(DCI_ERR_INVALID,
                                "--truth names neighbours among all base rows and does not fit --limit-base");
        return check_pdci(o);
}

static dci_status parse(int argc, char **argv, ann_options *o, bool *out_help)
{
        const size_t all = BENCH_ALL - 1;
        const bench_option table[] = {
                {"base", OPTION_TEXT, &o->source.base, 0, 0, NULL},
                {"query", OPTION_TEXT, &o->source.query, 0, 0, NULL},
                {"truth", OPTION_TEXT, &o->source.truth, 0, 0, NULL},
                {"data", OPTION_TEXT, &o->source.data, 0, 0, NULL},
                {"trace", OPTION_TEXT, &o->source.trace, 0, 0, NULL},
                {"limit-base", OPTION_SIZE, &o->source.limit_base, 1, all, NULL},
                {"limit-queries", OPTION_SIZE, &o->source.limit_queries, 1, all, NULL},
                {"metric", OPTION_CHOICE, &o->metric, 0, 0, metrics},
                {"k", OPTION_SIZE, &o->k, 1, (size_t)1 << 24, NULL},
                {"kind", OPTION_CHOICES, &o->kinds, 0, 0, kinds},
                {"num-comp-indices", OPTION_SIZE, &o->num_comp_indices, 1, DCI_MAX_SIMPLE_INDICES, NULL},
                {"num-simp-indices", OPTION_SIZE, &o->num_simp_indices, 1, DCI_MAX_SIMPLE_INDICES, NULL},
                {"seed", OPTION_SIZE, &o->seed, 0, (size_t)INT64_MAX, NULL}, /* what JSON can hold */
                {"prop-to-visit", OPTION_SHARES, &o->prop_to_visit, 0, 0, NULL},
                {"prop-to-retrieve", OPTION_SHARES, &o->prop_to_retrieve, 0, 0, NULL},
                {"rows", OPTION_CHOICE, &o->rows, 0, 0, dtypes},
                {"mode", OPTION_CHOICE, &o->mode, 0, 0, modes},
                {"threads", OPTION_SIZE, &o->threads, 1, 1024, NULL},
                {"repeat", OPTION_SIZE, &o->repeat, 1, 1000, NULL},
                {"isa", OPTION_CHOICE, &o->isa, 0, 0, isas},
                {"truth-check", OPTION_SIZE, &o->truth_check, 1, all, NULL},
                {"cache", OPTION_TEXT, &o->cache, 0, 0, NULL},
                {"json", OPTION_TEXT, &o->json, 0, 0, NULL},
        };
        dci_status status = bench_parse_options(argc, argv, table, sizeof table / sizeof *table, out_help);
        if (status != DCI_OK || *out_help)
                return status;
        status = check_together(o);
        return status == DCI_OK ? fill_pdci(o) : status;
}

dci_status ann_options_parse(int argc, char **argv, ann_options *out, bool *out_help)
{
        memset(out, 0, sizeof *out);
        out->source.limit_base = BENCH_ALL;
        out->source.limit_queries = BENCH_ALL;
        out->num_comp_indices = out->num_simp_indices = out->seed = BENCH_ALL;
        out->threads = 1;
        out->repeat = 3;
        out->truth_check = 8;
        out->mode = ANN_MODE_BOTH;
        dci_status status = parse(argc, argv, out, out_help);
        if (status != DCI_OK)
                return bench_fail_more(status, "; try 'dci-bench ann --help'");
        out->kinds |= 1 << DCI_KIND_FLAT;
        if (out->source.truth != NULL && strcmp(out->source.truth, "own") == 0) {
                out->source.truth = NULL;
                out->own_truth = true;
        }
        if (out->cache == NULL)
                out->cache = bench_truth_cache_default(out->default_cache, sizeof out->default_cache)
                                     ? out->default_cache
                                     : NULL;
        else if (strcmp(out->cache, "none") == 0)
                out->cache = NULL;
        return DCI_OK;
}
