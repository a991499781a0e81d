/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Reference of cuda/tree: plans by trees, as src/kv/tree/search.c, and patches. */
#include "gpu/gpu_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/host/learned.h"
#include "gpu/host/reference.h"
#include "simd/codes/codes.h"
#include "simd/convert.h"

/* The plan of one list. */
typedef struct searching {
        const dci_gpu_tree_args *args;
        uint64_t list;
        int32_t row, head, n_candidates, n_nodes, n_pages, k;
        bool whole; /* all members of pages are candidates */
        int32_t n_opened, n_taken, n_tokens;
        dci_gpu_coded_query queries[DCI_GPU_MAX_GROUP];
        int32_t taken[DCI_GPU_MAX_LIST / 8], tokens[DCI_GPU_MAX_LIST];
} searching;

/* --- codes -------------------------------------------------------------------------------------------------------- */

static void prepare(searching *s)
{
        const dci_gpu_tree_args *args = s->args;
        const size_t dim = (size_t)args->score.dim;
        const float zeros[DCI_GPU_MAX_DIM] = {0.0f};
        for (int32_t q = 0; q < args->score.group; q++) {
                const uint64_t from = (s->list * (uint64_t)args->score.group + (uint64_t)q) * args->score.query_ld;
                float x[DCI_GPU_MAX_DIM];
                for (size_t j = 0; j < dim; j++)
                        x[j] = args->score.scale * dci_gpu_load(args->score.queries, from + j, args->score.query_dtype);
                dci_gpu_ref_code_query(x, zeros, dim, args->score.bits, args->score.signs, &s->queries[q]);
        }
}

/* Scores of row `at` of a table of codes and scales, by query head. */
static void score_row(const searching *s, const unsigned char *codes, const unsigned char *code_scales, int32_t at,
                      float *out)
{
        const dci_gpu_score_args *args = &s->args->score;
        dci_gpu_ref_code_scores(codes, dci_bf16_to_float(((const uint16_t *)(const void *)code_scales)[at]),
                                (size_t)args->dim, args->bits, at, s->queries, args->group, out);
}

static size_t block_bytes(const searching *s)
{
        return (size_t)DCI_GPU_TREE_BLOCK_BYTES(s->args->score.dim, s->args->score.bits);
}

/* The head's part of the chunk that has a node, or a row of a page. */
static const unsigned char *part_of(const searching *s, const dci_gpu_chunks *chunks, int32_t at)
{
        return dci_gpu_chunk_of(chunks, (uint64_t)s->row, (uint64_t)s->head, (uint64_t)(at / DCI_GPU_CHUNK));
}

static int32_t owner_of(const searching *s, int32_t page)
{
        const int32_t shift = s->args->page_shift;
        const unsigned char *part = part_of(s, &s->args->pages, page << shift) + DCI_GPU_TREE_OWNERS(block_bytes(s));
        return ((const int32_t *)(const void *)part)[page % (DCI_GPU_CHUNK >> shift)];
}

/* Candidates of a page. */
static const int32_t *members_of(const searching *s, int32_t page)
{
        const int32_t first = page << s->args->page_shift;
        return (const int32_t *)(const void *)part_of(s, &s->args->pages, first) + first % DCI_GPU_CHUNK;
}

static bool counts(const searching *s, int32_t page)
{
        const int32_t *members = members_of(s, page);
        bool some = false;
        for (int32_t i = 0; i < 1 << s->args->page_shift; i++)
                some = some || members[i] < s->n_candidates;
        return some;
}

/* --- nodes -------------------------------------------------------------------------------------------------------- */

static float *node_scores(const searching *s, int32_t node)
{
        return s->args->score.scores +
               (s->list * (uint64_t)s->args->score.max_groups + (uint64_t)node) * (uint64_t)s->args->score.group;
}

static uint32_t *opened_of(const searching *s)
{
        return s->args->opened + s->list * (uint64_t)(s->args->score.max_groups / 32);
}

static bool is_opened(const searching *s, int32_t node)
{
        return node >= 0 && (opened_of(s)[node / 32] >> (node % 32) & 1) != 0;
}

static void score_nodes(const searching *s)
{
        for (int32_t i = 0; i < s->n_nodes; i++) {
                const unsigned char *part = part_of(s, &s->args->score.summaries, i);
                score_row(s, part, part + DCI_GPU_TREE_NODE_SCALES(block_bytes(s)), i % DCI_GPU_CHUNK,
                          node_scores(s, i));
        }
}

