/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Search of a head's tree (IceCache 2026, algorithms 3 and 4). Nodes are ranked by the mean of the rows beneath them,
 * as in the index's tree, where that finds more than the node's own key does. Each query head opens its best nodes; all
 * rows in cells that any of them opened are compared with all of the group's queries, since they are read once for all.
 * Pages are ranked by their best row, for each query head; the lists are interleaved by rank, repeats dropped, until
 * the room is used up, a page that is not full counting as full. Of one rank the head whose page scores most comes
 * first: the last round may be cut, and with more heads than pages it is the only one.
 *
 * Rows are keys and means, or codes of both (tree_keys CODES), whose scores leave out the product with the centre: to a
 * head's ranking it makes no difference, and what is left is the same to the bit at every instruction set and on a
 * device.
 */
#include "core/internal.h"

#include <math.h>
#include <string.h>

#include "core/arena.h"
#include "kv/pool.h"
#include "kv/stages/rank.h"
#include "kv/tree/tree.h"
#include "simd/select.h"
#include "simd/topk.h"

#define FEWEST_OPENED 30    /* of nodes, and */
#define SHARE_OPENED 0.0015 /* of candidates: the published effort of a decode query */

static size_t no_bytes(const dci_kv *kv)
{
        (void)kv;
        return 0;
}

/* --- group: the pages of the tree --------------------------------------------------------------------------------- */

static size_t count_pages(const dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t n)
{
        const dci_kv_tree *tree = layer->heads[head].tree;
        (void)kv;
        (void)n;
        return tree == NULL ? 0 : tree->n_pages;
}

/* Of the first n candidates, returning how many. */
static size_t members_of(const dci_kv *kv, const dci_kv_tree *tree, size_t group, size_t n, int32_t *out)
{
        const size_t fill = dci_kv_tree_page_fill(kv, tree, group);
        size_t kept = 0;
        for (size_t i = 0; i < fill; i++) {
                const int32_t member = tree->members[group * kv->config.page_tokens + i];
                if ((size_t)member < n) /* others were cut off, or are young again */
                        out[kept++] = member;
        }
        return kept;
}

static const int32_t *members_of_page(const dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t group, size_t n,
                                      int32_t *room, size_t *out_n)
{
        *out_n = members_of(kv, layer->heads[head].tree, group, n, room);
        return room;
}

const dci_kv_grouping dci_kv_group_tree = {.kind = DCI_KV_GROUP_TREE, .count = count_pages, .members = members_of_page};

/* --- summary: nodes, or means of pages ---------------------------------------------------------------------------- */

const dci_kv_summary dci_kv_summary_tree = {.kind = DCI_KV_SUMMARY_TREE, .bytes = no_bytes, .work_bytes = no_bytes};

void dci_kv_tree_rank_pages(dci_kv_query *ask)
{
        const dci_kv *kv = ask->kv;
        const dci_kv_tree *tree = ask->layer->heads[ask->head].tree;
        const void *rows[DCI_KV_TILE];
        const size_t n_pages = tree == NULL ? 0 : tree->n_pages;
        for (size_t i = 0, n; i < n_pages; i += n) {
                n = n_pages - i < DCI_KV_TILE ? n_pages - i : DCI_KV_TILE;
                for (size_t r = 0; r < n; r++) /* a free page has no mean: any row, which does not count */
                        rows[r] = tree->means + (tree->page_node[i + r] < 0 ? (size_t)tree->node_first[0] : i + r) *
                                                        kv->dim_k * kv->es;
                dci_kv_score_rows(ask, ask->queries, kv->dim_k, kv->config.dtype, rows, n, i);
                for (size_t r = 0; r < n; r++)
                        for (size_t q = 0; q < kv->group && tree->page_node[i + r] < 0; q++)
                                ask->scores[q * ask->ld + i + r] = -INFINITY;
        }
}

/* --- choose: search ----------------------------------------------------------------------------------------------- */

