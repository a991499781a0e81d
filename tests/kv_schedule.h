/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The naive model of schedules: what plans of one sequence leave to the next ones. */
#ifndef DCI_TESTS_KV_SCHEDULE_H
#define DCI_TESTS_KV_SCHEDULE_H

#include "tests/kv_model.h"

/* What a list was chosen from, and by. */
typedef struct kv_ranking {
        double *scores;    /* of tokens and pages by position; NULL: not known: of codes, of trees, or a choice */
        kv_choice *choice; /* groups that are not by position, and lists in turns; NULL: others */
        size_t first, end, size;
} kv_ranking;

typedef struct kv_schedule {
        dci_kv_config config;
        kv_ranking *rankings; /* [layer][kv head] */
        float *queries;       /* [layer][query head][dim_k], of the last plan that left tokens out */
        bool *listed;         /* [layer] */
        size_t *since, *ends; /* [layer]: plans since lists were chosen; recent_begin then */
        uint64_t n_plans, n_decisions, n_corrections;
        bool lost; /* queries turned by just as much as tau: nobody knows what was decided */
} kv_schedule;

kv_schedule kv_schedule_new(const dci_kv_config *config);
void kv_schedule_free(kv_schedule *s);
/* A fork at n tokens; counts begin again. */
kv_schedule kv_schedule_fork(const kv_schedule *from, size_t n);
void kv_schedule_truncate(kv_schedule *s, size_t n);

/* Whether the model has something to say: lists are kept between plans. */
bool kv_schedule_keeps(const dci_kv_info *info);
/* The layer whose lists this one uses. */
size_t kv_schedule_anchor(const kv_schedule *s, size_t layer);

/* One plan of a layer, in the order of plans: fails unless the lists of sequence i are the best, by the queries that were to decide. */
void kv_schedule_plan(kv_schedule *s, const kv_model *model, const kv_seen *seen, size_t i, size_t layer,
                      const float *queries, const char *what);
/* Fails unless the library has counted as the model has. */
void kv_schedule_check_counts(const kv_schedule *s, const dci_kv_sequence_info *info, const char *what);

#endif
