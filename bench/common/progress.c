/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/common/bench.h"

#include <stdio.h>
#include <unistd.h>

/* Seconds between two updates: few enough to cost nothing. */
#define SECONDS_BETWEEN_LINES 0.1

void bench_progress_begin(bench_progress *progress, const char *label)
{
        progress->label = isatty(STDERR_FILENO) ? label : NULL;
        /* Work that ends within the first interval shows nothing. */
        progress->shown_at = bench_seconds();
}

void bench_progress_step(bench_progress *progress, size_t done, size_t total)
{
        if (progress->label == NULL)
                return;
        double now = bench_seconds();
        if (now - progress->shown_at < SECONDS_BETWEEN_LINES)
                return;
        progress->shown_at = now;
        fprintf(stderr, "\r%s %3.0f %%\033[K", progress->label, total > 0 ? 100.0 * (double)done / (double)total : 0.0);
        fflush(stderr);
}

static int32_t on_progress(void *ctx, size_t done, size_t total)
{
        bench_progress_step(ctx, done, total);
        return 0;
}

dci_progress bench_progress_callback(bench_progress *progress)
{
        dci_progress callback = {progress, progress->label != NULL ? on_progress : NULL};
        return callback;
}

void bench_progress_end(bench_progress *progress)
{
        if (progress->label != NULL) {
                fprintf(stderr, "\r\033[K");
                fflush(stderr);
        }
        progress->label = NULL;
}
