/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The table of damages to an index, which test_index_damage.c includes twice: LEVEL(name, kind, metric, bits, sentence,
 * field and value). LEVEL is the lowest level of dci_index_check that finds the damage, the sentence is a part of what
 * it says. There is a row for each condition that the check tests.
 */

/* Rows, norms and projections. */
FULL(nan_in_a_row, FLAT, L2, 0, "NaN or infinity", row_of(index)[3] = NAN)
FULL(too_long_a_row, FLAT, IP, 0, "too large", row_of(index)[0] = 1e19f)
FULL(bit_of_a_row_with_a_norm, FLAT, COSINE, 0, "inverse norm of row", flip_bit(row_of(index) + 5))
FULL(bit_of_a_row_with_projections, PDCI, L2, 0, "projection", flip_bit(row_of(index) + 5))
FULL(bit_of_a_row_with_a_code, FLAT, IP, 4, "code of the row in slot", flip_bit(row_of(index) + 5))
FULL(last_bit_of_a_norm, PDCI, IP, 0, "the norm kept of row", *norm_of(index) = nextafterf(*norm_of(index), 1e9f))
FULL(last_bit_of_an_inverse, FLAT, COSINE, 0, "the norm kept of row",
     *norm_of(index) = nextafterf(*norm_of(index), 1e9f))
FULL(norm_of_zero, FLAT, COSINE, 0, "is zero, which its config refuses", *norm_of(index) = 0.0f)
FULL(projection, PDCI, L2, 0, "projection 1 of the row in slot", *projection_of(index, 1) += 1e-3f)
FULL(projection_in_a_tree, MDCI, IP, 0, "projection 1 of the row in slot", *projection_of(index, 1) += 1e-3f)
STRUCTURE(infinite_projection, PDCI, IP, 0, "none exceeds", *projection_of(index, 0) = -INFINITY)
FULL(direction, PDCI, L2, 0, "direction 1 is not the one", index->directions.vectors[CHECK_DIM + 4] *= 1.5f)
FULL(weight_of_a_direction, PDCI, IP, 0, "direction 1 is not the one", index->directions.weights[1] = 0.9f)
FULL(direction_less, PDCI, L2, 0, "directions, the config has", index->directions.n--)
FULL(directions_without_weights, PDCI, IP, 0, "direction 0 is not the one", HIDE(index->directions.weights))

/* Ids and their map. */
STRUCTURE(id_of_another_row, FLAT, L2, 0, "but the map says slot", *id_of(index) = *check_id_of(index, 0))
STRUCTURE(negative_id, FLAT, L2, 0, "has id -7", *id_of(index) = -7)
STRUCTURE(ids_beyond_the_next, PDCI, L2, 0, "allowed is 0 to 99", index->next_id = 100)
STRUCTURE(map_of_another_slot, MDCI, L2, 0, "map says slot 1", dci_idmap_set(map_of(index), *id_of(index), 1))
STRUCTURE(map_without_a_row, FLAT, L2, 0, "map says slot -1", dci_idmap_remove(map_of(index), *id_of(index)))
STRUCTURE(map_with_a_stranger, PDCI, L2, 0, "the map of ids has", ck_assert(dci_idmap_insert(map_of(index), 1, 3)))
STRUCTURE(map_that_counts_wrong, FLAT, L2, 0, "entries of", map_of(index)->n++)

/* The index and its chunks. */
STRUCTURE(another_dimension, FLAT, L2, 0, "rows are of 24 elements", index->config.dim++)
STRUCTURE(no_tree, MDCI, L2, 0, "lacks a tree", HIDE(index->tree))
STRUCTURE(codes_that_the_config_has_not, FLAT, L2, 4, "has such codes", index->config.sketch_bits = 0)
STRUCTURE(live_row_more, MDCI, L2, 0, "the index says 601", index->n_live++)
STRUCTURE(too_low_a_c_squared, PDCI, IP, 0, "c^2 is", set_c_squared(index, 0x1p-20f))
STRUCTURE(c_squared_that_is_no_power_of_two, MDCI, IP, 0, "c^2 is 12345", set_c_squared(index, 12345.0f))
STRUCTURE(more_rows_than_room, FLAT, L2, 0, "chunks have room for",
          index->rows.n = (index->rows.n_chunks << index->rows.chunk_shift) + 1)
STRUCTURE(more_rows_than_ever, FLAT, L2, 0, "the most there can be", index->rows.n = (size_t)DCI_MAX_ROWS + 1)
STRUCTURE(short_table, FLAT, L2, 0, "the table of chunks",
          ((dci_chunk_table *)(uintptr_t)dci_rows_view(&index->rows).table)->capacity = 0)
STRUCTURE(chunk_of_another_size, FLAT, L2, 0, "chunk 0 of", chunk_of(index)->capacity = 17)
STRUCTURE(too_large_a_chunk, FLAT, L2, 0, "chunk 0 of",
          chunk_of(index)->capacity = ((size_t)1 << index->rows.chunk_shift) + 16)
