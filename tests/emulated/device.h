/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The host device with CUDA's kernels, emulated, in the place of the references: for tests alone. */
#ifndef DCI_TESTS_EMULATED_DEVICE_H
#define DCI_TESTS_EMULATED_DEVICE_H

#include "gpu/gpu_internal.h"

#define EMULATED_MOST_SHARED ((size_t)227 * 1024) /* of a block that asks for it */

/* Makes a host device that nobody has used an emulated one, which has number 0. By the environment, DCI_EMULATED_MAJOR (9 without it) is its compute
 * capability and DCI_EMULATED_SHARED (EMULATED_MOST_SHARED) the bytes of shared memory that a block may have. */
void emulated_become(dci_gpu *gpu);

#endif
