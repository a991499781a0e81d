/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * A KV cache on a device against one on the CPU that gets the same calls: plans are the same to the bit, outputs to rounding. Which device it
 * is the environment says (gpu_open.h).
 */
#ifndef DCI_TESTS_GPU_KV_FIXTURE_H
#define DCI_TESTS_GPU_KV_FIXTURE_H

#include "tests/kv_fixture.h"

#include "offload/boundaries.h"
#include "offload/chunk_store.h"
#include "offload/clusters.h"
#include "offload/learned_codes.h"
#include "offload/planner.h"
#include "offload/pool.h"
#include "offload/preselect.h"
#include "offload/prompt.h"
#include "offload/prompt_kmeans.h"
#include "offload/resident.h"
#include "offload/schedule.h"
#include "offload/select.h"
#include "offload/summaries.h"

/* Outputs may differ by this share of their norm, log sums by this share of 1 and their size; more where more than 8 query heads share a
 * kv head, since queries and weights are rounded there. */
#define TWIN_TOLERANCE 2e-3
#define TWIN_TOLERANCE_ROUNDED 1e-2
/* Of one output in a hundred with a tail that learned codes weigh: a byte of a query may be one more or less than the CPU's, which moves all of a
 * list's scores (slack_of in gpu_kv_fixture.c). */
#define TWIN_TOLERANCE_APART 2e-2

/* What two lists of a layer differed in, as they may. */
typedef struct twin_tie {
        struct twin_tie *next;
        size_t layer, list, n;
        int32_t tokens[]; /* ascending */
} twin_tie;

typedef struct twin {
        dci_context *context;
        bool own_context;
        dci_gpu *gpu;
        const dci_gpu_ops *ops;
        void *stream;
        dci_kv_config config;
        dci_gpu_kv *kv;
        dci_kv *cpu;
        const char *what;
        size_t n_looked; /* plans that left tokens out and were compared */
        bool plans; /* the device chooses: the CPU maintains before each step, as the device forms groups then by itself */
        size_t n_lists,
                n_other; /* lists compared; of these, with another group in the place of one that counts as much */
        size_t n_again;  /* of these, lists that a schedule has kept since */
        size_t n_rows, n_apart; /* outputs compared; of these, by more than most may differ */
        twin_tie *ties;         /* of lists that a schedule may keep */
        void *alive;            /* rows of the step, until it ends */
        float *kept;            /* room for outputs and log sums of all plans, or NULL */
        size_t n_kept, kept_room;
} twin;

int32_t twin_device(void);
/* Opens the device that tests run on. */
dci_gpu *twin_gpu(dci_context *context);
/* Defaults of this preset in a small shape: 3 layers of 2 x 2 heads of dim 64 in bf16, the first layer dense, pages of 8, window and
 * rollback 16, budget 96. */
dci_kv_config twin_small(int32_t preset);
/* New orders are used half a period after they were begun. */
void twin_set_period(dci_kv_config *config, size_t period);
/* One sequence of at most 4,096 tokens, small pieces. The host plans, or where the environment has DCI_GPU_PLANNER the device, as far as it
 * can. */
dci_gpu_kv_config twin_on_device(void);

/* The same of so many sequences, planned by the device. */
dci_gpu_kv_config twin_planned_for(size_t n_sequences);
dci_kv_layer *twin_layer_of(dci_kv *kv, int64_t sequence, size_t layer);

/* Whether the environment wants plans of the device, and this preset's are the host's all the same: the suite has run with it. */
bool twin_repeats(int32_t preset);

twin twin_begin(const dci_kv_config *config, const dci_gpu_kv_config *on_device);
twin twin_begin_with(dci_context *context, const dci_kv_config *config, const dci_gpu_kv_config *on_device);
void twin_end(twin *t);

/* Rows of all turns in device memory, and back to freedom. */
typedef struct twin_rows {
        void *keys, *values;
        size_t key_bytes, value_bytes;
        dci_kv_rows rows;
        void *host_keys, *host_values;
} twin_rows;
twin_rows twin_rows_of(twin *t, size_t layer, size_t n_turns, const kv_turn *turns);
void twin_rows_free(twin *t, twin_rows *rows);
void *twin_send(twin *t, const void *from, size_t n_bytes);
void twin_give(twin *t, void *memory, size_t n_bytes);

int64_t twin_open(twin *t);
int64_t twin_fork(twin *t, int64_t sequence, size_t n);
void twin_truncate(twin *t, int64_t sequence, size_t n);
/* With the blocks that are free now, the device's of dense layers and places of resident pages overwritten by NaN. */
void twin_close(twin *t, int64_t sequence);
void twin_poison(twin *t);
/* On both; where the device chooses, on neither. */
void twin_maintain(twin *t);

/* The parts of a step, on both. ends: by turn, whether its prompt ends here (NULL: none). */
void twin_reserve(twin *t, size_t n_turns, const kv_turn *turns);
void twin_append(twin *t, size_t layer, size_t n_turns, const kv_turn *turns);
void twin_prompt(twin *t, size_t layer, const kv_turn *turn);
/* Plans and attends on both, and compares. */
void twin_look(twin *t, size_t layer, size_t n_turns, const kv_turn *turns);
/* Parts of that. Plans of the host are the same; lists of a device's plan, which must be the last one it made, are
 * the CPU's but for groups in the place of others that count the same: t->n_other says in how many lists, and they
 * must be few. */
void twin_same_plans(const twin *t, size_t layer, size_t n, const dci_kv_plan *a, const dci_kv_plan *b);
void twin_plans_alike(twin *t, size_t layer, size_t n, const kv_turn *turns, const dci_kv_plan *wanted);
/* Whether a plan is one of the step that ends the prompt of a sequence whose groups the host lists: it attends to everything. */
bool twin_is_early(const twin *t, size_t layer, int64_t sequence);
/* Whether one query's output is the CPU's, to rounding. */
bool twin_row_alike(const twin *t, const float *got, const float *wanted);
/* Fails unless one query's output and log sum are the CPU's, to rounding. */
void twin_same_row(twin *t, size_t layer, size_t at, const float *got, const float *wanted, float got_lse,
                   float wanted_lse);
void twin_step_end(twin *t, size_t n_turns, const kv_turn *turns);
void twin_abort(twin *t, size_t n_turns, const kv_turn *turns);
/* A whole one; plans: with a plan in each layer. */
void twin_step(twin *t, size_t n_turns, const kv_turn *turns, const bool *ends, bool plans);

/* Opens a sequence with a prompt [0, n) of data, in steps of at most `chunk` tokens (0: one). */
int64_t twin_prefill(twin *t, const kv_data *data, size_t n, size_t chunk);
/* Decodes tokens [from, from + n), with maintenance after each. */
void twin_decode(twin *t, int64_t sequence, const kv_data *data, size_t from, size_t n);

/* Fails unless host memory has the rows of tokens [0, n) of a sequence, which are those of data from `from` on. */
void twin_check_rows(twin *t, int64_t sequence, const kv_data *data, size_t from, size_t n);
dci_gpu_kv_info twin_info(twin *t);

#endif
