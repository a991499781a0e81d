/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Files of kind MDCI whose checksums are right and whose trees are not. */
#include <string.h>

#include "tests/persist_fixture.h"
#include "tests/persist_seal.h"
#include "tests/tree_check.h"

static dci_context *context;
static persist_world world;

static void setup(void)
{
        context = test_context(1);
        world = persist_make(context, persist_case_of(PERSIST_FLAT_CASES + 1), LIFE_REMOVED); /* IP, f32, owned */
        for (int64_t id = 1; world.index->tree->n_free == 0;
             id += 3) /* one by one, so that the tree is not built anew */
                ck_ok(dci_index_remove(world.index, 1, &id));
        ck_assert_uint_ge(world.index->tree->n_levels, 2);
}

static void teardown(void)
{
        persist_destroy(&world);
        dci_context_destroy(context);
}

#define F32_NAN UINT64_C(0x7fc00000)
#define F32_1E30 UINT64_C(0x7149f2ca)
#define F64_1 UINT64_C(0x3ff0000000000000)
#define F64_NAN UINT64_C(0x7ff8000000000000)

static const struct {
        const char *section;
        size_t offset, width;
        uint64_t value;
        dci_status status;
        const char *part;
} edits[] = {
        {"config", 128, 8, F64_1, DCI_ERR_FORMAT, "promotion_prob is 1"},
        {"config", 136, 8, F64_NAN, DCI_ERR_FORMAT, "promotion_prob_subseq is nan"},
        {"config", 144, 8, 0, DCI_ERR_FORMAT, "page_rows is 0"},
        {"config", 144, 8, 12, DCI_ERR_FORMAT, "page_rows is 12"},
        {"config", 144, 8, UINT64_MAX, DCI_ERR_FORMAT, "page_rows is 18446744073709551615"},
        {"config", 144, 8, 16, DCI_ERR_FORMAT, ""},
        {"config", 152, 8, 0, DCI_ERR_FORMAT, "top_nodes is 0"},
        {"config", 160, 8, 5000, DCI_ERR_FORMAT, "cell_simp_indices is 5000"},
        {"config", 160, 8, 1, DCI_ERR_FORMAT, "'proj'"},
        {"config", 176, 8, UINT64_MAX, DCI_ERR_FORMAT, "the number of rows in the tree is 18446744073709551615"},
        {"config", 176, 8, 1, DCI_ERR_FORMAT, ""},
        {"config", 184, 8, 17, DCI_ERR_FORMAT, "the number of levels is 17 in the file, at most 16"},
        {"config", 184, 8, 1, DCI_ERR_FORMAT, "section 'levels'"},
        {"config", 184, 8, 0, DCI_ERR_FORMAT, "contradict"},
        {"config", 192, 8, 0, DCI_ERR_FORMAT, "contradict"},
        {"config", 192, 8, UINT64_C(1) << 40, DCI_ERR_FORMAT, "the number of pages is"},
        {"config", 208, 8, UINT64_MAX, DCI_ERR_FORMAT, "the tree was built in version 18446744073709551615"},
        {"config", 224, 8, 4, DCI_ERR_FORMAT, "row 4 is the only node for want of another"},
        {"config", 232, 1, 1, DCI_ERR_UNSUPPORTED, "byte 232"},
        {"config", 8, 8, 8, DCI_ERR_FORMAT, ""},
        {"mean", 0, 4, F32_NAN, DCI_ERR_FORMAT, "mean is nan"},
        {"mean", 4, 4, F32_1E30, DCI_ERR_FORMAT, "the squared norm of the tree's mean"},
        {"versions", 8, 8, UINT64_MAX, DCI_ERR_FORMAT, "page 1 changed in version 18446744073709551615"},
        {"levels", 0, 8, 0, DCI_ERR_FORMAT, "level 0 of the file has no nodes"},
        {"levels", 8, 8, 0, DCI_ERR_FORMAT, "level 1 of the file has no nodes"},
        {"levels", 0, 8, UINT64_MAX, DCI_ERR_FORMAT, "the number of nodes of a level"},
        {"levels", 0, 8, 1, DCI_ERR_FORMAT, "section 'nodes'"},
        {"nodes", 0, 8, UINT64_MAX, DCI_ERR_FORMAT, "cannot be a node of level 0"},
        {"nodes", 0, 8, UINT64_C(1) << 62, DCI_ERR_FORMAT, "cannot be a node of level 0"},
        {"counts", 0, 8, UINT64_MAX, DCI_ERR_FORMAT, "node 0 of level 0 claims"},
        {"counts", 0, 8, 0, DCI_ERR_FORMAT, ""},
        {"items", 0, 4, UINT32_MAX, DCI_ERR_FORMAT, "item -1 beneath node 0 of level 0"},
        {"items", 0, 4, 1 << 30, DCI_ERR_FORMAT, "item 1073741824 beneath node 0 of level 0"},
        {"free", 0, 4, UINT32_MAX, DCI_ERR_FORMAT, "page -1 is said to be free"},
        {"free", 0, 4, 1 << 20, DCI_ERR_FORMAT, "page 1048576 is said to be free"},
        {"ids", 8, 8, UINT64_MAX, DCI_ERR_FORMAT, "slot 1 is empty, which its cell of"},
        {"ids", 0, 8, UINT64_MAX - 1, DCI_ERR_FORMAT, "row 0 of the file has id -2"},
};

