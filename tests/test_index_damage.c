/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Every damage to an index that a test can make is found by dci_index_check and named; index_damage.h has the table.
 */
#include <math.h>

#include "index/tree/route.h"
#include "tests/check_fixture.h"
#include "tests/damage_fixture.h"

static dci_chunk *chunk_of(dci_index *index)
{
        size_t at;
        return dci_rows_chunk(&index->rows, 0, &at);
}
/* What chunks hold of some row. */
static float *row_of(dci_index *index)
{
        size_t at;
        const dci_chunk *chunk = dci_rows_chunk(&index->rows, check_some_slot(index), &at);
        return (float *)chunk->rows + at * CHECK_DIM;
}
static float *norm_of(dci_index *index)
{
        size_t at;
        const dci_chunk *chunk = dci_rows_chunk(&index->rows, check_some_slot(index), &at);
        return chunk->norms + at;
}
static float *projection_of(dci_index *index, size_t j)
{
        size_t at;
        const dci_chunk *chunk = dci_rows_chunk(&index->rows, check_some_slot(index), &at);
        return chunk->projections + j * chunk->stride + at;
}
static void flip_bit(void *number)
{
        ((unsigned char *)number)[2] ^= 0x40;
}
static int64_t *id_of(dci_index *index)
{
        return check_id_of(index, check_some_slot(index));
}
static dci_idmap *map_of(dci_index *index)
{
        return atomic_load(&index->map);
}
static void set_c_squared(dci_index *index, float c_squared)
{
        atomic_store(&index->c_squared, c_squared);
        if (index->tree != NULL)
                index->tree->c_squared = c_squared;
}

/* The block of codes that has this row's: its area, its number there, and the row's number there. */
static const dci_code_block *area_of(dci_index *index)
{
        return check_unit_of(index).area;
}
static size_t at_block(dci_index *index)
{
        return check_unit_of(index).unit / 2;
}
static size_t at_code(dci_index *index)
{
        return check_unit_of(index).unit * DCI_CODE_UNIT + check_some_slot(index) % DCI_CODE_UNIT;
}
static dci_frames *frames_of(dci_index *index)
{
        return &index->rows.codes->frames;
}
static dci_coder *coder_of(dci_index *index)
{
        return &frames_of(index)->frame[0]->coder;
}
static void flip_code(dci_index *index)
{
        unsigned char *block = area_of(index)->blocks + at_block(index) * frames_of(index)->block_bytes;
        block[dci_code_word(at_code(index) % (2 * DCI_CODE_UNIT))] ^= 0xff;
}
static dci_coder *learn(dci_index *index)
{
        float *asked = test_normal(64, CHECK_DIM, 4);
        ck_ok(dci_index_fit(index, 64, asked, CHECK_DIM));
        free(asked);
        ck_assert_int_eq(coder_of(index)->kind, DCI_CODER_LEARNED);
        return coder_of(index);
}

static dci_level *level_of(dci_index *index, size_t l)
{
        return &index->tree->levels[l];
}
static int32_t *page_of(dci_index *index)
{
        return check_cell_of(index, 0)->items;
}
static int32_t *free_page_of(dci_index *index)
{
        ck_assert_uint_gt(index->tree->n_free, 0);
        return index->tree->free_pages;
}
static int32_t *parent_of(dci_index *index)
{
        ck_assert_uint_ge(level_of(index, 1)->n, 2);
        return &level_of(index, 0)->parents[2];
}
static float *upper_radius_of(dci_index *index)
{
        float *radius = level_of(index, 1)->radii2;
        while (*radius == 0.0f)
                radius++;
        return radius;
}
static void list_page_twice(dci_index *index)
{
        const dci_level *level = level_of(index, 0);
        size_t last = level->n - 1;
        while (level->cells[last].n == 0)
                last--;
        level->cells[last].items[0] = *page_of(index);
}
static void list_child_twice(dci_index *index)
{
        const dci_cell *cell = level_of(index, 1)->cells;
        while (cell->n < 2)
                cell++;
        cell->items[1] = cell->items[0];
}
static void fill_empty_slot(dci_index *index)
{
        dci_tree *tree = index->tree;
        const dci_cell *cell = tree->levels[0].cells;
        while (cell->n_rows % tree->page_rows == 0)
                cell++;
        const size_t slot = (size_t)cell->items[cell->n - 1] * tree->page_rows + tree->page_rows - 1;
        *check_id_of(index, slot) = 1;
        ck_assert(dci_idmap_insert(map_of(index), 1, (int32_t)slot));
        atomic_fetch_add(&index->n_live, 1);
        tree->n_rows++;
}
/* As if the row had been added there: only the list of free pages contradicts it. */
static void move_row_to_free_page(dci_index *index)
{
        const size_t slot = (size_t)*free_page_of(index) * index->tree->page_rows;
        int64_t *id = id_of(index);
        *check_id_of(index, slot) = *id;
        dci_idmap_set(map_of(index), *id, (int32_t)slot);
        *id = -1;
}
/* Whole cells change places: lists and counts stay right, means and reach are computed again, but no row is near its
 * node. */
static void rotate_cells(dci_index *index)
{
        dci_tree *tree = index->tree;
        dci_level *level = &tree->levels[0];
        const dci_cell first = level->cells[0];
        for (size_t i = 0; i + 1 < level->n; i++)
                level->cells[i] = level->cells[i + 1];
        level->cells[level->n - 1] = first;
        for (size_t i = 0; i < level->n; i++)
                for (uint32_t p = 0; p < level->cells[i].n; p++)
                        tree->page_node[level->cells[i].items[p]] = (int32_t)i;
        ck_ok(dci_tree_route_all(tree, &index->rows));
}

#define STRUCTURE(name, kind, metric, bits, says, ...)                                                                 \
        static void damage_##name(dci_index *index)                                                                    \
        {                                                                                                              \
                __VA_ARGS__;                                                                                           \
        }
#define FULL STRUCTURE
#include "tests/index_damage.h"
#undef STRUCTURE
#undef FULL

#define DAMAGE(name, kind, metric, bits, level, says)                                                                  \
        {#name, damage_##name, DCI_KIND_##kind, DCI_METRIC_##metric, bits, level, says},
#define STRUCTURE(name, kind, metric, bits, says, ...) DAMAGE(name, kind, metric, bits, DCI_CHECK_STRUCTURE, says)
#define FULL(name, kind, metric, bits, says, ...) DAMAGE(name, kind, metric, bits, DCI_CHECK_FULL, says)
static const struct {
        const char *name;
        void (*make)(dci_index *index);
        dci_index_kind kind;
        dci_metric metric;
        int32_t bits, level; /* level: the lowest that finds it */
        const char *says;
} damages[] = {
#include "tests/index_damage.h"
};

/* Lists that are wrong cannot be freed: what was damaged stays, where leak checkers find it. */
static dci_index *left[COUNT(damages)];

START_TEST(every_damage_is_found_and_named)
{
        const dci_index_config config = check_config(damages[_i].kind, damages[_i].metric, DCI_F32, damages[_i].bits);
        dci_index *index = left[_i] = check_make(test_context(1), &config);
        check_passes(index);
        DAMAGE_IS_FOUND(damages[_i], dci_index_check, index);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("index damage");
        TCase *damaged = test_case(suite, "damaged", 60);
        tcase_add_loop_test(damaged, every_damage_is_found_and_named, 0, COUNT(damages));
        return test_main(suite);
}
