/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Votes and estimates on a device against a model that counts and sorts everything: candidates are the same, their scores to rounding.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "sketch/rotate.h"
#include "tests/gpu_fixture.h"

#define ROOM ((size_t)48 << 20)
#define SINK 4
#define WINDOW 32
#define RING 64
#define UNIT 8
#define LISTS_MOST 8
#define CLOSE 2e-5
GPU_SUITE(ROOM)

/* What codes are like: as they come, few of them, or all the same. */
enum { MIXED, FEW, SAME };

typedef struct votes_case {
        const char *name;
        int32_t dim, group, query_dtype, n_parts, n_sequences, n_heads, most,
                least; /* most: candidates; least: that are scored */
        double vote_share, candidate_share;
        int32_t data;
} votes_case;

static const votes_case cases[] = {
        {"as published", 128, 4, DCI_BF16, 5, 4, 2, 3000, 64, 0.0, 0.0, MIXED},
        {"one query head", 64, 1, DCI_F16, 1, 4, 2, 2048, 40, 0.0, 0.0, MIXED},
        {"five", 96, 5, DCI_F32, 3, 4, 2, 2600, 100, 0.0, 0.1, MIXED},
        {"sixteen", 256, 16, DCI_BF16, 2, 4, 1, 1500, 100, 0.7, 0.2, MIXED},
        {"eight", 128, 8, DCI_F32, 64, 2, 2, 1200, 100, 0.0, 0.0, MIXED},
        {"few of all", 128, 4, DCI_BF16, 6, 4, 2, 6000, 16, 0.05, 0.003, MIXED},
        {"nearly all", 64, 2, DCI_BF16, 4, 4, 2, 3000, 16, 1.0, 0.999, MIXED},
        {"as many as are asked for at least", 64, 3, DCI_BF16, 4, 4, 2, 3000, 700, 0.0, 0.01, MIXED},
        {"few codes", 128, 4, DCI_BF16, 4, 4, 2, 5200, 32, 0.0, 0.0, FEW},
        {"one code", 128, 4, DCI_BF16, 4, 4, 2, 5200, 32, 0.0, 0.0, SAME},
        {"other shares", 64, 2, DCI_BF16, 12, 1, 1, 12000, 32, 0.0, 0.0, MIXED},
        {"several rounds of ranges", 64, 4, DCI_BF16, 64, 1, 1, 140000, 256, 0.0, 0.0, MIXED},
};

typedef struct votes_state {
        gpu_test *t;
        const votes_case *c;
        dci_rng rng;
        size_t n_lists, n_blocks, head_bytes, chunks; /* chunks: of a row */
        int32_t max_groups, max_ranges, n[4];         /* candidates of each sequence */
        dci_rotation rotation;
        gpu_buffer *piece, *pieces, *numbers, *signs, *queries, *rows, *n_tokens, *n_grouped, *due, *lanes, *scores,
                *parts, *lists, *n_scored;
        gpu_buffer *counts, *counted, *rotated, *tables, *votes, *at_least, *having;
        dci_gpu_vote_args args;
} votes_state;

/* --- data --------------------------------------------------------------------------------------------------------- */

static unsigned char *part_of(const votes_state *s, size_t row, size_t head, size_t chunk)
{
        const size_t number = (size_t)gpu_ints(s->numbers)[row * s->chunks + chunk];
        return s->piece->image + 256 + number * (size_t)s->c->n_heads * s->head_bytes + head * s->head_bytes;
}

static unsigned char drawn_code(votes_state *s)
{
        if (s->c->data != MIXED)
                return (unsigned char)(s->c->data == FEW ? 7 * dci_rng_below(&s->rng, 3) : 90);
        const uint64_t some = dci_rng_below(&s->rng, 256), others = dci_rng_below(&s->rng, 256);
        return (unsigned char)(some & others);
}

