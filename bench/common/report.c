/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/common/report.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

dci_status bench_check_writable(const char *path)
{
        struct stat info;
        char folder[4096];
        if (stat(path, &info) == 0) {
                if (!S_ISDIR(info.st_mode) && access(path, W_OK) == 0)
                        return DCI_OK;
                return dci_fail(DCI_ERR_INVALID, "--json: %s cannot be written", path);
        }
        const char *slash = strrchr(path, '/');
        int n = slash == NULL ? 1 : slash == path ? 1 : (int)(slash - path);
        snprintf(folder, sizeof folder, "%.*s", n, slash == NULL ? "." : path);
        if (access(folder, W_OK) != 0)
                return dci_fail(DCI_ERR_INVALID, "--json: %s cannot be written: %s", path, strerror(errno));
        return DCI_OK;
}

dci_status bench_write_json(json_t *json, const char *path)
{
        if (json == NULL)
                return dci_fail(DCI_ERR_MEMORY, "--json: the results do not fit in memory");
        FILE *file = fopen(path, "w");
        bool written = file != NULL && json_dumpf(json, file, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0 &&
                       fputc('\n', file) != EOF;
        /* Closing writes what is still buffered: a full disk shows here. */
        if (file != NULL && fclose(file) != 0)
                written = false;
        json_decref(json);
        return written ? DCI_OK : dci_fail(BENCH_ERR_RUN, "--json: %s could not be written: %s", path, strerror(errno));
}

json_t *bench_machine_json(const dci_context *context)
{
        bench_machine m;
        bench_machine_describe(context, &m);
        return json_pack("{s:s, s:i, s:s, s:s, s:s, s:s}", "cpu", m.cpu, "cores", (int)m.cores, "isa", m.isa,
                         "compiler", m.compiler, "library", m.library_version, "date", m.date);
}

json_t *bench_command_json(int argc, char **argv)
{
        json_t *command = json_array();
        bool whole = command != NULL && json_array_append_new(command, json_string("dci-bench")) == 0;
        for (int i = 0; whole && i < argc; i++) {
                /* An argument that is not UTF-8 cannot be named in JSON. */
                json_t *argument = json_string(argv[i]);
                whole = json_array_append_new(command, argument != NULL ? argument : json_string("?")) == 0;
        }
        if (whole)
                return command;
        json_decref(command);
        return NULL;
}

json_t *bench_config_json(const bench_index_options *o, dci_index_kind kind)
{
        const char *name = bench_kind_name(kind);
        if (kind == DCI_KIND_PDCI)
                return json_pack("{s:s, s:I, s:I, s:I}", "kind", name, "num_comp_indices",
                                 (json_int_t)o->num_comp_indices, "num_simp_indices", (json_int_t)o->num_simp_indices,
                                 "seed", (json_int_t)o->seed);
        if (kind == DCI_KIND_MDCI)
                return json_pack("{s:s, s:f, s:f, s:I, s:I, s:I, s:I}", "kind", name, "promotion_prob",
                                 o->promotion_prob, "promotion_prob_subseq", o->promotion_prob_subseq, "page_rows",
                                 (json_int_t)o->page_rows, "top_nodes", (json_int_t)o->top_nodes, "cell_simp_indices",
                                 (json_int_t)o->cell_simp_indices, "seed", (json_int_t)o->seed);
        if (kind == DCI_KIND_AUTO)
                return json_pack("{s:s, s:f, s:f, s:I, s:I, s:I}", "kind", name, "promotion_prob", o->promotion_prob,
                                 "promotion_prob_subseq", o->promotion_prob_subseq, "page_rows",
                                 (json_int_t)o->page_rows, "top_nodes", (json_int_t)o->top_nodes, "seed",
                                 (json_int_t)o->seed);
        return json_pack("{s:s}", "kind", name);
}

json_t *bench_params_json(const bench_index_options *o, dci_index_kind kind, const bench_effort *effort)
{
        json_t *config = bench_config_json(o, kind), *spent;
        if (config == NULL || (kind == DCI_KIND_FLAT && effort->recall == 0.0))
                return config;
        if (effort->recall > 0.0)
                spent = json_pack("{s:f}", "target_recall", effort->recall);
        else
                spent = json_pack("{s:f, s:f, s:I}", "prop_to_visit", effort->prop_to_visit, "prop_to_retrieve",
                                  effort->prop_to_retrieve, "field_of_view", (json_int_t)effort->field_of_view);
        bool whole = spent != NULL && json_object_update(config, spent) == 0;
        json_decref(spent);
        if (whole)
                return config;
        json_decref(config);
        return NULL;
}

dci_tree_stats bench_tree_of(const dci_index *index)
{
        dci_tree_stats tree;
        dci_tree_stats_init(&tree, sizeof tree);
        if (dci_index_tree_stats(index, &tree) != DCI_OK)
                tree.n_levels = 0;
        return tree;
}

json_t *bench_tree_json(const dci_tree_stats *t)
{
        if (t->n_levels == 0)
                return json_null();
        json_t *nodes = json_array();
        for (size_t l = 0; l < t->n_levels; l++)
                if (json_array_append_new(nodes, json_integer((json_int_t)t->n_nodes[l])) != 0) {
                        json_decref(nodes);
                        return NULL;
                }
        return json_pack("{s:I, s:o, s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:I}", "levels",
                         (json_int_t)t->n_levels, "nodes", nodes, "page_rows", (json_int_t)t->page_rows, "pages",
                         (json_int_t)t->n_pages, "free_pages", (json_int_t)t->free_pages, "page_fill", t->page_fill,
                         "empty_cells", (json_int_t)t->empty_cells, "median_cell", (json_int_t)t->median_cell,
                         "p99_cell", (json_int_t)t->p99_cell, "largest_cell", (json_int_t)t->largest_cell, "version",
                         (json_int_t)t->version, "rebuilds", (json_int_t)t->rebuilds);
}

json_t *bench_latency_json(double *seconds, size_t n)
{
        if (n == 0)
                return json_null();
        bench_latency latency = bench_latency_of(seconds, n);
        return json_pack("{s:I, s:f, s:f, s:f}", "calls", (json_int_t)n, "median_us", latency.median, "p99_us",
                         latency.p99, "max_us", latency.max);
}
