/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* In the place of CUDA's: what kernels in src/gpu use of it, on a CPU (emulator.h). */
#ifndef DCI_TESTS_EMULATED_CUDA_RUNTIME_H
#define DCI_TESTS_EMULATED_CUDA_RUNTIME_H

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <new>

#include "emulated/emulator.h"

#define __CUDA_ARCH__ 900
#define __device__
#define __host__
#define __global__
#define __grid_constant__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
/* Static shared memory of a source is in a section of its own: there it is found when a block begins. */
#define EMULATED_JOIN_(a, b) a##b
#define EMULATED_JOIN(a, b) EMULATED_JOIN_(a, b)
#define EMULATED_TEXT_(a) #a
#define EMULATED_TEXT(a) EMULATED_TEXT_(a)
#define EMULATED_SECTION EMULATED_JOIN(shared_, EMULATED_NAME)
#define __shared__ static __attribute__((section(EMULATED_TEXT(EMULATED_SECTION))))
extern "C" __attribute__((weak, visibility("hidden"))) unsigned char EMULATED_JOIN(__start_, EMULATED_SECTION)[];
extern "C" __attribute__((weak, visibility("hidden"))) unsigned char EMULATED_JOIN(__stop_, EMULATED_SECTION)[];

/* --- types --------------------------------------------------------------------------------------------------------- */

struct int2 {
        int x, y;
} __attribute__((aligned(8)));
struct uint2 {
        unsigned x, y;
} __attribute__((aligned(8)));
struct float2 {
        float x, y;
} __attribute__((aligned(8)));
struct int4 {
        int x, y, z, w;
} __attribute__((aligned(16)));
struct uint4 {
        unsigned x, y, z, w;
} __attribute__((aligned(16)));
struct float4 {
        float x, y, z, w;
} __attribute__((aligned(16)));
struct uint3 {
        unsigned x, y, z;
};
struct dim3 {
        unsigned x, y, z;
        constexpr dim3(unsigned nx = 1, unsigned ny = 1, unsigned nz = 1) : x(nx), y(ny), z(nz)
        {
        }
};

static inline int2 make_int2(int x, int y)
{
        return {x, y};
}
static inline uint2 make_uint2(unsigned x, unsigned y)
{
        return {x, y};
}
static inline float2 make_float2(float x, float y)
{
        return {x, y};
}
static inline int4 make_int4(int x, int y, int z, int w)
{
        return {x, y, z, w};
}
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
        return {x, y, z, w};
}
static inline float4 make_float4(float x, float y, float z, float w)
{
        return {x, y, z, w};
}

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

/* --- launches ------------------------------------------------------------------------------------------------------ */

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorInvalidConfiguration = 9 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
typedef void *cudaStream_t;
/* How a launch follows the one before: kernels run one after another here, whatever it says. */
enum cudaLaunchAttributeID { cudaLaunchAttributeProgrammaticStreamSerialization = 6 };
struct cudaLaunchAttribute {
        cudaLaunchAttributeID id;
        struct {
                int programmaticStreamSerializationAllowed;
        } val;
};

struct cudaLaunchConfig_t {
        dim3 gridDim, blockDim;
        size_t dynamicSmemBytes;
        cudaStream_t stream;
        cudaLaunchAttribute *attrs;
        unsigned numAttrs;
};

template <class... A>
static inline cudaError_t cudaFuncSetAttribute(void (*kernel)(A...), cudaFuncAttribute, int n_bytes)
{
        return (cudaError_t)emulated_allow(reinterpret_cast<const void *>(kernel), n_bytes);
}

/* Arguments as a graph keeps them: as bytes. */
template <class... A> struct emulated_args {
};
template <class F, class... R> struct emulated_args<F, R...> {
        F first;
        emulated_args<R...> rest;
};

template <class K, class... H> static inline void emulated_call(K kernel, const emulated_args<> &, const H &...have)
{
        kernel(have...);
}

template <class K, class F, class... R, class... H>
static inline void emulated_call(K kernel, const emulated_args<F, R...> &args, const H &...have)
{
        emulated_call(kernel, args.rest, have..., args.first);
}

static inline void emulated_put(emulated_args<> *)
{
}

template <class F, class... R, class A, class... B>
static inline void emulated_put(emulated_args<F, R...> *to, const A &first, const B &...rest)
{
        to->first = first;
        emulated_put(&to->rest, rest...);
}

