/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Damage to what an index says of its memory, and to its lists: sizes, rooms, what is not there, what is beyond the end. As in
 * test_index_damage.c, a row of the table for each condition of dci_index_check.
 */
#include <math.h>

#include "tests/check_fixture.h"

/* Leak checkers find here what damage hides from them. */
static void *hidden[16];
static size_t n_hidden;
static void hide(void *memory)
{
        ck_assert_uint_lt(n_hidden, COUNT(hidden));
        hidden[n_hidden++] = memory;
}

static void another_dimension(dci_index *index)
{
        index->config.dim++;
}
static void no_tree(dci_index *index)
{
        hide(index->tree);
        index->tree = NULL;
}
static void codes_that_the_config_has_not(dci_index *index)
{
        index->config.sketch_bits = 0;
}
static void one_live_row_more(dci_index *index)
{
        atomic_fetch_add(&index->n_live, 1);
}
static void more_rows_than_ever(dci_index *index)
{
        atomic_store(&index->rows.n, (size_t)DCI_MAX_ROWS + 1);
}
static void short_table(dci_index *index)
{
        ((dci_chunk_table *)(uintptr_t)dci_rows_view(&index->rows).table)->capacity = 0;
}
static dci_chunk *chunk_of(dci_index *index)
{
        size_t at;
        return dci_rows_chunk(&index->rows, 0, &at);
}
static void chunk_too_large(dci_index *index)
{
        chunk_of(index)->capacity = ((size_t)1 << index->rows.chunk_shift) + 16;
}
static void chunk_without_rows(dci_index *index)
{
        hide((void *)(uintptr_t)chunk_of(index)->rows);
        chunk_of(index)->rows = NULL;
}
static void chunk_without_ids(dci_index *index)
{
        hide(chunk_of(index)->ids);
        chunk_of(index)->ids = NULL;
}
static void chunk_without_norms(dci_index *index)
{
        hide(chunk_of(index)->norms);
        chunk_of(index)->norms = NULL;
}
static void chunk_without_projections(dci_index *index)
{
        hide(chunk_of(index)->projections);
        chunk_of(index)->projections = NULL;
}
static void projections_too_near(dci_index *index)
{
        chunk_of(index)->stride = 1;
}
static void direction_less(dci_index *index)
{
        index->directions.n--;
}
static void directions_without_weights(dci_index *index)
{
        hide(index->directions.weights);
        index->directions.weights = NULL;
}
static void more_centres_than_can_be(dci_index *index)
{
        atomic_store(&index->rows.codes->frames.n, (size_t)DCI_MAX_FRAMES + 1);
}
static void no_centre(dci_index *index)
{
        check_unit_of(index).area->frames[check_unit_of(index).unit / 2] = DCI_NO_FRAME;
}
static void bits_of_a_centre(dci_index *index)
{
        index->rows.codes->frames.frame[0]->coder.bits = 2;
}
static void dimension_of_a_centre(dci_index *index)
{
        index->rows.codes->frames.frame[0]->coder.dim++;
}
static void learned_infinity(dci_index *index)
{
        float *asked = test_normal(64, CHECK_DIM, 4);
        ck_ok(dci_index_fit(index, 64, asked, CHECK_DIM));
        free(asked);
        dci_coder *coder = &index->rows.codes->frames.frame[0]->coder;
        ck_assert_int_eq(coder->kind, DCI_CODER_LEARNED);
        coder->to[3] = INFINITY;
}
static void c_squared_of_the_tree(dci_index *index)
{
        index->tree->c_squared *= 2.0f;
}
static void more_pages_than_ever(dci_index *index)
{
        index->tree->n_pages_ever = index->tree->n_pages - 1;
}
static void more_free_pages_than_pages(dci_index *index)
{
        index->tree->n_free = index->tree->n_pages + 1;
}
static void nodes_beyond_the_room(dci_index *index)
{
        index->tree->levels[0].capacity = index->tree->levels[0].n - 1;
}
static void node_not_made_ready(dci_index *index)
{
        index->tree->levels[0].nearest.n--;
}
static void levels_beyond_the_most(dci_index *index)
{
        index->tree->n_levels = DCI_MAX_LEVELS + 1;
}
static void cell_without_a_list(dci_index *index)
{
        hide(check_cell_of(index, 0)->items);
        check_cell_of(index, 0)->items = NULL;
}
static void negative_page(dci_index *index)
{
        check_cell_of(index, 0)->items[0] = -1;
}
static void free_page_beyond(dci_index *index)
{
        ck_assert_uint_gt(index->tree->n_free, 0);
        index->tree->free_pages[0] = (int32_t)index->tree->n_pages;
}
static void negative_free_page(dci_index *index)
{
        ck_assert_uint_gt(index->tree->n_free, 0);
        index->tree->free_pages[0] = -1;
}
static void free_page_of_a_node(dci_index *index)
{
        ck_assert_uint_gt(index->tree->n_free, 0);
        index->tree->page_node[index->tree->free_pages[0]] = 0;
}
/* As if one had been added there: only the list of free pages contradicts it. */
static void row_on_a_free_page(dci_index *index)
{
        dci_tree *tree = index->tree;
        ck_assert_uint_gt(tree->n_free, 0);
        const size_t slot = (size_t)tree->free_pages[0] * tree->page_rows;
        const int64_t id = *check_id_of(index, check_some_slot(index));
        *check_id_of(index, slot) = id;
        *check_id_of(index, check_some_slot(index)) = -1;
        dci_idmap_set(atomic_load(&index->map), id, (int32_t)slot);
}
static void negative_parent(dci_index *index)
{
        index->tree->levels[0].parents[2] = -1;
}
static void parent_that_does_not_list_it(dci_index *index)
{
        const dci_level *level = &index->tree->levels[1];
        ck_assert_uint_ge(level->n, 2);
        int32_t *parent = &index->tree->levels[0].parents[2];
        *parent = *parent == 0 ? 1 : 0;
}
static void child_beyond(dci_index *index)
{
        check_cell_of(index, 1)->items[0] = (int32_t)index->tree->levels[0].n;
}
static void negative_child(dci_index *index)
{
        check_cell_of(index, 1)->items[0] = -1;
}
static void longest_node(dci_index *index)
{
        index->tree->levels[0].nearest.longest *= 0.5f;
}
static void highest_node(dci_index *index)
{
        index->tree->levels[0].nearest.highest = -1e9f;
}
static void nodes_compared_elsewhere(dci_index *index)
{
        index->tree->levels[0].nearest.centres++;
}

