/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "bench/kv/kv.h"

#include <math.h>
#include <string.h>

#define REPEAT_NOISE 0.5 /* of the standard deviation of a coordinate */

/* The last two parts of a folder's path: "smollm2-135m-debref/layer06_head0". */
static void name_of(const char *folder, char *out, size_t size)
{
        const char *last = bench_base_name(folder), *at = last;
        while (at > folder && at[-1] == '/')
                at--;
        while (at > folder && at[-1] != '/')
                at--;
        size_t n = strlen(at);
        while (n > 1 && at[n - 1] == '/')
                n--;
        snprintf(out, size, "%.*s", (int)(n < size ? n : size - 1), at);
}

static dci_status read_values(dci_context *helper, const char *folder, bool bfloat16, kvbench_trace *out)
{
        char path[4096];
        const int n = snprintf(path, sizeof path, "%s/values.npy", folder);
        if (n <= 0 || (size_t)n >= sizeof path)
                return dci_fail(DCI_ERR_INVALID, "%s: the path is too long", folder);
        dci_status status = bench_read_rows_as(helper, path, bfloat16, BENCH_ALL, &out->values);
        if (status != DCI_OK)
                return status;
        if (out->values.n != out->tokens)
                return dci_fail(DCI_ERR_FORMAT, "%s: %zu values, but meta.json says %zu tokens", path, out->values.n,
                                out->tokens);
        if (out->values.dtype != out->keys.dtype)
                return dci_fail(DCI_ERR_FORMAT, "%s: values in %s, but the keys are in %s", path,
                                dci_dtype_name(out->values.dtype), dci_dtype_name(out->keys.dtype));
        return DCI_OK;
}

/* Takes what the reader of traces has found. */
static dci_status read_folder(dci_context *helper, const char *folder, kvbench_trace *out)
{
        const bench_source source = {.trace = folder, .limit_base = BENCH_ALL, .limit_queries = BENCH_ALL};
        bench_dataset data;
        dci_status status = bench_dataset_read(helper, &source, &data);
        if (status != DCI_OK)
                return status;
        name_of(folder, out->name, sizeof out->name);
        out->tokens = data.trace.tokens;
        out->prompt = data.trace.prompt;
        out->group = data.trace.group;
        out->scale = data.trace.scale;
        out->keys = data.trace.keys;
        out->queries = data.queries;
        out->observed = data.trace.observed;
        const bool bfloat16 = data.trace.bfloat16;
        memset(&data.trace.keys, 0, sizeof data.trace.keys);
        memset(&data.queries, 0, sizeof data.queries);
        memset(&data.trace.observed, 0, sizeof data.trace.observed);
        bench_dataset_free(&data);
        return read_values(helper, folder, bfloat16, out);
}

/* tokens x dim floats, which hold every format exactly. */
static dci_status to_floats(dci_context *helper, const bench_rows *rows, size_t n, float **out)
{
        const size_t dim = rows->dim;
        double *row = dci_alloc(helper, dim, sizeof *row);
        *out = dci_alloc(helper, n, dim * sizeof **out);
        const bool enough = row != NULL && *out != NULL;
        for (size_t i = 0; enough && i < n; i++) {
                bench_row_to_double(rows, i, row);
                for (size_t j = 0; j < dim; j++)
                        (*out)[i * dim + j] = (float)row[j];
        }
        dci_free(helper, row, dim, sizeof *row);
        return enough ? DCI_OK : DCI_ERR_MEMORY;
}

/* Standard deviation of each coordinate of n rows, times share. */
static void spread_of(const float *rows, size_t n, size_t dim, double share, double *out)
{
        for (size_t j = 0; j < dim; j++) {
                double sum = 0, squares = 0;
                for (size_t i = 0; i < n; i++) {
                        sum += (double)rows[i * dim + j];
                        squares += (double)rows[i * dim + j] * (double)rows[i * dim + j];
                }
                const double mean = sum / (double)n, variance = squares / (double)n - mean * mean;
                out[j] = share * sqrt(variance > 0 ? variance : 0);
        }
}

