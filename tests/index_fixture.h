/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#ifndef DCI_TESTS_INDEX_FIXTURE_H
#define DCI_TESTS_INDEX_FIXTURE_H

#include "index/access.h"
#include "index/codes/rows.h"
#include "index/filter.h"
#include "index/pdci/project.h"
#include "simd/topk.h"
#include "tests/common.h"

static inline dci_index_config index_config(size_t dim, dci_metric metric, dci_dtype dtype)
{
        dci_index_config config;
        ck_ok(dci_index_config_init(&config, sizeof config));
        config.dim = dim;
        config.metric = metric;
        config.dtype = dtype;
        config.target_recall = 1.0; /* exact unless an effort is given; test_effort.c has the rest */
        return config;
}

#endif
