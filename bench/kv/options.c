/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/kv/kv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const bench_choice lists[] = {{"kv", KVBENCH_LISTS_KV}, {"query", KVBENCH_LISTS_QUERY}, {NULL, 0}};
static const bench_choice kepts[] = {{"common", KVBENCH_KEPT_COMMON}, {"paper", KVBENCH_KEPT_PAPER}, {NULL, 0}};
static const bench_choice codes[] = {{"random", KVBENCH_RANDOM}, {"learned", KVBENCH_LEARNED}, {NULL, 0}};
static const bench_choice updates[] = {{"on", KVBENCH_UPDATES_ON}, {"off", KVBENCH_UPDATES_OFF}, {NULL, 0}};
static const bench_choice combines[] = {
        {"softmax", DCI_KV_COMBINE_SOFTMAX}, {"mean", DCI_KV_COMBINE_MEAN}, {"each", DCI_KV_COMBINE_EACH}, {NULL, 0}};
static const bench_choice schedules[] = {{"every", DCI_KV_EVERY_STEP},
                                         {"periodic", DCI_KV_PERIODIC},
                                         {"boundary", DCI_KV_BOUNDARY},
                                         {"ahead", DCI_KV_AHEAD},
                                         {NULL, 0}};
static const bench_choice counts[] = {{"all", DCI_KV_COUNT_ALL},
                                      {"sink-and-window", DCI_KV_COUNT_SINK_AND_WINDOW},
                                      {"sink", DCI_KV_COUNT_SINK},
                                      {"selected", DCI_KV_COUNT_SELECTED},
                                      {NULL, 0}};
static const bench_choice keeps[] = {{"all", KVBENCH_KEEP_ALL}, {"window", KVBENCH_KEEP_WINDOW}, {NULL, 0}};
static const bench_choice leaves[] = {{"search", KVBENCH_LEAVES_SEARCH}, {"tokens", KVBENCH_LEAVES_TOKENS},
                                      {"mean", KVBENCH_LEAVES_MEAN},     {"codes", KVBENCH_LEAVES_CODES},
                                      {"pages", KVBENCH_LEAVES_PAGES},   {NULL, 0}};
static const bench_choice sums[] = {{"rest", KVBENCH_SUMS_REST}, {"whole", KVBENCH_SUMS_WHOLE}, {NULL, 0}};
static const bench_choice key_widths[] = {{"1", 1}, {"2", 2}, {"3", 3}, {"4", 4}, {"8", 8}, {NULL, 0}};
static const bench_choice value_widths[] = {{"1", 1}, {"2", 2}, {"4", 4}, {"8", 8}, {NULL, 0}};
static const bench_choice summaries[] = {{"mean", DCI_KV_SUMMARY_MEAN},
                                         {"minmax", DCI_KV_SUMMARY_MINMAX},
                                         {"cuboid", DCI_KV_SUMMARY_CUBOID},
                                         {"mean_std", DCI_KV_SUMMARY_MEAN_STD},
                                         {NULL, 0}};
static const bench_choice pages[] = {{"8", 8}, {"16", 16}, {"32", 32}, {"64", 64}, {NULL, 0}};

/* A run of fewer tokens has nothing to choose from, one of more does not fit into most memories. */
enum { MIN_SYNTHETIC = 2048, MAX_SYNTHETIC = 1 << 22 };

const char *kvbench_lists_name(int32_t of)
{
        return bench_choice_name(lists, of);
}

const char *kvbench_kept_name(int32_t kept)
{
        return bench_choice_name(kepts, kept);
}

const char *kvbench_counts_name(int32_t of)
{
        return bench_choice_name(counts, of);
}

static const bench_choice cluster_bys[] = {{"raw", DCI_KV_CLUSTER_RAW}, {"centred", DCI_KV_CLUSTER_CENTRED}, {NULL, 0}};
const char *kvbench_schedule_name(int32_t schedule)
{
        return bench_choice_name(schedules, schedule);
}

const char *kvbench_combine_name(int32_t combine)
{
        return bench_choice_name(combines, combine);
}

const char *kvbench_summary_name(int32_t summary)
{
        return bench_choice_name(summaries, summary);
}

