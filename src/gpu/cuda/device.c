/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* CUDA devices, by the runtime's C interface. The runtime is linked statically and loads the driver when it is first
 * called: a machine without one gets a status, not a loader's error.
 *
 * The current device is the calling thread's, and the caller's: each call makes its own current and restores the one
 * before. */
#include "gpu/gpu_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "gpu/cuda/launchers.h"
#include "gpu/cuda/pin.h"

typedef struct cuda_state {
        dci_gpu_cuda shared;
} cuda_state;

const dci_gpu_cuda *dci_gpu_cuda_of(const struct dci_gpu *gpu)
{
        return &((const cuda_state *)gpu->state)->shared;
}

static dci_status status_of(cudaError_t error)
{
        switch (error) {
        case cudaErrorMemoryAllocation:
                return DCI_ERR_MEMORY;
        case cudaErrorInsufficientDriver:
        case cudaErrorNoDevice:
        case cudaErrorSystemDriverMismatch:
        case cudaErrorCompatNotSupportedOnDevice:
        case cudaErrorStubLibrary:
        case cudaErrorNoKernelImageForDevice:
        case cudaErrorUnsupportedPtxVersion:
                return DCI_ERR_UNSUPPORTED;
        default:
                return DCI_ERR_DEVICE;
        }
}

dci_status dci_gpu_cuda_status(int error, const char *format, ...)
{
        if (error == 0)
                return DCI_OK;
        char tried[256];
        va_list list;
        va_start(list, format);
        vsnprintf(tried, sizeof tried, format, list);
        va_end(list);
        (void)cudaGetLastError();
        const cudaError_t code = (cudaError_t)error;
        return dci_fail(status_of(code), "%s: %s (%s)", tried, cudaGetErrorString(code), cudaGetErrorName(code));
}

/* --- the current device ------------------------------------------------------------------------------------------- */

static dci_status enter(const dci_gpu *gpu, int *out_before)
{
        *out_before = gpu->device;
        cudaError_t error = cudaGetDevice(out_before);
        if (error == cudaSuccess && *out_before != gpu->device)
                error = cudaSetDevice(gpu->device);
        return dci_gpu_cuda_status(error, "GPU %d cannot be made current", gpu->device);
}

static void leave(const dci_gpu *gpu, int before)
{
        if (before != gpu->device && cudaSetDevice(before) != cudaSuccess)
                (void)cudaGetLastError();
}

/* One call of the runtime on the device, with a sentence for when it fails. */
#define ON_DEVICE(gpu, call, ...)                                                                                      \
        do {                                                                                                           \
                int before_;                                                                                           \
                DCI_TRY(enter(gpu, &before_));                                                                         \
                const cudaError_t error_ = (call);                                                                     \
                const dci_status status_ = dci_gpu_cuda_status(error_, __VA_ARGS__);                                   \
                leave(gpu, before_);                                                                                   \
                return status_;                                                                                        \
        } while (0)

/* For releases: a failure can no longer be reported, and must not surface in a later call of the caller. */
#define ON_DEVICE_QUIETLY(gpu, call)                                                                                   \
        do {                                                                                                           \
                int before_;                                                                                           \
                dci_may_fail(true);                                                                                    \
                if (enter(gpu, &before_) == DCI_OK) {                                                                  \
                        if ((call) != cudaSuccess)                                                                     \
                                (void)cudaGetLastError();                                                              \
                        leave(gpu, before_);                                                                           \
                }                                                                                                      \
                dci_may_fail(false);                                                                                   \
        } while (0)

/* --- devices ------------------------------------------------------------------------------------------------------ */

/* A driver serves every minor version of its runtime's major one. */
static dci_status fail_driver(void)
{
        const int major = CUDART_VERSION / 1000;
        int driver = 0;
        (void)cudaDriverGetVersion(&driver);
        (void)cudaGetLastError();
        if (driver == 0)
                return dci_fail(
                        DCI_ERR_UNSUPPORTED,
                        "there is no NVIDIA driver (libcuda.so.1 is missing or cannot be loaded): install one for CUDA "
                        "%d.0 or later, or give the container access to the GPUs",
                        major);
        return dci_fail(DCI_ERR_UNSUPPORTED,
                        "the NVIDIA driver is for CUDA %d.%d, this build of dci needs one for CUDA %d.0 or later: "
                        "update the driver, or build dci with an older nvcc",
                        driver / 1000, driver % 1000 / 10, major);
}

