/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Files of KV sequences. The first byte names the kind of cache that loads them. What is refused leaves no sequence; what loads is
 * sound, decoded from, forked, truncated, saved and loaded again.
 */
#include <string.h>

#include "dci/check.h"
#include "tests/fuzz/sections.h"
#include "tests/kv_fixture.h"
#include "tests/persist_seal.h"
#include "tests/scratch.h"

enum { MAX_FILE = 1 << 16, PROMPT = 90, MORE_TOKENS = 8 };

/* Small: two layers, two kv heads of dim 8. */
static dci_kv_config small_config(size_t kind)
{
        dci_kv_config c = kv_config(kv_presets[kind % KV_N_KINDS], 2, 2, 2, 8);
        c.page_tokens = 8;
        c.sink = 4;
        c.window = 8;
        c.rollback = 8;
        c.budget = 40;
        c.foreground = 1;
        c.cluster_tokens = 6;
        c.cluster_every = 12;
        c.segment_buffer = 16;
        c.tree_promotion = 0.1;
        return c;
}

/* What a plan and attention do with rows from a file, whatever they are: numbers may be too large to be scored, tokens are there. */
static void decode(dci_kv *kv, const dci_kv_config *config, int64_t sequence, dci_kv_plan *plan)
{
        float rows[2 * 2 * 2 * 8], out[4 * 8], lse[4];
        uint16_t halves[2 * 2 * 2 * 8];
        const size_t n_rows = config->n_kv_heads * config->dim_k;
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                rows[i] = 0.25f * (float)(i % 7) - 0.5f;
                halves[i] = (uint16_t)(0x3000 + 0x100 * (i % 7)); /* 0.125 and more */
        }
        dci_kv_rows of;
        ck_ok(dci_kv_rows_init(&of, sizeof of));
        of.keys = halves;
        of.values = halves + n_rows;
        if (!fuzz_worked(dci_kv_reserve(kv, 1, &sequence, NULL)))
                return;
        bool whole = true;
        for (size_t layer = 0; layer < config->n_layers && whole; layer++) {
                whole = fuzz_worked(dci_kv_append(kv, layer, 1, &sequence, NULL, &of)) &&
                        fuzz_worked(dci_kv_plan_make(kv, layer, 1, &sequence, rows, config->dim_k, plan)) &&
                        fuzz_worked(dci_kv_attend(kv, layer, 1, &sequence, rows, config->dim_k, plan, out, 8, lse));
                const int32_t n = plan->n_tokens[0];
                for (size_t h = 0; h < config->n_kv_heads && whole; h++)
                        for (int32_t i = 0; i < plan->counts[h]; i++) {
                                const int32_t at = plan->positions[h * plan->stride + (size_t)i];
                                ck_assert_msg(at >= 0 && at < n, "position %d of %d", (int)at, (int)n);
                        }
        }
        if (whole)
                ck_ok(dci_kv_step_end(kv, 1, &sequence));
        else
                ck_ok(dci_kv_step_abort(kv, 1, &sequence));
        fuzz_worked(dci_kv_maintain(kv, 0, NULL));
}

static void use(dci_kv *kv, const dci_kv_config *config, int64_t sequence)
{
        dci_kv_plan plan = kv_plan(kv, 1);
        int64_t fork, again;
        const size_t n = kv_sequence_info(kv, sequence).n_tokens;
        if (fuzz_worked(dci_kv_save(kv, sequence, n, scratch_path("again"))) &&
            fuzz_worked(dci_kv_load(kv, scratch_path("again"), &again)))
                ck_ok(dci_kv_close(kv, again));
        const bool forked = fuzz_worked(dci_kv_fork(kv, sequence, n - n / 4, &fork));
        for (size_t i = 0; i < MORE_TOKENS; i++)
                decode(kv, config, sequence, &plan);
        if (forked) {
                decode(kv, config, fork, &plan);
                ck_ok(dci_kv_close(kv, fork));
        }
        if (fuzz_worked(dci_kv_truncate(kv, sequence, n / 2)))
                decode(kv, config, sequence, &plan);
        dci_kv_plan_destroy(kv, &plan);
}

/* Whatever loads is whole. What only rows can tell, a file may have wrong: a full check then says so. */
static void check(dci_kv *kv)
{
        ck_ok(dci_kv_check(kv, DCI_CHECK_STRUCTURE, NULL));
        const dci_status status = dci_kv_check(kv, DCI_CHECK_FULL, NULL);
        ck_assert_msg(fuzz_worked(status) || status == DCI_ERR_FORMAT, "%s", dci_last_error());
}

static bool load_and_use(dci_kv *kv, const dci_kv_config *config, const uint8_t *file, size_t n)
{
        int64_t sequence = -1;
        scratch_put("sequence", file, n);
        const bool loaded = fuzz_worked(dci_kv_load(kv, scratch_path("sequence"), &sequence));
        if (loaded) {
                check(kv);
                use(kv, config, sequence);
                check(kv);
                ck_ok(dci_kv_close(kv, sequence));
        }
        const dci_kv_info info = kv_info(kv);
        ck_assert_uint_eq(info.n_sequences, 0);
        ck_assert_uint_eq(info.n_free_blocks, info.n_blocks);
        ck_assert_uint_eq(info.summary_bytes, 0);
        return loaded;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        if (size == 0 || size > MAX_FILE)
                return 0;
        dci_context *context = fuzz_limited_context();
        const dci_kv_config config = small_config(data[0]);
        dci_kv *kv = kv_create(context, &config);
        bool accepted = load_and_use(kv, &config, data + 1, size - 1);
        if (!accepted) {
                persist_bytes sealed = {malloc(size), size - 1};
                ck_assert_ptr_nonnull(sealed.data);
                memcpy(sealed.data, data + 1, sealed.n);
                persist_reseal(&sealed);
                accepted = load_and_use(kv, &config, sealed.data, sealed.n);
                free(sealed.data);
        }
        dci_kv_destroy(kv);
        fuzz_limited_end(context);
        fuzz_count(accepted);
        return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
        return fuzz_mutate_file(data, size, most, 1, seed);
}

void fuzz_seeds(void (*put)(const void *data, size_t size))
{
        dci_context *context = test_context(1);
        for (size_t kind = 0; kind < KV_N_KINDS; kind++) {
                const dci_kv_config config = small_config(kind);
                dci_kv *kv = kv_create(context, &config);
                kv_data data = kv_random(&config, PROMPT + 20, 1 + kind);
                const int64_t sequence = kv_begin(kv, &data, PROMPT);
                for (size_t n = PROMPT; n <= PROMPT + 20; n += 20) {
                        if (n > PROMPT)
                                kv_decode_all(kv, sequence, &data, PROMPT, 20);
                        size_t n_bytes;
                        ck_ok(dci_kv_save(kv, sequence, n, scratch_path("seed")));
                        unsigned char *file = scratch_get("seed", &n_bytes), *input = malloc(n_bytes + 1);
                        ck_assert_ptr_nonnull(input);
                        input[0] = (unsigned char)kind;
                        memcpy(input + 1, file, n_bytes);
                        put(input, n_bytes + 1);
                        test_free(file, input);
                }
                kv_data_free(&data);
                dci_kv_destroy(kv);
        }
        dci_context_destroy(context);
}
