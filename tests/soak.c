/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Everything at once for as long as is asked:
 *
 *   soak [--seconds N | --minutes N] [--seed N]        20 seconds by default; scripts/soak builds and runs it
 *
 * Round after round makes three indexes with a writer each and readers on all of them, and two caches with sequences of several threads. Rows are
 * those of a fixed universe, so that every score that comes back is held, to the bit, against a table, and what was there (or not) throughout a
 * search must have been found (or not). Sequences are forked, saved and loaded under way, and must go on as one that was not. After each round
 * all memory has come back; at the end the process is no larger than after the first rounds, with as many descriptors and threads.
 */
#include "tests/soak.h"

#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SLACK_BYTES ((size_t)256 << 10) /* of malloc's arenas, which belong to threads that come and go */
#define SLACK_RESIDENT ((size_t)24 << 20)

static double seconds_now(void)
{
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

bool soak_wrong(soak_part *p, const char *format, ...)
{
        va_list arguments;
        if (atomic_fetch_add(&p->world->n_wrong, 1) == 0) {
                va_start(arguments, format);
                vsnprintf(p->world->complaint, sizeof p->world->complaint, format, arguments);
                va_end(arguments);
        }
        return false;
}

bool soak_ok(soak_part *p, dci_status status, const char *call)
{
        return status == DCI_OK || soak_wrong(p, "%s: %s: %s", call, dci_status_name(status), dci_last_error());
}

bool soak_goes_on(const soak_part *p)
{
        return atomic_load(&p->world->n_wrong) == 0 && seconds_now() < p->world->until;
}

/* --- rounds ----------------------------------------------------------------------------------------------------------------------------- */

static dci_context *make_context(soak_world *w, size_t round)
{
        dci_context_config config;
        dci_context *context = NULL;
        dci_context_config_init(&config, sizeof config);
        config.allocator = test_allocator(&w->memory);
        if (round % 2 == 0)
                config.executor_kind = DCI_EXECUTOR_PTHREADS;
        config.n_threads = 2;
        return dci_context_create(&config, &context) == DCI_OK ? context : NULL;
}

static bool run_round(soak_world *w, size_t round, double until)
{
        static const struct {
                void *(*run)(void *arg);
                size_t n;
        } parts_of[] = {{soak_write, SOAK_KINDS}, {soak_read, SOAK_READERS}, {soak_decode, SOAK_DECODERS}};
        soak_part parts[SOAK_KINDS + SOAK_READERS + SOAK_DECODERS];
        size_t n = 0;
        dci_context *context = make_context(w, round);
        bool good = context != NULL && soak_make(w, context);
        dci_context_destroy(context); /* the objects hold it */
        w->until = until;
        for (size_t k = 0; k < COUNT(parts_of) && good; k++)
                for (size_t i = 0; i < parts_of[k].n && good; i++, n++) {
                        parts[n] = (soak_part){.world = w, .number = i};
                        dci_rng_seed(&parts[n].rng, w->seed + 1000 * round + n);
                        good = pthread_create(&parts[n].thread, NULL, parts_of[k].run, &parts[n]) == 0;
                }
        for (size_t i = 0; i < n; i++) {
                pthread_join(parts[i].thread, NULL);
                for (size_t c = 0; c < SOAK_COUNTS; c++)
                        w->counts[c] += parts[i].counts[c];
        }
        soak_unmake(w);
        const size_t left = atomic_load(&w->memory.live_bytes);
        if (left != 0)
                snprintf(w->complaint, sizeof w->complaint, "round %zu leaves %zu bytes behind", round, left);
        return good && left == 0 && atomic_load(&w->n_wrong) == 0;
}

/* --- what the process has --------------------------------------------------------------------------------------------------------------- */

typedef struct footprint {
        size_t heap, resident, descriptors, threads;
} footprint;

static footprint footprint_now(void)
{
        char line[128] = "", *resident = line;
        FILE *file = fopen("/proc/self/statm", "r");
        if (file != NULL) {
                if (fgets(line, sizeof line, file) != NULL)
                        strtoul(line, &resident, 10); /* the first number is the size */
                fclose(file);
        }
        return (footprint){.heap = mallinfo2().uordblks,
                           .resident = strtoul(resident, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE),
                           .descriptors = test_entries("/proc/self/fd"),
                           .threads = test_entries("/proc/self/task")};
}

/* A sanitizer keeps what was freed, to see it being used. */
static bool same(const footprint *before, const footprint *after)
{
        return (UNDER_SANITIZER ||
                (after->heap <= before->heap + SLACK_BYTES && after->resident <= before->resident + SLACK_RESIDENT)) &&
               after->descriptors == before->descriptors && after->threads == before->threads;
}

static double more(size_t before, size_t after, double unit)
{
        return ((double)after - (double)before) / unit;
}

static int usage(void)
{
        fputs("usage: soak [--seconds N | --minutes N] [--seed N]\n", stderr);
        return 2;
}

int main(int argc, char **argv)
{
        static soak_world w;
        double seconds = 20;
        w.seed = 1;
        for (int i = 1; i < argc; i += 2) {
                const double value = i + 1 < argc ? strtod(argv[i + 1], NULL) : 0;
                if (value <= 0)
                        return usage();
                if (strcmp(argv[i], "--seconds") == 0 || strcmp(argv[i], "--minutes") == 0)
                        seconds = value * (argv[i][2] == 'm' ? 60 : 1);
                else if (strcmp(argv[i], "--seed") == 0)
                        w.seed = (uint64_t)value;
                else
                        return usage();
        }
        if (!soak_prepare(&w))
                return 1;
        /* Two rounds of each executor come first: what they leave in the process, such as OpenMP's threads, stays. */
        const double began = seconds_now(), end = began + seconds;
        double length = seconds / 8;
        length = length < 0.5 ? 0.5 : length > 20 ? 20 : length;
        footprint before = {0}, after = {0};
        size_t round = 0;
        bool good = true;
        for (; good && (round < 5 || seconds_now() < end); round++) {
                good = run_round(&w, round, seconds_now() + length);
                after = footprint_now();
                if (round == 3)
                        before = after;
        }
        soak_forget(&w);
        if (good && !same(&before, &after)) {
                snprintf(w.complaint, sizeof w.complaint, "the process has grown");
                good = false;
        }
        printf("soak: %.0f s, %zu rounds; %zu searches (%zu exact), %zu ranges, %zu adds, %zu removes, %zu files, %zu "
               "tunes; "
               "%zu sequences, %zu tokens, %zu forks, %zu loads; heap %+.1f KiB, resident %+.1f MiB, descriptors "
               "%+.0f, "
               "threads %+.0f: %s%s\n",
               seconds_now() - began, round, w.counts[SOAK_SEARCHES], w.counts[SOAK_EXACT], w.counts[SOAK_RANGES],
               w.counts[SOAK_ADDS], w.counts[SOAK_REMOVES], w.counts[SOAK_FILES], w.counts[SOAK_TUNES],
               w.counts[SOAK_SEQUENCES], w.counts[SOAK_TOKENS], w.counts[SOAK_FORKS], w.counts[SOAK_LOADS],
               more(before.heap, after.heap, 1024), more(before.resident, after.resident, 1 << 20),
               more(before.descriptors, after.descriptors, 1), more(before.threads, after.threads, 1),
               good ? "all as the model says" : "WRONG: ", w.complaint);
        return good ? 0 : 1;
}
