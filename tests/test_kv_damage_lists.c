/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Damage to what a KV cache says of its memory, and to its lists: sizes, rooms, what is not there, what is beyond the end. As in
 * test_kv_damage.c, a row of the table for each condition of dci_kv_check.
 */
#include <math.h>

#include "kv/clusters.h"
#include "kv/transform.h"
#include "kv/tree/tree.h"
#include "tests/kv_check_fixture.h"

/* Leak checkers find here what damage hides from them. */
static void *hidden[4];
static size_t n_hidden;
static void hide(void *memory)
{
        ck_assert_uint_lt(n_hidden, COUNT(hidden));
        hidden[n_hidden++] = memory;
}

static dci_kv_sequence *first(dci_kv *kv)
{
        return kv->sequences[0];
}
static dci_kv_layer *layer_of(dci_kv *kv)
{
        return &kv->sequences[0]->layers[1];
}
static dci_kv_head *head_of(dci_kv *kv)
{
        return &layer_of(kv)->heads[1];
}
static dci_kv_clusters *batch_of(dci_kv *kv)
{
        return layer_of(kv)->batches[0];
}

static void blocks_beyond_the_most(dci_kv *kv)
{
        kv->pool.max_blocks = kv->pool.n_blocks - 1;
}
static void free_beyond_blocks(dci_kv *kv)
{
        kv->pool.n_free = kv->pool.n_blocks + 1;
}
static void blocks_beyond_the_room(dci_kv *kv)
{
        kv->pool.block_capacity = kv->pool.n_blocks - 1;
}
static void free_beyond_the_room(dci_kv *kv)
{
        ck_assert_uint_ge(kv->pool.n_free, 1);
        kv->pool.free_capacity = kv->pool.n_free - 1;
}
static void pieces_beyond_the_room(dci_kv *kv)
{
        kv->pool.piece_capacity = 0;
}
static void blocks_of_other_pieces(dci_kv *kv)
{
        kv->pool.piece_shift++;
}
static void table_beyond_the_room(dci_kv *kv)
{
        first(kv)->table_capacity = first(kv)->n_table - 1;
}
static void negative_block(dci_kv *kv)
{
        first(kv)->table[4] = -1;
}
static void free_block_beyond(dci_kv *kv)
{
        ck_assert_uint_ge(kv->pool.n_free, 1);
        kv->pool.free_list[0] = (int32_t)kv->pool.n_blocks;
}
static void negative_free_block(dci_kv *kv)
{
        ck_assert_uint_ge(kv->pool.n_free, 1);
        kv->pool.free_list[0] = -1;
}
static void sequences_beyond_the_room(dci_kv *kv)
{
        kv->sequence_capacity = 1;
}
static void sequence_beyond_the_next(dci_kv *kv)
{
        kv->next_id = 1;
}
static void layer_of_another(dci_kv *kv)
{
        layer_of(kv)->sequence = kv->sequences[1];
}
static void layer_ahead(dci_kv *kv)
{
        layer_of(kv)->n++;
}
static void prompt_in_no_state(dci_kv *kv)
{
        atomic_store(&layer_of(kv)->prompt, 77);
}
static void groups_of_none(dci_kv *kv)
{
        layer_of(kv)->n_grouped = 8;
}
static void batches_beyond_the_room(dci_kv *kv)
{
        layer_of(kv)->batch_capacity = 0;
}
static void turns_beyond_the_room(dci_kv *kv)
{
        layer_of(kv)->boundary_capacity = 0;
}
static void groups_beyond_the_room(dci_kv *kv)
{
        batch_of(kv)->heads[1].n_groups = (uint32_t)batch_of(kv)->room + 1;
}
static void no_groups(dci_kv *kv)
{
        batch_of(kv)->heads[1].n_groups = 0;
}
static void groups_that_begin_late(dci_kv *kv)
{
        dci_kv_cluster_offsets(kv, batch_of(kv), 1)[0] = 1;
}
static void empty_group(dci_kv *kv)
{
        dci_kv_cluster_offsets(kv, batch_of(kv), 1)[1] = 0;
}
static void token_of_another_batch(dci_kv *kv)
{
        dci_kv_cluster_ids(kv, batch_of(kv), 1)[0] = (int32_t)(batch_of(kv)->first + batch_of(kv)->n);
}
static void empty_batch(dci_kv *kv)
{
        batch_of(kv)->n = 0;
}
static void static_beyond(dci_kv *kv)
{
        batch_of(kv)->n_static =
                batch_of(kv)->n / kv->config.page_tokens * kv->config.page_tokens + kv->config.page_tokens;
}
static void frame_of_another_dimension(dci_kv *kv)
{
        head_of(kv)->keys->coder.dim++;
}
static void nan_distortion(dci_kv *kv)
{
        head_of(kv)->keys->distortion = NAN;
}
static void no_transform_of_values(dci_kv *kv)
{
        hide(head_of(kv)->values);
        head_of(kv)->values = NULL;
}
static void chosen_negative(dci_kv *kv)
{
        head_of(kv)->fixed[1] = -1;
}
static void list_of_candidates_to_come(dci_kv *kv)
{
        layer_of(kv)->decided->end = layer_of(kv)->n + 1;
}
static void negative_list(dci_kv *kv)
{
        layer_of(kv)->decided->counts[1] = -1;
}
static void negative_on_a_list(dci_kv *kv)
{
        layer_of(kv)->decided->lists[0] = -1;
}
static void negative_turn(dci_kv *kv)
{
        ck_assert_uint_ge(layer_of(kv)->n_boundaries, 1);
        layer_of(kv)->boundaries[0] = -1;
}
static void turns_out_of_order(dci_kv *kv)
{
        dci_kv_layer *layer = layer_of(kv);
        ck_assert_uint_ge(layer->n_boundaries, 2);
        layer->boundaries[1] = layer->boundaries[0];
}
static void page_beyond_the_tree(dci_kv *kv)
{
        head_of(kv)->tree->n_pages = (size_t)head_of(kv)->tree->node_first[0];
}
static void negative_member(dci_kv *kv)
{
        dci_kv_tree *tree = head_of(kv)->tree;
        tree->members[(size_t)tree->node_first[0] * kv->config.page_tokens] = -1;
}
static void member_beyond(dci_kv *kv)
{
        dci_kv_tree *tree = head_of(kv)->tree;
        tree->members[(size_t)tree->node_first[0] * kv->config.page_tokens] = (int32_t)tree->n;
}
static void empty_cell(dci_kv *kv)
{
        head_of(kv)->tree->node_rows[0] = 0;
}

