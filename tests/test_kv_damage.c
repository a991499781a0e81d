/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Every damage to a KV cache that a test can make is found by dci_kv_check and named: a row of the table for each invariant.
 */
#include <math.h>
#include <string.h>

#include "kv/chunk.h"
#include "kv/clusters.h"
#include "kv/geometry.h"
#include "kv/pool.h"
#include "kv/transform.h"
#include "kv/tree/tree.h"
#include "tests/kv_check_fixture.h"

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
static dci_kv_page page_of(dci_kv *kv, size_t token)
{
        return dci_kv_page_at(kv, 1, first(kv)->table[token / kv->config.page_tokens], 1);
}

static void block_counted_twice(dci_kv *kv)
{
        kv->pool.refs[first(kv)->table[3]]++;
}
static void block_free_and_in_use(dci_kv *kv)
{
        kv->pool.free_list[0] = first(kv)->table[0];
}
static void free_block_twice(dci_kv *kv)
{
        ck_assert_uint_ge(kv->pool.n_free, 2);
        kv->pool.free_list[0] = kv->pool.free_list[1];
}
static void lost_block(dci_kv *kv)
{
        ck_assert_uint_ge(kv->pool.n_free, 1);
        kv->pool.n_free--;
}
static void pieces(dci_kv *kv)
{
        kv->row_bytes++;
}
static void block_twice_in_a_table(dci_kv *kv)
{
        first(kv)->table[4] = first(kv)->table[5];
}
static void block_that_is_not(dci_kv *kv)
{
        first(kv)->table[4] = (int32_t)kv->pool.n_blocks;
}
static void table_too_short(dci_kv *kv)
{
        first(kv)->n_table--;
}
static void reserved_without_a_step(dci_kv *kv)
{
        first(kv)->n_reserved = 1;
}
static void sequences_out_of_order(dci_kv *kv)
{
        first(kv)->id = 99;
        kv->next_id = 100;
}
static void number_of_a_layer(dci_kv *kv)
{
        layer_of(kv)->number = 0;
}
static void tokens_of_a_layer(dci_kv *kv)
{
        layer_of(kv)->n--;
}
static void state_of_a_prompt(dci_kv *kv)
{
        atomic_store(&layer_of(kv)->prompt, DCI_KV_PROMPT_OPEN);
}
static void too_much_grouped(dci_kv *kv)
{
        layer_of(kv)->n_grouped = layer_of(kv)->n;
}
static void part_of_a_page_grouped(dci_kv *kv)
{
        layer_of(kv)->n_grouped--;
}
static void long_prompt(dci_kv *kv)
{
        layer_of(kv)->n_prompt = 1000;
}
static void missing_chunk(dci_kv *kv)
{
        layer_of(kv)->n_chunks = 0;
}
static void chunks_beyond_the_room(dci_kv *kv)
{
        layer_of(kv)->chunk_capacity = 0;
}
static void chunk_counted_once_less(dci_kv *kv)
{
        atomic_fetch_sub(&layer_of(kv)->chunks[0]->refs, 1);
}
static void bytes_of_summaries(dci_kv *kv)
{
        atomic_fetch_add(&kv->chunk_total, 64);
}
static void nan_in_a_key(dci_kv *kv)
{
        *(uint16_t *)(void *)page_of(kv, 40).keys = 0x7e00;
}
static void infinity_in_a_value(dci_kv *kv)
{
        *(uint16_t *)(void *)page_of(kv, 40).values = 0x7c00;
}
static void another_key(dci_kv *kv)
{
        *(uint16_t *)(void *)page_of(kv, 40).keys = 0x4c00; /* 16 */
}
static void another_value(dci_kv *kv)
{
        *(uint16_t *)(void *)page_of(kv, 40).values = 0x4c00;
}
static void byte_of_a_summary(dci_kv *kv)
{
        dci_kv_chunk_head(kv, layer_of(kv), 0, 1)[6] ^= 0x20;
}
static void byte_of_a_tail(dci_kv *kv)
{
        dci_kv_chunk_head(kv, layer_of(kv), 0, 1)[kv->summary_bytes + 6] ^= 0x20;
}
static void sign_of_a_rotation(dci_kv *kv)
{
        float *sign = &head_of(kv)->keys->coder.rotation.signs[1];
        *sign = -*sign;
}
static void sign_of_the_values_rotation(dci_kv *kv)
{
        float *sign = &head_of(kv)->values->coder.rotation.signs[1];
        *sign = -*sign;
}
static void nan_in_a_centre(dci_kv *kv)
{
        head_of(kv)->keys->coder.centre[2] = NAN;
}
static void learned_infinity(dci_kv *kv)
{
        ck_assert_int_eq(head_of(kv)->keys->coder.kind, DCI_CODER_LEARNED);
        head_of(kv)->keys->coder.to[3] = INFINITY;
}
static void missing_transform(dci_kv *kv)
{
        head_of(kv)->keys = NULL;
}
static void transform_counted_twice(dci_kv *kv)
{
        atomic_fetch_add(&head_of(kv)->keys->refs, 1);
}
static void chosen_twice(dci_kv *kv)
{
        head_of(kv)->fixed[1] = head_of(kv)->fixed[0];
}
static void chosen_beyond(dci_kv *kv)
{
        head_of(kv)->fixed[1] = 5000;
}
static void chosen_beyond_the_room(dci_kv *kv)
{
        head_of(kv)->n_fixed = head_of(kv)->fixed_capacity + 1;
}

