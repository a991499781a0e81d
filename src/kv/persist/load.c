/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "core/internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "kv/check/check.h"
#include "kv/chunk.h"
#include "kv/clustering.h"
#include "kv/geometry.h"
#include "kv/memory.h"
#include "kv/persist/persist.h"
#include "kv/pool.h"
#include "kv/sequence.h"
#include "kv/stages/schedule.h"
#include "kv/summaries.h"
#include "kv/worker.h"

typedef struct loading {
        dci_kv *kv;
        dci_kv_sequence *sequence;
        size_t n;
        const unsigned char *layers, *heads, *frames, *fixed, *keys, *values;
        size_t frames_left, fixed_left; /* bytes that no head has taken yet */
        dci_kv_words groups;
        dci_kv_marks marks;
} loading;

static dci_status take(const dci_file *file, const char *name, size_t expected, const unsigned char **out)
{
        const void *data;
        size_t n_bytes;
        DCI_TRY(dci_file_section(file, name, &data, &n_bytes));
        if (n_bytes != expected)
                return dci_fail(DCI_ERR_FORMAT, "the file's section '%s' has %zu bytes, expected %zu", name, n_bytes,
                                expected);
        *out = data;
        return DCI_OK;
}

static dci_status check_fields(const dci_file *file, const dci_kv *kv, size_t *out_n)
{
        const unsigned char *config = NULL;
        dci_kv_field fields[DCI_KV_FILE_FIELDS];
        const dci_status status = take(file, "config", 8 * (size_t)DCI_KV_FILE_FIELDS, &config);
        if (status != DCI_OK || config == NULL)
                return status;
        dci_kv_file_fields(kv, 0, fields);
        for (size_t i = 0; i + 1 < DCI_KV_FILE_FIELDS; i++) {
                const uint64_t there = dci_load_le64(config + 8 * i);
                if (there != fields[i].value)
                        return dci_fail(DCI_ERR_INVALID, "the file's %s is %" PRIu64 ", expected %" PRIu64,
                                        fields[i].name, there, fields[i].value);
        }
        const uint64_t n = dci_load_le64(config + 8 * ((size_t)DCI_KV_FILE_FIELDS - 1));
        if (n > DCI_KV_MAX_TOKENS)
                return dci_fail(DCI_ERR_FORMAT, "the file has %" PRIu64 " tokens, the most are %zu", n,
                                DCI_KV_MAX_TOKENS);
        *out_n = (size_t)n;
        return DCI_OK;
}

