/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/common/common_options.h"

#include <string.h>

const bench_choice bench_metrics[] = {
        {"ip", DCI_METRIC_IP}, {"l2", DCI_METRIC_L2}, {"cosine", DCI_METRIC_COSINE}, {NULL, 0}};
const bench_choice bench_kinds[] = {
        {"flat", DCI_KIND_FLAT}, {"pdci", DCI_KIND_PDCI}, {"mdci", DCI_KIND_MDCI}, {"auto", DCI_KIND_AUTO}, {NULL, 0}};
const bench_choice bench_modes[] = {
        {"one", BENCH_MODE_ONE}, {"batch", BENCH_MODE_BATCH}, {"both", BENCH_MODE_BOTH}, {NULL, 0}};
const bench_choice bench_dtypes[] = {{"f32", DCI_F32}, {"f16", DCI_F16}, {"bf16", DCI_BF16},
                                     {"i8", DCI_I8},   {"u8", DCI_U8},   {NULL, 0}};
const bench_choice bench_isas[] = {{"auto", DCI_ISA_AUTO},
                                   {"scalar", DCI_ISA_SCALAR},
                                   {"avx2", DCI_ISA_AVX2},
                                   {"avx512", DCI_ISA_AVX512},
                                   {"amx", DCI_ISA_AMX},
                                   {"neon", DCI_ISA_NEON},
                                   {NULL, 0}};
const bench_choice bench_widths[] = {{"0", 0}, {"1", 1}, {"2", 2}, {"3", 3}, {"4", 4}, {"8", 8}, {NULL, 0}};

const char *bench_choice_name(const bench_choice *choices, int32_t value)
{
        for (; choices->name != NULL; choices++)
                if (choices->value == value)
                        return choices->name;
        return "unknown";
}

const char *bench_metric_name(dci_metric metric)
{
        return bench_choice_name(bench_metrics, metric);
}

const char *bench_kind_name(dci_index_kind kind)
{
        return bench_choice_name(bench_kinds, kind);
}

const char *bench_mode_name(int32_t mode)
{
        return bench_choice_name(bench_modes, mode);
}

/* --- the source -------------------------------------------------------------------------------------------------------- */

const char bench_source_help[] =
        "  --base FILE          rows to index\n"
        "  --query FILE         rows to search for, of the same length\n"
        "  --data FILE.hdf5     an ann-benchmarks file: train, test, neighbors (optional), attribute distance\n"
        "  --trace FOLDER       keys.npy, queries.npy and meta.json of captured attention: the prompt's keys are the "
        "base, the\n"
        "                       decode's queries of all heads of the group the queries\n"
        "  --limit-base N       only the first N base rows (default all)\n"
        "  --limit-queries N    only the first N queries (default all)\n"
        "\n"
        "  Rows come as .npy, .fvecs, .bvecs, .fbin, .u8bin, .i8bin or IDX images of bytes (train-images-idx3-ubyte, "
        "plain or\n"
        "  .gz). .npy of any numbers: float16, int8 and uint8 stay, a file named *.bf16.npy holds bfloat16 as uint16, "
        "all\n"
        "  others become float32, as images do: float64 rounded, integers only if all of them are exact. Bytes of "
        ".bvecs,\n"
        "  .u8bin and .i8bin stay, too.\n";

void bench_source_options(bench_source *source, bench_option *out)
{
        const size_t all = BENCH_ALL - 1;
        const bench_option options[BENCH_SOURCE_OPTIONS] = {
                {"base", OPTION_TEXT, &source->base, 0, 0, NULL},
                {"query", OPTION_TEXT, &source->query, 0, 0, NULL},
                {"data", OPTION_TEXT, &source->data, 0, 0, NULL},
                {"trace", OPTION_TEXT, &source->trace, 0, 0, NULL},
                {"limit-base", OPTION_SIZE, &source->limit_base, 1, all, NULL},
                {"limit-queries", OPTION_SIZE, &source->limit_queries, 1, all, NULL},
        };
        memcpy(out, options, sizeof options);
        memset(source, 0, sizeof *source);
        source->limit_base = source->limit_queries = BENCH_ALL;
}