STRUCTURE(chunk_without_rows, FLAT, L2, 0, "chunk 0 of", HIDE(chunk_of(index)->rows))
STRUCTURE(chunk_without_ids, PDCI, L2, 0, "chunk 0 of", HIDE(chunk_of(index)->ids))
STRUCTURE(chunk_without_norms, FLAT, COSINE, 0, "chunk 0 of", HIDE(chunk_of(index)->norms))
STRUCTURE(chunk_without_projections, PDCI, L2, 0, "chunk 0 of", HIDE(chunk_of(index)->projections))
STRUCTURE(projections_too_near, PDCI, L2, 0, "chunk 0 of", chunk_of(index)->stride = 1)

/* Codes and their centres. */
FULL(code, FLAT, L2, 4, "the code of the row in slot", flip_code(index))
FULL(code_in_a_tree, MDCI, IP, 2, "the code of the row in slot", flip_code(index))
FULL(scale_of_a_code, PDCI, L2, 8, "has scale", area_of(index)->scales[at_code(index)] *= 1.3f)
STRUCTURE(infinite_scale, FLAT, L2, 1, "have scale inf", area_of(index)->scales[at_code(index)] = INFINITY)
FULL(residual_of_a_code, FLAT, COSINE, 3, "and residual", area_of(index)->residuals[at_code(index)] *= 0.5f)
FULL(reach_of_codes, FLAT, L2, 4, "codes reach", area_of(index)->reach[at_block(index)] = 0.0f)
STRUCTURE(centre_that_is_not_there, FLAT, L2, 4, "name centre 77", area_of(index)->frames[at_block(index)] = 77)
STRUCTURE(codes_without_a_centre, FLAT, L2, 4, "name centre 255",
          area_of(index)->frames[at_block(index)] = DCI_NO_FRAME)
STRUCTURE(more_centres_than_can_be, FLAT, L2, 4, "the most there can be",
          frames_of(index)->n = (size_t)DCI_MAX_FRAMES + 1)
FULL(sign_of_the_rotation, FLAT, L2, 4, "rotation of centre 0", coder_of(index)->rotation.signs[2] *= -1.0f)
FULL(nan_in_a_centre, FLAT, L2, 4, "centre 0 of the codes", coder_of(index)->centre[1] = NAN)
FULL(centre_that_moved, FLAT, L2, 4, "of the row in slot", coder_of(index)->centre[1] += 0.5f)
FULL(bits_of_a_centre, FLAT, L2, 4, "or another shape", coder_of(index)->bits = 2)
FULL(dimension_of_a_centre, FLAT, L2, 4, "or another shape", coder_of(index)->dim++)
FULL(infinity_in_what_was_learned, FLAT, IP, 4, "the learned transform", learn(index)->to[3] = INFINITY)
STRUCTURE(too_many_rows_that_wait, FLAT, L2, 4, "wait for a centre", frames_of(index)->n_pending = 32)

/* The tree's pages. */
STRUCTURE(rows_of_a_cell, MDCI, L2, 0, "rows in", check_cell_of(index, 0)->n_rows += 100)
STRUCTURE(row_less_in_a_cell, MDCI, L2, 0, "rows", check_cell_of(index, 0)->n_rows--)
STRUCTURE(cell_without_a_list, MDCI, L2, 0, "items, room for", HIDE(check_cell_of(index, 0)->items))
STRUCTURE(page_of_another_cell, MDCI, L2, 0, "which belongs to node", index->tree->page_node[*page_of(index)] ^= 1)
STRUCTURE(page_twice, MDCI, L2, 0, "which is not, or twice", list_page_twice(index))
STRUCTURE(page_that_is_not, MDCI, L2, 0, "which is not, or twice", *page_of(index) = (int32_t)index->tree->n_pages)
STRUCTURE(negative_page, MDCI, L2, 0, "which is not, or twice", *page_of(index) = -1)
STRUCTURE(page_free_and_in_use, MDCI, L2, 0, "listed as free", *free_page_of(index) = *page_of(index))
STRUCTURE(free_page_that_is_not, MDCI, L2, 0, "listed as free", *free_page_of(index) = (int32_t)index->tree->n_pages)
STRUCTURE(negative_free_page, MDCI, L2, 0, "listed as free", *free_page_of(index) = -1)
STRUCTURE(free_page_of_a_node, MDCI, L2, 0, "listed as free", index->tree->page_node[*free_page_of(index)] = 0)
STRUCTURE(page_that_nobody_has, MDCI, L2, 0, "list of the free have", index->tree->n_free--)
STRUCTURE(more_free_pages_than_pages, MDCI, L2, 0, "ever, with room", index->tree->n_free = index->tree->n_pages + 1)
STRUCTURE(more_pages_than_ever, MDCI, L2, 0, "ever, with room", index->tree->n_pages_ever = index->tree->n_pages - 1)
STRUCTURE(pages_beyond_the_room, MDCI, L2, 0, "with room for 1", index->tree->page_capacity = 1)
STRUCTURE(page_changed_later_than_now, MDCI, L2, 0, "page 1 changed in",
          index->tree->page_version[1] = index->tree->version + 1)
