/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/fuzz_life.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "dci/check.h"
#include "simd/kernels.h"
#include "tests/naive.h"
#include "tests/tree_check.h"

enum { MAX_DIM = 24, MAX_BATCH = 90, MAX_ROWS = 700, FEW_ROWS = 250 /* bytes: many short lives */, MAX_K = 40 };

typedef struct life {
        fuzz_bytes *from;
        dci_context *context;
        dci_index *index;
        dci_index_config config;
        naive model;
        float clusters[6 * MAX_DIM];
        int64_t next_id;  /* ids from here on were never used */
        uint64_t version; /* of the copy of pages */
        int64_t *pages;   /* [page][page_rows] */
        size_t pages_capacity;
} life;

static size_t below(life *l, size_t n)
{
        return (size_t)fuzz_below(l->from, n);
}

/* Rows in clusters, some of them equal to each other, some zero where that is allowed. */
static void draw_row(life *l, float *out)
{
        const float *centre = l->clusters + below(l, 6) * MAX_DIM;
        const double spread = below(l, 4) == 0 ? 0.0 : 0.3;
        fuzz_stir(l->from);
        for (size_t p = 0; p < l->config.dim; p++)
                out[p] = (float)((double)centre[p] + spread * fuzz_normal(l->from));
        if (l->config.zero_rows == DCI_ZERO_KEEP && below(l, 20) == 0)
                memset(out, 0, l->config.dim * sizeof *out);
}

static void begin(life *l, fuzz_bytes *from)
{
        static const size_t top_nodes[] = {1, 3, 10, 4096};
        static const int32_t bits[] = {0, 0, 0, 1, 2, 3, 4, 8};
        memset(l, 0, sizeof *l);
        l->from = from;
        l->context = fuzz_context(from);
        ck_ok(dci_index_config_init(&l->config, sizeof l->config));
        l->config.dim = 1 + below(l, MAX_DIM);
        l->config.kind = below(l, 4) == 0 ? 1 + (dci_index_kind)below(l, 2) : DCI_KIND_MDCI;
        l->config.metric = 1 + (dci_metric)below(l, 3);
        l->config.dtype = 1 + (dci_dtype)below(l, 3);
        l->config.add_dtype = l->config.query_dtype = DCI_F32;
        l->config.zero_rows = l->config.metric == DCI_METRIC_COSINE ? DCI_ZERO_KEEP : DCI_ZERO_REFUSE;
        l->config.seed = fuzz_next(l->from);
        l->config.promotion_prob = 0.02 + 0.3 * fuzz_uniform(l->from);
        l->config.promotion_prob_subseq = 0.1 + 0.3 * fuzz_uniform(l->from);
        l->config.page_rows = (size_t)4 << below(l, 3);
        l->config.top_nodes = top_nodes[below(l, 4)];
        l->config.cell_simp_indices = below(l, 3);
        l->config.sketch_bits = bits[below(l, sizeof bits / sizeof bits[0])];
        if (l->config.sketch_bits != 0 && l->config.page_rows < 16)
                l->config.page_rows = 16;
        fuzz_stir(from);
        for (size_t i = 0; i < 6 * MAX_DIM; i++)
                l->clusters[i] = (float)fuzz_normal(l->from);
        ck_ok(dci_index_create(l->context, &l->config, &l->index));
        naive_init(&l->model, l->config.dim, l->config.metric);
}

static void end(life *l)
{
        dci_index_destroy(l->index);
        dci_context_destroy(l->context);
        naive_free(&l->model);
        free(l->pages);
}

static void add(life *l)
{
        float rows[MAX_BATCH * MAX_DIM], stored[MAX_DIM];
        int64_t ids[MAX_BATCH] = {0};
        size_t n = 1 + below(l, below(l, 3) == 0 ? MAX_BATCH : 8);
        const size_t dim = l->config.dim;
        const bool own = below(l, 3) == 0; /* the index gives the ids, on from the largest ever used */
        if (l->model.n + n > (l->from->seeded ? MAX_ROWS : FEW_ROWS))
                return;
        for (size_t i = 0; i < n; i++) {
                draw_row(l, rows + i * dim);
                l->next_id += 1 + (!own && below(l, 10) == 0 ? (int64_t)below(l, 1000) : 0);
                ids[i] = l->next_id - 1;
        }
        if (l->model.n > 0 && below(l, 8) == 0) { /* refused: an id that is there, and nothing changes */
                const int64_t kept = ids[n - 1];
                ids[n - 1] = l->model.ids[below(l, l->model.n)];
                ck_refused(dci_index_add(l->index, n, rows, dim, ids, NULL), DCI_ERR_EXISTS, "in the index already");
                ids[n - 1] = kept;
        }
        ck_ok(dci_index_add(l->index, n, rows, dim, own ? NULL : ids, NULL));
        for (size_t i = 0; i < n; i++) {
                naive_round(l->config.dtype, dim, rows + i * dim, stored);
                naive_add(&l->model, stored, ids[i]);
        }
}

