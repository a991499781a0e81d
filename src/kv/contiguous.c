/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Copies of rows in the order of the lists that devices select from. */
#include "core/internal.h"

#include <string.h>

#include "core/arena.h"
#include "kv/clusters.h"
#include "kv/contiguous.h"
#include "kv/lookup.h"
#include "kv/memory.h"
#include "kv/pool.h"
#include "kv/tree/tree.h"

/* --- layers ------------------------------------------------------------------------------------------------------- */

static bool is_copied(const dci_kv *kv, size_t layer)
{
        return kv->layer_modes[layer] == DCI_KV_LAYER_SPARSE;
}

size_t dci_kv_copied_number(const dci_kv *kv, size_t layer)
{
        size_t n = 0;
        for (size_t l = 0; l < layer; l++)
                n += is_copied(kv, l);
        return n;
}

void dci_kv_copies_init(dci_kv *kv)
{
        const size_t n = dci_kv_copied_number(kv, kv->config.n_layers);
        if (kv->config.contiguous != 0 && n > 0)
                dci_kv_pool_init_copies(kv, n);
}

/* Layers and heads that have copies. */
static size_t n_lists(const dci_kv *kv)
{
        return kv->copies.n_layers * kv->config.n_kv_heads;
}

/* The layer whose lists a layer uses. */
static const dci_kv_layer *owner_of(const dci_kv *kv, const dci_kv_layer *layer)
{
        return &layer->sequence->layers[dci_kv_anchor_of(kv, layer->number)];
}

/* --- lists -------------------------------------------------------------------------------------------------------- */

size_t dci_kv_listed_pages(const dci_kv *kv, const dci_kv_layer *layer, size_t head)
{
        const dci_kv_tree *tree = layer->heads[head].tree;
        if (dci_kv_has_trees(kv))
                return tree == NULL ? 0 : tree->n_pages;
        const dci_kv_clusters *last = layer->n_batches > 0 ? layer->batches[layer->n_batches - 1] : NULL;
        return last == NULL ? 0 : dci_kv_blocks_of(kv, last->first + last->n);
}

void dci_kv_listed_page(const dci_kv *kv, const dci_kv_layer *layer, size_t head, size_t page, size_t *batch,
                        int32_t *out)
{
        const size_t per_page = kv->config.page_tokens, first = page * per_page, end = first + per_page;
        memset(out, 0xff, per_page * sizeof *out);
        if (page >= dci_kv_listed_pages(kv, layer, head))
                return;
        if (dci_kv_has_trees(kv)) {
                const dci_kv_tree *tree = layer->heads[head].tree;
                memcpy(out, tree->members + first, dci_kv_tree_page_fill(kv, tree, page) * sizeof *out);
                return;
        }
        while (layer->batches[*batch]->first + layer->batches[*batch]->n <= first)
                ++*batch;
        for (size_t b = *batch; b < layer->n_batches && layer->batches[b]->first < end; b++) {
                const dci_kv_clusters *at = layer->batches[b];
                const size_t from = at->first > first ? at->first : first,
                             to = at->first + at->n < end ? at->first + at->n : end;
                memcpy(out + (from - first), dci_kv_cluster_ids(kv, at, head) + (from - at->first),
                       (to - from) * sizeof *out);
        }
}

/* --- an update ---------------------------------------------------------------------------------------------------- */

typedef struct updating {
        dci_kv *kv;
        dci_kv_sequence *sequence;
        dci_kv_changes *changes;
        size_t n_pages, n_places; /* afterwards */
} updating;

/* The layer and head of a task: tasks are all layers and heads; NULL: the layer has nothing to do. */
static dci_kv_layer *layer_of(const updating *u, size_t task, size_t *out_head, size_t *out_list)
{
        const dci_kv *kv = u->kv;
        dci_kv_layer *layer = &u->sequence->layers[task / kv->config.n_kv_heads];
        *out_head = task % kv->config.n_kv_heads;
        if (!is_copied(kv, layer->number) || layer->copied)
                return NULL;
        *out_list = dci_kv_copied_number(kv, layer->number) * kv->config.n_kv_heads + *out_head;
        return layer;
}

static void set_bit(uint64_t *bits, size_t at)
{
        bits[at / 64] |= UINT64_C(1) << (at % 64);
}

static bool get_bit(const uint64_t *bits, size_t at)
{
        return (bits[at / 64] >> (at % 64) & 1) != 0;
}

