/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Steps: reserve, assign blocks, append, end, abort. All memory is allocated by reserve. */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "kv/clusters.h"
#include "kv/contiguous.h"
#include "kv/geometry.h"
#include "kv/lookup.h"
#include "kv/maintain.h"
#include "kv/memory.h"
#include "kv/plan_scratch.h"
#include "kv/pool.h"
#include "kv/prompt.h"
#include "kv/sequence.h"
#include "kv/stages/schedule.h"
#include "kv/step.h"

static size_t wanted(const size_t *n_tokens, size_t i)
{
        return n_tokens != NULL ? n_tokens[i] : 1;
}

/* Whether the step will write into a block that another sequence has, too. */
static bool cuts_shared(const dci_kv *kv, const dci_kv_sequence *sequence)
{
        const size_t per_page = kv->config.page_tokens;
        return sequence->n % per_page != 0 && kv->pool.refs[sequence->table[sequence->n / per_page]] > 1;
}

static dci_status check_reserve(dci_kv *kv, const dci_kv_sequence *sequence, size_t n, size_t *blocks)
{
        if (sequence->open)
                return dci_fail(DCI_ERR_INVALID, "sequence %lld is in the middle of a step", (long long)sequence->id);
        if (n > DCI_KV_MAX_TOKENS - sequence->n)
                return dci_fail(DCI_ERR_LIMIT, "sequence %lld has %zu tokens and would get %zu more, the most are %zu",
                                (long long)sequence->id, sequence->n, n, DCI_KV_MAX_TOKENS);
        const size_t after = dci_kv_blocks_of(kv, sequence->n + n);
        const bool copies = n > 0 && cuts_shared(kv, sequence);
        if (kv->pool.caller_blocks) {
                if (after > sequence->n_table)
                        return dci_fail(DCI_ERR_FULL, "sequence %lld needs %zu blocks, but %zu are lent to it",
                                        (long long)sequence->id, after, sequence->n_table);
        } else if (after > sequence->n_table || copies) {
                *blocks += (after > sequence->n_table ? after - sequence->n_table : 0) + (copies ? 1 : 0);
        }
        return DCI_OK;
}

/* Waits for orders in the making whose candidates reach into the partial block: workers read its rows by the table. */
static void wait_for_orders(dci_kv *kv, const dci_kv_sequence *sequence)
{
        const size_t whole = sequence->n / kv->config.page_tokens * kv->config.page_tokens;
        for (size_t l = 0; l < kv->config.n_layers; l++) {
                const dci_kv_reorder *of = sequence->layers[l].reorder;
                if (of != NULL && of->queued && kv->config.sink + of->batch->n > whole)
                        dci_kv_jobs_wait_layer(kv, &sequence->layers[l]);
        }
}

/* Replaces the partial block by a copy of its own. No unit reads its entry in the table then: a prompt that is worked
 * on shares no partial block. */
static void copy_block(dci_kv *kv, dci_kv_sequence *sequence)
{
        const size_t per_page = kv->config.page_tokens, at = sequence->n / per_page;
        const int32_t old = sequence->table[at], own = dci_kv_pool_alloc(&kv->pool);
        wait_for_orders(kv, sequence);
        dci_kv_copy_rows(kv, old, own, sequence->n % per_page);
        sequence->table[at] = own;
        dci_kv_pool_release(&kv->pool, old);
}

/* While keys and values exceed resident_bytes, makes the longest sequence sparse: at the end of its step if it is in the middle of one, of
 * which layers may have been planned. */
static void enforce_memory_limit(dci_kv *kv)
{
        const size_t token_bytes = kv->config.n_layers * kv->config.n_kv_heads * (kv->dim_k + kv->dim_v) * kv->es;
        for (;;) {
                dci_kv_sequence *longest = NULL;
                size_t tokens = 0;
                for (size_t i = 0; i < kv->n_sequences; i++) {
                        dci_kv_sequence *sequence = kv->sequences[i];
                        if (!sequence->resident || sequence->leaves)
                                continue;
                        tokens += sequence->n + sequence->n_reserved;
                        if (longest == NULL || sequence->n + sequence->n_reserved > longest->n + longest->n_reserved)
                                longest = sequence;
                }
                if (longest == NULL || tokens <= kv->config.resident_bytes / token_bytes)
                        return;
                if (longest->open && longest->mark != kv->mark)
                        longest->leaves = true;
                else
                        longest->resident = false;
        }
}