static dci_status find_sections(const dci_file *file, loading *l)
{
        const dci_kv *kv = l->kv;
        const size_t n_heads = kv->config.n_layers * kv->config.n_kv_heads;
        const void *data;
        DCI_TRY(take(file, "layers", kv->config.n_layers * DCI_KV_LAYER_BYTES, &l->layers));
        DCI_TRY(take(file, "heads", n_heads * DCI_KV_HEAD_BYTES, &l->heads));
        DCI_TRY(take(file, "keys", n_heads * l->n * kv->dim_k * kv->es, &l->keys));
        DCI_TRY(take(file, "values", n_heads * l->n * kv->dim_v * kv->es, &l->values));
        DCI_TRY(dci_file_section(file, "frames", &data, &l->frames_left));
        l->frames = data;
        dci_status status = dci_file_section(file, "fixed", &data, &l->fixed_left);
        l->fixed = data;
        if (status == DCI_OK && kv->clustered) {
                status = dci_file_section(file, "groups", &data, &l->groups.left);
                l->groups.at = data;
        }
        return status;
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

static dci_status load_rows(const loading *l, size_t layer, size_t head)
{
        const dci_kv *kv = l->kv;
        const size_t at = (layer * kv->config.n_kv_heads + head) * l->n, key = kv->dim_k * kv->es,
                     value = kv->dim_v * kv->es, per_page = kv->config.page_tokens;
        for (size_t t = 0; t < l->n; t++) {
                const dci_kv_page page = dci_kv_page_at(kv, layer, l->sequence->table[t / per_page], head);
                unsigned char *to_key = page.keys + t % per_page * page.key_step;
                unsigned char *to_value = page.values + t % per_page * page.value_step;
                memcpy(to_key, l->keys + (at + t) * key, key);
                memcpy(to_value, l->values + (at + t) * value, value);
                const dci_kernels *kernels = kv->context->kernels;
                if (!isfinite(kernels->norm2[kv->config.dtype - 1](to_key, kv->dim_k)) ||
                    !isfinite(kernels->norm2[kv->config.dtype - 1](to_value, kv->dim_v)))
                        return dci_fail(DCI_ERR_FORMAT,
                                        "the file's token %zu in layer %zu, kv head %zu, holds NaN or infinity", t,
                                        layer, head);
        }
        return DCI_OK;
}

static dci_status load_blocks(loading *l)
{
        dci_kv *kv = l->kv;
        dci_kv_sequence *sequence = l->sequence;
        const size_t n_blocks = dci_kv_blocks_of(kv, l->n);
        dci_status status = dci_kv_pool_ready(kv, &kv->pool, n_blocks);
        if (status == DCI_OK)
                status = dci_kv_grow_table(kv, sequence, n_blocks);
        while (status == DCI_OK && sequence->n_table < n_blocks)
                sequence->table[sequence->n_table++] = dci_kv_pool_alloc(&kv->pool);
        for (size_t i = 0; i < kv->config.n_layers && status == DCI_OK; i++) {
                sequence->layers[i].n = l->n;
                for (size_t h = 0; h < kv->config.n_kv_heads && status == DCI_OK; h++)
                        status = load_rows(l, i, h);
        }
        sequence->n = l->n;
        return status;
}

/* --- frames ------------------------------------------------------------------------------------------------------- */

static bool finite_doubles(const void *doubles, size_t n)
{
        const unsigned char *at = doubles;
        for (size_t i = 0; i < n; i++) {
                double x;
                memcpy(&x, at + i * sizeof x, sizeof x);
                if (!isfinite(x))
                        return false;
        }
        return true;
}

/* As rows: what is as long as none can be would overflow when it is subtracted from one. */
static bool is_centre(const dci_kv *kv, const void *floats, size_t n)
{
        const float *centre = memcpy(kv->load_row, floats, n * sizeof *centre);
        return isfinite(kv->context->kernels->norm2[DCI_F32 - 1](centre, n));
}

/* Parts are in order: centre, then if learned layout, worth, to and from. */
static bool restore_learned(const dci_kv *kv, const unsigned char *at, dci_kv_transform *frame)
{
        const size_t dim = kv->dim_k, wide = dci_kv_wide(kv);
        const unsigned char *layout = at + dim * sizeof(float), *worth = layout + DCI_KV_LAYOUT_BYTES;
        const size_t block_bytes = dci_frames_block_bytes(dim, kv->config.key_bits);
        dci_coder *coder = &frame->coder;
        dci_coder_init_learned(kv->context, dim, kv->config.key_bits, dci_kv_codes_alone(kv),
                               dci_kv_transform_memory(frame), coder);
        if (!dci_floats_finite(worth, wide * (2 * dim + 1)))
                return false;
        memcpy(coder->centre, at, dim * sizeof(float));
        memcpy(coder->worth, worth, wide * sizeof(float));
        memcpy(coder->to, worth + wide * sizeof(float), wide * dim * sizeof(float));
        memcpy(coder->from, worth + wide * (dim + 1) * sizeof(float), wide * dim * sizeof(float));
        dci_code_layout read;
        if (!dci_code_layout_learned(dci_load_le64(layout), dci_load_le64(layout + 8), dci_load_le64(layout + 16),
                                     layout + 24, 4, wide, block_bytes, &read))
                return false;
        memcpy(coder->layout.n_coords, read.n_coords, sizeof read.n_coords);
        memcpy(coder->layout.groups, read.groups, sizeof read.groups);
        coder->layout.n_lines = read.n_lines;
        coder->layout.n_groups = read.n_groups;
        dci_coder_finish_learned(coder);
        return true;
}

static dci_status load_key_frame(loading *l, dci_kv_head *head, int32_t kind, uint64_t n_queries, size_t n_bytes)
{
        dci_kv *kv = l->kv;
        const unsigned char *at = l->frames;
        DCI_TRY(dci_kv_transform_alloc(kv, n_queries > 0 ? DCI_CODER_LEARNED : DCI_CODER_ROTATED, kv->dim_k,
                                       &head->keys));
        bool good = is_centre(kv, at, kv->dim_k);
        if (good && kind == DCI_CODER_LEARNED) {
                good = restore_learned(kv, at, head->keys);
        } else if (good) {
                /* Sections begin at multiples of 64 and their parts at multiples of 4. */
                dci_coder_init(kv->context, DCI_CODER_ROTATED, kv->dim_k, kv->config.key_bits, kv->config.seed,
                               kv->load_row, dci_kv_transform_memory(head->keys), &head->keys->coder);
        }
        if (good && n_queries > 0) {
                const size_t kept = dci_moments_kept_bytes(kv->dim_k);
                const size_t shift = dci_lines(kv->dim_k * sizeof(float));
                const unsigned char *moments = at + n_bytes - kept;
                good = finite_doubles(moments, (kept - shift) / sizeof(double)) &&
                       dci_floats_finite(moments + kept - shift, kv->dim_k);
                memcpy(dci_kv_transform_moments(head->keys, kv->dim_k), moments, kept);
                head->keys->n_queries = (size_t)n_queries;
        }
        return good ? DCI_OK
                    : dci_fail(DCI_ERR_FORMAT, "a transform of the file holds NaN, infinity, a centre that is too "
                                               "long, or a wrong layout");
}

static dci_status load_value_frame(loading *l, dci_kv_head *head)
{
        dci_kv *kv = l->kv;
        DCI_TRY(dci_kv_transform_alloc(kv, DCI_CODER_ROTATED, kv->dim_v, &head->values));
        if (!is_centre(kv, l->frames, kv->dim_v))
                return dci_fail(DCI_ERR_FORMAT, "a centre of the file's values holds NaN or infinity, or is too long");
        dci_kv_begin_values(kv, kv->load_row, head->values);
        return DCI_OK;
}

static dci_status load_fixed(loading *l, dci_kv_head *head, size_t n)
{
        if (n > l->fixed_left / sizeof(int32_t))
                return dci_fail(DCI_ERR_FORMAT, "the file's section 'fixed' is too short");
        dci_status status = dci_kv_grow(l->kv, (void **)&head->fixed, &head->fixed_capacity, n, sizeof *head->fixed);
        if (status != DCI_OK || n == 0)
                return status;
        memcpy(head->fixed, l->fixed, n * sizeof *head->fixed);
        head->n_fixed = n;
        l->fixed += n * sizeof *head->fixed;
        l->fixed_left -= n * sizeof *head->fixed;
        status = dci_kv_marks_clear(&l->marks, l->n);
        for (size_t i = 0; i < n && status == DCI_OK; i++) {
                const size_t at = l->kv->config.sink + (size_t)head->fixed[i];
                if (head->fixed[i] < 0 || at >= l->n || !dci_kv_mark(&l->marks, at))
                        return dci_fail(
                                DCI_ERR_FORMAT,
                                "the file's section 'fixed' names token %d after the sink, which is not, or twice",
                                (int)head->fixed[i]);
        }
        return status;
}

/* The tree of a head's n_candidates candidates, from n numbers. */
static dci_status load_tree(loading *l, const dci_kv_layer *layer, size_t head, size_t n)
{
        dci_kv *kv = l->kv;
        if (n > l->fixed_left / sizeof(int32_t))
                return dci_fail(DCI_ERR_FORMAT, "the file's section 'fixed' is too short");
        if ((n > 0) != (layer->n_grouped > 0))
                return dci_fail(DCI_ERR_FORMAT, "layer %zu, kv head %zu: a tree of %zu numbers for %zu tokens",
                                layer->number, head, n, layer->n_grouped);
        if (n == 0)
                return DCI_OK;
        dci_status status = dci_kv_tree_alloc(kv, layer->n_grouped, &layer->heads[head].tree);
        if (status == DCI_OK) /* sections begin at multiples of 64 and this one has numbers of 4 bytes only */
                status = dci_kv_tree_read(kv, layer, head, (const int32_t *)(const void *)l->fixed, n, layer->n_grouped,
                                          layer->heads[head].tree);
        l->fixed += n * sizeof(int32_t);
        l->fixed_left -= n * sizeof(int32_t);
        return status;
}

/* What was watched of the codes: sums of squares, and fewer new fits than would ever overflow. */
static dci_status check_watched(const dci_kv_layer *layer, size_t head, const unsigned char *at)
{
        if (!isnan(dci_load_f64(at + 16)) && dci_load_f64(at + 24) >= 0.0 && dci_load_f64(at + 32) >= 0.0 &&
            dci_load_le32(at + 48) <= INT32_MAX / 2)
                return DCI_OK;
        return dci_fail(DCI_ERR_FORMAT,
                        "layer %zu, kv head %zu: what the file says of its codes' rounding cannot be: %g, %g and %g, "
                        "encoded again %u times",
                        layer->number, head, dci_load_f64(at + 16), dci_load_f64(at + 24), dci_load_f64(at + 32),
                        (unsigned)dci_load_le32(at + 48));
}

static dci_status load_head(loading *l, dci_kv_layer *layer, size_t head)
{
        dci_kv *kv = l->kv;
        dci_kv_head *h = &layer->heads[head];
        const unsigned char *at = l->heads + (layer->number * kv->config.n_kv_heads + head) * DCI_KV_HEAD_BYTES;
        const uint32_t kind = dci_load_le32(at), has_values = dci_load_le32(at + 4);
        const uint64_t n_queries = dci_load_le64(at + 8);
        /* A tree's codes are made from its rows, with the file's transform or, without one, a new one. */
        const bool codes = kv->stages->summary.frame != 0, tree = dci_kv_has_trees(kv);
        const bool kinds = kind == 0 || kind == DCI_CODER_ROTATED || kind == DCI_CODER_LEARNED;
        if (!kinds || (kind != 0 && !codes && (!tree || kind != DCI_CODER_ROTATED)) ||
            (kind == DCI_CODER_LEARNED && n_queries == 0) ||
            (n_queries > 0 && (kind == 0 || kv->config.summary != DCI_KV_SUMMARY_LEARNED)) || has_values > 1 ||
            (has_values == 1 && !kv->stages->tail.values) || n_queries > SIZE_MAX / 2 ||
            (layer->n_grouped > 0 && ((codes && kind == 0 && !tree) || (kv->stages->tail.values && has_values == 0))))
                return dci_fail(DCI_ERR_FORMAT,
                                "layer %zu, kv head %zu: the file's transforms do not go with its config",
                                layer->number, head);
        const size_t keys = dci_kv_transforms_bytes(kv, (int32_t)kind, n_queries > 0, false);
        const size_t values = dci_kv_transforms_bytes(kv, 0, false, has_values == 1);
        if (keys + values > l->frames_left)
                return dci_fail(DCI_ERR_FORMAT, "the file's section 'frames' is too short");
        dci_status status = check_watched(layer, head, at);
        if (status == DCI_OK && kind != 0 && codes)
                status = load_key_frame(l, h, (int32_t)kind, n_queries, keys);
        if (status == DCI_OK && kind == 0 && codes && layer->n_grouped > 0)
                status = dci_kv_alloc_transforms(kv, layer, head, false);
        l->frames += keys;
        if (status == DCI_OK && has_values == 1)
                status = load_value_frame(l, h);
        l->frames += values;
        l->frames_left -= keys + values;
        if (status == DCI_OK && dci_kv_has_trees(kv))
                status = load_tree(l, layer, head, dci_load_le32(at + 52));
        else if (status == DCI_OK)
                status = load_fixed(l, h, dci_load_le32(at + 52));
        return status;
}

static dci_status load_layer(loading *l, dci_kv_layer *layer)
{
        dci_kv *kv = l->kv;
        const uint64_t n_grouped = dci_load_le64(l->layers + layer->number * DCI_KV_LAYER_BYTES);
        const uint64_t n_prompt = dci_load_le64(l->layers + layer->number * DCI_KV_LAYER_BYTES + 8);
        const size_t after = l->n > kv->config.sink ? l->n - kv->config.sink : 0;
        if (n_grouped > 0 && !dci_kv_groups(kv, layer->number))
                return dci_fail(
                        DCI_ERR_INVALID,
                        "layer %zu has groups in the file, but none here: it is dense, or uses another layer's lists",
                        layer->number);
        if (n_grouped > after || n_prompt > l->n || (kv->config.frozen_prompt == 0 && n_grouped % dci_kv_unit(kv) != 0))
                return dci_fail(DCI_ERR_FORMAT, "layer %zu: the file has groups of %" PRIu64 " tokens of %zu",
                                layer->number, n_grouped, l->n);
        layer->n_grouped = (size_t)n_grouped;
        layer->n_prompt = (size_t)n_prompt;
        atomic_store(&layer->prompt, DCI_KV_PROMPT_DONE);
        DCI_TRY(kv->clustered ? dci_kv_load_clusters(kv, layer, &l->groups)
                              : dci_kv_make_chunks_exclusive(kv, layer, 0, layer->n_grouped));
        for (size_t h = 0; h < kv->config.n_kv_heads; h++)
                DCI_TRY(load_head(l, layer, h));
        return DCI_OK;
}

static void form_task(void *arg, size_t task, size_t area)
{
        const loading *l = arg;
        dci_kv *kv = l->kv;
        dci_kv_layer *layer = &l->sequence->layers[task / kv->config.n_kv_heads];
        const size_t head = task % kv->config.n_kv_heads;
        dci_kv_head *h = &layer->heads[head];
        for (size_t b = 0; b < layer->n_batches; b++)
                dci_kv_clusters_summarise(kv, layer, layer->batches[b], head, area);
        const bool fits = h->keys != NULL && h->keys->coder.dim == 0; /* the file's tree had no codes */
        (fits ? dci_kv_rebuild : dci_kv_build)(kv, layer, head, 0, layer->n_grouped, dci_kv_build_area(kv, area));
        /* What was watched is what the file says, not what has just been made again. */
        const unsigned char *at = l->heads + task * DCI_KV_HEAD_BYTES;
        if (h->keys != NULL)
                h->keys->distortion = dci_load_f64(at + 16);
        h->sum_latest = dci_load_f64(at + 24);
        h->sum_now = dci_load_f64(at + 32);
        h->n_latest = dci_load_le32(at + 40);
        h->n_now = dci_load_le32(at + 44);
        h->refits = (int32_t)dci_load_le32(at + 48);
}

static dci_status load_into(loading *l)
{
        dci_kv *kv = l->kv;
        DCI_TRY(load_blocks(l));
        for (size_t i = 0; i < kv->config.n_layers; i++)
                DCI_TRY(load_layer(l, &l->sequence->layers[i]));
        if (l->frames_left != 0 || l->fixed_left != 0 || l->groups.left != 0)
                return dci_fail(DCI_ERR_FORMAT, "the file's sections 'frames', 'fixed' or 'groups' are too long");
        DCI_TRY(dci_kv_build_ready(kv));
        DCI_TRY(dci_kv_boundaries_ready(kv, l->sequence, 0)); /* of plans before the next reservation */
        const size_t n_tasks = kv->config.n_layers * kv->config.n_kv_heads;
        return dci_kv_spread_build(kv, n_tasks, n_tasks * l->n * (kv->dim_k + kv->dim_v), form_task, l);
}

static dci_status load(dci_kv *kv, const char *path, int64_t *out)
{
        dci_file file;
        loading l = {.kv = kv, .marks.context = kv->context};
        if (path == NULL || out == NULL)
                return dci_fail(DCI_ERR_INVALID, "%s is NULL", path == NULL ? "path" : "out_sequence");
        if (kv->pool.caller_blocks)
                return dci_fail(DCI_ERR_UNSUPPORTED, "blocks are the caller's: the library has none to load rows into");
        dci_status status = dci_file_load(kv->context, path, DCI_KV_FILE_KIND, &file);
        if (status != DCI_OK)
                return status;
        if (file.version != DCI_KV_FILE_VERSION)
                status = dci_fail(DCI_ERR_UNSUPPORTED, "the file's version is %u, this library reads %u",
                                  (unsigned)file.version, DCI_KV_FILE_VERSION);
        if (status == DCI_OK && file.n_sections < DCI_KV_FILE_SECTIONS)
                status = dci_fail(DCI_ERR_FORMAT, "the file has %zu sections, expected at least %d", file.n_sections,
                                  DCI_KV_FILE_SECTIONS);
        if (status == DCI_OK)
                status = check_fields(&file, kv, &l.n);
        if (status == DCI_OK && file.n_sections != (size_t)DCI_KV_FILE_SECTIONS + kv->clustered)
                status = dci_fail(DCI_ERR_FORMAT, "the file has %zu sections, expected %zu", file.n_sections,
                                  (size_t)DCI_KV_FILE_SECTIONS + kv->clustered);
        if (status == DCI_OK)
                status = find_sections(&file, &l);
        const size_t row = (kv->dim_k > kv->dim_v ? kv->dim_k : kv->dim_v) * sizeof *kv->load_row;
        if (status == DCI_OK)
                status = dci_kv_alloc(kv, row, (void **)&kv->load_row);
        if (status == DCI_OK)
                status = dci_kv_new_sequence(kv, &l.sequence);
        if (status == DCI_OK) {
                status = load_into(&l);
                if (status == DCI_OK)
                        *out = l.sequence->id;
                else
                        dci_kv_free_sequence(kv, l.sequence);
        }
        dci_kv_free(kv, kv->load_row, row);
        kv->load_row = NULL;
        dci_kv_marks_free(&l.marks);
        dci_file_free(&file);
        return status;
}

dci_status dci_kv_load(dci_kv *kv, const char *path, int64_t *out_sequence)
{
        DCI_TRY(dci_kv_lock(kv));
        dci_status status = load(kv, path, out_sequence);
        dci_kv_unlock(kv);
        return status;
}
