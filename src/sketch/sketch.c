/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The life of a sketch: create, append, truncate, fit, decode. */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "core/fields.h"
#include "sketch/sketch_internal.h"

/* Rows that share a decision about the centre, and rows of one task. */
#define SLICE_ROWS ((size_t)1024)
#define TASK_ROWS ((size_t)128)
#define MAX_ROWS ((size_t)1 << 31)

static const char *const transforms[] = {"DCI_SKETCH_NONE", "DCI_SKETCH_RANDOM"}, *const centres[] = {
                                                                                          "DCI_CENTRE_NONE",
                                                                                          "DCI_CENTRE_RUNNING",
                                                                                          "DCI_CENTRE_GIVEN"};

#define FIELD(field, ...) DCI_FIELD(dci_sketch_config, field, __VA_ARGS__)
static const dci_field fields[] = {
        FIELD(dim, 0, 1, DCI_SKETCH_MAX_DIM),
        FIELD(dtype, DCI_F32, DCI_F32, DCI_BF16, .names = dci_dtype_names),
        FIELD(query_dtype, 0, DCI_F32, DCI_BF16, .names = dci_dtype_names, .means = "dtype"),
        FIELD(bits, 4, 1, 8, .only = dci_bit_counts),
        FIELD(transform, DCI_SKETCH_RANDOM, DCI_SKETCH_NONE, DCI_SKETCH_RANDOM, .names = transforms),
        FIELD(centre, DCI_CENTRE_RUNNING, DCI_CENTRE_NONE, DCI_CENTRE_GIVEN, .names = centres),
        FIELD(reserved, 0, 0, 0),
};

dci_status dci_sketch_config_init(dci_sketch_config *config, size_t struct_size)
{
        DCI_TRY(dci_struct_init("dci_sketch_config", config, struct_size, sizeof *config));
        dci_fields_init(DCI_FIELDS(fields), config);
        return DCI_OK;
}

dci_status dci_sketch_info_init(dci_sketch_info *info, size_t struct_size)
{
        return dci_struct_init("dci_sketch_info", info, struct_size, sizeof *info);
}

static dci_status check_config(const dci_context *context, const dci_sketch_config *config)
{
        DCI_TRY(dci_check_struct_size("dci_sketch_config", config, config->struct_size, sizeof *config));
        DCI_TRY(dci_fields_check(DCI_FIELDS(fields), config));
        if ((config->given_centre != NULL) != (config->centre == DCI_CENTRE_GIVEN))
                return dci_fail(DCI_ERR_INVALID, "given_centre is %sNULL, but centre is %sDCI_CENTRE_GIVEN",
                                config->given_centre == NULL ? "" : "not ",
                                config->centre == DCI_CENTRE_GIVEN ? "" : "not ");
        if (config->given_centre != NULL &&
            !(context->kernels->norm2[DCI_F32 - 1](config->given_centre, config->dim) <= DCI_SKETCH_MAX_NORM2))
                return dci_fail(DCI_ERR_NUMBER, "given_centre holds NaN or infinity, or its squared norm exceeds %g",
                                (double)DCI_SKETCH_MAX_NORM2);
        return DCI_OK;
}

dci_status dci_sketch_create(dci_context *context, const dci_sketch_config *config, dci_sketch **out_sketch)
{
        if (context == NULL || config == NULL || out_sketch == NULL)
                return dci_fail(DCI_ERR_INVALID, "context, config or out_sketch is NULL");
        *out_sketch = NULL;
        DCI_TRY(check_config(context, config));
        dci_sketch *sketch = dci_calloc(context, 1, sizeof *sketch);
        if (sketch == NULL)
                return DCI_ERR_MEMORY;
        sketch->context = context;
        sketch->dim = config->dim;
        sketch->dtype = config->dtype;
        sketch->query_dtype = config->query_dtype == 0 ? config->dtype : config->query_dtype;
        const int32_t kind = config->transform == DCI_SKETCH_RANDOM ? DCI_CODER_ROTATED : DCI_CODER_PLAIN;
        dci_status status = dci_frames_init(context, kind, config->dim, config->bits,
                                            config->centre == DCI_CENTRE_RUNNING, config->seed, &sketch->frames);
        if (status == DCI_OK && config->centre == DCI_CENTRE_GIVEN)
                status = dci_frames_begin(&sketch->frames, config->given_centre);
        dci_context_retain(context);
        if (status != DCI_OK) {
                dci_sketch_destroy(sketch);
                return status;
        }
        *out_sketch = sketch;
        return DCI_OK;
}

