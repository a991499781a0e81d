/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What can be wrong with the contents of a file, given that every length is right. */
#ifndef DCI_INDEX_PERSIST_CHECK_H
#define DCI_INDEX_PERSIST_CHECK_H

#include "index/persist/sections.h"

dci_status dci_loading_check_rows(const dci_loading *loading);
dci_status dci_loading_check_ids(const dci_loading *loading);
/* All are finite and no larger than a projection on a unit vector can be. */
dci_status dci_loading_check_projections(dci_loading *loading);

#endif
