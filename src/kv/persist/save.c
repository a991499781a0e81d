/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "core/internal.h"

#include <string.h>

#include "kv/geometry.h"
#include "kv/lookup.h"
#include "kv/memory.h"
#include "kv/persist/persist.h"
#include "kv/sequence.h"
#include "kv/transform.h"
#include "kv/tree/tree.h"

void dci_kv_file_fields(const dci_kv *kv, size_t n_tokens, dci_kv_field out[DCI_KV_FILE_FIELDS])
{
        const dci_kv_config *c = &kv->config;
        uint64_t scale;
        memcpy(&scale, &c->scale, sizeof scale);
        const dci_kv_field fields[DCI_KV_FILE_FIELDS] = {
                {"n_layers", c->n_layers},
                {"n_query_heads", c->n_query_heads},
                {"n_kv_heads", c->n_kv_heads},
                {"dim_k", kv->dim_k},
                {"dim_v", kv->dim_v},
                {"dtype", (uint64_t)c->dtype},
                {"scale (its bits)", scale},
                {"page_tokens", c->page_tokens},
                {"group", (uint64_t)c->group},
                {"summary", (uint64_t)c->summary},
                {"select", (uint64_t)c->select},
                {"schedule", (uint64_t)c->schedule},
                {"tail", (uint64_t)c->tail},
                {"key_bits", (uint64_t)c->key_bits},
                {"value_bits", (uint64_t)c->value_bits},
                {"sink", c->sink},
                {"rollback", c->rollback},
                {"frozen_prompt", (uint64_t)c->frozen_prompt},
                {"seed", c->seed},
                {"tokens", n_tokens},
        };
        memcpy(out, fields, sizeof fields);
}

size_t dci_kv_transforms_bytes(const dci_kv *kv, int32_t key_kind, bool knows_queries, bool has_values)
{
        size_t n = 0;
        if (key_kind != 0)
                n += kv->dim_k * sizeof(float);
        if (key_kind == DCI_CODER_LEARNED)
                n += DCI_KV_LAYOUT_BYTES + dci_kv_wide(kv) * (2 * kv->dim_k + 1) * sizeof(float);
        if (knows_queries)
                n += dci_moments_kept_bytes(kv->dim_k);
        return n + (has_values ? kv->dim_v * sizeof(float) : 0);
}

typedef struct saving {
        dci_kv *kv;
        const dci_kv_sequence *sequence;
        size_t n;
        dci_kv_tree **trees; /* by layer and head, cut to n tokens; NULL: groups are no trees */
} saving;

static dci_kv_tree *tree_of(const saving *s, size_t layer, size_t head)
{
        return s->trees == NULL ? NULL : s->trees[layer * s->kv->config.n_kv_heads + head];
}

/* What was chosen once, or the tree. */
static size_t list_length(const saving *s, size_t layer, size_t head)
{
        if (s->trees != NULL)
                return dci_kv_tree_numbers(s->kv, tree_of(s, layer, head));
        return dci_kv_fixed_within(s->kv, &s->sequence->layers[layer].heads[head], s->n, NULL);
}

/* A frame without candidates has made no codes yet, and is as none. */
static int32_t kind_of(const dci_kv_transform *frame)
{
        return frame == NULL || frame->coder.dim == 0 ? 0 : frame->coder.kind;
}

static dci_status emit_config(const void *ctx, const dci_sink *sink)
{
        const saving *s = ctx;
        dci_kv_field fields[DCI_KV_FILE_FIELDS];
        unsigned char out[8 * DCI_KV_FILE_FIELDS];
        dci_kv_file_fields(s->kv, s->n, fields);
        for (size_t i = 0; i < DCI_KV_FILE_FIELDS; i++)
                dci_store_le64(out + 8 * i, fields[i].value);
        return sink->write(sink->ctx, out, sizeof out);
}

static dci_status emit_layers(const void *ctx, const dci_sink *sink)
{
        const saving *s = ctx;
        for (size_t l = 0; l < s->kv->config.n_layers; l++) {
                const dci_kv_layer *layer = &s->sequence->layers[l];
                unsigned char out[DCI_KV_LAYER_BYTES];
                dci_store_le64(out, dci_kv_grouped_within(s->kv, layer, s->n));
                dci_store_le64(out + 8, layer->n_prompt < s->n ? layer->n_prompt : s->n);
                DCI_TRY(sink->write(sink->ctx, out, sizeof out));
        }
        return DCI_OK;
}

/* Calls for each layer and head until one fails. */
static dci_status each_head(const saving *s, const dci_sink *sink,
                            dci_status (*emit)(const saving *s, size_t layer, size_t head, const dci_sink *sink))
{
        for (size_t l = 0; l < s->kv->config.n_layers; l++)
                for (size_t h = 0; h < s->kv->config.n_kv_heads; h++)
                        DCI_TRY(emit(s, l, h, sink));
        return DCI_OK;
}

