/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The KV cache: votes of blocks and 4-bit codes of those that have most (pariskv), against a naive choice. */
#include "tests/common.h"

#include <math.h>
#include <string.h>

#include "core/internal.h"
#include "simd/convert.h"
#include "simd/kernels.h"
#include "sketch/rotate.h"
#include "tests/context_fixture.h"
#include "tests/kv_fixture.h"

enum { TOKENS = 900, STEPS = 6, HEADS = 2, GROUP = 3, BLOCK = 8, MOST = 64, TIERS = 6 };

/* --- the naive choice ------------------------------------------------------------------------------------------------------------ */

static const double bounds[] = {0.0843, 0.1698, 0.2578, 0.3499, 0.4487, 0.5585, 0.6901};
static const double levels[] = {0.0420, 0.1266, 0.2130, 0.3025, 0.3973, 0.5001, 0.6169, 0.7633};

/* A key or a query in the rotated frame, with zeros to whole blocks. */
static void turn(const dci_rotation *rotation, const float *row, float unit, float *out)
{
        float spare[MOST];
        memset(out, 0, MOST * sizeof *out);
        for (size_t j = 0; j < rotation->dim; j++)
                out[j] = row[j] / unit;
        dci_rotate(rotation, out, spare);
}

static float greatest(const float *row, size_t dim)
{
        float most = 0.0f;
        for (size_t j = 0; j < dim; j++)
                most = fmaxf(most, fabsf(row[j]));
        return most;
}

static unsigned code_of(const float *y)
{
        unsigned code = 0;
        for (size_t j = 0; j < BLOCK; j++)
                code |= (unsigned)(y[j] >= 0.0f) << j;
        return code;
}

/* The product of a query's block with what is stored of a key's. */
static double estimate(const float *q, const float *y, float unit)
{
        double square = 0.0, match = 0.0, sum = 0.0;
        for (size_t j = 0; j < BLOCK; j++)
                square += (double)y[j] * (double)y[j];
        for (size_t j = 0; j < BLOCK && square > 0.0; j++) {
                const double size = fabs((double)y[j]) / sqrt(square);
                size_t level = 0;
                while (level < COUNT(bounds) && size >= bounds[level])
                        level++;
                match += levels[level] * size;
                sum += (y[j] < 0.0f ? -1.0 : 1.0) * levels[level] * (double)q[j];
        }
        return square > 0.0 ? sum * sqrt(square) / match * (double)unit : 0.0;
}

/* One head's question: candidates [first, first + n) of the data. */
typedef struct question {
        const kv_data *data;
        const dci_rotation *rotation;
        size_t head, token, first, n;
        float queries[GROUP][MOST];
} question;

typedef struct voter {
        double score;
        size_t number;
} voter;

/* Best first, equal ones by number. */
static int by_score(const void *a, const void *b)
{
        const voter *x = a, *y = b;
        return x->score != y->score ? (x->score < y->score) - (x->score > y->score)
                                    : (x->number > y->number) - (x->number < y->number);
}

/* Votes of one block, added to those of all candidates. */
static void vote(const question *a, const float *mean, size_t block, double share, float (*keys)[MOST], voter *votes)
{
        static const double ratios[TIERS] = {0.05, 0.15, 0.3, 0.5, 0.75, 1.0};
        voter codes[256];
        size_t having[256] = {0}, given[256] = {0}, before = 0;
        for (size_t t = 0; t < a->n; t++)
                having[code_of(keys[t] + block * BLOCK)]++;
        for (size_t c = 0; c < 256; c++) {
                float sum = 0.0f;
                for (size_t j = 0; j < BLOCK; j++)
                        sum += (c >> j & 1) != 0 ? mean[block * BLOCK + j] : -mean[block * BLOCK + j];
                codes[c] = (voter){(double)sum, c};
        }
        qsort(codes, 256, sizeof *codes, by_score);
        for (size_t c = 0; c < 256; before += having[codes[c++].number])
                for (size_t t = 0; t < TIERS; t++)
                        given[codes[c].number] += before < (size_t)ceil(share * (double)a->n * ratios[t]);
        for (size_t t = 0; t < a->n; t++)
                votes[t].score += (double)given[code_of(keys[t] + block * BLOCK)];
}

