/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/common/options.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first n characters as an integer in the option's range. */
static bool read_size(const bench_option *option, const char *text, size_t n, size_t *out)
{
        size_t value = 0;
        bool valid = n > 0;
        for (const char *p = text; valid && p < text + n; p++) {
                valid = *p >= '0' && *p <= '9' && dci_mul(value, 10, &value) &&
                        dci_add(value, (size_t)(*p - '0'), &value);
        }
        *out = value;
        return valid && value >= option->min && value <= option->max;
}

static dci_status parse_size(const bench_option *option, const char *text)
{
        size_t value;
        if (!read_size(option, text, strlen(text), &value))
                return dci_fail(DCI_ERR_INVALID, "--%s wants an integer of %zu to %zu, not '%s'", option->name,
                                option->min, option->max, text);
        *(size_t *)option->value = value;
        return DCI_OK;
}

static dci_status parse_sizes(const bench_option *option, const char *text)
{
        bench_sizes sizes = {0};
        bool valid = true;
        const char *item = text;
        do {
                size_t n = strcspn(item, ",");
                valid = sizes.n < BENCH_MAX_SHARES && read_size(option, item, n, &sizes.values[sizes.n]);
                sizes.n++;
                item += n;
        } while (valid && *item++ == ',');
        if (!valid)
                return dci_fail(DCI_ERR_INVALID,
                                "--%s wants integers of %zu to %zu, comma separated and at most %d, not '%s'",
                                option->name, option->min, option->max, BENCH_MAX_SHARES, text);
        *(bench_sizes *)option->value = sizes;
        return DCI_OK;
}

static const bench_choice *find_choice(const bench_option *option, const char *text, size_t n)
{
        const bench_choice *choice = option->choices;
        while (choice->name != NULL && (strlen(choice->name) != n || strncmp(choice->name, text, n) != 0))
                choice++;
        return choice->name != NULL ? choice : NULL;
}

/* One name, or several with commas between them. */
static dci_status parse_choices(const bench_option *option, const char *text)
{
        const bool several = option->kind == OPTION_CHOICES;
        const bench_choice *choice;
        int32_t chosen = 0;
        const char *item = text;
        do {
                size_t n = several ? strcspn(item, ",") : strlen(item);
                choice = find_choice(option, item, n);
                if (choice != NULL)
                        chosen |= several ? 1 << choice->value : choice->value;
                item += n;
        } while (choice != NULL && *item++ == ',');
        if (choice != NULL) {
                *(int32_t *)option->value = chosen;
                return DCI_OK;
        }
        char names[256] = "";
        size_t used = 0;
        for (choice = option->choices; choice->name != NULL; choice++) {
                int n = snprintf(names + used, sizeof names - used, "%s%s", used > 0 ? ", " : "", choice->name);
                if (n > 0 && (size_t)n < sizeof names - used)
                        used += (size_t)n;
        }
        return dci_fail(DCI_ERR_INVALID, "--%s wants one %s%s, not '%s'", option->name, several ? "or more of " : "of ",
                        names, text);
}

/* strtod alone would take blanks, signs, hexadecimal digits, "inf" and "nan", too. */
static bool parse_double(const char *text, size_t n, double *out)
{
        char *end;
        if ((*text < '0' || *text > '9') && *text != '.')
                return false;
        *out = strtod(text, &end);
        return strspn(text, "0123456789.eE+-") == n && end == text + n;
}

static bool parse_share(const char *text, size_t n, double *out)
{
        return parse_double(text, n, out) && *out > 0 && *out <= 1;
}

static dci_status parse_number(const bench_option *option, const char *text)
{
        double number;
        if (!parse_double(text, strlen(text), &number) || number < (double)option->min || number > (double)option->max)
                return dci_fail(DCI_ERR_INVALID, "--%s wants a number of %zu to %zu, not '%s'", option->name,
                                option->min, option->max, text);
        *(double *)option->value = number;
        return DCI_OK;
}