static void close_step(dci_kv_sequence *sequence)
{
        sequence->n_reserved = 0;
        sequence->open = false;
        sequence->resident = sequence->resident && !sequence->leaves;
        sequence->leaves = false;
}

static dci_status prepare(dci_kv *kv, size_t n_sequences, dci_kv_sequence **found, const size_t *n_tokens)
{
        size_t blocks = 0, longest = 0, n_late = 0, tables = 0;
        for (size_t i = 0; i < n_sequences; i++) {
                DCI_TRY(check_reserve(kv, found[i], wanted(n_tokens, i), &blocks));
                const size_t after = found[i]->n + wanted(n_tokens, i);
                longest = after > longest ? after : longest;
                tables += dci_kv_grow_bytes(found[i]->table_capacity, dci_kv_blocks_of(kv, after), sizeof(int32_t));
        }
        /* What a limit of memory would refuse is refused before anything is taken. */
        DCI_TRY(dci_kv_check_room(kv, dci_kv_pool_bytes(&kv->pool, blocks) +
                                              (kv->former.host_plans ? dci_kv_plans_bytes(kv, longest) : 0) + tables));
        if (kv->former.host_plans)
                DCI_TRY(dci_kv_plans_ready(kv, longest));
        for (size_t i = 0; i < n_sequences; i++)
                DCI_TRY(dci_kv_grow_table(kv, found[i], dci_kv_blocks_of(kv, found[i]->n + wanted(n_tokens, i))));
        for (size_t i = 0; i < n_sequences; i++)
                DCI_TRY(dci_kv_boundaries_ready(kv, found[i], wanted(n_tokens, i)));
        if (blocks > 0)
                DCI_TRY(dci_kv_pool_ready(kv, &kv->pool, blocks));
        /* Last, since groups that are formed stay. */
        for (size_t i = 0; i < n_sequences && kv->former.host_plans; i++)
                if (dci_kv_pending(kv, found[i], wanted(n_tokens, i)))
                        kv->late[n_late++] = found[i];
        return n_late > 0 ? dci_kv_build_pending(kv, n_late, kv->late, true) : DCI_OK;
}

dci_status dci_kv_reserve(dci_kv *kv, size_t n_sequences, const int64_t *sequences, const size_t *n_tokens)
{
        dci_kv_sequence **found;
        DCI_TRY(dci_kv_begin_call(kv, n_sequences, sequences, &found));
        dci_status status = prepare(kv, n_sequences, found, n_tokens);
        for (size_t i = 0; i < n_sequences && status == DCI_OK; i++) {
                dci_kv_sequence *sequence = found[i];
                const size_t n = wanted(n_tokens, i);
                if (!kv->pool.caller_blocks && n > 0 && cuts_shared(kv, sequence))
                        copy_block(kv, sequence);
                while (sequence->n_table < dci_kv_blocks_of(kv, sequence->n + n))
                        sequence->table[sequence->n_table++] = dci_kv_pool_alloc(&kv->pool);
                sequence->open = true;
                sequence->n_reserved = n;
        }
        if (status == DCI_OK && kv->config.resident_bytes > 0)
                enforce_memory_limit(kv);
        dci_kv_unlock(kv);
        return status;
}

/* A number that no block has been marked with. */
static uint32_t next_stamp(dci_kv *kv)
{
        dci_kv_pool *pool = &kv->pool;
        if (++pool->stamp == 0) {
                memset(pool->seen, 0, pool->n_blocks * sizeof *pool->seen);
                pool->stamp = 1;
        }
        return pool->stamp;
}

