/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#ifndef DCI_INDEX_CONFIG_H
#define DCI_INDEX_CONFIG_H

#include "index/index_internal.h"

dci_status dci_index_config_check(const dci_index_config *config);
void dci_index_get_defaults_into(const dci_index *index, dci_search_params *out);

#endif