static void drop(life *l)
{
        int64_t ids[MAX_BATCH];
        size_t n = 1 + below(l, below(l, 3) == 0 ? MAX_BATCH : 8);
        n = n < l->model.n ? n : l->model.n;
        if (n == 0) {
                const int64_t none = 5;
                ck_refused(dci_index_remove(l->index, 1, &none), DCI_ERR_NOT_FOUND, "is not in the index");
                return;
        }
        for (size_t i = 0; i < n; i++) {
                ids[i] = l->model.ids[below(l, l->model.n)];
                naive_remove(&l->model, ids[i]);
        }
        if (n < MAX_BATCH) {
                ids[n] = ids[0];
                ck_refused(dci_index_remove(l->index, n + 1, ids), DCI_ERR_EXISTS, "twice");
        }
        ck_ok(dci_index_remove(l->index, n, ids));
        ck_refused(dci_index_remove(l->index, 1, ids), DCI_ERR_NOT_FOUND, "is not in the index");
}

/* Rows that are there and others, in one batch; an id named twice, or a row that cannot be, changes nothing. */
static void upsert(life *l)
{
        float rows[MAX_BATCH * MAX_DIM], stored[MAX_DIM];
        int64_t ids[MAX_BATCH] = {0};
        size_t n = 1 + below(l, below(l, 3) == 0 ? MAX_BATCH : 8), count = 0;
        const size_t dim = l->config.dim;
        for (size_t i = 0; i < n; i++) {
                const bool new = l->model.n == 0 || below(l, 3) == 0;
                const int64_t id = new ? l->next_id + (int64_t)below(l, 3) : l->model.ids[below(l, l->model.n)];
                bool twice = false;
                for (size_t j = 0; j < count; j++)
                        twice = twice || ids[j] == id;
                if (twice || (new && l->model.n + n > (l->from->seeded ? MAX_ROWS : FEW_ROWS)))
                        continue;
                l->next_id = id >= l->next_id ? id + 1 : l->next_id;
                ids[count++] = id;
        }
        n = count;
        for (size_t i = 0; i < n; i++)
                draw_row(l, rows + i * dim);
        if (n > 1 && below(l, 4) == 0) {
                const int64_t kept = ids[n - 1];
                const float number = rows[(n - 1) * dim];
                ids[n - 1] = ids[0];
                ck_refused(dci_index_upsert(l->index, n, rows, dim, ids, NULL), DCI_ERR_EXISTS, "comes twice");
                ids[n - 1] = kept;
                rows[(n - 1) * dim] = NAN;
                ck_refused(dci_index_upsert(l->index, n, rows, dim, ids, NULL), DCI_ERR_NUMBER, "row");
                rows[(n - 1) * dim] = number;
                ck_ok(dci_index_check(l->index, DCI_CHECK_FULL, NULL));
        }
        const uint64_t version = l->index->tree == NULL ? 0 : l->index->tree->version;
        ck_ok(dci_index_upsert(l->index, n, rows, dim, ids, NULL));
        if (l->index->tree != NULL && n > 0)
                ck_assert_uint_eq(l->index->tree->version, version + 1);
        for (size_t i = 0; i < n; i++) {
                naive_round(l->config.dtype, dim, rows + i * dim, stored);
                if (naive_has(&l->model, ids[i]))
                        naive_remove(&l->model, ids[i]);
                naive_add(&l->model, stored, ids[i]);
        }
}

/* Ids that are there, gone or were never used, some of them twice. */
static void discard(life *l)
{
        int64_t ids[MAX_BATCH];
        uint8_t there[MAX_BATCH];
        size_t removed, wanted = 0;
        const size_t n = below(l, below(l, 3) == 0 ? MAX_BATCH : 8);
        for (size_t i = 0; i < n; i++)
                ids[i] = i > 0 && below(l, 5) == 0 ? ids[below(l, i)] : (int64_t)below(l, (size_t)l->next_id + 5) - 2;
        ck_ok(dci_index_contains(l->index, n, ids, there));
        for (size_t i = 0; i < n; i++)
                ck_assert_uint_eq(there[i], naive_has(&l->model, ids[i]));
        ck_ok(dci_index_remove_present(l->index, n, ids, &removed));
        for (size_t i = 0; i < n; i++) {
                if (!naive_has(&l->model, ids[i]))
                        continue;
                naive_remove(&l->model, ids[i]);
                wanted++;
        }
        ck_assert_uint_eq(removed, wanted);
}

