/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Pages of sparse layers that stay on the device as long as there is room. All of it is taken when the object is made, cut into places of one
 * block in every sparse layer: [sparse layer][place]. A table by block says which place a block has, or none; so forks share a page's place as they
 * share its block, and append and gather find it by one more read, which waits together with that of the piece.
 *
 * A page that has a place has all its rows there: blocks get one when a step takes them, before their first row is stored, or by a copy of
 * what host memory has. Leaving costs nothing, since host memory has everything: a place is given to another block. The table changes in stream
 * order only, behind the gathers of earlier steps, by a kernel that reads changes in locked memory from the step's ring of records; or with
 * the device idle. A block that is freed loses its place before anybody can take it again: by then the device is idle.
 *
 * Which pages leave: one that only sequences outside of the step have, of the sequence that was stepped least recently, its oldest first;
 * when there is none, the oldest of the step's sequence that has the most, since each of them fetches as much whatever its length. A page
 * that several sequences have counts for the one that was stepped last. Old pages go before new ones, as recent tokens are looked at most, and
 * no list of what was read is needed, which only the device would know.
 */
#include "core/internal.h"

#include <string.h>

#include "offload/offload_internal.h"

#define NOWHERE SIZE_MAX

static const int32_t *table_of(const dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        return kv->tables + dci_gpu_kv_row_at(kv, row) * kv->max_blocks;
}

static bool has_page(const dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t page, int32_t block)
{
        return row->id >= 0 && page < dci_gpu_kv_blocks(kv, row->n) && table_of(kv, row)[page] == block;
}

/* --- coming and leaving ---------------------------------------------------------------------------------------------------------------- */

static void note(dci_gpu_kv *kv, int32_t block)
{
        dci_gpu_kv_resident *r = &kv->resident;
        int32_t *at = r->changes[kv->now % DCI_GPU_KV_RECORDS] + 2 * r->n_changes++;
        at[0] = block;
        at[1] = r->places[block];
}

/* All that have the row's page have one more that is resident, or one less. */
static void count(dci_gpu_kv *kv, dci_gpu_kv_row *row, size_t page, bool comes)
{
        const int32_t block = table_of(kv, row)[page];
        const bool shared = kv->host->pool.refs[block] > 1;
        for (size_t i = 0; i < (shared ? kv->config.max_sequences : 1); i++) {
                dci_gpu_kv_row *holder = shared ? &kv->rows[i] : row;
                if (shared && !has_page(kv, holder, page, block))
                        continue;
                holder->n_resident += comes ? 1 : SIZE_MAX;
                if (comes && page < holder->oldest)
                        holder->oldest = page;
        }
}

/* There is a free place. */
static void come(dci_gpu_kv *kv, dci_gpu_kv_row *row, size_t page)
{
        dci_gpu_kv_resident *r = &kv->resident;
        const int32_t block = table_of(kv, row)[page], place = r->free_list[--r->n_free];
        r->places[block] = place;
        r->blocks[place] = block;
        count(kv, row, page, true);
        note(kv, block);
}

static void free_place(dci_gpu_kv *kv, int32_t block)
{
        dci_gpu_kv_resident *r = &kv->resident;
        const int32_t place = r->places[block];
        r->free_list[r->n_free++] = place;
        r->blocks[place] = -1;
        r->places[block] = -1;
        note(kv, block);
}

static void leave(dci_gpu_kv *kv, dci_gpu_kv_row *row, size_t page)
{
        count(kv, row, page, false);
        free_place(kv, table_of(kv, row)[page]);
}

/* What was noted, to the device. */
static dci_status tell(dci_gpu_kv *kv, void *stream)
{
        dci_gpu_kv_resident *r = &kv->resident;
        const dci_gpu_reside_args args = {.changes = dci_gpu_kv_mapped(kv, r->changes[kv->now % DCI_GPU_KV_RECORDS]),
                                          .places = r->device_places,
                                          .n = (int32_t)r->n_changes};
        r->n_changes = 0;
        return args.n == 0 ? DCI_OK : kv->ops->reside(kv->gpu, stream, &args);
}

