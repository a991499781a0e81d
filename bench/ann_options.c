/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/ann.h"

#include <string.h>

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
        "data:\n";

static const char help_truth[] =
        "\n"
        "  --truth FILE|own     true neighbours of the queries, best first, at least k each (.ivecs, .ibin or .npy of "
        "int32 or\n"
        "                       int64). Default: those of an HDF5 file where they apply, else computed and kept in the "
        "cache.\n"
        "                       'own' always computes\n";

static const char help_options[] =
        "\n"
        "what to measure:\n"
        "  --metric ip|l2|cosine     default: ip on traces, the file's own for HDF5; otherwise it must be given\n"
        "  --k K                     neighbours per query, 1 to 16777216 (default 100 on traces, else 10)\n"
        "  --kind LIST               index kinds, comma separated: flat (exact search), pdci (Prioritized DCI), mdci "
        "(Multi-level\n"
        "                            DCI). flat is always measured, as what the others are held against (default "
        "flat)\n"
        "  --mode one|batch|both     one query per call, all queries in one call, or both (default both)\n"
        "  --group G                 take G queries in a row as a group, 1 to 8: one group per call, or all in one "
        "call.\n"
        "                            On a trace the heads that share keys are such a group (its meta.json says how "
        "many)\n"
        "  --group-union             with --group: K rows for a whole group instead of K for each of its queries\n"
        "  --repeat R                measured rounds, 1 to 1000 (default 3)\n";

static const char help_efforts[] =
        "  Each pair of shares, or view, is an effort and gives one table row per mode; without any, pdci retrieves\n"
        "  0.005,0.01,0.02,0.05,0.1,0.2,0.5,0.8,1 and mdci visits 0.005,0.01,0.02,0.05,0.1,0.2,0.5,1. With all 1, "
        "search is exact.\n"
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
        "  params        pdci: composite indices x simple indices of each, then the shares to visit and to retrieve; "
        "mdci: chance\n"
        "                of promotion, then the share of the nodes to visit or how many to view\n"
        "  groups/s      with --group: queries/s over the size of a group\n"
        "  build s       median time to create the index and add all rows\n"
        "  recall        share of the true k neighbours found. A returned id counts, once, when its score in double "
        "precision\n"
        "                is as good as the true k-th score; ties count, with a relative tolerance of 1e-6. Of a union: "
        "share of\n"
        "                the rows of the true union, the true lists interleaved by rank, that are in it\n"
        "  share         traces only: softmax weight of the returned prompt tokens after the first 16, over that of "
        "all prompt\n"
        "                tokens after the first 16; both sums run over all queries before the division\n"
        "  dist/query    distances computed per query: rows that were candidates and whose score was computed. Where "
        "all rows\n"
        "                are candidates (flat, and the others at full effort) it is all rows looked at, although "
        "batches "
        "rank "
        "them by\n"
        "                cheaper arithmetic first. Neither pdci's projections nor mdci's nodes are counted: see "
        "queries/s for\n"
        "                their cost\n"
        "  of n          dist/query over the number of rows\n"
        "  read floor/s  how often per second one thread could read every stored row byte once, with the widest loads\n"
        "  of floor      queries/s over read floor/s, for one query per call\n"
        "  1k s          build plus 1,000 queries, in seconds\n"
        "  total s       build plus all queries of a round, in seconds\n"
        "  Under cosine, the score with a row of zeros is 0.\n"
        "\n"
        "exit codes: 0 done; 1 failed: memory, a write, a self-check; 2 usage error or bad input, one sentence on "
        "stderr\n"
        "\n"
        "examples:\n"
        "  dci-bench ann --trace bench/data/smollm2-debref-layer06_head0\n"
        "  dci-bench ann --trace bench/data/smollm2-debref-layer06_head0 --kind flat,pdci --prop-to-retrieve "
        "0.05,0.2,1\n"
        "  dci-bench ann --trace bench/data/smollm2-debref-layer06_head0 --kind mdci --group 3 --group-union "
        "--field-of-view 4,16,64\n"
        "  dci-bench ann --data fashion-mnist-784-euclidean.hdf5 --rows f16 --json flat.json\n"
        "  dci-bench ann --base train-images-idx3-ubyte.gz --query t10k-images-idx3-ubyte.gz --metric l2 "
        "--limit-queries 1000\n"
        "  dci-bench ann --base sift_base.fvecs --query sift_query.fvecs --truth sift_groundtruth.ivecs --metric l2 "
        "--k 10\n";

void ann_print_help(void)
{
        printf("%s%s%s%s%s%s%s", help_usage, bench_source_help, help_truth, help_options, bench_index_help,
               help_efforts, help_meaning);
}

/* Options that contradict or miss each other. */
static dci_status check_together(ann_options *o)
{
        dci_status status = bench_source_check(&o->source, o->metric);
        if (status != DCI_OK)
                return status;
        if (o->source.truth != NULL && o->source.limit_base != BENCH_ALL)
                return dci_fail(DCI_ERR_INVALID,
                                "--truth names neighbours among all base rows and does not fit --limit-base");
        if (o->group_union && o->group == 0)
                return dci_fail(DCI_ERR_INVALID, "--group-union needs --group");
        return bench_index_options_finish(&o->index, true);
}

static dci_status parse(int argc, char **argv, ann_options *o, bool *out_help)
{
        const size_t all = BENCH_ALL - 1;
        const bench_option own[] = {
                {"truth", OPTION_TEXT, &o->source.truth, 0, 0, NULL},
                {"metric", OPTION_CHOICE, &o->metric, 0, 0, bench_metrics},
                {"k", OPTION_SIZE, &o->k, 1, (size_t)1 << 24, NULL},
                {"mode", OPTION_CHOICE, &o->mode, 0, 0, bench_modes},
                {"group", OPTION_SIZE, &o->group, 1, DCI_MAX_GROUP, NULL},
                {"group-union", OPTION_FLAG, &o->group_union, 0, 0, NULL},
                {"repeat", OPTION_SIZE, &o->repeat, 1, 1000, NULL},
                {"truth-check", OPTION_SIZE, &o->truth_check, 1, all, NULL},
                {"cache", OPTION_TEXT, &o->cache, 0, 0, NULL},
                {"json", OPTION_TEXT, &o->json, 0, 0, NULL},
        };
        enum { N_OWN = sizeof own / sizeof *own };
        bench_option table[N_OWN + BENCH_SOURCE_OPTIONS + BENCH_INDEX_OPTIONS];
        memcpy(table, own, sizeof own);
        bench_source_options(&o->source, table + N_OWN);
        bench_index_options_list(&o->index, 1 << DCI_KIND_FLAT, table + N_OWN + BENCH_SOURCE_OPTIONS);
        dci_status status = bench_parse_options(argc, argv, table, sizeof table / sizeof *table, out_help);
        return status == DCI_OK && !*out_help ? check_together(o) : status;
}

dci_status ann_options_parse(int argc, char **argv, ann_options *out, bool *out_help)
{
        memset(out, 0, sizeof *out);
        out->repeat = 3;
        out->truth_check = 8;
        out->mode = BENCH_MODE_BOTH;
        dci_status status = parse(argc, argv, out, out_help);
        if (status != DCI_OK)
                return bench_fail_more(status, "; try 'dci-bench ann --help'");
        out->index.kinds |= 1 << DCI_KIND_FLAT;
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