static void fill_part(votes_state *s, unsigned char *part)
{
        const size_t n = s->n_blocks, codes = n * DCI_GPU_CHUNK;
        for (size_t i = 0; i < codes; i++)
                part[i] = drawn_code(s);
        for (size_t i = 0; i < DCI_GPU_CHUNK; i++) {
                unsigned char *record = part + codes + i * DCI_VOTE_RECORD(n);
                for (size_t b = 0; b < n; b++) {
                        const uint32_t bits = (uint32_t)dci_rng_below(&s->rng, (uint64_t)1 << 32);
                        const uint16_t weight = (uint16_t)(0x3f00 + dci_rng_below(&s->rng, 256)); /* 0.5 to 2 */
                        memcpy(record + 4 * b, &bits, sizeof bits);
                        memcpy(record + 4 * n + 2 * b, &weight, sizeof weight);
                }
        }
}

static void fill_chunks(votes_state *s)
{
        const size_t n = (size_t)s->c->n_sequences * s->chunks;
        for (size_t i = 0; i < n; i++) {
                const size_t j = (size_t)dci_rng_below(&s->rng, i + 1);
                gpu_ints(s->numbers)[i] = gpu_ints(s->numbers)[j];
                gpu_ints(s->numbers)[j] = (int32_t)i;
        }
        *(unsigned char **)(void *)s->pieces->image = s->piece->device;
        for (size_t i = 0; i < n; i++)
                for (size_t h = 0; h < (size_t)s->c->n_heads; h++)
                        fill_part(s, part_of(s, i / s->chunks, h, i % s->chunks));
}

/* Buffers of a case. Rows are those of sequences, in reverse. */
static void take(votes_state *s, gpu_test *t, const votes_case *c, uint64_t seed)
{
        const size_t lists = (size_t)(c->n_sequences * c->n_heads), group = (size_t)c->group, dim = (size_t)c->dim,
                     blocks = dim / 8;
        *s = (votes_state){
                .t = t, .c = c, .n_lists = lists, .n_blocks = blocks, .head_bytes = DCI_GPU_CHUNK * blocks * 7 + 128};
        gpu_reset(t);
        dci_rng_seed(&s->rng, seed);
        s->chunks = ((size_t)c->most + DCI_GPU_CHUNK - 1) / DCI_GPU_CHUNK;
        s->max_groups = c->most / 2 + c->least + 64 + (c->candidate_share > 0.5 ? c->most : 0);
        s->max_ranges = (c->most + DCI_GPU_VOTE_RANGE - 1) / DCI_GPU_VOTE_RANGE + 1;
        const size_t ranges = lists * (size_t)s->max_ranges;
        s->piece =
                gpu_take(t, 256 + (size_t)c->n_sequences * s->chunks * (size_t)c->n_heads * s->head_bytes, GPU_DEVICE);
        s->pieces = gpu_take(t, sizeof(void *), GPU_DEVICE);
        s->numbers = gpu_take(t, (size_t)c->n_sequences * s->chunks * 4, GPU_DEVICE);
        s->signs = gpu_take(t, dci_rotation_bytes(dim), GPU_DEVICE);
        s->queries = gpu_take(t, lists * group * (dim + 8) * 4, GPU_DEVICE);
        s->rows = gpu_take(t, 4 * 4, GPU_DEVICE);
        s->n_tokens = gpu_take(t, 4 * 4, GPU_DEVICE);
        s->n_grouped = gpu_take(t, 4 * 4, GPU_DEVICE);
        s->due = gpu_take(t, lists * 4, GPU_DEVICE);
        s->lanes = gpu_take(t, lists * (SINK + RING) * dim * 2, GPU_DEVICE);
        s->scores = gpu_take(t, lists * (size_t)s->max_groups * group * sizeof(float), GPU_DEVICE);
        s->parts = gpu_take(t, lists * (size_t)(c->n_parts + 1) * group * 2 * sizeof(float), GPU_DEVICE);
        s->lists = gpu_take(t, lists * (size_t)s->max_groups * 4, GPU_DEVICE);
        s->n_scored = gpu_take(t, lists * 4, GPU_DEVICE);
        s->counts = gpu_take(t, lists * blocks * DCI_VOTE_CODES * 4, GPU_DEVICE);
        s->counted = gpu_take(t, lists * blocks * 4, GPU_DEVICE);
        s->rotated = gpu_take(t, lists * group * dim * sizeof(float), GPU_DEVICE);
        s->tables = gpu_take(t, lists * blocks * DCI_GPU_VOTE_WORDS * 4, GPU_DEVICE);
        s->votes = gpu_take(t, ranges * DCI_GPU_VOTE_RANGE, GPU_DEVICE);
        s->at_least = gpu_take(t, ranges * DCI_GPU_VOTE_BINS * 2, GPU_DEVICE);
        s->having = gpu_take(t, lists * DCI_GPU_VOTE_BINS * 4, GPU_DEVICE);
        dci_rotation_init(&s->rng, dim, s->signs->image, &s->rotation);
        fill_chunks(s);
        gpu_numbers(&s->rng, s->queries->image, lists * group * (dim + 8), c->query_dtype, 1.0f);
        gpu_numbers(&s->rng, s->lanes->image, lists * (SINK + RING) * dim, DCI_BF16, 1.0f);
        memset(s->counted->image, 0, s->counted->n_bytes);
        for (size_t i = 0; i < lists; i++)
                gpu_ints(s->due)[i] = 1;
        gpu_send_all(t);
}