static void clear(life *l)
{
        ck_ok(dci_index_clear(l->index));
        ck_assert_int_eq(dci_index_next_id(l->index), l->next_id);
        while (l->model.n > 0)
                naive_remove(&l->model, l->model.ids[0]);
}

static int64_t filter_of, filter_remainder;
static bool filter_turned;
static bool admits(int64_t id)
{
        return (id % filter_of == filter_remainder) != filter_turned;
}
static int32_t admits_callback(void *ctx, int64_t id)
{
        (void)ctx;
        return id % filter_of == filter_remainder;
}

/* The union of a group is what its queries find, in turn, rank by rank, repeats dropped. */
static void unite(life *l, const float *queries, size_t group, size_t k, const dci_search_params *params,
                  const int64_t *each, const float *each_scores)
{
        int64_t ids[MAX_K];
        float scores[MAX_K];
        size_t n = 0;
        ck_ok(dci_index_search_group(l->index, 1, group, queries, l->config.dim, k, DCI_GROUP_UNION, params, ids,
                                     scores));
        for (size_t rank = 0; rank < k; rank++) {
                for (size_t q = 0; q < group && n < k; q++) {
                        const size_t at = q * k + rank;
                        bool known = each[at] < 0;
                        for (size_t i = 0; i < n; i++)
                                known = known || ids[i] == each[at];
                        if (known)
                                continue;
                        ck_assert_int_eq(ids[n], each[at]);
                        ck_assert(scores[n] == each_scores[at]);
                        n++;
                }
        }
        for (; n < k; n++)
                ck_assert(ids[n] == -1 && isnan(scores[n]));
}

static void search(life *l)
{
        float query[MAX_DIM * 8], scores[MAX_K * 8];
        int64_t ids[MAX_K * 8];
        const size_t k = 1 + below(l, MAX_K), group = 1 + below(l, 8);
        for (size_t i = 0; i < group; i++)
                draw_row(l, query + i * l->config.dim);
        dci_search_params params;
        ck_ok(dci_search_params_init(&params, sizeof params));
        dci_filter filter;
        ck_ok(dci_filter_init(&filter, sizeof filter));
        filter_of = 1 + (int64_t)below(l, 4);
        filter_remainder = (int64_t)below(l, (size_t)filter_of);
        filter.kind = DCI_FILTER_CALLBACK;
        filter.fn = admits_callback;
        filter_turned = below(l, 2) == 0;
        filter.flags = filter_turned ? DCI_FILTER_NOT : 0;
        const bool filtered = below(l, 2) == 0, whole = below(l, 2) == 0;
        params.filter = filtered ? &filter : NULL;
        if (below(l, 2) == 0)
                params.rerank = INFINITY;
        else /* codes propose, and what is certain is exact */
                params.guarantee = 1.0;
        if (!whole) {
                params.prop_to_visit = 0.05 + 0.9 * fuzz_uniform(l->from);
                params.prop_to_retrieve = below(l, 2) == 0 ? 1.0 : 0.3;
                params.field_of_view = below(l, 3);
        }
        ck_ok(dci_index_search_group(l->index, 1, group, query, l->config.dim, k, DCI_GROUP_EACH, &params, ids,
                                     scores));
        for (size_t g = 0; g < group; g++) {
                if (whole)
                        naive_check(&l->model, query + g * l->config.dim, k, filtered ? admits : NULL, ids + g * k,
                                    scores + g * k, "fuzz");
                for (size_t i = 0; i < k; i++) { /* whatever the effort: rows that are there and admitted, best first */
                        const int64_t id = ids[g * k + i];
                        ck_assert(id == -1 || (naive_has(&l->model, id) && (!filtered || admits(id))));
                        ck_assert(i == 0 || id == -1 || ids[g * k + i - 1] != -1);
                }
                size_t n_admitted = 0, n = 0;
                for (size_t i = 0; i < l->model.n; i++)
                        n_admitted += !filtered || admits(l->model.ids[i]);
                while (n < k && ids[g * k + n] != -1)
                        n++;
                ck_assert_uint_eq(n, k < n_admitted ? k : n_admitted);
        }
        unite(l, query, group, k, &params, ids, scores);
}

