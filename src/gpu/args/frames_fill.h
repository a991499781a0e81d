/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* A coder's frame as a device has it (args/frames.h). */
#ifndef DCI_GPU_ARGS_FRAMES_FILL_H
#define DCI_GPU_ARGS_FRAMES_FILL_H

#include "core/internal.h"

#include "gpu/args/frames.h"
#include "gpu/args/learned.h"
#include "sketch/coder.h"

/* record: DCI_GPU_TRANSFORM_BYTES(coder->dim), aligned to 4 bytes. A dim that is a multiple of 32, DCI_GPU_MAX_DIM at most. */
void dci_gpu_transform_fill(const dci_coder *coder, void *record);
/* What rows become codes by: record: DCI_GPU_WRITER_BYTES(coder->dim), the rest alike. */
void dci_gpu_writer_fill(const dci_coder *coder, void *record);

#endif