/* Rows of pages [first, first + n) that have places now, from host memory: those that follow each other in both in one copy. */
static dci_status fill(dci_gpu_kv *kv, void *stream, const dci_gpu_kv_row *row, size_t first, size_t n)
{
        const dci_gpu_kv_resident *r = &kv->resident;
        const size_t block_bytes = kv->host->pool.block_bytes;
        const int32_t *table = table_of(kv, row);
        dci_status status = DCI_OK;
        for (size_t b = first, end; b < first + n && status == DCI_OK; b = end) {
                const size_t most = dci_gpu_kv_run_end(kv, table, b, first + n);
                for (end = b + 1; end < most && r->places[table[end]] == r->places[table[end - 1]] + 1;)
                        end++;
                const size_t place = (size_t)r->places[table[b]], n_bytes = (end - b) * block_bytes;
                for (size_t l = 0; l < kv->shape.n_layers && status == DCI_OK; l++) {
                        if (kv->layers[l].dense)
                                continue;
                        unsigned char *to = r->memory + (kv->layers[l].index * r->n_places + place) * block_bytes;
                        status = kv->ops->copy(kv->gpu, stream, to, dci_gpu_kv_host_block(kv, l, table[b]), n_bytes);
                        kv->bytes_refilled += n_bytes;
                }
        }
        return status;
}

/* --- pressure ------------------------------------------------------------------------------------------------------------------------- */

/* Whether a sequence that was stepped later has it, too; `guess` is the one that had the page before, as a rule. */
static bool has_later_holder(const dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t page, int32_t block, size_t *guess)
{
        if (kv->host->pool.refs[block] <= 1)
                return false;
        for (size_t i = 0, n = kv->config.max_sequences; i < n; i++) {
                const size_t at = (*guess + i) % n;
                if (kv->rows[at].stepped > row->stepped && has_page(kv, &kv->rows[at], page, block)) {
                        *guess = at;
                        return true;
                }
        }
        return false;
}

/* The row's oldest page, from its cursor on, that may leave; none: NOWHERE. */
static size_t page_that_leaves(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        const int32_t *table = table_of(kv, row);
        const size_t n = dci_gpu_kv_blocks(kv, row->n);
        size_t guess = 0;
        for (; row->cursor < n; row->cursor++) {
                const int32_t block = table[row->cursor];
                if (kv->resident.places[block] < 0)
                        row->oldest += row->oldest == row->cursor;
                else if (!has_later_holder(kv, row, row->cursor, block, &guess))
                        return row->cursor++;
        }
        row->cursor = NOWHERE;
        return NOWHERE;
}

static dci_gpu_kv_row *row_under_pressure(dci_gpu_kv *kv)
{
        dci_gpu_kv_row *idle = NULL, *most = NULL;
        for (size_t i = 0; i < kv->config.max_sequences; i++) {
                dci_gpu_kv_row *row = &kv->rows[i];
                if (row->id < 0 || row->n_resident == 0 || row->cursor == NOWHERE)
                        continue;
                if (!row->stepping)
                        idle = idle == NULL || row->stepped < idle->stepped ? row : idle;
                else
                        most = most == NULL || row->n_resident > most->n_resident ? row : most;
        }
        return idle != NULL ? idle : most;
}

static void make_room(dci_gpu_kv *kv, size_t wanted)
{
        dci_gpu_kv_row *row = NULL;
        for (size_t i = 0; i < kv->config.max_sequences && kv->resident.n_free < wanted; i++)
                kv->rows[i].cursor = kv->rows[i].oldest;
        while (kv->resident.n_free < wanted) {
                if (row == NULL || row->stepping)
                        row = row_under_pressure(kv);
                if (row == NULL)
                        return;
                const size_t page = page_that_leaves(kv, row);
                if (page == NOWHERE)
                        row = NULL;
                else
                        leave(kv, row, page);
        }
}

/* --- steps ---------------------------------------------------------------------------------------------------------------------------- */

/* Of n new pages in all there is room for so many: each sequence gets its share, for its latest. */
static void place_new(dci_gpu_kv *kv, size_t n, size_t room)
{
        for (size_t i = 0, before = 0; i < kv->step.n; i++) {
                dci_gpu_kv_row *row = &kv->rows[kv->step.at[i]];
                const size_t first = dci_gpu_kv_blocks(kv, row->n),
                             end = dci_gpu_kv_blocks(kv, row->n + kv->step.wanted[i]), own = end - first,
                             share = own == 0 ? 0 : (before + own) * room / n - before * room / n;
                for (size_t page = end - share; page < end; page++)
                        come(kv, row, page);
                before += own;
        }
}