/* A list against the naive choice of `wanted` candidates by their votes, and of the best of those. */
static void check_list(const question *a, double share, size_t wanted, size_t room, const int32_t *list, size_t n_list)
{
        static float keys[TOKENS][MOST];
        static voter votes[TOKENS], best[TOKENS];
        float mean[MOST];
        const size_t dim = a->rotation->dim, n_blocks = (dim + BLOCK - 1) / BLOCK;
        double slack = 0.0;
        for (size_t j = 0; j < MOST; j++) {
                mean[j] = a->queries[0][j];
                for (size_t q = 1; q < GROUP; q++)
                        mean[j] += a->queries[q][j];
                mean[j] /= (float)GROUP;
        }
        for (size_t t = 0; t < a->n; t++) {
                const float *key = kv_key(a->data, 0, a->first + t, a->head);
                turn(a->rotation, key, greatest(key, dim), keys[t]);
                votes[t] = (voter){0.0, t};
        }
        for (size_t b = 0; b < n_blocks; b++)
                vote(a, mean, b, share, keys, votes);
        if (wanted < a->n)
                qsort(votes, a->n, sizeof *votes, by_score);
        for (size_t i = 0; i < wanted; i++) {
                const size_t t = votes[i].number;
                const float *key = kv_key(a->data, 0, a->first + t, a->head);
                best[i] = (voter){0.0, t};
                for (size_t b = 0; b < n_blocks; b++)
                        best[i].score += estimate(mean + b * BLOCK, keys[t] + b * BLOCK, greatest(key, dim));
                slack = fmax(slack, 0.01 * fabs(best[i].score)); /* weights are bf16 */
        }
        qsort(best, wanted, sizeof *best, by_score);
        ck_assert_uint_eq(n_list, room < wanted ? room : wanted);
        for (size_t i = 0; i < n_list; i++) {
                size_t at = 0;
                while (at < wanted && best[at].number + a->first != (size_t)list[i])
                        at++;
                ck_assert_msg(at < wanted, "token %d is in the list, and is no candidate", (int)list[i]);
                test_hold(best[at].score >= best[n_list - 1].score - slack);
        }
        for (size_t at = 0, i; at < n_list && best[at].score > best[n_list - 1].score + slack; at++) {
                for (i = 0; i < n_list && (size_t)list[i] != best[at].number + a->first; i++)
                        continue;
                ck_assert_msg(i < n_list, "candidate %zu, number %zu of the best, is not in the list", best[at].number,
                              at);
        }
}

static const struct {
        size_t dim;
        double votes, candidates;
        int32_t frozen, dtype;
} naive[] = {{16, 0.0, 0.0, 0, DCI_F16}, {64, 0.25, 0.2, 0, DCI_F32}, {20, 0.5, 0.15, 0, DCI_BF16},
             {24, 1.0, 1.0, 0, DCI_F16}, {64, 0.05, 0.3, 1, DCI_F16}, {5, 0.3, 0.3, 0, DCI_F32}};

/* Loops over shapes and shares, at every instruction set that there is. */
START_TEST(lists_are_a_naive_choice_in_two_stages)
{
        dci_context *own = test_context_of_level(_i / (int)COUNT(naive));
        const size_t i = (size_t)_i % COUNT(naive);
        dci_kv_config config = kv_config(DCI_KV_PARISKV, 1, HEADS, GROUP, naive[i].dim);
        config.vote_share = naive[i].votes;
        config.candidate_share = naive[i].candidates;
        config.frozen_prompt = naive[i].frozen;
        config.dtype = naive[i].dtype;
        config.budget = 128;
        kv_data data = kv_random(&config, TOKENS, 41 + i);
        dci_kv *kv = kv_create(own, &config);
        float signs[6 * MOST];
        dci_rotation rotation;
        dci_rng rng;
        dci_rng_seed(&rng, config.seed);
        ck_assert_uint_le(dci_rotation_bytes(config.dim_k), sizeof signs);
        dci_rotation_init(&rng, config.dim_k, signs, &rotation);
        const int64_t sequence = kv_begin(kv, &data, TOKENS - STEPS);
        for (size_t t = TOKENS - STEPS; t < TOKENS; t++) {
                kv_seen seen = kv_decode(kv, 1, &(kv_turn){sequence, &data, t, 1});
                for (size_t h = 0; h < HEADS; h++) {
                        size_t n;
                        const int32_t *list = kv_list(&seen, 0, 0, h, &n);
                        question a = {&data, &rotation, h, t, (size_t)seen.plans[0].sink_end[0], 0, {{0.0f}}};
                        a.n = (size_t)seen.plans[0].recent_begin[0] - a.first;
                        for (size_t q = 0; q < GROUP; q++) {
                                float scaled[MOST] = {0.0f};
                                for (size_t j = 0; j < config.dim_k; j++)
                                        scaled[j] = kv_query(&data, 0, t, h * GROUP + q)[j] *
                                                    (float)(1.0 / sqrt((double)config.dim_k));
                                turn(&rotation, scaled, 1.0f, a.queries[q]);
                        }
                        const double share = naive[i].candidates > 0.0 ? naive[i].candidates : 0.5;
                        const size_t some = (size_t)ceil(share * (double)a.n), longest = config.budget - 4 - 64;
                        const size_t counted = naive[i].frozen != 0 ? 68 : t + 1 - a.n;
                        check_list(&a, naive[i].votes > 0.0 ? naive[i].votes : 0.5, some > longest ? some : longest,
                                   config.budget - counted, list, n);
                }
                kv_seen_free(&seen);
        }
        kv_end(kv, &data);
        dci_context_destroy(own);
}
END_TEST