void dci_sketch_destroy(dci_sketch *sketch)
{
        if (sketch == NULL)
                return;
        dci_context *context = sketch->context;
        if (sketch->memory != NULL)
                dci_free(context, sketch->memory, dci_code_block_bytes(&sketch->frames, sketch->capacity), 1);
        dci_frames_destroy(&sketch->frames);
        dci_free(context, sketch, 1, sizeof *sketch);
        dci_context_destroy(context);
}

size_t dci_sketch_count(const dci_sketch *sketch)
{
        return sketch == NULL ? 0 : sketch->n;
}

const float *dci_sketch_floats(const dci_sketch *sketch, dci_dtype dtype, const void *rows, size_t ld, size_t first,
                               size_t n, float *out, size_t *out_ld)
{
        const unsigned char *at = (const unsigned char *)rows + first * ld * dci_dtype_size(dtype);
        if (dtype == DCI_F32) {
                *out_ld = ld;
                return (const float *)(const void *)at;
        }
        for (size_t i = 0; i < n; i++)
                sketch->context->kernels->to_f32[dtype - 1](at + i * ld * dci_dtype_size(dtype), sketch->dim,
                                                            out + i * sketch->dim);
        *out_ld = sketch->dim;
        return out;
}

dci_status dci_sketch_check_rows(const dci_sketch *sketch, dci_dtype dtype, const void *rows, size_t n, size_t ld,
                                 const char *what)
{
        size_t n_bytes;
        if (n == 0)
                return DCI_OK;
        if (rows == NULL)
                return dci_fail(DCI_ERR_INVALID, "the %s pointer is NULL for %zu of them", what, n);
        if (ld < sketch->dim)
                return dci_fail(DCI_ERR_INVALID, "%s stride is %zu, expected at least the dimension %zu", what, ld,
                                sketch->dim);
        if (!dci_mul(n, ld, &n_bytes) || !dci_mul(n_bytes, dci_dtype_size(dtype), &n_bytes) || n > MAX_ROWS)
                return dci_fail(DCI_ERR_LIMIT, "%zu of %s, %zu apart, are too many", n, what, ld);
        DCI_TRY(dci_check_aligned(what, rows, dci_dtype_size(dtype)));
        for (size_t i = 0; i < n; i++) {
                const unsigned char *row = (const unsigned char *)rows + i * ld * dci_dtype_size(dtype);
                if (!(sketch->context->kernels->norm2[dtype - 1](row, sketch->dim) <= DCI_SKETCH_MAX_NORM2))
                        return dci_fail(DCI_ERR_NUMBER, "%s %zu holds NaN or infinity, or its squared norm exceeds %g",
                                        what, i, (double)DCI_SKETCH_MAX_NORM2);
        }
        return DCI_OK;
}

static dci_status grow(dci_sketch *sketch, size_t n_rows)
{
        if (n_rows <= sketch->capacity)
                return DCI_OK;
        if (n_rows > MAX_ROWS)
                return dci_fail(DCI_ERR_LIMIT, "%zu rows are more than a sketch can hold, %zu", n_rows, MAX_ROWS);
        const size_t capacity = (n_rows + DCI_CODE_ROWS - 1) / DCI_CODE_ROWS * DCI_CODE_ROWS;
        const size_t n_blocks = sketch->capacity / DCI_CODE_ROWS;
        size_t n_bytes;
        if (!dci_mul(capacity / DCI_CODE_ROWS, 2 * sketch->frames.block_bytes + 1024, &n_bytes))
                return dci_fail(DCI_ERR_LIMIT, "%zu rows of dimension %zu are too large", n_rows, sketch->dim);
        void *memory = dci_alloc(sketch->context, dci_code_block_bytes(&sketch->frames, capacity), 1);
        if (memory == NULL)
                return DCI_ERR_MEMORY;
        dci_code_block area;
        dci_code_block_place(&sketch->frames, capacity, memory, &area);
        if (n_blocks > 0) {
                dci_code_block_copy(&sketch->frames, &sketch->area, sketch->capacity, &area);
                dci_free(sketch->context, sketch->memory, dci_code_block_bytes(&sketch->frames, sketch->capacity), 1);
        }
        dci_code_block_clear(&sketch->frames, n_blocks, capacity / DCI_CODE_ROWS - n_blocks, &area);
        sketch->memory = memory;
        sketch->capacity = capacity;
        sketch->area = area;
        return DCI_OK;
}

dci_status dci_sketch_reserve(dci_sketch *sketch, size_t n_rows)
{
        if (sketch == NULL)
                return dci_fail(DCI_ERR_INVALID, "sketch is NULL");
        return grow(sketch, n_rows);
}

