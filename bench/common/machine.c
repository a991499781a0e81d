/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/common/bench.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

/* Linux names the CPU in /proc/cpuinfo; other systems, and CPUs without a name there, report the architecture. */
static void cpu_name(char *out, size_t size)
{
        struct utsname system;
        snprintf(out, size, "%s", uname(&system) == 0 ? system.machine : "unknown");
        FILE *file = fopen("/proc/cpuinfo", "r");
        if (file == NULL)
                return;
        char line[256];
        while (fgets(line, sizeof line, file) != NULL) {
                char *value = strchr(line, ':');
                if (strncmp(line, "model name", 10) != 0 || value == NULL)
                        continue;
                value += strspn(value, ": \t");
                value[strcspn(value, "\n")] = '\0';
                snprintf(out, size, "%s", value);
                break;
        }
        fclose(file);
}

void bench_machine_describe(const dci_context *context, bench_machine *out_machine)
{
        memset(out_machine, 0, sizeof *out_machine);
        cpu_name(out_machine->cpu, sizeof out_machine->cpu);
        out_machine->cores = sysconf(_SC_NPROCESSORS_ONLN);
        out_machine->isa = dci_isa_name(dci_context_isa(context));
#if defined(__clang__)
        out_machine->compiler = "clang " __clang_version__;
#elif defined(__GNUC__)
        out_machine->compiler = "gcc " __VERSION__;
#else
        out_machine->compiler = "unknown";
#endif
        out_machine->library_version = dci_version();
        time_t now = time(NULL);
        struct tm utc;
        if (gmtime_r(&now, &utc) != NULL)
                strftime(out_machine->date, sizeof out_machine->date, "%Y-%m-%dT%H:%M:%SZ", &utc);
}
