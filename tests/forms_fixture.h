/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The forms of an index that the suites of its methods go through, and what one holds. */
#ifndef DCI_TESTS_FORMS_FIXTURE_H
#define DCI_TESTS_FORMS_FIXTURE_H

#include <string.h>

#include "dci/check.h"
#include "dci/file.h"
#include "tests/mdci_fixture.h"

enum { DIM = TRACE_DIM, N = 1500 };

/* All kinds, with and without codes, owned and borrowed. */
static const struct form {
        dci_index_kind kind;
        int32_t bits, storage;
        size_t top_nodes, simple;
} forms[] = {
        {DCI_KIND_FLAT, 0, DCI_ROWS_OWNED, 4096, 0},  {DCI_KIND_FLAT, 4, DCI_ROWS_OWNED, 4096, 0},
        {DCI_KIND_FLAT, 1, DCI_ROWS_BORROWED, 64, 0}, {DCI_KIND_PDCI, 0, DCI_ROWS_OWNED, 4096, 0},
        {DCI_KIND_PDCI, 2, DCI_ROWS_OWNED, 4096, 0},  {DCI_KIND_MDCI, 0, DCI_ROWS_OWNED, 4096, 0},
        {DCI_KIND_MDCI, 0, DCI_ROWS_BORROWED, 4, 0},  {DCI_KIND_MDCI, 4, DCI_ROWS_OWNED, 4096, 3},
};

static inline dci_index_config config_of(size_t form, dci_metric metric)
{
        const struct form *f = &forms[form];
        dci_index_config config =
                pdci_sketched(f->kind, metric, f->storage == DCI_ROWS_OWNED ? DCI_F16 : DCI_F32, f->bits);
        config.storage = f->storage;
        config.top_nodes = f->top_nodes;
        config.cell_simp_indices = f->simple;
        return config;
}

/* The call, a second time if an allocation failed: where allocations fail, the one may be its own. */
#define surely(call)                                                                                                   \
        do {                                                                                                           \
                if ((call) == DCI_OK)                                                                                  \
                        break;                                                                                         \
                test_memory_recovers();                                                                                \
                ck_ok(call);                                                                                           \
        } while (0)

static inline void check_index(const dci_index *index)
{
        surely(dci_index_check(index, DCI_CHECK_FULL, NULL));
}

/* What an index holds: ids, rows, and what it finds. */
typedef struct state {
        int64_t ids[400];
        size_t n;
        size_t n_bytes;
        unsigned char *bytes;
} state;

static inline state state_of(const dci_index *index)
{
        state s = {0};
        size_t n;
        surely(dci_index_ids(index, COUNT(s.ids), s.ids, &s.n));
        surely(dci_index_save_memory(index, 0, NULL, &s.n_bytes));
        s.bytes = malloc(s.n_bytes);
        surely(dci_index_save_memory(index, s.n_bytes, s.bytes, &n));
        return s;
}

static inline void state_check(state *before, const dci_index *index, const char *what)
{
        state now = state_of(index);
        check_index(index);
        ck_assert_msg(now.n == before->n && memcmp(now.ids, before->ids, now.n * sizeof *now.ids) == 0, "%s: other ids",
                      what);
        ck_assert_msg(now.n_bytes == before->n_bytes && memcmp(now.bytes, before->bytes, now.n_bytes) == 0,
                      "%s: other bytes", what);
        free(now.bytes);
}

#endif
