/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * What kind MDCI adds to a file: slots may be empty, and the tree's shape. Points, means and parents follow from the rows and are
 * computed again, so a file cannot contradict itself about them.
 */
#include "core/internal.h"

#include <string.h>

#include "index/check/parts.h"
#include "index/persist/sections.h"
#include "index/tree/route.h"

/* No point is longer than c, and c^2 is at most 2^125: neither is their mean. */
#define MAX_MEAN2 0x1.01p125

/* Where fields are among the kind's own 128 bytes of the config. */
enum {
        AT_PROMOTION = 0,
        AT_SUBSEQ = 8,
        AT_PAGE_ROWS = 16,
        AT_TOP_NODES = 24,
        AT_CELL_SIMPLE = 32,
        AT_FIELD_OF_VIEW = 40,
        AT_N_LIVE = 48,
        AT_N_LEVELS = 56,
        AT_PAGES_EVER = 64,
        AT_VERSION = 72,
        AT_BUILT = 80,
        AT_BUILDS = 88,
        AT_LONE = 96,
        AT_END = 104
};

/* --- what is computed again ----------------------------------------------------------------------------------------------- */

#define FEW_FLOATS ((size_t)1 << 20) /* 4 MiB */
#define NUMBERS ((size_t)16)         /* of a node besides: id, parent, cell, lift and so on, as floats */
#define AT_ONCE ((size_t)32)         /* nodes, and coordinates, that products take together */

static size_t padded(size_t n)
{
        return (n + AT_ONCE - 1) / AT_ONCE * AT_ONCE;
}

/* A node is 20 bytes in a file, and a point and a mean in memory, also where many rows are equal and share pages, or were drawn for
 * many levels: what that may cost for a file of n_bytes. n_nodes: by level. */
static bool nodes_are_in_proportion(size_t dim, size_t n_levels, const size_t *n_nodes, size_t n_bytes)
{
        /* The points once more in bf16, as CPUs with tiles have them: what can be loaded is the same everywhere. */
        const size_t each = 2 * dim + NUMBERS, tiled = padded(dim + 1) / 2;
        size_t n = 0; /* floats: 16 levels of 2^31 nodes of 2^22 */
        for (size_t l = 0; l < n_levels; l++)
                n += n_nodes[l] * each + padded(n_nodes[l]) * tiled;
        /* 12 times the file, 3 floats for each of its bytes: a page of 4 rows in a chunk of 16 takes the other 4 times. */
        return n <= FEW_FLOATS || n / 3 <= n_bytes;
}

/* --- saving ------------------------------------------------------------------------------------------------------------- */

void dci_tree_write_config(const dci_index *index, const dci_search_params *defaults, unsigned char own[DCI_CONFIG_OWN])
{
        const dci_index_config *config = &index->config;
        const dci_tree *tree = index->tree;
        dci_store_f64(own + AT_PROMOTION, config->promotion_prob);
        dci_store_f64(own + AT_SUBSEQ, config->promotion_prob_subseq);
        dci_store_le64(own + AT_PAGE_ROWS, config->page_rows);
        dci_store_le64(own + AT_TOP_NODES, config->top_nodes);
        dci_store_le64(own + AT_CELL_SIMPLE, config->cell_simp_indices);
        dci_store_le64(own + AT_FIELD_OF_VIEW, defaults->field_of_view);
        dci_store_le64(own + AT_N_LIVE, tree->n_rows);
        dci_store_le64(own + AT_N_LEVELS, tree->n_levels);
        dci_store_le64(own + AT_PAGES_EVER, tree->n_pages_ever);
        dci_store_le64(own + AT_VERSION, tree->version);
        dci_store_le64(own + AT_BUILT, tree->built_version);
        dci_store_le64(own + AT_BUILDS, tree->n_builds);
        dci_store_le64(own + AT_LONE, (uint64_t)tree->lone_id);
}

static dci_status put_u64(const dci_sink *sink, uint64_t value)
{
        unsigned char bytes[8];
        dci_store_le64(bytes, value);
        return sink->write(sink->ctx, bytes, sizeof bytes);
}

/* Arrays that hold nothing may not be there. */
static dci_status put(const dci_sink *sink, const void *data, size_t n_bytes)
{
        return n_bytes == 0 ? DCI_OK : sink->write(sink->ctx, data, n_bytes);
}

