/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/common/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int bench_report_error(const char *command, dci_status status)
{
        fprintf(stderr, "dci-bench %s: %s\n", command, dci_last_error());
        switch (status) {
        case BENCH_ERR_RUN:
        case DCI_ERR_MEMORY:
        case DCI_ERR_FULL:
        case DCI_ERR_CANCELLED:
        case DCI_ERR_BUSY:
        case DCI_ERR_DEVICE:
                return BENCH_EXIT_FAILED;
        default:
                return BENCH_EXIT_INPUT;
        }
}

dci_status bench_fail_about(const char *what, dci_status status)
{
        /* The sentence lives in the buffer that dci_fail is about to write. */
        char sentence[1024];
        snprintf(sentence, sizeof sentence, "%s", dci_last_error());
        return dci_fail(status, "%s: %s", what, sentence);
}

dci_status bench_fail_more(dci_status status, const char *more)
{
        char sentence[1024];
        snprintf(sentence, sizeof sentence, "%s", dci_last_error());
        return dci_fail(status, "%s%s", sentence, more);
}

double bench_seconds(void)
{
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int compare_doubles(const void *a, const void *b)
{
        double x = *(const double *)a, y = *(const double *)b;
        return (x > y) - (x < y);
}

bench_spread bench_spread_of(double *values, size_t n)
{
        qsort(values, n, sizeof *values, compare_doubles);
        bench_spread spread = {0.5 * (values[(n - 1) / 2] + values[n / 2]), values[0], values[n - 1]};
        return spread;
}

bench_latency bench_latency_of(double *seconds, size_t n)
{
        bench_spread spread = bench_spread_of(seconds, n);
        bench_latency latency = {1e6 * spread.median, 1e6 * seconds[(99 * n + 99) / 100 - 1], 1e6 * spread.max};
        return latency;
}

const char *bench_base_name(const char *path)
{
        /* A folder's name may end with separators: the name is what stands before them. */
        const char *last = path;
        for (const char *p = path; *p != '\0'; p++)
                if (*p == '/' && p[1] != '/' && p[1] != '\0')
                        last = p + 1;
        return last;
}

void bench_format_count(char *out, size_t size, double value)
{
        char digits[64];
        if (value < 0) {
                snprintf(out, size, "-");
                return;
        }
        snprintf(digits, sizeof digits, "%.0f", value);
        size_t n = strlen(digits), used = 0;
        for (size_t i = 0; i < n && used + 2 < size; i++) {
                if (i > 0 && (n - i) % 3 == 0)
                        out[used++] = ',';
                out[used++] = digits[i];
        }
        out[used] = '\0';
}

void bench_format_bytes(char *out, size_t size, size_t n_bytes)
{
        static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
        double value = (double)n_bytes;
        size_t unit = 0;
        while (value >= 1024 && unit + 1 < sizeof units / sizeof *units) {
                value /= 1024;
                unit++;
        }
        snprintf(out, size, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
}

/* Bytes of the character that begins here, in UTF-8; 0 if none does. */
static size_t character_bytes(const unsigned char *p)
{
        const size_t n = *p < 0x80                 ? 1
                         : *p >= 0xc2 && *p < 0xe0 ? 2
                         : *p >= 0xe0 && *p < 0xf0 ? 3
                         : *p >= 0xf0 && *p < 0xf5 ? 4
                                                   : 0;
        for (size_t i = 1; i < n; i++)
                if ((p[i] & 0xc0) != 0x80)
                        return 0;
        const bool odd = (*p == 0xe0 && p[1] < 0xa0) || (*p == 0xed && p[1] > 0x9f) || (*p == 0xf0 && p[1] < 0x90) ||
                         (*p == 0xf4 && p[1] > 0x8f);
        return odd ? 0 : n;
}

void bench_name(char *out, size_t size, const char *text)
{
        snprintf(out, size, "%s", text);
        for (unsigned char *p = (unsigned char *)out; *p != '\0';) {
                const size_t n = character_bytes(p);
                if (n == 0)
                        *p = '?';
                p += n == 0 ? 1 : n;
        }
}
