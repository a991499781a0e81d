/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What the suites of the KV cache share: rows, prefills and steps over several layers and sequences, and all that a cache says of a
 * step as one piece. */
#ifndef DCI_TESTS_KV_FIXTURE_H
#define DCI_TESTS_KV_FIXTURE_H

#include "dci/kv.h"
#include "tests/pdci_fixture.h"

/* The presets, and one more kind after them: sketch+lowbit with learned codes. */
enum { KV_LEARNED = 100 };
static const int32_t kv_presets[] = {DCI_KV_FULL,      DCI_KV_TOPK,          DCI_KV_STREAMING,     DCI_KV_SNAPKV,
                                     DCI_KV_PAGEMEAN,  DCI_KV_QUEST,         DCI_KV_ARKVALE,       DCI_KV_LOWBIT,
                                     DCI_KV_SKETCH,    DCI_KV_SKETCH_SUMS,   DCI_KV_SKETCH_LOWBIT, DCI_KV_ICECACHE,
                                     DCI_KV_CLUSTERKV, DCI_KV_PRKV,          DCI_KV_LOUISKV,       DCI_KV_RETROINFER,
                                     DCI_KV_FREEKV,    DCI_KV_SKETCH_GROUPS, DCI_KV_SKETCH_VERIFY, DCI_KV_PARISKV,
                                     KV_LEARNED};
enum { KV_N_PRESETS = 20, KV_N_KINDS = 21, KV_MOST_TURNS = 64, KV_OBSERVED = 64 };

/* Defaults but for these; no layer is dense. Of sketch+groups so few groups that they are not all. */
dci_kv_config kv_config(int32_t preset, size_t n_layers, size_t n_kv_heads, size_t group, size_t dim);
/* The same of a small shape: 2 layers, 2 x 2 heads of dim 16, pages of 8, window and rollback 16, budget 96. */
dci_kv_config kv_small(int32_t preset);
dci_kv *kv_create(dci_context *context, const dci_kv_config *config);
dci_kv_plan kv_plan(dci_kv *kv, size_t max_sequences);
dci_kv_info kv_info(dci_kv *kv);
dci_kv_sequence_info kv_sequence_info(dci_kv *kv, int64_t sequence);

/* --- rows --------------------------------------------------------------------------------------------------------------- */

/* What tokens hold and what is asked at them. */
typedef struct kv_data {
        size_t n, n_layers, n_kv_heads, group, dim_k, dim_v;
        dci_dtype dtype, query_dtype;
        float *keys, *values, *queries; /* [layer][token][head][dim], as their formats hold them */
        void *stored_keys, *stored_values, *stored_queries;
} kv_data;
/* Normal numbers: keys around some centres, with a part common to all. */
kv_data kv_random(const dci_kv_config *config, size_t n, uint64_t seed);
/* The last n tokens of the trace, dim 64; other heads and layers than the first have some coordinates turned around, and queries
 * that weigh them otherwise. */
enum { KV_TRACE_TOKENS = 7680, KV_TRACE_PROMPT = 7168 };
kv_data kv_trace(const dci_kv_config *config, size_t n);
/* After keys, values or queries were changed: what is stored of them, and they as their formats hold them. */
void kv_data_store(kv_data *data);
void kv_data_free(kv_data *data);
/* Destroys a cache, and frees the data. */
void kv_end(dci_kv *kv, kv_data *data);

/* Rows of one token and layer: all heads, and one. */
const float *kv_key(const kv_data *data, size_t layer, size_t token, size_t head);
const float *kv_value(const kv_data *data, size_t layer, size_t token, size_t head);
const float *kv_query(const kv_data *data, size_t layer, size_t token, size_t query_head);

/* --- steps -------------------------------------------------------------------------------------------------------------- */

/* What one sequence takes part in a step with: tokens [from, from + n) of data. */
typedef struct kv_turn {
        int64_t sequence;
        const kv_data *data;
        size_t from, n;
} kv_turn;

