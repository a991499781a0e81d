/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What a kind adds to a file. Hooks may be NULL: there is nothing to do then. */
#ifndef DCI_INDEX_PERSIST_KINDS_H
#define DCI_INDEX_PERSIST_KINDS_H

#include "index/persist/sections.h"

typedef struct dci_kind_format {
        dci_index_kind kind;
        /* Fields of the config and of the search defaults that only this kind has. */
        void (*write_config)(const dci_index *index, const dci_search_params *defaults,
                             unsigned char own[DCI_CONFIG_OWN]);
        /* Own bytes are zero where the hook is NULL. Values are checked later, by dci_index_config_check. */
        dci_status (*read_config)(const unsigned char own[DCI_CONFIG_OWN], dci_index_config *config,
                                  dci_search_params *defaults);
        /* Appends the kind's own sections. */
        void (*write)(dci_saving *saving);
        /* Takes the kind's own sections and checks their lengths. Allocates nothing. */
        dci_status (*find)(dci_loading *loading);
        /* Checks what they hold and gives it to loading->index. */
        dci_status (*accept)(dci_loading *loading);
} dci_kind_format;

/* NULL for a kind that is not known. */
const dci_kind_format *dci_kind_format_of(dci_index_kind kind);

#endif