static dci_status assign_blocks(dci_kv *kv, dci_kv_sequence *sequence, size_t n_blocks, const int32_t *blocks)
{
        if (kv->config.layout == NULL || kv->layout.blocks_by != DCI_KV_BLOCKS_BY_CALLER)
                return dci_fail(DCI_ERR_INVALID, "blocks are lent with DCI_KV_BLOCKS_BY_CALLER only");
        if (sequence->open)
                return dci_fail(DCI_ERR_INVALID, "sequence %lld is in the middle of a step", (long long)sequence->id);
        if (n_blocks > 0 && blocks == NULL)
                return dci_fail(DCI_ERR_INVALID, "blocks is NULL");
        for (size_t i = 0; i < n_blocks; i++)
                if (blocks[i] < 0 || (size_t)blocks[i] >= kv->pool.n_blocks)
                        return dci_fail(DCI_ERR_INVALID, "block %zu is %d, expected 0 to %zu", i, (int)blocks[i],
                                        kv->pool.n_blocks - 1);
        uint32_t *seen = kv->pool.seen;
        const uint32_t stamp = next_stamp(kv);
        for (size_t i = 0; i < sequence->n_table; i++)
                seen[sequence->table[i]] = stamp;
        for (size_t i = 0; i < n_blocks; i++) {
                if (seen[blocks[i]] == stamp)
                        return dci_fail(DCI_ERR_INVALID, "sequence %lld would get block %d twice",
                                        (long long)sequence->id, (int)blocks[i]);
                seen[blocks[i]] = stamp;
        }
        if (n_blocks > dci_kv_blocks_of(kv, DCI_KV_MAX_TOKENS) - sequence->n_table)
                return dci_fail(DCI_ERR_LIMIT, "sequence %lld has %zu blocks and would get %zu more",
                                (long long)sequence->id, sequence->n_table, n_blocks);
        const dci_status status = dci_kv_grow_table(kv, sequence, sequence->n_table + n_blocks);
        for (size_t i = 0; i < n_blocks && status == DCI_OK; i++) {
                dci_kv_pool_retain(&kv->pool, blocks[i]);
                sequence->table[sequence->n_table++] = blocks[i];
        }
        return status;
}

dci_status dci_kv_assign_blocks(dci_kv *kv, int64_t sequence, size_t n_blocks, const int32_t *blocks)
{
        DCI_TRY(dci_kv_lock(kv));
        dci_kv_sequence *found = dci_kv_find(kv, sequence);
        dci_status status = found == NULL ? DCI_ERR_NOT_FOUND : assign_blocks(kv, found, n_blocks, blocks);
        dci_kv_unlock(kv);
        return status;
}

/* --- append ------------------------------------------------------------------------------------------------------- */

#define TASK_TOKENS ((size_t)256)

typedef struct appending {
        dci_kv *kv;
        size_t layer, n_sequences;
        dci_kv_sequence **found;
        const size_t *n_tokens;
        const unsigned char *keys, *values;
        size_t key_token, key_head, value_token, value_head; /* bytes */
        atomic_size_t bad;                                   /* the first token of the call with a bad row */
} appending;

static bool is_finite(const dci_kv *kv, const void *row, size_t dim)
{
        return isfinite(kv->context->kernels->norm2[kv->config.dtype - 1](row, dim));
}

/* Copies and checks the rows of one token. Slots after a sequence's tokens are unused, so rows are copied first. token: within the call. */
static void append_token(appending *a, const dci_kv_sequence *sequence, size_t at, size_t token)
{
        const dci_kv *kv = a->kv;
        const size_t per_page = kv->config.page_tokens, slot = at % per_page;
        bool good = true;
        for (size_t h = 0; h < kv->config.n_kv_heads; h++) {
                const dci_kv_page page = dci_kv_page_at(kv, a->layer, sequence->table[at / per_page], h);
                unsigned char *key = page.keys + slot * page.key_step, *value = page.values + slot * page.value_step;
                if (a->keys != NULL) {
                        memcpy(key, a->keys + token * a->key_token + h * a->key_head, kv->dim_k * kv->es);
                        memcpy(value, a->values + token * a->value_token + h * a->value_head, kv->dim_v * kv->es);
                }
                good = good && is_finite(kv, key, kv->dim_k) && is_finite(kv, value, kv->dim_v);
        }
        size_t bad = atomic_load(&a->bad);
        while (!good && token < bad && !atomic_compare_exchange_weak(&a->bad, &bad, token))
                continue;
}

