/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Resident pages. */
#include "core/internal.h"

#include <string.h>

#include "offload/resident.h"

#define NO_PAGE SIZE_MAX

static const int32_t *row_table(const dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        return kv->pool->tables + dci_gpu_kv_row_number(kv, row) * kv->max_blocks;
}

static bool has_page(const dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t page, int32_t block)
{
        return row->id >= 0 && page < dci_gpu_kv_blocks(kv, row->n) && row_table(kv, row)[page] == block;
}

dci_gpu_resident dci_gpu_kv_resident_pages(const dci_gpu_kv *kv, size_t layer)
{
        const dci_gpu_kv_resident *r = kv->resident;
        const size_t index = kv->layers[layer].index;
        if (kv->layers[layer].dense || r->n_slots == 0)
                return (dci_gpu_resident){.pages = NULL};
        return (dci_gpu_resident){.pages = r->memory + index * r->n_slots * kv->host->pool.block_bytes,
                                  .places = r->device_slots,
                                  .taken = r->taken + index * kv->n_lanes};
}

/* --- getting and losing slots ------------------------------------------------------------------------------------- */

static void note(dci_gpu_kv *kv, int32_t block)
{
        dci_gpu_kv_resident *r = kv->resident;
        int32_t *at = r->changes[kv->now % DCI_GPU_KV_RECORDS] + 2 * r->n_changes++;
        at[0] = block;
        at[1] = r->slots[block];
}