const char *kvbench_leaves_name(int32_t of)
{
        return bench_choice_name(leaves, of);
}

/* --- help -------------------------------------------------------------------------------------------------------------- */

/* clang-format off */
static const char help_usage[] =
        "usage: dci-bench kv --trace FOLDER[,FOLDER..] [options]\n"
        "       dci-bench kv --synthetic N [options]\n"
        "\n"
        "Plays captured attention of one kv head as a decode, once for each preset and budget: the prompt, then token\n"
        "by token append, plan, attend and maintain, each of them timed. What was attended to is judged by exact\n"
        "attention over all keys, in double precision.\n"
        "\n"
        "data:\n"
        "  --trace LIST              folders with keys.npy, values.npy, queries.npy and meta.json, comma separated\n"
        "  --synthetic N             a made-up run of N tokens, 2048 to 4194304; the last sixteenth is decoded\n"
        "                            (d 128, four query heads; bench/README.md has the recipe)\n"
        "  --extend N                makes traces N tokens long: before the decode, the prompt's rows again and again with noise\n"
        "                            of half a coordinate's standard deviation\n"
        "  --steps N                 decodes at most so many tokens (default all)\n"
        "\n";

static const char help_arms[] =
        "  --budget LIST             tokens attended to per kv head, comma separated (default 128,256,512)\n"
        "  --kept common|paper       common: every preset keeps the first 16 tokens and the last 64, and all that it\n"
        "                            attends to counts, so that rows compare choices; paper: sizes and accounting of each one's paper (docs/presets.md),\n"
        "                            and rows that cannot have their budget are n/a (default common)\n"
        "  --sink N, --window N      what every preset keeps, in place of these; a window of 64 tokens or more\n"
        "  --budget-counts NAME      what counts in a budget: all, sink-and-window, sink or selected (default: all; paper:\n"
        "                            its own)\n"
        "  --budget-share X          the budget is this share of the sequence, above 0 and up to 1, and at most --budget\n"
        "  --frozen-prompt           groups are formed of the whole prompt and never again; decoded tokens are\n"
        "                            attended to and not counted: the protocol of tables that are made from traces\n"
        "  --updates LIST            on, off: off, groups are those of the prompt and decoded tokens are attended to while\n"
        "                            they are in the window only; prkv off: they are in pages by position, and no order is\n"
        "                            made anew (default on)\n"
        "  --key-bits LIST           1, 2, 3, 4 or 8, for presets that have codes (default 4)\n"
        "  --value-bits LIST         1, 2, 4 or 8, for presets that attend to the tail in low bits (default 2)\n"
        "  --learned LIST            random, learned: how codes are made; learned from the prompt's keys and observed\n"
        "                            queries (default random)\n"
        "  --lists kv|query          kv: the query heads of a kv head share a list of the budget, query: each has its own,\n"
        "                            where it selects by its query (default: kv, with --kept paper as published)\n"
        "  --combine NAME            softmax, mean or each: how query heads agree (default: softmax with --frozen-prompt and\n"
        "                            --kept common, else the preset's)\n"
        "  --page-tokens N           8, 16, 32 or 64 (default: the preset's)\n"
        "  --summary NAME            mean, minmax, cuboid or mean_std: of presets that rank pages, clusters or segments\n"
        "                            (default: the preset's)\n"
        "  --deviation-weight X      of mean_std: standard deviations above the mean, above 0 and up to 100 (default 1.5)\n"
        "  --cluster-tokens N, --cluster-most N, --cluster-by raw|centred   for presets of clusters: tokens of one on\n"
        "                            average, the most of a part of one, what it is found by (default: the preset's)\n"
        "  --segment-buffer N        for presets of segments: tokens that wait in the buffer (default: half of the budget, at\n"
        "                            most 512; 512 where they do not count)\n"
        "  --segment-least N         and tokens that a segment has before a boundary ends it (default 1)\n"
        "  --observed-pool N         of snapkv: neighbours of which a token has the greatest importance, 1 to 63, odd\n"
        "                            (default 7)\n"
        "  --observed-keep NAME      of snapkv: decoded tokens that are attended to: all, or those in the window (default:\n"
        "                            window; paper: all)\n"
        "  --schedule NAME           every, periodic, boundary or ahead: when lists are decided again, for presets that\n"
        "                            rank at each step (default: the preset's)\n"
        "  --tau X                   of boundary and ahead, above -1 and up to 1 (default: boundary, that of the\n"
        "                            retrieval rate; ahead, 0.8, or that of --retrieval-rate)\n"
        "  --retrieval-rate R        tau is calibrated on the decode's queries, arm by arm, so that this share of the steps\n"
        "                            selects, above 0 and up to 1 (default 0.2, as louiskv's on long inputs; 0.0625 on long outputs)\n"
        "  --period N                of periodic and prkv (default 128)\n"
        "  --anchor FOLDER           another layer of the traces' run, which chooses in their place: they attend to its\n"
        "                            list of the same step, as layers between anchors do; plan us is theirs alone\n"
        "  --leaves NAME             what icecache takes: search, the pages that a search of its tree ends in; tokens,\n"
        "                            the tokens that it finds; mean, the leaves' pages by their mean; codes, a search by\n"
        "                            codes of the least of --key-bits; pages, a search that ranks the pages it finds by\n"
        "                            their mean (default search)\n"
        "  --field-of-view N         nodes that a search opens for each query head; 0: max(30, 0.0015 n) (default 0)\n"
        "  --promotion-subseq X, --simple-indices N, --retrieve X   of icecache: its tree's levels, and P-DCI within nodes;\n"
        "                            see tree_promotion_subseq, tree_simple_indices, tree_retrieve of kv.h (default 0)\n"
        "  --verify N                N times as many tokens as there is room for are ranked again by their keys, 1 to 64;\n"
        "                            of presets that choose by codes (default 1, sketch+verify 4)\n"
        "  --preselect N             the best groups with N times as many tokens as there is room for are ranked by codes,\n"
        "                            1 to 64; of sketch, sketch+sums and sketch+groups (default 1, sketch+groups 24)\n"
        "  --preselect-least N       tokens that are ranked so in any case (default 4096)\n"
        "  --preselect-tokens N      in such a group: 4, 8 or 16 (default 8)\n"
        "  --sums NAME               sketch+sums, and sketch+groups with a tail of sums: what is left of a page counts by the means of\n"
        "                            the rest, or of the whole page (default rest; sketch+groups none)\n"
        "  --static-share X|online   of prkv: 0 to 1 (default 0.25)\n"
        "  --ring N                  of prkv: positions whose queries are looked at, 1 to 4096 (default 64)\n"
        "  --seed N                  of rotations and of --synthetic, 0 to 9223372036854775807 (default 0)\n"
        "\n"
        "measuring and output:\n"
        "  --every N                 judges every N-th position only, from prompt + 8 on (default: all positions)\n"
        "  --judged-only             with --every: the other positions are appended, but neither planned nor attended to.\n"
        "                            The fastest way to shares and errors; what moves between steps is not counted.\n"
        "                            Schedules that keep lists between plans plan at every position all the same\n"
        "  --threads N               threads a call may use, 1 to 1024 (default 1)\n"
        "  --isa NAME                auto, scalar, avx2, avx512, amx or neon (default auto: the best there is)\n"
        "  --json FILE               also write {machine, command, rows}; a row has the columns below and more:\n"
        "                            overlap (tokens chosen at two steps in a row over those chosen at one of them),\n"
        "                            decided and corrected (shares of the steps' lists that their own queries chose, and\n"
        "                            that had to be corrected), append_us, step_us, the 99th percentile of each time (plan_us_p99), err_first\n"
        "                            and err_last, the errors in the first and in the last quarter of the decode,\n"
        "                            err_sixths, those of each sixth, with the tail\n"
        "  --help                    this text\n"
        "\n";