static dci_status fail_invisible(void)
{
        const char *visible = getenv("CUDA_VISIBLE_DEVICES");
        (void)cudaGetLastError();
        if (visible == NULL)
                return dci_fail(DCI_ERR_UNSUPPORTED, "the NVIDIA driver finds no GPU: nvidia-smi -L should list one");
        return dci_fail(DCI_ERR_UNSUPPORTED,
                        "no GPU is visible: CUDA_VISIBLE_DEVICES is \"%.100s\", unset it or set it to "
                        "numbers that nvidia-smi -L lists",
                        visible);
}

static dci_status cuda_count(int32_t *out)
{
        int n = 0;
        const cudaError_t error = cudaGetDeviceCount(&n);
        if (error == cudaErrorInsufficientDriver)
                return fail_driver();
        if (error == cudaErrorNoDevice || (error == cudaSuccess && n == 0))
                return fail_invisible();
        DCI_TRY(dci_gpu_cuda_status(error, "the GPUs cannot be counted"));
        *out = n;
        return DCI_OK;
}

static int attribute(enum cudaDeviceAttr which, int device)
{
        int value = 0;
        if (cudaDeviceGetAttribute(&value, which, device) != cudaSuccess) {
                (void)cudaGetLastError();
                return 0;
        }
        return value;
}

static void fill_info(dci_gpu_info *info, int32_t device, const struct cudaDeviceProp *properties)
{
        snprintf(info->name, sizeof info->name, "%.63s", properties->name);
        info->device = device;
        info->major = properties->major;
        info->minor = properties->minor;
        info->multiprocessors = properties->multiProcessorCount;
        char bus[32];
        info->numa_node = -1;
        if (cudaDeviceGetPCIBusId(bus, sizeof bus, device) == cudaSuccess)
                info->numa_node = dci_gpu_numa_node(bus);
        int version = 0;
        if (cudaDriverGetVersion(&version) == cudaSuccess)
                info->driver = version;
        if (cudaRuntimeGetVersion(&version) == cudaSuccess)
                info->runtime = version;
        info->memory_bytes = properties->totalGlobalMem;
        info->l2_bytes = (size_t)properties->l2CacheSize;
        /* Kilohertz and bits, two transfers per clock; newer drivers may not report them. */
        const double clock = 1e3 * attribute(cudaDevAttrMemoryClockRate, device);
        info->memory_bytes_per_second = 2 * clock * attribute(cudaDevAttrGlobalMemoryBusWidth, device) / 8;
        size_t free_bytes = 0, total = 0;
        if (cudaMemGetInfo(&free_bytes, &total) == cudaSuccess)
                info->free_bytes = free_bytes;
        (void)cudaGetLastError();
}

/* Kernels are there as machine code, or as PTX that the driver can compile. */
static dci_status check_kernels(int32_t device, const struct cudaDeviceProp *properties)
{
        if (properties->major < 8)
                return dci_fail(DCI_ERR_UNSUPPORTED, "GPU %d (%s) has compute capability %d.%d, expected 8.0 or more",
                                device, properties->name, properties->major, properties->minor);
        const cudaError_t error = (cudaError_t)dci_gpu_cuda_probe();
        if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorUnsupportedPtxVersion) {
                (void)cudaGetLastError();
                return dci_fail(
                        DCI_ERR_UNSUPPORTED,
                        "GPU %d (%s) has compute capability %d.%d, this build of dci has kernels for %s%s: build it "
                        "with CMAKE_CUDA_ARCHITECTURES=%d%d",
                        device, properties->name, properties->major, properties->minor, DCI_CUDA_ARCHITECTURES,
                        error == cudaErrorUnsupportedPtxVersion ? ", whose PTX is too new for the driver" : "",
                        properties->major, properties->minor);
        }
        return dci_gpu_cuda_status(error, "GPU %d cannot load kernels", device);
}