dci_status bench_source_check(const bench_source *s, dci_metric metric)
{
        int sources = (s->base != NULL || s->query != NULL) + (s->data != NULL) + (s->trace != NULL);
        if (sources != 1)
                return dci_fail(DCI_ERR_INVALID, sources == 0
                                                         ? "data is missing: --base and --query, --data or --trace"
                                                         : "--base and --query, --data and --trace exclude each other");
        if (s->base == NULL && s->query != NULL)
                return dci_fail(DCI_ERR_INVALID, "--query needs --base");
        if (s->base != NULL && s->query == NULL)
                return dci_fail(DCI_ERR_INVALID, "--base needs --query");
        if (s->base != NULL && metric == 0)
                return dci_fail(DCI_ERR_INVALID, "--metric is missing: ip, l2 or cosine");
        return DCI_OK;
}

dci_status bench_source_metric(dci_metric asked, const bench_dataset *dataset, dci_metric *out)
{
        *out = asked != 0 ? asked : dataset->metric;
        if (*out != 0)
                return DCI_OK;
        if (dataset->distance[0] == '\0')
                return dci_fail(DCI_ERR_INVALID, "%s: says no distance; give --metric l2, ip or cosine", dataset->name);
        return dci_fail(DCI_ERR_INVALID,
                        "%s: is for the distance '%s', which dci does not have (it has euclidean, angular and dot); to "
                        "search its rows by another, give --metric l2, ip or cosine",
                        dataset->name, dataset->distance);
}

/* --- the indices --------------------------------------------------------------------------------------------------------- */

/* clang-format off */
const char bench_index_help[] =
        "  --rows f32|f16|bf16|i8|u8 number format of the stored rows (default: the base file's)\n"
        "  --threads N               threads a call may use, 1 to 1024 (default 1)\n"
        "  --isa NAME                auto, scalar, avx2, avx512, amx or neon (default auto: the best there is)\n"
        "\n"
        "of pdci and mdci, each refused without its kind; flat always spends everything; auto takes those of the tree:\n"
        "  --seed N                  of pdci's directions and mdci's promotions, 0 to 9223372036854775807 (default 0)\n"
        "  --num-comp-indices N      pdci: composite indices, each of which proposes candidates, 1 to 4096 (default 2)\n"
        "  --num-simp-indices N      pdci: simple indices (random directions) of each, 1 to 4096 (default 7); 4096 in all\n"
        "  --promotion-prob P        mdci: chance of a row to become a node, 0.001 to 0.5 (default 0.035)\n"
        "  --promotion-prob-subseq P mdci: chance of a node to become one of the next level, 0.001 to 0.5 (default 0.2)\n"
        "  --page-rows N             mdci: rows of a page, a power of two from 4 to 256 (default 16)\n"
        "  --top-nodes N             mdci: another level is built above one of more nodes than this (default 4096)\n"
        "  --cell-simp-indices N     mdci: simple indices by which the rows of opened cells are ranked, 0 to 4096 (default 0:\n"
        "                            all of them are scored)\n"
        "  --prop-to-visit LIST      share of the rows that a composite index may visit (pdci, default 1), or of each level's\n"
        "                            nodes to open (mdci); above 0 and at most 1, at most 32, comma separated\n"
        "  --prop-to-retrieve LIST   share of the rows that a composite index may make candidates; with --cell-simp-indices that\n"
        "                            of the opened cells' rows (mdci, default 1)\n"
        "  --field-of-view LIST      mdci: nodes to open at each level, in place of --prop-to-visit\n";
/* clang-format on */