template <class... A> struct emulated_kernel {
        void (*kernel)(A...);
        emulated_args<A...> args;

        static void run(const void *self)
        {
                const emulated_kernel *k = static_cast<const emulated_kernel *>(self);
                emulated_call(k->kernel, k->args);
        }
};

/* Static, as the section is the source's own. */
template <class... A, class... B>
static inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(A...), const B &...args)
{
        struct whole {
                emulated_launch launch;
                emulated_kernel<A...> call;
        };
        alignas(whole) unsigned char room[sizeof(whole)];
        whole *w = new (room) whole();
        const dim3 grid = config->gridDim, block = config->blockDim;
        w->launch = {{grid.x, grid.y, grid.z},
                     {block.x, block.y, block.z},
                     config->dynamicSmemBytes,
                     EMULATED_JOIN(__start_, EMULATED_SECTION),
                     EMULATED_JOIN(__stop_, EMULATED_SECTION),
                     emulated_kernel<A...>::run,
                     offsetof(whole, call)};
        w->call.kernel = kernel;
        emulated_put(&w->call.args, args...);
        const int error = emulated_check(reinterpret_cast<const void *>(kernel), &w->launch);
        return (cudaError_t)(error != 0 ? error : emulated_queue(config->stream, &w->launch, sizeof(whole)));
}

/* --- threads together ------------------------------------------------------------------------------------------------ */

#define EMULATED_LINE int line = __builtin_LINE()

static inline void __syncthreads(EMULATED_LINE)
{
        emulated_barrier(false, line);
}
static inline int __syncthreads_or(int word, EMULATED_LINE)
{
        return emulated_barrier(word != 0, line);
}
static inline int __syncthreads_and(int word, EMULATED_LINE)
{
        return !emulated_barrier(word == 0, line);
}
static inline unsigned __activemask()
{
        return emulated_active();
}
static inline void __threadfence()
{
}
static inline void __threadfence_block()
{
}

static inline emulated_meeting *emulated_meet_with(unsigned mask, emulated_what what, uint64_t value, int line)
{
        emulated_meeting *m = emulated_join(mask, what, line);
        const unsigned lane = emulated_lane();
        m->values[lane] = value;
        m->votes |= (unsigned)(value != 0) << lane;
        emulated_meet(m);
        return m;
}
static inline void __syncwarp(unsigned mask = 0xffffffffu, EMULATED_LINE)
{
        emulated_meet_with(mask, EMULATED_SYNC, 0, line);
}

template <class T> static inline T emulated_shuffle(unsigned mask, T value, unsigned from, int line)
{
        static_assert(sizeof(T) <= 8, "a shuffle moves 4 or 8 bytes");
        uint64_t bits = 0;
        memcpy(&bits, &value, sizeof value);
        const emulated_meeting *m = emulated_meet_with(mask, EMULATED_SHUFFLE, bits, line);
        if ((mask >> from & 1) == 0)
                emulated_fail("a shuffle at line %d reads from lane %u, which is not in mask %08x", line, from, mask);
        memcpy(&value, &m->values[from], sizeof value);
        return value;
}
template <class T> static inline T __shfl_sync(unsigned mask, T value, int from, int width = 32, EMULATED_LINE)
{
        const unsigned lane = emulated_lane();
        return emulated_shuffle(mask, value, (lane & ~(unsigned)(width - 1)) | (unsigned)(from & (width - 1)), line);
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T value, int with, int width = 32, EMULATED_LINE)
{
        const unsigned lane = emulated_lane(), from = lane ^ (unsigned)with;
        return emulated_shuffle(mask, value, from < (lane & ~(unsigned)(width - 1)) + (unsigned)width ? from : lane,
                                line);
}
template <class T> static inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, EMULATED_LINE)
{
        const unsigned lane = emulated_lane();
        return emulated_shuffle(mask, value, (lane & (unsigned)(width - 1)) >= by ? lane - by : lane, line);
}
template <class T> static inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, EMULATED_LINE)
{
        const unsigned lane = emulated_lane();
        return emulated_shuffle(mask, value, (lane & (unsigned)(width - 1)) + by < (unsigned)width ? lane + by : lane,
                                line);
}
static inline unsigned __ballot_sync(unsigned mask, int word, EMULATED_LINE)
{
        return emulated_meet_with(mask, EMULATED_VOTE, word != 0, line)->votes;
}
static inline int __any_sync(unsigned mask, int word, EMULATED_LINE)
{
        return emulated_meet_with(mask, EMULATED_VOTE, word != 0, line)->votes != 0;
}
static inline int __all_sync(unsigned mask, int word, EMULATED_LINE)
{
        return emulated_meet_with(mask, EMULATED_VOTE, word != 0, line)->votes == mask;
}