static dci_status open_current(dci_gpu *gpu, int32_t device)
{
        struct cudaDeviceProp properties;
        DCI_TRY(dci_gpu_cuda_status(cudaGetDeviceProperties(&properties, device), "GPU %d does not tell what it is",
                                    device));
        DCI_TRY(check_kernels(device, &properties));
        if (!properties.canMapHostMemory || !properties.unifiedAddressing)
                return dci_fail(DCI_ERR_UNSUPPORTED, "GPU %d (%s) cannot read host memory in place", device,
                                properties.name);
        cuda_state *state = dci_calloc(gpu->context, 1, sizeof *state);
        if (state == NULL)
                return DCI_ERR_MEMORY;
        state->shared = (dci_gpu_cuda){.device = device,
                                       .multiprocessors = properties.multiProcessorCount,
                                       .major = properties.major,
                                       .minor = properties.minor,
                                       .shared_bytes = properties.sharedMemPerBlockOptin};
        gpu->device = device;
        gpu->state = state;
        fill_info(&gpu->info, device, &properties);
        return DCI_OK;
}

static dci_status cuda_open(dci_gpu *gpu, int32_t device)
{
        int32_t n = 0;
        DCI_TRY(cuda_count(&n));
        if (device < 0 || device >= n)
                return dci_fail(DCI_ERR_NOT_FOUND, "device is %d, expected 0 to %d: there are %d GPUs", device, n - 1,
                                n);
        int before = device;
        dci_status status = dci_gpu_cuda_status(cudaGetDevice(&before), "the current GPU is not known");
        if (status == DCI_OK) /* the first call that needs the device makes its context */
                status = dci_gpu_cuda_status(cudaSetDevice(device), "GPU %d cannot be used", device);
        if (status == DCI_OK)
                status = dci_gpu_cuda_status(cudaFree(NULL), "GPU %d cannot be used", device);
        if (status == DCI_OK)
                status = open_current(gpu, device);
        if (before != device && cudaSetDevice(before) != cudaSuccess)
                (void)cudaGetLastError();
        return status;
}