/* The first sequence has most candidates, the second one all of whose candidates are scored, the third attends to all. */
static void set_lengths(votes_state *s, int32_t less)
{
        const votes_case *c = s->c;
        for (int32_t i = 0; i < c->n_sequences; i++) {
                const int32_t some =
                        (int32_t)dci_rng_below(&s->rng, (uint64_t)(c->most - c->least) / UNIT) * UNIT + c->least;
                s->n[i] = (i == 0 ? c->most - less : i == 1 ? c->least : i == 2 ? UNIT : some) / UNIT * UNIT;
                gpu_ints(s->rows)[i] = c->n_sequences - 1 - i;
                gpu_ints(s->n_tokens)[i] = SINK + WINDOW + s->n[i] + (i == 2 ? 0 : (i + less / UNIT) % UNIT);
                gpu_ints(s->n_grouped)[i] = s->n[i] + (i == 0 ? less : 0);
        }
        gpu_send(s->t, s->rows);
        gpu_send(s->t, s->n_tokens);
        gpu_send(s->t, s->n_grouped);
}

static dci_gpu_score_args score_args(const votes_state *s)
{
        const votes_case *c = s->c;
        const uint32_t row_bytes = (uint32_t)c->dim * 2;
        return (dci_gpu_score_args){
                .n_sequences = c->n_sequences,
                .n_heads = c->n_heads,
                .group = c->group,
                .dim = c->dim,
                .kind = DCI_GPU_VOTES,
                .dtype = DCI_BF16,
                .query_dtype = c->query_dtype,
                .n_parts = c->n_parts,
                .max_groups = s->max_groups,
                .scale = 0.3f,
                .sizes = {.sink = SINK, .window = WINDOW, .budget = SINK + WINDOW + UNIT, .unit = UNIT},
                .queries = gpu_at(s->queries, false),
                .query_ld = (uint64_t)c->dim + 8,
                .rows = gpu_at(s->rows, false),
                .n_tokens = gpu_at(s->n_tokens, false),
                .n_grouped = gpu_at(s->n_grouped, false),
                .summaries = {.pieces = gpu_at(s->pieces, false),
                              .numbers = gpu_at(s->numbers, false),
                              .stride = s->chunks,
                              .layer_at = 256,
                              .chunk_bytes = (uint64_t)c->n_heads * s->head_bytes,
                              .head_bytes = (uint32_t)s->head_bytes,
                              .piece_shift = 20},
                .signs = gpu_at(s->signs, false),
                .lanes = {.keys = gpu_at(s->lanes, false),
                          .values = gpu_at(s->lanes, false),
                          .key_bytes = row_bytes,
                          .value_bytes = row_bytes,
                          .sink = SINK,
                          .ring = RING,
                          .n_slots = SINK + RING},
                .scores = gpu_at(s->scores, false),
                .parts = gpu_at(s->parts, false),
                .due_is = 1,
                .units = {.lists = gpu_at(s->lists, false),
                          .n_scored = gpu_at(s->n_scored, false),
                          .stride = s->max_groups,
                          .singles = 1}};
}