/* A copy of the pages, brought up to date by the log alone, equals them. */
static void follow(life *l)
{
        if (l->config.kind != DCI_KIND_MDCI)
                return;
        dci_tree_stats stats;
        int32_t changed[MAX_ROWS * 4];
        size_t n;
        uint64_t now;
        ck_ok(dci_tree_stats_init(&stats, sizeof stats));
        ck_ok(dci_index_tree_stats(l->index, &stats));
        ck_ok(dci_index_changes(l->index, l->version, MAX_ROWS * 4, changed, &n, &now));
        ck_assert_uint_le(n, MAX_ROWS * 4);
        const size_t page_rows = l->config.page_rows;
        for (size_t i = 0; i < n; i++) {
                const size_t page = (size_t)changed[i];
                if (page >= l->pages_capacity) {
                        const size_t capacity = 2 * page + 16;
                        l->pages = realloc(l->pages, capacity * page_rows * sizeof *l->pages);
                        ck_assert_ptr_nonnull(l->pages);
                        memset(l->pages + l->pages_capacity * page_rows, -1,
                               (capacity - l->pages_capacity) * page_rows * sizeof *l->pages);
                        l->pages_capacity = capacity;
                }
                size_t count;
                memset(l->pages + page * page_rows, -1, page_rows * sizeof *l->pages);
                ck_ok(dci_index_page_ids(l->index, changed[i], l->pages + page * page_rows, &count));
        }
        l->version = now;
        size_t found = 0;
        for (size_t page = 0; page < l->pages_capacity; page++) {
                int64_t ids[256];
                size_t count = 0;
                if (page < l->index->tree->n_pages_ever)
                        ck_ok(dci_index_page_ids(l->index, (int32_t)page, ids, &count));
                for (size_t i = 0; i < page_rows; i++)
                        ck_assert_int_eq(l->pages[page * page_rows + i], i < count ? ids[i] : -1);
                found += count;
        }
        ck_assert_uint_eq(found, l->model.n);
}

/* What is loaded is what was saved, to the byte, and lives on in its place. */
static void reload(life *l)
{
        size_t n_bytes, again;
        ck_ok(dci_index_save_memory(l->index, 0, NULL, &n_bytes));
        unsigned char *first = malloc(n_bytes), *second = malloc(n_bytes);
        ck_ok(dci_index_save_memory(l->index, n_bytes, first, &again));
        ck_assert_uint_eq(again, n_bytes);
        dci_index *loaded = NULL;
        ck_ok(dci_index_load_memory(l->context, first, n_bytes, &loaded));
        ck_ok(dci_index_save_memory(loaded, n_bytes, second, &again));
        ck_assert_uint_eq(again, n_bytes);
        ck_assert(memcmp(first, second, n_bytes) == 0);
        if (l->config.kind == DCI_KIND_MDCI)
                tree_equal(l->index, loaded);
        dci_index_destroy(l->index);
        l->index = loaded;
        test_free(first, second);
}

/* Codes are fitted to some queries, where there are codes and rows. */
static void fit(life *l)
{
        float queries[MAX_DIM * 3];
        bool any = false;
        for (size_t i = 0; i < 3; i++)
                draw_row(l, queries + i * l->config.dim);
        for (size_t i = 0; i < 3 * l->config.dim; i++)
                any = any || queries[i] != 0.0f;
        if (any && l->config.sketch_bits != 0 && l->model.n > 0)
                ck_ok(dci_index_fit(l->index, 3, queries, l->config.dim));
}

/* Rows within a radius: all that the model has, but for those as near to the radius as rounding may move them. */
static void within(life *l)
{
        float query[MAX_DIM];
        dci_range_result result;
        draw_row(l, query);
        double bound, score = 0.0;
        if (l->model.n > 0)
                score = naive_score(&l->model, query, below(l, l->model.n), &bound);
        const float radius = (float)score;
        const double sign = l->model.metric == DCI_METRIC_L2 ? 1.0 : -1.0;
        ck_ok(dci_range_result_init(&result, sizeof result));
        ck_ok(dci_index_range_search(l->index, 1, query, l->config.dim, radius, NULL, &result));
        ck_assert_uint_eq(result.n_queries, 1);
        ck_assert_uint_eq(result.offsets[0], 0);
        size_t n = 0, surely = 0, perhaps = 0;
        for (; n < result.offsets[1]; n++) {
                ck_assert(naive_has(&l->model, result.ids[n]));
                ck_assert(sign * result.scores[n] <= sign * radius);
                ck_assert(n == 0 || sign * result.scores[n - 1] < sign * result.scores[n] ||
                          result.ids[n - 1] < result.ids[n]);
        }
        for (size_t i = 0; i < l->model.n; i++) {
                score = naive_score(&l->model, query, i, &bound);
                surely += sign * score + bound <= sign * radius;
                perhaps += sign * score - bound <= sign * radius;
        }
        if (n < surely || n > perhaps)
                ck_abort_msg("%zu rows within %g, the model has %zu to %zu", n, (double)radius, surely, perhaps);
        dci_range_result_free(&result);
}