void bench_index_options_list(bench_index_options *o, int32_t kinds, bench_option *out)
{
        const bench_option options[BENCH_INDEX_OPTIONS] = {
                {"kind", OPTION_CHOICES, &o->kinds, 0, 0, bench_kinds},
                {"rows", OPTION_CHOICE, &o->rows, 0, 0, bench_dtypes},
                {"num-comp-indices", OPTION_SIZE, &o->num_comp_indices, 1, DCI_MAX_SIMPLE_INDICES, NULL},
                {"num-simp-indices", OPTION_SIZE, &o->num_simp_indices, 1, DCI_MAX_SIMPLE_INDICES, NULL},
                {"seed", OPTION_SIZE, &o->seed, 0, (size_t)INT64_MAX, NULL}, /* what JSON can hold */
                {"promotion-prob", OPTION_SHARE, &o->promotion_prob, 0, 0, NULL},
                {"promotion-prob-subseq", OPTION_SHARE, &o->promotion_prob_subseq, 0, 0, NULL},
                {"page-rows", OPTION_SIZE, &o->page_rows, 4, 256, NULL},
                {"top-nodes", OPTION_SIZE, &o->top_nodes, 1, DCI_MAX_ROWS, NULL},
                {"cell-simp-indices", OPTION_SIZE, &o->cell_simp_indices, 0, DCI_MAX_SIMPLE_INDICES, NULL},
                {"prop-to-visit", OPTION_SHARES, &o->prop_to_visit, 0, 0, NULL},
                {"prop-to-retrieve", OPTION_SHARES, &o->prop_to_retrieve, 0, 0, NULL},
                {"field-of-view", OPTION_SIZES, &o->field_of_view, 1, DCI_MAX_ROWS, NULL},
                {"threads", OPTION_SIZE, &o->threads, 1, 1024, NULL},
                {"isa", OPTION_CHOICE, &o->isa, 0, 0, bench_isas},
        };
        memcpy(out, options, sizeof options);
        memset(o, 0, sizeof *o);
        o->kinds = kinds;
        o->num_comp_indices = o->num_simp_indices = o->seed = BENCH_ALL;
        o->page_rows = o->top_nodes = o->cell_simp_indices = BENCH_ALL;
        o->threads = 1;
}

/* Refuses an option that no measured kind uses. */
static dci_status check_needs(const bench_index_options *o)
{
        enum { P = 1 << DCI_KIND_PDCI, M = 1 << DCI_KIND_MDCI, A = 1 << DCI_KIND_AUTO };
        const struct {
                const char *name;
                bool given;
                int32_t kinds;
        } options[] = {{"num-comp-indices", o->num_comp_indices != BENCH_ALL, P},
                       {"num-simp-indices", o->num_simp_indices != BENCH_ALL, P},
                       {"promotion-prob", o->promotion_prob > 0, M | A},
                       {"promotion-prob-subseq", o->promotion_prob_subseq > 0, M | A},
                       {"page-rows", o->page_rows != BENCH_ALL, M | A},
                       {"top-nodes", o->top_nodes != BENCH_ALL, M | A},
                       {"cell-simp-indices", o->cell_simp_indices != BENCH_ALL, M},
                       {"field-of-view", o->field_of_view.n > 0, M},
                       {"seed", o->seed != BENCH_ALL, P | M | A},
                       {"prop-to-visit", o->prop_to_visit.n > 0, P | M | A},
                       {"prop-to-retrieve", o->prop_to_retrieve.n > 0, P | M}};
        static const char *const names[] = {"pdci",         "mdci",         "pdci or mdci",      "auto",
                                            "pdci or auto", "mdci or auto", "pdci, mdci or auto"};
        for (size_t i = 0; i < sizeof options / sizeof *options; i++)
                if (options[i].given && (o->kinds & options[i].kinds) == 0)
                        return dci_fail(DCI_ERR_INVALID, "--%s needs --kind %s", options[i].name,
                                        names[(options[i].kinds >> DCI_KIND_PDCI) - 1]);
        const bool ranks = o->cell_simp_indices != BENCH_ALL && o->cell_simp_indices > 0;
        if (o->prop_to_retrieve.n > 0 && !bench_has_kind(o, DCI_KIND_PDCI) && !ranks)
                return dci_fail(DCI_ERR_INVALID, "--prop-to-retrieve needs --kind pdci or --cell-simp-indices");
        if (o->prop_to_visit.n > 0 && o->field_of_view.n > 0 && !bench_has_kind(o, DCI_KIND_PDCI))
                return dci_fail(DCI_ERR_INVALID, "--prop-to-visit and --field-of-view exclude each other for mdci");
        return DCI_OK;
}

