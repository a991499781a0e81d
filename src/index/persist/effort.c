/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The section "effort": which recall an index aims at, and what it takes. */
#include "core/internal.h"

#include <string.h>

#include "index/config.h"
#include "index/persist/sections.h"

/* f64 the config's target_recall, f64 that of the defaults; i32 what it was calibrated on, u32 lengths, u64 rows; then for each length
 * and recall f32 share and f32 rerank, zero where there was no measurement. */
#define HEAD_BYTES 32

static void encode(const dci_index *index, unsigned char *at)
{
        dci_search_params defaults;
        dci_calibration c;
        dci_index_get_effort_into(index, &defaults, &c);
        memset(at, 0, DCI_EFFORT_BYTES);
        if (!dci_calibration_holds(&c, &index->config))
                memset(&c, 0, sizeof c);
        dci_store_f64(at, index->config.target_recall);
        dci_store_f64(at + 8, defaults.target_recall);
        dci_store_le32(at + 16, (uint32_t)c.on);
        dci_store_le32(at + 20, (uint32_t)c.n_lengths);
        dci_store_le64(at + 24, c.n_rows);
        for (size_t l = 0; l < c.n_lengths; l++) {
                for (size_t r = 0; r < DCI_EFFORT_RECALLS; r++) {
                        unsigned char *entry = at + HEAD_BYTES + (l * DCI_EFFORT_RECALLS + r) * 8;
                        uint32_t share, rerank;
                        memcpy(&share, &c.share[l][r], sizeof share);
                        memcpy(&rerank, &c.rerank[l][r], sizeof rerank);
                        dci_store_le32(entry, share);
                        dci_store_le32(entry + 4, rerank);
                }
        }
}

static dci_status emit(const void *ctx, const dci_sink *sink)
{
        const dci_saving *s = ctx;
        return sink->write(sink->ctx, s->effort, sizeof s->effort);
}

void dci_effort_write(dci_saving *saving)
{
        const dci_index *index = saving->index;
        dci_search_params defaults;
        dci_calibration c;
        dci_index_get_effort_into(index, &defaults, &c);
        if (index->config.target_recall >= 1.0 && dci_params_give_effort(&defaults) && c.on == DCI_CALIBRATED_NONE)
                return; /* as files of 0.1.0 say it */
        encode(index, saving->effort);
        dci_saving_add(saving, "effort", sizeof saving->effort, emit);
}

dci_status dci_effort_find(dci_loading *loading)
{
        const void *data = NULL;
        dci_calibration *c = &loading->calibration;
        memset(c, 0, sizeof *c);
        loading->config.target_recall = 1.0;
        if (!dci_loading_has(loading, "effort")) {
                loading->defaults.target_recall = 1.0;
                return loading->defaults.prop_to_visit != 0.0 && loading->defaults.prop_to_retrieve != 0.0
                               ? DCI_OK
                               : dci_fail(DCI_ERR_FORMAT,
                                          "the config in the file: %s is 0, and there is no section "
                                          "'effort' with a recall in place of it",
                                          loading->defaults.prop_to_visit == 0.0 ? "prop_to_visit"
                                                                                 : "prop_to_retrieve");
        }
        if ((loading->defaults.prop_to_visit == 0.0) != (loading->defaults.prop_to_retrieve == 0.0))
                return dci_fail(DCI_ERR_FORMAT,
                                "the config in the file: prop_to_visit is %g and prop_to_retrieve is %g, expected 0 of "
                                "both or of none",
                                loading->defaults.prop_to_visit, loading->defaults.prop_to_retrieve);
        DCI_TRY(dci_loading_read(loading, "effort", 1, DCI_EFFORT_BYTES, &data));
        const unsigned char *at = data;
        loading->config.target_recall = dci_load_f64(at);
        loading->defaults.target_recall = dci_load_f64(at + 8);
        const uint32_t on = dci_load_le32(at + 16);
        c->on = on <= INT32_MAX ? (int32_t)on : INT32_MAX;
        c->n_lengths = dci_load_le32(at + 20);
        c->kind = loading->config.kind;
        c->sketch_bits = loading->config.sketch_bits;
        c->n_rows = (size_t)dci_load_le64(at + 24);
        for (size_t l = 0; l < DCI_EFFORT_LENGTHS; l++) {
                for (size_t r = 0; r < DCI_EFFORT_RECALLS; r++) {
                        const unsigned char *entry = at + HEAD_BYTES + (l * DCI_EFFORT_RECALLS + r) * 8;
                        const uint32_t share = dci_load_le32(entry), rerank = dci_load_le32(entry + 4);
                        memcpy(&c->share[l][r], &share, sizeof share);
                        memcpy(&c->rerank[l][r], &rerank, sizeof rerank);
                }
        }
        return dci_calibration_check(c);
}
