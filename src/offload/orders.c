/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The device's copy of stored orders, and when new ones are made. */
#include "core/internal.h"

#include <string.h>

#include "kv/clusters.h"
#include "kv/queries.h"
#include "kv/stages/reorder.h"
#include "kv/worker.h"
#include "offload/orders.h"

/* Numbers of a step's record, by sparse layer; the first is where clusters and trees have theirs. */
enum { GROUPED, ORDERED, STATIC, SLOT };
_Static_assert(SLOT + 1 == DCI_GPU_KV_ORDER_NUMBERS, "the record has room for all");

bool dci_gpu_kv_has_orders(const dci_kv_config *shape)
{
        return shape->group == DCI_KV_GROUP_REORDERED && shape->select == DCI_KV_SELECT_STATIC;
}

/* --- sizes -------------------------------------------------------------------------------------------------------- */

size_t dci_gpu_kv_orders_init(dci_gpu_kv *kv)
{
        dci_gpu_kv_orders *o = kv->orders;
        const dci_kv_config *c = &kv->shape;
        dci_gpu_kv_store_init(kv, kv->summaries, (DCI_GPU_CHUNK >> kv->page_shift) * dci_gpu_kv_group_bytes(kv),
                              kv->config.max_tokens);
        dci_gpu_kv_store_init(kv, kv->ids, DCI_GPU_CHUNK * sizeof(int32_t), kv->config.max_tokens);
        o->stage_bytes = kv->ids->max_chunks * (kv->summaries->chunk_bytes + kv->ids->chunk_bytes);
        /* The queries of a request stay until it is due. */
        o->n_slots = c->ring + c->reorder_delay + 1;
        o->slot_bytes = c->n_query_heads * kv->dim * kv->query_es;
        return kv->config.max_tokens >> kv->page_shift;
}

dci_status dci_gpu_kv_orders_begin(dci_gpu_kv *kv)
{
        dci_gpu_kv_orders *o = kv->orders;
        if (!kv->planner.ordered)
                return DCI_OK;
        memset(o->ring, 0, kv->n_sparse * kv->config.max_sequences * o->n_slots * o->slot_bytes);
        memset(o->states, 0, kv->config.max_sequences * kv->n_sparse * sizeof *o->states);
        for (size_t i = 0; i < DCI_GPU_KV_ORDER_STAGES; i++)
                DCI_TRY(kv->ops->event_create(kv->gpu, false, &o->stage_events[i]));
        return DCI_OK;
}

void dci_gpu_kv_orders_destroy(dci_gpu_kv *kv)
{
        for (size_t i = 0; i < DCI_GPU_KV_ORDER_STAGES; i++)
                if (kv->orders->stage_events[i] != NULL)
                        kv->ops->event_destroy(kv->gpu, kv->orders->stage_events[i]);
        *kv->orders = (dci_gpu_kv_orders){.n_slots = 0};
}

/* --- states ------------------------------------------------------------------------------------------------------- */

static dci_gpu_kv_order *state_of(const dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t layer)
{
        return &kv->orders->states[dci_gpu_kv_row_number(kv, row) * kv->n_sparse + kv->layers[layer].index];
}

void dci_gpu_kv_orders_open(dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        memset(kv->orders->states + dci_gpu_kv_row_number(kv, row) * kv->n_sparse, 0,
               kv->n_sparse * sizeof *kv->orders->states);
}

void dci_gpu_kv_orders_group(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t n)
{
        for (size_t l = 0; l < kv->shape.n_layers; l++) {
                if (!dci_kv_groups(kv->host, l))
                        continue;
                dci_gpu_kv_order *o = state_of(kv, row, l);
                o->grouped = n > o->grouped ? n : o->grouped;
                if (o->first == 0)
                        o->first = o->grouped;
                o->before = o->n_pushed;
        }
}

void dci_gpu_kv_orders_planned(dci_gpu_kv *kv, size_t layer)
{
        for (size_t i = 0; i < kv->step.n && kv->planner.ordered && dci_kv_groups(kv->host, layer); i++) {
                dci_gpu_kv_order *o = state_of(kv, &kv->rows[kv->step.rows[i]], layer);
                o->n_pushed++;
        }
}