/* The prompt's rows, then the same with noise again and again, then those of the decode: `more` rows more. */
static dci_status repeat_rows(dci_context *helper, const kvbench_trace *trace, size_t more, dci_rng *rng,
                              bench_rows *rows)
{
        const size_t dim = rows->dim, prompt = trace->prompt;
        const dci_dtype dtype = rows->dtype;
        float *old = NULL;
        double *spread = dci_alloc(helper, dim, sizeof *spread);
        bench_rows made = {0};
        dci_status status = spread != NULL ? to_floats(helper, rows, trace->tokens, &old) : DCI_ERR_MEMORY;
        if (status == DCI_OK)
                status = bench_rows_alloc(helper, trace->name, DCI_F32, trace->tokens + more, dim, &made);
        if (status == DCI_OK) {
                float *out = made.owned;
                spread_of(old, prompt, dim, REPEAT_NOISE, spread);
                memcpy(out, old, prompt * dim * sizeof *out);
                for (size_t i = 0; i < more; i++)
                        for (size_t j = 0; j < dim; j++)
                                out[(prompt + i) * dim + j] =
                                        (float)((double)old[i % prompt * dim + j] + spread[j] * dci_rng_normal(rng));
                memcpy(out + (prompt + more) * dim, old + prompt * dim, (trace->tokens - prompt) * dim * sizeof *out);
                status = bench_rows_convert(helper, trace->name, dtype, &made);
        }
        dci_free(helper, spread, dim, sizeof *spread);
        dci_free(helper, old, trace->tokens, dim * sizeof *old);
        if (status != DCI_OK) {
                bench_rows_free(&made);
                return status;
        }
        bench_rows_free(rows);
        *rows = made;
        return DCI_OK;
}

/* A trace of n tokens in all. */
static dci_status extend(dci_context *helper, const kvbench_options *o, kvbench_trace *trace)
{
        dci_rng rng;
        const size_t more = o->extend > trace->tokens ? o->extend - trace->tokens : 0;
        if (more == 0)
                return DCI_OK;
        dci_rng_seed(&rng, o->seed);
        DCI_TRY(repeat_rows(helper, trace, more, &rng, &trace->keys));
        DCI_TRY(repeat_rows(helper, trace, more, &rng, &trace->values));
        trace->tokens += more;
        trace->prompt += more;
        return DCI_OK;
}

dci_status kvbench_trace_open(dci_context *helper, const kvbench_options *o, const char *folder, kvbench_trace *out)
{
        memset(out, 0, sizeof *out);
        out->helper = helper;
        DCI_TRY(folder != NULL ? read_folder(helper, folder, out)
                               : kvbench_synthetic(helper, o->synthetic, o->seed, out));
        if (out->group > DCI_KV_MAX_GROUP)
                return dci_fail(DCI_ERR_LIMIT, "%s: %zu query heads per kv head; at most %zu are allowed", out->name,
                                out->group, DCI_KV_MAX_GROUP);
        DCI_TRY(extend(helper, o, out));
        if (o->steps < out->tokens - out->prompt)
                out->tokens = out->prompt + o->steps;
        DCI_TRY(to_floats(helper, &out->keys, out->tokens, &out->key_rows));
        return to_floats(helper, &out->values, out->tokens, &out->value_rows);
}

void kvbench_trace_close(kvbench_trace *trace)
{
        dci_free(trace->helper, trace->key_rows, trace->tokens, trace->keys.dim * sizeof *trace->key_rows);
        dci_free(trace->helper, trace->value_rows, trace->tokens, trace->values.dim * sizeof *trace->value_rows);
        bench_rows_free(&trace->keys);
        bench_rows_free(&trace->values);
        bench_rows_free(&trace->queries);
        bench_rows_free(&trace->observed);
        memset(trace, 0, sizeof *trace);
}