/* Whether a slot has to be written: it has another candidate's row, or one that is another token's by now. */
static bool differs(const dci_kv_copy *copy, int32_t there, int32_t wanted)
{
        return there != wanted || (there >= 0 && (size_t)there >= copy->trusted);
}

/* Marks the pages of one layer and head that differ from its lists. */
static void compare_task(void *arg, size_t task, size_t worker)
{
        const updating *u = arg;
        const dci_kv *kv = u->kv;
        const dci_kv_copy *copy = &u->sequence->copy;
        const size_t per_page = kv->config.page_tokens;
        int32_t wanted[DCI_KV_TILE];
        size_t head, list, batch = 0;
        const dci_kv_layer *layer = layer_of(u, task, &head, &list);
        (void)worker;
        if (layer == NULL || u->n_pages == 0)
                return;
        uint64_t *bits = u->changes->pages + list * u->changes->page_words;
        for (size_t p = 0; p < u->n_pages; p++) {
                const int32_t *there = p < copy->n_table
                                               ? dci_kv_copy_ids(kv, list / kv->config.n_kv_heads, copy->table[p], head)
                                               : NULL;
                dci_kv_listed_page(kv, owner_of(kv, layer), head, p, &batch, wanted);
                for (size_t i = 0; i < per_page; i++)
                        if (differs(copy, there != NULL ? there[i] : -1, wanted[i])) {
                                set_bit(bits, p);
                                break;
                        }
        }
}

/* Copies the rows of a page's candidates that are not there, and notes where they are now. */
static void write_page(const updating *u, const dci_kv_layer *layer, size_t head, size_t list, size_t page,
                       const int32_t *wanted)
{
        dci_kv *kv = u->kv;
        const dci_kv_copy *copy = &u->sequence->copy;
        const size_t per_page = kv->config.page_tokens, copied = list / kv->config.n_kv_heads;
        const dci_kv_page to = dci_kv_copy_at(kv, copied, copy->table[page], head);
        int32_t *there = dci_kv_copy_ids(kv, copied, copy->table[page], head);
        int32_t *places = owner_of(kv, layer) == layer ? dci_kv_copy_places(kv, u->sequence, copied, head) : NULL;
        const void *keys[DCI_KV_TILE], *values[DCI_KV_TILE];
        for (size_t i = 0; i < per_page; i++) {
                keys[i] = NULL;
                if (wanted[i] < 0 || !differs(copy, there[i], wanted[i]))
                        continue;
                dci_kv_rows_of(kv, layer, head, kv->config.sink + (size_t)wanted[i], 1, &keys[i], &values[i]);
                for (size_t j = 0; j < kv->dim_k * kv->es; j += DCI_CACHE_LINE) /* scattered rows */
                        DCI_PREFETCH((const unsigned char *)keys[i] + j);
        }
        for (size_t i = 0; i < per_page; i++) {
                if (keys[i] != NULL) {
                        memcpy(to.keys + i * to.key_step, keys[i], kv->dim_k * kv->es);
                        memcpy(to.values + i * to.value_step, values[i], kv->dim_v * kv->es);
                }
                if (keys[i] != NULL && places != NULL)
                        places[wanted[i]] = (int32_t)(page * per_page + i);
                if (keys[i] != NULL && places != NULL && u->changes != NULL)
                        set_bit(u->changes->chunks + list * u->changes->chunk_words, (size_t)wanted[i] / DCI_KV_CHUNK);
                there[i] = wanted[i];
        }
}

/* Candidates that the layer's lists do not have are nowhere. */
static void clear_places(const updating *u, const dci_kv_layer *layer, size_t head, size_t list)
{
        const dci_kv *kv = u->kv;
        int32_t *places = dci_kv_copy_places(kv, u->sequence, list / kv->config.n_kv_heads, head);
        const size_t before = u->sequence->copy.n_places, end = before > u->n_places ? before : u->n_places;
        for (size_t c = layer->n_grouped; c < end; c++)
                if (places[c] >= 0) {
                        places[c] = -1;
                        set_bit(u->changes->chunks + list * u->changes->chunk_words, c / DCI_KV_CHUNK);
                }
}

static void write_task(void *arg, size_t task, size_t worker)
{
        const updating *u = arg;
        const dci_kv *kv = u->kv;
        int32_t wanted[DCI_KV_TILE];
        size_t head, list, batch = 0;
        const dci_kv_layer *layer = layer_of(u, task, &head, &list);
        (void)worker;
        if (layer == NULL)
                return;
        for (size_t p = 0; p < u->n_pages; p++)
                if (get_bit(u->changes->pages + list * u->changes->page_words, p)) {
                        dci_kv_listed_page(kv, owner_of(kv, layer), head, p, &batch, wanted);
                        write_page(u, layer, head, list, p, wanted);
                }
        if (owner_of(kv, layer) == layer)
                clear_places(u, layer, head, list);
}