static dci_status emit_mean(const void *ctx, const dci_sink *sink)
{
        const dci_tree *tree = ((const dci_saving *)ctx)->index->tree;
        return put(sink, tree->mean, (tree->dim + 1) * sizeof *tree->mean);
}

static dci_status emit_versions(const void *ctx, const dci_sink *sink)
{
        const dci_tree *tree = ((const dci_saving *)ctx)->index->tree;
        return put(sink, tree->page_version, tree->n_pages * sizeof *tree->page_version);
}

static dci_status emit_free(const void *ctx, const dci_sink *sink)
{
        const dci_tree *tree = ((const dci_saving *)ctx)->index->tree;
        return put(sink, tree->free_pages, tree->n_free * sizeof *tree->free_pages);
}

static dci_status emit_levels(const void *ctx, const dci_sink *sink)
{
        const dci_tree *tree = ((const dci_saving *)ctx)->index->tree;
        for (size_t l = 0; l < tree->n_levels; l++)
                DCI_TRY(put_u64(sink, tree->levels[l].n));
        return DCI_OK;
}

static dci_status emit_nodes(const void *ctx, const dci_sink *sink)
{
        const dci_tree *tree = ((const dci_saving *)ctx)->index->tree;
        for (size_t l = 0; l < tree->n_levels; l++)
                DCI_TRY(put(sink, tree->levels[l].ids, tree->levels[l].n * sizeof(int64_t)));
        return DCI_OK;
}

static dci_status emit_counts(const void *ctx, const dci_sink *sink)
{
        const dci_tree *tree = ((const dci_saving *)ctx)->index->tree;
        for (size_t l = 0; l < tree->n_levels; l++)
                for (size_t i = 0; i < tree->levels[l].n; i++)
                        DCI_TRY(put_u64(sink, l == 0 ? tree->levels[l].cells[i].n_rows : tree->levels[l].cells[i].n));
        return DCI_OK;
}

static dci_status emit_items(const void *ctx, const dci_sink *sink)
{
        const dci_tree *tree = ((const dci_saving *)ctx)->index->tree;
        for (size_t l = 0; l < tree->n_levels; l++)
                for (size_t i = 0; i < tree->levels[l].n; i++) {
                        const dci_cell *cell = &tree->levels[l].cells[i];
                        DCI_TRY(put(sink, cell->items, cell->n * sizeof *cell->items));
                }
        return DCI_OK;
}

void dci_tree_write(dci_saving *saving)
{
        const dci_tree *tree = saving->index->tree;
        size_t n_nodes = 0, n_items = 0;
        for (size_t l = 0; l < tree->n_levels; l++) {
                n_nodes += tree->levels[l].n;
                for (size_t i = 0; i < tree->levels[l].n; i++)
                        n_items += tree->levels[l].cells[i].n;
        }
        dci_saving_add(saving, "mean", (tree->dim + 1) * sizeof *tree->mean, emit_mean);
        dci_saving_add(saving, "versions", tree->n_pages * sizeof *tree->page_version, emit_versions);
        dci_saving_add(saving, "free", tree->n_free * sizeof *tree->free_pages, emit_free);
        dci_saving_add(saving, "levels", tree->n_levels * sizeof(uint64_t), emit_levels);
        dci_saving_add(saving, "nodes", n_nodes * sizeof(int64_t), emit_nodes);
        dci_saving_add(saving, "counts", n_nodes * sizeof(uint64_t), emit_counts);
        dci_saving_add(saving, "items", n_items * sizeof(int32_t), emit_items);
}

dci_status dci_tree_check_proportion(const dci_index *index, size_t n_bytes)
{
        const dci_tree *tree = index->tree;
        size_t n_nodes[DCI_MAX_LEVELS], total = 0;
        for (size_t l = 0; l < tree->n_levels; l++)
                total += n_nodes[l] = tree->levels[l].n;
        if (nodes_are_in_proportion(tree->dim, tree->n_levels, n_nodes, n_bytes))
                return DCI_OK;
        return dci_fail(DCI_ERR_LIMIT,
                        "%zu nodes of dim %zu in %zu levels are too many to make again from a file of %zu bytes: more "
                        "than 4 MiB and more than 12 times the file",
                        total, tree->dim, tree->n_levels, n_bytes);
}

