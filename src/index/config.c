/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Config and result structs: defaults and checks. */
#include "index/index_internal.h"

#include "core/fields.h"
#include "dci/sketch.h"
#include "index/access.h"
#include "index/config.h"
#include "index/filter.h"

static const char *const kinds[] = {"FLAT", "PDCI", "MDCI", "AUTO"},
                         *const zero_rows[] = {"DCI_ZERO_REFUSE", "DCI_ZERO_KEEP"},
                         *const storages[] = {"DCI_ROWS_OWNED", "DCI_ROWS_BORROWED"};
static const int32_t page_sizes[] = {4, 8, 16, 32, 64, 128, DCI_MAX_PAGE_ROWS, 0};

#define FIELD(field, ...) DCI_FIELD(dci_index_config, field, __VA_ARGS__)
static const dci_field fields[] = {
        FIELD(dim, 0, 1, DCI_MAX_DIM, .beyond = DCI_ERR_LIMIT),
        FIELD(kind, DCI_KIND_FLAT, DCI_KIND_FLAT, DCI_KIND_AUTO, .names = kinds),
        FIELD(metric, DCI_METRIC_L2, DCI_METRIC_L2, DCI_METRIC_COSINE, .names = dci_metric_names),
        FIELD(dtype, DCI_F32, DCI_F32, DCI_U8, .names = dci_dtype_names),
        FIELD(add_dtype, 0, DCI_F32, DCI_U8, .names = dci_dtype_names, .means = "dtype"),
        FIELD(query_dtype, 0, DCI_F32, DCI_U8, .names = dci_dtype_names, .means = "dtype"),
        FIELD(storage, DCI_ROWS_OWNED, DCI_ROWS_OWNED, DCI_ROWS_BORROWED, .names = storages),
        FIELD(zero_rows, DCI_ZERO_REFUSE, DCI_ZERO_REFUSE, DCI_ZERO_KEEP, .names = zero_rows),
        FIELD(reserved, 0, 0, 0),
        FIELD(sketch_bits, 0, 1, 8, .only = dci_bit_counts, .means = "none"),
};
static const dci_field pdci_fields[] = {
        FIELD(num_comp_indices, 2, 1, INFINITY),
        FIELD(num_simp_indices, 7, 1, INFINITY),
};
static const dci_field mdci_fields[] = {
        FIELD(promotion_prob, 0.035, 0.001, 0.5),
        FIELD(promotion_prob_subseq, 0.2, 0.001, 0.5),
        FIELD(page_rows, 16, 4, DCI_MAX_PAGE_ROWS, .only = page_sizes),
        FIELD(top_nodes, 4096, 1, INFINITY),
        FIELD(cell_simp_indices, 0, 0, DCI_MAX_SIMPLE_INDICES, .beyond = DCI_ERR_LIMIT),
};

#define PARAM(field, ...) DCI_FIELD(dci_search_params, field, __VA_ARGS__)
static const dci_field param_fields[] = {
        PARAM(prop_to_visit, 1, 0, 1, .open = true),
        PARAM(prop_to_retrieve, 1, 0, 1, .open = true),
        PARAM(rerank, 0, 1, INFINITY, .means = "the default"),
        PARAM(guarantee, 0, 0, 1),
};

dci_status dci_index_config_init(dci_index_config *config, size_t struct_size)
{
        DCI_TRY(dci_struct_init("dci_index_config", config, struct_size, sizeof *config));
        dci_fields_init(DCI_FIELDS(fields), config);
        dci_fields_init(DCI_FIELDS(pdci_fields), config);
        dci_fields_init(DCI_FIELDS(mdci_fields), config);
        return DCI_OK;
}

dci_status dci_search_params_init(dci_search_params *params, size_t struct_size)
{
        DCI_TRY(dci_struct_init("dci_search_params", params, struct_size, sizeof *params));
        dci_fields_init(DCI_FIELDS(param_fields), params);
        return DCI_OK;
}

dci_status dci_filter_init(dci_filter *filter, size_t struct_size)
{
        return dci_struct_init("dci_filter", filter, struct_size, sizeof *filter);
}

dci_status dci_search_stats_init(dci_search_stats *stats, size_t struct_size)
{
        return dci_struct_init("dci_search_stats", stats, struct_size, sizeof *stats);
}

dci_status dci_range_result_init(dci_range_result *result, size_t struct_size)
{
        return dci_struct_init("dci_range_result", result, struct_size, sizeof *result);
}

dci_status dci_memory_report_init(dci_memory_report *report, size_t struct_size)
{
        return dci_struct_init("dci_memory_report", report, struct_size, sizeof *report);
}

dci_status dci_tune_result_init(dci_tune_result *result, size_t struct_size)
{
        return dci_struct_init("dci_tune_result", result, struct_size, sizeof *result);
}

dci_status dci_tree_stats_init(dci_tree_stats *stats, size_t struct_size)
{
        return dci_struct_init("dci_tree_stats", stats, struct_size, sizeof *stats);
}