static dci_status emit_head(const saving *s, size_t layer, size_t head, const dci_sink *sink)
{
        const dci_kv_head *h = &s->sequence->layers[layer].heads[head];
        unsigned char out[DCI_KV_HEAD_BYTES];
        const int32_t kind = kind_of(h->keys);
        dci_store_le32(out, (uint32_t)kind);
        dci_store_le32(out + 4, kind_of(h->values) != 0);
        dci_store_le64(out + 8, kind != 0 ? h->keys->n_queries : 0);
        dci_store_f64(out + 16, kind != 0 ? h->keys->distortion : -1.0);
        dci_store_f64(out + 24, h->sum_latest);
        dci_store_f64(out + 32, h->sum_now);
        dci_store_le32(out + 40, h->n_latest);
        dci_store_le32(out + 44, h->n_now);
        dci_store_le32(out + 48, (uint32_t)h->refits);
        dci_store_le32(out + 52, (uint32_t)list_length(s, layer, head));
        return sink->write(sink->ctx, out, sizeof out);
}

static dci_status emit_heads(const void *ctx, const dci_sink *sink)
{
        return each_head(ctx, sink, emit_head);
}

static dci_status emit_layout(const dci_code_layout *layout, const dci_sink *sink)
{
        unsigned char out[DCI_KV_LAYOUT_BYTES] = {0};
        dci_store_le64(out, layout->n_coords[DCI_CODE_8]);
        dci_store_le64(out + 8, layout->n_lines);
        dci_store_le64(out + 16, layout->n_groups);
        for (size_t g = 0; g < layout->n_groups; g++) {
                out[24 + 4 * g] = layout->groups[g].line;
                out[25 + 4 * g] = layout->groups[g].shift;
                out[26 + 4 * g] = layout->groups[g].bits;
        }
        return sink->write(sink->ctx, out, sizeof out);
}

static dci_status emit_frame(const saving *s, size_t layer, size_t head, const dci_sink *sink)
{
        const dci_kv *kv = s->kv;
        const dci_kv_head *h = &s->sequence->layers[layer].heads[head];
        const int32_t kind = kind_of(h->keys);
        if (kind != 0)
                DCI_TRY(sink->write(sink->ctx, h->keys->coder.centre, kv->dim_k * sizeof(float)));
        if (kind == DCI_CODER_LEARNED) {
                const dci_coder *coder = &h->keys->coder;
                const size_t wide = dci_kv_wide(kv);
                DCI_TRY(emit_layout(&coder->layout, sink));
                DCI_TRY(sink->write(sink->ctx, coder->worth, wide * sizeof(float)));
                DCI_TRY(sink->write(sink->ctx, coder->to, wide * kv->dim_k * sizeof(float)));
                DCI_TRY(sink->write(sink->ctx, coder->from, wide * kv->dim_k * sizeof(float)));
        }
        if (kind != 0 && h->keys->n_queries > 0)
                DCI_TRY(sink->write(sink->ctx, dci_kv_transform_moments(h->keys, kv->dim_k),
                                    dci_moments_kept_bytes(kv->dim_k)));
        if (kind_of(h->values) != 0)
                DCI_TRY(sink->write(sink->ctx, h->values->coder.centre, kv->dim_v * sizeof(float)));
        return DCI_OK;
}

static dci_status emit_frames(const void *ctx, const dci_sink *sink)
{
        return each_head(ctx, sink, emit_frame);
}

static dci_status emit_list(const saving *s, size_t layer, size_t head, const dci_sink *sink)
{
        const dci_kv_head *h = &s->sequence->layers[layer].heads[head];
        for (size_t i = 0; s->trees != NULL && i < list_length(s, layer, head); i++) {
                const int32_t number = dci_kv_tree_number(s->kv, tree_of(s, layer, head), i);
                DCI_TRY(sink->write(sink->ctx, &number, sizeof number));
        }
        for (size_t i = 0; i < h->n_fixed; i++)
                if (s->kv->config.sink + (size_t)h->fixed[i] < s->n)
                        DCI_TRY(sink->write(sink->ctx, &h->fixed[i], sizeof *h->fixed));
        return DCI_OK;
}

static dci_status emit_fixed(const void *ctx, const dci_sink *sink)
{
        return each_head(ctx, sink, emit_list);
}

static dci_status emit_groups(const void *ctx, const dci_sink *sink)
{
        const saving *s = ctx;
        return dci_kv_emit_clusters(s->kv, s->sequence, s->n, sink);
}

static dci_status emit_rows(const saving *s, size_t layer, size_t head, bool of_keys, const dci_sink *sink)
{
        const dci_kv *kv = s->kv;
        const void *rows[DCI_KV_TILE];
        for (size_t i = 0, n; i < s->n; i += n) {
                n = s->n - i < DCI_KV_TILE ? s->n - i : DCI_KV_TILE;
                dci_kv_rows_of(kv, &s->sequence->layers[layer], head, i, n, of_keys ? rows : NULL,
                               of_keys ? NULL : rows);
                for (size_t r = 0; r < n; r++)
                        DCI_TRY(sink->write(sink->ctx, rows[r], (of_keys ? kv->dim_k : kv->dim_v) * kv->es));
        }
        return DCI_OK;
}