/* One append, shared by its tasks: TASK_ROWS rows each, so that a block belongs to one task. */
typedef struct appending {
        dci_sketch *sketch;
        const void *rows;
        size_t ld, first, n; /* of the batch: rows first .. first + n of the sketch */
        size_t begin;        /* where the first task's rows begin: first, rounded down to a block */
        unsigned char *scratch;
        size_t scratch_bytes;
} appending;

static void append_task(void *arg, size_t task, size_t worker)
{
        const appending *a = arg;
        dci_sketch *sketch = a->sketch;
        unsigned char *scratch = a->scratch + worker * a->scratch_bytes;
        float *wide = (float *)(void *)(scratch + dci_frames_encode_bytes(&sketch->frames, false));
        size_t at = a->begin + task * TASK_ROWS, end = at + TASK_ROWS;
        at = at < a->first ? a->first : at;
        end = end > a->first + a->n ? a->first + a->n : end;
        while (at < end) {
                const float *rows[DCI_CODE_ROWS] = {NULL};
                const size_t block = at / DCI_CODE_ROWS, first = at % DCI_CODE_ROWS;
                const size_t n = end - at < DCI_CODE_ROWS - first ? end - at : DCI_CODE_ROWS - first;
                size_t ld;
                const float *floats =
                        dci_sketch_floats(sketch, sketch->dtype, a->rows, a->ld, at - a->first, n, wide, &ld);
                for (size_t r = 0; r < n; r++)
                        rows[first + r] = floats + r * ld;
                dci_code_block_encode_rows(&sketch->frames, &sketch->area, block, rows, scratch);
                at += n;
        }
}

/* Which frame each block of the rows gets: decided in slices, in order, from the rows to come. */
static dci_status select_frames(appending *a)
{
        dci_sketch *sketch = a->sketch;
        float *wide = (float *)(void *)(a->scratch + dci_frames_encode_bytes(&sketch->frames, false));
        for (size_t at = a->first, end; at < a->first + a->n; at = end) {
                end = (at / SLICE_ROWS + 1) * SLICE_ROWS;
                end = end > a->first + a->n ? a->first + a->n : end;
                dci_frames_expect(&sketch->frames, end - at);
                for (size_t i = at; i < end; i++) {
                        size_t ld;
                        const float *row =
                                dci_sketch_floats(sketch, sketch->dtype, a->rows, a->ld, i - a->first, 1, wide, &ld);
                        dci_frames_note(&sketch->frames, row, 1.0f, NULL);
                }
                DCI_TRY(dci_frames_follow(&sketch->frames));
                for (size_t block = at / DCI_CODE_ROWS; block * DCI_CODE_ROWS < end; block++)
                        if (sketch->area.frames[block] == DCI_NO_FRAME)
                                sketch->area.frames[block] = (uint8_t)dci_frames_last(&sketch->frames);
        }
        return DCI_OK;
}

/* Forgets rows from n on: a block without rows has no frame, and no reach. */
static void forget(dci_sketch *sketch, size_t n, size_t n_before)
{
        const size_t first = (n + DCI_CODE_ROWS - 1) / DCI_CODE_ROWS;
        const size_t end = (n_before + DCI_CODE_ROWS - 1) / DCI_CODE_ROWS;
        for (size_t block = first; block < end; block++) {
                sketch->area.frames[block] = DCI_NO_FRAME;
                sketch->area.reach[block] = 0.0f;
        }
}