static dci_status parse_one_share(const bench_option *option, const char *text)
{
        double share;
        if (!parse_share(text, strlen(text), &share))
                return dci_fail(DCI_ERR_INVALID, "--%s wants a number above 0 and at most 1, not '%s'", option->name,
                                text);
        *(double *)option->value = share;
        return DCI_OK;
}

static bool parse_factor(const bench_option *option, const char *text, size_t n, double *out)
{
        if (n == 3 && strncmp(text, "all", n) == 0) {
                *out = (double)INFINITY;
                return true;
        }
        return parse_double(text, n, out) && *out >= (double)option->min && *out <= (double)option->max;
}

/* Shares or factors. */
static dci_status parse_list(const bench_option *option, const char *text)
{
        const bool factors = option->kind == OPTION_FACTORS;
        char wanted[64] = "above 0 and at most 1";
        bench_shares list = {0};
        bool valid = true;
        const char *item = text;
        do {
                size_t n = strcspn(item, ",");
                valid = list.n < BENCH_MAX_SHARES && (factors ? parse_factor(option, item, n, &list.values[list.n])
                                                              : parse_share(item, n, &list.values[list.n]));
                list.n++;
                item += n;
        } while (valid && *item++ == ',');
        if (factors)
                snprintf(wanted, sizeof wanted, "of %zu to %zu, or all", option->min, option->max);
        if (!valid)
                return dci_fail(DCI_ERR_INVALID, "--%s wants numbers %s, comma separated and at most %d, not '%s'",
                                option->name, wanted, BENCH_MAX_SHARES, text);
        *(bench_shares *)option->value = list;
        return DCI_OK;
}

static dci_status parse_value(const bench_option *option, const char *text)
{
        switch (option->kind) {
        case OPTION_SIZE:
                return parse_size(option, text);
        case OPTION_CHOICE:
        case OPTION_CHOICES:
                return parse_choices(option, text);
        case OPTION_SHARE:
                return parse_one_share(option, text);
        case OPTION_SHARES:
        case OPTION_FACTORS:
                return parse_list(option, text);
        case OPTION_SIZES:
                return parse_sizes(option, text);
        case OPTION_NUMBER:
                return parse_number(option, text);
        default:
                if (*text == '\0')
                        return dci_fail(DCI_ERR_INVALID, "--%s wants a value, not an empty one", option->name);
                *(const char **)option->value = text;
                return DCI_OK;
        }
}

/* The table's entry for "--name" or "--name=value". */
static const bench_option *find(const bench_option *options, size_t n_options, const char *argument)
{
        size_t n = strcspn(argument, "=");
        for (size_t i = 0; i < n_options; i++)
                if (strlen(options[i].name) + 2 == n && strncmp(argument, "--", 2) == 0 &&
                    strncmp(argument + 2, options[i].name, n - 2) == 0)
                        return &options[i];
        return NULL;
}

dci_status bench_parse_options(int argc, char **argv, const bench_option *options, size_t n_options, bool *out_help)
{
        uint64_t seen = 0; /* one bit per option */
        *out_help = false;
        for (int i = 1; i < argc; i++) {
                if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
                        *out_help = true;
                        return DCI_OK;
                }
                const bench_option *found = find(options, n_options, argv[i]);
                if (found == NULL)
                        return dci_fail(DCI_ERR_INVALID, "unknown option '%s'", argv[i]);
                uint64_t bit = (uint64_t)1 << (found - options);
                if ((seen & bit) != 0)
                        return dci_fail(DCI_ERR_INVALID, "--%s is given twice", found->name);
                seen |= bit;
                const char *value = strchr(argv[i], '=');
                if (found->kind == OPTION_FLAG) {
                        if (value != NULL)
                                return dci_fail(DCI_ERR_INVALID, "--%s takes no value", found->name);
                        *(bool *)found->value = true;
                        continue;
                }
                if (value == NULL && i + 1 == argc)
                        return dci_fail(DCI_ERR_INVALID, "--%s wants a value", found->name);
                dci_status status = parse_value(found, value != NULL ? value + 1 : argv[++i]);
                if (status != DCI_OK)
                        return status;
        }
        return DCI_OK;
}