typedef struct search {
        dci_kv_query *ask;
        const dci_kv_tree *tree;
        size_t k;       /* pages, or tokens, that there is room for */
        uint8_t *taken; /* by node: opened; then by item: chosen */
        int32_t *pages; /* that were opened */
        int32_t *items; /* pages, or tokens: what is ranked */
        float *kept;    /* dci_select */
        int32_t *order;
        int32_t *lists; /* [query][k]: items, best first */
        size_t list_lengths[DCI_KV_MAX_GROUP];
        void *topk;
        dci_kv_tree_descent down;
        const uint64_t *retrieved;        /* bits by row of the opened pages; NULL: all rows are scored */
        float *page_scores, *unit_scores; /* [query][DCI_KV_TILE]; CODES: [query][DCI_CODE_UNIT] */
        /* CODES: the queries, transformed. */
        const dci_coder *coder;
        int8_t *query_bytes;
        dci_coded_query *coded;
        void *transform;
} search;

static size_t padded_dim(const dci_kv *kv)
{
        return (kv->dim_k + 31) / 32 * 32;
}

static size_t lay_out(const dci_kv *kv, size_t ld, void *memory, search *out)
{
        const size_t n_coded = dci_kv_tree_coded(kv) ? kv->group : 0;
        const dci_arena_part parts[] = {{ld, &out->taken},
                                        {ld * sizeof(int32_t), &out->pages},
                                        {ld * sizeof(int32_t), &out->items},
                                        {(ld + DCI_LANES) * sizeof(float), &out->kept},
                                        {(ld + DCI_SELECT_SAMPLE) * sizeof(int32_t), &out->order},
                                        {kv->group * kv->config.budget * sizeof(int32_t), &out->lists},
                                        {dci_topk_bytes(kv->config.budget), &out->topk},
                                        {kv->group * DCI_KV_TILE * sizeof(float), &out->page_scores},
                                        {n_coded * DCI_CODE_UNIT * sizeof(float), &out->unit_scores},
                                        {n_coded * padded_dim(kv), &out->query_bytes},
                                        {n_coded * sizeof(dci_coded_query), &out->coded},
                                        {n_coded > 0 ? dci_coder_scratch_bytes(kv->dim_k) : 0, &out->transform}};
        const size_t n_bytes = DCI_ARENA(parts, memory);
        return n_bytes + dci_kv_tree_descent_lay_out(kv, ld, memory == NULL ? NULL : (unsigned char *)memory + n_bytes,
                                                     &out->down);
}

size_t dci_kv_tree_search_bytes(const dci_kv *kv, size_t ld)
{
        search measured;
        return kv->config.select == DCI_KV_SELECT_TREE ? lay_out(kv, ld, NULL, &measured) : 0;
}

/* --- codes -------------------------------------------------------------------------------------------------------- */

static void code_queries(search *s)
{
        const dci_kv *kv = s->ask->kv;
        s->coder = dci_kv_tree_coder(s->ask->layer, s->ask->head);
        for (size_t q = 0; q < kv->group; q++)
                dci_coder_query_bytes(s->coder, s->ask->queries + q * kv->dim_k, s->transform,
                                      s->query_bytes + q * s->coder->layout.n_all, &s->coded[q]);
}

/* Scores of n rows of up to DCI_SCAN_UNITS units, with their scales: out[q * ld + i]. */
static void score_units(const search *s, const unsigned char *const *units, size_t n_units, const float *scales,
                        size_t n, float *out, size_t ld)
{
        const dci_code_reader *reader = s->coder->reader;
        const size_t group = s->ask->kv->group;
        int32_t sums[DCI_CODE_QUERIES * DCI_SCAN_ROWS];
        for (size_t q = 0, here; q < group; q += here) {
                here = group - q < DCI_CODE_QUERIES ? group - q : DCI_CODE_QUERIES;
                reader->sums(&s->coder->layout, units, n_units, s->query_bytes + q * s->coder->layout.n_all, here, sums,
                             DCI_SCAN_ROWS);
                for (size_t i = 0; i < here; i++)
                        reader->estimate(sums + i * DCI_SCAN_ROWS, scales, n, s->coded[q + i].half_step,
                                         s->coded[q + i].twice_bias, 0.0f, out + (q + i) * ld);
        }
}