dci_status dci_sketch_append(dci_sketch *sketch, size_t n, const void *rows, size_t ld)
{
        if (sketch == NULL)
                return dci_fail(DCI_ERR_INVALID, "sketch is NULL");
        DCI_TRY(dci_sketch_check_rows(sketch, sketch->dtype, rows, n, ld, "row"));
        if (n == 0)
                return DCI_OK;
        const size_t total = sketch->n + n; /* both at most 2^31 */
        const size_t doubled = sketch->capacity < MAX_ROWS / 2 ? 2 * sketch->capacity : MAX_ROWS;
        if (total > sketch->capacity)
                DCI_TRY(grow(sketch, total > doubled ? total : doubled));
        appending a = {.sketch = sketch, .rows = rows, .ld = ld, .first = sketch->n, .n = n};
        a.begin = a.first / DCI_CODE_ROWS * DCI_CODE_ROWS;
        const size_t n_wide = sketch->dtype == DCI_F32 ? 0 : DCI_CODE_ROWS;
        const size_t coding_bytes =
                dci_frames_encode_bytes(&sketch->frames, false) + dci_lines(n_wide * sketch->dim * sizeof(float));
        a.scratch_bytes = coding_bytes + dci_lines(sketch->dim * sizeof(double));
        const size_t n_tasks = (total - a.begin + TASK_ROWS - 1) / TASK_ROWS;
        const size_t n_workers = dci_workers_for(sketch->context, n_tasks, n * sketch->dim * 16);
        a.scratch = dci_alloc(sketch->context, n_workers, a.scratch_bytes);
        if (a.scratch == NULL)
                return DCI_ERR_MEMORY;
        dci_frames_mark mark;
        dci_frames_remember(&sketch->frames, (double *)(void *)(a.scratch + coding_bytes), &mark);
        dci_status status = select_frames(&a);
        if (status == DCI_OK)
                status = dci_parallel(&(dci_region){.context = sketch->context,
                                                    .n_tasks = n_tasks,
                                                    .n_workers = n_workers,
                                                    .fn = append_task,
                                                    .arg = &a,
                                                    .object = sketch});
        if (status == DCI_OK) {
                sketch->n = total;
        } else {
                forget(sketch, sketch->n, total);
                dci_frames_rewind(&sketch->frames, &mark);
        }
        dci_free(sketch->context, a.scratch, n_workers, a.scratch_bytes);
        return status;
}

dci_status dci_sketch_truncate(dci_sketch *sketch, size_t n)
{
        if (sketch == NULL)
                return dci_fail(DCI_ERR_INVALID, "sketch is NULL");
        if (n > sketch->n)
                return dci_fail(DCI_ERR_INVALID, "%zu rows are to be left, but there are %zu", n, sketch->n);
        forget(sketch, n, sketch->n);
        dci_frames_drop(&sketch->frames, sketch->n - n);
        /* Blocks name frames in the order in which these began. */
        dci_frames_cut(&sketch->frames, n == 0 ? 0 : sketch->area.frames[(n - 1) / DCI_CODE_ROWS] + (size_t)1);
        sketch->n = n;
        return DCI_OK;
}

/* A sample of rows, evenly spread, into moments. */
static void sample(const dci_sketch *sketch, dci_dtype dtype, const void *rows, size_t ld, size_t n, float *tile,
                   dci_moments *moments)
{
        const size_t taken = n < DCI_FIT_ROWS ? n : DCI_FIT_ROWS;
        size_t ignored, in_tile = 0;
        for (size_t i = 0; i < taken; i++) {
                const size_t at = (size_t)((uint64_t)i * n / taken); /* n at most 2^31 */
                float *to = tile + in_tile * sketch->dim;
                const float *row = dci_sketch_floats(sketch, dtype, rows, ld, at, 1, to, &ignored);
                if (row != to)
                        memcpy(to, row, sketch->dim * sizeof *to);
                if (++in_tile == DCI_MOMENT_ROWS || i + 1 == taken) {
                        dci_moments_add(moments, tile, sketch->dim, in_tile);
                        in_tile = 0;
                }
        }
}

dci_status dci_sketch_fit(dci_sketch *sketch, size_t n, const void *rows, size_t ld, size_t n_queries,
                          const void *queries, size_t query_ld)
{
        if (sketch == NULL)
                return dci_fail(DCI_ERR_INVALID, "sketch is NULL");
        if (n == 0 || n_queries == 0)
                return dci_fail(DCI_ERR_INVALID, "%zu rows and %zu queries to learn from, expected at least 1 of each",
                                n, n_queries);
        if (sketch->dim > DCI_SKETCH_MAX_FIT_DIM)
                return dci_fail(DCI_ERR_LIMIT, "dimension %zu is more than a transform can be learned for, %zu",
                                sketch->dim, DCI_SKETCH_MAX_FIT_DIM);
        DCI_TRY(dci_sketch_check_rows(sketch, sketch->dtype, rows, n, ld, "row"));
        DCI_TRY(dci_sketch_check_rows(sketch, sketch->query_dtype, queries, n_queries, query_ld, "query"));
        const size_t part = dci_moments_bytes(sketch->dim),
                     tile = dci_lines(DCI_MOMENT_ROWS * sketch->dim * sizeof(float));
        unsigned char *memory = dci_alloc(sketch->context, 2 * part + tile, 1);
        if (memory == NULL)
                return DCI_ERR_MEMORY;
        dci_moments of_rows, of_queries;
        float *wide = (float *)(void *)(memory + 2 * part);
        dci_moments_init(sketch->context->kernels, sketch->dim, memory, &of_rows);
        dci_moments_init(sketch->context->kernels, sketch->dim, memory + part, &of_queries);
        sample(sketch, sketch->dtype, rows, ld, n, wide, &of_rows);
        sample(sketch, sketch->query_dtype, queries, query_ld, n_queries, wide, &of_queries);
        dci_status status = dci_frames_learn(&sketch->frames, &of_rows, &of_queries, NULL);
        dci_free(sketch->context, memory, 2 * part + tile, 1);
        return status;
}

