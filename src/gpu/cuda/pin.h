/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What the operating system knows about memory that is to be locked. */
#ifndef DCI_GPU_CUDA_PIN_H
#define DCI_GPU_CUDA_PIN_H

#include <stddef.h>
#include <stdint.h>

/* The memory node that a PCI device ("0000:1b:00.0", in any case) hangs on; -1: the system does not say. */
int32_t dci_gpu_numa_node(const char *bus_id);

/* Asks the system for large pages, where nothing has been written yet, and for pages on this node (-1: any), moving
 * those that are there already. The device translates every address it reads: scattered rows in large pages need fewer
 * entries of its tables. The system may decline: memory is then merely slower. */
void dci_gpu_place(void *memory, size_t n_bytes, int32_t node);

/* A phrase about how much this process may lock: "RLIMIT_MEMLOCK is 8388608 bytes". */
void dci_gpu_lock_limit(char *out, size_t size);

#endif
