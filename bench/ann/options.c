/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/ann/ann.h"

#include <string.h>

/* Fewest rows of a page that codes allow (index.h). */
#define MIN_CODED_PAGE 16

/* clang-format off */
static const char help_usage[] =
        "usage: dci-bench ann --base FILE --query FILE --metric ip|l2|cosine [options]\n"
        "       dci-bench ann --data FILE.hdf5 [options]\n"
        "       dci-bench ann --trace FOLDER [options]\n"
        "\n"
        "Builds an index on the base rows, searches it with the queries, one per call and all in one call, and prints build\n"
        "time, queries per second, recall, kept attention share, distances per query and memory, with the read floor in the\n"
        "same table. Medians and spread over --repeat rounds; the arms take turns, after one round to warm up.\n"
        "\n"
        "data:\n";

static const char help_truth[] =
        "\n"
        "  --truth FILE|own     true neighbours of the queries, best first, at least k each (.ivecs, .ibin or .npy of int32 or\n"
        "                       int64). Default: those of an HDF5 file where they apply, else computed and kept in the cache.\n"
        "                       'own' always computes\n";

static const char help_options[] =
        "\n"
        "what to measure:\n"
        "  --metric ip|l2|cosine     default: ip on traces, the file's own for HDF5; otherwise it must be given\n"
        "  --k K                     neighbours per query, 1 to 16777216 (default 100 on traces, else 10)\n"
        "  --kind LIST               index kinds, comma separated: flat (exact search), pdci (Prioritized DCI), mdci (Multi-level\n"
        "                            DCI), auto (what the library takes for so many rows; its effort is the library's own,\n"
        "                            unless --prop-to-visit, --rerank or --guarantee name others). flat is always measured without codes, as what the others are held against\n"
        "                            (default flat)\n"
        "  --mode one|batch|both     one query per call, all queries in one call, or both (default both)\n"
        "  --group G                 take G queries in a row as a group, 1 to 8: one group per call, or all in one call.\n"
        "                            On a trace the heads that share keys are such a group (its meta.json says how many)\n"
        "  --group-union             with --group: K rows for a whole group instead of K for each of its queries\n"
        "  --repeat R                measured rounds, 1 to 1000 (default 3)\n";

static const char help_efforts[] =
        "  Each pair of shares, or view, is an effort and gives one table row per mode; without any, pdci retrieves\n"
        "  0.005,0.01,0.02,0.05,0.1,0.2,0.5,0.8,1 and mdci visits 0.005,0.01,0.02,0.05,0.1,0.2,0.5,1. With all 1, search is exact.\n";

static const char help_recall[] =
        "  --recall R                the share of the true neighbours that searches ask for, above 0 and at most 1, in place of\n"
        "                            all efforts, those of codes, too: the index calibrates itself while it is built\n";

static const char help_codes[] =
        "\n"
        "of codes, which rank rows before the best of them are scored; each but the first is refused without codes:\n"
        "  --sketch-bits LIST        bits per element of the codes: 0 (none), 1, 2, 3, 4, 8, comma separated (default 0). Each\n"
        "                            kind of --kind is built with each of them\n"
        "  --rerank LIST             rows scored per row wanted, 1 or more, or all (codes are left out); at most 32, comma\n"
        "                            separated (default 1,2,3,4,6,8,12,16 at 1 and 2 bits, 1,1.5,2,3,4 at 3, 4 and 8), each\n"
        "                            with each effort of the kind\n"
        "  --guarantee LIST          further rows that go on scoring until each row left out is none of the k best with this\n"
        "                            probability, above 0 and at most 1; they begin with the library's own rerank\n"
        "  --fit FILE|observation    fit the codes to the queries in FILE, which comes like those of --query, or, with --trace,\n"
        "                            to the trace's queries before the decode; none (default): codes by a random rotation\n"
        "  --fit both:FILE|both:observation\n"
        "                            measure codes that are fitted next to codes that are not\n";

