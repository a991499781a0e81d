/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What the JSON reports of all subcommands share. Functions that make JSON return NULL when memory runs out. */
#ifndef DCI_BENCH_COMMON_REPORT_H
#define DCI_BENCH_COMMON_REPORT_H

#include <jansson.h>

#include "bench/common/common_options.h"

/* Checked before hours of work rather than after. */
dci_status bench_check_writable(const char *path);
/* Takes over `json`, which may be NULL. */
dci_status bench_write_json(json_t *json, const char *path);

json_t *bench_machine_json(const dci_context *context);
/* The command that reproduces the report. */
json_t *bench_command_json(int argc, char **argv);
/* What an index of this kind was created with. */
json_t *bench_config_json(const bench_index_options *o, dci_index_kind kind);
/* The same and the effort of the search; flat has nothing to choose and always spends everything. */
json_t *bench_params_json(const bench_index_options *o, dci_index_kind kind, const bench_effort *effort);
/* The shape of a tree; n_levels 0, and JSON null, for an index that has none. */
dci_tree_stats bench_tree_of(const dci_index *index);
json_t *bench_tree_json(const dci_tree_stats *tree);
/* Median, 99th percentile and maximum in microseconds, and how many; null for none. Sorts the seconds. */
json_t *bench_latency_json(double *seconds, size_t n);

#endif