/* Counts a page that becomes resident, or is evicted, for all rows that have it. */
static void count(dci_gpu_kv *kv, dci_gpu_kv_row *row, size_t page, bool comes)
{
        const int32_t block = row_table(kv, row)[page];
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

/* Gives the page a slot. There is a free one. */
static void take_slot(dci_gpu_kv *kv, dci_gpu_kv_row *row, size_t page)
{
        dci_gpu_kv_resident *r = kv->resident;
        const int32_t block = row_table(kv, row)[page], slot = r->free_list[--r->n_free];
        r->slots[block] = slot;
        r->blocks[slot] = block;
        count(kv, row, page, true);
        note(kv, block);
}

static void free_slot(dci_gpu_kv *kv, int32_t block)
{
        dci_gpu_kv_resident *r = kv->resident;
        const int32_t slot = r->slots[block];
        r->free_list[r->n_free++] = slot;
        r->blocks[slot] = -1;
        r->slots[block] = -1;
        note(kv, block);
}

static void evict(dci_gpu_kv *kv, dci_gpu_kv_row *row, size_t page)
{
        count(kv, row, page, false);
        free_slot(kv, row_table(kv, row)[page]);
}

/* Applies the noted changes to the table on the device. */
static dci_status upload_changes(dci_gpu_kv *kv, void *stream)
{
        dci_gpu_kv_resident *r = kv->resident;
        const dci_gpu_reside_args args = {.changes = dci_gpu_kv_mapped(kv, r->changes[kv->now % DCI_GPU_KV_RECORDS]),
                                          .places = r->device_slots,
                                          .n = (int32_t)r->n_changes};
        r->n_changes = 0;
        return args.n == 0 ? DCI_OK : kv->ops->reside(kv->gpu, stream, &args);
}

/* Copies pages [first, first + n), which have slots, from host memory: those that are adjacent in both in one copy. */
static dci_status fill(dci_gpu_kv *kv, void *stream, const dci_gpu_kv_row *row, size_t first, size_t n)
{
        const dci_gpu_kv_resident *r = kv->resident;
        const size_t block_bytes = kv->host->pool.block_bytes;
        const int32_t *table = row_table(kv, row);
        for (size_t b = first, end; b < first + n; b = end) {
                const size_t most = dci_gpu_kv_run_end(table, kv->host->pool.piece_shift, b, first + n);
                for (end = b + 1; end < most && r->slots[table[end]] == r->slots[table[end - 1]] + 1;)
                        end++;
                const size_t slot = (size_t)r->slots[table[b]], n_bytes = (end - b) * block_bytes;
                for (size_t l = 0; l < kv->shape.n_layers; l++) {
                        if (kv->layers[l].dense)
                                continue;
                        unsigned char *to = r->memory + (kv->layers[l].index * r->n_slots + slot) * block_bytes;
                        DCI_TRY(kv->ops->copy(kv->gpu, stream, to, dci_gpu_kv_host_block(kv, l, table[b]), n_bytes));
                        kv->bytes_refilled += n_bytes;
                }
        }
        return DCI_OK;
}

/* --- eviction ----------------------------------------------------------------------------------------------------- */

/* Whether a sequence that was stepped later has the page, too; `guess` is the one that had the previous page. */
static bool has_later_owner(const dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t page, int32_t block, size_t *guess)
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

/* The row's oldest page, from its cursor on, that may be evicted, or NO_PAGE. */
static size_t next_victim(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        const int32_t *table = row_table(kv, row);
        const size_t n = dci_gpu_kv_blocks(kv, row->n);
        size_t guess = 0;
        for (; row->cursor < n; row->cursor++) {
                const int32_t block = table[row->cursor];
                if (kv->resident->slots[block] < 0)
                        row->oldest += row->oldest == row->cursor;
                else if (!has_later_owner(kv, row, row->cursor, block, &guess))
                        return row->cursor++;
        }
        row->cursor = NO_PAGE;
        return NO_PAGE;
}

static dci_gpu_kv_row *victim_row(dci_gpu_kv *kv)
{
        dci_gpu_kv_row *idle = NULL, *most = NULL;
        for (size_t i = 0; i < kv->config.max_sequences; i++) {
                dci_gpu_kv_row *row = &kv->rows[i];
                if (row->id < 0 || row->n_resident == 0 || row->cursor == NO_PAGE)
                        continue;
                if (!row->stepping)
                        idle = idle == NULL || row->stepped < idle->stepped ? row : idle;
                else
                        most = most == NULL || row->n_resident > most->n_resident ? row : most;
        }
        return idle != NULL ? idle : most;
}

static void evict_pages(dci_gpu_kv *kv, size_t wanted)
{
        dci_gpu_kv_row *row = NULL;
        for (size_t i = 0; i < kv->config.max_sequences && kv->resident->n_free < wanted; i++)
                kv->rows[i].cursor = kv->rows[i].oldest;
        while (kv->resident->n_free < wanted) {
                if (row == NULL || row->stepping)
                        row = victim_row(kv);
                if (row == NULL)
                        return;
                const size_t page = next_victim(kv, row);
                if (page == NO_PAGE)
                        row = NULL;
                else
                        evict(kv, row, page);
        }
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

/* Shares the room among the sequences of n new pages in all; each gets slots for its latest pages. */
static void add_new_pages(dci_gpu_kv *kv, size_t n, size_t room)
{
        for (size_t i = 0, before = 0; i < kv->step.n; i++) {
                dci_gpu_kv_row *row = &kv->rows[kv->step.rows[i]];
                const size_t first = dci_gpu_kv_blocks(kv, row->n),
                             end = dci_gpu_kv_blocks(kv, row->n + kv->step.wanted[i]), own = end - first,
                             share = own == 0 ? 0 : (before + own) * room / n - before * room / n;
                for (size_t page = end - share; page < end; page++)
                        take_slot(kv, row, page);
                before += own;
        }
}

/* Partial pages that the step appends to: a fork's own copy, or an evicted one. They get slots that are free, without
 * eviction. */
static dci_status add_partial_pages(dci_gpu_kv *kv)
{
        for (size_t i = 0; i < kv->step.n && kv->resident->n_free > 0; i++) {
                dci_gpu_kv_row *row = &kv->rows[kv->step.rows[i]];
                const size_t partial = row->n >> kv->page_shift;
                if (kv->step.wanted[i] == 0 || partial == dci_gpu_kv_blocks(kv, row->n) ||
                    kv->resident->slots[row_table(kv, row)[partial]] >= 0)
                        continue;
                take_slot(kv, row, partial);
                DCI_TRY(fill(kv, kv->step.stream, row, partial, 1));
        }
        return DCI_OK;
}

dci_status dci_gpu_kv_resident_step(dci_gpu_kv *kv)
{
        const dci_gpu_kv_resident *r = kv->resident;
        size_t n = 0;
        if (r->n_slots == 0)
                return DCI_OK;
        for (size_t i = 0; i < kv->step.n; i++) {
                const size_t before = kv->rows[kv->step.rows[i]].n;
                n += dci_gpu_kv_blocks(kv, before + kv->step.wanted[i]) - dci_gpu_kv_blocks(kv, before);
        }
        const size_t wanted = n < r->n_slots ? n : r->n_slots;
        evict_pages(kv, wanted);
        add_new_pages(kv, n, wanted < r->n_free ? wanted : r->n_free);
        DCI_TRY(add_partial_pages(kv));
        return upload_changes(kv, kv->step.stream);
}

void dci_gpu_kv_resident_copied(dci_gpu_kv *kv, dci_gpu_kv_row *row, int32_t block)
{
        row->n_resident -= kv->resident->n_slots > 0 && kv->resident->slots[block] >= 0;
}

/* --- with the device idle ----------------------------------------------------------------------------------------- */

void dci_gpu_kv_resident_recount(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        const size_t n = dci_gpu_kv_blocks(kv, row->n);
        row->n_resident = 0;
        row->oldest = n;
        for (size_t page = kv->resident->n_slots > 0 ? n : 0; page-- > 0;)
                if (kv->resident->slots[row_table(kv, row)[page]] >= 0) {
                        row->n_resident++;
                        row->oldest = page;
                }
}

static dci_status upload_and_wait(dci_gpu_kv *kv)
{
        DCI_GPU_KV_TRY(kv, upload_changes(kv, kv->side));
        return dci_gpu_kv_check_device(kv, kv->ops->stream_wait(kv->gpu, kv->side));
}

dci_status dci_gpu_kv_resident_sweep(dci_gpu_kv *kv)
{
        const dci_gpu_kv_resident *r = kv->resident;
        for (size_t p = 0; p < r->n_slots; p++)
                if (r->blocks[p] >= 0 && kv->host->pool.refs[r->blocks[p]] == 0)
                        free_slot(kv, r->blocks[p]);
        return r->n_changes == 0 ? DCI_OK : upload_and_wait(kv);
}

dci_status dci_gpu_kv_resident_leave(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        const dci_gpu_kv_resident *r = kv->resident;
        for (size_t page = 0; page < dci_gpu_kv_blocks(kv, row->n) && r->n_slots > 0; page++) {
                const int32_t block = row_table(kv, row)[page];
                bool owned = r->slots[block] < 0;
                for (size_t i = 0; i < kv->config.max_sequences && !owned; i++)
                        owned = has_page(kv, &kv->rows[i], page, block);
                if (!owned)
                        free_slot(kv, block);
        }
        row->n_resident = 0;
        return r->n_changes == 0 ? DCI_OK : upload_and_wait(kv);
}

dci_status dci_gpu_kv_resident_upload(dci_gpu_kv *kv, dci_gpu_kv_row *row)
{
        const dci_gpu_kv_resident *r = kv->resident;
        const int32_t *table = row_table(kv, row);
        if (r->n_slots == 0)
                return DCI_OK;
        dci_gpu_kv_resident_recount(kv, row);
        row->stepped = kv->now;
        for (size_t end = dci_gpu_kv_blocks(kv, row->n), first; end > 0; end = first) {
                for (first = end; first > 0 && end - first < r->n_free && r->slots[table[first - 1]] < 0;)
                        first--;
                for (size_t page = first; page < end; page++)
                        take_slot(kv, row, page);
                DCI_GPU_KV_TRY(kv, fill(kv, kv->side, row, first, end - first));
                first -= first == end;
        }
        return upload_and_wait(kv);
}