static void set_args(votes_state *s)
{
        const uint64_t per_row = (uint64_t)s->c->n_heads * s->n_blocks;
        s->args = (dci_gpu_vote_args){.score = score_args(s),
                                      .vote_share = s->c->vote_share,
                                      .candidate_share = s->c->candidate_share,
                                      .least = s->c->least,
                                      .max_ranges = s->max_ranges,
                                      .n_ranges = s->max_ranges,
                                      .counts = gpu_at(s->counts, false),
                                      .counted = gpu_at(s->counted, false),
                                      .row_counts = per_row * DCI_VOTE_CODES,
                                      .row_counted = per_row,
                                      .queries = gpu_at(s->rotated, false),
                                      .tables = gpu_at(s->tables, false),
                                      .votes = gpu_at(s->votes, false),
                                      .at_least = gpu_at(s->at_least, false),
                                      .having = gpu_at(s->having, false)};
}

/* --- the model ---------------------------------------------------------------------------------------------------- */

typedef struct ranked {
        double score;
        int32_t number;
} ranked;

static int best_first(const void *a, const void *b)
{
        const ranked *x = a, *y = b;
        if (x->score != y->score)
                return x->score > y->score ? -1 : 1;
        return (x->number > y->number) - (x->number < y->number);
}

static int by_number(const void *a, const void *b)
{
        const ranked *x = a, *y = b;
        return (x->number > y->number) - (x->number < y->number);
}

static double share_at(int32_t n, const double (*shares)[2], size_t n_shares)
{
        size_t i = 0;
        while (i + 1 < n_shares && n >= shares[i][0])
                i++;
        return shares[i][1];
}

static void rotated(const votes_state *s, size_t list, size_t q, float *out)
{
        float spare[DCI_GPU_MAX_DIM];
        const size_t dim = (size_t)s->c->dim;
        for (size_t j = 0; j < dim; j++)
                out[j] = gpu_number(s->queries->image, (list * (size_t)s->c->group + q) * (dim + 8) + j,
                                    s->c->query_dtype) *
                         0.3f;
        dci_rotate(&s->rotation, out, spare);
}

/* Adds a block's votes for n candidates. */
static void add_block(const votes_state *s, size_t row, size_t head, size_t block, int32_t n, const float *mean,
                      ranked *votes)
{
        static const double ratios[] = {0.05, 0.15, 0.3, 0.5, 0.75, 1.0};
        static const double shares[][2] = {{5000, 0.5}, {10000, 0.3}, {30000, 0.25}, {0, 0.2}};
        const double share = s->c->vote_share > 0.0 ? s->c->vote_share : share_at(n, shares, COUNT(shares));
        int32_t counts[256] = {0}, of_code[256] = {0}, before = 0;
        ranked codes[256];
        for (int32_t i = 0; i < n; i++)
                counts[part_of(s, row, head,
                               (size_t)i / DCI_GPU_CHUNK)[block * DCI_GPU_CHUNK + (size_t)i % DCI_GPU_CHUNK]]++;
        for (int32_t c = 0; c < 256; c++) {
                float score = 0.0f;
                for (size_t j = 0; j < 8; j++)
                        score = (c >> j) % 2 != 0 ? score + mean[8 * block + j] : score - mean[8 * block + j];
                codes[c] = (ranked){(double)score, c};
        }
        qsort(codes, 256, sizeof *codes, best_first);
        for (int32_t c = 0; c < 256; c++) {
                for (size_t t = 0; t < COUNT(ratios); t++)
                        of_code[codes[c].number] += before < ceil(share * (double)n * ratios[t]);
                before += counts[codes[c].number];
        }
        for (int32_t i = 0; i < n; i++)
                votes[i].score += of_code[part_of(
                        s, row, head, (size_t)i / DCI_GPU_CHUNK)[block * DCI_GPU_CHUNK + (size_t)i % DCI_GPU_CHUNK]];
}