/* As the host drops an order or its first pages by position, and keeps whole pages after them. */
static void truncate_layer(const dci_gpu_kv *kv, dci_gpu_kv_order *o, size_t n)
{
        const size_t left = n > kv->shape.sink ? n - kv->shape.sink : 0,
                     whole = left / kv->shape.page_tokens * kv->shape.page_tokens;
        if (o->first > left) {
                o->lost = o->lost || o->ordered > 0;
                o->grouped = o->ordered = o->n_static = o->first = 0;
        }
        o->grouped = o->grouped < whole ? o->grouped : whole;
}

void dci_gpu_kv_orders_truncate(dci_gpu_kv *kv, dci_gpu_kv_row *row, size_t n)
{
        bool all_lost = true;
        for (size_t l = 0; l < kv->shape.n_layers; l++)
                if (dci_kv_groups(kv->host, l)) {
                        truncate_layer(kv, state_of(kv, row, l), n);
                        all_lost = all_lost && state_of(kv, row, l)->lost;
                }
        row->n_formed = all_lost ? 0 : row->n_formed;
}

dci_status dci_gpu_kv_orders_fork(dci_gpu_kv *kv, const dci_gpu_kv_row *from, dci_gpu_kv_row *to)
{
        const size_t here = dci_gpu_kv_row_number(kv, from), there = dci_gpu_kv_row_number(kv, to);
        for (size_t l = 0; l < kv->shape.n_layers; l++)
                if (dci_kv_groups(kv->host, l))
                        *state_of(kv, to, l) = *state_of(kv, from, l);
        dci_gpu_kv_orders_truncate(kv, to, to->n);
        dci_gpu_kv_store_share(kv->ids, here, there, kv->ids->n_chunks[here]);
        return dci_gpu_kv_check_device(kv, dci_gpu_kv_store_upload(kv, kv->ids, kv->side, there, 0));
}

size_t dci_gpu_kv_orders_bytes(const dci_gpu_kv *kv)
{
        return kv->planner.ordered ? dci_lines(kv->n_sparse * sizeof *kv->orders->states) : 0;
}

void dci_gpu_kv_orders_save(const dci_gpu_kv *kv, const dci_gpu_kv_row *row, void *image)
{
        if (kv->planner.ordered)
                memcpy(image, kv->orders->states + dci_gpu_kv_row_number(kv, row) * kv->n_sparse,
                       kv->n_sparse * sizeof *kv->orders->states);
}

void dci_gpu_kv_orders_settle(const dci_gpu_kv *kv, void *image, size_t n)
{
        dci_gpu_kv_order *saved = image;
        const size_t may = dci_kv_may_group(kv->host, n);
        for (size_t l = 0; l < kv->n_sparse && kv->planner.ordered; l++)
                if (saved[l].first > 0 && may > saved[l].grouped)
                        saved[l].grouped = may;
}

void dci_gpu_kv_orders_restore(const dci_gpu_kv *kv, const dci_gpu_kv_row *row, const void *image)
{
        if (!kv->planner.ordered)
                return;
        const dci_gpu_kv_order *saved = image;
        dci_gpu_kv_order *states = kv->orders->states + dci_gpu_kv_row_number(kv, row) * kv->n_sparse;
        for (size_t l = 0; l < kv->n_sparse; l++) {
                const dci_gpu_kv_order uploaded = states[l];
                states[l] = saved[l];
                states[l].ordered = uploaded.ordered;
                states[l].n_static = uploaded.n_static;
                if (saved[l].first == 0 && !saved[l].lost) { /* the prompt's order had not been uploaded */
                        states[l].grouped = uploaded.grouped;
                        states[l].first = uploaded.first;
                }
                states[l].lost = saved[l].lost && row->n_formed == 0;
        }
}

/* A step that was captured has made no plan unless its graph was launched, which then ended it. A prompt that has not
 * ended begins its ring again. */
