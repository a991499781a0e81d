/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Every damage to a KV cache that a test can make is found by dci_kv_check and named; kv_damage.h has the table.
 */
#include <math.h>
#include <string.h>

#include "kv/chunk.h"
#include "kv/clusters.h"
#include "kv/geometry.h"
#include "kv/pool.h"
#include "kv/transform.h"
#include "kv/tree/tree.h"
#include "tests/damage_fixture.h"
#include "tests/kv_check_fixture.h"

static dci_kv_sequence *first(dci_kv *kv)
{
        return kv->sequences[0];
}
static dci_kv_layer *layer(dci_kv *kv)
{
        return &first(kv)->layers[1];
}
static dci_kv_head *head(dci_kv *kv)
{
        return &layer(kv)->heads[1];
}
static int32_t *free_list(dci_kv *kv)
{
        ck_assert_uint_ge(kv->pool.n_free, 2);
        return kv->pool.free_list;
}

/* The first number of the key and of the value of token 40, in half precision. */
static dci_kv_page page(dci_kv *kv)
{
        return dci_kv_page_at(kv, 1, first(kv)->table[40 / kv->config.page_tokens], 1);
}
static uint16_t *key(dci_kv *kv)
{
        return (void *)page(kv).keys;
}
static uint16_t *value(dci_kv *kv)
{
        return (void *)page(kv).values;
}
static unsigned char *summaries(dci_kv *kv)
{
        return dci_kv_chunk_head(kv, layer(kv), 0, 1);
}
static dci_coder *learned(dci_kv *kv)
{
        ck_assert_int_eq(head(kv)->keys->coder.kind, DCI_CODER_LEARNED);
        return &head(kv)->keys->coder;
}

static dci_kv_clusters *batch(dci_kv *kv)
{
        return layer(kv)->batches[0];
}
static dci_kv_clusters *second_batch(dci_kv *kv)
{
        ck_assert_uint_ge(layer(kv)->n_batches, 2);
        return layer(kv)->batches[1];
}
static int32_t *offsets(dci_kv *kv)
{
        return dci_kv_cluster_offsets(kv, batch(kv), 1);
}
static int32_t *members(dci_kv *kv)
{
        return dci_kv_cluster_ids(kv, batch(kv), 1);
}
static void swap_members(dci_kv *kv)
{
        const int32_t *ends = offsets(kv);
        while (ends[1] - ends[0] < 2)
                ends++;
        int32_t *group = members(kv) + ends[0];
        const int32_t swap = group[0];
        group[0] = group[1];
        group[1] = swap;
}

static dci_kv_tree *tree(dci_kv *kv)
{
        return head(kv)->tree;
}
static int32_t *cell(dci_kv *kv)
{
        ck_assert_uint_ge(tree(kv)->node_rows[0], 2);
        return tree(kv)->members + (size_t)tree(kv)->node_first[0] * kv->config.page_tokens;
}
/* Cells change places as a whole: lists and counts stay right, but no token is near its node. */
static void rotate_cells(dci_kv *kv)
{
        dci_kv_tree *t = tree(kv);
        const int32_t at = t->node_first[0], last = t->node_last[0];
        const uint32_t rows = t->node_rows[0];
        const size_t n = t->n_nodes;
        float scratch[2 * 16];
        for (size_t i = 0; i + 1 < n; i++) {
                t->node_first[i] = t->node_first[i + 1];
                t->node_last[i] = t->node_last[i + 1];
                t->node_rows[i] = t->node_rows[i + 1];
        }
        t->node_first[n - 1] = at;
        t->node_last[n - 1] = last;
        t->node_rows[n - 1] = rows;
        for (size_t i = 0; i < n; i++)
                for (int32_t p = t->node_first[i]; p >= 0; p = t->page_next[p])
                        t->page_node[p] = (int32_t)i;
        memset(t->node_dirty, 1, n);
        dci_kv_tree_refresh(kv, layer(kv), 1, t, scratch, NULL);
}

/* All nodes get the next parent, whose lists agree. */
static void swap_parents(dci_kv *kv)
{
        dci_kv_tree_level *level = &tree(kv)->levels[0], *above = &tree(kv)->levels[1];
        const size_t n = tree(kv)->n_nodes;
        int32_t found = 0;
        for (size_t i = 0; i < n; i++)
                level->parents[i] = (level->parents[i] + 1) % (int32_t)above->n;
        for (size_t p = 0; p < above->n; p++) {
                above->child_first[p] = found;
                for (size_t i = 0; i < n; i++)
                        if (level->parents[i] == (int32_t)p)
                                above->children[found++] = (int32_t)i;
        }
}

static dci_kv_selection_cache *decided(dci_kv *kv)
{
        return layer(kv)->selection;
}
static void choose_twice(dci_kv *kv)
{
        int32_t *list = decided(kv)->lists + dci_kv_max_room(kv);
        list[1] = list[0];
}
static int32_t *turns(dci_kv *kv)
{
        ck_assert_uint_ge(layer(kv)->n_boundaries, 2);
        return layer(kv)->boundaries;
}

#define STRUCTURE(name, preset, says, ...)                                                                             \
        static void damage_##name(dci_kv *kv)                                                                          \
        {                                                                                                              \
                __VA_ARGS__;                                                                                           \
        }
#define FULL STRUCTURE
#include "tests/kv_damage.h"
#undef STRUCTURE
#undef FULL

#define STRUCTURE(name, preset, says, ...) {#name, damage_##name, preset, DCI_CHECK_STRUCTURE, says},
#define FULL(name, preset, says, ...) {#name, damage_##name, preset, DCI_CHECK_FULL, says},
static const struct {
        const char *name;
        void (*make)(dci_kv *kv);
        int32_t preset, level; /* level: the lowest that finds it */
        const char *says;
} damages[] = {
#include "tests/kv_damage.h"
};

/* Lists that are wrong cannot be freed: what was damaged stays, where leak checkers find it. */
static dci_kv *left[COUNT(damages)];

START_TEST(every_damage_is_found_and_named)
{
        const dci_kv_config config = kv_check_config(damages[_i].preset);
        kv_data data;
        int64_t sequence;
        dci_kv *kv = left[_i] = kv_check_make(test_context(1), &config, &data, &sequence);
        kv_data_free(&data);
        kv_check_passes(kv, damages[_i].name);
        DAMAGE_IS_FOUND(damages[_i], dci_kv_check, kv);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("kv damage");
        TCase *damaged = test_case(suite, "damaged", 60);
        tcase_add_loop_test(damaged, every_damage_is_found_and_named, 0, COUNT(damages));
        return test_main(suite);
}