enum { FLAT = DCI_KIND_FLAT, PDCI = DCI_KIND_PDCI, MDCI = DCI_KIND_MDCI };
static const check_damage damages[] = {
        {"another dimension", another_dimension, FLAT, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE,
         "rows are of 24 elements"},
        {"no tree", no_tree, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE, "lacks a tree"},
        {"codes that the config has not", codes_that_the_config_has_not, FLAT, DCI_METRIC_L2, 4, DCI_CHECK_STRUCTURE,
         "has such codes"},
        {"a live row more", one_live_row_more, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE, "the index says 601"},
        {"more rows than ever", more_rows_than_ever, FLAT, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE,
         "the most there can be"},
        {"a short table", short_table, FLAT, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE, "the table of chunks"},
        {"too large a chunk", chunk_too_large, FLAT, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE, "chunk 0 of"},
        {"a chunk without rows", chunk_without_rows, FLAT, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE, "chunk 0 of"},
        {"a chunk without ids", chunk_without_ids, PDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE, "chunk 0 of"},
        {"a chunk without norms", chunk_without_norms, FLAT, DCI_METRIC_COSINE, 0, DCI_CHECK_STRUCTURE, "chunk 0 of"},
        {"a chunk without projections", chunk_without_projections, PDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE,
         "chunk 0 of"},
        {"projections too near", projections_too_near, PDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE, "chunk 0 of"},
        {"a direction less", direction_less, PDCI, DCI_METRIC_L2, 0, DCI_CHECK_FULL, "directions, the config has"},
        {"directions without weights", directions_without_weights, PDCI, DCI_METRIC_IP, 0, DCI_CHECK_FULL,
         "direction 0 is not the one"},
        {"more centres than can be", more_centres_than_can_be, FLAT, DCI_METRIC_L2, 4, DCI_CHECK_STRUCTURE,
         "the most there can be"},
        {"codes without a centre", no_centre, FLAT, DCI_METRIC_L2, 4, DCI_CHECK_STRUCTURE, "name centre 255"},
        {"the bits of a centre", bits_of_a_centre, FLAT, DCI_METRIC_L2, 4, DCI_CHECK_FULL, "or another shape"},
        {"the dimension of a centre", dimension_of_a_centre, FLAT, DCI_METRIC_L2, 4, DCI_CHECK_FULL,
         "or another shape"},
        {"infinity in what was learned", learned_infinity, FLAT, DCI_METRIC_IP, 4, DCI_CHECK_FULL,
         "the learned transform"},
        {"the tree's c^2", c_squared_of_the_tree, MDCI, DCI_METRIC_IP, 0, DCI_CHECK_STRUCTURE, "in the tree"},
        {"more pages than ever", more_pages_than_ever, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE, "ever, with room"},
        {"more free pages than pages", more_free_pages_than_pages, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE,
         "ever, with room"},
        {"nodes beyond the room", nodes_beyond_the_room, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE, "made ready"},
        {"a node that was not made ready", node_not_made_ready, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE,
         "made ready"},
        {"levels beyond the most", levels_beyond_the_most, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE,
         "levels, the index"},
        {"a cell without a list", cell_without_a_list, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE, "items, room for"},
        {"a negative page", negative_page, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE, "which is not, or twice"},
        {"a free page that is not", free_page_beyond, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE, "listed as free"},
        {"a negative free page", negative_free_page, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE, "listed as free"},
        {"a free page of a node", free_page_of_a_node, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE, "listed as free"},
        {"a row on a free page", row_on_a_free_page, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE, "slot"},
        {"a negative parent", negative_parent, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE, "has parent -1"},
        {"a parent that does not list it", parent_that_does_not_list_it, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE,
         "beneath it, which is not, or twice"},
        {"a child that is not", child_beyond, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE,
         "beneath it, which is not, or twice"},
        {"a negative child", negative_child, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE,
         "beneath it, which is not, or twice"},
        {"the length of the longest node", longest_node, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_FULL,
         "points are compared with"},
        {"the highest node", highest_node, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_FULL, "points are compared with"},
        {"nodes compared elsewhere", nodes_compared_elsewhere, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_FULL,
         "points are compared with"},
};

/* Lists that are wrong cannot be freed: what was damaged stays, where leak checkers find it. */
static dci_index *left[COUNT(damages)];

START_TEST(every_damage_is_found_and_named)
{
        left[_i] = check_damaged(&damages[_i]);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("index damage to rooms and lists");
        TCase *damaged = tcase_create("damaged");
        tcase_set_timeout(damaged, 60);
        tcase_add_loop_test(damaged, every_damage_is_found_and_named, 0, COUNT(damages));
        suite_add_tcase(suite, damaged);
        return test_main(suite);
}