/* --- loading ------------------------------------------------------------------------------------------------------------ */

static dci_status get_size(const unsigned char *at, const char *name, uint64_t most, size_t *out)
{
        const uint64_t value = dci_load_le64(at);
        if (value > most)
                return dci_fail(DCI_ERR_FORMAT, "%s is %llu in the file, at most %llu is possible", name,
                                (unsigned long long)value, (unsigned long long)most);
        *out = (size_t)value;
        return DCI_OK;
}

dci_status dci_tree_read_config(const unsigned char own[DCI_CONFIG_OWN], dci_index_config *config,
                                dci_search_params *defaults)
{
        DCI_TRY(get_size(own + AT_PAGE_ROWS, "page_rows", DCI_MAX_PAGE_ROWS, &config->page_rows));
        DCI_TRY(get_size(own + AT_TOP_NODES, "top_nodes", SIZE_MAX, &config->top_nodes));
        DCI_TRY(get_size(own + AT_CELL_SIMPLE, "cell_simp_indices", DCI_MAX_SIMPLE_INDICES,
                         &config->cell_simp_indices));
        DCI_TRY(get_size(own + AT_FIELD_OF_VIEW, "field_of_view", SIZE_MAX, &defaults->field_of_view));
        config->promotion_prob = dci_load_f64(own + AT_PROMOTION);
        config->promotion_prob_subseq = dci_load_f64(own + AT_SUBSEQ);
        return dci_check_unused(own, AT_END);
}

/* The tree's part of the config, and the lengths that follow: sums are checked against the sections before anything is taken. */
dci_status dci_tree_find(dci_loading *l)
{
        dci_loading_tree *t = &l->tree;
        const unsigned char *own = l->own;
        const size_t page_rows = l->config.page_rows;
        DCI_TRY(get_size(own + AT_N_LIVE, "the number of rows in the tree", l->n, &t->n_live));
        DCI_TRY(get_size(own + AT_N_LEVELS, "the number of levels", DCI_MAX_LEVELS, &t->n_levels));
        DCI_TRY(get_size(own + AT_PAGES_EVER, "the number of pages", DCI_MAX_ROWS / page_rows, &t->n_pages_ever));
        t->version = dci_load_le64(own + AT_VERSION);
        t->built_version = dci_load_le64(own + AT_BUILT);
        t->n_builds = dci_load_le64(own + AT_BUILDS);
        t->lone_id = (int64_t)dci_load_le64(own + AT_LONE);
        t->n_pages = l->n / page_rows;
        if (l->n % page_rows != 0 || t->n_pages > t->n_pages_ever || (t->n_levels == 0) != (t->n_live == 0))
                return dci_fail(
                        DCI_ERR_FORMAT,
                        "%zu rows in %zu slots, pages of %zu of which there were %zu, %zu levels: these contradict "
                        "each other",
                        t->n_live, l->n, page_rows, t->n_pages_ever, t->n_levels);
        if (t->version > DCI_MAX_VERSION || t->n_builds > t->version)
                return dci_fail(
                        DCI_ERR_FORMAT,
                        "the tree is of version %llu and was built %llu times, at most %llu and no more often are "
                        "possible",
                        (unsigned long long)t->version, (unsigned long long)t->n_builds,
                        (unsigned long long)DCI_MAX_VERSION);
        if (!dci_loading_has(l, "ids"))
                return dci_fail(DCI_ERR_FORMAT, "the file has no section 'ids', which this kind always has");
        if (l->shape.n_simple > 0)
                DCI_TRY(dci_loading_read(l, "proj", l->n, l->shape.n_simple * sizeof(float), &l->parts.projections));
        DCI_TRY(dci_loading_read(l, "mean", l->config.dim + 1, sizeof(float), &t->mean));
        DCI_TRY(dci_loading_read(l, "versions", t->n_pages, sizeof(uint64_t), &t->versions));
        DCI_TRY(dci_loading_read_any(l, "free", sizeof(int32_t), &t->free_pages, &t->n_free));
        DCI_TRY(dci_loading_read(l, "levels", t->n_levels, sizeof(uint64_t), &t->levels));
        for (size_t i = 0; i < t->n_levels; i++) {
                DCI_TRY(get_size((const unsigned char *)t->levels + 8 * i, "the number of nodes of a level", t->n_live,
                                 &t->n_nodes[i]));
                if (t->n_nodes[i] == 0)
                        return dci_fail(DCI_ERR_FORMAT, "level %zu of the file has no nodes", i);
                t->total_nodes += t->n_nodes[i]; /* 16 numbers below 2^31 */
        }
        if (!nodes_are_in_proportion(l->config.dim, t->n_levels, t->n_nodes, l->file->n_bytes))
                return dci_fail(DCI_ERR_FORMAT,
                                "%zu nodes of dim %zu in %zu levels are more than a file of %zu bytes may ask for",
                                t->total_nodes, l->config.dim, t->n_levels, l->file->n_bytes);
        DCI_TRY(dci_loading_read(l, "nodes", t->total_nodes, sizeof(int64_t), &t->nodes));
        DCI_TRY(dci_loading_read(l, "counts", t->total_nodes, sizeof(uint64_t), &t->counts));
        DCI_TRY(dci_loading_read_any(l, "items", sizeof(int32_t), &t->items, &t->n_items));
        return DCI_OK;
}