/* A unit of a table of codes, and its scales. */
static const unsigned char *unit_of(const search *s, const unsigned char *codes, const uint16_t *code_scales,
                                    size_t unit, float *scales)
{
        const dci_kv *kv = s->ask->kv;
        const size_t per = DCI_CODE_ROWS / DCI_CODE_UNIT;
        kv->context->kernels->to_f32[DCI_BF16 - 1](code_scales + unit * DCI_CODE_UNIT, DCI_CODE_UNIT, scales);
        return dci_code_unit(codes + unit / per * dci_kv_tree_block_bytes(kv), unit % per);
}

static void score_coded_nodes(const search *s)
{
        const size_t n_nodes = s->tree->n_nodes;
        for (size_t i = 0, n; i < n_nodes; i += n) {
                const unsigned char *units[DCI_SCAN_UNITS];
                float scales[DCI_SCAN_ROWS];
                n = n_nodes - i < DCI_SCAN_ROWS ? n_nodes - i : DCI_SCAN_ROWS;
                const size_t n_units = (n + DCI_CODE_UNIT - 1) / DCI_CODE_UNIT;
                for (size_t u = 0; u < n_units; u++)
                        units[u] = unit_of(s, s->tree->node_codes, s->tree->node_scales, i / DCI_CODE_UNIT + u,
                                           scales + u * DCI_CODE_UNIT);
                score_units(s, units, n_units, scales, n, s->ask->scores + i, s->ask->ld);
        }
}

/* Scores of a page's members for all queries: out[q * DCI_KV_TILE + i]. */
static void score_coded_page(const search *s, int32_t page, float *out)
{
        const size_t per_page = s->ask->kv->config.page_tokens, first = (size_t)page * per_page,
                     skipped = first % DCI_CODE_UNIT, n_units = (skipped + per_page - 1) / DCI_CODE_UNIT + 1;
        const unsigned char *units[DCI_SCAN_UNITS];
        float scales[DCI_KV_TILE + DCI_CODE_UNIT], *all = s->unit_scores;
        for (size_t u = 0; u < n_units; u++)
                units[u] = unit_of(s, s->tree->codes, s->tree->code_scales, first / DCI_CODE_UNIT + u,
                                   scales + u * DCI_CODE_UNIT);
        if (skipped == 0 && per_page >= DCI_CODE_UNIT) {
                score_units(s, units, n_units, scales, per_page, out, DCI_KV_TILE);
                return;
        }
        score_units(s, units, 1, scales, DCI_CODE_UNIT, all, DCI_CODE_UNIT);
        for (size_t q = 0; q < s->ask->kv->group; q++)
                memcpy(out + q * DCI_KV_TILE, all + q * DCI_CODE_UNIT + skipped, per_page * sizeof *out);
}

/* --- nodes -------------------------------------------------------------------------------------------------------- */

static void score_nodes(const search *s)
{
        dci_kv_query *ask = s->ask;
        const dci_kv *kv = ask->kv;
        const size_t n_nodes = s->tree->n_nodes;
        const void *rows[DCI_KV_TILE];
        if (s->coder != NULL) {
                score_coded_nodes(s);
                return;
        }
        for (size_t i = 0, n; i < n_nodes; i += n) {
                n = n_nodes - i < DCI_KV_TILE ? n_nodes - i : DCI_KV_TILE;
                for (size_t r = 0; r < n; r++)
                        rows[r] = s->tree->means + (i + r) * kv->dim_k * kv->es;
                dci_kv_score_rows(ask, ask->queries, kv->dim_k, kv->config.dtype, rows, n, i);
        }
}

/* Negated products of the queries with the nodes' means. */
static void rank_nodes(const search *s)
{
        score_nodes(s);
        dci_kv_tree_negate(s->ask, s->tree->n_nodes);
}

/* The same from the top level down, with pages that hold the keys of nodes on the way. */
static size_t open_down(search *s, size_t wanted)
{
        const dci_kv_tree *tree = s->tree;
        const size_t n_nodes = dci_kv_tree_descend(s->ask, tree, &s->down, wanted, s->kept, s->order, s->items);
        size_t n = 0;
        for (size_t i = 0; i < n_nodes; i++)
                for (int32_t page = tree->node_first[s->items[i]]; page >= 0; page = tree->page_next[page])
                        s->pages[n++] = page;
        return n + dci_kv_tree_met_pages(s->ask, tree, &s->down, s->k, s->kept, s->order, s->pages + n, s->ask->ld - n);
}