template <class T, class F> static inline T emulated_reduce(unsigned mask, T value, int line, F both)
{
        const emulated_meeting *m = emulated_meet_with(mask, EMULATED_REDUCE, (uint64_t)value, line);
        T all = value;
        for (unsigned lane = 0, own = emulated_lane(); lane < 32; lane++)
                if ((mask >> lane & 1) != 0 && lane != own)
                        all = both(all, (T)m->values[lane]);
        return all;
}
template <class T> static inline T __reduce_add_sync(unsigned mask, T value, EMULATED_LINE)
{
        return emulated_reduce(mask, value, line, [](T a, T b) { return (T)((unsigned)a + (unsigned)b); });
}
template <class T> static inline T __reduce_min_sync(unsigned mask, T value, EMULATED_LINE)
{
        return emulated_reduce(mask, value, line, [](T a, T b) { return a < b ? a : b; });
}
template <class T> static inline T __reduce_max_sync(unsigned mask, T value, EMULATED_LINE)
{
        return emulated_reduce(mask, value, line, [](T a, T b) { return a > b ? a : b; });
}
template <class T> static inline unsigned __match_any_sync(unsigned mask, T value, EMULATED_LINE)
{
        uint64_t bits = 0;
        unsigned same = 0;
        memcpy(&bits, &value, sizeof value);
        const emulated_meeting *m = emulated_meet_with(mask, EMULATED_MATCH, bits, line);
        for (unsigned lane = 0; lane < 32; lane++)
                same |= (unsigned)((mask >> lane & 1) != 0 && m->values[lane] == bits) << lane;
        return same;
}

/* --- memory: a thread is interrupted nowhere else but where it waits ------------------------------------------------------ */

template <class T> static inline T __ldg(const T *at)
{
        return *at;
}
template <class T> static inline T __ldca(const T *at)
{
        return *at;
}
template <class T> static inline T __ldcg(const T *at)
{
        return *at;
}
template <class T> static inline T __ldcs(const T *at)
{
        return *at;
}
template <class T> static inline void __stcg(T *at, T x)
{
        *at = x;
}
template <class T> static inline void __stcs(T *at, T x)
{
        *at = x;
}
template <class T, class U> static inline T atomicAdd(T *at, U x)
{
        const T before = *at;
        *at = (T)(before + (T)x);
        return before;
}
template <class T, class U> static inline T atomicSub(T *at, U x)
{
        const T before = *at;
        *at = (T)(before - (T)x);
        return before;
}
template <class T, class U> static inline T atomicMin(T *at, U x)
{
        const T before = *at;
        *at = (T)x < before ? (T)x : before;
        return before;
}
template <class T, class U> static inline T atomicMax(T *at, U x)
{
        const T before = *at;
        *at = (T)x > before ? (T)x : before;
        return before;
}
template <class T, class U> static inline T atomicOr(T *at, U x)
{
        const T before = *at;
        *at = before | (T)x;
        return before;
}
template <class T, class U> static inline T atomicAnd(T *at, U x)
{
        const T before = *at;
        *at = before & (T)x;
        return before;
}
template <class T, class U> static inline T atomicXor(T *at, U x)
{
        const T before = *at;
        *at = before ^ (T)x;
        return before;
}
template <class T, class U> static inline T atomicExch(T *at, U x)
{
        const T before = *at;
        *at = (T)x;
        return before;
}
template <class T, class U, class V> static inline T atomicCAS(T *at, U expected, V x)
{
        const T before = *at;
        *at = before == (T)expected ? (T)x : before;
        return before;
}

/* --- numbers ------------------------------------------------------------------------------------------------------------- */

