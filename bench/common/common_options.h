/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Options that several subcommands share: where the rows come from, which indices are built, and what a search may spend. */
#ifndef DCI_BENCH_COMMON_COMMON_OPTIONS_H
#define DCI_BENCH_COMMON_COMMON_OPTIONS_H

#include "bench/common/dataset.h"
#include "bench/common/options.h"

/* Kinds count from 1. */
#define BENCH_N_KINDS (DCI_KIND_AUTO + 1)

extern const bench_choice bench_metrics[], bench_kinds[], bench_modes[], bench_dtypes[], bench_isas[], bench_widths[];

/* The name of a value; "unknown" for one that has none. */
const char *bench_choice_name(const bench_choice *choices, int32_t value);

/* "l2", "ip", "cosine"; "flat", "pdci", "mdci", "auto" */
const char *bench_metric_name(dci_metric metric);
const char *bench_kind_name(dci_index_kind kind);

enum { BENCH_MODE_ONE = 1, BENCH_MODE_BATCH = 2, BENCH_MODE_BOTH = 3 };
const char *bench_mode_name(int32_t mode);

/* --- the source -------------------------------------------------------------------------------------------------------- */

enum { BENCH_SOURCE_OPTIONS = 6 };
extern const char bench_source_help[];

/* Writes BENCH_SOURCE_OPTIONS options, and sets the limits to everything. */
void bench_source_options(bench_source *source, bench_option *out);
/* That exactly one source is named, and completely. */
dci_status bench_source_check(const bench_source *source, dci_metric metric);
/* What the command line says, else what the data says. */
dci_status bench_source_metric(dci_metric asked, const bench_dataset *dataset, dci_metric *out);

/* --- the indices --------------------------------------------------------------------------------------------------------- */

typedef struct bench_index_options {
        int32_t kinds;  /* bits 1 << DCI_KIND_* */
        dci_dtype rows; /* 0: as the base file holds them */
        size_t num_comp_indices, num_simp_indices, seed;
        double promotion_prob, promotion_prob_subseq;
        size_t page_rows, top_nodes, cell_simp_indices;
        int32_t sketch_bits; /* of the codes; 0: none */
        bench_shares prop_to_visit, prop_to_retrieve;
        bench_sizes field_of_view;
        double recall; /* that searches ask for in place of an effort; 0: efforts */
        bool sweep;    /* efforts that were not given: many, instead of one */
        size_t threads;
        dci_isa isa;
} bench_index_options;

enum { BENCH_INDEX_OPTIONS = 15 };
extern const char bench_index_help[];

/* Writes BENCH_INDEX_OPTIONS options, and marks all values as not given; `kinds`: what is measured when none is named. */
void bench_index_options_list(bench_index_options *o, int32_t kinds, bench_option *out);

/* Checks that they go together, and fills what was not given. `sweep`: lists of efforts are allowed, and their default goes
 * from almost nothing to exact search; otherwise there is one effort, a tenth. */
dci_status bench_index_options_finish(bench_index_options *o, bool sweep);

static inline bool bench_has_kind(const bench_index_options *o, dci_index_kind kind)
{
        return (o->kinds & 1 << kind) != 0;
}

/* The only kind asked for; refuses several. */
dci_status bench_one_kind(const bench_index_options *o, dci_index_kind *out);

/* What one search may spend. */
typedef struct bench_effort {
        double prop_to_visit, prop_to_retrieve;
        size_t field_of_view; /* 0: prop_to_visit says it */
        double rerank;        /* with codes: rows scored per row wanted; 0: as the library does, infinity: all */
        double guarantee;     /* with codes; 0: none */
        double recall;        /* in place of all these; 0: none */
} bench_effort;
#define BENCH_MAX_EFFORTS (BENCH_MAX_SHARES * BENCH_MAX_SHARES)

/* How many efforts a kind is measured with, and each of them. */
size_t bench_effort_count(const bench_index_options *o, dci_index_kind kind);
bench_effort bench_effort_at(const bench_index_options *o, dci_index_kind kind, size_t i);
void bench_effort_params(const bench_effort *effort, dci_search_params *out);

/* With the options' instruction set; n_threads 0: all CPUs. */
dci_status bench_context(const bench_index_options *o, size_t n_threads, dci_context **out);

/* An empty index; 0 in o->rows: rows are stored as they are added. */
dci_status bench_index_create(dci_context *context, const bench_index_options *o, dci_index_kind kind,
                              dci_metric metric, size_t dim, dci_dtype add_dtype, dci_dtype query_dtype,
                              dci_index **out);

#endif
