/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What the kinds of indexes do in their own way. */
#ifndef DCI_INDEX_KINDS_H
#define DCI_INDEX_KINDS_H

#include "index/index_internal.h"

/* The kind is one that dci_index_config_check allows. */
const dci_kind *dci_kind_of(dci_index_kind kind);

#endif