void dci_gpu_kv_orders_abort(dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        const dci_kv_sequence *sequence = dci_gpu_kv_host_sequence(kv, row);
        for (size_t l = 0; l < kv->shape.n_layers; l++) {
                if (!dci_kv_groups(kv->host, l))
                        continue;
                dci_gpu_kv_order *o = state_of(kv, row, l);
                if (kv->step.bound > 0)
                        o->n_pushed = o->before;
                if (atomic_load(&sequence->layers[l].prompt) == DCI_KV_PROMPT_OPEN)
                        o->n_pulled = o->n_pushed;
        }
}

/* --- the step's record -------------------------------------------------------------------------------------------- */

/* A layer without an order of its own has the candidates that its lists were selected from. */
void dci_gpu_kv_orders_record(const dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t i, int32_t *numbers)
{
        const size_t n = kv->step.n, each = kv->n_sparse * n;
        for (size_t l = 0; l < kv->shape.n_layers; l++) {
                if (kv->layers[l].dense)
                        continue;
                const size_t of = dci_kv_groups(kv->host, l) ? l : dci_kv_anchor_of(kv->host, l);
                const dci_gpu_kv_order *o = state_of(kv, row, of);
                int32_t *at = numbers + kv->layers[l].index * n + i;
                at[GROUPED * each] = (int32_t)(o->grouped < row->step.n_formed ? o->grouped : row->step.n_formed);
                at[ORDERED * each] = (int32_t)o->ordered;
                at[STATIC * each] = (int32_t)(o->n_static >> kv->page_shift);
                at[SLOT * each] = (int32_t)(o->n_pushed % kv->orders->n_slots);
        }
}

static const int32_t *recorded(const dci_gpu_kv *kv, size_t what, size_t layer, size_t first)
{
        return dci_gpu_kv_record(kv, DCI_GPU_KV_NUMBERS + what * kv->n_sparse + kv->layers[layer].index) + first;
}

dci_gpu_order dci_gpu_kv_orders_of(const dci_gpu_kv *kv, size_t layer, size_t first)
{
        return (dci_gpu_order){.n_ordered = recorded(kv, ORDERED, layer, first),
                               .n_static = recorded(kv, STATIC, layer, first)};
}

static unsigned char *slot_at(const dci_gpu_kv *kv, size_t layer, size_t row, size_t slot)
{
        const dci_gpu_kv_orders *o = kv->orders;
        const size_t ring = kv->layers[layer].index * kv->config.max_sequences + row;
        return o->ring + (ring * o->n_slots + slot) * o->slot_bytes;
}

dci_gpu_query_ring dci_gpu_kv_orders_ring(const dci_gpu_kv *kv, size_t layer, size_t first)
{
        return (dci_gpu_query_ring){.to = dci_gpu_kv_mapped(kv, slot_at(kv, layer, 0, 0)),
                                    .slots = recorded(kv, SLOT, layer, first),
                                    .row_bytes = kv->orders->n_slots * kv->orders->slot_bytes};
}

/* --- uploads ------------------------------------------------------------------------------------------------------ */

/* Orders a stream after all that was queued. */
static dci_status order_after(dci_gpu_kv *kv, void *stream)
{
        DCI_TRY(kv->ops->event_record(kv->gpu, kv->side_event, kv->side));
        DCI_TRY(kv->ops->event_order(kv->gpu, stream, kv->side_event));
        return kv->ops->event_order(kv->gpu, stream, kv->step_event);
}

/* A layer's first pages as they will be in chunks, and the members of its order. */
typedef struct filling {
        const dci_gpu_kv *kv;
        const dci_kv_layer *layer;
        size_t n, n_ordered; /* candidates */
        unsigned char *pages, *ids;
} filling;

