/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/**
 * @file dci.h
 * All of dci. Each header is useful alone:
 *
 *   base.h       status, errors, number formats, context (memory, threads, instruction set)
 *   transform.h  unit rows, the MIPS lift T_K / T_Q
 *   sketch.h     a few bits per coordinate that rank rows: random and learned low-bit codes
 *   index.h      "which k stored rows score highest for this row": exact search (kind FLAT)
 *   file.h       indexes saved, loaded and mapped
 *   kmeans.h     clusters of rows: cosine and Euclidean k-means, one problem or a layer's heads at once
 *   kv.h         a KV cache that keeps every token and attends to few: paged rows, plans, attention
 *   gpu.h        devices: opening a GPU
 *   offload.h    the KV cache in host memory, with attention on a GPU
 *   check.h      indexes and caches that check themselves
 *
 * A first program is in README.md and is compiled by the test suite (tests/install/consumer.c).
 */
#ifndef DCI_DCI_H
#define DCI_DCI_H

#include "dci/base.h"
#include "dci/check.h"
#include "dci/file.h"
#include "dci/gpu.h"
#include "dci/index.h"
#include "dci/kmeans.h"
#include "dci/kv.h"
#include "dci/offload.h"
#include "dci/sketch.h"
#include "dci/transform.h"

#endif