static const char help_columns[] =
        "what the columns mean:\n"
        "  share         true softmax weight of the tokens attended to, over that of all, among the tokens that are\n"
        "                chosen from; both sums run over query heads and positions before the division. With\n"
        "                --frozen-prompt: the prompt's tokens after the first 16. Else: all tokens after the first 16\n"
        "                and before the last 64, decoded ones too\n"
        "  recall        of attention: true softmax weight of all tokens attended to, over the full cache; the mean\n"
        "  top B         of tokens: how many of a head's best tokens by q . k, as many as the budget, are attended to\n"
        "  err           |o - o*| / |o*| of a head's output, without the tail; the mean over heads and positions\n"
        "  with tail     the same with what the preset makes of the tokens it left out; - where it drops them\n"
        "  tokens        that the query heads of the kv head attend to in a step, all counted\n"
        "  per head      of these, those that one query head attends to\n"
        "  KiB/step      keys and values of the tokens that any list of a step has (not of those that are kept)\n"
        "  moved         of these, what was not chosen in the step before: with a cache of one step\n"
        "  tau, selects  of schedules with a tau: what it was, and the share of the steps that selected\n"
        "  B/token       bytes that summaries and tails keep per token; of clusters and segments as they came out\n"
        "  build ms       groups, codes and fits of the prompt\n"
        "  plan us, p99, attend us, maintain us  per step: median and 99th percentile\n"
        "A model has more than one layer and one head, which would not stay in the processor's caches: times are\n"
        "lower bounds.\n"
        "\n"
        "exit codes: 0 done; 1 failed: memory, a write, a self-check, among them a plan that is none; 2 usage error\n"
        "or bad input, one sentence on stderr\n"
        "\n"
        "examples:\n"
        "  dci-bench kv --trace bench/data/smollm2-debref-layer06_head0 --every 24 --json kv.json\n"
        "  dci-bench kv --synthetic 262144 --preset full,quest,sketch --steps 512 --every 16\n";
