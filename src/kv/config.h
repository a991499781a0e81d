/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The config of a dci_kv: defaults and presets filled in, and every rule checked. */
#ifndef DCI_KV_CONFIG_H
#define DCI_KV_CONFIG_H

#include "kv/stages/stages.h"

/* The checked config, and the stages that it names. */
dci_status dci_kv_check_config(const dci_kv_config *config, dci_kv_config *out, dci_kv_stages *out_stages);

#endif
