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

/* Since 0.2. What a caller of 0.1.0 has ends before it. */
static const dci_field new_fields[] = {FIELD(target_recall, 0.95, 0, 1, .open = true)};

#define PARAM(field, ...) DCI_FIELD(dci_search_params, field, __VA_ARGS__)
static const dci_field param_fields[] = {
        PARAM(rerank, 0, 1, INFINITY, .means = "the default"),
        PARAM(guarantee, 0, 0, 1),
};
static const dci_field old_param_fields[] = {
        PARAM(prop_to_visit, 1, 0, 1, .open = true),
        PARAM(prop_to_retrieve, 1, 0, 1, .open = true),
};
static const dci_field new_param_fields[] = {
        PARAM(prop_to_visit, 0, 0, 1, .open = true, .means = "not given"),
        PARAM(prop_to_retrieve, 0, 0, 1, .open = true, .means = "not given"),
        PARAM(target_recall, 0.95, 0, 1, .open = true),
};

#define TUNE(field, ...) DCI_FIELD(dci_tune_options, field, __VA_ARGS__)
static const char *const costs[] = {"DCI_TUNE_TIME", "DCI_TUNE_DISTANCES"};
static const dci_field tune_fields[] = {
        TUNE(cost, DCI_TUNE_TIME, DCI_TUNE_TIME, DCI_TUNE_DISTANCES, .names = costs),
        TUNE(reserved, 0, 0, 0),
        TUNE(deadline, 0, 0, DBL_MAX),
};

/* Bytes of the structs of 0.1.0, and whether a struct goes on to a field. */
#define OLD_CONFIG offsetof(dci_index_config, target_recall)
#define OLD_PARAMS offsetof(dci_search_params, target_recall)
#define OLD_STATS offsetof(dci_search_stats, target_recall)
#define OLD_TUNE offsetof(dci_tune_result, seconds)
#define HAS(type, object, field) ((object)->struct_size >= offsetof(type, field) + sizeof(object)->field)

dci_status dci_index_config_init(dci_index_config *config, size_t struct_size)
{
        DCI_TRY(dci_struct_init_since("dci_index_config", config, struct_size, OLD_CONFIG, sizeof *config));
        dci_fields_init(DCI_FIELDS(fields), config);
        dci_fields_init(DCI_FIELDS(pdci_fields), config);
        dci_fields_init(DCI_FIELDS(mdci_fields), config);
        if (HAS(dci_index_config, config, target_recall))
                dci_fields_init(DCI_FIELDS(new_fields), config);
        return DCI_OK;
}

dci_status dci_search_params_init(dci_search_params *params, size_t struct_size)
{
        DCI_TRY(dci_struct_init_since("dci_search_params", params, struct_size, OLD_PARAMS, sizeof *params));
        dci_fields_init(DCI_FIELDS(param_fields), params);
        if (HAS(dci_search_params, params, target_recall))
                dci_fields_init(DCI_FIELDS(new_param_fields), params);
        else
                dci_fields_init(DCI_FIELDS(old_param_fields), params);
        return DCI_OK;
}

dci_status dci_filter_init(dci_filter *filter, size_t struct_size)
{
        return dci_struct_init("dci_filter", filter, struct_size, sizeof *filter);
}

dci_status dci_search_stats_init(dci_search_stats *stats, size_t struct_size)
{
        return dci_struct_init_since("dci_search_stats", stats, struct_size, OLD_STATS, sizeof *stats);
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
        return dci_struct_init_since("dci_tune_result", result, struct_size, OLD_TUNE, sizeof *result);
}

dci_status dci_tune_options_init(dci_tune_options *options, size_t struct_size)
{
        DCI_TRY(dci_struct_init("dci_tune_options", options, struct_size, sizeof *options));
        dci_fields_init(DCI_FIELDS(tune_fields), options);
        return DCI_OK;
}

dci_status dci_tune_check(const dci_tune_options *options, const dci_tune_result *result)
{
        if (options != NULL) {
                DCI_TRY(dci_check_struct_size("dci_tune_options", options, options->struct_size, sizeof *options));
                DCI_TRY(dci_fields_check(DCI_FIELDS(tune_fields), options));
        }
        return result == NULL ? DCI_OK
                              : dci_check_struct_size_since("dci_tune_result", result, result->struct_size, OLD_TUNE,
                                                            sizeof *result);
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
        DCI_TRY(dci_check_struct_size_since("dci_index_config", config, config->struct_size, OLD_CONFIG,
                                            sizeof *config));
        DCI_TRY(dci_fields_check(DCI_FIELDS(fields), config));
        if (HAS(dci_index_config, config, target_recall))
                DCI_TRY(dci_fields_check(DCI_FIELDS(new_fields), config));
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
        DCI_TRY(dci_check_struct_size_since("dci_index_config", out_config, out_config->struct_size, OLD_CONFIG,
                                            sizeof *out_config));
        dci_index_read_begin(index);
        dci_struct_give(out_config, &index->config, sizeof index->config);
        dci_index_read_end(index);
        return DCI_OK;
}