dci_status dci_sketch_decode(const dci_sketch *sketch, size_t n, const int64_t *rows, float *out, size_t ld)
{
        if (sketch == NULL || (n > 0 && (rows == NULL || out == NULL)))
                return dci_fail(DCI_ERR_INVALID, "sketch, rows or out is NULL");
        if (n > 0 && ld < sketch->dim)
                return dci_fail(DCI_ERR_INVALID, "stride is %zu, expected at least the dimension %zu", ld, sketch->dim);
        size_t n_out;
        if (!dci_mul(n, ld, &n_out) || n_out > SIZE_MAX / sizeof(float))
                return dci_fail(DCI_ERR_LIMIT, "%zu rows, %zu apart, are too many", n, ld);
        for (size_t i = 0; i < n; i++)
                if (rows[i] < 0 || (uint64_t)rows[i] >= sketch->n)
                        return dci_fail(DCI_ERR_NOT_FOUND, "row %lld is not among the %zu there are",
                                        (long long)rows[i], sketch->n);
        const size_t n_bytes = dci_frames_scratch_bytes(&sketch->frames);
        unsigned char *scratch = dci_alloc(sketch->context, n_bytes, 1);
        if (scratch == NULL)
                return DCI_ERR_MEMORY;
        uint8_t *codes = scratch + dci_coder_scratch_bytes(sketch->dim);
        for (size_t i = 0; i < n; i++) {
                const size_t at = (size_t)rows[i], block = at / DCI_CODE_ROWS;
                const dci_coder *coder = &sketch->frames.frame[sketch->area.frames[block]]->coder;
                dci_code_get(&coder->layout, sketch->area.blocks + block * sketch->frames.block_bytes,
                             at % DCI_CODE_ROWS, codes);
                dci_coder_decode(coder, codes, sketch->area.scales[at], scratch, out + i * ld);
        }
        dci_free(sketch->context, scratch, n_bytes, 1);
        return DCI_OK;
}

/* Mean squared residual of rows [first, end). */
static double distortion(const dci_sketch *sketch, size_t first, size_t end)
{
        double sum = 0.0;
        for (size_t i = first; i < end; i++)
                sum += (double)sketch->area.residuals[i] * (double)sketch->area.residuals[i];
        return sum / (double)(end - first);
}

/* The latest rows against the first ones that use the last rows' transform. */
static double drift(const dci_sketch *sketch)
{
        if (sketch->n == 0)
                return NAN;
        const dci_frames *frames = &sketch->frames;
        const size_t last = frames->frame[sketch->area.frames[(sketch->n - 1) / DCI_CODE_ROWS]]->transform;
        size_t first = 0;
        while (frames->frame[sketch->area.frames[first / DCI_CODE_ROWS]]->transform != last)
                first += DCI_CODE_ROWS;
        const size_t many = sketch->n - first < SLICE_ROWS ? sketch->n - first : SLICE_ROWS;
        const double before = distortion(sketch, first, first + many);
        const double now = distortion(sketch, sketch->n - many, sketch->n);
        return before > 0.0 ? now / before : now > 0.0 ? INFINITY : 1.0;
}

dci_status dci_sketch_get_info(const dci_sketch *sketch, dci_sketch_info *out_info)
{
        if (sketch == NULL || out_info == NULL)
                return dci_fail(DCI_ERR_INVALID, "sketch or out_info is NULL");
        DCI_TRY(dci_check_struct_size("dci_sketch_info", out_info, out_info->struct_size, sizeof *out_info));
        const dci_frames *frames = &sketch->frames;
        out_info->n_rows = sketch->n;
        out_info->bytes = sizeof *sketch - sizeof *frames + dci_frames_bytes(frames) +
                          (sketch->memory == NULL ? 0 : dci_code_block_bytes(frames, sketch->capacity));
        out_info->row_bytes = frames->block_bytes / DCI_CODE_ROWS + 2 * sizeof(float);
        out_info->centres = atomic_load(&frames->n);
        out_info->transforms = 0;
        for (size_t f = 0; f < out_info->centres; f++)
                out_info->transforms += frames->frame[f]->transform == f;
        out_info->drift = drift(sketch);
        out_info->isa = frames->reader->name;
        return DCI_OK;
}
