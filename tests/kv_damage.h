/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The table of damages to a KV cache, which test_kv_damage.c includes twice: LEVEL(name, preset, sentence, field and
 * value). LEVEL is the lowest level of dci_kv_check that finds the damage, the sentence is a part of what it says.
 * There is a row for each condition that the check tests.
 */

/* The pool of blocks. */
STRUCTURE(block_counted_twice, DCI_KV_TOPK, "is counted", kv->pool.refs[first(kv)->table[3]]++)
STRUCTURE(block_free_and_in_use, DCI_KV_TOPK, "listed as free", free_list(kv)[0] = first(kv)->table[0])
STRUCTURE(free_block_twice, DCI_KV_TOPK, "listed as free", free_list(kv)[0] = free_list(kv)[1])
STRUCTURE(free_block_that_is_not, DCI_KV_TOPK, "listed as free", free_list(kv)[0] = (int32_t)kv->pool.n_blocks)
STRUCTURE(negative_free_block, DCI_KV_TOPK, "listed as free", free_list(kv)[0] = -1)
STRUCTURE(lost_block, DCI_KV_TOPK, "are lost", kv->pool.n_free--)
STRUCTURE(more_free_blocks_than_blocks, DCI_KV_TOPK, "of them free", kv->pool.n_free = kv->pool.n_blocks + 1)
STRUCTURE(free_blocks_beyond_the_room, DCI_KV_TOPK, "with room for", kv->pool.free_capacity = kv->pool.n_free - 1)
STRUCTURE(more_blocks_than_the_most, DCI_KV_TOPK, "blocks of at most", kv->pool.max_blocks = kv->pool.n_blocks - 1)
STRUCTURE(blocks_beyond_the_room, DCI_KV_TOPK, "with room for", kv->pool.block_capacity = kv->pool.n_blocks - 1)
STRUCTURE(pieces_and_blocks, DCI_KV_TOPK, "of them gaps", kv->row_bytes++)
STRUCTURE(pieces_beyond_the_room, DCI_KV_TOPK, "of them gaps", kv->pool.piece_capacity = 0)
STRUCTURE(blocks_of_other_pieces, DCI_KV_TOPK, "of them gaps", kv->pool.piece_shift++)

/* Sequences and their tables. */
STRUCTURE(block_twice_in_a_table, DCI_KV_TOPK, "sequence 0 has block", first(kv)->table[4] = first(kv)->table[5])
STRUCTURE(block_that_is_not, DCI_KV_TOPK, "sequence 0 has block", first(kv)->table[4] = (int32_t)kv->pool.n_blocks)
STRUCTURE(negative_block, DCI_KV_TOPK, "sequence 0 has block -1", first(kv)->table[4] = -1)
STRUCTURE(too_short_a_table, DCI_KV_TOPK, "sequence 0 has 420 tokens", first(kv)->n_table--)
STRUCTURE(table_beyond_its_room, DCI_KV_TOPK, "sequence 0 has 420 tokens",
          first(kv)->table_capacity = first(kv)->n_table - 1)
STRUCTURE(tokens_reserved_without_a_step, DCI_KV_TOPK, "1 reserved", first(kv)->n_reserved = 1)
STRUCTURE(sequences_out_of_order, DCI_KV_TOPK, "sequence 1 of 2 is number 1", (first(kv)->id = 99, kv->next_id = 100))
STRUCTURE(more_sequences_than_room, DCI_KV_TOPK, "2 sequences, but room for 1", kv->sequence_capacity = 1)
STRUCTURE(sequence_beyond_the_next_one, DCI_KV_TOPK, "is number 1, the next will be 1", kv->next_id = 1)