template <class T> static constexpr T min(T a, T b)
{
        return b < a ? b : a;
}
template <class T> static constexpr T max(T a, T b)
{
        return a < b ? b : a;
}
template <class To, class From> static inline To emulated_bits(From x)
{
        static_assert(sizeof(To) == sizeof(From), "");
        To y;
        memcpy(&y, &x, sizeof y);
        return y;
}
static inline float __uint_as_float(unsigned x)
{
        return emulated_bits<float>(x);
}
static inline unsigned __float_as_uint(float x)
{
        return emulated_bits<unsigned>(x);
}
static inline float __int_as_float(int x)
{
        return emulated_bits<float>(x);
}
static inline int __float_as_int(float x)
{
        return emulated_bits<int>(x);
}
static inline int __double2hiint(double x)
{
        return (int)(emulated_bits<uint64_t>(x) >> 32);
}
static inline double __hiloint2double(int high, int low)
{
        return emulated_bits<double>((uint64_t)(uint32_t)high << 32 | (uint32_t)low);
}
static inline int __popc(unsigned x)
{
        return __builtin_popcount(x);
}
static inline int __popcll(unsigned long long x)
{
        return __builtin_popcountll(x);
}
static inline int __ffs(unsigned x)
{
        return __builtin_ffs((int)x);
}
static inline int __clz(int x)
{
        return x == 0 ? 32 : __builtin_clz((unsigned)x);
}
static inline int __clzll(long long x)
{
        return x == 0 ? 64 : __builtin_clzll((unsigned long long)x);
}
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned order)
{
        const uint64_t bytes = (uint64_t)b << 32 | a;
        unsigned out = 0;
        for (int i = 0; i < 4; i++)
                out |= (unsigned)(bytes >> (8 * (order >> 4 * i & 7)) & 0xff) << (8 * i);
        return out;
}
static inline unsigned __vcmpeq2(unsigned a, unsigned b)
{
        const unsigned x = a ^ b;
        return ((x & 0xffffu) == 0 ? 0xffffu : 0) | ((x & 0xffff0000u) == 0 ? 0xffff0000u : 0);
}
/* As on a GPU: what is no number is always the same, whichever operand was none. */
static inline float emulated_number(float x)
{
        const uint32_t bits = 0x7fffffffu;
        if (x != x)
                memcpy(&x, &bits, sizeof x);
        return x;
}

static inline float __fadd_rn(float a, float b)
{
        return emulated_number(a + b);
}
static inline float __fsub_rn(float a, float b)
{
        return emulated_number(a - b);
}
static inline float __fmul_rn(float a, float b)
{
        return emulated_number(a * b);
}
static inline float __fdiv_rn(float a, float b)
{
        return emulated_number(a / b);
}
static inline float __fdividef(float a, float b)
{
        return a / b;
}
static inline float __fsqrt_rn(float a)
{
        return sqrtf(a);
}
static inline float __fmaf_rn(float a, float b, float c)
{
        return emulated_number(fmaf(a, b, c));
}
/* The product of two floats is a double; of the sum's error only the sign is needed (Knuth's two-sum). */
static inline float __fmaf_rz(float a, float b, float c)
{
        const double product = (double)a * b, sum = product + c;
        const double part = sum - product, rest = (product - (sum - part)) + (c - part);
        float near = (float)sum;
        const double off = (double)near - sum; /* exact */
        const bool beyond = sum > 0 ? off > 0 || (off == 0 && rest < 0) : off < 0 || (off == 0 && rest > 0);
        return beyond && isfinite(sum) ? nextafterf(near, 0.0f) : near;
}
static inline double __dsqrt_rn(double a)
{
        return sqrt(a);
}
static inline double __dadd_rn(double a, double b)
{
        return a + b;
}
static inline double __dmul_rn(double a, double b)
{
        return a * b;
}
static inline double __ddiv_rn(double a, double b)
{
        return a / b;
}
static inline float __int2float_rn(int x)
{
        return (float)x;
}
/* The lower half of high:low, turned right. */
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift)
{
        return (unsigned)((((uint64_t)high << 32) | low) >> (shift & 31));
}
static inline float __double2float_rn(double x)
{
        return (float)x;
}
/* As PTX has it: what is too large becomes the largest number, what is no number 0. */
static inline int __float2int_rn(float x)
{
        if (x != x)
                return 0;
        return x >= 2147483648.0f ? INT32_MAX : x < -2147483648.0f ? INT32_MIN : (int)rintf(x);
}

#endif