static dci_kv_clusters *batch_of(dci_kv *kv)
{
        return layer_of(kv)->batches[0];
}
static void end_of_a_group(dci_kv *kv)
{
        dci_kv_cluster_offsets(kv, batch_of(kv), 1)[1] = (int32_t)batch_of(kv)->n + 1;
}
static void end_of_the_groups(dci_kv *kv)
{
        batch_of(kv)->heads[1].n_groups--;
}
static void token_in_two_groups(dci_kv *kv)
{
        int32_t *ids = dci_kv_cluster_ids(kv, batch_of(kv), 1);
        ids[batch_of(kv)->n - 1] = ids[0];
}
static void token_that_is_not(dci_kv *kv)
{
        dci_kv_cluster_ids(kv, batch_of(kv), 1)[4] = -1;
}
static void tokens_of_a_group_out_of_order(dci_kv *kv)
{
        const int32_t *offsets = dci_kv_cluster_offsets(kv, batch_of(kv), 1);
        size_t g = 0;
        while (offsets[g + 1] - offsets[g] < 2)
                g++;
        int32_t *ids = dci_kv_cluster_ids(kv, batch_of(kv), 1) + offsets[g];
        const int32_t swap = ids[0];
        ids[0] = ids[1];
        ids[1] = swap;
}
static void groups_before_a_batch(dci_kv *kv)
{
        ck_assert_uint_ge(layer_of(kv)->n_batches, 2);
        layer_of(kv)->batches[1]->heads[1].before++;
}
static void gap_between_batches(dci_kv *kv)
{
        layer_of(kv)->batches[1]->first++;
}
static void batch_less(dci_kv *kv)
{
        layer_of(kv)->n_batches--;
}
static void static_tokens(dci_kv *kv)
{
        batch_of(kv)->n_static++;
}
static void page_of_an_order(dci_kv *kv)
{
        dci_kv_cluster_offsets(kv, batch_of(kv), 1)[1]--;
}
static void batch_counted_once_less(dci_kv *kv)
{
        atomic_fetch_sub(&batch_of(kv)->refs, 1);
}
static void row_of_a_group(dci_kv *kv)
{
        dci_kv_cluster_rows(kv, batch_of(kv), 1)[5] ^= 0x20;
}
static void mean_value_of_a_group(dci_kv *kv)
{
        dci_kv_cluster_means(kv, batch_of(kv), 1, true)[5] ^= 0x20;
}