/* Layers. */
STRUCTURE(number_of_a_layer, DCI_KV_TOPK, "says that it is number 0", layer(kv)->number = 0)
STRUCTURE(layer_of_another_sequence, DCI_KV_TOPK, "says that it is number 1", layer(kv)->sequence = kv->sequences[1])
STRUCTURE(tokens_of_a_layer, DCI_KV_TOPK, "layer 1: 419 tokens", layer(kv)->n--)
STRUCTURE(layer_with_more_tokens_than_steps, DCI_KV_TOPK, "layer 1: 421 tokens", layer(kv)->n++)
STRUCTURE(state_of_a_prompt, DCI_KV_QUEST, "tokens in groups", layer(kv)->prompt = DCI_KV_PROMPT_OPEN)
STRUCTURE(prompt_in_no_state, DCI_KV_TOPK, "neither done nor to come", layer(kv)->prompt = 77)
STRUCTURE(too_long_a_prompt, DCI_KV_QUEST, "a prompt of 1000", layer(kv)->n_prompt = 1000)
STRUCTURE(more_in_groups_than_there_is, DCI_KV_QUEST, "420 tokens in groups", layer(kv)->n_grouped = layer(kv)->n)
STRUCTURE(part_of_a_page_in_groups, DCI_KV_QUEST, "in groups of whole 8", layer(kv)->n_grouped--)
STRUCTURE(groups_of_a_layer_that_has_none, DCI_KV_TOPK, "tokens in groups", layer(kv)->n_grouped = 8)
STRUCTURE(missing_chunk, DCI_KV_QUEST, "0 chunks of 512", layer(kv)->n_chunks = 0)
STRUCTURE(chunks_beyond_the_room, DCI_KV_QUEST, "1 chunks", layer(kv)->chunk_capacity = 0)
STRUCTURE(chunk_counted_once_less, DCI_KV_QUEST, "a chunk of sequence", layer(kv)->chunks[0]->refs--)
STRUCTURE(bytes_of_summaries, DCI_KV_QUEST, "are counted as summaries", kv->chunk_total += 64)

/* Rows: NaN, infinity and 16 in half precision. */
FULL(nan_in_a_key, DCI_KV_TOPK, "the key of token 40", *key(kv) = 0x7e00)
FULL(infinity_in_a_value, DCI_KV_TOPK, "the value of token 40", *value(kv) = 0x7c00)
FULL(another_key_of_extremes, DCI_KV_QUEST, "kv head 1: byte", *key(kv) = 0x4c00)
FULL(another_key_of_codes, DCI_KV_SKETCH, "of the summaries", *key(kv) = 0x4c00)
FULL(another_key_of_clusters, DCI_KV_CLUSTERKV, "the summary of group", *key(kv) = 0x4c00)
FULL(another_key_of_cells, DCI_KV_ICECACHE, "kv head 1: ", *key(kv) = 0x4c00)
FULL(another_value_of_low_bits, DCI_KV_SKETCH_LOWBIT, "of the tail", *value(kv) = 0x4c00)
FULL(another_value_of_sums, DCI_KV_SKETCH_SUMS, "of the tail", *value(kv) = 0x4c00)
FULL(another_value_of_clusters, DCI_KV_RETROINFER, "the mean value of group", *value(kv) = 0x4c00)

/* Summaries, tails and transforms. */
FULL(mean, DCI_KV_PAGEMEAN, "byte 6 of the summaries", summaries(kv)[6] ^= 0x20)
FULL(cuboid, DCI_KV_ARKVALE, "byte 6 of the summaries", summaries(kv)[6] ^= 0x20)
FULL(code, DCI_KV_SKETCH, "byte 6 of the summaries", summaries(kv)[6] ^= 0x20)
FULL(code_of_a_group, DCI_KV_SKETCH_GROUPS, "byte 6 of the summaries", summaries(kv)[6] ^= 0x20)
FULL(learned_code, KV_LEARNED, "byte 6 of the summaries", summaries(kv)[6] ^= 0x20)
FULL(code_of_values, DCI_KV_SKETCH_LOWBIT, "byte 6 of the tail", summaries(kv)[kv->summary_bytes + 6] ^= 0x20)
FULL(sum, DCI_KV_SKETCH_SUMS, "byte 6 of the tail", summaries(kv)[kv->summary_bytes + 6] ^= 0x20)
FULL(sign_of_the_rotation, DCI_KV_SKETCH, "the transform of keys", head(kv)->keys->coder.rotation.signs[1] *= -1.0f)
FULL(sign_of_the_rotation_of_values, DCI_KV_LOWBIT, "the transform of values",
     head(kv)->values->coder.rotation.signs[1] *= -1.0f)