/* The wanted greatest of a head's scores reach this, bit by bit. */
static uint32_t limit_of(const searching *s, int32_t q, int32_t wanted)
{
        uint32_t limit = 0;
        for (uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
                int32_t n = 0;
                for (int32_t i = 0; i < s->n_nodes; i++)
                        n += dci_gpu_ordered(node_scores(s, i)[q]) >= (limit | bit);
                limit |= n >= wanted ? bit : 0;
        }
        return limit;
}

/* Returns how many pages opened cells have, as far as k. */
static int32_t open_nodes(const searching *s, int32_t wanted)
{
        int32_t held = 0;
        uint32_t *opened = opened_of(s);
        memset(opened, wanted < s->n_nodes ? 0 : 0xff, (size_t)(s->args->score.max_groups / 32) * sizeof *opened);
        for (int32_t q = 0; q < s->args->score.group && wanted < s->n_nodes; q++) {
                const uint32_t limit = limit_of(s, q, wanted);
                for (int32_t i = 0; i < s->n_nodes; i++)
                        if (dci_gpu_ordered(node_scores(s, i)[q]) >= limit)
                                opened[i / 32] |= 1u << (i % 32);
        }
        for (int32_t p = 0; p < s->n_pages && held < s->k; p++)
                held += is_opened(s, owner_of(s, p)) && (s->whole || counts(s, p));
        return held;
}

/* --- pages -------------------------------------------------------------------------------------------------------- */

static void score_page(searching *s, int32_t page)
{
        const dci_gpu_tree_args *args = s->args;
        const int32_t first = page << args->page_shift;
        const unsigned char *part = part_of(s, &args->pages, first);
        const int32_t *members = members_of(s, page);
        const uint64_t at = s->list * (uint64_t)args->max_pages + (uint64_t)s->n_opened++;
        float *best = args->page_scores + at * (uint64_t)args->score.group;
        args->page_numbers[at] = -1;
        for (int32_t i = 0; i < 1 << args->page_shift; i++) {
                float scores[DCI_GPU_MAX_GROUP];
                if (members[i] >= s->n_candidates)
                        continue;
                score_row(s, part + DCI_GPU_TREE_CODES, part + DCI_GPU_TREE_SCALES(block_bytes(s)),
                          (first + i) % DCI_GPU_CHUNK, scores);
                for (int32_t q = 0; q < args->score.group; q++)
                        best[q] = args->page_numbers[at] < 0 || scores[q] > best[q] ? scores[q] : best[q];
                args->page_numbers[at] = page;
        }
}

/* A page's key for a head: the greater, the better; 0: it does not count. */
static uint64_t key_of(const searching *s, int32_t at, int32_t q)
{
        const uint64_t page = s->list * (uint64_t)s->args->max_pages + (uint64_t)at;
        const int32_t number = s->args->page_numbers[page];
        return number < 0 ? 0
                          : (uint64_t)dci_gpu_ordered(
                                    s->args->page_scores[page * (uint64_t)s->args->score.group + (uint64_t)q])
                                            << 32 |
                                    (uint32_t) ~(uint32_t)number;
}

static void take(searching *s, int32_t page)
{
        const int32_t *members = members_of(s, page);
        for (int32_t i = 0; i < s->n_taken; i++)
                if (s->taken[i] == page)
                        return;
        s->taken[s->n_taken++] = page;
        for (int32_t i = 0; i < 1 << s->args->page_shift; i++)
                if (members[i] < s->n_candidates)
                        s->tokens[s->n_tokens++] = members[i];
}

/* Rank by rank: each head's next best key, and of these the best first. */
static void interleave(searching *s)
{
        const int32_t group = s->args->score.group;
        uint64_t next[DCI_GPU_MAX_GROUP];
        for (int32_t q = 0; q < group; q++)
                next[q] = UINT64_MAX;
        for (int32_t rank = 0; rank < s->k && s->n_taken < s->k; rank++) {
                for (int32_t q = 0; q < group; q++) {
                        uint64_t best = 0;
                        for (int32_t i = 0; i < s->n_opened; i++) {
                                const uint64_t key = key_of(s, i, q);
                                best = key < next[q] && key > best ? key : best;
                        }
                        next[q] = best;
                }
                bool done[DCI_GPU_MAX_GROUP] = {false};
                for (int32_t i = 0; i < group && s->n_taken < s->k; i++) {
                        int32_t first = 0;
                        while (done[first])
                                first++;
                        for (int32_t q = first + 1; q < group; q++)
                                if (!done[q] && next[q] >> 32 > next[first] >> 32)
                                        first = q;
                        done[first] = true;
                        if (next[first] > 0)
                                take(s, (int32_t) ~(uint32_t)next[first]);
                }
        }
}

