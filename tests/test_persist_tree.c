/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Files of kind MDCI whose checksums are right and whose trees are not. */
#include <string.h>

#include "core/file.h"
#include "index/persist/sections.h"
#include "tests/persist_fixture.h"
#include "tests/persist_seal.h"
#include "tests/scratch.h"
#include "tests/tree_check.h"

static dci_context *context;
static persist_world world;

static void setup(void)
{
        scratch_open();
        context = test_context(1);
        world = persist_make(context, persist_case_of(PERSIST_FLAT_CASES + 1), LIFE_REMOVED); /* IP, f32, owned */
        for (int64_t id = 1; world.index->tree->n_free == 0;
             id += 3) /* one by one, so that the tree is not built again */
                ck_ok(dci_index_remove(world.index, 1, &id));
        ck_assert_uint_ge(world.index->tree->n_levels, 2);
}

static void teardown(void)
{
        persist_destroy(&world);
        dci_context_destroy(context);
        scratch_close();
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
        {"config", 200, 8, UINT64_MAX, DCI_ERR_FORMAT, "the tree is of version 18446744073709551615"},
        {"config", 200, 8, UINT64_C(1) << 63, DCI_ERR_FORMAT, "at most 9223372036854775807"},
        {"config", 216, 8, UINT64_MAX, DCI_ERR_FORMAT, "was built 18446744073709551615 times"},
        {"config", 208, 8, UINT64_MAX, DCI_ERR_FORMAT, "the tree was built in version 18446744073709551615"},
        {"config", 224, 8, 4, DCI_ERR_FORMAT, "row 4 is the only node for want of another"},
        {"config", 224, 8, UINT64_MAX - 1, DCI_ERR_FORMAT, "row -2 is said to be the only node"},
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

/* --- the only node ----------------------------------------------------------------------------------------------------------- */

enum { FEW = 12, FEW_DIM = 4 };

static dci_index_config few_config(void)
{
        dci_index_config config = index_config(FEW_DIM, DCI_METRIC_L2, DCI_F32);
        config.kind = DCI_KIND_MDCI;
        return config;
}

/* FEW rows, of which this many are drawn for the lowest level. */
static dci_index *few_rows(size_t n_drawn)
{
        const dci_index_config config = few_config();
        dci_index *index = NULL;
        int64_t ids[FEW];
        float *rows = test_normal(FEW, FEW_DIM, 1);
        ck_ok(dci_index_create(context, &config, &index));
        int64_t id = 0;
        for (size_t n = 0; n < FEW; id++)
                if ((dci_tree_promotions(index->tree, id) > 0) == (n < n_drawn))
                        ids[n++] = id;
        ck_ok(dci_index_add(index, FEW, rows, FEW_DIM, ids, NULL));
        ck_assert_uint_eq(index->tree->levels[0].n, 1);
        free(rows);
        return index;
}

/* Loops over whether chance has drawn the only node. */
START_TEST(an_only_node_is_the_one_that_the_tree_has)
{
        dci_index *index = few_rows((size_t)_i), *loaded = NULL;
        const int64_t right = index->tree->lone_id;
        persist_bytes bytes = persist_save(index);
        unsigned char *config = persist_section(&bytes, "config", NULL);
        ck_assert((right >= 0) == (_i == 0));
        for (int64_t id = -2; id < index->next_id + 100; id++) {
                if (id == right)
                        continue;
                dci_store_le64(config + 224, (uint64_t)id);
                persist_reseal(&bytes);
                ck_refused(dci_index_load_memory(context, bytes.data, bytes.n, &loaded), DCI_ERR_FORMAT, "");
                ck_assert_ptr_null(loaded);
        }
        persist_free(&bytes);
        dci_index_destroy(index);
}
END_TEST

/* --- versions ---------------------------------------------------------------------------------------------------------------- */

/* From a version that only a file can claim: changes until one is refused, and what there is then loads at any time. */
START_TEST(what_loads_can_be_saved_and_loaded_after_any_change)
{
        dci_index *index = few_rows(1), *loaded = NULL;
        const float row[FEW_DIM] = {1, 2, 3, 4};
        persist_bytes bytes = persist_save(index);
        dci_store_le64(persist_section(&bytes, "config", NULL) + 200, DCI_MAX_VERSION - 6);
        persist_reseal(&bytes);
        ck_ok(dci_index_load_memory(context, bytes.data, bytes.n, &loaded));
        size_t n_changes = 0;
        for (dci_status status = DCI_OK; status == DCI_OK; n_changes += status == DCI_OK) {
                const int64_t id = loaded->next_id - 1;
                status = n_changes % 2 == 0 ? dci_index_add(loaded, 1, row, FEW_DIM, NULL, NULL)
                                            : dci_index_remove(loaded, 1, &id);
                if (status != DCI_OK)
                        ck_refused(status, DCI_ERR_LIMIT, "which leaves none for another change");
                ck_assert_uint_le(n_changes, 6);
                tree_check(loaded);
                persist_bytes again = persist_save(loaded);
                dci_index_destroy(persist_load(context, &again));
                persist_free(&again);
        }
        ck_assert_uint_ge(n_changes, 2);
        const int64_t id = loaded->next_id - 1;
        ck_refused(dci_index_remove(loaded, 1, &id), DCI_ERR_LIMIT, "which leaves none for another change");
        dci_index_destroy(loaded);
        dci_index_destroy(index);
        persist_free(&bytes);
}
END_TEST

/* --- codes ------------------------------------------------------------------------------------------------------------------- */

/* Loops over kinds, widths, and whether codes were learned. Numbers that only a file can claim make codes of rows to come overflow: such a
 * row is stored and found all the same, and the index is one that can be saved. */
START_TEST(rows_beside_centres_and_transforms_of_a_file_are_stored)
{
        static const int32_t widths[] = {1, 2, 3, 4, 8};
        dci_index_config config = few_config();
        dci_index *index = NULL, *loaded = NULL;
        float *rows = test_normal(FEW + 1, FEW_DIM, 1), *last = rows + FEW * FEW_DIM, far;
        dci_search_params sure;
        int64_t id;
        config.kind = 1 + (dci_index_kind)(_i % 3);
        config.sketch_bits = widths[_i / 3 % 5];
        config.page_rows = 16;
        ck_ok(dci_index_create(context, &config, &index));
        ck_ok(dci_index_add(index, FEW, rows, FEW_DIM, NULL, NULL));
        if (_i >= 15)
                ck_ok(dci_index_fit(index, FEW, rows, FEW_DIM));
        persist_bytes bytes = persist_save(index);
        size_t n_bytes;
        unsigned char *section = persist_section(&bytes, _i >= 15 ? "learned" : "centres", &n_bytes);
        far = 3e38f;
        for (size_t at = 0; at < n_bytes; at += sizeof far)
                memcpy(section + at, &far, sizeof far);
        persist_reseal(&bytes);
        ck_ok(dci_index_load_memory(context, bytes.data, bytes.n, &loaded));
        ck_ok(dci_index_add(loaded, 1, last, FEW_DIM, NULL, NULL));
        ck_ok(dci_index_check(loaded, DCI_CHECK_STRUCTURE, NULL));
        ck_ok(dci_search_params_init(&sure, sizeof sure));
        sure.guarantee = 1.0;
        ck_ok(dci_index_search(loaded, 1, last, FEW_DIM, 1, &sure, &id, NULL));
        persist_bytes again = persist_save(loaded);
        dci_index_destroy(persist_load(context, &again));
        persist_free(&again);
        persist_free(&bytes);
        dci_index_destroy(loaded);
        dci_index_destroy(index);
        free(rows);
}
END_TEST

/* --- memory ------------------------------------------------------------------------------------------------------------------ */

#define STATED(n_bytes) (16 * (n_bytes) + ((size_t)5 << 20))

typedef struct pile {
        unsigned char *data;
        size_t n;
} pile;

static dci_status pile_up(void *ctx, const void *data, size_t n_bytes)
{
        pile *p = ctx;
        p->data = realloc(p->data, p->n + n_bytes);
        memcpy(p->data + p->n, data, n_bytes);
        p->n += n_bytes;
        return DCI_OK;
}

/* A file of rows of 8 elements with longer ones in their place, all of them ones: the nodes cost what they like. */
static pile widened(const persist_bytes *bytes, size_t dim)
{
        pile out = {NULL, 0};
        const dci_sink sink = {&out, pile_up};
        dci_file file;
        ck_ok(dci_file_parse(bytes->data, bytes->n, DCI_INDEX_FILE_KIND, &file));
        unsigned char config[DCI_CONFIG_BYTES];
        float *mean = calloc(dim + 1, sizeof *mean);
        uint16_t *rows = NULL;
        for (size_t i = 0; i < file.n_sections; i++) {
                dci_section *s = &file.sections[i];
                if (strncmp(s->name, "config", sizeof s->name) == 0) {
                        memcpy(config, s->data, sizeof config);
                        dci_store_le64(config, dim);
                        s->data = config;
                } else if (strncmp(s->name, "rows", sizeof s->name) == 0) {
                        s->n_bytes = s->n_bytes / 8 * dim;
                        rows = malloc(s->n_bytes);
                        for (size_t p = 0; p < s->n_bytes / sizeof *rows; p++)
                                rows[p] = 0x3c00;
                        s->data = rows;
                } else if (strncmp(s->name, "mean", sizeof s->name) == 0) {
                        s->data = mean;
                        s->n_bytes = (dim + 1) * sizeof *mean;
                }
        }
        ck_ok(dci_file_write(&sink, DCI_INDEX_FILE_KIND, DCI_INDEX_FILE_VERSION, file.n_sections, file.sections));
        test_free(rows, mean);
        return out;
}

/* Equal rows, each of them drawn for 16 levels. */
static dci_index *much_drawn(size_t n, size_t dim)
{
        dci_index_config config = index_config(dim, DCI_METRIC_L2, DCI_F16);
        dci_index *index = NULL;
        int64_t *ids = malloc(n * sizeof *ids);
        uint16_t *rows = malloc(n * dim * sizeof *rows);
        config.kind = DCI_KIND_MDCI;
        config.promotion_prob = config.promotion_prob_subseq = 0.5;
        config.top_nodes = 1;
        config.page_rows = 4;
        ck_ok(dci_index_create(context, &config, &index));
        for (size_t p = 0; p < n * dim; p++)
                rows[p] = 0x3c00;
        int64_t id = 0;
        for (size_t i = 0; i < n; id++)
                if (dci_tree_promotions(index->tree, id) == DCI_MAX_LEVELS)
                        ids[i++] = id;
        ck_ok(dci_index_add(index, n, rows, dim, ids, NULL));
        ck_assert(index->tree->n_levels == DCI_MAX_LEVELS && index->tree->levels[DCI_MAX_LEVELS - 1].n == n);
        test_free(ids, rows);
        return index;
}

/* From memory and mapped. */
START_TEST(nodes_out_of_proportion_are_refused_on_both_sides)
{
        enum { N = 64 };
        static const size_t dims[] = {8, 64, 300, 1000, 8192};
        dci_index *index = much_drawn(N, 8), *loaded = NULL;
        persist_bytes bytes = persist_save(index);
        size_t n_bytes;
        for (size_t i = 0; i < COUNT(dims); i++) {
                persist_peak p;
                dci_context *counted = persist_counted(&p);
                pile file = widened(&bytes, dims[i]);
                scratch_put("wide", file.data, file.n);
                for (int mapped = 0; mapped < 2; mapped++) {
                        const dci_status status = mapped == 1
                                                          ? dci_index_map(counted, scratch_path("wide"), &loaded)
                                                          : dci_index_load_memory(counted, file.data, file.n, &loaded);
                        if (dims[i] > 300)
                                ck_refused(status, DCI_ERR_FORMAT, "may ask for");
                        else
                                ck_ok(status);
                        ck_assert_uint_le(p.most, STATED(file.n));
                        dci_index_destroy(loaded);
                }
                dci_context_destroy(counted);
                free(file.data);
        }
        persist_free(&bytes);
        dci_index_destroy(index);
        index = much_drawn(N, 1000);
        ck_refused(dci_index_save_memory(index, 0, NULL, &n_bytes), DCI_ERR_LIMIT,
                   "1024 nodes of dim 1000 in 16 levels");
        dci_index_destroy(index);
}
END_TEST

/* The most nodes that a config asks for, of rows that are equal, and of rows that are not. */
START_TEST(nodes_that_chance_drew_are_saved_and_loaded_in_the_memory_stated)
{
        for (size_t dim = 1; dim <= 4096; dim *= 4) {
                for (size_t n = 3; n <= 3000 && n * dim <= 1500000; n *= 10) {
                        for (int equal = 0; equal < 2; equal++) {
                                dci_index_config config = index_config(dim, DCI_METRIC_L2, DCI_F16);
                                persist_peak p;
                                dci_context *counted = persist_counted(&p);
                                dci_index *index = NULL, *loaded = NULL;
                                float *rows = test_normal(n, dim, n);
                                for (size_t i = 0; equal == 1 && i < n * dim; i++)
                                        rows[i] = 1.0f;
                                config.kind = DCI_KIND_MDCI;
                                config.add_dtype = DCI_F32;
                                config.promotion_prob = config.promotion_prob_subseq = 0.5;
                                config.top_nodes = 1;
                                config.page_rows = 4;
                                ck_ok(dci_index_create(context, &config, &index));
                                ck_ok(dci_index_add(index, n, rows, dim, NULL, NULL));
                                persist_bytes bytes = persist_save(index);
                                ck_ok(dci_index_load_memory(counted, bytes.data, bytes.n, &loaded));
                                ck_assert_uint_le(p.most, STATED(bytes.n));
                                dci_index_destroy(loaded);
                                dci_index_destroy(index);
                                dci_context_destroy(counted);
                                persist_free(&bytes);
                                free(rows);
                        }
                }
        }
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("persist tree");
        TCase *tcase = test_case_with(suite, "files", 60, setup, teardown);
        tcase_add_loop_test(tcase, trees_that_contradict_themselves_are_refused, 0, COUNT(edits));
        tcase_add_test(tcase, things_that_come_twice_are_refused);
        tcase_add_test(tcase, a_loaded_tree_is_whole_and_has_the_same_shape);
        tcase_add_loop_test(tcase, an_only_node_is_the_one_that_the_tree_has, 0, 2);
        tcase_add_test(tcase, what_loads_can_be_saved_and_loaded_after_any_change);
        tcase_add_loop_test(tcase, rows_beside_centres_and_transforms_of_a_file_are_stored, 0, 30);
        tcase_add_test(tcase, nodes_out_of_proportion_are_refused_on_both_sides);
        tcase_add_test(tcase, nodes_that_chance_drew_are_saved_and_loaded_in_the_memory_stated);
        return test_main(suite);
}