/* clang-format on */

void kvbench_print_help(void)
{
        printf("%spresets and budgets, each of which is a row:\n  --preset LIST             all (default), or some of",
               help_usage);
        for (int32_t i = DCI_KV_FULL; i <= DCI_KV_PRESETS; i++)
                printf("%s%s%s", i > DCI_KV_FULL ? "," : "", i % 6 == 0 ? "\n                            " : " ",
                       dci_kv_preset_name(i));
        printf("\n%s%s", help_arms, help_columns);
}

/* --- lists --------------------------------------------------------------------------------------------------------------- */

dci_status kvbench_traces_parse(const char *text, kvbench_options *o)
{
        if (text == NULL)
                return DCI_OK;
        const size_t n = strlen(text) + 1;
        o->folders = malloc(n);
        if (o->folders == NULL)
                return dci_fail(DCI_ERR_MEMORY, "--trace: %zu bytes could not be had", n);
        memcpy(o->folders, text, n);
        for (char *item = o->folders, *next; item != NULL; item = next) {
                next = strchr(item, ',');
                if (next != NULL)
                        *next++ = '\0';
                if (*item == '\0')
                        return dci_fail(DCI_ERR_INVALID, "--trace wants folders, comma separated, not '%s'", text);
                if (o->n_traces == KVBENCH_MAX_TRACES)
                        return dci_fail(DCI_ERR_INVALID, "--trace wants at most %d folders", KVBENCH_MAX_TRACES);
                o->traces[o->n_traces++] = item;
        }
        return DCI_OK;
}

/* The preset of the first n characters; 0: none. */
static int32_t find_preset(const char *text, size_t n)
{
        char name[64];
        if (n == 0 || n >= sizeof name)
                return 0;
        memcpy(name, text, n);
        name[n] = '\0';
        return dci_kv_preset_of(name);
}

static dci_status refuse_presets(const char *text)
{
        char names[512] = "all";
        size_t used = 3;
        for (int32_t i = DCI_KV_FULL; i <= DCI_KV_PRESETS; i++) {
                const int n = snprintf(names + used, sizeof names - used, ", %s", dci_kv_preset_name(i));
                if (n > 0 && (size_t)n < sizeof names - used)
                        used += (size_t)n;
        }
        return dci_fail(DCI_ERR_INVALID, "--preset wants one or more of %s, each once, not '%s'", names, text);
}

static dci_status parse_presets(const char *text, kvbench_options *o)
{
        bool seen[DCI_KV_PRESETS + 1] = {false};
        if (strcmp(text, "all") == 0) {
                for (int32_t i = DCI_KV_FULL; i <= DCI_KV_PRESETS; i++)
                        o->presets[o->n_presets++] = i;
                return DCI_OK;
        }
        const char *item = text;
        do {
                const size_t n = strcspn(item, ",");
                const int32_t preset = find_preset(item, n);
                if (preset < DCI_KV_FULL || seen[preset])
                        return refuse_presets(text);
                seen[preset] = true;
                o->presets[o->n_presets++] = preset;
                item += n;
        } while (*item++ == ',');
        return DCI_OK;
}