static int64_t i64_at(const void *section, size_t i)
{
        return (int64_t)dci_load_le64((const unsigned char *)section + 8 * i);
}

static int32_t i32_at(const void *section, size_t i)
{
        return (int32_t)dci_load_le32((const unsigned char *)section + 4 * i);
}

/* The mean, and page arrays: nobody owns a page yet. */
static dci_status load_pages(const dci_loading *l, dci_tree *tree)
{
        const dci_loading_tree *t = &l->tree;
        memcpy(tree->mean, t->mean, (tree->dim + 1) * sizeof *tree->mean);
        double norm2 = 0.0;
        for (size_t p = 0; p <= tree->dim; p++)
                norm2 += (double)tree->mean[p] * (double)tree->mean[p];
        if (!(norm2 <= MAX_MEAN2)) /* not NaN either */
                return dci_fail(DCI_ERR_FORMAT, "the squared norm of the tree's mean is %g, at most %g is possible",
                                norm2, MAX_MEAN2);
        if (!dci_tree_reserve_pages(tree, t->n_pages))
                return DCI_ERR_MEMORY;
        tree->n_pages = t->n_pages;
        for (size_t i = 0; i < t->n_pages; i++) {
                tree->page_node[i] = -1;
                tree->page_version[i] = (uint64_t)i64_at(t->versions, i);
        }
        return DCI_OK;
}

/* One node: a row that is there, drawn for its level, not twice. */
static dci_status load_node(const dci_loading *l, dci_tree *tree, size_t level, int64_t id, dci_idmap *seen,
                            float *point)
{
        const int32_t slot = dci_idmap_find(atomic_load(&l->index->map), id);
        const bool drawn = id >= 0 && (dci_tree_promotions(tree, id) > level || (level == 0 && id == tree->lone_id));
        if (slot < 0 || !drawn || !dci_idmap_insert(seen, id, 0))
                return dci_fail(DCI_ERR_FORMAT, "row %lld cannot be a node of level %zu, or not twice", (long long)id,
                                level);
        dci_tree_point_of_slot(tree, &l->view, slot, point);
        dci_level_append(tree, level, id, point);
        return DCI_OK;
}

/* Level by level: nodes, and what they have beneath them. Every page that holds rows and every node but those of the top has one
 * parent. */