static void append_task(void *arg, size_t task, size_t worker)
{
        appending *a = arg;
        size_t begin = 0, first = task * TASK_TOKENS, last = first + TASK_TOKENS;
        (void)worker;
        for (size_t i = 0; i < a->n_sequences && begin < last; i++) {
                const size_t n = wanted(a->n_tokens, i);
                const size_t from = first > begin ? first - begin : 0;
                for (size_t t = from; t < n && begin + t < last; t++)
                        append_token(a, a->found[i], a->found[i]->layers[a->layer].n + t, begin + t);
                begin += n;
        }
}

static dci_status name_bad(const appending *a)
{
        const size_t bad = atomic_load(&a->bad);
        size_t i = 0, t = bad;
        for (; t >= wanted(a->n_tokens, i); i++)
                t -= wanted(a->n_tokens, i);
        const dci_kv *kv = a->kv;
        const size_t at = a->found[i]->layers[a->layer].n + t;
        for (size_t h = 0; h < kv->config.n_kv_heads; h++) {
                const void *key, *value;
                dci_kv_rows_of(kv, &a->found[i]->layers[a->layer], h, at, 1, &key, &value);
                const bool good = is_finite(kv, key, kv->dim_k);
                if (!good || !is_finite(kv, value, kv->dim_v))
                        return dci_fail(
                                DCI_ERR_NUMBER,
                                "token %zu of sequence %lld: the %s of kv head %zu has NaN, infinity, or is too "
                                "large",
                                at, (long long)a->found[i]->id, good ? "value" : "key", h);
        }
        return DCI_OK;
}

/* The caller's blocks are not copied, so rows of two sequences must not be written into one. */
static dci_status check_own(const dci_kv *kv, const dci_kv_sequence *sequence, size_t first, size_t n)
{
        const size_t per_page = kv->config.page_tokens;
        for (size_t b = first / per_page; n > 0 && b <= (first + n - 1) / per_page; b++)
                if (kv->pool.refs[sequence->table[b]] > 1)
                        return dci_fail(DCI_ERR_UNSUPPORTED,
                                        "sequence %lld would write into block %d, which other sequences have, too: the "
                                        "caller's blocks are not copied",
                                        (long long)sequence->id, (int)sequence->table[b]);
        return DCI_OK;
}

static dci_status check_append(dci_kv *kv, size_t layer, size_t n_sequences, dci_kv_sequence *const *found,
                               const size_t *n_tokens, const dci_kv_rows *rows, size_t *out_tokens)
{
        if (layer >= kv->config.n_layers)
                return dci_fail(DCI_ERR_INVALID, "layer is %zu, expected less than %zu", layer, kv->config.n_layers);
        if (rows == NULL)
                return dci_fail(DCI_ERR_INVALID, "rows is NULL");
        DCI_TRY(dci_check_struct_size("dci_kv_rows", rows, rows->struct_size, sizeof *rows));
        *out_tokens = 0;
        for (size_t i = 0; i < n_sequences; i++) {
                const dci_kv_sequence *sequence = found[i];
                const size_t n = wanted(n_tokens, i), there = sequence->layers[layer].n;
                if (!sequence->open)
                        return dci_fail(DCI_ERR_INVALID, "sequence %lld: no step is open, reserve its tokens first",
                                        (long long)sequence->id);
                if (n > sequence->n + sequence->n_reserved - there)
                        return dci_fail(DCI_ERR_INVALID,
                                        "sequence %lld, layer %zu: %zu tokens, but %zu are left of the %zu that were "
                                        "reserved",
                                        (long long)sequence->id, layer, n, sequence->n + sequence->n_reserved - there,
                                        sequence->n_reserved);
                if (sequence->layers[layer].prompt_now)
                        return dci_fail(DCI_ERR_INVALID, "sequence %lld, layer %zu: the prompt ended in this step",
                                        (long long)sequence->id, layer);
                *out_tokens += n;
        }
        for (size_t i = 0; i < n_sequences && rows->keys != NULL && kv->pool.caller_blocks; i++) {
                DCI_TRY(check_own(kv, found[i], found[i]->layers[layer].n, wanted(n_tokens, i)));
        }
        if (*out_tokens > 0 && (rows->keys == NULL) != (rows->values == NULL))
                return dci_fail(DCI_ERR_INVALID, "%s is NULL", rows->keys == NULL ? "keys" : "values");
        if (*out_tokens > 0 && rows->keys == NULL && kv->config.layout == NULL)
                return dci_fail(DCI_ERR_INVALID, "keys and values are NULL, but there is no layout they could lie in");
        return DCI_OK;
}