static void fill_head(void *arg, size_t head, size_t worker)
{
        const filling *f = arg;
        const dci_gpu_kv *kv = f->kv;
        const size_t per = DCI_GPU_CHUNK >> kv->page_shift, n_pages = f->n >> kv->page_shift,
                     bytes = dci_gpu_kv_group_bytes(kv);
        (void)worker;
        for (size_t b = 0; b < f->layer->n_batches; b++) {
                const dci_kv_clusters *batch = f->layer->batches[b];
                const unsigned char *rows = dci_kv_cluster_rows(kv->host, batch, head);
                const size_t before = batch->heads[head].before, end = before + batch->heads[head].n_groups;
                for (size_t p = before, here; p < end && p < n_pages; p += here) {
                        const size_t left = per - p % per, most = end < n_pages ? end - p : n_pages - p;
                        here = left < most ? left : most;
                        memcpy(f->pages + p / per * kv->summaries->chunk_bytes + head * kv->summaries->head_bytes +
                                       p % per * bytes,
                               rows + (p - before) * bytes, here * bytes);
                }
        }
        for (size_t c = 0, here; c < f->n_ordered; c += here) {
                here = f->n_ordered - c < DCI_GPU_CHUNK ? f->n_ordered - c : DCI_GPU_CHUNK;
                memcpy(f->ids + c / DCI_GPU_CHUNK * kv->ids->chunk_bytes + head * kv->ids->head_bytes,
                       dci_kv_cluster_ids(kv->host, f->layer->batches[0], head) + c, here * sizeof(int32_t));
        }
}

/* Copies chunks [0, n): those that are adjacent on the device at once. */
static dci_status copy_chunks(dci_gpu_kv *kv, const dci_gpu_kv_store *s, void *stream, size_t row, size_t sparse,
                              const unsigned char *from, size_t n)
{
        const int32_t *numbers = dci_gpu_kv_store_numbers(s, row);
        for (size_t c = 0, end; c < n; c = end) {
                end = dci_gpu_kv_run_end(numbers, s->piece_shift, c, n);
                DCI_TRY(kv->ops->copy(kv->gpu, stream, dci_gpu_kv_store_at(s, sparse, numbers[c]),
                                      from + c * s->chunk_bytes, (end - c) * s->chunk_bytes));
        }
        return DCI_OK;
}

/* Queues copies of a layer's pages of the first n candidates, and of its order's members. Pages after these stay. */
static dci_status send_layer(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t layer, const dci_kv_layer *from,
                             size_t n, void *stream)
{
        dci_gpu_kv_orders *o = kv->orders;
        const dci_gpu_kv_store *s = kv->summaries;
        const size_t at = dci_gpu_kv_row_number(kv, row), sparse = kv->layers[layer].index, whole = n / DCI_GPU_CHUNK,
                     rest = (n - whole * DCI_GPU_CHUNK) >> kv->page_shift, stage = o->next_stage,
                     n_ordered = from->n_batches > 0 ? from->batches[0]->n : 0;
        unsigned char *pages = o->stages[stage], *ids = pages + s->max_chunks * s->chunk_bytes;
        filling f = {kv, from, n, n_ordered, pages, ids};
        o->next_stage = (stage + 1) % DCI_GPU_KV_ORDER_STAGES;
        DCI_TRY(kv->ops->event_wait(kv->gpu, o->stage_events[stage]));
        dci_may_fail(true);
        const dci_status spread =
                dci_kv_spread(kv->host, SIZE_MAX, kv->shape.n_kv_heads,
                              kv->shape.n_kv_heads * (n >> kv->page_shift) * dci_gpu_kv_group_bytes(kv), fill_head, &f);
        dci_may_fail(false);
        for (size_t h = 0; h < kv->shape.n_kv_heads && spread != DCI_OK; h++)
                fill_head(&f, h, 0);
        DCI_TRY(copy_chunks(kv, s, stream, at, sparse, pages, whole));
        for (size_t h = 0; h < kv->shape.n_kv_heads && rest > 0; h++)
                DCI_TRY(kv->ops->copy(
                        kv->gpu, stream,
                        dci_gpu_kv_store_at(s, sparse, dci_gpu_kv_store_numbers(s, at)[whole]) + h * s->head_bytes,
                        pages + whole * s->chunk_bytes + h * s->head_bytes, rest * dci_gpu_kv_group_bytes(kv)));
        DCI_TRY(copy_chunks(kv, kv->ids, stream, at, sparse, ids, dci_gpu_kv_count_chunks(n_ordered)));
        return kv->ops->event_record(kv->gpu, o->stage_events[stage], stream);
}