/* --- parsing --------------------------------------------------------------------------------------------------------------- */

static dci_status check(const char *traces, const kvbench_options *o)
{
        if (traces == NULL && o->synthetic == 0)
                return dci_fail(DCI_ERR_INVALID, "data is missing: --trace or --synthetic");
        if (traces != NULL && o->synthetic > 0)
                return dci_fail(DCI_ERR_INVALID, "--trace and --synthetic exclude each other");
        if (o->extend > 0 && traces == NULL)
                return dci_fail(DCI_ERR_INVALID, "--extend needs --trace");
        if (o->judged_only && o->every == 0)
                return dci_fail(DCI_ERR_INVALID, "--judged-only needs --every");
        if (o->tau != 0.0 && o->rate > 0.0)
                return dci_fail(DCI_ERR_INVALID, "--tau and --retrieval-rate exclude each other");
        if (o->anchor != NULL && (traces == NULL || o->schedule != 0))
                return dci_fail(DCI_ERR_INVALID, "--anchor wants --trace, and no --schedule: it is one");
        if (o->frozen_prompt && o->updates != 1 << KVBENCH_UPDATES_ON)
                return dci_fail(DCI_ERR_INVALID, "--frozen-prompt has no updates: --updates off goes without it");
        return DCI_OK;
}

static dci_status parse_tau(const char *text, kvbench_options *o)
{
        char *end = NULL;
        if (text == NULL)
                return DCI_OK;
        o->tau = strtod(text, &end);
        if (end == text || *end != '\0' || !(o->tau > -1.0 && o->tau <= 1.0) || o->tau == 0.0)
                return dci_fail(DCI_ERR_INVALID, "--tau wants a number above -1, up to 1 and other than 0, not '%s'",
                                text);
        return DCI_OK;
}

static dci_status parse_weight(const char *text, kvbench_options *o)
{
        char *end = NULL;
        if (text == NULL)
                return DCI_OK;
        o->deviation_weight = strtod(text, &end);
        if (end == text || *end != '\0' || !(o->deviation_weight > 0.0 && o->deviation_weight <= 100.0))
                return dci_fail(DCI_ERR_INVALID, "--deviation-weight wants a number above 0, up to 100, not '%s'",
                                text);
        return DCI_OK;
}

static dci_status parse_share(const char *text, kvbench_options *o)
{
        char *end;
        if (text == NULL)
                return DCI_OK;
        o->static_share = -1.0;
        if (strcmp(text, "online") == 0)
                return DCI_OK;
        o->static_share = strtod(text, &end);
        if (end == text || *end != '\0' || !(o->static_share >= 0.0 && o->static_share <= 1.0))
                return dci_fail(DCI_ERR_INVALID, "--static-share wants a number from 0 to 1, or online, not '%s'",
                                text);
        return DCI_OK;
}

static dci_status parse_subseq(const char *text, kvbench_options *o)
{
        char *end;
        if (text == NULL)
                return DCI_OK;
        o->promotion_subseq = strtod(text, &end);
        if (end == text || *end != '\0' ||
            !(o->promotion_subseq == -1.0 || (o->promotion_subseq >= 0.0 && o->promotion_subseq <= 0.5)))
                return dci_fail(DCI_ERR_INVALID, "--promotion-subseq wants a number from 0 to 0.5, or -1, not '%s'",
                                text);
        return DCI_OK;
}

