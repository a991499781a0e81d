/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#ifndef DCI_INDEX_CONFIG_H
#define DCI_INDEX_CONFIG_H

#include "index/index_internal.h"

dci_status dci_index_config_check(const dci_index_config *config);
/* Merges params with the index's defaults and checks them. */
dci_status dci_params_resolve(const dci_index *index, const dci_search_params *params, dci_search_params *out);
void dci_index_get_defaults_into(const dci_index *index, dci_search_params *out);

#endif
