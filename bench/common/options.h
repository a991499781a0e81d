/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* A table-driven command line: "--name value" or "--name=value", each option at most once. */
#ifndef DCI_BENCH_COMMON_OPTIONS_H
#define DCI_BENCH_COMMON_OPTIONS_H

#include "bench/common/bench.h"

enum {
        OPTION_TEXT,    /* const char * */
        OPTION_FLAG,    /* bool, takes no value */
        OPTION_SIZE,    /* size_t in [min, max] */
        OPTION_CHOICE,  /* int32_t, one of `choices` */
        OPTION_CHOICES, /* int32_t, some of `choices`, comma separated: the bits 1 << value */
        OPTION_SHARE,   /* double above 0 and at most 1 */
        OPTION_SHARES,  /* bench_shares, comma separated */
        OPTION_SIZES,   /* bench_sizes in [min, max], comma separated */
        OPTION_NUMBER,  /* double in [min, max] */
        OPTION_FACTORS  /* bench_shares in [min, max], or the word "all", which is infinity; comma separated */
};

typedef struct bench_choice {
        const char *name; /* NULL ends the list */
        int32_t value;
} bench_choice;

/* A list of numbers: shares are above 0 and at most 1. */
#define BENCH_MAX_SHARES 32
typedef struct bench_shares {
        size_t n;
        double values[BENCH_MAX_SHARES];
} bench_shares;
typedef struct bench_sizes {
        size_t n;
        size_t values[BENCH_MAX_SHARES];
} bench_sizes;

typedef struct bench_option {
        const char *name; /* without the dashes */
        int kind;         /* OPTION_* */
        void *value;      /* where the result goes; unchanged when the option is absent */
        size_t min, max;
        const bench_choice *choices;
} bench_option;

/* Parses argv[1 .. argc). *out_help is set by --help or -h, and parsing stops there. Errors name the option. */
dci_status bench_parse_options(int argc, char **argv, const bench_option *options, size_t n_options, bool *out_help);

#endif
