/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/check_fixture.h"

enum { DIM = CHECK_DIM, ROWS = CHECK_ROWS };

dci_index_config check_config(dci_index_kind kind, dci_metric metric, dci_dtype dtype, int32_t bits)
{
        dci_index_config config = index_config(DIM, metric, dtype);
        config.kind = kind;
        config.add_dtype = config.query_dtype = DCI_F32;
        config.sketch_bits = bits;
        config.seed = 5;
        config.page_rows = 16;
        config.promotion_prob = 0.15;
        config.promotion_prob_subseq = 0.2;
        config.top_nodes = 8;
        config.cell_simp_indices = 2;
        return config;
}

dci_index *check_make(dci_context *context, const dci_index_config *config)
{
        dci_index *index = NULL;
        float *rows = test_normal(ROWS, DIM, 3);
        int64_t ids[ROWS], gone[ROWS / 3];
        for (int64_t i = 0; i < ROWS; i++)
                ids[i] = 7 * i + 2;
        for (size_t i = 0; i < ROWS / 3; i++)
                gone[i] = ids[3 * i + 1];
        ck_ok(dci_index_create(context, config, &index));
        ck_ok(dci_index_add(index, ROWS / 2, rows, DIM, ids, NULL));
        for (size_t i = ROWS / 2; i < ROWS; i += 50)
                ck_ok(dci_index_add(index, 50, rows + i * DIM, DIM, ids + i, NULL));
        for (size_t i = 0; i < ROWS / 3; i += 20)
                ck_ok(dci_index_remove(index, 20, gone + i));
        free(rows);
        return index;
}

void check_passes(const dci_index *index)
{
        ck_ok(dci_index_check(index, DCI_CHECK_STRUCTURE, NULL));
        ck_ok(dci_index_check(index, DCI_CHECK_FULL, NULL));
}

size_t check_some_slot(dci_index *index)
{
        const dci_view view = dci_rows_view(&index->rows);
        size_t slot = 37;
        while (dci_view_id(&view, (int32_t)slot) < 0)
                slot++;
        return slot;
}

int64_t *check_id_of(dci_index *index, size_t slot)
{
        size_t at;
        const dci_chunk *chunk = dci_rows_chunk(&index->rows, slot, &at);
        return chunk->ids + at;
}

dci_unit check_unit_of(dci_index *index)
{
        const dci_view view = dci_rows_view(&index->rows);
        return dci_view_unit(&view, check_some_slot(index) / DCI_CODE_UNIT);
}

dci_cell *check_cell_of(dci_index *index, size_t l)
{
        size_t i = 0;
        while (index->tree->levels[l].cells[i].n == 0)
                i++;
        return &index->tree->levels[l].cells[i];
}
