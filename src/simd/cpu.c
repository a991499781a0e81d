/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Detection: what the CPU offers and the operating system saves on a context switch. */
#define _GNU_SOURCE /* syscall */
#include "core/internal.h"

#include <stdlib.h>
#include <string.h>

#include "simd/cpu.h"

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

static uint64_t read_xcr0(void)
{
        uint32_t low, high;
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        return ((uint64_t)high << 32) | low;
}

static bool has(uint32_t word, unsigned bit)
{
        return (word >> bit & 1) != 0;
}

/* The highest level of AVX2, AVX512, AMX whose instructions exist and whose registers the system saves. */
static dci_isa best_x86(void)
{
        uint32_t a, b, c, d;
        if (!__get_cpuid(1, &a, &b, &c, &d))
                return DCI_ISA_SCALAR;
        bool fma = has(c, 12), osxsave = has(c, 27), avx = has(c, 28), f16c = has(c, 29);
        if (!(fma && osxsave && avx && f16c))
                return DCI_ISA_SCALAR;
        uint64_t xcr0 = read_xcr0();
        if ((xcr0 & 0x6) != 0x6) /* xmm, ymm */
                return DCI_ISA_SCALAR;
        if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !has(b, 5))
                return DCI_ISA_SCALAR;
        uint32_t max_subleaf = a, b7 = b, d7 = d;
        bool avx512 = has(b7, 16) && has(b7, 17) && has(b7, 30) && has(b7, 31); /* F, DQ, BW, VL */
        bool bmi = has(b7, 3) && has(b7, 8);
        if (!avx512 || !bmi || (xcr0 & 0xe6) != 0xe6) /* and opmask, upper halves, zmm16-31 */
                return DCI_ISA_AVX2;
        bool bf16 = max_subleaf >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && has(a, 5);
        bool amx = has(d7, 22) && has(d7, 24);            /* AMX-BF16, AMX-TILE */
        if (!amx || !bf16 || (xcr0 & 0x60000) != 0x60000) /* tile configuration and data */
                return DCI_ISA_AVX512;
        return DCI_ISA_AMX;
}

bool dci_cpu_has_vnni(void)
{
        uint32_t a, b, c, d;
        return __get_cpuid_count(7, 0, &a, &b, &c, &d) && has(c, 11);
}

bool dci_cpu_has_amx_int8(void)
{
        uint32_t a, b, c, d;
        return __get_cpuid_count(7, 0, &a, &b, &c, &d) && has(d, 25);
}

#if defined(__linux__) && defined(SYS_arch_prctl)
#define TILE_DATA 18 /* state component */
static long tile_call(int request, unsigned long argument)
{
        return syscall(SYS_arch_prctl, request, argument);
}
#endif

/* Whether the system would let a process use tiles. */
static bool tiles_exist(void)
{
#ifdef TILE_DATA
        const int get_supported = 0x1021;
        uint64_t supported = 0;
        return tile_call(get_supported, (unsigned long)(uintptr_t)&supported) == 0 && (supported >> TILE_DATA & 1) != 0;
#else
        return false;
#endif
}

/* Linux saves tile registers only for processes that asked. The permission covers all threads and stays. */
static bool permit_tiles(void)
{
#ifdef TILE_DATA
        const int request_permission = 0x1023;
        return tile_call(request_permission, TILE_DATA) == 0;
#else
        return false;
#endif
}
#endif

#if defined(__aarch64__)
bool dci_cpu_has_dot(void)
{
#if defined(__linux__)
        return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#elif defined(__APPLE__)
        return true; /* every 64-bit Mac */
#else
        return false;
#endif
}
#endif

static dci_isa best_isa(void)
{
#if defined(__x86_64__)
        return best_x86();
#elif defined(__aarch64__)
        return DCI_ISA_NEON;
#else
        return DCI_ISA_SCALAR;
#endif
}

int32_t dci_isa_available(dci_isa isa)
{
        if (isa == DCI_ISA_AUTO || isa == DCI_ISA_SCALAR)
                return 1;
        dci_isa best = best_isa();
        if (isa == DCI_ISA_NEON || best == DCI_ISA_NEON)
                return isa == best;
        if (isa < DCI_ISA_SCALAR || isa > best)
                return 0;
#if defined(__x86_64__)
        if (isa == DCI_ISA_AMX)
                return tiles_exist();
#endif
        return 1;
}

static const char *const isa_names[] = {"auto", "scalar", "avx2", "avx512", "amx", "neon"};
#define N_ISAS ((dci_isa)(sizeof isa_names / sizeof isa_names[0]))

const char *dci_isa_name(dci_isa isa)
{
        return isa >= 0 && isa < N_ISAS ? isa_names[isa] : "unknown";
}

dci_status dci_isa_select(dci_isa wish, dci_isa *out_isa)
{
        const char *named_by = "the config";
        if (wish < 0 || wish >= N_ISAS)
                return dci_fail(DCI_ERR_INVALID, "unknown isa %d", (int)wish);
        const char *environment = getenv("DCI_ISA");
        if (wish == DCI_ISA_AUTO && environment != NULL && environment[0] != '\0') {
                named_by = "DCI_ISA";
                for (dci_isa isa = DCI_ISA_SCALAR; isa < N_ISAS; isa++)
                        if (strcmp(environment, isa_names[isa]) == 0)
                                wish = isa;
                if (wish == DCI_ISA_AUTO)
                        return dci_fail(DCI_ERR_INVALID, "DCI_ISA is '%s', allowed are scalar, avx2, avx512, amx, neon",
                                        environment);
        }
        dci_isa best = best_isa();
        if (!dci_isa_available(best)) /* the CPU has tiles, the system does not save them */
                best = DCI_ISA_AVX512;
        if (wish != DCI_ISA_AUTO && !dci_isa_available(wish))
                return dci_fail(DCI_ERR_UNSUPPORTED, "%s asks for %s, this machine runs at most %s", named_by,
                                isa_names[wish], isa_names[best]);
        *out_isa = wish == DCI_ISA_AUTO ? best : wish;
#if defined(__x86_64__)
        if (*out_isa == DCI_ISA_AMX && !permit_tiles()) {
                if (wish == DCI_ISA_AMX)
                        return dci_fail(DCI_ERR_UNSUPPORTED, "%s asks for amx, the system refused the permission",
                                        named_by);
                *out_isa = DCI_ISA_AVX512;
        }
#endif
        return DCI_OK;
}