static dci_kv_tree *tree_of(dci_kv *kv)
{
        return head_of(kv)->tree;
}
static void candidates_of_a_tree(dci_kv *kv)
{
        tree_of(kv)->n--;
}
static void nodes_beyond_the_room(dci_kv *kv)
{
        tree_of(kv)->node_capacity = 1;
}
static void node_of_another(dci_kv *kv)
{
        tree_of(kv)->node_tokens[1]++;
}
static void odd_c_squared(dci_kv *kv)
{
        tree_of(kv)->c_squared = 3.0f;
}
static void low_c_squared(dci_kv *kv)
{
        tree_of(kv)->c_squared = 0x1p-10f;
}
static void tree_built_later_than_now(dci_kv *kv)
{
        tree_of(kv)->built_version = tree_of(kv)->version + 1;
}
static void page_changed_later_than_now(dci_kv *kv)
{
        tree_of(kv)->page_versions[tree_of(kv)->node_first[0]] = tree_of(kv)->version + 1;
}
static void page_of_another_cell(dci_kv *kv)
{
        tree_of(kv)->page_node[tree_of(kv)->node_first[0]] = 1;
}
static void page_that_is_not(dci_kv *kv)
{
        tree_of(kv)->page_next[tree_of(kv)->node_last[0]] = (int32_t)tree_of(kv)->n_pages;
}
static void pages_in_a_ring(dci_kv *kv)
{
        tree_of(kv)->page_next[tree_of(kv)->node_last[0]] = tree_of(kv)->node_first[0];
        tree_of(kv)->node_rows[0] = 1U << 30;
}
static void tokens_of_a_cell(dci_kv *kv)
{
        tree_of(kv)->node_rows[0]--;
}
static void last_page_of_a_cell(dci_kv *kv)
{
        tree_of(kv)->node_last[0]++;
}
static void member_twice(dci_kv *kv)
{
        int32_t *members = tree_of(kv)->members + (size_t)tree_of(kv)->node_first[0] * kv->config.page_tokens;
        ck_assert_uint_ge(tree_of(kv)->node_rows[0], 2);
        members[1] = members[0];
}
static void free_pages_of_a_tree(dci_kv *kv)
{
        tree_of(kv)->n_free++;
}
static void tree_counted_twice(dci_kv *kv)
{
        atomic_fetch_add(&tree_of(kv)->refs, 1);
}
static void lift_of_a_node(dci_kv *kv)
{
        tree_of(kv)->node_lifts[1] *= 1.5f;
}
static void reach_of_a_cell(dci_kv *kv)
{
        tree_of(kv)->node_radii2[1] += 1.0f;
}
static void mean_of_a_cell(dci_kv *kv)
{
        tree_of(kv)->means[5] ^= 0x20;
}

/* Cells change places as a whole: lists and counts stay right, but nothing lies near. */
static void cells_rotated(dci_kv *kv)
{
        dci_kv_tree *tree = tree_of(kv);
        const int32_t at = tree->node_first[0], last = tree->node_last[0];
        const uint32_t rows = tree->node_rows[0];
        const size_t n = tree->n_nodes;
        float scratch[2 * 16];
        for (size_t i = 0; i + 1 < n; i++) {
                tree->node_first[i] = tree->node_first[i + 1];
                tree->node_last[i] = tree->node_last[i + 1];
                tree->node_rows[i] = tree->node_rows[i + 1];
        }
        tree->node_first[n - 1] = at;
        tree->node_last[n - 1] = last;
        tree->node_rows[n - 1] = rows;
        for (size_t i = 0; i < n; i++)
                for (int32_t p = tree->node_first[i]; p >= 0; p = tree->page_next[p])
                        tree->page_node[p] = (int32_t)i;
        memset(tree->node_dirty, 1, n);
        dci_kv_tree_refresh(kv, layer_of(kv), 1, tree, scratch);
}