static void note_order(const dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t layer, const dci_kv_layer *from)
{
        dci_gpu_kv_order *o = state_of(kv, row, layer);
        o->ordered = from->n_batches > 0 ? from->batches[0]->n : 0;
        o->n_static = from->n_batches > 0 ? from->batches[0]->n_static : 0;
        o->first = o->lost ? o->grouped : o->ordered;
        o->lost = false;
}

/* A file may have others. */
static dci_status check_pages(const dci_gpu_kv *kv, const dci_gpu_kv_row *row, const dci_kv_layer *layer)
{
        const size_t page = kv->shape.page_tokens;
        for (size_t b = 0; b < layer->n_batches; b++)
                for (size_t h = 0; h < kv->shape.n_kv_heads; h++)
                        if (layer->batches[b]->n % page != 0 ||
                            layer->batches[b]->heads[h].n_groups != layer->batches[b]->n / page)
                                return dci_fail(
                                        DCI_ERR_UNSUPPORTED,
                                        "sequence %lld, layer %zu: an order of %zu tokens in %zu pages, but the "
                                        "device plans with whole pages of %zu",
                                        (long long)row->id, layer->number, layer->batches[b]->n,
                                        layer->batches[b]->heads[h].n_groups, page);
        return DCI_OK;
}

/* The host builds pages of all candidates of which some layer has any. */
static dci_status build_pages(dci_gpu_kv *kv, dci_gpu_kv_row *row, const dci_kv_sequence *sequence)
{
        const size_t formed = row->n_formed;
        for (size_t l = 0; l < kv->shape.n_layers; l++) {
                const size_t n = sequence->layers[l].n_grouped;
                if (!dci_kv_groups(kv->host, l))
                        continue;
                row->n_formed = n > row->n_formed ? n : row->n_formed;
                dci_gpu_kv_order *o = state_of(kv, row, l);
                if (!o->lost && n > o->grouped)
                        o->grouped = n;
        }
        /* Of a layer whose order a file has cut away, the first pages are as long as the device forms them next. */
        for (size_t l = 0; l < kv->shape.n_layers && row->n_formed > 0; l++)
                if (dci_kv_groups(kv->host, l) && sequence->layers[l].n_grouped == 0)
                        state_of(kv, row, l)->lost = true;
        const dci_status status = dci_kv_maintain(kv->host, 1, &row->id);
        if (status != DCI_OK)
                row->n_formed = formed;
        return status;
}

dci_status dci_gpu_kv_orders_upload(dci_gpu_kv *kv, dci_gpu_kv_row *row, void *stream)
{
        const dci_kv_sequence *sequence = dci_gpu_kv_host_sequence(kv, row);
        const size_t at = dci_gpu_kv_row_number(kv, row), formed = row->n_formed;
        size_t n_ordered = 0;
        DCI_TRY(dci_kv_wait(kv->host, row->id));
        for (size_t l = 0; l < kv->shape.n_layers; l++)
                DCI_TRY(check_pages(kv, row, &sequence->layers[l]));
        DCI_TRY(build_pages(kv, row, sequence));
        const size_t n = dci_gpu_kv_host_grouped(kv, sequence), n_chunks = dci_gpu_kv_count_chunks(n);
        for (size_t l = 0; l < kv->shape.n_layers; l++)
                if (dci_kv_groups(kv->host, l) && sequence->layers[l].n_batches > 0 &&
                    sequence->layers[l].batches[0]->n > n_ordered)
                        n_ordered = sequence->layers[l].batches[0]->n;
        const size_t n_ids = dci_gpu_kv_count_chunks(n_ordered);
        dci_status status =
                dci_gpu_kv_store_ready(kv, kv->summaries, dci_gpu_kv_store_missing(kv->summaries, at, 0, n_chunks));
        if (status == DCI_OK)
                status = dci_gpu_kv_store_ready(kv, kv->ids, dci_gpu_kv_store_missing(kv->ids, at, 0, n_ids));
        if (status != DCI_OK) {
                row->n_formed = formed;
                return status;
        }
        DCI_GPU_KV_TRY(kv, order_after(kv, stream));
        DCI_TRY(dci_gpu_kv_store_make_exclusive(kv, kv->summaries, stream, at, 0, n_chunks));
        DCI_TRY(dci_gpu_kv_store_make_exclusive(kv, kv->ids, stream, at, 0, n_ids));
        for (size_t l = 0; l < kv->shape.n_layers; l++) {
                if (!dci_kv_groups(kv->host, l))
                        continue;
                DCI_GPU_KV_TRY(kv, send_layer(kv, row, l, &sequence->layers[l], n, stream));
                note_order(kv, row, l, &sequence->layers[l]);
        }
        row->n_formed = n;
        row->where = DCI_GPU_KV_ON_DEVICE;
        return DCI_OK;
}

