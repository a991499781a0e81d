/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#ifndef DCI_INDEX_CONFIG_H
#define DCI_INDEX_CONFIG_H

#include "index/index_internal.h"

dci_status dci_index_config_check(const dci_index_config *config);
/* Gives a new index its config, checked, and the defaults that follow from it. */
void dci_index_take_config(dci_index *index, const dci_index_config *config);
/* The caller's params, checked, or the index's defaults. dci_effort_choose makes an effort of a recall. */
dci_status dci_params_take(const dci_index *index, const dci_search_params *params, dci_search_params *out);
/* Is any effort field given? Then target_recall has no part. */
bool dci_params_give_effort(const dci_search_params *params);
/* Of an effort: what it does not give means everything. */
void dci_params_complete(dci_search_params *params);
dci_status dci_tune_check(const dci_tune_options *options, const dci_tune_result *result);
void dci_index_get_defaults_into(const dci_index *index, dci_search_params *out);
void dci_index_get_effort_into(const dci_index *index, dci_search_params *out_defaults,
                               dci_calibration *out_calibration);

#endif
