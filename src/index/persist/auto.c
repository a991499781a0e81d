/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What kind AUTO adds to a file: that the kind in use was chosen, and the config of what may be chosen next. */
#include "core/internal.h"

#include <string.h>

#include "index/config.h"
#include "index/persist/sections.h"

/* Where fields are in the section "auto". */
enum {
        AT_SKETCH_BITS = 0,
        AT_UNUSED = 4,
        AT_PROMOTION = 8,
        AT_SUBSEQ = 16,
        AT_PAGE_ROWS = 24,
        AT_TOP_NODES = 32,
        AUTO_BYTES = 40
};

static dci_status emit_auto(const void *ctx, const dci_sink *sink)
{
        const dci_index *index = ((const dci_saving *)ctx)->index;
        unsigned char at[AUTO_BYTES] = {0};
        dci_store_le32(at + AT_SKETCH_BITS, (uint32_t)index->automatic.sketch_bits);
        dci_store_f64(at + AT_PROMOTION, index->config.promotion_prob);
        dci_store_f64(at + AT_SUBSEQ, index->config.promotion_prob_subseq);
        dci_store_le64(at + AT_PAGE_ROWS, index->config.page_rows);
        dci_store_le64(at + AT_TOP_NODES, index->config.top_nodes);
        return sink->write(sink->ctx, at, sizeof at);
}

void dci_auto_write(dci_saving *saving)
{
        if (saving->index->automatic.on)
                dci_saving_add(saving, "auto", AUTO_BYTES, emit_auto);
}

/* The kind in use says what an index of AUTO can say, and an MDCI index the same of its tree as the section. */
static dci_status check_use(const dci_loading *l, const dci_index_config *asked)
{
        const dci_index_config *used = &l->config;
        if (used->kind == DCI_KIND_PDCI)
                return dci_fail(DCI_ERR_FORMAT, "the file's index chose kind %d, which kind AUTO never does",
                                (int)used->kind);
        if (asked->sketch_bits != 0 && used->sketch_bits != 0 && asked->sketch_bits != used->sketch_bits)
                return dci_fail(DCI_ERR_FORMAT, "the file's index of kind AUTO has codes of %d bits, %d were asked for",
                                (int)used->sketch_bits, (int)asked->sketch_bits);
        if (used->kind == DCI_KIND_MDCI && (used->promotion_prob != asked->promotion_prob ||
                                            used->promotion_prob_subseq != asked->promotion_prob_subseq ||
                                            used->page_rows != asked->page_rows || used->top_nodes != asked->top_nodes))
                return dci_fail(DCI_ERR_FORMAT, "sections 'auto' and 'config' of the file disagree about its tree");
        return DCI_OK;
}

dci_status dci_auto_find(dci_loading *l)
{
        const void *section;
        if (!dci_loading_has(l, "auto"))
                return DCI_OK;
        DCI_TRY(dci_loading_read(l, "auto", 1, AUTO_BYTES, &section));
        const unsigned char *at = section;
        const uint32_t bits = dci_load_le32(at + AT_SKETCH_BITS);
        const uint64_t page_rows = dci_load_le64(at + AT_PAGE_ROWS), top_nodes = dci_load_le64(at + AT_TOP_NODES);
        dci_index_config asked = l->config;
        if (dci_load_le32(at + AT_UNUSED) != 0)
                return dci_fail(DCI_ERR_UNSUPPORTED, "bytes 4 to 7 of the file's section 'auto' have no use yet");
        if (bits > 8 || page_rows > DCI_MAX_PAGE_ROWS || top_nodes > SIZE_MAX)
                return dci_fail(DCI_ERR_FORMAT,
                                "section 'auto' of the file asks for %u bits, pages of %llu rows and %llu top nodes",
                                (unsigned)bits, (unsigned long long)page_rows, (unsigned long long)top_nodes);
        asked.kind = DCI_KIND_AUTO;
        asked.sketch_bits = (int32_t)bits;
        asked.promotion_prob = dci_load_f64(at + AT_PROMOTION);
        asked.promotion_prob_subseq = dci_load_f64(at + AT_SUBSEQ);
        asked.page_rows = (size_t)page_rows;
        asked.top_nodes = (size_t)top_nodes;
        DCI_TRY(dci_index_config_check(&asked));
        DCI_TRY(check_use(l, &asked));
        l->automatic = (dci_automatic){true, asked.sketch_bits, 1, 0};
        asked.kind = l->config.kind;
        asked.sketch_bits = l->config.sketch_bits;
        l->config = asked;
        return DCI_OK;
}