/* Whether some layer and head has changed the page. */
static bool some_changed(const updating *u, size_t page)
{
        bool some = false;
        for (size_t l = 0; l < n_lists(u->kv) && !some; l++)
                some = get_bit(u->changes->pages + l * u->changes->page_words, page);
        return some;
}

static bool changes_shared(const updating *u, size_t page)
{
        return u->kv->copies.refs[u->sequence->copy.table[page]] > 1 && some_changed(u, page);
}

/* Room for the places of n candidates; new ones are nowhere. */
static dci_status grow_places(dci_kv *kv, dci_kv_copy *copy, size_t n)
{
        size_t capacity = copy->place_capacity, n_bytes;
        int32_t *places;
        if (n <= capacity)
                return DCI_OK;
        capacity = n > 2 * capacity ? n : 2 * capacity;
        capacity = (capacity + DCI_KV_CHUNK - 1) / DCI_KV_CHUNK * DCI_KV_CHUNK;
        if (!dci_mul(capacity, n_lists(kv) * sizeof *places, &n_bytes))
                return dci_fail(DCI_ERR_LIMIT, "places of %zu candidates exceed the address space", capacity);
        DCI_TRY(dci_kv_alloc(kv, n_bytes, (void **)&places));
        memset(places, 0xff, n_bytes);
        for (size_t l = 0; l < n_lists(kv) && copy->n_places > 0; l++)
                memcpy(places + l * capacity, copy->places + l * copy->place_capacity, copy->n_places * sizeof *places);
        dci_kv_free(kv, copy->places, n_lists(kv) * copy->place_capacity * sizeof *places);
        copy->places = places;
        copy->place_capacity = capacity;
        return DCI_OK;
}

/* A block without rows, or with those of another one. */
static int32_t take_block(dci_kv *kv, int32_t like)
{
        dci_kv_pool *pool = &kv->copies;
        const int32_t block = dci_kv_pool_alloc(pool);
        for (size_t l = 0; l < pool->n_layers; l++) {
                if (like < 0) {
                        memset(dci_kv_copy_ids(kv, l, block, 0), 0xff, pool->id_bytes);
                        continue;
                }
                memcpy(dci_kv_copy_at(kv, l, block, 0).keys, dci_kv_copy_at(kv, l, like, 0).keys, pool->block_bytes);
                memcpy(dci_kv_copy_ids(kv, l, block, 0), dci_kv_copy_ids(kv, l, like, 0), pool->id_bytes);
        }
        return block;
}

/* Gives the sequence as many blocks as there are pages; those that change become its own. */
static dci_status take_blocks(const updating *u)
{
        dci_kv *kv = u->kv;
        dci_kv_copy *copy = &u->sequence->copy;
        const size_t kept = copy->n_table < u->n_pages ? copy->n_table : u->n_pages;
        size_t n = u->n_pages - kept;
        for (size_t p = 0; p < kept; p++)
                n += changes_shared(u, p);
        DCI_TRY(dci_kv_grow(kv, (void **)&copy->table, &copy->table_capacity, u->n_pages, sizeof *copy->table));
        DCI_TRY(grow_places(kv, copy, u->n_places));
        DCI_TRY(dci_kv_pool_ready(kv, &kv->copies, n));
        for (size_t p = 0; p < kept; p++) {
                const int32_t block = copy->table[p];
                if (!changes_shared(u, p))
                        continue;
                copy->table[p] = take_block(kv, block);
                dci_kv_pool_release(&kv->copies, block);
        }
        while (copy->n_table > u->n_pages)
                dci_kv_pool_release(&kv->copies, copy->table[--copy->n_table]);
        while (copy->n_table < u->n_pages)
                copy->table[copy->n_table++] = take_block(kv, -1);
        return DCI_OK;
}

static void measure(updating *u)
{
        const dci_kv *kv = u->kv;
        for (size_t l = 0; l < kv->config.n_layers; l++) {
                const dci_kv_layer *layer = &u->sequence->layers[l];
                if (!is_copied(kv, l))
                        continue;
                u->n_places = layer->n_grouped > u->n_places ? layer->n_grouped : u->n_places;
                for (size_t h = 0; h < kv->config.n_kv_heads; h++) {
                        const size_t n = dci_kv_listed_pages(kv, layer, h);
                        u->n_pages = n > u->n_pages ? n : u->n_pages;
                }
        }
}