FULL(nan_in_a_centre, DCI_KV_SKETCH, "the transform of keys", head(kv)->keys->coder.centre[2] = NAN)
FULL(infinity_in_what_was_learned, KV_LEARNED, "the transform of keys", learned(kv)->to[3] = INFINITY)
STRUCTURE(missing_transform, DCI_KV_SKETCH, "but no transform", HIDE(head(kv)->keys))
STRUCTURE(missing_transform_of_values, DCI_KV_LOWBIT, "but no transform", HIDE(head(kv)->values))
STRUCTURE(transform_counted_twice, DCI_KV_SKETCH, "a transform of keys of", head(kv)->keys->refs++)
STRUCTURE(transform_of_another_dimension, DCI_KV_SKETCH, "but no transform", head(kv)->keys->coder.dim++)
STRUCTURE(distortion_that_is_no_number, DCI_KV_SKETCH, "but no transform", head(kv)->keys->distortion = NAN)

/* Tokens chosen once. */
STRUCTURE(token_chosen_twice, DCI_KV_SNAPKV, "was chosen once", head(kv)->fixed[1] = head(kv)->fixed[0])
STRUCTURE(token_chosen_that_is_not, DCI_KV_SNAPKV, "candidate 5000 was chosen", head(kv)->fixed[1] = 5000)
STRUCTURE(negative_token_chosen, DCI_KV_SNAPKV, "candidate -1 was chosen", head(kv)->fixed[1] = -1)
STRUCTURE(more_chosen_than_room, DCI_KV_SNAPKV, "tokens are chosen once",
          head(kv)->n_fixed = head(kv)->fixed_capacity + 1)

/* Clusters, in batches. */
STRUCTURE(end_of_a_group, DCI_KV_CLUSTERKV, "group 0 of", offsets(kv)[1] = (int32_t)batch(kv)->n + 1)
STRUCTURE(end_of_the_groups, DCI_KV_CLUSTERKV, "groups end at", batch(kv)->heads[1].n_groups--)
STRUCTURE(more_groups_than_room, DCI_KV_CLUSTERKV, "groups end at -1",
          batch(kv)->heads[1].n_groups = (uint32_t)batch(kv)->room + 1)
STRUCTURE(no_groups, DCI_KV_CLUSTERKV, "0 groups end at", batch(kv)->heads[1].n_groups = 0)
STRUCTURE(groups_that_begin_late, DCI_KV_CLUSTERKV, "groups end at", offsets(kv)[0] = 1)
STRUCTURE(empty_group, DCI_KV_CLUSTERKV, "group 0 of", offsets(kv)[1] = 0)
STRUCTURE(token_in_two_groups, DCI_KV_RETROINFER, "or twice", members(kv)[batch(kv)->n - 1] = members(kv)[0])
STRUCTURE(token_that_is_not, DCI_KV_LOUISKV, "has token -1", members(kv)[4] = -1)
STRUCTURE(token_of_another_batch, DCI_KV_CLUSTERKV, "which is not among",
          members(kv)[0] = (int32_t)(batch(kv)->first + batch(kv)->n))
STRUCTURE(group_out_of_order, DCI_KV_CLUSTERKV, "after token", swap_members(kv))
STRUCTURE(groups_before_a_batch, DCI_KV_CLUSTERKV, "come before batch 1", second_batch(kv)->heads[1].before++)
STRUCTURE(gap_between_batches, DCI_KV_RETROINFER, "batch 1 has", second_batch(kv)->first++)
STRUCTURE(batch_less, DCI_KV_CLUSTERKV, "batches have", layer(kv)->n_batches--)
STRUCTURE(batches_beyond_the_room, DCI_KV_CLUSTERKV, "room for", layer(kv)->batch_capacity = 0)
STRUCTURE(empty_batch, DCI_KV_CLUSTERKV, "batch 0 has 0 tokens", batch(kv)->n = 0)
STRUCTURE(batch_counted_once_less, DCI_KV_CLUSTERKV, "a batch of sequence", batch(kv)->refs--)
STRUCTURE(static_tokens, DCI_KV_PRKV, "of them static", batch(kv)->n_static++)
STRUCTURE(more_static_tokens_than_tokens, DCI_KV_PRKV, "of them static",
          batch(kv)->n_static = (batch(kv)->n / kv->config.page_tokens + 1) * kv->config.page_tokens)