/* What the command line left open, as the library has it. */
static dci_status fill_config(bench_index_options *o)
{
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
        if (o->page_rows == BENCH_ALL)
                o->page_rows = config.page_rows;
        if (o->top_nodes == BENCH_ALL)
                o->top_nodes = config.top_nodes;
        if (o->cell_simp_indices == BENCH_ALL)
                o->cell_simp_indices = config.cell_simp_indices;
        if (!(o->promotion_prob > 0))
                o->promotion_prob = config.promotion_prob;
        if (!(o->promotion_prob_subseq > 0))
                o->promotion_prob_subseq = config.promotion_prob_subseq;
        return DCI_OK;
}

/* The index would say so too, but after the data was read and the truth computed. */
static dci_status check_config(const bench_index_options *o)
{
        /* Both are at most 4096. */
        if (o->num_comp_indices * o->num_simp_indices > DCI_MAX_SIMPLE_INDICES)
                return dci_fail(DCI_ERR_INVALID,
                                "%zu composite indices of %zu simple ones each: --num-comp-indices times "
                                "--num-simp-indices is at most %zu",
                                o->num_comp_indices, o->num_simp_indices, DCI_MAX_SIMPLE_INDICES);
        const double probs[] = {o->promotion_prob, o->promotion_prob_subseq};
        for (size_t i = 0; i < 2; i++)
                if (probs[i] < 0.001 || probs[i] > 0.5)
                        return dci_fail(DCI_ERR_INVALID, "--promotion-prob%s is %g, allowed is 0.001 to 0.5",
                                        i == 0 ? "" : "-subseq", probs[i]);
        if ((o->page_rows & (o->page_rows - 1)) != 0)
                return dci_fail(DCI_ERR_INVALID, "--page-rows is %zu, allowed are powers of two from 4 to 256",
                                o->page_rows);
        return DCI_OK;
}

dci_status bench_index_options_finish(bench_index_options *o, bool sweep)
{
        DCI_TRY(check_needs(o));
        o->sweep = sweep;
        if (!sweep && (o->prop_to_visit.n > 1 || o->prop_to_retrieve.n > 1 || o->field_of_view.n > 1))
                return dci_fail(DCI_ERR_INVALID, "--%s: this command takes one effort, not several",
                                o->prop_to_visit.n > 1      ? "prop-to-visit"
                                : o->prop_to_retrieve.n > 1 ? "prop-to-retrieve"
                                                            : "field-of-view");
        DCI_TRY(fill_config(o));
        return check_config(o);
}

dci_status bench_one_kind(const bench_index_options *o, dci_index_kind *out)
{
        if ((o->kinds & (o->kinds - 1)) != 0)
                return dci_fail(DCI_ERR_INVALID, "--kind: this command measures one kind, not several");
        *out = DCI_KIND_FLAT;
        while (!bench_has_kind(o, *out))
                ++*out;
        return DCI_OK;
}

/* --- efforts ----------------------------------------------------------------------------------------------------------------- */

/* From almost nothing to exact search. */
static const bench_shares all = {1, {1}}, tenth = {1, {0.1}},
                          sweep_retrieve = {9, {0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.8, 1}},
                          sweep_visit = {8, {0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1}};

static bench_shares given_or(const bench_shares *given, const bench_shares *otherwise)
{
        return given->n > 0 ? *given : *otherwise;
}

