/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The device that suites run on: the host device, or as the environment's DCI_GPU_DEVICE says CUDA device N, with "emulated" the host device
 * with CUDA's kernels run on the CPU (emulated/emulator.h), or with "late" the host device, but late (gpu_late.h). */
#ifndef DCI_TESTS_GPU_OPEN_H
#define DCI_TESTS_GPU_OPEN_H

#include "gpu/gpu_internal.h"

/* As dci_gpu_config.device; the emulated one begins as DCI_GPU_HOST. */
int32_t gpu_device_number(void);
dci_gpu *gpu_open(dci_context *context);

#endif