static const char help_output[] =
        "\n"
        "truth and output:\n"
        "  --truth-check N           queries whose true neighbours are verified by a full loop in double precision, at least 1\n"
        "                            (default 8); a mismatch ends the run with exit code 1\n"
        "  --cache FOLDER|none       where computed neighbours are kept (default $XDG_CACHE_HOME/dci or ~/.cache/dci)\n"
        "  --json FILE               also write the results as JSON: {machine, command, truth, recall_tolerance, rows}.\n"
        "                            A row has the columns above and more; its candidates: per query, before scoring\n"
        "  --pareto                  show and write only the rows that no other row of the same mode beats, being at least as\n"
        "                            good in recall and queries/s and better in one, and flat without codes\n"
        "  --help                    this text\n";

static const char help_meaning[] =
        "\n"
        "what the columns mean:\n"
        "  params        pdci: composite indices x simple indices of each, then the shares to visit and to retrieve; mdci: chance\n"
        "                of promotion, then the share of the nodes to visit or how many to view; with codes: their bits, and x2\n"
        "                for two rows scored per row wanted, all, or a guarantee\n"
        "  groups/s      with --group: queries/s over the size of a group\n"
        "  build s       median time to create the index, add all rows and, with --fit, fit the codes\n"
        "  recall        share of the true k neighbours found. A returned id counts, once, when its score in double precision\n"
        "                is as good as the true k-th score; ties count, with a relative tolerance of 1e-6. Of a union: share of\n"
        "                the rows of the true union, the true lists interleaved by rank, that are in it\n"
        "  share         traces only: softmax weight of the returned prompt tokens after the first 16, over that of all prompt\n"
        "                tokens after the first 16; both sums run over all queries before the division\n"
        "  dist/query    distances computed per query: rows that were candidates and whose score was computed. Where all rows\n"
        "                are candidates (flat, and the others at full effort) it is all rows looked at, although batches rank them by\n"
        "                cheaper arithmetic first. Neither pdci's projections nor mdci's nodes are counted: see queries/s for\n"
        "                their cost. With codes it is the rows whose score was computed after codes had ranked them; JSON has\n"
        "                the number ranked as \"proposed\"\n"
        "  of n          dist/query over the number of rows\n"
        "  read floor/s  how often per second one thread could read every stored row byte once, with the widest loads\n"
        "  of floor      queries/s over read floor/s, for one query per call; codes are read in place of rows and may go beyond 1\n"
        "  1k s          build plus 1,000 queries, in seconds\n"
        "  total s       build plus all queries of a round, in seconds\n"
        "  Under cosine, the score with a row of zeros is 0.\n"
        "\n"
        "exit codes: 0 done; 1 failed: memory, a write, a self-check; 2 usage error or bad input, one sentence on stderr\n"
        "\n"
        "examples:\n"
        "  dci-bench ann --trace bench/data/smollm2-debref-layer06_head0\n"
        "  dci-bench ann --trace bench/data/smollm2-debref-layer06_head0 --kind flat,pdci --prop-to-retrieve 0.05,0.2,1\n"
        "  dci-bench ann --trace bench/data/smollm2-debref-layer06_head0 --kind mdci --group 3 --group-union --field-of-view 4,16,64\n"
        "  dci-bench ann --trace bench/data/smollm2-debref-layer06_head0 --kind flat,mdci --sketch-bits 0,2,4\n"
        "                --fit both:observation --pareto\n"
        "  dci-bench ann --data fashion-mnist-784-euclidean.hdf5 --rows f16 --json flat.json\n"
        "  dci-bench ann --base train-images-idx3-ubyte.gz --query t10k-images-idx3-ubyte.gz --metric l2 --limit-queries 1000\n"
        "  dci-bench ann --base sift_base.fvecs --query sift_query.fvecs --truth sift_groundtruth.ivecs --metric l2 --k 10\n";
/* clang-format on */

void ann_print_help(void)
{
        printf("%s%s%s%s%s%s%s%s%s%s", help_usage, bench_source_help, help_truth, help_options, bench_index_help,
               help_efforts, help_recall, help_codes, help_output, help_meaning);
}