void kv_names_of(size_t n_turns, const kv_turn *turns, int64_t *sequences, size_t *n_tokens);
int64_t kv_open(dci_kv *kv);
/* A fork with the first n tokens of a sequence. */
int64_t kv_fork_at(dci_kv *kv, int64_t sequence, size_t n);
const struct dci_kv_layer *kv_layer_of(dci_kv *kv, int64_t sequence, size_t layer);
void kv_reserve(dci_kv *kv, size_t n_turns, const kv_turn *turns);
/* Rows of all turns in one call. */
void kv_append(dci_kv *kv, size_t layer, size_t n_turns, const kv_turn *turns);
/* Says in one layer that the prompt ends before token `end`. */
void kv_prompt(dci_kv *kv, size_t layer, int64_t sequence, const kv_data *data, size_t end);
void kv_step_end(dci_kv *kv, size_t n_turns, const kv_turn *turns);
/* A whole step without a prompt's end and without plans. */
void kv_feed(dci_kv *kv, size_t n_turns, const kv_turn *turns);

/* The prompt [0, n) in steps of at most `chunk` tokens (0: one step), ended, and waited for. */
void kv_prefill(dci_kv *kv, int64_t sequence, const kv_data *data, size_t n, size_t chunk);
/* Opens a sequence and does so. */
int64_t kv_begin(dci_kv *kv, const kv_data *data, size_t n);

/* Plans and outputs of all layers for some sequences. */
typedef struct kv_seen {
        dci_kv *kv;
        size_t n_sequences, n_layers, n_kv_heads, group, dim_k, dim_v, page_tokens;
        int64_t sequences[KV_MOST_TURNS];
        dci_kv_plan *plans; /* one per layer */
        float *out, *lse;   /* [layer][sequence][query head][dim_v], without dim_v */
} kv_seen;
/* One step with plans and attention in each layer, of queries at the turns' last tokens, and maintenance after it. */
kv_seen kv_decode(dci_kv *kv, size_t n_turns, const kv_turn *turns);
/* The same without new tokens: queries at the turns' token `from`; no step is open. */
kv_seen kv_look(dci_kv *kv, size_t n_turns, const kv_turn *turns);
void kv_seen_free(kv_seen *seen);
/* The parts of that: room for all layers, and the plan and attention of one. */
kv_seen kv_seen_room(dci_kv *kv, size_t n_turns, const kv_turn *turns);
void kv_look_at(kv_seen *seen, size_t layer, size_t n_turns, const kv_turn *turns);

/* The layer's queries of all turns, at token from + n - 1 (n 0: at from): [turn][query head][dim_k] of the query format. free(). */
void *kv_queries(size_t layer, size_t n_turns, const kv_turn *turns);

float *kv_out(const kv_seen *seen, size_t layer, size_t i, size_t query_head);
float *kv_lse(const kv_seen *seen, size_t layer, size_t i, size_t query_head);
/* A list of sequence i: of a kv head, or with query_head_lists of a query head. */
const int32_t *kv_list(const kv_seen *seen, size_t layer, size_t i, size_t number, size_t *out_n);

/* Fails unless sequence i of one and j of the other have the same plans (by positions, not by slots) and the same bits of outputs. */
void kv_same(const kv_seen *a, size_t i, const kv_seen *b, size_t j, const char *what);
/* The same, of outputs alone. */
void kv_same_out(const kv_seen *a, size_t i, const kv_seen *b, size_t j, const char *what);
/* Both sequences decode tokens [from, from + n) of data and see the same at each. */
void kv_alike(dci_kv *a, int64_t sequence_a, dci_kv *b, int64_t sequence_b, const kv_data *data, size_t from, size_t n,
              const char *what);
/* Decodes tokens [from, from + n) of data, one a step. */
void kv_decode_all(dci_kv *kv, int64_t sequence, const kv_data *data, size_t from, size_t n);
/* By the header's words: the budget of a plan of n tokens, and the most candidates that it selects where `waiting` of its
 * tokens are attended to, neither in the sink nor selected. */
size_t kv_budget_of(dci_kv *kv, size_t n);
size_t kv_room_of(dci_kv *kv, size_t n, size_t waiting);
/* Fails unless the plans are what the header says of every plan. prompt: with frozen_prompt, its tokens; else 0. */
void kv_lawful(const kv_seen *seen, const dci_kv_config *config, size_t prompt, const char *what);

/* The same of all their sequences; frees both. */
void kv_same_and_free(kv_seen *a, kv_seen *b, const char *what);

#endif