static dci_status load_level(const dci_loading *l, dci_tree *tree, size_t level, size_t *at_node, size_t *at_item)
{
        const dci_loading_tree *t = &l->tree;
        dci_level *to = &tree->levels[level];
        const size_t n = t->n_nodes[level], n_below = level == 0 ? t->n_pages : tree->levels[level - 1].n;
        int32_t *owners = level == 0 ? tree->page_node : tree->levels[level - 1].parents;
        for (size_t i = 0; i < n; i++, (*at_node)++) {
                dci_cell *cell = &to->cells[i];
                const uint64_t count = (uint64_t)i64_at(t->counts, *at_node);
                const uint64_t items = level == 0 ? count / tree->page_rows + (count % tree->page_rows != 0) : count;
                if (count > t->n_live || items > t->n_items - *at_item)
                        return dci_fail(DCI_ERR_FORMAT, "node %zu of level %zu claims %llu things beneath it", i, level,
                                        (unsigned long long)count);
                if (!dci_cell_reserve(tree, cell, (size_t)items))
                        return DCI_ERR_MEMORY;
                cell->n_rows = level == 0 ? (uint32_t)count : 0;
                for (; cell->n < items; (*at_item)++) {
                        const int32_t item = i32_at(t->items, *at_item);
                        if (item < 0 || (size_t)item >= n_below || owners[item] != -1)
                                return dci_fail(DCI_ERR_FORMAT,
                                                "item %d beneath node %zu of level %zu is not there, or twice",
                                                (int)item, i, level);
                        owners[item] = (int32_t)i;
                        cell->items[cell->n++] = item;
                        if (level > 0) /* no more than there are slots, since nothing comes twice */
                                cell->n_rows += tree->levels[level - 1].cells[item].n_rows;
                }
        }
        return DCI_OK;
}

static dci_status load_levels(const dci_loading *l, dci_tree *tree, float *point, size_t *out_items)
{
        const dci_loading_tree *t = &l->tree;
        size_t at_node = 0, at_item = 0, at_id = 0;
        dci_status status = DCI_OK;
        for (size_t level = 0; level < t->n_levels && status == DCI_OK; level++) {
                if (!dci_level_reserve(tree, &tree->levels[level], t->n_nodes[level]))
                        return DCI_ERR_MEMORY;
                dci_idmap *seen = dci_idmap_create(tree->context, t->n_nodes[level], l->next_id);
                if (seen == NULL)
                        return DCI_ERR_MEMORY;
                for (size_t i = 0; i < t->n_nodes[level] && status == DCI_OK; i++)
                        status = load_node(l, tree, level, i64_at(t->nodes, at_id++), seen, point);
                dci_idmap_destroy(tree->context, seen);
                if (status == DCI_OK)
                        status = load_level(l, tree, level, &at_node, &at_item);
                tree->n_levels = level + 1;
        }
        *out_items = at_item;
        return status;
}

/* Pages that no cell has, each once. */
static dci_status load_free(const dci_loading *l, dci_tree *tree)
{
        const dci_loading_tree *t = &l->tree;
        for (size_t i = 0; i < t->n_free; i++) {
                const int32_t page = i32_at(t->free_pages, i);
                if (page < 0 || (size_t)page >= t->n_pages || tree->page_node[page] != -1)
                        return dci_fail(DCI_ERR_FORMAT, "page %d is said to be free and is not, or twice", (int)page);
                tree->page_node[page] = -2; /* seen */
                tree->free_pages[tree->n_free++] = page;
        }
        for (size_t i = 0; i < t->n_free; i++)
                tree->page_node[tree->free_pages[i]] = -1;
        return DCI_OK;
}

dci_status dci_tree_accept(dci_loading *l)
{
        const dci_loading_tree *t = &l->tree;
        dci_index *index = l->index;
        dci_tree *tree = index->tree;
        size_t n_items = 0;
        float *point = dci_alloc(index->context, tree->dim + 1, sizeof *point);
        if (point == NULL)
                return DCI_ERR_MEMORY;
        tree->c_squared = l->c_squared;
        tree->lone_id = t->lone_id;
        dci_status status = l->shape.n_simple > 0 ? dci_check_projections(&l->view, true, "file") : DCI_OK;
        if (status == DCI_OK)
                status = load_pages(l, tree);
        if (status == DCI_OK)
                status = load_levels(l, tree, point, &n_items);
        dci_free(index->context, point, tree->dim + 1, sizeof *point);
        DCI_TRY(status);
        if (n_items != t->n_items)
                return dci_fail(DCI_ERR_FORMAT, "%zu items lie beneath the nodes, the file has %zu", n_items,
                                t->n_items);
        DCI_TRY(load_free(l, tree));
        tree->n_rows = t->n_live;
        tree->n_pages_ever = t->n_pages_ever;
        tree->version = t->version;
        tree->built_version = t->built_version;
        tree->n_builds = t->n_builds;
        atomic_store(&index->n_live, t->n_live);
        DCI_TRY(dci_check_tree(index, &l->view));
        return t->n_live > 0 ? dci_tree_route_all(tree, &index->rows) : DCI_OK;
}
