/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The host device with CUDA's kernels, emulated, in the place of the references: for tests alone. */
#ifndef DCI_TESTS_EMULATED_DEVICE_H
#define DCI_TESTS_EMULATED_DEVICE_H

#include "gpu/gpu_internal.h"

/* Makes a host device that nobody has used an emulated one, which has number 0. */
void emulated_become(dci_gpu *gpu);

#endif
