/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Rows by slot, in chunks that never move once published, so that searches read them while an add appends. Only a lone
 * first chunk grows by copying (16 rows at first, so that a small index stays small); the old copy is retired, not freed.
 */
#include "core/internal.h"

#include <string.h>

#include "index/codes/rows.h"
#include "index/pdci/directions.h"
#include "index/rows.h"

#define CHUNK_BYTES ((size_t)256 << 10)
#define FIRST_ROWS 16

void dci_rows_init(dci_rows *rows, dci_context *context, const dci_index_config *config)
{
        rows->context = context;
        rows->dim = config->dim;
        rows->dtype = config->dtype;
        rows->metric = config->metric;
        rows->borrowed = config->storage == DCI_ROWS_BORROWED;
        rows->n_simple = dci_index_simple_indices(config);
        rows->with_norms = config->metric == DCI_METRIC_COSINE ||
                           (config->kind != DCI_KIND_FLAT && config->metric == DCI_METRIC_IP);
        rows->codes = NULL;
        rows->gaps = config->kind == DCI_KIND_MDCI;
        rows->row_bytes = rows->borrowed ? sizeof(void *) : config->dim * dci_dtype_size(config->dtype);
        rows->chunk_shift = 4;
        size_t bytes = rows->row_bytes + rows->n_simple * sizeof(float);
        while (rows->chunk_shift < 20 && (bytes << (rows->chunk_shift + 1)) <= CHUNK_BYTES)
                rows->chunk_shift++;
        /* A page is in one chunk. */
        while (rows->gaps && (size_t)1 << rows->chunk_shift < config->page_rows)
                rows->chunk_shift++;
        /* And so does a block of codes. */
        while (config->sketch_bits != 0 && (size_t)1 << rows->chunk_shift < DCI_CODE_ROWS)
                rows->chunk_shift++;
        rows->n_chunks = 0;
        rows->mapped = false;
        atomic_init(&rows->table, NULL);
        atomic_init(&rows->n, 0);
}

/* Rows, ids, norms, each at a multiple of 8 (row_bytes may be odd multiples of 2), and projections at a cache line. */
static size_t chunk_ids_offset(const dci_rows *rows, size_t capacity)
{
        return (rows->row_bytes * capacity + 7) / 8 * 8;
}

static size_t chunk_projections_offset(const dci_rows *rows, size_t capacity)
{
        size_t end = chunk_ids_offset(rows, capacity) + capacity * sizeof(int64_t) +
                     (rows->with_norms ? capacity * sizeof(float) : 0);
        return rows->n_simple == 0 ? end : dci_lines(end);
}

static size_t chunk_bytes(const dci_rows *rows, size_t capacity)
{
        return chunk_projections_offset(rows, capacity) + rows->n_simple * capacity * sizeof(float);
}

static bool chunk_create(const dci_rows *rows, size_t capacity, dci_chunk *out)
{
        unsigned char *bytes = dci_alloc(rows->context, chunk_bytes(rows, capacity), 1);
        if (bytes == NULL)
                return false;
        *out = (dci_chunk){.rows = bytes, .capacity = capacity, .stride = capacity};
        if (!dci_chunk_codes_create(rows, capacity, out)) {
                dci_free(rows->context, bytes, chunk_bytes(rows, capacity), 1);
                return false;
        }
        out->ids = (int64_t *)(void *)(bytes + chunk_ids_offset(rows, capacity));
        out->norms = rows->with_norms ? (float *)(void *)(out->ids + capacity) : NULL;
        out->projections =
                rows->n_simple == 0 ? NULL : (float *)(void *)(bytes + chunk_projections_offset(rows, capacity));
        /* Scans may read through empty slots, and drop what they find. */
        for (size_t i = 0; rows->gaps && i < capacity; i++)
                out->ids[i] = -1;
        return true;
}

static void chunk_free(const dci_rows *rows, const dci_chunk *chunk)
{
        dci_chunk_codes_free(rows, chunk);
        dci_free(rows->context, chunk->rows, chunk_bytes(rows, chunk->capacity), 1);
}

static size_t table_bytes(size_t capacity)
{
        return sizeof(dci_chunk_table) + capacity * sizeof(dci_chunk);
}

