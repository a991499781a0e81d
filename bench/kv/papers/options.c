/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/kv/papers/papers.h"

#include <stdlib.h>
#include <string.h>

static const bench_choice page_sizes[] = {{"8", 8}, {"16", 16}, {"32", 32}, {"64", 64}, {NULL, 0}};

/* --- help -------------------------------------------------------------------------------------------------------------- */

/* clang-format off */
static const char help_usage[] =
        "usage: dci-bench papers --trace FOLDER[,FOLDER..] [--figure LIST] [options]\n"
        "\n"
        "What the papers on retrieval for attention report and captured attention can show, by the papers' definitions.\n"
        "Exact attention runs over all keys, in double precision, with queries of one kv head's group; a figure is a table\n"
        "per trace. Presets are played as dci-bench kv plays them, and keep the first 16 tokens and the last 64.\n"
        "\n"
        "what is computed:\n"
        "  --trace LIST              folders with keys.npy, values.npy, queries.npy and meta.json, comma separated\n"
        "  --figure LIST             some of the figures below, comma separated (default: all)\n"
        "  --budget LIST             B, tokens per kv head, comma separated (default: each figure's own); those that hold\n"
        "                            the whole prompt are left out\n"
        "  --preset LIST             all (default), or some of those of dci-bench kv\n"
        "  --key-bits, --value-bits, --learned  codes of presets that have them, as in dci-bench kv\n"
        "  --steps N                 decodes at most so many tokens (default all)\n"
        "  --every N                 token-recall, cluster-recall, fragmentation and page-hits look at every N-th\n"
        "                            position only (default 24, and 240 where 1,000 tokens or more are decoded); the others\n"
        "                            at all\n"
        "\n"
        "of single figures:\n"
        "  --tau LIST                jaccard, frequency: above -1 and at most 1 (default 0.7,0.8,0.85,0.9,0.95)\n"
        "  --stride LIST             boundary: steps from one retrieval to the next (default 2,5,16,64)\n"
        "  --static-ratio LIST       static-ratio: S, 0 to 1 (default 0,0.25,0.5,0.75,1)\n"
        "  --period N                static-ratio: T, steps from one refresh to the next (default 128)\n"
        "  --window N                static-ratio, online-s: queries observed, and last tokens kept; boundary: the latter\n"
        "                            (default 64)\n"
        "  --page N                  static-ratio, online-s: P, tokens of a page: 1 to 64 (default 32)\n"
        "  --sink N                  static-ratio: first tokens kept (default 0)\n"
        "  --reach LIST              cache-hits: R, steps that a cache holds (default 1,2,4,8)\n"
        "  --cluster-rows LIST       cluster-recall: keys per cluster (default 160,80,40,16)\n"
        "  --page-tokens N           8, 16, 32 or 64: of presets and of fragmentation (default: the preset's; 16)\n"
        "\n"
        "running and output:\n"
        "  --seed N                  of clusters and rotations, 0 to 9223372036854775807 (default 0)\n"
        "  --threads N               of a preset's calls, 1 to 1024 (default 1)\n"
        "  --isa NAME                auto, scalar, avx2, avx512, amx or neon (default auto: the best there is)\n"
        "  --json FILE               also write {machine, command, rows}; a row has its figure, its trace and the columns\n"
        "  --help                    this text\n"
        "\n"
        "figures:\n";

static const char help_end[] =
        "\n"
        "exit codes: 0 done; 1 failed: memory, a write, a self-check; 2 usage error or bad input, one sentence on stderr\n"
        "\n"
        "examples:\n"
        "  dci-bench papers --trace bench/data/smollm2-debref-layer06_head0 --figure jaccard,frequency --json papers.json\n"
        "  dci-bench papers --trace LAYER12,LAYER13,LAYER14 --figure frequency --tau 0.9\n";
/* clang-format on */

void papers_print_help(void)
{
        printf("%s", help_usage);
        for (size_t i = 0; i < PAPERS_FIGURES; i++)
                printf("  %s: %s\n  %s\n", papers_figures[i]->name, papers_figures[i]->source, papers_figures[i]->help);
        printf("%s", help_end);
}

/* --- parsing --------------------------------------------------------------------------------------------------------------- */

