/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Config and result structs: defaults and checks. */
#include "index/index_internal.h"

#include "dci/sketch.h"
#include "index/access.h"
#include "index/config.h"
#include "index/filter.h"

dci_status dci_index_config_init(dci_index_config *config, size_t struct_size)
{
        dci_status status = dci_struct_init("dci_index_config", config, struct_size, sizeof *config);
        if (status != DCI_OK)
                return status;
        config->kind = DCI_KIND_FLAT;
        config->metric = DCI_METRIC_L2;
        config->dtype = DCI_F32;
        config->num_comp_indices = 2;
        config->num_simp_indices = 7;
        config->promotion_prob = 0.035;
        config->promotion_prob_subseq = 0.2;
        config->page_rows = 16;
        config->top_nodes = 4096;
        return DCI_OK;
}

dci_status dci_search_params_init(dci_search_params *params, size_t struct_size)
{
        dci_status status = dci_struct_init("dci_search_params", params, struct_size, sizeof *params);
        if (status != DCI_OK)
                return status;
        params->prop_to_visit = 1.0;
        params->prop_to_retrieve = 1.0;
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

static dci_status check_simple_indices(const dci_index_config *config)
{
        if (config->num_comp_indices == 0 || config->num_simp_indices == 0)
                return dci_fail(DCI_ERR_INVALID, "%s is 0, expected at least 1",
                                config->num_comp_indices == 0 ? "num_comp_indices" : "num_simp_indices");
        size_t n = 0;
        if (!dci_mul(config->num_comp_indices, config->num_simp_indices, &n) || n > DCI_MAX_SIMPLE_INDICES)
                return dci_fail(DCI_ERR_LIMIT, "%zu composite indices of %zu simple ones each: at most %zu in all",
                                config->num_comp_indices, config->num_simp_indices, DCI_MAX_SIMPLE_INDICES);
        return DCI_OK;
}

static dci_status check_promotion(const char *name, double value)
{
        if (!(value >= 0.001 && value <= 0.5)) /* refuses NaN too */
                return dci_fail(DCI_ERR_INVALID, "%s is %g, allowed is [0.001, 0.5]", name, value);
        return DCI_OK;
}

static dci_status check_tree(const dci_index_config *config)
{
        dci_status status = check_promotion("promotion_prob", config->promotion_prob);
        if (status == DCI_OK)
                status = check_promotion("promotion_prob_subseq", config->promotion_prob_subseq);
        if (status != DCI_OK)
                return status;
        const size_t page = config->page_rows;
        if (page < 4 || page > DCI_MAX_PAGE_ROWS || (page & (page - 1)) != 0)
                return dci_fail(DCI_ERR_INVALID, "page_rows is %zu, allowed are powers of two from 4 to %zu", page,
                                DCI_MAX_PAGE_ROWS);
        if (config->top_nodes == 0)
                return dci_fail(DCI_ERR_INVALID, "top_nodes is 0, expected at least 1");
        if (config->cell_simp_indices > DCI_MAX_SIMPLE_INDICES)
                return dci_fail(DCI_ERR_LIMIT, "cell_simp_indices is %zu, at most %zu", config->cell_simp_indices,
                                DCI_MAX_SIMPLE_INDICES);
        return DCI_OK;
}

static dci_status check_sketch(const dci_index_config *config)
{
        const int32_t bits = config->sketch_bits;
        if (bits == 0)
                return DCI_OK;
        if (bits < 1 || (bits > 4 && bits != 8))
                return dci_fail(DCI_ERR_INVALID, "sketch_bits is %d, expected 0, 1, 2, 3, 4 or 8", (int)bits);
        if (config->dim > DCI_SKETCH_MAX_DIM)
                return dci_fail(DCI_ERR_LIMIT, "dim is %zu, with sketch_bits at most %zu", config->dim,
                                DCI_SKETCH_MAX_DIM);
        if (config->kind == DCI_KIND_MDCI && config->page_rows < DCI_CODE_UNIT)
                return dci_fail(DCI_ERR_INVALID, "page_rows is %zu, with sketch_bits at least %zu", config->page_rows,
                                DCI_CODE_UNIT);
        return DCI_OK;
}

dci_status dci_index_config_check(const dci_index_config *config)
{
        dci_status status = dci_check_struct_size("dci_index_config", config, config->struct_size, sizeof *config);
        if (status != DCI_OK)
                return status;
        if (config->dim == 0)
                return dci_fail(DCI_ERR_INVALID, "dim is 0, allowed are 1 to %zu", DCI_MAX_DIM);
        if (config->dim > DCI_MAX_DIM)
                return dci_fail(DCI_ERR_LIMIT, "dim is %zu, allowed are 1 to %zu", config->dim, DCI_MAX_DIM);
        if (config->kind < DCI_KIND_FLAT || config->kind > DCI_KIND_MDCI)
                return dci_fail(DCI_ERR_INVALID, "unknown index kind %d", (int)config->kind);
        if (config->metric < DCI_METRIC_L2 || config->metric > DCI_METRIC_COSINE)
                return dci_fail(DCI_ERR_INVALID, "unknown metric %d", (int)config->metric);
        if (dci_dtype_size(config->dtype) == 0)
                return dci_fail(DCI_ERR_INVALID, "unknown dtype %d", (int)config->dtype);
        if (config->add_dtype != 0 && dci_dtype_size(config->add_dtype) == 0)
                return dci_fail(DCI_ERR_INVALID, "unknown add_dtype %d", (int)config->add_dtype);
        if (config->query_dtype != 0 && dci_dtype_size(config->query_dtype) == 0)
                return dci_fail(DCI_ERR_INVALID, "unknown query_dtype %d", (int)config->query_dtype);
        if (config->storage != DCI_ROWS_OWNED && config->storage != DCI_ROWS_BORROWED)
                return dci_fail(DCI_ERR_INVALID, "unknown storage %d", (int)config->storage);
        if (config->storage == DCI_ROWS_BORROWED && config->add_dtype != 0 && config->add_dtype != config->dtype)
                return dci_fail(DCI_ERR_INVALID, "borrowed rows are used as they are: add_dtype is %s, dtype %s",
                                dci_dtype_name(config->add_dtype), dci_dtype_name(config->dtype));
        if (config->zero_rows != DCI_ZERO_REFUSE && config->zero_rows != DCI_ZERO_KEEP)
                return dci_fail(DCI_ERR_INVALID, "unknown zero_rows %d", (int)config->zero_rows);
        if (config->reserved != 0)
                return dci_fail(DCI_ERR_INVALID, "dci_index_config.reserved is %zu, not 0", config->reserved);
        status = check_sketch(config);
        if (status != DCI_OK)
                return status;
        if (config->kind == DCI_KIND_MDCI)
                return check_tree(config);
        return config->kind == DCI_KIND_PDCI ? check_simple_indices(config) : DCI_OK;
}

dci_status dci_index_get_config(const dci_index *index, dci_index_config *out_config)
{
        dci_status status = dci_index_lock(index);
        if (status != DCI_OK)
                return status;
        if (out_config == NULL)
                return dci_fail(DCI_ERR_INVALID, "out_config is NULL");
        size_t struct_size = out_config->struct_size;
        status = dci_check_struct_size("dci_index_config", out_config, struct_size, sizeof *out_config);
        if (status != DCI_OK)
                return status;
        *out_config = index->config;
        out_config->struct_size = struct_size;
        return DCI_OK;
}

static dci_status check_share(const char *name, double value)
{
        if (!(value > 0.0 && value <= 1.0)) /* refuses NaN too */
                return dci_fail(DCI_ERR_INVALID, "%s is %g, allowed is (0, 1]", name, value);
        return DCI_OK;
}

static dci_status params_check(const dci_search_params *params)
{
        dci_status status = dci_check_struct_size("dci_search_params", params, params->struct_size, sizeof *params);
        if (status == DCI_OK)
                status = check_share("prop_to_visit", params->prop_to_visit);
        if (status == DCI_OK)
                status = check_share("prop_to_retrieve", params->prop_to_retrieve);
        if (status == DCI_OK && !(params->rerank == 0.0 || params->rerank >= 1.0))
                status = dci_fail(DCI_ERR_INVALID, "rerank is %g, allowed are 0 and 1 or more", params->rerank);
        if (status == DCI_OK && !(params->guarantee >= 0.0 && params->guarantee <= 1.0))
                status = dci_fail(DCI_ERR_INVALID, "guarantee is %g, allowed is [0, 1]", params->guarantee);
        if (status == DCI_OK && params->stats != NULL)
                status = dci_check_struct_size("dci_search_stats", params->stats, params->stats->struct_size,
                                               sizeof *params->stats);
        if (status == DCI_OK && params->filter != NULL)
                status = dci_filter_check(params->filter);
        return status;
}

dci_status dci_params_resolve(const dci_index *index, const dci_search_params *params, dci_search_params *out)
{
        if (params == NULL) {
                dci_index_get_defaults_into(index, out);
                return DCI_OK;
        }
        dci_status status = params_check(params);
        if (status == DCI_OK)
                *out = *params;
        return status;
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
        dci_status status = dci_index_lock(index);
        if (status != DCI_OK)
                return status;
        if (out_params == NULL)
                return dci_fail(DCI_ERR_INVALID, "out_params is NULL");
        size_t struct_size = out_params->struct_size;
        status = dci_check_struct_size("dci_search_params", out_params, struct_size, sizeof *out_params);
        if (status != DCI_OK)
                return status;
        dci_index_get_defaults_into(index, out_params);
        out_params->struct_size = struct_size;
        return DCI_OK;
}

dci_status dci_index_set_defaults(dci_index *index, const dci_search_params *params)
{
        dci_status status = dci_index_lock(index);
        if (status != DCI_OK)
                return status;
        if (params == NULL)
                return dci_fail(DCI_ERR_INVALID, "params is NULL");
        status = params_check(params);
        if (status != DCI_OK)
                return status;
        if (params->filter != NULL || params->stats != NULL || params->progress.fn != NULL)
                return dci_fail(DCI_ERR_INVALID, "defaults hold effort only: filter, stats and progress must be NULL");
        pthread_mutex_lock(&index->defaults_lock);
        index->defaults = *params;
        index->defaults.struct_size = sizeof index->defaults;
        pthread_mutex_unlock(&index->defaults_lock);
        return DCI_OK;
}