static dci_status parse(int argc, char **argv, kvbench_options *o, bool *out_help)
{
        const char *traces = NULL, *presets = "all", *tau = NULL, *share = NULL, *subseq = NULL, *weight = NULL;
        const bench_option table[] = {
                {"trace", OPTION_TEXT, &traces, 0, 0, NULL},
                {"synthetic", OPTION_SIZE, &o->synthetic, MIN_SYNTHETIC, MAX_SYNTHETIC, NULL},
                {"extend", OPTION_SIZE, &o->extend, MIN_SYNTHETIC, MAX_SYNTHETIC, NULL},
                {"steps", OPTION_SIZE, &o->steps, 1, BENCH_ALL - 1, NULL},
                {"preset", OPTION_TEXT, &presets, 0, 0, NULL},
                {"budget", OPTION_SIZES, &o->budgets, 1, DCI_KV_MAX_TOKENS, NULL},
                {"kept", OPTION_CHOICE, &o->kept, 0, 0, kepts},
                {"sink", OPTION_SIZE, &o->sink, 0, DCI_KV_MAX_TOKENS, NULL},
                {"window", OPTION_SIZE, &o->window, KVBENCH_WINDOW, DCI_KV_MAX_TOKENS, NULL},
                {"budget-counts", OPTION_CHOICE, &o->budget_counts, 0, 0, counts},
                {"budget-share", OPTION_SHARE, &o->budget_share, 0, 0, NULL},
                {"frozen-prompt", OPTION_FLAG, &o->frozen_prompt, 0, 0, NULL},
                {"updates", OPTION_CHOICES, &o->updates, 0, 0, updates},
                {"key-bits", OPTION_CHOICES, &o->key_bits, 0, 0, key_widths},
                {"value-bits", OPTION_CHOICES, &o->value_bits, 0, 0, value_widths},
                {"learned", OPTION_CHOICES, &o->codes, 0, 0, codes},
                {"combine", OPTION_CHOICE, &o->combine, 0, 0, combines},
                {"lists", OPTION_CHOICE, &o->lists, 0, 0, lists},
                {"page-tokens", OPTION_CHOICE, &o->page_tokens, 0, 0, pages},
                {"summary", OPTION_CHOICE, &o->summary, 0, 0, summaries},
                {"deviation-weight", OPTION_TEXT, &weight, 0, 0, NULL},
                {"cluster-tokens", OPTION_SIZE, &o->cluster_tokens, 1, DCI_KV_MAX_TOKENS, NULL},
                {"cluster-most", OPTION_SIZE, &o->cluster_most, 1, DCI_KV_MAX_TOKENS, NULL},
                {"cluster-by", OPTION_CHOICE, &o->cluster_by, 0, 0, cluster_bys},
                {"segment-buffer", OPTION_SIZE, &o->segment_buffer, 2, DCI_KV_MAX_TOKENS, NULL},
                {"segment-least", OPTION_SIZE, &o->segment_least, 1, DCI_KV_MAX_TOKENS, NULL},
                {"observed-pool", OPTION_SIZE, &o->observed_pool, 1, 63, NULL},
                {"observed-keep", OPTION_CHOICE, &o->observed_keep, 0, 0, keeps},
                {"schedule", OPTION_CHOICE, &o->schedule, 0, 0, schedules},
                {"tau", OPTION_TEXT, &tau, 0, 0, NULL},
                {"retrieval-rate", OPTION_SHARE, &o->rate, 0, 0, NULL},
                {"static-share", OPTION_TEXT, &share, 0, 0, NULL},
                {"ring", OPTION_SIZE, &o->ring, 1, 4096, NULL},
                {"period", OPTION_SIZE, &o->period, 1, DCI_KV_MAX_TOKENS, NULL},
                {"anchor", OPTION_TEXT, &o->anchor, 0, 0, NULL},
                {"leaves", OPTION_CHOICE, &o->leaves, 0, 0, leaves},
                {"field-of-view", OPTION_SIZE, &o->field_of_view, 0, DCI_KV_MAX_TOKENS, NULL},
                {"promotion-subseq", OPTION_TEXT, &subseq, 0, 0, NULL},
                {"simple-indices", OPTION_SIZE, &o->simple_indices, 0, 32, NULL},
                {"retrieve", OPTION_SHARE, &o->retrieve, 0, 0, NULL},
                {"verify", OPTION_SIZE, &o->verify, 1, 64, NULL},
                {"preselect", OPTION_SIZE, &o->preselect, 1, 64, NULL},
                {"preselect-tokens", OPTION_SIZE, &o->preselect_tokens, 4, 16, NULL},
                {"preselect-least", OPTION_SIZE, &o->preselect_least, 1, DCI_KV_MAX_TOKENS, NULL},
                {"sums", OPTION_CHOICE, &o->sums, 0, 0, sums},
                {"seed", OPTION_SIZE, &o->seed, 0, (size_t)INT64_MAX, NULL}, /* what JSON can hold */
                {"every", OPTION_SIZE, &o->every, 1, BENCH_ALL - 1, NULL},
                {"judged-only", OPTION_FLAG, &o->judged_only, 0, 0, NULL},
                {"threads", OPTION_SIZE, &o->threads, 1, 1024, NULL},
                {"isa", OPTION_CHOICE, &o->isa, 0, 0, bench_isas},
                {"json", OPTION_TEXT, &o->json, 0, 0, NULL},
        };
        DCI_TRY(bench_parse_options(argc, argv, table, sizeof table / sizeof *table, out_help));
        if (*out_help)
                return DCI_OK;
        DCI_TRY(parse_tau(tau, o));
        DCI_TRY(check(traces, o));
        DCI_TRY(parse_share(share, o));
        DCI_TRY(parse_subseq(subseq, o));
        DCI_TRY(parse_weight(weight, o));
        DCI_TRY(kvbench_traces_parse(traces, o));
        return parse_presets(presets, o);
}