static void list_with_a_token_twice(dci_kv *kv)
{
        int32_t *list = layer_of(kv)->decided->lists + dci_kv_max_room(kv);
        list[1] = list[0];
}
static void list_beyond_its_candidates(dci_kv *kv)
{
        layer_of(kv)->decided->lists[1] = (int32_t)layer_of(kv)->decided->end;
}
static void list_too_long(dci_kv *kv)
{
        layer_of(kv)->decided->counts[1] = (int32_t)dci_kv_max_room(kv) + 1;
}
static void list_of_the_future(dci_kv *kv)
{
        layer_of(kv)->decided->n = layer_of(kv)->n + 1;
}
static void order_of_the_future(dci_kv *kv)
{
        layer_of(kv)->decided->renewed = layer_of(kv)->decided->n_pushed + 1;
}
static void nan_in_a_remembered_query(dci_kv *kv)
{
        layer_of(kv)->decided->ring[kv->config.ring * kv->group * kv->dim_k + 3] = NAN;
}
static void turn_behind_the_end(dci_kv *kv)
{
        ck_assert_uint_ge(layer_of(kv)->n_boundaries, 1);
        layer_of(kv)->boundaries[layer_of(kv)->n_boundaries - 1] = 5000;
}

#define STRUCTURE DCI_CHECK_STRUCTURE
#define FULL DCI_CHECK_FULL
static const kv_check_damage damages[] = {
        {"a block counted twice", block_counted_twice, DCI_KV_TOPK, STRUCTURE, "is counted"},
        {"a block free and in use", block_free_and_in_use, DCI_KV_TOPK, STRUCTURE, "listed as free"},
        {"a free block twice", free_block_twice, DCI_KV_TOPK, STRUCTURE, "listed as free"},
        {"a lost block", lost_block, DCI_KV_TOPK, STRUCTURE, "are lost"},
        {"pieces and blocks", pieces, DCI_KV_TOPK, STRUCTURE, "pieces of"},
        {"a block twice in a table", block_twice_in_a_table, DCI_KV_TOPK, STRUCTURE, "sequence 0 has block"},
        {"a block that is not", block_that_is_not, DCI_KV_TOPK, STRUCTURE, "sequence 0 has block"},
        {"too short a table", table_too_short, DCI_KV_TOPK, STRUCTURE, "sequence 0 has 420 tokens"},
        {"tokens reserved without a step", reserved_without_a_step, DCI_KV_TOPK, STRUCTURE, "1 reserved"},
        {"sequences out of order", sequences_out_of_order, DCI_KV_TOPK, STRUCTURE, "sequence 1 of 2 is number 1"},
        {"the number of a layer", number_of_a_layer, DCI_KV_TOPK, STRUCTURE, "says that it is number 0"},
        {"the tokens of a layer", tokens_of_a_layer, DCI_KV_TOPK, STRUCTURE, "layer 1: 419 tokens"},
        {"the state of a prompt", state_of_a_prompt, DCI_KV_QUEST, STRUCTURE, "tokens in groups"},
        {"more in groups than there is", too_much_grouped, DCI_KV_QUEST, STRUCTURE, "420 tokens in groups"},
        {"part of a page in groups", part_of_a_page_grouped, DCI_KV_QUEST, STRUCTURE, "in groups of whole 8"},
        {"too long a prompt", long_prompt, DCI_KV_QUEST, STRUCTURE, "a prompt of 1000"},
        {"a missing chunk", missing_chunk, DCI_KV_QUEST, STRUCTURE, "0 chunks of 512"},
        {"chunks beyond the room", chunks_beyond_the_room, DCI_KV_QUEST, STRUCTURE, "1 chunks"},
        {"a chunk counted once less", chunk_counted_once_less, DCI_KV_QUEST, STRUCTURE, "a chunk of sequence"},
        {"bytes of summaries", bytes_of_summaries, DCI_KV_QUEST, STRUCTURE, "are counted as summaries"},
        {"NaN in a key", nan_in_a_key, DCI_KV_TOPK, FULL, "the key of token 40"},
        {"infinity in a value", infinity_in_a_value, DCI_KV_TOPK, FULL, "the value of token 40"},
        {"another key (extremes)", another_key, DCI_KV_QUEST, FULL, "kv head 1: byte"},
        {"another key (codes)", another_key, DCI_KV_SKETCH, FULL, "of the summaries"},
        {"another key (clusters)", another_key, DCI_KV_CLUSTERKV, FULL, "the summary of group"},
        {"another key (cells)", another_key, DCI_KV_ICECACHE, FULL, "kv head 1: "},
        {"another value (low-bit)", another_value, DCI_KV_SKETCH_LOWBIT, FULL, "of the tail"},
        {"another value (sums)", another_value, DCI_KV_SKETCH_SUMS, FULL, "of the tail"},
        {"another value (clusters)", another_value, DCI_KV_RETROINFER, FULL, "the mean value of group"},
        {"a mean", byte_of_a_summary, DCI_KV_PAGEMEAN, FULL, "byte 6 of the summaries"},
        {"a cuboid", byte_of_a_summary, DCI_KV_ARKVALE, FULL, "byte 6 of the summaries"},
        {"a code", byte_of_a_summary, DCI_KV_SKETCH, FULL, "byte 6 of the summaries"},
        {"a code of a group", byte_of_a_summary, DCI_KV_SKETCH_GROUPS, FULL, "byte 6 of the summaries"},
        {"a learned code", byte_of_a_summary, KV_LEARNED, FULL, "byte 6 of the summaries"},
        {"a code of values", byte_of_a_tail, DCI_KV_SKETCH_LOWBIT, FULL, "byte 6 of the tail"},
        {"a sum", byte_of_a_tail, DCI_KV_SKETCH_SUMS, FULL, "byte 6 of the tail"},
        {"a sign of the rotation", sign_of_a_rotation, DCI_KV_SKETCH, FULL, "the transform of keys"},
        {"a sign of the values' rotation", sign_of_the_values_rotation, DCI_KV_LOWBIT, FULL, "the transform of values"},
        {"NaN in a centre", nan_in_a_centre, DCI_KV_SKETCH, FULL, "the transform of keys"},
        {"infinity in what was learned", learned_infinity, KV_LEARNED, FULL, "the transform of keys"},
        {"a missing transform", missing_transform, DCI_KV_SKETCH, STRUCTURE, "but no transform"},
        {"a transform counted twice", transform_counted_twice, DCI_KV_SKETCH, STRUCTURE, "a transform of keys of"},
        {"a token chosen twice", chosen_twice, DCI_KV_SNAPKV, STRUCTURE, "was chosen once"},
        {"a token chosen that is not", chosen_beyond, DCI_KV_SNAPKV, STRUCTURE, "candidate 5000 was chosen"},
        {"more chosen than room", chosen_beyond_the_room, DCI_KV_SNAPKV, STRUCTURE, "tokens are chosen once"},
        {"the end of a group", end_of_a_group, DCI_KV_CLUSTERKV, STRUCTURE, "group 0 of"},
        {"the end of the groups", end_of_the_groups, DCI_KV_CLUSTERKV, STRUCTURE, "groups end at"},
        {"a token in two groups", token_in_two_groups, DCI_KV_RETROINFER, STRUCTURE, "or twice"},
        {"a token that is not", token_that_is_not, DCI_KV_LOUISKV, STRUCTURE, "has token -1"},
        {"a group out of order", tokens_of_a_group_out_of_order, DCI_KV_CLUSTERKV, STRUCTURE, "after token"},
        {"groups before a batch", groups_before_a_batch, DCI_KV_CLUSTERKV, STRUCTURE, "come before batch 1"},
        {"a gap between batches", gap_between_batches, DCI_KV_RETROINFER, STRUCTURE, "batch 1 has"},
        {"a batch less", batch_less, DCI_KV_CLUSTERKV, STRUCTURE, "batches have"},
        {"static tokens", static_tokens, DCI_KV_PRKV, STRUCTURE, "of them static"},
        {"a page of an order", page_of_an_order, DCI_KV_PRKV, STRUCTURE, "group 1 of"},
        {"a batch counted once less", batch_counted_once_less, DCI_KV_CLUSTERKV, STRUCTURE, "a batch of sequence"},
        {"the row of a group", row_of_a_group, DCI_KV_PRKV, FULL, "the summary of group 0 of batch 0"},
        {"a mean key", row_of_a_group, DCI_KV_LOUISKV, FULL, "the summary of group 0 of batch 0"},
        {"a mean value", mean_value_of_a_group, DCI_KV_RETROINFER, FULL, "the mean value of group 0"},
        {"the candidates of a tree", candidates_of_a_tree, DCI_KV_ICECACHE, STRUCTURE, "in the tree"},
        {"nodes beyond the room", nodes_beyond_the_room, DCI_KV_ICECACHE, STRUCTURE, "a tree of"},
        {"a node of another", node_of_another, DCI_KV_ICECACHE, STRUCTURE, "node 1 of"},
        {"a c^2 that is no power of two", odd_c_squared, DCI_KV_ICECACHE, STRUCTURE, "c^2 is 3"},
        {"too low a c^2", low_c_squared, DCI_KV_ICECACHE, FULL, "c^2 is 0.000976562"},
        {"a tree built later than now", tree_built_later_than_now, DCI_KV_ICECACHE, STRUCTURE, "a tree of"},
        {"a page changed later than now", page_changed_later_than_now, DCI_KV_ICECACHE, STRUCTURE,
         "changed in version"},
        {"a page of another cell", page_of_another_cell, DCI_KV_ICECACHE, STRUCTURE, "is in cell 0, and is not"},
        {"a page that is not", page_that_is_not, DCI_KV_ICECACHE, STRUCTURE, "kv head 1: page"},
        {"pages in a ring", pages_in_a_ring, DCI_KV_ICECACHE, STRUCTURE, "or twice"},
        {"the tokens of a cell", tokens_of_a_cell, DCI_KV_ICECACHE, STRUCTURE, "kv head 1: "},
        {"the last page of a cell", last_page_of_a_cell, DCI_KV_ICECACHE, STRUCTURE, "ends with page"},
        {"a token twice in a page", member_twice, DCI_KV_ICECACHE, STRUCTURE, "and is not, or twice"},
        {"free pages of a tree", free_pages_of_a_tree, DCI_KV_ICECACHE, STRUCTURE, "are said to be"},
        {"a tree counted twice", tree_counted_twice, DCI_KV_ICECACHE, STRUCTURE, "a tree of sequence"},
        {"the lift of a node", lift_of_a_node, DCI_KV_ICECACHE, FULL, "node 1 is lifted by"},
        {"the reach of a cell", reach_of_a_cell, DCI_KV_ICECACHE, FULL, "cell 1 reaches"},
        {"the mean of a cell", mean_of_a_cell, DCI_KV_ICECACHE, FULL, "the mean of cell 0"},
        {"cells of other nodes", cells_rotated, DCI_KV_ICECACHE, FULL, "than the nearest"},
        {"a list with a token twice", list_with_a_token_twice, DCI_KV_FREEKV, STRUCTURE, "is on a list"},
        {"a list beyond its candidates", list_beyond_its_candidates, DCI_KV_FREEKV, STRUCTURE, "is on a list"},
        {"too long a list", list_too_long, DCI_KV_LOUISKV, STRUCTURE, "a list of"},
        {"a list of the future", list_of_the_future, DCI_KV_FREEKV, STRUCTURE, "at token 421"},
        {"an order of the future", order_of_the_future, DCI_KV_PRKV, STRUCTURE, "an order was made at plan"},
        {"NaN in a remembered query", nan_in_a_remembered_query, DCI_KV_PRKV, STRUCTURE, "that is remembered"},
        {"a turn behind the end", turn_behind_the_end, DCI_KV_LOUISKV, STRUCTURE, "queries turned at token 5000"},
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
        Suite *suite = suite_create("kv damage");
        TCase *damaged = tcase_create("damaged");
        tcase_set_timeout(damaged, 60);
        tcase_add_loop_test(damaged, every_damage_is_found_and_named, 0, COUNT(damages));
        suite_add_tcase(suite, damaged);
        return test_main(suite);
}