/* Marks what any query has among its `wanted` best nodes, and lists their pages, ascending. Returns how many pages. */
static size_t open_nodes(search *s, size_t wanted)
{
        const dci_kv_query *ask = s->ask;
        const dci_kv_tree *tree = s->tree;
        size_t n = 0;
        if (dci_kv_tree_descends(ask->kv))
                return open_down(s, wanted);
        memset(s->taken, wanted < tree->n_nodes ? 0 : 1, tree->n_nodes);
        for (size_t q = 0; q < ask->kv->group && wanted < tree->n_nodes; q++) {
                const float *values = ask->scores + q * ask->ld;
                const float limit =
                        dci_select(ask->kv->context->kernels, values, tree->n_nodes, wanted, s->kept, s->order).value;
                for (size_t i = 0; i < tree->n_nodes; i++)
                        s->taken[i] |= values[i] <= limit;
        }
        for (size_t p = 0; p < tree->n_pages; p++)
                if (tree->page_node[p] >= 0 && s->taken[tree->page_node[p]] != 0)
                        s->pages[n++] = (int32_t)p;
        return n;
}

/* --- pages -------------------------------------------------------------------------------------------------------- */

/* Rows of the opened pages that P-DCI retrieves for any query: a share of them, and enough to fill the room. */
static const uint64_t *retrieve_rows(const search *s, size_t n_pages)
{
        const dci_kv *kv = s->ask->kv;
        const size_t m = kv->config.tree_simple_indices, per_page = kv->config.page_tokens;
        const size_t at_least = kv->config.tree_tokens != 0 ? s->k : s->k * per_page;
        const double share = dci_kv_tree_retrieved(kv, DCI_KV_TREE_RETRIEVE);
        size_t n = 0, at = 0;
        if (m == 0 || share >= 1.0)
                return NULL;
        for (size_t p = 0; p < n_pages; p++)
                n += dci_kv_tree_page_fill(kv, s->tree, (size_t)s->pages[p]);
        for (size_t p = 0, fill; p < n_pages; p++, at += fill) {
                const float *from = s->tree->member_projections + (size_t)s->pages[p] * per_page * m;
                fill = dci_kv_tree_page_fill(kv, s->tree, (size_t)s->pages[p]);
                for (size_t j = 0; j < m; j++)
                        memcpy(s->down.retrieval.projections + j * n + at, from + j * per_page, fill * sizeof *from);
        }
        memset(s->down.retrieval.bits, 0, (n + 63) / 64 * sizeof(uint64_t));
        for (size_t q = 0; q < kv->group; q++)
                dci_kv_tree_retrieve(kv, &s->down.retrieval, n, s->down.projections + q * m, share, at_least);
        return s->down.retrieval.bits;
}

/* The members of a page that count and were retrieved, and their places in it; prefetches what is read of them.
 * *at_row: rows of the pages before. Returns how many. */
static size_t fetch_page(const search *s, int32_t page, size_t *at_row, int32_t *members, uint8_t *places,
                         const void **rows)
{
        const dci_kv_query *ask = s->ask;
        const dci_kv *kv = ask->kv;
        const size_t per_page = kv->config.page_tokens, row_bytes = kv->dim_k * kv->es;
        const size_t fill = dci_kv_tree_page_fill(kv, s->tree, (size_t)page);
        const int32_t *table = ask->layer->sequence->table;
        size_t n = 0;
        for (size_t i = 0; i < fill; i++) {
                const int32_t member = s->tree->members[(size_t)page * per_page + i];
                const size_t row = (*at_row)++;
                if ((size_t)member >= ask->n_candidates) /* others were cut off, or are young again */
                        continue;
                if (s->retrieved != NULL && (s->retrieved[row / 64] >> (row % 64) & 1) == 0)
                        continue;
                members[n] = member;
                places[n] = (uint8_t)i;
                if (kv->config.tree_keys == DCI_KV_TREE_EXACT) {
                        const size_t at = kv->config.sink + (size_t)member;
                        const dci_kv_page block =
                                dci_kv_page_at(kv, ask->layer->number, table[at / per_page], ask->head);
                        rows[n] = block.keys + at % per_page * block.key_step;
                        for (size_t j = 0; j < row_bytes; j += DCI_CACHE_LINE)
                                DCI_PREFETCH((const unsigned char *)rows[n] + j);
                }
                n++;
        }
        return n;
}