void dci_rows_destroy(dci_rows *rows)
{
        dci_chunk_table *table = atomic_load(&rows->table);
        for (size_t i = 0; i < rows->n_chunks && !rows->mapped; i++)
                chunk_free(rows, &table->chunk[i]);
        for (size_t i = 0; i < rows->n_chunks && rows->mapped; i++) /* of a file whose codes were made again */
                dci_chunk_codes_free(rows, &table->chunk[i]);
        if (table != NULL)
                dci_free(rows->context, table, table_bytes(table->capacity), 1);
        dci_rows_codes_destroy(rows->context, rows->codes);
        rows->codes = NULL;
}

size_t dci_rows_capacity(const dci_rows *rows)
{
        if (rows->n_chunks == 0)
                return 0;
        return ((rows->n_chunks - 1) << rows->chunk_shift) +
               atomic_load(&rows->table)->chunk[rows->n_chunks - 1].capacity;
}

/* What a reserve prepares before it changes anything. */
typedef struct growth {
        dci_chunk_table *table;
        size_t n_chunks;       /* in the new table */
        size_t n_kept;         /* taken over from the old one; the others are new */
        dci_retired *notes[3]; /* for the old table, the old first chunk and its codes */
} growth;

static void growth_undo(dci_rows *rows, growth *g)
{
        if (g->table != NULL) {
                for (size_t i = g->n_kept; i < g->n_chunks; i++)
                        chunk_free(rows, &g->table->chunk[i]);
                dci_free(rows->context, g->table, table_bytes(g->table->capacity), 1);
        }
        for (int i = 0; i < 3; i++)
                dci_free(rows->context, g->notes[i], 1, sizeof *g->notes[i]);
}

/* Rows of the last chunk when n rows are wanted: full ones, but a lone first chunk doubles until it is full. */
static size_t first_capacity(const dci_rows *rows, size_t n)
{
        size_t capacity = FIRST_ROWS;
        while (capacity < n)
                capacity *= 2;
        return capacity > (size_t)1 << rows->chunk_shift ? (size_t)1 << rows->chunk_shift : capacity;
}

static bool growth_prepare(dci_rows *rows, size_t n, growth *g)
{
        const dci_chunk_table *old = atomic_load(&rows->table);
        const size_t full = (size_t)1 << rows->chunk_shift;
        size_t wanted = (n + full - 1) >> rows->chunk_shift, n_old = rows->n_chunks;
        bool first_grows = n_old > 0 && old->chunk[0].capacity < full;
        memset(g, 0, sizeof *g);
        g->n_kept = first_grows ? 0 : n_old;
        g->n_chunks = g->n_kept;

        size_t capacity = old == NULL ? 4 : old->capacity;
        while (capacity < wanted)
                capacity *= 2;
        g->table = dci_alloc(rows->context, table_bytes(capacity), 1);
        if (g->table == NULL)
                return false;
        g->table->capacity = capacity;
        for (size_t i = 0; i < g->n_kept; i++)
                g->table->chunk[i] = old->chunk[i];
        for (int i = 0; i < 3; i++) {
                g->notes[i] = dci_alloc(rows->context, 1, sizeof *g->notes[i]);
                if (g->notes[i] == NULL)
                        return false;
        }
        while (g->n_chunks < wanted) {
                size_t rows_here = wanted == 1 ? first_capacity(rows, n) : full;
                if (!chunk_create(rows, rows_here, &g->table->chunk[g->n_chunks]))
                        return false;
                g->n_chunks++;
        }
        if (first_grows && g->n_chunks > 0) {
                size_t used = atomic_load(&rows->n);
                const dci_chunk *from = &old->chunk[0];
                dci_chunk *to = &g->table->chunk[0];
                dci_chunk_codes_copy(rows, from, used, to);
                memcpy(to->rows, from->rows, used * rows->row_bytes);
                memcpy(to->ids, from->ids, used * sizeof *to->ids);
                if (rows->with_norms) /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): then both have them */
                        memcpy(to->norms, from->norms, used * sizeof *to->norms);
                for (size_t j = 0; j < rows->n_simple;
                     j++) /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): likewise */
                        memcpy(to->projections + j * to->stride, from->projections + j * from->stride,
                               used * sizeof *to->projections);
        }
        return true;
}