/* Pages that the step goes on in: a fork's own copy, or one that had left. They come if that costs nobody a place. */
static dci_status place_cut(dci_gpu_kv *kv)
{
        dci_status status = DCI_OK;
        for (size_t i = 0; i < kv->step.n && kv->resident.n_free > 0 && status == DCI_OK; i++) {
                dci_gpu_kv_row *row = &kv->rows[kv->step.at[i]];
                const size_t cut = row->n >> kv->page_shift;
                if (kv->step.wanted[i] == 0 || cut == dci_gpu_kv_blocks(kv, row->n) ||
                    kv->resident.places[table_of(kv, row)[cut]] >= 0)
                        continue;
                come(kv, row, cut);
                status = fill(kv, kv->step.stream, row, cut, 1);
        }
        return status;
}

dci_status dci_gpu_kv_resident_step(dci_gpu_kv *kv)
{
        const dci_gpu_kv_resident *r = &kv->resident;
        size_t n = 0;
        if (r->n_places == 0)
                return DCI_OK;
        for (size_t i = 0; i < kv->step.n; i++) {
                const size_t before = kv->rows[kv->step.at[i]].n;
                n += dci_gpu_kv_blocks(kv, before + kv->step.wanted[i]) - dci_gpu_kv_blocks(kv, before);
        }
        const size_t wanted = n < r->n_places ? n : r->n_places;
        make_room(kv, wanted);
        place_new(kv, n, wanted < r->n_free ? wanted : r->n_free);
        const dci_status status = place_cut(kv);
        return status == DCI_OK ? tell(kv, kv->step.stream) : status;
}

void dci_gpu_kv_resident_copied(dci_gpu_kv *kv, dci_gpu_kv_row *row, int32_t block)
{
        row->n_resident -= kv->resident.n_places > 0 && kv->resident.places[block] >= 0;
}

/* --- with the device idle --------------------------------------------------------------------------------------------------------------- */

void dci_gpu_kv_resident_recount(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        const size_t n = dci_gpu_kv_blocks(kv, row->n);
        row->n_resident = 0;
        row->oldest = n;
        for (size_t page = kv->resident.n_places > 0 ? n : 0; page-- > 0;)
                if (kv->resident.places[table_of(kv, row)[page]] >= 0) {
                        row->n_resident++;
                        row->oldest = page;
                }
}

static dci_status tell_and_wait(dci_gpu_kv *kv, dci_status status)
{
        if (status == DCI_OK)
                status = tell(kv, kv->side);
        return dci_gpu_kv_check_device(kv, status == DCI_OK ? kv->ops->stream_wait(kv->gpu, kv->side) : status);
}

dci_status dci_gpu_kv_resident_sweep(dci_gpu_kv *kv)
{
        const dci_gpu_kv_resident *r = &kv->resident;
        for (size_t p = 0; p < r->n_places; p++)
                if (r->blocks[p] >= 0 && kv->host->pool.refs[r->blocks[p]] == 0)
                        free_place(kv, r->blocks[p]);
        return r->n_changes == 0 ? DCI_OK : tell_and_wait(kv, DCI_OK);
}

dci_status dci_gpu_kv_resident_upload(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        const dci_gpu_kv_resident *r = &kv->resident;
        const int32_t *table = table_of(kv, row);
        dci_status status = DCI_OK;
        if (r->n_places == 0)
                return DCI_OK;
        dci_gpu_kv_resident_recount(kv, row);
        row->stepped = kv->now;
        for (size_t end = dci_gpu_kv_blocks(kv, row->n), first; end > 0 && status == DCI_OK; end = first) {
                for (first = end; first > 0 && end - first < r->n_free && r->places[table[first - 1]] < 0;)
                        first--;
                for (size_t page = first; page < end; page++)
                        come(kv, row, page);
                status = fill(kv, kv->side, row, first, end - first);
                first -= first == end;
        }
        return tell_and_wait(kv, status);
}