static void set_defaults(kvbench_options *o)
{
        memset(o, 0, sizeof *o);
        o->kept = KVBENCH_KEPT_COMMON;
        o->leaves = KVBENCH_LEAVES_SEARCH;
        o->updates = 1 << KVBENCH_UPDATES_ON;
        o->value_bits = 1 << 2;
        o->threads = 1;
        o->steps = o->sink = BENCH_ALL;
        o->static_share = (double)NAN;
}

dci_status kvbench_arms_parse(int argc, char **argv, const char *presets, const bench_option *more, size_t n_more,
                              kvbench_options *o, bool *out_help)
{
        bench_option table[48] = {
                {"preset", OPTION_TEXT, &presets, 0, 0, NULL},
                {"key-bits", OPTION_CHOICES, &o->key_bits, 0, 0, key_widths},
                {"value-bits", OPTION_CHOICES, &o->value_bits, 0, 0, value_widths},
                {"learned", OPTION_CHOICES, &o->codes, 0, 0, codes},
                {"verify", OPTION_SIZE, &o->verify, 1, 64, NULL},
                {"preselect", OPTION_SIZE, &o->preselect, 1, 64, NULL},
                {"preselect-tokens", OPTION_SIZE, &o->preselect_tokens, 4, 16, NULL},
                {"preselect-least", OPTION_SIZE, &o->preselect_least, 1, DCI_KV_MAX_TOKENS, NULL},
                {"sums", OPTION_CHOICE, &o->sums, 0, 0, sums},
                {"seed", OPTION_SIZE, &o->seed, 0, (size_t)INT64_MAX, NULL},
                {"threads", OPTION_SIZE, &o->threads, 1, 1024, NULL},
                {"isa", OPTION_CHOICE, &o->isa, 0, 0, bench_isas},
                {"json", OPTION_TEXT, &o->json, 0, 0, NULL},
        };
        enum { SHARED = 13 };
        set_defaults(o);
        o->budgets.n = 1;
        for (size_t i = 0; i < n_more && SHARED + i < sizeof table / sizeof *table; i++)
                table[SHARED + i] = more[i];
        const dci_status status = bench_parse_options(argc, argv, table, SHARED + n_more, out_help);
        return status != DCI_OK || *out_help ? status : parse_presets(presets, o);
}

dci_status kvbench_options_parse(int argc, char **argv, kvbench_options *o, bool *out_help)
{
        static const bench_sizes default_budgets = {3, {128, 256, 512}};
        set_defaults(o);
        o->budgets = default_budgets;
        dci_status status = parse(argc, argv, o, out_help);
        if (status != DCI_OK)
                return bench_fail_more(status, "; try 'dci-bench kv --help'");
        if (o->combine == 0 && o->frozen_prompt && o->kept == KVBENCH_KEPT_COMMON)
                o->combine = DCI_KV_COMBINE_SOFTMAX;
        return DCI_OK;
}

void kvbench_options_free(kvbench_options *o)
{
        free(o->folders);
        o->folders = NULL;
}