STRUCTURE(page_of_an_order, DCI_KV_PRKV, "group 1 of", offsets(kv)[1]--)
FULL(row_of_a_group, DCI_KV_PRKV, "the summary of group 0 of batch 0", dci_kv_cluster_rows(kv, batch(kv), 1)[5] ^= 0x20)
FULL(mean_key_of_a_group, DCI_KV_LOUISKV, "the summary of group 0 of batch 0",
     dci_kv_cluster_rows(kv, batch(kv), 1)[5] ^= 0x20)
FULL(mean_value_of_a_group, DCI_KV_RETROINFER, "the mean value of group 0",
     dci_kv_cluster_means(kv, batch(kv), 1, true)[5] ^= 0x20)

/* Trees. */
STRUCTURE(candidates_of_a_tree, DCI_KV_ICECACHE, "in the tree", tree(kv)->n--)
STRUCTURE(nodes_beyond_the_room, DCI_KV_ICECACHE, "a tree of", tree(kv)->node_capacity = 1)
STRUCTURE(node_of_another, DCI_KV_ICECACHE, "node 1 of", tree(kv)->node_tokens[1]++)
STRUCTURE(c_squared_that_is_no_power_of_two, DCI_KV_ICECACHE, "c^2 is 3", tree(kv)->c_squared = 3.0f)
FULL(too_low_a_c_squared, DCI_KV_ICECACHE, "c^2 is 0.000976562", tree(kv)->c_squared = 0x1p-10f)
STRUCTURE(tree_built_later_than_now, DCI_KV_ICECACHE, "a tree of", tree(kv)->built_version = tree(kv)->version + 1)
STRUCTURE(page_changed_later_than_now, DCI_KV_ICECACHE, "changed in version",
          tree(kv)->page_versions[tree(kv)->node_first[0]] = tree(kv)->version + 1)
STRUCTURE(page_of_another_cell, DCI_KV_ICECACHE, "is in cell 0, and is not",
          tree(kv)->page_node[tree(kv)->node_first[0]] = 1)
STRUCTURE(page_that_is_not, DCI_KV_ICECACHE, "kv head 1: page",
          tree(kv)->page_next[tree(kv)->node_last[0]] = (int32_t)tree(kv)->n_pages)
STRUCTURE(pages_in_a_ring, DCI_KV_ICECACHE, "or twice",
          (tree(kv)->page_next[tree(kv)->node_last[0]] = tree(kv)->node_first[0], tree(kv)->node_rows[0] = 1U << 30))
STRUCTURE(last_page_of_a_cell, DCI_KV_ICECACHE, "ends with page", tree(kv)->node_last[0]++)
STRUCTURE(more_pages_in_use_than_a_tree_has, DCI_KV_ICECACHE,
          "kv head 1: ", tree(kv)->n_pages = (size_t)tree(kv)->node_first[0])