static size_t or_else(size_t stride, size_t otherwise)
{
        return stride != 0 ? stride : otherwise;
}

/* Refuses rows that exceed the address space. They are copied, so they need no alignment. */
static dci_status check_reach(const dci_kv *kv, size_t tokens, const dci_kv_rows *rows)
{
        const size_t n_heads = kv->config.n_kv_heads;
        const size_t strides[2][2] = {
                {or_else(rows->key_token_stride, n_heads * kv->dim_k), or_else(rows->key_head_stride, kv->dim_k)},
                {or_else(rows->value_token_stride, n_heads * kv->dim_v), or_else(rows->value_head_stride, kv->dim_v)}};
        for (size_t i = 0; i < 2; i++) {
                size_t by_token, by_head, all;
                if (!dci_mul(tokens, strides[i][0], &by_token) || !dci_mul(n_heads, strides[i][1], &by_head) ||
                    !dci_add(by_token, by_head, &all) || !dci_mul(all, kv->es, &all) || all > PTRDIFF_MAX)
                        return dci_fail(DCI_ERR_LIMIT,
                                        "%s of %zu tokens, %zu elements apart, and of heads %zu apart exceed the "
                                        "address space",
                                        i == 0 ? "keys" : "values", tokens, strides[i][0], strides[i][1]);
        }
        return DCI_OK;
}

static dci_status check_rows_strides(const dci_kv *kv, size_t tokens, const dci_kv_rows *rows)
{
        const struct {
                const char *name;
                size_t value, least;
        } strides[] = {{"key_token_stride", rows->key_token_stride, kv->dim_k},
                       {"key_head_stride", rows->key_head_stride, kv->dim_k},
                       {"value_token_stride", rows->value_token_stride, kv->dim_v},
                       {"value_head_stride", rows->value_head_stride, kv->dim_v}};
        for (size_t i = 0; i < sizeof strides / sizeof *strides; i++)
                if (strides[i].value != 0 && strides[i].value < strides[i].least)
                        return dci_fail(DCI_ERR_INVALID, "%s is %zu, expected at least %zu, or 0", strides[i].name,
                                        strides[i].value, strides[i].least);
        return check_reach(kv, tokens, rows);
}

static dci_status append(dci_kv *kv, size_t layer, size_t n_sequences, dci_kv_sequence **found, const size_t *n_tokens,
                         const dci_kv_rows *rows)
{
        size_t tokens = 0;
        dci_status status = check_append(kv, layer, n_sequences, found, n_tokens, rows, &tokens);
        if (status == DCI_OK)
                status = check_rows_strides(kv, tokens, rows);
        if (status != DCI_OK || tokens == 0)
                return status;
        const size_t n_heads = kv->config.n_kv_heads, es = kv->es;
        appending a = {.kv = kv,
                       .layer = layer,
                       .n_sequences = n_sequences,
                       .found = found,
                       .n_tokens = n_tokens,
                       .keys = rows->keys,
                       .values = rows->values,
                       .key_token = or_else(rows->key_token_stride, n_heads * kv->dim_k) * es,
                       .key_head = or_else(rows->key_head_stride, kv->dim_k) * es,
                       .value_token = or_else(rows->value_token_stride, n_heads * kv->dim_v) * es,
                       .value_head = or_else(rows->value_head_stride, kv->dim_v) * es};
        atomic_init(&a.bad, SIZE_MAX);
        const size_t n_tasks = (tokens + TASK_TOKENS - 1) / TASK_TOKENS;
        const size_t work = tokens * n_heads * (kv->dim_k + kv->dim_v);
        status = dci_kv_spread(kv, SIZE_MAX, n_tasks, work, append_task, &a);
        if (status == DCI_OK && atomic_load(&a.bad) != SIZE_MAX)
                status = name_bad(&a);
        for (size_t i = 0; i < n_sequences && status == DCI_OK; i++)
                found[i]->layers[layer].n += wanted(n_tokens, i);
        return status;
}