/* The candidates that are scored, ascending; returns how many. */
static int32_t model(const votes_state *s, size_t list, int32_t n, ranked *out)
{
        static const double shares[][2] = {{5000, 0.5}, {10000, 0.25}, {30000, 0.2}, {0, 0.1}};
        const double share = s->c->candidate_share > 0.0 ? s->c->candidate_share : share_at(n, shares, COUNT(shares));
        const size_t heads = (size_t)s->c->n_heads, row = (size_t)gpu_ints(s->rows)[list / heads];
        int32_t wanted = (int32_t)ceil(share * (double)n);
        float mean[DCI_GPU_MAX_DIM] = {0.0f}, x[DCI_GPU_MAX_DIM] = {0.0f};
        wanted = wanted > s->c->least ? wanted : s->c->least;
        wanted = wanted < n ? wanted : n;
        for (int32_t i = 0; i < n; i++)
                out[i] = (ranked){0.0, i};
        if (wanted == n)
                return n;
        for (size_t q = 0; q < (size_t)s->c->group; q++) {
                rotated(s, list, q, x);
                for (size_t j = 0; j < (size_t)s->c->dim; j++)
                        mean[j] = q == 0 ? x[j] : mean[j] + x[j];
        }
        for (size_t j = 0; j < (size_t)s->c->dim; j++)
                mean[j] /= (float)s->c->group;
        for (size_t b = 0; b < s->n_blocks; b++)
                add_block(s, row, list % heads, b, n, mean, out);
        qsort(out, (size_t)n, sizeof *out, best_first);
        qsort(out, (size_t)wanted, sizeof *out, by_number);
        return wanted;
}

static double estimate(const votes_state *s, size_t list, int32_t candidate, const float *query)
{
        static const double levels[] = {0.0420, 0.1266, 0.2130, 0.3025, 0.3973, 0.5001, 0.6169, 0.7633};
        const size_t heads = (size_t)s->c->n_heads, row = (size_t)gpu_ints(s->rows)[list / heads], n = s->n_blocks;
        const unsigned char *record = part_of(s, row, list % heads, (size_t)candidate / DCI_GPU_CHUNK) +
                                      n * DCI_GPU_CHUNK + (size_t)candidate % DCI_GPU_CHUNK * DCI_VOTE_RECORD(n);
        double sum = 0.0;
        for (size_t j = 0; j < 8 * n; j++) {
                const int code = record[j / 2] >> (4 * (j % 2)) & 15;
                const double weight = gpu_number(record + 4 * n, j / 8, DCI_BF16);
                sum += (code >= 8 ? -1.0 : 1.0) * levels[code % 8] * weight * (double)query[j];
        }
        return sum;
}

/* The sum of exponentials in parts [first, last). */
static double sum_of(const float *parts, int32_t first, int32_t last, size_t group, size_t q)
{
        double sum = 0.0;
        for (int32_t p = first; p < last; p++)
                sum += (double)parts[((size_t)p * group + q) * 2 + 1] * exp((double)parts[((size_t)p * group + q) * 2]);
        return sum;
}

static void check_scores(const votes_state *s, size_t list, const ranked *wanted, int32_t n, const char *what)
{
        const size_t group = (size_t)s->c->group;
        const float *scores = (const float *)(const void *)s->scores->back + list * (size_t)s->max_groups * group,
                    *parts = (const float *)(const void *)s->parts->back +
                             list * (size_t)(s->c->n_parts + 1) * group * 2;
        for (size_t q = 0; q < group; q++) {
                float query[DCI_GPU_MAX_DIM] = {0.0f};
                double sum = 0.0, most = -INFINITY, greatest = -INFINITY;
                rotated(s, list, q, query);
                for (int32_t i = 0; i < n; i++) {
                        const double score = estimate(s, list, wanted[i].number, query),
                                     got = (double)scores[(size_t)i * group + q];
                        ck_assert_msg(fabs(got - score) <= CLOSE * (1 + fabs(score)),
                                      "%s, %s: list %zu, query %zu: score %d of %d is %.9g, not %.9g", s->c->name, what,
                                      list, q, i, n, got, score);
                        sum += exp(score);
                        most = fmax(most, got);
                }
                for (int32_t p = 0; p < s->c->n_parts; p++)
                        greatest = fmax(greatest, (double)parts[((size_t)p * group + q) * 2]);
                ck_assert_msg(greatest == most, "%s, %s: list %zu, query %zu: the greatest is %.9g, not %.9g",
                              s->c->name, what, list, q, greatest, most);
                const double got = sum_of(parts, 0, s->c->n_parts, group, q);
                ck_assert_msg(fabs(got - sum) <= 1e-4 * sum, "%s, %s: list %zu, query %zu: sum %.9g, not %.9g",
                              s->c->name, what, list, q, got, sum);
        }
}

