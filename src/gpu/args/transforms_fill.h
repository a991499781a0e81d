/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Fills the records of a coder's transform (args/transforms.h, args/learned.h). */
#ifndef DCI_GPU_ARGS_TRANSFORMS_FILL_H
#define DCI_GPU_ARGS_TRANSFORMS_FILL_H

#include "core/internal.h"

#include "gpu/args/learned.h"
#include "gpu/args/transforms.h"
#include "sketch/coder.h"

/* For scores. record: DCI_GPU_TRANSFORM_BYTES(coder->dim), aligned to 4 bytes; dim % 32 == 0, at most
 * DCI_GPU_MAX_DIM. */
void dci_gpu_transform_fill(const dci_coder *coder, void *record);
/* For encoding rows. record: DCI_GPU_WRITER_BYTES(coder->dim), aligned likewise. */
void dci_gpu_writer_fill(const dci_coder *coder, void *record);

#endif