/* --- lists -------------------------------------------------------------------------------------------------------- */

static void put(searching *s)
{
        const dci_gpu_tree_args *args = s->args;
        const dci_gpu_selection_cache *kept = &args->select.selection;
        if (kept->lists != NULL) {
                int32_t *list = (int32_t *)dci_gpu_of_row(kept->lists, kept->row_bytes, s->row) +
                                (uint64_t)s->head * (uint64_t)kept->room;
                memcpy(list, s->tokens, (size_t)s->n_tokens * sizeof *list);
                ((int32_t *)dci_gpu_of_row(kept->counts, kept->row_bytes, s->row))[s->head] = s->n_tokens;
                return;
        }
        qsort(s->tokens, (size_t)s->n_tokens, sizeof *s->tokens, dci_gpu_by_number);
        for (int32_t i = 0; i < s->n_tokens; i++)
                args->select.positions[s->list * (uint64_t)args->select.stride + (uint64_t)i] =
                        args->select.sizes.sink + s->tokens[i];
        args->select.counts[s->list] = s->n_tokens;
}

static void plan(const dci_gpu_tree_args *args, int32_t sequence, int32_t head, const dci_gpu_view *view)
{
        searching s = {.args = args,
                       .list = (uint64_t)sequence * (uint64_t)args->score.n_heads + (uint64_t)head,
                       .row = args->score.rows[sequence],
                       .head = head,
                       .n_candidates = view->n_candidates,
                       .whole = view->n_candidates == args->score.n_grouped[sequence]};
        const int32_t room = view->room;
        const uint64_t held = (uint64_t)s.row * (uint64_t)args->score.n_heads + (uint64_t)head;
        if (args->score.due != NULL && args->score.due[s.list] != args->score.due_is)
                return;
        s.n_nodes = args->in_tree[2 * held];
        s.n_pages = args->in_tree[2 * held + 1];
        s.k = (room < args->select.stride ? room : args->select.stride) >> args->page_shift;
        if (view->sparse && s.k > 0 && s.n_nodes > 0) {
                int32_t wanted = (int32_t)(DCI_GPU_TREE_SHARE * (double)s.n_candidates);
                wanted = wanted > DCI_GPU_TREE_FEWEST ? wanted : DCI_GPU_TREE_FEWEST;
                wanted = args->field_of_view > 0 ? args->field_of_view : wanted;
                prepare(&s);
                score_nodes(&s);
                while (open_nodes(&s, wanted) < s.k && wanted < s.n_nodes)
                        wanted *= 2;
                for (int32_t p = 0; p < s.n_pages; p++)
                        if (is_opened(&s, owner_of(&s, p)))
                                score_page(&s, p);
                interleave(&s);
        }
        put(&s);
}

void dci_gpu_ref_tree(const dci_gpu_tree_args *args)
{
        for (int32_t i = 0; i < args->score.n_sequences; i++) {
                dci_gpu_view view;
                const int32_t n = args->score.n_tokens[i];
                DCI_GPU_VIEW(view, args->select.sizes, n, args->score.n_grouped[i]);
                for (int32_t h = 0; h < args->score.n_heads; h++)
                        plan(args, i, h, &view);
                if (args->select.selection.lists != NULL)
                        continue;
                args->select.sink_end[i] = view.sparse ? args->select.sizes.sink : 0;
                args->select.recent_begin[i] = view.sparse ? args->select.sizes.sink + view.n_candidates : 0;
                args->select.after[i] = n;
        }
}

void dci_gpu_ref_patch(const dci_gpu_patch_args *args)
{
        for (int32_t i = 0; i < args->n; i++)
                memcpy(args->patches[i].to, args->patches[i].from, args->patches[i].n_bytes);
}
