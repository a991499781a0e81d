/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Every damage to an index that a test can make is found by dci_index_check and named: a row of the table for each invariant.
 */
#include <math.h>
#include <string.h>

#include "tests/check_fixture.h"

enum { DIM = CHECK_DIM };

/* What chunks hold of that row. */
static float *row_of(dci_index *index)
{
        size_t at;
        const dci_chunk *chunk = dci_rows_chunk(&index->rows, check_some_slot(index), &at);
        return (float *)chunk->rows + at * DIM;
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

static void nan_in_a_row(dci_index *index)
{
        row_of(index)[3] = NAN;
}
static void huge_row(dci_index *index)
{
        row_of(index)[0] = 1e19f;
}
static void flipped_bit_of_a_row(dci_index *index)
{
        ((unsigned char *)(row_of(index) + 5))[2] ^= 0x40;
}
static void norm(dci_index *index)
{
        *norm_of(index) = nextafterf(*norm_of(index), 1e9f);
}
static void zero_norm(dci_index *index)
{
        *norm_of(index) = 0.0f;
}
static void projection(dci_index *index)
{
        *projection_of(index, 1) += 1e-3f;
}
static void infinite_projection(dci_index *index)
{
        *projection_of(index, 0) = -INFINITY;
}
static void direction(dci_index *index)
{
        index->directions.vectors[DIM + 4] *= 1.5f;
}
static void weight(dci_index *index)
{
        index->directions.weights[1] = 0.9f;
}
static void id_of_another(dci_index *index)
{
        *check_id_of(index, check_some_slot(index)) = *check_id_of(index, 0);
}
static void negative_id(dci_index *index)
{
        *check_id_of(index, check_some_slot(index)) = -7;
}
static void id_beyond_the_next(dci_index *index)
{
        index->next_id = 100;
}
static void map_of_another(dci_index *index)
{
        dci_idmap_set(atomic_load(&index->map), *check_id_of(index, check_some_slot(index)), 1);
}
static void map_without_one(dci_index *index)
{
        dci_idmap_remove(atomic_load(&index->map), *check_id_of(index, check_some_slot(index)));
}
static void map_with_a_stranger(dci_index *index)
{
        ck_assert(dci_idmap_insert(atomic_load(&index->map), 1, 3));
}
static void map_that_counts_wrong(dci_index *index)
{
        atomic_load(&index->map)->n++;
}
static void low_c_squared(dci_index *index)
{
        atomic_store(&index->c_squared, 0x1p-20f);
        if (index->tree != NULL)
                index->tree->c_squared = 0x1p-20f;
}
static void odd_c_squared(dci_index *index)
{
        atomic_store(&index->c_squared, 12345.0f);
        if (index->tree != NULL)
                index->tree->c_squared = 12345.0f;
}
static void more_rows_than_chunks(dci_index *index)
{
        atomic_store(&index->rows.n, (index->rows.n_chunks << index->rows.chunk_shift) + 1);
}
static void small_chunk(dci_index *index)
{
        size_t at;
        dci_rows_chunk(&index->rows, 0, &at)->capacity = 17;
}
static void words(dci_index *index)
{
        const dci_unit unit = check_unit_of(index);
        unsigned char *block = unit.area->blocks + unit.unit / 2 * index->rows.codes->frames.block_bytes;
        block[dci_code_word(unit.unit % 2 * DCI_CODE_UNIT + check_some_slot(index) % DCI_CODE_UNIT)] ^= 0xff;
}
/* Where the row's number stands in an array of its area. */
static size_t at_code(dci_index *index)
{
        return check_unit_of(index).unit * DCI_CODE_UNIT + check_some_slot(index) % DCI_CODE_UNIT;
}
static void code_scale(dci_index *index)
{
        check_unit_of(index).area->scales[at_code(index)] *= 1.3f;
}
static void infinite_scale(dci_index *index)
{
        check_unit_of(index).area->scales[at_code(index)] = INFINITY;
}
static void residual(dci_index *index)
{
        check_unit_of(index).area->residuals[at_code(index)] *= 0.5f;
}
static void reach(dci_index *index)
{
        const dci_unit unit = check_unit_of(index);
        unit.area->reach[unit.unit / 2] = 0.0f;
}
static void frame_number(dci_index *index)
{
        const dci_unit unit = check_unit_of(index);
        unit.area->frames[unit.unit / 2] = 77;
}
static void rotation(dci_index *index)
{
        float *sign = &index->rows.codes->frames.frame[0]->coder.rotation.signs[2];
        *sign = -*sign;
}
static void code_centre(dci_index *index)
{
        index->rows.codes->frames.frame[0]->coder.centre[1] = NAN;
}
static void moved_centre(dci_index *index)
{
        index->rows.codes->frames.frame[0]->coder.centre[1] += 0.5f;
}
static void pending(dci_index *index)
{
        index->rows.codes->frames.n_pending = 32;
}

static void rows_of_a_cell(dci_index *index)
{
        check_cell_of(index, 0)->n_rows += 100;
}
static void one_row_less(dci_index *index)
{
        check_cell_of(index, 0)->n_rows--;
}
static void page_of_another(dci_index *index)
{
        index->tree->page_node[check_cell_of(index, 0)->items[0]] ^= 1;
}
static void page_twice(dci_index *index)
{
        dci_tree *tree = index->tree;
        const int32_t page = check_cell_of(index, 0)->items[0];
        size_t last = tree->levels[0].n - 1;
        while (tree->levels[0].cells[last].n == 0)
                last--;
        tree->levels[0].cells[last].items[0] = page;
}
static void page_beyond(dci_index *index)
{
        check_cell_of(index, 0)->items[0] = (int32_t)index->tree->n_pages;
}
static void page_free_and_in_use(dci_index *index)
{
        ck_assert_uint_gt(index->tree->n_free, 0);
        index->tree->free_pages[0] = check_cell_of(index, 0)->items[0];
}
static void page_that_nobody_has(dci_index *index)
{
        index->tree->n_free--;
}
static void pages_beyond_capacity(dci_index *index)
{
        index->tree->page_capacity = 1;
}
static void page_version(dci_index *index)
{
        index->tree->page_version[1] = index->tree->version + 1;
}
static void built_version(dci_index *index)
{
        index->tree->built_version = index->tree->version + 1;
}
static void full_slot_where_none_is(dci_index *index)
{
        dci_tree *tree = index->tree;
        size_t i = 0;
        while (tree->levels[0].cells[i].n_rows % tree->page_rows == 0)
                i++;
        const dci_cell *cell = &tree->levels[0].cells[i];
        const size_t slot = (size_t)cell->items[cell->n - 1] * tree->page_rows + tree->page_rows - 1;
        *check_id_of(index, slot) = 1;
        ck_assert(dci_idmap_insert(atomic_load(&index->map), 1, (int32_t)slot));
        atomic_fetch_add(&index->n_live, 1);
        tree->n_rows++;
}
static void node_of_a_row_that_is_gone(dci_index *index)
{
        index->tree->levels[0].ids[1] = 9; /* removed */
}
static void node_twice(dci_index *index)
{
        index->tree->levels[0].ids[1] = index->tree->levels[0].ids[0];
}
static void parent_beyond(dci_index *index)
{
        index->tree->levels[0].parents[2] = (int32_t)index->tree->levels[1].n;
}
static void parent_at_the_top(dci_index *index)
{
        index->tree->levels[index->tree->n_levels - 1].parents[0] = 0;
}
static void child_twice(dci_index *index)
{
        dci_level *level = &index->tree->levels[1];
        size_t i = 0;
        while (level->cells[i].n < 2)
                i++;
        level->cells[i].items[1] = level->cells[i].items[0];
}
static void child_that_nobody_has(dci_index *index)
{
        check_cell_of(index, 1)->n--;
}
static void rows_beneath(dci_index *index)
{
        check_cell_of(index, 1)->n_rows++;
}
static void items_beyond_capacity(dci_index *index)
{
        check_cell_of(index, 1)->capacity = 0;
}
static void lone_node(dci_index *index)
{
        index->tree->lone_id = index->tree->levels[0].ids[0];
}
static void node_missing(dci_index *index) /* a row that is drawn, but with another seed */
{
        index->tree->seed++;
}
static void level_without_nodes(dci_index *index)
{
        index->tree->n_levels++;
}
static void rows_of_the_tree(dci_index *index)
{
        index->tree->n_rows++;
}
static void point(dci_index *index)
{
        index->tree->levels[0].points[3] += 0.25f;
}
static void upper_point(dci_index *index)
{
        index->tree->levels[1].points[3] += 0.25f;
}
static void last_coordinate(dci_index *index)
{
        index->tree->levels[0].lasts[0] += 0.25f;
}
static void radius(dci_index *index)
{
        index->tree->levels[0].radii2[0] *= 0.5f;
}
static void upper_radius(dci_index *index)
{
        dci_level *level = &index->tree->levels[1];
        size_t i = 0;
        while (level->radii2[i] == 0.0f)
                i++;
        level->radii2[i] *= 0.5f;
}
static void mean_beneath(dci_index *index)
{
        index->tree->levels[0].routes[7] += 1e-3f;
}
static void upper_mean_beneath(dci_index *index)
{
        index->tree->levels[1].routes[7] += 1e-3f;
}
static void mean_of_the_tree(dci_index *index)
{
        index->tree->mean[2] = NAN;
}
static void offset_of_a_node(dci_index *index)
{
        index->tree->levels[0].nearest.offsets[1] *= 0.5f;
}

/* Whole cells change places: lists and counts stay right, means and reach are made again, but nothing lies near. */
static void cells_rotated(dci_index *index)
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

enum { FLAT = DCI_KIND_FLAT, PDCI = DCI_KIND_PDCI, MDCI = DCI_KIND_MDCI };
static const check_damage damages[] = {
        {"NaN in a row", nan_in_a_row, FLAT, DCI_METRIC_L2, 0, DCI_CHECK_FULL, "NaN or infinity"},
        {"too long a row", huge_row, FLAT, DCI_METRIC_IP, 0, DCI_CHECK_FULL, "too large"},
        {"a bit of a row (norm)", flipped_bit_of_a_row, FLAT, DCI_METRIC_COSINE, 0, DCI_CHECK_FULL,
         "inverse norm of row"},
        {"a bit of a row (projection)", flipped_bit_of_a_row, PDCI, DCI_METRIC_L2, 0, DCI_CHECK_FULL, "projection"},
        {"a bit of a row (code)", flipped_bit_of_a_row, FLAT, DCI_METRIC_IP, 4, DCI_CHECK_FULL,
         "code of the row in slot"},
        {"the last bit of a norm", norm, PDCI, DCI_METRIC_IP, 0, DCI_CHECK_FULL, "the norm kept of row"},
        {"the last bit of an inverse", norm, FLAT, DCI_METRIC_COSINE, 0, DCI_CHECK_FULL, "the norm kept of row"},
        {"a norm of zero", zero_norm, FLAT, DCI_METRIC_COSINE, 0, DCI_CHECK_FULL, "is zero, which its config refuses"},
        {"a projection", projection, PDCI, DCI_METRIC_L2, 0, DCI_CHECK_FULL, "projection 1 of the row in slot"},
        {"a projection in a tree", projection, MDCI, DCI_METRIC_IP, 0, DCI_CHECK_FULL,
         "projection 1 of the row in slot"},
        {"an infinite projection", infinite_projection, PDCI, DCI_METRIC_IP, 0, DCI_CHECK_STRUCTURE, "none exceeds"},
        {"a direction", direction, PDCI, DCI_METRIC_L2, 0, DCI_CHECK_FULL, "direction 1 is not the one"},
        {"a direction's weight", weight, PDCI, DCI_METRIC_IP, 0, DCI_CHECK_FULL, "direction 1 is not the one"},
        {"an id that another row has", id_of_another, FLAT, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE,
         "but the map says slot"},
        {"a negative id", negative_id, FLAT, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE, "has id -7"},
        {"ids beyond the next one", id_beyond_the_next, PDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE,
         "allowed is 0 to 99"},
        {"a map that names another slot", map_of_another, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE,
         "map says slot 1"},
        {"a map without a row", map_without_one, FLAT, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE, "map says slot -1"},
        {"a map with a stranger", map_with_a_stranger, PDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE,
         "the map of ids has"},
        {"a map that counts wrong", map_that_counts_wrong, FLAT, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE, "entries of"},
        {"too low a c^2", low_c_squared, PDCI, DCI_METRIC_IP, 0, DCI_CHECK_STRUCTURE, "c^2 is"},
        {"a c^2 that is no power of two", odd_c_squared, MDCI, DCI_METRIC_IP, 0, DCI_CHECK_STRUCTURE, "c^2 is 12345"},
        {"more rows than room", more_rows_than_chunks, FLAT, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE,
         "chunks have room for"},
        {"a chunk of another size", small_chunk, FLAT, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE, "chunk 0 of"},
        {"a code", words, FLAT, DCI_METRIC_L2, 4, DCI_CHECK_FULL, "the code of the row in slot"},
        {"a code in a tree", words, MDCI, DCI_METRIC_IP, 2, DCI_CHECK_FULL, "the code of the row in slot"},
        {"the scale of a code", code_scale, PDCI, DCI_METRIC_L2, 8, DCI_CHECK_FULL, "has scale"},
        {"an infinite scale", infinite_scale, FLAT, DCI_METRIC_L2, 1, DCI_CHECK_STRUCTURE, "have scale inf"},
        {"the residual of a code", residual, FLAT, DCI_METRIC_COSINE, 3, DCI_CHECK_FULL, "and residual"},
        {"how far codes reach", reach, FLAT, DCI_METRIC_L2, 4, DCI_CHECK_FULL, "codes reach"},
        {"a centre that is not there", frame_number, FLAT, DCI_METRIC_L2, 4, DCI_CHECK_STRUCTURE, "name centre 77"},
        {"a sign of the rotation", rotation, FLAT, DCI_METRIC_L2, 4, DCI_CHECK_FULL, "rotation of centre 0"},
        {"NaN in a centre", code_centre, FLAT, DCI_METRIC_L2, 4, DCI_CHECK_FULL, "centre 0 of the codes"},
        {"a centre that moved", moved_centre, FLAT, DCI_METRIC_L2, 4, DCI_CHECK_FULL, "of the row in slot"},
        {"too many rows that wait", pending, FLAT, DCI_METRIC_L2, 4, DCI_CHECK_STRUCTURE, "wait for a centre"},
        {"rows of a cell", rows_of_a_cell, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE, "rows in"},
        {"a row less in a cell", one_row_less, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE, "rows"},
        {"a page of another cell", page_of_another, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE,
         "which belongs to node"},
        {"a page twice", page_twice, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE, "which is not, or twice"},
        {"a page that is not", page_beyond, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE, "which is not, or twice"},
        {"a page free and in use", page_free_and_in_use, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE, "listed as free"},
        {"a page that nobody has", page_that_nobody_has, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE,
         "list of the free have"},
        {"pages beyond the room", pages_beyond_capacity, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE,
         "with room for 1"},
        {"a page changed later than now", page_version, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE,
         "page 1 changed in"},
        {"a tree built later than now", built_version, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE,
         "was built in version"},
        {"a row in an empty slot", full_slot_where_none_is, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE, "rows"},
        {"a node whose row is gone", node_of_a_row_that_is_gone, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE,
         "which is gone"},
        {"a node twice", node_twice, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE, "no node there, or twice"},
        {"a parent that is not", parent_beyond, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE, "has parent"},
        {"a parent at the top", parent_at_the_top, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE, "has parent 0"},
        {"a child twice", child_twice, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE,
         "beneath it, which is not, or twice"},
        {"a child that nobody has", child_that_nobody_has, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE, "beneath it"},
        {"rows beneath a node", rows_beneath, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE, "rows beneath it, but says"},
        {"items beyond the room", items_beyond_capacity, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE,
         "items, room for 0"},
        {"a lone node among many", lone_node, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE, "for want of another"},
        {"promotions of another seed", node_missing, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE, "level"},
        {"a level without nodes", level_without_nodes, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE, "level"},
        {"the rows of the tree", rows_of_the_tree, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_STRUCTURE, "the tree has"},
        {"a node's point", point, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_FULL, "does not lie where its row"},
        {"an upper node's point", upper_point, MDCI, DCI_METRIC_IP, 0, DCI_CHECK_FULL, "of level 1 does not lie"},
        {"a node's lift", last_coordinate, MDCI, DCI_METRIC_IP, 0, DCI_CHECK_FULL, "does not lie where its row"},
        {"a cell's reach", radius, MDCI, DCI_METRIC_COSINE, 0, DCI_CHECK_FULL, "reaches"},
        {"an upper cell's reach", upper_radius, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_FULL, "of level 1 reaches"},
        {"the mean beneath a node", mean_beneath, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_FULL, "the mean beneath node"},
        {"the mean beneath an upper node", upper_mean_beneath, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_FULL,
         "the mean beneath node"},
        {"the mean of the tree", mean_of_the_tree, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_FULL, "node"},
        {"what nodes are compared by", offset_of_a_node, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_FULL,
         "points are compared with"},
        {"cells of other nodes", cells_rotated, MDCI, DCI_METRIC_L2, 0, DCI_CHECK_FULL, "than the nearest"},
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
        Suite *suite = suite_create("index damage");
        TCase *damaged = tcase_create("damaged");
        tcase_set_timeout(damaged, 60);
        tcase_add_loop_test(damaged, every_damage_is_found_and_named, 0, COUNT(damages));
        suite_add_tcase(suite, damaged);
        return test_main(suite);
}