/* Gives the note back if there is nothing to retire. */
static void retire(dci_rows *rows, dci_retired **list, dci_retired *note, void *pointer, size_t n_bytes)
{
        if (pointer == NULL) {
                dci_free(rows->context, note, 1, sizeof *note);
                return;
        }
        note->pointer = pointer;
        note->n_bytes = n_bytes;
        note->next = *list;
        *list = note;
}

/* Has the present table room, and need its first chunk not grow? Readers use the chunks of published rows only, so later
 * places may be written. A new table for every chunk would be as many bytes as the square of chunks, which all wait to be
 * freed where searches never pause. */
static bool fits_table(const dci_rows *rows, size_t wanted)
{
        const dci_chunk_table *table = atomic_load(&rows->table);
        return rows->n_chunks > 0 && wanted <= table->capacity &&
               table->chunk[0].capacity == (size_t)1 << rows->chunk_shift;
}

static dci_status append_chunks(dci_rows *rows, size_t wanted)
{
        dci_chunk_table *table = atomic_load(&rows->table);
        const size_t before = rows->n_chunks;
        while (rows->n_chunks < wanted) {
                if (!chunk_create(rows, (size_t)1 << rows->chunk_shift, &table->chunk[rows->n_chunks]))
                        break;
                rows->n_chunks++;
        }
        if (rows->n_chunks == wanted)
                return DCI_OK;
        while (rows->n_chunks > before)
                chunk_free(rows, &table->chunk[--rows->n_chunks]);
        return DCI_ERR_MEMORY;
}

dci_status dci_rows_reserve(dci_rows *rows, size_t n, dci_retired **retired)
{
        const size_t full = (size_t)1 << rows->chunk_shift, wanted = (n + full - 1) >> rows->chunk_shift;
        if (n <= dci_rows_capacity(rows))
                return DCI_OK;
        if (fits_table(rows, wanted))
                return append_chunks(rows, wanted);
        growth g;
        if (!growth_prepare(rows, n, &g)) {
                growth_undo(rows, &g);
                return DCI_ERR_MEMORY;
        }
        dci_chunk_table *old = atomic_load(&rows->table);
        /* A table may be there without chunks, after everything was removed. */
        const dci_chunk *first = rows->n_chunks > 0 && g.n_kept == 0 ? &old->chunk[0] : NULL;
        retire(rows, retired, g.notes[0], first == NULL ? NULL : first->rows,
               first == NULL ? 0 : chunk_bytes(rows, first->capacity));
        void *codes = first == NULL ? NULL : first->codes;
        retire(rows, retired, g.notes[2], codes,
               codes == NULL ? 0 : dci_code_block_bytes(&rows->codes->frames, first->capacity));
        retire(rows, retired, g.notes[1], old, old == NULL ? 0 : table_bytes(old->capacity));
        rows->n_chunks = g.n_chunks;
        atomic_store_explicit(&rows->table, g.table, memory_order_release);
        return DCI_OK;
}

/* The chunks' pointers are not const, but nothing writes to a mapped index. */
static void *at_offset(const void *base, size_t n_bytes)
{
        return base == NULL ? NULL : (unsigned char *)(uintptr_t)base + n_bytes;
}

dci_status dci_rows_attach(dci_rows *rows, size_t n, const dci_rows_parts *parts)
{
        const size_t full = (size_t)1 << rows->chunk_shift, n_chunks = (n + full - 1) >> rows->chunk_shift;
        dci_chunk_table *table = dci_alloc(rows->context, table_bytes(n_chunks), 1);
        if (table == NULL)
                return DCI_ERR_MEMORY;
        table->capacity = n_chunks;
        for (size_t i = 0; i < n_chunks; i++) {
                const size_t first = i << rows->chunk_shift;
                table->chunk[i] = (dci_chunk){
                        .rows = at_offset(parts->rows, first * rows->row_bytes),
                        .ids = at_offset(parts->ids, first * sizeof(int64_t)),
                        .norms = at_offset(parts->norms, first * sizeof(float)),
                        .projections = at_offset(parts->projections, first * sizeof(float)),
                        .capacity = n - first < full ? n - first : full,
                        .stride = n,
                };
        }
        rows->mapped = true;
        rows->n_chunks = n_chunks;
        atomic_store_explicit(&rows->table, table, memory_order_release);
        return DCI_OK;
}

