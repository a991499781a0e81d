/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/ann/latency.h"

#include <string.h>

/* clang-format off */
static const char help_usage[] =
        "usage: dci-bench latency [options]\n"
        "       dci-bench latency (--base FILE --query FILE --metric ip|l2|cosine | --data FILE.hdf5 | --trace FOLDER) [options]\n"
        "\n"
        "An index of --n rows; a writer adds a page of rows and removes the oldest, in turns, alone and while readers search,\n"
        "one query per call, as fast as they can. Prints how long the calls take: what readers cost a writer, and how long a\n"
        "writer holds up a reader.\n"
        "\n"
        "data (without any: random rows near a subspace, see 'growth'):\n";

static const char help_options[] =
        "\n"
        "  --dim D                   of random rows, 1 to 65536 (default 64)\n"
        "  --latent D                dimensions that random rows vary in, 1 to 65536 (default 16)\n"
        "\n"
        "what to measure:\n"
        "  --metric ip|l2|cosine     default: l2 for random rows, ip on traces, the file's own for HDF5\n"
        "  --k K                     neighbours per query, 1 to 65536 (default 10)\n"
        "  --kind KIND               index kind: flat, pdci, mdci or auto (default mdci)\n"
        "  --n N                     rows in the index (default 32768; of a data set that has fewer, all but 256 pages' worth\n"
        "                            or a quarter, whichever is less)\n"
        "  --page N                  rows per call, 1 to 4096 (default 16)\n"
        "  --calls N                 additions, as many removals, and at least as many searches of each reader, 1 to 1000000\n"
        "                            (default 1000); the writer goes on untimed until all readers have them\n"
        "  --readers LIST            numbers of reader threads, 1 to 64 each, comma separated (default 1,2)\n"
        "  --pause-us N              what the writer waits after each removal, 0 to 1000000 (default 0)\n";

static const char help_output[] =
        "  One effort (default: pdci retrieves, mdci visits, a tenth).\n"
        "\n"
        "output:\n"
        "  --json FILE               also write {machine, command, params, .., rows}: per phase add, remove and search with\n"
        "                            calls, median_us, p99_us and max_us, or null\n"
        "  --help                    this text\n"
        "\n"
        "exit codes: 0 done; 1 failed: memory, a write, a self-check; 2 usage error or bad input, one sentence on stderr\n"
        "\n"
        "example:\n"
        "  dci-bench latency --readers 1,2 --field-of-view 32 --json latency.json\n";
/* clang-format on */

void latency_print_help(void)
{
        printf("%s%s%s%s%s", help_usage, bench_source_help, help_options, bench_index_help, help_output);
}

static dci_status check(latency_options *o)
{
        const bench_source *s = &o->source;
        o->synthetic = s->base == NULL && s->query == NULL && s->data == NULL && s->trace == NULL;
        if (o->synthetic && (s->limit_base != BENCH_ALL || s->limit_queries != BENCH_ALL))
                return dci_fail(DCI_ERR_INVALID, "--limit-base and --limit-queries need data; --n says how many rows");
        if (!o->synthetic && (o->rows.dim != BENCH_ALL || o->rows.latent != BENCH_ALL))
                return dci_fail(DCI_ERR_INVALID, "--dim and --latent are for random rows, not for data");
        DCI_TRY(o->synthetic ? DCI_OK : bench_source_check(s, o->metric));
        DCI_TRY(bench_one_kind(&o->index, &o->kind));
        DCI_TRY(bench_index_options_finish(&o->index, false));
        if (o->rows.dim == BENCH_ALL)
                o->rows.dim = 64;
        if (o->rows.latent == BENCH_ALL)
                o->rows.latent = 16;
        o->rows.seed = o->index.seed;
        return DCI_OK;
}

dci_status latency_options_parse(int argc, char **argv, latency_options *o, bool *out_help)
{
        static const bench_sizes readers = {2, {1, 2}};
        const bench_option own[] = {
                {"dim", OPTION_SIZE, &o->rows.dim, 1, 65536, NULL},
                {"latent", OPTION_SIZE, &o->rows.latent, 1, 65536, NULL},
                {"metric", OPTION_CHOICE, &o->metric, 0, 0, bench_metrics},
                {"k", OPTION_SIZE, &o->k, 1, 65536, NULL},
                {"n", OPTION_SIZE, &o->n, 1, (size_t)1 << 30, NULL},
                {"page", OPTION_SIZE, &o->page, 1, 4096, NULL},
                {"calls", OPTION_SIZE, &o->calls, 1, 1000000, NULL},
                {"readers", OPTION_SIZES, &o->readers, 1, LATENCY_MAX_READERS, NULL},
                {"pause-us", OPTION_SIZE, &o->pause_us, 0, 1000000, NULL},
                {"json", OPTION_TEXT, &o->json, 0, 0, NULL},
        };
        enum { N_OWN = sizeof own / sizeof *own };
        bench_option table[N_OWN + BENCH_SOURCE_OPTIONS + BENCH_INDEX_OPTIONS];
        memset(o, 0, sizeof *o);
        o->rows = (bench_synthetic){.dim = BENCH_ALL, .latent = BENCH_ALL, .noise = 0.01};
        o->k = 10;
        o->page = 16;
        o->calls = 1000;
        o->readers = readers;
        memcpy(table, own, sizeof own);
        bench_source_options(&o->source, table + N_OWN);
        bench_index_options_list(&o->index, 1 << DCI_KIND_MDCI, table + N_OWN + BENCH_SOURCE_OPTIONS);
        dci_status status = bench_parse_options(argc, argv, table, sizeof table / sizeof *table, out_help);
        if (status == DCI_OK && !*out_help)
                status = check(o);
        return status == DCI_OK ? status : bench_fail_more(status, "; try 'dci-bench latency --help'");
}
