/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Records of a coder's transform for kernels. */
#include "gpu/gpu_internal.h"

#include <string.h>

#include "gpu/args/transforms_fill.h"

_Static_assert(sizeof(dci_gpu_writer) % 128 == 0, "records, and the floats that follow them, are aligned");

#define PAIR_COORDS(bits) (32 / (size_t)(bits)) /* coordinates of a line */

static uint8_t twice_zero(int bits, bool by_table)
{
        return by_table ? 128 : (uint8_t)(((1 << bits) - 1) << dci_code_rise(bits));
}

/* Groups of a section of one width, from line `line` on; returns the line after it. */
static size_t fill_section(const dci_code_layout *layout, int w, size_t line, dci_gpu_transform *out)
{
        const int bits = dci_code_bits[w];
        const bool by_table = bits <= DCI_CODE_TABLE && !layout->even[w];
        for (size_t c = 0; c < layout->n_coords[w]; c += DCI_CODE_GROUP) {
                dci_gpu_transform_group *g = &out->groups[out->n_groups++];
                *g = (dci_gpu_transform_group){
                        .bits = (uint8_t)bits, .by_table = by_table, .twice_zero = twice_zero(bits, by_table)};
                if (bits != 3) {
                        g->line = (uint8_t)(line + c / PAIR_COORDS(bits));
                        g->shift = (uint8_t)(c % PAIR_COORDS(bits) / 4 * (size_t)bits);
                        continue;
                }
                /* Two lines of the lower two bits of 16 coordinates each, and one of the highest of all 32. */
                const size_t first = line + c / 32 * 3;
                g->line = (uint8_t)(first + c % 32 / 16);
                g->shift = (uint8_t)(c % 16 / 4 * 2);
                g->split = 1;
                g->high_line = (uint8_t)(first + 2);
                g->high_shift = (uint8_t)(c % 32 / 4);
        }
        return line + layout->n_coords[w] * (size_t)bits / 32;
}

static void fill_groups(const dci_code_layout *layout, dci_gpu_transform *out)
{
        size_t line = 0;
        for (int w = 0; w < DCI_CODE_WIDTHS; w++)
                line = fill_section(layout, w, line, out);
        for (size_t g = 0; g < layout->n_groups; g++) {
                const dci_code_group *from = &layout->groups[g];
                const bool by_table = from->bits <= DCI_CODE_TABLE;
                out->groups[out->n_groups++] =
                        (dci_gpu_transform_group){.line = (uint8_t)(line + from->line),
                                                  .shift = from->shift,
                                                  .bits = from->bits,
                                                  .by_table = by_table,
                                                  .twice_zero = twice_zero(from->bits, by_table)};
        }
        out->n_lines = (int32_t)(line + layout->n_lines);
}

static void fill_matrix(const dci_coder *coder, float *out)
{
        const size_t dim = coder->dim;
        for (size_t i = 0; i < dim; i++)
                for (size_t j = 0; j < dim; j++)
                        out[i * dim + j] = j < coder->n_coded ? coder->from[j * dim + i] : 0.0f;
}

void dci_gpu_transform_fill(const dci_coder *coder, void *record)
{
        const dci_code_layout *layout = &coder->layout;
        dci_gpu_transform *out = record;
        float *floats = (float *)(void *)(out + 1);
        memset(record, 0, DCI_GPU_TRANSFORM_BYTES(coder->dim));
        out->by_matrix = coder->kind == DCI_CODER_LEARNED;
        for (int bits = 1; bits <= DCI_GPU_TRANSFORM_TABLE; bits++)
                memcpy(out->levels[bits - 1], layout->levels[5 - bits], sizeof out->levels[0]);
        fill_groups(&coder->layout, out);
        memcpy(floats, coder->centre, coder->dim * sizeof *floats);
        if (out->by_matrix)
                fill_matrix(coder, floats + coder->dim);
}

/* --- for rows ----------------------------------------------------------------------------------------------------- */

static void fill_levels(const dci_coder *coder, dci_gpu_writer *out)
{
        const dci_code_levels *levels = &coder->levels;
        for (int bits = 1; bits <= 8; bits++) {
                out->to_levels[bits] = levels->per_unit[bits];
                out->to_codes[bits] = levels->per_unit[bits] / (float)(1 << dci_code_rise(bits));
        }
        memcpy(out->least, levels->least, sizeof out->least);
        memcpy(out->limits, levels->limits, sizeof out->limits);
        memcpy(out->more, levels->more, sizeof out->more);
        out->nearest = levels->nearest;
        out->share = levels->wider * levels->wider / (float)levels->n_coded;
}

void dci_gpu_writer_fill(const dci_coder *coder, void *record)
{
        const size_t dim = coder->dim;
        dci_gpu_writer *out = record;
        float *centre = (float *)(void *)(out + 1), *worth = centre + dim, *to = worth + dim;
        dci_gpu_transform places = {.n_groups = 0};
        memset(record, 0, DCI_GPU_WRITER_BYTES(dim));
        out->learned = coder->kind == DCI_CODER_LEARNED;
        if (out->learned == 0)
                return;
        fill_groups(&coder->layout, &places);
        out->n_groups = places.n_groups;
        out->n_coded = (int32_t)coder->n_coded;
        memcpy(out->groups, places.groups, sizeof out->groups);
        fill_levels(coder, out);
        memcpy(centre, coder->centre, dim * sizeof *centre);
        memcpy(worth, coder->worth, dim * sizeof *worth);
        for (size_t i = 0; i < dim; i++)
                for (size_t j = 0; j < dim; j++)
                        to[i * dim + j] = coder->to[j * dim + i];
}