/* A number that no row may have, somewhere in a batch or a query, is refused, and nothing changes. */
static void refuse_numbers(life *l)
{
        static const float bad[] = {NAN, INFINITY, -INFINITY, 1e30f};
        float rows[3 * MAX_DIM], scores[3];
        int64_t ids[3];
        for (size_t i = 0; i < 3; i++)
                draw_row(l, rows + i * l->config.dim);
        const size_t row = below(l, 3);
        char name[16];
        const size_t at = row * l->config.dim + below(l, l->config.dim);
        rows[at] = bad[below(l, 4)];
        snprintf(name, sizeof name, "row %zu", row);
        ck_refused(dci_index_add(l->index, 3, rows, l->config.dim, NULL, NULL), DCI_ERR_NUMBER, name);
        ck_refused(dci_index_search(l->index, 3, rows, l->config.dim, 1, NULL, ids, scores), DCI_ERR_NUMBER, "");
        ck_assert_uint_eq(dci_index_count(l->index), l->model.n);
}

/* What there is: ids, rows, the config; and room for more rows. */
static void look(life *l)
{
        int64_t ids[MAX_ROWS], last = -1;
        size_t n;
        float row[MAX_DIM], wide[MAX_DIM];
        dci_index_config config;
        dci_memory_report report;
        ck_ok(dci_memory_report_init(&report, sizeof report));
        ck_ok(dci_index_memory(l->index, &report));
        ck_assert_uint_eq(report.total,
                          report.rows + report.ids + report.norms + report.projections + report.codes + report.other);
        ck_ok(dci_index_config_init(&config, sizeof config));
        ck_ok(dci_index_get_config(l->index, &config));
        ck_assert(config.dim == l->config.dim && config.kind == l->config.kind && config.metric == l->config.metric &&
                  config.dtype == l->config.dtype && config.zero_rows == l->config.zero_rows &&
                  config.sketch_bits == l->config.sketch_bits && config.seed == l->config.seed);
        ck_ok(dci_index_ids(l->index, MAX_ROWS, ids, &n));
        ck_assert_uint_eq(n, l->model.n);
        ck_assert_uint_eq(dci_index_count(l->index), n);
        for (size_t i = 0; i < n; i++) {
                ck_assert(ids[i] > last && naive_has(&l->model, ids[i]));
                last = ids[i];
        }
        if (n > 0) {
                const size_t which = below(l, n);
                ck_ok(dci_index_reconstruct(l->index, 1, &l->model.ids[which], row, l->config.dim));
                dci_kernels_scalar.to_f32[l->config.dtype - 1](row, l->config.dim, wide);
                for (size_t p = 0; p < l->config.dim; p++)
                        ck_assert(wide[p] == (float)l->model.rows[which * l->config.dim + p]);
        }
        if (below(l, 2) == 0)
                ck_ok(dci_index_reserve(l->index, below(l, 2 * MAX_ROWS)));
        else
                refuse_numbers(l);
}

static void operate(life *l, size_t bias)
{
        switch (below(l, 12)) {
        case 0:
                drop(l);
                break;
        case 10:
                upsert(l);
                break;
        case 11:
                below(l, 8) == 0 ? clear(l) : discard(l);
                break;
        case 1:
                bias == 2 ? drop(l) : add(l);
                break;
        case 2:
        case 3:
        case 4:
                add(l);
                break;
        case 5:
                within(l);
                break;
        case 6:
                look(l);
                break;
        default:
                search(l);
                break;
        }
}

void fuzz_index_life(fuzz_bytes *from)
{
        life l;
        begin(&l, from);
        const size_t n = 20 + below(&l, 60);
        const size_t bias = 2 + below(&l, 3); /* some sequences shrink, some grow */
        for (size_t step = 0; step < n && (step == 0 || !fuzz_ended(from)); step++) {
                operate(&l, bias);
                ck_ok(dci_index_check(l.index, DCI_CHECK_FULL, NULL));
                if (below(&l, 3) == 0)
                        follow(&l);
                if (below(&l, 10) == 0)
                        reload(&l);
                if (below(&l, 10) == 0)
                        fit(&l);
        }
        if (below(&l, 2) == 0)
                while (l.model.n > 0)
                        drop(&l);
        search(&l);
        end(&l);
}
