/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * A trace folder holds keys.npy (tokens x head_dim), queries.npy (group x m x head_dim, positions first_query to tokens - 1)
 * and meta.json. The base is the prompt's keys; the queries are those of the decode, in the order in which they happen:
 * position by position, the group's heads next to each other. Those of the end of the prompt, from first_query on, are what a
 * system may use before the decode begins: codes are fitted to them.
 */
#include "bench/common/dataset.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

/* meta.json is a few hundred bytes. */
#define META_MAX_BYTES ((uint64_t)1 << 20)

static dci_status join(const char *folder, const char *name, char *out, size_t size)
{
        int n = snprintf(out, size, "%s/%s", folder, name);
        return n > 0 && (size_t)n < size ? DCI_OK : dci_fail(DCI_ERR_INVALID, "%s: the path is too long", folder);
}

static dci_status meta_size(const json_t *meta, const char *path, const char *name, size_t *out)
{
        const json_t *value = json_object_get(meta, name);
        if (!json_is_integer(value) || json_integer_value(value) < 0 ||
            json_integer_value(value) > (json_int_t)DCI_MAX_ROWS)
                return dci_fail(DCI_ERR_FORMAT, "%s: '%s' must be an integer of 0 to %zu", path, name, DCI_MAX_ROWS);
        *out = (size_t)json_integer_value(value);
        return DCI_OK;
}

static dci_status parse_meta(const json_t *meta, const char *path, bench_trace *out)
{
        const json_t *scale = json_object_get(meta, "scale"), *dtype = json_object_get(meta, "dtype");
        const struct {
                const char *name;
                size_t *value;
        } sizes[] = {{"tokens", &out->tokens},
                     {"prompt", &out->prompt},
                     {"first_query", &out->first_query},
                     {"group", &out->group}};
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                dci_status status = meta_size(meta, path, sizes[i].name, sizes[i].value);
                if (status != DCI_OK)
                        return status;
        }
        out->bfloat16 = json_is_string(dtype) && strcmp(json_string_value(dtype), "bfloat16") == 0;
        out->scale = json_number_value(scale);
        if (!json_is_number(scale) || !isfinite(out->scale) || out->scale <= 0)
                return dci_fail(DCI_ERR_FORMAT, "%s: 'scale' must be a positive number", path);
        if (out->prompt <= BENCH_SINK || out->prompt >= out->tokens || out->first_query > out->prompt ||
            out->group == 0)
                return dci_fail(DCI_ERR_FORMAT,
                                "%s: %d < prompt < tokens, first_query <= prompt and group >= 1 do not hold "
                                "for prompt %zu, tokens %zu, first_query %zu, group %zu",
                                path, BENCH_SINK, out->prompt, out->tokens, out->first_query, out->group);
        return DCI_OK;
}

static dci_status read_meta(const char *folder, bench_trace *out)
{
        char path[4096];
        FILE *file;
        uint64_t bytes;
        json_error_t error;
        dci_status status = join(folder, "meta.json", path, sizeof path);
        if (status == DCI_OK)
                status = bench_open(path, &file, &bytes);
        if (status != DCI_OK)
                return status;
        if (bytes > META_MAX_BYTES) {
                fclose(file);
                return dci_fail(DCI_ERR_FORMAT, "%s: %llu bytes are too many for a trace's description", path,
                                (unsigned long long)bytes);
        }
        json_t *meta = json_loadf(file, JSON_REJECT_DUPLICATES, &error);
        fclose(file);
        if (meta == NULL)
                return dci_fail(DCI_ERR_FORMAT, "%s: not JSON (line %d: %s)", path, error.line, error.text);
        status = parse_meta(meta, path, out);
        json_decref(meta);
        return status;
}

static dci_status read_keys(dci_context *context, const char *folder, bench_trace *out)
{
        char path[4096];
        DCI_TRY(join(folder, "keys.npy", path, sizeof path));
        DCI_TRY(bench_read_rows_as(context, path, out->bfloat16, BENCH_ALL, &out->keys));
        if (out->keys.n != out->tokens)
                return dci_fail(DCI_ERR_FORMAT, "%s: %zu keys, but meta.json says %zu tokens", path, out->keys.n,
                                out->tokens);
        return DCI_OK;
}

/* That there are the queries that meta.json and keys.npy promise. */
static dci_status check_queries(const char *path, const dci_npy *npy, const bench_trace *trace)
{
        size_t m = trace->tokens - trace->first_query, n;
        if (npy->n_dims != 3 || npy->shape[0] != trace->group || npy->shape[1] != m || npy->shape[2] != trace->keys.dim)
                return dci_fail(DCI_ERR_FORMAT, "%s: must be %zu x %zu x %zu as meta.json and keys.npy say", path,
                                trace->group, m, trace->keys.dim);
        if (!dci_mul(trace->group, m, &n))
                return dci_fail(DCI_ERR_LIMIT, "%s: too many queries", path);
        return DCI_OK;
}

/* group x m x dim on disk becomes (position, head) x dim: n queries, from the file's position `first` on. */
static dci_status order_queries(dci_context *context, const char *path, const dci_npy *npy, const bench_trace *trace,
                                size_t first, size_t n, bench_rows *out)
{
        const size_t m = trace->tokens - trace->first_query;
        const dci_dtype dtype = bench_npy_dtype(npy);
        dci_status status = bench_rows_alloc(context, path, dtype, n, trace->keys.dim, out);
        if (status != DCI_OK)
                return status;
        size_t row_bytes = out->dim * dci_dtype_size(dtype);
        for (size_t i = 0; i < out->n; i++) {
                size_t head = i % trace->group, position = first + i / trace->group;
                memcpy((char *)out->owned + i * row_bytes, (const char *)npy->data + (head * m + position) * row_bytes,
                       row_bytes);
        }
        return DCI_OK;
}

static dci_status read_queries(dci_context *context, const char *folder, bench_trace *trace, size_t limit,
                               bench_rows *out)
{
        const size_t observed = trace->prompt - trace->first_query;
        char path[4096];
        dci_npy npy = {0};
        dci_status status = join(folder, "queries.npy", path, sizeof path);
        if (status == DCI_OK)
                status = dci_npy_read(context, path, &npy);
        if (status == DCI_OK)
                status = check_queries(path, &npy, trace);
        if (status == DCI_OK)
                status = bench_npy_to_rows(path, trace->bfloat16, BENCH_ALL, &npy);
        if (status == DCI_OK) {
                const size_t n = trace->group * (trace->tokens - trace->prompt);
                status = order_queries(context, path, &npy, trace, observed, n < limit ? n : limit, out);
        }
        if (status == DCI_OK && observed > 0)
                status = order_queries(context, path, &npy, trace, 0, trace->group * observed, &trace->observed);
        dci_npy_free(&npy);
        return status;
}

dci_status bench_read_trace(dci_context *context, const char *folder, size_t limit_base, size_t limit_queries,
                            bench_dataset *out)
{
        bench_trace *trace = &out->trace;
        bench_name(out->name, sizeof out->name, bench_base_name(folder));
        DCI_TRY(read_meta(folder, trace));
        DCI_TRY(read_keys(context, folder, trace));
        DCI_TRY(read_queries(context, folder, trace, limit_queries, &out->queries));
        out->base = bench_rows_view(&trace->keys, trace->prompt < limit_base ? trace->prompt : limit_base);
        out->metric = DCI_METRIC_IP;
        out->is_trace = true;
        return DCI_OK;
}