dci_status dci_kv_append(dci_kv *kv, size_t layer, size_t n_sequences, const int64_t *sequences, const size_t *n_tokens,
                         const dci_kv_rows *rows)
{
        dci_kv_sequence **found;
        DCI_TRY(dci_kv_begin_call(kv, n_sequences, sequences, &found));
        dci_status status = append(kv, layer, n_sequences, found, n_tokens, rows);
        dci_kv_unlock(kv);
        return status;
}

dci_status dci_kv_append_later(dci_kv *kv, size_t layer, size_t n_sequences, const int64_t *sequences,
                               const size_t *n_tokens, const dci_kv_rows *rows)
{
        dci_kv_sequence **found;
        size_t tokens = 0;
        DCI_TRY(dci_kv_begin_call(kv, n_sequences, sequences, &found));
        dci_status status = check_append(kv, layer, n_sequences, found, n_tokens, rows, &tokens);
        if (status == DCI_OK)
                status = check_rows_strides(kv, tokens, rows);
        for (size_t i = 0; i < n_sequences && status == DCI_OK; i++)
                found[i]->layers[layer].n += wanted(n_tokens, i);
        dci_kv_unlock(kv);
        return status;
}

/* --- the end of a step -------------------------------------------------------------------------------------------- */

static dci_status check_end(const dci_kv *kv, size_t n_sequences, dci_kv_sequence *const *found, bool whole)
{
        for (size_t i = 0; i < n_sequences; i++) {
                const dci_kv_sequence *sequence = found[i];
                if (!sequence->open)
                        return dci_fail(DCI_ERR_INVALID, "sequence %lld: no step is open", (long long)sequence->id);
                for (size_t l = 0; l < kv->config.n_layers && whole; l++)
                        if (sequence->layers[l].n != sequence->n + sequence->n_reserved)
                                return dci_fail(DCI_ERR_INVALID,
                                                "sequence %lld: layer %zu has %zu of the %zu tokens that were reserved",
                                                (long long)sequence->id, l, sequence->layers[l].n - sequence->n,
                                                sequence->n_reserved);
        }
        return DCI_OK;
}

dci_status dci_kv_step_end(dci_kv *kv, size_t n_sequences, const int64_t *sequences)
{
        dci_kv_sequence **found;
        DCI_TRY(dci_kv_begin_call(kv, n_sequences, sequences, &found));
        dci_status status = check_end(kv, n_sequences, found, true);
        for (size_t i = 0; i < n_sequences && status == DCI_OK; i++) {
                found[i]->n += found[i]->n_reserved;
                close_step(found[i]);
                for (size_t l = 0; l < kv->config.n_layers; l++)
                        found[i]->layers[l].prompt_now = false;
        }
        dci_kv_unlock(kv);
        return status;
}

dci_status dci_kv_step_abort(dci_kv *kv, size_t n_sequences, const int64_t *sequences)
{
        dci_kv_sequence **found;
        DCI_TRY(dci_kv_begin_call(kv, n_sequences, sequences, &found));
        dci_status status = check_end(kv, n_sequences, found, false);
        for (size_t i = 0; i < n_sequences && status == DCI_OK; i++) {
                dci_kv_jobs_cancel(kv, found[i], true);
                for (size_t l = 0; l < kv->config.n_layers; l++) {
                        dci_kv_layer *layer = &found[i]->layers[l];
                        layer->n = found[i]->n;
                        dci_kv_truncate_selection_cache(kv, layer, layer->n);
                        if (layer->prompt_now)
                                dci_kv_cancel_prompt(kv, layer);
                }
                dci_kv_distrust_copies(kv, found[i], found[i]->n);
                /* Lent blocks stay lent. */
                if (!kv->pool.caller_blocks)
                        dci_kv_truncate_table(kv, found[i], found[i]->n);
                close_step(found[i]);
        }
        dci_kv_unlock(kv);
        return status;
}
