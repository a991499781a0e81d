/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "core/internal.h"

#include <math.h>

#include "index/effort.h"

const double dci_effort_lengths[DCI_EFFORT_LENGTHS] = {1, 3, 10, 30, 100, 300, 1000};
const double dci_effort_recalls[DCI_EFFORT_RECALLS] = {0.5,  0.6,  0.7,  0.8,  0.85, 0.9,  0.92,
                                                       0.94, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995};

static double between(double a, double b, double part)
{
        if (isinf(a) || isinf(b))
                return INFINITY;
        return a + part * (b - a);
}

/* The entry of one length: shares grow ever faster with the recall, so a straight line is on the safe side. Beyond the last one all
 * that is left. */
static dci_effort at_length(const dci_calibration *c, size_t length, double recall)
{
        const size_t last = DCI_EFFORT_RECALLS - 1;
        size_t i = 0;
        while (i < last && dci_effort_recalls[i] < recall)
                i++;
        const double high = dci_effort_recalls[i];
        if (i == 0 || recall > high)
                return recall > high ? (dci_effort){1.0, INFINITY}
                                     : (dci_effort){(double)c->share[length][0], (double)c->rerank[length][0]};
        const double low = dci_effort_recalls[i - 1], part = (recall - low) / (high - low);
        return (dci_effort){between((double)c->share[length][i - 1], (double)c->share[length][i], part),
                            between((double)c->rerank[length][i - 1], (double)c->rerank[length][i], part)};
}

static dci_effort for_lists(const dci_calibration *c, double length, double recall)
{
        const double most = dci_effort_lengths[c->n_lengths - 1];
        size_t i = 0;
        while (i + 1 < c->n_lengths && dci_effort_lengths[i] < length)
                i++;
        dci_effort effort = at_length(c, i, recall);
        if (length > most) {
                effort.share = fmin(1.0, effort.share * length / most);
        } else if (i > 0) {
                const dci_effort shorter = at_length(c, i - 1, recall);
                const double from = log(dci_effort_lengths[i - 1]), to = log(dci_effort_lengths[i]);
                const double part = (log(length) - from) / (to - from);
                effort.share = between(shorter.share, effort.share, part);
                effort.rerank = between(shorter.rerank, effort.rerank, part);
        }
        return effort;
}

dci_effort dci_effort_of(const dci_calibration *c, double recall, size_t k, size_t n)
{
        const dci_effort exact = {1.0, INFINITY};
        if (c->on == DCI_CALIBRATED_NONE || recall >= 1.0 || n < DCI_CALIBRATED_ROWS_LEAST)
                return exact;
        /* The k best of some of the rows are spread like so many more of all: with a filter, and after removals. */
        const double times = (double)c->n_rows / (double)n;
        if (k == 0)
                return for_lists(c, dci_effort_lengths[c->n_lengths - 1], recall);
        dci_effort effort = for_lists(c, fmax(1.0, times) * (double)k, recall);
        /* Of more rows they are nearer to each other, so codes rank them worse; cells hold no less of them. */
        if (times < 1.0)
                effort.rerank = fmax(effort.rerank, for_lists(c, times * (double)k, recall).rerank);
        return effort;
}

dci_status dci_calibration_check(const dci_calibration *c)
{
        if (c->on < DCI_CALIBRATED_NONE || c->on > DCI_CALIBRATED_QUERIES)
                return dci_fail(DCI_ERR_FORMAT, "the calibration is on %d, which this library does not know",
                                (int)c->on);
        if (c->on != DCI_CALIBRATED_NONE && (c->n_lengths == 0 || c->n_lengths > DCI_EFFORT_LENGTHS))
                return dci_fail(DCI_ERR_FORMAT, "the calibration is of %zu lengths, expected 1 to %d", c->n_lengths,
                                DCI_EFFORT_LENGTHS);
        for (size_t l = 0; c->on != DCI_CALIBRATED_NONE && l < c->n_lengths; l++) {
                for (size_t r = 0; r < DCI_EFFORT_RECALLS; r++) {
                        const double share = (double)c->share[l][r], rerank = (double)c->rerank[l][r];
                        if (!(share > 0.0 && share <= 1.0) || !(rerank >= 1.0))
                                return dci_fail(DCI_ERR_FORMAT,
                                                "the calibration has share %g and rerank %g for a recall of %g: shares "
                                                "are more than 0 and at most 1, rerank is at least 1",
                                                share, rerank, dci_effort_recalls[r]);
                        if (r > 0 && !(share >= (double)c->share[l][r - 1] && rerank >= (double)c->rerank[l][r - 1]))
                                return dci_fail(DCI_ERR_FORMAT,
                                                "the calibration has less for a recall of %g than of %g",
                                                dci_effort_recalls[r], dci_effort_recalls[r - 1]);
                }
        }
        return DCI_OK;
}
