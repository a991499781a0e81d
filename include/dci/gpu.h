/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/**
 * @file gpu.h
 * Devices: how many there are, opening one, what it is. Objects on a device (dci/offload.h) hold it until they are
 * destroyed.
 *
 *      dci_gpu_count, dci_gpu_create, dci_gpu_get_info
 *      ... objects on the device ...
 *      dci_gpu_destroy
 *
 * NVIDIA GPUs of compute capability 8.0 and up, in builds with DCI_CUDA. DCI_GPU_HOST is a device that every build has:
 * the CPU, which runs each kernel's reference with host memory in place of device memory. It is for tests and for
 * trying programs out.
 * Errors: DCI_ERR_DEVICE when the device's runtime refuses or fails; its sentence is quoted.
 */
#ifndef DCI_GPU_H
#define DCI_GPU_H

#include "dci/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The device that is the CPU. */
#define DCI_GPU_HOST ((int32_t)-1)

/**
 * How many GPUs there are, at least 1. DCI_ERR_UNSUPPORTED where there is none to use. The sentence says what is missing
 * and what to do: a build with DCI_CUDA, a driver, one that is new enough (with both versions), a GPU, or one that
 * CUDA_VISIBLE_DEVICES shows.
 */
DCI_API dci_status dci_gpu_count(int32_t *out_count);

/** Prepare with dci_gpu_config_init. */
typedef struct dci_gpu_config {
        size_t struct_size;
        int32_t device;   /**< 0 (default) to dci_gpu_count - 1, or DCI_GPU_HOST */
        int32_t reserved; /**< zero */
} dci_gpu_config;
DCI_API dci_status dci_gpu_config_init(dci_gpu_config *config, size_t struct_size);

/** Prepare with dci_gpu_info_init. */
typedef struct dci_gpu_info {
        size_t struct_size;
        char name[64];
        int32_t device;
        int32_t major, minor; /**< compute capability */
        int32_t multiprocessors;
        int32_t numa_node;       /**< that the device is attached to; -1: not known */
        int32_t driver, runtime; /**< versions, 1000 major + 10 minor */
        int32_t reserved;
        size_t memory_bytes, free_bytes, l2_bytes;
        double memory_bytes_per_second; /**< by clock and width, if the driver reports them; 0: not known */
} dci_gpu_info;
DCI_API dci_status dci_gpu_info_init(dci_gpu_info *info, size_t struct_size);

/** A device. Thread rule: as contexts. */
typedef struct dci_gpu dci_gpu;

/**
 * Opens a device. Refused: what dci_gpu_count refuses, no such device, a compute capability without kernels in this
 * build (CMAKE_CUDA_ARCHITECTURES). config NULL: device 0.
 */
DCI_API dci_status dci_gpu_create(dci_context *context, const dci_gpu_config *config, dci_gpu **out_gpu);
/** Closes it, when the last object on it is destroyed. NULL is allowed. */
DCI_API void dci_gpu_destroy(dci_gpu *gpu);
DCI_API dci_status dci_gpu_get_info(dci_gpu *gpu, dci_gpu_info *out_info);

#ifdef __cplusplus
}
#endif
#endif
