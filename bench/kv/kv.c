/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/kv/kv.h"

#include <string.h>

typedef struct kv_state {
        kvbench_options options;
        dci_context *helper, *measured; /* all CPUs: reading and judging are not measured; --threads of them */
        kvbench_trace anchor;           /* without rows: none */
        kvbench_row *rows;              /* of all traces, one after the other */
        size_t n_rows;
} kv_state;

/* --- what is played ------------------------------------------------------------------------------------------------------- */

/* The widths in a set of bits 1 << width; without codes, 0 alone. */
static size_t widths_of(int32_t set, bool any, int32_t *out)
{
        size_t n = 0;
        out[n] = 0;
        for (int32_t width = 1; any && width <= 8; width++)
                if ((set & 1 << width) != 0)
                        out[n++] = width;
        return any ? n : 1;
}

static bool has_codes(int32_t preset)
{
        return (preset >= DCI_KV_LOWBIT && preset <= DCI_KV_SKETCH_LOWBIT) || preset == DCI_KV_SKETCH_GROUPS ||
               preset == DCI_KV_SKETCH_VERIFY;
}

static bool has_low_bits(int32_t preset)
{
        return preset == DCI_KV_LOWBIT || preset == DCI_KV_SKETCH_LOWBIT || preset == DCI_KV_SKETCH_VERIFY;
}

/* Whether anything is formed of tokens that are decoded. */
static bool has_updates(int32_t preset)
{
        return preset != DCI_KV_FULL && preset != DCI_KV_STREAMING && preset != DCI_KV_SNAPKV;
}

/* One preset with its codes, with updates and without them, at each budget. */
static size_t list_arms(const kvbench_options *o, kvbench_arm arm, kvbench_arm *arms)
{
        size_t n = 0;
        for (int32_t u = KVBENCH_UPDATES_ON; u <= KVBENCH_UPDATES_OFF; u++) {
                const bool off = u == KVBENCH_UPDATES_OFF;
                if (has_updates(arm.preset) ? (o->updates & 1 << u) == 0 : off)
                        continue;
                for (size_t b = 0; b < o->budgets.n; b++, n++) {
                        arm.still = off;
                        arm.budget = b;
                        if (arms != NULL)
                                arms[n] = arm;
                }
        }
        return n;
}

size_t kvbench_arms(const kvbench_options *o, kvbench_arm *arms)
{
        size_t n = 0;
        for (size_t i = 0; i < o->n_presets; i++) {
                int32_t keys[8], values[8];
                const bool codes = has_codes(o->presets[i]);
                const bool narrow = o->presets[i] == DCI_KV_SKETCH_VERIFY;
                const int32_t widths = o->key_bits != 0 ? o->key_bits : narrow ? 1 << 2 : 1 << 4;
                const int32_t kinds = o->codes != 0 ? o->codes : 1 << (narrow ? KVBENCH_LEARNED : KVBENCH_RANDOM);
                const size_t n_keys = widths_of(widths, codes, keys);
                const size_t n_values = widths_of(o->value_bits, has_low_bits(o->presets[i]), values);
                for (size_t j = 0; j < n_keys * n_values * 2; j++) {
                        const bool learned = j % 2 == 1;
                        if (codes ? (kinds & 1 << (learned ? KVBENCH_LEARNED : KVBENCH_RANDOM)) == 0 : learned)
                                continue;
                        const kvbench_arm arm = {.preset = o->presets[i],
                                                 .key_bits = keys[j / 2 / n_values],
                                                 .value_bits = values[j / 2 % n_values],
                                                 .learned = learned};
                        n += list_arms(o, arm, arms != NULL ? arms + n : NULL);
                }
        }
        return n;
}

/* A row for each arm. */
static dci_status list_rows(const kv_state *s, kvbench_row *rows, size_t n)
{
        kvbench_arm *arms = dci_alloc(s->helper, n, sizeof *arms);
        if (arms == NULL)
                return DCI_ERR_MEMORY;
        kvbench_arms(&s->options, arms);
        memset(rows, 0, n * sizeof *rows);
        for (size_t i = 0; i < n; i++) {
                rows[i].options = &s->options;
                rows[i].anchor = s->options.anchor != NULL ? &s->anchor : NULL;
                rows[i].arm = arms[i];
        }
        dci_free(s->helper, arms, n, sizeof *arms);
        return DCI_OK;
}

/* --- the run -------------------------------------------------------------------------------------------------------------- */

