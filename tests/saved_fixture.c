/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/saved_fixture.h"

#include <stdio.h>
#include <string.h>

#include "tests/scratch.h"

static dci_index *make_index(const saved_world *w, size_t n)
{
        static const dci_index_kind kinds[] = {DCI_KIND_FLAT, DCI_KIND_PDCI, DCI_KIND_MDCI};
        dci_index_config config = index_config(TRACE_DIM, DCI_METRIC_IP, DCI_F32);
        dci_index *index = NULL;
        config.kind = kinds[w->kind];
        config.sketch_bits = w->kind == SAVED_MDCI_CODES ? 4 : 0;
        ck_ok(dci_index_create(w->context, &config, &index));
        ck_ok(dci_index_add(index, n, w->rows, TRACE_DIM, NULL, NULL));
        return index;
}

static void make_sequence(saved_world *w, size_t n)
{
        dci_kv_config config = kv_config(DCI_KV_SKETCH_LOWBIT, 2, 2, 2, TRACE_DIM);
        w->data = kv_trace(&config, n);
        w->kv = kv_create(w->context, &config);
        w->n_tokens[SAVED_OLD] = n / 2;
        w->n_tokens[SAVED_NEW] = n;
        w->sequence = kv_begin(w->kv, &w->data, n);
}

saved_world saved_make(int kind, size_t scale)
{
        saved_world w = {.kind = kind, .context = test_context(1)};
        w.queries = pdci_trace("queries", SAVED_QUERIES);
        if (kind == SAVED_KV) {
                make_sequence(&w, 300 * scale);
        } else {
                w.rows = pdci_trace("keys", 700 * scale);
                w.index[SAVED_OLD] = make_index(&w, 300 * scale);
                w.index[SAVED_NEW] = make_index(&w, 700 * scale);
        }
        for (int state = 0; state < SAVED_STATES; state++) {
                ck_ok(saved_save(&w, state, scratch_path("made")));
                w.bytes[state] = scratch_get("made", &w.n_bytes[state]);
        }
        ck_assert_int_eq(remove(scratch_path("made")), 0);
        return w;
}

void saved_destroy(saved_world *world)
{
        for (int state = 0; state < SAVED_STATES; state++) {
                dci_index_destroy(world->index[state]);
                free(world->bytes[state]);
        }
        dci_kv_destroy(world->kv);
        if (world->kind == SAVED_KV)
                kv_data_free(&world->data);
        test_free(world->rows, world->queries);
        dci_context_destroy(world->context);
        memset(world, 0, sizeof *world);
}

dci_status saved_save(const saved_world *world, int state, const char *path)
{
        return world->kind == SAVED_KV ? dci_kv_save(world->kv, world->sequence, world->n_tokens[state], path)
                                       : dci_index_save(world->index[state], path);
}

static void agree_on_searches(const saved_world *w, const dci_index *a, const dci_index *b)
{
        int64_t ids[2][SAVED_QUERIES * SAVED_K];
        float scores[2][SAVED_QUERIES * SAVED_K];
        for (int side = 0; side < 2; side++)
                ck_ok(dci_index_search(side == 0 ? a : b, SAVED_QUERIES, w->queries, TRACE_DIM, SAVED_K, NULL,
                                       ids[side], scores[side]));
        ck_assert_mem_eq(ids[0], ids[1], sizeof ids[0]);
        ck_assert_mem_eq(scores[0], scores[1], sizeof scores[0]);
}

/* All tokens that the file has, of which the world's sequence has at least as many. */
static void agree_on_rows(const saved_world *w, int state, int64_t loaded)
{
        const size_t n = w->n_tokens[state], bytes = n * TRACE_DIM * sizeof(uint16_t);
        unsigned char *rows[2] = {malloc(bytes), malloc(bytes)};
        ck_assert(rows[0] != NULL && rows[1] != NULL);
        ck_assert_uint_eq(kv_sequence_info(w->kv, loaded).n_tokens, n);
        for (size_t layer = 0; layer < w->data.n_layers; layer++)
                for (size_t head = 0; head < w->data.n_kv_heads; head++) {
                        ck_ok(dci_kv_read(w->kv, layer, w->sequence, head, 0, n, rows[0], NULL));
                        ck_ok(dci_kv_read(w->kv, layer, loaded, head, 0, n, rows[1], NULL));
                        ck_assert_mem_eq(rows[0], rows[1], bytes);
                }
        test_free(rows[0], rows[1]);
}

dci_status saved_load(saved_world *world, int state, bool mapped, const char *path)
{
        if (world->kind == SAVED_KV) {
                int64_t loaded = -1;
                const dci_status status = dci_kv_load(world->kv, path, &loaded);
                if (status == DCI_OK) {
                        agree_on_rows(world, state, loaded);
                        ck_ok(dci_kv_close(world->kv, loaded));
                }
                return status;
        }
        dci_index *loaded = NULL;
        const dci_status status = (mapped ? dci_index_map : dci_index_load)(world->context, path, &loaded);
        if (status == DCI_OK)
                agree_on_searches(world, world->index[state], loaded);
        else
                ck_assert_ptr_null(loaded);
        dci_index_destroy(loaded);
        return status;
}

int saved_state_of(const saved_world *world, const char *name)
{
        size_t n;
        unsigned char *found = scratch_get(name, &n);
        int state = 0;
        while (state < SAVED_STATES && (n != world->n_bytes[state] || memcmp(found, world->bytes[state], n) != 0))
                state++;
        free(found);
        return state;
}