int32_t dci_index_is_auto(const dci_index *index)
{
        return index != NULL && index->automatic.on;
}

void dci_index_take_config(dci_index *index, const dci_index_config *config)
{
        const bool knows_recall = HAS(dci_index_config, config, target_recall);
        index->config.struct_size = sizeof index->config;
        dci_struct_give(&index->config, config,
                        config->struct_size < sizeof index->config ? config->struct_size : sizeof index->config);
        dci_search_params_init(&index->defaults, sizeof index->defaults);
        if (!knows_recall) {
                index->config.target_recall = 1.0;
                index->defaults.prop_to_visit = index->defaults.prop_to_retrieve = 1.0;
        }
        index->defaults.target_recall = index->config.target_recall;
}

static dci_status params_check(const dci_search_params *params)
{
        DCI_TRY(dci_check_struct_size_since("dci_search_params", params, params->struct_size, OLD_PARAMS,
                                            sizeof *params));
        DCI_TRY(dci_fields_check(DCI_FIELDS(param_fields), params));
        DCI_TRY(HAS(dci_search_params, params, target_recall) ? dci_fields_check(DCI_FIELDS(new_param_fields), params)
                                                              : dci_fields_check(DCI_FIELDS(old_param_fields), params));
        if (params->stats != NULL)
                DCI_TRY(dci_check_struct_size_since("dci_search_stats", params->stats, params->stats->struct_size,
                                                    OLD_STATS, sizeof *params->stats));
        return params->filter != NULL ? dci_filter_check(params->filter) : DCI_OK;
}

bool dci_params_give_effort(const dci_search_params *params)
{
        return params->prop_to_visit != 0.0 || params->prop_to_retrieve != 0.0 || params->num_to_visit != 0 ||
               params->num_to_retrieve != 0 || params->rerank != 0.0 || params->guarantee != 0.0 ||
               params->field_of_view != 0;
}

/* Checked params in full length. Those of 0.1.0 give an effort, so it does not matter which recall they want. */
static void take_params(const dci_search_params *params, dci_search_params *out)
{
        dci_search_params_init(out, sizeof *out);
        dci_struct_give(out, params, params->struct_size < sizeof *out ? params->struct_size : sizeof *out);
        if (dci_params_give_effort(out))
                dci_params_complete(out);
}

void dci_params_complete(dci_search_params *params)
{
        params->prop_to_visit = params->prop_to_visit == 0.0 ? 1.0 : params->prop_to_visit;
        params->prop_to_retrieve = params->prop_to_retrieve == 0.0 ? 1.0 : params->prop_to_retrieve;
        params->target_recall = 1.0;
}

dci_status dci_params_take(const dci_index *index, const dci_search_params *params, dci_search_params *out)
{
        if (params == NULL) {
                dci_index_get_defaults_into(index, out);
                return DCI_OK;
        }
        DCI_TRY(params_check(params));
        take_params(params, out);
        return DCI_OK;
}

/* The lock makes the effort fields one value for searches that run during a change. */
void dci_index_get_defaults_into(const dci_index *index, dci_search_params *out)
{
        pthread_mutex_t *lock = &((dci_index *)(uintptr_t)index)->defaults_lock;
        pthread_mutex_lock(lock);
        *out = index->defaults;
        pthread_mutex_unlock(lock);
}

void dci_index_get_effort_into(const dci_index *index, dci_search_params *out_defaults,
                               dci_calibration *out_calibration)
{
        pthread_mutex_t *lock = &((dci_index *)(uintptr_t)index)->defaults_lock;
        pthread_mutex_lock(lock);
        *out_defaults = index->defaults;
        *out_calibration = index->calibration;
        pthread_mutex_unlock(lock);
}

dci_status dci_index_get_defaults(const dci_index *index, dci_search_params *out_params)
{
        dci_search_params defaults;
        DCI_TRY(dci_index_check_call(index));
        if (out_params == NULL)
                return dci_fail(DCI_ERR_INVALID, "out_params is NULL");
        DCI_TRY(dci_check_struct_size_since("dci_search_params", out_params, out_params->struct_size, OLD_PARAMS,
                                            sizeof *out_params));
        dci_index_get_defaults_into(index, &defaults);
        if (!HAS(dci_search_params, out_params, target_recall)) /* 0 is none of its values */
                dci_params_complete(&defaults);
        dci_struct_give(out_params, &defaults, sizeof defaults);
        return DCI_OK;
}

dci_status dci_index_set_defaults(dci_index *index, const dci_search_params *params)
{
        dci_search_params defaults;
        DCI_TRY(dci_index_check_call(index));
        if (params == NULL)
                return dci_fail(DCI_ERR_INVALID, "params is NULL");
        DCI_TRY(params_check(params));
        if (params->filter != NULL || params->stats != NULL || params->progress.fn != NULL)
                return dci_fail(DCI_ERR_INVALID, "defaults hold effort only: filter, stats and progress must be NULL");
        take_params(params, &defaults);
        pthread_mutex_lock(&index->defaults_lock);
        index->defaults = defaults;
        pthread_mutex_unlock(&index->defaults_lock);
        return DCI_OK;
}
