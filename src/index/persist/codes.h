/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Codes in a file: the steps of saving and loading, which do nothing without sketch_bits. */
#ifndef DCI_INDEX_PERSIST_CODES_H
#define DCI_INDEX_PERSIST_CODES_H

#include "index/persist/sections.h"

void dci_codes_write(dci_saving *saving);
dci_status dci_codes_find(dci_loading *loading);
dci_status dci_codes_place(dci_loading *loading);
dci_status dci_codes_accept(const dci_loading *loading);

#endif