/* Uploads a layer's new order. Chunks that a fork shares are copied first, which changes numbers that earlier steps may
 * still read. */
static dci_status upload_order(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t layer, const dci_kv_layer *from,
                               void *stream)
{
        const size_t at = dci_gpu_kv_row_number(kv, row), n = from->batches[0]->n,
                     n_chunks = dci_gpu_kv_count_chunks(n);
        const size_t n_copied = dci_gpu_kv_store_missing(kv->summaries, at, 0, n_chunks) +
                                dci_gpu_kv_store_missing(kv->ids, at, 0, kv->ids->n_chunks[at]);
        if (n_copied > 0) {
                DCI_TRY(dci_gpu_kv_wait_rows(kv));
                DCI_TRY(dci_gpu_kv_store_unshare(kv, kv->summaries, stream, at, n_chunks));
                DCI_TRY(dci_gpu_kv_store_unshare(kv, kv->ids, stream, at, kv->ids->n_chunks[at]));
        }
        DCI_GPU_KV_TRY(kv, order_after(kv, stream));
        DCI_TRY(dci_gpu_kv_store_make_exclusive(kv, kv->ids, stream, at, kv->ids->n_chunks[at], n_chunks));
        DCI_GPU_KV_TRY(kv, send_layer(kv, row, layer, from, n, stream));
        note_order(kv, row, layer, from);
        return DCI_OK;
}

/* --- new orders --------------------------------------------------------------------------------------------------- */

/* The host gets the queries of plans before number `end`; those of the last ones, as many as it keeps. A query that is
 * no number counts as nothing. */
static void pull(dci_gpu_kv *kv, const dci_gpu_kv_row *row, dci_kv_layer *layer, dci_gpu_kv_order *o, size_t end)
{
        dci_kv_selection_cache *d = layer->selection;
        const size_t ring = kv->shape.ring, n = end - o->n_pulled, heads = kv->shape.n_query_heads,
                     width = kv->group * kv->dim;
        for (size_t i = n > ring ? n - ring : 0; i < n; i++) {
                const unsigned char *queries = slot_at(kv, layer->number, dci_gpu_kv_row_number(kv, row),
                                                       (o->n_pulled + i) % kv->orders->n_slots);
                const bool good = dci_kv_bad_query(kv->host, heads, queries, kv->dim) >= heads;
                for (size_t h = 0; h < kv->shape.n_kv_heads; h++) {
                        float *to = d->ring + (h * ring + (d->n_pushed + i) % ring) * width;
                        if (good)
                                dci_kv_queries_to_f32(kv->host, queries, kv->dim, 0, h * kv->group, kv->group, to);
                        else
                                memset(to, 0, width * sizeof *to);
                }
        }
        d->n_pushed += n;
        o->n_pulled = end;
}

