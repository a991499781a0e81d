/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What is built, what each of it is searched with, and which of the results are worth showing. */
#include "bench/ann/ann.h"

#include <math.h>

/* Few bits rank worse and need more rows scored for the same recall. */
static const bench_shares rerank_few_bits = {8, {1, 2, 3, 4, 6, 8, 12, 16}}, rerank_more_bits = {5, {1, 1.5, 2, 3, 4}};

void ann_list_arms(ann_options *o)
{
        const ann_codes *codes = &o->codes;
        o->n_arms = 0;
        for (dci_index_kind kind = DCI_KIND_FLAT; kind < BENCH_N_KINDS; kind++) {
                for (const bench_choice *width = bench_widths; width->name != NULL; width++) {
                        const int32_t bits = width->value;
                        /* Exact search is always measured, as what the others are held against. */
                        const bool exact = kind == DCI_KIND_FLAT && bits == 0;
                        if (!exact && (!bench_has_kind(&o->index, kind) || (codes->widths & 1 << bits) == 0))
                                continue;
                        if (bits == 0 || codes->unfitted) /* of auto, 0: as the library says */
                                o->arms[o->n_arms++] = (ann_arm){kind, bits, false};
                        if (bits > 0 && codes->fitted)
                                o->arms[o->n_arms++] = (ann_arm){kind, bits, true};
                }
        }
}

/* --- efforts --------------------------------------------------------------------------------------------------------------- */

static const bench_shares rerank_library = {1, {0}};

/* Whether the codes of an arm are a part of its efforts: auto has some, or none, as the rows say. */
static bool with_codes(const ann_arm *arm)
{
        return arm->sketch_bits != 0 || arm->kind == DCI_KIND_AUTO;
}

static const bench_shares *reranks(const ann_options *o, const ann_arm *arm)
{
        if (o->codes.rerank.n > 0)
                return &o->codes.rerank;
        if (arm->kind == DCI_KIND_AUTO)
                return &rerank_library;
        return arm->sketch_bits <= 2 ? &rerank_few_bits : &rerank_more_bits;
}

size_t ann_effort_count(const ann_options *o, const ann_arm *arm)
{
        const size_t n = bench_effort_count(&o->index, arm->kind);
        return with_codes(arm) && o->index.recall == 0.0 ? n * (reranks(o, arm)->n + o->codes.guarantee.n) : n;
}

bench_effort ann_effort_at(const ann_options *o, const ann_arm *arm, size_t i)
{
        if (!with_codes(arm) || o->index.recall > 0.0)
                return bench_effort_at(&o->index, arm->kind, i);
        const bench_shares *rerank = reranks(o, arm), *guarantee = &o->codes.guarantee;
        const size_t per_effort = rerank->n + guarantee->n, turn = i % per_effort;
        bench_effort effort = bench_effort_at(&o->index, arm->kind, i / per_effort);
        if (turn < rerank->n)
                effort.rerank = rerank->values[turn];
        else
                effort.guarantee = guarantee->values[turn - rerank->n];
        return effort;
}

/* --- what is shown ---------------------------------------------------------------------------------------------------------- */

/* As good as the row in both, and better in one. */
static bool beats(const ann_row *other, const ann_row *row)
{
        return other->mode == row->mode && other->recall >= row->recall && other->qps.median >= row->qps.median &&
               (other->recall > row->recall || other->qps.median > row->qps.median);
}

size_t ann_keep_best(ann_row *rows, size_t n)
{
        size_t kept = 0;
        for (size_t i = 0; i < n; i++) {
                /* What was beaten by a row that is gone is also beaten by the one that beat that row, so those that were
                 * kept and those to come suffice. */
                const ann_row row = rows[i];
                bool stays = true;
                for (size_t j = 0; stays && j < kept; j++)
                        stays = !beats(&rows[j], &row);
                for (size_t j = i + 1; stays && j < n; j++)
                        stays = !beats(&rows[j], &row);
                if (stays || (row.arm->kind == DCI_KIND_FLAT && row.arm->sketch_bits == 0))
                        rows[kept++] = row;
        }
        return kept;
}