void dci_rows_shrink(dci_rows *rows, size_t n)
{
        dci_chunk_table *table = atomic_load(&rows->table);
        const size_t full = (size_t)1 << rows->chunk_shift;
        size_t wanted = (n + full - 1) >> rows->chunk_shift;
        while (rows->n_chunks > wanted)
                chunk_free(rows, &table->chunk[--rows->n_chunks]);
}

void dci_rows_clear(dci_rows *rows)
{
        dci_chunk_table *table = atomic_load(&rows->table);
        atomic_store(&rows->n, 0);
        dci_rows_shrink(rows, 0);
        atomic_store(&rows->table, NULL);
        if (table != NULL)
                dci_free(rows->context, table, table_bytes(table->capacity), 1);
}

void dci_rows_swap(dci_rows *a, dci_rows *b)
{
        dci_chunk_table *table = atomic_load(&a->table);
        const size_t n = atomic_load(&a->n), n_chunks = a->n_chunks;
        dci_rows_codes *codes = a->codes;
        const bool with_norms = a->with_norms, gaps = a->gaps;
        const unsigned chunk_shift = a->chunk_shift;
        a->codes = b->codes;
        a->with_norms = b->with_norms;
        a->gaps = b->gaps;
        a->chunk_shift = b->chunk_shift;
        a->n_chunks = b->n_chunks;
        atomic_store(&a->table, atomic_load(&b->table));
        atomic_store(&a->n, atomic_load(&b->n));
        b->codes = codes;
        b->with_norms = with_norms;
        b->gaps = gaps;
        b->chunk_shift = chunk_shift;
        b->n_chunks = n_chunks;
        atomic_store(&b->table, table);
        atomic_store(&b->n, n);
}

void dci_rows_copy(dci_rows *from_rows, size_t from, dci_rows *to_rows, size_t to)
{
        size_t a, b;
        const dci_rows *rows = from_rows;
        const dci_chunk *source = dci_rows_chunk(from_rows, from, &a);
        dci_chunk *target = dci_rows_chunk(to_rows, to, &b);
        const void *row = (const unsigned char *)source->rows + a * rows->row_bytes;
        if (rows->borrowed && !to_rows->borrowed)
                row = ((const void *const *)source->rows)[a];
        memcpy((unsigned char *)target->rows + b * to_rows->row_bytes, row, to_rows->row_bytes);
        target->ids[b] = source->ids[a];
        if (rows->with_norms && to_rows->with_norms)
                target->norms[b] = source->norms[a];
        for (size_t j = 0; j < rows->n_simple; j++)
                target->projections[j * target->stride + b] = source->projections[j * source->stride + a];
        if (from_rows == to_rows && rows->codes != NULL && source->area.frames[a / DCI_CODE_ROWS] != DCI_RAW_FRAME &&
            source->area.frames[a / DCI_CODE_ROWS] == target->area.frames[b / DCI_CODE_ROWS])
                dci_code_block_move(&rows->codes->frames, &source->area, a, &target->area, b);
        else
                dci_rows_encode_one(to_rows, to);
}

size_t dci_rows_bytes(const dci_rows *rows, dci_memory_report *report)
{
        const dci_chunk_table *table = atomic_load(&rows->table);
        size_t total = table == NULL ? 0 : table_bytes(table->capacity);
        report->other += total;
        for (size_t i = 0; i < rows->n_chunks; i++) {
                size_t capacity = table->chunk[i].capacity;
                if (table->chunk[i].codes != NULL) {
                        report->codes += dci_code_block_bytes(&rows->codes->frames, capacity);
                        total += dci_code_block_bytes(&rows->codes->frames, capacity);
                }
                if (rows->mapped)
                        continue;
                report->rows += chunk_ids_offset(rows, capacity);
                report->ids += capacity * sizeof(int64_t);
                report->norms += rows->with_norms ? capacity * sizeof(float) : 0;
                report->projections += rows->n_simple * capacity * sizeof(float);
                total += chunk_bytes(rows, capacity);
        }
        return total;
}