static void cuda_close(dci_gpu *gpu)
{
        dci_free(gpu->context, gpu->state, 1, sizeof(cuda_state));
        gpu->state = NULL;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

static dci_status cuda_free_bytes(dci_gpu *gpu, size_t *out)
{
        size_t total = 0;
        ON_DEVICE(gpu, cudaMemGetInfo(out, &total), "GPU %d does not tell its free memory", gpu->device);
}

static dci_status cuda_alloc(dci_gpu *gpu, size_t n_bytes, void **out)
{
        /* cudaMalloc aligns to 256 bytes at least. */
        ON_DEVICE(gpu, cudaMalloc(out, n_bytes > 0 ? n_bytes : 1), "GPU %d has no room for %zu bytes", gpu->device,
                  n_bytes);
}

static void cuda_free(dci_gpu *gpu, void *memory, size_t n_bytes)
{
        (void)n_bytes;
        if (memory != NULL)
                ON_DEVICE_QUIETLY(gpu, cudaFree(memory));
}

static dci_status register_host(dci_gpu *gpu, void *memory, size_t n_bytes, void **out_address)
{
        cudaError_t error = cudaHostRegister(memory, n_bytes, cudaHostRegisterMapped | cudaHostRegisterPortable);
        if (error != cudaSuccess) {
                char limit[64];
                dci_gpu_lock_limit(limit, sizeof limit);
                return dci_gpu_cuda_status(error, "%zu bytes of host memory cannot be locked (%s)", n_bytes, limit);
        }
        error = cudaHostGetDevicePointer(out_address, memory, 0);
        if (error == cudaSuccess)
                return DCI_OK;
        const dci_status status =
                dci_gpu_cuda_status(error, "GPU %d cannot map %zu bytes of host memory", gpu->device, n_bytes);
        if (cudaHostUnregister(memory) != cudaSuccess)
                (void)cudaGetLastError();
        return status;
}

static dci_status cuda_pin(dci_gpu *gpu, void *memory, size_t n_bytes, void **out_address)
{
        int before;
        DCI_TRY(enter(gpu, &before));
        dci_gpu_place(memory, n_bytes, gpu->info.numa_node);
        const dci_status status = register_host(gpu, memory, n_bytes, out_address);
        leave(gpu, before);
        return status;
}

static void cuda_unpin(dci_gpu *gpu, void *memory)
{
        if (memory != NULL)
                ON_DEVICE_QUIETLY(gpu, cudaHostUnregister(memory));
}

static dci_status cuda_pointer_check(dci_gpu *gpu, const void *pointer, const char *name)
{
        struct cudaPointerAttributes found;
        memset(&found, 0, sizeof found);
        if (pointer == NULL)
                return dci_fail(DCI_ERR_INVALID, "%s is NULL", name);
        DCI_TRY(dci_gpu_cuda_status(cudaPointerGetAttributes(&found, pointer),
                                    "%s (%p) is not known to the GPU's runtime", name, pointer));
        if (found.type == cudaMemoryTypeUnregistered)
                return dci_fail(DCI_ERR_INVALID,
                                "%s (%p) is ordinary host memory, expected memory of GPU %d or locked memory", name,
                                pointer, gpu->device);
        if (found.type == cudaMemoryTypeDevice && found.device != gpu->device)
                return dci_fail(DCI_ERR_INVALID, "%s (%p) is memory of GPU %d, expected GPU %d", name, pointer,
                                found.device, gpu->device);
        if (found.type == cudaMemoryTypeHost && found.devicePointer != pointer)
                return dci_fail(DCI_ERR_INVALID, "%s (%p) is host memory that GPU %d does not see at this address",
                                name, pointer, gpu->device);
        return DCI_OK;
}

/* --- streams ------------------------------------------------------------------------------------------------------ */

static dci_status cuda_stream_create(dci_gpu *gpu, void **out)
{
        ON_DEVICE(gpu, cudaStreamCreateWithFlags((cudaStream_t *)out, cudaStreamNonBlocking), "GPU %d gives no stream",
                  gpu->device);
}

static void cuda_stream_destroy(dci_gpu *gpu, void *stream)
{
        if (stream != NULL)
                ON_DEVICE_QUIETLY(gpu, cudaStreamDestroy((cudaStream_t)stream));
}

/* Does not query the stream's work, which would end a capture. An earlier kernel's error shows in any call. */
static dci_status check_stream(dci_gpu *gpu, cudaStream_t stream)
{
#if CUDART_VERSION >= 12080
        int device = gpu->device;
        DCI_TRY(dci_gpu_cuda_status(cudaStreamGetDevice(stream, &device), "the stream %p is not usable",
                                    (void *)stream));
        if (device != gpu->device)
                return dci_fail(DCI_ERR_INVALID, "the stream %p is of GPU %d, expected GPU %d", (void *)stream, device,
                                gpu->device);
        return DCI_OK;
#else
        /* Older runtimes do not report a stream's device; recording an event on another device's stream fails. */
        unsigned flags = 0;
        (void)gpu;
        return dci_gpu_cuda_status(cudaStreamGetFlags(stream, &flags), "the stream %p is not usable", (void *)stream);
#endif
}

static dci_status cuda_stream_check(dci_gpu *gpu, void *stream)
{
        int before;
        DCI_TRY(enter(gpu, &before));
        const dci_status status = check_stream(gpu, (cudaStream_t)stream);
        leave(gpu, before);
        return status;
}

static dci_status cuda_stream_runs(dci_gpu *gpu, void *stream)
{
        enum cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
        (void)gpu;
        if (stream == NULL)
                return DCI_OK;
        if (cudaStreamIsCapturing((cudaStream_t)stream, &capturing) != cudaSuccess)
                (void)cudaGetLastError(); /* the call that waits reports what is wrong */
        return capturing == cudaStreamCaptureStatusNone
                       ? DCI_OK
                       : dci_fail(DCI_ERR_INVALID, "the stream %p is being captured: it cannot be waited for", stream);
}

static dci_status cuda_stream_wait(dci_gpu *gpu, void *stream)
{
        DCI_TRY(cuda_stream_runs(gpu, stream)); /* waiting would spoil a capture */
        ON_DEVICE(gpu, cudaStreamSynchronize((cudaStream_t)stream), "work on GPU %d failed", gpu->device);
}

static dci_status cuda_copy(dci_gpu *gpu, void *stream, void *to, const void *from, size_t n_bytes)
{
        if (n_bytes == 0)
                return DCI_OK;
        ON_DEVICE(gpu, cudaMemcpyAsync(to, from, n_bytes, cudaMemcpyDefault, (cudaStream_t)stream),
                  "%zu bytes cannot be copied from %p to %p", n_bytes, from, to);
}

static dci_status cuda_copy_rows(dci_gpu *gpu, void *stream, void *to, const void *from, size_t from_step,
                                 size_t n_bytes, size_t n)
{
        if (n == 0 || n_bytes == 0)
                return DCI_OK;
        ON_DEVICE(gpu,
                  cudaMemcpy2DAsync(to, n_bytes, from, from_step, n_bytes, n, cudaMemcpyDefault, (cudaStream_t)stream),
                  "%zu rows of %zu bytes cannot be copied from %p to %p", n, n_bytes, from, to);
}

static cudaError_t copy_each(cudaStream_t stream, size_t n, void *const *to, const void *const *from,
                             const size_t *n_bytes)
{
        cudaError_t error = cudaSuccess;
        for (size_t i = 0; i < n && error == cudaSuccess; i++)
                error = cudaMemcpyAsync(to[i], from[i], n_bytes[i], cudaMemcpyDefault, stream);
        return error;
}

static cudaError_t copy_all(cudaStream_t stream, size_t n, void *const *to, const void *const *from,
                            const size_t *n_bytes)
{
#if CUDART_VERSION >= 12080
        if (stream != NULL) { /* the default stream takes no batches */
                struct cudaMemcpyAttributes how;
                memset(&how, 0, sizeof how);
                how.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
                size_t first = 0;
#if CUDART_VERSION >= 13000
                return cudaMemcpyBatchAsync(to, from, n_bytes, n, &how, &first, 1, stream);
#else
                size_t failed = 0;
                return cudaMemcpyBatchAsync((void **)(uintptr_t)to, (void **)(uintptr_t)from,
                                            (size_t *)(uintptr_t)n_bytes, n, &how, &first, 1, &failed, stream);
#endif
        }
#endif
        return copy_each(stream, n, to, from, n_bytes);
}

static dci_status cuda_copy_batch(dci_gpu *gpu, void *stream, size_t n, void *const *to, const void *const *from,
                                  const size_t *n_bytes)
{
        if (n == 0)
                return DCI_OK;
        ON_DEVICE(gpu, copy_all((cudaStream_t)stream, n, to, from, n_bytes), "%zu copies on GPU %d cannot be queued", n,
                  gpu->device);
}

static dci_status cuda_fill(dci_gpu *gpu, void *stream, void *to, int byte, size_t n_bytes)
{
        if (n_bytes == 0)
                return DCI_OK;
        ON_DEVICE(gpu, cudaMemsetAsync(to, byte, n_bytes, (cudaStream_t)stream), "%zu bytes at %p cannot be filled",
                  n_bytes, to);
}

static dci_status cuda_notify(dci_gpu *gpu, void *stream, void (*fn)(void *arg), void *arg)
{
        ON_DEVICE(gpu, cudaLaunchHostFunc((cudaStream_t)stream, fn, arg),
                  "a call of the host cannot be queued on GPU %d", gpu->device);
}

/* --- events and graphs -------------------------------------------------------------------------------------------- */

static dci_status cuda_event_create(dci_gpu *gpu, bool timed, void **out)
{
        ON_DEVICE(gpu, cudaEventCreateWithFlags((cudaEvent_t *)out, timed ? cudaEventDefault : cudaEventDisableTiming),
                  "GPU %d gives no event", gpu->device);
}

static void cuda_event_destroy(dci_gpu *gpu, void *event)
{
        if (event != NULL)
                ON_DEVICE_QUIETLY(gpu, cudaEventDestroy((cudaEvent_t)event));
}

static dci_status cuda_event_record(dci_gpu *gpu, void *event, void *stream)
{
        ON_DEVICE(gpu, cudaEventRecord((cudaEvent_t)event, (cudaStream_t)stream),
                  "an event cannot be recorded on GPU %d", gpu->device);
}

static dci_status cuda_event_wait(dci_gpu *gpu, void *event)
{
        ON_DEVICE(gpu, cudaEventSynchronize((cudaEvent_t)event), "work on GPU %d failed", gpu->device);
}

static dci_status cuda_event_order(dci_gpu *gpu, void *stream, void *event)
{
        ON_DEVICE(gpu, cudaStreamWaitEvent((cudaStream_t)stream, (cudaEvent_t)event, 0),
                  "a stream of GPU %d cannot wait for an event", gpu->device);
}

static dci_status cuda_event_elapsed(dci_gpu *gpu, void *from, void *to, double *out_seconds)
{
        float milliseconds = 0;
        DCI_TRY(dci_gpu_cuda_status(cudaEventElapsedTime(&milliseconds, (cudaEvent_t)from, (cudaEvent_t)to),
                                    "the time between two events on GPU %d is not known", gpu->device));
        *out_seconds = milliseconds * 1e-3;
        return DCI_OK;
}

static dci_status cuda_capture_begin(dci_gpu *gpu, void *stream)
{
        ON_DEVICE(gpu, cudaStreamBeginCapture((cudaStream_t)stream, cudaStreamCaptureModeThreadLocal),
                  "a stream of GPU %d cannot be captured", gpu->device);
}

static cudaError_t end_capture(cudaStream_t stream, cudaGraphExec_t *out)
{
        cudaGraph_t graph = NULL;
        cudaError_t error = cudaStreamEndCapture(stream, &graph);
        if (error == cudaSuccess)
                error = cudaGraphInstantiateWithFlags(out, graph, 0);
        if (graph != NULL)
                (void)cudaGraphDestroy(graph);
        return error;
}

static dci_status cuda_capture_end(dci_gpu *gpu, void *stream, void **out_graph)
{
        ON_DEVICE(gpu, end_capture((cudaStream_t)stream, (cudaGraphExec_t *)out_graph),
                  "what was captured on GPU %d makes no graph", gpu->device);
}

static dci_status cuda_graph_launch(dci_gpu *gpu, void *graph, void *stream)
{
        ON_DEVICE(gpu, cudaGraphLaunch((cudaGraphExec_t)graph, (cudaStream_t)stream),
                  "a graph cannot be started on GPU %d", gpu->device);
}

static void cuda_graph_destroy(dci_gpu *gpu, void *graph)
{
        if (graph != NULL)
                ON_DEVICE_QUIETLY(gpu, cudaGraphExecDestroy((cudaGraphExec_t)graph));
}

static dci_status cuda_fits(dci_gpu *gpu, const dci_gpu_needs *needs)
{
        return dci_gpu_cuda_fits(dci_gpu_cuda_of(gpu), needs);
}

/* --- kernels ------------------------------------------------------------------------------------------------------ */

#define KERNEL(name)                                                                                                   \
        static dci_status cuda_##name(dci_gpu *gpu, void *stream, const dci_gpu_##name##_args *args)                   \
        {                                                                                                              \
                int before;                                                                                            \
                DCI_TRY(enter(gpu, &before));                                                                          \
                const dci_status status = dci_gpu_cuda_##name(gpu, stream, args);                                      \
                leave(gpu, before);                                                                                    \
                return status;                                                                                         \
        }
DCI_GPU_EACH_KERNEL(KERNEL)

#define ENTRY(name) .name = cuda_##name,

static const dci_gpu_ops ops = {
        .name = "cuda", DCI_GPU_EACH_OP(ENTRY) DCI_GPU_EACH_KERNEL(ENTRY) /* with their commas */
};

const dci_gpu_ops *dci_gpu_ops_cuda(void)
{
        return &ops;
}
