/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/common/bench.h"

#include <stdio.h>
#include <string.h>

/* A new subcommand is one line here and one file. */
static const bench_command commands[] = {
        {"ann", "build time, queries per second, recall and attention share of each index kind", bench_ann},
        {"runbook", "a stream of insertions, removals and searches in the format of big-ann-benchmarks", bench_runbook},
        {"latency", "how long one writer and several readers wait for each other", bench_latency_command},
        {"growth", "how build and query time grow with the number of rows", bench_growth},
        {"kmeans", "time and objective of k-means, or the attention that pages of keys catch", bench_kmeans},
        {"kv", "what presets of a KV cache attend to on traces: share, error, bytes and time", bench_kv},
        {"papers", "what papers on retrieval for attention report, on traces, by their definitions", bench_papers},
        {"layers", "what a step of a whole model costs: plans and attention, layer by layer", bench_layers},
        {"verify", "a saved index: everything that must hold of it, and its recall on its own rows", bench_verify},
        {"gpu", "what attention and fetching on a GPU take, next to the limits of bus and memory", bench_gpu},
};

static void print_help(void)
{
        printf("usage: dci-bench COMMAND [options]\n"
               "\n"
               "Measures dci on data of yours.\n"
               "\n"
               "commands:\n");
        for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
                printf("  %-8s %s\n", commands[i].name, commands[i].summary);
        printf("\n"
               "options:\n"
               "  --help     this text; 'dci-bench COMMAND --help' explains a command\n"
               "  --version  the library's version\n"
               "\n"
               "exit codes: 0 done, 1 failed (memory, a write, a self-check), 2 usage error or bad input\n");
}

/* What was printed is only done when it has reached its file: a full disk is a failure. */
static int finish(int code)
{
        if ((fflush(stdout) != 0 || ferror(stdout)) && code == BENCH_EXIT_OK) {
                fprintf(stderr, "dci-bench: the output could not be written\n");
                return BENCH_EXIT_FAILED;
        }
        return code;
}

int main(int argc, char **argv)
{
        if (argc < 2) {
                fprintf(stderr, "dci-bench: a command is missing; try 'dci-bench --help'\n");
                return BENCH_EXIT_INPUT;
        }
        if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
                print_help();
                return finish(BENCH_EXIT_OK);
        }
        if (strcmp(argv[1], "--version") == 0) {
                printf("dci-bench %s\n", dci_version());
                return finish(BENCH_EXIT_OK);
        }
        for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
                if (strcmp(argv[1], commands[i].name) == 0)
                        return finish(commands[i].run(argc - 1, argv + 1));
        fprintf(stderr, "dci-bench: unknown command '%s'; try 'dci-bench --help'\n", argv[1]);
        return BENCH_EXIT_INPUT;
}
