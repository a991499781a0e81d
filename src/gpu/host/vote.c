/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Reference of cuda/vote/vote.cu: votes, then the scores of reference `score`. */
#include "gpu/gpu_internal.h"

#include <math.h>
#include <string.h>

#include "gpu/host/learned.h"
#include "gpu/host/reference.h"

#define CODES DCI_VOTE_CODES
#define TIERS DCI_VOTE_TIERS

/* The votes of one list. */
typedef struct voting {
        const dci_gpu_vote_args *args;
        int32_t row, head, n, n_blocks;
        uint64_t list;
        int64_t tiers[TIERS];
        float mean[DCI_GPU_MAX_DIM];
        uint8_t tables[DCI_GPU_MAX_DIM / DCI_VOTE_BLOCK][CODES];
} voting;

static uint8_t code_at(const voting *v, int32_t block, int32_t candidate)
{
        return dci_gpu_chunk_of(
                &v->args->score.summaries, (uint64_t)v->row, (uint64_t)v->head,
                (uint64_t)(candidate / DCI_GPU_CHUNK))[block * DCI_GPU_CHUNK + candidate % DCI_GPU_CHUNK];
}

static void mean_query(voting *v)
{
        const dci_gpu_score_args *s = &v->args->score;
        const size_t dim = (size_t)s->dim;
        for (int32_t q = 0; q < s->group; q++) {
                const uint64_t from = (v->list * (uint64_t)s->group + (uint64_t)q) * s->query_ld;
                float x[DCI_GPU_MAX_DIM] = {0.0f}, y[DCI_GPU_MAX_DIM] = {0.0f};
                for (size_t j = 0; j < dim; j++)
                        x[j] = s->scale * dci_gpu_load(s->queries, from + j, s->query_dtype);
                dci_gpu_ref_rotate(dim, s->signs, x, y);
                for (size_t j = 0; j < dim; j++)
                        v->mean[j] = q == 0 ? y[j] : v->mean[j] + y[j];
        }
        for (size_t j = 0; j < dim; j++)
                v->mean[j] /= (float)s->group;
}

static void set_tiers(voting *v)
{
        static const double ratios[TIERS] = DCI_VOTE_RATIOS;
        const double share = v->args->vote_share > 0.0 ? v->args->vote_share : DCI_VOTE_SHARE(v->n),
                     tokens = share * (double)v->n;
        for (int32_t t = 0; t < TIERS; t++)
                v->tiers[t] = (int64_t)ceil(tokens * ratios[t]);
}

/* Brings the counts of a block's codes to the list's candidates. */
static uint32_t *count_codes(const voting *v, int32_t block)
{
        const dci_gpu_vote_args *args = v->args;
        const uint64_t at = (uint64_t)(v->head * v->n_blocks + block);
        uint32_t *counts = args->counts + (uint64_t)v->row * args->row_counts + at * CODES;
        int32_t *counted = args->counted + (uint64_t)v->row * args->row_counted + at;
        if (*counted == 0)
                memset(counts, 0, CODES * sizeof *counts);
        for (int32_t i = *counted; i < v->n; i++)
                counts[code_at(v, block, i)]++;
        for (int32_t i = v->n; i < *counted; i++)
                counts[code_at(v, block, i)]--;
        *counted = v->n;
        return counts;
}

static void fill_table(voting *v, int32_t block)
{
        const uint32_t *counts = count_codes(v, block);
        const float *q = v->mean + block * DCI_VOTE_BLOCK;
        float scores[CODES] = {0.0f};
        for (int32_t c = 0; c < CODES; c++)
                for (int32_t j = 0; j < DCI_VOTE_BLOCK; j++)
                        scores[c] = (c >> j & 1) != 0 ? scores[c] + q[j] : scores[c] - q[j];
        for (int32_t c = 0; c < CODES; c++) {
                int64_t before = 0;
                for (int32_t i = 0; i < CODES; i++)
                        before += scores[i] > scores[c] || (i < c && scores[i] == scores[c]) ? counts[i] : 0;
                v->tables[block][c] = 0;
                for (int32_t t = 0; t < TIERS; t++)
                        v->tables[block][c] += before < v->tiers[t];
        }
}

/* The candidates with most votes, equal ones by number. */
static void take_most(const voting *v, int32_t wanted, int32_t *out)
{
        uint8_t *votes = v->args->votes + v->list * (uint64_t)v->args->max_ranges * DCI_GPU_VOTE_RANGE;
        int32_t having[DCI_GPU_VOTE_BINS] = {0}, least = DCI_GPU_VOTE_BINS - 1, above = 0, taken = 0;
        for (int32_t i = 0; i < v->n; i++) {
                votes[i] = 0;
                for (int32_t b = 0; b < v->n_blocks; b++)
                        votes[i] = (uint8_t)(votes[i] + v->tables[b][code_at(v, b, i)]);
                having[votes[i]]++;
        }
        for (; above + having[least] < wanted; least--)
                above += having[least];
        int32_t equal = wanted - above;
        for (int32_t i = 0; i < v->n && taken < wanted; i++) {
                const bool more = votes[i] > least, some = votes[i] == least && equal > 0;
                if (more || some)
                        out[taken++] = i;
                equal -= some;
        }
}

static void vote(const dci_gpu_vote_args *args, int32_t sequence, int32_t head, int32_t n)
{
        const dci_gpu_score_args *s = &args->score;
        voting v = {.args = args,
                    .row = s->rows[sequence],
                    .head = head,
                    .n = n,
                    .n_blocks = s->dim / DCI_VOTE_BLOCK,
                    .list = (uint64_t)sequence * (uint64_t)s->n_heads + (uint64_t)head};
        int32_t wanted;
        DCI_VOTED(wanted, n, args->candidate_share, args->least);
        s->units.n_scored[v.list] = wanted < n ? wanted : 0;
        if (wanted >= n)
                return;
        mean_query(&v);
        set_tiers(&v);
        for (int32_t b = 0; b < v.n_blocks; b++)
                fill_table(&v, b);
        take_most(&v, wanted, s->units.lists + v.list * (uint64_t)s->units.stride);
}

void dci_gpu_ref_vote(const dci_gpu_vote_args *args)
{
        const dci_gpu_score_args *s = &args->score;
        for (int32_t i = 0; i < s->n_sequences; i++) {
                dci_gpu_view view;
                const int32_t n = s->n_tokens[i];
                DCI_GPU_VIEW(view, s->sizes, n, s->n_grouped[i]);
                for (int32_t h = 0; h < s->n_heads && view.sparse; h++)
                        if (s->due == NULL || s->due[i * s->n_heads + h] == s->due_is)
                                vote(args, i, h, view.n_candidates);
        }
        dci_gpu_ref_score(s);
}