/* --- laws ------------------------------------------------------------------------------------------------------------------------ */

/* Where all are candidates there is no vote: loops over how heads combine. */
START_TEST(with_all_as_candidates_votes_do_not_matter)
{
        dci_kv_config config = kv_small(DCI_KV_PARISKV), other;
        config.combine = 1 + _i;
        config.candidate_share = 1.0;
        other = config;
        config.vote_share = 0.01;
        other.vote_share = 1.0;
        kv_data data = kv_random(&config, 500, 51);
        dci_kv *one = kv_create(context, &config), *two = kv_create(context, &other);
        kv_alike(one, kv_begin(one, &data, 400), two, kv_begin(two, &data, 400), &data, 400, 50, "all candidates");
        dci_kv_destroy(one);
        kv_end(two, &data);
}
END_TEST

/* The kernels of every level do what the scalar ones do, to the bit. */
START_TEST(kernels_are_alike_at_every_level)
{
        enum { BLOCKS = 19, ROWS = 512 };
        static uint8_t codes[BLOCKS * ROWS], tables[BLOCKS * 256];
        static uint16_t wanted[ROWS], got[ROWS + 1];
        dci_context *own = test_context_of_level(_i);
        unsigned char record[6 * BLOCKS];
        float sizes[8], rows[2][8 * BLOCKS];
        dci_rng rng;
        dci_rng_seed(&rng, 5);
        for (size_t i = 0; i < sizeof codes; i++)
                codes[i] = (uint8_t)dci_rng_next(&rng);
        for (size_t i = 0; i < sizeof tables; i++)
                tables[i] = (uint8_t)dci_rng_below(&rng, 7);
        for (size_t n = 0; n <= ROWS; n += n < 70 ? 1 : 221) {
                got[n] = 4711;
                dci_kernels_scalar.add_looked_up(codes, ROWS, BLOCKS, tables, n, wanted);
                own->kernels->add_looked_up(codes, ROWS, BLOCKS, tables, n, got);
                ck_assert_mem_eq(got, wanted, n * sizeof *got);
                ck_assert_uint_eq(got[n], 4711);
        }
        for (size_t i = 0; i < 8; i++)
                sizes[i] = (float)levels[i];
        for (size_t b = 0; b < BLOCKS; b++) {
                const uint16_t weight = dci_float_to_bf16((float)(b * b) * 0.37f);
                memcpy(record + 4 * BLOCKS + 2 * b, &weight, sizeof weight);
        }
        memcpy(record, codes, (size_t)4 * BLOCKS);
        for (size_t n = 1; n <= BLOCKS; n += 9) {
                dci_kernels_scalar.to_levels(record, n, sizes, rows[0]);
                own->kernels->to_levels(record, n, sizes, rows[1]);
                ck_assert_mem_eq(rows[0], rows[1], n * 8 * sizeof(float));
        }
        dci_context_destroy(own);
}
END_TEST

int main(void)
{
        const int n_levels = (int)test_n_isas();
        Suite *suite = suite_create("kv votes");
        TCase *votes = test_case_with(suite, "votes", 60, context_open_2, context_close);
        tcase_add_loop_test(votes, lists_are_a_naive_choice_in_two_stages, 0, n_levels * (int)COUNT(naive));
        tcase_add_loop_test(votes, with_all_as_candidates_votes_do_not_matter, 0, DCI_KV_COMBINES);
        tcase_add_loop_test(votes, kernels_are_alike_at_every_level, 0, n_levels);
        return test_main(suite);
}