#define STRUCTURE DCI_CHECK_STRUCTURE
static const kv_check_damage damages[] = {
        {"more blocks than the most", blocks_beyond_the_most, DCI_KV_TOPK, STRUCTURE, "blocks of at most"},
        {"more free blocks than blocks", free_beyond_blocks, DCI_KV_TOPK, STRUCTURE, "of them free"},
        {"blocks beyond the room", blocks_beyond_the_room, DCI_KV_TOPK, STRUCTURE, "with room for"},
        {"free blocks beyond the room", free_beyond_the_room, DCI_KV_TOPK, STRUCTURE, "with room for"},
        {"pieces beyond the room", pieces_beyond_the_room, DCI_KV_TOPK, STRUCTURE, "pieces of"},
        {"blocks of other pieces", blocks_of_other_pieces, DCI_KV_TOPK, STRUCTURE, "pieces of"},
        {"a table beyond its room", table_beyond_the_room, DCI_KV_TOPK, STRUCTURE, "sequence 0 has 420 tokens"},
        {"a negative block", negative_block, DCI_KV_TOPK, STRUCTURE, "sequence 0 has block -1"},
        {"a free block that is not", free_block_beyond, DCI_KV_TOPK, STRUCTURE, "listed as free"},
        {"a negative free block", negative_free_block, DCI_KV_TOPK, STRUCTURE, "listed as free"},
        {"more sequences than room", sequences_beyond_the_room, DCI_KV_TOPK, STRUCTURE, "2 sequences, but room for 1"},
        {"a sequence beyond the next one", sequence_beyond_the_next, DCI_KV_TOPK, STRUCTURE,
         "is number 1, the next will be 1"},
        {"a layer of another sequence", layer_of_another, DCI_KV_TOPK, STRUCTURE, "says that it is number 1"},
        {"a layer with more tokens than steps", layer_ahead, DCI_KV_TOPK, STRUCTURE, "layer 1: 421 tokens"},
        {"a prompt in no state", prompt_in_no_state, DCI_KV_TOPK, STRUCTURE, "neither done nor to come"},
        {"groups of a layer that has none", groups_of_none, DCI_KV_TOPK, STRUCTURE, "tokens in groups"},
        {"batches beyond the room", batches_beyond_the_room, DCI_KV_CLUSTERKV, STRUCTURE, "room for"},
        {"turns beyond the room", turns_beyond_the_room, DCI_KV_LOUISKV, STRUCTURE, "turns, room for"},
        {"more groups than room", groups_beyond_the_room, DCI_KV_CLUSTERKV, STRUCTURE, "groups end at -1"},
        {"no groups", no_groups, DCI_KV_CLUSTERKV, STRUCTURE, "0 groups end at"},
        {"groups that begin late", groups_that_begin_late, DCI_KV_CLUSTERKV, STRUCTURE, "groups end at"},
        {"an empty group", empty_group, DCI_KV_CLUSTERKV, STRUCTURE, "group 0 of"},
        {"a token of another batch", token_of_another_batch, DCI_KV_CLUSTERKV, STRUCTURE, "which is not among"},
        {"an empty batch", empty_batch, DCI_KV_CLUSTERKV, STRUCTURE, "batch 0 has 0 tokens"},
        {"more static tokens than tokens", static_beyond, DCI_KV_PRKV, STRUCTURE, "of them static"},
        {"a transform of another dimension", frame_of_another_dimension, DCI_KV_SKETCH, STRUCTURE, "but no transform"},
        {"a distortion that is no number", nan_distortion, DCI_KV_SKETCH, STRUCTURE, "but no transform"},
        {"no transform of values", no_transform_of_values, DCI_KV_LOWBIT, STRUCTURE, "but no transform"},
        {"a negative choice", chosen_negative, DCI_KV_SNAPKV, STRUCTURE, "candidate -1 was chosen"},
        {"a list of the next candidates", list_of_candidates_to_come, DCI_KV_FREEKV, STRUCTURE,
         "lists were chosen from"},
        {"a negative list", negative_list, DCI_KV_LOUISKV, STRUCTURE, "a list of -1"},
        {"a negative token on a list", negative_on_a_list, DCI_KV_FREEKV, STRUCTURE, "candidate -1 of"},
        {"a negative turn", negative_turn, DCI_KV_LOUISKV, STRUCTURE, "queries turned at token -1"},
        {"turns out of order", turns_out_of_order, DCI_KV_LOUISKV, STRUCTURE, "number 1 of the turns"},
        {"more pages in use than a tree has", page_beyond_the_tree, DCI_KV_ICECACHE, STRUCTURE, "kv head 1: "},
        {"a negative token in a page", negative_member, DCI_KV_ICECACHE, STRUCTURE, "and is not, or twice"},
        {"a token beyond those of a tree", member_beyond, DCI_KV_ICECACHE, STRUCTURE, "and is not, or twice"},
        {"a cell that says it is empty", empty_cell, DCI_KV_ICECACHE, STRUCTURE, "kv head 1: "},
};

/* Lists that are wrong cannot be freed: what was damaged stays, where leak checkers find it. */
static dci_kv *left[COUNT(damages)];

START_TEST(every_damage_is_found_and_named)
{
        left[_i] = kv_check_damaged(&damages[_i]);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("kv damage to rooms and lists");
        TCase *damaged = tcase_create("damaged");
        tcase_set_timeout(damaged, 60);
        tcase_add_loop_test(damaged, every_damage_is_found_and_named, 0, COUNT(damages));
        suite_add_tcase(suite, damaged);
        return test_main(suite);
}