static dci_status emit_key_rows(const saving *s, size_t layer, size_t head, const dci_sink *sink)
{
        return emit_rows(s, layer, head, true, sink);
}

static dci_status emit_value_rows(const saving *s, size_t layer, size_t head, const dci_sink *sink)
{
        return emit_rows(s, layer, head, false, sink);
}

static dci_status emit_keys(const void *ctx, const dci_sink *sink)
{
        return each_head(ctx, sink, emit_key_rows);
}

static dci_status emit_values(const void *ctx, const dci_sink *sink)
{
        return each_head(ctx, sink, emit_value_rows);
}

static void drop_trees(saving *s)
{
        const size_t n_heads = s->kv->config.n_layers * s->kv->config.n_kv_heads;
        for (size_t i = 0; s->trees != NULL && i < n_heads; i++)
                dci_kv_tree_release(s->kv, s->trees[i]);
        dci_kv_free(s->kv, s->trees, n_heads * sizeof(void *));
}

/* Trees of what is saved: the sequence's, or copies that are cut. */
static dci_status hold_trees(saving *s)
{
        dci_kv *kv = s->kv;
        const size_t n_heads = kv->config.n_kv_heads, n_bytes = kv->config.n_layers * n_heads * sizeof(void *);
        if (!dci_kv_has_trees(kv))
                return DCI_OK;
        dci_status status = dci_kv_alloc(kv, n_bytes, (void **)&s->trees);
        if (status != DCI_OK)
                return status;
        memset(s->trees, 0, n_bytes);
        for (size_t i = 0; i < kv->config.n_layers * n_heads && status == DCI_OK; i++) {
                const dci_kv_layer *layer = &s->sequence->layers[i / n_heads];
                status =
                        dci_kv_tree_share(kv, layer, i % n_heads, dci_kv_grouped_within(kv, layer, s->n), &s->trees[i]);
        }
        return status;
}

static dci_status write_file(const saving *s, const char *path)
{
        const dci_kv *kv = s->kv;
        const dci_kv_sequence *sequence = s->sequence;
        const size_t n = s->n;
        const size_t n_heads = kv->config.n_layers * kv->config.n_kv_heads;
        size_t frames = 0, fixed = 0;
        for (size_t l = 0; l < kv->config.n_layers; l++)
                for (size_t i = 0; i < kv->config.n_kv_heads; i++) {
                        const dci_kv_head *h = &sequence->layers[l].heads[i];
                        const int32_t kind = kind_of(h->keys);
                        frames += dci_kv_transforms_bytes(kv, kind, kind != 0 && h->keys->n_queries > 0,
                                                          kind_of(h->values) != 0);
                        fixed += list_length(s, l, i);
                }
        const dci_part parts[] = {
                {"config", 8 * DCI_KV_FILE_FIELDS, emit_config, s},
                {"layers", kv->config.n_layers * DCI_KV_LAYER_BYTES, emit_layers, s},
                {"heads", n_heads * DCI_KV_HEAD_BYTES, emit_heads, s},
                {"frames", frames, emit_frames, s},
                {"fixed", fixed * sizeof(int32_t), emit_fixed, s},
                {"keys", n_heads * n * kv->dim_k * kv->es, emit_keys, s},
                {"values", n_heads * n * kv->dim_v * kv->es, emit_values, s},
                {"groups", kv->clustered ? dci_kv_clusters_bytes(kv, sequence, n) : 0, emit_groups, s},
        };
        dci_replacement replacement;
        DCI_TRY(dci_replace_begin(path, &replacement));
        const dci_sink sink = {&replacement, dci_replace_write};
        dci_status status = dci_file_compose_buffered(kv->context, &sink, DCI_KV_FILE_KIND, DCI_KV_FILE_VERSION,
                                                      (size_t)DCI_KV_FILE_SECTIONS + kv->clustered, parts);
        return dci_replace_end(&replacement, status);
}

static dci_status save(dci_kv *kv, const dci_kv_sequence *sequence, size_t n, const char *path)
{
        saving s = {kv, sequence, n, NULL};
        dci_status status = hold_trees(&s);
        if (status == DCI_OK)
                status = write_file(&s, path);
        drop_trees(&s);
        return status;
}

dci_status dci_kv_save(dci_kv *kv, int64_t sequence, size_t n_tokens, const char *path)
{
        DCI_TRY(dci_kv_lock(kv));
        dci_kv_sequence *found = dci_kv_find(kv, sequence);
        dci_status status = found == NULL ? DCI_ERR_NOT_FOUND : dci_kv_check_whole(kv, found, n_tokens);
        if (status == DCI_OK)
                status = dci_kv_check_prompted(kv, found);
        if (status == DCI_OK && path == NULL)
                status = dci_fail(DCI_ERR_INVALID, "path is NULL");
        if (status == DCI_OK) {
                dci_kv_jobs_wait(kv, found);
                status = save(kv, found, n_tokens, path);
        }
        dci_kv_unlock(kv);
        return status;
}
