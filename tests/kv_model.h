/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The naive model of sequences in a KV cache: arrays, double precision, full sorts. */
#ifndef DCI_TESTS_KV_MODEL_H
#define DCI_TESTS_KV_MODEL_H

#include "tests/kv_fixture.h"

/* One sequence. With query_head_lists it is one of n_query_heads kv heads, whose rows are those of the kv head. */
typedef struct kv_model {
        size_t n_layers, n_kv_heads, group, dim_k, dim_v, n, capacity;
        size_t share; /* heads with the same rows: 1, or with query_head_lists the query heads of a kv head */
        double scale;
        dci_dtype dtype;
        float **keys, **values; /* of [layer][kv head]: n rows, as stored */
} kv_model;
kv_model kv_model_new(const dci_kv_config *config);
/* A sequence with tokens [0, n) of data. */
kv_model kv_model_of(const dci_kv_config *config, const kv_data *data, size_t n);
void kv_model_free(kv_model *model);
void kv_model_append(kv_model *model, const kv_data *data, size_t from, size_t n);
void kv_model_truncate(kv_model *model, size_t n);
kv_model kv_model_fork(const kv_model *model, size_t n);

/* softmax(scale q . K) V over n positions (NULL: 0 to n - 1) and the log of its sum of exponentials. */
void kv_model_attend(const kv_model *model, size_t layer, size_t query_head, const float *query, size_t n,
                     const int32_t *positions, double *out, double *out_lse);

/* Scores of the groups of `size` tokens that [first, end) is cut into, for the group's query rows (dim_k apart), combined: by softmax
 * over all of them (tokens: over the whole sequence), or by mean. summary: KEYS (size 1), MEAN, MINMAX or CUBOID. free(). */
double *kv_model_scores(const kv_model *model, size_t layer, size_t kv_head, const float *queries, int32_t summary,
                        int32_t combine, size_t first, size_t end, size_t size);

/* Fails unless a list of whole groups, one of which may be cut, holds the best groups of [first, end). */
void kv_model_check_list(const kv_model *model, const dci_kv_info *info, const double *scores, size_t first, size_t end,
                         size_t size, const int32_t *list, size_t n_list, const char *what);

/* Fails unless the plan of sequence i has, in each list of a layer, the best tokens or pages there are, as many as the budget wants;
 * scores that differ by rounding may stand for each other. queries: the query heads' rows, dim_k apart. frozen: the
 * recent tokens count as a window. */
void kv_model_check_lists(const kv_model *model, const kv_seen *seen, size_t i, size_t layer, const float *queries,
                          size_t budget, bool frozen, const char *what);

/* The same of listed groups and of lists that are taken in turns, without a look at how many tokens there are: every candidate is in one
 * group, the lists are the naive choice over the groups, and a tail that estimates all groups is what their tokens' means say. */
void kv_model_check_groups(const kv_model *model, const kv_seen *seen, size_t i, size_t layer, const float *queries,
                           const char *what);

/* Those groups of one head and their scores, to hold a list against them that a later plan keeps: candidates before `end` that the list
 * was chosen from. Counted: forks of a model share them. */
typedef struct kv_choice kv_choice;
kv_choice *kv_choice_of(const kv_model *model, const kv_seen *seen, size_t i, size_t layer, size_t head,
                        const float *queries, const char *what);
kv_choice *kv_choice_share(kv_choice *choice);
void kv_choice_drop(kv_choice *choice);
void kv_choice_check(const kv_model *model, const dci_kv_info *info, kv_choice *choice, const int32_t *list,
                     size_t n_list, size_t sink, size_t end, const char *what);

/* Whether groups are ranked by keys, or by a row each that is made of their keys. */
DCI_INLINE bool kv_ranks_rows(int32_t summary)
{
        return summary <= DCI_KV_SUMMARY_CUBOID || summary == DCI_KV_SUMMARY_MEAN_STD;
}

/* The score, without the scale, of a group with these keys (of mean_std with the default weight); and by how much rounding may change one near this. */
double kv_model_score(const float *query, const float *keys, size_t dim, int32_t summary, size_t size);
double kv_model_slack(const kv_model *model, const dci_kv_info *info, double score);

/* Fails unless outputs and log sums of sequence i are attention over the plan's tokens, merged with the plan's tail. */
void kv_model_check_out(const kv_model *model, const kv_seen *seen, size_t i, size_t layer, const float *queries,
                        const char *what);
/* What outputs may differ by, as a share of the largest value, and log sums, as a share of 1 and their size. */
#define KV_TOLERANCE 2e-5

/* Relative error of an output against attention over everything. */
double kv_model_error(const kv_model *model, const kv_seen *seen, size_t i, size_t layer, const float *queries);

#endif
