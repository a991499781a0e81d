/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Kind AUTO: which kind suits so many rows, and the change to it. docs/tuning.md has what the rule was measured on. */
#include "core/internal.h"

#include <stdio.h>

#include "dci/sketch.h"
#include "index/access.h"
#include "index/auto.h"
#include "index/batch.h"
#include "index/rebuild.h"

/* With codes from FEW_BYTES of rows on, but from 2,000 to 10,000 rows: fewer are in a cache, and an exact search takes 10 to 50 us. */
#define FEW_BYTES ((size_t)1 << 20)
#define MIN_FEW ((size_t)2000)
#define MAX_FEW ((size_t)10000)
/* MDCI from where a scan of codes takes 0.1 ms or so, which costs as much for a row as for ROW_WORK elements; not below MIN_MANY rows. */
#define MANY_ELEMENTS ((size_t)8000000)
#define ROW_WORK ((size_t)64)
#define MIN_MANY ((size_t)20000)
#define BITS 4
/* Rows that are removed change the kind back where these many times as many would still be too few for it. */
#define SLACK 4

typedef enum form { FORM_FLAT, FORM_CODES, FORM_TREE } form;

static form form_in_use(const dci_index *index)
{
        if (index->config.kind == DCI_KIND_MDCI)
                return FORM_TREE;
        return index->config.sketch_bits != 0 ? FORM_CODES : FORM_FLAT;
}

static form form_for(const dci_index *index, size_t n)
{
        const size_t dim = index->config.dim, divisor = index->automatic.divisor;
        size_t few = FEW_BYTES / (dim * dci_dtype_size(index->config.dtype)), many = MANY_ELEMENTS / (dim + ROW_WORK);
        few = few < MIN_FEW ? MIN_FEW : few;
        few = few > MAX_FEW ? MAX_FEW : few;
        many = many < MIN_MANY ? MIN_MANY : many;
        if (n >= many / divisor)
                return FORM_TREE;
        return n >= few / divisor && dim <= DCI_SKETCH_MAX_DIM ? FORM_CODES : FORM_FLAT;
}

/* Codes keep their width from one form to the next, and with it what they have learned. */
static dci_index_config config_for(const dci_index *index, form to)
{
        const int32_t asked = index->automatic.sketch_bits, present = index->config.sketch_bits;
        dci_index_config config = index->config;
        config.kind = to == FORM_TREE ? DCI_KIND_MDCI : DCI_KIND_FLAT;
        config.sketch_bits = asked != 0 ? asked : (present != 0 ? present : BITS);
        if (to == FORM_FLAT || config.dim > DCI_SKETCH_MAX_DIM)
                config.sketch_bits = 0;
        return config;
}

static dci_status add_changing(dci_batch *b, const dci_index_config *to, const dci_progress *progress)
{
        DCI_TRY(dci_batch_find_old(b));
        dci_status status = dci_batch_stage(b, to, to->kind == DCI_KIND_MDCI ? NULL : progress);
        if (status == DCI_OK)
                status = dci_index_rebuild(b->index, to, &b->staged, b->leaving, dci_batch_end(b), progress);
        if (status == DCI_OK)
                b->index->next_id = dci_batch_end(b);
        dci_rows_destroy(&b->staged);
        return status;
}

/* Rows there will be. */
static size_t count_after(const dci_batch *b)
{
        const dci_view view = dci_rows_view(&b->index->rows);
        size_t n = dci_index_count(b->index) + b->n;
        for (size_t i = 0; b->replaces && i < b->n; i++)
                n -= dci_index_slot(b->index, &view, b->ids[i]) >= 0;
        return n;
}

dci_status dci_auto_add(dci_batch *batch, const dci_progress *progress)
{
        dci_index *index = batch->index;
        const form to = form_for(index, count_after(batch));
        const dci_batch untouched = *batch;
        if (to <= form_in_use(index))
                return index->kind->add(batch, progress);
        /* What fails here and not there leaves no sentence; bad rows and ids are found again. */
        char sentence[512];
        snprintf(sentence, sizeof sentence, "%s", dci_last_error());
        const dci_index_config config = config_for(index, to);
        const dci_status status = add_changing(batch, &config, progress);
        if (status == DCI_OK || status == DCI_ERR_CANCELLED)
                return status;
        dci_fail(status, "%s", sentence);
        dci_batch_free(batch);
        *batch = untouched;
        return index->kind->add(batch, progress);
}

void dci_auto_removed(dci_index *index)
{
        const size_t n = dci_index_count(index);
        if (form_for(index, SLACK * n) >= form_in_use(index))
                return;
        const dci_index_config config = config_for(index, form_for(index, n));
        dci_may_fail(true);
        dci_index_rebuild(index, &config, NULL, NULL, index->next_id, NULL);
        dci_may_fail(false);
}