/* Tokens that every plan attends to. */
static void check_kept(const votes_state *s, size_t list, const char *what)
{
        const size_t group = (size_t)s->c->group, dim = (size_t)s->c->dim, heads = (size_t)s->c->n_heads;
        const int32_t i = (int32_t)(list / heads), n_tokens = gpu_ints(s->n_tokens)[i], n = s->n[i];
        const size_t held = (size_t)gpu_ints(s->rows)[i] * heads + list % heads;
        const float *parts =
                (const float *)(const void *)s->parts->back + list * (size_t)(s->c->n_parts + 1) * group * 2;
        for (size_t q = 0; q < group; q++) {
                double sum = 0.0;
                for (int32_t p = 0; p < n_tokens; p++) {
                        const size_t slot = held * (SINK + RING) + (size_t)(p < SINK ? p : SINK + p % RING);
                        double score = 0.0;
                        for (size_t j = 0; j < dim && (p < SINK || p >= SINK + n); j++)
                                score += 0.3 *
                                         (double)gpu_number(s->queries->image, (list * group + q) * (dim + 8) + j,
                                                            s->c->query_dtype) *
                                         (double)gpu_number(s->lanes->image, slot * dim + j, DCI_BF16);
                        sum += p < SINK || p >= SINK + n ? exp(score) : 0.0;
                }
                const double got = sum_of(parts, s->c->n_parts, s->c->n_parts + 1, group, q);
                ck_assert_msg(fabs(got - sum) <= 1e-4 * sum, "%s, %s: list %zu, query %zu, kept: sum %.9g, not %.9g",
                              s->c->name, what, list, q, got, sum);
        }
}

static void check(votes_state *s, const char *what)
{
        const votes_case *c = s->c;
        gpu_buffer *const outs[] = {s->scores,  s->parts,  s->lists, s->n_scored, s->counts, s->counted,
                                    s->rotated, s->tables, s->votes, s->at_least, s->having};
        for (size_t i = 0; i < COUNT(outs); i++) {
                gpu_fetch(s->t, outs[i]);
                gpu_guarded(outs[i], what);
        }
        ranked *wanted = malloc((size_t)c->most * sizeof *wanted);
        ck_assert_ptr_nonnull(wanted);
        for (size_t list = 0; list < s->n_lists; list++) {
                const int32_t i = (int32_t)list / c->n_heads,
                              n_scored = ((const int32_t *)(const void *)s->n_scored->back)[list];
                if (i == 2) {
                        ck_assert_msg(n_scored == -1, "%s, %s: list %zu of a sequence that attends to all", c->name,
                                      what, list);
                        continue;
                }
                const int32_t n = model(s, list, s->n[i], wanted),
                              *got = (const int32_t *)(const void *)s->lists->back + list * (size_t)s->max_groups;
                ck_assert_msg(n_scored == (n < s->n[i] ? n : 0), "%s, %s: list %zu has %d scores, not %d", c->name,
                              what, list, n_scored, n);
                for (int32_t k = 0; k < n && n < s->n[i]; k++)
                        ck_assert_msg(got[k] == wanted[k].number,
                                      "%s, %s: list %zu, score %d of %d is of %d, not of %d", c->name, what, list, k, n,
                                      got[k], wanted[k].number);
                check_scores(s, list, wanted, n, what);
                check_kept(s, list, what);
        }
        free(wanted);
}

/* --- laws --------------------------------------------------------------------------------------------------------- */

