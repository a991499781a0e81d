/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * What the suites about damage share. A table of damages is a header that its suite includes twice: once with
 * LEVEL(name, ..., statement) as the function that does the damage, and once as a row of an array {name, make, ...,
 * level, says}.
 */
#ifndef DCI_TESTS_DAMAGE_FIXTURE_H
#define DCI_TESTS_DAMAGE_FIXTURE_H

#include <string.h>

#include "tests/common.h"

/* Takes a pointer away from what it belongs to. Leak checkers find here what damage hides from them. */
static const void *damage_hidden[16];
static size_t damage_n_hidden;
#define HIDE(pointer)                                                                                                  \
        do {                                                                                                           \
                ck_assert_uint_lt(damage_n_hidden, COUNT(damage_hidden));                                              \
                damage_hidden[damage_n_hidden++] = (pointer);                                                          \
                (pointer) = NULL;                                                                                      \
        } while (0)

/* Does the damage of a row, and wants it found at its level, the lowest that finds it, and named. */
#define DAMAGE_IS_FOUND(row, check, object)                                                                            \
        do {                                                                                                           \
                (row).make(object);                                                                                    \
                if ((row).level == DCI_CHECK_FULL)                                                                     \
                        ck_assert_msg(check(object, DCI_CHECK_STRUCTURE, NULL) == DCI_OK, "%s: %s", (row).name,        \
                                      dci_last_error());                                                               \
                const dci_status status = check(object, (row).level, NULL);                                            \
                ck_assert_msg(status == DCI_ERR_FORMAT && strstr(dci_last_error(), (row).says) != NULL, "%s: %s: %s",  \
                              (row).name, dci_status_name(status), dci_last_error());                                  \
        } while (0)

#endif