STRUCTURE(tree_built_later_than_now, MDCI, L2, 0, "was built in version",
          index->tree->built_version = index->tree->version + 1)
STRUCTURE(row_in_an_empty_slot, MDCI, L2, 0, "rows", fill_empty_slot(index))
STRUCTURE(row_on_a_free_page, MDCI, L2, 0, "slot", move_row_to_free_page(index))

/* The tree's nodes. */
STRUCTURE(node_whose_row_is_gone, MDCI, L2, 0, "which is gone", level_of(index, 0)->ids[1] = CHECK_GONE)
STRUCTURE(node_twice, MDCI, L2, 0, "no node there, or twice", level_of(index, 0)->ids[1] = level_of(index, 0)->ids[0])
STRUCTURE(parent_that_is_not, MDCI, L2, 0, "has parent", *parent_of(index) = (int32_t)level_of(index, 1)->n)
STRUCTURE(negative_parent, MDCI, L2, 0, "has parent -1", *parent_of(index) = -1)
STRUCTURE(parent_at_the_top, MDCI, L2, 0, "has parent 0", level_of(index, index->tree->n_levels - 1)->parents[0] = 0)
STRUCTURE(parent_that_does_not_list_it, MDCI, L2, 0, "beneath it, which is not, or twice",
          *parent_of(index) = *parent_of(index) == 0)
STRUCTURE(child_twice, MDCI, L2, 0, "beneath it, which is not, or twice", list_child_twice(index))
STRUCTURE(child_that_is_not, MDCI, L2, 0, "beneath it, which is not, or twice",
          check_cell_of(index, 1)->items[0] = (int32_t)level_of(index, 0)->n)
STRUCTURE(negative_child, MDCI, L2, 0, "beneath it, which is not, or twice", check_cell_of(index, 1)->items[0] = -1)
STRUCTURE(child_that_nobody_has, MDCI, L2, 0, "beneath it", check_cell_of(index, 1)->n--)
STRUCTURE(rows_beneath_a_node, MDCI, L2, 0, "rows beneath it, but says", check_cell_of(index, 1)->n_rows++)
STRUCTURE(items_beyond_the_room, MDCI, L2, 0, "items, room for 0", check_cell_of(index, 1)->capacity = 0)
STRUCTURE(nodes_beyond_the_room, MDCI, L2, 0, "made ready", level_of(index, 0)->capacity = level_of(index, 0)->n - 1)
STRUCTURE(node_that_was_not_made_ready, MDCI, L2, 0, "made ready", level_of(index, 0)->nearest.n--)
STRUCTURE(levels_beyond_the_most, MDCI, L2, 0, "levels, the index", index->tree->n_levels = DCI_MAX_LEVELS + 1)
STRUCTURE(level_without_nodes, MDCI, L2, 0, "level", index->tree->n_levels++)
STRUCTURE(lone_node_among_many, MDCI, L2, 0, "for want of another", index->tree->lone_id = level_of(index, 0)->ids[0])
STRUCTURE(promotions_of_another_seed, MDCI, L2, 0, "level", index->tree->seed++)
STRUCTURE(rows_of_the_tree, MDCI, L2, 0, "the tree has", index->tree->n_rows++)
STRUCTURE(c_squared_of_the_tree, MDCI, IP, 0, "in the tree", index->tree->c_squared *= 2.0f)

/* What the tree computes from its rows. */
FULL(point_of_a_node, MDCI, L2, 0, "does not lie where its row", level_of(index, 0)->points[3] += 0.25f)
FULL(point_of_an_upper_node, MDCI, IP, 0, "of level 1 does not lie", level_of(index, 1)->points[3] += 0.25f)
FULL(lift_of_a_node, MDCI, IP, 0, "does not lie where its row", level_of(index, 0)->lasts[0] += 0.25f)
FULL(reach_of_a_cell, MDCI, COSINE, 0, "reaches", level_of(index, 0)->radii2[0] *= 0.5f)
FULL(reach_of_an_upper_cell, MDCI, L2, 0, "of level 1 reaches", *upper_radius_of(index) *= 0.5f)
FULL(mean_beneath_a_node, MDCI, L2, 0, "the mean beneath node", level_of(index, 0)->routes[7] += 1e-3f)
FULL(mean_beneath_an_upper_node, MDCI, L2, 0, "the mean beneath node", level_of(index, 1)->routes[7] += 1e-3f)
FULL(mean_of_the_tree, MDCI, L2, 0, "node", index->tree->mean[2] = NAN)
FULL(offset_of_a_node, MDCI, L2, 0, "points are compared with", level_of(index, 0)->nearest.offsets[1] *= 0.5f)
FULL(length_of_the_longest_node, MDCI, L2, 0, "points are compared with", level_of(index, 0)->nearest.longest *= 0.5f)
FULL(highest_node, MDCI, L2, 0, "points are compared with", level_of(index, 0)->nearest.highest = -1e9f)
FULL(nodes_compared_elsewhere, MDCI, L2, 0, "points are compared with", level_of(index, 0)->nearest.centres++)
FULL(cells_of_other_nodes, MDCI, L2, 0, "than the nearest", rotate_cells(index))