static dci_status check_sketch(const dci_index_config *config)
{
        const bool automatic = config->kind == DCI_KIND_AUTO; /* with codes where the dimension allows them */
        if (config->sketch_bits == 0 && !(automatic && config->dim <= DCI_SKETCH_MAX_DIM))
                return DCI_OK;
        if (config->dim > DCI_SKETCH_MAX_DIM)
                return dci_fail(DCI_ERR_LIMIT, "dim is %zu, with sketch_bits at most %zu", config->dim,
                                DCI_SKETCH_MAX_DIM);
        if ((config->kind == DCI_KIND_MDCI || automatic) && config->page_rows < DCI_CODE_UNIT)
                return dci_fail(DCI_ERR_INVALID, "page_rows is %zu, with %s at least %zu", config->page_rows,
                                automatic ? "kind AUTO" : "sketch_bits", DCI_CODE_UNIT);
        return DCI_OK;
}

dci_status dci_index_config_check(const dci_index_config *config)
{
        size_t n = 0;
        DCI_TRY(dci_check_struct_size("dci_index_config", config, config->struct_size, sizeof *config));
        DCI_TRY(dci_fields_check(DCI_FIELDS(fields), config));
        DCI_TRY(check_sketch(config));
        if (config->kind == DCI_KIND_PDCI)
                DCI_TRY(dci_fields_check(DCI_FIELDS(pdci_fields), config));
        if (config->kind == DCI_KIND_MDCI || config->kind == DCI_KIND_AUTO)
                DCI_TRY(dci_fields_check(DCI_FIELDS(mdci_fields), config));
        if (config->kind == DCI_KIND_AUTO && config->cell_simp_indices != 0)
                return dci_fail(DCI_ERR_INVALID, "cell_simp_indices is %zu, with kind AUTO 0",
                                config->cell_simp_indices);
        if (config->storage == DCI_ROWS_BORROWED && config->add_dtype != 0 && config->add_dtype != config->dtype)
                return dci_fail(DCI_ERR_INVALID, "borrowed rows are used as they are: add_dtype is %s, dtype %s",
                                dci_dtype_name(config->add_dtype), dci_dtype_name(config->dtype));
        if (config->kind == DCI_KIND_PDCI &&
            (!dci_mul(config->num_comp_indices, config->num_simp_indices, &n) || n > DCI_MAX_SIMPLE_INDICES))
                return dci_fail(DCI_ERR_LIMIT, "%zu composite indices of %zu simple ones each: at most %zu in all",
                                config->num_comp_indices, config->num_simp_indices, DCI_MAX_SIMPLE_INDICES);
        return DCI_OK;
}

dci_status dci_index_get_config(const dci_index *index, dci_index_config *out_config)
{
        DCI_TRY(dci_index_check_call(index));
        if (out_config == NULL)
                return dci_fail(DCI_ERR_INVALID, "out_config is NULL");
        const size_t struct_size = out_config->struct_size;
        DCI_TRY(dci_check_struct_size("dci_index_config", out_config, struct_size, sizeof *out_config));
        dci_index_read_begin(index);
        *out_config = index->config;
        dci_index_read_end(index);
        out_config->struct_size = struct_size;
        return DCI_OK;
}

int32_t dci_index_is_auto(const dci_index *index)
{
        return index != NULL && index->automatic.on;
}

static dci_status params_check(const dci_search_params *params)
{
        DCI_TRY(dci_check_struct_size("dci_search_params", params, params->struct_size, sizeof *params));
        DCI_TRY(dci_fields_check(DCI_FIELDS(param_fields), params));
        if (params->stats != NULL)
                DCI_TRY(dci_check_struct_size("dci_search_stats", params->stats, params->stats->struct_size,
                                              sizeof *params->stats));
        return params->filter != NULL ? dci_filter_check(params->filter) : DCI_OK;
}

dci_status dci_params_resolve(const dci_index *index, const dci_search_params *params, dci_search_params *out)
{
        if (params == NULL) {
                dci_index_get_defaults_into(index, out);
                return DCI_OK;
        }
        DCI_TRY(params_check(params));
        *out = *params;
        return DCI_OK;
}

/* The lock makes the pair of effort fields one value for searches that run beside a change. */
void dci_index_get_defaults_into(const dci_index *index, dci_search_params *out)
{
        pthread_mutex_t *lock = &((dci_index *)(uintptr_t)index)->defaults_lock;
        pthread_mutex_lock(lock);
        *out = index->defaults;
        pthread_mutex_unlock(lock);
}

dci_status dci_index_get_defaults(const dci_index *index, dci_search_params *out_params)
{
        DCI_TRY(dci_index_check_call(index));
        if (out_params == NULL)
                return dci_fail(DCI_ERR_INVALID, "out_params is NULL");
        const size_t struct_size = out_params->struct_size;
        DCI_TRY(dci_check_struct_size("dci_search_params", out_params, struct_size, sizeof *out_params));
        dci_index_get_defaults_into(index, out_params);
        out_params->struct_size = struct_size;
        return DCI_OK;
}

dci_status dci_index_set_defaults(dci_index *index, const dci_search_params *params)
{
        DCI_TRY(dci_index_check_call(index));
        if (params == NULL)
                return dci_fail(DCI_ERR_INVALID, "params is NULL");
        DCI_TRY(params_check(params));
        if (params->filter != NULL || params->stats != NULL || params->progress.fn != NULL)
                return dci_fail(DCI_ERR_INVALID, "defaults hold effort only: filter, stats and progress must be NULL");
        pthread_mutex_lock(&index->defaults_lock);
        index->defaults = *params;
        index->defaults.struct_size = sizeof index->defaults;
        pthread_mutex_unlock(&index->defaults_lock);
        return DCI_OK;
}
