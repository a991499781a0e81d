/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Reference of cuda/tail/tail.cuh: attention over candidates that were not selected, by low-bit values, in binary64. */
#include "gpu/gpu_internal.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "gpu/host/reference.h"
#include "simd/codes/codes.h"
#include "simd/convert.h"
#include "sketch/rotate.h"

#define BLOCK 128 /* tokens of a transposed block: src/kv/stages/tail_lowbit.c */

/* A list, and the values of its head. */
typedef struct lowbit {
        const dci_gpu_tail_args *args;
        size_t row, head, dim, bits, n_candidates;
        const float *scores; /* [candidate][group] */
} lowbit;

/* The head's values in the chunk of a candidate. */
static const unsigned char *place_of(const lowbit *l, size_t candidate)
{
        return dci_gpu_chunk_of(&l->args->chunks, l->row, l->head, candidate / DCI_GPU_CHUNK) + l->args->tail_at;
}

static double scale_of(const lowbit *l, const unsigned char *place, size_t candidate)
{
        const size_t codes = l->dim * DCI_GPU_CHUNK * l->bits / 8;
        uint16_t narrow;
        memcpy(&narrow, place + codes + candidate % DCI_GPU_CHUNK * sizeof narrow, sizeof narrow);
        return (double)dci_bf16_to_float(narrow);
}

/* A word has one coordinate of 32 / bits tokens: byte i has tokens i, 4 + i, .., later ones in higher bits. */
static unsigned code_of(const lowbit *l, const unsigned char *place, size_t candidate, size_t coordinate)
{
        const size_t per_line = 32 / l->bits, cell = DCI_CODE_ROWS * BLOCK * l->bits / 8;
        const size_t token = candidate % BLOCK, in_line = token % per_line;
        const unsigned char *block =
                place +
                (candidate % DCI_GPU_CHUNK / BLOCK * (l->dim / DCI_CODE_ROWS) + coordinate / DCI_CODE_ROWS) * cell;
        const unsigned char *word =
                block + token / per_line * 2 * DCI_CODE_LINE + dci_code_word(coordinate % DCI_CODE_ROWS);
        return (unsigned)word[in_line % 4] >> (in_line / 4 * l->bits) & ((1u << l->bits) - 1);
}

static void nothing(const dci_gpu_tail_args *args, size_t query)
{
        memset(args->out + query * (size_t)args->dim, 0, (size_t)args->dim * sizeof(float));
        args->lse[query] = -INFINITY;
}

/* One query head: number `query` of all, `q` of the group. */
static void attend(const lowbit *l, size_t query, size_t q)
{
        const dci_gpu_tail_args *args = l->args;
        const size_t group = (size_t)args->group;
        const double zero = 0.5 * (double)((1u << l->bits) - 1);
        double sums[DCI_GPU_MAX_DIM] = {0.0}, sum = 0.0;
        float most = -FLT_MAX, spare[DCI_GPU_MAX_DIM];
        for (size_t i = 0; i < l->n_candidates; i++)
                most = fmaxf(most, l->scores[i * group + q]);
        if (most == -FLT_MAX) {
                nothing(args, query);
                return;
        }
        for (size_t i = 0; i < l->n_candidates; i++) {
                const double weight = exp((double)l->scores[i * group + q] - (double)most);
                const unsigned char *place = place_of(l, i);
                const double worth = weight > 0.0 ? weight * scale_of(l, place, i) : 0.0;
                sum += weight;
                for (size_t j = 0; j < l->dim && worth != 0.0; j++)
                        sums[j] += worth * ((double)code_of(l, place, i, j) - zero);
        }
        float *out = args->out + query * l->dim;
        const float *centre = args->centres + (l->row * (size_t)args->n_heads + l->head) * l->dim;
        dci_rotation rotation = {.dim = l->dim, .part = 1};
        while (rotation.part <= l->dim / 2)
                rotation.part *= 2;
        memcpy(&rotation.signs, &args->signs, sizeof rotation.signs); /* which it only reads */
        for (size_t j = 0; j < l->dim; j++)
                out[j] = (float)(sums[j] / sum);
        dci_rotate_back(&rotation, out, spare);
        for (size_t j = 0; j < l->dim; j++)
                out[j] += centre[j];
        args->lse[query] = (float)((double)most + log(sum));
}

void dci_gpu_ref_tail(const dci_gpu_tail_args *args)
{
        const size_t n_lists = (size_t)DCI_GPU_LISTS(args), share = (size_t)DCI_GPU_HEAD_LISTS(args),
                     group = (size_t)args->group;
        for (size_t i = 0; i < (size_t)args->n_sequences * n_lists; i++) {
                const size_t sequence = i / n_lists;
                lowbit l = {.args = args,
                            .row = (size_t)args->rows[sequence],
                            .head = i % n_lists / share,
                            .dim = (size_t)args->dim,
                            .bits = (size_t)args->bits,
                            .scores = args->scores + i * (size_t)args->max_groups * group};
                dci_gpu_view view;
                DCI_GPU_VIEW(view, args->sizes, args->n_tokens[sequence], args->n_grouped[sequence]);
                l.n_candidates = view.sparse ? (size_t)view.n_candidates : 0;
                for (size_t q = 0; q < group; q++)
                        attend(&l, i * group + q, q);
        }
}