/* What --fit says: "both:" before what codes are fitted to. */
static dci_status read_fit(ann_codes *c)
{
        static const char both[] = "both:";
        c->unfitted = true;
        if (c->fit == NULL || strcmp(c->fit, "none") == 0)
                return DCI_OK;
        c->unfitted = strncmp(c->fit, both, strlen(both)) == 0;
        c->fit_to = c->unfitted ? c->fit + strlen(both) : c->fit;
        c->fitted = true;
        c->observation = strcmp(c->fit_to, "observation") == 0;
        if (*c->fit_to == '\0' || strcmp(c->fit_to, "none") == 0)
                return dci_fail(DCI_ERR_INVALID,
                                "--fit wants none, observation or a file, or both: and one of the latter, not '%s'",
                                c->fit);
        return DCI_OK;
}

static dci_status check_codes(ann_options *o)
{
        ann_codes *c = &o->codes;
        dci_status status = read_fit(c);
        if (status != DCI_OK)
                return status;
        const bool automatic = bench_has_kind(&o->index, DCI_KIND_AUTO);
        if (c->widths == 1 << 0 && (((c->rerank.n > 0 || c->guarantee.n > 0) && !automatic) || c->fitted))
                return dci_fail(DCI_ERR_INVALID, "--%s needs --sketch-bits of 1 or more",
                                c->rerank.n > 0      ? "rerank"
                                : c->guarantee.n > 0 ? "guarantee"
                                                     : "fit");
        if (c->observation && o->source.trace == NULL)
                return dci_fail(DCI_ERR_INVALID, "--fit observation needs --trace");
        /* The index would say so too, but after the data was read and the truth computed. */
        const bool coded_tree = c->widths != 1 << 0 && bench_has_kind(&o->index, DCI_KIND_MDCI);
        if ((coded_tree || automatic) && o->index.page_rows < MIN_CODED_PAGE)
                return dci_fail(DCI_ERR_INVALID, "--page-rows is %zu, with %s at least %d", o->index.page_rows,
                                coded_tree ? "--sketch-bits" : "--kind auto", MIN_CODED_PAGE);
        return DCI_OK;
}

/* Options that contradict or miss each other. */
static dci_status check_together(ann_options *o)
{
        DCI_TRY(bench_source_check(&o->source, o->metric));
        if (o->source.truth != NULL && strcmp(o->source.truth, "own") != 0 && o->source.limit_base != BENCH_ALL)
                return dci_fail(DCI_ERR_INVALID,
                                "--truth names neighbours among all base rows and does not fit --limit-base");
        if (o->group_union && o->group == 0)
                return dci_fail(DCI_ERR_INVALID, "--group-union needs --group");
        DCI_TRY(bench_index_options_finish(&o->index, true));
        const char *effort = o->index.prop_to_visit.n > 0      ? "prop-to-visit"
                             : o->index.prop_to_retrieve.n > 0 ? "prop-to-retrieve"
                             : o->index.field_of_view.n > 0    ? "field-of-view"
                             : o->codes.rerank.n > 0           ? "rerank"
                             : o->codes.guarantee.n > 0        ? "guarantee"
                                                               : NULL;
        if (o->index.recall > 0.0 && effort != NULL)
                return dci_fail(DCI_ERR_INVALID, "--recall and --%s exclude each other", effort);
        return check_codes(o);
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
                {"sketch-bits", OPTION_CHOICES, &o->codes.widths, 0, 0, bench_widths},
                {"rerank", OPTION_FACTORS, &o->codes.rerank, 1, DCI_MAX_ROWS, NULL},
                {"guarantee", OPTION_SHARES, &o->codes.guarantee, 0, 0, NULL},
                {"fit", OPTION_TEXT, &o->codes.fit, 0, 0, NULL},
                {"recall", OPTION_SHARE, &o->index.recall, 0, 0, NULL},
                {"pareto", OPTION_FLAG, &o->pareto, 0, 0, NULL},
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
        out->codes.widths = 1 << 0;
        dci_status status = parse(argc, argv, out, out_help);
        if (status != DCI_OK)
                return bench_fail_more(status, "; try 'dci-bench ann --help'");
        ann_list_arms(out);
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
