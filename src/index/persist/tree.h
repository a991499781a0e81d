/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Hooks of kind MDCI. */
#ifndef DCI_INDEX_PERSIST_TREE_H
#define DCI_INDEX_PERSIST_TREE_H

#include "index/persist/sections.h"

void dci_tree_write_config(const dci_index *index, const dci_search_params *defaults,
                           unsigned char own[DCI_CONFIG_OWN]);
dci_status dci_tree_read_config(const unsigned char own[DCI_CONFIG_OWN], dci_index_config *config,
                                dci_search_params *defaults);
void dci_tree_write(dci_saving *saving);
dci_status dci_tree_find(dci_loading *loading);
dci_status dci_tree_accept(dci_loading *loading);

/* Whether what loading would compute again is in proportion to the file. */
dci_status dci_tree_check_proportion(const dci_index *index, size_t n_bytes);

#endif