/* Scores of a page's members for all queries, of those that count: out[q * DCI_KV_TILE + i]; of means the page's
 * alone. */
static void score_page(const search *s, int32_t page, const void *const *rows, const uint8_t *places, size_t n,
                       float *out)
{
        const dci_kv_query *ask = s->ask;
        const dci_kv *kv = ask->kv;
        const dci_kernels *kernels = kv->context->kernels;
        const bool of_mean = kv->config.tree_keys == DCI_KV_TREE_MEANS;
        const void *mean = of_mean ? s->tree->page_means + (size_t)page * kv->dim_k * kv->es : NULL;
        if (s->coder != NULL) {
                score_coded_page(s, page, out);
                for (size_t q = 0; q < kv->group; q++)
                        for (size_t i = 0; i < n; i++) /* places ascend */
                                out[q * DCI_KV_TILE + i] = out[q * DCI_KV_TILE + places[i]];
                return;
        }
        for (size_t q = 0, here; q < kv->group; q += here) {
                here = kv->group - q < DCI_MANY_QUERIES ? kv->group - q : DCI_MANY_QUERIES;
                kernels->score_many[kv->config.dtype - 1][DCI_FORM_DOT](ask->queries + q * kv->dim_k, kv->dim_k, here,
                                                                        of_mean ? &mean : rows, of_mean ? 1 : n,
                                                                        kv->dim_k, out + q * DCI_KV_TILE, DCI_KV_TILE);
        }
}

/* Scores of what the opened pages hold, for each query: of tokens, or of pages by their best token, or their mean.
 * Returns how many there are. */
static size_t score_pages(const search *s, size_t n_pages)
{
        dci_kv_query *ask = s->ask;
        const dci_kv *kv = ask->kv;
        const bool tokens = kv->config.tree_tokens != 0, of_mean = kv->config.tree_keys == DCI_KV_TREE_MEANS;
        int32_t members[2][DCI_KV_TILE];
        uint8_t places[2][DCI_KV_TILE];
        const void *rows[2][DCI_KV_TILE];
        float *scores = s->page_scores;
        size_t n_items = 0, row = 0;
        size_t n_next = n_pages > 0 ? fetch_page(s, s->pages[0], &row, members[0], places[0], rows[0]) : 0;
        for (size_t p = 0; p < n_pages; p++) {
                const size_t n = n_next, next = (p + 1) % 2;
                n_next = p + 1 < n_pages ? fetch_page(s, s->pages[p + 1], &row, members[next], places[next], rows[next])
                                         : 0;
                if (n == 0)
                        continue;
                score_page(s, s->pages[p], rows[p % 2], places[p % 2], n, scores);
                for (size_t q = 0; q < kv->group; q++) {
                        float *out = ask->scores + q * ask->ld + n_items;
                        const float *from = scores + q * DCI_KV_TILE;
                        if (tokens)
                                memcpy(out, from, n * sizeof *out);
                        else
                                *out = of_mean ? from[0] : kv->context->kernels->greatest(from, n);
                }
                if (tokens)
                        memcpy(s->items + n_items, members[p % 2], n * sizeof *s->items);
                else
                        s->items[n_items] = s->pages[p];
                n_items += tokens ? n : 1;
        }
        return n_items;
}

/* Each query's k best items. Ties by place. */
static void sort_items(search *s, size_t n_items)
{
        const dci_kv_query *ask = s->ask;
        const dci_kv *kv = ask->kv;
        for (size_t q = 0; q < kv->group; q++)
                s->list_lengths[q] =
                        dci_kv_best(kv, ask->scores + q * ask->ld, n_items, NULL, s->k, s->topk, s->lists + q * s->k);
}