STRUCTURE(free_pages_of_a_tree, DCI_KV_ICECACHE, "are said to be", tree(kv)->n_free++)
STRUCTURE(tokens_of_a_cell, DCI_KV_ICECACHE, "kv head 1: ", tree(kv)->node_rows[0]--)
STRUCTURE(cell_that_says_it_is_empty, DCI_KV_ICECACHE, "kv head 1: ", tree(kv)->node_rows[0] = 0)
STRUCTURE(token_twice_in_a_page, DCI_KV_ICECACHE, "and is not, or twice", cell(kv)[1] = cell(kv)[0])
STRUCTURE(negative_token_in_a_page, DCI_KV_ICECACHE, "and is not, or twice", cell(kv)[0] = -1)
STRUCTURE(token_beyond_those_of_a_tree, DCI_KV_ICECACHE, "and is not, or twice", cell(kv)[0] = (int32_t)tree(kv)->n)
STRUCTURE(tree_counted_twice, DCI_KV_ICECACHE, "a tree of sequence", tree(kv)->refs++)
FULL(lift_of_a_node, DCI_KV_ICECACHE, "node 1 is lifted by", tree(kv)->node_lifts[1] *= 1.5f)
FULL(reach_of_a_cell, DCI_KV_ICECACHE, "cell 1 reaches", tree(kv)->node_radii2[1] += 1.0f)
FULL(mean_of_a_cell, DCI_KV_ICECACHE, "the mean of cell 0", tree(kv)->means[5] ^= 0x20)
STRUCTURE(levels_of_a_tree, DCI_KV_ICECACHE, "levels of", tree(kv)->n_levels--)
STRUCTURE(nodes_that_have_no_levels, DCI_KV_ICECACHE, "levels of", tree(kv)->n_levelled--)
STRUCTURE(level_beyond_its_room, DCI_KV_ICECACHE, "level 1 has", tree(kv)->levels[1].capacity = 1)
STRUCTURE(node_of_another_level, DCI_KV_ICECACHE, "level 1: node 1 of", tree(kv)->levels[1].nodes[1]++)
STRUCTURE(node_that_a_level_lacks, DCI_KV_ICECACHE, "level 2", tree(kv)->levels[2].n--)
STRUCTURE(child_of_another_node, DCI_KV_ICECACHE, "do not agree", tree(kv)->levels[1].children[0]++)
STRUCTURE(child_that_is_not, DCI_KV_ICECACHE, "do not agree", tree(kv)->levels[1].children[0] = INT32_MAX)
STRUCTURE(children_beyond_the_last, DCI_KV_ICECACHE, "do not agree", tree(kv)->levels[1].child_first[1] = INT32_MAX)
STRUCTURE(node_without_a_parent, DCI_KV_ICECACHE, "do not agree", tree(kv)->levels[0].n_placed--)
FULL(parent_that_is_not_the_nearest, DCI_KV_ICECACHE, "the parent of node", swap_parents(kv))
FULL(mean_of_a_level, DCI_KV_ICECACHE, "means of level 1", tree(kv)->levels[1].means[5] ^= 0x20)
FULL(projection_of_a_node, DCI_KV_ICECACHE, "projections of nodes", tree(kv)->node_projections[1] += 1.0f)
FULL(projection_of_a_member, DCI_KV_ICECACHE, "projections of page",
     tree(kv)->member_projections[(size_t)tree(kv)->node_first[0] * kv->config.page_tokens] += 1.0f)
FULL(cells_of_other_nodes, DCI_KV_ICECACHE, "than the nearest", rotate_cells(kv))

/* Lists of the last choice, and segments. */
STRUCTURE(token_twice_on_a_list, DCI_KV_FREEKV, "is on it, which is not", choose_twice(kv))
STRUCTURE(list_beyond_its_candidates, DCI_KV_FREEKV, "is on it, which is not",
          decided(kv)->lists[1] = (int32_t)decided(kv)->end)
STRUCTURE(negative_token_on_a_list, DCI_KV_FREEKV, "candidate -1 of", decided(kv)->lists[0] = -1)
STRUCTURE(too_long_a_list, DCI_KV_LOUISKV, "candidates, room for",
          decided(kv)->counts[1] = (int32_t)dci_kv_max_room(kv) + 1)
STRUCTURE(negative_list, DCI_KV_LOUISKV, "-1 candidates, room for", decided(kv)->counts[1] = -1)
STRUCTURE(list_of_the_future, DCI_KV_FREEKV, "at token 421", decided(kv)->n = layer(kv)->n + 1)
STRUCTURE(list_of_the_next_candidates, DCI_KV_FREEKV, "lists were chosen from", decided(kv)->end = layer(kv)->n + 1)
STRUCTURE(order_of_the_future, DCI_KV_PRKV, "an order was made at plan",
          decided(kv)->renewed = decided(kv)->n_pushed + 1)
STRUCTURE(nan_in_a_remembered_query, DCI_KV_PRKV, "that is remembered",
          decided(kv)->ring[kv->config.ring * kv->group * kv->dim_k + 3] = NAN)
STRUCTURE(turns_beyond_the_room, DCI_KV_LOUISKV, "turns, room for", layer(kv)->boundary_capacity = 0)
STRUCTURE(turn_after_the_end, DCI_KV_LOUISKV, "queries turned at token 5000",
          turns(kv)[layer(kv)->n_boundaries - 1] = 5000)
STRUCTURE(negative_turn, DCI_KV_LOUISKV, "queries turned at token -1", turns(kv)[0] = -1)
STRUCTURE(turns_out_of_order, DCI_KV_LOUISKV, "number 1 of the turns", turns(kv)[1] = turns(kv)[0])
