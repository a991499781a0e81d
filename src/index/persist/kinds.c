/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What each kind adds to a file. */
#include "core/internal.h"

#include "index/check/parts.h"
#include "index/persist/sections.h"

/* --- PDCI: projections, [simple index][row] ---------------------------------------------------------------------------- */

static dci_status emit_projections(const void *ctx, const dci_sink *sink)
{
        const dci_saving *s = ctx;
        size_t n;
        for (size_t j = 0; j < s->index->rows.n_simple; j++)
                for (size_t c = 0; (n = dci_saving_chunk_rows(s, c)) > 0; c++) {
                        const dci_chunk *chunk = &s->view.table->chunk[c];
                        DCI_TRY(dci_saving_emit(s, chunk, chunk->projections + j * chunk->stride, n,
                                                sizeof *chunk->projections, sink));
                }
        return DCI_OK;
}

static void write_pdci(dci_saving *saving)
{
        dci_saving_add(saving, "proj", saving->view.n * saving->index->rows.n_simple * sizeof(float), emit_projections);
}

static dci_status find_pdci(dci_loading *loading)
{
        return dci_loading_read(loading, "proj", loading->n, loading->shape.n_simple * sizeof(float),
                                &loading->parts.projections);
}

static dci_status accept_pdci(dci_loading *loading)
{
        return dci_check_projections(&loading->view, true, "file");
}

static void write_mdci(dci_saving *saving)
{
        if (saving->index->rows.n_simple > 0)
                write_pdci(saving);
        dci_tree_write(saving);
}

static const dci_kind_format formats[] = {
        {.kind = DCI_KIND_FLAT},
        {.kind = DCI_KIND_PDCI, .write = write_pdci, .find = find_pdci, .accept = accept_pdci},
        {.kind = DCI_KIND_MDCI,
         .write_config = dci_tree_write_config,
         .read_config = dci_tree_read_config,
         .write = write_mdci,
         .find = dci_tree_find,
         .accept = dci_tree_accept},
};

const dci_kind_format *dci_kind_format_of(dci_index_kind kind)
{
        for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
                if (formats[i].kind == kind)
                        return &formats[i];
        return NULL;
}
