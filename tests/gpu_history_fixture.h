/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * All rows of a sequence on the device (dci_gpu_kv_history) against a list of which token has which rows. What a call returns is copied on the
 * stream by work that nothing waits for, so that on a late device (gpu_late.h) a missing order shows. Nothing is freed on the way, which would wait
 * for everything.
 */
#ifndef DCI_TESTS_GPU_HISTORY_FIXTURE_H
#define DCI_TESTS_GPU_HISTORY_FIXTURE_H

#include "tests/gpu_kv_fixture.h"

#include "offload/history.h"

enum { HISTORY_N = 700, HISTORY_MAX_TOKENS = 400, HISTORY_MOST = 4, HISTORY_ROOM = 32 << 20, HISTORY_KINDS = 10 };

/* A sequence: the token of the data that each of its tokens is. */
typedef struct history_tale {
        int64_t id;
        size_t n, more; /* tokens; of these, those of the step that is open */
        bool ended;     /* the prompt */
        int32_t tokens[HISTORY_MAX_TOKENS];
} history_tale;

typedef struct history_life {
        twin t;
        kv_data data;
        size_t row, query; /* bytes of a token's rows, and of its queries, in a layer */
        unsigned char *keys, *values, *queries, *kept;
        struct history_copy *copies;
        size_t n_kept;
        bool early;  /* on a late device, copies are done as early as they may be */
        size_t from; /* the first token of the step in the data */
        history_tale tales[HISTORY_MOST];
        size_t n_tales;
        dci_kv_rows last; /* what the last call returned, for which sequence and layer; keys NULL: nothing */
        size_t last_layer;
        const history_tale *last_tale;
} history_life;

typedef struct history_kind {
        int32_t preset, gather, planner;
        size_t page, dim, heads, dense;
        dci_dtype dtype;
        bool large_pieces;
} history_kind;

/* Presets, gathers and shapes of three layers. The first one, planned by the host, is the usual one, whose first layer is dense; all layers of the
 * third are. */
extern const history_kind history_kinds[HISTORY_KINDS];
dci_kv_config history_config(const history_kind *k);
dci_gpu_kv_config history_device(const history_kind *k);
dci_kv_config history_usual(void);
dci_gpu_kv_config history_usual_device(void);

history_life history_begin(const dci_kv_config *config, const dci_gpu_kv_config *on_device);
/* The life frees the context and the data. */
history_life history_begin_with(dci_context *context, const dci_kv_config *config, const dci_gpu_kv_config *on_device,
                                kv_data data);
void history_end(history_life *l);

/* Keeps what the last call returned, as it is when the work on the stream comes to it. */
void history_keep(history_life *l);
/* Fails unless all that was kept is right. */
void history_check(history_life *l);

history_tale *history_open(history_life *l);
/* Sequences of a step have tokens of the data from `from` on, one after another. */
void history_reserve(history_life *l, size_t n_turns, history_tale *const *turns, const size_t *n_tokens, size_t from);
void history_append(history_life *l, size_t layer);
void history_end_prompt(history_life *l, size_t layer, const history_tale *s);
/* The call under test; what it returns is checked, but for the rows. */
dci_status history_try(history_life *l, size_t layer, const history_tale *s);
/* Asks for a sequence's rows, and keeps them: at once, and what was returned before for a last time. */
void history_ask(history_life *l, size_t layer, const history_tale *s);
void history_step_end(history_life *l);
/* A step of one sequence in which all layers are asked for. */
void history_step(history_life *l, history_tale *s, size_t n, size_t from);

/* Of a token in a buffer. */
size_t history_token_bytes(const history_life *l);

#endif