static dci_status take_changes(updating *u)
{
        dci_kv_changes *c = u->changes, like = {0};
        const dci_kv_copy *copy = &u->sequence->copy;
        const size_t n = u->n_places > copy->n_places ? u->n_places : copy->n_places;
        like.page_words = (u->n_pages + 63) / 64;
        like.chunk_words = (n + 64 * DCI_KV_CHUNK - 1) / (64 * DCI_KV_CHUNK);
        dci_arena_part parts[] = {{n_lists(u->kv) * like.page_words * sizeof(uint64_t), &like.pages},
                                  {n_lists(u->kv) * like.chunk_words * sizeof(uint64_t), &like.chunks}};
        like.n_bytes = DCI_ARENA(parts, NULL);
        DCI_TRY(dci_kv_alloc(u->kv, like.n_bytes, (void **)&like.memory));
        memset(like.memory, 0, like.n_bytes);
        DCI_ARENA(parts, like.memory);
        *c = like;
        return DCI_OK;
}

static dci_status update(updating *u)
{
        dci_kv *kv = u->kv;
        dci_kv_copy *copy = &u->sequence->copy;
        const size_t n_tasks = kv->config.n_layers * kv->config.n_kv_heads;
        DCI_TRY(take_changes(u));
        DCI_TRY(dci_kv_spread(kv, SIZE_MAX, n_tasks, n_tasks * u->n_pages * kv->config.page_tokens, compare_task, u));
        DCI_TRY(take_blocks(u));
        DCI_TRY(dci_kv_spread(kv, SIZE_MAX, n_tasks, n_tasks * u->n_pages * kv->config.page_tokens * 16, write_task,
                              u));
        for (size_t l = 0; l < kv->config.n_layers; l++) {
                u->sequence->layers[l].copied = true;
                u->sequence->layers[l].copies_now = false;
        }
        u->changes->all = copy->early;
        copy->early = false;
        copy->n_places = u->n_places;
        copy->trusted = SIZE_MAX;
        return DCI_OK;
}

/* --- a prompt, by workers ----------------------------------------------------------------------------------------- */

/* Pages that n candidates may take in the layer's lists. */
static size_t most_pages(const dci_kv *kv, const dci_kv_layer *layer, size_t n)
{
        size_t most = dci_kv_blocks_of(kv, n);
        for (size_t h = 0; h < kv->config.n_kv_heads && dci_kv_has_trees(kv); h++) {
                const dci_kv_tree *tree = layer->heads[h].tree;
                most = tree != NULL && tree->page_capacity > most ? tree->page_capacity : most;
        }
        return most;
}

/* Blocks for a sequence that has none. */
static dci_status take_early(dci_kv *kv, dci_kv_copy *copy, size_t n_pages, size_t n)
{
        DCI_TRY(dci_kv_grow(kv, (void **)&copy->table, &copy->table_capacity, n_pages, sizeof *copy->table));
        DCI_TRY(grow_places(kv, copy, n));
        DCI_TRY(dci_kv_pool_ready(kv, &kv->copies, n_pages));
        while (copy->n_table < n_pages)
                copy->table[copy->n_table++] = take_block(kv, -1);
        copy->n_places = n;
        copy->trusted = SIZE_MAX;
        copy->early = true;
        return DCI_OK;
}

void dci_kv_begin_copies(dci_kv *kv, dci_kv_layer *layer, size_t n)
{
        dci_kv_copy *copy = &layer->sequence->copy;
        layer->copies_now = false;
        if (!kv->makes_copies || n == 0 || !is_copied(kv, layer->number) || owner_of(kv, layer) != layer)
                return;
        const size_t n_pages = most_pages(kv, layer, n);
        dci_may_fail(true);
        if (copy->n_table == 0)
                (void)take_early(kv, copy, n_pages, n);
        dci_may_fail(false);
        layer->copies_now = copy->early && copy->n_table >= n_pages && copy->n_places == n;
}