/* Has workers begin what was requested; everything that it needs has arrived. Nothing is made of bad rows. */
static dci_status start(dci_gpu_kv *kv, const dci_gpu_kv_row *row, dci_kv_layer *layer, dci_gpu_kv_order *o)
{
        const size_t due = o->due;
        if (dci_gpu_kv_bad(kv, row) != 0) {
                o->due = 0;
                return DCI_OK;
        }
        pull(kv, row, layer, o, o->n_pulled + (o->requested - layer->selection->n_pushed));
        DCI_TRY(dci_kv_start_order(kv->host, layer, due));
        o->due = 0;
        return DCI_OK;
}

dci_status dci_gpu_kv_orders_drain(dci_gpu_kv *kv, const dci_gpu_kv_row *row)
{
        dci_kv_sequence *sequence = dci_gpu_kv_host_sequence(kv, row);
        /* A prompt's order is being made from the ring. */
        DCI_TRY(dci_kv_wait(kv->host, row->id));
        for (size_t l = 0; l < kv->shape.n_layers; l++) {
                if (!dci_kv_groups(kv->host, l) || atomic_load(&sequence->layers[l].prompt) == DCI_KV_PROMPT_OPEN)
                        continue;
                dci_gpu_kv_order *o = state_of(kv, row, l);
                if (o->due > 0)
                        DCI_TRY(start(kv, row, &sequence->layers[l], o));
                pull(kv, row, &sequence->layers[l], o, o->n_pushed);
        }
        return DCI_OK;
}

static dci_status publish(dci_gpu_kv *kv, const dci_gpu_kv_row *row, dci_kv_layer *layer, dci_gpu_kv_order *o,
                          void *stream, bool *out_stale)
{
        if (o->due > 0) {
                DCI_TRY(dci_gpu_kv_wait_rows(kv));
                DCI_TRY(start(kv, row, layer, o));
        }
        if (layer->reorder == NULL)
                return DCI_OK;
        DCI_TRY(dci_kv_take_order(kv->host, layer));
        /* The device cannot add pages to an order that has some which it has not built. */
        *out_stale = *out_stale || layer->batches[0]->n > row->n_formed;
        return *out_stale ? DCI_OK : upload_order(kv, row, layer->number, layer, stream);
}

static dci_status renew_layer(dci_gpu_kv *kv, const dci_gpu_kv_row *row, dci_kv_layer *layer, void *stream,
                              bool *out_stale)
{
        dci_gpu_kv_order *o = state_of(kv, row, layer->number);
        const size_t delay = kv->shape.reorder_delay, may = dci_kv_may_group(kv->host, row->n),
                     n_pushed = layer->selection->n_pushed + o->n_pushed - o->n_pulled;
        if (o->due > 0 && kv->now - o->at > DCI_GPU_KV_RECORDS)
                DCI_TRY(start(kv, row, layer, o));
        if ((o->due > 0 || layer->reorder != NULL) &&
            n_pushed - (o->due > 0 ? o->requested : layer->reorder->started) >= delay)
                return publish(kv, row, layer, o, stream, out_stale);
        if (o->due > 0 || dci_kv_reordered_at(kv->host, layer, n_pushed) == 0)
                return DCI_OK;
        /* The first step after a prompt has not uploaded its order yet. */
        const size_t grouped = o->grouped == 0 && !o->lost ? layer->n_grouped : o->grouped;
        o->due = may > grouped ? may : grouped;
        o->requested = n_pushed;
        o->at = kv->now;
        return delay == 0 && o->due > 0 ? publish(kv, row, layer, o, stream, out_stale) : DCI_OK;
}

dci_status dci_gpu_kv_orders_renew(dci_gpu_kv *kv, dci_gpu_kv_row *row, void *stream, bool *out_stale)
{
        dci_kv_sequence *sequence = dci_gpu_kv_host_sequence(kv, row);
        *out_stale = *out_stale || row->where != DCI_GPU_KV_ON_DEVICE;
        for (size_t l = 0; l < kv->shape.n_layers; l++) {
                if (!dci_kv_groups(kv->host, l))
                        continue;
                DCI_TRY(renew_layer(kv, row, &sequence->layers[l], stream, out_stale));
                *out_stale = *out_stale || state_of(kv, row, l)->lost;
        }
        return DCI_OK;
}
