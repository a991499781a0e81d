/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Tables of fields: defaults and checks. */
#include "core/internal.h"

#include <stdio.h>
#include <string.h>

#include "core/fields.h"

#define TEXT_BYTES 256

const char *const dci_dtype_names[5] = {"DCI_F32", "DCI_F16", "DCI_BF16", "DCI_I8", "DCI_U8"};
const char *const dci_metric_names[3] = {"L2", "IP", "COSINE"};
const int32_t dci_bit_counts[] = {1, 2, 3, 4, 8, 0};

static size_t bytes_of(const dci_field *field)
{
        return field->type == DCI_FIELD_INT ? sizeof(int32_t) : sizeof(size_t);
}

static size_t as_size(const void *at)
{
        size_t size;
        memcpy(&size, at, sizeof size);
        return size;
}

static double value_of(const dci_field *field, const void *at)
{
        int32_t whole;
        double real;
        if (field->type == DCI_FIELD_SIZE)
                return (double)as_size(at);
        if (field->type == DCI_FIELD_DOUBLE) {
                memcpy(&real, at, sizeof real);
                return real;
        }
        memcpy(&whole, at, sizeof whole);
        return (double)whole;
}

static void set_default(const dci_field *field, void *out)
{
        const int32_t whole = (int32_t)field->initial;
        const size_t size = (size_t)(int64_t)field->initial;
        memcpy(out,
               field->type == DCI_FIELD_INT    ? (const void *)&whole
               : field->type == DCI_FIELD_SIZE ? (const void *)&size
                                               : (const void *)&field->initial,
               bytes_of(field));
}

void dci_fields_init(const dci_field *fields, size_t n, void *config)
{
        for (size_t i = 0; i < n; i++)
                set_default(&fields[i], (unsigned char *)config + fields[i].offset);
}

void dci_fields_fill(const dci_field *fields, size_t n, const void *preset, void *config)
{
        for (size_t i = 0; i < n; i++) {
                unsigned char *at = (unsigned char *)config + fields[i].offset, unset[sizeof(double)];
                set_default(&fields[i], unset);
                /* Sizes by their bytes: not every one is a double. A zero of either sign is one. */
                if (fields[i].preset != 0 &&
                    (fields[i].type == DCI_FIELD_SIZE ? as_size(at) == as_size(unset)
                                                      : value_of(&fields[i], at) == value_of(&fields[i], unset)))
                        memcpy(at, (const unsigned char *)preset + fields[i].preset, bytes_of(&fields[i]));
        }
}

/* "a", "a or b", "a, b or c". */
static void add_choice(char *text, size_t i, size_t n, const char *name, int32_t value)
{
        const size_t length = strlen(text);
        const char *between = i == 0 ? "" : i + 1 == n ? " or " : ", ";
        if (name != NULL)
                snprintf(text + length, TEXT_BYTES - length, "%s%s", between, name);
        else
                snprintf(text + length, TEXT_BYTES - length, "%s%d", between, (int)value);
}

static void say_allowed(const dci_field *field, char *text)
{
        const bool real = field->type == DCI_FIELD_DOUBLE;
        const double least = field->least, most = field->most;
        size_t n = 0;
        text[0] = '\0';
        while (field->only != NULL && field->only[n] != 0)
                n++;
        for (size_t i = 0; i < n; i++)
                add_choice(text, i, n, NULL, field->only[i]);
        for (size_t i = 0; field->names != NULL && i <= (size_t)(most - least); i++)
                add_choice(text, i, (size_t)(most - least) + 1, field->names[i], 0);
        if (text[0] != '\0')
                return;
        if (most >= DBL_MAX)
                snprintf(text, TEXT_BYTES, "%s %g", field->open ? "more than" : "at least", least);
        else if (field->open)
                snprintf(text, TEXT_BYTES, "more than %g and at most %g", least, most);
        else if (least == most)
                snprintf(text, TEXT_BYTES, "%.0f", least);
        else
                snprintf(text, TEXT_BYTES, real ? "%g %s %g" : "%.0f %s %.0f", least,
                         !real && most == least + 1.0 ? "or" : "to", most);
}

static dci_status refuse(const dci_field *field, const void *config, dci_status status)
{
        const unsigned char *at = (const unsigned char *)config + field->offset;
        char value[32], allowed[TEXT_BYTES], special[64] = "";
        if (field->type == DCI_FIELD_SIZE)
                snprintf(value, sizeof value, "%zu", as_size(at));
        else
                snprintf(value, sizeof value, "%.*g", field->type == DCI_FIELD_INT ? 10 : 6, value_of(field, at));
        say_allowed(field, allowed);
        if (field->means != NULL)
                snprintf(special, sizeof special, ", or %g for %s", field->special, field->means);
        return dci_fail(status, "%s is %s, expected %s%s", field->name, value, allowed, special);
}

static bool is_good(const dci_field *field, double value)
{
        bool listed = field->only == NULL;
        if (field->means != NULL && value == field->special)
                return true;
        for (size_t i = 0; !listed && field->only[i] != 0; i++)
                listed = value == (double)field->only[i];
        return listed && (field->open ? value > field->least : value >= field->least) && value <= field->most;
}

dci_status dci_fields_check(const dci_field *fields, size_t n, const void *config)
{
        for (size_t i = 0; i < n; i++) {
                const double value = value_of(&fields[i], (const unsigned char *)config + fields[i].offset);
                const bool beyond = value > fields[i].most && fields[i].beyond != DCI_OK;
                if (!is_good(&fields[i], value))
                        return refuse(&fields[i], config, beyond ? fields[i].beyond : DCI_ERR_INVALID);
        }
        return DCI_OK;
}