void dci_kv_copy_head(dci_kv *kv, dci_kv_layer *layer, size_t head)
{
        const updating u = {.kv = kv, .sequence = layer->sequence};
        const size_t list = dci_kv_copied_number(kv, layer->number) * kv->config.n_kv_heads + head;
        int32_t wanted[DCI_KV_TILE];
        size_t batch = 0;
        if (!layer->copies_now)
                return;
        for (size_t p = 0; p < dci_kv_listed_pages(kv, layer, head); p++) {
                dci_kv_listed_page(kv, layer, head, p, &batch, wanted);
                write_page(&u, layer, head, list, p, wanted);
        }
}

/* --- one after the other ------------------------------------------------------------------------------------------ */

bool dci_kv_copies_current(const dci_kv *kv, const dci_kv_sequence *sequence)
{
        bool all = true;
        for (size_t l = 0; l < kv->config.n_layers && all; l++)
                all = sequence->layers[l].copied || !is_copied(kv, l);
        return all;
}

/* Layers that use the lists of one that has changed have changed. */
static void mark_borrowers(const dci_kv *kv, dci_kv_sequence *sequence)
{
        for (size_t l = 0; l < kv->config.n_layers; l++)
                if (!sequence->layers[dci_kv_anchor_of(kv, l)].copied)
                        sequence->layers[l].copied = false;
}

dci_status dci_kv_update_copies(dci_kv *kv, int64_t sequence, dci_kv_changes *out)
{
        *out = (dci_kv_changes){.memory = NULL};
        DCI_TRY(dci_kv_lock(kv));
        dci_kv_sequence *found = dci_kv_find(kv, sequence);
        dci_status status = found == NULL ? DCI_ERR_NOT_FOUND : DCI_OK;
        if (status == DCI_OK) {
                dci_kv_jobs_wait(kv, found);
                mark_borrowers(kv, found);
                updating u = {.kv = kv, .sequence = found, .changes = out};
                measure(&u);
                status = dci_kv_copies_current(kv, found) ? DCI_OK : update(&u);
                if (status != DCI_OK)
                        dci_kv_free_changes(kv, out);
        }
        dci_kv_unlock(kv);
        return status;
}

void dci_kv_free_changes(dci_kv *kv, dci_kv_changes *changes)
{
        dci_kv_free(kv, changes->memory, changes->n_bytes);
        *changes = (dci_kv_changes){.memory = NULL};
}

int32_t *dci_kv_copy_places(const dci_kv *kv, const dci_kv_sequence *sequence, size_t copied, size_t head)
{
        const dci_kv_copy *copy = &sequence->copy;
        const size_t before = (copied * kv->config.n_kv_heads + head) * copy->place_capacity;
        return copy->places == NULL ? NULL : copy->places + before;
}

/* --- sequences ---------------------------------------------------------------------------------------------------- */

void dci_kv_distrust_copies(const dci_kv *kv, dci_kv_sequence *sequence, size_t n)
{
        const size_t left = n > kv->config.sink ? n - kv->config.sink : 0;
        sequence->copy.trusted = left < sequence->copy.trusted ? left : sequence->copy.trusted;
}

dci_status dci_kv_fork_copies(dci_kv *kv, const dci_kv_sequence *from, size_t n, dci_kv_sequence *to)
{
        const dci_kv_copy *source = &from->copy;
        dci_kv_copy *copy = &to->copy;
        if (source->n_table == 0)
                return DCI_OK;
        DCI_TRY(dci_kv_grow(kv, (void **)&copy->table, &copy->table_capacity, source->n_table, sizeof *copy->table));
        DCI_TRY(grow_places(kv, copy, source->n_places));
        for (size_t l = 0; l < n_lists(kv); l++)
                memcpy(copy->places + l * copy->place_capacity, source->places + l * source->place_capacity,
                       source->n_places * sizeof *copy->places);
        for (size_t p = 0; p < source->n_table; p++) {
                dci_kv_pool_retain(&kv->copies, source->table[p]);
                copy->table[copy->n_table++] = source->table[p];
        }
        copy->n_places = source->n_places;
        copy->trusted = source->trusted;
        copy->early = source->early;
        dci_kv_distrust_copies(kv, to, n);
        return DCI_OK;
}

void dci_kv_release_copies(dci_kv *kv, dci_kv_sequence *sequence)
{
        dci_kv_copy *copy = &sequence->copy;
        while (copy->n_table > 0)
                dci_kv_pool_release(&kv->copies, copy->table[--copy->n_table]);
        dci_kv_free(kv, copy->table, copy->table_capacity * sizeof *copy->table);
        dci_kv_free(kv, copy->places, n_lists(kv) * copy->place_capacity * sizeof *copy->places);
        *copy = (dci_kv_copy){.table = NULL};
}