static bench_shares visits(const bench_index_options *o, dci_index_kind kind)
{
        if (kind == DCI_KIND_FLAT || (kind == DCI_KIND_MDCI && o->field_of_view.n > 0))
                return all;
        const bool tree = kind == DCI_KIND_MDCI;
        return given_or(&o->prop_to_visit, !tree ? &all : o->sweep ? &sweep_visit : &tenth);
}

static bench_shares retrieves(const bench_index_options *o, dci_index_kind kind)
{
        if (kind == DCI_KIND_FLAT || kind == DCI_KIND_AUTO || (kind == DCI_KIND_MDCI && o->cell_simp_indices == 0))
                return all;
        return given_or(&o->prop_to_retrieve, kind != DCI_KIND_PDCI ? &all : o->sweep ? &sweep_retrieve : &tenth);
}

size_t bench_effort_count(const bench_index_options *o, dci_index_kind kind)
{
        if (o->recall > 0.0)
                return 1;
        const size_t views = kind == DCI_KIND_MDCI && o->field_of_view.n > 0 ? o->field_of_view.n : 1;
        return visits(o, kind).n * retrieves(o, kind).n * views;
}

bench_effort bench_effort_at(const bench_index_options *o, dci_index_kind kind, size_t i)
{
        if (o->recall > 0.0)
                return (bench_effort){.recall = o->recall};
        const bench_shares visit = visits(o, kind), retrieve = retrieves(o, kind);
        bench_effort effort = {.prop_to_retrieve = retrieve.values[i % retrieve.n]};
        i /= retrieve.n;
        effort.prop_to_visit = visit.values[i % visit.n];
        if (kind == DCI_KIND_MDCI && o->field_of_view.n > 0)
                effort.field_of_view = o->field_of_view.values[i / visit.n];
        return effort;
}

void bench_effort_params(const bench_effort *effort, dci_search_params *out)
{
        dci_search_params_init(out, sizeof *out);
        out->prop_to_visit = effort->prop_to_visit;
        out->prop_to_retrieve = effort->prop_to_retrieve;
        out->field_of_view = effort->field_of_view;
        out->rerank = effort->rerank;
        out->guarantee = effort->guarantee;
        out->target_recall = effort->recall > 0.0 ? effort->recall : 1.0;
}

/* --- objects --------------------------------------------------------------------------------------------------------------- */

dci_status bench_context(const bench_index_options *o, size_t n_threads, dci_context **out)
{
        dci_context_config config;
        dci_status status = dci_context_config_init(&config, sizeof config);
        if (status != DCI_OK)
                return status;
        config.n_threads = (int32_t)n_threads;
        config.isa = o->isa;
        return dci_context_create(&config, out);
}

dci_status bench_index_create(dci_context *context, const bench_index_options *o, dci_index_kind kind,
                              dci_metric metric, size_t dim, dci_dtype add_dtype, dci_dtype query_dtype,
                              dci_index **out)
{
        dci_index_config config;
        dci_status status = dci_index_config_init(&config, sizeof config);
        if (status != DCI_OK)
                return status;
        config.dim = dim;
        config.kind = kind;
        config.metric = metric;
        config.dtype = o->rows != 0 ? o->rows : add_dtype;
        config.add_dtype = add_dtype;
        config.query_dtype = query_dtype;
        config.zero_rows = DCI_ZERO_KEEP;
        config.num_comp_indices = o->num_comp_indices;
        config.num_simp_indices = o->num_simp_indices;
        config.seed = o->seed;
        config.promotion_prob = o->promotion_prob;
        config.promotion_prob_subseq = o->promotion_prob_subseq;
        config.page_rows = o->page_rows;
        config.top_nodes = o->top_nodes;
        config.cell_simp_indices = kind == DCI_KIND_AUTO ? 0 : o->cell_simp_indices;
        config.sketch_bits = o->sketch_bits;
        config.target_recall = o->recall > 0.0 ? o->recall : 1.0; /* else nothing is measured for it */
        return dci_index_create(context, &config, out);
}