/* Loops over the table. */
START_TEST(trees_that_contradict_themselves_are_refused)
{
        persist_bytes bytes = persist_save(world.index);
        size_t n_section;
        dci_index *index = NULL;
        unsigned char *section = persist_section(&bytes, edits[_i].section, &n_section);
        ck_assert(section != NULL && edits[_i].offset + edits[_i].width <= n_section);
        for (size_t i = 0; i < edits[_i].width; i++)
                section[edits[_i].offset + i] = (unsigned char)(edits[_i].value >> 8 * i);
        persist_reseal(&bytes);
        ck_refused(dci_index_load_memory(context, bytes.data, bytes.n, &index), edits[_i].status, edits[_i].part);
        ck_assert_ptr_null(index);
        persist_free(&bytes);
}
END_TEST

/* A copy of one entry over another: everything is possible by itself. */
START_TEST(things_that_come_twice_are_refused)
{
        static const struct {
                const char *section;
                size_t width;
        } twice[] = {{"ids", 8}, {"nodes", 8}, {"items", 4}};
        for (size_t i = 0; i < sizeof twice / sizeof twice[0]; i++) {
                persist_bytes bytes = persist_save(world.index);
                size_t n_section;
                dci_index *index = NULL;
                unsigned char *section = persist_section(&bytes, twice[i].section, &n_section);
                ck_assert_uint_ge(n_section, 2 * twice[i].width);
                memcpy(section + twice[i].width, section, twice[i].width);
                persist_reseal(&bytes);
                ck_refused(dci_index_load_memory(context, bytes.data, bytes.n, &index), DCI_ERR_FORMAT, "");
                ck_assert_ptr_null(index);
                persist_free(&bytes);
        }
}
END_TEST

START_TEST(a_loaded_tree_is_whole_and_has_the_same_shape)
{
        persist_bytes bytes = persist_save(world.index);
        dci_index *loaded = persist_load(context, &bytes);
        dci_tree_stats a, b;
        memset(&a, 0, sizeof a);
        memset(&b, 0, sizeof b);
        ck_ok(dci_tree_stats_init(&a, sizeof a));
        ck_ok(dci_tree_stats_init(&b, sizeof b));
        tree_check(loaded);
        ck_ok(dci_index_tree_stats(world.index, &a));
        ck_ok(dci_index_tree_stats(loaded, &b));
        ck_assert(memcmp(&a, &b, sizeof a) == 0);
        int32_t changed[512];
        size_t n[2];
        uint64_t version[2];
        ck_ok(dci_index_changes(world.index, a.version - 1, 512, changed, &n[0], &version[0]));
        ck_ok(dci_index_changes(loaded, a.version - 1, 512, changed, &n[1], &version[1]));
        ck_assert(n[0] == n[1] && version[0] == version[1]);
        dci_index_destroy(loaded);
        persist_free(&bytes);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("persist tree");
        TCase *tcase = tcase_create("files");
        tcase_add_checked_fixture(tcase, setup, teardown);
        tcase_add_loop_test(tcase, trees_that_contradict_themselves_are_refused, 0, sizeof edits / sizeof edits[0]);
        tcase_add_test(tcase, things_that_come_twice_are_refused);
        tcase_add_test(tcase, a_loaded_tree_is_whole_and_has_the_same_shape);
        suite_add_tcase(suite, tcase);
        return test_main(suite);
}