static void take_item(const search *s, int32_t item)
{
        dci_kv_query *ask = s->ask;
        if (ask->kv->config.tree_tokens != 0)
                ask->chosen[ask->n_chosen++] = item;
        else
                ask->n_chosen +=
                        members_of(ask->kv, s->tree, (size_t)item, ask->n_candidates, ask->chosen + ask->n_chosen);
}

/* Queries that have an item of this rank, in the order of these items' scores, equal ones by number. Returns how
 * many. */
static size_t sort_queries(const search *s, size_t rank, size_t *out)
{
        float scores[DCI_KV_MAX_GROUP];
        size_t n = 0;
        for (size_t q = 0; q < s->ask->kv->group; q++) {
                if (rank >= s->list_lengths[q])
                        continue;
                const float score = s->ask->scores[q * s->ask->ld + (size_t)s->lists[q * s->k + rank]];
                size_t at = n++;
                for (; at > 0 && score > scores[at - 1]; at--) {
                        scores[at] = scores[at - 1];
                        out[at] = out[at - 1];
                }
                scores[at] = score;
                out[at] = q;
        }
        return n;
}

/* Rank by rank, query by query, what was not there before. */
static void interleave(const search *s, size_t n_items)
{
        size_t n = 0, queries[DCI_KV_MAX_GROUP];
        memset(s->taken, 0, n_items);
        for (size_t rank = 0; rank < s->k && n < s->k; rank++) {
                const size_t n_queries = sort_queries(s, rank, queries);
                for (size_t i = 0; i < n_queries && n < s->k; i++) {
                        const size_t at = (size_t)s->lists[queries[i] * s->k + rank];
                        if (s->taken[at] != 0)
                                continue;
                        s->taken[at] = 1;
                        take_item(s, s->items[at]);
                        n++;
                }
        }
}

/* Pages, or tokens, that could be taken of what was opened, as far as there is room: cells hold few tokens, and those
 * of a page may all be young again. */
static size_t n_held(const search *s, size_t n_pages)
{
        const dci_kv *kv = s->ask->kv;
        int32_t members[DCI_KV_TILE];
        size_t held = 0;
        for (size_t p = 0; p < n_pages && held < s->k; p++) {
                const size_t n = members_of(kv, s->tree, (size_t)s->pages[p], s->ask->n_candidates, members);
                held += kv->config.tree_tokens != 0 ? n : n > 0;
        }
        return held;
}

/* Nodes that each query opens. */
static size_t field_of_view(const dci_kv *kv, size_t n)
{
        const size_t share = (size_t)(SHARE_OPENED * (double)n);
        if (kv->config.tree_field_of_view != 0)
                return kv->config.tree_field_of_view;
        return share > FEWEST_OPENED ? share : FEWEST_OPENED;
}

void dci_kv_tree_search(dci_kv_query *ask)
{
        const dci_kv *kv = ask->kv;
        search s = {.ask = ask, .tree = ask->layer->heads[ask->head].tree};
        ask->n_chosen = 0;
        if (s.tree == NULL || s.tree->n_nodes == 0)
                return;
        lay_out(kv, ask->ld, ask->work, &s);
        s.k = kv->config.tree_tokens != 0 ? ask->room : ask->room / kv->config.page_tokens;
        if (s.k == 0)
                return;
        s.coder = NULL;
        if (dci_kv_tree_coded(kv))
                code_queries(&s);
        if (dci_kv_tree_descends(kv))
                dci_kv_tree_descent_begin(ask, s.tree, &s.down);
        else
                rank_nodes(&s);
        /* Nodes enough for the room; where tokens are taken, twice as many pages as they would fill, to choose from. */
        const size_t least = kv->config.tree_tokens != 0 ? 2 * (s.k / kv->config.page_tokens + 1) : 0;
        size_t wanted = field_of_view(kv, ask->n_candidates), n_pages = open_nodes(&s, wanted);
        while ((n_pages < least || n_held(&s, n_pages) < s.k) && wanted < s.tree->n_nodes) {
                wanted *= 2;
                n_pages = open_nodes(&s, wanted);
        }
        s.retrieved = retrieve_rows(&s, n_pages);
        const size_t n_items = score_pages(&s, n_pages);
        sort_items(&s, n_items);
        interleave(&s, n_items);
}