/* Numbers above `min` (or from there on) and at most 1. */
static dci_status parse_reals(const char *name, const char *text, double min, bool open, bench_shares *out)
{
        bench_shares list = {0};
        bool valid = true;
        const char *item = text;
        if (text == NULL)
                return DCI_OK;
        do {
                const size_t n = strcspn(item, ",");
                char *end;
                const double value = strtod(item, &end);
                /* No "inf", "nan" or hexadecimal numbers, and no blanks. */
                valid = n > 0 && list.n < BENCH_MAX_SHARES && strspn(item, "0123456789.eE+-") == n && end == item + n &&
                        (open ? value > min : value >= min) && value <= 1;
                if (valid)
                        list.values[list.n++] = value;
                item += n;
        } while (valid && *item++ == ',');
        if (!valid)
                return dci_fail(DCI_ERR_INVALID,
                                "--%s wants numbers %s %g and at most 1, comma separated and at most %d, not '%s'",
                                name, open ? "above" : "from", min, BENCH_MAX_SHARES, text);
        *out = list;
        return DCI_OK;
}

static void set_defaults(papers_options *o)
{
        static const bench_shares taus = {5, {0.7, 0.8, 0.85, 0.9, 0.95}}, ratios = {5, {0, 0.25, 0.5, 0.75, 1}};
        static const bench_sizes strides = {4, {2, 5, 16, 64}}, reach = {4, {1, 2, 4, 8}};
        static const bench_sizes cluster_rows = {4, {160, 80, 40, 16}};
        memset(o, 0, sizeof *o);
        o->taus = taus;
        o->ratios = ratios;
        o->strides = strides;
        o->reach = reach;
        o->cluster_rows = cluster_rows;
        o->figures = ((uint32_t)1 << PAPERS_FIGURES) - 1;
        o->period = 128;
        o->window = 64;
        o->page = 32;
}

static dci_status parse(int argc, char **argv, papers_options *o, bool *out_help)
{
        bench_choice names[PAPERS_FIGURES + 1] = {{NULL, 0}};
        const char *traces = NULL, *taus = NULL, *ratios = NULL;
        int32_t figures = (int32_t)o->figures;
        const bench_option table[] = {
                {"trace", OPTION_TEXT, &traces, 0, 0, NULL},
                {"figure", OPTION_CHOICES, &figures, 0, 0, names},
                {"budget", OPTION_SIZES, &o->budgets, 1, DCI_KV_MAX_TOKENS, NULL},
                {"steps", OPTION_SIZE, &o->kv.steps, 1, BENCH_ALL - 1, NULL},
                {"every", OPTION_SIZE, &o->kv.every, 1, BENCH_ALL - 1, NULL},
                {"tau", OPTION_TEXT, &taus, 0, 0, NULL},
                {"stride", OPTION_SIZES, &o->strides, 1, DCI_KV_MAX_TOKENS, NULL},
                {"static-ratio", OPTION_TEXT, &ratios, 0, 0, NULL},
                {"period", OPTION_SIZE, &o->period, 1, DCI_KV_MAX_TOKENS, NULL},
                {"window", OPTION_SIZE, &o->window, 1, DCI_KV_MAX_TOKENS, NULL},
                {"page", OPTION_SIZE, &o->page, 1, 64, NULL},
                {"sink", OPTION_SIZE, &o->sink, 0, DCI_KV_MAX_TOKENS, NULL},
                {"reach", OPTION_SIZES, &o->reach, 1, DCI_KV_MAX_TOKENS, NULL},
                {"cluster-rows", OPTION_SIZES, &o->cluster_rows, 1, DCI_KV_MAX_TOKENS, NULL},
                {"page-tokens", OPTION_CHOICE, &o->kv.page_tokens, 0, 0, page_sizes},
        };
        for (size_t i = 0; i < PAPERS_FIGURES; i++)
                names[i] = (bench_choice){papers_figures[i]->name, (int32_t)i};
        dci_status status =
                kvbench_arms_parse(argc, argv, "all", table, sizeof table / sizeof *table, &o->kv, out_help);
        if (status != DCI_OK || *out_help)
                return status;
        o->figures = (uint32_t)figures;
        if (traces == NULL)
                return dci_fail(DCI_ERR_INVALID, "data is missing: --trace");
        status = kvbench_traces_parse(traces, &o->kv);
        if (status == DCI_OK)
                status = parse_reals("tau", taus, -1, true, &o->taus);
        return status == DCI_OK ? parse_reals("static-ratio", ratios, 0, false, &o->ratios) : status;
}

dci_status papers_options_parse(int argc, char **argv, papers_options *out, bool *out_help)
{
        set_defaults(out);
        dci_status status = parse(argc, argv, out, out_help);
        return status == DCI_OK ? DCI_OK : bench_fail_more(status, "; try 'dci-bench papers --help'");
}

void papers_options_free(papers_options *o)
{
        kvbench_options_free(&o->kv);
}