/* Layers of one run have the same shape. */
static dci_status check_anchor(const kv_state *s, const kvbench_trace *trace)
{
        const kvbench_trace *a = &s->anchor;
        if (s->options.anchor == NULL ||
            (a->tokens == trace->tokens && a->prompt == trace->prompt && a->group == trace->group &&
             a->scale == trace->scale && a->keys.dim == trace->keys.dim && a->values.dim == trace->values.dim &&
             a->keys.dtype == trace->keys.dtype && a->queries.dtype == trace->queries.dtype))
                return DCI_OK;
        return dci_fail(
                DCI_ERR_INVALID,
                "--anchor %s is of %zu tokens, %zu of them the prompt, %zu query heads and d %zu, but %s of %zu, "
                "%zu, %zu and %zu",
                a->name, a->tokens, a->prompt, a->group, a->keys.dim, trace->name, trace->tokens, trace->prompt,
                trace->group, trace->keys.dim);
}

/* All arms are checked before the first one is played: a mistake should not show after an hour. */
static dci_status play_trace(kv_state *s, const kvbench_trace *trace, kvbench_truth *truth, kvbench_row *rows,
                             size_t n_rows)
{
        DCI_TRY(check_anchor(s, trace));
        for (size_t i = 0; i < n_rows; i++) {
                kvbench_row *row = &rows[i];
                snprintf(row->trace, sizeof row->trace, "%s", trace->name);
                row->tokens = trace->tokens;
                row->prompt = trace->prompt;
                row->group = trace->group;
                row->dim_k = trace->keys.dim;
                row->dim_v = trace->values.dim;
                DCI_TRY(kvbench_arm_check(s->measured, trace, row));
        }
        DCI_TRY(kvbench_truth_find(&s->options, trace, truth));
        for (size_t i = 0; i < n_rows; i++)
                if (*rows[i].reason == '\0')
                        DCI_TRY(kvbench_play(s->measured, trace, truth, &rows[i]));
        kvbench_print_table(trace, s->measured, rows, n_rows);
        return DCI_OK;
}

static dci_status run(kv_state *s, int argc, char **argv)
{
        const kvbench_options *o = &s->options;
        const bench_index_options like = {.isa = o->isa};
        const size_t n_traces = o->n_traces > 0 ? o->n_traces : 1, n_each = kvbench_arms(o, NULL);
        DCI_TRY(o->json != NULL ? bench_check_writable(o->json) : DCI_OK);
        DCI_TRY(bench_context(&like, 0, &s->helper));
        DCI_TRY(bench_context(&like, o->threads, &s->measured));
        s->rows = dci_calloc(s->helper, n_traces * n_each, sizeof *s->rows);
        if (s->rows == NULL)
                return DCI_ERR_MEMORY;
        s->n_rows = n_traces * n_each;
        dci_status status = DCI_OK;
        if (o->anchor != NULL)
                status = kvbench_trace_open(s->helper, o, o->anchor, &s->anchor);
        for (size_t i = 0; status == DCI_OK && i < n_traces; i++) {
                kvbench_trace trace;
                kvbench_truth truth;
                memset(&truth, 0, sizeof truth);
                status = list_rows(s, s->rows + i * n_each, n_each);
                if (status != DCI_OK)
                        break;
                status = kvbench_trace_open(s->helper, o, o->n_traces > 0 ? o->traces[i] : NULL, &trace);
                if (status == DCI_OK)
                        status = play_trace(s, &trace, &truth, s->rows + i * n_each, n_each);
                kvbench_truth_free(&truth);
                kvbench_trace_close(&trace);
        }
        if (status == DCI_OK && o->json != NULL)
                status = kvbench_write_json(o, s->measured, argc, argv, s->rows, s->n_rows);
        return status;
}

int bench_kv(int argc, char **argv)
{
        kv_state s;
        bool help;
        memset(&s, 0, sizeof s);
        dci_status status = kvbench_options_parse(argc, argv, &s.options, &help);
        if (status == DCI_OK && help) {
                kvbench_print_help();
                kvbench_options_free(&s.options);
                return BENCH_EXIT_OK;
        }
        if (status == DCI_OK)
                status = run(&s, argc, argv);
        int code = status == DCI_OK ? BENCH_EXIT_OK : bench_report_error("kv", status);
        if (s.anchor.helper != NULL)
                kvbench_trace_close(&s.anchor);
        dci_free(s.helper, s.rows, s.n_rows, sizeof *s.rows);
        dci_context_destroy(s.measured);
        dci_context_destroy(s.helper);
        kvbench_options_free(&s.options);
        return code;
}