/* Counts are brought up to date: candidates come, in one call or a graph, and go. */
START_TEST(candidates_with_most_votes_are_scored)
{
        votes_state s;
        void *graph = NULL;
        if (test_short() && cases[_i].most > 100000)
                return;
        take(&s, &gpu, &cases[_i], 11 + (uint64_t)_i);
        memset(s.n_scored->image, 0xff, s.n_scored->n_bytes);
        gpu_send(&gpu, s.n_scored);
        set_args(&s);
        set_lengths(&s, 48);
        ck_ok(gpu.ops->vote(gpu.gpu, gpu.stream, &s.args));
        check(&s, "a call");
        ck_ok(gpu.ops->capture_begin(gpu.gpu, gpu.stream));
        ck_ok(gpu.ops->vote(gpu.gpu, gpu.stream, &s.args));
        ck_ok(gpu.ops->capture_end(gpu.gpu, gpu.stream, &graph));
        set_lengths(&s, 0);
        ck_ok(gpu.ops->graph_launch(gpu.gpu, graph, gpu.stream));
        check(&s, "a graph, with more");
        if (cases[_i].most < 100000) {
                set_lengths(&s, 640);
                ck_ok(gpu.ops->graph_launch(gpu.gpu, graph, gpu.stream));
                check(&s, "a graph, with less");
        }
        gpu.ops->graph_destroy(gpu.gpu, graph);
}
END_TEST

/* Lists that are not due stay as they were, with their counts. */
START_TEST(what_is_not_due_is_left_alone)
{
        votes_state s;
        take(&s, &gpu, &cases[0], 5);
        memset(s.n_scored->image, 0xff, s.n_scored->n_bytes);
        gpu_send(&gpu, s.n_scored);
        set_args(&s);
        set_lengths(&s, 0);
        s.args.score.due = gpu_at(s.due, false);
        s.args.score.due_is = 2;
        ck_ok(gpu.ops->vote(gpu.gpu, gpu.stream, &s.args));
        gpu_same(&gpu, s.lists, "lists");
        gpu_same(&gpu, s.n_scored, "numbers");
        gpu_same(&gpu, s.scores, "scores");
        gpu_same(&gpu, s.counted, "what is counted");
        s.args.score.due_is = 1;
        s.args.score.fresh = 1;
        ck_ok(gpu.ops->vote(gpu.gpu, gpu.stream, &s.args));
        check(&s, "due");
        if (!gpu_is_host(&gpu)) {
                s.args.score.kind = DCI_GPU_CODES;
                ck_refused(gpu.ops->vote(gpu.gpu, gpu.stream, &s.args), DCI_ERR_UNSUPPORTED, "summaries of kind 1");
                s.args.score.kind = DCI_GPU_VOTES;
                s.args.score.n_parts = DCI_GPU_MAX_PARTS + 1;
                ck_refused(gpu.ops->vote(gpu.gpu, gpu.stream, &s.args), DCI_ERR_LIMIT, "65 parts");
        }
}
END_TEST

/* Queries that are no numbers choose something, and end. */
START_TEST(bad_queries_end)
{
        votes_state s;
        take(&s, &gpu, &cases[0], 6);
        memset(s.queries->image, 0xff, s.queries->n_bytes);
        gpu_send(&gpu, s.queries);
        set_args(&s);
        set_lengths(&s, 0);
        ck_ok(gpu.ops->vote(gpu.gpu, gpu.stream, &s.args));
        gpu_fetch(&gpu, s.n_scored);
        gpu_fetch(&gpu, s.lists);
        gpu_fetch(&gpu, s.scores);
        gpu_guarded(s.lists, "lists");
        gpu_guarded(s.scores, "scores");
        const int32_t *list = (const int32_t *)(const void *)s.lists->back,
                      n = *(const int32_t *)(const void *)s.n_scored->back;
        ck_assert_int_eq(n, s.c->most / 2);
        for (int32_t i = 0; i < n; i++)
                ck_assert(list[i] < s.n[0] && (i == 0 ? list[0] >= 0 : list[i] > list[i - 1]));
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("gpu_votes");
        TCase *tcase = test_case_with(suite, "gpu_votes", 120, setup, teardown);
        tcase_add_loop_test(tcase, candidates_with_most_votes_are_scored, 0, (int)COUNT(cases));
        tcase_add_test(tcase, what_is_not_due_is_left_alone);
        tcase_add_test(tcase, bad_queries_end);
        return test_main(suite);
}
