/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "gpu/gpu_internal.h"

#include "tests/emulated/device.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "gpu/cuda/launchers.h"

void emulated_run(const void *launch);
size_t emulated_shared(void);
int emulated_queue(void *stream, const void *launch, size_t n_bytes);

/* The device whose launcher runs on this thread. */
static _Thread_local dci_gpu *now;
static _Thread_local dci_status queued;

int emulated_queue(void *stream, const void *launch, size_t n_bytes)
{
        if (now == NULL) {
                emulated_run(launch);
                return 0;
        }
        queued = dci_gpu_host_call(now, stream, emulated_run, launch, n_bytes);
        return queued == DCI_OK ? 0 : 2; /* cudaErrorMemoryAllocation */
}

size_t emulated_shared(void)
{
        const char *n_bytes = getenv("DCI_EMULATED_SHARED");
        return n_bytes == NULL ? EMULATED_MOST_SHARED : (size_t)strtoul(n_bytes, NULL, 10);
}

const dci_gpu_cuda *dci_gpu_cuda_of(const dci_gpu *gpu)
{
        static _Thread_local dci_gpu_cuda cuda;
        const char *major = getenv("DCI_EMULATED_MAJOR");
        cuda = (dci_gpu_cuda){.multiprocessors = gpu->info.multiprocessors,
                              .major = major == NULL ? 9 : (int32_t)strtol(major, NULL, 10),
                              .shared_bytes = emulated_shared()};
        return &cuda;
}

dci_status dci_gpu_cuda_status(int error, const char *format, ...)
{
        char text[256];
        va_list list;
        if (error == 0)
                return DCI_OK;
        va_start(list, format);
        vsnprintf(text, sizeof text, format, list);
        va_end(list);
        return dci_fail(error == 2 ? queued : DCI_ERR_DEVICE, "%s: error %d of the emulator", text, error);
}

#define KERNEL(name)                                                                                                   \
        static dci_status emulated_##name(dci_gpu *gpu, void *stream, const dci_gpu_##name##_args *args)               \
        {                                                                                                              \
                dci_gpu *const before = now;                                                                           \
                now = gpu;                                                                                             \
                const dci_status status = dci_gpu_cuda_##name(gpu, stream, args);                                      \
                now = before;                                                                                          \
                return status;                                                                                         \
        }
DCI_GPU_EACH_KERNEL(KERNEL)

static dci_status emulated_fits(dci_gpu *gpu, const dci_gpu_needs *needs)
{
        return dci_gpu_cuda_fits(dci_gpu_cuda_of(gpu), needs);
}

#define SET(name) ops.name = emulated_##name;

void emulated_become(dci_gpu *gpu)
{
        static dci_gpu_ops ops;
        ops = dci_gpu_ops_host;
        ops.name = "emulated";
        ops.fits = emulated_fits;
        DCI_GPU_EACH_KERNEL(SET)
        gpu->ops = &ops;
        gpu->device = 0;
}
